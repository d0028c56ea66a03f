// SPDX-License-Identifier: Apache-2.0
//
// Shared by the operators that only move elements (reshape, transpose, slice, pad, gather ...).
//
// Such an operator states once where an output element comes from (op_map_fn, with numbers); the
// reference evaluation and the folding of symbolic content both follow from that map, so they
// cannot disagree. Its lowering to kernel IR is written separately, because there ramps and
// symbolic sizes matter; tests compare both.
//
// Symbolic parameters live in attributes as text, so that a task carries all it needs without
// inputs that only hold sizes.
#include "op/op.h"

#include <string.h>

void op_set_syms(struct graph *g, node_id n, const char *attr, const sym *v, i64 count)
{
    struct attr a = {.name = str_of(attr), .kind = ATTR_STRS, .n = count};
    a.strs = arena_array(g->arena, struct str, count + 1);
    struct buf b = {0};
    for (i64 i = 0; i < count; i++) {
        buf_reset(&b);
        sym_print(&b, g->sym, v[i]);
        a.strs[i] = str_dup(g->arena, buf_view(&b));
    }
    buf_release(&b);
    attr_copy(g, n, &a);
}

i64 op_get_syms(const struct graph *g, const struct node *n, const char *attr, sym *v, i64 max)
{
    const struct attr *a = node_attr(n, attr);
    if (!a || a->kind != ATTR_STRS || a->n > max) return -1;
    for (i64 i = 0; i < a->n; i++) {
        struct err e = {0};
        v[i] = sym_parse(g->sym, a->strs[i], &e);
        if (!v[i]) return -1;
    }
    return a->n;
}

bool op_eval_syms(const struct op_eval *v, const char *attr, i64 *out, i64 max, struct err *e)
{
    sym s[MAX_RANK * 2];
    i64 n = op_get_syms(v->g, v->n, attr, s, i64_min(max, countof(s)));
    if (n < 0) return err_set(e, ERR_INPUT, "bad attribute '%s'", attr);
    for (i64 i = 0; i < n; i++)
        if (!sym_is_const(v->g->sym, s[i], &out[i]) && !sym_eval(v->g->sym, s[i], v->var, &out[i]))
            return err_set(e, ERR_INPUT, "size in attribute '%s' is not known", attr);
    return true;
}

bool op_next(u32 rank, const i64 *dim, i64 *idx)
{
    for (u32 a = rank; a-- > 0;) {
        if (++idx[a] < dim[a]) return true;
        idx[a] = 0;
    }
    return false;
}

i64 op_flat(u32 rank, const i64 *dim, const i64 *idx)
{
    i64 at = 0;
    for (u32 a = 0; a < rank; a++) at = at * dim[a] + idx[a];
    return at;
}

bool op_map_eval(const struct op_eval *v, op_map_fn *fn, const void *par)
{
    struct tensor *out = v->out[0];
    i64 idx[MAX_RANK] = {0}, src[MAX_RANK], n = tensor_count(out), size = dtype_size(out->dtype);
    for (i64 i = 0; i < n; i++, op_next(out->rank, out->dim, idx)) {
        i64 k = fn(par, idx, src);
        if (k < 0) continue;
        const struct tensor *in = v->in[k];
        i64 at = op_flat(in->rank, in->dim, src);
        assert(at >= 0 && at < tensor_count(in) && in->dtype == out->dtype);
        memcpy((char *)out->data + i * size, (const char *)in->data + at * size, (size_t)size);
    }
    return true;
}

enum { MAX_CONTENT = 256 }; /* larger tensors are not shape arithmetic */

/* Content and sizes of one input; sym_data.n = -1: unknown. */
struct content {
    struct sym_data data;
    i64 dim[MAX_RANK];
    u32 rank;
};

static void content_read(const struct graph *g, value_id v, struct content *c)
{
    const struct value *val = v ? graph_value(g, v) : NULL;
    c->data.n = -1;
    if (!val || !shape_is_static(g->sym, &val->shape, c->dim)) return;
    c->rank = val->shape.rank;
    if (!op_sym_content(g, v, MAX_CONTENT, &c->data)) c->data.n = -1;
}

/* Integers and results of size arithmetic are tracked; float constants alone are not shape
   arithmetic. */
static bool is_content(const struct graph *g, value_id v)
{
    return v && (graph_value(g, v)->sdata || !dtype_is_float(graph_value(g, v)->dtype));
}

static bool any_content(const struct graph *g, const struct node *n, enum dtype t)
{
    for (u32 i = 0; i < n->in.n; i++)
        if (is_content(g, n->in.v[i]) && graph_value(g, n->in.v[i])->dtype == t) return true;
    return false;
}

static i64 common_den(const struct content *c, u32 n)
{
    i64 den = 1, d;
    for (u32 i = 0; i < n; i++) {
        if (c[i].data.n < 0) continue;
        for (d = den; d % c[i].data.den && d <= INT32_MAX; d += den) {
        }
        den = d;
    }
    return den;
}

/* Element at src over the common denominator; 0: unknown. */
static sym content_at(const struct graph *g, const struct content *c, const i64 *src, i64 den)
{
    i64 at = c->data.n < 0 ? -1 : op_flat(c->rank, c->dim, src);
    if (at < 0 || at >= c->data.n) return 0;
    return sym_mul(g->sym, c->data.num[at], sym_const(g->sym, den / c->data.den));
}

void op_map_sdata(struct graph *g, node_id n, u32 k, op_map_fn *fn, const void *par)
{
    const struct node *nd = graph_node(g, n);
    value_id o = k < nd->out.n ? nd->out.v[k] : 0;
    struct tensor t = {0};
    i64 idx[MAX_RANK] = {0}, src[MAX_RANK] = {0};
    if (!o || !any_content(g, nd, graph_value(g, o)->dtype) || graph_value(g, o)->data ||
        !shape_is_static(g->sym, &graph_value(g, o)->shape, t.dim))
        return;
    t.rank = graph_value(g, o)->shape.rank;
    if (!tensor_size_ok(DT_U8, t.rank, t.dim, NULL) || tensor_count(&t) > MAX_CONTENT) return;
    i64 count = tensor_count(&t);
    struct arena scratch = {0};
    sym *num = arena_array(&scratch, sym, count + 1);
    struct content *c = arena_array(&scratch, struct content, nd->in.n + 1);
    for (u32 i = 0; i < nd->in.n; i++) content_read(g, nd->in.v[i], &c[i]);
    i64 den = common_den(c, nd->in.n);
    bool ok = den <= INT32_MAX;
    for (i64 i = 0; ok && i < count; i++, op_next(t.rank, t.dim, idx)) {
        i64 from = fn(par, idx, src);
        num[i] = from < 0 ? sym_const(g->sym, 0) : content_at(g, &c[from], src, den);
        ok = num[i] != 0;
    }
    if (ok) op_set_sdata(g, o, num, count, den);
    arena_release(&scratch);
}

void op_copy_sdata(struct graph *g, value_id from, value_id to)
{
    if (!to || graph_value(g, to)->data || !is_content(g, from)) return;
    struct sym_data d;
    if (op_sym_content(g, from, MAX_CONTENT, &d)) op_set_sdata(g, to, d.num, d.n, d.den);
}

node_id op_replace(struct graph *g, node_id n, const char *op, u32 n_in)
{
    node_id to = graph_add_node(g, str_of(op), graph_node(g, n)->name);
    for (u32 i = 0; i < n_in; i++) node_add_in(g, to, graph_node(g, n)->in.v[i]);
    for (u32 i = 0; i < graph_node(g, n)->out.n; i++)
        node_set_out(g, to, i, graph_node(g, n)->out.v[i]);
    graph_node(g, n)->dead = true;
    return to;
}

i64 op_index(i64 i, i64 dim)
{
    i += i < 0 ? dim : 0;
    return i64_max(0, i64_min(i, dim - 1));
}
