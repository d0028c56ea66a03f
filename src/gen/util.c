// SPDX-License-Identifier: Apache-2.0
//
// util: small questions that several families ask about tasks and limits.
#include "gen/gen.h"

#include <math.h>

u32 gen_lanes(const struct caps *c, enum dtype t)
{
    i64 n = c->vector_bytes / i64_max(4, dtype_size(t));
    u32 lanes = 1;
    while (lanes * 2 <= n && lanes < 64) lanes *= 2;
    return lanes;
}

i64 gen_static(const struct graph *g, sym s, i64 otherwise)
{
    i64 x;
    return sym_is_const(g->sym, s, &x) ? x : otherwise;
}

i64 gen_eval(const struct graph *g, sym s, const i64 *var)
{
    i64 x, nominal[GEN_MAX_VARS];
    u32 n = g->sym->var.n;
    if (sym_is_const(g->sym, s, &x)) return x;
    if (n > GEN_MAX_VARS) return GEN_NOMINAL;
    for (u32 i = 0; i < n; i++) nominal[i] = var && var[i] != INT64_MIN ? var[i] : GEN_NOMINAL;
    return sym_eval(g->sym, s, nominal, &x) ? x : GEN_NOMINAL;
}

double gen_count(const struct graph *g, value_id v, const i64 *var)
{
    const struct shape *s = &graph_value(g, v)->shape;
    double n = 1;
    for (u32 i = 0; i < s->rank; i++) n *= (double)gen_eval(g, s->dim[i], var);
    return n;
}

double gen_bytes(const struct graph *g, value_id v, const i64 *var)
{
    return (double)dtype_size(graph_value(g, v)->dtype) * gen_count(g, v, var);
}

/* Terms per element of what a node sums up; 1: it sums nothing. */
static double terms_of(const struct graph *g, node_id n, const i64 *var)
{
    const struct node *x = graph_node(g, n);
    const struct op *op = op_of(g, n);
    value_id out = 0;
    for (u32 i = 0; i < x->out.n && !out; i++) out = x->out.v[i];
    double count = out ? gen_count(g, out, var) : 0;
    if (count <= 0) return 1;
    if ((op->props & (OP_REDUCE | OP_MATMUL | OP_CONV | OP_WINDOW | OP_HEAVY)) && op->flops)
        return 8 * op->flops(g, x, var) / count;
    return op->props & OP_REDUCE ? 8 * gen_count(g, x->in.v[0], var) / count : 1;
}

double gen_work(const struct task *t, value_id v, const i64 *var) { return gen_work_repeated(t, v, var, OP_REDUCE | OP_WINDOW); }

double gen_work_repeated(const struct task *t, value_id v, const i64 *var, u32 repeated)
{
    const struct graph *g = &t->g;
    struct arena a = {0};
    double *work = arena_array(&a, double, g->value.n);
    for (value_id i = 0; i < g->value.n; i++) work[i] = 1;
    for (node_id n = 1; n < g->node.n; n++) { /* in topological order */
        const struct node *x = graph_node(g, n);
        bool repeats = op_of(g, n)->props & repeated;
        double in = 0, terms = terms_of(g, n, var);
        for (u32 i = 0; i < x->in.n; i++) in += work[x->in.v[i]];
        for (u32 i = 0; i < x->out.n; i++)
            if (x->out.v[i]) work[x->out.v[i]] = terms * (repeats ? in : 1) + in;
    }
    double w = work[v];
    arena_release(&a);
    return w;
}

static double output_bytes(const struct graph *g, const i64 *var)
{
    double bytes = 0;
    for (u32 i = 0; i < g->output.n; i++) bytes += gen_bytes(g, g->output.v[i], var);
    return bytes;
}

bool gen_may_nt(const struct graph *g, const struct caps *c, i64 run)
{
    bool has_stores = c->isa.family == ISA_NONE || isa_is_x86(c->isa); /* language c has such stores for these */
    return has_stores && run > 0 && run % 64 == 0 && output_bytes(g, NULL) > (double)c->l3_bytes / 2;
}

double gen_nt_seconds(const struct gen_problem *p, double plain)
{
    double bytes = output_bytes(&p->t->g, p->var), moved = bytes / p->rates.memory[RATE_DRAM].read.one;
    if (bytes <= (double)p->c->l3_bytes) return plain + 0.3 * moved;
    return fmax(plain - 0.1 * moved, 0.8 * plain);
}

i32 gen_nearest(const struct gen_param *p, i64 want)
{
    i32 best = p->values[0];
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] <= want) best = p->values[i];
    return best;
}

/* Dependencies. What is known of a value is kept: with several users each it would be walked exponentially often. */

enum dependency { UNKNOWN, INDEPENDENT, DEPENDENT };

struct cone {
    const struct graph *g;
    value_id on;
    u8 *known;  /* per value: enum dependency on `on` */
    bool *seen; /* of is_behind */
};

static bool depends(const struct cone *c, value_id v)
{
    if (!v || v == c->on) return v == c->on;
    const node_id p = graph_value(c->g, v)->producer;
    if (c->known[v] || !p) return c->known[v] == DEPENDENT;
    const struct node *n = graph_node(c->g, p);
    bool yes = false;
    for (u32 i = 0; i < n->in.n && !yes; i++) yes = depends(c, n->in.v[i]);
    c->known[v] = yes ? DEPENDENT : INDEPENDENT;
    return yes;
}

bool gen_depends(const struct graph *g, value_id v, value_id on)
{
    struct arena a = {0};
    bool yes = depends(&(struct cone){.g = g, .on = on, .known = arena_array(&a, u8, g->value.n)}, v);
    arena_release(&a);
    return yes;
}

static bool is_behind(const struct cone *c, value_id v, value_id from)
{
    if (v == from || !depends(c, v) || c->seen[v]) return true;
    c->seen[v] = true;
    const node_id p = graph_value(c->g, v)->producer;
    if (!p || !(op_of(c->g, p)->props & OP_POINTWISE)) return false;
    if (!shape_equal(&graph_value(c->g, v)->shape, &graph_value(c->g, from)->shape)) return false;
    const struct node *n = graph_node(c->g, p);
    for (u32 i = 0; i < n->in.n; i++)
        if (n->in.v[i] && !is_behind(c, n->in.v[i], from)) return false;
    return true;
}

bool gen_pointwise_behind(const struct graph *g, value_id v, value_id from, value_id y)
{
    struct arena a = {0};
    bool yes = is_behind(&(struct cone){.g = g, .on = y, .known = arena_array(&a, u8, g->value.n), .seen = arena_array(&a, bool, g->value.n)}, v, from);
    arena_release(&a);
    return yes;
}

bool gen_pointwise_tail(const struct graph *g, value_id out, value_id anchor) { return gen_pointwise_behind(g, out, anchor, anchor); }

node_id gen_pool_node(const struct task *t)
{
    const struct graph *g = &t->g;
    const u32 others = OP_WHOLE | OP_HEAVY | OP_REDUCE | OP_SAMPLE | OP_MATMUL | OP_CONV;
    node_id found = 0;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct op *op = op_of(g, n);
        bool is_window = op->props & OP_WINDOW;
        if (op->props & others || (is_window && (found || !op->pool))) return 0;
        if (is_window) found = n;
    }
    const struct node *n = found ? graph_node(g, found) : NULL;
    return !t->anchor && n && n->out.v[0] && !(n->out.n > 1 && n->out.v[1]) ? found : 0;
}

kval gen_given(struct emit *m, const void *user, const kval *idx) { return *(const kval *)user; }

kval gen_is_inside(struct kir *k, kval i, kval n) { return kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), i), kir_lt(k, i, n)); }

struct vectors vectors_over(struct kir *k, kval from, kval to, i64 lanes)
{
    kval n = kir_mul_i(k, kir_div_i(k, kir_sub(k, to, from), lanes), lanes);
    return (struct vectors){.k = k, .from = from, .to = to, .whole = kir_add(k, from, n), .lanes = lanes};
}

bool vectors_next(struct vectors *v)
{
    if (v->n) kir_end(v->k);
    switch (v->n++) {
    case 0:
        v->at = kir_loop(v->k, KL_SERIAL, v->from, v->whole, v->lanes);
        return true;
    case 1:
        kir_if(v->k, kir_lt(v->k, v->whole, v->to));
        v->at = v->whole, v->limit = kir_sub(v->k, v->to, v->whole);
        return true;
    default: return false;
    }
}
