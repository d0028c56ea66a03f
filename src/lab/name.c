// SPDX-License-Identifier: Apache-2.0
//
// Names of kernels: the whole configuration as an identifier.
//
//   name   = "kcg_MM_b" { number "_" } "M" number "N" number "K" number fields
//          | "kcg_" prefix "_" number "_" number "_" number "_" number fields [ "_k" number ]     batch, heads, queries, size of a head
//   fields = "isAT" flag "W" number "_BM" number ... "RC" flag        in the order of field.inc
//          | "_Br" number "Bc" number "Hd" number "_Sa" number ...    of field_attention.inc
//   number = no leading zeros, at most LAB_MAX_SIZE, of fields LAB_MOST
//
// Fields have a fixed order and none is missing, except for the last two of older names of attention, so a name is parsed from left to
// right, and errors have a column.
#include "lab/lab.h"

#include <string.h>

void lab_name_product(struct buf *b, const struct lab_config *c)
{
    if (lab_is_attention(c->kind)) {
        buf_printf(b, "%s_%lld_%lld_%lld_%lld", lab_kind(c->kind)->prefix, (long long)c->b, (long long)c->h, (long long)c->s, (long long)c->d);
        return;
    }
    buf_char(b, 'b');
    for (u32 i = 0; i < c->n_batch; i++) buf_printf(b, "%lld_", (long long)c->batch[i]);
    buf_printf(b, "M%lldN%lldK%lld", (long long)c->m, (long long)c->n, (long long)c->k);
}

void lab_name_print(struct buf *b, const struct lab_config *c)
{
    const struct lab_fields *t = lab_fields(c->kind);
    buf_z(b, c->kind == LAB_MM ? "kcg_MM_" : "kcg_");
    lab_name_product(b, c);
    for (u32 f = 0; f < t->n; f++)
        buf_printf(b, "%s%s%d", t->breaks >> f & 1 ? "_" : "", t->v[f].tag, c->v[f]);
    if (c->part) buf_printf(b, "_k%u", c->part);
}

/* The rest of a name. */
struct reader {
    struct str name;
    i64 at;
    struct err *e;
};

static struct str rest(const struct reader *r) { return str_sub(r->name, r->at, r->name.n); }

/* The expected and the found text at the current position. Always false. */
QUERN_PRINTF(2, 3) static bool wrong(struct reader *r, const char *fmt, ...)
{
    enum { SHOWN = 16 };
    struct str found = str_sub(rest(r), 0, SHOWN);
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    err_set(r->e, ERR_INPUT, "column %lld: expected %.*s, found %s%.*s%s", (long long)r->at + 1, STR_ARG(buf_view(&b)),
            found.n ? "'" : "the end", STR_ARG(found), found.n ? "'" : "");
    buf_release(&b);
    return false;
}

static bool take(struct reader *r, const char *text)
{
    struct str t = str_of(text);
    if (!str_starts(rest(r), t)) return false;
    r->at += t.n;
    return true;
}

static bool is_digit(struct str s) { return s.n > 0 && s.p[0] >= '0' && s.p[0] <= '9'; }

/* A number least..most; what: the name of the value. */
static bool number(struct reader *r, const char *what, i64 least, i64 most, i64 *v)
{
    struct str left = rest(r);
    i64 n = 0;
    while (is_digit(str_sub(left, n, left.n))) n++;
    bool fine = n > 0 && (n == 1 || left.p[0] != '0') && str_to_i64(str_sub(left, 0, n), v);
    if (!fine || *v < least || *v > most)
        return wrong(r, "a number from %lld to %lld for '%s'", (long long)least, (long long)most, what);
    r->at += n;
    return true;
}

static bool size(struct reader *r, const char *tag, i64 *v)
{
    return take(r, tag) ? number(r, tag, 1, LAB_MAX_SIZE, v) : wrong(r, "'%s'", tag);
}

static bool batches(struct reader *r, struct lab_config *c)
{
    while (is_digit(rest(r))) {
        if (c->n_batch == LAB_MAX_BATCH) return wrong(r, "'M' behind %d batch sizes", LAB_MAX_BATCH);
        if (!number(r, "b", 1, LAB_MAX_SIZE, &c->batch[c->n_batch++])) return false;
        if (!take(r, "_")) return wrong(r, "'_' behind a batch size");
    }
    return true;
}

static bool product_sizes(struct reader *r, struct lab_config *c)
{
    return (take(r, "b") || wrong(r, "'b'")) && batches(r, c) && size(r, "M", &c->m) && size(r, "N", &c->n) && size(r, "K", &c->k);
}

static bool attention_sizes(struct reader *r, struct lab_config *c)
{
    static const char *const what[4] = {"batch", "heads", "queries", "size of a head"};
    i64 *const to[4] = {&c->b, &c->h, &c->s, &c->d};
    for (u32 i = 0; i < 4; i++) {
        if (i && !take(r, "_")) return wrong(r, "'_' behind '%s'", what[i - 1]);
        if (!number(r, what[i], 1, LAB_MAX_SIZE, to[i])) return false;
    }
    return true;
}

static bool field(struct reader *r, enum lab_kind k, u32 f, i32 *out)
{
    const struct lab_field_info *x = lab_field(k, f);
    bool is_transposed = k == LAB_MM && f == LF_TRANS;
    i64 v = 0;
    if (!take(r, x->tag)) return wrong(r, "'%s'", x->tag);
    if (is_transposed && take(r, "True")) v = 1;
    else if (is_transposed && take(r, "False")) v = 0;
    else if (!number(r, x->tag, x->least, x->most, &v)) return false;
    *out = (i32)v;
    return true;
}

static bool fields(struct reader *r, struct lab_config *c)
{
    const struct lab_fields *t = lab_fields(c->kind);
    for (u32 f = 0; f < t->n; f++) {
        if (f == t->n_required && !str_starts(rest(r), str_of(t->v[f].tag))) break;
        if ((t->breaks >> f & 1) && !take(r, "_")) return wrong(r, "'_' behind '%s'", f ? t->v[f - 1].tag : "size of a head");
        if (!field(r, c->kind, f, &c->v[f])) return false;
    }
    return true;
}

/* The kind by its prefix; of those that share one, the first. */
static bool prefix(struct reader *r, struct lab_config *c)
{
    i64 at = r->at, n = 0;
    while (at + n < r->name.n && r->name.p[at + n] != '_') n++;
    struct str word = str_sub(r->name, at, at + n);
    for (u32 k = 0; k < N_LAB_KINDS; k++)
        if (str_is(word, lab_kind(k)->prefix)) {
            c->kind = (enum lab_kind)k, r->at += n;
            return take(r, "_") || wrong(r, "'_' behind '%s'", lab_kind(k)->prefix);
        }
    return wrong(r, "'MM', 'Attention', 'AttentionOrigin', 'AttentionK1', 'AttentionK2', or such a name with 'Gemma2' or 'H2O'");
}

/* "_k1": the kernel of a split attention. All kinds of one prefix are tried for one with as many kernels. */
static bool part(struct reader *r, struct lab_config *c)
{
    const char *own = lab_kind(c->kind)->prefix;
    u32 most = 0;
    i64 v = 0;
    for (u32 k = 0; k < N_LAB_KINDS; k++)
        if (!strcmp(lab_kind(k)->prefix, own)) most = lab_kind(k)->n_parts > most ? lab_kind(k)->n_parts : most;
    if (most == 0 || !take(r, "_k")) return true;
    if (!number(r, "_k", 1, most, &v)) return false;
    c->part = (u32)v;
    for (u32 k = 0; k < N_LAB_KINDS; k++)
        if (!strcmp(lab_kind(k)->prefix, own) && lab_kind(k)->n_parts >= c->part) return c->kind = (enum lab_kind)k, true;
    unreachable();
}

bool lab_is_name(struct str text) { return str_starts(text, S("kcg_")); }

bool lab_name_parse(struct lab_config *c, struct str name, struct err *e)
{
    struct reader r = {name, 0, e};
    *c = (struct lab_config){0};
    bool ok = (take(&r, "kcg_") || wrong(&r, "'kcg_'")) && prefix(&r, c);
    ok = ok && (lab_is_attention(c->kind) ? attention_sizes(&r, c) : product_sizes(&r, c));
    ok = ok && fields(&r, c) && part(&r, c) && (r.at == name.n || wrong(&r, "the end"));
    return ok || err_prefix(e, "kernel name '%.*s'", (int)i64_min(name.n, 300), name.p);
}
