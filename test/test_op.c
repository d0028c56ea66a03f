// SPDX-License-Identifier: Apache-2.0
//
// Every operator of the registry against itself: random instances are evaluated by the reference
// and by kernels in the interpreter, which also detects accesses out of bounds, missing writes and
// races. Kernels are the plain ones, one grid over the elements of each output with everything
// inlined; and node by node. Each instance is run with constant sizes and, if possible, with
// symbolic ones. Finally, many instances at a time are compiled into one kernel in language c and
// run on the CPU.
//
// Operators without a random instance fail: there is no list of exceptions.
#include "dev/dev.h"
#include "lang/lang.h"
#include "op/op.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_INSTANCES = 20 };

struct instance {
    const struct op *op;
    u64 seed;
    struct arena arena;
    struct symtab sym;
    struct graph g;       /* inferred */
    struct tensor **in;   /* per graph input */
    struct tensor **want; /* per graph output, by the reference */
    i64 *var;
    struct err e;
    const char *stage;
};

/* Contents. */

static double random_float(struct rng *r, bool specials)
{
    static const double some[] = {0, -0.0, 1, -1, 0.5, -0.5, 2, 1.5};
    static const double odd[] = {INFINITY, -INFINITY, NAN};
    if (rng_range(r, 0, 7) == 0) return some[rng_range(r, 0, countof(some) - 1)];
    if (specials && rng_range(r, 0, 15) == 0) return odd[rng_range(r, 0, countof(odd) - 1)];
    return rng_f64(r) * 5 - 2.5;
}

static void fill(struct tensor *t, struct rng *r, bool specials)
{
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, i, random_float(r, specials));
        else if (t->dtype == DT_BOOL) elem_set_i64(t->dtype, t->data, i, rng_range(r, 0, 1));
        else
            elem_set_i64(t->dtype, t->data, i,
                         rng_range(r, dtype_kind(t->dtype) == DK_UINT ? 0 : -5, 5));
    }
}

/* Infinities and NaN only through operators that look at single elements, and not into integers. */
static bool takes_specials(const struct instance *t)
{
    enum dtype out = graph_value(&t->g, t->g.output.v[0])->dtype;
    return t->op->props & OP_POINTWISE && (dtype_is_float(out) || out == DT_BOOL);
}

static void make_inputs(struct instance *t, struct rng *r)
{
    bool specials = takes_specials(t);
    t->in = arena_array(&t->arena, struct tensor *, t->g.input.n + 1);
    for (u32 k = 0; k < t->g.input.n; k++) {
        const struct value *v = graph_value(&t->g, t->g.input.v[k]);
        i64 dim[MAX_RANK];
        assert_true(shape_is_static(&t->sym, &v->shape, dim));
        t->in[k] = tensor_new(&t->arena, v->dtype, v->shape.rank, dim);
        fill(t->in[k], r, specials);
    }
}

/* Every size of an input but 1 becomes the variable of that size; in every other instance only
   those of images, not channels and vectors. */
static void make_symbolic(struct instance *t)
{
    bool images = t->seed / 1000 % 2;
    for (u32 k = 0; k < t->g.input.n; k++) {
        struct shape *s = &graph_value(&t->g, t->g.input.v[k])->shape;
        i64 c;
        for (u32 i = 0; i < s->rank; i++)
            if (sym_is_const(&t->sym, s->dim[i], &c) && c != 1 &&
                (!images || (s->rank > 2 && i != 1)))
                s->dim[i] = sym_var(&t->sym, str_fmt(&t->arena, "D%d", (int)c));
    }
}

/* Comparison. */

static bool close_enough(const struct tensor *got, const struct tensor *want, struct err *e)
{
    double rtol = 0, atol = 0;
    if (want->dtype == DT_F32) rtol = 1e-4, atol = 1e-5;
    if (want->dtype == DT_F64) rtol = 1e-9, atol = 1e-9;
    if (want->dtype == DT_F16) rtol = 2e-2, atol = 1e-2;
    if (want->dtype == DT_BF16) rtol = 5e-2, atol = 5e-2;
    if (got->rank != want->rank || memcmp(got->dim, want->dim, sizeof(i64) * got->rank))
        return err_set(e, ERR_FAILED, "different shapes");
    struct tensor_diff d = tensor_compare(got, want, rtol, atol);
    if (!d.n_bad) return true;
    return err_set(e, ERR_FAILED, "%lld wrong elements, first %lld: %.9g, expected %.9g",
                   (long long)d.n_bad, (long long)d.first_bad, d.got, d.want);
}

/* Kernels. */

/* As emit_output, with vectors along the last axis, the last one of a row cut off. */
static void emit_output_vectors(struct emit *m, value_id v, u32 lanes)
{
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    struct shape s = graph_value(m->g, v)->shape;
    u32 last = s.rank - 1;
    kval length = emit_size(m, s.dim[last]), step = kir_int(k, lanes), idx[MAX_RANK] = {0};
    s.dim[last] = sym_cdiv(st, s.dim[last], sym_const(st, lanes));
    kval flat = kir_grid(k, emit_size(m, shape_count(st, &s)));
    for (u32 i = s.rank; i-- > 0;) {
        kval n = emit_size(m, s.dim[i]);
        idx[i] = i ? kir_bin(k, KI_MOD, flat, n) : flat;
        flat = i ? kir_bin(k, KI_DIV, flat, n) : flat;
    }
    kval from = kir_bin(k, KI_MUL, idx[last], step);
    kval n = kir_bin(k, KI_MIN, step, kir_bin(k, KI_SUB, length, from));
    idx[last] = kir_ramp(k, from, 1, lanes);
    emit_limit(m, n);
    emit_store_n(m, v, idx, emit_value(m, v, idx), n);
    emit_limit(m, 0);
    kir_end(k);
}

static node_id whole_node(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && op_of(g, n)->whole) return n;
    return 0;
}

static void emit_kernel(struct emit *m, struct kir *k, const struct graph *g, struct arena *a,
                        u32 lanes)
{
    kir_init(k, a, S("test"));
    emit_init(m, k, g, op_lower, a);
    emit_args(m);
    node_id whole = whole_node(g);
    if (whole) op_emit_whole(m, graph_node(g, whole));
    for (u32 i = 0; !whole && i < g->output.n; i++) {
        value_id v = g->output.v[i];
        const struct shape *s = &graph_value(g, v)->shape;
        i64 one;
        bool row = s->rank && !(sym_is_const(g->sym, s->dim[s->rank - 1], &one) && one == 1);
        if (lanes > 1 && row) emit_output_vectors(m, v, lanes);
        else emit_output(m, v);
    }
}

static bool kernel_params(const struct kir *k, struct symtab *st, const i64 *var, i64 *out,
                          struct err *e)
{
    for (u32 i = 0; i < k->param.n; i++) {
        sym s = sym_parse(st, k->param.v[i], e);
        if (!s || !sym_eval(st, s, var, &out[i]))
            return err_set(e, ERR_FAILED, "size '%.*s'", STR_ARG(k->param.v[i]));
    }
    return true;
}

/* Runs one kernel for graph g; content per value, outputs are created. */
static bool run_kernel(struct instance *it, const struct graph *g, u32 lanes, struct tensor **t)
{
    struct arena *a = &it->arena;
    struct err *e = &it->e;
    const i64 *var = it->var;
    struct kir k;
    struct emit m;
    i64 param[256];
    emit_kernel(&m, &k, g, a, lanes);
    if (!kir_verify(&k, e) || k.param.n > 256 || !kernel_params(&k, g->sym, var, param, e))
        return false;
    struct kir_arg *arg = arena_array(a, struct kir_arg, m.arg.n + 1);
    for (u32 i = 0; i < m.arg.n; i++) {
        value_id v = m.arg.v[i].v;
        const struct value *x = graph_value(g, v);
        i64 dim[MAX_RANK];
        if (m.arg.v[i].is_out) {
            if (!shape_eval(g->sym, &x->shape, var, dim))
                return err_set(e, ERR_FAILED, "shape of an output");
            t[v] = tensor_new(a, x->dtype, x->shape.rank, dim);
            if (tensor_bytes(t[v])) memset(t[v]->data, 0x5a, (size_t)tensor_bytes(t[v]));
        } else if (!t[v]) {
            return err_set(e, ERR_FAILED, "no content for '%.*s'", STR_ARG(x->name));
        }
        arg[i] = (struct kir_arg){t[v]->data, tensor_count(t[v])};
    }
    struct kir_eval_opts o = {.seed = it->seed};
    bool ok = kir_eval(&k, arg, param, &o, e);
    if (!ok && getenv("TEST_OP_KERNEL")) {
        struct buf b = {0};
        kir_print(&b, &k);
        printf("%.*s", STR_ARG(buf_view(&b)));
        buf_release(&b);
    }
    return ok;
}

static void known_contents(const struct instance *t, const struct graph *g, struct tensor **c)
{
    for (value_id v = 1; v < g->value.n; v++) c[v] = graph_value(g, v)->data;
    for (u32 k = 0; k < g->input.n; k++) c[g->input.v[k]] = t->in[k];
}

static bool compare_outputs(struct instance *t, const struct graph *g, struct tensor **c)
{
    for (u32 k = 0; k < g->output.n; k++)
        if (!close_enough(c[g->output.v[k]], t->want[k], &t->e))
            return err_prefix(&t->e, "output %u", k);
    return true;
}

/* Reductions that depend on reductions are repeated per element when all is inlined: only for small
 * outputs. */
static bool too_slow(const struct instance *t, const struct graph *g)
{
    int n = 0;
    for (node_id k = 1; k < g->node.n; k++)
        n += !graph_node(g, k)->dead && op_of(g, k)->props & OP_REDUCE;
    return n > 1 && tensor_count(t->want[0]) > 100;
}

static bool check_fused(struct instance *t, const struct graph *g, u32 lanes)
{
    if (whole_node(g) || g->made.n || too_slow(t, g)) return true;
    t->stage = lanes > 1 ? "one kernel of vectors" : "one kernel";
    struct tensor **c = arena_array(&t->arena, struct tensor *, g->value.n);
    known_contents(t, g, c);
    return run_kernel(t, g, lanes, c) && compare_outputs(t, g, c);
}

/* One node as a graph of its own; contents go in and out through the map of values. */
static bool run_node(struct instance *t, const struct graph *g, node_id n, struct tensor **c)
{
    struct graph one;
    value_id *back, out[MAX_RANK];
    u32 n_out = 0;
    const struct node *x = graph_node(g, n);
    for (u32 k = 0; k < x->out.n && n_out < MAX_RANK; k++)
        if (x->out.v[k]) out[n_out++] = x->out.v[k];
    graph_extract(&one, g, &t->arena, &n, 1, out, n_out, &back);
    struct tensor **here = arena_array(&t->arena, struct tensor *, one.value.n);
    for (value_id v = 1; v < one.value.n; v++) here[v] = c[back[v]];
    if (!run_kernel(t, &one, 1, here)) return false;
    for (u32 k = 0; k < n_out; k++) c[out[k]] = here[one.output.v[k]];
    return true;
}

static bool check_single(struct instance *t, const struct graph *g)
{
    t->stage = "node by node";
    struct tensor **c = arena_array(&t->arena, struct tensor *, g->value.n);
    known_contents(t, g, c);
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead) continue;
        if (!run_node(t, g, n, c)) return false;
        for (u32 k = 0; k < x->out.n; k++)
            if (!graph_read_sizes(g, x->out.v[k], c[x->out.v[k]], t->var, &t->e)) return false;
    }
    return compare_outputs(t, g, c);
}

static bool only_primitives(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && (op_of(g, n)->expand || !op_of(g, n)->eval)) return false;
    return true;
}

/* Infers, evaluates, runs; false with t->e set. */
static bool check_graph(struct instance *t)
{
    struct graph expanded;
    t->stage = "expand";
    graph_clone(&expanded, &t->g, &t->arena);
    if (!op_expand_all(&expanded, &t->e) || !graph_verify(&expanded, &t->e)) return false;
    if (!only_primitives(&expanded)) return err_set(&t->e, ERR_FAILED, "composites are left");
    t->stage = "reference";
    t->want = arena_array(&t->arena, struct tensor *, t->g.output.n + 1);
    t->var = arena_array(&t->arena, i64, t->sym.var.n + 1);
    if (!graph_bind(&t->g, t->in, t->var, &t->e)) return false;
    if (!graph_eval(&t->g, t->in, t->want, &t->arena, NULL, &t->e)) return false;
    return check_fused(t, &expanded, 1) && check_fused(t, &expanded, 4) &&
           check_single(t, &expanded);
}

static void report(struct instance *t)
{
    struct buf b = {0};
    graph_print(&b, &t->g, NULL);
    printf("FAILED %s, seed %llu, %s: %s\n%.*s\n", t->op->name, (unsigned long long)t->seed,
           t->stage, t->e.msg, STR_ARG(buf_view(&b)));
    buf_release(&b);
}

/* Counts of executed kernels. */
struct tally {
    int run, symbolic, failed;
};

static void instance_check(const struct op *op, u64 seed, bool symbolic, struct tally *n)
{
    struct instance t = {.op = op, .seed = seed, .stage = "infer"};
    struct rng r = rng_seed(seed);
    symtab_init(&t.sym, &t.arena);
    graph_init(&t.g, &t.arena, &t.sym);
    op->random(op, &t.g, &r);
    bool ok = op_infer_all(&t.g, &t.e) && graph_verify(&t.g, &t.e);
    if (ok) make_inputs(&t, &r);
    if (ok && symbolic) {
        make_symbolic(&t);
        ok = op_infer_all(&t.g, &t.e);
    }
    if (ok) ok = check_graph(&t);
    bool early = !strcmp(t.stage, "infer") || !strcmp(t.stage, "expand");
    bool refused = symbolic && !ok && early && t.e.code != ERR_FAILED;
    if (!ok && !refused) report(&t), n->failed++;
    n->run++;
    n->symbolic += symbolic && !refused;
    arena_release(&t.arena);
}

/* Of the s-th instance; does not change when other operators come and go. */
static u64 seed_of(const struct op *op, u64 s)
{
    struct str name = str_of(op->name);
    return 1000 * s + hash_u64(name.p, name.n) % 1000;
}

static void test_instances(void **state)
{
    struct tally n = {0};
    const char *only = getenv("TEST_OP");
    for (i64 k = 0; op_all(k); k++) {
        const struct op *op = op_all(k);
        if (only && strcmp(only, op->name)) continue;
        if (op->props & OP_CALL) continue; /* no kernels: test_graphs, test_loop */
        if (!op->random) n.failed++, printf("FAILED %s: no random instance\n", op->name);
        for (u64 s = 1; op->random && s <= N_INSTANCES; s++) {
            instance_check(op, seed_of(op, s), false, &n);
            instance_check(op, seed_of(op, s), true, &n);
        }
    }
    printf("%d instances, %d symbolic, %d failed\n", n.run, n.symbolic, n.failed);
    assert_int_equal(n.failed, 0);
}

/* Attributes. */

/* Nodes of random instances have attributes that their operators declare, of the declared kinds. */
static int undeclared(const struct op *op, u64 seed)
{
    struct instance t = {.op = op, .seed = seed, .stage = "attributes"};
    struct rng r = rng_seed(seed);
    int failed = 0;
    symtab_init(&t.sym, &t.arena);
    graph_init(&t.g, &t.arena, &t.sym);
    op->random(op, &t.g, &r);
    for (node_id n = 1; n < t.g.node.n; n++)
        if (!op_check_attributes(&t.g, n, &t.e)) report(&t), failed++;
    arena_release(&t.arena);
    return failed;
}

static void test_attributes(void **state)
{
    int failed = 0;
    for (i64 k = 0; op_all(k); k++)
        for (u64 s = 1; op_all(k)->random && s <= N_INSTANCES; s++) failed += undeclared(op_all(k), seed_of(op_all(k), s));
    assert_int_equal(failed, 0);
    assert_string_equal(op_attributes(S("Celu")), "alpha:float");
    assert_string_equal(op_attributes(S("com.microsoft::FastGelu")), "");
    assert_string_equal(op_attributes(S("Sin")), "");
    assert_string_equal(op_attributes(S("NoSuch")), "");
}

/* Compiled: one graph of many instances, one kernel, one grid per output. */

enum { BATCH = 32 };

struct batch {
    struct instance t; /* the merged graph, its inputs and outputs */
    struct tensor *in[4 * BATCH];
    struct tensor **content; /* per value */
};

/* The instance's expansion has a node that is a kernel of its own. */
static bool needs_own_kernel(const struct op *op, u64 seed, bool *specials)
{
    struct instance t = {.op = op, .seed = seed};
    struct rng r = rng_seed(seed);
    symtab_init(&t.sym, &t.arena);
    graph_init(&t.g, &t.arena, &t.sym);
    op->random(op, &t.g, &r);
    bool ok = op_infer_all(&t.g, &t.e);
    *specials = ok && takes_specials(&t);
    ok = ok && op_expand_all(&t.g, &t.e);
    bool own = !ok || whole_node(&t.g);
    arena_release(&t.arena);
    return own;
}

static void batch_add(struct batch *b, const struct op *op, u64 seed, bool specials)
{
    struct graph *g = &b->t.g;
    struct rng r = rng_seed(seed);
    u32 first = g->input.n;
    op->random(op, g, &r);
    for (u32 k = first; k < g->input.n; k++) {
        const struct value *v = graph_value(g, g->input.v[k]);
        i64 dim[MAX_RANK];
        assert_true(k < countof(b->in) && shape_is_static(&b->t.sym, &v->shape, dim));
        b->in[k] = tensor_new(&b->t.arena, v->dtype, v->shape.rank, dim);
        fill(b->in[k], &r, specials);
    }
}

/* Bytes of an ALLOC whose count is constant or a parameter. */
static i64 alloc_bytes(const struct kir *k, kval v, const i64 *param)
{
    const struct kir_ins *x = kir_at(k, v), *n = kir_at(k, x->a);
    i64 count = n->op == KI_PARAM ? param[n->imm.i] : n->imm.i;
    return count * x->lanes * dtype_size(x->dtype);
}

/* Extents of the grids; returns their number. */
static u32 grid_extents(const struct kir *k, const i64 *param, i64 (*out)[3], u32 max)
{
    u32 n = 0, depth = 0, dims = 0;
    for (kval i = 1; i < k->ins.n; i++) {
        const struct kir_ins *x = kir_at(k, i);
        if (x->op == KI_GRID) {
            const struct kir_ins *c = kir_at(k, x->a);
            assert_true(n < max);
            if (!dims) out[n][0] = out[n][1] = out[n][2] = 1;
            out[n][dims++] = c->op == KI_PARAM ? param[c->imm.i] : c->imm.i;
        }
        if (x->op == KI_GRID || x->op == KI_LOOP || x->op == KI_IF) depth++;
        if (x->op == KI_END && --depth == 0) n++, dims = 0;
    }
    return n;
}

static bool compile(struct dev *d, const struct kir *k, struct buf *binary, struct arena *a,
                    struct err *e)
{
    struct buf text = {0};
    struct caps caps = {0};
    d->driver->caps(d, &caps);
    const struct lang *c = lang_find(S("c"));
    bool ok =
        lang_render(&text, c, k, &caps, a, e) && c->build(binary, buf_view(&text), &caps, 60, e);
    if (!ok && getenv("TEST_OP_KERNEL")) printf("%.*s", STR_ARG(buf_view(&text)));
    buf_release(&text);
    return ok;
}

/* Compiles and runs kernel k; content of the arguments in t, outputs are created there. */
static bool run_compiled(struct dev *d, const struct emit *m, struct arena *a, struct tensor **t,
                         struct err *e)
{
    const struct dev_driver *dr = d->driver;
    const struct kir *k = m->k;
    struct buf binary = {0};
    struct kir_memory mem;
    struct dev_mem buf[512] = {0};
    i64 grid[512][3], work = 0;
    u32 n_arg = m->arg.n, n_grid = grid_extents(k, NULL, grid, 512);
    bool ok = kir_memory(k, &mem, e) && compile(d, k, &binary, a, e);
    struct dev_kernel *dk = ok ? dr->load(d, buf_view(&binary), k->name, n_grid, e) : NULL;
    assert_true(n_arg + mem.temp.n <= 512);
    for (u32 i = 0; dk && i < n_arg; i++) {
        struct tensor *x = t[m->arg.v[i].v];
        ok = ok && dr->alloc(d, tensor_bytes(x) + 64, &buf[i], e) &&
             dr->upload(d, buf[i], x->data, tensor_bytes(x), e);
    }
    for (u32 i = 0; dk && i < mem.temp.n; i++)
        ok = ok && dr->alloc(d, alloc_bytes(k, mem.temp.v[i], NULL), &buf[n_arg + i], e);
    for (u32 i = 0; i < mem.work.n; i++) work += round_up(alloc_bytes(k, mem.work.v[i], NULL), 64);
    struct dev_launch l = {
        .kernel = dk, .buf = buf, .n_buf = n_arg + mem.temp.n, .work_size = work};
    l.grid = (const i64(*)[3])grid, l.n_grid = n_grid;
    ok = dk && ok && dr->launch(d, &l, e) && dr->fence(d, e);
    for (u32 i = 0; ok && i < n_arg; i++)
        if (m->arg.v[i].is_out)
            ok = dr->download(d, buf[i], t[m->arg.v[i].v]->data, tensor_bytes(t[m->arg.v[i].v]), e);
    for (u32 i = 0; i < n_arg + mem.temp.n; i++) dr->release(d, &buf[i]);
    if (dk) dr->unload(d, dk);
    buf_release(&binary);
    return ok;
}

static void make_contents(struct batch *b, const struct emit *m)
{
    const struct graph *g = m->g;
    for (value_id v = 1; v < g->value.n; v++) b->content[v] = graph_value(g, v)->data;
    for (u32 k = 0; k < g->input.n; k++) b->content[g->input.v[k]] = b->in[k];
    for (u32 i = 0; i < m->arg.n; i++) {
        i64 dim[MAX_RANK];
        const struct value *x = graph_value(g, m->arg.v[i].v);
        if (!m->arg.v[i].is_out) continue;
        assert_true(shape_is_static(g->sym, &x->shape, dim));
        b->content[m->arg.v[i].v] = tensor_new(&b->t.arena, x->dtype, x->shape.rank, dim);
    }
}

/* Compares every output; failures name the operator that made it. */
static int batch_failures(struct batch *b)
{
    int n = 0;
    for (u32 k = 0; k < b->t.g.output.n; k++) {
        struct err e = {0};
        value_id v = b->t.g.output.v[k];
        if (close_enough(b->content[v], b->t.want[k], &e)) continue;
        const struct node *x = graph_node(&b->t.g, graph_value(&b->t.g, v)->producer);
        printf("FAILED %.*s compiled, seed %llu: %s\n", STR_ARG(x->op),
               (unsigned long long)b->t.seed, e.msg);
        n++;
    }
    return n;
}

static int batch_run(struct dev *d, struct batch *b)
{
    struct graph g;
    struct kir k;
    struct emit m;
    struct err *e = &b->t.e;
    b->t.want = arena_array(&b->t.arena, struct tensor *, b->t.g.output.n + 1);
    bool ok =
        op_infer_all(&b->t.g, e) && graph_eval(&b->t.g, b->in, b->t.want, &b->t.arena, NULL, e);
    graph_clone(&g, &b->t.g, &b->t.arena);
    ok = ok && op_expand_all(&g, e);
    if (ok) {
        emit_kernel(&m, &k, &g, &b->t.arena, 8);
        b->content = arena_array(&b->t.arena, struct tensor *, g.value.n);
        make_contents(b, &m);
        ok = kir_verify(&k, e) && run_compiled(d, &m, &b->t.arena, b->content, e);
    }
    if (!ok) printf("FAILED compiled: %s\n", e->msg);
    return ok ? batch_failures(b) : 1;
}

static void batch_init(struct batch *b, u64 seed)
{
    *b = (struct batch){.t.seed = seed};
    symtab_init(&b->t.sym, &b->t.arena);
    graph_init(&b->t.g, &b->t.arena, &b->t.sym);
}

/* One instance of every operator. */
static int compile_all(struct dev *d, u64 seed)
{
    struct batch b;
    int failed = 0, n = 0;
    const char *only = getenv("TEST_OP");
    batch_init(&b, seed);
    for (i64 k = 0; op_all(k); k++) {
        const struct op *op = op_all(k);
        bool specials, own = needs_own_kernel(op, seed_of(op, seed), &specials);
        if (op->props & OP_CALL) continue;
        if (only && strcmp(only, op->name)) continue;
        if ((own && n) || n == BATCH) {
            failed += batch_run(d, &b), n = 0;
            arena_release(&b.t.arena);
            batch_init(&b, seed);
        }
        if (own && !op->whole) continue; /* composites of such ones */
        batch_add(&b, op, seed_of(op, seed), specials);
        n = own ? BATCH : n + 1;
    }
    if (n) failed += batch_run(d, &b);
    arena_release(&b.t.arena);
    return failed;
}

static void test_compiled(void **state)
{
    struct err e = {0};
    const struct dev_driver *cpu = dev_find(S("cpu"));
    struct dev_opts o = {.n_threads = 2};
    struct dev *d = cpu->open(&o, &e);
    if (!d) fail_msg("%s", e.msg);
    int failed = 0;
    const char *times = getenv("TEST_OP_COMPILE");
    for (int i = 0; i < (times ? atoi(times) : 1); i++) failed += compile_all(d, 1000 + (u64)i);
    cpu->close(d);
    assert_int_equal(failed, 0);
}

/* The registry itself. */

static void test_registry(void **state)
{
    for (i64 k = 0; op_all(k); k++) {
        const struct op *op = op_all(k);
        assert_ptr_equal(op_find(str_of(op->name)), op); /* names are unique */
        assert_non_null(op->infer);
        assert_true(op->min_in <= op->max_in && op->min_out <= op->max_out);
        if (op->props & OP_CALL) continue; /* no kernel */
        assert_int_equal(op->expand != NULL, op->eval == NULL);
        if (op->eval) assert_int_equal(op->lower != NULL, op->whole == NULL);
        assert_int_equal((op->props & OP_WHOLE) != 0, op->whole != NULL);
        assert_int_equal((op->props & OP_REDUCE) != 0, op->reduce != NULL);
    }
    assert_null(op_find(S("NoSuchOperator")));
    const char *only = getenv("TEST_OP");
    if (only && !op_find(str_of(only))) fail_msg("no operator '%s'", only);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_attributes), cmocka_unit_test(test_instances),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
