// SPDX-License-Identifier: Apache-2.0
//
// attention: a task of one or two matmuls taken apart. What lies between is any pointwise function of the scores and of what they are reduced to along the keys, and
// views that only regroup rows, as those of heads that share keys. All of it is computed by rows, in place: a reduction's elements replace the
// scores that they are computed from, so nothing that comes later may need these. Beside the second product, or without it, numbers of rows may be results, the
// maximum, the sum; and sums along the queries of such a function. These are taken of scores that are computed once more, when all reductions are known.
#include "gen/attention.h"

/* Values: independent of the scores; an element for each of them; for each row of them; behind the second product; sums of columns, and behind these. */
enum role { OTHER, FULL, LESS, BEHIND, COLUMN };

struct finder {
    const struct graph *g;
    struct attention *x;
    u8 *role;     /* per value: enum role */
    node_id first, second;
    struct arena *arena;
};

bool attention_keeps_last(const struct shape *a, const struct shape *b)
{
    return a->rank && b->rank && a->dim[a->rank - 1] == b->dim[b->rank - 1];
}

static const struct shape *shape_of(const struct finder *f, value_id v) { return &graph_value(f->g, v)->shape; }

static bool is_f32(const struct graph *g, value_id v) { return emit_type(graph_value(g, v)->dtype) == DT_F32; }

/* Is it that of a row: the same shape but for 1 along the last axis? */
static bool is_less(const struct graph *g, const struct shape *less, const struct shape *full)
{
    struct shape s = *full;
    s.dim[s.rank - 1] = sym_const(g->sym, 1);
    return shape_equal(less, &s);
}

static bool add_reduction(struct finder *f, node_id n)
{
    const struct node *nd = graph_node(f->g, n);
    struct row_task *rows = &f->x->rows;
    struct reduction r = {.node = n, .in = nd->in.v[0], .out = nd->out.v[0]};
    if (rows->n == MAX_REDUCE || !op_of(f->g, n)->reduce(f->g, nd, &r.r)) return false;
    const struct shape *in = shape_of(f, r.in);
    if (f->role[r.in] != FULL || !is_f32(f->g, r.in) || !is_f32(f->g, r.out) || !r.r.keepdims || r.r.n_axes != 1 || r.r.axis[0] + 1 != in->rank) return false;
    if (rows->n && !shape_equal(in, shape_of(f, rows->red[0].in))) return false;
    rows->red[rows->n++] = r;
    f->role[r.out] = LESS;
    return true;
}

/* Sums along the queries. */
static bool add_columns(struct finder *f, node_id n)
{
    const struct node *nd = graph_node(f->g, n);
    struct reduction *c = &f->x->columns;
    const struct reduction r = {.node = n, .in = nd->in.v[0], .out = nd->out.v[0]};
    const struct shape *in = shape_of(f, r.in);
    if (c->out || f->role[r.in] != FULL || !is_f32(f->g, r.in) || !is_f32(f->g, r.out)) return false;
    *c = r;
    f->role[r.out] = COLUMN;
    return op_of(f->g, n)->reduce(f->g, nd, &c->r) && c->r.combine == KI_ADD && c->r.n_axes == 1 && c->r.axis[0] + 2 == in->rank;
}

/* The roles of a node's inputs, as bits. */
static u32 roles_of(const struct finder *f, const struct node *nd)
{
    u32 set = 0;
    for (u32 i = 0; i < nd->in.n; i++)
        if (nd->in.v[i]) set |= 1u << f->role[nd->in.v[i]];
    return set & ~(1u << OTHER);
}

static bool add_pointwise(struct finder *f, const struct node *nd)
{
    value_id out = nd->out.v[0];
    bool is_full = roles_of(f, nd) >> FULL & 1;
    f->role[out] = is_full ? FULL : LESS;
    f->x->n_between += is_full;
    for (u32 i = 0; i < nd->in.n; i++) {
        value_id v = nd->in.v[i];
        if (!v || f->role[v] == OTHER) continue;
        bool is_one_a_row = is_full && f->role[v] == LESS;
        if (is_one_a_row ? !is_less(f->g, shape_of(f, v), shape_of(f, out)) : !shape_equal(shape_of(f, out), shape_of(f, v))) return false;
    }
    return true;
}

/* Are these numbers of rows with and without the axis of size 1? */
static bool drops_last(const struct graph *g, const struct shape *from, const struct shape *to)
{
    struct shape s = *to;
    if (s.rank == MAX_RANK) return false;
    s.dim[s.rank++] = sym_const(g->sym, 1);
    return shape_equal(&s, from);
}

/* A view of scores whose rows stay rows. */
static bool add_reshape(struct finder *f, const struct node *nd)
{
    if (f->role[nd->in.v[0]] == LESS) {
        f->role[nd->out.v[0]] = LESS;
        const struct shape *from = shape_of(f, nd->in.v[0]), *to = shape_of(f, nd->out.v[0]);
        return drops_last(f->g, from, to) || drops_last(f->g, to, from);
    }
    f->role[nd->out.v[0]] = FULL;
    return f->role[nd->in.v[0]] == FULL && attention_keeps_last(shape_of(f, nd->in.v[0]), shape_of(f, nd->out.v[0]));
}

static bool add_node(struct finder *f, node_id n)
{
    const struct node *nd = graph_node(f->g, n);
    u32 props = op_of(f->g, n)->props;
    if (nd->out.n != 1) return false;
    bool ok = props & OP_REDUCE ? add_reduction(f, n) || add_columns(f, n) : props & OP_POINTWISE ? add_pointwise(f, nd) : props & OP_RESHAPE && add_reshape(f, nd);
    return ok && !(f->role[nd->out.v[0]] == FULL && graph_is_output(f->g, nd->out.v[0]));
}

/* Outputs that do not depend on the second product: numbers of rows, and sums of columns with a pointwise tail. */
static bool find_results(struct finder *f)
{
    struct attention *x = f->x;
    bool has_columns = false;
    for (u32 i = 0; i < f->g->output.n; i++) {
        value_id v = f->g->output.v[i];
        if (f->role[v] == BEHIND) continue;
        if (graph_value(f->g, v)->layout != LAYOUT_ROWS) return false;
        if (f->role[v] == COLUMN) {
            has_columns = true;
            if (!gen_pointwise_tail(f->g, v, x->columns.out) || !shape_equal(shape_of(f, v), shape_of(f, x->columns.out))) return false;
            continue;
        }
        if (f->role[v] != LESS || x->n_statistics == countof(x->statistic)) return false;
        x->statistic[x->n_statistics++] = v;
    }
    return has_columns == (x->columns.out != 0) && (attention_has_values(x) || has_columns || x->n_statistics);
}

/* Sorts the nodes that depend on the scores. */
static bool sort_nodes(struct finder *f)
{
    const struct graph *g = f->g;
    f->role[f->x->scores.y] = FULL;
    if (f->second) f->role[f->x->values.y] = BEHIND;
    for (node_id n = f->first + 1; n < g->node.n; n++) {
        const struct node *nd = graph_node(g, n);
        u32 roles = n == f->second || nd->dead ? 0 : roles_of(f, nd);
        if (!roles) continue;
        if (roles == 1u << BEHIND || roles == 1u << COLUMN) {
            for (u32 i = 0; i < nd->out.n; i++)
                if (nd->out.v[i]) f->role[nd->out.v[i]] = roles >> BEHIND & 1 ? BEHIND : COLUMN;
        } else if (roles >> BEHIND || !add_node(f, n)) {
            return false;
        }
    }
    return true;
}

/* Would computing v, from what is bound, ask for `stale`? bound: the latest elements in the array. */
static bool asks_for(const struct finder *f, value_id v, value_id stale, value_id bound)
{
    if (v == stale) return true;
    if (v == bound || f->role[v] == OTHER || !graph_value(f->g, v)->producer || graph_value(f->g, v)->producer == f->first) return false;
    const struct node *nd = graph_node(f->g, graph_value(f->g, v)->producer);
    if (op_of(f->g, graph_value(f->g, v)->producer)->props & OP_REDUCE) return false; /* its result is bound */
    for (u32 i = 0; i < nd->in.n; i++)
        if (nd->in.v[i] && asks_for(f, nd->in.v[i], stale, bound)) return true;
    return false;
}

/* What a reduction keeps overwrites what was there before: nothing asks for that any more. */
static bool may_be_in_place(const struct finder *f)
{
    const struct row_task *rows = &f->x->rows;
    value_id stale[MAX_REDUCE], now = f->x->scores.y;
    u32 n = 0;
    for (u32 i = 0; i <= rows->n; i++) {
        value_id next = i < rows->n ? rows->red[i].in : f->x->p;
        for (u32 k = 0; k < n; k++)
            if (asks_for(f, next, stale[k], now)) return false;
        if (i < rows->n && next != now && row_is_worth_keeping(rows, i)) stale[n++] = now, now = next;
    }
    return true;
}

/* The task's matmuls. */
static bool find_products(struct finder *f, const struct task *t)
{
    struct task one = *t;
    if (t->n_heavy < 2) {
        f->first = t->anchor;
        return gemm_of(&f->x->scores, t);
    }
    for (node_id n = 1; n < t->g.node.n; n++) {
        if (!(op_of(&t->g, n)->props & (OP_CONV | OP_MATMUL | OP_HEAVY)) || graph_node(&t->g, n)->dead) continue;
        if (!(op_of(&t->g, n)->props & OP_MATMUL) || f->second) return false;
        *(f->first ? &f->second : &f->first) = n;
    }
    if (!f->second) return false;
    one.anchor = f->first;
    if (!gemm_of(&f->x->scores, &one)) return false;
    one.anchor = f->second;
    one.g.output.v = arena_array(f->arena, value_id, t->g.output.n), one.g.output.n = 0;
    for (u32 i = 0; i < t->g.output.n; i++)
        if (gen_depends(&t->g, t->g.output.v[i], graph_node(&t->g, f->second)->out.v[0])) one.g.output.v[one.g.output.n++] = t->g.output.v[i];
    if (!one.g.output.n || !gemm_of(&f->x->values, &one)) return false;
    f->x->scores.g = f->x->values.g = &t->g;
    return true;
}

static bool scores_fit(const struct finder *f)
{
    const struct gemm *s = &f->x->scores;
    return s->type == DT_F32 && !s->merged && s->as->rank >= 2 && gen_static(f->g, s->k, -1) > 0;
}

/* The products have the same batches and rows, one at each place of the result. */
static bool values_fit(const struct finder *f)
{
    const struct gemm *s = &f->x->scores, *v = &f->x->values;
    if (v->type != DT_F32 || v->merged || !v->simple || v->by_rows || !shape_equal(s->ys, v->as) || v->as->rank != v->ys->rank) return false;
    for (u32 i = 0; i + 2 < v->as->rank; i++)
        if (v->as->dim[i] != v->ys->dim[i]) return false;
    return v->as->rank >= 2 && !gen_depends(f->g, v->b, s->y) && gen_depends(f->g, v->a, s->y);
}

/* What rows are computed for. */
static bool find_p(struct finder *f)
{
    struct attention *x = f->x;
    x->p = f->second ? x->values.a : x->rows.n ? x->rows.red[x->rows.n - 1].in : x->columns.in;
    return x->p && f->role[x->p] == FULL && is_f32(f->g, x->p);
}

/* Columns are of one head each. */
static bool columns_fit(const struct finder *f)
{
    const struct attention *x = f->x;
    const struct shape *s = shape_of(f, x->columns.in);
    return shape_equal(s, shape_of(f, x->score)) && attention_has_whole_heads(x, f->g);
}

/* Does a matmul reach a reduction? Of all others this is asked first. */
static bool has_reduction(const struct task *t)
{
    for (node_id n = t->anchor + 1; n < t->g.node.n; n++)
        if (op_of(&t->g, n)->props & OP_REDUCE) return true;
    return false;
}

bool attention_of(struct attention *x, const struct task *t)
{
    *x = (struct attention){.rows = {.g = &t->g, .fused = true}};
    if (!t->anchor || t->n_heavy > 2 || (t->n_heavy == 1 && !has_reduction(t))) return false;
    struct arena a = {0};
    struct finder f = {.g = &t->g, .x = x, .role = arena_array(&a, u8, t->g.value.n), .arena = &a};
    bool ok = find_products(&f, t) && scores_fit(&f) && (!f.second || values_fit(&f));
    ok = ok && sort_nodes(&f) && find_results(&f) && find_p(&f) && may_be_in_place(&f);
    if (ok) attention_score(x, t);
    ok = ok && (!x->columns.out || columns_fit(&f));
    arena_release(&a);
    return ok;
}

struct tile_product attention_score_product(const struct attention *x, const struct caps *c)
{
    const struct gemm *s = &x->scores;
    const struct tile_operands o = {graph_value(s->g, s->a)->dtype, graph_value(s->g, s->b)->dtype, s->type, gen_static(s->g, s->k, -1), false};
    const struct tile_product p = tile_product_of(c, &o);
    return p.leaf == &tile_dot ? p : tile_multiply_add;
}
