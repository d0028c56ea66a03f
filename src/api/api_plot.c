// SPDX-License-Identifier: Apache-2.0
//
// Plots of measurement files, and the file of a network's steps. Declared and documented in
// include/quern.h.
#include "api/api.h"

#include "lab/csv.h"
#include "lab/lab.h"

static const char header[] = "network,layer,operator,ms";
enum { MAX_FILE = 1 << 28 };

quern_status quern_plot(quern *q, const char *dir)
{
    if (!api_given(q, "dir", dir)) return QUERN_USAGE;
    return api_end(q, lab_plot(dir, &q->log, api_begin(q)));
}

/* "cosmoflow on cpu, 2 threads" */
static struct str network_name(const quern_program *p, struct arena *a)
{
    struct caps caps = {0};
    p->dev->driver->caps(p->dev, &caps);
    struct str name = str_fmt(a, "%.*s on %s", STR_ARG(p->plan.model), p->dev->driver->name);
    if (caps.n_threads) name = str_fmt(a, "%.*s, %u thread%s", STR_ARG(name), caps.n_threads, caps.n_threads > 1 ? "s" : "");
    return name;
}

/* Keeps the lines of other networks. */
static bool keep_others(struct buf *b, const char *path, struct str network, struct arena *a, struct err *e)
{
    struct str all, line;
    struct csv_line row;
    if (!os_exists(path)) return true;
    if (!os_read(a, path, MAX_FILE, &all, e)) return false;
    for (u32 n = 1; all.n; n++) {
        str_cut(all, '\n', &line, &all);
        line = str_trim(line);
        bool ok = csv_read(&row, a, line, e) && (n > 1 || str_is(line, header) || err_set(e, ERR_INPUT, "expected '%s'", header)) &&
                  (!line.n || row.n == 4 || err_set(e, ERR_INPUT, "%u columns instead of 4", row.n));
        if (!ok) return err_prefix(e, "line %u", n), err_prefix(e, "'%s'", path);
        if (n > 1 && line.n && !str_eq(row.cell[0], network)) buf_printf(b, "%.*s\n", STR_ARG(line));
    }
    return true;
}

static void put_line(struct buf *b, struct str network, const struct quern_step *s)
{
    csv_print(b, network);
    buf_char(b, ',');
    csv_print(b, str_of(s->layer));
    buf_char(b, ',');
    csv_print(b, str_of(*s->operators ? s->operators : s->label));
    buf_printf(b, ",%.6f\n", s->seconds * 1e3);
}

quern_status quern_breakdown_write(quern_program *p, const struct quern_step *steps, int n, const char *dir)
{
    if (!p || !api_given(p->q, "steps dir", n > 0 ? (const void *)steps : "", dir)) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    struct arena a = {0};
    struct buf b = {0};
    struct str network = network_name(p, &a);
    const char *path = str_fmt(&a, "%s/breakdown.csv", dir).p;
    buf_printf(&b, "%s\n", header);
    bool ok = os_mkdirs(dir, e) && keep_others(&b, path, network, &a, e);
    for (int i = 0; i < n && ok; i++) put_line(&b, network, &steps[i]);
    ok = ok && os_write(path, b.p, b.n, e);
    buf_release(&b);
    arena_release(&a);
    return api_end(p->q, ok);
}
