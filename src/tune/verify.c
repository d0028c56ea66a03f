// SPDX-License-Identifier: Apache-2.0
//
// Runs of all cases: random contents, exact ones, a second run on the same inputs, and other inputs in memory that has results already; each in a
// child process, between guard bands, on poisoned outputs (tune/trial.c).
#include "tune/verify.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROUNDS = 4, LEAST_SAMPLE = 512, LEAST_OF_ALL = 64 /* of sums of */, MANY_TERMS = 400000000 /* in all */, MOST_SAMPLE = 1 << 18, DEFAULT_TERMS = 50000000, MOST_F16 = 200000 /* terms between 0 and 1 whose sum is finite */ };

struct run {
    struct verify_report *r;
    const struct task *task;
    const i64 *var;
    const struct subject *subject;
    const struct verify_opts *o;
    const struct contraction *s;
    struct contraction_check_opts opts; /* except round */
};

static bool no_sample(void *user, const struct sample *s, u32 n) { return false; }

static enum trial_status try(const struct run *c, const struct check *const *v, u32 n, struct buf *why)
{
    buf_reset(why);
    return trial_run(c->subject, v, n, NULL, &c->o->trial, no_sample, NULL, why);
}

/* Rounds are one case: numbers of outputs add up, the worst one stays. */
static void add_found(struct verify_found *to, const struct verify_found *f)
{
    struct verify_found sum = f->ratio > to->ratio ? *f : *to;
    sum.n_seen = to->n_seen + f->n_seen, sum.n_border = to->n_border + f->n_border;
    sum.n_bad = to->n_bad + f->n_bad, sum.n_nonfinite = to->n_nonfinite + f->n_nonfinite;
    sum.max_abs = fmax(to->max_abs, f->max_abs), sum.max_rel = fmax(to->max_rel, f->max_rel);
    sum.err2 = to->err2 + f->err2, sum.want2 = to->want2 + f->want2, sum.limit2 = to->limit2 + f->limit2;
    *to = sum;
}

static void note(struct run *c, const struct contraction_check *x, enum trial_status st, const char *before, const struct buf *why)
{
    struct verify_result *to = &c->r->result[x->kind];
    if (to->n_rounds) add_found(&to->found, &x->found);
    else to->found = x->found;
    if (st != TRIAL_OK && (!to->n_rounds || to->status == TRIAL_OK)) {
        to->status = st;
        snprintf(to->reason, sizeof to->reason, "%s%.*s", before, STR_ARG(buf_view(why)));
    } else if (!to->n_rounds) to->status = st;
    to->n_rounds++;
    c->r->ok = c->r->ok && st == TRIAL_OK;
}

/* The second one in the memory that the first has left. Where that fails each by itself, so that both are known. */
static void run_pair(struct run *c, struct contraction_check *a, struct contraction_check *b)
{
    struct buf why = {0}, pair = {0};
    const struct check *v[] = {&a->check, &b->check};
    b->check.in_place = true;
    enum trial_status both = try(c, v, 2, &pair), st;
    if (both == TRIAL_OK) {
        note(c, a, both, "", &pair), note(c, b, both, "", &pair);
    } else {
        struct verify_found found = b->found;
        st = try(c, v, 1, &why);
        note(c, a, st, "", &why);
        bool is_a = st != TRIAL_OK;
        b->found = (struct verify_found){.worst = -1};
        st = try(c, v + 1, 1, &why);
        if (st == TRIAL_OK && !is_a) b->found = found, note(c, b, both, "after a run on other inputs: ", &pair);
        else note(c, b, st, "", &why);
    }
    buf_release(&why);
    buf_release(&pair);
}

static bool run_two(struct run *c, enum verify_case ka, enum verify_case kb, struct err *e)
{
    struct contraction_check a, b;
    if (!contraction_check_init(&a, c->s, c->task, c->var, ka, &c->opts, e)) return false;
    a.check.twice = true;
    bool ok = contraction_check_init(&b, c->s, c->task, c->var, kb, &c->opts, e);
    if (ok) run_pair(c, &a, &b), contraction_check_release(&b);
    contraction_check_release(&a);
    return ok;
}

static bool run_one(struct run *c, enum verify_case kind, u32 round, struct err *e)
{
    struct contraction_check x;
    struct contraction_check_opts o = c->opts;
    struct buf why = {0};
    o.round = round;
    if (!contraction_check_init(&x, c->s, c->task, c->var, kind, &o, e)) return false;
    note(c, &x, try(c, (const struct check *[]){&x.check}, 1, &why), "", &why);
    buf_release(&why);
    contraction_check_release(&x);
    return true;
}

static void set_dims(struct verify_report *r, const struct contraction *s)
{
    i64 *x = r->in_dim, *w = r->w_dim, *y = r->dim;
    r->rank = s->n + 2;
    x[0] = s->batch, x[1] = s->c, y[0] = s->batch, y[1] = s->m;
    w[0] = s->is_transposed ? s->c : s->m, w[1] = s->is_transposed ? s->mg : s->cg;
    if (s->is_gradient) x[0] = w[0] = s->cg, x[1] = s->c / s->cg * s->batch, w[1] = y[0] = s->m, y[1] = s->batch;
    for (u32 i = 0; i < s->n; i++) x[2 + i] = s->in[i], w[2 + i] = s->kernel[i], y[2 + i] = s->out[i];
}

static bool check(struct run *c, struct arena *a, struct err *e)
{
    struct contraction s;
    const struct verify_opts *o = c->o;
    if (!contraction_of(&s, c->task, c->var, a, e)) return false;
    i64 n = (o->max_terms ? o->max_terms : DEFAULT_TERMS) / s.n_terms, least = i64_max(LEAST_OF_ALL, i64_min(LEAST_SAMPLE, MANY_TERMS / s.n_terms));
    c->s = &s;
    c->opts = (struct contraction_check_opts){.seed = o->seed, .growth = o->growth};
    c->opts.at = contraction_sample(&s, i64_max(least, i64_min(MOST_SAMPLE, n)), o->seed, a, &c->opts.n_at);
    *c->r = (struct verify_report){.ok = true, .type = s.type, .n_outputs = s.count, .n_terms = s.n_terms, .code = contraction_code(&s, o->growth)};
    set_dims(c->r, &s);
    i64 rounds = i64_min(MAX_ROUNDS, ceil_div(c->s->taps, c->s->m));
    if (!run_two(c, VERIFY_RANDOM, VERIFY_INTEGERS, e) || !run_two(c, VERIFY_TAPS, VERIFY_POINTS, e)) return false;
    for (i64 k = 1; k < rounds; k++)
        if (!run_one(c, VERIFY_TAPS, (u32)k, e)) return false;
    bool has_room = dtype_is_float(c->s->type) && (c->s->out_type != DT_F16 || c->s->n_terms < MOST_F16);
    return !has_room || run_one(c, VERIFY_UNIT, 0, e);
}

bool verify_contraction(struct verify_report *r, const struct task *t, const i64 *var, const struct subject *s, const struct verify_opts *o,
                struct err *e)
{
    struct arena a = {0};
    struct run c = {.r = r, .task = t, .var = var, .subject = s, .o = o};
    bool ok = check(&c, &a, e);
    arena_release(&a);
    return ok;
}

/* The report. */

static const char *const title[N_VERIFY_CASES] = {
    [VERIFY_RANDOM] = "random numbers", [VERIFY_INTEGERS] = "integers", [VERIFY_TAPS] = "single taps", [VERIFY_POINTS] = "single elements", [VERIFY_UNIT] = "numbers in 0..1"};

static void print_index(struct buf *b, const i64 *dim, u32 rank, i64 at)
{
    i64 idx[MAX_RANK];
    for (u32 i = rank; i-- > 0; at /= dim[i]) idx[i] = at % dim[i];
    for (u32 i = 0; i < rank; i++) buf_printf(b, "%s%lld", i ? ", " : "(", (long long)idx[i]);
    buf_char(b, ')');
}

/* What a number stands for, where every element has its own. */
static void print_meaning(struct buf *b, const struct verify_report *r, enum verify_case k, double v)
{
    const i64 *dim = k == VERIFY_TAPS ? r->in_dim : r->w_dim;
    bool is_one = v >= 1 && v == floor(v) && v <= (double)i64_product(r->rank, dim);
    if (i64_product(r->rank, dim) > r->code) return;
    buf_z(b, v == 0 ? " [nothing]" : is_one ? k == VERIFY_TAPS ? " [input " : " [weight " : "");
    if (!is_one) return;
    print_index(b, dim, r->rank, (i64)v - 1);
    buf_char(b, ']');
}

static void print_worst(struct buf *b, const struct verify_report *r, enum verify_case k)
{
    const struct verify_found *f = &r->result[k].found;
    bool is_numbered = k == VERIFY_TAPS || k == VERIFY_POINTS;
    if (f->worst < 0 || f->worst >= r->n_outputs) return;
    buf_z(b, "    worst at ");
    print_index(b, r->dim, r->rank, f->worst);
    buf_printf(b, ": %.9g", isnan(f->got) ? fabs(f->got) : f->got);
    if (is_numbered) print_meaning(b, r, k, f->got);
    buf_printf(b, " instead of %.9g", f->want);
    if (is_numbered) print_meaning(b, r, k, f->want);
    buf_printf(b, ", allowed %.3g\n", f->bound);
}

static void print_errors(struct buf *b, const struct verify_found *f)
{
    double n = (double)i64_max(f->n_seen, 1);
    buf_printf(b, "; errors to %.3g, relative %.3g, L2 %.3g (rounding: %.3g), at most %.2g of the bound", f->max_abs, f->max_rel,
               f->want2 > 0 ? sqrt(f->err2 / f->want2) : sqrt(f->err2 / n), f->want2 > 0 ? sqrt(f->limit2 / f->want2) : 0, f->ratio);
}

static void print_case(struct buf *b, const struct verify_report *r, enum verify_case k)
{
    const struct verify_result *x = &r->result[k];
    const struct verify_found *f = &x->found;
    bool are_integers = k != VERIFY_RANDOM && k != VERIFY_UNIT;
    buf_printf(b, "  %-16s", title[k]);
    if (f->n_seen == 0) {
        buf_printf(b, "%s: %s\n", trial_status_name(x->status), x->reason);
        return;
    }
    buf_printf(b, "%lld of %lld outputs, %lld at borders", (long long)(f->n_seen / x->n_rounds), (long long)r->n_outputs,
               (long long)(f->n_border / x->n_rounds));
    if (x->n_rounds > 1) buf_printf(b, ", %u rounds", x->n_rounds);
    if (are_integers) buf_printf(b, "; %lld differ", (long long)f->n_bad);
    else print_errors(b, f);
    if (f->n_nonfinite) buf_printf(b, "; %lld not finite", (long long)f->n_nonfinite);
    buf_printf(b, ": %s%s%s\n", x->status == TRIAL_OK ? "right" : trial_status_name(x->status), x->reason[0] ? ", " : "", x->reason);
    if (f->n_bad || x->status == TRIAL_WRONG) print_worst(b, r, k);
}

/* What held for all runs together. */
static void print_runs(struct buf *b, const struct verify_report *r)
{
    bool inside = true, again = true, has_run = true;
    for (u32 k = 0; k < N_VERIFY_CASES; k++) {
        const struct verify_result *x = &r->result[k];
        inside = inside && (!x->n_rounds || (x->status != TRIAL_BOUNDS && x->status != TRIAL_CRASH));
        again = again && (!x->n_rounds || x->status == TRIAL_OK || k == VERIFY_UNIT);
        has_run = has_run && (!x->n_rounds || x->found.n_seen);
    }
    if (inside && has_run) buf_z(b, "  guard bands     nothing but outputs was written\n");
    if (again) buf_z(b, "  run again       the same bytes; others in the same memory are right, too\n");
}

/* Of the first case that failed without any output, the reason. */
struct str verify_verdict(const struct verify_report *r, struct arena *a)
{
    for (u32 k = 0; k < N_VERIFY_CASES; k++) {
        const struct verify_result *x = &r->result[k];
        if (!x->n_rounds || x->status == TRIAL_OK || x->found.n_seen > 0) continue;
        if (x->status == TRIAL_LAUNCH) return str_fmt(a, "did not run: %s", x->reason);
        if (x->status == TRIAL_CRASH || x->status == TRIAL_TIMEOUT) return str_fmt(a, "no result: %s", x->reason);
    }
    return r->ok ? S("right") : S("wrong");
}

void verify_print(struct buf *b, const struct verify_report *r)
{
    struct arena a = {0};
    struct str verdict = verify_verdict(r, &a), first, rest;
    str_cut(verdict, ':', &first, &rest);
    buf_printf(b, "%.*s: %s, %lld terms in f64\n", STR_ARG(first), dtype_name(r->type), (long long)r->n_terms);
    arena_release(&a);
    for (u32 k = 0; k < N_VERIFY_CASES; k++)
        if (r->result[k].n_rounds) print_case(b, r, (enum verify_case)k);
    print_runs(b, r);
}
