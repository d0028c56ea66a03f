// SPDX-License-Identifier: Apache-2.0
//
// Where the time of networks goes: a bar for each network, cut by operators, then for each network a bar for each of its layers. The operators that
// take most have looks of their own, the others are one.
#include "lab/plot.h"

#include <math.h>

enum { LOOKS = 7, ROW = 20, WIDTH = 1000, TITLE = 24, GAP = 76, LEFT_EDGE = 14, RIGHT = 150, MOST_NAME = 44, TEXT_SIZE = 10 };

#define BORDER " border lc rgb '#000000'"
static const char *const look[LOOKS + 1] = {
    "fc rgb '#3b6ea5' fs solid 0.8" BORDER,  "fc rgb '#b0500f' fs pattern 5" BORDER, "fc rgb '#2f7d4f' fs pattern 1" BORDER,
    "fc rgb '#606060' fs solid 0.25" BORDER, "fc rgb '#7a3b8f' fs pattern 4" BORDER, "fc rgb '#8a6d00' fs pattern 2" BORDER,
    "fc rgb '#1b7f8c' fs pattern 6" BORDER,  "fc rgb '#000000' fs empty" BORDER,
};

struct operation { struct str name; double ms; };
struct row { struct str name; double ms[LOOKS + 1], total; };

struct parts {
    const struct plot_run *r;
    struct plot_page *p;
    struct { struct operation *v; u32 n, cap; } operation; /* largest first */
    u32 n_looks;                                           /* that are used */
    struct { struct row *v; u32 n, cap; } network, layer;  /* layers of the network in work */
    double left;                                           /* where bars begin */
    u32 next;                                              /* block of data */
    double y;                                              /* pixels that are used */
};

static void count_operations(struct parts *x, struct arena *a)
{
    for (u32 i = 0; i < x->r->part.n; i++) {
        const struct plot_part *p = &x->r->part.v[i];
        u32 k = 0;
        while (k < x->operation.n && !str_eq(x->operation.v[k].name, p->operation)) k++;
        if (k == x->operation.n) *arr_push(a, &x->operation) = (struct operation){p->operation, 0};
        x->operation.v[k].ms += p->ms;
    }
    for (u32 i = 1; i < x->operation.n; i++) /* insertion keeps the order of equal ones */
        for (u32 k = i; k > 0 && x->operation.v[k].ms > x->operation.v[k - 1].ms; k--) {
            struct operation t = x->operation.v[k];
            x->operation.v[k] = x->operation.v[k - 1], x->operation.v[k - 1] = t;
        }
    x->n_looks = (u32)i64_min(x->operation.n, LOOKS + 1);
}

static u32 look_of(const struct parts *x, struct str operation)
{
    u32 k = 0;
    while (k < LOOKS && !str_eq(x->operation.v[k].name, operation)) k++;
    return k;
}

static struct str look_name(const struct parts *x, u32 k) { return k < LOOKS || x->operation.n == LOOKS + 1 ? x->operation.v[k].name : S("others"); }

static void add(struct row *r, u32 at, double ms) { r->ms[at] += ms, r->total += ms; }

/* Layers of a network, parts of one layer need not be neighbours. Without a network: networks. */
static void collect(struct parts *x, const struct str *network, struct arena *a)
{
    if (network) x->layer.n = 0;
    for (u32 i = 0; i < x->r->part.n; i++) {
        const struct plot_part *p = &x->r->part.v[i];
        if (network && !str_eq(p->network, *network)) continue;
        struct str name = network ? p->layer : p->network;
        u32 k = 0, n = network ? x->layer.n : x->network.n;
        while (k < n && !str_eq(network ? x->layer.v[k].name : x->network.v[k].name, name)) k++;
        if (k == n) {
            struct row *new = network ? arr_push(a, &x->layer) : arr_push(a, &x->network);
            *new = (struct row){.name = name};
        }
        add(network ? &x->layer.v[k] : &x->network.v[k], look_of(x, p->operation), p->ms);
    }
}

/* Long names lose their middle. */
static struct str short_name(struct str s, struct arena *a)
{
    i64 half = MOST_NAME / 2 - 1;
    if (s.n <= MOST_NAME) return s;
    while (half > 0 && ((u8)s.p[half] & 0xc0) == 0x80) half--; /* at a character's begin */
    i64 back = s.n - MOST_NAME / 2 + 1;
    while (back < s.n && ((u8)s.p[back] & 0xc0) == 0x80) back++;
    return str_fmt(a, "%.*s..%.*s", (int)half, s.p, (int)(s.n - back), s.p + back);
}

static double most_of(const struct row *v, u32 n)
{
    double most = 0;
    for (u32 i = 0; i < n; i++) most = fmax(most, v[i].total);
    return most;
}

/* A block per operator: rectangles from left to right, rows counted from the top. */
static void put_rows(struct parts *x, const struct row *v, u32 n)
{
    struct buf *b = &x->p->data;
    for (u32 k = 0; k < x->n_looks; k++) {
        plot_page_data(x->p);
        buf_printf(b, "# %.*s: ms from, to, row from, to, name\n", STR_ARG(look_name(x, k)));
        for (u32 i = 0; i < n; i++) {
            double from = 0;
            for (u32 j = 0; j < k; j++) from += v[i].ms[j];
            buf_printf(b, "%.9g %.9g %.2f %.2f \"%.*s\"\n", from, from + v[i].ms[k], i - 0.38, i + 0.38, STR_ARG(v[i].name));
        }
    }
}

/* Bars with their names before and sums behind them, percent of `whole`; 0: of none. */
static void draw_rows(struct parts *x, struct str title, const struct row *v, u32 n, double whole)
{
    struct buf *s = &x->p->script;
    struct plot_axis ms = plot_axis(0, most_of(v, n), 8);
    plot_page_panel(x->p, (struct plot_box){x->left, x->y, x->p->width - RIGHT, x->y + n * ROW});
    plot_axis_print(s, &ms, 'x');
    buf_printf(s, "set yrange [%.1f:-0.5]\nunset ytics\nset xlabel 'run time (ms)'\nset grid xtics lt 1 lc rgb '#dddddd' lw 0.7\n", n - 0.5);
    plot_page_text(x->p, x->left, x->y - 10, "left", title);
    for (u32 i = 0; i < n; i++) {
        double y = x->y + (i + 0.5) * ROW;
        struct str sum = plot_number(x->p->arena, v[i].total, 4);
        sum = whole > 0 ? str_fmt(x->p->arena, "%.*s ms, %.1f %%", STR_ARG(sum), v[i].total / whole * 100) : str_fmt(x->p->arena, "%.*s ms", STR_ARG(sum));
        plot_page_text(x->p, x->left - 8, y, "right font small", short_name(v[i].name, x->p->arena));
        plot_page_text(x->p, x->p->width - RIGHT + 8, y, "left font small", sum);
    }
    put_rows(x, v, n);
    for (u32 k = 0; k < x->n_looks; k++)
        buf_printf(s, "%s '%s.dat' index %u using (($1+$2)/2):(($3+$4)/2):1:2:3:4 with boxxyerror %s",
                   k ? ", \\\n    " : "plot", x->p->name, x->next++, look[k]);
    buf_z(s, "\nunset label\n");
    x->y += n * ROW + GAP;
}

static u32 count_rows(struct parts *x, struct arena *a)
{
    u32 n = x->network.n;
    for (u32 i = 0; i < x->network.n; i++) {
        collect(x, &x->network.v[i].name, a);
        n += x->layer.n;
    }
    return n;
}

static double left_of(const struct parts *x, struct arena *a)
{
    i64 longest = 0;
    for (u32 i = 0; i < x->r->part.n; i++) {
        longest = i64_max(longest, short_name(x->r->part.v[i].layer, a).n);
        longest = i64_max(longest, short_name(x->r->part.v[i].network, a).n);
    }
    return LEFT_EDGE + 12 + plot_text_width(longest, TEXT_SIZE);
}

bool plot_parts(struct plot_page *p, struct arena *a, const struct plot_run *r)
{
    struct parts x = {.r = r, .p = p};
    count_operations(&x, a);
    collect(&x, NULL, a);
    u32 rows = count_rows(&x, a);
    struct plot_look legend[LOOKS + 1];
    for (u32 k = 0; k < x.n_looks; k++) legend[k] = (struct plot_look){str_fmt(a, "boxes %s", look[k]).p, short_name(look_name(&x, k), a)};
    x.y = plot_page_head_height(WIDTH, legend, x.n_looks) + TITLE;
    plot_page_open(p, a, "breakdown", WIDTH, (u32)(x.y + rows * ROW + (x.network.n + 1) * GAP));
    if (!(most_of(x.network.v, x.network.n) > 0)) return false;
    x.left = left_of(&x, a);
    plot_page_head(p, "Run time by operator and by layer", r->about, legend, x.n_looks);
    draw_rows(&x, S("networks"), x.network.v, x.network.n, 0);
    for (u32 i = 0; i < x.network.n; i++) {
        collect(&x, &x.network.v[i].name, a);
        draw_rows(&x, x.network.v[i].name, x.layer.v, x.layer.n, x.network.v[i].total);
    }
    return true;
}
