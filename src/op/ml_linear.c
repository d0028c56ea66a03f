// SPDX-License-Identifier: Apache-2.0
//
// ai.onnx.ml: linear models and support vector machines, composites of matrix products with constants.
//
//   LinearRegressor, LinearClassifier   x coefficients^T + intercepts
//   SVMRegressor, SVMClassifier         sums of a kernel of x and the support vectors: x.s, (gamma x.s + coef0)^degree,
//                                       exp(-gamma |x - s|^2) or tanh(gamma x.s + coef0)
//
// Computed in f32, as ONNX Runtime does. Dimensions: n rows, f features, k targets or classes, v support vectors.
#include "op/op.h"

/* Features, 0: not known. */
static i64 features(const struct graph *g, const struct node *nd)
{
    const struct shape *s = op_in_shape(g, nd, 0);
    i64 f;
    return s->rank && sym_is_const(g->sym, s->dim[s->rank - 1], &f) ? f : 0;
}

static bool check_x(const struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, 0);
    if (!dtype_is_float(t) && !dtype_is_int(t)) return op_unsupported(e, g, n, "input of type %s", dtype_name(t));
    if (!op_check_rank(g, n, 0, 1, 2, e) || !op_ml_check_transform(g, n, e)) return false;
    return features(g, nd) > 0 || op_unsupported(e, g, n, "the number of features is not known");
}

/* Input as f32 (n, f). */
static value_id rows(struct graph *g, node_id n)
{
    const struct node nd = *graph_node(g, n);
    const i64 first = 0;
    value_id x = op_as(g, n, nd.in.v[0], DT_F32);
    return op_in_shape(g, &nd, 0)->rank == 1 ? op_node_axes(g, n, "Unsqueeze", x, &first, 1, 0) : x;
}

/* v (a, b), row by row, as the constant (b, a) */
static value_id transposed(struct graph *g, const double *v, i64 a, i64 b)
{
    struct tensor *t = tensor_new(g->arena, DT_F32, 2, (i64[]){b, a});
    for (i64 i = 0; i < a; i++)
        for (i64 j = 0; j < b; j++) elem_set_f64(DT_F32, t->data, j * a + i, v[i * b + j]);
    return graph_add_const(g, S("coefficients"), t);
}

/* Rows of coefficients; 0: they do not fit the features. */
static i64 n_rows(const struct graph *g, node_id n, const char *name, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const double *v;
    i64 count = op_ml_floats(g, nd, name, &v), f = features(g, nd);
    if (count && f && count % f == 0) return count / f;
    op_invalid(e, g, n, "%lld numbers in attribute '%s' for %lld features", (long long)count, name, (long long)f);
    return 0;
}

/* x coefficients^T + intercepts, (n, k) */
static value_id linear(struct graph *g, node_id n, i64 k)
{
    const struct node nd = *graph_node(g, n);
    const double *c = NULL, *b = NULL;
    op_ml_floats(g, &nd, "coefficients", &c);
    value_id w = transposed(g, c, k, features(g, &nd)), y = op_node2(g, n, "MatMul", rows(g, n), w, 0);
    return op_ml_floats(g, &nd, "intercepts", &b) == k ? op_node2(g, n, "Add", y, op_ml_const(g, DT_F32, b, 1, &k), 0) : y;
}

static bool intercepts_fit(const struct graph *g, node_id n, i64 k, struct err *e)
{
    const double *b;
    i64 count = op_ml_floats(g, graph_node(g, n), "intercepts", &b);
    return !count || count == k || op_invalid(e, g, n, "%lld intercepts for %lld results", (long long)count, (long long)k);
}

static bool regressor_infer(struct graph *g, node_id n, struct err *e)
{
    i64 k, targets = attr_int(graph_node(g, n), "targets", 1);
    if (!check_x(g, n, e) || !(k = n_rows(g, n, "coefficients", e)) || !intercepts_fit(g, n, k, e)) return false;
    if (k != targets) return op_invalid(e, g, n, "coefficients of %lld targets, not %lld", (long long)k, (long long)targets);
    return op_infer_expanded(g, n, e);
}

static bool regressor_expand(struct graph *g, node_id n, struct err *e)
{
    value_id y = linear(g, n, attr_int(graph_node(g, n), "targets", 1));
    op_node1(g, n, "Identity", op_ml_transform(g, n, y, DT_F32), graph_node(g, n)->out.v[0]);
    return true;
}

static bool classifier_infer(struct graph *g, node_id n, struct err *e)
{
    i64 k;
    const i64 *v;
    if (!check_x(g, n, e) || !(k = n_rows(g, n, "coefficients", e)) || !intercepts_fit(g, n, k, e)) return false;
    if (!op_ml_check_labels(g, n, "classlabels_ints", "classlabels_strings", e)) return false;
    i64 labels = attr_ints(graph_node(g, n), "classlabels_ints", &v);
    if (labels && labels != k && !(k == 1 && labels == 2))
        return op_invalid(e, g, n, "%lld labels for %lld classes", (long long)labels, (long long)k);
    return op_infer_expanded(g, n, e);
}

static value_id output(const struct node *nd, u32 k) { return k < nd->out.n ? nd->out.v[k] : 0; }

/* Whether column 0 of scores is above `least`, (n). */
static value_id is_above(struct graph *g, node_id n, value_id scores, double least)
{
    const i64 column = 1;
    return op_node_axes(g, n, "Squeeze", op_node_binf(g, n, "Greater", scores, DT_F32, least, 0), &column, 1, 0);
}

/* The second label if yes, else the first. A single label: 1 and 0 instead, as in ONNX Runtime. */
static void two_labels(struct graph *g, node_id n, value_id yes)
{
    const struct node nd = *graph_node(g, n);
    const i64 *v, zero_one[] = {0, 1};
    if (!nd.out.v[0]) return;
    if (attr_ints(&nd, "classlabels_ints", &v) != 2) v = zero_one;
    value_id table = op_const_i(g, DT_I64, v, 2);
    op_node_gather(g, n, table, op_node_cast(g, n, yes, DT_I64, 0), 0, nd.out.v[0]);
}

static bool classifier_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const double *c;
    const i64 *labels;
    i64 k = op_ml_floats(g, &nd, "coefficients", &c) / features(g, &nd), n_labels = attr_ints(&nd, "classlabels_ints", &labels);
    value_id scores = linear(g, n, k), z = output(&nd, 1);
    if (k == 1) two_labels(g, n, is_above(g, n, scores, 0));
    else if (nd.out.v[0]) op_ml_labels(g, n, op_ml_best(g, n, scores), "classlabels_ints", nd.out.v[0]);
    if (!z) return true;
    if (k > 1 || n_labels != 2 || str_is(attr_str(&nd, "post_transform", "NONE"), "PROBIT")) {
        op_node1(g, n, "Identity", op_ml_transform(g, n, scores, DT_F32), z);
        return true;
    }
    op_node1(g, n, "Identity", op_ml_two(g, n, scores, true), z);
    return true;
}

/* Support vectors. */

static struct str kernel(const struct node *nd) { return attr_str(nd, "kernel_type", "LINEAR"); }

/* Kernel of x and v vectors, (n, v). */
static value_id kernels(struct graph *g, node_id n, value_id x, i64 v)
{
    const struct node nd = *graph_node(g, n);
    const double *s = NULL, *p = NULL, none[3] = {0};
    const i64 middle = 1, last = -1;
    i64 f = features(g, &nd), dim[] = {v, f};
    op_ml_floats(g, &nd, "support_vectors", &s);
    if (op_ml_floats(g, &nd, "kernel_params", &p) < 3) p = none;
    if (str_is(kernel(&nd), "RBF")) {
        value_id vectors = op_ml_const(g, DT_F32, s, 2, dim);
        value_id d = op_node2(g, n, "Sub", op_node_axes(g, n, "Unsqueeze", x, &middle, 1, 0), vectors, 0);
        value_id sum = op_node_axes(g, n, "ReduceSum", op_node2(g, n, "Mul", d, d, 0), &last, 1, 0);
        attr_set_int(g, op_made(g, sum), "keepdims", 0);
        return op_node1(g, n, "Exp", op_node_binf(g, n, "Mul", sum, DT_F32, -p[0], 0), 0);
    }
    value_id y = op_node2(g, n, "MatMul", x, transposed(g, s, v, f), 0);
    if (str_is(kernel(&nd), "LINEAR")) return y;
    y = op_node_binf(g, n, "Add", op_node_binf(g, n, "Mul", y, DT_F32, p[0], 0), DT_F32, p[1], 0);
    return str_is(kernel(&nd), "POLY") ? op_node_binf(g, n, "Pow", y, DT_F32, p[2], 0) : op_node1(g, n, "Tanh", y, 0);
}

static bool check_kernel(const struct graph *g, node_id n, struct err *e)
{
    static const char *const known[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
    struct str s = kernel(graph_node(g, n));
    for (u32 i = 0; i < countof(known); i++)
        if (str_is(s, known[i])) return true;
    return op_unsupported(e, g, n, "kernel_type '%.*s'", STR_ARG(s));
}

static bool svr_infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const double *c, *s, *rho;
    i64 v = attr_int(nd, "n_supports", 0), f = features(g, nd);
    if (!check_x(g, n, e) || !check_kernel(g, n, e)) return false;
    i64 n_coef = op_ml_floats(g, nd, "coefficients", &c), n_s = op_ml_floats(g, nd, "support_vectors", &s);
    if (v < 0 || op_ml_floats(g, nd, "rho", &rho) < 1 || n_coef != (v ? v : f) || (v && n_s / f != v))
        return op_invalid(e, g, n, "%lld coefficients and %lld numbers of %lld support vectors for %lld features",
                          (long long)n_coef, (long long)n_s, (long long)v, (long long)f);
    return op_infer_expanded(g, n, e);
}

static bool svr_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    const double *c = NULL, *rho = NULL;
    i64 v = attr_int(&nd, "n_supports", 0), count = op_ml_floats(g, &nd, "coefficients", &c);
    op_ml_floats(g, &nd, "rho", &rho);
    value_id x = v ? kernels(g, n, rows(g, n), v) : rows(g, n);
    value_id y = op_node_binf(g, n, "Add", op_node2(g, n, "MatMul", x, transposed(g, c, 1, count), 0), DT_F32, rho[0], 0);
    if (attr_int(&nd, "one_class", 0)) {
        value_id yes = op_node_binf(g, n, "Greater", y, DT_F32, 0, 0);
        value_id minus_one = op_const_f(g, DT_F32, -1), one = op_const_f(g, DT_F32, 1);
        y = op_node_where(g, n, yes, one, minus_one, 0);
    } else {
        y = op_ml_transform(g, n, y, DT_F32);
    }
    op_node1(g, n, "Identity", y, nd.out.v[0]);
    return true;
}

/* SVMClassifier: with support vectors one score for each pair of classes i < j, above 0 where i wins, and the class that wins
   most; without, one for each class. */

struct svc {
    i64 k, v, pairs, f;          /* classes, vectors (0: linear) */
    const i64 *per;              /* vectors of each class */
    const double *coef, *rho, *a, *b;
    i64 n_rho, n_a;
};

static bool read_svc(const struct graph *g, node_id n, struct svc *s, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    const double *vectors;
    const i64 *labels;
    *s = (struct svc){.f = features(g, nd)};
    i64 n_per = attr_ints(nd, "vectors_per_class", &s->per), n_labels = attr_ints(nd, "classlabels_ints", &labels);
    i64 n_coef = op_ml_floats(g, nd, "coefficients", &s->coef), n_vec = op_ml_floats(g, nd, "support_vectors", &vectors), n_b;
    const struct attr *strings = node_attr(nd, "classlabels_strings");
    s->n_rho = op_ml_floats(g, nd, "rho", &s->rho), s->n_a = op_ml_floats(g, nd, "prob_a", &s->a);
    n_b = op_ml_floats(g, nd, "prob_b", &s->b);
    s->k = n_labels ? n_labels : strings && strings->kind == ATTR_STRS ? strings->n : n_per;
    if (s->k < 1 || s->k > 4096 || (n_per && n_per != s->k) || s->n_a != n_b)
        return op_invalid(e, g, n, "classes, vectors_per_class and probabilities do not go together");
    s->pairs = s->k * (s->k - 1) / 2;
    for (i64 i = 0; i < n_per; i++) {
        if (s->per[i] < 0 || s->per[i] > n_vec) return op_invalid(e, g, n, "vectors_per_class %lld", (long long)s->per[i]);
        s->v += s->per[i];
    }
    bool fits = s->v ? s->k > 1 && n_coef == (s->k - 1) * s->v && n_vec == s->v * s->f && s->n_rho == s->pairs
                     : n_coef == s->k * s->f && s->n_rho >= 1;
    if (!fits) return op_invalid(e, g, n, "coefficients, support vectors or rho do not fit %lld classes", (long long)s->k);
    return true;
}

static bool svc_infer(struct graph *g, node_id n, struct err *e)
{
    struct svc s;
    if (!check_x(g, n, e) || !check_kernel(g, n, e) || !read_svc(g, n, &s, e)) return false;
    if (s.n_a && s.k > 2)
        return op_unsupported(e, g, n, "probabilities of more than two classes (attribute 'prob_a'), which are found by "
                              "iteration: train the model with probability=False");
    return op_ml_check_labels(g, n, "classlabels_ints", "classlabels_strings", e) && op_infer_expanded(g, n, e);
}

/* Coefficients of all pairs as one matrix (v, pairs). */
static value_id pair_coefficients(struct graph *g, node_id n, const struct svc *s, struct err *e)
{
    struct tensor *t = tensor_try(g->arena, DT_F32, 2, (i64[]){s->v, s->pairs}, e, "its coefficients", S(""));
    if (!t) return 0;
    i64 at = 0, *from = arena_array(g->arena, i64, s->k + 1);
    for (i64 i = 0; i < s->k; i++) from[i + 1] = from[i] + s->per[i];
    for (i64 i = 0; i < s->k; i++)
        for (i64 j = i + 1; j < s->k; j++, at++) {
            for (i64 v = from[i]; v < from[i + 1]; v++) elem_set_f64(DT_F32, t->data, v * s->pairs + at, s->coef[(j - 1) * s->v + v]);
            for (i64 v = from[j]; v < from[j + 1]; v++) elem_set_f64(DT_F32, t->data, v * s->pairs + at, s->coef[i * s->v + v]);
        }
    return graph_add_const(g, S("coefficients"), t);
}

/* Votes (n, k) from the scores of pairs (n, pairs): the matrix has 1 if a class wins by a score
   above 0, -1 if it wins otherwise, so wins = yes * m + (number of -1). */
static value_id votes(struct graph *g, node_id n, const struct svc *s, value_id scores, struct err *e)
{
    struct tensor *m = tensor_try(g->arena, DT_F32, 2, (i64[]){s->pairs, s->k}, e, "its votes", S(""));
    struct tensor *base = tensor_new(g->arena, DT_F32, 1, &s->k);
    if (!m) return 0;
    i64 at = 0;
    for (i64 i = 0; i < s->k; i++)
        for (i64 j = i + 1; j < s->k; j++, at++) {
            elem_set_f64(DT_F32, m->data, at * s->k + i, 1), elem_set_f64(DT_F32, m->data, at * s->k + j, -1);
            elem_set_f64(DT_F32, base->data, j, elem_f64(DT_F32, base->data, j) + 1);
        }
    value_id yes = op_node_cast(g, n, op_node_binf(g, n, "Greater", scores, DT_F32, 0, 0), DT_F32, 0);
    value_id from = graph_add_const(g, S("wins"), base), wins = graph_add_const(g, S("wins"), m);
    return op_node2(g, n, "Add", op_node2(g, n, "MatMul", yes, wins, 0), from, 0);
}

/* Of two classes, by Platt's sigmoid. */
static value_id probabilities(struct graph *g, node_id n, const struct svc *s, value_id score)
{
    value_id y = op_node_binf(g, n, "Add", op_node_binf(g, n, "Mul", score, DT_F32, s->a[0], 0), DT_F32, s->b[0], 0);
    value_id p = op_node1(g, n, "Sigmoid", op_node1(g, n, "Neg", y, 0), 0);
    p = op_node_binf(g, n, "Min", op_node_binf(g, n, "Max", p, DT_F32, 1e-7, 0), DT_F32, 1 - 1e-7, 0);
    return op_ml_pair(g, n, p, op_node2(g, n, "Sub", op_const_f(g, DT_F32, 1), p, 0));
}

static bool svc_expand(struct graph *g, node_id n, struct err *e)
{
    const struct node nd = *graph_node(g, n);
    struct svc s;
    if (!read_svc(g, n, &s, e)) return false;
    value_id x = rows(g, n), scores, best, z = output(&nd, 1);
    if (s.v) {
        value_id pairs = pair_coefficients(g, n, &s, e);
        if (!pairs) return false;
        scores = op_node2(g, n, "MatMul", kernels(g, n, x, s.v), pairs, 0);
        scores = op_node2(g, n, "Add", scores, op_ml_const(g, DT_F32, s.rho, 1, &s.pairs), 0);
        best = votes(g, n, &s, scores, e);
        if (!best) return false;
        if (s.n_a) scores = probabilities(g, n, &s, scores);
    } else {
        scores = op_node2(g, n, "MatMul", x, transposed(g, s.coef, s.k, s.f), 0);
        scores = best = op_node_binf(g, n, "Add", scores, DT_F32, s.rho[0], 0);
    }
    if (nd.out.v[0]) op_ml_labels(g, n, op_ml_best(g, n, best), "classlabels_ints", nd.out.v[0]);
    if (!z) return true;
    struct str post = attr_str(&nd, "post_transform", "NONE");
    if (s.v && s.k == 2 && !s.n_a && !str_is(post, "PROBIT")) scores = op_ml_two(g, n, scores, !str_is(post, "NONE"));
    else scores = op_ml_transform(g, n, scores, DT_F32);
    op_node1(g, n, "Identity", scores, z);
    return true;
}

/* Random instances. */

static void set_floats(struct graph *g, node_id n, const char *name, i64 count, struct rng *r)
{
    struct attr a = {.name = str_of(name), .kind = ATTR_FLOATS, .n = count, .floats = arena_array(g->arena, double, count)};
    for (i64 i = 0; i < count; i++) a.floats[i] = (double)rng_range(r, -8, 8) / 8 + 0.0625;
    attr_copy(g, n, &a);
}

static void random_ml(const struct op *self, struct graph *g, struct rng *r)
{
    static const char *const transforms[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"},
                            *const kinds[] = {"LINEAR", "RBF", "SIGMOID"};
    struct str op = str_of(self->name);
    bool classes = self->max_out == 2;
    i64 rows = rng_range(r, 1, 4), f = rng_range(r, 1, 4), k = rng_range(r, classes ? 2 : 1, 3), v = rng_range(r, 1, 4);
    i64 labels[] = {7, 3, 5}, per[] = {v, 1, 1};
    value_id x;
    random_input(g, "x", rng_range(r, 0, 3) ? DT_F32 : DT_I64, 2, (i64[]){rows, f}, &x);
    node_id n = random_node(g, self, 1, &x, self->max_out);
    attr_set_str(g, n, "post_transform", str_of(transforms[rng_range(r, 0, 3)]));
    if (classes) attr_set_ints(g, n, "classlabels_ints", labels, k);
    if (str_starts(op, S("ai.onnx.ml::Linear"))) {
        set_floats(g, n, "coefficients", k * f, r), set_floats(g, n, "intercepts", k, r);
        if (!classes) attr_set_int(g, n, "targets", k);
        return;
    }
    v = classes ? v + k - 1 : v;
    attr_set_str(g, n, "kernel_type", str_of(kinds[rng_range(r, 0, 2)]));
    set_floats(g, n, "kernel_params", 3, r), set_floats(g, n, "support_vectors", v * f, r);
    set_floats(g, n, "coefficients", classes ? (k - 1) * v : v, r), set_floats(g, n, "rho", classes ? k * (k - 1) / 2 : 1, r);
    if (!classes) attr_set_int(g, n, "n_supports", v);
    if (classes) attr_set_ints(g, n, "vectors_per_class", per, k);
    if (classes && k == 2 && rng_range(r, 0, 1)) set_floats(g, n, "prob_a", 1, r), set_floats(g, n, "prob_b", 1, r);
}

#define ML(op, outs, what)                                                                                             \
    {.name = "ai.onnx.ml::" op, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = outs, .infer = what##_infer,          \
     .expand = what##_expand, .random = random_ml}

static const struct op ops[] = {
    ML("LinearRegressor", 1, regressor),
    ML("LinearClassifier", 2, classifier),
    ML("SVMRegressor", 1, svr),
    ML("SVMClassifier", 2, svc),
};

const struct op_family op_ml_linear = {ops, countof(ops)};
