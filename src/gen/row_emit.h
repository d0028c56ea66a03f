// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: the emission of reductions of rows on processors (reduce_row, attention).
#ifndef QUERN_GEN_ROW_EMIT_H
#define QUERN_GEN_ROW_EMIT_H

#include "gen/row.h"

struct rows {
    struct emit *m;
    struct row_task x;
    const struct reduction *first; /* its axes make the space */
    struct row_space s;
    u32 lanes;                     /* across: vectors run across the innermost group */
    i64 unroll;
    bool keep;
    value_id room;                 /* output whose elements the last reduction's wait in; 0: scratch memory */
    bool ordered;                  /* sums are taken as gen/row.h promises */
    i64 parts;                     /* accumulators, by an element's number; 0: `unroll` of them, by its place in the loop */
    kval at[MAX_RANK]; /* per group; a vector where lanes run */
    kval limit;        /* lanes across that exist, 0: all */
    kval number, pos;  /* of the element in its row; where the elements of a vector are kept */
    kval base;         /* where the row's elements are kept: its first one; 0: from 0 on */
    kval from, count;  /* of the innermost reduced group: the first element and the number of those that are visited; count 0: all */
    kval store;        /* WORK: what the current reduction computes; 0: not kept */
    bool is_last;      /* of the reductions */
    kval kept[MAX_REDUCE], result[MAX_REDUCE], temp[MAX_REDUCE]; /* kept: WORK arrays, which may be one; 0: not */
    struct kept { struct rows *r; kval array; } waiting[MAX_REDUCE]; /* array 0: in the output */
};

/* Lanes and accumulators for the space, where sums have a promised order. */
void rows_find_parts(struct rows *r);
void rows_index(struct rows *r, kval idx[MAX_RANK]);      /* of the current elements */
void rows_less_index(struct rows *r, kval idx[MAX_RANK]); /* of what they are reduced to */

/* All elements of the current row, or of the current vector of rows; u: number of the accumulator, limit: elements of a vector that exist, 0: all. */
typedef void rows_visit_fn(struct rows *r, const void *user, i64 u, kval limit);
void rows_visit(struct rows *r, rows_visit_fn *fn, const void *user);
/* A vector along the innermost reduced group of the current row, from element e on, of which `limit` exist; 0: all. */
void rows_visit_at(struct rows *r, rows_visit_fn *fn, const void *user, kval e, i64 u, kval limit);
kval rows_reduce(struct rows *r, const struct reduction *red); /* of the current row */
/* All reductions of the current row, in order; binds their results, and what they computed where it is kept, until rows_forget. */
void rows_reduce_all(struct rows *r);
void rows_forget(struct rows *r);
/* emit_fn, user a struct kept: elements of the current row that are kept. */
kval rows_kept(struct emit *m, const void *user, const kval *idx);

#endif
