// SPDX-License-Identifier: Apache-2.0
//
// Layers under a roofline (Williams, Waterman and Patterson, 2009): operations per byte if everything is touched once, and operations per
// second that were reached; below what memory and arithmetic allow by the run's own ceilings. Labels of layers are put beside their points
// one by one, where nothing is yet.
#include "lab/plot.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 960, HEIGHT = 560, LEFT = 86, RIGHT = 24, TOP = 84, BOTTOM = 72, MARK = 5, LABEL_HEIGHT = 12, LABEL_SIZE = 10, OFF_LINE = 14 };

struct roof {
    const struct plot_run *r;
    struct plot_page *p;
    struct plot_axis x, y;
    struct plot_box panel;
    double peak, gbps;                      /* the highest ceilings; 0: there is none */
    struct { struct plot_box *v; u32 n, cap; } taken;
    u32 n_who;
};

static double intensity(const struct plot_layer *l) { return l->flops / l->bytes; }
static double rate(const struct plot_layer *l, u32 who) { return l->flops / l->seconds[who] * 1e-9; }

/* Pixels. */

static double part_of(const struct plot_axis *a, double v) { return log(v / a->low) / log(a->high / a->low); }
static double pixel_x(const struct roof *f, double v) { return f->panel.left + part_of(&f->x, v) * (f->panel.right - f->panel.left); }
static double pixel_y(const struct roof *f, double v) { return f->panel.bottom - part_of(&f->y, v) * (f->panel.bottom - f->panel.top); }

static struct plot_box box_around(double x, double y, double w, double h) { return (struct plot_box){x - w / 2, y - h / 2, x + w / 2, y + h / 2}; }

static bool meet(struct plot_box a, struct plot_box b) { return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom; }

static bool is_free(const struct roof *f, struct plot_box b)
{
    if (b.left < f->panel.left || b.right > f->panel.right || b.top < f->panel.top || b.bottom > f->panel.bottom) return false;
    for (u32 i = 0; i < f->taken.n; i++)
        if (meet(b, f->taken.v[i])) return false;
    return true;
}

static void take(struct roof *f, struct plot_box b) { *arr_push(f->p->arena, &f->taken) = b; }

/* Axes. */

static void widen(double *low, double *high, double v)
{
    *low = fmin(*low, v), *high = fmax(*high, v);
}

static void set_axes(struct roof *f)
{
    double x0 = INFINITY, x1 = 0, y0 = INFINITY, y1 = 0;
    for (u32 i = 0; i < f->r->layer.n; i++)
        for (u32 who = 0; who < PLOT_WHO; who++) {
            const struct plot_layer *l = &f->r->layer.v[i];
            if (!(l->seconds[who] > 0)) continue;
            if (who >= f->n_who) f->n_who = who + 1;
            widen(&x0, &x1, intensity(l));
            widen(&y0, &y1, rate(l, who));
        }
    if (!f->n_who) return;
    for (u32 i = 0; i < f->r->ceiling.n; i++) {
        const struct plot_ceiling *c = &f->r->ceiling.v[i];
        if (c->is_memory) f->gbps = fmax(f->gbps, c->value);
        else f->peak = fmax(f->peak, c->value), widen(&y0, &y1, c->value);
    }
    if (f->gbps > 0 && f->peak > 0) widen(&x0, &x1, f->peak / f->gbps);
    f->x = plot_log_axis(x0 / 2, x1 * 2), f->y = plot_log_axis(y0 / 2, y1 * 1.5);
}

/* Ceilings. */

static u32 put_line(struct roof *f, const struct plot_ceiling *c)
{
    double x0 = f->x.low, x1 = f->x.high, y0 = c->value, y1 = c->value;
    if (c->is_memory) {
        if (f->peak > 0) x1 = fmin(x1, f->peak / c->value);
        y0 = x0 * c->value, y1 = x1 * c->value;
    } else if (f->gbps > 0) x0 = fmax(x0, c->value / f->gbps);
    u32 index = plot_page_data(f->p);
    buf_printf(&f->p->data, "# %.*s\n%.9g %.9g\n%.9g %.9g\n", STR_ARG(c->name), x0, y0, x1, y1);
    return index;
}

/* Above a level line at its right end, or below it where another's label is. */
static void label_level(struct roof *f, const struct plot_ceiling *c, struct str text)
{
    double w = plot_text_width(text.n, LABEL_SIZE), x = f->panel.right - 6 - w / 2, y = pixel_y(f, c->value) - 9;
    struct plot_box b = box_around(x, y, w, LABEL_HEIGHT);
    if (!is_free(f, b)) b = box_around(x, y += 18, w, LABEL_HEIGHT);
    plot_page_text(f->p, x + w / 2, y, "right font small", text);
    take(f, b);
    take(f, (struct plot_box){pixel_x(f, f->x.low), pixel_y(f, c->value) - 1, f->panel.right, pixel_y(f, c->value) + 1});
}

/* Along a slope, above it, from where it enters the panel. */
static void label_slope(struct roof *f, const struct plot_ceiling *c, struct str text)
{
    double enter = fmax(f->x.low, f->y.low / c->value);
    if (enter >= f->x.high || enter * c->value >= f->y.high) return; /* it is not to be seen */
    double x = pixel_x(f, enter), y = pixel_y(f, enter * c->value);
    double up = y - pixel_y(f, enter * 1.001 * c->value), along = pixel_x(f, enter * 1.001) - x, length = hypot(up, along);
    double cs = along / length, sn = up / length, w = plot_text_width(text.n, LABEL_SIZE);
    double from_x = x + 14 * cs - OFF_LINE * sn, from_y = y - 14 * sn - OFF_LINE * cs;
    if (from_x < f->panel.left + 10) from_y -= (f->panel.left + 10 - from_x) * sn / cs, from_x = f->panel.left + 10;
    const char *how = str_fmt(f->p->arena, "left rotate by %.1f font small", atan2(sn, cs) * 57.29577951308232).p;
    plot_page_text(f->p, from_x, from_y, how, text);
    for (double d = 0; d <= w; d += 6) take(f, box_around(from_x + d * cs, from_y - d * sn, LABEL_HEIGHT, LABEL_HEIGHT));
    double end = f->peak > 0 ? pixel_x(f, f->peak / c->value) : f->panel.right;
    for (double d = x; d <= fmin(end, f->panel.right); d += 3) take(f, box_around(d, y - (d - x) * sn / cs, 3, 4));
}

static void draw_ceilings(struct roof *f)
{
    static const int dashes[] = {1, 2, 4, 5};
    struct buf *s = &f->p->script;
    buf_z(s, "plot ");
    for (u32 i = 0; i < f->r->ceiling.n; i++) {
        const struct plot_ceiling *c = &f->r->ceiling.v[i];
        buf_printf(s, "%s'%s.dat' index %u using 1:2 with lines lw 2 dt %d lc rgb '#000000'", i ? ", \\\n     " : "", f->p->name, put_line(f, c),
                   dashes[i % countof(dashes)]);
    }
    if (f->r->ceiling.n) buf_z(s, ", \\\n     ");
}

static void label_ceilings(struct roof *f)
{
    for (u32 i = 0; i < f->r->ceiling.n; i++) {
        const struct plot_ceiling *c = &f->r->ceiling.v[i];
        struct str text = str_fmt(f->p->arena, "%.*s %.*s %.*s", STR_ARG(c->name), STR_ARG(plot_number(f->p->arena, c->value, 4)), STR_ARG(c->unit));
        if (c->is_memory) label_slope(f, c, text);
        else label_level(f, c, text);
    }
}

/* Layers. */

/* The first place around a point that is free, near ones first; far ones get a line to the point. */
static void label_point(struct roof *f, const struct plot_layer *l)
{
    static const double way[][2] = {{1, 0}, {-1, 0}, {0.75, -0.75}, {-0.75, -0.75}, {0.75, 0.75}, {-0.75, 0.75}, {0, -1}, {0, 1}};
    u32 who = l->seconds[0] > 0 ? 0 : 1;
    struct str text = str_fmt(f->p->arena, "L%lld", (long long)l->number);
    double x = pixel_x(f, intensity(l)), y = pixel_y(f, rate(l, who)), w = plot_text_width(text.n, LABEL_SIZE);
    for (double far = 0; far < 90; far += 7)
        for (i64 i = 0; i < countof(way); i++) {
            double tx = x + way[i][0] * (far + MARK + 2 + w / 2), ty = y + way[i][1] * (far + MARK + 2 + LABEL_HEIGHT / 2.0);
            struct plot_box b = box_around(tx, ty, w, LABEL_HEIGHT);
            if (!is_free(f, b)) continue;
            take(f, b);
            plot_page_text(f->p, tx, ty, "center font small", text);
            if (far > 7)
                buf_printf(&f->p->script, "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead lw 0.5 lc rgb '#666666'\n", x / WIDTH,
                           1 - y / f->p->height, (tx - way[i][0] * w / 2) / WIDTH, 1 - (ty - way[i][1] * LABEL_HEIGHT / 2) / f->p->height);
            return;
        }
}

static void label_layers(struct roof *f)
{
    for (u32 i = 0; i < f->r->layer.n; i++)
        for (u32 who = 0; who < f->n_who; who++) {
            const struct plot_layer *l = &f->r->layer.v[i];
            if (l->seconds[who] > 0) take(f, box_around(pixel_x(f, intensity(l)), pixel_y(f, rate(l, who)), 2 * MARK, 2 * MARK));
        }
    for (u32 i = 0; i < f->r->layer.n; i++)
        if (f->r->layer.v[i].seconds[0] > 0 || f->r->layer.v[i].seconds[1] > 0) label_point(f, &f->r->layer.v[i]);
}

static u32 put_points(struct roof *f, u32 who)
{
    u32 index = plot_page_data(f->p);
    buf_printf(&f->p->data, "# %.*s: FLOP/byte, GFLOP/s, layer\n", STR_ARG(f->r->who[who]));
    for (u32 i = 0; i < f->r->layer.n; i++) {
        const struct plot_layer *l = &f->r->layer.v[i];
        if (l->seconds[who] > 0) buf_printf(&f->p->data, "%.9g %.9g \"L%lld %.*s\"\n", intensity(l), rate(l, who), (long long)l->number, STR_ARG(l->name));
    }
    return index;
}

/* From the baseline's point of a layer to the implementation's. */
static u32 put_pairs(struct roof *f)
{
    u32 index = plot_page_data(f->p);
    buf_z(&f->p->data, "# pairs: FLOP/byte, GFLOP/s\n");
    for (u32 i = 0; i < f->r->layer.n; i++) {
        const struct plot_layer *l = &f->r->layer.v[i];
        if (l->seconds[0] > 0 && l->seconds[1] > 0) buf_printf(&f->p->data, "%.9g %.9g\n%.9g %.9g\n\n", intensity(l), rate(l, 1), intensity(l), rate(l, 0));
    }
    return index;
}

static void draw_points(struct roof *f)
{
    struct buf *s = &f->p->script;
    bool has_pairs = false;
    for (u32 i = 0; i < f->r->layer.n; i++) has_pairs |= f->r->layer.v[i].seconds[0] > 0 && f->r->layer.v[i].seconds[1] > 0;
    if (has_pairs) buf_printf(s, "'%s.dat' index %u using 1:2 with lines lw 0.7 dt 3 lc rgb '#000000', \\\n     ", f->p->name, put_pairs(f));
    for (u32 who = f->n_who; who-- > 0;)
        buf_printf(s, "'%s.dat' index %u using 1:2 with points %s%s", f->p->name, put_points(f, who), plot_mark[who], who ? ", \\\n     " : "\n");
}

bool plot_roofline(struct plot_page *p, struct arena *a, const struct plot_run *r)
{
    struct roof f = {.r = r, .p = p};
    plot_page_open(p, a, "roofline", WIDTH, HEIGHT + (u32)plot_page_names_height(r, WIDTH));
    f.panel = (struct plot_box){LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM};
    set_axes(&f);
    if (!f.n_who) return false;
    struct buf *s = &p->script;
    struct plot_look look[PLOT_WHO];
    for (u32 i = 0; i < f.n_who; i++) look[i] = (struct plot_look){str_fmt(a, "points %s", plot_mark[i]).p, r->who[i]};
    plot_page_names(p, r, HEIGHT);
    plot_page_head(p, "Layers under the roofline", r->about, look, f.n_who);
    plot_page_panel(p, f.panel);
    plot_axis_print(s, &f.x, 'x');
    plot_axis_print(s, &f.y, 'y');
    buf_z(s, "set xlabel 'operations per byte if everything is touched once (FLOP/byte, logarithmic)'\nset ylabel 'GFLOP/s (logarithmic)'\n");
    buf_z(s, "set grid xtics ytics lt 1 lc rgb '#dddddd' lw 0.7\n");
    label_ceilings(&f);
    label_layers(&f);
    draw_ceilings(&f);
    draw_points(&f);
    return true;
}
