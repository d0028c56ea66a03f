// SPDX-License-Identifier: Apache-2.0
//
// build.c: the builder, the only writer of kernels. Every pure value
// takes the same path: a rule (simplify.c) may return an earlier or simpler value,
// an equal instruction in scope is shared, otherwise it is appended.
//
// Sharing is scoped: a hash table chains the pure instructions that are in scope;
// closing a structure removes its instructions, newest first, which restores the
// chains. A shared value therefore dominates its uses, and no instruction ever moves.
#include "kir/build.h"

#include <string.h>

struct kir_scope { /* an open structure */
    kval head;     /* GRID, LOOP, IF */
    kval first;    /* instructions from here on leave scope with it (from ELSE on after one) */
};

static const kval NOT_SHARED = UINT32_MAX;

kval kir_push(struct kir *k, struct kir_ins x)
{
    *arr_push(k->arena, &k->ins) = x;
    struct kir_side s = {.range = kir_range_of(k, &x), .next = NOT_SHARED};
    assert(s.range.lo <= s.range.hi);
    s.data = (u8)kir_data_of(k, &x, s.range);
    s.twos = (u8)kir_twos_of(k, &x);
    *arr_push(k->arena, &k->side) = s;
    return k->ins.n - 1;
}

void kir_init(struct kir *k, struct arena *a, struct str name)
{
    *k = (struct kir){.arena = a, .name = str_dup(a, name)};
    *arr_push(a, &k->ins) = (struct kir_ins){0};
    *arr_push(a, &k->side) = (struct kir_side){.range = {INT64_MIN, INT64_MAX}, .next = NOT_SHARED};
}

void kir_copy_header(struct kir *out, const struct kir *in)
{
    for (u32 i = 0; i < countof(in->group); i++) out->group[i] = in->group[i];
    out->subgroup = in->subgroup;
    out->warpgroup = in->warpgroup;
    out->as_written = in->as_written;
    for (u32 i = 0; i < in->map.n; i++) *arr_push(out->arena, &out->map) = in->map.v[i];
}

/* Sharing. */

static u64 imm_bits(const struct kir_ins *x)
{
    u64 u;
    memcpy(&u, &x->imm, sizeof u);
    return u;
}

static u32 ins_hash(const struct kir_ins *x)
{
    u64 type = x->dtype | x->lanes << 8 | x->role << 16 | (u64)x->rows << 24 | (u64)x->cols << 36;
    u64 w[5] = {x->op | x->aux << 8, type, x->a | (u64)x->b << 32, x->c | (u64)x->d << 32,
                imm_bits(x)};
    return (u32)hash_u64(w, sizeof w);
}

static bool ins_eq(const struct kir_ins *x, const struct kir_ins *y)
{
    return x->op == y->op && x->dtype == y->dtype && x->lanes == y->lanes && x->aux == y->aux &&
           x->role == y->role && x->rows == y->rows && x->cols == y->cols && x->a == y->a &&
           x->b == y->b && x->c == y->c && x->d == y->d && imm_bits(x) == imm_bits(y);
}

static void chain_add(struct kir *k, kval v)
{
    kval *head = &k->head.v[k->side.v[v].hash & (k->head.n - 1)];
    k->side.v[v].next = *head;
    *head = v;
}

static void table_grow(struct kir *k)
{
    k->head.n = k->head.n ? k->head.n * 4 : 64;
    k->head.v = arena_array(k->arena, kval, k->head.n);
    for (kval v = 1; v < k->ins.n; v++)
        if (k->side.v[v].next != NOT_SHARED) chain_add(k, v);
}

/* Removes the instructions from first on from the table, newest first. */
static void table_cut(struct kir *k, kval first)
{
    for (kval v = k->ins.n - 1; v >= first; v--) {
        struct kir_side *s = &k->side.v[v];
        if (s->next == NOT_SHARED) continue;
        kval *head = &k->head.v[s->hash & (k->head.n - 1)];
        assert(*head == v);
        *head = s->next;
        s->next = NOT_SHARED;
    }
}

static kval emit_shared(struct kir *k, struct kir_ins x)
{
    if (k->ins.n >= k->head.n) table_grow(k);
    u32 h = ins_hash(&x);
    for (kval v = k->head.v[h & (k->head.n - 1)]; v; v = k->side.v[v].next)
        if (k->side.v[v].hash == h && ins_eq(kir_at(k, v), &x)) return v;
    kval v = kir_push(k, x);
    k->side.v[v].hash = h;
    chain_add(k, v);
    return v;
}

/* Leaves. */

kval kir_buf(struct kir *k, struct str name, enum dtype t, enum kir_access access)
{
    assert(!k->scope.n);
    struct kir_ins x = {
        .op = KI_BUF, .dtype = (u8)t, .lanes = 1, .aux = (u8)access, .imm.i = k->buf.n};
    kval v = kir_push(k, x);
    *arr_push(k->arena, &k->buf) = (struct kir_buf){.name = str_dup(k->arena, name), .id = v};
    return v;
}

kval kir_param(struct kir *k, struct str text)
{
    u32 i = 0;
    while (i < k->param.n && !str_eq(k->param.v[i], text)) i++;
    if (i == k->param.n) *arr_push(k->arena, &k->param) = str_dup(k->arena, text);
    return emit_shared(k,
                       (struct kir_ins){.op = KI_PARAM, .dtype = DT_I64, .lanes = 1, .imm.i = i});
}

kval kir_int(struct kir *k, i64 v) { return kir_const_i(k, DT_I64, 1, v); }

kval kir_const_i(struct kir *k, enum dtype t, u32 lanes, i64 v)
{
    if (dtype_is_float(t)) return kir_const_f(k, t, lanes, (double)v);
    struct kir_ins x = {
        .op = KI_CONST, .dtype = (u8)t, .lanes = (u8)lanes, .imm.i = kir_wrap(t, v)};
    return emit_shared(k, x);
}

kval kir_const_f(struct kir *k, enum dtype t, u32 lanes, double v)
{
    struct kir_ins x = {.op = KI_CONST, .dtype = (u8)t, .lanes = (u8)lanes};
    if (!dtype_is_float(t)) {
        union kir_cell in[3] = {{.f = v}}, out;
        kir_scalar(KI_CAST, DT_F64, t, in, &out);
        x.imm.i = out.i;
    } else {
        x.imm.f = v != v ? (double)__builtin_nanf("")
                         : kir_round(t, v); /* a single NaN, so that texts are equal */
    }
    return emit_shared(k, x);
}

kval kir_thread(struct kir *k, u32 dim)
{
    assert(dim < 3);
    if (k->group[dim] <= 1) return kir_int(k, 0);
    return emit_shared(
        k, (struct kir_ins){.op = KI_THREAD, .dtype = DT_I64, .lanes = 1, .imm.i = dim});
}

/* Vectors from scalars and back. */

kval kir_splat(struct kir *k, kval a, u32 lanes)
{
    assert(kir_lanes(k, a) == 1 || kir_lanes(k, a) == lanes);
    return kir_repeat(k, a, lanes);
}

kval kir_repeat(struct kir *k, kval a, u32 lanes)
{
    const struct kir_ins *x = kir_at(k, a);
    if (x->lanes == lanes) return a;
    if (x->op == KI_SPLAT) return kir_repeat(k, x->a, lanes);
    assert(lanes % x->lanes == 0 && (x->lanes == 1 || x->dtype != DT_BOOL));
    struct kir_ins r = {.op = KI_SPLAT, .dtype = x->dtype, .lanes = (u8)lanes, .a = a};
    if (x->op == KI_CONST) {
        r = *x;
        r.lanes = (u8)lanes;
    }
    return emit_shared(k, r);
}

kval kir_ramp(struct kir *k, kval base, i64 stride, u32 lanes)
{
    assert(kir_lanes(k, base) == 1 && kir_dtype(k, base) == DT_I64);
    if (lanes == 1 || stride == 0) return kir_splat(k, base, lanes);
    struct kir_ins x = {
        .op = KI_RAMP, .dtype = DT_I64, .lanes = (u8)lanes, .a = base, .imm.i = stride};
    return emit_shared(k, x);
}

/* A constant near the ends of 64 bits. */
static bool is_extreme(const struct kir *k, kval v)
{
    const i64 far = (i64)1 << 62;
    i64 c;
    return kir_is_const(k, v, &c) && (c < -far || c > far);
}

/* A ramp of indices and the same number in all lanes: less the ramp's first, the number fits into 32 bits where it is limited to those that tell lanes apart. */
kval kir_compare_index(struct kir *k, enum kir_op op, kval a, kval b)
{
    const bool is_left = kir_at(k, a)->op == KI_RAMP;
    const struct kir_ins r = *kir_at(k, is_left ? a : b);
    kval x = kir_scalar_of(k, is_left ? b : a);
    assert(op == KI_LT || op == KI_LE);
    if (r.op != KI_RAMP || !x || r.imm.i < 1 || r.imm.i > INT16_MAX || kir_wraps(k, is_left ? a : b) || is_extreme(k, r.a)) return kir_bin(k, op, a, b);
    const i64 least_d = is_left == (op == KI_LE) ? -1 : 0, most_d = (r.lanes - 1) * r.imm.i + 1 + least_d;
    kval least = kir_add_i(k, r.a, least_d), most = kir_add_i(k, r.a, most_d);
    kval d = kir_splat(k, kir_cast(k, DT_I32, kir_sub(k, kir_min(k, kir_max(k, x, least), most), r.a)), r.lanes);
    kval lane = kir_cast(k, DT_I32, kir_ramp(k, kir_int(k, 0), r.imm.i, r.lanes));
    return is_left ? kir_bin(k, op, lane, d) : kir_bin(k, op, d, lane);
}

kval kir_and(struct kir *k, kval a, kval b)
{
    i64 c;
    if (b && kir_is_const(k, b, &c) && c) return a;
    return a && b ? kir_bin(k, KI_AND, a, b) : a ? a : b;
}

kval kir_scalar_of(struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    if (x->lanes == 1) return v;
    if (x->op == KI_SPLAT) return kir_scalar_of(k, x->a);
    if (x->op != KI_CONST) return 0;
    return dtype_is_float(x->dtype) ? kir_const_f(k, x->dtype, 1, x->imm.f)
                                    : kir_const_i(k, x->dtype, 1, x->imm.i);
}

kval kir_lane(struct kir *k, kval a, i64 lane)
{
    const struct kir_ins *x = kir_at(k, a);
    assert(lane >= 0 && lane < x->lanes);
    kval s = kir_scalar_of(k, a);
    if (s) return s;
    if (x->op == KI_RAMP) return kir_add_i(k, x->a, lane * x->imm.i);
    if (x->op == KI_SPLAT) return kir_lane(k, x->a, lane % kir_lanes(k, x->a));
    return emit_shared(
        k, (struct kir_ins){.op = KI_LANE, .dtype = x->dtype, .lanes = 1, .a = a, .imm.i = lane});
}

kval kir_every(struct kir *k, kval a, i64 from, u32 lanes)
{
    const struct kir_ins *x = kir_at(k, a);
    if (lanes == 1) return kir_lane(k, a, from);
    assert(x->lanes % lanes == 0 && from >= 0 && from < x->lanes / lanes && x->dtype != DT_BOOL);
    kval s = kir_scalar_of(k, a);
    i64 step = x->lanes / lanes;
    if (step == 1) return a;
    if (s) return kir_splat(k, s, lanes);
    if (x->op == KI_RAMP) return kir_ramp(k, kir_add_i(k, x->a, from * x->imm.i), step * x->imm.i, lanes);
    return emit_shared(k, (struct kir_ins){
                              .op = KI_LANE, .dtype = x->dtype, .lanes = (u8)lanes, .a = a, .imm.i = from});
}

/* Arithmetic. */

static kval reduce(struct kir *k, enum kir_op op, kval a)
{
    const struct kir_ins *x = kir_at(k, a);
    kval s = kir_scalar_of(k, a);
    if (x->lanes == 1 || (s && op != KI_HADD)) return s;
    return emit_shared(k, (struct kir_ins){.op = op, .dtype = x->dtype, .lanes = 1, .a = a});
}

kval kir_un(struct kir *k, enum kir_op op, kval a)
{
    if (op == KI_HADD || op == KI_HMIN || op == KI_HMAX) return reduce(k, op, a);
    assert(kir_op_info(op)->n_args == 1 && kir_op_info(op)->cls == 'P' &&
           kir_op_info(op)->rule != 'I');
    assert(!kir_is_frag(k, a));
    kval s = kir_rules.un(k, op, a);
    if (s) return s;
    struct kir_ins x = {
        .op = op, .dtype = kir_at(k, a)->dtype, .lanes = kir_at(k, a)->lanes, .a = a};
    if (kir_op_info(op)->rule == 'B') x.dtype = DT_BOOL;
    return emit_shared(k, x);
}

/* x with the type of v, including fragments. */
static struct kir_ins typed_as(const struct kir *k, kval v, struct kir_ins x)
{
    const struct kir_ins *t = kir_at(k, v);
    x.dtype = t->dtype;
    x.lanes = t->lanes;
    x.role = t->role;
    x.rows = t->rows;
    x.cols = t->cols;
    return x;
}

/* All with the lanes of the widest, which are returned. */
static u32 splat_all(struct kir *k, kval *const v[3])
{
    u32 n = 1;
    for (u32 i = 0; i < 3; i++) n = kir_lanes(k, *v[i]) > n ? kir_lanes(k, *v[i]) : n;
    for (u32 i = 0; i < 3; i++) *v[i] = kir_splat(k, *v[i], n);
    return n;
}

static bool is_same_frag(const struct kir_ins *x, const struct kir_ins *y)
{
    return x->role == y->role && x->rows == y->rows && x->cols == y->cols;
}

static kval frag_bin(struct kir *k, enum kir_op op, kval a, kval b)
{
    assert((op == KI_ADD || op == KI_MUL) && kir_at(k, a)->role == KR_ACC &&
           is_same_frag(kir_at(k, a), kir_at(k, b)));
    return emit_shared(k, typed_as(k, a, (struct kir_ins){.op = op, .a = a, .b = b}));
}

kval kir_bin(struct kir *k, enum kir_op op, kval a, kval b)
{
    assert(kir_op_info(op)->n_args == 2 && kir_op_info(op)->cls == 'P');
    assert(kir_dtype(k, a) == kir_dtype(k, b));
    if (kir_is_frag(k, a) || kir_is_frag(k, b)) return frag_bin(k, op, a, b);
    u32 n = kir_lanes(k, a) > kir_lanes(k, b) ? kir_lanes(k, a) : kir_lanes(k, b);
    a = kir_splat(k, a, n);
    b = kir_splat(k, b, n);
    kval s = kir_rules.bin(k, op, a, b);
    if (s) return s;
    struct kir_ins x = {.op = op, .dtype = kir_at(k, a)->dtype, .lanes = (u8)n, .a = a, .b = b};
    if (kir_op_info(op)->rule == 'B') x.dtype = DT_BOOL;
    return emit_shared(k, x);
}

kval kir_fma(struct kir *k, kval a, kval b, kval c)
{
    assert(kir_dtype(k, a) == kir_dtype(k, b) && kir_dtype(k, a) == kir_dtype(k, c));
    u32 n = splat_all(k, (kval *const[]){&a, &b, &c});
    kval s = kir_rules.fma(k, a, b, c);
    if (s) return s;
    struct kir_ins x = {
        .op = KI_FMA, .dtype = kir_at(k, a)->dtype, .lanes = (u8)n, .a = a, .b = b, .c = c};
    return emit_shared(k, x);
}

kval kir_dot(struct kir *k, kval a, kval b, kval c)
{
    const struct kir_ins *x = kir_at(k, a), *sum = kir_at(k, c);
    assert(x->lanes == kir_lanes(k, b) && !kir_is_frag(k, a) && !kir_is_frag(k, c));
    assert(x->lanes == sum->lanes * kir_dot_terms(x->dtype, kir_dtype(k, b), sum->dtype));
    kval s = kir_rules.dot(k, a, b, c);
    if (s) return s;
    return emit_shared(k, typed_as(k, c, (struct kir_ins){.op = KI_DOT, .a = a, .b = b, .c = c}));
}

kval kir_halves(struct kir *k, kval a, kval b, i64 half)
{
    const struct kir_ins *x = kir_at(k, a);
    kval s = kir_scalar_of(k, a);
    assert(x->lanes == kir_lanes(k, b) && x->dtype == kir_dtype(k, b) && x->dtype != DT_BOOL && x->lanes > 1 && (half == 0 || half == 1));
    if (s && s == kir_scalar_of(k, b)) return a;
    return emit_shared(k, typed_as(k, a, (struct kir_ins){.op = KI_HALVES, .a = a, .b = b, .imm.i = half}));
}

kval kir_zip(struct kir *k, kval a, kval b, i64 from, u32 lanes)
{
    const struct kir_ins *x = kir_at(k, a);
    kval s = kir_scalar_of(k, a);
    assert(x->lanes == kir_lanes(k, b) && x->dtype == kir_dtype(k, b) && x->dtype != DT_BOOL);
    assert(from >= 0 && from % lanes == 0 && from + lanes <= 2 * x->lanes);
    if (lanes == 1) return kir_lane(k, from % 2 ? b : a, from / 2);
    if (s && s == kir_scalar_of(k, b)) return kir_splat(k, s, lanes);
    assert(x->lanes > 1);
    return emit_shared(k, (struct kir_ins){.op = KI_ZIP, .dtype = x->dtype, .lanes = (u8)lanes, .a = a, .b = b, .imm.i = from});
}

kval kir_interleave(struct kir *k, const kval *v, i64 n, i64 piece, u32 lanes)
{
    assert(n == 2 || n == 4);
    if (n == 2) return kir_zip(k, v[0], v[1], piece * 2 * lanes, 2 * lanes);
    const u32 half = (u32)i64_max(kir_lanes(k, v[0]), 2 * lanes); /* lanes of the vectors in between: no more of them than needed */
    const i64 at = piece * 2 * lanes / half;
    kval even = kir_zip(k, v[0], v[2], at * half, half), odd = kir_zip(k, v[1], v[3], at * half, half);
    return kir_zip(k, even, odd, piece * 4 * lanes - at * 2 * half, 4 * lanes);
}

kval kir_mmla(struct kir *k, kval a, kval b, kval c)
{
    const struct kir_ins *x = kir_at(k, a);
    assert(kir_lanes(k, c) == 4 && x->lanes == kir_lanes(k, b) && x->lanes == 4 * kir_dot_terms(x->dtype, kir_dtype(k, b), kir_dtype(k, c)));
    return emit_shared(k, typed_as(k, c, (struct kir_ins){.op = KI_MMLA, .a = a, .b = b, .c = c}));
}

kval kir_select(struct kir *k, kval cond, kval a, kval b)
{
    assert(kir_dtype(k, cond) == DT_BOOL && kir_dtype(k, a) == kir_dtype(k, b));
    u32 n = splat_all(k, (kval *const[]){&cond, &a, &b});
    kval s = kir_rules.select(k, cond, a, b);
    if (s) return s;
    struct kir_ins x = {
        .op = KI_SELECT, .dtype = kir_at(k, a)->dtype, .lanes = (u8)n, .a = cond, .b = a, .c = b};
    return emit_shared(k, x);
}

kval kir_cast(struct kir *k, enum dtype t, kval a)
{
    assert(!kir_is_frag(k, a) || kir_at(k, a)->role == KR_ACC);
    kval s = kir_rules.cast(k, t, a);
    if (s) return s;
    struct kir_ins x = typed_as(k, a, (struct kir_ins){.op = KI_CAST, .a = a});
    x.dtype = (u8)t;
    return emit_shared(k, x);
}

kval kir_bits(struct kir *k, enum dtype t, kval a)
{
    const struct kir_ins *x = kir_at(k, a);
    assert(dtype_size(t) == dtype_size(x->dtype) && t != DT_BOOL && x->dtype != DT_BOOL);
    if (x->dtype == t) return a;
    if (x->op == KI_BITS) return kir_bits(k, t, x->a);
    return emit_shared(k,
                       (struct kir_ins){.op = KI_BITS, .dtype = (u8)t, .lanes = x->lanes, .a = a});
}

/* Memory. */

kval kir_alloc(struct kir *k, enum kir_space s, enum dtype t, u32 lanes, kval count)
{
    assert(lanes == 1 || s == KS_REG);
    assert(kir_at(k, count)->op == KI_CONST || (s != KS_REG && kir_at(k, count)->op == KI_PARAM));
    struct kir_ins x = {
        .op = KI_ALLOC, .dtype = (u8)t, .lanes = (u8)lanes, .aux = (u8)s, .a = count};
    return kir_push(k, x);
}

kval kir_alloc_swizzled(struct kir *k, enum dtype t, kval count)
{
    kval v = kir_alloc(k, KS_SHARED, t, 1, count);
    k->ins.v[v].imm.i = 1;
    return v;
}

static bool is_read_only(const struct kir *k, kval buf)
{
    return kir_at(k, buf)->op == KI_BUF && kir_at(k, buf)->aux == KA_IN;
}

kval kir_load(struct kir *k, kval buf, kval idx) { return kir_load_n(k, buf, idx, 0); }

kval kir_load_n(struct kir *k, kval buf, kval idx, kval n)
{
    const struct kir_ins *p = kir_at(k, buf), *x = kir_at(k, idx);
    assert(p->op == KI_BUF || p->op == KI_ALLOC);
    assert(p->lanes == 1 || (x->lanes == 1 && !n));
    assert(x->dtype == DT_I64);
    u32 lanes = (u32)p->lanes * x->lanes;
    if (n && kir_range(k, n).lo >= lanes) n = 0;
    if (n && kir_range(k, n).hi <= 0) return kir_const_i(k, p->dtype, lanes, 0);
    struct kir_ins r =
        typed_as(k, buf, (struct kir_ins){.op = KI_LOAD, .a = buf, .b = idx, .c = n});
    r.lanes = (u8)lanes;
    kval s = lanes > 1 && !n && p->lanes == 1 ? kir_scalar_of(k, idx) : 0;
    if (s) return kir_splat(k, kir_load(k, buf, s), lanes);
    return is_read_only(k, buf) ? emit_shared(k, r) : kir_push(k, r);
}

static void push_store(struct kir *k, enum kir_way way, kval buf, kval idx, kval val, kval n)
{
    const struct kir_ins *p = kir_at(k, buf), *x = kir_at(k, idx);
    assert(p->op == KI_BUF || p->op == KI_ALLOC);
    assert(p->lanes == 1 || (x->lanes == 1 && !n));
    assert(x->dtype == DT_I64 && p->dtype == kir_dtype(k, val));
    assert(is_same_frag(p, kir_at(k, val)));
    u32 lanes = (u32)p->lanes * x->lanes;
    if (n && kir_range(k, n).lo >= lanes) n = 0;
    if (n && kir_range(k, n).hi <= 0) return;
    val = kir_splat(k, val, lanes);
    kir_push(k, (struct kir_ins){.op = KI_STORE, .aux = (u8)way, .a = buf, .b = idx, .c = val, .d = n});
}

void kir_store(struct kir *k, kval buf, kval idx, kval val) { push_store(k, KW_PLAIN, buf, idx, val, 0); }

void kir_store_n(struct kir *k, kval buf, kval idx, kval val, kval n)
{
    push_store(k, KW_PLAIN, buf, idx, val, n);
}

void kir_stream(struct kir *k, kval buf, kval idx, kval val, kval n)
{
    assert(kir_is_far(kir_at(k, buf)));
    push_store(k, KW_STREAM, buf, idx, val, n);
}

void kir_store_async(struct kir *k, kval buf, kval idx, kval val)
{
    const struct kir_ins *x = kir_at(k, val);
    bool is_plain = x->op != KI_LOAD || !kir_is_far(kir_at(k, x->a));
    is_plain = is_plain || !kir_is_contiguous(k, x->b) || !kir_is_contiguous(k, idx);
    kir_store(k, buf, idx, val);
    if (!is_plain) k->ins.v[k->ins.n - 1].aux = KW_COPY;
}

static bool is_same_map(const struct kir_map *a, const struct kir_map *b)
{
    return a->buf == b->buf && a->rows == b->rows && a->cols == b->cols && a->pitch == b->pitch && a->box_rows == b->box_rows &&
           a->box_cols == b->box_cols;
}

u32 kir_map(struct kir *k, const struct kir_map *m)
{
    u32 i = 0;
    while (i < k->map.n && !is_same_map(&k->map.v[i], m)) i++;
    if (i == k->map.n) *arr_push(k->arena, &k->map) = *m;
    return i;
}

void kir_tile(struct kir *k, const struct kir_tile *x)
{
    assert(k->scope.n && x->map < k->map.n && kir_at(k, x->array)->op == KI_ALLOC && kir_at(k, x->array)->aux == KS_SHARED);
    assert(kir_at(k, x->at)->dtype == DT_I64 && kir_at(k, x->row)->dtype == DT_I64 && kir_at(k, x->col)->dtype == DT_I64);
    kir_push(k, (struct kir_ins){.op = KI_TILE, .a = x->array, .b = x->at, .c = x->row, .d = x->col, .imm.i = x->map});
}

void kir_await(struct kir *k, i64 newest)
{
    assert(k->scope.n && newest >= 0);
    kir_push(k, (struct kir_ins){.op = KI_AWAIT, .imm.i = newest});
}

void kir_prefetch(struct kir *k, kval buf, kval idx) { kir_prefetch_to(k, KC_FIRST, buf, idx); }

void kir_prefetch_to(struct kir *k, enum kir_cache to, kval buf, kval idx)
{
    assert(kir_is_far(kir_at(k, buf)) && kir_at(k, idx)->dtype == DT_I64);
    assert(kir_lanes(k, idx) == 1);
    kir_push(k, (struct kir_ins){.op = KI_PREFETCH, .aux = (u8)to, .a = buf, .b = idx});
}

/* Subgroups and fragments. */

kval kir_subgroup(struct kir *k, u32 which)
{
    assert(which < 2);
    struct kir_ins x = {.op = KI_SUBGROUP, .dtype = DT_I64, .lanes = 1, .imm.i = which};
    return emit_shared(k, x);
}

kval kir_sg(struct kir *k, enum kir_op op, kval a)
{
    assert(op == KI_SGADD || op == KI_SGMIN || op == KI_SGMAX);
    assert(kir_lanes(k, a) == 1 && !kir_is_frag(k, a));
    return op != KI_SGADD && kir_at(k, a)->op == KI_CONST ? a : kir_un(k, op, a);
}

kval kir_shuffle(struct kir *k, kval a, kval b)
{
    assert(kir_lanes(k, a) == 1 && !kir_is_frag(k, a) && kir_dtype(k, b) == DT_I64);
    if (kir_at(k, a)->op == KI_CONST) return a;
    return emit_shared(k, typed_as(k, a, (struct kir_ins){.op = KI_SHUFFLE, .a = a, .b = b}));
}

static struct kir_ins frag_value(const struct kir_frag *f, enum kir_op op)
{
    assert(f->role != KR_NONE && f->rows && f->cols);
    return (struct kir_ins){.op = op,
                            .dtype = (u8)f->dtype,
                            .lanes = 1,
                            .role = (u8)f->role,
                            .rows = f->rows,
                            .cols = f->cols};
}

kval kir_alloc_frag(struct kir *k, const struct kir_frag *f, kval count)
{
    assert(kir_at(k, count)->op == KI_CONST);
    struct kir_ins x = frag_value(f, KI_ALLOC);
    x.aux = KS_REG;
    x.a = count;
    return kir_push(k, x);
}

kval kir_frag_fill(struct kir *k, const struct kir_frag *f, kval a)
{
    assert(kir_dtype(k, a) == f->dtype && kir_lanes(k, a) == 1 && !kir_is_frag(k, a));
    struct kir_ins x = frag_value(f, KI_FILL);
    x.a = a;
    return emit_shared(k, x);
}

static bool is_frag_access(const struct kir *k, kval buf, kval idx, kval pitch)
{
    const struct kir_ins *p = kir_at(k, buf), *i = kir_at(k, idx), *n = kir_at(k, pitch);
    bool is_reg = p->op == KI_ALLOC && p->aux == KS_REG;
    return (p->op == KI_BUF || p->op == KI_ALLOC) && (p->lanes == 1 || is_reg) && !p->role &&
           i->dtype == DT_I64 && i->lanes == 1 && n->dtype == DT_I64 && n->lanes == 1;
}

kval kir_frag_load(struct kir *k, const struct kir_frag *f, kval buf, kval idx, kval pitch,
                   bool by_columns)
{
    return kir_frag_load_at(k, f, &(struct kir_frag_place){buf, idx, pitch, 0, by_columns ? KF_COLUMNS : KF_ROWS});
}

kval kir_frag_load_at(struct kir *k, const struct kir_frag *f, const struct kir_frag_place *p)
{
    assert(is_frag_access(k, p->array, p->at, p->pitch) && kir_dtype(k, p->array) == kir_frag_stored(f->dtype));
    struct kir_ins x = frag_value(f, KI_FLOAD);
    x.aux = (u8)p->order;
    x.a = p->array;
    x.b = p->at;
    x.c = p->pitch;
    x.d = p->panels;
    bool is_short = kir_is_alone(k); /* a processor's registers are few: what is needed again later is loaded again */
    return is_read_only(k, p->array) && !is_short ? emit_shared(k, x) : kir_push(k, x);
}

void kir_frag_store(struct kir *k, kval buf, kval idx, kval frag, kval pitch, bool by_columns)
{
    assert(is_frag_access(k, buf, idx, pitch) && kir_is_frag(k, frag));
    assert(kir_dtype(k, buf) == kir_dtype(k, frag));
    struct kir_ins x = {.op = KI_FSTORE, .a = buf, .b = idx, .c = frag, .d = pitch};
    x.aux = by_columns;
    kir_push(k, x);
}

kval kir_frag_mma(struct kir *k, kval a, kval b, kval c)
{
    const struct kir_ins *x = kir_at(k, a), *y = kir_at(k, b), *z = kir_at(k, c);
    assert(x->role == KR_A && y->role == KR_B && z->role == KR_ACC);
    assert(x->cols == y->rows && x->rows == z->rows && y->cols == z->cols);
    return emit_shared(k, typed_as(k, c, (struct kir_ins){.op = KI_FMMA, .a = a, .b = b, .c = c}));
}

/* Structure. */

static void scope_open(struct kir *k, kval head)
{
    *arr_push(k->arena, &k->scope) = (struct kir_scope){.head = head, .first = head};
}

kval kir_grid(struct kir *k, kval extent)
{
    assert(!k->scope.n || kir_at(k, k->scope.v[k->scope.n - 1].head)->op == KI_GRID);
    assert(k->scope.n < 3);
    kval v = kir_push(k, (struct kir_ins){.op = KI_GRID, .dtype = DT_I64, .lanes = 1, .a = extent});
    scope_open(k, v);
    return v;
}

kval kir_loop(struct kir *k, enum kir_loop kind, kval from, kval to, i64 step)
{
    assert(k->scope.n && step > 0);
    kval s = kir_int(k, step);
    struct kir_ins x = {
        .op = KI_LOOP, .dtype = DT_I64, .lanes = 1, .aux = (u8)kind, .a = from, .b = to, .c = s};
    kval v = kir_push(k, x);
    scope_open(k, v);
    return v;
}

void kir_if(struct kir *k, kval cond)
{
    assert(k->scope.n && kir_dtype(k, cond) == DT_BOOL && kir_lanes(k, cond) == 1);
    scope_open(k, kir_push(k, (struct kir_ins){.op = KI_IF, .a = cond}));
}

void kir_else(struct kir *k)
{
    struct kir_scope *s = &k->scope.v[k->scope.n - 1];
    assert(k->scope.n && kir_at(k, s->head)->op == KI_IF && s->first == s->head);
    table_cut(k, s->first);
    s->first = kir_push(k, (struct kir_ins){.op = KI_ELSE});
}

void kir_end(struct kir *k)
{
    assert(k->scope.n);
    table_cut(k, k->scope.v[--k->scope.n].first);
    kir_push(k, (struct kir_ins){.op = KI_END});
}

void kir_barrier(struct kir *k)
{
    assert(k->scope.n);
    kir_push(k, (struct kir_ins){.op = KI_BARRIER});
}
