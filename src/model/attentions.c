// SPDX-License-Identifier: Apache-2.0
//
// The attentions of a network, as it was imported, for given sizes: softmax(softcap(q k^T scale) + mask) v. Equal ones are counted. As in contractions.c,
// products that are joined by a softmax are an attention whoever wrote them (task/attention.c), one operator or a chain. From the second product back to
// the first one, the chain says what is done to a score:
//
//   values <- views, rows set to 0 <- exponential / sum <- score - maximum <- masks <- softcap <- scale <- scores
//
// and from the first product back, the operands say which of their scales and repetitions belong to the attention.
#include "model/model.h"

#include "op/op.h"
#include "task/task.h"

#include <math.h>

struct known_mask { value_id v; bool polarity; i64 queries, keys; struct model_mask m; };

struct search {
    struct model_expanded x;
    struct arena *a;
    bool *is_data;         /* per value: depends on inputs of the network */
    struct map seen;       /* text of an attention -> number of the entry */
    struct { struct known_mask *v; u32 n, cap; } known; /* layers share their masks */
    struct model_attention_list *out;
};

struct chain {
    struct search *s;
    struct attention_pair pair;
    bool *is_score;        /* per value: depends on the scores, in front of the second product */
    struct value_list path; /* probabilities, under several names */
    double factor[2];      /* of a score: behind the softcap, in front of it */
    struct value_list mask; /* in the order of the walk */
    struct { bool *v; u32 n, cap; } polarity; /* per mask */
    value_id softmax;      /* its input; 0: not found */
    bool has_tanh;
    struct model_attention *to;
};

static const struct graph *graph_of(const struct chain *c) { return &c->s->x.g; }

static const struct node *made_by(const struct graph *g, value_id v)
{
    node_id n = v ? graph_value(g, v)->producer : 0;
    return n ? graph_node(g, n) : NULL;
}

static bool is_op(const struct node *x, const char *op) { return x && str_is(x->op, op); }

/* Elements stay what they are. */
static bool is_plain_view(const struct graph *g, const struct node *x)
{
    return x && x->in.n == 1 && (is_op(x, "Identity") || is_op(x, "Cast") || (op_of(g, graph_value(g, x->out.v[0])->producer)->props & OP_VIEW));
}

/* And keys remain the last axis. */
static bool is_row_view(const struct graph *g, const struct node *x)
{
    const i64 *perm;
    i64 n = is_op(x, "Transpose") ? attr_ints(x, "perm", &perm) : 0;
    return is_plain_view(g, x) && (!is_op(x, "Transpose") || (n && perm[n - 1] == n - 1));
}

static struct model_masks masks_of(const struct chain *c)
{
    return (struct model_masks){.x = &c->s->x, .is_data = c->s->is_data, .queries = c->to->queries, .keys = c->to->keys};
}

static bool number_of(const struct chain *c, value_id v, double *f)
{
    struct model_masks k = masks_of(c);
    return !c->is_score[v] && model_number(&k, v, f);
}

/* The one input of two that depends on the scores, 0 or 1; 2: both or none. */
static u32 score_side(const struct chain *c, const struct node *x, u32 first)
{
    bool a = c->is_score[x->in.v[first]], b = c->is_score[x->in.v[first + 1]];
    return a == b ? 2 : a ? 0 : 1;
}

/* From the probabilities to the softmax's input. */

/* Views, and rows without any key that become 0. */
static value_id behind_views(struct chain *c, value_id v, bool keep)
{
    for (;;) {
        const struct node *x = made_by(graph_of(c), v);
        double zero = 1;
        if (keep) *arr_push(c->s->a, &c->path) = v;
        if (is_row_view(graph_of(c), x)) v = x->in.v[0];
        else if (is_op(x, "Where")) {
            u32 side = score_side(c, x, 1);
            if (side == 2 || !number_of(c, x->in.v[2 - side], &zero) || zero != 0) return v;
            v = x->in.v[1 + side];
        } else return v;
    }
}

static bool is_reduction(const struct chain *c, value_id v, enum kir_op combine, struct op_reduce *r)
{
    node_id n = graph_value(graph_of(c), v)->producer;
    return n && op_of(graph_of(c), n)->reduce && op_of(graph_of(c), n)->reduce(graph_of(c), graph_node(graph_of(c), n), r) && r->combine == combine;
}

static bool is_reduced(struct chain *c, value_id v, enum kir_op combine, value_id of)
{
    struct op_reduce r;
    v = behind_views(c, v, false);
    return is_reduction(c, v, combine, &r) && behind_views(c, made_by(graph_of(c), v)->in.v[0], false) == behind_views(c, of, false);
}

/* p = exp / sum, in either spelling: the exponential, and the sum. */
static bool find_quotient(struct chain *c, value_id p, value_id *exp, value_id *sum)
{
    const struct node *x = made_by(graph_of(c), p);
    if (!is_op(x, "Div") && !is_op(x, "Mul")) return false;
    for (u32 i = 0; i < 2; i++) {
        *exp = behind_views(c, x->in.v[i], false), *sum = behind_views(c, x->in.v[1 - i], false);
        if (!is_op(made_by(graph_of(c), *exp), "Exp")) continue;
        if (is_op(x, "Div")) return i == 0;
        const struct node *r = made_by(graph_of(c), *sum);
        if (is_op(r, "Reciprocal")) return *sum = r->in.v[0], true;
        double one = 0;
        if (is_op(r, "Div") && number_of(c, r->in.v[0], &one) && one == 1) return *sum = r->in.v[1], true;
    }
    return false;
}

static void find_softmax(struct chain *c)
{
    value_id p = behind_views(c, graph_node(graph_of(c), c->pair.values)->in.v[0], true), exp, sum;
    if (!find_quotient(c, p, &exp, &sum)) return;
    const struct node *x = made_by(graph_of(c), exp), *d = made_by(graph_of(c), x->in.v[0]);
    c->softmax = is_op(d, "Sub") ? d->in.v[0] : x->in.v[0];
    c->to->is_other |= !is_reduced(c, sum, KI_ADD, exp); /* sinks are one more term */
    if (is_op(d, "Sub")) c->to->is_other |= !is_reduced(c, d->in.v[1], KI_MAX, c->softmax);
}

/* From there to the scores. */

static void add_mask(struct chain *c, value_id v, bool polarity)
{
    *arr_push(c->s->a, &c->mask) = v;
    *arr_push(c->s->a, &c->polarity) = polarity;
}

static bool step_where(struct chain *c, const struct node *x, value_id *v)
{
    u32 side = score_side(c, x, 1);
    double lowest;
    if (side == 2 || c->is_score[x->in.v[0]] || !number_of(c, x->in.v[2 - side], &lowest) || lowest > -1e4) return false;
    add_mask(c, x->in.v[0], side == 0);
    return *v = x->in.v[1 + side], true;
}

static bool step_binary(struct chain *c, const struct node *x, value_id *v)
{
    u32 side = score_side(c, x, 0);
    double f;
    if (side == 2 || (side == 1 && is_op(x, "Div"))) return false;
    if (is_op(x, "Add")) add_mask(c, x->in.v[1 - side], true);
    else if (!number_of(c, x->in.v[1 - side], &f)) return false;
    else c->factor[c->has_tanh] *= is_op(x, "Div") ? 1 / f : f;
    return *v = x->in.v[side], true;
}

static bool step(struct chain *c, value_id *v)
{
    const struct node *x = made_by(graph_of(c), *v);
    if (is_row_view(graph_of(c), x)) return *v = x->in.v[0], true;
    if (is_op(x, "Where")) return step_where(c, x, v);
    if (is_op(x, "Add") || is_op(x, "Mul") || is_op(x, "Div")) return step_binary(c, x, v);
    if (!is_op(x, "Tanh") || c->has_tanh || c->mask.n > 1) return false;
    return c->has_tanh = true, *v = x->in.v[0], true;
}

static void walk_scores(struct chain *c)
{
    value_id v = c->softmax, scores = node_first_out(graph_node(graph_of(c), c->pair.scores));
    c->factor[0] = c->factor[1] = 1;
    while (v != scores && step(c, &v)) {}
    c->to->is_other |= v != scores;
    c->to->softcap = c->has_tanh ? c->factor[0] : 0;
    c->to->scale = c->factor[0] * c->factor[1];
}

/* Operands. */

/* Back through views and scales; v's heads may be repetitions of fewer. */
struct operand { double scale; i64 repeats, batch, heads; };

static bool dims_of(const struct search *s, value_id v, i64 dim[MAX_RANK]) { return shape_eval(s->x.g.sym, &graph_value(&s->x.g, v)->shape, s->x.var, dim); }

static i64 count_of(const struct search *s, value_id v)
{
    i64 dim[MAX_RANK], n = 1;
    if (!dims_of(s, v, dim)) return 0;
    for (u32 i = 0; i < graph_value(&s->x.g, v)->shape.rank; i++) n *= dim[i];
    return n;
}

/* (batch, heads, ..): what a product of rank 3 has as one. */
static void see_heads(const struct search *s, value_id v, struct operand *o)
{
    i64 dim[MAX_RANK];
    if (o->batch || graph_value(&s->x.g, v)->shape.rank != 4 || !dims_of(s, v, dim)) return;
    o->batch = dim[0], o->heads = dim[1];
}

static bool is_scaled(const struct chain *c, const struct node *x, value_id *v, double *scale)
{
    struct model_masks k = masks_of(c);
    double f;
    for (u32 i = 0; i < 2; i++) {
        if ((i == 1 && is_op(x, "Div")) || c->s->is_data[x->in.v[1 - i]] || !model_number(&k, x->in.v[1 - i], &f)) continue;
        *scale *= is_op(x, "Div") ? 1 / f : f;
        return *v = x->in.v[i], true;
    }
    return false;
}

static struct operand walk_operand(const struct chain *c, value_id v)
{
    const struct graph *g = graph_of(c);
    struct operand o = {.scale = 1, .repeats = 1};
    for (;;) {
        const struct node *x = made_by(g, v);
        see_heads(c->s, v, &o);
        if ((is_op(x, "Mul") || is_op(x, "Div")) && is_scaled(c, x, &v, &o.scale)) continue;
        if (!is_plain_view(g, x)) return o;
        i64 n = count_of(c->s, v), from = count_of(c->s, x->in.v[0]);
        if (n < from || !from || n % from) return o; /* a part of a larger value, of queries, keys and values, or of all heads */
        o.repeats *= n / from;
        v = x->in.v[0];
    }
}

/* Sizes. */

static i64 product(const i64 *dim, u32 from, u32 to)
{
    i64 n = 1;
    for (u32 i = from; i < to; i++) n *= dim[i];
    return n;
}

static bool read_sizes(struct chain *c)
{
    const struct search *s = c->s;
    const struct graph *g = &s->x.g;
    struct model_attention *to = c->to;
    const struct node *first = graph_node(g, c->pair.scores), *second = graph_node(g, c->pair.values);
    i64 q[MAX_RANK], k[MAX_RANK], x[MAX_RANK], y[MAX_RANK];
    u32 rq = op_in_shape(g, first, 0)->rank, rx = graph_value(g, first->out.v[0])->shape.rank, ry = graph_value(g, second->out.v[0])->shape.rank;
    if (!dims_of(s, first->in.v[0], q) || !dims_of(s, first->in.v[1], k) || !dims_of(s, first->out.v[0], x) || !dims_of(s, second->out.v[0], y)) return false;
    if (rq < 2 || rx < 2 || ry < 2) return false;
    to->type = op_in_dtype(g, first, 0);
    to->queries = x[rx - 2], to->keys = x[rx - 1], to->head_size = q[rq - 1], to->value_size = y[ry - 1];
    i64 rows = product(x, 0, rx - 1), soft[MAX_RANK];
    u32 rs = c->softmax ? graph_value(g, c->softmax)->shape.rank : 0;
    to->batch = rx >= 4 ? x[0] : 1;
    if (rs >= 2 && dims_of(s, c->softmax, soft) && soft[rs - 2] > 0 && rows % (to->batch * soft[rs - 2]) == 0) to->queries = soft[rs - 2];
    to->heads = rows / i64_max(1, to->batch * to->queries);
    return rows > 0 && to->keys > 0;
}

static void read_operands(struct chain *c)
{
    const struct graph *g = graph_of(c);
    struct model_attention *to = c->to;
    const struct node *first = graph_node(g, c->pair.scores);
    struct operand q = walk_operand(c, first->in.v[0]), k = walk_operand(c, first->in.v[1]);
    u32 rank = graph_value(g, first->out.v[0])->shape.rank, rk = op_in_shape(g, first, 1)->rank;
    i64 dim[MAX_RANK] = {0};
    dims_of(c->s, first->in.v[1], dim);
    to->scale *= q.scale * k.scale;
    if (rank == 3 && q.batch > 0 && q.batch * q.heads == to->heads) to->batch = q.batch, to->heads = q.heads;
    to->key_heads = rk < 3 ? 1 : rank == 3 ? dim[0] / to->batch : product(dim, rk == rank, rk - 2);
    if (k.repeats > 1 && to->key_heads % k.repeats == 0) to->key_heads /= k.repeats;
}

/* The sum over queries of the probabilities, which some attentions keep: a reader of them reduces the axis in front of the last one. */
static bool has_sums(const struct chain *c)
{
    const struct graph *g = graph_of(c);
    for (node_id n = 1; n < g->node.n; n++) {
        struct op_reduce r;
        const struct node *x = graph_node(g, n);
        if (x->dead || !op_of(g, n)->reduce || !op_of(g, n)->reduce(g, x, &r) || r.combine != KI_ADD || r.n_axes != 1) continue;
        for (u32 i = 0; i < c->path.n; i++)
            if (c->path.v[i] == x->in.v[0] && r.axis[0] + 2 == op_in_shape(g, x, 0)->rank) return true;
    }
    return false;
}

/* Masks. */

static struct model_mask mask_of(const struct chain *c, u32 i)
{
    struct search *s = c->s;
    struct model_masks k = masks_of(c);
    struct known_mask x = {c->mask.v[i], c->polarity.v[i], k.queries, k.keys, {.left = MODEL_UNBOUNDED, .right = MODEL_UNBOUNDED}};
    for (u32 j = 0; j < s->known.n; j++) {
        const struct known_mask *o = &s->known.v[j];
        if (o->v == x.v && o->polarity == x.polarity && o->queries == x.queries && o->keys == x.keys) return o->m;
    }
    model_mask_add(&x.m, &k, x.v, x.polarity);
    *arr_push(s->a, &s->known) = x;
    return x.m;
}

static void read_masks(struct chain *c)
{
    struct model_mask *m = &c->to->mask;
    for (u32 i = 0; i < c->mask.n; i++) {
        struct model_mask x = mask_of(c, i);
        m->left = i64_min(m->left, x.left), m->right = i64_min(m->right, x.right);
        m->is_more |= x.is_more, m->has_bias |= x.has_bias;
    }
}

/* All. */

static void find_scores(struct chain *c)
{
    const struct graph *g = graph_of(c);
    c->is_score = arena_array(c->s->a, bool, g->value.n);
    c->is_score[node_first_out(graph_node(g, c->pair.scores))] = true;
    for (node_id n = c->pair.scores + 1; n < c->pair.values; n++) {
        const struct node *x = graph_node(g, n);
        bool is = false;
        for (u32 i = 0; i < x->in.n; i++) is |= c->is_score[x->in.v[i]];
        for (u32 i = 0; i < x->out.n; i++) c->is_score[x->out.v[i]] |= is && x->out.v[i];
    }
}

static void find_data(struct search *s)
{
    const struct graph *g = &s->x.g;
    s->is_data = arena_array(s->a, bool, g->value.n);
    for (u32 i = 0; i < g->input.n; i++) s->is_data[g->input.v[i]] = true;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead) continue;
        bool is = op_of(g, n)->props & (OP_RANDOM | OP_CALL);
        for (u32 i = 0; i < x->in.n; i++) is |= s->is_data[x->in.v[i]];
        for (u32 i = 0; i < x->out.n; i++) s->is_data[x->out.v[i]] |= is && x->out.v[i];
    }
}

static bool describe(struct search *s, struct attention_pair pair, struct model_attention *to)
{
    const struct node *from = graph_node(&s->x.m->graph, model_origin(&s->x, pair.scores));
    struct chain c = {.s = s, .pair = pair, .to = to};
    *to = (struct model_attention){.op = from->op, .node = from->name, .count = 1, .scale = 1, .mask = {.left = MODEL_UNBOUNDED, .right = MODEL_UNBOUNDED}};
    find_scores(&c);
    find_softmax(&c);
    if (!read_sizes(&c)) return false;
    if (c.softmax) walk_scores(&c);
    to->is_other |= !c.softmax;
    read_operands(&c);
    read_masks(&c);
    to->has_sums = has_sums(&c);
    return true;
}

static void add(struct search *s, const struct model_attention *x)
{
    struct str key = str_fmt(s->a, "%.*s %s %lld %lld %lld %lld %lld %lld %lld %.6g %.6g %lld %lld %d%d%d%d", STR_ARG(x->op), dtype_name(x->type), (long long)x->batch,
                             (long long)x->heads, (long long)x->key_heads, (long long)x->queries, (long long)x->keys, (long long)x->head_size,
                             (long long)x->value_size, x->scale, x->softcap, (long long)x->mask.left, (long long)x->mask.right, x->mask.is_more,
                             x->mask.has_bias, x->has_sums, x->is_other);
    u64 *known = map_get(&s->seen, key);
    if (known) {
        s->out->v[*known].count++;
        return;
    }
    map_put(&s->seen, key, s->out->n);
    *arr_push(s->a, s->out) = *x;
}

bool model_attentions(struct model_attention_list *out, struct model *m, const char *sizes, struct arena *a, struct err *e)
{
    struct search s = {.a = a, .out = out};
    struct attention_pairs all;
    *out = (struct model_attention_list){0};
    map_init(&s.seen, a);
    if (!model_expand(&s.x, m, sizes, a, e)) return false;
    find_data(&s);
    task_attentions(&all, &s.x.g, a);
    for (u32 i = 0; i < all.n; i++) {
        struct model_attention x;
        if (describe(&s, all.v[i], &x)) add(&s, &x);
    }
    return true;
}
