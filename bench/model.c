// SPDX-License-Identifier: Apache-2.0
//
// Quality of predictions. For each row of bench/graphs.txt and each matching family, by the
// measurements of a database:
//
//   regret       time of the family's default schedule over that of its best known one; of the row: of the schedule that an empty database selects
//                over the best known of all
//   choice       the same of the candidate that is predicted to be the fastest among those of the database: how good a model is that was changed
//                after they were measured
//   correlation  of predicted and measured times, by ranks (Spearman), of the family's candidates and of all
//
//   build/bench/model [-d DEVICE] [-t THREADS] [-l LIMITS] [-n TRIALS] [-r DRAWS] [-b SECONDS] [-s SEED] [-v] [-c CANDIDATE]... DB [GROUP[:NAME] ...]
//
// Rows are selected by patterns ("conv", "matmul:bert*"). With -n or -r each is tuned first, in DB: the
// defaults of all families, the CANDIDATEs that are legal, DRAWS random schedules for each family, a search with TRIALS trials; -b limits the
// seconds of all together, and measurements are kept. Times of other devices, or of other numbers of threads, are
// ignored. With -v each family's known candidates follow with measured and predicted milliseconds. LIMITS restrict the device: "isa=x86-64-v3".
#include "graphs.h"
#include "target.h"
#include "tune/rates.h"
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ROWS = 512, LEAST_RANKS = 3, MAX_SAMPLED = 100000 /* schedules of a family that are looked at */ };
static const char rows_path[] = "bench/graphs.txt";

struct row {
    struct str name;
    struct task *task;
};

struct bench {
    struct arena arena;
    struct bench_target target;
    struct db db;
    i64 env;
    i64 *var;
    char **pattern; int n_patterns;
    struct row row[MAX_ROWS]; u32 n;
    u32 n_trials, n_draws;
    struct { struct candidate *v; u32 n, cap; } listed; /* -c */
    u64 seed;
    double end; /* by os_now; 0: none */
    struct { double *v; u32 n, cap; } regret, choice, correlation; /* of rows */
    bool is_verbose;
    u32 n_unknown; /* rows with an unmeasured default */
};

/* Rows. */

static bool is_wanted(const struct bench *b, struct str name)
{
    for (int i = 0; i < b->n_patterns; i++) {
        struct str p = str_of(b->pattern[i]), group, rest;
        if (!str_cut(p, ':', &group, &rest)) p = str_fmt(&((struct bench *)(uintptr_t)b)->arena, "%.*s:*", STR_ARG(p));
        if (str_glob(p, name)) return true;
    }
    return b->n_patterns == 0;
}

struct taking { struct bench *b; struct str name; };

static void take_task(void *user, struct task *t)
{
    struct taking *x = user;
    struct bench *b = x->b;
    for (u32 i = 0; i < b->n; i++)
        if (str_eq(b->row[i].task->text, t->text)) return;
    if (b->n < MAX_ROWS) b->row[b->n++] = (struct row){x->name, t};
}

static bool take_row(void *user, const struct bench_row *r, struct err *e)
{
    struct bench *b = user;
    struct taking x = {b, str_fmt(&b->arena, "%.*s:%.*s", STR_ARG(r->group), STR_ARG(r->name))};
    return !is_wanted(b, x.name) || bench_each_task(r->g, &b->target.caps, b->var, take_task, &x, e);
}

/* Results of a row. */

struct known_row {
    const struct row *row;
    struct trial_row *v; u32 n;
    double reference;
};

static bool load(struct bench *b, const struct row *r, struct known_row *k, struct err *e)
{
    *k = (struct known_row){.row = r};
    i64 task = db_task(&b->db, r->task, e);
    if (task == 0) return false;
    struct str sizes = sizes_text(&b->arena, r->task->g.sym, b->var, r->task);
    if (!db_trials(&b->db, b->env, task, sizes, &b->arena, &k->v, &k->n, e)) return false;
    k->reference = tune_reference_seconds(k->v, k->n);
    return true;
}

/* Verified and timed; abandoned candidates have a rough time. */
static bool has_time(const struct trial_row *r, bool rough)
{
    return r->n > 0 && (r->status == TRIAL_OK || (rough && r->status == TRIAL_SLOW));
}

static bool is_of(const struct trial_row *r, const struct gen *g) { return !g || r->cand.gen == g; }

/* As programs choose: the one that is significantly fastest, because with few samples the
   best-looking one was lucky. */
static const struct trial_row *best_of(const struct known_row *k, const struct gen *g)
{
    const struct trial_row *best = NULL;
    double least = 0;
    for (u32 i = 0; i < k->n; i++) {
        double high = k->v[i].ratio > 0 ? k->v[i].ratio_high : 1;
        if (!has_time(&k->v[i], false) || !is_of(&k->v[i], g) || (best && high >= least)) continue;
        best = &k->v[i], least = high;
    }
    return best;
}

static double seconds_of(const struct known_row *k, const struct trial_row *r) { return tune_row_seconds(r, k->reference); }

/* Tuning. */

static bool does_tune(const struct bench *b) { return b->n_trials + b->n_draws + b->listed.n > 0; }

struct defaults { const struct bench *b; const struct row *r; i64 at; };

static bool next_default(void *user, struct candidate *c)
{
    struct defaults *x = user;
    for (const struct gen *g; (g = gen_at(x->at++));)
        if (gen_matches(g, x->r->task, &x->b->target.caps)) {
            *c = gen_initial(g, x->r->task, &x->b->target.caps, x->b->var);
            return true;
        }
    return false;
}

struct listed { const struct bench *b; const struct row *r; u32 at; };

static bool next_listed(void *user, struct candidate *c)
{
    struct listed *x = user;
    while (x->at < x->b->listed.n) {
        *c = x->b->listed.v[x->at++];
        if (gen_matches(c->gen, x->r->task, &x->b->target.caps) && gen_legal(c, x->r->task, &x->b->target.caps)) return true;
    }
    return false;
}

/* Random legal schedules of each family. */
struct draws {
    struct bench *b;
    struct { struct candidate *v; u32 n, cap; } legal;
    u32 at, left;     /* the current family's first one in `legal`; how many of it are still to be drawn */
    struct rng rng;
    struct known_row known; /* the defaults */
    const struct gen *gen; bool is_hopeless; /* of the last one */
};

/* Families whose defaults are much slower than the best one have no schedule that a model must find. */
static bool is_hopeless(const struct known_row *k, const struct gen *g)
{
    enum { MUCH = 4 };
    const struct trial_row *best = best_of(k, NULL), *own = best_of(k, g);
    return best && (!own || seconds_of(k, own) > MUCH * seconds_of(k, best));
}

static bool add_legal(void *user, const struct candidate *c)
{
    struct draws *x = user;
    if (x->gen != c->gen) x->gen = c->gen, x->is_hopeless = is_hopeless(&x->known, c->gen);
    if (!x->is_hopeless) *arr_push(&x->b->arena, &x->legal) = *c;
    return true;
}

/* legal holds one family after the other, behind their initial schedules. */
static bool next_draw(void *user, struct candidate *c)
{
    struct draws *x = user;
    u32 end = x->at;
    while (end < x->legal.n && x->legal.v[end].gen == x->legal.v[x->at].gen) end++;
    if (x->at == end) return false;
    *c = x->legal.v[rng_range(&x->rng, x->at, end - 1)];
    if (--x->left == 0 || end - x->at < x->b->n_draws) x->at = end, x->left = x->b->n_draws;
    return true;
}

static u32 n_known(struct bench *b, const struct row *r, struct err *e)
{
    struct known_row k;
    return load(b, r, &k, e) ? k.n : 0;
}

static bool tune_row(struct bench *b, const struct row *r, struct err *e)
{
    enum { DEFAULTS, LISTED, DRAWS, SEARCH, N_STEPS };
    struct defaults from = {b, r, 0};
    struct listed listed = {b, r, 0};
    struct draws draws = {.b = b, .left = b->n_draws, .rng = rng_seed(b->seed)};
    struct tune_source source[N_STEPS] = {{next_default, &from}, {next_listed, &listed}, {next_draw, &draws}};
    struct tune_task t = {.task = r->task, .var = b->var, .weight = 1};
    struct tune_result result;
    struct tune_opts o = {.driver = b->target.driver, .dev = b->target.dev, .min_samples = 5, .add_candidates = true, .measure = true,
                          .seed = b->seed};
    for (int k = DEFAULTS; k < N_STEPS; k++) {
        if (b->end > 0 && os_now() >= b->end) return true;
        if ((k == DRAWS && !b->n_draws) || (k == SEARCH && !b->n_trials)) continue;
        if (k == DRAWS && !load(b, r, &draws.known, e)) return false;
        if (k == DRAWS) gen_scatter(r->task, &b->target.caps, MAX_SAMPLED, b->seed, add_legal, &draws);
        o.timeout = b->end > 0 ? fmax(b->end - os_now(), 1e-3) : 0;
        o.source = k == SEARCH ? NULL : &source[k];
        o.max_candidates = k == SEARCH ? b->n_trials + n_known(b, r, e) : 0; /* a limit of all */
        bool ok = tune_run(&b->db, &t, 1, &o, &result, e);
        buf_release(&result.vendor_reason);
        if (!ok && e->code != ERR_NOTHING) return err_prefix(e, "%.*s", STR_ARG(r->name));
        *e = (struct err){0};
    }
    return true;
}

static bool tune_rows(struct bench *b, struct err *e)
{
    for (u32 i = 0; does_tune(b) && i < b->n; i++) {
        double start = os_now();
        if (!tune_row(b, &b->row[i], e)) return false;
        fprintf(stderr, "%-44.*s %8.1f s\n", STR_ARG(b->row[i].name), os_now() - start);
    }
    return true;
}

/* The one that is predicted to be the fastest. */
static const struct trial_row *choice_of(const struct bench *b, const struct known_row *k, const struct gen *g)
{
    const struct trial_row *best = NULL;
    double least = 0;
    for (u32 i = 0; i < k->n; i++) {
        if (!has_time(&k->v[i], true) || !is_of(&k->v[i], g)) continue;
        double seconds = gen_predict(&k->v[i].cand, k->row->task, &b->target.caps, b->var);
        if (!best || seconds < least) best = &k->v[i], least = seconds;
    }
    return best;
}

static const struct trial_row *row_of(const struct known_row *k, const struct candidate *c)
{
    for (u32 i = 0; i < k->n; i++)
        if (has_time(&k->v[i], true) && !memcmp(&k->v[i].cand, c, sizeof *c)) return &k->v[i];
    return NULL;
}

/* r may be NULL. 0: unknown */
static double regret_of(const struct known_row *k, const struct gen *g, const struct trial_row *r)
{
    const struct trial_row *best = best_of(k, g);
    return r && best ? fmax(1, seconds_of(k, r) / seconds_of(k, best)) : 0;
}

/* Rank correlation. */

static double rank_of(const double *v, u32 n, u32 i) /* equal values share their mean rank */
{
    double less = 0, equal = 0;
    for (u32 j = 0; j < n; j++) less += v[j] < v[i], equal += v[j] == v[i];
    return less + (equal - 1) / 2;
}

static double spearman(const double *x, const double *y, u32 n)
{
    double middle = (n - 1) / 2.0, xx = 0, yy = 0, xy = 0;
    for (u32 i = 0; i < n; i++) {
        double a = rank_of(x, n, i) - middle, c = rank_of(y, n, i) - middle;
        xx += a * a, yy += c * c, xy += a * c;
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

struct relation { u32 n; double rank; }; /* NAN: too few, or all are equal */

static struct relation rebase_ratios(struct bench *b, const struct known_row *k, const struct gen *g)
{
    struct relation r = {0, NAN};
    double *x = arena_array(&b->arena, double, k->n + 1), *y = arena_array(&b->arena, double, k->n + 1);
    for (u32 i = 0; i < k->n; i++) {
        const struct trial_row *t = &k->v[i];
        if (!has_time(t, true) || !is_of(t, g)) continue;
        x[r.n] = gen_predict(&t->cand, k->row->task, &b->target.caps, b->var);
        y[r.n++] = seconds_of(k, t);
    }
    if (r.n >= LEAST_RANKS) r.rank = spearman(x, y, r.n);
    return r;
}

/* The table. */

static void print_number(const char *format, double x, bool is_known)
{
    if (is_known) printf(format, x);
    else printf("%8s", "-");
}

static void print_line(struct bench *b, const struct known_row *k, const struct gen *g, const struct candidate *first)
{
    struct relation r = rebase_ratios(b, k, g);
    if (r.n == 0) return;
    const struct trial_row *was = row_of(k, first), *best = best_of(k, g);
    double regret = regret_of(k, g, was), choice = regret_of(k, g, choice_of(b, k, g));
    if (g) printf("  %-42s", g->name);
    else printf("%-44.*s", STR_ARG(k->row->name));
    printf("%6u", r.n);
    print_number("%10.3f", was ? 1e3 * seconds_of(k, was) : 0, was != NULL);
    print_number("%10.3f", best ? 1e3 * seconds_of(k, best) : 0, best != NULL);
    print_number("%8.3f", regret, regret > 0);
    print_number("%8.3f", choice, choice > 0);
    print_number("%8.2f", r.rank, !isnan(r.rank));
    printf("\n");
    if (g) return;
    if (regret > 0) *arr_push(&b->arena, &b->regret) = regret;
    else b->n_unknown++;
    if (choice > 0) *arr_push(&b->arena, &b->choice) = choice;
    if (!isnan(r.rank)) *arr_push(&b->arena, &b->correlation) = r.rank;
}

static void print_candidates(struct bench *b, const struct known_row *k, const struct gen *g)
{
    struct buf text = {0};
    for (u32 i = 0; i < k->n; i++) {
        const struct trial_row *t = &k->v[i];
        if (!has_time(t, true) || !is_of(t, g)) continue;
        buf_reset(&text);
        candidate_print(&text, &t->cand);
        printf("    %10.4f%10.4f  %.*s\n", 1e3 * seconds_of(k, t), 1e3 * gen_predict(&t->cand, k->row->task, &b->target.caps, b->var),
               STR_ARG(buf_view(&text)));
    }
    buf_release(&text);
}

static bool print_row(struct bench *b, const struct row *r, struct err *e)
{
    struct known_row k;
    struct candidate c;
    if (!load(b, r, &k, e)) return false;
    if (!gen_default(r->task, &b->target.caps, b->var, &c)) return true;
    print_line(b, &k, NULL, &c);
    for (i64 i = 0; gen_at(i); i++) {
        if (!gen_matches(gen_at(i), r->task, &b->target.caps)) continue;
        c = gen_initial(gen_at(i), r->task, &b->target.caps, b->var);
        print_line(b, &k, gen_at(i), &c);
        if (b->is_verbose) print_candidates(b, &k, gen_at(i));
    }
    return true;
}

static bool print_table(struct bench *b, struct err *e)
{
    printf("%.*s; %.*s\n", STR_ARG(buf_view(&b->target.fingerprint)), STR_ARG(buf_view(&b->target.toolchain)));
    printf("%-44s%6s%10s%10s%8s%8s%8s\n", "row, its families", "known", "default", "best ms", "regret", "choice", "rank");
    for (u32 i = 0; i < b->n; i++)
        if (!print_row(b, &b->row[i], e)) return false;
    /* sorts */
    struct stats regret = stats_of(b->regret.v, b->regret.n), choice = stats_of(b->choice.v, b->choice.n), rank = stats_of(b->correlation.v, b->correlation.n);
    u32 n = b->regret.n;
    if (n == 0) return err_set(e, ERR_NOTHING, "the database knows no row with its default schedule on this device, with so many threads: -n 50 measures them");
    printf("%u rows: regret of the default median %.3f, most %.3f; of the choice median %.3f, most %.3f; correlation of ranks median %.2f, least %.2f\n", n,
           regret.median, b->regret.v[n - 1], choice.median, b->choice.v[b->choice.n - 1], b->correlation.n ? rank.median : NAN, b->correlation.n ? b->correlation.v[0] : NAN);
    if (b->n_unknown) printf("%u rows more whose default was not measured\n", b->n_unknown);
    return true;
}

static bool run(struct bench *b, const char *device, const char *path, struct err *e)
{
    if (!bench_target_open(&b->target, device, e) || !(does_tune(b) ? db_open(&b->db, path, e) : db_open_to_read(&b->db, path, e))) return false;
    struct rates measured;
    if (rates_find(&measured, b->target.driver, buf_view(&b->target.fingerprint))) b->target.caps.rates = measured;
    b->env = db_env(&b->db, buf_view(&b->target.fingerprint), buf_view(&b->target.toolchain), e);
    bool ok = b->env != 0 && bench_each_row(rows_path, &b->arena, take_row, b, e) && tune_rows(b, e) && print_table(b, e);
    db_close(&b->db);
    return ok;
}

static int usage(void)
{
    fprintf(stderr, "usage: model [-d DEVICE] [-t THREADS] [-l LIMITS] [-n TRIALS] [-r DRAWS] [-b SECONDS] [-s SEED] [-v] [-c CANDIDATE]... DB [GROUP[:NAME] ...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct bench *b = mem_alloc(sizeof *b);
    const char *device = "cpu";
    int c;
    b->target.dev.n_threads = 1, b->seed = 1;
    while ((c = getopt(argc, argv, "+d:t:l:n:r:b:s:vc:")) != -1) {
        if (c == '?') return usage();
        if (c == 'c' && !candidate_parse(arr_push(&b->arena, &b->listed), str_of(optarg), &e)) return fprintf(stderr, "model: %s\n", e.msg), 2;
        if (c == 'v') b->is_verbose = true;
        if (c == 'd') device = optarg;
        if (c == 't') b->target.dev.n_threads = (u32)atoi(optarg);
        if (c == 'l') b->target.dev.limits = str_of(optarg);
        if (c == 'n') b->n_trials = (u32)atoi(optarg);
        if (c == 'r') b->n_draws = (u32)atoi(optarg);
        if (c == 'b') b->end = os_now() + atof(optarg);
        if (c == 's') b->seed = (u64)atoll(optarg);
    }
    if (optind >= argc) return usage();
    b->pattern = argv + optind + 1, b->n_patterns = argc - optind - 1;
    b->var = arena_array(&b->arena, i64, GEN_MAX_VARS);
    for (u32 i = 0; i < GEN_MAX_VARS; i++) b->var[i] = GEN_NOMINAL;
    bool ok = run(b, device, argv[optind], &e);
    if (!ok) fprintf(stderr, "model: %s\n", e.msg);
    bench_target_release(&b->target);
    arena_release(&b->arena);
    mem_free(b);
    return !ok;
}
