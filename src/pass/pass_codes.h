// SPDX-License-Identifier: Apache-2.0
//
// Private to pass/: constant weights in few bits (quern::Dequantize).
#ifndef QUERN_PASS_CODES_H
#define QUERN_PASS_CODES_H

#include "pass/pass.h"

enum { CODES_MIN_ELEMENTS = 1 << 14 /* fewer stay in a cache */ };

struct codes { /* by term and column */
    struct tensor *q, *scale, *zero; /* (terms, columns); f32, u8 (blocks, columns) */
    i64 terms, columns, block, blocks, offset;
    enum dtype to;                   /* of what they stand for */
};

static inline bool codes_stand_for(enum dtype t) { return t == DT_F32 || t == DT_F16 || t == DT_BF16; }
/* Content of a constant, or, in the arena, of what is computed from a few nodes of constants; NULL: it is neither. */
const struct tensor *codes_content(struct graph *g, value_id v, struct arena *a);
/* Terms of a block of codes: as the model has it, or a part where it is longer. 0: none that kernels read. */
i64 codes_block(i64 block, i64 terms);
/* Tensors without content, codes of that type, in blocks of codes_block. false: not enough memory. */
bool codes_alloc(struct codes *c, struct graph *g, enum dtype type, i64 terms, i64 columns, i64 block, struct err *e);
/* The weights as a value of a new node, named after n: zero points as an attribute where they are one, scales in 16 bits where they fit. 0: not enough
   memory. */
value_id codes_add(struct graph *g, node_id n, struct codes *c, struct err *e);

/* pass_spelled.c: whether v, weights (terms, columns) or transposed, is (codes - zeros) * scales of constants, or codes alone, moved perhaps, in blocks:
   fills c. *ok false: not enough memory. */
bool codes_spelled(struct graph *g, value_id v, bool is_transposed, struct codes *c, bool *ok, struct err *e);

#endif
