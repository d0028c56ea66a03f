// SPDX-License-Identifier: Apache-2.0
//
// Element types of 8 bits and fewer: every code against the format's definition, rounding against
// the nearest number of the type, ONNX's tables of special values, packing in files; and
// conversions in kernels, compiled for this CPU, against those of the host.
#include "api/api.h"
#include "core/core.h"
#include "io/io.h"
#include "kir/kir.h"
#include "seeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct small_rule plain = {false, SMALL_NEAREST}, saturating = {true, SMALL_NEAREST};

/* The floats with a sign, by their definitions: value of the largest number, of the least subnormal one, bits of mantissa. */
static const struct {
    enum dtype t;
    double most, least;
    int mantissa, codes; /* codes: of numbers of one sign, the first ones */
    bool has_minus_zero;
    u8 overflow, nan;
} formats[] = {
    {DT_F8E4M3FN, 448, 0x1p-9, 3, 0x7f, true, 0x7f, 0x7f},      {DT_F8E4M3FNUZ, 240, 0x1p-10, 3, 0x80, false, 0x80, 0x80},
    {DT_F8E5M2, 57344, 0x1p-16, 2, 0x7c, true, 0x7c, 0x7e},     {DT_F8E5M2FNUZ, 57344, 0x1p-17, 2, 0x80, false, 0x80, 0x80},
    {DT_F4E2M1, 6, 0.5, 1, 8, true, 7, 8},                      {DT_F6E2M3, 7.5, 0.125, 3, 0x20, true, 0x1f, 0x20},
    {DT_F6E3M2, 28, 0x1p-4, 2, 0x20, true, 0x1f, 0x20},
};

static void test_codes(void **state)
{
    for (i64 k = 0; k < countof(formats); k++) {
        enum dtype t = formats[k].t;
        double v = 0, step = formats[k].least;
        u8 sign = (u8)(1 << (dtype_bits(t) - 1));
        for (int c = 0; c < formats[k].codes; c++, v += step) { /* the step doubles after each exponent except the first */
            if (c > 1 << formats[k].mantissa && c % (1 << formats[k].mantissa) == 0) step *= 2;
            assert_true(small_to_f32(t, (u8)c) == v);
            assert_int_equal(small_from_f32(t, (float)v, plain), c);
            if (!c && !formats[k].has_minus_zero) continue;
            assert_true(small_to_f32(t, (u8)(c | sign)) == -v && signbit(small_to_f32(t, (u8)(c | sign))));
            assert_int_equal(small_from_f32(t, -(float)v, plain), c | sign);
        }
        assert_true(small_to_f32(t, (u8)(formats[k].codes - 1)) == formats[k].most);
    }
    assert_true(isnan(small_to_f32(DT_F8E4M3FN, 0x7f)) && isnan(small_to_f32(DT_F8E4M3FN, 0xff)));
    assert_true(isinf(small_to_f32(DT_F8E5M2, 0x7c)) && isnan(small_to_f32(DT_F8E5M2, 0x7d)) && isnan(small_to_f32(DT_F8E5M2, 0xff)));
    assert_true(small_to_f32(DT_F8E5M2, 0xfc) == -INFINITY);
    assert_true(isnan(small_to_f32(DT_F8E4M3FNUZ, 0x80)) && isnan(small_to_f32(DT_F8E5M2FNUZ, 0x80)));
    for (int c = 0; c < 255; c++) assert_true(small_to_f32(DT_F8E8M0, (u8)c) == ldexp(1, c - 127));
    assert_true(isnan(small_to_f32(DT_F8E8M0, 255)));
}

/* The code of the nearest number, of two the even one; v >= 0. */
static int nearest(i64 k, float v)
{
    int best = 0;
    double least = INFINITY;
    for (int c = 0; c < formats[k].codes; c++) {
        double d = fabs((double)v - (double)small_to_f32(formats[k].t, (u8)c));
        if (d < least || (d == least && c % 2 == 0)) least = d, best = c;
    }
    return best;
}

static void check_rounding(i64 k, float v)
{
    enum dtype t = formats[k].t;
    int want = nearest(k, v), most = formats[k].codes - 1;
    double last = formats[k].most - (double)small_to_f32(t, (u8)(most - 1));
    bool is_over = (double)v > formats[k].most + last / 2 || ((double)v == formats[k].most + last / 2 && most % 2);
    assert_int_equal(small_from_f32(t, v, saturating), want);
    assert_int_equal(small_from_f32(t, v, plain), is_over ? formats[k].overflow : want);
}

static void test_rounding(void **state)
{
    struct rng r = rng_seed(1);
    for (i64 k = 0; k < countof(formats); k++) {
        for (int c = 0; c + 1 < formats[k].codes; c++) {
            float a = small_to_f32(formats[k].t, (u8)c), b = small_to_f32(formats[k].t, (u8)(c + 1)), m = (a + b) / 2;
            check_rounding(k, m);
            check_rounding(k, nextafterf(m, 0));
            check_rounding(k, nextafterf(m, INFINITY));
        }
        float most = (float)formats[k].most;
        for (int i = 0; i < 64; i++) check_rounding(k, most + most * (float)i / 256);
        for (int i = 0; i < 2000; i++) {
            int exponent = (int)rng_range(&r, -30, 17);
            check_rounding(k, (float)ldexp(1 + rng_f64(&r), exponent));
        }
    }
}

static void test_specials(void **state)
{
    for (i64 k = 0; k < countof(formats); k++) {
        enum dtype t = formats[k].t;
        u8 sign = (u8)(1 << (dtype_bits(t) - 1)), most = (u8)(formats[k].codes - 1), minus_zero = formats[k].has_minus_zero ? sign : 0;
        assert_int_equal(small_from_f32(t, NAN, plain), formats[k].nan);
        assert_int_equal(small_from_f32(t, NAN, saturating), formats[k].nan);
        assert_int_equal(small_from_f32(t, -0.0f, plain), minus_zero);
        assert_int_equal(small_from_f32(t, -1e-30f, plain), minus_zero);
        assert_int_equal(small_from_f32(t, INFINITY, saturating), most);
        assert_int_equal(small_from_f32(t, -INFINITY, saturating), most | sign);
        assert_int_equal(small_from_f32(t, INFINITY, plain), formats[k].overflow);
        assert_int_equal(small_from_f32(t, -1e38f, plain), formats[k].overflow | sign);
    }
}

/* ONNX's table of conversions to f8e8m0. */
static void test_powers(void **state)
{
    struct small_rule up = {true, SMALL_UP}, down = {true, SMALL_DOWN}, near = {false, SMALL_NEAREST};
    static const struct { float v; u8 up, down, near; } rows[] = {
        {0, 0, 0, 255}, {NAN, 255, 255, 255}, {INFINITY, 254, 254, 255}, {0x1.8p127f, 254, 254, 255}, {0x1p-140f, 0, 0, 255},
        {1, 127, 127, 127}, {1.1f, 128, 127, 127}, {1.5f, 128, 127, 128}, {0x1.7ffffep0f, 128, 127, 127}, {0.124f, 124, 123, 124},
        {0x1p-127f, 0, 0, 0}, {0x1.4p-127f, 1, 0, 0}, {0x1.8p-127f, 1, 0, 1}, {-1, 255, 255, 255},
    };
    for (i64 i = 0; i < countof(rows); i++) {
        assert_int_equal(small_from_f32(DT_F8E8M0, rows[i].v, up), rows[i].up);
        assert_int_equal(small_from_f32(DT_F8E8M0, rows[i].v, down), rows[i].down);
        assert_int_equal(small_from_f32(DT_F8E8M0, rows[i].v, near), rows[i].near);
    }
}

static void test_integers(void **state)
{
    static const struct { enum dtype t; i64 v, want; } rows[] = {
        {DT_U4, 16, 0}, {DT_U4, -1, 15}, {DT_I4, 8, -8}, {DT_I4, -9, 7}, {DT_I4, 7, 7}, {DT_U2, 5, 1}, {DT_I2, 2, -2}, {DT_I2, -3, 1},
    };
    for (i64 i = 0; i < countof(rows); i++) {
        u8 byte;
        elem_set_i64(rows[i].t, &byte, 0, rows[i].v);
        assert_int_equal(elem_i64(rows[i].t, &byte, 0), rows[i].want);
    }
}

/* In files: the first element lowest; as ONNX's pack functions do. */
static void test_packing(void **state)
{
    static const enum dtype types[] = {DT_U4, DT_I4, DT_F4E2M1, DT_U2, DT_I2, DT_F6E2M3, DT_F6E3M2};
    u8 from[12], back[12], file[16];
    small_pack(DT_U4, (const u8[]){1, 2, 3}, 3, file);
    assert_true(small_packed_size(DT_U4, 3) == 2 && file[0] == 0x21 && file[1] == 0x03);
    small_pack(DT_I2, (const u8[]){1, 0xff, 0xfe, 0, 1}, 5, file);
    assert_true(small_packed_size(DT_I2, 5) == 2 && file[0] == 0x2d && file[1] == 0x01);
    small_pack(DT_F6E3M2, (const u8[]){0x01, 0x02, 0x03, 0x3f, 0x15}, 5, file);
    assert_true(small_packed_size(DT_F6E3M2, 5) == 4 && !memcmp(file, (const u8[]){0x81, 0x30, 0xfc, 0x15}, 4));
    for (i64 k = 0; k < countof(types); k++)
        for (i64 n = 0; n <= countof(from); n++) {
            for (i64 i = 0; i < n; i++) from[i] = small_clean(types[k], (u8)(37 * i + n));
            memset(file, 0xa5, sizeof file);
            small_pack(types[k], from, n, file);
            assert_int_equal(file[small_packed_size(types[k], n)], 0xa5);
            small_unpack(types[k], file, n, back);
            assert_memory_equal(from, back, (size_t)n);
        }
}

static void test_files(void **state)
{
    for (enum dtype t = DT_NONE + 1; t < N_DTYPES; t++) {
        struct arena a = {0};
        struct buf b = {0};
        struct err e = {0};
        struct tensor *x = tensor_new(&a, t, 2, (i64[]){3, 5}), y = {0};
        for (i64 i = 0; i < 15 && dtype_is_small(t); i++) ((u8 *)x->data)[i] = small_clean(t, (u8)(17 * i + 3));
        assert_true(io_find("x.pb")->write(&b, x, &e) && io_find("x.pb")->read(&y, &a, buf_view(&b), &e));
        assert_int_equal(y.dtype, t);
        assert_memory_equal(x->data, y.data, (size_t)tensor_bytes(x));
        assert_true(b.n < 15 * dtype_size(t) + 16 && (dtype_bits(t) >= 8 || b.n < 15 * dtype_bits(t) / 8 + 16));
        b.n = 0;
        assert_true(io_find("x.npy")->write(&b, x, &e) && io_find("x.npy")->read(&y, &a, buf_view(&b), &e));
        for (i64 i = 0; i < 15 && dtype_is_float(t); i++) {
            double v = elem_f64(t, x->data, i), w = elem_f64(y.dtype, y.data, i);
            assert_true(v == w || (isnan(v) && isnan(w)));
        }
        for (i64 i = 0; i < 15 && !dtype_is_float(t); i++) assert_int_equal(elem_i64(t, x->data, i), elem_i64(y.dtype, y.data, i));
        buf_release(&b);
        arena_release(&a);
    }
}

/* Kernel IR does not know them. */
static void test_kernel_ir(void **state)
{
    struct arena a = {0};
    for (enum dtype t = DT_NONE + 1; t < N_DTYPES; t++) {
        struct kir k;
        struct err e = {0};
        const char *n = dtype_name(t);
        struct str s = str_fmt(&a, "kernel k(x: in %s, y: out %s)\ngrid %%1 = 4\n  %%2: %s = load x[%%1]\n  store y[%%1] = %%2\nend\n", n, n, n);
        assert_int_equal(kir_parse(&k, &a, s, &e), !dtype_is_small(t));
        assert_true(!dtype_is_small(t) || strstr(e.msg, n));
    }
    arena_release(&a);
}

/* Operator Cast through compiled kernels. */

static void run_cast(quern *q, const char *attributes, quern_tensor *in, quern_tensor **out)
{
    quern_op *op = NULL;
    struct quern_array x = {.type = quern_tensor_dtype(in), .rank = 1, .dim = {quern_tensor_count(in)}, .stride = {1}}, y = {0};
    x.data = quern_tensor_data(in);
    assert_int_equal(quern_op_open(q, "Cast", attributes, NULL, &op), QUERN_OK);
    assert_int_equal(quern_op_shape(op, &x, 1, &y, 1), QUERN_OK);
    assert_int_equal(quern_tensor_new(q, y.type, 1, y.dim, NULL, out), QUERN_OK);
    y.data = quern_tensor_data(*out);
    if (quern_op_run(op, &x, 1, &y, 1)) fail_msg("%s", quern_error(q));
    quern_op_close(op);
}

/* Values that a type must distinguish: midpoints of its numbers, their neighbours, both signs, all
   special values. */
static i64 fill_values(enum dtype t, float *v)
{
    i64 n = 0;
    static const float special[] = {0, NAN, INFINITY, 1e-40f, 1e-30f, 1e30f, 3e38f, 0x1p-127f, 0x1.8p-127f};
    for (i64 i = 0; i < countof(special); i++) v[n++] = special[i], v[n++] = -special[i];
    for (int c = 0; c < 128; c++) {
        float a = small_to_f32(t, (u8)c), b = small_to_f32(t, (u8)(c + 1)), m = a + (b - a) / 2;
        float some[] = {a, m, nextafterf(m, 0), nextafterf(m, INFINITY), -a, -m};
        for (i64 i = 0; i < countof(some); i++) v[n++] = some[i];
    }
    return n;
}

static void check_kernels(quern *q, enum dtype t, struct small_rule r)
{
    static const char *const round[] = {"nearest", "up", "down"};
    char attributes[80];
    quern_tensor *x, *y, *back;
    float v[1024];
    i64 n = fill_values(t, v);
    assert_int_equal(quern_tensor_new(q, QUERN_F32, 1, (int64_t[]){n}, v, &x), QUERN_OK);
    snprintf(attributes, sizeof attributes, "to=%d, saturate=%d, round_mode=\"%s\"", dtype_onnx(t), r.saturate, round[r.round]);
    run_cast(q, attributes, x, &y);
    run_cast(q, "to=1", y, &back);
    for (i64 i = 0; i < n; i++) {
        u8 want = small_from_f32(t, v[i], r), got = ((u8 *)quern_tensor_data(y))[i];
        float w = small_to_f32(t, want), b = ((float *)quern_tensor_data(back))[i];
        if (want != got && !(isnan(w) && isnan(small_to_f32(t, got))))
            fail_msg("%s: %a is %02x, expected %02x (%s)", dtype_name(t), (double)v[i], got, want, attributes);
        if (!isnan(v[i])) assert_true(b == w || (isnan(b) && isnan(w)));
    }
    quern_tensor_free(x), quern_tensor_free(y), quern_tensor_free(back);
}

static void test_kernels(void **state)
{
    quern *q = quern_open(NULL);
    for (i64 k = 0; k < countof(formats); k++)
        for (int saturate = 0; saturate < 2; saturate++)
            if (is_taken((u64)(2 * k + saturate))) check_kernels(q, formats[k].t, (struct small_rule){saturate, SMALL_NEAREST});
    for (int round = SMALL_NEAREST; round <= SMALL_DOWN; round++)
        if (is_taken((u64)round)) check_kernels(q, DT_F8E8M0, (struct small_rule){round != SMALL_NEAREST, (enum small_round)round});
    quern_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),    cmocka_unit_test(test_rounding), cmocka_unit_test(test_specials), cmocka_unit_test(test_powers),
        cmocka_unit_test(test_integers), cmocka_unit_test(test_packing),  cmocka_unit_test(test_files),    cmocka_unit_test(test_kernel_ir),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
