// SPDX-License-Identifier: Apache-2.0
//
// lang_cc.c: C text to a shared object through the system's compiler: QUERN_CC (a command, options
// allowed), else gcc, clang or cc, whichever PATH has first. The compiler runs in a private folder,
// with a time-out, and nothing is left behind. The same text and the same compiler give the same
// bytes: no paths, symbols or build numbers in the result. Never -ffast-math: NaN and infinities
// matter.
#include "lang/lang_text.h"
#include "lang/lang_tool.h"

enum { MAX_ARGS = 64 };

struct command {
    const char *argv[MAX_ARGS];
    u32 n;
    u32 compiler; /* index of the compiler's name */
};

static void add_word(struct command *c, const char *word)
{
    if (c->n < MAX_ARGS - 1) c->argv[c->n++] = word;
}

static void add_words(struct command *c, struct arena *a, struct str text)
{
    struct str word, rest = str_trim(text);
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (word.n) add_word(c, str_z(a, word));
    }
}

static bool add_compiler(struct command *c, struct arena *a, struct err *e)
{
    static const char *const names[] = {"gcc", "clang", "cc"};
    c->compiler = c->n;
    add_words(c, a, str_of(os_env("QUERN_CC")));
    if (c->n > c->compiler) return true;
    for (i64 i = 0; i < countof(names); i++) {
        if (!lang_tool_in_path(a, names[i])) continue;
        add_word(c, names[i]);
        return true;
    }
    return err_set(e, ERR_SYSTEM, "no C compiler found: install gcc or clang, or set QUERN_CC");
}

/* gcc's -O3 copies the bodies of short loops around the innermost one, which costs compile time and
   cache, and often speed; its -O2 lacks only the vectoriser's cost model. Predictive commoning, which comes with the vectoriser, keeps
   what a register tile loads for the next iteration, in registers that the accumulators need. clang has neither the
   faults nor the options. */
static const char *optimisation(const struct command *c)
{
    for (u32 i = c->compiler; i < c->n; i++)
        if (str_glob(S("*gcc*"), str_of(c->argv[i])))
            return "-O2 -ftree-vectorize -fvect-cost-model=dynamic -fno-predictive-commoning";
    return "-O3";
}

static bool run(struct command *c, double timeout, struct buf *out, struct err *e)
{
    struct lang_tool t = {.program = c->argv[c->compiler], .timeout = timeout};
    return lang_tool_run(&t, c->argv, out, e);
}

static bool compile(struct command *c, struct arena *a, struct str dir, struct buf *binary,
                    double timeout, struct err *e)
{
    struct buf messages = {0};
    struct str bytes;
    const char *to = str_fmt(a, "%.*s/k.so", STR_ARG(dir)).p;
    add_word(c, "-o");
    add_word(c, to);
    add_word(c, str_fmt(a, "%.*s/k.c", STR_ARG(dir)).p);
    add_word(c, "-lm");
    bool ok = run(c, timeout, &messages, e) && os_read(a, to, (i64)1 << 30, &bytes, e);
    if (ok) buf_str(binary, bytes);
    buf_release(&messages);
    return ok && (!binary->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

bool lang_cc_build(struct buf *binary, struct str text, const struct caps *c, double timeout,
                   struct err *e)
{
    struct arena a = {0};
    struct command cmd = {0};
    struct str dir;
    bool ok = os_temp_dir(&a, &dir, e), has_dir = ok;
    if (ok) { /* the compiler's own temporary files go there too: it may be killed */
        add_word(&cmd, "env");
        add_word(&cmd, str_fmt(&a, "TMPDIR=%.*s", STR_ARG(dir)).p);
        ok = add_compiler(&cmd, &a, e);
    }
    if (ok) {
        add_words(&cmd, &a, str_of(optimisation(&cmd)));
        add_words(&cmd, &a,
                  S("-std=gnu11 -w -shared -fPIC -s -fno-math-errno -fno-trapping-math "
                    "-ffp-contract=fast -fno-semantic-interposition -fno-ident -nostartfiles "
                    "-Wl,--build-id=none,-z,noseparate-code"));
        add_words(&cmd, &a, str_of(c->cflags));
        ok = os_write(str_fmt(&a, "%.*s/k.c", STR_ARG(dir)).p, text.p, text.n, e) &&
             compile(&cmd, &a, dir, binary, timeout, e);
    }
    if (has_dir) os_remove_tree(str_z(&a, dir));
    arena_release(&a);
    return ok;
}

bool lang_cc_toolchain(struct buf *out, struct err *e)
{
    struct arena a = {0};
    struct command cmd = {0};
    bool ok = add_compiler(&cmd, &a, e);
    if (ok) {
        struct lang_tool t = {.program = cmd.argv[cmd.compiler], .timeout = 10};
        add_word(&cmd, "--version");
        ok = lang_tool_line(out, &t, cmd.argv, false, e);
    }
    if (ok) buf_printf(out, ", %s", optimisation(&cmd));
    arena_release(&a);
    return ok;
}
