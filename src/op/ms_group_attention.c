// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: GroupQueryAttention, as exporters of decoders write it: fewer heads of keys and values, causal, a cache that may be longer
// than what is in it, rotated by position. A composite that uses ai.onnx's Attention and RotaryEmbedding.
#include "op/op_ms.h"

enum {
    G_Q, G_K, G_V, G_PAST_K, G_PAST_V, G_LAST, G_TOTAL, G_COS, G_SIN, G_IDS, G_SCORES, G_SINK, G_K_SCALE, G_V_SCALE,
    G_Q_NORM, G_K_NORM, G_VALID,
    G_MASK, /* quern's own, of a state: (b, keys), which are not 0 in caches and new keys that count */
};

/* total_sequence_length, if it is known. */
static bool known_total(struct graph *g, const struct node *nd, sym *total)
{
    i64 count;
    return op_has_in(nd, G_TOTAL) && op_sym_ints(g, nd->in.v[G_TOTAL], total, 1, &count) && count == 1;
}

/* New keys are rows behind all of the cache's: a state's. Every row counts, which is checked at run time (pass_state.c), or those of the mask. */
static bool appends(const struct node *nd) { return attr_int(nd, "quern_appends", 0) && op_has_in(nd, G_PAST_K); }

/* New rows are written within a cache whose rows are as many as its keys afterwards. A single sequence has no reason for rows that do not count. */
static bool group_appends(struct graph *g, node_id n, struct op_append *a)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, G_PAST_K) || op_has_in(nd, G_VALID) || !attr_int(nd, "causal", 1)) return false;
    sym total, past = op_in_shape(g, nd, G_PAST_K)->dim[MS_AT], all = sym_add(g->sym, past, op_in_shape(g, nd, G_Q)->dim[1]);
    i64 more;
    if (known_total(g, nd, &total) && sym_is_const(g->sym, sym_sub(g->sym, total, past), &more) && more <= 0) return false;
    *a = (struct op_append){.at = nd->in.v[G_LAST], .end = sym_sub(g->sym, all, ms_num(g, 1))};
    if (op_has_in(nd, G_TOTAL) && !known_total(g, nd, &total)) a->total = nd->in.v[G_TOTAL];
    a->takes_mask = op_in_shape(g, nd, G_Q)->dim[0] != ms_num(g, 1);
    return true;
}

/* Keys in the cache after this step: as declared by the model, or the cache's size plus the new ones. */
static sym keys_after(struct graph *g, const struct node *nd, sym past, sym s)
{
    sym total, all = sym_add(g->sym, past, s);
    i64 c;
    if (!op_has_in(nd, G_PAST_K)) return s;
    if (appends(nd) || !known_total(g, nd, &total)) return all;
    if (sym_is_const(g->sym, sym_sub(g->sym, total, past), &c)) return c > 0 ? total : past;
    return sym_max(g->sym, total, past);
}

/* total_sequence_length counts the new keys, and no more than there are. */
static bool total_ok(struct graph *g, node_id n, const struct ms_sizes *z, sym past, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    sym total, all = sym_add(g->sym, past, z->s);
    if (op_has_in(nd, G_TOTAL) && !op_require_equal(g, n, shape_count(g->sym, op_in_shape(g, nd, G_TOTAL)), ms_num(g, 1), e, "the elements of total_sequence_length (input %u) and 1", G_TOTAL))
        return false;
    if (!known_total(g, nd, &total)) return true;
    if (appends(nd)) return op_require_equal(g, n, total, all, e, "total_sequence_length (input %u) and the keys of the state's cache and the new ones", G_TOTAL);
    return op_require_at_least(g, n, all, total, e, "the keys of past_key and the new ones, beside total_sequence_length (input %u),", G_TOTAL) &&
           op_require_at_least(g, n, total, z->s, e, "total_sequence_length (input %u), beside the new keys,", G_TOTAL);
}

/* Queries, keys and values, apart or side by side; sets the sizes. */
static bool group_operands_ok(struct graph *g, node_id n, struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape q = *op_in_shape(g, nd, G_Q);
    bool apart = op_has_in(nd, G_K);
    z->b = q.dim[0], z->s = q.dim[1];
    if (apart != op_has_in(nd, G_V)) return op_invalid(e, g, n, "key (input %u) and value (input %u) belong together", G_K, G_V);
    if (!ms_split_ok(g, n, G_Q, 2, apart ? z->h : z->h + 2 * z->hk, &z->d, e)) return false;
    z->dv = z->d;
    sym columns = sym_mul(g->sym, ms_num(g, z->hk), z->d);
    const struct op_wanted key = {"key", "batch, positions of query, kv_num_heads * head size of query", 3, {z->b, z->s, columns}, 0},
                           value = {"value", "batch, positions of query, kv_num_heads * head size of query", 3, {z->b, z->s, columns}, 0};
    return op_require_shape(g, n, G_K, &key, e) && op_require_shape(g, n, G_V, &value, e);
}

/* Tables of the rotation; they have all positions that follow from the sizes. */
static bool tables_ok(struct graph *g, node_id n, const struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    sym total;
    i64 d, half;
    if (!attr_int(nd, "do_rotary", 0)) return true;
    if (!op_check_present(g, n, G_COS, e) || !op_check_present(g, n, G_SIN, e) || !op_check_rank(g, n, G_COS, 2, 2, e)) return false;
    const struct shape cos = *op_in_shape(g, nd, G_COS);
    const struct op_wanted sin = {"sin_cache", "positions, half of the rotated elements: as cos_cache", 2, {cos.dim[0], cos.dim[1]}, 0},
                           ids = {"position_ids", "batch, positions of query", 2, {z->b, z->s}, 3};
    if (!op_require_shape(g, n, G_SIN, &sin, e) || !op_require_shape(g, n, G_IDS, &ids, e)) return false;
    if (sym_is_const(g->sym, z->d, &d) && sym_is_const(g->sym, cos.dim[1], &half) && 2 * half > d)
        return op_invalid(e, g, n, "cos_cache (input %u) rotates %lld elements of heads of %lld", G_COS, (long long)(2 * half), (long long)d);
    if (!op_has_in(nd, G_PAST_K)) total = z->s;
    else if (appends(nd)) total = z->t;
    else if (!known_total(g, nd, &total)) return true;
    return op_has_in(nd, G_IDS) || op_require_at_least(g, n, cos.dim[0], total, e, "the positions that cos_cache (input %u) has, beside the keys,", G_COS);
}

static bool group_fits(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct ms_sizes z = {.h = attr_int(nd, "num_heads", 0), .hk = attr_int(nd, "kv_num_heads", 0)};
    sym past;
    if (!group_operands_ok(g, n, &z, e) || !ms_past_ok(g, n, G_PAST_K, &z, &past, e) || !total_ok(g, n, &z, past, e)) return false;
    z.t = keys_after(g, nd, past, z.s);
    if (!op_require_equal(g, n, shape_count(g->sym, op_in_shape(g, nd, G_LAST)), z.b, e, "the elements of seqlens_k (input %u) and the batch", G_LAST)) return false;
    const struct op_wanted sinks = {"head_sink", "num_heads", 1, {ms_num(g, z.h)}, 0}, q_norm = {"q_norm_weight", "head size", 1, {z.d}, 0},
                           k_norm = {"k_norm_weight", "head size", 1, {z.d}, 0}, mask = {"the mask of the state's keys", "batch, keys", 2, {z.b, z.t}, 0};
    return op_require_shape(g, n, G_MASK, &mask, e) && tables_ok(g, n, &z, e) && ms_bias_ok(g, n, G_SCORES, &z, e) && op_require_shape(g, n, G_SINK, &sinks, e) && op_require_shape(g, n, G_Q_NORM, &q_norm, e) &&
           op_require_shape(g, n, G_K_NORM, &k_norm, e);
}

static bool group_infer(struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"sliding_window_cache", "qk_output", NULL};
    static const char *const kinds[] = {"k_quant_type", "v_quant_type"};
    const struct node *nd = graph_node(g, n);
    i64 h = attr_int(nd, "num_heads", 0), hk = attr_int(nd, "kv_num_heads", 0);
    if (h < 1 || hk < 1 || h > INT32_MAX || h % hk)
        return op_invalid(e, g, n, "num_heads %lld is no multiple of kv_num_heads %lld", (long long)h, (long long)hk);
    if (!ms_refuse_attr(g, n, not_yet, e)) return false;
    for (u32 i = 0; i < 2; i++)
        if (!str_is(attr_str(nd, kinds[i], "NONE"), "NONE")) return op_unsupported(e, g, n, "a quantised cache ('%s')", kinds[i]);
    if (op_has_in(nd, G_MASK) && !appends(nd)) return op_unsupported(e, g, n, "input %u", G_MASK);
    if (ms_output(nd, 3)) return op_unsupported(e, g, n, "output 3 (scores)");
    if (op_has_in(nd, G_Q_NORM) != op_has_in(nd, G_K_NORM)) return op_invalid(e, g, n, "q_norm_weight (input %u) and k_norm_weight (input %u) belong together", G_Q_NORM, G_K_NORM);
    if (!op_check_float(g, n, G_Q, e) || !op_check_present(g, n, G_LAST, e)) return false;
    if (!dtype_is_int(op_in_dtype(g, nd, G_LAST))) return op_invalid(e, g, n, "seqlens_k (input %u) is of type %s, expected integers", G_LAST, dtype_name(op_in_dtype(g, nd, G_LAST)));
    for (u32 k = G_Q; k <= G_V; k++)
        if (!op_check_rank(g, n, k, 3, 3, e)) return false;
    return group_fits(g, n, e) && op_infer_expanded(g, n, e);
}

struct gqa {
    struct ms_att a;
    i64 hk;
    sym d, past;         /* of a head; keys that the cache has room for */
    value_id before;     /* i64 (b): keys that were there before these */
};

/* Number of keys before this step in each batch: last + 1 minus the new ones, none for a first
   prompt, padded or not. */
static value_id keys_before(struct gqa *q)
{
    struct graph *g = q->a.g;
    node_id n = q->a.n;
    const struct shape s = *op_in_shape(g, &q->a.nd, G_LAST);
    value_id last = op_node_cast(g, n, q->a.nd.in.v[G_LAST], DT_I64, 0), now = op_node_input(&q->a.nd, G_VALID);
    if (s.rank != 1) last = op_node_reshape(g, n, last, 1, &q->a.b, 0); /* (b, 1) is written, too */
    now = now ? op_node_cast(g, n, now, DT_I64, 0) : op_sym_scalar(g, DT_I64, q->a.s);
    last = op_node2(g, n, "Sub", op_node_binf(g, n, "Add", last, DT_I64, 1, 0), now, 0);
    return op_node_binf(g, n, "Max", last, DT_I64, 0, 0);
}

/* The cache (b, hk, p, d) with the new keys (b, hk, s, d) inserted after each batch's own: (b, hk,
   t, d). */
static value_id cached(struct gqa *q, value_id past, value_id now, value_id out)
{
    struct graph *g = q->a.g;
    node_id n = q->a.n;
    const i64 column = 1, last = 2;
    if (!past) return out ? op_node1(g, n, "Identity", now, out) : now;
    value_id both = op_node_swap(g, n, op_node_concat(g, n, 2, (value_id[]){past, now}, MS_AT, 0), 4, 1, 2, 0);
    value_id j = op_node_range(g, n, DT_I64, q->a.t, 0), from = op_node_axes(g, n, "Unsqueeze", q->before, &column, 1, 0);
    value_id ahead = op_node2(g, n, "Sub", j, from, 0); /* (b, t): position among the new ones */
    value_id ends = op_node2(g, n, "Less", ahead, op_sym_scalar(g, DT_I64, q->a.s), 0);
    value_id is_new = op_node2(g, n, "And", op_node_binf(g, n, "GreaterOrEqual", ahead, DT_I64, 0, 0), ends, 0);
    value_id new_at = op_node2(g, n, "Add", ahead, op_sym_scalar(g, DT_I64, q->past), 0);
    value_id at = op_node_axes(g, n, "Unsqueeze", op_node_where(g, n, is_new, new_at, j, 0), &last, 1, 0);
    value_id y = op_node2(g, n, "GatherND", both, at, 0);
    attr_set_int(g, op_made(g, y), "batch_dims", 1);
    return op_node_swap(g, n, y, 4, 1, 2, out);
}

/* Queries or keys with h heads, normalised and rotated by the attributes. */
static value_id rotated(struct gqa *q, value_id x, u32 norm, value_id ids)
{
    const struct node *nd = &q->a.nd;
    double eps = attr_float(nd, norm == G_Q_NORM ? "q_norm_epsilon" : "k_norm_epsilon", attr_float(nd, "qk_norm_epsilon", 1e-6));
    return ms_rotated(&q->a, ms_normalised(&q->a, x, norm, eps), G_COS, ids);
}

/* Of queries in a state whose mask leaves keys out: the last one that counts is at the position of seqlens_k, those before and behind it follow
   by the mask. */
static value_id counted_positions(struct gqa *q)
{
    struct graph *g = q->a.g;
    node_id n = q->a.n;
    const i64 column = 1;
    value_id mask = q->a.nd.in.v[G_MASK], axis = op_const_i(g, DT_I64, &column, 1);
    const struct shape s = *op_in_shape(g, &q->a.nd, G_MASK);
    value_id now = op_node_slice(g, n, op_node_cast(g, n, mask, DT_I64, 0), &s, 1, q->past, q->a.s, 0);
    value_id last = op_node_reshape(g, n, op_node_cast(g, n, q->a.nd.in.v[G_LAST], DT_I64, 0), 2, (const sym[]){q->a.b, ms_num(g, 1)}, 0);
    value_id before = op_node2(g, n, "Sub", last, op_node_axes(g, n, "ReduceSum", now, &column, 1, 0), 0);
    return op_node_binf(g, n, "Max", op_node2(g, n, "Add", before, op_node2(g, n, "CumSum", now, axis, 0), 0), DT_I64, 0, 0);
}

/* Positions of the queries, (b, s); 0: no rotation. */
static value_id positions(struct gqa *q)
{
    struct graph *g = q->a.g;
    const i64 column = 1;
    const sym dim[] = {q->a.b, q->a.s};
    if (!attr_int(&q->a.nd, "do_rotary", 0)) return 0;
    if (op_has_in(&q->a.nd, G_IDS)) return op_node_expand(g, q->a.n, q->a.nd.in.v[G_IDS], 2, dim, 0);
    if (op_has_in(&q->a.nd, G_MASK)) return counted_positions(q);
    value_id from = op_node_axes(g, q->a.n, "Unsqueeze", q->before, &column, 1, 0);
    return op_node2(g, q->a.n, "Add", from, op_node_range(g, q->a.n, DT_I64, q->a.s, 0), 0);
}

static void split_qkv(struct gqa *q)
{
    struct graph *g = q->a.g;
    const struct shape s = *op_in_shape(g, &q->a.nd, G_Q);
    struct ms_att *a = &q->a;
    a->b = s.dim[0], a->s = s.dim[1];
    if (op_has_in(&a->nd, G_K)) {
        q->d = sym_div(g->sym, s.dim[2], ms_num(g, a->h));
        a->q = ms_by_heads(a, a->nd.in.v[G_Q], a->s, a->h, q->d);
        a->k = ms_by_heads(a, a->nd.in.v[G_K], op_in_shape(g, &a->nd, G_K)->dim[1], q->hk, q->d);
        a->v = ms_by_heads(a, a->nd.in.v[G_V], op_in_shape(g, &a->nd, G_V)->dim[1], q->hk, q->d);
        return;
    }
    q->d = sym_div(g->sym, s.dim[2], ms_num(g, a->h + 2 * q->hk));
    sym wide = sym_mul(g->sym, ms_num(g, a->h), q->d), narrow = sym_mul(g->sym, ms_num(g, q->hk), q->d);
    value_id x = a->nd.in.v[G_Q];
    a->q = ms_by_heads(a, op_node_slice(g, a->n, x, &s, 2, ms_num(g, 0), wide, 0), a->s, a->h, q->d);
    a->k = ms_by_heads(a, op_node_slice(g, a->n, x, &s, 2, wide, narrow, 0), a->s, q->hk, q->d);
    a->v = ms_by_heads(a, op_node_slice(g, a->n, x, &s, 2, sym_add(g->sym, wide, narrow), narrow, 0), a->s, q->hk, q->d);
}

static value_id group_band(struct gqa *q)
{
    struct graph *g = q->a.g;
    i64 window = attr_int(&q->a.nd, "local_window_size", -1);
    if (!attr_int(&q->a.nd, "causal", 1)) {
        value_id last = op_node_reshape(g, q->a.n, q->a.nd.in.v[G_LAST], 1, &q->a.b, 0);
        return ms_below(&q->a, op_node_binf(g, q->a.n, "Add", op_node_cast(g, q->a.n, last, DT_I64, 0), DT_I64, 1, 0), false);
    }
    value_id v = op_node1(g, q->a.n, "quern::Band", q->before, 0);
    const sym size[] = {q->a.s, q->a.t}, zero = ms_num(g, 0);
    op_set_syms(g, op_made(g, v), "size", size, 2);
    op_set_syms(g, op_made(g, v), "offset", &zero, 1);
    attr_set_int(g, op_made(g, v), "left", window > 0 ? window - 1 : -1);
    attr_set_int(g, op_made(g, v), "right", 0);
    return v;
}

/* Whether new keys follow all of the cache's, in every sequence: of a prompt, of a state's cache, and of a single sequence whose total length
   is known to be the cache's and theirs. */
static bool is_appended(struct gqa *q)
{
    struct graph *g = q->a.g;
    const struct node *nd = &q->a.nd;
    sym total;
    if (!attr_int(nd, "causal", 1) || op_has_in(nd, G_VALID)) return false;
    if (!op_has_in(nd, G_PAST_K) || appends(nd)) return true;
    return q->a.b == ms_num(g, 1) && known_total(g, nd, &total) && total == sym_add(g->sym, q->past, q->a.s);
}

/* Of a state's mask: (b, 1, s, t), keys that are fewer than so many counted ones in front of the query. */
static value_id counted_window(struct gqa *q, i64 window)
{
    struct graph *g = q->a.g;
    node_id n = q->a.n;
    const i64 column = 1, keys[] = {1, 2}, queries[] = {1, 3};
    value_id at = op_node2(g, n, "CumSum", op_node_cast(g, n, q->a.nd.in.v[G_MASK], DT_I64, 0), op_const_i(g, DT_I64, &column, 1), 0);
    const struct shape s = *op_in_shape(g, &q->a.nd, G_MASK);
    value_id now = op_node_slice(g, n, at, &s, 1, q->past, q->a.s, 0), first = op_node_binf(g, n, "Sub", now, DT_I64, (double)window, 0);
    return op_node2(g, n, "Greater", op_node_axes(g, n, "Unsqueeze", at, keys, 2, 0), op_node_axes(g, n, "Unsqueeze", first, queries, 2, 0), 0);
}

/* Attention appends them, and knows without data where they are. A window is of keys that count. */
static void append(struct gqa *q)
{
    struct ms_att *a = &q->a;
    i64 window = attr_int(&a->nd, "local_window_size", -1);
    a->past_k = op_node_input(&a->nd, G_PAST_K), a->past_v = op_node_input(&a->nd, G_PAST_V);
    a->present_k = ms_output(&a->nd, 1), a->present_v = ms_output(&a->nd, 2);
    a->causal = true;
    if (!op_has_in(&a->nd, G_MASK)) {
        a->left = window > 0 ? window - 1 : -1;
        return;
    }
    const i64 axes[] = {1, 2};
    value_id mask = a->nd.in.v[G_MASK], counts = op_node_binf(a->g, a->n, "Greater", mask, op_in_dtype(a->g, &a->nd, G_MASK), 0, 0);
    a->allowed = op_node_axes(a->g, a->n, "Unsqueeze", counts, axes, 2, 0);
    if (window > 0) a->allowed = op_node2(a->g, a->n, "And", a->allowed, counted_window(q, window), 0);
}

static void insert(struct gqa *q)
{
    struct ms_att *a = &q->a;
    a->k = cached(q, op_node_input(&a->nd, G_PAST_K), a->k, ms_output(&a->nd, 1));
    a->v = cached(q, op_node_input(&a->nd, G_PAST_V), a->v, ms_output(&a->nd, 2));
    a->allowed = group_band(q);
}

static bool group_expand(struct graph *g, node_id n, struct err *e)
{
    struct gqa q = {.hk = 0};
    struct ms_att *a = &q.a;
    ms_start(a, g, n);
    q.hk = attr_int(&a->nd, "kv_num_heads", 0);
    a->type = op_in_dtype(g, &a->nd, G_Q);
    split_qkv(&q);
    a->dv = q.d;
    q.past = op_has_in(&a->nd, G_PAST_K) ? op_in_shape(g, &a->nd, G_PAST_K)->dim[MS_AT] : ms_num(g, 0);
    a->t = keys_after(g, &a->nd, q.past, a->s);
    bool appended = is_appended(&q);
    q.before = appended ? op_node_expand(g, n, op_sym_scalar(g, DT_I64, q.past), 1, &a->b, 0) : keys_before(&q);
    value_id ids = positions(&q);
    a->q = rotated(&q, a->q, G_Q_NORM, ids);
    a->k = rotated(&q, a->k, G_K_NORM, ids);
    if (appended) append(&q);
    else insert(&q);
    ms_add_bias(a, G_SCORES);
    ms_add_sink(a, G_SINK);
    a->y3 = a->nd.out.v[0];
    ms_attend(a);
    return true;
}

static void random_group(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 2), s = rng_range(r, 1, 3), hk = rng_range(r, 1, 2), h = hk * rng_range(r, 1, 2),
        d = 2 * rng_range(r, 1, 2), p = rng_range(r, 1, 3), last = p + s - 1;
    bool past = rng_range(r, 0, 1), packed = rng_range(r, 0, 1), rotary = rng_range(r, 0, 1);
    value_id in[12] = {0};
    random_input(g, "q", DT_F32, 3, (i64[]){b, s, packed ? (h + 2 * hk) * d : h * d}, &in[G_Q]);
    if (!packed) random_input(g, "k", DT_F32, 3, (i64[]){b, s, hk * d}, &in[G_K]);
    if (!packed) random_input(g, "v", DT_F32, 3, (i64[]){b, s, hk * d}, &in[G_V]);
    if (past) random_input(g, "pk", DT_F32, 4, (i64[]){b, hk, p, d}, &in[G_PAST_K]);
    if (past) random_input(g, "pv", DT_F32, 4, (i64[]){b, hk, p, d}, &in[G_PAST_V]);
    in[G_LAST] = random_const(g, DT_I32, 1, &b, (double)(s - 1), (double)(past ? last : s - 1), r);
    i64 total = past ? p + s : s;
    in[G_TOTAL] = op_const_i(g, DT_I32, &total, 1);
    if (rotary) random_input(g, "cos", DT_F32, 2, (i64[]){8, d / 2}, &in[G_COS]);
    if (rotary) random_input(g, "sin", DT_F32, 2, (i64[]){8, d / 2}, &in[G_SIN]);
    if (rng_range(r, 0, 3) == 0) random_input(g, "sink", DT_F32, 1, &h, &in[G_SINK]);
    node_id n = random_node(g, self, 12, in, 3);
    attr_set_int(g, n, "num_heads", h), attr_set_int(g, n, "kv_num_heads", hk);
    attr_set_int(g, n, "do_rotary", rotary);
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "local_window_size", rng_range(r, 1, 3));
    if (rng_range(r, 0, 3) == 0) attr_set_float(g, n, "softcap", 2);
}

static const struct op ops[] = {
    {.name = "com.microsoft::GroupQueryAttention", .min_in = 1, .max_in = G_MASK + 1, .min_out = 1, .max_out = 4, .infer = group_infer, .expand = group_expand,
     .appends = group_appends, .random = random_group},
};

const struct op_family op_ms_group_attention = {ops, countof(ops)};
