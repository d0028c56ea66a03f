// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR by example: rejections of the verifier, errors found by the interpreter and preserved
// by legalisation, index expressions from the builder, scalar operators at their limits, static
// counts. Properties over random kernels are in test_kir.c.
#include "kir/kir.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The verifier. */

static void refuse(const char *body, const char *why)
{
    struct arena a = {0};
    struct buf b = {0};
    struct kir k;
    struct err e = {0};
    buf_printf(&b, "kernel f(x: in f32, h: in f16, y: out f32; p0 = \"N\")\n%s", body);
    if (kir_parse(&k, &a, buf_view(&b), &e)) fail_msg("accepted: %s", body);
    if (!strstr(e.msg, why)) fail_msg("wanted '%s', got '%s'", why, e.msg);
    buf_release(&b);
    arena_release(&a);
}

static void test_verify(void **state)
{
    refuse("grid %1 = p0\n", "not closed");
    refuse("end\n", "outside a grid");
    refuse("grid %1 = p0\nelse\nend\n", "else without if");
    refuse("%1 = add 1, 2\n", "outside a grid");
    refuse("grid %1 = p0\ngrid %2 = %1\nend\nend\n", "neither constant nor parameter");
    refuse("grid %1 = p0\n%2 = add %1, 1\ngrid %3 = 4\nend\nend\n", "after other instructions");
    refuse("grid %1 = p0\ngrid %2 = 4\nend\n%3 = add %1, 1\nend\n", "after an inner grid");
    refuse("grid %1 = 2\nloop %2 = 0..4\ngrid %3 = 2\nend\nend\nend\n", "inside another structure");
    refuse("grid %1 = p0\nloop %2 = 0..4\n%3 = add %2, 1\nend\nstore y[%3] = f32(0)\nend\n",
           "not in scope");
    refuse("grid %1 = p0\n%2: bool = lt %1, 2\nif %2\n%3 = add %1, 1\nelse\n%4 = add %3, "
           "1\nend\nend\n",
           "not in scope");
    refuse("grid %1 = p0\n%2: f32 = add %1, f32(1)\nend\n", "different types");
    refuse("grid %1 = p0\n%2: f32 = load x[%1]\n%3: f32x4 = add %2, %2\nend\n",
           "wrong result type");
    refuse("grid %1 = p0\n%2: f16 = load h[%1]\n%3: f16 = add %2, %2\nend\n", "storage type");
    refuse("grid %1 = p0\n%2: f32 = and f32(1), f32(2)\nend\n", "does not exist");
    refuse("grid %1 = p0\nstore x[%1] = f32(1)\nend\n", "read-only");
    refuse("grid %1 = p0\nstore y[%1] = 1\nend\n", "wrong type");
    refuse("grid %1 = p0\nstore y[f32(1)] = f32(1)\nend\n", "index is not i64");
    refuse("grid %1 = p0\n%2: i64x8 = ramp %1, 0\nend\n", "stride 0");
    refuse("grid %1 = p0\n%2: i64x8 = splat %1\n%3: f32x8 = load x[%2] first 3\nend\n",
           "without a ramp");
    refuse("grid %1 = p0\nreg %2: f32[p0]\nend\n", "unknown size");
    refuse("grid %1 = p0\nloop %2 = 0..4\nwork %3: f32[8]\nend\nend\n", "not directly in a grid");
    refuse("grid %1 = p0\ntemp %2: f32[8]\nend\n", "inside a grid");
    refuse("grid %1 = p0\nwork %2: f32x8[8]\nend\n", "outside registers");
    refuse("grid %1 = p0\nloop %2 = 0..4 step 0\nend\nend\n", "not a positive constant");
    refuse("grid %1 = p0\n%2: bool = lt %1, 1\nif %2\nbarrier\nend\nend\n", "barrier inside if");
    refuse("grid %1 = p0\n%2: u8 = cast u8(300)\nend\n", "does not fit");
    refuse("grid %1 = p0\n%2: f32x3 = splat f32(0)\nend\n", "invalid number of lanes");
    refuse("grid %1 = p7\nend\n", "no such parameter");
    refuse("grid %1 = p0\n%2: f32x4 = splat f32(1)\n%3: f32 = lane %2, 4\nend\n", "no such lane");
    refuse("grid %1 = p0\n%2: f32x4 = splat f32(1)\n%3: f32x2 = lane %2, 2\nend\n", "no such lane");
    refuse("grid %1 = p0\n%2: f32x4 = splat f32(1)\n%3: f32x2 = splat %2\nend\n", "fewer lanes");
    refuse("grid %1 = p0\n%2: i32 = dot i8x4(1), i16x4(1), i32(0)\nend\n", "for these types");
    refuse("grid %1 = p0\n%2: i32 = dot i8x8(1), i8x8(1), i32(0)\nend\n", "different lanes");
    refuse("grid %1 = p0\n%2: f32 = dot bf16x2(1), bf16x2(1), i32(0)\nend\n", "for these types");
    refuse("grid %1 = p0\n%2: i32x8 = mmla i8x32(1), i8x32(1), i32x8(0)\nend\n", "no matrix of 2x2");
    refuse("grid %1 = p0\n%2: i32x4 = mmla i8x16(1), i16x8(1), i32x4(0)\nend\n", "for these types");
    refuse("grid %1 = p0\n%2: i32x4 = halves i32x4(1), i32x4(2), 2\nend\n", "no such half");
    refuse("grid %1 = p0\n%2: i32x4 = halves i32x4(1), i32x2(2), 0\nend\n", "of different types");
    refuse("grid %1 = p0\n%2: i32 = halves i32(1), i32(2), 0\nend\n", "halves of a scalar");
    refuse("grid %1 = p0\n%2: f32x2 = dot bf16x2(1), bf16x2(1), f32(0)\nend\n", "wrong result type");
}

/* The interpreter's findings: 8 iterations, buffers of 8 elements. */

static struct err interpret(const char *body, u64 seed)
{
    struct arena a = {0};
    struct buf b = {0};
    struct kir k;
    struct err e = {0};
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {0};
    i64 z[8] = {0, 1, 2, 0, 4, 5, 6, 7};
    const struct kir_arg arg[3] = {{x, 8}, {y, 8}, {z, 8}};
    const struct kir_eval_opts o = {.seed = seed, .max_steps = 100000};
    buf_printf(&b, "kernel f(x: in f32, y: out f32, z: inout i64; p0 = \"N\")\n%s", body);
    if (!kir_parse(&k, &a, buf_view(&b), &e) || !kir_eval(&k, arg, (const i64[]){8}, &o, &e))
        assert_true(e.msg[0]);
    buf_release(&b);
    arena_release(&a);
    return e;
}

static void find(const char *body, const char *what)
{
    for (u64 seed = 0; seed < 5; seed++) {
        struct err e = interpret(body, seed);
        if (what ? !strstr(e.msg, what) : e.code != ERR_NONE)
            fail_msg("wanted '%s', got '%s' in\n%s", what ? what : "nothing", e.msg, body);
    }
}

static void test_faults(void **state)
{
    find("grid %1 = p0\n%2: f32 = load x[%1]\nstore y[%1] = %2\nend\n", NULL);
    find("grid %1 = p0\n%2 = add %1, 1\n%3: f32 = load x[%2]\nstore y[%1] = %3\nend\n",
         "read out of bounds: element 8");
    find("grid %1 = p0\n%2 = sub %1, 1\nstore y[%2] = f32(1)\nend\n",
         "write out of bounds: element -1 of 'y'");
    find("grid %1 = p0\nreg %2: f32[4]\nstore %2[%1] = f32(0)\nstore y[%1] = f32(0)\nend\n",
         "write out of bounds");
    find("grid %1 = p0\nreg %2: f32[4]\nstore %2[0] = f32(0)\n%3: f32 = load %2[1]\nstore y[%1] = "
         "%3\nend\n",
         "read of undefined element 1 of reg array %2");
    find("grid %1 = p0\nwork %2: f32[p0]\n%3: f32 = load %2[%1]\nstore y[%1] = %3\nend\n",
         "read of undefined");
    find("grid %1 = p0\n%3: f32 = load y[%1]\nstore y[%1] = %3\nend\n",
         "read of undefined element");
    find("temp %9: f32[8]\ngrid %1 = p0\n%3: f32 = load %9[%1]\nstore y[%1] = %3\nend\n",
         "undefined");
    find("temp %9: f32[8]\ngrid %1 = 8\nstore %9[%1] = f32(1)\nend\n"
         "grid %2 = p0\n%3 = sub 7, %2\n%4: f32 = load %9[%3]\nstore y[%2] = %4\nend\n",
         NULL);
    /* undefined again in the next round and the next iteration */
    find("grid %1 = p0\nloop %5 = 0..2\nreg %2: f32[1]\n%6: bool = lt %5, 1\nif %6\nstore %2[0] = "
         "f32(0)\nend\n"
         "%3: f32 = load %2[0]\nstore y[%1] = %3\nend\nend\n",
         "undefined");
    find("grid %1 = p0\nwork %2: f32[1]\n%6: bool = eq %1, 0\nif %6\nstore %2[0] = f32(0)\nend\n"
         "%3: f32 = load %2[0]\nstore y[%1] = %3\nend\n",
         "undefined");
    find("grid %1 = p0\n%2 = div %1, 2\nstore y[%2] = f32(1)\nend\n", "race: second write");
    find("grid %1 = p0\nstore y[%1] = f32(1)\n%2 = mod %1, 8\n%4: bool = eq %1, 3\nif %4\n%5 = "
         "load z[4]\nend\n"
         "store z[%1] = 1\nend\n",
         "race:");
    find("grid %1 = 8\nstore z[%1] = %1\nstore y[%1] = f32(0)\nend\ngrid %2 = 8\n%3 = sub 7, "
         "%2\n%4 = load z[%3]\nend\n",
         NULL);
    find("grid %1 = 7\nstore y[%1] = f32(1)\nend\n", "element 7 of 'y' was never written");
    find("grid %1 = p0\n%2 = load z[%1]\n%3 = div 5, %2\nstore y[%1] = f32(1)\nend\n",
         "division by zero");
    find("grid %1 = p0\n%2 = load z[%1]\n%3 = mod 5, %2\nstore y[%1] = f32(1)\nend\n",
         "division by zero");
    find("grid %1 = p0\nloop %2 = 0..1000000000000\nend\nstore y[%1] = f32(1)\nend\n",
         "too many steps");
    find("grid %1 = 1000000000\nend\n", "too many steps");
    find("work %1: f32[8]\n", "not directly in a grid");
    find("grid %1 = p0\nwork %2: f32[1000000000000]\nend\n", "invalid amount of memory");
    /* a reader that reads again before it writes, and many readers */
    find("grid %1 = p0\nstore y[%1] = f32(1)\n%2 = load z[0]\n%3: bool = eq %1, 7\nif %3\nstore "
         "z[0] = 1\nend\nend\n",
         "race:");
    /* lanes from n on are not accessed */
    find("grid %1 = 1\n%2: i64x16 = ramp 0, 1\n%3: f32x16 = load x[%2] first p0\nstore y[%2] = %3 "
         "first 8\nend\n",
         NULL);
    find("grid %1 = 1\n%2: i64x16 = ramp 0, 1\n%3: f32x16 = load x[%2] first 9\nend\n",
         "read out of bounds: element 8");
}

/* Workgroups of 8 threads: reversal through shared memory, with and without the necessary barriers. */
static void test_groups(void **state)
{
#define REVERSE(barrier1, barrier2)                                                                \
    "group 8 1 1\ngrid %1 = 1\nshared %2: f32[8]\n%3 = thread 0\n%4: f32 = load x[%3]\nstore "     \
    "%2[%3] = %4\n" barrier1 "%5 = sub 7, %3\n%6: f32 = load %2[%5]\n" barrier2                    \
    "store %2[%3] = %6\n%7: f32 = load %2[%3]\nstore y[%3] = %7\nend\n"
    find(REVERSE("barrier\n", "barrier\n"), NULL);
    find(REVERSE("", "barrier\n"), "shared array %2");
    find(REVERSE("barrier\n", ""), "race");
    find("group 8 1 1\ngrid %1 = 1\n%3 = thread 0\nstore y[0] = f32(0)\nend\n",
         "race: second write");
    find("group 8 1 1\ngrid %1 = 1\n%3 = thread 0\nstore y[%3] = f32(0)\nloop %4 = "
         "0..%3\nbarrier\nend\nend\n",
         "divergent");
    find("group 8 1 1\ngrid %1 = 1\n%3 = thread 0\nstore y[%3] = f32(0)\n%4 = load "
         "z[0]\nbarrier\n%5 = load z[0]\n"
         "%6: bool = eq %3, 7\nif %6\nstore z[0] = 1\nend\nend\n",
         "race:");
}

/* The same with copies: all may be pending until they are awaited; after a barrier other threads
   may read them. */
static void test_copies(void **state)
{
#define COPIES(before, between, newest)                                                            \
    "group 8 1 1\ngrid %1 = 1\nshared %2: f32[16]\n%3 = thread 0\n%4: f32 = load x[%3]\ncopy %2[%3] = %4\n" before \
    "await 9\n%7 = sub 7, %3\n%8 = add %3, 8\n%9: f32 = load x[%7]\ncopy %2[%8] = %9\nawait " newest "\n" between \
    "%5 = sub 7, %3\n%6: f32 = load %2[%5]\nstore y[%3] = %6\nend\n"
    find(COPIES("", "barrier\n", "1"), NULL);
    find(COPIES("", "barrier\n", "0"), NULL);
    find(COPIES("", "barrier\n", "2"), "before its copy was awaited");
    find(COPIES("", "", "1"), "race: read");
    find(COPIES("store %2[%3] = f32(1)\n", "barrier\n", "1"), "before a copy was awaited");
    find(COPIES("%11: f32 = load %2[%3]\nstore y[%3] = %11\n", "barrier\n", "1"), "before its copy was awaited");
    find(COPIES("%11 = add %3, 9\n%12: f32 = load x[0]\ncopy %2[%11] = %12\n", "barrier\n", "1"), "write out of bounds");
    find(COPIES("%12: f32 = load x[0]\ncopy %2[5] = %12\n", "barrier\n", "1"), "before a copy was awaited");
    refuse("grid %1 = p0\nwork %2: f32[8]\n%3: f32 = load x[0]\ncopy %2[0] = %3\nend\n", "shared array");
    refuse("grid %1 = p0\nshared %2: f32[8]\ncopy %2[0] = f32(1)\nend\n", "copy of anything but a load");
    refuse("grid %1 = p0\nshared %2: f32[8]\n%3: f32 = load x[0]\nstore %2[0] = %3\n%4: f32 = load %2[0]\ncopy %2[1] = %4\nend\n",
           "copy of anything but a load");
    refuse("grid %1 = p0\nshared %2: f32[8]\n%3: i64x2 = ramp 0, 2\n%4: f32x2 = load x[%3]\n%5: i64x2 = ramp 0, 1\n"
           "copy %2[%5] = %4\nend\n",
           "scattered");
    find("group 8 1 1\ngrid %1 = 1\nshared %2: f32[8] swizzled\n%3 = thread 0\n%4: f32 = load x[%3]\ncopy %2[%3] = %4\n"
         "await 0\n%5: f32 = load %2[%3]\nstore y[%3] = %5\nend\n",
         NULL);
    refuse("grid %1 = p0\nwork %2: f32[8] swizzled\nend\n", "not shared");
    refuse("await 1\n", "outside a grid");
    refuse("grid %1 = p0\nawait 65\nend\n", "invalid await");
}

static void test_streams(void **state)
{
    find("grid %1 = 8\n%2: f32 = load x[%1]\nstream y[%1] = %2\nend\n", NULL);
    find("grid %1 = 2\n%2 = mul %1, 4\n%3: i64x4 = ramp %2, 1\nstream y[%3] = f32x4(1) first 4\nend\n", NULL);
    find("grid %1 = 9\nstream y[%1] = f32(1)\nend\n", "write out of bounds");
    find("grid %1 = 2\nstream y[0] = f32(1)\nend\n", "race");
    refuse("grid %1 = p0\nwork %2: f32[8]\nstream %2[0] = f32(1)\nend\n", "stream to anything but");
    refuse("grid %1 = p0\nstream x[0] = f32(1)\nend\n", "read-only");
}

/* Legalisation preserves faults: an index past an array does not become a valid index of another
   one. */
static void test_legal_faults(void **state)
{
    struct arena a = {0};
    struct kir k, out;
    struct err e = {0};
    const struct kir_limits l = {16, 1000};
    float y[8];
    const struct kir_arg arg[1] = {{y, 8}};
    struct str t = S("kernel f(y: out f32)\ngrid %1 = 8\nreg %2: f32[4]\nstore %2[0] = f32(1)\n"
                     "loop unroll %3 = 0..5\nstore %2[%3] = f32(1)\nend\n%4: f32 = load %2[3]\n"
                     "store y[%1] = %4\nend\n");
    assert_true(kir_parse(&k, &a, t, &e));
    assert_true(kir_legalise(&out, &a, &k, &l, &e));
    assert_false(kir_eval(&out, arg, NULL, NULL, &e));
    assert_non_null(strstr(e.msg, "write out of bounds: element 4"));
    e = (struct err){0};
    t = S("kernel f(y: out f32)\ngrid %1 = 8\nloop unroll %3 = 0..500\n%5 = mul %3, %1\n"
          "%2: f32 = cast %5\nstore y[%1] = %2\nend\nend\n");
    assert_true(kir_parse(&k, &a, t, &e));
    assert_false(kir_legalise(&out, &a, &k, &l, &e));
    assert_non_null(strstr(e.msg, "grows beyond 1000"));
    e = (struct err){0};
    t = S("kernel f(y: out f32; p0 = \"N\")\ngrid %1 = 8\nloop unroll %3 = 0..p0\nstore y[%3] = "
          "f32(0)\nend\nend\n");
    assert_true(kir_parse(&k, &a, t, &e));
    assert_false(kir_legalise(&out, &a, &k, &l, &e));
    assert_non_null(strstr(e.msg, "not constant"));
    arena_release(&a);
}

/* Scalar operators at their edges. */

static i64 to_int(enum dtype t, double v)
{
    union kir_cell r = {0};
    assert_true(kir_scalar(KI_CAST, DT_F64, t, (union kir_cell[3]){{.f = v}}, &r));
    return r.i;
}

static double of_float(enum kir_op op, enum dtype t, double a, double b, double c)
{
    union kir_cell r = {0};
    assert_true(kir_scalar(op, t, t, (union kir_cell[3]){{.f = a}, {.f = b}, {.f = c}}, &r));
    return r.f;
}

static i64 of_int(enum kir_op op, enum dtype t, i64 a, i64 b)
{
    union kir_cell r = {0};
    assert_true(kir_scalar(op, t, t, (union kir_cell[3]){{.i = a}, {.i = b}}, &r));
    return r.i;
}

static void test_scalar(void **state)
{
    assert_int_equal(to_int(DT_I32, 2147483648.0), INT32_MAX);
    assert_int_equal(to_int(DT_I32, 2147483647.9), INT32_MAX);
    assert_int_equal(to_int(DT_I32, -2147483648.9), INT32_MIN);
    assert_int_equal(to_int(DT_I64, 9223372036854775808.0), INT64_MAX);
    assert_int_equal(to_int(DT_I64, -1e300), INT64_MIN);
    assert_int_equal(to_int(DT_U8, 255.5), 255);
    assert_int_equal(to_int(DT_U8, 256), 255);
    assert_int_equal(to_int(DT_U8, -0.5), 0);
    assert_int_equal(to_int(DT_U64, 18446744073709551616.0), -1);
    assert_int_equal(to_int(DT_I16, __builtin_nan("")), 0);
    assert_int_equal(to_int(DT_BOOL, 0.25), 1);
    double a = 1 + 0x1p-12; /* a*a + c is just above the midpoint of two f32 */
    assert_true(of_float(KI_FMA, DT_F32, a, a, 0x1p-80) == 1 + 0x1p-11 + 0x1p-23);
    assert_true(of_float(KI_ADD, DT_F32, 1, 0x1p-25, 0) == 1);
    assert_true(of_float(KI_MAX, DT_F32, 0, __builtin_nan(""), 0) !=
                of_float(KI_MAX, DT_F32, 0, 1, 0));
    assert_true(of_float(KI_MAX, DT_F32, __builtin_nan(""), 3, 0) == 3);
    assert_true(of_float(KI_RINT, DT_F32, 2.5, 0, 0) == 2);
    assert_true(of_float(KI_MOD, DT_F32, -5.5, 2, 0) == -1.5);
    assert_int_equal(of_int(KI_DIV, DT_I64, INT64_MIN, -1), INT64_MIN);
    assert_int_equal(of_int(KI_MOD, DT_I64, INT64_MIN, -1), 0);
    assert_int_equal(of_int(KI_DIV, DT_I64, -7, 2), -3);
    assert_int_equal(of_int(KI_MOD, DT_I64, -7, 2), -1);
    assert_int_equal(of_int(KI_ADD, DT_U8, 200, 100), 44);
    assert_int_equal(of_int(KI_NEG, DT_I8, -128, 0), -128);
    assert_int_equal(of_int(KI_SHR, DT_I32, -8, 1), -4);
    assert_int_equal(of_int(KI_SHR, DT_U32, 0xfffffff8, 1), 0x7ffffffc);
    assert_int_equal(of_int(KI_MIN, DT_U64, -1, 5), 5);
    assert_int_equal(of_int(KI_MIN, DT_I64, -1, 5), -1);
    assert_int_equal(of_int(KI_POW, DT_I32, -3, 3), -27);
}

/* Index simplification: addresses of kernel families after it. */

static void test_addresses(void **state)
{
    struct arena a = {0};
    struct kir k;
    kir_init(&k, &a, S("f"));
    kval p = kir_param(&k, S("W")), g = kir_grid(&k, p);
    kval i = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), kir_int(&k, 6), 1);
    kval x = kir_mul_i(&k, i, 12);
    assert_int_equal(kir_div_i(&k, x, 12), i);
    assert_int_equal(kir_mod_i(&k, x, 4), kir_int(&k, 0));
    assert_int_equal(kir_div_i(&k, i, 6), kir_int(&k, 0));
    assert_int_equal(kir_mod_i(&k, i, 6), i);
    assert_int_equal(kir_add_i(&k, kir_add_i(&k, g, 1), 2), kir_add_i(&k, g, 3));
    assert_int_equal(kir_add(&k, kir_add_i(&k, g, 1), i), kir_add_i(&k, kir_add(&k, i, g), 1));
    assert_int_equal(kir_sub(&k, kir_add(&k, g, i), g), i);
    kval flat = kir_add(&k, kir_mul_i(&k, g, 6), i);
    assert_int_equal(kir_div_i(&k, flat, 6), g);
    assert_int_equal(kir_mod_i(&k, flat, 6), i);
    assert_int_equal(kir_lt(&k, i, kir_int(&k, 6)), kir_const_i(&k, DT_BOOL, 1, 1));
    assert_int_equal(kir_min(&k, i, kir_int(&k, 9)), i);
    assert_int_equal(kir_max(&k, i, kir_int(&k, 0)), i);
    kval j = kir_loop(&k, KL_SERIAL, x, kir_add_i(&k, x, 16), 8); /* x or x + 8 */
    kval yes = kir_const_i(&k, DT_BOOL, 1, 1), no = kir_const_i(&k, DT_BOOL, 1, 0);
    assert_int_equal(kir_lt(&k, j, kir_add_i(&k, x, 9)), yes);
    assert_int_equal(kir_lt(&k, kir_add_i(&k, j, 8), kir_add_i(&k, x, 17)), yes);
    assert_int_equal(kir_lt(&k, kir_add_i(&k, j, 1), x), no);
    assert_int_not_equal(kir_lt(&k, j, kir_add_i(&k, x, 8)), yes);
    assert_int_equal(kir_min(&k, kir_add(&k, g, p), kir_add_i(&k, kir_add(&k, p, g), 3)),
                     kir_add(&k, g, p));
    assert_int_equal(kir_range(&k, kir_sub(&k, kir_add_i(&k, x, 16), j)).lo, 8);
    kval r = kir_ramp(&k, g, 1, 8);
    assert_int_equal(kir_add(&k, r, kir_splat(&k, kir_int(&k, 4), 8)),
                     kir_ramp(&k, kir_add_i(&k, g, 4), 1, 8));
    assert_int_equal(kir_mul(&k, r, kir_int(&k, 3)), kir_ramp(&k, kir_mul_i(&k, g, 3), 3, 8));
    assert_int_equal(kir_sub(&k, r, r), kir_const_i(&k, DT_I64, 8, 0));
    assert_int_equal(kir_sub(&k, r, kir_ramp(&k, i, 1, 8)), kir_splat(&k, kir_sub(&k, g, i), 8));
    assert_int_equal(kir_lane(&k, r, 3), kir_add_i(&k, g, 3));
    kval s = kir_ramp(&k, kir_mul_i(&k, g, 8), 1, 8);
    assert_int_equal(kir_div(&k, s, kir_int(&k, 16)), kir_div(&k, s, kir_int(&k, 16)));
    assert_int_equal(kir_div(&k, s, kir_int(&k, 8)), kir_splat(&k, g, 8));
    kval base = kir_mul_i(&k, g, 8), half = kir_ramp(&k, kir_mul_i(&k, g, 4), 1, 8);
    assert_int_equal(kir_div(&k, s, kir_int(&k, 48)), kir_splat(&k, kir_div_i(&k, base, 48), 8));
    assert_int_equal(kir_mod(&k, s, kir_int(&k, 48)), kir_ramp(&k, kir_mod_i(&k, base, 48), 1, 8));
    assert_int_equal(kir_at(&k, kir_div(&k, half, kir_int(&k, 48)))->op, KI_DIV);
    assert_int_equal(kir_at(&k, kir_mod(&k, half, kir_int(&k, 48)))->op, KI_MOD);
    arena_release(&a);
}

static void test_cost(void **state)
{
    static const char text[] = "kernel f(x: in f32, y: out f32; p0 = \"N\")\n"
                               "grid %1 = p0\n"
                               "  reg %2: f32x8[1]\n"
                               "  store %2[0] = f32x8(0)\n"
                               "  %3 = mul %1, 8\n"
                               "  loop %4 = 0..100 step 2\n"
                               "    %5 = add %3, %4\n"
                               "    %6: i64x8 = ramp %5, 1\n"
                               "    %7: f32x8 = load x[%6]\n"
                               "    %8: f32x8 = load %2[0]\n"
                               "    %9: f32x8 = fma %7, %7, %8\n"
                               "    store %2[0] = %9\n"
                               "  end\n"
                               "  %10: i64x8 = ramp %3, 1\n"
                               "  %11: f32x8 = load %2[0]\n"
                               "  store y[%10] = %11\n"
                               "end\n";
    struct arena a = {0};
    struct kir k;
    struct err e = {0};
    struct kir_cost c;
    assert_true(kir_parse(&k, &a, S(text), &e));
    kir_count(&k, (const i64[]){10}, &c);
    assert_true(c.flops == 10 * 50 * 16);
    assert_true(c.bytes_loaded == 10 * 50 * 32);
    assert_true(c.bytes_stored == 10 * 32);
    assert_true(c.instructions == 10 * (50 * 6 + 5));
    assert_in_range(c.n_regs, 3, 4);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify),       cmocka_unit_test(test_faults),
        cmocka_unit_test(test_groups),       cmocka_unit_test(test_copies), cmocka_unit_test(test_streams),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_legal_faults), cmocka_unit_test(test_scalar),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
