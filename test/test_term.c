// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's arithmetic of terms: expressions that are equal in it are equal in floating
// point for all values; sums in another order, in other blocks, or rounded elsewhere are not equal.
#include "kir/term.h"

#include <math.h>
#include <setjmp.h>

#include <cmocka.h>

static union kir_cell calc(kir_scalar_fn *fn, enum kir_op op, union kir_cell x, union kir_cell y, union kir_cell z)
{
    union kir_cell r;
    assert_true(fn(op, DT_F32, DT_F32, (union kir_cell[3]){x, y, z}, &r));
    return r;
}

/* Random expressions over few variables, so that many of them are equal. */

enum { N_VALUES = 24, N_VARIABLES = 3, N_EXPRESSIONS = 4000 };

struct expression { union kir_cell term, value[N_VALUES]; };

static float hard(struct rng *r)
{
    static const float some[] = {1, -1, 0.5f, 3, 1e-20f, -1e20f, 0x1p-149f, 0x1.fffffep127f};
    u32 i = (u32)rng_range(r, 0, 31);
    return i < countof(some) ? some[i] : (float)(rng_f64(r) * 4 - 2);
}

static struct expression combine(enum kir_op op, const struct expression *x, const struct expression *y, const struct expression *z)
{
    struct expression r;
    r.term = calc(term_scalar, op, x->term, y->term, z->term);
    for (u32 i = 0; i < N_VALUES; i++) r.value[i] = calc(kir_scalar, op, x->value[i], y->value[i], z->value[i]);
    return r;
}

static void test_sound(void **state)
{
    static const enum kir_op ops[] = {KI_ADD, KI_SUB, KI_MUL, KI_FMA, KI_DIV, KI_NEG, KI_ABS, KI_ADD, KI_MUL, KI_FMA};
    static const float constants[] = {0, 1, -1, 0.5f};
    struct arena a = {0};
    struct rng r = rng_seed(7);
    struct expression *x = arena_array(&a, struct expression, N_EXPRESSIONS);
    u32 n = 0, n_equal = 0;
    for (; n < N_VARIABLES; n++) {
        x[n].term = term_new(DT_F32, &r);
        for (u32 i = 0; i < N_VALUES; i++) x[n].value[i].f = hard(&r);
    }
    for (u32 c = 0; c < countof(constants); c++, n++) {
        x[n].term = (union kir_cell){.f = constants[c]};
        for (u32 i = 0; i < N_VALUES; i++) x[n].value[i].f = constants[c];
    }
    for (; n < N_EXPRESSIONS; n++) {
        u32 among = n < 400 ? n : 400;
        const struct expression *from[3];
        for (u32 i = 0; i < 3; i++) from[i] = &x[rng_range(&r, 0, among - 1)];
        enum kir_op op = ops[rng_range(&r, 0, countof(ops) - 1)];
        const char *name = kir_op_info(op)->name;
        x[n] = combine(op, from[0], from[1], from[2]);
        for (u32 i = 0; i < n; i++) {
            if (!term_equal(x[i].term, x[n].term)) continue;
            n_equal++;
            for (u32 v = 0; v < N_VALUES; v++) {
                float p = (float)x[i].value[v].f, q = (float)x[n].value[v].f;
                if (isfinite(p) && isfinite(q) && p != q)
                    fail_msg("expressions %u and %u (%s) are equal as terms, but %.9g and %.9g of %.9g %.9g %.9g", i, n, name, p, q, x[0].value[v].f,
                             x[1].value[v].f, x[2].value[v].f);
            }
        }
    }
    assert_true(n_equal > 1000);
    arena_release(&a);
}

/* Values with different rounding are different terms. */
static void test_orders(void **state)
{
    struct rng r = rng_seed(3);
    for (u32 i = 0; i < 1000; i++) {
        union kir_cell x = term_new(DT_F32, &r), y = term_new(DT_F32, &r), z = term_new(DT_F32, &r), none = {0};
        union kir_cell xy = calc(term_scalar, KI_ADD, x, y, none), yz = calc(term_scalar, KI_ADD, y, z, none);
        union kir_cell product = calc(term_scalar, KI_MUL, x, y, none);
        assert_true(term_equal(xy, calc(term_scalar, KI_ADD, y, x, none)));
        assert_true(term_equal(calc(term_scalar, KI_ADD, xy, z, none), calc(term_scalar, KI_ADD, z, xy, none)));
        assert_false(term_equal(calc(term_scalar, KI_ADD, xy, z, none), calc(term_scalar, KI_ADD, x, yz, none)));
        assert_false(term_equal(calc(term_scalar, KI_FMA, x, y, z), calc(term_scalar, KI_ADD, product, z, none)));
        assert_false(term_equal(x, y));
        assert_false(term_equal(x, calc(term_scalar, KI_NEG, x, none, none)));
        assert_false(term_equal(term_step(KI_FMMA, DT_F32, x, y, z), calc(term_scalar, KI_FMA, x, y, z)));
    }
}

static void test_types(void **state)
{
    struct rng r = rng_seed(5);
    union kir_cell half = term_new(DT_F16, &r), single = term_new(DT_F32, &r), x, y, z;
    assert_true(term_scalar(KI_CAST, DT_F16, DT_F32, (union kir_cell[3]){half}, &x) && term_equal(x, half));
    assert_true(term_scalar(KI_CAST, DT_F32, DT_F16, (union kir_cell[3]){single}, &y) && !term_equal(y, single));
    assert_true(term_scalar(KI_CAST, DT_F16, DT_F32, (union kir_cell[3]){y}, &z) && term_equal(z, y));
    assert_true(term_scalar(KI_CAST, DT_F32, DT_F16, (union kir_cell[3]){z}, &x) && term_equal(x, y));
    assert_true(term_scalar(KI_CAST, DT_F32, DT_BF16, (union kir_cell[3]){half}, &x) && !term_equal(x, half));
    assert_true(term_scalar(KI_CAST, DT_F32, DT_F64, (union kir_cell[3]){single}, &x) && term_equal(x, single));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
