// SPDX-License-Identifier: Apache-2.0
//
// Sequences and optional values of ONNX. Their elements are tensors of the graph, so they are replaced: a node that takes
// an element of a sequence reads that tensor. This requires known numbers of elements and positions; otherwise the node is
// rejected with its operator. An output of the graph that is a sequence becomes that many outputs, "name[0]", "name[1]" ...
//
// The number of pieces of a tensor depends on its size, so nodes are replaced in topological order while the graph is
// inferred (import_control.c): sequences pass through loops and branches like other values, because a copy of a body
// consists of ordinary nodes. Until then a sequence is kept beside the value that represented it, whose node is dead.
#include "import/import.h"
#include "op/op.h"

enum { MAX_ELEMS = 4096 /* of a sequence */, MAX_COPIES = 1 << 26 /* of all lists together */, MAX_OUTPUTS = 1 << 16 };

enum shape_of_value { IS_TENSOR, IS_SEQUENCE, IS_NONE /* an optional without content */ };

struct list {
    enum shape_of_value kind;
    struct { value_id *v; u32 n, cap; } elem; /* IS_SEQUENCE */
};

struct import_lists {
    struct graph *g;
    struct { struct list *v; u32 n, cap; } list; /* per value; values after the last are tensors */
    bool any;                                    /* of them is no tensor */
    i64 copies;
    struct err *e;
};

typedef bool dissolve_fn(struct import_lists *d, node_id n);

static struct list *list_of(struct import_lists *d, value_id v)
{
    while (d->list.n <= v) *arr_push(d->g->arena, &d->list) = (struct list){0};
    return &d->list.v[v];
}

static value_id input(const struct import_lists *d, node_id n, u32 k)
{
    const struct node *x = graph_node(d->g, n);
    return k < x->in.n ? x->in.v[k] : 0;
}

static bool is_unknown(const struct import_lists *d, value_id v) { return v && !graph_value(d->g, v)->shape.known; }

/* Skipped while an input has no size yet. */
static bool infer(struct import_lists *d, node_id n)
{
    if (!op_find(graph_node(d->g, n)->op)) return true;
    for (u32 k = 0; k < graph_node(d->g, n)->in.n; k++)
        if (is_unknown(d, input(d, n, k))) return true;
    return op_infer(d->g, n, d->e);
}

/* Input 0, which must be a sequence; a modifiable copy. */
static bool take_sequence(struct import_lists *d, node_id n, struct list *out)
{
    struct list *from = list_of(d, input(d, n, 0));
    if (!input(d, n, 0) || from->kind != IS_SEQUENCE) return op_invalid(d->e, d->g, n, "input 0 is not a sequence");
    if ((d->copies += from->elem.n) > MAX_COPIES) return op_unsupported(d->e, d->g, n, "sequences of too many elements");
    *out = (struct list){.kind = IS_SEQUENCE};
    for (u32 i = 0; i < from->elem.n; i++) *arr_push(d->g->arena, &out->elem) = from->elem.v[i];
    return true;
}

static bool deliver_list(struct import_lists *d, node_id n, struct list x)
{
    value_id out = graph_node(d->g, n)->out.v[0];
    if (x.elem.n > MAX_ELEMS) return op_unsupported(d->e, d->g, n, "sequences of more than %d elements", MAX_ELEMS);
    if (out) *list_of(d, out) = x;
    d->any = true;
    graph_node(d->g, n)->dead = true;
    return true;
}

/* The node's output becomes the tensor v. */
static bool deliver_tensor(struct import_lists *d, node_id n, value_id v)
{
    value_id out = graph_node(d->g, n)->out.v[0];
    graph_node(d->g, n)->dead = true;
    return !out || infer(d, op_made(d->g, op_node1(d->g, n, "Identity", v, out)));
}

static bool deliver_number(struct import_lists *d, node_id n, enum dtype t, i64 x)
{
    return deliver_tensor(d, n, op_const_f(d->g, t, (double)x));
}

/* Input k as a position among 0 .. n-1, or the default if omitted. */
static bool position(struct import_lists *d, node_id n, u32 k, i64 count, i64 otherwise, i64 *out)
{
    value_id v = input(d, n, k);
    *out = otherwise;
    if (v && !import_known(d->g, v, out)) return op_unsupported(d->e, d->g, n, "the position is only known at run time");
    i64 p = *out < 0 ? *out + count : *out;
    if (p < 0 || p >= count) return op_invalid(d->e, d->g, n, "position %lld of %lld elements", (long long)*out, (long long)count);
    return *out = p, true;
}

/* The operators. */

static bool sequence_empty(struct import_lists *d, node_id n) { return deliver_list(d, n, (struct list){.kind = IS_SEQUENCE}); }

static bool sequence_construct(struct import_lists *d, node_id n)
{
    struct list x = {.kind = IS_SEQUENCE};
    for (u32 k = 0; k < graph_node(d->g, n)->in.n; k++) {
        value_id v = input(d, n, k);
        if (!v || list_of(d, v)->kind != IS_TENSOR) return op_invalid(d->e, d->g, n, "input %u is not a tensor", k);
        *arr_push(d->g->arena, &x.elem) = v;
    }
    return deliver_list(d, n, x);
}

static bool sequence_insert(struct import_lists *d, node_id n)
{
    struct list x;
    i64 at;
    value_id v = input(d, n, 1);
    if (!take_sequence(d, n, &x)) return false;
    if (!v || list_of(d, v)->kind != IS_TENSOR) return op_invalid(d->e, d->g, n, "input 1 is not a tensor");
    /* -1 is the place before the first element */
    i64 count = x.elem.n;
    value_id p = input(d, n, 2);
    at = count;
    if (p && !import_known(d->g, p, &at)) return op_unsupported(d->e, d->g, n, "the position is only known at run time");
    if (at < -count || at > count) return op_invalid(d->e, d->g, n, "position %lld of %lld elements", (long long)at, (long long)count);
    if (at < 0) at += count;
    arr_push(d->g->arena, &x.elem);
    for (u32 i = x.elem.n - 1; i > at; i--) x.elem.v[i] = x.elem.v[i - 1];
    x.elem.v[at] = v;
    return deliver_list(d, n, x);
}

static bool sequence_erase(struct import_lists *d, node_id n)
{
    struct list x;
    i64 at;
    if (!take_sequence(d, n, &x) || !position(d, n, 1, x.elem.n, -1, &at)) return false;
    for (u32 i = (u32)at; i + 1 < x.elem.n; i++) x.elem.v[i] = x.elem.v[i + 1];
    x.elem.n--;
    return deliver_list(d, n, x);
}

static bool sequence_at(struct import_lists *d, node_id n)
{
    struct list x;
    i64 at;
    return take_sequence(d, n, &x) && position(d, n, 1, x.elem.n, 0, &at) && deliver_tensor(d, n, x.elem.v[at]);
}

static bool sequence_length(struct import_lists *d, node_id n)
{
    struct list x;
    return take_sequence(d, n, &x) && deliver_number(d, n, DT_I64, x.elem.n);
}

/* A Split of x into the node's list: sizes has one element for each piece. */
static bool split(struct import_lists *d, node_id n, i64 count, value_id sizes, struct list *out)
{
    struct graph *g = d->g;
    node_id s = graph_add_node(g, S("Split"), graph_node(g, n)->name);
    node_add_in(g, s, input(d, n, 0));
    node_add_in(g, s, sizes);
    *out = (struct list){.kind = IS_SEQUENCE};
    for (i64 i = 0; i < count; i++) {
        value_id v = graph_add_value(g, S("piece"));
        node_set_out(g, s, (u32)i, v);
        *arr_push(g->arena, &out->elem) = v;
    }
    attr_set_int(g, s, "axis", attr_int(graph_node(g, n), "axis", 0));
    return op_infer(g, s, d->e);
}

static bool drop_axis(struct import_lists *d, node_id n, struct list *x, i64 axis)
{
    for (u32 i = 0; i < x->elem.n; i++) {
        x->elem.v[i] = op_node_axes(d->g, n, "Squeeze", x->elem.v[i], &axis, 1, 0);
        if (!infer(d, op_made(d->g, x->elem.v[i]))) return false;
    }
    return true;
}

/* The elements from .. to-1 along the axis. */
static bool cut(struct import_lists *d, node_id n, i64 axis, i64 from, i64 to, value_id *out)
{
    struct graph *g = d->g;
    value_id in[] = {input(d, n, 0), op_const_i(g, DT_I64, &from, 1), op_const_i(g, DT_I64, &to, 1), op_const_i(g, DT_I64, &axis, 1)};
    *out = op_node(g, n, "Slice", 4, in, 0);
    return infer(d, op_made(g, *out));
}

/* Pieces of `size` elements along the axis, the last one smaller. */
static bool split_evenly(struct import_lists *d, node_id n, u32 axis, i64 size, struct list *out)
{
    i64 dim;
    *out = (struct list){.kind = IS_SEQUENCE};
    if (!sym_is_const(d->g->sym, graph_value(d->g, input(d, n, 0))->shape.dim[axis], &dim))
        return op_unsupported(d->e, d->g, n, "the number of pieces depends on axis %u of its input, whose size is not known: fix it with --input-shape", axis);
    if (size < 1) return op_invalid(d->e, d->g, n, "pieces of %lld elements", (long long)size);
    if (ceil_div(dim, size) > MAX_ELEMS) return op_unsupported(d->e, d->g, n, "sequences of more than %d elements", MAX_ELEMS);
    for (i64 from = 0; from < dim; from += i64_min(size, dim - from))
        if (!cut(d, n, axis, from, from + i64_min(size, dim - from), arr_push(d->g->arena, &out->elem))) return false;
    return true;
}

static bool split_to_sequence(struct import_lists *d, node_id n)
{
    struct graph *g = d->g;
    value_id x = input(d, n, 0), sizes = input(d, n, 1);
    struct list out;
    u32 axis;
    i64 size = 1, count;
    if (!x || list_of(d, x)->kind != IS_TENSOR) return op_invalid(d->e, g, n, "input 0 is not a tensor");
    if (!op_axis(attr_int(graph_node(g, n), "axis", 0), graph_value(g, x)->shape.rank, &axis)) return op_invalid(d->e, g, n, "bad attribute 'axis'");
    if (sizes && graph_value(g, sizes)->shape.rank == 1) {
        if (!sym_is_const(g->sym, graph_value(g, sizes)->shape.dim[0], &count)) return op_unsupported(d->e, g, n, "the number of pieces is only known at run time");
        if (count > MAX_ELEMS) return op_unsupported(d->e, g, n, "sequences of more than %d elements", MAX_ELEMS);
        return split(d, n, count, sizes, &out) && deliver_list(d, n, out);
    }
    if (sizes && !import_known(g, sizes, &size)) return op_unsupported(d->e, g, n, "the size of a piece is only known at run time");
    bool keeps = sizes || attr_int(graph_node(g, n), "keepdims", 1);
    return split_evenly(d, n, axis, size, &out) && (keeps || drop_axis(d, n, &out, axis)) && deliver_list(d, n, out);
}

static bool concat_from_sequence(struct import_lists *d, node_id n)
{
    struct graph *g = d->g;
    struct list x;
    i64 axis = attr_int(graph_node(g, n), "axis", 0);
    value_id out = graph_node(g, n)->out.v[0];
    if (!take_sequence(d, n, &x)) return false;
    if (!x.elem.n) return op_unsupported(d->e, g, n, "concatenation of a sequence without elements");
    for (u32 i = 0; attr_int(graph_node(g, n), "new_axis", 0) && i < x.elem.n; i++) {
        x.elem.v[i] = op_node_axes(g, n, "Unsqueeze", x.elem.v[i], &axis, 1, 0);
        if (!infer(d, op_made(g, x.elem.v[i]))) return false;
    }
    graph_node(g, n)->dead = true;
    if (!out) return true;
    node_id c = op_made(g, op_node(g, n, "Concat", x.elem.n, x.elem.v, out));
    attr_set_int(g, c, "axis", axis);
    return infer(d, c);
}

/* An optional value is its content. */
static bool optional(struct import_lists *d, node_id n)
{
    value_id v = input(d, n, 0);
    if (!v) return deliver_list(d, n, (struct list){.kind = IS_NONE});
    if (list_of(d, v)->kind == IS_TENSOR) return deliver_tensor(d, n, v);
    return deliver_list(d, n, *list_of(d, v));
}

static bool optional_has_element(struct import_lists *d, node_id n)
{
    value_id v = input(d, n, 0);
    return deliver_number(d, n, DT_BOOL, v && list_of(d, v)->kind != IS_NONE);
}

static bool optional_get_element(struct import_lists *d, node_id n)
{
    value_id v = input(d, n, 0);
    if (!v || list_of(d, v)->kind == IS_NONE) return op_invalid(d->e, d->g, n, "the element does not exist");
    return optional(d, n);
}

static const struct {
    const char *op;
    dissolve_fn *fn;
} table[] = {
    {"SequenceEmpty", sequence_empty},   {"SequenceConstruct", sequence_construct},
    {"SequenceInsert", sequence_insert}, {"SequenceErase", sequence_erase},
    {"SequenceAt", sequence_at},         {"SequenceLength", sequence_length},
    {"SplitToSequence", split_to_sequence}, {"ConcatFromSequence", concat_from_sequence},
    {"Optional", optional},              {"OptionalHasElement", optional_has_element},
    {"OptionalGetElement", optional_get_element},
};

static dissolve_fn *find_fn(struct str op)
{
    for (i64 i = 0; i < countof(table); i++)
        if (str_is(op, table[i].op)) return table[i].fn;
    return NULL;
}

bool import_is_sequence_op(struct str op) { return find_fn(op) != NULL; }

/* The graph. */

static bool takes_lists(struct import_lists *d, node_id n)
{
    for (u32 k = 0; k < graph_node(d->g, n)->in.n; k++)
        if (input(d, n, k) && list_of(d, input(d, n, k))->kind != IS_TENSOR) return true;
    return false;
}

/* One of two sequences, selected at run time: element by element. */
static bool choose(struct import_lists *d, node_id n)
{
    struct list *yes = list_of(d, input(d, n, 1)), *no = list_of(d, input(d, n, 2)), out = {.kind = IS_SEQUENCE};
    yes = list_of(d, input(d, n, 1)); /* the second may have moved the first */
    if (yes->kind != no->kind || yes->elem.n != no->elem.n)
        return op_unsupported(d->e, d->g, n, "the choice between two sequences of different lengths is only known at run time");
    if (yes->kind == IS_TENSOR) return op_invalid(d->e, d->g, n, "input 0 is not a tensor");
    if (yes->kind == IS_NONE) return deliver_list(d, n, *yes);
    if ((d->copies += yes->elem.n) > MAX_COPIES) return op_unsupported(d->e, d->g, n, "sequences of too many elements");
    for (u32 i = 0; i < yes->elem.n; i++) {
        value_id v[] = {input(d, n, 0), yes->elem.v[i], no->elem.v[i]}, y = op_node(d->g, n, "quern::Choose", 3, v, 0);
        if (!infer(d, op_made(d->g, y))) return false;
        *arr_push(d->g->arena, &out.elem) = y;
    }
    return deliver_list(d, n, out);
}

struct import_lists *import_lists_begin(struct graph *g, struct err *e)
{
    struct import_lists *d = arena_new(g->arena, struct import_lists);
    *d = (struct import_lists){.g = g, .e = e};
    return d;
}

bool import_lists_takes(struct import_lists *d, node_id n)
{
    return find_fn(graph_node(d->g, n)->op) || (d->any && !import_is_control_op(graph_node(d->g, n)->op) && takes_lists(d, n));
}

bool import_lists_dissolve(struct import_lists *d, node_id n)
{
    const struct node *x = graph_node(d->g, n);
    dissolve_fn *fn = find_fn(x->op);
    if (fn && x->out.n != 1) return op_invalid(d->e, d->g, n, "%u outputs, expected 1", x->out.n);
    if (fn) return fn(d, n);
    if (str_is(x->op, "Identity") && x->in.n == 1 && x->out.n == 1) return optional(d, n);
    if (str_is(x->op, "quern::Choose") && x->in.n == 3 && x->out.n == 1) return choose(d, n);
    return op_unsupported(d->e, d->g, n, "an input that is a sequence, or an optional value without content");
}

i64 import_list_get(struct import_lists *d, value_id v, const value_id **elem)
{
    const struct list *x = v ? list_of(d, v) : NULL;
    if (!x || x->kind != IS_SEQUENCE) return -1;
    *elem = x->elem.v;
    return x->elem.n;
}

bool import_list_set(struct import_lists *d, node_id n, u32 out, const value_id *elem, i64 count)
{
    struct list x = {.kind = IS_SEQUENCE};
    value_id v = graph_node(d->g, n)->out.v[out];
    if (count > MAX_ELEMS) return op_unsupported(d->e, d->g, n, "sequences of more than %d elements", MAX_ELEMS);
    for (i64 i = 0; i < count; i++) *arr_push(d->g->arena, &x.elem) = elem[i];
    if (v) *list_of(d, v) = x;
    return d->any = true;
}

static void keep_elements(struct import_lists *d, value_id v, bool *seen, struct arena *tmp, struct value_list *all)
{
    const value_id *elem;
    i64 n = import_list_get(d, v, &elem);
    for (i64 i = 0; i < n; i++) {
        if (!seen[elem[i]]) *arr_push(tmp, all) = elem[i];
        seen[elem[i]] = true;
    }
}

/* Elements of sequences count as outputs while nodes may still take them. */
bool import_lists_sort(struct import_lists *d)
{
    struct graph *g = d->g;
    struct value_list own = g->output, all = {0};
    struct arena tmp = {0};
    bool *seen = arena_array(&tmp, bool, g->value.n);
    for (u32 k = 0; k < own.n; k++) *arr_push(&tmp, &all) = own.v[k];
    for (u32 k = 0; d->any && k < own.n; k++) keep_elements(d, own.v[k], seen, &tmp, &all);
    for (node_id n = 1; d->any && n < g->node.n; n++)
        for (u32 k = 0; !graph_node(g, n)->dead && k < graph_node(g, n)->in.n; k++) keep_elements(d, input(d, n, k), seen, &tmp, &all);
    g->output = all;
    bool ok = graph_sort(g, d->e);
    g->output = own;
    arena_release(&tmp);
    return ok;
}

/* An output named as element i of the sequence. */
static bool add_element_output(struct import_lists *d, struct str name, u32 i, value_id elem, value_id *out)
{
    *out = graph_add_value(d->g, str_fmt(d->g->arena, "%.*s[%u]", STR_ARG(name), i));
    return infer(d, op_made(d->g, op_node1(d->g, 0, "Identity", elem, *out)));
}

static bool flatten_outputs(struct import_lists *d)
{
    struct graph *g = d->g;
    struct value_list all = {0};
    for (u32 k = 0; k < g->output.n; k++) {
        value_id v = g->output.v[k], own;
        struct list x = *list_of(d, v);
        struct str name = graph_value(g, v)->name;
        if (x.kind == IS_NONE) return err_set(d->e, ERR_UNSUPPORTED, "graph output '%.*s' is an optional value without content", STR_ARG(name));
        if ((i64)all.n + x.elem.n >= MAX_OUTPUTS) return err_set(d->e, ERR_UNSUPPORTED, "more than %d outputs: '%.*s'", MAX_OUTPUTS, STR_ARG(name));
        if (x.kind == IS_TENSOR) *arr_push(g->arena, &all) = v;
        for (u32 i = 0; i < x.elem.n; i++) {
            if (!add_element_output(d, name, i, x.elem.v[i], &own)) return false;
            *arr_push(g->arena, &all) = own;
        }
    }
    if (!all.n) return err_set(d->e, ERR_UNSUPPORTED, "graph outputs are sequences without elements");
    g->output = all;
    return true;
}

bool import_lists_end(struct import_lists *d) { return (!d->any || flatten_outputs(d)) && graph_sort(d->g, d->e); }

/* Results of unsupported control flow stay unknown, and so does everything that depends on them. */
static bool dissolve_or_infer(struct import_lists *d, node_id n)
{
    for (u32 k = 0; k < graph_node(d->g, n)->in.n; k++)
        if (is_unknown(d, input(d, n, k)) && list_of(d, input(d, n, k))->kind == IS_TENSOR) return true;
    return import_lists_takes(d, n) ? import_lists_dissolve(d, n) : infer(d, n);
}

bool import_sequences(struct graph *g, struct err *e)
{
    struct import_lists d = {.g = g, .e = e};
    bool any = false;
    for (node_id n = 1; n < g->node.n; n++) any = any || (!graph_node(g, n)->dead && find_fn(graph_node(g, n)->op));
    if (!any) return true;
    if (!graph_sort(g, e)) return false;
    u32 n_old = g->node.n; /* added nodes have been inferred */
    for (node_id n = 1; n < n_old; n++)
        if (!graph_node(g, n)->dead && !dissolve_or_infer(&d, n)) return false;
    return import_lists_end(&d);
}
