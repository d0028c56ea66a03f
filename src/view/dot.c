// SPDX-License-Identifier: Apache-2.0
//
// Graphviz's language: operators as boxes in the colour of their device, tensors as grey boxes,
// sub-graphs as frames, a legend below. n devices have n + 1 colours.
//
// The colours are Paul Tol's "light" scheme, which is made for black text on it and distinct for
// all kinds of colour vision. Further devices get colours that are distinct, but not for all.
#include "view/picture.h"

#include <math.h>

#include "op/op.h"

struct writer {
    struct buf *b;
    const struct view *v;
    struct arena a;
    struct picture p;
};

/* Text. */

static void put_text(struct buf *b, struct str s)
{
    for (i64 i = 0; i < s.n;) {
        const i64 n = str_utf8(s, i);
        const char c = s.p[i];
        if (n == 0 || (n == 1 && ((u8)c < 0x20 || c == 0x7f))) buf_z(b, "\xef\xbf\xbd");
        else if (c == '"' || c == '\\') buf_char(b, '\\'), buf_char(b, c);
        else if (c == '&') buf_z(b, "&amp;"); /* Graphviz reads entities */
        else buf_put(b, s.p + i, n);
        i += n ? n : 1;
    }
}

static void put_id(struct buf *b, struct str s)
{
    buf_char(b, '"');
    put_text(b, s);
    buf_char(b, '"');
}

/* "12.3 M" */
static void put_amount(struct buf *b, double x, const char *unit)
{
    static const char prefix[] = " kMGTP";
    u32 k = 0;
    while (x >= 999.5 && prefix[k + 1]) x /= 1000, k++;
    buf_printf(b, "%.3g ", x);
    if (k) buf_char(b, prefix[k]);
    buf_z(b, unit);
}

static void put_seconds(struct buf *b, double s)
{
    if (s < 1e-3) buf_printf(b, "%.3g us", s * 1e6);
    else if (s < 1) buf_printf(b, "%.3g ms", s * 1e3);
    else buf_printf(b, "%.3g s", s);
}

/* Colours. */

struct colour {
    u32 r, g, b;
};

/* Hue in sixths of the circle, saturation and value in per cent: channel n of red 5, green 3,
 * blue 1. */
static u32 channel(double n, double hue, double saturation, double value)
{
    const double k = fmod(n + hue, 6), part = fmax(0, fmin(fmin(k, 4 - k), 1));
    return (u32)lround(2.55 * value * (1 - saturation / 100 * part));
}

/* The ninth and later hues are spread by the golden ratio. */
static struct colour device_colour(u32 k)
{
    static const struct colour light[] = {
        {0x77, 0xaa, 0xdd}, {0xee, 0x88, 0x66}, {0xee, 0xdd, 0x88}, {0xff, 0xaa, 0xbb},
        {0x44, 0xbb, 0x99}, {0x99, 0xdd, 0xff}, {0xbb, 0xcc, 0x33}, {0xaa, 0xaa, 0x00}};
    if (k < countof(light)) return light[k];
    const double hue = fmod(k * 6 * 0.6180339887498949, 6), s = 30 + 15 * (k % 3),
                 v = 96 - 12 * (k % 2);
    return (struct colour){channel(5, hue, s, v), channel(3, hue, s, v), channel(1, hue, s, v)};
}

static void put_colour(struct buf *b, struct colour c)
{
    buf_printf(b, "\"#%02x%02x%02x\"", c.r, c.g, c.b);
}

static struct colour darker(struct colour c) { return (struct colour){c.r / 2, c.g / 2, c.b / 2}; }

static u32 device_of(const struct view *v, u32 op)
{
    return v->allocation ? v->allocation->device[op] : 0;
}

/* Operators. */

static void put_ints(struct buf *b, const i64 *v, i64 n)
{
    for (i64 i = 0; i < n; i++) buf_printf(b, "%s%lld", i ? "x" : "", (long long)v[i]);
}

/* "3x3 /2": window and strides; nothing for other operators. */
static void put_window(struct buf *b, const struct node *n)
{
    const i64 *kernel, *stride;
    const i64 n_kernel = attr_ints(n, "kernel_shape", &kernel),
              n_stride = attr_ints(n, "strides", &stride);
    if (!n_kernel) return;
    buf_z(b, "\\n");
    put_ints(b, kernel, n_kernel);
    bool is_one = true, is_same = true;
    for (i64 i = 0; i < n_stride; i++) is_one &= stride[i] == 1, is_same &= stride[i] == stride[0];
    if (n_stride && !is_one) buf_z(b, " /"), put_ints(b, stride, is_same ? 1 : n_stride);
}

static void put_op(struct writer *w, u32 k)
{
    const struct place_op *op = &w->v->x->op.v[k];
    const struct node *n = graph_node(&w->v->x->g, op->node);
    const struct view_time *t = w->v->time ? &w->v->time[k] : NULL;
    struct buf *b = w->b;
    put_id(b, op->name);
    buf_z(b, " [label=\"");
    put_text(b, op->name);
    put_window(b, n);
    if (t && isfinite(t->seconds)) buf_z(b, "\\n"), put_seconds(b, t->seconds);
    buf_z(b, "\", tooltip=\"");
    put_text(b, n->op);
    if (n->name.n) buf_char(b, ' '), put_text(b, n->name);
    buf_z(b, "\", fillcolor=");
    put_colour(b, device_colour(device_of(w->v, k)));
    buf_z(b, "];\n");
}

/* Groups. */

/* "conv2d" of "conv2d_2" */
static struct str word_of(struct str name)
{
    for (i64 i = name.n - 1; i > 0; i--)
        if (name.p[i] == '_') return str_sub(name, 0, i);
    return name;
}

/* "6 matmul, 4 add ..": the most frequent operators, those that come first if they are equal. */
static void put_counts(struct writer *w, const struct view_group *g)
{
    enum { MOST_WORDS = 3 };
    struct arena_mark m = arena_mark(&w->a);
    struct map count;
    u32 shown = 0;
    map_init(&count, &w->a);
    for (u32 i = 0; i < g->op.n; i++) {
        const struct str word = word_of(w->v->x->op.v[g->op.v[i]].name);
        const u64 *known = map_get(&count, word);
        const u64 n = known ? *known : 0;
        *map_put(&count, word, 0) = n + 1;
    }
    for (; shown < MOST_WORDS && shown < count.n; shown++) {
        struct map_entry *best = &count.v[0];
        for (u32 i = 1; i < count.n; i++)
            if (count.v[i].val > best->val) best = &count.v[i];
        buf_printf(w->b, "%s%llu %.*s", shown ? ", " : "\\n", (unsigned long long)best->val,
                   STR_ARG(best->key));
        best->val = 0;
    }
    if (shown < count.n) buf_z(w->b, " ..");
    arena_rewind(&w->a, m);
}

static void put_group_amounts(struct writer *w, const struct view_group *g)
{
    double flops = 0, seconds = 0;
    bool is_known = false;
    for (u32 i = 0; i < g->op.n; i++) {
        const struct view_time *t = w->v->time ? &w->v->time[g->op.v[i]] : NULL;
        flops += view_flops(w->v, g->op.v[i]);
        if (t && isfinite(t->seconds)) seconds += t->seconds, is_known = true;
    }
    buf_z(w->b, "\\n");
    put_amount(w->b, flops, "FLOP");
    if (is_known) buf_z(w->b, ", "), put_seconds(w->b, seconds);
}

static void put_group(struct writer *w, u32 k)
{
    const struct view_group *g = &w->v->groups.group.v[k];
    struct buf *b = w->b;
    if (g->op.n == 1) {
        put_op(w, g->op.v[0]);
        return;
    }
    buf_printf(b, "\"group %u\" [label=\"", k);
    put_text(b, g->name);
    put_counts(w, g);
    put_group_amounts(w, g);
    buf_printf(b, "\", tooltip=\"%u operators: ", g->op.n);
    put_text(b, w->v->x->op.v[g->op.v[0]].name);
    buf_z(b, " .. ");
    put_text(b, w->v->x->op.v[g->op.v[g->op.n - 1]].name);
    buf_z(b, "\", peripheries=2, fillcolor=");
    put_colour(b, device_colour(device_of(w->v, g->op.v[0])));
    buf_z(b, "];\n");
}

static void put_box_id(struct writer *w, u32 op)
{
    if (picture_is_group(w->v, op)) buf_printf(w->b, "\"group %u\"", w->v->groups.of[op]);
    else put_id(w->b, w->v->x->op.v[op].name);
}

/* Tensors. */

static void put_shape(struct buf *b, const struct graph *g, const struct value *x)
{
    buf_printf(b, "%s", dtype_name(x->dtype));
    for (u32 d = 0; x->shape.known && d < x->shape.rank; d++) {
        struct buf one = {0};
        sym_print(&one, g->sym, sym_plain(g->sym, x->shape.dim[d]));
        buf_z(b, d ? " x " : " ");
        put_text(b, buf_view(&one));
        buf_release(&one);
    }
}

static void put_tensor(struct writer *w, u32 t)
{
    const struct place_tensor *x = &w->v->x->tensor.v[t];
    const struct value *v = graph_value(&w->v->x->g, x->value);
    struct buf *b = w->b;
    const bool is_end = picture_is_interface(&w->v->x->g, x->value);
    put_id(b, x->name);
    buf_z(b, " [label=\"");
    put_text(b, x->name);
    if (is_end) buf_z(b, "\\n"), put_text(b, v->name);
    buf_z(b, "\\n");
    if (w->p.n_bundle[t]) buf_printf(b, "and %u others", w->p.n_bundle[t] - 1);
    else put_shape(b, &w->v->x->g, v);
    buf_z(b, "\", tooltip=\"");
    put_text(b, v->name);
    buf_printf(b,
               "\", shape=%s, style=filled, fontsize=9, margin=\"0.04,0.02\", height=0.2, "
               "fillcolor=\"#dddddd\"%s%s];\n",
               x->is_param ? "note" : "box", is_end ? ", penwidth=2" : "",
               w->p.n_bundle[t] ? ", peripheries=2" : "");
}

/* The tensor as drawn in that column. */
static void put_tensor_id(struct writer *w, u32 tensor, u32 column)
{
    const struct str name = w->v->x->tensor.v[tensor].name;
    if (column == w->p.home[tensor]) put_id(w->b, name);
    else buf_printf(w->b, "\"%.*s again %u\"", STR_ARG(name), column);
}

/* With those that it stands for. */
static struct str short_label(struct writer *w, u32 tensor)
{
    const struct str name = w->v->x->tensor.v[tensor].name;
    const u32 n = w->p.n_bundle[tensor];
    return n ? str_fmt(&w->a, "%.*s and %u others", STR_ARG(name), n - 1) : name;
}

static void put_repeat(struct writer *w, struct str label)
{
    buf_printf(w->b,
               " [label=\"%.*s\", style=\"filled,dashed\", fontsize=9, margin=\"0.04,0.02\", "
               "height=0.2, fillcolor=\"#dddddd\"];\n",
               STR_ARG(label));
}

/* A node beside the box, and the beginning of an edge from it. */
static void put_beside(struct writer *w, struct str id, struct str label)
{
    put_id(w->b, id);
    put_repeat(w, label);
    put_id(w->b, id);
}

/* What the edge to an operator begins at. */
static void put_source(struct writer *w, u32 op, u32 tensor)
{
    const struct str name = w->v->x->tensor.v[tensor].name;
    const u32 box = picture_box(w->v, op), n = w->p.n_far[box];
    const bool is_far = picture_is_far(&w->p, op, tensor);
    if (is_far && n)
        put_beside(w, str_fmt(&w->a, "tensors at %u", box), str_fmt(&w->a, "%u tensors", n));
    else if (is_far && w->p.first[tensor])
        put_beside(w, str_fmt(&w->a, "%.*s at %u", STR_ARG(name), box), short_label(w, tensor));
    else put_tensor_id(w, tensor, w->p.column[box]);
}

static void put_edge(void *user, u32 op, u32 tensor, bool is_out)
{
    struct writer *w = user;
    if (is_out && !w->p.is_shown[tensor]) return;
    if (!is_out && !picture_reads(&w->p, op, tensor)) return;
    if (is_out) put_box_id(w, op);
    else put_source(w, op, tensor);
    buf_z(w->b, " -> ");
    if (is_out) put_id(w->b, w->v->x->tensor.v[tensor].name);
    else put_box_id(w, op);
    buf_z(w->b, ";\n");
}

/* The picture. */

static bool put_boxes(struct writer *w, u32 part, u32 column, bool dry)
{
    const struct view *v = w->v;
    bool any = false;
    for (u32 k = 0; k < w->p.n_boxes; k++) {
        const u32 own = v->groups.of ? v->groups.group.v[k].part : v->part_of ? v->part_of[k] : 0;
        if (own != part || w->p.column[k] != column) continue;
        any = true;
        if (dry) break;
        if (v->groups.of) put_group(w, k);
        else put_op(w, k);
    }
    return any;
}

static void put_tensors(struct writer *w, u32 part, u32 column)
{
    for (u32 t = 0; t < w->v->x->tensor.n; t++) {
        if (w->p.is_shown[t] && w->p.part[t] == part && w->p.home[t] == column) put_tensor(w, t);
        if (part || !(w->p.repeats[t] >> column & 1)) continue;
        put_tensor_id(w, t, column);
        put_repeat(w, short_label(w, t));
    }
}

/* A frame per column that the sub-graph is in. */
static void put_frames(struct writer *w, u32 column)
{
    const struct view *v = w->v;
    for (u32 p = 0; p < v->parts->n; p++) {
        const u32 device = v->parts->v[p].device;
        if (!put_boxes(w, p, column, true)) continue;
        buf_printf(w->b, "subgraph cluster_%u_%u {\nlabel=\"sub-graph %u: ", p, column, p);
        put_text(w->b, v->devices->v[device].name);
        buf_z(w->b, "\"; labelloc=t; style=rounded; penwidth=2; color=");
        put_colour(w->b, darker(device_colour(device)));
        buf_z(w->b, ";\n");
        put_boxes(w, p, column, false);
        put_tensors(w, p + 1, column);
        buf_z(w->b, "}\n");
    }
}

static void put_column(struct writer *w, u32 c)
{
    const struct view *v = w->v;
    if (v->parts) put_frames(w, c);
    else put_boxes(w, 0, c, false);
    put_tensors(w, 0, c);
}

/* Each column is an invisible frame, beneath an invisible node; these are one before the other,
 * which holds the columns in order. */
static void put_columns(struct writer *w)
{
    const struct view *v = w->v;
    for (u32 c = 0; c < w->p.n_columns; c++) {
        buf_printf(w->b,
                   "subgraph cluster_column_%u {\nlabel=\"\"; style=invis;\n\"column %u\" "
                   "[shape=point, style=invis, width=0, height=0];\n",
                   c, c);
        put_column(w, c);
        buf_z(w->b, "}\n");
    }
    for (u32 c = 0; c < w->p.n_columns; c++) {
        u32 k = 0;
        if (c)
            buf_printf(w->b, "\"column %u\" -> \"column %u\" [style=invis, minlen=0];\n", c - 1, c);
        while (k < v->x->op.n && w->p.column[picture_box(v, k)] != c) k++;
        if (k == v->x->op.n) continue;
        buf_printf(w->b, "\"column %u\" -> ", c);
        put_box_id(w, k);
        buf_z(w->b, " [style=invis, weight=100];\n");
    }
}

static void put_legend_row(struct buf *b, struct colour c, struct str name, const char *what)
{
    buf_z(b, "<TR><TD BGCOLOR=");
    put_colour(b, c);
    buf_z(b, " WIDTH=\"24\"></TD><TD ALIGN=\"LEFT\">");
    view_put_xml(b, name);
    buf_printf(b, "%s</TD></TR>", what);
}

static void put_legend(struct writer *w)
{
    const struct view *v = w->v;
    const u32 n = v->devices ? v->devices->n : 1;
    u32 *count = arena_array(&w->a, u32, n + 1);
    for (u32 k = 0; k < v->x->op.n; k++) count[device_of(v, k)]++;
    buf_z(
        w->b,
        "label=<<TABLE BORDER=\"0\" CELLBORDER=\"0\" CELLSPACING=\"3\"><TR><TD COLSPAN=\"2\"><B>");
    view_put_xml(w->b, v->x->name.n ? v->x->name : S("network"));
    buf_z(w->b, "</B></TD></TR>");
    for (u32 d = 0; d < n; d++) {
        if (v->devices && !count[d]) continue;
        const struct str of = str_fmt(&w->a, "%s%u operator%s", v->devices ? ", " : "", count[d],
                                      count[d] == 1 ? "" : "s");
        put_legend_row(w->b, device_colour(d), v->devices ? v->devices->v[d].name : S(""),
                       str_z(&w->a, of));
    }
    put_legend_row(w->b, (struct colour){0xdd, 0xdd, 0xdd}, S("tensors"), "");
    buf_z(w->b, "</TABLE>>;\n");
}

void view_dot(struct buf *b, const struct view *v)
{
    struct writer w = {.b = b, .v = v};
    picture_arrange(&w.p, v, &w.a);
    buf_z(b, "strict digraph "); /* several edges between two boxes are one */
    put_id(b, v->x->name);
    buf_z(b, " {\n");
    put_legend(&w);
    if (v->size > 0) buf_printf(b, "size=\"%.6g,%.6g\";\n", v->size, v->size);
    buf_z(b, "rankdir=TB; ranksep=0.25; nodesep=0.2; labelloc=b; "
             "fontname=\"Helvetica,Arial,sans-serif\"; fontsize=11;\n"
             "node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica,Arial,sans-serif\", "
             "fontsize=11, margin=\"0.1,0.05\", "
             "height=0.3];\n"
             "edge [arrowsize=0.6, color=\"#555555\"];\n");
    if (w.p.n_columns > 1) put_columns(&w);
    else put_column(&w, 0);
    view_each_edge(v, put_edge, &w);
    buf_z(b, "}\n");
    arena_release(&w.a);
}
