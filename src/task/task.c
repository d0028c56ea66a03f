// SPDX-License-Identifier: Apache-2.0
//
// Building tasks: a region of a graph becomes a graph of its own whose text is
// its identity. Content of constants is dropped unless kernels are specialised
// on it (integers that steer index maps, single scalars), so that two layers
// which differ only in their weights are one task and are measured once.
#include "task/task.h"

/* Integers of at most this many elements stay: starts of slices, pads, permutations given as inputs. */
enum { KEEP_INTS = 64 };

static bool content_matters(const struct tensor *t)
{
    i64 n = tensor_count(t);
    return n <= 1 || (!dtype_is_float(t->dtype) && n <= KEEP_INTS);
}

/* Knowledge about other values through dropped content is forgotten, too. The table of sizes is the
   network's, which has the facts already, and knows the data-dependent sizes: here they are ordinary sizes. */
static bool strip_constants(struct graph *g, struct err *e)
{
    bool stripped = false;
    for (value_id v = 1; v < g->value.n; v++) {
        struct value *x = graph_value(g, v);
        if (!x->is_const || !x->data || content_matters(x->data)) continue;
        x->data = NULL;
        stripped = true;
    }
    for (value_id v = 1; stripped && v < g->value.n; v++)
        if (graph_value(g, v)->producer) graph_value(g, v)->sdata = NULL;
    bool was_closed = g->sym->closed, ok = true;
    g->sym->closed = true;
    for (node_id n = 1; stripped && ok && n < g->node.n; n++) ok = graph_node(g, n)->dead || op_infer(g, n, e);
    g->sym->closed = was_closed;
    return ok;
}

/* Whether a data-dependent size is computed from the elements of a value that the task computes. */
static bool is_own_size(const struct task *t, const struct made_size *m, const value_id *back)
{
    for (value_id v = 1; m->v && v < t->g.value.n; v++)
        if (graph_value(&t->g, v)->producer && back[v] == m->v) return true;
    return false;
}

static bool mentions_any(const struct symtab *st, sym s, const u32 *var, u32 n)
{
    for (u32 k = 0; k < n; k++)
        if (sym_has_var(st, s, var[k])) return true;
    return false;
}

/* Content that consists of sizes which are known after the task only is not known in it. */
static void forget_own_sizes(struct task *t, const struct graph *from, const value_id *back)
{
    struct arena tmp = {0};
    u32 n = 0, *own = arena_array(&tmp, u32, from->made.n + 1);
    for (u32 k = 0; k < from->made.n; k++) { /* derived ones are last */
        const struct made_size *m = &from->made.v[k];
        if (is_own_size(t, m, back) || (m->expr && mentions_any(from->sym, m->expr, own, n))) own[n++] = m->var;
    }
    for (value_id v = 1; n && v < t->g.value.n; v++) {
        struct value *x = graph_value(&t->g, v);
        bool is_own = false;
        for (i64 i = 0; x->producer && x->sdata && i < x->sdata->n; i++) is_own = is_own || mentions_any(from->sym, x->sdata->num[i], own, n);
        if (is_own) x->sdata = NULL;
    }
    arena_release(&tmp);
}

static void find_anchor(struct task *t)
{
    t->anchor = t->n_heavy = 0;
    for (node_id n = 1; n < t->g.node.n; n++)
        if (op_of(&t->g, n)->props & (OP_CONV | OP_MATMUL | OP_HEAVY)) t->anchor = n, t->n_heavy++;
}

static void task_key(struct task *t)
{
    struct buf b = {0};
    graph_print(&b, &t->g, &(struct graph_text_opts){.keys = true});
    t->text = str_dup(t->g.arena, buf_view(&b));
    t->key = hash_bytes(t->text.p, t->text.n);
    buf_release(&b);
}

/* Results in the memory of one of the task's inputs, which keep elements of it. */
static void keep_shared(struct task *t, const struct graph *from, const value_id *back)
{
    for (u32 k = 0; k < t->g.output.n; k++) {
        struct value *y = graph_value(&t->g, t->g.output.v[k]);
        value_id with = graph_value(from, back[t->g.output.v[k]])->shares;
        for (u32 i = 0; with && i < t->g.input.n; i++)
            if (back[t->g.input.v[i]] == with && shape_equal(&graph_value(&t->g, t->g.input.v[i])->shape, &y->shape)) y->shares = t->g.input.v[i];
    }
}

bool task_make(struct task *t, const struct graph *from, struct arena *a, const node_id *nodes,
               u32 n, const value_id *out, u32 n_out, const enum layout *layout,
               value_id **map_back, struct err *e)
{
    value_id *back = NULL;
    graph_extract(&t->g, from, a, nodes, n, out, n_out, &back);
    for (value_id v = 1; v < t->g.value.n; v++) {
        struct value *x = graph_value(&t->g, v);
        bool is_outer = !x->is_const && (x->producer == 0);
        x->layout = is_outer ? layout[back[v]] : LAYOUT_ROWS;
        if (!is_outer && !graph_is_output(&t->g, v)) x->part = (struct part){0}; /* not in memory */
    }
    for (u32 k = 0; k < t->g.output.n; k++)
        graph_value(&t->g, t->g.output.v[k])->layout = layout[back[t->g.output.v[k]]];
    keep_shared(t, from, back);
    if (from->made.n) forget_own_sizes(t, from, back);
    if (!strip_constants(&t->g, e)) return false;
    if (map_back) *map_back = back;
    find_anchor(t);
    task_key(t);
    return graph_verify(&t->g, e);
}

bool task_with_parts(struct task *t, const struct task *from, struct arena *a,
                     const struct part *part, const enum layout *layout, struct err *e)
{
    *t = (struct task){.anchor = from->anchor, .n_heavy = from->n_heavy};
    graph_clone(&t->g, &from->g, a);
    for (value_id v = 1; v < t->g.value.n; v++)
        if (part[v].whole)
            graph_value(&t->g, v)->part = part[v], graph_value(&t->g, v)->layout = layout[v];
    task_key(t);
    return graph_verify(&t->g, e);
}

/* Contents follow from inference, shapes are in the text: they may have needed facts, or run-time
   comparisons, which the text does not contain. So no facts are added here. */
static bool infer_contents(struct graph *g, struct err *e)
{
    struct arena tmp = {0};
    struct shape *said = arena_array(&tmp, struct shape, g->value.n);
    u32 n = g->value.n;
    for (value_id v = 1; v < n; v++) said[v] = graph_value(g, v)->shape;
    bool ok = op_infer_all(g, e);
    for (value_id v = 1; ok && v < n; v++)
        if (said[v].known) graph_value(g, v)->shape = said[v];
    arena_release(&tmp);
    return ok;
}

static bool parse(struct task *t, struct arena *a, struct symtab *st, struct str text, bool (*infer)(struct graph *g, struct err *e), struct err *e)
{
    if (!graph_parse(&t->g, a, st, text, e) || !infer(&t->g, e)) return false;
    find_anchor(t);
    task_key(t);
    return true;
}

bool task_parse(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e)
{
    return parse(t, a, st, text, op_infer_all, e);
}

bool task_restore(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e)
{
    st->closed = true;
    return parse(t, a, st, text, infer_contents, e);
}

/* The task with numbers instead of its sizes: then inference decides everything. */
bool task_fits(const struct task *t, const i64 *var)
{
    const struct symtab *from = t->g.sym;
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    symtab_init(&st, &a);
    for (u32 v = 0; v < from->var.n; v++)
        if (var[v] != INT64_MIN) sym_define(&st, from->var.v[v], sym_const(&st, var[v]));
    bool ok = graph_parse(&g, &a, &st, t->text, &e);
    u32 n = ok ? g.value.n : 0;
    struct shape *said = arena_array(&a, struct shape, n + 1);
    for (value_id v = 1; v < n; v++) said[v] = graph_value(&g, v)->shape;
    ok = ok && op_infer_all(&g, &e);
    for (value_id v = 1; ok && v < n; v++) ok = !said[v].known || shape_equal(&said[v], &graph_value(&g, v)->shape);
    arena_release(&a);
    return ok;
}

bool task_is_call(const struct task *t) { return t->anchor && op_of(&t->g, t->anchor)->props & OP_CALL; }

double task_flops(const struct task *t, const i64 *var) { return graph_flops(&t->g, var); }

static double value_bytes(const struct graph *g, value_id v, const i64 *var)
{
    const struct value *x = graph_value(g, v);
    i64 dim[MAX_RANK], n = 1;
    if (!shape_eval(g->sym, &x->shape, var, dim)) return 0;
    for (u32 d = 0; d < x->shape.rank; d++) n *= dim[d];
    return (double)n * (double)dtype_size(x->dtype);
}

double task_bytes(const struct task *t, const i64 *var)
{
    double sum = 0;
    for (value_id v = 1; v < t->g.value.n; v++) {
        const struct value *x = graph_value(&t->g, v);
        if (x->is_const || x->producer == 0) sum += value_bytes(&t->g, v, var);
    }
    for (u32 k = 0; k < t->g.output.n; k++) sum += value_bytes(&t->g, t->g.output.v[k], var);
    return sum;
}
