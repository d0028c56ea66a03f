// SPDX-License-Identifier: Apache-2.0
//
// The pass runner: order, repetition, checks. The order is the ranks', printed by `quern -d list`.
#include "pass/pass.h"

#define X(name) extern const struct pass pass_##name;
#include "pass.inc"
#undef X

static const struct pass *const passes[] = {
#define X(name) &pass_##name,
#include "pass.inc"
#undef X
};

enum { MAX_SWEEPS = 50 };

/* The k-th smallest rank; the list is short. */
const struct pass *pass_at(i64 k)
{
    for (i64 i = 0; i < countof(passes); i++) {
        i64 before = 0;
        for (i64 j = 0; j < countof(passes); j++)
            before +=
                passes[j]->rank < passes[i]->rank || (passes[j]->rank == passes[i]->rank && j < i);
        if (before == k) return passes[i];
    }
    return NULL;
}

static bool run_one(const struct pass *p, struct graph *g, const struct pass_env *env,
                    bool *changed, struct err *e)
{
    if (!mem_check(e, "before pass ", str_of(p->name))) return false;
    bool ok = true, did = p->run(g, &ok, e);
    assert(ok || e->code); /* a pass that fails says why */
    if (!ok) return err_prefix(e, "pass %s", p->name);
    if (!mem_check(e, "in pass ", str_of(p->name))) return false;
    *changed |= did;
    if (!did) return true;
    if (!graph_sort(g, e) || !graph_verify(g, e)) return err_prefix(e, "after pass %s", p->name);
    if (env && env->dump) env->dump(env->user, p->name, g);
    return true;
}

static bool is_due(const struct pass *p, const struct pass_env *env, u32 sweep)
{
    u32 flags = env ? env->flags : 0;
    return !(p->when & ~flags) && !(p->once && sweep);
}

/* Bodies of loops and branches, after the enclosing graph: its constants become constants in them. */
static bool run_bodies(struct graph *g, const struct pass_env *env, struct err *e)
{
    struct pass_env quiet = {.flags = env ? env->flags : 0};
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead || !(op_of(g, n)->props & OP_CALL)) continue;
        op_call_trim(g, n);
        for (u32 k = 0; k < graph_node(g, n)->attr.n; k++) {
            const struct attr *a = &graph_node(g, n)->attr.v[k];
            if (a->kind == ATTR_GRAPH && !pass_run_all(a->graph, &quiet, e)) return false;
        }
        op_call_trim(g, n);
    }
    return graph_sort(g, e) && graph_verify(g, e);
}

static bool has_bodies(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && op_of(g, n)->props & OP_CALL) return true;
    return false;
}

/* The operators of tasks: those that kernels or calls implement. */
static bool only_primitives(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct op *op = op_of(g, n);
        if (!graph_node(g, n)->dead && !op->lower && !op->whole && !(op->props & OP_CALL)) return false;
    }
    return true;
}

bool pass_run_all(struct graph *g, const struct pass_env *env, struct err *e)
{
    if (!op_infer_all(g, e)) return false;
    if (env && env->dump) env->dump(env->user, "import", g);
    for (i64 first = 0, end; first < countof(passes); first = end) {
        u32 phase = pass_at(first)->rank / 100;
        for (end = first; end < countof(passes) && pass_at(end)->rank / 100 == phase;) end++;
        bool changed = true;
        for (u32 sweep = 0; changed; sweep++) {
            if (sweep == MAX_SWEEPS) return err_set(e, ERR_FAILED, "passes do not converge");
            changed = false;
            for (i64 k = first; k < end; k++)
                if (is_due(pass_at(k), env, sweep) && !run_one(pass_at(k), g, env, &changed, e))
                    return false;
        }
    }
    assert(only_primitives(g));
    return !has_bodies(g) || run_bodies(g, env, e);
}
