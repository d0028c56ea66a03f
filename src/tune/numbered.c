// SPDX-License-Identifier: Apache-2.0
//
// Numbered contents for tasks with a contraction. One operand has a single 1 per sum (or few single ones), the elements of the other are
// numbered, so each result of the contraction is the number of one element, known without computing sums: all outputs are compared, and a
// wrong index is seen wherever it is. The other inputs are ones. What follows the contraction is evaluated by its operators.
//
// What follows must not enlarge errors, because Winograd's fractions leave some: pointwise operators, operators that move elements, and windows that keep integers
// (check_largest_integer).
#include "tune/verify.h"

enum { MAX_BYTES = 1 << 26 }; /* of a task */
static const double growth = 2; /* any kernel family may compute with fractions */

/* All nodes but the contraction. */
static bool is_plain(const struct task *t)
{
    for (node_id n = 1; n < t->g.node.n; n++)
        if (n != t->anchor && !graph_node(&t->g, n)->dead && !(op_of(&t->g, n)->props & (OP_POINTWISE | OP_VIEW | OP_MOVES | OP_WINDOW))) return false;
    return true;
}

static void fill_ones(struct check *c, const struct contraction *s)
{
    for (value_id v = 1; v < c->task->g.value.n; v++) {
        const struct value *x = graph_value(&c->task->g, v);
        struct tensor *t = &c->value[v];
        if (x->producer || x->data || v == s->x || v == s->w || v == s->b || !dtype_is_float(x->dtype)) continue;
        for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(t->dtype, t->data, i, 1);
    }
}

/* What the contraction computes. */
static struct tensor *result_of(const struct contraction_check *x, struct arena *a, struct err *e)
{
    const struct contraction *s = x->s;
    const struct graph *g = &x->check.task->g;
    const struct value *y = graph_value(g, s->y);
    i64 dim[MAX_RANK], n = s->out[s->n - 1];
    double *want = arena_array(a, double, n);
    if (!shape_eval(g->sym, &y->shape, x->check.var, dim)) unreachable(); /* contraction_inside has done so */
    struct tensor *t = tensor_try(a, y->dtype, y->shape.rank, dim, e, "the contraction ", y->name);
    for (i64 row = 0; t && row < s->count / n; row++) {
        contraction_expect(x, row, want);
        for (i64 k = 0; k < n; k++) elem_set_f64(t->dtype, t->data, row * n + k, want[k]);
    }
    return t;
}

/* The outputs, with the contraction's result given. */
static bool evaluate(struct check *c, value_id y, struct tensor *result, struct arena *a, struct err *e)
{
    const struct graph *g = &c->task->g;
    struct graph rest;
    graph_clone(&rest, g, a);
    for (value_id v = 1; v < g->value.n; v++)
        if (graph_value(g, v)->is_const) graph_value(&rest, v)->data = &c->value[v];
    struct value *given = graph_value(&rest, y);
    given->producer = 0, given->is_const = true, given->data = result;
    graph_node(&rest, c->task->anchor)->dead = true;
    struct tensor **in = arena_array(a, struct tensor *, g->input.n + 1);
    for (u32 k = 0; k < g->input.n; k++) in[k] = &c->value[g->input.v[k]];
    c->want = arena_array(&c->arena, struct tensor *, g->output.n);
    return graph_eval(&rest, in, c->want, &c->arena, &(struct graph_eval_opts){.var = c->var}, e);
}

static bool make(struct check *c, const struct contraction *s, const struct task *t, const i64 *var, enum verify_case kind, u64 seed, struct arena *a,
                 struct err *e)
{
    struct contraction_check x;
    if (!contraction_check_init(&x, s, t, var, kind, &(struct contraction_check_opts){.seed = seed, .growth = growth}, e)) return false;
    fill_ones(&x.check, s);
    struct tensor *result = result_of(&x, a, e);
    *c = x.check;
    c->comparator = NULL;
    check_expect_integers(c);
    bool ok = result && evaluate(c, s->y, result, a, e);
    if (!ok) check_release(c);
    return ok;
}

bool check_init_numbered(struct check *c, const struct task *t, const i64 *var, enum verify_case kind, u64 seed, struct err *e)
{
    struct arena a = {0};
    struct contraction s;
    bool fits = !task_is_call(t) && task_bytes(t, var) <= MAX_BYTES && is_plain(t);
    *c = (struct check){0};
    bool ok = !fits || !contraction_inside(&s, t, var, &a, &(struct err){0}) || make(c, &s, t, var, kind, seed, &a, e);
    arena_release(&a);
    return ok;
}
