// SPDX-License-Identifier: Apache-2.0
//
// Graph to ONNX ModelProto, opset 18 or that of its newest operator, or an older one (export_opset.c). Operators "quern::Name" go to the domain ai.quern,
// "domain::Name" to theirs; everything else is ai.onnx, the graph's own vocabulary. Constant sizes become dim_value, all
// others their text as dim_param, so a reader finds the same variables. Constants are initializers with raw content.
//
// The protobuf consists of structs that refer to the graph's memory; only packing copies the weights. Those that a protobuf cannot hold are
// external data: a file beside the model, written from the graph's memory.
#include <string.h>

#include <onnx.pb-c.h>

#include "export/export.h"
#include "io/io.h"
#include "op/op.h"

enum { IR_VERSION = 8, LEAST_OUTSIDE = 1 << 10, ALIGN_OUTSIDE = 64, MOST_INSIDE = INT32_MAX - (64 << 20) };

struct writer {
    const struct graph *g;
    struct arena a;      /* of the protobuf */
    u8 *is_const_used;   /* per value */
    const char *beside;  /* name of the file for external data; NULL: none */
    i64 most;            /* bytes of constants without it */
    i64 opset;           /* to be lowered to; 0: that of the newest operator */
    struct { struct str *v; u32 n, cap; } outside; /* content of that file */
    i64 outside_n;       /* bytes */
    const struct export_onnx_notes *notes; /* NULL: none */
    struct err *e;
};

static char *own_z(struct writer *w, struct str s) { return (char *)(uintptr_t)str_z(&w->a, s); }

static char *value_z(struct writer *w, value_id v)
{
    return own_z(w, v ? graph_value(w->g, v)->name : (struct str){0});
}

static bool bad_value(struct writer *w, value_id v, const char *what)
{
    return err_set(w->e, ERR_FAILED, "cannot export value '%.*s': %s", STR_ARG(graph_value(w->g, v)->name), what);
}

static ProtobufCBinaryData bytes_of(struct str s)
{
    return (ProtobufCBinaryData){.len = (size_t)s.n, .data = (u8 *)(uintptr_t)s.p};
}

static Onnx__TensorShapeProto__Dimension *make_dim(struct writer *w, sym s)
{
    Onnx__TensorShapeProto__Dimension *d = arena_new(&w->a, Onnx__TensorShapeProto__Dimension);
    i64 v;
    onnx__tensor_shape_proto__dimension__init(d);
    if (sym_is_const(w->g->sym, s, &v)) {
        d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        d->dim_value = v;
        return d;
    }
    const struct sym_node *n = &w->g->sym->node.v[s];
    struct buf b = {0};
    if (n->op == SYM_VAR) buf_str(&b, w->g->sym->var.v[n->a]);
    else sym_print(&b, w->g->sym, s);
    d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    d->dim_param = own_z(w, buf_view(&b));
    buf_release(&b);
    return d;
}

/* Name, dtype and shape of a value of the interface. */
static Onnx__ValueInfoProto *make_info(struct writer *w, value_id id)
{
    const struct value *v = graph_value(w->g, id);
    Onnx__ValueInfoProto *p = arena_new(&w->a, Onnx__ValueInfoProto);
    Onnx__TypeProto *type = arena_new(&w->a, Onnx__TypeProto);
    Onnx__TypeProto__Tensor *t = arena_new(&w->a, Onnx__TypeProto__Tensor);
    Onnx__TensorShapeProto *s = arena_new(&w->a, Onnx__TensorShapeProto);
    onnx__value_info_proto__init(p);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(t);
    onnx__tensor_shape_proto__init(s);
    p->name = value_z(w, id);
    p->type = type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = t;
    t->has_elem_type = 1;
    t->elem_type = dtype_onnx(v->dtype);
    t->shape = s;
    s->n_dim = v->shape.rank;
    s->dim = arena_array(&w->a, Onnx__TensorShapeProto__Dimension *, s->n_dim);
    for (u32 k = 0; k < v->shape.rank; k++) s->dim[k] = make_dim(w, v->shape.dim[k]);
    return p;
}

static bool make_infos(struct writer *w, const struct value_list *list, Onnx__ValueInfoProto ***out, size_t *n)
{
    *n = list->n;
    *out = arena_array(&w->a, Onnx__ValueInfoProto *, list->n);
    for (u32 k = 0; k < list->n; k++) {
        const struct value *v = graph_value(w->g, list->v[k]);
        if (!v->shape.known || v->dtype == DT_NONE) return bad_value(w, list->v[k], "type is not known");
        if (v->layout != LAYOUT_ROWS) return bad_value(w, list->v[k], "layout is not row-major");
        (*out)[k] = make_info(w, list->v[k]);
    }
    return true;
}

/* Attributes. */

static void set_attr_type(Onnx__AttributeProto *p, Onnx__AttributeProto__AttributeType t)
{
    p->has_type = 1;
    p->type = t;
}

static void fill_floats(struct writer *w, Onnx__AttributeProto *p, const struct attr *a)
{
    set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS);
    p->n_floats = (size_t)a->n;
    p->floats = arena_array(&w->a, float, a->n);
    for (i64 k = 0; k < a->n; k++) p->floats[k] = (float)a->floats[k];
}

static void fill_strs(struct writer *w, Onnx__AttributeProto *p, const struct attr *a)
{
    set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS);
    p->n_strings = (size_t)a->n;
    p->strings = arena_array(&w->a, ProtobufCBinaryData, a->n);
    for (i64 k = 0; k < a->n; k++) p->strings[k] = bytes_of(a->strs[k]);
}

static Onnx__AttributeProto *make_attr(struct writer *w, const struct attr *a)
{
    Onnx__AttributeProto *p = arena_new(&w->a, Onnx__AttributeProto);
    onnx__attribute_proto__init(p);
    p->name = own_z(w, a->name);
    switch (a->kind) {
    case ATTR_INT:
        set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
        p->has_i = 1, p->i = a->i;
        return p;
    case ATTR_FLOAT:
        set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
        p->has_f = 1, p->f = (float)a->f;
        return p;
    case ATTR_STR:
        set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
        p->has_s = 1, p->s = bytes_of(a->s);
        return p;
    case ATTR_INTS:
        set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
        p->n_ints = (size_t)a->n, p->ints = a->ints;
        return p;
    case ATTR_FLOATS: fill_floats(w, p, a); return p;
    case ATTR_STRS: fill_strs(w, p, a); return p;
    case ATTR_TENSOR:
        set_attr_type(p, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
        p->t = arena_new(&w->a, Onnx__TensorProto);
        io_onnx_fill(p->t, a->t, &w->a);
        return p;
    case ATTR_GRAPH: break; /* rejected before */
    }
    return p;
}

/* Nodes and constants. */

static char **make_names(struct writer *w, const value_id *v, u32 n)
{
    char **z = arena_array(&w->a, char *, n);
    for (u32 k = 0; k < n; k++) {
        z[k] = value_z(w, v[k]);
        if (v[k] && graph_value(w->g, v[k])->is_const) w->is_const_used[v[k]] = 1;
    }
    return z;
}

/* "domain" of "domain::Name"; empty: ai.onnx */
static struct str op_domain(struct str op)
{
    for (i64 i = 0; i + 1 < op.n; i++)
        if (op.p[i] == ':' && op.p[i + 1] == ':') return str_sub(op, 0, i);
    return (struct str){0};
}

/* An attribute that inference makes explicit, but older opsets lack: dilations of AveragePool, since opset 19, if they are 1. */
static bool is_default(const struct node *n, const struct attr *a)
{
    bool ones = str_is(n->op, "AveragePool") && str_is(a->name, "dilations") && a->kind == ATTR_INTS;
    for (i64 i = 0; ones && i < a->n; i++) ones = a->ints[i] == 1;
    return ones;
}

static char *note_of(const struct writer *w, const struct node *n)
{
    const value_id v = w->notes ? node_first_out(n) : 0;
    const u64 *text = v ? map_get(&w->notes->node, graph_value(w->g, v)->name) : NULL;
    return text ? (char *)(uintptr_t)*text : (char *)protobuf_c_empty_string;
}

static Onnx__NodeProto *make_node(struct writer *w, const struct node *n)
{
    Onnx__NodeProto *p = arena_new(&w->a, Onnx__NodeProto);
    onnx__node_proto__init(p);
    struct str domain = op_domain(n->op);
    if (domain.n) p->domain = own_z(w, str_is(domain, "quern") ? S("ai.quern") : domain);
    p->op_type = own_z(w, domain.n ? str_sub(n->op, domain.n + 2, n->op.n) : n->op);
    p->name = own_z(w, n->name);
    p->doc_string = note_of(w, n);
    p->n_input = n->in.n;
    p->input = make_names(w, n->in.v, n->in.n);
    p->n_output = n->out.n;
    p->output = make_names(w, n->out.v, n->out.n);
    p->attribute = arena_array(&w->a, Onnx__AttributeProto *, n->attr.n);
    for (u32 k = 0; k < n->attr.n; k++)
        if (!is_default(n, &n->attr.v[k])) p->attribute[p->n_attribute++] = make_attr(w, &n->attr.v[k]);
    return p;
}

/* Nodes with bodies. */
static bool check_nodes(const struct graph *g, struct err *e)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        for (u32 k = 0; !x->dead && k < x->attr.n; k++)
            if (x->attr.v[k].kind == ATTR_GRAPH)
                return err_set(e, ERR_UNSUPPORTED, "%.*s '%.*s': loops and branches that are decided at run time cannot be exported to ONNX; fix the sizes that decide them (--assume, --input-shape)",
                               STR_ARG(x->op), STR_ARG(x->name.n ? x->name : graph_value(g, node_first_out(x))->name));
    }
    return true;
}

static Onnx__StringStringEntryProto *make_entry(struct writer *w, const char *key, struct str value)
{
    Onnx__StringStringEntryProto *p = arena_new(&w->a, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(p);
    p->key = own_z(w, str_of(key)), p->value = own_z(w, value);
    return p;
}

/* Moves the content to the file beside the model. */
static void put_outside(struct writer *w, Onnx__TensorProto *p)
{
    static const char zeros[ALIGN_OUTSIDE];
    struct str bytes = {(const char *)p->raw_data.data, (i64)p->raw_data.len};
    i64 gap = round_up(w->outside_n, ALIGN_OUTSIDE) - w->outside_n;
    if (gap) *arr_push(&w->a, &w->outside) = (struct str){zeros, gap};
    *arr_push(&w->a, &w->outside) = bytes;
    p->has_raw_data = 0, p->raw_data.len = 0, p->raw_data.data = NULL;
    p->has_data_location = 1, p->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    p->external_data = arena_array(&w->a, Onnx__StringStringEntryProto *, 3);
    p->external_data[p->n_external_data++] = make_entry(w, "location", str_of(w->beside));
    p->external_data[p->n_external_data++] = make_entry(w, "offset", str_fmt(&w->a, "%lld", (long long)(w->outside_n + gap)));
    p->external_data[p->n_external_data++] = make_entry(w, "length", str_fmt(&w->a, "%lld", (long long)bytes.n));
    w->outside_n += gap + bytes.n;
}

static i64 const_bytes(const struct writer *w)
{
    i64 n = 0;
    for (value_id v = 1; v < w->g->value.n; v++)
        if (w->is_const_used[v] && graph_value(w->g, v)->data) n += tensor_bytes(graph_value(w->g, v)->data);
    return n;
}

static bool make_consts(struct writer *w, Onnx__GraphProto *p)
{
    for (u32 k = 0; k < w->g->output.n; k++)
        if (graph_value(w->g, w->g->output.v[k])->is_const) w->is_const_used[w->g->output.v[k]] = 1;
    bool is_split = w->beside && const_bytes(w) > w->most;
    p->initializer = arena_array(&w->a, Onnx__TensorProto *, w->g->value.n);
    for (value_id v = 1; v < w->g->value.n; v++) {
        if (!w->is_const_used[v]) continue;
        const struct tensor *t = graph_value(w->g, v)->data;
        if (!t) return bad_value(w, v, "content of the constant is not here");
        Onnx__TensorProto *tp = arena_new(&w->a, Onnx__TensorProto);
        io_onnx_fill(tp, t, &w->a);
        tp->name = value_z(w, v);
        if (is_split && tp->raw_data.len >= LEAST_OUTSIDE) put_outside(w, tp);
        p->initializer[p->n_initializer++] = tp;
    }
    return true;
}

static Onnx__OperatorSetIdProto *make_opset(struct writer *w, struct str domain, i64 version)
{
    Onnx__OperatorSetIdProto *p = arena_new(&w->a, Onnx__OperatorSetIdProto);
    onnx__operator_set_id_proto__init(p);
    p->domain = own_z(w, domain);
    p->has_version = 1;
    p->version = version;
    return p;
}

/* First versions of operators and of the format that support elements of a type. */
struct since {
    i64 opset, ir;
};

static struct since type_since(enum dtype t)
{
    if (!dtype_is_small(t)) return (struct since){1, IR_VERSION};
    switch (dtype_bits(t)) {
    case 2: return (struct since){25, 13};
    case 4: return dtype_is_float(t) ? (struct since){23, 11} : (struct since){21, 10};
    case 6: return (struct since){28, 14};
    default: return t == DT_F8E8M0 ? (struct since){24, 12} : (struct since){19, 9};
    }
}

static i64 types_opset(const struct writer *w, const value_id *v, u32 n)
{
    i64 opset = 1;
    for (u32 i = 0; i < n; i++)
        if (v[i]) opset = i64_max(opset, type_since(graph_value(w->g, v[i])->dtype).opset);
    return opset;
}

/* Of the attributes of AveragePool, Cast, QuantizeLinear and DequantizeLinear. */
static i64 attrs_opset(const struct node *n)
{
    if (op_domain(n->op).n) return 1;
    if (str_is(n->op, "AveragePool")) return node_attr(n, "dilations") && !is_default(n, node_attr(n, "dilations")) ? 19 : 1;
    if (node_attr(n, "round_mode")) return 24;
    if (node_attr(n, "precision") || (node_attr(n, "output_dtype") && str_is(n->op, "DequantizeLinear"))) return 23;
    if (node_attr(n, "block_size") || node_attr(n, "output_dtype")) return 21;
    return node_attr(n, "saturate") ? 19 : 1;
}

/* The opsets, first to last, with these semantics of a node:
   the vocabulary is that of opset 18 plus later operators. */
static void node_opsets(const struct writer *w, const struct node *n, i64 *first, i64 *last)
{
    static const struct {
        const char *op;
        i64 first, last;
    } limits[] = {{"GridSample", 1, 19}, /* names of modes */
                  {"DFT", 1, 19},        /* the axis */
                  {"GroupNormalization", 1, 20}};
    i64 size;
    const struct op_onnx *known = op_onnx_find(n->op);
    *first = known ? known->first : 1, *last = 99;
    for (i64 i = 0; i < countof(limits); i++)
        if (str_is(n->op, limits[i].op)) *first = i64_max(*first, limits[i].first), *last = limits[i].last;
    *first = i64_max(*first, i64_max(types_opset(w, n->in.v, n->in.n), types_opset(w, n->out.v, n->out.n)));
    *first = i64_max(*first, attrs_opset(n));
    if (str_is(n->op, "GroupNormalization") && n->in.n > 1 && n->in.v[1] &&
        sym_is_const(w->g->sym, graph_value(w->g, n->in.v[1])->shape.dim[0], &size) &&
        size != attr_int(n, "num_groups", 0))
        *first = i64_max(*first, 21), *last = 99; /* scaled per channel */
}

static bool choose_opset(const struct writer *w, i64 *opset)
{
    i64 newest = EXPORT_OPSET, oldest = 99, first, last;
    *opset = w->opset;
    if (w->opset) return true; /* lowered to it */
    for (node_id n = 1; n < w->g->node.n; n++) {
        const struct node *nd = graph_node(w->g, n);
        if (nd->dead) continue;
        node_opsets(w, nd, &first, &last);
        newest = i64_max(newest, first), oldest = i64_min(oldest, last);
    }
    *opset = newest;
    return newest <= oldest ||
           err_set(w->e, ERR_UNSUPPORTED,
                   "operators of opset %lld and others in their form of opset %lld in one graph",
                   (long long)newest, (long long)oldest);
}

/* Every other domain once, in the version in which its operators have the form used here. */
static void add_domains(struct writer *w, Onnx__ModelProto *m)
{
    for (node_id n = 1; n < w->g->node.n; n++) {
        struct str domain = op_domain(graph_node(w->g, n)->op);
        if (graph_node(w->g, n)->dead || !domain.n || str_is(domain, "quern")) continue;
        size_t k = 0;
        while (k < m->n_opset_import && !str_is(domain, m->opset_import[k]->domain)) k++;
        if (k == m->n_opset_import) m->opset_import[m->n_opset_import++] = make_opset(w, domain, 1);
        if (!str_is(domain, "ai.onnx.ml")) continue;
        i64 version = str_is(graph_node(w->g, n)->op, "ai.onnx.ml::TreeEnsemble") ? 5 : 4;
        m->opset_import[k]->version = i64_max(m->opset_import[k]->version, version);
    }
}

/* Of the release of ONNX that had the opset first. */
static i64 format_of(i64 opset) { return opset < 15 ? 7 : IR_VERSION; }

static void make_head(struct writer *w, Onnx__ModelProto *m, i64 opset)
{
    onnx__model_proto__init(m);
    m->has_ir_version = 1;
    i64 ir = format_of(opset);
    for (value_id v = 1; v < w->g->value.n; v++) ir = i64_max(ir, type_since(graph_value(w->g, v)->dtype).ir);
    m->ir_version = ir;
    m->producer_name = own_z(w, S("quern"));
    m->opset_import = arena_array(&w->a, Onnx__OperatorSetIdProto *, w->g->node.n + 2);
    m->opset_import[m->n_opset_import++] = make_opset(w, S(""), opset);
    if (!w->opset) m->opset_import[m->n_opset_import++] = make_opset(w, S("ai.quern"), 1);
    add_domains(w, m);
}

static bool pack_model(struct writer *w, const Onnx__ModelProto *m, struct buf *out)
{
    size_t n = onnx__model_proto__get_packed_size(m);
    if (n > INT32_MAX) return err_set(w->e, ERR_FAILED, "model larger than the 2 GiB an ONNX file may have");
    u8 *bytes = mem_aligned((i64)n);
    if (!bytes) return err_set(w->e, ERR_SYSTEM, "not enough memory for the model: %lld bytes", (long long)n);
    onnx__model_proto__pack(m, bytes);
    buf_put(out, bytes, (i64)n);
    mem_free(bytes);
    if (out->failed && mem_check(w->e, "writing the model", S(""))) err_set(w->e, ERR_FAILED, "model too large");
    return !out->failed;
}

/* Types of the values within, and properties of the model. */
static bool add_notes(struct writer *w, Onnx__ModelProto *m)
{
    struct value_list inner = {0};
    const struct map *all = &w->notes->property;
    for (node_id n = 1; n < w->g->node.n; n++)
        for (u32 k = 0; k < graph_node(w->g, n)->out.n; k++) {
            const value_id v = graph_node(w->g, n)->out.v[k];
            if (v && !graph_node(w->g, n)->dead && !graph_is_output(w->g, v)) *arr_push(&w->a, &inner) = v;
        }
    m->metadata_props = arena_array(&w->a, Onnx__StringStringEntryProto *, all->n + 1);
    for (u32 k = 0; k < all->n; k++)
        m->metadata_props[m->n_metadata_props++] = make_entry(w, str_z(&w->a, all->v[k].key), str_of((const char *)(uintptr_t)all->v[k].val));
    return make_infos(w, &inner, &m->graph->value_info, &m->graph->n_value_info);
}

static bool write_model(struct writer *w, struct buf *out)
{
    Onnx__ModelProto m;
    Onnx__GraphProto p;
    i64 opset;
    if (!choose_opset(w, &opset)) return false;
    make_head(w, &m, opset);
    onnx__graph_proto__init(&p);
    p.name = own_z(w, S("network"));
    m.graph = &p;
    w->is_const_used = arena_array(&w->a, u8, w->g->value.n);
    p.node = arena_array(&w->a, Onnx__NodeProto *, w->g->node.n);
    for (node_id n = 1; n < w->g->node.n; n++)
        if (!graph_node(w->g, n)->dead) p.node[p.n_node++] = make_node(w, graph_node(w->g, n));
    return make_infos(w, &w->g->input, &p.input, &p.n_input) && make_infos(w, &w->g->output, &p.output, &p.n_output) &&
           make_consts(w, &p) &&
           (!w->notes || add_notes(w, &m)) && pack_model(w, &m, out);
}

/* Data-dependent sizes have no form in ONNX; importers create them again. */
static bool without_made(struct graph *to, const struct graph *g, struct arena *a, struct err *e)
{
    graph_clone(to, g, a);
    to->made.n = 0;
    for (node_id n = 1; n < to->node.n; n++)
        if (!op_domain(graph_node(to, n)->op).n) attr_remove(to, n, "made_size");
    return graph_sort(to, e);
}

/* Whether its axes are an attribute, as models of older opsets have them: an input in opset 18. */
static bool has_old_axes(const struct node *x)
{
    const struct attr *a = node_attr(x, "axes");
    bool has = str_starts(x->op, S("Reduce")) || str_is(x->op, "Squeeze") || str_is(x->op, "Unsqueeze");
    return has && !x->dead && a && a->kind == ATTR_INTS && x->in.n == 1;
}

static bool any_old_axes(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (has_old_axes(graph_node(g, n))) return true;
    return false;
}

static void with_axes(struct graph *to, const struct graph *g, struct arena *a)
{
    graph_clone(to, g, a);
    for (node_id n = 1; n < to->node.n; n++) {
        if (!has_old_axes(graph_node(to, n))) continue;
        const struct attr *axes = node_attr(graph_node(to, n), "axes");
        node_add_in(to, n, op_const_i(to, DT_I64, axes->ints, axes->n));
        attr_remove(to, n, "axes");
    }
}

/* The model without its external data, whose pieces are in w; released by the caller. */
static bool write_bytes(struct writer *w, struct buf *out)
{
    struct graph *plain = arena_new(&w->a, struct graph), *newer = arena_new(&w->a, struct graph), *older = arena_new(&w->a, struct graph);
    bool ok = check_nodes(w->g, w->e);
    if (ok && any_old_axes(w->g)) with_axes(newer, w->g, &w->a), w->g = newer;
    if (ok && w->opset) ok = export_opset_lower(older, w->g, w->opset, &w->a, w->e), w->g = older;
    if (ok && w->g->made.n) ok = without_made(plain, w->g, &w->a, w->e), w->g = plain;
    return ok && write_model(w, out);
}

static bool to_bytes(struct writer *w, struct buf *out)
{
    bool ok = write_bytes(w, out);
    arena_release(&w->a);
    return ok;
}

bool export_onnx_bytes(const struct graph *g, struct buf *out, struct err *e)
{
    return to_bytes(&(struct writer){.g = g, .e = e}, out);
}

bool export_onnx_bytes_at(const struct graph *g, i64 opset, struct buf *out, struct err *e)
{
    return to_bytes(&(struct writer){.g = g, .opset = opset, .e = e}, out);
}

static bool to_file(struct writer *w, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct buf b = {0};
    if (strcmp(path, "-")) w->beside = str_fmt(&w->a, "%s.data", slash ? slash + 1 : path).p; /* standard output has no file beside it */
    bool ok = write_bytes(w, &b);
    if (ok && w->outside.n) ok = os_write_pieces(str_fmt(&w->a, "%s.data", path).p, w->outside.v, w->outside.n, w->e);
    ok = ok && os_write(path, b.p, b.n, w->e);
    buf_release(&b);
    arena_release(&w->a);
    return ok;
}

bool export_onnx_split(const struct graph *g, const char *path, i64 most, struct err *e)
{
    return to_file(&(struct writer){.g = g, .most = most, .e = e}, path);
}

bool export_onnx_noted(const struct graph *g, const struct export_onnx_notes *notes, const char *path, struct err *e)
{
    return to_file(&(struct writer){.g = g, .notes = notes, .most = MOST_INSIDE, .e = e}, path);
}

bool export_onnx_graph(const struct graph *g, const char *path, struct err *e) { return export_onnx_split(g, path, MOST_INSIDE, e); }

bool export_onnx_graph_at(const struct graph *g, i64 opset, const char *path, struct err *e)
{
    return to_file(&(struct writer){.g = g, .most = MOST_INSIDE, .opset = opset, .e = e}, path);
}
