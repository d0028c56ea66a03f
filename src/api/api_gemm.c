// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by configurations. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "lab/lab.h"

#include <string.h>

enum { MAX_CONFIG = 1 << 26, MAX_RESULT = 1 << 26 };
static const double share_of_peak = 0.6;

struct gemm_call {
    struct quern_gemm_opts x;
    struct api_job job;
    struct lab_space space;
    struct lab_sweep sweep;
    struct lab_results results; /* what the file says already, then the database's beside */
    struct arena arena;
};

static bool find_rules(const char *name, enum lab_rules *r, struct err *e)
{
    u32 k = 0;
    while (name && k < N_LAB_RULES && strcmp(name, lab_rules_name(k))) k++;
    *r = k;
    return k < N_LAB_RULES || err_set(e, ERR_USAGE, "no rules '%s', expected own, deepgen or deepgen-2025-06", name);
}

/* Spellings of other tools, too. */
static bool find_type(const char *name, enum dtype *t, struct err *e)
{
    static const struct { const char *name; enum dtype type; } known[] = {
        {"float32", DT_F32}, {"fp32", DT_F32},      {"f32", DT_F32},   {"float16", DT_F16}, {"fp16", DT_F16},
        {"f16", DT_F16},     {"bfloat16", DT_BF16}, {"bf16", DT_BF16}, {"float64", DT_F64}, {"f64", DT_F64},
    };
    for (i64 k = 0; name && k < countof(known); k++)
        if (!strcmp(name, known[k].name)) {
            *t = known[k].type;
            return true;
        }
    return !name || err_set(e, ERR_USAGE, "no element type '%s', expected float32, float16 or bfloat16", name);
}

static bool read_config(struct gemm_call *g, const char *path, struct err *e)
{
    struct str text;
    if (!os_read(&g->arena, path, MAX_CONFIG, &text, e)) return false;
    return lab_space_read(&g->space, &g->arena, text, e) || err_prefix(e, "'%s'", path);
}

/* Before anything is measured: a file that cannot be merged must not be found at the end. */
static bool read_results(struct gemm_call *g, const char *path, struct err *e)
{
    struct str text;
    if (!path || !os_exists(path)) return true;
    if (!os_read(&g->arena, path, MAX_RESULT, &text, e)) return false;
    return lab_results_read(&g->results, &g->arena, text, e) || err_prefix(e, "'%s'", path);
}

static bool write_results(struct gemm_call *g, const char *path, struct err *e)
{
    struct buf b = {0};
    lab_results_print(&b, &g->results, LAB_BEST);
    bool ok = !path || os_write(path, b.p, b.n, e);
    buf_release(&b);
    return ok;
}

/* What is left of the space behind each rule. */
static bool tell_space(struct gemm_call *g, const struct log *log, struct err *e)
{
    struct lab_count c;
    struct err why = {0};
    bool ok = lab_space_count(&g->space, g->sweep.rules, &c, &why);
    log_printf(log, 2, "space: %.0f points", g->space.listed.n ? c.n : c.raw);
    for (u32 k = 0; k < N_LAB_STAGES && !g->space.listed.n; k++)
        log_printf(log, 2, "  %-34s %12.0f -> %.0f", c.stage[k].what, c.stage[k].before, c.stage[k].after);
    if (ok) log_printf(log, 2, "space by rules '%s': %.0f points", lab_rules_name(g->sweep.rules), c.n);
    return ok || err_set(e, why.code, "%s", why.msg);
}

/* The device and what it can, for the rules and the generator. */
static bool open_target(struct gemm_call *g, quern_db *db, struct err *e)
{
    struct api_job *j = &g->job;
    if (!api_job_choose(j, e) || !api_target_ask(&j->target, e)) return false;
    const struct caps *c = &j->target.caps;
    g->sweep.caps = c;
    g->sweep.env = db_env(&db->db, buf_view(&j->target.fingerprint), buf_view(&j->target.toolchain), e);
    if (c->max_group) g->space.max_threads = c->max_group;
    if (c->shared_bytes) g->space.max_shared = c->shared_bytes;
    return g->sweep.env != 0;
}

static double flops_of(const struct lab_config *c)
{
    double f = 2.0 * (double)c->m * (double)c->n * (double)c->k;
    for (u32 i = 0; i < c->n_batch; i++) f *= (double)c->batch[i];
    return f;
}

static void set_goal(struct gemm_call *g, const struct log *log)
{
    double peak = g->sweep.caps->gflops * 1e9;
    if (!g->x.stop_at_tflops) return;
    if (peak > 0) g->job.t.stop_at_seconds = flops_of(&g->space.base) / (share_of_peak * peak);
    else log_printf(log, 1, "the device does not say how fast it is: no stop at a share of that");
}

static void tell_best(const struct gemm_call *g, const struct lab_swept *r, struct quern_gemm_best *best)
{
    *best = (struct quern_gemm_best){.n_points = r->n_points, .n_refused = r->n_refused};
    if (!g->results.n) return;
    const struct lab_result *x = &g->results.v[0]; /* sorted when they were written */
    i64 n = i64_min(x->name.n, (i64)sizeof best->name - 1);
    memcpy(best->name, x->name.p, (size_t)n);
    best->seconds = x->ms / 1e3, best->base_seconds = x->base_ms / 1e3, best->speedup = x->speedup;
    if (x->ms > 0) best->tflops = flops_of(&g->space.base) / best->seconds / 1e12;
}

static bool run(struct gemm_call *g, quern_db *db, struct quern_gemm_best *best, struct err *e)
{
    struct lab_swept r = {0};
    g->sweep.space = &g->space, g->sweep.db = &db->db, g->sweep.tune = &g->job.t;
    g->sweep.start = g->x.start, g->sweep.max = g->x.max;
    if (!open_target(g, db, e) || !tell_space(g, &db->q->log, e)) return false;
    set_goal(g, &db->q->log);
    bool ok = lab_sweep(&g->sweep, &r, e);
    if (ok && r.n_refused)
        log_printf(&db->q->log, 2, "%lld of %lld points cannot be taken, the first: %.*s", (long long)r.n_refused,
                   (long long)r.n_points, STR_ARG(buf_view(&r.why)));
    ok = ok && lab_sweep_results(&g->sweep, &g->results, &g->arena, e) && write_results(g, g->x.result, e);
    if (ok) tell_best(g, &r, best);
    buf_release(&r.why);
    return ok;
}

quern_status quern_gemm(quern_db *db, const char *config, const struct quern_gemm_opts *o, struct quern_gemm_best *best)
{
    struct err *e = api_begin(db->q);
    struct gemm_call g = {0};
    if (o) memcpy(&g.x, o, o->size < sizeof g.x ? o->size : sizeof g.x);
    *best = (struct quern_gemm_best){0};
    bool ok = g.x.start >= 0 && g.x.max >= 0;
    if (!ok) err_set(e, ERR_USAGE, "start and number of points cannot be negative");
    ok = ok && find_rules(g.x.rules ? g.x.rules : lab_rules_name(LAB_RULES_OWN), &g.sweep.rules, e) &&
         read_config(&g, config, e) && find_type(g.x.type, &g.space.dtype, e) && read_results(&g, g.x.result, e) &&
         api_job_read(&g.job, db->q, g.x.tune, e);
    ok = ok && run(&g, db, best, e);
    api_target_close(&g.job.target);
    arena_release(&g.arena);
    return api_end(db->q, ok);
}
