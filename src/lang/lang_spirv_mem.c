// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_mem.c: arrays as variables, and accesses to them.
//
// A buffer is bound as an array of units of 1 to 16 bytes. A contiguous access uses the widest unit
// that its length and the provable alignment of its index allow, so one binding may have several
// variables, decorated Aliased. A shared array has one unit, the widest that all its accesses allow.
// Arrays of registers are Function variables: of one element a variable per lane, else one array.
//
// On a target without storage of 8 or 16 bits, single small elements of buffers are read from the
// word around them and written by two atomic operations, which leave the word's other elements to
// other threads; in shared arrays they take a word each.
#include "lang/lang_spirv.h"

enum { UNIT_MAX = 16, NON_PRIVATE = 0x20, COHERENT = 23 };

struct access { /* a LOAD or STORE, taken apart */
    struct spv_array *a;
    kval array, index;
    kval base;   /* of a contiguous access: the first element */
    kval n;      /* valid lanes, 0: all */
    kval value;  /* loaded or stored */
    u32 lanes;   /* of the index */
    u32 unit;    /* bytes moved at once; size: element by element */
};

static enum dtype elem(const struct spv *s, kval array) { return kir_dtype(s->k, array); }

u32 spv_log2(i64 v) { return (u32)__builtin_ctzll((u64)v); }

/* Planning. */

/* The widest unit, of 4 bytes at least or one element, that divides two sizes. */
static u32 widest_unit(u32 size, i64 a, i64 b)
{
    for (u32 unit = UNIT_MAX; unit >= 4 && unit > size; unit /= 2)
        if (a % unit == 0 && b % unit == 0) return unit;
    return size;
}

static u32 unit_of(const struct spv *s, const struct spv_array *a, kval index)
{
    const struct kir_ins *x = kir_at(s->k, index);
    bool is_contiguous = x->op == KI_RAMP && x->imm.i == 1;
    if (!is_contiguous) return a->size;
    return widest_unit(a->size, x->lanes * a->size, i64_min(kir_multiple(s->k, x->a), UNIT_MAX) * a->size);
}

/* The widest unit in which a fragment can be addressed. */
static u32 unit_of_frag(const struct spv *s, const struct spv_array *a, kval index, kval pitch)
{
    i64 at = i64_min(kir_multiple(s->k, index), UNIT_MAX), step = i64_min(kir_multiple(s->k, pitch), UNIT_MAX);
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
                           : unit_of(s, a, x->b);
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
    *a = (struct spv_array){.storage = SPV_IN_BUFFER, .unit = UNIT_MAX, .is_wide = s->wide[v]};
    a->size = (u32)dtype_size(x->dtype);
    if (x->op == KI_BUF) {
        a->binding = (u32)x->imm.i;
        return a;
    }
    switch ((enum kir_space)x->aux) {
    case KS_REG: plan_reg(s, a, v); break;
    case KS_WORK: spv_fail(s, "has scratch memory of a worker, which groups of threads lack"); break;
    case KS_SHARED:
        a->storage = SPV_IN_WORKGROUP;
        if (x->dtype == DT_I64 && !a->is_wide) a->size = 4;
        if (!kir_is_const(s->k, x->a, &a->count))
            spv_fail(s, "has a shared array of unknown size");
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

static bool can_store_small(const struct spv *s, u32 size)
{
    return size == 1 ? s->caps->has_i8 : s->caps->has_i16 || s->caps->has_f16;
}

static u32 small_type(struct spv *s, const struct spv_array *a, u32 unit)
{
    if (a->storage == SPV_IN_BUFFER) spv_need(s, unit == 1 ? SPV_CAP_STORAGE_8 : SPV_CAP_STORAGE_16);
    else spv_need(s, unit == 1 ? SPV_CAP_I8 : SPV_CAP_I16);
    return spv_type_int(s, unit * 8);
}

/* What a unit is made of: lanes, or words of small lanes. */
static enum spv_reg part_reg(const struct spv *s, kval array)
{
    enum dtype t = elem(s, array);
    if (t == DT_F32) return SR_F32;
    if (t == DT_F64) return SR_F64;
    return s->array[array]->size == 8 ? SR_U64 : SR_U32;
}

static u32 part_size(const struct spv_array *a) { return a->size == 8 ? 8 : 4; }

static u32 unit_type(struct spv *s, kval array, u32 unit)
{
    const struct spv_array *a = s->array[array];
    if (unit < 4) return small_type(s, a, unit);
    return spv_type_vec(s, spv_type_reg(s, part_reg(s, array)), unit / part_size(a));
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

static u32 buffer_var(struct spv *s, kval array, u32 unit)
{
    struct spv_array *a = s->array[array];
    const struct kir_ins *x = kir_at(s->k, array);
    u32 *var = &a->var[spv_log2(unit)];
    if (*var) return *var;
    *var = declare(s, SPV_IN_BUFFER, block_type(s, unit_type(s, array, unit), unit));
    spv_debug_array(s, array, *var, unit);
    bind(s, *var, a->binding);
    SPV_PUT(&s->decorations, SPV_DECORATE, *var, SPV_DEC_ALIASED);
    if (x->op == KI_BUF && x->aux == KA_IN)
        SPV_PUT(&s->decorations, SPV_DECORATE, *var, SPV_DEC_NON_WRITABLE);
    if (a->is_coherent && !s->is_vulkan) SPV_PUT(&s->decorations, SPV_DECORATE, *var, COHERENT);
    return *var;
}

static u32 shared_var(struct spv *s, kval array)
{
    struct spv_array *a = s->array[array];
    if (a->var[0]) return a->var[0];
    i64 bytes = round_up(a->count * a->size, a->unit);
    u32 n = spv_u32(s, (u32)i64_max(bytes / a->unit, 1));
    u32 type = SPV_TYPE(s, SPV_TYPE_ARRAY, unit_type(s, array, a->unit), n);
    a->var[0] = declare(s, SPV_IN_WORKGROUP, type);
    spv_debug_array(s, array, a->var[0], a->unit);
    s->shared_bytes += bytes;
    if (s->caps->shared_bytes && s->shared_bytes > s->caps->shared_bytes)
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
static u32 reg_type(struct spv *s, kval array)
{
    const struct spv_array *a = s->array[array];
    if (kir_is_frag(s->k, array)) return spv_type_frag(s, array);
    return spv_type_reg(s, a->is_packed ? SR_U32 : spv_reg(s, array));
}

void spv_alloc(struct spv *s, kval v)
{
    struct spv_array *a = s->array[v];
    if (a->storage != SPV_IN_FUNCTION) return;
    u32 type = reg_type(s, v);
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

void spv_declare_rest(struct spv *s)
{
    for (kval v = 1; v < s->k->ins.n; v++) {
        const struct spv_array *a = s->array[v];
        if (!a || a->storage != SPV_IN_BUFFER) continue;
        bool has_var = false;
        for (i64 i = 0; i < countof(a->var); i++) has_var |= a->var[i] != 0;
        if (!has_var) buffer_var(s, v, a->size < 4 ? 4 : a->size);
    }
}

/* Parameters: push constants, or a buffer behind all others. */

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
    u32 at = s->params_pushed ? spv_ins(s, SPV_ACCESS_CHAIN, pointer, var, number, 0)
                              : spv_ins(s, SPV_ACCESS_CHAIN, pointer, var, spv_u32(s, 0), number);
    return spv_ins(s, SPV_LOAD, type, at, 0, 0);
}

/* Pointers, loads and stores of one unit. */

u32 spv_pointer(struct spv *s, kval array, u32 unit, u32 at)
{
    struct spv_array *a = s->array[array];
    if (a->storage == SPV_IN_FUNCTION) {
        u32 pointer = spv_type_pointer(s, SPV_IN_FUNCTION, reg_type(s, array));
        return spv_ins(s, SPV_ACCESS_CHAIN, pointer, a->var[0], at, 0);
    }
    u32 pointer = spv_type_pointer(s, a->storage, unit_type(s, array, unit));
    bool is_shared = a->storage == SPV_IN_WORKGROUP;
    u32 var = is_shared ? shared_var(s, array) : buffer_var(s, array, unit);
    spv_use(s, var);
    if (is_shared) return spv_ins(s, SPV_ACCESS_CHAIN, pointer, var, at, 0);
    return spv_ins(s, SPV_ACCESS_CHAIN, pointer, var, spv_u32(s, 0), at);
}

static bool is_non_private(const struct spv *s, const struct spv_array *a)
{
    return s->is_vulkan && (a->storage == SPV_IN_WORKGROUP || a->is_coherent);
}

static u32 load_unit(struct spv *s, kval array, u32 type, u32 pointer)
{
    const u32 w[] = {type, spv_id(s), pointer, NON_PRIVATE};
    spv_put(&s->code, SPV_LOAD, w, is_non_private(s, s->array[array]) ? 4 : 3);
    return w[1];
}

static void store_unit(struct spv *s, kval array, u32 pointer, u32 x)
{
    const u32 w[] = {pointer, x, NON_PRIVATE};
    spv_put(&s->code, SPV_STORE, w, is_non_private(s, s->array[array]) ? 3 : 2);
}

/* One element. */

static u32 u32_ins(struct spv *s, enum spirv_op op, u32 a, u32 b)
{
    return spv_ins(s, op, spv_type_reg(s, SR_U32), a, b, 0);
}

struct place { u32 word, shift; }; /* of a small element: index of its word, bits below it */

static struct place place_of(struct spv *s, u32 size, u32 at)
{
    u32 per = 4 / size, inner = u32_ins(s, SPV_BITWISE_AND, at, spv_u32(s, per - 1));
    return (struct place){u32_ins(s, SPV_SHIFT_RIGHT_LOGICAL, at, spv_u32(s, spv_log2(per))),
                          u32_ins(s, SPV_SHIFT_LEFT_LOGICAL, inner,
                                  spv_u32(s, spv_log2(size * 8)))};
}

static u32 load_within_word(struct spv *s, kval array, u32 at)
{
    u32 size = s->array[array]->size;
    struct place p = place_of(s, size, at);
    u32 w = load_unit(s, array, spv_type_reg(s, SR_U32), spv_pointer(s, array, 4, p.word));
    return u32_ins(s, SPV_SHIFT_RIGHT_LOGICAL, w, p.shift); /* more above it, which goes later */
}

static void store_within_word(struct spv *s, kval array, u32 at, u32 x)
{
    enum { DEVICE = 1, RELAXED = 0, QUEUE_FAMILY = 5 };
    u32 size = s->array[array]->size, type = spv_type_reg(s, SR_U32);
    struct place p = place_of(s, size, at);
    u32 pointer = spv_pointer(s, array, 4, p.word), ones = spv_u32(s, size == 1 ? 0xff : 0xffff);
    u32 keep = u32_ins(s, SPV_NOT, u32_ins(s, SPV_SHIFT_LEFT_LOGICAL, ones, p.shift), 0);
    u32 bits = u32_ins(s, SPV_BITWISE_AND, x, ones);
    u32 scope = spv_u32(s, s->is_vulkan ? QUEUE_FAMILY : DEVICE), order = spv_u32(s, RELAXED);
    bits = u32_ins(s, SPV_SHIFT_LEFT_LOGICAL, bits, p.shift);
    SPV_PUT(&s->code, SPV_ATOMIC_AND, type, spv_id(s), pointer, scope, order, keep);
    SPV_PUT(&s->code, SPV_ATOMIC_OR, type, spv_id(s), pointer, scope, order, bits);
}

/* A small element at the bottom of a word to a lane; is_clean: nothing stands above it. */
static u32 lane_of_small(struct spv *s, enum dtype t, u32 x, bool is_clean)
{
    bool is_done = is_clean && t != DT_BOOL && dtype_kind(t) != DK_INT;
    return is_done ? x : spv_unpack(s, t, x, 0);
}

static u32 memory_of_bool(struct spv *s, u32 x)
{
    return spv_ins(s, SPV_SELECT, spv_type_reg(s, SR_U32), x, spv_u32(s, 1), spv_u32(s, 0));
}

static u32 load_reg(struct spv *s, kval array, u32 i, u32 at)
{
    const struct spv_array *a = s->array[array];
    u32 pointer = a->lane_var ? a->lane_var[i] : spv_pointer(s, array, 0, at);
    return spv_ins(s, SPV_LOAD, reg_type(s, array), pointer, 0, 0);
}

static void store_reg(struct spv *s, kval array, u32 i, u32 at, u32 x)
{
    const struct spv_array *a = s->array[array];
    u32 pointer = a->lane_var ? a->lane_var[i] : spv_pointer(s, array, 0, at);
    SPV_PUT(&s->code, SPV_STORE, pointer, x);
}

static u32 load_element(struct spv *s, kval array, u32 at)
{
    const struct spv_array *a = s->array[array];
    enum dtype t = elem(s, array);
    if (a->storage == SPV_IN_FUNCTION) return load_reg(s, array, 0, at);
    if (dtype_size(t) >= 4 || a->size == 4) { /* a word each, of whatever type */
        u32 x = load_unit(s, array, unit_type(s, array, a->size), spv_pointer(s, array, a->size, at));
        return t == DT_BOOL ? spv_unpack(s, t, x, 0) : x;
    }
    if (a->storage == SPV_IN_BUFFER && !can_store_small(s, a->size))
        return lane_of_small(s, t, load_within_word(s, array, at), false);
    u32 x = load_unit(s, array, unit_type(s, array, a->size), spv_pointer(s, array, a->size, at));
    return lane_of_small(s, t, u32_ins(s, SPV_U_CONVERT, x, 0), true);
}

static void store_element(struct spv *s, kval array, u32 at, u32 x)
{
    const struct spv_array *a = s->array[array];
    enum dtype t = elem(s, array);
    if (a->storage == SPV_IN_FUNCTION) {
        store_reg(s, array, 0, at, x);
        return;
    }
    if (t == DT_BOOL) x = memory_of_bool(s, x);
    bool is_small = a->size < 4;
    if (is_small && a->storage == SPV_IN_BUFFER && !can_store_small(s, a->size)) {
        store_within_word(s, array, at, x);
        return;
    }
    u32 type = unit_type(s, array, a->size);
    if (is_small) x = spv_ins(s, SPV_U_CONVERT, type, x, 0, 0);
    store_unit(s, array, spv_pointer(s, array, a->size, at), x);
}

/* i64 lanes have the width of the value, elements that of the array. */
static enum spv_reg element_reg(const struct spv *s, kval array)
{
    const struct spv_array *a = s->array[array];
    if (elem(s, array) != DT_I64) return spv_reg(s, array);
    return a->storage == SPV_IN_BUFFER || a->is_wide ? SR_U64 : SR_U32;
}

static void set_loaded(struct spv *s, const struct access *x, u32 i, u32 id)
{
    enum spv_reg from = element_reg(s, x->array), to = spv_reg(s, x->value);
    if (from != to) id = spv_ins(s, SPV_U_CONVERT, spv_type_reg(s, to), id, 0, 0);
    spv_set_lane(s, x->value, i, id);
}

static u32 stored_lane(struct spv *s, const struct access *x, u32 i)
{
    return spv_lane_as(s, x->value, i, element_reg(s, x->array));
}

/* Contiguous accesses by units. */

static u32 unit_index(struct spv *s, const struct access *x, u32 j)
{
    u32 first = spv_quot(s, x->base, spv_log2(x->unit / x->a->size));
    return j ? u32_ins(s, SPV_I_ADD, first, spv_u32(s, j)) : first;
}

static void load_parts(struct spv *s, const struct access *x, u32 j, u32 id)
{
    u32 n = x->unit / part_size(x->a);
    u32 type = spv_type_reg(s, part_reg(s, x->array));
    for (u32 c = 0; c < n; c++) {
        u32 part = id;
        if (n > 1) {
            part = spv_id(s);
            SPV_PUT(&s->code, SPV_COMPOSITE_EXTRACT, type, part, id, c);
        }
        if (x->a->size < 4) spv_set_word(s, x->value, j * n + c, part);
        else set_loaded(s, x, j * n + c, part);
    }
}

static void load_wide(struct spv *s, const struct access *x)
{
    u32 type = unit_type(s, x->array, x->unit), n = x->lanes * x->a->size / x->unit;
    for (u32 j = 0; j < n; j++) {
        u32 pointer = spv_pointer(s, x->array, x->unit, unit_index(s, x, j));
        load_parts(s, x, j, load_unit(s, x->array, type, pointer));
    }
}

static void store_wide(struct spv *s, const struct access *x)
{
    u32 per = x->unit / part_size(x->a), n = x->lanes * x->a->size / x->unit;
    u32 type = unit_type(s, x->array, x->unit);
    for (u32 j = 0; j < n; j++) {
        u32 w[2 + UNIT_MAX / 4] = {type};
        for (u32 c = 0; c < per; c++)
            w[2 + c] = x->a->size < 4 ? spv_word(s, x->value, j * per + c)
                                      : stored_lane(s, x, j * per + c);
        w[1] = per > 1 ? spv_id(s) : w[2];
        if (per > 1) spv_put(&s->code, SPV_COMPOSITE_CONSTRUCT, w, 2 + per);
        store_unit(s, x->array, spv_pointer(s, x->array, x->unit, unit_index(s, x, j)), w[1]);
    }
}

/* Partial accesses: lanes from n on are neither read nor written. */

static u32 is_valid(struct spv *s, const struct access *x, u32 i)
{
    u32 n = spv_lane_as(s, x->n, 0, SR_U32);
    return spv_ins(s, SPV_S_LESS_THAN, spv_type_reg(s, SR_BOOL), spv_u32(s, i), n, 0);
}

static u32 lane_index(struct spv *s, const struct access *x, u32 i)
{
    return spv_lane_as(s, x->index, i, SR_U32);
}

/* The first element is read instead of one that may not exist. */
static u32 load_guarded_lane(struct spv *s, const struct access *x, u32 i)
{
    enum spv_reg r = element_reg(s, x->array);
    u32 type = spv_type_reg(s, r), valid = is_valid(s, x, i);
    u32 at = spv_ins(s, SPV_SELECT, spv_type_reg(s, SR_U32), valid, lane_index(s, x, i), spv_u32(s, 0));
    bool is_float = r == SR_F32 || r == SR_F64;
    u32 zero = is_float ? spv_const_f(s, r, 0) : spv_const_i(s, r, 0);
    return spv_ins(s, SPV_SELECT, type, valid, load_element(s, x->array, at), zero);
}

static void load_guarded(struct spv *s, const struct access *x)
{
    for (u32 i = 0; i < x->lanes; i++) set_loaded(s, x, i, load_guarded_lane(s, x, i));
}

static void store_guarded(struct spv *s, const struct access *x)
{
    for (u32 i = 0; i < x->lanes; i++) {
        u32 then = spv_id(s), merge = spv_id(s), id = stored_lane(s, x, i), at = lane_index(s, x, i);
        u32 cond = is_valid(s, x, i);
        SPV_PUT(&s->code, SPV_SELECTION_MERGE, merge, 0);
        SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, cond, then, merge);
        spv_label(s, then);
        store_element(s, x->array, at, id);
        spv_branch(s, merge);
        spv_label(s, merge);
    }
}

/* "if (all lanes are valid)": two blocks that meet in a third. */
struct fork { u32 full, part, merge, mark; };

static struct fork fork_open(struct spv *s, const struct access *x)
{
    struct fork f = {spv_id(s), spv_id(s), spv_id(s), 0};
    u32 n = spv_lane_as(s, x->n, 0, SR_U32), bool_type = spv_type_reg(s, SR_BOOL);
    u32 all = spv_ins(s, SPV_S_LESS_THAN_EQUAL, bool_type, spv_u32(s, x->lanes), n, 0);
    SPV_PUT(&s->code, SPV_SELECTION_MERGE, f.merge, 0);
    SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, all, f.full, f.part);
    spv_label(s, f.full);
    f.mark = spv_scope(s);
    return f;
}

static u32 fork_turn(struct spv *s, const struct fork *f) /* the last block of the first half */
{
    u32 label = s->label;
    spv_branch(s, f->merge);
    spv_leave(s, f->mark);
    spv_label(s, f->part);
    return label;
}

static u32 fork_close(struct spv *s, const struct fork *f)
{
    u32 label = s->label;
    spv_branch(s, f->merge);
    spv_leave(s, f->mark);
    spv_label(s, f->merge);
    return label;
}

/* The lanes or words of what was loaded. */
static void collect(struct spv *s, const struct access *x, u32 *id, u32 n)
{
    for (u32 i = 0; i < n; i++)
        id[i] = x->a->size < 4 ? spv_word(s, x->value, i) : spv_lane(s, x->value, i);
}

static void load_partial(struct spv *s, const struct access *x)
{
    if (x->unit == x->a->size) {
        load_guarded(s, x);
        return;
    }
    u32 id[2][64], n = x->a->size < 4 ? spv_words(s, x->value) : x->lanes;
    struct fork f = fork_open(s, x);
    load_wide(s, x);
    collect(s, x, id[0], n);
    u32 from[2] = {fork_turn(s, &f)};
    load_guarded(s, x);
    collect(s, x, id[1], n);
    from[1] = fork_close(s, &f);
    u32 type = spv_type_reg(s, x->a->size < 4 ? SR_U32 : spv_reg(s, x->value));
    for (u32 i = 0; i < n; i++) {
        u32 phi = spv_id(s);
        SPV_PUT(&s->code, SPV_PHI, type, phi, id[0][i], from[0], id[1][i], from[1]);
        if (x->a->size < 4) spv_set_word(s, x->value, i, phi);
        else spv_set_lane(s, x->value, i, phi);
    }
}

static void store_partial(struct spv *s, const struct access *x)
{
    if (x->unit == x->a->size) {
        store_guarded(s, x);
        return;
    }
    struct fork f = fork_open(s, x);
    store_wide(s, x);
    fork_turn(s, &f);
    store_guarded(s, x);
    fork_close(s, &f);
}

/* Registers of several lanes. */

static u32 reg_index(struct spv *s, const struct access *x, u32 i)
{
    if (x->a->lane_var) return 0;
    u32 at = spv_lane_as(s, x->index, 0, SR_U32);
    if (x->a->per > 1) at = u32_ins(s, SPV_I_MUL, at, spv_u32(s, x->a->per));
    return i ? u32_ins(s, SPV_I_ADD, at, spv_u32(s, i)) : at;
}

static void load_vector(struct spv *s, const struct access *x)
{
    for (u32 i = 0; i < x->a->per; i++) {
        u32 id = load_reg(s, x->array, i, reg_index(s, x, i));
        if (x->a->is_packed) spv_set_word(s, x->value, i, id);
        else set_loaded(s, x, i, id);
    }
}

static void store_vector(struct spv *s, const struct access *x)
{
    for (u32 i = 0; i < x->a->per; i++) {
        u32 id = x->a->is_packed ? spv_word(s, x->value, i) : stored_lane(s, x, i);
        store_reg(s, x->array, i, reg_index(s, x, i), id);
    }
}

/* All of it. */

static struct access access_of(struct spv *s, kval array, kval index, kval n)
{
    const struct kir_ins *i = kir_at(s->k, index);
    struct access x = {.a = s->array[array], .array = array, .index = index, .n = n,
                       .base = i->op == KI_RAMP ? i->a : index, .lanes = i->lanes};
    x.unit = x.a->size;
    if (x.a->storage == SPV_IN_BUFFER) x.unit = unit_of(s, x.a, index);
    if (x.a->storage == SPV_IN_WORKGROUP) x.unit = x.a->unit;
    return x;
}

void spv_load(struct spv *s, kval v)
{
    const struct kir_ins *i = kir_at(s->k, v);
    struct access x = access_of(s, i->a, i->b, i->c);
    x.value = v;
    if (x.a->storage == SPV_IN_FUNCTION && (x.a->per > 1 || x.a->is_packed)) load_vector(s, &x);
    else if (x.n) load_partial(s, &x);
    else if (x.unit > x.a->size) load_wide(s, &x);
    else
        for (u32 l = 0; l < x.lanes; l++)
            set_loaded(s, &x, l, load_element(s, x.array, lane_index(s, &x, l)));
}

void spv_store(struct spv *s, kval v)
{
    const struct kir_ins *i = kir_at(s->k, v);
    struct access x = access_of(s, i->a, i->b, i->d);
    x.value = i->c;
    if (x.a->storage == SPV_IN_FUNCTION && (x.a->per > 1 || x.a->is_packed)) store_vector(s, &x);
    else if (x.n) store_partial(s, &x);
    else if (x.unit > x.a->size) store_wide(s, &x);
    else
        for (u32 l = 0; l < x.lanes; l++)
            store_element(s, x.array, lane_index(s, &x, l), stored_lane(s, &x, l));
}
