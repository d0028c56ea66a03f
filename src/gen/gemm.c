// SPDX-License-Identifier: Apache-2.0
//
// gemm: matrix products, batched and broadcast, of any sizes. Register tiles of mr rows by nr
// vectors of columns (gen_tile.c). The right operand is packed in blocks of nr vectors: a constant
// when the program is compiled, anything else block by block into scratch memory, once per grid
// iteration (transposed operands and fused prologues are evaluated there, once). The left operand
// is read where it lies, or packed likewise in panels of mr rows. When the right operand has no
// batches the left one's are rows like any others. A product with few rows is the same tile with
// few rows: bound by the stream of the right operand, split over the columns.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). Scratch: a panels [tile][k][mr], b panel
// [k][nr*lanes].
#include "gen/gen_gemm.h"

enum { P_MR, P_NR, P_MB, P_NB, P_PACK, P_KU, P_AHEAD, N_PARAM };

static const i32 v_mr[] = {1, 2, 3, 4, 6, 7, 8, 10, 12, 14, 28};
static const i32 v_nr[] = {1, 2, 3, 4, 6, 8};
static const i32 v_mb[] = {0, 1, 2, 4, 8, 16, 32, 64};
static const i32 v_nb[] = {0, 1, 2, 4, 8, 16};
static const i32 v_pack[] = {0, 1};
static const i32 v_ku[] = {1, 2, 4};
static const i32 v_ahead[] = {0, 16, 64};

static const struct gen_param param[N_PARAM] = {
    [P_MR] = {"mr", "rows of the register tile", v_mr, countof(v_mr)},
    [P_NR] = {"nr", "vectors of columns of the register tile", v_nr, countof(v_nr)},
    [P_MB] = {"mb", "tiles of rows per grid iteration, 0 = all", v_mb, countof(v_mb)},
    [P_NB] = {"nb", "blocks of columns per grid iteration, 0 = all", v_nb, countof(v_nb)},
    [P_PACK] = {"pack", "left operand: 0 where it lies, 1 packed in panels", v_pack,
                countof(v_pack)},
    [P_KU] = {"ku", "terms per step of the inner loop", v_ku, countof(v_ku)},
    [P_AHEAD] = {"ahead", "terms that a constant right operand is prefetched ahead, 0 = not",
                 v_ahead, countof(v_ahead)},
};

struct gemm_sched {
    i64 mr, nr, mb, nb, pack, ku, ahead;
};

static struct gemm_sched sched_of(const struct sched *s)
{
    const i32 *v = s->v;
    return (struct gemm_sched){v[P_MR], v[P_NR], v[P_MB], v[P_NB], v[P_PACK], v[P_KU], v[P_AHEAD]};
}

/* Emission. */

struct product {
    struct emit *m;
    struct gemm x;
    struct gemm_sched s;
    struct tile t;
    enum dtype type;
    u32 lanes;
    i64 width; /* columns of a block */
    bool n_static;
    kval bbuf, apanel, bpanel, rows, temp;
    kval n_blocks, n, k; /* of columns; sizes */
    kval pos[MAX_RANK];  /* of y: batches */
    kval m0, m1;         /* rows of this iteration */
};

static kval pack_const(struct product *p)
{
    struct symtab *t = p->m->g->sym;
    struct pack *k = arena_new(p->m->arena, struct pack);
    const struct shape *s = p->x.bs;
    u32 r = s->rank;
    for (u32 i = 0; i + 2 < r; i++)
        k->dim[k->n].extent = s->dim[i], k->dim[k->n].axis = i, k->dim[k->n++].stride = 1;
    k->dim[k->n].extent = sym_cdiv(t, p->x.n, sym_const(t, p->width)), k->dim[k->n].axis = r - 1,
    k->dim[k->n++].stride = p->width;
    k->dim[k->n].extent = p->x.k, k->dim[k->n].axis = r - 2, k->dim[k->n++].stride = 1;
    k->dim[k->n].extent = sym_const(t, p->width), k->dim[k->n].axis = r - 1,
    k->dim[k->n++].stride = 1;
    return emit_pack(p->m, p->x.b, k);
}

/* First element of a block of the packed constant. */
static kval const_block(struct product *p, kval block)
{
    struct kir *k = p->m->k;
    kval idx[MAX_RANK], at = kir_int(k, 0);
    gemm_index(p->m, &p->x, p->x.b, p->pos, at, at, idx);
    for (u32 i = 0; i + 2 < p->x.bs->rank; i++)
        at = kir_add(k, kir_mul(k, at, emit_size(p->m, p->x.bs->dim[i])), idx[i]);
    at = kir_add(k, kir_mul(k, at, p->n_blocks), block);
    return kir_mul_i(k, kir_mul(k, at, p->k), p->width);
}

struct panel { /* a packed panel: element (i, j) at i*i_step + j*j_step */
    value_id v;
    kval array, at;
    kval i0, j0, ni, nj; /* first row and column of the operand, and how many exist */
    i64 i_step, j_step;
    bool along_j; /* vectors run along j */
};

static void copy_vector(struct product *p, const struct panel *q, kval i, kval j, kval n)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    kval idx[MAX_RANK], row = kir_add(k, q->i0, i), col = kir_add(k, q->j0, j);
    kval at = kir_add(k, q->at, kir_add(k, kir_mul_i(k, i, q->i_step), kir_mul_i(k, j, q->j_step)));
    if (q->along_j) col = kir_ramp(k, col, 1, p->lanes);
    else row = kir_ramp(k, row, 1, p->lanes);
    gemm_index(m, &p->x, q->v, p->pos, row, col, idx);
    emit_limit(m, n);
    kval v = kir_cast(k, p->type, emit_value(m, q->v, idx));
    kir_store_n(k, q->array, kir_ramp(k, at, q->along_j ? q->j_step : q->i_step, p->lanes), v, n);
    emit_limit(m, 0);
}

static void copy_panel(struct product *p, const struct panel *q)
{
    struct kir *k = p->m->k;
    kval n = q->along_j ? q->nj : q->ni, zero = kir_int(k, 0);
    kval whole = kir_mul_i(k, kir_div_i(k, n, p->lanes), p->lanes);
    kval s = kir_loop(k, KL_SERIAL, zero, q->along_j ? q->ni : q->nj, 1);
    kval v = kir_loop(k, KL_SERIAL, zero, whole, p->lanes);
    copy_vector(p, q, q->along_j ? s : v, q->along_j ? v : s, 0);
    kir_end(k);
    kir_if(k, kir_lt(k, whole, n));
    copy_vector(p, q, q->along_j ? s : whole, q->along_j ? whole : s, kir_sub(k, n, whole));
    kir_end(k);
    kir_end(k);
}

/* Zeros in the columns behind the last (of a [rows][width] panel). */
static void clear_behind(struct product *p, kval array, kval at, kval rows, kval have, i64 width)
{
    struct kir *k = p->m->k;
    i64 c;
    if (kir_is_const(k, have, &c) && c >= width) return;
    kir_if(k, kir_lt(k, have, kir_int(k, width)));
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), rows, 1);
    kval j = kir_loop(k, KL_SERIAL, have, kir_int(k, width), 1);
    kir_store(k, array, kir_add(k, at, kir_add(k, kir_mul_i(k, r, width), j)),
              kir_const_f(k, p->type, 1, 0));
    kir_end(k);
    kir_end(k);
    kir_end(k);
}

static void pack_right(struct product *p, const struct task *t, kval block)
{
    struct kir *k = p->m->k;
    kval first = kir_mul_i(k, block, p->width), zero = kir_int(k, 0);
    kval n = kir_min(k, kir_sub(k, p->n, first), kir_int(k, p->width));
    struct panel q = {.v = p->x.b,
                      .array = p->bpanel,
                      .at = zero,
                      .i0 = zero,
                      .j0 = first,
                      .ni = p->k,
                      .nj = n,
                      .i_step = p->width,
                      .j_step = 1,
                      .along_j = gemm_is_dense_along_last(t, p->x.b, p->lanes)};
    clear_behind(p, p->bpanel, zero, p->k, n, p->width);
    copy_panel(p, &q);
}

static void pack_left(struct product *p, const struct task *t)
{
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0);
    bool along_k = gemm_is_dense_along_last(t, p->x.a, p->lanes);
    kval row = kir_loop(k, KL_SERIAL, p->m0, p->m1, p->s.mr);
    kval at = kir_mul(k, kir_sub(k, row, p->m0), p->k); /* tile number * mr * k */
    kval n = kir_min(k, kir_sub(k, p->m1, row), kir_int(k, p->s.mr));
    struct panel q = {.v = p->x.a,
                      .array = p->apanel,
                      .at = at,
                      .i0 = row,
                      .j0 = zero,
                      .ni = n,
                      .nj = p->k,
                      .i_step = 1,
                      .j_step = p->s.mr,
                      .along_j = along_k};
    clear_behind(p, p->apanel, at, p->k, n, p->s.mr);
    copy_panel(p, &q);
    kir_end(k);
}

static void sum(struct product *p, struct tile_in in, kval b, kval b_at, i64 k_step)
{
    struct kir *k = p->m->k;
    i64 ku = p->s.ku;
    kval at = in.at, zero = kir_int(k, 0), whole = kir_mul_i(k, kir_div_i(k, p->k, ku), ku);
    for (u32 part = 0; part < (ku > 1 ? 2u : 1u); part++) {
        i64 u = part ? 1 : ku, d;
        kval from = part ? whole : zero, to = part ? p->k : whole;
        if (kir_is_const(k, kir_sub(k, to, from), &d) && d <= 0) continue;
        kval i = kir_loop(k, KL_SERIAL, from, to, u);
        for (i64 v = 0; v < u; v++) {
            kval term = kir_add_i(k, i, v);
            in.at = kir_add(k, at, kir_mul_i(k, term, k_step));
            tile_step(&p->t, &in, b, kir_add(k, b_at, kir_mul_i(k, term, p->width)));
        }
        kir_end(k);
    }
}

static struct tile_out tile_target(struct product *p, kval row, kval block)
{
    struct kir *k = p->m->k;
    struct gemm *x = &p->x;
    struct tile_out o = {.y_axis = -1,
                         .x_axis = x->m_axis,
                         .c_axis = x->n_axis,
                         .c = kir_mul_i(k, block, p->width),
                         .x_end = p->m1,
                         .anchor = x->y,
                         .temp = p->temp,
                         .rows = p->rows};
    i64 n = gen_static(x->g, x->n, -1), m = gen_static(x->g, x->m, -1);
    o.c_end = n > 0 && n % p->width == 0 ? 0 : p->n;
    o.x_exact = m > 0 && m % p->s.mr == 0;
    for (u32 i = 0; i < MAX_RANK; i++) o.idx[i] = p->pos[i];
    if (x->m_axis >= 0) o.idx[x->m_axis] = row;
    return o;
}

static void tile_at(struct product *p, kval row, kval block)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct tile_out o = tile_target(p, row, block);
    struct tile_in in = {
        .buf = p->apanel, .at = kir_mul(k, kir_sub(k, row, p->m0), p->k), .y_step = kir_int(k, 0)};
    kval idx[MAX_RANK], px[64];
    kval b = p->bpanel ? p->bpanel : p->bbuf,
         b_at = p->bpanel ? kir_int(k, 0) : const_block(p, block);
    in.x_step = kir_int(k, 1);
    i64 k_step = p->s.mr;
    if (!p->s.pack) {
        gemm_index(m, &p->x, p->x.a, p->pos, row, kir_int(k, 0), idx);
        in.buf = m->buf[p->x.a];
        in.at = emit_offset(m, p->x.a, idx);
        in.x_step = emit_size(m, value_room(graph_value(m->g, p->x.a)).dim[p->x.as->rank - 1]);
        k_step = 1;
    }
    tile_clear(&p->t, NULL);
    kval full = p->s.pack ? 0 : tile_full(&p->t, &o);
    if (full) kir_if(k, full);
    sum(p, in, b, b_at, k_step);
    if (full) {
        kir_else(k);
        kval last = kir_add_i(k, kir_sub(k, p->m1, row), -1);
        for (i64 i = 0; i < p->s.mr; i++)
            px[i] = kir_mul(k, kir_min(k, kir_int(k, i), last), in.x_step);
        in.px = px;
        sum(p, in, b, b_at, k_step);
        kir_end(k);
    }
    tile_store(&p->t, &o);
}

static void iterate(struct product *p, const struct task *t, kval from, kval to)
{
    struct kir *k = p->m->k;
    kval block = kir_loop(k, KL_SERIAL, from, to, 1);
    if (p->bpanel) pack_right(p, t, block);
    kval row = p->x.m_axis >= 0 ? kir_loop(k, KL_SERIAL, p->m0, p->m1, p->s.mr) : kir_int(k, 0);
    tile_at(p, row, block);
    if (p->x.m_axis >= 0) kir_end(k);
    kir_end(k);
}

static void grid(struct product *p, const struct task *t)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    u32 group[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct gemm *x = &p->x;
    i64 rows = p->s.mb * p->s.mr;
    sym blocks = sym_cdiv(st, x->n, sym_const(st, p->width)), one = sym_const(st, 1);
    sym m_tile =
        rows ? sym_const(st, rows)
             : sym_mul(st, sym_cdiv(st, x->m, sym_const(st, p->s.mr)), sym_const(st, p->s.mr));
    kval gn =
        kir_grid(k, emit_size(m, p->s.nb ? sym_cdiv(st, blocks, sym_const(st, p->s.nb)) : one));
    kval gb = kir_grid(k, emit_size(m, space_count(&x->outer, st, 0, x->outer.n)));
    kval gm = kir_grid(k, emit_size(m, rows ? sym_cdiv(st, x->m, m_tile) : one));
    kval at[MAX_RANK] = {0};
    p->n_blocks = emit_size(m, blocks), p->n = emit_size(m, x->n), p->k = emit_size(m, x->k);
    space_split(m, &x->outer, group, x->outer.n, gb, at);
    space_index(k, &x->outer, at, p->pos);
    p->m0 = kir_mul(k, gm, emit_size(m, m_tile));
    p->m1 = kir_min(k, kir_add(k, p->m0, emit_size(m, m_tile)), emit_size(m, x->m));
    if (p->s.pack)
        p->apanel = kir_alloc(k, KS_WORK, p->type, 1, emit_size(m, sym_mul(st, m_tile, x->k)));
    if (!p->bbuf)
        p->bpanel = kir_alloc(k, KS_WORK, p->type, 1,
                              emit_size(m, sym_mul(st, x->k, sym_const(st, p->width))));
    if (x->by_rows) p->rows = kir_alloc(k, KS_WORK, p->type, 1, kir_int(k, tile_rows_size(&p->t)));
    tile_open(&p->t);
    if (p->s.pack) pack_left(p, t);
    kval from = p->s.nb ? kir_mul_i(k, gn, p->s.nb) : kir_int(k, 0);
    iterate(p, t, from,
            p->s.nb ? kir_min(k, kir_add_i(k, from, p->s.nb), p->n_blocks) : p->n_blocks);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct product *p = arena_new(m->arena, struct product);
    *p = (struct product){.m = m, .s = sched_of(v)};
    gemm_of(&p->x, t);
    p->type = emit_type(graph_value(&t->g, p->x.a)->dtype);
    p->lanes = gen_lanes(caps, p->type);
    p->width = p->s.nr * p->lanes;
    p->t = (struct tile){.m = m,
                         .ty = 1,
                         .tx = p->s.mr,
                         .nr = p->s.nr,
                         .lanes = p->lanes,
                         .type = p->type,
                         .ahead = p->s.ahead};
    if (p->x.b_const) p->bbuf = pack_const(p);
    emit_args(m);
    if (!p->x.simple)
        p->temp =
            kir_alloc(m->k, KS_TEMP, p->type, 1, emit_size(m, shape_count(t->g.sym, p->x.ys)));
    grid(p, t);
    struct result r = {.v = p->x.y, .inner = p->x.n_axis, .temp = p->temp};
    if (!p->x.simple) gen_map_rest(m, t, caps, p->x.y, result_load, &r);
}

/* Choice. */

static bool match(const struct task *t, const struct caps *c)
{
    struct gemm x;
    return !c->is_gpu && c->vector_bytes >= 8 && gemm_of(&x, t);
}

static bool is_legal(const struct gemm *x, const struct caps *c, const struct gemm_sched *s)
{
    i64 n = gen_eval(x->g, x->n, NULL), m = gen_eval(x->g, x->m, NULL),
        k = gen_eval(x->g, x->k, NULL);
    u32 lanes = gen_lanes(c, emit_type(graph_value(x->g, x->a)->dtype));
    if (!tile_is_legal(c, s->mr, s->nr) || (!s->pack && !x->a_plain) || (s->ahead && !x->b_const))
        return false;
    if (x->m_axis < 0 && (s->mr > 1 || s->mb != 1)) return false;
    if (s->nr > 1 && (s->nr - 1) * lanes >= n) return false;
    if (s->mr > 1 && s->mr >= 2 * m) return false;
    i64 rows = s->mb ? s->mb * s->mr : m;
    if ((s->mb > 1 && s->mb * s->mr >= 2 * m) || (s->nb > 1 && s->nb * s->nr * lanes >= 2 * n))
        return false;
    return !s->pack || (double)rows * (double)k * 4 <= 4 * (double)c->l2_bytes + 1e6;
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct gemm x;
    struct gemm_sched s = sched_of(v);
    return tile_is_legal(c, s.mr, s.nr) && gemm_of(&x, t) && is_legal(&x, c, &s);
}

static double seconds(const struct gemm *x, const struct caps *c, const struct gemm_sched *s,
                      const i64 *var)
{
    double m = (double)gen_eval(x->g, x->m, var), n = (double)gen_eval(x->g, x->n, var),
           k = (double)gen_eval(x->g, x->k, var);
    double batch = 1, lanes = gen_lanes(c, DT_F32), hz = gen_flop_rate(c) / (4.0 * lanes);
    for (u32 i = 0; i < x->outer.n; i++) batch *= (double)gen_eval(x->g, x->outer.g[i].extent, var);
    i64 tiles = i64_max(1, ceil_div((i64)m, s->mr)),
        blocks = i64_max(1, ceil_div((i64)n, s->nr * (i64)lanes));
    i64 mb = s->mb ? i64_min(s->mb, tiles) : tiles, nb = s->nb ? i64_min(s->nb, blocks) : blocks;
    double iterations = batch * (double)ceil_div(tiles, mb) * (double)ceil_div(blocks, nb);
    double panel = k * (double)(s->nr * lanes) * 4,
           tile = k * (tile_step_cycles(s->mr, s->nr) + 0.5 / (double)s->ku);
    tile += (double)(s->mr * s->nr) * (x->by_rows ? 3 * lanes : 3) + 20;
    if (panel > (double)c->l1_bytes / 2)
        tile += panel / (panel > (double)c->l2_bytes * 0.7 ? 8 : 40);
    if (!x->b_const) tile += k * (double)s->nr * 4 / (double)mb;
    tile += s->ahead ? 0.3 * k * (double)s->nr : 0;
    double it = tile * (double)(mb * nb);
    if (s->pack) it += (double)(mb * s->mr) * k * (1.2);
    else if (gen_static(x->g, x->k, -1) < 0 && s->mr > 4)
        it *= 1.5; /* rows at distances that are not known */
    else if (s->mr > 10 && (i64)k * 4 % 2048 == 0) it *= 1.15;
    double rounds = (double)ceil_div((i64)iterations, i64_max(1, c->n_threads));
    double bytes = 4 * (batch * m * (n + k) + k * n * (x->b_const && !s->ahead ? 3 : 1));
    return 2e-6 + (it + 300) * rounds / hz + 0.3 * bytes / gen_byte_rate(c) +
           (x->simple ? 0 : 12 * batch * m * n / gen_byte_rate(c));
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v,
                      const i64 *var)
{
    struct gemm x;
    struct gemm_sched s = sched_of(v);
    return gemm_of(&x, t) ? seconds(&x, c, &s, var) : 1e9;
}

static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct gemm x;
    double best = 0;
    u32 n[N_PARAM] = {countof(v_mr),   countof(v_nr),   countof(v_mb),
                      countof(v_nb),   countof(v_pack), 1,
                      countof(v_ahead)},
        at[N_PARAM] = {0};
    gemm_of(&x, t);
    for (;;) {
        struct sched v = {0};
        for (u32 i = 0; i < N_PARAM; i++) v.v[i] = param[i].values[at[i]];
        struct gemm_sched s = sched_of(&v);
        double sec = is_legal(&x, c, &s) ? seconds(&x, c, &s, var) : 0;
        if (sec > 0 && (best == 0 || sec < best)) best = sec, *out = v;
        u32 i = 0;
        while (i < N_PARAM && ++at[i] == n[i]) at[i++] = 0;
        if (i == N_PARAM) break;
    }
    assert(best > 0);
}

const struct gen gen_gemm = {
    .version = 1,
    .name = "gemm",
    .revision = 2,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
