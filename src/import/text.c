// SPDX-License-Identifier: Apache-2.0
//
// Graphs in their text form (doc/graph-ir.md). Types in the text are not trusted:
// sizes are inferred anew, so that a text with wrong types cannot yield wrong code.
#include "import/import.h"
#include "op/op.h"

static bool text_match(struct str bytes)
{
    struct str line = str_trim(bytes), rest;
    while (line.n && line.p[0] == '#') {
        str_cut(line, '\n', &line, &rest);
        line = str_trim(rest);
    }
    return str_starts(line, S("graph")) && str_starts(str_trim(str_sub(line, 5, line.n)), S("{"));
}

static bool has_no_promises(const struct graph *g, struct err *e)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *nd = graph_node(g, n);
        for (u32 k = 0; k < nd->attr.n; k++)
            if (op_is_promise(nd->attr.v[k].name))
                return err_set(e, ERR_INPUT, "attribute that says what quern has proven: '%.*s'", STR_ARG(nd->attr.v[k].name));
    }
    return true;
}

static bool text_read(const struct import_job *j, struct err *e)
{
    struct graph *g = j->g;
    if (!graph_parse(g, g->arena, g->sym, j->bytes, e)) return false;
    for (value_id v = 1; v < g->value.n; v++) {
        struct value *val = graph_value(g, v);
        if (val->is_const && !val->data)
            return err_set(e, ERR_INPUT, "constant '%.*s' has no content", STR_ARG(val->name));
        if (val->layout != LAYOUT_ROWS || val->part.whole)
            return err_set(e, ERR_INPUT, "value '%.*s' of a network has a layout", STR_ARG(val->name));
        if (!val->producer && val->shape.known && !shape_size_ok(g->sym, &val->shape, val->dtype))
            return err_set(e, ERR_INPUT, "value '%.*s' is too large or of no type", STR_ARG(val->name));
        if (val->producer) val->shape.known = false;
        val->sdata = NULL;
    }
    return has_no_promises(g, e) && op_infer_all(g, e);
}

const struct importer import_text = {.name = "text", .suffix = ".graph", .match = text_match, .read = text_read};
