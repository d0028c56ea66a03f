// SPDX-License-Identifier: Apache-2.0
//
// Random graphs over all operators of the registry, run as whole programs in the interpreter and compared with the reference
// evaluation. An operator's random instance is grafted onto the graph: its inputs become earlier values of the same type where
// inference accepts them, else new inputs of the graph, some of their sizes symbolic. Costs and schedules are random, so every
// region, layout and family is chosen somewhere.
//
// An element may be off by what rounding explains: a share of the output's largest element, more by as much as small changes of
// the inputs change it. Where a graph holds a step (a comparison, an index, a rounding) behind a value that was rounded, or its
// inputs hold infinities and NaN, only errors and accesses out of bounds count.
//
// SEED=n prints a graph and what was chosen; COUNT=n runs many. A failing assertion prints the seed.
#include "pass/pass.h"
#include "plan/plan.h"
#include "rt/rt.h"
#include "seeds.h"
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_GRAPHS = 250, MAX_ELEMENTS = 1 << 12 };

struct random_graph {
    u64 seed;
    struct arena arena;
    struct symtab sym;
    struct graph g, lowered;
    struct rng rng;
    struct { value_id *v; u32 n, cap; } have;
    bool specials;  /* inputs hold infinities and NaN */
    struct caps caps;
    struct err e;
};

static i64 pick(struct random_graph *s, i64 lo, i64 hi) { return rng_range(&s->rng, lo, hi); }

/* graphs */

static value_id new_input(struct random_graph *s, const struct value *like)
{
    value_id v = graph_add_value(&s->g, S("in"));
    struct value *x = graph_value(&s->g, v);
    bool symbolic = pick(s, 0, 2) == 0;
    x->dtype = like->dtype;
    x->shape = like->shape;
    for (u32 d = 0; d < x->shape.rank && symbolic; d++) {
        i64 c;
        if (!sym_is_const(&s->sym, x->shape.dim[d], &c) || c < 2 || s->sym.var.n >= 60 || pick(s, 0, 1)) continue;
        x->shape.dim[d] = sym_var(&s->sym, str_fmt(&s->arena, "D%d", (int)c));
    }
    *arr_push(&s->arena, &s->g.input) = v;
    *arr_push(&s->arena, &s->have) = v;
    return v;
}

/* An earlier value of that type; the shape is equal or, with `any`, none matters. 0: none. */
static value_id find_value(struct random_graph *s, const struct value *like, bool any)
{
    for (int i = 0; i < 12 && s->have.n; i++) {
        i64 back = pick(s, 0, 1) ? pick(s, 0, i64_min(3, s->have.n - 1)) : pick(s, 0, s->have.n - 1);
        value_id v = s->have.v[s->have.n - 1 - (u32)back];
        const struct value *x = graph_value(&s->g, v);
        if (x->dtype == like->dtype && (any ? x->shape.rank == like->shape.rank || pick(s, 0, 3) == 0
                                            : shape_equal(&x->shape, &like->shape)))
            return v;
    }
    return 0;
}

static bool too_large(const struct random_graph *s, value_id v)
{
    const struct shape *x = &graph_value(&s->g, v)->shape;
    i64 n = 1, c;
    for (u32 d = 0; d < x->rank; d++) n *= sym_is_const(&s->sym, x->dim[d], &c) ? c : 9;
    return n > MAX_ELEMENTS;
}

static void drop_node(struct random_graph *s, node_id n)
{
    struct node *x = graph_node(&s->g, n);
    x->dead = true;
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) graph_value(&s->g, x->out.v[k])->producer = 0;
}

/* The instance's node behind earlier values. false: inference refuses them. */
static bool graft(struct random_graph *s, const struct graph *from, node_id at, int how)
{
    const struct node *x = graph_node(from, at);
    node_id n = graph_add_node(&s->g, x->op, S("n"));
    u32 n_in = s->g.input.n, n_have = s->have.n;
    for (u32 k = 0; k < x->in.n; k++) {
        value_id v = 0;
        const struct value *like = x->in.v[k] ? graph_value(from, x->in.v[k]) : NULL;
        if (like && like->data) v = graph_add_const(&s->g, S("c"), like->data);
        else if (like && how < 2) v = find_value(s, like, how == 0);
        if (like && !v) v = new_input(s, like);
        node_add_in(&s->g, n, v);
    }
    for (u32 k = 0; k < x->attr.n; k++) attr_copy(&s->g, n, &x->attr.v[k]);
    for (u32 k = 0; k < x->out.n; k++) node_set_out(&s->g, n, k, x->out.v[k] ? graph_add_value(&s->g, S("v")) : 0);
    struct err e = {0};
    bool ok = op_infer(&s->g, n, &e);
    const struct node *y = graph_node(&s->g, n);
    for (u32 k = 0; ok && k < y->out.n; k++) ok = !y->out.v[k] || (graph_value(&s->g, y->out.v[k])->shape.known && !too_large(s, y->out.v[k]));
    if (!ok) {
        drop_node(s, n);
        s->g.input.n = n_in, s->have.n = n_have;
        return false;
    }
    for (u32 k = 0; k < y->out.n; k++)
        if (y->out.v[k]) *arr_push(&s->arena, &s->have) = y->out.v[k];
    return true;
}

static i64 count_ops(void)
{
    i64 n = 0;
    while (op_all(n)) n++;
    return n;
}

static void add_node(struct random_graph *s, i64 n_ops)
{
    static const char *const often[] = {"Add", "Mul", "Sub", "Relu", "Sin", "Softmax", "Concat", "Slice", "Transpose", "MatMul", "ReduceMean",
                                        "Expand", "Reshape", "Conv", "MaxPool", "Round", "Pad", "Gather", "Where", "Split"};
    const struct op *op = pick(s, 0, 1) ? op_find(str_of(often[pick(s, 0, countof(often) - 1)])) : op_all(pick(s, 0, n_ops - 1));
    if (!op || !op->random) return;
    struct graph one;
    graph_init(&one, &s->arena, &s->sym);
    op->random(op, &one, &s->rng);
    struct err e = {0};
    if (one.node.n != 2 || !op_infer_all(&one, &e)) return;
    /* what expansions make holds sizes in its attributes: its inputs have exactly the shapes it was made for */
    for (int how = str_starts(str_of(op->name), S("quern::")); how < 3; how++)
        if (graft(s, &one, 1, how)) return;
}

static void choose_outputs(struct random_graph *s)
{
    u32 *uses = graph_use_counts(&s->g, &s->arena);
    for (u32 i = 0; i < s->have.n; i++) {
        value_id v = s->have.v[i];
        bool made = graph_value(&s->g, v)->producer != 0;
        if (made && (!uses[v] || pick(s, 0, 7) == 0)) *arr_push(&s->arena, &s->g.output) = v;
    }
}

static bool random_graph_open(struct random_graph *s, u64 seed)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->rng = rng_seed(seed);
    symtab_init(&s->sym, &s->arena);
    graph_init(&s->g, &s->arena, &s->sym);
    i64 n_ops = count_ops(), n = pick(s, 0, 9) ? pick(s, 1, 10) : pick(s, 10, 60);
    for (i64 i = 0; i < n; i++) add_node(s, n_ops);
    choose_outputs(s);
    s->specials = pick(s, 0, 4) == 0;
    return s->g.output.n && op_infer_all(&s->g, &s->e);
}

static void random_graph_close(struct random_graph *s)
{
    struct arena a = s->arena;
    arena_release(&a);
}

/* contents */

static double random_float(struct random_graph *s)
{
    static const double some[] = {0, -0.0, 1, -1, 0.5, -0.5, 2, 1.5};
    static const double odd[] = {INFINITY, -INFINITY, NAN, 3e38, -3e38, 1e-40};
    if (pick(s, 0, 7) == 0) return some[pick(s, 0, countof(some) - 1)];
    if (s->specials && pick(s, 0, 9) == 0) return odd[pick(s, 0, countof(odd) - 1)];
    return rng_f64(&s->rng) * 4 - 2;
}

static void fill(struct random_graph *s, struct tensor *t)
{
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, i, random_float(s));
        else elem_set_i64(t->dtype, t->data, i, t->dtype == DT_BOOL ? pick(s, 0, 1) : pick(s, dtype_kind(t->dtype) == DK_UINT ? 0 : -5, 5));
    }
}

/* Variables are named by their sizes. */
static bool bind_sizes(struct random_graph *s, i64 *var)
{
    for (u32 i = 0; i < s->sym.var.n; i++) {
        struct str name = s->sym.var.v[i];
        if (name.p[0] != 'D' || !str_to_i64(str_sub(name, 1, name.n), &var[i])) var[i] = INT64_MIN;
    }
    return true;
}

static struct tensor *make_inputs(struct random_graph *s, const i64 *var, struct tensor **p)
{
    struct tensor *in = arena_array(&s->arena, struct tensor, s->g.input.n + 1);
    for (u32 k = 0; k < s->g.input.n; k++) {
        const struct value *x = graph_value(&s->g, s->g.input.v[k]);
        i64 dim[MAX_RANK];
        if (!shape_eval(&s->sym, &x->shape, var, dim)) return NULL;
        in[k] = *tensor_new(&s->arena, x->dtype, x->shape.rank, dim);
        fill(s, &in[k]);
        p[k] = &in[k];
    }
    return in;
}

/* programs */

static bool any_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct random_graph *s = user;
    struct rng r = rng_seed(s->seed ^ t->key.lo);
    struct candidate other;
    *c = (struct task_cost){0};
    if (!gen_default(t, &s->caps, var, &c->best)) return false;
    if (rng_range(&r, 0, 3) && gen_random(t, &s->caps, &r, &other) &&
        gen_predict(&other, t, &s->caps, var) < 20 * gen_predict(&c->best, t, &s->caps, var))
        c->best = other;
    c->ok = true;
    c->seconds = (double)rng_range(&r, 1, 1000) * 1e-6;
    return true;
}

static bool as_it_is(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    for (u32 i = 0; i < n; i++) out[i] = text[i];
    return true;
}

static bool make_plan(struct random_graph *s, struct dev *d, struct plan *p, const i64 *var)
{
    struct cover c;
    struct selection sel;
    const struct cover_opts cut = {.no_fusion = s->seed % 11 == 3, .no_concat = s->seed % 13 == 4,
                                   .blocks = s->seed % 3 ? LAYOUT_ROWS : LAYOUT_C16, .blocks_from = 1};
    const struct plan_env env = {.lang = lang_find(S("kir")), .caps = &s->caps, .device = d->driver->name, .model = S("random"), .build = as_it_is};
    graph_clone(&s->lowered, &s->g, &s->arena);
    return pass_run_all(&s->lowered, NULL, &s->e) && cover_build(&c, &s->lowered, &s->arena, &cut, &s->e) &&
           plan_select(&sel, &c, var, any_cost, s, &s->arena, &s->e) && plan_make(p, &c, &sel, var, &env, &s->arena, &s->e);
}

/* comparison */

static bool is_named(struct str op, const char *const *names, i64 n)
{
    for (i64 i = 0; i < n; i++)
        if (str_glob(str_of(names[i]), op)) return true;
    return false;
}

/* A small change of a float may change the result by much. */
static bool has_steps(const struct graph *g)
{
    static const char *const steps[] = {"Floor", "Ceil", "Round", "Sign", "Mod", "*Shrink*", "Thresholded*", "*Hardmax*", "MaxUnpool", "*Quantize*", "QLinear*",
                                        "*TopK*", "*Tree*", "Unique", "*Roi*", "*GridSample*", "Resize", "*Celu*", "Reciprocal", "Div", "Pow", "Tan*",
                                        "*Random*", "Bernoulli", "Multinomial", "Dropout", "*::*"};
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead) continue;
        if (is_named(x->op, steps, countof(steps))) return true;
        for (u32 k = 0; k < x->in.n; k++)
            for (u32 o = 0; o < x->out.n; o++)
                if (x->in.v[k] && x->out.v[o] && dtype_is_float(graph_value(g, x->in.v[k])->dtype) &&
                    !dtype_is_float(graph_value(g, x->out.v[o])->dtype))
                    return true;
        for (u32 k = 0; k < x->in.n; k++)
            if (x->in.v[k] && dtype_is_float(graph_value(g, x->in.v[k])->dtype) && dtype_size(graph_value(g, x->in.v[k])->dtype) < 4) return true;
    }
    return false;
}

static void nudge(struct tensor *t, struct rng *r)
{
    for (i64 i = 0, n = tensor_count(t); i < n && dtype_is_float(t->dtype); i++)
        elem_set_f64(t->dtype, t->data, i, elem_f64(t->dtype, t->data, i) * (1 + (rng_f64(r) - 0.5) * 4e-6));
}

static bool compare(struct random_graph *s, const struct tensor *got, const struct tensor *want, const struct tensor *near, u32 k)
{
    double scale = 1e-3;
    if (got->rank != want->rank || got->dtype != want->dtype || memcmp(got->dim, want->dim, sizeof got->dim[0] * got->rank))
        return err_set(&s->e, ERR_FAILED, "output %u has another shape", k);
    if (s->specials || has_steps(&s->g)) return true;
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        double x = elem_f64(want->dtype, want->data, i);
        if (isfinite(x)) scale = fmax(scale, fabs(x));
    }
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        double x = elem_f64(want->dtype, want->data, i), y = elem_f64(got->dtype, got->data, i), z = elem_f64(near->dtype, near->data, i);
        if (x == y || (isnan(x) && isnan(y)) || !isfinite(x) || !isfinite(z) || scale > 1e30) continue;
        if (fabs(x - y) <= 1e-4 * scale + 100 * fabs(x - z)) continue;
        return err_set(&s->e, ERR_FAILED, "output %u, element %lld: %.9g, expected %.9g", k, (long long)i, y, x);
    }
    return true;
}

/* one graph */

struct tally { u64 run, refused, compared, nodes; };

static bool run_graph(struct random_graph *s, struct dev *d, struct tally *t)
{
    i64 *var = arena_array(&s->arena, i64, s->sym.var.n + 1);
    struct tensor **p = arena_array(&s->arena, struct tensor *, s->g.input.n + 1);
    struct tensor **want = arena_array(&s->arena, struct tensor *, s->g.output.n), **near = arena_array(&s->arena, struct tensor *, s->g.output.n);
    struct tensor *got = arena_array(&s->arena, struct tensor, s->g.output.n);
    struct err refused = {0};
    struct plan plan;
    bind_sizes(s, var);
    struct tensor *in = make_inputs(s, var, p);
    if (!in || !graph_eval(&s->g, p, want, &s->arena, NULL, &refused)) return t->refused++, true;
    d->driver->caps(d, &s->caps);
    if (!make_plan(s, d, &plan, var)) return (s->e.code == ERR_UNSUPPORTED || s->e.code == ERR_INPUT) ? (t->refused++, true) : false;
    struct rt_program *r = rt_load(&plan, d, &s->e);
    bool ok = r && rt_run(r, in, got, &s->arena, &s->e);
    if (ok) {
        struct rng rng = rng_seed(s->seed);
        struct tensor **q = arena_array(&s->arena, struct tensor *, s->g.input.n + 1);
        for (u32 k = 0; k < s->g.input.n; k++) q[k] = tensor_new(&s->arena, in[k].dtype, in[k].rank, in[k].dim), memcpy(q[k]->data, in[k].data, (size_t)tensor_bytes(&in[k])), nudge(q[k], &rng);
        bool has_near = graph_eval(&s->g, q, near, &s->arena, NULL, &refused);
        for (u32 k = 0; k < s->g.output.n && ok; k++) {
            bool same = has_near && near[k]->rank == want[k]->rank && tensor_count(near[k]) == tensor_count(want[k]);
            if (same) ok = compare(s, &got[k], want[k], near[k], k);
        }
        t->compared += !s->specials && !has_steps(&s->g);
    }
    rt_unload(r);
    t->run++, t->nodes += s->g.node.n - 1;
    return ok;
}

static void show(const struct random_graph *s)
{
    struct buf b = {0};
    graph_print(&b, &s->g, NULL);
    fwrite(b.p, 1, (size_t)b.n, stderr);
    buf_release(&b);
}

static volatile sig_atomic_t seed_now;

static void say_seed(int sig)
{
    char text[64];
    int n = snprintf(text, sizeof text, "assertion in the graph of SEED=%llu\n", (unsigned long long)seed_now);
    if (write(2, text, (size_t)n) < 0) _exit(3);
    _exit(3);
}

static void test_graphs(void **state)
{
    struct err e = {0};
    struct dev *d = dev_find(S("interp"))->open(&(struct dev_opts){.n_threads = 1}, &e);
    assert_non_null(d);
    struct tally t = {0};
    u64 failed = 0;
    signal(SIGABRT, say_seed);
    for (u64 seed = first_seed(0, N_GRAPHS); seed < last_seed(0, N_GRAPHS); seed++) {
        struct random_graph s;
        seed_now = (sig_atomic_t)seed;
        if (random_graph_open(&s, seed)) {
            if (getenv("SHOW")) show(&s);
            if (!run_graph(&s, d, &t)) {
                if (!failed++) show(&s);
                print_error("SEED=%llu: %s\n", (unsigned long long)seed, s.e.msg);
            }
        }
        random_graph_close(&s);
    }
    d->driver->close(d);
    print_message("%llu graphs run, %llu nodes; %llu refused, %llu compared by elements\n", (unsigned long long)t.run, (unsigned long long)t.nodes,
                  (unsigned long long)t.refused, (unsigned long long)t.compared);
    if (failed) fail_msg("%llu graphs failed", (unsigned long long)failed);
    if (!seeds_are_given()) assert_true(t.run > N_GRAPHS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
