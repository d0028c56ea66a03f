// SPDX-License-Identifier: Apache-2.0
//
// Pruning of the tasks to be measured: those of the program that looks best remain, and
// alternatives that could still be part of the best one, given that predictions may be wrong by a
// factor.
#include "plan/plan.h"

#include <math.h>

/* Costs, each looked up once. `forced` gets a large bonus, so that every selection uses it. */
struct cost_table {
    const struct cover *c;
    struct task_cost *cost; /* per task */
    struct plan_costs *costs;
    u32 forced;
};

static const double bonus = 1e6; /* seconds: more than any program takes */

static bool table_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct cost_table *p = user;
    u32 i = 0;
    while (i < p->c->task.n && p->c->task.v[i] != t) i++;
    if (i == p->c->task.n) return plan_cost(p->costs, t, var, c); /* of a body */
    *c = p->cost[i];
    if (i == p->forced) c->seconds -= bonus;
    return c->ok;
}

/* By how much the best program with this task is slower than the best of all, which runs the tasks
   used[]; NAN: there is none. changed: cost of the tasks it runs instead of others. */
static double regret(struct cost_table *p, u32 task, const i64 *var, double best, const u32 *used,
                     double *changed)
{
    struct arena a = {0};
    struct selection s;
    struct err e = {0};
    u32 n = 0;
    p->forced = task;
    bool ok = plan_select(&s, p->c, var, table_cost, p, &a, &e);
    *changed = 0;
    for (u32 i = 0; i < s.choice.n && ok; i++) {
        u32 t = p->c->region.v[s.choice.v[i].region].task;
        n += t == task;
        *changed += t == NO_TASK || used[t] ? 0 : p->cost[t].seconds;
    }
    double r = ok && n ? s.seconds + bonus * n - best : NAN;
    arena_release(&a);
    return r;
}

static bool has_parts(const struct task *t)
{
    for (value_id v = 1; v < t->g.value.n; v++)
        if (graph_value(&t->g, v)->part.whole) return true;
    return false;
}

/* A task is competitive if an error of the predictions by a factor could make it part of the best
   program. A task with parts is selected together with others, so the whole change may be wrong. */
static bool is_competitive(struct cost_table *p, u32 task, const i64 *var, double best, const u32 *used)
{
    double changed, r = regret(p, task, var, best, used, &changed);
    return r < 0.5 * (has_parts(p->c->task.v[task]) ? changed : p->cost[task].seconds);
}

static u32 add_tasks(struct tune_task *tasks, struct plan_costs *costs, const struct cover *c, const i64 *var, struct err *e)
{
    struct arena a = {0};
    struct selection s;
    struct cost_table p = {
        .c = c, .costs = costs, .forced = UINT32_MAX, .cost = arena_array(&a, struct task_cost, c->task.n + 1)};
    u32 *uses = arena_array(&a, u32, c->task.n + 1), n = 0;
    for (u32 i = 0; i < c->task.n; i++)
        if (!task_is_call(c->task.v[i])) plan_cost(costs, c->task.v[i], var, &p.cost[i]);
    bool ok = plan_select(&s, c, var, table_cost, &p, &a, e);
    for (u32 i = 0; i < s.choice.n && ok; i++) {
        u32 task = c->region.v[s.choice.v[i].region].task;
        if (task != NO_TASK) uses[task]++;
    }
    for (u32 i = 0; i < c->task.n && ok; i++) {
        if (task_is_call(c->task.v[i]) || (!uses[i] && !is_competitive(&p, i, var, s.seconds, uses))) continue;
        tasks[n++] = (struct tune_task){.task = c->task.v[i], .var = var, .weight = uses[i]};
    }
    arena_release(&a);
    for (u32 b = 0; b < c->body.n && ok; b++) { /* tasks of bodies */
        n += add_tasks(tasks + n, costs, c->body.v[b], var, e);
        ok = !e->code;
    }
    return ok ? n : 0;
}

u32 plan_tasks_to_tune(struct tune_task *tasks, const struct cover *c, const i64 *var, const struct plan_target *t, struct err *e)
{
    struct arena a = {0};
    struct plan_costs costs;
    u32 n = plan_costs_init(&costs, t, c, var, &a, e) ? add_tasks(tasks, &costs, c, var, e) : 0;
    arena_release(&a);
    assert(n <= plan_count_tasks(c));
    return n;
}
