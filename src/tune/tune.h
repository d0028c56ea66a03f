// SPDX-License-Identifier: Apache-2.0
//
// tune: from candidates to rows of the database. A candidate is built, verified against the
// reference evaluator, and timed in a child process beside a pinned reference candidate. Every
// sample is committed as it is taken; every failure is a row with its reason.
//
//   db.c          the database: one SQLite file
//   db_more.c     statistics, export, merge, pruning
//   db_open.c     opening: checks and versions
//   db_pages.c    checksums of pages
//   db_wal.c      the write-ahead log
//   db_repair.c   recovery of rows from a damaged database
//   populated.c   the options that networks were populated with
//   build.c       kernel texts to binaries, several at a time
//   cache.c       binaries kept between processes, by content
//   check.c       random inputs, reference results
//   integers.c    inputs with exact sums
//   verify.h      contractions by their definition: numbered contents, statistics of errors
//   tolerance.c   tolerances of kernels and of networks, derived
//   ties.c        tolerances of networks with quantised values
//   trial.c       one candidate in a child process
//   task_search.c the state of the search for one task
//   pool.c        candidates to choose from, an equal share for each family
//   near.c        transfer between similar tasks
//   model.c       predictions corrected by measurements
//   nearest.c     schedules for tasks that were never measured
//   search.c      selection of the next candidates
//   vendor.c      the vendor library's GEMM as a baseline
//   tune.c        the main loop: tasks and time budget
//   batch.c       candidates that are built and measured together
//   final.c       re-measurement of the best candidates
//   report.c      progress and results of a run
//   cost.c        the best known candidate of a task
//   rates.h       microbenchmarks: how fast a device is
#ifndef QUERN_TUNE_H
#define QUERN_TUNE_H

#include "dev/dev.h"
#include "gen/gen.h"
#include "lang/lang.h"

struct sqlite3;

/* db.c. A result is keyed by task, candidate, kernel text, sizes and environment (device, driver,
   threads, toolchain). Results of different environments are never mixed. */

struct db {
    struct sqlite3 *sql;
    struct arena arena;     /* path of the copy */
    bool is_readonly;       /* lookups of missing rows return the id -1 */
    struct str copy;        /* folder of the copy that is read instead of the file; empty: none */
};

/* Creates a missing file; ":memory:" is in memory. A file that cannot be written is opened for
   reading. */
bool db_open(struct db *d, const char *path, struct err *e);
/* leaves the file unchanged, whatever its version */
bool db_open_to_read(struct db *d, const char *path, struct err *e);
void db_close(struct db *d);

enum trial_status {
    TRIAL_NEW,      /* known, measurement incomplete */
    TRIAL_OK,       /* verified and timed */
    TRIAL_SLOW,     /* verified, abandoned because it cannot be the fastest */
    TRIAL_EMIT,     /* rejected by the kernel family or the language */
    TRIAL_BUILD,    /* the compiler failed */
    TRIAL_BUILD_TIMEOUT,
    TRIAL_CRASH,    /* terminated by a signal */
    TRIAL_TIMEOUT,  /* exceeded the time limit */
    TRIAL_WRONG,    /* result outside the tolerance */
    TRIAL_BOUNDS,   /* wrote outside its buffers, or to its inputs */
    TRIAL_LAUNCH,   /* rejected by the device */
    N_TRIAL_STATUS
};
const char *trial_status_name(enum trial_status s);

struct trial_row {
    i64 id;
    struct candidate cand;
    struct str text;         /* the candidate as text */
    enum trial_status status;
    struct str reason;
    u32 n;                   /* number of samples */
    /* Statistics below use only samples during which the reference took its usual time for the
       task: otherwise another load was running, which affects kernels differently. If any of those
       were taken after the candidate had been selected as a finalist, only these are used
       (selection bias). */
    u32 n_final;             /* samples taken as a finalist */
    bool is_odd;             /* no sample met a reference of the usual time: statistics of all samples */
    double median, low, high; /* seconds; 95 % interval of the median */
    double ratio;            /* median of sample / reference sample beside it; 0: timed alone, this is the
                                reference */
    double ratio_low, ratio_high; /* 95 % interval of that median */
    double reference;        /* median of those reference samples */
    i64 alone;               /* id of its last sample without a reference; 0: none */
};

i64 db_env(struct db *d, struct str fingerprint, struct str toolchain, struct err *e);       /* id; 0: error */
i64 db_task(struct db *d, const struct task *t, struct err *e);
/* The sizes of a measurement, as "H=1088 W=1920". */
struct str sizes_text(struct arena *a, const struct symtab *st, const i64 *var, const struct task *t);
/* The id of this candidate's trial, added as TRIAL_NEW if missing. */
i64 db_trial(struct db *d, i64 env, i64 task, struct str sizes, struct str candidate, struct err *e);
bool db_trial_kernel(struct db *d, i64 trial, struct hash text, struct err *e);
bool db_trial_status(struct db *d, i64 trial, enum trial_status s, struct str reason, struct err *e);
struct sample {
    double seconds, base;    /* time of one run; of the reference candidate beside it, 0: none */
    bool is_cold;            /* caches were flushed before; kept for reports only, statistics use warm samples */
    bool is_final;           /* taken after the candidate had been selected as a finalist */
};
bool db_sample(struct db *d, i64 trial, const struct sample *s, struct err *e); /* committed on return */
/* All trials of a task at these sizes in insertion order, with statistics of their samples.
   Candidates of removed families or revisions are omitted. */
bool db_trials(struct db *d, i64 env, i64 task, struct str sizes, struct arena *a, struct trial_row **rows, u32 *n, struct err *e);

/* One trial; its candidate is not parsed and may belong to no family. */
bool db_trial_row(struct db *d, i64 trial, struct arena *a, struct trial_row *row, struct err *e);

struct db_todo { i64 task; struct str text, sizes; };  /* a task and sizes that have trials */
bool db_tasks(struct db *d, i64 env, struct arena *a, struct db_todo **v, u32 *n, struct err *e);

/* Records the options a model was populated with. Different options for the same model are an error
   that names both. */
bool db_options(struct db *d, struct str model, struct str options, struct err *e);
/* Options of one model (empty: unknown model), and of all models ordered by name. */
bool db_get_options(struct db *d, struct str model, struct arena *a, struct str *options, struct err *e);
bool db_all_options(struct db *d, struct arena *a, struct str **options, u32 *n, struct err *e);

/* populated.c: these options as text. */
struct populated {
    struct str device, limits;
    u32 n_threads;          /* 0: all */
    struct str interface;   /* empty: the network's */
    bool is_narrow;         /* values are stored in f16 behind the interface */
    bool no_fusion, no_concat;
    struct str sizes;       /* "H=17,W=31": sizes that it is optimised for */
};
struct str populated_print(const struct populated *p, struct arena *a);
/* The distinct devices that networks were populated for: device, limits and threads. */
bool db_devices(struct db *d, struct arena *a, struct populated **list, u32 *n, struct err *e);

/* db_more.c */
bool db_stats(struct db *d, struct buf *json, struct err *e);
bool db_export(struct db *d, struct buf *csv, struct err *e);    /* one row per sample */
bool db_merge(struct db *d, const char *other, i64 *n_new, struct err *e);
bool db_prune(struct db *d, struct str what, i64 env, i64 *n_gone, struct err *e);

/* db_repair.c: recovers rows of a damaged database into a new file. No other process may have the
   damaged file open. */
struct db_saved {
    i64 n_pages, n_damaged, n_corrected, n_lost_frames; /* pages; damaged ones; those corrected by their
                                                           checksum; lost frames of the log */
    i64 n_tasks, n_trials, n_samples, n_left;           /* recovered; samples whose trial is lost */
};
bool db_repair(const char *in, const char *out, struct db_saved *s, struct err *e);

/* cache.c: files of this user that are kept between processes, sealed with the user's key. */
struct cache {
    struct str folder;        /* empty: the cache is disabled */
    struct seal_key key;
    i64 limit;                /* bytes, when the cache was opened */
};
/* Opens the user's cache of that name ("kernels", "programs"). An unusable folder (writable by
   others) yields a warning and a disabled cache. */
void cache_open(struct cache *c, const char *name, struct arena *a, const struct log *l);
/* Maps the file of a key; content excludes the seal. false: missing, or not written by this user. */
bool cache_map(const struct cache *c, struct hash key, const char *suffix, struct os_file *f, struct str *content);
/* concatenates n pieces */
bool cache_write(const struct cache *c, struct hash key, const char *suffix, const struct str *piece, i64 n);
/* All caches together. */
void cache_trim(void); /* removes the least recently used files until the rest fits the limit */
struct cache_use { struct str folder; i64 n, bytes, limit; };
bool cache_look(struct cache_use *u, struct arena *a, struct err *e);
/* persistent, for all processes of this user; 0: disables the cache */
bool cache_set_limit(i64 bytes, struct err *e);
bool cache_clear(struct err *e);
/* Compiled kernels. */
/* false: missing; c may be NULL */
bool cache_get(const struct cache *c, struct hash key, struct arena *a, struct str *code);
void cache_put(const struct cache *c, struct hash key, struct str code);
/* The same for a kernel in a program shared with other kernels: the program is stored once. */
bool cache_get_part(const struct cache *c, struct hash key, struct arena *a, struct str *program);
void cache_put_part(const struct cache *c, struct hash key, struct str program);

/* build.c */
struct builder {
    const struct cache *cache; /* NULL: none */
    const struct lang *lang;
    const struct caps *caps;
    struct str toolchain;
    double timeout;           /* seconds for one build, 0: 60 */
    u32 n_parallel;           /* processes, 0: one per processor */
    bool anew;                /* ignore cached results */
    bool may_join;            /* a program may contain several kernels if the language can join texts. Faster
                                 for many kernels, but the code depends on the other kernels: for trials, not
                                 for results that are kept */
    const struct stop *stop;  /* cancels waiting for builds: ERR_STOPPED; NULL: never */
};
struct built {
    bool ok, timed_out;
    bool is_part;             /* code is a program that contains other kernels, too */
    bool is_system;           /* failed for a reason unrelated to the text */
    enum err_code why;        /* ERR_UNSUPPORTED: the target lacks a feature */
    struct str code, message;
};
/* Texts being built by n_now processes at once (0: the builder's maximum). Further processes up to
   the maximum start when the results are waited for. b and text must outlive the building. */
enum { MAX_BUILD_JOBS = 64 };
struct build_job {
    const struct building *of;
    u32 next; const u32 *then; /* current text, and the one after it */
    struct os_child child;
    bool is_running, is_wary;  /* wary: a program of its texts crashed the compiler process, so the rest are
                                  built one by one */
    struct str program;        /* contains the last result */
};
struct building {
    const struct builder *b;
    const struct str *text; u32 n;
    struct built *out;        /* complete after build_finish */
    struct build_job job[MAX_BUILD_JOBS]; u32 n_jobs;
};
/* Starts building. g must not move until build_finish or build_abandon. false: the database or the
   system failed (no space for temporary files), or the run was stopped. */
bool build_start(struct building *g, const struct builder *b, const struct str *text, u32 n, u32 n_now, struct arena *a, struct err *e);
bool build_finish(struct building *g, struct arena *a, struct err *e); /* waits */
void build_abandon(struct building *g);
/* Builds all texts (cached ones are looked up) into out[0..n). false: the database or the system
   failed. */
bool build_all(const struct builder *b, const struct str *text, u32 n, struct built *out, struct arena *a, struct err *e);
/* Splits the program that contains text i and rebuilds its halves. false: text i is alone in its
   program. */
bool build_halve(const struct builder *b, const struct str *text, struct built *out, u32 n, u32 i, struct arena *a, struct err *e);
struct hash build_key(const struct builder *b, struct str text);

/* check.c: a check case: a task's inputs and reference outputs for one set of sizes. */
struct check;
/* Replaces check_output, in the child process that runs the kernel. */
struct comparator {
    /* output k, at its position in the buffer; false: wrong */
    bool (*compare)(const struct check *c, u32 k, const void *got, struct buf *why);
    void *found; i64 n_found;  /* findings of compare, copied back to the caller's process; NULL: none */
};
/* Outputs of a task in which values near ties are rounded to integers (ties.c): what element i of output k may be lies between want[k], side[0][k]
   and side[1][k] at i, or is off by spread[k]. All NULL: the task rounds nothing. */
struct ties {
    struct tensor **side[2];
    double *spread;
};
struct check {
    struct arena arena;        /* its own */
    const struct task *task;
    i64 *var;
    struct tensor *value;      /* per value of the task: content of inputs and constants; data NULL: another
                                  value */
    struct tensor **want;      /* per output, row-major; NULL: not computed (timing only) */
    i64 *points; i64 n_points; /* only these elements of the outputs are known; 0: all */
    struct ties ties;
    double rtol, atol, least;  /* see check_tolerance, check_least */
    bool are_integers;         /* inputs are integers: outputs differ by at most off, those beyond exact_up_to
                                  by rtol in addition */
    double off, exact_up_to;
    const struct comparator *comparator; /* NULL: check_output; otherwise want may have no content */
    bool in_place;             /* runs in the memory of the previous check, if there is one: only inputs are
                                  written before */
    bool twice;                /* a second run in the same memory must produce the same bytes */
};
/* Seeded signed random inputs, with difficult values (ties, zeros of both signs) for pointwise operators; the reference is by graph_eval,
   at sampled points above max_reference_flops. */
bool check_init(struct check *c, const struct task *t, const i64 *var, u64 seed, bool with_reference, struct err *e);
/* For a device of these limits: inputs of single operators include infinities and NaN if it supports them. NULL: any device. */
bool check_init_for(struct check *c, const struct task *t, const i64 *var, u64 seed, bool with_reference, const struct caps *caps, struct err *e);
/* integers.c: the largest integer for which all sums of the task are exact; 0: none, or the task does not qualify. */
i64 check_largest_integer(const struct task *t, const i64 *var);
/* Inputs are integers up to most: errors are detected whatever the number of terms. */
bool check_init_integers(struct check *c, const struct task *t, const i64 *var, u64 seed, i64 most, struct err *e);
void check_expect_integers(struct check *c); /* outputs may only be off by less than the distance to another integer */
void check_fill_integers(struct tensor *t, i64 most, struct rng *r); /* of both signs */
double check_exact_up_to(enum dtype t, bool tf32);                   /* the type represents all integers up to it */
double check_unit(enum dtype t);                                     /* half a unit in the last place of 1 */
void check_release(struct check *c);
/* whether all extents of all values are known at these sizes and positive */
bool check_positive(const struct task *t, const i64 *var);
/* Compares output k, at its position in the buffer. false: wrong, see why. */
bool check_output(const struct check *c, u32 k, const void *got, struct buf *why);
/* The distance of x to its neighbours among numbers of the type, a unit in its last place: 1 for integers. */
double check_last_place(enum dtype t, double x);
/* converts n elements with a stride */
void read_elems(double *to, enum dtype t, const void *p, i64 at, i64 stride, i64 n);
/* The position of a value of a task in its buffer, for known sizes. */
struct place {
    enum layout layout;
    u32 axis; i64 from, whole; /* a part of a larger value: from is its offset on an axis of whole elements;
                                  whole 0: not a part */
    i64 count;                 /* elements of the buffer */
};
/* false: the sizes cannot be computed */
bool place_of(struct place *p, const struct graph *g, value_id v, const i64 *var);
/* the offset in the buffer of a row-major element */
i64 place_flat(const struct place *p, const struct tensor *t, i64 flat);
/* The number of elements, at least 1, from this one on in row-major order that have a constant stride in the buffer, and that stride. */
i64 place_run(const struct place *p, const struct tensor *t, i64 flat, i64 *stride);
/* Stores t's elements at their positions in the buffer; padding of blocks and other parts are unchanged. */
void place_store(const struct place *p, const struct tensor *t, void *buffer);
/* The first element of the buffer that belongs to another part and contains another byte than this; -1: none. t: the part's type, sizes. */
i64 place_touched(const struct place *p, const struct tensor *t, const void *buffer, u8 byte);

/* tolerance.c */
struct numerics { /* of a sorted graph: facts that errors of its results follow from */
    enum dtype type;   /* the coarsest float type between its inputs and outputs */
    double terms;      /* of the longest sum */
    double steps;      /* nodes that compute on the longest way from an input to an output */
    double roundings;  /* of their results, those of 16-bit types: each may be rounded to its type */
};
struct numerics graph_numerics(const struct graph *g, enum dtype out, const i64 *var); /* out: type of an output */
/* By how much results of a kernel may differ from the reference's: rtol of the reference, atol of its largest magnitude. Integers: not at all. */
void check_tolerance(const struct numerics *x, double *rtol, double *atol);
double check_least(enum dtype t); /* the smallest normal number: rtol of lesser ones is that of it, as distances between these are the same */
/* Likewise of a whole network, whose layers' sums follow each other. */
struct numerics network_numerics(const struct graph *g, enum dtype out, const i64 *var);
void network_tolerance(const struct numerics *x, double *rtol, double *atol);

/* ties.c */
/* How far outputs of a network with quantised values may be from the reference because values near ties are rounded either way. */
struct rounding {
    const struct graph *g;           /* the network, evaluated three times */
    const struct graph *primitives;  /* the same after the passes */
    struct tensor *const *in;        /* its inputs */
    const struct tensor *const *want; /* its outputs by the reference */
    const i64 *var;                  /* sizes, by symbol of primitives */
    u64 seed;
};
/* spread: per output, the difference that is exceeded with a probability of about 1e-6; 0 in networks without roundings. */
bool network_rounding(const struct rounding *r, double *spread, struct err *e);
/* Of a task, whose outputs for these inputs are `want`; memory from a. */
bool task_ties(struct ties *t, const struct graph *g, struct tensor *const *in, struct tensor *const *want, const struct graph_eval_opts *o,
               struct arena *a, struct err *e);

/* trial.c */
struct subject {               /* a loaded or loadable kernel */
    struct kernel kernel;
    struct str code;
    const struct dev_gemm *gemm; /* run by the vendor library instead of code; both NULL: code */
    const struct dev_conv *conv;       /* likewise */
};
enum { LIBRARY_OPERANDS = 3 };
/* Sets the operands of a library's GEMM or convolution, allocated in the arena: two inputs and one
   output, one grid. */
void subject_take_operands(struct subject *s, const value_id v[LIBRARY_OPERANDS], struct arena *a);
struct trial_opts {
    const struct dev_driver *driver;
    struct dev_opts dev;
    double timeout;            /* seconds for one run */
    u32 max_samples;
    const struct subject *base; /* timed beside the candidate; NULL: none */
    bool cold;                 /* the first sample is taken with flushed caches */
    bool same_constants;       /* constants stay at one address; false: large ones have copies, so each run
                                  finds them cold */
    double lost;               /* a long enough run that takes more than this multiple of the base's time shows
                                  that the candidate cannot win; 0: never */
    double deadline;           /* os_now time of the end: no verdict (TRIAL_NEW) afterwards; 0: none */
    const struct stop *stop;   /* cancels the trial without a verdict; NULL: never */
};
/* Called after each sample, n counting the warm ones. false ends the trial (it cannot win, or its
   time is known). n restarts at 1 if the trial is repeated in a new child. */
typedef bool trial_sample_fn(void *user, const struct sample *s, u32 n);
/* Candidates measured one after another in a child process that sees everything here as of its
   start. Any failure ends the child; the next candidate gets a new one. On in-process devices the
   failed candidate is repeated in the new child unless it was the first in the old one, because its
   predecessors may have corrupted its memory. There the child loads the code of all subjects from
   the first one on and then enters a sandbox (os_sandbox_enter). */
struct trial_session {
    const struct subject *subject; u32 n_subjects; /* subjects without code are never measured */
    const struct check *const *checks; /* every candidate is verified on each */
    u32 n_checks;
    const struct check *timing;        /* then timed on this one; NULL: not timed */
    const struct trial_opts *o;
    struct os_child child;
    bool is_running, is_ready; /* ready: all code is loaded */
    u32 first, end;            /* subjects whose code the child has loaded */
};
/* Status of subject k, with the reason of a failure. TRIAL_NEW: the deadline passed first. */
enum trial_status trial_next(struct trial_session *t, u32 k, trial_sample_fn *fn, void *user, struct buf *reason);
void trial_close(struct trial_session *t);
/* A session with a single subject. */
enum trial_status trial_run(const struct subject *s, const struct check *const *checks, u32 n_checks, const struct check *timing,
                            const struct trial_opts *o, trial_sample_fn *fn, void *user, struct buf *reason);

/* stats.c */
struct stats { double median, low, high; };
/* sorts v; low, high: 95 % interval of the median (order statistics) */
struct stats stats_of(double *v, u32 n);

/* final.c */
/* ratios of the samples to the reference beside them */
struct finalist { struct stats ratio; u32 n; bool is_out; };
/* Eliminates finalists that have `least` samples or more and are significantly slower than the
   leader or the reference. false: decided, i.e. none is left, or a single one that is significantly
   faster than the reference. */
bool finals_are_open(struct finalist *f, u32 n, u32 least);

/* tune.c */
struct tune_progress {
    i64 done, total, failures; /* trials; total < 0: unknown */
    double best;               /* speed-up of the sum over tasks relative to the default candidates */
    double seconds_left;
    struct str what;
};
/* Candidates of one task in the caller's order; false: end. */
struct tune_source { bool (*next)(void *user, struct candidate *c); void *user; };
/* The vendor baseline: the task's GEMM by the device's own library, verified and timed like a
   candidate beside the reference and stored as a trial. It is never selected. Only for runs of one
   task, which is that GEMM. */
struct tune_vendor {
    struct str name;           /* as returned by dev_ask_gemm */
    struct dev_gemm gemm;
    value_id a, b;             /* the operands' values in the task */
};
struct tune_opts {
    const struct dev_driver *driver;
    struct dev_opts dev;
    double timeout;            /* seconds, 0: until the search is exhausted. If nothing is known, one candidate
                                  is measured in any case */
    u32 min_samples;           /* 0: 10 */
    u32 max_candidates;        /* per task; 0: 256 */
    const struct tune_vendor *vendor; /* speed-ups are relative to it once it is verified; NULL: relative to the
                                       reference */
    double stop_at_speedup;    /* 0: never */
    double stop_at_seconds;    /* stop when the sum of the tasks' best times is at most this; 0: never */
    const struct tune_source *source; /* of candidates, replacing the search; already measured ones are skipped.
                                         NULL: search */
    double relative_error;     /* stop sampling after three or more samples within this relative range; 0: take
                                  min_samples */
    u64 seed;
    bool add_candidates;       /* search for candidates; false: only those in the database */
    bool measure;              /* false: only populate the database */
    const struct stop *stop;   /* ends the run; measurements so far are kept and the result is valid; NULL: never */
    void (*progress)(void *user, const struct tune_progress *p);
    void (*event)(void *user, struct str json); /* one completed trial, or drift */
    const struct log *log;
    void *user;
};
struct tune_task {
    const struct task *task;
    const i64 *var;
    double weight;             /* number of uses by the model; 0: an alternative that is not selected yet */
};
struct tune_result { i64 memory /* bytes held at the end of the run for data about candidates */; bool was_stopped;
                     i64 n_built /* by populate */, n_measured, n_ok, n_failed, n_by_status[N_TRIAL_STATUS]; double speedup, drift, others;
                     enum trial_status vendor; struct buf vendor_reason; /* status of the vendor baseline, TRIAL_NEW: not measured; the caller releases the reason */ };
/* Tunes n tasks. ERR_STOPPED: stopped before anything was known. ERR_NOTHING: nothing was measured
   and nothing was known, with counted reasons. others: share of the processors used by other
   processes; reported above a tenth. drift: time of the base candidates at the end of the run over
   that at its start; reported when it deviates from 1 by more than a tenth. */
bool tune_run(struct db *d, const struct tune_task *t, u32 n, const struct tune_opts *o, struct tune_result *r, struct err *e);
/* Seconds for the next of n runs, of equal shares of the time until `end` (os_now). */
double tune_share(double end, u32 n);
/* The vendor baseline's row of a task, added as TRIAL_NEW if missing. */
bool tune_vendor_row(struct db *d, i64 env, const struct task *t, const i64 *var, struct str name, struct arena *a, struct trial_row *row,
                    struct err *e);
/* Measures all tasks of the database (quern bench). */
bool tune_bench(struct db *d, const struct tune_opts *o, struct tune_result *r, struct err *e);

/* cost.c: queries about a task's results. */
/* Number of rows, in order, up to the first one with at most this ratio to the reference candidate;
   0: none. */
u32 trials_to(const struct trial_row *rows, u32 n, double ratio);
double best_ratio(const struct trial_row *rows, u32 n); /* 0: none was verified and timed */
/* Trials until the search came within 5 % of the best candidate it found. */
struct reach { u32 n_trials, to_near; }; /* 0: nothing was verified and timed */
bool tune_reach(struct db *d, i64 env, i64 task, struct str sizes, struct reach *r, struct err *e);
/* of tasks with at least two trials; median and most of to_near */
struct reaches { u32 n_tasks, n_trials; double median; u32 most; };
struct reaches reaches_of(const struct reach *r, u32 n);
/* The row that programs use; NULL: none was verified and timed. The reference (if several, the
   latest one) unless another is significantly faster: the upper end of the 95 % interval of its
   ratio is below 1. Of several such rows, the one with the lowest upper end. If finalists were
   re-measured, only they count, and never odd ones. Depends on the rows alone. */
const struct trial_row *tune_choice(const struct trial_row *rows, u32 n);
/* The usual time of a reference: the lower quartile of its medians beside trials (zeros are
   ignored). Up to half of them may be from a slowed machine, but hardly any from a faster one. */
double tune_typical(const double *median, u32 n);
bool tune_is_typical(double reference, double typical); /* at most a quarter longer; true if unknown */
/* Median over the reference times of all trials that are not odd (of finalists only, if there are
   any); 0: unknown. */
double tune_reference_seconds(const struct trial_row *rows, u32 n);
/* A candidate's time corrected for the machine's load: its ratio to the reference times the
   reference's time. */
double tune_row_seconds(const struct trial_row *r, double reference);
struct task_known { bool measured; struct candidate best; double seconds; u32 n_trials; };
bool tune_best(struct db *d, i64 env, const struct task *t, const i64 *var, struct task_known *k, struct err *e);

/* nearest.c: schedules for tasks that were never measured. */
/* the tasks of a database; their candidates are read on demand */
struct known { struct db *d; i64 env; struct arena *a; struct known_task *v; u32 n; };
bool known_load(struct known *k, struct db *d, i64 env, struct arena *a, struct err *e);
struct known_for {
    const struct task *task; const i64 *var; const struct caps *caps;
    double (*distance)(void *user, const struct task *t); /* INFINITY: excluded. NULL: the default distance
                                                             between tasks of the same operator and rank, see
                                                             below */
    void *user;
};
struct known_found {
    const struct tune_task *task;  /* the task it was measured for */
    struct candidate cand, base;   /* base: the candidate timed beside it; gen NULL: unknown */
    double seconds, ratio;         /* measured time, and its ratio to the base's */
    double distance;               /* the caller's distance; by default the sum of |log2| of the ratios of
                                      extents of result and operands, plus penalties for other differences */
};
/* The fastest candidate, legal here, of the nearest task with the same operator. false without an
   error: none. */
bool known_nearest(const struct known *k, const struct known_for *f, struct known_found *out, struct err *e);
/* Whether it is expected to be faster here than `now`: the measured ratio there, scaled by the
   change of the predicted ratio. */
bool known_improves(const struct known_found *found, const struct known_for *f, const struct candidate *now);

#endif
