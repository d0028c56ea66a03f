// SPDX-License-Identifier: Apache-2.0
//
// com.microsoft: PagedAttention. Keys and values are in pages that sequences own in any order; a table names the pages of each. New tokens of all sequences
// are one behind the other, without padding. Dimensions:
//
//   t  tokens, of all sequences     b  sequences    m  pages that a sequence may have
//   n  pages of the caches          p  positions of a page
//   h  heads, hk of keys and values, of d elements
//
//   query (t, h*d)   caches (n, p, hk, d)   cumulative_sequence_length (b + 1)   past_seqlens (b)   block_table (b, m)
//
// A composite. A token's slot is where the table says, or slot_mapping, and the updated caches are the old ones with the new rows in their slots
// (quern::ScatterRows), in place in a state. Attention is that of queries (b, h, most tokens of a sequence, d), padded by a sequence's last one,
// and of the keys on the pages that the table names, as many as the longest sequence has: both sizes depend on data. Values behind a
// sequence's end are taken as 0, as nothing is known of what is in memory there.
//
// Lengths and tables are data: they are read and compared with the caches before a run computes anything of these sizes.
#include "op/op_ms.h"

enum {
    P_Q, P_K, P_V, P_K_CACHE, P_V_CACHE, P_CUMULATIVE, P_PAST, P_TABLE, P_COS, P_SIN, P_SLOTS, P_SINK, P_Q_NORM, P_K_NORM, P_K_SCALE, P_V_SCALE,
    P_METADATA, /* bounds for launches: not needed */
    N_IN
};

/* Checks. */

static bool heads_ok(struct graph *g, node_id n, struct ms_sizes *z, sym tokens, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    bool apart = op_has_in(nd, P_K);
    if (apart != op_has_in(nd, P_V)) return op_invalid(e, g, n, "key (input %u) and value (input %u) belong together", P_K, P_V);
    if (!ms_split_ok(g, n, P_Q, 1, apart ? z->h : z->h + 2 * z->hk, &z->d, e)) return false;
    sym columns = sym_mul(g->sym, ms_num(g, z->hk), z->d);
    const struct op_wanted key = {"key", "tokens, kv_num_heads * head size of query", 2, {tokens, columns}, 0},
                           value = {"value", "tokens, kv_num_heads * head size of query", 2, {tokens, columns}, 0};
    return op_require_shape(g, n, P_K, &key, e) && op_require_shape(g, n, P_V, &value, e);
}

static bool caches_ok(struct graph *g, node_id n, const struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape s = *op_in_shape(g, nd, P_K_CACHE);
    const struct op_wanted keys = {"key_cache", "pages, positions of a page, kv_num_heads, head size of query", 4, {0, 0, ms_num(g, z->hk), z->d}, 0},
                           values = {"value_cache", "as key_cache", 4, {s.dim[0], s.dim[1], s.dim[2], s.dim[3]}, 0};
    for (u32 k = P_K_CACHE; k <= P_V_CACHE; k++)
        if (op_in_dtype(g, nd, k) != op_in_dtype(g, nd, P_Q))
            return op_unsupported(e, g, n, "a cache (input %u) of type %s with queries of %s", k, dtype_name(op_in_dtype(g, nd, k)), dtype_name(op_in_dtype(g, nd, P_Q)));
    return op_require_shape(g, n, P_K_CACHE, &keys, e) && op_require_shape(g, n, P_V_CACHE, &values, e);
}

static bool lengths_ok(struct graph *g, node_id n, sym tokens, sym *batch, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    *batch = op_in_shape(g, nd, P_TABLE)->dim[0];
    const struct op_wanted cumulative = {"cumulative_sequence_length", "sequences + 1", 1, {sym_add(g->sym, *batch, ms_num(g, 1))}, 0},
                           past = {"past_seqlens", "sequences, as block_table", 1, {*batch}, 0}, slots = {"slot_mapping", "tokens", 1, {tokens}, 0};
    static const u8 integers[] = {P_CUMULATIVE, P_PAST, P_TABLE, P_SLOTS};
    for (u32 k = 0; k < countof(integers); k++)
        if (op_has_in(nd, integers[k]) && !dtype_is_int(op_in_dtype(g, nd, integers[k])))
            return op_invalid(e, g, n, "input %u of type %s, expected integers", integers[k], dtype_name(op_in_dtype(g, nd, integers[k])));
    return op_require_shape(g, n, P_CUMULATIVE, &cumulative, e) && op_require_shape(g, n, P_PAST, &past, e) && op_require_shape(g, n, P_SLOTS, &slots, e);
}

static bool tables_ok(struct graph *g, node_id n, const struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    i64 d, half;
    if (!attr_int(nd, "do_rotary", 0)) return true;
    if (!op_check_present(g, n, P_COS, e) || !op_check_present(g, n, P_SIN, e) || !op_check_rank(g, n, P_COS, 2, 2, e)) return false;
    const struct shape cos = *op_in_shape(g, nd, P_COS);
    const struct op_wanted sin = {"sin_cache", "as cos_cache", 2, {cos.dim[0], cos.dim[1]}, 0};
    if (sym_is_const(g->sym, z->d, &d) && sym_is_const(g->sym, cos.dim[1], &half) && 2 * half > d)
        return op_invalid(e, g, n, "cos_cache (input %u) rotates %lld elements of heads of %lld", P_COS, (long long)(2 * half), (long long)d);
    return op_require_shape(g, n, P_SIN, &sin, e);
}

static bool others_ok(struct graph *g, node_id n, const struct ms_sizes *z, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct op_wanted sinks = {"head_sink", "num_heads", 1, {ms_num(g, z->h)}, 0}, q_norm = {"q_norm_weight", "head size", 1, {z->d}, 0},
                           k_norm = {"k_norm_weight", "head size", 1, {z->d}, 0};
    if (op_has_in(nd, P_Q_NORM) != op_has_in(nd, P_K_NORM)) return op_invalid(e, g, n, "q_norm_weight (input %u) and k_norm_weight (input %u) belong together", P_Q_NORM, P_K_NORM);
    for (u32 k = P_COS; k < N_IN; k++)
        if (k != P_SLOTS && k != P_METADATA && !op_check_float(g, n, k, e)) return false;
    return op_require_shape(g, n, P_SINK, &sinks, e) && op_require_shape(g, n, P_Q_NORM, &q_norm, e) && op_require_shape(g, n, P_K_NORM, &k_norm, e);
}

static bool inputs_are_there(const struct graph *g, node_id n, struct err *e)
{
    for (u32 k = P_K_CACHE; k <= P_TABLE; k++)
        if (!op_check_present(g, n, k, e)) return false;
    return op_check_rank(g, n, P_Q, 2, 2, e) && op_check_rank(g, n, P_K_CACHE, 4, 4, e) && op_check_rank(g, n, P_TABLE, 2, 2, e);
}

static bool attributes_ok(const struct graph *g, node_id n, struct err *e)
{
    static const char *const not_yet[] = {"rotary_offset", NULL};
    static const char *const kinds[] = {"k_quant_type", "v_quant_type"};
    const struct node *nd = graph_node(g, n);
    i64 h = attr_int(nd, "num_heads", 0), hk = attr_int(nd, "kv_num_heads", 0), window = attr_int(nd, "local_window_size", -1);
    if (h < 1 || hk < 1 || h > INT32_MAX || h % hk) return op_invalid(e, g, n, "num_heads %lld is no multiple of kv_num_heads %lld", (long long)h, (long long)hk);
    if (window < -1 || window == 0 || window > INT32_MAX) return op_invalid(e, g, n, "local_window_size %lld, expected -1 or at least 1", (long long)window);
    if (!str_is(attr_str(nd, "kv_cache_layout", "SEPARATE"), "SEPARATE")) return op_unsupported(e, g, n, "kv_cache_layout '%.*s'", STR_ARG(attr_str(nd, "kv_cache_layout", "")));
    for (u32 i = 0; i < 2; i++)
        if (!str_is(attr_str(nd, kinds[i], "NONE"), "NONE") || op_has_in(nd, P_K_SCALE + i)) return op_unsupported(e, g, n, "a quantised cache ('%s')", kinds[i]);
    return ms_refuse_attr(g, n, not_yet, e);
}

static bool paged_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    struct ms_sizes z = {.h = attr_int(nd, "num_heads", 0), .hk = attr_int(nd, "kv_num_heads", 0)};
    if (!attributes_ok(g, n, e) || !inputs_are_there(g, n, e) || !op_check_float(g, n, P_Q, e)) return false;
    const sym tokens = op_in_shape(g, nd, P_Q)->dim[0];
    if (!heads_ok(g, n, &z, tokens, e) || !caches_ok(g, n, &z, e) || !lengths_ok(g, n, tokens, &z.b, e) || !tables_ok(g, n, &z, e) || !others_ok(g, n, &z, e)) return false;
    if (!op_require_at_least(g, n, tokens, ms_num(g, 1), e, "the tokens of query (input %u)", P_Q)) return false;
    const struct shape y = {.known = true, .rank = 2, .dim = {tokens, sym_mul(g->sym, ms_num(g, z.h), z.d)}}, cache = *op_in_shape(g, nd, P_K_CACHE);
    enum dtype t = op_in_dtype(g, nd, P_Q);
    op_set_out(g, n, 0, t, &y);
    op_set_out(g, n, 1, t, &cache);
    op_set_out(g, n, 2, t, &cache);
    return true;
}

/* Expansion. Integers are i64. */

struct paged {
    struct ms_att a;
    struct graph *g;
    node_id n;
    i64 hk;
    sym tokens, pages, page, most_pages, d; /* t, n, p, m, d */
    value_id starts, lengths, past, total;  /* (b) */
    value_id sequence, at;                  /* (t): a token's sequence, its position there */
    value_id table;                         /* (b, m), 0 where a sequence has no page */
    sym longest;                            /* keys of a sequence, at most */
    sym end;                                /* t, as it was read from cumulative_sequence_length */
};

static value_id number(const struct paged *p, sym s) { return op_sym_scalar(p->g, DT_I64, s); }
static value_id two(const struct paged *p, const char *op, value_id a, value_id b) { return op_node2(p->g, p->n, op, a, b, 0); }
static value_id with(const struct paged *p, const char *op, value_id a, i64 b) { return op_node_binf(p->g, p->n, op, a, DT_I64, (double)b, 0); }
static value_id integers(const struct paged *p, u32 k) { return op_node_cast(p->g, p->n, p->a.nd.in.v[k], DT_I64, 0); }
static value_id unsqueezed(const struct paged *p, value_id x, i64 axis) { return op_node_axes(p->g, p->n, "Unsqueeze", x, &axis, 1, 0); }
static value_id upto(const struct paged *p, sym n) { return op_node_range(p->g, p->n, DT_I64, n, 0); }
static value_id gathered(const struct paged *p, value_id x, value_id at) { return op_node_gather(p->g, p->n, x, at, 0, 0); }

/* The first element of a vector, or with a reduction the least or largest of a value, as a size of at most so much; 0: of any. Layers have the same ones,
   which are known by the value's name. */
static sym size_of(struct paged *p, value_id v, const char *reduction, u32 rank, struct str what, sym most)
{
    struct graph *g = p->g;
    const i64 axes[] = {0, 1};
    for (u32 k = 0; k < g->made.n; k++)
        if (g->made.v[k].v && g->made.v[k].most == most && str_eq(graph_value(g, g->made.v[k].v)->name, what)) return sym_var(g->sym, g->sym->var.v[g->made.v[k].var]);
    value_id x = graph_add_value(g, what);
    if (reduction) op_node_axes(g, p->n, reduction, v, axes, rank, x);
    else op_node1(g, p->n, "Identity", v, x);
    node_id at = g->at;
    g->at = p->n; /* errors name this node */
    sym s = op_size_of(g, x, 0, x, most);
    g->at = at;
    op_size_keep(g, s);
    return s;
}

/* "shortest sequence by 'cumulative' and 'past'": all inputs that it depends on */
static struct str named(const struct paged *p, const char *what, u32 n_inputs, const u32 *input)
{
    struct buf b = {0};
    buf_z(&b, what);
    for (u32 i = 0; i < n_inputs; i++) {
        struct str name = graph_value(p->g, p->a.nd.in.v[input[i]])->name;
        buf_printf(&b, "%s%.*s", i == 0 ? " " : i == 1 ? " by " : ", ", STR_ARG(name));
    }
    struct str s = str_dup(p->g->arena, buf_view(&b));
    buf_release(&b);
    return s;
}

static void read_lengths(struct paged *p)
{
    static const u32 cumulative[] = {P_CUMULATIVE}, past[] = {P_PAST, P_CUMULATIVE};
    struct graph *g = p->g;
    value_id all = integers(p, P_CUMULATIVE);
    const struct shape s = {.known = true, .rank = 1, .dim = {sym_add(g->sym, p->a.b, ms_num(g, 1))}};
    value_id ends = op_node_slice(g, p->n, all, &s, 0, ms_num(g, 1), p->a.b, 0), last = op_node_slice(g, p->n, all, &s, 0, p->a.b, ms_num(g, 1), 0);
    p->starts = op_node_slice(g, p->n, all, &s, 0, ms_num(g, 0), p->a.b, 0);
    p->lengths = two(p, "Sub", ends, p->starts);
    p->past = integers(p, P_PAST);
    p->total = two(p, "Add", p->past, p->lengths);
    value_id first = op_node_slice(g, p->n, all, &s, 0, ms_num(g, 0), ms_num(g, 1), 0);
    size_of(p, first, NULL, 1, named(p, "first element of", 1, cumulative), ms_num(g, 0));
    p->end = size_of(p, last, NULL, 1, named(p, "last element of", 1, cumulative), p->tokens);
    op_must_equal(g, p->n, p->end, p->tokens);
    size_of(p, p->lengths, "ReduceMin", 1, named(p, "shortest sequence of", 1, cumulative), 0);
    size_of(p, p->past, "ReduceMin", 1, named(p, "least element of", 1, past), 0);
    size_of(p, p->past, "ReduceMax", 1, named(p, "largest element of", 1, past), sym_mul(g->sym, p->most_pages, p->page)); /* sums with lengths do not overflow */
    p->a.s = size_of(p, p->lengths, "ReduceMax", 1, named(p, "longest sequence of", 1, cumulative), p->tokens);
    op_size_usual(g, p->a.s, sym_cdiv(g->sym, p->tokens, p->a.b));
    p->longest = size_of(p, p->total, "ReduceMax", 1, named(p, "longest sequence of", 2, past), sym_mul(g->sym, p->most_pages, p->page));
    if (attr_int(&p->a.nd, "do_rotary", 0)) (void)op_must(g, p->n, FACT_AT_LEAST, op_in_shape(g, &p->a.nd, P_COS)->dim[0], p->longest);
}

/* Pages behind a sequence's last position may be anything. */
static void read_table(struct paged *p)
{
    static const u32 table_by[] = {P_TABLE, P_PAST, P_CUMULATIVE};
    struct graph *g = p->g;
    struct str least = str_fmt(g->arena, "least page of %.*s positions of", STR_ARG(op_size_text(g, p->page)));
    struct str largest = str_fmt(g->arena, "largest page of %.*s positions of", STR_ARG(op_size_text(g, p->page)));
    value_id table = integers(p, P_TABLE), reached = two(p, "Mul", upto(p, p->most_pages), number(p, p->page));
    value_id is_used = two(p, "Less", unsqueezed(p, reached, 0), unsqueezed(p, p->total, 1));
    p->table = op_node_where(g, p->n, is_used, table, op_const_f(g, DT_I64, 0), 0);
    size_of(p, p->table, "ReduceMin", 2, named(p, least.p, 3, table_by), 0);
    size_of(p, p->table, "ReduceMax", 2, named(p, largest.p, 3, table_by), sym_sub(g->sym, p->pages, ms_num(g, 1)));
}

/* A token belongs to the sequence in front of whose end it is. */
static void place_tokens(struct paged *p)
{
    const i64 column = 1;
    value_id token = upto(p, p->tokens), ends = two(p, "Add", p->starts, p->lengths);
    value_id is_behind = two(p, "LessOrEqual", unsqueezed(p, ends, 0), unsqueezed(p, token, 1));
    p->sequence = op_node_axes(p->g, p->n, "ReduceSum", op_node_cast(p->g, p->n, is_behind, DT_I64, 0), &column, 1, 0);
    attr_set_int(p->g, op_made(p->g, p->sequence), "keepdims", 0);
    p->at = two(p, "Sub", token, gathered(p, p->starts, p->sequence));
}

/* Operands, (1, heads, t, d). */

static value_id by_heads(struct paged *p, value_id x, i64 heads)
{
    const sym dim[] = {ms_num(p->g, 1), p->tokens, ms_num(p->g, heads), p->d};
    return op_node_swap(p->g, p->n, op_node_reshape(p->g, p->n, x, 4, dim, 0), 4, 1, 2, 0);
}

static value_id part_of(struct paged *p, i64 first, i64 heads)
{
    const struct shape s = *op_in_shape(p->g, &p->a.nd, P_Q);
    sym from = sym_mul(p->g->sym, ms_num(p->g, first), p->d), size = sym_mul(p->g->sym, ms_num(p->g, heads), p->d);
    return by_heads(p, op_node_slice(p->g, p->n, p->a.nd.in.v[P_Q], &s, 1, from, size, 0), heads);
}

static void split_tokens(struct paged *p)
{
    struct ms_att *a = &p->a;
    bool apart = op_has_in(&a->nd, P_K);
    a->q = apart ? by_heads(p, a->nd.in.v[P_Q], a->h) : part_of(p, 0, a->h);
    a->k = apart ? by_heads(p, a->nd.in.v[P_K], p->hk) : part_of(p, a->h, p->hk);
    a->v = apart ? by_heads(p, a->nd.in.v[P_V], p->hk) : part_of(p, a->h + p->hk, p->hk);
    double eps = attr_float(&a->nd, "qk_norm_epsilon", 1e-6);
    value_id ids = attr_int(&a->nd, "do_rotary", 0) ? unsqueezed(p, two(p, "Add", p->at, gathered(p, p->past, p->sequence)), 0) : 0;
    a->q = ms_rotated(a, ms_normalised(a, a->q, P_Q_NORM, eps), P_COS, ids);
    a->k = ms_rotated(a, ms_normalised(a, a->k, P_K_NORM, eps), P_COS, ids);
}

/* (1, heads, t, d) -> (t, heads, d) */
static value_id rows(const struct paged *p, value_id x, i64 heads)
{
    return op_node_reshape(p->g, p->n, op_node_swap(p->g, p->n, x, 4, 1, 2, 0), 3, (const sym[]){p->tokens, ms_num(p->g, heads), p->d}, 0);
}

/* Caches. */

/* Of each token, the position in its cache as n*p rows, or -1. */
static value_id slots(struct paged *p)
{
    static const u32 mapping[] = {P_SLOTS};
    struct graph *g = p->g;
    value_id page = number(p, p->page);
    if (op_has_in(&p->a.nd, P_SLOTS)) {
        value_id v = integers(p, P_SLOTS);
        size_of(p, with(p, "Add", v, 1), "ReduceMin", 1, named(p, "1 more than the least element of", 1, mapping), 0);
        size_of(p, with(p, "Add", v, 1), "ReduceMax", 1, named(p, "1 more than the largest element of", 1, mapping), sym_mul(g->sym, p->pages, p->page));
        return v;
    }
    value_id position = two(p, "Add", p->at, gathered(p, p->past, p->sequence)), row = two(p, "Mul", p->sequence, number(p, p->most_pages));
    value_id flat = op_node_reshape(g, p->n, p->table, 1, (const sym[]){sym_mul(g->sym, p->a.b, p->most_pages)}, 0);
    value_id at = gathered(p, flat, two(p, "Add", row, two(p, "Div", position, page)));
    return two(p, "Add", two(p, "Mul", at, page), two(p, "Mod", position, page));
}

/* A cache with the tokens' rows; out 0: not an output. The number of rows is data, so that all such sizes have been checked before a cache is written. */
static value_id updated(struct paged *p, value_id cache, value_id slots, value_id x, value_id out)
{
    value_id in[] = {cache, slots, gathered(p, rows(p, x, p->hk), upto(p, p->end))}, y = op_node(p->g, p->n, "quern::ScatterRows", 3, in, out);
    attr_set_int(p->g, op_made(p->g, y), "axes", 2);
    return y;
}

/* The first n pages of each sequence, 0 behind its end: a table of its own, as tasks do not know that the given one has as many. No page is negative (read_table). */
static value_id first_pages(struct paged *p, sym n)
{
    struct graph *g = p->g;
    const sym none = ms_num(g, 0), more = sym_max(g->sym, sym_sub(g->sym, n, p->most_pages), none);
    const struct shape s = {.known = true, .rank = 2, .dim = {p->a.b, sym_add(g->sym, p->most_pages, more)}};
    value_id all = op_node2(g, p->n, "quern::Pad", p->table, op_const_f(g, DT_I64, 0), 0);
    op_set_syms(g, op_made(g, all), "before", (const sym[]){none, none}, 2);
    op_set_syms(g, op_made(g, all), "after", (const sym[]){none, more}, 2);
    return with(p, "Max", op_node_slice(g, p->n, all, &s, 1, none, n, 0), 0);
}

/* (b, hk, keys, d) */
static value_id keys_of(struct paged *p, value_id cache, value_id pages)
{
    struct graph *g = p->g;
    value_id x = gathered(p, cache, pages); /* (b, pages, p, hk, d) */
    x = op_node_reshape(g, p->n, x, 4, (const sym[]){p->a.b, p->a.t, ms_num(g, p->hk), p->d}, 0);
    return op_node_swap(g, p->n, x, 4, 1, 2, 0);
}

/* (b, 1, keys, 1): positions that a sequence has */
static value_id is_there(struct paged *p) { return op_node_swap(p->g, p->n, ms_below(&p->a, p->total, false), 4, 2, 3, 0); }

static void read_caches(struct paged *p)
{
    struct ms_att *a = &p->a;
    value_id at = gathered(p, slots(p), upto(p, p->end));
    value_id k = updated(p, a->nd.in.v[P_K_CACHE], at, a->k, ms_output(&a->nd, 1)), v = updated(p, a->nd.in.v[P_V_CACHE], at, a->v, ms_output(&a->nd, 2));
    value_id pages = first_pages(p, sym_div(p->g->sym, a->t, p->page));
    a->k = keys_of(p, k, pages);
    a->v = op_node_where(p->g, p->n, is_there(p), keys_of(p, v, pages), op_const_f(p->g, a->type, 0), 0);
}

/* Attention. */

/* Queries of each sequence, (b, h, most, d): behind its end the last one again. */
static value_id padded(struct paged *p)
{
    struct graph *g = p->g;
    value_id most = with(p, "Max", with(p, "Sub", p->lengths, 1), 0), at = two(p, "Min", unsqueezed(p, upto(p, p->a.s), 0), unsqueezed(p, most, 1));
    at = two(p, "Min", two(p, "Add", at, unsqueezed(p, p->starts, 1)), number(p, sym_sub(g->sym, p->tokens, ms_num(g, 1)))); /* sequences without tokens, at the end */
    return op_node_swap(g, p->n, gathered(p, rows(p, p->a.q, p->a.h), at), 4, 1, 2, 0);
}

static value_id band(struct paged *p, value_id from, i64 left, i64 right)
{
    const sym size[] = {p->a.s, p->a.t}, zero = ms_num(p->g, 0);
    value_id v = op_node1(p->g, p->n, "quern::Band", from, 0);
    op_set_syms(p->g, op_made(p->g, v), "size", size, 2);
    op_set_syms(p->g, op_made(p->g, v), "offset", &zero, 1);
    attr_set_int(p->g, op_made(p->g, v), "left", left);
    attr_set_int(p->g, op_made(p->g, v), "right", right);
    return v;
}

static value_id allowed(struct paged *p)
{
    i64 window = attr_int(&p->a.nd, "local_window_size", -1), left = window > 0 ? window - 1 : -1;
    if (attr_int(&p->a.nd, "is_causal", 1)) return band(p, p->past, left, 0);
    value_id there = ms_below(&p->a, p->total, false);
    return left < 0 ? there : two(p, "And", band(p, p->past, left, -1), there);
}

/* Rows of the tokens of (b, most, h*d). */
static void unpad(struct paged *p, value_id y)
{
    struct graph *g = p->g;
    const sym dim[] = {sym_mul(g->sym, p->a.b, p->a.s), sym_mul(g->sym, ms_num(g, p->a.h), p->d)};
    value_id at = two(p, "Add", two(p, "Mul", p->sequence, number(p, p->a.s)), p->at);
    op_node_gather(g, p->n, op_node_reshape(g, p->n, y, 2, dim, 0), at, 0, ms_output(&p->a.nd, 0));
}

static void open_paged(struct paged *p, struct graph *g, node_id n)
{
    struct ms_att *a = &p->a;
    ms_start(a, g, n);
    p->g = g, p->n = n;
    const struct shape q = *op_in_shape(g, &a->nd, P_Q), cache = *op_in_shape(g, &a->nd, P_K_CACHE), table = *op_in_shape(g, &a->nd, P_TABLE);
    p->hk = attr_int(&a->nd, "kv_num_heads", 0);
    p->tokens = q.dim[0], p->pages = cache.dim[0], p->page = cache.dim[1], p->d = cache.dim[3];
    a->b = table.dim[0], p->most_pages = table.dim[1];
    a->dv = p->d;
    a->type = op_in_dtype(g, &a->nd, P_Q);
}

static bool paged_expand(struct graph *g, node_id n, struct err *e)
{
    struct paged p = {.hk = 0};
    struct ms_att *a = &p.a;
    open_paged(&p, g, n);
    read_lengths(&p);
    sym less = sym_sub(g->sym, p.page, ms_num(g, 1));
    a->t = sym_mul(g->sym, sym_div(g->sym, sym_add(g->sym, p.longest, less), p.page), p.page);
    read_table(&p);
    place_tokens(&p);
    split_tokens(&p);
    read_caches(&p);
    a->q = padded(&p);
    a->allowed = allowed(&p);
    ms_add_sink(a, P_SINK);
    unpad(&p, ms_attend(a));
    return true;
}

/* Random instances: lengths and tables are constants. */

static value_id random_table(struct graph *g, struct rng *r, i64 b, i64 m, i64 n)
{
    i64 v[16];
    for (i64 i = 0; i < b * m; i++) v[i] = rng_range(r, 0, n - 1);
    struct tensor *t = tensor_new(g->arena, DT_I32, 2, (i64[]){b, m});
    for (i64 i = 0; i < n && i < b * m; i++) v[i] = i;
    for (i64 i = b * m - 1; i > 0; i--) {
        i64 j = rng_range(r, 0, i), old = v[i];
        v[i] = v[j], v[j] = old;
    }
    for (i64 i = 0; i < b * m; i++) elem_set_i64(DT_I32, t->data, i, v[i]);
    return graph_add_const(g, S("table"), t);
}

static void random_paged(const struct op *self, struct graph *g, struct rng *r)
{
    i64 b = rng_range(r, 1, 3), m = rng_range(r, 1, 3), size = rng_range(r, 1, 4), hk = rng_range(r, 1, 2), h = hk * rng_range(r, 1, 2), d = 2 * rng_range(r, 1, 2),
        n = b * m + rng_range(r, 0, 2), ends[4] = {0}, past[3];
    bool is_packed = rng_range(r, 0, 1), is_rotary = rng_range(r, 0, 1);
    value_id in[P_SINK + 1] = {0};
    for (i64 i = 0; i < b; i++) {
        i64 new = rng_range(r, i == 0, i64_min(3, m * size));
        past[i] = rng_range(r, 0, m * size - new);
        ends[i + 1] = ends[i] + new;
    }
    i64 t = ends[b];
    random_input(g, "q", DT_F32, 2, (i64[]){t, is_packed ? (h + 2 * hk) * d : h * d}, &in[P_Q]);
    if (!is_packed) random_input(g, "k", DT_F32, 2, (i64[]){t, hk * d}, &in[P_K]);
    if (!is_packed) random_input(g, "v", DT_F32, 2, (i64[]){t, hk * d}, &in[P_V]);
    random_input(g, "key_cache", DT_F32, 4, (i64[]){n, size, hk, d}, &in[P_K_CACHE]);
    random_input(g, "value_cache", DT_F32, 4, (i64[]){n, size, hk, d}, &in[P_V_CACHE]);
    in[P_CUMULATIVE] = op_const_i(g, DT_I32, ends, b + 1), in[P_PAST] = op_const_i(g, DT_I32, past, b);
    in[P_TABLE] = random_table(g, r, b, m, n);
    if (is_rotary) random_input(g, "cos", DT_F32, 2, (i64[]){12, d / 2}, &in[P_COS]);
    if (is_rotary) random_input(g, "sin", DT_F32, 2, (i64[]){12, d / 2}, &in[P_SIN]);
    if (rng_range(r, 0, 3) == 0) random_input(g, "sink", DT_F32, 1, &h, &in[P_SINK]);
    node_id x = random_node(g, self, P_SINK + 1, in, rng_range(r, 0, 1) ? 3 : 1);
    attr_set_int(g, x, "num_heads", h), attr_set_int(g, x, "kv_num_heads", hk);
    attr_set_int(g, x, "do_rotary", is_rotary);
    if (rng_range(r, 0, 3) == 0) attr_set_int(g, x, "is_causal", 0);
    if (rng_range(r, 0, 1)) attr_set_int(g, x, "local_window_size", rng_range(r, 1, 3));
    if (rng_range(r, 0, 3) == 0) attr_set_float(g, x, "softcap", 2);
}

static bool paged_updates(const struct graph *g, const struct node *n, u32 k, u32 *in)
{
    *in = P_K_CACHE + k - 1;
    return k > 0;
}

static const struct op ops[] = {
    {.name = "com.microsoft::PagedAttention", .min_in = 1, .max_in = N_IN, .min_out = 1, .max_out = 3, .infer = paged_infer, .expand = paged_expand, .updates = paged_updates,
     .random = random_paged},
};

const struct op_family op_ms_paged_attention = {ops, countof(ops)};
