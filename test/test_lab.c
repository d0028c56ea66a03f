// SPDX-License-Identifier: Apache-2.0
//
// Names of kernels: random configurations and those that others published survive printing and reading; errors say where they are.
#include "lab/lab.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static i64 power(struct rng *r, i64 most) { return (i64)1 << rng_range(r, 0, most); }

/* Any numbers that the grammar allows. */
static struct lab_config any_config(struct rng *r)
{
    struct lab_config c = {.n_batch = (u32)rng_range(r, 0, LAB_MAX_BATCH)};
    for (u32 i = 0; i < c.n_batch; i++) c.batch[i] = rng_range(r, 1, 64);
    c.m = rng_range(r, 1, LAB_MAX_SIZE), c.n = power(r, 30), c.k = rng_range(r, 1, 9999);
    for (u32 f = 0; f < N_LAB_FIELDS; f++) {
        i32 least = lab_field(LAB_MM, f)->least, most = lab_field(LAB_MM, f)->most;
        c.v[f] = (i32)rng_range(r, least, rng_range(r, least, most));
    }
    return c;
}

static void test_round_trip(void **state)
{
    struct rng r = rng_seed(1);
    struct buf b = {0};
    struct err e = {0};
    for (int i = 0; i < 2000; i++) {
        struct lab_config c = any_config(&r), back;
        buf_reset(&b);
        lab_name_print(&b, &c);
        assert_true(lab_name_parse(&back, buf_view(&b), &e));
        assert_memory_equal(&c, &back, sizeof c);
    }
    buf_release(&b);
}

/* Every line of a file; how many. */
static u32 read_names(const char *path, struct lab_config *last)
{
    struct arena a = {0};
    struct str text, name;
    struct err e = {0};
    struct buf b = {0};
    u32 n = 0;
    assert_true(os_read(&a, path, 1 << 20, &text, &e));
    for (; str_cut(text, '\n', &name, &text); n++) {
        buf_reset(&b);
        if (!lab_name_parse(last, name, &e) || !lab_config_check(last, &e)) fail_msg("%s", e.msg);
        lab_name_print(&b, last);
        assert_true(str_eq(buf_view(&b), name));
        assert_int_equal(lab_threads(last) % last->v[LF_W], 0);
    }
    buf_release(&b);
    arena_release(&a);
    return n;
}

static void test_published(void **state)
{
    struct lab_config c;
    assert_int_equal(read_names("test/corpus/lab_name/winners", &c), 53);
    assert_int_equal(read_names("test/corpus/lab_name/registered", &c), 9);
    assert_int_equal(c.n_batch, 1); /* b32 2048x128x2048, the last one */
    assert_int_equal(c.batch[0], 32);
    assert_int_equal(c.m, 2048);
    assert_int_equal(c.n, 128);
    assert_int_equal(lab_threads(&c), 256);
    assert_int_equal(lab_shared(&c, 4), (64 + 64) * 16 * 4);
}

#define FIELDS "_BM64BN64BK16TM4TN4BLY1BLX4WLY16WLX4GLWA4GLWB4BSWM4BSWN4WSWM4WSWN4LSU1Map4GSW0UN16RP0SP0LC1RC0"

static void test_true(void **state)
{
    struct lab_config c;
    struct err e = {0};
    struct buf b = {0};
    assert_true(lab_name_parse(&c, S("kcg_MM_b1_16_M7N128K9isATTrueW64" FIELDS), &e));
    lab_name_print(&b, &c);
    assert_true(str_is(buf_view(&b), "kcg_MM_b1_16_M7N128K9isAT1W64" FIELDS));
    assert_true(lab_name_parse(&c, S("kcg_MM_b1_16_M7N128K9isATFalseW64" FIELDS), &e));
    assert_int_equal(c.v[LF_TRANS], 0);
    buf_release(&b);
}

static void test_malformed(void **state)
{
    static const struct {
        const char *name, *message;
    } bad[] = {
        {"kc", "column 1: expected 'kcg_', found 'kc'"},
        {"kcg_mm", "column 5: expected 'MM', 'Attention', 'AttentionOrigin', 'AttentionK1', 'AttentionK2', or such a name with 'Gemma2' or 'H2O', found 'mm'"},
        {"kcg_MM", "column 7: expected '_' behind 'MM', found the end"},
        {"kcg_MM_M8", "column 8: expected 'b', found 'M8'"},
        {"kcg_MM_b", "column 9: expected 'M', found the end"},
        {"kcg_MM_b12M1N1K1", "column 11: expected '_' behind a batch size, found 'M1N1K1'"},
        {"kcg_MM_b1_1_1_1_1_M1", "column 17: expected 'M' behind 4 batch sizes, found '1_M1'"},
        {"kcg_MM_bM0N1K1", "column 10: expected a number from 1 to 1073741824 for 'M', found '0N1K1'"},
        {"kcg_MM_bM08N1K1", "column 10: expected a number from 1 to 1073741824 for 'M', found '08N1K1'"},
        {"kcg_MM_bM8N99999999999999999999K1",
         "column 12: expected a number from 1 to 1073741824 for 'N', found '9999999999999999'"},
        {"kcg_MM_bM8N8K8isAT2W64", "column 19: expected a number from 0 to 1 for 'isAT', found '2W64'"},
        {"kcg_MM_bM8N8K8isAT1W64BM8", "column 23: expected '_' behind 'W', found 'BM8'"},
        {"kcg_MM_bM8N8K8isAT1W64_BM64BK16", "column 28: expected 'BN', found 'BK16'"},
        {"kcg_MM_bM8N8K8isAT1W64_BM64BNx", "column 30: expected a number from 1 to 65536 for 'BN', found 'x'"},
        {"kcg_MM_bM8N8K8isAT1W64" FIELDS "7", "column 116: expected a number from 0 to 1 for 'RC', found '07'"},
        {"kcg_MM_bM8N8K8isAT1W64" FIELDS "_", "column 117: expected the end, found '_'"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        struct lab_config c;
        struct err e = {0};
        assert_false(lab_name_parse(&c, str_of(bad[i].name), &e));
        assert_int_equal(e.code, ERR_INPUT);
        if (!strstr(e.msg, bad[i].message)) fail_msg("'%s', not '%s'", e.msg, bad[i].message);
        assert_non_null(strstr(e.msg, bad[i].name));
    }
}

/* One field of a valid configuration changed, and the message. */
static void test_impossible(void **state)
{
    static const struct {
        enum lab_field f;
        i32 v;
        const char *message;
    } bad[] = {
        {LF_BM, 128, "'BM128' is not TM4 x WLY16 x BLY1"},
        {LF_W, 32, "'W32' is not WLY16 x WLX4"},
        {LF_BSWM, 3, "'BSWM3' does not divide TM4"},
        {LF_WSWN, 8, "'WSWN8' does not divide BSWN4"},
        {LF_GLWA, 8, "'GLWA8': 256 threads x 8 elements do not divide the left tile of 1024"},
        {LF_GSW, 2, "'GSW2' with LSU1"},
        {LF_LSU, 2, "'GSW0' with LSU2"},
        {LF_LSU, 3, "'LSU3' does not divide BK16"},
        {LF_LSU, 65536, "threads of a group are more than 1024"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        struct lab_config c;
        struct err e = {0};
        struct buf b = {0};
        assert_true(lab_name_parse(&c, S("kcg_MM_bM64N64K64isAT1W64" FIELDS), &e));
        assert_true(lab_config_check(&c, &e));
        c.v[bad[i].f] = bad[i].v;
        if (bad[i].f == LF_LSU) c.v[LF_GLWA] = c.v[LF_GLWB] = 1;
        assert_false(lab_config_check(&c, &e));
        if (!strstr(e.msg, bad[i].message)) fail_msg("'%s', not '%s'", e.msg, bad[i].message);
        lab_explain(&b, &c);
        assert_non_null(strstr(b.p, bad[i].message));
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_published),
        cmocka_unit_test(test_true),       cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_impossible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
