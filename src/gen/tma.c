// SPDX-License-Identifier: Apache-2.0
//
// tma: operands that the device copies to shared memory by itself, in boxes that the first thread of a workgroup asks for (TILE of kernel IR, the tensor
// memory accelerator of CUDA): no thread computes addresses. An operand is a matrix in memory, batches one below the other; a box is a panel of a
// K block, or 256 lines of it.
//
// Elements behind the end of a matrix are zeros. So are terms behind the end of the left operand, whose columns they are. Those of the right
// one are rows, and the next batch follows them: with several batches its K blocks must be whole.
#include "gen/contract.h"

enum { PIECE = 16 }; /* bytes */

static i64 known(const struct graph *g, sym s) { return gen_static(g, s, 0); }

/* Elements of axes from .. to - 1; 0: not known now, or too many. */
static i64 count(const struct graph *g, const struct shape *s, u32 from, u32 to)
{
    i64 n = 1;
    for (u32 i = from; i < to; i++)
        if (__builtin_mul_overflow(n, known(g, s->dim[i]), &n) || n > INT32_MAX) return 0;
    return n;
}

static bool is_boxable(const struct gemm *x, value_id v, i64 bk)
{
    const struct value *s = graph_value(x->g, v);
    const struct shape room = value_room(s);
    u32 r = s->shape.rank;
    if (s->dtype != graph_value(x->g, x->a)->dtype || r < 2 || (x->merged && v == x->a)) return false;
    i64 all = count(x->g, &s->shape, 0, r), cols = known(x->g, s->shape.dim[r - 1]);
    if (all <= 0 || cols * dtype_size(s->dtype) % PIECE || x->pixels) return false;
    for (u32 i = 0; i < r; i++)
        if (room.dim[i] != s->shape.dim[i]) return false;
    return v == x->a || count(x->g, &s->shape, 0, r - 2) == 1 || known(x->g, x->k) % bk == 0;
}

bool contract_is_boxable(const struct gemm *x, i64 bk)
{
    return x->a_plain && x->b_plain && is_boxable(x, x->a, bk) && is_boxable(x, x->b, bk);
}

/* The row of the operand's matrix that idx is in. */
static kval row_of(struct emit *m, value_id v, const kval *idx)
{
    const struct shape *s = &graph_value(m->g, v)->shape;
    kval at = kir_int(m->k, 0);
    for (u32 i = 0; i + 1 < s->rank; i++) at = kir_add(m->k, kir_mul(m->k, at, emit_size(m, s->dim[i])), idx[i]);
    return at;
}

static u32 map_of(const struct operand *s, i64 lines)
{
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    const struct shape *shape = &graph_value(p->m->g, s->v)->shape;
    i64 cols = known(p->m->g, shape->dim[shape->rank - 1]);
    struct kir_map map = {.buf = (u32)kir_at(k, p->m->buf[s->v])->imm.i,
                          .rows = count(p->m->g, shape, 0, shape->rank - 1),
                          .cols = cols,
                          .pitch = cols,
                          .box_rows = (u32)i64_min(lines, KIR_MAX_SIDE),
                          .box_cols = (u32)p->st.panel};
    return kir_map(k, &map);
}

static void copy_operand(struct operand *s)
{
    struct contraction *p = s->p;
    struct kir *k = p->m->k;
    bool is_a = s == &p->a; /* its lines are along the terms, those of b across */
    i64 lines = is_a ? s->block : p->s.bk, length = is_a ? p->s.bk : s->block;
    kval terms = kir_mul_i(k, p->k_block, p->s.bk), idx[MAX_RANK];
    u32 map = map_of(s, lines);
    assert(s->along_k == is_a && (s->term_step == 1) == is_a);
    for (i64 from = 0; from < length; from += p->st.panel)
        for (i64 line = 0; line < lines; line += k->map.v[map].box_rows) {
            kval row = kir_add_i(k, is_a ? s->first : terms, line), col = kir_add_i(k, is_a ? terms : s->first, from);
            gemm_index(p->m, &p->x, s->v, p->pos, row, col, idx);
            struct kir_tile t = {.array = p->array,
                                 .at = s->at(s, &(struct contract_term){.at = kir_int(k, is_a ? from : line)}, kir_int(k, is_a ? line : from)),
                                 .map = map,
                                 .row = row_of(p->m, s->v, idx),
                                 .col = col};
            kir_tile(k, &t);
        }
}

void contract_copy_boxes(struct contraction *p)
{
    struct kir *k = p->m->k;
    kir_if(k, kir_lt(k, p->g.t, kir_int(k, 1)));
    copy_operand(&p->a);
    copy_operand(&p->b);
    kir_end(k);
}
