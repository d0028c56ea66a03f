// SPDX-License-Identifier: Apache-2.0
//
// ONNX models, opsets 1 to 28: protobuf to graph. Every node is converted to the form of opset 7
// (import_old.c) and by its operator's `upgrade` to that of opset 18; sizes are inferred. Later
// opsets mostly changed the permitted types; operators that are new in them (Gelu, Swish ...) are
// kept.
//
// Names of values are kept. They may appear in any order in ONNX, so a value is created at its
// first mention, and graph_verify finds those without a producer. Initializers are constants, even
// if they are listed as inputs; Constant nodes become constants. Named sizes (dim_param) become
// size variables, equal names the same variable; unnamed sizes get a unique name ("input_d2").
// Shapes that the model declares for inner values (value_info) and for its outputs are ignored:
// sizes are inferred.
//
// Operators of other domains include it in their names, "com.microsoft::FusedConv"; those
// equivalent to one of ai.onnx (onnx_alias.inc) are replaced by it, in the form of opset 18.
//
// Functions of the model are inlined first (import_function.c), sparse tensors become dense
// constants (import_sparse.c). Control flow (import_control.c), sequences and optional values
// (import_sequence.c) are replaced while sizes are inferred. Sequence inputs are replaced before,
// if the caller gives their numbers of elements (import_elements.c). Unsupported features
// (positions in sequences that are only known at run time) are ERR_UNSUPPORTED with operator and
// node.
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"
#include "op/op.h"

enum { MAX_DEPTH = 32, /* nesting of bodies */ MIN_OPSET = 1, UPGRADE_OPSET = 7, MAX_OPSET = 28, MAX_ATTRS = 1000 };

struct reader {
    struct graph *g;
    struct arena *a;
    const struct os_beside *beside; /* external data, may be NULL */
    struct map value;  /* ONNX name -> value_id */
    struct map made;   /* ONNX names that have a source: input, initializer or node */
    struct map dims;   /* names of sizes in use */
    i64 opset;
    struct import_problems *all; /* see struct import_job */
    struct tensor *const *given; i64 n_given; /* likewise */
    struct map claims; /* with `all`: name -> Onnx__ValueInfoProto *, declarations of inner values */
    struct import_bodies *bodies; /* of If, Loop and Scan */
    struct reader *outer;         /* in a body: the enclosing graph's reader */
    struct map local;             /* in a body: names that have a source there */
    struct captured *captured;    /* in a body: values of the enclosing graph that it reads */
    u32 depth;
    struct err *e;
};

struct captured { struct { value_id inner, outer; } *v; u32 n, cap; };

/* For messages: "operator 'Conv', node 'conv_12'"; unnamed nodes are identified by their first
   output. */
static struct str node_where(struct reader *r, const Onnx__NodeProto *n)
{
    struct str op = str_of(n->op_type), name = str_of(n->name), domain = str_of(n->domain);
    if (!name.n && n->n_output) name = str_of(n->output[0]);
    return str_fmt(r->a, "operator '%.*s%s%.*s', node '%.*s'", STR_ARG(domain), domain.n ? "::" : "", STR_ARG(op),
                   STR_ARG(name));
}

static bool unsupported(struct reader *r, const Onnx__NodeProto *n, const char *what)
{
    struct str where = node_where(r, n);
    return err_set(r->e, ERR_UNSUPPORTED, "%s: %.*s", what, STR_ARG(where));
}

/* Appends the node to the error. */
static bool at_node(struct reader *r, const Onnx__NodeProto *n)
{
    struct str where = node_where(r, n);
    return err_prefix(r->e, "%.*s", STR_ARG(where));
}

static bool invalid(struct reader *r, const char *what, struct str subject)
{
    return err_set(r->e, ERR_INPUT, "%s: '%.*s'", what, STR_ARG(subject));
}

/* The value of this name, created at its first mention. */
static value_id get_value(struct reader *r, struct str name)
{
    const u64 *known = map_get(&r->value, name);
    if (known) return (value_id)*known;
    value_id v = graph_add_value(r->g, name);
    map_put(&r->value, name, v);
    if (r->outer && !map_get(&r->local, name)) { /* of the enclosing graph */
        map_put(&r->made, name, 1);
        arr_push(r->a, r->captured);
        r->captured->v[r->captured->n - 1].inner = v;
        r->captured->v[r->captured->n - 1].outer = get_value(r->outer, name);
    }
    return v;
}

/* Records that the name has a source; a second one is an error. */
static bool set_made(struct reader *r, struct str name)
{
    if (!name.n) return err_set(r->e, ERR_INPUT, "value without a name");
    if (map_get(&r->made, name)) return invalid(r, "value is produced twice", name);
    map_put(&r->made, name, 1);
    return true;
}

/* Sets the constant content of a value (possibly mentioned before). */
static bool set_const(struct reader *r, struct str name, const struct tensor *t)
{
    if (!set_made(r, name)) return false;
    struct tensor *own = arena_new(r->a, struct tensor);
    *own = *t;
    value_id v = get_value(r, name);
    struct value *val = graph_value(r->g, v);
    val->data = own;
    val->is_const = true;
    val->dtype = t->dtype;
    val->shape = (struct shape){.known = true, .rank = t->rank};
    for (u32 k = 0; k < t->rank; k++) val->shape.dim[k] = sym_const(r->g->sym, t->dim[k]);
    return true;
}

/* Inputs and sizes. */

static const char *dim_name(const Onnx__TensorShapeProto__Dimension *d)
{
    if (d->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM || !d->dim_param) return NULL;
    return d->dim_param[0] ? d->dim_param : NULL;
}

/* A fresh variable for axis k of the input. */
static sym fresh_dim(struct reader *r, struct str input, size_t k)
{
    struct str s = str_fmt(r->a, "%.*s_d%d", STR_ARG(input), (int)k);
    for (i64 i = 2; map_get(&r->dims, s); i++)
        s = str_fmt(r->a, "%.*s_d%d_%lld", STR_ARG(input), (int)k, (long long)i);
    map_put(&r->dims, s, 1);
    return sym_var(r->g->sym, s);
}

static sym read_dim(struct reader *r, const Onnx__TensorShapeProto__Dimension *d, struct str input, size_t k)
{
    sym s;
    if (dim_name(d) && import_dim(r->g->sym, str_of(dim_name(d)), &r->dims, &s)) return s;
    if (dim_name(d)) return sym_var(r->g->sym, str_of(dim_name(d)));
    if (d->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && d->dim_value >= 0)
        return sym_const(r->g->sym, d->dim_value);
    return fresh_dim(r, input, k); /* -1 also stands for unknown */
}

static bool not_a_tensor(struct reader *r, const Onnx__ValueInfoProto *p)
{
    const Onnx__TypeProto *elem;
    struct str name = str_of(p->name);
    enum io_list_kind kind = import_kind(p->type, &elem);
    if (kind == IO_TENSOR) return err_set(r->e, ERR_UNSUPPORTED, "graph input '%.*s' is not a tensor", STR_ARG(name));
    return err_set(r->e, ERR_UNSUPPORTED, "graph input '%.*s' is %s: say how many elements it has (--elements %.*s=%s)", STR_ARG(name),
                   kind == IO_SEQUENCE ? "a sequence" : "an optional value", STR_ARG(name), kind == IO_OPTIONAL ? "1 or none" : "2");
}

static bool read_input(struct reader *r, const Onnx__ValueInfoProto *p)
{
    struct str name = str_of(p->name);
    const Onnx__TypeProto *type = p->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type)
        return not_a_tensor(r, p);
    const Onnx__TypeProto__Tensor *t = type->tensor_type;
    enum dtype dtype = dtype_from_onnx(t->has_elem_type ? t->elem_type : 0);
    if (dtype == DT_NONE)
        return err_set(r->e, ERR_UNSUPPORTED, "elements of type %s are not supported: graph input '%.*s'",
                       dtype_onnx_name(t->has_elem_type ? t->elem_type : 0), STR_ARG(name));
    if (!t->shape) return err_set(r->e, ERR_UNSUPPORTED, "graph input '%.*s' has no rank", STR_ARG(name));
    if (t->shape->n_dim > MAX_RANK)
        return err_set(r->e, ERR_UNSUPPORTED, "rank over 8: graph input '%.*s'", STR_ARG(name));
    struct shape s = {.known = true, .rank = (u32)t->shape->n_dim};
    struct shape given = s;
    for (size_t k = 0; k < t->shape->n_dim; k++) { /* known facts apply to the shape, not to the shape shown to
                                                      callers */
        r->g->sym->raw = true;
        given.dim[k] = read_dim(r, t->shape->dim[k], name, k);
        r->g->sym->raw = false;
        s.dim[k] = sym_current(r->g->sym, given.dim[k]);
    }
    if (!shape_size_ok(r->g->sym, &s, dtype)) return invalid(r, "graph input is too large", name);
    if (!set_made(r, name)) return false;
    value_id id = get_value(r, name);
    graph_value(r->g, id)->dtype = dtype;
    graph_value(r->g, id)->shape = s;
    if (r->g->sym->fact.n) value_set_given(r->g, id, &given);
    *arr_push(r->a, &r->g->input) = id;
    return true;
}

/* A body's declared inputs come first. Their types are those of the node's inputs. */
static bool read_body_inputs(struct reader *r, const Onnx__GraphProto *p)
{
    for (size_t k = 0; k < p->n_input; k++) {
        struct str name = str_of(p->input[k]->name);
        if (!set_made(r, name)) return false;
        value_id v = get_value(r, name);
        *arr_push(r->a, &r->g->input) = v;
    }
    return true;
}

/* Inputs whose content is given are constants in that memory. */
static bool read_given(struct reader *r, const Onnx__GraphProto *p)
{
    if (r->n_given > (i64)p->n_input) return err_set(r->e, ERR_INPUT, "model has fewer than %lld inputs", (long long)r->n_given);
    for (i64 k = 0; k < r->n_given; k++)
        if (r->given[k] && !set_const(r, str_of(p->input[k]->name), r->given[k])) return false;
    return true;
}

static bool read_inputs(struct reader *r, const Onnx__GraphProto *p)
{
    for (size_t k = 0; k < p->n_initializer; k++) {
        struct tensor t;
        if (!io_onnx_tensor(&t, r->a, p->initializer[k], r->beside, r->e)) return false;
        if (!set_const(r, str_of(p->initializer[k]->name), &t)) return false;
    }
    for (size_t k = 0; k < p->n_sparse_initializer; k++) {
        struct tensor t;
        if (!import_sparse(&t, r->a, p->sparse_initializer[k], r->beside, r->e)) return false;
        if (!set_const(r, str_of(p->sparse_initializer[k]->values->name), &t)) return false;
    }
    if (r->outer) return read_body_inputs(r, p);
    if (!read_given(r, p)) return false;
    /* Collects all given names of sizes first: fresh names must differ from later ones, too. */
    for (size_t k = 0; k < p->n_input; k++) {
        const Onnx__TypeProto *t = p->input[k]->type;
        if (!t || t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !t->tensor_type) continue;
        const Onnx__TensorShapeProto *s = t->tensor_type->shape;
        for (size_t i = 0; s && i < s->n_dim; i++)
            if (dim_name(s->dim[i])) map_put(&r->dims, str_of(dim_name(s->dim[i])), 1);
    }
    for (size_t k = 0; k < p->n_input; k++) {
        const u64 *known = map_get(&r->value, str_of(p->input[k]->name));
        /* an initializer listed as an input */
        if (known && graph_value(r->g, (value_id)*known)->is_const) continue;
        if (!read_input(r, p->input[k])) return false;
    }
    return true;
}

/* Attributes. */

/* Old models omit the type: the only field that is set determines it. */
static Onnx__AttributeProto__AttributeType attr_type(const Onnx__AttributeProto *p)
{
    if (p->has_type && p->type != ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED) return p->type;
    if (p->has_f) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
    if (p->has_i) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    if (p->has_s) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    if (p->t) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
    if (p->g) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    if (p->n_floats) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
    if (p->n_ints) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
    if (p->n_strings) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
    return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__UNDEFINED;
}

static struct str bytes_str(ProtobufCBinaryData b) { return (struct str){(const char *)b.data, (i64)b.len}; }

static void fill_floats(struct reader *r, struct attr *a, const Onnx__AttributeProto *p)
{
    a->kind = ATTR_FLOATS;
    a->n = (i64)p->n_floats;
    a->floats = arena_array(r->a, double, a->n);
    for (i64 k = 0; k < a->n; k++) a->floats[k] = (double)p->floats[k];
}

static void fill_strs(struct reader *r, struct attr *a, const Onnx__AttributeProto *p)
{
    a->kind = ATTR_STRS;
    a->n = (i64)p->n_strings;
    a->strs = arena_array(r->a, struct str, a->n);
    for (i64 k = 0; k < a->n; k++) a->strs[k] = bytes_str(p->strings[k]);
}

static bool fill_tensor(struct reader *r, struct attr *a, const Onnx__AttributeProto *p)
{
    if (!p->t) return invalid(r, "attribute without its tensor", a->name);
    a->kind = ATTR_TENSOR;
    a->t = arena_new(r->a, struct tensor);
    return io_onnx_tensor(a->t, r->a, p->t, r->beside, r->e) || err_prefix(r->e, "attribute '%.*s'", STR_ARG(a->name));
}

static bool read_attr(struct reader *r, struct attr *a, const Onnx__AttributeProto *p)
{
    *a = (struct attr){.name = str_of(p->name)};
    if (!a->name.n) return err_set(r->e, ERR_INPUT, "attribute without a name");
    if (op_is_promise(a->name)) return invalid(r, "attribute that says what quern has proven", a->name);
    if (str_of(p->ref_attr_name).n)
        return err_set(r->e, ERR_UNSUPPORTED, "attribute '%.*s' refers to a function's", STR_ARG(a->name));
    switch ((int)attr_type(p)) { /* the file may contain any number */
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT: a->kind = ATTR_FLOAT, a->f = (double)p->f; return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT: a->kind = ATTR_INT, a->i = p->i; return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING: a->kind = ATTR_STR, a->s = bytes_str(p->s); return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
        a->kind = ATTR_INTS, a->n = (i64)p->n_ints, a->ints = p->ints;
        return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS: fill_floats(r, a, p); return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS: fill_strs(r, a, p); return true;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR: return fill_tensor(r, a, p);
    default: break;
    }
    return err_set(r->e, ERR_UNSUPPORTED, "attribute '%.*s' holds a graph, sparse tensor, type or list of tensors",
                   STR_ARG(a->name));
}

/* Nodes. */

/* The tensor of a Constant node's single attribute. */
static bool constant_tensor(struct reader *r, const struct attr *a, struct tensor *out)
{
    bool is_list = a->kind == ATTR_INTS || a->kind == ATTR_FLOATS;
    enum dtype t = a->kind == ATTR_INT || a->kind == ATTR_INTS ? DT_I64 : DT_F32;
    i64 n = is_list ? a->n : 1;
    *out = *tensor_new(r->a, t, is_list ? 1 : 0, &n);
    for (i64 k = 0; k < n; k++) {
        if (t == DT_I64) elem_set_i64(t, out->data, k, is_list ? a->ints[k] : a->i);
        else elem_set_f64(t, out->data, k, is_list ? a->floats[k] : a->f);
    }
    return true;
}

static bool read_constant(struct reader *r, const Onnx__NodeProto *p)
{
    static const struct { const char *name; enum attr_kind kind; } forms[] = {
        {"value", ATTR_TENSOR},       {"value_int", ATTR_INT},       {"value_ints", ATTR_INTS},
        {"value_float", ATTR_FLOAT},  {"value_floats", ATTR_FLOATS},
    };
    struct attr a;
    struct tensor t;
    if (p->n_attribute != 1 || p->n_output != 1) return unsupported(r, p, "constant needs one attribute and output");
    if (p->attribute[0]->sparse_tensor) {
        if (!import_sparse(&t, r->a, p->attribute[0]->sparse_tensor, r->beside, r->e)) return at_node(r, p);
        return set_const(r, str_of(p->output[0]), &t);
    }
    if (!read_attr(r, &a, p->attribute[0])) return at_node(r, p);
    for (i64 k = 0; k < countof(forms); k++) {
        if (!str_is(a.name, forms[k].name) || a.kind != forms[k].kind) continue;
        if (a.kind != ATTR_TENSOR && !constant_tensor(r, &a, &t)) return false;
        return set_const(r, str_of(p->output[0]), a.kind == ATTR_TENSOR ? a.t : &t);
    }
    return unsupported(r, p, "form of constant is not supported");
}

static bool read_edges(struct reader *r, node_id n, const Onnx__NodeProto *p)
{
    for (size_t k = 0; k < p->n_input; k++) {
        struct str name = str_of(p->input[k]);
        node_add_in(r->g, n, name.n ? get_value(r, name) : 0);
    }
    for (size_t k = 0; k < p->n_output; k++) {
        struct str name = str_of(p->output[k]);
        if (name.n && !set_made(r, name)) return false;
        node_set_out(r->g, n, (u32)k, name.n ? get_value(r, name) : 0);
    }
    return true;
}

static bool is_onnx_domain(struct str domain) { return !domain.n || str_is(domain, "ai.onnx"); }

/* The operator's name in the graph. */
static struct str node_op(struct reader *r, const Onnx__NodeProto *p)
{
    static const struct { const char *name, *same; } alias[] = {
#define X(name, same) {name, same},
#include "import/onnx_alias.inc"
#undef X
    };
    struct str domain = str_of(p->domain), op = str_of(p->op_type);
    if (is_onnx_domain(domain) || !op.n) return op;
    if (str_is(domain, "ai.quern")) domain = S("quern");
    op = str_fmt(r->a, "%.*s::%.*s", STR_ARG(domain), STR_ARG(op));
    for (i64 k = 0; k < countof(alias); k++)
        if (str_is(op, alias[k].name)) return str_of(alias[k].same);
    return op;
}

static bool read_graph(struct reader *r, const Onnx__GraphProto *p);
static bool upgrade_all(struct reader *r);

static void note_local(struct reader *r, const char *name) { map_put(&r->local, str_of(name), 1); }

/* A body as a graph of its own: values that it reads from the enclosing graph
   are inputs after those that it declares, and become inputs of the node. */
static bool read_body(struct reader *r, node_id n, const Onnx__AttributeProto *at)
{
    struct captured captured = {0};
    struct reader b = *r;
    struct str name = str_of(at->name);
    const Onnx__GraphProto *p = at->g;
    if (!p) return invalid(r, "attribute without its graph", name);
    if (r->depth == MAX_DEPTH) return err_set(r->e, ERR_UNSUPPORTED, "bodies are nested more than %d deep", MAX_DEPTH);
    b.g = arena_new(r->a, struct graph);
    b.outer = r, b.captured = &captured, b.depth = r->depth + 1;
    graph_init(b.g, r->a, r->g->sym);
    map_init(&b.value, r->a);
    map_init(&b.made, r->a);
    map_init(&b.local, r->a);
    for (size_t k = 0; k < p->n_input; k++) note_local(&b, p->input[k]->name);
    for (size_t k = 0; k < p->n_initializer; k++) note_local(&b, p->initializer[k]->name);
    for (size_t k = 0; k < p->n_sparse_initializer; k++)
        if (p->sparse_initializer[k]->values) note_local(&b, p->sparse_initializer[k]->values->name);
    for (size_t k = 0; k < p->n_node; k++)
        for (size_t i = 0; i < p->node[k]->n_output; i++) note_local(&b, p->node[k]->output[i]);
    if (!read_graph(&b, p)) return err_prefix(r->e, "body '%.*s'", STR_ARG(name));
    i64 range[2] = {graph_node(r->g, n)->in.n, captured.n};
    for (u32 k = 0; k < captured.n; k++) {
        *arr_push(r->a, &b.g->input) = captured.v[k].inner;
        node_add_in(r->g, n, captured.v[k].outer);
    }
    attr_set_ints(r->g, n, str_fmt(r->a, "%.*s_captured", STR_ARG(name)).p, range, 2);
    attr_set_int(r->g, n, str_dup(r->a, name).p, r->bodies->n);
    *arr_push(r->a, r->bodies) = b.g;
    return graph_verify(b.g, r->e) && upgrade_all(&b);
}

static bool read_bodies(struct reader *r, node_id n, const Onnx__NodeProto *p)
{
    for (size_t k = 0; k < p->n_attribute; k++)
        if (p->attribute[k]->g && !read_body(r, n, p->attribute[k])) return at_node(r, p);
    return true;
}

static bool read_attrs(struct reader *r, node_id n, const Onnx__NodeProto *p)
{
    bool bodies = import_is_control_op(graph_node(r->g, n)->op);
    for (size_t k = 0; k < p->n_attribute; k++) {
        struct attr a;
        if (bodies && p->attribute[k]->g) continue;
        if (p->attribute[k]->tp && str_is(graph_node(r->g, n)->op, "Optional")) continue; /* of missing parts */
        if (!read_attr(r, &a, p->attribute[k])) return at_node(r, p);
        attr_copy(r->g, n, &a);
    }
    return true;
}

static bool read_node(struct reader *r, const Onnx__NodeProto *p)
{
    struct str op = node_op(r, p);
    if (!op.n) return unsupported(r, p, "operator without a name");
    if (p->n_attribute > MAX_ATTRS) return unsupported(r, p, "too many attributes");
    if (str_is(op, "Constant")) return read_constant(r, p);
    node_id n = graph_add_node(r->g, op, str_of(p->name));
    if (!read_attrs(r, n, p) || !read_edges(r, n, p)) return false;
    return !import_is_control_op(op) || read_bodies(r, n, p);
}

/* Continues after a rejected node: its operator becomes an unknown
   one, its outputs are unknown except for declarations of the model. */

static const struct str unknown_op = {"?", 1};

static bool is_refused(const struct graph *g, node_id n) { return str_is(graph_node(g, n)->op, "?"); }

/* Replaces a node that could not be read. */
static bool pass_over(struct reader *r, const Onnx__NodeProto *p, u32 first)
{
    if (!r->all || r->g->node.n > first + 1) return false;
    struct str name = str_of(p->name);
    import_note(r->all, r->a, node_op(r, p), name.n || !p->n_output ? name : str_of(p->output[0]), r->e);
    node_id n = r->g->node.n > first ? first : graph_add_node(r->g, unknown_op, name);
    graph_node(r->g, n)->op = unknown_op;
    return read_edges(r, n, p);
}

static void refuse(struct reader *r, node_id n)
{
    const struct node *nd = graph_node(r->g, n);
    struct str name = nd->name.n || !nd->out.n || !nd->out.v[0] ? nd->name : graph_value(r->g, nd->out.v[0])->name;
    import_note(r->all, r->a, nd->op, name, r->e);
    graph_node(r->g, n)->op = unknown_op;
}

static bool has_known_inputs(const struct graph *g, node_id n)
{
    const struct node *nd = graph_node(g, n);
    for (u32 k = 0; k < nd->in.n; k++)
        if (nd->in.v[k] && (!graph_value(g, nd->in.v[k])->shape.known || !graph_value(g, nd->in.v[k])->dtype)) return false;
    return true;
}

/* Applies the model's declared type and shape to a value. */
static void claim(struct reader *r, value_id v)
{
    struct value *x = graph_value(r->g, v);
    const u64 *known = map_get(&r->claims, x->name);
    if (x->shape.known || !known) return;
    const Onnx__ValueInfoProto *p = (const Onnx__ValueInfoProto *)(uintptr_t)*known;
    const Onnx__TypeProto__Tensor *t = p->type->tensor_type;
    struct shape s = {.known = true, .rank = (u32)t->shape->n_dim};
    for (u32 k = 0; k < s.rank; k++) s.dim[k] = read_dim(r, t->shape->dim[k], x->name, k);
    x->dtype = dtype_from_onnx(t->has_elem_type ? t->elem_type : 0);
    if (x->dtype != DT_NONE && shape_size_ok(r->g->sym, &s, x->dtype)) x->shape = s;
}

static void collect_claims(struct reader *r, Onnx__ValueInfoProto *const *v, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        const Onnx__TypeProto *t = v[k]->type;
        if (t && t->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE && t->tensor_type && t->tensor_type->shape &&
            t->tensor_type->shape->n_dim <= MAX_RANK)
            map_put(&r->claims, str_of(v[k]->name), (u64)(uintptr_t)v[k]);
    }
}

/* Infers as much as possible. */
static bool infer_rest(struct reader *r)
{
    for (node_id n = 1; n < r->g->node.n; n++) {
        if (graph_node(r->g, n)->dead) continue;
        bool is_known = has_known_inputs(r->g, n);
        if (!op_of(r->g, n)) graph_node(r->g, n)->op = unknown_op; /* of sequences: another problem is the reason */
        if (!import_fit_types(r->g, n, r->e)) return false;
        r->all->n_nodes++;
        r->all->n_unchecked += !is_known && !is_refused(r->g, n);
        if (is_known && !is_refused(r->g, n) && !op_infer(r->g, n, r->e)) refuse(r, n);
        for (u32 k = 0; k < graph_node(r->g, n)->out.n; k++)
            if (graph_node(r->g, n)->out.v[k]) claim(r, graph_node(r->g, n)->out.v[k]);
    }
    return true;
}

static bool read_graph(struct reader *r, const Onnx__GraphProto *p)
{
    if (!read_inputs(r, p)) return false;
    if (!r->outer) import_ranges(r->g, p, &r->dims);
    for (size_t k = 0; k < p->n_node; k++) {
        u32 first = r->g->node.n;
        if (!mem_check(r->e, "at node ", str_of(p->node[k]->name))) return false;
        if (!read_node(r, p->node[k]) && !pass_over(r, p->node[k], first)) return false;
    }
    for (size_t k = 0; k < p->n_output; k++) {
        struct str name = str_of(p->output[k]->name);
        if (r->outer && name.n) get_value(r, name); /* may be the outer graph's */
        if (!map_get(&r->made, name)) return invalid(r, "graph output is not produced", name);
        *arr_push(r->a, &r->g->output) = get_value(r, name);
    }
    if (!p->n_output) return err_set(r->e, ERR_INPUT, "graph has no outputs");
    return true;
}

/* ": why, and what helps" of an operator that is not supported deliberately, else "". */
static const char *refused(struct reader *r, struct str op)
{
    static const struct { const char *glob, *why; } table[] = {
#define X(glob, why) {glob, why},
#include "import/onnx_refused.inc"
#undef X
    };
    for (i64 k = 0; k < countof(table); k++)
        if (str_glob(str_of(table[k].glob), op)) return str_fmt(r->a, ": %s", table[k].why).p;
    return "";
}

static bool upgrade(struct reader *r, node_id n)
{
    if (!import_old(r->g, n, r->opset, r->e)) return false;
    const struct node *nd = graph_node(r->g, n);
    const struct op *op = op_find(nd->op);
    if (nd->dead || import_is_sequence_op(nd->op) || import_is_control_op(nd->op)) return true;
    if (!op) return op_unsupported(r->e, r->g, n, "operator is not supported%s", refused(r, nd->op));
    return !op->upgrade || op->upgrade(r->g, n, i64_max(r->opset, UPGRADE_OPSET), r->e);
}

/* Converts all nodes to the form of opset 18. Nodes appended by upgrades have it already. */
static bool upgrade_all(struct reader *r)
{
    u32 n_old = r->g->node.n;
    for (node_id n = 1; n < n_old; n++) {
        if (is_refused(r->g, n) && r->all) continue;
        bool ok = upgrade(r, n);
        if (!ok && !r->all) return false;
        if (!ok) refuse(r, n);
    }
    return true;
}

static bool read_opset(struct reader *r, const Onnx__ModelProto *m)
{
    if (m->n_opset_import) r->opset = MAX_OPSET; /* a model may use other domains only */
    for (size_t k = 0; k < m->n_opset_import; k++)
        if (is_onnx_domain(str_of(m->opset_import[k]->domain))) r->opset = m->opset_import[k]->version;
    if (r->opset >= MIN_OPSET && r->opset <= MAX_OPSET) return true;
    return err_set(r->e, ERR_UNSUPPORTED, "opset %lld is not supported (%d to %d are)", (long long)r->opset, MIN_OPSET,
                   MAX_OPSET);
}

/* Inputs, and outputs with the declared types and shapes. */
static bool read_interface(struct reader *r, const Onnx__GraphProto *p)
{
    if (!read_inputs(r, p)) return false;
    collect_claims(r, p->output, p->n_output);
    for (size_t k = 0; k < p->n_output; k++) {
        value_id v = get_value(r, str_of(p->output[k]->name));
        claim(r, v);
        *arr_push(r->a, &r->g->output) = v;
    }
    return true;
}

static bool onnx_read(const struct import_job *j, struct err *e)
{
    struct import_bodies bodies = {0};
    struct reader r = {.g = j->g, .a = j->g->arena, .beside = j->beside, .all = j->all, .given = j->given, .n_given = j->n_given, .bodies = &bodies, .e = e};
    const ProtobufCMessageDescriptor *d = &onnx__model_proto__descriptor;
    Onnx__ModelProto *m = j->file ? io_onnx_read(d, r.a, j->file, e) : io_onnx_unpack(d, r.a, j->bytes, e);
    if (!m) return false;
    if (!m->graph) return err_set(e, ERR_INPUT, "model without a graph");
    if (!import_inline(m, r.a, e) || !import_flex(m->graph, r.a, e)) return false;
    map_init(&r.value, r.a);
    map_init(&r.made, r.a);
    map_init(&r.dims, r.a);
    map_init(&r.claims, r.a);
    if (j->interface_only) return read_interface(&r, m->graph);
    if (!read_opset(&r, m) || !read_graph(&r, m->graph) || !graph_verify(r.g, e) || !graph_sort(r.g, e)) return false;
    if (!r.all) return upgrade_all(&r) && import_control(r.g, &bodies, e);
    collect_claims(&r, m->graph->value_info, m->graph->n_value_info);
    collect_claims(&r, m->graph->output, m->graph->n_output);
    upgrade_all(&r);
    if (!import_sequences(r.g, e)) import_note(r.all, r.a, S(""), S(""), e);
    return graph_sort(r.g, e) && infer_rest(&r);
}

/* A ModelProto starts with a small varint ir_version, or (in another order) with any of its fields.
   Only the key and the version are examined: text formats do not start with such bytes. */
static bool onnx_match(struct str bytes)
{
    return bytes.n > 2 && bytes.p[0] == 0x08 && bytes.p[1] > 0 && bytes.p[1] < 32;
}

const struct importer import_onnx = {.name = "onnx", .suffix = ".onnx", .match = onnx_match, .read = onnx_read, .reads_files = true};
