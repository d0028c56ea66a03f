// SPDX-License-Identifier: Apache-2.0
//
// plan: selection of the cheapest program, and its plan. The caller provides the costs of tasks
// (measured, or predicted and marked as such); the selector covers the graph with regions at
// minimal total cost; the builder turns the selected regions into kernels, constants and
// dispatches. Nothing is measured here.
#ifndef QUERN_PLAN_H
#define QUERN_PLAN_H

#include "art/art.h"
#include "gen/gen.h"
#include "lang/lang.h"
#include "tune/tune.h"

/* Cost of a task, and the candidate that has it. */
struct task_cost {
    bool ok;              /* a candidate exists */
    struct candidate best;
    double seconds;       /* at the requested sizes */
    bool is_measured;
    u32 n_trials;         /* verified and timed candidates */
    struct str proof;     /* verdict of exact verification, JSON; empty: not verified */
};

struct choice {           /* one region of the program, in order of execution */
    u32 region;           /* index into cover.region */
};

struct choices { struct choice *v; u32 n, cap; };

struct selection {
    struct choices choice;
    struct task_cost *cost; /* per task of the cover */
    double seconds;         /* sum over the choices, including those of calls */
    bool is_exact;          /* the search was exhaustive */
    u64 n_states;
    struct choices unfused; /* of plan_select_unfused */
    double unfused_seconds;
    struct selection *body; /* per body of the cover */
    u32 n_known;            /* of plan_choose: number of measured tasks */
};

typedef bool plan_cost_fn(void *user, const struct task *t, const i64 *var, struct task_cost *c);

/* Dynamic programming over the set of values still needed, from the outputs backwards; exact until
   the number of states exceeds a bound, greedy beyond it. ERR_NOTHING: some value cannot be
   produced. */
bool plan_select(struct selection *s, const struct cover *c, const i64 *var, plan_cost_fn *cost, void *user,
                 struct arena *a, struct err *e);

/* Cost with one node per kernel, for comparison: `unfused` of a selection; empty if some node has
   no kernel of its own. */
void plan_select_unfused(struct selection *s, const struct cover *c, struct arena *a);

/* devices.c: covers of one graph for several devices as one, whose selection places every region
   on a device (form.device of its outputs, less 1). */
struct plan_on_device {
    const struct cover *c;    /* of the same graph for all devices */
    const double *seconds;    /* per region of c; INFINITY: it cannot run there */
};
/* Seconds of a copy of v's elements between memories: 0 is the host's, k + 1 that of device k. */
typedef double plan_copy_fn(void *user, value_id v, u32 from, u32 to);
void plan_devices_cover(struct cover *out, const struct plan_on_device *on, u32 n, plan_copy_fn *copy, void *user, struct arena *a);

/* cost.c: costs for the selector. */
/* The target of a program, and the database with its measurements (NULL: none). */
struct plan_target { const struct caps *caps; struct str fingerprint, toolchain; struct db *db; };
struct plan_costs {
    struct db *db;
    i64 env;
    const struct caps *caps;
    double scale;          /* measured / predicted, median over the measured tasks; 1 without any */
    u32 n_known;           /* number of measured tasks */
    struct map index;      /* pointer to a task of the cover or its bodies -> index of its cost */
    struct task_cost *cost; /* predictions are not scaled yet */
};
/* Of all tasks but calls, in the arena. false: the database failed, out of memory, or stopped. */
bool plan_costs_init(struct plan_costs *k, const struct plan_target *t, const struct cover *c, const i64 *var, struct arena *a, struct err *e);
plan_cost_fn plan_cost; /* user: struct plan_costs */
u32 plan_count_tasks(const struct cover *c); /* including those of bodies */
/* The selection by these costs, and the one with a kernel per node. Tasks selected by their
   prediction get the schedule of the nearest measured task if that is expected to be faster. */
bool plan_choose(struct selection *s, const struct cover *c, const i64 *var, const struct plan_target *t, struct arena *a, struct err *e);

/* predict.c: the default schedules of n tasks for sizes var[], searched by one process per processor, and their predicted times: cost[i] of
   task[i], not ok if no family has a kernel for it. false: out of memory, or stopped. */
bool plan_predict(const struct task *const *task, u32 n, const struct caps *caps, const i64 *var, struct task_cost *cost, struct err *e);
plan_cost_fn plan_cost_predicted; /* of one task; user: struct caps */

/* prune.c: the tasks to be measured, at most plan_count_tasks, with their weights; returns their
   number. 0: none, or an error. */
u32 plan_tasks_to_tune(struct tune_task *tasks, const struct cover *c, const i64 *var, const struct plan_target *t, struct err *e);

/* Compiles all texts at once: out[i] (owned by the arena) for text[i]. */
typedef bool plan_build_fn(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e);

/* code.c: the builder of programs, a plan_build_fn. */
struct plan_code {
    struct builder builder;
    void (*see)(void *user, struct str text, struct str code); /* called for each kernel; NULL: none */
    void *user;
};
plan_build_fn plan_build_code; /* user: struct plan_code */

struct plan_env {
    const struct lang *lang;
    const struct caps *caps;
    const char *device;          /* driver's name */
    struct str fingerprint;
    struct str model;
    const struct graph *outer;   /* types and shapes of inputs and outputs for callers; NULL: the cover's graph */
    const struct str *in_layout, *out_layout; /* order of axes, empty: the network's; NULL: all empty */
    plan_build_fn *build;
    void *build_user;
    bool separate;               /* every kernel has a binary of its own: files of a deployment */
    void (*see_kernel)(void *user, const struct kir *k); /* called with each kernel before it is emitted; NULL:
                                                            none */
    void *user;                  /* of see_kernel */
};

/* Constants of the graph must have content. p is allocated in arena a. */
bool plan_make(struct plan *p, const struct cover *c, const struct selection *s, const i64 *var, const struct plan_env *env,
               struct arena *a, struct err *e);

/* unit.c: the n kernels' texts as compilation units, out (room for n); text i is in unit[i]. Returns their number. */
struct plan_text {
    struct str text;
    bool is_alone;   /* a unit of its own: its code was measured */
    bool as_written; /* it rounds as written */
};
u32 plan_units(struct str *out, u32 *unit, const struct plan_text *text, u32 n, const struct lang *l, struct arena *a);

/* Links the plans of one model for n instruction sets of these names as variants of p[0]. *best: of those that this processor can run,
   the one with the most extensions; 0 if there is none. Two plans for the same instruction set are an error. */
bool plan_link_variants(struct plan *p, const char *const *name, const bool *is_here, u32 n, u32 *best, struct err *e);

/* A selection and its cover. */
struct plan_choice { struct cover c; struct selection s; };

/* prove.c: exact verification of the selected kernels (tune/exact.h), up to a bounded number of
   steps, concurrently with the caller. */
struct prove_env {
    const struct caps *caps;
    const i64 *var;
    const struct cache *cache; /* of verdicts; NULL: not kept */
    const struct log *log;
    const struct stop *stop;
};
/* in the arena; env and choices must outlive it */
struct prover *prove_start(const struct prove_env *env, struct plan_choice *x, struct arena *a);
/* Waits, and stores the verdicts in the costs. A wrong kernel is replaced by the default schedule
   (*changed: some were); if that is wrong, too, it is an error. */
bool prove_finish(struct prover *p, bool *changed, struct err *e);
void prove_end(struct prover *p); /* at any time; may be NULL */
/* plan_make with its reasons; kernels are verified concurrently (how NULL: not verified). If one is
   replaced, the plan is made again. */
bool plan_make_verified(struct plan *p, struct plan_choice *x, const struct plan_env *env, const struct prove_env *how, const i64 *var,
                        struct arena *a, struct err *e);

/* kernels.c */
/* cover_build for a target: with measurements, blocked channels are offered between convolutions, too. */
bool plan_cover(struct cover *c, const struct graph *g, struct cover_opts opts, const struct plan_target *t, struct arena *a, struct err *e);
enum { PLAN_COVERS = 8 };
/* The covers for all options: a plan of this graph was selected from one of them. */
bool plan_covers(struct cover *c[PLAN_COVERS], const struct graph *g, const struct caps *caps, struct arena *a, struct err *e);
struct plan_kernel {
    const struct task *task;
    struct candidate cand;
    struct str label;       /* of its first dispatch */
    u32 n;                  /* number of dispatches */
};
struct plan_kernels {
    struct arena *a;
    struct map known;       /* key and candidate -> index */
    struct { struct plan_kernel *v; u32 n, cap; } kernel;
};
void plan_kernels_init(struct plan_kernels *x, struct arena *a);
void plan_kernels_chosen(struct plan_kernels *x, const struct cover *c, const struct selection *s); /* adds them */
/* Adds the kernels of a plan of this graph. ERR_INPUT: it belongs to another graph, or to another
   version of the library. */
bool plan_kernels_of(struct plan_kernels *x, const struct plan *p, const struct graph *g, const struct caps *caps, struct err *e);

/* A dispatch's label: names of the region's nodes, or the copied value. */
struct str plan_label(const struct cover *c, const struct region *r, struct arena *a);

/* JSON: the choice and its alternatives, per dispatch. */
void plan_explain(struct buf *out, const struct cover *c, const struct selection *s, const i64 *var);

/* layers.c: comparison of a running program with the reference evaluator, kernel by kernel. */
struct plan_layer { /* an output of a kernel */
    const struct plan_dispatch *dispatch;
    struct str value;        /* name of the output */
    i64 n_bad, count;        /* elements beyond the bound, of count */
    double ulp, bound;       /* error and bound of the worst element, in units in the last place of the largest value as `precision` */
    enum dtype precision;    /* the coarsest float type between the kernel's inputs and outputs */
    double loss;             /* difference to the exact results for the same inputs, relative to these, in the Euclidean norm; NAN: not known */
    i64 at; double got, want; /* row-major index and values of the worst element */
};
typedef void plan_layer_fn(void *user, const struct plan_layer *l);
struct plan_layers;
/* g: the graph after the passes that the plan was made of. NULL: error. */
struct plan_layers *plan_layers_open(const struct plan *p, const struct graph *g, const struct caps *caps, plan_layer_fn *fn, void *user,
                                     struct err *e);
bool plan_layers_evaluate(struct plan_layers *x, const struct tensor *in, struct err *e); /* the reference's values */
/* After dispatch i: calls fn for each output of the kernel, and replaces it by the reference's. For rt_watch. */
bool plan_layers_compare(struct plan_layers *x, u32 i, struct dev *dev, const struct dev_mem *buf, const i64 *plan_var, struct err *e);
void plan_layers_close(struct plan_layers *x);

/* kept.c: programs kept between calls. */
enum { PLAN_KEPT = 64 };
struct plan_kept {
    struct { struct hash key; void *program; u64 used; } v[PLAN_KEPT];
    u32 n;
    u64 clock;              /* of uses */
};
void *plan_kept_find(struct plan_kept *x, struct hash key);                /* NULL: none */
void *plan_kept_add(struct plan_kept *x, struct hash key, void *program);  /* returns the one dropped for it, or NULL */

/* show.c: as readable text. */
void plan_show(struct buf *b, const struct plan *p);                      /* all variants */
void plan_show_variant(struct buf *b, const struct plan *p, u32 k);       /* the heading of the k-th variant */
bool plan_show_reasons(struct buf *b, const struct plan *p);              /* false: it has none */

#endif
