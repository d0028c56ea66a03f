// SPDX-License-Identifier: Apache-2.0
//
// What is known of operators and tensors, as fields that every form prints in its own way. Keys and
// their order are fixed: doc/graph.md lists them.
#include "view/view.h"

#include <math.h>

#include "op/op.h"

void view_init(struct view *v, struct arena *a)
{
    if (!v->parts) return;
    v->part_of = arena_array(a, u32, v->x->op.n + 1);
    for (u32 p = 0; p < v->parts->n; p++)
        for (u32 i = 0; i < v->parts->v[p].op.n; i++) v->part_of[v->parts->v[p].op.v[i]] = p;
}

/* Numbers. */

/* The node in a graph with sizes of its own, so that what its expansion requires of them, and adds
   to them, does not concern the network. */
static bool own_graph(struct graph *to, struct symtab *st, const struct graph *g, node_id n,
                      struct arena *a)
{
    struct graph one;
    value_id *back;
    struct value_list out = {0};
    struct buf text = {0};
    struct err e = {0};
    const struct node *x = graph_node(g, n);
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) *arr_push(a, &out) = x->out.v[k];
    graph_extract(&one, g, a, &n, 1, out.v, out.n, &back);
    graph_print(&text, &one, &(struct graph_text_opts){.keys = true});
    symtab_init(st, a);
    const bool ok = !text.failed && graph_parse(to, a, st, buf_view(&text), &e) &&
                    op_infer_all(to, &e) && op_expand_all(to, &e);
    buf_release(&text);
    return ok;
}

static i64 size_of(const struct view *v, struct str name)
{
    for (u32 k = 0; k < v->n_var; k++)
        if (str_eq(v->x->g.sym->var.v[k], name)) return v->var[k];
    return 0;
}

/* Of a node that consists of simpler operators. false: it cannot be expanded alone. */
static bool expanded_flops(double *sum, const struct view *v, node_id n)
{
    struct arena a = {0};
    struct symtab st;
    struct graph own;
    const bool ok = own_graph(&own, &st, &v->x->g, n, &a);
    if (ok) {
        i64 *sizes = arena_array(&a, i64, st.var.n + 1);
        for (u32 k = 0; k < st.var.n; k++) sizes[k] = size_of(v, st.var.v[k]);
        *sum = graph_flops(&own, sizes);
    }
    arena_release(&a);
    return ok;
}

double view_flops(const struct view *v, u32 op)
{
    const struct graph *g = &v->x->g;
    const node_id n = v->x->op.v[op].node;
    const struct op *o = op_of(g, n);
    double sum = 0;
    if (o->props & OP_CALL) return 0;
    if (o->expand && !o->flops && expanded_flops(&sum, v, n)) return sum;
    return op_flops(g, n, v->var);
}

i64 view_bytes(const struct view *v, u32 tensor)
{
    const struct graph *g = &v->x->g;
    const struct value *x = graph_value(g, v->x->tensor.v[tensor].value);
    i64 dim[MAX_RANK], bytes;
    if (!x->shape.known || !shape_eval(g->sym, &x->shape, v->var, dim)) return -1;
    return tensor_size_ok(x->dtype, x->shape.rank, dim, &bytes) ? bytes : -1;
}

/* Fields. */

struct fields {
    struct view_fields *to;
    struct arena *a;
};

static struct view_field *add(struct fields *f, const char *key, enum view_kind kind)
{
    struct view_field *x = arr_push(f->a, f->to);
    x->key = key, x->kind = kind;
    return x;
}

static void add_text(struct fields *f, const char *key, struct str text)
{
    if (text.n) add(f, key, FIELD_TEXT)->text = text;
}

static void add_int(struct fields *f, const char *key, i64 i)
{
    if (i >= 0) add(f, key, FIELD_INT)->i = i;
}

/* Releases b. */
static void add_json(struct fields *f, const char *key, struct buf *b)
{
    add(f, key, FIELD_JSON)->text = str_dup(f->a, buf_view(b));
    buf_release(b);
}

static void put_number(struct buf *b, double x)
{
    if (isfinite(x)) buf_f64(b, x);
    else buf_printf(b, "\"%s\"", x != x ? "nan" : x > 0 ? "inf" : "-inf");
}

static void put_tensor(struct buf *b, const struct tensor *t)
{
    buf_printf(b, "{\"dtype\":\"%s\",\"shape\":[", dtype_name(t->dtype));
    for (u32 d = 0; d < t->rank; d++) buf_printf(b, "%s%lld", d ? "," : "", (long long)t->dim[d]);
    buf_z(b, "]}");
}

static void put_attr(struct buf *b, const struct attr *x)
{
    const bool is_list = x->kind == ATTR_INTS || x->kind == ATTR_FLOATS || x->kind == ATTR_STRS;
    if (is_list) buf_char(b, '[');
    for (i64 i = 0; is_list && i < x->n; i++) {
        if (i) buf_char(b, ',');
        if (x->kind == ATTR_INTS) buf_printf(b, "%lld", (long long)x->ints[i]);
        else if (x->kind == ATTR_FLOATS) put_number(b, x->floats[i]);
        else buf_json_str(b, x->strs[i]);
    }
    if (is_list) buf_char(b, ']');
    else if (x->kind == ATTR_INT) buf_printf(b, "%lld", (long long)x->i);
    else if (x->kind == ATTR_FLOAT) put_number(b, x->f);
    else if (x->kind == ATTR_STR) buf_json_str(b, x->s);
    else if (x->kind == ATTR_TENSOR) put_tensor(b, x->t);
    else buf_printf(b, "{\"operators\":%u}", x->graph->node.n - 1);
}

static void add_attributes(struct fields *f, const struct node *x)
{
    struct buf b = {0};
    buf_char(&b, '{');
    for (u32 k = 0; k < x->attr.n; k++) {
        if (k) buf_char(&b, ',');
        buf_json_str(&b, x->attr.v[k].name);
        buf_char(&b, ':');
        put_attr(&b, &x->attr.v[k]);
    }
    buf_char(&b, '}');
    add_json(f, "attributes", &b);
}

/* In the order of the operator's definition; null: omitted. */
static void add_tensors(struct fields *f, const struct view *v, const char *key, const value_id *id,
                        u32 n)
{
    struct buf b = {0};
    buf_char(&b, '[');
    for (u32 k = 0; k < n; k++) {
        if (k) buf_char(&b, ',');
        if (id[k]) buf_json_str(&b, v->x->tensor.v[v->x->tensor_of[id[k]]].name);
        else buf_z(&b, "null");
    }
    buf_char(&b, ']');
    add_json(f, key, &b);
}

static i64 moved_bytes(const struct view *v, const struct place_op *op)
{
    i64 sum = 0;
    for (u32 i = 0; i < op->in.n + op->out.n; i++) {
        i64 one = view_bytes(v, i < op->in.n ? op->in.v[i] : op->out.v[i - op->in.n]);
        if (one < 0) return -1;
        sum += one;
    }
    return sum;
}

static void add_time(struct fields *f, const struct view *v, u32 op)
{
    const struct view_time *t = v->time ? &v->time[op] : NULL;
    if (!t) return;
    if (isfinite(t->seconds)) add(f, "seconds", FIELD_FLOAT)->f = t->seconds;
    if (t->kernel != UINT32_MAX) add_int(f, "kernel", t->kernel);
    if (t->fused_into != UINT32_MAX) add_text(f, "fused_into", v->x->op.v[t->fused_into].name);
}

void view_op_fields(struct view_fields *to, const struct view *v, u32 k, struct arena *a)
{
    struct fields f = {to, a};
    const struct place_op *op = &v->x->op.v[k];
    const struct node *n = graph_node(&v->x->g, op->node);
    to->n = 0;
    add_text(&f, "kind", S("OpNode"));
    add_text(&f, "name", op->name);
    add_text(&f, "type", n->op);
    add_text(&f, "node", n->name);
    add_attributes(&f, n);
    add_tensors(&f, v, "inputs", n->in.v, n->in.n);
    add_tensors(&f, v, "outputs", n->out.v, n->out.n);
    const double flops = view_flops(v, k);
    if (isfinite(flops)) add(&f, "flops", FIELD_FLOAT)->f = flops;
    add_int(&f, "bytes", moved_bytes(v, op));
    if (v->allocation) add_text(&f, "device", v->devices->v[v->allocation->device[k]].name);
    if (v->part_of) add_int(&f, "subgraph", v->part_of[k]);
    add_time(&f, v, k);
    if (v->groups.of) add_text(&f, "group", v->groups.group.v[v->groups.of[k]].name);
}

static bool has(const struct value_list *l, value_id v)
{
    for (u32 k = 0; k < l->n; k++)
        if (l->v[k] == v) return true;
    return false;
}

static void add_shape(struct fields *f, const struct view *v, const struct shape *s)
{
    struct buf b = {0};
    i64 n;
    buf_char(&b, '[');
    for (u32 d = 0; d < s->rank; d++) {
        if (d) buf_char(&b, ',');
        if (sym_is_const(v->x->g.sym, s->dim[d], &n)) {
            buf_printf(&b, "%lld", (long long)n);
            continue;
        }
        struct buf one = {0};
        sym_print(&one, v->x->g.sym, sym_plain(v->x->g.sym, s->dim[d]));
        buf_json_str(&b, buf_view(&one));
        buf_release(&one);
    }
    buf_char(&b, ']');
    add_json(f, "shape", &b);
}

void view_tensor_fields(struct view_fields *to, const struct view *v, u32 k, struct arena *a)
{
    struct fields f = {to, a};
    const struct place_tensor *t = &v->x->tensor.v[k];
    const struct value *x = graph_value(&v->x->g, t->value);
    to->n = 0;
    add_text(&f, "kind", t->is_param ? S("ParamTensorNode") : S("TensorNode"));
    add_text(&f, "name", t->name);
    add_text(&f, "value", x->name);
    if (has(&v->x->g.input, t->value)) add_text(&f, "role", S("input"));
    else if (has(&v->x->g.output, t->value)) add_text(&f, "role", S("output"));
    add_text(&f, "dtype", str_of(dtype_name(x->dtype)));
    if (x->shape.known) add_shape(&f, v, &x->shape);
    add_int(&f, "bytes", view_bytes(v, k));
}

static void add_devices(struct fields *f, const struct view *v)
{
    struct buf b = {0};
    buf_char(&b, '[');
    for (u32 k = 0; k < v->devices->n; k++) {
        if (k) buf_char(&b, ',');
        buf_json_str(&b, v->devices->v[k].name);
    }
    buf_char(&b, ']');
    add_json(f, "devices", &b);
}

static void add_parts(struct fields *f, const struct view *v)
{
    struct buf b = {0};
    buf_char(&b, '[');
    for (u32 p = 0; p < v->parts->n; p++) {
        const struct place_part *x = &v->parts->v[p];
        buf_z(&b, p ? ",{\"device\":" : "{\"device\":");
        buf_json_str(&b, v->devices->v[x->device].name);
        buf_z(&b, ",\"after\":[");
        for (u32 i = 0; i < x->after.n; i++) buf_printf(&b, "%s%u", i ? "," : "", x->after.v[i]);
        buf_z(&b, "]}");
    }
    buf_char(&b, ']');
    add_json(f, "subgraphs", &b);
}

void view_net_fields(struct view_fields *to, const struct view *v, struct arena *a)
{
    struct fields f = {to, a};
    const struct graph *g = &v->x->g;
    struct buf sizes = {0};
    double seconds = 0;
    bool is_known = v->time != NULL;
    to->n = 0;
    add_text(&f, "name", v->x->name);
    add_tensors(&f, v, "inputs", g->input.v, g->input.n);
    add_tensors(&f, v, "outputs", g->output.v, g->output.n);
    buf_char(&sizes, '{');
    for (u32 k = 0; k < v->n_var; k++) {
        if (k) buf_char(&sizes, ',');
        buf_json_str(&sizes, g->sym->var.v[k]);
        buf_printf(&sizes, ":%lld", (long long)v->var[k]);
    }
    buf_char(&sizes, '}');
    add_json(&f, "sizes", &sizes);
    if (v->allocation) add_devices(&f, v);
    if (v->parts) add_parts(&f, v);
    if (!v->time) return;
    add_text(&f, "measured_on", str_of(v->time_device));
    for (u32 k = 0; k < v->x->op.n; k++) {
        const struct view_time *t = &v->time[k];
        if (isfinite(t->seconds)) seconds += t->seconds;
        else if (t->fused_into == UINT32_MAX) is_known = false;
    }
    if (is_known) add(&f, "seconds", FIELD_FLOAT)->f = seconds;
}

/* Inputs of the network, then each operator between its parameters and its outputs. */
void view_each(const struct view *v, void (*each)(void *user, bool is_op, u32 k), void *user)
{
    u32 next = 0;
    for (u32 k = 0; k < v->x->op.n; k++) {
        const struct place_op *op = &v->x->op.v[k];
        const u32 first_out = op->out.n ? op->out.v[0] : next;
        while (next < first_out) each(user, false, next++);
        each(user, true, k);
    }
    while (next < v->x->tensor.n) each(user, false, next++);
}

void view_each_edge(const struct view *v, void (*each)(void *user, u32 op, u32 tensor, bool is_out),
                    void *user)
{
    struct arena a = {0};
    u32 *reader = arena_array(&a, u32, v->x->tensor.n + 1); /* 1 + the last one that was met */
    for (u32 k = 0; k < v->x->op.n; k++) {
        const struct place_op *op = &v->x->op.v[k];
        for (u32 i = 0; i < op->in.n; i++) {
            if (reader[op->in.v[i]] != k + 1) each(user, k, op->in.v[i], false);
            reader[op->in.v[i]] = k + 1;
        }
        for (u32 i = 0; i < op->out.n; i++) each(user, k, op->out.v[i], true);
    }
    arena_release(&a);
}
