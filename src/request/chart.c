// SPDX-License-Identifier: Apache-2.0
//
// A profile as a Gantt chart, SVG: a row per device instance, a bar per sub-graph that ran, a colour per request; copies are the dark ends of bars. The time
// axis begins with the first sub-graph.
#include "request/request_private.h"

enum { LEFT = 130, WIDTH = 1000, ROW = 34, BAR = 24, TOP = 40, MAX_BARS = 20000, N_COLOURS = 8, MIN_TEXT = 40 };

static const char *const colour[N_COLOURS] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f"}; /* Tableau 10 */

struct span { double begin, end; };

static bool is_bar(const struct req_event *x) { return x->step == STEP_SUBGRAPH || x->step == STEP_FROM_INPUT || x->step == STEP_TO_OUTPUT; }

static struct span span_of(const struct req_events *s)
{
    struct span t = {0};
    bool any = false;
    for (u32 i = 0; i < s->n; i++) {
        const struct req_event *x = &s->v[i];
        if (x->step != STEP_SUBGRAPH) continue;
        if (!any || x->begin < t.begin) t.begin = x->begin;
        if (!any || x->end > t.end) t.end = x->end;
        any = true;
    }
    if (t.end <= t.begin) t.end = t.begin + 1e-6;
    return t;
}

static void put_escaped(struct buf *b, struct str s)
{
    for (i64 i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '<') buf_z(b, "&lt;");
        else if (c == '>') buf_z(b, "&gt;");
        else if (c == '&') buf_z(b, "&amp;");
        else if (c == '"') buf_z(b, "&quot;");
        else buf_char(b, c);
    }
}

static void put_bar(struct buf *b, const struct req_event *x, struct span t)
{
    double scale = WIDTH / (t.end - t.begin), at = LEFT + (x->begin - t.begin) * scale, width = (x->end - x->begin) * scale;
    double y = TOP + (double)x->device * ROW;
    bool is_copy = x->step != STEP_SUBGRAPH;
    buf_printf(b, "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s><title>", at, y, width, BAR,
               is_copy ? "#000000" : colour[x->request % N_COLOURS], is_copy ? " fill-opacity=\"0.35\"" : "");
    put_escaped(b, x->what);
    buf_printf(b, ", request %lld, %.3f ms</title></rect>\n", (long long)x->request, (x->end - x->begin) * 1e3);
    if (is_copy || width < MIN_TEXT + 6 * (double)x->what.n) return;
    buf_printf(b, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\" fill=\"white\">", at + width / 2, y + 16);
    put_escaped(b, x->what);
    buf_z(b, "</text>\n");
}

/* About ten ticks at 1, 2 or 5 times a power of ten. */
static void put_axis(struct buf *b, struct span t, u32 n_rows)
{
    double length = (t.end - t.begin) * 1e3, step = 1e-6, y = TOP + (double)n_rows * ROW;
    for (int k = 0; length / step > 10; k++) step *= k % 3 == 1 ? 2.5 : 2;
    for (double ms = 0; ms <= length * 1.0001; ms += step) {
        double x = LEFT + ms / length * WIDTH;
        buf_printf(b, "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%.0f\" stroke=\"#dddddd\"/>", x, TOP - 6, x, y);
        buf_printf(b, "<text x=\"%.2f\" y=\"%.0f\" text-anchor=\"middle\">%g</text>\n", x, y + 16, ms);
    }
    buf_printf(b, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\">ms</text>\n", LEFT - 10, y + 16);
}

void chart_print(struct buf *b, const struct req_model *m)
{
    struct span t = span_of(&m->events);
    u32 n = m->device.n, bars = 0;
    buf_printf(b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" font-family=\"sans-serif\" font-size=\"12\">\n", LEFT + WIDTH + 20,
               TOP + n * ROW + 30);
    buf_z(b, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"10\" y=\"20\" font-size=\"14\">");
    put_escaped(b, m->meta->name);
    buf_z(b, "</text>\n");
    put_axis(b, t, n);
    for (u32 k = 0; k < n; k++) {
        buf_printf(b, "<text x=\"%d\" y=\"%u\" text-anchor=\"end\">", LEFT - 10, TOP + k * ROW + 16);
        put_escaped(b, m->device.v[k]->place.name);
        buf_z(b, "</text>\n");
    }
    for (u32 i = 0; i < m->events.n && bars < MAX_BARS; i++)
        if (is_bar(&m->events.v[i])) put_bar(b, &m->events.v[i], t), bars++;
    buf_z(b, "</svg>\n");
}
