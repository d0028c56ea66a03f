// SPDX-License-Identifier: Apache-2.0
//
// Quantisation: ranges, steps, weights and biases have the properties that doc/quantize.md states,
// and random networks are quantised through the public interface: the result, read again and
// evaluated by the reference, has the error that was reported, and exactly the layers beyond
// max_error stay in f32.
#include "export/export.h"
#include "quant/quant.h"
#include "quern.h"
#include "random_net.h"
#include "seeds.h"
#include "tune/tune.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Ranges and steps. */

static double uniform(struct rng *r, double lo, double hi) { return lo + (hi - lo) * rng_f64(r); }

static void test_steps(void **state)
{
    struct rng r = rng_seed(1);
    for (int k = 0; k < 2000; k++) {
        double size = pow(10, uniform(&r, -12, 12));
        struct quant_range range = {-size * (k % 3 ? rng_f64(&r) : 0), size * (k % 5 ? rng_f64(&r) : 0)};
        bool is_signed = k & 1;
        struct quant_step s = quant_step_of(range, is_signed);
        i64 least = is_signed ? -128 : 0;
        assert_true(s.scale > 0 && isfinite(s.scale) && s.zero >= least && s.zero <= least + 255);
        for (int i = 0; i < 20; i++) {
            double x = i == 0 ? range.lo : i == 1 ? range.hi : i == 2 ? 0 : uniform(&r, range.lo, range.hi);
            double q = fmin(fmax(rint(x / (double)s.scale) + (double)s.zero, (double)least), (double)least + 255);
            double back = (q - (double)s.zero) * (double)s.scale;
            assert_true(fabs(back - x) <= (double)s.scale * (0.5 + 1e-4));
            if (x == 0) assert_true(back == 0);
        }
    }
    assert_true(quant_step_of((struct quant_range){0, 0}, false).scale > 0);
}

static struct tensor *values(struct arena *a, i64 n) { return tensor_new(a, DT_F32, 1, &n); }

static struct quant_range range_by(const struct tensor *t, enum quant_method m, double percentile, struct arena *a)
{
    struct quant_opts o = {.method = m, .percentile = percentile};
    struct quant_seen s = {.axis = -1};
    i64 at;
    assert_true(quant_see(&s, t, a, &at));
    if (quant_needs_bins(m)) quant_count(&s, t, a);
    return quant_range_of(&s, &o);
}

static void test_ranges(void **state)
{
    struct arena a = {0};
    struct rng r = rng_seed(2);
    enum { N = 100000 };
    for (int kind = 0; kind < 3; kind++) { /* both signs, after Relu, mostly positive */
        struct tensor *t = values(&a, N);
        float *x = t->data;
        for (int i = 0; i < N; i++) {
            x[i] = (float)rng_normal(&r);
            if (kind && x[i] < 0) x[i] *= kind == 1 ? 0 : 0.05f;
        }
        x[N / 2] = 200; /* an outlier */
        struct quant_range all = range_by(t, QUANT_MIN_MAX, 0, &a);
        assert_true(all.hi == 200 && (kind == 1 ? all.lo == 0 : all.lo < 0));
        struct quant_range kl = range_by(t, QUANT_ENTROPY, 0, &a);
        assert_true(kl.hi < 50 && kl.hi > 2 && kl.lo >= all.lo && kl.lo <= 0);
        for (int p = 0; p < 3; p++) {
            double percentile = p == 0 ? 99.99 : p == 1 ? 99 : 90;
            struct quant_range q = range_by(t, QUANT_PERCENTILE, percentile, &a);
            i64 below = 0, above = 0;
            for (int i = 0; i < N; i++) below += x[i] < q.lo, above += x[i] > q.hi;
            double most = N * (100 - percentile) / 100;
            assert_true((double)below <= most && (double)above <= most && q.hi < 100);
        }
    }
    struct tensor *t = values(&a, 1000); /* even: nothing is worth cutting off */
    for (int i = 0; i < 1000; i++) ((float *)t->data)[i] = (float)i / 999;
    assert_true(range_by(t, QUANT_ENTROPY, 0, &a).hi > 0.9);
    memset(t->data, 0, 4000);
    for (int m = 0; m < N_QUANT_METHODS; m++) {
        struct quant_range q = range_by(t, (enum quant_method)m, 99, &a);
        assert_true(q.lo == 0 && q.hi == 0);
    }
    arena_release(&a);
}

static void test_not_finite(void **state)
{
    struct arena a = {0};
    struct tensor *t = values(&a, 9);
    struct quant_seen s = {.axis = -1};
    i64 at = -1;
    ((float *)t->data)[5] = NAN;
    assert_false(quant_see(&s, t, &a, &at));
    assert_int_equal(at, 5);
    ((float *)t->data)[5] = 0, ((float *)t->data)[8] = -INFINITY;
    assert_false(quant_see(&s, t, &a, &at));
    assert_int_equal(at, 8);
    arena_release(&a);
}

/* Layers. */

/* A network of one layer, of a kind with the parameters of a random instance. */
static void one_layer(struct net *t, u64 seed)
{
    *t = (struct net){.rng = rng_seed(seed)};
    symtab_init(&t->sym, &t->arena);
    graph_init(&t->g, &t->arena, &t->sym);
    i64 kind = (i64)(seed % 4), group = net_pick(t, 0, 1) ? 1 : 2, c = 2 * net_pick(t, 1, 3), m = 2 * net_pick(t, 1, 4), k = net_pick(t, 1, 3);
    bool trans_b = net_pick(t, 0, 1), has_bias = kind != 3 && net_pick(t, 0, 1);
    i64 in4[4] = {1, c, 7, 6}, in2[2] = {5, c}, w4[4] = {m, c / group, k, k}, w2[2] = {trans_b ? m : c, trans_b ? c : m};
    if (kind == 1) w4[0] = c, w4[1] = m / group;
    if (kind == 3) w2[0] = c, w2[1] = m;
    bool is_conv = kind < 2;
    sym dim[4];
    for (u32 d = 0; d < 4; d++) dim[d] = sym_const(&t->sym, is_conv ? in4[d] : in2[d & 1]);
    value_id x = net_input(t, "x", is_conv ? 4 : 2, dim), in[3] = {x, net_const(t, is_conv ? 4 : 2, is_conv ? w4 : w2, pow(10, uniform(&t->rng, -3, 3))), 0};
    if (has_bias) in[2] = net_const(t, 1, &m, pow(10, uniform(&t->rng, -3, 3)));
    node_id n = net_node(t, kind == 0 ? "Conv" : kind == 1 ? "ConvTranspose" : kind == 2 ? "Gemm" : "MatMul", has_bias ? 3 : 2, in);
    if (is_conv) attr_set_int(&t->g, n, "group", group);
    if (kind == 2) attr_set_int(&t->g, n, "transB", trans_b);
    *arr_push(&t->arena, &t->g.output) = graph_node(&t->g, n)->out.v[0];
    assert_true(op_infer_all(&t->g, &t->e));
}

/* The index of the output channel of each weight, from the definition of the operators. */
static i64 channel_of(const struct graph *g, node_id id, const struct tensor *w, i64 i)
{
    const struct node *n = graph_node(g, id);
    i64 idx[MAX_RANK];
    for (u32 d = w->rank; d-- > 0; i /= w->dim[d]) idx[d] = i % w->dim[d];
    if (str_is(n->op, "Conv") || (str_is(n->op, "Gemm") && attr_int(n, "transB", 0))) return idx[0];
    return str_is(n->op, "ConvTranspose") && attr_int(n, "group", 1) > 1 ? 0 : idx[1];
}

/* The largest sum of the magnitudes of weights of one sign that op_acc16 has for four terms. */
static i64 largest_sum(const struct graph *g, node_id n, const struct tensor *w, i64 channel)
{
    i64 most = 0, sum[2][64] = {{0}}, taps = w->rank > 2 ? w->dim[2] * w->dim[3] : 1;
    bool by_rows = channel_of(g, n, w, w->dim[1] * taps) == 1; /* (output channel, term, tap), else (term, output channel) */
    i64 terms = w->dim[by_rows], inner = by_rows ? taps : w->dim[1];
    for (i64 tap = 0; tap < (by_rows ? taps : 1); tap++) {
        memset(sum, 0, sizeof sum);
        for (i64 k = 0; k < terms; k++) {
            i64 q = elem_i64(DT_I8, w->data, by_rows ? (channel * terms + k) * inner + tap : k * inner + channel);
            sum[q < 0][k / 8 * 2 + k % 4 / 2] += q < 0 ? -q : q;
        }
        for (i64 i = 0; i < 64; i++) most = i64_max(most, i64_max(sum[0][i], sum[1][i]));
    }
    return most;
}

static void test_layers(void **state)
{
    for (u64 seed = first_seed(0, 200); seed < last_seed(0, 200); seed++) {
        struct net t;
        struct arena a = {0};
        struct quant_layer l;
        one_layer(&t, seed);
        node_id n = graph_value(&t.g, t.g.output.v[0])->producer;
        assert_true(quant_layer_find(&t.g, n, &l));
        struct quant_step x = {.scale = (float)pow(10, uniform(&t.rng, -4, 4))};
        bool has_sums = !str_is(graph_node(&t.g, n)->op, "ConvTranspose");
        l.is_reduced = seed / 4 % 2;
        assert_true(quant_layer_settle(&t.g, &l, x, NULL, &a, &t.e));
        const struct tensor *w = graph_value(&t.g, l.w)->data, *b = l.bias ? graph_value(&t.g, l.bias)->data : NULL;
        i64 n_scale = tensor_count(l.scale);
        int *most = arena_array(&a, int, n_scale);
        for (i64 i = 0; i < tensor_count(w); i++) {
            i64 c = channel_of(&t.g, n, w, i);
            assert_true(c < n_scale);
            double s = elem_f64(DT_F32, l.scale->data, c), q = elem_f64(DT_I8, l.qw->data, i);
            assert_true(fabs(q * s - elem_f64(DT_F32, w->data, i)) <= s * (0.5 + 1e-5) && fabs(q) <= (l.is_reduced ? 64 : 127));
            most[c] = most[c] > (int)fabs(q) ? most[c] : (int)fabs(q);
        }
        for (i64 c = 0; c < n_scale; c++) {
            double s = elem_f64(DT_F32, l.scale->data, c), bias = b && l.qbias ? elem_f64(DT_F32, b->data, c) : 0;
            bool is_bounded = fabs(bias) > 0x1p29 * s * (double)x.scale; /* the bias needs the scale */
            i64 sum = l.is_reduced && has_sums ? largest_sum(&t.g, n, l.qw, c) : 0; /* 128 * 255 fits i16; rounding may add 2, or take them off */
            assert_true(sum <= 128 && (most[c] == (l.is_reduced ? 64 : 127) || sum >= 124 || is_bounded));
            if (!l.qbias) continue;
            double step = s * (double)x.scale;
            assert_true(fabs(elem_f64(DT_I32, l.qbias->data, c) * step - bias) <= step * 0.5 + 1e-6 * fabs(bias));
        }
        arena_release(&a);
        net_close(&t);
    }
}

/* The mean result over inputs with given means is exact after the correction: for convolutions of kernel 1 and matmuls
   the mean of the result is the product of the weights with the means. */
static void test_correction(void **state)
{
    struct arena a = {0};
    struct rng r = rng_seed(5);
    for (int k = 0; k < 50; k++) {
        struct err e = {0};
        struct net t = {.rng = rng_seed((u64)k)};
        symtab_init(&t.sym, &t.arena);
        graph_init(&t.g, &t.arena, &t.sym);
        i64 groups = k % 2 + 1, c = 4, m = 6, w_dim[4] = {m, c / groups, 1, 1};
        sym dim[4] = {sym_const(&t.sym, 1), sym_const(&t.sym, c), sym_const(&t.sym, 5), sym_const(&t.sym, 5)};
        value_id in[3] = {net_input(&t, "x", 4, dim), net_const(&t, 4, w_dim, 1), net_const(&t, 1, &m, 1)};
        node_id n = net_node(&t, "Conv", 3, in);
        attr_set_int(&t.g, n, "group", groups);
        *arr_push(&t.arena, &t.g.output) = graph_node(&t.g, n)->out.v[0];
        assert_true(op_infer_all(&t.g, &e));
        struct quant_layer l;
        assert_true(quant_layer_find(&t.g, 1, &l) && quant_layer_channel_axis(&t.g, &l) == 1);
        double mean[4];
        for (int i = 0; i < 4; i++) mean[i] = uniform(&r, -3, 9);
        assert_true(quant_layer_settle(&t.g, &l, (struct quant_step){.scale = 0.01f}, mean, &a, &e));
        for (i64 o = 0; o < m; o++) {
            double s = elem_f64(DT_F32, l.scale->data, o), want = elem_f64(DT_F32, graph_value(&t.g, l.bias)->data->data, o);
            double got = elem_f64(DT_I32, l.qbias->data, o) * s * (double)0.01f;
            for (i64 i = 0; i < c / groups; i++) {
                double by = mean[o / (m / groups) * (c / groups) + i];
                want += elem_f64(DT_F32, graph_value(&t.g, l.w)->data->data, o * (c / groups) + i) * by;
                got += elem_f64(DT_I8, l.qw->data, o * (c / groups) + i) * s * by;
            }
            assert_true(fabs(got - want) <= 0.51 * s * 0.01);
        }
        arena_release(&t.arena);
    }
    arena_release(&a);
}

/* Whole networks. */

enum { N_SAMPLES = 3, MAX_ROWS = 64 };

struct whole {
    struct net net;
    quern *q;
    quern_model *m, *out;
    u64 seed;
    i64 h, w;
    struct { double own, total; bool is_output, is_quantized; } row[MAX_ROWS];
    int n_rows;
};

/* Outputs once each, without inputs, as ONNX requires. */
static void clean_outputs(struct net *t)
{
    u32 n = 0;
    for (u32 k = 0; k < t->g.output.n; k++) {
        value_id v = t->g.output.v[k];
        bool keep = graph_value(&t->g, v)->producer != 0;
        for (u32 i = 0; i < n; i++) keep &= t->g.output.v[i] != v;
        if (keep) t->g.output.v[n++] = v;
    }
    t->g.output.n = n;
}

/* With fixed sizes, which many more convolutions accept than symbolic ones. */
static void open_fixed(struct net *t, u64 seed, i64 h, i64 w)
{
    *t = (struct net){.rng = rng_seed(seed), .kind = seed % 4 == 0 ? NET_ANY : NET_CONVS};
    symtab_init(&t->sym, &t->arena);
    graph_init(&t->g, &t->arena, &t->sym);
    i64 size[4] = {net_pick(t, 1, 2), net_pick(t, 1, 9), h, w};
    sym dim[4];
    for (u32 d = 0; d < 4; d++) dim[d] = sym_const(&t->sym, size[d]);
    *(arr_push(&t->arena, &t->have)) = net_input(t, "x", 4, dim);
    if (net_pick(t, 0, 2) == 0) *(arr_push(&t->arena, &t->have)) = net_input(t, "y", 4, dim);
    for (i64 n = net_pick(t, 3, 15); n > 0; n--) net_grow(t);
    net_outputs(t);
}

static bool open_whole(struct whole *x, u64 seed)
{
    struct buf b = {0};
    *x = (struct whole){.seed = seed, .q = quern_open(NULL)};
    x->h = 4 + (i64)(seed % 3) * 2, x->w = 6 + (i64)(seed % 2) * 2;
    if (seed % 7) open_fixed(&x->net, seed, x->h, x->w);
    else net_open(&x->net, seed);
    clean_outputs(&x->net);
    bool ok = x->net.g.output.n && op_infer_all(&x->net.g, &x->net.e) && export_onnx_bytes(&x->net.g, &b, &x->net.e);
    ok = ok && quern_model_read(x->q, b.p, (size_t)b.n, "net", NULL, &x->m) == QUERN_OK;
    buf_release(&b);
    return ok;
}

static void close_whole(struct whole *x)
{
    quern_model_close(x->m);
    quern_model_close(x->out);
    quern_close(x->q);
    net_close(&x->net);
}

static quern_status sample(void *user, int k, quern_tensor **in, int n_in)
{
    struct whole *x = user;
    struct arena a = {0};
    quern_status s = QUERN_OK;
    if (k == N_SAMPLES) return QUERN_NOTHING;
    i64 *var = arena_array(&a, i64, x->net.sym.var.n);
    for (u32 v = 0; v < x->net.sym.var.n; v++) var[v] = str_is(x->net.sym.var.v[v], "H") ? x->h : x->w;
    x->net.rng = rng_seed(x->seed * 100 + (u64)k);
    const struct tensor *t = net_inputs(&x->net, &a, var);
    for (int i = 0; i < n_in && !s; i++)
        s = quern_tensor_new(x->q, (quern_dtype)dtype_onnx(t[i].dtype), (int)t[i].rank, t[i].dim, t[i].data, &in[i]);
    arena_release(&a);
    return s;
}

static void keep_row(void *user, const struct quern_quantized *q)
{
    struct whole *x = user;
    assert_true(x->n_rows < MAX_ROWS);
    x->row[x->n_rows].own = q->own, x->row[x->n_rows].total = q->total;
    x->row[x->n_rows].is_output = q->is_output, x->row[x->n_rows++].is_quantized = q->is_quantized;
    assert_true(q->name && q->op);
}

static quern_status quantize(struct whole *x, struct quern_quantize_opts o)
{
    o.size = sizeof o;
    o.device = "interp", o.report = keep_row, o.report_user = x;
    x->n_rows = 0;
    quern_model_close(x->out);
    x->out = NULL;
    return quern_quantize(x->m, sample, x, &o, &x->out);
}

/* The relative error of each output, by the reference evaluator. */
static void reference_errors(struct whole *x, double *error)
{
    u32 n_out = x->net.g.output.n;
    double noise[MAX_ROWS] = {0}, signal[MAX_ROWS] = {0};
    for (int k = 0; k < N_SAMPLES; k++) {
        quern_tensor *in[8] = {0}, *want[MAX_ROWS] = {0}, *got[MAX_ROWS] = {0};
        int n_in = quern_model_inputs(x->m);
        assert_int_equal(sample(x, k, in, n_in), QUERN_OK);
        assert_int_equal(quern_model_eval(x->m, in, n_in, want, (int)n_out), QUERN_OK);
        if (quern_model_eval(x->out, in, n_in, got, (int)n_out)) fail_msg("%s", quern_error(x->q));
        for (u32 i = 0; i < n_out; i++) {
            enum dtype t = dtype_from_onnx((int)quern_tensor_dtype(want[i]));
            assert_true(quern_tensor_dtype(got[i]) == quern_tensor_dtype(want[i]) && quern_tensor_count(got[i]) == quern_tensor_count(want[i]));
            for (int64_t e = 0; e < quern_tensor_count(want[i]); e++) {
                double w = elem_f64(t, quern_tensor_data(want[i]), e), d = elem_f64(t, quern_tensor_data(got[i]), e) - w;
                noise[i] += d * d, signal[i] += w * w;
            }
            quern_tensor_free(want[i]), quern_tensor_free(got[i]);
        }
        for (int i = 0; i < n_in; i++) quern_tensor_free(in[i]);
    }
    for (u32 i = 0; i < n_out; i++) error[i] = noise[i] > 0 ? sqrt(noise[i] / signal[i]) : 0;
}

/* Whether the network could be quantised. */
static bool check_whole(struct whole *x, struct quern_quantize_opts o)
{
    double error[MAX_ROWS];
    quern_status s = quantize(x, o);
    if (s == QUERN_UNSUPPORTED || s == QUERN_INPUT) return false; /* no layers; infinities */
    if (s) fail_msg("seed %llu: %s", (unsigned long long)x->seed, quern_error(x->q));
    reference_errors(x, error);
    int n_layers = x->n_rows - (int)x->net.g.output.n;
    for (u32 k = 0; k < x->net.g.output.n; k++) {
        double told = x->row[n_layers + (int)k].total;
        assert_true(x->row[n_layers + (int)k].is_output);
        if (fabs(error[k] - told) > 0.05 * told + 1e-5)
            fail_msg("seed %llu: output %u has error %g, %g was reported", (unsigned long long)x->seed, k, error[k], told);
    }
    return true;
}

/* Layers beyond a bound, and only they, stay in f32. */
static void check_bound(struct whole *x)
{
    double own[MAX_ROWS] = {0};
    int n = x->n_rows - (int)x->net.g.output.n, above = 0;
    for (int k = 0; k < n; k++) own[k] = x->row[k].own;
    struct quern_quantize_opts o = {.max_error = own[n / 2]};
    for (int k = 0; k < n; k++) above += own[k] > o.max_error;
    quern_status s = quantize(x, o);
    if (s == QUERN_USAGE || o.max_error <= 0) return;
    assert_int_equal(s, above == n ? QUERN_NOTHING : QUERN_OK);
    for (int k = 0; k < n && !s; k++) assert_true(x->row[k].is_quantized == (own[k] <= o.max_error));
}

static void test_networks(void **state)
{
    static const char *const method[] = {"min-max", "entropy", "percentile"};
    u64 n_done = 0, n_good = 0;
    for (u64 seed = first_seed(0, 20); seed < last_seed(0, 20); seed++) {
        struct whole x;
        if (open_whole(&x, seed)) {
            struct quern_quantize_opts o = {.method = method[seed % 3], .activations = seed % 2 ? "i8" : NULL, .no_bias_correction = seed % 5 == 0};
            if (check_whole(&x, o)) {
                n_done++, n_good += x.row[x.n_rows - 1].total < 0.2;
                if (!o.method || !strcmp(o.method, "min-max")) check_bound(&x);
            }
        }
        close_whole(&x);
    }
    if (!is_enough(n_done, 12)) fail_msg("only %llu networks were quantised", (unsigned long long)n_done);
    if (n_good * 10 < n_done * 7) fail_msg("%llu of %llu networks have a small error", (unsigned long long)n_good, (unsigned long long)n_done);
}

/* Wrong use. */

static quern_status no_sample(void *user, int k, quern_tensor **in, int n_in) { return QUERN_NOTHING; }
static quern_status broken_sample(void *user, int k, quern_tensor **in, int n_in) { return QUERN_FAILED; }
static quern_status empty_sample(void *user, int k, quern_tensor **in, int n_in) { return QUERN_OK; }
static quern_status nan_sample(void *user, int k, quern_tensor **in, int n_in)
{
    quern_status s = sample(user, k, in, n_in);
    for (int i = 0; i < n_in && !s; i++) ((float *)quern_tensor_data(in[i]))[0] = NAN;
    return s;
}

/* The call fails and says so. */
static void refused(struct whole *x, quern_sample_fn *fn, struct quern_quantize_opts o, quern_status want, const char *says)
{
    o.size = sizeof o, o.device = "interp";
    quern_model *out = NULL;
    quern_status s = quern_quantize(x->m, fn, x, &o, &out);
    if (s != want || !strstr(quern_error(x->q), says)) fail_msg("status %d, '%s', expected %d, '%s'", (int)s, quern_error(x->q), (int)want, says);
    assert_null(out);
}

static void test_refused(void **state)
{
    static const char *const unknown[] = {"nobody", NULL}, *const all[] = {"*", NULL};
    struct whole x;
    u64 seed = 1;
    for (; !open_whole(&x, seed) || quantize(&x, (struct quern_quantize_opts){0}) != QUERN_OK; seed++) close_whole(&x);
    refused(&x, no_sample, (struct quern_quantize_opts){0}, QUERN_INPUT, "at least one sample");
    refused(&x, broken_sample, (struct quern_quantize_opts){0}, QUERN_INPUT, "sample 0");
    refused(&x, empty_sample, (struct quern_quantize_opts){0}, QUERN_USAGE, "no tensor for input");
    refused(&x, nan_sample, (struct quern_quantize_opts){0}, QUERN_INPUT, "not finite");
    refused(&x, sample, (struct quern_quantize_opts){.method = "best"}, QUERN_USAGE, "min-max, entropy, percentile");
    refused(&x, sample, (struct quern_quantize_opts){.activations = "u4"}, QUERN_USAGE, "expected u8 or i8");
    refused(&x, sample, (struct quern_quantize_opts){.percentile = 101}, QUERN_USAGE, "between 50 and 100");
    refused(&x, sample, (struct quern_quantize_opts){.max_error = -1}, QUERN_USAGE, "negative");
    refused(&x, sample, (struct quern_quantize_opts){.max_error = 1e-30}, QUERN_NOTHING, "max-error");
    refused(&x, sample, (struct quern_quantize_opts){.keep = unknown}, QUERN_USAGE, "no layer is named");
    refused(&x, sample, (struct quern_quantize_opts){.keep = all}, QUERN_NOTHING, "kept in f32");
    close_whole(&x);
}

/* Verification: outputs may differ as values near ties may be rounded either way. */

static double spread(const char *text, const float *x, i64 n)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    double found = -1;
    symtab_init(&st, &a);
    if (!graph_parse(&g, &a, &st, str_of(text), &e) || !op_infer_all(&g, &e)) fail_msg("%s", e.msg);
    struct tensor *in = tensor_new(&a, DT_F32, 1, &n), *want;
    memcpy(in->data, x, (size_t)n * sizeof *x);
    if (!graph_eval(&g, &in, &want, &a, NULL, &e)) fail_msg("%s", e.msg);
    const struct rounding r = {.g = &g, .primitives = &g, .in = &in, .want = (const struct tensor *const *)&want, .var = NULL, .seed = 1};
    if (!network_rounding(&r, &found, &e)) fail_msg("%s", e.msg);
    arena_release(&a);
    return found;
}

static void test_ties(void **state)
{
    static const char rounds[] = "graph {\n  input %x: f32[8]\n  %r: none[?] = Round(%x)\n  %y: none[?] = Add(%r, %x)\n  output %y\n}\n",
                      none[] = "graph {\n  input %x: f32[8]\n  %y: none[?] = Add(%x, %x)\n  output %y\n}\n";
    static const float ties[] = {0.5f, 1.5f, 2.5f, -0.5f, 100.5f, 7.5f, -3.5f, 9.5f}, far[] = {0.25f, 1.7f, -2, 0, 100, 7.1f, -3.75f, 9};
    double s = spread(rounds, ties, 8);
    assert_true(s >= 1 && s < 10); /* steps of 1 */
    assert_true(spread(rounds, far, 8) == 0);
    assert_true(spread(none, ties, 8) == 0);
}

/* Weights alone. */

enum { TERMS = 75, COLUMNS = 20, ROWS = 60 };

struct weights {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct quant t;
    struct tensor *x, *w; /* (ROWS, TERMS), (TERMS, COLUMNS) */
    bool is_transposed;
};

/* x w, or a Gemm with w transposed; neighbours in x are alike, so that their weights can make up for each other. */
static void weights_open(struct weights *s, u64 seed, enum dtype type, i64 block)
{
    struct rng r = rng_seed(seed);
    struct err e = {0};
    *s = (struct weights){.is_transposed = seed & 1};
    symtab_init(&s->sym, &s->a);
    graph_init(&s->g, &s->a, &s->sym);
    s->x = tensor_new(&s->a, DT_F32, 2, (i64[]){ROWS, TERMS}), s->w = tensor_new(&s->a, DT_F32, 2, (i64[]){TERMS, COLUMNS});
    float *x = s->x->data;
    for (i64 i = 0; i < ROWS * TERMS; i++) x[i] = (float)(rng_normal(&r) + (i % TERMS ? 0.9 * (double)x[i - 1] : 0));
    for (i64 i = 0; i < TERMS * COLUMNS; i++) ((float *)s->w->data)[i] = (float)(i % COLUMNS ? rng_normal(&r) : 0); /* a column of zeros */
    struct tensor *w = tensor_new(&s->a, DT_F32, 2, s->is_transposed ? (i64[]){COLUMNS, TERMS} : (i64[]){TERMS, COLUMNS});
    for (i64 i = 0; i < TERMS * COLUMNS; i++) ((float *)w->data)[s->is_transposed ? i % COLUMNS * TERMS + i / COLUMNS : i] = ((float *)s->w->data)[i];
    value_id in[] = {graph_add_value(&s->g, S("x")), graph_add_const(&s->g, S("w"), w)}, y;
    graph_value(&s->g, in[0])->dtype = DT_F32;
    graph_value(&s->g, in[0])->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(&s->sym, ROWS), sym_const(&s->sym, TERMS)}};
    *arr_push(&s->a, &s->g.input) = in[0];
    y = graph_op(&s->g, s->is_transposed ? "Gemm" : "MatMul", S("y"), 2, in);
    if (s->is_transposed) attr_set_int(&s->g, graph_value(&s->g, y)->producer, "transB", 1);
    *arr_push(&s->a, &s->g.output) = y;
    const struct quant_opts o = {.weights = type, .block = block};
    if (!quant_open(&s->t, &s->g, &o, &s->a, &e)) fail_msg("%s", e.msg);
    assert_int_equal(s->t.layer.n, 1);
}

/* Sum of squares of x w less the results of the network that is written. */
static double weights_error(struct weights *s)
{
    struct graph g;
    struct err e = {0};
    struct tensor *got = NULL, *want = NULL;
    double sum = 0;
    if (!quant_weights_settle(&s->t, &e) || !quant_write_weights(&s->t, &g, NULL, 0, &e)) fail_msg("%s", e.msg);
    assert_true(graph_eval(&g, &s->x, &got, &s->a, NULL, &e) && graph_eval(&s->t.g, &s->x, &want, &s->a, NULL, &e));
    for (i64 i = 0; i < ROWS * COLUMNS; i++) sum += pow((double)((float *)got->data)[i] - (double)((float *)want->data)[i], 2);
    return sum;
}

/* Of weights with the scale that maps the largest one to the end of the range. */
static double plain_error(const struct weights *s, i64 most, i64 block)
{
    double sum = 0;
    for (i64 n = 0; n < COLUMNS; n++)
        for (i64 from = 0; from < TERMS; from += block) {
            double largest = 0;
            const float *w = (const float *)s->w->data + n;
            for (i64 k = from; k < i64_min(TERMS, from + block); k++)
                if (fabs((double)w[k * COLUMNS]) > fabs(largest)) largest = (double)w[k * COLUMNS];
            for (i64 k = from; k < i64_min(TERMS, from + block) && largest != 0; k++) {
                double scale = -largest / (double)most, q = fmin(rint((double)w[k * COLUMNS] / scale), (double)most - 1);
                sum += pow(q * scale - (double)w[k * COLUMNS], 2);
            }
        }
    return sum;
}

/* The error of weights is not above that of the plain scale, but for its rounding to f16, that of results not above what follows from it; GPTQ has less. */
static void test_weights(void **state)
{
    double ratio = 0;
    u32 n = 0;
    for (u64 seed = 0; seed < 16; seed++) {
        const enum dtype type = seed / 2 % 2 ? DT_I4 : DT_I8;
        const i64 block = seed / 4 % 2 ? 16 : 32;
        struct weights plain, gptq;
        struct err e = {0};
        weights_open(&plain, seed, type, block);
        weights_open(&gptq, seed, type, block);
        double error = weights_error(&plain), bound = plain_error(&plain, type == DT_I4 ? 8 : 128, block);
        assert_true(plain.t.layer.v[0].noise <= 1.02 * bound + 1e-9 && plain.t.layer.v[0].signal > 0);
        assert_true(quant_gptq_open(&gptq.t, &e));
        quant_gptq_see(&gptq.t.layer.v[0], gptq.x);
        double less = weights_error(&gptq);
        if (!(less < error)) fail_msg("seed %d: %g with GPTQ, %g without", (int)seed, less, error);
        ratio += less / error, n++;
        arena_release(&plain.a);
        arena_release(&gptq.a);
    }
    print_message("GPTQ leaves %.2f of the squared error\n", ratio / n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),      cmocka_unit_test(test_ranges),   cmocka_unit_test(test_not_finite), cmocka_unit_test(test_layers),
        cmocka_unit_test(test_correction), cmocka_unit_test(test_networks), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_ties), cmocka_unit_test(test_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
