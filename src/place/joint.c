// SPDX-License-Identifier: Apache-2.0
//
// The joint selection: every region of the network on one device, with copies as conversions, at
// minimal total time or energy (plan/devices.c). Its regions tell on which device each operator
// would be in the best additive placement, where the search for the best schedule starts; and
// with copies for nothing its total bounds what any placement can reach.
#include "place/cost.h"

#include <math.h>

struct joint {
    struct place_costs *c;
    bool has_copies;
};

static double bytes_of(const struct joint *j, value_id v)
{
    const struct graph *g = &j->c->low;
    const struct value *x = graph_value(g, v);
    i64 dim[MAX_RANK];
    double n = (double)dtype_size(x->dtype);
    if (!x->shape.known || !shape_eval(g->sym, &x->shape, cost_sizes(j->c), dim)) return 0;
    for (u32 d = 0; d < x->shape.rank; d++) n *= (double)dim[d];
    return n;
}

static double copy(void *user, value_id v, u32 from, u32 to)
{
    const struct joint *j = user;
    const u32 end[2] = {from, to};
    double s = 0;
    for (u32 i = 0; i < 2 && j->has_copies; i++) {
        const struct place_target *t = end[i] ? &j->c->t[end[i] - 1] : NULL;
        if (t && t->link_bandwidth > 0) s += bytes_of(j, v) / t->link_bandwidth + t->link_latency;
    }
    return s;
}

/* Operators go where most of their arithmetic is; those without primitives follow their inputs. */
static void read_devices(const struct place_costs *c, const struct cover *all,
                         const struct selection *s, u32 *device, struct arena *a)
{
    const struct place_net *x = c->x;
    double *most = arena_array(a, double, x->op.n + 1);
    const i64 *var = cost_sizes((struct place_costs *)(uintptr_t)c);
    for (u32 k = 0; k < x->op.n; k++) device[k] = UINT32_MAX;
    for (u32 i = 0; i < s->choice.n; i++) {
        const struct region *r = &all->region.v[s->choice.v[i].region];
        for (u32 n = 0; n < r->n_nodes; n++) {
            const u32 k = c->op_of[r->nodes[n]];
            const double flops = k == UINT32_MAX ? 0 : op_flops(&c->low, r->nodes[n], var) + 1;
            if (flops > 0 && flops > most[k]) most[k] = flops, device[k] = r->out[0].device - 1;
        }
    }
    for (u32 k = 0; k < x->op.n; k++) {
        for (u32 i = 0; i < c->dag.before[k].n && device[k] == UINT32_MAX; i++) {
            const u32 d = device[c->dag.before[k].v[i]];
            if (d != UINT32_MAX && c->can[d][k]) device[k] = d;
        }
        for (u32 d = 0; d < c->d->n && device[k] == UINT32_MAX; d++)
            if (c->can[d][k]) device[k] = d;
    }
}

bool joint_select(struct place_costs *c, enum place_aim aim, bool has_copies, u32 *device,
                  double *total, struct err *e)
{
    struct arena a = {0};
    struct joint j = {.c = c, .has_copies = has_copies};
    struct plan_on_device *on = arena_array(&a, struct plan_on_device, c->d->n + 1);
    struct cover all;
    struct selection s;
    struct err why = {.stop = e->stop};
    for (u32 d = 0; d < c->d->n; d++) {
        const double weight = aim == PLACE_ENERGY ? c->d->v[d].watts : 1;
        const u32 n = c->cover[d]->region.n;
        double *seconds = arena_array(&a, double, n + 1);
        for (u32 r = 0; r < n; r++)
            seconds[r] = isinf(c->region[d][r]) ? INFINITY : c->region[d][r] * weight;
        on[d] = (struct plan_on_device){c->cover[d], seconds};
    }
    plan_devices_cover(&all, on, c->d->n, copy, &j, &a);
    bool ok = plan_select(&s, &all, cost_sizes(c), NULL, NULL, &a, &why);
    *total = ok && s.is_exact ? s.seconds : 0;
    for (u32 k = 0; k < c->x->op.n; k++) device[k] = UINT32_MAX;
    if (ok) read_devices(c, &all, &s, device, &a);
    arena_release(&a);
    return ok || why.code == ERR_NOTHING || err_set(e, why.code, "%s", why.msg);
}
