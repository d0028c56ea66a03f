// SPDX-License-Identifier: Apache-2.0
//
// code.c: the code of a program's kernels, by the tuner's builder: cached by text, several compilers at once. The builder deals texts in
// turn; the time of a compiler is about proportional to the text, so the longest come first, and no process is left with a long one at the end.
#include "plan/plan.h"

#include <stdlib.h>

/* A candidate that takes a minute to build is abandoned, but a selected kernel is needed: even a
   busy machine builds any kernel in this time. */
enum { BUILD_SECONDS = 600 };

struct piece { struct str text; u32 at; };

static int by_length(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->text.n != y->text.n) return x->text.n < y->text.n ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

bool plan_build_code(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    const struct plan_code *x = user;
    struct builder b = x->builder;
    struct built *r = arena_array(a, struct built, n + 1);
    struct piece *piece = arena_array(a, struct piece, n + 1);
    struct str *sorted = arena_array(a, struct str, n + 1);
    b.timeout = BUILD_SECONDS;
    for (u32 i = 0; i < n; i++) piece[i] = (struct piece){text[i], i};
    qsort(piece, n, sizeof *piece, by_length);
    for (u32 i = 0; i < n; i++) sorted[i] = piece[i].text;
    if (!build_all(&b, sorted, n, r, a, e)) return false;
    for (u32 i = 0; i < n; i++) {
        if (!r[i].ok)
            return err_set(e, r[i].why == ERR_UNSUPPORTED ? ERR_UNSUPPORTED : ERR_FAILED, "a kernel does not build: %.*s", STR_ARG(r[i].message));
        out[piece[i].at] = r[i].code;
    }
    for (u32 i = 0; i < n && x->see; i++) x->see(x->user, text[i], out[i]);
    return true;
}
