// SPDX-License-Identifier: Apache-2.0
//
// Files of a run: what is read as one of them can be drawn, texts in scripts stay within their quotes.
#include "fuzz.h"
#include "lab/plot.h"

#include <stdlib.h>

static void draw(struct arena *a, const struct plot_run *r)
{
    static bool (*const plot[])(struct plot_page *p, struct arena *a, const struct plot_run *r) = {plot_violins, plot_halves, plot_medians, plot_roofline,
                                                                                                plot_parts};
    for (i64 i = 0; i < countof(plot); i++) {
        struct plot_page p;
        u32 n_quotes = 0;
        bool ok = plot[i](&p, a, r);
        for (i64 k = 0; ok && k < p.script.n; k++) n_quotes += p.script.p[k] == '\'';
        if (n_quotes % 2 || p.script.failed || p.width > 1 << 20 || p.height > 1 << 20) abort();
        plot_page_release(&p);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    for (enum plot_file k = 0; k < N_PLOT_FILES; k++) {
        struct arena a = {0};
        struct plot_run r = {0};
        struct err e = {0};
        if (plot_read_text(&r, &a, k, (struct str){(const char *)p, (i64)n}, &e)) draw(&a, &r);
        else if (!e.code) abort();
        arena_release(&a);
    }
    return 0;
}
