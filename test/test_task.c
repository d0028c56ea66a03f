// SPDX-License-Identifier: Apache-2.0
//
// The cover of a small network with a skip connection: the regions that the selector must be
// offered, and the cost of the same network with a kernel per node.
#include "gen_fixture.h"
#include "pass/pass.h"
#include "plan/plan.h"

/* conv and relu; the result is pooled, and concatenated with the pooled one */
static const char net[] = "graph {\n"
                          "  input %x: f32[1,4,2*h,2*w]\n"
                          "  const %w: f32[8,4,3,3]\n"
                          "  const %v: f32[4,16,3,3]\n"
                          "  %c: none[?] = Conv(%x, %w) {pads=[1,1,1,1]}\n"
                          "  %full: none[?] = Relu(%c)\n"
                          "  %half: none[?] = MaxPool(%full) {kernel_shape=[2,2], strides=[2,2]}\n"
                          "  %up: none[?] = quern::Upsample(%half) {scales=[1,1,2,2]}\n"
                          "  %both: none[?] = Concat(%up, %full) {axis=1}\n"
                          "  %y: none[?] = Conv(%both, %v) {pads=[1,1,1,1]}\n"
                          "  output %y\n"
                          "}\n";

/* an inverted residual with a large middle; two convolutions with a small value between them, and two that share one */
static const char chains[] = "graph {\n"
                             "  input %x: f32[1,16,64,64]\n"
                             "  const %e: f32[96,16,1,1]\n"
                             "  const %d: f32[96,1,3,3]\n"
                             "  const %p: f32[16,96,1,1]\n"
                             "  const %s: f32[4,16,9,9]\n"
                             "  const %t: f32[4,4,1,1]\n"
                             "  %a: none[?] = Conv(%x, %e)\n"
                             "  %b: none[?] = Relu(%a)\n"
                             "  %c: none[?] = Conv(%b, %d) {group=96, pads=[1,1,1,1]}\n"
                             "  %f: none[?] = Relu(%c)\n"
                             "  %g: none[?] = Conv(%f, %p)\n"
                             "  %y: none[?] = Add(%g, %x)\n"
                             "  %h: none[?] = Conv(%y, %s) {strides=[8,8]}\n"
                             "  %i: none[?] = Conv(%h, %t)\n"
                             "  %j: none[?] = Conv(%y, %e)\n"
                             "  output %i\n"
                             "  output %j\n"
                             "}\n";

/* two quantised convolutions whose sum is dequantised */
static const char quantised[] = "graph {\n"
                                "  input %x: u8[1,4,8,8]\n"
                                "  const %w: i8[8,4,3,3]\n"
                                "  const %v: i8[8,4,3,3]\n"
                                "  const %s: f32[]\n"
                                "  %c: none[?] = Conv(%x, %w)\n"
                                "  %a: none[?] = Cast(%c) {to=2}\n"
                                "  %b: none[?] = Cast(%a) {to=1}\n"
                                "  %f: none[?] = Mul(%b, %s)\n"
                                "  %d: none[?] = Conv(%x, %v)\n"
                                "  %g: none[?] = Cast(%d) {to=2}\n"
                                "  %h: none[?] = Cast(%g) {to=1}\n"
                                "  %i: none[?] = Mul(%h, %s)\n"
                                "  %y: none[?] = Add(%f, %i)\n"
                                "  output %y\n"
                                "}\n";

/* attention of heads that share keys, with a bias from another product; attention whose scores are needed elsewhere, and whose values are */
static const char attention[] = "graph {\n"
                                "  input %q: f32[2,4,10,16]\n"
                                "  input %k: f32[2,2,30,16]\n"
                                "  input %v: f32[2,2,30,16]\n"
                                "  input %r: f32[10,16]\n"
                                "  input %u: f32[16,30]\n"
                                "  const %h: f32[] = [0.25]\n"
                                "  const %to: i64[4] = [2,2,20,16]\n"
                                "  const %back: i64[4] = [2,4,10,30]\n"
                                "  const %pair: i64[4] = [2,2,20,30]\n"
                                "  %a: none[?] = Mul(%q, %h)\n"
                                "  %b: none[?] = Reshape(%a, %to)\n"
                                "  %c: none[?] = Transpose(%k) {perm=[0,1,3,2]}\n"
                                "  %s: none[?] = MatMul(%b, %c)\n"
                                "  %d: none[?] = Reshape(%s, %back)\n"
                                "  %e: none[?] = MatMul(%r, %u)\n"
                                "  %f: none[?] = Add(%d, %e)\n"
                                "  %p: none[?] = Softmax(%f) {axis=-1}\n"
                                "  %g: none[?] = Reshape(%p, %pair)\n"
                                "  %y: none[?] = MatMul(%g, %v)\n"
                                "  %s2: none[?] = MatMul(%y, %c)\n"
                                "  %p2: none[?] = Softmax(%s2) {axis=-1}\n"
                                "  %y2: none[?] = MatMul(%p2, %v)\n"
                                "  %s3: none[?] = MatMul(%y2, %c)\n"
                                "  %p3: none[?] = Softmax(%s3) {axis=-1}\n"
                                "  %y3: none[?] = MatMul(%p3, %v)\n"
                                "  output %y3\n"
                                "  output %s2\n"
                                "  output %p3\n"
                                "}\n";

struct world {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct cover c;
    struct err e;
};

static void world_open_as(struct world *w, const char *text, const struct cover_opts *o)
{
    *w = (struct world){0};
    symtab_init(&w->sym, &w->a);
    if (!graph_parse(&w->g, &w->a, &w->sym, str_of(text), &w->e) || !pass_run_all(&w->g, NULL, &w->e) ||
        !cover_build(&w->c, &w->g, &w->a, o, &w->e))
        fail_msg("%s", w->e.msg);
}

static void world_open(struct world *w, bool no_fusion)
{
    world_open_as(w, net, &(struct cover_opts){.no_fusion = no_fusion});
}

static void world_close(struct world *w) { arena_release(&w->a); }

/* "Conv+Relu->c,full": operators and values delivered */
static struct str name_of(struct world *w, const struct region *r)
{
    struct buf b = {0};
    for (u32 i = 0; i < r->n_nodes; i++)
        buf_printf(&b, "%s%.*s", i ? "+" : "", STR_ARG(graph_node(&w->g, r->nodes[i])->op));
    for (u32 i = 0; i < r->n_out; i++)
        buf_printf(&b, "%s%.*s", i ? "," : "->", STR_ARG(graph_value(&w->g, r->out[i].v)->name));
    struct str s = str_dup(&w->a, buf_view(&b));
    buf_release(&b);
    return s;
}

static bool has_region(struct world *w, const char *name)
{
    for (u32 i = 0; i < w->c.region.n; i++)
        if (str_is(name_of(w, &w->c.region.v[i]), name)) return true;
    return false;
}

static void test_alternatives(void **state)
{
    static const char *const names[] = {
        "Conv+Relu->full",                       /* pointwise after the anchor */
        "Conv+Relu+MaxPool->full,half",          /* pooling beside the skip connection */
        "quern::Upsample+Concat+Conv->y",        /* views before it */
        "Conv->y",                               /* or kept out */
        "quern::Upsample+Concat->both",
        "Conv->c", "Relu->full", "MaxPool->half", "quern::Upsample->up", "Concat->both",
    };
    struct world w;
    world_open(&w, false);
    for (u32 i = 0; i < countof(names); i++)
        if (!has_region(&w, names[i])) fail_msg("no region %s", names[i]);
    world_close(&w);
}

/* Inner results of a region's convolutions have no users except through its outputs. */
static void check_delivered(struct world *w, const struct region *r)
{
    bool *inside = arena_array(&w->a, bool, w->g.node.n), *out = arena_array(&w->a, bool, w->g.value.n);
    for (u32 i = 0; i < r->n_nodes; i++) inside[r->nodes[i]] = true;
    for (u32 i = 0; i < r->n_out; i++) out[r->out[i].v] = true;
    for (node_id n = 1; n < w->g.node.n; n++) {
        const struct node *x = graph_node(&w->g, n);
        for (u32 k = 0; k < x->in.n && !inside[n]; k++) {
            node_id p = x->in.v[k] ? graph_value(&w->g, x->in.v[k])->producer : 0;
            assert_false(inside[p] && op_of(&w->g, p)->props & OP_CONV && !out[x->in.v[k]]);
        }
    }
}

static void test_chains(void **state)
{
    static const char *const names[] = {"Conv+Relu+Conv+Relu->f", "Conv+Relu+Conv+Add->y", "Conv+Relu+Conv+Relu+Conv+Add->y",
                                        "Conv+Relu->b", "Conv+Relu->f", "Conv+Add->y"};
    static const char *const none[] = {"Conv+Conv->i", "Conv+Add+Conv->h", "Conv+Add+Conv->j"};
    struct world w;
    world_open_as(&w, chains, &(struct cover_opts){0});
    for (u32 i = 0; i < countof(names); i++)
        if (!has_region(&w, names[i])) fail_msg("no region %s", names[i]);
    for (u32 i = 0; i < countof(none); i++)
        if (has_region(&w, none[i])) fail_msg("region %s", none[i]);
    for (u32 i = 0; i < w.c.region.n; i++) {
        const struct task *t = w.c.task.v[w.c.region.v[i].task];
        u32 n = 0;
        for (node_id k = 1; k < t->g.node.n; k++) n += op_of(&t->g, k)->props & OP_CONV ? 1 : 0;
        assert_int_equal(t->n_heavy, n);
        assert_true(!n == !t->anchor);
        check_delivered(&w, &w.c.region.v[i]);
    }
    world_close(&w);
}

/* The chain from the first product to the second one, whatever lies between, beside its parts; not where others need its values. */
static void test_attention(void **state)
{
    struct world w;
    u32 n = 0;
    world_open_as(&w, attention, &(struct cover_opts){0});
    for (u32 i = 0; i < w.c.region.n; i++) {
        const struct task *t = w.c.task.v[w.c.region.v[i].task];
        if (t->n_heavy < 2) continue;
        struct str name = name_of(&w, &w.c.region.v[i]);
        assert_true(t->n_heavy == 2 && w.c.region.v[i].n_out == 1 && w.c.region.v[i].n_in == 4); /* q, k, v and the bias */
        if (!str_starts(name, S("Mul+Transpose+quern::Reshape+MatMul+quern::Reshape+Add+quern::ReduceMax+")) || !str_ends(name, S("+MatMul->y"))) fail_msg("region %.*s", STR_ARG(name));
        n++;
    }
    assert_int_equal(n, 1);
    for (u32 i = 0; i < w.c.region.n; i++) check_delivered(&w, &w.c.region.v[i]);
    world_close(&w);
}

/* Quantised values are stored as such; those that read them dequantise them. */
static void test_quantised(void **state)
{
    struct world w;
    bool found = false;
    world_open_as(&w, quantised, &(struct cover_opts){0});
    for (u32 i = 0; i < w.c.region.n; i++) {
        const struct region *r = &w.c.region.v[i];
        assert_true(r->n_out == 1);
        enum dtype t = graph_value(&w.g, r->out[0].v)->dtype;
        found |= t == DT_U8 && str_starts(name_of(&w, r), S("Conv+Cast->"));
        assert_false(t == DT_F32 && str_starts(name_of(&w, r), S("Conv+Cast+Cast+Mul->")));
    }
    assert_true(found && has_region(&w, "Conv+Cast+Cast+Mul+Cast+Mul+Add->y"));
    world_close(&w);
}

/* A bias for all heads and batches that n operations compute from positions, as relative attention has it. */
static void print_bias(struct buf *b, u32 n)
{
    buf_z(b, "graph {\n  input %q: f32[b,4,s,16]\n  input %k: f32[b,4,16,s]\n  input %p: f32[s,s]\n"
             "  %x: none[?] = MatMul(%q, %k)\n  %t0: none[?] = Abs(%p)\n");
    for (u32 i = 1; i < n; i++) buf_printf(b, "  %%t%u: none[?] = %s(%%t%u)\n", i, i % 2 ? "Exp" : "Sin", i - 1);
    buf_printf(b, "  %%y: none[?] = Add(%%x, %%t%u)\n  output %%y\n}\n", n - 1);
}

/* A broadcast operand is fused with the matmul if it is cheap, and is a value of its own otherwise. */
static void test_broadcast(void **state)
{
    for (u32 n = 1; n < 20; n += 3) {
        struct buf text = {0};
        struct world w;
        u32 n_alone = 0, n_along = 0;
        print_bias(&text, n);
        world_open_as(&w, text.p, NULL);
        for (u32 i = 0; i < w.c.region.n; i++) {
            const struct region *r = &w.c.region.v[i];
            bool product = false, first = false;
            for (u32 k = 0; k < r->n_nodes; k++) {
                struct str op = str_of(op_of(&w.g, r->nodes[k])->name);
                product |= str_eq(op, S("MatMul")), first |= str_eq(op, S("Abs"));
            }
            n_along += product && first, n_alone += !product && first;
        }
        assert_true(n > 8 ? !n_along && n_alone : n_along);
        buf_release(&text);
        world_close(&w);
    }
}

/* How many nodes of that operator the region with most of them has, among those that have `other`, too. */
static u32 most_with(const struct world *w, const char *name, const char *other)
{
    u32 most = 0;
    for (u32 i = 0; i < w->c.region.n; i++) {
        const struct region *r = &w->c.region.v[i];
        u32 n = 0;
        bool has = false;
        for (u32 k = 0; k < r->n_nodes; k++) {
            const char *op = op_of(&w->g, r->nodes[k])->name;
            n += !strcmp(op, name), has |= !strcmp(op, other);
        }
        if (has && n > most) most = n;
    }
    return most;
}

/* Numbers of groups are spread to channels once, and not at each of many pixels. */
static void test_spread(void **state)
{
    for (u32 n = 2; n < 64; n *= 4) {
        struct buf text = {0};
        struct world w;
        buf_printf(&text, "graph {\n  input %%x: f32[1,64,%u,%u]\n  input %%s: f32[1,8,1]\n", n, n);
        buf_z(&text, "  %e: none[?] = quern::Expand(%s) {shape=strs[\"1\",\"8\",\"8\"]}\n"
                     "  %r: none[?] = quern::Reshape(%e) {shape=strs[\"1\",\"64\",\"1\",\"1\"]}\n"
                     "  %m: none[?] = Mul(%x, %r)\n"
                     "  %y: none[?] = quern::ReduceSum(%m) {axes=[2,3], keepdims=1}\n  output %y\n}\n");
        world_open_as(&w, text.p, NULL);
        assert_int_equal(most_with(&w, "quern::Expand", "quern::ReduceSum"), n * n * 64 < 16384);
        buf_release(&text);
        world_close(&w);
    }
}

/* Behind a convolution whose channels become the last axis, tokens are row-major: what channels last is there. */
static void test_moved_channels(void **state)
{
    enum { CHANNELS = 8, SIZE = 6 };
    struct world w;
    u32 n_last = 0, n_rows = 0;
    world_open_as(&w, "graph {\n"
                      "  input %x: f32[1,8,6,6]\n"
                      "  const %w: f32[8,8,3,3]\n"
                      "  const %m: f32[8,8]\n"
                      "  %c: none[?] = Conv(%x, %w) {pads=[1,1,1,1]}\n"
                      "  %r: none[?] = Relu(%c)\n"
                      "  %t: none[?] = Transpose(%r) {perm=[0,2,3,1]}\n"
                      "  %p: none[?] = MatMul(%t, %m)\n"
                      "  %s: none[?] = Add(%p, %t)\n"
                      "  %q: none[?] = MatMul(%s, %m)\n"
                      "  %y: none[?] = Add(%q, %s)\n"
                      "  output %y\n"
                      "}\n", NULL);
    for (u32 i = 0; i < w.c.region.n; i++) {
        const struct form f = w.c.region.v[i].out[0];
        i64 channels = 0;
        assert_true(sym_is_const(&w.sym, graph_value(&w.g, f.v)->shape.dim[1], &channels));
        if (!graph_value(&w.g, f.v)->producer) continue; /* the input in another layout */
        assert_int_equal(f.layout, channels == CHANNELS ? LAYOUT_CLAST : LAYOUT_ROWS);
        *(channels == SIZE ? &n_rows : &n_last) += 1;
    }
    assert_true(n_last > 0 && n_rows > 0);
    world_close(&w);
}

/* A row of blocks that pass on a part of their concatenation: each is stored, and none is read through the next one. */
static void test_nested(void **state)
{
    static const char text[] = "graph {\n  input %x: f32[1,8,6,6]\n"
                               "  %a: none[?] = Relu(%x)\n  %b: none[?] = Neg(%x)\n  %c: none[?] = Abs(%x)\n"
                               "  %first: none[?] = Concat(%a, %b) {axis=1}\n"
                               "  %rest: none[?] = quern::Slice(%first) {start=strs[\"0\",\"8\",\"0\",\"0\"], "
                               "size=strs[\"1\",\"8\",\"6\",\"6\"], step=[1,1,1,1]}\n"
                               "  %second: none[?] = Concat(%rest, %c) {axis=1}\n"
                               "  %y: none[?] = quern::ReduceSum(%second) {axes=[3], keepdims=1}\n  output %y\n";
    for (u32 users = 1; users <= 2; users++) {
        struct buf b = {0};
        struct world w;
        buf_z(&b, text);
        if (users > 1) buf_z(&b, "  %z: none[?] = quern::ReduceMax(%first) {axes=[3], keepdims=1}\n  output %z\n");
        buf_z(&b, "}\n");
        world_open_as(&w, b.p, NULL);
        assert_int_equal(most_with(&w, "Concat", "quern::ReduceSum"), users > 1 ? 1 : 2);
        buf_release(&b);
        world_close(&w);
    }
}

static void test_no_fusion(void **state)
{
    struct world w;
    world_open(&w, true);
    for (u32 i = 0; i < w.c.region.n; i++) assert_true(w.c.region.v[i].n_nodes <= 1);
    world_close(&w);
}

/* Every kernel costs the same: the fewest are chosen. */
static bool one_each(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    *c = (struct task_cost){.ok = true, .seconds = 1};
    return true;
}

static void test_selection(void **state)
{
    struct world w;
    struct selection s;
    world_open(&w, false);
    const i64 var[] = {8, 8};
    assert_true(plan_select(&s, &w.c, var, one_each, NULL, &w.a, &w.e));
    assert_int_equal(s.choice.n, 2); /* conv, relu and pool; the rest */
    plan_select_unfused(&s, &w.c, &w.a);
    assert_true(s.unfused.n >= 6 && s.unfused_seconds == s.unfused.n);
    for (u32 i = 0; i < s.unfused.n; i++)
        assert_true(w.c.region.v[s.unfused.v[i].region].n_nodes <= 1);
    world_close(&w);
}

/* concatenations in memory */

/* "Relu->y in z": the region that delivers y inside z; NULL: there is none. */
static const struct region *find_variant(struct world *w, const char *name, const char *in)
{
    for (u32 i = 0; i < w->c.region.n; i++) {
        const struct region *r = &w->c.region.v[i];
        for (u32 k = 0; k < r->n_out && str_is(name_of(w, r), name); k++) {
            u32 join = r->out[k].join;
            if (join && str_is(graph_value(&w->g, w->c.join.v[join - 1].v)->name, in)) return r;
        }
    }
    return NULL;
}

static void test_join_task(void **state)
{
    static const char want[] = "graph {\n"
                               "  input %0: f32[1,4,h*2,w*2]\n"
                               "  const %1: f32[8,4,3,3]\n"
                               "  %2: f32[1,8,h*2,w*2] = Conv(%0, %1) {dilations=[1,1], group=1, kernel_shape=[3,3], "
                               "pads=[1,1,1,1], strides=[1,1]}\n"
                               "  %3: f32[1,8,h*2,w*2] @clast part(1, 8, 16) = Relu(%2)\n"
                               "  output %3\n"
                               "}\n";
    struct world w;
    struct task again;
    world_open(&w, false);
    assert_int_equal(w.c.join.n, 1);
    const struct region *r = find_variant(&w, "Conv+Relu->full", "both");
    assert_non_null(r);
    struct str text = w.c.task.v[r->task]->text;
    if (!str_is(text, want)) fail_msg("%.*s", STR_ARG(text));
    assert_true(task_parse(&again, &w.a, &w.sym, text, &w.e));
    assert_true(str_eq(again.text, text));
    assert_non_null(find_variant(&w, "Conv+Relu+MaxPool->full,half", "both")); /* beside the pooling */
    assert_non_null(find_variant(&w, "quern::Upsample->up", "both"));
    world_close(&w);
    world_open_as(&w, net, &(struct cover_opts){.no_concat = true});
    assert_int_equal(w.c.join.n, 0);
    world_close(&w);
}

/* Facts, and comparisons at run time, are not part of a task's text: parsing it creates no facts,
   and the text round-trips. */
static void test_sizes(void **state)
{
    static const struct { const char *text; i64 n, m; bool fits; } rows[] = {
        {"graph {\n  input %0: f32[n]\n  const %1: f32[5]\n  %2: f32[5] = Add(%0, %1)\n  output %2\n}\n", 5, 0, true},
        {"graph {\n  input %0: f32[n]\n  const %1: f32[5]\n  %2: f32[5] = Add(%0, %1)\n  output %2\n}\n", 37, 0, false},
        {"graph {\n  input %0: f32[n,m]\n  input %1: f32[m,n]\n  %2: f32[n,m] = Mul(%0, %1)\n  output %2\n}\n", 3, 3, true},
        {"graph {\n  input %0: f32[n,m]\n  input %1: f32[m,n]\n  %2: f32[n,m] = Mul(%0, %1)\n  output %2\n}\n", 3, 4, false},
        /* without a source */
        {"graph {\n  input %0: f32[n]\n  %1: f32[m] = Relu(%0)\n  output %1\n}\n", 3, 4, false},
        {"graph {\n  input %0: f32[n]\n  %1: f32[m] = Relu(%0)\n  output %1\n}\n", 4, 4, true},
    };
    for (int i = 0; i < (int)countof(rows); i++) {
        struct arena a = {0};
        struct symtab st;
        struct task t;
        struct err e = {0};
        symtab_init(&st, &a);
        if (!task_restore(&t, &a, &st, str_of(rows[i].text), &e)) fail_msg("row %d: %s", i, e.msg);
        if (!str_is(t.text, rows[i].text)) fail_msg("row %d: %.*s", i, STR_ARG(t.text));
        assert_int_equal(st.fact.n, 0);
        const i64 var[2] = {rows[i].n, rows[i].m};
        if (task_fits(&t, var) != rows[i].fits) fail_msg("row %d", i);
        arena_release(&a);
    }
}

/* One kernel less than with one for the concatenation, one more than with separate loads. */
static void test_join_selection(void **state)
{
    struct world w;
    struct selection s;
    u32 n_joins = 0;
    world_open_as(&w, net, &(struct cover_opts){.only_joins = true});
    const i64 var[] = {8, 8};
    assert_true(plan_select(&s, &w.c, var, one_each, NULL, &w.a, &w.e));
    for (u32 i = 0; i < s.choice.n; i++) n_joins += w.c.region.v[s.choice.v[i].region].task == NO_TASK;
    assert_int_equal(n_joins, 1);
    assert_int_equal(s.choice.n, 4);
    assert_true(s.seconds == 3); /* conv, relu and pool; upsampling; conv */
    world_close(&w);
}

/* The same in rows, axis 2, where b is a part of the inner one and c a part of the outer one only. */
static void test_join_nested(void **state)
{
    static const char text[] = "graph {\n"
                               "  input %x: f32[2,4,H,5]\n"
                               "  %a: none[?] = Relu(%x)\n"
                               "  %b: none[?] = Neg(%x)\n"
                               "  %c: none[?] = Abs(%x)\n"
                               "  %inner: none[?] = Concat(%a, %b) {axis=2}\n"
                               "  %i: none[?] = quern::ReduceSum(%inner) {axes=[3], keepdims=1}\n"
                               "  %outer: none[?] = Concat(%c, %inner) {axis=2}\n"
                               "  %o: none[?] = quern::ReduceSum(%outer) {axes=[3], keepdims=1}\n"
                               "  output %i\n"
                               "  output %o\n"
                               "}\n";
    struct world w;
    world_open_as(&w, text, &(struct cover_opts){0});
    assert_int_equal(w.c.join.n, 1);
    const struct join *j = &w.c.join.v[0];
    assert_string_equal(graph_value(&w.g, j->v)->name.p, "outer");
    assert_int_equal(j->axis, 2);
    assert_int_equal(j->whole, sym_parse(&w.sym, S("3*H"), NULL));
    assert_int_equal(j->part.n, 4);
    static const char *const name[] = {"c", "inner", "a", "b"}, *const from[] = {"0", "H", "H", "2*H"};
    for (u32 k = 0; k < 4; k++) {
        assert_string_equal(graph_value(&w.g, j->part.v[k].v)->name.p, name[k]);
        assert_int_equal(j->part.v[k].from, sym_parse(&w.sym, str_of(from[k]), NULL));
        assert_int_equal(j->part.v[k].is_whole, k == 1);
    }
    assert_non_null(find_variant(&w, "Concat->inner", "outer"));
    world_close(&w);
}

static u32 count_joins_of(const char *parts)
{
    struct world w;
    struct buf b = {0};
    buf_printf(&b, "graph {\n  input %%x: f32[1,4,H,5]\n  const %%k: f32[1,4,1,5]\n  %%a: none[?] = Relu(%%x)\n"
                   "  %%z: none[?] = Concat(%s) {axis=2}\n  %%y: none[?] = quern::ReduceMax(%%z) {axes=[2], keepdims=1}\n"
                   "  output %%y\n}\n", parts);
    buf_char(&b, 0);
    world_open_as(&w, b.p, &(struct cover_opts){.only_joins = true});
    u32 n = w.c.join.n;
    for (u32 i = 0; i < w.c.region.n && n; i++) { /* an input of the graph is copied */
        const struct region *r = &w.c.region.v[i];
        if (r->n_nodes == 0) assert_true(r->out[0].join && graph_value(&w.g, r->in[0].v)->producer == 0);
    }
    world_close(&w);
    buf_release(&b);
    return n;
}

static void test_join_offers(void **state)
{
    assert_int_equal(count_joins_of("%a, %x"), 1);
    assert_int_equal(count_joins_of("%a, %a"), 0);     /* in two places at once */
    assert_int_equal(count_joins_of("%a, %k, %x"), 0); /* a constant */
}

/* n inputs, or values that are computed of them, in one concatenation. */
static struct str wide_concat(struct arena *a, u32 n, bool is_computed)
{
    struct buf b = {0};
    buf_z(&b, "graph {\n");
    for (u32 k = 0; k < n; k++) buf_printf(&b, "  input %%x%u: f32[1,3,8]\n", k);
    for (u32 k = 0; k < n && is_computed; k++) buf_printf(&b, "  %%s%u: f32[1,3,8] = %s(%%x%u)\n", k, k % 2 ? "Sin" : "Relu", k);
    buf_printf(&b, "  %%y: f32[1,%u,8] = Concat(", 3 * n);
    for (u32 k = 0; k < n; k++) buf_printf(&b, "%s%%%c%u", k ? ", " : "", is_computed ? 's' : 'x', k);
    buf_z(&b, ") {axis=1}\n  output %y\n}\n");
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* Hundreds of parts are a few kernels: neither one for each place, nor all that is computed in one of them. */
static void test_join_wide(void **state)
{
    for (int is_computed = 0; is_computed < 2; is_computed++) {
        struct world w;
        struct arena a = {0};
        world_open_as(&w, wide_concat(&a, 500, is_computed).p, &(struct cover_opts){0});
        if (w.c.task.n >= 150) fail_msg("%u tasks", w.c.task.n);
        for (u32 r = 0; r < w.c.region.n; r++) {
            const struct region *x = &w.c.region.v[r];
            u32 computed = 0;
            for (u32 i = 0; i < x->n_nodes; i++) computed += !str_is(graph_node(&w.g, x->nodes[i])->op, "Concat");
            assert_true(computed <= 4);
        }
        world_close(&w);
        arena_release(&a);
    }
}

/* n layers, each of which convolves the concatenation of all values before. */
static struct str dense_block(struct arena *a, u32 n)
{
    struct buf b = {0};
    buf_z(&b, "graph {\n  input %x: f32[1,4,8,8]\n  %x0: none[?] = Sin(%x)\n  %x1: none[?] = Relu(%x0)\n");
    for (u32 k = 2; k < n + 2; k++) {
        buf_printf(&b, "  const %%w%u: f32[4,%u,1,1]\n  %%c%u: none[?] = Concat(", k, 4 * k, k);
        for (u32 i = 0; i < k; i++) buf_printf(&b, "%s%%x%u", i ? ", " : "", i);
        buf_printf(&b, ") {axis=1}\n  %%x%u: none[?] = Conv(%%c%u, %%w%u)\n", k, k, k);
    }
    buf_printf(&b, "  output %%x%u\n}\n", n + 1);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static u32 tasks_of_block(u32 n)
{
    struct world w;
    struct arena a = {0};
    world_open_as(&w, dense_block(&a, n).p, &(struct cover_opts){0});
    u32 n_tasks = w.c.task.n;
    assert_int_equal(w.c.join.n, 1);
    const struct join *j = &w.c.join.v[0];
    i64 whole;
    assert_true(sym_is_const(&w.sym, j->whole, &whole) && whole == 4 * (i64)(n + 1));
    assert_int_equal(j->part.n, 2 * n); /* n + 1 values, and the concatenations but the last */
    for (u32 k = 0; k < j->part.n; k++) {
        i64 from;
        assert_true(sym_is_const(&w.sym, j->part.v[k].from, &from));
        assert_true(!j->part.v[k].is_whole || from == 0);
    }
    world_close(&w);
    arena_release(&a);
    return n_tasks;
}

/* All concatenations of a dense block lie in the join of the last one, so alternatives grow with its layers, not with their square. */
static void test_join_block(void **state)
{
    u32 n = tasks_of_block(5), twice = tasks_of_block(10);
    if (twice > 5 * n / 2) fail_msg("%u tasks of 5 layers, %u of 10", n, twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_quantised),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_moved_channels),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_no_fusion),
        cmocka_unit_test(test_selection),
        cmocka_unit_test(test_join_task),
        cmocka_unit_test(test_join_selection),
        cmocka_unit_test(test_join_nested),
        cmocka_unit_test(test_join_offers),
        cmocka_unit_test(test_join_wide),
        cmocka_unit_test(test_join_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
