// SPDX-License-Identifier: Apache-2.0
//
// code.c: the code of a program's kernels, by the tuner's builder: cached by text, several compilers at once.
#include "plan/plan.h"

/* A candidate that takes a minute to build is abandoned, but a selected kernel is needed: even a
   busy machine builds any kernel in this time. */
enum { BUILD_SECONDS = 600 };

bool plan_build_code(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    const struct plan_code *x = user;
    struct builder b = x->builder;
    struct built *r = arena_array(a, struct built, n + 1);
    b.timeout = BUILD_SECONDS;
    if (!build_all(&b, text, n, r, a, e)) return false;
    for (u32 i = 0; i < n; i++) {
        if (!r[i].ok)
            return err_set(e, r[i].why == ERR_UNSUPPORTED ? ERR_UNSUPPORTED : ERR_FAILED, "a kernel does not build: %.*s", STR_ARG(r[i].message));
        out[i] = r[i].code;
        if (x->see) x->see(x->user, text[i], out[i]);
    }
    return true;
}
