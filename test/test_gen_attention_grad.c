// SPDX-License-Identifier: Apache-2.0
//
// Gradients of attention in one kernel: random instances (heads that share keys, masks, windows, softcaps, other functions of scores than a softmax, sizes that are not known,
// operands and results of other orders of axes) under random legal schedules agree with the reference evaluator, interpreted, compiled and in exact
// arithmetic, also in a promised order of sums, and with a head's rows divided among grid iterations; other graphs are refused.
#include "gen_instances.h"

static void open_gradients(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    b->only = gen_find(S("attention_grad"));
    b->type = seed % 7 == 3 ? DT_F16 : seed % 7 == 5 ? DT_BF16 : DT_F32;
}

static bool build_random(struct fixture *b, u64 seed)
{
    b->caps.deterministic = seed % 5 == 4;
    return random_attention_grad(b);
}

static void test_random(void **state) { try_instances(&(struct instances){open_gradients, build_random, 0, 150, .least = 200, .tries = 4}); }

static void test_compiled(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2012); seed < last_seed(2000, 2012); seed++) {
        struct fixture b;
        open_gradients(&b, seed);
        if (random_attention_grad(&b) && gen_matches(b.only, &b.t, &b.caps)) try_device(&b, "cpu", seed), n++;
        fixture_close(&b);
    }
    assert_true(is_enough(n, 4));
}

static bool build_exact(struct fixture *b, u64 seed)
{
    b->type = DT_F32;
    b->caps.deterministic = seed % 2;
    return random_attention_grad(b);
}

static void test_exact(void **state) { try_exactly(&(struct instances){open_gradients, build_exact, 0, 12, .least = 5}); }

/* Whether a task is of the family. */
static bool is_gradient(const char *text)
{
    struct arena a = {0};
    struct symtab st;
    struct task t;
    struct err e = {0};
    struct caps c = {.arch = "test", .vector_bytes = 64, .n_vector_regs = 32, .n_threads = 1, .l1_bytes = 32 << 10, .l2_bytes = 1 << 20};
    symtab_init(&st, &a);
    if (!task_parse(&t, &a, &st, str_of(text), &e)) fail_msg("%s", e.msg);
    bool yes = gen_matches(gen_find(S("attention_grad")), &t, &c);
    arena_release(&a);
    return yes;
}

#define T(to, from) "  %" to ": none[?] = Transpose(%" from ") {perm=[0,1,3,2]}\n"
#define HEAD "graph {\n  input %q: f32[2,4,30,16]\n  input %k: f32[2,4,30,16]\n  input %v: f32[2,4,30,8]\n  input %dy: f32[2,4,30,8]\n  input %m: f32[2,4,30,1]\n" \
             "  input %d: f32[2,4,30,1]\n" T("kt", "k") T("vt", "v") "  %s: none[?] = MatMul(%q, %kt)\n  %dp: none[?] = MatMul(%dy, %vt)\n"
#define PROBABILITIES "  %c: none[?] = Sub(%s, %m)\n  %p: none[?] = Exp(%c)\n  %e: none[?] = Sub(%dp, %d)\n  %dz: none[?] = Mul(%p, %e)\n"
#define QUERIES "  %dq: none[?] = MatMul(%dz, %k)\n"
#define KEYS T("dzt", "dz") "  %dk: none[?] = MatMul(%dzt, %q)\n"
#define VALUES T("pt", "p") "  %dv: none[?] = MatMul(%pt, %dy)\n"
#define ALL HEAD PROBABILITIES QUERIES KEYS VALUES
#define OUTPUTS "  output %dq\n  output %dk\n  output %dv\n"

static void test_refused(void **state)
{
    static const struct { const char *text; bool is_gradient; } what[] = {
        {ALL OUTPUTS "}\n", true},
        {ALL "  %a: none[?] = Abs(%dk)\n  output %dq\n  output %a\n  output %dv\n}\n", true},
        {ALL OUTPUTS "  output %p\n}\n", false},                                             /* probabilities are needed */
        {ALL "  output %dq\n  output %dv\n}\n", false},                                      /* dk is not */
        {ALL "  %a: none[?] = Add(%dq, %dk)\n  output %a\n  output %dk\n  output %dv\n}\n", false}, /* behind two products */
        {HEAD PROBABILITIES QUERIES KEYS VALUES "  %a: none[?] = quern::ReduceSum(%dz) {axes=[2], keepdims=1}\n" OUTPUTS "  output %a\n}\n", false},
        {HEAD PROBABILITIES QUERIES KEYS T("pt", "dz") "  %dv: none[?] = MatMul(%pt, %dy)\n" OUTPUTS "}\n", false},   /* both depend on slopes */
        {HEAD PROBABILITIES QUERIES "  %dk: none[?] = MatMul(%dz, %q)\n" VALUES OUTPUTS "}\n", false},               /* by rows, twice */
        {HEAD PROBABILITIES QUERIES T("dzt", "dz") "  %dk: none[?] = MatMul(%dzt, %k)\n" VALUES OUTPUTS "}\n", false}, /* with keys, not queries */
    };
    for (u32 i = 0; i < countof(what); i++)
        if (is_gradient(what[i].text) != what[i].is_gradient) fail_msg("task %u", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused), cmocka_unit_test(test_random), cmocka_unit_test(test_compiled), cmocka_unit_test(test_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
