// SPDX-License-Identifier: Apache-2.0
//
// Reading of value lists as a space. Keys are those of the fields, of a GEMM in their newer or older form, and a GEMM's sizes and element
// types. Unknown and missing keys are errors, as are lists that are empty or contain anything but whole numbers in range.
//
// Files with "cfgs" list points of their template's space as decimal numbers, a digit per key in the order of the keys, which exceed
// every integer type: they are read as texts.
#include "lab/json.h"
#include "lab/lab.h"

#include <string.h>

enum { MAX_VALUES = 64, MAX_DEPTH_DIGITS = 15 };

enum base_key { KEY_M, KEY_N, KEY_K, KEY_BATCH, KEY_TYPE_A, KEY_TYPE_B, KEY_TYPE_C, N_BASE_KEYS };
static const char *const base_key[N_BASE_KEYS] = {"M_SIZE",     "N_SIZE",     "K_SIZE",    "BATCH_SIZE",
                                                  "DATATYPE_A", "DATATYPE_B", "DATATYPE_C"};

/* Element types by their numbers in such files. */
static enum dtype type_of(i64 number)
{
    switch (number) {
    case 2: return DT_F16;
    case 4: return DT_F32;
    case 8: return DT_F64;
    case 62: return DT_BF16;
    default: return DT_NONE;
    }
}

struct file {
    struct lab_space *s;
    struct arena *a;
    struct err *e;
    u64 seen; /* fields, then base keys */
    enum dtype type[3];
};

static enum lab_kind kind(const struct file *f) { return f->s->base.kind; }
static u32 n_fields(const struct file *f) { return lab_fields(kind(f))->n; }
static u32 n_base_keys(const struct file *f) { return lab_is_attention(kind(f)) ? 0 : N_BASE_KEYS; }

static bool wrong_value(struct file *f, const char *key, const json_t *v, const char *expected)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    err_set(f->e, ERR_INPUT, "key '%s': expected %s, found %.60s", key, expected, text ? text : "nothing");
    free(text); /* allocated by jansson */
    return false;
}

/* A list of whole numbers least..most. */
static bool read_list(struct file *f, const char *key, const json_t *j, i64 least, i64 most, struct lab_list *out)
{
    size_t n = json_array_size(j);
    if (!json_is_array(j)) return wrong_value(f, key, j, "a list of numbers");
    if (n == 0) return err_set(f->e, ERR_INPUT, "key '%s': the list is empty", key);
    if (n > MAX_VALUES) return err_set(f->e, ERR_INPUT, "key '%s': more than %d values", key, MAX_VALUES);
    *out = (struct lab_list){arena_array(f->a, i32, n), (u32)n};
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(j, i);
        json_int_t x = json_integer_value(v);
        if (!json_is_integer(v)) return wrong_value(f, key, v, "a whole number");
        if (x < least || x > most)
            return err_set(f->e, ERR_INPUT, "key '%s': %lld is not within %lld to %lld", key, (long long)x,
                           (long long)least, (long long)most);
        out->v[i] = (i32)x;
    }
    return true;
}

static bool read_one(struct file *f, const char *key, const json_t *j, i64 least, i64 most, i64 *out)
{
    struct lab_list l;
    if (!read_list(f, key, j, least, most, &l)) return false;
    if (l.n > 1) return err_set(f->e, ERR_INPUT, "key '%s': takes one value, found %u", key, l.n);
    *out = l.v[0];
    return true;
}

/* Sizes of 1 are omitted. */
static bool read_batch(struct file *f, const json_t *j)
{
    struct lab_list l;
    struct lab_config *c = &f->s->base;
    if (!read_list(f, base_key[KEY_BATCH], j, 1, LAB_MAX_SIZE, &l)) return false;
    for (u32 i = 0; i < l.n; i++) {
        if (l.v[i] == 1) continue;
        if (c->n_batch == LAB_MAX_BATCH)
            return err_set(f->e, ERR_INPUT, "key '%s': more than %d sizes above 1", base_key[KEY_BATCH], LAB_MAX_BATCH);
        c->batch[c->n_batch++] = l.v[i];
    }
    return true;
}

static bool read_type(struct file *f, enum base_key k, const json_t *j)
{
    i64 number;
    if (!read_one(f, base_key[k], j, 0, LAB_MOST, &number)) return false;
    f->type[k - KEY_TYPE_A] = type_of(number);
    return f->type[k - KEY_TYPE_A] != DT_NONE ||
           err_set(f->e, ERR_UNSUPPORTED, "key '%s': no element type %lld, expected 4 (f32), 2 (f16), 62 (bf16) or 8 (f64)",
                   base_key[k], (long long)number);
}

static bool read_base(struct file *f, enum base_key k, const json_t *j)
{
    struct lab_config *c = &f->s->base;
    switch (k) {
    case KEY_M: return read_one(f, base_key[k], j, 1, LAB_MAX_SIZE, &c->m);
    case KEY_N: return read_one(f, base_key[k], j, 1, LAB_MAX_SIZE, &c->n);
    case KEY_K: return read_one(f, base_key[k], j, 1, LAB_MAX_SIZE, &c->k);
    case KEY_BATCH: return read_batch(f, j);
    case KEY_TYPE_A:
    case KEY_TYPE_B:
    case KEY_TYPE_C: return read_type(f, k, j);
    case N_BASE_KEYS:
    default: unreachable();
    }
}

/* Fields that have one value in a space. */
static bool is_single(const struct file *f, u32 k)
{
    return lab_is_attention(kind(f)) ? k == LA_W || k == LA_LCP || k == LA_LCO : k == LF_W || k == LF_TRANS;
}

static bool read_field(struct file *f, u32 k, const char *key, const json_t *j)
{
    const struct lab_field_info *x = lab_field(kind(f), k);
    i64 one;
    if (!is_single(f, k)) return read_list(f, key, j, x->least, x->most, &f->s->list[k]);
    if (!read_one(f, key, j, x->least, x->most, &one)) return false;
    f->s->base.v[k] = (i32)one;
    return true;
}

/* A field's number, that of a base key behind them; the number of both: unknown. */
static u32 find_key(const struct file *f, const char *key)
{
    const struct lab_fields *t = lab_fields(kind(f));
    u32 k = 0;
    for (; k < t->n; k++)
        if (!strcmp(key, t->v[k].key)) return k;
    for (u32 i = 0; i < t->n; i++)
        if (t->v[i].old_key[0] && !strcmp(key, t->v[i].old_key)) return i;
    while (k < t->n + n_base_keys(f) && strcmp(key, base_key[k - t->n])) k++;
    return k;
}

/* In the older form the names of the scatter widths stood one level lower, so "WARP_SCATTER_WIDTH_A" and "_M" are different
   fields; nothing else is ambiguous. */
static bool read_key(struct file *f, const char *key, const json_t *j)
{
    u32 k = find_key(f, key), n = n_fields(f);
    if (k == n + n_base_keys(f)) return err_set(f->e, ERR_INPUT, "unknown key '%s'", key);
    if (f->seen >> k & 1) return err_set(f->e, ERR_INPUT, "key '%s' is there in its newer and its older spelling", key);
    f->seen |= (u64)1 << k;
    return k < n ? read_field(f, k, key, j) : read_base(f, k - n, j);
}

/* Fields of the output, which kernels without one do not choose. */
static bool is_of_output(u32 k)
{
    return k == LA_SB || k == LA_OTR || k == LA_OTC || k == LA_GLWV || (k >= LA_BLOY && k <= LA_WSWV) || k == LA_LCO || k == LA_RPO;
}

/* The size of a head is given; older files have no shuffles; a row of scores lies in one subgroup. */
static bool is_optional(const struct file *f, u32 k)
{
    if (!lab_is_attention(kind(f))) return false;
    bool has_output = lab_kind(kind(f))->computes.has_o;
    return k == LA_HD || k == LA_SHP || k == LA_SKP || (!has_output && (is_of_output(k) || k == LA_BLPX));
}

static void set_one(struct file *f, u32 k, i32 v)
{
    f->s->list[k] = (struct lab_list){arena_array(f->a, i32, 1), 1};
    f->s->list[k].v[0] = v;
}

/* Lists that a file lacks, or that its kind does not choose from. */
static void complete_attention(struct file *f)
{
    static const u8 off[] = {LA_SPP, LA_RPP, LA_RPO, LA_SHP, LA_SKP};
    const struct lab_kind_info *info = lab_kind(kind(f));
    struct lab_space *s = f->s;
    s->dtype = DT_F32;
    s->list[LA_HD] = (struct lab_list){0};
    s->base.v[LA_HD] = (i32)s->base.d;
    for (i64 i = 0; i < countof(off); i++)
        if (info->is_origin || (off[i] >= LA_SHP && !s->list[off[i]].n)) set_one(f, off[i], 0);
    if (info->computes.has_o) return;
    for (u32 k = 0; k < n_fields(f); k++)
        if (is_of_output(k) && !is_single(f, k)) set_one(f, k, k == LA_SB || k == LA_GLWV ? 4 : k == LA_RPO ? 0 : 1);
    set_one(f, LA_BLPX, 1);
    set_one(f, LA_SHP, 0);
    set_one(f, LA_SKP, 0);
    s->base.v[LA_LCO] = 1;
}

static bool complete_gemm(struct file *f)
{
    if (f->type[0] != f->type[1] || f->type[0] != f->type[2])
        return err_set(f->e, ERR_UNSUPPORTED, "element types %s, %s and %s differ", dtype_name(f->type[0]),
                       dtype_name(f->type[1]), dtype_name(f->type[2]));
    f->s->dtype = f->type[0];
    return true;
}

static bool read_lists(struct file *f, const json_t *j)
{
    const char *key;
    json_t *v;
    u32 n = n_fields(f);
    if (!json_is_object(j)) return err_set(f->e, ERR_INPUT, "no object of keys and lists");
    json_object_foreach((json_t *)(uintptr_t)j, key, v)
        if (!read_key(f, key, v)) return false;
    for (u32 k = 0; k < n + n_base_keys(f); k++)
        if (!(f->seen >> k & 1) && !is_optional(f, k))
            return err_set(f->e, ERR_INPUT, "key '%s' is missing", k < n ? lab_field(kind(f), k)->key : base_key[k - n]);
    if (!lab_is_attention(kind(f))) return complete_gemm(f);
    complete_attention(f);
    return true;
}

/* Points listed by their digits. */

/* The digit of a key sets its field; fields without effect (no intra-block split-K) are 0, as in names. */
static bool set_digit(struct file *f, struct lab_config *c, const char *key, u32 digit)
{
    u32 k = find_key(f, key);
    if (k >= n_fields(f) || is_single(f, k))
        return digit == 0 || err_set(f->e, ERR_INPUT, "digit %u of key '%s', which has one value", digit, key);
    if (digit >= f->s->list[k].n)
        return err_set(f->e, ERR_INPUT, "digit %u of key '%s', which has %u values", digit, key, f->s->list[k].n);
    c->v[k] = f->s->list[k].v[digit];
    return true;
}

static bool read_point(struct file *f, const json_t *lists, struct str digits)
{
    struct lab_config c = f->s->base;
    const char *key;
    json_t *v;
    i64 at = digits.n - (i64)json_object_size(lists); /* leading zeros are omitted */
    for (i64 i = 0; i < digits.n; i++)
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return err_set(f->e, ERR_INPUT, "'%.*s' is not a number", (int)i64_min(digits.n, 60), digits.p);
    if (digits.n == 0 || at > 0)
        return err_set(f->e, ERR_INPUT, "'%.*s' has not one digit for each of %zu keys", (int)i64_min(digits.n, 60), digits.p,
                       json_object_size(lists));
    json_object_foreach((json_t *)(uintptr_t)lists, key, v) {
        u32 digit = at < 0 ? 0 : (u32)(digits.p[at] - '0');
        at++;
        if (!set_digit(f, &c, key, digit)) return err_prefix(f->e, "'%.*s'", STR_ARG(digits));
    }
    if (c.v[LF_LSU] == 1) c.v[LF_GSW] = c.v[LF_RC] = 0;
    *arr_push(f->a, &f->s->listed) = c;
    return true;
}

static bool read_points(struct file *f, const json_t *lists, const json_t *points)
{
    if (!json_array_size(points)) return err_set(f->e, ERR_INPUT, "key 'cfgs': no list, or an empty one");
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *p = json_array_get(points, i);
        struct buf b = {0};
        if (json_is_integer(p)) buf_printf(&b, "%lld", (long long)json_integer_value(p));
        else if (json_is_string(p)) buf_z(&b, json_string_value(p));
        struct str digits = str_dup(f->a, buf_view(&b));
        buf_release(&b);
        if (!digits.n) return wrong_value(f, "cfgs", p, "a whole number");
        if (!read_point(f, lists, digits)) return err_prefix(f->e, "key 'cfgs'");
    }
    return true;
}

/* Puts quotes around numbers of more digits than an integer holds. */
static void quote_long_numbers(struct buf *b, struct str json)
{
    bool in_text = false;
    for (i64 i = 0; i < json.n; i++) {
        i64 n = 0;
        while (!in_text && i + n < json.n && json.p[i + n] >= '0' && json.p[i + n] <= '9') n++;
        if (n > MAX_DEPTH_DIGITS) buf_printf(b, "\"%.*s\"", (int)i64_min(n, 4096), json.p + i);
        else if (n) buf_put(b, json.p + i, n);
        if (n) {
            i += n - 1;
            continue;
        }
        if (json.p[i] == '"') in_text = !in_text;
        buf_char(b, json.p[i]);
        if (in_text && json.p[i] == '\\' && i + 1 < json.n) buf_char(b, json.p[++i]);
    }
}

/* A file for the kernels of a split attention has the lists of each; a kind without lists of its own needs a file for one kernel. */
static bool read_attention(struct file *f, const json_t *j)
{
    const char *key = lab_kind(kind(f))->lists;
    const json_t *own = key ? json_object_get(j, key) : NULL;
    if (own) return read_lists(f, own) || err_prefix(f->e, "'%s'", key);
    if (json_object_get(j, "k1"))
        return err_set(f->e, ERR_INPUT, "the file has lists for several kernels, but %s%s%s for kind '%s'", key ? "no '" : "none", key ? key : "", key ? "'" : "",
                       lab_kind(kind(f))->op);
    return read_lists(f, j);
}

static bool read_gemm(struct file *f, const json_t *j)
{
    const json_t *lists = json_object_get(j, "template"), *points = json_object_get(j, "cfgs");
    if (!lists && !points) return read_lists(f, j);
    if (!lists || !points || json_object_size(j) != 2)
        return err_set(f->e, ERR_INPUT, "expected the keys 'template' and 'cfgs' and nothing else");
    if (!read_lists(f, lists)) return err_prefix(f->e, "'template'");
    return read_points(f, lists, points);
}

bool lab_space_read(struct lab_space *s, struct arena *a, struct str json, const struct lab_config *of, struct err *e)
{
    struct file f = {.s = s, .a = a, .e = e};
    struct buf b = {0};
    *s = (struct lab_space){.base = *of, .max_threads = 1024, .max_shared = 64 << 10};
    quote_long_numbers(&b, json);
    json_t *j = lab_json_read(buf_view(&b), e);
    bool ok = j && (lab_is_attention(of->kind) ? read_attention(&f, j) : read_gemm(&f, j));
    json_decref(j);
    buf_release(&b);
    return ok;
}
