// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_tools.c: SPIRV-Tools as programs, where the user asks for them: spirv-opt where the
// target's flags say so, spirv-dis to look at a module. They are looked up in PATH and run in a
// private folder with a time-out.
#include "lang/lang_spirv.h"

struct tool {
    const char *program, *reason; /* what it is needed for */
    double timeout;
    struct str in; /* the module */
};

/* Standard output and messages go to said. */
static bool run(const struct tool *t, const char *const *argv, struct buf *said, struct err *e)
{
    enum { MAX_MESSAGE = 600 };
    struct os_status s =
        os_run(&(struct os_proc_opts){.argv = argv, .timeout = t->timeout, .out = said});
    switch (s.how) {
    case OS_EXITED:
        if (s.code == 0) return true;
        return err_set(e, ERR_FAILED, "'%s' failed: %.*s", t->program,
                       (int)i64_min(said->n, MAX_MESSAGE), said->p ? said->p : "");
    case OS_SIGNALLED: return err_set(e, ERR_FAILED, "'%s' died of signal %d", t->program, s.code);
    case OS_TIMEOUT:
        return err_set(e, ERR_FAILED, "'%s' took longer than %g s", t->program, t->timeout);
    case OS_NOT_STARTED:
        return err_set(e, ERR_SYSTEM, "cannot run '%s', which %s needs: install spirv-tools",
                       t->program, t->reason);
    default: unreachable();
    }
}

typedef bool tool_fn(const struct tool *t, const char *dir, const char *in, struct buf *out,
                     struct err *e);

/* With the module in a file of a folder of its own. */
static bool in_folder(const struct tool *t, tool_fn *fn, struct buf *out, struct err *e)
{
    struct arena a = {0};
    struct str dir;
    bool ok = os_temp_dir(&a, &dir, e);
    if (ok) {
        const char *in = str_fmt(&a, "%.*s/in.spv", STR_ARG(dir)).p;
        ok = os_write(in, t->in.p, t->in.n, e) && fn(t, str_z(&a, dir), in, out, e);
        os_remove_tree(str_z(&a, dir));
    }
    arena_release(&a);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

static bool optimize(const struct tool *t, const char *dir, const char *in, struct buf *out,
                     struct err *e)
{
    struct arena a = {0};
    struct buf said = {0};
    struct str words;
    const char *to = str_fmt(&a, "%s/out.spv", dir).p;
    const char *argv[] = {t->program, "-O", "--preserve-bindings", in, "-o", to, NULL};
    bool ok = run(t, argv, &said, e) && os_read(&a, to, (i64)1 << 30, &words, e);
    if (ok) buf_str(out, words);
    buf_release(&said);
    arena_release(&a);
    return ok;
}

bool spv_optimize(struct buf *module, double timeout, struct err *e)
{
    struct buf out = {0};
    struct tool t = {"spirv-opt", "optimising", timeout, buf_view(module)};
    bool ok = in_folder(&t, optimize, &out, e);
    buf_release(ok ? module : &out);
    if (ok) *module = out;
    return ok;
}

static bool disassemble(const struct tool *t, const char *dir, const char *in, struct buf *out,
                        struct err *e)
{
    const char *argv[] = {t->program, "--no-color", in, NULL};
    return run(t, argv, out, e);
}

bool spv_disassemble(struct buf *out, struct str module, struct err *e)
{
    struct tool t = {"spirv-dis", "looking at SPIR-V", 60, module};
    return in_folder(&t, disassemble, out, e);
}
