// SPDX-License-Identifier: Apache-2.0
//
// Private to the builder: its records about each instruction, and the rules it applies before it
// appends one.
#ifndef QUERN_KIR_BUILD_H
#define QUERN_KIR_BUILD_H

#include "kir/kir.h"

struct kir_side { /* parallel to ins */
    struct kir_range range;
    kval next; /* next older instruction of the same chain; NOT_SHARED: in no chain */
    u32 hash;
    u8 twos; /* 2^twos divides it */
    u8 data; /* kir_data */
};

/* Each returns an earlier or simpler value, or 0. Rules build values themselves, so they are above
   the builder, which calls them through this table. */
struct kir_rules {
    kval (*un)(struct kir *k, enum kir_op op, kval a);
    kval (*bin)(struct kir *k, enum kir_op op, kval a, kval b); /* equal lanes */
    kval (*dot)(struct kir *k, kval a, kval b, kval c);
    kval (*select)(struct kir *k, kval cond, kval a, kval b);
    kval (*fma)(struct kir *k, kval a, kval b, kval c);
    kval (*cast)(struct kir *k, enum dtype t, kval a);
};
extern const struct kir_rules kir_rules; /* simplify.c */

#endif
