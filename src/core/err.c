// SPDX-License-Identifier: Apache-2.0
//
// Diagnostics for the user's input. The first error wins, because later ones
// are consequences; callers with more context prepend a prefix on the way up.
//
// Messages are truncated at the size of the field, never allocated:
// errors can be reported without memory. Bytes below space become blanks,
// so that names from untrusted files cannot break lines or terminals.
#include "core/core.h"

#include <string.h>

static void msg_clean(char *p)
{
    for (; *p; p++)
        if ((u8)*p < ' ' && *p != '\n' && *p != '\t') *p = ' ';
}

bool err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    assert(code != ERR_NONE);
    if (!e || e->code != ERR_NONE) return false;
    va_list ap;
    va_start(ap, fmt);
    if (fmt_va(e->msg, sizeof e->msg, fmt, ap) < 0) e->msg[0] = 0;
    va_end(ap);
    msg_clean(e->msg);
    e->code = code;
    return false;
}

/* Appends to the message, truncating it; returns the new length. */
static size_t msg_append(struct err *e, size_t at, const char *z)
{
    size_t n = strlen(z), room = sizeof e->msg - 1 - at;
    if (n > room) n = room;
    memcpy(e->msg + at, z, n);
    e->msg[at + n] = 0;
    return at + n;
}

bool err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e || e->code == ERR_NONE) return false;
    char old[sizeof e->msg];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    if (fmt_va(e->msg, sizeof e->msg, fmt, ap) < 0) e->msg[0] = 0;
    va_end(ap);
    msg_clean(e->msg);
    msg_append(e, msg_append(e, strlen(e->msg), ": "), old);
    return false;
}
