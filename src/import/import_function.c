// SPDX-License-Identifier: Apache-2.0
//
// Functions of ONNX models, inlined: nodes that call one are replaced by its nodes, in bodies of control flow, too, before anything
// else is read. Names inside a function get a prefix of the call's own; its inputs and outputs are the call's. Attributes that
// refer to the function's (ref_attr_name) become the call's, else the function's default, else they are omitted. A function of the
// model has precedence over an operator of the same name. Recursive functions, and expansions out of proportion, are rejected.
//
// Attribute defaults and overloads are younger than the ONNX of some systems: they are read from the fields that protobuf-c does not know.
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"

enum { MAX_COST = 1 << 21 /* nodes with their edges and attributes */, MAX_PREFIX = 256, MAX_CALLS = 100 /* within each other */ };
enum { FIELD_DEFAULTS = 11, FIELD_OVERLOAD = 13, FIELD_NODE_OVERLOAD = 8 };

struct function {
    const Onnx__FunctionProto *p;
    struct { Onnx__AttributeProto **v; u32 n, cap; } defaults;
    bool is_open; /* is being inlined */
};

struct nodes { Onnx__NodeProto **v; u32 n, cap; };

struct inliner {
    struct arena *a;
    struct map index; /* key of a function -> its number + 1 */
    struct function *fn;
    i64 cost;
    u32 n_calls, depth;
    struct err *e;
};

/* The call whose function's nodes are being copied; NULL: the model's own graph. */
struct scope {
    struct str prefix;
    struct map names; /* of the function's inputs and outputs -> struct str * of the call's */
    const Onnx__NodeProto *call;
    const struct function *fn;
};

/* Fields that protobuf-c does not know. */

/* Content of a bytes field; its length precedes it. */
static struct str field_bytes(const ProtobufCMessageUnknownField *f)
{
    struct str s = {(const char *)f->data, (i64)f->len};
    u64 n = 0;
    i64 at = 0;
    for (int shift = 0; at < s.n && shift < 63; shift += 7) {
        u8 c = (u8)s.p[at++];
        n |= (u64)(c & 0x7f) << shift;
        if (!(c & 0x80)) break;
    }
    return n <= (u64)(s.n - at) ? str_sub(s, at, at + (i64)n) : (struct str){0};
}

static bool is_field(const ProtobufCMessage *m, unsigned i, u32 tag)
{
    return m->unknown_fields[i].tag == tag && m->unknown_fields[i].wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
}

static struct str unknown_text(const ProtobufCMessage *m, u32 tag)
{
    for (unsigned i = 0; i < m->n_unknown_fields; i++)
        if (is_field(m, i, tag)) return field_bytes(&m->unknown_fields[i]);
    return (struct str){0};
}

static bool read_defaults(struct inliner *x, struct function *f)
{
    const ProtobufCMessage *m = &f->p->base;
    for (unsigned i = 0; i < m->n_unknown_fields; i++) {
        if (!is_field(m, i, FIELD_DEFAULTS)) continue;
        void *p = io_onnx_unpack(&onnx__attribute_proto__descriptor, x->a, field_bytes(&m->unknown_fields[i]), x->e);
        if (!p) return err_prefix(x->e, "function '%s'", f->p->name ? f->p->name : "");
        *arr_push(x->a, &f->defaults) = p;
    }
    return true;
}

/* The functions by name. */

static struct str key_of(struct inliner *x, const char *domain, const char *name, struct str overload)
{
    struct str d = str_of(domain);
    if (str_is(d, "ai.onnx")) d = S("");
    return str_fmt(x->a, "%.*s::%.*s::%.*s", STR_ARG(d), STR_ARG(str_of(name)), STR_ARG(overload));
}

static struct function *find_function(struct inliner *x, const Onnx__NodeProto *p)
{
    const u64 *at = map_get(&x->index, key_of(x, p->domain, p->op_type, unknown_text(&p->base, FIELD_NODE_OVERLOAD)));
    return at ? &x->fn[*at - 1] : NULL;
}

static bool collect_functions(struct inliner *x, const Onnx__ModelProto *m)
{
    map_init(&x->index, x->a);
    x->fn = arena_array(x->a, struct function, (i64)m->n_functions);
    for (size_t i = 0; i < m->n_functions; i++) {
        x->fn[i].p = m->functions[i];
        struct str key = key_of(x, x->fn[i].p->domain, x->fn[i].p->name, unknown_text(&x->fn[i].p->base, FIELD_OVERLOAD));
        if (map_get(&x->index, key)) return err_set(x->e, ERR_INPUT, "function '%.*s' is defined twice", STR_ARG(key));
        map_put(&x->index, key, i + 1);
        if (!read_defaults(x, &x->fn[i])) return false;
    }
    return true;
}

/* Copies under the names and attributes of a call. */

static bool pay(struct inliner *x, u64 cost)
{
    if (cost > MAX_COST || (x->cost += (i64)cost) > MAX_COST)
        return err_set(x->e, ERR_UNSUPPORTED, "functions of the model expand to too many nodes");
    return true;
}

static char *renamed(struct inliner *x, const struct scope *s, char *name)
{
    struct str n = str_of(name);
    if (!s || !n.n) return name;
    const u64 *outer = map_get(&s->names, n);
    struct str to = outer ? *(const struct str *)(uintptr_t)*outer : str_fmt(x->a, "%.*s%.*s", STR_ARG(s->prefix), STR_ARG(n));
    return (char *)str_z(x->a, to);
}

static char **renamed_all(struct inliner *x, const struct scope *s, char **names, size_t n)
{
    char **to = arena_array(x->a, char *, (i64)n);
    for (size_t i = 0; i < n; i++) to[i] = renamed(x, s, names[i]);
    return to;
}

static const Onnx__AttributeProto *find_attribute(Onnx__AttributeProto *const *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (v[i]->name && !strcmp(v[i]->name, name)) return v[i];
    return NULL;
}

/* The value of an attribute that refers to one of the function's; NULL: none. */
static const Onnx__AttributeProto *resolve(const struct scope *s, const Onnx__AttributeProto *p)
{
    if (!p->ref_attr_name || !p->ref_attr_name[0] || !s) return p;
    const Onnx__AttributeProto *given = find_attribute(s->call->attribute, s->call->n_attribute, p->ref_attr_name);
    return given ? given : find_attribute(s->fn->defaults.v, s->fn->defaults.n, p->ref_attr_name);
}

static bool copy_nodes(struct inliner *x, struct scope *s, Onnx__NodeProto *const *v, size_t n, struct nodes *to);

static Onnx__TensorProto *renamed_tensor(struct inliner *x, const struct scope *s, const Onnx__TensorProto *p)
{
    Onnx__TensorProto *t = arena_new(x->a, Onnx__TensorProto);
    *t = *p;
    t->name = renamed(x, s, p->name);
    return t;
}

static Onnx__ValueInfoProto **renamed_values(struct inliner *x, const struct scope *s, Onnx__ValueInfoProto *const *v, size_t n)
{
    Onnx__ValueInfoProto **to = arena_array(x->a, Onnx__ValueInfoProto *, (i64)n);
    for (size_t i = 0; i < n; i++) {
        to[i] = arena_new(x->a, Onnx__ValueInfoProto);
        *to[i] = *v[i];
        to[i]->name = renamed(x, s, v[i]->name);
    }
    return to;
}

/* A body of control flow. */
static Onnx__GraphProto *copy_graph(struct inliner *x, struct scope *s, const Onnx__GraphProto *p)
{
    Onnx__GraphProto *g = arena_new(x->a, Onnx__GraphProto);
    struct nodes nodes = {0};
    *g = *p;
    if (!pay(x, p->n_input + p->n_output + p->n_initializer + p->n_sparse_initializer) || !copy_nodes(x, s, p->node, p->n_node, &nodes))
        return NULL;
    g->node = nodes.v, g->n_node = nodes.n;
    g->input = renamed_values(x, s, p->input, p->n_input);
    g->output = renamed_values(x, s, p->output, p->n_output);
    g->n_value_info = 0;
    g->initializer = arena_array(x->a, Onnx__TensorProto *, (i64)p->n_initializer);
    for (size_t i = 0; i < p->n_initializer; i++) g->initializer[i] = renamed_tensor(x, s, p->initializer[i]);
    g->sparse_initializer = arena_array(x->a, Onnx__SparseTensorProto *, (i64)p->n_sparse_initializer);
    for (size_t i = 0; i < p->n_sparse_initializer; i++) {
        g->sparse_initializer[i] = arena_new(x->a, Onnx__SparseTensorProto);
        *g->sparse_initializer[i] = *p->sparse_initializer[i];
        if (p->sparse_initializer[i]->values) g->sparse_initializer[i]->values = renamed_tensor(x, s, p->sparse_initializer[i]->values);
    }
    return g;
}

static bool copy_attributes(struct inliner *x, struct scope *s, Onnx__NodeProto *to, const Onnx__NodeProto *p)
{
    to->attribute = arena_array(x->a, Onnx__AttributeProto *, (i64)p->n_attribute);
    to->n_attribute = 0;
    for (size_t i = 0; i < p->n_attribute; i++) {
        const Onnx__AttributeProto *from = resolve(s, p->attribute[i]);
        if (!from) continue;
        Onnx__AttributeProto *a = arena_new(x->a, Onnx__AttributeProto);
        *a = *from;
        a->name = p->attribute[i]->name;
        /* Attributes from a call have their names already. */
        if (a->g && !(a->g = copy_graph(x, from == p->attribute[i] ? s : NULL, a->g))) return false;
        to->attribute[to->n_attribute++] = a;
    }
    return true;
}

/* Calls. */

static struct str call_name(const Onnx__NodeProto *call) { return str_of(call->name && call->name[0] ? call->name : call->op_type); }

static struct str *own_str(struct inliner *x, struct str s)
{
    struct str *p = arena_new(x->a, struct str);
    *p = s;
    return p;
}

static void name_value(struct inliner *x, struct scope *s, const char *inner, struct str outer)
{
    map_put(&s->names, str_of(inner), (u64)(uintptr_t)own_str(x, outer));
}

static void add_identity(struct inliner *x, char *from, char *to, struct nodes *nodes)
{
    Onnx__NodeProto *p = arena_new(x->a, Onnx__NodeProto);
    onnx__node_proto__init(p);
    p->op_type = (char *)"Identity";
    p->n_input = p->n_output = 1;
    p->input = arena_array(x->a, char *, 1), p->output = arena_array(x->a, char *, 1);
    p->input[0] = from, p->output[0] = to;
    *arr_push(x->a, nodes) = p;
}

/* An output that is an input as well, or a second time an output, is copied. */
static void bind_names(struct inliner *x, struct scope *s, struct nodes *to)
{
    const Onnx__NodeProto *call = s->call;
    const Onnx__FunctionProto *f = s->fn->p;
    for (size_t i = 0; i < f->n_input; i++) name_value(x, s, f->input[i], i < call->n_input ? str_of(call->input[i]) : S(""));
    for (size_t i = 0; i < f->n_output && i < call->n_output; i++) {
        if (!call->output[i] || !call->output[i][0]) continue;
        if (map_get(&s->names, str_of(f->output[i]))) add_identity(x, renamed(x, s, f->output[i]), call->output[i], to);
        else name_value(x, s, f->output[i], str_of(call->output[i]));
    }
}

static bool inline_call(struct inliner *x, struct function *f, const Onnx__NodeProto *call, struct nodes *to)
{
    struct str name = call_name(call);
    struct scope s = {.call = call, .fn = f};
    if (f->is_open) return err_set(x->e, ERR_UNSUPPORTED, "function '%s' of the model calls itself", f->p->name ? f->p->name : "");
    if (x->depth >= MAX_CALLS) return err_set(x->e, ERR_UNSUPPORTED, "more than %d calls of functions within each other", MAX_CALLS);
    if (call->n_input > f->p->n_input || call->n_output > f->p->n_output)
        return err_set(x->e, ERR_INPUT, "node '%.*s' has more inputs or outputs than its function '%s'", STR_ARG(name), f->p->name ? f->p->name : "");
    if (name.n > MAX_PREFIX) name = S("call");
    map_init(&s.names, x->a);
    s.prefix = str_fmt(x->a, "%.*s#%u/", STR_ARG(name), ++x->n_calls);
    bind_names(x, &s, to);
    f->is_open = true, x->depth++;
    bool ok = copy_nodes(x, &s, f->p->node, f->p->n_node, to);
    f->is_open = false, x->depth--;
    return ok;
}

static bool copy_nodes(struct inliner *x, struct scope *s, Onnx__NodeProto *const *v, size_t n, struct nodes *to)
{
    for (size_t i = 0; i < n; i++) {
        Onnx__NodeProto *p = arena_new(x->a, Onnx__NodeProto);
        *p = *v[i];
        if (!pay(x, 1 + (u64)p->n_input + p->n_output + p->n_attribute) || !copy_attributes(x, s, p, v[i])) return false;
        p->input = renamed_all(x, s, p->input, p->n_input);
        p->output = renamed_all(x, s, p->output, p->n_output);
        if (s && p->name && p->name[0]) p->name = (char *)str_z(x->a, str_fmt(x->a, "%.*s%s", STR_ARG(s->prefix), p->name));
        struct function *f = find_function(x, p);
        if (!f) *arr_push(x->a, to) = p;
        else if (!inline_call(x, f, p, to)) return false;
    }
    return true;
}

bool import_inline(struct Onnx__ModelProto *m, struct arena *a, struct err *e)
{
    struct inliner x = {.a = a, .e = e};
    struct nodes nodes = {0};
    if (!m->n_functions || !m->graph) return true;
    if (!collect_functions(&x, m) || !copy_nodes(&x, NULL, m->graph->node, m->graph->n_node, &nodes)) return false;
    m->graph->node = nodes.v;
    m->graph->n_node = nodes.n;
    return true;
}
