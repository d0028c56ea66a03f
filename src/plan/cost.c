// SPDX-License-Identifier: Apache-2.0
//
// Costs of tasks for the selector: measured if the database has results, otherwise predicted.
// Predictions are scaled to agree with the measurements. A task selected by its prediction borrows
// the schedule of the nearest measured task.
#include "plan/plan.h"

u32 plan_count_tasks(const struct cover *c)
{
    u32 n = c->task.n;
    for (u32 b = 0; b < c->body.n; b++) n += plan_count_tasks(c->body.v[b]);
    return n;
}

bool plan_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct plan_costs *k = user;
    struct task_known known;
    if (k->db && tune_best(k->db, k->env, t, var, &known, k->e) && known.measured) {
        *c = (struct task_cost){.ok = true,
                                .best = known.best,
                                .seconds = known.seconds,
                                .is_measured = true,
                                .n_trials = known.n_trials};
        return true;
    }
    *c = (struct task_cost){0};
    if (!gen_default(t, k->caps, var, &c->best)) return false;
    c->seconds = gen_predict(&c->best, t, k->caps, var) * k->scale;
    c->is_measured = false;
    return true;
}

/* Ratios of measured to predicted time of the measured tasks, including bodies; returns their
   number. */
static u32 known_ratios(const struct plan_costs *k, const struct cover *c, const i64 *var, double *ratio, struct err *e)
{
    u32 n = 0;
    for (u32 i = 0; i < c->task.n; i++) {
        struct task_known known;
        if (task_is_call(c->task.v[i])) continue;
        if (!tune_best(k->db, k->env, c->task.v[i], var, &known, e)) break;
        double p = known.measured ? gen_predict(&known.best, c->task.v[i], k->caps, var) : 0;
        if (p > 0) ratio[n++] = known.seconds / p;
    }
    for (u32 b = 0; b < c->body.n && !e->code; b++) n += known_ratios(k, c->body.v[b], var, ratio + n, e);
    return n;
}

/* Predictions are optimistic or pessimistic as a whole: they are scaled by the measured tasks, with
   a margin that favours measured kernels over predictions. */
bool plan_costs_init(struct plan_costs *k, const struct plan_target *t, const struct cover *c, const i64 *var, struct err *e)
{
    *k = (struct plan_costs){.db = t->db, .caps = t->caps, .scale = 1, .e = e};
    if (!t->db) return true;
    k->env = db_env(t->db, t->fingerprint, t->toolchain, e);
    if (!k->env) return false;
    struct arena a = {0};
    double *ratio = arena_array(&a, double, plan_count_tasks(c) + 1);
    u32 n = known_ratios(k, c, var, ratio, e);
    k->n_known = n;
    if (n) k->scale = 2 * stats_of(ratio, n).median;
    arena_release(&a);
    return e->code == ERR_NONE;
}

/* A task selected by its prediction gets the schedule of the nearest measured task if that is
   expected to be faster than the default. Costs are unchanged: a borrowed schedule is only a
   prediction. */
static bool borrow(struct selection *s, const struct plan_costs *k, const struct cover *c, const i64 *var, struct err *e)
{
    struct arena a = {0};
    struct known known;
    bool ok = known_load(&known, k->db, k->env, &a, e);
    for (u32 i = 0; i < s->choice.n && ok; i++) {
        u32 task = c->region.v[s->choice.v[i].region].task;
        if (task == NO_TASK || s->cost[task].is_measured || task_is_call(c->task.v[task])) continue;
        const struct known_for f = {.task = c->task.v[task], .var = var, .caps = k->caps};
        struct known_found x;
        if (!known_nearest(&known, &f, &x, e)) ok = e->code == ERR_NONE;
        else if (known_improves(&x, &f, &s->cost[task].best)) s->cost[task].best = x.cand;
    }
    for (u32 b = 0; b < c->body.n && ok; b++) ok = borrow(&s->body[b], k, c->body.v[b], var, e);
    arena_release(&a);
    return ok;
}

bool plan_choose(struct selection *s, const struct cover *c, const i64 *var, const struct plan_target *t, struct arena *a, struct err *e)
{
    struct plan_costs costs;
    assert(t->caps);
    if (!plan_costs_init(&costs, t, c, var, e) || !plan_select(s, c, var, plan_cost, &costs, a, e) || e->code) return false;
    s->n_known = costs.n_known;
    if (t->db && !borrow(s, &costs, c, var, e)) return false;
    plan_select_unfused(s, c, a);
    return true;
}
