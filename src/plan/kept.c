// SPDX-License-Identifier: Apache-2.0
//
// Programs kept between calls: at most PLAN_KEPT, by hash. The least recently used one is dropped
// for a new one.
#include "plan/plan.h"

void *plan_kept_find(struct plan_kept *x, struct hash key)
{
    for (u32 i = 0; i < x->n; i++)
        if (x->v[i].key.lo == key.lo && x->v[i].key.hi == key.hi) {
            x->v[i].used = ++x->clock;
            return x->v[i].program;
        }
    return NULL;
}

void *plan_kept_add(struct plan_kept *x, struct hash key, void *program)
{
    u32 at = x->n;
    void *dropped = NULL;
    assert(program);
    if (x->n < PLAN_KEPT) {
        x->n++;
    } else {
        at = 0;
        for (u32 i = 1; i < PLAN_KEPT; i++)
            if (x->v[i].used < x->v[at].used) at = i;
        dropped = x->v[at].program;
    }
    x->v[at].key = key, x->v[at].program = program, x->v[at].used = ++x->clock;
    return dropped;
}
