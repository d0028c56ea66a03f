// SPDX-License-Identifier: Apache-2.0
//
// tune: candidates become facts. Built, verified against the reference evaluator, timed against a pinned reference candidate in a
// child process, and remembered: every sample is committed as it is taken, every failure is a row with its reason.
//
//   db.c       the database: one SQLite file        db_more.c  statistics, export, merge, prune
//   db_open.c  opening: checks, versions            db_pages.c checksums of pages      db_wal.c  the write-ahead log
//   db_repair.c what can be saved of a damaged one
//   build.c    texts to binaries, several at a time
//   cache.c    binaries from one process to the next, by content
//   check.c    random inputs, reference results, tolerances      integers.c inputs with which sums are exact
//   trial.c    one candidate in a child process
//   contest.c  tasks with what is known of them
//   pool.c     the candidates to choose from, a fair share for each family
//   near.c     what other tasks tell         model.c    predictions corrected by what was measured
//   nearest.c  what is fast for the nearest task that was measured
//   search.c   which candidate to try next          rival.c    the device's own library, beside
//   tune.c     the loop: tasks, budget       heat.c  candidates built and measured together       final.c    what looked best is compared again
//   report.c   progress and results of a run
//   cost.c     what the database knows of a task, and which candidate it says to take
#ifndef QUERN_TUNE_H
#define QUERN_TUNE_H

#include "dev/dev.h"
#include "gen/gen.h"
#include "lang/lang.h"

struct sqlite3;

/* db.c. A row of a result is keyed by task, candidate, kernel text, sizes and environment (device, driver, threads, toolchain);
   results of different environments never mix. */

struct db {
    struct sqlite3 *sql;
    struct arena arena;     /* name of the copy */
    bool is_readonly;       /* what is not there has the id -1 */
    struct str copy;        /* folder with the copy that is read in place of the file; empty: none */
};

/* Created when missing; ":memory:". Where the file cannot be written it is read. */
bool db_open(struct db *d, const char *path, struct err *e);
bool db_open_to_read(struct db *d, const char *path, struct err *e); /* the file stays as it is, whatever its version */
void db_close(struct db *d);

enum trial_status {
    TRIAL_NEW,      /* known, not measured to the end */
    TRIAL_OK,       /* verified and timed */
    TRIAL_SLOW,     /* verified, given up because it cannot win */
    TRIAL_EMIT,     /* the generator or the language refused */
    TRIAL_BUILD,    /* the compiler failed */
    TRIAL_BUILD_TIMEOUT,
    TRIAL_CRASH,    /* ended by a signal */
    TRIAL_TIMEOUT,  /* did not end in time */
    TRIAL_WRONG,    /* result outside the tolerance */
    TRIAL_BOUNDS,   /* wrote outside its buffers or to its inputs */
    TRIAL_LAUNCH,   /* the device refused */
    N_TRIAL_STATUS
};
const char *trial_status_name(enum trial_status s);

struct trial_row {
    i64 id;
    struct candidate cand;
    struct str text;         /* of the candidate */
    enum trial_status status;
    struct str reason;
    u32 n;                   /* samples */
    /* What follows is of samples that were taken while the reference beside them took no longer than usual for the task: else the machine
       did something else, too, which meets kernels differently. Of these, where there are any, of those that were taken after the candidate
       had been picked to be compared again: what it was picked for may have been luck. */
    u32 n_final;             /* of the latter */
    bool is_odd;             /* there are none of the former: of all samples */
    double median, low, high; /* seconds; 95 % interval of the median */
    double ratio;            /* median of sample / reference sample taken beside it; 0: timed alone, it is the reference */
    double ratio_low, ratio_high; /* 95 % interval of that median */
    double reference;        /* median of those reference samples */
    i64 alone;               /* id of its last sample without a reference; 0: it has none */
};

i64 db_env(struct db *d, struct str fingerprint, struct str toolchain, struct err *e);       /* id; 0: failed */
i64 db_task(struct db *d, const struct task *t, struct err *e);
/* What a task is measured at: sizes as "H=1088 W=1920". */
struct str sizes_text(struct arena *a, const struct symtab *st, const i64 *var, const struct task *t);
/* The trial of this candidate, added as TRIAL_NEW when missing. */
i64 db_trial(struct db *d, i64 env, i64 task, struct str sizes, struct str candidate, struct err *e);
bool db_trial_kernel(struct db *d, i64 trial, struct hash text, struct err *e);
bool db_trial_status(struct db *d, i64 trial, enum trial_status s, struct str reason, struct err *e);
struct sample {
    double seconds, base;    /* of one run; of the reference candidate beside it, 0: none */
    bool is_cold;            /* caches were emptied before; kept for reports, statistics are of warm samples */
    bool is_final;           /* taken after the candidate had been picked, so not what it was picked for */
};
bool db_sample(struct db *d, i64 trial, const struct sample *s, struct err *e); /* committed on return */
/* All trials of a task at these sizes, in order of adding, with statistics of their samples. Candidates of generators or revisions
   that are no longer there are left out. */
bool db_trials(struct db *d, i64 env, i64 task, struct str sizes, struct arena *a, struct trial_row **rows, u32 *n, struct err *e);

/* One trial; its candidate may be of no generator and is not parsed. */
bool db_trial_row(struct db *d, i64 trial, struct arena *a, struct trial_row *row, struct err *e);

struct db_todo { i64 task; struct str text, sizes; };  /* a task and sizes that have trials */
bool db_tasks(struct db *d, i64 env, struct arena *a, struct db_todo **v, u32 *n, struct err *e);

/* The options a model was populated with: a second set that differs is an error that names both. */
bool db_options(struct db *d, struct str model, struct str options, struct err *e);
/* Those of a model, empty when it is not there; and of all models, in order of their names. */
bool db_get_options(struct db *d, struct str model, struct arena *a, struct str *options, struct err *e);
bool db_all_options(struct db *d, struct arena *a, struct str **options, u32 *n, struct err *e);

/* db_more.c */
bool db_stats(struct db *d, struct buf *json, struct err *e);
bool db_export(struct db *d, struct buf *csv, struct err *e);    /* one row per sample */
bool db_merge(struct db *d, const char *other, i64 *n_new, struct err *e);
bool db_prune(struct db *d, struct str what, i64 env, i64 *n_gone, struct err *e);

/* db_repair.c: what can be saved of a damaged database, into a new file. Nothing else may have the damaged one open. */
struct db_saved {
    i64 n_pages, n_damaged, n_corrected, n_lost_frames; /* pages; of these damaged; of those put right by their checksum; frames of the log */
    i64 n_tasks, n_trials, n_samples, n_left;           /* saved; samples that were found, but not what they are of */
};
bool db_repair(const char *in, const char *out, struct db_saved *s, struct err *e);

/* cache.c: what is kept in files of this user's from one process to the next, sealed with this user's key. */
struct cache {
    struct str folder;        /* empty: nothing is kept */
    struct seal_key key;
    i64 limit;                /* bytes, when it was opened */
};
/* The user's own of that name ("kernels", "programs"); what stands in the way (a folder that others may write into) is a warning, and
   nothing is kept. */
void cache_open(struct cache *c, const char *name, struct arena *a, const struct log *l);
/* Maps the file of a key; content without its seal. false: it is not there, or not as this user wrote it. */
bool cache_map(const struct cache *c, struct hash key, const char *suffix, struct os_file *f, struct str *content);
bool cache_write(const struct cache *c, struct hash key, const char *suffix, const struct str *piece, i64 n); /* of n pieces */
/* The whole cache, of all names. */
void cache_trim(void); /* drops what was used longest ago until the rest fits the limit */
struct cache_use { struct str folder; i64 n, bytes, limit; };
bool cache_look(struct cache_use *u, struct arena *a, struct err *e);
bool cache_set_limit(i64 bytes, struct err *e); /* lasting, for all processes of this user; 0: nothing is kept */
bool cache_clear(struct err *e);
/* Compiled kernels. */
bool cache_get(const struct cache *c, struct hash key, struct arena *a, struct str *code); /* false: not there; c may be NULL */
void cache_put(const struct cache *c, struct hash key, struct str code);
/* The same for a kernel in a program that has others, too: the program is kept once. */
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
    bool anew;                /* whatever the cache has */
    bool may_join;            /* code may have other kernels, too, where the language can join texts: many are built sooner, but what is
                                 built depends on what else was. For what is tried, not for what is kept */
    const struct stop *stop;  /* nobody waits for builds any more once it is set: ERR_STOPPED; NULL: never */
};
struct built {
    bool ok, timed_out;
    bool is_part;             /* of a program, which code is */
    bool is_system;           /* not ok, and not the text's fault */
    enum err_code why;        /* ERR_UNSUPPORTED: the target lacks something */
    struct str code, message;
};
/* Texts that are being built, by n_now processes at once (0: as many as the builder allows); the others that it allows join in when
   the results are waited for. b and text are kept until the end. */
enum { MAX_BUILD_JOBS = 64 };
struct build_job {
    const struct building *of;
    u32 next; const u32 *then; /* text, and the one behind */
    struct os_child child;
    bool is_running, is_wary;  /* wary: a program of its texts brought a process down, the others are built one by one */
    struct str program;        /* that the last result is part of */
};
struct building {
    const struct builder *b;
    const struct str *text; u32 n;
    struct built *out;        /* complete after build_finish */
    struct build_job job[MAX_BUILD_JOBS]; u32 n_jobs;
};
/* It must not move until build_finish or build_abandon. false only when the database or the system failed (no room for temporary files), or it
   is to stop. */
bool build_start(struct building *g, const struct builder *b, const struct str *text, u32 n, u32 n_now, struct arena *a, struct err *e);
bool build_finish(struct building *g, struct arena *a, struct err *e); /* waits */
void build_abandon(struct building *g);
/* Builds each text (cached ones are looked up); results in out[0..n). false only when the database or the system failed. */
bool build_all(const struct builder *b, const struct str *text, u32 n, struct built *out, struct arena *a, struct err *e);
/* Text i is in a program with others of the n: that of each half of them is built instead. False: it is alone in its program. */
bool build_halve(const struct builder *b, const struct str *text, struct built *out, u32 n, u32 i, struct arena *a, struct err *e);
struct hash build_key(const struct builder *b, struct str text);

/* check.c: a task's inputs and what must come out, for one set of sizes. */
struct check;
/* Looks at outputs instead of check_output, in the child process that runs the kernel. */
struct judge {
    bool (*look)(const struct check *c, u32 k, const void *got, struct buf *why); /* output k, in its place; false: wrong */
    void *found; i64 n_found;  /* bytes that look leaves here come back to the same place of the caller's memory */
};
struct check {
    struct arena arena;        /* its own */
    const struct task *task;
    i64 *var;
    struct tensor *value;      /* per value of the task: content of inputs and constants; data NULL: not one of them */
    struct tensor **want;      /* per output, row-major; NULL: not computed (timing only) */
    i64 *points; i64 n_points; /* only these elements of the outputs are known; 0: all */
    double rtol, atol;
    bool are_integers;         /* content is; then outputs are off by no more than off, those beyond exact_up_to by rtol, too */
    double off, exact_up_to;
    const struct judge *judge; /* NULL: check_output; else want may have no content */
    bool in_place;             /* runs in the memory that the check before has left, where there is one: nothing but inputs is written before */
    bool twice;                /* a second run in the same memory must leave the same bytes */
};
/* Seeded signed random content, with hard values of pointwise operators (ties, zeros of both signs), in memory of its own; reference by graph_eval, by sampled points above max_flops. */
bool check_init(struct check *c, const struct task *t, const i64 *var, u64 seed, bool with_reference, struct err *e);
/* For a device of these limits: single operators meet infinities and NaN, too, where it keeps them. NULL: any device. */
bool check_init_for(struct check *c, const struct task *t, const i64 *var, u64 seed, bool with_reference, const struct caps *caps, struct err *e);
/* integers.c: the largest integer of contents with which all sums of the task are exact; 0: there is none, or it does other things than sums. */
i64 check_largest_integer(const struct task *t, const i64 *var);
/* Content is integers up to most: outputs are right or wrong, whatever the number of terms. */
bool check_init_integers(struct check *c, const struct task *t, const i64 *var, u64 seed, i64 most, struct err *e);
void check_fill_integers(struct tensor *t, i64 most, struct rng *r); /* of both signs */
double check_exact_up_to(enum dtype t, bool tf32);                   /* a type holds all integers up to it */
double check_unit(enum dtype t);                                     /* half a unit in the last place of 1 */
void check_release(struct check *c);
bool check_positive(const struct task *t, const i64 *var); /* all extents of all values are known at such sizes, and none is 0 */
/* Compares output k, as the kernel left it in its place. true: fine; else why. */
bool check_output(const struct check *c, u32 k, const void *got, struct buf *why);
/* Tolerance for a float type and a reduction of that many terms: rtol relative to the reference, atol to its magnitude. */
void check_tolerance(enum dtype t, double depth, double *rtol, double *atol);
/* The distance of x to its neighbours among numbers of the type, a unit in its last place: 1 for integers. */
double check_last_place(enum dtype t, double x);
void read_elems(double *to, enum dtype t, const void *p, i64 at, i64 stride, i64 n); /* n elements at a distance, as numbers */
enum dtype graph_precision(const struct graph *g, enum dtype t); /* the coarsest float type on the way to an output of type t */
/* How a value of a task lies in its buffer, sizes known. */
struct place {
    enum layout layout;
    u32 axis; i64 from, whole; /* a part of a larger value: from .. of an axis of that many elements; whole 0: it is all */
    i64 count;                 /* elements of the buffer */
};
bool place_of(struct place *p, const struct graph *g, value_id v, const i64 *var); /* false: sizes cannot be worked out */
i64 place_flat(const struct place *p, const struct tensor *t, i64 flat); /* where a row-major element lies in the buffer */
/* Elements from this one on, in row-major order, that lie at one distance from each other, and that distance; at least one. */
i64 place_run(const struct place *p, const struct tensor *t, i64 flat, i64 *stride);
/* t's elements to where they lie in the buffer; others, of blocks or other parts, stay as they are. */
void place_store(const struct place *p, const struct tensor *t, void *buffer);
/* The first element of the buffer that belongs to other parts and has a byte other than this one; -1: none. t: the part's type, sizes. */
i64 place_touched(const struct place *p, const struct tensor *t, const void *buffer, u8 byte);
double graph_depth(const struct graph *g, const i64 *var);  /* longest reduction on a path, terms */

/* trial.c */
struct subject {               /* a kernel ready to run */
    struct kernel kernel;
    struct str code;
    const struct dev_product *product; /* instead of code: by the device's own library; both NULL: code */
    const struct dev_conv *conv;       /* likewise */
};
enum { LIBRARY_OPERANDS = 3 };
/* The buffers of a library's product or convolution: two inputs and what is written, one grid; in the arena. */
void subject_take_operands(struct subject *s, const value_id v[LIBRARY_OPERANDS], struct arena *a);
struct trial_opts {
    const struct dev_driver *driver;
    struct dev_opts dev;
    double timeout;            /* seconds for one run */
    u32 max_samples;
    const struct subject *base; /* timed beside it; NULL: none */
    bool cold;                 /* the first sample is one with empty caches */
    bool same_constants;       /* constants stay in one place; false: of large ones there are copies, which a run finds cold */
    double lost;               /* a run of more than so many times base's, and long enough, shows that it cannot win; 0: no run does */
    double deadline;           /* by os_now: no verdict (TRIAL_NEW) when it comes first; 0: none */
    const struct stop *stop;   /* no verdict when it is set; NULL: it never is */
};
/* Called after each sample, the n-th warm one; false ends the trial (it cannot win, or enough is known). n is 1 again where the trial
   begins again in a new child. */
typedef bool trial_sample_fn(void *user, const struct sample *s, u32 n);
/* Candidates measured one after another in a child process, which sees everything here as it is when it starts. A failure of any
   kind ends it and the next candidate gets a new one; on devices that live in the process the one that failed is tried in it, unless
   it was the first in its child: what those before it did to their memory must not be its fault. There a child loads the code of all
   subjects from the one that it begins with on, then may do no more than compute (os_sandbox_enter). */
struct trial_session {
    const struct subject *subject; u32 n_subjects; /* those without code are never asked for */
    const struct check *const *checks; /* a candidate is verified on each */
    u32 n_checks;
    const struct check *timing;        /* then timed on this; NULL: not at all */
    const struct trial_opts *o;
    struct os_child child;
    bool is_running, is_ready; /* ready: all is loaded */
    u32 first, end;            /* subjects whose code the child has */
};
/* Status of subject k; reason says why (empty when fine). TRIAL_NEW: the deadline came first. */
enum trial_status trial_next(struct trial_session *t, u32 k, trial_sample_fn *fn, void *user, struct buf *reason);
void trial_close(struct trial_session *t);
/* A session of one. */
enum trial_status trial_run(const struct subject *s, const struct check *const *checks, u32 n_checks, const struct check *timing,
                            const struct trial_opts *o, trial_sample_fn *fn, void *user, struct buf *reason);

/* stats.c */
struct stats { double median, low, high; };
struct stats stats_of(double *v, u32 n);                   /* sorts v; low, high: 95 % interval of the median (order statistics) */

/* final.c */
struct finalist { struct stats ratio; u32 n; bool is_out; }; /* samples' ratios to the reference beside them, and how many */
/* Who has at least so many samples and is shown to be slower than the leader or than the reference is out. false: decided, because nobody
   is left, or one that is shown to be faster than the reference. */
bool finals_are_open(struct finalist *f, u32 n, u32 least);

/* tune.c */
struct tune_progress {
    i64 done, total, failures; /* trials; total < 0: open */
    double best;               /* speed-up of the tasks' sum over the default candidates */
    double seconds_left;
    struct str what;
};
/* Candidates of one task in an order of the caller's; false: no more. */
struct tune_source { bool (*next)(void *user, struct candidate *c); void *user; };
/* A product by the device's own library, measured like a candidate beside the reference and remembered as one: it tells how good the
   candidates are, and is never chosen. Of runs with one task, which is that product. */
struct tune_rival {
    struct str name;           /* as dev_ask_product says */
    struct dev_product product;
    value_id a, b;             /* of the task: its operands */
};
struct tune_opts {
    const struct dev_driver *driver;
    struct dev_opts dev;
    double timeout;            /* seconds, 0: until nothing is left to learn; where nothing is known one candidate is tried all the same */
    u32 min_samples;           /* 0: 10 */
    u32 max_candidates;        /* per task; 0: 256 */
    const struct tune_rival *rival; /* speed-ups are over it, once it was verified; NULL: over the reference */
    double stop_at_speedup;    /* 0: never */
    double stop_at_seconds;    /* when the tasks' best add up to no more; 0: never */
    const struct tune_source *source; /* of candidates, instead of a search; those measured before are passed over. NULL: the search */
    double relative_error;     /* three samples or more that differ by no more are enough; 0: min_samples are taken */
    u64 seed;
    bool add_candidates;       /* search; false: only what the database lists */
    bool measure;              /* false: populate only */
    const struct stop *stop;   /* ends the run in order: what was measured is kept, and the result is as good as any; NULL: nothing does */
    void (*progress)(void *user, const struct tune_progress *p);
    void (*event)(void *user, struct str json); /* one finished trial; drift */
    const struct log *log;
    void *user;
};
struct tune_task {
    const struct task *task;
    const i64 *var;
    double weight;             /* how often the model runs it; 0: an alternative that nothing has chosen yet */
};
struct tune_result { i64 memory /* bytes that the run kept to its end: of what it knows of candidates */; bool was_stopped;
                     i64 n_built /* by populate */, n_measured, n_ok, n_failed, n_by_status[N_TRIAL_STATUS]; double speedup, drift, others;
                     enum trial_status rival; struct buf rival_reason; /* of the rival: TRIAL_NEW, it was not measured; the caller releases the reason */ };
/* ERR_STOPPED: stopped before anything was known.
   others: share of the processors that other processes used; more than a tenth is reported.
   drift: time of the base candidates at the end of the run over that at its start; reported when it is more than a tenth off 1.
   ERR_NOTHING when nothing was measured and nothing was known, with the reasons counted. */
bool tune_run(struct db *d, const struct tune_task *t, u32 n, const struct tune_opts *o, struct tune_result *r, struct err *e);
/* The rival's row of a task, added as TRIAL_NEW when missing. */
bool tune_rival_row(struct db *d, i64 env, const struct task *t, const i64 *var, struct str name, struct arena *a, struct trial_row *row,
                    struct err *e);
/* The same for all tasks of the database (quern bench). */
bool tune_bench(struct db *d, const struct tune_opts *o, struct tune_result *r, struct err *e);

/* cost.c: what the database knows of a task. */
/* How many of the rows, in their order, it took to find one of no more than this ratio to the reference candidate; 0: none is. */
u32 trials_to(const struct trial_row *rows, u32 n, double ratio);
double best_ratio(const struct trial_row *rows, u32 n); /* 0: none was verified and timed */
/* How soon a task's search came near the best it found: within 5 %. */
struct reach { u32 n_trials, to_near; }; /* 0: nothing was verified and timed */
bool tune_reach(struct db *d, i64 env, i64 task, struct str sizes, struct reach *r, struct err *e);
struct reaches { u32 n_tasks, n_trials; double median; u32 most; }; /* of tasks with two trials or more; median, most: of to_near */
struct reaches reaches_of(const struct reach *r, u32 n);
/* Which row to take; NULL: none was verified and timed. It is the reference (of several: the one that was it last) unless another is
   shown to be faster: the upper end of its ratio's 95 % interval is below 1. Of several that are the one whose end is lowest. Where some
   were compared again only they are asked, and never those that are odd. A function of the rows alone. */
const struct trial_row *tune_choice(const struct trial_row *rows, u32 n);
/* The usual time of a reference: the lower quartile of its medians beside trials (those that are 0 are left out). Half of them may be
   of a machine that is slower for a while, but hardly any of one that is faster. */
double tune_typical(const double *median, u32 n);
bool tune_is_typical(double reference, double typical); /* no more than a quarter longer; true when nothing is known */
/* Median over the trials it ran beside that are not odd, those that were compared again if any were; 0: it never did. */
double tune_reference_seconds(const struct trial_row *rows, u32 n);
/* Seconds of a candidate with the machine's moods taken out: its ratio to the reference, times the reference's time. */
double tune_row_seconds(const struct trial_row *r, double reference);
struct task_known { bool measured; struct candidate best; double seconds; u32 n_trials; };
bool tune_best(struct db *d, i64 env, const struct task *t, const i64 *var, struct task_known *k, struct err *e);

/* nearest.c: for tasks that were never measured. */
struct known { struct db *d; i64 env; struct arena *a; struct known_task *v; u32 n; }; /* the tasks of a database; candidates are read when asked for */
bool known_load(struct known *k, struct db *d, i64 env, struct arena *a, struct err *e);
struct known_for {
    const struct task *task; const i64 *var; const struct caps *caps;
    double (*distance)(void *user, const struct task *t); /* INFINITY: it is not to be asked. NULL: tasks of the same operator and rank, see below */
    void *user;
};
struct known_found {
    const struct tune_task *task;  /* where it was measured */
    struct candidate cand, base;   /* base: what it was timed beside; gen NULL: not known */
    double seconds, ratio;         /* measured there, and over the base's */
    double distance;               /* the caller's; else the sum of the logarithms to base 2 of the ratios of the extents of result and operands, and more where they differ else */
};
/* The fastest candidate of the nearest task of the same operator for which one is legal here. false without an error: there is none. */
bool known_nearest(const struct known *k, const struct known_for *f, struct known_found *out, struct err *e);
/* Is it faster here than this candidate, by what was measured there and by how predictions change? */
bool known_improves(const struct known_found *found, const struct known_for *f, const struct candidate *now);

#endif
