// SPDX-License-Identifier: Apache-2.0
//
// attention_grad: the gradients of attention by queries, keys and values, on processors: the schedules and which of them is good.
// gen/attention_grad_emit.c emits them.
//
// Dims: as in gen/attention_grad.h.
#include "gen/attention_grad.h"
#include "gen/nest.h"

#include <math.h>

// clang-format off
#define PARAMS(P)                                                                             \
    P(mr, "rows of the register tiles by rows", 1, 2, 3, 4, 6, 8, 10, 12, 14)                 \
    P(nr, "vectors of keys of the tiles of scores", 1, 2, 3, 4)                               \
    P(mk, "keys of the register tiles by keys", 1, 2, 3, 4, 6, 8, 10, 12, 14)                 \
    P(nv, "vectors of columns of gradients' tiles", 1, 2, 3, 4, 6, 8)                         \
    P(mb, "tiles of rows in a block at most, 0 = all", 0, 1, 2, 4, 8, 16, 32)                 \
    P(nb, "blocks of keys at a time", 2, 3, 4, 6, 7, 8, 14, 16)                               \
    P(split_m, "grid iterations that share a head's rows", 1, 2, 4, 8, 16)                    \
    P(ku, "terms per step of the inner loops", 1, 4)
// clang-format on
GEN_PARAMS(PARAMS)
GEN_PARAM_READER(struct attention_grad_sched, sched_of, PARAMS)

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    const struct attention_grad_sched s = sched_of(v);
    attention_grad_emit(m, t, c, &s);
}

struct facts {
    struct attention_grad x;
    i64 lanes;
    i64 m, n, d, e;     /* nominal */
    i64 static_m;       /* -1: not known */
    bool is_key_dense;  /* keys lie as products of scores take them, packed without being transposed */
    bool is_value_dense;
    sym queries;        /* of a head; rows are of one or several */
};

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    const struct graph *g = &p->t->g;
    const struct gemm *s = &f->x.scores;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !attention_grad_of(&f->x, p->t)) return false;
    attention_grad_form(&f->x, p->t, p->c);
    f->lanes = gen_lanes(p->c, DT_F32);
    f->m = i64_max(1, gen_eval(g, s->m, NULL)), f->n = i64_max(1, gen_eval(g, s->n, NULL)), f->d = gen_eval(g, s->k, NULL), f->e = gen_eval(g, f->x.slopes.k, NULL);
    f->static_m = gen_static(g, s->m, -1);
    f->is_key_dense = gemm_is_dense_along_last(p->t, s->b, (u32)f->lanes), f->is_value_dense = gemm_is_dense_along_last(p->t, f->x.slopes.b, (u32)f->lanes);
    f->queries = s->m;
    if (f->x.form.score) {
        const struct shape *x = &graph_value(g, f->x.form.score)->shape;
        f->queries = x->dim[x->rank - 2];
    }
    return true;
}

/* Rows of a block. */
static i64 rows_of(const struct attention_grad_sched *s, i64 m) { return s->mb ? i64_min(s->mb * s->mr, round_up(m, s->mr)) : round_up(m, s->mr); }

static i64 keys_of(const struct facts *f, const struct attention_grad_sched *s) { return i64_min(s->nb * s->nr * f->lanes, round_up(f->n, s->nr * f->lanes)); }

/* Bytes of scratch memory. */
static double scratch_of(const struct facts *f, const struct attention_grad_sched *s)
{
    double rows = (double)rows_of(s, f->m);
    return 4 * rows * (2 * (double)keys_of(f, s) + 2 * (double)f->d + (double)f->e + 64);
}

/* Blocks of mb tiles among n: the least mb that gives as many of them. */
static bool is_good_block(i64 mb, i64 n) { return !mb || (mb < n && (mb == 1 || ceil_div(n, mb / 2) > ceil_div(n, mb))); }

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct attention_grad_sched s = sched_of(v);
    i64 tiles = ceil_div(f->m, s.mr), most = i64_max(f->d, f->e);
    if (!tile_is_legal(p->c, s.mr, s.nr) || !tile_is_legal(p->c, s.mr, s.nv) || !tile_is_legal(p->c, s.mk, s.nv)) return false;
    if ((s.mr > 1 && s.mr > f->m) || (s.mk > 1 && s.mk > f->n)) return false;
    if ((s.nv > 1 && (s.nv - 1) * f->lanes >= most) || (s.nr > 1 && (s.nr - 1) * f->lanes >= f->n)) return false;
    if (s.nb > 2 && (s.nb - 1) * s.nr * f->lanes >= f->n) return false;
    if (s.split_m > 1 && (p->c->deterministic || s.split_m > ceil_div(f->m, rows_of(&s, f->m)))) return false;
    bool is_only = tiles == 1 && f->static_m < 0; /* nominally: then all rows are no block */
    if (is_only ? s.mb != 1 : !is_good_block(s.mb, tiles) || (!s.mb && f->static_m < 0)) return false;
    bool is_least = s.mr == 1 && (s.mb == 1 || tiles == 1) && s.nb == 2 && s.nr == 1;
    return is_least || scratch_of(f, &s) <= (double)p->c->l2_bytes / 2 + 65536; /* keys, values and sums go through the second cache, too */
}

/* Prediction: the loops of one thread. */

struct work {
    double m, n, d, e, batch;
    double rows, keys;              /* of a block */
    double row_blocks, key_blocks;  /* of a head; of the latter those that rows have on average */
    double lanes;
};

/* Keys of a block of rows, in blocks: as find_keys of the emission. */
static double blocks_of(const struct facts *f, const struct work *w, double from, double to, const i64 *var)
{
    const struct attention_reach keys = attention_keys_of_rows(&f->x.form, f->queries, w->n, from, to, var);
    return ceil(keys.end / w->keys) - floor(keys.begin / w->keys);
}

static double mean_blocks(const struct facts *f, const struct work *w, const i64 *var)
{
    enum { MOST = 64 }; /* blocks of rows that are looked at */
    double sum = 0, n = fmin(w->row_blocks, MOST);
    if (!f->x.form.has_band) return ceil(w->n / w->keys);
    for (i64 i = 0; i < (i64)n; i++) {
        double from = floor(((double)i + 0.5) * w->row_blocks / n) * w->rows;
        sum += blocks_of(f, w, from, fmin(w->m, from + w->rows), var) / n;
    }
    return sum;
}

static struct work work_of(const struct facts *f, const struct attention_grad_sched *s, const i64 *var)
{
    const struct graph *g = f->x.scores.g;
    const struct space *outer = &f->x.scores.outer;
    struct work w = {.lanes = (double)f->lanes, .batch = 1};
    w.m = (double)i64_max(1, gen_eval(g, f->x.scores.m, var)), w.n = (double)i64_max(1, gen_eval(g, f->x.scores.n, var));
    w.d = (double)f->d, w.e = (double)f->e;
    for (u32 i = 0; i < outer->n; i++) w.batch *= (double)i64_max(1, gen_eval(g, outer->g[i].extent, var));
    i64 tiles = ceil_div((i64)w.m, s->mr), mb = s->mb && s->mb < tiles ? ceil_div(tiles, ceil_div(tiles, s->mb)) : tiles;
    w.rows = fmin(w.m, (double)(mb * s->mr));
    w.keys = fmin(w.n, (double)(s->nb * s->nr * f->lanes));
    w.row_blocks = ceil(w.m / w.rows);
    w.key_blocks = mean_blocks(f, &w, var);
    return w;
}

/* What the loop over terms adds to a step: less where several are written out, unless compilers run out of registers then (measured with 16). */
static double loop_factor(const struct gen_problem *p, i64 ku) { return ku > 1 && p->c->n_vector_regs < 32 ? 1.1 : 1 + 0.02 / (double)ku; }

/* A product of a block: rows by tiles of mr, columns by nr vectors. */
struct product {
    double rows, columns, terms;
    i64 mr, nr;
    double left;              /* bytes that a term of the tile's rows takes */
    double from_right, from_sums; /* shares that a block of keys replaces */
    bool adds;                /* to sums in memory */
};

static double product_seconds(const struct gen_problem *p, const struct work *w, const struct product *x, i64 ku)
{
    const struct nest_rates *r = p->nest;
    double width = (double)x->nr * w->lanes, blocks = ceil(x->columns / width), tiles = ceil(x->rows / (double)x->mr), cells = (double)(x->mr * x->nr);
    struct nest n = {.bytes = {x->left * x->terms, 4 * x->terms * width, 4 * (double)x->mr * width}};
    n.seconds = attention_step(r, (i64)x->rows, (i64)x->rows % x->mr, x->mr, (i64)ceil(x->columns / w->lanes), x->nr) * x->terms * loop_factor(p, ku) / (tiles * blocks);
    n.seconds += nest_ends(r, cells, 0);
    if (x->adds) n.seconds += cells * r->load;
    nest_loop(&n, tiles, 1, 0, 1);
    nest_loop(&n, blocks, 0, 1, 1);
    nest_loop(&n, w->key_blocks, 0, x->from_right, x->from_sums);
    nest_loop(&n, w->row_blocks, 1, 0, 0);
    nest_loop(&n, w->batch, 1, 1, 1);
    return nest_seconds(&n, r);
}

/* Lines that hold a term of a tile of so many neighbouring keys, on average. */
static double lines_of(i64 keys)
{
    enum { LINE = 16 };
    return LINE % keys == 0 ? 1 : 1 + (double)(keys - 1) / LINE;
}

static double products_seconds(const struct gen_problem *p, const struct attention_grad_sched *s, const struct work *w)
{
    const double row = 4 * (double)s->mr, line = lines_of(s->mk) * 64;
    const struct product products[] = {
        {.rows = w->rows, .columns = w->keys, .terms = w->d, .mr = s->mr, .nr = s->nr, .left = row, .from_right = 1},
        {.rows = w->rows, .columns = w->keys, .terms = w->e, .mr = s->mr, .nr = s->nr, .left = row, .from_right = 1},
        {.rows = w->rows, .columns = w->d, .terms = w->keys, .mr = s->mr, .nr = s->nv, .left = row, .from_right = 1, .adds = true},
        {.rows = w->keys, .columns = w->d, .terms = w->rows, .mr = s->mk, .nr = s->nv, .left = line, .from_sums = 1, .adds = true},
        {.rows = w->keys, .columns = w->e, .terms = w->rows, .mr = s->mk, .nr = s->nv, .left = line, .from_sums = 1, .adds = true},
    };
    double t = 0;
    for (u32 i = 0; i < countof(products); i++) t += product_seconds(p, w, &products[i], s->ku);
    return t;
}

/* An exponential and what else there is for each score and slope. */
static double rows_seconds(const struct gen_problem *p, const struct facts *f, const struct work *w)
{
    enum { EXPONENTIAL = 16, OTHERS = 4, ROW = 20 };
    const struct nest_rates *r = p->nest;
    double blocks = w->batch * w->row_blocks * w->key_blocks, ops = (double)(EXPONENTIAL + OTHERS + f->x.n_between);
    return blocks * w->rows * (ceil(w->keys / w->lanes) * (4 * r->load + ops * r->work / 2) + ROW * r->cycle);
}

/* To pack an operand; squares of elements that are not neighbours where they go are transposed in registers. */
static double pack_seconds(const struct gen_problem *p, const struct work *w, double n, bool is_dense)
{
    const struct nest_rates *r = p->nest;
    return n * (3 * r->load + (is_dense ? 1 : 2 * log2(w->lanes)) * r->cycle) / w->lanes + nest_read(r, 4 * n, 4 * n, &(struct nest_rows){0});
}

/* Its parts, kernels of products and of functions of scores, are predicted at 0.7 of their time, because scores between them leave the caches (fitted on Zen 4):
   what is compared with them is, too, by a part of that. */
static const double BESIDE_PARTS = 0.8;

static double predict(const struct gen_problem *p, const struct sched *v)
{
    enum { GRIDS = 6 };
    const struct facts *f = p->facts;
    const struct nest_rates *r = p->nest;
    const struct attention_grad_sched s = sched_of(v);
    const struct work w = work_of(f, &s, p->var);
    double threads = (double)i64_max(1, p->c->n_threads), share = w.batch * fmin((double)s.split_m, w.row_blocks), keys = w.batch * w.n, rows = w.batch * w.m;
    double t = products_seconds(p, &s, &w) + rows_seconds(p, f, &w);
    t += (rows * (2 * w.d + w.e) + (double)s.split_m * keys * (w.d + w.e)) * (2 * r->load + r->cycle) / w.lanes;
    double apart = pack_seconds(p, &w, keys * w.d, f->is_key_dense) + pack_seconds(p, &w, keys * w.e, f->is_value_dense) + pack_seconds(p, &w, keys * w.d, true);
    apart += pack_seconds(p, &w, (double)(s.split_m + 1) * keys * (w.d + w.e), true);
    return BESIDE_PARTS * (t * ceil(share / threads) / share + apart / threads) + r->launch * (threads > 1 ? GRIDS : 1);
}

/* The best predicted of schedules whose tiles by keys are those by rows, two vectors wide where there are as many, and neighbouring keys in one line: a search
   in the whole space finds these seldom. */
static void initial(const struct gen_problem *p, struct sched *s)
{
    static const i32 mr[] = {8, 6, 4, 2, 1}, nr[] = {2, 1}, mb[] = {16, 32, 8, 4, 1, 0}, nb[] = {4, 8, 2}, split_m[] = {1, 2, 4, 8, 16}, ku[] = {4, 1};
    enum { N = countof(mr) * countof(nr) * countof(nr) * countof(mb) * countof(nb) * countof(split_m) * countof(ku) };
    double best = INFINITY;
    for (u32 i = 0; i < N; i++) {
        struct sched x = {0};
        u32 k = i;
        x.v[P_ku] = ku[k % countof(ku)], k /= countof(ku);
        x.v[P_split_m] = split_m[k % countof(split_m)], k /= countof(split_m);
        x.v[P_nb] = nb[k % countof(nb)], k /= countof(nb);
        x.v[P_mb] = mb[k % countof(mb)], k /= countof(mb);
        x.v[P_nv] = nr[k % countof(nr)], k /= countof(nr);
        x.v[P_nr] = nr[k % countof(nr)], k /= countof(nr);
        x.v[P_mr] = mr[k];
        for (x.v[P_mk] = x.v[P_mr]; x.v[P_mk] > 1 && x.v[P_mk] > ((const struct facts *)p->facts)->n; x.v[P_mk] = x.v[P_mk] == 6 ? 4 : x.v[P_mk] / 2) {}
        if (!legal(p, &x)) continue;
        double t = predict(p, &x);
        if (t < best) best = t, *s = x;
    }
}

const struct gen gen_attention_grad = {
    GEN_FAMILY("attention_grad", 4), .sums = SUMS_IN_ORDER, .chains = true, .facts = sizeof(struct facts),
    .analyze = analyze, .legal = legal, .initial = initial, .emit = emit, .predict = predict,
};
