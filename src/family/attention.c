// SPDX-License-Identifier: Apache-2.0
//
// attention: two matmuls with a softmax, or any other reduction of rows, between them, on processors; or the first one of them and what rows are reduced to; or both
// products from what rows were reduced to; or the sums of probabilities along the rows: the schedules and which of them is good. gen/attention_emit.c emits them.
//
// Dims: scores (b.., m, n) = q (b.., m, d) x k (b.., d, n); y (b.., m, e) = p (b.., m, n) x v (b.., n, e); sums of columns (.., n).
#include "gen/attention.h"
#include "gen/nest.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                                          \
    P(mr, "rows of the register tiles", 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)                                \
    P(nr, "vectors of keys of the first product's tile; keys where they are in place", 1, 2, 3, 4)         \
    P(nv, "vectors of columns of the second product's tile", 1, 2, 3, 4, 6, 8)                             \
    P(mb, "tiles of rows per grid iteration at most, 0 = all", 0, 1, 2, 4, 8, 16, 32)                      \
    P(nb, "blocks of keys at a time, 0 = all that an iteration has", 0, 1, 2, 4, 8, 16, 32, 64)            \
    P(split, "keys per grid iteration at most, 0 = all", 0, 32, 128, 256, 512, 1024, 2048, 4096, 8192)     \
    P(keys, "0 packed once, 1 in place by vectors along the head", KEYS_ONCE, KEYS_PLACE)                  \
    P(values, "0 packed once, 1 in place", VALUES_ONCE, VALUES_PLACE)                                      \
    P(ahead, "in place: prefetched into the second cache", 0, 1)                                           \
    P(heads, "1 all heads of a batch in a grid iteration, block of keys by block", 0, 1)                   \
    P(ku, "terms per step of the inner loops", 1, 4)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct attention_sched, sched_of, PARAMS)

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    const struct attention_sched s = sched_of(v);
    attention_emit(m, t, c, &s);
}

struct facts {
    struct attention x;
    i64 lanes;
    i64 m, n, d, e;       /* nominal */
    i64 static_m, static_n; /* -1: not known */
    bool keys_in_place, values_in_place; /* may be */
    double value_front;   /* prologue of the values: as gen_front */
    i64 heads;            /* along the last axis of batches, 0: it is not known */
    i64 page;             /* keys of a page, where a table says where they are; else 0 */
    i64 key_pitch, value_pitch; /* elements from key to key and from row of values to row, where they lie; 0: not known */
    double key_size, value_size; /* bytes of an element, where they lie */
    i64 dot_k;            /* terms that a step of the first product adds */
    sym queries;          /* of a head; rows are of one or several */
};

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    const struct graph *g = &p->t->g;
    const struct gemm *s = &f->x.scores, *v = &f->x.values;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !attention_of(&f->x, p->t)) return false;
    if (f->x.columns.out && p->c->deterministic) return false; /* sums of columns have an order of their own */
    attention_form(&f->x, p->t, p->c);
    bool has_values = attention_has_values(&f->x);
    f->lanes = gen_lanes(p->c, DT_F32);
    f->m = gen_eval(g, s->m, NULL), f->n = gen_eval(g, s->n, NULL), f->d = gen_eval(g, s->k, NULL), f->e = has_values ? gen_eval(g, v->n, NULL) : 0;
    f->static_m = gen_static(g, s->m, -1), f->static_n = gen_static(g, s->n, -1);
    f->keys_in_place = !s->b_const && !gemm_is_dense_along_last(p->t, s->b, (u32)f->lanes);
    f->values_in_place = has_values && !v->b_const && gemm_is_dense_along_last(p->t, v->b, (u32)f->lanes);
    if (has_values) f->value_front = gen_front(g, v->b), f->value_size = (double)dtype_size(graph_value(g, v->b)->dtype);
    f->key_size = (double)dtype_size(graph_value(g, s->b)->dtype);
    f->dot_k = attention_score_product(&f->x, p->c).terms;
    if (f->keys_in_place) f->key_pitch = gemm_step(p->t, s->b, s->bs->rank - 1, (u32)f->lanes);
    if (f->values_in_place) f->value_pitch = gemm_step(p->t, v->b, v->bs->rank - 2, (u32)f->lanes);
    if (s->outer.n) f->heads = gen_static(g, s->outer.g[s->outer.n - 1].extent, 0);
    f->page = f->keys_in_place ? attention_page(p->t, s->b, s->bs->rank - 1) : 0;
    const struct shape *x = &graph_value(g, f->x.score)->shape;
    f->queries = x->rank > 1 ? x->dim[x->rank - 2] : sym_const(g->sym, 1);
    return true;
}

/* Rows of an iteration, at most. */
static i64 rows_of(const struct attention_sched *s, i64 m) { return s->mb ? i64_min(s->mb * s->mr, round_up(m, s->mr)) : round_up(m, s->mr); }

/* Groups of mb among n: the least mb that gives as many of them. */
static bool is_good_group(i64 mb, i64 n) { return !mb || (mb < n && (mb == 1 || ceil_div(n, mb / 2) > ceil_div(n, mb))); }

/* One tile of rows per iteration, whole; they are many per key in any other case. Lanes have partial sums. */
static bool may_take_keys_in_place(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s)
{
    bool is_whole = f->static_m < 0 || f->static_m % s->mr == 0;
    return f->keys_in_place && !f->x.columns.out && !p->c->deterministic && is_whole && (s->mb == 1 || f->static_m == s->mr);
}

/* Keys of an iteration, of n in all, in whole blocks. */
static i64 keys_of(const struct facts *f, const struct attention_sched *s, i64 n)
{
    i64 width = attention_width(s, (u32)f->lanes);
    return round_up(s->split ? ceil_div(n, i64_max(1, ceil_div(n, s->split))) : n, width);
}

/* Elements of scratch memory per row. */
static double row_elements(const struct facts *f, const struct attention_sched *s)
{
    i64 keys = s->nb ? s->nb * attention_width(s, (u32)f->lanes) : keys_of(f, s, f->n);
    return (double)(keys + (attention_is_online(s) ? round_up(f->e, s->nv * f->lanes) : 0)) + 16;
}

/* Keys of a head that lie apart, with those of the other heads between: blocks of them, of all heads, while the next ones are requested. */
static bool may_have_heads(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s)
{
    const double block = (double)(s->nb * attention_width(s, (u32)f->lanes)) * (double)f->heads;
    const double bytes = block * ((double)f->d * f->key_size + (double)f->e * f->value_size);
    const bool is_apart = f->page || (f->key_pitch > f->d && (!attention_has_values(&f->x) || f->value_pitch > f->e));
    return is_apart && f->heads > 1 && s->nb && s->ahead && 2 * bytes <= (double)p->c->l2_bytes;
}

/* More than one block or part of the keys, of a softmax. What parts leave in memory grows with the rows: one iteration has all that share them. */
static bool may_be_online(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s)
{
    if (!attention_has_blocks(&f->x) || p->c->deterministic) return false;
    if (s->split && f->static_n >= 0 && s->split >= f->static_n) return false;
    if (s->split && attention_has_rows(&f->x) && (f->static_m < 0 || rows_of(s, f->m) < f->m)) return false;
    return !s->nb || s->nb * attention_width(s, (u32)f->lanes) < keys_of(f, s, f->static_n < 0 ? i64_max(f->n, s->split) : f->n);
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct attention_sched s = sched_of(v);
    bool has_rows = f->x.scores.m_axis >= 0, in_place = s.keys == KEYS_PLACE;
    i64 tiles = ceil_div(f->m, s.mr);
    if (!tile_is_legal(p->c, s.mr, s.nr) || !tile_is_legal(p->c, s.mr, s.nv)) return false;
    if (!has_rows && (s.mr > 1 || s.mb)) return false;
    if (s.mr > 1 && s.mr > f->m) return false;
    if (!attention_has_values(&f->x) && (s.nv > 1 || s.values || (s.ahead && !in_place))) return false;
    if ((s.nv > 1 && (s.nv - 1) * f->lanes >= f->e) || (s.nr > 1 && (s.nr - 1) * (in_place ? 1 : f->lanes) >= f->n)) return false;
    if (s.ahead && !(in_place && (s.values == VALUES_PLACE || !attention_has_values(&f->x)))) return false;
    if (s.heads && !may_have_heads(p, f, &s)) return false;
    if (in_place && (s.nr > f->lanes || !may_take_keys_in_place(p, f, &s) || (f->page && attention_chunk(f->page) % s.nr))) return false;
    if (s.values == VALUES_PLACE && (!f->values_in_place || s.ku > 1)) return false;
    if (attention_is_online(&s) && !may_be_online(p, f, &s)) return false;
    if (has_rows && !is_good_group(s.mb, tiles)) return false;
    bool is_least = s.mr == 1 && (s.mb == 1 || tiles == 1) && !attention_is_online(&s);
    return is_least || 4 * (double)rows_of(&s, f->m) * row_elements(f, &s) <= (double)p->c->l2_bytes + 65536;
}

/* Packed, row by row, which is legal whatever the sizes; read in place, by as many rows at a time as there are: what differs from the former in several
   parameters at once. */
static bool least(const struct gen_problem *p, u32 number, struct sched *v)
{
    const struct facts *f = p->facts;
    for (u32 i = 0; i < N_PARAM; i++) v->v[i] = param[i].values[0];
    v->v[P_mb] = f->x.scores.m_axis >= 0 && f->m > 1;
    if (number == 0) return true;
    for (u32 i = 0; i < param[P_mr].n; i++)
        if (f->m % param[P_mr].values[i] == 0 && tile_is_legal(p->c, param[P_mr].values[i], 1)) v->v[P_mr] = param[P_mr].values[i];
    v->v[P_mb] = v->v[P_mr] < f->m, v->v[P_nb] = attention_has_blocks(&f->x) && !p->c->deterministic && f->n > 4 * f->lanes ? 4 : 0;
    v->v[P_keys] = KEYS_PLACE, v->v[P_values] = attention_has_values(&f->x) ? VALUES_PLACE : VALUES_ONCE;
    return number == 1;
}

/* Prediction: the loops of one thread. */

struct work {
    double m, n, d, e, batch;  /* in all */
    double rows, tiles, share; /* of an iteration; iterations of a batch's rows */
    double parts, at_once;     /* of the keys; keys at a time */
    double lanes;
    double shown;              /* share of the keys that are not left out */
};

/* Share of the keys that an iteration has, of rows from..to-1: as find_keys of the emission. */
static double shown_to(const struct facts *f, double from, double to, double n, const i64 *var)
{
    const struct attention_reach keys = attention_keys_of_rows(&f->x, f->queries, n, from, to, var);
    return (keys.end - keys.begin) / n;
}

/* A mask that each row has of its own is taken to be causal; others are not known. */
static double shown_of(const struct facts *f, const struct work *w, i64 mr, const i64 *var)
{
    enum { MOST = 64 }; /* iterations that are looked at */
    double sum = 0, n = fmin(w->share, MOST);
    if (!f->x.has_band && !(f->x.has_mask && f->x.is_masked_by_row)) return 1;
    for (i64 i = 0; i < (i64)n; i++) {
        double from = floor(((double)i + 0.5) * w->share / n) * w->tiles * (double)mr;
        sum += shown_to(f, from, fmin(w->m, from + w->tiles * (double)mr), w->n, var) / n;
    }
    return sum;
}

static struct work work_of(const struct facts *f, const struct attention_sched *s, const i64 *var)
{
    const struct graph *g = f->x.scores.g;
    const struct space *outer = &f->x.scores.outer;
    struct work w = {.lanes = (double)f->lanes, .batch = 1};
    w.m = (double)i64_max(1, gen_eval(g, f->x.scores.m, var)), w.n = (double)i64_max(1, gen_eval(g, f->x.scores.n, var));
    w.d = (double)i64_max(1, gen_eval(g, f->x.scores.k, var)), w.e = attention_has_values(&f->x) ? (double)i64_max(1, gen_eval(g, f->x.values.n, var)) : 0;
    for (u32 i = 0; i < outer->n; i++) w.batch *= (double)i64_max(1, gen_eval(g, outer->g[i].extent, var));
    w.tiles = ceil(w.m / (double)s->mr);
    if (s->mb) w.tiles = fmin(w.tiles, (double)s->mb);
    w.share = ceil(w.m / (w.tiles * (double)s->mr));
    w.rows = fmin(w.m, w.tiles * (double)s->mr);
    w.parts = s->split ? ceil(w.n / (double)s->split) : 1;
    w.at_once = fmin(w.n, (double)(s->nb ? s->nb * attention_width(s, (u32)f->lanes) : keys_of(f, s, (i64)w.n)));
    w.shown = shown_of(f, &w, s->mr, var);
    return w;
}

/* What the loop over terms adds to a step: less where several are written out, unless compilers run out of registers then (measured with 16). */
static double loop_factor(const struct gen_problem *p, i64 ku) { return ku > 1 && p->c->n_vector_regs < 32 ? 1.1 : 1 + 0.02 / (double)ku; }

/* A term of all rows of an iteration and as many vectors of columns, by tiles. */
static double step_of_all(const struct nest_rates *r, const struct facts *f, i64 rows, i64 mr, i64 vectors, i64 nr)
{
    i64 rest = rows % mr;
    return attention_step(r, rows, f->static_m < 0 ? gemm_rest(rest, mr, &tile_fma) : rest, mr, vectors, nr);
}

/* The first product: of all rows with all keys. Scores stay where they are from iteration to iteration. */
static double scores_seconds(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s, const struct work *w)
{
    const struct nest_rates *r = p->nest;
    i64 vectors = (i64)ceil(w->n / w->lanes);
    double width = (double)s->nr * w->lanes, blocks = ceil((double)vectors / (double)s->nr), passes = ceil(w->n / w->at_once);
    double terms = ceil(w->d / (double)f->dot_k), size = f->dot_k > 1 ? f->key_size : 4;
    struct nest n = {.bytes = {size * (double)s->mr * w->d, size * w->d * width, 4 * (double)s->mr * width}};
    n.seconds = step_of_all(r, f, (i64)w->rows, s->mr, vectors, s->nr) * terms * loop_factor(p, s->ku) / (w->tiles * blocks);
    n.seconds += nest_ends(r, (double)(s->mr * s->nr), 0);
    nest_loop(&n, w->tiles, 1, 0, 1);
    nest_loop(&n, blocks / passes, 0, 1, 1);
    nest_loop(&n, passes, 0, 1, 0);
    nest_loop(&n, w->share, 1, 0, 0);
    nest_loop(&n, w->batch, 1, 1, 0);
    return nest_seconds(&n, r);
}

/* Rows of values in place, of so many terms at a time. The second cache may keep what a block of columns leaves of their lines, for the next one;
   a single row takes few keys at a time (attention_sum_values). */
static struct nest_rows value_rows(const struct nest_rates *r, const struct facts *f, const struct attention_sched *s, double terms, double e, double width)
{
    const double size = f->value_size;
    struct nest_rows x = {size * e, size * fmax(e, (double)f->value_pitch), 1};
    bool is_single = s->mr == 1 && attention_is_online(s);
    if (!is_single && size * terms * e > nest_room(r, RATE_L2, &x)) x.bytes = size * width;
    return x;
}

/* Of what is read in place, the share of lines that come in time (fitted on Zen 4): hardware follows what is read in the order of memory, and requests are in
   its way; it does not follow rows apart, nor several side by side. What either has fetched of the next keys while values are read, and the other way
   round, is of use where a block has few: what the first cache keeps, or of a single row, which is faster, half of that. */
static double asked_in_place(const struct gen_problem *p, const struct attention_sched *s, const struct work *w, bool is_in_order)
{
    const struct facts *f = p->facts;
    double bytes = w->n * (w->d * f->key_size + w->e * f->value_size), all = w->batch * bytes / (double)i64_max(1, p->c->n_threads);
    if (all <= p->nest->near[RATE_L3]) return 1; /* caches keep it */
    if (f->page && f->heads > 1) return s->heads ? 1 : s->ahead ? 0.6 : 0.3;
    double few = (double)p->c->l1_bytes / (s->mr == 1 ? 2 : 1), share = bytes / w->n * w->at_once <= few ? 1 : 0.85;
    return share * (is_in_order ? (s->ahead ? 0.65 : 1) : s->ahead ? 1 : 0.4);
}

/* The second one: of all rows with the values. With blocks of keys, sums wait in scratch memory, too, and are scaled. */
static double values_seconds(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s, const struct work *w)
{
    const struct nest_rates *r = p->nest;
    i64 vectors = (i64)ceil(w->e / w->lanes);
    double terms = w->at_once, passes = ceil(w->n / terms), width = (double)s->nv * w->lanes, blocks = ceil((double)vectors / (double)s->nv);
    double size = s->values == VALUES_PLACE ? f->value_size : 4;
    struct nest n = {.bytes = {4 * (double)s->mr * terms, size * terms * width, 4 * (double)s->mr * width}};
    n.seconds = step_of_all(r, f, (i64)w->rows, s->mr, vectors, s->nv) * terms * loop_factor(p, s->ku) / (w->tiles * blocks);
    n.seconds += nest_ends(r, (double)(s->mr * s->nv), 0);
    if (attention_is_online(s)) n.seconds += (double)(s->mr * s->nv) * (4 * r->load + 2 * r->cycle);
    if (s->values == VALUES_PLACE) n.rows[NEST_RIGHT] = value_rows(r, f, s, terms, w->e, width), n.asked[NEST_RIGHT] = asked_in_place(p, s, w, f->value_pitch == f->e && s->mr == 1);
    nest_loop(&n, w->tiles, 1, 0, 1);
    nest_loop(&n, blocks, 0, 1, 1);
    nest_loop(&n, passes, 0, 1, 0);
    nest_loop(&n, w->share, 0, 0, 1);
    nest_loop(&n, w->batch, 0, 1, 1);
    return nest_seconds(&n, r);
}

/* Vectors are added up lane by lane: of several keys at once by interleaving (attention_place.c). */
static double lanes_seconds(const struct nest_rates *r, const struct attention_sched *s, double lanes)
{
    double n = (double)s->nr, each = s->nr > 1 ? 3 * (n - 1 + log2(lanes / n)) + 2 : 8;
    return (double)s->mr * each * r->cycle;
}

/* Keys in place: every vector of a key is loaded once for all rows, and the lanes of every sum are added up. */
static double dot_seconds(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s, const struct work *w)
{
    enum { UNDER_WAY = 4 }; /* steps that processors compute at a time */
    const struct nest_rates *r = p->nest;
    double passes = ceil(w->n / w->at_once), keys = ceil(w->at_once / (double)s->nr), vectors = ceil(w->d / w->lanes / (double)f->dot_k), cells = (double)(s->mr * s->nr);
    struct nest n = {.bytes = {(f->dot_k > 1 ? f->key_size : 4) * (double)s->mr * w->d, f->key_size * (double)s->nr * w->d, 4 * cells}};
    n.seconds = vectors * nest_tap(r, UNDER_WAY * cells, UNDER_WAY * (double)(s->mr + s->nr)) / UNDER_WAY + lanes_seconds(r, s, w->lanes);
    n.asked[NEST_RIGHT] = asked_in_place(p, s, w, f->key_pitch == f->d && s->mr == 1 && s->nr == 1);
    nest_loop(&n, keys, 0, 1, 1);
    nest_loop(&n, passes, 0, 1, 0);
    nest_loop(&n, w->share, 1, 0, 0);
    nest_loop(&n, w->batch, 1, 1, 0);
    return nest_seconds(&n, r);
}

enum { SCAN = 16, ENDS = 120 }; /* cycles to find a row's first and last keys by its mask; of a row's keys that a band leaves, whose number is not known */

/* So many loads and stores of each score, an exponential, and what else there is between the products. */
static double elements_seconds(const struct gen_problem *p, const struct facts *f, const struct work *w, double loads)
{
    enum { EXPONENTIAL = 16, OTHERS = 6, BAND = 12 };
    const struct nest_rates *r = p->nest;
    double ops = (double)(EXPONENTIAL + OTHERS + f->x.n_between + (f->x.has_band ? BAND : 0));
    return w->batch * w->m * ceil(w->n / w->lanes) * (loads * r->load + ops * r->work / 2);
}

/* Three passes over a row in a near cache, one with an exponential; two, by blocks of keys; one, with given statistics. */
static double row_seconds(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s, const struct work *w)
{
    const struct nest_rates *r = p->nest;
    double blocks = ceil(w->n / w->at_once), scan = f->x.has_mask && w->n > ATTENTION_FEW ? w->batch * (f->x.is_masked_by_row ? w->m : w->share) * SCAN * r->cycle : 0;
    double loads = !f->x.rows.n ? 2 : attention_is_online(s) ? 4 : 6;
    if (!attention_has_values(&f->x)) loads -= 1;
    if (f->x.has_band) scan += w->batch * w->m * ENDS * r->cycle;
    return scan + elements_seconds(p, f, w, loads) + w->batch * w->m * blocks * (double)f->x.rows.n * 24 * r->cycle;
}

/* Parts of the keys: their sums are stored, and added up by iterations of their own, and each looks at the whole mask. */
static double split_seconds(const struct gen_problem *p, const struct facts *f, const struct work *w)
{
    enum { EXPONENTIAL = 40 }; /* of one number, and what else there is for each part */
    const struct nest_rates *r = p->nest;
    double sums = w->batch * w->m * w->parts, t = sums * (ceil(w->e / w->lanes) * (6 * r->load + r->cycle) + EXPONENTIAL * r->cycle);
    if (f->x.has_mask) t += w->batch * (f->x.is_masked_by_row ? w->m : 1) * (w->parts - 1) * SCAN * r->cycle;
    return t;
}

/* Heads of queries. */
static double heads_of(const struct facts *f, const i64 *var)
{
    const struct graph *g = f->x.scores.g;
    const struct shape *s = &graph_value(g, f->x.score)->shape;
    double n = 1;
    for (u32 i = 0; i + 2 < s->rank; i++) n *= (double)i64_max(1, gen_eval(g, s->dim[i], var));
    return n;
}

/* Matrices that a right operand has. */
static double count_of(const struct gemm *x, const i64 *var)
{
    double n = 1;
    for (u32 i = 0; i + 2 < x->bs->rank; i++) n *= (double)gen_eval(x->g, x->bs->dim[i], var);
    return n;
}

/* To evaluate so many elements of an operand whose prologue takes `front` operations. */
static double front_seconds(const struct gen_problem *p, const struct work *w, double front, double n) { return n / w->lanes * front * p->nest->work / 2; }

/* To pack an operand; squares of elements that are not neighbours where they go are transposed in registers. */
static double pack_seconds(const struct gen_problem *p, const struct work *w, double front, double n, bool is_dense)
{
    const struct nest_rates *r = p->nest;
    double each = (3 * r->load + (is_dense ? 1 : 2 * log2(w->lanes)) * r->cycle) / w->lanes;
    return n * each + front_seconds(p, w, front, n) + nest_read(r, 4 * n, 4 * n, &(struct nest_rows){0});
}

/* Sums of columns: the scores once more, and of each an exponential; sums of an iteration's keys are loaded and stored for every row. */
static double columns_seconds(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s, const struct work *w)
{
    const struct nest_rates *r = p->nest;
    double packs = w->batch * w->m * w->d * w->parts * (2 * r->load + r->cycle) / w->lanes;
    double ends = f->x.has_band ? w->batch * w->m * w->parts * ENDS * r->cycle : 0;
    return packs + (scores_seconds(p, f, s, w) + elements_seconds(p, f, w, 4) + ends) * w->shown;
}

/* The grid of rows: statistics, or the result. */
static double rows_grid_seconds(const struct gen_problem *p, const struct facts *f, const struct attention_sched *s, const struct work *w)
{
    const struct gemm *k = &f->x.scores, *e = &f->x.values;
    const struct nest_rates *r = p->nest;
    double t = (s->keys == KEYS_PLACE ? dot_seconds(p, f, s, w) : scores_seconds(p, f, s, w)) + row_seconds(p, f, s, w);
    if (attention_has_values(&f->x)) t += values_seconds(p, f, s, w);
    t *= w->shown;
    if (s->split) t += split_seconds(p, f, w);
    if (s->heads) t += (ceil(w->n / w->at_once) - 1) * w->batch * w->m * w->d * (2 * r->load + r->cycle) / w->lanes; /* rows of queries, for each block */
    t += w->batch * w->m * w->d * w->parts * (2 * r->load + r->cycle) / w->lanes + front_seconds(p, w, gen_problem_front(p, 0), w->batch * w->m * w->d * w->parts);
    if (s->keys == KEYS_PLACE) t += front_seconds(p, w, gen_problem_front(p, 1), count_of(k, p->var) * w->n * w->d * w->share * w->shown);
    if (s->values == VALUES_PLACE) t += front_seconds(p, w, f->value_front, count_of(e, p->var) * w->n * w->e * w->share * w->tiles * w->shown);
    return t;
}

/* Of so many iterations, on all threads. */
static double on_threads(double t, double iterations, double threads) { return t * ceil(iterations / threads) / iterations; }

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct attention_sched s = sched_of(v);
    const struct work w = work_of(f, &s, p->var);
    const struct gemm *k = &f->x.scores, *e = &f->x.values;
    double threads = (double)i64_max(1, p->c->n_threads), grids = 0, packs = 0, t = 0;
    if (attention_has_rows(&f->x)) t += on_threads(rows_grid_seconds(p, f, &s, &w), w.batch * w.share * w.parts, threads), grids += s.split ? 2 : 1;
    if (f->x.columns.out) t += on_threads(columns_seconds(p, f, &s, &w), heads_of(f, p->var) * w.parts, threads), grids++;
    if (s.keys == KEYS_ONCE && !k->b_const) packs += pack_seconds(p, &w, gen_problem_front(p, 1), count_of(k, p->var) * w.n * w.d, !f->keys_in_place), grids++;
    if (attention_has_values(&f->x) && s.values == VALUES_ONCE && !e->b_const)
        packs += pack_seconds(p, &w, f->value_front, count_of(e, p->var) * w.n * w.e, f->values_in_place), grids++;
    return t + packs / threads + p->nest->launch * (threads > 1 ? grids : 1);
}

const struct gen gen_attention = {
    GEN_FAMILY("attention", 11), .sums = SUMS_OF_ROWS, .chains = true, .singles = true, .facts = sizeof(struct facts),
    .analyze = analyze, .least = least, .legal = legal, .emit = emit, .predict = predict,
};
