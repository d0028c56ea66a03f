// SPDX-License-Identifier: Apache-2.0
//
// Chains of convolutions in one kernel: random ones under random legal schedules give what the reference evaluator gives, in the
// interpreter and compiled; what is no chain is refused, and families for single convolutions refuse chains.
#include "gen_tasks.h"

enum { DENSE = 1 }; /* groups of a convolution that is not depthwise */

struct layer { i64 oc, kernel, stride, pad, dil; bool depthwise; };

static value_id add_conv(struct bed *b, value_id x, const struct layer *l)
{
    if (graph_value(&b->g, x)->producer && !infer_last(b, x)) return 0;
    i64 ic;
    sym_is_const(&b->sym, graph_value(&b->g, x)->shape.dim[1], &ic);
    i64 oc = l->depthwise ? ic : l->oc, groups = l->depthwise ? ic : DENSE;
    i64 w[4] = {oc, ic / groups, l->kernel, l->kernel}, pads[4], two[2] = {l->stride, l->stride}, dil[2] = {l->dil, l->dil};
    for (u32 i = 0; i < 4; i++) pads[i] = l->pad ? pick(b, 0, l->pad) : 0;
    value_id y = add_op(b, "Conv", x, add_const(b, "w", 4, w), pick(b, 0, 1) ? add_const(b, "b", 1, w) : 0);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, n, "group", groups);
    attr_set_ints(&b->g, n, "strides", two, 2);
    attr_set_ints(&b->g, n, "dilations", dil, 2);
    attr_set_ints(&b->g, n, "pads", pads, 4);
    return y;
}

/* What may stand between two convolutions. */
static value_id random_middle(struct bed *b, value_id y)
{
    i64 c;
    if (!infer_last(b, y)) return y;
    sym_is_const(&b->sym, graph_value(&b->g, y)->shape.dim[1], &c);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    if (pick(b, 0, 3) == 0) y = add_op(b, "Mul", y, add_const(b, "scale", 4, (i64[]){1, c, 1, 1}), 0);
    if (pick(b, 0, 3) == 0) y = add_op(b, "Mul", y, add_op(b, "Sigmoid", y, 0, 0), 0);
    return y;
}

static struct layer random_layer(struct bed *b, bool depthwise, bool first)
{
    static const i64 channels[] = {1, 3, 5, 8, 16, 17, 33, 40};
    bool point = !depthwise && pick(b, 0, 1);
    struct layer l = {.oc = channels[pick(b, 0, countof(channels) - 1)], .kernel = point ? 1 : pick(b, 2, 3), .dil = 1, .depthwise = depthwise};
    l.pad = point ? 0 : pick(b, 0, 2);
    l.stride = point && first ? 1 : pick(b, 1, 2);
    if (pick(b, 0, 5) == 0) l.dil = 2;
    return l;
}

/* dense -> dense, depthwise -> dense, dense -> depthwise, dense -> depthwise -> dense */
static bool random_chain(struct bed *b)
{
    static const struct { u32 n; i32 dw; } kind[] = {{2, -1}, {2, 0}, {2, 1}, {3, 1}};
    i64 which = pick(b, 0, countof(kind) - 1), symbolic = pick(b, 0, 1);
    sym dim[MAX_RANK] = {size_of(b, pick(b, 1, 2), false), sym_const(&b->sym, pick(b, 2, 40)), size_of(b, pick(b, 7, 20), symbolic),
                  size_of(b, pick(b, 7, 30), symbolic)};
    value_id x = add_input(b, "x", 4, dim);
    x = pick(b, 0, 2) == 0 ? random_prologue(b, x, 4, dim) : x;
    for (u32 i = 0; i < kind[which].n; i++) {
        struct layer l = random_layer(b, (i32)i == kind[which].dw, i == 0);
        x = add_conv(b, x, &l);
        if (!x) return false;
        if (i + 1 < kind[which].n) x = random_middle(b, x);
    }
    x = random_epilogue(b, x);
    *arr_push(&b->arena, &b->g.output) = x;
    return make_task(b);
}

static void test_chains(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 250); seed < last_seed(0, 250); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = gen_find(S("conv_chain"));
        if (random_chain(&b)) n += try_task(&b, seed, 4);
        bed_close(&b);
    }
    assert_true(is_enough(n, 400));
}

static void test_compiled(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2012); seed < last_seed(2000, 2012); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = gen_find(S("conv_chain"));
        if (random_chain(&b) && gen_matches(b.only, &b.t, &b.caps)) try_device(&b, "cpu", seed), n++;
        bed_close(&b);
    }
    assert_true(is_enough(n, 2));
}

/* Which families take a task? */
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
