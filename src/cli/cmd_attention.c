// SPDX-License-Identifier: Apache-2.0
//
// quern attention: an attention, or one kernel of a split one, named by a kernel's name or a shape: tuned, compiled, verified and timed. Of a
// file of value lists, or of names, the points are counted or listed, and the computations run.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SHAPES = 256, MAX_SAMPLES = 1000 };
static const char default_shape[] = "1x32x2048x64"; /* of the tool that the files come from */

struct shapes { /* computations of a call, each once */
    struct cli *c;
    struct quern_attention_shape v[MAX_SHAPES];
    int n;
    bool lists;         /* prints the names */
    bool is_full;
};

static bool is_name(const char *s) { return !strncmp(s, "kcg_", 4); }

/* "1x32x2048x64" */
static bool read_sizes(const char *s, struct quern_attention_shape *x)
{
    int64_t *const to[4] = {&x->batch, &x->heads, &x->length, &x->head_size};
    for (int k = 0; k < 4; k++) {
        char *end;
        *to[k] = *s >= '0' && *s <= '9' ? strtoll(s, &end, 10) : -1;
        if (*to[k] < 0 || *end != (k < 3 ? 'x' : 0)) return false;
        s = end + 1;
    }
    return true;
}

static bool same_shape(const struct quern_attention_shape *a, const struct quern_attention_shape *b)
{
    return !strcmp(a->kind, b->kind) && a->part == b->part && a->batch == b->batch && a->heads == b->heads && a->length == b->length &&
           a->head_size == b->head_size;
}

static void add_shape(struct shapes *s, const struct quern_attention_shape *x)
{
    for (int k = 0; k < s->n; k++)
        if (same_shape(&s->v[k], x)) return;
    if (s->n < MAX_SHAPES) s->v[s->n++] = *x;
    else s->is_full = true;
}

/* Points. */

static void print_point(const struct shapes *s, int64_t number, const char *name)
{
    if (opts_flag(s->c, "json", false)) printf("{\"event\":\"point\",\"number\":%lld,\"name\":\"%s\"}\n", (long long)number, name);
    else printf("%lld %s\n", (long long)number, name);
}

static int visit(void *user, int64_t number, const char *name, const struct quern_attention_shape *of)
{
    struct shapes *s = user;
    if (s->lists) print_point(s, number, name);
    add_shape(s, of);
    return s->lists && !stop_signal(); /* all points of a space are one computation */
}

static int read_points(struct cli *c, const struct quern_attention_shape *shape, const struct quern_target_opts *target, struct shapes *s)
{
    struct quern_attention_count n = QUERN_OPTS(quern_attention_count);
    struct quern_attention_points_opts o = QUERN_OPTS(quern_attention_points_opts);
    o.rules = opts_text(c, "rules");
    o.device = opts_text(c, "device");
    o.target = target;
    o.start = opts_count(c, "start", 0);
    o.max = opts_count(c, "max", 0);
    o.each = visit;
    o.user = s;
    quern_status code = quern_attention_points(c->q, c->arg[0], shape, &o, &n);
    if (code) return fail(c, code);
    if (s->is_full) return usage_error(c, "'%s' names more than %d computations", c->arg[0], MAX_SHAPES);
    if (opts_flag(c, "json", false))
        printf("{\"event\":\"space\",\"raw\":%.0f,\"points\":%lld,\"refused\":%lld}\n", n.n_raw, (long long)n.n, (long long)n.n_refused);
    else printf("%lld points of %.0f\n", (long long)n.n, n.n_raw);
    return s->n ? EXIT_DONE : usage_error(c, "'%s' has no point with number %lld or more", c->arg[0], (long long)o.start);
}

/* Runs. */

struct timed { double seconds; int samples; bool is_right; struct quern_step *step; int n_steps; };

static int verify(struct cli *c, quern_model *m, quern_program *p, bool *is_right)
{
    struct quern_check k[MAX_IO];
    int n = 0;
    *is_right = true;
    quern_status s = quern_verify(m, p, NULL, (uint64_t)opts_count(c, "seed", 0), k, MAX_IO, &n);
    if (s) return fail(c, s);
    for (int i = 0; i < n; i++) {
        *is_right &= k[i].n_bad == 0;
        if (opts_flag(c, "json", false)) continue;
        printf("  %-8s %-8s error %.3g of %.3g allowed, %lld of %lld outside\n", k[i].n_bad ? "WRONG" : "verified", k[i].output, k[i].max_abs,
               k[i].tolerance, (long long)k[i].n_bad, (long long)k[i].count);
    }
    return EXIT_DONE;
}

/* The median time on the device, and those of its kernels. */
static quern_status measure(struct cli *c, quern_program *p, struct timed *t)
{
    struct tensors in = {.n = 0}, out = {.n = quern_program_outputs(p)};
    double *v = calloc(MAX_SAMPLES, sizeof *v);
    int64_t least = opts_count(c, "min-samples", 10);
    quern_status s = v ? quern_program_random_inputs(p, NULL, (uint64_t)opts_count(c, "seed", 0), in.v, MAX_IO, &in.n) : QUERN_SYSTEM;
    if (!s) s = quern_run(p, in.v, in.n, out.v, out.n); /* allocates */
    for (double start = now(); !s && t->samples < MAX_SAMPLES && (t->samples < 1 || ((t->samples < least || now() - start < 1) && !stop_signal()));) {
        s = quern_run(p, in.v, in.n, out.v, out.n);
        if (!s) v[t->samples++] = quern_program_seconds(p);
    }
    if (!s) s = profile_steps(p, &in, &out, &t->step, &t->n_steps);
    if (t->samples) t->seconds = median_of(v, t->samples);
    free(v);
    tensors_release(&in);
    tensors_release(&out);
    return s == QUERN_STOPPED && t->samples ? QUERN_OK : s;
}

/* What the program runs, with the tasks by which the database has the rows. */
static void print_kernels(const struct cli *c, const struct timed *t)
{
    bool is_json = opts_flag(c, "json", false);
    if (is_json) printf(",\"kernels\":[");
    for (int k = 0; k < t->n_steps; k++) {
        const struct quern_step *x = &t->step[k];
        if (!is_json) {
            printf("  %10.4f ms  task %s  %s  %s\n", x->seconds * 1e3, x->task, x->kernel, x->operators);
            continue;
        }
        printf("%s{\"task\":", k ? "," : "");
        json_text(x->task);
        printf(",\"kernel\":");
        json_text(x->kernel);
        printf(",\"ms\":%.6f,\"operators\":", x->seconds * 1e3);
        json_text(x->operators);
        printf("}");
    }
    if (is_json) printf("]");
}

static const char *type_of(const struct quern_attention_shape *x) { return x->type ? x->type : "f32"; }

static void print_shape(const struct quern_attention_shape *x, const char *what)
{
    printf("%s", x->kind);
    if (x->part) printf("_k%d", x->part);
    printf(" %lldx%lldx%lldx%lld %s: %s\n", (long long)x->batch, (long long)x->heads, (long long)x->length, (long long)x->head_size, type_of(x),
           what);
}

static void print_result(const struct cli *c, const struct quern_attention_shape *x, const struct quern_attention_facts *f, const quern_program *p,
                         const struct timed *t)
{
    const char *db = opts_text(c, "db");
    double best = progress_best(c->progress), rate = t->seconds > 0 ? f->flops / t->seconds * 1e-9 : 0;
    bool verifies = opts_flag(c, "verify", true);
    if (opts_flag(c, "json", false)) {
        printf("{\"event\":\"done\",\"kind\":\"%s\",\"part\":%d,\"shape\":[%lld,%lld,%lld,%lld],\"type\":\"%s\"", x->kind, x->part,
               (long long)x->batch, (long long)x->heads, (long long)x->length, (long long)x->head_size, type_of(x));
        printf(",\"verified\":%s,\"ms\":%.6f,\"samples\":%d,\"flops\":%.0f,\"gflops\":%.3f,\"speedup\":%.4f,\"memory\":%lld",
               !verifies ? "null" : t->is_right ? "true" : "false", t->seconds * 1e3, t->samples, f->flops, rate, best,
               (long long)quern_program_memory(p));
        print_kernels(c, t);
        printf("}\n");
        return;
    }
    printf("  %.4f ms on the device (median of %d), %.2f GFLOP/s, %.1f MB of temporary memory", t->seconds * 1e3, t->samples, rate,
           (double)quern_program_memory(p) * 1e-6);
    if (best > 0) printf(", %.2f times as fast as untuned", best);
    printf("\n  kernels%s%s:\n", db ? ", tasks in " : "", db ? db : "");
    print_kernels(c, t);
}

static int run_program(struct cli *c, const struct quern_attention_shape *x, quern_model *m, quern_program *p)
{
    struct quern_attention_facts f = QUERN_OPTS(quern_attention_facts);
    struct timed t = {.is_right = true};
    int code = fail(c, quern_attention_facts(c->q, x, &f));
    if (!code && !opts_flag(c, "json", false)) print_shape(x, f.what);
    if (!code && opts_flag(c, "verify", true)) code = verify(c, m, p, &t.is_right);
    if (!code) code = fail(c, measure(c, p, &t));
    if (!code) print_result(c, x, &f, p, &t);
    free(t.step);
    return code ? code : t.is_right ? EXIT_DONE : EXIT_FAILED;
}

/* After a stop, whatever was measured is used. */
static quern_status compile(struct cli *c, quern_model *m, quern_db *db, quern_program **p)
{
    struct quern_tune_opts o;
    struct quern_target_opts t;
    tune_options(c, &o, &t);
    quern_status s = opts_flag(c, "untuned", false) ? QUERN_OK : quern_tune(db, m, &o);
    if (s) return s;
    if (stop_signal()) quern_resume(c->q);
    return compile_model(c, m, db, opts_text(c, "output") ? TO_SHIP : TO_RUN, p);
}

static int run_shape(struct cli *c, const struct quern_attention_shape *x)
{
    quern_model *m = NULL;
    quern_db *db = NULL;
    quern_program *p = NULL;
    const char *path = opts_text(c, "db"), *out = opts_text(c, "output");
    quern_status s = quern_model_attention(c->q, x, &m);
    if (!s) s = quern_db_open(c->q, path ? path : ":memory:", &db);
    if (!s) s = compile(c, m, db, &p);
    int code = s ? fail(c, s) : out ? fail(c, quern_program_save(p, out)) : run_program(c, x, m, p);
    quern_program_close(p);
    quern_db_close(db);
    quern_model_close(m);
    return code;
}

/* The shape of a name, or of the options for a file; the exit code. */
static int read_shape(struct cli *c, struct quern_attention_shape *x)
{
    const char *what = c->arg[0], *sizes = opts_text(c, "shape"), *kind = opts_text(c, "kind");
    if (is_name(what)) {
        if (sizes || kind) return usage_error(c, "--shape and --kind are for files and sizes: a name states both");
        quern_status s = quern_attention_name(c->q, what, x);
        x->type = opts_text(c, "dtype");
        return fail(c, s);
    }
    x->kind = kind ? kind : "attn_v1";
    x->type = opts_text(c, "dtype");
    if (read_sizes(what, x)) return sizes ? usage_error(c, "--shape is for files") : EXIT_DONE;
    if (read_sizes(sizes ? sizes : default_shape, x)) return EXIT_DONE;
    return usage_error(c, "--shape '%s', expected batch x heads x queries x size of a head, as %s", sizes, default_shape);
}

static bool is_file(const char *what)
{
    struct quern_attention_shape x;
    return !is_name(what) && !read_sizes(what, &x);
}

/* The named kernels themselves, as they are tiled. */
static int run_tiles(struct cli *c, const struct quern_attention_shape *x)
{
    quern_db *db = NULL;
    struct quern_tune_opts t;
    struct quern_target_opts target;
    struct quern_gemm_opts o = QUERN_OPTS(quern_gemm_opts);
    struct quern_gemm_best best;
    const char *path = opts_text(c, "db");
    tune_options(c, &t, &target);
    o.result = opts_text(c, "result"), o.rules = opts_text(c, "rules");
    o.start = opts_count(c, "start", 0), o.max = opts_count(c, "max", 0);
    o.tune = &t;
    quern_status s = quern_db_open(c->q, path ? path : ":memory:", &db);
    if (!s) s = quern_attention_tiles(db, c->arg[0], x, &o, &best);
    if (!s) print_best(c, &best);
    quern_db_close(db);
    return fail(c, s);
}

static int run(struct cli *c)
{
    struct quern_attention_shape x = QUERN_OPTS(quern_attention_shape);
    struct quern_target_opts target;
    struct shapes *s = calloc(1, sizeof *s);
    if (!s) return EXIT_FAILED;
    *s = (struct shapes){.c = c, .lists = opts_flag(c, "points", false)};
    target_options(c, &target);
    int code = read_shape(c, &x);
    bool tiles = opts_flag(c, "tiles", false);
    if (!code && tiles && (s->lists || (!is_file(c->arg[0]) && !is_name(c->arg[0])))) code = usage_error(c, "--tiles is for a name or a file whose points are measured");
    if (!code && tiles && opts_text(c, "output")) code = usage_error(c, "--tiles writes no program: -o is for a run without it");
    if (!code && tiles) {
        free(s);
        return run_tiles(c, &x);
    }
    if (!code && opts_text(c, "result")) code = usage_error(c, "--result is for --tiles");
    if (!code && !is_file(c->arg[0]) && s->lists) code = usage_error(c, "--points is for files");
    if (!code && is_file(c->arg[0]) && opts_text(c, "output")) code = usage_error(c, "-o is for a name or sizes");
    if (!code && is_file(c->arg[0])) code = read_points(c, &x, &target, s);
    else if (!code) add_shape(s, &x);
    for (int k = 0; k < s->n && !code && !s->lists && !(k && stop_signal()); k++) code = run_shape(c, &s->v[k]);
    free(s);
    return code;
}

static const struct opt options[] = {
    {"kind", 0, OPT_TEXT, "KIND", "computation of a file or a shape: attn_v1 (default), attention_origin, gemma2_k1, h2o_k2 .."},
    {"shape", 0, OPT_TEXT, "BxHxSxD", "batch, heads, queries and size of a head for a file of lists (default: 1x32x2048x64)"},
    {"dtype", 0, OPT_TEXT, "TYPE", "float32 (default), float16, bfloat16 or float64"},
    {"points", 0, OPT_FLAG, NULL, "print the names of a file's points instead of running the computation"},
    {"tiles", 0, OPT_FLAG, NULL, "measure the named kernel, or a file's points one by one, as they are tiled (GPUs)"},
    {"result", 0, OPT_TEXT, "RESULT.json", "file of the best results of --tiles, in addition to existing ones"},
    {"rules", 0, OPT_TEXT, "RULES", "rules that prune a file's space: own (default), deepgen"},
    {"start", 0, OPT_COUNT, "N", "number of the first point (default: 0)"},
    {"max", 0, OPT_COUNT, "N", "number of points (default: all)"},
    OPT_OUTPUT("NET.dnx", "write the program instead of running it, also for a described device"),
    {"verify", 0, OPT_FLAG, NULL, "compare with the reference evaluator (default; --no-verify: do not)"},
    {"db", 0, OPT_TEXT, "DB", "database of measurements (default: none is kept)"},
    {"max-candidates", 0, OPT_COUNT, "N", "candidates per task (default: as many as time permits)"},
    OPT_UNTUNED,
    OPT_TIMEOUT,
    OPT_SAMPLES,
    OPT_SEED,
    OPT_FUSION,
    OPT_TARGET,
    OPT_THREADS,
    OPT_END,
};

const struct cmd cmd_attention = {
    .name = "attention",
    .summary = "tune, verify and time an attention by a kernel's name, or count the points of a configuration file (doc/attention.md)",
    .args = "NAME|BxHxSxD|FILE.json",
    .min_args = 1,
    .max_args = 1,
    .options = options,
    .run = run,
};
