// SPDX-License-Identifier: Apache-2.0
//
// emit: values inside kernels. An element of a value comes from the kernel family (bound), from
// memory (inputs and constants of the task), from literals and sizes (content known in symbols), or
// from its producer's `lower`, which asks for elements of its inputs in turn. Fusion is nothing but
// that recursion.
//
// Address arithmetic is a sum of index * stride, outermost axis first, so that an index that is a
// ramp on a unit-stride axis stays a ramp, and partial sums of outer axes are shared.
//
// Lowered values with several uses are remembered per index tuple, as long as the instruction is
// still in scope: without it, chains of diamonds would be walked exponentially often, and
// reductions emitted twice. What depends on a bound value is remembered until the outermost value is
// lowered: the family may bind another value next time.
#include "lower/lower.h"

#include <math.h>

void emit_init(struct emit *m, struct kir *k, const struct graph *task, emit_lower_fn *lower, struct arena *a)
{
    u32 n = task->value.n;
    *m = (struct emit){.k = k, .g = task, .arena = a, .lower = lower};
    m->buf = arena_array(a, kval, n);
    m->out = arena_array(a, kval, n);
    m->bind = arena_array(a, struct emit_bind, n);
    m->packed = arena_array(a, bool, n);
    m->n_uses = graph_use_counts(task, a);
}

void emit_bind(struct emit *m, value_id v, emit_fn *fn, const void *user)
{
    m->bind[v] = (struct emit_bind){fn, user};
    m->memo.n = 0;
}

/* Sizes and addresses. */

kval emit_size(struct emit *m, sym s)
{
    i64 c;
    if (sym_is_const(m->g->sym, s, &c)) return kir_int(m->k, c);
    struct buf text = {0};
    sym_print(&text, m->g->sym, s);
    kval p = kir_param(m->k, str_dup(m->arena, buf_view(&text)));
    buf_release(&text);
    return p;
}

kval emit_dim(struct emit *m, value_id v, u32 axis)
{
    return emit_size(m, graph_value(m->g, v)->shape.dim[axis]);
}

static bool is_one(const struct emit *m, sym s)
{
    i64 c;
    return sym_is_const(m->g->sym, s, &c) && c == 1;
}

/* sum + idx*stride */
static kval add_term(struct emit *m, kval sum, kval idx, sym stride)
{
    kval t = kir_bin(m->k, KI_MUL, idx, emit_size(m, stride));
    return sum ? kir_bin(m->k, KI_ADD, sum, t) : t;
}

/* Address over the axes order[0..n), row-major, of a shape. */
static kval offset_dense(struct emit *m, const struct shape *s, const u32 *order, u32 n,
                         const kval *idx)
{
    kval sum = 0;
    for (u32 i = 0; i < n; i++) {
        sym stride = sym_const(m->g->sym, 1);
        for (u32 j = i + 1; j < n; j++) stride = sym_mul(m->g->sym, stride, s->dim[order[j]]);
        if (!is_one(m, s->dim[order[i]])) sum = add_term(m, sum, idx[order[i]], stride);
    }
    return sum ? sum : kir_int(m->k, 0);
}

bool emit_is_multiple(const struct kir *k, kval v, i64 c)
{
    i64 x;
    const struct kir_ins *i = kir_at(k, v);
    if (kir_is_const(k, v, &x)) return x % c == 0;
    if (i->op == KI_MUL) return emit_is_multiple(k, i->a, c) || emit_is_multiple(k, i->b, c);
    if (i->op == KI_ADD || i->op == KI_SUB || i->op == KI_LOOP)
        return emit_is_multiple(k, i->a, c) &&
               emit_is_multiple(k, i->op == KI_LOOP ? i->c : i->b, c);
    return false;
}

/* Channel index -> index of the block and within it. A ramp that stays within one block keeps the
 * block scalar. */
static void split_channel(struct emit *m, kval c, i64 block, kval *outer, kval *inner)
{
    struct kir *k = m->k;
    const struct kir_ins ins = *kir_at(k, c);
    kval b = kir_int(k, block);
    bool whole = ins.op == KI_RAMP && ins.imm.i == 1 && block % ins.lanes == 0 &&
                 emit_is_multiple(k, ins.a, ins.lanes);
    kval base = whole ? ins.a : c;
    *outer = kir_bin(k, KI_DIV, base, b);
    *inner = kir_bin(k, KI_MOD, base, b);
    if (whole) *inner = kir_ramp(k, *inner, 1, ins.lanes);
}

static kval offset_blocked(struct emit *m, const struct shape *s, i64 block, const kval *idx)
{
    struct symtab *t = m->g->sym;
    struct shape b = *s;
    kval at[MAX_RANK] = {0}, inner;
    for (u32 i = 0; i < s->rank; i++) at[i] = idx[i];
    split_channel(m, idx[1], block, &at[1], &inner);
    b.dim[1] = sym_cdiv(t, s->dim[1], sym_const(t, block));
    u32 order[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    kval outer = offset_dense(m, &b, order, s->rank, at);
    return kir_bin(m->k, KI_ADD, kir_bin(m->k, KI_MUL, outer, kir_int(m->k, block)), inner);
}

/* Index in the memory that contains a part; ignored on an axis of size 1. */
static void shift_to_part(struct emit *m, const struct value *x, const kval *idx, kval *at)
{
    const struct part *p = &x->part;
    kval from = emit_size(m, p->from);
    for (u32 i = 0; i < x->shape.rank; i++) at[i] = idx[i];
    at[p->axis] = is_one(m, x->shape.dim[p->axis]) ? from : kir_bin(m->k, KI_ADD, idx[p->axis], from);
}

kval emit_offset(struct emit *m, value_id v, const kval *idx)
{
    const struct value *x = graph_value(m->g, v);
    const struct shape room = value_room(x);
    kval at[MAX_RANK];
    u32 order[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7}, r = x->shape.rank;
    switch (x->layout) {
    case LAYOUT_ROWS: break;
    case LAYOUT_CLAST:
        assert(r >= 3);
        for (u32 i = 1; i + 1 < r; i++) order[i] = i + 1;
        order[r - 1] = 1;
        break;
    case LAYOUT_C8: return offset_blocked(m, &x->shape, 8, idx);
    case LAYOUT_C16: return offset_blocked(m, &x->shape, 16, idx);
    case N_LAYOUTS: unreachable();
    }
    if (x->part.whole) shift_to_part(m, x, idx, at), idx = at;
    return offset_dense(m, &room, order, r, idx);
}

void emit_broadcast(struct emit *m, value_id v, u32 r, const kval *idx, kval *out)
{
    const struct shape *s = &graph_value(m->g, v)->shape;
    assert(s->rank <= r);
    for (u32 i = 0; i < s->rank; i++)
        out[i] = is_one(m, s->dim[i]) ? kir_int(m->k, 0) : idx[r - s->rank + i];
}

/* Values. */

static kval emit_number(struct emit *m, enum dtype t, double f, i64 i)
{
    return dtype_is_float(t) ? kir_const_f(m->k, emit_type(t), 1, f) : kir_const_i(m->k, emit_type(t), 1, i);
}

static kval emit_literal(struct emit *m, const struct value *x)
{
    const struct tensor *t = x->data;
    bool is_float = dtype_is_float(t->dtype);
    return emit_number(m, t->dtype, is_float ? elem_f64(t->dtype, t->data, 0) : 0,
                       is_float ? 0 : elem_i64(t->dtype, t->data, 0));
}

/* n/den in the value's type */
static kval emit_rational(struct emit *m, const struct value *x, kval n)
{
    i64 den = x->sdata->den;
    if (den == 1) return kir_cast(m->k, emit_type(x->dtype), n);
    kval q = kir_bin(m->k, KI_DIV, kir_cast(m->k, DT_F64, n), kir_const_f(m->k, DT_F64, 1, (double)den));
    return kir_cast(m->k, emit_type(x->dtype), q);
}

/* Elements from..end-1 of a known content that grow by the same amount. */
struct run { i64 from, end; sym step; };

/* Differences of numbers this small do not overflow. */
static bool has_step(const struct symtab *t, sym a, sym b)
{
    const i64 most = (i64)1 << 40;
    i64 c;
    return (!sym_is_const(t, a, &c) || (c > -most && c < most)) && (!sym_is_const(t, b, &c) || (c > -most && c < most));
}

static struct run content_run(struct symtab *t, const struct sym_data *d, i64 from)
{
    struct run r = {from, from + 1, sym_const(t, 0)};
    for (; r.end < d->n && has_step(t, d->num[r.end - 1], d->num[r.end]); r.end++) {
        sym step = sym_sub(t, d->num[r.end], d->num[r.end - 1]);
        if (r.end == from + 1) r.step = step;
        if (step != r.step) break;
    }
    return r;
}

/* Its numerator at the flat index. */
static kval emit_run(struct emit *m, const struct sym_data *d, const struct run *r, kval at)
{
    struct symtab *t = m->g->sym;
    i64 c;
    if (r->end - r->from == 1 || (sym_is_const(t, r->step, &c) && c == 0)) return emit_size(m, d->num[r->from]);
    sym base = sym_sub(t, d->num[r->from], sym_mul(t, r->step, sym_const(t, r->from)));
    kval way = kir_bin(m->k, KI_MUL, at, emit_size(m, r->step));
    return kir_bin(m->k, KI_ADD, way, emit_size(m, base));
}

/* Known content: the element chosen by the flat index, from runs of equal steps, of which most contents have one or two. */
static kval emit_content(struct emit *m, const struct value *x, const kval *idx)
{
    struct kir *k = m->k;
    const struct sym_data *d = x->sdata;
    u32 order[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    kval at = d->n > 1 ? offset_dense(m, &x->shape, order, x->shape.rank, idx) : kir_int(k, 0), v = 0;
    i64 c;
    if (d->n == 0) return emit_number(m, x->dtype, 0, 0); /* never executed */
    if (kir_is_const(k, at, &c) && kir_lanes(k, at) == 1) return emit_rational(m, x, emit_size(m, d->num[c]));
    for (i64 i = 0; i < d->n;) {
        struct run r = content_run(m->g->sym, d, i);
        kval n = emit_run(m, d, &r, at);
        v = v ? kir_select(k, kir_bin(k, KI_LT, at, kir_int(k, r.from)), v, n) : n;
        i = r.end;
    }
    return emit_rational(m, x, v);
}

/* The instruction can still be used: no structure that was open when it was made has been closed
 * since. */
static bool in_scope(const struct kir *k, kval v)
{
    i32 depth = 0;
    for (kval i = v + 1; i < k->ins.n; i++) {
        u8 op = k->ins.v[i].op;
        if (op == KI_GRID || op == KI_LOOP || op == KI_IF) depth++;
        if (op == KI_END) depth--;
        if (depth < 0 || (op == KI_ELSE && depth == 0)) return false;
    }
    return true;
}

static kval memo_find(const struct emit *m, value_id v, const kval *idx, bool *bound)
{
    u32 rank = graph_value(m->g, v)->shape.rank;
    for (u32 i = m->memo.n; i-- > 0;) {
        const struct emit_memo *x = &m->memo.v[i];
        if (x->v != v) continue;
        u32 r = 0;
        while (r < rank && x->idx[r] == idx[r]) r++;
        if (r < rank || !in_scope(m->k, x->val)) continue;
        *bound = x->bound;
        return x->val;
    }
    return 0;
}

static void memo_add(struct emit *m, value_id v, const kval *idx, kval val)
{
    struct emit_memo x = {.v = v, .val = val, .bound = m->touched_bind};
    for (u32 r = 0; r < graph_value(m->g, v)->shape.rank; r++) x.idx[r] = idx[r];
    if (m->memo.n >= 512) m->memo.n = 0; /* searched linearly: keep it short */
    *arr_push(m->arena, &m->memo) = x;
}

static void forget_bound(struct emit *m)
{
    u32 n = 0;
    for (u32 i = 0; i < m->memo.n; i++)
        if (!m->memo.v[i].bound) m->memo.v[n++] = m->memo.v[i];
    m->memo.n = n;
}

static kval emit_lowered(struct emit *m, value_id v, const kval *idx)
{
    const struct value *x = graph_value(m->g, v);
    assert(x->producer && "value has no source in this kernel");
    bool bound = false;
    kval val = m->n_uses[v] > 1 ? memo_find(m, v, idx, &bound) : 0;
    m->touched_bind |= bound;
    if (val) return val;
    bool outer = m->touched_bind;
    m->touched_bind = false;
    m->depth++;
    val = m->lower(m, x->producer, x->out_index, idx);
    assert(kir_dtype(m->k, val) == emit_type(x->dtype));
    if (m->n_uses[v] > 1) memo_add(m, v, idx, val);
    m->touched_bind |= outer;
    if (!--m->depth) forget_bound(m);
    return val;
}

void emit_limit(struct emit *m, kval n)
{
    m->limit = n;
    m->memo.n = 0;
}

void emit_inside(struct emit *m, value_id v, u32 axes)
{
    m->inside = v, m->inside_axes = axes;
    m->memo.n = 0;
}

void emit_ask(struct emit *m, bool on)
{
    m->is_asked = on;
    m->memo.n = 0;
}

kval emit_load(struct emit *m, kval buf, kval at)
{
    struct kir *k = m->k;
    u32 lanes = kir_lanes(k, at);
    if (!m->limit || lanes == 1) return kir_load(k, buf, at);
    if (kir_at(k, at)->op == KI_RAMP) return kir_load_n(k, buf, at, m->limit);
    kval valid = kir_bin(k, KI_LT, kir_ramp(k, kir_int(k, 0), 1, lanes), m->limit);
    return kir_load(k, buf, kir_select(k, valid, at, kir_int(k, 0)));
}

bool emit_is_stored(const struct emit *m, value_id v)
{
    return !m->bind[v].fn && m->buf[v] && m->buf[v] != m->out[v] &&
           graph_value(m->g, v)->layout == LAYOUT_ROWS && !graph_value(m->g, v)->part.whole;
}

kval emit_value(struct emit *m, value_id v, const kval *idx)
{
    const struct value *x = graph_value(m->g, v);
    if (m->bind[v].fn) {
        m->touched_bind = true;
        return m->bind[v].fn(m, m->bind[v].user, idx);
    }
    if (m->buf[v] && m->buf[v] != m->out[v])
        return emit_widen(m, x->dtype, emit_load(m, m->buf[v], emit_offset(m, v, idx)));
    if (emit_is_literal(x)) return emit_literal(m, x);
    if (x->sdata) return emit_content(m, x, idx);
    return emit_lowered(m, v, idx);
}

/* The first n lanes, at addresses that are no ramp. */
static void store_some(struct emit *m, kval buf, kval at, kval val, kval n)
{
    struct kir *k = m->k;
    for (u32 l = 0; l < kir_lanes(k, at); l++) {
        kir_if(k, kir_bin(k, KI_LT, kir_int(k, l), n));
        kir_store(k, buf, kir_lane(k, at, l), kir_lane(k, val, l));
        kir_end(k);
    }
}

void emit_stream(struct emit *m, bool on) { m->streams = on; }

void emit_store(struct emit *m, value_id v, const kval *idx, kval val)
{
    emit_store_n(m, v, idx, val, 0);
}

void emit_store_n(struct emit *m, value_id v, const kval *idx, kval val, kval n)
{
    assert(m->out[v]);
    kval at = emit_offset(m, v, idx);
    /* a vector along an axis of size 1 is its first lane: there is only one element */
    if (kir_lanes(m->k, at) == 1 && kir_lanes(m->k, val) > 1) val = kir_lane(m->k, val, 0);
    val = kir_splat(m->k, emit_narrow(m, graph_value(m->g, v)->dtype, val), kir_lanes(m->k, at));
    bool is_whole = !n || kir_lanes(m->k, at) == 1 || kir_at(m->k, at)->op == KI_RAMP;
    if (is_whole && m->streams) kir_stream(m->k, m->out[v], at, val, n);
    else if (is_whole) kir_store_n(m->k, m->out[v], at, val, n);
    else store_some(m, m->out[v], at, val, n);
}

void emit_output(struct emit *m, value_id v) { emit_output_from(m, v, v); }

void emit_output_from(struct emit *m, value_id to, value_id from)
{
    struct kir *k = m->k;
    const struct shape *s = &graph_value(m->g, to)->shape;
    kval flat = kir_grid(k, emit_size(m, shape_count(m->g->sym, s))), idx[MAX_RANK] = {0};
    for (u32 i = s->rank; i-- > 0;) {
        kval n = emit_size(m, s->dim[i]);
        idx[i] = i ? kir_bin(k, KI_MOD, flat, n) : flat;
        flat = i ? kir_bin(k, KI_DIV, flat, n) : flat;
    }
    emit_store(m, to, idx, emit_value(m, from, idx));
    kir_end(k);
}

kval emit_neutral(struct emit *m, enum kir_op combine, enum dtype t)
{
    if (combine == KI_ADD || combine == KI_OR || combine == KI_XOR) return emit_number(m, t, 0, 0);
    if (combine == KI_MUL) return emit_number(m, t, 1, 1);
    if (combine == KI_AND) return emit_number(m, t, 0, t == DT_BOOL ? 1 : -1);
    assert(combine == KI_MIN || combine == KI_MAX);
    bool largest = combine == KI_MIN;
    return emit_number(m, t, largest ? INFINITY : -INFINITY, dtype_int_extreme(t, largest));
}

/* MIN and MAX give their second operand where the first is a NaN. */
kval emit_combine(struct kir *k, enum kir_op combine, kval acc, kval v)
{
    bool is_extreme = combine == KI_MIN || combine == KI_MAX;
    return is_extreme ? kir_bin(k, combine, v, acc) : kir_bin(k, combine, acc, v);
}
