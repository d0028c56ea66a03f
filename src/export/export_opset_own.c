// SPDX-License-Identifier: Apache-2.0
//
// Operators of domain quern, which expansions consist of, as ONNX's own: those that move elements by sizes known as
// expressions, and what counts, compares and reduces. Sizes that are no numbers are computed from the shapes of inputs.
#include "export/export_opset.h"

static const struct node *node_of(const struct opset_job *j) { return graph_node(j->g, j->n); }
static value_id in_of(const struct opset_job *j) { return node_of(j)->in.v[0]; }
static value_id out_of(const struct opset_job *j) { return node_of(j)->out.v[0]; }
static value_id one(struct opset_job *j, i64 v) { return op_const_i(j->g, DT_I64, &v, 1); }
static value_id binary(struct opset_job *j, const char *op, value_id a, value_id b) { return op_node2(j->g, j->n, op, a, b, 0); }

enum opset_result opset_replaced(struct opset_job *j, node_id first)
{
    graph_node(j->g, j->n)->dead = true;
    return op_infer_from(j->g, first, j->e) ? OPSET_DONE : OPSET_FAILED;
}

/* Sizes. */

/* Element k of a tensor of one axis, as a tensor [1]. */
static value_id element(struct opset_job *j, value_id x, i64 k)
{
    return op_node(j->g, j->n, "Slice", 4, (value_id[]){x, one(j, k), one(j, k + 1), one(j, 0)}, 0);
}

/* The size from a value that is computed. */
static value_id made_size(struct opset_job *j, const struct made_size *m)
{
    if (!m->v) return opset_sizes(j, &m->expr, 1);
    value_id x = op_node2(j->g, j->n, "Reshape", m->v, one(j, -1), 0);
    x = op_node_cast(j->g, j->n, element(j, x, m->at), DT_I64, 0);
    if (m->take == SIZE_MINUS) x = op_node1(j->g, j->n, "Neg", x, 0);
    return m->take == SIZE_TAKE ? x : binary(j, "Max", x, one(j, 0));
}

static value_id variable(struct opset_job *j, sym s)
{
    const struct graph *g = j->g;
    u32 var = g->sym->node.v[s].a;
    for (u32 k = 0; k < g->input.n; k++) {
        struct shape given = value_given(g->sym, graph_value(g, g->input.v[k]));
        for (u32 i = 0; i < given.rank; i++) {
            const struct sym_node *d = &g->sym->node.v[given.dim[i]];
            if (d->op == SYM_VAR && d->a == var) return element(j, op_node1(j->g, j->n, "Shape", g->input.v[k], 0), i);
        }
    }
    const struct made_size *m = graph_made(g, var);
    if (m) return made_size(j, m);
    op_unsupported(j->e, j->g, j->n, "size '%.*s' is not one of an input", STR_ARG(g->sym->var.v[var]));
    return 0;
}

static value_id size_of(struct opset_job *j, sym s);

/* The quotient rounded down, where ONNX's rounds to zero: (a - a mod b) / b. */
static value_id floored(struct opset_job *j, value_id a, value_id b)
{
    return binary(j, "Div", binary(j, "Sub", a, binary(j, "Mod", a, b)), b);
}

static value_id compute(struct opset_job *j, sym s)
{
    static const char *const names[] = {[SYM_ADD] = "Add", [SYM_MUL] = "Mul", [SYM_MIN] = "Min", [SYM_MAX] = "Max"};
    const struct sym_node x = j->g->sym->node.v[s];
    if (x.op == SYM_CONST) return one(j, x.value);
    if (x.op == SYM_VAR) return variable(j, s);
    value_id a = size_of(j, x.a), b = a ? size_of(j, x.b) : 0;
    if (!a || !b) return 0;
    return x.op == SYM_DIV ? floored(j, a, b) : binary(j, names[x.op], a, b);
}

static value_id size_of(struct opset_job *j, sym s)
{
    for (u32 k = 0; k < j->size.n; k++)
        if (j->size.v[k].s == s) return j->size.v[k].v;
    value_id v = compute(j, s);
    if (v) *arr_push(j->a, &j->size) = (struct opset_size){s, v};
    return v;
}

value_id opset_sizes(struct opset_job *j, const sym *s, u32 n)
{
    i64 number[2 * MAX_RANK];
    value_id v[2 * MAX_RANK];
    bool known = true;
    assert(n <= countof(v));
    for (u32 k = 0; k < n; k++) known &= sym_is_const(j->g->sym, s[k], &number[k]);
    if (known) return op_const_i(j->g, DT_I64, number, n);
    for (u32 k = 0; k < n; k++)
        if (!(v[k] = size_of(j, s[k]))) return 0;
    return n == 1 ? v[0] : op_node_concat(j->g, j->n, n, v, 0, 0);
}

/* Operators that take sizes. */

static bool syms_of(const struct opset_job *j, const char *name, sym *v, i64 *n)
{
    *n = op_get_syms(j->g, node_of(j), name, v, MAX_RANK);
    return *n >= 0;
}

/* By a node whose input 1 is the attribute's sizes. */
static enum opset_result by_sizes(struct opset_job *j, const char *op, const char *attribute)
{
    sym s[MAX_RANK];
    i64 n;
    node_id first = j->g->node.n;
    if (!syms_of(j, attribute, s, &n)) return OPSET_NO;
    value_id sizes = opset_sizes(j, s, (u32)n);
    if (!sizes) return OPSET_FAILED;
    op_node2(j->g, j->n, op, in_of(j), sizes, out_of(j));
    return opset_replaced(j, first);
}

/* A size 0 says that it is the input's, but with allowzero, since opset 14. */
static enum opset_result reshape(struct opset_job *j)
{
    sym s[MAX_RANK];
    i64 n, v;
    value_id out = out_of(j);
    bool has_zero = false, is_made = false;
    if (!syms_of(j, "shape", s, &n)) return OPSET_NO;
    for (i64 k = 0; k < n; k++) {
        has_zero |= !sym_is_const(j->g->sym, s[k], &v) || v == 0;
        is_made |= op_is_made(j->g, s[k]) || (sym_is_const(j->g->sym, s[k], &v) && v == 0);
    }
    if (is_made && j->opset < 14) return OPSET_NO;
    enum opset_result r = by_sizes(j, "Reshape", "shape");
    if (r == OPSET_DONE && has_zero && j->opset >= 14) attr_set_int(j->g, op_made(j->g, out), "allowzero", 1);
    return r;
}

static enum opset_result expand(struct opset_job *j) { return by_sizes(j, "Expand", "shape"); }
static enum opset_result tile(struct opset_job *j) { return by_sizes(j, "Tile", "repeats"); }

/* One beyond the last element. With a negative step it may be in front of the first one: there -1 would be the last, and every very small number is it. */
static value_id slice_end(struct opset_job *j, const sym *start, const sym *size, const i64 *step, u32 n)
{
    struct symtab *t = j->g->sym;
    sym end[MAX_RANK];
    bool known = true;
    i64 v;
    for (u32 k = 0; k < n; k++) {
        sym last = sym_add(t, start[k], sym_mul(t, sym_sub(t, size[k], sym_const(t, 1)), sym_const(t, step[k])));
        end[k] = sym_add(t, last, sym_const(t, step[k] > 0 ? 1 : -1));
        if (step[k] > 0) continue;
        known &= sym_is_const(t, end[k], &v);
        if (sym_is_const(t, end[k], &v) && v < 0) end[k] = sym_const(t, -INT32_MAX);
    }
    if (known) return opset_sizes(j, end, n);
    op_unsupported(j->e, j->g, j->n, "a slice backwards whose end is not a number");
    return 0;
}

static enum opset_result slice(struct opset_job *j)
{
    sym start[MAX_RANK], size[MAX_RANK];
    i64 axes[MAX_RANK], step[MAX_RANK], n, n_size;
    const i64 *steps;
    u32 k = 0;
    node_id first = j->g->node.n;
    if (!syms_of(j, "start", start, &n) || !syms_of(j, "size", size, &n_size) || n != n_size || attr_ints(node_of(j), "step", &steps) != n) return OPSET_NO;
    const struct shape *s = op_in_shape(j->g, node_of(j), 0);
    for (i64 i = 0; i < n; i++) {
        if (steps[i] == 1 && size[i] == s->dim[i]) continue;
        axes[k] = i, step[k] = steps[i], start[k] = start[i], size[k] = size[i], k++;
    }
    value_id from = opset_sizes(j, start, k), to = from ? slice_end(j, start, size, step, k) : 0;
    if (!to) return OPSET_FAILED;
    value_id in[] = {in_of(j), from, to, op_const_i(j->g, DT_I64, axes, k), op_const_i(j->g, DT_I64, step, k)};
    if (k) op_node(j->g, j->n, "Slice", 5, in, out_of(j));
    else op_node1(j->g, j->n, "Identity", in[0], out_of(j));
    return opset_replaced(j, first);
}

static enum opset_result pad(struct opset_job *j)
{
    sym s[2 * MAX_RANK];
    i64 n, m;
    struct str mode = attr_str(node_of(j), "mode", "constant");
    node_id first = j->g->node.n;
    value_id value = op_node_input(node_of(j), 1);
    if (str_is(mode, "wrap") && j->opset < 19) return OPSET_NO;
    if (!syms_of(j, "before", s, &n) || !syms_of(j, "after", s + n, &m) || m != n) return OPSET_NO;
    value_id in[] = {in_of(j), opset_sizes(j, s, 2 * (u32)n), value};
    if (!in[1]) return OPSET_FAILED;
    value_id y = op_node(j->g, j->n, "Pad", value ? 3 : 2, in, out_of(j));
    attr_set_str(j->g, op_made(j->g, y), "mode", mode);
    return opset_replaced(j, first);
}

/* A size as a scalar. */
static enum opset_result size_scalar(struct opset_job *j)
{
    sym s = sym_parse(j->g->sym, attr_str(node_of(j), "value", ""), j->e);
    enum dtype t = graph_value(j->g, out_of(j))->dtype;
    node_id first = j->g->node.n;
    if (!s) return OPSET_FAILED;
    value_id v = opset_sizes(j, &s, 1);
    if (!v) return OPSET_FAILED;
    v = op_node2(j->g, j->n, "Squeeze", v, one(j, 0), t == DT_I64 ? out_of(j) : 0);
    if (t != DT_I64) op_node_cast(j->g, j->n, v, t, out_of(j));
    return opset_replaced(j, first);
}

/* Every element several times: a new axis behind its own, expanded, joined with it, and cut. */
static enum opset_result repeat(struct opset_job *j)
{
    struct shape s = *op_in_shape(j->g, node_of(j), 0), wide = s;
    u32 axis = (u32)attr_int(node_of(j), "axis", 0);
    sym times = sym_const(j->g->sym, attr_int(node_of(j), "times", 1));
    sym size = graph_value(j->g, out_of(j))->shape.dim[axis], joined = sym_mul(j->g->sym, s.dim[axis], times);
    i64 behind = axis + 1;
    node_id first = j->g->node.n;
    if (s.rank == MAX_RANK) return OPSET_NO;
    for (u32 k = wide.rank++; k > axis + 1; k--) wide.dim[k] = wide.dim[k - 1];
    wide.dim[axis + 1] = times;
    value_id v = op_node_axes(j->g, j->n, "Unsqueeze", in_of(j), &behind, 1, 0);
    v = op_node_expand(j->g, j->n, v, wide.rank, wide.dim, 0);
    s.dim[axis] = joined;
    v = op_node_reshape(j->g, j->n, v, s.rank, s.dim, joined == size ? out_of(j) : 0);
    if (joined != size) op_node_slice(j->g, j->n, v, &s, axis, sym_const(j->g->sym, 0), size, out_of(j));
    return opset_replaced(j, first);
}

/* Others. */

static enum opset_result same_as(struct opset_job *j, const char *op)
{
    const struct node *x = node_of(j);
    node_id first = j->g->node.n;
    op_node_same(j->g, j->n, op, x->in.n, x->in.v, NULL, out_of(j));
    return opset_replaced(j, first);
}

/* Axes are an attribute in front of opset 18, of ReduceSum of opset 13. */
static enum opset_result reduce(struct opset_job *j, const char *op, i64 since)
{
    static const char *const without[] = {"axes", NULL};
    const i64 *axes;
    i64 n = attr_ints(node_of(j), "axes", &axes);
    node_id first = j->g->node.n;
    if (j->opset < since) return same_as(j, op);
    value_id in[] = {in_of(j), n ? op_const_i(j->g, DT_I64, axes, n) : 0};
    op_node_same(j->g, j->n, op, 2, in, without, out_of(j));
    return opset_replaced(j, first);
}

static enum opset_result reduce_sum(struct opset_job *j) { return reduce(j, "ReduceSum", 13); }
static enum opset_result reduce_max(struct opset_job *j) { return reduce(j, "ReduceMax", 18); }
static enum opset_result reduce_min(struct opset_job *j) { return reduce(j, "ReduceMin", 18); }
static enum opset_result reduce_prod(struct opset_job *j) { return reduce(j, "ReduceProd", 18); }
static enum opset_result einsum(struct opset_job *j) { return same_as(j, "Einsum"); }
static enum opset_result max(struct opset_job *j) { return same_as(j, "Max"); }
static enum opset_result min(struct opset_job *j) { return same_as(j, "Min"); }

static enum opset_result cum_sum(struct opset_job *j)
{
    static const char *const without[] = {"axis", "product", NULL};
    node_id first = j->g->node.n;
    if (attr_int(node_of(j), "product", 0)) return OPSET_NO;
    value_id in[] = {in_of(j), op_const_f(j->g, DT_I64, (double)attr_int(node_of(j), "axis", 0))};
    op_node_same(j->g, j->n, "CumSum", 2, in, without, out_of(j));
    return opset_replaced(j, first);
}

static enum opset_result top_k(struct opset_job *j)
{
    static const char *const without[] = {"k", NULL};
    sym k;
    i64 n;
    value_id second = node_of(j)->out.n > 1 ? node_of(j)->out.v[1] : 0;
    node_id first = j->g->node.n;
    if (!syms_of(j, "k", &k, &n) || n != 1) return OPSET_NO;
    value_id in[] = {in_of(j), opset_sizes(j, &k, 1)};
    if (!in[1]) return OPSET_FAILED;
    value_id y = op_node_same(j->g, j->n, "TopK", 2, in, without, out_of(j));
    node_set_out(j->g, op_made(j->g, y), 1, second ? second : graph_add_value(j->g, S("positions")));
    return opset_replaced(j, first);
}

/* Elements of a triangle, by a constant mask where the opset has no Trilu. */
static enum opset_result trilu(struct opset_job *j)
{
    const struct shape *s = op_in_shape(j->g, node_of(j), 0);
    enum dtype t = op_in_dtype(j->g, node_of(j), 0);
    sym k;
    i64 n, diagonal, dim[2];
    bool upper = attr_int(node_of(j), "upper", 1);
    node_id first = j->g->node.n;
    if (!syms_of(j, "k", &k, &n) || n != 1 || t == DT_BOOL) return OPSET_NO;
    bool known = sym_is_const(j->g->sym, k, &diagonal) && sym_is_const(j->g->sym, s->dim[s->rank - 2], &dim[0]) &&
                 sym_is_const(j->g->sym, s->dim[s->rank - 1], &dim[1]);
    if (!known) return op_unsupported(j->e, j->g, j->n, "a triangle whose sizes are not numbers in opset %lld", (long long)j->opset), OPSET_FAILED;
    struct tensor *mask = tensor_try(j->g->arena, DT_BOOL, 2, dim, j->e, "mask of ", node_of(j)->name);
    if (!mask) return OPSET_FAILED;
    for (i64 r = 0; r < dim[0]; r++)
        for (i64 c = 0; c < dim[1]; c++) elem_set_i64(DT_BOOL, mask->data, r * dim[1] + c, upper ? c - r >= diagonal : c - r <= diagonal);
    i64 none = 0;
    value_id zero = dtype_is_float(t) ? op_const_f(j->g, t, 0) : op_const_i(j->g, t, &none, 1);
    op_node_where(j->g, j->n, graph_add_const(j->g, S("triangle"), mask), in_of(j), zero, out_of(j));
    return opset_replaced(j, first);
}

/* Resize. */

static value_id floats(struct opset_job *j, const double *v, i64 n)
{
    struct tensor *t = tensor_new(j->g->arena, DT_F32, 1, &n);
    for (i64 k = 0; k < n; k++) elem_set_f64(DT_F32, t->data, k, v[k]);
    return graph_add_const(j->g, S("scales"), t);
}

/* Where a scale is not the quotient of the sizes, it has to give the size again. */
static bool scale_of(const struct symtab *t, const struct op_resize *r, u32 k, double *scale)
{
    i64 num, den, in, out;
    if (!sym_is_const(t, r->num[k], &num) || !sym_is_const(t, r->den[k], &den) || den <= 0) return false;
    *scale = (double)num / (double)den;
    return !sym_is_const(t, r->in[k], &in) || !sym_is_const(t, r->out[k], &out) || (i64)((float)*scale * (float)in) == out;
}

static value_id resize_scales(struct opset_job *j, const struct op_resize *r)
{
    double scale[MAX_RANK];
    bool ok = true;
    for (u32 k = 0; k < r->rank; k++) ok = ok && scale_of(j->g->sym, r, k, &scale[k]);
    if (ok) return floats(j, scale, r->rank);
    op_unsupported(j->e, j->g, j->n, "scales that have no form in opset %lld", (long long)j->opset);
    return 0;
}

static bool is_stretched(struct symtab *t, const struct op_resize *r)
{
    bool same = true;
    for (u32 k = 0; k < r->rank; k++) same &= sym_mul(t, r->num[k], r->in[k]) == sym_mul(t, r->den[k], r->out[k]);
    return same;
}

/* As models of opset 10 say it: ceil for axes that shrink, else floor. */
static bool simple_rounding(struct opset_job *j, struct op_resize *r)
{
    bool shrinks = false, grows = false;
    i64 num, den;
    for (u32 k = 0; k < r->rank; k++) {
        if (op_resize_same(r, k)) continue;
        if (!sym_is_const(j->g->sym, r->num[k], &num) || !sym_is_const(j->g->sym, r->den[k], &den)) shrinks = grows = true;
        else shrinks |= num < den, grows |= num >= den;
    }
    if (shrinks && grows) return op_unsupported(j->e, j->g, j->n, "axes that grow and others that shrink, or neither is known, in Resize's form of opset 10");
    r->rounding = shrinks ? ROUND_CEIL : ROUND_FLOOR;
    return true;
}

static enum opset_result resize(struct opset_job *j)
{
    struct op_resize r;
    double roi[2 * MAX_RANK];
    node_id first = j->g->node.n;
    if (!op_resize_get(j->g, node_of(j), &r)) return OPSET_NO;
    const struct shape *in = op_in_shape(j->g, node_of(j), 0);
    for (u32 k = 0; k < r.rank; k++) r.in[k] = in->dim[k], roi[k] = r.start[k], roi[k + r.rank] = r.end[k];
    if (r.antialias && j->opset < 18) return OPSET_NO;
    if (r.mode == RESIZE_NEAREST && r.rounding == ROUND_SIMPLE && !simple_rounding(j, &r)) return OPSET_FAILED;
    bool by_size = is_stretched(j->g->sym, &r);
    value_id to = by_size ? opset_sizes(j, r.out, r.rank) : resize_scales(j, &r);
    if (!to) return OPSET_FAILED;
    value_id of[] = {in_of(j), r.coord == COORD_TF_CROP ? floats(j, roi, 2 * r.rank) : 0, by_size ? 0 : to, by_size ? to : 0};
    value_id y = op_node(j->g, j->n, "Resize", by_size ? 4 : 3, of, out_of(j));
    op_resize_modes(j->g, op_made(j->g, y), &r);
    return opset_replaced(j, first);
}

/* By whole factors, every element several times. */
static enum opset_result upsample(struct opset_job *j)
{
    const i64 *factor;
    double scale[MAX_RANK];
    i64 n = attr_ints(node_of(j), "scales", &factor);
    node_id first = j->g->node.n;
    if (n != (i64)op_in_shape(j->g, node_of(j), 0)->rank) return OPSET_NO;
    for (i64 k = 0; k < n; k++) scale[k] = (double)factor[k];
    value_id y = op_node(j->g, j->n, "Resize", 3, (value_id[]){in_of(j), 0, floats(j, scale, n)}, out_of(j));
    attr_set_str(j->g, op_made(j->g, y), "mode", S("nearest"));
    attr_set_str(j->g, op_made(j->g, y), "coordinate_transformation_mode", S("asymmetric"));
    attr_set_str(j->g, op_made(j->g, y), "nearest_mode", S("floor"));
    return opset_replaced(j, first);
}

static const struct { const char *op; enum opset_result (*bring)(struct opset_job *j); } rows[] = {
    {"quern::Reshape", reshape},        {"quern::Expand", expand},        {"quern::Tile", tile},
    {"quern::Slice", slice},            {"quern::Pad", pad},              {"quern::Sym", size_scalar},
    {"quern::Repeat", repeat},          {"quern::ReduceSum", reduce_sum}, {"quern::ReduceMax", reduce_max},
    {"quern::ReduceMin", reduce_min},   {"quern::ReduceProd", reduce_prod}, {"quern::Max", max},
    {"quern::Min", min},                {"quern::CumSum", cum_sum},       {"quern::TopK", top_k},
    {"quern::Trilu", trilu},            {"quern::Resize", resize},        {"quern::ResizeNearest", resize},
    {"quern::Upsample", upsample},      {"quern::Einsum", einsum},
};

enum opset_result opset_own(struct opset_job *j)
{
    for (i64 k = 0; k < countof(rows); k++)
        if (str_is(node_of(j)->op, rows[k].op)) return rows[k].bring(j);
    return OPSET_NO;
}
