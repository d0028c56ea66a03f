// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: attention taken apart, and its emission on processors (family/attention.c).
// Dims: scores (b.., m, n) = q (b.., m, d) x k (b.., d, n); y (b.., m, e) = p (b.., m, n) x v (b.., n, e), with p a function of the scores that reduces
// them along n. Rows m are queries, of several heads where these share keys; columns n are keys.
//
// A task has some of three results: statistics of rows, what the scores are reduced to along n; y; sums of columns, (.., n) of p along m. Where statistics
// are inputs, nothing is reduced along n. Without y there is no second product.
#ifndef QUERN_GEN_ATTENTION_H
#define QUERN_GEN_ATTENTION_H

#include "gen/cpu_gemm.h"
#include "gen/row_emit.h"

struct attention {
    struct gemm scores, values; /* the products; values: there is none if y is 0 */
    struct row_task rows;       /* the reductions of scores, in order; each needs what the one before has computed, at most; n 0: rows need nothing of others */
    value_id p;                 /* left operand of the second product; without one, what the last reduction takes, or what columns sum up */
    value_id score;             /* what the first reduction takes, or, without reductions, an exponential; else the first product */
    struct reduction columns;   /* sums along m, of values of the shape of `score`; out 0: there are none */
    u32 n_between;              /* nodes that compute something for each score */
    value_id statistic[MAX_REDUCE]; /* outputs of the task beside the second product's: numbers of rows, (.., rows, 1) or (.., rows) */
    u32 n_statistics;
    /* Exponentials of the differences from the maximum, summed up; p has these times a number per row, or zeros for a row. */
    bool is_softmax;
    bool is_exponential;        /* without reductions: p and what columns sum up are exponentials of `score` less a number per row, times another one */
    bool has_band;              /* of both: scores outside of it are -infinity, or as good as that */
    struct op_band band;
    bool has_mask;              /* of both: data says which scores are -infinity, or as good as that, */
    bool is_masked_by_row;      /* of each row of an iteration; else of all alike */
    bool has_reach;             /* with has_mask: scores outside of the band are so, too; but a row that has no others needs all */
};
/* false: not one or two matmuls with reductions along the last axis behind the first one, or not in a form that rows of scores in one array can take. */
bool attention_of(struct attention *x, const struct task *t);
static inline bool attention_has_values(const struct attention *x) { return x->values.y != 0; }
/* Are there results of rows, statistics or y? Else only sums of columns. */
static inline bool attention_has_rows(const struct attention *x) { return attention_has_values(x) || x->rows.n; }
/* May keys be taken block by block? */
static inline bool attention_has_blocks(const struct attention *x) { return x->is_softmax || !x->rows.n; }
enum { ATTENTION_FEW = 64 }; /* keys that no mask is looked at for */
/* How scores are multiplied on processors: pairs of 16-bit queries and keys by dot products, where the target has them. Their products are exact, and sums of
   two are rounded to f32 as those of multiply-adds. The probabilities are f32, and so are the multiply-adds with the values. */
struct tile_product attention_score_product(const struct attention *x, const struct caps *c);
/* attention_form.c: are the rows of a product those of whole heads? A regrouping of heads may cut them into pieces. */
bool attention_has_whole_heads(const struct attention *x, const struct graph *g);
/* attention_form.c: sets is_softmax, has_band, band, has_mask and has_reach, by what p is computed from. attention_score, without reductions: score and is_exponential. */
void attention_score(struct attention *x, const struct task *t);
void attention_form(struct attention *x, const struct task *t, const struct caps *c);

enum attention_keys {
    KEYS_ONCE,  /* packed by a grid in front, blocks of columns */
    KEYS_PLACE, /* read where they lie, vectors along d */
};
enum attention_values {
    VALUES_ONCE,
    VALUES_PLACE, /* read where they lie, vectors along e */
};
struct attention_sched {
    i64 mr;     /* rows of the register tiles */
    i64 nr, nv; /* vectors of keys of the first product's; in place: keys; of columns of the second one's */
    i64 mb;     /* tiles of rows per grid iteration, at most; 0: all */
    i64 nb;     /* blocks of keys at a time; 0: all of the iteration */
    i64 split;  /* keys of a grid iteration, at most; 0: all */
    i64 keys, values;
    i64 ahead;  /* in place: requested into the second cache in advance */
    i64 heads;  /* an iteration has all heads of a batch, block of keys by block */
    i64 ku;     /* terms per step of the inner loops */
};

/* Of rows: the greatest of their scores so far; relative to it, the sums of exponentials and of their products with values. */
struct attention_sums {
    kval most, sum, out; /* arrays; out: [row][column] */
    kval pitch;
};

struct attention_kernel {
    struct emit *m;
    struct attention x;
    struct attention_sched s;
    struct gemm_kernel first, second;
    struct rows rows;
    kval n_rows;        /* of an iteration, whole tiles */
    kval scores, pitch; /* WORK array, [row of the iteration][key]; elements from one row to the next */
    kval p[MAX_RANK];   /* index of the current row of p, key 0 */
    kval from, to;      /* keys of the iteration, which its rows may attend to */
    struct attention_sums sums;  /* WORK: of the iteration's rows */
    struct attention_sums parts; /* TEMP: of all rows by parts of the keys, [batch][row][part] */
    kval batch, part, n_parts;
    kval reduced[MAX_REDUCE]; /* TEMP, with sums of columns: results of the reductions of all rows, [batch][row] */
    kval columns, first_column; /* WORK: sums of the iteration's columns, from that one on */
    kval known[MAX_REDUCE]; /* of the current row: results of the reductions */
    kval heads, batches; /* of an iteration that has several, 0: it has one; the number of the other axes of batches */
    u32 head_axis;       /* of the products */
};

/* Keys in steps of which blocks and parts of them begin. */
static inline i64 attention_width(const struct attention_sched *s, u32 lanes) { return s->keys == KEYS_PLACE ? (i64)lanes : s->nr * (i64)lanes; }
/* Is a softmax taken by blocks or parts of the keys? */
static inline bool attention_is_online(const struct attention_sched *s) { return s->nb || s->split; }
sym attention_rows(const struct attention *x); /* of all batches */
/* Elements from one row of scores to the next in scratch memory. */
sym attention_pitch(const struct attention *x, const struct attention_sched *s, u32 lanes);
void attention_emit(struct emit *m, const struct task *t, const struct caps *c, const struct attention_sched *s);

/* attention_block.c, for gradients, too: the task's graph with those outputs alone that depend on a product, to which its tiles are stored; */
const struct graph *attention_graph_of(struct emit *m, value_id y);
/* rows with every axis of what is reduced, the last one reduced; the keys that some row of the iteration may attend to. */
void attention_open_space(struct attention_kernel *a, const struct caps *c);
void attention_find_keys(struct attention_kernel *a);
/* May keys be left out? */
static inline bool attention_has_part(const struct attention_kernel *a) { return a->x.has_band || a->x.has_mask; }
/* Finds a row, binds what is known of it, and tells the index of its first element in v. */
typedef void attention_find_fn(struct attention_kernel *a, kval row, kval idx[MAX_RANK]);
/* The iteration's keys become all, if masked scores of some row make anything else than zeros of v: its statistics are of no score. */
void attention_check_rows(struct attention_kernel *a, attention_find_fn *find, value_id v);
/* What an iteration has of a product: pos per axis, rows m0..m1-1. */
void attention_place(struct gemm_kernel *p, const kval *pos, kval m0, kval m1);
void attention_open_scores(struct attention_kernel *a, sym rows); /* in a grid: arrays of so many rows */
void attention_open_rows(struct attention_kernel *a, const struct caps *c);
/* A row of scores becomes one of p, `at`: where its first key lies in it. */
void attention_do_row(struct attention_kernel *a, kval row, kval at);
/* attention.c, for gradients, too: does a view keep the axis of keys? */
bool attention_keeps_last(const struct shape *from, const struct shape *to);
/* attention_cost.c */
struct attention_reach { double begin, end; };
/* Of n keys those that some of the rows from..to-1 may attend to by the band, at least one; rows are of one head or several, with as many queries each.
   Without a band: as if the last query saw all keys, and each one before it one less, as masks mostly say. */
struct attention_reach attention_keys_of_rows(const struct attention *x, sym queries, double n, double from, double to, const i64 *var);
/* Seconds of a term of so many rows and vectors of columns, by tiles of mr rows, and of `rest` for what is left over. */
double attention_step(const struct nest_rates *r, i64 rows, i64 rest, i64 mr, i64 vectors, i64 nr);
/* attention_row.c */
struct attention_asked { kval idx[MAX_RANK]; u32 rank; };
kval attention_note_index(struct emit *m, const void *user, const kval *idx); /* for emit_bind: the index that is asked for, of an attention_asked */
struct attention_row { /* indices of a row, key 0 */
    kval p[MAX_RANK], scores[MAX_RANK]; /* of p; of what is reduced */
};
struct attention_span { kval from, to; }; /* from..to-1 */
void attention_index_row(struct emit *m, const struct attention *x, const kval *pos, kval row, struct attention_row *to); /* pos: batches, per axis of the values' product */
void attention_forget(struct emit *m, const struct attention *x); /* unbinds scores and reductions */
/* Of rows from..to-1 of the product: of the keys 0..n-1 those that some row may attend to by the band, at least one. */
void attention_band_keys(struct emit *m, const struct attention *x, const struct attention_span *rows, struct attention_span *keys);
/* Of a softmax: by which a row's sums of products are multiplied, p where the exponential is 1; NaN of a row whose keys are all masked, 0 if there are no
   keys. The row's reductions are bound to both until attention_forget. */
kval attention_factor(struct emit *m, const struct attention *x, const kval *p, const kval *most, kval *sum);
/* Opens a loop over the heads of an iteration, if it has several; what follows is of one of them. */
void attention_open_head(struct attention_kernel *a);
void attention_close_head(struct attention_kernel *a);
kval attention_own(const struct attention_kernel *a, kval row); /* the number of a row's sums */
void attention_find_row(struct attention_kernel *a, kval row); /* p's index, and the row in the axes of the reductions */
/* Of a row whose reductions are bound, at an index of its scores; of the current row. */
void attention_store_statistics_at(struct emit *m, const struct attention *x, const kval *at);
void attention_store_statistics(struct attention_kernel *a, kval row);
void attention_product(struct gemm_kernel *p, kval from, kval to); /* of blocks of columns from..to-1 */
/* attention_place.c: operands that are read where they lie. */
void attention_dot_keys(struct attention_kernel *a, kval from, kval to); /* scores of keys from..to-1 */
/* Keys of an operand, along its axis, that lie together while a table of integers says where; 0: all do, or their number is not known. */
i64 attention_page(const struct task *t, value_id v, u32 axis);
i64 attention_chunk(i64 page); /* keys of a page whose places are computed together; they divide it */
/* Adds the products of the scores with the values of keys from..to-1 to the sums; the first key's scores are the first ones. */
void attention_sum_values(struct attention_kernel *a, kval from, kval to);
extern const struct cpu_addressing attention_value_rows;
void attention_multiply_values(struct cpu_contraction *c, struct tile *t, const struct cpu_piece *e, struct tile_out *o);
/* attention_mask.c */
bool attention_depends(const struct kir *k, kval v, kval on); /* does an expression use a value? */
bool attention_is_masked(const struct kir *k, kval v); /* is it the constant -infinity? */
/* Of a masked score, computed from the product `raw`: whether it is not masked; 0: it is not known, or always so. */
kval attention_open(struct kir *k, kval score, kval raw);
/* The keys from..to-1 that are not masked for some row of the iteration, at least one. */
void attention_find_unmasked(struct attention_kernel *a);
/* attention_online.c: by blocks of keys. */
void attention_open_sums(struct attention_kernel *a, sym rows); /* in a grid: arrays */
void attention_clear_sums(struct attention_kernel *a, kval rows);
void attention_online(struct attention_kernel *a); /* sums of the iteration's keys */
void attention_finish_row(struct attention_kernel *a, kval row, kval own); /* to the outputs; own: the number of its sums */
extern const struct cpu_addressing attention_sum_tiles, attention_sum_rows; /* of the second product; own */
/* attention_columns.c: sums of columns, a grid of its own that computes the scores once more. */
void attention_columns_open(struct attention_kernel *a); /* in front of the grids */
void attention_columns_sum(struct attention_kernel *a, const struct caps *c); /* the grid */
/* attention_split.c: keys divided among grid iterations. */
sym attention_parts(const struct attention *x, const struct attention_sched *s);
void attention_split_open(struct attention_kernel *a);  /* in front of the grids */
void attention_split_keys(struct attention_kernel *a);  /* leaves those of the iteration's part, perhaps none */
void attention_split_store(struct attention_kernel *a); /* the iteration's sums */
void attention_split_merge(struct attention_kernel *a); /* a grid behind */

#endif
