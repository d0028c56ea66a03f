// SPDX-License-Identifier: Apache-2.0
//
// Private to rt/.
#ifndef QUERN_RT_PRIVATE_H
#define QUERN_RT_PRIVATE_H

#include "rt/rt.h"

/* memory.c: the temporary buffers whose sizes are known from one phase on, in a block of their own. */
struct memory_part {
    const u32 *phase_of; /* per buffer */
    u32 phase;
};
/* offset: per buffer, those of other phases stay. */
bool memory_lay_out(const struct plan *p, const i64 *var, const struct memory_part *part, i64 *offset, i64 *total, struct err *e);

#endif
