// SPDX-License-Identifier: Apache-2.0
//
// Plots of samples: a violin for each layer (Hintze and Nelson, 1998, with quartiles as a bar and the median as a dot), two halves of violins
// against the baseline, and medians. Layers differ by orders of magnitude, and their samples by little: each has axes of its own.
#include "lab/plot.h"

#include "tune/tune.h"

#include <math.h>
#include <string.h>

enum { PANEL = 178, GAP_LEFT = 66, GAP_TOP = 34, LARGE = 360, HEAD = 84, FOOT = 22 };

/* The kernels' violins of all layers. */
struct violins {
    const struct plot_run *r;
    struct plot_page *p;
    struct arena *a;
    bool both;             /* halves */
    u32 n, columns;        /* panels */
    double width, height;  /* of one, without gaps */
};

static bool is_drawn(const struct plot_layer *x, bool both) { return x->ms[0].n && (!both || x->ms[1].n); }

static u32 n_drawn(const struct plot_run *r, bool both)
{
    u32 n = 0;
    for (u32 i = 0; i < r->layer.n; i++) n += is_drawn(&r->layer.v[i], both);
    return n;
}

/* An outline, and a block with its quartiles. side -1: the left half, 1: the right one, 0: both. Returns the outline's index. */
static u32 put_violin(struct violins *v, const struct plot_layer *x, u32 who, const struct plot_density *d, int side)
{
    struct buf *b = &v->p->data;
    u32 index = plot_page_data(v->p);
    buf_printf(b, "# L%lld %.*s, %.*s: offset, ms; %u samples, %u below, %u above, kernel %.6g ms\n", (long long)x->number, STR_ARG(x->name),
               STR_ARG(v->r->who[who]), d->n, d->n_below, d->n_above, d->width);
    double flat = d->width > 0 ? 0 : 1; /* of equal samples: a line */
    for (u32 k = 0; k <= PLOT_STEPS; k++) buf_printf(b, "%.6g %.9g\n", side < 0 ? 0 : d->d[k] + flat, d->width > 0 ? d->at[k] : d->median);
    for (u32 k = PLOT_STEPS + 1; k-- > 0;)
        buf_printf(b, "%.6g %.9g\n", side > 0 ? 0 : -d->d[k] - flat, d->width > 0 ? d->at[k] : d->median);
    buf_printf(b, "%.6g %.9g\n", side < 0 ? 0 : d->d[0] + flat, d->width > 0 ? d->at[0] : d->median);
    plot_page_data(v->p);
    buf_printf(b, "# offset, median, quartiles\n%.6g %.9g %.9g %.9g\n", 0.12 * side, d->median, d->q1, d->q3);
    return index;
}

static void plot_violin(struct violins *v, u32 index, u32 who)
{
    struct buf *s = &v->p->script;
    buf_printf(s, "%s '%s.dat' index %u using 1:2 with filledcurves closed %s", who ? ", \\\n    " : "plot", v->p->name, index, plot_fill[who]);
    buf_printf(s, ", \\\n     '' index %u using 1:3:(0):($4-$3) with vectors nohead lw 4 lc rgb '#000000'", index + 1);
    buf_printf(s, ", \\\n     '' index %u using 1:2 with points pt 7 ps 0.7 lc rgb '#000000'", index + 1);
    buf_printf(s, ", \\\n     '' index %u using 1:2 with points pt 7 ps 0.35 lc rgb '#ffffff'", index + 1);
}

/* What lies outside of what is drawn is told. */
static void put_rest(struct violins *v, const struct plot_density *d, u32 n)
{
    u32 below = 0, above = 0;
    for (u32 i = 0; i < n; i++) below += d[i].n_below, above += d[i].n_above;
    struct buf *s = &v->p->script;
    if (above) buf_printf(s, "set label '%u above' at graph 0.96,0.94 right font small\n", above);
    if (below) buf_printf(s, "set label '%u below' at graph 0.96,0.05 right font small\n", below);
}

static void put_panel(struct violins *v, u32 k, const struct plot_layer *x)
{
    struct plot_density *d = arena_array(v->a, struct plot_density, PLOT_WHO);
    struct buf *s = &v->p->script;
    u32 index[PLOT_WHO], n = v->both ? 2 : 1;
    double left = 10 + GAP_LEFT + (k % v->columns) * (v->width + GAP_LEFT), top = HEAD + (k / v->columns) * (v->height + GAP_TOP);
    for (u32 i = 0; i < n; i++) {
        plot_density(&d[i], &x->ms[i], v->a);
        index[i] = put_violin(v, x, i, &d[i], !v->both ? 0 : i ? 1 : -1);
    }
    double low = fmin(d[0].low, d[n - 1].low), high = fmax(d[0].high, d[n - 1].high);
    struct plot_axis y = plot_axis(low - 0.03 * (high - low), high + 0.03 * (high - low), v->height > PANEL ? 8 : 4);
    plot_page_panel(v->p, (struct plot_box){left, top, left + v->width, top + v->height});
    plot_axis_print(s, &y, 'y');
    buf_printf(s, "set xrange [-1.15:1.15]\nunset xtics\nset ytics font small\n");
    if (k % v->columns == 0) plot_page_text(v->p, 12, top + v->height / 2, "center rotate by 90", S("run time (ms)"));
    buf_printf(s, "set label 'L%lld  %.*s", (long long)x->number, STR_ARG(plot_number(v->a, d[0].median, 4)));
    if (v->both) buf_printf(s, " | %.*s", STR_ARG(plot_number(v->a, d[1].median, 4)));
    buf_z(s, " ms' at graph 0.5,1 center offset 0,0.6\n");
    put_rest(v, d, n);
    for (u32 i = 0; i < n; i++) plot_violin(v, index[i], i);
    buf_z(s, "\nunset label\n");
}

static const char *fill_with(struct arena *a, u32 who) { return str_fmt(a, "boxes %s", plot_fill[who]).p; }

static bool draw_violins(struct violins *v, const char *name, const char *title)
{
    v->n = n_drawn(v->r, v->both);
    v->columns = v->n <= 3 ? (u32)i64_max(v->n, 1) : (u32)ceil(sqrt(v->n * 1.5));
    v->width = v->height = v->n == 1 ? LARGE : PANEL;
    u32 width = (u32)i64_max((i64)(v->columns * (v->width + GAP_LEFT)) + 30, 640), rows = (u32)ceil_div(v->n, v->columns), k = 0;
    double bottom = HEAD + rows * (v->height + GAP_TOP);
    plot_page_open(v->p, v->a, name, width, (u32)(bottom + plot_page_names_height(v->r, width)));
    if (!v->n) return false;
    if (v->n == 1) v->width = width - GAP_LEFT - 40;
    const struct plot_look look[] = {{fill_with(v->a, 0), v->r->who[0]}, {fill_with(v->a, 1), v->r->who[1]}};
    plot_page_names(v->p, v->r, bottom);
    plot_page_head(v->p, title, v->r->about, look, v->both ? 2 : 0);
    for (u32 i = 0; i < v->r->layer.n; i++)
        if (is_drawn(&v->r->layer.v[i], v->both)) put_panel(v, k++, &v->r->layer.v[i]);
    return true;
}

bool plot_violins(struct plot_page *p, struct arena *a, const struct plot_run *r)
{
    struct violins v = {.r = r, .p = p, .a = a};
    return draw_violins(&v, "violin", str_fmt(a, "Run times of %.*s, by layer", STR_ARG(r->who[0])).p);
}

bool plot_halves(struct plot_page *p, struct arena *a, const struct plot_run *r)
{
    struct violins v = {.r = r, .p = p, .a = a, .both = true};
    return draw_violins(&v, "split", str_fmt(a, "Run times of %.*s and %.*s, by layer", STR_ARG(r->who[0]), STR_ARG(r->who[1])).p);
}

/* Medians. */

enum { BARS = 300, RATIOS = 150, BAR_LEFT = 86, BAR_RIGHT = 20, LAYER_WIDTH = 56, LEAST_WIDTH = 640 };
#define INTERVAL "heads size screen 0.004,90 lw 1.5 lc rgb '#000000'"

struct medians {
    const struct plot_run *r;
    struct plot_page *p;
    struct stats (*ms)[PLOT_WHO], *ratio; /* by layer */
    u32 n_who;
    double bar;                           /* pixels */
};

static struct stats stats_of_list(const double *v, u32 n, struct arena *a)
{
    double *copy = arena_array(a, double, n + 1);
    if (n) memcpy(copy, v, n * sizeof *v);
    return stats_of(copy, n);
}

/* Medians of rounds, with 95 % intervals; ratio: baseline / implementation, round by round. */
static void find_medians(struct medians *m, struct arena *a)
{
    m->ms = (void *)arena_array(a, struct stats, m->r->layer.n * PLOT_WHO);
    m->ratio = arena_array(a, struct stats, m->r->layer.n);
    for (u32 i = 0; i < m->r->layer.n; i++) {
        const struct plot_layer *x = &m->r->layer.v[i];
        u32 n = (u32)i64_min(x->ms[0].n, x->ms[1].n);
        double *q = arena_array(a, double, n + 1);
        for (u32 k = 0; k < n; k++) q[k] = x->ms[1].v[k] / x->ms[0].v[k];
        for (u32 who = 0; who < PLOT_WHO; who++) m->ms[i][who] = stats_of_list(x->ms[who].v, x->ms[who].n, a);
        m->ratio[i] = stats_of_list(q, n, a);
        if (n) m->n_who = 2;
    }
}

static void put_medians(struct medians *m)
{
    struct buf *b = &m->p->data;
    for (u32 who = 0; who < m->n_who; who++) {
        plot_page_data(m->p);
        buf_printf(b, "# %.*s: position, ms, 95 %% interval, text, layer\n", STR_ARG(m->r->who[who]));
        for (u32 i = 0; i < m->r->layer.n; i++) {
            struct stats s = m->ms[i][who];
            if (m->r->layer.v[i].ms[who].n)
                buf_printf(b, "%.6g %.9g %.9g %.9g \"%.*s\" \"%.*s\"\n", i + (m->n_who > 1 ? who ? 0.2 : -0.2 : 0), s.median, s.low, s.high,
                           STR_ARG(plot_number(m->p->arena, s.median, 3)), STR_ARG(m->r->layer.v[i].name));
        }
    }
    if (m->n_who < 2) return;
    plot_page_data(m->p);
    buf_z(b, "# position, ratio, 95 % interval, text\n");
    for (u32 i = 0; i < m->r->layer.n; i++)
        if (m->ratio[i].median > 0)
            buf_printf(b, "%u %.9g %.9g %.9g \"%.*s\"\n", i, m->ratio[i].median, m->ratio[i].low, m->ratio[i].high,
                       STR_ARG(plot_number(m->p->arena, m->ratio[i].median, 3)));
}

/* From the shortest to the longest with its interval; extra: room for texts above, as a part of the whole. Beyond a ratio of `most` the axis is
   logarithmic. */
static struct plot_axis axis_of(double low, double high, double most, double extra)
{
    if (high <= most * low) return plot_axis(0, high * (1 + extra), 8);
    struct plot_axis x = plot_log_axis(low * 0.9, high);
    x.high = high * pow(high / x.low, extra);
    return x;
}

static struct plot_axis time_axis(const struct medians *m, bool is_turned)
{
    double low = INFINITY, high = 0;
    for (u32 i = 0; i < m->r->layer.n; i++)
        for (u32 who = 0; who < m->n_who; who++) {
            if (!m->r->layer.v[i].ms[who].n) continue;
            low = fmin(low, m->ms[i][who].low), high = fmax(high, m->ms[i][who].high);
        }
    return axis_of(low, high, 20, is_turned ? 0.18 : 0.09);
}

static void set_layers(struct medians *m, bool has_names)
{
    struct buf *s = &m->p->script;
    buf_printf(s, "set xrange [-0.6:%.1f]\nset xtics scale 0 (", m->r->layer.n - 0.4);
    for (u32 i = 0; i < m->r->layer.n; i++)
        if (has_names) buf_printf(s, "%s'L%lld' %u", i ? ", " : "", (long long)m->r->layer.v[i].number, i);
    if (!has_names) buf_z(s, "'' 0");
    buf_z(s, ")\n");
}

static void draw_bars(struct medians *m, double bottom)
{
    struct buf *s = &m->p->script;
    bool is_turned = m->bar < 40;
    struct plot_axis y = time_axis(m, is_turned);
    plot_page_panel(m->p, (struct plot_box){BAR_LEFT, HEAD, m->p->width - BAR_RIGHT, bottom});
    set_layers(m, m->n_who < 2);
    plot_axis_print(s, &y, 'y');
    buf_printf(s, "set ylabel 'median run time (ms%s)'\nset grid ytics lt 1 lc rgb '#dddddd' lw 0.7\n", y.is_log ? ", logarithmic" : "");
    for (u32 who = 0; who < m->n_who; who++) {
        buf_printf(s, "%s 'medians.dat' index %u using 1:2:(%g) with boxes %s", who ? ", \\\n    " : "plot", who,
                   m->n_who > 1 ? 0.38 : 0.6, plot_fill[who]);
        buf_printf(s, ", \\\n     '' index %u using 1:3:(0):($4-$3) with vectors " INTERVAL, who);
        buf_printf(s, ", \\\n     '' index %u using 1:4:5 with labels font small %s", who,
                   is_turned ? "rotate by 90 left offset 0,0.4" : "center offset 0,0.6");
    }
    buf_z(s, "\n");
}

static void draw_ratios(struct medians *m, double top)
{
    struct buf *s = &m->p->script;
    double low = 1, high = 1;
    for (u32 i = 0; i < m->r->layer.n; i++)
        if (m->ratio[i].median > 0) low = fmin(low, m->ratio[i].low), high = fmax(high, m->ratio[i].high);
    struct plot_axis y = axis_of(low, high, 4, 0.2);
    plot_page_panel(m->p, (struct plot_box){BAR_LEFT, top, m->p->width - BAR_RIGHT, top + RATIOS});
    set_layers(m, true);
    plot_axis_print(s, &y, 'y');
    buf_printf(s, "set ylabel 'times as fast%s'\n", y.is_log ? " (log)" : "");
    buf_z(s, "plot 1 with lines lw 1 dt 2 lc rgb '#000000', \\\n     'medians.dat' index 2 using 1:3:(0):($4-$3) with vectors " INTERVAL);
    buf_z(s, ", \\\n     '' index 2 using 1:2 with points pt 7 ps 0.5 lc rgb '#000000'"
             ", \\\n     '' index 2 using 1:4:5 with labels center font small offset 0,0.6\n");
}

bool plot_medians(struct plot_page *p, struct arena *a, const struct plot_run *r)
{
    struct medians m = {.r = r, .p = p, .n_who = 1};
    u32 width = (u32)i64_max(BAR_LEFT + BAR_RIGHT + LAYER_WIDTH * (i64)r->layer.n, LEAST_WIDTH);
    find_medians(&m, a);
    double ratios = m.n_who > 1 ? RATIOS + 16 : 0, bottom = HEAD + BARS + ratios + 46;
    m.bar = (double)(width - BAR_LEFT - BAR_RIGHT) / (r->layer.n + 0.2) * (m.n_who > 1 ? 0.38 : 0.6);
    plot_page_open(p, a, "medians", width, (u32)(bottom + plot_page_names_height(r, width)));
    if (!n_drawn(r, false)) return false;
    const struct plot_look look[] = {{fill_with(a, 0), r->who[0]}, {fill_with(a, 1), r->who[1]}};
    plot_page_names(p, r, bottom);
    plot_page_head(p, "Median run times with 95 % intervals", r->about, look, m.n_who);
    put_medians(&m);
    draw_bars(&m, HEAD + BARS);
    if (m.n_who > 1) draw_ratios(&m, HEAD + BARS + 16);
    return true;
}
