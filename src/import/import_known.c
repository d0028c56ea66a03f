// SPDX-License-Identifier: Apache-2.0
//
// Known facts about a graph during inference: values that follow from constants, and the bodies of
// nodes as read from the file.
#include "import/import_control.h"

enum { MAX_FOLD = 500 };

bool import_is_control_op(struct str op)
{
    return str_is(op, "If") || str_is(op, "Loop") || str_is(op, "Scan") || str_is(op, "SequenceMap");
}

/* The nodes that compute v from constants only; false: there are others, or too many. */
static bool collect_constant(const struct graph *g, value_id v, u32 depth, bool *seen, node_id *list, u32 *n)
{
    const struct value *x = graph_value(g, v);
    if (x->data) return true;
    node_id p = x->producer;
    if (!p || depth == MAX_FOLD || graph_node(g, p)->dead || import_is_control_op(graph_node(g, p)->op)) return false;
    if (op_of(g, p) && op_of(g, p)->props & OP_CALL) return false;
    if (seen[p]) return true;
    seen[p] = true;
    for (u32 k = 0; k < graph_node(g, p)->in.n; k++)
        if (graph_node(g, p)->in.v[k] && !collect_constant(g, graph_node(g, p)->in.v[k], depth + 1, seen, list, n)) return false;
    if (*n == MAX_FOLD) return false;
    list[(*n)++] = p;
    return true;
}

/* The scalar content of v, evaluated if it depends on constants only. */
static bool evaluate(const struct graph *g, value_id v, i64 *out)
{
    struct arena a = {0};
    struct graph part;
    struct err none = {0};
    struct tensor *t = NULL;
    u32 n = 0;
    node_id *list = arena_array(&a, node_id, MAX_FOLD);
    bool ok = collect_constant(g, v, 0, arena_array(&a, bool, g->node.n), list, &n);
    if (ok && n) graph_extract(&part, g, &a, list, n, &v, 1, NULL);
    if (ok) ok = !n ? (t = graph_value(g, v)->data) != NULL : graph_eval(&part, NULL, &t, &a, NULL, &none);
    if (ok) ok = tensor_count(t) == 1 && !dtype_is_float(t->dtype);
    if (ok) *out = elem_i64(t->dtype, t->data, 0);
    arena_release(&a);
    return ok;
}

bool control_is_constant(const struct graph *g, value_id v)
{
    struct arena a = {0};
    u32 n = 0;
    bool ok = v && collect_constant(g, v, 0, arena_array(&a, bool, g->node.n), arena_array(&a, node_id, MAX_FOLD), &n);
    arena_release(&a);
    return ok;
}

bool import_known(const struct graph *g, value_id v, i64 *out)
{
    if (op_const_ints(g, v, out, 1) == 1) return true;
    for (u32 steps = 0; steps < 64; steps++) {
        node_id p = graph_value(g, v)->producer;
        if (!p || !str_is(graph_node(g, p)->op, "Identity")) break;
        v = graph_node(g, p)->in.v[0];
        if (op_const_ints(g, v, out, 1) == 1) return true;
    }
    return evaluate(g, v, out);
}

const struct graph *control_body(const struct control *c, node_id n, const char *attr)
{
    i64 k = attr_int(graph_node(c->g, n), attr, -1);
    return k >= 0 && k < c->bodies->n ? c->bodies->v[k] : NULL;
}

/* First and number of the inputs of n that the body captured. */
bool control_captured(const struct control *c, node_id n, const char *attr, u32 *from, u32 *count)
{
    const i64 *v;
    struct str key = str_fmt(c->g->arena, "%s_captured", attr);
    bool ok = attr_ints(graph_node(c->g, n), key.p, &v) == 2;
    *from = ok ? (u32)v[0] : 0, *count = ok ? (u32)v[1] : 0;
    return ok;
}

value_id control_scalar(struct graph *g, node_id n, value_id v)
{
    value_id y = op_node1(g, n, "quern::Reshape", v, 0);
    op_set_syms(g, op_made(g, y), "shape", NULL, 0);
    return y;
}
