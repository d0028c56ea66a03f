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
#include <stdarg.h>
#include <stdio.h>

void op_set_out(struct graph *g, node_id n, u32 k, enum dtype t, const struct shape *s)
{
    const struct node *x = graph_node(g, n);
    if (k >= x->out.n || !x->out.v[k]) return;
    struct value *v = graph_value(g, x->out.v[k]);
    v->dtype = t;
    v->shape = *s;
    v->shape.known = true;
}

/* Facts about sizes. */

/* A size that is made while the program runs is checked when it is known. */
static bool require(struct graph *g, node_id n, enum sym_fact_kind k, sym a, sym b)
{
    char room[200];
    if (op_is_made(g, a) || op_is_made(g, b)) return op_must(g, n, k, a, b);
    return sym_require(g->sym, k, a, b, op_owner_in(g, n, room, sizeof room));
}

static const char *const must[N_FACT_KINDS] = {"must be equal, not", "must divide:", "must not be smaller:",
                                               "must not be larger:"};

static bool require_v(struct graph *g, node_id n, enum sym_fact_kind k, const sym pair[2], struct err *e,
                      const char *what, va_list ap)
{
    char text[300];
    if (require(g, n, k, pair[0], pair[1])) return true;
    struct str a = op_size_text(g, pair[0]), b = op_size_text(g, pair[1]);
    vsnprintf(text, sizeof text, what, ap);
    return op_invalid(e, g, n, "%s %s %.*s %s %.*s", text, must[k], STR_ARG(a), k == FACT_MULTIPLE ? "by" : "and",
                      STR_ARG(b));
}

bool op_require_equal(struct graph *g, node_id n, sym a, sym b, struct err *e, const char *what, ...)
{
    va_list ap;
    va_start(ap, what);
    bool ok = require_v(g, n, FACT_EQUAL, (sym[]){a, b}, e, what, ap);
    va_end(ap);
    return ok;
}

bool op_require_multiple(struct graph *g, node_id n, sym a, i64 b, struct err *e, const char *what, ...)
{
    va_list ap;
    va_start(ap, what);
    bool ok = require_v(g, n, FACT_MULTIPLE, (sym[]){a, sym_const(g->sym, b)}, e, what, ap);
    va_end(ap);
    return ok;
}

bool op_require_at_least(struct graph *g, node_id n, sym a, sym b, struct err *e, const char *what, ...)
{
    va_list ap;
    va_start(ap, what);
    bool ok = require_v(g, n, FACT_AT_LEAST, (sym[]){a, b}, e, what, ap);
    va_end(ap);
    return ok;
}

static bool is_wanted(struct graph *g, node_id n, const struct shape *s, const struct op_wanted *w)
{
    bool ok = s->rank == w->rank;
    for (u32 i = 0; i < s->rank && ok; i++) {
        bool is_one = w->may_be_one >> i & 1 && s->dim[i] == sym_const(g->sym, 1);
        ok = !w->dim[i] || is_one || require(g, n, FACT_EQUAL, s->dim[i], w->dim[i]);
    }
    return ok;
}

bool op_require_shape(struct graph *g, node_id n, u32 k, const struct op_wanted *w, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (k >= nd->in.n || !nd->in.v[k]) return true;
    const struct shape s = graph_value(g, nd->in.v[k])->shape;
    if (is_wanted(g, n, &s, w)) return true;
    struct str have = op_shape_text(g, &s);
    struct buf b = {0};
    for (u32 i = 0; i < w->rank; i++) {
        if (i) buf_char(&b, ',');
        if (w->dim[i]) buf_str(&b, op_size_text(g, w->dim[i]));
        else buf_char(&b, '?');
        if (w->dim[i] && w->may_be_one >> i & 1) buf_z(&b, " or 1");
    }
    op_invalid(e, g, n, "%s (input %u) is %.*s, expected [%.*s]: %s", w->name, k, STR_ARG(have), STR_ARG(buf_view(&b)), w->axes);
    buf_release(&b);
    return false;
}

bool op_require_same(struct graph *g, node_id n, const struct shape *a, const struct shape *b, struct err *e, const char *what)
{
    bool same = a->rank == b->rank;
    for (u32 i = 0; i < a->rank && same; i++) same = require(g, n, FACT_EQUAL, a->dim[i], b->dim[i]);
    if (same) return true;
    struct str x = op_shape_text(g, a), y = op_shape_text(g, b);
    return op_invalid(e, g, n, "%s must be equal, not %.*s and %.*s", what, STR_ARG(x), STR_ARG(y));
}

/* Whether a and b, axes with a common index, have the same size; records the requirement. */
bool op_sizes_agree(struct graph *g, sym a, sym b) { return require(g, g->at, FACT_EQUAL, a, b); }

bool op_size_reaches(struct graph *g, sym a, sym least) { return require(g, g->at, FACT_AT_LEAST, a, least); }

/* 1 for a non-empty axis: the slice 0:1 of a size, assumed to be 1 by a fact. */
static bool is_one(struct graph *g, sym a)
{
    i64 c;
    sym one = sym_const(g->sym, 1);
    if (sym_is_const(g->sym, a, &c)) return c == 1;
    if (!sym_lower_bound(g->sym, sym_sub(g->sym, one, a), &c) || c < 0 || !require(g, g->at, FACT_AT_LEAST, a, one)) return false;
    return sym_current(g->sym, a) == one; /* it must be seen in the size */
}

/* One dimension of a broadcast; 0: does not fit. */
static sym dim_join(struct graph *g, sym a, sym b)
{
    if (a == b) return a;
    if (is_one(g, a)) return b;
    if (is_one(g, b)) return a;
    if (!op_sizes_agree(g, a, b)) return 0;
    return sym_is_const(g->sym, b, NULL) ? b : sym_current(g->sym, a);
}

bool op_broadcast(struct graph *g, const struct shape *a, const struct shape *b, struct shape *out)
{
    struct shape r = {.known = true, .rank = a->rank > b->rank ? a->rank : b->rank};
    for (u32 i = 0; i < r.rank; i++) { /* from the last axis on */
        sym da = i < a->rank ? a->dim[a->rank - 1 - i] : 0;
        sym db = i < b->rank ? b->dim[b->rank - 1 - i] : 0;
        sym d = !da ? db : !db ? da : dim_join(g, da, db);
        if (!d) return false;
        r.dim[r.rank - 1 - i] = d;
    }
    *out = r;
    return true;
}

bool op_broadcast_to(struct graph *g, const struct shape *from, const struct shape *to)
{
    for (u32 i = 1; i <= from->rank && i <= to->rank; i++) {
        sym a = from->dim[from->rank - i], b = to->dim[to->rank - i];
        if (a != b && !is_one(g, a) && !op_sizes_agree(g, a, b)) return false;
    }
    return from->rank <= to->rank;
}

bool op_axis(i64 axis, u32 rank, u32 *out)
{
    if (axis < -(i64)rank || axis >= (i64)rank) return false;
    *out = (u32)(axis < 0 ? axis + (i64)rank : axis);
    return true;
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
