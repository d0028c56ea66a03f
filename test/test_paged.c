// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft's PagedAttention against its definition, written here token by token: on every device, with pages in any order, sequences of different lengths
// and without tokens, whatever is behind their ends, and every option. Bad lengths and tables are errors that name the input, before any result is written.
#include "program_fixture.h"
#include "vulkan_fixture.h"
#include "seeds.h"
#include "skip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TOKENS = 12, MOST_PAGES = 16, MOST_HEADS = 6, MOST_SIZE = 8, MOST_ROWS = MOST_PAGES * 4, TABLE_ROWS = 48 };

struct instance {
    i64 b, m, n, page, hk, h, d, t; /* sequences, pages of one, of all, positions of a page, heads, tokens */
    i64 window;                     /* -1: none */
    bool is_packed, is_rotary, is_interleaved, is_causal, has_slots, has_sink, has_norm, is_page_named;
    double softcap, scale;          /* 0: none, the usual one */
    int32_t ends[4], past[3], table[3 * 8], slots[MOST_TOKENS];
    float q[MOST_TOKENS * MOST_HEADS * MOST_SIZE], k[MOST_TOKENS * MOST_HEADS * MOST_SIZE], v[MOST_TOKENS * MOST_HEADS * MOST_SIZE];
    float cache[2][MOST_ROWS * MOST_HEADS * MOST_SIZE]; /* [page][position][head][element] */
    float angle[2][TABLE_ROWS * MOST_SIZE / 2], sink[MOST_HEADS], norm[2][MOST_SIZE];
};

static void fill(float *v, i64 n, struct rng *r)
{
    for (i64 i = 0; i < n; i++) v[i] = (float)(rng_f64(r) * 2 - 1);
}

/* Entries of the table that are not needed are no pages; what no sequence has written is not a number. */
static void draw(struct instance *x, struct rng *r)
{
    bool is_used[MOST_ROWS] = {0};
    int32_t order[MOST_PAGES];
    *x = (struct instance){.b = rng_range(r, 1, 3), .m = rng_range(r, 1, 4), .page = (i64)1 << rng_range(r, 0, 2), .hk = rng_range(r, 1, 2), .d = 2 * rng_range(r, 1, 4), .window = -1};
    x->n = x->b * x->m + rng_range(r, 0, 2);
    x->h = x->hk * rng_range(r, 1, 3);
    for (i64 i = 0; i < x->n; i++) {
        i64 j = rng_range(r, 0, i);
        order[i] = order[j], order[j] = (int32_t)i;
    }
    for (i64 s = 0; s < x->b; s++) {
        i64 new = rng_range(r, s == 0, i64_min(4, x->m * x->page));
        x->past[s] = (int32_t)rng_range(r, 0, x->m * x->page - new);
        x->ends[s + 1] = x->ends[s] + (int32_t)new;
        for (i64 i = 0; i < x->m; i++) {
            bool has = i * x->page < x->past[s] + new;
            x->table[s * x->m + i] = has ? order[s * x->m + i] : rng_range(r, 0, 1) ? -1 : 99;
            for (i64 k = 0; has && k < x->page; k++) is_used[order[s * x->m + i] * x->page + k] = i * x->page + k < x->past[s];
        }
    }
    x->t = x->ends[x->b];
    fill(x->q, countof(x->q), r), fill(x->k, countof(x->k), r), fill(x->v, countof(x->v), r);
    for (i64 c = 0; c < 2; c++)
        for (i64 i = 0; i < x->n * x->page * x->hk * x->d; i++) x->cache[c][i] = is_used[i / (x->hk * x->d)] ? (float)(rng_f64(r) * 2 - 1) : NAN;
    for (i64 i = 0; i < 2; i++) fill(x->angle[i], countof(x->angle[i]), r), fill(x->norm[i], countof(x->norm[i]), r);
    fill(x->sink, countof(x->sink), r);
}

/* A token's row in the caches, by its sequence's pages. */
static i64 row_of(const struct instance *x, i64 s, i64 position) { return x->table[s * x->m + position / x->page] * x->page + position % x->page; }

static void draw_options(struct instance *x, struct rng *r)
{
    x->is_packed = rng_range(r, 0, 1), x->is_rotary = rng_range(r, 0, 1), x->is_interleaved = rng_range(r, 0, 1), x->is_causal = rng_range(r, 0, 3);
    x->has_slots = !rng_range(r, 0, 2), x->has_sink = !rng_range(r, 0, 2), x->has_norm = !rng_range(r, 0, 2), x->is_page_named = !rng_range(r, 0, 3);
    if (!rng_range(r, 0, 2)) x->window = rng_range(r, 1, 5);
    if (!rng_range(r, 0, 2)) x->softcap = 1.5;
    if (!rng_range(r, 0, 2)) x->scale = 0.4;
    for (i64 s = 0; s < x->b; s++)
        for (i64 i = x->ends[s]; i < x->ends[s + 1]; i++) x->slots[i] = (int32_t)row_of(x, s, x->past[s] + i - x->ends[s]);
    /* A row that is not written keeps what it has, which must be a number to compare. */
    if (x->has_slots) {
        i64 i = rng_range(r, 0, x->t - 1), n = x->hk * x->d;
        for (i64 c = 0; c < 2; c++) fill(x->cache[c] + x->slots[i] * n, n, r);
        x->slots[i] = -1;
    }
}

/* The definition. */

static void normalise(double *v, i64 d, const float *weight)
{
    double sum = 0;
    for (i64 i = 0; i < d; i++) sum += v[i] * v[i];
    for (i64 i = 0; i < d; i++) v[i] *= weight[i] / sqrt(sum / (double)d + 1e-6);
}

static void rotate(const struct instance *x, double *v, i64 position)
{
    i64 half = x->d / 2;
    for (i64 i = 0; i < half; i++) {
        double c = x->angle[0][position * half + i], s = x->angle[1][position * half + i], *a = &v[x->is_interleaved ? 2 * i : i], *b = &v[x->is_interleaved ? 2 * i + 1 : half + i];
        double old = *a;
        *a = old * c - *b * s;
        *b = old * s + *b * c;
    }
}

/* Head of a token's query or key, at its position. */
static void head_of(const struct instance *x, const float *from, const float *norm, i64 position, double *to)
{
    for (i64 i = 0; i < x->d; i++) to[i] = from[i];
    if (x->has_norm) normalise(to, x->d, norm);
    if (x->is_rotary) rotate(x, to, position);
}

static void write_token(const struct instance *x, i64 s, i64 token, float *const cache[2])
{
    i64 position = x->past[s] + token - x->ends[s], row = x->has_slots ? x->slots[token] : row_of(x, s, position);
    if (row < 0) return;
    for (i64 j = 0; j < x->hk; j++) {
        double key[MOST_SIZE];
        head_of(x, x->k + (token * x->hk + j) * x->d, x->norm[1], position, key);
        for (i64 i = 0; i < x->d; i++) {
            cache[0][(row * x->hk + j) * x->d + i] = (float)key[i];
            cache[1][(row * x->hk + j) * x->d + i] = x->v[(token * x->hk + j) * x->d + i];
        }
    }
}

static double score_of(const struct instance *x, const double *q, const float *key)
{
    double sum = 0, scale = x->scale != 0 ? x->scale : 1 / sqrt((double)x->d);
    for (i64 i = 0; i < x->d; i++) sum += q[i] * key[i];
    return x->softcap > 0 ? x->softcap * tanh(sum * scale / x->softcap) : sum * scale;
}

static void attend(const struct instance *x, i64 s, i64 token, i64 head, float *const cache[2], double *y)
{
    i64 position = x->past[s] + token - x->ends[s], total = x->past[s] + x->ends[s + 1] - x->ends[s], last = x->is_causal ? position : total - 1;
    i64 first = x->window > 0 ? i64_max(0, position - x->window + 1) : 0, shared = head / (x->h / x->hk);
    double q[MOST_SIZE], sum = x->has_sink ? exp(x->sink[head]) : 0;
    head_of(x, x->q + (token * x->h + head) * x->d, x->norm[0], position, q);
    for (i64 i = 0; i < x->d; i++) y[i] = 0;
    for (i64 j = first; j <= last; j++) {
        i64 at = (row_of(x, s, j) * x->hk + shared) * x->d;
        double e = exp(score_of(x, q, cache[0] + at));
        sum += e;
        for (i64 i = 0; i < x->d; i++) y[i] += e * cache[1][at + i];
    }
    for (i64 i = 0; i < x->d; i++) y[i] /= sum;
}

static void compute(const struct instance *x, double *y, float *const cache[2])
{
    for (i64 c = 0; c < 2; c++) memcpy(cache[c], x->cache[c], sizeof x->cache[c]);
    for (i64 s = 0; s < x->b; s++)
        for (i64 i = x->ends[s]; i < x->ends[s + 1]; i++) write_token(x, s, i, cache);
    for (i64 s = 0; s < x->b; s++)
        for (i64 i = x->ends[s]; i < x->ends[s + 1]; i++)
            for (i64 j = 0; j < x->h; j++) attend(x, s, i, j, cache, y + (i * x->h + j) * x->d);
}

/* Programs. */

static void print_net(struct buf *b, const struct instance *x)
{
    i64 columns = x->is_packed ? x->h + 2 * x->hk : x->h;
    char page[24];
    snprintf(page, sizeof page, x->is_page_named ? "P" : "%lld", (long long)x->page);
    buf_printf(b, "graph {\n  input %%q: f32[T,%lld]\n", (long long)(columns * x->d));
    if (!x->is_packed) buf_printf(b, "  input %%k: f32[T,%lld]\n  input %%v: f32[T,%lld]\n", (long long)(x->hk * x->d), (long long)(x->hk * x->d));
    for (int c = 0; c < 2; c++) buf_printf(b, "  input %%%s: f32[N,%s,%lld,%lld]\n", c ? "value_cache" : "key_cache", page, (long long)x->hk, (long long)x->d);
    buf_z(b, "  input %ends: i32[B+1]\n  input %past: i32[B]\n  input %table: i32[B,M]\n");
    if (x->is_rotary) buf_printf(b, "  input %%cos: f32[R,%lld]\n  input %%sin: f32[R,%lld]\n", (long long)x->d / 2, (long long)x->d / 2);
    if (x->has_slots) buf_z(b, "  input %slots: i32[T]\n");
    if (x->has_sink) buf_printf(b, "  input %%sink: f32[%lld]\n", (long long)x->h);
    if (x->has_norm) buf_printf(b, "  input %%qn: f32[%lld]\n  input %%kn: f32[%lld]\n", (long long)x->d, (long long)x->d);
    buf_printf(b, "  %%y: none[?], %%key_out: none[?], %%value_out: none[?] = com.microsoft::PagedAttention \"paged\"(%%q, %s, %%key_cache, %%value_cache, %%ends, %%past, %%table, %s, %s, %s, %s)",
               x->is_packed ? "_, _" : "%k, %v", x->is_rotary ? "%cos, %sin" : "_, _", x->has_slots ? "%slots" : "_", x->has_sink ? "%sink" : "_", x->has_norm ? "%qn, %kn" : "_, _");
    buf_printf(b, " {num_heads=%lld, kv_num_heads=%lld, do_rotary=%d, rotary_interleaved=%d, is_causal=%d, local_window_size=%lld", (long long)x->h, (long long)x->hk, x->is_rotary,
               x->is_interleaved, x->is_causal, (long long)x->window);
    if (x->softcap > 0) buf_printf(b, ", softcap=%g", x->softcap);
    if (x->scale != 0) buf_printf(b, ", scale=%g", x->scale);
    buf_z(b, "}\n  output %y\n  output %key_out\n  output %value_out\n}\n");
}

struct feed { quern_tensor *in[16]; int n; };

static void feed(const struct fixture *f, struct feed *to, quern_dtype type, int rank, const int64_t *dim, const void *v)
{
    quern_tensor *t = NULL;
    must(f, quern_tensor_new(f->q, type, rank, dim, NULL, &t));
    memcpy(quern_tensor_data(t), v, (size_t)quern_tensor_count(t) * 4);
    to->in[to->n++] = t;
}

/* Queries, keys and values of a token side by side */
static void feed_packed(const struct fixture *f, struct feed *to, const struct instance *x)
{
    i64 nq = x->h * x->d, nk = x->hk * x->d, columns = nq + 2 * nk;
    float *v = calloc((size_t)(x->t * columns), sizeof *v);
    for (i64 i = 0; i < x->t; i++) {
        memcpy(v + i * columns, x->q + i * nq, (size_t)nq * 4);
        memcpy(v + i * columns + nq, x->k + i * nk, (size_t)nk * 4);
        memcpy(v + i * columns + nq + nk, x->v + i * nk, (size_t)nk * 4);
    }
    feed(f, to, QUERN_F32, 2, (int64_t[]){x->t, columns}, v);
    free(v);
}

static void feed_all(const struct fixture *f, struct feed *to, const struct instance *x)
{
    const int64_t cache[] = {x->n, x->page, x->hk, x->d}, keys[] = {x->t, x->hk * x->d}, angles[] = {TABLE_ROWS, x->d / 2};
    *to = (struct feed){.n = 0};
    if (x->is_packed) feed_packed(f, to, x);
    else feed(f, to, QUERN_F32, 2, (int64_t[]){x->t, x->h * x->d}, x->q), feed(f, to, QUERN_F32, 2, keys, x->k), feed(f, to, QUERN_F32, 2, keys, x->v);
    for (int c = 0; c < 2; c++) feed(f, to, QUERN_F32, 4, cache, x->cache[c]);
    feed(f, to, QUERN_I32, 1, (int64_t[]){x->b + 1}, x->ends);
    feed(f, to, QUERN_I32, 1, (int64_t[]){x->b}, x->past);
    feed(f, to, QUERN_I32, 2, (int64_t[]){x->b, x->m}, x->table);
    for (int c = 0; c < 2 && x->is_rotary; c++) feed(f, to, QUERN_F32, 2, angles, x->angle[c]);
    if (x->has_slots) feed(f, to, QUERN_I32, 1, (int64_t[]){x->t}, x->slots);
    if (x->has_sink) feed(f, to, QUERN_F32, 1, (int64_t[]){x->h}, x->sink);
    for (int c = 0; c < 2 && x->has_norm; c++) feed(f, to, QUERN_F32, 1, (int64_t[]){x->d}, x->norm[c]);
}

static void free_tensors(quern_tensor **t, int n)
{
    for (int i = 0; i < n; i++) quern_tensor_free(t[i]), t[i] = NULL;
}

static void assert_near(const char *what, const float *got, const double *want, i64 n)
{
    for (i64 i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 2e-5 * (1 + fabs(want[i])))) fail_msg("%s: element %lld is %g, expected %g", what, (long long)i, (double)got[i], want[i]);
}

/* Rows of new keys are rounded otherwise; all others are the same bits. */
static void assert_cache(const char *what, const float *got, const float *want, const float *before, i64 n)
{
    for (i64 i = 0; i < n; i++) {
        bool is_old = memcmp(&want[i], &before[i], sizeof *want) == 0;
        if (is_old ? memcmp(&got[i], &before[i], sizeof *got) != 0 : !(fabsf(got[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))))
            fail_msg("%s: element %lld of a cache is %g, expected %g", what, (long long)i, (double)got[i], (double)want[i]);
    }
}

static void check_results(const char *what, const struct instance *x, quern_tensor *const *out)
{
    static double y[MOST_TOKENS * MOST_HEADS * MOST_SIZE];
    static float cache[2][MOST_ROWS * MOST_HEADS * MOST_SIZE];
    compute(x, y, (float *const[]){cache[0], cache[1]});
    assert_int_equal(quern_tensor_count(out[0]), x->t * x->h * x->d);
    assert_near(what, quern_tensor_data(out[0]), y, x->t * x->h * x->d);
    for (int c = 0; c < 2; c++) assert_cache(what, quern_tensor_data(out[1 + c]), cache[c], x->cache[c], x->n * x->page * x->hk * x->d);
}

/* The same program for other tokens and lengths. */
static void draw_again(struct instance *x, struct rng *r)
{
    const struct instance like = *x;
    do {
        draw(x, r);
        draw_options(x, r);
    } while (x->hk != like.hk || x->h != like.h || x->d != like.d || x->has_slots != like.has_slots || (x->page != like.page && !like.is_page_named));
    x->is_packed = like.is_packed, x->is_rotary = like.is_rotary, x->is_interleaved = like.is_interleaved, x->is_causal = like.is_causal, x->has_sink = like.has_sink,
    x->has_norm = like.has_norm, x->is_page_named = like.is_page_named, x->window = like.window, x->softcap = like.softcap, x->scale = like.scale;
}

static bool is_missing(const char *device)
{
    static const char text[] = "graph {\n  input %x: f32[3]\n  %y: none[?] = Neg(%x)\n  output %y\n}\n";
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct fixture f = {.q = quern_open(NULL)};
    o.device = device;
    must(&f, quern_model_read(f.q, text, strlen(text), "net", NULL, &f.m));
    bool is = quern_compile(f.m, NULL, &o, &f.p) != QUERN_OK;
    fixture_close(&f);
    return is;
}

static void open_net(struct fixture *f, const struct instance *x, const char *device)
{
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct buf text = {0};
    *f = (struct fixture){.q = quern_open(NULL)};
    o.device = device;
    print_net(&text, x);
    must(f, quern_model_read(f->q, text.p, (size_t)text.n, "net", NULL, &f->m));
    buf_release(&text);
    must(f, quern_compile(f->m, NULL, &o, &f->p));
}

static void check(const char *device, u64 seed)
{
    struct rng r = rng_seed(seed);
    struct instance *x = calloc(1, sizeof *x);
    struct fixture f;
    char what[64];
    draw(x, &r);
    draw_options(x, &r);
    snprintf(what, sizeof what, "%s, seed %llu", device, (unsigned long long)seed);
    open_net(&f, x, device);
    for (int run = 0; run < 3; run++) {
        struct feed in;
        quern_tensor *out[3] = {0}, *reference[3] = {0};
        feed_all(&f, &in, x);
        must(&f, quern_run(f.p, in.in, in.n, out, 3));
        check_results(what, x, out);
        must(&f, quern_model_eval(f.m, in.in, in.n, reference, 3));
        check_results("reference", x, reference);
        free_tensors(in.in, in.n), free_tensors(out, 3), free_tensors(reference, 3);
        draw_again(x, &r);
    }
    fixture_close(&f);
    free(x);
}

static void check_device(const char *device, u64 n)
{
    if (is_missing(device)) skip_test("no device '%s'", device);
    for (u64 seed = first_seed(0, n), end = last_seed(0, n); seed < end; seed++) check(device, seed);
}

static void test_interp(void **state) { check_device("interp", 15); }
static void test_cpu(void **state) { check_device("cpu", 15); }
static void test_vulkan(void **state) { check_device("vulkan", 4); }
static void test_opencl(void **state) { check_device("opencl", 2); }

/* A state has the pages: prompts of two sequences, then a token of each, of one, of both again. */

static void known_instance(struct instance *x);

static void check_step(const struct fixture *f, quern_state *s, struct instance *x)
{
    static double y[MOST_TOKENS * MOST_HEADS * MOST_SIZE];
    static float cache[2][MOST_ROWS * MOST_HEADS * MOST_SIZE];
    struct feed in;
    quern_tensor *out[3] = {0};
    feed_all(f, &in, x);
    quern_tensor_free(in.in[3]), quern_tensor_free(in.in[4]);
    in.in[3] = in.in[4] = NULL;
    must(f, quern_state_run(s, in.in, in.n, out, 3));
    assert_true(!out[1] && !out[2]);
    compute(x, y, (float *const[]){cache[0], cache[1]});
    assert_near("state", quern_tensor_data(out[0]), y, x->t * x->h * x->d);
    memcpy(x->cache, cache, sizeof cache);
    free_tensors(in.in, in.n), free_tensors(out, 3);
}

static void check_state(const char *device)
{
    static const int32_t ends[][3] = {{0, 3, 4}, {0, 1, 2}, {0, 0, 3}, {0, 1, 2}, {0, 2, 3}};
    struct instance *x = calloc(1, sizeof *x);
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_model_opts m = QUERN_OPTS(quern_model_opts);
    struct quern_state_opts sizes = QUERN_OPTS(quern_state_opts);
    struct fixture f = {.q = quern_open(NULL)};
    struct buf text = {0};
    quern_state *s = NULL, *fork = NULL;
    known_instance(x);
    x->has_slots = false;
    memset(x->past, 0, sizeof x->past), memset(x->cache, 0, sizeof x->cache);
    print_net(&text, x);
    o.device = device, o.prove = !strcmp(device, "cpu"), m.state = "auto", sizes.sizes = "N:4"; /* kernels of tasks alone are right, too, whatever their sizes */
    must(&f, quern_model_read(f.q, text.p, (size_t)text.n, "net", &m, &f.m));
    must(&f, quern_compile(f.m, NULL, &o, &f.p));
    must(&f, quern_state_create(f.p, 1, &sizes, &s));
    assert_int_equal(quern_state_memory(s), 2 * x->n * x->page * x->hk * x->d * 4); /* once */
    for (int k = 0; k < countof(ends); k++) {
        memcpy(x->ends, ends[k], sizeof ends[k]);
        x->t = x->ends[2];
        check_step(&f, s, x);
        for (int b = 0; b < 2; b++) x->past[b] += x->ends[b + 1] - x->ends[b];
        if (k == 2) must(&f, quern_state_fork(s, &fork));
        if (k == 3) quern_state_destroy(s), s = fork, memcpy(x->past, (int32_t[]){4, 5}, sizeof(int32_t[2])); /* again from there; what was written since is written anew */
    }
    quern_state_destroy(s);
    fixture_close(&f);
    buf_release(&text);
    free(x);
}

static void test_state(void **state)
{
    check_state("interp");
    check_state("cpu");
}

/* Bad data. */

static void known_instance(struct instance *x)
{
    struct rng r = rng_seed(3);
    *x = (struct instance){.b = 2, .m = 2, .n = 4, .page = 4, .hk = 1, .h = 2, .d = 4, .t = 4, .window = -1, .is_causal = true, .is_rotary = true, .has_slots = true,
                           .ends = {0, 3, 4}, .past = {2, 5}, .table = {3, 1, 0, 2}, .slots = {14, 15, 4, 9}};
    fill(x->q, countof(x->q), &r), fill(x->k, countof(x->k), &r), fill(x->v, countof(x->v), &r);
    for (i64 c = 0; c < 2; c++) fill(x->cache[c], countof(x->cache[c]), &r), fill(x->angle[c], countof(x->angle[c]), &r);
}

struct bad { const char *want; int32_t ends[3], past[2], table[4], slots[4]; };
static const struct bad bad[] = {
    {"", {0, 3, 4}, {2, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"", {0, 3, 4}, {0, 3}, {3, -7, 0, 77}, {14, -1, 4, 9}}, /* pages that are not needed */
    {"at most 0; first_element_of_ends_n is element 0 of 'first element of ends'", {1, 3, 4}, {2, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"element 0 of 'last element of ends'", {0, 3, 5}, {2, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"element 0 of 'last element of ends'", {0, 3, 3}, {2, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"element 0 of 'shortest sequence of ends' is -2", {0, 6, 4}, {0, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"element 0 of 'least element of past' is -1", {0, 3, 4}, {-1, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"at most M*4 (8); longest_sequence_of_past_by_ends_n is element 0 of 'longest sequence of past by ends'", {0, 3, 4}, {2, 8}, {3, 1, 0, 2}, {14, 15, 4, 9}}, /* beyond the table's pages */
    {"element 0 of 'largest element of past'", {0, 3, 4}, {INT32_MAX, 5}, {3, 1, 0, 2}, {14, 15, 4, 9}},
    {"element 0 of 'least page of 4 positions of table by past, ends' is -1", {0, 3, 4}, {2, 5}, {3, -1, 0, 2}, {14, 15, 4, 9}},
    {"element 0 of 'largest page of 4 positions of table by past, ends'", {0, 3, 4}, {2, 5}, {3, 1, 0, 4}, {14, 15, 4, 9}},
    {"element 0 of '1 more than the least element of slots' is -1", {0, 3, 4}, {2, 5}, {3, 1, 0, 2}, {14, -2, 4, 9}},
    {"element 0 of '1 more than the largest element of slots'", {0, 3, 4}, {2, 5}, {3, 1, 0, 2}, {14, 16, 4, 9}},
};

static void run_bad(const struct fixture *f, struct instance *x, const struct bad *b)
{
    static float memory[3][512];
    const int64_t y[] = {x->t, x->h * x->d}, cache[] = {x->n, x->page, x->hk, x->d};
    struct feed in;
    quern_tensor *out[3] = {0};
    memcpy(x->ends, b->ends, sizeof b->ends), memcpy(x->past, b->past, sizeof b->past), memcpy(x->table, b->table, sizeof b->table), memcpy(x->slots, b->slots, sizeof b->slots);
    feed_all(f, &in, x);
    for (int k = 0; k < 3; k++) {
        for (i64 i = 0; i < countof(memory[k]); i++) memory[k][i] = -12345.75f;
        must(f, quern_tensor_view(f->q, QUERN_F32, k ? 4 : 2, k ? cache : y, memory[k], &out[k]));
    }
    quern_status got = quern_run(f->p, in.in, in.n, out, 3);
    if (!*b->want) must(f, got), check_results("valid data", x, out);
    else if (got != QUERN_INPUT || !strstr(quern_error(f->q), b->want) || !strstr(quern_error(f->q), "PagedAttention 'paged'"))
        fail_msg("%d, '%s' instead of '%s'", (int)got, quern_error(f->q), b->want);
    for (int k = 0; k < 3 && *b->want; k++)
        for (i64 i = 0; i < countof(memory[k]); i++)
            if (memory[k][i] != -12345.75f) fail_msg("%s: element %lld of output %d was written", b->want, (long long)i, k);
    free_tensors(in.in, in.n), free_tensors(out, 3);
}

static void test_bad_data(void **state)
{
    static const char *const devices[] = {"interp", "cpu"};
    struct instance *x = calloc(1, sizeof *x);
    struct fixture f;
    for (int d = 0; d < 2; d++) {
        known_instance(x);
        open_net(&f, x, devices[d]);
        for (int k = 0; k < countof(bad); k++) run_bad(&f, x, &bad[k]);
        fixture_close(&f);
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interp), cmocka_unit_test(test_cpu), cmocka_unit_test(test_vulkan), cmocka_unit_test(test_opencl), cmocka_unit_test(test_state), cmocka_unit_test(test_bad_data),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
