// SPDX-License-Identifier: Apache-2.0
//
// A graph in the vocabulary of an older opset of ONNX's own domain. Node by node: one that has the form of that opset
// stays (export_history.inc: inputs, attributes, element types of every form); arithmetic on sizes that are numbers
// becomes constants, for readers that have no operators on shapes; attributes with the meaning that their
// absence has are removed; others are rewritten (export_opset_form.c, export_opset_own.c), replaced by their constant
// result, or by the operator's own expansion, whose nodes are looked at in turn. What is left is an error that names the
// node and the reason.
#include "export/export_opset.h"

#include <stdlib.h>
#include <string.h>

#define X(...) {__VA_ARGS__},
static const struct form {
    const char *op;
    u8 since, max_in; /* 0: the operator does not exist any more */
    const char *attributes, *in, *out;
} forms[] = {
#include "export/export_history.inc"
};
#undef X

/* Values of attributes that are younger than the attribute. */
static const struct {
    const char *op, *attribute, *value;
    i64 since;
} values[] = {
    {"ScatterND", "reduction", "max", 18},       {"ScatterND", "reduction", "min", 18},
    {"ScatterElements", "reduction", "max", 18}, {"ScatterElements", "reduction", "min", 18},
    {"Pad", "mode", "wrap", 19},                 {"Resize", "coordinate_transformation_mode", "half_pixel_symmetric", 19},
    {"GridSample", "mode", "linear", 20},        {"GridSample", "mode", "cubic", 20},
    {"Resize", "nearest_mode", "quern_simple", 1000},
};

/* The form in an opset, NULL: it has none. */
static const struct form *form_at(struct str op, i64 opset)
{
    const struct form *found = NULL;
    for (i64 k = 0; k < countof(forms); k++)
        if (str_is(op, forms[k].op) && forms[k].since <= opset) found = &forms[k];
    return found && (found->max_in || *found->out) ? found : NULL;
}

/* "keepdims=1 axes": whether it has that attribute; the default, empty without one. */
static bool declares(const struct form *f, struct str name, struct str *def)
{
    struct str rest = str_of(f->attributes), one, key;
    while (rest.n) {
        str_cut(rest, ' ', &one, &rest);
        *def = (struct str){0};
        if (!str_cut(one, '=', &key, def)) key = one;
        if (str_eq(key, name)) return true;
    }
    return false;
}

static bool is_default(const struct attr *a, struct str def)
{
    double v;
    if (a->kind == ATTR_STR) return str_eq(a->s, def);
    if (!def.n || (a->kind != ATTR_INT && a->kind != ATTR_FLOAT) || !str_to_f64(def, &v)) return false;
    return a->kind == ATTR_INT ? (double)a->i == v : (float)a->f == (float)v;
}

/* Inference makes dilations explicit where older opsets have none. */
static bool are_ones(const struct attr *a)
{
    bool ones = str_is(a->name, "dilations") && a->kind == ATTR_INTS;
    for (i64 i = 0; ones && i < a->n; i++) ones = a->ints[i] == 1;
    return ones;
}

/* Whether a form without the attribute means the same: its value is the default of the form that introduced it. *since: opset of that form; 0: none. */
static bool may_drop(struct str op, const struct attr *a, i64 *since)
{
    struct str def;
    *since = 0;
    if (str_is(a->name, "made_size")) return true; /* importers name sizes that data determines again */
    for (i64 k = 0; k < countof(forms); k++) {
        if (!str_is(op, forms[k].op) || !declares(&forms[k], a->name, &def)) continue;
        *since = forms[k].since;
        /* half_pixel is new; older opsets have what is called output_half_pixel now (export_opset_form.c) */
        return are_ones(a) || (is_default(a, def) && !str_is(op, "RoiAlign"));
    }
    return false;
}

static i64 value_since(const struct node *x, const struct attr *a)
{
    for (i64 k = 0; k < countof(values); k++)
        if (str_is(x->op, values[k].op) && str_is(a->name, values[k].attribute) && a->kind == ATTR_STR && str_is(a->s, values[k].value))
            return values[k].since;
    return 0;
}

/* Attributes that the form lacks are removed if that changes nothing. */
static bool attributes_fit(struct opset_job *j, const struct form *f, struct str *why)
{
    struct str def;
    for (u32 k = 0; k < graph_node(j->g, j->n)->attr.n;) {
        const struct node *x = graph_node(j->g, j->n);
        const struct attr *a = &x->attr.v[k];
        i64 since = value_since(x, a);
        if (since > j->opset)
            return *why = str_fmt(j->a, "%.*s '%.*s' is not in opset %lld", STR_ARG(a->name), STR_ARG(a->s), (long long)j->opset), false;
        if (declares(f, a->name, &def)) {
            k++;
            continue;
        }
        if (!may_drop(x->op, a, &since)) {
            *why = since ? str_fmt(j->a, "attribute '%.*s' is not in opset %lld, opset %lld has it first", STR_ARG(a->name), (long long)j->opset, (long long)since)
                         : str_fmt(j->a, "attribute '%.*s' is not ONNX's", STR_ARG(a->name));
            return false;
        }
        attr_remove(j->g, j->n, str_z(j->a, a->name));
    }
    return true;
}

/* Entry k of a list of masks, whose last one is of all further values. */
static u64 mask_at(const char *list, u32 k)
{
    while (k-- && strchr(list, ',')) list = strchr(list, ',') + 1;
    return strtoull(list, NULL, 16);
}

static bool types_fit(struct opset_job *j, const char *masks, const char *what, const value_id *v, u32 n, struct str *why)
{
    for (u32 k = 0; k < n; k++) {
        enum dtype t = v[k] ? graph_value(j->g, v[k])->dtype : DT_NONE;
        if (t == DT_NONE || mask_at(masks, k) >> dtype_onnx(t) & 1) continue;
        *why = str_fmt(j->a, "%s %u has elements of type %s, which opset %lld does not have there", what, k, dtype_name(t), (long long)j->opset);
        return false;
    }
    return true;
}

/* Scales of opset 21 are one per channel, before it one per group. */
static bool has_scale_per_channel(const struct graph *g, const struct node *x)
{
    i64 size;
    return str_is(x->op, "GroupNormalization") && op_has_in(x, 1) && sym_is_const(g->sym, op_in_shape(g, x, 1)->dim[0], &size) &&
           size != attr_int(x, "num_groups", 0);
}

static bool fits(struct opset_job *j, struct str *why)
{
    const struct node *x = graph_node(j->g, j->n);
    const struct form *f = form_at(x->op, j->opset);
    const struct op_onnx *known = op_onnx_find(x->op);
    if (!f && !known) return *why = str_fmt(j->a, "not an operator of ONNX's own domain"), false;
    if (!f && known->gone && known->gone <= j->opset)
        return *why = str_fmt(j->a, "opset %lld does not have it, opset %d removed it", (long long)j->opset, known->gone), false;
    if (!f) return *why = str_fmt(j->a, "opset %lld does not have it, opset %d has it first", (long long)j->opset, known->first), false;
    u32 n = x->in.n;
    while (n && !x->in.v[n - 1]) n--;
    if (n > f->max_in) return *why = str_fmt(j->a, "it has at most %u inputs in opset %lld, not %u", f->max_in, (long long)j->opset, n), false;
    if (has_scale_per_channel(j->g, x)) return *why = str_fmt(j->a, "scales per channel are first in opset 21"), false;
    return types_fit(j, f->in, "input", x->in.v, n, why) && types_fit(j, f->out, "output", x->out.v, x->out.n, why) && attributes_fit(j, f, why);
}

/* Constants. */

static bool is_symbolic(const struct graph *g, const struct value *v)
{
    for (i64 i = 0; v->sdata && i < v->sdata->n; i++)
        if (!sym_is_const(g->sym, v->sdata->num[i], NULL)) return true;
    return false;
}

static bool is_constant(const struct graph *g, const struct node *x)
{
    i64 dim[MAX_RANK];
    if (op_of(g, (node_id)(x - g->node.v))->props & (OP_CALL | OP_RANDOM)) return false;
    for (u32 k = 0; k < x->in.n; k++)
        if (x->in.v[k] && !graph_value(g, x->in.v[k])->data) return false;
    for (u32 k = 0; k < x->out.n; k++) {
        const struct value *v = x->out.v[k] ? graph_value(g, x->out.v[k]) : NULL;
        if (v && (!shape_is_static(g->sym, &v->shape, dim) || is_symbolic(g, v))) return false;
    }
    return x->out.n == 1;
}

/* Integers that the network's sizes determine, if these are numbers: arithmetic on shapes. */
static bool is_known(const struct graph *g, const struct value *v)
{
    i64 dim[MAX_RANK];
    return v->sdata && v->sdata->den == 1 && dtype_is_int(v->dtype) && !is_symbolic(g, v) && shape_is_static(g->sym, &v->shape, dim) &&
           i64_product(v->shape.rank, dim) == v->sdata->n;
}

static void become_constant(struct opset_job *j, value_id out, struct tensor *t)
{
    struct value *v = graph_value(j->g, out);
    v->producer = 0, v->data = t, v->is_const = true;
    graph_node(j->g, j->n)->dead = true;
}

/* The node is replaced by its content. */
static bool replaced_by_content(struct opset_job *j)
{
    const struct node *x = graph_node(j->g, j->n);
    value_id out = x->out.n == 1 ? x->out.v[0] : 0;
    i64 dim[MAX_RANK], one;
    if (!out || graph_is_output(j->g, out) || !is_known(j->g, graph_value(j->g, out))) return false;
    const struct value *v = graph_value(j->g, out);
    shape_is_static(j->g->sym, &v->shape, dim);
    struct tensor *t = tensor_new(j->a, v->dtype, v->shape.rank, dim);
    for (i64 k = 0; k < v->sdata->n; k++)
        if (sym_is_const(j->g->sym, v->sdata->num[k], &one)) elem_set_i64(v->dtype, t->data, k, one);
    become_constant(j, out, t);
    return true;
}

/* The node's result as a constant. */
static enum opset_result evaluated(struct opset_job *j)
{
    struct graph one;
    struct tensor *result = NULL;
    struct err none = {0};
    value_id *back, out = graph_node(j->g, j->n)->out.v[0];
    if (!is_constant(j->g, graph_node(j->g, j->n))) return OPSET_NO;
    graph_extract(&one, j->g, j->a, &j->n, 1, &out, 1, &back);
    if (!graph_eval(&one, NULL, &result, j->a, NULL, &none)) return OPSET_NO;
    become_constant(j, out, result);
    return OPSET_DONE;
}

/* The whole. */

static struct str own_name(const struct graph *g, const struct node *x)
{
    return x->name.n || !node_first_out(x) ? x->name : graph_value(g, node_first_out(x))->name;
}

/* The reason of a part is that of what it was made of. */
static bool refuse(struct opset_job *j, struct str why)
{
    const struct node *x = graph_node(j->g, j->n);
    struct buf b = {0};
    buf_printf(&b, "%.*s '%.*s' cannot be expressed in opset %lld: %.*s", STR_ARG(x->op), STR_ARG(own_name(j->g, x)), (long long)j->opset, STR_ARG(why));
    for (u32 k = j->part.n; k-- > 0;)
        if (j->part.v[k].why.n && j->n >= j->part.v[k].first && j->n < j->part.v[k].last) buf_printf(&b, "; it stands for a part of %.*s", STR_ARG(j->part.v[k].why));
    err_set(j->e, ERR_UNSUPPORTED, "%.*s", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

enum { MAX_DEPTH = 8 };

/* Of expansions and replacements within each other. Operators may consist of each other, so that none of them can be expressed. */
static u32 depth_of(const struct opset_job *j)
{
    for (u32 k = j->part.n; k-- > 0;)
        if (j->n >= j->part.v[k].first && j->n < j->part.v[k].last) return j->part.v[k].depth;
    return 0;
}

static bool expand(struct opset_job *j, struct str why)
{
    const struct node *x = graph_node(j->g, j->n);
    const node_id first = j->g->node.n;
    const u32 depth = depth_of(j) + 1;
    why = str_fmt(j->a, "%.*s '%.*s', since %.*s", STR_ARG(x->op), STR_ARG(own_name(j->g, x)), STR_ARG(why));
    if (!op_expand(j->g, j->n, j->e)) return false;
    *arr_push(j->a, &j->part) = (struct opset_part){.first = first, .last = j->g->node.n, .depth = depth, .why = why};
    return true;
}

static bool lower_node(struct opset_job *j)
{
    struct str why = S("it has no counterpart");
    const node_id first = j->g->node.n;
    if (replaced_by_content(j)) return true;
    bool is_own = str_starts(graph_node(j->g, j->n)->op, S("quern::"));
    enum opset_result r = is_own ? opset_own(j) : opset_form(j);
    if (r == OPSET_NO && !is_own && fits(j, &why)) return true;
    if (r == OPSET_NO) r = evaluated(j);
    if (r == OPSET_DONE && j->g->node.n > first)
        *arr_push(j->a, &j->part) = (struct opset_part){.first = first, .last = j->g->node.n, .depth = depth_of(j) + 1};
    if (r != OPSET_NO) return r == OPSET_DONE;
    if (depth_of(j) >= MAX_DEPTH) return refuse(j, why);
    const struct op *op = op_find(graph_node(j->g, j->n)->op);
    return op && op->expand ? expand(j, why) : refuse(j, why);
}

/* Nodes of an expansion have the name of what they stand for, and some readers want different names. */
static void name_nodes(struct graph *g, struct arena *a)
{
    struct map seen;
    map_init(&seen, a);
    for (node_id n = 1; n < g->node.n; n++) {
        struct node *x = graph_node(g, n);
        if (x->dead || !x->name.n) continue;
        if (map_get(&seen, x->name)) x->name = (struct str){0};
        else map_put(&seen, x->name, n);
    }
}

bool export_opset_lower(struct graph *to, const struct graph *g, i64 opset, struct arena *a, struct err *e)
{
    struct opset_job j = {.g = to, .a = a, .opset = opset, .e = e};
    if (opset < EXPORT_OLDEST_OPSET || opset > EXPORT_OPSET)
        return err_set(e, ERR_USAGE, "opset %lld: networks can be exported in opsets %d to %d", (long long)opset, EXPORT_OLDEST_OPSET, EXPORT_OPSET);
    graph_clone(to, g, a);
    for (j.n = 1; j.n < to->node.n; j.n++)
        if (!graph_node(to, j.n)->dead) replaced_by_content(&j);
    if (!graph_sort(to, e)) return false; /* without what only these needed */
    for (node_id n = 1; n < to->node.n; n++) {
        j.n = n;
        if (!graph_node(to, n)->dead && !lower_node(&j)) return false;
        if (!mem_check(e, "writing the model", S(""))) return false;
    }
    to->made.n = 0;
    name_nodes(to, a);
    return graph_sort(to, e);
}
