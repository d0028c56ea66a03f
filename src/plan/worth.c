// SPDX-License-Identifier: Apache-2.0
//
// Which tasks of a cover are worth measuring: those of the program that looks best, and alternatives that predictions (wrong by a factor
// sometimes) do not rule out.
#include "plan/plan.h"

#include <math.h>

/* Costs looked up once; `forced` is made so cheap that the selector cannot do without it. */
struct price_list {
    const struct cover *c;
    struct task_cost *cost; /* per task */
    struct plan_costs *costs;
    u32 forced;
};

static const double bonus = 1e6; /* seconds: beyond any program */

static bool listed_price(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct price_list *p = user;
    u32 i = 0;
    while (i < p->c->task.n && p->c->task.v[i] != t) i++;
    if (i == p->c->task.n) return plan_cost(p->costs, t, var, c); /* of a body */
    *c = p->cost[i];
    if (i == p->forced) c->seconds -= bonus;
    return c->ok;
}

/* How much slower the best program with this task is than the best of all, which runs the tasks
   used[]; NAN: there is none. changed: cost of what it runs in place of others. */
static double regret(struct price_list *p, u32 task, const i64 *var, double best, const u32 *used,
                     double *changed)
{
    struct arena a = {0};
    struct selection s;
    struct err e = {0};
    u32 n = 0;
    p->forced = task;
    bool ok = plan_select(&s, p->c, var, listed_price, p, &a, &e);
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

/* Predictions may be wrong by a factor, of a task that is chosen in place of another. A task with
   parts comes with others, the whole change is what may be wrong. */
static bool is_rival(struct price_list *p, u32 task, const i64 *var, double best, const u32 *used)
{
    double changed, r = regret(p, task, var, best, used, &changed);
    return r < 0.5 * (has_parts(p->c->task.v[task]) ? changed : p->cost[task].seconds);
}

static u32 worth_measuring(struct tune_task *tasks, struct plan_costs *costs, const struct cover *c, const i64 *var, struct err *e)
{
    struct arena a = {0};
    struct selection s;
    struct price_list p = {
        .c = c, .costs = costs, .forced = UINT32_MAX, .cost = arena_array(&a, struct task_cost, c->task.n + 1)};
    u32 *uses = arena_array(&a, u32, c->task.n + 1), n = 0;
    for (u32 i = 0; i < c->task.n; i++)
        p.cost[i].ok = plan_cost(costs, c->task.v[i], var, &p.cost[i]);
    bool ok = plan_select(&s, c, var, listed_price, &p, &a, e) && !e->code;
    for (u32 i = 0; i < s.choice.n && ok; i++) {
        u32 task = c->region.v[s.choice.v[i].region].task;
        if (task != NO_TASK) uses[task]++;
    }
    for (u32 i = 0; i < c->task.n && ok; i++) {
        if (task_is_call(c->task.v[i]) || (!uses[i] && !is_rival(&p, i, var, s.seconds, uses))) continue;
        tasks[n++] = (struct tune_task){.task = c->task.v[i], .var = var, .weight = uses[i]};
    }
    arena_release(&a);
    for (u32 b = 0; b < c->body.n && ok; b++) { /* what bodies run */
        n += worth_measuring(tasks + n, costs, c->body.v[b], var, e);
        ok = !e->code;
    }
    return ok ? n : 0;
}

u32 plan_worth_measuring(struct tune_task *tasks, const struct cover *c, const i64 *var, const struct plan_target *t, struct err *e)
{
    struct plan_costs costs;
    u32 n = plan_costs_init(&costs, t, c, var, e) ? worth_measuring(tasks, &costs, c, var, e) : 0;
    assert(n <= plan_count_tasks(c));
    return n;
}
