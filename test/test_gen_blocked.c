// SPDX-License-Identifier: Apache-2.0
//
// Blocked channels: convolutions that read them in place, and every family that stores them, on
// random tasks under random legal schedules. Numbers of channels are mostly no multiple of a block:
// padding channels must not be read, and zeros must be written.
#include "gen_tasks.h"

static u32 try_random(u64 seed, const struct gen *only, bool (*make)(struct fixture *), u32 n)
{
    struct fixture b;
    fixture_open(&b, seed);
    b.only = only, b.in_blocks = true;
    u32 done = make(&b) ? try_task(&b, seed, n) : 0;
    fixture_close(&b);
    return done;
}

static void test_direct(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 250); seed < last_seed(0, 250); seed++)
        n += try_random(seed, gen_find(S("conv_blocked")), random_conv, 6);
    assert_true(is_enough(n, 200));
}

static void test_all_families(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(3000, 3100); seed < last_seed(3000, 3100); seed++) n += try_random(seed, NULL, random_conv, 6);
    for (u64 seed = first_seed(4000, 4030); seed < last_seed(4000, 4030); seed++) n += try_random(seed, NULL, random_pool, 4);
    assert_true(n > 0);
}

/* Elements of the padding of output v, at `data`, that are no zeros; their number in all in *n. */
static u32 count_dirty(const struct fixture *b, const struct value *v, const void *data, u32 *n)
{
    i64 dim[MAX_RANK], pixels = 1, block = layout_block(v->layout);
    u32 dirty = 0;
    assert_true(shape_eval(&b->sym, &v->shape, b->var, dim));
    for (u32 a = 2; a < v->shape.rank; a++) pixels *= dim[a];
    i64 n_blocks = ceil_div(dim[1], block), count = dim[0] * n_blocks * pixels * block;
    for (i64 i = 0; i < count; i++) {
        if (i / block / pixels % n_blocks * block + i % block < dim[1]) continue;
        dirty += elem_f64(v->dtype, data, i) != 0;
        *n += 1;
    }
    return dirty;
}

static u32 check_padding(struct fixture *b, u64 seed)
{
    struct check c;
    struct candidate how;
    struct kernel k;
    struct bound at;
    u32 n = 0;
    if (!random_conv(b) || !check_init(&c, &b->t, b->var, seed, true, &b->e)) return 0;
    bool ok = choose(b, 1, &how) && gen_kernel(&k, &b->arena, &how, &b->t, &b->caps, &b->e) &&
              bind_arguments(&at, &k, &c, &b->arena, &b->e);
    for (u32 i = 0; ok && i < k.n_arg; i++) /* NaN before */
        if (k.arg[i].is_out) memset(at.arg[i].p, 0xff, (size_t)(at.arg[i].n * dtype_size(b->type)));
    ok = ok && kir_eval(&k.kir, at.arg, at.param, &(struct kir_eval_opts){.seed = 1}, &b->e);
    for (u32 i = 0; ok && i < k.n_arg; i++) {
        const struct value *v = graph_value(&b->t.g, k.arg[i].v);
        if (k.arg[i].is_out && layout_block(v->layout) > 1) ok = count_dirty(b, v, at.arg[i].p, &n) == 0;
    }
    if (!ok) report(b, &how, seed);
    check_release(&c);
    return n;
}

/* Padding channels of an output are zeros, whichever kernel wrote them. */
static void test_padding(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(5000, 5060); seed < last_seed(5000, 5060); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.in_blocks = true;
        n += check_padding(&b, seed);
        fixture_close(&b);
    }
    assert_true(n > 0);
}

static void test_compiled(void **state)
{
    for (u64 seed = first_seed(1000, 1006); seed < last_seed(1000, 1006); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.in_blocks = true;
        if (random_conv(&b)) {
            b.only = gen_find(S("conv_blocked"));
            if (!gen_matches(b.only, &b.t, &b.caps)) b.only = NULL;
            try_device(&b, "cpu", seed);
        }
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct),
        cmocka_unit_test(test_all_families),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
