// SPDX-License-Identifier: Apache-2.0
//
// Attributes that operators have: our own declare them in their descriptors, those of other domains are listed in
// op_attributes.inc as their definitions state them; their descriptors declare what graphs have besides. A declaration is
// "axis:int pads:ints shape:ints|strings".
#include "op/op.h"

#include <string.h>

static const struct { const char *op, *attributes; } defined[] = {
#define X(op, attributes) {op, attributes},
#include "op/op_attributes.inc"
#undef X
};

const char *op_attributes(struct str op)
{
    const struct op *own = str_starts(op, S("quern::")) ? op_find(op) : NULL;
    if (own) return own->attributes ? own->attributes : "";
    for (i64 k = 0; k < countof(defined); k++)
        if (str_is(op, defined[k].op)) return defined[k].attributes;
    return "";
}

static const char *kind_name(enum attr_kind kind)
{
    static const char *const names[] = {"int", "float", "string", "ints", "floats", "strings", "tensor", "graph"};
    return names[kind];
}

static const char *kind_prose(enum attr_kind kind)
{
    static const char *const prose[] = {"an integer", "a float", "a string", "integers", "floats", "strings", "a tensor", "a graph"};
    return prose[kind];
}

/* The kinds of an attribute in a declaration, which may be NULL; n 0: it has none of that name. */
static struct str declared_kinds(const char *declaration, struct str name)
{
    struct str one, rest = str_of(declaration), key, kinds;
    while (rest.n) {
        str_cut(rest, ' ', &one, &rest);
        if (str_cut(one, ':', &key, &kinds) && str_eq(key, name)) return kinds;
    }
    return (struct str){0};
}

static bool has_kind(struct str kinds, enum attr_kind kind)
{
    struct str one;
    while (kinds.n) {
        str_cut(kinds, '|', &one, &kinds);
        if (str_is(one, kind_name(kind))) return true;
    }
    return false;
}

/* Numbers written as integers are floats where floats are declared, and an empty list is of any kind. */
static bool convert(struct graph *g, struct attr *a, struct str kinds)
{
    if (a->kind == ATTR_INT && has_kind(kinds, ATTR_FLOAT)) {
        *a = (struct attr){.name = a->name, .kind = ATTR_FLOAT, .f = (double)a->i};
        return true;
    }
    if (a->kind != ATTR_INTS) return false;
    if (has_kind(kinds, ATTR_FLOATS)) {
        double *v = arena_array(g->arena, double, a->n + 1);
        for (i64 k = 0; k < a->n; k++) v[k] = (double)a->ints[k];
        *a = (struct attr){.name = a->name, .kind = ATTR_FLOATS, .n = a->n, .floats = v};
        return true;
    }
    if (a->n || !has_kind(kinds, ATTR_STRS)) return false;
    *a = (struct attr){.name = a->name, .kind = ATTR_STRS};
    return true;
}

/* "axis, keepdims" */
static bool refuse_name(const char *declaration, struct str name, struct err *e)
{
    struct buf b = {0};
    struct str one, rest = str_of(declaration), key, kinds;
    while (rest.n) {
        str_cut(rest, ' ', &one, &rest);
        str_cut(one, ':', &key, &kinds);
        buf_printf(&b, "%s%.*s", b.n ? ", " : "", STR_ARG(key));
    }
    if (b.n) err_set(e, ERR_INPUT, "no attribute '%.*s', expected one of %.*s", STR_ARG(name), STR_ARG(buf_view(&b)));
    else err_set(e, ERR_INPUT, "no attribute '%.*s', the operator has none", STR_ARG(name));
    buf_release(&b);
    return false;
}

static bool refuse_kind(const struct attr *a, struct str kinds, struct err *e)
{
    struct buf b = {0};
    for (enum attr_kind k = ATTR_INT; k <= ATTR_GRAPH; k++)
        if (has_kind(kinds, k)) buf_printf(&b, "%s%s", b.n ? " or " : "", kind_prose(k));
    err_set(e, ERR_INPUT, "attribute '%.*s' is %s, expected %.*s", STR_ARG(a->name), kind_prose(a->kind), STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

bool op_check_attributes(struct graph *g, node_id n, struct err *e)
{
    const struct op *op = op_of(g, n);
    const char *definition = op_attributes(graph_node(g, n)->op);
    for (u32 k = 0; k < graph_node(g, n)->attr.n; k++) {
        struct attr a = graph_node(g, n)->attr.v[k];
        struct str kinds = declared_kinds(definition, a.name);
        if (!kinds.n) kinds = declared_kinds(op->attributes, a.name);
        if (!kinds.n) return refuse_name(definition, a.name, e);
        if (has_kind(kinds, a.kind)) continue;
        if (!convert(g, &a, kinds)) return refuse_kind(&a, kinds, e);
        attr_copy(g, n, &a);
    }
    return true;
}
