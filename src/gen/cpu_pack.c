// SPDX-License-Identifier: Apache-2.0
//
// cpu_pack: operands of GEMMs rearranged for the register tile.
//
// The right operand becomes blocks of nr vectors of columns, [block][term][column], zeros behind
// the last column; a pass of any length is a contiguous piece of a block. Where one instruction adds a group of
// terms it is [block][group of terms][column][term], zeros behind the last term of a step. The left operand becomes
// [row][term], a plain copy, when its terms are neighbours in memory: the tile reads scalars, one
// row at a time, and only the rows' distance matters. A power of two would put the rows of a tile
// into one set of the first cache, so that it is an odd number of cache lines. When rows are the
// neighbours it becomes [tile][term][row]. Fused prologues are evaluated here, once.
//
// A right operand whose terms are neighbours in memory, as weights (n, k), is read by vectors of a column's terms and transposed in registers, square by
// square. It takes as long for one row as for many, and a 32nd of the multiply-adds of 128 rows if these and permutations share no unit.
//
// Constants were packed when the kernel was compiled and keep their type. Those of 16 bits are converted by each tile, or once for all
// tiles of an iteration, block by block. So are codes of few bits (cpu_pack_codes.c).
#include "gen/cpu_gemm.h"

enum { LINE = 64 }; /* bytes */

kval gemm_pack_const(struct gemm_kernel *p)
{
    struct symtab *t = p->m->g->sym;
    struct pack *k = arena_new(p->m->arena, struct pack);
    const struct shape *s = &graph_value(p->m->g, p->x.b)->shape;
    u32 columns = p->x.pixels ? 0 : s->rank - 1, terms = p->x.pixels ? 1 : s->rank - 2;
    for (u32 i = 0; !p->x.pixels && i < terms; i++) pack_dim(k, s->dim[i], i, 1);
    pack_dim(k, sym_cdiv(t, p->x.n, sym_const(t, p->width)), columns, p->width);
    sym steps = sym_cdiv(t, p->x.k, sym_const(t, p->dot_k));
    pack_dim(k, sym_mul(t, steps, sym_const(t, p->dot_k / p->group)), terms, p->group);
    pack_dim(k, sym_const(t, p->width), columns, 1);
    if (p->group > 1) pack_dim(k, sym_const(t, p->group), terms, 1);
    return emit_pack(p->m, p->x.b, k);
}

/* n rounded up. */
static kval whole_groups(struct gemm_kernel *p, kval n)
{
    struct kir *k = p->m->k;
    return kir_mul_i(k, kir_div_i(k, kir_add_i(k, n, p->dot_k - 1), p->dot_k), p->dot_k);
}

/* In the whole packed operand. */
kval gemm_block(struct gemm_kernel *p, kval block)
{
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], at = kir_int(k, 0);
    if (!p->x.pixels) gemm_index(p->m, &p->x, p->x.b, p->pos, at, at, idx);
    for (u32 i = 0; !p->x.pixels && i + 2 < p->x.bs->rank; i++)
        at = kir_add(k, kir_mul(k, at, emit_size(p->m, p->x.bs->dim[i])), idx[i]);
    at = kir_add(k, kir_mul(k, at, p->n_blocks), block);
    return kir_mul_i(k, kir_mul(k, at, whole_groups(p, p->k)), p->width);
}

i64 gemm_pitch(const struct gemm_sched *s, i64 k, enum dtype t)
{
    i64 line = LINE / dtype_size(t), n = s->bk && (k < 0 || s->bk < k) ? s->bk : k;
    return (ceil_div(n, line) | 1) * line;
}

/* The load that a value comes from, through conversions, or where a condition does not choose something else; NULL: it is computed. */
static const struct kir_ins *load_of(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op == KI_CAST) return load_of(k, x->a);
    if (x->op == KI_SELECT) return load_of(k, kir_at(k, x->b)->op == KI_CONST ? x->c : x->b);
    return x->op == KI_LOAD && kir_is_far(kir_at(k, x->a)) ? x : NULL;
}

void gemm_ask(const struct gemm_kernel *p, enum kir_cache to, const kval *idx)
{
    struct kir *k = p->m->k;
    emit_ask(p->m, true);
    const struct kir_ins *x = load_of(k, emit_value(p->m, p->x.b, idx));
    emit_ask(p->m, false);
    if (x) kir_prefetch_to(k, to, x->a, x->b);
}

struct panel { /* element (i, j) goes to at + i*i_step + j*j_step */
    value_id v;
    kval array, at;
    kval i0, j0, ni, nj; /* first row and column of the operand, and how many exist */
    kval i_step, j_step;
    kval repeat;  /* not 0: so many rows, those behind ni are the last one again */
    bool along_j; /* vectors run along j */
    i64 group;    /* > 1, along j: so many rows lie side by side, i_step is from one group to the next */
};

static void copy_vector(struct gemm_kernel *p, const struct panel *q, kval i, kval j, kval n)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    i64 step = 1;
    kval idx[MAX_RANK], from = q->repeat ? kir_min(k, i, kir_add_i(k, q->ni, -1)) : i;
    kval row = kir_add(k, q->i0, from), col = kir_add(k, q->j0, j);
    kval at = kir_add(k, q->at, kir_mul(k, j, q->j_step));
    if (q->group > 1) at = kir_add(k, at, kir_mod_i(k, i, q->group)), i = kir_div_i(k, i, q->group);
    at = kir_add(k, at, kir_mul(k, i, q->i_step));
    if (q->along_j) col = kir_ramp(k, col, 1, p->lanes);
    else row = kir_ramp(k, row, 1, p->lanes);
    gemm_index(m, &p->x, q->v, p->pos, row, col, idx);
    kir_is_const(k, q->along_j ? q->j_step : q->i_step, &step);
    emit_limit(m, n);
    kval v = kir_cast(k, kir_dtype(k, q->array), emit_value(m, q->v, idx));
    kir_store_n(k, q->array, kir_ramp(k, at, step, p->lanes), v, n);
    emit_limit(m, 0);
}

static void copy_panel(struct gemm_kernel *p, const struct panel *q)
{
    struct kir *k = p->m->k;
    kval n = q->along_j ? q->nj : q->ni, zero = kir_int(k, 0);
    kval rows = q->repeat ? q->repeat : q->ni;
    struct vectors v = vectors_over(k, zero, n, p->lanes);
    kval s = kir_loop(k, KL_SERIAL, zero, q->along_j ? rows : q->nj, 1);
    while (vectors_next(&v)) copy_vector(p, q, q->along_j ? s : v.at, q->along_j ? v.at : s, v.limit);
    kir_end(k);
}

/* Zeros in the columns behind the last (of a [rows][width] panel). */
static void clear_behind(struct gemm_kernel *p, kval array, kval at, kval rows, kval have, i64 width)
{
    struct kir *k = p->m->k;
    i64 c;
    if (kir_is_const(k, have, &c) && c >= width) return;
    kir_if(k, kir_lt(k, have, kir_int(k, width)));
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), rows, 1);
    kval j = kir_loop(k, KL_SERIAL, have, kir_int(k, width), 1);
    kir_store(k, array, kir_add(k, at, kir_add(k, kir_mul_i(k, r, width), j)),
              kir_const_f(k, kir_dtype(k, array), 1, 0));
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

/* Zeros in the last group of n terms of a block, if it is not whole. */
static void clear_last_group(struct gemm_kernel *p, kval at, kval n)
{
    struct kir *k = p->m->k;
    i64 size = p->width * p->dot_k, c;
    kval rest = kir_mod_i(k, n, p->dot_k);
    if (kir_is_const(k, rest, &c) && c == 0) return;
    kir_if(k, kir_lt(k, kir_int(k, 0), rest));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, size), p->lanes);
    kval to = kir_add(k, at, kir_add(k, kir_mul_i(k, kir_div_i(k, n, p->dot_k), size), i));
    kir_store(k, p->right, kir_ramp(k, to, 1, p->lanes), kir_const_f(k, p->right_type, p->lanes, 0));
    kir_end(k);
    kir_end(k);
}

/* Loads of 16 bytes: larger squares would store longer vectors, but take more permutations for an element, which AVX2 does not have as one instruction. */
i64 gemm_square(const struct task *t, const struct gemm *x, u32 lanes)
{
    const u32 side = (u32)i64_min(lanes, 16 / dtype_size(graph_value(x->g, x->b)->dtype));
    return !x->pixels && !gemm_is_dense_along_last(t, x->b, lanes) && gemm_has_dense_terms(t, x, side) ? side : 0;
}

/* The first `limit` terms (0: all) of a square of the right operand, to `at`. */
static void pack_square(struct gemm_kernel *p, u32 side, const kval *column, kval term, kval at, kval limit)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    kval row[64], idx[MAX_RANK];
    assert(side <= countof(row));
    emit_limit(m, limit);
    for (u32 i = 0; i < side; i++) {
        gemm_index(m, &p->x, p->x.b, p->pos, kir_ramp(k, term, 1, side), column[i], idx);
        row[i] = kir_splat(k, kir_cast(k, p->right_type, emit_value(m, p->x.b, idx)), side);
    }
    emit_limit(m, 0);
    transpose_vectors(k, row, side);
    for (u32 i = 0; i < side; i++) {
        if (limit) kir_if(k, kir_lt(k, kir_int(k, i), limit));
        kir_store(k, p->right, kir_ramp(k, kir_add_i(k, at, i * p->width), 1, side), row[i]);
        if (limit) kir_end(k);
    }
}

enum { STRIP = 64 }; /* terms that are packed of all columns of a block before the next: what is stored of them stays in the first cache */

/* As pack_block. Columns behind the last are the last again. */
static void pack_squares(struct gemm_kernel *p, i64 side, kval block, kval at, kval from, kval n)
{
    struct kir *k = p->m->k;
    kval column[64], last = kir_add_i(k, p->n, -1), zero = kir_int(k, 0);
    kval strip = kir_loop(k, KL_SERIAL, zero, n, STRIP), end = kir_min(k, n, kir_add_i(k, strip, STRIP));
    kval j = kir_loop(k, KL_SERIAL, zero, kir_int(k, p->width), side), first = kir_add(k, kir_mul_i(k, block, p->width), j);
    for (i64 i = 0; i < side; i++) column[i] = kir_min(k, kir_add_i(k, first, i), last);
    struct vectors v = vectors_over(k, strip, end, side);
    while (vectors_next(&v))
        pack_square(p, (u32)side, column, kir_add(k, from, v.at), kir_add(k, kir_add(k, at, j), kir_mul_i(k, v.at, p->width)), v.limit);
    kir_end(k);
    kir_end(k);
}

/* n terms of a block, from `from`, to at. */
static void pack_block(struct gemm_kernel *p, kval block, kval at, kval from, kval n)
{
    struct kir *k = p->m->k;
    const i64 side = p->dot_k > 1 ? 0 : gemm_square(p->t, &p->x, p->lanes);
    if (side) {
        pack_squares(p, side, block, at, from, n);
        return;
    }
    kval first = kir_mul_i(k, block, p->width);
    kval have = kir_min(k, kir_sub(k, p->n, first), kir_int(k, p->width));
    struct panel q = {.v = p->x.b,
                      .array = p->right,
                      .at = at,
                      .i0 = from,
                      .j0 = first,
                      .ni = n,
                      .nj = have,
                      .i_step = kir_int(k, p->width * p->group),
                      .j_step = kir_int(k, p->group),
                      .along_j = p->dot_k > 1 || gemm_is_dense_along_last(p->t, p->x.b, p->lanes),
                      .group = p->group};
    kval groups = kir_div_i(k, whole_groups(p, n), p->group);
    clear_behind(p, p->right, at, groups, kir_mul_i(k, have, p->group), p->width * p->group);
    if (p->dot_k > 1) clear_last_group(p, at, n);
    copy_panel(p, &q);
}

/* The pass' terms of a packed block of constants, as the type of the sums. */
static void convert_block(struct gemm_kernel *p, kval block)
{
    struct kir *k = p->m->k;
    kval at = kir_add(k, gemm_block(p, block), kir_mul_i(k, p->c.at, p->width));
    kval term = kir_loop(k, KL_SERIAL, kir_int(k, 0), p->c.len, 1), to = kir_mul_i(k, term, p->width);
    for (i64 j = 0; j < p->width; j += p->lanes) {
        kval i = kir_add_i(k, to, j);
        kval v = kir_load(k, p->constant, kir_ramp(k, kir_add(k, at, i), 1, p->lanes));
        kir_store(k, p->right, kir_ramp(k, i, 1, p->lanes), kir_cast(k, p->right_type, v));
    }
    kir_end(k);
}

void gemm_pack_right(struct gemm_kernel *p, kval block)
{
    if (p->x.codes.block) gemm_convert_codes(p, block);
    else if (p->constant) convert_block(p, block);
    else pack_block(p, block, kir_int(p->m->k, 0), p->c.at, p->c.len);
}

enum { TERMS = 256 }; /* that an iteration packs of a block */

/* The grids of packing once: the number of the block, the first term. */
struct pack_grid { kval block, from, n, to; };

static struct pack_grid open_pack_grid(struct gemm_kernel *p)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    struct space own = {.rank = p->x.bs->rank};
    u32 group[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7}, r = p->x.bs->rank;
    kval at[MAX_RANK] = {0};
    for (u32 i = 0; i + 2 < r; i++) own.g[own.n++] = (struct axis_run){p->x.bs->dim[i], i};
    kval gb = kir_grid(k, emit_size(m, space_count(&own, st, 0, own.n)));
    kval gn = kir_grid(k, emit_size(m, sym_cdiv(st, p->x.n, sym_const(st, p->width))));
    kval gk = kir_grid(k, emit_size(m, sym_cdiv(st, p->x.k, sym_const(st, TERMS))));
    p->n_blocks = emit_size(m, sym_cdiv(st, p->x.n, sym_const(st, p->width)));
    p->n = emit_size(m, p->x.n), p->k = emit_size(m, p->x.k);
    space_split(m, &own, group, own.n, gb, at);
    for (u32 i = 0; i < MAX_RANK; i++) p->pos[i] = kir_int(k, 0);
    for (u32 i = 0; i < own.n; i++) p->pos[p->x.batch - own.n + i] = at[i];
    struct pack_grid g = {.block = gn, .from = kir_mul_i(k, gk, TERMS)};
    g.n = kir_min(k, kir_int(k, TERMS), kir_sub(k, p->k, g.from));
    g.to = kir_add(k, gemm_block(p, gn), kir_mul_i(k, g.from, p->width));
    return g;
}

void gemm_pack_once(struct gemm_kernel *p)
{
    struct pack_grid g = open_pack_grid(p);
    pack_block(p, g.block, g.to, g.from, g.n);
    for (u32 i = 0; i < 3; i++) kir_end(p->m->k);
}

/* [tile][term][row] */
static void pack_by_terms(struct gemm_kernel *p)
{
    struct kir *k = p->m->k;
    kval row = kir_loop(k, KL_SERIAL, p->m0, p->m1, p->s.mr);
    kval at = kir_mul(k, kir_sub(k, row, p->m0), p->c.len); /* tile number * mr * terms */
    kval n = kir_min(k, kir_sub(k, p->m1, row), kir_int(k, p->s.mr));
    struct panel q = {.v = p->x.a,
                      .array = p->left,
                      .at = at,
                      .i0 = row,
                      .j0 = p->c.at,
                      .ni = n,
                      .nj = p->c.len,
                      .i_step = kir_int(k, 1),
                      .j_step = kir_int(k, p->s.mr)};
    if (p->static_m < 0) clear_behind(p, p->left, at, p->c.len, n, p->s.mr);
    copy_panel(p, &q);
    kir_end(k);
}

/* Zeros behind the last term of every row, so that its group is whole. */
static void clear_terms(struct gemm_kernel *p, kval rows)
{
    struct kir *k = p->m->k;
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), rows, 1);
    kval j = kir_loop(k, KL_SERIAL, p->c.len, whole_groups(p, p->c.len), 1);
    kir_store(k, p->left, kir_add(k, kir_mul(k, r, p->pitch), j), kir_const_f(k, p->left_type, 1, 0));
    kir_end(k);
    kir_end(k);
}

void gemm_pack_left(struct gemm_kernel *p)
{
    struct kir *k = p->m->k;
    if (p->tile.leaf == &tile_code_dots) {
        gemm_pack_digits(p);
        return;
    }
    if (p->left_by_terms) {
        pack_by_terms(p);
        return;
    }
    kval n = kir_sub(k, p->m1, p->m0);
    struct panel q = {.v = p->x.a,
                      .array = p->left,
                      .at = kir_int(k, 0),
                      .i0 = p->m0,
                      .j0 = p->c.at,
                      .ni = n,
                      .nj = p->c.len,
                      .i_step = p->pitch,
                      .j_step = kir_int(k, 1),
                      .along_j = true};
    if (p->static_m < 0)
        q.repeat = kir_mul_i(k, kir_div_i(k, kir_add_i(k, n, p->s.mr - 1), p->s.mr), p->s.mr);
    copy_panel(p, &q);
    if (p->dot_k > 1 && (p->static_k < 0 || p->static_k % p->dot_k)) clear_terms(p, q.repeat ? q.repeat : n);
}
