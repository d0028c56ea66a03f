// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_body.c: the traversal of a kernel. Every grid becomes a function without arguments,
// an entry point NAME_0, NAME_1 ...; loops and branches become structured control flow.
#include "lang/lang_spirv.h"

#include <math.h>
#include <string.h>

/* Pure values. */

static bool is_wide_op(const struct spv *s, const struct kir_ins *x)
{
    bool is_wide = false;
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
        kval a = kir_operand(x, i);
        is_wide |= kir_dtype(s->k, a) == DT_I64 && s->wide[a];
    }
    return is_wide;
}

/* Division of nonnegative values needs no sign handling. */
static enum dtype type_for(const struct spv *s, const struct kir_ins *x, enum spv_reg r)
{
    enum dtype t = kir_dtype(s->k, x->op == KI_SELECT ? x->b : x->a);
    if (t != DT_I64 || (x->op != KI_DIV && x->op != KI_MOD)) return t;
    bool is_positive = kir_range(s->k, x->a).lo >= 0 && kir_range(s->k, x->b).lo >= 0;
    return is_positive ? r == SR_U64 ? DT_U64 : DT_U32 : t;
}

/* The constant zero as a divisor of floats, with its sign in *zero. */
static bool is_zero_divisor(const struct spv *s, const struct kir_ins *x, double *zero)
{
    if (x->op != KI_DIV || !dtype_is_float(x->dtype)) return false;
    const struct kir_ins *d = kir_at(s->k, x->b);
    while (d->op == KI_SPLAT) d = kir_at(s->k, d->a);
    *zero = d->imm.f;
    return d->op == KI_CONST && d->imm.f == 0;
}

/* Mesa 22 returns zero for a division by a constant zero; multiplication by infinity is equivalent by IEEE 754, and right there. */
static void by_lanes(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    double zero;
    bool is_by_zero = is_zero_divisor(s, x, &zero);
    kval first = x->op == KI_SELECT ? x->b : x->a;
    enum spv_reg r = spv_reg(s, first), to = spv_reg(s, v);
    if (kir_dtype(s->k, first) == DT_I64)
        r = is_wide_op(s, x) || (to == SR_U64 && x->dtype == DT_I64) ? SR_U64 : SR_U32;
    enum dtype t = type_for(s, x, r);
    for (u32 i = 0; i < spv_lanes(s, v); i++) {
        u32 arg[3] = {0};
        for (u32 j = 0; j < kir_op_info(x->op)->n_args; j++) {
            bool is_cond = x->op == KI_SELECT && j == 0;
            arg[j] = spv_lane_as(s, kir_operand(x, j), i, is_cond ? SR_BOOL : r);
        }
        if (is_by_zero) arg[1] = spv_const_f(s, r, copysign(INFINITY, zero));
        u32 id = spv_scalar(s, is_by_zero ? KI_MUL : x->op, t, r, arg);
        spv_set_lane(s, v, i, x->dtype == DT_I64 ? spv_resize(s, id, r, to) : id);
    }
}

static void reduce(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum kir_op op = x->op == KI_HADD ? KI_ADD : x->op == KI_HMIN ? KI_MIN : KI_MAX;
    enum spv_reg r = spv_reg(s, x->a), to = spv_reg(s, v);
    u32 lane[64], n = spv_lanes(s, x->a);
    for (u32 i = 0; i < n; i++) lane[i] = spv_lane(s, x->a, i);
    for (n /= 2; n; n /= 2)
        for (u32 i = 0; i < n; i++) {
            const u32 arg[] = {lane[i], lane[i + n], 0};
            lane[i] = spv_scalar(s, op, kir_dtype(s->k, x->a), r, arg);
        }
    spv_set_lane(s, v, 0, spv_resize(s, lane[0], r, to));
}

static void cast(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum dtype from = kir_dtype(s->k, x->a);
    u32 n = spv_lanes(s, v);
    if (spv_is_half(from) && x->dtype == DT_F32 && spv_is_packed(s, x->a)) {
        for (u32 i = 0; i < n; i += 2) {
            u32 a, b;
            spv_from_half2(s, from, spv_word(s, x->a, i / 2), &a, &b);
            spv_set_lane(s, v, i, a);
            spv_set_lane(s, v, i + 1, b);
        }
    } else if (spv_is_half(x->dtype) && from == DT_F32 && n > 1) {
        for (u32 i = 0; i < n; i += 2) {
            u32 a = spv_lane(s, x->a, i), b = spv_lane(s, x->a, i + 1);
            spv_set_word(s, v, i / 2, spv_to_half2(s, x->dtype, a, b));
        }
    } else {
        for (u32 i = 0; i < n; i++) spv_set_lane(s, v, i, spv_cast(s, v, spv_lane(s, x->a, i)));
    }
}

/* By words if both operands are packed and all lanes have the same condition. */
static void choose(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *c = kir_at(s->k, x->a);
    bool is_one = c->op == KI_SPLAT || c->op == KI_CONST; /* of bool, thus of a scalar */
    bool packed = spv_is_packed(s, x->b) || spv_is_packed(s, x->c);
    if (!is_one || !packed) {
        by_lanes(s, v);
        return;
    }
    u32 cond = spv_lane(s, x->a, 0), type = spv_type_reg(s, SR_U32);
    for (u32 i = 0; i < spv_words(s, v); i++)
        spv_set_word(
            s, v, i,
            SPV_INS(s, SPV_SELECT, type, cond, spv_word(s, x->b, i), spv_word(s, x->c, i)));
}

static void bits(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum dtype from = kir_dtype(s->k, x->a);
    enum spv_reg r = dtype_size(from) == 8 && from != DT_F64 ? SR_U64 : spv_reg(s, x->a);
    for (u32 i = 0; i < spv_lanes(s, v); i++)
        spv_set_lane(s, v, i, spv_bits(s, from, x->dtype, spv_lane_as(s, x->a, i, r)));
}

/* Subgroup operations. */

static enum spirv_op subgroup_op(enum kir_op op, enum dtype t)
{
    bool is_float = dtype_is_float(t), is_signed = dtype_kind(t) == DK_INT;
    switch (op) {
    case KI_SGADD: return is_float ? SPV_GROUP_F_ADD : SPV_GROUP_I_ADD;
    case KI_SGMIN:
        return is_float ? SPV_GROUP_F_MIN : is_signed ? SPV_GROUP_S_MIN : SPV_GROUP_U_MIN;
    case KI_SGMAX:
        return is_float ? SPV_GROUP_F_MAX : is_signed ? SPV_GROUP_S_MAX : SPV_GROUP_U_MAX;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS:
    case KIR_STRUCTURE: case KI_SHUFFLE: case KIR_FRAGMENTS:
    default: unreachable();
    }
}

static void across_subgroup(struct spv *s, kval v)
{
    enum { SUBGROUP = 3, REDUCE = 0 };
    const struct kir_ins *x = kir_at(s->k, v);
    enum spv_reg r = spv_reg(s, x->a), to = spv_reg(s, v);
    u32 type = spv_type_reg(s, r), a = spv_lane(s, x->a, 0), scope = spv_u32(s, SUBGROUP), id;
    if (spv_is_pair(s, r) && x->op != KI_SHUFFLE) spv_fail(s, "needs 64-bit integers in subgroups, which the target lacks");
    if (!s->caps->has_subgroup) spv_fail(s, "needs subgroup operations, which the target lacks");
    spv_need(s, SPV_CAP_SUBGROUP);
    if (x->op == KI_SHUFFLE) {
        spv_need(s, SPV_CAP_SUBGROUP_SHUFFLE);
        id = SPV_INS(s, SPV_GROUP_SHUFFLE, type, scope, a, spv_lane_as(s, x->b, 0, SR_U32));
    } else {
        spv_need(s, SPV_CAP_SUBGROUP_ARITHMETIC);
        id = spv_id(s);
        SPV_PUT(&s->code, subgroup_op(x->op, x->dtype), type, id, scope, REDUCE, a);
        id = spv_wrap(s, x->dtype, id);
    }
    spv_set_lane(s, v, 0, spv_resize(s, id, r, to));
}

/* Structure. */

struct open { /* a LOOP or IF */
    kval head;
    u32 mark;            /* for values created inside */
    u32 merge;           /* block after it */
    u32 next;            /* LOOP: block of the step; IF: block of ELSE, 0: none */
    u32 header, stepped; /* LOOP: block, the index's next value */
};

struct walk {
    struct open open[64];
    u32 n;
    const kval *end; /* of LOOP, IF: END, or ELSE */
};

static void open_loop(struct spv *s, struct walk *w, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    u32 type = spv_type_reg(s, SR_U32), from = spv_lane_as(s, x->a, 0, SR_U32);
    u32 to = spv_lane_as(s, x->b, 0, SR_U32), before = s->label, body = spv_id(s),
        index = spv_id(s);
    struct open *o = &w->open[w->n++];
    *o = (struct open){.head = v,
                       .merge = spv_id(s),
                       .next = spv_id(s),
                       .header = spv_id(s),
                       .stepped = spv_id(s)};
    spv_branch(s, o->header);
    spv_label(s, o->header);
    SPV_PUT(&s->code, SPV_PHI, type, index, from, before, o->stepped, o->next);
    u32 goes_on = SPV_BIN(s, SPV_S_LESS_THAN, SR_BOOL, index, to);
    SPV_PUT(&s->code, SPV_LOOP_MERGE, o->merge, o->next, 0);
    SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, goes_on, body, o->merge);
    spv_label(s, body);
    o->mark = spv_scope(s);
    spv_set_lane(s, v, 0, index);
}

static void close_loop(struct spv *s, const struct open *o)
{
    const struct kir_ins *x = kir_at(s->k, o->head);
    u32 step = spv_lane_as(s, x->c, 0, SR_U32), index = spv_lane(s, o->head, 0);
    spv_branch(s, o->next);
    spv_label(s, o->next);
    SPV_PUT(&s->code, SPV_I_ADD, spv_type_reg(s, SR_U32), o->stepped, index, step);
    spv_branch(s, o->header);
}

static void open_if(struct spv *s, struct walk *w, kval v)
{
    u32 cond = spv_lane(s, kir_at(s->k, v)->a, 0), then = spv_id(s);
    struct open *o = &w->open[w->n++];
    *o = (struct open){.head = v, .merge = spv_id(s)};
    if (kir_at(s->k, w->end[v])->op == KI_ELSE) o->next = spv_id(s);
    SPV_PUT(&s->code, SPV_SELECTION_MERGE, o->merge, 0);
    SPV_PUT(&s->code, SPV_BRANCH_CONDITIONAL, cond, then, o->next ? o->next : o->merge);
    spv_label(s, then);
    o->mark = spv_scope(s);
}

static void turn_to_else(struct spv *s, const struct open *o)
{
    spv_leave(s, o->mark);
    spv_branch(s, o->merge);
    spv_label(s, o->next);
}

static void close_structure(struct spv *s, struct walk *w)
{
    if (!w->n) return; /* of a GRID */
    struct open *o = &w->open[--w->n];
    if (kir_at(s->k, o->head)->op == KI_LOOP) close_loop(s, o);
    else spv_branch(s, o->merge);
    spv_leave(s, o->mark);
    spv_label(s, o->merge);
}

static void barrier(struct spv *s)
{
    enum {
        WORKGROUP = 2,
        ACQUIRE_RELEASE = 8,
        BUFFERS = 0x40,
        SHARED = 0x100,
        AVAILABLE = 0x2000,
        VISIBLE = 0x4000
    };
    u32 semantics = ACQUIRE_RELEASE | BUFFERS | SHARED, scope = spv_u32(s, WORKGROUP);
    if (s->is_vulkan) semantics |= AVAILABLE | VISIBLE;
    SPV_PUT(&s->code, SPV_CONTROL_BARRIER, scope, scope, spv_u32(s, semantics));
}

static void some_lanes(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    u32 step = kir_lanes(s->k, x->a) / x->lanes, half = x->lanes / 2u;
    for (u32 i = 0; i < x->lanes; i++) {
        kval from = x->op == KI_LANE || i < half ? x->a : x->b;
        u32 at = x->op == KI_LANE ? (u32)x->imm.i + i * step : (u32)x->imm.i * half + i % half;
        spv_set_lane(s, v, i, spv_lane_as(s, from, at, spv_reg(s, v)));
    }
}

static void zip(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    for (u32 i = 0; i < x->lanes; i++) {
        const u32 at = (u32)x->imm.i + i;
        spv_set_lane(s, v, i, spv_lane_as(s, at % 2 ? x->b : x->a, at / 2, spv_reg(s, v)));
    }
}

static void pure(struct spv *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    switch (x->op) {
    case KI_CONST:
    case KI_PARAM:
    case KI_RAMP:
    case KI_SPLAT: break; /* created at their uses */
    case KI_LANE:
    case KI_HALVES: some_lanes(s, v); break;
    case KI_ZIP: zip(s, v); break;
    case KI_CAST: cast(s, v); break;
    case KI_BITS: bits(s, v); break;
    case KI_SELECT: choose(s, v); break;
    case KI_THREAD: spv_set_lane(s, v, 0, spv_thread(s, (u32)x->imm.i)); break;
    case KI_SUBGROUP: spv_set_lane(s, v, 0, spv_subgroup(s, x->imm.i != 0)); break;
    case KIR_HORIZONTAL: reduce(s, v); break;
    case KIR_SG_REDUCTIONS:
    case KI_SHUFFLE: across_subgroup(s, v); break;
    case KIR_UNARY:
    case KIR_BINARY:
    case KI_FMA: by_lanes(s, v); break;
    case KIR_NO_OP:
    case KIR_STRUCTURE:
    case KIR_FRAGMENTS:
    case KIR_DOTS:
    default: unreachable();
    }
}

static void statement(struct spv *s, struct walk *w, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    bool is_lazy = x->op == KI_RAMP || x->op == KI_SPLAT || x->op == KI_ALLOC;
    if (!is_lazy) spv_debug_line(s, v);
    switch (x->op) {
    case KI_LOOP: open_loop(s, w, v); return;
    case KI_IF: open_if(s, w, v); return;
    case KI_ELSE: turn_to_else(s, &w->open[w->n - 1]); return;
    case KI_END: close_structure(s, w); return;
    case KI_BARRIER: barrier(s); return;
    case KI_ALLOC: spv_alloc(s, v); return;
    case KI_LOAD: spv_load(s, v); return;
    case KI_STORE: spv_store(s, v); return;
    case KI_GRID:
    case KI_BUF:
    case KI_AWAIT:
    case KI_PREFETCH: return; /* no counterpart */
    case KIR_FRAGMENTS: spv_frag(s, v); return;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS:
    case KI_TILE: case KIR_SG_REDUCTIONS: case KI_SHUFFLE: break;
    }
    if (x->role) spv_frag(s, v);
    else pure(s, v);
}

/* Functions. */

static kval *find_ends(const struct spv *s)
{
    kval *end = arena_array(s->arena, kval, s->k->ins.n), open[64];
    u32 n = 0;
    for (kval v = 1; v < s->k->ins.n; v++) {
        enum kir_op op = kir_at(s->k, v)->op;
        if (op == KI_END || op == KI_ELSE) end[open[--n]] = v;
        if (kir_opens(op) || op == KI_ELSE) open[n++] = v;
    }
    return end;
}

/* The number of workgroups per dimension that every device launches at once.
   Larger grids are launched in parts, whose base follows the parameters. */
static bool may_need_pieces(const struct kir *k, kval grid)
{
    i64 n;
    return !kir_is_const(k, kir_at(k, grid)->a, &n) || n > 65535;
}

static u32 group_number(struct spv *s, kval grid, u32 dim)
{
    u32 id = spv_group(s, dim);
    if (!may_need_pieces(s->k, grid)) return id;
    u32 base = spv_parameter(s, s->k->param.n + dim);
    return SPV_BIN(s, SPV_I_ADD, SR_U32, id, base);
}

static void put_entry(struct spv *s, u32 function, struct str name)
{
    enum { COMPUTE = 5 };
    u32 n = 0;
    u32 *interface = arena_array(s->arena, u32, s->used.n + 1);
    for (u32 i = 0; i < s->used.n; i++) {
        bool is_input = false;
        for (i64 b = 0; b < countof(s->input); b++) is_input |= s->used.v[i] == s->input[b];
        for (i64 b = 0; b < countof(s->input_lane); b++)
            is_input |= s->used.v[i] == s->input_lane[b];
        if (is_input || s->version >= 14) interface[n++] = s->used.v[i];
    }
    const u32 w[] = {COMPUTE, function};
    spv_put_text(&s->entries, SPV_ENTRY_POINT, w, 2, name, interface, n);
    u32 g[3];
    for (u32 i = 0; i < 3; i++) g[i] = s->k->group[i] ? s->k->group[i] : 1;
    SPV_PUT(&s->modes, SPV_EXECUTION_MODE, function, SPV_MODE_LOCAL_SIZE, g[0], g[1], g[2]);
    *arr_push(s->arena, &s->function) = function;
}

static void grid(struct spv *s, kval from, const kval *end)
{
    struct walk w = {.end = end};
    buf_reset(&s->vars);
    buf_reset(&s->prologue);
    buf_reset(&s->code);
    s->used.n = 0;
    s->shared_bytes = 0;
    memset(s->param, 0, sizeof *s->param * s->n_param);
    memset(s->input_value, 0, sizeof s->input_value);
    s->label = spv_id(s);
    u32 nothing = spv_type(s, SPV_TYPE_VOID, NULL, 0), function = spv_id(s), entry = s->label;
    u32 type = SPV_TYPE(s, SPV_TYPE_FUNCTION, nothing), mark = spv_scope(s);
    struct str name = str_fmt(s->arena, "%.*s_%u", STR_ARG(s->k->name), s->function.n);
    spv_debug_function(s, function, name, from);
    kval dim[3];
    u32 n = 0;
    for (kval v = from; v < end[from]; v++)
        if (kir_at(s->k, v)->op == KI_GRID) dim[n++] = v;
    for (u32 i = 0; i < n; i++) spv_set_lane(s, dim[i], 0, group_number(s, dim[i], n - 1 - i));
    for (kval v = from; v < end[from]; v++) statement(s, &w, v);
    SPV_PUT(&s->functions, SPV_FUNCTION, nothing, function, 0, type);
    SPV_PUT(&s->functions, SPV_LABEL, entry);
    buf_str(&s->functions, buf_view(&s->vars));
    buf_str(&s->functions, buf_view(&s->prologue));
    buf_str(&s->functions, buf_view(&s->code));
    spv_put(&s->functions, SPV_RETURN, NULL, 0);
    spv_put(&s->functions, SPV_FUNCTION_END, NULL, 0);
    spv_leave(s, mark);
    put_entry(s, function, name);
}

void spv_kernel(struct spv *s)
{
    const kval *end = find_ends(s);
    for (kval v = 1; v < s->k->ins.n; v++)
        if (kir_at(s->k, v)->op == KI_GRID) s->has_base |= may_need_pieces(s->k, v);
    s->n_param = s->k->param.n + (s->has_base ? 3 : 0);
    s->params_pushed = 4 * s->n_param <= s->caps->max_push;
    spv_find_wide(s);
    spv_number_values(s);
    spv_plan_arrays(s);
    for (kval v = 1; v < s->k->ins.n && !s->err->code; v++)
        if (kir_at(s->k, v)->op == KI_GRID) {
            grid(s, v, end);
            v = end[v];
        }
    spv_finish_arrays(s);
}
