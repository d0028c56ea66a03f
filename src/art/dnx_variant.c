// SPDX-License-Identifier: Apache-2.0
//
// The variant of a program that runs here: by the instruction sets of its native code and of this processor.
#include "art/art.h"

#include <string.h>

static bool no_variant(const struct str *isa, u32 n, const char *what, struct err *e)
{
    struct buf b = {0};
    for (u32 i = 0; i < n; i++) {
        struct isa s;
        struct err unknown = {0};
        buf_z(&b, i ? ", " : "");
        if (isa_parse(&s, isa[i], &unknown)) isa_print(&b, s, '+');
        else buf_str(&b, isa[i]);
    }
    err_set(e, what ? ERR_USAGE : ERR_UNSUPPORTED, "%s%s%s; its code is for %.*s", what ? "no variant '" : "no variant that this processor can run",
            what ? what : "", what ? "'" : ": compile the network for it (--isa native)", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

static u32 named_variant(const char *name, const struct str *isa, u32 n, struct err *e)
{
    struct isa want = isa_here(), s;
    struct err unknown = {0};
    if (strcmp(name, "native") && !isa_parse(&want, str_of(name), e)) return n;
    for (u32 i = 0; i < n; i++)
        if (isa_parse(&s, isa[i], &unknown) && isa_equal(isa_for_code(want), s)) return i;
    no_variant(isa, n, name, e);
    return n;
}

/* The variant with the most extensions; of equal ones the first. */
u32 dnx_choose_variant(void *user, const struct str *isa, u32 n, struct err *e)
{
    const struct dnx_wanted *w = user;
    struct isa here = isa_here(), s;
    struct err unknown = {0};
    u32 best = n, most = 0;
    if (w->isa) return named_variant(w->isa, isa, n, e);
    if (n == 1) return 0; /* checked when it is loaded */
    for (u32 i = 0; i < n; i++) {
        if (!isa_parse(&s, isa[i], &unknown) || !isa_contains(here, s) || (best < n && isa_count(s) <= most)) continue;
        best = i;
        most = isa_count(s);
    }
    if (best == n && w->runs_any) return 0;
    if (best == n) no_variant(isa, n, NULL, e);
    return best;
}
