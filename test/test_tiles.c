// SPDX-License-Identifier: Apache-2.0
//
// Tile copies: random matrices, boxes of which a workgroup's first thread copies ahead in stages,
// inside and outside of them. The interpreter sees every element of each stage, also after
// printing, parsing, ordering and legalising; early, misplaced or foreign accesses are errors.
// Language cuda emits the same kernels for the architecture with such copies, with the tensor maps
// for the launcher, and reports errors otherwise.
#include "dev/dev.h"
#include "kir/kir.h"
#include "lang/lang.h"
#include "ptx_check.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GROUP = 32, ROUNDS = 5 };

struct tiles { /* a kernel */
    struct arena arena;
    struct kir k;
    struct kir_map map;
    enum dtype type;
    bool swizzled;
    i64 stages, unit;                /* elements of a stage */
    i64 row, col, row_step, col_step; /* of the first round; to the next one */
};

static void random_tiles(struct tiles *x, struct rng *r)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_U8, DT_I64};
    x->type = types[rng_range(r, 0, countof(types) - 1)];
    i64 size = dtype_size(x->type), piece = 16 / size;
    x->swizzled = rng_range(r, 0, 1);
    x->map = (struct kir_map){.rows = rng_range(r, 1, 40), .cols = rng_range(r, 1, 70)};
    x->map.pitch = round_up(x->map.cols, piece) + piece * rng_range(r, 0, 2);
    x->map.box_rows = (u32)rng_range(r, 1, 12);
    x->map.box_cols = (u32)(x->swizzled ? 128 / size : piece * rng_range(r, 1, i64_max(1, 32 / piece)));
    x->unit = round_up((i64)x->map.box_rows * x->map.box_cols, 1024 / size);
    x->stages = rng_range(r, 2, 4);
    x->row = rng_range(r, -8, 8), x->row_step = rng_range(r, -2, 12);
    x->col = rng_range(r, -20, 20), x->col_step = rng_range(r, -3, 30);
}

/* Round `round` to its stage. */
static void send(struct tiles *x, kval array, u32 map, kval round)
{
    struct kir *k = &x->k;
    struct kir_tile t = {.array = array,
                         .at = kir_mul_i(k, kir_mod_i(k, round, x->stages), x->unit),
                         .map = map,
                         .row = kir_add_i(k, kir_mul_i(k, round, x->row_step), x->row),
                         .col = kir_add_i(k, kir_mul_i(k, round, x->col_step), x->col)};
    kir_if(k, kir_lt(k, kir_thread(k, 0), kir_int(k, 1)));
    kir_tile(k, &t);
    kir_end(k);
}

/* early: awaits so many groups fewer than necessary. */
static void make(struct tiles *x, i64 early)
{
    struct kir *k = &x->k;
    i64 box = (i64)x->map.box_rows * x->map.box_cols, ahead = x->stages - 1;
    kir_init(k, &x->arena, S("tiles"));
    k->group[0] = GROUP;
    kir_buf(k, S("other"), DT_F32, KA_IN);
    kir_buf(k, S("x"), x->type, KA_IN);
    kval y = kir_buf(k, S("y"), x->type, KA_OUT);
    x->map.buf = 1;
    u32 map = kir_map(k, &x->map);
    assert_int_equal(kir_map(k, &x->map), map);
    kir_grid(k, kir_int(k, 1));
    kval array = x->swizzled ? kir_alloc_swizzled(k, x->type, kir_int(k, x->stages * x->unit))
                             : kir_alloc(k, KS_SHARED, x->type, 1, kir_int(k, x->stages * x->unit));
    for (i64 i = 0; i < ahead; i++) {
        send(x, array, map, kir_int(k, i));
        if (i + 1 < ahead) kir_await(k, ahead);
    }
    kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, ROUNDS), 1);
    kir_await(k, ahead - 1 + early);
    kir_barrier(k);
    kval i = kir_loop(k, KL_SERIAL, kir_thread(k, 0), kir_int(k, box), GROUP);
    kval from = kir_add(k, kir_mul_i(k, kir_mod_i(k, r, x->stages), x->unit), i);
    kir_store(k, y, kir_add(k, kir_mul_i(k, r, box), i), kir_load(k, array, from));
    kir_end(k);
    send(x, array, map, kir_add_i(k, r, ahead));
    kir_end(k);
    kir_await(k, 0);
    kir_end(k);
}

static void put(enum dtype t, void *p, i64 i, i64 v)
{
    if (dtype_is_float(t)) elem_set_f64(t, p, i, (double)v);
    else elem_set_i64(t, p, i, v);
}

/* Element i of x: never 0. */
static i64 value_at(i64 i) { return 1 + i % 97; }

static void check_results(const struct tiles *x, const struct kir *k, u64 seed, const char *what)
{
    i64 n = (x->map.rows - 1) * x->map.pitch + x->map.cols, box = (i64)x->map.box_rows * x->map.box_cols;
    u8 *in = mem_alloc(n * 8), *out = mem_alloc(ROUNDS * box * 8), *want = mem_alloc(ROUNDS * box * 8);
    struct err e = {0};
    float other = 0;
    for (i64 i = 0; i < n; i++) put(x->type, in, i, value_at(i));
    for (i64 i = 0; i < ROUNDS * box; i++) {
        i64 row = x->row + i / box * x->row_step + i % box / x->map.box_cols, col = x->col + i / box * x->col_step + i % x->map.box_cols;
        bool inside = row >= 0 && row < x->map.rows && col >= 0 && col < x->map.cols;
        put(x->type, want, i, inside ? value_at(row * x->map.pitch + col) : 0);
    }
    const struct kir_arg arg[] = {{&other, 1}, {in, n}, {out, ROUNDS * box}}, less[] = {{&other, 1}, {in, n - 1}, {out, ROUNDS * box}};
    if (!kir_eval(k, arg, NULL, &(struct kir_eval_opts){.seed = seed}, &e)) fail_msg("seed %llu: %s: %s", (unsigned long long)seed, what, e.msg);
    if (memcmp(out, want, (size_t)(ROUNDS * box * dtype_size(x->type)))) fail_msg("seed %llu: %s: another result", (unsigned long long)seed, what);
    bool touches_last = false;
    for (i64 r = 0; r < ROUNDS + x->stages - 1; r++) {
        i64 row = x->map.rows - 1 - x->row - r * x->row_step, col = x->map.cols - 1 - x->col - r * x->col_step;
        touches_last |= row >= 0 && row < x->map.box_rows && col >= 0 && col < x->map.box_cols;
    }
    assert_int_equal(kir_eval(k, less, NULL, &(struct kir_eval_opts){.seed = seed}, &e), !touches_last);
    if (touches_last) assert_non_null(strstr(e.msg, "matrix beyond its buffer"));
    mem_free(in), mem_free(out), mem_free(want);
}

static void test_random(void **state)
{
    for (u64 seed = 1; seed <= 200; seed++) {
        struct tiles x = {0};
        struct rng r = rng_seed(seed);
        struct kir again, ordered, legal;
        struct err e = {0};
        struct buf one = {0}, two = {0};
        random_tiles(&x, &r);
        make(&x, 0);
        check_results(&x, &x.k, seed, "built");
        kir_print(&one, &x.k);
        if (!kir_parse(&again, &x.arena, buf_view(&one), &e)) fail_msg("seed %llu: %s\n%s", (unsigned long long)seed, e.msg, one.p);
        kir_print(&two, &again);
        assert_string_equal(one.p, two.p);
        kir_order(&ordered, &x.arena, &again, false);
        check_results(&x, &ordered, seed, "ordered");
        if (!kir_legalise(&legal, &x.arena, &ordered, &(struct kir_limits){0}, &e)) fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
        check_results(&x, &legal, seed, "legalised");
        struct kir_cost cost;
        kir_count(&legal, NULL, &cost);
        double n_tile = (double)(ROUNDS + x.stages - 1);
        assert_true(cost.bytes_loaded == n_tile * x.map.box_rows * x.map.box_cols * (double)dtype_size(x.type));
        buf_release(&one);
        buf_release(&two);
        arena_release(&x.arena);
    }
}

/* One group fewer awaited: the data has not arrived yet. */
static void test_early(void **state)
{
    for (u64 seed = 1; seed <= 50; seed++) {
        struct tiles x = {0};
        struct rng r = rng_seed(seed);
        struct err e = {0};
        random_tiles(&x, &r);
        make(&x, 1);
        i64 n = x.map.rows * x.map.pitch, box = (i64)x.map.box_rows * x.map.box_cols;
        u8 *in = mem_alloc(n * 8), *out = mem_alloc(ROUNDS * box * 8);
        float other = 0;
        const struct kir_arg arg[] = {{&other, 1}, {in, n}, {out, ROUNDS * box}};
        assert_false(kir_eval(&x.k, arg, NULL, &(struct kir_eval_opts){.seed = seed}, &e));
        assert_non_null(strstr(e.msg, "before its copy was awaited"));
        mem_free(in), mem_free(out);
        arena_release(&x.arena);
    }
}

#define KERNEL(map, body) "kernel t(x: in f32, y: out f32)\nmap x " map "\ngroup 8 1 1\ngrid %1 = 1\n  shared %2: f32[1024]\n  %3 = thread 0\n" body "end\n"
#define FIRST(tile) "  %4: bool = lt %3, 1\n  if %4\n    " tile "\n  end\n  await 0\n  barrier\n  %5: f32 = load %2[%3]\n  store y[%3] = %5\n"
#define PLAIN "8 8 pitch 8 box 2 4"

static void test_mistakes(void **state)
{
    static const struct { const char *text, *words; } p[] = {
        {KERNEL(PLAIN, FIRST("tile %2[0] = m0[0, 0]")), NULL},
        {KERNEL(PLAIN, FIRST("tile %2[16] = m0[0, 0]")), "misaligned tile"},
        {KERNEL(PLAIN, FIRST("tile %2[1024] = m0[0, 0]")), "write out of bounds"},
        {KERNEL(PLAIN, FIRST("tile %2[0] = m0[2147483648, 0]")), "beyond 32 bits"},
        {KERNEL(PLAIN, "  tile %2[0] = m0[0, 0]\n"), "another thread than the first"},
        {KERNEL(PLAIN, FIRST("tile %2[0] = m1[0, 0]")), "no such matrix"},
        {KERNEL(PLAIN, FIRST("tile x[0] = m0[0, 0]")), "tile to anything but"},
        {KERNEL("8 8 pitch 7 box 2 4", FIRST("tile %2[0] = m0[0, 0]")), "invalid matrix"},
        {KERNEL("8 8 pitch 10 box 2 4", FIRST("tile %2[0] = m0[0, 0]")), "invalid matrix"},
        {KERNEL("8 8 pitch 8 box 2 3", FIRST("tile %2[0] = m0[0, 0]")), "invalid matrix"},
        {KERNEL("8 8 pitch 8 box 257 4", FIRST("tile %2[0] = m0[0, 0]")), "invalid box"},
        {KERNEL("0 8 pitch 8 box 2 4", FIRST("tile %2[0] = m0[0, 0]")), "invalid matrix"},
        {KERNEL("2147483648 8 pitch 8 box 2 4", FIRST("tile %2[0] = m0[0, 0]")), "invalid matrix"},
    };
    for (i64 i = 0; i < countof(p); i++) {
        struct arena a = {0};
        struct kir k;
        struct err e = {0};
        float x[64] = {0}, y[8];
        const struct kir_arg arg[] = {{x, 64}, {y, 8}};
        bool ok = kir_parse(&k, &a, str_of(p[i].text), &e) && kir_eval(&k, arg, NULL, NULL, &e);
        if (ok != !p[i].words) fail_msg("%s: '%s'", p[i].text, e.msg);
        if (p[i].words && !strstr(e.msg, p[i].words)) fail_msg("'%s' is not in '%s'", p[i].words, e.msg);
        arena_release(&a);
    }
}

/* Languages. */

static void refuse(const struct kir *k, const char *lang, const struct caps *c, const char *words)
{
    struct arena a = {0};
    struct buf text = {0};
    struct err e = {0};
    assert_false(lang_render(&text, lang_find(str_of(lang)), k, c, &a, &e));
    if (!strstr(e.msg, words)) fail_msg("'%s' is not in '%s'", words, e.msg);
    buf_release(&text);
    arena_release(&a);
}

/* Its text is valid kernel IR; the module is rejected. */
static void refuse_module(struct tiles *x)
{
    struct buf text = {0}, binary = {0};
    struct err e = {0};
    kir_print(&text, &x->k);
    assert_false(lang_find(S("spirv"))->build(&binary, buf_view(&text), &(struct caps){.is_gpu = true, .spirv = 13}, 60, &e));
    if (!strstr(e.msg, "has tile copies")) fail_msg("%s", e.msg);
    buf_release(&text);
    buf_release(&binary);
}

/* PTX has the same numbers of maps. */
static void check_ptx(struct tiles *x, const struct caps *c, bool builds)
{
    const struct lang *ptx = lang_find(S("ptx"));
    struct buf text = {0}, binary = {0};
    struct err e = {0};
    if (!lang_render(&text, ptx, &x->k, c, &x->arena, &e)) fail_msg("%s", e.msg);
    const char *maps = str_fmt(&x->arena, "tiles_0_maps[8] = {1, %lld, %lld, %lld, %lld, %u, %u, %d};", (long long)dtype_size(x->type),
                               (long long)x->map.rows, (long long)x->map.cols, (long long)x->map.pitch, x->map.box_rows, x->map.box_cols, x->swizzled).p;
    if (!strstr(text.p, maps) || !strstr(text.p, ".param .align 64 .b8 tiles_0_m0[128]")) fail_msg("no '%s' in\n%s", maps, text.p);
    const char *wrong = ptx_check(buf_view(&text), &x->arena);
    if (wrong) fail_msg("%s\n%s", wrong, text.p);
    if (builds && !ptx->build(&binary, buf_view(&text), c, 120, &e)) fail_msg("%s\n%s", e.msg, text.p);
    buf_release(&text);
    buf_release(&binary);
}

static void test_languages(void **state)
{
    struct caps c, old;
    struct buf tool = {0};
    struct err e = {0};
    const struct lang *cuda = lang_find(S("cuda"));
    bool builds = cuda->toolchain(&tool, NULL, &e);
    struct buf assembler = {0};
    bool assembles = lang_find(S("ptx"))->toolchain(&assembler, NULL, &(struct err){0});
    buf_release(&assembler);
    assert_true(dev_target(&c, "cuda", S("sm_90a")) && dev_target(&old, "cuda", S("sm_80")));
    assert_true(c.has_tile && !old.has_tile);
    for (u64 seed = 1; seed <= 12; seed++) {
        struct tiles x = {0};
        struct rng r = rng_seed(seed);
        struct buf text = {0}, binary = {0};
        struct err bad = {0};
        random_tiles(&x, &r);
        make(&x, 0);
        refuse(&x.k, "cuda", &old, "has tile copies");
        refuse(&x.k, "ptx", &old, "has tile copies");
        refuse(&x.k, "hip", &c, "has tile copies");
        refuse(&x.k, "opencl", &c, "has tile copies");
        refuse_module(&x);
        if (!lang_render(&text, cuda, &x.k, &c, &x.arena, &bad)) fail_msg("%s", bad.msg);
        const char *maps = str_fmt(&x.arena, "tiles_0_maps[] = {\n    1, %lld, %lld, %lld, %lld, %u, %u, %d,\n};", (long long)dtype_size(x.type),
                                   (long long)x.map.rows, (long long)x.map.cols, (long long)x.map.pitch, x.map.box_rows, x.map.box_cols, x.swizzled).p;
        if (!strstr(text.p, maps)) fail_msg("no '%s' in\n%s", maps, text.p);
        assert_non_null(strstr(text.p, "const __grid_constant__ q_map m0)"));
        check_ptx(&x, &c, assembles);
        if (os_env("QUERN_TEST_KEEP")) os_write(os_env("QUERN_TEST_KEEP"), text.p, text.n, &bad);
        if (builds && seed % 4 == 1 && !cuda->build(&binary, buf_view(&text), &c, 120, &bad)) fail_msg("%s\n%s", bad.msg, text.p);
        if (os_env("QUERN_TEST_KEEP") && binary.n) os_write(str_fmt(&x.arena, "%s.cubin", os_env("QUERN_TEST_KEEP")).p, binary.p, binary.n, &bad);
        buf_release(&text);
        buf_release(&binary);
        arena_release(&x.arena);
    }
    print_message("%s\n", builds ? tool.p : e.msg);
    buf_release(&tool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_early), cmocka_unit_test(test_mistakes),
                                       cmocka_unit_test(test_languages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
