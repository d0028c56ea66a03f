// SPDX-License-Identifier: Apache-2.0
//
// The engine of contractions on processors (gen/cpu_contract.h): nests of random levels go through every element of a result once, with left-over pieces
// of their own size or hanging over; vectors and what is left over of a range.
#include "gen/cpu_contract.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "seeds.h"

enum { MOST = 40 };

/* A result of m x n elements, in tiles of mr rows and blocks of `width` columns. */
struct result_case {
    i64 m, n, mr, width;
    bool outside;   /* rows outside of blocks */
    bool rows_rest, columns_rest, is_unknown; /* left-over pieces have code of their own; their size is not known to it */
    kval count;     /* BUF [m][n] */
    u32 n_bodies, n_entered, n_left;
};

struct kernel_case {
    struct arena a;
    struct kir k;
    struct emit m;
};

static kval start(struct kernel_case *c)
{
    *c = (struct kernel_case){.m.k = &c->k};
    kir_init(&c->k, &c->a, S("test"));
    kval b = kir_buf(&c->k, S("count"), DT_I32, KA_INOUT);
    kir_grid(&c->k, kir_int(&c->k, 1));
    return b;
}

/* Runs it on zeros. */
static void finish(struct kernel_case *c, i32 *count, i64 n)
{
    struct err e = {0};
    kir_end(&c->k);
    memset(count, 0, (size_t)n * sizeof *count);
    if (!kir_verify(&c->k, &e) || !kir_eval(&c->k, (struct kir_arg[]){{count, n}}, NULL, NULL, &e)) fail_msg("%s", e.msg);
    arena_release(&c->a);
}

static void add_one(struct kir *k, kval array, kval at) { kir_store(k, array, at, kir_add(k, kir_load(k, array, at), kir_const_i(k, DT_I32, 1, 1))); }

static void enter(struct cpu_contraction *p, const struct cpu_piece *e) { ((struct result_case *)p->own)->n_entered++; }
static void leave(struct cpu_contraction *p, const struct cpu_piece *e) { ((struct result_case *)p->own)->n_left++; }

static void count_piece(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct result_case *r = p->own;
    struct kir *k = p->m->k;
    bool asks_rows = r->rows_rest ? e->is_over : r->m % r->mr != 0, asks_columns = r->columns_rest ? !e->is_full : r->n % r->width != 0;
    r->n_bodies++;
    for (i64 i = 0; i < e->rows; i++)
        for (i64 j = 0; j < e->columns; j++) {
            kval row = kir_add_i(k, e->at[CPU_X], i), col = kir_add_i(k, kir_mul_i(k, e->at[CPU_BLOCK], r->width), j), ok = 0;
            if (asks_rows) ok = kir_and(k, ok, kir_lt(k, row, kir_int(k, r->m)));
            if (asks_columns) ok = kir_and(k, ok, kir_lt(k, col, kir_int(k, r->n)));
            if (ok) kir_if(k, ok);
            add_one(k, r->count, kir_add(k, kir_mul_i(k, row, r->n), col));
            if (ok) kir_end(k);
        }
}

static void add_rows(struct cpu_contraction *p, const struct result_case *r)
{
    struct cpu_level *l = cpu_level_add(p, CPU_X, kir_int(p->m->k, 0), kir_int(p->m->k, r->m), r->mr);
    if (r->rows_rest) l->rest = r->is_unknown ? r->mr : r->m % r->mr, l->is_unknown = r->is_unknown;
}

static void add_blocks(struct cpu_contraction *p, const struct result_case *r)
{
    struct cpu_level *l = cpu_level_add(p, CPU_BLOCK, kir_int(p->m->k, 0), kir_int(p->m->k, ceil_div(r->n, r->width)), 1);
    l->enter = enter, l->leave = leave;
    if (!r->columns_rest) return;
    l->rest = r->is_unknown ? r->width : r->n % r->width, l->is_unknown = r->is_unknown, l->columns = kir_int(p->m->k, r->n);
}

static void test_nests(void **state)
{
    for (u64 seed = first_seed(0, 200); seed < last_seed(0, 200); seed++) {
        struct kernel_case c;
        struct rng g = rng_seed(seed);
        struct result_case r = {.count = start(&c)};
        i32 count[MOST * MOST];
        r.m = rng_range(&g, 1, MOST), r.n = rng_range(&g, 1, MOST), r.mr = rng_range(&g, 1, 7), r.width = 4 * rng_range(&g, 1, 3);
        r.outside = rng_range(&g, 0, 1), r.rows_rest = rng_range(&g, 0, 1), r.columns_rest = rng_range(&g, 0, 1), r.is_unknown = rng_range(&g, 0, 1);
        struct tile t = {.tx = r.mr};
        struct cpu_contraction p = {.m = &c.m, .own = &r, .t = &t, .width = r.width, .per = 4};
        if (r.outside) add_rows(&p, &r);
        add_blocks(&p, &r);
        if (!r.outside) add_rows(&p, &r);
        cpu_nest(&p, NULL, count_piece);
        assert_true(r.n_bodies >= 1 && r.n_bodies <= 4 && r.n_entered == r.n_left && r.n_entered <= 4);
        finish(&c, count, r.m * r.n);
        for (i64 i = 0; i < r.m * r.n; i++)
            if (count[i] != 1) fail_msg("seed %llu: element %d of %d x %d: %d times", (unsigned long long)seed, (int)i, (int)r.m, (int)r.n, count[i]);
    }
}

/* Copies of a level know their numbers, and place the level inside. */
static void place(struct cpu_contraction *p, const struct cpu_piece *e, struct cpu_level *l)
{
    l->from = kir_int(p->m->k, 10 * e->copy), l->to = kir_int(p->m->k, 10 * e->copy + 5);
}

static void count_one(struct cpu_contraction *p, const struct cpu_piece *e) { add_one(p->m->k, *(kval *)p->own, e->at[CPU_X]); }

static void test_copies(void **state)
{
    struct kernel_case c;
    kval array = start(&c);
    i32 count[30];
    struct tile t = {.tx = 1};
    struct cpu_contraction p = {.m = &c.m, .own = &array, .t = &t, .width = 1, .per = 1};
    cpu_level_add(&p, CPU_PART, 0, 0, 1)->copies = 3;
    cpu_level_add(&p, CPU_X, 0, 0, 1)->place = place;
    cpu_nest(&p, NULL, count_one);
    finish(&c, count, countof(count));
    for (i64 i = 0; i < countof(count); i++) assert_int_equal(count[i], i % 10 < 5);
}

/* A walk moves both operands along. */
static void test_walks(void **state)
{
    struct kernel_case c;
    kval array = start(&c);
    struct kir *k = &c.k;
    i32 count[100];
    struct cpu_walk w = {.k = k, .a = kir_int(k, 40), .b = kir_int(k, 0)};
    cpu_walk_over(&w, KL_SERIAL, kir_int(k, 0), kir_int(k, 3), 2, kir_int(k, 10), 1);  /* 40 + 20*i */
    cpu_walk_over(&w, KL_SERIAL, kir_int(k, 0), kir_int(k, 4), -1, kir_int(k, 2), 3); /* - 2*j */
    add_one(k, array, w.a);
    kir_store(k, array, kir_sub(k, kir_int(k, 99), w.b), kir_const_i(k, DT_I32, 1, 7)); /* i + 3*j */
    cpu_walk_close(&w);
    finish(&c, count, countof(count));
    for (i64 i = 0; i < 3; i++)
        for (i64 j = 0; j < 4; j++) assert_true(count[40 + 20 * i - 2 * j] >= 1 && count[99 - i - 3 * j] == 7);
}

static void test_vectors(void **state)
{
    for (i64 from = 0; from < 3; from++)
        for (i64 to = from; to < 20; to++) {
            struct kernel_case c;
            kval array = start(&c);
            struct kir *k = &c.k;
            i32 count[20];
            struct vectors v = vectors_over(k, kir_int(k, from), kir_int(k, to), 4);
            while (vectors_next(&v)) {
                kval at = kir_ramp(k, v.at, 1, 4);
                kir_store_n(k, array, at, kir_add(k, kir_load_n(k, array, at, v.limit), kir_const_i(k, DT_I32, 1, 1)), v.limit);
            }
            finish(&c, count, countof(count));
            for (i64 i = 0; i < countof(count); i++) assert_int_equal(count[i], i >= from && i < to);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nests),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
