// SPDX-License-Identifier: Apache-2.0
//
// Messages for users, one line each, passed to a callback of the owner. Nothing
// is printed by default: a library does not write to its host's terminal.
//
// Levels: 0 errors, 1 warnings, 2 notes, 3 details. The text is valid during the call only.
#include "core/core.h"

void log_printf(const struct log *l, int level, const char *fmt, ...)
{
    if (!l || !l->line || level > l->level) return;
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    if (!b.failed) l->line(l->user, level, buf_view(&b));
    buf_release(&b);
}
