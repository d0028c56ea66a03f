// SPDX-License-Identifier: Apache-2.0
//
// Private to pass/: finding the nodes of a pattern from its result backwards. Values that are added meanwhile are parts of no pattern.
#ifndef QUERN_PASS_MATCH_H
#define QUERN_PASS_MATCH_H

#include "pass/pass.h"

struct matcher {
    const struct graph *g;
    const u32 *uses; /* per value: graph_use_counts */
    u32 n_values;    /* that were counted */
};

/* Of the graph as it is, in the arena. */
static inline struct matcher matcher_of(const struct graph *g, struct arena *a) { return (struct matcher){g, graph_use_counts(g, a), g->value.n}; }

/* The node of that operator that makes v; 0: it is another one, or none. */
static inline node_id match_any(const struct graph *g, value_id v, const char *op)
{
    node_id n = graph_value(g, v)->producer;
    return n && str_is(graph_node(g, n)->op, op) ? n : 0;
}

/* The node of that operator that makes v, of which nothing else is computed; 0: none. */
static inline node_id match_only(const struct matcher *m, value_id v, const char *op)
{
    return v < m->n_values && m->uses[v] == 1 ? match_any(m->g, v, op) : 0;
}

#endif
