// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_frag.c: fragments as cooperative matrices of SPV_KHR_cooperative_matrix, held by
// a subgroup. A fragment is one id. Rows, pitches and addresses count units of the array's
// variable, of any width: the extension reads through a pointer to any scalar or vector.
#include "lang/lang_spirv.h"

enum { ROW_MAJOR = 0, COLUMN_MAJOR = 1 };
enum { SIGNED_A = 1, SIGNED_B = 2, SIGNED_C = 4, SIGNED_RESULT = 8 };
enum { NON_PRIVATE = 0x20 };

/* The scalar that fills a fragment: a lane with the component's type. */
static u32 component(struct spv *s, enum dtype t, kval v)
{
    u32 x = spv_lane_as(s, v, 0, t == DT_I64 ? SR_U64 : spv_reg(s, v)), type = spv_type_component(s, t);
    if (dtype_size(t) >= 4) return x;
    if (t != DT_F16) return SPV_INS(s, SPV_U_CONVERT, type, x, 0, 0);
    u32 pair = SPV_INS(s, SPV_BITCAST, spv_type_vec(s, type, 2), x, 0, 0), id = spv_id(s);
    SPV_PUT(&s->code, SPV_COMPOSITE_EXTRACT, type, id, pair, 0);
    return id;
}

struct place {
    u32 pointer, layout, pitch;
};

static struct place place_of(struct spv *s, const struct kir_ins *x, kval pitch)
{
    u32 unit = spv_frag_unit(s, x->a, x->b, pitch), per = unit / s->array[x->a]->size;
    return (struct place){spv_pointer(s, x->a, unit, spv_quot(s, x->b, spv_log2(per))),
                          spv_u32(s, x->aux ? COLUMN_MAJOR : ROW_MAJOR),
                          spv_quot(s, pitch, spv_log2(per))};
}

static void load(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct place p = place_of(s, x, x->c);
    const u32 w[] = {spv_type_frag(s, v), spv_id(s), p.pointer, p.layout, p.pitch, NON_PRIVATE};
    spv_put(&s->code, SPV_MATRIX_LOAD, w, countof(w));
    spv_set_lane(s, v, 0, w[1]);
}

static void store(struct spv *s, const struct kir_ins *x)
{
    struct place p = place_of(s, x, x->d);
    SPV_PUT(&s->code, SPV_MATRIX_STORE, p.pointer, spv_lane(s, x->c, 0), p.layout, p.pitch,
            NON_PRIVATE);
}

static bool is_signed(const struct spv *s, kval v)
{
    return dtype_kind(kir_dtype(s->k, v)) == DK_INT;
}

static void multiply(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    u32 flags = (is_signed(s, x->a) ? SIGNED_A : 0) | (is_signed(s, x->b) ? SIGNED_B : 0) |
                (is_signed(s, x->c) ? SIGNED_C | SIGNED_RESULT : 0);
    const u32 w[] = {spv_type_frag(s, v),  spv_id(s), spv_lane(s, x->a, 0), spv_lane(s, x->b, 0),
                     spv_lane(s, x->c, 0), flags};
    spv_put(&s->code, SPV_MATRIX_MULADD, w, flags ? 6 : 5);
    spv_set_lane(s, v, 0, w[1]);
}

static u32 cast(struct spv *s, kval v)
{
    kval a = kir_at(s->k, v)->a;
    enum dtype from = kir_dtype(s->k, a), to = kir_dtype(s->k, v);
    u32 type = spv_type_frag(s, v), x = spv_lane(s, a, 0);
    bool from_float = dtype_is_float(from), to_float = dtype_is_float(to);
    if (from == to) return x;
    if (from_float && to_float) return SPV_INS(s, SPV_F_CONVERT, type, x, 0, 0);
    bool extends = is_signed(s, from_float ? v : a);
    enum spirv_op op = to_float     ? extends ? SPV_CONVERT_S_TO_F : SPV_CONVERT_U_TO_F
                       : from_float ? extends ? SPV_CONVERT_F_TO_S : SPV_CONVERT_F_TO_U
                       : extends    ? SPV_S_CONVERT
                                    : SPV_U_CONVERT;
    if (!from_float && !to_float && dtype_size(from) == dtype_size(to)) op = SPV_BITCAST;
    return SPV_INS(s, op, type, x, 0, 0);
}

void spv_frag(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    bool is_float = dtype_is_float(x->dtype);
    enum spirv_op add = is_float ? SPV_F_ADD : SPV_I_ADD, mul = is_float ? SPV_F_MUL : SPV_I_MUL;
    switch (x->op) {
    case KI_FLOAD: load(s, v); break;
    case KI_FSTORE: store(s, x); break;
    case KI_FMMA: multiply(s, v); break;
    case KI_FILL:
        spv_set_lane(s, v, 0,
                     SPV_INS(s, SPV_COMPOSITE_CONSTRUCT, spv_type_frag(s, v),
                             component(s, x->dtype, x->a), 0, 0));
        break;
    case KI_CAST: spv_set_lane(s, v, 0, cast(s, v)); break;
    case KI_ADD:
    case KI_MUL:
        spv_set_lane(s, v, 0,
                     SPV_INS(s, x->op == KI_ADD ? add : mul, spv_type_frag(s, v),
                             spv_lane(s, x->a, 0), spv_lane(s, x->b, 0), 0));
        break;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KI_BITS: case KIR_UNARY: case KI_SUB:
    case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS:
    case KI_SELECT: case KIR_STRUCTURE: case KIR_SG_REDUCTIONS: case KI_SHUFFLE:
    default: unreachable();
    }
}
