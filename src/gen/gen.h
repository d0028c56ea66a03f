// SPDX-License-Identifier: Apache-2.0
//
// gen: families of algorithms. A plug-in file src/family/NAME.c exports one `const struct gen gen_NAME`: which tasks it can do, the
// schedule's parameters with their values, and the kernel for one schedule. It writes kernel IR through op's emit functions,
// reads limits from struct caps only, and knows no language, device or vendor.
#ifndef QUERN_GEN_H
#define QUERN_GEN_H

#include "gen/param.h"
#include "task/task.h"

struct nest_rates;
struct gen_prices;

enum {
    GEN_NOMINAL = 1024, /* what a size is taken for that is not known */
    GEN_MAX_VARS = 256,
};

/* In which order a family's kernels take sums of floats, where one order is promised (order.c). */
enum gen_sums {
    SUMS_IN_ORDER,   /* the definition's, by every schedule that it calls legal then */
    SUMS_OF_ROWS,    /* that of reductions (ROW_PARTS) */
    SUMS_BY_ELEMENT, /* of each element by the operator's own loops */
    SUMS_WINOGRAD,   /* of transformed tiles */
    SUMS_IN_PARTS,   /* none: by lanes, by threads, by shares of the terms, or in an order of the schedule's own */
};

/* A task on a device: analyzed once, then asked about many schedules (problem.c). */
struct gen_problem {
    const struct gen *gen;
    const struct task *t;
    const struct caps *c;
    struct rates rates;  /* of c: measured or assumed */
    const struct nest_rates *nest; /* nest.h: the same, for loops on a processor; NULL: it is a GPU */
    const i64 *var;      /* sizes (symtab order), GEN_NOMINAL where they are not known; NULL: there are none, or too many to be told */
    void *facts;         /* the family's, zeroed before `analyze` */
    struct gen_prices *prices; /* private to problem.c */
    bool has_too_many;   /* sizes: nothing is predicted */
    struct arena *arena; /* released with it */
};

struct gen {
    u32 version;         /* of this struct: 1 */
    const char *name;
    u32 revision;        /* raise when the emitted code changes for the same schedule */
    const struct gen_param *param;
    u32 n_param;
    enum gen_sums sums;
    bool chains;         /* only tasks of several heavy nodes; else only others */
    bool singles;        /* with chains: those of one heavy node whose results are reduced, too; nothing else takes these */
    u32 facts;           /* bytes of what `analyze` finds out about a task */
    /* Takes the task apart, into p->facts; false: it is not the family's. NULL: there is nothing to find out. */
    bool (*analyze)(const struct gen_problem *p);
    bool (*match)(const struct gen_problem *p); /* can the family do it on the device? NULL: yes. Asked through gen_matches */
    /* The k-th of the schedules that ask least of the device, one of each kind (a shape of fragments, an axis of threads). One of them must be legal,
       or the family cannot do it; searches begin with them. false: there is none. NULL: any task has legal ones, which are not rare. */
    bool (*least)(const struct gen_problem *p, u32 k, struct sched *s);
    /* The k-th of schedules that searches begin with, too, of regions that draws seldom find; it may be illegal. false, or NULL: there is none. */
    bool (*start)(const struct gen_problem *p, u32 k, struct sched *s);
    /* Works out, into p->facts, what a schedule means: before `legal` or `predict` is asked about it. false: it is refused at once. NULL: they
       look at it themselves. */
    bool (*view)(const struct gen_problem *p, const struct sched *s);
    bool (*legal)(const struct gen_problem *p, const struct sched *s); /* whatever the sizes p->var are */
    /* May a schedule that begins with the first n values of s be worth trying? For spaces whose product of values is too large to be
       walked: enumerations leave out what begins like this, so that only what is worth trying, with n = n_param, and legal comes by.
       true for a prefix of every schedule that it is true for. NULL: whatever is legal is worth trying. */
    bool (*worth)(const struct gen_problem *p, const struct sched *s, u32 n);
    /* Likewise for searches only, where legal schedules are rare: may a legal one that is none of the least begin like this? NULL: that of worth. */
    bool (*begins)(const struct gen_problem *p, const struct sched *s, u32 n);
    double (*predict)(const struct gen_problem *p, const struct sched *s); /* seconds for sizes p->var: orders candidates before anything is measured */
    /* May it be chosen unmeasured? NULL: yes. Asked about legal ones; others are chosen only where there is no such. */
    bool (*sure)(const struct gen_problem *p, const struct sched *s);
    /* A legal schedule, used with an empty database. s is zero before. NULL: the best predicted one that is sure (search.c). */
    void (*initial)(const struct gen_problem *p, struct sched *s);
    /* Emits the kernel body into m->k: emit_pack, emit_args, grids ... */
    void (*emit)(struct emit *m, const struct task *t, const struct caps *c, const struct sched *s);
    /* Rounding errors over those of the plain sum of the terms, at most. NULL: 1. */
    double (*growth)(const struct sched *s);
};

struct candidate {
    const struct gen *gen;
    struct sched sched;
};

const struct gen *gen_find(struct str name);
const struct gen *gen_at(i64 k);                              /* k-th, NULL behind the last */
/* "gemm.10 mr=14 nr=2 bk=256": family, revision, parameters. Round-trips. */
void candidate_print(struct buf *b, const struct candidate *c);
bool candidate_parse(struct candidate *c, struct str text, struct err *e); /* also by names of earlier versions */
/* renamed.c: appends the text with the names that families and parameters have today; false: it had them already. */
bool candidate_rename(struct buf *b, struct str text);

/* A kernel ready for a language, with what the host must know to launch it. */
struct kernel {
    struct kir kir;
    struct kernel_arg *arg; u32 n_arg;            /* in order of the BUFs */
    sym *param; u32 n_param;                      /* symbolic sizes, in order of kernel parameters */
    struct { sym extent[3]; u32 n; } *grid; u32 n_grid; /* x, y, z: the innermost GRID first */
    sym *temp; u32 n_temp;                        /* bytes of each TEMP array */
    sym work;                                     /* bytes of scratch memory of one worker */
    char name[64];                                /* = kir.name; doc/kernel-names.md: family_dtypes_shape_digest */
};
/* Emits, verifies. false with ERR_FAILED: the schedule cannot be emitted (a row in the database, not the user's error). */
bool gen_kernel(struct kernel *k, struct arena *a, const struct candidate *c, const struct task *t, const struct caps *caps,
                struct err *e);

/* The name of a kernel for several tasks, whose digest is its text's. */
void gen_shared_name(char name[64], const struct gen *g, const struct task *const *t, u32 n, const struct kir *common);

/* share.c: gives kernels that differ only in sizes the same kernel IR, and so the same name and text; param, n_param, kir and name
   change. They follow from all n kernels, in their order. */
struct gen_shared { struct kernel *kernel; const struct task *task; const struct candidate *cand; };
bool gen_share(struct gen_shared *x, u32 n, struct arena *a, struct err *e);

/* How much larger rounding errors may be than those of the plain sum of the terms: 1 but for families with fewer products than terms. */
double gen_growth(const struct candidate *c);

/* Can the family do the task within the device's limits? */
bool gen_matches(const struct gen *g, const struct task *t, const struct caps *c);
bool gen_takes(const struct gen *g, const struct task *t, const struct caps *c); /* `analyze` and `match` alone */
/* Is the candidate, of a family that matches, legal for the task? */
bool gen_legal(const struct candidate *c, const struct task *t, const struct caps *caps);
/* problem.c: a problem of a family. var: sizes as far as they are known, INT64_MIN where not; may be NULL. false: the task is not the
   family's, and nothing is open. */
bool gen_problem_open(struct gen_problem *p, const struct gen *g, const struct task *t, const struct caps *c, const i64 *var);
void gen_problem_close(struct gen_problem *p);
bool gen_problem_allows(const struct gen_problem *p, const struct sched *s);    /* is it legal? */
double gen_problem_seconds(const struct gen_problem *p, const struct sched *s); /* predicted */
double gen_problem_cost(const struct gen_problem *p, const struct sched *s);    /* predicted seconds; 0: it is not legal */
/* Of the first product or convolution of the task: operations on vectors to evaluate as many elements of its first or second operand; 0 where
   that is loaded, or there is none. Predictions count how often each element is evaluated. */
double gen_problem_front(const struct gen_problem *p, u32 operand);
double gen_front(const struct graph *g, value_id v); /* front.c: the same of any value that vectors of a kernel evaluate */
double gen_problem_back(const struct gen_problem *p); /* likewise, to evaluate the task's outputs from the elements of its first product or convolution */
double gen_back(const struct graph *g, value_id v);   /* front.c: the same from the elements of v, which a kernel has */
bool gen_problem_least(const struct gen_problem *p, struct sched *s);            /* the first of the least schedules that is legal */
void gen_problem_initial(const struct gen_problem *p, struct sched *out);       /* search.c: the best predicted, for an empty database */
/* The order of sums that is promised of reductions (order.c): the elements of a row, numbered in row-major order over all axes that are reduced, go to
   ROW_PARTS partial sums by their number modulo ROW_PARTS, each in ascending order; these are folded, the upper half onto the lower, until
   one is left. */
enum { ROW_PARTS = 32 };
/* order.c: may the family do the task where the order of sums is promised? Asked by gen_matches. */
bool gen_order_allows(const struct gen *g, const struct task *t, const struct caps *c);
bool gen_order_is_winograd(const struct task *t, const struct caps *c); /* is the order that is promised that of Winograd's algorithm? */
/* The candidate whose kernel has the order that is promised on the device; false: it is that of the definition. */
bool gen_order(const struct task *t, const struct caps *c, struct candidate *out);
/* Enumerating a task's schedules: calls fn for every generator that matches and every legal schedule that is worth trying, the
   initial ones first. only: those of this generator; NULL: of all. */
typedef bool gen_visit(void *user, const struct candidate *c); /* false: stop */
void gen_each(const struct gen *only, const struct task *t, const struct caps *c, gen_visit *fn, void *user);
/* The same, but of each family no more than max schedules, legal or not, are looked at: all of a small space, of a large one a fair
   sample, spread evenly over it. The seed says where it begins. */
void gen_scatter(const struct task *t, const struct caps *c, i64 max, u64 seed, gen_visit *fn, void *user);
struct candidate gen_initial(const struct gen *g, const struct task *t, const struct caps *c, const i64 *var); /* var may be NULL */
bool gen_random(const struct task *t, const struct caps *c, struct rng *r, struct candidate *out); /* a random legal candidate */
/* Makes c legal where the family says what is worth trying: values stay, from the first on, as near as possible. Others' candidates
   stay as they are. false: c is not legal. */
bool gen_repair(struct candidate *c, const struct task *t, const struct caps *caps);
/* The one used with an empty database: the best predicted of the generators' initial schedules for sizes var[]. */
bool gen_default(const struct task *t, const struct caps *c, const i64 *var, struct candidate *out);
double gen_predict(const struct candidate *c, const struct task *t, const struct caps *caps, const i64 *var);

/* ---- shared by the generators of this folder ---- */

/* space.c: the index space of a value. Axes of size 1 are dropped; axes that are neighbours in memory are merged into one group
   when every operand that is read element by element allows it, so that a dense pointwise task becomes one long row. */
struct axis_run { sym extent; u32 axis; };   /* axis: carries the group's index; the group's other axes have index 0 */
struct space {
    u32 rank;                                   /* of the value */
    u32 n;                                      /* groups, outermost in memory first; at least one */
    struct axis_run g[MAX_RANK];
};
/* stop: values whose elements the generator delivers itself (bound), same shape as v; 0-terminated, may be NULL. set: bit mask of
   axes; axes in it are merged with each other only, and so are those outside. */
void space_of(struct space *s, const struct graph *g, value_id v, const value_id *stop, u32 set);
/* Likewise in the order of a layout, and merged only where every one of n values (of equal shape) allows. */
void space_of_all(struct space *s, const struct graph *g, const value_id *v, u32 n, enum layout l, const value_id *stop, u32 set);
void space_index(struct kir *k, const struct space *s, const kval *at, kval idx[MAX_RANK]);
sym space_count(const struct space *s, struct symtab *t, u32 from, u32 to); /* product of extents of groups from..to-1 */
/* Row number (groups listed, row-major) -> one index per listed group. */
void space_split(struct emit *m, const struct space *s, const u32 *group, u32 n, kval row, kval at[MAX_RANK]);
void space_at(struct emit *m, const struct space *s, kval number, kval idx[MAX_RANK]); /* position number -> index, of all groups */
u32 layout_order(enum layout l, u32 rank, u32 order[MAX_RANK]); /* axes, outermost in memory first; returns rank */

/* What one evaluation of v costs when the axis of a group is a vector: found by emitting it into a kernel that is thrown away. */
struct probe {
    u32 n_dense, n_gather, n_scalar, n_ins;
    u32 n_step, n_near; /* of n_gather: in equal steps, in steps of at most 4 elements */
    i64 step;           /* the greatest of those, forwards; 0: none */
};
void space_probe(struct probe *p, const struct task *t, const struct space *s, value_id v, u32 group, u32 lanes);
/* Likewise, but for `edge` elements at both ends of the group. */
void space_probe_inside(struct probe *p, const struct task *t, const struct space *s, value_id v, u32 group, u32 lanes, i64 edge);
/* Likewise, of channels c .. c+lanes-1 of v at one pixel. */
void space_probe_channels(struct probe *p, const struct graph *g, value_id v, i64 c, u32 lanes);

/* util.c */
kval gen_is_inside(struct kir *k, kval i, kval n);           /* is i one of 0..n-1? */
/* Elements from..to-1 in vectors, then those left over. The body is emitted twice:
       struct vectors v = vectors_over(k, from, to, lanes);
       while (vectors_next(&v)) ... v.at, v.limit ... */
struct vectors {
    struct kir *k;
    kval from, to, whole;
    i64 lanes;
    u32 n;      /* bodies so far */
    kval at;    /* first element */
    kval limit; /* elements that exist, 0: all */
};
struct vectors vectors_over(struct kir *k, kval from, kval to, i64 lanes);
bool vectors_next(struct vectors *v);
u32 gen_lanes(const struct caps *c, enum dtype t);          /* of the widest useful vector */
i64 gen_static(const struct graph *g, sym s, i64 otherwise); /* a size known now */
i64 gen_eval(const struct graph *g, sym s, const i64 *var);  /* its value; unbound variables count as GEN_NOMINAL */
double gen_count(const struct graph *g, value_id v, const i64 *var); /* elements */
double gen_bytes(const struct graph *g, value_id v, const i64 *var); /* of all its elements */
double gen_work(const struct task *t, value_id v, const i64 *var);   /* per element: operations behind it, reductions and contractions in full */
double gen_work_repeated(const struct task *t, value_id v, const i64 *var, u32 repeated); /* operators of these properties evaluate inputs for each term */
/* Non-temporal stores of the task's outputs (emit_stream) in runs of that many bytes. Are they a candidate? Runs must be whole lines, and the
   outputs must fill a good part of the last-level cache. */
bool gen_may_nt(const struct graph *task, const struct caps *c, i64 run);
/* Predicted seconds with such stores of a kernel that takes `plain` seconds with ordinary ones: lines are not read before they are
   overwritten, but the next kernel finds none of the outputs in a cache. */
double gen_nt_seconds(const struct gen_problem *p, double plain);
i32 gen_nearest(const struct gen_param *p, i64 want);       /* the largest value <= want, else the smallest */
/* search.c. A way over all schedules of a family, legal or not, each once: one after the other, the first parameter fastest, or in steps of the
   golden ratio of their number, so that any stretch of it is spread evenly (Knuth, The Art of Computer Programming 3, section 6.4). */
struct gen_walk { const struct gen *gen; i64 total; u32 step[MAX_SCHED], at[MAX_SCHED]; }; /* the latter two as digits */
struct gen_walk gen_walk_start(const struct gen *g, bool scattered, u64 seed);
struct sched gen_walk_next(struct gen_walk *w);
/* Between v and `from` stand pointwise nodes of one shape only, and v depends on y through it alone. */
bool gen_pointwise_behind(const struct graph *g, value_id v, value_id from, value_id y);
bool gen_pointwise_tail(const struct graph *g, value_id out, value_id anchor); /* between them only pointwise nodes of the same shape */
bool gen_depends(const struct graph *g, value_id v, value_id on);
/* The task's window of pooling, if there is one and nothing else but what is pointwise or moves elements; positions of maxima are
   not asked for. */
node_id gen_pool_node(const struct task *t);
kval gen_given(struct emit *m, const void *user, const kval *idx); /* emit_fn: the kval that user points to, at any index */

/* elementwise.c: one grid that computes and stores v element by element, as the family `elementwise` does. */
struct elementwise_sched { i64 axis, lanes, unroll, ec, pb, ob, edge; };
void gen_elementwise_grid(struct emit *m, value_id v, const struct elementwise_sched *s, const value_id *stop);
/* One that stores the elements of `from` in the output `to`, of the same shape. */
void gen_elementwise_copy(struct emit *m, const struct task *t, const struct caps *c, value_id from, value_id to);
/* Grids for all outputs of the task, with one value bound to what an earlier grid left. */
void gen_elementwise_rest(struct emit *m, const struct task *t, const struct caps *c, value_id v, emit_fn *fn, const void *user);
void gen_elementwise_default(const struct task *t, const struct caps *c, value_id v, const value_id *stop, struct elementwise_sched *s);

/* transpose.c: transposes blocks of as many rows and columns as a vector has lanes (a power of two, at least 2) in scratch memory. */
struct transpose {
    struct kir *k;
    u32 lanes;
    kval room[2];   /* WORK arrays of blocks */
};
struct transpose_to {
    kval array, at; /* column c, a vector over rows, goes to element at + c*pitch */
    i64 pitch, columns;
};
void transpose_open(struct transpose *t, struct kir *k, enum dtype type, u32 lanes, i64 blocks); /* allocates room for so many */
void transpose_row(const struct transpose *t, kval block, kval row, kval v);
u32 transpose_blocks(const struct transpose *t, kval blocks); /* behind all rows of all of them; the result is for transpose_store */
void transpose_store(const struct transpose *t, u32 from, kval block, const struct transpose_to *to);
/* Of as many vectors as they have lanes, at most 64, in registers: row[i] becomes the vector of lanes i. */
void transpose_vectors(struct kir *k, kval *row, u32 lanes);

/* wg_elementwise.c: the same by workgroups; how many, k->group says. */
struct wg_elementwise {
    i64 axis;   /* group of axes along which threads follow each other, counted from the innermost in memory */
    i64 vec;    /* elements of a thread's piece, along that group */
    i64 row;    /* threads side by side along that group, the others in further rows; 0: without gaps */
    i64 rep;    /* pieces per thread */
    bool stage; /* axis > 0: stored along the innermost group, through shared memory; row > 0 */
};
void gen_wg_elementwise_grid(struct emit *m, value_id v, const struct wg_elementwise *s, const value_id *stop);
void gen_wg_elementwise_default(const struct task *t, value_id v, i64 threads, struct wg_elementwise *s);
i64 gen_wg_size(const struct kir *k); /* threads of a workgroup */
/* Cost of one element's reads with threads along a group: side by side, near each other, anywhere; the same for all is nearly free. */
double gen_wg_reads(const struct probe *p);
i64 wg_elementwise_pitch(i64 row, enum dtype t); /* staged: elements from one row of the tile to the next */

/* Part of a value in scratch memory, from which a later step of the same grid iteration reads. */
struct scratch {
    value_id v;               /* computed from the anchor's elements by pointwise nodes only */
    kval buf;                 /* WORK array */
    kval origin[MAX_RANK];    /* index of what its element 0 holds */
    kval step[MAX_RANK];      /* elements from one index to the next */
    bool whole;               /* vectors that hang over the last channel are stored as a whole */
};

/* tile.c: where the elements of a heavy node's value go: through the epilogue to the task's outputs, or to a TEMP array, dense with one axis
   innermost, for gen_elementwise_rest. */
struct result {
    value_id v;
    u32 inner;                /* axis */
    kval temp;                /* 0: to the outputs */
    i64 parts;                /* 0: 1. The TEMP array holds as many summands of each element, one array of them after the other */
    kval part;                /* number of the one being stored */
    const struct scratch *to; /* not NULL: there instead */
};
kval tile_temp_index(struct emit *m, value_id anchor, u32 c_axis, const kval *idx); /* in the TEMP array */
void result_open(struct emit *m, struct result *r, enum dtype t); /* allocates the TEMP array */
void result_store(struct emit *m, const struct result *r, const kval *idx, kval val, kval limit); /* first lanes, 0: all */
kval result_load(struct emit *m, const void *result, const kval *idx); /* emit_fn: from the TEMP array */

#endif
