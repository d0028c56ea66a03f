// SPDX-License-Identifier: Apache-2.0
//
// fold: evaluates nodes whose inputs are all constant, and integer values whose symbolic
// content is constant (shape arithmetic). Nodes that would enlarge a small constant (Expand
// of a scalar to a large tensor) stay; tables of a few MB, as biases of attention by relative
// position are gathered, do not; bands stay, too, which kernels of attention know as such.
// Once the graph's constants have MAX_HELD bytes, only results that replace their inputs are
// folded: a Concat of a constant with itself, again and again, is computed when the program
// runs, if memory permits. requires: inferred.
#include "pass/pass.h"

enum {
    MAX_GROWTH = 1 << 16, /* maximal elements of a folded result beyond its inputs, or */
    MAX_TIMES = 16,       /* times as many as they have */
    MAX_TABLE = 1 << 20,  /* and maximal elements of it */
};

static const i64 max_held = (i64)512 << 20; /* bytes of constants from which on folding must not add to them */

struct folder {
    struct graph *g;
    i64 held;    /* bytes of all constants */
    u32 *uses;   /* per value, when the pass started */
};

static i64 bytes_held(const struct graph *g)
{
    i64 sum = 0;
    for (value_id v = 1; v < g->value.n; v++)
        if (graph_value(g, v)->data) sum += tensor_bytes(graph_value(g, v)->data);
    return sum;
}

/* No other node needs the inputs. */
static bool replaces_inputs(const struct folder *f, const struct node *x)
{
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k] && f->uses[x->in.v[k]] > 1) return false;
    return true;
}

static bool inputs_const(const struct graph *g, const struct node *x, i64 *n_elems)
{
    *n_elems = 0;
    for (u32 k = 0; k < x->in.n; k++) {
        if (!x->in.v[k]) continue;
        const struct value *v = graph_value(g, x->in.v[k]);
        if (!v->data) return false;
        *n_elems += tensor_count(v->data);
    }
    return true;
}

/* Content determined by the network's sizes, even if a node has no inputs at all. */
static bool is_symbolic(const struct graph *g, const struct value *v)
{
    for (i64 i = 0; v->sdata && i < v->sdata->n; i++)
        if (!sym_is_const(g->sym, v->sdata->num[i], NULL)) return true;
    return false;
}

static bool should_fold(struct folder *f, const struct node *x)
{
    const struct graph *g = f->g;
    i64 n_in, n_out = 0, size = 0, dim[MAX_RANK];
    const struct op *op = op_of(g, (node_id)(x - g->node.v));
    struct op_band band;
    if (op->props & (OP_CALL | OP_KEPT) || !inputs_const(g, x, &n_in) || (op->band && op->band(g, x, &band))) return false;
    for (u32 k = 0; k < x->out.n; k++) {
        if (!x->out.v[k]) continue;
        const struct value *v = graph_value(g, x->out.v[k]);
        if (!shape_is_static(g->sym, &v->shape, dim) || is_symbolic(g, v)) return false;
        i64 bytes;
        if (!tensor_size_ok(v->dtype, v->shape.rank, dim, &bytes)) return false;
        n_out += bytes / dtype_size(v->dtype);
        size += bytes;
    }
    if (n_out > n_in + MAX_GROWTH && (n_out > MAX_TIMES * n_in || n_out > MAX_TABLE)) return false;
    if (f->held + size > max_held && (n_out > n_in || !replaces_inputs(f, x))) return false;
    f->held += size;
    return true;
}

static void become_const(struct graph *g, value_id v, struct tensor *t)
{
    struct value *x = graph_value(g, v);
    assert(t && t->dtype == x->dtype && t->rank == x->shape.rank); /* as inferred */
    x->producer = 0;
    x->data = t;
    x->is_const = true;
}

/* Numbers of f32 that a Cast makes of f16 or bf16: pass_compact.c stores those again. */
static void note_narrow(const struct graph *g, node_id n, struct tensor *made)
{
    const struct node *x = graph_node(g, n);
    if (!made || !str_is(x->op, "Cast")) return;
    struct tensor *from = graph_value(g, x->in.v[0])->data;
    if (made->dtype == DT_F32 && (from->dtype == DT_F16 || from->dtype == DT_BF16)) made->narrow = from;
}

/* Evaluates one node as a graph of its own. false: it stays,
 * because its result depends on sizes that are only known later. */
static bool fold_node(struct graph *g, node_id n)
{
    struct err unknown = {0};
    const struct node *x = graph_node(g, n);
    value_id out[MAX_RANK], *back;
    u32 n_out = 0;
    for (u32 k = 0; k < x->out.n && n_out < countof(out); k++)
        if (x->out.v[k]) out[n_out++] = x->out.v[k];
    struct graph one;
    graph_extract(&one, g, g->arena, &n, 1, out, n_out, &back);
    struct tensor *res[MAX_RANK] = {0};
    if (!graph_eval(&one, NULL, res, g->arena, NULL, &unknown)) return false;
    note_narrow(g, n, res[0]);
    for (u32 k = 0; k < n_out; k++) become_const(g, out[k], res[k]);
    graph_node(g, n)->dead = true;
    return true;
}

/* The tensor of a value whose symbolic content is constant; NULL: it is not. */
static struct tensor *content(struct graph *g, const struct value *v)
{
    const struct sym_data *s = v->sdata;
    i64 dim[MAX_RANK], c;
    if (!s || is_symbolic(g, v) || !dtype_is_int(v->dtype) ||
        !shape_is_static(g->sym, &v->shape, dim))
        return NULL;
    struct tensor *t = tensor_try(g->arena, v->dtype, v->shape.rank, dim, NULL, "", v->name);
    if (!t) return NULL;
    for (i64 i = 0; i < s->n; i++) {
        bool known = sym_is_const(g->sym, s->num[i], &c);
        assert(known), (void)known; /* not is_symbolic */
        elem_set_i64(t->dtype, t->data, i, c / s->den);
    }
    return t;
}

static bool fold_content(struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k] && x->out.n > 1) return false;
    struct tensor *t = x->out.n && x->out.v[0] ? content(g, graph_value(g, x->out.v[0])) : NULL;
    if (!t) return false;
    become_const(g, x->out.v[0], t);
    graph_node(g, n)->dead = true;
    return true;
}

bool pass_fold_but(struct graph *g, bool (*stays)(const struct graph *g, node_id n))
{
    bool changed = false;
    struct arena a = {0};
    struct folder f = {.g = g, .held = bytes_held(g), .uses = graph_use_counts(g, &a)};
    for (node_id n = 1; n < g->node.n; n++) {
        if (graph_node(g, n)->dead || (stays && stays(g, n))) continue;
        if (should_fold(&f, graph_node(g, n)) && fold_node(g, n)) changed = true;
        else changed |= fold_content(g, n);
    }
    arena_release(&a);
    return changed;
}

static bool run(struct graph *g, bool *ok, struct err *e) { return pass_fold_but(g, NULL); }

const struct pass pass_fold = {
    .version = 1,
    .name = "fold",
    .summary = "evaluates constant nodes (constant folding)",
    .rank = 120,
    .run = run,
};
