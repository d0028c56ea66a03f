// SPDX-License-Identifier: Apache-2.0
//
// A sweep over a space: each point is a candidate of the same task and is measured like any candidate, in a child process, verified,
// interleaved with the reference schedule, stored at once. Points are taken from the space in pieces, on demand.
#include "lab/lab.h"

#include <string.h>

enum { PIECE = 256 };
static const double near_peak = 0.6; /* of the device's peak */

struct source { /* candidates that are still to be measured */
    const struct lab_sweep *s;
    struct lab_swept *r;
    const struct task *task;
    struct lab_config *piece;
    u32 n, at;  /* of the piece */
    i64 next;   /* number of the point after it */
    i64 end;    /* number after the last requested point */
    bool is_empty; /* there is no point at all */
};

static bool keep_point(void *user, const struct lab_config *c, i64 number)
{
    struct source *q = user;
    if (number >= q->end) return false;
    q->piece[q->n++] = *c;
    q->next = number + 1;
    return q->n < PIECE;
}

static bool next_point(struct source *q, struct lab_config *c)
{
    if (q->at == q->n) {
        q->n = q->at = 0;
        lab_space_each(q->s->space, q->s->rules, q->next, keep_point, q);
    }
    q->is_empty = q->n == 0 && q->r->n_points == 0;
    if (q->n == 0) return false;
    *c = q->piece[q->at++];
    q->r->n_points++;
    return true;
}

static bool is_attention(const struct lab_sweep *s) { return lab_is_attention(s->space->base.kind); }
/* Names of attention state schedules of processors, too. */
static bool is_on_processor(const struct lab_sweep *s) { return is_attention(s) && !s->caps->is_gpu; }
/* Do several names have one schedule? */
static bool has_many_names(const struct lab_sweep *s)
{
    const struct lab_config *c = &s->space->base;
    return is_on_processor(s) || (is_attention(s) && !lab_attention_of(c->kind, c->part).has_o);
}
static const char *family_of(const struct lab_sweep *s) { return is_on_processor(s) ? "attention" : is_attention(s) ? "wg_attention" : "wg_gemm"; }

/* Rows are reduced by shuffles where the device has them for so many threads. */
static bool take_attention(const struct source *q, const struct lab_config *c, struct candidate *x, struct err *e)
{
    const struct lab_sweep *s = q->s;
    if (is_on_processor(s)) return lab_attention_schedule(x, c, q->task, s->caps, e);
    for (u32 shuffles = 2; shuffles-- > 0;) {
        if (!lab_attention_candidate(x, c, s->space->dtype, shuffles, e)) return false;
        if (gen_legal(x, q->task, s->caps)) return true;
    }
    return err_set(e, ERR_UNSUPPORTED, "generator '%s' refuses it: %lld threads, %lld registers per thread, %lld bytes of shared memory", x->gen->name,
                   (long long)lab_threads(c), (long long)lab_registers(c), (long long)lab_shared(c, dtype_size(s->space->dtype)));
}

static bool take(const struct source *q, const struct lab_config *c, struct candidate *x, struct err *e)
{
    const struct lab_sweep *s = q->s;
    if (is_attention(s)) return take_attention(q, c, x, e);
    if (!lab_candidate(x, c, s->space->dtype, e) || !lab_fits(c, s->space->dtype, s->caps, e)) return false;
    return gen_legal(x, q->task, s->caps) ||
           err_set(e, ERR_UNSUPPORTED, "generator '%s' refuses it: %lld registers per thread, %lld + %lld elements loaded per thread and K block",
                   x->gen->name, (long long)lab_registers(c), (long long)c->v[LF_BM] * c->v[LF_BK] / lab_threads(c),
                   (long long)c->v[LF_BN] * c->v[LF_BK] / lab_threads(c));
}

/* Of the schedules that points had; swept->taken.n: it is none. */
static u32 taken_at(const struct lab_swept *r, const struct candidate *x)
{
    u32 i = 0;
    while (i < r->taken.n && (r->taken.v[i].cand.gen != x->gen || memcmp(&r->taken.v[i].cand.sched, &x->sched, sizeof x->sched))) i++;
    return i;
}

/* false: another point has had the schedule. */
static bool note_taken(struct lab_swept *r, const struct lab_config *c, const struct candidate *x)
{
    if (taken_at(r, x) < r->taken.n) return false;
    *arr_push(&r->arena, &r->taken) = (struct lab_taken){*x, *c};
    return true;
}

/* The next legal candidate. */
static bool next_candidate(void *user, struct candidate *x)
{
    struct source *q = user;
    struct lab_config c;
    while (next_point(q, &c)) {
        struct err e = {0};
        bool taken = take(q, &c, x, &e);
        if (taken && (!has_many_names(q->s) || note_taken(q->r, &c, x))) return true;
        if (taken) continue;
        if (q->r->n_refused++) continue;
        lab_name_print(&q->r->why, &c);
        buf_printf(&q->r->why, ": %s", e.msg);
    }
    return false;
}

/* Points are of one family; a search uses every family that matches. */
static bool check_device(const struct lab_sweep *s, const struct task *t, struct err *e)
{
    const struct gen *g = gen_find(str_of(family_of(s)));
    if (s->search || (g && gen_matches(g, t, s->caps))) return true;
    if (is_attention(s))
        return err_set(e, ERR_UNSUPPORTED, "kind '%s' of this type is not built by its tiles on device '%s': generator '%s' does not take it",
                       lab_kind(s->space->base.kind)->op, s->tune->driver->name, family_of(s));
    return err_set(e, ERR_UNSUPPORTED, "device '%s' has no workgroups, or lacks the types of this GEMM", s->tune->driver->name);
}

/* The operands of the task's GEMM in memory. */
static value_id operand(const struct graph *g, u32 k)
{
    const struct node *x = graph_node(g, graph_value(g, g->output.v[0])->producer);
    const struct value *v = graph_value(g, x->in.v[k]);
    return v->producer ? graph_node(g, v->producer)->in.v[0] : x->in.v[k];
}

/* The baseline. */

static bool is_baseline(const struct lab_sweep *s, const char *name) { return s->baseline && !strcmp(s->baseline, name); }

static bool find_vendor(const struct lab_sweep *s, struct buf *vendor, struct err *e)
{
    struct dev_gemm p;
    struct err why = {0};
    if (is_baseline(s, "reference")) return true;
    if (is_attention(s)) return !is_baseline(s, "vendor") || err_set(e, ERR_UNSUPPORTED, "no baseline 'vendor': no library's attention is timed");
    lab_vendor_gemm(&p, &s->space->base, s->space->dtype);
    if (dev_ask_gemm(s->tune->driver, &s->tune->dev, &p, vendor, &why)) return true;
    buf_reset(vendor);
    if (is_baseline(s, "vendor")) return err_set(e, why.code, "no baseline 'vendor': %s", why.msg);
    log_printf(s->tune->log, 2, "baseline: the reference schedule (%s)", why.msg);
    return true;
}

/* A failure of the library is an error only if the caller requested it as the baseline. */
static bool check_vendor(const struct lab_sweep *s, const struct lab_swept *r, struct err *e)
{
    enum trial_status st = r->tuned.vendor;
    if (!is_baseline(s, "vendor") || st == TRIAL_OK || st == TRIAL_NEW) return true;
    return err_set(e, ERR_FAILED, "no baseline 'vendor': %.*s: %s: %.*s", STR_ARG(buf_view(&r->vendor)), trial_status_name(st),
                   STR_ARG(buf_view(&r->tuned.vendor_reason)));
}

static struct tune_vendor vendor_of(const struct lab_sweep *s, const struct lab_swept *r, const struct task *t)
{
    if (!r->vendor.n) return (struct tune_vendor){0};
    struct tune_vendor v = {.name = buf_view(&r->vendor), .a = operand(&t->g, 0), .b = operand(&t->g, 1)};
    lab_vendor_gemm(&v.gemm, &s->space->base, s->space->dtype);
    return v;
}

/* The run. */

static double stop_seconds(const struct lab_sweep *s)
{
    double peak = s->caps->gflops * 1e9;
    if (peak > 0) return lab_flops(&s->space->base) / (near_peak * peak);
    log_printf(s->tune->log, 1, "the peak of the device is unknown: no stop near it");
    return 0;
}

static bool task_of(const struct lab_sweep *s, struct task *t, struct arena *a, struct symtab *st, struct err *e)
{
    return (is_attention(s) ? lab_attention_task : lab_task)(t, a, st, &s->space->base, s->space->dtype, e);
}

static bool sweep(const struct lab_sweep *s, struct lab_swept *r, struct arena *a, struct err *e)
{
    struct symtab st;
    struct task t;
    struct source q = {.s = s, .r = r, .task = &t, .next = s->start, .end = s->max ? s->start + s->max : INT64_MAX};
    symtab_init(&st, a);
    if (!task_of(s, &t, a, &st, e) || !check_device(s, &t, e)) return false;
    q.piece = arena_array(a, struct lab_config, PIECE);
    struct tune_opts o = *s->tune;
    const struct tune_source points = {next_candidate, &q};
    const struct tune_vendor vendor = vendor_of(s, r, &t);
    if (r->vendor.n) o.vendor = &vendor;
    if (s->stops_near_peak) o.stop_at_seconds = stop_seconds(s);
    o.source = s->search ? NULL : &points;
    o.add_candidates = true;
    struct tune_task one = {.task = &t, .var = arena_array(a, i64, 1), .weight = 1};
    bool ok = tune_run(s->db, &one, 1, &o, &r->tuned, e);
    if (ok && r->n_points && r->n_refused == r->n_points)
        return err_set(e, ERR_NOTHING, "none of %lld points can be taken: %.*s", (long long)r->n_points, STR_ARG(buf_view(&r->why)));
    if (ok && q.is_empty) return err_set(e, ERR_NOTHING, "no point has number %lld or more", (long long)s->start);
    return ok;
}

/* Reports how many points remain after each rule. */
static bool report_space(const struct lab_sweep *s, struct err *e)
{
    struct lab_count c;
    bool ok = lab_space_count(s->space, s->rules, &c, e);
    lab_space_report(s->tune->log, s->space, s->rules, &c);
    return ok;
}

bool lab_sweep(const struct lab_sweep *s, struct lab_swept *r, struct err *e)
{
    struct arena a = {0};
    *r = (struct lab_swept){0};
    lab_space_limit(s->space, s->caps);
    bool ok = (s->search || report_space(s, e)) && find_vendor(s, &r->vendor, e) && sweep(s, r, &a, e) && check_vendor(s, r, e);
    if (ok && r->n_refused)
        log_printf(s->tune->log, 2, "%lld of %lld points were refused, the first: %.*s", (long long)r->n_refused, (long long)r->n_points,
                   STR_ARG(buf_view(&r->why)));
    arena_release(&a);
    return ok;
}

void lab_swept_release(struct lab_swept *r)
{
    buf_release(&r->why);
    buf_release(&r->vendor);
    buf_release(&r->tuned.vendor_reason);
    struct arena a = r->arena;
    arena_release(&a);
}

/* Results. */

struct reader { /* of rows of the database */
    const struct lab_sweep *s;
    const struct lab_swept *swept;
    const struct task *task;
    struct arena *a;
    struct str baseline; /* its name */
    double base;         /* its time over the reference schedule's */
};

/* Configurations have names; other candidates of a search are named by GEMM, family and schedule. */
static struct str name_of(const struct reader *q, const struct trial_row *row)
{
    struct lab_config c;
    struct buf b = {0};
    bool has_name;
    if (has_many_names(q->s)) {
        u32 i = taken_at(q->swept, &row->cand);
        has_name = i < q->swept->taken.n;
        if (has_name) c = q->swept->taken.v[i].first;
    } else has_name = (is_attention(q->s) ? lab_attention_config_of : lab_config_of)(&c, &row->cand, &q->s->space->base, q->s->space->dtype);
    if (has_name) lab_name_print(&b, &c);
    else if (q->s->search) {
        lab_name_product(&b, &q->s->space->base);
        buf_printf(&b, " %.*s", STR_ARG(row->text));
    }
    struct str name = str_dup(q->a, buf_view(&b));
    buf_release(&b);
    return name;
}

/* A verified candidate, abandoned early or not. The reference itself may have been timed alone. */
static bool result_of(struct lab_result *x, const struct reader *q, const struct trial_row *row)
{
    bool is_verified = row->status == TRIAL_OK || row->status == TRIAL_SLOW;
    double ratio = row->ratio > 0 ? row->ratio : 1, reference = row->reference > 0 ? row->reference : row->median;
    if (!is_verified || !row->n) return false;
    *x = (struct lab_result){name_of(q, row), q->base / ratio, ratio * reference * 1e3, q->base * reference * 1e3, q->baseline};
    return x->name.n > 0;
}

/* The vendor's library, if its result was verified. */
static bool find_base(struct reader *q, const struct lab_swept *swept, const i64 *var, struct err *e)
{
    struct trial_row row;
    q->baseline = S("reference"), q->base = 1;
    if (!swept->vendor.n) return true;
    if (!tune_vendor_row(q->s->db, q->s->env, q->task, var, buf_view(&swept->vendor), q->a, &row, e)) return false;
    if (row.status == TRIAL_OK && row.ratio > 0) q->baseline = str_dup(q->a, buf_view(&swept->vendor)), q->base = row.ratio;
    return true;
}

bool lab_sweep_results(const struct lab_sweep *s, const struct lab_swept *swept, struct lab_results *r, struct arena *a, struct err *e)
{
    struct symtab st;
    struct task t;
    struct trial_row *rows = NULL;
    struct lab_result x;
    struct reader q = {.s = s, .swept = swept, .task = &t, .a = a};
    u32 n = 0;
    i64 *none = arena_array(a, i64, 1);
    symtab_init(&st, a);
    if (!task_of(s, &t, a, &st, e) || !find_base(&q, swept, none, e)) return false;
    i64 task = db_task(s->db, &t, e);
    if (!task || !db_trials(s->db, s->env, task, sizes_text(a, &st, none, &t), a, &rows, &n, e)) return false;
    for (u32 i = 0; i < n; i++)
        if (result_of(&x, &q, &rows[i])) lab_results_add(r, a, &x);
    return true;
}
