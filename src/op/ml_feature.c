// SPDX-License-Identifier: Apache-2.0
//
// ai.onnx.ml: features prepared for a model, composites but for quern::Lookup.
//
//   Scaler                (x - offset) * scale          Normalizer        rows divided by their maximum, L1 or L2 norm
//   Imputer               one value replaced            Binarizer         x > threshold
//   ArrayFeatureExtractor columns chosen                FeatureVectorizer columns joined
//   OneHotEncoder         x equal to each category      LabelEncoder      a table from numbers to numbers
//
// quern::Lookup: x, keys ascending, values (one more than keys: the last is the default). Strings are rejected.
#include "op/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool numbers(const struct graph *g, node_id n, u32 k, struct err *e)
{
    enum dtype t = op_in_dtype(g, graph_node(g, n), k);
    return dtype_is_float(t) || dtype_is_int(t) || op_unsupported(e, g, n, "input %u of type %s", k, dtype_name(t));
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    for (u32 k = 0; k < graph_node(g, n)->in.n; k++)
        if (!numbers(g, n, k, e) || !op_check_rank(g, n, k, 1, MAX_RANK - 1, e)) return false;
    return op_infer_expanded(g, n, e);
}

/* A list of one number, or of one for each feature, as a constant. */
static value_id per_feature(struct graph *g, node_id n, const char *name, enum dtype t, double def, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape *s = op_in_shape(g, &nd, 0);
    const double *v;
    const i64 *ints;
    i64 c, count = op_ml_floats(g, &nd, name, &v), n_ints = attr_ints(&nd, name, &ints);
    if (!count && !n_ints) return op_const_f(g, t, def);
    i64 size = count ? count : n_ints;
    if (size != 1 && sym_is_const(g->sym, s->dim[s->rank - 1], &c) && c != size)
        return op_invalid(e, g, n, "attribute '%s' has %lld numbers for %lld features", name, (long long)size, (long long)c), 0;
    if (size != 1 && !op_require_equal(g, n, s->dim[s->rank - 1], sym_const(g->sym, size), e, "the features and the numbers of attribute '%s'", name)) return 0;
    if (!count) return op_const_i(g, t, ints, size);
    return size == 1 ? op_const_f(g, t, v[0]) : op_ml_const(g, t, v, 1, &size);
}

static bool scaler_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    value_id offset = per_feature(g, n, "offset", DT_F32, 0, e), scale = offset ? per_feature(g, n, "scale", DT_F32, 1, e) : 0;
    if (!scale) return false;
    op_node2(g, n, "Mul", op_node2(g, n, "Sub", op_as(g, n, nd.in.v[0], DT_F32), offset, 0), scale, nd.out.v[0]);
    return true;
}

static bool normalizer_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct str norm = attr_str(&nd, "norm", "MAX");
    const char *op = str_is(norm, "MAX") ? "ReduceMax" : str_is(norm, "L1") ? "ReduceL1" : str_is(norm, "L2") ? "ReduceL2" : NULL;
    if (!op) return op_unsupported(e, g, n, "norm '%.*s'", STR_ARG(norm));
    const i64 last = -1;
    value_id x = op_as(g, n, nd.in.v[0], DT_F32), by = op_node_axes(g, n, op, x, &last, 1, 0);
    value_id zero = op_node_binf(g, n, "Equal", by, DT_F32, 0, 0);
    op_node2(g, n, "Div", x, op_node_where(g, n, zero, op_const_f(g, DT_F32, 1), by, 0), nd.out.v[0]);
    return true;
}

static bool imputer_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    bool f = dtype_is_float(t);
    double old = f ? attr_float(&nd, "replaced_value_float", 0) : 0;
    value_id new = per_feature(g, n, f ? "imputed_value_floats" : "imputed_value_int64s", t, 0, e), x = nd.in.v[0], hit;
    if (!new) return false;
    i64 whole = attr_int(&nd, "replaced_value_int64", 0);
    if (f && isnan(old)) hit = op_node1(g, n, "IsNaN", x, 0);
    else hit = op_node2(g, n, "Equal", x, f ? op_const_f(g, t, old) : op_const_i(g, t, &whole, 1), 0);
    op_node_where(g, n, hit, new, x, nd.out.v[0]);
    return true;
}

static bool binarizer_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    enum dtype t = op_in_dtype(g, &nd, 0);
    value_id more = op_node_binf(g, n, "Greater", op_as(g, n, nd.in.v[0], DT_F32), DT_F32, attr_float(&nd, "threshold", 0), 0);
    op_node_cast(g, n, more, t, nd.out.v[0]);
    return true;
}

static bool extractor_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct shape s = *op_in_shape(g, &nd, 0);
    sym count = shape_count(g->sym, op_in_shape(g, &nd, 1)), row[] = {sym_const(g->sym, 1), count};
    value_id at = op_node_reshape(g, n, nd.in.v[1], 1, &count, 0);
    value_id y = op_node_gather(g, n, nd.in.v[0], at, -1, s.rank == 1 ? 0 : nd.out.v[0]);
    if (s.rank == 1) op_node_reshape(g, n, y, 2, row, nd.out.v[0]);
    return true;
}

static bool vectorizer_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const i64 *dims, first = 0;
    i64 n_dims = attr_ints(&nd, "inputdimensions", &dims), c;
    value_id *v = arena_array(g->arena, value_id, nd.in.n);
    for (u32 k = 0; k < nd.in.n; k++) {
        const struct shape s = *op_in_shape(g, &nd, k);
        if (s.rank > 2) return op_unsupported(e, g, n, "input %u of rank %u", k, s.rank);
        if (k < n_dims && sym_is_const(g->sym, s.dim[s.rank - 1], &c) && c != dims[k])
            return op_unsupported(e, g, n, "input %u has %lld columns, inputdimensions says %lld", k, (long long)c, (long long)dims[k]);
        if (k < n_dims && !op_require_equal(g, n, s.dim[s.rank - 1], sym_const(g->sym, dims[k]), e, "the columns of input %u and inputdimensions", k)) return false;
        v[k] = op_as(g, n, nd.in.v[k], DT_F32);
        if (s.rank == 1) v[k] = op_node_axes(g, n, "Unsqueeze", v[k], &first, 1, 0);
    }
    op_node_concat(g, n, nd.in.n, v, 1, nd.out.v[0]);
    return true;
}

static bool one_hot_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const i64 *cats, last = -1;
    i64 count = attr_ints(&nd, "cats_int64s", &cats);
    if (!count) return op_unsupported(e, g, n, "categories that are strings, or none (attribute 'cats_int64s')");
    value_id x = op_node_axes(g, n, "Unsqueeze", op_node_cast(g, n, nd.in.v[0], DT_I64, 0), &last, 1, 0);
    op_node_cast(g, n, op_node2(g, n, "Equal", x, op_const_i(g, DT_I64, cats, count), 0), DT_F32, nd.out.v[0]);
    return true;
}

static void set_floats(struct graph *g, node_id n, const char *name, i64 count, struct rng *r)
{
    struct attr a = {.name = str_of(name), .kind = ATTR_FLOATS, .n = count, .floats = arena_array(g->arena, double, count)};
    for (i64 i = 0; i < count; i++) a.floats[i] = (double)rng_range(r, -8, 8) / 4;
    attr_copy(g, n, &a);
}

static void random_feature(const struct op *self, struct graph *g, struct rng *r)
{
    struct str op = str_of(self->name);
    bool many = self->max_in > 2, choose = self->max_in == 2;
    i64 dim[] = {rng_range(r, 1, 4), rng_range(r, 1, 5)}, count = rng_range(r, 1, 4), cats[] = {-2, 0, 1, 3};
    value_id in[2];
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I64, 2, dim, &in[0]);
    if (many) random_input(g, "y", graph_value(g, in[0])->dtype, 2, (i64[]){dim[0], 3}, &in[1]);
    if (choose) in[1] = random_const(g, DT_I64, 1, &count, 0, (double)dim[1] - 1, r);
    node_id n = random_node(g, self, many || choose ? 2 : 1, in, 1);
    if (str_is(op, "ai.onnx.ml::Scaler")) set_floats(g, n, "offset", 1, r), set_floats(g, n, "scale", dim[1], r);
    if (str_is(op, "ai.onnx.ml::OneHotEncoder")) attr_set_ints(g, n, "cats_int64s", cats, 4);
    if (str_is(op, "ai.onnx.ml::Binarizer")) attr_set_float(g, n, "threshold", 0.5);
    if (str_is(op, "ai.onnx.ml::Normalizer"))
        attr_set_str(g, n, "norm", (struct str[]){S("MAX"), S("L1"), S("L2")}[rng_range(r, 0, 2)]);
    if (!str_is(op, "ai.onnx.ml::Imputer")) return;
    set_floats(g, n, "imputed_value_floats", dim[1], r);
    attr_set_ints(g, n, "imputed_value_int64s", cats, 1);
    attr_set_float(g, n, "replaced_value_float", 1), attr_set_int(g, n, "replaced_value_int64", 1);
}

/* quern::Lookup */

static bool lookup_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct shape *keys = op_in_shape(g, nd, 1), *values = op_in_shape(g, nd, 2);
    struct shape s = *op_in_shape(g, nd, 0);
    i64 k, v;
    if (op_in_dtype(g, nd, 0) != op_in_dtype(g, nd, 1)) return op_invalid(e, g, n, "keys of another type");
    if (keys->rank != 1 || values->rank != 1 || !sym_is_const(g->sym, keys->dim[0], &k) ||
        !sym_is_const(g->sym, values->dim[0], &v) || v != k + 1)
        return op_invalid(e, g, n, "keys and values are no lists, one value more than keys");
    op_set_out(g, n, 0, op_in_dtype(g, nd, 2), &s);
    return true;
}

static i64 key_cmp(enum dtype t, const void *a, i64 i, const void *b, i64 j)
{
    if (dtype_is_float(t)) return elem_f64(t, a, i) < elem_f64(t, b, j) ? -1 : elem_f64(t, a, i) > elem_f64(t, b, j);
    return elem_i64(t, a, i) < elem_i64(t, b, j) ? -1 : elem_i64(t, a, i) > elem_i64(t, b, j);
}

static bool is_nan(enum dtype t, const void *p, i64 i) { return dtype_is_float(t) && isnan(elem_f64(t, p, i)); }

static bool lookup_eval(const struct op_eval *v, struct err *e)
{
    const struct tensor *x = v->in[0], *keys = v->in[1], *values = v->in[2];
    i64 size = dtype_size(values->dtype);
    for (i64 i = 0; i < tensor_count(x); i++) {
        i64 at = keys->dim[0];
        for (i64 k = 0; k < keys->dim[0] && !is_nan(x->dtype, x->data, i); k++)
            if (!key_cmp(x->dtype, x->data, i, keys->data, k)) at = k;
        memcpy((char *)v->out[0]->data + i * size, (const char *)values->data + at * size, (size_t)size);
    }
    return true;
}

/* Number of keys not above x, by bisection; the last of them may be x. */
static kval lookup_lower(struct emit *m, const struct node *n, u32 out, const kval *idx)
{
    struct kir *k = m->k;
    i64 count = 0, step = 1;
    sym_is_const(m->g->sym, op_in_shape(m->g, n, 1)->dim[0], &count);
    kval x = emit_value(m, n->in.v[0], idx), at = kir_int(k, 0), last = kir_int(k, count);
    if (!count) return emit_value(m, n->in.v[2], &at);
    while (2 * step <= count) step *= 2;
    for (; step; step /= 2) {
        kval next = kir_bin(k, KI_ADD, at, kir_int(k, step));
        kval here = kir_bin(k, KI_SUB, kir_bin(k, KI_MIN, next, last), kir_int(k, 1));
        kval fits = kir_bin(k, KI_AND, kir_bin(k, KI_LE, next, last), kir_bin(k, KI_LE, emit_value(m, n->in.v[1], &here), x));
        at = kir_select(k, fits, next, at);
    }
    kval before = kir_bin(k, KI_MAX, kir_bin(k, KI_SUB, at, kir_int(k, 1)), kir_int(k, 0));
    at = kir_select(k, kir_bin(k, KI_EQ, emit_value(m, n->in.v[1], &before), x), before, last);
    return emit_value(m, n->in.v[2], &at);
}

static void random_lookup(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 4), rng_range(r, 1, 5)}, count = rng_range(r, 0, 9), more = count + 1, key = -5;
    enum dtype t = rng_range(r, 0, 1) ? DT_I64 : DT_F32;
    struct tensor *keys = tensor_new(g->arena, t, 1, &count);
    for (i64 i = 0; i < count; i++) elem_set_f64(t, keys->data, i, (double)(key += rng_range(r, 1, 2)) / (t == DT_F32 ? 2 : 1));
    value_id in[3];
    random_input(g, "x", t, 2, dim, &in[0]);
    in[1] = graph_add_const(g, S("keys"), keys);
    in[2] = random_const(g, rng_range(r, 0, 1) ? DT_F32 : DT_I64, 1, &more, -9, 9, r);
    random_node(g, self, 3, in, 1);
}

/* LabelEncoder */

struct entry {
    double f;     /* the key */
    i64 i, at;    /* the key, its place in the attribute */
};

static int entry_cmp(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->f != y->f) return x->f < y->f ? -1 : 1;
    if (x->i != y->i) return x->i < y->i ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* keys_* or values_* as a tensor; NULL: strings, or none. */
static struct tensor *list(struct graph *g, const struct node *nd, const char *what)
{
    static const char *const kinds[] = {"floats", "int64s", "tensor"};
    for (u32 i = 0; i < countof(kinds); i++) {
        const struct attr *a = node_attr(nd, str_fmt(g->arena, "%s_%s", what, kinds[i]).p);
        if (!a) continue;
        if (a->kind == ATTR_TENSOR) return a->t->dtype == DT_BOOL || dtype_kind(a->t->dtype) == DK_NONE ? NULL : a->t;
        if (a->kind != ATTR_FLOATS && a->kind != ATTR_INTS) return NULL;
        struct tensor *t = tensor_new(g->arena, a->kind == ATTR_FLOATS ? DT_F32 : DT_I64, 1, &a->n);
        for (i64 k = 0; k < a->n; k++) {
            if (a->kind == ATTR_FLOATS) elem_set_f64(DT_F32, t->data, k, a->floats[k]);
            else elem_set_i64(DT_I64, t->data, k, a->ints[k]);
        }
        return t;
    }
    return NULL;
}

static void copy_elem(struct tensor *to, i64 at, const struct tensor *from, i64 i)
{
    if (dtype_is_float(to->dtype)) elem_set_f64(to->dtype, to->data, at, elem_f64(from->dtype, from->data, i));
    else elem_set_i64(to->dtype, to->data, at, elem_i64(from->dtype, from->data, i));
}

static void set_default(const struct node *nd, struct tensor *values, i64 at)
{
    const struct attr *t = node_attr(nd, "default_tensor");
    if (t && t->kind == ATTR_TENSOR && tensor_count(t->t) == 1) copy_elem(values, at, t->t, 0);
    else if (dtype_is_float(values->dtype)) elem_set_f64(values->dtype, values->data, at, attr_float(nd, "default_float", -0.0));
    else elem_set_i64(values->dtype, values->data, at, attr_int(nd, "default_int64", -1));
}

/* Keys ascending without repetition, the last of equal ones counting; values beside them, the
   default last. A NaN's index among the values is -1 if there is none. */
static i64 sorted(struct graph *g, const struct node *nd, const struct tensor *keys, const struct tensor *values, struct tensor *out[2])
{
    i64 n = tensor_count(keys), count = 0, nan = -1;
    struct entry *s = arena_array(g->arena, struct entry, n + 1);
    for (i64 i = 0; i < n; i++) {
        if (is_nan(keys->dtype, keys->data, i)) {
            nan = i;
            continue;
        }
        bool f = dtype_is_float(keys->dtype);
        s[count++] = (struct entry){f ? elem_f64(keys->dtype, keys->data, i) : 0, f ? 0 : elem_i64(keys->dtype, keys->data, i), i};
    }
    qsort(s, (size_t)count, sizeof *s, entry_cmp);
    i64 unique = 0;
    for (i64 i = 0; i < count; i++)
        if (i + 1 == count || s[i].f != s[i + 1].f || s[i].i != s[i + 1].i) s[unique++] = s[i];
    i64 more = unique + 1;
    out[0] = tensor_new(g->arena, keys->dtype, 1, &unique), out[1] = tensor_new(g->arena, values->dtype, 1, &more);
    for (i64 i = 0; i < unique; i++) copy_elem(out[0], i, keys, s[i].at), copy_elem(out[1], i, values, s[i].at);
    set_default(nd, out[1], unique);
    return nan;
}

static bool label_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const struct tensor *keys = list(g, nd, "keys"), *values = list(g, nd, "values");
    if (!keys || !values)
        return op_unsupported(e, g, n, "%s that are strings, or none: only tables from numbers to numbers are supported",
                              keys ? "values" : "keys");
    if (tensor_count(keys) != tensor_count(values)) return op_invalid(e, g, n, "keys and values of different number");
    if (op_in_dtype(g, nd, 0) != keys->dtype)
        return op_invalid(e, g, n, "keys of type %s for an input of type %s", dtype_name(keys->dtype), dtype_name(op_in_dtype(g, nd, 0)));
    struct shape s = *op_in_shape(g, nd, 0);
    op_set_out(g, n, 0, values->dtype, &s);
    return true;
}

static bool label_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const struct tensor *keys = list(g, &nd, "keys"), *values = list(g, &nd, "values");
    struct tensor *table[2];
    i64 nan = sorted(g, &nd, keys, values, table);
    value_id in[] = {nd.in.v[0], graph_add_const(g, S("keys"), table[0]), graph_add_const(g, S("values"), table[1])};
    value_id y = op_node(g, n, "quern::Lookup", 3, in, nan < 0 ? nd.out.v[0] : 0);
    if (nan < 0) return true;
    struct tensor *v = tensor_new(g->arena, values->dtype, 0, NULL);
    copy_elem(v, 0, values, nan);
    value_id of_nan = graph_add_const(g, S("nan"), v), is_nan = op_node1(g, n, "IsNaN", nd.in.v[0], 0);
    op_node_where(g, n, is_nan, of_nan, y, nd.out.v[0]);
    return true;
}

static void random_label(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[] = {rng_range(r, 1, 4), rng_range(r, 1, 5)}, keys[] = {3, -1, 0, 2}, values[] = {5, 6, 7, 8};
    bool f = rng_range(r, 0, 1);
    value_id x;
    random_input(g, "x", f ? DT_F32 : DT_I64, 2, dim, &x);
    node_id n = random_node(g, self, 1, &x, 1);
    if (f) set_floats(g, n, "keys_floats", 4, r);
    else attr_set_ints(g, n, "keys_int64s", keys, 4);
    if (rng_range(r, 0, 1)) set_floats(g, n, "values_floats", 4, r);
    else attr_set_ints(g, n, "values_int64s", values, 4);
    if (rng_range(r, 0, 1)) attr_set_int(g, n, "default_int64", 9);
}

#define ML(op, most, x)                                                                                                \
    {.name = "ai.onnx.ml::" op, .min_in = most == 2 ? 2 : 1, .max_in = most, .min_out = 1, .max_out = 1, .infer = infer, \
     .expand = x##_expand, .random = random_feature}

static const struct op ops[] = {
    ML("Scaler", 1, scaler),
    ML("Normalizer", 1, normalizer),
    ML("Imputer", 1, imputer),
    ML("Binarizer", 1, binarizer),
    ML("ArrayFeatureExtractor", 2, extractor),
    ML("FeatureVectorizer", 255, vectorizer),
    ML("OneHotEncoder", 1, one_hot),
    {.name = "ai.onnx.ml::LabelEncoder",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = label_infer,
     .expand = label_expand,
     .random = random_label},
    {.name = "quern::Lookup",
     .props = OP_VIEW,
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = lookup_infer,
     .eval = lookup_eval,
     .lower = lookup_lower,
     .random = random_lookup},
};

const struct op_family op_ml_feature = {ops, countof(ops)};
