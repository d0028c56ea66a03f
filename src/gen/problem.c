// SPDX-License-Identifier: Apache-2.0
//
// problem: a task on a device, analyzed once by a family and then asked about many schedules.
#include "gen/nest.h"

#include <math.h>

/* What several predictions need, found out when the first one does. */
struct gen_prices { double front[2], back, packing; }; /* NAN: not yet */

/* The task's first contraction, 0: none. */
static node_id first_contraction(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (op_of(g, n)->props & (OP_CONV | OP_TRANSPOSED | OP_MATMUL)) return n;
    return 0;
}

double gen_problem_front(const struct gen_problem *p, u32 operand)
{
    assert(operand < countof(p->prices->front));
    double *price = &p->prices->front[operand];
    const struct graph *g = &p->t->g;
    node_id n = isnan(*price) ? first_contraction(g) : 0;
    if (isnan(*price)) *price = n ? gen_front(g, graph_node(g, n)->in.v[operand]) : 0;
    return *price;
}

double gen_problem_back(const struct gen_problem *p)
{
    double *price = &p->prices->back;
    const struct graph *g = &p->t->g;
    node_id n = isnan(*price) ? first_contraction(g) : 0;
    if (isnan(*price)) *price = n ? gen_back(g, graph_node(g, n)->out.v[0]) : 0;
    return *price;
}

/* Sectors of memory read for each one of an operand that workgroups pack: threads side by side store side by side, but read far apart. */
enum { PACK_SECTORS = 4 };

/* To evaluate and rearrange an operand, by a grid of its own. */
static double pack_seconds_of(const struct gen_problem *p, value_id v)
{
    const struct graph *g = &p->t->g;
    double n = gen_count(g, v, p->var), bytes = gen_bytes(g, v, p->var), threads = (double)i64_max(1, p->c->n_threads), vector = gen_lanes(p->c, DT_F32);
    if (p->c->is_gpu) return p->rates.launch + (PACK_SECTORS + 1) * bytes / p->rates.memory[RATE_DRAM].read.all;
    double each = p->nest->load + p->nest->cycle / vector + gen_front(g, v) * p->nest->work / 2 / vector; /* elements are loaded one by one */
    return p->nest->launch + (n * each + nest_read(p->nest, bytes, bytes, &(struct nest_rows){0})) / threads;
}

/* The same of all operands that the family packs: weights that are computed while running. Families by element read them in place. */
static double pack_seconds(const struct gen_problem *p)
{
    const struct graph *g = &p->t->g;
    double *price = &p->prices->packing;
    if (!isnan(*price)) return *price;
    *price = 0;
    for (node_id n = 1; n < g->node.n && p->gen->sums != SUMS_BY_ELEMENT; n++) {
        value_id w = op_of(g, n)->props & (OP_CONV | OP_TRANSPOSED) ? graph_node(g, n)->in.v[1] : 0;
        if (w && !graph_value(g, w)->is_const) *price += pack_seconds_of(p, w);
    }
    return *price;
}

/* A prediction. */
static double seconds_of(const struct gen_problem *p, const struct sched *s) { return p->gen->predict(p, s) + pack_seconds(p); }

bool gen_problem_open(struct gen_problem *p, const struct gen *g, const struct task *t, const struct caps *c, const i64 *var)
{
    u32 n = t->g.sym->var.n;
    struct arena a = {0};
    struct arena *own = arena_new(&a, struct arena); /* in its own memory */
    *own = a;
    *p = (struct gen_problem){.gen = g, .t = t, .c = c, .rates = caps_rates(c), .has_too_many = n > GEN_MAX_VARS, .arena = own};
    if (n && !p->has_too_many) {
        i64 *all = arena_array(p->arena, i64, n);
        for (u32 i = 0; i < n; i++) all[i] = var && var[i] != INT64_MIN ? var[i] : GEN_NOMINAL;
        p->var = all;
    }
    if (!c->is_gpu) {
        struct nest_rates *r = arena_new(p->arena, struct nest_rates);
        *r = nest_rates_of(c, &p->rates), p->nest = r;
    }
    p->prices = arena_new(p->arena, struct gen_prices);
    *p->prices = (struct gen_prices){{NAN, NAN}, NAN, NAN};
    if (g->facts) p->facts = arena_alloc(p->arena, g->facts);
    if (!g->analyze || g->analyze(p)) return true;
    gen_problem_close(p);
    return false;
}

void gen_problem_close(struct gen_problem *p)
{
    struct arena a = *p->arena;
    arena_release(&a);
    p->facts = NULL, p->var = NULL, p->arena = NULL;
}

/* Whether it is refused at once. */
static bool view(const struct gen_problem *p, const struct sched *s) { return !p->gen->view || p->gen->view(p, s); }

bool gen_problem_allows(const struct gen_problem *p, const struct sched *s) { return view(p, s) && p->gen->legal(p, s); }

double gen_problem_seconds(const struct gen_problem *p, const struct sched *s)
{
    if (p->has_too_many) return 1;
    return view(p, s) ? seconds_of(p, s) : 1e9;
}

double gen_problem_cost(const struct gen_problem *p, const struct sched *s)
{
    return view(p, s) && p->gen->legal(p, s) ? seconds_of(p, s) : 0;
}

/* Are all values of parameters among those that they may have? Least schedules take some from the target: shapes of matrix units. */
static bool is_listed(const struct gen *g, const struct sched *s)
{
    for (u32 i = 0; i < g->n_param; i++)
        if (!gen_param_has(&g->param[i], s->v[i])) return false;
    return true;
}

bool gen_problem_least(const struct gen_problem *p, struct sched *s)
{
    for (u32 k = 0; p->gen->least && p->gen->least(p, k, s); k++)
        if (is_listed(p->gen, s) && gen_problem_allows(p, s)) return true;
    return false;
}
