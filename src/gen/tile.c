// SPDX-License-Identifier: Apache-2.0
//
// tile: the register tile of contractions on processors. What a step adds to it is its leaf's business (tile_fma.c, tile_dot.c,
// tile_mmla.c, tile_rows.c, tile_terms.c, tile_channels.c). All copies are written out, with constant accumulator numbers, so that legalising
// turns the accumulator array into plain registers.
//
// Storing is where the epilogue runs: the anchor is bound to the accumulators and the task's
// outputs are asked for at the pixel's index with a ramp as channel. For outputs whose innermost
// axis is x the tile is transposed in a small scratch array first, so that the epilogue and its
// stores run along x. A long epilogue is emitted once, in a loop over the tile in memory: a
// copy of it for every accumulator would take compilers longer than anything else, and gain nothing.
#include "gen/tile.h"

enum { MAX_EPILOGUE = 1000 }; /* instructions of all copies of an epilogue, beyond which it stands in a loop */

void tile_open(struct tile *t)
{
    if (t->leaf->open) t->leaf->open(t);
    else t->acc = kir_alloc(t->m->k, KS_REG, t->type, t->lanes, kir_int(t->m->k, round_up(t->ty * t->tx, i64_max(1, t->leaf->rows)) * t->nr));
}

/* Instructions of a processor, roughly, that one of a kernel's becomes. */
static u32 weight_of(const struct kir_ins *x)
{
    static const u8 math[N_KIR_OPS] = {[KI_EXP] = 20,  [KI_LOG] = 20,  [KI_SIN] = 40,   [KI_COS] = 40,   [KI_TAN] = 50,   [KI_ASIN] = 30, [KI_ACOS] = 30,
                                       [KI_ATAN] = 30, [KI_SINH] = 40, [KI_COSH] = 40,  [KI_TANH] = 40,  [KI_ASINH] = 50, [KI_ACOSH] = 50,
                                       [KI_ATANH] = 40, [KI_ERF] = 60, [KI_POW] = 80};
    u32 n = math[x->op] ? math[x->op] : 1;
    return dtype_size(x->dtype) > 4 && x->lanes > 1 ? 2 * n : n;
}

/* How long the epilogue behind an element of the anchor is: it is emitted into a kernel that is thrown away. */
static u32 epilogue_weight(const struct tile *t, value_id anchor, u32 c_axis, value_id of)
{
    struct arena a = {0};
    struct kir k;
    struct emit m;
    kval idx[MAX_RANK] = {0}, v;
    u32 weight = 0, from;
    kir_init(&k, &a, S("probe"));
    emit_init(&m, &k, t->m->g, op_lower, &a);
    emit_args(&m);
    kir_grid(&k, kir_param(&k, S("probe")));
    for (u32 i = 0; i < graph_value(m.g, anchor)->shape.rank; i++) idx[i] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), emit_dim(&m, anchor, i), 1);
    idx[c_axis] = kir_ramp(&k, idx[c_axis], 1, t->lanes);
    v = kir_load(&k, kir_alloc(&k, KS_REG, t->type, t->lanes, kir_int(&k, 1)), kir_int(&k, 0));
    from = k.ins.n;
    emit_bind(&m, anchor, gen_given, &v);
    for (u32 i = 0; !of && i < m.g->output.n; i++) emit_value(&m, m.g->output.v[i], idx);
    if (of) emit_value(&m, of, idx);
    for (kval i = from; i < k.ins.n; i++) weight += weight_of(kir_at(&k, i));
    arena_release(&a);
    return weight;
}

void tile_loop_epilogue(struct tile *t, value_id anchor, u32 c_axis, value_id of)
{
    i64 n = t->ty * t->tx * t->nr;
    if (!t->spill && n > 1 && n * epilogue_weight(t, anchor, c_axis, of) > MAX_EPILOGUE)
        t->spill = kir_alloc(t->m->k, KS_WORK, t->type, 1, kir_int(t->m->k, n * t->lanes));
}

kval tile_acc(const struct tile *t, i64 row, i64 j) { return kir_int(t->m->k, row * t->nr + j); }

void tile_clear(const struct tile *t, value_id bias, kval c, kval end)
{
    struct kir *k = t->m->k;
    kval init[TILE_COLUMNS];
    assert(t->nr <= countof(init));
    if (t->leaf->clear) {
        t->leaf->clear(t, bias, c);
        return;
    }
    for (i64 j = 0; j < t->nr; j++) {
        init[j] = kir_const_f(k, t->type, t->lanes, 0);
        if (!bias) continue;
        kval at = kir_add_i(k, c, j * t->lanes), idx = kir_ramp(k, at, 1, t->lanes);
        emit_limit(t->m, end ? kir_sub(k, end, at) : 0);
        init[j] = kir_splat(k, kir_cast(k, t->type, emit_value(t->m, bias, &idx)), t->lanes);
    }
    emit_limit(t->m, 0);
    if (t->leaf->fill) {
        t->leaf->fill(t, init, !bias);
        return;
    }
    for (i64 p = 0; p < t->ty * t->tx; p++)
        for (i64 j = 0; j < t->nr; j++) kir_store(k, t->acc, tile_acc(t, p, j), init[j]);
}

/* In `spill`. */
static kval spilled(const struct tile *t, i64 p, i64 j)
{
    struct kir *k = t->m->k;
    return kir_ramp(k, kir_int(k, (p * t->nr + j) * t->lanes), 1, t->lanes);
}

/* A vector of the sums, when they are none of the leaf's. */
static kval sum_of(const struct tile *t, i64 p, i64 j)
{
    struct kir *k = t->m->k;
    return t->leaf->open ? kir_load(k, t->spill, spilled(t, p, j)) : kir_load(k, t->acc, tile_acc(t, p, j));
}

static void set_sum(const struct tile *t, i64 p, i64 j, kval v)
{
    struct kir *k = t->m->k;
    if (t->leaf->open) kir_store(k, t->spill, spilled(t, p, j), v);
    else kir_store(k, t->acc, tile_acc(t, p, j), v);
}

kval tile_row_at(const struct tile *t, const struct tile_in *a, i64 p)
{
    struct kir *k = t->m->k;
    i64 dy = p / t->tx, dx = p % t->tx;
    if (a->px) return kir_add(k, a->at, a->px[p]);
    kval at = dy ? kir_add(k, a->at, kir_mul_i(k, a->y_step, dy)) : a->at;
    return dx ? kir_add(k, at, kir_mul_i(k, a->x_step, dx)) : at;
}

kval tile_outside(struct kir *k, const struct tile_in *a, enum dtype d) { return a->outside ? kir_cast(k, d, a->outside) : kir_const_f(k, d, 1, 0); }

void tile_add(const struct tile *t, const struct tile_in *a, const kval *right, kval (*left)(const struct tile *t, const struct tile_in *a, kval at),
              kval (*multiply)(struct kir *k, kval left, kval right, kval sum))
{
    struct kir *k = t->m->k;
    for (i64 p = 0; p < t->ty * t->tx; p++) {
        if (!tile_takes_part(a, p)) continue;
        kval x = left(t, a, tile_row_at(t, a, p));
        if (a->inside) x = kir_select(k, a->inside[p], x, tile_outside(k, a, kir_dtype(k, x)));
        for (i64 j = 0; j < t->nr; j++) {
            kval at = tile_acc(t, p, j);
            kir_store(k, t->acc, at, multiply(k, x, right[j], kir_load(k, t->acc, at)));
        }
    }
}

void tile_step(const struct tile *t, const struct tile_in *a, kval b, kval b_at)
{
    assert(t->nr <= TILE_COLUMNS);
    t->leaf->step(t, a, b, b_at);
}

const struct tile_product tile_multiply_add = {.leaf = &tile_fma, .terms = 1, .group = 1};

struct tile_product tile_product_of(const struct caps *c, const struct tile_operands *o)
{
    static const struct tile_leaf *const leaves[] = {&tile_mmla, &tile_dot, &tile_short}; /* the better ones first */
    for (u32 i = 0; i < countof(leaves); i++) {
        i64 terms = leaves[i]->terms(c, o);
        if (terms) return (struct tile_product){.leaf = leaves[i], .terms = terms, .group = leaves[i]->in_groups ? kir_dot_terms(o->a, o->b, o->sum) : terms};
    }
    return tile_multiply_add;
}

struct tile_product tile_product_of_rows(const struct caps *c, const struct tile_operands *o)
{
    i64 terms = tile_matrix.terms(c, o);
    return terms ? (struct tile_product){.leaf = &tile_matrix, .terms = terms, .group = kir_frag_group(o->b)} : tile_product_of(c, o);
}

bool tile_is_matrix(struct tile_product p) { return p.leaf == &tile_matrix; }
i64 tile_unit(struct tile_product p) { return tile_is_matrix(p) ? p.leaf->rows : 1; }

void tile_steps(const struct tile *t, struct tile_in a, kval step, kval b, kval b_at, i64 n, i64 ku)
{
    struct kir *k = t->m->k;
    i64 width = (t->pitch ? t->pitch : t->nr) * t->lanes * i64_max(1, t->dot_k), whole = ku ? n / ku * ku : 0;
    kval at = a.at;
    if (whole) {
        kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), ku);
        for (i64 u = 0; u < ku; u++) {
            kval j = kir_add_i(k, i, u);
            a.at = kir_add(k, at, kir_mul(k, j, step));
            tile_step(t, &a, b, kir_add(k, b_at, kir_mul_i(k, j, width)));
        }
        kir_end(k);
    }
    for (i64 j = whole; j < n; j++) {
        a.at = kir_add(k, at, kir_mul_i(k, step, j));
        tile_step(t, &a, b, kir_add_i(k, b_at, j * width));
    }
}

void tile_run(const struct tile *t, const struct tile_run *r)
{
    struct kir *k = t->m->k;
    struct tile_in a = r->a;
    kval whole = r->exact ? r->n : kir_mul_i(k, kir_div_i(k, r->n, r->ku), r->ku);
    for (u32 part = 0; part < (r->exact ? 1u : 2u); part++) {
        i64 u = part ? 1 : r->ku, none;
        kval from = part ? whole : kir_int(k, 0), to = part ? r->n : whole;
        if (kir_is_const(k, kir_sub(k, to, from), &none) && none <= 0) continue;
        kval i = kir_loop(k, KL_SERIAL, from, to, u);
        for (i64 v = 0; v < u; v++) {
            kval term = kir_add_i(k, i, v);
            a.at = kir_add(k, r->a.at, kir_mul(k, term, r->a_step));
            if (r->ask && !part && !v) r->ask(r->user, t, &a, i);
            tile_step(t, &a, r->b, kir_add(k, r->b_at, kir_mul(k, term, r->b_step)));
        }
        kir_end(k);
    }
}

/* Storing. */

kval tile_temp_index(struct emit *m, value_id anchor, u32 c_axis, const kval *idx)
{
    struct kir *k = m->k;
    u32 rank = graph_value(m->g, anchor)->shape.rank;
    kval at = kir_int(k, 0);
    for (u32 i = 0; i < rank; i++)
        if (i != c_axis) at = kir_add(k, kir_mul(k, at, emit_dim(m, anchor, i)), idx[i]);
    return kir_add(k, kir_mul(k, at, emit_dim(m, anchor, c_axis)), idx[c_axis]);
}

static sym result_count(struct emit *m, const struct result *r)
{
    return shape_count(m->g->sym, &graph_value(m->g, r->v)->shape);
}

void result_open(struct emit *m, struct result *r, enum dtype t)
{
    struct symtab *st = m->g->sym;
    sym n = sym_mul(st, result_count(m, r), sym_const(st, i64_max(1, r->parts)));
    r->temp = kir_alloc(m->k, KS_TEMP, t, 1, emit_size(m, n));
}

/* In the TEMP array, of an element's summand. */
static kval result_index(struct emit *m, const struct result *r, kval part, const kval *idx)
{
    struct kir *k = m->k;
    kval at = tile_temp_index(m, r->v, r->inner, idx);
    return part ? kir_add(k, kir_mul(k, part, emit_size(m, result_count(m, r))), at) : at;
}

static void scratch_store(struct emit *m, const struct scratch *to, const kval *idx, kval limit)
{
    struct kir *k = m->k;
    kval at = kir_int(k, 0), val = emit_value(m, to->v, idx);
    for (u32 a = 0; a < graph_value(m->g, to->v)->shape.rank; a++)
        if (to->step[a])
            at = kir_add(k, at, kir_mul(k, kir_sub(k, idx[a], to->origin[a]), to->step[a]));
    val = kir_splat(k, kir_cast(k, kir_dtype(k, to->buf), val), kir_lanes(k, at));
    kir_store_n(k, to->buf, at, val, to->whole ? 0 : limit);
}

void result_store(struct emit *m, const struct result *r, const kval *idx, kval val, kval limit)
{
    struct kir *k = m->k;
    if (r->temp) {
        kval at = result_index(m, r, r->part, idx);
        kir_store_n(k, r->temp, at, kir_cast(k, kir_dtype(k, r->temp), val), limit);
        return;
    }
    emit_bind(m, r->v, gen_given, &val);
    if (r->to) scratch_store(m, r->to, idx, limit);
    for (u32 i = 0; !r->to && i < m->g->output.n; i++) {
        value_id v = m->g->output.v[i];
        emit_store_n(m, v, idx, emit_value(m, v, idx), limit);
    }
    emit_bind(m, r->v, NULL, NULL);
}

kval result_load(struct emit *m, const void *user, const kval *idx)
{
    struct kir *k = m->k;
    const struct result *r = user;
    kval sum = 0;
    for (i64 i = 0; i < i64_max(1, r->parts); i++) {
        kval v = emit_load(m, r->temp, result_index(m, r, i ? kir_int(k, i) : 0, idx));
        sum = sum ? kir_add(k, sum, v) : v;
    }
    return sum;
}

static i64 x_step_of(const struct tile_out *o) { return o->x_step ? o->x_step : 1; }

static void pixel_index(const struct tile *t, const struct tile_out *o, i64 dy, i64 dx, kval *idx)
{
    const kval *from = o->px ? o->px[dy * t->tx + dx] : o->idx;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = from[i];
    if (o->px) return;
    if (o->y_axis >= 0) idx[o->y_axis] = kir_add_i(t->m->k, idx[o->y_axis], dy);
    if (o->x_axis >= 0) idx[o->x_axis] = kir_add_i(t->m->k, idx[o->x_axis], dx * x_step_of(o));
}

/* Is pixel (dy, dx) one that exists? 0: always. */
static kval pixel_exists(const struct tile *t, const struct tile_out *o, i64 dy, i64 dx)
{
    struct kir *k = t->m->k;
    kval ok = 0, idx[MAX_RANK];
    i64 c;
    if (o->px) return o->exists[dy * t->tx + dx];
    pixel_index(t, o, dy, dx, idx);
    if (o->y_axis >= 0 && dy && !o->y_exact) ok = kir_lt(k, idx[o->y_axis], o->y_end);
    if (o->x_axis >= 0 && dx && !o->x_exact) {
        kval x = kir_lt(k, idx[o->x_axis], o->x_end);
        ok = ok ? kir_bin(k, KI_AND, ok, x) : x;
    }
    return ok && kir_is_const(k, ok, &c) && c ? 0 : ok;
}

static struct result result_of(const struct tile_out *o)
{
    return (struct result){.v = o->anchor,
                           .inner = o->c_axis,
                           .temp = o->temp,
                           .to = o->to,
                           .parts = o->parts,
                           .part = o->parts > 1 ? o->part : 0};
}

/* Vectors from..to-1 of a pixel. */
static void store_pixel(const struct tile *t, const struct tile_out *o, i64 p, i64 from, i64 to, bool guarded)
{
    struct emit *m = t->m;
    const struct result r = result_of(o);
    struct kir *k = m->k;
    kval idx[MAX_RANK], ok = guarded ? pixel_exists(t, o, p / t->tx, p % t->tx) : 0;
    pixel_index(t, o, p / t->tx, p % t->tx, idx);
    if (ok) kir_if(k, ok);
    for (i64 j = from; j < to; j++) {
        kval c = kir_add_i(k, o->c, j * t->lanes), limit = o->c_end ? kir_sub(k, o->c_end, c) : 0;
        emit_limit(m, limit);
        idx[o->c_axis] = kir_ramp(k, c, 1, t->lanes);
        result_store(m, &r, idx, sum_of(t, p, j), limit);
    }
    if (ok) kir_end(k);
    emit_limit(m, 0);
}

/* Of a tile's element in o->temp: vector j of a pixel. */
static kval kept_index(const struct tile *t, const struct tile_out *o, i64 dx, i64 j)
{
    kval idx[MAX_RANK];
    const struct result r = result_of(o);
    pixel_index(t, o, dx / t->tx, dx % t->tx, idx);
    idx[o->c_axis] = kir_add_i(t->m->k, o->c, j * t->lanes);
    return result_index(t->m, &r, r.part, idx);
}

void tile_prefetch(const struct tile *t, const struct tile_out *o)
{
    for (i64 p = 0; p < t->ty * t->tx; p++)
        for (i64 j = 0; j < t->nr; j++) kir_prefetch(t->m->k, o->temp, kept_index(t, o, p, j));
}

void tile_resume(const struct tile *t, const struct tile_out *o)
{
    struct kir *k = t->m->k;
    for (i64 p = 0; p < t->ty * t->tx; p++) {
        kval ok = pixel_exists(t, o, p / t->tx, p % t->tx);
        if (ok) kir_if(k, ok);
        for (i64 j = 0; j < t->nr; j++) {
            kval at = kir_ramp(k, kept_index(t, o, p, j), 1, t->lanes);
            kval limit = o->c_end ? kir_sub(k, o->c_end, kir_add_i(k, o->c, j * t->lanes)) : 0;
            set_sum(t, p, j, limit ? kir_load_n(k, o->temp, at, limit) : kir_load(k, o->temp, at));
        }
        if (!ok) continue;
        kir_else(k);
        for (i64 j = 0; j < t->nr; j++) set_sum(t, p, j, kir_const_f(k, t->type, t->lanes, 0));
        kir_end(k);
    }
    if (t->leaf->resume) t->leaf->resume(t);
}

static i64 pitch_of(const struct tile *t)
{
    i64 p = 1;
    while (p < t->tx) p *= 2;
    return p;
}

i64 tile_rows_size(const struct tile *t) { return t->nr * t->lanes * t->ty * pitch_of(t); }

/* The first n lanes of v, `pitch` elements apart. */
static void store_lanes(struct kir *k, kval to, i64 at, i64 pitch, kval v, i64 n)
{
    if (n >= (i64)kir_lanes(k, v)) kir_store(k, to, kir_ramp(k, kir_int(k, at), pitch, kir_lanes(k, v)), v);
    else for (i64 i = 0; i < n; i++) kir_store(k, to, kir_int(k, at + i * pitch), kir_lane(k, v, (u32)i));
}

void tile_transpose(const struct tile *t, kval to, i64 at, i64 step, i64 pitch, i64 n)
{
    struct kir *k = t->m->k;
    i64 channels = t->nr * t->lanes;
    for (i64 dy = 0; dy < t->ty; dy++)
        for (i64 dx = 0; dx < t->tx; dx++)
            for (i64 j = 0; j < t->nr; j++) {
                i64 from = at + (dy * channels + j * t->lanes) * pitch + dx * step;
                store_lanes(k, to, from, pitch, sum_of(t, dy * t->tx + dx, j), n - j * t->lanes);
            }
}

/* The first n of so many sums of column c, from row (dy, dx) on: transposed, or in memory already. */
static kval column_of(const struct tile *t, const struct tile_out *o, kval c, i64 dy, i64 dx, i64 lanes, kval n)
{
    struct kir *k = t->m->k;
    i64 pitch = pitch_of(t), channels = t->nr * t->lanes;
    if (t->leaf->open) return kir_load_n(k, t->spill, kir_ramp(k, kir_add_i(k, c, (dy * t->tx + dx) * channels), channels, (u32)lanes), n);
    kval at = kir_mul_i(k, kir_add_i(k, c, dy * channels), pitch);
    return kir_load_n(k, o->rows, kir_ramp(k, kir_add_i(k, at, dx), 1, (u32)lanes), n);
}

static void store_rows(const struct tile *t, const struct tile_out *o)
{
    struct emit *m = t->m;
    const struct result r = result_of(o);
    struct kir *k = m->k;
    /* Vectors with as many lanes as an operand of a DOT has bytes would have that split, too (kir_legalise). */
    i64 pitch = pitch_of(t), channels = t->nr * t->lanes, lanes = pitch;
    if ((t->dot_k > 1 && t->lanes == 4) || t->leaf->open) lanes = i64_min(pitch, t->lanes); /* blocks of a matrix unit are longer than vectors may be */
    if (!t->leaf->open) tile_transpose(t, o->rows, 0, 1, pitch, channels);
    kval n_c = o->c_end ? kir_min(k, kir_sub(k, o->c_end, o->c), kir_int(k, channels))
                        : kir_int(k, channels);
    kval n_x = o->x_axis >= 0 ? kir_sub(k, o->x_end, o->idx[o->x_axis]) : kir_int(k, 1);
    n_x = kir_min(k, n_x, kir_int(k, t->tx));
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), n_c, 1);
    for (i64 dy = 0; dy < t->ty; dy++) {
        kval idx[MAX_RANK], ok = pixel_exists(t, o, dy, 0);
        pixel_index(t, o, dy, 0, idx);
        idx[o->c_axis] = kir_add(k, o->c, c);
        kval x = o->x_axis >= 0 ? idx[o->x_axis] : 0;
        if (x) idx[o->x_axis] = kir_ramp(k, x, 1, (u32)lanes);
        if (ok) kir_if(k, ok);
        for (i64 from = 0; from < pitch; from += lanes) {
            kval n = kir_add_i(k, n_x, -from);
            if (from) kir_if(k, kir_lt(k, kir_int(k, from), n_x));
            if (from && x) idx[o->x_axis] = kir_ramp(k, kir_add_i(k, x, from), 1, (u32)lanes);
            emit_limit(m, n);
            result_store(m, &r, idx, column_of(t, o, c, dy, from, lanes, n), n);
            if (from) kir_end(k);
        }
        if (ok) kir_end(k);
    }
    emit_limit(m, 0);
    kir_end(k);
}

/* Likewise with pixels that lie anywhere: one by one. */
static void store_apart(const struct tile *t, const struct tile_out *o, bool guarded)
{
    struct emit *m = t->m;
    const struct result r = result_of(o);
    struct kir *k = m->k;
    i64 pitch = pitch_of(t), channels = t->nr * t->lanes;
    kval end = o->c_end ? kir_min(k, kir_sub(k, o->c_end, o->c), kir_int(k, channels)) : kir_int(k, channels);
    kval c = kir_loop(k, KL_SERIAL, kir_int(k, 0), end, 1);
    for (i64 p = 0; p < t->ty * t->tx; p++) {
        kval idx[MAX_RANK], ok = guarded ? pixel_exists(t, o, p / t->tx, p % t->tx) : 0;
        pixel_index(t, o, p / t->tx, p % t->tx, idx);
        idx[o->c_axis] = kir_add(k, o->c, c);
        kval at = kir_add_i(k, kir_mul_i(k, kir_add_i(k, c, p / t->tx * channels), pitch), p % t->tx);
        if (ok) kir_if(k, ok);
        result_store(m, &r, idx, kir_load(k, o->rows, at), 0);
        if (ok) kir_end(k);
    }
    kir_end(k);
}

/* Pixels of the tile along an axis that exist; with o->to there is room for all. */
static kval pixels_along(const struct tile *t, const struct tile_out *o, i32 axis, i64 n)
{
    struct kir *k = t->m->k;
    bool is_x = axis == o->x_axis;
    i64 step = is_x ? x_step_of(o) : 1;
    if (axis < 0) return kir_int(k, 1);
    if (o->to || (is_x ? o->x_exact : o->y_exact)) return kir_int(k, n);
    kval left = kir_sub(k, is_x ? o->x_end : o->y_end, o->idx[axis]);
    if (step > 1) left = kir_div_i(k, kir_add_i(k, left, step - 1), step);
    return kir_min(k, left, kir_int(k, n));
}

/* Vector by vector, out of memory. */
static void store_spilled(const struct tile *t, const struct tile_out *o)
{
    struct emit *m = t->m;
    const struct result r = result_of(o);
    struct kir *k = m->k;
    kval idx[MAX_RANK], zero = kir_int(k, 0);
    for (i64 p = 0; p < t->ty * t->tx; p++)
        for (i64 j = 0; !t->leaf->open && j < t->nr; j++) kir_store(k, t->spill, spilled(t, p, j), kir_load(k, t->acc, tile_acc(t, p, j)));
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = o->idx[i];
    kval y = kir_loop(k, KL_SERIAL, zero, pixels_along(t, o, o->y_axis, t->ty), 1);
    kval x = kir_loop(k, KL_SERIAL, zero, pixels_along(t, o, o->x_axis, t->tx), 1);
    kval j = kir_loop(k, KL_SERIAL, zero, kir_int(k, t->nr), 1);
    if (o->y_axis >= 0) idx[o->y_axis] = kir_add(k, idx[o->y_axis], y);
    if (o->x_axis >= 0) idx[o->x_axis] = kir_add(k, idx[o->x_axis], kir_mul_i(k, x, x_step_of(o)));
    kval c = kir_add(k, o->c, kir_mul_i(k, j, t->lanes)), limit = o->c_end ? kir_sub(k, o->c_end, c) : 0;
    kval at = kir_add(k, kir_mul_i(k, kir_add(k, kir_mul_i(k, y, t->tx), x), t->nr), j);
    emit_limit(m, limit);
    idx[o->c_axis] = kir_ramp(k, c, 1, t->lanes);
    result_store(m, &r, idx, kir_load(k, t->spill, kir_ramp(k, kir_mul_i(k, at, t->lanes), 1, t->lanes)), limit);
    emit_limit(m, 0);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

static void store_all(const struct tile *t, const struct tile_out *o, bool guarded)
{
    if (o->rows && !o->temp) {
        store_apart(t, o, guarded);
        return;
    }
    i64 piece = t->m->streams ? t->nr : 1; /* whole lines at once go past the caches as such */
    for (i64 j = 0; j < t->nr; j += piece)
        for (i64 p = 0; p < t->ty * t->tx; p++) store_pixel(t, o, p, j, j + piece, guarded);
}

kval tile_full(const struct tile *t, const struct tile_out *o)
{
    kval all = 0;
    if (!o->px) return pixel_exists(t, o, t->ty - 1, t->tx - 1);
    for (i64 p = 0; p < t->ty * t->tx; p++)
        if (o->exists[p]) all = all ? kir_bin(t->m->k, KI_AND, all, o->exists[p]) : o->exists[p];
    return all;
}

bool tile_open_row(const struct tile *t, const struct tile_out *o, i64 dy)
{
    struct kir *k = t->m->k;
    if (!dy || o->y_exact) return false;
    kir_if(k, kir_lt(k, kir_add_i(k, o->idx[o->y_axis], dy), o->y_end));
    return true;
}

void tile_store_along(const struct tile *t, const struct tile_out *o, i64 dy, i64 dx, i64 c, kval sum)
{
    struct emit *m = t->m;
    struct kir *k = m->k;
    const struct result r = result_of(o);
    kval idx[MAX_RANK], x = kir_add_i(k, o->idx[o->x_axis], dx), n = kir_sub(k, o->x_end, x);
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = o->idx[i];
    if (o->y_axis >= 0) idx[o->y_axis] = kir_add_i(k, o->idx[o->y_axis], dy);
    idx[o->c_axis] = kir_add_i(k, o->c, c);
    idx[o->x_axis] = kir_ramp(k, x, 1, t->lanes);
    emit_limit(m, n);
    result_store(m, &r, idx, sum, n);
    emit_limit(m, 0);
}

void tile_store(const struct tile *t, const struct tile_out *o)
{
    struct kir *k = t->m->k;
    if (t->leaf->store) {
        t->leaf->store(t, o);
        return;
    }
    bool by_rows = o->rows && !o->temp;
    if (by_rows && !o->px) {
        store_rows(t, o);
        return;
    }
    if (t->spill && !by_rows && !o->px && (!o->temp || t->leaf->open)) {
        store_spilled(t, o);
        return;
    }
    if (by_rows) tile_transpose(t, o->rows, 0, 1, pitch_of(t), t->nr * t->lanes);
    kval full = o->to ? 0 : tile_full(t, o);
    if (!full || o->x_short) {
        store_all(t, o, full);
        return;
    }
    kir_if(k, full);
    store_all(t, o, false);
    kir_else(k);
    store_all(t, o, true);
    kir_end(k);
}

bool tile_is_legal(const struct caps *c, i64 pixels, i64 nr)
{
    return nr <= 8 && pixels * nr + nr + 1 <= c->n_vector_regs;
}

/* A matrix unit's registers hold the sums, a step's columns and a block of its rows. */
bool tile_is_legal_by(const struct caps *c, struct tile_product p, i64 pixels, i64 nr)
{
    enum { UNIT_REGISTERS = 8 };
    if (p.leaf == &tile_code_dots) return tile_is_legal(c, p.sums * pixels, nr);
    if (!tile_is_matrix(p)) return tile_is_legal(c, pixels, nr);
    return ceil_div(pixels, p.leaf->rows) * nr + nr + 1 <= UNIT_REGISTERS;
}
