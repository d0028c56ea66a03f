// SPDX-License-Identifier: Apache-2.0
//
// Plots of measurement files, and the file of a network's steps. Declared and documented in
// include/quern.h.
#include "api/api.h"

#include "lab/csv.h"
#include "lab/plot.h"

static const char breakdown[] = "network,layer,operator,ms\n";

quern_status quern_plot(quern *q, const char *dir)
{
    if (!api_given(q, "dir", dir)) return QUERN_USAGE;
    return api_end(q, plot_folder(dir, &q->log, api_begin(q)));
}

/* "cosmoflow on cpu, 2 threads" */
static struct str network_name(const quern_program *p, struct arena *a)
{
    struct caps caps = {0};
    p->dev->driver->caps(p->dev, &caps);
    struct str name = str_fmt(a, "%.*s on %s", STR_ARG(p->plan.model), p->dev->driver->name);
    if (caps.n_threads) name = str_fmt(a, "%.*s, %u thread%s", STR_ARG(name), caps.n_threads, caps.n_threads > 1 ? "s" : "");
    return plot_name(a, name); /* in the form in which it is read back */
}

static void put_line(struct buf *b, const struct plot_part *x)
{
    csv_print(b, x->network);
    buf_char(b, ',');
    csv_print(b, x->layer);
    buf_char(b, ',');
    csv_print(b, x->operation);
    buf_printf(b, ",%.6f\n", x->ms);
}

/* Keeps the rows of other networks. */
static bool keep_others(struct buf *b, const char *path, struct str network, struct arena *a, struct err *e)
{
    struct plot_run *r = arena_array(a, struct plot_run, 1);
    struct str text;
    if (!os_exists(path)) return true;
    if (!os_read(a, path, PLOT_MAX_FILE, &text, e)) return false;
    if (!plot_read_text(r, a, PLOT_BREAKDOWN, text, e)) return err_prefix(e, "'%s'", path);
    for (u32 i = 0; i < r->part.n; i++)
        if (!str_eq(r->part.v[i].network, network)) put_line(b, &r->part.v[i]);
    return true;
}

quern_status quern_breakdown_write(quern_program *p, const struct quern_step *steps, int n, const char *dir)
{
    if (!p || !api_given(p->q, "steps dir", n > 0 ? (const void *)steps : "", dir)) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    struct arena a = {0};
    struct buf b = {0};
    struct str network = network_name(p, &a);
    const char *path = str_fmt(&a, "%s/breakdown.csv", dir).p;
    buf_z(&b, breakdown);
    bool ok = os_mkdirs(dir, e) && keep_others(&b, path, network, &a, e);
    for (int i = 0; i < n && ok; i++) {
        const struct quern_step *s = &steps[i];
        struct str operation = str_of(*s->operators ? s->operators : s->label);
        put_line(&b, &(struct plot_part){network, plot_name(&a, str_of(s->layer)), plot_name(&a, operation), s->seconds * 1e3});
    }
    ok = ok && os_write(path, b.p, b.n, e);
    buf_release(&b);
    arena_release(&a);
    return api_end(p->q, ok);
}
