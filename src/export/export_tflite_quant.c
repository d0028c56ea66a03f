// SPDX-License-Identifier: Apache-2.0
//
// Which values of a network are i8 in TFLite, and with which scales. In QDQ form a value passes
// through QuantizeLinear and DequantizeLinear, and operators compute in f32 in between; in TFLite
// operators read and write i8. So
//
//   a value that only QuantizeLinear reads, with one scale, is that quantised value;
//   what is moved keeps its scale;
//   the argument of a function of one value that stays unrounded in QDQ form (HardSwish between a
//   layer and its QuantizeLinear) gets the scale of the interval that the function maps to the
//   range of its result. Beyond it the result would saturate, too, so that nothing is lost but a
//   rounding.
//
// u8 is i8 with a zero point less by 128.
#include "export/export_tflite.h"

#include <math.h>

struct range {
    double lo, hi;
};

static struct range range_of(const struct tfl_quant *q)
{
    double s = (double)q->scale[0], z = (double)q->zero[0];
    return (struct range){(-128 - z) * s, (127 - z) * s};
}

/* Scales in the network. */

static bool is_pair_node(const struct node *n)
{
    return str_is(n->op, "QuantizeLinear") || str_is(n->op, "DequantizeLinear");
}

/* Scale and zero point of a QuantizeLinear or DequantizeLinear. */
static bool read_quant(struct tfl *t, const struct node *n, struct tfl_quant *q)
{
    const struct tensor *s = graph_value(&t->g, n->in.v[1])->data, *z = NULL;
    bool is_back = str_is(n->op, "DequantizeLinear");
    const struct value *stored = graph_value(&t->g, is_back ? n->in.v[0] : n->out.v[0]),
                       *real = graph_value(&t->g, is_back ? n->out.v[0] : n->in.v[0]);
    i64 axis = attr_int(n, "axis", 1);
    u32 at = 0;
    if (n->in.n > 2 && n->in.v[2] && !(z = graph_value(&t->g, n->in.v[2])->data))
        return tfl_refuse(t, n, "a zero point that is not constant");
    if (!s) return tfl_refuse(t, n, "a scale that is not constant");
    if (attr_int(n, "block_size", 0) || s->rank > 1) return tfl_refuse(t, n, "scales per block");
    if (real->dtype != DT_F32)
        return tfl_refuse(t, n, "quantised numbers of type %s", dtype_name(real->dtype));
    bool is_bias = is_back && stored->is_const && stored->dtype == DT_I32;
    if (stored->dtype != DT_U8 && stored->dtype != DT_I8 && !is_bias)
        return tfl_refuse(t, n, "quantised values of type %s", dtype_name(stored->dtype));
    u32 count = (u32)tensor_count(s);
    if (count > 1 && !stored->is_const)
        return tfl_refuse(t, n, "scales per channel of a value that is not constant");
    if (count > 1 && !op_axis(axis, stored->shape.rank, &at))
        return tfl_refuse(t, n, "axis %lld", (long long)axis);
    float *scale = arena_array(t->a, float, count);
    i64 *zero = arena_array(t->a, i64, count);
    for (u32 k = 0; k < count; k++) {
        scale[k] = (float)elem_f64(s->dtype, s->data, k);
        zero[k] = (z ? elem_i64(z->dtype, z->data, tensor_count(z) > 1 ? k : 0) : 0) -
                  (stored->dtype == DT_U8 ? 128 : 0);
        if (!(scale[k] > 0) || !isfinite(scale[k]))
            return tfl_refuse(t, n, "a scale that is no positive number");
    }
    *q = (struct tfl_quant){.n = count, .axis = at, .scale = scale, .zero = zero};
    return true;
}

/* Per value: how many QuantizeLinear read it with the scale of the first of them. */
struct readers {
    struct tfl_quant q;
    u32 n;
};

static bool count_readers(struct tfl *t, struct readers *r)
{
    for (node_id n = 1; n < t->g.node.n; n++) {
        const struct node *x = graph_node(&t->g, n);
        struct tfl_quant q;
        if (!str_is(x->op, "QuantizeLinear")) continue;
        if (!read_quant(t, x, &q)) return false;
        struct readers *to = &r[x->in.v[0]];
        if (!to->n) to->q = q;
        to->n += tfl_quant_same(&to->q, &q);
    }
    return true;
}

/* Result v of QuantizeLinear with scale q, read from `real`. */
static void find_quantized(struct tfl *t, const struct readers *r, value_id real, value_id v,
                           const struct tfl_quant *q)
{
    value_id of = tfl_of(t, real);
    if (t->v[of].q.n && tfl_quant_same(&t->v[of].q, q)) {
        t->v[v].of = of;
    } else if (!t->v[of].q.n && of == real && !graph_value(&t->g, real)->is_const &&
               r[real].n == t->uses[real]) {
        t->v[of].q = *q, t->v[v].of = of;
    } else {
        t->v[v].q = *q, t->v[v].from = real;
    }
}

static bool find_pair(struct tfl *t, const struct readers *r, const struct node *n)
{
    struct tfl_quant q;
    value_id v = n->in.v[0], of = tfl_of(t, v);
    if (!read_quant(t, n, &q)) return false;
    if (str_is(n->op, "QuantizeLinear")) return find_quantized(t, r, v, n->out.v[0], &q), true;
    if (!t->v[of].q.n) t->v[of].q = q;
    if (!tfl_quant_same(&t->v[of].q, &q))
        return tfl_refuse(
            t, n,
            "a scale or zero point that differs from that with which its input was quantised");
    t->v[n->out.v[0]].of = of;
    return true;
}

/* Functions of one value: what is moved. */

static bool is_bytes(enum dtype d) { return d == DT_F32 || d == DT_I8 || d == DT_U8; }

/* The scale of all inputs that are data; NULL: they have none, or several. */
static const struct tfl_quant *common_quant(const struct tfl *t, const struct node *n)
{
    const struct tfl_quant *q = NULL;
    for (u32 k = 0; k < n->in.n; k++) {
        if (!n->in.v[k] || !is_bytes(graph_value(&t->g, n->in.v[k])->dtype)) continue;
        const struct tfl_value *x = &t->v[tfl_of(t, n->in.v[k])];
        if (graph_value(&t->g, tfl_of(t, n->in.v[k]))->is_const && !x->q.n) continue;
        if (x->q.n != 1 || (q && !tfl_quant_same(q, &x->q))) return NULL;
        q = &x->q;
    }
    return q;
}

/* Results between the values of the operands, rounded to their scale in i8 only if that is asked
 * for. */
static bool interpolates(const struct node *n)
{
    return str_is(n->op, "AveragePool") || str_is(n->op, "quern::Resize");
}

/* Not of results that have a scale of their own: all their readers quantise them alike. */
static void keep_scale(struct tfl *t, const struct readers *own, const struct node *n,
                       const struct tfl_row *r)
{
    const struct tfl_quant *q =
        r->ability == TFL_SAME_Q && !interpolates(n) && (!r->can || r->can(t, n))
            ? common_quant(t, n)
            : NULL;
    for (u32 k = 0; q && k < n->out.n; k++) {
        value_id v = n->out.v[k] ? tfl_of(t, n->out.v[k]) : 0;
        if (v && own[v].n && own[v].n == t->uses[v]) continue;
        if (v && is_bytes(graph_value(&t->g, v)->dtype) && !t->v[v].q.n) t->v[v].q = *q;
    }
}

/* Functions of one value: the interval of the argument. */

typedef double function(double x, double p);
static double swish(double x, double p) { return x / (1 + exp(-p * x)); }
static double gelu(double x, double p) { return x * 0.5 * (1 + erf(x * 0.70710678118654752440)); }
static double hard_swish(double x, double p) { return x * fmax(0, fmin(1, x / 6 + 0.5)); }

/* The x >= 0 with f(x, p) = y >= 0, for f that increases there and is at most x. */
static double inverse(function *f, double p, double y)
{
    double lo = 0, hi = y + 4;
    for (u32 k = 0; k < 60; k++) {
        double x = (lo + hi) / 2;
        *(f(x, p) < y ? &lo : &hi) = x;
    }
    return hi;
}

/* The union of the intervals f_i^-1(r) of x * c_i, or x + c_i. */
static bool through_constant(const struct tfl *t, const struct node *n, u32 data, struct range *r)
{
    value_id c = n->in.v[1 - data];
    const struct tensor *x = tfl_content(t, c);
    struct range out = {INFINITY, -INFINITY};
    bool is_sum = str_is(n->op, "Add"), is_product = str_is(n->op, "Mul"),
         is_div = str_is(n->op, "Div") && data == 0;
    bool is_sub = str_is(n->op, "Sub");
    if (!x || (!is_sum && !is_product && !is_div && !is_sub)) return false;
    for (i64 i = 0; i < tensor_count(x); i++) {
        double v = tfl_real(t, c, i), a, b;
        if (is_sum) a = r->lo - v, b = r->hi - v;
        else if (is_sub && data == 0) a = r->lo + v, b = r->hi + v;
        else if (is_sub) a = v - r->lo, b = v - r->hi;
        else if (is_product) a = r->lo / v, b = r->hi / v;
        else a = r->lo * v, b = r->hi * v;
        if (!isfinite(a) || !isfinite(b)) return false;
        out.lo = fmin(out.lo, fmin(a, b)), out.hi = fmax(out.hi, fmax(a, b));
    }
    *r = out;
    return out.lo <= out.hi;
}

/* Slopes of several channels: the least one decides, for all of them, unless they differ much. */
static bool through_prelu(const struct tfl *t, const struct node *n, struct range *r)
{
    const double most_apart = 4;
    const struct tensor *x = tfl_content(t, n->in.v[1]);
    double least = INFINITY, most = 0;
    for (i64 i = 0; x && i < tensor_count(x); i++) {
        least = fmin(least, tfl_real(t, n->in.v[1], i));
        most = fmax(most, tfl_real(t, n->in.v[1], i));
    }
    if (!(least > 0) || !(most <= most_apart * least)) return false;
    r->lo /= least;
    return isfinite(r->lo);
}

/* r is the range of the result and becomes that of input k. false: unknown. */
static bool through(const struct tfl *t, const struct node *n, u32 k, struct range *r)
{
    const double steep = 8; /* sigmoids are within 1/2 of a step of their limits beyond it */
    double alpha = attr_float(n, "alpha",
                              str_is(n->op, "LeakyRelu")     ? 0.01
                              : str_is(n->op, "HardSigmoid") ? 0.2
                                                             : 1);
    if (str_is(n->op, "Relu") || str_is(n->op, "Clip")) return true;
    if (str_is(n->op, "Sigmoid")) return *r = (struct range){-steep, steep}, true;
    if (str_is(n->op, "Tanh")) return *r = (struct range){-steep / 2, steep / 2}, true;
    if (str_is(n->op, "HardSwish"))
        return *r = (struct range){-3, inverse(hard_swish, 0, r->hi)}, true;
    if (str_is(n->op, "Swish") && alpha > 0)
        return *r = (struct range){-steep / alpha, inverse(swish, alpha, r->hi)}, true;
    if (str_is(n->op, "Gelu"))
        return *r = (struct range){-steep / 2, inverse(gelu, 0, r->hi)}, true;
    if (str_is(n->op, "Elu") && alpha > 0)
        return *r = (struct range){fmax(-steep, log1p(fmax(r->lo / alpha, -1))), r->hi}, true;
    if (str_is(n->op, "HardSigmoid") && alpha > 0) {
        double beta = attr_float(n, "beta", 0.5);
        return *r = (struct range){-beta / alpha, (1 - beta) / alpha}, true;
    }
    if (str_is(n->op, "LeakyRelu") && alpha > 0) return r->lo /= alpha, isfinite(r->lo);
    if (str_is(n->op, "PRelu")) return through_prelu(t, n, r);
    return n->in.n == 2 && through_constant(t, n, k, r);
}

/* Whether v is quantised, or could be: computed from such values by operators that compute in i8.
 */
static bool *find_able(struct tfl *t, struct arena *work)
{
    bool *able = arena_array(work, bool, t->g.value.n);
    for (value_id v = 1; v < t->g.value.n; v++)
        able[v] = t->v[tfl_of(t, v)].q.n || graph_value(&t->g, v)->is_const;
    for (node_id n = 1; n < t->g.node.n; n++) {
        const struct node *x = graph_node(&t->g, n);
        const struct tfl_row *r = t->row(x->op);
        bool is_able = r->ability != TFL_NO_Q && (!r->can || r->can(t, x));
        for (u32 k = 0; k < x->in.n; k++)
            if (x->in.v[k] && is_bytes(graph_value(&t->g, x->in.v[k])->dtype))
                is_able &= able[x->in.v[k]];
        for (u32 k = 0; k < x->out.n && is_able; k++) able[x->out.v[k]] = true;
    }
    return able;
}

/* Gives the argument of n a scale, if n is a function of one value. */
static void complete(struct tfl *t, const struct node *n, const struct tfl_row *r, const bool *able)
{
    const struct tfl_quant *q = n->out.n == 1 ? &t->v[tfl_of(t, n->out.v[0])].q : NULL;
    value_id of = 0;
    u32 at = 0;
    if (!q || q->n != 1 || r->ability == TFL_NO_Q || !r->write) return;
    for (u32 k = 0; k < n->in.n; k++) {
        if (!n->in.v[k] || graph_value(&t->g, tfl_of(t, n->in.v[k]))->is_const) continue;
        if (of) return;
        of = n->in.v[k], at = k;
    }
    if (!of || tfl_of(t, of) != of || t->v[of].q.n || !graph_value(&t->g, of)->producer ||
        !able[of] || t->uses[of] != 1)
        return;
    struct range x = range_of(q);
    if (r->ability == TFL_SAME_Q && graph_value(&t->g, of)->dtype == DT_F32 && !interpolates(n))
        t->v[of].q = *q;
    else if (through(t, n, at, &x)) t->v[of].q = tfl_quant_range(t->a, x.lo, x.hi);
}

bool tfl_quant_find(struct tfl *t)
{
    struct arena work = {0};
    struct readers *r = arena_array(&work, struct readers, t->g.value.n);
    bool ok = true;
    for (value_id v = 0; v < t->g.value.n; v++) t->v[v].of = v;
    ok = count_readers(t, r);
    for (node_id n = 1; n < t->g.node.n && ok; n++) {
        const struct node *x = graph_node(&t->g, n);
        if (is_pair_node(x)) ok = find_pair(t, r, x);
        else keep_scale(t, r, x, t->row(x->op));
    }
    const bool *able = ok ? find_able(t, &work) : NULL;
    for (node_id n = t->g.node.n; ok && n-- > 1;)
        complete(t, graph_node(&t->g, n), t->row(graph_node(&t->g, n)->op), able);
    for (node_id n = 1; n < t->g.node.n && ok; n++)
        if (!is_pair_node(graph_node(&t->g, n)))
            keep_scale(t, r, graph_node(&t->g, n), t->row(graph_node(&t->g, n)->op));
    arena_release(&work);
    return ok;
}

bool tfl_quant_runs(struct tfl *t, const struct node *n, const struct tfl_row *r)
{
    if (r->ability == TFL_NO_Q) return false;
    for (u32 k = 0; k < n->out.n; k++)
        if (n->out.v[k] && t->v[tfl_of(t, n->out.v[k])].q.n != 1) return false;
    for (u32 k = 0; k < n->in.n; k++) {
        value_id v = n->in.v[k] ? tfl_of(t, n->in.v[k]) : 0;
        if (v && !graph_value(&t->g, v)->is_const && is_bytes(graph_value(&t->g, v)->dtype) &&
            !t->v[v].q.n)
            return false;
    }
    return !r->can || r->can(t, n);
}

static void round_to(const float *x, i64 n, const struct tfl_quant *q, i8 *out)
{
    for (i64 i = 0; i < n; i++)
        out[i] = (i8)fmax(-128,
                          fmin(127, rint((double)x[i] / (double)q->scale[0]) + (double)q->zero[0]));
}

tfl_id tfl_quant_const(struct tfl *t, tfl_id real, const struct tfl_quant *given)
{
    const struct tfl_tensor from = *tfl_at(t, real);
    const float *x = from.data;
    i64 n = i64_product(from.rank, from.dim);
    double most = 0;
    if (from.type != TFL_F32) return real;
    for (i64 i = 0; i < n; i++) most = isfinite(x[i]) ? fmax(most, fabs((double)x[i])) : INFINITY;
    if (!isfinite(most)) {
        err_set(t->e, ERR_UNSUPPORTED,
                "export to tflite: constant '%.*s' of a quantised operator is not finite",
                STR_ARG(from.name));
        return 0;
    }
    struct tfl_quant q = given ? *given : tfl_quant_one(t->a, most > 0 ? most / 127 : 1, 0);
    i8 *p = arena_try(t->a, n, t->e, "constant");
    if (!p) return 0;
    round_to(x, n, &q, p);
    tfl_id y = tfl_constant(t, "quantized", TFL_I8, from.rank, from.dim, p);
    tfl_at(t, y)->q = q;
    if (n > 1 && !given)
        log_printf(t->log, 2, "export to tflite: constant '%.*s' is rounded to 8 bits",
                   STR_ARG(from.name));
    return y;
}
