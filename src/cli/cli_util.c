// SPDX-License-Identifier: Apache-2.0
//
// Shared by several commands: exit codes, time, kinds of files, models with the options.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int exit_code(quern_status s)
{
    switch (s) {
    case QUERN_OK: return EXIT_DONE;
    case QUERN_USAGE: return EXIT_USAGE;
    case QUERN_NOTHING: return EXIT_NOTHING;
    case QUERN_FAILED:
    case QUERN_UNSUPPORTED:
    case QUERN_INPUT:
    case QUERN_SYSTEM:
    case QUERN_STOPPED:
    default: return EXIT_FAILED;
    }
}

int fail(struct cli *c, quern_status s)
{
    if (!s) return EXIT_DONE;
    const char *msg = quern_error(c->q);
    progress_event(c->progress, &(struct quern_event){
                                    .kind = QUERN_LOG, .level = 0, .text = *msg ? msg : "failed"});
    return exit_code(s);
}

bool has_suffix(const char *path, const char *suffix)
{
    size_t n = strlen(path), k = strlen(suffix);
    return n >= k && !strcmp(path + n - k, suffix);
}

/* Name of the database beside a file: with suffix .db. NULL: too long. */
static const char *db_beside(const char *file, const char *suffix, char *path, size_t size)
{
    size_t n = strlen(file) - (has_suffix(file, suffix) ? strlen(suffix) : 0);
    int k = snprintf(path, size, "%.*s.db", (int)n, file);
    return k > 0 && (size_t)k < size ? path : NULL;
}

int default_db(const struct cli *c, const char *file, const char *suffix, char *path, size_t size)
{
    struct stat link, st;
    if (!db_beside(file, suffix, path, size)) return usage_error(c, "the name of the database beside '%s' is too long", file);
    if (lstat(path, &link) != 0) return EXIT_DONE; /* it is made */
    bool is_own = link.st_uid == geteuid() && (stat(path, &st) != 0 || st.st_uid == geteuid());
    if (is_own) return EXIT_DONE;
    fprintf(stderr, "quern: the default database '%s' belongs to another user: use it by --db '%s', or name another one\n",
            path, path);
    return EXIT_FAILED;
}

int open_db(struct cli *c, const char *file, const char *suffix, quern_db **db)
{
    char path[4096];
    const char *given = opts_text(c, "db");
    int code = given ? EXIT_DONE : default_db(c, file, suffix, path, sizeof path);
    return code ? code : fail(c, quern_db_open(c->q, given ? given : path, db));
}

bool is_dnx(const char *path)
{
    unsigned char head[9] = {0};
    if (has_suffix(path, ".dnx")) return true;
    FILE *f = has_suffix(path, ".onnx") ? NULL : fopen(path, "rb");
    if (!f) return false;
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return n == sizeof head && head[8] == '{' && !head[6] && !head[7];
}

int refuse_unsigned(struct cli *c, const char *model)
{
    if (!opts_flag(c, "require-signature", false)) return EXIT_DONE;
    return usage_error(c, "--require-signature applies to programs: compile and sign '%s' first", model);
}

/* models */

/* The four that apply to every input, or to every output. */
static struct quern_io_opts io_of_all(const struct cli *c, bool is_output)
{
    return (struct quern_io_opts){
        .is_output = is_output,
        .shape = opts_text(c, is_output ? "output-shape" : "input-shape"),
        .type = opts_text(c, is_output ? "output-type" : "input-type"),
        .layout = opts_text(c, is_output ? "output-layout" : "input-layout"),
        .storage = opts_text(c, is_output ? "output-storage" : "input-storage"),
    };
}

/* Those that name one: --shape x=H:W:C. */
static const char *const by_name[] = {"shape", "type", "format", "storage"};

static size_t text_by_name(const struct cli *c)
{
    size_t n = 1;
    const char *v;
    for (int k = 0; k < 4; k++)
        for (int at = 0; (v = opts_next(c, by_name[k], &at));) n += strlen(v) + 1;
    return n;
}

/* Names and values are separated in `room`, which holds them all. Words without
 * '=' are values without a name: an error of the caller, reported as such. */
static int io_by_name(const struct cli *c, struct quern_io_opts *io, int max, char *room)
{
    int n = 0;
    const char *v;
    for (int k = 0; k < 4; k++)
        for (int at = 0; n < max && (v = opts_next(c, by_name[k], &at)); n++) {
            const char *eq = strchr(v, '='), *value = eq ? eq + 1 : v;
            size_t len = eq ? (size_t)(eq - v) : 0;
            memcpy(room, v, len);
            io[n] = (struct quern_io_opts){.name = room};
            const char **field[] = {&io[n].shape, &io[n].type, &io[n].layout, &io[n].storage};
            *field[k] = value;
            room += len + 1;
        }
    return n;
}

static bool says_anything(const struct quern_io_opts *o)
{
    return o->shape || o->type || o->layout || o->storage;
}

/* "B:1,H%16,S:1..4096" from the three options; NULL: none. */
static const char *assumptions(struct cli *c)
{
    static const char *const option[] = {"assume", "assume-multiple", "assume-range"};
    const char *v, *all = NULL;
    for (int k = 0; k < 3; k++)
        for (int at = 0; (v = opts_next(c, option[k], &at));) {
            const char *size = k == 1 ? strpbrk(v, ":=") : NULL;
            if (size) v = cli_text(c, "%.*s%%%s", (int)(size - v), v, size + 1);
            all = all ? cli_text(c, "%s,%s", all, v) : v;
        }
    return all;
}

enum { MAX_OPTS = 2 + 4 * MAX_IO };
struct model_opts {
    struct quern_model_opts o;
    struct quern_io_opts io[MAX_OPTS];
    char *room;
};

/* Options of the command line about a model; release by free(room). */
static void model_options(struct cli *c, struct model_opts *m)
{
    *m = (struct model_opts){.o = QUERN_OPTS(quern_model_opts), .io = {io_of_all(c, false), io_of_all(c, true)}};
    struct quern_model_opts *o = &m->o;
    m->room = calloc(text_by_name(c), 1);
    o->optimize_for = opts_words(c, "optimize-for");
    o->run_at = opts_words(c, "set");
    if (!o->optimize_for) o->optimize_for = o->run_at;
    o->assume = assumptions(c);
    o->elements = opts_words(c, "elements");
    o->io = m->io;
    o->n_io = 2 + (m->room ? io_by_name(c, m->io + 2, MAX_OPTS - 2, m->room) : 0);
    if (o->n_io == 2 && !says_anything(&m->io[0]) && !says_anything(&m->io[1])) o->n_io = 0;
    o->f32_storage = !opts_flag(c, "f16-storage", true);
    o->state = opts_text(c, "state");
    o->external_data_links = opts_flag(c, "external-data-links", false);
}

quern_status open_model(struct cli *c, const char *path, quern_model **m)
{
    struct model_opts x;
    *m = NULL;
    model_options(c, &x);
    quern_status s = quern_model_open(c->q, path, &x.o, m);
    free(x.room);
    return s;
}

quern_status open_model_with_caches(struct cli *c, const char *path, const char *assume, quern_model **m)
{
    struct model_opts x;
    *m = NULL;
    model_options(c, &x);
    if (!x.o.state) x.o.state = "auto";
    if (assume && *assume) x.o.assume = x.o.assume ? cli_text(c, "%s,%s", x.o.assume, assume) : assume;
    quern_status s = quern_model_open(c->q, path, &x.o, m);
    free(x.room);
    return s;
}

quern_status check_model(struct cli *c, const char *path, void (*each)(void *user, const struct quern_problem *p), void *user,
                         struct quern_report *r)
{
    struct model_opts x;
    model_options(c, &x);
    quern_status s = quern_model_problems(c->q, path, &x.o, each, user, r);
    free(x.room);
    return s;
}

bool has_model_options(struct cli *c)
{
    struct model_opts x;
    model_options(c, &x);
    free(x.room);
    return x.o.n_io || x.o.assume || x.o.elements || x.o.optimize_for || x.o.state || x.o.external_data_links;
}

void target_options(const struct cli *c, struct quern_target_opts *o)
{
    *o = QUERN_OPTS(quern_target_opts);
    o->devices = opts_text(c, "devices");
    o->isa = opts_text(c, "isa");
    o->env = opts_text(c, "target-env");
    o->no_matrix = !opts_flag(c, "coopmat", true);
    o->no_winograd = !opts_flag(c, "winograd", true);
    o->deterministic = opts_flag(c, "deterministic", false);
    o->optimize = opts_flag(c, "spirv-optimize", false);
    o->debug_info = opts_flag(c, "spirv-debug-info", false);
    o->source_info = opts_flag(c, "spirv-non-semantic-debug-info", false);
}

void compile_options(const struct cli *c, struct quern_compile_opts *o, struct quern_target_opts *t)
{
    *o = QUERN_OPTS(quern_compile_opts);
    o->device = opts_text(c, "device");
    o->threads = (int)opts_count(c, "threads", 0);
    o->no_fusion = !opts_flag(c, "fusion", true);
    o->untuned = opts_flag(c, "untuned", false);
    o->no_memory_concat = !opts_flag(c, "memory-concat", true);
    target_options(c, t);
    o->target = t;
}

quern_status compile_model(struct cli *c, quern_model *m, quern_db *db, enum made_for use, quern_program **p)
{
    struct quern_target_opts t;
    struct quern_compile_opts o;
    compile_options(c, &o, &t);
    o.keep = use == TO_RUN;
    o.prove = use == TO_SHIP && opts_flag(c, "prove", true);
    *p = NULL;
    return quern_compile(m, db, &o, p);
}

/* -O 0 uses the default schedules; 0: the library's default. */
static int candidates_of_effort(const struct cli *c)
{
    static const int n[] = {1, 8, 0, 64, 256, 4096};
    int64_t k = opts_count(c, "opt", 2);
    return n[k < 5 ? k : 5];
}

void tune_options(const struct cli *c, struct quern_tune_opts *o, struct quern_target_opts *t)
{
    *o = QUERN_OPTS(quern_tune_opts);
    target_options(c, t);
    o->target = t;
    o->no_fusion = !opts_flag(c, "fusion", true);
    o->no_memory_concat = !opts_flag(c, "memory-concat", true);
    o->device = opts_text(c, "device");
    o->threads = (int)opts_count(c, "threads", 0);
    o->timeout = opts_number(c, "timeout", 0);
    o->min_samples = (int)opts_count(c, "min-samples", 0);
    o->max_candidates = (int)opts_count(c, "max-candidates", candidates_of_effort(c));
    o->relative_error = opts_number(c, "relative-error", 0);
    o->stop_at_speedup = opts_number(c, "stop-at-speedup", 0);
    o->seed = (uint64_t)opts_count(c, "seed", 0);
}

void print_best(const struct cli *c, const struct quern_gemm_best *b)
{
    if (opts_flag(c, "json", false)) {
        printf("{\"event\":\"done\",\"points\":%lld,\"refused\":%lld,\"name\":", (long long)b->n_points, (long long)b->n_refused);
        json_text(b->name);
        printf(",\"speedup\":%.4f,\"time\":%.6f,\"time_base\":%.6f,\"tflops\":%.4f,\"baseline\":", b->speedup,
               b->seconds * 1e3, b->base_seconds * 1e3, b->tflops);
        json_text(b->baseline);
        printf("}\n");
        return;
    }
    printf("%s\n", b->name[0] ? b->name : "nothing was verified");
    if (b->name[0])
        printf("%.4f ms, %.3f TFLOP/s, %.3f times as fast as %.4f ms by %s\n", b->seconds * 1e3, b->tflops, b->speedup,
               b->base_seconds * 1e3, b->baseline[0] ? b->baseline : "a baseline that the file does not name");
}
