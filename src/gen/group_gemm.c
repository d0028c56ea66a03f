// SPDX-License-Identifier: Apache-2.0
//
// group_gemm: matrix products by groups of threads. A group computes a block of bm x bn results: in
// rounds of bk terms all threads copy bk columns of the left operand and bk rows of the right one to
// SHARED arrays, then each multiplies for its tile of tm x tn accumulators (gen_group.c). Prologues
// and transpositions are evaluated while copying, once per block. Constants are packed in the order
// of the copies, with zeros behind their ends. With few results and many terms the threads form
// `split` teams, each with its share of a round's terms, and add up at the end.
//
// Nothing is branched on inside the loop: rows and columns behind the end are copies of the last
// ones, terms behind the end are zeros.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n). SHARED: a [stage][k][bm + pad],
// b [stage][k][bn + pad].
#include "gen/gen_gemm.h"
#include "gen/gen_group.h"

enum { P_BM, P_BN, P_BK, P_TM, P_TN, P_SPLIT, P_PIPE, P_RASTER, P_HALF, N_PARAM };

static const i32 v_bm[] = {8, 16, 32, 64, 128};
static const i32 v_bn[] = {8, 16, 32, 64, 128};
static const i32 v_bk[] = {8, 16, 32};
static const i32 v_tm[] = {1, 2, 4, 8};
static const i32 v_tn[] = {1, 2, 4, 8};
static const i32 v_split[] = {1, 4, 16};
static const i32 v_pipe[] = {0, 1, 2};
static const i32 v_raster[] = {1, 8};
static const i32 v_half[] = {0, 1};

static const struct gen_param param[N_PARAM] = {
    [P_BM] = {"bm", "rows of a group's block", v_bm, countof(v_bm)},
    [P_BN] = {"bn", "columns of a group's block", v_bn, countof(v_bn)},
    [P_BK] = {"bk", "terms per round", v_bk, countof(v_bk)},
    [P_TM] = {"tm", "rows of a thread", v_tm, countof(v_tm)},
    [P_TN] = {"tn", "columns of a thread", v_tn, countof(v_tn)},
    [P_SPLIT] = {"split", "teams that share the terms of a round", v_split, countof(v_split)},
    [P_PIPE] = {"pipe", "0: copy, then multiply; 1: the next round is fetched to registers "
                        "meanwhile; 2: and has shared arrays of its own",
                v_pipe, countof(v_pipe)},
    [P_RASTER] = {"raster", "rows of blocks that are walked column by column", v_raster,
                  countof(v_raster)},
    [P_HALF] = {"half", "1: shared arrays in the operands' own 16-bit type", v_half,
                countof(v_half)},
};

enum { PAD = 4, MAX_REGS = 200 };

struct block_sched {
    i64 bm, bn, bk, tm, tn, split, pipe, raster, half;
};

static struct block_sched sched_of(const struct sched *s)
{
    const i32 *v = s->v;
    return (struct block_sched){v[P_BM],    v[P_BN],   v[P_BK],     v[P_TM],  v[P_TN],
                                v[P_SPLIT], v[P_PIPE], v[P_RASTER], v[P_HALF]};
}

static i64 team_size(const struct block_sched *s) { return s->bm / s->tm * (s->bn / s->tn); }
static i64 thread_count(const struct block_sched *s) { return team_size(s) * s->split; }

struct product;

struct side { /* an operand on its way to its SHARED array */
    struct product *p;
    struct group_copy copy;
    value_id v;
    kval packed;         /* BUF of the packed constant, 0: none */
    sym across;          /* rows of a, columns of b */
    i64 block;           /* of them in a group's block */
    bool along_k;        /* vectors run along the terms */
    kval first;          /* of the group's block */
    kval number;         /* of the block */
    kval array;          /* SHARED */
};

struct product {
    struct emit *m;
    struct gemm x;
    struct block_sched s;
    struct group g;
    struct group_tile t;
    struct side a, b;
    enum dtype type, held; /* of the accumulators, of the SHARED arrays */
    kval pos[MAX_RANK];    /* of y: batches */
    kval round, n_rounds;  /* the one being fetched; all */
    kval team;             /* of this thread */
    kval temp;             /* TEMP: y, when the epilogue is a grid of its own */
};

/* Operands. */

static bool is_packable(const struct gemm *x, value_id v)
{
    const struct value *c = graph_value(x->g, v);
    bool is_merged = x->merged && v == x->a;
    return c->is_const && c->shape.rank > 1 && c->layout == LAYOUT_ROWS && !is_merged &&
           shape_is_static(x->g->sym, &c->shape, (i64[MAX_RANK]){0});
}

static void pack_dim(struct pack *p, sym extent, u32 axis, i64 stride)
{
    p->dim[p->n].extent = extent;
    p->dim[p->n].axis = axis;
    p->dim[p->n++].stride = stride;
}

/* [batches][block][round][term][row or column] */
static kval pack_side(struct product *p, const struct side *s)
{
    struct symtab *t = p->m->g->sym;
    struct pack *k = arena_new(p->m->arena, struct pack);
    const struct shape *shape = &graph_value(p->m->g, s->v)->shape;
    u32 row = shape->rank - 2, col = shape->rank - 1, across = s == &p->a ? row : col,
        along = s == &p->a ? col : row;
    for (u32 i = 0; i < row; i++) pack_dim(k, shape->dim[i], i, 1);
    pack_dim(k, sym_cdiv(t, s->across, sym_const(t, s->block)), across, s->block);
    pack_dim(k, sym_cdiv(t, p->x.k, sym_const(t, p->s.bk)), along, p->s.bk);
    pack_dim(k, sym_const(t, p->s.bk), along, 1);
    pack_dim(k, sym_const(t, s->block), across, 1);
    return emit_pack(p->m, s->v, k);
}

static kval read_packed(const struct side *s, kval term, kval i)
{
    struct product *p = s->p;
    struct kir *k = p->m->k;
    struct symtab *t = p->m->g->sym;
    const struct shape *shape = &graph_value(p->m->g, s->v)->shape;
    kval idx[MAX_RANK], at = kir_int(k, 0);
    gemm_index(p->m, &p->x, s->v, p->pos, at, at, idx);
    for (u32 d = 0; d + 2 < shape->rank; d++)
        at = kir_add(k, kir_mul(k, at, emit_size(p->m, shape->dim[d])), idx[d]);
    at = kir_mul(k, at, emit_size(p->m, sym_cdiv(t, s->across, sym_const(t, s->block))));
    at = kir_mul(k, kir_add(k, at, s->number), p->n_rounds);
    at = kir_mul_i(k, kir_add(k, at, p->round), p->s.bk * s->block);
    at = kir_add(k, at, kir_add(k, kir_mul_i(k, term, s->block), i));
    return kir_load(k, s->packed, kir_ramp(k, at, 1, s->copy.lanes));
}

/* i, where the size is not known to be a multiple of `block` at most the last of size: a vector of `lanes` from i on then lies within. */
static kval clamp(struct product *p, kval i, sym size, i64 block, u32 lanes)
{
    struct kir *k = p->m->k;
    if (sym_divides(p->m->g->sym, block, size)) return i;
    return kir_min(k, i, kir_add_i(k, emit_size(p->m, size), -(i64)lanes));
}

static kval read_value(const struct side *s, kval term, kval i)
{
    struct product *p = s->p;
    struct kir *k = p->m->k;
    u32 lanes = s->copy.lanes;
    kval idx[MAX_RANK], at = kir_add(k, s->first, i),
                        t = kir_add(k, kir_mul_i(k, p->round, p->s.bk), term);
    at = clamp(p, at, s->across, s->block, s->along_k ? 1 : lanes);
    kval inside = clamp(p, t, p->x.k, p->s.bk, s->along_k ? lanes : 1);
    kval to = s->along_k ? at : kir_ramp(k, at, 1, lanes);
    kval term_at = s->along_k ? kir_ramp(k, inside, 1, lanes) : inside;
    bool is_a = s == &p->a;
    gemm_index(p->m, &p->x, s->v, p->pos, is_a ? to : term_at, is_a ? term_at : to, idx);
    kval v = emit_value(p->m, s->v, idx);
    if (inside == t) return v;
    return kir_select(k, kir_lt(k, t, emit_size(p->m, p->x.k)), v,
                      kir_const_f(k, kir_dtype(k, v), 1, 0));
}

static kval read_side(void *user, kval row, kval col)
{
    const struct side *s = user;
    struct kir *k = s->p->m->k;
    kval term = s->along_k ? col : row, i = s->along_k ? row : col;
    kval v = s->packed ? read_packed(s, term, i) : read_value(s, term, i);
    return kir_splat(k, kir_cast(k, s->p->held, v), s->copy.lanes);
}

static i64 pitch(const struct side *s) { return s->block + PAD; }

/* Before the arguments: packs; the copy's shape. */
static void side_init(struct product *p, struct side *s, const struct task *t)
{
    bool is_a = s == &p->a;
    enum dtype type = graph_value(p->m->g, s->v)->dtype;
    s->p = p;
    if (is_packable(&p->x, s->v)) s->packed = pack_side(p, s);
    s->along_k = !s->packed && gemm_is_dense_along_last(t, s->v, 4) == is_a;
    i64 rows = s->along_k ? s->block : p->s.bk, cols = s->along_k ? p->s.bk : s->block;
    i64 most = i64_min(cols, i64_max(1, rows * cols / p->g.n));
    sym dense = s->packed ? sym_const(p->m->g->sym, cols) : s->along_k ? p->x.k : s->across;
    s->copy = (struct group_copy){.g = &p->g,
                                  .rows = rows,
                                  .cols = cols,
                                  .lanes = group_lanes(p->m->g, dense, type, (u32)most),
                                  .type = p->held,
                                  .read = read_side,
                                  .user = s,
                                  .row_step = s->along_k ? 1 : pitch(s),
                                  .col_step = s->along_k ? pitch(s) : 1};
}

static i64 stage_size(const struct product *p, const struct side *s) { return pitch(s) * p->s.bk; }

static void side_open(struct product *p, struct side *s, kval number)
{
    struct kir *k = p->m->k;
    s->number = number;
    s->first = kir_mul_i(k, number, s->block);
    s->array = kir_alloc(k, KS_SHARED, p->held, 1,
                         kir_int(k, stage_size(p, s) * (p->s.pipe == 2 ? 2 : 1)));
    group_copy_open(&s->copy);
}

/* Rounds. */

static void fetch(struct product *p, kval round)
{
    p->round = round;
    group_copy_fetch(&p->a.copy);
    group_copy_fetch(&p->b.copy);
}

static void put(struct product *p, kval stage)
{
    struct kir *k = p->m->k;
    group_copy_put(&p->a.copy, p->a.array, kir_mul_i(k, stage, stage_size(p, &p->a)));
    group_copy_put(&p->b.copy, p->b.array, kir_mul_i(k, stage, stage_size(p, &p->b)));
}

/* The terms of this thread's team. */
static void multiply(struct product *p, kval stage)
{
    struct kir *k = p->m->k;
    i64 share = p->s.bk / p->s.split, ku = 1;
    while (ku < share && ku * p->s.tm * p->s.tn < 128) ku *= 2;
    kval from = kir_mul_i(k, p->team, share);
    kval first = ku < share ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, share), ku)
                            : kir_int(k, 0);
    for (i64 u = 0; u < ku; u++) {
        kval term = kir_add_i(k, kir_add(k, from, first), u);
        kval a = kir_add(k, kir_mul_i(k, stage, stage_size(p, &p->a)),
                         kir_mul_i(k, term, pitch(&p->a)));
        kval b = kir_add(k, kir_mul_i(k, stage, stage_size(p, &p->b)),
                         kir_mul_i(k, term, pitch(&p->b)));
        group_tile_step(&p->t, p->a.array, a, p->b.array, b);
    }
    if (ku < share) kir_end(k);
}

/* The first round, which need not exist. */
static void fetch_first(struct product *p)
{
    struct kir *k = p->m->k;
    bool exists = gen_static(p->m->g, p->x.k, 0) > 0;
    if (!exists) kir_if(k, kir_lt(k, kir_int(k, 0), p->n_rounds));
    fetch(p, kir_int(k, 0));
    if (p->s.pipe == 2) put(p, kir_int(k, 0));
    if (!exists) kir_end(k);
}

static void all_rounds(struct product *p)
{
    struct kir *k = p->m->k;
    kval zero = kir_int(k, 0);
    if (p->s.pipe) fetch_first(p);
    if (p->s.pipe == 2) kir_barrier(k);
    kval r = kir_loop(k, KL_SERIAL, zero, p->n_rounds, 1);
    kval next = kir_min(k, kir_add_i(k, r, 1), kir_add_i(k, p->n_rounds, -1));
    if (p->s.pipe == 2) {
        fetch(p, next);
        multiply(p, kir_mod_i(k, r, 2));
        put(p, kir_mod_i(k, kir_add_i(k, r, 1), 2));
        kir_barrier(k);
    } else {
        if (!p->s.pipe) fetch(p, r);
        kir_barrier(k);
        put(p, zero);
        kir_barrier(k);
        if (p->s.pipe) fetch(p, next);
        multiply(p, zero);
    }
    kir_end(k);
}

/* The upper half of the teams hand their sums to the lower half, until one is left. */
static void add_teams(struct product *p)
{
    struct kir *k = p->m->k;
    i64 count = group_tile_count(&p->t), size = team_size(&p->s);
    u32 lanes = p->t.lanes;
    if (p->s.split == 1) return;
    kval array = kir_alloc(k, KS_SHARED, p->type, 1,
                           kir_int(k, p->s.split / 2 * count * size * (i64)lanes));
    kval mine = kir_mod_i(k, p->g.t, size);
    for (i64 half = p->s.split / 2; half; half /= 2) {
        for (u32 part = 0; part < 2; part++) { /* 0: the upper half stores, 1: the lower half adds */
            kval from = kir_int(k, part ? 0 : half), to = kir_int(k, part ? half : 2 * half);
            kval is_on = kir_bin(k, KI_AND, kir_bin(k, KI_LE, from, p->team), kir_lt(k, p->team, to));
            kval base = kir_mul_i(k, kir_sub(k, p->team, from), count);
            kir_if(k, is_on);
            for (i64 i = 0; i < count; i++) {
                kval at = kir_add(k, kir_mul_i(k, kir_add_i(k, base, i), size), mine);
                kval slot = kir_int(k, i), sum = kir_load(k, p->t.acc, slot);
                at = kir_ramp(k, kir_mul_i(k, at, lanes), 1, lanes);
                if (part) kir_store(k, p->t.acc, slot, kir_add(k, sum, kir_load(k, array, at)));
                else kir_store(k, array, at, sum);
            }
            kir_end(k);
            kir_barrier(k);
        }
    }
}

/* Storing. */

static kval current_value(struct emit *m, const void *user, const kval *idx)
{
    return *(const kval *)user;
}

static void store_vector(struct product *p, const kval *idx, kval val, kval limit)
{
    struct emit *m = p->m;
    if (p->temp) {
        kval at = tile_temp_index(m, p->x.y, p->x.n_axis, idx);
        kir_store_n(m->k, p->temp, at, val, limit);
        return;
    }
    emit_limit(m, limit);
    emit_bind(m, p->x.y, current_value, &val);
    for (u32 i = 0; i < m->g->output.n; i++) {
        value_id v = m->g->output.v[i];
        emit_store_n(m, v, idx, emit_value(m, v, idx), limit);
    }
    emit_bind(m, p->x.y, NULL, NULL);
    emit_limit(m, 0);
}

/* Opens an IF for results that exist; 0: certainly. */
static bool open_if_inside(struct product *p, kval i, sym size, i64 block)
{
    struct kir *k = p->m->k;
    if (sym_divides(p->m->g->sym, block, size)) return false;
    kir_if(k, kir_lt(k, i, emit_size(p->m, size)));
    return true;
}

static void store_tile(struct product *p)
{
    struct kir *k = p->m->k;
    u32 lanes = p->t.lanes;
    kval idx[MAX_RANK];
    bool is_whole = sym_divides(p->m->g->sym, lanes, p->x.n);
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = p->pos[i];
    if (p->s.split > 1) kir_if(k, kir_lt(k, p->team, kir_int(k, 1)));
    for (i64 j = 0; j < p->t.tn / lanes; j++) {
        kval col = kir_add(k, p->b.first, group_tile_col(&p->t, j));
        bool some = open_if_inside(p, col, p->x.n, p->s.bn);
        kval limit = is_whole ? 0 : kir_sub(k, emit_size(p->m, p->x.n), col);
        idx[p->x.n_axis] = kir_ramp(k, col, 1, lanes);
        for (i64 i = 0; i < p->t.tm; i++) {
            kval row = kir_add(k, p->a.first, group_tile_row(&p->t, i));
            bool guarded = open_if_inside(p, row, p->x.m, p->s.bm);
            if (p->x.m_axis >= 0) idx[p->x.m_axis] = row;
            store_vector(p, idx, group_tile_get(&p->t, i, j), limit);
            if (guarded) kir_end(k);
        }
        if (some) kir_end(k);
    }
    if (p->s.split > 1) kir_end(k);
}

/* The grid. */

/* Number `at` of the blocks, walked column by column within each `raster` rows of them. */
static void walk_blocks(struct product *p, kval at, kval rows, kval cols, kval *row, kval *col)
{
    struct kir *k = p->m->k;
    kval area = kir_mul_i(k, cols, p->s.raster);
    kval first = kir_mul_i(k, kir_div(k, at, area), p->s.raster);
    kval height = kir_min(k, kir_sub(k, rows, first), kir_int(k, p->s.raster));
    at = kir_mod(k, at, area);
    *row = kir_add(k, first, kir_mod(k, at, height));
    *col = kir_div(k, at, height);
}

static void grid(struct product *p)
{
    struct emit *m = p->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const u32 all[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct gemm *x = &p->x;
    kval at[MAX_RANK] = {0}, row, col;
    sym rows = sym_cdiv(st, x->m, sym_const(st, p->s.bm)),
        cols = sym_cdiv(st, x->n, sym_const(st, p->s.bn));
    kval batch = kir_grid(k, emit_size(m, space_count(&x->outer, st, 0, x->outer.n)));
    if (p->s.raster > 1) {
        kval number = kir_grid(k, emit_size(m, sym_mul(st, rows, cols)));
        walk_blocks(p, number, emit_size(m, rows), emit_size(m, cols), &row, &col);
    } else {
        row = kir_grid(k, emit_size(m, rows));
        col = kir_grid(k, emit_size(m, cols));
    }
    group_enter(&p->g);
    p->n_rounds = emit_size(m, sym_cdiv(st, x->k, sym_const(st, p->s.bk)));
    space_split(m, &x->outer, all, x->outer.n, batch, at);
    space_index(k, &x->outer, at, p->pos);
    p->team = kir_div_i(k, p->g.t, team_size(&p->s));
    side_open(p, &p->a, row);
    side_open(p, &p->b, col);
    group_tile_open(&p->t, kir_mod_i(k, p->g.t, team_size(&p->s)));
    all_rounds(p);
    add_teams(p);
    store_tile(p);
    for (u32 i = 0; i < (p->s.raster > 1 ? 2u : 3u); i++) kir_end(k);
}

static kval load_temp(struct emit *m, const void *user, const kval *idx)
{
    const struct product *p = user;
    return emit_load(m, p->temp, tile_temp_index(m, p->x.y, p->x.n_axis, idx));
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps,
                 const struct sched *v)
{
    struct product *p = arena_new(m->arena, struct product);
    *p = (struct product){.m = m, .s = sched_of(v)};
    gemm_of(&p->x, t);
    enum dtype own = graph_value(&t->g, p->x.a)->dtype;
    bool is_column = gen_static(m->g, p->x.n, 0) == 1;
    p->type = emit_type(own);
    p->held = p->s.half ? own : p->type;
    group_init(&p->g, m, thread_count(&p->s), 0);
    p->t = (struct group_tile){.g = &p->g,
                               .nm = p->s.bm / p->s.tm,
                               .nn = p->s.bn / p->s.tn,
                               .tm = p->s.tm,
                               .tn = p->s.tn,
                               .lanes = is_column ? 1 : (u32)i64_min(4, p->s.tn),
                               .run = (u32)i64_min(4, p->s.tm),
                               .type = p->type};
    p->a = (struct side){.v = p->x.a, .across = p->x.m, .block = p->s.bm};
    p->b = (struct side){.v = p->x.b, .across = p->x.n, .block = p->s.bn};
    side_init(p, &p->a, t);
    side_init(p, &p->b, t);
    emit_args(m);
    if (!p->x.simple)
        p->temp =
            kir_alloc(m->k, KS_TEMP, p->type, 1, emit_size(m, shape_count(t->g.sym, p->x.ys)));
    grid(p);
    if (!p->x.simple) gen_map_rest(m, t, caps, p->x.y, load_temp, p);
}

/* Choice. */

static bool match(const struct task *t, const struct caps *c)
{
    struct gemm x;
    return c->is_gpu && gemm_of(&x, t) && gen_static(&t->g, x.k, 1) > 0 &&
           (c->has_f64 || graph_value(&t->g, x.a)->dtype != DT_F64);
}

static i64 shared_bytes(const struct block_sched *s, i64 size, i64 acc_size)
{
    i64 stages = s->pipe == 2 ? 2 : 1, teams = s->split > 1 ? s->split / 2 : 0;
    return stages * s->bk * (s->bm + s->bn + 2 * PAD) * (s->half ? size : acc_size) +
           teams * s->bm * s->bn * acc_size;
}

static bool fits(const struct caps *c, const struct block_sched *s, i64 size)
{
    if (s->tm > s->bm || s->tn > s->bn || s->split > s->bk) return false;
    i64 n = thread_count(s), copied = s->bk * (s->bm + s->bn) / n;
    if (n < group_least(c) || (s->half && size != 2)) return false;
    if (s->tm * s->tn + s->tm + s->tn + (s->pipe ? copied : 0) > MAX_REGS) return false;
    return group_is_legal(c, n, shared_bytes(s, size, i64_max(4, size)));
}

/* A block is at most twice too large. */
static bool is_block_useful(i64 block, i64 size)
{
    return block <= 8 || block < 2 * size;
}

static bool is_legal(const struct gemm *x, const struct caps *c, const struct block_sched *s)
{
    i64 size = dtype_size(graph_value(x->g, x->a)->dtype), m = gen_eval(x->g, x->m, NULL),
        n = gen_eval(x->g, x->n, NULL), k = gen_eval(x->g, x->k, NULL);
    if (!fits(c, s, size)) return false;
    if (!is_block_useful(s->bm, m) || !is_block_useful(s->bn, n) || !is_block_useful(s->bk, k))
        return false;
    if (s->raster > 1 && (m <= s->bm * 2 || n <= s->bn)) return false;
    return s->split == 1 || k >= 4 * s->bk;
}

static bool legal(const struct task *t, const struct caps *c, const struct sched *v)
{
    struct gemm x;
    struct block_sched s = sched_of(v);
    return fits(c, &s, s.half ? 2 : 4) && gemm_of(&x, t) && is_legal(&x, c, &s);
}

/* Seconds of the slower of arithmetic, shared memory and memory, in waves of groups. */
static double seconds(const struct gemm *x, const struct caps *c, const struct block_sched *s,
                      const i64 *var)
{
    double m = (double)gen_eval(x->g, x->m, var), n = (double)gen_eval(x->g, x->n, var),
           k = (double)gen_eval(x->g, x->k, var), batch = 1;
    i64 size = dtype_size(graph_value(x->g, x->a)->dtype);
    for (u32 i = 0; i < x->outer.n; i++) batch *= (double)gen_eval(x->g, x->outer.g[i].extent, var);
    double blocks = batch * (double)ceil_div((i64)m, s->bm) * (double)ceil_div((i64)n, s->bn);
    double rounds = (double)ceil_div((i64)k, s->bk), area = (double)(s->bm * s->bn);
    /* Per term and result: a multiply-add, and its share of loads from shared arrays. */
    double tile = (double)(s->tm * s->tn),
           work = 1 + 2.0 * (double)(s->tm + s->tn) / 4 / tile + 4 / tile;
    struct group_load load = {.groups = blocks,
                              .flops = 2 * work * blocks * area * rounds * (double)s->bk,
                              .bytes = blocks * rounds * (double)(s->bk * (s->bm + s->bn) * size),
                              .barriers = rounds * (s->pipe == 2 ? 1 : 2) + 4.0 * (double)s->split,
                              .threads = thread_count(s)};
    load.bytes = 0.25 * load.bytes + (double)size * batch * (m * k + k * n + m * n);
    return group_seconds(c, &load) * (s->pipe ? 0.95 : 1) + (x->simple ? 0 : 4e-6);
}

static double predict(const struct task *t, const struct caps *c, const struct sched *v,
                      const i64 *var)
{
    struct gemm x;
    struct block_sched s = sched_of(v);
    return gemm_of(&x, t) ? seconds(&x, c, &s, var) : 1e9;
}

static void initial(const struct task *t, const struct caps *c, const i64 *var, struct sched *out)
{
    struct gemm x;
    double best = 0;
    u32 at[N_PARAM] = {0};
    gemm_of(&x, t);
    for (;;) {
        struct sched v = {0};
        for (u32 i = 0; i < N_PARAM; i++) v.v[i] = param[i].values[at[i]];
        struct block_sched s = sched_of(&v);
        double sec = is_legal(&x, c, &s) ? seconds(&x, c, &s, var) : 0;
        if (sec > 0 && (best == 0 || sec < best)) best = sec, *out = v;
        u32 i = 0;
        while (i < N_PARAM && ++at[i] == param[i].n) at[i++] = 0;
        if (i == N_PARAM) break;
    }
    assert(best > 0);
}

const struct gen gen_group_gemm = {
    .version = 1,
    .name = "group_gemm",
    .revision = 1,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
