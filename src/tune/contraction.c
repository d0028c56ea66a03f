// SPDX-License-Identifier: Apache-2.0
//
// Contractions by their definition, one output at a time, in double: what kernels are compared with, so it shares nothing with them, nor with
// the operator's own evaluation. Both kinds are one sum here, over channels and taps; they differ in which position of the input a tap
// at an output is (source): o*stride + k*dilation - begin of Conv; of ConvTranspose the i with i*stride + k*dilation - begin = o. So is the gradient
// of weights: images are the channels that are added up, positions of dy the taps, taps the positions of the output (is_gradient).
#include "tune/verify.h"

#include <math.h>
#include <stdlib.h>

static const i64 max_count = (i64)1 << 40; /* of elements, so that products of sizes stay far from overflow */

static i64 source(const struct contraction *s, const struct op_window *w, u32 i, i64 begin, i64 o, i64 k)
{
    i64 at = s->is_transposed ? o + begin - k * w->dilation[i] : o * w->stride[i] + k * w->dilation[i] - begin;
    if (s->is_gradient) at = k * w->stride[i] + o * w->dilation[i] - begin;
    if (s->is_transposed && (at < 0 || at % w->stride[i])) return -1;
    if (s->is_transposed) at /= w->stride[i];
    return at >= 0 && at < s->in[i] ? at : -1;
}

static bool make_sources(struct contraction *s, const struct op_window *w, const struct symtab *st, const i64 *var, struct arena *a)
{
    for (u32 i = 0; i < s->n; i++) {
        i64 begin, *v = arena_array(a, i64, s->out[i] * s->kernel[i] + 1);
        if (!sym_eval(st, w->begin[i], var, &begin)) return false;
        for (i64 o = 0; o < s->out[i]; o++)
            for (i64 k = 0; k < s->kernel[i]; k++) v[o * s->kernel[i] + k] = source(s, w, i, begin, o, k);
        s->source[i] = v;
    }
    return true;
}

/* The one node of the task; *last may be one of the second behind it: what follows below 0 is a factor, else 1. NULL: it is something else. */
static const struct node *find_node(const struct graph *g, value_id *last, double *negative)
{
    const struct node *v[2] = {NULL, NULL};
    u32 n = 0;
    for (node_id i = 1; i < g->node.n; i++) {
        if (graph_node(g, i)->dead) continue;
        if (n == 2) return NULL;
        v[n++] = graph_node(g, i);
    }
    if (n == 0) return NULL;
    *last = v[n - 1]->out.v[0], *negative = 1;
    if (n == 1) return v[0];
    bool is_relu = str_is(v[1]->op, "Relu"), is_leaky = str_is(v[1]->op, "LeakyRelu");
    *negative = is_relu ? 0 : attr_float(v[1], "alpha", 0.01);
    bool follows = v[1]->in.v[0] == v[0]->out.v[0] && g->output.n == 1 && g->output.v[0] == *last;
    return follows && (is_relu || is_leaky) && *negative >= 0 && *negative < 1 ? v[0] : NULL;
}

static bool set_sizes(struct contraction *s, const struct graph *g, const struct node *n, const i64 *var)
{
    i64 x[MAX_RANK], w[MAX_RANK], y[MAX_RANK], bytes, group = attr_int(n, "group", 1);
    bool ok = shape_eval(g->sym, op_in_shape(g, n, 0), var, x) && shape_eval(g->sym, op_in_shape(g, n, 1), var, w) &&
              shape_eval(g->sym, &graph_value(g, s->y)->shape, var, y) && tensor_size_ok(s->out_type, s->n + 2, y, &bytes);
    if (!ok || group < 1) return false;
    s->batch = x[0], s->c = x[1], s->m = y[1];
    s->cg = x[1] / group, s->mg = y[1] / group;
    if (s->is_gradient) s->batch = y[1], s->cg = x[0], s->c = x[0] * group, s->m = y[0], s->mg = y[0] / group;
    for (u32 i = 0; i < s->n; i++) s->in[i] = x[2 + i], s->out[i] = y[2 + i], s->kernel[i] = w[2 + i];
    s->taps = i64_product(s->n, s->kernel);
    s->in_plane = i64_product(s->n, s->in), s->out_plane = i64_product(s->n, s->out);
    s->count = s->batch * s->m * s->out_plane;
    s->n_terms = s->cg * s->taps + (s->b != 0);
    return s->count > 0 && s->count < max_count && s->taps > 0 && s->taps < max_count && s->cg > 0;
}

static void set_types(struct contraction *s, const struct graph *g)
{
    s->type = graph_value(g, s->x)->dtype, s->w_type = graph_value(g, s->w)->dtype, s->out_type = graph_value(g, s->y)->dtype;
}

struct matrices { i64 batch, rows, columns; };

static bool matrices_of(struct matrices *m, const struct graph *g, value_id v, const i64 *var)
{
    i64 dim[MAX_RANK];
    const struct shape *s = &graph_value(g, v)->shape;
    if (s->rank < 2 || !shape_eval(g->sym, s, var, dim)) return false;
    *m = (struct matrices){i64_product(s->rank - 2, dim), dim[s->rank - 2], dim[s->rank - 1]};
    return true;
}

/* Rows of a are output channels, columns of b positions. Of batches, only one operand's or equal ones, not broadcast axes. */
static bool matmul_of(struct contraction *s, const struct graph *g, const struct node *n, value_id y, double negative, const i64 *var, struct arena *arena,
                      struct err *e)
{
    struct matrices a, b, c;
    *s = (struct contraction){.x = n->in.v[1], .w = n->in.v[0], .y = y, .negative = negative, .tf32 = attr_int(n, "tf32", 0) != 0, .n = 1, .taps = 1};
    if (!matrices_of(&a, g, s->w, var) || !matrices_of(&b, g, s->x, var) || !matrices_of(&c, g, y, var)) return err_set(e, ERR_UNSUPPORTED, "matmul of a vector");
    if ((a.batch > 1 && b.batch > 1 && a.batch != b.batch) || c.batch != i64_max(a.batch, b.batch))
        return err_set(e, ERR_UNSUPPORTED, "matmul with broadcast matrices");
    i64 groups = b.batch > 1 && a.batch > 1 ? a.batch : 1;
    set_types(s, g);
    s->batch = a.batch > 1 ? 1 : b.batch;
    s->cg = a.columns, s->c = groups * s->cg;
    s->m = a.batch * a.rows, s->mg = s->m / groups;
    s->kernel[0] = s->dilation[0] = 1;
    s->in[0] = s->out[0] = s->in_plane = s->out_plane = b.columns;
    s->count = s->batch * s->m * s->out_plane;
    s->n_terms = s->cg;
    i64 *source = arena_array(arena, i64, b.columns + 1);
    for (i64 k = 0; k < b.columns; k++) source[k] = k;
    s->source[0] = source;
    bool ok = s->cg > 0 && s->count > 0 && s->count < max_count;
    return ok || err_set(e, ERR_FAILED, "sizes of the matmul cannot be worked out");
}

static bool conv_of(struct contraction *s, const struct graph *g, const struct node *n, value_id y, double negative, const i64 *var, struct arena *a,
                    struct err *e)
{
    bool is_conv = str_is(n->op, "Conv"), is_transposed = str_is(n->op, "ConvTranspose"), is_gradient = str_is(n->op, "quern::ConvGradWeight");
    struct op_window w;
    if (!is_conv && !is_transposed && !is_gradient) return err_set(e, ERR_UNSUPPORTED, "the task is not a single convolution or matmul");
    if (n->in.n > 3 && n->in.v[3]) return err_set(e, ERR_UNSUPPORTED, "convolution with values in its pads");
    *s = (struct contraction){.x = n->in.v[0], .w = n->in.v[1], .b = n->in.n > 2 ? n->in.v[2] : 0, .y = y, .negative = negative, .is_transposed = is_transposed,
                              .is_gradient = is_gradient, .tf32 = attr_int(n, "tf32", 0) != 0};
    set_types(s, g);
    op_window_get(g, n, &w);
    s->n = w.n;
    for (u32 i = 0; i < w.n; i++) s->dilation[i] = is_gradient ? w.stride[i] : w.dilation[i];
    bool ok = set_sizes(s, g, n, var) && make_sources(s, &w, g->sym, var, a);
    return ok || err_set(e, ERR_FAILED, "sizes of the convolution cannot be worked out");
}

static bool is_matmul(const struct node *n) { return str_is(n->op, "MatMul"); }

bool contraction_of(struct contraction *s, const struct task *t, const i64 *var, struct arena *a, struct err *e)
{
    const struct graph *g = &t->g;
    value_id last = 0;
    double negative = 1;
    const struct node *n = find_node(g, &last, &negative);
    if (!n) return err_set(e, ERR_UNSUPPORTED, "the task is not a single convolution or matmul");
    for (value_id v = 1; v < g->value.n; v++)
        if (graph_value(g, v)->data) return err_set(e, ERR_UNSUPPORTED, "contents of '%.*s' are part of the task", STR_ARG(graph_value(g, v)->name));
    if (!is_matmul(n)) return conv_of(s, g, n, last, negative, var, a, e);
    const struct value *y = graph_value(g, last);
    if (y->layout != LAYOUT_ROWS || y->part.whole) return err_set(e, ERR_UNSUPPORTED, "matmul with another layout");
    return matmul_of(s, g, n, last, negative, var, a, e);
}

/* An input of the task that nothing else reads. */
static bool is_own_input(const struct graph *g, value_id v)
{
    u32 uses = 0;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        for (u32 i = 0; i < x->in.n && !x->dead; i++) uses += x->in.v[i] == v;
    }
    return uses == 1 && !graph_value(g, v)->producer && !graph_value(g, v)->data;
}

bool contraction_inside(struct contraction *s, const struct task *t, const i64 *var, struct arena *a, struct err *e)
{
    const struct graph *g = &t->g;
    const struct node *n = t->anchor ? graph_node(g, t->anchor) : NULL;
    if (!n || n->in.n < 2 || n->out.n != 1) return err_set(e, ERR_UNSUPPORTED, "the task has no contraction");
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && !is_own_input(g, n->in.v[i])) return err_set(e, ERR_UNSUPPORTED, "operands of the contraction are not inputs of the task");
    return (is_matmul(n) ? matmul_of : conv_of)(s, g, n, n->out.v[0], 1, var, a, e);
}

i64 contraction_weight(const struct contraction *s, i64 m, i64 c, i64 tap)
{
    if (s->is_gradient) return (c % s->cg * s->m + m) * s->taps + tap;
    return (s->is_transposed ? c * s->mg + m % s->mg : m * s->cg + c % s->cg) * s->taps + tap;
}

i64 contraction_plane(const struct contraction *s, i64 n, i64 c)
{
    return s->is_gradient ? (c % s->cg * (s->c / s->cg) + c / s->cg) * s->batch + n : n * s->c + c;
}

i64 contraction_out_plane(const struct contraction *s, i64 n, i64 m) { return s->is_gradient ? m * s->batch + n : n * s->m + m; }

void contraction_split_plane(const struct contraction *s, i64 at, i64 *n, i64 *m)
{
    *m = s->is_gradient ? at / s->batch : at % s->m;
    *n = s->is_gradient ? at % s->batch : at / s->m;
}

static double number(const struct tensor *t, i64 i)
{
    return t->dtype == DT_F32 ? (double)((const float *)t->data)[i] : elem_f64(t->dtype, t->data, i);
}

/* Of the output at o: positions in a plane of the input and numbers of the taps that are inside, in pairs. */
static i64 taps_inside(const struct contraction *s, const i64 *o, i64 *pick)
{
    i64 n = 0;
    for (i64 tap = 0; tap < s->taps; tap++) {
        i64 rest = tap, at = 0, scale = 1, i = s->n;
        while (i-- > 0) {
            i64 p = s->source[i][o[i] * s->kernel[i] + rest % s->kernel[i]];
            if (p < 0) break;
            at += p * scale, scale *= s->in[i], rest /= s->kernel[i];
        }
        if (i < 0) pick[2 * n] = at, pick[2 * n++ + 1] = tap;
    }
    return n;
}

static void split(const struct contraction *s, i64 at, i64 *n, i64 *m, i64 *o)
{
    for (u32 i = s->n; i-- > 0; at /= s->out[i]) o[i] = at % s->out[i];
    contraction_split_plane(s, at, n, m);
}

struct contraction_terms contraction_at(const struct contraction *s, const struct tensor *value, i64 at, i64 *pick)
{
    const struct tensor *x = &value[s->x], *w = &value[s->w];
    i64 o[MAX_RANK], n, m;
    split(s, at, &n, &m, o);
    i64 n_taps = taps_inside(s, o, pick), first = m / s->mg * s->cg;
    struct contraction_terms t = {0};
    if (s->b) t.sum = number(&value[s->b], m), t.size = fabs(t.sum);
    for (i64 c = first; c < first + s->cg; c++) {
        i64 plane = contraction_plane(s, n, c) * s->in_plane, weights = contraction_weight(s, m, c, 0);
        for (i64 k = 0; k < n_taps; k++) {
            double v = number(x, plane + pick[2 * k]) * number(w, weights + pick[2 * k + 1]);
            t.sum += v, t.size += fabs(v);
        }
    }
    return t;
}

bool contraction_is_border(const struct contraction *s, i64 at)
{
    i64 o[MAX_RANK], n, m;
    split(s, at, &n, &m, o);
    for (u32 i = 0; i < s->n; i++)
        if (o[i] == 0 || o[i] == s->out[i] - 1) return true;
    return false;
}

/* Samples. */

static int ascending(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

/* A random output; bit 2i of the mask: the first along spatial axis i, bit 2i + 1: the last. */
static i64 random_output(const struct contraction *s, u32 mask, struct rng *r)
{
    i64 at = rng_range(r, 0, s->batch * s->m - 1);
    for (u32 i = 0; i < s->n; i++) {
        u32 side = mask >> 2 * i & 3;
        at = at * s->out[i] + (side == 1 ? 0 : side == 2 ? s->out[i] - 1 : rng_range(r, 0, s->out[i] - 1));
    }
    return at;
}

/* Every combination of sides: 0 any, 1 first, 2 last along each axis. */
static u32 sides(const struct contraction *s, i64 which)
{
    u32 mask = 0;
    for (u32 i = 0; i < s->n; i++, which /= 3) mask |= (u32)(which % 3) << 2 * i;
    return mask;
}

/* Half of them are spread over all; the others over all combinations of sides. */
i64 *contraction_sample(const struct contraction *s, i64 n, u64 seed, struct arena *a, i64 *n_out)
{
    i64 n_sides = 1, kept = 0, total = i64_min(n, s->count);
    i64 *v = arena_array(a, i64, total + 2);
    struct rng r = rng_seed(seed);
    for (u32 i = 0; i < s->n; i++) n_sides *= 3;
    for (i64 k = 0; k < total; k++) v[k] = n >= s->count ? k : random_output(s, k % 2 ? sides(s, k / 2 % n_sides) : 0, &r);
    if (n < s->count) {
        v[total++] = 0, v[total++] = s->count - 1;
        qsort(v, (size_t)total, sizeof *v, ascending);
    }
    for (i64 k = 0; k < total; k++)
        if (k == 0 || v[k] != v[kept - 1]) v[kept++] = v[k];
    *n_out = kept;
    return v;
}
