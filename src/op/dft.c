// SPDX-License-Identifier: Apache-2.0
//
// DFT: the discrete Fourier transform along one axis of (..., 1) real or (..., 2) complex tensors,
// padded or cut to a length; onesided and inverse forms; both
// together make a real tensor (..., 1) of half a spectrum. Becomes quern::DFT, which holds the
// symbolic length. One sum per result element; angles are reduced to one turn as integers and
// computed in f64.
#include "op/op.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

struct dft {
    u32 rank, axis;
    sym length;
    bool inverse, onesided;
    bool real; /* the result: inverse of a onesided spectrum, whose other half is conjugate */
};

static bool read_flags(const struct graph *g, const struct node *n, struct dft *d)
{
    const struct shape *x = &graph_value(g, n->in.v[0])->shape;
    i64 parts;
    d->rank = x->rank;
    d->inverse = attr_int(n, "inverse", 0);
    d->onesided = attr_int(n, "onesided", 0);
    d->real = d->inverse && d->onesided;
    return x->rank >= 2 && op_axis(attr_int(n, "axis", 1), x->rank, &d->axis) &&
           d->axis != x->rank - 1 && sym_is_const(g->sym, x->dim[x->rank - 1], &parts) &&
           (parts == 1 || parts == 2);
}

static sym half_spectrum(struct symtab *t, sym length)
{
    return sym_add(t, sym_div(t, length, sym_const(t, 2)), sym_const(t, 1));
}

static bool set_result(struct graph *g, node_id n, const struct dft *d, struct err *e)
{
    const struct value *x = graph_value(g, graph_node(g, n)->in.v[0]);
    struct shape to = x->shape;
    i64 c;
    if (!dtype_is_float(x->dtype)) return op_invalid(e, g, n, "type %s", dtype_name(x->dtype));
    if (sym_is_const(g->sym, d->length, &c) && c < 1)
        return op_invalid(e, g, n, "length %lld", (long long)c);
    to.dim[d->axis] = d->onesided && !d->real ? half_spectrum(g->sym, d->length) : d->length;
    to.dim[d->rank - 1] = sym_const(g->sym, d->real ? 1 : 2);
    op_set_out(g, n, 0, x->dtype, &to);
    return true;
}

static bool read_dft(struct graph *g, node_id id, struct dft *d, struct err *e)
{
    const struct node *n = graph_node(g, id);
    i64 count;
    if (!read_flags(g, n, d))
        return op_invalid(e, g, id, "shape, axis, inverse and onesided do not fit each other");
    d->length = graph_value(g, n->in.v[0])->shape.dim[d->axis];
    if (d->real) /* 2 (size - 1) */
        d->length = sym_mul(g->sym, sym_const(g->sym, 2), sym_sub(g->sym, d->length, sym_const(g->sym, 1)));
    if (n->in.n > 1 && n->in.v[1] &&
        (!op_data_sizes(g, id, n->in.v[1], &d->length, 1, &count) || count != 1))
        return op_unsupported(e, g, id, "the length is only known at run time");
    return true;
}

/* From opset 20 on the axis is an input, by default the last but one. */
static bool upgrade(struct graph *g, node_id n, i64 opset, struct err *e)
{
    struct node *x = graph_node(g, n);
    i64 axis = -2;
    if (opset < 20) return true;
    if (op_has_in(x, 2) && op_const_ints(g, x->in.v[2], &axis, 1) != 1)
        return op_unsupported(e, g, n, "the axis is only known at run time");
    if (x->in.n > 2) x->in.n = 2;
    attr_set_int(g, n, "axis", axis);
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct dft d;
    return read_dft(g, n, &d, e) && set_result(g, n, &d, e);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct dft d;
    if (!read_dft(g, n, &d, e)) return false;
    node_id to = op_replace(g, n, "quern::DFT", 1);
    attr_set_int(g, to, "axis", d.axis);
    attr_set_int(g, to, "inverse", d.inverse);
    attr_set_int(g, to, "onesided", d.onesided);
    op_set_syms(g, to, "length", &d.length, 1);
    return true;
}

static bool get_dft(const struct graph *g, const struct node *n, struct dft *d)
{
    return read_flags(g, n, d) && op_get_syms(g, n, "length", &d->length, 1) == 1;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    struct dft d;
    if (!get_dft(g, graph_node(g, n), &d)) return op_invalid(e, g, n, "bad attributes");
    return set_result(g, n, &d, e);
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0];
    struct tensor *out = v->out[0];
    struct dft d;
    i64 length, idx[MAX_RANK] = {0}, src[MAX_RANK], n = tensor_count(out);
    if (!get_dft(v->g, v->n, &d) || !op_eval_syms(v, "length", &length, 1, e)) return false;
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx)) {
        double sum = 0;
        for (u32 a = 0; a < d.rank; a++) src[a] = idx[a];
        i64 end = i64_min(x->dim[d.axis], d.real ? length / 2 + 1 : length);
        for (i64 j = 0; j < end; j++) {
            double weight = d.real && j > 0 && 2 * j != length ? 2 : 1;
            double angle = (d.inverse ? two_pi : -two_pi) * (double)(j * idx[d.axis] % length) /
                           (double)length;
            src[d.axis] = j;
            src[d.rank - 1] = 0;
            i64 at = op_flat(x->rank, x->dim, src);
            double re = elem_f64(x->dtype, x->data, at);
            double im = x->dim[d.rank - 1] == 2 ? elem_f64(x->dtype, x->data, at + 1) : 0;
            sum += weight * (idx[d.rank - 1] ? re * sin(angle) + im * cos(angle)
                                             : re * cos(angle) - im * sin(angle));
        }
        elem_set_f64(out->dtype, out->data, i, d.inverse ? sum / (double)length : sum);
    }
    return true;
}

/* The summand of position j for the result element at idx, in f64. */
static kval summand(struct emit *m, const struct node *n, const struct dft *d, const kval *idx,
                    kval j)
{
    struct kir *k = m->k;
    value_id x = n->in.v[0];
    kval src[MAX_RANK], length = emit_size(m, d->length);
    i64 parts = 1;
    for (u32 a = 0; a < d->rank; a++) src[a] = idx[a];
    src[d->axis] = j;
    src[d->rank - 1] = kir_int(k, 0);
    kval turn =
        kir_cast(k, DT_F64, kir_bin(k, KI_MOD, kir_bin(k, KI_MUL, j, idx[d->axis]), length));
    turn = kir_bin(k, KI_DIV, turn, kir_cast(k, DT_F64, length));
    turn = kir_bin(k, KI_MUL, turn, kir_const_f(k, DT_F64, 1, d->inverse ? two_pi : -two_pi));
    kval c = kir_un(k, KI_COS, turn), s = kir_un(k, KI_SIN, turn);
    kval is_re = kir_bin(k, KI_EQ, idx[d->rank - 1], kir_int(k, 0));
    kval re = kir_cast(k, DT_F64, emit_value(m, x, src));
    kval sum = kir_bin(k, KI_MUL, re, kir_select(k, is_re, c, s));
    sym_is_const(m->g->sym, graph_value(m->g, x)->shape.dim[d->rank - 1], &parts);
    if (parts == 1) return sum;
    src[d->rank - 1] = kir_int(k, 1);
    kval im = kir_cast(k, DT_F64, emit_value(m, x, src));
    return kir_bin(k, KI_ADD, sum,
                   kir_bin(k, KI_MUL, im, kir_select(k, is_re, kir_un(k, KI_NEG, s), c)));
}

/* The number of occurrences of position j of a half spectrum in the whole one. */
static kval mirror_weight(struct emit *m, const struct dft *d, kval j)
{
    struct kir *k = m->k;
    kval first = kir_bin(k, KI_EQ, j, kir_int(k, 0));
    kval middle = kir_bin(k, KI_EQ, kir_bin(k, KI_ADD, j, j), emit_size(m, d->length));
    return kir_select(k, kir_bin(k, KI_OR, first, middle), kir_const_f(k, DT_F64, 1, 1), kir_const_f(k, DT_F64, 1, 2));
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    const struct value *x = graph_value(m->g, n->in.v[0]);
    struct dft d;
    u32 lanes = 1;
    bool ok = get_dft(m->g, n, &d);
    assert(ok), (void)ok;
    for (u32 a = 0; a < d.rank; a++)
        lanes = kir_lanes(k, idx[a]) > lanes ? kir_lanes(k, idx[a]) : lanes;
    kval zero = kir_int(k, 0), acc = kir_alloc(k, KS_REG, DT_F64, lanes, kir_int(k, 1));
    kir_store(k, acc, zero, kir_const_f(k, DT_F64, lanes, 0));
    sym most = d.real ? half_spectrum(m->g->sym, d.length) : d.length;
    kval j = kir_loop(k, KL_SERIAL, zero, emit_size(m, sym_min(m->g->sym, x->shape.dim[d.axis], most)), 1);
    kval term = summand(m, n, &d, idx, j);
    if (d.real) term = kir_bin(k, KI_MUL, term, mirror_weight(m, &d, j));
    kval sum = kir_bin(k, KI_ADD, kir_load(k, acc, zero), term);
    kir_store(k, acc, zero, kir_splat(k, sum, lanes));
    kir_end(k);
    sum = kir_load(k, acc, zero);
    if (d.inverse) sum = kir_bin(k, KI_DIV, sum, kir_cast(k, DT_F64, emit_size(m, d.length)));
    return kir_cast(k, emit_type(x->dtype), sum);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK], length = 0;
    struct dft d;
    double count = 8;
    const struct shape *s = &graph_value(g, n->out.v[0])->shape;
    if (!get_dft(g, n, &d) || !shape_eval(g->sym, s, var, dim) ||
        !sym_eval(g->sym, d.length, var, &length))
        return 0;
    for (u32 a = 0; a < s->rank; a++) count *= (double)dim[a];
    return count * (double)length;
}

static void random_dft(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 2, 4);
    i64 dim[4], axis = rng_range(r, 0, rank - 2), length = rng_range(r, 1, 8),
                form = rng_range(r, 0, 3);
    value_id in[2] = {0};
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 1, a + 1 == rank ? 2 : 6);
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    if (self->max_in == 2 && (form == 3 || rng_range(r, 0, 1))) in[1] = op_const_i(g, DT_I64, &length, 1);
    node_id n = random_node(g, self, in[1] ? 2 : 1, in, 1);
    sym s = sym_const(g->sym, length);
    if (self->max_in == 1) op_set_syms(g, n, "length", &s, 1);
    attr_set_int(g, n, "axis", axis);
    attr_set_int(g, n, "inverse", form & 1);
    attr_set_int(g, n, "onesided", form >> 1);
}

static const struct op ops[] = {
    {.name = "DFT",
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .upgrade = upgrade,
     .infer = infer,
     .expand = expand,
     .random = random_dft},
    {.name = "quern::DFT",
     .attributes = "axis:int inverse:int length:strings onesided:int",
     .props = OP_HEAVY,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .flops = flops,
     .random = random_dft},
};

const struct op_family op_dft = {ops, countof(ops)};
