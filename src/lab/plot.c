// SPDX-License-Identifier: Apache-2.0
//
// Plots of a run's files: plot.py, which is part of the library, run by Python with matplotlib.
#include "lab/lab.h"

static const char script[] =
#include "plot_script.inc"
    ;

enum { PLOT_NOTHING = 3, PLOT_NO_LIBRARY = 4, PLOT_WRONG_FILE = 5 }; /* exit codes of the script */
static const double plot_seconds = 300;

/* The interpreter in PATH, or else the system's, which has the system's packages. */
static struct os_status run_script(const char *dir, struct buf *out)
{
    static const char *const python[] = {"python3", "/usr/bin/python3"};
    struct os_status s = {0};
    for (i64 i = 0; i < countof(python); i++) {
        const char *const argv[] = {python[i], "-c", script, dir, NULL};
        buf_reset(out);
        s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = plot_seconds, .out = out});
        if (s.how == OS_EXITED && s.code != PLOT_NO_LIBRARY) break;
    }
    return s;
}

bool lab_plot(const char *dir, const struct log *log, struct err *e)
{
    static const enum err_code code[] = {[PLOT_NOTHING] = ERR_NOTHING, [PLOT_NO_LIBRARY] = ERR_UNSUPPORTED, [PLOT_WRONG_FILE] = ERR_INPUT};
    struct buf out = {0};
    struct os_status s = run_script(dir, &out);
    struct str said = str_trim(buf_view(&out));
    bool ok = s.how == OS_EXITED && s.code == 0, is_known = s.how == OS_EXITED && s.code >= PLOT_NOTHING && s.code <= PLOT_WRONG_FILE;
    if (ok) log_printf(log, 2, "%.*s plots: %s/*.svg, *.png", STR_ARG(said), dir);
    else if (s.how == OS_NOT_STARTED) err_set(e, ERR_UNSUPPORTED, "plots are drawn by Python with matplotlib, which are not installed (Debian: python3-matplotlib)");
    else if (is_known) err_set(e, code[s.code], "%.*s", STR_ARG(said));
    else err_set(e, ERR_FAILED, "'%s' could not be drawn: %.*s", dir, (int)i64_min(said.n, 400), said.p + i64_max(said.n - 400, 0));
    buf_release(&out);
    return ok;
}
