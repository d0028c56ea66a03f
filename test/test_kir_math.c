// SPDX-License-Identifier: Apache-2.0
//
// Transcendental operators as arithmetic, run by the interpreter, against the C library in higher
// precision: random arguments over the whole range, usual ranges, and special values; with and
// without FMA, scalar and vector.
#include "kir/legal.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 4096 };

struct function {
    enum kir_op op;
    long double (*ref)(long double);
    double usual;  /* arguments up to that are tried more often */
    double ulp[2]; /* error allowed, f32 and f64, in units of the last place */
};

static const struct function functions[] = {
    {KI_EXP, expl, 90, {1.1, 2}},    {KI_LOG, logl, 100, {1.5, 2}},
    {KI_SIN, sinl, 500, {2.4, 3}},   {KI_COS, cosl, 500, {2.4, 3}},
    {KI_TAN, tanl, 500, {4, 5}},     {KI_ASIN, asinl, 1, {2.6, 3}},
    {KI_ACOS, acosl, 1, {2, 3}},     {KI_ATAN, atanl, 10, {2, 3}},
    {KI_SINH, sinhl, 90, {2.5, 5}},  {KI_COSH, coshl, 90, {2, 5}},
    {KI_TANH, tanhl, 9, {2.5, 4}},   {KI_ASINH, asinhl, 100, {2.5, 4}},
    {KI_ACOSH, acoshl, 100, {3, 4}}, {KI_ATANH, atanhl, 1, {3, 4}},
    {KI_ERF, erfl, 4, {2, 4}},
};

static bool wants_all(const void *user, const struct kir *k, kval v) { return true; }

/* Multiply-adds as two operations. */
static void unfuse(struct kir *out, struct arena *a, const struct kir *in)
{
    struct arena scratch = {0};
    struct kir_copy c = {.in = in, .out = out};
    kir_init(out, a, in->name);
    kir_copy_init(&c, &scratch);
    for (kval v = 1; v < in->ins.n; v++) {
        const struct kir_ins *x = kir_at(in, v);
        kir_copy_ins(&c, v);
        if (x->op != KI_FMA) continue;
        kval p = kir_mul(out, kir_copy_get(&c, x->a, 0), kir_copy_get(&c, x->b, 0));
        kir_copy_set(&c, v, kir_add(out, p, kir_copy_get(&c, x->c, 0)));
    }
    arena_release(&scratch);
}

/* z[i] = op(x[i], y[i]) */
struct run {
    enum kir_op op;
    enum dtype t;
    u32 lanes;
    bool is_fused;
    double x[N], y[N], z[N]; /* values of type t */
};

static void run_build(struct kir *k, struct arena *a, const struct run *r)
{
    kir_init(k, a, S("f"));
    kval x = kir_buf(k, S("x"), r->t, KA_IN), y = kir_buf(k, S("y"), r->t, KA_IN);
    kval z = kir_buf(k, S("z"), r->t, KA_OUT);
    kval i = kir_grid(k, kir_int(k, N / r->lanes));
    kval at = kir_ramp(k, kir_mul_i(k, i, r->lanes), 1, r->lanes), v = kir_load(k, x, at);
    v = r->op == KI_POW ? kir_bin(k, r->op, v, kir_load(k, y, at)) : kir_un(k, r->op, v);
    kir_store(k, z, at, v);
    kir_end(k);
}

static void *pack(struct arena *a, enum dtype t, const double *v)
{
    u8 *p = arena_alloc(a, N * dtype_size(t));
    for (i64 i = 0; i < N; i++) elem_set_f64(t, p, i, v[i]);
    return p;
}

static void run_do(struct run *r)
{
    struct arena a = {0};
    struct kir k, expanded, plain;
    struct err e = {0};
    run_build(&k, &a, r);
    kir_expand_math(&expanded, &a, &k, wants_all, NULL);
    for (kval v = 1; v < expanded.ins.n; v++)
        assert_false(kir_can_expand(kir_at(&expanded, v)->op, kir_dtype(&expanded, v)));
    if (!r->is_fused) unfuse(&plain, &a, &expanded);
    void *z = pack(&a, r->t, r->z);
    const struct kir_arg arg[] = {{pack(&a, r->t, r->x), N}, {pack(&a, r->t, r->y), N}, {z, N}};
    if (!kir_eval(r->is_fused ? &expanded : &plain, arg, NULL, NULL, &e)) fail_msg("%s", e.msg);
    for (i64 i = 0; i < N; i++) r->z[i] = elem_f64(r->t, z, i);
    arena_release(&a);
}

/* Arguments. */

static double round_to(enum dtype t, double v) { return kir_round(t, v); }

static double special(struct rng *r, enum dtype t)
{
    static const double list[] = {0,
                                  1,
                                  0.5,
                                  2,
                                  3,
                                  1.5,
                                  0.75,
                                  4,
                                  10,
                                  88,
                                  89,
                                  104,
                                  709,
                                  710,
                                  745,
                                  746,
                                  1e30,
                                  0.41421356237309503,
                                  2.414213562373095,
                                  0.70710678118654752,
                                  0.78539816339744831,
                                  1.5707963267948966,
                                  3.1415926535897931,
                                  512};
    double least = t == DT_F32 ? 0x1p-149 : 0x1p-1074,
           most = t == DT_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    double eps = t == DT_F32 ? 0x1p-23 : 0x1p-52, v;
    switch (rng_range(r, 0, 7)) {
    case 0: v = least * (double)rng_range(r, 0, 5); break;
    case 1: v = most; break;
    case 2: v = __builtin_inf(); break;
    case 3: v = __builtin_nan(""); break;
    case 4: v = (double)rng_range(r, 0, 400) * 1.5707963267948966; break;
    default:
        v = list[rng_range(r, 0, countof(list) - 1)] * (1 + eps * (double)rng_range(r, -2, 2));
        break;
    }
    return round_to(t, rng_range(r, 0, 1) ? v : -v);
}

static double any_number(struct rng *r, enum dtype t)
{
    int reach = t == DT_F32 ? 149 : 1074;
    int exponent = (int)rng_range(r, -reach, t == DT_F32 ? 127 : 1023);
    double v = ldexp(rng_f64(r) + 0.5, exponent);
    return round_to(t, rng_range(r, 0, 1) ? v : -v);
}

static double argument(struct rng *r, enum dtype t, double usual)
{
    i64 what = rng_range(r, 0, 9);
    if (what == 0) return special(r, t);
    if (what <= 2) return any_number(r, t);
    return round_to(t, (rng_f64(r) * 2 - 1) * usual * (what == 3 && t == DT_F64 ? 8 : 1));
}

/* The error of the result, in units in the last place. */
static double error_of(enum dtype t, double got, long double want)
{
    int e;
    double rounded = t == DT_F32 ? (float)want : (double)want;
    if (rounded != rounded || got != got) return rounded != rounded && got != got ? 0 : HUGE_VAL;
    if (isinf(rounded) || isinf(got) || want == 0) {
        bool near = isinf(got) != isinf(rounded) &&
                    fabs(isinf(got) ? rounded : got) >
                        (t == DT_F32 ? 0x1.fffff0p127 : 0x1.fffffffffffp1023);
        return (got == rounded && signbit(got) == signbit(rounded)) || near ? 0 : HUGE_VAL;
    }
    frexpl(want, &e);
    int least = t == DT_F32 ? -149 : -1074, digits = t == DT_F32 ? 24 : 53;
    e = e - digits < least ? least : e - digits;
    return (double)fabsl((got - want) / ldexpl(1, e));
}

static void check_function(const struct function *f, enum dtype t, u32 lanes, bool is_fused)
{
    static struct run r;
    struct rng g = rng_seed(f->op * 16 + lanes * 2 + is_fused + t);
    double worst = 0, at = 0;
    r.op = f->op;
    r.t = t;
    r.lanes = lanes;
    r.is_fused = is_fused;
    for (i64 i = 0; i < N; i++) r.x[i] = argument(&g, t, f->usual);
    run_do(&r);
    for (i64 i = 0; i < N; i++) {
        double e = error_of(t, r.z[i], f->ref(r.x[i]));
        if (!(e <= worst)) {
            worst = e;
            at = r.x[i];
        }
        if (e > f->ulp[t == DT_F64])
            fail_msg("%s of %s, %s: %a gives %a instead of %a, error %g", kir_op_info(f->op)->name,
                     dtype_name(t), is_fused ? "fused" : "unfused", r.x[i], r.z[i],
                     (double)f->ref(r.x[i]), e);
    }
    if (getenv("VERBOSE"))
        printf("%s %s %s: %.2f at %g\n", kir_op_info(f->op)->name, dtype_name(t),
               is_fused ? "fused" : "unfused", worst, at);
}

static void check_all(enum dtype t)
{
    for (i64 i = 0; i < countof(functions); i++) {
        check_function(&functions[i], t, 1, true);
        check_function(&functions[i], t, 4, false);
    }
}

static void test_f32(void **state) { check_all(DT_F32); }

static void test_f64(void **state) { check_all(DT_F64); }

/* Arguments that need the reduction by many digits: numbers of any size, those nearest to multiples
   of pi/2 (for which one or two digits beyond those of the largest numbers matter), and the first
   ones beyond the bound. */
static void check_large(enum kir_op op, long double (*ref)(long double), enum dtype t, u32 lanes)
{
    static const double f32[] = {16367173 * 0x1p72, 0x1.fffffep127, 0x1.0b3366p28, 0x1.5fdbcp69, 0x1p24, 0x1.921fb6p20},
                        f64[] = {6381956970095103 * 0x1p797, 0x1.fffffffffffffp1023, 0x1.ba3eca8d6e2d6p52, 0x1p53, 0x1.921fb54442d18p40, 1e22};
    static struct run r;
    struct rng g = rng_seed(op + t + lanes);
    double from = t == DT_F32 ? 8 : 10, to = t == DT_F32 ? 127 : 1023, worst = 0, allowed = t == DT_F32 ? 2.4 : 3;
    const double *hard = t == DT_F32 ? f32 : f64;
    i64 n_hard = t == DT_F32 ? countof(f32) : countof(f64);
    r.op = op, r.t = t, r.lanes = lanes, r.is_fused = lanes == 1;
    for (i64 i = 0; i < N; i++) {
        double v = i < n_hard ? hard[i] : ldexp(1 + rng_f64(&g), (int)rng_range(&g, (i64)from, (i64)to));
        /* as near as this type goes */
        if (i % 4 == 3 && i >= n_hard) v = 1.5707963267948966 * (double)rng_range(&g, 1 << 12, 1 << 30);
        r.x[i] = round_to(t, rng_range(&g, 0, 1) ? v : -v);
    }
    run_do(&r);
    for (i64 i = 0; i < N; i++) {
        double e = error_of(t, r.z[i], ref(r.x[i]));
        worst = e > worst ? e : worst;
        if (!(e <= allowed)) fail_msg("%s of %s: %a gives %a instead of %a, error %g", kir_op_info(op)->name, dtype_name(t), r.x[i], r.z[i], (double)ref(r.x[i]), e);
    }
    if (getenv("VERBOSE")) printf("%s of large %s: %.2f\n", kir_op_info(op)->name, dtype_name(t), worst);
}

static void test_large_angles(void **state)
{
    for (u32 lanes = 1; lanes <= 4; lanes += 3) {
        check_large(KI_SIN, sinl, DT_F32, lanes), check_large(KI_COS, cosl, DT_F32, lanes);
        check_large(KI_SIN, sinl, DT_F64, lanes), check_large(KI_COS, cosl, DT_F64, lanes);
    }
}

static void check_pow(enum dtype t, u32 lanes, bool is_fused)
{
    static struct run r;
    struct rng g = rng_seed(77 + t + lanes);
    double allowed = t == DT_F32 ? 2 : 8, worst = 0;
    r.op = KI_POW;
    r.t = t;
    r.lanes = lanes;
    r.is_fused = is_fused;
    for (i64 i = 0; i < N; i++) {
        i64 what = rng_range(&g, 0, 5);
        r.x[i] = what == 0   ? special(&g, t)
                 : what == 1 ? any_number(&g, t)
                             : round_to(t, rng_f64(&g) * 20);
        r.y[i] = what % 2 == 0 ? (double)rng_range(&g, -8, 8) : round_to(t, rng_f64(&g) * 60 - 30);
        if (rng_range(&g, 0, 9) == 0) r.y[i] = special(&g, t);
        if (rng_range(&g, 0, 4) == 0) /* results near the ends of the range */
            r.y[i] =
                round_to(t, (t == DT_F32 ? 89 : 709) / log(fabs(r.x[i])) *
                                (rng_range(&g, 0, 1) ? 1 : -1) * (1 + 0.2 * (rng_f64(&g) - 0.5)));
    }
    run_do(&r);
    for (i64 i = 0; i < N; i++) {
        long double want = powl(r.x[i], r.y[i]);
        double e = error_of(t, r.z[i], want);
        worst = e > worst ? e : worst;
        if (e > allowed)
            fail_msg("pow of %s: %a to the power %a gives %a instead of %a, error %g",
                     dtype_name(t), r.x[i], r.y[i], r.z[i], (double)want, e);
    }
    if (getenv("VERBOSE")) printf("pow %s: %.2f\n", dtype_name(t), worst);
}

static void test_pow(void **state)
{
    check_pow(DT_F32, 1, true);
    check_pow(DT_F32, 4, false);
    check_pow(DT_F64, 1, true);
    check_pow(DT_F64, 2, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_large_angles),
        cmocka_unit_test(test_pow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
