// SPDX-License-Identifier: Apache-2.0
//
// Operators that move or select elements. In i8 their results have the scales of their inputs;
// where the network has another scale, a QUANTIZE follows (tfl_settle).
#include "export/export_tflite.h"

static u32 rank_of(const struct tfl *t, value_id v) { return graph_value(&t->g, v)->shape.rank; }
static enum tfl_layout out_layout(const struct tfl *t, const struct node *n)
{
    return tfl_layout_of(t, n->out.v[0]);
}

/* Constant sizes of an attribute, in the order of a layout. */
static bool sizes(struct tfl *t, const struct node *n, const char *attr, enum tfl_layout l,
                  i64 *out)
{
    sym s[MAX_RANK];
    i64 count = op_get_syms(&t->g, n, attr, s, MAX_RANK);
    for (i64 k = 0; k < count; k++)
        if (!sym_is_const(t->g.sym, s[k], &out[tfl_axis((u32)k, (u32)count, l)]))
            return tfl_refuse(t, n, "%s that is not constant", attr);
    return count >= 0 || tfl_refuse(t, n, "no %s", attr);
}

/* The output, of the input's scale. */
static tfl_id out_like(struct tfl *t, const struct node *n, tfl_id x, enum tfl_layout l)
{
    const struct tfl_quant q = tfl_at(t, x)->q;
    return tfl_out_q(t, n, 0, l, q.n ? &q : NULL);
}

/* Axes. */

bool tfl_transposed(struct tfl *t, const struct node *n)
{
    u32 rank = rank_of(t, n->in.v[0]);
    enum tfl_layout from = tfl_layout_of(t, n->in.v[0]), to = out_layout(t, n);
    const i64 *given;
    i64 perm[MAX_RANK], n_given = attr_ints(n, "perm", &given);
    bool is_same = true;
    tfl_id x = tfl_in(t, n, 0, from);
    if (!x) return false;
    for (u32 k = 0; k < rank; k++) {
        u32 at = tfl_axis(k, rank, to);
        perm[at] = tfl_axis(n_given ? (u32)given[k] : rank - 1 - k, rank, from);
        is_same &= perm[at] == at;
    }
    return tfl_settle(t, n, 0, to, is_same ? x : tfl_transpose(t, x, perm, 0));
}

/* (n, c, h, w) to (n, c h w), whose elements stay in the order of channels last. */
static bool flatten(struct tfl *t, const struct node *n, const i64 *in, const i64 *out)
{
    struct tfl_value *y = &t->v[tfl_of(t, n->out.v[0])];
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    if (!x) return false;
    enum tfl_form f = t->is_q ? TFL_STORED : TFL_REAL;
    enum tfl_layout l = in[1] == out[1] || in[1] == 1 ? TFL_ROWS : TFL_FLAT;
    x = tfl_reshape(t, x, 2, out, 0);
    y->flat[0] = in[1], y->flat[1] = out[1] / in[1];
    y->id[f][l] = t->is_q ? tfl_requantize(t, x, &y->q, 0) : x;
    return true;
}

bool tfl_reshaped(struct tfl *t, const struct node *n)
{
    i64 in[MAX_RANK], out[MAX_RANK];
    u32 rank = rank_of(t, n->out.v[0]);
    tfl_dims(t, n->in.v[0], TFL_ROWS, in);
    tfl_dims(t, n->out.v[0], TFL_ROWS, out);
    if (rank == 2 && rank_of(t, n->in.v[0]) > 2 && tfl_layout_of(t, n->in.v[0]) == TFL_CLAST &&
        in[0] == out[0] && (t->is_q || !t->v[tfl_of(t, n->out.v[0])].q.n))
        return flatten(t, n, in, out);
    tfl_id x = tfl_in(t, n, 0, TFL_ROWS);
    return x && tfl_settle(t, n, 0, TFL_ROWS, tfl_reshape(t, x, rank, out, 0));
}

bool tfl_concat(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = out_layout(t, n);
    u32 rank = rank_of(t, n->out.v[0]), axis = 0;
    const struct tfl_quant *q = &t->v[tfl_of(t, n->out.v[0])].q;
    tfl_id *in = arena_array(t->a, tfl_id, n->in.n);
    if (!op_axis(attr_int(n, "axis", 0), rank, &axis)) return tfl_refuse(t, n, "no axis");
    for (u32 k = 0; k < n->in.n; k++) {
        in[k] = tfl_in(t, n, k, l);
        if (in[k] && t->is_q)
            in[k] = tfl_at(t, in[k])->type == TFL_F32 ? tfl_quant_const(t, in[k], q)
                                                      : tfl_requantize(t, in[k], q, 0);
        if (!in[k]) return false;
    }
    tfl_emit(t, TFL_CONCATENATION, tfl_out(t, n, 0, l), n->in.n, in);
    tfl_options(t, "Concatenation", "\"axis\":%u", tfl_axis(axis, rank, l));
    return true;
}

static tfl_id gather(struct tfl *t, tfl_id x, u32 axis, tfl_id at, tfl_id y)
{
    tfl_emit(t, TFL_GATHER, y, 2, (tfl_id[]){x, at});
    tfl_options(t, "Gather", "\"axis\":%u", axis);
    return y;
}

/* Pad. */

static bool is_mode(const struct node *n, const char *mode)
{
    return str_is(attr_str(n, "mode", "constant"), mode);
}

static bool pad_value(const struct tfl *t, const struct node *n, double *v)
{
    value_id c = op_node_input(n, 1);
    *v = 0;
    if (c && !tfl_content(t, c)) return false;
    if (c) *v = tfl_real(t, c, 0);
    return true;
}

static bool is_repeated(const struct node *n) { return is_mode(n, "edge") || is_mode(n, "wrap"); }

bool tfl_padded_can(struct tfl *t, const struct node *n)
{
    double v;
    bool has_scale =
        t->v[tfl_of(t, n->out.v[0])].q.n; /* in which other values than 0 are written */
    return (is_mode(n, "constant") && pad_value(t, n, &v) && ((v >= 0 && v <= 0) || has_scale)) ||
           is_mode(n, "reflect") || is_repeated(n);
}

static tfl_id slice(struct tfl *t, tfl_id x, const i64 *start, const i64 *size)
{
    u32 rank = tfl_at(t, x)->rank;
    tfl_id y = tfl_like(t, x, "part", rank, size), from = tfl_ints(t, "begin", rank, start),
           count = tfl_ints(t, "size", rank, size);
    tfl_emit(t, TFL_SLICE, y, 3, (tfl_id[]){x, from, count});
    tfl_options(t, "Slice", "%s", "");
    return y;
}

/* Negative pads crop. */
static tfl_id crop(struct tfl *t, tfl_id x, i64 *before, i64 *after)
{
    const struct tfl_tensor from = *tfl_at(t, x);
    i64 start[MAX_RANK], size[MAX_RANK];
    bool any = false;
    for (u32 k = 0; k < from.rank; k++) {
        start[k] = i64_max(-before[k], 0);
        size[k] = from.dim[k] - start[k] - i64_max(-after[k], 0);
        any |= before[k] < 0 || after[k] < 0;
        before[k] = i64_max(before[k], 0), after[k] = i64_max(after[k], 0);
        if (size[k] < 1) return 0;
    }
    return any ? slice(t, x, start, size) : x;
}

static bool reflect(struct tfl *t, const struct node *n, tfl_id x, const i64 *before,
                    const i64 *after, enum tfl_layout l)
{
    const struct tfl_tensor from = *tfl_at(t, x);
    i32 *p = arena_array(t->a, i32, 2 * from.rank);
    for (u32 k = 0; k < from.rank; k++) {
        p[2 * k] = (i32)before[k], p[2 * k + 1] = (i32)after[k];
        if (before[k] >= from.dim[k] || after[k] >= from.dim[k])
            return tfl_refuse(t, n, "reflecting pads as long as the axis");
    }
    tfl_id y = out_like(t, n, x, l),
           pads = tfl_constant(t, "pads", TFL_I32, 2, (i64[]){from.rank, 2}, p);
    tfl_emit(t, TFL_MIRROR_PAD, y, 2, (tfl_id[]){x, pads});
    tfl_options(t, "MirrorPad", "\"mode\":\"REFLECT\"");
    return tfl_settle(t, n, 0, l, y);
}

/* Pads that repeat the first and last elements, or the whole axis: GATHER along each of them. */
static tfl_id repeat(struct tfl *t, const struct node *n, tfl_id x, const i64 *before,
                     const i64 *after)
{
    for (u32 k = 0; k < tfl_at(t, x)->rank; k++) {
        struct tfl_tensor to = *tfl_at(t, x);
        i64 size = to.dim[k], *at;
        if (!before[k] && !after[k]) continue;
        if (!(at = arena_try(t->a, 8 * (before[k] + size + after[k]), t->e, "indices of pads")))
            return 0;
        to.dim[k] = before[k] + size + after[k];
        for (i64 i = 0; i < to.dim[k]; i++) {
            i64 from = i - before[k];
            at[i] = is_mode(n, "edge") ? i64_max(0, i64_min(from, size - 1))
                                       : ((from % size) + size) % size;
        }
        tfl_id list = tfl_ints(t, "rows", (u32)to.dim[k], at);
        x = gather(t, x, k, list, tfl_like(t, x, "repeated", to.rank, to.dim));
    }
    return x;
}

bool tfl_padded(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = out_layout(t, n);
    i64 before[MAX_RANK], after[MAX_RANK];
    double value = 0;
    if (!sizes(t, n, "before", l, before) || !sizes(t, n, "after", l, after)) return false;
    if (!pad_value(t, n, &value)) return tfl_refuse(t, n, "a value that is not constant");
    if (value < 0 || value > 0)
        if (graph_value(&t->g, n->in.v[0])->dtype != DT_F32)
            return tfl_refuse(t, n, "pads of integers that are not 0");
    tfl_id x = tfl_in(t, n, 0, l);
    if (x) x = crop(t, x, before, after);
    if (!x) return t->e->code ? false : tfl_refuse(t, n, "pads that remove all");
    if (is_mode(n, "reflect")) return reflect(t, n, x, before, after, l);
    if (is_repeated(n)) {
        x = repeat(t, n, x, before, after);
        return x && tfl_settle(t, n, 0, l, x);
    }
    if (t->is_q && (value < 0 || value > 0))
        x = tfl_requantize(t, x, &t->v[tfl_of(t, n->out.v[0])].q, 0);
    return tfl_settle(t, n, 0, l, tfl_pad(t, x, before, after, value));
}

/* Parts. */

static bool strided_slice(struct tfl *t, const struct node *n, tfl_id x, const i64 *start,
                          const i64 *size, const i64 *step, enum tfl_layout l)
{
    u32 rank = tfl_at(t, x)->rank, end_mask = 0;
    i64 end[MAX_RANK];
    for (u32 k = 0; k < rank; k++) {
        end[k] = start[k] + step[k] * size[k];
        if (end[k] < 0) end_mask |= 1u << k, end[k] = 0; /* to the front */
    }
    tfl_id y = out_like(t, n, x, l), b = tfl_ints(t, "begin", rank, start),
           e = tfl_ints(t, "end", rank, end), s = tfl_ints(t, "strides", rank, step);
    tfl_emit(t, TFL_STRIDED_SLICE, y, 4, (tfl_id[]){x, b, e, s});
    tfl_options(t, "StridedSlice", "\"begin_mask\":0,\"end_mask\":%u", end_mask);
    return tfl_settle(t, n, 0, l, y);
}

bool tfl_slice(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = out_layout(t, n);
    i64 start[MAX_RANK], size[MAX_RANK], step[MAX_RANK];
    const i64 *given;
    u32 rank = rank_of(t, n->in.v[0]);
    bool is_dense = true;
    if (!sizes(t, n, "start", l, start) || !sizes(t, n, "size", l, size)) return false;
    i64 n_given = attr_ints(n, "step", &given);
    for (u32 k = 0; k < rank; k++) {
        i64 s = k < n_given ? given[k] : 1;
        step[tfl_axis(k, rank, l)] = s;
        is_dense &= s == 1;
    }
    tfl_id x = tfl_in(t, n, 0, l);
    if (!x) return false;
    if (!is_dense)
        return rank <= 5 ? strided_slice(t, n, x, start, size, step, l)
                         : tfl_refuse(t, n, "steps along %u axes", rank);
    return tfl_settle(t, n, 0, l, slice(t, x, start, size));
}

/* Constant indices, from the front. */
static tfl_id indices(struct tfl *t, const struct tensor *c, i64 size)
{
    i64 n = tensor_count(c);
    i32 *p = arena_array(t->a, i32, n);
    for (i64 i = 0; i < n; i++) {
        i64 v = elem_i64(c->dtype, c->data, i);
        p[i] = (i32)(v < 0 ? v + size : v);
    }
    return tfl_constant(t, "indices", TFL_I32, c->rank, c->dim, p);
}

bool tfl_gather(struct tfl *t, const struct node *n)
{
    u32 rank = rank_of(t, n->in.v[0]), axis = 0;
    i64 dim[MAX_RANK];
    const struct tensor *c = tfl_content(t, n->in.v[1]);
    tfl_dims(t, n->in.v[0], TFL_ROWS, dim);
    if (!op_axis(attr_int(n, "axis", 0), rank, &axis)) return tfl_refuse(t, n, "no axis");
    tfl_id x = tfl_in(t, n, 0, TFL_ROWS), at = !x  ? 0
                                               : c ? indices(t, c, dim[axis])
                                                   : tfl_in(t, n, 1, TFL_ROWS);
    if (!at) return false;
    tfl_id y = out_like(t, n, x, TFL_ROWS);
    gather(t, x, axis, at, y);
    return tfl_settle(t, n, 0, TFL_ROWS, y);
}

bool tfl_tile(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = out_layout(t, n);
    i64 times[MAX_RANK];
    if (!sizes(t, n, "repeats", l, times)) return false;
    tfl_id x = tfl_in(t, n, 0, l);
    if (!x) return false;
    tfl_id y = out_like(t, n, x, l), list = tfl_ints(t, "times", rank_of(t, n->in.v[0]), times);
    tfl_emit(t, TFL_TILE, y, 2, (tfl_id[]){x, list});
    tfl_options(t, "Tile", "%s", "");
    return tfl_settle(t, n, 0, l, y);
}

bool tfl_expand(struct tfl *t, const struct node *n)
{
    i64 dim[MAX_RANK];
    tfl_id x = tfl_in(t, n, 0, TFL_ROWS);
    if (!x) return false;
    tfl_dims(t, n->out.v[0], TFL_ROWS, dim);
    tfl_id y = out_like(t, n, x, TFL_ROWS),
           shape = tfl_ints(t, "shape", rank_of(t, n->out.v[0]), dim);
    tfl_emit(t, TFL_BROADCAST_TO, y, 2, (tfl_id[]){x, shape});
    tfl_options(t, "BroadcastTo", "%s", "");
    return tfl_settle(t, n, 0, TFL_ROWS, y);
}

/* Blocks. TFLite's order of channels is ONNX's DCR; of CRD the channels are permuted before. */

static tfl_id depth_first(struct tfl *t, const struct node *n, tfl_id x, i64 block)
{
    const struct tfl_tensor from = *tfl_at(t, x);
    i64 c = from.dim[from.rank - 1], blocks = block * block, depth = c / blocks;
    i64 *at = arena_array(t->a, i64, c);
    for (i64 b = 0; b < blocks; b++)
        for (i64 d = 0; d < depth; d++) at[b * depth + d] = d * blocks + b;
    tfl_id list = tfl_ints(t, "channels", (u32)c, at);
    return gather(t, x, from.rank - 1, list, tfl_like(t, x, "channels", from.rank, from.dim));
}

bool tfl_blocks(struct tfl *t, const struct node *n)
{
    bool is_to_space = str_is(n->op, "DepthToSpace");
    i64 block = attr_int(n, "blocksize", 1);
    if (rank_of(t, n->in.v[0]) != 4) return tfl_refuse(t, n, "%u axes", rank_of(t, n->in.v[0]));
    if (!is_to_space && str_is(attr_str(n, "mode", "DCR"), "CRD"))
        return tfl_refuse(t, n, "mode CRD");
    tfl_id x = tfl_in(t, n, 0, TFL_CLAST);
    if (x && is_to_space && str_is(attr_str(n, "mode", "DCR"), "CRD"))
        x = depth_first(t, n, x, block);
    if (!x) return false;
    tfl_id y = out_like(t, n, x, TFL_CLAST);
    tfl_emit(t, is_to_space ? TFL_DEPTH_TO_SPACE : TFL_SPACE_TO_DEPTH, y, 1, &x);
    tfl_options(t, is_to_space ? "DepthToSpace" : "SpaceToDepth", "\"block\":%lld",
                (long long)block);
    return tfl_settle(t, n, 0, TFL_CLAST, y);
}

/* Reductions. */

static bool reduced_axes(struct tfl *t, const struct node *n, bool on[MAX_RANK])
{
    i64 v[MAX_RANK];
    const i64 *given = v;
    u32 rank = rank_of(t, n->in.v[0]), axis = 0;
    i64 count = attr_ints(n, "axes", &given);
    if (op_node_input(n, 1)) count = op_const_ints(&t->g, n->in.v[1], v, MAX_RANK), given = v;
    if (count < 0) return tfl_refuse(t, n, "axes that are not constant");
    if (!count && attr_int(n, "noop_with_empty_axes", 0)) return tfl_refuse(t, n, "no axes");
    for (u32 k = 0; k < MAX_RANK; k++) on[k] = !count && k < rank;
    for (i64 k = 0; k < count; k++) {
        if (!op_axis(given[k], rank, &axis))
            return tfl_refuse(t, n, "axis %lld", (long long)given[k]);
        on[axis] = true;
    }
    return true;
}

/* Whether axes that stay have the network's order in that layout, too. */
static bool keeps_order(u32 rank, const bool on[MAX_RANK], enum tfl_layout l)
{
    bool any = false;
    for (u32 k = 2; k < rank; k++) any |= !on[k];
    return l == TFL_ROWS || on[1] || !any;
}

bool tfl_reduce(struct tfl *t, const struct node *n)
{
    bool on[MAX_RANK], keeps = attr_int(n, "keepdims", 1);
    const struct tfl_row *r = t->row(n->op);
    u32 rank = rank_of(t, n->in.v[0]), n_axes = 0;
    i64 axes[MAX_RANK];
    if (!reduced_axes(t, n, on)) return false;
    enum tfl_layout to = out_layout(t, n), from = keeps ? to : tfl_layout_of(t, n->in.v[0]);
    if (!keeps && !keeps_order(rank, on, from)) from = TFL_ROWS;
    tfl_id x = tfl_in(t, n, 0, from);
    if (!x) return false;
    for (u32 k = 0; k < rank; k++)
        if (on[k]) axes[n_axes++] = tfl_axis(k, rank, from);
    tfl_id y = r->ability == TFL_SAME_Q ? out_like(t, n, x, to) : tfl_out(t, n, 0, to),
           list = tfl_ints(t, "axes", n_axes, axes);
    tfl_emit(t, (enum tfl_code)r->code, y, 2, (tfl_id[]){x, list});
    tfl_options(t, "Reducer", "\"keep_dims\":%s", keeps ? "true" : "false");
    return tfl_settle(t, n, 0, to, y);
}

bool tfl_arg(struct tfl *t, const struct node *n)
{
    u32 rank = rank_of(t, n->in.v[0]), axis = 0;
    i64 dim[MAX_RANK];
    if (attr_int(n, "select_last_index", 0)) return tfl_refuse(t, n, "select_last_index");
    if (!op_axis(attr_int(n, "axis", 0), rank, &axis)) return tfl_refuse(t, n, "no axis");
    tfl_id x = tfl_in(t, n, 0, TFL_ROWS), at = tfl_ints(t, "axis", 1, (i64[]){axis});
    if (!x) return false;
    tfl_id y = tfl_out(t, n, 0, TFL_ROWS), to = y;
    u32 left = 0;
    for (u32 k = 0; k < rank; k++)
        if (k != axis) dim[left++] = tfl_at(t, x)->dim[k];
    if (attr_int(n, "keepdims", 1)) to = tfl_like(t, y, "index", left, dim);
    tfl_emit(t, (enum tfl_code)t->row(n->op)->code, to, 2, (tfl_id[]){x, at});
    tfl_options(t, str_is(n->op, "ArgMax") ? "ArgMax" : "ArgMin", "\"type\":\"INT64\"");
    if (to != y) tfl_reshape(t, to, rank, tfl_at(t, y)->dim, y);
    return true;
}

bool tfl_cumsum(struct tfl *t, const struct node *n)
{
    enum tfl_layout l = out_layout(t, n);
    u32 rank = rank_of(t, n->in.v[0]), axis = 0;
    if (attr_int(n, "product", 0)) return tfl_refuse(t, n, "products");
    if (!op_axis(attr_int(n, "axis", 0), rank, &axis)) return tfl_refuse(t, n, "no axis");
    tfl_id x = tfl_in(t, n, 0, l), at = tfl_int(t, "axis", tfl_axis(axis, rank, l));
    if (!x) return false;
    tfl_emit(t, TFL_CUMSUM, tfl_out(t, n, 0, l), 2, (tfl_id[]){x, at});
    tfl_options(t, "Cumsum", "\"exclusive\":%s,\"reverse\":%s",
                attr_int(n, "exclusive", 0) ? "true" : "false",
                attr_int(n, "reverse", 0) ? "true" : "false");
    return true;
}
