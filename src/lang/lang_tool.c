// SPDX-License-Identifier: Apache-2.0
//
// lang_tool.c: runs compilers and other tools, with a time-out, in temporary folders.
#include "lang/lang_tool.h"

enum { MAX_MESSAGE = 600, MAX_WORDS = 64 };

bool lang_tool_run(const struct lang_tool *t, const char *const *argv, struct buf *said, struct err *e)
{
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = t->timeout, .out = said});
    if (s.how == OS_EXITED && s.code == 127) s.how = OS_NOT_STARTED; /* exit code of env */
    switch (s.how) {
    case OS_EXITED:
        if (s.code == 0) return true;
        return err_set(e, ERR_FAILED, "'%s' failed: %.*s", t->program, (int)i64_min(said->n, MAX_MESSAGE),
                       said->p ? said->p : "");
    case OS_SIGNALLED: return err_set(e, ERR_FAILED, "'%s' was ended by signal %d", t->program, s.code);
    case OS_TIMEOUT: return err_set(e, ERR_FAILED, "'%s' took longer than %g s", t->program, t->timeout);
    case OS_STOPPED: return err_set(e, ERR_STOPPED, "stopped");
    case OS_NOT_STARTED:
        return err_set(e, ERR_SYSTEM, "cannot run '%s'%s%s", t->program, t->hint ? ": " : "", t->hint ? t->hint : "");
    default: unreachable();
    }
}

static bool convert_in(struct buf *out, const struct lang_tool *t, const struct lang_convert *c, struct str dir,
                       struct arena *a, struct err *e)
{
    const char *argv[MAX_WORDS + 3] = {"env", str_fmt(a, "TMPDIR=%.*s", STR_ARG(dir)).p};
    const char *in = str_fmt(a, "%.*s/%s", STR_ARG(dir), c->in_name).p;
    const char *to = c->out_name ? str_fmt(a, "%.*s/%s", STR_ARG(dir), c->out_name).p : NULL;
    struct buf said = {0};
    struct str bytes;
    for (u32 i = 0; c->argv[i]; i++) {
        assert(i < MAX_WORDS);
        argv[i + 2] = str_is(S("@in"), c->argv[i]) ? in : str_is(S("@out"), c->argv[i]) ? to : c->argv[i];
    }
    bool ok = os_write(in, c->in.p, c->in.n, e) && lang_tool_run(t, argv, &said, e);
    if (ok && to) ok = os_read(a, to, (i64)1 << 30, &bytes, e);
    if (ok) buf_str(out, to ? bytes : buf_view(&said));
    buf_release(&said);
    return ok;
}

bool lang_tool_convert(struct buf *out, const struct lang_tool *t, const struct lang_convert *c, struct err *e)
{
    struct arena a = {0};
    struct str dir;
    bool ok = os_temp_dir(&a, &dir, e);
    if (ok) {
        ok = convert_in(out, t, c, dir, &a, e);
        os_remove_tree(str_z(&a, dir));
    }
    arena_release(&a);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

bool lang_tool_line(struct buf *out, const struct lang_tool *t, const char *const *argv, bool is_last, struct err *e)
{
    struct buf text = {0};
    struct str line = {0}, one, rest;
    bool ok = lang_tool_run(t, argv, &text, e);
    for (rest = buf_view(&text); rest.n && (is_last || !line.n);) {
        str_cut(rest, '\n', &one, &rest);
        if (str_trim(one).n) line = str_trim(one);
    }
    if (ok) buf_str(out, line);
    buf_release(&text);
    return ok;
}

const char *lang_tool_first(struct arena *a, const char *const *program, i64 n)
{
    for (i64 i = 0; i < n; i++)
        if (program[i][0] == '/' ? os_exists(program[i]) : os_in_path(a, program[i])) return program[i];
    return NULL;
}
