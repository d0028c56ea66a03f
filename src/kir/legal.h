// SPDX-License-Identifier: Apache-2.0
//
// Private to copy.c, legal.c and prune.c: copying a kernel through the builder, instruction by instruction,
// so that whatever a pass substitutes is folded and shared again. A value of the old kernel is one
// or, when split, several values (pieces) of the new one.
#ifndef QUERN_KIR_LEGAL_H
#define QUERN_KIR_LEGAL_H

#include "kir/kir.h"

struct kir_copy {
    const struct kir *in;
    struct kir *out;
    kval *piece; /* of all values; those of v start at first[v] */
    u32 *first;
    u8 narrow[65]; /* lanes of the pieces of a vector of that many lanes */
};

void kir_copy_init(struct kir_copy *c,
                   struct arena *scratch);        /* in and out are set, out by kir_init */
u32 kir_copy_n(const struct kir_copy *c, kval v); /* pieces of v */
kval kir_copy_get(const struct kir_copy *c, kval v, u32 i); /* piece i of v; v = 0 gives 0 */
void kir_copy_set(struct kir_copy *c, kval v, kval to);     /* v has one piece */
void kir_copy_ins(struct kir_copy *c, kval v); /* any instruction, with mapped operands */

/* prune.c: later stages; out was just initialised by kir_init. */
void kir_split_arrays(struct kir *out, struct arena *scratch, const struct kir *in);
void kir_drop_dead(struct kir *out, struct arena *scratch, const struct kir *in);

#endif
