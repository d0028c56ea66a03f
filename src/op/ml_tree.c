// SPDX-License-Identifier: Apache-2.0
//
// ai.onnx.ml: ensembles of decision trees. TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble (opset 5) are
// converted to the constants of quern::Trees, followed by nodes for base values, transformations and labels.
//
// quern::Trees: x (n, f), nodes i32 (m, 5) of (feature, comparison, next if true, next if false, row of weights), limits (m)
// of x's type, weights (leaves, k) f32, from i32 (k + 1), roots i32: the trees with roots from[k] .. from[k+1]-1 contribute to
// result k. A leaf is its own successor, so every tree is traversed in `depth` steps. Comparisons are numbered as in opset
// 5 (0 <=, 1 <, 2 >=, 3 >, 4 ==, 5 !=), plus 8 if NaN counts as true. Membership of a set is a chain of equalities.
//
// All references in a model's file are checked: unknown ids, nodes with several parents, cycles.
#include "op/op.h"

#include <math.h>
#include <string.h>

enum { T_FEATURE, T_MODE, T_YES, T_NO, T_ROW, T_COLUMNS };
enum { M_LEQ, M_LT, M_GTE, M_GT, M_EQ, M_NEQ, M_MEMBER, M_LEAF, M_NAN = 8 };
enum { SUM, AVERAGE, MIN, MAX };

struct tree_node {
    i64 feature, mode, yes, no, row;
    double limit;
    bool is_leaf;
};

struct trees {
    struct { struct tree_node *v; u32 n, cap; } node;
    struct { i64 *v; u32 n, cap; } root;
    float *weight;          /* (rows, k) */
    i64 rows, k, depth;
    sym features;
    u32 combine;
};

/* Reading of attributes. */

static const char *const comparisons[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"};

static i64 mode_of(struct str s)
{
    for (u32 i = 0; i < countof(comparisons); i++)
        if (str_is(s, comparisons[i])) return i;
    return str_is(s, "LEAF") ? M_LEAF : -1;
}

static i64 floats_of(const struct graph *g, const struct node *nd, const char *name, const double **v)
{
    i64 n = op_ml_floats(g, nd, str_fmt(g->arena, "%s_as_tensor", name).p, v);
    return n ? n : op_ml_floats(g, nd, name, v);
}

/* Numbers of nodes by (tree, id). */
struct ids {
    struct map map;
    i64 (*key)[2];
    u32 n;
};

static i64 ids_get(const struct ids *d, i64 tree, i64 id)
{
    i64 key[2] = {tree, id};
    const u64 *at = map_get(&d->map, (struct str){(const char *)key, sizeof key});
    return at ? (i64)*at : -1;
}

static bool bad(struct err *e, const struct graph *g, node_id n, const char *what, i64 at)
{
    return op_invalid(e, g, n, "%s (entry %lld)", what, (long long)at);
}

struct lists { /* of the older operators */
    const i64 *tree, *id, *feature, *yes, *no, *nan;
    const struct attr *mode;
    const double *limit;
    i64 n, n_nan;
};

static bool read_lists(const struct graph *g, node_id n, struct lists *l, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    l->n = attr_ints(nd, "nodes_nodeids", &l->id);
    l->mode = node_attr(nd, "nodes_modes");
    l->n_nan = attr_ints(nd, "nodes_missing_value_tracks_true", &l->nan);
    bool ok = l->n > 0 && l->n < INT32_MAX && l->mode && l->mode->kind == ATTR_STRS && l->mode->n == l->n &&
              attr_ints(nd, "nodes_treeids", &l->tree) == l->n && attr_ints(nd, "nodes_featureids", &l->feature) == l->n &&
              attr_ints(nd, "nodes_truenodeids", &l->yes) == l->n && attr_ints(nd, "nodes_falsenodeids", &l->no) == l->n &&
              floats_of(g, nd, "nodes_values", &l->limit) == l->n && (!l->n_nan || l->n_nan == l->n);
    return ok || op_invalid(e, g, n, "attributes nodes_* are missing or of different lengths");
}

static bool read_node(const struct graph *g, node_id n, const struct lists *l, i64 i, struct trees *t, struct err *e)
{
    i64 mode = mode_of(l->mode->strs[i]);
    if (mode < 0) return op_unsupported(e, g, n, "mode '%.*s'", STR_ARG(l->mode->strs[i]));
    struct tree_node *x = arr_push(g->arena, &t->node);
    *x = (struct tree_node){.feature = mode == M_LEAF ? 0 : l->feature[i], .mode = mode, .limit = l->limit[i], .is_leaf = mode == M_LEAF};
    if (mode == M_LEAF) x->row = t->rows++, x->mode = M_LEQ, x->limit = 0;
    else if (l->n_nan && l->nan[i]) x->mode |= M_NAN;
    return true;
}

/* Nodes of the older operators; roots are those that no node names. */
static bool read_nodes(struct graph *g, node_id n, struct trees *t, struct ids *d, struct err *e)
{
    struct lists l;
    if (!read_lists(g, n, &l, e)) return false;
    bool *child = arena_array(g->arena, bool, l.n);
    map_init(&d->map, g->arena);
    d->key = mem_alloc(l.n * (i64)sizeof *d->key);
    for (i64 i = 0; i < l.n; i++) {
        if (ids_get(d, l.tree[i], l.id[i]) >= 0) return bad(e, g, n, "a node's id is there twice", i);
        if (!read_node(g, n, &l, i, t, e)) return false;
        d->key[d->n][0] = l.tree[i], d->key[d->n][1] = l.id[i];
        map_put(&d->map, (struct str){(const char *)d->key[d->n], sizeof d->key[0]}, (u64)i);
        d->n++;
    }
    for (i64 i = 0; i < l.n; i++) {
        struct tree_node *x = &t->node.v[i];
        x->yes = x->no = i;
        if (x->is_leaf) continue;
        x->yes = ids_get(d, l.tree[i], l.yes[i]), x->no = ids_get(d, l.tree[i], l.no[i]);
        if (x->yes < 0 || x->no < 0) return bad(e, g, n, "a node's next one does not exist", i);
        child[x->yes] = child[x->no] = true;
    }
    for (i64 i = 0; i < l.n; i++)
        if (!child[i]) *arr_push(g->arena, &t->root) = i;
    return t->root.n > 0 || op_invalid(e, g, n, "a tree without a root");
}

static bool alloc_weights(struct graph *g, node_id n, struct trees *t, struct err *e)
{
    if (t->k < 1 || t->rows < 1 || t->k > (1 << 28) / t->rows)
        return op_unsupported(e, g, n, "%lld results of %lld leaves", (long long)t->k, (long long)t->rows);
    t->weight = arena_try(g->arena, t->rows * t->k * (i64)sizeof *t->weight, e, "its leaves");
    if (!t->weight) return false;
    float none = t->combine == MIN ? INFINITY : t->combine == MAX ? -INFINITY : 0;
    for (i64 i = 0; i < t->rows * t->k; i++) t->weight[i] = none;
    return true;
}

static void vote(struct trees *t, i64 row, i64 k, double w)
{
    float *x = &t->weight[row * t->k + k];
    if (t->combine == MIN) *x = (float)fmin(*x, w);
    else if (t->combine == MAX) *x = (float)fmax(*x, w);
    else *x += (float)w;
}

/* Votes of leaves, attributes "target_*" or "class_*". */
static bool read_votes(struct graph *g, node_id n, const char *what, struct trees *t, const struct ids *d, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const i64 *tree, *id, *k;
    const double *w;
    i64 count = attr_ints(nd, str_fmt(g->arena, "%s_ids", what).p, &k);
    if (attr_ints(nd, str_fmt(g->arena, "%s_treeids", what).p, &tree) != count ||
        attr_ints(nd, str_fmt(g->arena, "%s_nodeids", what).p, &id) != count ||
        floats_of(g, nd, str_fmt(g->arena, "%s_weights", what).p, &w) != count)
        return op_invalid(e, g, n, "attributes %s_* are missing or of different lengths", what);
    if (!alloc_weights(g, n, t, e)) return false;
    for (i64 i = 0; i < count; i++) {
        i64 at = ids_get(d, tree[i], id[i]);
        if (at < 0 || k[i] < 0 || k[i] >= t->k) return bad(e, g, n, "a vote of a node or for a result that does not exist", i);
        if (!t->node.v[at].is_leaf) return bad(e, g, n, "a vote of a node that is no leaf", i);
        vote(t, t->node.v[at].row, k[i], w[i]);
    }
    return true;
}

/* TreeEnsemble. */

struct lists5 {
    const i64 *feature, *yes, *no, *yes_leaf, *no_leaf, *nan, *root, *target;
    const struct tensor *mode, *limit, *weight, *member;
    i64 n, n_nan, n_root, n_leaf, at_member;
};

static const struct tensor *tensor_attr(const struct node *nd, const char *name)
{
    const struct attr *a = node_attr(nd, name);
    return a && a->kind == ATTR_TENSOR ? a->t : NULL;
}

static bool read_lists5(const struct graph *g, node_id n, struct lists5 *l, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    *l = (struct lists5){.n = attr_ints(nd, "nodes_featureids", &l->feature)};
    l->n = attr_ints(nd, "nodes_featureids", &l->feature);
    l->mode = tensor_attr(nd, "nodes_modes"), l->limit = tensor_attr(nd, "nodes_splits");
    l->weight = tensor_attr(nd, "leaf_weights"), l->member = tensor_attr(nd, "membership_values");
    l->n_nan = attr_ints(nd, "nodes_missing_value_tracks_true", &l->nan);
    l->n_root = attr_ints(nd, "tree_roots", &l->root), l->n_leaf = attr_ints(nd, "leaf_targetids", &l->target);
    bool ok = l->n > 0 && l->n < INT32_MAX && l->mode && tensor_count(l->mode) == l->n && l->limit &&
              tensor_count(l->limit) == l->n && l->weight && tensor_count(l->weight) == l->n_leaf && l->n_leaf < INT32_MAX &&
              l->n_root > 0 && attr_ints(nd, "nodes_truenodeids", &l->yes) == l->n &&
              attr_ints(nd, "nodes_falsenodeids", &l->no) == l->n && attr_ints(nd, "nodes_trueleafs", &l->yes_leaf) == l->n &&
              attr_ints(nd, "nodes_falseleafs", &l->no_leaf) == l->n && (!l->n_nan || l->n_nan == l->n);
    return ok || op_invalid(e, g, n, "attributes nodes_*, leaf_* or tree_roots are missing or of different lengths");
}

/* Node i is one of a set: equality with each member in turn. */
static bool read_members(struct graph *g, node_id n, struct lists5 *l, i64 i, struct trees *t, struct err *e)
{
    i64 at = i, count = 0;
    for (;; l->at_member++, count++) {
        if (!l->member || l->at_member >= tensor_count(l->member)) {
            if (count) break;
            return bad(e, g, n, "membership_values end before this node", i);
        }
        double v = elem_f64(l->member->dtype, l->member->data, l->at_member);
        if (isnan(v)) break;
        if (count) { /* the one before goes on to a new node where it is not equal */
            struct tree_node next = t->node.v[at];
            *arr_push(g->arena, &t->node) = next;
            t->node.v[at].no = t->node.n - 1;
            at = t->node.n - 1;
        }
        t->node.v[at].mode = M_EQ, t->node.v[at].limit = v;
    }
    l->at_member++;
    return count > 0 || bad(e, g, n, "an empty set", i);
}

static bool next5(i64 id, bool is_leaf, const struct lists5 *l, i64 *out)
{
    *out = is_leaf ? l->n + id : id;
    return id >= 0 && id < (is_leaf ? l->n_leaf : l->n);
}

static bool read_nodes5(struct graph *g, node_id n, struct lists5 *l, struct trees *t, struct err *e)
{
    for (i64 i = 0; i < l->n; i++) {
        struct tree_node x = {.feature = l->feature[i], .mode = elem_i64(l->mode->dtype, l->mode->data, i),
                              .limit = elem_f64(l->limit->dtype, l->limit->data, i)};
        if (x.mode < 0 || x.mode > M_MEMBER) return op_unsupported(e, g, n, "mode %lld", (long long)x.mode);
        if (!next5(l->yes[i], l->yes_leaf[i] != 0, l, &x.yes) || !next5(l->no[i], l->no_leaf[i] != 0, l, &x.no))
            return bad(e, g, n, "a node's next one does not exist", i);
        *arr_push(g->arena, &t->node) = x;
    }
    for (i64 i = 0; i < l->n_leaf; i++) {
        *arr_push(g->arena, &t->node) = (struct tree_node){.yes = l->n + i, .no = l->n + i, .row = i, .is_leaf = true};
        if (l->target[i] < 0 || l->target[i] >= t->k) return bad(e, g, n, "a leaf's target does not exist", i);
        vote(t, i, l->target[i], elem_f64(l->weight->dtype, l->weight->data, i));
    }
    for (i64 i = 0; i < l->n; i++) {
        if (t->node.v[i].mode == M_MEMBER && !read_members(g, n, l, i, t, e)) return false;
        else if (l->n_nan && l->nan[i]) t->node.v[i].mode |= M_NAN;
    }
    for (i64 i = 0; i < l->n_root; i++) {
        if (l->root[i] < 0 || l->root[i] >= l->n) return bad(e, g, n, "a root does not exist", i);
        *arr_push(g->arena, &t->root) = l->root[i];
    }
    return true;
}

/* Depth; cycles and features that do not exist. */

static bool walk(const struct graph *g, node_id n, struct trees *t, i64 root, i64 *deep, struct err *e)
{
    struct { i64 *v; u32 n, cap; } stack = {0};
    *arr_push(g->arena, &stack) = root;
    while (stack.n) { /* deep: 0 new, -1 being walked, else the depth + 1 */
        i64 at = stack.v[stack.n - 1];
        struct tree_node *x = &t->node.v[at];
        if (x->is_leaf) deep[at] = 1;
        if (deep[at] > 0) {
            stack.n--;
            continue;
        }
        bool again = deep[at] < 0;
        deep[at] = -1;
        for (int k = 0; k < 2; k++) {
            i64 next = k ? x->no : x->yes;
            if (deep[next] < 0 || (again && !deep[next])) return op_invalid(e, g, n, "a tree with a cycle");
            if (!deep[next]) *arr_push(g->arena, &stack) = next;
        }
        if (again) deep[at] = 1 + i64_max(deep[x->yes], deep[x->no]), stack.n--;
    }
    return true;
}

static bool check_trees(struct graph *g, node_id n, struct trees *t, struct err *e)
{
    i64 *deep = arena_array(g->arena, i64, t->node.n), most = 0;
    for (u32 i = 0; i < t->root.n; i++) {
        if (!walk(g, n, t, t->root.v[i], deep, e)) return false;
        t->depth = i64_max(t->depth, deep[t->root.v[i]] - 1);
    }
    for (u32 i = 0; i < t->node.n; i++) {
        i64 f = t->node.v[i].feature;
        if (f < 0 || f == INT64_MAX) return op_invalid(e, g, n, "feature %lld", (long long)f);
        most = i64_max(most, f);
    }
    return op_require_at_least(g, n, t->features, sym_const(g->sym, most + 1), e, "the number of features");
}

enum kind { REGRESSOR, CLASSIFIER, ENSEMBLE };

static enum kind kind_of(const struct node *nd)
{
    return str_is(nd->op, "ai.onnx.ml::TreeEnsemble")             ? ENSEMBLE
           : str_is(nd->op, "ai.onnx.ml::TreeEnsembleClassifier") ? CLASSIFIER
                                                                  : REGRESSOR;
}

static u32 combine_of(const struct node *nd)
{
    static const u32 by_number[] = {AVERAGE, SUM, MIN, MAX};
    struct str s = attr_str(nd, "aggregate_function", "SUM");
    if (kind_of(nd) == ENSEMBLE) return by_number[i64_max(0, i64_min(3, attr_int(nd, "aggregate_function", 1)))];
    return str_is(s, "AVERAGE") ? AVERAGE : str_is(s, "MIN") ? MIN : str_is(s, "MAX") ? MAX : SUM;
}

static i64 n_classes(const struct node *nd)
{
    const i64 *v;
    const struct attr *s = node_attr(nd, "classlabels_strings");
    i64 n = attr_ints(nd, "classlabels_int64s", &v);
    return n ? n : s && s->kind == ATTR_STRS ? s->n : 0;
}

/* Does not free arena memory; the keys of the nodes' ids are only needed while reading. */
static bool read_old(struct graph *g, node_id n, const char *votes, struct trees *t, struct err *e)
{
    struct ids d = {.key = NULL};
    bool ok = read_nodes(g, n, t, &d, e) && read_votes(g, n, votes, t, &d, e);
    mem_free(d.key);
    return ok;
}

static bool read_trees(struct graph *g, node_id n, struct trees *t, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, 0);
    struct lists5 l;
    *t = (struct trees){.combine = combine_of(nd)};
    t->features = x->dim[x->rank - 1];
    t->k = kind_of(nd) == CLASSIFIER ? n_classes(nd) : attr_int(nd, "n_targets", 1);
    if (kind_of(nd) != ENSEMBLE) return read_old(g, n, kind_of(nd) == CLASSIFIER ? "class" : "target", t, e) && check_trees(g, n, t, e);
    if (!read_lists5(g, n, &l, e)) return false;
    t->rows = l.n_leaf;
    return alloc_weights(g, n, t, e) && read_nodes5(g, n, &l, t, e) && check_trees(g, n, t, e);
}

/* The constants of quern::Trees. */

static value_id ints(struct graph *g, const i64 *v, i64 n) { return op_const_i(g, DT_I32, v, n); }

/* Marks which results the leaves below a root vote for. */
static void mark(const struct trees *t, i64 at, bool *seen, bool *for_k, i64 *stack)
{
    float none = t->combine == MIN ? INFINITY : t->combine == MAX ? -INFINITY : 0;
    i64 n = 0;
    for (stack[n++] = at; n;) {
        at = stack[--n];
        if (seen[at]) continue;
        seen[at] = true;
        const struct tree_node *x = &t->node.v[at];
        for (i64 k = 0; x->is_leaf && k < t->k; k++) for_k[k] |= t->weight[x->row * t->k + k] != none;
        if (!x->is_leaf) stack[n++] = x->yes, stack[n++] = x->no;
    }
}

static bool put_roots(struct graph *g, const struct trees *t, value_id in[2], struct err *e)
{
    struct { i64 *v; u32 n, cap; } list = {0};
    i64 *from = arena_array(g->arena, i64, t->k + 1), *stack = arena_array(g->arena, i64, 2 * (i64)t->node.n + 2);
    bool *votes = arena_try(g->arena, t->k * (i64)t->root.n, e, "results of trees"), *seen = arena_array(g->arena, bool, t->node.n);
    if (!votes) return false;
    for (u32 i = 0; i < t->root.n; i++) mark(t, t->root.v[i], seen, votes + i * t->k, stack);
    for (i64 k = 0; k < t->k; k++) {
        for (u32 i = 0; i < t->root.n; i++)
            if (votes[i * t->k + k]) *arr_push(g->arena, &list) = t->root.v[i];
        from[k + 1] = list.n;
    }
    if (!list.n) *arr_push(g->arena, &list) = t->root.v[0]; /* never read; no empty constant */
    in[0] = ints(g, from, t->k + 1), in[1] = ints(g, list.v, list.n);
    return true;
}

/* Scores (n, k) of x (n, f) of type f; 0: memory ends. */
static value_id ensemble(struct graph *g, node_id n, const struct trees *t, value_id x, enum dtype f, struct err *e)
{
    i64 m = t->node.n, dim[] = {m, T_COLUMNS}, modes = 0;
    struct tensor *table = tensor_new(g->arena, DT_I32, 2, dim), *limit = tensor_new(g->arena, f, 1, &m),
                  *weight = arena_new(g->arena, struct tensor);
    *weight = (struct tensor){.dtype = DT_F32, .rank = 2, .dim = {t->rows, t->k}, .data = t->weight};
    for (i64 i = 0; i < m; i++) {
        const struct tree_node *v = &t->node.v[i];
        const i64 row[] = {v->feature, v->mode, v->yes, v->no, v->row};
        for (u32 c = 0; c < T_COLUMNS; c++) elem_set_i64(DT_I32, table->data, i * T_COLUMNS + c, row[c]);
        elem_set_f64(f, limit->data, i, v->limit);
        if (!v->is_leaf) modes |= (i64)1 << v->mode;
    }
    value_id in[6] = {x, graph_add_const(g, S("nodes"), table), graph_add_const(g, S("limits"), limit),
                      graph_add_const(g, S("weights"), weight)};
    if (!put_roots(g, t, in + 4, e)) return 0;
    value_id y = op_node(g, n, "quern::Trees", 6, in, 0);
    attr_set_int(g, op_made(g, y), "depth", t->depth);
    attr_set_int(g, op_made(g, y), "modes", modes);
    attr_set_int(g, op_made(g, y), "combine", t->combine == AVERAGE ? SUM : t->combine);
    return t->combine == AVERAGE ? op_node_binf(g, n, "Mul", y, DT_F32, 1.0 / t->root.n, 0) : y;
}

/* Behind the scores. */

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, 0);
    if (!dtype_is_float(t) && !dtype_is_int(t)) return op_unsupported(e, g, n, "input of type %s", dtype_name(t));
    if (!op_check_rank(g, n, 0, 1, 2, e)) return false;
    if (kind_of(nd) != ENSEMBLE && !op_ml_check_transform(g, n, e)) return false;
    if (kind_of(nd) == CLASSIFIER && !n_classes(nd)) return op_invalid(e, g, n, "attribute 'classlabels_int64s' is missing");
    if (kind_of(nd) == CLASSIFIER && !op_ml_check_labels(g, n, "classlabels_int64s", "classlabels_strings", e)) return false;
    return op_infer_expanded(g, n, e);
}

/* Base values fit k results, or there are none. */
static bool base_values(struct graph *g, node_id n, i64 k, const double **v, i64 *count, struct err *e)
{
    *count = floats_of(g, graph_node(g, n), "base_values", v);
    return !*count || *count == k || (k == 2 && *count == 1) ||
           op_invalid(e, g, n, "%lld base values for %lld results", (long long)*count, (long long)k);
}

/* Two classes of which only one has votes: a single score, from which ONNX Runtime makes both
   columns if it is the first class's, unless there are two base values; the other column is 0 then.
   Otherwise the label is that of the largest score, unlike ONNX Runtime for two classes. */
static bool is_binary(const struct graph *g, const struct node *nd, const struct trees *t, bool *positive)
{
    const i64 *k;
    const double *w;
    i64 n = attr_ints(nd, "class_ids", &k), n_w = floats_of(g, nd, "class_weights", &w);
    *positive = true;
    for (i64 i = 0; i < n_w; i++) *positive &= w[i] >= 0;
    for (i64 i = 1; i < n; i++)
        if (k[i] != k[0]) return false;
    return t->k == 2 && n > 0;
}

static void two_labels(struct graph *g, node_id n, value_id score, double least)
{
    const i64 column = 1;
    if (!graph_node(g, n)->out.v[0]) return;
    value_id yes = op_node_axes(g, n, "Squeeze", op_node_binf(g, n, "Greater", score, DT_F32, least, 0), &column, 1, 0);
    op_ml_labels(g, n, op_node_cast(g, n, yes, DT_I64, 0), "classlabels_int64s", graph_node(g, n)->out.v[0]);
}

/* All votes are for class `id`. */
static bool binary(struct graph *g, node_id n, value_id scores, bool positive, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape x = *op_in_shape(g, &nd, 0);
    const i64 *id;
    const double *base;
    i64 n_base;
    sym one_row = sym_const(g->sym, 1), two = sym_const(g->sym, 2);
    struct shape s = {.known = true, .rank = 2, .dim = {x.rank == 1 ? one_row : x.dim[0], two}};
    attr_ints(&nd, "class_ids", &id);
    if (!base_values(g, n, 2, &base, &n_base, e)) return false;
    value_id z = nd.out.n > 1 ? nd.out.v[1] : 0, y;
    value_id one = op_node_slice(g, n, scores, &s, 1, sym_const(g->sym, id[0]), one_row, 0);
    if (n_base) one = op_node_binf(g, n, "Add", one, DT_F32, base[n_base == 2 ? id[0] : 0], 0);
    two_labels(g, n, one, positive ? 0.5 : 0);
    if (!z) return true;
    value_id none = op_node_binf(g, n, "Mul", one, DT_F32, 0, 0);
    if (id[0]) y = op_ml_transform(g, n, op_ml_pair(g, n, none, one), DT_F32);
    else if (n_base == 2) y = op_ml_transform(g, n, op_ml_pair(g, n, one, none), DT_F32);
    else if (str_is(attr_str(&nd, "post_transform", "NONE"), "PROBIT")) y = op_ml_transform(g, n, one, DT_F32);
    else y = op_ml_two(g, n, one, positive);
    op_node1(g, n, "Identity", y, z);
    return true;
}

static value_id transform5(struct graph *g, node_id n, value_id y)
{
    static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
    i64 k = attr_int(graph_node(g, n), "post_transform", 0);
    attr_set_str(g, n, "post_transform", str_of(names[i64_max(0, i64_min(4, k))]));
    y = op_ml_transform(g, n, y, DT_F32);
    attr_set_int(g, n, "post_transform", k);
    return y;
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const i64 first = 0;
    enum kind kind = kind_of(&nd);
    enum dtype type = op_in_dtype(g, &nd, 0), f = type == DT_F64 ? DT_F64 : DT_F32;
    struct trees t;
    const double *base;
    i64 n_base;
    bool positive;
    if (!read_trees(g, n, &t, e)) return false;
    value_id x = op_as(g, n, nd.in.v[0], f);
    if (op_in_shape(g, &nd, 0)->rank == 1) x = op_node_axes(g, n, "Unsqueeze", x, &first, 1, 0);
    value_id y = ensemble(g, n, &t, x, f, e);
    if (!y) return false;
    if (kind == CLASSIFIER && is_binary(g, &nd, &t, &positive)) return binary(g, n, y, positive, e);
    if (kind == ENSEMBLE) return op_node_into(g, n, transform5(g, n, y), DT_F32, dtype_is_float(type) ? type : DT_F32, nd.out.v[0]), true;
    if (!base_values(g, n, t.k, &base, &n_base, e)) return false;
    if (n_base == t.k) y = op_node2(g, n, "Add", y, op_ml_const(g, DT_F32, base, 1, &n_base), 0);
    if (kind == REGRESSOR) return op_node1(g, n, "Identity", op_ml_transform(g, n, y, DT_F32), nd.out.v[0]), true;
    if (nd.out.v[0]) op_ml_labels(g, n, op_ml_best(g, n, y), "classlabels_int64s", nd.out.v[0]);
    if (nd.out.n > 1 && nd.out.v[1]) op_node1(g, n, "Identity", op_ml_transform(g, n, y, DT_F32), nd.out.v[1]);
    return true;
}

/* quern::Trees */

enum { IN_X, IN_NODES, IN_LIMITS, IN_WEIGHTS, IN_FROM, IN_ROOTS, N_IN };

static bool prim_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *x = op_in_shape(g, nd, IN_X), *w = op_in_shape(g, nd, IN_WEIGHTS);
    enum dtype t = op_in_dtype(g, nd, IN_X);
    i64 combine = attr_int(nd, "combine", 0);
    bool ok = x->rank == 2 && w->rank == 2 && op_in_shape(g, nd, IN_NODES)->rank == 2 && dtype_is_float(t) &&
              op_in_dtype(g, nd, IN_LIMITS) == t && op_in_dtype(g, nd, IN_WEIGHTS) == DT_F32 &&
              op_in_dtype(g, nd, IN_NODES) == DT_I32 && op_in_dtype(g, nd, IN_ROOTS) == DT_I32 && (combine == SUM || combine == MIN || combine == MAX);
    for (u32 k = IN_LIMITS; ok && k < N_IN; k++) ok = k == IN_WEIGHTS || op_in_shape(g, nd, k)->rank == 1;
    if (!ok || attr_int(nd, "depth", 0) < 0) return op_invalid(e, g, n, "inputs or attributes are no trees");
    for (u32 k = 0; k < N_IN; k++) { /* indices are clamped, so no input may be empty */
        sym size = op_in_shape(g, nd, k)->dim[k == IN_X];
        if (!op_require_at_least(g, n, size, sym_const(g->sym, 1), e, "the size of input %u", k)) return false;
        nd = graph_node(g, n);
    }
    op_set_out(g, n, 0, DT_F32, &(struct shape){.rank = 2, .dim = {x->dim[0], w->dim[1]}});
    return true;
}

static bool compare(i64 mode, double v, double limit)
{
    if (isnan(v) && mode & M_NAN) return true;
    switch (mode & 7) {
    case M_LEQ: return v <= limit;
    case M_LT: return v < limit;
    case M_GTE: return v >= limit;
    case M_GT: return v > limit;
    case M_EQ: return v == limit;
    default: return v != limit;
    }
}

static i64 int_in(const struct tensor *t, i64 i) { return elem_i64(t->dtype, t->data, i64_max(0, i64_min(i, tensor_count(t) - 1))); }

static double float_in(const struct tensor *t, i64 i) { return elem_f64(t->dtype, t->data, i64_max(0, i64_min(i, tensor_count(t) - 1))); }

/* The leaf that row i of x comes to from a root. */
static i64 leaf_of(const struct op_eval *v, i64 i, i64 at)
{
    const struct tensor *x = v->in[IN_X], *nodes = v->in[IN_NODES];
    for (i64 d = attr_int(v->n, "depth", 0); d > 0; d--) {
        i64 f = i64_min(x->dim[1] - 1, int_in(nodes, at * T_COLUMNS + T_FEATURE));
        bool yes = compare(int_in(nodes, at * T_COLUMNS + T_MODE), float_in(x, i * x->dim[1] + f), float_in(v->in[IN_LIMITS], at));
        at = int_in(nodes, at * T_COLUMNS + (yes ? T_YES : T_NO));
    }
    return int_in(nodes, at * T_COLUMNS + T_ROW);
}

static bool prim_eval(const struct op_eval *v, struct err *e)
{
    struct tensor *out = v->out[0];
    i64 combine = attr_int(v->n, "combine", 0), k = out->dim[1];
    double none = combine == MIN ? INFINITY : combine == MAX ? -INFINITY : 0;
    for (i64 i = 0; i < tensor_count(out); i++) {
        double sum = none;
        for (i64 r = int_in(v->in[IN_FROM], i % k), end = int_in(v->in[IN_FROM], i % k + 1); r < end; r++) {
            double w = float_in(v->in[IN_WEIGHTS], leaf_of(v, i / k, int_in(v->in[IN_ROOTS], r)) * k + i % k);
            sum = combine == MIN ? fmin(sum, w) : combine == MAX ? fmax(sum, w) : sum + w;
        }
        elem_set_f64(DT_F32, out->data, i, sum == none ? 0 : sum);
    }
    return true;
}

static kval load_as_it_is(struct emit *m, const struct node *n, u32 k, kval a, kval b)
{
    kval at[] = {emit_clamp(m, a, op_in_shape(m->g, n, k)->dim[0]), b};
    return emit_value(m, n->in.v[k], at);
}

/* Number of input k at one or two indices, as i64 if it is an integer. */
static kval load(struct emit *m, const struct node *n, u32 k, kval a, kval b)
{
    kval v = load_as_it_is(m, n, k, a, b);
    return dtype_is_int(op_in_dtype(m->g, n, k)) ? kir_cast(m->k, DT_I64, v) : v;
}

/* Whether v takes the true branch at node `at`; unused comparisons are omitted. */
static kval is_true(struct emit *m, const struct node *n, kval at, kval v)
{
    struct kir *k = m->k;
    i64 modes = attr_int(n, "modes", 0), plain = (modes | modes >> M_NAN) & 0xff;
    kval limit = load(m, n, IN_LIMITS, at, 0), mode = load_as_it_is(m, n, IN_NODES, at, kir_int(k, T_MODE)), yes = 0;
    enum dtype t = kir_dtype(k, mode); /* i32: comparisons have no extra cost on GPUs; i64 would */
    kval base = kir_bin(k, KI_AND, mode, kir_const_i(k, t, 1, 7));
    for (i64 c = M_LEQ; c <= M_NEQ; c++) {
        if (!(plain >> c & 1)) continue;
        kval r = c == M_LEQ ? kir_bin(k, KI_LE, v, limit) : c == M_LT ? kir_bin(k, KI_LT, v, limit)
               : c == M_GTE ? kir_bin(k, KI_LE, limit, v) : c == M_GT ? kir_bin(k, KI_LT, limit, v)
               : kir_bin(k, KI_EQ, v, limit);
        if (c == M_NEQ) r = kir_un(k, KI_NOT, r);
        yes = yes ? kir_select(k, kir_bin(k, KI_EQ, base, kir_const_i(k, t, 1, c)), r, yes) : r;
    }
    if (!yes) yes = kir_bin(k, KI_LE, v, limit);
    if (modes >> M_NAN) {
        kval nan = kir_bin(k, KI_AND, kir_un(k, KI_ISNAN, v), kir_bin(k, KI_LE, kir_const_i(k, t, 1, M_NAN), mode));
        yes = kir_bin(k, KI_OR, nan, yes);
    }
    return yes;
}

static void prim_whole(struct emit *m, const struct node *n)
{
    struct kir *k = m->k;
    const struct value *out = graph_value(m->g, n->out.v[0]);
    bool inside[MAX_RANK] = {0};
    i64 combine = attr_int(n, "combine", 0);
    kval idx[MAX_RANK], zero = kir_int(k, 0), one = kir_int(k, 1);
    enum dtype t = m->acc_f64 ? DT_F64 : DT_F32;
    kval none = kir_const_f(k, t, 1, combine == MIN ? INFINITY : combine == MAX ? -INFINITY : 0);
    enum kir_op op = combine == MIN ? KI_MIN : combine == MAX ? KI_MAX : KI_ADD;
    emit_slices(m, &out->shape, inside, idx);
    kval sum = kir_alloc(k, KS_REG, t, 1, one), here = kir_alloc(k, KS_REG, DT_I32, 1, one);
    kir_store(k, sum, zero, none);
    /* The state between steps is an i32, as in the table: Mesa 22's lavapipe loses an i64 there. */
    kval from = load(m, n, IN_FROM, idx[1], 0), to = load(m, n, IN_FROM, kir_bin(k, KI_ADD, idx[1], one), 0);
    kval r = kir_loop(k, KL_SERIAL, from, to, 1);
    kir_store(k, here, zero, load_as_it_is(m, n, IN_ROOTS, r, 0));
    kir_loop(k, KL_SERIAL, zero, kir_int(k, attr_int(n, "depth", 0)), 1);
    kval at = kir_cast(k, DT_I64, kir_load(k, here, zero)), column = load(m, n, IN_NODES, at, kir_int(k, T_FEATURE));
    kval x[] = {idx[0], emit_clamp(m, column, op_in_shape(m->g, n, IN_X)->dim[1])};
    kval yes = is_true(m, n, at, emit_value(m, n->in.v[IN_X], x));
    kval next = kir_select(k, yes, load_as_it_is(m, n, IN_NODES, at, kir_int(k, T_YES)), load_as_it_is(m, n, IN_NODES, at, kir_int(k, T_NO)));
    kir_store(k, here, zero, next);
    kir_end(k);
    kval leaf = load(m, n, IN_NODES, kir_cast(k, DT_I64, kir_load(k, here, zero)), kir_int(k, T_ROW));
    kval w = kir_cast(k, t, load(m, n, IN_WEIGHTS, leaf, idx[1]));
    kir_store(k, sum, zero, kir_bin(k, op, kir_load(k, sum, zero), w));
    kir_end(k);
    kval s = kir_load(k, sum, zero);
    s = kir_select(k, kir_bin(k, KI_EQ, s, none), kir_const_f(k, t, 1, 0), s);
    emit_store(m, n->out.v[0], idx, kir_cast(k, DT_F32, s));
    kir_end(k);
}

static double flops(const struct graph *g, const struct node *n, const i64 *var)
{
    i64 dim[MAX_RANK], roots[MAX_RANK];
    if (!shape_eval(g->sym, op_in_shape(g, n, IN_X), var, dim) || !shape_eval(g->sym, op_in_shape(g, n, IN_ROOTS), var, roots)) return 0;
    return (double)dim[0] * (double)roots[0] * (double)(4 * attr_int(n, "depth", 0) + 1);
}

/* Random instances: trees grown by splitting leaves. */

struct grown {
    i64 tree[64], id[64], feature[64], yes[64], no[64], n, leaves, leaf[64];
    bool is_leaf[64];
    double limit[64];
};

static void grow(struct grown *t, i64 trees, i64 features, struct rng *r)
{
    *t = (struct grown){0};
    for (i64 k = 0; k < trees; k++) {
        i64 first = t->n, size = 1 + 2 * rng_range(r, 0, 5);
        for (i64 i = 0; i < size; i++) {
            i64 at = t->n++;
            t->tree[at] = k, t->id[at] = i, t->is_leaf[at] = true;
            t->feature[at] = rng_range(r, 0, features - 1), t->limit[at] = (double)rng_range(r, -4, 4) / 2;
        }
        for (i64 used = 1, i = 0; used < size; i++) { /* node i gets the next two */
            t->is_leaf[first + i] = false;
            t->yes[first + i] = used, t->no[first + i] = used + 1, used += 2;
        }
    }
    for (i64 i = 0; i < t->n; i++)
        if (t->is_leaf[i]) t->leaf[t->leaves++] = i;
}

static void set_floats(struct graph *g, node_id n, const char *name, const double *v, i64 count)
{
    struct attr a = {.name = str_of(name), .kind = ATTR_FLOATS, .n = count, .floats = (double *)(uintptr_t)v};
    attr_copy(g, n, &a);
}

static void set_nodes(struct graph *g, node_id n, const struct grown *t, struct rng *r)
{
    struct attr modes = {.name = S("nodes_modes"), .kind = ATTR_STRS, .n = t->n, .strs = arena_array(g->arena, struct str, t->n)};
    bool mixed = rng_range(r, 0, 1);
    for (i64 i = 0; i < t->n; i++) modes.strs[i] = t->is_leaf[i] ? S("LEAF") : str_of(comparisons[mixed ? rng_range(r, 0, 5) : 0]);
    attr_set_ints(g, n, "nodes_treeids", t->tree, t->n), attr_set_ints(g, n, "nodes_nodeids", t->id, t->n);
    attr_set_ints(g, n, "nodes_featureids", t->feature, t->n), attr_set_ints(g, n, "nodes_truenodeids", t->yes, t->n);
    attr_set_ints(g, n, "nodes_falsenodeids", t->no, t->n), set_floats(g, n, "nodes_values", t->limit, t->n);
    attr_copy(g, n, &modes);
}

static void set_votes(struct graph *g, node_id n, const char *what, const struct grown *t, i64 k, struct rng *r)
{
    i64 tree[64], node[64], id[64];
    double w[64];
    for (i64 i = 0; i < t->leaves; i++) {
        tree[i] = t->tree[t->leaf[i]], node[i] = t->id[t->leaf[i]], id[i] = rng_range(r, 0, k - 1);
        w[i] = (double)rng_range(r, -8, 8) / 8;
    }
    attr_set_ints(g, n, str_fmt(g->arena, "%s_treeids", what).p, tree, t->leaves);
    attr_set_ints(g, n, str_fmt(g->arena, "%s_nodeids", what).p, node, t->leaves);
    attr_set_ints(g, n, str_fmt(g->arena, "%s_ids", what).p, id, t->leaves);
    set_floats(g, n, str_fmt(g->arena, "%s_weights", what).p, w, t->leaves);
}

static void random_old(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const combine[] = {"SUM", "AVERAGE", "MIN", "MAX"};
    bool classes = self->max_out == 2;
    i64 rows = rng_range(r, 1, 5), f = rng_range(r, 1, 4), k = rng_range(r, classes ? 2 : 1, 3), labels[] = {7, 3, 5};
    struct grown t;
    value_id x;
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_F64, 2, (i64[]){rows, f}, &x);
    node_id n = random_node(g, self, 1, &x, self->max_out);
    grow(&t, rng_range(r, 1, 4), f, r);
    set_nodes(g, n, &t, r);
    set_votes(g, n, classes ? "class" : "target", &t, classes && rng_range(r, 0, 1) ? 1 : k, r);
    if (classes) attr_set_ints(g, n, "classlabels_int64s", labels, k);
    else attr_set_str(g, n, "aggregate_function", str_of(combine[rng_range(r, 0, 3)]));
    if (!classes) attr_set_int(g, n, "n_targets", k);
}

static void set_tensor(struct graph *g, node_id n, const char *name, enum dtype t, const double *v, i64 count)
{
    struct tensor *x = tensor_new(g->arena, t, 1, &count);
    for (i64 i = 0; i < count; i++) elem_set_f64(t, x->data, i, v[i]);
    attr_set_tensor(g, n, name, x);
}

/* One tree of inner nodes in a row, each with a leaf on the side of true. */
static void random_ensemble(const struct op *self, struct graph *g, struct rng *r)
{
    enum { MOST = 4 };
    i64 f = rng_range(r, 1, 4), m = rng_range(r, 1, MOST), k = rng_range(r, 1, 2), root = 0;
    i64 feature[MOST], yes[MOST], no[MOST], yes_leaf[MOST], no_leaf[MOST], target[MOST + 1];
    double mode[MOST], limit[MOST], w[MOST + 1], member[3 * MOST];
    i64 n_member = 0;
    for (i64 i = 0; i < m; i++) {
        feature[i] = rng_range(r, 0, f - 1), mode[i] = (double)rng_range(r, 0, 6), limit[i] = (double)rng_range(r, -2, 2) / 2;
        yes[i] = i, yes_leaf[i] = 1, no[i] = i + 1, no_leaf[i] = i + 1 == m;
        for (i64 c = 0; mode[i] == M_MEMBER && c < 3; c++) member[n_member++] = c < 2 ? (double)c : NAN;
    }
    for (i64 i = 0; i <= m; i++) target[i] = rng_range(r, 0, k - 1), w[i] = (double)rng_range(r, -8, 8) / 4;
    value_id x;
    random_input(g, "x", DT_F32, 2, (i64[]){rng_range(r, 1, 5), f}, &x);
    node_id n = random_node(g, self, 1, &x, 1);
    attr_set_ints(g, n, "nodes_featureids", feature, m), attr_set_ints(g, n, "tree_roots", &root, 1);
    attr_set_ints(g, n, "nodes_truenodeids", yes, m), attr_set_ints(g, n, "nodes_falsenodeids", no, m);
    attr_set_ints(g, n, "nodes_trueleafs", yes_leaf, m), attr_set_ints(g, n, "nodes_falseleafs", no_leaf, m);
    attr_set_ints(g, n, "leaf_targetids", target, m + 1), attr_set_int(g, n, "n_targets", k);
    set_tensor(g, n, "nodes_modes", DT_U8, mode, m), set_tensor(g, n, "nodes_splits", DT_F32, limit, m);
    set_tensor(g, n, "leaf_weights", DT_F32, w, m + 1);
    if (n_member) set_tensor(g, n, "membership_values", DT_F32, member, n_member);
    attr_set_int(g, n, "aggregate_function", rng_range(r, 0, 3)), attr_set_int(g, n, "post_transform", rng_range(r, 0, 2));
}

/* One tree of one split for each result. */
static void random_prim(const struct op *self, struct graph *g, struct rng *r)
{
    i64 f = rng_range(r, 1, 4), k = rng_range(r, 1, 3), m = 3 * k, dim[] = {m, T_COLUMNS}, from[4], roots[3], w[] = {2 * k, k};
    struct tensor *table = tensor_new(g->arena, DT_I32, 2, dim);
    value_id in[N_IN];
    random_input(g, "x", DT_F32, 2, (i64[]){rng_range(r, 1, 5), f}, &in[IN_X]);
    for (i64 i = 0; i < m; i++) {
        bool leaf = i % 3;
        const i64 row[] = {rng_range(r, 0, f - 1), leaf ? 0 : rng_range(r, 0, 1) * 3, leaf ? i : i + 1, leaf ? i : i + 2, i / 3 * 2 + (i % 3 == 2)};
        for (u32 c = 0; c < T_COLUMNS; c++) elem_set_i64(DT_I32, table->data, i * T_COLUMNS + c, row[c]);
    }
    for (i64 i = 0; i <= k; i++) from[i] = i;
    for (i64 i = 0; i < k; i++) roots[i] = 3 * i;
    in[IN_NODES] = graph_add_const(g, S("nodes"), table), in[IN_LIMITS] = random_const(g, DT_F32, 1, &m, -1, 1, r);
    in[IN_WEIGHTS] = random_const(g, DT_F32, 2, w, -2, 2, r);
    in[IN_FROM] = ints(g, from, k + 1), in[IN_ROOTS] = ints(g, roots, k);
    node_id n = random_node(g, self, N_IN, in, 1);
    attr_set_int(g, n, "depth", rng_range(r, 1, 2)), attr_set_int(g, n, "modes", 1 << M_LEQ | 1 << M_GT);
    attr_set_int(g, n, "combine", (i64[]){SUM, MIN, MAX}[rng_range(r, 0, 2)]);
}

#define ML(op, outs, rnd)                                                                                              \
    {.name = "ai.onnx.ml::" op, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = outs, .infer = infer, .expand = expand, \
     .random = rnd}

static const struct op ops[] = {
    ML("TreeEnsembleRegressor", 1, random_old),
    ML("TreeEnsembleClassifier", 2, random_old),
    ML("TreeEnsemble", 1, random_ensemble),
    {.name = "quern::Trees",
     .attributes = "combine:int depth:int modes:int",
     .props = OP_WHOLE | OP_HEAVY,
     .min_in = N_IN,
     .max_in = N_IN,
     .min_out = 1,
     .max_out = 1,
     .infer = prim_infer,
     .eval = prim_eval,
     .whole = prim_whole,
     .flops = flops,
     .random = random_prim},
};

const struct op_family op_ml_tree = {ops, countof(ops)};
