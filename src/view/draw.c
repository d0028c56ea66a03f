// SPDX-License-Identifier: Apache-2.0
//
// Pictures: Graphviz's `dot`, which is run as a program, lays out and draws.
#include "view/view.h"

enum { MAX_PICTURE = 1 << 28 };
static const double draw_seconds = 300;

static bool run_dot(const char *in, const char *out, const char *form, struct arena *a,
                    struct err *e)
{
    const bool is_png = str_is(str_of(form), "png");
    const char *const argv[] = {
        "dot", str_fmt(a, "-T%s", form).p, "-o", out, is_png ? "-Gdpi=144" : "-Gdpi=96", in, NULL};
    struct buf said = {0};
    const struct os_status s =
        os_run(&(struct os_proc_opts){.argv = argv, .timeout = draw_seconds, .out = &said});
    const bool ok = s.how == OS_EXITED && s.code == 0;
    const struct str text = str_trim(buf_view(&said));
    if (s.how == OS_NOT_STARTED || (s.how == OS_EXITED && s.code == 127))
        err_set(e, ERR_UNSUPPORTED,
                "pictures are drawn by Graphviz, which is not installed (Debian: graphviz); JSON, "
                "GraphML and DOT need nothing");
    else if (s.how == OS_TIMEOUT)
        err_set(e, ERR_FAILED,
                "Graphviz did not finish within %.0f s: draw groups of operators (--collapse), or "
                "no parameters",
                draw_seconds);
    else if (!ok)
        err_set(e, ERR_FAILED, "Graphviz failed: %.*s", (int)i64_min(text.n, 400), text.p);
    buf_release(&said);
    return ok;
}

bool view_draw(struct buf *b, const struct view *v, const char *form, struct err *e)
{
    struct arena a = {0};
    struct str dir = {0}, picture;
    struct buf text = {0};
    bool ok = os_temp_dir(&a, &dir, e);
    if (ok) {
        const char *in = str_fmt(&a, "%.*s/net.dot", STR_ARG(dir)).p,
                   *out = str_fmt(&a, "%.*s/net.%s", STR_ARG(dir), form).p;
        view_dot(&text, v);
        ok = os_write(in, text.p, text.n, e) && run_dot(in, out, form, &a, e) &&
             os_read(&a, out, MAX_PICTURE, &picture, e);
        if (ok) buf_str(b, picture);
        os_remove_tree(str_z(&a, dir));
    }
    buf_release(&text);
    arena_release(&a);
    return ok;
}
