// SPDX-License-Identifier: Apache-2.0
//
// HannWindow, HammingWindow, BlackmanWindow: a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n), n the
// size, or the size less one when the window is not periodic. They become quern::Window, which
// holds symbolic size and coefficients. Angles are computed in f64.
#include "op/op.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925286766559;

/* The coefficients of one window. */
struct row {
    double a[3];
};

static bool read_size(struct graph *g, node_id n, sym *size)
{
    i64 count;
    return op_data_sizes(g, n, graph_node(g, n)->in.v[0], size, 1, &count) && count == 1;
}

static bool set_result(struct graph *g, node_id n, sym size, struct err *e)
{
    i64 c, to = attr_int(graph_node(g, n), "output_datatype", 1);
    enum dtype t = dtype_from_onnx((int)i64_max(0, i64_min(to, 255)));
    if (!dtype_is_float(t))
        return op_unsupported(e, g, n, "attribute 'output_datatype' = %lld", (long long)to);
    if (sym_is_const(g->sym, size, &c) && c < 0)
        return op_invalid(e, g, n, "size %lld", (long long)c);
    op_set_out(g, n, 0, t, &(struct shape){.known = true, .rank = 1, .dim = {size}});
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    sym size;
    if (!read_size(g, n, &size))
        return op_unsupported(e, g, n, "the size is only known at run time");
    return set_result(g, n, size, e);
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    sym size;
    const struct node *nd = graph_node(g, n);
    const struct row *r = op_of(g, n)->row;
    i64 periodic = attr_int(nd, "periodic", 1), type = attr_int(nd, "output_datatype", 1);
    struct attr a = {.name = S("a"), .kind = ATTR_FLOATS, .n = 3, .floats = (double *)r->a};
    if (!read_size(g, n, &size))
        return op_unsupported(e, g, n, "the size is only known at run time");
    node_id to = op_replace(g, n, "quern::Window", 0);
    attr_copy(g, to, &a);
    attr_set_int(g, to, "periodic", periodic);
    attr_set_int(g, to, "output_datatype", type);
    op_set_syms(g, to, "size", &size, 1);
    return true;
}

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    sym size;
    const struct attr *a = node_attr(graph_node(g, n), "a");
    if (op_get_syms(g, graph_node(g, n), "size", &size, 1) != 1 || !a || a->kind != ATTR_FLOATS ||
        a->n != 3)
        return op_invalid(e, g, n, "bad attributes");
    return set_result(g, n, size, e);
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    const double *a = node_attr(v->n, "a")->floats;
    i64 n = out->dim[0], period = i64_max(1, n - !attr_int(v->n, "periodic", 1));
    for (i64 i = 0; i < n; i++) {
        double x = two_pi * (double)i / (double)period;
        elem_set_f64(out->dtype, out->data, i, a[0] - a[1] * cos(x) + a[2] * cos(2 * x));
    }
    return true;
}

static kval prim_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    struct symtab *t = m->g->sym;
    const struct value *o = graph_value(m->g, n->out.v[0]);
    const double *a = node_attr(n, "a")->floats;
    sym one = sym_const(t, 1), size = o->shape.dim[0];
    sym period = sym_max(t, one, attr_int(n, "periodic", 1) ? size : sym_sub(t, size, one));
    kval x = kir_bin(k, KI_MUL, kir_cast(k, DT_F64, idx[0]), kir_const_f(k, DT_F64, 1, two_pi));
    x = kir_bin(k, KI_DIV, x, kir_cast(k, DT_F64, emit_size(m, period)));
    kval y = kir_bin(k, KI_MUL, kir_un(k, KI_COS, x), kir_const_f(k, DT_F64, 1, a[1]));
    kval z = kir_un(k, KI_COS, kir_bin(k, KI_ADD, x, x));
    y = kir_bin(k, KI_SUB, kir_const_f(k, DT_F64, 1, a[0]), y);
    y = kir_bin(k, KI_ADD, y, kir_bin(k, KI_MUL, z, kir_const_f(k, DT_F64, 1, a[2])));
    return kir_cast(k, emit_type(o->dtype), y);
}

static void random_window(const struct op *self, struct graph *g, struct rng *r)
{
    i64 size = rng_range(r, 1, 12);
    value_id in[1] = {self->max_in ? op_const_i(g, DT_I64, &size, 1) : 0};
    node_id n = random_node(g, self, self->max_in, in, 1);
    attr_set_int(g, n, "periodic", rng_range(r, 0, 1));
    if (self->max_in) return;
    double a[3] = {0.42, 0.5, 0.08};
    sym s = sym_const(g->sym, size);
    attr_copy(g, n, &(struct attr){.name = S("a"), .kind = ATTR_FLOATS, .n = 3, .floats = a});
    op_set_syms(g, n, "size", &s, 1);
}

static const struct row hann = {{0.5, 0.5, 0}}, hamming = {{25.0 / 46, 21.0 / 46, 0}},
                        blackman = {{0.42, 0.5, 0.08}};

#define WINDOW(onnx, coefficients)                                                                 \
    {                                                                                              \
        .name = onnx, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1, .infer = infer,        \
        .expand = expand, .random = random_window, .row = &coefficients                            \
    }

static const struct op ops[] = {
    WINDOW("HannWindow", hann),
    WINDOW("HammingWindow", hamming),
    WINDOW("BlackmanWindow", blackman),
    {.name = "quern::Window",
     .attributes = "a:floats output_datatype:int periodic:int size:strings",
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .lower = prim_lower,
     .random = random_window},
};

const struct op_family op_window = {ops, countof(ops)};
