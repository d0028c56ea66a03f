// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: attention by workgroups (family/wg_attention.c): schedules, and their emission. Dims as in gen/attention.h. A workgroup has a block of
// br rows (queries, of all heads that share keys) of one batch, and takes blocks of bc keys, one after the other.
#ifndef QUERN_GEN_WG_ATTENTION_H
#define QUERN_GEN_WG_ATTENTION_H

#include "gen/attention.h"
#include "gen/leaf.h"

// clang-format off
/* Those that schedules by matrix units have, too (mma_attention.h). */
#define WG_ATTENTION_AHEAD(P) P(sp, "1: the next K block is fetched to registers meanwhile", 0, 1)
#define WG_ATTENTION_KEYS(P)                                                                                         \
    P(skip, "1: keys that a mask excludes for all rows of the workgroup are found first, and left out", 0, 1)        \
    P(split, "keys of a workgroup, at most; 0: all", 0, 128, 256, 512, 1024, 2048, 4096)

/* In the order in which a choice of one narrows down the next ones. Names are those of kernel names (doc/attention.md): p the scores, o the output; bl, wl
   subgroups and threads of a subgroup; y, x along rows and columns; bsw, wsw how a thread's rows and columns are strewn over the block (struct fma_axis). */
#define WG_ATTENTION_PARAMS(P)                                                                                       \
    P(half, "1: shared arrays of queries, keys and values in the operands' own 16-bit type", 0, 1)                   \
    P(wlpy, "scores: threads of a subgroup along queries", 1, 2, 4, 8, 16, 32)                                       \
    P(wlpx, "scores: threads of a subgroup along keys", 1, 2, 4, 8, 16, 32, 64)                                      \
    P(blpy, "scores: subgroups along queries", 1, 2, 4, 8, 16)                                                       \
    P(blpx, "scores: subgroups along keys", 1, 2, 4, 8)                                                              \
    P(ptr, "scores: queries of a thread", 1, 2, 4, 8, 16)                                                            \
    P(ptc, "scores: keys of a thread", 1, 2, 4, 8, 16)                                                               \
    P(wlox, "output: threads of a subgroup along columns", 1, 2, 4, 8, 16, 32, 64)                                   \
    P(blox, "output: subgroups along columns", 1, 2, 4, 8)                                                           \
    P(sa, "scores: terms of a K block, of the head's size", 4, 8, 16, 32, 64, 128)                                   \
    P(sb, "output: terms of a K block, of the block's keys", 4, 8, 16, 32, 64)                                       \
    P(bswq, "scores: queries of a thread within its subgroup's part", 1, 2, 4, 8)                                    \
    P(bswk, "scores: keys of a thread within its subgroup's part", 1, 2, 4, 8, 16)                                   \
    P(wswq, "scores: neighbouring queries of a thread", 1, 2, 4, 8)                                                  \
    P(wswk, "scores: neighbouring keys of a thread", 1, 2, 4, 8)                                                     \
    P(bswp, "output: queries of a thread within its subgroup's part", 1, 2, 4, 8)                                    \
    P(bswv, "output: columns of a thread within its subgroup's part", 1, 2, 4, 8, 16)                                \
    P(wswp, "output: neighbouring queries of a thread", 1, 2, 4, 8)                                                  \
    P(wswv, "output: neighbouring columns of a thread", 1, 2, 4, 8)                                                  \
    WG_ATTENTION_AHEAD(P)                                                                                            \
    P(rpp, "1: operands of the next term of the scores are read before this one's are multiplied", 0, 1)             \
    P(rpo, "1: likewise of the output", 0, 1)                                                                        \
    P(un, "terms written out at once", 1, 2, 4, 8, 16, 32, 64)                                                       \
    P(pad, "elements behind each row of a shared array", 0, 4)                                                       \
    P(glwq, "elements of a load of the queries, at most", 1, 2, 4, 8)                                                \
    P(glwk, "elements of a load of the keys, at most", 1, 2, 4, 8)                                                   \
    P(glwv, "elements of a load of the values, at most", 1, 2, 4, 8)                                                 \
    P(lcp, "1: loads of queries and keys are shared out through the whole tile; 0: row by row", 0, 1)                \
    P(lco, "1: likewise of the values", 0, 1)                                                                        \
    P(sub, "1: the threads of a row find its maximum by shuffles; 0: through shared memory", 0, 1)                   \
    WG_ATTENTION_KEYS(P)
// clang-format on

struct wg_attention_sched {
    WG_ATTENTION_PARAMS(GEN_PARAM_FIELD)
    i64 w, threads;          /* of a subgroup, of the workgroup */
    i64 br, bc;              /* rows, keys of a block */
    i64 wloy, bloy;          /* output: threads of a subgroup, subgroups along rows; 0: they do not fit */
    i64 otr, otc;            /* output: rows, columns of a thread; 0 likewise */
    i64 columns;             /* of the output's tile: at least those of the values */
    bool by_units;           /* subgroups multiply fragments; a thread's tiles are what it holds of the scores in between, and of the output at the end */
    struct mma_leaf units[2]; /* then: of the scores, of the output */
    bool apart;              /* by_units: keys and values have shared arrays of their own, for whole blocks */
    bool by_warpgroups;      /* by_units: fragments are those of warpgroups, and threads have their own elements of them (wgmma_attention_emit.c) */
    i64 stages;              /* by_warpgroups: blocks of keys and values in shared memory */
};
struct wg_attention_sched wg_attention_sched_of(const struct sched *s, i64 columns);

/* Elements of shared arrays. */
struct wg_attention_room {
    i64 q, kv, v;            /* of the operands' type: the rows of queries; a K block of keys or values; of values if these are apart, else 0 */
    i64 p;                   /* f32, by_units the operands' type: the block of probabilities; 0: it takes the place of the scores */
    i64 scores;              /* f32, by_units: what goes from fragments to threads, scores and at the end the output */
    i64 rows;                /* f32: factors, maxima and sums of the rows, as far as there are any */
    i64 folds;               /* f32: what the threads of a row exchange; 0: they shuffle */
    i64 seen;                /* i32: likewise, of masks */
    i64 checks;              /* i32: whether rows need all keys, since masked scores count for them */
};
struct wg_attention_room wg_attention_room_of(const struct attention *x, const struct wg_attention_sched *s);
/* Likewise of the grid of sums of columns. */
struct wg_attention_columns_room {
    i64 keys, queries;       /* of the operands' type: the block of keys; a K block of queries */
    i64 held;                /* f32: sums of all threads of a column; by_units, before that, scores */
    i64 checks;              /* i32, of threads */
};
struct wg_attention_columns_room wg_attention_columns_room_of(const struct attention *x, const struct wg_attention_sched *s);
i64 wg_attention_columns_bytes(const struct attention *x, const struct wg_attention_sched *s);
i64 wg_attention_shared_bytes(const struct attention *x, const struct wg_attention_sched *s);
i64 wg_attention_terms(const struct attention *x, const struct wg_attention_sched *s); /* the head's size in whole K blocks */

/* wg_attention_cost.c: a task. */
struct wg_attention_facts {
    struct attention x;
    i64 m, n, d, e, batch;  /* nominal; e 0: there are no values */
    i64 static_m, static_n; /* -1: not known */
    i64 size;               /* bytes of an operand's element; 2: all are of that type */
    enum dtype operand;     /* of all, tf32 where products may be rounded so; DT_NONE: they differ */
    sym queries;            /* of a head; rows are of one or several */
    double front[3];        /* of queries, keys and values, if there are any: as gen_front */
    double others;          /* bytes of inputs but these */
};
bool wg_attention_analyze(const struct gen_problem *p, struct wg_attention_facts *f); /* from scores to the output by statistics that it finds itself */
/* Also statistics alone, an output from given ones, and sums of columns. */
bool wg_attention_analyze_parts(const struct gen_problem *p, struct wg_attention_facts *f);
i64 wg_attention_copied(const struct wg_attention_facts *f, const struct wg_attention_sched *s); /* elements that a thread copies at once, at most */
bool wg_attention_fits_split(const struct wg_attention_facts *f, const struct wg_attention_sched *s);
bool wg_attention_is_split_worth(const struct wg_attention_facts *f, const struct caps *c, const struct wg_attention_sched *s);
/* Work of a workgroup on a block of keys, but for the operands of its multiply-adds. */
struct wg_work wg_attention_block_work(const struct wg_attention_facts *f, const struct wg_attention_sched *s);
/* Likewise on a block of rows, for sums of columns. */
struct wg_work wg_attention_columns_work(const struct wg_attention_facts *f, const struct wg_attention_sched *s);
struct wg_attention_step {
    struct wg_work block; /* all of it */
    double regs, ilp;     /* as in struct wg_facts, without addresses */
    enum rate_op op;
    double op_rate;       /* as in struct wg_facts */
    double ahead;         /* blocks that are copied ahead, as a whole; 0: by K blocks, as the schedule says */
};
double wg_attention_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct wg_attention_sched *s, const struct wg_attention_step *step);

/* Of the grid of sums of columns. */
double wg_attention_columns_seconds(const struct gen_problem *p, const struct wg_attention_facts *f, const struct wg_attention_sched *s, const struct wg_attention_step *step);

enum { WG_ATTENTION_ROWS = 16 }; /* of scores of a thread, at most */

struct wg_attention {
    struct emit *m;
    struct attention x;
    struct wg_attention_sched s;
    struct contraction first, second; /* scores, output */
    struct fma_leaf scores, sums;
    kval p;                  /* SHARED: [row][key]; by_warpgroups REG: pairs of the thread's tile, as the scores */
    kval held;               /* SHARED, by_units: scores as p; [row][column] of the output */
    i64 pitch;               /* of p, and of held scores */
    kval factors, most_of, sum_of; /* SHARED, of rows: of their sums so far; statistics at the end. by_warpgroups factors are REG, of the thread's rows */
    kval folds, seen;        /* SHARED: [row][thread of the row] */
    kval checks;             /* SHARED: of rows */
    kval most, sum;          /* REG, of the thread's rows: the greatest score so far; the sum of its own exponentials relative to it */
    kval place;              /* of the thread among those of a row */
    struct attention_row row[WG_ATTENTION_ROWS]; /* of the thread's rows of scores */
    kval m0;                 /* first row of the block */
    struct attention_span keys; /* that the workgroup has */
    kval batch, part, n_parts;
    struct attention_sums parts; /* TEMP: of all rows by parts of the keys, [batch][row][part] */
    kval reduced[MAX_REDUCE]; /* TEMP, with sums of columns: results of the reductions of all rows, [batch][row] */
    struct wg_attention *columns; /* what the grid of sums of columns has of the scores; NULL: there is none */
};
/* The product whose batches and rows are divided among workgroups. */
static inline const struct gemm *wg_attention_rows_of(const struct attention *x) { return attention_has_values(x) ? &x->values : &x->scores; }
void wg_attention_emit(struct emit *m, const struct task *t, const struct caps *c, const struct wg_attention_sched *s);

/* wg_attention_walk.c: K blocks of a product. */
struct wg_attention_walk {
    struct contraction *p;
    struct operand *from; /* that is copied block by block; the other one is there as a whole */
    kval array, block;    /* to which; block of keys, of values */
    i64 n;                /* K blocks */
};
/* operand.at and wg_copy.at of an operand that is there as a whole. */
kval wg_attention_whole_at(const struct operand *s, const struct contract_term *t, kval i);
kval wg_attention_whole_copied_at(void *user, kval row, kval col);
void wg_attention_fetch(const struct wg_attention *a, const struct wg_attention_walk *w, kval number); /* a K block to registers */
void wg_attention_fetch_first(const struct wg_attention *a, const struct wg_attention_walk *w, const struct attention_span *blocks); /* with sp, in front of a loop
   over these blocks, of which there may be none: the first K block of the first one */
void wg_attention_multiply(struct contraction *p, kval number); /* what is there of a K block */
/* All of them; with sp the first one is in registers already. behind: called when what was in shared memory before is visible; NULL: nothing is. */
void wg_attention_walk(struct wg_attention *a, const struct wg_attention_walk *w, void (*behind)(struct wg_attention *a));

void wg_attention_clear_scores(struct wg_attention *a); /* of the tiles, or of units */
void wg_attention_scores(struct wg_attention *a, const struct wg_attention_walk *w); /* of a block, in the threads' tiles */

/* wg_attention_row.c: rows of scores. */
kval wg_attention_row(const struct wg_attention *a, kval row); /* number of a row of the block, the last one's beyond the end */
kval wg_attention_is_row(const struct wg_attention *a, kval row); /* is there a row of that number? */
/* op over the threads of each of the thread's n rows; own[i] becomes the result. array: SHARED, of the type of own; 0: by shuffles. */
void wg_attention_fold(struct wg_attention *a, enum kir_op op, kval array, kval *own, i64 n);
void wg_attention_softmax(struct wg_attention *a, kval block); /* scores become exponentials in the array p, if there are values */
void wg_attention_given(struct wg_attention *a, kval block); /* scores become probabilities in the array p, from given statistics */
/* v, of the shape of scores, of a row, idx with any key, and a vector of keys from `key` on, computed from products `raw`; beyond the end: what is said. */
kval wg_attention_value(const struct wg_attention *a, value_id v, const kval *idx, kval key, kval raw, double beyond);
/* Sums of row `row` of the block, of columns from col on, by the row's factor to the outputs. */
void wg_attention_store(struct wg_attention *a, kval row, kval col, kval sums, kval factor);
/* wg_attention_units.c: where subgroups multiply. What they have in fragments goes to the threads' tiles through shared memory. */
void wg_attention_units_put_scores(struct wg_attention *a); /* in front of the barrier */
void wg_attention_units_take_scores(struct wg_attention *a);
void wg_attention_units_scale(struct wg_attention *a); /* the sums so far, by the rows' factors */
void wg_attention_units_sums(struct wg_attention *a);
/* wgmma_attention_emit.c: where warpgroups multiply. */
void wgmma_attention_stage(const struct wg_attention_sched *s, struct contraction *p); /* how a product's operands lie in shared memory */
void wgmma_attention_open(struct wg_attention *a); /* arrays of operands, exponentials and factors */
void wgmma_attention_keys(struct wg_attention *a); /* from copies of the queries to the sums of all keys */
void wgmma_attention_sums(struct wg_attention *a); /* to the threads' tiles */
/* wg_attention_keys.c: which keys a workgroup has. */
void wg_attention_find_keys(struct wg_attention *a);
/* wg_attention_columns.c: sums of columns, a grid of its own that computes the scores once more. */
void wg_attention_columns_init(struct wg_attention *a); /* of a->columns: how operands are staged, which the product has been set for */
void wg_attention_columns_open(struct wg_attention *a); /* in front of the grids */
void wg_attention_keep_reduced(struct wg_attention *a, kval row, const kval *at); /* of a row whose reductions are bound, at an index of its scores */
void wg_attention_columns_sum(struct wg_attention *a); /* the grid */
/* wg_attention_split.c: keys divided among workgroups. */
sym wg_attention_parts(const struct wg_attention *a);
void wg_attention_split_open(struct wg_attention *a);  /* in front of the grids */
void wg_attention_split_keys(struct wg_attention *a);  /* leaves those of the part, perhaps none */
void wg_attention_split_store(struct wg_attention *a); /* sums and statistics of the block */
void wg_attention_split_merge(struct wg_attention *a); /* a grid behind */

#endif
