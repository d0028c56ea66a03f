// SPDX-License-Identifier: Apache-2.0
//
// Growable text or bytes. Sticky: after a failed allocation or a size over 2 GiB the
// buffer stays failed and ignores further writes, so that writers check once at the end.
//
// Numbers are printed as the shortest decimal that reads back to the same double, in the
// C locale. JSON strings are valid UTF-8 for any input: invalid sequences become U+FFFD.
#include "core/core.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reserves n more bytes and a NUL. */
static bool buf_room(struct buf *b, i64 n)
{
    if (b->failed) return false;
    if (n < 0 || n > INT32_MAX - 1 - b->n) return !(b->failed = true);
    if (b->n + n + 1 <= b->cap) return true;
    i64 cap = i64_max(i64_max(64, b->cap * 2), b->n + n + 1);
    char *p = mem_request_small(b->p, cap);
    if (!p) return !(b->failed = true);
    b->p = p;
    b->cap = cap;
    return true;
}

void buf_put(struct buf *b, const void *p, i64 n)
{
    if (!buf_room(b, n)) return;
    if (n) memcpy(b->p + b->n, p, (size_t)n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_str(struct buf *b, struct str s) { buf_put(b, s.p, s.n); }
void buf_z(struct buf *b, const char *z) { buf_str(b, str_of(z)); }
void buf_char(struct buf *b, char c) { buf_put(b, &c, 1); }

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = fmt_va(NULL, 0, fmt, ap);
    if (n < 0) b->failed = true;
    if (n >= 0 && buf_room(b, n)) {
        fmt_va(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_f64(struct buf *b, double v)
{
    if (isnan(v)) {
        buf_z(b, "nan");
        return;
    }
    i64 start = b->n;
    for (int digits = 1; digits <= 17 && !b->failed; digits++) {
        if (digits > 1 && digits < 6) continue; /* one digit or six: the common cases first */
        b->n = start;
        buf_printf(b, "%.*g", digits, v);
        double back;
        if (!b->failed && str_to_f64(str_sub(buf_view(b), start, b->n), &back) && back == v) return;
    }
}

static void json_char(struct buf *b, u8 c)
{
    switch (c) {
    case '"': buf_z(b, "\\\""); break;
    case '\\': buf_z(b, "\\\\"); break;
    case '\n': buf_z(b, "\\n"); break;
    case '\t': buf_z(b, "\\t"); break;
    case '\r': buf_z(b, "\\r"); break;
    default:
        if (c < ' ' || c == 0x7f) buf_printf(b, "\\u%04x", c);
        else buf_char(b, (char)c);
    }
}

void buf_json_str(struct buf *b, struct str s)
{
    buf_char(b, '"');
    for (i64 i = 0; i < s.n;) {
        i64 len = str_utf8(s, i);
        if (len == 1) json_char(b, (u8)s.p[i]);
        else if (len) buf_put(b, s.p + i, len);
        else buf_z(b, "\xef\xbf\xbd");
        i += len ? len : 1;
    }
    buf_char(b, '"');
}

void buf_reset(struct buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->p) b->p[0] = 0;
}

void buf_release(struct buf *b)
{
    free(b->p);
    *b = (struct buf){0};
}

struct str buf_view(const struct buf *b) { return (struct str){b->p, b->n}; }
