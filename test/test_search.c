// SPDX-License-Identifier: Apache-2.0
//
// What the search promises, without measuring anything: a fair pool, proposals that are legal, new and the same for the same seed.
#include "pass/pass.h"
#include "tune/search.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A convolution that several families can do, on a processor with vectors. */
struct bed {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct cover cover;
    struct caps caps;
    struct tune_task task;
    struct contest c;
    i64 var[4];
};

static void bed_open(struct bed *b, i64 in, i64 out, i64 size)
{
    struct err e = {0};
    *b = (struct bed){.caps = {.arch = "test", .vector_bytes = 32, .n_vector_regs = 16, .n_threads = 1, .l1_bytes = 32 << 10,
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
    b->c = (struct contest){.t = &b->task, .best_at = -1, .best_ratio = 1};
    map_init(&b->c.seen, &b->arena);
}

static void bed_close(struct bed *b)
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

static struct all *all_of(struct bed *b, i64 max, u64 seed)
{
    struct all *all = arena_new(&b->arena, struct all);
    map_init(&all->seen, &b->arena);
    if (max) gen_scatter(b->task.task, &b->caps, max, seed, count_one, all);
    else gen_each(b->task.task, &b->caps, count_one, all);
    return all;
}

/* With room for all of them, the same schedules in another order; with less, a part. */
static void test_scatter(void **state)
{
    struct bed b;
    bed_open(&b, 16, 24, 14);
    struct all *each = all_of(&b, 0, 0), *whole = all_of(&b, INT64_MAX, 7), *part = all_of(&b, 20000, 7);
    assert_int_equal(each->seen.n, whole->seen.n);
    assert_true(part->seen.n < each->seen.n && part->n == each->n);
    for (u32 i = 0; i < each->seen.n; i++) {
        assert_non_null(map_get(&each->seen, whole->seen.v[i].key));
        if (i < part->seen.n) assert_non_null(map_get(&each->seen, part->seen.v[i].key));
    }
    bed_close(&b);
}

/* Every family has a share, and within it every value of a parameter that is not rare. */
static void test_pool_is_fair(void **state)
{
    struct bed b;
    bed_open(&b, 16, 24, 14);
    struct all *each = all_of(&b, 0, 0), *pool = arena_new(&b.arena, struct all);
    map_init(&pool->seen, &b.arena);
    contest_fill_pool(&b.c, &b.caps, 3, &b.arena);
    for (u32 i = 0; i < b.c.pool.n; i++) {
        const struct entrant *x = &b.c.pool.v[i];
        count_one(pool, &x->cand);
        assert_true(x->cand.gen->legal(b.task.task, &b.caps, &x->cand.sched));
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
    bed_close(&b);
}

static void test_pool_is_repeatable(void **state)
{
    struct bed a, b, other;
    bed_open(&a, 16, 24, 14), bed_open(&b, 16, 24, 14), bed_open(&other, 16, 24, 14);
    contest_fill_pool(&a.c, &a.caps, 3, &a.arena);
    contest_fill_pool(&b.c, &b.caps, 3, &b.arena);
    contest_fill_pool(&other.c, &other.caps, 4, &other.arena);
    assert_int_equal(a.c.pool.n, b.c.pool.n);
    bool differs = a.c.pool.n != other.c.pool.n;
    for (u32 i = 0; i < a.c.pool.n; i++) {
        assert_memory_equal(&a.c.pool.v[i].cand, &b.c.pool.v[i].cand, sizeof a.c.pool.v[i].cand);
        differs = differs || memcmp(&a.c.pool.v[i].cand, &other.c.pool.v[i].cand, sizeof a.c.pool.v[i].cand) != 0;
    }
    assert_true(differs);
    bed_close(&a), bed_close(&b), bed_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_pool_is_fair),
        cmocka_unit_test(test_pool_is_repeatable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
