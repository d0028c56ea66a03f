// SPDX-License-Identifier: Apache-2.0
//
// Properties of the search, without measurements: an equal share of the pool for each family;
// proposals that are legal, new, and reproducible for a seed.
#include "pass/pass.h"
#include "seeds.h"
#include "tune/search.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A convolution that several families can do, on a processor with vectors. */
struct fixture {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct cover cover;
    struct caps caps;
    struct tune_task task;
    struct task_search c;
    i64 var[4];
};

static void fixture_open(struct fixture *b, i64 in, i64 out, i64 size)
{
    struct err e = {0};
    *b = (struct fixture){.caps = {.arch = "test", .vector_bytes = 32, .n_vector_regs = 16, .n_threads = 1, .l1_bytes = 32 << 10,
                               .l2_bytes = 1 << 20, .l3_bytes = 8 << 20, .has_fma = true}};
    symtab_init(&b->sym, &b->arena);
    graph_init(&b->g, &b->arena, &b->sym);
    value_id x = graph_add_value(&b->g, S("x"));
    struct value *v = graph_value(&b->g, x);
    v->dtype = DT_F32;
    v->shape = (struct shape){.known = true, .rank = 4};
    const i64 dim[] = {1, in, size, size};
    for (u32 i = 0; i < 4; i++) v->shape.dim[i] = sym_const(&b->sym, dim[i]);
    *arr_push(&b->arena, &b->g.input) = x;
    struct tensor *w = tensor_new(&b->arena, DT_F32, 4, (i64[]){out, in, 3, 3});
    value_id y = graph_op(&b->g, "Conv", S("y"), 2, (value_id[]){x, graph_add_const(&b->g, S("w"), w)});
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){1, 1, 1, 1}, 4);
    *arr_push(&b->arena, &b->g.output) = y;
    if (!op_infer_all(&b->g, &e) || !pass_run_all(&b->g, NULL, &e) || !cover_build(&b->cover, &b->g, &b->arena, NULL, &e))
        fail_msg("%s", e.msg);
    for (u32 i = 0; i < b->cover.task.n; i++)
        if (b->cover.task.v[i]->anchor) b->task = (struct tune_task){.task = b->cover.task.v[i], .var = b->var, .weight = 1};
    assert_non_null(b->task.task);
    b->c = (struct task_search){.t = &b->task, .best_at = -1, .best_ratio = 1};
    map_init(&b->c.seen, &b->arena);
}

static void fixture_close(struct fixture *b)
{
    struct arena a = b->arena;
    arena_release(&a);
}

/* All legal schedules of each family, counted by their values. */
struct census {
    const struct gen *gen;
    u64 n, by_value[MAX_SCHED][64];
};
struct all { struct census v[64]; u32 n; struct map seen; };

static u32 value_at(const struct gen_param *p, i32 v)
{
    u32 i = 0;
    while (p->values[i] != v) i++;
    return i;
}

static bool count_one(void *user, const struct candidate *c)
{
    struct all *all = user;
    struct buf b = {0};
    u32 i = 0;
    while (i < all->n && all->v[i].gen != c->gen) i++;
    if (i == all->n) all->v[all->n++].gen = c->gen;
    all->v[i].n++;
    for (u32 k = 0; k < c->gen->n_param; k++) all->v[i].by_value[k][value_at(&c->gen->param[k], c->sched.v[k])]++;
    candidate_print(&b, c);
    assert_null(map_get(&all->seen, buf_view(&b))); /* none comes twice */
    map_put(&all->seen, buf_view(&b), 1);
    buf_release(&b);
    return true;
}

static struct all *all_of(struct fixture *b, i64 max, u64 seed)
{
    struct all *all = arena_new(&b->arena, struct all);
    map_init(&all->seen, &b->arena);
    if (max) gen_scatter(b->task.task, &b->caps, max, seed, count_one, all);
    else gen_each(NULL, b->task.task, &b->caps, count_one, all);
    return all;
}

/* With room for all of them, the same schedules in another order; with less, a part. */
static void test_scatter(void **state)
{
    struct fixture b;
    fixture_open(&b, 16, 24, 14);
    struct all *each = all_of(&b, 0, 0), *whole = all_of(&b, INT64_MAX, 7), *part = all_of(&b, 20000, 7);
    assert_int_equal(each->seen.n, whole->seen.n);
    assert_true(part->seen.n < each->seen.n && part->n == each->n);
    for (u32 i = 0; i < each->seen.n; i++) {
        assert_non_null(map_get(&each->seen, whole->seen.v[i].key));
        if (i < part->seen.n) assert_non_null(map_get(&each->seen, part->seen.v[i].key));
    }
    fixture_close(&b);
}

/* Every family has a share, and within it every value of a parameter that is not rare. */
static void test_pool_is_fair(void **state)
{
    struct fixture b;
    fixture_open(&b, 16, 24, 14);
    struct all *each = all_of(&b, 0, 0), *pool = arena_new(&b.arena, struct all);
    map_init(&pool->seen, &b.arena);
    task_search_fill_pool(&b.c, &b.caps, 3, &b.arena);
    for (u32 i = 0; i < b.c.pool.n; i++) {
        const struct trial *x = &b.c.pool.v[i];
        count_one(pool, &x->cand);
        assert_true(gen_legal(&x->cand, b.task.task, &b.caps));
        assert_true(i == 0 || x->predicted >= b.c.pool.v[i - 1].predicted);
    }
    assert_true(each->n > 1);
    assert_int_equal(pool->n, each->n);
    u64 least = UINT64_MAX, most = 0;
    for (u32 i = 0; i < each->n; i++) {
        const struct census *e = &each->v[i], *p = pool->v;
        while (p->gen != e->gen) p++;
        if (e->n > p->n && p->n < least) least = p->n; /* of families that do not fit as a whole */
        if (p->n > most) most = p->n;
        for (u32 k = 0; k < e->gen->n_param; k++)
            for (u32 x = 0; x < e->gen->param[k].n; x++)
                if (e->by_value[k][x] * 20 > e->n && !p->by_value[k][x])
                    fail_msg("no schedule of '%s' has %s=%d", e->gen->name, e->gen->param[k].name, e->gen->param[k].values[x]);
    }
    assert_true(least * 2 >= most);
    fixture_close(&b);
}

static void test_pool_is_repeatable(void **state)
{
    struct fixture a, b, other;
    fixture_open(&a, 16, 24, 14), fixture_open(&b, 16, 24, 14), fixture_open(&other, 16, 24, 14);
    task_search_fill_pool(&a.c, &a.caps, 3, &a.arena);
    task_search_fill_pool(&b.c, &b.caps, 3, &b.arena);
    task_search_fill_pool(&other.c, &other.caps, 4, &other.arena);
    assert_int_equal(a.c.pool.n, b.c.pool.n);
    bool differs = a.c.pool.n != other.c.pool.n;
    for (u32 i = 0; i < a.c.pool.n; i++) {
        assert_memory_equal(&a.c.pool.v[i].cand, &b.c.pool.v[i].cand, sizeof a.c.pool.v[i].cand);
        differs = differs || memcmp(&a.c.pool.v[i].cand, &other.c.pool.v[i].cand, sizeof a.c.pool.v[i].cand) != 0;
    }
    assert_true(differs);
    fixture_close(&a), fixture_close(&b), fixture_close(&other);
}

/* simulated measurements: a machine whose times differ from the predictions by factors of
   parameters and kernels, of several in all, in a way that no family predicts */

static double pretended(const struct candidate *c, const struct fixture *b, u64 machine)
{
    float fact[N_FACTS];
    double p = gen_predict(c, b->task.task, &b->caps, b->var), y = 0;
    if (!facts_of(fact, c, b->task.task, &b->caps, b->var, p)) return 0;
    struct rng r = rng_seed(machine + c->gen->name[0]);
    for (u32 i = 0; i < c->gen->n_param; i++) {
        double at = 6 * rng_f64(&r);
        y += 0.2 * rng_f64(&r) * fabs(log2(1.0 + abs(c->sched.v[i])) - at);
    }
    for (u32 i = 0; i < N_FACTS; i++) y += 0.1 * rng_f64(&r) * sin(fact[i] + 6 * rng_f64(&r));
    return p * exp(y);
}

static void add_trial(struct fixture *b, const struct candidate *c, u64 machine)
{
    *arr_push(&b->arena, &b->c.known) = (struct trial){.cand = *c, .status = TRIAL_OK, .n = 3, .median = pretended(c, b, machine)};
    b->c.n_tried++;
    task_search_update_best(&b->c);
}

/* Predictions for unseen schedules are better than the families', and seen ones have a small
   deviation. */
static void test_model(void **state)
{
    for (u64 machine = first_seed(1, 5); machine < last_seed(1, 5); machine++) {
        struct fixture b;
        struct rng r = rng_seed(machine);
        struct model m;
        struct point p;
        float fact[N_FACTS];
        struct candidate c;
        double own = 0, before = 0, deviation_far = 0, deviation_near = 0, v[200];
        fixture_open(&b, 16, 24, 14);
        model_init(&m, &b.arena, 200);
        for (u32 i = 0; i < 160; i++) {
            assert_true(gen_random(b.task.task, &b.caps, &r, &c));
            double pred = gen_predict(&c, b.task.task, &b.caps, b.var), y = log(pretended(&c, &b, machine) / pred);
            assert_true(facts_of(fact, &c, b.task.task, &b.caps, b.var, pred));
            point_of(&p, &c, fact, 0, 1);
            if (i < 100) model_add(&m, &p, y - 1);
            if (i == 100) model_fit(&m), deviation_near = model_deviation(&m, &m.p[7], v);
            if (i < 100) continue;
            own += pow(model_mean(&m, &p) + 1 - y, 2), before += pow(1 - y, 2);
            deviation_far = fmax(deviation_far, model_deviation(&m, &p, v));
        }
        if (own > before / 4) fail_msg("machine %llu: squared error %g, was %g", (unsigned long long)machine, own, before);
        assert_true(deviation_near < deviation_far);
        fixture_close(&b);
    }
}

/* The best of many random schedules, or nearly, after a tenth as many trials. */
static void test_search_finds(void **state)
{
    for (u64 machine = first_seed(1, 5); machine < last_seed(1, 5); machine++) {
        struct fixture b;
        struct rng r = rng_seed(machine);
        struct candidate c[4];
        double best = INFINITY;
        fixture_open(&b, 16, 24, 14);
        struct search s = {.caps = &b.caps, .rng = rng_seed(1)};
        task_search_fill_pool(&b.c, &b.caps, 1, &b.arena);
        for (u32 i = 0; i < 1000 && gen_random(b.task.task, &b.caps, &r, c); i++) best = fmin(best, pretended(c, &b, machine));
        while (b.c.n_tried < 100) {
            u32 n = task_search_propose(&b.c, &s, c, 4);
            assert_true(n > 0);
            for (u32 i = 0; i < n; i++) {
                assert_true(gen_legal(&c[i], b.task.task, &b.caps));
                add_trial(&b, &c[i], machine);
            }
        }
        for (u32 i = 0; i < b.c.known.n; i++) /* none comes twice */
            for (u32 k = 0; k < i; k++) assert_memory_not_equal(&b.c.known.v[i].cand, &b.c.known.v[k].cand, sizeof b.c.known.v[i].cand);
        if (b.c.best > best / 0.95) fail_msg("machine %llu: %g, random %g", (unsigned long long)machine, b.c.best, best);
        fixture_close(&b);
    }
}

/* Same database, same seed, same proposals. */
static void test_search_is_repeatable(void **state)
{
    struct fixture b[2];
    struct candidate c[2][4];
    struct search s[2];
    for (u32 k = 0; k < 2; k++) {
        fixture_open(&b[k], 16, 24, 14);
        task_search_fill_pool(&b[k].c, &b[k].caps, 1, &b[k].arena);
        s[k] = (struct search){.caps = &b[k].caps, .rng = rng_seed(1)};
    }
    for (u32 round = 0; round < 10; round++) {
        for (u32 k = 0; k < 2; k++) {
            assert_int_equal(task_search_propose(&b[k].c, &s[k], c[k], 4), 4);
            for (u32 i = 0; i < 4; i++) add_trial(&b[k], &c[k][i], 5);
        }
        assert_memory_equal(c[0], c[1], sizeof c[0]);
    }
    fixture_close(&b[0]), fixture_close(&b[1]);
}

/* The best schedule of the nearest task comes first, unchanged if it is legal, and is tried in the
   first batch. */
static void test_transfer(void **state)
{
    struct fixture b, near, far;
    struct rng r = rng_seed(3);
    struct candidate c[12], x;
    fixture_open(&b, 16, 24, 14), fixture_open(&near, 16, 32, 14), fixture_open(&far, 256, 512, 56);
    double to_near = task_nearness(b.task.task, b.var, near.task.task, near.var),
           to_far = task_nearness(b.task.task, b.var, far.task.task, far.var);
    assert_true(task_nearness(b.task.task, b.var, b.task.task, b.var) > to_near && to_near > to_far && to_far > 0);
    for (u32 i = 0; i < 30; i++) {
        if (gen_random(near.task.task, &near.caps, &r, &x)) add_trial(&near, &x, 1);
        if (gen_random(far.task.task, &far.caps, &r, &x)) add_trial(&far, &x, 1);
    }
    struct task_search *past[] = {&far.c, &b.c, &near.c};
    struct search s = {.caps = &b.caps, .rng = rng_seed(1), .past = past, .n_past = 3};
    struct neighbour order[3];
    assert_int_equal(nearest(&b.c, &s, order, 3), 2);
    assert_ptr_equal(order[0].ts, &near.c);
    assert_ptr_equal(order[1].ts, &far.c);
    assert_int_equal(nearest(&b.c, &s, order, 1), 1);
    assert_ptr_equal(order[0].ts, &near.c);
    u32 n = transfer(&b.c, &s, c, 12);
    assert_true(n >= 2);
    for (u32 i = 0; i < n; i++) assert_true(gen_legal(&c[i], b.task.task, &b.caps));
    const struct candidate *best = &near.c.known.v[near.c.best_at].cand;
    assert_ptr_equal(c[0].gen, best->gen);
    if (gen_legal(best, b.task.task, &b.caps)) assert_memory_equal(&c[0], best, sizeof *best);
    task_search_fill_pool(&b.c, &b.caps, 1, &b.arena);
    struct candidate batch[4];
    assert_int_equal(task_search_propose(&b.c, &s, batch, 4), 4);
    assert_memory_equal(&batch[0], &c[0], sizeof batch[0]);
    fixture_close(&b), fixture_close(&near), fixture_close(&far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_pool_is_fair),
        cmocka_unit_test(test_pool_is_repeatable),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_search_finds),
        cmocka_unit_test(test_search_is_repeatable),
        cmocka_unit_test(test_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
