// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of symbolic sizes: a table per test, and expressions from text.
#ifndef QUERN_TEST_SYM_FIXTURE_H
#define QUERN_TEST_SYM_FIXTURE_H

#include "core/core.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

struct fixture {
    struct arena a;
    struct symtab t;
};

static inline int setup(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    symtab_init(&f->t, &f->a);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    arena_release(&f->a);
    mem_free(f);
    return 0;
}

static inline sym parse(struct symtab *t, const char *z)
{
    struct err e = {0};
    sym s = sym_parse(t, str_of(z), &e);
    if (!s) fail_msg("%s", e.msg);
    return s;
}

#endif
