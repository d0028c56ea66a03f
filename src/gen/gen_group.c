// SPDX-License-Identifier: Apache-2.0
//
// gen_group: copying, register tiles and reductions by groups of threads.
//
// Where a thread stands in its subgroup is asked for (SUBGROUP), never worked out from its number:
// a target may number them as it likes. When subgroups are used, the number in the group is made of
// the two, so that a subgroup's threads are neighbours in it.
#include "gen/gen_group.h"

void group_init(struct group *g, struct emit *m, i64 n, u32 subgroup)
{
    assert(n > 0 && (n & (n - 1)) == 0 && subgroup <= n);
    *g = (struct group){.m = m, .n = n, .subgroup = subgroup};
    m->k->group[0] = (u32)n;
    m->k->group[1] = m->k->group[2] = 1;
    m->k->subgroup = subgroup;
}

void group_enter(struct group *g)
{
    struct kir *k = g->m->k;
    if (!g->subgroup) {
        g->t = kir_thread(k, 0);
        return;
    }
    g->sg = g->subgroup == g->n ? kir_int(k, 0) : kir_subgroup(k, 0);
    g->lane = kir_subgroup(k, 1);
    g->t = kir_add(k, kir_mul_i(k, g->sg, g->subgroup), g->lane);
}

/* Limits. */

bool group_is_legal(const struct caps *c, i64 n, i64 shared_bytes)
{
    return n <= c->max_group && shared_bytes <= c->shared_bytes;
}

i64 group_least(const struct caps *c)
{
    return i64_min(i64_max(8, c->subgroup_min), i64_min(64, c->max_group));
}

u32 group_subgroup(const struct caps *c, i64 n)
{
    return c->has_subgroup && c->subgroup > 1 && c->subgroup <= n ? c->subgroup : 0;
}

u32 group_lanes(const struct graph *g, sym extent, enum dtype t, u32 most)
{
    i64 lanes = i64_min(most, 16 / i64_max(1, dtype_size(t)));
    while (lanes > 1 && ((lanes & (lanes - 1)) || !sym_divides(g->sym, lanes, extent))) lanes--;
    return (u32)i64_max(1, lanes);
}

/* Arithmetic and memory at the same time, in waves of groups. The number of processors is not told;
   it is guessed from the peak rate. */
double group_seconds(const struct caps *c, const struct group_load *l)
{
    i64 processors = i64_max(1, (i64)(gen_flop_rate(c) / 4e11));
    i64 slots = processors * i64_max(1, 1024 / l->threads);
    double waves = l->groups / (double)slots, rounds = (double)ceil_div((i64)l->groups, slots);
    double idle = waves > 0 ? rounds / waves : 1;
    double flops = l->flops / gen_flop_rate(c) * idle;
    /* Half of the processors keep memory busy. */
    double bytes = l->bytes / gen_byte_rate(c) * (idle > 2 ? idle / 2 : 1);
    return 3e-6 + (flops > bytes ? flops : bytes) + rounds * l->barriers * 5e-8;
}

/* Copying. */

static i64 copy_units(const struct group_copy *c) { return c->rows * c->cols / c->lanes; }

static i64 copy_turns(const struct group_copy *c) { return ceil_div(copy_units(c), c->g->n); }

void group_copy_open(struct group_copy *c)
{
    struct kir *k = c->g->m->k;
    assert(c->cols % c->lanes == 0);
    c->reg = kir_alloc(k, KS_REG, c->type, c->lanes, kir_int(k, copy_turns(c)));
}

/* Vector number t + turn * n: where it stands in the tile. Opens an IF when not every thread has
 * one. */
static bool copy_unit(const struct group_copy *c, i64 turn, kval *row, kval *col)
{
    struct kir *k = c->g->m->k;
    i64 per_row = c->cols / c->lanes;
    kval unit = kir_add_i(k, c->g->t, turn * c->g->n);
    bool some = (turn + 1) * c->g->n > copy_units(c);
    if (some) kir_if(k, kir_lt(k, unit, kir_int(k, copy_units(c))));
    *row = kir_div_i(k, unit, per_row);
    *col = kir_mul_i(k, kir_mod_i(k, unit, per_row), c->lanes);
    return some;
}

void group_copy_fetch(const struct group_copy *c)
{
    struct kir *k = c->g->m->k;
    for (i64 i = 0; i < copy_turns(c); i++) {
        kval row, col;
        bool some = copy_unit(c, i, &row, &col);
        kir_store(k, c->reg, kir_int(k, i), c->read(c->user, row, col));
        if (some) kir_end(k);
    }
}

void group_copy_put(const struct group_copy *c, kval array, kval at)
{
    struct kir *k = c->g->m->k;
    for (i64 i = 0; i < copy_turns(c); i++) {
        kval row, col;
        bool some = copy_unit(c, i, &row, &col);
        kval to = kir_add(k, kir_mul_i(k, row, c->row_step), kir_mul_i(k, col, c->col_step));
        kir_store(k, array, kir_ramp(k, kir_add(k, at, to), c->col_step, c->lanes),
                  kir_load(k, c->reg, kir_int(k, i)));
        if (some) kir_end(k);
    }
}

/* The register tile. */

i64 group_tile_count(const struct group_tile *t) { return t->tm * t->tn / t->lanes; }

static kval acc_at(const struct group_tile *t, i64 i, i64 j)
{
    return kir_int(t->g->m->k, i * (t->tn / t->lanes) + j);
}

void group_tile_open(struct group_tile *t, kval thread)
{
    struct kir *k = t->g->m->k;
    assert(t->tn % t->lanes == 0 && t->tm % t->run == 0);
    t->y = kir_div_i(k, thread, t->nn);
    t->x = kir_mod_i(k, thread, t->nn);
    t->acc = kir_alloc(k, KS_REG, t->type, t->lanes, kir_int(k, group_tile_count(t)));
    for (i64 i = 0; i < group_tile_count(t); i++)
        kir_store(k, t->acc, kir_int(k, i), kir_const_f(k, t->type, t->lanes, 0));
}

kval group_tile_row(const struct group_tile *t, i64 i)
{
    struct kir *k = t->g->m->k;
    return kir_add_i(k, kir_mul_i(k, t->y, t->run), i / t->run * t->nm * t->run + i % t->run);
}

kval group_tile_col(const struct group_tile *t, i64 j)
{
    struct kir *k = t->g->m->k;
    return kir_add_i(k, kir_mul_i(k, t->x, t->lanes), j * t->nn * t->lanes);
}

kval group_tile_get(const struct group_tile *t, i64 i, i64 j)
{
    return kir_load(t->g->m->k, t->acc, acc_at(t, i, j));
}

/* Vectors of a: along the terms, one of each row; or along rows, for term u. */
static void load_rows(const struct group_tile *t, const struct group_terms *x, i64 u, kval *rows)
{
    struct kir *k = t->g->m->k;
    bool along = x->a_term == 1;
    kval at = kir_add_i(k, x->a_at, u * x->a_term);
    for (i64 i = 0; i < t->tm; i += along ? 1 : t->run) {
        kval row = kir_add(k, at, kir_mul_i(k, group_tile_row(t, i), x->a_row));
        kval v = kir_load(k, x->a, kir_ramp(k, row, 1, along ? (u32)x->n : t->run));
        for (i64 r = 0; r < (along ? 1 : t->run); r++) rows[i + r] = kir_cast(k, t->type, v);
    }
}

static void load_cols(const struct group_tile *t, const struct group_terms *x, i64 u, kval *cols)
{
    struct kir *k = t->g->m->k;
    kval at = kir_add_i(k, x->b_at, u * x->b_term);
    for (i64 j = 0; j < t->tn / t->lanes; j++) {
        kval col = kir_ramp(k, kir_add(k, at, group_tile_col(t, j)), 1, t->lanes);
        cols[j] = kir_cast(k, t->type, kir_load(k, x->b, col));
    }
}

void group_tile_step(const struct group_tile *t, const struct group_terms *x)
{
    struct kir *k = t->g->m->k;
    kval rows[16], cols[16];
    bool along = x->a_term == 1;
    assert(t->tm <= countof(rows) && t->tn <= countof(cols));
    if (along) load_rows(t, x, 0, rows);
    for (i64 u = 0; u < x->n; u++) {
        if (!along) load_rows(t, x, u, rows);
        load_cols(t, x, u, cols);
        for (i64 i = 0; i < t->tm; i++) {
            kval row = kir_splat(k, kir_lane(k, rows[i], along ? u : i % t->run), t->lanes);
            for (i64 j = 0; j < t->tn / t->lanes; j++)
                kir_store(k, t->acc, acc_at(t, i, j),
                          kir_fma(k, row, cols[j], group_tile_get(t, i, j)));
        }
    }
}

/* Reductions. */

/* Over `width` neighbours of one subgroup. */
static kval fold_lanes(const struct group_fold *f, kval v, i64 width)
{
    struct kir *k = f->g->m->k;
    if (width == (i64)f->g->subgroup) {
        if (f->op == KI_ADD) return kir_sg(k, KI_SGADD, v);
        if (f->op == KI_MIN) return kir_sg(k, KI_SGMIN, v);
        if (f->op == KI_MAX) return kir_sg(k, KI_SGMAX, v);
    }
    for (i64 d = 1; d < width; d *= 2) {
        kval other = kir_bin(k, KI_XOR, f->g->lane, kir_int(k, d));
        v = kir_bin(k, f->op, v, kir_shuffle(k, v, other));
    }
    return v;
}

/* Each subgroup by itself, then every thread adds up what the subgroups of its row have left. */
static kval fold_subgroups(const struct group_fold *f, kval v)
{
    struct kir *k = f->g->m->k;
    i64 size = f->g->subgroup;
    if (f->width <= size) return fold_lanes(f, v, f->width);
    i64 n = f->width / size;
    v = fold_lanes(f, v, size);
    kir_barrier(k);
    kir_if(k, kir_bin(k, KI_EQ, f->g->lane, kir_int(k, 0)));
    kir_store(k, f->shared, f->g->sg, v);
    kir_end(k);
    kir_barrier(k);
    kval first = kir_mul_i(k, kir_div_i(k, f->g->sg, n), n), sum = kir_load(k, f->shared, first);
    for (i64 i = 1; i < n; i++)
        sum = kir_bin(k, f->op, sum, kir_load(k, f->shared, kir_add_i(k, first, i)));
    return sum;
}

static kval fold_shared(const struct group_fold *f, kval v)
{
    struct kir *k = f->g->m->k;
    u32 lanes = kir_lanes(k, v);
    kval t = f->g->t, place = kir_mod_i(k, kir_div_i(k, t, f->step), f->width);
    kval mine = kir_ramp(k, kir_mul_i(k, t, lanes), 1, lanes);
    kir_barrier(k);
    kir_store(k, f->shared, mine, v);
    for (i64 d = f->width / 2; d > 0; d /= 2) {
        kir_barrier(k);
        kir_if(k, kir_lt(k, place, kir_int(k, d)));
        kval other = kir_ramp(k, kir_mul_i(k, kir_add_i(k, t, d * f->step), lanes), 1, lanes);
        kval both = kir_bin(k, f->op, kir_load(k, f->shared, mine), kir_load(k, f->shared, other));
        kir_store(k, f->shared, mine, both);
        kir_end(k);
    }
    kir_barrier(k);
    kval first = kir_sub(k, t, kir_mul_i(k, place, f->step));
    return kir_load(k, f->shared, kir_ramp(k, kir_mul_i(k, first, lanes), 1, lanes));
}

kval group_fold(const struct group_fold *f, kval v)
{
    struct kir *k = f->g->m->k;
    assert(f->g->n % (f->width * f->step) == 0);
    if (f->width == 1) return v;
    bool is_near = f->g->subgroup && f->step == 1 && kir_lanes(k, v) == 1;
    return is_near && dtype_size(kir_dtype(k, v)) == 4 ? fold_subgroups(f, v) : fold_shared(f, v);
}
