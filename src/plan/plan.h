// SPDX-License-Identifier: Apache-2.0
//
// plan: choosing the cheapest program and writing it down. Costs of tasks come from the caller (measured, or predicted and marked
// as such); the selector covers the graph with regions at the least total; the builder turns the regions chosen into kernels,
// constants and dispatches. Nothing is measured here.
#ifndef QUERN_PLAN_H
#define QUERN_PLAN_H

#include "art/art.h"
#include "gen/gen.h"
#include "lang/lang.h"

/* What running a task costs, and by which candidate. */
struct task_cost {
    bool ok;              /* some candidate can do it */
    struct candidate best;
    double seconds;       /* for the sizes asked for */
    bool is_measured;
    u32 n_trials;         /* candidates verified and timed */
    struct str proof;     /* what exact verification found, JSON; empty: nobody asked */
};

struct choice {           /* one region of the program, in order of execution */
    u32 region;           /* index into cover.region */
};

struct choices { struct choice *v; u32 n, cap; };

struct selection {
    struct choices choice;
    struct task_cost *cost; /* per task of the cover */
    double seconds;         /* sum over the choices */
    bool is_exact;          /* the search was exhaustive */
    u64 n_states;
    struct choices unfused; /* by plan_select_unfused */
    double unfused_seconds;
    struct selection *body; /* per body of the cover */
};

typedef bool plan_cost_fn(void *user, const struct task *t, const i64 *var, struct task_cost *c);

/* Dynamic programming over the set of values still needed, from the outputs backwards; exact until the number of
   states exceeds a bound, greedy from there. ERR_NOTHING: some value cannot be delivered. */
bool plan_select(struct selection *s, const struct cover *c, const i64 *var, plan_cost_fn *cost, void *user,
                 struct arena *a, struct err *e);

/* What the same would cost with one node per kernel, for comparison: `unfused` of a selection made; empty where not every node can
   be alone. */
void plan_select_unfused(struct selection *s, const struct cover *c, struct arena *a);

/* Sources to binaries, all at once: out[i] (owned by the arena) for text[i]. */
typedef bool plan_build_fn(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e);

struct plan_env {
    const struct lang *lang;
    const struct caps *caps;
    const char *device;          /* driver's name */
    struct str fingerprint;
    struct str model;
    const struct graph *outer;   /* types and shapes of inputs and outputs as callers see them; NULL: the cover's graph */
    const struct str *in_layout, *out_layout; /* names of what their axes are, empty: the network's; NULL: all empty */
    plan_build_fn *build;
    void (*see_kernel)(void *user, const struct kir *k); /* each kernel before it is spelt; NULL: nobody looks */
    void *user;
};

/* Constants of the graph must have content. p is filled in arena a. */
bool plan_make(struct plan *p, const struct cover *c, const struct selection *s, const i64 *var, const struct plan_env *env,
               struct arena *a, struct err *e);

/* A dispatch's label: names of the region's nodes, or what is copied. */
struct str plan_label(const struct cover *c, const struct region *r, struct arena *a);

/* JSON: per dispatch what was chosen, what it was compared with. */
void plan_explain(struct buf *out, const struct cover *c, const struct selection *s, const i64 *var);

#endif
