// SPDX-License-Identifier: Apache-2.0
//
// Slices of bytes: comparing, cutting, numbers, patterns, formatting.
//
// A slice does not own its bytes and is not NUL-terminated; only the copies of str_arena.c
// have a NUL. Numbers and formats use the C locale even if the
// embedding program has set another one, because every text quern writes must be
// readable by quern anywhere: hence uselocale around the C functions (the "C"
// locale object is static in the C library, so this costs nothing and cannot fail).
#include "core/core.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct str str_of(const char *z) { return (struct str){z, z ? (i64)strlen(z) : 0}; }

bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, (size_t)a.n) == 0);
}

bool str_is(struct str a, const char *z) { return str_eq(a, str_of(z)); }

int str_cmp(struct str a, struct str b)
{
    i64 n = i64_min(a.n, b.n);
    int c = n ? memcmp(a.p, b.p, (size_t)n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && str_eq(str_sub(s, 0, prefix.n), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && str_eq(str_sub(s, s.n - suffix.n, s.n), suffix);
}

struct str str_sub(struct str s, i64 from, i64 to)
{
    from = i64_min(i64_max(from, 0), s.n);
    to = i64_min(i64_max(to, from), s.n);
    return (struct str){s.p ? s.p + from : NULL, to - from};
}

bool str_cut(struct str s, char sep, struct str *head, struct str *tail)
{
    const char *at = s.n ? memchr(s.p, sep, (size_t)s.n) : NULL;
    i64 i = at ? at - s.p : s.n;
    *head = str_sub(s, 0, i);
    *tail = str_sub(s, i + 1, s.n);
    return at != NULL;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct str str_trim(struct str s)
{
    while (s.n && is_space(s.p[0])) s = str_sub(s, 1, s.n);
    while (s.n && is_space(s.p[s.n - 1])) s.n--;
    return s;
}

bool str_to_i64(struct str s, i64 *out)
{
    bool neg = s.n && s.p[0] == '-';
    i64 i = s.n && (neg || s.p[0] == '+'), v = 0;
    if (i == s.n) return false;
    for (; i < s.n; i++) {
        int d = s.p[i] - '0';
        if (d < 0 || d > 9) return false;
        /* Downwards for negative numbers, so that INT64_MIN can be read. */
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, neg ? -d : d, &v))
            return false;
    }
    *out = v;
    return true;
}

/* The "C" locale: in the calling thread only, until locale_back. */
static locale_t locale_c(void) { return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); }

static void locale_back(locale_t old) { uselocale(old); }

bool str_to_f64(struct str s, double *out)
{
    char z[400], *end;
    if (s.n <= 0 || s.n >= (i64)sizeof z || is_space(s.p[0])) return false;
    memcpy(z, s.p, (size_t)s.n);
    z[s.n] = 0;
    locale_t old = locale_c();
    double v = strtod(z, &end);
    locale_back(old);
    if (end != z + s.n) return false;
    *out = v;
    return true;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Linear scan that returns to the last '*' on a mismatch: no recursion, no exponential time. */
bool str_glob(struct str pattern, struct str s)
{
    i64 p = 0, i = 0, star = -1, from = 0;
    while (i < s.n) {
        if (p < pattern.n && pattern.p[p] == '*') {
            star = p++;
            from = i;
        } else if (p < pattern.n && (pattern.p[p] == '?' || lower(pattern.p[p]) == lower(s.p[i]))) {
            p++, i++;
        } else if (star >= 0) {
            p = star + 1;
            i = ++from;
        } else {
            return false;
        }
    }
    while (p < pattern.n && pattern.p[p] == '*') p++;
    return p == pattern.n;
}

int fmt_va(char *out, size_t size, const char *fmt, va_list ap)
{
    locale_t old = locale_c();
    int n = vsnprintf(out, size, fmt, ap);
    locale_back(old);
    return n;
}

i64 str_distance(struct str a, struct str b)
{
    enum { MAX = 64 };
    i64 row[MAX + 1];
    if (a.n > MAX || b.n > MAX) return str_eq(a, b) ? 0 : MAX;
    for (i64 j = 0; j <= b.n; j++) row[j] = j;
    for (i64 i = 0; i < a.n; i++) {
        i64 diagonal = row[0];
        row[0] = i + 1;
        for (i64 j = 1; j <= b.n; j++) {
            i64 change = diagonal + (lower(a.p[i]) != lower(b.p[j - 1]));
            diagonal = row[j];
            row[j] = i64_min(change, i64_min(row[j], row[j - 1]) + 1);
        }
    }
    return row[b.n];
}

i64 str_utf8(struct str s, i64 at)
{
    const u8 *p = (const u8 *)s.p + at;
    const i64 n = s.n - at;
    if (p[0] < 0x80) return 1;
    int len = p[0] >= 0xc2 && p[0] < 0xe0   ? 2
              : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
              : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                            : 0;
    if (len == 0 || len > n) return 0;
    for (int i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool outside = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f);
    return overlong || outside ? 0 : len;
}
