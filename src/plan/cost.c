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

static struct str key_of(const struct task *const *t) { return (struct str){(const char *)t, sizeof *t}; }

bool plan_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct plan_costs *k = user;
    const u64 *at = map_get(&k->index, key_of(&t));
    assert(at);
    *c = k->cost[*at];
    if (!c->is_measured) c->seconds *= k->scale;
    return c->ok;
}

struct gathering {                /* of the tasks of a cover and its bodies, without calls */
    const struct plan_costs *costs;
    const i64 *var;
    const struct task **task;
    struct task_cost *cost;       /* ok: measured */
    double *ratio;                /* of measured to predicted time; n_known of them */
    u32 n, n_known;
};

/* Measured costs. */
static bool gather(struct gathering *g, const struct cover *c, struct err *e)
{
    const struct plan_costs *k = g->costs;
    for (u32 i = 0; i < c->task.n; i++) {
        const struct task *t = c->task.v[i];
        struct task_known known = {0};
        if (task_is_call(t)) continue;
        if (k->db && !tune_best(k->db, k->env, t, g->var, &known, e)) return false;
        if (known.measured)
            g->cost[g->n] = (struct task_cost){
                .ok = true, .best = known.best, .seconds = known.seconds, .is_measured = true, .n_trials = known.n_trials};
        double p = known.measured ? gen_predict(&known.best, t, k->caps, g->var) : 0;
        if (p > 0) g->ratio[g->n_known++] = known.seconds / p;
        g->task[g->n++] = t;
    }
    for (u32 b = 0; b < c->body.n; b++)
        if (!gather(g, c->body.v[b], e)) return false;
    return true;
}

/* Predicts the cost of those that were not measured. */
static bool predict_rest(const struct gathering *g, struct arena *a, struct err *e)
{
    const struct task **task = arena_array(a, const struct task *, g->n + 1);
    struct task_cost *cost = arena_array(a, struct task_cost, g->n + 1);
    u32 n = 0, at = 0;
    for (u32 i = 0; i < g->n; i++)
        if (!g->cost[i].ok) task[n++] = g->task[i];
    if (!plan_predict(task, n, g->costs->caps, g->var, cost, e)) return false;
    for (u32 i = 0; i < g->n; i++)
        if (!g->cost[i].ok) g->cost[i] = cost[at++];
    return true;
}

/* Predictions are optimistic or pessimistic as a whole: they are scaled by the measured tasks, with
   a margin that favours measured kernels over predictions. */
bool plan_costs_init(struct plan_costs *k, const struct plan_target *t, const struct cover *c, const i64 *var, struct arena *a, struct err *e)
{
    u32 n = plan_count_tasks(c) + 1;
    *k = (struct plan_costs){.db = t->db, .caps = t->caps, .scale = 1};
    struct gathering g = {.costs = k, .var = var, .task = arena_array(a, const struct task *, n)};
    g.cost = arena_array(a, struct task_cost, n), g.ratio = arena_array(a, double, n);
    if (t->db && !(k->env = db_env(t->db, t->fingerprint, t->toolchain, e))) return false;
    if (!gather(&g, c, e) || !predict_rest(&g, a, e)) return false;
    k->cost = g.cost, k->n_known = g.n_known;
    if (g.n_known) k->scale = 2 * stats_of(g.ratio, g.n_known).median;
    map_init(&k->index, a);
    for (u32 i = 0; i < g.n; i++) map_put(&k->index, key_of(&g.task[i]), i);
    return true;
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
    if (!plan_costs_init(&costs, t, c, var, a, e) || !plan_select(s, c, var, plan_cost, &costs, a, e)) return false;
    s->n_known = costs.n_known;
    if (t->db && !borrow(s, &costs, c, var, e)) return false;
    plan_select_unfused(s, c, a);
    return true;
}
