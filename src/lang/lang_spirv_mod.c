// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_mod.c: a SPIR-V module as sections of words that are joined at the
// end. Types and constants are unique: their words are the key of their id.
#include "lang/lang_spirv.h"

#include <string.h>

void spv_put(struct buf *b, enum spirv_op op, const u32 *w, u32 n)
{
    u32 first = (n + 1) << 16 | (u32)op;
    buf_put(b, &first, sizeof first);
    buf_put(b, w, (i64)sizeof *w * n);
}

/* Operands, a string padded to whole words, operands. */
void spv_put_text(struct buf *b, enum spirv_op op, const u32 *w, u32 n, struct str text,
                  const u32 *more, u32 n_more)
{
    enum { MAX_WORDS = 0xffff };
    i64 room = (i64)(MAX_WORDS - 2 - n - n_more) * 4;
    text = str_sub(text, 0, room);
    u32 n_text = (u32)(text.n / 4 + 1), first = (1 + n + n_text + n_more) << 16 | (u32)op;
    buf_put(b, &first, sizeof first);
    buf_put(b, w, (i64)sizeof *w * n);
    buf_str(b, text);
    buf_put(b, "\0\0\0\0", (i64)n_text * 4 - text.n);
    buf_put(b, more, (i64)sizeof *more * n_more);
}

u32 spv_id(struct spv *s) { return ++s->n_ids; }

bool spv_fail(struct spv *s, const char *what)
{
    return err_set(s->err, ERR_UNSUPPORTED, "kernel '%.*s' %s", STR_ARG(s->k->name), what);
}

/* Capabilities and the extensions that introduced them. */

struct feature {
    enum spirv_capability id;
    const char *extension; /* needed before version `core`; NULL: none */
    u32 core;
};

static const struct feature features[] = {
    {SPV_CAP_STORAGE_16, "SPV_KHR_16bit_storage", 13},
    {SPV_CAP_STORAGE_8, "SPV_KHR_8bit_storage", 15},
    {SPV_CAP_KEEP_NAN, "SPV_KHR_float_controls", 14},
    {SPV_CAP_ROUND_EVEN, "SPV_KHR_float_controls", 14},
    {SPV_CAP_VULKAN_MEMORY, "SPV_KHR_vulkan_memory_model", 15},
    {SPV_CAP_MATRIX, "SPV_KHR_cooperative_matrix", UINT32_MAX},
};

void spv_extension(struct spv *s, const char *name)
{
    struct str key = str_of(name);
    if (map_get(&s->known, key)) return;
    map_put(&s->known, key, 1);
    spv_put_text(&s->extensions, SPV_EXTENSION, NULL, 0, key, NULL, 0);
}

static bool has_capability(const struct spv *s, enum spirv_capability c)
{
    for (u32 i = 0; i < s->needed.n; i++)
        if (s->needed.v[i] == (u32)c) return true;
    return false;
}

void spv_need(struct spv *s, enum spirv_capability c)
{
    if (has_capability(s, c)) return;
    *arr_push(s->arena, &s->needed) = (u32)c;
    SPV_PUT(&s->capabilities, SPV_CAPABILITY, (u32)c);
    for (i64 i = 0; i < countof(features); i++)
        if (features[i].id == c && s->version < features[i].core)
            spv_extension(s, features[i].extension);
}

u32 spv_glsl(struct spv *s)
{
    if (!s->glsl) s->glsl = spv_id(s);
    return s->glsl;
}

/* Types and constants. */

u32 spv_type(struct spv *s, enum spirv_op op, const u32 *w, u32 n)
{
    u32 key[24] = {(u32)op};
    assert(n + 1 <= countof(key));
    if (n) memcpy(key + 1, w, sizeof *w * n);
    struct str text = {(const char *)key, (i64)sizeof *w * (n + 1)};
    u64 *found = map_get(&s->known, text);
    if (found) return (u32)*found;
    u32 id = spv_id(s);
    bool has_type = op == SPV_CONSTANT || op == SPV_CONSTANT_TRUE || op == SPV_CONSTANT_FALSE ||
                    op == SPV_CONSTANT_COMPOSITE;
    u32 out[25], n_out = 0, from = 0;
    if (has_type) out[n_out++] = w[from++];
    out[n_out++] = id;
    while (from < n) out[n_out++] = w[from++];
    spv_put(&s->globals, op, out, n_out);
    map_put(&s->known, text, id);
    return id;
}

u32 spv_type_int(struct spv *s, u32 bits) { return SPV_TYPE(s, SPV_TYPE_INT, bits, 0); }

u32 spv_type_reg(struct spv *s, enum spv_reg r)
{
    switch (r) {
    case SR_BOOL: return spv_type(s, SPV_TYPE_BOOL, NULL, 0);
    case SR_U32: return spv_type_int(s, 32);
    case SR_U64:
        if (!s->caps->has_i64) return spv_type_vec(s, spv_type_int(s, 32), 2);
        spv_need(s, SPV_CAP_I64);
        return spv_type_int(s, 64);
    case SR_F32: return SPV_TYPE(s, SPV_TYPE_FLOAT, 32);
    case SR_F64:
        if (!s->caps->has_f64) spv_fail(s, "needs f64, which the target lacks");
        spv_need(s, SPV_CAP_F64);
        return SPV_TYPE(s, SPV_TYPE_FLOAT, 64);
    default: unreachable();
    }
}

u32 spv_type_vec(struct spv *s, u32 type, u32 n)
{
    return n == 1 ? type : SPV_TYPE(s, SPV_TYPE_VECTOR, type, n);
}

u32 spv_type_pointer(struct spv *s, enum spirv_storage storage, u32 type)
{
    return SPV_TYPE(s, SPV_TYPE_POINTER, (u32)storage, type);
}

u32 spv_u32(struct spv *s, u32 v) { return spv_const_i(s, SR_U32, v); }

u32 spv_const_i(struct spv *s, enum spv_reg r, i64 v)
{
    u32 type = spv_type_reg(s, r);
    if (r == SR_BOOL) return SPV_TYPE(s, v ? SPV_CONSTANT_TRUE : SPV_CONSTANT_FALSE, type);
    if (spv_is_pair(s, r)) {
        u32 lo = spv_u32(s, (u32)v), hi = spv_u32(s, (u32)((u64)v >> 32));
        return SPV_TYPE(s, SPV_CONSTANT_COMPOSITE, type, lo, hi);
    }
    if (r == SR_U64) return SPV_TYPE(s, SPV_CONSTANT, type, (u32)v, (u32)((u64)v >> 32));
    assert(r == SR_U32);
    return SPV_TYPE(s, SPV_CONSTANT, type, (u32)v);
}

bool spv_is_pair(const struct spv *s, enum spv_reg r) { return r == SR_U64 && !s->caps->has_i64; }

u32 spv_const_f(struct spv *s, enum spv_reg r, double v)
{
    u32 type = spv_type_reg(s, r), w[3] = {type};
    float f = (float)v;
    if (r == SR_F64) memcpy(w + 1, &v, sizeof v);
    else memcpy(w + 1, &f, sizeof f);
    return spv_type(s, SPV_CONSTANT, w, r == SR_F64 ? 3 : 2);
}

/* Instructions of the function. */

u32 spv_ins(struct spv *s, enum spirv_op op, const u32 arg[4])
{
    const u32 w[] = {arg[0], spv_id(s), arg[1], arg[2], arg[3]};
    spv_put(&s->code, op, w, arg[1] ? arg[2] ? arg[3] ? 5 : 4 : 3 : 2);
    return w[1];
}

u32 spv_op2(struct spv *s, enum spirv_op op, enum spv_reg r, const u32 arg[2]) { return SPV_INS(s, op, spv_type_reg(s, r), arg[0], arg[1]); }

u32 spv_select(struct spv *s, enum spv_reg r, const u32 arg[3])
{
    return SPV_INS(s, SPV_SELECT, spv_type_reg(s, r), arg[0], arg[1], arg[2]);
}

u32 spv_ext(struct spv *s, u32 number, const u32 arg[4])
{
    const u32 w[] = {arg[0], spv_id(s), spv_glsl(s), number, arg[1], arg[2], arg[3]};
    spv_put(&s->code, SPV_EXT_INST, w, arg[2] ? arg[3] ? 7 : 6 : 5);
    return w[1];
}

void spv_use(struct spv *s, u32 var)
{
    for (u32 i = 0; i < s->used.n; i++)
        if (s->used.v[i] == var) return;
    *arr_push(s->arena, &s->used) = var;
}

/* The module. */

static void put_modes(struct spv *s)
{
    bool rounds = has_capability(s, SPV_CAP_ROUND_EVEN), has_f64 = has_capability(s, SPV_CAP_F64);
    if (s->caps->has_nan) spv_need(s, SPV_CAP_KEEP_NAN);
    for (u32 i = 0; i < s->function.n; i++) {
        u32 f = s->function.v[i];
        if (rounds) SPV_PUT(&s->modes, SPV_EXECUTION_MODE, f, SPV_MODE_ROUND_EVEN, 16);
        if (!s->caps->has_nan) continue;
        SPV_PUT(&s->modes, SPV_EXECUTION_MODE, f, SPV_MODE_KEEP_NAN, 32);
        if (has_f64) SPV_PUT(&s->modes, SPV_EXECUTION_MODE, f, SPV_MODE_KEEP_NAN, 64);
    }
}

void spv_label(struct spv *s, u32 id)
{
    SPV_PUT(&s->code, SPV_LABEL, id);
    s->label = id;
}

void spv_branch(struct spv *s, u32 to) { SPV_PUT(&s->code, SPV_BRANCH, to); }

bool spv_assemble(struct spv *s, struct buf *out)
{
    put_modes(s);
    if (s->version < 13) spv_extension(s, "SPV_KHR_storage_buffer_storage_class");
    const u32 minor = s->version % 10,
              head[SPIRV_HEADER] = {SPIRV_MAGIC, 1u << 16 | minor << 8, 0, s->n_ids + 1, 0};
    buf_put(out, head, sizeof head);
    buf_str(out, buf_view(&s->capabilities));
    buf_str(out, buf_view(&s->extensions));
    if (s->glsl) spv_put_text(out, SPV_EXT_INST_IMPORT, &s->glsl, 1, S("GLSL.std.450"), NULL, 0);
    if (s->debug_set)
        spv_put_text(out, SPV_EXT_INST_IMPORT, &s->debug_set, 1,
                     S("NonSemantic.Shader.DebugInfo.100"), NULL, 0);
    enum { LOGICAL = 0, GLSL450 = 1, VULKAN = 3 };
    SPV_PUT(out, SPV_MEMORY_MODEL, LOGICAL, s->is_vulkan ? VULKAN : GLSL450);
    buf_str(out, buf_view(&s->entries));
    buf_str(out, buf_view(&s->modes));
    buf_str(out, buf_view(&s->strings));
    buf_str(out, buf_view(&s->names));
    buf_str(out, buf_view(&s->decorations));
    buf_str(out, buf_view(&s->globals));
    buf_str(out, buf_view(&s->functions));
    return !out->failed || err_set(s->err, ERR_SYSTEM, "out of memory");
}
