// SPDX-License-Identifier: Apache-2.0
//
// op_reduce: reductions over axes. ONNX's ten Reduce operators give their axes as an attribute or
// as an input, depending on the operator and the opset; all are accepted here. They expand into
// four primitives (quern::ReduceSum, ReduceMax, ReduceMin, ReduceProd, attributes `axes`,
// ascending, and `keepdims`) with pointwise operators around, so that kernels have no argument for
// the axes. ArgMax and ArgMin are primitives of their own. In a maximum or minimum a NaN takes no part: the result is that of the
// numbers, and where there are none -infinity or infinity, at index 0. So no order of the elements matters, and no instruction is spent on it.
//
// Floats are accumulated in f32 in kernels (f64 where m->acc_f64 asks for it), in double in the
// reference.
#include "op/op.h"

#include <math.h>

enum kind { SUM, MAX, MIN, PROD, MEAN, L1, L2, LOG_SUM, LOG_SUM_EXP, SUM_SQUARE };

struct row {
    enum kind kind;
    enum kir_op combine;
    enum op_fold fold;
};

static const struct row *row_of(const struct node *x) { return op_find(x->op)->row; }

/* Axes. */

struct axes {
    u32 n, axis[MAX_RANK];
    bool on[MAX_RANK], keepdims;
};

/* Marks axes; false: out of range or twice. */
static bool axes_from(struct axes *a, const i64 *v, i64 n, u32 rank)
{
    for (i64 i = 0; i < n; i++) {
        u32 k;
        if (!op_axis(v[i], rank, &k) || a->on[k]) return false;
        a->on[k] = true;
    }
    for (u32 k = 0; k < rank; k++)
        if (a->on[k]) a->axis[a->n++] = k;
    return true;
}

static bool axes_read(const struct graph *g, node_id n, struct axes *a, struct err *e)
{
    const struct node *x = graph_node(g, n);
    u32 rank = graph_value(g, x->in.v[0])->shape.rank;
    i64 given[MAX_RANK], count;
    const i64 *v;
    *a = (struct axes){.keepdims = attr_int(x, "keepdims", 1)};
    if (x->in.n > 1 && x->in.v[1]) {
        count = op_const_ints(g, x->in.v[1], given, MAX_RANK);
        if (count < 0) return op_unsupported(e, g, n, "input 'axes' is not constant");
        v = given;
    } else {
        count = attr_ints(x, "axes", &v);
        if (count > MAX_RANK) return op_invalid(e, g, n, "attribute 'axes'");
    }
    if (!axes_from(a, v, count, rank))
        return op_invalid(e, g, n, "axes out of range or not distinct");
    if (count || attr_int(x, "noop_with_empty_axes", 0)) return true;
    for (u32 k = 0; k < rank; k++) a->axis[k] = k, a->on[k] = true;
    a->n = rank;
    return true;
}

static struct shape reduced(struct graph *g, const struct shape *in, const struct axes *a)
{
    struct shape s = {.known = true};
    for (u32 k = 0; k < in->rank; k++)
        if (!a->on[k]) s.dim[s.rank++] = in->dim[k];
        else if (a->keepdims) s.dim[s.rank++] = sym_const(g->sym, 1);
    return s;
}

/* Sizes. */

/* Known content of a vector reduced to one number. */
static void fold_content(struct graph *g, const struct node *x, enum op_fold f)
{
    struct sym_data all, sum;
    if (f == FOLD_NONE || graph_value(g, x->in.v[0])->shape.rank != 1) return;
    if (!op_sym_content(g, x->in.v[0], 64, &all) || all.n == 0) return;
    sum = (struct sym_data){.n = 1, .num = &all.num[0], .den = all.den};
    for (i64 i = 1; i < all.n; i++) {
        struct sym_data a = sum, b = {.n = 1, .num = &all.num[i], .den = all.den};
        if (!op_fold_two(g, f, &a, &b, &sum)) return;
    }
    op_set_sdata(g, x->out.v[0], sum.num, 1, sum.den);
}

/* Of integers, too, whose result is truncated. */
static bool is_computed_in_floats(enum kind kind) { return kind == L2 || kind == LOG_SUM || kind == LOG_SUM_EXP; }

/* Of truth values, which are reduced as bytes: any and all. */
static bool is_logical(const struct node *x, enum dtype t)
{
    return t == DT_BOOL && (str_is(x->op, "ReduceMax") || str_is(x->op, "ReduceMin"));
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *v = graph_value(g, x->in.v[0]);
    struct axes a;
    if (!dtype_is_float(v->dtype) && !dtype_is_int(v->dtype) && !is_logical(x, v->dtype))
        return op_unsupported(e, g, n, "elements of type %s", dtype_name(v->dtype));
    if (!axes_read(g, n, &a, e)) return false;
    struct shape s = reduced(g, &v->shape, &a);
    op_set_out(g, n, 0, v->dtype, &s);
    if (a.n == 1) fold_content(g, x, row_of(x)->fold);
    return true;
}

static bool describe(const struct graph *g, const struct node *x, struct op_reduce *r)
{
    const i64 *v;
    *r = (struct op_reduce){.combine = row_of(x)->combine, .keepdims = attr_int(x, "keepdims", 1)};
    i64 n = attr_ints(x, "axes", &v);
    for (i64 i = 0; i < n; i++) r->axis[r->n_axes++] = (u32)v[i];
    return true;
}

/* Expansion. */

static value_id add_reduce(struct graph *g, node_id like, const char *op, value_id in,
                           const struct axes *a, value_id out)
{
    i64 axes[MAX_RANK];
    for (u32 i = 0; i < a->n; i++) axes[i] = a->axis[i];
    value_id v = op_node(g, like, op, 1, &in, out);
    node_id n = graph_value(g, v)->producer;
    attr_set_ints(g, n, "axes", axes, a->n);
    attr_set_int(g, n, "keepdims", a->keepdims);
    if (!a->n) attr_set_int(g, n, "noop_with_empty_axes", 1);
    return v;
}

/* The greatest element; 0 instead of an infinite one, less which another infinite element would be NaN. */
static value_id add_finite_max(struct graph *g, node_id n, value_id x, const struct axes *a)
{
    value_id top = add_reduce(g, n, "quern::ReduceMax", x, a, 0);
    return op_node_where(g, n, op_node1(g, n, "IsInf", top, 0), op_const_f(g, graph_value(g, x)->dtype, 0), top, 0);
}

/* log(sum(exp(x))) with the greatest element factored out, to avoid overflow */
static void expand_log_sum_exp(struct graph *g, node_id n, value_id x, const struct axes *a,
                               value_id out)
{
    struct axes keep = *a;
    keep.keepdims = true;
    value_id top = add_finite_max(g, n, x, &keep);
    value_id e = op_node1(g, n, "Exp", op_node2(g, n, "Sub", x, top, 0), 0);
    value_id log = op_node1(g, n, "Log", add_reduce(g, n, "quern::ReduceSum", e, a, 0), 0);
    if (!a->keepdims) top = add_finite_max(g, n, x, a);
    op_node2(g, n, "Add", log, top, out);
}

static void expand_mean(struct graph *g, node_id n, value_id x, const struct axes *a, value_id out)
{
    const struct value *v = graph_value(g, x);
    sym count = sym_const(g->sym, 1);
    for (u32 i = 0; i < a->n; i++) count = sym_mul(g->sym, count, v->shape.dim[a->axis[i]]);
    value_id by = op_sym_scalar(g, v->dtype, count);
    op_node(g, n, "Div", 2, (value_id[]){add_reduce(g, n, "quern::ReduceSum", x, a, 0), by}, out);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node *node = graph_node(g, n);
    value_id x = node->in.v[0], out = node->out.v[0], s;
    enum kind kind = row_of(node)->kind;
    struct axes a;
    const char *sum = "quern::ReduceSum";
    if (!axes_read(g, n, &a, e)) return false;
    if (is_logical(node, graph_value(g, x)->dtype)) {
        const char *op = kind == MAX ? "quern::ReduceMax" : "quern::ReduceMin";
        s = add_reduce(g, n, op, op_node_cast(g, n, x, DT_U8, 0), &a, 0);
        op_node_cast(g, n, s, DT_BOOL, out);
        return true;
    }
    if (is_computed_in_floats(kind) && !dtype_is_float(graph_value(g, x)->dtype)) {
        enum dtype t = graph_value(g, x)->dtype;
        value_id y = op_node1(g, n, op_of(g, n)->name, op_node_cast(g, n, x, DT_F64, 0), 0);
        i64 axes[MAX_RANK];
        for (u32 i = 0; i < a.n; i++) axes[i] = a.axis[i];
        attr_set_ints(g, op_made(g, y), "axes", axes, a.n);
        attr_set_int(g, op_made(g, y), "keepdims", a.keepdims);
        attr_set_int(g, op_made(g, y), "noop_with_empty_axes", !a.n);
        op_node_cast(g, n, y, t, out);
        return true;
    }
    switch (kind) {
    case SUM: add_reduce(g, n, sum, x, &a, out); break;
    case MAX: add_reduce(g, n, "quern::ReduceMax", x, &a, out); break;
    case MIN: add_reduce(g, n, "quern::ReduceMin", x, &a, out); break;
    case PROD: add_reduce(g, n, "quern::ReduceProd", x, &a, out); break;
    case MEAN: expand_mean(g, n, x, &a, out); break;
    case L1: add_reduce(g, n, sum, op_node(g, n, "Abs", 1, &x, 0), &a, out); break;
    case L2:
        s = add_reduce(g, n, sum, op_node(g, n, "Mul", 2, (value_id[]){x, x}, 0), &a, 0);
        op_node(g, n, "Sqrt", 1, &s, out);
        break;
    case LOG_SUM:
        s = add_reduce(g, n, sum, x, &a, 0);
        op_node(g, n, "Log", 1, &s, out);
        break;
    case LOG_SUM_EXP: expand_log_sum_exp(g, n, x, &a, out); break;
    case SUM_SQUARE:
        add_reduce(g, n, sum, op_node(g, n, "Mul", 2, (value_id[]){x, x}, 0), &a, out);
        break;
    }
    return true;
}

/* Reference. */

static double combine_f(enum kind kind, double a, double x)
{
    switch (kind) {
    case SUM: return a + x;
    case PROD: return a * x;
    case MAX: return x > a ? x : a; /* a NaN takes no part */
    case MIN: return x < a ? x : a;
    case MEAN:
    case L1:
    case L2:
    case LOG_SUM:
    case LOG_SUM_EXP:
    case SUM_SQUARE: break;
    }
    unreachable();
}

static i64 combine_i(enum kind kind, i64 a, i64 x, bool is_u64)
{
    bool less = is_u64 ? (u64)a < (u64)x : a < x;
    switch (kind) {
    case SUM: return (i64)((u64)a + (u64)x);
    case PROD: return (i64)((u64)a * (u64)x);
    case MAX: return less ? x : a;
    case MIN: return less ? a : x;
    case MEAN:
    case L1:
    case L2:
    case LOG_SUM:
    case LOG_SUM_EXP:
    case SUM_SQUARE: break;
    }
    unreachable();
}

/* Flat index of the reduced element that input element idx belongs to. */
static i64 target_of(const struct tensor *in, const i64 *idx, const bool *on)
{
    i64 at = 0;
    for (u32 k = 0; k < in->rank; k++)
        if (!on[k]) at = at * in->dim[k] + idx[k];
    return at;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *in = v->in[0];
    struct tensor *out = v->out[0];
    enum kind kind = row_of(v->n)->kind;
    struct op_reduce r;
    bool on[MAX_RANK] = {0}, is_float = dtype_is_float(in->dtype);
    describe(v->g, v->n, &r);
    for (u32 i = 0; i < r.n_axes; i++) on[r.axis[i]] = true;
    i64 n = tensor_count(out), idx[MAX_RANK] = {0};
    double *f = op_eval_array(v, n, sizeof *f, e), f0 = kind == MAX ? -INFINITY : kind == MIN ? INFINITY : kind == PROD;
    i64 *k = op_eval_array(v, n, sizeof *k, e), k0 = dtype_int_extreme(in->dtype, kind == MIN);
    if (!f || !k) return false;
    for (i64 i = 0; i < n; i++) f[i] = f0, k[i] = kind == SUM || kind == PROD ? kind == PROD : k0;
    for (i64 i = 0, m = tensor_count(in); i < m; i++, op_next(in->rank, in->dim, idx)) {
        i64 at = target_of(in, idx, on);
        if (is_float) f[at] = combine_f(kind, f[at], elem_f64(in->dtype, in->data, i));
        else k[at] = combine_i(kind, k[at], elem_i64(in->dtype, in->data, i), in->dtype == DT_U64);
    }
    for (i64 i = 0; i < n; i++)
        if (is_float) elem_set_f64(out->dtype, out->data, i, f[i]);
        else elem_set_i64(out->dtype, out->data, i, k[i]);
    return true;
}

/* Kernels. */

static u32 widest(const struct kir *k, const kval *idx, u32 n)
{
    u32 lanes = 1;
    for (u32 i = 0; i < n; i++)
        if (kir_lanes(k, idx[i]) > lanes) lanes = kir_lanes(k, idx[i]);
    return lanes;
}

/* Index of the output -> index of the input; the reduced axes are left to the caller. */
static void place_index(const struct graph *g, const struct node *x, const bool *on, bool keepdims,
                        const kval *idx, kval *at)
{
    u32 rank = graph_value(g, x->in.v[0])->shape.rank;
    for (u32 k = 0, o = 0; k < rank; k++) {
        if (!on[k]) at[k] = idx[o++];
        else o += keepdims;
    }
}

static kval lower(struct emit *m, const struct node *x, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct op_reduce r;
    bool on[MAX_RANK] = {0};
    kval at[MAX_RANK] = {0}, zero = kir_int(k, 0);
    enum dtype t = emit_type(graph_value(m->g, x->in.v[0])->dtype),
               wide = m->acc_f64 && dtype_is_float(t) ? DT_F64 : t;
    describe(m->g, x, &r);
    for (u32 i = 0; i < r.n_axes; i++) on[r.axis[i]] = true;
    place_index(m->g, x, on, r.keepdims, idx, at);
    u32 lanes = widest(k, idx, graph_value(m->g, x->out.v[0])->shape.rank);
    kval acc = kir_alloc(k, KS_REG, wide, lanes, kir_int(k, 1));
    kir_store(k, acc, zero, kir_splat(k, emit_neutral(m, r.combine, wide), lanes));
    for (u32 i = 0; i < r.n_axes; i++) {
        kval n = emit_dim(m, x->in.v[0], r.axis[i]);
        at[r.axis[i]] = kir_loop(k, KL_SERIAL, zero, n, 1);
    }
    kval v = kir_splat(k, kir_cast(k, wide, emit_value(m, x->in.v[0], at)), lanes);
    kir_store(k, acc, zero, emit_combine(k, r.combine, kir_load(k, acc, zero), v));
    for (u32 i = 0; i < r.n_axes; i++) kir_end(k);
    return kir_cast(k, t, kir_load(k, acc, zero));
}

/* Random instances. */

static void random_x(struct graph *g, struct rng *r, bool only_float, value_id *in)
{
    static const enum dtype t[] = {DT_F32, DT_F32, DT_F32, DT_F64, DT_F16, DT_I32, DT_I64, DT_U32};
    i64 dim[4];
    u32 rank = (u32)rng_range(r, 1, 4);
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, 1, 5);
    random_input(g, "x", t[rng_range(r, 0, only_float ? 4 : countof(t) - 1)], rank, dim, in);
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    const struct row *row = self->row;
    value_id in[2];
    i64 axes[4], n = 0;
    random_x(g, r, is_computed_in_floats(row->kind), &in[0]);
    u32 rank = graph_value(g, in[0])->shape.rank;
    for (u32 k = 0; k < rank; k++)
        if (rng_range(r, 0, 1))
            axes[n++] = self->expand && rng_range(r, 0, 1) ? (i64)k - rank : (i64)k;
    bool as_input = self->expand && n && rng_range(r, 0, 1);
    if (as_input) in[1] = op_const_i(g, DT_I64, axes, n);
    random_node(g, self, as_input ? 2 : 1, in, 1);
    node_id node = g->node.n - 1;
    if (!as_input && n) attr_set_ints(g, node, "axes", axes, n);
    if (!self->expand) attr_set_int(g, node, "noop_with_empty_axes", 1);
    else if (rng_range(r, 0, 3) == 0) attr_set_int(g, node, "noop_with_empty_axes", 1);
    if (rng_range(r, 0, 1)) attr_set_int(g, node, "keepdims", rng_range(r, 0, 1));
}

/* ArgMax, ArgMin */

static bool is_max(const struct node *x) { return str_is(x->op, "ArgMax"); }

static bool infer_arg(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct value *v = graph_value(g, x->in.v[0]);
    struct axes a = {.keepdims = attr_int(x, "keepdims", 1)};
    i64 axis = attr_int(x, "axis", 0);
    if (!dtype_is_float(v->dtype) && !dtype_is_int(v->dtype))
        return op_unsupported(e, g, n, "elements of type %s", dtype_name(v->dtype));
    if (!axes_from(&a, &axis, 1, v->shape.rank))
        return op_invalid(e, g, n, "attribute 'axis' out of range");
    struct shape s = reduced(g, &v->shape, &a);
    op_set_out(g, n, 0, DT_I64, &s);
    return true;
}

static u32 arg_axis(const struct node *x, u32 rank)
{
    u32 axis = 0;
    bool ok = op_axis(attr_int(x, "axis", 0), rank, &axis);
    assert(ok), (void)ok;
    return axis;
}

/* Element x is better than the best one so far, -1: none. */
static bool beats(const struct tensor *t, i64 x, i64 best, bool max, bool last)
{
    if (dtype_is_float(t->dtype)) {
        double a = elem_f64(t->dtype, t->data, x), none = max ? -INFINITY : INFINITY, b = best < 0 ? none : elem_f64(t->dtype, t->data, best);
        return max ? a > b || (last && a == b) : a < b || (last && a == b);
    }
    if (best < 0) return true;
    i64 a = elem_i64(t->dtype, t->data, x), b = elem_i64(t->dtype, t->data, best);
    bool less = t->dtype == DT_U64 ? (u64)a < (u64)b : a < b;
    return a == b ? last : max ? !less : less;
}

static bool eval_arg(const struct op_eval *v, struct err *e)
{
    const struct tensor *in = v->in[0];
    bool last = attr_int(v->n, "select_last_index", 0);
    u32 axis = arg_axis(v->n, in->rank);
    i64 inner = 1, len = in->dim[axis];
    for (u32 k = axis + 1; k < in->rank; k++) inner *= in->dim[k];
    for (i64 o = 0, n = tensor_count(v->out[0]); o < n; o++) {
        i64 base = o / inner * inner * len + o % inner, best = -1;
        for (i64 i = 0; i < len; i++)
            if (beats(in, base + i * inner, best < 0 ? -1 : base + best * inner, is_max(v->n), last)) best = i;
        elem_set_i64(DT_I64, v->out[0]->data, o, i64_max(best, 0));
    }
    return true;
}

static kval lower_arg(struct emit *m, const struct node *x, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct value *v = graph_value(m->g, x->in.v[0]);
    u32 axis = arg_axis(x, v->shape.rank),
        lanes = widest(k, idx, graph_value(m->g, x->out.v[0])->shape.rank);
    bool on[MAX_RANK] = {0}, last = attr_int(x, "select_last_index", 0);
    kval at[MAX_RANK] = {0}, zero = kir_int(k, 0), one = kir_int(k, 1);
    enum dtype t = emit_type(v->dtype);
    on[axis] = true;
    place_index(m->g, x, on, attr_int(x, "keepdims", 1), idx, at);
    kval best = kir_alloc(k, KS_REG, t, lanes, one),
         where = kir_alloc(k, KS_REG, DT_I64, lanes, one);
    kir_store(k, best, zero, kir_splat(k, emit_neutral(m, is_max(x) ? KI_MAX : KI_MIN, t), lanes));
    kir_store(k, where, zero, kir_splat(k, zero, lanes));
    at[axis] = kir_loop(k, KL_SERIAL, zero, emit_dim(m, x->in.v[0], axis), 1);
    kval c = kir_splat(k, emit_value(m, x->in.v[0], at), lanes), b = kir_load(k, best, zero);
    kval better =
        is_max(x) ? kir_bin(k, last ? KI_LE : KI_LT, b, c) : kir_bin(k, last ? KI_LE : KI_LT, c, b);
    kir_store(k, best, zero, kir_select(k, better, c, b));
    kir_store(k, where, zero,
              kir_select(k, better, kir_splat(k, at[axis], lanes), kir_load(k, where, zero)));
    kir_end(k);
    return kir_load(k, where, zero);
}

static double flops_arg(const struct graph *g, const struct node *x, const i64 *var)
{
    i64 dim[MAX_RANK];
    const struct shape *s = &graph_value(g, x->in.v[0])->shape;
    double n = shape_eval(g->sym, s, var, dim) ? 1 : 0;
    for (u32 i = 0; n > 0 && i < s->rank; i++) n *= (double)dim[i];
    return n;
}

static void random_arg(const struct op *self, struct graph *g, struct rng *r)
{
    value_id in;
    random_x(g, r, false, &in);
    i64 rank = graph_value(g, in)->shape.rank;
    random_node(g, self, 1, &in, 1);
    node_id n = g->node.n - 1;
    if (rng_range(r, 0, 3)) attr_set_int(g, n, "axis", rng_range(r, -rank, rank - 1));
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "keepdims", rng_range(r, 0, 1));
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "select_last_index", rng_range(r, 0, 1));
}

/* Descriptors. */

#define PRIMITIVE(nm, kind_, combine_, fold_)                                                      \
    {                                                                                              \
        .name = nm, .attributes = "axes:ints keepdims:int noop_with_empty_axes:int",               \
        .props = OP_REDUCE, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,                  \
        .infer = infer, .eval = eval, .lower = lower, .reduce = describe,                          \
        .random = random_instance, .row = &(const struct row)                                      \
        {                                                                                          \
            kind_, combine_, fold_                                                                 \
        }                                                                                          \
    }
#define COMPOSITE(nm, kind_, fold_)                                                                \
    {                                                                                              \
        .name = nm, .attributes = "axes:ints", .min_in = 1, .max_in = 2, .min_out = 1,             \
        .max_out = 1, .infer = infer, .expand = expand, .random = random_instance, .row = &(const struct row)                    \
        {                                                                                          \
            kind_, KI_NONE, fold_                                                                  \
        }                                                                                          \
    }
#define ARG(nm)                                                                                    \
    {                                                                                              \
        .name = nm, .props = OP_HEAVY, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,       \
        .infer = infer_arg, .eval = eval_arg, .lower = lower_arg, .flops = flops_arg,              \
        .random = random_arg                                                                       \
    }

static const struct op ops[] = {
    PRIMITIVE("quern::ReduceSum", SUM, KI_ADD, FOLD_ADD),
    PRIMITIVE("quern::ReduceMax", MAX, KI_MAX, FOLD_MAX),
    PRIMITIVE("quern::ReduceMin", MIN, KI_MIN, FOLD_MIN),
    PRIMITIVE("quern::ReduceProd", PROD, KI_MUL, FOLD_MUL),
    COMPOSITE("ReduceSum", SUM, FOLD_ADD),
    COMPOSITE("ReduceMax", MAX, FOLD_MAX),
    COMPOSITE("ReduceMin", MIN, FOLD_MIN),
    COMPOSITE("ReduceProd", PROD, FOLD_MUL),
    COMPOSITE("ReduceMean", MEAN, FOLD_NONE),
    COMPOSITE("ReduceL1", L1, FOLD_NONE),
    COMPOSITE("ReduceL2", L2, FOLD_NONE),
    COMPOSITE("ReduceLogSum", LOG_SUM, FOLD_NONE),
    COMPOSITE("ReduceLogSumExp", LOG_SUM_EXP, FOLD_NONE),
    COMPOSITE("ReduceSumSquare", SUM_SQUARE, FOLD_NONE),
    ARG("ArgMax"),
    ARG("ArgMin"),
};

const struct op_family op_reduce = {ops, countof(ops)};
