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
#include "tune/tune.h"

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
    u32 n_known;            /* by plan_choose: tasks that were measured */
};

typedef bool plan_cost_fn(void *user, const struct task *t, const i64 *var, struct task_cost *c);

/* Dynamic programming over the set of values still needed, from the outputs backwards; exact until the number of
   states exceeds a bound, greedy from there. ERR_NOTHING: some value cannot be delivered. */
bool plan_select(struct selection *s, const struct cover *c, const i64 *var, plan_cost_fn *cost, void *user,
                 struct arena *a, struct err *e);

/* What the same would cost with one node per kernel, for comparison: `unfused` of a selection made; empty where not every node can
   be alone. */
void plan_select_unfused(struct selection *s, const struct cover *c, struct arena *a);

/* cost.c: costs for the selector. */
/* Where a program is to run, and the database whose times count (NULL: none). */
struct plan_target { const struct caps *caps; struct str fingerprint, toolchain; struct db *db; };
struct plan_costs {
    struct db *db;
    i64 env;
    const struct caps *caps;
    double scale;          /* measured / predicted, median over the tasks known; 1 without any */
    u32 n_known;           /* tasks that were measured */
    struct err *e;         /* of what could not be read since */
};
bool plan_costs_init(struct plan_costs *k, const struct plan_target *t, const struct cover *c, const i64 *var, struct err *e);
plan_cost_fn plan_cost; /* user: struct plan_costs */
u32 plan_count_tasks(const struct cover *c); /* those of bodies included */
/* The selection by these costs, and beside it the one with a kernel per node. What is chosen by its prediction gets the schedule of the nearest
   task that was measured, where that is hoped to be faster. */
bool plan_choose(struct selection *s, const struct cover *c, const i64 *var, const struct plan_target *t, struct arena *a, struct err *e);

/* worth.c: the tasks worth measuring, at most plan_count_tasks, with their weights; how many. 0: there is none, or the error is set. */
u32 plan_worth_measuring(struct tune_task *tasks, const struct cover *c, const i64 *var, const struct plan_target *t, struct err *e);

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

/* What a program is made of. */
struct plan_choice { struct cover c; struct selection s; };

/* prove.c: the kernels that were chosen against their tasks (tune/exact.h), as much as a bounded number of steps allows, while the caller
   does something else. */
struct prove_env {
    const struct caps *caps;
    const i64 *var;
    const struct cache *cache; /* of verdicts; NULL: they are not kept */
    const struct log *log;
    const struct stop *stop;
};
struct prover *prove_start(const struct prove_env *env, struct plan_choice *x, struct arena *a); /* in the arena; what is given stays */
/* Waits, and puts the verdicts into the costs. A kernel that does not do its task gives way to the default schedule (*changed: some did); if that
   does not either it is an error. */
bool prove_finish(struct prover *p, bool *changed, struct err *e);
void prove_end(struct prover *p); /* at any time; NULL is fine */
/* plan_make with its reasons; kernels are verified meanwhile (how NULL: they are not). Where one is replaced the plan is made once more. */
bool plan_make_verified(struct plan *p, struct plan_choice *x, const struct plan_env *env, const struct prove_env *how, const i64 *var,
                        struct arena *a, struct err *e);

/* kernels.c */
/* Where times are measured channels in blocks are offered between convolutions, too. */
void plan_offer_blocks(struct cover_opts *c, const struct caps *caps);
enum { PLAN_COVERS = 8 };
/* The covers by all options: one of them is what a plan of this graph was chosen from. */
bool plan_covers(struct cover *c[PLAN_COVERS], const struct graph *g, const struct caps *caps, struct arena *a, struct err *e);
struct plan_kernel {
    const struct task *task;
    struct candidate cand;
    struct str label;       /* of its first dispatch */
    u32 n;                  /* dispatches */
};
struct plan_kernels {
    struct arena *a;
    struct map known;       /* key and candidate -> index */
    struct { struct plan_kernel *v; u32 n, cap; } kernel;
};
void plan_kernels_init(struct plan_kernels *x, struct arena *a);
void plan_kernels_chosen(struct plan_kernels *x, const struct cover *c, const struct selection *s); /* adds them */
/* Adds those of a plan of this graph. ERR_INPUT: it is of another graph, or of another version of the library. */
bool plan_kernels_of(struct plan_kernels *x, const struct plan *p, const struct graph *g, const struct caps *caps, struct err *e);

/* A dispatch's label: names of the region's nodes, or what is copied. */
struct str plan_label(const struct cover *c, const struct region *r, struct arena *a);

/* JSON: per dispatch what was chosen, what it was compared with. */
void plan_explain(struct buf *out, const struct cover *c, const struct selection *s, const i64 *var);

/* show.c: as text for people. */
void plan_show(struct buf *b, const struct plan *p);                      /* all variants */
void plan_show_variant(struct buf *b, const struct plan *p, u32 k);       /* the line above the k-th */
bool plan_show_reasons(struct buf *b, const struct plan *p);              /* false: it holds none */

#endif
