// SPDX-License-Identifier: Apache-2.0
//
// op: the registry of operators and what can be asked of any of them. The plug-in files are listed
// in the generated op.inc; nothing else enumerates operators. Names are searched linearly, once per
// node: op_of notes the place in the node and compares one name from then on.
//
// Every plug-in may rely on what op_infer checks before it calls `infer`: counts of inputs and
// outputs, the required inputs present, and dtype and shape of all present inputs known.
#include "op/op.h"

#include <stdio.h>

enum { MAX_ROUNDS = 200 }; /* of inference: each but the last finds a fact */

#define X(name) extern const struct op_family op_##name;
#include "op.inc"
#undef X

static const struct op_family *const families[] = {
#define X(name) &op_##name,
#include "op.inc"
#undef X
    NULL};

/* The first characters distinguish most names without a call. */
static bool is_named(const struct op *op, struct str name)
{
    return op->name[0] == name.p[0] && str_is(name, op->name);
}

const struct op *op_find(struct str name)
{
    if (!name.n) return NULL;
    for (i64 f = 0; families[f]; f++)
        for (i64 i = 0; i < families[f]->n; i++)
            if (is_named(&families[f]->ops[i], name)) return &families[f]->ops[i];
    return NULL;
}

const struct op *op_all(i64 k)
{
    for (i64 f = 0; families[f]; k -= families[f]->n, f++)
        if (k < families[f]->n) return &families[f]->ops[k];
    return NULL;
}

enum { MAX_FAMILY = 1 << 12 };

static const struct op *op_noted(u32 at, struct str name)
{
    const struct op *op = &families[(at - 1) / MAX_FAMILY]->ops[(at - 1) % MAX_FAMILY];
    return is_named(op, name) ? op : NULL;
}

/* 1 + the operator's place; 0: unknown. */
static u32 place_of(const struct op *op)
{
    for (i64 f = 0; op && families[f]; f++)
        if (op >= families[f]->ops && op < families[f]->ops + families[f]->n)
            return 1 + (u32)(f * MAX_FAMILY + (op - families[f]->ops));
    return 0;
}

/* The note in the node is a cache, not a part of the graph: threads that share a graph may all write it. */
const struct op *op_of(const struct graph *g, node_id n)
{
    struct node *x = graph_node(g, n);
    u32 at = __atomic_load_n(&x->op_at, __ATOMIC_RELAXED);
    const struct op *op = at && x->op.n ? op_noted(at, x->op) : NULL;
    if (op) return op;
    op = op_find(x->op);
    __atomic_store_n(&x->op_at, place_of(op), __ATOMIC_RELAXED);
    return op;
}

/* Errors. */

/* Sizes. */

static bool count_ok(u32 n, u8 lo, u8 hi) { return n >= lo && (hi == 255 || n <= hi); }

static bool inputs_ok(struct graph *g, node_id n, const struct op *op, struct err *e)
{
    const struct node *x = graph_node(g, n);
    if (!count_ok(x->in.n, op->min_in, op->max_in))
        return op_invalid(e, g, n, "%u inputs", x->in.n);
    if (!count_ok(x->out.n, op->min_out, op->max_out))
        return op_invalid(e, g, n, "%u outputs", x->out.n);
    for (u32 i = 0; i < x->in.n; i++) {
        if (!x->in.v[i]) {
            if (i < op->min_in || (op->max_in == 255 && !(op->props & OP_CALL))) return op_invalid(e, g, n, "input %u is missing", i);
            continue;
        }
        const struct value *v = graph_value(g, x->in.v[i]);
        if (!v->shape.known || v->dtype == DT_NONE)
            return op_unsupported(e, g, n, "type or shape of '%.*s' is not known",
                                  STR_ARG(v->name));
        assert(v->shape.rank <= MAX_RANK);
    }
    return true;
}

/* Nothing computes with storage-only types, and families that read operands as stored do not
   support them. */
static bool small_ok(struct graph *g, node_id n, const value_id *v, u32 count, struct err *e)
{
    if (op_of(g, n)->props & (OP_VIEW | OP_MOVES | OP_SMALL)) return true;
    for (u32 i = 0; i < count; i++) {
        const struct value *x = v[i] ? graph_value(g, v[i]) : NULL;
        if (x && dtype_is_small(x->dtype))
            return op_unsupported(e, g, n, "elements of type %s ('%.*s'): only moved, cast, quantised and dequantised; put a Cast before",
                                  dtype_name(x->dtype), STR_ARG(x->name));
    }
    return true;
}

bool op_infer(struct graph *g, node_id n, struct err *e)
{
    const struct op *op = op_of(g, n);
    if (!op) return op_unsupported(e, g, n, "no such operator");
    if (!inputs_ok(g, n, op, e) || !small_ok(g, n, graph_node(g, n)->in.v, graph_node(g, n)->in.n, e)) return false;
    g->at = n;
    bool ok = op->infer(g, n, e);
    g->at = 0;
    if (!ok) return op_blame(e, g, n);
    const struct node *x = graph_node(g, n);
    for (u32 k = 0; k < x->out.n; k++) {
        const struct value *v = x->out.v[k] ? graph_value(g, x->out.v[k]) : NULL;
        if (v && (!v->shape.known || v->dtype == DT_NONE))
            return op_unsupported(e, g, n, "output %u has no shape", k);
        if (v && !shape_size_ok(g->sym, &v->shape, v->dtype))
            return op_invalid(e, g, n, "output %u, %.*s, has a negative size or is too large", k, STR_ARG(op_shape_text(g, &v->shape)));
    }
    return small_ok(g, n, x->out.v, x->out.n, e);
}

bool op_infer_from(struct graph *g, node_id first, struct err *e)
{
    for (node_id n = first; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && (!op_infer(g, n, e) || !mem_check(e, "inferring sizes of ", graph_node(g, n)->name))) return false;
    return true;
}

static bool infer_once(struct graph *g, struct err *e)
{
    if (!op_infer_from(g, 1, e)) return false;
    return g->made.n == 0 || graph_sort(g, e); /* sizes that were made have an order of their own */
}

/* Sizes of inputs and constants as facts make them. */
static void refresh_sizes(struct graph *g)
{
    for (u32 k = 0; k < g->input.n; k++) {
        struct shape s = value_given(g->sym, graph_value(g, g->input.v[k]));
        if (!graph_value(g, g->input.v[k])->given) value_set_given(g, g->input.v[k], &s);
    }
    for (u32 k = 0; k < g->made.n; k++) {
        struct made_size *m = &g->made.v[k];
        m->expr = sym_current(g->sym, m->expr), m->most = sym_current(g->sym, m->most);
    }
    for (value_id v = 1; v < g->value.n; v++) {
        struct value *x = graph_value(g, v);
        for (u32 i = 0; i < x->shape.rank && x->shape.known && !x->producer; i++)
            x->shape.dim[i] = sym_current(g->sym, x->shape.dim[i]);
    }
}

/* A fact required by a late node changes earlier sizes: repeats until there are no new facts. A
   failed node may succeed with facts from later ones, too. */
bool op_infer_all(struct graph *g, struct err *e)
{
    if (!graph_sort(g, e)) return false;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        u32 known = g->sym->n_noted;
        struct err why = {0};
        if (known) refresh_sizes(g);
        bool ok = infer_once(g, &why);
        if (g->sym->n_noted != known) continue;
        if (!ok) *e = why;
        return ok;
    }
    return err_set(e, ERR_UNSUPPORTED, "facts about sizes do not come to rest");
}

/* Expansion. */

bool op_expand(struct graph *g, node_id n, struct err *e)
{
    const struct op *op = op_of(g, n);
    assert(op);
    if (!op->expand) return true;
    u32 first = g->node.n;
    if (!op->expand(g, n, e)) return op_blame(e, g, n);
    graph_node(g, n)->dead = true;
    for (node_id k = first; k < g->node.n; k++)
        if (!graph_node(g, k)->dead && !op_infer(g, k, e)) return op_blame(e, g, n);
    return true;
}

bool op_expand_all(struct graph *g, struct err *e)
{
    bool changed = false;
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead) continue;
        const struct op *op = op_of(g, n);
        if (!op) return op_unsupported(e, g, n, "no such operator");
        if (op->expand && !op_expand(g, n, e)) return false;
        changed |= op->expand != NULL;
        for (u32 k = 0; op->props & OP_CALL && k < graph_node(g, n)->attr.n; k++) {
            struct attr *a = &graph_node(g, n)->attr.v[k];
            if (a->kind == ATTR_GRAPH && !op_expand_all(a->graph, e)) return false;
        }
    }
    return !changed || graph_sort(g, e);
}

/* Cost. */

static double count_of(const struct graph *g, value_id v, const i64 *var)
{
    i64 dim[MAX_RANK];
    const struct shape *s = &graph_value(g, v)->shape;
    if (!shape_eval(g->sym, s, var, dim)) return 0;
    double n = 1;
    for (u32 i = 0; i < s->rank; i++) n *= (double)dim[i];
    return n;
}

double op_flops(const struct graph *g, node_id n, const i64 *var)
{
    const struct op *op = op_of(g, n);
    const struct node *x = graph_node(g, n);
    if (op->flops) return op->flops(g, x, var);
    if (op->props & OP_REDUCE && x->in.n && x->in.v[0]) return count_of(g, x->in.v[0], var);
    if (op->props & (OP_VIEW | OP_MOVES) || !x->out.n || !x->out.v[0]) return 0;
    return count_of(g, x->out.v[0], var);
}

double graph_flops(const struct graph *g, const i64 *var)
{
    double sum = 0;
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead) sum += op_flops(g, n, var);
    return sum;
}
