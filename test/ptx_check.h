// SPDX-License-Identifier: Apache-2.0
//
// Checks a text of language ptx: on every path from a function's entry to an instruction, each value that it reads
// has been written. The emitter shares values between structures and moves them out of loops and branches, and the
// assembler accepts a register that is never written. Registers that are written several times, or by a copy, may
// be elements of arrays, which the interpreter of kernel IR checks.
#ifndef QUERN_TEST_PTX_CHECK_H
#define QUERN_TEST_PTX_CHECK_H

#include "core/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PTX_OPERANDS = 512 };

struct ptx_line {
    u32 n_read, n_written, *read, *written; /* registers by number */
    u32 label, target;     /* number + 1 of the label here, of the branch's target; 0: none */
    bool falls_through, is_guarded, is_copy;
};

struct ptx_flow {
    struct arena arena;
    u32 *n_written;        /* by register; copies count twice */
    struct map name;       /* of registers and labels: "%r12", "L3" */
    struct { struct ptx_line *v; u32 n, cap; } line;
};

static inline u32 ptx_number_of(struct ptx_flow *f, struct str name)
{
    u64 *old = map_get(&f->name, name);
    if (old) return (u32)*old;
    u32 n = f->name.n;
    map_put(&f->name, str_dup(&f->arena, name), n);
    return n;
}

static inline bool ptx_in_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/* The next register or label of a line; special registers, "%tid.x", are none. */
static inline struct str ptx_next(struct str *s)
{
    for (i64 i = 0; i < s->n; i++) {
        bool is_register = s->p[i] == '%', is_label = s->p[i] == 'L' && (i == 0 || !ptx_in_name(s->p[i - 1]));
        if (!is_register && !is_label) continue;
        i64 n = 1;
        while (i + n < s->n && ptx_in_name(s->p[i + n])) n++;
        struct str found = str_sub(*s, i, i + n);
        bool is_special = is_register && i + n < s->n && s->p[i + n] == '.';
        *s = str_sub(*s, i + n, s->n);
        if (!is_special) return found;
        i = -1;
    }
    *s = (struct str){0};
    return (struct str){0};
}

/* The operands written come first: one, or a list in braces; stores, copies, barriers and branches write none. The sums
   of a warpgroup are read, too. */
static inline void ptx_parse_line(struct ptx_flow *f, struct str s)
{
    static const char *const writes_none[] = {"st.", "cp.async", "bra", "bar.", "fence", "mbarrier.init", "mbarrier.expect", "wgmma.fence",
                                              "wgmma.commit", "wgmma.wait", "ret", ".reg", ".shared", ".local"};
    struct ptx_line l = {.falls_through = true};
    u32 read[PTX_OPERANDS], written[PTX_OPERANDS];
    s = str_trim(s);
    if (s.n && s.p[0] == '@') {
        l.is_guarded = true;
        read[l.n_read++] = ptx_number_of(f, ptx_next(&s));
        s = str_trim(s);
    }
    if (s.n && s.p[s.n - 1] == ':') {
        l.label = ptx_number_of(f, str_sub(s, 0, s.n - 1)) + 1;
    } else {
        bool writes = true, accumulates = str_starts(s, S("wgmma.mma"));
        for (i64 i = 0; i < countof(writes_none); i++) writes &= !str_starts(s, str_of(writes_none[i]));
        l.is_copy = str_starts(s, S("mov."));
        if (str_starts(s, S("bra ")) || str_starts(s, S("ret"))) l.falls_through = l.is_guarded;
        if (str_starts(s, S(".")) || str_starts(s, S("{")) || str_starts(s, S("}"))) s = (struct str){0};
        i64 list = -1, end = 0;
        for (i64 i = 0; i < s.n && list < 0; i++)
            if (s.p[i] == ' ' || s.p[i] == '\t') list = i;
        while (end < s.n && s.p[end] != ',' && s.p[end] != '{') end++;
        if (end < s.n && s.p[end] == '{' && list >= 0 && end <= list + 1)
            while (end < s.n && s.p[end] != '}') end++;
        struct str first = str_sub(s, 0, end), rest = str_sub(s, end, s.n), name;
        while ((name = ptx_next(&first)).n) {
            u32 n = ptx_number_of(f, name);
            if (name.p[0] == 'L') l.target = n + 1;
            else {
                if (writes) written[l.n_written++] = n;
                if (!writes || accumulates) read[l.n_read++] = n;
            }
        }
        l.is_copy &= l.n_written == 1;
        while ((name = ptx_next(&rest)).n) read[l.n_read++] = ptx_number_of(f, name);
    }
    l.read = arena_array(&f->arena, u32, l.n_read + 1);
    l.written = arena_array(&f->arena, u32, l.n_written + 1);
    memcpy(l.read, read, l.n_read * sizeof *read);
    memcpy(l.written, written, l.n_written * sizeof *written);
    *arr_push(&f->arena, &f->line) = l;
}

/* One pass over a function: known[i] is the set of registers written on all paths to line i. false: nothing changed. */
static inline bool ptx_pass(const struct ptx_flow *f, u64 **known, u32 n_word, u64 *at)
{
    bool changed = false;
    memset(at, 0, n_word * sizeof *at);
    bool reached = true;
    for (u32 i = 0; i < f->line.n; i++) {
        const struct ptx_line *l = &f->line.v[i];
        if (l->label) {
            u64 *here = known[l->label - 1];
            for (u32 w = 0; w < n_word; w++) {
                u64 both = reached ? here[w] & at[w] : here[w];
                changed |= both != here[w];
                here[w] = at[w] = both;
            }
            reached = true;
        }
        if (l->target) {
            u64 *to = known[l->target - 1];
            for (u32 w = 0; w < n_word; w++) {
                changed |= (to[w] & at[w]) != to[w];
                to[w] &= at[w];
            }
        }
        if (!l->is_guarded)
            for (u32 k = 0; k < l->n_written; k++) at[l->written[k] / 64] |= (u64)1 << l->written[k] % 64;
        if (!l->falls_through) reached = false;
    }
    return changed;
}

/* NULL, or the first line that reads a register not written on all paths. */
static inline const char *ptx_check_function(struct ptx_flow *f, struct arena *a)
{
    u32 n_word = f->name.n / 64 + 1;
    u64 **known = arena_array(&f->arena, u64 *, f->name.n + 1), *at = arena_array(&f->arena, u64, n_word);
    for (u32 i = 0; i < f->line.n; i++) {
        u32 label = f->line.v[i].label, target = f->line.v[i].target;
        for (u32 k = 0; k < 2; k++) {
            u32 n = k ? target : label;
            if (!n || known[n - 1]) continue;
            known[n - 1] = arena_array(&f->arena, u64, n_word);
            memset(known[n - 1], 0xff, n_word * sizeof(u64));
        }
    }
    f->n_written = arena_array(&f->arena, u32, f->name.n + 1);
    for (u32 i = 0; i < f->line.n; i++)
        for (u32 k = 0; k < f->line.v[i].n_written; k++) f->n_written[f->line.v[i].written[k]] += f->line.v[i].is_copy ? 2 : 1;
    while (ptx_pass(f, known, n_word, at)) continue;
    memset(at, 0, n_word * sizeof *at);
    for (u32 i = 0; i < f->line.n; i++) {
        const struct ptx_line *l = &f->line.v[i];
        if (l->label) memcpy(at, known[l->label - 1], n_word * sizeof *at);
        for (u32 k = 0; k < l->n_read; k++)
            if (f->n_written[l->read[k]] < 2 && !(at[l->read[k] / 64] >> l->read[k] % 64 & 1))
                return str_fmt(a, "line %u reads '%.*s', which is not written on every path", i + 1, STR_ARG(f->name.v[l->read[k]].key)).p;
        if (!l->is_guarded)
            for (u32 k = 0; k < l->n_written; k++) at[l->written[k] / 64] |= (u64)1 << l->written[k] % 64;
    }
    return NULL;
}

/* NULL: all functions of the text are right. */
static inline const char *ptx_check(struct str text, struct arena *a)
{
    const char *wrong = NULL;
    struct ptx_flow f = {0};
    bool inside = false;
    struct str line, rest;
    for (rest = text; rest.n && !wrong;) {
        str_cut(rest, '\n', &line, &rest);
        if (!inside && str_is(line, "{")) {
            inside = true;
            map_init(&f.name, &f.arena);
        } else if (inside && str_is(line, "}")) {
            wrong = ptx_check_function(&f, a);
            arena_release(&f.arena);
            f = (struct ptx_flow){0};
            inside = false;
        } else if (inside) {
            ptx_parse_line(&f, line);
        }
    }
    arena_release(&f.arena);
    return wrong;
}

#endif
