// SPDX-License-Identifier: Apache-2.0
//
// Control flow that is decided at run time stays in the graph, as quern::Loop and quern::If (op/while.c). A body
// is copied and inferred as a graph of its own, in which control flow is replaced or stays likewise. The number
// of the iteration is an additional carried value; the body gathers a Scan's inputs by that number, in place.
//
// Whether carried values keep their sizes is determined by trial: the body is inferred with the sizes of its inputs first. If its
// outputs have others, the size varies between iterations, gets a name that the body's input binds, and the inference is repeated.
#include "import/import_control.h"

#include <string.h>

enum { MAX_TRIES = 64, MAX_FOLLOWED = 500 };

/* A body under construction. */
struct kept {
    struct graph *body;
    value_id cond;                /* its condition, 0: none */
    struct value_list init;       /* outer: carried values before the first iteration */
    struct value_list in, out;    /* of the body: carried */
    struct value_list scan;       /* of the body */
    struct value_list outer, inner; /* captured: outer and the body's */
};

/* Sizes that vary: of a carried value. */
struct vary { u32 carried, axis; sym name; };
struct varies { struct vary *v; u32 n, cap; };

static void push(struct graph *g, struct value_list *l, value_id v) { *arr_push(g->arena, l) = v; }

/* bodies */

static struct graph *copy_body(struct control *c, const struct graph *from)
{
    struct graph *b = arena_new(c->g->arena, struct graph);
    graph_clone(b, from, c->g->arena);
    b->input.n = 0;
    b->output.n = 0;
    return b;
}

/* The body's value has the outer value's type and shape; constants become the body's own. */
static void bind_value(struct control *c, struct kept *k, value_id inner, value_id outer)
{
    const struct value *from = graph_value(c->g, outer);
    struct value *to = graph_value(k->body, inner);
    to->dtype = from->dtype;
    to->shape = from->shape;
    if (from->data) {
        to->data = from->data;
        to->is_const = true;
        return;
    }
    to->sdata = from->sdata;
    push(c->g, &k->outer, outer);
    push(c->g, &k->inner, inner);
}

static void carry(struct control *c, struct kept *k, value_id init, value_id in, value_id out)
{
    const struct value *from = graph_value(c->g, init);
    struct value *to = graph_value(k->body, in);
    to->dtype = from->dtype;
    to->shape = from->shape;
    push(c->g, &k->init, init);
    push(c->g, &k->in, in);
    push(c->g, &k->out, out);
}

/* Inside the body, its condition is true. */
static void become_true(struct graph *g, value_id v)
{
    struct value *x = graph_value(g, v);
    x->data = tensor_new(g->arena, DT_BOOL, 0, NULL);
    elem_set_i64(DT_BOOL, x->data->data, 0, 1);
    x->dtype = DT_BOOL;
    x->is_const = true;
    x->shape = (struct shape){.known = true};
}

/* The iteration number: carried, starting from 0. */
static void carry_iteration(struct control *c, struct kept *k, node_id n, value_id round)
{
    value_id zero = op_const_f(c->g, DT_I64, 0), one = op_const_f(k->body, DT_I64, 1);
    carry(c, k, zero, round, op_node2(k->body, 0, "Add", round, one, 0));
}

/* Infers the body, whose interface is complete then. */
static bool infer_body(struct control *c, struct kept *k)
{
    struct graph *b = k->body;
    for (u32 i = 0; i < k->in.n; i++) push(b, &b->input, k->in.v[i]);
    for (u32 i = 0; i < k->inner.n; i++) push(b, &b->input, k->inner.v[i]);
    if (k->cond) push(b, &b->output, k->cond);
    for (u32 i = 0; i < k->out.n; i++) push(b, &b->output, k->out.v[i]);
    for (u32 i = 0; i < k->scan.n; i++) push(b, &b->output, k->scan.v[i]);
    if (!graph_verify(b, c->e)) return false;
    u32 n_out = b->output.n;
    return c->infer(b, c->bodies, c->e) && (b->output.n == n_out || err_set(c->e, ERR_UNSUPPORTED, "a result that is a sequence"));
}

/* The outputs after inference (they may have been replaced). */
static void read_outputs(struct kept *k)
{
    const struct value_list *o = &k->body->output;
    u32 at = 0;
    if (k->cond) k->cond = o->v[at++];
    for (u32 i = 0; i < k->out.n; i++) k->out.v[i] = o->v[at++];
    for (u32 i = 0; i < k->scan.n; i++) k->scan.v[i] = o->v[at++];
}

/* Names unnamed sizes that differ between the inputs and outputs of an iteration. */
static bool find_varying(struct control *c, const struct kept *k, struct varies *w, bool *more)
{
    *more = false;
    for (u32 i = 0; i < k->in.n; i++) {
        const struct value *in = graph_value(k->body, k->in.v[i]), *out = graph_value(k->body, k->out.v[i]);
        if (in->dtype != out->dtype || in->shape.rank != out->shape.rank)
            return err_set(c->e, ERR_UNSUPPORTED, "carried value %u is %s with %u axes before an iteration and %s with %u after it", i, dtype_name(in->dtype),
                           in->shape.rank, dtype_name(out->dtype), out->shape.rank);
        for (u32 d = 0; d < in->shape.rank; d++) {
            bool named = sym_current(c->g->sym, in->shape.dim[d]) == out->shape.dim[d];
            for (u32 j = 0; j < w->n && !named; j++) named = w->v[j].carried == i && w->v[j].axis == d;
            if (named) continue;
            struct str name;
            for (i64 s = w->n;; s++) {
                name = str_fmt(c->g->arena, "round_%lld", (long long)s);
                if (!map_get(&c->g->sym->names, name)) break;
            }
            *arr_push(c->g->arena, w) = (struct vary){i, d, sym_var(c->g->sym, name)};
            *more = true;
        }
    }
    return true;
}

typedef bool fill_fn(struct control *c, node_id n, struct kept *k);

/* Makes a body whose sizes hold in every iteration. */
static bool make_body(struct control *c, node_id n, fill_fn *fill, struct kept *k, struct varies *w)
{
    bool more = true;
    for (u32 tries = 0; more; tries++) {
        *k = (struct kept){0};
        if (tries == MAX_TRIES) return err_set(c->e, ERR_UNSUPPORTED, "sizes of carried values do not converge");
        if (!fill(c, n, k)) return false;
        for (u32 j = 0; j < w->n; j++) graph_value(k->body, k->in.v[w->v[j].carried])->shape.dim[w->v[j].axis] = w->v[j].name;
        if (!infer_body(c, k)) return false;
        read_outputs(k);
        if (!find_varying(c, k, w, &more)) return false;
    }
    return true;
}

/* The node. */

static void set_interface(struct graph *g, node_id to, const struct kept *k, const struct varies *w)
{
    struct str *names = arena_array(g->arena, struct str, w->n + 1);
    for (u32 i = 0; i < k->init.n; i++) node_add_in(g, to, k->init.v[i]);
    for (u32 i = 0; i < k->outer.n; i++) node_add_in(g, to, k->outer.v[i]);
    attr_set_graph(g, to, "body", k->body);
    attr_set_int(g, to, "carried", k->init.n);
    attr_set_int(g, to, "conditional", k->cond != 0);
    for (u32 i = 0; i < w->n; i++) names[i] = g->sym->var.v[g->sym->node.v[w->v[i].name].a];
    if (w->n) attr_copy(g, to, &(struct attr){.name = S("varies"), .kind = ATTR_STRS, .n = w->n, .strs = names});
}

static node_id add_loop(struct control *c, node_id n, const struct kept *k, const struct varies *w, value_id cond, sym trip_count)
{
    struct graph *g = c->g;
    node_id to = graph_add_node(g, S("quern::Loop"), graph_node(g, n)->name);
    node_add_in(g, to, cond);
    set_interface(g, to, k, w);
    op_set_syms(g, to, "trip_count", &trip_count, 1);
    return to;
}

/* The results of node n are those of its replacement, after the first `skip`. */
static void hand_over(struct graph *g, node_id n, node_id to, u32 skip)
{
    for (u32 i = 0; i < graph_node(g, n)->out.n; i++)
        if (graph_node(g, n)->out.v[i]) node_set_out(g, to, skip + i, graph_node(g, n)->out.v[i]);
    graph_node(g, n)->dead = true;
}

/* Attributes an error in a body to the node. */
static bool blamed(struct control *c, node_id n)
{
    const struct node *x = graph_node(c->g, n);
    struct str name = x->name.n ? x->name : graph_value(c->g, node_first_out(x))->name;
    return err_prefix(c->e, "in the body of %.*s '%.*s'", STR_ARG(x->op), STR_ARG(name));
}

/* Loop. */

static bool fill_loop(struct control *c, node_id n, struct kept *k)
{
    struct graph *g = c->g;
    const struct graph *from = control_body(c, n, "body");
    u32 n_own, n_captured;
    if (!from || !control_captured(c, n, "body", &n_own, &n_captured)) return err_set(c->e, ERR_INPUT, "the body does not fit the node");
    u32 n_carried = n_own - 2;
    k->body = copy_body(c, from);
    value_id round = from->input.v[0], cond = from->output.v[0];
    become_true(k->body, from->input.v[1]);
    graph_value(k->body, round)->dtype = DT_I64, graph_value(k->body, round)->shape = (struct shape){.known = true};
    if (graph_is_read(k->body, round)) carry_iteration(c, k, n, round);
    for (u32 i = 0; i < n_carried; i++) carry(c, k, graph_node(g, n)->in.v[2 + i], from->input.v[2 + i], from->output.v[1 + i]);
    for (u32 i = 0; i < n_captured; i++) bind_value(c, k, from->input.v[n_own + i], graph_node(g, n)->in.v[n_own + i]);
    for (u32 i = 1 + n_carried; i < from->output.n; i++) push(g, &k->scan, from->output.v[i]);
    k->cond = graph_value(k->body, cond)->shape.known && graph_value(k->body, cond)->shape.rank == 0 ? cond : control_scalar(k->body, 0, cond);
    return true;
}

/* The maximal number of iterations. */
static bool find_trip_count(struct control *c, node_id n, value_id most, sym *trip_count)
{
    struct graph *g = c->g;
    struct symtab *t = g->sym;
    i64 known, count;
    *trip_count = sym_const(t, (i64)1 << 40);
    if (!most) return true;
    if (import_known(g, most, &known)) {
        *trip_count = sym_const(t, i64_max(0, i64_min(known, (i64)1 << 40)));
    } else if (op_sym_ints(g, most, trip_count, 1, &count) && count == 1) {
        *trip_count = sym_max(t, sym_const(t, 0), *trip_count);
    } else {
        if (!dtype_is_int(graph_value(g, most)->dtype)) return op_invalid(c->e, g, n, "the number of iterations is not an integer");
        *trip_count = op_size_plus(g, most, most);
    }
    return true;
}

bool control_keep_loop(struct control *c, node_id n)
{
    struct graph *g = c->g;
    struct kept k;
    struct varies w = {0};
    sym trip_count;
    i64 known;
    value_id most = graph_node(g, n)->in.v[0], go = graph_node(g, n)->in.v[1];
    if (!find_trip_count(c, n, most, &trip_count)) return false;
    if (!make_body(c, n, fill_loop, &k, &w)) return blamed(c, n);
    if (import_known(k.body, k.cond, &known)) { /* always true, or false after the first iteration */
        if (!known) trip_count = sym_min(g->sym, trip_count, sym_const(g->sym, 1));
        for (u32 i = 0; i + 1 < k.body->output.n; i++) k.body->output.v[i] = k.body->output.v[i + 1];
        k.body->output.n--;
        k.cond = 0;
    }
    value_id first = !go || import_known(g, go, &known) ? 0 : control_scalar(g, n, go);
    node_id to = add_loop(c, n, &k, &w, first, trip_count);
    u32 n_own, n_captured;
    control_captured(c, n, "body", &n_own, &n_captured);
    hand_over(g, n, to, k.init.n - (n_own - 2));
    return true;
}

/* Scan. */

static i64 list_at(const struct node *x, const char *attr, u32 k)
{
    const i64 *v;
    return k < attr_ints(x, attr, &v) ? v[k] : 0;
}

struct scan_counts { u32 n_state, n_seq, n_own, n_captured; };

static bool scan_counts(const struct control *c, node_id n, struct scan_counts *s)
{
    const struct node *x = graph_node(c->g, n);
    const struct graph *from = control_body(c, n, "body");
    i64 n_seq = attr_int(x, "num_scan_inputs", 0);
    if (!from || !control_captured(c, n, "body", &s->n_own, &s->n_captured) || n_seq < 1 || n_seq > s->n_own ||
        from->input.n != s->n_own + s->n_captured || x->in.n < s->n_own + s->n_captured || from->output.n < s->n_own - n_seq)
        return op_invalid(c->e, c->g, n, "the body does not fit the node");
    s->n_seq = (u32)n_seq;
    s->n_state = s->n_own - s->n_seq;
    return true;
}

/* The number of scanned elements, equal for all inputs. */
static bool scan_length(struct control *c, node_id n, const struct scan_counts *s, sym *length)
{
    *length = 0;
    for (u32 i = 0; i < s->n_seq; i++) {
        const struct node *x = graph_node(c->g, n);
        const struct shape *shape = &graph_value(c->g, x->in.v[s->n_state + i])->shape;
        u32 axis;
        if (!op_axis(list_at(x, "scan_input_axes", i), shape->rank, &axis)) return op_invalid(c->e, c->g, n, "bad attribute 'scan_input_axes'");
        if (*length && !op_require_equal(c->g, n, *length, shape->dim[axis], c->e, "lengths of scanned inputs %u and %u", s->n_state, s->n_state + i))
            return false;
        if (!*length) *length = shape->dim[axis];
    }
    return true;
}

/* The element of a scanned input for this iteration. */
static void take_element(struct control *c, node_id n, struct kept *k, const struct scan_counts *s, u32 i, value_id round, sym length, value_id element)
{
    struct graph *b = k->body;
    value_id outer = graph_node(c->g, n)->in.v[s->n_state + i], all = graph_add_value(b, graph_value(c->g, outer)->name), at = round;
    bind_value(c, k, all, outer);
    if (list_at(graph_node(c->g, n), "scan_input_directions", i))
        at = op_node2(b, 0, "Sub", op_sym_scalar(b, DT_I64, sym_sub(b->sym, length, sym_const(b->sym, 1))), round, 0);
    value_id v = op_node2(b, 0, "Gather", all, at, element);
    attr_set_int(b, op_made(b, v), "axis", list_at(graph_node(c->g, n), "scan_input_axes", i));
}

static bool fill_scan(struct control *c, node_id n, struct kept *k)
{
    struct graph *g = c->g;
    const struct graph *from = control_body(c, n, "body");
    struct scan_counts s;
    sym length;
    if (!scan_counts(c, n, &s) || !scan_length(c, n, &s, &length)) return false;
    k->body = copy_body(c, from);
    value_id round = graph_add_value(k->body, S("round"));
    graph_value(k->body, round)->dtype = DT_I64, graph_value(k->body, round)->shape = (struct shape){.known = true};
    carry_iteration(c, k, n, round);
    for (u32 i = 0; i < s.n_state; i++) carry(c, k, graph_node(g, n)->in.v[i], from->input.v[i], from->output.v[i]);
    for (u32 i = 0; i < s.n_seq; i++) take_element(c, n, k, &s, i, round, length, from->input.v[s.n_state + i]);
    for (u32 i = 0; i < s.n_captured; i++) bind_value(c, k, from->input.v[s.n_own + i], graph_node(g, n)->in.v[s.n_own + i]);
    for (u32 i = s.n_state; i < from->output.n; i++) push(g, &k->scan, from->output.v[i]);
    return true;
}

/* Converts a result stacked along the first axis to the node's axis and direction. */
static bool transpose_result(struct control *c, node_id n, const struct kept *k, u32 i, value_id stacked, value_id out)
{
    struct graph *g = c->g;
    u32 rank = graph_value(k->body, k->scan.v[i])->shape.rank + 1, axis;
    i64 perm[MAX_RANK + 1], last = -1, end = INT64_MIN, zero = 0;
    bool back = list_at(graph_node(g, n), "scan_output_directions", i);
    if (rank > MAX_RANK || !op_axis(list_at(graph_node(g, n), "scan_output_axes", i), rank, &axis))
        return op_invalid(c->e, g, n, "bad attribute 'scan_output_axes'");
    if (back) {
        value_id one = op_const_i(g, DT_I64, &last, 1);
        stacked = op_node(g, n, "Slice", 5, (value_id[]){stacked, one, op_const_i(g, DT_I64, &end, 1), op_const_i(g, DT_I64, &zero, 1), one},
                          axis ? 0 : out);
    }
    for (u32 d = 0; d < rank; d++) perm[d] = d == axis ? 0 : d < axis ? d + 1 : d;
    if (axis) op_node_perm(g, n, stacked, rank, perm, out);
    return true;
}

bool control_keep_scan(struct control *c, node_id n)
{
    struct graph *g = c->g;
    struct kept k;
    struct varies w = {0};
    struct scan_counts s;
    sym length;
    if (!scan_counts(c, n, &s) || !scan_length(c, n, &s, &length)) return false;
    if (!make_body(c, n, fill_scan, &k, &w)) return blamed(c, n);
    node_id to = add_loop(c, n, &k, &w, 0, length);
    for (u32 i = 0; i < graph_node(g, n)->out.n; i++) {
        value_id out = graph_node(g, n)->out.v[i], made = out;
        const struct node *x = graph_node(g, n);
        if (!out) continue;
        bool is_transposed = i >= s.n_state && (list_at(x, "scan_output_axes", i - s.n_state) || list_at(x, "scan_output_directions", i - s.n_state));
        if (is_transposed) made = graph_add_value(g, graph_value(g, out)->name);
        node_set_out(g, to, 1 + i, made);
        if (is_transposed && !transpose_result(c, n, &k, i - s.n_state, made, out)) return false;
    }
    graph_node(g, n)->dead = true;
    return true;
}

/* If. */

static bool make_branch(struct control *c, node_id n, bool which, struct kept *k)
{
    static const char *const name[2] = {"else_branch", "then_branch"};
    const struct graph *from = control_body(c, n, name[which]);
    u32 first, count;
    if (!from) return op_invalid(c->e, c->g, n, "the branches do not fit the node");
    *k = (struct kept){.body = copy_body(c, from)};
    for (u32 b = 0; b < 2; b++) { /* values read by the other branch are inputs, too */
        if (!control_captured(c, n, name[b], &first, &count) || first + count > graph_node(c->g, n)->in.n || (b == which && from->input.n != count))
            return op_invalid(c->e, c->g, n, "the branches do not fit the node");
        for (u32 i = 0; i < count; i++) {
            value_id outer = graph_node(c->g, n)->in.v[first + i];
            if (b != which && graph_value(c->g, outer)->data) continue;
            bind_value(c, k, b == which ? from->input.v[i] : graph_add_value(k->body, graph_value(c->g, outer)->name), outer);
        }
    }
    for (u32 i = 0; i < from->output.n; i++) push(c->g, &k->out, from->output.v[i]);
    return infer_body(c, k) || blamed(c, n);
}

bool control_keep_branch(struct control *c, node_id n)
{
    struct graph *g = c->g;
    struct kept k[2];
    if (!make_branch(c, n, false, &k[0]) || !make_branch(c, n, true, &k[1])) return false;
    if (k[0].body->output.n != k[1].body->output.n || graph_node(g, n)->out.n > k[0].body->output.n)
        return op_invalid(c->e, g, n, "the branches do not fit the node");
    value_id cond = control_scalar(g, n, graph_node(g, n)->in.v[0]);
    node_id to = graph_add_node(g, S("quern::If"), graph_node(g, n)->name);
    node_add_in(g, to, cond);
    for (u32 i = 0; i < k[0].outer.n; i++) node_add_in(g, to, k[0].outer.v[i]);
    attr_set_graph(g, to, "else", k[0].body);
    attr_set_graph(g, to, "then", k[1].body);
    hand_over(g, n, to, 0);
    return true;
}

/* Choice between inlining and calls. */

bool control_can_keep(const struct control *c, node_id n)
{
    const struct node *x = graph_node(c->g, n);
    const value_id *elem;
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k] && (import_list_get(c->lists, x->in.v[k], &elem) >= 0 || !graph_value(c->g, x->in.v[k])->shape.known)) return false;
    return true;
}

/* Whether v depends only on constants and on inputs that do. */
static bool follows(const struct graph *body, value_id v, const bool *input, u8 *seen, u32 depth)
{
    const struct value *x = graph_value(body, v);
    if (x->data) return true;
    for (u32 k = 0; k < body->input.n; k++)
        if (body->input.v[k] == v) return input[k];
    if (!x->producer || depth == MAX_FOLLOWED || import_is_control_op(graph_node(body, x->producer)->op)) return false;
    if (seen[x->producer]) return seen[x->producer] == 2;
    seen[x->producer] = 1;
    for (u32 k = 0; k < graph_node(body, x->producer)->in.n; k++) {
        value_id in = graph_node(body, x->producer)->in.v[k];
        if (in && !follows(body, in, input, seen, depth + 1)) return false;
    }
    seen[x->producer] = 2;
    return true;
}

bool control_is_decided(const struct control *c, node_id n)
{
    const struct graph *body = control_body(c, n, "body");
    struct arena a = {0};
    u32 n_own, n_captured;
    if (!body || !control_captured(c, n, "body", &n_own, &n_captured)) return false;
    bool *input = arena_array(&a, bool, body->input.n + 1), again = true;
    for (u32 k = 0; k < body->input.n; k++) input[k] = k < 2 || control_is_constant(c->g, graph_node(c->g, n)->in.v[k]);
    while (again) {
        again = false;
        for (u32 k = 2; k < n_own; k++) {
            if (!input[k] || follows(body, body->output.v[k - 1], input, arena_array(&a, u8, body->node.n), 0)) continue;
            input[k] = false;
            again = true;
        }
    }
    bool ok = follows(body, body->output.v[0], input, arena_array(&a, u8, body->node.n), 0);
    arena_release(&a);
    return ok;
}
