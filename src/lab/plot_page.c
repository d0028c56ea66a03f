// SPDX-License-Identifier: Apache-2.0
//
// A page: one picture of one or more panels, its gnuplot script and data. All positions are in pixels and worked out here, so that nothing
// overlaps whatever the number of layers; a script draws the same page twice, as SVG and as PNG. Names are drawn as they are (no markup).
#include "lab/plot.h"

#include <math.h>

/* Paper of both colours shows which is which: filled and hatched, dot and triangle. */
const char *const plot_fill[PLOT_WHO] = {"fc rgb '#3b6ea5' fs solid 0.75 border lc rgb '#000000'", "fc rgb '#b0500f' fs pattern 5 border lc rgb '#000000'"};
const char *const plot_mark[PLOT_WHO] = {"pt 7 ps 1.1 lc rgb '#3b6ea5'", "pt 8 ps 1.1 lw 1.3 lc rgb '#b0500f'"};

static const double gnuplot_seconds = 120;
static const double name_size = 10, name_line = 15, edge = 14;
static const double legend_top = 48, legend_line = 14, legend_size = 12, legend_sample = 80;

double plot_text_width(i64 n, double size) { return 0.6 * size * (double)n; }

struct str plot_number(struct arena *a, double v, int digits)
{
    return v >= pow(10, digits - 1) && v < 1e9 ? str_fmt(a, "%.0f", v) : str_fmt(a, "%.*g", digits, v);
}

void plot_page_open(struct plot_page *p, struct arena *a, const char *name, u32 width, u32 height)
{
    *p = (struct plot_page){.arena = a, .name = name, .width = width, .height = height};
    struct buf *s = &p->script;
    buf_printf(s, "# %s.svg and %s.png of %s.dat, by gnuplot 5: gnuplot %s.gp\n", name, name, name, name);
    buf_z(s, "set encoding utf8\ndo for [form in \"svg png\"] {\n");
    buf_printf(s, "if (form eq 'svg') { set terminal svg size %u,%u noenhanced font 'sans-serif,12' background '#ffffff' name '%s' }\n", width, height,
               name);
    buf_printf(s, "else { set terminal pngcairo size %u,%u noenhanced font 'sans,9' background '#ffffff' }\n", width, height);
    buf_printf(s, "small = form eq 'svg' ? ',10' : ',7.5'\nlarge = form eq 'svg' ? ',15' : ',11'\n");
    buf_printf(s, "set output '%s.'.form\nset multiplot\n", name);
    buf_z(s, "unset key\n");
}

void plot_page_text(struct plot_page *p, double x, double y, const char *how, struct str text)
{
    buf_printf(&p->script, "set label '%.*s' at screen %.5f,%.5f %s\n", STR_ARG(text), x / p->width, 1 - y / p->height, how);
}

static u32 legend_columns(u32 page_width, const struct plot_look *look, u32 n)
{
    i64 longest = 1;
    for (u32 i = 0; i < n; i++) longest = i64_max(longest, look[i].name.n);
    double width = plot_text_width(longest, legend_size) + legend_sample;
    return (u32)i64_min(i64_max((i64)((page_width - 2 * edge) / width), 1), n ? n : 1);
}

double plot_page_head_height(u32 width, const struct plot_look *look, u32 n)
{
    return legend_top + legend_line * (double)ceil_div(n, legend_columns(width, look, n)) + edge;
}

/* Axes without anything to see, which have the texts and the legend of the page. */
void plot_page_head(struct plot_page *p, const char *title, struct str about, const struct plot_look *look, u32 n)
{
    struct buf *s = &p->script;
    plot_page_text(p, p->width / 2.0, 18, "center font large", str_of(title));
    plot_page_text(p, p->width / 2.0, 40, "center font small", about);
    plot_page_panel(p, (struct plot_box){0, 0, p->width, p->height});
    buf_z(s, "unset border\nunset tics\n");
    if (n) buf_printf(s, "set key at screen 0.5,%.5f center top horizontal maxcols %u reverse Left\n", 1 - legend_top / p->height,
                      legend_columns(p->width, look, n));
    buf_z(s, n ? "plot [0:1] [0:1]" : "plot [0:1] [0:1] NaN notitle");
    for (u32 i = 0; i < n; i++) buf_printf(s, "%s NaN with %s title '%.*s'", i ? ", \\\n    " : "", look[i].with, STR_ARG(look[i].name));
    buf_z(s, "\nunset label\nunset key\nset border 31 lw 0.8\nset tics nomirror\n");
}

void plot_page_panel(struct plot_page *p, struct plot_box b)
{
    buf_printf(&p->script, "set lmargin at screen %.5f\nset rmargin at screen %.5f\nset tmargin at screen %.5f\nset bmargin at screen %.5f\n",
               b.left / p->width, b.right / p->width, 1 - b.top / p->height, 1 - b.bottom / p->height);
}

/* "in_1X32.."; with its baseline, where layers have different ones. */
static struct str full_name(const struct plot_page *p, const struct plot_run *r, u32 i)
{
    const struct plot_layer *x = &r->layer.v[i];
    return r->differ && x->base.n ? str_fmt(p->arena, "%.*s, %.*s", STR_ARG(x->name), STR_ARG(x->base)) : x->name;
}

/* Columns of names that fit beside each other, and their lines. */
static u32 name_columns(const struct plot_run *r, u32 width)
{
    i64 longest = 1;
    for (u32 i = 0; i < r->layer.n; i++) longest = i64_max(longest, r->layer.v[i].name.n + 5 + (r->differ && r->layer.v[i].base.n ? r->layer.v[i].base.n + 2 : 0));
    return (u32)i64_max((i64)((width - 2 * edge) / (plot_text_width(longest, name_size) + edge)), 1);
}

double plot_page_names_height(const struct plot_run *r, u32 width)
{
    return name_line * (double)ceil_div(r->layer.n, name_columns(r, width)) + edge;
}

void plot_page_names(struct plot_page *p, const struct plot_run *r, double y)
{
    u32 columns = name_columns(r, p->width), lines = (u32)ceil_div(r->layer.n, columns);
    for (u32 i = 0; i < r->layer.n; i++) {
        const struct plot_layer *x = &r->layer.v[i];
        plot_page_text(p, edge + (p->width - 2 * edge) / columns * (i / lines), y + name_line * (i % lines), "left font small",
                       str_fmt(p->arena, "L%lld  %.*s", (long long)x->number, STR_ARG(full_name(p, r, i))));
    }
}

u32 plot_page_data(struct plot_page *p)
{
    if (p->n_data) buf_z(&p->data, "\n\n");
    return p->n_data++;
}

void plot_page_release(struct plot_page *p)
{
    buf_release(&p->script);
    buf_release(&p->data);
}

/* The folder as gnuplot's cd takes it: in quotes, and no '~' is another's home. */
static const char *change_dir(struct plot_page *p, const char *dir)
{
    struct buf b = {0};
    buf_printf(&b, "cd '%s", dir[0] == '/' ? "" : "./");
    for (const char *s = dir; *s; s++) {
        if (*s == '\'') buf_char(&b, '\'');
        buf_char(&b, *s);
    }
    buf_char(&b, '\'');
    const char *z = str_z(p->arena, buf_view(&b));
    buf_release(&b);
    return z;
}

static const char *path_of(const struct plot_page *p, const char *dir, const char *end) { return str_fmt(p->arena, "%s/%s.%s", dir, p->name, end).p; }

/* What gnuplot says beside one warning: in a locale without UTF-8 "set encoding" has no degree sign, which is in none of the pictures. */
static struct str complaint(struct str said)
{
    struct str line, rest = str_trim(said);
    while (rest.n) {
        said = rest;
        str_cut(rest, '\n', &line, &rest);
        if (!str_ends(str_trim(line), S("iconv failed to convert degree sign"))) return said;
        rest = str_trim(rest);
    }
    return rest;
}

static bool draw(struct plot_page *p, const char *dir, struct err *e)
{
    const char *script = str_fmt(p->arena, "%s.gp", p->name).p;
    const char *const argv[] = {"gnuplot", "-d", "-e", change_dir(p, dir), script, NULL};
    struct buf said = {0};
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = gnuplot_seconds, .out = &said});
    bool ok = s.how == OS_EXITED && s.code == 0 && os_exists(path_of(p, dir, "svg")) && os_exists(path_of(p, dir, "png"));
    struct str text = complaint(buf_view(&said));
    if (s.how == OS_NOT_STARTED)
        err_set(e, ERR_UNSUPPORTED, "plots are drawn by gnuplot, which is not installed (Debian: gnuplot-nox); their scripts and data are in '%s'", dir);
    else if (!ok || text.n) ok = err_set(e, ERR_FAILED, "gnuplot could not draw '%s/%s': %.*s", dir, script, (int)i64_min(text.n, 400), text.p);
    buf_release(&said);
    return ok;
}

void plot_page_drop(struct plot_page *p, const char *dir)
{
    const char *const end[] = {"gp", "dat", "svg", "png"};
    for (i64 i = 0; i < countof(end); i++) os_remove_tree(path_of(p, dir, end[i]));
    plot_page_release(p);
}

bool plot_page_close(struct plot_page *p, const char *dir, struct err *e)
{
    buf_z(&p->script, "unset multiplot\nset output\nreset\n}\n");
    bool ok = os_write(path_of(p, dir, "dat"), p->data.p, p->data.n, e) && os_write(path_of(p, dir, "gp"), p->script.p, p->script.n, e) &&
              draw(p, dir, e);
    plot_page_release(p);
    return ok;
}
