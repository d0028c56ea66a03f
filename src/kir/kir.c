// SPDX-License-Identifier: Apache-2.0
//
// kir.c: the operator table and queries about a kernel's values. Functions
// here only read; the builder (build.c) is the only writer of struct kir.
#include "kir/kir.h"

const struct kir_op_info *kir_op_info(enum kir_op op)
{
    static const struct kir_op_info table[N_KIR_OPS] = {
        [KI_NONE] = {"none", 0, 'C', 'V'},
#define CLS_P 'P'
#define CLS_M 'M'
#define CLS_C 'C'
#define RULE_S 'S'
#define RULE_B 'B'
#define RULE_I 'I'
#define RULE_V 'V'
#define X(id, text, n, c, r)                                                                       \
    [KI_##id] = {.name = text, .n_args = n, .cls = CLS_##c, .rule = RULE_##r},
#include "kir/kir.inc"
#undef X
    };
    assert(op < N_KIR_OPS);
    return &table[op];
}

u32 kir_lanes(const struct kir *k, kval v)
{
    assert(v < k->ins.n);
    return k->ins.v[v].lanes;
}

enum dtype kir_dtype(const struct kir *k, kval v)
{
    assert(v < k->ins.n);
    return k->ins.v[v].dtype;
}

kval kir_operand(const struct kir_ins *x, u32 i)
{
    assert(i < 4);
    const kval v[4] = {x->a, x->b, x->c, x->d};
    return v[i];
}

bool kir_has_imm(enum kir_op op)
{
    return op == KI_RAMP || op == KI_LANE || op == KI_HALVES || op == KI_ZIP || op == KI_THREAD || op == KI_SUBGROUP;
}

bool kir_is_frag(const struct kir *k, kval v) { return kir_at(k, v)->role != KR_NONE; }

enum dtype kir_frag_stored(enum dtype t) { return t == DT_TF32 ? DT_F32 : t; }

u32 kir_frag_group(enum dtype t) { return dtype_size(t) <= 2 ? (u32)(4 / dtype_size(t)) : 0; }

bool kir_is_alone(const struct kir *k) { return k->subgroup == 1 && kir_threads(k) == 1; }

struct kir_frag kir_frag_of(const struct kir_ins *x)
{
    return (struct kir_frag){.role = x->role, .dtype = x->dtype, .rows = x->rows, .cols = x->cols};
}

bool kir_is_collective(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    switch (x->op) {
    case KIR_COLLECTIVES: return true;
    case KI_LOAD:
    case KI_STORE:
    case KI_CAST:
    case KI_ADD:
    case KI_MUL: return kir_is_frag(k, x->a);
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KI_BITS: case KIR_UNARY: case KI_SUB:
    case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS:
    case KI_SELECT: case KIR_ARRAYS: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL:
    case KIR_SYNC: return false;
    default: unreachable();
    }
}

u32 kir_dot_terms(enum dtype a, enum dtype b, enum dtype sum)
{
    bool is_half = a == b && (a == DT_F16 || a == DT_BF16);
    if (sum == DT_F32) return is_half ? 2 : 0;
    if (sum == DT_I16) return a == DT_U8 && b == DT_I8 ? 2 : 0;
    if (sum != DT_I32 || !dtype_is_int(a) || !dtype_is_int(b)) return 0;
    i64 size = dtype_size(a);
    return size == dtype_size(b) && size < 4 ? (u32)(4 / size) : 0;
}

u32 kir_dot_places(enum kir_op op, u32 terms, u32 lane, u32 *a, u32 *b)
{
    bool is_mmla = op == KI_MMLA;
    *a = (is_mmla ? lane / 2 * 2 : lane) * terms, *b = (is_mmla ? lane % 2 * 2 : lane) * terms;
    return is_mmla ? 2 * terms : terms;
}

u32 kir_threads(const struct kir *k)
{
    u32 n = 1;
    for (u32 i = 0; i < countof(k->group); i++) n *= k->group[i] ? k->group[i] : 1;
    return n;
}

bool kir_opens(enum kir_op op) { return op == KI_GRID || op == KI_LOOP || op == KI_IF; }

bool kir_is_const(const struct kir *k, kval v, i64 *out)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != KI_CONST || dtype_is_float(x->dtype)) return false;
    if (out) *out = x->imm.i;
    return true;
}

bool kir_is_float(const struct kir *k, kval v, double *out)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->op != KI_CONST || !dtype_is_float(x->dtype)) return false;
    if (out) *out = x->imm.f;
    return true;
}

bool kir_is_size(const struct kir_ins *x) { return x->op == KI_PARAM || (x->op == KI_CONST && x->dtype == DT_I64 && x->lanes == 1); }

/* Constants, parameters and buffers are printed where they are used. */
bool kir_is_named(const struct kir_ins *x)
{
    return x->dtype != DT_NONE && x->op != KI_CONST && x->op != KI_PARAM && x->op != KI_BUF;
}

bool kir_is_own(const struct kir *k, const struct kir_ins *x)
{
    if (x->op != KI_FLOAD && x->op != KI_FSTORE) return false;
    return kir_at(k, x->a)->op == KI_ALLOC && kir_at(k, x->a)->aux == KS_REG;
}

/* A thread has two rows, eight apart, and of every eight columns two neighbours: PTX ISA, "Register Fragments for wgmma" and "Matrix fragments for mma". */
struct kir_own kir_own_of(i64 row, i64 col)
{
    const i64 subgroup = row / KIR_OWN_ROWS, below = row % KIR_OWN_ROWS, beside = col % KIR_OWN_COLS;
    return (struct kir_own){(u32)(subgroup * KIR_OWN_SUBGROUP + below % 8 * 4 + beside / 2), below / 8, col / KIR_OWN_COLS * 2 + beside % 2};
}

u32 kir_warpgroup(const struct kir *k) { return k->warpgroup ? k->warpgroup : 1; }

bool kir_has_op(const struct kir *k, enum kir_op op)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->op == op) return true;
    return false;
}

bool kir_is_contiguous(const struct kir *k, kval idx)
{
    const struct kir_ins *x = kir_at(k, idx);
    return x->lanes == 1 || (x->op == KI_RAMP && x->imm.i == 1);
}

bool kir_is_copy(const struct kir *k, kval store)
{
    const struct kir_ins *x = kir_at(k, store);
    return x->op == KI_STORE && x->aux == KW_COPY;
}

bool kir_is_far(const struct kir_ins *x)
{
    return x->op == KI_BUF || (x->op == KI_ALLOC && x->aux == KS_TEMP);
}

u32 kir_text_id(const struct kir *k, kval v)
{
    u32 n = 0;
    if (!v || v >= k->ins.n || !kir_is_named(kir_at(k, v))) return 0;
    for (kval i = 1; i <= v; i++) n += kir_is_named(kir_at(k, i));
    return n;
}

const char *kir_space_name(enum kir_space s)
{
    switch (s) {
    case KS_REG: return "reg";
    case KS_WORK: return "work";
    case KS_SHARED: return "shared";
    case KS_TEMP: return "temp";
    }
    unreachable();
}

const char *kir_loop_name(enum kir_loop l)
{
    switch (l) {
    case KL_SERIAL: return "serial";
    case KL_UNROLL: return "unroll";
    case KL_VECTOR: return "vector";
    }
    unreachable();
}

const char *kir_access_name(enum kir_access a)
{
    switch (a) {
    case KA_IN: return "in";
    case KA_OUT: return "out";
    case KA_INOUT: return "inout";
    }
    unreachable();
}

const char *kir_way_name(enum kir_way w)
{
    switch (w) {
    case KW_PLAIN: return "store";
    case KW_COPY: return "copy";
    case KW_STREAM: return "stream";
    }
    unreachable();
}

const char *kir_role_name(enum kir_role r)
{
    switch (r) {
    case KR_NONE: return "none";
    case KR_A: return "a";
    case KR_B: return "b";
    case KR_ACC: return "acc";
    }
    unreachable();
}
