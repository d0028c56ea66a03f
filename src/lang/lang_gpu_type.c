// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu_type.c: names and types of arrays and fragments.
#include "lang/lang_gpu.h"

static const char *const roles[] = {[KR_NONE] = "", [KR_A] = "a", [KR_B] = "b", [KR_ACC] = "acc"};

struct str gpu_frag_tag(struct text *t, const struct kir_frag *f)
{
    return text_fmt(t, "%s%ux%u_%s", roles[f->role], f->rows, f->cols, dtype_name(f->dtype));
}

bool gpu_first_use(struct text *t, struct str name)
{
    if (map_get(&t->known, name)) return false;
    map_put(&t->known, name, 1);
    return true;
}

struct gpu_place gpu_frag_place(struct text *t, const struct kir_frag *f)
{
    struct gpu_place p = {0};
    bool (*place)(struct gpu_place *, const struct kir_frag *, u32) = gpu_words(t)->place;
    if (!place || !place(&p, f, kir_warpgroup(t->k)))
        err_set(t->err, ERR_UNSUPPORTED, "no fragments of %ux%u %s in this language (kernel '%.*s')", f->rows, f->cols,
                dtype_name(f->dtype), STR_ARG(t->k->name));
    return p;
}

/* Operands of warpgroup matmuls are not registers, but for left ones that are made of a thread's own. */
bool gpu_is_described(const struct text *t, const struct kir_ins *x) { return kir_warpgroup(t->k) > 1 && x->role != KR_ACC && !kir_is_own(t->k, x); }

struct str gpu_frag_type(struct text *t, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    if (gpu_is_described(t, x)) return S("u64");
    struct str name = text_fmt(t, "frag_%.*s", STR_ARG(gpu_frag_tag(t, &f)));
    if (!gpu_first_use(t, name)) return name;
    struct gpu_place p = gpu_frag_place(t, &f);
    const char *type = dtype_name(f.dtype == DT_TF32 ? DT_U32 : text_rep(f.dtype));
    if (p.n && dtype_size(f.dtype) == 2)
        buf_printf(&t->types, "struct %.*s {\n    union { %s x[%u]; u32 w[%u]; };\n};\n", STR_ARG(name), type, p.n, p.n / 2);
    else buf_printf(&t->types, "struct %.*s {\n    %s x[%u];\n};\n", STR_ARG(name), type, p.n ? p.n : 1);
    return name;
}

struct str gpu_frag_pin(struct text *t, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    struct str type = gpu_frag_type(t, x), name = text_fmt(t, "q_pin_%.*s", STR_ARG(gpu_frag_tag(t, &f)));
    bool in_words = dtype_size(f.dtype) == 2;
    u32 n = gpu_frag_place(t, &f).n;
    if (!gpu_first_use(t, name)) return name;
    buf_printf(&t->prelude, "%svoid %.*s(%.*s &f)\n{\n#pragma unroll\n    for (i32 i = 0; i < %u; i++) PIN_%s(f.%s[i]);\n}\n",
               t->style->function, STR_ARG(name), STR_ARG(type), in_words ? n / 2 : n, in_words ? "WORD" : "FLOAT", in_words ? "w" : "x");
    return name;
}

struct str gpu_array_name(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->op == KI_BUF) return text_fmt(t, "b_%.*s", STR_ARG(t->k->buf.v[x->imm.i].name));
    assert(x->op == KI_ALLOC);
    return text_fmt(t, "%c%u", "rwst"[x->aux], v);
}

struct str gpu_element_type(struct text *t, const struct kir_ins *x)
{
    bool is_reg = x->op == KI_ALLOC && x->aux == KS_REG;
    if (x->role) return gpu_frag_type(t, x);
    return text_type(t, x->dtype == DT_BOOL && !is_reg ? DT_U8 : text_rep(x->dtype), 1);
}

bool gpu_is_swizzled(const struct kir *k, kval array)
{
    const struct kir_ins *x = kir_at(k, array);
    return x->op == KI_ALLOC && x->imm.i;
}

/* Byte b is stored at b ^ (b >> 7 & 7) << 4: here in elements. */
struct str gpu_swizzled(struct text *t, kval array, struct str i)
{
    u32 log = (u32)__builtin_ctzll((u64)dtype_size(kir_dtype(t->k, array)));
    if (!gpu_is_swizzled(t->k, array)) return i;
    return text_fmt(t, "%.*s ^ (%.*s >> %u & 7) << %u", STR_ARG(i), STR_ARG(i), 7 - log, 4 - log);
}

