// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_value.c: values by lanes and words. Lanes of ramps, constants, splats and
// packed words are created on demand, at the place of use. Such an id serves later users
// only within its block structure: ids created in a loop or branch are forgotten at its end.
// Parameters and numbers of workgroups and threads are read at the top of the function.
//
// i64 is 32 bits wide, unless its value comes from data and may need more: values
// computed from grid indices, threads and sizes fit, since no buffer has 2^31 elements.
#include "lang/lang_spirv.h"

/* Which i64 values are 64 bits wide. */

static bool fits_word(struct kir_range r) { return r.lo >= INT32_MIN && r.hi <= INT32_MAX; }

static bool any_operand(const struct spv *s, const bool *is, const struct kir_ins *x)
{
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
        if (kir_operand(x, i) && kir_dtype(s->k, kir_operand(x, i)) == DT_I64 &&
            is[kir_operand(x, i)])
            return true;
    return false;
}

/* Whether a value is more than an index, a bound or a side of a comparison: it is stored,
   converted, or an operand of such a value. */
static void find_kept(const struct spv *s, bool *kept)
{
    for (kval v = s->k->ins.n - 1; v; v--) {
        const struct kir_ins *x = kir_at(s->k, v);
        bool is_store = x->op == KI_STORE || x->op == KI_FSTORE;
        if (is_store || x->op == KI_CAST || x->op == KI_BITS) kept[is_store ? x->c : x->a] = true;
        bool is_memory = is_store || x->op == KI_LOAD || x->op == KI_FLOAD;
        bool is_test = kir_op_info(x->op)->rule == 'B';
        if (is_memory || is_test || x->op == KI_LOOP || !kept[v]) continue;
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) kept[kir_operand(x, i)] = true;
    }
}

struct origin { /* of i64 values */
    bool *data; /* by kval: may need 64 bits */
    bool *kept;
};

/* The integer part of a float that is only used as an index fits 32 bits like any index. */
static bool comes_from_data(const struct spv *s, const struct origin *o, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    switch (x->op) {
    case KI_CAST: return o->kept[v] || !dtype_is_float(kir_dtype(s->k, x->a));
    case KI_BUF:
    case KI_BITS: return true;
    case KI_ALLOC: return o->data[v] || x->aux == KS_TEMP; /* 64 bits per element in any case */
    case KI_LOAD:
    case KI_FLOAD: return o->data[x->a];
    case KI_CONST: return !fits_word((struct kir_range){x->imm.i, x->imm.i});
    case KIR_NO_OP: case KI_PARAM: case KIR_LANES: case KIR_UNARY: case KIR_BINARY: case KI_FMA:
    case KIR_DOTS: case KI_SELECT: case KI_STORE: case KI_TILE: case KI_PREFETCH:
    case KIR_CONTROL: case KIR_SYNC: case KI_THREAD: case KI_SUBGROUP: case KIR_SG_REDUCTIONS:
    case KI_SHUFFLE: case KI_FILL: case KI_FSTORE: case KI_FMMA: return any_operand(s, o->data, x);
    default: unreachable();
    }
}

static void find_data(const struct spv *s, struct origin *o)
{
    const struct kir *k = s->k;
    for (bool changed = true; changed;) { /* a later store may make an array's earlier loads data-dependent */
        changed = false;
        for (kval v = 1; v < k->ins.n; v++) {
            const struct kir_ins *x = kir_at(k, v);
            if (x->dtype == DT_I64) o->data[v] = comes_from_data(s, o, v);
            bool stores = (x->op == KI_STORE || x->op == KI_FSTORE) && kir_dtype(k, x->c) == DT_I64;
            if (!stores || !o->data[x->c] || o->data[x->a]) continue;
            o->data[x->a] = changed = true;
        }
    }
}

void spv_find_wide(struct spv *s)
{
    u32 n = s->k->ins.n;
    struct origin o = {arena_alloc(s->arena, n), arena_alloc(s->arena, n)};
    find_kept(s, o.kept);
    find_data(s, &o);
    s->wide = arena_alloc(s->arena, n);
    for (kval v = 1; v < n; v++) {
        const struct kir_ins *x = kir_at(s->k, v);
        bool is_array = x->op == KI_BUF || x->op == KI_ALLOC;
        s->wide[v] = o.data[v] && x->op != KI_LOOP &&
                     (is_array || x->op == KI_LOAD || !fits_word(kir_range(s->k, v)));
    }
}

/* Slots. */

static void fill(struct spv *s, u32 *slot, u32 id)
{
    *slot = id;
    *arr_push(s->arena, &s->made) = slot;
}

u32 spv_scope(struct spv *s) { return s->made.n; }

void spv_leave(struct spv *s, u32 mark)
{
    while (s->made.n > mark) *s->made.v[--s->made.n] = 0;
}

void spv_set_lane(struct spv *s, kval v, u32 i, u32 id)
{
    fill(s, &s->lane[s->lane_at[v] + i], id);
    spv_debug_value(s, v, i, id);
}

void spv_set_word(struct spv *s, kval v, u32 i, u32 id)
{
    fill(s, &s->word[s->word_at[v] + i], id);
}

bool spv_is_packed(const struct spv *s, kval v)
{
    return spv_has_words(s, v) && s->word[s->word_at[v]] && !s->lane[s->lane_at[v]];
}

void spv_number_values(struct spv *s)
{
    u32 n_lanes = 0, n_words = 0, n = s->k->ins.n;
    s->lane_at = arena_array(s->arena, u32, n);
    s->word_at = arena_array(s->arena, u32, n);
    for (kval v = 1; v < n; v++) {
        s->lane_at[v] = n_lanes;
        s->word_at[v] = n_words;
        if (kir_op_info(kir_at(s->k, v)->op)->rule == 'V') continue;
        n_lanes += spv_lanes(s, v);
        n_words += spv_has_words(s, v) ? spv_words(s, v) : 0;
    }
    s->lane = arena_array(s->arena, u32, n_lanes + 1);
    s->word = arena_array(s->arena, u32, n_words + 1);
    for (i64 i = 1; i < countof(s->quot); i++) s->quot[i] = arena_array(s->arena, u32, n);
    s->param = arena_array(s->arena, u32, s->n_param + 1);
}

/* At the top of the function, so that the value is available in all of it. */

static u32 builtin_var(struct spv *s, enum spirv_builtin b, u32 type)
{
    u32 *var = b < SPV_BI_SUBGROUP_ID ? &s->input[b] : &s->input_lane[b - SPV_BI_SUBGROUP_ID];
    if (!*var) {
        u32 pointer = spv_type_pointer(s, SPV_IN_INPUT, type);
        *var = spv_id(s);
        SPV_PUT(&s->globals, SPV_VARIABLE, pointer, *var, SPV_IN_INPUT);
        SPV_PUT(&s->decorations, SPV_DECORATE, *var, SPV_DEC_BUILTIN, (u32)b);
    }
    spv_use(s, *var);
    return *var;
}

static struct buf to_prologue(struct spv *s)
{
    struct buf body = s->code;
    s->code = s->prologue;
    return body;
}

static void to_body(struct spv *s, struct buf body)
{
    s->prologue = s->code;
    s->code = body;
}

/* Component i of WorkgroupId or LocalInvocationId. */
static u32 position(struct spv *s, enum spirv_builtin b, u32 i)
{
    u32 *slot = &s->input_value[b == SPV_BI_LOCAL_ID][i];
    if (*slot) return *slot;
    struct buf body = to_prologue(s);
    u32 type = spv_type_reg(s, SR_U32), vec = spv_type_vec(s, type, 3), id = spv_id(s);
    u32 all = SPV_INS(s, SPV_LOAD, vec, builtin_var(s, b, vec), 0, 0);
    SPV_PUT(&s->code, SPV_COMPOSITE_EXTRACT, type, id, all, i);
    to_body(s, body);
    return *slot = id;
}

u32 spv_thread(struct spv *s, u32 dim) { return position(s, SPV_BI_LOCAL_ID, dim); }

u32 spv_group(struct spv *s, u32 dim) { return position(s, SPV_BI_WORKGROUP_ID, dim); }

u32 spv_subgroup(struct spv *s, bool is_lane)
{
    u32 *slot = &s->input_value[2][is_lane], type = spv_type_reg(s, SR_U32);
    if (*slot) return *slot;
    spv_need(s, SPV_CAP_SUBGROUP);
    struct buf body = to_prologue(s);
    u32 var = builtin_var(s, is_lane ? SPV_BI_LANE : SPV_BI_SUBGROUP_ID, type);
    *slot = SPV_INS(s, SPV_LOAD, type, var, 0, 0);
    to_body(s, body);
    return *slot;
}

u32 spv_parameter(struct spv *s, i64 i)
{
    if (s->param[i]) return s->param[i];
    struct buf body = to_prologue(s);
    s->param[i] = spv_param(s, i);
    to_body(s, body);
    return s->param[i];
}

/* Lanes. */

static u32 constant(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum spv_reg r = spv_reg(s, v);
    if (x->dtype == DT_F16) return spv_u32(s, f16_from_f32((float)x->imm.f));
    if (x->dtype == DT_BF16) return spv_u32(s, bf16_from_f32((float)x->imm.f));
    if (dtype_is_float(x->dtype)) return spv_const_f(s, r, x->imm.f);
    return spv_const_i(s, r, x->imm.i);
}

static u32 ramp_lane(struct spv *s, kval v, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum spv_reg r = spv_reg(s, v);
    u32 base = spv_lane_as(s, x->a, 0, r);
    if (!i) return base;
    return SPV_BIN(s, SPV_I_ADD, r, base, spv_const_i(s, r, x->imm.i * i));
}

/* A lane that has not been created yet. */
static u32 make_lane(struct spv *s, kval v, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (x->op == KI_RAMP) return ramp_lane(s, v, i);
    if (x->op == KI_SPLAT) return spv_lane_as(s, x->a, i % kir_lanes(s->k, x->a), spv_reg(s, v));
    u32 per = 4 / (u32)dtype_size(x->dtype), word = s->word[s->word_at[v] + i / per];
    assert(spv_has_words(s, v) && word);
    return spv_unpack(s, x->dtype, word, i % per);
}

u32 spv_lane(struct spv *s, kval v, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (x->op == KI_CONST) return constant(s, v);
    if (x->op == KI_PARAM) return spv_parameter(s, x->imm.i);
    u32 *slot = &s->lane[s->lane_at[v] + i];
    if (!*slot) fill(s, slot, make_lane(s, v, i));
    return *slot;
}

u32 spv_resize(struct spv *s, u32 id, enum spv_reg from, enum spv_reg to)
{
    if (from == to) return id;
    if (spv_is_pair(s, from)) return spv_low(s, id);
    return SPV_BIN(s, to == SR_U64 ? SPV_S_CONVERT : SPV_U_CONVERT, to, id, 0);
}

u32 spv_lane_as(struct spv *s, kval v, u32 i, enum spv_reg r)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (x->op == KI_CONST && x->dtype == DT_I64) return spv_const_i(s, r, x->imm.i);
    return spv_resize(s, spv_lane(s, v, i), spv_reg(s, v), r);
}

u32 spv_word(struct spv *s, kval v, u32 i)
{
    u32 *slot = &s->word[s->word_at[v] + i];
    if (*slot) return *slot;
    u32 lane[4], per = 4 / (u32)dtype_size(kir_dtype(s->k, v));
    const struct kir_ins *x = kir_at(s->k, v);
    bool is_same = x->op == KI_CONST || (x->op == KI_SPLAT && kir_lanes(s->k, x->a) == 1);
    if (is_same && i) return spv_word(s, v, 0);
    for (u32 j = 0; j < per; j++) lane[j] = spv_lane(s, v, i * per + j);
    fill(s, slot, spv_pack(s, kir_dtype(s->k, v), lane));
    return *slot;
}

/* Indices in units of 2^log2 elements. The division is known to be exact, so it
   may be pushed down to the factors of a sum of products; otherwise it is emitted. */
static u32 make_quot(struct spv *s, kval v, u32 log2)
{
    const struct kir_ins *x = kir_at(s->k, v);
    u32 type = spv_type_reg(s, SR_U32);
    i64 c, unit = (i64)1 << log2;
    bool is_sum = x->op == KI_ADD && !s->wide[v] && kir_multiple(s->k, x->a) >= unit;
    if (is_sum && kir_multiple(s->k, x->b) >= unit)
        return SPV_INS(s, SPV_I_ADD, type, spv_quot(s, x->a, log2), spv_quot(s, x->b, log2), 0);
    if (x->op == KI_MUL && !s->wide[v] && kir_is_const(s->k, x->b, &c) && c % unit == 0) {
        u32 a = spv_lane_as(s, x->a, 0, SR_U32);
        return c == unit ? a : SPV_INS(s, SPV_I_MUL, type, a, spv_u32(s, (u32)(c / unit)), 0);
    }
    return SPV_INS(s, SPV_SHIFT_RIGHT_ARITHMETIC, type, spv_lane_as(s, v, 0, SR_U32),
                   spv_u32(s, log2), 0);
}

u32 spv_quot(struct spv *s, kval v, u32 log2)
{
    i64 c;
    if (!log2) return spv_lane_as(s, v, 0, SR_U32);
    if (kir_is_const(s->k, v, &c)) return spv_u32(s, (u32)(c >> log2));
    u32 *slot = &s->quot[log2][v];
    if (!*slot) {
        u32 id = make_quot(s, v, log2);
        fill(s, slot, id);
    }
    return *slot;
}
