// SPDX-License-Identifier: Apache-2.0
//
// cpu_addr_matrix: GEMM on processors with caches (cpu_contract.h), by the loops of Goto & van de Geijn
// (Anatomy of high-performance matrix multiplication, 2008, section 5): a grid iteration owns some
// rows and columns of the result; for every pass of bk terms it packs its rows of the left operand,
// which then stay in the second cache, takes one block of columns after the other, which stays in
// the first, and runs the register tile down the rows. Sums wait between passes in the
// output, or in a TEMP array when the output cannot hold them.
//
// Rows and columns left over at the ends get tiles of their own size where sizes are known; elsewhere one tile hangs over, of rows the lower of two
// that fit. Long sums of small results are cut in parts that different iterations compute and a grid behind adds up.
#include "gen/cpu_gemm.h"

struct gemm_split gemm_split_of(const struct gemm *x, const struct gemm_sched *s,
                                      u32 lanes)
{
    struct gemm_split d = {.mb = s->mb, .nb = s->nb};
    i64 m = gen_static(x->g, x->m, -1), n = gen_static(x->g, x->n, -1),
        k = gen_static(x->g, x->k, -1);
    i64 tiles = ceil_div(m, s->mr), blocks = ceil_div(n, s->nr * (i64)lanes);
    if (m > 0 && d.mb) d.mb = d.mb < tiles ? ceil_div(tiles, ceil_div(tiles, d.mb)) : 0;
    if (n > 0 && d.nb) d.nb = d.nb < blocks ? ceil_div(blocks, ceil_div(blocks, d.nb)) : 0;
    if (s->split_k > 1) d.chunk = ceil_div(k, s->split_k * 16) * 16;
    d.many = s->bk && (k < 0 || s->bk < (d.chunk ? d.chunk : k));
    return d;
}

enum { LEAST_ROWS = 8 }; /* fewer leave most of a matrix unit idle */

/* The largest magnitude of a code, of its zero point and of their difference; signed codes and their zero points count as 128 higher, as tile_code_dots has
   them. Zero points of columns are all that their type has. */
static i64 largest_of(const struct op_codes *c)
{
    const i64 codes = (1 << code_bits(c->type)) - 1, shift = c->type == DT_I8 ? 128 : 0, least = c->zero ? 0 : c->offset, most = c->zero ? UINT8_MAX : c->offset;
    if (least < -INT32_MAX || most > INT32_MAX) return INT32_MAX;
    return i64_max(most + shift, codes - i64_min(0, least + shift));
}

/* A block's sums of these times the largest integers that are summed in one i32 (two digits, or the first two of three) fit it. */
static bool sums_fit(const struct gemm *x)
{
    const i64 most = 1 << 2 * code_digit_bits(1);
    return x->codes.block <= INT32_MAX / (most * largest_of(&x->codes));
}

/* Three digits in pairs take more time for a row than multiply-adds, and less for converting codes: they are for one row. */
static bool multiplies_codes(const struct gemm *x, const struct caps *c)
{
    if (gemm_has_words(x, c)) return true;
    return code_dots_suit(c, x->codes.type) && sums_fit(x) && (x->digits < CODE_DIGITS || caps_has_dot(c, DT_U8, DT_I8, DT_I32) || gen_static(x->g, x->m, 0) == 1);
}

bool gemm_has_words(const struct gemm *x, const struct caps *c)
{
    return x->codes.block && x->digits < CODE_DIGITS && code_words_suit(c, x->codes.type) && sums_fit(x);
}

/* Digits of a left operand in fixed point. Two take no longer than one where weights are read from memory, and are more exact. */
static i64 digits_of(const struct gemm *x, const struct caps *c, enum gemm_left left)
{
    return gemm_has_words(x, c) ? 1 : left == LEFT_BYTES ? x->digits : i64_max(2, x->digits);
}

struct tile_product gemm_product(const struct gemm *x, const struct caps *c, enum gemm_left left, enum gemm_right right)
{
    if (x->codes.block && right == RIGHT_BLOCKS) return tile_multiply_add;
    if (x->codes.block && multiplies_codes(x, c)) return (struct tile_product){.leaf = &tile_code_dots, .terms = x->codes.block, .group = x->codes.block, .sums = digits_of(x, c, left)};
    if (x->codes.block) return (struct tile_product){.leaf = &tile_codes, .terms = x->codes.block, .group = x->codes.block};
    const struct tile_operands o = {graph_value(x->g, x->a)->dtype, graph_value(x->g, x->b)->dtype, x->type, gen_static(x->g, x->k, -1), x->acc16};
    i64 m = gen_static(x->g, x->m, LEAST_ROWS);
    return x->m_axis >= 0 && m >= LEAST_ROWS ? tile_product_of_rows(c, &o) : tile_product_of(c, &o);
}

struct gemm_sched gemm_tile(struct gemm_sched s, struct tile_product p)
{
    s.mr *= tile_unit(p);
    if (s.right == RIGHT_INNER) s.columns = s.nr, s.nr = 1;
    return s;
}

bool gemm_converts_right(const struct gemm *x, const struct caps *c)
{
    enum dtype b = graph_value(x->g, x->b)->dtype;
    return x->codes.block || (x->b_const && dtype_is_float(b) && b != x->type && gemm_product(x, c, LEFT_PACKED, RIGHT_ONCE).terms == 1);
}

i64 gemm_half(i64 mr, const struct tile_leaf *leaf)
{
    const i64 half = round_up(ceil_div(mr, 2), i64_max(1, leaf->rows));
    return half < mr ? half : 0;
}

i64 gemm_rest(i64 rows, i64 mr, const struct tile_leaf *leaf)
{
    const i64 half = gemm_half(mr, leaf);
    return rows > half ? mr : rows ? half : 0;
}

/* How tiles ask for the next block of columns while they work on this one: those of all rows of the iteration together for all of it, however many there are,
   each in step `i` of its `steps` for its share of as many lines as a step computes with. Evenly, where the number of tiles is known; else each for as
   many, as steps would have to be divided by it. */
struct share {
    const struct cpu_piece *e;
    kval i, steps;
    i64 lines, line; /* of a step; elements of a line */
    void (*ask)(struct gemm_kernel *p, const struct share *s, kval at); /* for the line of element `at` of the block */
    kval next, n;    /* ask_array: the block's first element and the number of elements */
};

static void prefetch_share(struct gemm_kernel *p, const struct share *s)
{
    struct kir *k = p->m->k;
    const i64 known = p->static_m < 0 ? 0 : p->d.mb ? p->d.mb : ceil_div(p->static_m, p->s.mr);
    kval tile = kir_div_i(k, kir_sub(k, s->e->at[CPU_X], p->m0), p->s.mr), step = kir_add(k, kir_mul(k, tile, s->steps), s->i), at;
    if (known) at = kir_div_i(k, kir_mul_i(k, step, s->lines), known);
    else {
        kval tiles = kir_div_i(k, kir_add_i(k, kir_sub(k, p->m1, p->m0), p->s.mr - 1), p->s.mr);
        at = kir_mul(k, step, kir_div(k, kir_add_i(k, tiles, s->lines - 1), tiles));
    }
    for (i64 j = 0; j < ceil_div(s->lines, i64_max(1, known)); j++) s->ask(p, s, kir_add_i(k, kir_mul_i(k, at, s->line), j * s->line));
}

static enum kir_cache asked_cache(const struct gemm_kernel *p) { return p->s.ahead == AHEAD_SECOND ? KC_SECOND : KC_FIRST; }

/* Of a block that is packed already. */
static void ask_array(struct gemm_kernel *p, const struct share *s, kval at)
{
    struct kir *k = p->m->k;
    kir_prefetch_to(k, asked_cache(p), p->constant ? p->constant : p->right, kir_add(k, s->next, kir_min(k, at, s->n)));
}

/* Of a block that will be packed by squares: the pass' terms of a column, then the next column's. */
static void ask_column(struct gemm_kernel *p, const struct share *s, kval at)
{
    struct kir *k = p->m->k;
    const i64 terms = round_up(p->d.many ? p->s.bk : p->d.chunk ? p->d.chunk : p->static_k, s->line);
    kval idx[MAX_RANK], column = kir_add(k, kir_mul_i(k, kir_add_i(k, s->e->at[CPU_BLOCK], 1), p->width), kir_div_i(k, at, terms));
    gemm_index(p->m, &p->x, p->x.b, p->pos, kir_add(k, p->c.at, kir_mod_i(k, at, terms)), column, idx);
    gemm_ask(p, asked_cache(p), idx);
}

enum { LINE = 64 };

/* Its terms of the pass, while the tile works on `n_terms` from term i on. */
static void prefetch_next(struct gemm_kernel *p, const struct cpu_piece *e, kval i, i64 n_terms)
{
    struct kir *k = p->m->k;
    const bool is_packed = p->constant || p->s.right == RIGHT_ONCE;
    const enum dtype type = !is_packed ? graph_value(p->m->g, p->x.b)->dtype : kir_dtype(k, p->constant ? p->constant : p->right);
    struct share s = {.e = e, .line = LINE / dtype_size(type), .ask = is_packed ? ask_array : ask_column};
    s.lines = ceil_div(p->width * n_terms * p->dot_k, s.line);
    s.i = kir_div_i(k, i, n_terms), s.steps = kir_div_i(k, p->c.len, n_terms * p->dot_k);
    if (is_packed) s.next = kir_add(k, gemm_block(p, kir_add_i(k, e->at[CPU_BLOCK], 1)), kir_mul_i(k, p->c.at, p->width)), s.n = kir_mul_i(k, p->c.len, p->width);
    prefetch_share(p, &s);
}

/* Likewise of codes: while the tile works on block of terms i. Blocks of columns of all passes lie behind each other. */
static void prefetch_next_codes(struct gemm_kernel *p, const struct cpu_piece *e, kval i)
{
    struct kir *k = p->m->k;
    const i64 step = gemm_codes_step(p), line = LINE / (p->tile.leaf == &tile_codes && code_bits(p->codes.type) < 8 ? 4 : 1); /* elements */
    const struct share s = {.e = e, .i = i, .steps = p->run.n, .lines = ceil_div(step, line), .line = line, .ask = ask_array,
                            .next = gemm_codes_at(p, kir_add_i(k, e->at[CPU_BLOCK], 1)), .n = kir_mul_i(k, p->run.n, step)};
    prefetch_share(p, &s);
}

/* Prefetches the rows of the next tile of the left operand in place, at the terms of this one: rows far apart are
   short streams, which hardware notices late. */
static void fetch_next(struct gemm_kernel *p, const struct tile *t, const struct tile_in *in)
{
    struct kir *k = p->m->k;
    for (i64 i = 0; i < t->tx; i++)
        kir_prefetch(k, in->buf, kir_add(k, in->at, kir_mul_i(k, in->x_step, t->tx + i)));
}

static void ask(void *user, const struct tile *t, const struct tile_in *in, kval i)
{
    struct gemm_kernel *p = user;
    bool by_blocks = p->s.ahead && p->s.ahead <= AHEAD_SECOND;
    if (by_blocks && tile_has_codes(t->leaf)) prefetch_next_codes(p, &p->piece, i);
    else if (by_blocks) prefetch_next(p, &p->piece, i, p->s.ku);
    if (p->s.fetch && !p->piece.is_over) fetch_next(p, t, in);
}

/* The terms of a pass, by groups: ku at a time, then one at a time. */
void gemm_multiply(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    if (p->s.right == RIGHT_INNER) {
        gemm_multiply_inner(p, t, e);
        return;
    }
    bool by_blocks = tile_has_codes(t->leaf); /* each of which is a loop */
    i64 ku = by_blocks ? 1 : p->s.ku, g = p->dot_k, all = p->static_k < 0 ? -1 : ceil_div(p->static_k, g), chunk = p->d.chunk ? 16 / g : all;
    t->limit = p->limit;
    p->run.n = kir_div_i(k, kir_add_i(k, c->len, g - 1), g), p->run.ku = ku;
    p->run.exact = ku == 1 || (!p->is_part && p->s.bk / g % ku == 0 && chunk >= 0 && chunk % ku == 0 && all >= 0 && all % ku == 0);
    p->run.ask = ask, p->run.user = p, p->piece = *e;
    tile_run(t, &p->run);
}

struct tile_out gemm_target(struct cpu_contraction *c, const struct cpu_piece *e)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    struct gemm *x = &p->x;
    struct tile_out o = {.y_axis = -1,
                         .x_axis = x->m_axis,
                         .c_axis = x->n_axis,
                         .c = kir_mul_i(k, e->at[CPU_BLOCK], p->width),
                         .c_end = e->is_full ? 0 : p->n,
                         .x_end = p->m1,
                         .x_exact = !e->is_over,
                         .x_short = e->is_over && e->rows == p->s.mr,
                         .anchor = x->y,
                         .temp = c->r.temp,
                         .parts = p->s.split_k,
                         .part = p->part,
                         .rows = p->rows};
    for (u32 i = 0; i < MAX_RANK; i++) o.idx[i] = p->pos[i];
    if (x->m_axis >= 0) o.idx[x->m_axis] = e->at[CPU_X];
    return o;
}

/* From one row of an operand to the next, in memory. */
static kval room_columns(struct gemm_kernel *p, value_id v)
{
    struct shape s = value_room(graph_value(p->m->g, v));
    return emit_size(p->m, s.dim[p->x.pixels ? 1 : s.rank - 1]);
}

/* Where a tile's rows are, and how far apart their terms. */
static struct tile_in left_of(struct gemm_kernel *p, const struct cpu_piece *e, kval px[64], kval *step)
{
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], row = kir_sub(k, e->at[CPU_X], p->m0);
    struct tile_in in = {.buf = p->left, .y_step = kir_int(k, 0), .x_step = kir_int(k, 1)};
    *step = kir_int(k, p->dot_k);
    if (p->s.pack && p->left_by_terms) {
        in.at = kir_mul(k, row, p->c.len);
        *step = kir_int(k, p->s.mr);
    } else if (p->s.pack) {
        in.at = kir_mul(k, row, p->pitch);
        if (p->first) in.at = kir_add(k, in.at, p->first);
        in.x_step = p->pitch;
        if (p->tile.leaf == &tile_code_dots) *step = kir_int(k, p->codes.block * p->codes.digits);
    } else {
        gemm_index(p->m, &p->x, p->x.a, p->pos, e->at[CPU_X], p->c.at, idx);
        in.at = emit_offset(p->m, p->x.a, idx);
        in.x_step = room_columns(p, p->x.a);
        kval last = kir_add_i(k, kir_sub(k, p->m1, e->at[CPU_X]), -1);
        for (i64 i = 0; e->is_over && i < e->rows; i++)
            px[i] = kir_mul(k, kir_min(k, kir_int(k, i), last), in.x_step);
        in.px = e->is_over ? px : NULL;
    }
    return in;
}

static kval right_of(struct gemm_kernel *p, const struct cpu_piece *e, kval *step)
{
    struct kir *k = p->m->k;
    kval idx[MAX_RANK];
    *step = kir_int(k, p->width * p->dot_k);
    if (p->s.right == RIGHT_BLOCKS) return kir_int(k, 0);
    if (p->x.codes.block) {
        *step = kir_int(k, gemm_codes_step(p));
        return gemm_codes_at(p, e->at[CPU_BLOCK]);
    }
    if (p->s.right == RIGHT_ONCE)
        return kir_add(k, gemm_block(p, e->at[CPU_BLOCK]), kir_mul_i(k, p->c.at, p->width));
    *step = room_columns(p, p->x.b);
    gemm_index(p->m, &p->x, p->x.b, p->pos, p->c.at, kir_mul_i(k, e->at[CPU_BLOCK], p->width), idx);
    return emit_offset(p->m, p->x.b, idx);
}

void gemm_find(struct cpu_contraction *c, const struct cpu_piece *e)
{
    struct gemm_kernel *p = c->own;
    p->run = (struct tile_run){.b = p->right};
    p->run.a = left_of(p, e, p->px, &p->run.a_step);
    if (p->s.right == RIGHT_INNER) return;
    p->run.b_at = right_of(p, e, &p->run.b_step);
    p->limit = p->s.right == RIGHT_PLACE && !e->is_full ? kir_sub(p->m->k, p->n, kir_mul_i(p->m->k, e->at[CPU_BLOCK], p->width)) : 0;
}

void gemm_leave(struct cpu_contraction *c, const struct tile *t, const struct cpu_piece *e)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    kval first = kir_add(k, kir_mul(k, kir_sub(k, e->at[CPU_X], p->m0), p->to_pitch), kir_mul_i(k, e->at[CPU_BLOCK], p->width));
    if (p->to_first) first = kir_sub(k, first, p->to_first);
    for (i64 i = 0; i < t->tx; i++)
        for (i64 j = 0; j < t->nr; j++) {
            kval at = kir_add_i(k, kir_add(k, first, kir_mul_i(k, p->to_pitch, i)), j * p->lanes);
            kir_store(k, p->to, kir_ramp(k, at, 1, p->lanes), kir_load(k, t->acc, tile_acc(t, i, j)));
        }
}

static void enter_block(struct cpu_contraction *c, const struct cpu_piece *e) { gemm_pack_right(c->own, e->at[CPU_BLOCK]); }

static void enter_pass(struct cpu_contraction *c, const struct cpu_piece *e)
{
    struct gemm_kernel *p = c->own;
    struct kir *k = p->m->k;
    c->at = e->at[CPU_PASS];
    c->len = kir_min(k, kir_sub(k, c->end, c->at), kir_int(k, p->s.bk));
    if (p->s.pack) gemm_pack_left(p);
}

/* Passes, then blocks of columns from..to-1, then rows. */
void gemm_set_levels(struct gemm_kernel *p, kval from, kval to)
{
    struct cpu_contraction *c = &p->c;
    struct kir *k = p->m->k;
    c->has_shares = p->d.chunk != 0;
    c->first = p->d.chunk ? kir_mul_i(k, p->part, p->d.chunk) : kir_int(k, 0);
    c->end = p->d.chunk ? kir_min(k, kir_add_i(k, c->first, p->d.chunk), p->k) : p->k;
    if (!p->is_part) c->at = c->first, c->len = kir_sub(k, c->end, c->first);
    if (p->d.many) /* one pass even without terms */
        cpu_level_add(c, CPU_PASS, c->first, kir_max(k, c->end, kir_add_i(k, c->first, 1)), p->s.bk)->enter = enter_pass;
    else if (p->s.pack && !p->is_given) gemm_pack_left(p);
    struct cpu_level *block = cpu_level_add(c, CPU_BLOCK, from, to, 1);
    block->rest = p->static_n >= 0 ? p->static_n % p->width : p->width;
    block->is_unknown = p->static_n < 0, block->columns = p->n;
    if (p->s.right == RIGHT_BLOCKS) block->enter = enter_block;
    if (p->x.m_axis < 0) return;
    struct cpu_level *rows = cpu_level_add(c, CPU_X, p->m0, p->m1, p->s.mr);
    rows->rest = p->static_m >= 0 ? p->static_m % p->s.mr : p->s.mr > 1 ? p->s.mr : 0;
    rows->is_unknown = p->static_m < 0;
    if (rows->is_unknown) rows->half = gemm_half(p->s.mr, p->tile.leaf);
}

/* n rounded up. */
static sym in_groups(const struct gemm_kernel *p, sym n, i64 terms)
{
    struct symtab *st = p->m->g->sym;
    sym group = sym_const(st, terms);
    return sym_mul(st, sym_cdiv(st, n, group), group);
}

/* Scratch memory of an iteration of `rows` rows. */
void gemm_open_arrays(struct gemm_kernel *p, sym rows)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    sym terms = p->d.many    ? sym_const(st, p->s.bk)
                : p->d.chunk ? sym_const(st, p->d.chunk)
                             : p->x.k;
    if (!p->is_given) p->left = m->buf[p->x.a];
    if (p->tile.leaf == &tile_code_dots) gemm_open_digits(p, rows);
    else if (p->s.pack && !p->is_given) {
        i64 n = p->d.chunk && !p->d.many ? p->d.chunk : p->static_k;
        if (n > 0) n = round_up(n, p->dot_k); /* a block of codes is more than a line */
        sym pitch = p->left_by_terms ? terms : sym_const(st, gemm_pitch(&p->s, n, p->left_type));
        p->pitch = emit_size(m, pitch);
        p->left = kir_alloc(k, KS_WORK, p->left_type, 1, emit_size(m, sym_mul(st, rows, pitch)));
    }
    if (p->s.right == RIGHT_BLOCKS) {
        i64 whole = i64_max(p->dot_k, p->x.codes.block);
        p->right = kir_alloc(k, KS_WORK, p->right_type, 1, emit_size(m, sym_mul(st, in_groups(p, terms, whole), sym_const(st, p->width))));
    }
    if (p->s.right == RIGHT_PLACE) p->right = m->buf[p->x.b];
    if (p->s.right == RIGHT_INNER) gemm_open_inner(p);
    if (p->x.by_rows && !p->c.r.temp)
        p->rows = kir_alloc(k, KS_WORK, p->type, 1, kir_int(k, tile_rows_size(&p->tile)));
    tile_open(&p->tile);
    if (!p->c.r.temp && !p->rows && !p->c.address->take) tile_loop_epilogue(&p->tile, p->x.y, p->x.n_axis, 0);
}

static kval new_temp(struct gemm_kernel *p, enum dtype t, sym n)
{
    return kir_alloc(p->m->k, KS_TEMP, t, 1, emit_size(p->m, n));
}

/* Arrays of the whole kernel: sums between passes, the right operand. */
void gemm_open_temps(struct gemm_kernel *p)
{
    struct emit *m = p->m;
    struct symtab *st = m->g->sym;
    struct gemm *x = &p->x;
    value_id out = m->g->output.v[0];
    const struct value *y = graph_value(m->g, out);
    sym n = shape_count(st, x->ys);
    if (p->d.many && p->c.r.temp) p->c.sums = p->c.r.temp;
    else if (p->d.many && y->dtype == p->type && !y->part.whole && !x->by_rows &&
             y->layout == (x->pixels ? LAYOUT_CLAST : LAYOUT_ROWS))
        p->c.sums = m->buf[out];
    else if (p->d.many) p->c.sums = new_temp(p, p->type, n);
    if (p->right || p->s.right != RIGHT_ONCE) return;
    sym width = sym_const(st, p->width), size = sym_mul(st, sym_cdiv(st, x->n, width), width);
    size = sym_mul(st, size, in_groups(p, x->k, p->dot_k));
    for (u32 i = 0; i + 2 < x->bs->rank; i++) size = sym_mul(st, size, x->bs->dim[i]);
    p->right = new_temp(p, p->right_type, size);
}

static void open_grid(struct gemm_kernel *p)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    struct gemm *x = &p->x;
    sym mr = sym_const(st, p->s.mr), one = sym_const(st, 1), parts = sym_const(st, p->s.split_k);
    sym blocks = sym_cdiv(st, x->n, sym_const(st, p->width)), tiles = sym_cdiv(st, x->m, mr);
    sym rows = sym_mul(st, p->d.mb ? sym_const(st, p->d.mb) : tiles, mr);
    kval gn =
        kir_grid(k, emit_size(m, p->d.nb ? sym_cdiv(st, blocks, sym_const(st, p->d.nb)) : one));
    kval gb =
        kir_grid(k, emit_size(m, sym_mul(st, parts, space_count(&x->outer, st, 0, x->outer.n))));
    kval gm =
        kir_grid(k, emit_size(m, p->d.mb ? sym_cdiv(st, tiles, sym_const(st, p->d.mb)) : one));
    p->n_blocks = emit_size(m, blocks), p->n = emit_size(m, x->n), p->k = emit_size(m, x->k);
    p->part = kir_mod_i(k, gb, p->s.split_k);
    space_at(m, &x->outer, kir_div_i(k, gb, p->s.split_k), p->pos);
    p->m0 = kir_mul(k, gm, emit_size(m, rows));
    p->m1 = kir_min(k, kir_add(k, p->m0, emit_size(m, rows)), emit_size(m, x->m));
    gemm_open_arrays(p, rows);
    kval from = p->d.nb ? kir_mul_i(k, gn, p->d.nb) : kir_int(k, 0);
    gemm_set_levels(p, from, p->d.nb ? kir_min(k, kir_add_i(k, from, p->d.nb), p->n_blocks) : p->n_blocks);
}

static u32 open(struct cpu_contraction *c)
{
    struct gemm_kernel *p = c->own;
    gemm_open_temps(p);
    emit_stream(p->m, p->s.nt);
    if (!p->x.b_const && p->s.right == RIGHT_ONCE) gemm_pack_once(p);
    open_grid(p);
    return 3;
}

static const struct cpu_addressing matrices = {.open = open, .target = gemm_target, .find = gemm_find, .multiply = gemm_multiply};

void gemm_init(struct gemm_kernel *p, const struct caps *c, const struct gemm_sched *s, struct tile_product product)
{
    const struct graph *g = p->x.g;
    p->type = p->left_type = p->right_type = p->x.type;
    p->dot_k = product.terms, p->group = product.group;
    p->s = gemm_tile(*s, product);
    if (p->dot_k > 1 && !p->x.codes.block) p->left_type = graph_value(g, p->x.a)->dtype, p->right_type = graph_value(g, p->x.b)->dtype;
    p->lanes = gen_lanes(c, p->type);
    p->width = p->s.nr * p->lanes;
    p->d = gemm_split_of(&p->x, &p->s, p->lanes);
    p->static_m = gen_static(g, p->x.m, -1), p->static_n = gen_static(g, p->x.n, -1), p->static_k = gen_static(g, p->x.k, -1);
    p->tile = (struct tile){.m = p->m,
                            .ty = 1,
                            .tx = p->s.mr,
                            .nr = p->s.nr,
                            .pitch = product.leaf->in_groups ? p->s.nr : 0,
                            .left = p->left_type,
                            .lanes = p->lanes,
                            .type = p->type,
                            .leaf = product.leaf,
                            .dot_k = p->dot_k,
                            .codes = &p->codes,
                            .ahead = s->ahead > AHEAD_SECOND ? s->ahead : 0};
    if (p->x.codes.block) {
        const bool are_dots = product.leaf == &tile_code_dots, in_words = are_dots && gemm_has_words(&p->x, c);
        p->codes = (struct tile_codes){.digits = product.sums, .in_order = c->deterministic, .in_words = in_words,
                                       .in_pairs = are_dots && !in_words && !caps_has_dot(c, DT_U8, DT_I8, DT_I32)};
        gemm_pack_codes(p);
        p->right = p->constant;
    }
    else if (p->x.b_const) p->right = p->constant = gemm_pack_const(p);
    p->c = (struct cpu_contraction){.m = p->m, .own = p, .t = &p->tile, .width = p->width, .per = p->lanes,
                                    .r = {.v = p->x.y, .inner = p->x.n_axis, .parts = s->split_k}, .bias = p->x.bias};
}

void gemm_emit(struct emit *m, const struct task *t, const struct caps *c,
                  const struct gemm_sched *s)
{
    struct gemm_kernel *p = arena_new(m->arena, struct gemm_kernel);
    *p = (struct gemm_kernel){.m = m, .t = t};
    gemm_take(&p->x, t);
    gemm_init(p, c, s, gemm_product(&p->x, c, s->pack, s->right));
    p->c.address = &matrices;
    p->left_by_terms = s->right != RIGHT_INNER && !p->x.pixels && p->dot_k == 1 && !gemm_is_dense_along_last(t, p->x.a, p->lanes);
    emit_args(m);
    cpu_emit(&p->c, !p->x.simple || s->split_k > 1, t, c);
}
