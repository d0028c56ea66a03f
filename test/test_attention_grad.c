// SPDX-License-Identifier: Apache-2.0
//
// Gradients of attention (quern::AttentionForward, quern::AttentionGrad): in f64 they are the differences of a loss by every operand, mask and sink, for
// random options (heads that share keys, causal masks, windows, caches, lengths, softcaps, packed operands), with rows without positions, equal scores and large
// ones. In f32, forward pass and gradients as one program agree with the reference on each device; on processors their memory grows with the positions. Bad input is an error that shows both shapes.
#include "op/op.h"
#include "program_fixture.h"
#include "seeds.h"
#include "skip.h"
#include "vulkan_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_TRIES = 40, N_IN = 12, Q = 0, K, V, MASK, PAST_K, PAST_V, LENGTHS, SINK, Y, MOST, SUM, DY };
enum { N_GRADIENTS = 7 };
static const u32 input_of[N_GRADIENTS] = {Q, K, V, MASK, PAST_K, PAST_V, SINK};

/* Operands and attributes. */

struct instance {
    struct arena a;
    struct tensor *in[N_IN]; /* NULL: omitted */
    i64 hq, hk, left, right;
    bool causal, lower_right, packed;
    double scale, cap;
};

static struct tensor *numbers(struct instance *x, u32 rank, const i64 *dim, double size, struct rng *r)
{
    struct tensor *t = tensor_new(&x->a, DT_F64, rank, dim);
    for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(DT_F64, t->data, i, (rng_f64(r) * 2 - 1) * size);
    return t;
}

static struct tensor *random_mask(struct instance *x, u32 rank, const i64 *dim, struct rng *r)
{
    bool is_bool = rng_range(r, 0, 1);
    struct tensor *t = is_bool ? tensor_new(&x->a, DT_BOOL, rank, dim) : numbers(x, rank, dim, 2, r);
    for (i64 i = 0; i < tensor_count(t); i++) {
        if (is_bool) elem_set_i64(DT_BOOL, t->data, i, rng_range(r, 0, 2) > 0);
        else if (!rng_range(r, 0, 3)) elem_set_f64(DT_F64, t->data, i, -INFINITY);
    }
    return t;
}

static void random_instance(struct instance *x, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), hk = rng_range(r, 1, 2), hq = hk * rng_range(r, 1, 2), d = rng_range(r, 1, 4), dv = rng_range(r, 1, 3), sq = rng_range(r, 1, 4),
        sk = rng_range(r, 1, 4), past = rng_range(r, 0, 2) ? 0 : rng_range(r, 1, 2), st = past + sk, mask[] = {rng_range(r, 0, 1) ? 1 : hq, sq, st};
    *x = (struct instance){.hq = hq, .hk = hk, .left = rng_range(r, 0, 2) ? -1 : rng_range(r, 0, 2), .right = rng_range(r, 0, 2) ? -1 : rng_range(r, 0, 2)};
    x->causal = rng_range(r, 0, 1), x->lower_right = rng_range(r, 0, 1), x->packed = rng_range(r, 0, 1);
    x->scale = rng_range(r, 0, 1) ? 0 : 0.6, x->cap = rng_range(r, 0, 2) ? 0 : 1.5;
    double size = rng_range(r, 0, 3) ? 1 : rng_range(r, 0, 1) ? 0 : 30; /* 0: all scores of a row are equal; 30: one probability is 1 */
    const i64 q4[] = {b, hq, sq, d}, k4[] = {b, hk, sk, d}, v4[] = {b, hk, sk, dv}, q3[] = {b, sq, hq * d}, k3[] = {b, sk, hk * d}, v3[] = {b, sk, hk * dv},
              pk[] = {b, hk, past, d}, pv[] = {b, hk, past, dv};
    u32 rank = x->packed ? 3 : 4;
    x->in[Q] = numbers(x, rank, x->packed ? q3 : q4, size, r);
    x->in[K] = numbers(x, rank, x->packed ? k3 : k4, 1, r);
    x->in[V] = numbers(x, rank, x->packed ? v3 : v4, 1, r);
    if (past) x->in[PAST_K] = numbers(x, 4, pk, 1, r), x->in[PAST_V] = numbers(x, 4, pv, 1, r);
    if (rng_range(r, 0, 1)) x->in[MASK] = random_mask(x, 3, mask, r);
    if (!rng_range(r, 0, 2)) x->in[SINK] = numbers(x, 1, &hq, 2, r);
    if (past || rng_range(r, 0, 2)) return;
    x->in[LENGTHS] = tensor_new(&x->a, DT_I64, 1, &b);
    for (i64 i = 0; i < b; i++) elem_set_i64(DT_I64, x->in[LENGTHS]->data, i, rng_range(r, 0, sk));
}

static void set_attributes(const struct instance *x, struct graph *g, node_id n)
{
    if (x->packed) attr_set_int(g, n, "q_num_heads", x->hq), attr_set_int(g, n, "kv_num_heads", x->hk);
    if (x->causal) attr_set_int(g, n, "is_causal", 1);
    if (x->lower_right) attr_set_int(g, n, "lower_right", 1);
    if (x->left >= 0) attr_set_int(g, n, "left_window_size", x->left);
    if (x->right >= 0) attr_set_int(g, n, "right_window_size", x->right);
    if (x->scale > 0) attr_set_float(g, n, "scale", x->scale);
    if (x->cap > 0) attr_set_float(g, n, "softcap", x->cap);
}

/* Evaluates one operator on those of the first n inputs that there are. wanted: bits of outputs, 1 among them. */
static void evaluate(struct instance *x, const char *op, u32 n, u32 wanted, struct tensor **out)
{
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct tensor *given[N_IN], *results[N_GRADIENTS];
    value_id in[N_IN] = {0};
    u32 n_given = 0, n_results = 0;
    symtab_init(&st, &x->a);
    graph_init(&g, &x->a, &st);
    for (u32 i = 0; i < n; i++) {
        if (!x->in[i]) continue;
        random_input(&g, "x", x->in[i]->dtype, x->in[i]->rank, x->in[i]->dim, &in[i]);
        given[n_given++] = x->in[i];
    }
    value_id first = op_node(&g, 0, op, n, in, 0);
    node_id node = op_made(&g, first);
    *arr_push(&x->a, &g.output) = first;
    for (u32 k = 1; wanted >> k; k++) {
        if (!(wanted >> k & 1)) continue;
        value_id v = graph_add_value(&g, S("out"));
        node_set_out(&g, node, k, v);
        *arr_push(&x->a, &g.output) = v;
    }
    set_attributes(x, &g, node);
    if (!op_infer_all(&g, &e) || !graph_eval(&g, given, results, &x->a, NULL, &e)) fail_msg("%s", e.msg);
    for (u32 k = 0; wanted >> k; k++)
        if (wanted >> k & 1) out[k] = results[n_results++];
}

static double loss(struct instance *x)
{
    struct tensor *y = NULL;
    double sum = 0;
    evaluate(x, "quern::AttentionForward", SINK + 1, 1, &y);
    for (i64 i = 0; i < tensor_count(y); i++) sum += elem_f64(DT_F64, y->data, i) * elem_f64(DT_F64, x->in[DY]->data, i);
    return sum;
}

static void check_element(struct instance *x, u32 which, i64 i, double got)
{
    enum { STEP = 1 << 14 };
    struct tensor *t = x->in[input_of[which]];
    double was = elem_f64(DT_F64, t->data, i), d[2];
    if (isinf(was)) { /* of a mask */
        assert_true(got == 0);
        return;
    }
    for (u32 k = 0; k < 2; k++) {
        elem_set_f64(DT_F64, t->data, i, was + (k ? -1.0 : 1.0) / STEP);
        d[k] = loss(x);
    }
    elem_set_f64(DT_F64, t->data, i, was);
    double want = (d[0] - d[1]) * STEP / 2, most = fmax(fabs(want), 1);
    if (fabs(got - want) > 1e-5 * most) fail_msg("gradient %u, element %d: %.9g, by differences %.9g", which, (int)i, got, want);
}

static void check_differences(u64 seed)
{
    enum { STEPS_OF_EACH = 6 };
    struct rng r = rng_seed(seed);
    struct instance x;
    struct tensor *out[N_GRADIENTS] = {0};
    u32 wanted = 1;
    random_instance(&x, &r);
    evaluate(&x, "quern::AttentionForward", SINK + 1, 7, &x.in[Y]);
    if (rng_range(&r, 0, 1)) x.in[MOST] = x.in[SUM] = NULL; /* computed again */
    x.in[DY] = numbers(&x, x.in[Y]->rank, x.in[Y]->dim, 1, &r);
    for (u32 k = 0; k < N_GRADIENTS; k++)
        if (x.in[input_of[k]] && x.in[input_of[k]]->dtype == DT_F64 && rng_range(&r, 0, 3)) wanted |= 1u << k;
    evaluate(&x, "quern::AttentionGrad", N_IN, wanted, out);
    for (u32 k = 0; k < N_GRADIENTS; k++)
        for (i64 n = 0; out[k] && n < STEPS_OF_EACH; n++) {
            i64 i = rng_range(&r, 0, tensor_count(out[k]) - 1);
            check_element(&x, k, i, elem_f64(DT_F64, out[k]->data, i));
        }
    arena_release(&x.a);
}

static void test_differences(void **state)
{
    for (u64 seed = first_seed(0, N_TRIES); seed < last_seed(0, N_TRIES); seed++) check_differences(seed);
    check_differences(149); /* from the lower right, but neither causal nor masked */
}

/* On devices. */

#define INPUTS "  input %q: f32[2,4,19,8]\n  input %k: f32[2,2,37,8]\n  input %v: f32[2,2,37,6]\n  input %mask: f32[4,1,37]\n  input %dy: f32[2,4,19,6]\n"
#define OUTPUTS "  output %y\n  output %dq\n  output %dk\n  output %dv\n"

static const char *const programs[] = {
    "graph {\n" INPUTS "  %y: f32[], %m: f32[], %l: f32[] = quern::AttentionForward(%q, %k, %v, %mask) {is_causal=1}\n"
    "  %dq: f32[], %dk: f32[], %dv: f32[], %dm: f32[] = quern::AttentionGrad(%q, %k, %v, %mask, _, _, _, _, %y, %m, %l, %dy) {is_causal=1}\n"
    OUTPUTS "  output %dm\n}\n",
    "graph {\n" INPUTS "  %b: bool[] = Greater(%mask, %none)\n  const %none: f32[1] = [0.0]\n"
    "  %y: f32[] = quern::AttentionForward(%q, %k, %v, %b) {softcap=2.0, left_window_size=9, lower_right=1}\n"
    "  %dq: f32[], %dk: f32[], %dv: f32[] = quern::AttentionGrad(%q, %k, %v, %b, _, _, _, _, %y, _, _, %dy) {softcap=2.0, left_window_size=9, lower_right=1}\n"
    OUTPUTS "}\n",
};
enum { N_FIVE = 5 };

static void compare(quern_tensor *got, quern_tensor *want, int k)
{
    const float *x = quern_tensor_data(got), *y = quern_tensor_data(want);
    assert_int_equal(quern_tensor_count(got), quern_tensor_count(want));
    for (i64 i = 0; i < quern_tensor_count(got); i++)
        if (!(fabsf(x[i] - y[i]) <= 2e-4f * (1 + fabsf(y[i])))) fail_msg("output %d, element %lld: %.9g, expected %.9g", k, (long long)i, (double)x[i], (double)y[i]);
}

static void check_program(const char *text, int n_out, const char *device)
{
    static const i64 q[] = {2, 4, 19, 8}, k[] = {2, 2, 37, 8}, v[] = {2, 2, 37, 6}, y[] = {2, 4, 19, 6}, mask[] = {4, 1, 37};
    struct fixture b;
    struct rng r = rng_seed(5);
    quern_tensor *out[N_FIVE] = {0}, *want[N_FIVE] = {0};
    if (!fixture_open(&b, text, device)) skip_test("no device '%s'", device);
    quern_tensor *in[N_FIVE];
    in[0] = floats(&b, 4, q, &r), in[1] = floats(&b, 4, k, &r), in[2] = floats(&b, 4, v, &r), in[3] = floats(&b, 3, mask, &r), in[4] = floats(&b, 4, y, &r);
    float *m = quern_tensor_data(in[3]);
    for (i64 i = 0; i < 37; i++) m[i] = -INFINITY; /* a head without positions */
    must(&b, quern_run(b.p, in, N_FIVE, out, n_out));
    must(&b, quern_model_eval(b.m, in, N_FIVE, want, n_out));
    for (int i = 0; i < n_out; i++) compare(out[i], want[i], i);
    for (int i = 0; i < N_FIVE; i++) quern_tensor_free(in[i]), quern_tensor_free(out[i]), quern_tensor_free(want[i]);
    fixture_close(&b);
}

static void check_device(const char *device) { check_program(programs[0], 5, device), check_program(programs[1], 4, device); }
static void test_cpu(void **state) { check_device("cpu"); }
static void test_interpreter(void **state) { check_device("interp"); }
static void test_vulkan(void **state) { check_device("vulkan"); }

/* Memory on a processor: that of scores grows with the square of the positions, that of one kernel with their number. */

static i64 memory_of(i64 positions, const char *attributes)
{
    struct fixture b;
    struct rng r = rng_seed(3);
    struct arena a = {0};
    char s[24];
    quern_tensor *in[4], *out[4] = {0};
    const i64 all[] = {1, 2, positions, 64};
    snprintf(s, sizeof s, "%lld", (long long)positions);
    struct str text = str_fmt(&a, "graph {\n  input %%q: f32[1,2,%s,64]\n  input %%k: f32[1,2,%s,64]\n  input %%v: f32[1,2,%s,64]\n  input %%dy: f32[1,2,%s,64]\n"
                              "  %%y: f32[], %%m: f32[], %%l: f32[] = quern::AttentionForward(%%q, %%k, %%v) {%s}\n"
                              "  %%dq: f32[], %%dk: f32[], %%dv: f32[] = quern::AttentionGrad(%%q, %%k, %%v, _, _, _, _, _, %%y, %%m, %%l, %%dy) {%s}\n"
                              "  output %%y\n  output %%dq\n  output %%dk\n  output %%dv\n}\n", s, s, s, s, attributes, attributes);
    assert_true(fixture_open(&b, text.p, "cpu"));
    for (u32 i = 0; i < countof(in); i++) in[i] = floats(&b, 4, all, &r);
    must(&b, quern_run(b.p, in, countof(in), out, countof(out)));
    i64 bytes = quern_program_memory(b.p);
    for (u32 i = 0; i < countof(in); i++) quern_tensor_free(in[i]), quern_tensor_free(out[i]);
    fixture_close(&b);
    arena_release(&a);
    return bytes;
}

static void test_memory(void **state)
{
    static const char *const attributes[] = {"is_causal=1", "scale=0.1", "left_window_size=100, right_window_size=20, lower_right=1"};
    enum { POSITIONS = 512 };
    for (u32 i = 0; i < countof(attributes); i++) {
        i64 bytes = memory_of(POSITIONS, attributes[i]), more = memory_of(2 * POSITIONS, attributes[i]);
        print_message("%s: %lld, %lld bytes\n", attributes[i], (long long)bytes, (long long)more);
        assert_true(more <= 2 * bytes + bytes / 8);
        assert_true(more < 4 * 2 * (i64)(2 * POSITIONS) * (2 * POSITIONS)); /* of the scores of two heads */
    }
}

/* Errors. */

static void refuse(const char *inputs, const char *results, const char *call, const char *want)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct str text = str_fmt(&a, "graph {\n  input %%q: f32[2,4,3,8]\n  input %%k: f32[2,2,5,8]\n  input %%v: f32[2,2,5,6]\n%s  %s = quern::AttentionGrad \"bad\"(%s)\n"
                             "  output %%dq\n}\n", inputs, results, call);
    symtab_init(&st, &a);
    if (!graph_parse(&g, &a, &st, text, &e)) fail_msg("%s\n%s", e.msg, text.p);
    if (op_infer_all(&g, &e)) fail_msg("accepted instead of '%s':\n%s", want, text.p);
    if (!strstr(e.msg, want) || !strstr(e.msg, "'bad'")) fail_msg("'%s' instead of '%s'", e.msg, want);
    arena_release(&a);
}

#define GIVEN(y, rows, dy) "  input %y: f32[" y "]\n  input %m: f32[" rows "]\n  input %l: f32[" rows "]\n  input %dy: f32[" dy "]\n"
#define CALL "%q, %k, %v, _, _, _, _, _, %y, %m, %l, %dy"

static void test_errors(void **state)
{
    static const char right[] = GIVEN("2,4,3,6", "2,4,3", "2,4,3,6"), dq[] = "%dq: f32[]", dm[] = "%dq: f32[], _, _, %dm: f32[]";
    refuse(GIVEN("2,4,3,8", "2,4,3", "2,4,3,6"), dq, CALL, "Y (input 8) is [2,4,3,8], expected [2,4,3,6]: batch, heads of Q, queries, head size of V");
    refuse(GIVEN("2,4,3,6", "2,4,5", "2,4,3,6"), dq, CALL, "row_max (input 9) is [2,4,5], expected [2,4,3]: batch, heads of Q, queries");
    refuse(GIVEN("2,4,3,6", "2,4,3", "2,2,3,6"), dq, CALL, "the gradient of Y (input 11) is [2,2,3,6], expected [2,4,3,6]");
    refuse(right, dq, "%q, %k, %v, _, _, _, _, _, %y, %m, _, %dy", "row_max (input 9) and row_log_sum (input 10) belong together");
    refuse(right, dm, CALL, "the gradient of attn_mask (output 3) without attn_mask (input 3)");
    refuse(GIVEN("2,4,3,6", "2,4,3", "2,4,3,6") "  input %b: bool[3,5]\n", dm, "%q, %k, %v, %b, _, _, _, _, %y, %m, %l, %dy", "which is of type bool");
    refuse(right, dq, "%q, %k, %v, _, _, _, _, _, %y, %m, %l", "input 11");
    refuse(GIVEN("2,4,3,6", "2,4,3", "2,4,3,6") "  input %b: f32[4,5]\n", dq, "%q, %k, %v, %b, _, _, _, _, %y, %m, %l, %dy", "attn_mask (input 3) is [4,5], expected");
}

/* Queries whose nominal number is less than one (1,024 less 1,023 or more), and values that depend on sums of the scores' rows. */
static void test_few_rows(void **state)
{
    static const char text[] =
        "graph {\n  input %x: f32[1,2,s,8]\n  input %k: f32[1,2,16,8]\n  input %v: f32[1,2,16,8]\n  input %dy: f32[1,2,s-1023,8]\n"
        "  const %from: i64[1] = [1023]\n  const %to: i64[1] = [9223372036854775807]\n  const %axis: i64[1] = [2]\n  %q: f32[?] = Slice(%x, %from, %to, %axis)\n"
        "  %y: f32[?], %m: f32[?], %l: f32[?] = quern::AttentionForward(%q, %k, %v)\n"
        "  %dq: f32[?], %dk: f32[?], %dv: f32[?] = quern::AttentionGrad(%q, %k, %v, _, _, _, _, _, %y, %m, %l, %dy)\n"
        "  output %dq\n  output %dk\n  output %dv\n}\n";
    static const char around[] =
        "graph {\n  input %q: f32[1,2,16,8]\n  input %k: f32[1,2,8,16]\n  input %v: f32[1,2,16,8]\n  %s: f32[?] = MatMul(%q, %k)\n"
        "  %m: f32[?] = ReduceMax(%s) {axes=[3]}\n  %d: f32[?] = Sub(%s, %m)\n  %e: f32[?] = Exp(%d)\n  const %axis: i64[1] = [3]\n"
        "  %l: f32[?] = ReduceSum(%e, %axis)\n  %p: f32[?] = Div(%e, %l)\n  %w: f32[?] = Mul(%v, %l)\n  %y: f32[?] = MatMul(%p, %w)\n"
        "  output %y\n  output %w\n}\n";
    const char *const both[] = {text, around};
    for (u32 i = 0; i < countof(both); i++) {
        struct fixture b;
        assert_true(fixture_open(&b, both[i], "cpu"));
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences), cmocka_unit_test(test_cpu), cmocka_unit_test(test_interpreter),
                                       cmocka_unit_test(test_vulkan), cmocka_unit_test(test_memory), cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_few_rows)};
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
