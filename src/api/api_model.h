// SPDX-License-Identifier: Apache-2.0
//
// Private to api/, compiler half: models, databases, targets and options.
#ifndef QUERN_API_MODEL_H
#define QUERN_API_MODEL_H

#include "api/api.h"
#include "model/model.h"
#include "plan/plan.h"
#include "task/task.h"
#include "tune/tune.h"

struct quern_model {
    quern *q;
    struct model *model;
};

/* api_model.c: the options in the compiler's terms; arrays are in the arena. */
bool api_model_opts(struct model_opts *to, quern *q, const struct quern_model_opts *o, struct arena *a, struct err *e);
/* api_model.c: a model whose graph the caller builds between these two; finish ends the call. */
quern_model *api_model_start(quern *q, struct str name);
quern_status api_model_finish(quern_model *m, bool ok, quern_model **out);

/* api_samples.c. The model of a graph; is_f16: floats are f16 in inputs, outputs and between kernels. false: the context has the error, as for all of
   these functions. */
bool api_model_of(quern *q, const struct graph *g, const char *name, bool is_f16, quern_model **m);
/* The model's sizes by its inputs, "H:480,W:640"; nothing if all are fixed. */
void api_print_sizes(struct buf *b, const quern_model *m, quern_tensor *const *in, int n_in);
enum { API_MAX_INPUTS = 64 };
/* Samples of a model's inputs. */
struct api_samples {
    quern_model *m;
    quern_sample_fn *fn;
    void *user;
    int n;                 /* 0: not known yet */
    int n_in;
    quern_tensor *in[API_MAX_INPUTS]; /* the current sample */
};
bool api_samples_open(struct api_samples *s, quern_model *m, quern_sample_fn *fn, void *user, struct err *e);
typedef bool api_sample_fn(void *user, int k, struct err *e);
bool api_samples_each(struct api_samples *s, api_sample_fn *fn, void *user); /* calls fn for each */
/* A graph made of the model's, with the same inputs, as a program that is run on samples. */
struct api_net {
    struct api_samples *s;
    const struct graph *g;
    quern_model *m;
    quern_program *p;
    quern_tensor **out;    /* of the last run */
    int n_out;
};
/* g must outlive it. Closed also after a failure. */
bool api_net_open(struct api_net *n, struct api_samples *s, const struct graph *g, const char *device, int threads, struct arena *a);
bool api_net_run(struct api_net *n); /* on the current sample */
const struct tensor *api_net_value(const struct api_net *n, value_id v); /* of an input or output of g, after a run */
void api_net_close(struct api_net *n);

/* api_gemm.c: measures the points of spaces one by one, and adds them to the file of results. */
struct lab_registry;
bool api_sweep(quern_db *db, const struct lab_registry *spaces, const struct quern_gemm_opts *o, struct quern_gemm_best *best, struct err *e);

struct quern_db {
    quern *q;
    struct db db;
};

/* api_target.c: the target of a program. */
struct api_target {
    struct arena arena;    /* owns the texts of dev and a described device */
    const struct dev_driver *driver;
    struct dev_opts dev;
    struct str isa;        /* "x86-64-v3" if requested, else empty */
    struct caps caps;
    const struct lang *lang;
    struct buf fingerprint, toolchain;
};
/* Selects the device; threads 0: all. */
bool api_target_choose(struct api_target *t, const char *device, int threads, const struct quern_target_opts *o, struct err *e);
/* Then queries its limits, fingerprint and language; the device is closed afterwards. */
bool api_target_ask(struct api_target *t, struct err *e);
/* both */
bool api_target_open(struct api_target *t, const char *device, int threads, const struct quern_target_opts *o, struct err *e);
void api_target_close(struct api_target *t);
/* The requested instruction sets, one per element; none requested: one NULL. */
enum { MAX_ISAS = 16 };
struct api_isas { const char **v; u32 n; };
bool api_isas(struct api_isas *l, const struct quern_target_opts *o, struct arena *a, struct err *e);
/* the options with this instruction set; o may be NULL */
struct quern_target_opts api_target_with(const struct quern_target_opts *o, const char *isa);
struct conformance;
/* The driver's wrong operations, see tune/conformance.h, for the device's own limits: api_target_ask
   has removed them from the target's. */
bool api_target_test(struct conformance *x, struct api_target *t, bool again, struct arena *a, struct err *e);
/* Before schedules are predicted: measures a processor's rates if none are kept, in about a second. */
void api_target_rates(struct api_target *t, quern *q);
bool api_target_open_rated(struct api_target *t, quern *q, const char *device, int threads, const struct quern_target_opts *o, struct err *e); /* api_target_open, then it */
/* Measures t->caps.rates, tune/rates.h; api_target_ask has filled in those that are kept. */
bool api_target_measure(struct api_target *t, struct err *e);

/* api_verify.c: compares results with the reference's, both of all outputs of a model, for these inputs and sizes (NULL: those it is optimised for). At most
   64 outputs. */
bool api_check(quern_model *m, const char *sizes, u64 seed, quern_tensor *const *in, quern_tensor *const *want, quern_tensor *const *got,
               struct quern_check *c, struct err *e);

/* api_keep.c: programs in the user's cache. The key of a program to be compiled; false: not
   cacheable. */
bool api_keep_key(struct hash *key, const quern_model *m, const struct api_target *t, const struct cover_opts *cut);
/* fills in the plan; false: not cached */
bool api_keep_find(quern_program *p, const struct cache *c, struct hash key);
/* for a program that is not cached; NULL: caching is disabled */
struct api_keep *api_keep_new(const struct cache *c, struct hash key);
/* "f32" "tf32" "f16" "bf16" "f64" and other tools' spellings; NULL: *t is unchanged. */
bool api_float_type(const char *name, enum dtype *t, struct err *e);
/* Checks for "vendor", "reference" or NULL, whose meaning depends on the caller. */
bool api_baseline_check(const char *name, struct err *e);

/* api_tune.c: the options of a call: target, and optional transformations of the cover. */
struct api_job {
    struct quern_tune_opts x;
    struct tune_opts t;
    struct api_target target;
    struct cover_opts cover;
};
bool api_job_read(struct api_job *j, quern *q, const struct quern_tune_opts *o, struct err *e);
bool api_job_ask(struct api_job *j, quern *q, struct err *e); /* opens its target with rates, api_target_rates; closed by api_target_close */

/* api_options.c: how a network was populated, for its database; the key is network and device. */
struct str api_options_key(const quern_model *m, const struct api_target *t, struct arena *a);
struct str api_options_print(const quern_model *m, const struct api_target *t, const struct cover_opts *c, struct arena *a);

/* api_verify.c: per output, how far it may be from the reference's result for these inputs (tensor_compare). Sizes are those that the model is
   optimised for; at most 64 outputs. */
bool api_tolerances(quern_model *m, quern_tensor *const *in, quern_tensor *const *want, uint64_t seed, double *rtol, double *atol, struct err *e);

/* api_compile.c: the input of plan/, in the arena. known: the database for costs, may be NULL. */
struct plan_target api_plan_target(const struct api_target *t, struct db *known);
bool api_choose(struct plan_choice *x, quern_model *m, struct db *known, const struct api_target *t, struct cover_opts cut, struct arena *work,
                struct err *e);
/* in_files: the program will not run in this process, and each of its kernels has a binary of its own. Closed also after a failure. */
bool api_compile(quern_model *m, quern_db *db, const struct quern_compile_opts *o, bool in_files, quern_program *p, struct err *e);
/* A program of the model's network in a language whose binaries are its texts, for limits of a target that is only described. In the arena a, with each
   kernel verified. */
bool api_program_text(quern_model *m, const struct lang *l, const struct caps *c, struct plan *p, struct arena *a, struct err *e);
void api_dump(quern *q, const char *stage, struct str text); /* if the options request it */
bool api_wants_dump(const quern *q, const char *stage);

#endif
