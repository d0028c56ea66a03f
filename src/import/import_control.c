// SPDX-License-Identifier: Apache-2.0
//
// If, Loop and Scan are replaced by their bodies while sizes are inferred, if the number of
// executions is known; those decided at run time remain as quern::If and quern::Loop
// (import_call.c).
//   If      with a known condition: the nodes of that branch. If both branches have few pointwise nodes: those of both, with a
//           choice of the results. Results of different sizes have a data-dependent size.
//   Loop    with a known trip count: its body, once per iteration while the condition is known to hold. If the condition is decided
//           at run time and there are few iterations at most: from then on, an iteration's results are chosen from its own and the
//           previous ones, and the collected outputs are cut at the last iteration that ran.
//   Scan    over a known number of elements: likewise.
//           With many iterations of many nodes, one body remains.
//   SequenceMap  its body for each element. Sequences are replaced by their elements meanwhile (import_sequence.c).
// A body reads values of the enclosing graph as additional inputs after those that it declares
// ("captured"). Until a node is replaced, attributes hold the numbers of its bodies.
//
// The graph is inferred in order; a node is replaced when its inputs are known, and its replacement
// is inferred next. Nodes that have types and shapes are not inferred again, and a loop is unrolled
// one iteration at a time, because its condition may follow from the results of the previous one.
#include "import/import_control.h"

#include <string.h>

enum { MAX_TRIPS = 4096, MAX_UNROLLED = 200000, MAX_MASKED = 256, MAX_CHEAP = 4, FEW_TRIPS = 64, FEW_NODES = 1024 };

/* Copies of bodies. */

static value_id copied(struct graph *g, const struct value *x, value_id *to)
{
    if (*to) return *to;
    *to = x->data ? graph_add_const(g, x->name, x->data) : graph_add_value(g, x->name);
    return *to;
}

/* Appends the body's nodes, reading in[] for its inputs; out[] receives its outputs. */
static void paste(struct graph *g, const struct graph *body, const value_id *in, value_id *out)
{
    struct arena tmp = {0};
    value_id *map = arena_array(&tmp, value_id, body->value.n);
    for (u32 k = 0; k < body->input.n; k++) map[body->input.v[k]] = in[k];
    for (node_id n = 1; n < body->node.n; n++) {
        const struct node *x = graph_node(body, n);
        if (x->dead) continue;
        node_id to = graph_add_node(g, x->op, x->name);
        for (u32 k = 0; k < x->attr.n; k++) attr_copy(g, to, &x->attr.v[k]);
        for (u32 k = 0; k < x->in.n; k++) {
            value_id v = x->in.v[k];
            node_add_in(g, to, v ? copied(g, graph_value(body, v), &map[v]) : 0);
        }
        for (u32 k = 0; k < x->out.n; k++) {
            value_id v = x->out.v[k];
            node_set_out(g, to, k, v ? copied(g, graph_value(body, v), &map[v]) : 0);
        }
    }
    for (u32 k = 0; k < body->output.n; k++)
        out[k] = copied(g, graph_value(body, body->output.v[k]), &map[body->output.v[k]]);
    arena_release(&tmp);
}

static void hand_on(struct graph *g, node_id n, value_id v, value_id out)
{
    if (out) op_node1(g, n, "Identity", v, out);
}

static bool bad(const struct control *c, node_id n, const char *what) { return op_invalid(c->e, c->g, n, "%s", what); }

/* If. */

/* Sequences may be its own outputs. */
static bool has_sequences(const struct graph *body)
{
    for (node_id n = 1; n < body->node.n; n++)
        if (!graph_node(body, n)->dead && import_is_sequence_op(graph_node(body, n)->op)) return true;
    return false;
}

/* Whether computing both branches is cheaper than waiting for the condition. */
static bool is_cheap(const struct graph *body)
{
    u32 n_live = 0;
    for (node_id n = 1; n < body->node.n; n++) {
        if (graph_node(body, n)->dead) continue;
        const struct op *op = op_of(body, n);
        if (++n_live > MAX_CHEAP || !op || !(op->props & (OP_POINTWISE | OP_VIEW))) return false;
    }
    return true;
}

static bool dissolve_if(struct control *c, node_id n)
{
    struct graph *g = c->g;
    const struct graph *body[2] = {control_body(c, n, "else_branch"), control_body(c, n, "then_branch")};
    static const char *const name[2] = {"else_branch", "then_branch"};
    u32 n_out = graph_node(g, n)->out.n, from, count;
    i64 cond = -1;
    if (!body[0] || !body[1] || graph_node(g, n)->in.n < 1 || body[0]->output.n != n_out || body[1]->output.n != n_out)
        return bad(c, n, "the branches do not fit the node");
    bool known = import_known(g, graph_node(g, n)->in.v[0], &cond);
    if (!known && control_can_keep(c, n) && !has_sequences(body[0]) && !has_sequences(body[1]) &&
        !(is_cheap(body[0]) && is_cheap(body[1])))
        return control_keep_branch(c, n);
    value_id *out[2], pick = known ? 0 : control_scalar(g, n, graph_node(g, n)->in.v[0]);
    for (int b = 0; b < 2; b++) {
        out[b] = arena_array(g->arena, value_id, n_out + 1);
        if (known && (cond != 0) != b) continue;
        if (!control_captured(c, n, name[b], &from, &count) || from + count > graph_node(g, n)->in.n || body[b]->input.n != count)
            return bad(c, n, "the branches do not fit the node");
        value_id *in = arena_array(g->arena, value_id, count + 1);
        memcpy(in, graph_node(g, n)->in.v + from, count * sizeof *in);
        paste(g, body[b], in, out[b]);
    }
    for (u32 k = 0; k < n_out; k++) {
        value_id to = graph_node(g, n)->out.v[k];
        if (known) hand_on(g, n, out[cond != 0][k], to);
        else if (to) op_node(g, n, "quern::Choose", 3, (value_id[]){pick, out[1][k], out[0][k]}, to);
    }
    graph_node(g, n)->dead = true;
    return true;
}

/* Loop. Inputs: trip count, condition, carried values, captured ones; then the results of unrolling
   so far: for every pasted iteration its scan outputs and, unless it is known to run, its condition. */

struct loop {
    const struct graph *body;
    u32 n_own, n_carried, n_captured, n_scan; /* n_own: trip count, condition, carried */
    i64 done;                                 /* number of unrolled iterations */
    bool masked;                              /* the last one may not run */
};

static bool loop_read(struct control *c, node_id n, struct loop *l)
{
    const struct node *x = graph_node(c->g, n);
    u32 from;
    *l = (struct loop){.body = control_body(c, n, "body"), .done = attr_int(x, "done", 0), .masked = attr_int(x, "masked", 0)};
    if (!l->body || !control_captured(c, n, "body", &from, &l->n_captured) || from < 2 || l->body->input.n != from + l->n_captured ||
        x->in.n < from + l->n_captured || l->body->output.n < from - 1)
        return bad(c, n, "the body does not fit the node");
    l->n_own = from;
    l->n_carried = from - 2;
    l->n_scan = l->body->output.n - 1 - l->n_carried;
    return x->out.n <= l->n_carried + l->n_scan || bad(c, n, "the body does not fit the node");
}

/* Number of iterations that ran, from the collected conditions. */
static value_id count_iterations(struct graph *g, node_id n, const struct loop *l)
{
    u32 at = l->n_own + l->n_captured;
    value_id sum = 0;
    for (i64 r = 0; r < l->done; r++, at += l->n_scan + 1) {
        value_id was = graph_node(g, n)->in.v[at + l->n_scan];
        i64 one = 1;
        value_id x = was ? op_node_cast(g, n, was, DT_I64, 0) : op_const_i(g, DT_I64, &one, 1);
        if (was) {
            sym s = sym_const(g->sym, 1);
            x = op_node_reshape(g, n, x, 1, &s, 0);
        }
        sum = sum ? op_node2(g, n, "Add", sum, x, 0) : x;
    }
    return sum;
}

/* Scan output k of the collected iterations: stacked, and cut at the last one that ran. */
static bool loop_collect(struct control *c, node_id n, const struct loop *l, u32 k, value_id out)
{
    struct graph *g = c->g;
    i64 zero = 0;
    u32 at = l->n_own + l->n_captured;
    if (l->done == 0) {
        struct shape none = {.known = true, .rank = 1, .dim = {sym_const(g->sym, 0)}};
        const struct value *x = graph_value(l->body, l->body->output.v[1 + l->n_carried + k]);
        if (!x->shape.known || x->dtype == DT_NONE || x->shape.rank == MAX_RANK)
            return op_unsupported(c->e, g, n, "the type of output %u of a loop without iterations", l->n_carried + k);
        i64 dim[MAX_RANK] = {0}, d;
        for (u32 i = 0; i < x->shape.rank; i++, none.rank++) dim[i + 1] = sym_is_const(g->sym, x->shape.dim[i], &d) ? d : 0;
        hand_on(g, n, graph_add_const(g, S("none"), tensor_new(g->arena, x->dtype, none.rank, dim)), out);
        return true;
    }
    value_id *part = arena_array(g->arena, value_id, l->done);
    for (i64 r = 0; r < l->done; r++, at += l->n_scan + 1)
        part[r] = op_node_axes(g, n, "Unsqueeze", graph_node(g, n)->in.v[at + k], &zero, 1, 0);
    value_id all = op_node_concat(g, n, (u32)l->done, part, 0, l->masked ? 0 : out);
    if (l->masked)
        op_node(g, n, "Slice", 3, (value_id[]){all, op_const_i(g, DT_I64, &zero, 1), count_iterations(g, n, l)}, out);
    return true;
}

static bool loop_finish(struct control *c, node_id n, const struct loop *l)
{
    struct graph *g = c->g;
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) {
        value_id out = graph_node(g, n)->out.v[k];
        if (!out) continue;
        if (k < l->n_carried) hand_on(g, n, graph_node(g, n)->in.v[2 + k], out);
        else if (!loop_collect(c, n, l, k - l->n_carried, out)) return false;
    }
    graph_node(g, n)->dead = true;
    return true;
}

/* One iteration; happens: the condition if it is decided at run time, 0: it runs. */
static bool loop_iterate(struct control *c, node_id n, const struct loop *l, value_id happens)
{
    struct graph *g = c->g;
    value_id *in = arena_array(g->arena, value_id, l->n_own + l->n_captured + 1),
             *out = arena_array(g->arena, value_id, l->body->output.n + 1), cond = graph_node(g, n)->in.v[1];
    bool yes_known = !cond;
    for (u32 k = 0; k < l->n_own + l->n_captured; k++) in[k] = graph_node(g, n)->in.v[k];
    in[0] = op_const_f(g, DT_I64, (double)l->done);
    if (yes_known) in[1] = op_const_f(g, DT_BOOL, 1);
    paste(g, l->body, in, out);
    value_id next = out[0];
    if (happens) next = op_node2(g, n, "And", happens, control_scalar(g, n, next), 0);
    graph_node(g, n)->in.v[1] = next;
    for (u32 k = 0; k < l->n_carried; k++) {
        value_id now = out[1 + k];
        if (happens) now = op_node(g, n, "quern::Choose", 3, (value_id[]){happens, now, in[2 + k]}, 0);
        graph_node(g, n)->in.v[2 + k] = now;
    }
    for (u32 k = 0; k < l->n_scan; k++) node_add_in(g, n, out[1 + l->n_carried + k]);
    node_add_in(g, n, happens);
    attr_set_int(g, n, "done", l->done + 1);
    if (happens) attr_set_int(g, n, "masked", 1);
    return true;
}

static u32 count_nodes(const struct graph *body)
{
    u32 n_live = 0;
    for (node_id n = 1; n < body->node.n; n++) n_live += !graph_node(body, n)->dead;
    return n_live;
}

/* The number of iterations is decided at run time, or too large for unrolling. */
static bool wants_to_stay(struct control *c, node_id n, const struct loop *l, bool uncounted, i64 trips)
{
    if (l->done || !control_can_keep(c, n)) return false;
    if (uncounted) return true;
    if (!control_is_decided(c, n)) return trips > MAX_CHEAP || trips * count_nodes(l->body) > MAX_CHEAP * MAX_CHEAP;
    return trips < INT64_MAX && trips > FEW_TRIPS && (trips > MAX_TRIPS || trips * count_nodes(l->body) > FEW_NODES);
}

static bool dissolve_loop(struct control *c, node_id n)
{
    struct graph *g = c->g;
    struct loop l;
    i64 trips = INT64_MAX, cond = 1;
    if (!loop_read(c, n, &l)) return false;
    value_id most = graph_node(g, n)->in.v[0], go = graph_node(g, n)->in.v[1];
    bool counted = most && import_known(g, most, &trips), sure = !go || import_known(g, go, &cond);
    if (!(sure && !cond) && !(counted && trips <= 0) && wants_to_stay(c, n, &l, most && !counted, trips)) {
        if (control_keep_loop(c, n)) return true;
        if (!counted || trips > MAX_MASKED) return false;
        *c->e = (struct err){0}; /* unrolled iterations may differ in more than sizes */
    }
    if (most && !counted)
        return op_unsupported(c->e, g, n, "the number of iterations is only known at run time; make input 'M' (%.*s) a constant of the model",
                              STR_ARG(graph_value(g, most)->name));
    if (l.done >= trips || (sure && !cond)) return loop_finish(c, n, &l);
    if (!sure && !counted)
        return op_unsupported(c->e, g, n, "a condition that is only known at run time, without a constant maximum of iterations 'M'");
    if (l.done >= MAX_TRIPS || g->node.n > MAX_UNROLLED || (!sure && trips > MAX_MASKED))
        return op_unsupported(c->e, g, n, "loops are unrolled, and this one has too many iterations (%lld)", (long long)(counted ? trips : l.done));
    return loop_iterate(c, n, &l, sure ? 0 : control_scalar(g, n, go));
}

/* Scan. Inputs: states, sequences, captured values. */

static i64 list_at(const struct node *x, const char *attr, u32 k)
{
    const i64 *v;
    return k < attr_ints(x, attr, &v) ? v[k] : 0;
}

struct scan {
    const struct graph *body;
    u32 n_state, n_seq, n_captured, n_scan;
    i64 length;   /* -1: decided at run time */
    bool is_open; /* some length is */
};

static bool scan_read(struct control *c, node_id n, struct scan *s)
{
    struct graph *g = c->g;
    const struct node *x = graph_node(g, n);
    u32 from;
    i64 n_seq = attr_int(x, "num_scan_inputs", 0);
    *s = (struct scan){.body = control_body(c, n, "body"), .length = -1};
    if (!s->body || !control_captured(c, n, "body", &from, &s->n_captured) || n_seq < 1 || n_seq > from ||
        s->body->input.n != from + s->n_captured || x->in.n < from + s->n_captured || s->body->output.n < from - n_seq)
        return bad(c, n, "the body does not fit the node");
    s->n_seq = (u32)n_seq, s->n_state = from - s->n_seq;
    s->n_scan = s->body->output.n - s->n_state;
    if (x->out.n > s->body->output.n) return bad(c, n, "the body does not fit the node");
    for (u32 k = 0; k < s->n_seq; k++) {
        const struct shape *shape = &graph_value(g, x->in.v[s->n_state + k])->shape;
        u32 axis;
        i64 length;
        if (!op_axis(list_at(x, "scan_input_axes", k), shape->rank, &axis)) return bad(c, n, "bad attribute 'scan_input_axes'");
        if (!sym_is_const(g->sym, shape->dim[axis], &length)) s->is_open = true;
        else if (s->length >= 0 && s->length != length) return bad(c, n, "sequences of different lengths");
        else s->length = length;
    }
    return true;
}

static void scan_inputs(struct graph *g, node_id n, const struct scan *s, i64 iteration, value_id *in)
{
    for (u32 k = 0; k < s->n_seq; k++) {
        value_id x = graph_node(g, n)->in.v[s->n_state + k];
        i64 axis = list_at(graph_node(g, n), "scan_input_axes", k);
        bool back = list_at(graph_node(g, n), "scan_input_directions", k);
        value_id at = op_const_f(g, DT_I64, (double)(back ? s->length - 1 - iteration : iteration));
        in[s->n_state + k] = op_node2(g, n, "Gather", x, at, 0);
        attr_set_int(g, op_made(g, in[s->n_state + k]), "axis", axis);
    }
}

static void scan_collect(struct graph *g, node_id n, const struct scan *s, u32 k, const value_id *all)
{
    i64 axis = list_at(graph_node(g, n), "scan_output_axes", k);
    bool back = list_at(graph_node(g, n), "scan_output_directions", k);
    value_id out = graph_node(g, n)->out.v[s->n_state + k], *part = arena_array(g->arena, value_id, s->length);
    for (i64 r = 0; r < s->length; r++)
        part[back ? s->length - 1 - r : r] = op_node_axes(g, n, "Unsqueeze", all[r * s->n_scan + k], &axis, 1, 0);
    op_node_concat(g, n, (u32)s->length, part, axis, out);
}

static bool dissolve_scan(struct control *c, node_id n)
{
    struct graph *g = c->g;
    struct scan s;
    if (!scan_read(c, n, &s)) return false;
    bool many = s.length > FEW_TRIPS && (s.length > MAX_TRIPS || s.length * count_nodes(s.body) > FEW_NODES);
    if (s.is_open || many || s.length == 0) return control_keep_scan(c, n);
    u32 n_in = s.n_state + s.n_seq + s.n_captured;
    value_id *in = arena_array(g->arena, value_id, n_in + 1), *out = arena_array(g->arena, value_id, s.body->output.n + 1),
             *all = arena_array(g->arena, value_id, s.length * s.n_scan + 1);
    for (u32 k = 0; k < n_in; k++) in[k] = graph_node(g, n)->in.v[k];
    for (i64 r = 0; r < s.length; r++) {
        scan_inputs(g, n, &s, r, in);
        paste(g, s.body, in, out);
        for (u32 k = 0; k < s.n_state; k++) in[k] = out[k];
        for (u32 k = 0; k < s.n_scan; k++) all[r * s.n_scan + k] = out[s.n_state + k];
    }
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) {
        if (!graph_node(g, n)->out.v[k]) continue;
        if (k < s.n_state) hand_on(g, n, in[k], graph_node(g, n)->out.v[k]);
        else scan_collect(g, n, &s, k - s.n_state, all);
    }
    graph_node(g, n)->dead = true;
    return true;
}

/* Scan of opset 8. Inputs: lengths (optional), states, sequences, captured values; all but lengths and captured values have the batch in
   front. It becomes a Scan of opset 9 for each element of the batch. */

struct batch {
    i64 size, length;                    /* length: of the longest sequence */
    u32 n_own, n_state, n_captured;      /* n_own: states and sequences */
    i64 *lengths;                        /* of each sequence; NULL: all have the same */
};

static bool batch_read(struct control *c, node_id n, struct batch *b)
{
    struct graph *g = c->g;
    const struct node *x = graph_node(g, n);
    u32 from;
    i64 n_seq = attr_int(x, "num_scan_inputs", 0);
    if (!control_captured(c, n, "body", &from, &b->n_captured) || n_seq < 1 || n_seq >= from || x->in.n < from + b->n_captured)
        return bad(c, n, "the body does not fit the node");
    b->n_own = from - 1, b->n_state = b->n_own - (u32)n_seq;
    const struct value *first = op_node_input(x, 1 + b->n_state) ? graph_value(g, x->in.v[1 + b->n_state]) : NULL;
    if (!first || first->shape.rank < 2) return bad(c, n, "a scanned input needs a batch axis and a sequence axis");
    if (!sym_is_const(g->sym, first->shape.dim[0], &b->size) || !sym_is_const(g->sym, first->shape.dim[1], &b->length))
        return op_unsupported(c->e, g, n, "batch and length of the scanned input '%.*s' are %.*s and %.*s; fix them (--assume, --input-shape)",
                              STR_ARG(first->name), STR_ARG(op_size_text(g, first->shape.dim[0])), STR_ARG(op_size_text(g, first->shape.dim[1])));
    if (b->size < 1 || b->size > MAX_TRIPS) return op_unsupported(c->e, g, n, "batch of %lld", (long long)b->size);
    if (!op_node_input(x, 0)) return true;
    b->lengths = arena_array(g->arena, i64, b->size);
    if (op_const_ints(g, x->in.v[0], b->lengths, b->size) != b->size)
        return op_unsupported(c->e, g, n, "input 'sequence_lens' (%.*s) is only known at run time or has not one element per batch element; make it a constant",
                              STR_ARG(graph_value(g, x->in.v[0])->name));
    for (i64 k = 0; k < b->size; k++)
        if (b->lengths[k] < 1 || b->lengths[k] > b->length)
            return bad(c, n, "a length in 'sequence_lens' is not between 1 and the length of the sequences");
    return true;
}

/* The Scan of batch element i; out[] receives its outputs, padded to the longest sequence. */
static void batch_element(struct graph *g, node_id n, const struct batch *b, i64 i, value_id *out)
{
    const i64 range[2] = {b->n_own, b->n_captured}, zero = 0, length = b->lengths ? b->lengths[i] : b->length;
    value_id at = op_const_f(g, DT_I64, (double)i), *in = arena_array(g->arena, value_id, b->n_own + b->n_captured);
    for (u32 k = 0; k < b->n_own + b->n_captured; k++) {
        in[k] = graph_node(g, n)->in.v[1 + k];
        if (k >= b->n_own) continue;
        in[k] = op_node_gather(g, n, in[k], at, 0, 0);
        if (k >= b->n_state && length < b->length)
            in[k] = op_node(g, n, "Slice", 3, (value_id[]){in[k], op_const_i(g, DT_I64, &zero, 1), op_const_i(g, DT_I64, &length, 1)}, 0);
    }
    node_id scan = graph_add_node(g, S("Scan"), graph_node(g, n)->name);
    for (u32 k = 0; k < graph_node(g, n)->attr.n; k++) attr_copy(g, scan, &graph_node(g, n)->attr.v[k]);
    attr_remove(g, scan, "batched");
    attr_set_ints(g, scan, "body_captured", range, 2);
    for (u32 k = 0; k < b->n_own + b->n_captured; k++) node_add_in(g, scan, in[k]);
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) {
        if (!graph_node(g, n)->out.v[k]) continue;
        out[k] = graph_add_value(g, S("element"));
        node_set_out(g, scan, k, out[k]);
        i64 pads[2] = {0, b->length - length};
        if (k >= b->n_state && pads[1])
            out[k] = op_node(g, n, "Pad", 4, (value_id[]){out[k], op_const_i(g, DT_I64, pads, 2), 0, op_const_i(g, DT_I64, &zero, 1)}, 0);
        out[k] = op_node_axes(g, n, "Unsqueeze", out[k], &zero, 1, 0);
    }
}

static bool dissolve_batch(struct control *c, node_id n)
{
    struct graph *g = c->g;
    struct batch b = {0};
    if (!batch_read(c, n, &b)) return false;
    u32 n_out = graph_node(g, n)->out.n;
    value_id *out = arena_array(g->arena, value_id, b.size * n_out + 1), *part = arena_array(g->arena, value_id, b.size);
    for (i64 i = 0; i < b.size; i++) batch_element(g, n, &b, i, out + i * n_out);
    for (u32 k = 0; k < n_out; k++) {
        for (i64 i = 0; i < b.size; i++) part[i] = out[i * n_out + k];
        if (graph_node(g, n)->out.v[k]) op_node_concat(g, n, (u32)b.size, part, 0, graph_node(g, n)->out.v[k]);
    }
    graph_node(g, n)->dead = true;
    return true;
}

/* SequenceMap. Inputs: a sequence, other sequences of as many elements or tensors, captured values. */

/* The number of elements, -1: unequal inputs. */
static i64 map_length(struct control *c, node_id n, u32 n_own)
{
    const value_id *elem;
    i64 length = n_own ? import_list_get(c->lists, graph_node(c->g, n)->in.v[0], &elem) : -1;
    if (length < 0) bad(c, n, "input 0 is not a sequence");
    for (u32 k = 1; k < n_own && length >= 0; k++) {
        i64 other = import_list_get(c->lists, graph_node(c->g, n)->in.v[k], &elem);
        if (other >= 0 && other != length) bad(c, n, "sequences of different numbers of elements"), length = -1;
    }
    return length;
}

static bool dissolve_map(struct control *c, node_id n)
{
    struct graph *g = c->g;
    const struct graph *body = control_body(c, n, "body");
    u32 n_own, n_captured, n_out = graph_node(g, n)->out.n;
    if (!body || !control_captured(c, n, "body", &n_own, &n_captured) || n_own + n_captured > graph_node(g, n)->in.n ||
        body->input.n != n_own + n_captured || body->output.n != n_out)
        return bad(c, n, "the body does not fit the node");
    i64 length = map_length(c, n, n_own);
    if (length < 0) return false;
    if (length * ((i64)body->node.n + n_out) > MAX_UNROLLED)
        return op_unsupported(c->e, g, n, "the body is repeated for each element, and %lld are too many", (long long)length);
    value_id *in = arena_array(g->arena, value_id, body->input.n + 1), *out = arena_array(g->arena, value_id, n_out + 1),
             *all = arena_array(g->arena, value_id, length * n_out + 1);
    for (i64 i = 0; i < length; i++) {
        for (u32 k = 0; k < body->input.n; k++) {
            const value_id *elem;
            in[k] = graph_node(g, n)->in.v[k];
            if (k < n_own && import_list_get(c->lists, in[k], &elem) >= 0) in[k] = elem[i];
        }
        paste(g, body, in, out);
        for (u32 k = 0; k < n_out; k++) all[k * length + i] = out[k];
    }
    for (u32 k = 0; k < n_out; k++)
        if (!import_list_set(c->lists, n, k, all + k * length, length)) return false;
    graph_node(g, n)->dead = true;
    return true;
}

/* Inference in order. */

static bool is_inferred(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    bool any = false;
    for (u32 k = 0; k < x->out.n; k++) {
        const struct value *v = x->out.v[k] ? graph_value(g, x->out.v[k]) : NULL;
        if (v && (!v->shape.known || v->dtype == DT_NONE)) return false;
        any |= v != NULL;
    }
    return any;
}

static bool dissolve(struct control *c, node_id n)
{
    if (c->g->node.n > MAX_UNROLLED)
        return op_unsupported(c->e, c->g, n, "the bodies of loops and branches have more than %d nodes together", MAX_UNROLLED);
    struct str op = graph_node(c->g, n)->op;
    if (str_is(op, "If")) return dissolve_if(c, n);
    if (str_is(op, "SequenceMap")) return dissolve_map(c, n);
    if (str_is(op, "Loop")) return dissolve_loop(c, n);
    return attr_int(graph_node(c->g, n), "batched", 0) ? dissolve_batch(c, n) : dissolve_scan(c, n);
}

/* Any other node: a computation, or an operation on sequences. */
static bool infer(struct control *c, node_id n)
{
    if (import_lists_takes(c->lists, n)) return import_lists_dissolve(c->lists, n);
    if (!import_fit_types(c->g, n, c->e)) return false;
    return op_infer(c->g, n, c->e) || import_blame_inputs(c->g, n, c->e);
}

bool import_control(struct graph *g, const struct import_bodies *bodies, struct err *e)
{
    struct control c = {.g = g, .bodies = bodies, .lists = import_lists_begin(g, e), .e = e, .infer = import_control};
    for (bool again = true; again;) {
        again = false;
        if (!import_lists_sort(c.lists)) return false;
        for (node_id n = 1; n < g->node.n && !again; n++) {
            if (graph_node(g, n)->dead || is_inferred(g, n)) continue;
            again = import_is_control_op(graph_node(g, n)->op);
            if (again ? !dissolve(&c, n) : !infer(&c, n)) return false;
        }
    }
    return import_lists_end(c.lists); /* sorted: data-dependent sizes have an order of their own */
}
