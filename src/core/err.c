// SPDX-License-Identifier: Apache-2.0
//
// Diagnostics for the user's input. The first error wins, because what follows a failure is noise;
// callers that know more put a prefix before it on the way up.
//
// Messages are cut at the size of the field, never allocated: an error can be reported without memory.
// Bytes below space become blanks, so that names from untrusted files cannot break lines or terminals.
#include "core/core.h"

#include <stdio.h>
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

bool err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e || e->code == ERR_NONE) return false;
    char old[sizeof e->msg];
    memcpy(old, e->msg, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = fmt_va(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n < 0) n = 0;
    msg_clean(e->msg);
    if (n < (int)sizeof e->msg) snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", old);
    return false;
}
