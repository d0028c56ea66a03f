// SPDX-License-Identifier: Apache-2.0
//
// Caches in place. A decoder has its keys and values so far as inputs (b, h, p, d) and returns them with those of the new positions behind
// them, (b, h, p + s, d): a concatenation, whose result the next run has as input. Here both become parts of one memory (b, h, p + s + r, d),
// r a variable that the runtime binds: the rows of the input stay where they are, and the kernel that computes the new rows writes them
// behind (task/join.c). With r = p + s + r - (p + s) bound to what is left of a maximum, the memory is the same in each run.
//
// TensorScatter writes rows into a cache of full length. One sequence, whose position w is an input, is the concatenation of the cache's first w
// rows, the new ones, and the cache's rest: the first and the last part are there already. w is a data-dependent size, which the runtime reads
// from the input and compares with the cache's length.
//
// Operators that write new rows at positions that are data (GroupQueryAttention) are made to append them, and what makes both the same is checked at
// run time: positions and total lengths by sizes that are kept, or rows that do not count by the mask that the positions are computed of.
//
// PagedAttention writes rows of pages that a table names: its result is the cache with some rows replaced (quern::ScatterRows), in the same memory. So is
// the cache where a condition does not choose a new element.
//
// Nothing else is overwritten that is still read: only rows behind the input's are written, and only the concatenation reads those. What is no
// concatenation of the input and something else is left alone.
#include "pass/pass.h"

#include "art/art.h"

/* whether an output may continue an input */

static bool continues(const struct graph *g, value_id in, value_id out)
{
    const struct value *x = graph_value(g, in), *y = graph_value(g, out);
    u32 n_grown = 0;
    if (x->dtype != y->dtype || !x->shape.known || !y->shape.known || x->shape.rank != y->shape.rank) return false;
    for (u32 d = 0; d < x->shape.rank; d++) n_grown += x->shape.dim[d] != y->shape.dim[d];
    return n_grown <= 1;
}

static void add_pair(struct state_pairs *s, u32 input, u32 output)
{
    for (u32 k = 0; k < s->n; k++)
        if (s->v[k].input == input || s->v[k].output == output) return;
    s->v[s->n++] = (struct state_pair){.input = input, .output = output};
}

static void find_by_names(struct state_pairs *s, const struct graph *g)
{
    for (u32 i = 0; i < g->input.n; i++)
        for (u32 o = 0; o < g->output.n; o++) {
            value_id in = g->input.v[i], out = g->output.v[o];
            if (plan_is_past(graph_value(g, in)->name, graph_value(g, out)->name) && continues(g, in, out)) add_pair(s, i, o);
        }
}

/* The node that computes the output, without identities behind it. */
static node_id maker_of(const struct graph *g, value_id out)
{
    node_id n = graph_value(g, out)->producer;
    while (n && str_is(graph_node(g, n)->op, "Identity")) n = graph_value(g, graph_node(g, n)->in.v[0])->producer;
    return n;
}

/* Whether the output has the input's shape with more positions on an axis of symbolic size. */
static bool grows(const struct graph *g, value_id in, value_id out, const struct op *maker)
{
    const struct value *x = graph_value(g, in), *y = graph_value(g, out);
    i64 least = -1;
    if (!continues(g, in, out)) return false;
    for (u32 d = 0; d < x->shape.rank; d++) {
        sym from = x->shape.dim[d], to = y->shape.dim[d];
        if (from == to) continue;
        return !sym_is_const(g->sym, from, NULL) && (maker->appends || (sym_lower_bound(g->sym, sym_sub(g->sym, to, from), &least) && least >= 0));
    }
    return false;
}

/* The output is an input of the graph of which the node that makes it replaces some elements. */
static void find_update(struct state_pairs *s, const struct graph *g, u32 o, node_id maker)
{
    const struct op *op = maker ? op_of(g, maker) : NULL;
    const struct node *nd = maker ? graph_node(g, maker) : NULL;
    u32 in;
    for (u32 k = 0; op && op->updates && k < nd->out.n; k++)
        for (u32 i = 0; nd->out.v[k] == g->output.v[o] && op->updates(g, nd, k, &in) && i < g->input.n; i++)
            if (g->input.v[i] == nd->in.v[in] && continues(g, g->input.v[i], g->output.v[o])) add_pair(s, i, o);
}

/* Exporters that choose the names of outputs themselves: a node appends to the input. Of several inputs that it has, the first continues as
   its first output, and so on. Or the node replaces elements of it. */
static void find_by_nodes(struct state_pairs *s, const struct graph *g)
{
    for (u32 o = 0; o < g->output.n; o++) {
        node_id maker = maker_of(g, g->output.v[o]);
        find_update(s, g, o, maker);
        u32 n = s->n, n_in = maker && op_of(g, maker) ? graph_node(g, maker)->in.n : 0;
        for (u32 k = 0; k < n_in && s->n == n; k++)
            for (u32 i = 0; i < g->input.n && s->n == n; i++)
                if (g->input.v[i] == graph_node(g, maker)->in.v[k] && grows(g, g->input.v[i], g->output.v[o], op_of(g, maker))) add_pair(s, i, o);
    }
}

static bool find_name(const struct graph *g, const struct value_list *of, const char *what, struct str name, u32 *at, struct err *e)
{
    for (*at = 0; *at < of->n; ++*at)
        if (str_eq(graph_value(g, of->v[*at])->name, name)) return true;
    return err_set(e, ERR_USAGE, "state: the network has no %s '%.*s'", what, STR_ARG(name));
}

static bool find_given(struct state_pairs *s, const struct graph *g, struct str text, struct err *e)
{
    struct str rest = text, item, in, out;
    for (bool more = true; more;) {
        u32 i, o;
        more = str_cut(rest, ',', &item, &rest);
        if (!str_cut(item, '=', &in, &out)) return err_set(e, ERR_USAGE, "state: '%.*s' is not INPUT=OUTPUT", STR_ARG(item));
        if (!find_name(g, &g->input, "input", str_trim(in), &i, e) || !find_name(g, &g->output, "output", str_trim(out), &o, e)) return false;
        if (!continues(g, g->input.v[i], g->output.v[o]))
            return err_set(e, ERR_USAGE, "state: output '%.*s' cannot continue input '%.*s': their types or their sizes on more than one axis differ", STR_ARG(str_trim(out)),
                           STR_ARG(str_trim(in)));
        u32 n = s->n;
        if (s->n < g->input.n) add_pair(s, i, o);
        if (s->n == n) return err_set(e, ERR_USAGE, "state: '%.*s' names an input or output twice", STR_ARG(item));
    }
    return true;
}

bool state_find(struct state_pairs *s, const struct graph *g, const char *text, struct arena *a, struct err *e)
{
    *s = (struct state_pairs){.v = arena_array(a, struct state_pair, g->input.n + 1)};
    if (!text || !*text) return true;
    if (!str_is(str_of(text), "auto")) return find_given(s, g, str_of(text), e);
    find_by_names(s, g);
    find_by_nodes(s, g);
    return true;
}

/* rows at positions that are data */

/* The least and the largest element of v, which are at least 0 and at most `size`, as sizes. */
static bool check_range(struct graph *g, node_id n, value_id v, sym size, sym *low, struct err *e)
{
    const i64 axis = 0;
    const sym count = shape_count(g->sym, &graph_value(g, v)->shape);
    node_id first = g->node.n;
    struct str name = graph_value(g, v)->name;
    value_id least = graph_add_value(g, str_fmt(g->arena, "least of %.*s", STR_ARG(name))), most = graph_add_value(g, str_fmt(g->arena, "most of %.*s", STR_ARG(name)));
    value_id x = op_node_reshape(g, n, op_node_cast(g, n, v, DT_I64, 0), 1, &count, 0);
    op_node_axes(g, n, "ReduceMin", x, &axis, 1, least), op_node_axes(g, n, "ReduceMax", x, &axis, 1, most);
    if (!op_infer_from(g, first, e)) return false;
    node_id at = g->at;
    g->at = n; /* errors name this node, not the one that computes v */
    *low = op_size_of(g, least, 0, v, size);
    op_size_keep(g, *low);
    op_size_keep(g, op_size_of(g, most, 0, v, size));
    g->at = at;
    return true;
}

/* A size that is each element of v. */
static bool check_elements(struct graph *g, node_id n, value_id v, sym size, struct err *e)
{
    sym low;
    if (!check_range(g, n, v, size, &low, e)) return false;
    op_must_equal(g, n, low, size);
    return true;
}

/* The mask (batch, rows) of integers of whose rows' sums v is 1 less, as model builders compute it; 0: v is computed otherwise. */
static value_id mask_of(struct graph *g, value_id v)
{
    i64 less = 0, c = 0;
    for (;;) {
        const struct node *nd = graph_value(g, v)->producer ? graph_node(g, graph_value(g, v)->producer) : NULL;
        if (!nd || !nd->in.n) return 0;
        if (str_is(nd->op, "Sub") && op_const_ints(g, nd->in.v[1], &c, 1) == 1 && !less++ && c == 1) v = nd->in.v[0];
        else if (str_is(nd->op, "Cast") || str_is(nd->op, "Identity")) v = nd->in.v[0];
        else if (!str_is(nd->op, "ReduceSum") || !less) return 0;
        else {
            const struct value *x = graph_value(g, nd->in.v[0]);
            bool is_last = nd->in.n > 1 && op_const_ints(g, nd->in.v[1], &c, 1) == 1 && (c == 1 || c == -1);
            return is_last && x->shape.known && x->shape.rank == 2 && dtype_is_int(x->dtype) ? nd->in.v[0] : 0;
        }
    }
}

static void add_input(struct graph *g, node_id n, value_id v, u32 at)
{
    while (graph_node(g, n)->in.n < at) node_add_in(g, n, 0);
    node_add_in(g, n, v);
}

struct checked { value_id v; sym size; bool is_mask; };
struct checks { struct checked *v; u32 n; };

/* Layers have the same ones. Rows of a mask of numbers count once or not at all. */
static bool check_once(struct graph *g, node_id n, struct checks *c, struct checked x, struct err *e)
{
    sym low;
    for (u32 k = 0; k < c->n; k++)
        if (c->v[k].v == x.v && c->v[k].size == x.size) return true;
    c->v[c->n++] = x;
    return x.is_mask ? check_range(g, n, x.v, x.size, &low, e) : check_elements(g, n, x.v, x.size, e);
}

static bool append(struct graph *g, node_id n, const struct op_append *a, struct checks *c, struct err *e)
{
    value_id mask = a->takes_mask ? mask_of(g, a->at) : 0;
    sym all = sym_add(g->sym, a->end, sym_const(g->sym, 1));
    attr_set_int(g, n, "quern_appends", 1);
    if (mask) add_input(g, n, mask, op_of(g, n)->max_in - 1);
    struct checked rows = mask ? (struct checked){mask, sym_const(g->sym, 1), true} : (struct checked){a->at, a->end, false};
    if (!check_once(g, n, c, rows, e)) return false;
    return !a->total || check_once(g, n, c, (struct checked){a->total, all, false}, e);
}

bool state_append(struct graph *g, const struct state_pairs *s, struct err *e)
{
    struct arena tmp = {0};
    struct checks c = {.v = arena_array(&tmp, struct checked, 2 * s->n + 1)};
    bool ok = true, any = false;
    for (u32 k = 0; k < s->n && ok; k++) {
        node_id n = maker_of(g, g->output.v[s->v[k].output]);
        const struct op *op = n ? op_of(g, n) : NULL;
        struct op_append a;
        if (!op || !op->appends || attr_int(graph_node(g, n), "quern_appends", 0) || !op->appends(g, n, &a)) continue;
        any = true;
        ok = append(g, n, &a, &c, e);
    }
    arena_release(&tmp);
    return ok && (!any || op_infer_all(g, e));
}

/* placing */

static bool depends_on_data(const struct graph *g, sym size)
{
    for (u32 k = 0; k < g->made.n; k++)
        if (sym_has_var(g->sym, size, g->made.v[k].var)) return true;
    return false;
}

static u32 count_outputs(const struct graph *g, value_id v)
{
    u32 n = 0;
    for (u32 k = 0; k < g->output.n; k++) n += g->output.v[k] == v;
    return n;
}

/* The output is the input and other values behind it, on this axis. */
static bool is_append(const struct graph *g, value_id in, value_id out, u32 *axis)
{
    const struct value *x = graph_value(g, in), *y = graph_value(g, out);
    node_id n = y->producer;
    if (x->producer || x->is_const || x->sdata || !n || y->sdata || x->layout != LAYOUT_ROWS || y->layout != LAYOUT_ROWS) return false;
    const struct op *op = op_of(g, n);
    const struct node *nd = graph_node(g, n);
    if (!op->join || !op->join(g, nd, axis) || nd->in.v[0] != in) return false;
    for (u32 k = 1; k < nd->in.n; k++)
        if (nd->in.v[k] == in) return false;
    for (u32 d = 0; d < x->shape.rank; d++)
        if (d != *axis && x->shape.dim[d] != y->shape.dim[d]) return false;
    return count_outputs(g, out) == 1 && !count_outputs(g, in) && !sym_is_const(g->sym, y->shape.dim[*axis], NULL) && !depends_on_data(g, y->shape.dim[*axis]);
}

/* TensorScatter into the input, of one sequence: *at is the first new row. */
static bool is_update(struct graph *g, value_id in, value_id out, u32 *axis, sym *at)
{
    const struct value *x = graph_value(g, in), *y = graph_value(g, out);
    node_id n = y->producer;
    i64 batch;
    if (x->producer || x->is_const || !n || x->layout != LAYOUT_ROWS || y->layout != LAYOUT_ROWS || count_outputs(g, out) != 1 || count_outputs(g, in)) return false;
    const struct node *nd = graph_node(g, n);
    if (!str_is(nd->op, "TensorScatter") || nd->in.v[0] != in || nd->in.v[1] == in || !str_is(attr_str(nd, "mode", "linear"), "linear")) return false;
    value_id start = nd->in.n > 2 ? nd->in.v[2] : 0;
    if (!op_axis(attr_int(nd, "axis", -2), x->shape.rank, axis) || !*axis) return false;
    *at = sym_const(g->sym, 0);
    if (!start) return true;
    if (graph_value(g, start)->producer || graph_value(g, start)->is_const || !sym_is_const(g->sym, x->shape.dim[0], &batch) || batch != 1) return false;
    for (u32 k = 0; k < g->made.n; k++) /* of another layer */
        if (g->made.v[k].v == start && !g->made.v[k].at && g->made.v[k].take == SIZE_TAKE) return *at = sym_var(g->sym, g->sym->var.v[g->made.v[k].var]), true;
    *at = op_size_of(g, start, 0, start, sym_sub(g->sym, x->shape.dim[*axis], graph_value(g, nd->in.v[1])->shape.dim[*axis]));
    return true;
}

/* The update as a concatenation. */
static bool place_update(struct graph *g, value_id in, value_id out, u32 axis, sym at, struct err *e)
{
    node_id n = graph_value(g, out)->producer, first = g->node.n;
    value_id new = graph_node(g, n)->in.v[1];
    const struct shape s = graph_value(g, in)->shape;
    sym end = sym_add(g->sym, at, graph_value(g, new)->shape.dim[axis]);
    graph_node(g, n)->dead = true;
    value_id part[3] = {op_node_slice(g, n, in, &s, axis, sym_const(g->sym, 0), at, 0), new, 0};
    part[2] = op_node_slice(g, n, in, &s, axis, end, sym_sub(g->sym, s.dim[axis], end), 0);
    op_node_concat(g, n, 3, part, axis, out);
    for (node_id k = first; k < g->node.n; k++)
        if (!op_infer(g, k, e)) return false;
    return graph_sort(g, e);
}

/* Whether the node's first output is the input but for elements that it replaces: those of chosen slots, or where a condition does not choose the input. */
static bool replaces(const struct graph *g, node_id n, value_id in)
{
    const struct node *nd = graph_node(g, n);
    const struct op *op = op_of(g, n);
    u32 k;
    if (op->updates) return op->updates(g, nd, 0, &k) && nd->in.v[k] == in;
    return str_is(nd->op, "Where") && (nd->in.v[1] == in || nd->in.v[2] == in);
}

/* The output is the input but for elements that are replaced, and nothing else reads the input: written over it, every element stays what it is or becomes what
   was chosen, however often a kernel computes it. */
static bool is_choice(const struct graph *g, value_id in, value_id out)
{
    const struct value *x = graph_value(g, in), *y = graph_value(g, out);
    node_id n = y->producer;
    u32 n_uses = 0;
    if (x->producer || x->is_const || !n || !x->shape.rank || x->layout != LAYOUT_ROWS || y->layout != LAYOUT_ROWS || count_outputs(g, out) != 1 || count_outputs(g, in)) return false;
    if (!replaces(g, n, in) || !shape_equal(&x->shape, &y->shape) || x->dtype != y->dtype) return false;
    for (node_id k = 1; k < g->node.n; k++)
        for (u32 i = 0; i < graph_node(g, k)->in.n && !graph_node(g, k)->dead; i++) n_uses += graph_node(g, k)->in.v[i] == in;
    return n_uses == 1;
}

static void share(struct graph *g, value_id in, value_id out, u32 axis, sym whole)
{
    graph_value(g, in)->part = graph_value(g, out)->part = (struct part){.whole = whole, .from = sym_const(g->sym, 0), .axis = axis};
    graph_value(g, out)->shares = in;
}

/* A variable with a name that the network does not have. */
static sym new_room(struct graph *g)
{
    for (u32 k = 1;; k++) {
        struct str name = k == 1 ? S("room") : str_fmt(g->arena, "room_%u", k);
        bool is_known = false;
        for (u32 v = 0; v < g->sym->var.n; v++) is_known |= str_eq(g->sym->var.v[v], name);
        if (!is_known) return sym_var(g->sym, name);
    }
}

/* Caches of the same length have the same room. */
static sym room_of(struct graph *g, const struct state_pairs *s, u32 at)
{
    for (u32 k = 0; k < at; k++)
        if (s->v[k].room && s->v[k].size == s->v[at].size) return s->v[k].room;
    return new_room(g);
}

bool state_place(struct graph *g, struct state_pairs *s, struct err *e)
{
    for (u32 k = 0; k < s->n; k++) {
        struct state_pair *p = &s->v[k];
        value_id in = g->input.v[p->input], out = g->output.v[p->output];
        u32 axis;
        sym at;
        if (is_append(g, in, out, &axis)) {
            p->size = graph_value(g, out)->shape.dim[axis];
            if (!p->room) p->room = room_of(g, s, k);
            share(g, in, out, axis, sym_add(g->sym, p->size, p->room));
        } else if (is_update(g, in, out, &axis, &at)) {
            if (!place_update(g, in, out, axis, at, e)) return false;
            share(g, in, out, axis, graph_value(g, out)->shape.dim[axis]);
        } else if (is_choice(g, in, out)) share(g, in, out, 0, graph_value(g, out)->shape.dim[0]);
    }
    return true;
}
