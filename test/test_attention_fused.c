// SPDX-License-Identifier: Apache-2.0
//
// The operators for attention of ai.onnx and com.microsoft, with each of their options, in f32 and f16, for prompts and for single tokens, are offered as one kernel of
// the family attention, and on GPUs of wg_attention, with matrix units of mma_attention and wgmma_attention: the cover has a task of both products for them, which has a legal
// schedule by blocks of keys. The same pairs of products are found in the network itself (task_attentions). So are gradients, of the family attention_grad.
// On processors the kernels of split attentions, and those with sums of the probabilities' columns, are one kernel each, too.
#include "dev/dev.h"
#include "gen/gen.h"
#include "lab/lab.h"
#include "pass/pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct net {
    struct arena a;
    struct symtab st;
    struct graph g;
    struct err e;
};

/* @: element type of floats; =>: outputs present_key and present_value, too; AttentionForward: its statistics, too */
static void net_open(struct net *t, const char *inputs, const char *call, const char *attributes, const char *type)
{
    *t = (struct net){0};
    struct buf b = {0};
    buf_z(&b, "graph {\n");
    for (const char *p = inputs; *p; p++) {
        if (*p == '@') buf_z(&b, type);
        else buf_char(&b, *p);
    }
    const char *args = strchr(call, '(');
    bool is_gradient = strstr(call, "Grad");
    buf_printf(&b, "  %%%s: %s[]", is_gradient ? "dq" : "y", type);
    if (is_gradient) buf_printf(&b, ", %%dk: %s[], %%dv: %s[]", type, type);
    if (strstr(call, "Forward")) buf_z(&b, ", %row_max: f32[], %row_log_sum: f32[]");
    if (strstr(call, "=>")) buf_printf(&b, ", %%k1: %s[], %%v1: %s[]", type, type);
    buf_printf(&b, " = %.*s \"node\"%.*s%s%s%s\n  output %s\n", (int)(args - call), call, (int)(strchr(args, ')') + 1 - args), args, *attributes ? " {" : "", attributes,
               *attributes ? "}" : "", is_gradient ? "%dq\n  output %dk\n  output %dv" : "%y");
    if (strstr(call, "=>")) buf_z(&b, "  output %k1\n  output %v1\n");
    if (strstr(call, "Forward")) buf_z(&b, "  output %row_max\n  output %row_log_sum\n");
    buf_z(&b, "}\n");
    symtab_init(&t->st, &t->a);
    bool ok = graph_parse(&t->g, &t->a, &t->st, str_dup(&t->a, buf_view(&b)), &t->e) && op_infer_all(&t->g, &t->e);
    if (!ok) fail_msg("%s\n%.*s", t->e.msg, STR_ARG(buf_view(&b)));
    buf_release(&b);
}

/* Four blocks of keys; of all other parameters the first value. mb: rows at a time, 0 all. */
static bool is_legal(const struct task *t, const struct caps *caps, const char *family, i32 mb)
{
    struct candidate c = {.gen = gen_find(str_of(family))};
    for (u32 i = 0; i < c.gen->n_param; i++) {
        const struct gen_param *p = &c.gen->param[i];
        c.sched.v[i] = !strcmp(p->name, "mb") ? mb : !strcmp(p->name, "nb") ? 4 : (i32)p->values[0];
    }
    return gen_matches(c.gen, t, caps) && gen_legal(&c, t, caps);
}

static bool has_schedule_by_blocks(const struct task *t, const struct caps *caps, const char *family) { return is_legal(t, caps, family, 0) || is_legal(t, caps, family, 1); }

static void check(const char *inputs, const char *call, const char *attributes, const char *type)
{
    const char *family = strstr(call, "Grad") ? "attention_grad" : "attention";
    bool is_gradient = strstr(call, "Grad"); /* fused on processors */
    struct net t;
    struct cover c;
    struct attention_pairs pairs;
    const struct caps caps = {.arch = "test", .vector_bytes = 32, .n_vector_regs = 32, .n_threads = 1, .l1_bytes = 32 << 10, .l2_bytes = 1 << 20};
    struct caps gpu = {0}, hopper = {0};
    u32 n = 0, n_gpu = 0, n_units = 0, n_warpgroups = 0;
    assert_true(dev_target(&gpu, "cuda", S("sm_80")) && dev_target(&hopper, "cuda", S("sm_90a")));
    net_open(&t, inputs, call, attributes, type);
    if (!pass_run_all(&t.g, NULL, &t.e) || !cover_build(&c, &t.g, &t.a, NULL, &t.e)) fail_msg("%s: %s", call, t.e.msg);
    for (u32 i = 0; i < c.task.n; i++) {
        n += has_schedule_by_blocks(c.task.v[i], &caps, family);
        n_gpu += gen_matches(gen_find(S("wg_attention")), c.task.v[i], &gpu);
        n_units += gen_matches(gen_find(S("mma_attention")), c.task.v[i], &gpu);
        n_warpgroups += gen_matches(gen_find(S("wgmma_attention")), c.task.v[i], &hopper);
    }
    if (!n_gpu && !is_gradient) fail_msg("not fused on GPUs: %s {%s} of %s", call, attributes, type);
    if (!n_units && !is_gradient && strcmp(type, "f32")) fail_msg("not fused by matrix units: %s {%s} of %s", call, attributes, type);
    if (n_warpgroups != (strcmp(type, "f32") ? n_units : 0)) fail_msg("by warpgroups %u, by matrix units %u: %s {%s} of %s", n_warpgroups, n_units, call, attributes, type);
    if (!n) fail_msg("not fused: %s {%s} of %s", call, attributes, type);
    task_attentions(&pairs, &t.g, &t.a);
    if (pairs.n != 1 && !strstr(call, "Grad")) fail_msg("%d pairs of products: %s {%s}", (int)pairs.n, call, attributes);
    arena_release(&t.a);
}

#define IN(name, dims) "  input %" name ": @[" dims "]\n"
#define INTS(name, dims) "  input %" name ": i32[" dims "]\n"
#define QKV(q, k, v) IN("q", q) IN("k", k) IN("v", v)
#define MHA "com.microsoft::MultiHeadAttention"
#define GQA "com.microsoft::GroupQueryAttention"
#define TABLES "  input %c: @[512,16]\n  input %s: @[512,16]\n"

struct use { const char *inputs, *call, *attributes; };

static void check_all(const struct use *x, u32 n)
{
    for (u32 i = 0; i < n; i++) check(x[i].inputs, x[i].call, x[i].attributes, "f32"), check(x[i].inputs, x[i].call, x[i].attributes, "f16");
}

static void test_attention(void **state)
{
    static const struct use uses[] = {
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32"), "Attention(%q, %k, %v)", ""},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,16"), "Attention(%q, %k, %v)", "is_causal=1"},
        {QKV("2,100,128", "2,300,64", "2,300,64"), "Attention(%q, %k, %v)", "q_num_heads=4, kv_num_heads=2, softcap=30.0, scale=0.1"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32"), "Attention(%q, %k, %v)", "left_window_size=40, right_window_size=7"},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32"), "Attention(%q, %k, %v)", "is_causal=1, left_window_size=40"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") IN("m", "100,300"), "Attention(%q, %k, %v, %m)", ""},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") IN("m", "2,4,100,300"), "Attention(%q, %k, %v, %m)", "is_causal=1"},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") IN("m", "4,1,300"), "Attention(%q, %k, %v, %m)", "is_causal=1"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") "  input %m: bool[2,1,1,300]\n", "Attention(%q, %k, %v, %m)", ""},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") IN("m", "1,200"), "Attention(%q, %k, %v, %m)", ""}, /* shorter than the keys */
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") INTS("n", "2"), "Attention(%q, %k, %v, _, _, _, %n)", ""},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") INTS("n", "2"), "Attention(%q, %k, %v, _, _, _, %n)", "is_causal=1"},
        {QKV("2,4,3,32", "2,2,3,32", "2,2,3,32") IN("pk", "2,2,300,32") IN("pv", "2,2,300,32"), "Attention(%q, %k, %v, _, %pk, %pv) =>", "is_causal=1"},
        {QKV("2,1,128", "2,1,64", "2,1,64") IN("pk", "2,2,300,32") IN("pv", "2,2,300,32"), "Attention(%q, %k, %v, _, %pk, %pv) =>", "is_causal=1, q_num_heads=4, kv_num_heads=2"},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") IN("s", "4"), "quern::Attention(%q, %k, %v, _, _, _, _, %s)", "is_causal=1"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32"), "Attention(%q, %k, %v)", "softmax_precision=1"},
        {QKV("2,4,100,32", "2,4,100,32", "2,4,100,32"), "quern::AttentionForward(%q, %k, %v)", ""}, /* with statistics of rows */
        {QKV("2,100,128", "2,300,64", "2,300,64") IN("m", "100,300"), "quern::AttentionForward(%q, %k, %v, %m)", "q_num_heads=4, kv_num_heads=2, softcap=30.0, is_causal=1"},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") IN("s", "4"), "quern::AttentionForward(%q, %k, %v, _, _, _, _, %s)", "left_window_size=9, right_window_size=2"},
    };
    check_all(uses, countof(uses));
}

#define ROWS(y, rows) IN("y", y) "  input %m: f32[" rows "]\n  input %l: f32[" rows "]\n" IN("dy", y)
#define GRAD(mask, rest) "quern::AttentionGrad(%q, %k, %v, " mask ", _, _, " rest ", %y, %m, %l, %dy)"

static void test_gradients(void **state)
{
    static const struct use uses[] = {
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") ROWS("2,4,100,32", "2,4,100"), GRAD("_", "_, _"), ""},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,16") ROWS("2,4,100,16", "2,4,100"), GRAD("_", "_, _"), "is_causal=1, lower_right=1"},
        {QKV("2,100,128", "2,300,64", "2,300,64") ROWS("2,100,128", "2,4,100"), GRAD("_", "_, _"), "q_num_heads=4, kv_num_heads=2, softcap=30.0, scale=0.1"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") ROWS("2,4,100,32", "2,4,100"), GRAD("_", "_, _"), "left_window_size=40, right_window_size=7"},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") IN("b", "2,4,100,300") ROWS("2,4,100,32", "2,4,100"), GRAD("%b", "_, _"), "is_causal=1"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") "  input %b: bool[2,1,1,300]\n" ROWS("2,4,100,32", "2,4,100"), GRAD("%b", "_, _"), ""},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") IN("b", "1,200") ROWS("2,4,100,32", "2,4,100"), GRAD("%b", "_, _"), ""}, /* shorter than the keys */
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") INTS("n", "2") ROWS("2,4,100,32", "2,4,100"), GRAD("_", "%n, _"), "is_causal=1"},
        {QKV("2,4,100,32", "2,2,300,32", "2,2,300,32") IN("s", "4") ROWS("2,4,100,32", "2,4,100"), GRAD("_", "_, %s"), "is_causal=1"},
        {QKV("2,4,100,32", "2,4,300,32", "2,4,300,32") ROWS("2,4,100,32", "2,4,100"), GRAD("_", "_, _"), "softmax_precision=1"},
    };
    check_all(uses, countof(uses));
}

static void test_multi_head(void **state)
{
    static const struct use uses[] = {
        {QKV("2,100,128", "2,300,128", "2,300,128"), MHA "(%q, %k, %v)", "num_heads=4"},
        {QKV("2,300,128", "2,300,128", "2,300,128") IN("b", "384"), MHA "(%q, %k, %v, %b)", "num_heads=4, unidirectional=1"},
        {QKV("2,100,128", "2,300,128", "2,300,128") IN("b", "384"), MHA "(%q, %k, %v, %b)", "num_heads=4, scale=0.1"},
        {QKV("2,100,128", "2,4,300,32", "2,4,300,32"), MHA "(%q, %k, %v)", "num_heads=4"},
        {IN("q", "2,100,128") IN("k", "2,300,4,2,32"), MHA "(%q, %k)", "num_heads=4"},
        {IN("q", "2,300,4,3,32"), MHA "(%q)", "num_heads=4"},
        {QKV("2,100,128", "2,300,128", "2,300,128") INTS("m", "2"), MHA "(%q, %k, %v, _, %m)", "num_heads=4"},
        {QKV("2,100,128", "2,300,128", "2,300,128") INTS("m", "2,300"), MHA "(%q, %k, %v, _, %m)", "num_heads=4"},
        {QKV("2,100,128", "2,300,128", "2,300,128") INTS("m", "2,100,300") IN("s", "1,4,100,300"), MHA "(%q, %k, %v, _, %m, %s)", "num_heads=4"},
        {QKV("2,3,128", "2,3,128", "2,3,128") IN("pk", "2,4,300,32") IN("pv", "2,4,300,32") INTS("m", "2,303"), MHA "(%q, %k, %v, _, %m, _, %pk, %pv) =>", "num_heads=4"},
        {QKV("2,1,128", "2,1,128", "2,1,128") IN("pk", "2,4,300,32") IN("pv", "2,4,300,32"), MHA "(%q, %k, %v, _, _, _, %pk, %pv) =>", "num_heads=4"},
        {IN("x", "2,300,64") IN("w", "64,384") IN("b", "384"), "com.microsoft::Attention(%x, %w, %b)", "num_heads=4, unidirectional=1"},
        {IN("x", "2,300,64") IN("w", "64,384") IN("b", "384") INTS("m", "4"), "com.microsoft::Attention(%x, %w, %b, %m)", "num_heads=4"},
    };
    check_all(uses, countof(uses));
}

static void test_group_query(void **state)
{
    static const char prompt[] = QKV("2,300,128", "2,300,64", "2,300,64") INTS("n", "2") TABLES, step[] = QKV("2,1,128", "2,1,64", "2,1,64") IN("pk", "2,2,300,32") IN("pv", "2,2,300,32") INTS("n", "2") TABLES "  const %t: i32[1] = [301]\n",
                      one[] = QKV("1,3,128", "1,3,64", "1,3,64") IN("pk", "1,2,300,32") IN("pv", "1,2,300,32") INTS("n", "1") TABLES "  const %t: i32[1] = [303]\n",
                      shared[] = QKV("2,1,128", "2,1,64", "2,1,64") IN("pk", "2,2,300,32") IN("pv", "2,2,300,32") INTS("n", "2") TABLES "  const %t: i32[1] = [290]\n";
    static const struct use uses[] = {
        {prompt, GQA "(%q, %k, %v, _, _, %n) =>", "num_heads=4, kv_num_heads=2"},
        {prompt, GQA "(%q, %k, %v, _, _, %n, _, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1"},
        {prompt, GQA "(%q, %k, %v, _, _, %n, _, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1, local_window_size=50, softcap=20.0"},
        {prompt, GQA "(%q, %k, %v, _, _, %n) =>", "num_heads=4, kv_num_heads=2, smooth_softmax=1"},
        {prompt, GQA "(%q, %k, %v, _, _, %n)", "num_heads=4, kv_num_heads=2"},
        {IN("q", "2,300,256") INTS("n", "2") TABLES, GQA "(%q, _, _, _, _, %n, _, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1, rotary_interleaved=1"},
        {step, GQA "(%q, %k, %v, %pk, %pv, %n, %t) =>", "num_heads=4, kv_num_heads=2"},
        {step, GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1, local_window_size=50"},
        {step, GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1, smooth_softmax=1, softcap=20.0"},
        {one, GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1"},
        {one, GQA "(%q, %k, %v, %pk, %pv, %n, %t) =>", "num_heads=4, kv_num_heads=2, local_window_size=50"},
        {shared, GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s) =>", "num_heads=4, kv_num_heads=2, do_rotary=1"},
    };
    check_all(uses, countof(uses));
}

/* Of a kind that kernel names state: some task has all of its results, and a schedule by blocks of keys. */
static void check_kind(enum lab_kind kind, enum dtype type)
{
    struct net t = {0};
    struct cover c;
    const struct lab_config config = {.kind = kind, .b = 2, .h = 3, .s = 300, .d = 32};
    const struct caps caps = {.arch = "test", .vector_bytes = 32, .n_vector_regs = 32, .n_threads = 1, .l1_bytes = 32 << 10, .l2_bytes = 1 << 20};
    u32 n = 0;
    symtab_init(&t.st, &t.a);
    graph_init(&t.g, &t.a, &t.st);
    lab_attention_graph(&t.g, &config, type);
    const u32 n_results = t.g.output.n;
    if (!op_infer_all(&t.g, &t.e) || !pass_run_all(&t.g, NULL, &t.e) || !cover_build(&c, &t.g, &t.a, NULL, &t.e)) fail_msg("%s: %s", lab_kind(kind)->op, t.e.msg);
    for (u32 i = 0; i < c.task.n; i++) n += c.task.v[i]->g.output.n == n_results && has_schedule_by_blocks(c.task.v[i], &caps, "attention");
    if (!n) fail_msg("%s of %s is not one kernel", lab_kind(kind)->op, dtype_name(type));
    arena_release(&t.a);
}

static void test_kinds(void **state)
{
    for (enum lab_kind k = LAB_ATTENTION; k < N_LAB_KINDS; k++) check_kind(k, DT_F32), check_kind(k, DT_F16), check_kind(k, DT_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attention), cmocka_unit_test(test_gradients), cmocka_unit_test(test_multi_head), cmocka_unit_test(test_group_query), cmocka_unit_test(test_kinds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
