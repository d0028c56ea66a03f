// SPDX-License-Identifier: Apache-2.0
//
// contract: parts of the engine of contractions by workgroups (contract_emit.c): operands in shared memory, blocks of the result and their order, and the
// epilogue of whole sums.
#include "gen/contract.h"

/* Operands. */

sym contract_operand_blocks(const struct contraction *p, bool is_a)
{
    return sym_cdiv(p->m->g->sym, is_a ? p->x.m : p->x.n, sym_const(p->m->g->sym, is_a ? p->s.bm : p->s.bn));
}

sym contract_k_blocks(const struct contraction *p)
{
    return sym_cdiv(p->m->g->sym, p->x.k, sym_const(p->m->g->sym, p->s.bk));
}

static kval read_operand(void *user, kval row, kval col)
{
    const struct operand *s = user;
    struct kir *k = s->p->m->k;
    kval v = s->p->address->read(s, s->along_k ? col : row, s->along_k ? row : col, s->copy.share.lanes);
    return kir_splat(k, kir_cast(k, s->p->st.type, v), s->copy.share.lanes);
}

/* In the current stage. */
static kval operand_at(const struct operand *s, const struct contract_term *t, kval i)
{
    struct kir *k = s->p->m->k;
    kval term = t->at;
    kval stage = kir_add_i(k, kir_mul_i(k, s->stage, s->size), s->base);
    if (s->p->st.panel) {
        kval *inner = s->term_step == 1 ? &term : &i;
        stage = kir_add(k, stage, kir_mul_i(k, kir_div_i(k, *inner, s->p->st.panel), s->panel_step));
        *inner = kir_mod_i(k, *inner, s->p->st.panel);
    }
    kval at = kir_add(k, stage, kir_mul_i(k, term, s->term_step));
    return kir_add(k, at, kir_mul_i(k, i, s->step));
}

static kval copy_at(void *user, kval row, kval col)
{
    struct operand *s = user;
    return operand_at(s, &(struct contract_term){.at = s->along_k ? col : row}, s->along_k ? row : col);
}

static void lay_panels(struct operand *s, bool terms_inside)
{
    struct contraction *p = s->p;
    i64 lines = terms_inside ? s->block : p->s.bk;
    assert(p->st.pad == 0 && (terms_inside ? p->s.bk : s->block) % p->st.panel == 0);
    s->term_step = terms_inside ? 1 : p->st.panel;
    s->step = terms_inside ? p->st.panel : 1;
    s->panel_step = lines * p->st.panel;
    s->size = s->block * p->s.bk;
}

void operand_init(struct contraction *p, struct operand *s)
{
    bool is_a = s == &p->a;
    *s = (struct operand){.p = p,
                       .v = is_a ? p->x.a : p->x.b,
                       .across = is_a ? p->x.m : p->x.n,
                       .block = is_a ? p->s.bm : p->s.bn,
                       .along_k = (is_a ? p->address->a : p->address->b).along_k,
                       .at = operand_at};
    bool terms_inside = (is_a ? p->st.a_as_is : p->st.b_as_is) && s->along_k;
    s->term_step = terms_inside ? 1 : s->block + p->st.pad;
    s->step = terms_inside ? p->s.bk + p->st.pad : 1;
    s->size = terms_inside ? s->block * s->step : p->s.bk * s->term_step;
    i64 rows = s->along_k ? s->block : p->s.bk, cols = s->along_k ? p->s.bk : s->block;
    if (p->st.panel) lay_panels(s, terms_inside);
    i64 most = i64_min(i64_min(cols, i64_max(1, rows * cols / p->g.n)), is_a ? p->st.a_wide : p->st.b_wide);
    enum dtype type = graph_value(p->m->g, s->v)->dtype;
    s->copy = (struct wg_copy){.share = {.g = &p->g,
                                         .rows = rows,
                                         .cols = cols,
                                         .lanes = wg_lanes(p->m->g, (is_a ? p->address->a : p->address->b).n, type, (u32)most),
                                         .by_rows = p->st.by_rows},
                               .type = p->st.type,
                               .read = read_operand,
                               .at = copy_at,
                               .user = s,
                               .col_step = s->along_k ? s->term_step : s->step};
}

/* Storing. */

/* Is i below size, which its block may hang over? 0: always. */
static kval is_inside(struct contraction *p, kval i, sym size, i64 block)
{
    struct kir *k = p->m->k;
    if (sym_divides(p->m->g->sym, block, size)) return 0;
    return kir_lt(k, i, emit_size(p->m, size));
}

static kval both(struct kir *k, kval a, kval b) { return a && b ? kir_bin(k, KI_AND, a, b) : a ? a : b; }

/* Of the columns at idx, which the limit is set for. */
static kval bias_at(struct emit *m, const struct contraction *p, const kval *idx, kval val)
{
    if (!p->x.bias || p->bias_is_in) return val;
    kval v = kir_cast(m->k, p->type, emit_value(m, p->x.bias, &idx[p->x.n_axis]));
    return kir_add(m->k, val, kir_splat(m->k, v, kir_lanes(m->k, val)));
}

kval contract_whole_sum(struct emit *m, const void *user, const kval *idx)
{
    const struct contraction *p = user;
    return bias_at(m, p, idx, result_load(m, &p->y, idx));
}

void contract_store_whole(struct contraction *p, kval row, kval col, kval val)
{
    struct kir *k = p->m->k;
    u32 lanes = kir_lanes(k, val);
    kval idx[MAX_RANK];
    row = kir_add(k, p->a.first, row);
    col = kir_add(k, p->b.first, col);
    kval a = is_inside(p, row, p->x.m, p->s.bm), b = is_inside(p, col, p->x.n, p->s.bn);
    kval is_any = p->address->index(p, row, col, idx), is_there = both(k, both(k, a, b), is_any);
    bool is_whole = sym_divides(p->m->g->sym, lanes, p->x.n);
    idx[p->x.n_axis] = kir_ramp(k, idx[p->x.n_axis], 1, lanes);
    if (is_there) kir_if(k, is_there);
    kval limit = is_whole ? 0 : kir_sub(k, emit_size(p->m, p->x.n), col);
    emit_limit(p->m, limit);
    if (!p->y.temp) val = bias_at(p->m, p, idx, val);
    result_store(p->m, &p->y, idx, val, limit);
    emit_limit(p->m, 0);
    if (is_there) kir_end(k);
}

kval contract_bias(struct contraction *p, kval col, u32 lanes)
{
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], n = emit_size(p->m, p->x.n);
    col = kir_add(k, p->b.first, col);
    if (lanes == 1) col = kir_min(k, col, kir_add_i(k, n, -1));
    p->address->index(p, kir_int(k, 0), col, idx);
    kval at = kir_ramp(k, idx[p->x.n_axis], 1, lanes);
    emit_limit(p->m, lanes > 1 && !sym_divides(p->m->g->sym, p->s.bn, p->x.n) ? kir_sub(k, n, col) : 0);
    kval v = kir_splat(k, kir_cast(k, p->type, emit_value(p->m, p->x.bias, &at)), lanes);
    emit_limit(p->m, 0);
    return v;
}

bool contract_begins_with_bias(struct contraction *p)
{
    p->bias_is_in = p->x.bias && !p->s.stream_k && p->s.split_k == 1;
    return p->bias_is_in;
}

/* The grid. */

sym contract_block_count(const struct contraction *p)
{
    return sym_mul(p->m->g->sym, contract_operand_blocks(p, true), contract_operand_blocks(p, false));
}

sym contract_batch_count(const struct contraction *p)
{
    return space_count(&p->x.outer, p->m->g->sym, 0, p->x.outer.n);
}

kval contract_blocks(const struct contraction *p)
{
    return emit_size(p->m, sym_mul(p->m->g->sym, contract_batch_count(p), contract_block_count(p)));
}

kval contract_block_k_blocks(const struct contraction *p) { return emit_size(p->m, contract_k_blocks(p)); }

/* Number `at` of a batch's blocks, walked column by column within each `raster` rows of them. */
void contract_walk(struct contraction *p, kval at, kval *row, kval *col)
{
    struct kir *k = p->m->k;
    kval rows = emit_size(p->m, contract_operand_blocks(p, true)), cols = emit_size(p->m, contract_operand_blocks(p, false));
    kval area = kir_mul_i(k, cols, p->s.raster);
    kval first = kir_mul_i(k, kir_div(k, at, area), p->s.raster);
    kval height = kir_min(k, kir_sub(k, rows, first), kir_int(k, p->s.raster));
    at = kir_mod(k, at, area);
    *row = kir_add(k, first, kir_mod(k, at, height));
    *col = kir_div(k, at, height);
}

static void operand_place(struct operand *s, kval number)
{
    s->number = number;
    s->first = kir_mul_i(s->p->m->k, number, s->block);
}

void contract_place_at(struct contraction *p, kval batch, kval row, kval col)
{
    space_at(p->m, &p->x.outer, batch, p->pos);
    operand_place(&p->a, row);
    operand_place(&p->b, col);
}

void contract_place(struct contraction *p, kval number)
{
    struct kir *k = p->m->k;
    kval batch = kir_int(k, 0), row, col;
    if (p->x.outer.n) {
        kval n = emit_size(p->m, contract_block_count(p));
        batch = kir_div(k, number, n), number = kir_mod(k, number, n);
    }
    contract_walk(p, number, &row, &col);
    contract_place_at(p, batch, row, col);
}

static void arrays_open(struct contraction *p)
{
    struct kir *k = p->m->k;
    i64 a = p->st.a_direct ? 0 : p->s.stages * p->a.size, b = p->st.b_direct ? 0 : p->s.stages * p->b.size;
    p->a.base = 0, p->b.base = a;
    kval n = kir_int(k, i64_max(a + b, p->st.least));
    if (a + b + p->st.least == 0) return;
    p->array = p->st.swizzled ? kir_alloc_swizzled(k, p->st.type, n) : kir_alloc(k, KS_SHARED, p->st.type, 1, n);
    p->a.array = p->b.array = p->array;
    if (p->n_out) p->out = kir_alloc(k, KS_SHARED, p->out_type, 1, kir_int(k, p->n_out));
}

void contract_enter(struct contraction *p)
{
    wg_enter(&p->g);
    p->n_k_blocks = contract_block_k_blocks(p);
    arrays_open(p);
    if (p->s.pipe == PIPE_ASYNC) return;
    if (!p->st.a_direct) wg_copy_open(&p->a.copy);
    if (!p->st.b_direct) wg_copy_open(&p->b.copy);
}
