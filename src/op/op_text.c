// SPDX-License-Identifier: Apache-2.0
//
// Texts in messages: nodes and sizes.
#include "op/op.h"

#include <stdarg.h>
#include <stdio.h>

/* "Conv 'conv_12': "; a node without a name goes by its first output. */
static void describe(char *out, i64 size, const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    struct str name = x->name;
    if (!name.n && x->out.n && x->out.v[0]) name = graph_value(g, x->out.v[0])->name;
    snprintf(out, (size_t)size, "%.*s '%.*s': ", STR_ARG(x->op), STR_ARG(name));
}

/* Prefixes the message with the node, once. */
bool op_blame(struct err *e, const struct graph *g, node_id n)
{
    char origin[300];
    describe(origin, sizeof origin, g, n);
    struct str prefix = str_of(origin);
    if (!str_starts(str_of(e->msg), prefix)) err_prefix(e, "%.*s", (int)(prefix.n - 2), origin);
    return false;
}

static bool blame_v(struct err *e, const struct graph *g, node_id n, enum err_code c,
                    const char *fmt, va_list ap)
{
    char text[600];
    vsnprintf(text, sizeof text, fmt, ap);
    if (e->code) return false; /* the first cause wins */
    err_set(e, c, "%s", text);
    return op_blame(e, g, n);
}

bool op_unsupported(struct err *e, const struct graph *g, node_id n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    blame_v(e, g, n, ERR_UNSUPPORTED, fmt, ap);
    va_end(ap);
    return false;
}

bool op_invalid(struct err *e, const struct graph *g, node_id n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    blame_v(e, g, n, ERR_INPUT, fmt, ap);
    va_end(ap);
    return false;
}

/* "Concat '/Concat'", at most as long as names in messages are. */
struct str op_owner_in(const struct graph *g, node_id n, char *room, size_t size)
{
    if (!n) return S("the network");
    const struct node *x = graph_node(g, n);
    struct str name = x->name;
    if (!name.n && x->out.n && x->out.v[0]) name = graph_value(g, x->out.v[0])->name;
    int len = snprintf(room, size, "%.*s '%.*s'", STR_ARG(x->op), STR_ARG(name));
    return (struct str){room, i64_min(len, (i64)size - 1)};
}

struct str op_owner(struct graph *g, node_id n)
{
    char room[200];
    return str_dup(g->arena, op_owner_in(g, n, room, sizeof room));
}

struct str op_size_text(struct graph *g, sym s)
{
    struct buf b = {0};
    sym_print(&b, g->sym, sym_plain(g->sym, sym_current(g->sym, s)));
    struct str text = str_dup(g->arena, buf_view(&b));
    buf_release(&b);
    return text;
}

struct str op_shape_text(struct graph *g, const struct shape *s)
{
    struct buf b = {0};
    buf_char(&b, '[');
    for (u32 i = 0; i < s->rank; i++) {
        if (i) buf_char(&b, ',');
        sym_print(&b, g->sym, sym_plain(g->sym, sym_current(g->sym, s->dim[i])));
    }
    buf_char(&b, ']');
    struct str text = str_dup(g->arena, buf_view(&b));
    buf_release(&b);
    return text;
}
