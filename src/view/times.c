// SPDX-License-Identifier: Apache-2.0
//
// Measured times of operators. What is measured are kernels, which compute several operators, or
// parts of one. The graph is lowered under the operators' names, so the name of a primitive leads
// back to its operator: "softmax_3/Exp". A kernel's time is that of its operator with the most
// operations; the others are fused into it. So the times of a network's operators sum up to its
// own.
#include "view/view.h"

#include <math.h>

#include "op/op.h"

void view_named(struct graph *g, const struct view *v, struct arena *a)
{
    graph_clone(g, &v->x->g, a);
    for (node_id n = 1; n < g->node.n; n++) {
        const u32 op = v->x->op_of[n];
        graph_node(g, n)->name = op == UINT32_MAX ? S("-") : v->x->op.v[op].name;
    }
}

/* UINT32_MAX: a node of no operator. */
static u32 origin(const struct view *v, const struct graph *g, node_id n)
{
    struct str head = graph_node(g, n)->name, tail;
    str_cut(head, '/', &head, &tail);
    const u64 *k = map_get(&v->x->op_by_name, head);
    return k ? (u32)*k : UINT32_MAX;
}

static u32 largest_op(const struct view *v, const struct cover *c, const struct region *r)
{
    u32 best = UINT32_MAX;
    double most = -1;
    for (u32 i = 0; i < r->n_nodes; i++) {
        const u32 op = origin(v, c->g, r->nodes[i]);
        if (op == UINT32_MAX) continue;
        const double flops = op_flops(c->g, r->nodes[i], v->var);
        if (flops > most) best = op, most = flops;
    }
    return best;
}

struct view_time *view_times(const struct view *v, const struct plan_choice *x, struct arena *a)
{
    const struct cover *c = &x->c;
    struct view_time *t = arena_array(a, struct view_time, v->x->op.n + 1);
    for (u32 k = 0; k < v->x->op.n; k++) t[k] = (struct view_time){NAN, UINT32_MAX, UINT32_MAX};
    for (u32 i = 0; i < x->s.choice.n; i++) {
        const struct region *r = &c->region.v[x->s.choice.v[i].region];
        const u32 best = largest_op(v, c, r);
        if (best == UINT32_MAX) continue;
        for (u32 k = 0; k < r->n_nodes; k++) {
            const u32 op = origin(v, c->g, r->nodes[k]);
            if (op == UINT32_MAX || t[op].kernel != UINT32_MAX) continue;
            t[op].kernel = i;
            if (op != best) t[op].fused_into = best;
        }
        const struct task_cost *cost = r->task == NO_TASK ? NULL : &x->s.cost[r->task];
        if (!cost || !cost->is_measured) continue;
        t[best].seconds =
            isfinite(t[best].seconds) ? t[best].seconds + cost->seconds : cost->seconds;
        if (t[best].fused_into != UINT32_MAX)
            t[best].fused_into = UINT32_MAX; /* it has a kernel of its own, too */
    }
    return t;
}
