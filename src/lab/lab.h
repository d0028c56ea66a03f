// SPDX-License-Identifier: Apache-2.0
//
// lab: matrix products for GPUs by configurations. A configuration is a point of a space that a file of value lists spans; its
// kernel name says all of it, so that a name alone rebuilds the kernel (doc/gemm.md).
//
//   field.inc  the fields of a configuration      name.c     names of kernels, both ways
//   config.c   what a configuration says: threads, groups, memory; in words
#ifndef QUERN_LAB_H
#define QUERN_LAB_H

#include "core/core.h"

enum lab_field {
#define X(id, tag, key, old, param, least, most, what) LF_##id,
#include "lab/field.inc"
#undef X
    N_LAB_FIELDS
};

struct lab_field_info {
    const char *tag, *key, *old_key, *param, *what;
    i32 least, most; /* values */
};
const struct lab_field_info *lab_field(enum lab_field f);

enum { LAB_MAX_BATCH = 4, LAB_MOST = 1 << 16 /* of a field */, LAB_MAX_SIZE = 1 << 30 /* of m, n, k, a batch */ };

/* y (b.., m, n) = a (b.., m, k) x b (b.., k, n), and how. Of f32 where nothing else says the type. */
struct lab_config {
    u32 n_batch;
    i64 batch[LAB_MAX_BATCH];
    i64 m, n, k;
    i32 v[N_LAB_FIELDS];
};

/* name.c: "kcg_MM_b12_M1024N64K1024isAT1W64_BM64 ... RC0", the grammar in doc/gemm.md. What prints parses back to an equal
   configuration; what parses prints back identically, but for "isATTrue", which is "isAT1". */
void lab_name_print(struct buf *b, const struct lab_config *c);
bool lab_name_parse(struct lab_config *c, struct str name, struct err *e); /* ERR_INPUT with field, what was found, column */
bool lab_is_name(struct str text); /* does it begin like one? */

/* config.c */
i64 lab_threads(const struct lab_config *c); /* of a group */
i64 lab_shared(const struct lab_config *c, i64 size); /* bytes of shared arrays of elements of `size` bytes: the larger of both operands' tiles and sums of teams */
i64 lab_registers(const struct lab_config *c); /* of a thread: sums and operands of a term */
/* Do the fields agree with each other? false: a kernel cannot be made of them, ERR_INPUT with the fields that disagree. */
bool lab_config_check(const struct lab_config *c, struct err *e);
void lab_explain(struct buf *b, const struct lab_config *c); /* every field in words, lines */

#endif
