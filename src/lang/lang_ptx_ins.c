// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_ins.c: instructions of PTX. Those without effects are emitted once, in the outermost structure
// that has all operands; cheap ones (index arithmetic) also leave branches, others only loops.
#include "lang/lang_ptx.h"

#include <stdarg.h>
#include <string.h>

static const char *const prefix[N_PTX_CLASSES] = {"%p", "%h", "%r", "%rd", "%f", "%fd"};

bool ptx_fail(struct ptx *s, const char *what)
{
    return err_set(s->err, ERR_UNSUPPORTED, "kernel '%.*s' %s", STR_ARG(s->k->name), what);
}

struct ptx_level *ptx_inner(struct ptx *s) { return &s->level.v[s->level.n - 1]; }

static pval define(struct ptx *s, const struct ptx_def *d)
{
    *arr_push(s->arena, &s->def) = *d;
    return s->def.n - 1;
}

static pval new_at(struct ptx *s, enum ptx_class c, u32 level)
{
    return define(s, &(struct ptx_def){.cls = c, .level = level, .n = s->n_reg[c]++});
}

pval ptx_new(struct ptx *s, enum ptx_class c) { return new_at(s, c, s->level.n - 1); }

pval ptx_same(struct ptx *s, pval x)
{
    struct ptx_def d = s->def.v[x];
    d.level = s->level.n - 1;
    return define(s, &d);
}

enum ptx_class ptx_class(const struct ptx *s, pval x) { return s->def.v[x].cls; }

/* Text. */

static void put(struct ptx *s, struct buf *b, pval x)
{
    const struct ptx_def *d = &s->def.v[x];
    if (!d->is_imm) {
        buf_printf(b, "%s%u", prefix[d->cls], d->n);
        return;
    }
    switch (d->cls) {
    case PC_FLOAT: buf_printf(b, "0f%08X", (u32)d->bits); break;
    case PC_DOUBLE: buf_printf(b, "0d%016llX", (unsigned long long)d->bits); break;
    case PC_LONG: buf_printf(b, "0x%llx", (unsigned long long)d->bits); break;
    case PC_WORD: buf_printf(b, "%d", (i32)d->bits); break;
    case PC_PRED:
    case PC_HALF:
    case N_PTX_CLASSES: unreachable();
    }
}

static void write(struct ptx *s, struct buf *b, pval result, const char *op, const pval arg[4])
{
    buf_char(b, '\t');
    buf_z(b, op);
    buf_char(b, ' ');
    put(s, b, result);
    for (u32 i = 0; i < 4 && arg[i]; i++) {
        buf_z(b, ", ");
        put(s, b, arg[i]);
    }
    buf_z(b, ";\n");
}

static void put_all(struct ptx *s, const char *fmt, va_list ap)
{
    struct buf *b = &ptx_inner(s)->code;
    for (; *fmt; fmt++) {
        if (*fmt != '%') {
            buf_char(b, *fmt);
            continue;
        }
        switch (*++fmt) {
        case 'r': put(s, b, va_arg(ap, pval)); break;
        case 's': buf_z(b, va_arg(ap, const char *)); break;
        case 'd': buf_printf(b, "%d", va_arg(ap, int)); break;
        case 'l': buf_printf(b, "%lld", (long long)va_arg(ap, i64)); break;
        default: unreachable();
        }
    }
}

void ptx_put(struct ptx *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_all(s, fmt, ap);
    va_end(ap);
}

void ptx_line(struct ptx *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_all(s, fmt, ap);
    va_end(ap);
    buf_char(&ptx_inner(s)->code, '\n');
}

/* Sharing. */

static u64 hash_of(enum ptx_class c, const char *op, const pval arg[4])
{
    u64 h = 0xcbf29ce484222325u + (u64)c;
    for (; *op; op++) h = (h ^ (u8)*op) * 0x100000001b3u;
    for (u32 i = 0; i < 4; i++) h = (h ^ arg[i]) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static pval find(struct ptx *s, u64 hash, const char *op, const pval arg[4])
{
    for (u32 i = s->bucket[hash % PTX_BUCKETS]; i; i = s->entry.v[i].next) {
        const struct ptx_entry *e = &s->entry.v[i];
        if (e->op && e->hash == hash && strcmp(e->op, op) == 0 && memcmp(e->arg, arg, sizeof e->arg) == 0) return e->result;
    }
    return 0;
}

static pval keep(struct ptx *s, u64 hash, const char *op, const pval arg[4], pval result)
{
    u32 *bucket = &s->bucket[hash % PTX_BUCKETS], *peers = &s->level.v[s->def.v[result].level].entries;
    struct ptx_entry e = {.hash = hash, .op = str_z(s->arena, str_of(op)), .result = result, .next = *bucket, .peer = *peers};
    memcpy(e.arg, arg, sizeof e.arg);
    *arr_push(s->arena, &s->entry) = e;
    *bucket = *peers = s->entry.n - 1;
    return result;
}

pval ptx_imm(struct ptx *s, enum ptx_class c, u64 bits)
{
    const pval key[4] = {(u32)bits, (u32)(bits >> 32)};
    u64 hash = hash_of(c, "constant", key);
    for (u32 i = s->bucket[hash % PTX_BUCKETS]; i; i = s->entry.v[i].next) {
        const struct ptx_entry *e = &s->entry.v[i];
        if (e->hash == hash && e->op && strcmp(e->op, "constant") == 0 && s->def.v[e->result].cls == c && s->def.v[e->result].bits == bits)
            return e->result;
    }
    return keep(s, hash, "constant", key, define(s, &(struct ptx_def){.cls = c, .is_imm = true, .bits = bits}));
}

pval ptx_int(struct ptx *s, enum ptx_class c, i64 v) { return ptx_imm(s, c, c == PC_WORD ? (u64)(i64)(i32)v : (u64)v); }

bool ptx_is_int(const struct ptx *s, pval x, i64 *v)
{
    const struct ptx_def *d = &s->def.v[x];
    if (!x || !d->is_imm || (d->cls != PC_WORD && d->cls != PC_LONG)) return false;
    *v = (i64)d->bits;
    return true;
}

static bool is_cheap(enum ptx_class c, const char *op)
{
    return (c == PC_WORD || c == PC_LONG) && strncmp(op, "div", 3) && strncmp(op, "rem", 3);
}

/* The structure for an instruction: the outermost one that has the operands. */
static u32 home(const struct ptx *s, enum ptx_class c, const char *op, const pval arg[4])
{
    u32 least = 0, at = s->level.n - 1;
    for (u32 i = 0; i < 4 && arg[i]; i++)
        if (s->def.v[arg[i]].level > least) least = s->def.v[arg[i]].level;
    while (at > least && (!s->level.v[at].is_branch || is_cheap(c, op))) at--;
    return at;
}

pval ptx_ins(struct ptx *s, enum ptx_class c, const char *op, const pval arg[4])
{
    u64 hash = hash_of(c, op, arg);
    pval r = find(s, hash, op, arg);
    if (r) return r;
    u32 at = home(s, c, op, arg);
    r = new_at(s, c, at);
    write(s, &s->level.v[at].code, r, op, arg);
    return keep(s, hash, op, arg, r);
}

void ptx_to(struct ptx *s, pval result, const char *op, const pval arg[4])
{
    write(s, &ptx_inner(s)->code, result, op, arg);
}

pval ptx_source(struct ptx *s, enum ptx_class c, const char *op, const char *from)
{
    static const pval none[4];
    const char *key = str_fmt(s->arena, "%s %s", op, from).p;
    u64 hash = hash_of(c, key, none);
    pval r = find(s, hash, key, none);
    if (r) return r;
    struct buf *b = &s->level.v[0].code;
    r = new_at(s, c, 0);
    buf_printf(b, "\t%s %s%u, %s;\n", op, prefix[c], s->def.v[r].n, from);
    return keep(s, hash, key, none, r);
}

pval ptx_reg(struct ptx *s, pval x)
{
    static const char *const move[N_PTX_CLASSES] = {"", "", "mov.b32", "mov.b64", "mov.f32", "mov.f64"};
    return s->def.v[x].is_imm ? PTX_INS(s, s->def.v[x].cls, move[s->def.v[x].cls], x) : x;
}

/* Structures. */

void ptx_open(struct ptx *s, kval open, bool is_branch)
{
    *arr_push(s->arena, &s->level) = (struct ptx_level){.open = open, .is_branch = is_branch};
}

void ptx_forget(struct ptx *s)
{
    u32 *i = &ptx_inner(s)->entries;
    for (; *i; *i = s->entry.v[*i].peer) s->entry.v[*i].op = NULL;
}

void ptx_close(struct ptx *s, struct ptx_level *l)
{
    ptx_forget(s);
    *l = s->level.v[--s->level.n];
}

void ptx_append(struct ptx *s, struct buf *text)
{
    buf_str(&ptx_inner(s)->code, buf_view(text));
    buf_release(text);
}

u32 ptx_labels(struct ptx *s, u32 n)
{
    s->n_label += n;
    return s->n_label - n;
}

/* Index arithmetic. */

pval ptx_add(struct ptx *s, pval a, pval b)
{
    enum ptx_class c = ptx_class(s, a);
    i64 x, y;
    if (ptx_is_int(s, a, &x)) {
        if (ptx_is_int(s, b, &y)) return ptx_int(s, c, (i64)((u64)x + (u64)y));
        return x ? ptx_add(s, b, a) : b;
    }
    if (ptx_is_int(s, b, &y) && y == 0) return a;
    return PTX_INS(s, c, c == PC_WORD ? "add.s32" : "add.s64", a, b);
}

pval ptx_times(struct ptx *s, pval a, i64 n)
{
    enum ptx_class c = ptx_class(s, a);
    i64 x;
    if (ptx_is_int(s, a, &x)) return ptx_int(s, c, (i64)((u64)x * (u64)n));
    if (n == 1) return a;
    if (n > 0 && (n & (n - 1)) == 0)
        return PTX_INS(s, c, c == PC_WORD ? "shl.b32" : "shl.b64", a, ptx_int(s, PC_WORD, __builtin_ctzll((u64)n)));
    return PTX_INS(s, c, c == PC_WORD ? "mul.lo.s32" : "mul.lo.s64", a, ptx_int(s, c, n));
}

pval ptx_mask(struct ptx *s, pval a, i64 mask)
{
    enum ptx_class c = ptx_class(s, a);
    i64 x;
    if (ptx_is_int(s, a, &x)) return ptx_int(s, c, x & mask);
    return PTX_INS(s, c, c == PC_WORD ? "and.b32" : "and.b64", a, ptx_int(s, c, mask));
}

pval ptx_shr(struct ptx *s, pval a, u32 n)
{
    enum ptx_class c = ptx_class(s, a);
    i64 x;
    if (n == 0) return a;
    if (ptx_is_int(s, a, &x)) return ptx_int(s, c, c == PC_WORD ? (i64)((u32)x >> n) : (i64)((u64)x >> n));
    return PTX_INS(s, c, c == PC_WORD ? "shr.u32" : "shr.u64", a, ptx_int(s, PC_WORD, n));
}

pval ptx_resize(struct ptx *s, pval x, enum ptx_class to)
{
    i64 v;
    if (ptx_class(s, x) == to) return x;
    if (ptx_is_int(s, x, &v)) return ptx_int(s, to, v);
    return to == PC_LONG ? PTX_INS(s, to, "cvt.s64.s32", x) : PTX_INS(s, to, "cvt.u32.u64", x);
}
