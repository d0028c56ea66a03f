// SPDX-License-Identifier: Apache-2.0
//
// States: small decoders, token by token with their caches in a state, against runs over the whole sequence and the reference evaluator, for
// caches in place and copied, on each device; forks, truncation, saved states and their damaged bytes; errors; allocations of a run.
#include "program_fixture.h"
#include "vulkan_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { V = 11, D = 8, H = 2, HEAD = D / H, MAX_TOKENS = 24 };

static const char *const devices[] = {"interp", "cpu", "vulkan"};

/* Networks. */

static void put_const(struct buf *b, const char *name, i64 rows, i64 columns, struct rng *r)
{
    buf_printf(b, "  const %%%s: f32[%lld,%lld] = [", name, (long long)rows, (long long)columns);
    for (i64 i = 0; i < rows * columns; i++) buf_printf(b, "%s%g", i ? "," : "", (double)rng_range(r, -64, 64) / 64);
    buf_z(b, "]\n");
}

static void put_heads(struct buf *b, char x)
{
    buf_printf(b, "  %%%c0: f32[?] = MatMul(%%x, %%w%c)\n  %%%c1: f32[?] = Reshape(%%%c0, %%heads)\n", x, x, x, x);
    buf_printf(b, "  %%%c: f32[?] = Transpose(%%%c1) {perm=[0,2,1,3]}\n", x, x);
}

/* One layer: concatenated caches and a mask, as exporters write them; or Attention with its own. */
static void put_decoder(struct buf *b, bool is_attention)
{
    struct rng r = rng_seed(5);
    buf_z(b, "graph {\n  input %ids: i64[B,S]\n");
    if (!is_attention) buf_z(b, "  input %mask: f32[B,1,S,T]\n");
    buf_printf(b, "  input %%\"past_key_values.0.key\": f32[B,%d,P,%d]\n  input %%\"past_key_values.0.value\": f32[B,%d,P,%d]\n", H, HEAD, H, HEAD);
    put_const(b, "e", V, D, &r), put_const(b, "wq", D, D, &r), put_const(b, "wk", D, D, &r), put_const(b, "wv", D, D, &r), put_const(b, "wo", D, V, &r);
    buf_printf(b, "  const %%heads: i64[4] = [0,0,%d,%d]\n  const %%flat: i64[3] = [0,0,%d]\n  %%x: f32[?] = Gather(%%e, %%ids)\n", H, HEAD, D);
    put_heads(b, 'q'), put_heads(b, 'k'), put_heads(b, 'v');
    if (is_attention) {
        buf_z(b, "  %o: f32[?], %\"present.0.key\": f32[?], %\"present.0.value\": f32[?] = Attention(%q, %k, %v, _, %\"past_key_values.0.key\", "
                 "%\"past_key_values.0.value\") {is_causal=1}\n");
    } else {
        buf_z(b, "  %\"present.0.key\": f32[?] = Concat(%\"past_key_values.0.key\", %k) {axis=2}\n"
                 "  %\"present.0.value\": f32[?] = Concat(%\"past_key_values.0.value\", %v) {axis=-2}\n"
                 "  %kt: f32[?] = Transpose(%\"present.0.key\") {perm=[0,1,3,2]}\n"
                 "  %s: f32[?] = MatMul(%q, %kt)\n  %m: f32[?] = Add(%s, %mask)\n  %p: f32[?] = Softmax(%m) {axis=-1}\n"
                 "  %o: f32[?] = MatMul(%p, %\"present.0.value\")\n");
    }
    buf_z(b, "  %ot: f32[?] = Transpose(%o) {perm=[0,2,1,3]}\n  %of: f32[?] = Reshape(%ot, %flat)\n  %logits: f32[?] = MatMul(%of, %wo)\n"
             "  output %logits\n  output %\"present.0.key\"\n  output %\"present.0.value\"\n}\n");
}

struct decoder {
    struct fixture f;
    bool is_attention;
    int n_in;     /* ids, mask if any, two caches */
    i64 padding[2]; /* per sequence: tokens at its beginning that are masked */
};

/* false: the device is missing. */
static bool decoder_open(struct decoder *x, const char *device, bool is_attention, const char *in_place)
{
    struct buf b = {0};
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_model_opts m = QUERN_OPTS(quern_model_opts);
    *x = (struct decoder){.f = {.q = quern_open(NULL)}, .is_attention = is_attention, .n_in = is_attention ? 3 : 4};
    put_decoder(&b, is_attention);
    o.device = device, m.state = in_place;
    must(&x->f, quern_model_read(x->f.q, b.p, (size_t)b.n, "decoder", &m, &x->f.m));
    buf_release(&b);
    if (!quern_compile(x->f.m, NULL, &o, &x->f.p)) return true;
    if (strcmp(device, "vulkan")) fail_msg("%s: %s", device, quern_error(x->f.q));
    fixture_close(&x->f);
    return false;
}

/* Inputs for n tokens of each sequence behind `past` ones, without caches. */
static void make_inputs(const struct decoder *x, i64 batch, i64 past, i64 n, const int64_t *token, i64 row, quern_tensor **in)
{
    int64_t *ids;
    must(&x->f, quern_tensor_new(x->f.q, QUERN_I64, 2, (int64_t[]){batch, n}, NULL, &in[0]));
    ids = quern_tensor_data(in[0]);
    for (i64 i = 0; i < batch * n; i++) ids[i] = token[i / n * row + past + i % n];
    if (x->is_attention) return;
    must(&x->f, quern_tensor_new(x->f.q, QUERN_F32, 4, (int64_t[]){batch, 1, n, past + n}, NULL, &in[1]));
    float *mask = quern_tensor_data(in[1]);
    for (i64 i = 0; i < batch * n * (past + n); i++) {
        i64 key = i % (past + n), query = i / (past + n) % n, b = i / (past + n) / n;
        mask[i] = key > past + query || key < x->padding[b] ? -1e9f : 0;
    }
}

/* (batch, n, V) scores of a run with the state. */
static void state_run(const struct decoder *x, quern_state *s, i64 batch, i64 n, const int64_t *token, i64 row, float *scores)
{
    quern_tensor *in[4] = {0}, *out[3] = {0};
    make_inputs(x, batch, quern_state_length(s), n, token, row, in);
    must(&x->f, quern_state_run(s, in, x->n_in, out, 3));
    assert_true(out[0] && !out[1] && !out[2]);
    assert_int_equal(quern_tensor_count(out[0]), batch * n * V);
    memcpy(scores, quern_tensor_data(out[0]), sizeof *scores * (size_t)(batch * n * V));
    for (int k = 0; k < 4; k++) quern_tensor_free(in[k]);
    quern_tensor_free(out[0]);
}

static quern_state *new_state(const struct decoder *x, i64 max, i64 batch)
{
    char sizes[32];
    quern_state *s = NULL;
    struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
    snprintf(sizes, sizeof sizes, "B:%lld", (long long)batch);
    o.sizes = sizes;
    must(&x->f, quern_state_create(x->f.p, max, &o, &s));
    assert_int_equal(quern_state_length(s), 0);
    assert_int_equal(quern_state_max(s), max);
    return s;
}

static void random_tokens(int64_t *token, i64 n, struct rng *r)
{
    for (i64 i = 0; i < n; i++) token[i] = rng_range(r, 0, V - 1);
}

static void assert_near(const float *got, const float *want, i64 n, const char *what)
{
    for (i64 i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])))) fail_msg("%s: element %d is %g, expected %g", what, (int)i, got[i], want[i]);
}

/* The reference's scores of the whole sequence. */
static void whole(const struct decoder *x, i64 batch, i64 n, const int64_t *token, float *scores)
{
    quern_tensor *in[4] = {0}, *out[3] = {0};
    make_inputs(x, batch, 0, n, token, n, in);
    for (int k = x->n_in - 2; k < x->n_in; k++) must(&x->f, quern_tensor_new(x->f.q, QUERN_F32, 4, (int64_t[]){batch, H, 0, HEAD}, NULL, &in[k]));
    must(&x->f, quern_model_eval(x->f.m, in, x->n_in, out, 3));
    memcpy(scores, quern_tensor_data(out[0]), sizeof *scores * (size_t)(batch * n * V));
    for (int k = 0; k < 4; k++) quern_tensor_free(in[k]);
    for (int k = 0; k < 3; k++) quern_tensor_free(out[k]);
}

/* Token by token. */

static void check_steps(const struct decoder *x, i64 batch, i64 n, i64 prompt, u64 seed)
{
    struct rng r = rng_seed(seed);
    int64_t token[2 * MAX_TOKENS];
    float want[2 * MAX_TOKENS * V], got[2 * MAX_TOKENS * V];
    random_tokens(token, batch * n, &r);
    whole(x, batch, n, token, want);
    quern_state *s = new_state(x, n, batch); /* exactly as long */
    for (i64 at = 0, more; at < n; at += more) {
        more = at ? i64_min(rng_range(&r, 1, 2), n - at) : prompt;
        state_run(x, s, batch, more, token, n, got);
        assert_int_equal(quern_state_length(s), at + more);
        for (i64 b = 0; b < batch; b++) assert_near(got + b * more * V, want + (b * n + at) * V, more * V, "scores");
    }
    quern_state_destroy(s);
}

/* A batch of sequences of different lengths, the shorter one padded and masked: each as by itself. */
static void check_padded(struct decoder *x)
{
    enum { N = 9, PAD = 3 };
    struct rng r = rng_seed(6);
    int64_t token[2 * N];
    float want[2][N * V], got[2 * N * V];
    random_tokens(token, 2 * N, &r);
    whole(x, 1, N, token, want[0]), whole(x, 1, N - PAD, token + N + PAD, want[1]);
    quern_state *s = new_state(x, N, 2);
    x->padding[1] = PAD;
    for (i64 at = 0, more; at < N; at += more) {
        more = at ? 1 : 5;
        state_run(x, s, 2, more, token, N, got);
        assert_near(got, want[0] + at * V, more * V, "long sequence");
        i64 skip = i64_max(PAD - at, 0);
        assert_near(got + (more + skip) * V, want[1] + (at + skip - PAD) * V, (more - skip) * V, "padded sequence");
    }
    x->padding[1] = 0;
    quern_state_destroy(s);
}

static void check_device(const char *device)
{
    for (int way = 0; way < 4; way++) {
        struct decoder x;
        if (!decoder_open(&x, device, way & 1, way & 2 ? "auto" : NULL)) return;
        check_steps(&x, 1, 12, 5, 1);
        check_steps(&x, 2, 9, 1, 2);
        check_steps(&x, 2, 7, 7, 3);
        if (!x.is_attention) check_padded(&x);
        fixture_close(&x.f);
    }
}

static void test_interp(void **state) { check_device("interp"); }
static void test_cpu(void **state) { check_device("cpu"); }
static void test_vulkan(void **state) { check_device("vulkan"); }

/* Runs without a state have the network's own interface, whether caches are in place or not. */
static void test_without(void **state)
{
    for (int d = 0; d < 3; d++)
        for (int way = 0; way < 4; way++) {
            struct decoder x;
            struct quern_check c[3];
            int n;
            if (!decoder_open(&x, devices[d], way & 1, way & 2 ? "auto" : NULL)) break;
            static const char *const sizes[] = {"B:2,S:3,P:5,T:8", "B:1,S:1,P:9,T:10", "B:2,S:4,P:0,T:4"};
            for (int k = 0; k < 3; k++) {
                char at[64];
                snprintf(at, sizeof at, "%.*s", (int)(x.is_attention ? strrchr(sizes[k], ',') - sizes[k] : (long)strlen(sizes[k])), sizes[k]);
                must(&x.f, quern_verify(x.f.m, x.f.p, at, 7, c, 3, &n));
                for (int i = 0; i < n; i++) assert_int_equal(c[i].n_bad, 0);
            }
            fixture_close(&x.f);
        }
}

/* Copies of a state go their own ways; truncated ones come to the same results; saved ones, too, whatever program saved them. */
static void check_copies(const char *device, bool is_attention, const char *in_place, const char *dir)
{
    struct decoder x, other;
    struct rng r = rng_seed(11);
    struct arena a = {0};
    int64_t token[MAX_TOKENS], fork[MAX_TOKENS];
    float want[MAX_TOKENS * V], want_fork[MAX_TOKENS * V], got[MAX_TOKENS * V];
    const char *path = str_fmt(&a, "%s/state", dir).p;
    if (!decoder_open(&x, device, is_attention, in_place)) return;
    random_tokens(token, 10, &r);
    memcpy(fork, token, sizeof token);
    random_tokens(fork + 6, 4, &r);
    whole(&x, 1, 10, token, want), whole(&x, 1, 10, fork, want_fork);
    quern_state *s = new_state(&x, 16, 1), *f = NULL;
    state_run(&x, s, 1, 6, token, 10, got);
    must(&x.f, quern_state_fork(s, &f));
    must(&x.f, quern_state_save(s, path));
    assert_int_equal(quern_state_length(f), 6);
    assert_int_equal(quern_state_max(f), 16);
    state_run(&x, f, 1, 4, fork, 10, got);
    assert_near(got, want_fork + 6 * V, 4 * V, "fork");
    state_run(&x, s, 1, 4, token, 10, got);
    assert_near(got, want + 6 * V, 4 * V, "original");
    must(&x.f, quern_state_truncate(f, 6));
    state_run(&x, f, 1, 4, token, 10, got);
    assert_near(got, want + 6 * V, 4 * V, "truncated");
    must(&x.f, quern_state_truncate(f, 3));
    must(&x.f, quern_state_truncate(f, 3));
    state_run(&x, f, 1, 7, token, 10, got);
    assert_near(got, want + 3 * V, 7 * V, "truncated twice");
    must(&x.f, quern_state_truncate(f, 0));
    state_run(&x, f, 1, 10, fork, 10, got);
    assert_near(got, want_fork, 10 * V, "emptied");
    assert_int_equal(quern_state_truncate(f, 11), QUERN_USAGE);
    assert_non_null(strstr(quern_error(x.f.q), "10 positions"));
    must(&x.f, quern_state_load(f, path));
    assert_int_equal(quern_state_length(f), 6);
    state_run(&x, f, 1, 4, token, 10, got);
    assert_near(got, want + 6 * V, 4 * V, "loaded");
    quern_state_destroy(f);
    quern_state_destroy(s);
    assert_true(decoder_open(&other, "interp", is_attention, "auto"));
    s = new_state(&other, 10, 1);
    must(&other.f, quern_state_load(s, path));
    state_run(&other, s, 1, 4, token, 10, got);
    assert_near(got, want + 6 * V, 4 * V, "loaded by another program");
    f = new_state(&x, 12, 1);
    must(&x.f, quern_state_copy(f, s));
    assert_int_equal(quern_state_length(f), 10);
    must(&x.f, quern_state_truncate(f, 6));
    state_run(&x, f, 1, 4, token, 10, got);
    assert_near(got, want + 6 * V, 4 * V, "copied to another program");
    quern_state_destroy(f);
    f = new_state(&x, 9, 1);
    assert_int_equal(quern_state_copy(f, s), QUERN_USAGE);
    assert_non_null(strstr(quern_error(x.f.q), "10 positions, more than the other one's maximum, 9"));
    quern_state_destroy(f);
    quern_state_destroy(s);
    fixture_close(&other.f);
    fixture_close(&x.f);
    arena_release(&a);
}

static void test_copies(void **state)
{
    struct arena a = {0};
    struct str dir;
    struct err e = {0};
    assert_true(os_temp_dir(&a, &dir, &e));
    for (int d = 0; d < 3; d++)
        for (int way = 0; way < 4; way++) check_copies(devices[d], way & 1, way & 2 ? "auto" : NULL, dir.p);
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* Saved states that are not what they should be leave the state as it was. */
static void test_damaged(void **state)
{
    struct decoder x;
    struct arena a = {0};
    struct str dir, bytes;
    struct err e = {0};
    struct rng r = rng_seed(3);
    int64_t token[8];
    float want[8 * V], got[8 * V];
    assert_true(os_temp_dir(&a, &dir, &e) && decoder_open(&x, "cpu", true, "auto"));
    const char *path = str_fmt(&a, "%s/state", dir.p).p, *bad = str_fmt(&a, "%s/bad", dir.p).p;
    random_tokens(token, 8, &r);
    whole(&x, 1, 8, token, want);
    quern_state *s = new_state(&x, 8, 1), *small = new_state(&x, 4, 1), *pair = new_state(&x, 8, 2);
    state_run(&x, s, 1, 5, token, 8, got);
    must(&x.f, quern_state_save(s, path));
    assert_true(os_read(&a, path, 1 << 20, &bytes, &e));
    assert_int_equal(bytes.n, 16 + 8 + 8 + 7 + 8 + (8 + 21 + 8 + 3 + 8 + 32) + (8 + 23 + 8 + 3 + 8 + 32) + 2 * 4 * H * 5 * HEAD + 16);
    assert_int_equal(quern_state_load(small, path), QUERN_INPUT);
    assert_non_null(strstr(quern_error(x.f.q), "5 positions, more than this one's maximum, 4"));
    assert_int_equal(quern_state_load(pair, path), QUERN_INPUT);
    assert_non_null(strstr(quern_error(x.f.q), "caches of other sizes"));
    char *copy = arena_alloc(&a, bytes.n + 8);
    for (int k = 0; k < 400; k++) { /* changed, cut or longer; with the right hash in every second one */
        i64 n = k % 3 == 1 ? rng_range(&r, 0, bytes.n - 1) : k % 3 == 2 ? bytes.n + rng_range(&r, 1, 8) : bytes.n;
        memcpy(copy, bytes.p, (size_t)i64_min(n, bytes.n));
        if (n) copy[rng_range(&r, 0, n - 1)] ^= (char)(1 << rng_range(&r, 0, 7));
        if (k % 2 && n > 16) {
            struct hash h = hash_bytes(copy, n - 16);
            for (int i = 0; i < 8; i++) copy[n - 16 + i] = (char)(h.lo >> (8 * i)), copy[n - 8 + i] = (char)(h.hi >> (8 * i));
        }
        assert_true(os_write(bad, copy, n, &e));
        quern_status done = quern_state_load(s, bad);
        if (done == QUERN_OK) { /* another content of the same size */
            assert_true(k % 2 && n == bytes.n && quern_state_length(s) == 5);
            must(&x.f, quern_state_load(s, path));
        } else assert_int_equal(done, QUERN_INPUT);
        assert_int_equal(quern_state_length(s), 5);
    }
    state_run(&x, s, 1, 3, token, 8, got);
    assert_near(got, want + 5 * V, 3 * V, "after bad files");
    quern_state_destroy(s), quern_state_destroy(small), quern_state_destroy(pair);
    fixture_close(&x.f);
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* Errors. */

static void rejects(const struct decoder *x, quern_state *s, quern_tensor **in, quern_status want, const char *text)
{
    quern_tensor *out[3] = {0};
    i64 length = quern_state_length(s);
    quern_status got = quern_state_run(s, in, x->n_in, out, 3);
    if (got != want || !strstr(quern_error(x->f.q), text)) fail_msg("%d, '%s' instead of %d, '%s'", (int)got, quern_error(x->f.q), (int)want, text);
    assert_true(!out[0] && !out[1] && !out[2]);
    assert_int_equal(quern_state_length(s), length);
}

/* The bytes of the state. */
static struct str bytes_of(const struct decoder *x, quern_state *s, struct arena *a, const char *path)
{
    struct str bytes = {0};
    struct err e = {0};
    must(&x->f, quern_state_save(s, path));
    assert_true(os_read(a, path, 1 << 20, &bytes, &e));
    return bytes;
}

static void check_errors(const char *in_place, const char *path)
{
    struct arena a = {0};
    struct decoder x;
    struct rng r = rng_seed(9);
    int64_t token[MAX_TOKENS];
    float want[MAX_TOKENS * V], got[MAX_TOKENS * V];
    quern_tensor *in[4] = {0}, *more[4] = {0};
    quern_state *s = NULL;
    assert_true(decoder_open(&x, "cpu", false, in_place));
    random_tokens(token, 8, &r);
    whole(&x, 1, 8, token, want);
    assert_int_equal(quern_state_create(x.f.p, 0, NULL, &s), QUERN_USAGE);
    assert_int_equal(quern_state_create(x.f.p, INT64_MAX / 2, NULL, &s), QUERN_USAGE);
    struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
    o.sizes = "nothing:4";
    assert_int_equal(quern_state_create(x.f.p, 8, &o, &s), QUERN_USAGE);
    s = new_state(&x, 8, 1);
    state_run(&x, s, 1, 5, token, 8, got);
    struct str before = bytes_of(&x, s, &a, path);
    make_inputs(&x, 1, 5, 4, token, 8, in); /* one too many */
    rejects(&x, s, in, QUERN_INPUT, "5 positions and 4 new ones are more than the state's maximum, 8");
    in[2] = in[1];
    rejects(&x, s, in, QUERN_USAGE, "input 'past_key_values.0.key' is in the state");
    in[2] = NULL;
    make_inputs(&x, 1, 4, 3, token, 8, more); /* a mask for 4 + 3 tokens */
    rejects(&x, s, more, QUERN_INPUT, "T");
    for (int k = 0; k < 2; k++) quern_tensor_free(in[k]);
    make_inputs(&x, 2, 5, 1, token, 0, in); /* two sequences */
    rejects(&x, s, in, QUERN_INPUT, "axis 0");
    for (int k = 0; k < 2; k++) quern_tensor_free(in[k]), quern_tensor_free(more[k]);
    assert_true(str_eq(bytes_of(&x, s, &a, path), before)); /* nothing was overwritten */
    state_run(&x, s, 1, 3, token, 8, got);
    assert_near(got, want + 5 * V, 3 * V, "after errors");
    quern_state_destroy(s);
    fixture_close(&x.f);
    arena_release(&a);
}

static void test_errors(void **state)
{
    struct arena a = {0};
    struct str dir;
    struct err e = {0};
    assert_true(os_temp_dir(&a, &dir, &e));
    const char *path = str_fmt(&a, "%s/state", dir.p).p;
    check_errors(NULL, path);
    check_errors("auto", path);
    os_remove_tree(dir.p);
    arena_release(&a);
}

static void test_pairs(void **state)
{
    struct fixture f = {.q = quern_open(NULL)};
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    struct buf b = {0};
    put_decoder(&b, true);
    static const struct { const char *state, *error; } cases[] = {
        {"a=b", "no input 'a'"}, {"past_key_values.0.key=b", "no output 'b'"}, {"past_key_values.0.key", "is not INPUT=OUTPUT"},
        {"past_key_values.0.key=logits", "cannot continue"}, {"past_key_values.0.key=present.0.key,past_key_values.0.key=present.0.value", "twice"}};
    for (int k = 0; k < countof(cases); k++) {
        o.state = cases[k].state;
        assert_int_equal(quern_model_read(f.q, b.p, (size_t)b.n, "net", &o, &f.m), QUERN_USAGE);
        assert_non_null(strstr(quern_error(f.q), cases[k].error));
    }
    o.state = "past_key_values.0.key = present.0.key";
    must(&f, quern_model_read(f.q, b.p, (size_t)b.n, "net", &o, &f.m));
    buf_release(&b);
    static const char none[] = "graph {\n  input %x: f32[N]\n  %y: f32[?] = Relu(%x)\n  output %y\n}\n";
    struct quern_compile_opts c = QUERN_OPTS(quern_compile_opts);
    quern_model *m;
    quern_program *p;
    quern_state *s;
    c.device = "interp";
    must(&f, quern_model_read(f.q, none, strlen(none), "none", NULL, &m));
    must(&f, quern_compile(m, NULL, &c, &p));
    assert_int_equal(quern_state_create(p, 4, NULL, &s), QUERN_UNSUPPORTED);
    assert_non_null(strstr(quern_error(f.q), "has no caches"));
    quern_program_close(p);
    quern_model_close(m);
    fixture_close(&f);
}

/* Recurrent states: of the same shape, and as many positions as before. */
static void test_fixed(void **state)
{
    static const char text[] = "graph {\n  input %x: f32[B,3]\n  input %past_conv: f32[B,3]\n  const %h: f32[1] = [0.5]\n  %a: f32[?] = Mul(%past_conv, %h)\n"
                               "  %present_conv: f32[?] = Add(%a, %x)\n  %y: f32[?] = Neg(%present_conv)\n  output %y\n  output %present_conv\n}\n";
    for (int d = 0; d < 2; d++) {
        struct fixture f;
        assert_true(fixture_open(&f, text, devices[d]));
        quern_state *s = NULL, *fork = NULL;
        struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
        o.sizes = "B:2";
        must(&f, quern_state_create(f.p, 1, &o, &s));
        float x[6] = {1, 2, 3, 4, 5, 6}, y[6], want[6] = {0};
        quern_tensor *in[2] = {0}, *out[2] = {0};
        must(&f, quern_tensor_view(f.q, QUERN_F32, 2, (int64_t[]){2, 3}, x, &in[0]));
        must(&f, quern_tensor_view(f.q, QUERN_F32, 2, (int64_t[]){2, 3}, y, &out[0]));
        for (int k = 0; k < 5; k++) {
            if (k == 2) must(&f, quern_state_fork(s, &fork));
            must(&f, quern_state_run(s, in, 2, out, 2));
            for (int i = 0; i < 6; i++) want[i] = want[i] / 2 + x[i], assert_true(y[i] == -want[i]);
        }
        must(&f, quern_state_run(fork, in, 2, out, 2));
        for (int i = 0; i < 6; i++) assert_true(y[i] == -1.75f * x[i]);
        must(&f, quern_state_truncate(s, 0));
        must(&f, quern_state_run(s, in, 2, out, 2));
        for (int i = 0; i < 6; i++) assert_true(y[i] == -x[i]);
        quern_tensor_free(in[0]), quern_tensor_free(out[0]);
        quern_state_destroy(s), quern_state_destroy(fork);
        fixture_close(&f);
    }
}

/* TensorScatter: the caller says where the new rows go. */

static const char scatter_text[] = "graph {\n  input %x: f32[1,2,S,3]\n  input %past_k: f32[1,2,M,3]\n  input %w: i64[1]\n"
                                   "  %present_k: f32[?] = TensorScatter(%past_k, %x, %w) {axis=2}\n  %y: f32[?] = Neg(%present_k)\n"
                                   "  output %y\n  output %present_k\n}\n";

enum { ROWS = 8 };

static quern_status scatter(const struct fixture *f, quern_state *s, i64 at, i64 n, float *cache, struct rng *r)
{
    int64_t w = at;
    quern_tensor *in[3] = {floats(f, 4, (int64_t[]){1, 2, n, 3}, r)}, *out[2] = {0};
    const float *x = quern_tensor_data(in[0]);
    must(f, quern_tensor_view(f->q, QUERN_I64, 1, (int64_t[]){1}, &w, &in[2]));
    quern_status done = quern_state_run(s, in, 3, out, 2);
    for (i64 i = 0; i < 2 * n * 3 && !done; i++) cache[(i / 3 / n * ROWS + at + i / 3 % n) * 3 + i % 3] = x[i];
    for (i64 i = 0; i < 2 * ROWS * 3 && !done; i++) assert_true(((float *)quern_tensor_data(out[0]))[i] == -cache[i]);
    quern_tensor_free(in[0]), quern_tensor_free(in[2]), quern_tensor_free(out[0]);
    return done;
}

static void check_scatter(const char *device, const char *in_place)
{
    struct fixture f = {.q = quern_open(NULL)};
    struct rng r = rng_seed(8);
    struct quern_model_opts m = QUERN_OPTS(quern_model_opts);
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_state_opts so = QUERN_OPTS(quern_state_opts);
    struct quern_check c[2];
    quern_state *s, *fork;
    float cache[2 * ROWS * 3] = {0}, other[2 * ROWS * 3];
    int n;
    m.state = in_place, o.device = device, so.sizes = "M:8";
    must(&f, quern_model_read(f.q, scatter_text, strlen(scatter_text), "net", &m, &f.m));
    if (quern_compile(f.m, NULL, &o, &f.p)) {
        if (strcmp(device, "vulkan")) fail_msg("%s: %s", device, quern_error(f.q));
        fixture_close(&f);
        return;
    }
    must(&f, quern_state_create(f.p, 1, &so, &s));
    must(&f, scatter(&f, s, 0, 3, cache, &r));
    must(&f, scatter(&f, s, 3, 1, cache, &r));
    must(&f, quern_state_fork(s, &fork));
    memcpy(other, cache, sizeof other);
    must(&f, scatter(&f, s, 6, 2, cache, &r));
    must(&f, scatter(&f, s, 2, 2, cache, &r));
    must(&f, scatter(&f, fork, 4, 4, other, &r));
    if (in_place) assert_int_equal(scatter(&f, s, 7, 2, cache, &r), QUERN_INPUT);
    must(&f, scatter(&f, s, 7, 1, cache, &r));
    must(&f, quern_verify(f.m, f.p, "S:2,M:19", 3, c, 2, &n));
    for (int i = 0; i < n; i++) assert_int_equal(c[i].n_bad, 0);
    quern_state_destroy(s), quern_state_destroy(fork);
    fixture_close(&f);
}

static void test_scatter(void **state)
{
    for (int d = 0; d < 3; d++) check_scatter(devices[d], NULL), check_scatter(devices[d], "auto");
}

/* Programs in files keep their states. */
static void test_saved_programs(void **state)
{
    struct arena a = {0};
    struct str dir;
    struct err e = {0};
    assert_true(os_temp_dir(&a, &dir, &e));
    const char *path = str_fmt(&a, "%s/net.dnx", dir.p).p;
    for (int d = 0; d < 3; d++)
        for (int way = 0; way < 2; way++) {
            struct decoder x;
            char *text = NULL;
            if (!decoder_open(&x, devices[d], way, "auto")) break;
            must(&x.f, quern_program_save(x.f.p, path));
            must(&x.f, quern_show(x.f.q, path, &text));
            assert_non_null(strstr(text, "cache past_key_values.0.key -> present.0.key, in place\n"));
            assert_non_null(strstr(text, "cache past_key_values.0.value -> present.0.value, in place\n"));
            quern_text_free(text);
            must(&x.f, quern_explain(x.f.q, path, &text)); /* no kernel computes the concatenations */
            assert_non_null(strstr(text, "in present.0.key->rows: in memory, nothing to do"));
            quern_text_free(text);
            quern_program_close(x.f.p);
            x.f.p = NULL;
            must(&x.f, quern_program_open(x.f.q, path, NULL, &x.f.p));
            check_steps(&x, 1, 12, 5, 4);
            fixture_close(&x.f);
        }
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* Allocations. */

enum { FAR = 1 << 30 };

/* Of runs of one token each, after a prompt and a first token: with all outputs given, none. */
static void check_allocations(bool is_attention, const char *in_place)
{
    struct decoder x;
    struct rng r = rng_seed(2);
    int64_t token[MAX_TOKENS];
    float scores[MAX_TOKENS * V], mask[MAX_TOKENS] = {0};
    random_tokens(token, MAX_TOKENS, &r);
    assert_true(decoder_open(&x, "cpu", is_attention, in_place));
    quern_state *s = new_state(&x, MAX_TOKENS, 1);
    state_run(&x, s, 1, 8, token, MAX_TOKENS, scores);
    state_run(&x, s, 1, 1, token, MAX_TOKENS, scores);
    quern_tensor *in[MAX_TOKENS][4] = {0}, *out[3] = {0};
    must(&x.f, quern_tensor_view(x.f.q, QUERN_F32, 3, (int64_t[]){1, 1, V}, scores, &out[0]));
    for (i64 at = 9; at < MAX_TOKENS; at++) {
        must(&x.f, quern_tensor_view(x.f.q, QUERN_I64, 2, (int64_t[]){1, 1}, token + at, &in[at][0]));
        if (!is_attention) must(&x.f, quern_tensor_view(x.f.q, QUERN_F32, 4, (int64_t[]){1, 1, 1, at + 1}, mask, &in[at][1]));
    }
    for (i64 at = 9; at < MAX_TOKENS; at++) {
        mem_fail(FAR, 0);
        if (quern_state_run(s, in[at], x.n_in, out, 3)) fail_msg("%s", quern_error(x.f.q));
        i64 left = mem_fail(0, 0);
        if (left != FAR) fail_msg("token %d: %d allocations", (int)at, (int)(FAR - left));
    }
    for (i64 at = 9; at < MAX_TOKENS; at++) quern_tensor_free(in[at][0]), quern_tensor_free(in[at][1]);
    quern_tensor_free(out[0]);
    quern_state_destroy(s);
    fixture_close(&x.f);
}

static void test_allocations(void **state)
{
    for (int way = 0; way < 4; way++) check_allocations(way & 1, way & 2 ? "auto" : NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interp), cmocka_unit_test(test_cpu), cmocka_unit_test(test_vulkan), cmocka_unit_test(test_without), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_damaged), cmocka_unit_test(test_errors), cmocka_unit_test(test_pairs), cmocka_unit_test(test_fixed), cmocka_unit_test(test_scatter),
        cmocka_unit_test(test_saved_programs), cmocka_unit_test(test_allocations),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
