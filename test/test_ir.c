// SPDX-License-Identifier: Apache-2.0
//
// The graph: text round trips, each invariant of graph_verify violated once, sorting, extraction,
// attributes. Random graphs cover the rest; broken texts (truncated or changed) must yield an
// error, not a crash.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/ir.h"

struct fixture {
    struct arena arena;
    struct symtab st;
    struct graph g;
    struct err e;
};

static void start(struct fixture *f)
{
    *f = (struct fixture){0};
    symtab_init(&f->st, &f->arena);
    graph_init(&f->g, &f->arena, &f->st);
}

static void stop(struct fixture *f) { arena_release(&f->arena); }

static void set_type(struct graph *g, value_id v, enum dtype t, const char *dims)
{
    struct value *val = graph_value(g, v);
    struct str rest = str_of(dims), head;
    val->dtype = t;
    val->shape = (struct shape){.known = true};
    while (str_cut(rest, ' ', &head, &rest)) val->shape.dim[val->shape.rank++] = sym_parse(g->sym, head, NULL);
}

static value_id add_input(struct graph *g, const char *name)
{
    value_id v = graph_add_value(g, str_of(name));
    set_type(g, v, DT_F32, "1 3 H W ");
    *arr_push(g->arena, &g->input) = v;
    return v;
}

static value_id add_op(struct graph *g, const char *op, value_id a, value_id b)
{
    value_id v = graph_op(g, op, S("n"), b ? 2 : 1, (value_id[]){a, b});
    set_type(g, v, DT_F32, "1 3 H W ");
    return v;
}

static struct str print(struct fixture *f, const struct graph *g, bool keys)
{
    struct buf b = {0};
    graph_print(&b, g, &(struct graph_text_opts){.keys = keys});
    struct str s = str_dup(&f->arena, buf_view(&b));
    buf_release(&b);
    return s;
}

/* A graph with one of everything that the text form can hold. */
static void build_rich(struct fixture *f)
{
    struct graph *g = &f->g;
    start(f);
    value_id x = add_input(g, "x"), odd = add_input(g, "odd \"name\"\\ \n\xff");
    struct tensor *w = tensor_new(&f->arena, DT_F16, 2, (i64[]){2, 2});
    for (i64 k = 0; k < 4; k++) elem_set_f64(DT_F16, w->data, k, (double)k * 0.1 - 1e-3);
    struct tensor *big = tensor_new(&f->arena, DT_I64, 1, (i64[]){65});
    for (i64 k = 0; k < 65; k++) elem_set_i64(DT_I64, big->data, k, k * k - 7);
    struct tensor *nan = tensor_new(&f->arena, DT_F32, 0, NULL);
    elem_set_f64(DT_F32, nan->data, 0, __builtin_nan(""));
    value_id c = graph_add_const(g, S("w"), w), cb = graph_add_const(g, S("big"), big);
    value_id cn = graph_add_const(g, S("nan"), nan);
    value_id y = add_op(g, "quern::Thing", x, c), z = add_op(g, "Add", y, odd);
    node_id n = graph_value(g, y)->producer;
    node_add_in(g, n, 0);
    node_add_in(g, n, cb);
    node_add_in(g, n, cn);
    attr_set_int(g, n, "i", -5);
    attr_set_float(g, n, "f", 3);
    attr_set_float(g, n, "tiny", 1e-300);
    attr_set_str(g, n, "s", S("a\"b\\c\x01\xc3\xa4"));
    attr_set_ints(g, n, "is", (i64[]){INT64_MIN, 0, INT64_MAX}, 3);
    attr_set_ints(g, n, "none", NULL, 0);
    attr_set_tensor(g, n, "t", w);
    double fs[] = {1, -0.5, __builtin_inf()};
    struct str ss[] = {S("p"), S(""), S("q,]")};
    attr_copy(g, n, &(struct attr){.name = S("fs"), .kind = ATTR_FLOATS, .n = 3, .floats = fs});
    attr_copy(g, n, &(struct attr){.name = S("no fs"), .kind = ATTR_FLOATS});
    attr_copy(g, n, &(struct attr){.name = S("ss"), .kind = ATTR_STRS, .n = 3, .strs = ss});
    node_set_out(g, n, 2, graph_add_value(g, S("third")));
    set_type(g, graph_find(g, S("third")), DT_I64, "2 ");
    struct sym_data *d = arena_new(&f->arena, struct sym_data);
    *d = (struct sym_data){.n = 2, .den = 3, .num = arena_array(&f->arena, sym, 2)};
    d->num[0] = sym_parse(&f->st, S("H*2+1"), NULL);
    d->num[1] = sym_parse(&f->st, S("min(W,7)//2"), NULL);
    graph_value(g, graph_find(g, S("third")))->sdata = d;
    graph_value(g, graph_find(g, S("third")))->part =
        (struct part){.whole = sym_parse(&f->st, S("H+3"), NULL), .from = sym_parse(&f->st, S("min(H,1)"), NULL)};
    graph_value(g, z)->layout = LAYOUT_C8;
    set_type(g, z, DT_BF16, "1 max(H,3) (H+63)//64*2 'strange,\\'])'*W ");
    *arr_push(g->arena, &g->output) = z;
    *arr_push(g->arena, &g->output) = z;
    *arr_push(g->arena, &g->output) = c;
    assert_true(graph_verify(g, &f->e));
}

static void check_round_trip(struct fixture *f, const struct graph *g, bool keys)
{
    struct graph back;
    struct str text = print(f, g, keys);
    if (!graph_parse(&back, &f->arena, &f->st, text, &f->e)) fail_msg("%s in\n%s", f->e.msg, text.p);
    assert_string_equal(print(f, &back, keys).p, text.p);
}

static void test_text_rich(void **state)
{
    struct fixture f;
    build_rich(&f);
    check_round_trip(&f, &f.g, false);
    check_round_trip(&f, &f.g, true);
    struct str keys = print(&f, &f.g, true), full = print(&f, &f.g, false);
    assert_null(strstr(keys.p, "odd"));
    assert_null(strstr(keys.p, "\"n\""));
    assert_non_null(strstr(full.p, "%\"odd \\\"name\\\"\\\\ \\x0a\\xff\""));
    assert_non_null(strstr(full.p, "tiny=1e-300"));
    assert_non_null(strstr(full.p, "f=3.0"));
    stop(&f);
}

/* A second graph in a symbol table of its own gives the same text. */
static void test_text_other_symtab(void **state)
{
    struct fixture f, h;
    build_rich(&f);
    start(&h);
    struct str text = print(&f, &f.g, false);
    assert_true(graph_parse(&h.g, &h.arena, &h.st, text, &h.e));
    assert_string_equal(print(&h, &h.g, false).p, text.p);
    stop(&h);
    stop(&f);
}

static void build_random(struct fixture *f, struct rng *r)
{
    start(f);
    struct graph *g = &f->g;
    i64 n = rng_range(r, 1, 30);
    add_input(g, "x");
    for (i64 k = 0; k < n; k++) {
        value_id a = (value_id)rng_range(r, 1, g->value.n - 1), b = (value_id)rng_range(r, 0, g->value.n - 1);
        add_op(g, "Op", a, b);
    }
    *arr_push(g->arena, &g->output) = g->value.n - 1;
    *arr_push(g->arena, &g->output) = (value_id)rng_range(r, 1, g->value.n - 1);
}

/* Permutes the nodes (not the values). */
static void shuffle(struct graph *g, struct rng *r)
{
    for (node_id n = g->node.n - 1; n > 1; n--) {
        node_id m = (node_id)rng_range(r, 1, n);
        struct node t = g->node.v[n];
        g->node.v[n] = g->node.v[m];
        g->node.v[m] = t;
    }
    for (node_id n = 1; n < g->node.n; n++)
        for (u32 k = 0; k < g->node.v[n].out.n; k++) node_set_out(g, n, k, g->node.v[n].out.v[k]);
}

static void check_sorted(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        for (u32 k = 0; k < g->node.v[n].in.n; k++)
            if (g->node.v[n].in.v[k]) assert_true(graph_value(g, g->node.v[n].in.v[k])->producer < n);
}

static void test_sort(void **state)
{
    struct rng r = rng_seed(1);
    for (int round = 0; round < 200; round++) {
        struct fixture f;
        build_random(&f, &r);
        assert_true(graph_sort(&f.g, &f.e));
        struct str once = print(&f, &f.g, false);
        check_sorted(&f.g);
        assert_true(graph_sort(&f.g, &f.e)); /* stable: a sorted graph is unchanged */
        assert_string_equal(print(&f, &f.g, false).p, once.p);
        node_id n_nodes = f.g.node.n;
        shuffle(&f.g, &r);
        assert_true(graph_verify(&f.g, &f.e));
        check_round_trip(&f, &f.g, false);
        assert_true(graph_sort(&f.g, &f.e));
        assert_true(graph_verify(&f.g, &f.e));
        check_sorted(&f.g);
        assert_int_equal(f.g.node.n, n_nodes);
        stop(&f);
    }
}

static void test_sort_drops(void **state)
{
    struct fixture f;
    start(&f);
    value_id x = add_input(&f.g, "x"), a = add_op(&f.g, "A", x, 0), b = add_op(&f.g, "B", a, 0);
    add_op(&f.g, "Unused", a, 0);
    value_id c = add_op(&f.g, "C", a, 0);
    graph_node(&f.g, graph_value(&f.g, b)->producer)->dead = true;
    graph_replace(&f.g, b, c);
    *arr_push(&f.arena, &f.g.output) = c;
    assert_true(graph_sort(&f.g, &f.e));
    assert_int_equal(f.g.node.n, 3);
    assert_true(str_is(graph_node(&f.g, 2)->op, "C"));
    assert_int_equal(graph_value(&f.g, b)->producer, 0);
    assert_true(graph_verify(&f.g, &f.e));
    u32 *uses = graph_use_counts(&f.g, &f.arena);
    assert_int_equal(uses[a], 1);
    assert_int_equal(uses[c], 1);
    assert_int_equal(uses[b], 0);
    stop(&f);
}

static void test_sort_deep(void **state)
{
    struct fixture f;
    start(&f);
    value_id v = add_input(&f.g, "x");
    for (int k = 0; k < 100000; k++) v = graph_op(&f.g, "R", S("r"), 1, &v);
    *arr_push(&f.arena, &f.g.output) = v;
    struct rng r = rng_seed(2);
    shuffle(&f.g, &r);
    assert_true(graph_sort(&f.g, &f.e));
    check_sorted(&f.g);
    assert_true(graph_verify(&f.g, &f.e));
    stop(&f);
}

/* verify: f->g is x -> A -> y -> B -> z, broken by one function at a time. */

struct breakage {
    const char *message; /* part of the expected message */
    void (*make)(struct graph *g, value_id y, value_id z);
};

static void break_name(struct graph *g, value_id y, value_id z) { graph_value(g, z)->name = graph_value(g, y)->name; }
static void break_no_name(struct graph *g, value_id y, value_id z) { graph_value(g, z)->name = (struct str){0}; }
static void break_producer(struct graph *g, value_id y, value_id z) { graph_value(g, y)->producer = 99; }
static void break_index(struct graph *g, value_id y, value_id z) { graph_value(g, y)->out_index = 1; }
static void break_rank(struct graph *g, value_id y, value_id z) { graph_value(g, y)->shape.rank = 9; }
static void break_dim(struct graph *g, value_id y, value_id z) { graph_value(g, y)->shape.dim[1] = 0; }
static void break_layout(struct graph *g, value_id y, value_id z)
{
    graph_value(g, y)->shape.rank = 2;
    graph_value(g, y)->layout = LAYOUT_C8;
}
static void break_part(struct graph *g, value_id y, value_id z)
{
    graph_value(g, y)->part = (struct part){.axis = 8, .from = sym_const(g->sym, 0), .whole = sym_const(g->sym, 99)};
}
static void break_part_layout(struct graph *g, value_id y, value_id z)
{
    graph_value(g, y)->layout = LAYOUT_C16;
    graph_value(g, y)->part = (struct part){.axis = 1, .from = sym_const(g->sym, 0), .whole = sym_const(g->sym, 99)};
}
static void break_part_end(struct graph *g, value_id y, value_id z)
{
    sym own = graph_value(g, y)->shape.dim[1];
    graph_value(g, y)->part = (struct part){.axis = 1, .from = sym_const(g->sym, 1), .whole = own};
}
static void break_const(struct graph *g, value_id y, value_id z) { graph_value(g, y)->is_const = true; }
static void break_data(struct graph *g, value_id y, value_id z)
{
    graph_value(g, y)->data = tensor_new(g->arena, DT_F32, 0, NULL);
}
static value_id use_const(struct graph *g, value_id y)
{
    value_id c = graph_add_const(g, S("c"), tensor_new(g->arena, DT_F32, 1, (i64[]){2}));
    node_add_in(g, graph_value(g, y)->producer, c);
    return c;
}
static void break_data_dtype(struct graph *g, value_id y, value_id z)
{
    graph_value(g, use_const(g, y))->dtype = DT_I32;
}
static void break_data_shape(struct graph *g, value_id y, value_id z)
{
    graph_value(g, use_const(g, y))->shape.dim[0] = sym_const(g->sym, 3);
}
static void break_in(struct graph *g, value_id y, value_id z) { g->node.v[1].in.v[0] = 99; }
static void break_out(struct graph *g, value_id y, value_id z) { *arr_push(g->arena, &g->node.v[1].out) = 99; }
static void break_twice(struct graph *g, value_id y, value_id z) { *arr_push(g->arena, &g->node.v[2].out) = y; }
static void break_op(struct graph *g, value_id y, value_id z) { g->node.v[1].op.n = 0; }
static void break_source(struct graph *g, value_id y, value_id z)
{
    g->node.v[1].in.v[0] = graph_add_value(g, S("nowhere"));
}
static void break_dead(struct graph *g, value_id y, value_id z) { g->node.v[1].dead = true; }
static void break_output(struct graph *g, value_id y, value_id z) { g->output.v[0] = 0; }
static void break_input(struct graph *g, value_id y, value_id z) 
{
    value_id v = g->input.v[0];
    *arr_push(g->arena, &g->input) = v;
}
static void break_input_made(struct graph *g, value_id y, value_id z) { *arr_push(g->arena, &g->input) = y; }
static void break_cycle(struct graph *g, value_id y, value_id z) { node_add_in(g, 1, z); }
static void break_sdata(struct graph *g, value_id y, value_id z)
{
    graph_value(g, y)->sdata = arena_new(g->arena, struct sym_data);
}

static const struct breakage breakages[] = {
    {"not unique", break_name},
    {"no name", break_no_name},
    {"out of range", break_producer},
    {"does not list", break_index},
    {"rank", break_rank},
    {"size", break_dim},
    {"layout", break_layout},
    {"invalid part", break_part},
    {"invalid part", break_part_layout},
    {"outside the whole", break_part_end},
    {"constant has a producer", break_const},
    {"content", break_data},
    {"dtype disagrees", break_data_dtype},
    {"shape disagrees", break_data_shape},
    {"input out of range", break_in},
    {"output out of range", break_out},
    {"more than one producer", break_twice},
    {"no operator", break_op},
    {"no producer", break_source},
    {"no producer", break_dead},
    {"output 0 out of range", break_output},
    {"twice", break_input},
    {"has a producer", break_input_made},
    {"cycle", break_cycle},
    {"symbolic content", break_sdata},
};

static void test_verify(void **state)
{
    for (i64 k = 0; k < countof(breakages); k++) {
        struct fixture f;
        start(&f);
        value_id x = add_input(&f.g, "x"), y = add_op(&f.g, "A", x, 0), z = add_op(&f.g, "B", y, 0);
        *arr_push(&f.arena, &f.g.output) = z;
        assert_true(graph_verify(&f.g, &f.e));
        breakages[k].make(&f.g, y, z);
        if (graph_verify(&f.g, &f.e)) fail_msg("breakage %d passed", (int)k);
        if (!strstr(f.e.msg, breakages[k].message)) fail_msg("breakage %d: %s", (int)k, f.e.msg);
        stop(&f);
    }
}

static void test_cycle_sort(void **state)
{
    struct fixture f;
    start(&f);
    value_id x = add_input(&f.g, "x"), y = add_op(&f.g, "A", x, 0), z = add_op(&f.g, "B", y, 0);
    node_add_in(&f.g, 1, z);
    *arr_push(&f.arena, &f.g.output) = z;
    assert_false(graph_sort(&f.g, &f.e));
    assert_non_null(strstr(f.e.msg, "cycle"));
    assert_int_equal(f.g.node.n, 3);
    stop(&f);
}

static void test_clone(void **state)
{
    struct fixture f;
    struct graph c;
    build_rich(&f);
    graph_clone(&c, &f.g, &f.arena);
    assert_true(graph_verify(&c, &f.e));
    assert_string_equal(print(&f, &c, false).p, print(&f, &f.g, false).p);
    attr_set_int(&c, 1, "i", 1);
    c.node.v[1].in.v[0] = 0;
    assert_int_equal(attr_int(graph_node(&f.g, 1), "i", 0), -5);
    assert_int_not_equal(f.g.node.v[1].in.v[0], 0);
    stop(&f);
}

static void test_extract(void **state)
{
    struct fixture f;
    struct graph t;
    value_id *back;
    build_rich(&f);
    value_id y = f.g.node.v[1].out.v[0], z = f.g.node.v[2].out.v[0];
    graph_extract(&t, &f.g, &f.arena, (node_id[]){2}, 1, (value_id[]){z}, 1, &back);
    assert_true(graph_verify(&t, &f.e));
    assert_int_equal(t.input.n, 2); /* y and the odd one */
    assert_int_equal(back[t.input.v[0]], y);
    assert_int_equal(back[t.input.v[1]], f.g.input.v[1]);
    assert_int_equal(back[t.output.v[0]], z);
    graph_extract(&t, &f.g, &f.arena, (node_id[]){1, 2}, 2, (value_id[]){z, y}, 2, NULL);
    assert_true(graph_verify(&t, &f.e));
    assert_int_equal(t.input.n, 2);
    value_id w = graph_find(&t, S("w"));
    assert_true(graph_value(&t, w)->is_const);
    assert_ptr_equal(graph_value(&t, w)->data, graph_value(&f.g, graph_find(&f.g, S("w")))->data);
    stop(&f);
}

/* Equal computations under other names have equal keys. */
static void test_keys(void **state)
{
    struct str key[2];
    struct fixture f[2];
    for (int k = 0; k < 2; k++) {
        start(&f[k]);
        value_id x = add_input(&f[k].g, k ? "x" : "image"), y = add_op(&f[k].g, "A", x, x);
        node_id n = graph_value(&f[k].g, y)->producer;
        attr_set_int(&f[k].g, n, k ? "a" : "b", 1);
        attr_set_int(&f[k].g, n, k ? "b" : "a", 1);
        struct tensor *t = tensor_new(&f[k].arena, DT_F32, 1, (i64[]){100});
        elem_set_f64(DT_F32, t->data, 3, k);
        node_add_in(&f[k].g, n, graph_add_const(&f[k].g, S(""), t));
        *arr_push(&f[k].arena, &f[k].g.output) = y;
        key[k] = print(&f[k], &f[k].g, true);
    }
    assert_string_equal(key[0].p, key[1].p);
    stop(&f[0]);
    stop(&f[1]);
}

static void test_attrs(void **state)
{
    struct fixture f;
    start(&f);
    node_id n = graph_add_node(&f.g, S("A"), S(""));
    const struct node *nd = graph_node(&f.g, n);
    const i64 *v;
    assert_int_equal(attr_int(nd, "i", 7), 7);
    attr_set_int(&f.g, n, "i", 1);
    attr_set_int(&f.g, n, "j", 2);
    attr_set_float(&f.g, n, "i", 0.5); /* another kind replaces */
    assert_int_equal(attr_int(nd, "i", 7), 7);
    assert_true(attr_float(nd, "i", 0) == 0.5);
    attr_set_ints(&f.g, n, "l", (i64[]){4, 5}, 2);
    assert_int_equal(attr_ints(nd, "l", &v), 2);
    assert_int_equal(v[1], 5);
    assert_int_equal(attr_ints(nd, "absent", &v), 0);
    attr_remove(&f.g, n, "i");
    assert_null(node_attr(nd, "i"));
    assert_int_equal(attr_int(nd, "j", 0), 2);
    assert_true(str_is(attr_str(nd, "s", "def"), "def"));
    for (int k = 0; k < 50; k++) attr_copy(&f.g, n, &graph_node(&f.g, n)->attr.v[0]);
    assert_int_equal(nd->attr.n, 2);
    stop(&f);
}

static void test_names(void **state)
{
    struct fixture f;
    start(&f);
    for (int k = 0; k < 3000; k++) graph_add_value(&f.g, k % 2 ? S("x") : S(""));
    assert_true(graph_find(&f.g, S("x_2")) != 0);
    assert_true(graph_verify(&f.g, &f.e));
    stop(&f);
}

static void test_shapes(void **state)
{
    struct fixture f;
    start(&f);
    value_id x = add_input(&f.g, "x");
    const struct shape *s = &graph_value(&f.g, x)->shape;
    i64 dim[MAX_RANK], var[] = {5, 7};
    assert_int_equal(shape_count(&f.st, s), sym_parse(&f.st, S("3*H*W"), NULL));
    assert_int_equal(layout_count(&f.st, s, LAYOUT_C8), sym_parse(&f.st, S("8*H*W"), NULL));
    assert_int_equal(layout_count(&f.st, s, LAYOUT_C16), sym_parse(&f.st, S("16*H*W"), NULL));
    assert_int_equal(layout_count(&f.st, s, LAYOUT_CLAST), shape_count(&f.st, s));
    assert_false(shape_is_static(&f.st, s, dim));
    assert_true(shape_eval(&f.st, s, var, dim));
    assert_int_equal(dim[2] * dim[3], 35);
    assert_true(shape_equal(s, s));
    for (int l = 0; l < N_LAYOUTS; l++) {
        bool ok;
        assert_int_equal(layout_parse(str_of(layout_name((enum layout)l)), &ok), l);
        assert_true(ok);
    }
    stop(&f);
}

static void parse_any(struct str text)
{
    struct fixture h;
    start(&h);
    if (!graph_parse(&h.g, &h.arena, &h.st, text, &h.e)) assert_int_equal(h.e.code, ERR_INPUT);
    else check_round_trip(&h, &h.g, false);
    stop(&h);
}

static void test_broken_text(void **state)
{
    struct fixture f;
    struct rng r = rng_seed(3);
    build_rich(&f);
    struct str text = print(&f, &f.g, false);
    for (i64 n = 0; n < text.n - 2; n++) parse_any(str_sub(text, 0, n));
    for (int round = 0; round < 3000; round++) {
        struct str s = str_dup(&f.arena, text);
        for (i64 k = rng_range(&r, 1, 3); k > 0; k--) {
            char c = text.p[rng_range(&r, 0, s.n - 1)];
            ((char *)s.p)[rng_range(&r, 0, s.n - 1)] = c;
        }
        parse_any(s);
    }
    stop(&f);
}

static void test_parse_errors(void **state)
{
    static const char *const texts[] = {
        "", "graph", "graph {", "graph {} x", "graph { output %x }", "graph { input %x: f33[] }",
        "graph { input %x: f32[-1] }", "graph { input %x: f32[1,1,1,1,1,1,1,1,1] }",
        "graph { const %x: f32[9999999999999999] = [1] }", "graph { const %x: f32[H] = [1] }",
        "graph { const %x: f32[2] = [1] output %x }", "graph { const %x: f32[1] = hex \"0000\" output %x }",
        "graph { input %x: f32[] %x: f32[] = A() }", "graph { %x: f32[] = A(%x) output %x }",
        "graph { = A() {a=1, a=2} }", "graph { = A() {a=} }", "graph { input %x: f32[] @c8 }",
        "graph { input %x: f32[] %y: f32[] = A(%x) %y: f32[] = B(%x) output %y }",
        "graph { input %x: i64[] sym(1)/0 }",
        "graph { input %x: f32[2] part(0, 1, 2) }", "graph { input %x: f32[2] part(1, 0, 2) }",
        "graph { input %x: f32[2] part(-1, 0, 2) }", "graph { input %x: f32[2] part(0, 0, H }",
        "graph { input %x: f32[2] part(0, -1, 2) }", "graph { input %x: f32[2] part(0, 0) }",
    };
    for (i64 k = 0; k < countof(texts); k++) {
        struct fixture f;
        start(&f);
        if (graph_parse(&f.g, &f.arena, &f.st, str_of(texts[k]), &f.e)) fail_msg("accepted %s", texts[k]);
        assert_int_equal(f.e.code, ERR_INPUT);
        assert_true(f.e.msg[0]);
        stop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_rich),    cmocka_unit_test(test_text_other_symtab),
        cmocka_unit_test(test_sort),         cmocka_unit_test(test_sort_drops),
        cmocka_unit_test(test_sort_deep),    cmocka_unit_test(test_verify),
        cmocka_unit_test(test_cycle_sort),   cmocka_unit_test(test_clone),
        cmocka_unit_test(test_extract),      cmocka_unit_test(test_keys),
        cmocka_unit_test(test_attrs),        cmocka_unit_test(test_names),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_broken_text),
        cmocka_unit_test(test_parse_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
