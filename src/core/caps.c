// SPDX-License-Identifier: Apache-2.0
//
// caps.c: a target's limits as one line of text, "key=value" words; values with
// spaces are in double quotes. The keys are the names of the fields. Fields that are
// zero or empty are omitted, unknown keys are errors. The text is untrusted, so it
// never contains compiler commands: options follow from the instruction set (isa.c).
#include "core/core.h"

#include <string.h>

enum field_kind { FIELD_TEXT, FIELD_U32, FIELD_I64, FIELD_BOOL, FIELD_ISA };

#define FIELD(member, k)                                                                           \
    {                                                                                              \
#member, k, offsetof(struct caps, member), sizeof(((struct caps *)0)->member)              \
    }
static const struct field {
    const char *name;
    enum field_kind kind;
    size_t at, size;
} fields[] = {
    FIELD(arch, FIELD_TEXT), FIELD(vector_bytes, FIELD_U32), FIELD(n_vector_regs, FIELD_U32),
    FIELD(n_threads, FIELD_U32), FIELD(l1_bytes, FIELD_I64), FIELD(l2_bytes, FIELD_I64),
    FIELD(l3_bytes, FIELD_I64), FIELD(has_fma, FIELD_BOOL), FIELD(in_order, FIELD_BOOL), FIELD(fixed_point, FIELD_BOOL), FIELD(no_winograd, FIELD_BOOL),
    FIELD(deterministic, FIELD_BOOL), FIELD(is_gpu, FIELD_BOOL), FIELD(is_emulated, FIELD_BOOL),
    FIELD(max_group, FIELD_U32), FIELD(subgroup, FIELD_U32), FIELD(subgroup_min, FIELD_U32),
    FIELD(subgroup_max, FIELD_U32), FIELD(shared_bytes, FIELD_I64),
    FIELD(thread_regs, FIELD_U32), FIELD(unit_regs, FIELD_U32), FIELD(unit_threads, FIELD_U32), FIELD(unit_shared, FIELD_I64),
    FIELD(max_push, FIELD_U32),
    FIELD(max_buffer, FIELD_I64), FIELD(max_bind, FIELD_U32),
    FIELD(buffer_align, FIELD_U32), FIELD(has_subgroup, FIELD_BOOL),
    FIELD(has_f16, FIELD_BOOL), FIELD(has_f64, FIELD_BOOL), FIELD(has_i8, FIELD_BOOL),
    FIELD(has_i16, FIELD_BOOL), FIELD(has_i64, FIELD_BOOL),
    FIELD(has_rte_f16, FIELD_BOOL), FIELD(has_nan, FIELD_BOOL), FIELD(matrix, FIELD_TEXT),
    FIELD(warpgroup_matrix, FIELD_TEXT), FIELD(warpgroup, FIELD_U32), FIELD(has_copy, FIELD_BOOL), FIELD(has_tile, FIELD_BOOL),
    FIELD(dot, FIELD_TEXT), FIELD(avoid, FIELD_TEXT),
    FIELD(spirv, FIELD_U32), FIELD(spirv_flags, FIELD_TEXT), FIELD(gflops, FIELD_U32), FIELD(gbps, FIELD_U32),
    FIELD(isa, FIELD_ISA),
};

static i64 field_number(const struct field *f, const void *p)
{
    switch (f->kind) {
    case FIELD_U32: return *(const u32 *)p;
    case FIELD_I64: return *(const i64 *)p;
    case FIELD_BOOL: return *(const bool *)p;
    case FIELD_ISA: return ((const struct isa *)p)->family;
    case FIELD_TEXT:
    default: unreachable();
    }
}

void caps_print(struct buf *b, const struct caps *c)
{
    i64 start = b->n;
    for (i64 i = 0; i < countof(fields); i++) {
        const struct field *f = &fields[i];
        const char *p = (const char *)c + f->at;
        if (f->kind == FIELD_TEXT ? !*p : !field_number(f, p)) continue;
        buf_printf(b, "%s%s=", b->n > start ? " " : "", f->name);
        if (f->kind == FIELD_TEXT) buf_printf(b, "\"%s\"", p);
        else if (f->kind == FIELD_ISA) {
            buf_char(b, '"');
            isa_print(b, *(const struct isa *)(const void *)p, ' ');
            buf_char(b, '"');
        } else buf_printf(b, "%lld", (long long)field_number(f, p));
    }
}

static bool set_number(const struct field *f, void *p, struct str value, struct err *e)
{
    i64 v, max = f->kind == FIELD_BOOL ? 1 : f->kind == FIELD_U32 ? UINT32_MAX : INT64_MAX;
    if (!str_to_i64(value, &v) || v < 0 || v > max)
        return err_set(e, ERR_USAGE, "bad value '%.*s' of '%s' in target", STR_ARG(value), f->name);
    switch (f->kind) {
    case FIELD_U32: *(u32 *)p = (u32)v; break;
    case FIELD_I64: *(i64 *)p = v; break;
    case FIELD_BOOL: *(bool *)p = v != 0; break;
    case FIELD_ISA:
    case FIELD_TEXT:
    default: unreachable();
    }
    return true;
}

static bool set_isa(struct caps *c, struct str value, struct err *e)
{
    if (!isa_parse(&c->isa, value, e)) return err_prefix(e, "'isa' in target");
    c->isa = isa_for_code(c->isa);
    return true;
}

/* Keys of descriptions by earlier versions. */
static struct str key_now(struct str key)
{
    static const struct { const char *before, *now; } renamed[] = {{"team", "warpgroup"}, {"team_matrix", "warpgroup_matrix"}};
    for (i64 i = 0; i < countof(renamed); i++)
        if (str_is(key, renamed[i].before)) return str_of(renamed[i].now);
    return key;
}

static bool set_field(struct caps *c, struct str key, struct str value, struct err *e)
{
    for (i64 i = 0; i < countof(fields); i++) {
        const struct field *f = &fields[i];
        char *p = (char *)c + f->at;
        if (!str_is(key, f->name)) continue;
        if (f->kind == FIELD_ISA) return set_isa(c, value, e);
        if (f->kind != FIELD_TEXT) return set_number(f, p, value, e);
        if (value.n >= (i64)f->size)
            return err_set(e, ERR_USAGE, "value of '%s' in target too long", f->name);
        memset(p, 0, f->size);
        if (value.n) memcpy(p, value.p, (size_t)value.n);
        return true;
    }
    if (str_is(key, "cflags"))
        return err_set(e, ERR_USAGE, "'cflags' in target: compiler options are not read from descriptions; they follow from the extensions that it "
                       "lists as 'isa'; print it again by quern devices");
    return err_set(e, ERR_USAGE, "unknown key '%.*s' in target", STR_ARG(key));
}

bool caps_parse(struct caps *c, struct str text, struct err *e)
{
    *c = (struct caps){0};
    for (text = str_trim(text); text.n; text = str_trim(text)) {
        struct str key, value, rest;
        if (!str_cut(text, '=', &key, &rest))
            return err_set(e, ERR_USAGE, "no '=' after '%.*s' in target", STR_ARG(text));
        bool is_quoted = rest.n && rest.p[0] == '"';
        if (is_quoted) rest = str_sub(rest, 1, rest.n);
        bool ends = str_cut(rest, is_quoted ? '"' : ' ', &value, &text);
        if (is_quoted && !ends)
            return err_set(e, ERR_USAGE, "no closing '\"' after '%.*s' in target", STR_ARG(key));
        if (!is_quoted && str_cut(value, '"', &rest, &(struct str){0}))
            return err_set(e, ERR_USAGE, "'\"' within the value of '%.*s' in target", STR_ARG(key));
        if (!set_field(c, key_now(key), value, e)) return false;
    }
    return true;
}

/* Appends a word to a list of words. */
static bool add_word(char *list, i64 size, struct str word, struct err *e)
{
    i64 n = (i64)strlen(list);
    if (n + word.n + 2 > size)
        return err_set(e, ERR_USAGE, "word '%.*s' exceeds the list of the target", STR_ARG(word));
    if (n) list[n++] = ' ';
    memcpy(list + n, word.p, (size_t)word.n);
    list[n + word.n] = 0;
    return true;
}

static bool limit_isa(struct caps *c, struct str text, struct err *e)
{
    struct isa s;
    if (!isa_parse(&s, text, e)) return false;
    if (!isa_contains(c->isa, isa_for_code(s))) return err_set(e, ERR_USAGE, "the target '%s' does not have all of %.*s", c->arch, STR_ARG(text));
    if (!isa_equal(c->isa, isa_for_code(s))) isa_limits(c, s), c->rates = (struct rates){0}; /* other instructions, other rates */
    return true;
}

/* Matrix units and subgroup reductions have an unspecified order of summation. Those of processors are asked for by kernels (gen/tile_matrix.c), which use
   them for integers. */
static void make_deterministic(struct caps *c)
{
    c->deterministic = true;
    c->has_subgroup = false;
    if (c->is_gpu) memset(c->matrix, 0, sizeof c->matrix), memset(c->warpgroup_matrix, 0, sizeof c->warpgroup_matrix);
}

bool caps_limit(struct caps *c, struct str words, bool *changed, struct err *e)
{
    const struct caps before = *c;
    struct str word;
    i64 v;
    if (changed) *changed = false;
    for (words = str_trim(words); words.n; words = str_trim(words)) {
        str_cut(words, ' ', &word, &words);
        if (str_is(word, "no-winograd")) c->no_winograd = !c->is_gpu;
        else if (str_is(word, "deterministic")) make_deterministic(c);
        else if (str_starts(word, S("isa="))) {
            if (!limit_isa(c, str_sub(word, 4, word.n), e)) return false;
        } else if (c->spirv == 0) continue;
        else if (str_is(word, "no-matrix")) memset(c->matrix, 0, sizeof c->matrix), memset(c->warpgroup_matrix, 0, sizeof c->warpgroup_matrix);
        else if (str_starts(word, S("spirv="))) {
            if (!str_to_i64(str_sub(word, 6, word.n), &v) || v < 10 || v > 99)
                return err_set(e, ERR_USAGE, "bad version '%.*s' of SPIR-V", STR_ARG(word));
            if (v < c->spirv) c->spirv = (u32)v;
        } else if (!add_word(c->spirv_flags, sizeof c->spirv_flags, word, e)) {
            return false;
        }
    }
    if (changed) *changed = memcmp(&before, c, sizeof before) != 0;
    return true;
}

static bool has_product(const struct caps *c, struct str prefix, const enum dtype of[3])
{
    struct str list = str_of(c->dot), word, part[3];
    while (list.n) {
        str_cut(list, ' ', &word, &list);
        if (!str_starts(word, prefix)) continue;
        word = str_sub(word, prefix.n, word.n);
        bool ok = str_cut(word, ',', &part[0], &word) && str_cut(word, ',', &part[1], &part[2]);
        for (u32 i = 0; i < 3; i++) ok = ok && dtype_parse(part[i]) == of[i];
        if (ok) return true;
    }
    return false;
}

bool caps_has_dot(const struct caps *c, enum dtype a, enum dtype b, enum dtype sum)
{
    return has_product(c, S(""), (const enum dtype[]){a, b, sum});
}

bool caps_has_mmla(const struct caps *c, enum dtype a, enum dtype b, enum dtype sum)
{
    return has_product(c, S("mmla:"), (const enum dtype[]){a, b, sum});
}

static bool matrix_parse(struct str word, struct caps_matrix *m)
{
    struct str part, rest = word, size, types, t[4];
    i64 *extent[3] = {&m->m, &m->n, &m->k};
    if (!str_cut(word, ':', &size, &types)) return false;
    for (u32 i = 0; i < 3; i++, size = rest) {
        if (str_cut(size, 'x', &part, &rest) != (i < 2) || !str_to_i64(i < 2 ? part : size, extent[i]))
            return false;
    }
    for (u32 i = 0; i < 4; i++, types = rest) {
        if (str_cut(types, ',', &t[i], &rest) != (i < 3)) return false;
        if (i == 3) t[i] = types;
    }
    m->a = dtype_parse_operand(t[0]), m->b = dtype_parse_operand(t[1]);
    m->c = dtype_parse(t[2]), m->d = dtype_parse(t[3]);
    return m->a != DT_NONE && m->b != DT_NONE && m->c != DT_NONE && m->d != DT_NONE;
}

bool caps_matrix_next(struct str *list, struct caps_matrix *out)
{
    while (list->n) {
        struct str word = *list, rest = {0};
        if (str_cut(*list, ' ', &word, &rest)) *list = rest;
        else *list = (struct str){0};
        if (matrix_parse(word, out)) return true;
    }
    return false;
}
