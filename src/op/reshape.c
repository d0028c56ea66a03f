// SPDX-License-Identifier: Apache-2.0
//
// Reshape, Flatten, Squeeze, Unsqueeze: the same elements in the same order under another shape.
// All become quern::Reshape, whose attribute "shape" holds the symbolic target, so no input is left
// that only holds sizes.
//
// Lowering pairs groups of input axes with groups of output axes of equal size and linearises only
// inside a group: axes that are kept stay as they are, so a ramp along the last axis survives a
// reshape of the others. A size of -1 is the exact quotient where the division is proven, the floor
// otherwise; a source index is clamped where equal counts are not proven, so that no size makes a
// kernel read outside its input. Where the input lies in memory in rows, the linear position is the
// address and nothing is divided.
//
// A vector along an axis that the input has as pairs or fours (c as c/2 and 2, as in channel shuffles)
// takes neighbours from different rows: each row's elements are a vector of fewer lanes, and their
// interleaving (ZIP) is the result. So nothing is gathered where the rows are dense.
#include "op/op.h"

#include <string.h>

enum { MAX_TARGET = 64 };

/* The target shape of one of the ONNX operators. */
typedef bool target_fn(struct graph *g, node_id n, struct shape *to, struct err *e);

struct row {
    target_fn *target;
};

static const struct shape *in_shape(const struct graph *g, node_id n)
{
    return &graph_value(g, graph_node(g, n)->in.v[0])->shape;
}

/* Reshape. */

/* Product of the sizes of `of` that are not in `without` (each cancels once), and the rest of
   `without`. */
static void cancel(struct symtab *t, const struct shape *of, const struct shape *without,
                   sym rest[2])
{
    bool used[MAX_RANK] = {0};
    rest[0] = rest[1] = sym_const(t, 1);
    for (u32 i = 0; i < of->rank; i++) {
        u32 j = 0;
        while (j < without->rank && (used[j] || without->dim[j] != of->dim[i])) j++;
        if (j < without->rank) used[j] = true;
        else rest[0] = sym_mul(t, rest[0], of->dim[i]);
    }
    for (u32 j = 0; j < without->rank; j++)
        if (!used[j]) rest[1] = sym_mul(t, rest[1], without->dim[j]);
}

/* The size that stands for -1, given the others. */
static bool resolve(struct graph *g, node_id n, const struct shape *others, sym *out, struct err *e)
{
    sym rest[2];
    i64 a, b;
    cancel(g->sym, in_shape(g, n), others, rest);
    if (sym_is_const(g->sym, rest[1], &b) && b == 0)
        return op_invalid(e, g, n, "size -1 cannot be found beside a size of 0");
    if (sym_is_const(g->sym, rest[0], &a) && sym_is_const(g->sym, rest[1], &b) && a % b)
        return op_invalid(e, g, n, "%lld elements do not fit rows of %lld", (long long)a,
                          (long long)b);
    *out = sym_div(g->sym, rest[0], rest[1]);
    if (sym_is_const(g->sym, rest[1], &b))
        return op_require_multiple(g, n, rest[0], b, e, "the number of elements, without that of the axes it keeps,");
    return op_require_equal(g, n, sym_mul(g->sym, *out, rest[1]), rest[0], e, "the numbers of elements");
}

/* Data-dependent target sizes: 0 stands for the input's, -1 for the rest. */
static void resolve_made(struct graph *g, node_id n, sym *t, i64 rank, bool allowzero)
{
    struct symtab *st = g->sym;
    const struct shape in = *in_shape(g, n);
    sym one = sym_const(st, 1), count = shape_count(st, &in), is_rest[MAX_RANK], others = one;
    for (i64 i = 0; i < rank; i++) {
        sym said = t[i];
        is_rest[i] = op_sym_equals(st, t[i], -1);
        if (!allowzero && i < in.rank) t[i] = sym_add(st, t[i], sym_mul(st, op_sym_equals(st, t[i], 0), in.dim[i]));
        t[i] = sym_add(st, t[i], sym_mul(st, is_rest[i], sym_const(st, 2))); /* -1 counts as 1 */
        t[i] = op_let_if(g, n, t[i], 0, said, sym_const(st, -1));
        others = sym_mul(st, others, t[i]);
    }
    sym rest = sym_div(st, count, sym_max(st, others, one)), whole = one;
    for (i64 i = 0; i < rank; i++) {
        sym more = sym_mul(st, is_rest[i], sym_sub(st, rest, one));
        t[i] = op_let(g, n, sym_add(st, t[i], more), 0);
        whole = sym_mul(st, whole, t[i]);
    }
    op_must_equal(g, n, count, whole);
}

static bool any_made(const struct graph *g, const sym *t, i64 rank)
{
    for (i64 i = 0; i < rank; i++) {
        i64 lo;
        if (op_is_made(g, t[i]) && !(sym_lower_bound(g->sym, t[i], &lo) && lo >= 0)) return true;
    }
    return false;
}

static bool target_reshape(struct graph *g, node_id n, struct shape *to, struct err *e)
{
    const struct shape *in = in_shape(g, n);
    bool allowzero = attr_int(graph_node(g, n), "allowzero", 0), has_zero = false;
    sym t[MAX_TARGET];
    i64 rank, c, at = -1;
    if (graph_node(g, n)->in.n < 2 ||
        !op_data_ints(g, graph_node(g, n)->in.v[1], t, MAX_TARGET, &rank))
        return op_unsupported(e, g, n, "the length of the target shape is only known at run time");
    if (rank > MAX_RANK) return op_unsupported(e, g, n, "rank %lld", (long long)rank);
    in = in_shape(g, n);
    if (any_made(g, t, rank)) {
        resolve_made(g, n, t, rank, allowzero);
        *to = (struct shape){.known = true, .rank = (u32)rank};
        memcpy(to->dim, t, (size_t)rank * sizeof t[0]);
        return true;
    }
    struct shape others = {.known = true};
    for (i64 i = 0; i < rank; i++) {
        bool known = sym_is_const(g->sym, t[i], &c);
        if (known && (c < -1 || (c == -1 && at >= 0)))
            return op_invalid(e, g, n, "bad target size %lld", (long long)c);
        if (known && c == 0 && !allowzero && i >= in->rank)
            return op_invalid(e, g, n, "target size 0 beyond the rank of the input");
        if (known && c == 0 && !allowzero) t[i] = in->dim[i];
        has_zero |= known && c == 0 && allowzero;
        if (known && c == -1) at = i;
        else others.dim[others.rank++] = t[i];
    }
    if (has_zero && at >= 0) return op_invalid(e, g, n, "sizes 0 and -1 together with allowzero");
    if (at >= 0 && !resolve(g, n, &others, &t[at], e)) return false;
    *to = (struct shape){.known = true, .rank = (u32)rank};
    memcpy(to->dim, t, (size_t)rank * sizeof t[0]);
    return at >= 0 || op_require_equal(g, n, shape_count(g->sym, in), shape_count(g->sym, to), e, "the numbers of elements");
}

static bool target_flatten(struct graph *g, node_id n, struct shape *to, struct err *e)
{
    const struct shape *in = in_shape(g, n);
    i64 axis = attr_int(graph_node(g, n), "axis", 1);
    if (axis < -(i64)in->rank || axis > in->rank)
        return op_invalid(e, g, n, "axis %lld with rank %u", (long long)axis, in->rank);
    axis += axis < 0 ? in->rank : 0;
    *to = (struct shape){.known = true, .rank = 2};
    to->dim[0] = to->dim[1] = sym_const(g->sym, 1);
    for (u32 a = 0; a < in->rank; a++)
        to->dim[a >= axis] = sym_mul(g->sym, to->dim[a >= axis], in->dim[a]);
    return true;
}

/* Axes from the attribute (opset < 13) or input 1, as flags; count in *count, -1 if omitted. */
static bool read_axes(struct graph *g, node_id n, u32 rank, bool *is_axis, i64 *count,
                      struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 buf[MAX_TARGET];
    const i64 *v = buf;
    *count = -1;
    if (nd->in.n > 1 && nd->in.v[1]) {
        *count = op_const_ints(g, nd->in.v[1], buf, MAX_TARGET);
        if (*count < 0) return op_unsupported(e, g, n, "axes are only known at run time");
    } else if (node_attr(nd, "axes")) {
        *count = attr_ints(nd, "axes", &v);
    }
    for (i64 i = 0; i < *count; i++) {
        u32 a;
        if (!op_axis(v[i], rank, &a) || is_axis[a])
            return op_invalid(e, g, n, "axis %lld is out of range or named twice", (long long)v[i]);
        is_axis[a] = true;
    }
    return true;
}

static bool target_squeeze(struct graph *g, node_id n, struct shape *to, struct err *e)
{
    const struct shape *in = in_shape(g, n);
    bool is_axis[MAX_RANK] = {0};
    i64 count, c;
    if (!read_axes(g, n, in->rank, is_axis, &count, e)) return false;
    *to = (struct shape){.known = true};
    for (u32 a = 0; a < in->rank; a++) {
        bool known = sym_is_const(g->sym, in->dim[a], &c);
        if (is_axis[a] && known && c != 1)
            return op_invalid(e, g, n, "axis %u has size %lld, not 1", a, (long long)c);
        if (is_axis[a] && !known && !op_require_equal(g, n, in->dim[a], sym_const(g->sym, 1), e, "axis %u and 1", a))
            return false;
        if (is_axis[a] || (count < 0 && known && c == 1)) continue;
        to->dim[to->rank++] = in->dim[a];
    }
    return true;
}

static bool target_unsqueeze(struct graph *g, node_id n, struct shape *to, struct err *e)
{
    const struct shape *in = in_shape(g, n);
    const struct node *nd = graph_node(g, n);
    bool is_axis[MAX_RANK] = {0};
    i64 buf[MAX_TARGET], count = -1;
    const i64 *v;
    if (nd->in.n > 1 && nd->in.v[1]) count = op_const_ints(g, nd->in.v[1], buf, MAX_TARGET);
    else if (node_attr(nd, "axes")) count = attr_ints(nd, "axes", &v);
    if (count < 0) return op_unsupported(e, g, n, "axes are only known at run time");
    if (in->rank + count > MAX_RANK)
        return op_unsupported(e, g, n, "rank %lld", (long long)(in->rank + count));
    *to = (struct shape){.known = true, .rank = in->rank + (u32)count};
    if (!read_axes(g, n, to->rank, is_axis, &count, e)) return false;
    for (u32 a = 0, i = 0; a < to->rank; a++)
        to->dim[a] = is_axis[a] ? sym_const(g->sym, 1) : in->dim[i++];
    return true;
}

/* The ONNX operators. */

static bool named_infer(struct graph *g, node_id n, struct err *e)
{
    const struct row *r = op_of(g, n)->row;
    struct shape to;
    if (!r->target(g, n, &to, e)) return false;
    value_id in = graph_node(g, n)->in.v[0];
    op_set_out(g, n, 0, graph_value(g, in)->dtype, &to);
    op_copy_sdata(g, in, graph_node(g, n)->out.v[0]);
    return true;
}

static bool named_expand(struct graph *g, node_id n, struct err *e)
{
    const struct row *r = op_of(g, n)->row;
    struct shape to;
    if (!r->target(g, n, &to, e)) return false;
    node_id new = op_replace(g, n, "quern::Reshape", 1);
    op_set_syms(g, new, "shape", to.dim, to.rank);
    return true;
}

/* quern::Reshape. */

static bool reshape_infer(struct graph *g, node_id n, struct err *e)
{
    struct shape to = {.known = true};
    i64 rank = op_get_syms(g, graph_node(g, n), "shape", to.dim, MAX_RANK), a, b;
    if (rank < 0) return op_invalid(e, g, n, "bad attribute 'shape'");
    to.rank = (u32)rank;
    sym have = shape_count(g->sym, in_shape(g, n)), want = shape_count(g->sym, &to);
    if (sym_is_const(g->sym, have, &a) && sym_is_const(g->sym, want, &b) && a != b)
        return op_invalid(e, g, n, "%lld elements do not fit a shape of %lld", (long long)a,
                          (long long)b);
    if (!op_require_equal(g, n, have, want, e, "the numbers of elements")) return false;
    value_id in = graph_node(g, n)->in.v[0];
    op_set_out(g, n, 0, graph_value(g, in)->dtype, &to);
    op_copy_sdata(g, in, graph_node(g, n)->out.v[0]);
    return true;
}

static bool reshape_eval(const struct op_eval *v, struct err *e)
{
    if (tensor_count(v->in[0]) != tensor_count(v->out[0]))
        return err_set(e, ERR_INPUT, "%lld elements do not fit a shape of %lld",
                       (long long)tensor_count(v->in[0]), (long long)tensor_count(v->out[0]));
    memcpy(v->out[0]->data, v->in[0]->data, (size_t)tensor_bytes(v->in[0]));
    return true;
}

struct lowering {
    struct emit *m;
    struct shape in, out;
    enum dtype dtype;
    const kval *idx;    /* of the output */
    bool stored;        /* the input is row-major in memory: only its address is needed */
    kval flat;          /* stored: the address so far, outermost terms first */
    kval src[MAX_RANK]; /* otherwise: the index of the input */
    u32 zip, n_zip;     /* axis of the input along which neighbouring lanes differ, and its size; n_zip 0: none */
};

static bool is_one(struct symtab *t, sym s)
{
    i64 c;
    return sym_is_const(t, s, &c) && c == 1;
}

/* at: position on the input axes before `end`, counted from where the last term ended. */
static void add_flat(struct lowering *l, kval at, u32 end)
{
    struct kir *k = l->m->k;
    sym stride = sym_const(l->m->g->sym, 1);
    for (u32 a = end; a < l->in.rank; a++) stride = sym_mul(l->m->g->sym, stride, l->in.dim[a]);
    kval term = kir_bin(k, KI_MUL, at, emit_size(l->m, stride));
    l->flat = l->flat ? kir_bin(k, KI_ADD, l->flat, term) : term;
}

/* The last of input axes i0..i1-1 that is not of size 1. */
static u32 last_axis(const struct lowering *l, const u32 i[2])
{
    u32 a = i[1] - 1;
    while (a > i[0] && is_one(l->m->g->sym, l->in.dim[a])) a--;
    return a;
}

/* A ramp of neighbours in the input, of which n and n belong to one index of the axes before the last one: the ramp of those
   indices. 0: it is none. */
static kval ramp_of_rows(const struct lowering *l, kval at, const u32 i[2], i64 *n)
{
    struct kir *k = l->m->k;
    const struct kir_ins ramp = *kir_at(k, at);
    u32 a = last_axis(l, i);
    bool is_ramp = ramp.op == KI_RAMP && ramp.imm.i == 1 && !kir_wraps(k, at) && kir_range(k, ramp.a).lo >= 0;
    if (!is_ramp || l->n_zip || a == i[0] || !sym_is_const(l->m->g->sym, l->in.dim[a], n)) return 0;
    if ((*n != 2 && *n != 4) || ramp.lanes < 2 * *n || kir_multiple(k, ramp.a) % *n) return 0;
    return kir_ramp(k, kir_div_i(k, ramp.a, *n), 1, ramp.lanes / (u32)*n);
}

/* Whether only one axis is walked by lanes, and its elements can be interleaved. */
static bool may_zip(const struct lowering *l)
{
    u32 n = 0;
    for (u32 a = 0; a < l->out.rank; a++) n += kir_lanes(l->m->k, l->idx[a]) > 1;
    return n == 1 && !l->stored && l->dtype != DT_BOOL;
}

/* Output axes o0..o1-1 and input axes i0..i1-1 hold the same elements. */
static void lower_group(struct lowering *l, const u32 o[2], const u32 i[2], bool proven)
{
    struct emit *m = l->m;
    struct kir *k = m->k;
    sym n = sym_const(m->g->sym, 1);
    kval at = kir_int(k, 0);
    for (u32 a = o[0]; a < o[1]; a++)
        if (!is_one(m->g->sym, l->out.dim[a]))
            at = kir_bin(k, KI_ADD, kir_bin(k, KI_MUL, at, emit_size(m, l->out.dim[a])), l->idx[a]);
    for (u32 a = i[0]; a < i[1]; a++) n = sym_mul(m->g->sym, n, l->in.dim[a]);
    if (!proven) at = emit_clamp(m, at, n);
    if (l->stored) {
        add_flat(l, at, i[1]);
        return;
    }
    i64 n_zip;
    kval rows = may_zip(l) ? ramp_of_rows(l, at, i, &n_zip) : 0;
    if (rows) at = rows, l->zip = last_axis(l, i), l->n_zip = (u32)n_zip;
    for (u32 a = i[1]; a-- > i[0];) {
        kval size = emit_size(m, l->in.dim[a]);
        if (rows && a == l->zip) continue;
        if (is_one(m->g->sym, l->in.dim[a])) continue;
        l->src[a] = a == i[0] ? at : kir_bin(k, KI_MOD, at, size);
        at = a == i[0] ? at : kir_bin(k, KI_DIV, at, size);
    }
}

/* The shortest groups after i and o with equal counts; false: no equality is proven. */
static bool find_group(struct lowering *l, const u32 end[2], u32 i[2], u32 o[2])
{
    struct symtab *t = l->m->g->sym;
    u32 n_in = end[0] - i[0], n_out = end[1] - o[0];
    for (u32 total = 2; total <= n_in + n_out; total++)
        for (u32 a = 1; a < total && a <= n_in; a++) {
            sym x = sym_const(t, 1), y = x;
            if (total - a > n_out) continue;
            for (u32 b = 0; b < a; b++) x = sym_mul(t, x, l->in.dim[i[0] + b]);
            for (u32 b = 0; b < total - a; b++) y = sym_mul(t, y, l->out.dim[o[0] + b]);
            i[1] = i[0] + a;
            o[1] = o[0] + total - a;
            if (x == y) return true;
        }
    return false;
}

/* Takes equal axes and axes of size 1 off the end. */
static void strip_end(struct lowering *l, u32 end[2])
{
    struct symtab *t = l->m->g->sym;
    for (;;) {
        if (end[0] && is_one(t, l->in.dim[end[0] - 1])) {
            end[0]--;
        } else if (end[1] && is_one(t, l->out.dim[end[1] - 1])) {
            end[1]--;
        } else if (end[0] && end[1] && l->in.dim[end[0] - 1] == l->out.dim[end[1] - 1]) {
            end[0]--, end[1]--;
            l->src[end[0]] = l->idx[end[1]];
        } else {
            return;
        }
    }
}

static void lower_groups(struct lowering *l)
{
    struct symtab *t = l->m->g->sym;
    u32 end[2] = {l->in.rank, l->out.rank}, i[2] = {0, 0}, o[2] = {0, 0};
    strip_end(l, end);
    while (i[0] < end[0]) {
        if (is_one(t, l->in.dim[i[0]])) {
            i[0]++;
            continue;
        }
        if (o[0] < end[1] && is_one(t, l->out.dim[o[0]])) {
            o[0]++;
            continue;
        }
        bool proven = find_group(l, end, i, o);
        if (!proven) i[1] = end[0], o[1] = end[1];
        lower_group(l, o, i, proven);
        i[0] = i[1];
        o[0] = o[1];
    }
    for (u32 a = end[0]; l->stored && a < l->in.rank; a++)
        if (!is_one(t, l->in.dim[a])) add_flat(l, l->src[a], a + 1);
}

static bool has_zero(struct symtab *t, const struct shape *s)
{
    i64 c;
    for (u32 a = 0; a < s->rank; a++)
        if (sym_is_const(t, s->dim[a], &c) && c == 0) return true;
    return false;
}

/* The elements of each row, interleaved. */
static kval lower_zip(struct lowering *l, value_id v)
{
    struct emit *m = l->m;
    struct kir *k = m->k;
    const kval limit = m->limit;
    kval row[4] = {0};
    u32 lanes = 1;
    for (u32 i = 0; i < l->out.rank; i++) lanes = kir_lanes(k, l->idx[i]) > lanes ? kir_lanes(k, l->idx[i]) : lanes;
    for (u32 i = 0; i < l->n_zip; i++) {
        l->src[l->zip] = kir_int(k, i);
        if (limit) emit_limit(m, kir_div_i(k, kir_add_i(k, limit, l->n_zip - 1 - i), l->n_zip));
        row[i] = kir_splat(k, emit_value(m, v, l->src), lanes / l->n_zip);
    }
    if (limit) emit_limit(m, limit);
    return kir_interleave(k, row, l->n_zip, 0, kir_lanes(k, row[0]));
}

static kval reshape_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    const struct value *in = graph_value(m->g, n->in.v[0]), *to = graph_value(m->g, n->out.v[0]);
    struct lowering l = {.m = m, .in = in->shape, .out = to->shape, .dtype = in->dtype, .idx = idx};
    if (has_zero(m->g->sym, &l.in) || has_zero(m->g->sym, &l.out)) return emit_zero(m, in->dtype);
    for (u32 a = 0; a < l.in.rank; a++) l.src[a] = kir_int(m->k, 0);
    l.stored = emit_is_stored(m, n->in.v[0]);
    lower_groups(&l);
    if (l.n_zip) return lower_zip(&l, n->in.v[0]);
    if (!l.stored) return emit_value(m, n->in.v[0], l.src);
    kval at = l.flat ? l.flat : kir_int(m->k, 0);
    return emit_widen(m, in->dtype, emit_load(m, m->buf[n->in.v[0]], at));
}

/* Random instances. */

/* Splits or merges neighbouring sizes: a random shape with as many elements. */
static u32 random_regroup(struct rng *r, u32 rank, i64 *dim)
{
    for (int step = 0; step < 4; step++) {
        u32 a = rank ? (u32)rng_range(r, 0, rank - 1) : 0;
        i64 f = rng_range(r, 1, 3);
        if (rng_range(r, 0, 1) && a + 1 < rank) {
            dim[a] *= dim[a + 1];
            memmove(dim + a + 1, dim + a + 2, (rank - a - 2) * sizeof dim[0]);
            rank--;
        } else if (rank < 5 && (rank == 0 || dim[a] % f == 0)) {
            f = rank ? f : 1;
            memmove(dim + a + 1, dim + a, (rank - a) * sizeof dim[0]);
            dim[a] = f;
            dim[a + 1] = rank ? dim[a + 1] / f : dim[a + 1];
            rank++;
        }
    }
    return rank;
}

static void random_reshape(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[MAX_RANK] = {0};
    u32 rank = (u32)rng_range(r, 0, 4);
    for (u32 a = 0; a < rank; a++) dim[a] = rng_range(r, 0, 15) ? rng_range(r, 1, 6) : 0;
    value_id in[1];
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I64, rank, dim, &in[0]);
    rank = random_regroup(r, rank, dim);
    node_id n = random_node(g, self, 1, in, 1);
    if (self->row) {
        node_add_in(g, n, op_const_i(g, DT_I64, dim, rank));
        attr_set_int(g, n, "allowzero", 1);
        return;
    }
    sym s[MAX_RANK];
    for (u32 a = 0; a < rank; a++) s[a] = sym_const(g->sym, dim[a]);
    op_set_syms(g, n, "shape", s, rank);
}

static void random_flatten(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4] = {rng_range(r, 1, 4), rng_range(r, 1, 5), rng_range(r, 1, 6), 2};
    u32 rank = (u32)rng_range(r, 0, 4);
    value_id in[1];
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    attr_set_int(g, random_node(g, self, 1, in, 1), "axis", rng_range(r, -(i64)rank, rank));
}

static void random_squeeze(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[4], axes[4], n_axes = 0;
    u32 rank = (u32)rng_range(r, 1, 4);
    for (u32 a = 0; a < rank; a++) {
        dim[a] = rng_range(r, 0, 1) ? 1 : rng_range(r, 1, 5);
        if (dim[a] == 1) axes[n_axes++] = rng_range(r, 0, 1) ? a : (i64)a - rank;
    }
    value_id in[2] = {0};
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    if (rng_range(r, 0, 1)) in[1] = op_const_i(g, DT_I64, axes, n_axes);
    random_node(g, self, in[1] ? 2 : 1, in, 1);
}

static void random_unsqueeze(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[3] = {rng_range(r, 1, 4), rng_range(r, 1, 5), rng_range(r, 1, 6)}, axes[2];
    u32 rank = (u32)rng_range(r, 0, 3);
    axes[0] = rng_range(r, 0, rank);
    axes[1] = -1;
    value_id in[2];
    random_input(g, "x", DT_F32, rank, dim, &in[0]);
    in[1] = op_const_i(g, DT_I64, axes, rng_range(r, 1, 2));
    random_node(g, self, 2, in, 1);
}

static const struct row row_reshape = {target_reshape}, row_flatten = {target_flatten},
                        row_squeeze = {target_squeeze}, row_unsqueeze = {target_unsqueeze};

static const struct op ops[] = {
    {.name = "quern::Reshape",
     .attributes = "shape:strings",
     .props = OP_VIEW | OP_RESHAPE,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = reshape_infer,
     .eval = reshape_eval,
     .lower = reshape_lower,
     .random = random_reshape},
    {.name = "Reshape",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = named_infer,
     .expand = named_expand,
     .random = random_reshape,
     .row = &row_reshape},
    {.name = "Flatten",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = named_infer,
     .expand = named_expand,
     .random = random_flatten,
     .row = &row_flatten},
    {.name = "Squeeze",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = named_infer,
     .expand = named_expand,
     .random = random_squeeze,
     .row = &row_squeeze},
    {.name = "Unsqueeze",
     .props = OP_VIEW,
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = named_infer,
     .expand = named_expand,
     .random = random_unsqueeze,
     .row = &row_unsqueeze},
};

const struct op_family op_reshape = {ops, countof(ops)};
