// SPDX-License-Identifier: Apache-2.0
//
// gemm: a GEMM taken apart. When the right operand has no batches the left one's are
// rows like any others, merged where memory allows. The epilogue may run on tiles of the result
// when it is pointwise and its outputs are stored along columns or along rows; else it needs a grid
// of its own.
//
// A convolution with kernels of one pixel is a GEMM, too: pixels are the rows, merged
// where the outputs allow, and weights (n, k) the right operand. Its strides only move the rows of
// the left operand apart; then it is read by its axes and packed.
#include "gen/gemm.h"
#include "gen/conv.h"
#include "gen/tile.h"

static bool is_one(const struct graph *g, sym s) { return gen_static(g, s, 0) == 1; }

static struct space without(const struct space *s, u32 axis)
{
    struct space r = {.rank = s->rank};
    for (u32 i = 0; i < s->n; i++)
        if (s->g[i].axis != axis) r.g[r.n++] = s->g[i];
    return r;
}

/* May the epilogue run on the tiles? */
static void find_epilogue(struct gemm *x, const struct task *t)
{
    enum layout first = graph_value(x->g, t->g.output.v[0])->layout;
    bool one_column = is_one(x->g, x->n);
    x->simple = true;
    for (u32 i = 0; i < t->g.output.n; i++) {
        value_id v = t->g.output.v[i];
        enum layout l = graph_value(x->g, v)->layout;
        bool fits = l == first &&
                    (l == LAYOUT_ROWS || (l == LAYOUT_CLAST && x->ys->rank == 3 && x->m_axis == 1));
        x->simple = x->simple && fits && gen_depends(x->g, v, x->y) &&
                    gen_pointwise_tail(x->g, v, x->y) &&
                    shape_equal(&graph_value(x->g, v)->shape, x->ys);
    }
    x->by_rows = x->simple && x->m_axis >= 0 && (first == LAYOUT_CLAST || one_column);
    if (x->simple && one_column && !x->by_rows) x->simple = false;
}

static bool same_space(const struct space *a, const struct space *b)
{
    for (u32 i = 0; i < a->n; i++)
        if (i >= b->n || a->g[i].axis != b->g[i].axis || a->g[i].extent != b->g[i].extent)
            return false;
    return a->n == b->n;
}

/* Rows: the axis m, with the batches merged into it where both sides allow. */
static void find_rows(struct gemm *x)
{
    const value_id stop[] = {x->y, 0};
    struct space rows, left;
    u32 r = x->ys->rank;
    x->outer = (struct space){.rank = r};
    if (x->simple && x->bs->rank == 2 && x->as->rank == r && r > 2 && !x->by_rows) {
        space_of(&rows, x->g, x->g->output.v[0], stop, 1u << x->n_axis);
        space_of(&left, x->g, x->a, NULL, 1u << (r - 1));
        rows = without(&rows, x->n_axis);
        left = without(&left, r - 1);
        if (x->g->output.n == 1 && rows.n && same_space(&rows, &left)) {
            struct axis_run last = rows.g[--rows.n];
            x->outer = rows;
            x->m_axis = (i32)last.axis;
            x->m = last.extent;
            x->merged = true;
            return;
        }
    }
    for (u32 i = 0; i < x->batch; i++)
        x->outer.g[x->outer.n++] = (struct axis_run){x->ys->dim[i], i};
}

static bool is_plain(const struct value *v)
{
    return !v->producer && !v->is_const && !v->sdata && v->layout == LAYOUT_ROWS;
}

/* The number of terms of a sum, which both operands have: a constant if the shape of either is. */
static sym terms_of(const struct gemm *x)
{
    sym a = x->as->dim[x->as->rank - 1], b = x->bs->dim[x->bs->rank - 2];
    return sym_is_const(x->g->sym, b, &(i64){0}) ? b : a;
}

static bool gemm_of_matrices(struct gemm *x, const struct task *t)
{
    *x = (struct gemm){.g = &t->g};
    if (!t->anchor || !(op_of(&t->g, t->anchor)->props & OP_MATMUL)) return false;
    const struct node *n = graph_node(&t->g, t->anchor);
    x->a = n->in.v[0], x->b = n->in.v[1], x->y = n->out.v[0];
    const struct value *a = graph_value(&t->g, x->a), *b = graph_value(&t->g, x->b);
    x->as = &a->shape, x->bs = &b->shape, x->ys = &graph_value(&t->g, x->y)->shape;
    x->tf32 = a->dtype == DT_F32 && attr_int(n, "tf32", 0);
    x->type = emit_type(op_sum_type(a->dtype)), x->acc16 = op_acc16(n);
    if (!dtype_is_float(x->type) && dtype_size(x->type) < 4) return false;
    if (x->bs->rank < 2 || x->as->rank < 1) return false;
    x->n_axis = x->ys->rank - 1;
    x->m_axis = x->as->rank > 1 ? (i32)x->ys->rank - 2 : -1;
    x->batch = x->ys->rank - 1 - (x->m_axis >= 0);
    x->m = x->m_axis >= 0 ? x->ys->dim[x->m_axis] : sym_const(t->g.sym, 1);
    x->n = x->bs->dim[x->bs->rank - 1];
    x->k = terms_of(x);
    if (x->m_axis >= 0 && is_one(x->g, x->m)) x->m_axis = -1;
    x->b_const = b->is_const && shape_is_static(t->g.sym, x->bs, (i64[MAX_RANK]){0}) &&
                 b->layout == LAYOUT_ROWS;
    x->a_plain = is_plain(a), x->b_plain = is_plain(b);
    find_epilogue(x, t);
    find_rows(x);
    return true;
}

bool gemm_of(struct gemm *x, const struct task *t)
{
    return gemm_of_matrices(x, t) && dtype_is_float(x->type);
}

/* Axes that a merged group stands for: all from the one before it in memory on. */
static u32 axes_of_rows(const struct conv *c, const struct space *s)
{
    i32 from = s->n > 1 ? (i32)s->g[s->n - 2].axis + 1 : 0;
    u32 set = 0;
    for (i32 a = from; s->n && a <= (i32)s->g[s->n - 1].axis; a++)
        if (a != 1 && a < (i32)c->rank) set |= 1u << a;
    return set;
}

static bool gemm_of_pixels(struct gemm *x, const struct task *t)
{
    struct conv c;
    if (!conv_of_any(&c, t) || !c.plain || !c.no_pad || !c.simple || c.groups > 1) return false;
    *x = (struct gemm){.g = &t->g, .a = c.x, .b = c.w, .y = c.y, .bias = c.b, .pixels = true};
    x->a_plain = x->b_const = x->simple = true;
    x->type = c.type, x->acc16 = c.acc16;
    for (u32 a = 0; a < c.rank; a++) {
        if (c.k[a] != 1) return false;
        x->stride[a] = c.stride[a];
        x->a_plain = x->a_plain && c.stride[a] == 1;
    }
    x->as = &graph_value(x->g, c.x)->shape, x->ys = &graph_value(x->g, c.y)->shape;
    x->by_rows = c.by_rows;
    x->n_axis = 1, x->m_axis = -1;
    x->m = sym_const(t->g.sym, 1), x->n = x->ys->dim[1], x->k = x->as->dim[1];
    x->outer = conv_space(&c);
    x->rows = axes_of_rows(&c, &x->outer);
    if (!x->outer.n) return true;
    struct axis_run last = x->outer.g[--x->outer.n];
    x->m_axis = (i32)last.axis, x->m = last.extent;
    return true;
}

/* Codes of which blocks have whole units, of sums of f32. */
static void find_codes(struct gemm *x)
{
    struct op_codes c;
    node_id n = graph_value(x->g, x->b)->producer;
    if (x->type != DT_F32 || !op_codes_get(x->g, n, &c) || c.block % code_unit(c.type)) return;
    if (!shape_is_static(x->g->sym, x->bs, (i64[MAX_RANK]){0}) || gen_static(x->g, x->k, 0) <= 0) return;
    x->codes = c, x->b_const = true;
    x->digits = op_digits(graph_node(x->g, graph_value(x->g, x->y)->producer));
    if (!x->digits) x->digits = CODE_DIGITS;
}

bool gemm_take(struct gemm *x, const struct task *t)
{
    if (!gemm_of_matrices(x, t)) return gemm_of_pixels(x, t);
    find_codes(x);
    return true;
}

/* The pixel of a row: its index on every axis that rows stand for. */
static void pixel_index(struct emit *m, const struct gemm *x, const kval *pos, kval row,
                        kval idx[MAX_RANK])
{
    struct kir *k = m->k;
    u32 left = x->rows;
    for (u32 a = 0; a < x->ys->rank; a++) idx[a] = pos[a];
    if (x->a_plain && x->m_axis >= 0) idx[x->m_axis] = row;
    for (u32 a = x->ys->rank; !x->a_plain && a-- > 0;) {
        if (!(left >> a & 1)) continue;
        left &= ~(1u << a);
        kval n = emit_size(m, x->ys->dim[a]);
        idx[a] = left ? kir_mod(k, row, n) : row;
        row = left ? kir_div(k, row, n) : row;
    }
    for (u32 a = 0; a < x->ys->rank; a++) idx[a] = kir_mul_i(k, idx[a], x->stride[a]);
}

void gemm_index(struct emit *m, const struct gemm *x, value_id v, const kval *pos, kval row,
                kval col, kval idx[MAX_RANK])
{
    const struct shape *s = &graph_value(m->g, v)->shape;
    u32 own = s->rank > 2 ? s->rank - 2 : 0;
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = kir_int(m->k, 0);
    if (x->pixels) {
        pixel_index(m, x, pos, row, idx);
        idx[1] = col;
        return;
    }
    for (u32 i = 0; i < own; i++)
        if (!is_one(m->g, s->dim[i])) idx[i] = pos[x->batch - own + i];
    if (s->rank > 1) idx[x->merged && v == x->a ? (u32)x->m_axis : s->rank - 2] = row;
    idx[s->rank - 1] = col;
}

/* All axes of a matrix apart. */
static struct space axes_of(const struct graph *g, value_id v)
{
    const struct shape *x = &graph_value(g, v)->shape;
    struct space s = {.rank = x->rank};
    for (u32 i = 0; i < s.rank; i++) s.g[s.n++] = (struct axis_run){x->dim[i], i};
    return s;
}

bool gemm_is_dense_along_last(const struct task *t, value_id v, u32 lanes)
{
    const struct space s = axes_of(&t->g, v);
    struct probe last, before;
    if (s.n < 2) return true;
    space_probe(&last, t, &s, v, s.n - 1, lanes);
    space_probe(&before, t, &s, v, s.n - 2, lanes);
    return last.n_gather <= before.n_gather;
}

i64 gemm_step(const struct task *t, value_id v, u32 axis, u32 lanes)
{
    const struct space s = axes_of(&t->g, v);
    struct probe p;
    space_probe(&p, t, &s, v, axis, lanes);
    return p.step;
}
