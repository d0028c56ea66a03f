// SPDX-License-Identifier: Apache-2.0
//
// .npy: NumPy's array file, versions 1 to 3: magic, version, header length, then a Python dictionary literal with
// 'descr' (byte order and type), 'fortran_order' and 'shape', then the elements.
//
// Both byte orders and both orders of elements are read; little-endian row-major version 1 is written. NumPy
// has no bf16; like its bfloat16 extension, the void type '<V2' is written and read for it. Types of 8 bits
// and fewer that NumPy lacks are written as f32, i8 or u8, which hold the same numbers (.pb keeps the type).
#include <string.h>

#include "io/io.h"

static const struct {
    const char *code; /* kind and bytes */
    enum dtype dtype;
} types[] = {
    {"f4", DT_F32}, {"f2", DT_F16}, {"f8", DT_F64}, {"V2", DT_BF16}, {"b1", DT_BOOL}, {"i1", DT_I8},  {"i2", DT_I16},
    {"i4", DT_I32}, {"i8", DT_I64}, {"u1", DT_U8},  {"u2", DT_U16},  {"u4", DT_U32},  {"u8", DT_U64},
};

struct header {
    struct tensor shape;  /* dtype, rank, dim */
    bool is_big, is_fortran;
    bool has_descr, has_order, has_shape;
};

/* Reader of the dictionary literal; sticky. */
struct literal {
    struct str s;
    i64 at;
    bool failed;
};

static bool accept(struct literal *l, char c)
{
    while (l->at < l->s.n && (l->s.p[l->at] == ' ' || l->s.p[l->at] == '\n')) l->at++;
    if (l->failed || l->at >= l->s.n || l->s.p[l->at] != c) return false;
    l->at++;
    return true;
}

static void expect(struct literal *l, char c)
{
    if (!accept(l, c)) l->failed = true;
}

static struct str read_string(struct literal *l)
{
    char quote = accept(l, '\'') ? '\'' : '"';
    if (quote == '"') expect(l, '"');
    i64 from = l->at;
    while (l->at < l->s.n && l->s.p[l->at] != quote) l->at++;
    struct str s = str_sub(l->s, from, l->at);
    expect(l, quote);
    return s;
}

/* A word: True, False or a number (Python 2 wrote long integers as 3L). */
static struct str read_word(struct literal *l)
{
    accept(l, ' ');
    i64 from = l->at;
    for (; l->at < l->s.n; l->at++) {
        char c = l->s.p[l->at];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) break;
    }
    return str_sub(l->s, from, l->at);
}

static void read_descr(struct literal *l, struct header *h)
{
    struct str d = read_string(l);
    char order = d.n ? d.p[0] : 0;
    h->has_descr = order == '<' || order == '>' || order == '|' || order == '=';
    h->is_big = order == '>';
    for (i64 k = 0; k < countof(types); k++)
        if (str_is(str_sub(d, 1, d.n), types[k].code)) h->shape.dtype = types[k].dtype;
}

static void read_shape(struct literal *l, struct header *h)
{
    expect(l, '(');
    h->has_shape = true;
    while (!l->failed && !accept(l, ')')) {
        struct str w = read_word(l);
        if (w.n > 1 && w.p[w.n - 1] == 'L') w.n--;
        if (h->shape.rank == MAX_RANK || !str_to_i64(w, &h->shape.dim[h->shape.rank++])) l->failed = true;
        if (!accept(l, ',')) {
            expect(l, ')');
            return;
        }
    }
}

static bool read_dictionary(struct literal *l, struct header *h)
{
    expect(l, '{');
    while (!l->failed && !accept(l, '}')) {
        struct str key = read_string(l);
        expect(l, ':');
        if (str_is(key, "descr")) {
            read_descr(l, h);
        } else if (str_is(key, "fortran_order")) {
            struct str w = read_word(l);
            h->is_fortran = str_is(w, "True");
            h->has_order = h->is_fortran || str_is(w, "False");
        } else if (str_is(key, "shape")) {
            read_shape(l, h);
        } else {
            l->failed = true;
        }
        if (!accept(l, ',')) {
            expect(l, '}');
            break;
        }
    }
    return !l->failed && h->has_descr && h->has_order && h->has_shape;
}

/* The header's text and the rest. */
static bool split_file(struct str bytes, struct str *text, struct str *content)
{
    if (bytes.n < 12 || memcmp(bytes.p, "\x93NUMPY", 6) != 0) return false;
    const u8 *p = (const u8 *)bytes.p;
    i64 at = p[6] == 1 ? 10 : 12, n = p[8] | p[9] << 8;
    if (p[6] < 1 || p[6] > 3) return false;
    if (at == 12) n |= (i64)p[10] << 16 | (i64)p[11] << 24;
    if (n > bytes.n - at) return false;
    *text = str_sub(bytes, at, at + n);
    *content = str_sub(bytes, at + n, bytes.n);
    return true;
}

static void swap_bytes(struct tensor *t)
{
    i64 size = dtype_size(t->dtype), n = tensor_count(t);
    for (i64 k = 0; k < n; k++) {
        u8 *p = (u8 *)t->data + k * size;
        for (i64 i = 0; i < size / 2; i++) {
            u8 c = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = c;
        }
    }
}

/* Column-major source to row-major: walks the destination in order, the index kept with its source offset. */
static void copy_fortran(struct tensor *t, const char *from)
{
    i64 size = dtype_size(t->dtype), n = tensor_count(t), idx[MAX_RANK] = {0}, step[MAX_RANK], at = 0, f = 1;
    for (u32 k = 0; k < t->rank; f *= t->dim[k++]) step[k] = f;
    for (i64 i = 0; i < n; i++) {
        memcpy((char *)t->data + i * size, from + at * size, (size_t)size);
        for (u32 k = t->rank; k-- > 0;) {
            at += step[k];
            if (++idx[k] < t->dim[k]) break;
            at -= step[k] * idx[k];
            idx[k] = 0;
        }
    }
}

static bool npy_read(struct tensor *out, struct arena *a, struct str bytes, struct err *e)
{
    struct header h = {0};
    struct literal l = {0};
    struct str content;
    i64 size;
    if (!split_file(bytes, &l.s, &content)) return err_set(e, ERR_INPUT, "not an npy file, or truncated");
    if (!read_dictionary(&l, &h)) return err_set(e, ERR_INPUT, "invalid npy header");
    if (h.shape.dtype == DT_NONE) return err_set(e, ERR_UNSUPPORTED, "element type of npy file is not supported");
    if (!tensor_size_ok(h.shape.dtype, h.shape.rank, h.shape.dim, &size) || size > content.n)
        return err_set(e, ERR_INPUT, "npy file too short for its shape");
    struct tensor *t = tensor_try(a, h.shape.dtype, h.shape.rank, h.shape.dim, e, "the elements of an npy file", S(""));
    if (!t) return false;
    *out = *t;
    if (h.is_fortran) copy_fortran(out, content.p);
    else if (size) memcpy(out->data, content.p, (size_t)size);
    if (h.is_big) swap_bytes(out);
    u8 *p = out->data;
    for (i64 k = 0; out->dtype == DT_BOOL && k < size; k++) p[k] = p[k] != 0;
    return true;
}

static const char *type_code(enum dtype t)
{
    for (i64 k = 0; k < countof(types); k++)
        if (types[k].dtype == t) return types[k].code;
    unreachable();
}

/* Of a type that NumPy has. */
static struct tensor *as_known(struct arena *a, const struct tensor *t)
{
    bool is_float = dtype_is_float(t->dtype);
    struct tensor *x = tensor_new(a, is_float ? DT_F32 : dtype_stored(t->dtype), t->rank, t->dim);
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        if (is_float) elem_set_f64(x->dtype, x->data, i, elem_f64(t->dtype, t->data, i));
        else elem_set_i64(x->dtype, x->data, i, elem_i64(t->dtype, t->data, i));
    }
    return x;
}

static bool npy_write(struct buf *out, const struct tensor *given, struct err *e)
{
    struct arena a = {0};
    const struct tensor *t = dtype_is_small(given->dtype) ? as_known(&a, given) : given;
    struct buf h = {0};
    buf_printf(&h, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", dtype_size(t->dtype) == 1 ? '|' : '<',
               type_code(t->dtype));
    for (u32 k = 0; k < t->rank; k++) buf_printf(&h, k ? " %lld," : "%lld,", (long long)t->dim[k]);
    if (t->rank > 1) h.n--; /* only a single size keeps its comma */
    buf_z(&h, "), }");
    while ((10 + h.n + 1) % 64) buf_char(&h, ' ');
    buf_char(&h, '\n');
    u8 start[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (u8)h.n, (u8)(h.n >> 8)};
    buf_put(out, start, sizeof start);
    buf_str(out, buf_view(&h));
    buf_put(out, t->data, tensor_bytes(t));
    buf_release(&h);
    arena_release(&a);
    return true;
}

const struct io_format io_npy = {.version = 1, .suffix = ".npy", .read = npy_read, .write = npy_write};
