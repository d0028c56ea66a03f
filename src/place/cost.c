// SPDX-License-Identifier: Apache-2.0
//
// Expected times: of a sub-graph on a device, and of copies between devices.
//
// A sub-graph becomes a program of its own, so its time is what plan selection expects of that
// program: its graph is extracted, lowered for the device, covered, and the cheapest cover
// counts, by measured costs where the database has them and by predictions otherwise. On a
// device that is described by rates every operator takes as long as its arithmetic or its
// traffic, whichever is longer. Both are multiplied by the device's slow-down, and the start of
// a sub-graph is added.
//
// The search asks for many sub-graphs of one network, and these have many tasks in common. Costs
// of tasks are kept by the key of their text, times of sub-graphs by their set of operators.
#include "place/cost.h"

#include <math.h>
#include <string.h>

/* --- tasks --- */

static struct str key_of(const struct task *t)
{
    return (struct str){(const char *)&t->key, sizeof t->key};
}

bool cost_of_task(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct cost_class *k = user;
    const u64 *at = map_get(&k->index, key_of(t));
    assert(at);
    *c = k->cost.v[*at];
    if (!c->is_measured) c->seconds *= k->scale;
    return c->ok;
}

struct missing {
    const struct task **v;
    u32 n, cap;
};

/* Tasks whose cost is not known yet; measured ones are known afterwards. */
static bool list_missing(struct missing *l, struct cost_class *k, const struct cover *c,
                         const i64 *var, struct arena *a, struct err *e)
{
    for (u32 i = 0; i < c->task.n; i++) {
        const struct task *t = c->task.v[i];
        struct task_known known = {0};
        if (task_is_call(t) || map_get(&k->index, key_of(t))) continue;
        if (k->target->db && !tune_best(k->target->db, k->env, t, var, &known, e)) return false;
        map_put(&k->index, key_of(t), k->cost.n);
        struct task_cost *to = arr_push(k->index.arena, &k->cost);
        if (known.measured)
            *to = (struct task_cost){
                .ok = true, .best = known.best, .seconds = known.seconds, .is_measured = true};
        else *arr_push(a, l) = t;
    }
    for (u32 b = 0; b < c->body.n; b++)
        if (!list_missing(l, k, c->body.v[b], var, a, e)) return false;
    return true;
}

bool cost_tasks(struct cost_class *k, const struct cover *c, const i64 *var, struct err *e)
{
    struct arena tmp = {0};
    struct missing l = {0};
    struct task_cost *cost = NULL;
    bool ok = list_missing(&l, k, c, var, &tmp, e);
    cost = arena_array(&tmp, struct task_cost, l.n + 1);
    ok = ok && plan_predict(l.v, l.n, k->target->caps, var, cost, e);
    for (u32 i = 0; i < l.n && ok; i++) k->cost.v[*map_get(&k->index, key_of(l.v[i]))] = cost[i];
    arena_release(&tmp);
    return ok;
}

const i64 *cost_sizes(struct place_costs *c)
{
    enum { UNKNOWN_SIZE = 256 };
    const u32 n = c->x->g.sym->var.n;
    if (n <= c->n_var) return c->var;
    c->var = arena_array(&c->a, i64, n + 1);
    for (u32 v = 0; v < n; v++) c->var[v] = v < c->m->n_var ? c->m->var[v] : UNKNOWN_SIZE;
    graph_guess_sizes(&c->x->g, c->var, UNKNOWN_SIZE);
    c->n_var = n;
    return c->var;
}

/* --- sub-graphs --- */

static bool compile(struct place_costs *c, struct cost_class *k, const struct place_part *p,
                    double *seconds, struct arena *a, struct err *e)
{
    struct graph part, low;
    struct cover cover;
    struct selection s;
    struct err why = {.stop = e->stop};
    place_part_graph(&part, c->x, p, a);
    if (!model_lower_part(&low, &part, c->m, k->target->caps, a, e)) return false;
    const i64 *var = cost_sizes(c);
    if (!plan_cover(&cover, &low, (struct cover_opts){0}, k->target, a, e) ||
        !cost_tasks(k, &cover, var, e))
        return false;
    c->n_parts++;
    if (plan_select(&s, &cover, var, cost_of_task, k, a, &why)) *seconds = s.seconds;
    else if (why.code == ERR_NOTHING) *seconds = INFINITY;
    else return err_set(e, why.code, "%s", why.msg);
    return true;
}

static bool is_inside(const u64 *ops, u32 k) { return ops[k / 64] >> k % 64 & 1; }

static double by_rates(const struct place_costs *c, u32 device, const u64 *ops)
{
    double sum = 0;
    for (u32 k = 0; k < c->x->op.n; k++)
        if (is_inside(ops, k)) sum += c->alone[device][k];
    return sum;
}

static bool by_selection(struct place_costs *c, u32 device, const u64 *ops, double *seconds,
                         struct err *e)
{
    struct arena tmp = {0};
    struct buf key = {0};
    u32 class = c->class_of[device];
    buf_put(&key, &class, sizeof class);
    buf_put(&key, ops, (i64)sizeof *ops * c->n_words);
    const u64 *known = map_get(&c->part, buf_view(&key));
    bool ok = true;
    if (known) memcpy(seconds, known, sizeof *seconds);
    else {
        struct place_part p = {.device = device};
        u64 bits;
        for (u32 k = 0; k < c->x->op.n; k++)
            if (is_inside(ops, k)) *arr_push(&tmp, &p.op) = k;
        place_part_alone(&p, c->x, &tmp);
        ok = mem_check(e, "placing the network", S("")) &&
             compile(c, &c->class.v[class], &p, seconds, &tmp, e);
        memcpy(&bits, seconds, sizeof bits);
        if (ok) map_put(&c->part, buf_view(&key), bits);
    }
    buf_release(&key);
    arena_release(&tmp);
    return ok;
}

bool place_part_seconds(struct place_costs *c, u32 device, const u64 *ops, double *seconds,
                        struct err *e)
{
    const struct place_device *d = &c->d->v[device];
    for (u32 k = 0; k < c->x->op.n; k++)
        if (is_inside(ops, k) && !c->can[device][k]) {
            *seconds = INFINITY;
            return true;
        }
    if (c->class_of[device] == UINT32_MAX) {
        *seconds = by_rates(c, device, ops) + d->start;
        return true;
    }
    if (!by_selection(c, device, ops, seconds, e)) return false;
    *seconds = *seconds * d->slowdown + d->start;
    return true;
}

double place_copy_seconds(const struct place_costs *c, value_id v, u32 from, u32 to)
{
    double s = 0;
    const u32 end[2] = {from, to};
    if (from == to) return 0;
    for (u32 i = 0; i < 2; i++) {
        if (end[i] == UINT32_MAX || !(c->t[end[i]].link_bandwidth > 0)) continue;
        s += c->bytes[v] / c->t[end[i]].link_bandwidth + c->t[end[i]].link_latency;
    }
    return s;
}
