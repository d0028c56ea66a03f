// SPDX-License-Identifier: Apache-2.0
//
// search: the family's schedule for an empty database: the best predicted one.
//
// Small products of values are gone through. Large ones are searched in three steps, which remember what they asked (iterated local search):
//
//   sample   Few points of a product are legal, sometimes one in millions. Draws combine values of legal points that are known already, with some
//            at random (uniform crossover and mutation: Syswerda, Uniform crossover in genetic algorithms, ICGA 1989), and every value of every
//            parameter is drawn equally often, so that no region is missed. Of a tree (worth) random leaves are drawn.
//   descend  From the best ones, one parameter at a time is changed as long as that is cheaper.
//   pairs    Then two parameters at a time, for schedules whose neighbours are not legal, from the best of these; of the best one a third parameter
//            may lose its effect with them.
#include "gen/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static i64 gcd(i64 x, i64 y)
{
    while (y) {
        i64 r = x % y;
        x = y, y = r;
    }
    return x;
}

/* In the mixed radix of the parameters' numbers of values, the first one's digit is the lowest. */
static void to_digits(const struct gen *g, i64 x, u32 digit[MAX_SCHED])
{
    for (u32 i = 0; i < g->n_param; x /= g->param[i++].n) digit[i] = (u32)(x % g->param[i].n);
}

struct gen_walk gen_walk_start(const struct gen *g, bool scattered, u64 seed)
{
    struct gen_walk w = {.gen = g, .total = 1};
    i64 step = 1;
    for (u32 i = 0; i < g->n_param; i++) w.total *= g->param[i].n;
    assert(w.total > 0 && w.total < INT64_MAX / 2);
    if (scattered) {
        step = i64_max((i64)((double)w.total * 0.6180339887498949), 1);
        while (gcd(w.total, step) != 1) step++;
        to_digits(g, (i64)(seed % (u64)w.total), w.at);
    }
    to_digits(g, step, w.step);
    return w;
}

struct sched gen_walk_next(struct gen_walk *w)
{
    struct sched s = {0};
    u32 carry = 0;
    for (u32 i = 0; i < w->gen->n_param; i++) {
        const struct gen_param *p = &w->gen->param[i];
        s.v[i] = p->values[w->at[i]];
        u32 sum = w->at[i] + w->step[i] + carry;
        carry = sum >= (u32)p->n;
        w->at[i] = carry ? sum - (u32)p->n : sum;
    }
    return s;
}

enum {
    FEW = 1 << 12,      /* points: all of them are asked */
    EVEN = 256,         /* draws that do not depend on others */
    DRAWS = 8000,       /* in all, from the first legal one on */
    LEAVES = 64,        /* of a tree */
    BRANCHES = 1 << 13, /* that are looked at for them */
    MORE = 1 << 16,     /* draws, or branches, while no others than the least ones are known */
    PATIENCE = 1 << 17, /* draws while none is known */
    LEGAL = 512,        /* schedules are enough */
    STARTS = 8,         /* of descents */
    PAIRS = 2,          /* of them go on in pairs */
    KNOWN_BITS = 12
};

struct point { u8 at[MAX_SCHED]; }; /* numbers of values */

struct gen_search {
    const struct gen_problem *p;
    const struct gen *gen;
    bool sure;      /* only what may be chosen unmeasured */
    struct rng rng;
    struct known { i64 number; double cost; } *known; /* of points asked last; number 0: of none */
    struct found { double cost; struct point at; } found[LEGAL]; /* legal ones, the family's least ones first */
    u32 n, n_least;
    struct sched best; /* so far */
};

static struct sched sched_at(const struct gen_search *x, const struct point *at)
{
    struct sched s = {0};
    for (u32 i = 0; i < x->gen->n_param; i++) s.v[i] = x->gen->param[i].values[at->at[i]];
    return s;
}

/* Seconds; 0: it is not legal, or not wanted. */
static double cost_of(const struct gen_search *x, const struct sched *s)
{
    const struct gen *g = x->gen;
    if ((x->sure && g->sure && !g->sure(x->p, s)) || (g->worth && !g->worth(x->p, s, g->n_param))) return 0;
    return gen_problem_cost(x->p, s);
}

/* was_known: it was asked lately; may be NULL */
static double ask(struct gen_search *x, const struct point *at, bool *was_known)
{
    i64 number = 0;
    for (u32 i = x->gen->n_param; i-- > 0;) number = number * x->gen->param[i].n + at->at[i];
    struct known *k = &x->known[((u64)number * 0x9e3779b97f4a7c15u) >> (64 - KNOWN_BITS)];
    bool same = k->number == number + 1;
    if (was_known) *was_known = same;
    if (!same) {
        const struct sched s = sched_at(x, at);
        *k = (struct known){number + 1, cost_of(x, &s)};
    }
    return k->cost;
}

static void add(struct gen_search *x, const struct point *at)
{
    bool was_known;
    double cost = ask(x, at, &was_known);
    if (cost > 0 && !was_known && x->n < LEGAL) x->found[x->n++] = (struct found){cost, *at};
}

static void add_sched(struct gen_search *x, const struct sched *s)
{
    struct point at = {{0}};
    for (u32 i = 0; i < x->gen->n_param; i++) {
        const struct gen_param *p = &x->gen->param[i];
        while (at.at[i] < p->n && p->values[at.at[i]] != s->v[i]) at.at[i]++;
        if (at.at[i] == p->n) return; /* a device's value that no schedule has */
    }
    add(x, &at);
}

/* A value's number: mostly that of one of n legal points, if there are any, else more often the first one, which mostly means that a parameter has no
   effect. */
static u8 draw_value(struct gen_search *x, u32 param, const struct found *f, u32 n)
{
    if (n && rng_range(&x->rng, 0, 3)) return f[rng_range(&x->rng, 0, n - 1)].at.at[param];
    if (!n && rng_range(&x->rng, 0, 9) < 3) return 0;
    return (u8)rng_range(&x->rng, 0, (i64)x->gen->param[param].n - 1);
}

/* Of the least ones, which may be far from all others, only every second draw while no others are known. */
static void draw_points(struct gen_search *x, i64 last)
{
    u32 param = 0, value = 0; /* of this draw */
    for (i64 i = 0; x->n < LEGAL && i < last; i++) {
        struct point at = {{0}};
        bool others = x->n > x->n_least;
        const struct found *f = x->found + (others ? x->n_least : 0);
        u32 n = others ? i < EVEN ? 0 : x->n - x->n_least : i % 2 ? x->n_least : 0;
        for (u32 k = 0; k < x->gen->n_param; k++) at.at[k] = draw_value(x, k, f, n);
        at.at[param] = (u8)value;
        add(x, &at);
        if (!others && x->n > x->n_least) last = i + DRAWS;
        if (++value == x->gen->param[param].n) value = 0, param = (param + 1) % x->gen->n_param;
    }
}

/* Of a family without least schedules one is legal, be it the only one of millions. */
static void find_any(struct gen_search *x)
{
    struct gen_walk w = gen_walk_start(x->gen, true, 0);
    for (i64 i = 0; i < w.total && !x->n; i++) {
        const struct sched s = gen_walk_next(&w);
        if (cost_of(x, &s) > 0) add_sched(x, &s);
    }
}

static void sample_product(struct gen_search *x)
{
    draw_points(x, x->n ? MORE : PATIENCE);
    if (x->n || x->gen->least || (x->sure && x->gen->sure)) return;
    find_any(x);
    draw_points(x, DRAWS);
}

static void sample_tree(struct gen_search *x)
{
    struct gen_tree tree = {.p = x->p, .may = x->gen->worth ? x->gen->worth : x->gen->begins};
    struct sched s;
    i64 looks = 0;
    for (u32 i = 0; i < LEAVES && looks < (x->n > x->n_least ? BRANCHES : MORE); i++) {
        if (gen_tree_draw(&tree, &x->rng, &s)) add_sched(x, &s);
        looks += GEN_TREE_PATIENCE - tree.left;
    }
}

/* f becomes the point if that is cheaper; false: it is not legal. */
static bool take_cheaper(struct gen_search *x, const struct point *at, struct found *f)
{
    double cost = ask(x, at, NULL);
    if (cost > 0 && cost < f->cost) *f = (struct found){cost, *at};
    return cost > 0;
}

/* An illegal pair of new values may be legal if a third parameter, which has no effect with them, has its first value. */
static void take_mended(struct gen_search *x, struct point at, u32 i, u32 j, struct found *f)
{
    for (u32 k = 0; k < x->gen->n_param; k++) {
        u8 value = at.at[k];
        if (k == i || k == j || value == 0) continue;
        at.at[k] = 0;
        take_cheaper(x, &at, f);
        at.at[k] = value;
    }
}

/* Changes parameter i, and j too where it is another one, to the cheapest values; is that cheaper? Mending costs most, so that only the
   best start, which comes first, is worth it. */
static bool improve(struct gen_search *x, u32 i, u32 j, struct found *f)
{
    struct point at = f->at;
    double before = f->cost;
    u32 n = i == j ? 1 : x->gen->param[j].n;
    for (u32 a = 0; a < x->gen->param[i].n; a++)
        for (u32 b = 0; b < n; b++) {
            at.at[i] = (u8)a;
            if (i != j) at.at[j] = (u8)b;
            if (!take_cheaper(x, &at, f) && i != j && f == x->found) take_mended(x, at, i, j, f);
        }
    return f->cost < before;
}

/* Round the parameters until none of them helps any more. */
static void descend(struct gen_search *x, struct found *f)
{
    u32 n = x->gen->n_param;
    for (u32 i = 0, idle = 0; idle < n; i = (i + 1) % n) idle = improve(x, i, i, f) ? 1 : idle + 1;
}

static void descend_pairs(struct gen_search *x, struct found *f)
{
    for (double before = INFINITY; f->cost < before;) {
        before = f->cost;
        for (u32 i = 0; i < x->gen->n_param; i++)
            for (u32 j = 0; j < i; j++) improve(x, i, j, f);
        descend(x, f);
    }
}

static int by_cost(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    return x->cost != y->cost ? (x->cost > y->cost) - (x->cost < y->cost) : memcmp(&x->at, &y->at, sizeof x->at);
}

/* The first n, cheapest first, different ones. */
static u32 keep_best(struct found *f, u32 count, u32 n)
{
    u32 kept = 0;
    qsort(f, count, sizeof *f, by_cost);
    for (u32 i = 0; i < count && kept < n; i++)
        if (!kept || by_cost(&f[kept - 1], &f[i])) f[kept++] = f[i];
    return kept;
}

/* The first two steps. false: there is no legal schedule that is wanted. */
static bool search(struct gen_search *x)
{
    struct sched s = {0};
    x->n = 0;
    for (u32 k = 0; x->gen->least && x->gen->least(x->p, k, &s); k++, s = (struct sched){0}) add_sched(x, &s);
    for (u32 k = 0; x->gen->start && x->gen->start(x->p, k, &s); k++, s = (struct sched){0}) add_sched(x, &s);
    x->n_least = x->n;
    (x->gen->worth || x->gen->begins ? sample_tree : sample_product)(x);
    x->n = x->n_least + keep_best(x->found + x->n_least, x->n - x->n_least, STARTS);
    for (u32 i = 0; i < x->n; i++) descend(x, &x->found[i]);
    x->n = keep_best(x->found, x->n, PAIRS);
    x->best = sched_at(x, &x->found[0].at);
    return x->n > 0;
}

static bool ask_all(struct gen_search *x)
{
    struct gen_walk w = gen_walk_start(x->gen, false, 0);
    double best = 0;
    for (i64 i = 0; i < w.total; i++) {
        const struct sched s = gen_walk_next(&w);
        double cost = cost_of(x, &s);
        if (cost > 0 && (best == 0 || cost < best)) best = cost, x->best = s;
    }
    return best > 0;
}

struct gen_search *gen_search_open(const struct gen_problem *p)
{
    struct gen_search *x = arena_new(p->arena, struct gen_search);
    bool is_small = gen_walk_start(p->gen, false, 0).total <= FEW, found = false;
    *x = (struct gen_search){.p = p, .gen = p->gen, .rng = rng_seed(1)};
    if (p->gen->initial) {
        p->gen->initial(p, &x->best);
        return x;
    }
    for (u32 i = 0; i < (p->gen->sure ? 2 : 1) && !found; i++) {
        x->sure = i == 0;
        if (!is_small) x->known = arena_array(p->arena, struct known, 1 << KNOWN_BITS);
        found = (is_small ? ask_all : search)(x);
    }
    found = found || gen_problem_least(p, &x->best); /* what nobody would try, but can */
    assert(found);
    (void)found;
    return x;
}

void gen_search_pairs(struct gen_search *x)
{
    for (u32 i = 0; i < x->n; i++) descend_pairs(x, &x->found[i]);
    x->n = keep_best(x->found, x->n, 1);
    if (x->n) x->best = sched_at(x, &x->found[0].at);
}

const struct sched *gen_search_best(const struct gen_search *x) { return &x->best; }

void gen_problem_initial(const struct gen_problem *p, struct sched *out)
{
    struct gen_search *x = gen_search_open(p);
    gen_search_pairs(x);
    *out = x->best;
}
