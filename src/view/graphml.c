// SPDX-License-Identifier: Apache-2.0
//
// GraphML (http://graphml.graphdrawing.org): nodes in topological order, facts as typed attributes;
// those that are lists or objects as JSON text. Characters that XML cannot hold become U+FFFD.
#include "view/view.h"

static const struct key {
    const char *name, *type;
} keys[] = {
    {"kind", "string"},    {"name", "string"},       {"type", "string"},
    {"node", "string"},    {"attributes", "string"}, {"inputs", "string"},
    {"outputs", "string"}, {"flops", "double"},      {"bytes", "long"},
    {"device", "string"},  {"subgraph", "long"},     {"seconds", "double"},
    {"kernel", "long"},    {"fused_into", "string"}, {"group", "string"},
    {"value", "string"},   {"role", "string"},       {"dtype", "string"},
    {"shape", "string"},
};
static const struct key net_keys[] = {
    {"name", "string"},        {"inputs", "string"},  {"outputs", "string"},
    {"sizes", "string"},       {"devices", "string"}, {"subgraphs", "string"},
    {"measured_on", "string"}, {"seconds", "double"},
};

struct writer {
    struct buf *b;
    const struct view *v;
    struct arena a;
};

static void put_char(struct buf *b, const char *p)
{
    switch (*p) {
    case '&': buf_z(b, "&amp;"); return;
    case '<': buf_z(b, "&lt;"); return;
    case '>': buf_z(b, "&gt;"); return;
    case '"': buf_z(b, "&quot;"); return;
    case '\n': buf_z(b, "&#10;"); return;
    case '\t': buf_z(b, "&#9;"); return;
    case '\r': buf_z(b, "&#13;"); return;
    default: break;
    }
    if ((unsigned char)*p < 0x20) buf_z(b, "\xef\xbf\xbd");
    else buf_char(b, *p);
}

void view_put_xml(struct buf *b, struct str s)
{
    for (i64 i = 0; i < s.n;) {
        const i64 n = str_utf8(s, i);
        const bool is_wrong = n == 3 && (u8)s.p[i] == 0xef && (u8)s.p[i + 1] == 0xbf &&
                              (u8)s.p[i + 2] >= 0xbe; /* U+FFFE, U+FFFF */
        if (n == 0 || is_wrong) buf_z(b, "\xef\xbf\xbd");
        else if (n == 1) put_char(b, s.p + i);
        else buf_put(b, s.p + i, n);
        i += n ? n : 1;
    }
}

static void put_fields(struct buf *b, const struct view_fields *f, const char *prefix)
{
    for (u32 k = 0; k < f->n; k++) {
        const struct view_field *x = &f->v[k];
        buf_printf(b, "<data key=\"%s%s\">", prefix, x->key);
        switch (x->kind) {
        case FIELD_TEXT:
        case FIELD_JSON: view_put_xml(b, x->text); break;
        case FIELD_INT: buf_printf(b, "%lld", (long long)x->i); break;
        case FIELD_FLOAT: buf_f64(b, x->f); break;
        default: unreachable();
        }
        buf_z(b, "</data>");
    }
}

static void put_keys(struct buf *b, const struct key *k, i64 n, const char *what,
                     const char *prefix)
{
    for (i64 i = 0; i < n; i++)
        buf_printf(b, " <key id=\"%s%s\" for=\"%s\" attr.name=\"%s\" attr.type=\"%s\"/>\n", prefix,
                   k[i].name, what, k[i].name, k[i].type);
}

static void put_node(void *user, bool is_op, u32 k)
{
    struct writer *w = user;
    struct arena_mark m = arena_mark(&w->a);
    struct view_fields f = {0};
    buf_z(w->b, "  <node id=\"");
    view_put_xml(w->b, is_op ? w->v->x->op.v[k].name : w->v->x->tensor.v[k].name);
    buf_z(w->b, "\">");
    if (is_op) view_op_fields(&f, w->v, k, &w->a);
    else view_tensor_fields(&f, w->v, k, &w->a);
    put_fields(w->b, &f, "");
    buf_z(w->b, "</node>\n");
    arena_rewind(&w->a, m);
}

static void put_edge(void *user, u32 op, u32 tensor, bool is_out)
{
    struct writer *w = user;
    const struct str a = w->v->x->tensor.v[tensor].name, b = w->v->x->op.v[op].name;
    buf_z(w->b, "  <edge source=\"");
    view_put_xml(w->b, is_out ? b : a);
    buf_z(w->b, "\" target=\"");
    view_put_xml(w->b, is_out ? a : b);
    buf_z(w->b, "\"/>\n");
}

void view_graphml(struct buf *b, const struct view *v)
{
    struct writer w = {.b = b, .v = v};
    struct view_fields f = {0};
    view_net_fields(&f, v, &w.a);
    buf_z(b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<graphml "
             "xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n");
    put_keys(b, keys, countof(keys), "node", "");
    put_keys(b, net_keys, countof(net_keys), "graph", "graph.");
    buf_z(b, " <graph edgedefault=\"directed\">");
    put_fields(b, &f, "graph.");
    buf_char(b, '\n');
    view_each(v, put_node, &w);
    view_each_edge(v, put_edge, &w);
    buf_z(b, " </graph>\n</graphml>\n");
    arena_release(&w.a);
}
