// SPDX-License-Identifier: Apache-2.0
//
// Number of trials until the search finds fast kernels.
//
//   build/bench/search [-d DIR] [-l LAYERS] [-s SEED] [-r RANDOM] [-n TRIALS] [-b SECONDS] [STEP ...] [-- LAYER ...]
//
// Draws LAYERS (10) at random from the networks of the zoo and a list of GEMMs, or uses the named
// ones. Steps, all in this order unless named:
//
//   build    builds the candidates of `random` (only if named; otherwise `random` does it): other load on the machine does not matter
//            meanwhile
//   random   measures RANDOM (2000) legal candidates of each layer, drawn uniformly: DIR/LAYER-random.db
//   empty    a search of TRIALS (200) that starts from an empty database: DIR/LAYER-empty.db
//   others   one that starts from a database of the results of `empty` for the other layers: DIR/LAYER-others.db
//   side     re-measures the best of each side by side: five random ones, because with few samples the best-looking ones were lucky,
//            and three of each search (only if named)
//   table    the number of trials to come within 5 % of the best of the random ones
//   replay   simulates the search among the random candidates with the recorded times; measures nothing
//
// One thread, by its CPU time; few samples. Everything is kept in DIR (build/search) and continued:
// a complete step takes no time, -b SECONDS limits all of them together, and another RANDOM may be
// requested later: with a smaller one, the first RANDOM are used. `list` prints all layers.
#include "graphs.h"
#include "target.h"
#include "tune/search.h"
#include "zoo/zoo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOMINAL_SIZE = 256, MAX_LAYERS = 512, BATCH = 4, BUILT_AT_ONCE = 64, CONTENDERS = 5, SIDE_SAMPLES = 25 };
static const double enough = 0.95;

struct layer {
    struct str name;        /* "resnet50.12", "gemm:64,1000,2048" */
    struct task *task;
    const i64 *var;
};

struct bench {
    struct arena arena;
    struct bench_target target;
    struct cache cache;     /* of compiled kernels */
    struct layer layer[MAX_LAYERS];
    u32 n;
    struct layer *drawn[MAX_LAYERS];
    u32 n_drawn;
    const char *dir;
    u32 n_random, n_trials;
    u64 seed;
    double end;             /* by os_now; 0: none */
};

/* Layers. */

static bool is_known(const struct bench *b, const struct task *t)
{
    for (u32 i = 0; i < b->n; i++)
        if (str_eq(b->layer[i].task->text, t->text)) return true;
    return false;
}

struct network { struct bench *b; const struct zoo *z; const i64 *var; u32 n; };

static void add_task(void *user, struct task *t)
{
    struct network *x = user;
    struct bench *b = x->b;
    if (b->n == MAX_LAYERS || is_known(b, t)) return;
    b->layer[b->n++] = (struct layer){.name = str_fmt(&b->arena, "%s.%u", x->z->name, ++x->n), .task = t, .var = x->var};
}

static bool add_network(struct bench *b, const struct zoo *z, struct err *e)
{
    struct symtab *st = arena_new(&b->arena, struct symtab);
    struct graph *g = arena_new(&b->arena, struct graph);
    i64 *var = arena_array(&b->arena, i64, GEN_MAX_VARS);
    for (u32 i = 0; i < GEN_MAX_VARS; i++) var[i] = NOMINAL_SIZE;
    symtab_init(st, &b->arena);
    graph_init(g, &b->arena, st);
    return zoo_build(z, NULL, false, g, e) && op_infer_all(g, e) && bench_each_task(g, &b->target.caps, var, add_task, &(struct network){b, z, var, 0}, e);
}

static bool add_gemm(struct bench *b, i64 m, i64 n, i64 k, struct err *e)
{
    struct symtab *st = arena_new(&b->arena, struct symtab);
    struct graph *g = arena_new(&b->arena, struct graph);
    symtab_init(st, &b->arena);
    graph_init(g, &b->arena, st);
    value_id in[2] = {graph_add_value(g, S("a")), 0};
    struct value *x = graph_value(g, in[0]);
    x->dtype = DT_F32;
    x->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(st, m), sym_const(st, k)}};
    *arr_push(&b->arena, &g->input) = in[0];
    in[1] = graph_add_const(g, S("b"), tensor_new(&b->arena, DT_F32, 2, (i64[]){k, n}));
    value_id y = graph_op(g, "MatMul", S("y"), 2, in);
    *arr_push(&b->arena, &g->output) = y;
    if (!op_infer_all(g, e) || !op_expand_all(g, e) || !op_infer_all(g, e)) return false;
    u32 count = 0;
    node_id *nodes = arena_array(&b->arena, node_id, g->node.n);
    for (node_id i = 1; i < g->node.n; i++)
        if (!graph_node(g, i)->dead) nodes[count++] = i;
    enum layout *l = arena_array(&b->arena, enum layout, g->value.n);
    struct layer *to = &b->layer[b->n++];
    *to = (struct layer){.name = str_fmt(&b->arena, "gemm:%lld,%lld,%lld", (long long)m, (long long)n, (long long)k),
                         .task = arena_new(&b->arena, struct task), .var = arena_array(&b->arena, i64, 1)};
    return task_make(to->task, g, &b->arena, nodes, count, g->output.v, g->output.n, l, NULL, e);
}

static bool add_layers(struct bench *b, struct err *e)
{
    static const i64 gemm[][3] = {{512, 512, 512}, {1024, 1024, 1024}, {64, 1000, 2048}, {196, 512, 1024},
                                  {3136, 64, 576}, {128, 3072, 768}, {1, 4096, 1024}, {333, 777, 555}};
    for (i64 i = 0; zoo_at(i); i++)
        if (!add_network(b, zoo_at(i), e)) return err_prefix(e, "%s", zoo_at(i)->name);
    for (i64 i = 0; i < countof(gemm); i++)
        if (!add_gemm(b, gemm[i][0], gemm[i][1], gemm[i][2], e)) return false;
    return true;
}

static bool draw_layers(struct bench *b, u32 n, struct err *e)
{
    struct rng r = rng_seed(b->seed);
    for (u32 i = 0; i < b->n; i++) b->drawn[i] = &b->layer[i];
    for (u32 i = 0; i < b->n; i++) {
        i64 k = rng_range(&r, i, b->n - 1);
        struct layer *l = b->drawn[i];
        b->drawn[i] = b->drawn[k], b->drawn[k] = l;
    }
    b->n_drawn = n < b->n ? n : b->n;
    return n > 0 || err_set(e, ERR_USAGE, "no layers");
}

static bool take_layer(struct bench *b, const char *name, struct err *e)
{
    for (u32 i = 0; i < b->n; i++)
        if (str_is(b->layer[i].name, name)) {
            b->drawn[b->n_drawn++] = &b->layer[i];
            return true;
        }
    return err_set(e, ERR_USAGE, "no layer '%s'; `search list` prints them", name);
}

static void list(const struct bench *b)
{
    for (u32 i = 0; i < b->n; i++)
        printf("%-24.*s %8.3f GFLOP\n", STR_ARG(b->layer[i].name), task_flops(b->layer[i].task, b->layer[i].var) / 1e9);
}

/* Databases. */

static const char *path_of(struct bench *b, const struct layer *l, const char *what)
{
    return str_fmt(&b->arena, "%s/%.*s-%s.db", b->dir, STR_ARG(l->name), what).p;
}

static bool open_db(struct bench *b, const struct layer *l, const char *what, struct db *d, i64 *env, i64 *task, struct err *e)
{
    if (!db_open(d, path_of(b, l, what), e)) return false;
    *env = db_env(d, buf_view(&b->target.fingerprint), buf_view(&b->target.toolchain), e);
    *task = db_task(d, l->task, e);
    if (*env && *task) return true;
    db_close(d);
    return false;
}

static struct str sizes_of(struct bench *b, const struct layer *l)
{
    return sizes_text(&b->arena, l->task->g.sym, l->var, l->task);
}

struct rows { struct trial_row *v; u32 n; };

static bool load(struct bench *b, const struct layer *l, const char *what, struct rows *r, struct err *e)
{
    struct db d;
    i64 env, task;
    *r = (struct rows){0};
    if (!os_exists(path_of(b, l, what))) return true;
    if (!open_db(b, l, what, &d, &env, &task, e)) return false;
    bool ok = db_trials(&d, env, task, sizes_of(b, l), &b->arena, &r->v, &r->n, e);
    if (!strcmp(what, "random") && r->n > b->n_random) r->n = b->n_random;
    db_close(&d);
    return ok;
}

static u32 n_done(const struct rows *r)
{
    u32 n = 0;
    for (u32 i = 0; i < r->n; i++) n += r->v[i].status != TRIAL_NEW;
    return n;
}

static void show(void *user, const struct tune_progress *p)
{
    fprintf(stderr, "\r%s: %lld done, %lld failed, best %.3f   ", (const char *)user, (long long)p->done, (long long)p->failures, p->best);
}

static struct tune_opts options(const struct bench *b, const char *what)
{
    double left = b->end > 0 ? fmax(b->end - os_now(), 1e-3) : 0;
    return (struct tune_opts){.driver = b->target.driver, .dev = b->target.dev, .timeout = left, .min_samples = 3, .max_candidates = b->n_trials,
                              .measure = true, .seed = b->seed, .progress = isatty(2) ? show : NULL, .user = (void *)(uintptr_t)what};
}

static bool is_over(const struct bench *b) { return b->end > 0 && os_now() >= b->end; }

/* Running out of time before the first trial is no failure. */
static bool out_of_time(const struct bench *b, struct err *e)
{
    bool ok = is_over(b) && e->code == ERR_NOTHING;
    if (ok) *e = (struct err){0};
    return ok;
}

/* Random candidates. */

struct lot { struct hash at; struct candidate c; };
struct lots { struct arena arena; struct { struct lot *v; u32 n, cap; } all; };

static bool draw_one(void *user, const struct candidate *c)
{
    struct lots *l = user;
    struct buf b = {0};
    candidate_print(&b, c);
    *arr_push(&l->arena, &l->all) = (struct lot){hash_bytes(b.p, b.n), *c};
    buf_release(&b);
    return true;
}

static int by_lot(const void *a, const void *b)
{
    const struct lot *x = a, *y = b;
    return (x->at.lo > y->at.lo) - (x->at.lo < y->at.lo);
}

/* In the order of their hashes, so that a larger number contains a smaller one's candidates. */
static bool add_random(struct bench *b, const struct layer *l, struct db *d, i64 env, i64 task, struct err *e)
{
    struct lots lots = {0};
    struct buf text = {0};
    bool ok = true;
    gen_each(NULL, l->task, &b->target.caps, draw_one, &lots);
    qsort(lots.all.v, lots.all.n, sizeof *lots.all.v, by_lot);
    for (u32 i = 0; i < b->n_random && i < lots.all.n && ok; i++) {
        buf_reset(&text);
        candidate_print(&text, &lots.all.v[i].c);
        ok = db_trial(d, env, task, sizes_of(b, l), buf_view(&text), e) != 0;
    }
    buf_release(&text);
    arena_release(&lots.arena);
    return ok;
}

static struct builder builder_of(const struct bench *b)
{
    return (struct builder){
        .cache = &b->cache, .lang = b->target.lang, .caps = &b->target.caps, .toolchain = buf_view(&b->target.toolchain)};
}

static bool render(const struct bench *b, const struct layer *l, const struct candidate *c, struct kernel *k, struct str *text,
                  struct arena *a, struct err *e)
{
    struct buf t = {0};
    bool ok = gen_kernel(k, a, c, l->task, &b->target.caps, e) &&
              lang_render(&t, b->target.lang, &k->kir, &b->target.caps, a, e);
    if (ok) *text = str_dup(a, buf_view(&t));
    buf_release(&t);
    return ok;
}

/* Builds the uncached candidates of these rows. Those that cannot be emitted fail when they are
   measured. */
static bool build_batch(struct bench *b, const struct layer *l, const struct trial_row *rows, u32 n, struct err *e)
{
    struct arena a = {0};
    struct builder with = builder_of(b);
    struct str *text = arena_array(&a, struct str, n + 1);
    struct built *out = arena_array(&a, struct built, n + 1);
    u32 n_texts = 0;
    for (u32 i = 0; i < n; i++) {
        struct err refused = {0};
        struct kernel k;
        if (rows[i].status == TRIAL_NEW && render(b, l, &rows[i].cand, &k, &text[n_texts], &a, &refused)) n_texts++;
    }
    bool ok = build_all(&with, text, n_texts, out, &a, e);
    arena_release(&a);
    return ok;
}

static bool build_random(struct bench *b, struct layer *l, struct err *e)
{
    struct db d;
    i64 env, task;
    struct rows r;
    if (!load(b, l, "random", &r, e) || n_done(&r) >= b->n_random) return !e->code;
    if (!open_db(b, l, "random", &d, &env, &task, e)) return false;
    bool ok = add_random(b, l, &d, env, task, e) && db_trials(&d, env, task, sizes_of(b, l), &b->arena, &r.v, &r.n, e);
    u32 n = r.n < b->n_random ? r.n : b->n_random;
    for (u32 i = 0; i < n && ok && !is_over(b); i += BUILT_AT_ONCE)
        ok = build_batch(b, l, r.v + i, (u32)i64_min(BUILT_AT_ONCE, n - i), e);
    db_close(&d);
    return ok;
}

static bool measure_random(struct bench *b, struct layer *l, struct err *e)
{
    struct db d;
    i64 env, task;
    struct rows r;
    struct tune_result result;
    struct tune_opts o = options(b, "random");
    if (!load(b, l, "random", &r, e) || n_done(&r) >= b->n_random) return !e->code;
    if (!open_db(b, l, "random", &d, &env, &task, e)) return false;
    bool ok = add_random(b, l, &d, env, task, e) && tune_bench(&d, &o, &result, e);
    db_close(&d);
    return ok;
}

/* Searches. */

static bool search_in(struct bench *b, struct layer *l, const char *what, struct err *e)
{
    struct db d;
    i64 env, task;
    struct tune_result result;
    struct tune_task t = {.task = l->task, .var = l->var, .weight = 1};
    struct tune_opts o = options(b, what);
    o.add_candidates = true;
    if (!open_db(b, l, what, &d, &env, &task, e)) return false;
    bool ok = tune_run(&d, &t, 1, &o, &result, e);
    db_close(&d);
    return ok;
}

static bool search_empty(struct bench *b, struct layer *l, struct err *e)
{
    struct rows r;
    if (!load(b, l, "empty", &r, e) || n_done(&r) >= b->n_trials) return !e->code;
    return search_in(b, l, "empty", e);
}

static bool search_others(struct bench *b, struct layer *l, struct err *e)
{
    struct rows r;
    struct db d;
    i64 env, task, n;
    if (!load(b, l, "others", &r, e) || n_done(&r) >= b->n_trials) return !e->code;
    if (!open_db(b, l, "others", &d, &env, &task, e)) return false;
    bool ok = true;
    for (u32 i = 0; i < b->n_drawn && ok; i++)
        if (b->drawn[i] != l && os_exists(path_of(b, b->drawn[i], "empty"))) ok = db_merge(&d, path_of(b, b->drawn[i], "empty"), &n, e);
    db_close(&d);
    return ok && search_in(b, l, "others", e);
}

/* Results. */

struct tally { u32 reached, n; }; /* layers */

static void print_reach(const struct rows *r, double target, struct tally *t)
{
    u32 at = trials_to(r->v, r->n, target / enough);
    double best = best_ratio(r->v, r->n);
    t->reached += at > 0, t->n += r->n > 0;
    if (r->n == 0) printf("      -       -      -");
    else if (at) printf(" %6u", at);
    else printf("  never");
    if (r->n) printf(" %7.3f %6u", target / best, n_done(r));
}

static bool print_table(struct bench *b, struct err *e)
{
    struct tally t[2] = {0};
    printf("%.*s; %.*s; seed %llu\n", STR_ARG(buf_view(&b->target.fingerprint)), STR_ARG(buf_view(&b->target.toolchain)),
           (unsigned long long)b->seed);
    printf("%-22s %7s %8s %6s |%7s %7s %6s |%7s %7s %6s\n", "layer", "random", "speed-up", "half", "empty", "best", "trials", "others", "best",
           "trials");
    for (u32 i = 0; i < b->n_drawn; i++) {
        struct rows random, empty, others;
        if (!load(b, b->drawn[i], "random", &random, e) || !load(b, b->drawn[i], "empty", &empty, e) ||
            !load(b, b->drawn[i], "others", &others, e))
            return false;
        double target = best_ratio(random.v, random.n);
        if (target <= 0) continue;
        double half = best_ratio(random.v, n_done(&random) / 2);
        printf("%-22.*s %7u %8.3f %6.3f |", STR_ARG(b->drawn[i]->name), n_done(&random), 1 / target, half > 0 ? target / half : 0);
        print_reach(&empty, target, &t[0]);
        printf(" |");
        print_reach(&others, target, &t[1]);
        printf("\n");
    }
    printf("%.0f %% of the best random candidate reached: %u of %u from an empty database, %u of %u from one of other layers\n", 100 * enough,
           t[0].reached, t[0].n, t[1].reached, t[1].n);
    printf("speed-up: of the best random candidate over the default schedule; half: what the first half of them reached of it;\n"
           "empty, others: trials needed; best: random best over the search's best\n");
    return true;
}

/* Side by side. */

struct contender { double ratio, low, high; };
struct contenders { struct subject s[CONTENDERS]; struct contender best[CONTENDERS]; u32 n; };

static const struct { const char *name; u32 contenders; } party[] = {{"random", CONTENDERS}, {"empty", 3}, {"others", 3}};

/* The best measured, best first; the reference has no ratio of its own. */
static u32 best_rows(const struct rows *r, const struct trial_row **out, u32 max)
{
    u32 n = 0;
    for (u32 i = 0; i < r->n; i++) {
        const struct trial_row *x = &r->v[i];
        if (x->status != TRIAL_OK || x->ratio <= 0) continue;
        u32 k = n < max ? n++ : max;
        for (; k > 0 && out[k - 1]->ratio > x->ratio; k--)
            if (k < max) out[k] = out[k - 1];
        if (k < max) out[k] = x;
    }
    return n;
}

/* The kernels of the best rows, from the cache or built. */
static bool take_best(struct bench *b, const struct layer *l, u32 side, struct contenders *c, struct err *e)
{
    const char *what = party[side].name;
    const struct trial_row *row[CONTENDERS];
    struct str text[CONTENDERS];
    struct built out[CONTENDERS];
    struct rows r;
    struct db d;
    i64 env, task;
    *c = (struct contenders){0};
    if (!load(b, l, what, &r, e)) return false;
    u32 n = best_rows(&r, row, party[side].contenders);
    for (u32 i = 0; i < n; i++)
        if (!render(b, l, &row[i]->cand, &c->s[i].kernel, &text[i], &b->arena, e)) return false;
    if (n == 0) return true;
    if (!open_db(b, l, what, &d, &env, &task, e)) return false;
    struct builder with = builder_of(b);
    bool ok = build_all(&with, text, n, out, &b->arena, e);
    for (u32 i = 0; i < n && ok; i++) {
        ok = out[i].ok || err_set(e, ERR_FAILED, "%.*s", STR_ARG(out[i].message));
        c->s[i].code = out[i].code;
    }
    c->n = n;
    db_close(&d);
    return ok;
}

struct beside { double q[SIDE_SAMPLES]; u32 n; };

static bool keep_ratio(void *user, const struct sample *s, u32 n)
{
    struct beside *x = user;
    if (!s->is_cold && x->n < SIDE_SAMPLES) x->q[x->n++] = s->seconds / s->base;
    return x->n < SIDE_SAMPLES;
}

/* One sample of each and of the base in turn. */
static bool time_beside(struct trial_session *t, u32 k, struct contender *c, struct err *e)
{
    struct beside x = {0};
    struct buf why = {0};
    bool ok = trial_next(t, k, keep_ratio, &x, &why) == TRIAL_OK && x.n > 0;
    if (!ok) err_set(e, ERR_FAILED, "%.*s", STR_ARG(buf_view(&why)));
    struct stats s = stats_of(x.q, x.n);
    *c = (struct contender){s.median, s.low, s.high};
    buf_release(&why);
    return ok;
}

static bool time_party(const struct bench *b, const struct check *timing, const struct subject *base, struct contenders *c, struct err *e)
{
    struct trial_opts o = {.driver = b->target.driver, .dev = b->target.dev, .timeout = 60, .max_samples = SIDE_SAMPLES, .base = base};
    struct trial_session t = {.subject = c->s, .timing = timing, .o = &o};
    bool ok = true;
    for (u32 i = 0; i < c->n && ok; i++) ok = time_beside(&t, i, &c->best[i], e);
    trial_close(&t);
    return ok;
}

static const struct contender *fastest(const struct contenders *c)
{
    const struct contender *best = &c->best[0];
    for (u32 i = 1; i < c->n; i++)
        if (c->best[i].ratio < best->ratio) best = &c->best[i];
    return best;
}

static bool time_layer(struct bench *b, const struct layer *l, struct contenders c[3], struct err *e)
{
    struct check timing;
    for (u32 i = 0; i < 3; i++)
        if (!take_best(b, l, i, &c[i], e)) return false;
    if (c[0].n == 0) return true;
    if (!check_init(&timing, l->task, l->var, b->seed, false, e)) return false;
    bool ok = true;
    for (u32 i = 0; i < 3 && ok; i++) ok = time_party(b, &timing, &c[0].s[0], &c[i], e);
    check_release(&timing);
    return ok;
}

/* Speed-up of the best of a search over the best random one. */
static void print_side(const struct contenders *random, const struct contenders *search, struct tally *t)
{
    if (search->n == 0) {
        printf(" | %-23s", "-");
        return;
    }
    const struct contender *x = fastest(random), *y = fastest(search);
    t->reached += x->ratio / y->ratio >= enough, t->n++;
    printf(" | %.3f (%.3f to %.3f)", x->ratio / y->ratio, x->ratio / y->high, x->ratio / y->low);
}

static bool side(struct bench *b, struct err *e)
{
    struct tally t[2] = {0};
    printf("%-22s   %-23s   %s\n", "layer", "empty", "others");
    for (u32 i = 0; i < b->n_drawn; i++) {
        struct contenders c[3];
        if (!time_layer(b, b->drawn[i], c, e)) return err_prefix(e, "%.*s", STR_ARG(b->drawn[i]->name));
        if (c[0].n == 0) continue;
        printf("%-22.*s", STR_ARG(b->drawn[i]->name));
        print_side(&c[0], &c[1], &t[0]);
        print_side(&c[0], &c[2], &t[1]);
        printf("\n");
    }
    printf("at least %.2f times as fast as the best random candidate: %u of %u from an empty database, %u of %u from one of other layers\n",
           enough, t[0].reached, t[0].n, t[1].reached, t[1].n);
    return true;
}

/* Replay. */

struct tape { struct task_search ts; struct tune_task t; struct rows rows; struct map at; };

static bool load_tape(struct bench *b, struct layer *l, struct tape *p, struct err *e)
{
    *p = (struct tape){.t = {.task = l->task, .var = l->var, .weight = 1}};
    map_init(&p->at, &b->arena);
    if (!load(b, l, "random", &p->rows, e)) return false;
    for (u32 i = 0; i < p->rows.n; i++) /* the reference has no ratio: it would be known from the start */
        if (p->rows.v[i].ratio > 0 || p->rows.v[i].status > TRIAL_SLOW) map_put(&p->at, p->rows.v[i].text, i);
    return true;
}

static void rewind_tape(struct bench *b, struct tape *p)
{
    p->ts = (struct task_search){.t = &p->t, .best_at = -1, .best_ratio = 1, .base_time.median = 1, .only = &p->at};
    map_init(&p->ts.seen, &b->arena);
    for (u32 i = 0; i < p->at.n; i++) {
        const struct trial_row *r = &p->rows.v[p->at.v[i].val];
        *arr_push(&b->arena, &p->ts.pool) = (struct trial){.cand = r->cand};
    }
}

static void add_trial(struct bench *b, struct tape *p, const struct trial_row *r)
{
    *arr_push(&b->arena, &p->ts.known) =
        (struct trial){.cand = r->cand, .status = r->status, .n = r->n, .median = r->ratio, .ratio = r->ratio};
    p->ts.n_tried++;
    task_search_update_best(&p->ts);
}

static const struct trial_row *row_of(const struct tape *p, const struct candidate *c)
{
    struct buf text = {0};
    candidate_print(&text, c);
    const struct trial_row *r = &p->rows.v[*map_get(&p->at, buf_view(&text))];
    buf_release(&text);
    return r;
}

/* Trials until one is close enough to the best of the tape; 0: never. */
static u32 play(struct bench *b, struct tape *p, struct search *s)
{
    double target = INFINITY;
    struct candidate c[BATCH];
    for (u32 i = 0; i < p->at.n; i++) {
        const struct trial_row *r = &p->rows.v[p->at.v[i].val];
        if (r->status == TRIAL_OK && r->ratio > 0) target = fmin(target, r->ratio / enough);
    }
    rewind_tape(b, p);
    while (p->ts.n_tried < b->n_trials) {
        u32 n = task_search_propose(&p->ts, s, c, BATCH);
        for (u32 i = 0; i < n; i++) {
            add_trial(b, p, row_of(p, &c[i]));
            if (p->ts.best_at >= 0 && p->ts.best <= target) return p->ts.n_tried;
        }
        if (n == 0) break;
    }
    return 0;
}

static bool replay(struct bench *b, struct err *e)
{
    struct tape *p = arena_array(&b->arena, struct tape, b->n_drawn + 1);
    struct task_search **past = arena_array(&b->arena, struct task_search *, b->n_drawn + 1);
    for (u32 i = 0; i < b->n_drawn; i++) {
        if (!load_tape(b, b->drawn[i], &p[i], e)) return false;
        past[i] = &p[i].ts;
    }
    printf("%-22s %7s %7s %7s\n", "layer", "random", "empty", "others");
    for (u32 i = 0; i < b->n_drawn; i++) {
        if (p[i].at.n == 0) continue;
        struct search s = {.caps = &b->target.caps, .rng = rng_seed(b->seed)};
        u32 alone = play(b, &p[i], &s);
        for (u32 k = 0; k < b->n_drawn; k++) {
            rewind_tape(b, &p[k]);
            for (u32 x = 0; x < p[k].at.n && x < b->n_trials; x++) add_trial(b, &p[k], &p[k].rows.v[p[k].at.v[x].val]);
        }
        s = (struct search){.caps = &b->target.caps, .rng = rng_seed(b->seed), .past = past, .n_past = b->n_drawn};
        printf("%-22.*s %7u %7u %7u\n", STR_ARG(b->drawn[i]->name), p[i].at.n, alone, play(b, &p[i], &s));
    }
    return true;
}

/* Steps. */

typedef bool each_fn(struct bench *b, struct layer *l, struct err *e);

static const struct { const char *name; each_fn *each; bool (*all)(struct bench *b, struct err *e); bool unasked; } steps[] = {
    {"build", build_random, NULL, false},  {"random", measure_random, NULL, true}, {"empty", search_empty, NULL, true}, {"others", search_others, NULL, true},
    {"table", NULL, print_table, true},     {"side", NULL, side, false},             {"replay", NULL, replay, false},
};

static bool run_step(struct bench *b, i64 k, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; steps[k].each && i < b->n_drawn && ok && !is_over(b); i++) {
        double start = os_now();
        ok = steps[k].each(b, b->drawn[i], e) || out_of_time(b, e) || err_prefix(e, "%.*s", STR_ARG(b->drawn[i]->name));
        fprintf(stderr, "%s%-7s %-22.*s %8.1f s\n", isatty(2) ? "\r" : "", steps[k].name, STR_ARG(b->drawn[i]->name), os_now() - start);
    }
    return ok && (!steps[k].all || steps[k].all(b, e));
}

static bool run(struct bench *b, char **name, u32 n_names, bool by_name, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < n_names && ok; i++) {
        i64 k = 0;
        while (k < countof(steps) && strcmp(name[i], steps[k].name) != 0) k++;
        ok = k < countof(steps) ? run_step(b, k, e) : err_set(e, ERR_USAGE, "no step '%s'", name[i]);
    }
    for (i64 k = 0; k < countof(steps) && ok && !by_name; k++)
        if (steps[k].unasked) ok = run_step(b, k, e);
    return ok;
}

static bool open_bench(struct bench *b, struct err *e)
{
    cache_open(&b->cache, "kernels", &b->arena, &(struct log){0});
    return os_mkdirs(b->dir, e) && bench_target_open(&b->target, "cpu", e) && add_layers(b, e);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct bench *b = mem_alloc(sizeof *b);
    u32 n_layers = 10, n_steps = 0;
    int c;
    *b = (struct bench){.target.dev.n_threads = 1, .dir = "build/search", .n_random = 2000, .n_trials = 200, .seed = 1};
    while ((c = getopt(argc, argv, "+d:l:s:r:n:b:")) != -1) {
        if (c == '?') return 2;
        if (c == 'd') b->dir = optarg;
        if (c == 'l') n_layers = (u32)atoi(optarg);
        if (c == 's') b->seed = (u64)atoll(optarg);
        if (c == 'r') b->n_random = (u32)atoi(optarg);
        if (c == 'n') b->n_trials = (u32)atoi(optarg);
        if (c == 'b') b->end = os_now() + atof(optarg);
    }
    while (optind + (int)n_steps < argc && strcmp(argv[optind + (int)n_steps], "--") != 0) n_steps++;
    int first = optind + (int)n_steps + 1;
    bool ok = open_bench(b, &e);
    if (ok && n_steps == 1 && !strcmp(argv[optind], "list")) list(b), n_layers = 0;
    else {
        ok = ok && (first < argc || draw_layers(b, n_layers, &e));
        for (int i = first; i < argc && ok; i++) ok = take_layer(b, argv[i], &e);
        ok = ok && run(b, argv + optind, n_steps, n_steps > 0, &e);
    }
    if (!ok) fprintf(stderr, "search: %s\n", e.msg);
    bench_target_release(&b->target);
    arena_release(&b->arena);
    mem_free(b);
    return !ok;
}
