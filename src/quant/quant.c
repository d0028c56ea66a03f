// SPDX-License-Identifier: Apache-2.0
//
// Which values of a network are quantised, and with which scales.
//
// The inputs of layers are. Between layers, values stay quantised: nodes on a path from a layer to
// another one that pool, add, concatenate or move elements read quantised values, too, because 8-bit
// values take a quarter of the memory traffic. A pointwise function of one value (Relu, x *
// sigmoid(x)) is computed in f32 with the producer of that value, before its result is quantised:
// rounding in between would lose accuracy and save nothing.
//
// Nodes that only move elements have one scale for input and result, which makes their pairs of
// QuantizeLinear and DequantizeLinear superfluous. So does a concatenation, for those inputs that
// lose at most one bit by that.
#include "quant/quant.h"

#include <math.h>

static const char *const moves[] = {"Identity", "MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze",
                                    "Slice", "Split", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Gather", "Dropout"};
static const char *const joins[] = {"Concat", "AveragePool", "GlobalAveragePool", "ReduceMean", "Resize", "Upsample"};
static const char *const norms[] = {"Softmax", "LogSoftmax"}; /* joins of quant_opts.full; elsewhere f32 is better */
static const char *const clips[] = {"Relu", "Clip", "Identity"}; /* functions that devices compute before they round */
static const char *const sums[] = {"Add", "Sub", "Mul"};

static bool is_one_of(struct str op, const char *const *list, i64 n)
{
    for (i64 k = 0; k < n; k++)
        if (str_is(op, list[k])) return true;
    return false;
}

/* An f32 value that is computed at run time. */
static bool is_data(const struct graph *g, value_id v)
{
    const struct value *x = v ? graph_value(g, v) : NULL;
    return x && !x->is_const && x->dtype == DT_F32 && !x->sdata;
}

static bool all_data(const struct graph *g, const struct node *n)
{
    for (u32 k = 0; k < n->out.n; k++)
        if (n->out.v[k] && !is_data(g, n->out.v[k])) return false;
    return n->in.n && is_data(g, n->in.v[0]);
}

/* Per value: the value that it is a pointwise function of, through roles QUANT_POINT; or itself. */
static enum quant_role pointwise_role(const struct quant *t, const struct node *n, value_id *base)
{
    const struct graph *g = &t->g;
    value_id of = 0;
    bool is_single = true;
    for (u32 k = 0; k < n->in.n; k++) {
        value_id v = n->in.v[k];
        if (!v || graph_value(g, v)->is_const) continue;
        if (!is_data(g, v)) return QUANT_OTHER;
        is_single &= !of || of == base[v];
        of = base[v];
    }
    if (!of) return QUANT_OTHER;
    if (!is_single) return is_one_of(n->op, sums, countof(sums)) ? QUANT_JOIN : QUANT_OTHER;
    if (t->opts.full && !is_one_of(n->op, clips, countof(clips))) return QUANT_JOIN;
    base[n->out.v[0]] = of;
    return QUANT_POINT;
}

static bool is_nearest(const struct node *n)
{
    return (str_is(n->op, "Resize") || str_is(n->op, "Upsample")) && str_is(attr_str(n, "mode", "nearest"), "nearest");
}

/* Of a node that is not a layer, wherever it is. */
static enum quant_role role_of(const struct quant *t, node_id id, value_id *base)
{
    const struct graph *g = &t->g;
    const struct node *n = graph_node(g, id);
    bool is_pointwise = op_of(g, id)->props & OP_POINTWISE;
    if (n->dead || n->out.n == 0 || !is_data(g, n->out.v[0])) return QUANT_OTHER;
    if (is_pointwise) return pointwise_role(t, n, base);
    if (!all_data(g, n)) return QUANT_OTHER;
    if (is_one_of(n->op, moves, countof(moves)) || is_nearest(n)) return QUANT_MOVE;
    if (t->opts.full && is_one_of(n->op, norms, countof(norms))) return QUANT_JOIN;
    return is_one_of(n->op, joins, countof(joins)) ? QUANT_JOIN : QUANT_OTHER;
}

/* Whether input k of a node of that role is one of the values that it computes with. */
static bool is_operand(const struct graph *g, const struct node *n, enum quant_role role, u32 k)
{
    if (!is_data(g, n->in.v[k])) return false;
    switch (role) {
    case QUANT_OTHER: return false;
    case QUANT_LAYER:
    case QUANT_MOVE: return k == 0;
    case QUANT_JOIN: return k == 0 || str_is(n->op, "Concat") || is_one_of(n->op, sums, countof(sums));
    case QUANT_POINT: return true;
    }
    unreachable();
}

/* Opening. */

/* Of which weights alone are quantised: matrices. */
static bool is_matrix(const struct graph *g, const struct quant_layer *l)
{
    return graph_value(g, l->w)->shape.rank == 2 && !(op_of(g, graph_value(g, l->out)->producer)->props & (OP_CONV | OP_TRANSPOSED));
}

static bool find_layers(struct quant *t, struct err *e)
{
    for (node_id n = 1; n < t->g.node.n; n++) {
        struct quant_layer l;
        if (quant_layer_find(&t->g, n, &l) && (!t->opts.weights || is_matrix(&t->g, &l))) *arr_push(t->arena, &t->layer) = l;
    }
    if (t->opts.weights && !t->layer.n)
        return err_set(e, ERR_UNSUPPORTED, "nothing to quantise: the network has no Gemm or MatMul with constant weights of type f32 and two axes; export "
                       "it in f32, with weights as initializers");
    return t->layer.n || err_set(e, ERR_UNSUPPORTED,
                                 "nothing to quantise: the network has no Conv, ConvTranspose, Gemm or MatMul with constant weights of type "
                                 "f32; export it in f32, with weights as initializers");
}

bool quant_open(struct quant *t, const struct graph *g, const struct quant_opts *o, struct arena *a, struct err *e)
{
    *t = (struct quant){.arena = a, .opts = *o};
    graph_clone(&t->g, g, a);
    if (!op_infer_all(&t->g, e) || (!o->weights && !quant_fold_norms(&t->g, e)) || !find_layers(t, e)) return false;
    t->role = arena_array(a, enum quant_role, t->g.node.n);
    t->is_pair = arena_array(a, bool, t->g.value.n);
    t->seen = arena_array(a, struct quant_seen *, t->g.value.n);
    t->same = arena_array(a, value_id, t->g.value.n);
    t->step = arena_array(a, struct quant_step, t->g.value.n);
    quant_mark(t);
    return true;
}

/* Roles. */

/* Whether any operand (or result) of the node is marked. */
static bool any_operand(const struct quant *t, node_id n, enum quant_role role, const bool *mark)
{
    const struct node *x = graph_node(&t->g, n);
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k] && mark[x->in.v[k]] && is_operand(&t->g, x, role, k)) return true;
    return false;
}

static bool any_result(const struct quant *t, node_id n, const bool *mark)
{
    const struct node *x = graph_node(&t->g, n);
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k] && mark[x->out.v[k]]) return true;
    return false;
}

static void mark_results(const struct quant *t, node_id n, bool *mark)
{
    const struct node *x = graph_node(&t->g, n);
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) mark[x->out.v[k]] = true;
}

static void mark_operands(const struct quant *t, node_id n, enum quant_role role, bool *mark)
{
    const struct node *x = graph_node(&t->g, n);
    for (u32 k = 0; k < x->in.n; k++)
        if (is_operand(&t->g, x, role, k)) mark[x->in.v[k]] = true;
}

/* Roles as if all nodes were between layers. */
static void find_roles(struct quant *t, struct arena *work)
{
    value_id *base = arena_array(work, value_id, t->g.value.n);
    for (value_id v = 1; v < t->g.value.n; v++) base[v] = v;
    for (node_id n = 1; n < t->g.node.n; n++) t->role[n] = role_of(t, n, base);
    for (u32 k = 0; k < t->layer.n; k++)
        t->role[graph_value(&t->g, t->layer.v[k].out)->producer] = t->layer.v[k].is_float ? QUANT_OTHER : QUANT_LAYER;
}

/* With quant_opts.full: inputs and outputs of the network are ends of paths. */
static void find_ends(const struct quant *t, bool *from, bool *to)
{
    const struct graph *g = &t->g;
    for (u32 k = 0; k < g->input.n && t->opts.full; k++) from[g->input.v[k]] = is_data(g, g->input.v[k]);
    for (u32 k = 0; k < g->output.n && t->opts.full; k++) to[g->output.v[k]] = is_data(g, g->output.v[k]);
}

/* They are quantised themselves, if anything on such a path reads or computes them. */
static void mark_ends(struct quant *t, const bool *from, const bool *to)
{
    const struct graph *g = &t->g;
    for (u32 k = 0; k < g->input.n && t->opts.full; k++) t->is_pair[g->input.v[k]] |= from[g->input.v[k]] && to[g->input.v[k]];
    for (u32 k = 0; k < g->output.n && t->opts.full; k++) {
        node_id n = graph_value(g, g->output.v[k])->producer;
        t->is_pair[g->output.v[k]] |= n && t->role[n] != QUANT_OTHER && from[g->output.v[k]] && to[g->output.v[k]];
    }
}

void quant_mark(struct quant *t)
{
    struct arena work = {0};
    bool *from = arena_array(&work, bool, t->g.value.n), *to = arena_array(&work, bool, t->g.value.n); /* a layer, to a layer */
    find_roles(t, &work);
    find_ends(t, from, to);
    for (node_id n = 1; n < t->g.node.n; n++)
        if (t->role[n] == QUANT_LAYER || any_operand(t, n, t->role[n], from)) mark_results(t, n, from);
    for (node_id n = t->g.node.n - 1; n > 0; n--)
        if (t->role[n] == QUANT_LAYER || any_result(t, n, to)) mark_operands(t, n, t->role[n], to);
    for (value_id v = 1; v < t->g.value.n; v++) t->is_pair[v] = false;
    for (node_id n = 1; n < t->g.node.n; n++) {
        if (t->role[n] != QUANT_LAYER && !(any_operand(t, n, t->role[n], from) && any_result(t, n, to))) t->role[n] = QUANT_OTHER;
        if (t->role[n] != QUANT_POINT) mark_operands(t, n, t->role[n], t->is_pair);
    }
    mark_ends(t, from, to);
    arena_release(&work);
}

bool quant_reads(const struct quant *t, node_id n, u32 k)
{
    const struct node *x = graph_node(&t->g, n);
    value_id v = x->in.v[k];
    return v && t->is_pair[v] && is_operand(&t->g, x, t->role[n], k);
}

/* Scales. */

static struct quant_seen *watch(struct quant *t, value_id v)
{
    if (t->seen[v]) return t->seen[v];
    t->seen[v] = arena_new(t->arena, struct quant_seen);
    t->seen[v]->axis = -1;
    return t->seen[v];
}

void quant_watch(struct quant *t)
{
    for (value_id v = 1; v < t->g.value.n; v++)
        if (t->is_pair[v]) watch(t, v);
    for (u32 k = 0; k < t->layer.n; k++) {
        i64 axis = quant_layer_channel_axis(&t->g, &t->layer.v[k]);
        if (axis >= 0) watch(t, t->layer.v[k].x)->axis = axis;
    }
}

static value_id end_of(const struct quant *t, value_id v)
{
    while (t->same[v] != v) v = t->same[v];
    return v;
}

static double width(const struct quant_range *r, value_id v) { return r[v].hi - r[v].lo; }

/* Gives two values one scale. */
static void join(struct quant *t, value_id a, value_id b, struct quant_range *r)
{
    a = end_of(t, a), b = end_of(t, b);
    if (a == b) return;
    t->same[b] = a;
    r[a] = (struct quant_range){fmin(r[a].lo, r[b].lo), fmax(r[a].hi, r[b].hi)};
}

static void join_moved(struct quant *t, node_id n, struct quant_range *r)
{
    const struct node *x = graph_node(&t->g, n);
    for (u32 k = 0; t->role[n] == QUANT_MOVE && k < x->out.n; k++)
        if (x->out.v[k] && t->is_pair[x->out.v[k]]) join(t, x->in.v[0], x->out.v[k], r);
}

static void join_concat(struct quant *t, node_id n, struct quant_range *r)
{
    const struct node *x = graph_node(&t->g, n);
    if (t->role[n] != QUANT_JOIN || !str_is(x->op, "Concat") || !t->is_pair[x->out.v[0]]) return;
    for (u32 k = 0; k < x->in.n; k++) {
        if (!quant_reads(t, n, k)) continue;
        value_id in = end_of(t, x->in.v[k]), out = end_of(t, x->out.v[0]);
        if (2 * width(r, in) >= width(r, out) && 2 * width(r, out) >= width(r, in)) join(t, out, in, r);
    }
}

struct quant_step quant_value_step(const struct quant *t, value_id v) { return t->step[end_of(t, v)]; }

/* The means of channels of a layer's activation, NULL: the bias is not corrected. */
static const double *means(const struct quant *t, const struct quant_layer *l, struct arena *work)
{
    const struct quant_seen *s = t->seen[l->x];
    i64 axis = quant_layer_channel_axis(&t->g, l);
    if (t->opts.no_correction || axis < 0 || !s || s->axis != axis || !s->sum || !s->n) return NULL;
    double *m = arena_array(work, double, s->n_channels);
    for (i64 c = 0; c < s->n_channels; c++) m[c] = s->sum[c] * (double)s->n_channels / (double)s->n;
    return m;
}

bool quant_settle(struct quant *t, struct err *e)
{
    struct arena work = {0};
    struct quant_range *r = arena_array(&work, struct quant_range, t->g.value.n);
    bool ok = true;
    for (value_id v = 1; v < t->g.value.n; v++) {
        t->same[v] = v;
        if (t->is_pair[v]) r[v] = quant_range_of(t->seen[v], &t->opts);
    }
    for (node_id n = 1; n < t->g.node.n; n++) join_moved(t, n, r);
    for (node_id n = 1; n < t->g.node.n; n++) join_concat(t, n, r);
    for (value_id v = 1; v < t->g.value.n; v++) t->step[v] = quant_step_of(r[v], t->opts.is_signed);
    for (u32 k = 0; k < t->layer.n && ok; k++) {
        struct quant_layer *l = &t->layer.v[k];
        if (l->is_float) continue;
        l->is_reduced = t->opts.reduce_range;
        ok = mem_check(e, "quantising ", graph_value(&t->g, l->out)->name) &&
             quant_layer_settle(&t->g, l, quant_value_step(t, l->x), means(t, l, &work), t->arena, e);
    }
    arena_release(&work);
    return ok;
}
