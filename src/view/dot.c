// SPDX-License-Identifier: Apache-2.0
//
// Graphviz's language: operators as boxes in the colour of their device, tensors as ellipses in one
// colour, sub-graphs as frames, a legend below. n devices have n + 1 colours.
//
// The colours are Paul Tol's "light" scheme, which is made for black text on it and distinct for
// all kinds of colour vision. Further devices get lighter and darker ones.
//
// Of groups (view.groups) one box each is drawn, and only tensors that pass between them.
// Parameters are drawn on request, for operators that are no group.
//
// Networks are long chains, pictures are not. Boxes are divided by their depth into columns, about
// as many as make the picture as wide as a page. A tensor that boxes of another column read is
// repeated there, with a dashed border, so no edge leaves its column, and every column starts at
// the top. One that many boxes read is repeated beside each but the first.
#include "view/view.h"

#include <math.h>

#include "op/op.h"

struct writer {
    struct buf *b;
    const struct view *v;
    struct arena a;
    u8 *is_read;  /* per tensor: a reader was met */
    u32 *part;    /* per tensor: 1 + sub-graph that is all that it concerns; 0: none, or several */
    u8 *is_shown; /* per tensor */
    u32 *maker;   /* per tensor: 1 + operator; 0: none */
    u32 n_columns;
    u32 *column;  /* per box */
    u32 *home;    /* per tensor: its column */
    u16 *repeats; /* per tensor: bits of other columns that it is repeated in */
    u32 *first; /* per tensor that is repeated beside each box: 1 + the first box that reads it; 0:
                   it is not */
};

enum { MANY_STEPS = 16, MOST_COLUMNS = 12, MANY_READERS = 5 };

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

static struct colour device_colour(u32 k)
{
    static const struct colour light[] = {
        {0x77, 0xaa, 0xdd}, {0xee, 0x88, 0x66}, {0xee, 0xdd, 0x88}, {0xff, 0xaa, 0xbb},
        {0x44, 0xbb, 0x99}, {0x99, 0xdd, 0xff}, {0xbb, 0xcc, 0x33}, {0xaa, 0xaa, 0x00}};
    struct colour c = light[k % countof(light)];
    const u32 round = k / countof(light), step = 1 + (round + 1) / 2;
    if (round == 0) return c;
    if (round % 2)
        return (struct colour){255 - (255 - c.r) / step, 255 - (255 - c.g) / step,
                               255 - (255 - c.b) / step};
    return (struct colour){c.r - c.r / (step + 2), c.g - c.g / (step + 2), c.b - c.b / (step + 2)};
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

static bool is_group(const struct view *v, u32 op)
{
    return v->groups.of && v->groups.group.v[v->groups.of[op]].op.n > 1;
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
    if (is_group(w->v, op)) buf_printf(w->b, "\"group %u\"", w->v->groups.of[op]);
    else put_id(w->b, w->v->x->op.v[op].name);
}

/* Tensors. */

static bool is_interface(const struct graph *g, value_id v)
{
    for (u32 k = 0; k < g->input.n; k++)
        if (g->input.v[k] == v) return true;
    for (u32 k = 0; k < g->output.n; k++)
        if (g->output.v[k] == v) return true;
    return false;
}

static bool same_box(const struct view *v, u32 a, u32 b)
{
    return a == b || (v->groups.of && v->groups.of[a] == v->groups.of[b]);
}

static void note_reader(struct writer *w, u32 t, u32 op)
{
    const struct view *v = w->v;
    const bool is_param = v->x->tensor.v[t].is_param;
    const u32 part = v->part_of ? v->part_of[op] + 1 : 0;
    w->part[t] = !w->is_read[t] && !w->maker[t] ? part : w->part[t] == part ? part : 0;
    w->is_read[t] = 1;
    if (is_param) w->is_shown[t] |= v->shows_params && !is_group(v, op);
    else w->is_shown[t] |= !w->maker[t] || !same_box(v, w->maker[t] - 1, op);
}

static void find_tensors(struct writer *w)
{
    const struct place_net *x = w->v->x;
    w->is_read = arena_array(&w->a, u8, x->tensor.n + 1);
    w->maker = arena_array(&w->a, u32, x->tensor.n + 1);
    w->part = arena_array(&w->a, u32, x->tensor.n + 1);
    w->is_shown = arena_array(&w->a, u8, x->tensor.n + 1);
    for (u32 k = 0; k < x->op.n; k++) {
        const struct place_op *op = &x->op.v[k];
        for (u32 i = 0; i < op->in.n; i++) note_reader(w, op->in.v[i], k);
        for (u32 i = 0; i < op->out.n; i++) {
            w->maker[op->out.v[i]] = k + 1;
            w->part[op->out.v[i]] = w->v->part_of ? w->v->part_of[k] + 1 : 0;
        }
    }
    for (u32 t = 0; t < x->tensor.n; t++)
        if (is_interface(&x->g, x->tensor.v[t].value)) w->is_shown[t] = 1, w->part[t] = 0;
}

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
    const bool is_end = is_interface(&w->v->x->g, x->value);
    put_id(b, x->name);
    buf_z(b, " [label=\"");
    put_text(b, x->name);
    if (is_end) buf_z(b, "\\n"), put_text(b, v->name);
    buf_z(b, "\\n");
    put_shape(b, &w->v->x->g, v);
    buf_z(b, "\", tooltip=\"");
    put_text(b, v->name);
    buf_printf(b,
               "\", shape=%s, style=filled, fontsize=9, margin=\"0.04,0.02\", height=0.2, "
               "fillcolor=\"#dddddd\"%s];\n",
               x->is_param ? "note" : "box", is_end ? ", penwidth=2" : "");
}

/* Columns. */

static u32 box_of(const struct view *v, u32 op) { return v->groups.of ? v->groups.of[op] : op; }

static u32 n_boxes(const struct view *v) { return v->groups.of ? v->groups.group.n : v->x->op.n; }

/* Longest paths to the boxes, whose numbers need not be in topological order. Returns the longest
 * one. */
static u32 find_depths(struct writer *w, u32 *depth)
{
    enum { MOST_SWEEPS = 100 };
    const struct place_net *x = w->v->x;
    u32 most = 0;
    bool changed = true;
    for (u32 sweep = 0; changed && sweep < MOST_SWEEPS; sweep++) {
        changed = false;
        for (u32 k = 0; k < x->op.n; k++)
            for (u32 i = 0; i < x->op.v[k].in.n; i++) {
                const u32 maker = w->maker[x->op.v[k].in.v[i]], to = box_of(w->v, k);
                const u32 from = maker ? box_of(w->v, maker - 1) : to;
                if (from == to || depth[to] > depth[from]) continue;
                depth[to] = depth[from] + 1, changed = true;
                most = depth[to] > most ? depth[to] : most;
            }
    }
    return most;
}

/* Inputs are above their first reader. */
static void find_homes(struct writer *w)
{
    const struct place_net *x = w->v->x;
    for (u32 t = 0; t < x->tensor.n; t++)
        w->home[t] = w->maker[t] ? w->column[box_of(w->v, w->maker[t] - 1)] : UINT32_MAX;
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) {
            const u32 t = x->op.v[k].in.v[i], c = w->column[box_of(w->v, k)];
            if (!w->maker[t] && c < w->home[t]) w->home[t] = c;
        }
    for (u32 t = 0; t < x->tensor.n; t++)
        if (w->home[t] == UINT32_MAX) w->home[t] = 0; /* nothing reads it */
}

static bool is_drawn(const struct writer *w, u32 op, u32 tensor)
{
    return w->is_shown[tensor] && !(w->v->x->tensor.v[tensor].is_param && is_group(w->v, op));
}

static void find_repeats(struct writer *w)
{
    const struct place_net *x = w->v->x;
    u32 *last = arena_array(&w->a, u32, x->tensor.n + 1),
        *n = arena_array(&w->a, u32, x->tensor.n + 1);
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) {
            const u32 t = x->op.v[k].in.v[i], box = box_of(w->v, k), c = w->column[box];
            if (!is_drawn(w, k, t)) continue;
            if (c != w->home[t]) w->repeats[t] |= (u16)(1u << c);
            if (last[t] != box + 1) n[t]++;
            if (!w->first[t] && c == w->home[t]) w->first[t] = box + 1;
            last[t] = box + 1;
        }
    for (u32 t = 0; t < x->tensor.n; t++) {
        if (n[t] < MANY_READERS) w->first[t] = 0;
        else w->repeats[t] = 0;
    }
}

static void find_columns(struct writer *w)
{
    const struct place_net *x = w->v->x;
    w->column = arena_array(&w->a, u32, n_boxes(w->v) + 1);
    w->home = arena_array(&w->a, u32, x->tensor.n + 1);
    w->repeats = arena_array(&w->a, u16, x->tensor.n + 1);
    w->first = arena_array(&w->a, u32, x->tensor.n + 1);
    const u32 most = find_depths(w, w->column);
    w->n_columns =
        most < MANY_STEPS ? 1 : (u32)fmin(MOST_COLUMNS, fmax(1, round(sqrt(0.38 * most))));
    for (u32 k = 0; k < n_boxes(w->v); k++)
        w->column[k] = (u32)((u64)w->column[k] * w->n_columns / (most + 1));
    find_homes(w);
    find_repeats(w);
}

/* The picture. */

/* The tensor as drawn in that column. */
static void put_tensor_id(struct writer *w, u32 tensor, u32 column)
{
    const struct str name = w->v->x->tensor.v[tensor].name;
    if (column == w->home[tensor]) put_id(w->b, name);
    else buf_printf(w->b, "\"%.*s again %u\"", STR_ARG(name), column);
}

static void put_repeat(struct writer *w, u32 tensor)
{
    buf_printf(w->b,
               " [label=\"%.*s\", style=\"filled,dashed\", fontsize=9, margin=\"0.04,0.02\", "
               "height=0.2, fillcolor=\"#dddddd\"];\n",
               STR_ARG(w->v->x->tensor.v[tensor].name));
}

static void put_edge(void *user, u32 op, u32 tensor, bool is_out)
{
    struct writer *w = user;
    const u32 box = box_of(w->v, op);
    if (!is_drawn(w, op, tensor)) return;
    if (!is_out && w->maker[tensor] && w->v->groups.of && same_box(w->v, w->maker[tensor] - 1, op))
        return;
    if (is_out) put_box_id(w, op), buf_z(w->b, " -> ");
    if (!is_out && w->first[tensor] && w->first[tensor] != box + 1) {
        const struct str id =
            str_fmt(&w->a, "\"%.*s at %u\"", STR_ARG(w->v->x->tensor.v[tensor].name), box);
        buf_str(w->b, id), put_repeat(w, tensor), buf_str(w->b, id);
    } else put_tensor_id(w, tensor, w->column[box]);
    if (!is_out) buf_z(w->b, " -> "), put_box_id(w, op);
    buf_z(w->b, ";\n");
}

static bool put_boxes(struct writer *w, u32 part, u32 column, bool dry)
{
    const struct view *v = w->v;
    bool any = false;
    for (u32 k = 0; k < n_boxes(v); k++) {
        const u32 own = v->groups.of ? v->groups.group.v[k].part : v->part_of ? v->part_of[k] : 0;
        if (own != part || w->column[k] != column) continue;
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
        if (w->is_shown[t] && w->part[t] == part && w->home[t] == column) put_tensor(w, t);
        if (part || !(w->repeats[t] >> column & 1)) continue;
        put_tensor_id(w, t, column);
        put_repeat(w, t);
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

/* Invisible nodes at the top, one before the other, hold the columns in order. */
static void put_anchors(struct writer *w)
{
    const struct view *v = w->v;
    if (w->n_columns < 2) return;
    buf_z(w->b,
          "{rank=same; node [shape=point, style=invis, width=0, height=0]; edge [style=invis];\n");
    for (u32 c = 0; c < w->n_columns; c++) buf_printf(w->b, "%s\"column %u\"", c ? " -> " : "", c);
    buf_z(w->b, ";}\n");
    for (u32 c = 0; c < w->n_columns; c++) {
        u32 k = 0;
        while (k < v->x->op.n && w->column[box_of(v, k)] != c) k++;
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
    find_tensors(&w);
    find_columns(&w);
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
    put_anchors(&w);
    for (u32 c = 0; c < w.n_columns; c++) {
        if (v->parts) put_frames(&w, c);
        else put_boxes(&w, 0, c, false);
        put_tensors(&w, 0, c);
    }
    view_each_edge(v, put_edge, &w);
    buf_z(b, "}\n");
    arena_release(&w.a);
}
