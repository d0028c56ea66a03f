// SPDX-License-Identifier: Apache-2.0
//
// tree: the spaces of families that say with which values schedules begin. Their schedules are the leaves of
// a tree, one parameter a level; a branch that the family refuses is not entered. Three ways to its
// leaves: all of them in order; random ones, each value of a level alike; and the one nearest to
// given values, which repairs a mutation.
#include "gen/tree.h"

static bool is_open(const struct gen_tree *x, u32 n)
{
    return x->may(x->p, &x->s, n);
}

static bool is_legal(const struct gen_tree *x)
{
    return gen_problem_allows(x->p, &x->s);
}

/* All leaves below the first n values. */
static bool walk(struct gen_tree *x, u32 n, gen_visit *fn, void *user)
{
    const struct gen *g = x->p->gen;
    if (n == g->n_param) {
        struct candidate c = {g, x->s};
        return !is_legal(x) || !fn || fn(user, &c);
    }
    for (u32 i = 0; i < g->param[n].n; i++) {
        x->s.v[n] = g->param[n].values[i];
        if (x->left-- <= 0) return false;
        if (is_open(x, n + 1) && !walk(x, n + 1, fn, user)) return false;
        x->s.v[n] = 0;
    }
    return true;
}

bool gen_tree_walk(struct gen_tree *x, i64 max, gen_visit *fn, void *user)
{
    x->left = max;
    x->s = (struct sched){0};
    return walk(x, 0, fn, user);
}

/* The order in which the values of a level are tried: by a random number, or by their distance to
   what is wanted. */
static void order_of(const struct gen_tree *x, u32 level, u32 n, u32 *order)
{
    u32 want = 0;
    const struct gen_param *p = &x->p->gen->param[level];
    for (u32 i = 0; i < n; i++) {
        order[i] = i;
        if (x->want && p->values[i] == x->want->v[level]) want = i;
    }
    for (u32 i = n; !x->want && i-- > 1;) {
        u32 j = (u32)rng_range(x->rng, 0, i), other = order[i];
        order[i] = order[j], order[j] = other;
    }
    for (u32 i = 0, k = 0; x->want && i < n; i++) { /* want, want - 1, want + 1, want - 2 ... */
        if (i <= want) order[k++] = want - i;
        if (i && want + i < n) order[k++] = want + i;
    }
}

static bool descend(struct gen_tree *x, u32 n)
{
    u32 order[64], count = n < x->p->gen->n_param ? x->p->gen->param[n].n : 0;
    if (n == x->p->gen->n_param) return is_legal(x);
    assert(count <= countof(order));
    order_of(x, n, count, order);
    for (u32 i = 0; i < count && x->left > 0; i++) {
        x->left--;
        x->s.v[n] = x->p->gen->param[n].values[order[i]];
        if (is_open(x, n + 1) && descend(x, n + 1)) return true;
    }
    x->s.v[n] = 0;
    return false;
}

static bool go_down(struct gen_tree *x, struct sched *out)
{
    x->left = GEN_TREE_PATIENCE;
    x->s = (struct sched){0};
    if (!descend(x, 0)) return false;
    *out = x->s;
    return true;
}

bool gen_tree_draw(struct gen_tree *x, struct rng *r, struct sched *out)
{
    x->rng = r, x->want = NULL;
    return go_down(x, out);
}

bool gen_tree_near(struct gen_tree *x, const struct sched *want, struct sched *out)
{
    struct sched w = *want;
    x->want = &w;
    bool ok = go_down(x, out);
    x->want = NULL;
    return ok;
}

/* A small tree is walked; of a large one leaves are drawn, one for so many looks at schedules as the
   tree has levels. */
bool gen_tree_scatter(struct gen_tree *x, i64 max, u64 seed, gen_visit *fn, void *user)
{
    struct arena a = {0};
    struct map seen;
    struct rng r = rng_seed(seed);
    bool go_on = true;
    if (max == INT64_MAX || gen_tree_walk(x, max, NULL, NULL))
        return gen_tree_walk(x, INT64_MAX, fn, user);
    map_init(&seen, &a);
    for (i64 i = ceil_div(max, x->p->gen->n_param); i > 0 && go_on; i--) {
        struct candidate c = {.gen = x->p->gen};
        struct str key = {(const char *)&c.sched, sizeof c.sched};
        if (!gen_tree_draw(x, &r, &c.sched) || map_get(&seen, key)) continue;
        map_put(&seen, key, 1);
        go_on = fn(user, &c);
    }
    arena_release(&a);
    return go_on;
}
