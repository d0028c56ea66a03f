// SPDX-License-Identifier: Apache-2.0
//
// Spaces of configurations. The rules of the tool whose files these are must leave as many points as it does, in its order; counting
// must agree with enumeration, from any start.
#include "lab_fixture.h"

static const struct lab_config product = {.kind = LAB_MM};

static void set_list(struct lab_space *s, struct arena *a, enum lab_field f, u32 n, i32 first, i32 factor)
{
    s->list[f] = (struct lab_list){arena_array(a, i32, n), n};
    for (u32 i = 0; i < n; i++, first *= factor) s->list[f].v[i] = first;
}

/* Files that differ from cfg_32 in a few lists; powers of two from the first value on. */
struct variant {
    i64 m;
    struct { enum lab_field f; u32 n; i32 first; } list[10];
    enum lab_rules rules;
    double stage[6]; /* layouts, loads, scatter, memory, stores and loops, remaining; 0: unknown */
};

#define BLOCKS {LF_BM, 3, 32}, {LF_BN, 3, 32}
static const struct variant variants[] = {
    {2048, {{0}}, LAB_RULES_DEEPGEN, {17, 21, 816, 890, 4280, 216}},
    {2048, {BLOCKS}, LAB_RULES_DEEPGEN, {27, 36, 1704, 890, 4280, 216}},
    {256, {BLOCKS}, LAB_RULES_DEEPGEN, {27, 36, 1704, 890, 2940, 140}},
    {128, {BLOCKS}, LAB_RULES_DEEPGEN, {27, 36, 1704, 890, 800, 32}},
    {1024, {BLOCKS, {LF_BK, 3, 8}, {LF_UN, 4, 4}}, LAB_RULES_DEEPGEN, {27, 63, 2865, 1800, 18880, 992}},
    {512,
     {BLOCKS, {LF_BK, 4, 8}, {LF_UN, 4, 4}, {LF_BSWM, 5, 1}, {LF_BSWN, 5, 1}, {LF_WSWM, 5, 1}, {LF_WSWN, 5, 1}},
     LAB_RULES_DEEPGEN, {27, 90, 6136, 3936, 42432, 1552}},
    {2048,
     {BLOCKS, {LF_BK, 3, 8}, {LF_UN, 4, 4}, {LF_TM, 4, 1}, {LF_TN, 4, 1}, {LF_WSWM, 4, 1}, {LF_WSWN, 4, 1}},
     LAB_RULES_DEEPGEN, {37, 75, 3497, 2258, 23344, 1472}},
    {4096,
     {BLOCKS, {LF_BK, 4, 8}, {LF_UN, 6, 1}, {LF_TM, 5, 1}, {LF_TN, 5, 1}, {LF_BLY, 5, 1}, {LF_BLX, 5, 1}},
     LAB_RULES_DEEPGEN, {45, 144, 6258, 3446, 54552, 3672}},
    {2048, {{0}}, LAB_RULES_2025_06, {17, 21, 816, 0, 0, 17424}},
    {2048, {BLOCKS}, LAB_RULES_2025_06, {27, 36, 1704, 0, 0, 30608}},
    {256, {BLOCKS}, LAB_RULES_2025_06, {27, 36, 1704, 0, 0, 9512}},
    {512, {BLOCKS}, LAB_RULES_2025_06, {27, 36, 1704, 0, 0, 24016}},
    {128, {BLOCKS}, LAB_RULES_2025_06, {27, 36, 1704, 0, 0, 800}},
    {2048, {BLOCKS, {LF_BK, 3, 8}, {LF_UN, 4, 4}}, LAB_RULES_2025_06, {27, 63, 2865, 0, 0, 107680}},
};

static bool count_point(void *user, const struct lab_config *c, i64 number)
{
    i64 *n = user;
    assert_int_equal(*n, number);
    *n = number + 1;
    return true;
}

static void make_variant(struct lab_space *s, struct arena *a, const struct variant *v)
{
    read_space(s, a, "cfg_32.json", &product);
    s->base.m = v->m;
    for (i64 k = 0; k < countof(v->list) && v->list[k].n; k++)
        set_list(s, a, v->list[k].f, v->list[k].n, v->list[k].first, 2);
}

static void test_counts(void **state)
{
    for (i64 i = 0; i < countof(variants); i++) {
        const struct variant *v = &variants[i];
        struct arena a = {0};
        struct lab_space s;
        struct lab_count c;
        struct err e = {0};
        i64 n = 0;
        make_variant(&s, &a, v);
        if (!lab_space_count(&s, v->rules, &c, &e)) fail_msg("%s", e.msg);
        const double got[6] = {c.stage[2].after, c.stage[3].after, c.stage[4].after,
                               c.stage[5].after, c.stage[6].after, c.n};
        for (int k = 0; k < 6; k++)
            if (v->stage[k] > 0 && got[k] != v->stage[k])
                fail_msg("variant %lld: %.0f of stage %d, not %.0f", (long long)i, got[k], k, v->stage[k]);
        lab_space_each(&s, v->rules, 0, count_point, &n);
        assert_true((double)n == c.n);
        arena_release(&a);
    }
}

static void test_raw(void **state)
{
    struct arena a = {0};
    struct lab_space s, older;
    struct lab_count c;
    struct err e = {0};
    read_space(&s, &a, "cfg_32.json", &product);
    assert_int_equal(s.base.v[LF_W], 64);
    assert_int_equal(s.dtype, DT_F32);
    assert_int_equal(s.base.n_batch, 0);
    assert_true(lab_space_count(&s, LAB_RULES_OWN, &c, &e));
    assert_true(c.raw == 42467328);
    read_space(&older, &a, "older_keys.json", &product);
    for (u32 f = 0; f < N_LAB_FIELDS; f++) {
        assert_int_equal(s.list[f].n, older.list[f].n);
        if (s.list[f].n) assert_memory_equal(s.list[f].v, older.list[f].v, s.list[f].n * sizeof(i32));
    }
    read_space(&s, &a, "large.json", &product);
    for (u32 r = 0; r < N_LAB_RULES; r++) assert_true(lab_space_count(&s, r, &c, &e) && c.n > 1e4 && c.raw > 1e12);
    arena_release(&a);
}

/* Every point is one of the published order: names are hashed one after the other. */
static bool hash_point(void *user, const struct lab_config *c, i64 number)
{
    struct buf *b = user;
    lab_name_print(b, c);
    buf_char(b, '\n');
    return true;
}

static void test_order(void **state)
{
    struct arena a = {0};
    struct lab_space s;
    struct buf b = {0};
    char hex[33];
    read_space(&s, &a, "cfg_32.json", &product);
    lab_space_each(&s, LAB_RULES_DEEPGEN, 0, hash_point, &b);
    hash_hex(hash_bytes(b.p, b.n), hex);
    assert_string_equal(hex, "15cc888711b23464eb4684929970d03b");
    buf_reset(&b);
    lab_space_each(&s, LAB_RULES_2025_06, 0, hash_point, &b);
    hash_hex(hash_bytes(b.p, b.n), hex);
    assert_string_equal(hex, "fb6bef6e85b1192a0bef34224d6f7a81");
    buf_release(&b);
    arena_release(&a);
}

/* Enumeration from any start equals the rest of a whole one. */
static void test_start(void **state)
{
    struct arena a = {0};
    struct lab_space s;
    struct lab_count count;
    struct err e = {0};
    struct rng r = rng_seed(5);
    read_space(&s, &a, "cfg_32.json", &product);
    for (int i = 0; i < 60; i++) {
        enum lab_rules rules = (enum lab_rules)rng_range(&r, 0, N_LAB_RULES - 1);
        assert_true(lab_space_count(&s, rules, &count, &e));
        i64 at = rng_range(&r, 0, (i64)count.n - 1);
        struct lab_config c = starts_at(&s, rules, at);
        if (rules == LAB_RULES_OWN && !lab_config_check(&c, &e)) fail_msg("%s", e.msg);
        struct slice behind = {.left = 0, .number = -1};
        lab_space_each(&s, rules, (i64)count.n, take_one, &behind);
        assert_int_equal(behind.number, -1);
    }
    arena_release(&a);
}

static void test_points(void **state)
{
    struct arena a = {0};
    struct lab_space s;
    struct buf b = {0};
    read_space(&s, &a, "points.json", &product);
    assert_int_equal(s.listed.n, 3);
    for (u32 i = 0; i < s.listed.n; i++) lab_name_print(&b, &s.listed.v[i]);
    assert_non_null(strstr(b.p, "BM32BN32BK8TM4TN4BLY1BLX1"));
    assert_non_null(strstr(b.p, "BM64BN32BK8TM4TN4BLY2BLX1WLY8WLX8GLWA4GLWB4BSWM2BSWN1WSWM1WSWN1LSU1Map4GSW0UN4"));
    assert_non_null(strstr(b.p, "BM64BN64BK8TM4TN4BLY2BLX2WLY8WLX8GLWA4GLWB4BSWM1BSWN1WSWM1WSWN1LSU1Map8GSW0UN4"));
    buf_release(&b);
    arena_release(&a);
}

/* cfg_32 with one text replaced, and the message. */
static void test_errors(void **state)
{
    static const struct {
        const char *old, *now, *message;
    } bad[] = {
        {"BLOCK_SIZE_M", "BLOCK_SIZE_Q", "unknown key 'BLOCK_SIZE_Q'"},
        {"\"STORE_CONTINUOUS\": [1]", "\"LOAD_CONTINUOUS\": [1]", "key 'STORE_CONTINUOUS' is missing"},
        {"\"STORE_CONTINUOUS\"", "\"REDUCE_C_CONTINUOUS\": [1], \"STORE_CONTINUOUS\"",
         "key 'STORE_CONTINUOUS' is there in its newer and its older spelling"},
        {"\"BLOCK_SIZE_K\": [8, 16]", "\"BLOCK_SIZE_K\": []", "key 'BLOCK_SIZE_K': the list is empty"},
        {"\"BLOCK_SIZE_K\": [8, 16]", "\"BLOCK_SIZE_K\": 8", "key 'BLOCK_SIZE_K': expected a list of numbers, found 8"},
        {"\"BLOCK_SIZE_K\": [8, 16]", "\"BLOCK_SIZE_K\": [8, 1.5]", "key 'BLOCK_SIZE_K': expected a whole number, found 1.5"},
        {"\"BLOCK_SIZE_K\": [8, 16]", "\"BLOCK_SIZE_K\": [0]", "key 'BLOCK_SIZE_K': 0 is not within 1 to 65536"},
        {"\"REG_PREFETCH\": [0, 1]", "\"REG_PREFETCH\": [0, 2]", "key 'REG_PREFETCH': 2 is not within 0 to 1"},
        {"\"WARP_SIZE\": [64]", "\"WARP_SIZE\": [64, 32]", "key 'WARP_SIZE': takes one value, found 2"},
        {"\"DATATYPE_B\": [4]", "\"DATATYPE_B\": [2]", "element types f32, f16 and f32 differ"},
        {"\"DATATYPE_B\": [4]", "\"DATATYPE_B\": [31]", "key 'DATATYPE_B': no element type 31"},
        {"[2048]", "[2048", "line "},
        {"\"M_SIZE\": [2048]", "\"M_SIZE\": [99999999999999999999999]", "key 'M_SIZE': expected a whole number, found"},
    };
    struct arena a = {0};
    struct str text;
    struct err e = {0};
    assert_true(os_read(&a, "test/corpus/lab_space/cfg_32.json", 1 << 20, &text, &e));
    for (i64 i = 0; i < countof(bad); i++) {
        struct buf b = {0};
        struct lab_space s;
        struct err why = {0};
        const char *at = strstr(text.p, bad[i].old);
        assert_non_null(at);
        buf_put(&b, text.p, at - text.p);
        buf_z(&b, bad[i].now);
        buf_z(&b, at + strlen(bad[i].old));
        assert_false(lab_space_read(&s, &a, buf_view(&b), &product, &why));
        if (!strstr(why.msg, bad[i].message)) fail_msg("'%s', not '%s'", why.msg, bad[i].message);
        buf_release(&b);
    }
    arena_release(&a);
}

/* Which rule leaves nothing. */
static void test_nothing(void **state)
{
    static const struct {
        enum lab_field f;
        i32 v;
        const char *message, *wants;
    } bad[] = {
        {LF_TN, 1024, "the rule for thread tiles removed the last", "THREAD_SIZE_N"},
        {LF_BN, 1024, "the rule for block tiles removed the last", "BLOCK_SIZE_N"},
        {LF_WLY, 7, "the rule for layouts of threads and subgroups removed the last", "WARP_SIZE = WARP_LAYOUT_Y x WARP_LAYOUT_X"},
        {LF_GLWB, 1024, "the rule for terms and loads removed the last", "GLOB_LOAD_WIDTH_B"},
        {LF_BSWM, 64, "the rule for scatter removed the last", "BLOCK_SCATTER_WIDTH_M that divides THREAD_SIZE_M"},
        {LF_MAP, 4096, "the rule for stores and loops removed the last", "BLOCK_MAPPING"},
        {LF_BK, 65536, "the rule for memory removed the last", "shared memory"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        struct arena a = {0};
        struct lab_space s;
        read_space(&s, &a, "cfg_32.json", &product);
        set_list(&s, &a, bad[i].f, 1, bad[i].v, 1);
        leaves_nothing(&s, LAB_RULES_DEEPGEN, bad[i].message, bad[i].wants);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts), cmocka_unit_test(test_raw),    cmocka_unit_test(test_order), cmocka_unit_test(test_start),
        cmocka_unit_test(test_points), cmocka_unit_test(test_errors), cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
