// SPDX-License-Identifier: Apache-2.0
//
// States of decoders as exporters write them: GroupQueryAttention, which appends at positions that it computes of an attention mask, with
// caches in place, of sequences of different lengths too, against the reference evaluator of the network itself; bad input; caches whose names tell nothing.
#include "program_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { V = 11, D = 8, HEADS = 2, HEAD = D / HEADS, N = 12, POSITIONS = 16 };

static void put_const(struct buf *b, const char *name, i64 rows, i64 columns, struct rng *r)
{
    buf_printf(b, "  const %%%s: f32[%lld,%lld] = [", name, (long long)rows, (long long)columns);
    for (i64 i = 0; i < rows * columns; i++) buf_printf(b, "%s%g", i ? "," : "", (double)rng_range(r, -64, 64) / 64);
    buf_z(b, "]\n");
}

struct form {
    const char *attributes;  /* of the node */
    const char *key, *value; /* names of the caches' outputs; NULL: the usual ones */
    bool has_mask;           /* else positions and total length are inputs */
    bool is_full;            /* caches have as many rows as the mask */
};

/* As onnxruntime-genai's model builder: the size of a head is symbolic in the caches' shapes. */
static void put_decoder(struct buf *b, const struct form *form)
{
    const char *key = form->key ? form->key : "present.0.key", *value = form->value ? form->value : "present.0.value";
    struct rng r = rng_seed(5);
    buf_z(b, "graph {\n  input %input_ids: i64[B,S]\n");
    buf_z(b, form->has_mask ? "  input %attention_mask: i64[B,T]\n" : "  input %last: i32[B]\n  input %total: i32[1]\n");
    for (int i = 0; i < 2; i++) buf_printf(b, "  input %%\"past_key_values.0.%s\": f32[B,1,%s,K]\n", i ? "value" : "key", form->is_full ? "T" : "P");
    put_const(b, "e", V, D, &r), put_const(b, "wq", D, D, &r), put_const(b, "wk", D, HEAD, &r), put_const(b, "wv", D, HEAD, &r), put_const(b, "wo", D, V, &r);
    put_const(b, "cos", POSITIONS, HEAD / 2, &r), put_const(b, "sin", POSITIONS, HEAD / 2, &r);
    if (form->has_mask)
        buf_z(b, "  const %axis: i64[1] = [1]\n  const %one: i64[] = [1]\n"
             "  %sum: i64[?] = ReduceSum(%attention_mask, %axis) {keepdims=0}\n  %less: i64[?] = Sub(%sum, %axis)\n  %last: i32[?] = Cast(%less) {to=6}\n"
             "  %shape: i64[?] = Shape(%attention_mask)\n  %length: i64[?] = Gather(%shape, %one) {axis=0}\n  %total: i32[?] = Cast(%length) {to=6}\n");
    buf_z(b, "  %x: f32[?] = Gather(%e, %input_ids)\n  %q: f32[?] = MatMul(%x, %wq)\n  %k: f32[?] = MatMul(%x, %wk)\n  %v: f32[?] = MatMul(%x, %wv)\n");
    buf_printf(b, "  %%o: f32[?], %%\"%s\": f32[?], %%\"%s\": f32[?] = com.microsoft::GroupQueryAttention(%%q, %%k, %%v, %%\"past_key_values.0.key\", "
               "%%\"past_key_values.0.value\", %%last, %%total, %%cos, %%sin) {num_heads=%d, kv_num_heads=1, do_rotary=1%s}\n", key, value, HEADS, form->attributes);
    buf_printf(b, "  %%logits: f32[?] = MatMul(%%o, %%wo)\n  output %%logits\n  output %%\"%s\"\n  output %%\"%s\"\n}\n", key, value);
}

static void open_decoder(struct fixture *f, const char *device, const char *state, const struct form *form)
{
    struct buf b = {0};
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_model_opts m = QUERN_OPTS(quern_model_opts);
    *f = (struct fixture){.q = quern_open(NULL)};
    put_decoder(&b, form);
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
static void whole(i64 batch, const int64_t *token, const struct form *form, float *scores)
{
    struct fixture f;
    quern_tensor *in[4] = {0}, *out[4] = {0};
    open_decoder(&f, "interp", NULL, form);
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

/* Sequences of different lengths, padded anywhere: what counts has the scores of the sequence without the rest. */
static void check_lengths(const struct fixture *f, const int64_t *token, const float *want)
{
    static const char *const counts[] = {"111001101011", "001111111111", "110111011101", "100001000001"};
    for (int k = 0; k < countof(counts); k++) {
        quern_tensor *in[4] = {0}, *out[4] = {0};
        quern_state *s = new_state(f, 2);
        i64 so_far = 0;
        for (i64 at = 0, n = 5; at < N; at += n, n = at % 2 ? 1 : i64_min(2, N - at)) {
            make_inputs(f, 2, at, n, -1, token, in);
            int64_t *ids = quern_tensor_data(in[0]), *mask = quern_tensor_data(in[1]);
            i64 before = so_far;
            for (i64 i = 0; i < at + n; i++) mask[at + n + i] = counts[k][i] == '1';
            for (i64 i = 0; i < n; i++) ids[n + i] = counts[k][at + i] == '1' ? token[N + so_far++] : 0;
            must(f, quern_state_run(s, in, 4, out, 3));
            const float *got = quern_tensor_data(out[0]);
            assert_near(got, want + at * V, n * V);
            for (i64 i = 0; i < n; i++)
                if (counts[k][at + i] == '1') assert_near(got + (n + i) * V, want + (N + before++) * V, V);
            free_all(in), free_all(out);
        }
        quern_state_destroy(s);
    }
}

/* A mask counts a position once or not at all. */
static void check_masks(const struct fixture *f, const int64_t *token, const float *want)
{
    static const struct { int64_t v; const char *text; } bad[] = {
        {2, "at most 1; attention_mask_n2 is element 0 of 'most of attention_mask'"}, {-1, "element 0 of 'least of attention_mask' is -1"}};
    quern_tensor *in[4] = {0}, *out[4] = {0};
    quern_state *s = new_state(f, 2);
    make_inputs(f, 2, 0, 5, -1, token, in);
    must(f, quern_state_run(s, in, 4, out, 3));
    free_all(in), free_all(out);
    for (int k = 0; k < countof(bad); k++) {
        make_inputs(f, 2, 5, 1, -1, token, in);
        ((int64_t *)quern_tensor_data(in[1]))[7] = bad[k].v;
        assert_int_equal(quern_state_run(s, in, 4, out, 3), QUERN_INPUT);
        if (!strstr(quern_error(f->q), bad[k].text) || !strstr(quern_error(f->q), "GroupQueryAttention")) fail_msg("'%s' instead of '%s'", quern_error(f->q), bad[k].text);
        assert_int_equal(quern_state_length(s), 5);
        free_all(in), free_all(out);
    }
    rejects(f, s, 2, 4, 1, -1, token, "T");
    make_inputs(f, 2, 5, 2, -1, token, in);
    must(f, quern_state_run(s, in, 4, out, 3));
    for (i64 b = 0; b < 2; b++) assert_near((float *)quern_tensor_data(out[0]) + b * 2 * V, want + (b * N + 5) * V, 2 * V);
    free_all(in), free_all(out);
    quern_state_destroy(s);
}

static const char *const attributes[] = {"", ", local_window_size=4", ", local_window_size=1", ", smooth_softmax=1"};

static void test_group(void **state)
{
    static const char *const device[] = {"interp", "cpu"};
    struct rng r = rng_seed(2);
    int64_t token[2 * N];
    float want[2 * N * V];
    for (i64 i = 0; i < 2 * N; i++) token[i] = rng_range(&r, 0, V - 1);
    for (int k = 0; k < countof(attributes); k++) {
        const struct form form = {.attributes = attributes[k], .has_mask = true};
        whole(2, token, &form, want);
        for (int d = 0; d < countof(device); d++) {
            struct fixture f;
            open_decoder(&f, device[d], "auto", &form);
            check_steps(&f, 1, token, want);
            check_steps(&f, 2, token, want);
            check_masks(&f, token, want);
            check_lengths(&f, token, want);
            fixture_close(&f);
        }
    }
}

/* Positions and total length that are data: as long as they are those of the cache and the new rows. */
static void set_data(const struct fixture *f, i64 batch, const int32_t *last, int32_t total, quern_tensor **last_in, quern_tensor **total_in)
{
    must(f, quern_tensor_new(f->q, QUERN_I32, 1, &batch, last, last_in));
    must(f, quern_tensor_new(f->q, QUERN_I32, 1, (int64_t[]){1}, &total, total_in));
}

static void test_data(void **state)
{
    static const struct { int32_t last[2], total; const char *text; } bad[] = {
        {{5, 4}, 6, "needs last_n to be P+S-1 (5); last_n is element 0 of 'least of last'"},
        {{5, 6}, 6, "last_n2 = 6"},
        {{5, 5}, 7, "needs total_n to be at most P+S (6)"},
        {{5, 5}, 5, "needs total_n to be P+S (6)"},
        {{5, 5}, -1, "total"},
    };
    const struct form form = {.attributes = ""}, masked = {.attributes = "", .has_mask = true};
    struct rng r = rng_seed(4);
    int64_t token[2 * N];
    float want[2 * N * V];
    struct fixture f;
    for (i64 i = 0; i < 2 * N; i++) token[i] = rng_range(&r, 0, V - 1);
    whole(2, token, &masked, want);
    open_decoder(&f, "cpu", "auto", &form);
    quern_state *s = new_state(&f, 2);
    assert_int_equal(quern_state_memory(s), 2 * 2 * N * HEAD * 4);
    for (i64 at = 0, n = 5; at < N; at += n, n = 1) {
        for (int k = at ? 0 : countof(bad); k <= countof(bad); k++) {
            bool is_bad = k < countof(bad);
            quern_tensor *in[5] = {0}, *out[4] = {0}, *mask[4] = {0};
            const int32_t end = (int32_t)(at + n), good[] = {end - 1, end - 1};
            if (is_bad && at != 5) continue;
            make_inputs(&f, 2, at, n, -1, token, mask);
            in[0] = mask[0], mask[0] = NULL;
            set_data(&f, 2, is_bad ? bad[k].last : good, is_bad ? bad[k].total : end, &in[1], &in[2]);
            quern_status done = quern_state_run(s, in, 5, out, 3);
            assert_int_equal(done, is_bad ? QUERN_INPUT : QUERN_OK);
            if (is_bad && !strstr(quern_error(f.q), bad[k].text)) fail_msg("'%s' instead of '%s'", quern_error(f.q), bad[k].text);
            assert_int_equal(quern_state_length(s), is_bad ? at : at + n);
            for (i64 b = 0; b < 2 && !is_bad; b++) assert_near((float *)quern_tensor_data(out[0]) + b * n * V, want + (b * N + at) * V, n * V);
            free_all(in), free_all(out), free_all(mask);
        }
    }
    quern_state_destroy(s);
    fixture_close(&f);
}

/* Bad input of a state leaves it as it was, byte by byte. */

static quern_tensor *mask_tensor(const struct fixture *f, quern_dtype type, int rank, const int64_t *dim)
{
    quern_tensor *t = NULL;
    must(f, quern_tensor_new(f->q, type, rank, dim, NULL, &t));
    for (i64 i = 0; i < quern_tensor_count(t) && type == QUERN_I64; i++) ((int64_t *)quern_tensor_data(t))[i] = 1;
    return t;
}

static struct str bytes_of(const struct fixture *f, quern_state *s, struct arena *a, const char *path)
{
    struct str bytes = {0};
    struct err e = {0};
    must(f, quern_state_save(s, path));
    assert_true(os_read(a, path, 1 << 20, &bytes, &e));
    return bytes;
}

static void check_bad_input(const struct fixture *f, const char *path, const int64_t *token, const float *want)
{
    static const struct { quern_dtype type; int rank; int64_t dim[3]; i64 new; const char *text; } bad[] = {
        {QUERN_I64, 2, {2, 13}, 8, "5 positions and 8 new ones are more than the state's maximum, 12: create it for more, or truncate it"},
        {QUERN_I64, 2, {2, 5}, 1, "T"}, /* only the positions before */
        {QUERN_I64, 2, {2, 7}, 1, "T"},
        {QUERN_I64, 2, {2, 1}, 1, "T"}, /* only the new one */
        {QUERN_I64, 2, {1, 6}, 1, "'attention_mask'"}, /* of one sequence */
        {QUERN_I64, 1, {6}, 1, "'attention_mask'"},
        {QUERN_I64, 3, {2, 1, 6}, 1, "'attention_mask'"},
        {QUERN_F32, 2, {2, 6}, 1, "'attention_mask'"},
    };
    struct arena a = {0};
    quern_tensor *in[4] = {0}, *out[4] = {0};
    quern_state *s = new_state(f, 2);
    make_inputs(f, 2, 0, 5, -1, token, in);
    must(f, quern_state_run(s, in, 4, out, 3));
    free_all(in), free_all(out);
    struct str before = bytes_of(f, s, &a, path);
    for (int k = 0; k < countof(bad); k++) {
        make_inputs(f, 2, 0, bad[k].new, -1, token, in);
        quern_tensor_free(in[1]);
        in[1] = mask_tensor(f, bad[k].type, bad[k].rank, bad[k].dim);
        quern_status got = quern_state_run(s, in, 4, out, 3);
        if ((got != QUERN_INPUT && got != QUERN_USAGE) || !strstr(quern_error(f->q), bad[k].text)) fail_msg("row %d: %d, '%s' instead of '%s'", k, (int)got, quern_error(f->q), bad[k].text);
        assert_int_equal(quern_state_length(s), 5);
        free_all(in), free_all(out);
    }
    assert_true(str_eq(bytes_of(f, s, &a, path), before));
    make_inputs(f, 2, 5, 2, -1, token, in);
    must(f, quern_state_run(s, in, 4, out, 3));
    for (i64 b = 0; b < 2; b++) assert_near((float *)quern_tensor_data(out[0]) + b * 2 * V, want + (b * N + 5) * V, 2 * V);
    free_all(in), free_all(out);
    quern_state_destroy(s);
    arena_release(&a);
}

/* More positions than the network's table of angles has, though the state has room. */
static void check_table(const struct fixture *f, const int64_t *token)
{
    quern_tensor *in[4] = {0}, *out[4] = {0};
    quern_state *s = NULL;
    struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
    o.sizes = "B:1";
    must(f, quern_state_create(f->p, 2 * POSITIONS, &o, &s));
    for (i64 at = 0; at <= POSITIONS; at += POSITIONS / 2) {
        make_inputs(f, 1, 0, POSITIONS / 2, -1, token, in);
        quern_tensor_free(in[1]);
        in[1] = mask_tensor(f, QUERN_I64, 2, (int64_t[]){1, at + POSITIONS / 2});
        assert_int_equal(quern_state_run(s, in, 4, out, 3), at < POSITIONS ? QUERN_OK : QUERN_INPUT);
        if (at == POSITIONS && !strstr(quern_error(f->q), "needs T to be at most 16")) fail_msg("%s", quern_error(f->q));
        free_all(in), free_all(out);
    }
    assert_int_equal(quern_state_length(s), POSITIONS);
    quern_state_destroy(s);
}

/* Positions that are data, beyond the table. */
static void check_table_by_data(const int64_t *token)
{
    struct fixture f;
    quern_tensor *in[5] = {0}, *out[4] = {0};
    quern_state *s = NULL;
    struct quern_state_opts o = QUERN_OPTS(quern_state_opts);
    o.sizes = "B:1";
    open_decoder(&f, "cpu", "auto", &(struct form){.attributes = ""});
    must(&f, quern_state_create(f.p, 2 * POSITIONS, &o, &s));
    for (i64 at = 0; at <= POSITIONS; at += POSITIONS / 2) {
        const i64 n = POSITIONS / 2;
        must(&f, quern_tensor_new(f.q, QUERN_I64, 2, (int64_t[]){1, n}, token, &in[0]));
        set_data(&f, 1, (int32_t[]){(int32_t)(at + n - 1)}, (int32_t)(at + n), &in[1], &in[2]);
        assert_int_equal(quern_state_run(s, in, 5, out, 3), at < POSITIONS ? QUERN_OK : QUERN_INPUT);
        if (at == POSITIONS && !strstr(quern_error(f.q), "needs P+S (24) to be at most 16")) fail_msg("%s", quern_error(f.q));
        for (int k = 0; k < 3; k++) quern_tensor_free(in[k]), in[k] = NULL;
        free_all(out);
    }
    quern_state_destroy(s);
    fixture_close(&f);
}

/* Caches of full length: rows are written within them, in a state as without one. */
static void test_full(void **state)
{
    static const char *const states[] = {NULL, "auto"};
    const struct form form = {.attributes = "", .has_mask = true, .is_full = true};
    int64_t token[N] = {1, 2, 3};
    float first[3 * V];
    for (int k = 0; k < 2; k++) {
        struct fixture f;
        quern_tensor *in[4] = {0}, *out[4] = {0};
        open_decoder(&f, "cpu", states[k], &form);
        make_inputs(&f, 1, 0, 3, -1, token, in);
        quern_tensor_free(in[1]);
        in[1] = mask_tensor(&f, QUERN_I64, 2, (int64_t[]){1, N});
        for (i64 i = 5; i < N; i++) ((int64_t *)quern_tensor_data(in[1]))[i] = 0;
        for (int i = 2; i < 4; i++) {
            must(&f, quern_tensor_new(f.q, QUERN_F32, 4, (int64_t[]){1, 1, N, HEAD}, NULL, &in[i]));
            for (i64 j = 0; j < N * HEAD; j++) ((float *)quern_tensor_data(in[i]))[j] = (float)(j % 7) / 8;
        }
        must(&f, quern_run(f.p, in, 4, out, 3));
        if (k) assert_near(quern_tensor_data(out[0]), first, 3 * V);
        else memcpy(first, quern_tensor_data(out[0]), sizeof first);
        free_all(in), free_all(out);
        fixture_close(&f);
    }
}

static void test_bad_input(void **state)
{
    struct arena a = {0};
    struct str dir;
    struct err e = {0};
    struct rng r = rng_seed(6);
    struct fixture f;
    int64_t token[2 * N];
    float want[2 * N * V];
    assert_true(os_temp_dir(&a, &dir, &e));
    for (i64 i = 0; i < 2 * N; i++) token[i] = rng_range(&r, 0, V - 1);
    for (int k = 0; k < 2; k++) {
        const struct form form = {.attributes = attributes[k], .has_mask = true};
        whole(2, token, &form, want);
        open_decoder(&f, "cpu", "auto", &form);
        check_bad_input(&f, str_fmt(&a, "%s/state", dir.p).p, token, want);
        check_table(&f, token);
        fixture_close(&f);
    }
    check_table_by_data(token);
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* Exporters that name outputs by themselves: the node that appends tells the pairs. */
static void test_unnamed(void **state)
{
    struct fixture f;
    open_decoder(&f, "interp", "auto", &(struct form){.attributes = "", .key = "cat_1", .value = "getitem_7", .has_mask = true});
    quern_state *s = new_state(&f, 1);
    for (int k = 0; k < 4; k++) assert_int_equal(quern_state_holds_input(s, k), k >= 2);
    for (int k = 0; k < 3; k++) assert_int_equal(quern_state_holds_output(s, k), k >= 1);
    quern_state_destroy(s);
    fixture_close(&f);
}

/* Inputs as a file declares them, in either format, even if an operator is unknown. */

static void note_declared(void *user, const struct quern_declared *x)
{
    struct buf *b = user;
    buf_printf(b, "%s %d", x->name, (int)x->type);
    for (int d = 0; d < x->rank; d++) buf_printf(b, " %s%lld", x->dim[d] < 0 ? x->sym[d] : "", x->dim[d] < 0 ? 0LL : (long long)x->dim[d]);
    buf_char(b, '\n');
}

static void test_declared(void **state)
{
    static const char text[] = "graph {\n  input %input_ids: i64[B,S]\n  input %past: f32[B,2,P,4]\n  %e: f32[B,S] = Cast(%input_ids) {to=1}\n  %k: f32[B,2,P,4] = Neg(%past)\n  output %e\n  output %k\n}\n";
    static const char want[] = "input_ids 7 B0 S0\npast 1 B0 2 P0 4\n";
    char dir[] = "/tmp/quern_declared_XXXXXX", graph[64], onnx[64];
    struct fixture f = {.q = quern_open(NULL)};
    struct err e = {0};
    struct buf b = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(graph, sizeof graph, "%s/net.graph", dir), snprintf(onnx, sizeof onnx, "%s/net.onnx", dir);
    assert_true(os_write(graph, text, (i64)strlen(text), &e));
    must(&f, quern_model_open(f.q, graph, NULL, &f.m));
    must(&f, quern_model_save(f.m, onnx));
    struct arena a = {0};
    struct str bytes;
    assert_true(os_read(&a, onnx, 1 << 20, &bytes, &e));
    for (i64 i = 0; i + 3 <= bytes.n; i++) /* no such operator */
        if (!memcmp(bytes.p + i, "Neg", 3)) memcpy((char *)(uintptr_t)bytes.p + i, "Nag", 3);
    assert_true(os_write(onnx, bytes.p, bytes.n, &e));
    must(&f, quern_declared_inputs(f.q, graph, note_declared, &b));
    assert_string_equal(b.p, want);
    buf_reset(&b);
    must(&f, quern_declared_inputs(f.q, onnx, note_declared, &b));
    assert_string_equal(b.p, want);
    quern_model *m = NULL;
    assert_int_not_equal(quern_model_open(f.q, onnx, NULL, &m), QUERN_OK);
    assert_int_equal(quern_declared_inputs(f.q, dir, note_declared, &b), QUERN_INPUT); /* a folder */
    remove(graph), remove(onnx), rmdir(dir);
    buf_release(&b);
    arena_release(&a);
    quern_model_close(f.m);
    quern_close(f.q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_group), cmocka_unit_test(test_data), cmocka_unit_test(test_bad_input), cmocka_unit_test(test_unnamed), cmocka_unit_test(test_full), cmocka_unit_test(test_declared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
