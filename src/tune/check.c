// SPDX-License-Identifier: Apache-2.0
//
// Inputs of a kernel under test, its reference outputs and their comparison. Inputs are random,
// signed and seeded; the reference is the operators' own evaluation with double accumulation. For
// large tasks the reference is computed at sampled elements of the output, the first and the last
// included. Tolerances: tolerance.c.
#include "tune/tune.h"

#include <math.h>
#include <string.h>

static const double max_integer_error = 0.4; /* a smaller error does not change an integer into another one */
enum { N_POINTS = 4096, PATTERN = 1 << 16 };
static const double max_reference_flops = 2e9, max_integer_flops = 2e8 /* wrong indices and terms affect the result at few points */;

double check_last_place(enum dtype t, double x)
{
    int e, bits = t == DT_F64 ? 53 : t == DT_F16 ? 11 : t == DT_BF16 ? 8 : t == DT_TF32 ? 11 : 24, least = t == DT_F64 ? -1074 : t == DT_F16 ? -24 : t == DT_BF16 ? -133 : -149;
    if (!dtype_is_float(t)) return 1;
    frexp(x, &e);
    if (dtype_is_small(t)) bits = small_float_of(t)->mantissa + 1, least = 1 - small_float_of(t)->bias - small_float_of(t)->mantissa;
    return x == 0 || e - bits < least ? ldexp(1, least) : ldexp(1, e - bits);
}

/* Inputs. */

static void fill_elem(enum dtype t, void *p, i64 i, struct rng *r)
{
    switch (dtype_kind(t)) {
    case DK_FLOAT: elem_set_f64(t, p, i, t == DT_F8E8M0 ? rng_f64(r) : rng_f64(r) * 2 - 1); break;
    case DK_INT: elem_set_i64(t, p, i, rng_range(r, 1, 9) * (rng_u64(r) & 1 ? 1 : -1)); break;
    case DK_UINT: elem_set_i64(t, p, i, rng_range(r, 1, 9)); break;
    case DK_BOOL: elem_set_i64(t, p, i, (i64)(rng_u64(r) & 1)); break;
    case DK_NONE: unreachable();
    }
}

/* Large tensors repeat a random pattern of odd length. */
static void fill(struct tensor *t, i64 n, struct rng *r)
{
    i64 size = dtype_size(t->dtype), m = i64_min(n, PATTERN - 1);
    for (i64 i = 0; i < m; i++) fill_elem(t->dtype, t->data, i, r);
    for (i64 done = m; done < n; done += m)
        memcpy((char *)t->data + done * size, t->data, (size_t)(i64_min(m, n - done) * size));
}

/* Difficult values. Random numbers never include ties of roundings, equal operands or zeros of both
   signs. Therefore one sixteenth of the input elements of a single pointwise operator are such
   values, and infinities, NaN and extremes if the device supports them. Fused pointwise operators
   get zeros only: a kernel need not round its intermediate values, and operators that are
   discontinuous (a rounding, a comparison) could turn that difference into another result. With
   reductions a few such values would dominate all outputs: these tasks have random inputs only. */
static const double extreme_from = 1e4;
enum { HARD_EVERY = 16, HARD_AT = 5, EXTREME_EVERY = 4 /* of the difficult values */ };

static bool is_pointwise(const struct graph *g, u32 *n_nodes)
{
    bool all = true;
    *n_nodes = 0;
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead) continue;
        all &= (op_of(g, n)->props & OP_POINTWISE) != 0;
        ++*n_nodes;
    }
    return all && *n_nodes > 0;
}

struct hard { bool zeros, ties, extremes; };

static void fill_hard(struct tensor *t, i64 n, struct hard h)
{
    static const double tie[] = {0.5, -0.0, 1.5, 0, -0.5, 2.5, -1.5, 1, -2.5, -1, 3.5, 0.25}, extreme[] = {INFINITY, -INFINITY, NAN, 1e30, -1e30, 65504, 1e-30};
    if (dtype_kind(t->dtype) != DK_FLOAT || dtype_is_small(t->dtype)) return;
    for (i64 i = HARD_AT; i < n; i += HARD_EVERY) {
        i64 k = i / HARD_EVERY;
        bool is_extreme = h.extremes && k % EXTREME_EVERY == 1;
        double v = is_extreme ? extreme[k / EXTREME_EVERY % countof(extreme)] : tie[k % countof(tie)];
        if (is_extreme || (v == 0 ? h.zeros : h.ties)) elem_set_f64(t->dtype, t->data, i, v);
    }
}

/* Inputs get them at different offsets, so that operands differ. */
static void fill_all_hard(struct check *c, const struct caps *caps)
{
    const struct graph *g = &c->task->g;
    u32 n_nodes;
    if (!is_pointwise(g, &n_nodes)) return;
    bool keeps = !caps || !caps->is_gpu || caps->has_nan; /* zeros produce infinities and NaN */
    const struct hard h = {.zeros = keeps, .ties = n_nodes == 1, .extremes = caps && keeps && n_nodes == 1};
    for (u32 k = 0; k < g->input.n; k++) {
        struct tensor *t = &c->value[g->input.v[k]];
        i64 n = tensor_count(t), from = i64_min(n, 16 * HARD_EVERY * k);
        struct tensor rest = *t;
        rest.data = (char *)t->data + from * dtype_size(t->dtype);
        if (!graph_value(g, g->input.v[k])->data) fill_hard(&rest, n - from, h);
    }
}

static bool make_value(struct check *c, value_id v, struct rng *r, struct err *e)
{
    const struct value *x = graph_value(&c->task->g, v);
    struct tensor *t = &c->value[v];
    i64 bytes;
    t->dtype = x->dtype, t->rank = x->shape.rank;
    if (!shape_eval(c->task->g.sym, &x->shape, c->var, t->dim) ||
        !tensor_size_ok(t->dtype, t->rank, t->dim, &bytes))
        return err_set(e, ERR_FAILED, "sizes of a task's input cannot be computed");
    if (x->data) {
        t->data = mem_aligned(i64_max(bytes, 1));
        if (!t->data) return err_set(e, ERR_SYSTEM, "not enough memory for a task's constant (%lld bytes)", (long long)bytes);
        memcpy(t->data, x->data->data, (size_t)bytes);
        return true;
    }
    t->data = mem_aligned(i64_max(bytes, 64));
    if (!t->data)
        return err_set(e, ERR_SYSTEM, "not enough memory for a task's input (%lld bytes)",
                       (long long)bytes);
    fill(t, bytes / dtype_size(t->dtype), r);
    return true;
}

/* Reference. */

static void choose_points(struct check *c, struct arena *a, u64 seed)
{
    const struct shape *s = &graph_value(&c->task->g, c->task->g.output.v[0])->shape;
    i64 dim[MAX_RANK], n = 1;
    struct rng r = rng_seed(seed + 1);
    shape_eval(c->task->g.sym, s, c->var, dim);
    for (u32 d = 0; d < s->rank; d++) n *= dim[d];
    if (n <= N_POINTS) return;
    c->points = arena_array(a, i64, N_POINTS);
    c->n_points = N_POINTS;
    for (i64 i = 0; i < N_POINTS; i++)
        c->points[i] = i == 0 ? 0 : i == 1 ? n - 1 : rng_range(&r, 0, n - 1);
}

static bool evaluate(struct check *c, struct arena *a, u64 seed, struct err *e)
{
    const struct graph *g = &c->task->g;
    if (g->output.n == 1 && task_flops(c->task, c->var) > (c->are_integers ? max_integer_flops : max_reference_flops))
        choose_points(c, a, seed);
    struct graph full; /* constants without content get the random one */
    struct arena tmp = {0};
    graph_clone(&full, g, &tmp);
    for (value_id v = 1; v < g->value.n; v++)
        if (graph_value(g, v)->is_const) graph_value(&full, v)->data = &c->value[v];
    struct tensor **in = arena_array(&tmp, struct tensor *, g->input.n + 1);
    for (u32 k = 0; k < g->input.n; k++) in[k] = &c->value[g->input.v[k]];
    c->want = arena_array(a, struct tensor *, g->output.n);
    struct graph_eval_opts o = {.points = c->points, .n_points = c->n_points, .var = c->var};
    bool ok = graph_eval(&full, in, c->want, a, &o, e) && (c->are_integers || task_ties(&c->ties, &full, in, c->want, &o, a, e));
    arena_release(&tmp);
    return ok;
}

/* Allocates all inputs and constants, with random content. */
static bool make_values(struct check *c, const i64 *var, struct rng *r, struct err *e)
{
    struct arena *a = &c->arena;
    const struct graph *g = &c->task->g;
    u32 n_var = g->sym->var.n;
    c->var = arena_array(a, i64, n_var + 1);
    if (n_var) memcpy(c->var, var, sizeof *var * n_var);
    c->value = arena_array(a, struct tensor, g->value.n);
    bool ok = true;
    for (value_id v = 1; v < g->value.n && ok; v++)
        if (graph_value(g, v)->producer == 0) ok = make_value(c, v, r, e);
    return ok;
}

bool check_init(struct check *c, const struct task *t, const i64 *var, u64 seed, bool with_reference, struct err *e)
{
    return check_init_for(c, t, var, seed, with_reference, NULL, e);
}

bool check_init_for(struct check *c, const struct task *t, const i64 *var, u64 seed, bool with_reference, const struct caps *caps, struct err *e)
{
    *c = (struct check){.task = t};
    const struct graph *g = &t->g;
    struct rng r = rng_seed(seed);
    bool ok = make_values(c, var, &r, e);
    if (ok) fill_all_hard(c, caps);
    const struct numerics n = graph_numerics(g, graph_value(g, g->output.v[0])->dtype, var);
    check_tolerance(&n, &c->rtol, &c->atol);
    c->least = check_least(n.type);
    ok = ok && (!with_reference || evaluate(c, &c->arena, seed, e));
    if (!ok) check_release(c);
    return ok;
}

void check_expect_integers(struct check *c)
{
    const struct graph *g = &c->task->g;
    enum dtype precision = graph_numerics(g, graph_value(g, g->output.v[0])->dtype, c->var).type;
    c->are_integers = true, c->off = max_integer_error;
    c->exact_up_to = check_exact_up_to(precision, false), c->rtol = 2 * check_unit(precision);
}

bool check_init_integers(struct check *c, const struct task *t, const i64 *var, u64 seed, i64 most, struct err *e)
{
    *c = (struct check){.task = t};
    const struct graph *g = &t->g;
    struct rng r = rng_seed(seed);
    bool ok = make_values(c, var, &r, e);
    for (value_id v = 1; v < g->value.n && ok; v++) {
        const struct value *x = graph_value(g, v);
        if (!x->producer && !x->data && dtype_is_float(x->dtype)) check_fill_integers(&c->value[v], most, &r);
    }
    check_expect_integers(c);
    ok = ok && evaluate(c, &c->arena, seed, e);
    if (!ok) check_release(c);
    return ok;
}

bool check_positive(const struct task *t, const i64 *var)
{
    i64 dim[MAX_RANK];
    for (value_id v = 1; v < t->g.value.n; v++) {
        const struct shape *s = &graph_value(&t->g, v)->shape;
        if (!shape_eval(t->g.sym, s, var, dim)) return false;
        for (u32 d = 0; d < s->rank; d++)
            if (dim[d] <= 0) return false;
    }
    return true;
}

void check_release(struct check *c)
{
    for (value_id v = 1; c->value && v < c->task->g.value.n; v++) mem_free(c->value[v].data);
    struct arena a = c->arena;
    arena_release(&a);
    *c = (struct check){0};
}

/* Comparison. */

struct worst {
    double err;
    i64 at;
    double got, want;
    i64 n_bad;
};

enum { RUN = 256 /* elements per step */ };

/* Integers beyond the exact range of their type are rounded; for all others the error is less than
   the distance to the next integer. */
static double allowed(const struct check *c, double x, double scale)
{
    if (c->are_integers) return c->off + (fabs(x) > c->exact_up_to ? c->rtol * fabs(x) : 0);
    return c->rtol * fmax(fabs(x), c->least) + c->atol * scale;
}

/* The distance of element `at` of output k to what it may be where ties are rounded either way. */
static double distance(const struct check *c, u32 k, i64 at, double x, double got)
{
    double low = x, high = x;
    if (!c->ties.spread || isnan(x)) return fabs(got - x);
    for (u32 side = 0; side < 2; side++) {
        const struct tensor *t = c->ties.side[side][k];
        const double y = elem_f64(t->dtype, t->data, at);
        if (isfinite(y)) low = fmin(low, y), high = fmax(high, y);
    }
    if (got >= low && got <= high) return 0;
    const double beside = fmin(fabs(got - low), fabs(got - high));
    return fmin(beside, fmax(0, fabs(got - x) - c->ties.spread[k]));
}

static void compare_elem(const struct check *c, u32 k, i64 at, double x, double scale, double got, struct worst *w)
{
    if ((isnan(x) && isnan(got)) || x == got) return;
    double err = distance(c, k, at, x, got);
    if (err <= allowed(c, x, scale)) return;
    w->n_bad++;
    if (w->n_bad == 1 || err > w->err) *w = (struct worst){err, at, got, x, w->n_bad};
}

void read_elems(double *to, enum dtype t, const void *p, i64 at, i64 stride, i64 n)
{
    if (t == DT_F32)
        for (i64 i = 0; i < n; i++) to[i] = (double)((const float *)p)[at + i * stride];
    else
        for (i64 i = 0; i < n; i++) to[i] = elem_f64(t, p, at + i * stride);
}

/* Compares n elements from a row-major index on. Nearly all pass, so all are tested together first. */
static void compare_run(const struct check *c, u32 k, i64 at, i64 n, double scale, const double *got, struct worst *w)
{
    const struct tensor *want = c->want[k];
    double x[RUN];
    int bad = 0;
    read_elems(x, want->dtype, want->data, at, 1, n);
    for (i64 i = 0; i < n; i++) bad |= !(fabs(got[i] - x[i]) <= allowed(c, x[i], scale));
    for (i64 i = 0; i < n && bad; i++) compare_elem(c, k, at + i, x[i], scale, got[i], w);
}

/* Ignores the results of extreme inputs. At least 1e-6: inputs are of order one, and complete
   cancellation leaves rounding errors of that order. */
static double magnitude(const struct check *c, const struct tensor *t)
{
    u32 n_nodes;
    double m = 1e-6, x[RUN], most = is_pointwise(&c->task->g, &n_nodes) ? extreme_from : INFINITY;
    i64 n = c->n_points ? c->n_points : tensor_count(t);
    for (i64 k = 0, run; k < n; k += run) {
        run = c->n_points ? 1 : i64_min(RUN, n - k);
        read_elems(x, t->dtype, t->data, c->n_points ? c->points[k] : k, 1, run);
        for (i64 i = 0; i < run; i++)
            if (isfinite(x[i]) && fabs(x[i]) > m && fabs(x[i]) <= most) m = fabs(x[i]);
    }
    return m;
}

static void compare_all(const struct check *c, u32 output, const struct place *p, const void *got, struct worst *w)
{
    const struct tensor *want = c->want[output];
    double scale = magnitude(c, want), x[RUN];
    i64 n = c->n_points ? c->n_points : tensor_count(want), stride = 1;
    for (i64 k = 0, run; k < n; k += run) {
        i64 at = c->n_points ? c->points[k] : k;
        run = c->n_points ? 1 : i64_min(RUN, place_run(p, want, at, &stride));
        read_elems(x, want->dtype, got, place_flat(p, want, at), stride, run);
        compare_run(c, output, at, run, scale, x, w);
    }
}

bool check_output(const struct check *c, u32 k, const void *got, struct buf *why)
{
    const struct tensor *want = c->want[k];
    struct place p;
    struct worst w = {0};
    /* the size of the buffer is known */
    if (!place_of(&p, &c->task->g, c->task->g.output.v[k], c->var)) unreachable();
    compare_all(c, k, &p, got, &w);
    if (w.n_bad == 0) return true;
    buf_printf(why, "output %u: %lld of %lld elements differ, worst at %lld: ", k, (long long)w.n_bad,
               (long long)(c->n_points ? c->n_points : tensor_count(want)), (long long)w.at);
    buf_f64(why, w.got);
    buf_z(why, ", expected ");
    buf_f64(why, w.want);
    return false;
}

/* Positions of values in buffers. */

bool place_of(struct place *p, const struct graph *g, value_id v, const i64 *var)
{
    const struct value *x = graph_value(g, v);
    *p = (struct place){.layout = x->layout, .axis = x->part.axis};
    return sym_eval(g->sym, value_storage(g->sym, x), var, &p->count) && p->count >= 0 &&
           (!x->part.whole || (sym_eval(g->sym, x->part.whole, var, &p->whole) &&
                               sym_eval(g->sym, x->part.from, var, &p->from) && p->from >= 0));
}

i64 place_flat(const struct place *p, const struct tensor *t, i64 flat)
{
    i64 dim[MAX_RANK] = {0}, idx[MAX_RANK] = {0}, rest = flat, at = 0;
    bool rows = p->layout == LAYOUT_ROWS;
    if (rows && !p->whole) return flat;
    for (u32 d = t->rank; d-- > 0; rest /= t->dim[d]) idx[d] = rest % t->dim[d], dim[d] = t->dim[d];
    if (p->whole) dim[p->axis] = p->whole, idx[p->axis] += p->from;
    for (u32 d = 0; d < t->rank && rows; d++) at = at * dim[d] + idx[d];
    if (rows) return at;
    i64 spatial = 1, block = p->layout == LAYOUT_C8 ? 8 : p->layout == LAYOUT_C16 ? 16 : dim[1];
    for (u32 d = 2; d < t->rank; d++) spatial *= dim[d], at = at * dim[d] + idx[d];
    i64 n_blocks = ceil_div(dim[1], block);
    return ((idx[0] * n_blocks + idx[1] / block) * spatial + at) * block + idx[1] % block;
}

i64 place_run(const struct place *p, const struct tensor *t, i64 flat, i64 *stride)
{
    bool rows = p->layout == LAYOUT_ROWS;
    i64 last = t->rank ? t->dim[t->rank - 1] : 1;
    *stride = 1;
    if (rows && !p->whole) return tensor_count(t) - flat;
    if (!rows && t->rank < 3) return 1; /* the last axis is the channel axis */
    if (!rows) *stride = p->layout == LAYOUT_C8 ? 8 : p->layout == LAYOUT_C16 ? 16 : p->whole && p->axis == 1 ? p->whole : t->dim[1];
    return last - flat % last;
}

void place_store(const struct place *p, const struct tensor *t, void *buffer)
{
    i64 n = tensor_count(t), size = dtype_size(t->dtype), stride = 1;
    for (i64 k = 0, run; k < n; k += run) {
        char *to = (char *)buffer + place_flat(p, t, k) * size;
        const char *from = (const char *)t->data + k * size;
        run = place_run(p, t, k, &stride);
        if (stride == 1) memcpy(to, from, (size_t)(run * size));
        for (i64 i = 0; i < run && stride > 1; i++) memcpy(to + i * stride * size, from + i * size, (size_t)size);
    }
}

/* In row-major and channels-last layouts the part's elements are contiguous runs in the memory of
   the whole. */
i64 place_touched(const struct place *p, const struct tensor *t, const void *buffer, u8 byte)
{
    i64 size = dtype_size(t->dtype), inner = 1;
    const u8 *b = buffer;
    bool clast = p->layout == LAYOUT_CLAST;
    if (!p->whole) return -1;
    for (u32 d = p->axis == 1 && clast ? t->rank : p->axis + 1; d < t->rank; d++) inner *= t->dim[d];
    if (clast && p->axis == 0) inner = p->count / i64_max(1, p->whole);
    else if (clast && p->axis > 1) inner *= t->dim[1];
    for (i64 i = 0; i < p->count; i++) {
        i64 at = inner > 0 ? i / inner % p->whole - p->from : 0;
        if (at >= 0 && at < t->dim[p->axis]) continue;
        for (i64 k = 0; k < size; k++)
            if (b[i * size + k] != byte) return i;
    }
    return -1;
}
