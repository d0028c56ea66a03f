// SPDX-License-Identifier: Apache-2.0
//
// The network as primitives on all devices: what each operator adds to the time of the whole
// network on a device, and the joint selection, which places every region on a device.
//
// Everything that does not depend on an allocation is found here, once.
//
// Primitives lead back to operators by their names: before the network is lowered, each node
// gets its number as its name, and new nodes are named after those that they replace. What a
// pass names otherwise belongs to the operator that makes its first input, or that reads its
// result.
#include "place/cost.h"

#include <math.h>

/* --- origins --- */

static u32 named_origin(const struct place_net *x, struct str name)
{
    struct str head, tail;
    i64 n;
    if (!str_starts(name, S("#"))) return UINT32_MAX;
    str_cut(str_sub(name, 1, name.n), '/', &head, &tail);
    if (!str_to_i64(head, &n) || n <= 0 || n >= x->g.node.n) return UINT32_MAX;
    return x->op_of[n];
}

static void find_origins(struct place_costs *c)
{
    const struct graph *g = &c->low;
    c->op_of = arena_array(&c->a, u32, g->node.n + 1);
    c->op_of[0] = UINT32_MAX;
    for (node_id n = 1; n < g->node.n; n++)
        c->op_of[n] = named_origin(c->x, graph_node(g, n)->name);
    for (node_id n = 1; n < g->node.n; n++) { /* by inputs */
        const struct node *x = graph_node(g, n);
        for (u32 i = 0; i < x->in.n && c->op_of[n] == UINT32_MAX; i++)
            if (x->in.v[i]) c->op_of[n] = c->op_of[graph_value(g, x->in.v[i])->producer];
    }
    for (node_id n = g->node.n; n-- > 1;) { /* by readers */
        const struct node *x = graph_node(g, n);
        for (u32 i = 0; i < x->in.n && c->op_of[n] != UINT32_MAX; i++) {
            node_id p = x->in.v[i] ? graph_value(g, x->in.v[i])->producer : 0;
            if (p && c->op_of[p] == UINT32_MAX) c->op_of[p] = c->op_of[n];
        }
    }
}

static void number_nodes(struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++) graph_node(g, n)->name = str_fmt(g->arena, "#%u", n);
}

static bool lower(struct place_costs *c, struct err *e)
{
    struct graph g;
    graph_clone(&g, &c->x->g, &c->a);
    number_nodes(&g);
    if (!model_lower_part(&c->low, &g, c->m, NULL, &c->a, e)) return false;
    find_origins(c);
    return true;
}

/* --- a device's regions --- */

/* Operators whose node cannot be computed by any region. */
static void forbid_unreachable(struct place_costs *c, u32 d)
{
    struct arena tmp = {0};
    bool *has = arena_array(&tmp, bool, c->low.node.n + 1);
    for (u32 r = 0; r < c->cover[d]->region.n; r++)
        for (u32 i = 0; i < c->cover[d]->region.v[r].n_nodes; i++)
            if (!isinf(c->region[d][r])) has[c->cover[d]->region.v[r].nodes[i]] = true;
    for (node_id n = 1; n < c->low.node.n; n++)
        if (!has[n] && c->op_of[n] != UINT32_MAX &&
            graph_is_read(&c->low, node_first_out(graph_node(&c->low, n))))
            c->can[d][c->op_of[n]] = false;
    arena_release(&tmp);
}

static bool region_is_able(const struct place_costs *c, u32 d, const struct region *r)
{
    for (u32 i = 0; i < r->n_nodes; i++)
        if (c->op_of[r->nodes[i]] != UINT32_MAX && !c->can[d][c->op_of[r->nodes[i]]]) return false;
    return true;
}

/* A region's time is shared by its nodes by their arithmetic; whatever has none counts a little. */
static void share(struct place_costs *c, u32 d, const struct region *r, double seconds)
{
    double all = 0;
    const i64 *var = cost_sizes(c);
    for (u32 i = 0; i < r->n_nodes; i++) all += op_flops(&c->low, r->nodes[i], var) + 1;
    for (u32 i = 0; i < r->n_nodes; i++) {
        u32 k = c->op_of[r->nodes[i]];
        if (k != UINT32_MAX)
            c->alone[d][k] += seconds * (op_flops(&c->low, r->nodes[i], var) + 1) / all;
    }
}

static bool select_alone(struct place_costs *c, u32 d, struct err *e)
{
    struct cost_class *k = &c->class.v[c->class_of[d]];
    const double slow = c->d->v[d].slowdown;
    const i64 *var = cost_sizes(c);
    struct selection s;
    struct err why = {.stop = e->stop};
    struct cover *cover = c->cover[d];
    bool ok = plan_select(&s, cover, var, cost_of_task, k, &c->a, &why);
    if (!ok && why.code != ERR_NOTHING) return err_set(e, why.code, "%s", why.msg);
    for (u32 r = 0; r < cover->region.n; r++) {
        const struct region *x = &cover->region.v[r];
        double seconds = x->task == NO_TASK   ? 0
                         : s.cost[x->task].ok ? s.cost[x->task].seconds * slow
                                              : INFINITY;
        c->region[d][r] = region_is_able(c, d, x) ? seconds : INFINITY;
    }
    for (u32 i = 0; i < s.choice.n && ok; i++) {
        const u32 r = s.choice.v[i].region;
        const u32 task = cover->region.v[r].task;
        if (task != NO_TASK) share(c, d, &cover->region.v[r], s.cost[task].seconds * slow);
    }
    if (!ok) forbid_unreachable(c, d);
    return true;
}

/* Predictions are scaled by the measured tasks, with a margin that favours measured kernels. */
static void scale(struct cost_class *k, const struct cover *c, const i64 *var, struct arena *a)
{
    double *ratio = arena_array(a, double, c->task.n + 1);
    u32 n = 0;
    for (u32 i = 0; i < c->task.n; i++) {
        struct task_cost x;
        if (task_is_call(c->task.v[i]) || !cost_of_task(k, c->task.v[i], var, &x) || !x.is_measured)
            continue;
        double p = gen_predict(&x.best, c->task.v[i], k->target->caps, var);
        if (p > 0) ratio[n++] = x.seconds / p;
    }
    if (n) k->scale = 2 * stats_of(ratio, n).median;
}

static bool cover_device(struct place_costs *c, u32 d, struct err *e)
{
    struct cost_class *k = &c->class.v[c->class_of[d]];
    const i64 *var = cost_sizes(c);
    c->cover[d] = arena_new(&c->a, struct cover);
    for (u32 i = 0; i < d; i++)
        if (c->class_of[i] == c->class_of[d]) *c->cover[d] = *c->cover[i];
    if (!c->cover[d]->g) {
        if (!plan_cover(c->cover[d], &c->low, (struct cover_opts){0}, k->target, &c->a, e) ||
            !cost_tasks(k, c->cover[d], var, e))
            return false;
        scale(k, c->cover[d], var, &c->a);
    }
    c->region[d] = arena_array(&c->a, double, c->cover[d]->region.n + 1);
    return select_alone(c, d, e);
}

/* --- a described device --- */

/* Arithmetic of each operator, as it is before any pass. */
static bool count_flops(struct place_costs *c, double *flops, struct arena *a, struct err *e)
{
    struct graph g;
    graph_clone(&g, &c->x->g, a);
    number_nodes(&g);
    if (!op_expand_all(&g, e)) return false;
    const i64 *var = cost_sizes(c);
    for (node_id n = 1; n < g.node.n; n++) {
        u32 k = graph_node(&g, n)->dead ? UINT32_MAX : named_origin(c->x, graph_node(&g, n)->name);
        if (k != UINT32_MAX) flops[k] += op_flops(&g, n, var);
    }
    return true;
}

static double traffic(const struct place_costs *c, u32 k)
{
    const struct place_op *op = &c->x->op.v[k];
    double sum = 0;
    for (u32 i = 0; i < op->in.n; i++) sum += c->bytes[c->x->tensor.v[op->in.v[i]].value];
    for (u32 i = 0; i < op->out.n; i++) sum += c->bytes[c->x->tensor.v[op->out.v[i]].value];
    return sum;
}

static bool describe_device(struct place_costs *c, u32 d, const double *flops, struct err *e)
{
    const struct place_device *x = &c->d->v[d];
    struct arena tmp = {0};
    double *n_nodes = arena_array(&tmp, double, c->x->op.n + 1);
    c->cover[d] = arena_new(&c->a, struct cover);
    for (u32 i = 0; i < d; i++)
        if (c->class_of[i] == UINT32_MAX) *c->cover[d] = *c->cover[i];
    bool ok = c->cover[d]->g ||
              cover_build(c->cover[d], &c->low, &c->a,
                          &(struct cover_opts){.no_fusion = true, .no_concat = true}, e);
    for (u32 k = 0; k < c->x->op.n; k++)
        c->alone[d][k] = fmax(flops[k] / x->flops, traffic(c, k) / x->bandwidth) * x->slowdown;
    for (node_id n = 1; n < c->low.node.n; n++)
        if (c->op_of[n] != UINT32_MAX) n_nodes[c->op_of[n]]++;
    c->region[d] = arena_array(&c->a, double, c->cover[d]->region.n + 1);
    for (u32 r = 0; r < c->cover[d]->region.n && ok; r++) {
        const struct region *q = &c->cover[d]->region.v[r];
        double seconds = region_is_able(c, d, q) ? 0 : INFINITY;
        for (u32 i = 0; i < q->n_nodes; i++) {
            u32 k = c->op_of[q->nodes[i]];
            if (k != UINT32_MAX) seconds += c->alone[d][k] / n_nodes[k];
        }
        c->region[d][r] = seconds;
    }
    arena_release(&tmp);
    return ok;
}

static bool base_open(struct place_costs *c, struct err *e)
{
    struct arena tmp = {0};
    double *flops = arena_array(&tmp, double, c->x->op.n + 1);
    bool ok = lower(c, e) && count_flops(c, flops, &tmp, e);
    c->cover = arena_array(&c->a, struct cover *, c->d->n + 1);
    c->region = arena_array(&c->a, double *, c->d->n + 1);
    c->alone = arena_array(&c->a, double *, c->d->n + 1);
    for (u32 d = 0; d < c->d->n && ok; d++) {
        c->alone[d] = arena_array(&c->a, double, c->x->op.n + 1);
        ok = c->class_of[d] == UINT32_MAX ? describe_device(c, d, flops, e) : cover_device(c, d, e);
        for (u32 k = 0; k < c->x->op.n; k++)
            if (!c->can[d][k]) c->alone[d][k] = INFINITY;
    }
    arena_release(&tmp);
    return ok;
}

/* --- opening --- */

static bool is_same_target(const struct plan_target *a, const struct plan_target *b)
{
    return str_eq(a->fingerprint, b->fingerprint) && a->caps->n_threads == b->caps->n_threads &&
           a->db == b->db;
}

static bool find_class(struct place_costs *c, u32 device, struct err *e)
{
    const struct plan_target *t = c->t[device].plan;
    c->class_of[device] = UINT32_MAX;
    if (!t) return true;
    for (u32 k = 0; k < c->class.n; k++)
        if (is_same_target(c->class.v[k].target, t)) {
            c->class_of[device] = k;
            return true;
        }
    struct cost_class *k = arr_push(&c->a, &c->class);
    *k = (struct cost_class){.target = t, .scale = 1};
    map_init(&k->index, &c->a);
    c->class_of[device] = c->class.n - 1;
    return !t->db || (k->env = db_env(t->db, t->fingerprint, t->toolchain, e)) != 0;
}

static void count_bytes(struct place_costs *c)
{
    const struct graph *g = &c->x->g;
    const i64 *var = cost_sizes(c);
    c->bytes = arena_array(&c->a, double, g->value.n);
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        i64 dim[MAX_RANK];
        if (!x->shape.known || !shape_eval(g->sym, &x->shape, var, dim)) continue;
        c->bytes[v] = (double)dtype_size(x->dtype);
        for (u32 d = 0; d < x->shape.rank; d++) c->bytes[v] *= (double)dim[d];
    }
}

static void find_able(struct place_costs *c)
{
    c->can = arena_array(&c->a, bool *, c->d->n + 1);
    for (u32 d = 0; d < c->d->n; d++) {
        c->can[d] = arena_array(&c->a, bool, c->x->op.n + 1);
        for (u32 k = 0; k < c->x->op.n; k++)
            c->can[d][k] = place_can_run(&c->d->v[d], c->x, k, &(struct err){0});
    }
}

struct place_costs *place_costs_open(const struct place_net *x, struct model *m,
                                     const struct place_devices *d, const struct place_target *t,
                                     struct err *e)
{
    struct place_costs *c = mem_alloc(sizeof *c);
    *c = (struct place_costs){.x = x, .m = m, .d = d, .t = t, .n_words = x->op.n / 64 + 1};
    c->class_of = arena_array(&c->a, u32, d->n + 1);
    map_init(&c->part, &c->a);
    place_dag_make(&c->dag, x, &c->a);
    count_bytes(c);
    find_able(c);
    bool ok = model_lowered(m, NULL, e) != NULL; /* all facts about sizes are known then */
    for (u32 k = 0; k < d->n && ok; k++) ok = find_class(c, k, e);
    if (ok && base_open(c, e)) return c;
    place_costs_close(c);
    return NULL;
}

void place_costs_close(struct place_costs *c)
{
    if (!c) return;
    arena_release(&c->a);
    mem_free(c);
}
