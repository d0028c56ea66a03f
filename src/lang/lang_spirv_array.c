// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_array.c: arrays as variables.
//
// A buffer is bound as an array of units of 1 to 16 bytes. A contiguous access uses the
// widest unit that its length and the provable alignment of its index permit, so one
// binding may have several variables, decorated Aliased if one of them is written. A
// shared array has one unit, the widest that all its accesses permit. Arrays of
// registers are Function variables: for one element a variable per lane, else one array.
#include "lang/lang_spirv.h"

enum { COHERENT = 23 };
enum { SHARED_AT_LEAST = 16 << 10 }; /* bytes available on every Vulkan device */

static enum dtype elem(const struct spv *s, kval array) { return kir_dtype(s->k, array); }

u32 spv_log2(i64 v) { return (u32)__builtin_ctzll((u64)v); }

/* Planning. */

/* The widest unit, of 4 bytes at least or one element, that divides two sizes. */
static u32 widest_unit(u32 size, i64 a, i64 b)
{
    for (u32 unit = SPV_UNIT_MAX; unit >= 4 && unit > size; unit /= 2)
        if (a % unit == 0 && b % unit == 0) return unit;
    return size;
}

u32 spv_unit_of(const struct spv *s, const struct spv_array *a, kval index)
{
    const struct kir_ins *x = kir_at(s->k, index);
    bool is_contiguous = x->op == KI_RAMP && x->imm.i == 1;
    if (!is_contiguous || a->is_pair) return a->size;
    return widest_unit(a->size, x->lanes * a->size,
                       i64_min(kir_multiple(s->k, x->a), SPV_UNIT_MAX) * a->size);
}

/* The widest unit in which a fragment can be addressed. */
static u32 unit_of_frag(const struct spv *s, const struct spv_array *a, kval index, kval pitch)
{
    i64 at = i64_min(kir_multiple(s->k, index), SPV_UNIT_MAX),
        step = i64_min(kir_multiple(s->k, pitch), SPV_UNIT_MAX);
    return widest_unit(a->size, at * a->size, step * a->size);
}

u32 spv_frag_unit(struct spv *s, kval array, kval index, kval pitch)
{
    const struct spv_array *a = s->array[array];
    if (a->size != dtype_size(elem(s, array)))
        spv_fail(s, "has fragments in shared memory of a type that the target lacks");
    return a->storage == SPV_IN_WORKGROUP ? a->unit : unit_of_frag(s, a, index, pitch);
}

static void plan_shared(struct spv *s)
{
    for (kval v = 1; v < s->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        bool is_access = x->op == KI_LOAD || x->op == KI_STORE;
        bool is_frag = x->op == KI_FLOAD || x->op == KI_FSTORE;
        struct spv_array *a = is_access || is_frag ? s->array[x->a] : NULL;
        if (!a || a->storage != SPV_IN_WORKGROUP) continue;
        u32 unit = is_frag ? unit_of_frag(s, a, x->b, x->op == KI_FLOAD ? x->c : x->d)
                           : spv_unit_of(s, a, x->b);
        bool is_partial = (x->op == KI_LOAD && x->c) || (x->op == KI_STORE && x->d);
        if (is_partial) unit = a->size;
        if (unit < a->unit) a->unit = unit;
    }
}

/* Small elements that the target cannot address get a word each. */
static void widen_shared(struct spv *s, struct spv_array *a)
{
    if (a->unit >= 4 || (a->unit == 2 ? s->caps->has_i16 : s->caps->has_i8)) return;
    a->size = a->unit = 4;
}

static void plan_coherent(struct spv *s)
{
    u8 *use = arena_alloc(s->arena, s->k->ins.n); /* 1: read, 2: written */
    bool has_barrier = false;
    for (kval v = 1; v < s->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        if (x->op == KI_LOAD || x->op == KI_FLOAD) use[x->a] |= 1;
        if (x->op == KI_STORE || x->op == KI_FSTORE) use[x->a] |= 2;
        has_barrier |= x->op == KI_BARRIER;
    }
    for (kval v = 1; v < s->k->ins.n; v++)
        if (s->array[v]) s->array[v]->is_coherent = has_barrier && use[v] == 3;
}

static void plan_reg(struct spv *s, struct spv_array *a, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    i64 count = 0;
    kir_is_const(s->k, x->a, &count);
    a->storage = SPV_IN_FUNCTION;
    a->count = i64_max(count, 1);
    a->is_packed = spv_has_words(s, v);
    a->per = a->is_packed ? spv_words(s, v) : x->lanes;
    if (count > 1 << 16) spv_fail(s, "has an array of registers that is too large");
}

static struct spv_array *new_array(struct spv *s, kval v, u32 *n_temp)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct spv_array *a = arena_new(s->arena, struct spv_array);
    *a = (struct spv_array){.storage = SPV_IN_BUFFER, .unit = SPV_UNIT_MAX, .is_wide = s->wide[v]};
    a->size = (u32)dtype_size(x->dtype);
    a->is_pair = !s->caps->has_i64 && (x->dtype == DT_I64 || x->dtype == DT_U64);
    if (x->op == KI_BUF) {
        a->binding = (u32)x->imm.i;
        return a;
    }
    switch ((enum kir_space)x->aux) {
    case KS_REG: plan_reg(s, a, v); break;
    case KS_WORK:
        spv_fail(s, "has scratch memory of a worker, which workgroups lack");
        break;
    case KS_SHARED:
        a->storage = SPV_IN_WORKGROUP;
        if (x->dtype == DT_I64 && !a->is_wide) a->size = 4;
        if (!kir_is_const(s->k, x->a, &a->count)) spv_fail(s, "has a shared array of unknown size");
        break;
    case KS_TEMP: a->binding = s->k->buf.n + (*n_temp)++; break;
    default: unreachable();
    }
    return a;
}

void spv_plan_arrays(struct spv *s)
{
    u32 n_temp = 0;
    s->array = arena_array(s->arena, struct spv_array *, s->k->ins.n);
    for (kval v = 1; v < s->k->ins.n; v++) {
        enum kir_op op = kir_at(s->k, v)->op;
        if (op == KI_BUF || op == KI_ALLOC) s->array[v] = new_array(s, v, &n_temp);
    }
    plan_shared(s);
    plan_coherent(s);
    for (kval v = 1; v < s->k->ins.n; v++)
        if (s->array[v] && s->array[v]->storage == SPV_IN_WORKGROUP) widen_shared(s, s->array[v]);
}

/* Variables. */

bool spv_can_store_small(const struct spv *s, u32 size)
{
    return size == 1 ? s->caps->has_i8 : s->caps->has_i16 || s->caps->has_f16;
}

static u32 small_type(struct spv *s, const struct spv_array *a, u32 unit)
{
    if (a->storage == SPV_IN_BUFFER)
        spv_need(s, unit == 1 ? SPV_CAP_STORAGE_8 : SPV_CAP_STORAGE_16);
    else spv_need(s, unit == 1 ? SPV_CAP_I8 : SPV_CAP_I16);
    return spv_type_int(s, unit * 8);
}

/* Components of a unit: lanes, or words of small lanes. */
enum spv_reg spv_part_reg(const struct spv *s, kval array)
{
    enum dtype t = elem(s, array);
    if (t == DT_F32) return SR_F32;
    if (t == DT_F64) return SR_F64;
    return s->array[array]->size == 8 ? SR_U64 : SR_U32;
}

u32 spv_part_size(const struct spv_array *a) { return a->size == 8 ? 8 : 4; }

u32 spv_unit_type(struct spv *s, kval array, u32 unit)
{
    const struct spv_array *a = s->array[array];
    if (unit < 4) return small_type(s, a, unit);
    return spv_type_vec(s, spv_type_reg(s, spv_part_reg(s, array)), unit / spv_part_size(a));
}

/* struct { T elements[]; }, laid out for storage buffers. */
static u32 block_type(struct spv *s, u32 type, u32 unit)
{
    u32 elements = SPV_TYPE(s, SPV_TYPE_RUNTIME_ARRAY, type), before = s->n_ids;
    u32 block = SPV_TYPE(s, SPV_TYPE_STRUCT, elements);
    if (block <= before) return block;
    SPV_PUT(&s->decorations, SPV_DECORATE, elements, SPV_DEC_ARRAY_STRIDE, unit);
    SPV_PUT(&s->decorations, SPV_DECORATE, block, SPV_DEC_BLOCK);
    SPV_PUT(&s->decorations, SPV_MEMBER_DECORATE, block, 0, SPV_DEC_OFFSET, 0);
    return block;
}

static void bind(struct spv *s, u32 var, u32 binding)
{
    SPV_PUT(&s->decorations, SPV_DECORATE, var, SPV_DEC_SET, 0);
    SPV_PUT(&s->decorations, SPV_DECORATE, var, SPV_DEC_BINDING, binding);
}

static u32 declare(struct spv *s, enum spirv_storage storage, u32 type)
{
    u32 pointer = spv_type_pointer(s, storage, type), var = spv_id(s);
    SPV_PUT(&s->globals, SPV_VARIABLE, pointer, var, (u32)storage);
    return var;
}

/* A variable of the buffer, as units of a type. */
static u32 declare_buffer(struct spv *s, kval array, u32 type, u32 unit)
{
    const struct spv_array *a = s->array[array];
    const struct kir_ins *x = kir_at(s->k, array);
    u32 var = declare(s, SPV_IN_BUFFER, block_type(s, type, unit));
    spv_debug_array(s, array, var, unit);
    bind(s, var, a->binding);
    if (x->op == KI_BUF && x->aux == KA_IN)
        SPV_PUT(&s->decorations, SPV_DECORATE, var, SPV_DEC_NON_WRITABLE);
    if (a->is_coherent && !s->is_vulkan) SPV_PUT(&s->decorations, SPV_DECORATE, var, COHERENT);
    return var;
}

static u32 buffer_var(struct spv *s, kval array, u32 unit)
{
    u32 *var = &s->array[array]->var[spv_log2(unit)];
    if (!*var) *var = declare_buffer(s, array, spv_unit_type(s, array, unit), unit);
    return *var;
}

static u32 shared_var(struct spv *s, kval array)
{
    struct spv_array *a = s->array[array];
    if (a->var[0]) return a->var[0];
    i64 bytes = round_up(a->count * a->size, a->unit), most = s->caps->shared_bytes;
    u32 n = spv_u32(s, (u32)i64_max(bytes / a->unit, 1));
    u32 type = SPV_TYPE(s, SPV_TYPE_ARRAY, spv_unit_type(s, array, a->unit), n);
    a->var[0] = declare(s, SPV_IN_WORKGROUP, type);
    spv_debug_array(s, array, a->var[0], a->unit);
    s->shared_bytes += bytes;
    if (s->shared_bytes > (most ? most : SHARED_AT_LEAST))
        spv_fail(s, "has larger shared arrays than the target");
    return a->var[0];
}

static u32 function_var(struct spv *s, u32 type)
{
    u32 pointer = spv_type_pointer(s, SPV_IN_FUNCTION, type), var = spv_id(s);
    SPV_PUT(&s->vars, SPV_VARIABLE, pointer, var, SPV_IN_FUNCTION);
    return var;
}

/* A lane, word or fragment of a REG array. */
u32 spv_reg_type(struct spv *s, kval array)
{
    const struct spv_array *a = s->array[array];
    if (kir_is_frag(s->k, array)) return spv_type_frag(s, array);
    return spv_type_reg(s, a->is_packed ? SR_U32 : spv_reg(s, array));
}

void spv_alloc(struct spv *s, kval v)
{
    struct spv_array *a = s->array[v];
    if (a->storage != SPV_IN_FUNCTION) return;
    u32 type = spv_reg_type(s, v);
    if (a->count > 1) {
        u32 n = spv_u32(s, (u32)(a->count * a->per));
        a->var[0] = function_var(s, SPV_TYPE(s, SPV_TYPE_ARRAY, type, n));
        spv_debug_array(s, v, a->var[0], 0);
        return;
    }
    a->lane_var = arena_array(s->arena, u32, a->per);
    for (u32 i = 0; i < a->per; i++) {
        a->lane_var[i] = function_var(s, type);
        spv_debug_array(s, v, a->lane_var[i], 0);
    }
}

void spv_finish_arrays(struct spv *s)
{
    for (kval v = 1; v < s->k->ins.n; v++) {
        struct spv_array *a = s->array[v];
        const struct kir_ins *x = kir_at(s->k, v);
        if (!a || a->storage != SPV_IN_BUFFER) continue;
        bool has_var = false;
        for (i64 i = 0; i < countof(a->var); i++) has_var |= a->var[i] != 0;
        if (!has_var) a->var[0] = declare_buffer(s, v, spv_type_reg(s, SR_U32), 4);
        /* Buffers do not overlap, so only variables of one binding may see each other's writes. */
        u32 n = 0;
        for (i64 i = 0; i < countof(a->var); i++) n += a->var[i] != 0;
        enum spirv_decoration d = n == 1 || (x->op == KI_BUF && x->aux == KA_IN) ? SPV_DEC_RESTRICT : SPV_DEC_ALIASED;
        for (i64 i = 0; i < countof(a->var); i++)
            if (a->var[i]) SPV_PUT(&s->decorations, SPV_DECORATE, a->var[i], (u32)d);
    }
}

/* Parameters: push constants, or a buffer after all others. */

static u32 param_var(struct spv *s)
{
    if (s->params) return s->params;
    u32 type = spv_type_reg(s, SR_U32);
    if (!s->params_pushed) {
        u32 n_temp = 0;
        for (kval v = 1; v < s->k->ins.n; v++)
            n_temp += kir_at(s->k, v)->op == KI_ALLOC && kir_at(s->k, v)->aux == KS_TEMP;
        s->params = declare(s, SPV_IN_BUFFER, block_type(s, type, 4));
        bind(s, s->params, s->k->buf.n + n_temp);
        SPV_PUT(&s->decorations, SPV_DECORATE, s->params, SPV_DEC_NON_WRITABLE);
        return s->params;
    }
    u32 *member = arena_array(s->arena, u32, s->n_param + 1), block = member[0] = spv_id(s);
    for (u32 i = 0; i < s->n_param; i++) {
        member[1 + i] = type;
        SPV_PUT(&s->decorations, SPV_MEMBER_DECORATE, block, i, SPV_DEC_OFFSET, i * 4);
    }
    SPV_PUT(&s->decorations, SPV_DECORATE, block, SPV_DEC_BLOCK);
    spv_put(&s->globals, SPV_TYPE_STRUCT, member, s->n_param + 1);
    return s->params = declare(s, SPV_IN_PUSH, block);
}

u32 spv_param(struct spv *s, i64 i)
{
    u32 var = param_var(s), type = spv_type_reg(s, SR_U32);
    enum spirv_storage storage = s->params_pushed ? SPV_IN_PUSH : SPV_IN_BUFFER;
    spv_use(s, var);
    u32 pointer = spv_type_pointer(s, storage, type), number = spv_u32(s, (u32)i);
    u32 at = s->params_pushed ? SPV_INS(s, SPV_ACCESS_CHAIN, pointer, var, number, 0)
                              : SPV_INS(s, SPV_ACCESS_CHAIN, pointer, var, spv_u32(s, 0), number);
    return SPV_INS(s, SPV_LOAD, type, at, 0, 0);
}

/* Pointers, loads and stores of one unit. */

u32 spv_pointer(struct spv *s, kval array, u32 unit, u32 at)
{
    struct spv_array *a = s->array[array];
    if (a->storage == SPV_IN_FUNCTION) {
        u32 pointer = spv_type_pointer(s, SPV_IN_FUNCTION, spv_reg_type(s, array));
        return SPV_INS(s, SPV_ACCESS_CHAIN, pointer, a->var[0], at, 0);
    }
    u32 pointer = spv_type_pointer(s, a->storage, spv_unit_type(s, array, unit));
    bool is_shared = a->storage == SPV_IN_WORKGROUP;
    u32 var = is_shared ? shared_var(s, array) : buffer_var(s, array, unit);
    spv_use(s, var);
    if (is_shared) return SPV_INS(s, SPV_ACCESS_CHAIN, pointer, var, at, 0);
    return SPV_INS(s, SPV_ACCESS_CHAIN, pointer, var, spv_u32(s, 0), at);
}
