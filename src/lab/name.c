// SPDX-License-Identifier: Apache-2.0
//
// Names of kernels: the whole configuration as an identifier.
//
//   name   = "kcg_MM_b" { number "_" } "M" number "N" number "K" number "isAT" flag "W" number "_" fields
//   fields = "BM" number "BN" number ... "RC" flag               in the order of field.inc
//   number = no leading zeros, at most LAB_MAX_SIZE, of fields LAB_MOST
//
// Every field is present, so a name is parsed from left to right, and errors have a column.
#include "lab/lab.h"

static const struct lab_field_info info[N_LAB_FIELDS] = {
#define X(id, tag, key, old, param, least, most, what) {tag, key, old, param, what, least, most},
#include "lab/field.inc"
#undef X
};

const struct lab_field_info *lab_field(enum lab_field f)
{
    assert(f < N_LAB_FIELDS);
    return &info[f];
}

void lab_name_product(struct buf *b, const struct lab_config *c)
{
    buf_char(b, 'b');
    for (u32 i = 0; i < c->n_batch; i++) buf_printf(b, "%lld_", (long long)c->batch[i]);
    buf_printf(b, "M%lldN%lldK%lld", (long long)c->m, (long long)c->n, (long long)c->k);
}

void lab_name_print(struct buf *b, const struct lab_config *c)
{
    buf_z(b, "kcg_MM_");
    lab_name_product(b, c);
    for (u32 f = 0; f < N_LAB_FIELDS; f++)
        buf_printf(b, "%s%s%d", f == LF_BM ? "_" : "", info[f].tag, c->v[f]);
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

static bool field(struct reader *r, enum lab_field f, i32 *out)
{
    const struct lab_field_info *x = lab_field(f);
    i64 v = 0;
    if (!take(r, x->tag)) return wrong(r, "'%s'", x->tag);
    if (f == LF_TRANS && take(r, "True")) v = 1;
    else if (f == LF_TRANS && take(r, "False")) v = 0;
    else if (!number(r, x->tag, x->least, x->most, &v)) return false;
    *out = (i32)v;
    return true;
}

static bool fields(struct reader *r, struct lab_config *c)
{
    for (u32 f = 0; f < N_LAB_FIELDS; f++) {
        if (f == LF_BM && !take(r, "_")) return wrong(r, "'_' behind 'W'");
        if (!field(r, f, &c->v[f])) return false;
    }
    return r->at == r->name.n || wrong(r, "the end");
}

bool lab_is_name(struct str text) { return str_starts(text, S("kcg_")); }

bool lab_name_parse(struct lab_config *c, struct str name, struct err *e)
{
    struct reader r = {name, 0, e};
    *c = (struct lab_config){0};
    bool ok = take(&r, "kcg_MM_b") || wrong(&r, "'kcg_MM_b'");
    ok = ok && batches(&r, c) && size(&r, "M", &c->m) && size(&r, "N", &c->n) && size(&r, "K", &c->k);
    return (ok && fields(&r, c)) || err_prefix(e, "kernel name '%.*s'", (int)i64_min(name.n, 300), name.p);
}
