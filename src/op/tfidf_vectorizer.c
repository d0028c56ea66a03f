// SPDX-License-Identifier: Apache-2.0
//
// TfIdfVectorizer of integers, a composite: the number of occurrences of each n-gram of a pool in each row of x (l) or (b, l) -> y (k) or
// (b, k). The words of an n-gram have a distance in x of 1 to max_skip_count + 1; 1-grams have none. Every n-gram is compared with every
// position of the row, which is padded with a number that is not in the pool; then the counts are permuted to the order of ngram_indexes.
// Modes: TF the count, IDF the weight if the count is positive, TFIDF their product. Strings are rejected.
#include "op/op.h"

enum { MAX_GRAM = 64, MAX_SKIP = 64, MAX_OUT = 1 << 22 };

struct grams {
    const i64 *pool, *count, *index; /* index: element of y, for each n-gram */
    i64 n_pool, n_count, n_index, least, most, skip, n_out, outside; /* outside: a number that is not in the pool */
    const struct attr *weight;       /* NULL: none */
};

/* Where the n-grams of length n begin in the pool. */
static i64 begin_of(const struct grams *s, i64 n) { return n <= s->n_count ? s->count[n - 1] : s->n_pool; }
static i64 number_of(const struct grams *s, i64 n) { return (begin_of(s, n + 1) - begin_of(s, n)) / n; }

/* A number below or above all of the pool. */
static bool find_outside(struct grams *s)
{
    i64 lo = 0, hi = 0;
    for (i64 k = 0; k < s->n_pool; k++) lo = i64_min(lo, s->pool[k]), hi = i64_max(hi, s->pool[k]);
    s->outside = lo > INT64_MIN ? lo - 1 : hi < INT64_MAX ? hi + 1 : 0;
    return lo > INT64_MIN || hi < INT64_MAX;
}

static bool read_pool(const struct graph *g, node_id n, struct grams *s, struct err *e)
{
    i64 total = 0;
    for (i64 k = 1; k <= s->n_count; k++) {
        i64 from = begin_of(s, k), to = begin_of(s, k + 1);
        if (from < 0 || to < from || to > s->n_pool || (to - from) % k || (k == 1 && from))
            return op_invalid(e, g, n, "ngram_counts do not divide the pool of %lld into n-grams", (long long)s->n_pool);
        total += (to - from) / k;
    }
    if (total != s->n_index) return op_invalid(e, g, n, "%lld n-grams and %lld ngram_indexes", (long long)total, (long long)s->n_index);
    for (i64 k = 0; k < s->n_index; k++) {
        if (s->index[k] < 0 || s->index[k] >= MAX_OUT) return op_unsupported(e, g, n, "ngram_indexes %lld", (long long)s->index[k]);
        s->n_out = i64_max(s->n_out, s->index[k] + 1);
    }
    return find_outside(s) || op_unsupported(e, g, n, "a pool with the smallest and the largest integer");
}

static bool read_grams(const struct graph *g, node_id n, struct grams *s, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    *s = (struct grams){.least = attr_int(nd, "min_gram_length", 0), .most = attr_int(nd, "max_gram_length", 0),
                        .skip = attr_int(nd, "max_skip_count", -1), .weight = node_attr(nd, "weights")};
    struct str mode = attr_str(nd, "mode", "");
    if (node_attr(nd, "pool_strings")) return op_unsupported(e, g, n, "strings are not supported; number the words before the network");
    s->n_pool = attr_ints(nd, "pool_int64s", &s->pool);
    s->n_count = attr_ints(nd, "ngram_counts", &s->count);
    s->n_index = attr_ints(nd, "ngram_indexes", &s->index);
    if (!str_is(mode, "TF") && !str_is(mode, "IDF") && !str_is(mode, "TFIDF")) return op_invalid(e, g, n, "mode '%.*s'", STR_ARG(mode));
    if (s->least < 1 || s->most < s->least || s->most > MAX_GRAM || s->skip < 0 || s->skip > MAX_SKIP || s->n_count > MAX_GRAM || s->n_index < 1)
        return op_unsupported(e, g, n, "%lld to %lld words of an n-gram, skipping %lld (up to %d words, skipping %d)", (long long)s->least,
                              (long long)s->most, (long long)s->skip, MAX_GRAM, MAX_SKIP);
    if (!read_pool(g, n, s, e)) return false;
    if (s->weight && (s->weight->kind != ATTR_FLOATS || s->weight->n != s->n_index))
        return op_invalid(e, g, n, "%lld weights of %lld n-grams", (long long)s->weight->n, (long long)s->n_index);
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct grams s;
    enum dtype t = op_in_dtype(g, graph_node(g, n), 0);
    if (t != DT_I32 && t != DT_I64) return op_unsupported(e, g, n, "type %s, expected i32 or i64", dtype_name(t));
    return op_check_rank(g, n, 0, 1, 2, e) && read_grams(g, n, &s, e) && op_infer_expanded(g, n, e);
}

static value_id ints(struct graph *g, i64 n, const i64 *v, i64 step, u32 rank)
{
    i64 dim[3] = {1, 1, 1};
    dim[rank ? rank - 1 : 0] = n;
    struct tensor *t = tensor_new(g->arena, DT_I64, rank, dim);
    for (i64 k = 0; k < n; k++) elem_set_i64(DT_I64, t->data, k, v[k * step]);
    return graph_add_const(g, S("words"), t);
}

/* How often each n-gram of `length` words that far apart occurs, (b, g); x: (b, l). */
static value_id occurrences(struct graph *g, node_id n, const struct grams *s, value_id x, const sym dim[2], i64 length, i64 apart)
{
    struct symtab *st = g->sym;
    i64 grams = number_of(s, length), reach = (length - 1) * apart, pads[4] = {0, 0, 0, reach}, axis = 1;
    struct shape wide = {.known = true, .rank = 2, .dim = {dim[0], sym_add(st, dim[1], sym_const(st, reach))}};
    value_id all = 0, from = x;
    if (reach) from = op_node(g, n, "Pad", 3, (value_id[]){x, op_const_i(g, DT_I64, pads, 4), ints(g, 1, &s->outside, 1, 0)}, 0);
    for (i64 k = 0; k < length; k++) {
        value_id at = reach ? op_node_slice(g, n, from, &wide, 1, sym_const(st, k * apart), dim[1], 0) : from;
        at = op_node_reshape(g, n, at, 3, (sym[]){dim[0], dim[1], sym_const(st, 1)}, 0);
        at = op_node2(g, n, "Equal", at, ints(g, grams, s->pool + begin_of(s, length) + k, length, 3), 0);
        all = all ? op_node2(g, n, "And", all, at, 0) : at;
    }
    all = op_node_axes(g, n, "ReduceSum", op_node_cast(g, n, all, DT_F32, 0), &axis, 1, 0);
    return op_node_reshape(g, n, all, 2, (sym[]){dim[0], sym_const(st, grams)}, 0);
}

/* Counts of the n-grams in the order of y; 0 for entries without an n-gram. */
static value_id ordered(struct graph *g, node_id n, const struct grams *s, value_id *part, u32 n_part, const i64 *number, i64 count, sym b)
{
    i64 *at = arena_array(g->arena, i64, s->n_out);
    for (i64 k = 0; k < s->n_out; k++) at[k] = count;
    for (i64 k = 0; k < count; k++) at[s->index[number[k]]] = k;
    part[n_part] = op_node_expand(g, n, op_const_f(g, DT_F32, 0), 2, (sym[]){b, sym_const(g->sym, 1)}, 0);
    value_id all = op_node_concat(g, n, n_part + 1, part, 1, 0);
    return op_node_gather(g, n, all, ints(g, s->n_out, at, 1, 1), 1, 0);
}

static value_id weighted(struct graph *g, node_id n, const struct grams *s, value_id y)
{
    struct str mode = attr_str(graph_node(g, n), "mode", "");
    if (str_is(mode, "IDF")) y = op_node_cast(g, n, op_node_binf(g, n, "Greater", y, DT_F32, 0, 0), DT_F32, 0);
    if (str_is(mode, "TF") || !s->weight) return y;
    struct tensor *w = tensor_new(g->arena, DT_F32, 1, &s->n_out);
    for (i64 k = 0; k < s->n_index; k++) elem_set_f64(DT_F32, w->data, s->index[k], s->weight->floats[k]);
    return op_node2(g, n, "Mul", y, graph_add_const(g, S("weights"), w), 0);
}

/* Elements of y are those of different n-grams. */
static bool indexes_differ(const struct grams *s, struct arena *a)
{
    bool *seen = arena_array(a, bool, s->n_out);
    for (i64 k = 0; k < s->n_index; k++) {
        if (seen[s->index[k]]) return false;
        seen[s->index[k]] = true;
    }
    return true;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    struct grams s;
    if (!read_grams(g, n, &s, e)) return false;
    if (!indexes_differ(&s, g->arena)) return op_unsupported(e, g, n, "several n-grams with the same of ngram_indexes");
    const struct node nd = *graph_node(g, n);
    const struct shape x = *op_in_shape(g, &nd, 0);
    sym dim[2] = {x.rank == 2 ? x.dim[0] : sym_const(g->sym, 1), x.dim[x.rank - 1]}, out[2] = {dim[0], sym_const(g->sym, s.n_out)};
    value_id in = op_node_reshape(g, n, op_as(g, n, nd.in.v[0], DT_I64), 2, dim, 0), part[MAX_GRAM + 1], y;
    i64 *number = arena_array(g->arena, i64, s.n_index + 1), count = 0, first = 0;
    u32 n_part = 0;
    for (i64 length = 1; length <= s.n_count; first += number_of(&s, length), length++) {
        i64 grams = number_of(&s, length);
        if (length < s.least || length > s.most || !grams) continue;
        value_id sum = 0;
        for (i64 apart = 1; apart <= (length == 1 ? 1 : s.skip + 1); apart++) {
            value_id once = occurrences(g, n, &s, in, dim, length, apart);
            sum = sum ? op_node2(g, n, "Add", sum, once, 0) : once;
        }
        for (i64 k = 0; k < grams; k++) number[count++] = first + k;
        part[n_part++] = sum;
    }
    y = weighted(g, n, &s, ordered(g, n, &s, part, n_part, number, count, dim[0]));
    op_node_reshape(g, n, y, x.rank, x.rank == 2 ? out : out + 1, nd.out.v[0]);
    return true;
}

/* A pool of words 0..3, some n-grams of lengths 1 to 3. */
static void random_grams(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const modes[] = {"TF", "IDF", "TFIDF"};
    i64 dim[2] = {rng_range(r, 1, 3), rng_range(r, 1, 9)}, number[3] = {rng_range(r, 0, 2), rng_range(r, 0, 3), rng_range(r, 1, 2)};
    i64 pool[32], count[3], index[8], words = 0, grams = 0, least = rng_range(r, 1, 3);
    for (i64 n = 1; n <= 3; n++) {
        count[n - 1] = words, grams += number[n - 1];
        for (i64 k = 0; k < n * number[n - 1]; k++) pool[words++] = rng_range(r, -1, 1);
    }
    for (i64 k = 0; k < grams; k++) index[k] = (k + 2) % grams;
    u32 rank = (u32)rng_range(r, 1, 2);
    value_id x;
    random_input(g, "x", rng_range(r, 0, 1) ? DT_I32 : DT_I64, rank, dim, &x);
    node_id n = random_node(g, self, 1, &x, 1);
    struct attr w = {.name = S("weights"), .kind = ATTR_FLOATS, .n = grams, .floats = arena_array(g->arena, double, grams)};
    for (i64 k = 0; k < grams; k++) w.floats[k] = 0.5 * (double)rng_range(r, 1, 8);
    if (rng_range(r, 0, 1)) attr_copy(g, n, &w);
    attr_set_str(g, n, "mode", str_of(modes[rng_range(r, 0, 2)]));
    attr_set_ints(g, n, "pool_int64s", pool, words), attr_set_ints(g, n, "ngram_counts", count, 3), attr_set_ints(g, n, "ngram_indexes", index, grams);
    attr_set_int(g, n, "min_gram_length", least), attr_set_int(g, n, "max_gram_length", rng_range(r, least, 3));
    attr_set_int(g, n, "max_skip_count", rng_range(r, 0, 2));
}

static const struct op ops[] = {
    {.name = "TfIdfVectorizer", .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1, .infer = infer, .expand = expand, .random = random_grams},
};

const struct op_family op_tfidf_vectorizer = {ops, countof(ops)};
