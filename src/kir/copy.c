// SPDX-License-Identifier: Apache-2.0
//
// Copying a kernel through the builder, instruction by instruction, so that substitutions of a pass
// are folded and shared again.
//
// Vectors are split by number of lanes: all vectors of, say, 16 lanes become vectors of 8 if some
// f32x16 is too wide, so operands always have equal pieces. i64 and bool vectors are addresses
// and masks; they are split with the others, but do not count as too wide themselves. Where a
// lane corresponds to several of another vector (DOT, LANE, SPLAT of vectors), both are split
// into equally many pieces, or into single lanes if the pieces would be smaller than a lane.
#include "kir/legal.h"

void kir_copy_init(struct kir_copy *c, struct arena *scratch)
{
    const struct kir *in = c->in;
    struct kir *out = c->out;
    kir_copy_header(out, in);
    for (u32 i = 0; i < in->param.n; i++) /* the caller determines their order */
        *arr_push(out->arena, &out->param) = str_dup(out->arena, in->param.v[i]);
    u32 n = 0;
    c->first = arena_array(scratch, u32, in->ins.n);
    for (kval v = 0; v < in->ins.n; v++) {
        c->first[v] = n;
        n += kir_lanes(in, v) > 1 ? kir_lanes(in, v) : 1;
    }
    c->piece = arena_array(scratch, kval, n);
    for (u32 i = 0; i < countof(c->narrow); i++) c->narrow[i] = (u8)i;
}

u32 kir_copy_n(const struct kir_copy *c, kval v)
{
    u32 lanes = kir_lanes(c->in, v);
    assert(lanes <= 1 || lanes % c->narrow[lanes] == 0);
    return lanes > 1 ? lanes / c->narrow[lanes] : 1;
}

kval kir_copy_get(const struct kir_copy *c, kval v, u32 i)
{
    assert(!v || (i < kir_copy_n(c, v) && c->piece[c->first[v] + i])); /* copied before it is used */
    return c->piece[c->first[v] + i];
}

void kir_copy_set(struct kir_copy *c, kval v, kval to)
{
    assert(v < c->in->ins.n && to < c->out->ins.n);
    c->piece[c->first[v]] = to;
}

static kval get0(const struct kir_copy *c, kval v) { return kir_copy_get(c, v, 0); }

static kval copy_const(struct kir *k, const struct kir_ins *x, u32 lanes)
{
    if (dtype_is_float(x->dtype)) return kir_const_f(k, x->dtype, lanes, x->imm.f);
    return kir_const_i(k, x->dtype, lanes, x->imm.i);
}

static kval copy_reduce(struct kir_copy *c, const struct kir_ins *x)
{
    enum kir_op op = x->op == KI_HADD ? KI_ADD : x->op == KI_HMIN ? KI_MIN : KI_MAX;
    kval t[64];
    u32 n = kir_copy_n(c, x->a);
    for (u32 i = 0; i < n; i++) t[i] = kir_copy_get(c, x->a, i);
    for (n /= 2; n; n /= 2) /* the order of lanes specified in kir.inc */
        for (u32 i = 0; i < n; i++) t[i] = kir_bin(c->out, op, t[i], t[i + n]);
    return kir_un(c->out, x->op, t[0]);
}

static kval copy_fill(struct kir_copy *c, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    return kir_frag_fill(c->out, &f, get0(c, x->a));
}

static kval lane_at(const struct kir_copy *c, kval v, u32 i)
{
    u32 narrow = c->narrow[kir_lanes(c->in, v)];
    return kir_lane(c->out, kir_copy_get(c, v, i / narrow), i % narrow);
}

/* Piece i of a DOT. */
static kval copy_dot(struct kir_copy *c, const struct kir_ins *x, u32 i)
{
    struct kir *k = c->out;
    u32 lanes = kir_lanes(c->in, x->a), terms = lanes / x->lanes;
    kval sum = kir_copy_get(c, x->c, i);
    if (c->narrow[x->lanes] > 1 || c->narrow[lanes] == terms)
        return kir_dot(k, kir_copy_get(c, x->a, i), kir_copy_get(c, x->b, i), sum);
    for (u32 j = i * terms; j < (i + 1) * terms; j++)
        sum = kir_fma(k, kir_cast(k, x->dtype, lane_at(c, x->a, j)), kir_cast(k, x->dtype, lane_at(c, x->b, j)), sum);
    return sum;
}

/* Piece i of an MMLA: it is whole, or single lanes. */
static kval copy_mmla(struct kir_copy *c, const struct kir_ins *x, u32 i)
{
    u32 p, q, n = kir_dot_places(KI_MMLA, kir_lanes(c->in, x->a) / x->lanes, i, &p, &q);
    kval sum = kir_copy_get(c, x->c, i);
    if (c->narrow[x->lanes] > 1) return kir_mmla(c->out, get0(c, x->a), get0(c, x->b), sum);
    for (u32 j = 0; j < n; j++)
        sum = kir_fma(c->out, kir_cast(c->out, x->dtype, lane_at(c, x->a, p + j)), kir_cast(c->out, x->dtype, lane_at(c, x->b, q + j)), sum);
    return sum;
}

/* Piece i of HALVES. */
static kval copy_halves(struct kir_copy *c, const struct kir_ins *x, u32 i)
{
    u32 half = kir_copy_n(c, x->a) / 2, from = (u32)x->imm.i * half;
    if (!half) return kir_halves(c->out, get0(c, x->a), get0(c, x->b), x->imm.i);
    return i < half ? kir_copy_get(c, x->a, from + i) : kir_copy_get(c, x->b, from + i - half);
}

/* Piece i of a ZIP, of a pair of the operands' pieces. */
static kval copy_zip(struct kir_copy *c, const struct kir_ins *x, u32 i)
{
    u32 lanes = c->narrow[x->lanes], own = c->narrow[kir_lanes(c->in, x->a)], at = (u32)x->imm.i + i * lanes, piece = at / 2 / own;
    if (lanes == 1) return lane_at(c, at % 2 ? x->b : x->a, at / 2);
    return kir_zip(c->out, kir_copy_get(c, x->a, piece), kir_copy_get(c, x->b, piece), at - 2 * own * piece, lanes);
}

/* Piece i of a LANE. */
static kval copy_lanes(struct kir_copy *c, const struct kir_ins *x, u32 i)
{
    u32 lanes = c->narrow[x->lanes];
    if (lanes > 1) return kir_every(c->out, kir_copy_get(c, x->a, i), x->imm.i, lanes);
    return lane_at(c, x->a, (u32)x->imm.i + i * (kir_lanes(c->in, x->a) / x->lanes));
}

/* Piece i of a pure value. */
static kval copy_pure(struct kir_copy *c, const struct kir_ins *x, u32 i)
{
    struct kir *k = c->out;
    u32 lanes = c->narrow[x->lanes];
    switch (x->op) {
    case KI_CONST: return copy_const(k, x, lanes);
    case KI_PARAM: return kir_param(k, c->in->param.v[x->imm.i]);
    case KI_THREAD: return kir_thread(k, (u32)x->imm.i);
    case KI_SUBGROUP: return kir_subgroup(k, (u32)x->imm.i);
    case KI_SPLAT: return kir_repeat(k, kir_copy_get(c, x->a, i % kir_copy_n(c, x->a)), lanes);
    case KI_RAMP:
        return kir_ramp(k, kir_add_i(k, get0(c, x->a), x->imm.i * i * lanes), x->imm.i, lanes);
    case KI_LANE: return copy_lanes(c, x, i);
    case KI_HALVES: return copy_halves(c, x, i);
    case KI_ZIP: return copy_zip(c, x, i);
    case KI_DOT: return copy_dot(c, x, i);
    case KI_MMLA: return copy_mmla(c, x, i);
    case KIR_HORIZONTAL: return copy_reduce(c, x);
    case KI_FILL: return copy_fill(c, x);
    case KIR_NO_OP: case KIR_LANEWISE: case KIR_STRUCTURE: case KIR_SG_REDUCTIONS:
    case KI_SHUFFLE: case KI_FLOAD: case KI_FSTORE: case KI_FMMA: break;
    }
    kval a = kir_copy_get(c, x->a, i), b = x->b ? kir_copy_get(c, x->b, i) : 0;
    switch (x->op) {
    case KI_CAST: return kir_cast(k, x->dtype, a);
    case KI_BITS: return kir_bits(k, x->dtype, a);
    case KI_FMA: return kir_fma(k, a, b, kir_copy_get(c, x->c, i));
    case KI_SELECT: return kir_select(k, a, b, kir_copy_get(c, x->c, i));
    case KI_FMMA: return kir_frag_mma(k, a, b, kir_copy_get(c, x->c, i));
    case KI_SHUFFLE: return kir_shuffle(k, a, b);
    case KIR_SG_REDUCTIONS: return kir_sg(k, x->op, a);
    case KIR_UNARY: return kir_un(k, x->op, a);
    case KIR_BINARY: return kir_bin(k, x->op, a, b);
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_DOTS: case KIR_STRUCTURE:
    case KI_FILL: case KI_FLOAD: case KI_FSTORE:
    default: unreachable();
    }
}

/* Index of piece i of n of an access; arrays of vectors have n elements for each of their own. */
static kval copy_index(struct kir_copy *c, const struct kir_ins *x, u32 i, u32 n)
{
    if (kir_lanes(c->in, x->a) == 1) return kir_copy_get(c, x->b, i);
    return kir_add_i(c->out, kir_mul_i(c->out, get0(c, x->b), n), i);
}

static kval copy_count(struct kir_copy *c, kval n, i64 before)
{
    return n ? kir_add_i(c->out, get0(c, n), -before) : 0;
}

static u32 access_lanes(const struct kir_copy *c, const struct kir_ins *x)
{
    return kir_lanes(c->in, x->a) * kir_lanes(c->in, x->b);
}

static void copy_load(struct kir_copy *c, kval v)
{
    const struct kir_ins *x = kir_at(c->in, v);
    u32 lanes = access_lanes(c, x), narrow = c->narrow[lanes], n = lanes / narrow;
    for (u32 i = 0; i < n; i++) {
        kval idx = copy_index(c, x, i, n), count = copy_count(c, x->c, (i64)i * narrow);
        c->piece[c->first[v] + i] = kir_load_n(c->out, get0(c, x->a), idx, count);
    }
}

static void copy_store(struct kir_copy *c, const struct kir_ins *x)
{
    u32 lanes = access_lanes(c, x), narrow = c->narrow[lanes], n = lanes / narrow;
    for (u32 i = 0; i < n; i++) {
        kval idx = copy_index(c, x, i, n), count = copy_count(c, x->d, (i64)i * narrow);
        kval array = get0(c, x->a), val = kir_copy_get(c, x->c, i);
        if (x->aux == KW_COPY) kir_store_async(c->out, array, idx, val);
        else if (x->aux == KW_STREAM) kir_stream(c->out, array, idx, val, count);
        else kir_store_n(c->out, array, idx, val, count);
    }
}

static kval copy_frag_load(struct kir_copy *c, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    struct kir_frag_place p = {get0(c, x->a), get0(c, x->b), get0(c, x->c), get0(c, x->d), (enum kir_frag_order)x->aux};
    return kir_frag_load_at(c->out, &f, &p);
}

static kval copy_alloc(struct kir_copy *c, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    if (f.role) return kir_alloc_frag(c->out, &f, get0(c, x->a));
    if (x->imm.i) return kir_alloc_swizzled(c->out, x->dtype, get0(c, x->a));
    u32 narrow = c->narrow[x->lanes];
    kval count = kir_mul_i(c->out, get0(c, x->a), x->lanes / narrow);
    return kir_alloc(c->out, x->aux, x->dtype, narrow, count);
}

void kir_copy_ins(struct kir_copy *c, kval v)
{
    const struct kir_ins *x = kir_at(c->in, v);
    struct kir *k = c->out;
    kval r = 0;
    switch (x->op) {
    case KI_BUF: r = kir_buf(k, c->in->buf.v[x->imm.i].name, x->dtype, x->aux); break;
    case KI_ALLOC: r = copy_alloc(c, x); break;
    case KI_LOAD: copy_load(c, v); return;
    case KI_STORE: copy_store(c, x); return;
    case KI_FLOAD: r = copy_frag_load(c, x); break;
    case KI_FSTORE:
        kir_frag_store(k, get0(c, x->a), get0(c, x->b), get0(c, x->c), get0(c, x->d), x->aux);
        return;
    case KI_PREFETCH: kir_prefetch_to(k, (enum kir_cache)x->aux, get0(c, x->a), get0(c, x->b)); return;
    case KI_GRID: r = kir_grid(k, get0(c, x->a)); break;
    case KI_LOOP:
        r = kir_loop(k, x->aux, get0(c, x->a), get0(c, x->b), kir_at(c->in, x->c)->imm.i);
        break;
    case KI_IF: kir_if(k, get0(c, x->a)); return;
    case KI_ELSE: kir_else(k); return;
    case KI_END: kir_end(k); return;
    case KI_BARRIER: kir_barrier(k); return;
    case KI_TILE:
        kir_tile(k, &(struct kir_tile){get0(c, x->a), get0(c, x->b), (u32)x->imm.i, get0(c, x->c), get0(c, x->d)});
        return;
    case KI_AWAIT: kir_await(k, x->imm.i); return;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS:
    case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FILL: case KI_FMMA:
        for (u32 i = 0; i < kir_copy_n(c, v); i++) c->piece[c->first[v] + i] = copy_pure(c, x, i);
        return;
    }
    kir_copy_set(c, v, r);
}
