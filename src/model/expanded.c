// SPDX-License-Identifier: Apache-2.0
//
// A network as primitives, at given sizes, to be looked at: all operators of a copy of the graph are expanded. Each node gets its number as its
// name first; new nodes are named after the expanded one, so the name of a primitive leads back to the operator.
#include "model/model.h"

#include "op/op.h"

enum { UNKNOWN_SIZE = 256 };

static void number_nodes(struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++) graph_node(g, n)->name = str_fmt(g->arena, "%u", n);
}

/* "12/Softmax/Exp" -> node 12 of the model */
node_id model_origin(const struct model_expanded *x, node_id n)
{
    struct str head, tail;
    i64 number = 0;
    str_cut(graph_node(&x->g, n)->name, '/', &head, &tail);
    if (!str_to_i64(head, &number)) unreachable();
    return (node_id)number;
}

bool model_expand(struct model_expanded *x, struct model *m, const char *sizes, struct arena *a, struct err *e)
{
    *x = (struct model_expanded){.m = m, .a = a};
    graph_clone(&x->g, &m->graph, a);
    number_nodes(&x->g);
    if (!op_expand_all(&x->g, e)) return false;
    x->var = arena_array(a, i64, m->sym.var.n + 1);
    i64 *usual = arena_array(a, i64, m->sym.var.n + 1);
    for (u32 v = 0; v < m->sym.var.n; v++) usual[v] = v < m->n_var ? m->var[v] : UNKNOWN_SIZE; /* data-dependent ones of expansions */
    return model_sizes(m, sizes, usual, x->var, e);
}
