// SPDX-License-Identifier: Apache-2.0
//
// quern filter: filters pictures by a kernel for each pixel, or one for all, and computes
// the gradients: the operators of doc/weighted-filter.md on files. Sizes are checked here,
// where the files' names are known. A kernel for all pixels is an array with strides 0.
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIDE = 4096, MAX_DILATION = 1 << 20, MAX_CHANNELS = 1 << 16 };

struct filter {
    struct cli *c;
    quern_db *db;
    int64_t kernel[2], dilation[2]; /* rows, columns */
    int64_t more[2];                /* size of the larger image minus that of the weight map */
    bool is_splat, is_valid;
    int64_t n, channels;
    int64_t size[2], near[2], result[2]; /* of x, of the weight map, of y */
    quern_tensor *x, *w, *bias, *dy;
    bool is_same;          /* w is (kh, kw), for all pixels */
    char attributes[400];
    char near_names[16], far_names[64]; /* sizes that may change without a new kernel */
};

struct call { /* of an operator */
    const char *op, *sizes, *path; /* path: file of its result */
    struct quern_array in[3];
    int n_in, rank;                /* rank: of the file, without leading axes of size 1 */
};

/* words */

/* "5" or "5x3", rows first; returns the rest, NULL: invalid. */
static const char *read_pair(const char *s, long max, int64_t v[2])
{
    char *end = NULL;
    for (int k = 0; k < 2; k++) {
        if (*s < '0' || *s > '9') return NULL;
        long x = strtol(s, &end, 10);
        if (x < 1 || x > max) return NULL;
        v[k] = v[1] = x;
        if (k || *end != 'x') break;
        s = end + 1;
    }
    return end;
}

/* "1,2.5,-3" into v, up to its capacity; returns their number, 0: invalid. */
static int64_t read_numbers(const char *s, float *v, int64_t max)
{
    int64_t n = 0;
    char *end;
    for (;; s = end + 1) {
        double x = strtod(s, &end);
        if (end == s || !isfinite((float)x) || (*end && *end != ',')) return 0;
        if (n < max) v[n] = (float)x;
        n++;
        if (!*end) return n;
    }
}

/* The option's value, one of the words, by default the first; NULL: a message was printed. */
static const char *word_of(const struct cli *c, const char *option, const char *const *words)
{
    const char *v = opts_text(c, option);
    if (!v) return words[0];
    for (int k = 0; words[k]; k++)
        if (!strcmp(v, words[k])) return words[k];
    fprintf(stderr, "quern %s: --%s is '%s', expected", c->cmd->name, option, v);
    for (int k = 0; words[k]; k++) fprintf(stderr, "%s '%s'", k ? " or" : "", words[k]);
    fprintf(stderr, "\n");
    return NULL;
}

static int read_dilations(struct filter *f)
{
    const char *s = opts_text(f->c, "dilations"), *end;
    f->dilation[0] = f->dilation[1] = 1;
    if (!s) return EXIT_DONE;
    end = read_pair(s, MAX_DILATION, f->dilation);
    return end && !*end ? EXIT_DONE : usage_error(f->c, "--dilations is '%s', expected D or DHxDW, from 1 to %d", s, MAX_DILATION);
}

/* The attributes of the operators, given kernel and dilations. */
static int make_attributes(struct filter *f)
{
    static const char *const modes[] = {"gather", "splat", NULL}, *const paddings[] = {"zero", "reflect", "replicate", "valid", NULL},
                            *const transforms[] = {"none", "exp", "softmax", NULL}, *const norms[] = {"none", "sum", NULL};
    struct cli *c = f->c;
    const char *mode = word_of(c, "mode", modes), *padding = word_of(c, "padding", paddings), *transform = word_of(c, "transform", transforms),
               *normalize = word_of(c, "normalize", norms);
    if (!mode || !padding || !transform || !normalize) return EXIT_USAGE;
    f->is_splat = !strcmp(mode, "splat"), f->is_valid = !strcmp(padding, "valid");
    snprintf(f->attributes, sizeof f->attributes,
             "kernel_shape=[%d,%d], dilations=[%d,%d], mode=\"%s\", padding=\"%s\", transform=\"%s\", normalize=\"%s\", epsilon=%.9e",
             (int)f->kernel[0], (int)f->kernel[1], (int)f->dilation[0], (int)f->dilation[1], mode, padding, transform, normalize,
             opts_number(c, "epsilon", 0));
    return EXIT_DONE;
}

/* files */

static bool is_float(quern_dtype t) { return t == QUERN_F32 || t == QUERN_F16 || t == QUERN_BF16 || t == QUERN_F64; }

/* Integers become f32. */
static int read_floats(struct filter *f, const char *path, quern_tensor **t)
{
    int code = fail(f->c, quern_tensor_read(f->c->q, path, t));
    return code || is_float(quern_tensor_dtype(*t)) ? code : tensor_convert(f->c, QUERN_F32, t);
}

/* Size of axis d of (n, channels, rows, columns); leading ones may be omitted. */
static int64_t axis(const quern_tensor *t, int d)
{
    int k = d - 4 + quern_tensor_rank(t);
    return k < 0 ? 1 : quern_tensor_dims(t)[k];
}

static int read_x(struct filter *f)
{
    const struct want any = {.name = "x", .rank = 4, .dim = {-1, -1, -1, -1}, .sym = {"N", "C", "H", "W"}};
    const char *path = f->c->arg[0];
    int code = read_floats(f, path, &f->x);
    if (code) return code;
    int rank = quern_tensor_rank(f->x);
    if (rank < 2 || rank > 4) return tensor_check_shape(path, &any, f->x);
    f->n = axis(f->x, 0), f->channels = axis(f->x, 1);
    for (int i = 0; i < 2; i++) f->size[i] = axis(f->x, 2 + i);
    return EXIT_DONE;
}

/* kernel for all pixels */

static int kernel_error(const struct filter *f, const char *s)
{
    return usage_error(f->c, "--kernel is '%s', expected box:K, gauss:K,SIGMA, KHxKW:NUMBER,NUMBER... or FILE.npy, sides from 1 to %d", s,
                       MAX_SIDE);
}

static int new_kernel(struct filter *f) { return fail(f->c, quern_tensor_new(f->c->q, QUERN_F32, 2, f->kernel, NULL, &f->w)); }

/* Samples of exp(-r^2 / (2 sigma^2)) around the middle, with sum 1; sigma infinite: uniform. */
static int fill_gauss(struct filter *f, double sigma)
{
    int code = new_kernel(f);
    if (code) return code;
    int64_t h = f->kernel[0], w = f->kernel[1];
    float *v = quern_tensor_data(f->w);
    double sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < w; j++) {
                double y = ((double)i - (double)(h - 1) / 2) / sigma, x = ((double)j - (double)(w - 1) / 2) / sigma, g = exp(-(x * x + y * y) / 2);
                if (!pass) sum += g;
                else v[i * w + j] = (float)(g / sum);
            }
    return sum > 0 ? EXIT_DONE : usage_error(f->c, "all weights of the Gauss kernel are 0: sigma is %g", sigma);
}

static int read_gauss(struct filter *f, const char *s, const char *size)
{
    float sigma = 0;
    const char *end = read_pair(size, MAX_SIDE, f->kernel);
    if (!end || *end != ',' || read_numbers(end + 1, &sigma, 1) != 1 || !(sigma > 0)) return kernel_error(f, s);
    return fill_gauss(f, (double)sigma);
}

static int read_listed(struct filter *f, const char *s)
{
    const char *end = read_pair(s, MAX_SIDE, f->kernel);
    if (!end || *end != ':') return kernel_error(f, s);
    int code = new_kernel(f);
    if (code) return code;
    int64_t want = f->kernel[0] * f->kernel[1], n = read_numbers(end + 1, quern_tensor_data(f->w), want);
    if (n == want) return EXIT_DONE;
    return n ? usage_error(f->c, "%lld numbers in --kernel, expected %lld for %lldx%lld", (long long)n, (long long)want,
                           (long long)f->kernel[0], (long long)f->kernel[1])
             : kernel_error(f, s);
}

static int read_kernel_file(struct filter *f, const char *path)
{
    const struct want any = {.name = "kernel", .rank = 2, .dim = {-1, -1}, .sym = {"KH", "KW"}};
    int code = read_floats(f, path, &f->w);
    if (!code) code = tensor_check_shape(path, &any, f->w);
    for (int i = 0; i < 2 && !code; i++) {
        f->kernel[i] = quern_tensor_dims(f->w)[i];
        if (f->kernel[i] < 1 || f->kernel[i] > MAX_SIDE) code = kernel_error(f, path);
    }
    return code;
}

static int read_kernel(struct filter *f, const char *s)
{
    f->is_same = true;
    if (has_suffix(s, ".npy")) return read_kernel_file(f, s);
    if (!strncmp(s, "gauss:", 6)) return read_gauss(f, s, s + 6);
    if (strncmp(s, "box:", 4)) return read_listed(f, s);
    const char *end = read_pair(s + 4, MAX_SIDE, f->kernel);
    return end && !*end ? fill_gauss(f, (double)INFINITY) : kernel_error(f, s);
}

/* kernels of pixels */

static int kernel_of_taps(struct filter *f, const char *path, int64_t taps)
{
    const char *shape = opts_text(f->c, "kernel-shape"), *end;
    int64_t side = (int64_t)(sqrt((double)taps) + 0.5);
    if (shape) {
        end = read_pair(shape, MAX_SIDE, f->kernel);
        return end && !*end ? EXIT_DONE : usage_error(f->c, "--kernel-shape is '%s', expected K or KHxKW, from 1 to %d", shape, MAX_SIDE);
    }
    f->kernel[0] = f->kernel[1] = side;
    if (side >= 1 && side <= MAX_SIDE && side * side == taps) return EXIT_DONE;
    return usage_error(f->c, "'%s' has %lld weights per pixel, not a square number: give --kernel-shape KHxKW", path, (long long)taps);
}

static int read_weights(struct filter *f, const char *path)
{
    const struct want any = {.name = "weights", .rank = 4, .dim = {-1, -1, -1, -1}, .sym = {"N", "T", "H", "W"}};
    int code = read_floats(f, path, &f->w);
    if (code) return code;
    int rank = quern_tensor_rank(f->w);
    return rank == 3 || rank == 4 ? kernel_of_taps(f, path, axis(f->w, 1)) : tensor_check_shape(path, &any, f->w);
}

static int read_taps(struct filter *f)
{
    const char *weights = opts_text(f->c, "weights"), *kernel = opts_text(f->c, "kernel");
    if (!weights == !kernel) return usage_error(f->c, "give either --weights FILE or --kernel KERNEL");
    if (kernel && opts_text(f->c, "kernel-shape")) return usage_error(f->c, "--kernel-shape applies to --weights only: --kernel contains its shape");
    return weights ? read_weights(f, weights) : read_kernel(f, kernel);
}

/* sizes */

static void put_names(const struct filter *f, char *out, size_t size)
{
    int n = snprintf(out, size, "N:?");
    for (int i = 0; i < 2; i++)
        n += f->more[i] ? snprintf(out + n, size - (size_t)n, ":%c+%lld", "HW"[i], (long long)f->more[i])
                        : snprintf(out + n, size - (size_t)n, ":%c", "HW"[i]);
}

static int set_sizes(struct filter *f)
{
    snprintf(f->near_names, sizeof f->near_names, "N:?:H:W");
    for (int i = 0; i < 2; i++) {
        f->more[i] = f->is_valid ? (f->kernel[i] - 1) * f->dilation[i] : 0;
        f->near[i] = f->is_splat ? f->size[i] : f->size[i] - f->more[i];
        f->result[i] = f->is_splat ? f->size[i] + f->more[i] : f->near[i];
        if (f->near[i] < 0 || (!f->near[i] && f->size[i]))
            return usage_error(f->c, "'%s' has %lld %s, the kernel extends over %lld: with padding 'valid' no pixel is left", f->c->arg[0],
                               (long long)f->size[i], i ? "columns" : "rows", (long long)f->more[i] + 1);
    }
    put_names(f, f->far_names, sizeof f->far_names);
    return EXIT_DONE;
}

/* Whether the tensor has these channels and sizes, and x's batch. Leading axes of size 1 may be omitted. */
static int check_sizes(const struct filter *f, const char *name, const char *path, const quern_tensor *t)
{
    bool is_dy = t == f->dy;
    const int64_t *size = is_dy ? f->result : f->near;
    int rank = quern_tensor_rank(t), skip = 0;
    struct want w = {.name = name, .rank = 4, .dim = {f->n, is_dy ? f->channels : f->kernel[0] * f->kernel[1], size[0], size[1]}};
    while (rank >= 2 && skip < 4 - rank && w.dim[skip] == 1) skip++;
    w.rank = 4 - skip;
    memmove(w.dim, w.dim + skip, sizeof *w.dim * (size_t)w.rank);
    return tensor_check_shape(path, &w, t);
}

static int read_bias(struct filter *f)
{
    const char *s = opts_text(f->c, "bias");
    if (!s) return EXIT_DONE;
    if (f->channels > MAX_CHANNELS) return usage_error(f->c, "--bias for %lld channels, expected up to %d", (long long)f->channels, MAX_CHANNELS);
    int code = fail(f->c, quern_tensor_new(f->c->q, QUERN_F32, 1, &f->channels, NULL, &f->bias));
    if (code) return code;
    float *v = quern_tensor_data(f->bias);
    int64_t n = read_numbers(s, v, f->channels);
    if (!n) return usage_error(f->c, "--bias is '%s', expected numbers joined by commas", s);
    if (n != 1 && n != f->channels)
        return usage_error(f->c, "%lld numbers in --bias, '%s' has %lld channels", (long long)n, f->c->arg[0], (long long)f->channels);
    for (int64_t k = 1; k < f->channels && n == 1; k++) v[k] = v[0];
    return tensor_convert(f->c, quern_tensor_dtype(f->x), &f->bias);
}

static int read_gradient(struct filter *f)
{
    const char *path = opts_text(f->c, "grad-output");
    if (!path) return EXIT_DONE;
    int code = fail(f->c, quern_tensor_read(f->c->q, path, &f->dy));
    if (!code) code = check_sizes(f, "grad-output", path, f->dy);
    return code ? code : tensor_convert(f->c, quern_tensor_dtype(f->x), &f->dy);
}

/* running */

static struct quern_array array_of(const quern_tensor *t)
{
    struct quern_array a = {.type = quern_tensor_dtype(t), .rank = 4, .data = quern_tensor_data(t)};
    int64_t step = 1;
    for (int d = 3; d >= 0; d--) {
        a.dim[d] = axis(t, d), a.stride[d] = step;
        step *= a.dim[d];
    }
    return a;
}

static struct quern_array weights_array(const struct filter *f)
{
    if (!f->is_same) return array_of(f->w);
    return (struct quern_array){.type = quern_tensor_dtype(f->w), .rank = 4, .data = quern_tensor_data(f->w), .stride = {0, 1},
                                .dim = {f->n, f->kernel[0] * f->kernel[1], f->near[0], f->near[1]}};
}

static struct quern_array bias_array(const struct filter *f)
{
    if (!f->bias) return (struct quern_array){0};
    return (struct quern_array){.type = quern_tensor_dtype(f->bias), .rank = 1, .dim = {f->channels}, .stride = {1},
                                .data = quern_tensor_data(f->bias)};
}

/* Tunes the operator for such arrays, into the database. */
static quern_status tune(const struct filter *f, quern_op *op, const struct call *a, const struct quern_array *out)
{
    struct quern_tune_opts t;
    struct quern_target_opts target;
    quern_model *m = NULL;
    tune_options(f->c, &t, &target);
    t.timeout = opts_number(f->c, "seconds", 0);
    if (t.timeout <= 0) return QUERN_OK;
    quern_status s = quern_op_model(op, a->in, a->n_in, out, 1, &m);
    if (!s) s = quern_tune(f->db, m, &t);
    quern_model_close(m);
    return s;
}

static int apply(const struct filter *f, const struct call *a)
{
    quern *q = f->c->q;
    quern_op *op = NULL;
    quern_tensor *t = NULL;
    struct quern_array out = {0};
    struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
    o.device = opts_text(f->c, "device");
    o.threads = (int)opts_count(f->c, "threads", 0);
    o.db = f->db;
    o.sizes = a->sizes;
    quern_status s = quern_op_open(q, a->op, f->attributes, &o, &op);
    if (!s) s = quern_op_shape(op, a->in, a->n_in, &out, 1);
    if (!s) s = quern_tensor_new(q, out.type, a->rank, out.dim + 4 - a->rank, NULL, &t);
    out.data = t ? quern_tensor_data(t) : NULL;
    if (!s) s = tune(f, op, a, &out);
    if (!s) s = quern_op_run(op, a->in, a->n_in, &out, 1);
    if (!s) s = quern_tensor_write(q, a->path, t);
    int code = fail(f->c, s);
    quern_tensor_free(t);
    quern_op_close(op);
    return code;
}

static int filter(const struct filter *f)
{
    char sizes[256];
    const struct cli *c = f->c;
    const char *x = f->is_splat ? f->near_names : f->far_names, *y = f->is_splat ? f->far_names : f->near_names, *w = f->near_names;
    const char *out = opts_text(c, "output"), *dx = opts_text(c, "grad-input"), *dw = opts_text(c, "grad-weights");
    int rank = quern_tensor_rank(f->x), code = EXIT_DONE;
    struct call a = {.op = "quern::WeightedFilter", .sizes = sizes, .path = out, .rank = rank, .n_in = f->bias ? 3 : 2};
    a.in[0] = array_of(f->x), a.in[1] = weights_array(f), a.in[2] = bias_array(f);
    snprintf(sizes, sizeof sizes, "%s,%s,?", x, w);
    if (out) code = apply(f, &a);
    a.op = "quern::WeightedFilterGradInput", a.path = dx, a.n_in = 2;
    if (dx) a.in[0] = array_of(f->dy);
    snprintf(sizes, sizeof sizes, "%s,%s", y, w);
    if (dx && !code) code = apply(f, &a);
    a.op = "quern::WeightedFilterGradWeights", a.path = dw, a.n_in = 3, a.rank = f->is_same ? (rank == 4 ? 4 : 3) : quern_tensor_rank(f->w);
    if (dw) a.in[0] = array_of(f->dy), a.in[1] = array_of(f->x), a.in[2] = weights_array(f);
    snprintf(sizes, sizeof sizes, "%s,%s,%s", y, x, w);
    return dw && !code ? apply(f, &a) : code;
}

/* the whole */

static int check_wishes(const struct cli *c)
{
    bool has_dy = opts_text(c, "grad-output"), wants = opts_text(c, "grad-input") || opts_text(c, "grad-weights");
    if (has_dy != wants)
        return has_dy ? usage_error(c, "--grad-output needs --grad-input or --grad-weights, the files for the gradients")
                      : usage_error(c, "gradients need --grad-output, the gradient of the result");
    if (opts_number(c, "seconds", 0) > 0 && !opts_text(c, "db")) return usage_error(c, "--seconds needs --db, which stores the measurements");
    return wants || opts_text(c, "output") ? EXIT_DONE : usage_error(c, "no output, give -o FILE");
}

static int read_all(struct filter *f)
{
    const char *db = opts_text(f->c, "db");
    int code = check_wishes(f->c);
    if (!code) code = read_x(f);
    if (!code) code = read_taps(f);
    if (!code) code = read_dilations(f);
    if (!code) code = make_attributes(f);
    if (!code) code = set_sizes(f);
    if (!code && !f->is_same) code = check_sizes(f, "weights", opts_text(f->c, "weights"), f->w);
    if (!code) code = read_bias(f);
    if (!code) code = read_gradient(f);
    return code || !db ? code : fail(f->c, quern_db_open(f->c->q, db, &f->db));
}

static int run(struct cli *c)
{
    struct filter f = {.c = c};
    int code = read_all(&f);
    if (!code) code = filter(&f);
    quern_tensor_free(f.x);
    quern_tensor_free(f.w);
    quern_tensor_free(f.bias);
    quern_tensor_free(f.dy);
    quern_db_close(f.db);
    return code;
}

static const struct opt options[] = {
    OPT_OUTPUT("FILE", "result: .png .pfm .npy .pb"),
    {"weights", 0, OPT_TEXT, "FILE.npy", "a kernel per pixel: (T, H, W) or (N, T, H, W), T row-major taps"},
    {"kernel-shape", 0, OPT_TEXT, "KHxKW", "rows and columns of these kernels (default: square)"},
    {"kernel", 0, OPT_TEXT, "KERNEL", "one kernel for all pixels: box:K, gauss:K,SIGMA, KHxKW:NUMBER,NUMBER... or (KH, KW) in FILE.npy"},
    {"mode", 0, OPT_TEXT, "MODE", "gather: a pixel reads its neighbours, splat: it is added to them (default: gather)"},
    {"padding", 0, OPT_TEXT, "PADDING", "zero, reflect, replicate, or valid: none (default: zero)"},
    {"dilations", 0, OPT_TEXT, "DHxDW", "distance of adjacent taps (default: 1)"},
    {"transform", 0, OPT_TEXT, "NAME", "transform of the weights: none, exp or softmax (default: none)"},
    {"normalize", 0, OPT_TEXT, "NAME", "sum: divide by the result for an image of ones (default: none)"},
    {"epsilon", 0, OPT_NUMBER, "X", "added to that divisor (default: 0)"},
    {"bias", 0, OPT_TEXT, "X,X...", "bias per channel, or one for all"},
    {"grad-output", 0, OPT_TEXT, "FILE", "gradient of the result, for the two below"},
    {"grad-input", 0, OPT_TEXT, "FILE", "file for the gradient of the picture"},
    {"grad-weights", 0, OPT_TEXT, "FILE.npy", "file for the gradient of the weights"},
    OPT_DEVICE,
    OPT_THREADS,
    {"db", 0, OPT_TEXT, "DB", "database of measurements; keeps built kernels for later calls"},
    {"seconds", 0, OPT_TIME, "TIME", "tune each operator for this time first (default: not at all)"},
    {"max-candidates", 0, OPT_COUNT, "N", "candidates of such tuning (default: as many as time permits)"},
    OPT_SEED,
    OPT_END,
};

const struct cmd cmd_filter = {
    .name = "filter",
    .summary = "filter a picture by a kernel per pixel, or by one for all (doc/weighted-filter.md)",
    .args = "IN.png|IN.pfm|IN.npy",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
