// SPDX-License-Identifier: Apache-2.0
//
// problem: a task on a device, analyzed once by a family and then asked about many schedules.
#include "gen/nest.h"

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
    return view(p, s) ? p->gen->predict(p, s) : 1e9;
}

double gen_problem_cost(const struct gen_problem *p, const struct sched *s)
{
    return view(p, s) && p->gen->legal(p, s) ? p->gen->predict(p, s) : 0;
}

bool gen_problem_least(const struct gen_problem *p, struct sched *s)
{
    for (u32 k = 0; p->gen->least && p->gen->least(p, k, s); k++)
        if (gen_problem_allows(p, s)) return true;
    return false;
}
