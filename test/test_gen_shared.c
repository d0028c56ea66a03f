// SPDX-License-Identifier: Apache-2.0
//
// Tasks with chains of nodes that read the one before twice: behind a matmul, between a convolution and a pooling, on scores, and on numbers of rows. There are
// 2^48 paths through one: families find out what is behind what, take the task, and emit kernels in a time that grows with the nodes.
#include "gen_tasks.h"

enum { LENGTH = 48 };

static void add_line(struct buf *b, const char *text) { buf_printf(b, "  %s\n", text); }

/* %x0 to %x48; %x0 is there. */
static void add_chain(struct buf *b, const char *op)
{
    for (int i = 1; i <= LENGTH; i++) buf_printf(b, "  %%x%d: none[?] = %s(%%x%d, %%x%d)\n", i, op, i - 1, i - 1);
}

static void add_matmul(struct buf *b)
{
    add_line(b, "input %a: f32[64,32]"), add_line(b, "input %b: f32[32,48]");
    add_line(b, "%x0: none[?] = MatMul(%a, %b)");
    add_chain(b, "Add");
    add_line(b, "output %x48");
}

static void add_pooled(struct buf *b)
{
    add_line(b, "input %a: f32[1,8,16,16]"), add_line(b, "const %b: f32[16,8,3,3]");
    add_line(b, "%x0: none[?] = Conv(%a, %b) {pads=[1,1,1,1]}");
    add_chain(b, "Add");
    add_line(b, "%y: none[?] = MaxPool(%x48) {kernel_shape=[2,2], strides=[2,2]}");
    add_line(b, "output %y");
}

/* is_of_scores: of scores that a mask excludes some of; else of numbers that probabilities are multiplied by. */
static void add_attention(struct buf *b, bool is_of_scores)
{
    add_line(b, "input %q: f32[1,2,64,32]"), add_line(b, "input %k: f32[1,2,32,512]"), add_line(b, "input %v: f32[1,2,512,32]");
    add_line(b, "input %mask: bool[1,1,64,512]"), add_line(b, "const %none: f32[] = [-inf]");
    if (!is_of_scores) add_line(b, "input %x0: f32[1,2,64,1]");
    add_line(b, is_of_scores ? "%x0: none[?] = MatMul(%q, %k)" : "%s0: none[?] = MatMul(%q, %k)");
    add_chain(b, "Mul");
    add_line(b, is_of_scores ? "%s: none[?] = Where(%mask, %x48, %none)" : "%s: none[?] = Where(%mask, %s0, %none)");
    add_line(b, "%m: none[?] = quern::ReduceMax(%s) {axes=[3], keepdims=1}"), add_line(b, "%d: none[?] = Sub(%s, %m)"), add_line(b, "%e: none[?] = Exp(%d)");
    add_line(b, "%l: none[?] = quern::ReduceSum(%e) {axes=[3], keepdims=1}"), add_line(b, "%p: none[?] = Div(%e, %l)");
    if (!is_of_scores) add_line(b, "%w: none[?] = Mul(%x48, %p)");
    add_line(b, is_of_scores ? "%y: none[?] = MatMul(%p, %v)" : "%y: none[?] = MatMul(%w, %v)");
    add_line(b, "output %y");
}

static void add_scores(struct buf *b) { add_attention(b, true); }
static void add_rows(struct buf *b) { add_attention(b, false); }

/* family: what the name of the one begins with that takes the task on processors. */
static void try_chain(void (*add)(struct buf *b), const char *family)
{
    for (u64 is_gpu = 0; is_gpu < 2; is_gpu++) {
        struct fixture b;
        struct candidate c;
        struct kernel k;
        struct buf text = {0};
        fixture_open(&b, 1);
        if (is_gpu) assert_true(dev_target(&b.caps, "cuda", S("sm_80")));
        buf_printf(&text, "graph {\n");
        add(&text);
        buf_printf(&text, "}\n");
        if (!task_parse(&b.t, &b.arena, &b.sym, buf_view(&text), &b.e)) fail_msg("%s\n%s", b.e.msg, text.p);
        if (!gen_default(&b.t, &b.caps, b.var, &c) || !gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) report(&b, NULL, is_gpu);
        if (!is_gpu) assert_true(str_starts(str_of(c.gen->name), str_of(family)));
        buf_release(&text);
        fixture_close(&b);
    }
}

static void test_matmul(void **state) { try_chain(add_matmul, "gemm"); }
static void test_pooled(void **state) { try_chain(add_pooled, "conv"); }
static void test_scores(void **state) { try_chain(add_scores, "attention"); }
static void test_rows(void **state) { try_chain(add_rows, "attention"); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matmul), cmocka_unit_test(test_pooled), cmocka_unit_test(test_scores), cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
