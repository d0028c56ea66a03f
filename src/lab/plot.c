// SPDX-License-Identifier: Apache-2.0
//
// All plots of a folder, one after the other. Where gnuplot is missing their scripts and data are written all the same.
#include "lab/plot.h"

bool plot_folder(const char *dir, const struct log *log, struct err *e)
{
    static bool (*const plot[])(struct plot_page *p, struct arena *a, const struct plot_run *r) = {plot_violins, plot_halves, plot_medians, plot_roofline,
                                                                                                plot_parts};
    struct arena a = {0};
    struct plot_run r;
    struct err why = {0};
    u32 n = 0;
    bool ok = plot_read(&r, &a, dir, e);
    for (i64 i = 0; i < countof(plot) && ok; i++) {
        struct plot_page p;
        if (!plot[i](&p, &a, &r)) {
            plot_page_drop(&p, dir);
            continue;
        }
        n++;
        ok = plot_page_close(&p, dir, &why) || why.code == ERR_UNSUPPORTED;
    }
    if (ok && !n) ok = err_set(e, ERR_NOTHING, "'%s' has no samples.csv, roofline.csv or breakdown.csv with anything to draw", dir);
    if (why.code) ok = err_set(e, why.code, "%s", why.msg);
    if (ok) log_printf(log, 2, "%u plots: %s/*.svg, *.png", n, dir);
    arena_release(&a);
    return ok;
}
