// SPDX-License-Identifier: Apache-2.0
//
// Making tasks: a region of a graph becomes a graph of its own whose text is its identity. Content
// of constants is dropped unless kernels are specialised on it (integers that steer index maps,
// single scalars), so that two layers which differ only in their weights are one task and are
// measured once.
#include "task/task.h"

/* Integers up to this many elements stay: starts of slices, pads, permutations given as inputs. */
enum { KEEP_INTS = 64 };

static bool content_matters(const struct tensor *t)
{
    i64 n = tensor_count(t);
    return n <= 1 || (!dtype_is_float(t->dtype) && n <= KEEP_INTS);
}

/* What was known of other values through content that is dropped is forgotten, too. */
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
    for (node_id n = 1; stripped && n < g->node.n; n++)
        if (!graph_node(g, n)->dead && !op_infer(g, n, e)) return false;
    return true;
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
    }
    for (u32 k = 0; k < t->g.output.n; k++)
        graph_value(&t->g, t->g.output.v[k])->layout = layout[back[t->g.output.v[k]]];
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

bool task_parse(struct task *t, struct arena *a, struct symtab *st, struct str text, struct err *e)
{
    if (!graph_parse(&t->g, a, st, text, e)) return false;
    if (!op_infer_all(&t->g, e)) return false;
    find_anchor(t);
    task_key(t);
    return true;
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
