// SPDX-License-Identifier: Apache-2.0
//
// What a mask of scores excludes. Exporters write a causal mask as comparisons of positions, as a constant triangle, as part of a larger one that is
// sliced, and join it with others by And and Add. So a mask is taken apart where it is a conjunction or a sum, and each part that depends on sizes alone is
// evaluated and compared with a band. Parts that depend on data are masks that are not known.
#include "model/model.h"

#include "op/op.h"

#include <math.h>

enum { MAX_ELEMENTS = 1 << 27 /* of a mask that is evaluated */ };
static const double as_good_as_infinity = -1e4; /* what is added to exclude a key: -10000 of com.microsoft, the lowest number of a type */

static bool is_op(const struct node *x, const char *op) { return x && str_is(x->op, op); }

static const struct node *made_by(const struct model_masks *k, value_id v)
{
    node_id n = graph_value(&k->x->g, v)->producer;
    return n ? graph_node(&k->x->g, n) : NULL;
}

/* The value's content at the sizes; NULL: not known, or too large. Its elements are in `a`. */
static struct tensor *content_of(const struct model_masks *k, value_id v, struct arena *a)
{
    const struct value *x = graph_value(&k->x->g, v);
    struct graph g;
    struct tensor *t = NULL;
    struct err e = {0};
    i64 dim[MAX_RANK], n = 1;
    if (x->data) return x->data;
    if (k->is_data[v] || !shape_eval(k->x->g.sym, &x->shape, k->x->var, dim)) return NULL;
    for (u32 i = 0; i < x->shape.rank; i++) n = dim[i] < 0 || n > MAX_ELEMENTS ? INT32_MAX : n * dim[i];
    if (n > MAX_ELEMENTS) return NULL;
    graph_clone(&g, &k->x->g, a);
    g.input.n = g.made.n = 0;
    g.output = (struct value_list){0};
    *arr_push(a, &g.output) = v;
    const struct graph_eval_opts o = {.var = k->x->var};
    return graph_sort(&g, &e) && graph_eval(&g, NULL, &t, a, &o, &e) ? t : NULL;
}

bool model_number(struct model_masks *k, value_id v, double *number)
{
    struct arena a = {0};
    const struct node *x;
    while ((x = made_by(k, v)) && (is_op(x, "quern::Expand") || is_op(x, "quern::Reshape") || is_op(x, "Identity"))) v = x->in.v[0];
    const struct tensor *t = content_of(k, v, &a);
    i64 n = t ? tensor_count(t) : 0;
    bool ok = n > 0 && n <= MAX_ELEMENTS;
    for (i64 i = 0; i < n && ok; i++) {
        double f = elem_f64(t->dtype, t->data, i);
        ok = i == 0 || f == *number;
        *number = f;
    }
    arena_release(&a);
    return ok;
}

/* Masks as tables: [.., queries, keys], where axes of 1 are for all. */
struct table { const struct tensor *t; bool polarity; i64 rows, cols, n; };

static bool table_of(struct table *b, const struct model_masks *k, const struct tensor *t, bool polarity)
{
    *b = (struct table){.t = t, .polarity = polarity, .rows = t->rank > 1 ? t->dim[t->rank - 2] : 1, .cols = t->rank ? t->dim[t->rank - 1] : 1};
    if ((b->rows != 1 && b->rows != k->queries) || (b->cols != 1 && b->cols != k->keys)) return false;
    b->n = tensor_count(t) / i64_max(1, b->rows * b->cols);
    return true;
}

static bool is_open(const struct table *b, i64 at)
{
    if (b->t->dtype == DT_BOOL) return (elem_i64(DT_BOOL, b->t->data, at) != 0) == b->polarity;
    return elem_f64(b->t->dtype, b->t->data, at) > as_good_as_infinity;
}

static bool has_bias(const struct table *b)
{
    if (b->t->dtype == DT_BOOL) return false;
    for (i64 i = 0; i < tensor_count(b->t); i++)
        if (is_open(b, i) && elem_f64(b->t->dtype, b->t->data, i) != 0) return true;
    return false;
}

/* Key j of query i, as the distance from the query's own key. */
static i64 ahead(const struct model_masks *k, i64 i, i64 j) { return j - i - (k->keys - k->queries); }
static i64 element(const struct table *b, i64 batch, i64 i, i64 j) { return (batch * b->rows + (b->rows == 1 ? 0 : i)) * b->cols + (b->cols == 1 ? 0 : j); }

static struct model_mask widest(const struct model_masks *k, const struct table *b)
{
    struct model_mask m = {.left = -MODEL_UNBOUNDED, .right = -MODEL_UNBOUNDED};
    for (i64 i = 0; i < k->queries; i++) {
        for (i64 j = 0; j < k->keys; j++) {
            if (!is_open(b, element(b, 0, i, j))) continue;
            m.right = i64_max(m.right, ahead(k, i, j));
            m.left = i64_max(m.left, -ahead(k, i, j));
        }
    }
    if (m.right >= ahead(k, 0, k->keys - 1)) m.right = MODEL_UNBOUNDED;
    if (m.left >= -ahead(k, k->queries - 1, 0)) m.left = MODEL_UNBOUNDED;
    return m;
}

static bool is_band(const struct model_masks *k, const struct table *b, const struct model_mask *m)
{
    for (i64 batch = 0; batch < b->n; batch++)
        for (i64 i = 0; i < k->queries; i++)
            for (i64 j = 0; j < k->keys; j++)
                if (is_open(b, element(b, batch, i, j)) != (ahead(k, i, j) <= m->right && -ahead(k, i, j) <= m->left)) return false;
    return true;
}

static void restrict_to(struct model_mask *m, i64 left, i64 right)
{
    m->left = i64_min(m->left, left);
    m->right = i64_min(m->right, right);
}

static void add_table(struct model_mask *m, const struct model_masks *k, const struct tensor *t, bool polarity)
{
    struct table b;
    if (!table_of(&b, k, t, polarity)) {
        m->is_more = true;
        return;
    }
    if (tensor_count(t) == 1 && is_open(&b, 0)) {
        m->has_bias |= has_bias(&b);
        return;
    }
    if ((double)b.n * (double)k->queries * (double)k->keys > MAX_ELEMENTS) {
        m->is_more = true;
        return;
    }
    struct model_mask found = widest(k, &b);
    m->has_bias |= has_bias(&b);
    if (is_band(k, &b, &found)) restrict_to(m, found.left, found.right);
    else m->is_more = true;
}

/* A band by positions that are data keeps the keys in front of a query. */
static bool add_moving_band(struct model_mask *m, const struct node *x)
{
    i64 left = attr_int(x, "left", -1), right = attr_int(x, "right", -1);
    if (!is_op(x, "quern::Band") || !x->in.n) return false;
    restrict_to(m, left < 0 ? MODEL_UNBOUNDED : left, right < 0 ? MODEL_UNBOUNDED : right);
    return m->is_more = true;
}

static bool add_band(struct model_mask *m, const struct model_masks *k, node_id n)
{
    const struct graph *g = &k->x->g;
    struct op_band b;
    i64 offset;
    if (!n || !op_of(g, n)->band || !op_of(g, n)->band(g, graph_node(g, n), &b) || !sym_eval(g->sym, b.offset, k->x->var, &offset)) return false;
    offset -= k->keys - k->queries;
    i64 left = b.left < 0 ? MODEL_UNBOUNDED : b.left - offset, right = b.right < 0 ? MODEL_UNBOUNDED : b.right + offset;
    if (right >= ahead(k, 0, k->keys - 1)) right = MODEL_UNBOUNDED;
    if (left >= -ahead(k, k->queries - 1, 0)) left = MODEL_UNBOUNDED;
    restrict_to(m, left, right);
    return true;
}

/* A view whose elements keep their places along queries and keys. */
static bool keeps_places(const struct model_masks *k, const struct node *x)
{
    const struct graph *g = &k->x->g;
    if (x->in.n != 1) return false;
    if (is_op(x, "Identity")) return true;
    if (is_op(x, "Cast")) return dtype_is_float(op_in_dtype(g, x, 0)) && dtype_is_float(graph_value(g, x->out.v[0])->dtype);
    if (!is_op(x, "quern::Expand") && !is_op(x, "quern::Reshape")) return false;
    const struct shape *from = op_in_shape(g, x, 0), *to = &graph_value(g, x->out.v[0])->shape;
    bool is_whole = is_op(x, "quern::Expand");
    for (u32 i = 1; i <= 2; i++)
        if (i > from->rank || i > to->rank || (from->dim[from->rank - i] != to->dim[to->rank - i] && !is_whole)) return false;
    return true;
}

/* Parts that are joined: And, the sum of two, Where(c, 0, -infinity). Returns whether the value was taken apart. */
static bool add_parts(struct model_mask *m, struct model_masks *k, const struct node *x, bool polarity)
{
    double yes, no;
    if (keeps_places(k, x)) model_mask_add(m, k, x->in.v[0], polarity);
    else if (is_op(x, "Not")) model_mask_add(m, k, x->in.v[0], !polarity);
    else if ((is_op(x, "And") && polarity) || (is_op(x, "Or") && !polarity) || is_op(x, "Add"))
        for (u32 i = 0; i < 2; i++) model_mask_add(m, k, x->in.v[i], polarity);
    else if (is_op(x, "Where") && model_number(k, x->in.v[1], &yes) && model_number(k, x->in.v[2], &no) && (yes == 0 || no == 0) &&
             fmin(yes, no) <= as_good_as_infinity)
        model_mask_add(m, k, x->in.v[0], yes == 0);
    else return false;
    return true;
}

void model_mask_add(struct model_mask *m, struct model_masks *k, value_id v, bool polarity)
{
    const struct node *x = made_by(k, v);
    struct arena a = {0};
    if (x && polarity && (add_band(m, k, graph_value(&k->x->g, v)->producer) || add_moving_band(m, x))) return;
    const struct tensor *t = content_of(k, v, &a);
    if (t) add_table(m, k, t, polarity);
    else if (!x || !add_parts(m, k, x, polarity)) m->is_more = true;
    arena_release(&a);
}
