// SPDX-License-Identifier: Apache-2.0
//
// addr_matrix: the addressing of contractions by a workgroup whose operands are matrices, batched and broadcast, transposed or not. Prologues and
// transpositions are evaluated where an element is read; constants are packed once, in the order of the copies, with zeros behind their ends.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). Packed: [batches][block][K block][term][row or column].
#include "gen/contract.h"

struct matrices { struct addressing form; kval a, b; /* BUF of a packed constant, 0: none */ };

static bool is_packable(const struct gemm *x, value_id v)
{
    const struct value *c = graph_value(x->g, v);
    bool is_merged = x->merged && v == x->a;
    return c->is_const && c->shape.rank > 1 && c->layout == LAYOUT_ROWS && !is_merged &&
           shape_is_static(x->g->sym, &c->shape, (i64[MAX_RANK]){0});
}

static kval pack_matrix(struct contraction *p, value_id v, bool is_a)
{
    struct symtab *t = p->m->g->sym;
    struct pack *k = arena_new(p->m->arena, struct pack);
    const struct shape *shape = &graph_value(p->m->g, v)->shape;
    i64 block = is_a ? p->s.bm : p->s.bn;
    u32 row = shape->rank - 2, col = shape->rank - 1;
    u32 across = is_a ? row : col, along = is_a ? col : row;
    for (u32 i = 0; i < row; i++) pack_dim(k, shape->dim[i], i, 1);
    pack_dim(k, contract_operand_blocks(p, is_a), across, block);
    pack_dim(k, contract_k_blocks(p), along, p->s.bk);
    pack_dim_i(k, t, p->s.bk, along, 1);
    pack_dim_i(k, t, block, across, 1);
    return emit_pack(p->m, v, k);
}

static kval read_packed(const struct operand *s, kval packed, kval term, kval i, u32 lanes)
{
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    const struct shape *shape = &graph_value(p->m->g, s->v)->shape;
    kval idx[MAX_RANK], at = kir_int(k, 0);
    gemm_index(p->m, &p->x, s->v, p->pos, at, at, idx);
    for (u32 d = 0; d + 2 < shape->rank; d++)
        at = kir_add(k, kir_mul(k, at, emit_size(p->m, shape->dim[d])), idx[d]);
    at = kir_add(k, kir_mul(k, at, emit_size(p->m, contract_operand_blocks(p, s == &p->a))), s->number);
    at = kir_add(k, kir_mul(k, at, p->n_k_blocks), p->k_block);
    at = kir_add(k, kir_mul_i(k, at, p->s.bk), term);
    at = kir_add(k, kir_mul_i(k, at, s->block), i);
    return kir_load(k, packed, kir_ramp(k, at, 1, lanes));
}

/* i, but where size need not be a multiple of `block` so that a vector of `lanes` lies within. */
static kval clamp(struct contraction *p, kval i, sym size, i64 block, u32 lanes)
{
    struct kir *k = p->m->k;
    if (sym_divides(p->m->g->sym, block, size)) return i;
    return kir_min(k, i, kir_add_i(k, emit_size(p->m, size), -(i64)lanes));
}

/* v, of which `rest` terms exist from its first on, with zeros behind them, as a load of those that exist: a copy of it need not pass
   through registers. 0: v is no plain load of what is held. A vector has its terms side by side or of one number, and is whole or none. */
static kval load_existing(const struct operand *s, kval v, kval rest)
{
    struct kir *k = s->p->m->k;
    const struct kir_ins x = *kir_at(k, kir_cast(k, s->p->st.type, v));
    if (s->p->s.pipe != PIPE_ASYNC || x.op != KI_LOAD || x.c || x.lanes != s->copy.share.lanes) return 0;
    if (!kir_is_far(kir_at(k, x.a)) || !kir_is_contiguous(k, x.b)) return 0;
    return kir_load_n(k, x.a, x.b, kir_mul_i(k, rest, s->along_k ? 1 : x.lanes));
}

static kval element(const struct contraction *p, bool is_b, kval i, kval term)
{
    value_id v = is_b ? p->x.b : p->x.a;
    kval idx[MAX_RANK];
    gemm_index(p->m, &p->x, v, p->pos, is_b ? term : i, is_b ? i : term, idx);
    return emit_value(p->m, v, idx);
}

static kval read_value(const struct operand *s, kval term, kval i, u32 lanes)
{
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    kval t = kir_add(k, kir_mul_i(k, p->k_block, p->s.bk), term);
    kval at = clamp(p, kir_add(k, s->first, i), s->across, s->block, s->along_k ? 1 : lanes);
    kval inside = clamp(p, t, p->x.k, p->s.bk, s->along_k ? lanes : 1);
    at = s->along_k ? at : kir_ramp(k, at, 1, lanes);
    kval term_at = s->along_k ? kir_ramp(k, inside, 1, lanes) : inside;
    kval v = element(p, s == &p->b, at, term_at);
    if (inside == t) return v;
    kval some = load_existing(s, v, kir_sub(k, emit_size(p->m, p->x.k), t));
    if (some) return some;
    return kir_select(k, kir_lt(k, t, emit_size(p->m, p->x.k)), v,
                      kir_const_f(k, kir_dtype(k, v), 1, 0));
}

static kval read(const struct operand *s, kval term, kval i, u32 lanes)
{
    const struct matrices *x = s->p->address->user;
    kval packed = s == &s->p->a ? x->a : x->b;
    return packed ? read_packed(s, packed, term, i, lanes) : read_value(s, term, i, lanes);
}

static kval index_of(const struct contraction *p, kval row, kval col, kval idx[MAX_RANK])
{
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = p->pos[i];
    if (p->x.m_axis >= 0) idx[p->x.m_axis] = row;
    idx[p->x.n_axis] = col;
    return 0;
}

/* Where elements of an operand lie side by side in memory. */
static struct contract_run run_in_memory(const struct gemm *x, const struct task *t, bool is_a)
{
    bool along_k = gemm_is_dense_along_last(t, is_a ? x->a : x->b, 4) == is_a;
    return (struct contract_run){along_k, along_k ? x->k : is_a ? x->m : x->n};
}

/* Likewise; packs a constant. */
static struct contract_run run_of(struct contraction *p, const struct task *t, bool is_a, kval *packed)
{
    value_id v = is_a ? p->x.a : p->x.b;
    if (!is_packable(&p->x, v)) return run_in_memory(&p->x, t, is_a);
    *packed = pack_matrix(p, v, is_a);
    return (struct contract_run){false, sym_const(p->m->g->sym, is_a ? p->s.bm : p->s.bn)};
}

void contract_matrices(struct contraction *p, const struct task *t)
{
    struct matrices *x = arena_new(p->m->arena, struct matrices);
    *x = (struct matrices){.form = {.user = x, .read = read, .index = index_of, .element = element}};
    x->form.a = run_of(p, t, true, &x->a);
    x->form.b = run_of(p, t, false, &x->b);
    p->address = &x->form;
}

void contract_matrices_unpacked(struct contraction *p, const struct task *t)
{
    struct matrices *x = arena_new(p->m->arena, struct matrices);
    *x = (struct matrices){.form = {.user = x, .read = read, .index = index_of, .element = element}};
    x->form.a = run_in_memory(&p->x, t, true);
    x->form.b = run_in_memory(&p->x, t, false);
    p->address = &x->form;
}

void contract_matrices_in_place(struct contraction *p)
{
    static const struct addressing form = {.index = index_of, .element = element};
    p->address = &form;
}

static bool analyze(struct contract_task *c, const struct task *t, struct arena *a)
{
    (void)a;
    return gemm_of(&c->x, t);
}

static void open(const struct contract_task *c, struct contraction *p, const struct task *t)
{
    (void)c;
    contract_matrices(p, t);
}

const struct contract_form contract_matrix = {analyze, open};
