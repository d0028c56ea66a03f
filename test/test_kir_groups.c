// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR for workgroups: subgroups and fragments as text, rejections of the verifier, results of
// legalisation.
#include "kir/kir.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A product of 32 x K by K x 16 with one subgroup and two accumulators, rows of p0 elements. */
static const char *const product = "kernel product(x: in f16, w: in f16, y: out f32; p0 = \"K\")\n"
                                   "group 32 1 1 subgroup 32\n"
                                   "grid %1 = 1\n"
                                   "  reg %2: f32_acc16x16[2]\n"
                                   "  %3: f32_acc16x16 = fill f32(0)\n"
                                   "  store %2[0] = %3\n"
                                   "  store %2[1] = %3\n"
                                   "  loop %4 = 0..p0 step 16\n"
                                   "    %5 = mul %4, 16\n"
                                   "    %6: f16_b16x16 = fload w[%5] pitch 16\n"
                                   "    loop unroll %7 = 0..2\n"
                                   "      %8 = mul p0, %7\n"
                                   "      %9 = mul %8, 16\n"
                                   "      %10 = add %4, %9\n"
                                   "      %11: f16_a16x16 = fload x[%10] pitch p0\n"
                                   "      %12: f32_acc16x16 = load %2[%7]\n"
                                   "      %13: f32_acc16x16 = fmma %11, %6, %12\n"
                                   "      store %2[%7] = %13\n"
                                   "    end\n"
                                   "  end\n"
                                   "  %14: f32_acc16x16 = load %2[0]\n"
                                   "  fstore y[0] = %14 pitch 16\n"
                                   "  %15: f32_acc16x16 = load %2[1]\n"
                                   "  fstore y[256] = %15 pitch 16\n"
                                   "end\n";

static struct str print(struct arena *a, const struct kir *k)
{
    struct buf b = {0};
    kir_print(&b, k);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

static struct kir parse(struct arena *a, const char *text)
{
    struct kir k;
    struct err e = {0};
    if (!kir_parse(&k, a, str_of(text), &e)) fail_msg("%s in\n%s", e.msg, text);
    return k;
}

static void expect_text(struct str got, const char *want)
{
    if (!str_is(got, want)) fail_msg("wanted\n%s\ngot\n%.*s", want, STR_ARG(got));
}

static void test_text(void **state)
{
    struct arena a = {0};
    struct kir k = parse(&a, product);
    expect_text(print(&a, &k), product);
    const char *const all = "kernel all(x: in f16, y: out f32, z: out f16; p0 = \"N\")\n"
                            "group 64 2 1 subgroup 16\n"
                            "grid %1 = p0\n"
                            "  shared %2: f16[256]\n"
                            "  %3 = subgroup 0\n"
                            "  %4 = subgroup 1\n"
                            "  %5 = sgmax %4\n"
                            "  %6: f32 = cast %5\n"
                            "  %7: f32 = sgadd %6\n"
                            "  %8: f32 = shuffle %7, %4\n"
                            "  %9: f32_acc8x4 = fill %8\n"
                            "  %10: f16_acc8x4 = cast %9\n"
                            "  fstore %2[%3] = %10 pitch 8 columns\n"
                            "  %11: f16_acc8x4 = fload %2[0] pitch p0 columns\n"
                            "  %12: f16_acc8x4 = add %10, %11\n"
                            "  fstore z[0] = %12 pitch 4\n"
                            "end\n";
    k = parse(&a, all);
    expect_text(print(&a, &k), all);
    assert_int_equal(k.subgroup, 16);
    arena_release(&a);
}

/* The same kernel through the builder. */
static void build_product(struct kir *k, struct arena *a)
{
    const struct kir_frag left = {KR_A, DT_F16, 16, 16}, right = {KR_B, DT_F16, 16, 16},
                          sum = {KR_ACC, DT_F32, 16, 16};
    kir_init(k, a, S("product"));
    k->group[0] = k->subgroup = 32;
    kval x = kir_buf(k, S("x"), DT_F16, KA_IN), w = kir_buf(k, S("w"), DT_F16, KA_IN);
    kval y = kir_buf(k, S("y"), DT_F32, KA_OUT), n = kir_param(k, S("K"));
    kir_grid(k, kir_int(k, 1));
    kval acc = kir_alloc_frag(k, &sum, kir_int(k, 2));
    for (i64 i = 0; i < 2; i++)
        kir_store(k, acc, kir_int(k, i), kir_frag_fill(k, &sum, kir_const_f(k, DT_F32, 1, 0)));
    kval at = kir_loop(k, KL_SERIAL, kir_int(k, 0), n, 16);
    kval b = kir_frag_load(k, &right, w, kir_mul_i(k, at, 16), kir_int(k, 16), false);
    kval i = kir_loop(k, KL_UNROLL, kir_int(k, 0), kir_int(k, 2), 1);
    kval row = kir_mul_i(k, kir_mul(k, n, i), 16);
    kval l = kir_frag_load(k, &left, x, kir_add(k, at, row), n, false);
    kir_store(k, acc, i, kir_frag_mma(k, l, b, kir_load(k, acc, i)));
    kir_end(k);
    kir_end(k);
    for (i64 j = 0; j < 2; j++)
        kir_frag_store(k, y, kir_int(k, j * 256), kir_load(k, acc, kir_int(k, j)), kir_int(k, 16),
                       false);
    kir_end(k);
}

static void test_builder(void **state)
{
    struct arena a = {0};
    struct kir k;
    build_product(&k, &a);
    expect_text(print(&a, &k), product);
    kval two = kir_const_f(&k, DT_F32, 1, 2), lane = kir_subgroup(&k, 1);
    assert_int_equal(kir_sg(&k, KI_SGMAX, two), two);
    assert_int_equal(kir_shuffle(&k, two, lane), two);
    assert_int_equal(kir_range(&k, lane).hi, 31);
    assert_int_equal(kir_range(&k, kir_subgroup(&k, 0)).hi, 0);
    assert_int_equal(kir_subgroup(&k, 1), lane);
    arena_release(&a);
}

/* Accumulators become single fragments; unused products vanish. */
static void test_legal(void **state)
{
    struct arena a = {0};
    struct kir k = parse(&a, product), out;
    struct err e = {0};
    const struct kir_limits l = {.max_lanes_bytes = 16};
    assert_true(kir_legalise(&out, &a, &k, &l, &e));
    assert_true(kir_verify(&out, &e));
    u32 n_mma = 0;
    for (kval v = 1; v < out.ins.n; v++) {
        const struct kir_ins *x = kir_at(&out, v);
        n_mma += x->op == KI_FMMA;
        if (x->op == KI_ALLOC) assert_int_equal(kir_at(&out, x->a)->imm.i, 1);
    }
    assert_int_equal(n_mma, 2);
    assert_int_equal(out.subgroup, 32);
    k = parse(&a, "kernel f(x: in f16)\ngroup 8 1 1 subgroup 8\ngrid %1 = 1\n"
                  "%2: f16_a8x8 = fload x[0] pitch 8\n%3: f16_b8x8 = fload x[0] pitch 8\n"
                  "%4: f32_acc8x8 = fill f32(0)\n%5: f32_acc8x8 = fmma %2, %3, %4\nend\n");
    assert_true(kir_legalise(&out, &a, &k, &l, &e));
    expect_text(print(&a, &out), "kernel f(x: in f16)\ngroup 8 1 1 subgroup 8\ngrid %1 = 1\nend\n");
    arena_release(&a);
}

static void test_cost(void **state)
{
    struct arena a = {0};
    struct kir k = parse(&a, product);
    struct kir_cost c;
    kir_count(&k, (const i64[]){64}, &c);
    assert_true(c.flops == 2.0 * 32 * 64 * 16);
    assert_true(c.bytes_loaded == (32 * 64 + 64 * 16) * 2);
    assert_true(c.bytes_stored == 32 * 16 * 4);
    assert_in_range(c.n_regs, 3 * 8, 6 * 8); /* per thread: an eighth of 16 x 16 each */
    arena_release(&a);
}

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

#define FRAGS                                                                                      \
    "group 32 1 1 subgroup 32\ngrid %1 = p0\n%2: f16_a8x16 = fload h[0] pitch 16\n"                \
    "%3: f16_b16x8 = fload h[0] pitch 8\n%4: f32_acc8x8 = fill f32(0)\n"

static void test_verify(void **state)
{
    refuse("group 48 1 1 subgroup 32\ngrid %1 = p0\nend\n", "subgroups of 32");
    refuse("group 24 1 1 subgroup 12\ngrid %1 = p0\nend\n", "subgroups of 12");
    refuse("group 8 8 1 subgroup 32\ngrid %1 = p0\nend\n", "subgroups of 32");
    refuse("group 8 8 1 subgroup 256\ngrid %1 = p0\nend\n", "invalid subgroup");
    refuse("group 64 1 1 subgroup 32 warpgroup 4\ngrid %1 = p0\nend\n", "warpgroups of 4");
    refuse("group 64 1 1 subgroup 32 team 4\ngrid %1 = p0\nend\n", "warpgroups of 4"); /* as earlier versions print it */
    refuse("group 96 1 1 subgroup 32 warpgroup 3\ngrid %1 = p0\nend\n", "warpgroups of 3");
    refuse("group 64 1 1 warpgroup 2\ngrid %1 = p0\nend\n", "warpgroups of 2");
    refuse("group 64 1 1 subgroup 32 warpgroup 9\ngrid %1 = p0\nend\n", "invalid warpgroup");
    refuse("grid %1 = p0\n%2 = subgroup 2\nend\n", "no such number");
    refuse("grid %1 = p0\n%2: f32x4 = splat f32(1)\n%3: f32x4 = sgadd %2\nend\n", "not a scalar");
    refuse("grid %1 = p0\n%2: f16 = load h[0]\n%3: f16 = sgadd %2\nend\n", "does not exist");
    refuse("grid %1 = p0\n%2: bool = lt %1, 2\n%3: bool = sgmax %2\nend\n", "does not exist");
    refuse("grid %1 = p0\n%2: f32 = shuffle %1, 0\nend\n", "not a scalar of its type");
    refuse("grid %1 = p0\n%2 = shuffle %1, f32(0)\nend\n", "not an i64 scalar");
    refuse("grid %1 = p0\n%2: f16_a8x16 = fload x[0] pitch 16\nend\n", "wrong type");
    refuse("grid %1 = p0\n%2: f32 = fload x[0] pitch 16\nend\n", "wrong type");
    refuse("grid %1 = p0\nwork %5: f16[64]\n%2: f16_a8x8 = fload %5[0] pitch 16\nend\n",
           "memory of one thread");
    refuse("grid %1 = p0\n%2: f16_c8x8 = fload h[0] pitch 16\nend\n", "bad type");
    refuse("grid %1 = p0\n%2: f16_a0x8 = fload h[0] pitch 16\nend\n", "bad type");
    refuse("grid %1 = p0\n%2: f16_a8x300 = fload h[0] pitch 16\nend\n", "invalid fragment");
    refuse("grid %1 = p0\n%2: f16x2_a8x8 = fload h[0] pitch 16\nend\n", "invalid fragment");
    refuse("grid %1 = p0\n%2: f32_a8x8 = load x[0]\nend\n", "wrong result type");
    refuse("grid %1 = p0\nwork %2: f32_a8x8[4]\nend\n", "outside registers");
    refuse(FRAGS "%5: f32_acc8x8 = fmma %3, %2, %4\nend\n", "another role");
    refuse(FRAGS "%5: f32_acc8x16 = fmma %2, %3, %4\nend\n", "wrong result type");
    refuse(FRAGS "%5: f16_a8x8 = fload h[0] pitch 8\n%6: f32_acc8x8 = fmma %5, %3, %4\nend\n",
           "different shapes");
    refuse(FRAGS "%5: f16_a8x16 = add %2, %2\nend\n", "does not accumulate");
    refuse(FRAGS "%5: f32_a8x16 = cast %2\nend\n", "does not accumulate");
    refuse(FRAGS "%5: f16_a8x16 = mul %2, %2\nend\n", "does not accumulate");
    refuse(FRAGS "%5: f32_acc8x8 = max %4, %4\nend\n", "cannot be a fragment");
    refuse(FRAGS "%5: f32 = neg %4\nend\n", "operand is a fragment");
    refuse(FRAGS "store y[0] = %4\nend\n", "wrong type");
    refuse(FRAGS "fstore x[0] = %4 pitch 8\nend\n", "read-only");
    refuse(FRAGS "fstore y[0] = %2 pitch 8\nend\n", "wrong type");
    refuse(FRAGS "reg %5: f32_acc8x4[2]\nstore %5[0] = %4\nend\n", "wrong type");
    refuse(FRAGS "%5: bool = lt %4, %4\nend\n", "operand is a fragment");
}

#define OWN "group 32 1 1 subgroup 32\ngrid %1 = p0\n%2: f32_acc16x8 = fload x[0] pitch 8\nreg %3: f32[8]\nreg %4: f16[8]\nreg %5: f32x2[4]\nreg %6: f32x4[2]\n"

static void test_verify_own(void **state)
{
    refuse("group 64 1 1 subgroup 64\ngrid %1 = p0\n%2: f32_acc16x8 = fload x[0] pitch 8\nreg %3: f32[4]\nfstore %3[0] = %2 pitch 2\nend\n", "subgroups of 32");
    refuse("group 64 1 1 subgroup 32 warpgroup 2\ngrid %1 = p0\n%2: f32_acc16x8 = fload x[0] pitch 8\nreg %3: f32[4]\nfstore %3[0] = %2 pitch 2\nend\n", "unknown order");
    refuse(OWN "%7: f16_b16x8 = fload %4[0] pitch 2\nend\n", "unknown order");
    refuse(OWN "%7: f32_acc16x4 = fload %3[0] pitch 2\nend\n", "unknown order");
    refuse(OWN "%7: f16_a8x8 = fload %4[0] pitch 2\nend\n", "unknown order");
    refuse(OWN "fstore %4[0] = %2 pitch 2\nend\n", "wrong type");
    refuse(OWN "fstore %6[0] = %2 pitch 2\nend\n", "no pairs");
    refuse(OWN "fstore %5[0] = %2 pitch 2 columns\nend\n", "no pairs");
    refuse(OWN "%7: f32_acc16x8 = fload %3[0] pitch 2 panels 8\nend\n", "in panels");
    refuse(OWN "fstore %3[0] = %2 pitch f32(1)\nend\n", "index or pitch");
}

/* The interpreter. */

/* 64 threads, x[i] = i, z[i] = i; h as x in f16. */
static struct err interpret(const char *body, u64 seed, float *y)
{
    struct arena a = {0};
    struct buf b = {0};
    struct kir k;
    struct err e = {0};
    float x[64];
    i64 z[64];
    u16 h[64];
    for (i64 i = 0; i < 64; i++) {
        x[i] = (float)i;
        z[i] = i;
        elem_set_f64(DT_F16, h, i, (double)i);
    }
    memset(y, 0xee, 64 * sizeof *y);
    const struct kir_arg arg[] = {{x, 64}, {h, 64}, {y, 64}, {z, 64}};
    const struct kir_eval_opts o = {.seed = seed, .max_steps = 1000000, .allow_unwritten = true};
    buf_printf(&b, "kernel f(x: in f32, h: in f16, y: out f32, z: inout i64)\n%s", body);
    if (!kir_parse(&k, &a, buf_view(&b), &e) || !kir_eval(&k, arg, NULL, &o, &e))
        assert_true(e.msg[0]);
    buf_release(&b);
    arena_release(&a);
    return e;
}

static void find(const char *body, const char *what)
{
    float y[64];
    for (u64 seed = 0; seed < 8; seed++) {
        struct err e = interpret(body, seed, y);
        if (what ? !strstr(e.msg, what) : e.code != ERR_NONE)
            fail_msg("seed %llu: wanted '%s', got '%s' in\n%s", (unsigned long long)seed,
                     what ? what : "nothing", e.msg, body);
    }
}

#define GROUP(body) "group 64 1 1\ngrid %1 = 1\n%2 = thread 0\n%3 = subgroup 1\n" body "end\n"
#define GROUP8(body)                                                                               \
    "group 64 1 1 subgroup 8\ngrid %1 = 1\n%2 = thread 0\n%3 = subgroup 1\n%4 = subgroup 0\n" body \
    "end\n"

static void test_subgroups(void **state)
{
    float y[64];
    for (u64 seed = 0; seed < 30;
         seed++) { /* any size: a sum over subgroups, summed by one thread */
        struct err e = interpret(
            GROUP("shared %5: f32[64]\nstore %5[%2] = f32(0)\nbarrier\n%6: f32 = load x[%2]\n"
                  "%7: f32 = sgadd %6\n%8 = subgroup 0\n%9: bool = eq %3, 0\nif %9\n"
                  "store %5[%8] = %7\nend\nbarrier\n%10: bool = eq %2, 0\nif %10\nreg %11: f32[1]\n"
                  "store %11[0] = f32(0)\nloop %12 = 0..64\n%13: f32 = load %5[%12]\n"
                  "%14: f32 = load %11[0]\n%15: f32 = add %13, %14\nstore %11[0] = %15\nend\n"
                  "%16: f32 = load %11[0]\nstore y[0] = %16\nend\n"),
            seed, y);
        if (e.code) fail_msg("%s", e.msg);
        assert_true(y[0] == 63 * 32);
    }
    struct err e =
        interpret(GROUP8("%5 = sub 7, %3\n%6: f32 = load x[%2]\n%7: f32 = shuffle %6, %5\n"
                         "store y[%2] = %7\n"),
                  1, y);
    assert_int_equal(e.code, ERR_NONE);
    for (i64 i = 0; i < 64; i++) assert_true(y[i] == (float)(i / 8 * 8 + 7 - i % 8));
    e = interpret(GROUP8("%5 = sgmax %2\n%6 = sgmin %2\n%7 = sub %5, %6\n%8 = add %7, %6\n"
                         "%9: f32 = cast %8\nstore y[%2] = %9\n"),
                  1, y);
    for (i64 i = 0; i < 64; i++) assert_true(y[i] == (float)(i / 8 * 8 + 7));
}

static void test_divergence(void **state)
{
    find(GROUP8("%5: bool = lt %4, 3\nif %5\n%6 = sgadd %2\nstore z[%2] = %6\nelse\n%7 = sgmax %2\n"
                "store z[%2] = %7\nend\n"),
         NULL);
    find(GROUP8("%5: bool = lt %2, 12\nif %5\n%6 = sgadd %2\nstore z[%2] = %6\nend\n"),
         "threads of a subgroup in divergent flow at instruction");
    find(GROUP8("loop %5 = 0..%2\n%6 = sgadd %2\nend\n"), "divergent flow");
    find(GROUP8("loop %5 = 0..%4\n%6 = sgadd %2\nend\n"), NULL);
    find(GROUP8("loop %5 = 0..%4\nbarrier\nend\n"), "barrier in divergent flow");
    find(GROUP8("%5 = add %3, 1\n%6 = shuffle %2, %5\n"), "no such thread in the subgroup");
    find(GROUP8("%5 = sub %3, 1\n%6 = shuffle %2, %5\n"), "no such thread in the subgroup");
    find(GROUP8("%5: bool = eq %2, 9\nif %5\n%6: f32_acc4x4 = fill f32(0)\nend\n"),
         "divergent flow");
    /* divisors of inactive threads do not matter */
    find(GROUP8(
             "%5: bool = lt 0, %2\nif %5\n%6 = div 64, %2\nstore z[%2] = %6\nelse\n%7 = div 5, 1\n"
             "%8 = mod %7, 5\nend\n"),
         NULL);
    find(GROUP8("%5: bool = lt %2, 9\nif %5\n%6 = sub %2, 4\n%7 = div 64, %6\nend\n"),
         "division by zero");
}

/* Reads by several threads, then a write by the one that was first; no order between two barriers.
 */
static void test_races(void **state)
{
    find(GROUP("%5 = load z[0]\n%6: bool = eq %2, 0\nif %6\nstore z[0] = 1\nend\n"), "race: write");
    find(GROUP("%5 = load z[0]\n%6 = sgadd %5\n%7: bool = eq %2, 0\nif %7\nstore z[0] = 1\nend\n"),
         "race: write");
    find(GROUP("%5 = load z[0]\nbarrier\n%6: bool = eq %2, 0\nif %6\nstore z[0] = 1\nend\n"), NULL);
    find(GROUP("%6: bool = eq %2, 5\nif %6\n%5 = load z[0]\nstore z[0] = %5\nend\n"), NULL);
    find(GROUP("store z[%2] = 3\n%5 = sgadd %2\n%6: bool = lt 0, %2\nif %6\n%7 = sub %2, 1\n"
               "%8 = load z[%7]\nend\n"),
         "race: read");
}

#define ACC "%5: f32_acc8x8 = fill f32(1)\n"

static void test_fragments(void **state)
{
    find(GROUP8("%9: bool = eq %4, 0\nif %9\n" ACC "fstore y[0] = %5 pitch 8\nend\n"), NULL);
    find(GROUP8(ACC "fstore y[0] = %5 pitch 8\n"), "race: second write");
    find(GROUP8("%9: bool = eq %4, 0\nif %9\n" ACC "fstore y[4] = %5 pitch 8\nend\n"),
         "write out of bounds: element 64 of 'y'");
    find(GROUP8("%9: bool = eq %4, 0\nif %9\n" ACC "fstore y[0] = %5 pitch 4\nend\n"),
         "race: second");
    find(GROUP8("%9: bool = eq %4, 0\nif %9\n" ACC "fstore y[0] = %5 pitch 12 columns\nend\n"),
         "write out of bounds");
    find(GROUP8("%5: f32_acc4x4 = fload x[2] pitch 8\n"),
         "misaligned fragment at element 2 of 'x'");
    find(GROUP8("%5: f32_acc4x4 = fload x[4] pitch 6\n"), "misaligned fragment");
    find(GROUP8("%5: f16_acc4x2 = fload h[2] pitch 2\n"), NULL);
    find(GROUP8("%5: f16_acc4x2 = fload h[2] pitch 2 columns\n"), "misaligned fragment");
    find(GROUP8("%5: f32_acc4x4 = fload x[%2] pitch 8\n"), "disagree on an operand");
    find(GROUP8("%6: f32 = load x[%2]\n%5: f32_acc4x4 = fill %6\n"), "disagree on an operand");
    find(GROUP8("%6 = mul %4, 4\n%5: f32_acc4x4 = fload x[%6] pitch 8\n"), NULL);
    find(GROUP8("%5: f32_acc4x4 = fload x[0] pitch %2\n"), "disagree on an operand");
    find(GROUP8("%6 = mul %4, 8\n%5: f32_acc4x4 = fload x[%6] pitch 4\n"),
         "read out of bounds: element 64");
    find(GROUP8("shared %6: f32[16]\n%5: f32_acc4x4 = fload %6[0] pitch 4\n"), "read of undefined");
    find(GROUP8("reg %6: f32_acc8x8[2]\n" ACC "store %6[0] = %5\n%7: f32_acc8x8 = load %6[1]\n"),
         "read of undefined");
    find(GROUP8("reg %6: f32_acc8x8[2]\n" ACC "store %6[2] = %5\n"), "write out of bounds");
    find(GROUP8("reg %6: f32_acc8x8[2]\n" ACC "%7 = div %2, 63\nstore %6[%7] = %5\n"), "disagree");
    /* the distribution of elements over threads is unknown: only a barrier makes them visible */
#define STAGE(between)                                                                             \
    GROUP8("shared %6: f32[512]\n" ACC "%7 = mul %4, 64\nfstore %6[%7] = %5 pitch 8\n" between     \
           "%8: f32_acc8x8 = fload %6[%7] pitch 8\n")
    find(STAGE("barrier\n"), NULL);
    find(STAGE(""), "race: read");
}

/* The result of the matmul in both texts. */
static void test_vendor_gemm(void **state)
{
    enum { K = 48, M = 32, N = 16 };
    u16 x[M * K], w[K * N];
    float y[M * N];
    struct rng r = rng_seed(1);
    for (i64 i = 0; i < M * K; i++) elem_set_f64(DT_F16, x, i, (double)rng_range(&r, -8, 8));
    for (i64 i = 0; i < K * N; i++) elem_set_f64(DT_F16, w, i, (double)rng_range(&r, -8, 8));
    struct arena a = {0};
    struct kir k = parse(&a, product), out;
    struct err e = {0};
    const struct kir_limits l = {.max_lanes_bytes = 16};
    assert_true(kir_legalise(&out, &a, &k, &l, &e));
    const struct kir_arg arg[] = {{x, M * K}, {w, K * N}, {y, M * N}};
    for (u32 which = 0; which < 2; which++) {
        memset(y, 0xee, sizeof y);
        if (!kir_eval(which ? &out : &k, arg, (const i64[]){K}, NULL, &e)) fail_msg("%s", e.msg);
        for (i64 i = 0; i < M * N; i++) {
            double s = 0;
            for (i64 j = 0; j < K; j++)
                s += elem_f64(DT_F16, x, i / N * K + j) * elem_f64(DT_F16, w, j * N + i % N);
            assert_true(y[i] == (float)s);
        }
    }
    arena_release(&a);
}

/* Whole numbers, columns, sums of accumulators, casts of them. */
static void test_fragment_arithmetic(void **state)
{
    struct arena a = {0};
    struct kir k =
        parse(&a, "kernel f(x: in i8, y: out i32, z: out f16)\ngroup 4 1 1 subgroup 4\n"
                  "grid %1 = 1\n%2: i8_a2x4 = fload x[0] pitch 4\n%3: i8_b4x2 = fload x[0] "
                  "pitch 4 columns\n%4: i32_acc2x2 = fill i32(5)\n%5: i32_acc2x2 = fmma %2, "
                  "%3, %4\n%6: i32_acc2x2 = add %5, %5\nfstore y[0] = %6 pitch 2 columns\n"
                  "%7: f32_acc2x2 = fill f32(0.1)\n%8: f16_acc2x2 = cast %7\n"
                  "fstore z[0] = %8 pitch 2\nend\n");
    struct err e = {0};
    i8 x[8] = {1, 2, 3, 4, -5, 6, -7, 100};
    i32 y[4];
    u16 z[4];
    const struct kir_arg arg[] = {{x, 8}, {y, 4}, {z, 4}};
    if (!kir_eval(&k, arg, NULL, NULL, &e)) fail_msg("%s", e.msg);
    const i32 cross = 2 * (-5 + 12 - 21 + 400 + 5);
    assert_int_equal(y[0], 2 * (1 + 4 + 9 + 16 + 5));
    assert_int_equal(y[1], cross);
    assert_int_equal(y[2], cross);
    assert_int_equal(y[3], 2 * (25 + 36 + 49 + 10000 + 5));
    for (i64 i = 0; i < 4; i++) assert_int_equal(z[i], f16_from_f32(0.1f));
    arena_release(&a);
}

/* Products element by element; a pitch of 0 repeats a line, so that factors of rows, or of columns, become fragments. */
static void test_fragment_factors(void **state)
{
    struct arena a = {0};
    struct kir k = parse(&a, "kernel f(x: in f32, y: out f32)\ngroup 8 1 1 subgroup 4\ngrid %1 = 1\n%2: f32_acc4x4 = fload x[0] pitch 4\n"
                             "%3: f32_acc4x4 = fload x[16] pitch 0 columns\n%4: f32_acc4x4 = fload x[20] pitch 0\n%5: f32_acc4x4 = mul %2, %3\n"
                             "%6: f32_acc4x4 = mul %5, %4\n%7 = subgroup 0\n%8 = mul %7, 16\nfstore y[%8] = %6 pitch 4\nend\n");
    struct err e = {0};
    float x[24], y[32];
    const struct kir_arg arg[] = {{x, 24}, {y, 32}};
    for (i32 i = 0; i < 24; i++) x[i] = 1.5f * (float)i - 7;
    if (!kir_verify(&k, &e) || !kir_eval(&k, arg, NULL, NULL, &e)) fail_msg("%s", e.msg);
    for (i32 i = 0; i < 32; i++) assert_true(y[i] == x[i % 16] * x[16 + i % 16 / 4] * x[20 + i % 4]);
    arena_release(&a);
}

/* Grids distributed to threads: one to three dimensions of known and unknown extent, scratch arrays
   small, large and of unknown size, a second grid that reads the results of the first. */

struct spread_case {
    struct rng r;
    struct kir k;
    i64 param[5]; /* H, W, D, then the parameters added by kir_spread */
};

enum { SPREAD_MAX = 7 };

static kval extent_random(struct spread_case *c, const char *name, i64 *n)
{
    kval p = kir_param(&c->k, str_of(name));
    i64 i = kir_at(&c->k, p)->imm.i;
    *n = c->param[i];
    if (rng_range(&c->r, 0, 1)) return p;
    *n = rng_range(&c->r, 1, SPREAD_MAX);
    return kir_int(&c->k, *n);
}

/* y[i] = sum of i .. i + 3 through scratch memory; z[i] = y[n-1-i] */
static i64 spread_build(struct spread_case *c, struct arena *a)
{
    static const char *const names[] = {"H", "2*W", "D"};
    struct kir *k = &c->k;
    kir_init(k, a, S("f"));
    kval y = kir_buf(k, S("y"), DT_I64, KA_INOUT), z = kir_buf(k, S("z"), DT_I64, KA_INOUT);
    u32 rank = (u32)rng_range(&c->r, 1, 3);
    kval extent[3];
    i64 size[3], n = 1;
    for (u32 d = 0; d < rank; d++) extent[d] = extent_random(c, names[d], &size[d]);
    kval at = kir_int(k, 0), i;
    for (u32 d = 0; d < rank; d++) n *= size[d];
    kval index[3];
    for (u32 d = 0; d < rank; d++) index[d] = kir_grid(k, extent[d]);
    for (u32 d = 0; d < rank; d++) at = kir_add(k, kir_mul(k, at, extent[d]), index[d]);
    kval count = rng_range(&c->r, 0, 1) ? kir_int(k, rng_range(&c->r, 0, 1) ? 4 : 300)
                                        : kir_param(k, S("4*H + 4"));
    kval work = kir_alloc(k, rng_range(&c->r, 0, 1) ? KS_WORK : KS_SHARED, DT_I64, 1, count);
    i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, 4), 1);
    kir_store(k, work, i, kir_add(k, at, i));
    kir_end(k);
    kir_barrier(k);
    kval s = kir_load(k, work, kir_ramp(k, kir_int(k, 0), 1, 4));
    kir_store(k, y, at, kir_un(k, KI_HADD, s));
    for (u32 d = 0; d < rank; d++) kir_end(k);
    i = kir_grid(k, kir_int(k, n));
    kir_store(k, z, i, kir_load(k, y, kir_sub(k, kir_int(k, n - 1), i)));
    kir_end(k);
    return n;
}

/* Parameters of the new kernel by their texts, as the host does. */
static void spread_params(const struct spread_case *c, const struct kir *k, i64 *param)
{
    struct arena a = {0};
    struct symtab t;
    struct err e = {0};
    symtab_init(&t, &a);
    sym_var(&t, S("H"));
    sym_var(&t, S("W"));
    sym_var(&t, S("D"));
    const i64 var[] = {c->param[0], c->param[1] / 2, c->param[2]};
    for (u32 i = 0; i < k->param.n; i++) {
        sym s = sym_parse(&t, k->param.v[i], &e);
        if (!s || !sym_eval(&t, s, var, &param[i]))
            fail_msg("%.*s: %s", STR_ARG(k->param.v[i]), e.msg);
    }
    arena_release(&a);
}

static void test_spread(void **state)
{
    static const u32 threads[] = {1, 4, 5, 64, 1024};
    static i64 y[16 * 16 * 16], z[16 * 16 * 16];
    for (u64 seed = 1; seed <= 300; seed++) {
        struct arena a = {0};
        struct spread_case c = {.r = rng_seed(seed)};
        c.param[0] = rng_range(&c.r, 0, SPREAD_MAX);
        c.param[1] = 2 * rng_range(&c.r, 1, SPREAD_MAX);
        c.param[2] = rng_range(&c.r, 1, SPREAD_MAX);
        i64 n = spread_build(&c, &a), param[16] = {0};
        struct kir out;
        struct err e = {0};
        u32 t = threads[seed % countof(threads)];
        if (!kir_spread(&out, &a, &c.k, t, &e))
            fail_msg("seed %llu: %s", (unsigned long long)seed, e.msg);
        assert_int_equal(out.group[0], t);
        spread_params(&c, &out, param);
        memset(y, 0xee, sizeof y);
        memset(z, 0xee, sizeof z);
        const struct kir_arg arg[] = {{y, n}, {z, n}};
        const struct kir_eval_opts o = {.seed = seed};
        if (!kir_eval(&out, arg, param, &o, &e))
            fail_msg("seed %llu: %s\n%.*s", (unsigned long long)seed, e.msg,
                     STR_ARG(print(&a, &out)));
        for (i64 i = 0; i < n; i++) {
            assert_int_equal(y[i], 4 * i + 6);
            assert_int_equal(z[i], y[n - 1 - i]);
        }
        arena_release(&a);
    }
}

/* Many iterations with large scratch arrays: bounded memory, several batches. */
static void test_spread_rounds(void **state)
{
    struct arena a = {0};
    struct kir k = parse(
        &a,
        "kernel f(y: out i64; p0 = \"H\")\ngrid %1 = p0\n  work %2: i64[400]\n  %4 = mod %1, 400\n"
        "  store %2[%4] = %1\n  %3 = load %2[%4]\n  store y[%1] = %3\nend\n");
    struct kir out;
    struct err e = {0};
    enum { N = 399 * 16 };
    static i64 y[N];
    struct spread_case c = {.param = {N, 0, 0}};
    i64 param[3];
    assert_true(kir_spread(&out, &a, &k, 64, &e));
    struct str text = print(&a, &out);
    assert_non_null(strstr(str_z(&a, text), "min(((H) + 63)//64, 16)"));
    const struct kir_arg arg[] = {{y, N}};
    spread_params(&c, &out, param);
    if (!kir_eval(&out, arg, param, NULL, &e)) fail_msg("%s\n%.*s", e.msg, STR_ARG(text));
    for (i64 i = 0; i < N; i++) assert_int_equal(y[i], i);
    arena_release(&a);
}

/* Divisors: the claim holds for the text's value, whatever the sizes; and it is not too weak. */
static void test_multiple(void **state)
{
    static const struct {
        const char *text;
        i64 want;
    } list[] = {
        {"N", 1},
        {"8*N", 8},
        {"8*N + 4*M", 4},
        {"2*(4*N - 8)*M", 8},
        {"-16*N", 16},
        {"24", 8},
        {"8*N//2", 1},
        {"(8*N//3)*4", 4},
        {"(W+15)//16*256", 256},
        {"N%3*8 + 16", 8},
        {"min(8, 8*N)", 1},
        {"8*N + 'a b'", 1},
        {"", 1},
        {"((((((((((((((((((((8))))))))))))))))))))", 1},
        {"8*(N", 1},
        {"16*H*W + 32", 16},
    };
    for (i64 i = 0; i < countof(list); i++) {
        struct arena a = {0};
        struct kir k;
        kir_init(&k, &a, S("f"));
        kval p = kir_param(&k, str_of(list[i].text));
        if (kir_multiple(&k, p) != list[i].want)
            fail_msg("%s: %lld", list[i].text, (long long)kir_multiple(&k, p));
        arena_release(&a);
    }
    struct arena a = {0};
    struct kir k;
    kir_init(&k, &a, S("f"));
    kval p = kir_param(&k, S("4*N")), q = kir_param(&k, S("M"));
    kir_grid(&k, q);
    kval i = kir_loop(&k, KL_SERIAL, kir_int(&k, 32), q, 16);
    kval j = kir_loop(&k, KL_SERIAL, q, p, 16);
    assert_int_equal(kir_multiple(&k, kir_add(&k, kir_mul(&k, p, i), kir_int(&k, 8))), 8);
    assert_int_equal(kir_multiple(&k, kir_mul(&k, p, i)), 64);
    assert_int_equal(kir_multiple(&k, kir_mul(&k, p, j)), 4);
    assert_int_equal(kir_multiple(&k, kir_div_i(&k, kir_mul(&k, i, q), 4)), 4);
    assert_int_equal(kir_multiple(&k, kir_ramp(&k, i, 8, 4)), 8);
    assert_int_equal(kir_multiple(&k, kir_min(&k, i, p)), 4);
    arena_release(&a);
}

/* A thread's elements of a fragment of 64 x 16 are where they are said to be: z is x, passed on by threads and by a product with the unit matrix of their
   rounded elements, times a number of each row. */
static void own_kernel(struct buf *b)
{
    buf_z(b, "kernel own(x: in f32, e: in f16, y: out f32, z: out f32)\ngroup 128 1 1 subgroup 32 warpgroup 4\ngrid %1 = 1\n"
             "%2: f32_acc64x16 = fload x[0] pitch 16\nreg %3: f32x2[6]\nfstore %3[1] = %2 pitch 2\nreg %4: f16x2[4]\nreg %5: f32[2]\n"
             "%6 = subgroup 0\n%7 = subgroup 1\n%8 = mul %6, 16\n%9 = div %7, 4\n%10 = add %8, %9\n%11 = mod %7, 4\n%12 = mul %11, 2\n");
    for (u32 r = 0, id = 20; r < 2; r++, id += 40) {
        buf_printf(b, "%%%u = add %%10, %u\n%%%u: f32 = cast %%%u\nstore %%5[%u] = %%%u\n%%%u = mul %%%u, 16\n%%%u = add %%%u, %%12\n", id, 8 * r, id + 1, id, r, id + 1,
                   id + 2, id, id + 3, id + 2);
        for (u32 c = 0; c < 2; c++) {
            u32 v = id + 10 + 10 * c, at = 2 * r + c;
            buf_printf(b, "%%%u: f32x2 = load %%3[%u]\n%%%u = add %%%u, %u\n%%%u: i64x2 = ramp %%%u, 1\nstore y[%%%u] = %%%u\n%%%u: f16x2 = cast %%%u\nstore %%4[%u] = %%%u\n", v,
                       at + 1, v + 1, id + 3, 8 * c, v + 2, v + 1, v + 2, v, v + 3, v, at, v + 3);
        }
    }
    buf_z(b, "%120: f16_a64x16 = fload %4[0] pitch 2\n%121: f16_b16x16 = fload e[0] pitch 16\n%122: f32_acc64x16 = fill f32(0)\n%123: f32_acc64x16 = fmma %120, %121, %122\n"
             "%124: f32_acc64x16 = fload %5[0] pitch 0 columns\n%125: f32_acc64x16 = mul %123, %124\nfstore z[0] = %125 pitch 16\nend\n");
}

static void test_own(void **state)
{
    struct arena a = {0};
    struct buf b = {0};
    struct err e = {0};
    float x[64 * 16], y[64 * 16], z[64 * 16];
    u16 unit[16 * 16];
    for (i64 i = 0; i < countof(x); i++) x[i] = (float)i;
    for (i64 i = 0; i < countof(unit); i++) elem_set_f64(DT_F16, unit, i, i / 16 == i % 16);
    own_kernel(&b);
    struct kir k = parse(&a, b.p);
    const struct kir_arg arg[] = {{x, countof(x)}, {unit, countof(unit)}, {y, countof(y)}, {z, countof(z)}};
    const struct kir_eval_opts o = {.max_steps = 1000000};
    if (!kir_eval(&k, arg, NULL, &o, &e)) fail_msg("%s", e.msg);
    for (i64 i = 0; i < countof(x); i++) assert_true(y[i] == x[i] && z[i] == x[i] * (float)(i / 16));
    buf_release(&b);
    arena_release(&a);
}

#define OWN_16 "group 32 1 1 subgroup 32\ngrid %1 = 1\n%2: f32_acc16x8 = fill f32(1)\nreg %3: f32[4]\n"

static void test_own_errors(void **state)
{
    find(OWN_16 "fstore %3[0] = %2 pitch 2\n%4: f32_acc16x8 = fload %3[0] pitch 2\nend\n", NULL);
    find(OWN_16 "fstore %3[0] = %2 pitch 3\nend\n", "write out of bounds");
    find(OWN_16 "fstore %3[-1] = %2 pitch 2\nend\n", "write out of bounds");
    find(OWN_16 "fstore %3[0] = %2 pitch 9223372036854775807\nend\n", "write out of bounds");
    find(OWN_16 "fstore %3[0] = %2 pitch 0\n%4: f32_acc16x8 = fload %3[0] pitch 2\nend\n", "read of undefined");
    find(OWN_16 "%4 = thread 0\nfstore %3[%4] = %2 pitch 2\nend\n", "disagree on an operand");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_builder),
        cmocka_unit_test(test_legal),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_verify),
        cmocka_unit_test(test_subgroups),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_races),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_vendor_gemm),
        cmocka_unit_test(test_fragment_arithmetic), cmocka_unit_test(test_fragment_factors),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_spread_rounds),
        cmocka_unit_test(test_multiple),
        cmocka_unit_test(test_verify_own), cmocka_unit_test(test_own), cmocka_unit_test(test_own_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
