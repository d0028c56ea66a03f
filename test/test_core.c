// SPDX-License-Identifier: Apache-2.0
//
// The core folder except symbolic sizes (test_sym.c) and the operating system (test_os.c).
#include "core/core.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

static void slices(void **state)
{
    struct str h, t;
    i64 v;
    assert_true(str_eq(str_of(NULL), S("")));
    assert_true(str_is(str_sub(S("abcdef"), 2, 4), "cd"));
    assert_true(str_is(str_sub(S("abc"), -5, 99), "abc"));
    assert_int_equal(str_sub(S("abc"), 3, 1).n, 0);
    assert_true(str_cmp(S("ab"), S("abc")) < 0 && str_cmp(S("b"), S("abc")) > 0 &&
                str_cmp(S("\xff"), S("a")) > 0);
    assert_true(str_starts(S("abc"), S("ab")) && !str_starts(S("a"), S("ab")));
    assert_true(str_ends(S("abc"), S("bc")) && !str_ends(S("c"), S("bc")));
    assert_true(str_cut(S("k=v=w"), '=', &h, &t) && str_is(h, "k") && str_is(t, "v=w"));
    assert_true(!str_cut(S("kv"), '=', &h, &t) && str_is(h, "kv") && t.n == 0);
    assert_true(str_is(str_trim(S(" \t a b\r\n")), "a b"));
    assert_int_equal(str_trim(S("  ")).n, 0);
    assert_true(str_to_i64(S("-9223372036854775808"), &v) && v == INT64_MIN);
    assert_true(str_to_i64(S("+7"), &v) && v == 7);
}

static void numbers_refuse_overflow(void **state)
{
    static const char *const bad[] = {
        "", "-", "+", " 1", "1 ", "0x1", "9223372036854775808", "-9223372036854775809", "1e3"};
    static const char *const bad_f64[] = {"", " 1", "1 ", "1,5", "e", "1e", "--1"};
    i64 v;
    double d;
    for (int i = 0; i < countof(bad); i++)
        if (str_to_i64(str_of(bad[i]), &v)) fail_msg("'%s'", bad[i]);
    for (int i = 0; i < countof(bad_f64); i++)
        if (str_to_f64(str_of(bad_f64[i]), &d)) fail_msg("'%s'", bad_f64[i]);
    assert_true(str_to_f64(S("-inf"), &d) && d == -INFINITY);
    assert_true(str_to_f64(S("nan"), &d) && isnan(d));
    assert_true(str_to_f64(S("0x1.8p3"), &d) && d == 12);
}

/* Obviously right, and exponential. */
static bool glob_slow(const char *p, const char *s)
{
    if (*p == '*') return glob_slow(p + 1, s) || (*s && glob_slow(p, s + 1));
    return *p == 0 ? *s == 0
                   : *s && (*p == '?' || (*p | 32) == (*s | 32)) && glob_slow(p + 1, s + 1);
}

static void globs_match_like_the_reference(void **state)
{
    struct rng r = rng_seed(3);
    for (int i = 0; i < 20000; i++) {
        char p[8] = "", s[8] = "";
        for (i64 j = rng_range(&r, 0, 6); j-- > 0;) p[j] = "aAb*?*"[rng_range(&r, 0, 5)];
        for (i64 j = rng_range(&r, 0, 6); j-- > 0;) s[j] = "aBb"[rng_range(&r, 0, 2)];
        if (str_glob(str_of(p), str_of(s)) != glob_slow(p, s)) fail_msg("'%s' '%s'", p, s);
    }
}

static void first_error_wins(void **state)
{
    struct err e = {0};
    char large[3000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    assert_false(err_prefix(&e, "nothing"));
    assert_int_equal(e.code, ERR_NONE);
    assert_false(err_set(&e, ERR_INPUT, "broken '%s'", "a\x1b[1m"));
    assert_false(err_set(&e, ERR_FAILED, "later"));
    assert_int_equal(e.code, ERR_INPUT);
    assert_false(err_prefix(&e, "node %d", 7));
    assert_string_equal(e.msg, "node 7: broken 'a [1m'");
    err_prefix(&e, "%s", large);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_false(err_set(NULL, ERR_INPUT, "nobody listens"));
}

/* Filled again with as much, or less, it requests nothing from the system. */
static void arena_reset_keeps_memory(void **state)
{
    struct arena a = {0};
    struct rng r = rng_seed(2);
    for (int round = 0; round < 50; round++) {
        arena_reset(&a);
        assert_int_equal(a.used, 0);
        i64 held = a.held, most = rng_range(&r, 0, 200);
        for (int i = 0; i < most || (!round && i < 200); i++) {
            u8 *p = arena_alloc(&a, 700);
            for (i64 j = 0; j < 700; j++) assert_int_equal(p[j], 0);
            memset(p, 0xee, 700);
        }
        if (round > 1) assert_int_equal(a.held, held);
    }
    arena_release(&a);
    assert_null(a.top);
    arena_reset(&a);
    assert_null(a.top);
}

static void arena_memory_is_zeroed_and_aligned(void **state)
{
    struct arena a = {0};
    struct rng r = rng_seed(1);
    for (int round = 0; round < 200; round++) {
        struct arena_mark m = arena_mark(&a);
        for (int i = 0; i < 20; i++) {
            i64 n = rng_range(&r, 0, i % 7 ? 300 : 9000);
            u8 *p = arena_alloc(&a, n);
            assert_int_equal((uintptr_t)p % 16, 0);
            for (i64 j = 0; j < n; j++) assert_int_equal(p[j], 0);
            memset(p, 0xee, (size_t)n);
        }
        if (round % 3) arena_rewind(&a, m);
    }
    arena_release(&a);
    assert_null(a.top);
    char *p = arena_grow(&a, "abc", 3, 6);
    assert_string_equal(p, "abc");
    arena_release(&a);
}

static void arrays_grow(void **state)
{
    struct arena a = {0};
    struct {
        i64 *v;
        u32 n, cap;
    } arr = {0};
    for (i64 i = 0; i < 1000; i++) {
        i64 *p = arr_push(&a, &arr);
        assert_int_equal(*p, 0);
        *p = i;
    }
    for (i64 i = 0; i < 1000; i++) assert_int_equal(arr.v[i], i);
    assert_int_equal(arr.n, 1000);
    arena_release(&a);
}

static void large_memory(void **state)
{
    u8 *p = mem_aligned(1 << 20), *q = mem_alloc(0);
    assert_int_equal((uintptr_t)p % 4096, 0);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (i64 i = 0; i < 1 << 20; i++) assert_int_equal(p[i], 0);
    assert_null(mem_aligned(INT64_MAX));
    assert_null(mem_aligned(-1));
    mem_free(p);
    mem_free(q);
    mem_free(NULL);
}

static void numbers_print_shortest_and_read_back(void **state)
{
    static const struct {
        double v;
        const char *text;
    } known[] = {{0, "0"},
                 {-0.0, "-0"},
                 {1, "1"},
                 {0.1, "0.1"},
                 {1e100, "1e+100"},
                 {INFINITY, "inf"},
                 {-INFINITY, "-inf"},
                 {NAN, "nan"},
                 {5e-324, "5e-324"},
                 {1.0 / 3, "0.3333333333333333"},
                 {123456, "123456"},
                 {0.15, "0.15"}};
    struct buf b = {0};
    struct rng r = rng_seed(5);
    double back;
    for (int i = 0; i < countof(known); i++) {
        buf_reset(&b);
        buf_f64(&b, known[i].v);
        assert_string_equal(b.p, known[i].text);
    }
    for (int i = 0; i < 20000; i++) {
        u64 bits = rng_u64(&r);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (isnan(v)) continue;
        buf_reset(&b);
        buf_f64(&b, v);
        assert_true(str_to_f64(buf_view(&b), &back) && memcmp(&v, &back, sizeof v) == 0);
    }
    buf_release(&b);
}

static void locale_of_the_program_does_not_matter(void **state)
{
    struct arena a = {0};
    double v;
    const char *have = setlocale(LC_ALL, "de_DE.UTF-8"); /* if it is installed */
    (void)have;
    assert_true(str_is(str_fmt(&a, "%.2f", 1.5), "1.50"));
    assert_true(str_to_f64(S("1.5"), &v) && v == 1.5);
    setlocale(LC_ALL, "C");
    arena_release(&a);
}

static void json_strings_are_valid(void **state)
{
    struct buf b = {0};
    buf_json_str(&b, S("a\"\\\n\x01\x7f\xc3\xa4\xff\xed\xa0\x80\xf0\x9f\x98\x80\xe2\x82"));
    const char *bad = "\xef\xbf\xbd";
    struct arena a = {0};
    struct str want =
        str_fmt(&a, "\"a\\\"\\\\\\n\\u0001\\u007f\xc3\xa4%s%s%s%s\xf0\x9f\x98\x80%s%s\"", bad, bad,
                bad, bad, bad, bad);
    assert_true(str_eq(buf_view(&b), want));
    buf_release(&b);
    arena_release(&a);
}

static void buffers_stay_failed(void **state)
{
    struct buf b = {0};
    buf_z(&b, "abc");
    buf_put(&b, "x", INT64_MAX);
    assert_true(b.failed);
    buf_z(&b, "def");
    assert_string_equal(b.p, "abc");
    buf_reset(&b);
    buf_printf(&b, "%d-%s", 5, "x");
    assert_true(!b.failed && str_is(buf_view(&b), "5-x"));
    buf_release(&b);
    assert_true(b.p == NULL && buf_view(&b).n == 0);
}

static void maps_find_their_entries(void **state)
{
    struct arena a = {0};
    struct map m;
    map_init(&m, &a);
    assert_null(map_get(&m, S("x")));
    for (int i = 0; i < 5000; i++) {
        struct arena_mark mark = arena_mark(&a);
        (void)mark;
        struct str key = str_fmt(&a, "%d", i % 2500);
        *map_put(&m, key, 0) = (u64)i;
    }
    assert_int_equal(m.n, 2500);
    for (int i = 0; i < 2500; i++) {
        assert_true(str_eq(m.v[i].key, str_fmt(&a, "%d", i))); /* insertion order */
        assert_int_equal(*map_get(&m, m.v[i].key), i + 2500);
    }
    assert_null(map_get(&m, S("2500")));
    map_put(&m, S(""), 3);
    map_put(&m, (struct str){"\0", 1}, 4);
    assert_int_equal(*map_get(&m, S("")), 3);
    arena_release(&a);
}

static void hashes_are_the_published_ones(void **state)
{
    char hex[33];
    hash_hex(hash_bytes(NULL, 0), hex);
    assert_string_equal(hex, "99aa06d3014798d86001c324468d497f");
    assert_true(hash_u64("", 0) == 0x2d06800538d394c2u);
    assert_true(hash_u64("a", 1) != hash_u64("b", 1));
}

static void random_numbers_are_the_published_ones(void **state)
{
    struct rng r = rng_seed(1234567);
    assert_true(rng_u64(&r) == 6457827717110365317u);
    assert_true(rng_u64(&r) == 3203168211198807973u);
    i64 seen[5] = {0};
    double sum = 0, square = 0;
    for (int i = 0; i < 50000; i++) {
        i64 k = rng_range(&r, -2, 2);
        assert_true(k >= -2 && k <= 2);
        seen[k + 2]++;
        double u = rng_f64(&r), z = rng_normal(&r);
        assert_true(u >= 0 && u < 1);
        sum += z;
        square += z * z;
    }
    for (int i = 0; i < 5; i++) assert_in_range(seen[i], 9700, 10300);
    assert_true(fabs(sum / 50000) < 0.02 && fabs(square / 50000 - 1) < 0.03);
    assert_int_equal(rng_range(&r, INT64_MAX, INT64_MAX), INT64_MAX);
    rng_range(&r, INT64_MIN, INT64_MAX);
}

static void types_have_names(void **state)
{
    for (int t = DT_NONE + 1; t < N_DTYPES; t++) {
        enum dtype d = (enum dtype)t;
        assert_int_equal(dtype_parse(str_of(dtype_name(d))), d);
        assert_int_equal(dtype_from_onnx(dtype_onnx(d)), d);
        assert_true(dtype_size(d) > 0 && dtype_kind(d) != DK_NONE);
        assert_true(dtype_is_float(d) + dtype_is_int(d) + (d == DT_BOOL) == 1);
    }
    assert_int_equal(dtype_parse(S("none")), DT_NONE);
    assert_int_equal(dtype_from_onnx(0), DT_NONE);
}

/* The nearest half float by search, ties to the even one. */
static u16 f16_slow(double v)
{
    double best = INFINITY;
    u16 at = 0;
    for (u32 h = 0; h < 0x7c00; h++) {
        double d = fabs(fabs(v) - (double)f16_to_f32((u16)h));
        if (d < best || (d == best && !(h & 1))) best = d, at = (u16)h;
    }
    if (fabs(v) >= 65520) at = 0x7c00;
    return (u16)(at | (signbit(v) ? 0x8000 : 0));
}

static void half_floats_round_to_nearest_even(void **state)
{
    for (u32 h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((u16)h);
        if (isnan(f)) assert_true(isnan(f16_to_f32(f16_from_f32(f))));
        else assert_int_equal(f16_from_f32(f), h);
        f = bf16_to_f32((u16)h);
        if (isnan(f)) assert_true(isnan(bf16_to_f32(bf16_from_f32(f))));
        else assert_int_equal(bf16_from_f32(f), h);
    }
    struct rng r = rng_seed(9);
    for (int i = 0; i < 300; i++) {
        int exponent = (int)rng_range(&r, -26, 18);
        float f = (float)ldexp(rng_f64(&r) - 0.5, exponent);
        if (i % 3 == 0) f = (f16_to_f32((u16)i) + f16_to_f32((u16)(i + 1))) / 2; /* a tie */
        assert_int_equal(f16_from_f32(f), f16_slow((double)f));
    }
    assert_int_equal(bf16_from_f32(0x1.01p0f), 0x3f80); /* ties */
    assert_int_equal(bf16_from_f32(0x1.03p0f), 0x3f82);
    assert_int_equal(bf16_from_f32(0x1.fffffep127f), 0x7f80);
}

/* All of them at once as one by one, to the bit, with NaN made quiet. */
static void halves_widen(void **state)
{
    static u16 half[0x10000];
    static float row[0x10000];
    for (u32 h = 0; h < countof(half); h++) half[h] = (u16)h;
    for (int is_f16 = 0; is_f16 < 2; is_f16++) {
        const enum dtype t = is_f16 ? DT_F16 : DT_BF16;
        halves_to_f32(t, half, countof(half), row);
        for (u32 h = 0; h < countof(half); h++) {
            float want;
            elem_set_f64(DT_F32, &want, 0, elem_f64(t, half, h));
            assert_int_equal(f32_bits(row[h]), f32_bits(want));
            if (isnan(want)) assert_true(f32_bits(want) >> 22 & 1);
        }
    }
}

static void elements_convert(void **state)
{
    u64 x;
    for (int t = DT_NONE + 1; t < N_DTYPES; t++) {
        elem_set_i64((enum dtype)t, &x, 0, 1);
        assert_true(elem_i64((enum dtype)t, &x, 0) == 1 && elem_f64((enum dtype)t, &x, 0) == 1);
        elem_set_f64((enum dtype)t, &x, 0, 0);
        assert_true(elem_i64((enum dtype)t, &x, 0) == 0);
        elem_set_f64((enum dtype)t, &x, 0, NAN);
        bool has_nan = dtype_bits((enum dtype)t) >= 8; /* of the floats */
        assert_true(dtype_is_float((enum dtype)t)
                        ? !has_nan || isnan(elem_f64((enum dtype)t, &x, 0))
                        : elem_i64((enum dtype)t, &x, 0) == (t == DT_BOOL));
    }
    elem_set_f64(DT_U8, &x, 0, -1), assert_int_equal(elem_i64(DT_U8, &x, 0), 255);
    elem_set_f64(DT_I8, &x, 0, 200.9), assert_int_equal(elem_i64(DT_I8, &x, 0), -56);
    elem_set_f64(DT_U64, &x, 0, 0x1p63), assert_true(elem_f64(DT_U64, &x, 0) == 0x1p63);
    elem_set_f64(DT_I64, &x, 0, 1e30), assert_true(elem_i64(DT_I64, &x, 0) == INT64_MAX);
    elem_set_f64(DT_I64, &x, 0, -INFINITY), assert_true(elem_i64(DT_I64, &x, 0) == INT64_MIN);
    /* Just above a tie of f16: rounding to f32 first would make it the tie. */
    elem_set_f64(DT_F16, &x, 0, 1 + 0x1p-11 + 0x1p-40),
        assert_true(elem_f64(DT_F16, &x, 0) == 1 + 0x1p-10);
    elem_set_i64(DT_F32, &x, 0, (1 << 24) + 1), assert_true(elem_f64(DT_F32, &x, 0) == 1 << 24);
}

static void sizes_are_checked(void **state)
{
    i64 bytes;
    assert_true(tensor_size_ok(DT_F32, 2, (i64[]){3, 5}, &bytes) && bytes == 60);
    assert_true(tensor_size_ok(DT_F32, 0, NULL, &bytes) && bytes == 4);
    assert_true(tensor_size_ok(DT_F32, 2, (i64[]){0, 5}, &bytes) && bytes == 0);
    assert_false(tensor_size_ok(DT_F32, 2, (i64[]){-1, 5}, &bytes));
    assert_false(tensor_size_ok(DT_F32, 3, (i64[]){1 << 30, 1 << 30, 4}, &bytes));
    assert_false(tensor_size_ok(DT_F32, 3, (i64[]){INT64_MAX, INT64_MAX, 0}, &bytes));
    assert_false(tensor_size_ok(DT_F32, MAX_RANK + 1, (i64[MAX_RANK + 1]){0}, &bytes));
    assert_false(tensor_size_ok(DT_NONE, 0, NULL, &bytes));
}

static void tensors_compare(void **state)
{
    struct arena a = {0};
    i64 n = 6;
    struct tensor *x = tensor_new(&a, DT_F32, 1, &n), *y = tensor_new(&a, DT_F64, 1, &n);
    const float got[] = {1, NAN, INFINITY, 100.05f, 0, -2};
    const double want[] = {1, NAN, INFINITY, 100, 1e-9, -2};
    memcpy(x->data, got, sizeof got);
    memcpy(y->data, want, sizeof want);
    struct tensor_diff d = tensor_compare(x, y, 1e-3, 1e-6);
    assert_true(d.n_bad == 0 && d.first_bad == -1 && fabs(d.max_abs - 0.05) < 1e-4 &&
                fabs(d.max_rel - 5e-4) < 1e-5);
    d = tensor_compare(x, y, 1e-4, 1e-6);
    assert_true(d.n_bad == 1 && d.first_bad == 3 && d.want == 100);
    ((float *)x->data)[2] = -INFINITY, ((float *)x->data)[1] = 0, ((float *)x->data)[0] = NAN;
    d = tensor_compare(x, y, 1, 1);
    assert_true(d.n_bad == 3 && d.first_bad == 0 && isnan(d.got));
    struct tensor *u = tensor_new(&a, DT_I64, 1, &n), *v = tensor_new(&a, DT_I64, 1, &n);
    *(i64 *)u->data = (1ll << 60) + 1, *(i64 *)v->data = 1ll << 60;
    assert_int_equal(tensor_compare(u, v, 0, 0).n_bad, 1);
    v->dim[0] = 5;
    assert_int_equal(tensor_compare(u, v, 0, 0).n_bad, 5);
    arena_release(&a);
}

static void keep_line(void *user, int level, struct str text)
{
    buf_printf(user, "%d:%.*s;", level, STR_ARG(text));
}

static void log_drops_messages_above_its_level(void **state)
{
    struct buf b = {0};
    struct log l = {keep_line, &b, 1};
    log_printf(&l, 1, "warn %d", 3);
    log_printf(&l, 2, "note");
    log_printf(NULL, 0, "silent");
    log_printf(&(struct log){0}, 0, "silent");
    assert_true(str_is(buf_view(&b), "1:warn 3;"));
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices),
        cmocka_unit_test(numbers_refuse_overflow),
        cmocka_unit_test(globs_match_like_the_reference),
        cmocka_unit_test(first_error_wins),
        cmocka_unit_test(arena_memory_is_zeroed_and_aligned),
        cmocka_unit_test(arena_reset_keeps_memory),
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(large_memory),
        cmocka_unit_test(numbers_print_shortest_and_read_back),
        cmocka_unit_test(locale_of_the_program_does_not_matter),
        cmocka_unit_test(json_strings_are_valid),
        cmocka_unit_test(buffers_stay_failed),
        cmocka_unit_test(maps_find_their_entries),
        cmocka_unit_test(hashes_are_the_published_ones),
        cmocka_unit_test(random_numbers_are_the_published_ones),
        cmocka_unit_test(types_have_names),
        cmocka_unit_test(half_floats_round_to_nearest_even),
        cmocka_unit_test(halves_widen), cmocka_unit_test(elements_convert),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(tensors_compare),
        cmocka_unit_test(log_drops_messages_above_its_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
