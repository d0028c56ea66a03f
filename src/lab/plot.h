// SPDX-License-Identifier: Apache-2.0
//
// Plots of a run: what a folder's files say (doc/conv.md, "Plots"), drawn by gnuplot. For each plot a script and its data are written, which
// name no other folder and no date, so that the same files give the same bytes, then an SVG and a PNG.
//
//   plot_read.c   the run's files
//   plot_stats.c  quartiles, densities, axes
//   plot_page.c   what pages have in common, and gnuplot
//   plot_times.c  violins, halves of violins, medians
//   plot_roof.c   layers under a roofline
//   plot_parts.c  where a network's time goes
//   plot.c        all of them
#ifndef QUERN_LAB_PLOT_H
#define QUERN_LAB_PLOT_H

#include "core/core.h"

/* plot_read.c */

enum { PLOT_WHO = 2, PLOT_MAX_LAYERS = 128, PLOT_MAX_PARTS = 2000, PLOT_MAX_FILE = 1 << 28 };

struct plot_list { double *v; u32 n, cap; };
struct plot_layer {
    i64 number;                          /* in its data set */
    struct str name, base;               /* base: what it was timed beside; empty: nothing */
    struct plot_list ms[PLOT_WHO];       /* by round */
    double flops, bytes, seconds[PLOT_WHO]; /* of roofline.csv; seconds 0: it has none */
};
struct plot_ceiling {
    struct str name, unit;
    bool is_memory;                      /* value in GB/s, else GFLOP/s */
    double value;
};
struct plot_part { struct str network, layer, operation; double ms; };

struct plot_run {                        /* texts have no quotes and no control characters */
    struct str who[PLOT_WHO];            /* the implementation, what it was timed beside: "oneDNN 3.2 or reference" */
    u32 n_who;
    bool differ;                         /* not all layers have the same baseline */
    struct str about;                    /* a line on the run; may be empty */
    struct { struct plot_layer *v; u32 n, cap; } layer;
    struct { struct plot_ceiling *v; u32 n, cap; } ceiling;
    struct { struct plot_part *v; u32 n, cap; } part;
};
enum plot_file { PLOT_SAMPLES, PLOT_ROOFLINE, PLOT_CEILINGS, PLOT_BREAKDOWN, N_PLOT_FILES };
struct str plot_name(struct arena *a, struct str s); /* what texts in a script cannot have becomes '_' */
const char *plot_file_name(enum plot_file k); /* "samples.csv" */
/* One of them, added to what is there. ERR_INPUT with line and column. */
bool plot_read_text(struct plot_run *r, struct arena *a, enum plot_file k, struct str text, struct err *e);
/* What there is of them and of params.txt. Errors begin with the path. */
bool plot_read(struct plot_run *r, struct arena *a, const char *dir, struct err *e);

/* plot_stats.c */

enum { PLOT_STEPS = 96 };
struct plot_density {                    /* of samples */
    u32 n, n_below, n_above;             /* all; those that are not within low .. high */
    double low, high;                    /* drawn: the samples' range within Tukey's outer fences, 3 quartile distances off the quartiles
                                            (Exploratory Data Analysis, 1977, section 2C) */
    double q1, median, q3;
    double width;                        /* of the kernel; 0: all samples are equal, there is no density */
    double at[PLOT_STEPS + 1], d[PLOT_STEPS + 1]; /* low .. high; density, the largest 1 */
};
void plot_density(struct plot_density *d, const struct plot_list *v, struct arena *a); /* v->n > 0 */

struct plot_axis { double low, high, step; bool is_log; };
/* Around low .. high, 0 <= low <= high and 0 < high, with about so many steps of 1, 2 or 5 times a power of ten. */
struct plot_axis plot_axis(double low, double high, u32 steps);
/* Logarithmic, 0 < low <= high, from one to another of 1, 2, 5 times a power of ten. */
struct plot_axis plot_log_axis(double low, double high);
/* "set xrange ..", tics, their format; which: 'x' or 'y'. */
void plot_axis_print(struct buf *b, const struct plot_axis *x, char which);

/* plot_page.c */

struct plot_page {
    struct arena *arena;
    const char *name;                    /* of its files */
    u32 width, height;                   /* pixels */
    struct buf script, data;
    u32 n_data;                          /* blocks of data, gnuplot's "index" */
};
struct plot_box { double left, top, right, bottom; }; /* pixels from the upper left corner */

void plot_page_open(struct plot_page *p, struct arena *a, const char *name, u32 width, u32 height);
struct plot_look { const char *with; struct str name; }; /* "points pt 7 .." */
/* Title and legend (n 0: none), before the first panel. */
void plot_page_head(struct plot_page *p, const char *title, struct str about, const struct plot_look *look, u32 n);
double plot_page_head_height(u32 width, const struct plot_look *look, u32 n); /* to the end of the legend */
void plot_page_panel(struct plot_page *p, struct plot_box b);            /* where the next axes are */
void plot_page_text(struct plot_page *p, double x, double y, const char *how, struct str text); /* how: "left", "center font ',9'" */
/* "L3 in_1X32..", for each layer, in columns from y on, and how high that is. Before the head. */
double plot_page_names_height(const struct plot_run *r, u32 width);
void plot_page_names(struct plot_page *p, const struct plot_run *r, double y);
u32 plot_page_data(struct plot_page *p); /* a new block of data begins: its index */
/* Writes script and data, lets gnuplot draw. False: the system, or gnuplot, refused. Releases the page. */
bool plot_page_close(struct plot_page *p, const char *dir, struct err *e);
void plot_page_drop(struct plot_page *p, const char *dir); /* no such plot: files of an earlier one go away */
void plot_page_release(struct plot_page *p);
double plot_text_width(i64 n, double size); /* about, of so many characters */
struct str plot_number(struct arena *a, double v, int digits); /* as people write it, rounded to so many digits */

/* Looks of the implementation and of the baseline, told apart without colour, too: "fc rgb .. fs ..", "pt 7 lc rgb ..". */
extern const char *const plot_fill[PLOT_WHO], *const plot_mark[PLOT_WHO];

/* The plots; false: there is nothing of that kind in the run's files. The page is to be closed or dropped. */

bool plot_violins(struct plot_page *p, struct arena *a, const struct plot_run *r);  /* plot_times.c */
bool plot_halves(struct plot_page *p, struct arena *a, const struct plot_run *r);
bool plot_medians(struct plot_page *p, struct arena *a, const struct plot_run *r);
bool plot_roofline(struct plot_page *p, struct arena *a, const struct plot_run *r); /* plot_roof.c */
bool plot_parts(struct plot_page *p, struct arena *a, const struct plot_run *r);    /* plot_parts.c */

/* plot.c */

/* All that the folder's files give. ERR_NOTHING: they give none; ERR_UNSUPPORTED: there is no gnuplot, scripts and data are written. */
bool plot_folder(const char *dir, const struct log *log, struct err *e);

#endif
