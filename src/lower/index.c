// SPDX-License-Identifier: Apache-2.0
//
// Index helpers in kernels: clamping, data-dependent indices, loops over all slices of a value.
#include "lower/lower.h"

kval emit_zero(struct emit *m, enum dtype t)
{
    t = emit_type(t);
    return dtype_is_float(t) ? kir_const_f(m->k, t, 1, 0) : kir_const_i(m->k, t, 1, 0);
}

kval emit_clamp(struct emit *m, kval i, sym n)
{
    kval last = emit_size(m, sym_sub(m->g->sym, n, sym_const(m->g->sym, 1)));
    return kir_bin(m->k, KI_MAX, kir_bin(m->k, KI_MIN, i, last), kir_int(m->k, 0));
}

kval emit_index(struct emit *m, value_id v, const kval *idx, sym dim)
{
    kval i = kir_cast(m->k, DT_I64, emit_value(m, v, idx));
    kval end = kir_bin(m->k, KI_ADD, i, emit_size(m, dim));
    i = kir_select(m->k, kir_bin(m->k, KI_LT, i, kir_int(m->k, 0)), end, i);
    return emit_clamp(m, i, dim);
}

void emit_slices(struct emit *m, const struct shape *s, const bool *inside, kval *idx)
{
    struct symtab *t = m->g->sym;
    sym one = sym_const(t, 1), count = one;
    for (u32 a = 0; a < s->rank; a++) count = inside[a] ? count : sym_mul(t, count, s->dim[a]);
    kval at = kir_grid(m->k, emit_size(m, count));
    for (u32 a = s->rank; a-- > 0;) {
        sym d = sym_max(t, s->dim[a], one); /* avoids division by 0 for empty tensors */
        idx[a] = kir_int(m->k, 0);
        if (inside[a] || d == one) continue;
        idx[a] = count == d ? at : kir_bin(m->k, KI_MOD, at, emit_size(m, d));
        if (count != d) at = kir_bin(m->k, KI_DIV, at, emit_size(m, d));
    }
}

struct emit_piece emit_pieces(struct emit *m, const struct shape *s, const bool *inside, kval *idx)
{
    struct kir *k = m->k;
    bool skipped[MAX_RANK];
    const u32 last = s->rank - 1;
    struct emit_piece p = {0};
    for (u32 a = 0; a < s->rank; a++) skipped[a] = inside[a];
    if (m->piece > 1 && s->rank && !inside[last]) {
        const kval at = kir_grid(k, emit_size(m, sym_cdiv(m->g->sym, s->dim[last], sym_const(m->g->sym, m->piece))));
        skipped[last] = true;
        emit_slices(m, s, skipped, idx);
        p.from = kir_mul_i(k, at, m->piece), p.to = kir_min(k, kir_add_i(k, p.from, m->piece), emit_size(m, s->dim[last]));
    } else emit_slices(m, s, skipped, idx);
    return p;
}

u32 emit_open_piece(struct emit *m, const struct emit_piece *p, kval *at)
{
    if (p->to) *at = kir_loop(m->k, KL_SERIAL, p->from, p->to, 1);
    return p->to ? 2 : 0;
}

bool emit_wants(const struct emit *m, const struct node *n, u32 k)
{
    return k < n->out.n && n->out.v[k] && m->out[n->out.v[k]];
}

kval emit_clamped(struct emit *m, value_id v, const kval *idx, u32 axes)
{
    const struct value *x = graph_value(m->g, v);
    struct kir *k = m->k;
    kval any = 0, zero = kir_int(k, 0);
    u32 lanes = 1;
    i64 least, c;
    for (u32 a = 0; a < x->shape.rank; a++) {
        sym d = x->shape.dim[a];
        lanes = kir_lanes(k, idx[a]) > lanes ? kir_lanes(k, idx[a]) : lanes;
        if (!(axes >> a & 1) || (sym_lower_bound(m->g->sym, d, &least) && least > 0)) continue;
        if (sym_is_const(m->g->sym, d, &c)) return emit_zero(m, x->dtype);
        kval here = kir_bin(k, KI_LT, zero, emit_size(m, d));
        any = any ? kir_bin(k, KI_AND, any, here) : here;
    }
    if (!any || (m->is_asked && m->buf[v] && dtype_is_float(x->dtype))) return emit_value(m, v, idx);
    kval reg = kir_alloc(k, KS_REG, emit_type(x->dtype), lanes, kir_int(k, 1));
    kir_if(k, any);
    kir_store(k, reg, zero, kir_splat(k, emit_value(m, v, idx), lanes));
    kir_else(k);
    kir_store(k, reg, zero, kir_splat(k, emit_zero(m, x->dtype), lanes));
    kir_end(k);
    return kir_load(k, reg, zero);
}

void emit_padding(struct emit *m, value_id v)
{
    const struct value *x = graph_value(m->g, v);
    struct symtab *t = m->g->sym;
    const i64 block = layout_block(x->layout);
    const bool inside[MAX_RANK] = {[1] = true};
    kval idx[MAX_RANK];
    if (block == 1 || sym_divides(t, block, x->shape.dim[1])) return;
    sym b = sym_const(t, block), end = sym_mul(t, sym_cdiv(t, x->shape.dim[1], b), b);
    emit_slices(m, &x->shape, inside, idx);
    idx[1] = kir_loop(m->k, KL_SERIAL, emit_dim(m, v, 1), emit_size(m, end), 1);
    emit_store(m, v, idx, emit_zero(m, x->dtype));
    kir_end(m->k);
    kir_end(m->k);
}
