// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_mem.c: loads and stores: of units, of single elements, and partial ones.
//
// On a target without storage of 8 or 16 bits, single small elements of buffers are read
// from the surrounding word and written by two atomic operations, which preserve the
// word's other elements; in shared arrays they take a word each (lang_spirv_array.c).
#include "lang/lang_spirv.h"

enum { NON_PRIVATE = 0x20 };

struct access { /* a decomposed LOAD or STORE */
    struct spv_array *a;
    kval array, index;
    kval base;  /* of a contiguous access: the first element */
    kval n;     /* valid lanes, 0: all */
    kval value; /* loaded or stored */
    u32 lanes;  /* of the index */
    u32 unit;   /* bytes moved at once; size: element by element */
};

static enum dtype elem(const struct spv *s, kval array) { return kir_dtype(s->k, array); }

/* Units. */

static bool is_non_private(const struct spv *s, const struct spv_array *a)
{
    return s->is_vulkan && (a->storage == SPV_IN_WORKGROUP || a->is_coherent);
}

static u32 load_unit(struct spv *s, kval array, u32 unit, u32 at)
{
    u32 type = spv_unit_type(s, array, unit), pointer = spv_pointer(s, array, unit, at);
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

struct place {
    u32 word, shift;
}; /* of a small element: index of its word, bits below it */

static struct place place_of(struct spv *s, u32 size, u32 at)
{
    u32 per = 4 / size, inner = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, at, spv_u32(s, per - 1));
    return (struct place){
        SPV_BIN(s, SPV_SHIFT_RIGHT_LOGICAL, SR_U32, at, spv_u32(s, spv_log2(per))),
        SPV_BIN(s, SPV_SHIFT_LEFT_LOGICAL, SR_U32, inner, spv_u32(s, spv_log2(size * 8)))};
}

static u32 load_within_word(struct spv *s, kval array, u32 at)
{
    u32 size = s->array[array]->size;
    struct place p = place_of(s, size, at);
    u32 w = load_unit(s, array, 4, p.word);
    return SPV_BIN(s, SPV_SHIFT_RIGHT_LOGICAL, SR_U32, w,
                   p.shift); /* higher bits, removed later */
}

static void store_within_word(struct spv *s, kval array, u32 at, u32 x)
{
    enum { DEVICE = 1, RELAXED = 0, QUEUE_FAMILY = 5 };
    u32 size = s->array[array]->size, type = spv_type_reg(s, SR_U32);
    struct place p = place_of(s, size, at);
    u32 pointer = spv_pointer(s, array, 4, p.word), ones = spv_u32(s, size == 1 ? 0xff : 0xffff);
    u32 keep =
        SPV_BIN(s, SPV_NOT, SR_U32, SPV_BIN(s, SPV_SHIFT_LEFT_LOGICAL, SR_U32, ones, p.shift), 0);
    u32 bits = SPV_BIN(s, SPV_BITWISE_AND, SR_U32, x, ones);
    u32 scope = spv_u32(s, s->is_vulkan ? QUEUE_FAMILY : DEVICE), order = spv_u32(s, RELAXED);
    bits = SPV_BIN(s, SPV_SHIFT_LEFT_LOGICAL, SR_U32, bits, p.shift);
    SPV_PUT(&s->code, SPV_ATOMIC_AND, type, spv_id(s), pointer, scope, order, keep);
    SPV_PUT(&s->code, SPV_ATOMIC_OR, type, spv_id(s), pointer, scope, order, bits);
}

/* Converts a small element in the low bits of a word to a lane; is_clean: higher bits are zero. */
static u32 lane_of_small(struct spv *s, enum dtype t, u32 x, bool is_clean)
{
    bool is_done = is_clean && t != DT_BOOL && dtype_kind(t) != DK_INT;
    return is_done ? x : spv_unpack(s, t, x, 0);
}

static u32 load_reg(struct spv *s, kval array, u32 i, u32 at)
{
    const struct spv_array *a = s->array[array];
    u32 pointer = a->lane_var ? a->lane_var[i] : spv_pointer(s, array, 0, at);
    return SPV_INS(s, SPV_LOAD, spv_reg_type(s, array), pointer, 0, 0);
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
    if (dtype_size(t) >= 4 || a->size == 4) { /* a word each, of any type */
        u32 x = load_unit(s, array, a->size, at);
        return t == DT_BOOL ? spv_unpack(s, t, x, 0) : x;
    }
    if (a->storage == SPV_IN_BUFFER && !spv_can_store_small(s, a->size))
        return lane_of_small(s, t, load_within_word(s, array, at), false);
    u32 x = load_unit(s, array, a->size, at);
    return lane_of_small(s, t, SPV_BIN(s, SPV_U_CONVERT, SR_U32, x, 0), true);
}

static void store_element(struct spv *s, kval array, u32 at, u32 x)
{
    const struct spv_array *a = s->array[array];
    enum dtype t = elem(s, array);
    if (a->storage == SPV_IN_FUNCTION) {
        store_reg(s, array, 0, at, x);
        return;
    }
    if (t == DT_BOOL) x = SPV_INS(s, SPV_SELECT, spv_type_reg(s, SR_U32), x, spv_u32(s, 1), spv_u32(s, 0));
    bool is_small = a->size < 4;
    if (is_small && a->storage == SPV_IN_BUFFER && !spv_can_store_small(s, a->size)) {
        store_within_word(s, array, at, x);
        return;
    }
    u32 type = spv_unit_type(s, array, a->size);
    if (is_small) x = SPV_INS(s, SPV_U_CONVERT, type, x, 0, 0);
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
    spv_set_lane(s, x->value, i, spv_resize(s, id, from, to));
}

static u32 stored_lane(struct spv *s, const struct access *x, u32 i)
{
    return spv_lane_as(s, x->value, i, element_reg(s, x->array));
}

/* Contiguous accesses by units. */

static u32 unit_index(struct spv *s, const struct access *x, u32 j)
{
    u32 first = spv_quot(s, x->base, spv_log2(x->unit / x->a->size));
    return j ? SPV_BIN(s, SPV_I_ADD, SR_U32, first, spv_u32(s, j)) : first;
}

static void load_parts(struct spv *s, const struct access *x, u32 j, u32 id)
{
    u32 n = x->unit / spv_part_size(x->a);
    u32 type = spv_type_reg(s, spv_part_reg(s, x->array));
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
    u32 n = x->lanes * x->a->size / x->unit;
    for (u32 j = 0; j < n; j++) {
        load_parts(s, x, j, load_unit(s, x->array, x->unit, unit_index(s, x, j)));
    }
}

static void store_wide(struct spv *s, const struct access *x)
{
    u32 per = x->unit / spv_part_size(x->a), n = x->lanes * x->a->size / x->unit;
    u32 type = spv_unit_type(s, x->array, x->unit);
    for (u32 j = 0; j < n; j++) {
        u32 w[2 + SPV_UNIT_MAX / 4] = {type};
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
    return SPV_INS(s, SPV_S_LESS_THAN, spv_type_reg(s, SR_BOOL), spv_u32(s, i), n, 0);
}

static u32 lane_index(struct spv *s, const struct access *x, u32 i)
{
    return spv_lane_as(s, x->index, i, SR_U32);
}

/* Reads the first element instead of one that may not exist. */
static u32 load_guarded_lane(struct spv *s, const struct access *x, u32 i)
{
    enum spv_reg r = element_reg(s, x->array);
    u32 valid = is_valid(s, x, i);
    u32 at =
        SPV_INS(s, SPV_SELECT, spv_type_reg(s, SR_U32), valid, lane_index(s, x, i), spv_u32(s, 0));
    bool is_float = r == SR_F32 || r == SR_F64;
    u32 zero = is_float ? spv_const_f(s, r, 0) : spv_const_i(s, r, 0);
    return SPV_CHOOSE(s, r, valid, load_element(s, x->array, at), zero);
}

static void load_guarded(struct spv *s, const struct access *x)
{
    for (u32 i = 0; i < x->lanes; i++) set_loaded(s, x, i, load_guarded_lane(s, x, i));
}

static void store_guarded(struct spv *s, const struct access *x)
{
    for (u32 i = 0; i < x->lanes; i++) {
        u32 then = spv_id(s), merge = spv_id(s), id = stored_lane(s, x, i),
            at = lane_index(s, x, i);
        u32 cond = is_valid(s, x, i);
        SPV_PUT(&s->code, SPV_SELECTION_MERGE, merge, 0);
        SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, cond, then, merge);
        spv_label(s, then);
        store_element(s, x->array, at, id);
        spv_branch(s, merge);
        spv_label(s, merge);
    }
}

/* "if (all lanes are valid)": two blocks that join in a third. */
struct fork {
    u32 full, part, merge, mark;
};

static struct fork fork_open(struct spv *s, const struct access *x)
{
    struct fork f = {spv_id(s), spv_id(s), spv_id(s), 0};
    u32 n = spv_lane_as(s, x->n, 0, SR_U32), bool_type = spv_type_reg(s, SR_BOOL);
    u32 all = SPV_INS(s, SPV_S_LESS_THAN_EQUAL, bool_type, spv_u32(s, x->lanes), n, 0);
    SPV_PUT(&s->code, SPV_SELECTION_MERGE, f.merge, 0);
    SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, all, f.full, f.part);
    spv_label(s, f.full);
    f.mark = spv_scope(s);
    return f;
}

static u32 fork_turn(struct spv *s, const struct fork *f) /* the last block of the first branch */
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

/* The lanes or words of a loaded value. */
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
    if (x->a->per > 1) at = SPV_BIN(s, SPV_I_MUL, SR_U32, at, spv_u32(s, x->a->per));
    return i ? SPV_BIN(s, SPV_I_ADD, SR_U32, at, spv_u32(s, i)) : at;
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

/* Complete accesses. */

static struct access access_of(struct spv *s, kval array, kval index, kval n)
{
    const struct kir_ins *i = kir_at(s->k, index);
    struct access x = {.a = s->array[array],
                       .array = array,
                       .index = index,
                       .n = n,
                       .base = i->op == KI_RAMP ? i->a : index,
                       .lanes = i->lanes};
    x.unit = x.a->size;
    if (x.a->storage == SPV_IN_BUFFER) x.unit = spv_unit_of(s, x.a, index);
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
        for (u32 l = 0; l < x.lanes; l++) {
            u32 at = lane_index(s, &x, l);
            store_element(s, x.array, at, stored_lane(s, &x, l));
        }
}
