// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_opt.c: a module through SPIRV-Tools' optimiser, where the target's flags ask for it.
// The program spirv-opt is looked up in PATH and runs in a private folder with a time-out.
#include "lang/lang_spirv.h"

static bool run(const char *const *argv, double timeout, struct buf *messages, struct err *e)
{
    enum { MAX_MESSAGE = 600 };
    struct os_status s =
        os_run(&(struct os_proc_opts){.argv = argv, .timeout = timeout, .out = messages});
    switch (s.how) {
    case OS_EXITED:
        if (s.code == 0) return true;
        return err_set(e, ERR_FAILED, "'spirv-opt' failed: %.*s",
                       (int)i64_min(messages->n, MAX_MESSAGE), messages->p ? messages->p : "");
    case OS_SIGNALLED: return err_set(e, ERR_FAILED, "'spirv-opt' died of signal %d", s.code);
    case OS_TIMEOUT: return err_set(e, ERR_FAILED, "'spirv-opt' took longer than %g s", timeout);
    case OS_NOT_STARTED:
        return err_set(e, ERR_SYSTEM,
                       "cannot run 'spirv-opt', which optimising needs: install spirv-tools");
    default: unreachable();
    }
}

bool spv_optimize(struct buf *module, double timeout, struct err *e)
{
    struct arena a = {0};
    struct buf messages = {0};
    struct str dir, words;
    bool ok = os_temp_dir(&a, &dir, e), has_dir = ok;
    if (ok) {
        const char *in = str_fmt(&a, "%.*s/in.spv", STR_ARG(dir)).p,
                   *out = str_fmt(&a, "%.*s/out.spv", STR_ARG(dir)).p;
        const char *argv[] = {"spirv-opt", "-O", "--preserve-bindings", in, "-o", out, NULL};
        ok = os_write(in, module->p, module->n, e) && run(argv, timeout, &messages, e) &&
             os_read(&a, out, (i64)1 << 30, &words, e);
    }
    if (ok) {
        buf_reset(module);
        buf_str(module, words);
    }
    if (has_dir) os_remove_tree(str_z(&a, dir));
    buf_release(&messages);
    arena_release(&a);
    return ok && (!module->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}
