// SPDX-License-Identifier: Apache-2.0
//
// attention_grad: a task of five matmuls taken apart: two of scores, of queries with keys and of the result's gradient with values, and three of any
// pointwise functions of both, by rows of queries and by keys. What lies between is as in attention.c, without reductions: statistics of rows are inputs.
// The gradients by keys multiply what the scores were made of, the gradient by values what the slopes were made of, so that one copy of rows serves twice.
#include "gen/attention_grad.h"

enum role { OTHER, FULL, TURNED, OF_QUERIES, OF_FIRST, OF_SECOND }; /* values: independent of the scores; an element for each; transposed; behind a product */

struct finder {
    const struct graph *g;
    struct attention_grad *x;
    u8 *role;                 /* per value: enum role */
    node_id score[2], by_rows, by_keys[2];
    u32 n_scores, n_by_keys;
    struct arena *arena;
};

static const struct shape *shape_of(const struct finder *f, value_id v) { return &graph_value(f->g, v)->shape; }

static bool add_matmul(struct finder *f, node_id n)
{
    const struct node *nd = graph_node(f->g, n);
    u8 left = f->role[nd->in.v[0]], right = f->role[nd->in.v[1]], *out = &f->role[nd->out.v[0]];
    if (right != OTHER) return false;
    if (left == OTHER && f->n_scores < 2) f->score[f->n_scores++] = n, *out = FULL;
    else if (left == FULL && !f->by_rows) f->by_rows = n, *out = OF_QUERIES;
    else if (left == TURNED && f->n_by_keys < 2) *out = (u8)(OF_FIRST + f->n_by_keys), f->by_keys[f->n_by_keys++] = n;
    else return false;
    return true;
}

/* Does the view exchange the last two axes, as a transposed matrix? Found by what it asks for in a kernel that is thrown away. */
static bool is_transpose(const struct graph *g, value_id from, value_id to)
{
    struct arena a = {0};
    struct kir k;
    struct emit m;
    kval idx[MAX_RANK] = {0};
    struct attention_asked asked = {.rank = graph_value(g, from)->shape.rank};
    const u32 r = graph_value(g, to)->shape.rank;
    if (r < 2 || asked.rank != r || emit_type(graph_value(g, from)->dtype) != DT_F32) return false;
    kir_init(&k, &a, S("probe"));
    emit_init(&m, &k, g, op_lower, &a);
    emit_args(&m);
    kir_grid(&k, kir_param(&k, S("probe")));
    for (u32 i = 0; i < r; i++) idx[i] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), emit_dim(&m, to, i), 1);
    emit_bind(&m, from, attention_note_index, &asked);
    emit_value(&m, to, idx);
    bool yes = asked.idx[r - 2] == idx[r - 1] && asked.idx[r - 1] == idx[r - 2];
    for (u32 i = 0; i + 2 < r; i++) yes = yes && asked.idx[i] == idx[i];
    arena_release(&a);
    return yes;
}

static bool add_pointwise(struct finder *f, const struct node *nd)
{
    f->role[nd->out.v[0]] = FULL;
    f->x->n_between++;
    for (u32 i = 0; i < nd->in.n; i++)
        if (nd->in.v[i] && f->role[nd->in.v[i]] == FULL && !shape_equal(shape_of(f, nd->in.v[i]), shape_of(f, nd->out.v[0]))) return false;
    return true;
}

static bool add_view(struct finder *f, node_id n)
{
    const struct node *nd = graph_node(f->g, n);
    value_id from = nd->in.v[0], to = nd->out.v[0];
    if (nd->in.n != 1 || f->role[from] != FULL) return false;
    if (op_of(f->g, n)->props & OP_RESHAPE) return f->role[to] = FULL, attention_keeps_last(shape_of(f, from), shape_of(f, to));
    f->role[to] = TURNED;
    return is_transpose(f->g, from, to);
}

/* The role that a node's inputs have but OTHER; `several`: they differ. */
static u8 role_of(const struct finder *f, const struct node *nd, bool *several)
{
    u8 role = OTHER;
    *several = false;
    for (u32 i = 0; i < nd->in.n; i++) {
        u8 r = nd->in.v[i] ? f->role[nd->in.v[i]] : OTHER;
        if (r == OTHER) continue;
        *several |= role != OTHER && role != r;
        role = r;
    }
    return role;
}

static bool add_node(struct finder *f, node_id n)
{
    const struct node *nd = graph_node(f->g, n);
    u32 props = op_of(f->g, n)->props;
    bool several;
    u8 role = role_of(f, nd, &several);
    if (props & OP_MATMUL) return add_matmul(f, n);
    if (props & (OP_CONV | OP_HEAVY)) return false;
    if (role == OTHER) return true;
    if (several || role == TURNED) return false;
    if (role != FULL) {
        for (u32 i = 0; i < nd->out.n; i++)
            if (nd->out.v[i]) f->role[nd->out.v[i]] = role;
        return true;
    }
    if (nd->out.n != 1 || graph_is_output(f->g, nd->out.v[0])) return false;
    return props & OP_POINTWISE ? add_pointwise(f, nd) : (props & OP_VIEW) && add_view(f, n);
}

/* A product as the only one of the task, with the outputs that depend on it. */
static bool take_product(struct finder *f, const struct task *t, node_id n, struct gemm *x)
{
    struct task one = *t;
    value_id y = graph_node(f->g, n)->out.v[0];
    value_id *out = arena_array(f->arena, value_id, t->g.output.n + 1);
    u32 n_out = 0;
    for (u32 i = 0; i < t->g.output.n; i++)
        if (gen_depends(f->g, t->g.output.v[i], y)) out[n_out++] = t->g.output.v[i];
    one.anchor = n, one.g.output.v = out, one.g.output.n = n_out;
    if (!n_out || !gemm_of(x, &one)) return false;
    x->g = f->g;
    return x->type == DT_F32 && !x->merged && x->m_axis >= 0 && x->as->rank == x->ys->rank && gen_static(f->g, x->n, -1) != 0;
}

static bool has_batches_of(const struct gemm *x, const struct gemm *of)
{
    bool same = x->ys->rank == of->ys->rank;
    for (u32 i = 0; same && i + 2 < x->ys->rank; i++) same = x->ys->dim[i] == of->ys->dim[i];
    return same;
}

/* The same numbers, perhaps of a narrower type, of which the wider one has all. */
static value_id unconverted(const struct graph *g, value_id v)
{
    node_id n = graph_value(g, v)->producer;
    const struct node *nd = n ? graph_node(g, n) : NULL;
    bool is_cast = nd && str_is(nd->op, "Cast") && graph_value(g, v)->dtype == DT_F32 && dtype_is_float(graph_value(g, nd->in.v[0])->dtype) &&
                   dtype_size(graph_value(g, nd->in.v[0])->dtype) < dtype_size(DT_F32);
    return is_cast ? unconverted(g, nd->in.v[0]) : v;
}

static bool is_same(const struct graph *g, value_id a, value_id b)
{
    a = unconverted(g, a), b = unconverted(g, b);
    node_id n = graph_value(g, a)->producer, m = graph_value(g, b)->producer;
    if (a == b || !n || !m || !shape_equal(&graph_value(g, a)->shape, &graph_value(g, b)->shape)) return a == b;
    return (op_of(g, n)->props & OP_RESHAPE) && (op_of(g, m)->props & OP_RESHAPE) && is_same(g, graph_node(g, n)->in.v[0], graph_node(g, m)->in.v[0]);
}

static bool is_transposed_shape(const struct shape *a, const struct shape *b)
{
    struct shape s = *b;
    s.dim[s.rank - 1] = b->dim[b->rank - 2], s.dim[s.rank - 2] = b->dim[b->rank - 1];
    return shape_equal(a, &s);
}

static bool products_fit(const struct finder *f)
{
    const struct attention_grad *x = f->x;
    const struct gemm *s = &x->scores, *p = &x->slopes;
    const struct graph *g = f->g;
    if (!shape_equal(s->ys, p->ys) || !shape_equal(x->queries.as, s->ys) || !is_transposed_shape(x->keys.as, s->ys) || !is_transposed_shape(x->values.as, s->ys)) return false;
    if (!has_batches_of(&x->queries, s) || !has_batches_of(&x->keys, s) || !has_batches_of(&x->values, s)) return false;
    if (!is_same(g, x->keys.b, s->a) || !is_same(g, x->values.b, p->a) || x->keys.b_const || x->values.b_const) return false;
    return gen_static(g, s->k, -1) > 0 && gen_static(g, p->k, -1) > 0;
}

/* Which of the products is which: probabilities do not depend on slopes. */
static bool take_products(struct finder *f, const struct task *t)
{
    struct attention_grad *x = f->x;
    const struct graph *g = f->g;
    if (f->n_scores < 2 || !f->by_rows || f->n_by_keys < 2) return false;
    u32 slopes = 2, values = 2;
    for (u32 i = 0; i < 4; i++) {
        bool depends = gen_depends(g, graph_node(g, f->by_keys[i / 2])->in.v[0], graph_node(g, f->score[i % 2])->out.v[0]);
        if (!depends) values = i / 2, slopes = i % 2;
    }
    if (values == 2) return false;
    return take_product(f, t, f->score[!slopes], &x->scores) && take_product(f, t, f->score[slopes], &x->slopes) && take_product(f, t, f->by_rows, &x->queries) &&
           take_product(f, t, f->by_keys[!values], &x->keys) && take_product(f, t, f->by_keys[values], &x->values) && gen_depends(g, x->values.a, x->scores.y);
}

bool attention_grad_of(struct attention_grad *x, const struct task *t)
{
    enum { PRODUCTS = 5 };
    *x = (struct attention_grad){0};
    if (t->n_heavy != PRODUCTS) return false;
    struct arena a = {0};
    struct finder f = {.g = &t->g, .x = x, .role = arena_array(&a, u8, t->g.value.n), .arena = &a};
    bool ok = true;
    for (node_id n = 1; ok && n < t->g.node.n; n++) ok = graph_node(&t->g, n)->dead || add_node(&f, n);
    ok = ok && take_products(&f, t) && products_fit(&f);
    arena_release(&a);
    if (!ok) return false;
    x->form = (struct attention){.scores = x->scores, .values = x->queries, .p = x->queries.a, .n_between = x->n_between, .rows = {.g = &t->g, .fused = true}};
    return true;
}
