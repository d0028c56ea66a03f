// SPDX-License-Identifier: Apache-2.0
//
// States of decoders as exporters write them: GroupQueryAttention, which appends at positions that it computes of an attention mask, with
// caches in place, against the reference evaluator of the network itself; masks that leave a position out are refused; caches whose names tell nothing.
#include "program_fixture.h"

#include <math.h>
#include <stdio.h>

enum { V = 11, D = 8, HEADS = 2, HEAD = D / HEADS, N = 12, POSITIONS = 16 };

static void put_const(struct buf *b, const char *name, i64 rows, i64 columns, struct rng *r)
{
    buf_printf(b, "  const %%%s: f32[%lld,%lld] = [", name, (long long)rows, (long long)columns);
    for (i64 i = 0; i < rows * columns; i++) buf_printf(b, "%s%g", i ? "," : "", (double)rng_range(r, -64, 64) / 64);
    buf_z(b, "]\n");
}

/* As onnxruntime-genai's model builder: the size of a head is symbolic in the caches' shapes. */
static void put_decoder(struct buf *b, const char *key, const char *value, const char *attributes)
{
    struct rng r = rng_seed(5);
    buf_z(b, "graph {\n  input %input_ids: i64[B,S]\n  input %attention_mask: i64[B,T]\n");
    buf_z(b, "  input %\"past_key_values.0.key\": f32[B,1,P,K]\n  input %\"past_key_values.0.value\": f32[B,1,P,K]\n");
    put_const(b, "e", V, D, &r), put_const(b, "wq", D, D, &r), put_const(b, "wk", D, HEAD, &r), put_const(b, "wv", D, HEAD, &r), put_const(b, "wo", D, V, &r);
    put_const(b, "cos", POSITIONS, HEAD / 2, &r), put_const(b, "sin", POSITIONS, HEAD / 2, &r);
    buf_z(b, "  const %axis: i64[1] = [1]\n  const %one: i64[] = [1]\n"
             "  %sum: i64[?] = ReduceSum(%attention_mask, %axis) {keepdims=0}\n  %less: i64[?] = Sub(%sum, %axis)\n  %last: i32[?] = Cast(%less) {to=6}\n"
             "  %shape: i64[?] = Shape(%attention_mask)\n  %length: i64[?] = Gather(%shape, %one) {axis=0}\n  %total: i32[?] = Cast(%length) {to=6}\n"
             "  %x: f32[?] = Gather(%e, %input_ids)\n  %q: f32[?] = MatMul(%x, %wq)\n  %k: f32[?] = MatMul(%x, %wk)\n  %v: f32[?] = MatMul(%x, %wv)\n");
    buf_printf(b, "  %%o: f32[?], %%\"%s\": f32[?], %%\"%s\": f32[?] = com.microsoft::GroupQueryAttention(%%q, %%k, %%v, %%\"past_key_values.0.key\", "
               "%%\"past_key_values.0.value\", %%last, %%total, %%cos, %%sin) {num_heads=%d, kv_num_heads=1, do_rotary=1%s}\n", key, value, HEADS, attributes);
    buf_printf(b, "  %%logits: f32[?] = MatMul(%%o, %%wo)\n  output %%logits\n  output %%\"%s\"\n  output %%\"%s\"\n}\n", key, value);
}

static void open_decoder(struct fixture *f, const char *device, const char *state, const char *key, const char *value, const char *attributes)
{
    struct buf b = {0};
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_model_opts m = QUERN_OPTS(quern_model_opts);
    *f = (struct fixture){.q = quern_open(NULL)};
    put_decoder(&b, key, value, attributes);
    o.device = device, m.state = state;
    must(f, quern_model_read(f->q, b.p, (size_t)b.n, "decoder", &m, &f->m));
    buf_release(&b);
    must(f, quern_compile(f->m, NULL, &o, &f->p));
}

/* Ids and mask for n tokens of each sequence behind `past` ones; position `hole` of the last one is masked (-1: none). */
static void make_inputs(const struct fixture *f, i64 batch, i64 past, i64 n, i64 hole, const int64_t *token, quern_tensor **in)
{
    must(f, quern_tensor_new(f->q, QUERN_I64, 2, (int64_t[]){batch, n}, NULL, &in[0]));
    must(f, quern_tensor_new(f->q, QUERN_I64, 2, (int64_t[]){batch, past + n}, NULL, &in[1]));
    int64_t *ids = quern_tensor_data(in[0]), *mask = quern_tensor_data(in[1]);
    for (i64 i = 0; i < batch * n; i++) ids[i] = token[i / n * N + past + i % n];
    for (i64 i = 0; i < batch * (past + n); i++) mask[i] = hole < 0 || i != (batch - 1) * (past + n) + hole;
}

static void free_all(quern_tensor **t)
{
    for (int k = 0; k < 4; k++) quern_tensor_free(t[k]), t[k] = NULL;
}

static void assert_near(const float *got, const float *want, i64 n)
{
    for (i64 i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])))) fail_msg("element %d is %g, expected %g", (int)i, got[i], want[i]);
}

/* The network's scores of the whole sequences by the reference, which knows nothing of states. */
static void whole(i64 batch, const int64_t *token, const char *attributes, float *scores)
{
    struct fixture f;
    quern_tensor *in[4] = {0}, *out[4] = {0};
    open_decoder(&f, "interp", NULL, "present.0.key", "present.0.value", attributes);
    make_inputs(&f, batch, 0, N, -1, token, in);
    for (int k = 2; k < 4; k++) must(&f, quern_tensor_new(f.q, QUERN_F32, 4, (int64_t[]){batch, 1, 0, HEAD}, NULL, &in[k]));
    must(&f, quern_model_eval(f.m, in, 4, out, 3));
    memcpy(scores, quern_tensor_data(out[0]), sizeof *scores * (size_t)(batch * N * V));
    free_all(in), free_all(out);
    fixture_close(&f);
}

static quern_state *new_state(const struct fixture *f, i64 batch)
{
    char sizes[32];
    quern_state *s = NULL;
    struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
    snprintf(sizes, sizeof sizes, "B:%lld", (long long)batch);
    o.sizes = sizes;
    must(f, quern_state_create(f->p, N, &o, &s));
    return s;
}

static void check_steps(const struct fixture *f, i64 batch, const int64_t *token, const float *want)
{
    quern_tensor *in[4] = {0}, *out[4] = {0};
    quern_state *s = new_state(f, batch);
    assert_int_equal(quern_state_memory(s), 2 * batch * N * HEAD * 4); /* one buffer for each cache */
    for (i64 at = 0, n = 5; at < N; at += n, n = at % 2 ? 1 : i64_min(2, N - at)) {
        make_inputs(f, batch, at, n, -1, token, in);
        must(f, quern_state_run(s, in, 4, out, 3));
        assert_int_equal(quern_state_length(s), at + n);
        for (i64 b = 0; b < batch; b++) assert_near((float *)quern_tensor_data(out[0]) + b * n * V, want + (b * N + at) * V, n * V);
        free_all(in), free_all(out);
    }
    quern_state_destroy(s);
}

static void rejects(const struct fixture *f, quern_state *s, i64 batch, i64 past, i64 n, i64 hole, const int64_t *token, const char *text)
{
    quern_tensor *in[4] = {0}, *out[4] = {0};
    i64 length = quern_state_length(s);
    make_inputs(f, batch, past, n, hole, token, in);
    assert_int_equal(quern_state_run(s, in, 4, out, 3), QUERN_INPUT);
    if (!strstr(quern_error(f->q), text)) fail_msg("'%s' instead of '%s'", quern_error(f->q), text);
    assert_int_equal(quern_state_length(s), length);
    free_all(in), free_all(out);
}

/* A mask that leaves a position out, or that has another length than the state and the new tokens. */
static void check_masks(const struct fixture *f, const int64_t *token, const float *want)
{
    quern_tensor *in[4] = {0}, *out[4] = {0};
    quern_state *s = new_state(f, 2);
    rejects(f, s, 2, 0, 5, 4, token, "last");
    make_inputs(f, 2, 0, 5, -1, token, in);
    must(f, quern_state_run(s, in, 4, out, 3));
    free_all(in), free_all(out);
    rejects(f, s, 2, 5, 1, 2, token, "last");
    rejects(f, s, 2, 4, 1, -1, token, "T");
    make_inputs(f, 2, 5, 2, -1, token, in);
    must(f, quern_state_run(s, in, 4, out, 3));
    for (i64 b = 0; b < 2; b++) assert_near((float *)quern_tensor_data(out[0]) + b * 2 * V, want + (b * N + 5) * V, 2 * V);
    free_all(in), free_all(out);
    quern_state_destroy(s);
}

static void test_group(void **state)
{
    static const char *const attributes[] = {"", ", local_window_size=4", ", smooth_softmax=1"}, *const device[] = {"interp", "cpu"};
    struct rng r = rng_seed(2);
    int64_t token[2 * N];
    float want[2 * N * V];
    for (i64 i = 0; i < 2 * N; i++) token[i] = rng_range(&r, 0, V - 1);
    for (int k = 0; k < countof(attributes); k++) {
        whole(2, token, attributes[k], want);
        for (int d = 0; d < countof(device); d++) {
            struct fixture f;
            open_decoder(&f, device[d], "auto", "present.0.key", "present.0.value", attributes[k]);
            check_steps(&f, 1, token, want);
            check_steps(&f, 2, token, want);
            check_masks(&f, token, want);
            fixture_close(&f);
        }
    }
}

/* Exporters that name outputs by themselves: the node that appends tells the pairs. */
static void test_unnamed(void **state)
{
    struct fixture f;
    open_decoder(&f, "interp", "auto", "cat_1", "getitem_7", "");
    quern_state *s = new_state(&f, 1);
    for (int k = 0; k < 4; k++) assert_int_equal(quern_state_holds_input(s, k), k >= 2);
    for (int k = 0; k < 3; k++) assert_int_equal(quern_state_holds_output(s, k), k >= 1);
    quern_state_destroy(s);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_group), cmocka_unit_test(test_unnamed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
