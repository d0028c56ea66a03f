// SPDX-License-Identifier: Apache-2.0
//
// GridSample: y[n,c,ho,wo] = x[n,c] read at the position grid[n,ho,wo] = (px, py), -1 .. 1 across
// the image, and likewise for one or three spatial axes, the last of which comes first in the grid.
// A primitive with property OP_SAMPLE. Modes bilinear, nearest (ties to even), bicubic
// (a = -0.75); padding zeros, border, reflection.
//
// As PyTorch does, border and reflection move the position for bilinear and nearest, but every tap
// for bicubic. Positions are limited to +-2^24 before they become integers, so that no grid, NaN
// included, makes a kernel read outside its input.
#include "op/op.h"

#include <math.h>

enum { MAX_AXES = 3 };
enum mode { BILINEAR, NEAREST, BICUBIC, N_MODES };
enum padding { ZEROS, BORDER, REFLECTION, N_PADDINGS };

static const char *const mode_names[N_MODES] = {"bilinear", "nearest", "bicubic"};
static const char *const padding_names[N_PADDINGS] = {"zeros", "border", "reflection"};

static const double far_away = 16777216, cubic_a = -0.75;

struct sampler {
    u32 mode, padding;
    bool corners; /* align_corners */
};

static bool name_index(struct str s, const char *const *names, u32 count, u32 *out)
{
    for (u32 i = 0; i < count; i++)
        if (str_is(s, names[i])) return *out = i, true;
    return false;
}

/* Opset 20 names modes as Resize does. */
static struct str mode_word(const struct node *nd)
{
    struct str s = attr_str(nd, "mode", "bilinear");
    return str_is(s, "linear") ? S("bilinear") : str_is(s, "cubic") ? S("bicubic") : s;
}

static bool sampler_read(const struct node *nd, struct sampler *s)
{
    s->corners = attr_int(nd, "align_corners", 0);
    return name_index(mode_word(nd), mode_names, N_MODES, &s->mode) &&
           name_index(attr_str(nd, "padding_mode", "zeros"), padding_names, N_PADDINGS,
                      &s->padding);
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape x = *op_in_shape(g, nd, 0), grid = *op_in_shape(g, nd, 1);
    enum dtype t = op_in_dtype(g, nd, 0);
    struct sampler s;
    i64 c;
    if (!sampler_read(nd, &s)) return op_unsupported(e, g, n, "attribute 'mode' or 'padding_mode'");
    if (!dtype_is_float(t) || !dtype_is_float(op_in_dtype(g, nd, 1)))
        return op_unsupported(e, g, n, "type %s", dtype_name(t));
    if (x.rank < 3 || x.rank > 5 || grid.rank != x.rank)
        return op_unsupported(e, g, n, "input of rank %u, grid of rank %u", x.rank, grid.rank);
    if (!sym_is_const(g->sym, grid.dim[x.rank - 1], &c) || c != x.rank - 2)
        return op_invalid(e, g, n, "grid does not hold positions of %u numbers", x.rank - 2);
    if (!op_sizes_agree(g, x.dim[0], grid.dim[0])) return op_invalid(e, g, n, "batch sizes differ");
    for (u32 i = 2; i < x.rank; i++) {
        if (sym_is_const(g->sym, x.dim[i], &c) && c < 1) return op_invalid(e, g, n, "empty input");
        if (!op_require_at_least(g, n, x.dim[i], sym_const(g->sym, 1), e, "axis %u of the input", i)) return false;
    }
    struct shape out = {.known = true, .rank = x.rank, .dim = {x.dim[0], x.dim[1]}};
    for (u32 i = 2; i < x.rank; i++) out.dim[i] = grid.dim[i - 1];
    op_set_out(g, n, 0, t, &out);
    return true;
}

/* Evaluation. */

/* -1 .. 1 -> position in pixels */
static double pixels(const struct sampler *s, double p, double size)
{
    double x = s->corners ? (p + 1) / 2 * (size - 1) : ((p + 1) * size - 1) / 2;
    return isnan(x) ? -far_away : fmin(fmax(x, -far_away), far_away);
}

/* Mirrors x into lo .. hi, again and again. */
static double mirrored(double x, double lo, double hi)
{
    double span = hi - lo;
    if (span <= 0) return 0;
    double d = fabs(x - lo), turns = floor(d / span), rest = d - turns * span;
    return fmod(turns, 2) == 0 ? lo + rest : hi - rest;
}

/* Where position x of a tap or of the whole sample is read. */
static double padded(const struct sampler *s, double x, double size)
{
    if (s->padding == REFLECTION)
        x = s->corners ? mirrored(x, 0, size - 1) : mirrored(x, -0.5, size - 0.5);
    return s->padding == ZEROS ? x : fmin(fmax(x, 0), size - 1);
}

static double cubic_weight(double x)
{
    x = fabs(x);
    if (x <= 1) return ((cubic_a + 2) * x - (cubic_a + 3)) * x * x + 1;
    return x < 2 ? ((cubic_a * x - 5 * cubic_a) * x + 8 * cubic_a) * x - 4 * cubic_a : 0;
}

/* Up to four taps along an axis. */
struct taps {
    u32 n;
    double at[4], w[4];
};

static void taps_make(const struct sampler *s, double x, double size, struct taps *t)
{
    if (s->mode != BICUBIC) x = padded(s, x, size);
    double base = floor(x), f = x - base;
    switch ((enum mode)s->mode) {
    case NEAREST: *t = (struct taps){1, {rint(x)}, {1}}; break;
    case BILINEAR: *t = (struct taps){2, {base, base + 1}, {1 - f, f}}; break;
    case BICUBIC:
        t->n = 4;
        for (u32 i = 0; i < 4; i++) {
            t->at[i] = padded(s, base - 1 + i, size);
            t->w[i] = cubic_weight(base - 1 + i - x);
        }
        break;
    case N_MODES: unreachable();
    }
}

/* The sum over the taps of all axes; t[k] belongs to the k-th axis from the last. */
static double sample(const struct tensor *x, i64 plane, const struct taps *t)
{
    u32 n = x->rank - 2, tap[MAX_AXES] = {0};
    double sum = 0;
    for (;;) {
        double weight = 1;
        i64 at = plane;
        bool inside = true;
        for (u32 a = 0; a < n; a++) {
            const struct taps *of = &t[n - 1 - a];
            i64 i = (i64)rint(of->at[tap[a]]);
            inside = inside && i >= 0 && i < x->dim[2 + a];
            weight *= of->w[tap[a]];
            at = at * x->dim[2 + a] + i;
        }
        if (inside) sum += weight * elem_f64(x->dtype, x->data, at);
        u32 a = n;
        while (a > 0 && ++tap[a - 1] == t[n - a].n) tap[--a] = 0;
        if (a == 0) return sum;
    }
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0], *grid = v->in[1];
    struct tensor *y = v->out[0];
    struct sampler s;
    struct taps t[MAX_AXES] = {0};
    sampler_read(v->n, &s);
    i64 idx[MAX_RANK] = {0}, n = tensor_count(y), n_axes = x->rank - 2;
    for (i64 a = 0; n && a < n_axes; a++)
        if (x->dim[2 + a] < 1) return err_set(e, ERR_INPUT, "empty input");
    for (i64 i = 0; i < n; i++, op_next(y->rank, y->dim, idx)) {
        i64 at = idx[0];
        for (i64 a = 0; a < n_axes; a++) at = at * y->dim[2 + a] + idx[2 + a];
        for (i64 k = 0; k < n_axes; k++) {
            double size = (double)x->dim[1 + n_axes - k], p = elem_f64(grid->dtype, grid->data, at * n_axes + k);
            taps_make(&s, pixels(&s, p, size), size, &t[k]);
        }
        elem_set_f64(y->dtype, y->data, i, sample(x, idx[0] * x->dim[1] + idx[1], t));
    }
    return true;
}

/* Lowering: the same with kernel values, in type t. */

struct lowering {
    struct emit *m;
    struct kir *k;
    const struct sampler *s;
    enum dtype t;
    kval size[MAX_AXES]; /* of the axes as floats, the last first */
};

static kval num(const struct lowering *l, double v) { return kir_const_f(l->k, l->t, 1, v); }

static kval clamp(const struct lowering *l, kval x, kval lo, kval hi)
{
    return kir_bin(l->k, KI_MIN, kir_bin(l->k, KI_MAX, x, lo), hi); /* a NaN becomes lo */
}

static kval emit_pixels(const struct lowering *l, u32 a, kval p)
{
    struct kir *k = l->k;
    kval one = num(l, 1), half = num(l, 0.5), q = kir_bin(k, KI_ADD, p, one), x;
    if (l->s->corners)
        x = kir_bin(k, KI_MUL, kir_bin(k, KI_MUL, q, half), kir_bin(k, KI_SUB, l->size[a], one));
    else x = kir_bin(k, KI_MUL, kir_bin(k, KI_SUB, kir_bin(k, KI_MUL, q, l->size[a]), one), half);
    return clamp(l, x, num(l, -far_away), num(l, far_away));
}

static kval emit_mirrored(const struct lowering *l, u32 a, kval x)
{
    struct kir *k = l->k;
    kval lo = num(l, l->s->corners ? 0 : -0.5), two = num(l, 2), zero = num(l, 0);
    kval hi = kir_bin(k, KI_SUB, l->size[a], num(l, l->s->corners ? 1 : 0.5)),
         span = kir_bin(k, KI_SUB, hi, lo);
    kval some = kir_bin(k, KI_MAX, span, num(l, 0.5)); /* a span of 0: any divisor */
    kval d = kir_un(k, KI_ABS, kir_bin(k, KI_SUB, x, lo)),
         turns = kir_un(k, KI_FLOOR, kir_bin(k, KI_DIV, d, some));
    kval rest = kir_bin(k, KI_SUB, d, kir_bin(k, KI_MUL, turns, some));
    kval pairs = kir_un(k, KI_FLOOR, kir_bin(k, KI_DIV, turns, two));
    kval even = kir_bin(k, KI_EQ, kir_bin(k, KI_MUL, pairs, two), turns);
    kval y = kir_select(k, even, kir_bin(k, KI_ADD, lo, rest), kir_bin(k, KI_SUB, hi, rest));
    return kir_select(k, kir_bin(k, KI_LT, zero, span), y, zero);
}

static kval emit_padded(const struct lowering *l, u32 a, kval x)
{
    if (l->s->padding == REFLECTION) x = emit_mirrored(l, a, x);
    return l->s->padding == ZEROS
               ? x
               : clamp(l, x, num(l, 0), kir_bin(l->k, KI_SUB, l->size[a], num(l, 1)));
}

/* c[0] + x (c[1] + x (c[2] + x c[3])) */
static kval polynomial(const struct lowering *l, kval x, const double c[4])
{
    kval v = num(l, c[3]);
    for (u32 i = 3; i-- > 0;) v = kir_bin(l->k, KI_ADD, kir_bin(l->k, KI_MUL, v, x), num(l, c[i]));
    return v;
}

struct ktaps {
    u32 n;
    kval at[4], w[4];
};

static void cubic_taps(const struct lowering *l, u32 a, kval base, kval f, struct ktaps *t)
{
    static const double near[4] = {1, 0, -(-0.75 + 3), -0.75 + 2},
                        far[4] = {4 * 0.75, -8 * 0.75, 5 * 0.75, -0.75};
    struct kir *k = l->k;
    kval one = num(l, 1), back = kir_bin(k, KI_SUB, one, f);
    t->n = 4;
    t->w[0] = polynomial(l, kir_bin(k, KI_ADD, f, one), far);
    t->w[1] = polynomial(l, f, near);
    t->w[2] = polynomial(l, back, near);
    t->w[3] = polynomial(l, kir_bin(k, KI_ADD, back, one), far);
    for (u32 i = 0; i < 4; i++)
        t->at[i] = emit_padded(l, a, kir_bin(k, KI_ADD, base, num(l, (double)i - 1)));
}

static void emit_taps(const struct lowering *l, u32 a, kval x, struct ktaps *t)
{
    struct kir *k = l->k;
    if (l->s->mode != BICUBIC) x = emit_padded(l, a, x);
    kval one = num(l, 1), base = kir_un(k, KI_FLOOR, x), f = kir_bin(k, KI_SUB, x, base);
    switch ((enum mode)l->s->mode) {
    case NEAREST: *t = (struct ktaps){1, {kir_un(k, KI_RINT, x)}, {one}}; break;
    case BILINEAR:
        *t = (struct ktaps){
            2, {base, kir_bin(k, KI_ADD, base, one)}, {kir_bin(k, KI_SUB, one, f), f}};
        break;
    case BICUBIC: cubic_taps(l, a, base, f, t); break;
    case N_MODES: unreachable();
    }
}

/* Taps as indices inside the input; the weight is 0 where they were not. */
static void taps_to_indices(const struct lowering *l, sym size, struct ktaps *t)
{
    struct kir *k = l->k;
    for (u32 i = 0; i < t->n; i++) {
        kval at = kir_cast(k, DT_I64, kir_un(k, KI_RINT, t->at[i]));
        t->at[i] = emit_clamp(l->m, at, size);
        t->w[i] = kir_select(k, kir_bin(k, KI_EQ, at, t->at[i]), t->w[i], num(l, 0));
    }
}

/* Adds the contributions along axis a and the following ones; at, weight: of the previous axes. */
static kval emit_sum(const struct lowering *l, const struct node *n, const struct ktaps *t, u32 a, kval *at, kval weight,
                     kval sum)
{
    struct kir *k = l->k;
    u32 n_axes = op_in_shape(l->m->g, n, 0)->rank - 2;
    if (a == n_axes) {
        kval v = kir_bin(k, KI_MUL, kir_cast(k, l->t, emit_value(l->m, n->in.v[0], at)), weight);
        return sum ? kir_bin(k, KI_ADD, sum, v) : v;
    }
    const struct ktaps *of = &t[n_axes - 1 - a];
    for (u32 i = 0; i < of->n; i++) {
        at[2 + a] = of->at[i];
        sum = emit_sum(l, n, t, a + 1, at, weight ? kir_bin(k, KI_MUL, weight, of->w[i]) : of->w[i], sum);
    }
    return sum;
}

static kval lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct sampler s;
    struct ktaps t[MAX_AXES];
    const struct shape *x = op_in_shape(m->g, n, 0);
    struct lowering l = {.m = m, .k = k, .s = &s, .t = emit_acc_type(m, op_in_dtype(m->g, n, 1))};
    kval place[MAX_RANK] = {idx[0]}, at[MAX_RANK] = {idx[0], idx[1]};
    sampler_read(n, &s);
    for (u32 a = 2; a < x->rank; a++) place[a - 1] = idx[a];
    for (u32 a = 0; a + 2 < x->rank; a++) {
        sym size = x->dim[x->rank - 1 - a];
        l.size[a] = kir_cast(k, l.t, emit_size(m, size));
        place[x->rank - 1] = kir_int(k, a);
        kval p = emit_value(m, n->in.v[1], place);
        emit_taps(&l, a, emit_pixels(&l, a, kir_cast(k, l.t, p)), &t[a]);
        taps_to_indices(&l, size, &t[a]);
    }
    return kir_cast(k, emit_type(op_in_dtype(m->g, n, 0)), emit_sum(&l, n, t, 0, at, 0, 0));
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    struct sampler s;
    i64 y[MAX_RANK];
    const struct shape *o = &graph_value(g, n->out.v[0])->shape;
    if (!sampler_read(n, &s) || !shape_eval(g->sym, o, var, y)) return 0;
    double count = 2;
    for (u32 i = 0; i < o->rank; i++) count *= (double)y[i] * (i < 2 ? 1 : s.mode == BICUBIC ? 4 : s.mode == BILINEAR ? 2 : 1);
    return count;
}

/* Positions of nearest reads keep away from ties. */
static void random_grid(const struct op *self, struct graph *g, struct rng *r)
{
    u32 n = (u32)rng_range(r, 1, 3), mode = (u32)rng_range(r, 0, N_MODES - 1);
    i64 x[5] = {rng_range(r, 1, 2), rng_range(r, 1, 3)}, dim[5] = {x[0]};
    for (u32 i = 0; i < n; i++) x[2 + i] = rng_range(r, 1, 6), dim[1 + i] = rng_range(r, 1, n == 3 ? 3 : 5);
    dim[1 + n] = n;
    struct tensor *t = tensor_new(g->arena, DT_F32, n + 2, dim);
    for (i64 i = 0; i < tensor_count(t); i++)
        elem_set_f64(DT_F32, t->data, i, (double)rng_range(r, -15, 15) / 10 + 0.0123);
    value_id in[2];
    random_input(g, "x", DT_F32, n + 2, x, &in[0]);
    in[1] = graph_add_const(g, S("grid"), t);
    random_node(g, self, 2, in, 1);
    attr_set_str(g, g->node.n - 1, "mode", str_of(mode_names[mode]));
    attr_set_str(g, g->node.n - 1, "padding_mode",
                 str_of(padding_names[rng_range(r, 0, N_PADDINGS - 1)]));
    attr_set_int(g, g->node.n - 1, "align_corners", rng_range(r, 0, 1));
}

static const struct op ops[] = {
    {.name = "GridSample",
     .props = OP_SAMPLE,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = infer,
     .eval = eval,
     .lower = lower,
     .flops = flops,
     .random = random_grid},
};

const struct op_family op_grid_sample = {ops, countof(ops)};
