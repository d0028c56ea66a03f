// SPDX-License-Identifier: Apache-2.0
//
// The layers of a data set, one after the other: the kernel of an implementation is built, verified, and timed against a baseline.
#include "lab/conv.h"

/* The current layer. */
struct layer {
    const struct conv_job *job;
    struct conv_layers *all;
    struct arena arena;
    struct symtab st;
    struct task task;
    const i64 *var;
    struct conv_row work;        /* as computed, see conv_row_computed */
    struct candidate candidate;
    struct subject subject;
    struct conv_base base;
    struct buf label, text, report;
    struct conv_layer out;
};

static void note_bad(struct layer *l, struct str kernel, struct str why)
{
    struct conv_layers *all = l->all;
    if (all->n_bad++ == 0)
        all->first_bad = str_fmt(all->arena, "%.*s: %.*s: %.*s", STR_ARG(buf_view(&l->label)), STR_ARG(kernel), STR_ARG(why));
    buf_printf(&l->report, "%.*s: %.*s\n", STR_ARG(kernel), STR_ARG(why));
}

static bool build_candidate(struct layer *l, struct err *e)
{
    const struct conv_job *j = l->job;
    const struct conv_place *p = &j->place;
    bool ok = conv_row_computed(&l->work, l->out.row, e) &&
              conv_row_task(&l->task, &l->arena, &l->st, &l->work, j->type, j->layout, e) &&
              (!j->search || conv_tune(p, &l->task, j->name, j->search, e)) && conv_choose(&l->candidate, p, &l->task, j->name, e);
    if (ok) candidate_print(&l->text, &l->candidate);
    return ok && conv_build(&l->subject, p, &l->task, &l->candidate, j->only_known, &l->arena, e);
}

/* Verifies a kernel and reports errors. */
static bool verify(struct layer *l, const struct subject *s, struct str kernel, bool *ok, struct err *e)
{
    const struct conv_place *p = &l->job->place;
    struct verify_report r;
    const struct verify_opts o = {
        .trial = {.driver = p->driver, .dev = p->dev, .timeout = conv_timeout(&l->task, l->var), .stop = p->stop},
        .seed = l->job->seed,
        .growth = s == &l->subject ? gen_growth(&l->candidate) : 0};
    if (!verify_contraction(&r, &l->task, l->var, s, &o, e)) return false;
    buf_printf(&l->report, "%.*s:\n", STR_ARG(kernel));
    verify_print(&l->report, &r);
    conv_print_seed(&l->report, &r);
    *ok = r.ok;
    if (!r.ok) note_bad(l, kernel, verify_verdict(&r, &l->arena));
    return true;
}

/* A wrong baseline is dropped. */
static bool work(struct layer *l, struct conv_times *times, struct err *e)
{
    const struct conv_job *j = l->job;
    struct conv_layer *x = &l->out;
    const struct conv_base_opts base = {.want = j->baseline, .only_known = j->only_known, .log = j->log};
    if (!build_candidate(l, e)) return false;
    x->ok = true;
    if (j->compare)
        x->has_base = x->base_ok = conv_find_base(&l->base, &j->place, &l->task, &l->work, j->type, j->layout, &base, &l->arena, e);
    if (e->code || (j->verify && !verify(l, &l->subject, j->name, &x->ok, e)) ||
        (j->verify && l->base.by_library && !verify(l, &l->base.subject, l->base.name, &x->base_ok, e)))
        return false;
    x->has_base &= x->base_ok;
    const struct conv_pair pair = {.subject = &l->subject, .base = x->has_base ? &l->base.subject : NULL, .warm_up = j->warm_up,
                                   .total = j->total, .seed = j->seed};
    return !j->compare || !x->ok || conv_profile(times, &j->place, &l->task, &pair, l->all->arena, e);
}

/* A failing layer does not stop the others. false: the database or the system failed. */
static bool run_layer(struct conv_layers *all, const struct conv_job *j, u32 k, struct err *e)
{
    struct layer l = {.job = j, .all = all, .out = {.index = k, .row = &j->row[k]}};
    struct conv_result *r = arr_push(all->arena, &all->run.result);
    struct err why = {0};
    *r = (struct conv_result){.layer = k, .row = l.out.row};
    l.var = arena_array(&l.arena, i64, 1);
    symtab_init(&l.st, &l.arena);
    conv_row_label(&l.label, l.out.row);
    bool done = work(&l, &r->times, &why);
    if (stop_is_set(j->place.stop) && (!done || !l.out.ok)) { /* stopped before any result */
        all->run.result.n--, why = (struct err){0};
    } else {
        if (!done) {
            l.out.ok = false;
            note_bad(&l, j->name, str_of(why.msg));
        }
        if (l.out.has_base) r->base = str_dup(all->arena, l.base.name);
        l.out.label = buf_view(&l.label), l.out.candidate = buf_view(&l.text), l.out.report = buf_view(&l.report);
        l.out.base = l.base.name, l.out.times = &r->times;
        if (j->each) j->each(j->user, &l.out);
    }
    buf_release(&l.text);
    buf_release(&l.label);
    buf_release(&l.report);
    arena_release(&l.arena);
    return why.code != ERR_SYSTEM || err_set(e, why.code, "%s", why.msg);
}

bool conv_layers_run(struct conv_layers *all, const struct conv_job *j, struct arena *a, struct err *e)
{
    bool ok = true;
    *all = (struct conv_layers){.arena = a, .run = {.implementation = j->name, .type = j->type}};
    for (u32 k = j->first; k < j->last && ok && !stop_is_set(j->place.stop); k++) ok = run_layer(all, j, k, e);
    if (ok && all->run.result.n == 0 && stop_is_set(j->place.stop)) return err_set(e, ERR_STOPPED, "stopped before a layer was done");
    return ok;
}
