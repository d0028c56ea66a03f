// SPDX-License-Identifier: Apache-2.0
//
// Chains of convolutions in one kernel: random ones under random legal schedules agree with the
// reference evaluator, interpreted and compiled; other graphs are refused, and families for single
// convolutions refuse chains.
#include "gen_kinds.h"

static void test_chains(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 250); seed < last_seed(0, 250); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_chain"));
        if (random_chain(&b)) n += try_task(&b, seed, 4);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 400));
}

static void test_compiled(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2012); seed < last_seed(2000, 2012); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.only = gen_find(S("conv_chain"));
        if (random_chain(&b) && gen_matches(b.only, &b.t, &b.caps)) try_device(&b, "cpu", seed), n++;
        fixture_close(&b);
    }
    assert_true(is_enough(n, 2));
}

/* The families that match a task. */
static u32 families(const char *text, const char *want, bool *has)
{
    struct arena a = {0};
    struct symtab st;
    struct task t;
    struct err e = {0};
    struct caps c = {.arch = "test", .vector_bytes = 64, .n_vector_regs = 32, .n_threads = 1, .l1_bytes = 32 << 10, .l2_bytes = 1 << 20};
    u32 n = 0;
    symtab_init(&st, &a);
    if (!task_parse(&t, &a, &st, str_of(text), &e)) fail_msg("%s", e.msg);
    *has = false;
    for (i64 i = 0; gen_at(i); i++) {
        if (!gen_matches(gen_at(i), &t, &c)) continue;
        n++;
        *has |= str_is(str_of(want), gen_at(i)->name);
    }
    arena_release(&a);
    return n;
}

#define HEAD                                                                                                                        \
    "graph {\n  input %x: f32[1,8,16,16]\n  input %z: f32[1,8,16,16]\n  const %v: f32[8,8,1,1]\n  const %w: f32[8,8,3,3]\n"         \
    "  const %s: f32[1,8,16,16]\n  %a: none[?] = Conv(%x, %v)\n"
#define CONV "  %y: none[?] = Conv(%b, %w) {pads=[1,1,1,1]}\n  output %y\n"

static void test_refused(void **state)
{
    static const struct { const char *text; bool is_chain; } what[] = {
        {HEAD "  %b: none[?] = Relu(%a)\n" CONV "}\n", true},
        {HEAD "  %b: none[?] = Relu(%a)\n" CONV "  output %b\n}\n", false},                   /* needed outside */
        {HEAD "  %b: none[?] = Add(%a, %z)\n" CONV "}\n", false},                             /* other values in between */
        {HEAD "  %b: none[?] = Mul(%a, %s)\n" CONV "}\n", false},                             /* a constant of each pixel */
        {HEAD "  %b: none[?] = MaxPool(%a) {kernel_shape=[2,2], strides=[2,2]}\n" CONV "}\n", false},
        {HEAD "  %b: none[?] = Relu(%a)\n  %c: none[?] = Conv(%b, %w) {pads=[1,1,1,1]}\n"
              "  %y: none[?] = Add(%c, %b)\n  output %y\n}\n", false},                        /* used twice */
    };
    for (u32 i = 0; i < countof(what); i++) {
        bool has;
        u32 n = families(what[i].text, "conv_chain", &has);
        if (has != what[i].is_chain || n != what[i].is_chain) fail_msg("task %u: %u families", i, n);
    }
    bool has;
    families("graph {\n  input %x: f32[1,8,16,16]\n  const %v: f32[8,8,1,1]\n  %y: none[?] = Conv(%x, %v)\n  output %y\n}\n",
             "conv_chain", &has);
    assert_false(has);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
