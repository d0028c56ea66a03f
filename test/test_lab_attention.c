// SPDX-License-Identifier: Apache-2.0
//
// Attention by names: names of every kind survive printing and reading, errors say where they are, spaces have as many points as their
// rules leave of a plain enumeration and as the tool that the files come from finds, and every kind computes what it says, also where scores
// are too large for exp.
#include "lab_fixture.h"

#include "op/op.h"

#include <math.h>

#define TILES "_Br64Bc64Hd64_Sa16Sb8PTr8PTc4OTr8OTc4GLWQ4GLWK4GLWV4BLPY4BLPX1WLPY2WLPX16BSWQ4BSWK2WSWQ4WSWK2"
#define FIELDS TILES "BLOY4BLOX1WLOY2WLOX16BSWP4BSWV4WSWP4WSWV2Un16W32LCP1LCO1SPP1RPP0RPO0"

/* Names. */

/* The kind that a name of this one reads as: kinds with the same prefix have the same names. */
static enum lab_kind read_as(enum lab_kind k, u32 part)
{
    u32 first = LAB_ATTENTION;
    while (strcmp(lab_kind(first)->prefix, lab_kind(k)->prefix) || lab_kind(first)->n_parts < part) first++;
    return (enum lab_kind)first;
}

/* Any numbers that the grammar allows. */
static struct lab_config any_config(struct rng *r)
{
    struct lab_config c = {.kind = (enum lab_kind)rng_range(r, LAB_ATTENTION, N_LAB_KINDS - 1)};
    c.part = (u32)rng_range(r, 0, lab_kind(c.kind)->n_parts);
    c.b = rng_range(r, 1, 9), c.h = (i64)1 << rng_range(r, 0, 30), c.s = rng_range(r, 1, LAB_MAX_SIZE), c.d = rng_range(r, 1, 256);
    for (u32 f = 0; f < N_LAB_ATTENTION_FIELDS; f++) {
        i32 least = lab_field(c.kind, f)->least, most = lab_field(c.kind, f)->most;
        c.v[f] = (i32)rng_range(r, least, rng_range(r, least, most));
    }
    return c;
}

static void test_round_trip(void **state)
{
    struct rng r = rng_seed(1);
    struct buf b = {0}, again = {0};
    struct err e = {0};
    for (int i = 0; i < 4000; i++) {
        struct lab_config c = any_config(&r), back;
        buf_reset(&b);
        buf_reset(&again);
        lab_name_print(&b, &c);
        if (!lab_name_parse(&back, buf_view(&b), &e)) fail_msg("%s", e.msg);
        lab_name_print(&again, &back);
        assert_string_equal(b.p, again.p);
        assert_int_equal(back.kind, read_as(c.kind, c.part));
        c.kind = back.kind;
        assert_memory_equal(&c, &back, sizeof c);
    }
    buf_release(&b);
    buf_release(&again);
}

static void test_corpus(void **state)
{
    static const enum lab_kind kinds[] = {LAB_ATTENTION, LAB_ATTENTION_ORIGIN, LAB_ATTENTION_K1, LAB_GEMMA2_SPLIT, LAB_H2O_K2,
                                          LAB_ATTENTION_K2, LAB_GEMMA2_ORIGIN, LAB_GEMMA2_K1, LAB_GEMMA2_K2, LAB_H2O_ORIGIN, LAB_H2O_K1, LAB_H2O_K3, LAB_H2O_SPLIT};
    struct arena a = {0};
    struct str text, name;
    struct err e = {0};
    struct buf b = {0};
    i64 n = 0;
    assert_true(os_read(&a, "test/corpus/lab_name/attention", 1 << 20, &text, &e));
    for (; str_cut(text, '\n', &name, &text); n++) {
        struct lab_config c;
        buf_reset(&b);
        if (!lab_name_parse(&c, name, &e) || !lab_config_check(&c, &e)) fail_msg("%s", e.msg);
        lab_name_print(&b, &c);
        assert_true(str_eq(buf_view(&b), name));
        assert_int_equal(c.kind, kinds[n]);
    }
    assert_int_equal(n, countof(kinds));
    buf_release(&b);
    arena_release(&a);
}

/* Older names have no shuffles; the third kernel of a split one is that of H2O. */
static void test_forms(void **state)
{
    struct lab_config c;
    struct err e = {0};
    struct buf b = {0};
    assert_true(lab_name_parse(&c, S("kcg_Attention_1_2_512_64" FIELDS), &e));
    lab_name_print(&b, &c);
    assert_true(str_is(buf_view(&b), "kcg_Attention_1_2_512_64" FIELDS "SHP0SKP0"));
    assert_true(lab_name_parse(&c, S("kcg_Attention_1_2_512_64" FIELDS "_k1"), &e));
    assert_int_equal(c.kind, LAB_ATTENTION_SPLIT);
    assert_true(lab_attention_of(c.kind, c.part).has_stats);
    assert_true(lab_name_parse(&c, S("kcg_Attention_1_2_512_64" FIELDS "SHP1SKP1_k3"), &e));
    assert_int_equal(c.kind, LAB_H2O_SPLIT);
    assert_true(lab_attention_of(c.kind, c.part).takes_stats && lab_attention_of(c.kind, c.part).has_o);
    assert_true(lab_attention_of(LAB_H2O_SPLIT, 2).has_sums && !lab_attention_of(LAB_H2O_SPLIT, 2).has_o);
    buf_release(&b);
}

static void test_malformed(void **state)
{
    static const struct {
        const char *name, *message;
    } bad[] = {
        {"kcg_Attention", "column 14: expected '_' behind 'Attention', found the end"},
        {"kcg_AttentionK3_1_2_3_4", "column 5: expected 'MM', 'Attention'"},
        {"kcg_Attention_Br64Bc64", "column 15: expected a number from 1 to 1073741824 for 'batch', found 'Br64Bc64'"},
        {"kcg_Attention_1_2_3", "column 20: expected '_' behind 'queries', found the end"},
        {"kcg_Attention_1_0_3_4", "column 17: expected a number from 1 to 1073741824 for 'heads', found '0_3_4'"},
        {"kcg_Attention_1_2_3_4Br64", "column 22: expected '_' behind 'size of a head', found 'Br64'"},
        {"kcg_Attention_1_2_3_4_Br64Bc64Hd4Sa8", "column 34: expected '_' behind 'Hd', found 'Sa8'"},
        {"kcg_Attention_1_2_3_4_Br64Hd4", "column 27: expected 'Bc', found 'Hd4'"},
        {"kcg_Attention_1_2_3_4_Br064", "column 25: expected a number from 1 to 65536 for 'Br', found '064'"},
        {"kcg_Attention_1_2_512_64" FIELDS "SHP2SKP0", "expected a number from 0 to 1 for 'SHP', found '2SKP0'"},
        {"kcg_Attention_1_2_512_64" FIELDS "SHP0", "expected 'SKP', found the end"},
        {"kcg_Attention_1_2_512_64" FIELDS "SHP0SKP0_k4", "expected a number from 1 to 3 for '_k', found '4'"},
        {"kcg_Gemma2_1_2_512_64" FIELDS "SHP0SKP0_k3", "expected a number from 1 to 2 for '_k', found '3'"},
        {"kcg_Attention_1_2_512_64" FIELDS "SHP0SKP0_k1_", "expected the end, found '_'"},
        {"kcg_Attention_1_2_512_64" FIELDS "SHP0SKP0x", "expected the end, found 'x'"},
        {"kcg_AttentionK1_1_2_512_64" FIELDS "SHP0SKP0_k1", "expected the end, found '_k1'"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        struct lab_config c;
        struct err e = {0};
        if (lab_name_parse(&c, str_of(bad[i].name), &e)) fail_msg("%s is accepted", bad[i].name);
        assert_int_equal(e.code, ERR_INPUT);
        if (!strstr(e.msg, bad[i].message)) fail_msg("'%s', not '%s'", e.msg, bad[i].message);
        assert_non_null(strstr(e.msg, bad[i].name));
    }
}

/* One field of a consistent name changed, and the message. */
static void test_impossible(void **state)
{
    static const struct {
        enum lab_attention_field f;
        i32 v;
        const char *message;
    } bad[] = {
        {LA_BR, 128, "'Br128' is not PTr8 x WLPY2 x BLPY4"},
        {LA_BC, 32, "'Bc32' is not PTc4 x WLPX16 x BLPX1"},
        {LA_HD, 128, "'Hd128' is not the size of a head, 64"},
        {LA_W, 64, "'W64' is not WLPY2 x WLPX16"},
        {LA_OTR, 4, "'Br64' is not OTr4 x WLOY2 x BLOY4"},
        {LA_OTC, 8, "'Hd64' is not OTc8 x WLOX16 x BLOX1"},
        {LA_SA, 48, "'Sa48' does not divide Hd64"},
        {LA_SB, 24, "'Sb24' does not divide Bc64"},
        {LA_BSWQ, 3, "'BSWQ3' does not divide PTr8"},
        {LA_WSWK, 4, "'WSWK4' does not divide BSWK2"},
        {LA_BSWP, 16, "'BSWP16' does not divide OTr8"},
        {LA_WSWV, 3, "'WSWV3' does not divide BSWV4"},
        {LA_GLWQ, 16, "'GLWQ16': 128 threads x 16 elements do not divide the tile of queries of 1024"},
        {LA_GLWV, 8, "'GLWV8': 128 threads x 8 elements do not divide the tile of values of 512"},
        {LA_BSWP, 8, "'SHP1' needs the same threads for scores and output, but BSWP8 differs"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        struct lab_config c;
        struct err e = {0};
        struct buf b = {0};
        assert_true(lab_name_parse(&c, S("kcg_Attention_1_2_512_64" FIELDS "SHP1SKP0"), &e));
        if (!lab_config_check(&c, &e)) fail_msg("%s", e.msg);
        c.v[bad[i].f] = bad[i].v;
        if (lab_config_check(&c, &e)) fail_msg("%s: accepted", bad[i].message);
        if (!strstr(e.msg, bad[i].message)) fail_msg("'%s', not '%s'", e.msg, bad[i].message);
        lab_explain(&b, &c);
        assert_non_null(strstr(b.p, bad[i].message));
        buf_release(&b);
    }
}

/* Largest numbers everywhere are an error, not an overflow. */
static void test_largest(void **state)
{
    for (u32 k = LAB_ATTENTION; k < N_LAB_KINDS; k++) {
        struct lab_config c = {.kind = (enum lab_kind)k, .b = LAB_MAX_SIZE, .h = LAB_MAX_SIZE, .s = LAB_MAX_SIZE, .d = LAB_MOST};
        struct err e = {0};
        struct buf b = {0};
        for (u32 f = 0; f < N_LAB_ATTENTION_FIELDS; f++) c.v[f] = lab_field(c.kind, f)->most;
        assert_false(lab_config_check(&c, &e));
        assert_true(lab_flops(&c) > 1e30);
        lab_explain(&b, &c);
        assert_non_null(strstr(b.p, "impossible"));
        buf_release(&b);
    }
}

static void test_explained(void **state)
{
    static const struct {
        const char *prefix;
        const char *part, *text[3];
    } want[] = {
        {"Attention", "", {"q (1, 2, 64, 512), k (1, 2, 64, 512), v (1, 2, 512, 64)\n", "outputs    o (1, 2, 512, 64)\n", "computes   attention\n"}},
        {"Attention", "_k1", {"outputs    max (1, 2, 512, 1), denom (1, 2, 512, 1)\n", "up to its own", "128 threads: 4 subgroups of 32"}},
        {"Gemma2Origin", "", {"50 tanh(score / 50)", "up to its own", "grid       1 x 2 x 8 blocks of queries"}},
        {"H2OOrigin", "", {"o (1, 2, 512, 64), row_sum (1, 2, 512)\n", "registers  76 ", "shared     "}},
        {"H2OK2", "", {"max (1, 2, 512, 1), denom (1, 2, 512, 1)\noutputs    row_sum (1, 2, 512)\n", "rows are keys", "registers  44 "}},
    };
    for (i64 i = 0; i < countof(want); i++) {
        struct lab_config c;
        struct err e = {0};
        struct buf name = {0}, b = {0};
        buf_printf(&name, "kcg_%s_1_2_512_64" FIELDS "SHP0SKP0%s", want[i].prefix, want[i].part);
        assert_true(lab_name_parse(&c, buf_view(&name), &e));
        lab_explain(&b, &c);
        for (int k = 0; k < 3; k++)
            if (!strstr(b.p, want[i].text[k])) fail_msg("no '%s' in %s", want[i].text[k], b.p);
        buf_release(&name);
        buf_release(&b);
    }
}

/* Spaces. */

static bool count_point(void *user, const struct lab_config *c, i64 number)
{
    i64 *n = user;
    struct err e = {0};
    assert_int_equal(*n, number);
    *n = number + 1;
    if (!lab_config_check(c, &e)) fail_msg("point %lld: %s", (long long)number, e.msg);
    return true;
}

/* As many as that tool finds. */
static void test_published(void **state)
{
    static const struct {
        const char *file;
        enum lab_kind kind;
        i64 s, d;
        double n;
    } known[] = {
        {"attention.json", LAB_ATTENTION, 2048, 64, 48144},
        {"attention.json", LAB_ATTENTION, 2048, 128, 26208},
        {"attention.json", LAB_ATTENTION_K1, 4096, 64, 12240},
        {"attention_kernels.json", LAB_ATTENTION_K1, 4096, 64, 12240},
        {"attention_kernels.json", LAB_GEMMA2_K1, 4096, 64, 12240},
        {"attention_kernels.json", LAB_H2O_K2, 4096, 64, 13968},
        {"attention_kernels.json", LAB_H2O_K3, 4096, 64, 26256},
        {"attention_kernels.json", LAB_H2O_SPLIT, 4096, 64, 26256},
        {"attention_wave64.json", LAB_ATTENTION, 2048, 128, 8412},
        {"attention_wave64.json", LAB_ATTENTION, 2048, 64, 12732},
    };
    for (i64 i = 0; i < countof(known); i++) {
        const struct lab_config of = {.kind = known[i].kind, .b = 1, .h = 32, .s = known[i].s, .d = known[i].d};
        struct arena a = {0};
        struct lab_space s;
        struct lab_count c;
        struct err e = {0};
        i64 n = 0;
        read_space(&s, &a, known[i].file, &of);
        if (!lab_space_count(&s, LAB_RULES_DEEPGEN, &c, &e)) fail_msg("%s", e.msg);
        if (c.n != known[i].n) fail_msg("%s, %s: %.0f points, not %.0f", known[i].file, lab_kind(of.kind)->op, c.n, known[i].n);
        lab_space_each(&s, LAB_RULES_DEEPGEN, 0, count_point, &n);
        assert_true((double)n == c.n);
        arena_release(&a);
    }
}

/* Origin kernels have neither prefetches nor shuffles: 1/8 of the points without shuffles, by SPP, RPP and RPO, if memory never matters. */
static void test_origin(void **state)
{
    struct lab_config of = {.kind = LAB_ATTENTION_ORIGIN, .b = 1, .h = 1, .s = 512, .d = 64};
    struct arena a = {0};
    struct lab_space s;
    struct lab_count c;
    struct err e = {0};
    read_space(&s, &a, "attention.json", &of);
    assert_int_equal(s.list[LA_SPP].n, 1);
    assert_int_equal(s.list[LA_SHP].v[0], 0);
    assert_true(lab_space_count(&s, LAB_RULES_DEEPGEN, &c, &e));
    assert_true(c.n > 0 && c.n < 15312 / 4);
    arena_release(&a);
}

/* A plain enumeration: every combination of a few lists, and the check of names. */

/* Each field has the value of a consistent name, some of them others, too. */
static void few_lists(struct lab_space *s, struct arena *a, struct rng *r, const struct lab_config *like)
{
    enum { MOST_POINTS = 1 << 13 };
    i64 n = 1;
    for (u32 f = 0; f < N_LAB_ATTENTION_FIELDS; f++) {
        if (!s->list[f].n) {
            s->base.v[f] = like->v[f];
            continue;
        }
        u32 m = n < MOST_POINTS ? (u32)rng_range(r, 1, 3) : 1;
        s->list[f] = (struct lab_list){arena_array(a, i32, m), m};
        for (u32 i = 0; i < m; i++) {
            i32 v = i ? (i32)rng_range(r, 0, 2) - 1 : 0;
            bool is_flag = lab_field(like->kind, f)->most == 1;
            s->list[f].v[i] = is_flag ? (i32)i & 1 : v < 0 && like->v[f] % 2 == 0 ? like->v[f] / 2 : like->v[f] << (v > 0);
        }
        n *= m;
    }
}

static bool is_point(const struct lab_space *s, const struct lab_config *c)
{
    struct err e = {0};
    return lab_config_check(c, &e) && c->v[LA_BR] <= c->s && c->v[LA_BC] <= c->s && lab_threads(c) <= s->max_threads &&
           lab_shared(c, dtype_size(s->dtype)) <= s->max_shared && lab_registers(c) <= 200;
}

static double enumerate(const struct lab_space *s, u32 f, struct lab_config *c)
{
    if (f == N_LAB_ATTENTION_FIELDS) return is_point(s, c);
    double n = 0;
    for (u32 i = 0; i < s->list[f].n; i++) {
        c->v[f] = s->list[f].v[i];
        n += enumerate(s, f + 1, c);
    }
    return s->list[f].n ? n : enumerate(s, f + 1, c);
}

static void test_enumerated(void **state)
{
    struct rng r = rng_seed(7);
    double all = 0, largest = 0;
    for (int i = 0; i < 60; i++) {
        struct arena a = {0};
        struct lab_space s;
        struct lab_count count;
        struct err e = {0};
        struct lab_config like;
        i64 n = 0;
        assert_true(lab_name_parse(&like, S("kcg_Attention_1_2_512_64" FIELDS "SHP0SKP0"), &e));
        like.kind = i % 2 ? LAB_ATTENTION : LAB_GEMMA2_K2;
        read_space(&s, &a, "attention.json", &like);
        few_lists(&s, &a, &r, &like);
        s.max_threads = i % 3 ? 1024 : 128, s.max_shared = i % 5 ? 64 << 10 : 32 << 10, s.dtype = i % 7 ? DT_F32 : DT_F16;
        struct lab_config c = s.base;
        double want = enumerate(&s, 0, &c);
        bool ok = lab_space_count(&s, LAB_RULES_OWN, &count, &e);
        assert_int_equal(ok, want > 0);
        if (count.n != want) fail_msg("space %d: %.0f points, not %.0f", i, count.n, want);
        if (ok) lab_space_each(&s, LAB_RULES_OWN, 0, count_point, &n);
        assert_true((double)n == want);
        all += want, largest = want > largest ? want : largest;
        arena_release(&a);
    }
    assert_true(all > 1000 && largest > 50);
}

static void test_start(void **state)
{
    static const enum lab_kind kinds[] = {LAB_H2O_K1, LAB_H2O_K2, LAB_H2O_K3};
    struct rng r = rng_seed(5);
    for (int i = 0; i < 12; i++) {
        const struct lab_config of = {.kind = kinds[i % 3], .b = 1, .h = 2, .s = 1024, .d = 64};
        struct arena a = {0};
        struct lab_space s;
        struct lab_count count;
        struct err e = {0};
        read_space(&s, &a, "attention_kernels.json", &of);
        assert_true(lab_space_count(&s, LAB_RULES_DEEPGEN, &count, &e));
        starts_at(&s, LAB_RULES_DEEPGEN, rng_range(&r, 0, (i64)count.n - 1));
        arena_release(&a);
    }
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *json;
        enum lab_kind kind;
        const char *message;
    } bad[] = {
        {"{\"Br\": [32]}", LAB_ATTENTION, "key 'Bc' is missing"},
        {"{\"BLOCK_SIZE_M\": [32]}", LAB_ATTENTION, "unknown key 'BLOCK_SIZE_M'"},
        {"{\"Br\": [0]}", LAB_ATTENTION, "key 'Br': 0 is not within 1 to 65536"},
        {"{\"SHUFFLE_P\": [0, 2]}", LAB_ATTENTION, "key 'SHUFFLE_P': 2 is not within 0 to 1"},
        {"{\"WARP_SIZE\": [32, 64]}", LAB_ATTENTION, "key 'WARP_SIZE': takes one value, found 2"},
        {"{\"k1\": {}, \"k2\": {}}", LAB_ATTENTION, "lists for several kernels, but none for kind 'attn_v1'"},
        {"{\"k1\": {}, \"k2\": {}}", LAB_H2O_K3, "lists for several kernels, but no 'k3' for kind 'h2o_k3'"},
        {"{\"k1\": {\"PTr\": []}, \"k2\": {}}", LAB_GEMMA2_K1, "'k1': key 'PTr': the list is empty"},
        {"{\"k1\": 3}", LAB_GEMMA2_K1, "'k1': no object of keys and lists"},
        {"{\"Br\": [32]", LAB_ATTENTION, "line 1"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        const struct lab_config of = {.kind = bad[i].kind, .b = 1, .h = 1, .s = 64, .d = 64};
        struct arena a = {0};
        struct lab_space s;
        struct err e = {0};
        assert_false(lab_space_read(&s, &a, str_of(bad[i].json), &of, &e));
        if (!strstr(e.msg, bad[i].message)) fail_msg("'%s', not '%s'", e.msg, bad[i].message);
        arena_release(&a);
    }
}

/* Which rule leaves nothing. */
static void test_nothing(void **state)
{
    static const struct {
        enum lab_attention_field f;
        i32 v;
        const char *message, *wants;
    } bad[] = {
        {LA_BR, 8192, "the rule for tiles of threads and blocks removed the last", "Br and Bc of no more than all queries"},
        {LA_GLWV, 1024, "the rule for terms and loads removed the last", "GLOB_LOAD_WIDTH_Q, _K, _V"},
        {LA_BLPX, 2, "the rule for layouts of the scores removed the last", "BLOCK_LAYOUT_P_X = 1"},
        {LA_WSWQ, 64, "the rule for scatter of the scores removed the last", "WARP_SCATTER_WIDTH_Q"},
        {LA_WLOY, 7, "the rule for layouts of the output removed the last", "WARP_LAYOUT_O_Y"},
        {LA_WSWP, 64, "the rule for scatter of the output removed the last", "WARP_SCATTER_WIDTH_P"},
    };
    for (i64 i = 0; i < countof(bad); i++) {
        const struct lab_config of = {.kind = LAB_ATTENTION, .b = 1, .h = 1, .s = 2048, .d = 64};
        struct arena a = {0};
        struct lab_space s;
        read_space(&s, &a, "attention.json", &of);
        s.list[bad[i].f].n = 1, s.list[bad[i].f].v[0] = bad[i].v;
        leaves_nothing(&s, LAB_RULES_OWN, bad[i].message, bad[i].wants);
        arena_release(&a);
    }
}

/* Lists of names. */

static void test_registry(void **state)
{
    static const char json[] =
        "{\"kernels\": [{\"type\": \"attention\", \"kernelName\": \"kcg_Attention_1_2_512_64" FIELDS "SHP0SKP0\", \"pklpath\": \"\"},"
        " {\"type\": \"matmul\", \"kernelName\": \"whatever\"},"
        " {\"type\": \"attention\", \"kernelName\": \"kcg_Attention_1_2_512_64" FIELDS "SHP1SKP0\"},"
        " {\"type\": \"attention\", \"kernelName\": \"kcg_H2OK1_1_2_512_64" FIELDS "SHP0SKP0\"}]}";
    struct arena a = {0};
    struct lab_registry r;
    struct err e = {0};
    if (!lab_registry_read(&r, &a, str_of(json), "attention", &e)) fail_msg("%s", e.msg);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.n_others, 1);
    assert_int_equal(r.v[0].listed.n, 2);
    assert_int_equal(r.v[1].base.kind, LAB_H2O_K1);
    assert_false(lab_registry_read(&r, &a, S("{\"kernels\": [{\"type\": \"attention\", \"kernelName\": \"kcg_Attention_1\"}]}"), "attention", &e));
    assert_non_null(strstr(e.msg, "kernel 0: kernel name 'kcg_Attention_1': column 16"));
    e = (struct err){0};
    assert_false(lab_registry_read(&r, &a, S("{\"kernels\": [{\"type\": \"matmul\", \"kernelName\": \"kcg_Attention_1_2_512_64" FIELDS "\"}]}"),
                                   "matmul", &e));
    assert_non_null(strstr(e.msg, "is not of type 'matmul'"));
    arena_release(&a);
}

/* Computations. */

struct example { /* tensors of one attention in float, and its results by definition */
    struct lab_config c;
    struct tensor *q, *k, *v;
    double *max, *denom, *o, *sums;
};

static double score(const struct example *x, const struct lab_attention *what, i64 head, i64 i, i64 j)
{
    double s = 0;
    i64 d = x->c.d, n = x->c.s;
    for (i64 t = 0; t < d; t++)
        s += elem_f64(x->q->dtype, x->q->data, (head * d + t) * n + i) * elem_f64(x->k->dtype, x->k->data, (head * d + t) * n + j);
    s /= sqrt((double)d);
    if (what->softcap > 0) s = what->softcap * tanh(s / what->softcap);
    return what->is_causal && j > i ? -INFINITY : s;
}

static void define_row(const struct example *x, const struct lab_attention *what, i64 head, i64 i)
{
    i64 n = x->c.s, d = x->c.d, row = head * n + i;
    double max = -INFINITY, denom = 0;
    for (i64 j = 0; j < n; j++) max = fmax(max, score(x, what, head, i, j));
    for (i64 j = 0; j < n; j++) denom += exp(score(x, what, head, i, j) - max);
    x->max[row] = max, x->denom[row] = denom;
    for (i64 j = 0; j < n; j++) {
        double p = exp(score(x, what, head, i, j) - max) / denom;
        x->sums[head * n + j] += p;
        for (i64 t = 0; t < d; t++) x->o[row * d + t] += p * elem_f64(x->v->dtype, x->v->data, (head * n + j) * d + t);
    }
}

static struct tensor *random_tensor(struct arena *a, struct rng *r, enum dtype type, const i64 dim[4], double most)
{
    struct tensor *t = tensor_new(a, type, 4, dim);
    for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(type, t->data, i, (2 * rng_f64(r) - 1) * most);
    return t;
}

static void make_example(struct example *x, struct arena *a, struct rng *r, enum dtype type, double most)
{
    x->c.b = rng_range(r, 1, 2), x->c.h = rng_range(r, 1, 3), x->c.s = rng_range(r, 1, 9), x->c.d = rng_range(r, 1, 8);
    const i64 heads = x->c.b * x->c.h, by_columns[4] = {x->c.b, x->c.h, x->c.d, x->c.s}, by_rows[4] = {x->c.b, x->c.h, x->c.s, x->c.d};
    x->q = random_tensor(a, r, type, by_columns, most);
    x->k = random_tensor(a, r, type, by_columns, most);
    x->v = random_tensor(a, r, type, by_rows, 1);
    x->max = arena_array(a, double, heads * x->c.s), x->denom = arena_array(a, double, heads * x->c.s);
    x->sums = arena_array(a, double, heads * x->c.s), x->o = arena_array(a, double, heads * x->c.s * x->c.d);
}

/* The results of a kind, by its graph; statistics are outputs of another kind, or NULL. */
static void evaluate(const struct example *x, struct arena *a, struct tensor *const stats[2], struct tensor *out[2])
{
    struct symtab *st = arena_array(a, struct symtab, 1);
    struct graph g = {0};
    struct err e = {0};
    struct lab_attention what = lab_attention_of(x->c.kind, x->c.part);
    struct tensor *in[5] = {x->q, x->k};
    u32 n = 2;
    symtab_init(st, a);
    graph_init(&g, a, st);
    lab_attention_graph(&g, &x->c, x->q->dtype);
    if (!op_infer_all(&g, &e)) fail_msg("%s: %s", lab_kind(x->c.kind)->op, e.msg);
    if (what.has_o) in[n++] = x->v;
    if (what.takes_stats) in[n++] = stats[0], in[n++] = stats[1];
    assert_int_equal(g.input.n, n);
    assert_int_equal(g.output.n, what.has_stats ? 2 : what.has_o + what.has_sums);
    if (!graph_eval(&g, in, out, a, NULL, &e)) fail_msg("%s: %s", lab_kind(x->c.kind)->op, e.msg);
}

static void expect(const char *what, const struct tensor *got, const double *want, double share)
{
    double largest = 0;
    for (i64 i = 0; i < tensor_count(got); i++) largest = fmax(largest, fabs(want[i]));
    for (i64 i = 0; i < tensor_count(got); i++) {
        double v = elem_f64(got->dtype, got->data, i);
        if (!(fabs(v - want[i]) <= share * largest)) fail_msg("%s: element %lld is %g, not %g", what, (long long)i, v, want[i]);
    }
}

/* Every kind and every kernel of a split one, with scores up to 16^2 * sqrt(8) = 724 in f32, 25 in f16, where exp overflows from 88 and 11
   on. Errors of scores become relative ones of probabilities. */
static void try_kind(struct rng *r, enum lab_kind kind, u32 part, enum dtype type)
{
    struct arena a = {0};
    struct example x = {.c = {.kind = kind, .part = part}};
    struct lab_attention what = lab_attention_of(kind, part);
    struct tensor *out[2] = {NULL}, *stats[2] = {NULL};
    const char *name = lab_kind(kind)->op;
    double share = type == DT_F16 ? 5e-2 : 1e-3;
    make_example(&x, &a, r, type, type == DT_F16 ? 3 : rng_range(r, 0, 1) ? 16 : 1);
    for (i64 row = 0; row < x.c.b * x.c.h * x.c.s; row++) define_row(&x, &what, row / x.c.s, row % x.c.s);
    if (what.takes_stats) {
        struct example first = x;
        first.c.kind = what.softcap > 0 ? LAB_GEMMA2_K1 : LAB_H2O_K1, first.c.part = 0;
        evaluate(&first, &a, NULL, stats);
    }
    evaluate(&x, &a, stats, out);
    if (what.has_stats) expect(name, out[0], x.max, share), expect(name, out[1], x.denom, share);
    if (what.has_o) expect(name, out[0], x.o, share);
    if (what.has_sums) expect(name, out[what.has_o], x.sums, share);
    arena_release(&a);
}

static void test_computations(void **state)
{
    struct rng r = rng_seed(3);
    for (u32 k = LAB_ATTENTION; k < N_LAB_KINDS; k++)
        for (u32 part = 0; part <= lab_kind(k)->n_parts; part++)
            for (int i = 0; i < 12; i++) try_kind(&r, (enum lab_kind)k, part, i % 4 == 3 ? DT_F16 : DT_F32);
}

/* A name of a kernel is a candidate of wg_attention, of as many threads, and back where it has an output. */
static void test_tiles(void **state)
{
    static const char *const what[] = {"kcg_Attention_1_2_512_64", "kcg_AttentionOrigin_2_3_100_64", "kcg_Gemma2Origin_1_2_512_64", "kcg_AttentionK1_1_2_512_64",
                                       "kcg_Gemma2K2_1_2_100_64", "kcg_H2OK2_1_2_512_64", "kcg_H2OK3_1_2_512_64", "kcg_H2OOrigin_1_2_100_64"};
    struct caps caps = {0};
    struct err e = {0};
    assert_true(dev_target(&caps, "cuda", S("sm_80")));
    for (u32 i = 0; i < 2 * countof(what); i++) {
        struct arena a = {0};
        struct symtab st;
        struct task t;
        struct candidate x;
        struct lab_config c, back;
        struct kernel k;
        struct buf name = {0};
        const enum dtype type = i % 2 ? DT_F16 : DT_F32;
        symtab_init(&st, &a);
        bool ok = lab_name_parse(&c, str_fmt(&a, "%s" FIELDS "SHP0SKP0", what[i / 2]), &e) && lab_attention_task(&t, &a, &st, &c, type, &e), has_o = false;
        for (u32 shuffles = 2; ok && shuffles-- > 0;) { /* of rows that nothing is folded of there are none */
            ok = lab_attention_candidate(&x, &c, type, shuffles, &e);
            if (ok && gen_legal(&x, &t, &caps)) break;
        }
        if (!ok) fail_msg("%s: %s", what[i / 2], e.msg);
        has_o = lab_attention_of(c.kind, c.part).has_o;
        assert_true(gen_legal(&x, &t, &caps));
        if (!gen_kernel(&k, &a, &x, &t, &caps, &e)) fail_msg("%s: %s", what[i / 2], e.msg);
        assert_int_equal(kir_threads(&k.kir), lab_threads(&c));
        assert_int_equal(lab_attention_config_of(&back, &x, &c, type), has_o);
        if (has_o) lab_name_print(&name, &back);
        assert_true(!has_o || str_eq(buf_view(&name), str_fmt(&a, "%s" FIELDS "SHP0SKP0", what[i / 2])));
        buf_release(&name);
        arena_release(&a);
    }
}

/* Of sums of columns, rows of the name's tiles are keys. */
static void test_transposed(void **state)
{
    struct candidate x;
    struct lab_config c;
    struct err e = {0};
    assert_true(lab_name_parse(&c, S("kcg_H2OK2_1_2_512_64" FIELDS "SHP0SKP0"), &e));
    c.v[LA_PTR] = 2, c.v[LA_BR] = 2 * c.v[LA_WLPY] * c.v[LA_BLPY], c.v[LA_BSWQ] = c.v[LA_WSWQ] = c.v[LA_GLWQ] = 2;
    if (!lab_attention_candidate(&x, &c, DT_F32, false, &e)) fail_msg("%s", e.msg);
    for (u32 i = 0; i < x.gen->n_param; i++) {
        if (!strcmp(x.gen->param[i].name, "ptc")) assert_int_equal(x.sched.v[i], 2);
        if (!strcmp(x.gen->param[i].name, "ptr")) assert_int_equal(x.sched.v[i], c.v[LA_PTC]);
        if (!strcmp(x.gen->param[i].name, "wlpx")) assert_int_equal(x.sched.v[i], c.v[LA_WLPY]);
        if (!strcmp(x.gen->param[i].name, "blpy")) assert_int_equal(x.sched.v[i], c.v[LA_BLPX]);
        if (!strcmp(x.gen->param[i].name, "wlox")) assert_int_equal(x.sched.v[i], 1);
    }
}

/* Shuffled probabilities are refused. */
static void test_no_tiles(void **state)
{
    static const struct { const char *name, *why; } bad[] = {
        {"kcg_Attention_1_2_512_64" FIELDS "SHP1SKP0", "'SHP1': generator 'wg_attention'"},
        {"kcg_Attention_1_2_512_64" FIELDS "SHP0SKP1", "'SKP1': generator 'wg_attention'"},
        {"kcg_AttentionK2_1_2_512_64" FIELDS "SHP1SKP0", "'SHP1': generator 'wg_attention'"},
    };
    for (u32 i = 0; i < countof(bad); i++) {
        struct candidate x;
        struct lab_config c;
        struct err e = {0};
        assert_true(lab_name_parse(&c, str_of(bad[i].name), &e));
        assert_false(lab_attention_candidate(&x, &c, DT_F32, true, &e));
        if (!strstr(e.msg, bad[i].why)) fail_msg("%s", e.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_corpus),   cmocka_unit_test(test_forms),      cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_impossible), cmocka_unit_test(test_largest),  cmocka_unit_test(test_explained),  cmocka_unit_test(test_published),
        cmocka_unit_test(test_origin),     cmocka_unit_test(test_enumerated), cmocka_unit_test(test_start),    cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_nothing),    cmocka_unit_test(test_registry), cmocka_unit_test(test_computations),
        cmocka_unit_test(test_tiles),      cmocka_unit_test(test_transposed), cmocka_unit_test(test_no_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
