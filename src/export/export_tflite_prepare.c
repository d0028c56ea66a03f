// SPDX-License-Identifier: Apache-2.0
//
// Brings a network into a form whose every node has a row of the table: nodes that have none are
// expanded, shape arithmetic and constants are folded (but not DequantizeLinear of weights, which
// stay i8), activations are fused into the operators before them, and x HardSigmoid(x) and its like
// become the operator that TFLite has for them.
#include "export/export_tflite.h"

#include <math.h>

#include "pass/pass.h"

static const char activation_attr[] = "tfl_activation";

const char *tfl_activation(const struct node *n)
{
    static const char *const names[] = {"NONE", "RELU", "RELU_N1_TO_1", "RELU6"};
    i64 k = attr_int(n, activation_attr, 0);
    return names[k];
}

/* Checks. */

static bool check_value(const struct graph *g, value_id v, struct err *e)
{
    const struct value *x = graph_value(g, v);
    i64 dim[MAX_RANK];
    if (!x->shape.known || !shape_is_static(g->sym, &x->shape, dim)) {
        struct buf b = {0};
        for (u32 k = 0; x->shape.known && k < x->shape.rank; k++) {
            if (k) buf_char(&b, ',');
            sym_print(&b, g->sym, sym_plain(g->sym, x->shape.dim[k]));
        }
        err_set(e, ERR_UNSUPPORTED,
                "export to tflite: '%.*s' has sizes [%.*s] that are not fixed; fix them, as by "
                "--assume B=1",
                STR_ARG(x->name), STR_ARG(buf_view(&b)));
        buf_release(&b);
        return false;
    }
    for (u32 k = 0; k < x->shape.rank; k++)
        if (dim[k] <= 0 || dim[k] > INT32_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "export to tflite: '%.*s' has an axis of %lld elements",
                           STR_ARG(x->name), (long long)dim[k]);
    switch ((int)x->dtype) {
    case DT_F32:
    case DT_I32:
    case DT_I64:
    case DT_BOOL:
    case DT_U8:
    case DT_I8: return true;
    default:
        return err_set(e, ERR_UNSUPPORTED,
                       "export to tflite: '%.*s' has elements of type %s; TFLite's operators "
                       "compute in f32 and 8 bits",
                       STR_ARG(x->name), dtype_name(x->dtype));
    }
}

static bool check_all(const struct graph *g, struct err *e)
{
    for (u32 k = 0; k < g->input.n; k++)
        if (!check_value(g, g->input.v[k], e)) return false;
    for (u32 k = 0; k < g->output.n; k++)
        if (!check_value(g, g->output.v[k], e)) return false;
    for (node_id n = 1; n < g->node.n; n++)
        for (u32 k = 0; k < graph_node(g, n)->out.n; k++)
            if (graph_node(g, n)->out.v[k] && !check_value(g, graph_node(g, n)->out.v[k], e))
                return op_blame(e, g, n);
    return true;
}

/* Folding. */

static bool is_op(const struct graph *g, node_id n, const char *op)
{
    return n && !graph_node(g, n)->dead && str_is(graph_node(g, n)->op, op);
}

static bool keeps_codes(const struct graph *g, node_id n)
{
    return is_op(g, n, "DequantizeLinear");
}

static bool fold_all(struct graph *g) { return pass_fold_but(g, keeps_codes); }

/* Transpose of dequantised constants becomes the constants transposed, dequantised. */
static bool transpose_codes(struct graph *g, node_id n, struct err *e)
{
    node_id d = is_op(g, n, "Transpose") ? graph_value(g, graph_node(g, n)->in.v[0])->producer : 0;
    if (!is_op(g, d, "DequantizeLinear") || !graph_value(g, graph_node(g, d)->in.v[0])->data)
        return true;
    const struct node x = *graph_node(g, n), y = *graph_node(g, d);
    u32 rank = graph_value(g, x.out.v[0])->shape.rank, axis = 0;
    const i64 *perm;
    node_id first = g->node.n;
    i64 own = attr_int(&y, "axis", 1), n_perm = attr_ints(&x, "perm", &perm), to = own;
    value_id in[3] = {op_node_same(g, n, "Transpose", 1, y.in.v, NULL, 0), y.in.v[1],
                      op_node_input(&y, 2)};
    if (op_axis(own, rank, &axis))
        for (u32 k = 0; k < rank; k++)
            if ((n_perm ? (u32)perm[k] : rank - 1 - k) == axis) to = k;
    graph_node(g, n)->dead = true;
    op_node_same(g, d, "DequantizeLinear", 3, in, NULL, x.out.v[0]);
    attr_set_int(g, g->node.n - 1, "axis", to);
    for (node_id k = first; k < g->node.n; k++)
        if (!op_infer(g, k, e)) return false;
    return true;
}

static bool run_pass(struct graph *g, const char *name, struct err *e)
{
    bool ok = true;
    for (i64 k = 0; pass_at(k); k++)
        if (str_is(str_of(pass_at(k)->name), name)) pass_at(k)->run(g, &ok, e);
    return ok;
}

/* Expansion. */

static bool is_constant(const struct graph *g, value_id v)
{
    node_id p = v ? graph_value(g, v)->producer : 0;
    return !v || graph_value(g, v)->data ||
           (is_op(g, p, "DequantizeLinear") && graph_value(g, graph_node(g, p)->in.v[0])->data);
}

/* A Gemm that FULLY_CONNECTED computes: of constant weights and a constant for each column. */
static bool is_plain_gemm(const struct graph *g, const struct node *n)
{
    i64 columns = 0, count = 0;
    value_id c = op_node_input(n, 2);
    sym_is_const(g->sym, graph_value(g, n->out.v[0])->shape.dim[1], &columns);
    if (c) sym_is_const(g->sym, shape_count(g->sym, &graph_value(g, c)->shape), &count);
    bool is_row =
        !c || count == 1 ||
        (count == columns && graph_value(g, c)->shape.dim[graph_value(g, c)->shape.rank - 1] ==
                                 graph_value(g, n->out.v[0])->shape.dim[1]);
    bool is_one =
        fabs(attr_float(n, "alpha", 1) - 1) <= 0 && (!c || fabs(attr_float(n, "beta", 1) - 1) <= 0);
    return is_row && is_one && !attr_int(n, "transA", 0) && is_constant(g, n->in.v[1]) &&
           is_constant(g, c);
}

static bool has_form(const struct graph *g, const struct node *n, tfl_row_fn *row)
{
    if (str_is(n->op, "Gemm")) return is_plain_gemm(g, n);
    if (str_is(n->op, "Elu")) return fabs(attr_float(n, "alpha", 1) - 1) <= 0;
    return row(n->op);
}

static bool expand_all(struct graph *g, tfl_row_fn *row, struct err *e)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || has_form(g, x, row)) continue;
        const struct op *op = op_of(g, n);
        if (tfl_expand_function(g, n, e)) continue;
        if (e->code) return false;
        if (!op->expand)
            return op_unsupported(e, g, n, "TFLite has no such operator (export to tflite)");
        if (!op_expand(g, n, e)) return false;
        if (!mem_check(e, "expanding ", x->op)) return false;
    }
    return true;
}

/* Fusion. */

static node_id only_producer(const struct graph *g, const u32 *uses, value_id v)
{
    return uses[v] == 1 && !graph_is_output(g, v) ? graph_value(g, v)->producer : 0;
}

static bool constant_number(const struct graph *g, const struct node *n, u32 k, double *v)
{
    const struct tensor *t = k < n->in.n && n->in.v[k] ? graph_value(g, n->in.v[k])->data : NULL;
    if (!t || tensor_count(t) != 1) return k >= n->in.n || !n->in.v[k];
    *v = elem_f64(t->dtype, t->data, 0);
    return true;
}

/* The bounds of Relu or Clip. */
static bool bounds(const struct graph *g, const struct node *n, double *lo, double *hi)
{
    *lo = 0, *hi = INFINITY;
    if (str_is(n->op, "Relu")) return true;
    if (!str_is(n->op, "Clip")) return false;
    *lo = attr_float(n, "min", -INFINITY), *hi = attr_float(n, "max", INFINITY);
    return constant_number(g, n, 1, lo) && constant_number(g, n, 2, hi);
}

/* Number of such bounds among fused activations; 0: none. */
static i64 activation_of(double lo, double hi)
{
    bool from_0 = fabs(lo) <= 0;
    if (from_0 && isinf(hi)) return 1;
    if (fabs(lo + 1) <= 0 && fabs(hi - 1) <= 0) return 2;
    return from_0 && fabs(hi - 6) <= 0 ? 3 : 0;
}

static bool fuses(const struct node *n)
{
    static const char *const ops[] = {"Conv", "Gemm", "Add",     "Sub",
                                      "Mul",  "Div",  "MaxPool", "AveragePool"};
    for (i64 k = 0; k < countof(ops); k++)
        if (str_is(n->op, ops[k])) return !attr_int(n, activation_attr, 0);
    return false;
}

/* Whether the only reader of v is a QuantizeLinear that saturates at or within these bounds. */
static bool saturates(const struct graph *g, const u32 *uses, value_id v, double lo, double hi)
{
    const struct node *q = NULL;
    double scale = 0, zero = 0;
    for (node_id n = 1; n < g->node.n && uses[v] == 1; n++)
        if (is_op(g, n, "QuantizeLinear") && graph_node(g, n)->in.v[0] == v) q = graph_node(g, n);
    if (!q || !constant_number(g, q, 1, &scale) || !constant_number(g, q, 2, &zero) || !(scale > 0))
        return false;
    enum dtype type = graph_value(g, q->out.v[0])->dtype;
    double least = type == DT_I8 ? -128 : 0, most = least + 255;
    return (type == DT_I8 || type == DT_U8) && rint(lo / scale) + zero <= least &&
           rint(hi / scale) + zero >= most;
}

static void fuse_activation(struct graph *g, node_id n, const u32 *uses)
{
    const struct node x = *graph_node(g, n);
    double lo, hi;
    if (x.dead || !bounds(g, &x, &lo, &hi) || graph_value(g, x.out.v[0])->dtype != DT_F32) return;
    node_id p = only_producer(g, uses, x.in.v[0]);
    i64 activation = activation_of(lo, hi);
    bool is_fused = activation && p && fuses(graph_node(g, p)) && graph_node(g, p)->out.n == 1;
    bool is_idle =
        !is_fused && saturates(g, uses, x.out.v[0], lo, hi) && p && graph_node(g, p)->out.n == 1;
    if (!is_fused && !is_idle) return;
    if (is_fused) attr_set_int(g, p, activation_attr, activation);
    graph_node(g, n)->dead = true;
    graph_value(g, x.in.v[0])->producer = 0;
    node_set_out(g, p, 0, x.out.v[0]);
}

/* x HardSigmoid(x) with the slope 1/6 */
static bool find_hard_swish(struct graph *g, node_id n, const u32 *uses, struct err *e)
{
    for (u32 k = 0; k < 2 && is_op(g, n, "Mul"); k++) {
        const struct node x = *graph_node(g, n);
        node_id h = only_producer(g, uses, x.in.v[k]);
        if (!is_op(g, h, "HardSigmoid") || graph_node(g, h)->in.v[0] != x.in.v[1 - k]) continue;
        const struct node *s = graph_node(g, h);
        if (fabs(attr_float(s, "alpha", 0.2) - 1.0 / 6) > 1e-6 ||
            fabs(attr_float(s, "beta", 0.5) - 0.5) > 1e-6)
            continue;
        graph_node(g, n)->dead = graph_node(g, h)->dead = true;
        op_node(g, n, "HardSwish", 1, &x.in.v[1 - k], x.out.v[0]);
        return op_infer(g, g->node.n - 1, e);
    }
    return true;
}

static bool fuse_all(struct graph *g, struct err *e)
{
    struct arena work = {0};
    const u32 *uses = graph_use_counts(g, &work);
    bool ok = true;
    for (node_id n = 1, end = g->node.n; n < end && ok; n++) ok = find_hard_swish(g, n, uses, e);
    for (node_id n = 1; n < g->node.n && ok; n++)
        if (!graph_node(g, n)->dead) fuse_activation(g, n, uses);
    arena_release(&work);
    return ok && graph_sort(g, e);
}

bool tfl_prepare(struct tfl *t, const struct graph *g)
{
    struct graph *to = &t->g;
    struct err *e = t->e;
    graph_clone(to, g, t->a);
    if (!op_infer_all(to, e)) return false;
    pass_drop_same(to);
    fold_all(to);
    if (!graph_sort(to, e)) return false;
    if (to->made.n)
        return err_set(e, ERR_UNSUPPORTED,
                       "export to tflite: the network has sizes that depend on data");
    for (node_id n = 1, end = to->node.n; n < end; n++)
        if (!transpose_codes(to, n, e)) return false;
    fold_all(to);
    if (!graph_sort(to, e) || !run_pass(to, "gelu", e) || !run_pass(to, "swish", e) ||
        !graph_sort(to, e))
        return false;
    if (!check_all(to, e) || !expand_all(to, t->row, e)) return false;
    fold_all(to);
    if (!graph_sort(to, e)) return false;
    pass_drop_same(to);
    return graph_sort(to, e) && fuse_all(to, e) && check_all(to, e);
}
