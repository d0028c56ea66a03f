// SPDX-License-Identifier: Apache-2.0
//
// Slices copied into arenas, formatted ones included. These copies are NUL-terminated.
#include "core/core.h"

#include <stdarg.h>
#include <string.h>

struct str str_dup(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (s.n) memcpy(p, s.p, (size_t)s.n);
    return (struct str){p, s.n};
}

const char *str_z(struct arena *a, struct str s) { return str_dup(a, s).p; }
struct str str_fmt(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = fmt_va(NULL, 0, fmt, ap);
    struct str s = {arena_alloc(a, n < 0 ? 1 : (i64)n + 1), n < 0 ? 0 : n};
    if (n > 0) fmt_va((char *)(uintptr_t)s.p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return s;
}
