// SPDX-License-Identifier: Apache-2.0
//
// op_util: what the operator families share: broadcasting, axes, known contents of shape-carrying
// inputs, small constants, and building nodes in expansions.
//
// Contents are rational: shape arithmetic exported from frameworks goes through floats
// (Floor(Cast(Shape(x)) * 0.5)), so constants of floats take part as long as they are small dyadic
// fractions, for which float arithmetic is exact, too.
#include "op/op.h"

#include <math.h>

void op_set_out(struct graph *g, node_id n, u32 k, enum dtype t, const struct shape *s)
{
    const struct node *x = graph_node(g, n);
    if (k >= x->out.n || !x->out.v[k]) return;
    struct value *v = graph_value(g, x->out.v[k]);
    v->dtype = t;
    v->shape = *s;
    v->shape.known = true;
}

/* One dimension of a broadcast; 0: does not fit. */
static sym dim_join(struct symtab *t, sym a, sym b)
{
    i64 va, vb;
    if (a == b) return a;
    if (sym_is_const(t, a, &va) && va == 1) return b;
    if (sym_is_const(t, b, &vb) && vb == 1) return a;
    i64 d;
    return sym_is_const(t, sym_sub(t, a, b), &d) && d == 0 ? a : 0;
}

bool op_broadcast(struct graph *g, const struct shape *a, const struct shape *b, struct shape *out)
{
    struct shape r = {.known = true, .rank = a->rank > b->rank ? a->rank : b->rank};
    for (u32 i = 0; i < r.rank; i++) { /* from the last axis on */
        sym da = i < a->rank ? a->dim[a->rank - 1 - i] : 0;
        sym db = i < b->rank ? b->dim[b->rank - 1 - i] : 0;
        sym d = !da ? db : !db ? da : dim_join(g->sym, da, db);
        if (!d) return false;
        r.dim[r.rank - 1 - i] = d;
    }
    *out = r;
    return true;
}

i64 op_const_ints(const struct graph *g, value_id v, i64 out[], i64 max)
{
    if (!v) return -1;
    const struct value *x = graph_value(g, v);
    if (x->data && dtype_kind(x->data->dtype) != DK_FLOAT) {
        i64 n = tensor_count(x->data);
        if (n > max) return -1;
        for (i64 i = 0; i < n; i++) out[i] = elem_i64(x->data->dtype, x->data->data, i);
        return n;
    }
    if (!x->sdata || x->sdata->den != 1 || x->sdata->n > max) return -1;
    for (i64 i = 0; i < x->sdata->n; i++)
        if (!sym_is_const(g->sym, x->sdata->num[i], &out[i])) return -1;
    return x->sdata->n;
}

bool op_sym_ints(const struct graph *g, value_id v, sym out[], i64 max, i64 *n)
{
    struct sym_data d;
    if (!op_sym_content(g, v, max, &d) || d.den != 1) return false;
    for (i64 i = 0; i < d.n; i++) out[i] = d.num[i];
    *n = d.n;
    return true;
}

/* v as num/den with den a power of two up to 1024 and |v| small enough for float arithmetic to be
 * exact. */
static bool dyadic(double v, i64 den, i64 *num)
{
    double x = v * (double)den;
    if (!(fabs(x) < 16777216.0) || x != floor(x)) return false;
    *num = (i64)x;
    return true;
}

static bool float_content(const struct graph *g, const struct tensor *t, i64 n,
                          struct sym_data *out)
{
    for (i64 den = 1; den <= 1024; den *= 2) {
        i64 i = 0;
        for (i64 num; i < n && dyadic(elem_f64(t->dtype, t->data, i), den, &num); i++)
            out->num[i] = sym_const(g->sym, num);
        out->den = den;
        if (i == n) return true;
    }
    return false;
}

bool op_sym_content(const struct graph *g, value_id v, i64 max, struct sym_data *out)
{
    if (!v) return false;
    const struct value *x = graph_value(g, v);
    if (x->sdata) {
        *out = *x->sdata;
        return out->n <= max;
    }
    const struct tensor *t = x->data;
    i64 n = t ? tensor_count(t) : 0;
    if (!t || n > max) return false;
    *out = (struct sym_data){.n = n, .den = 1, .num = arena_array(g->arena, sym, n + 1)};
    if (dtype_is_float(t->dtype)) return float_content(g, t, n, out);
    for (i64 i = 0; i < n; i++) out->num[i] = sym_const(g->sym, elem_i64(t->dtype, t->data, i));
    return true;
}

void op_set_sdata(struct graph *g, value_id v, const sym *num, i64 n, i64 den)
{
    assert(den > 0);
    struct sym_data *d = arena_new(g->arena, struct sym_data);
    *d = (struct sym_data){.n = n, .den = den, .num = arena_array(g->arena, sym, n + 1)};
    for (i64 i = 0; i < n; i++) d->num[i] = num[i];
    graph_value(g, v)->sdata = d;
}

bool op_axis(i64 axis, u32 rank, u32 *out)
{
    if (axis < -(i64)rank || axis >= (i64)rank) return false;
    *out = (u32)(axis < 0 ? axis + (i64)rank : axis);
    return true;
}

i64 op_int_extreme(enum dtype t, bool largest)
{
    i64 bits = 8 * dtype_size(t);
    switch (dtype_kind(t)) {
    case DK_NONE:
    case DK_FLOAT: return 0;
    case DK_BOOL: return largest;
    case DK_UINT: return !largest ? 0 : bits == 64 ? -1 : ((i64)1 << bits) - 1;
    case DK_INT:
        return largest ? (i64)(~(u64)0 >> (65 - bits)) : -(i64)(~(u64)0 >> (65 - bits)) - 1;
    }
    unreachable();
}

value_id op_const_f(struct graph *g, enum dtype t, double v)
{
    struct tensor *x = tensor_new(g->arena, t, 0, NULL);
    elem_set_f64(t, x->data, 0, v);
    return graph_add_const(g, S("const"), x);
}

value_id op_const_i(struct graph *g, enum dtype t, const i64 *v, i64 n)
{
    struct tensor *x = tensor_new(g->arena, t, 1, &n);
    for (i64 i = 0; i < n; i++) elem_set_i64(t, x->data, i, v[i]);
    return graph_add_const(g, S("const"), x);
}

value_id op_node(struct graph *g, node_id like, const char *op, u32 n_in, const value_id *in,
                 value_id out)
{
    struct str base = like ? graph_node(g, like)->name : S("size");
    struct str name = str_fmt(g->arena, "%.*s/%s", STR_ARG(base), op);
    if (!out) return graph_op(g, op, name, n_in, in);
    node_id n = graph_add_node(g, str_dup(g->arena, str_of(op)), name);
    for (u32 i = 0; i < n_in; i++) node_add_in(g, n, in[i]);
    node_set_out(g, n, 0, out);
    return out;
}

value_id op_sym_scalar(struct graph *g, enum dtype t, sym s)
{
    i64 c;
    if (sym_is_const(g->sym, s, &c)) {
        struct tensor *x = tensor_new(g->arena, t, 0, NULL);
        elem_set_i64(t, x->data, 0, c);
        return graph_add_const(g, S("size"), x);
    }
    struct buf text = {0};
    sym_print(&text, g->sym, s);
    value_id v = op_node(g, 0, "quern::Sym", 0, NULL, 0);
    node_id n = graph_value(g, v)->producer;
    attr_set_str(g, n, "value", buf_view(&text));
    attr_set_int(g, n, "to", dtype_onnx(t));
    buf_release(&text);
    struct shape scalar = {.known = true};
    op_set_out(g, n, 0, t, &scalar);
    op_set_sdata(g, v, &s, 1, 1);
    return v;
}

void random_input(struct graph *g, const char *name, enum dtype t, u32 rank, const i64 *dim,
                  value_id *out)
{
    value_id v = graph_add_value(g, str_of(name));
    struct value *x = graph_value(g, v);
    x->dtype = t;
    x->shape = (struct shape){.known = true, .rank = rank};
    for (u32 i = 0; i < rank; i++) x->shape.dim[i] = sym_const(g->sym, dim[i]);
    *arr_push(g->arena, &g->input) = v;
    *out = v;
}

enum dtype random_float_type(struct rng *r)
{
    static const enum dtype t[] = {DT_F32, DT_F32, DT_F32, DT_F32, DT_F16, DT_F64};
    return t[rng_range(r, 0, countof(t) - 1)];
}

node_id random_node(struct graph *g, const struct op *op, u32 n_in, const value_id *in, u32 n_out)
{
    node_id n = graph_add_node(g, str_of(op->name), S("node"));
    for (u32 i = 0; i < n_in; i++) node_add_in(g, n, in[i]);
    for (u32 k = 0; k < n_out; k++) {
        value_id v = graph_add_value(g, S("out"));
        node_set_out(g, n, k, v);
        *arr_push(g->arena, &g->output) = v;
    }
    return n;
}
