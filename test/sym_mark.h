// SPDX-License-Identifier: Apache-2.0
//
// Restores the facts about sizes: a node that is tried and rejected must not leave facts behind.
// Newer facts modify older ones in place, so all are copied.
#ifndef QUERN_TEST_SYM_MARK_H
#define QUERN_TEST_SYM_MARK_H

#include "core/core.h"

#include <string.h>

struct sym_mark {
    void *v[4]; /* facts, bindings of variables and floors, bounds */
    u32 n[4];
};

#define SYM_LISTS(X) X(0, fact) X(1, def) X(2, alias) X(3, bound)

static inline struct sym_mark sym_mark(const struct symtab *t, struct arena *a)
{
    struct sym_mark m;
#define X(i, list)                                                     \
    m.n[i] = t->list.n;                                                \
    m.v[i] = arena_alloc(a, (i64)(t->list.n * sizeof *t->list.v) + 1); \
    if (m.n[i]) memcpy(m.v[i], t->list.v, m.n[i] * sizeof *t->list.v);
    SYM_LISTS(X)
#undef X
    return m;
}

static inline void sym_rewind(struct symtab *t, const struct sym_mark *m)
{
#define X(i, list)                                                       \
    t->list.n = m->n[i];                                                 \
    if (m->n[i]) memcpy(t->list.v, m->v[i], m->n[i] * sizeof *t->list.v);
    SYM_LISTS(X)
#undef X
}

#endif
