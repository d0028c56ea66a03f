// SPDX-License-Identifier: Apache-2.0
//
// lang_cc.c: C text to a shared object through the system's compiler: QUERN_CC (a command, optionally
// with options, which take precedence), else gcc, clang or cc, the first in PATH; for other processor
// families a cross compiler, gcc's or clang. The compiler runs in a private folder, with a time-out, and leaves nothing
// behind. The same text and compiler yield the same bytes: no paths, symbols or build numbers in the
// result. Never -ffast-math: NaN and infinities matter. Never -march=native: the target's extensions are
// named one by one (isa.c), so that a program can record its requirements. No option comes from a text, a
// database or a description of a device; a text only declares whether contraction is permitted anywhere,
// or, for a kernel that rounds as written, within one expression, which gcc before 14 treats as never.
#include "lang/lang_text.h"
#include "lang/lang_tool.h"

enum { MAX_ARGS = 128 };

struct command {
    const char *argv[MAX_ARGS];
    u32 n;
    u32 compiler; /* index of the compiler's name */
    struct str last; /* options given by the user */
    const char *hint; /* advice if the compiler cannot be run; NULL: none */
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

/* Compilers for other processor families, TRIPLE-gcc or clang; the variable names another one, like QUERN_CC. On 32 bits divisions of i64
   are functions of gcc's own library. */
static const struct { enum isa_family family; const char *variable, *triple, *package; bool needs_libgcc; } cross[] = {
    {ISA_X86_64, "QUERN_CC_X86_64", "x86_64-linux-gnu", "gcc-x86-64-linux-gnu", false},
    {ISA_AARCH64, "QUERN_CC_AARCH64", "aarch64-linux-gnu", "gcc-aarch64-linux-gnu", false},
    {ISA_ARMV7, "QUERN_CC_ARMV7", "arm-linux-gnueabihf", "gcc-arm-linux-gnueabihf", true},
    {ISA_RISCV64, "QUERN_CC_RISCV64", "riscv64-linux-gnu", "gcc-riscv64-linux-gnu", false},
    {ISA_X86, "QUERN_CC_I686", "i686-linux-gnu", "gcc-i686-linux-gnu", true},
};

/* The user's command; its options are appended after ours. */
static bool add_users(struct command *c, struct arena *a, const char *variable, struct err *e)
{
    struct str word, rest = str_trim(str_of(os_env(variable)));
    while (rest.n && rest.p[0] != '-') {
        str_cut(rest, ' ', &word, &rest);
        if (word.n) add_word(c, str_z(a, word));
        rest = str_trim(rest);
    }
    if (c->n > c->compiler)
        c->hint = str_fmt(a, "set %s to the command of a C compiler, or unset it and install gcc or clang", variable).p;
    c->last = rest;
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (isa_is_option(word))
            return err_set(e, ERR_USAGE, "%s has '%.*s': select instructions by --isa, so that programs record them", variable,
                           STR_ARG(word));
    }
    return true;
}

/* clang has all targets, LLVM's linker, too; the system's mathematical library is where Debian's cross packages have it. */
static bool add_clang(struct command *c, struct arena *a, const char *triple)
{
    const char *lib = str_fmt(a, "/usr/%s/lib", triple).p;
    if (!os_in_path(a, "clang") || !os_in_path(a, "ld.lld") || !os_is_dir(lib)) return false;
    add_word(c, "clang");
    add_word(c, str_fmt(a, "--target=%s", triple).p);
    add_words(c, a, str_fmt(a, "-fuse-ld=lld -nostdlib -L%s", lib));
    return true;
}

/* gcc of x86-64 has the option -m32, which is among those of the instruction set, and with Debian's gcc-multilib the libraries for it. */
static bool has_multilib(struct arena *a)
{
    return isa_here().family == ISA_X86_64 && os_in_path(a, "gcc") && os_exists("/usr/lib32/libm.so");
}

static bool add_cross(struct command *c, struct arena *a, enum isa_family family, struct err *e)
{
    i64 i = 0;
    while (cross[i].family != family) i++;
    if (!add_users(c, a, cross[i].variable, e)) return false;
    if (c->n > c->compiler) return true;
    const char *gcc = str_fmt(a, "%s-gcc", cross[i].triple).p;
    if (os_in_path(a, gcc)) add_word(c, gcc);
    else if (family == ISA_X86 && has_multilib(a)) add_word(c, "gcc");
    else if (cross[i].needs_libgcc)
        return err_set(e, ERR_SYSTEM, "no compiler '%s' for processors of that kind: install it (Debian: %s), or set %s", gcc, cross[i].package, cross[i].variable);
    else if (!add_clang(c, a, cross[i].triple))
        return err_set(e, ERR_SYSTEM, "no compiler '%s' for processors of that kind: install it (Debian: %s; or clang and lld, with %s's C library), or set %s",
                       gcc, cross[i].package, cross[i].triple, cross[i].variable);
    return true;
}

static bool add_native(struct command *c, struct arena *a, struct err *e)
{
    static const char *const names[] = {"gcc", "clang", "cc"};
    if (!add_users(c, a, "QUERN_CC", e)) return false;
    if (c->n > c->compiler) return true;
    for (i64 i = 0; i < countof(names); i++) {
        if (!os_in_path(a, names[i])) continue;
        add_word(c, names[i]);
        return true;
    }
    return err_set(e, ERR_SYSTEM, "no C compiler found: install gcc or clang, or set QUERN_CC");
}

static bool add_compiler(struct command *c, struct arena *a, const struct caps *caps, struct err *e)
{
    enum isa_family family = caps ? caps->isa.family : ISA_NONE;
    c->compiler = c->n;
    return family == ISA_NONE || family == isa_here().family ? add_native(c, a, e) : add_cross(c, a, family, e);
}

/* gcc's -O3 copies the bodies of short loops around the innermost one, which costs compile time and
   cache, and often speed; its -O2 lacks only the vectoriser's cost model. Predictive commoning, which comes with the vectoriser, keeps
   what a register tile loads for the next iteration, in registers that the accumulators need. Allocation by regions stores accumulators
   in inner loops where they take nearly all registers: one region, unless there are plenty. On ARM gcc also schedules instructions before it
   allocates registers, and then has too few for the loads that it moved ahead; afterwards it moves loads ahead only into registers that it
   may rename to. Texts for cores that execute in order are in the order that these need (kir_ahead): nothing moves, addresses included, which
   are otherwise computed where they are used. clang has neither the faults nor the options. */
#define GCC_OPTIONS "-O2 -ftree-vectorize -fvect-cost-model=dynamic -fno-predictive-commoning"
#define GCC_IN_ORDER " -fno-schedule-insns -fno-schedule-insns2 -fno-schedule-fusion -fno-tree-ter"
static const char *gcc_optimisation(const struct caps *caps)
{
    if (caps && caps->isa.family == ISA_AARCH64) return caps->in_order ? GCC_OPTIONS GCC_IN_ORDER : GCC_OPTIONS " -fno-schedule-insns -frename-registers";
    return caps && caps->n_vector_regs > 16 ? GCC_OPTIONS : GCC_OPTIONS " -fira-region=one";
}

static const char *optimisation(const struct command *c, const struct caps *caps)
{
    for (u32 i = c->compiler; i < c->n; i++)
        if (str_glob(S("*gcc*"), str_of(c->argv[i]))) return gcc_optimisation(caps);
    return "-O3";
}

static bool rounds_as_written(struct str text)
{
    struct str line;
    return str_cut(text, '\n', &line, &text) && str_ends(line, S(TEXT_AS_WRITTEN " */"));
}

/* gcc multiplies vectors of f32 by NEON's instructions of 32-bit ARM, which take denormals for zeros, only if the code may be unsafe; the
   transformations that are called so are all disabled. Kernels that round as written keep scalars, which have denormals. */
static const char *vector_arithmetic(struct str text, const struct caps *c)
{
    if (!c || c->isa.family != ISA_ARMV7 || rounds_as_written(text)) return "";
    return "-funsafe-math-optimizations -fsigned-zeros -fno-associative-math -fno-reciprocal-math";
}

/* All options that determine the code. */
static void add_options(struct command *cmd, struct arena *a, const struct caps *c, struct str text)
{
    struct buf isa = {0};
    isa_options(&isa, c ? c->isa : (struct isa){0});
    add_words(cmd, a, str_of(optimisation(cmd, c)));
    add_words(cmd, a,
              S("-std=gnu11 -w -shared -fPIC -s -fno-math-errno -fno-trapping-math"));
    add_words(cmd, a, str_of(vector_arithmetic(text, c)));
    add_word(cmd, rounds_as_written(text) ? "-ffp-contract=on" : "-ffp-contract=fast");
    add_words(cmd, a, S("-fno-semantic-interposition -fno-ident -nostartfiles -Wl,--build-id=none,-z,noseparate-code"));
    add_words(cmd, a, buf_view(&isa));
    add_words(cmd, a, cmd->last);
    buf_release(&isa);
}

static bool run(struct command *c, double timeout, struct buf *out, struct err *e)
{
    struct lang_tool t = {.program = c->argv[c->compiler], .hint = c->hint, .timeout = timeout};
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
    if (ok) { /* the compiler's temporary files are created there, too, because it may be killed */
        add_word(&cmd, "env");
        add_word(&cmd, str_fmt(&a, "TMPDIR=%.*s", STR_ARG(dir)).p);
        ok = add_compiler(&cmd, &a, c, e);
    }
    if (ok) {
        add_options(&cmd, &a, c, text);
        ok = os_write(str_fmt(&a, "%.*s/k.c", STR_ARG(dir)).p, text.p, text.n, e) &&
             compile(&cmd, &a, dir, binary, timeout, e);
    }
    if (has_dir) os_remove_tree(str_z(&a, dir));
    arena_release(&a);
    return ok;
}

static struct hash hash_words(const struct command *c, u32 from)
{
    struct buf b = {0};
    for (u32 i = from; i < c->n; i++) buf_printf(&b, "%s ", c->argv[i]);
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

/* Its version, a summary of the optimisation, and a hash of all options. */
bool lang_cc_toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    struct arena a = {0};
    struct command cmd = {0}, ask = {0};
    bool ok = add_compiler(&cmd, &a, c, e);
    if (ok) {
        char hex[33];
        struct lang_tool t = {.program = cmd.argv[cmd.compiler], .hint = cmd.hint, .timeout = 10};
        ask = cmd;
        add_word(&ask, "--version");
        add_options(&cmd, &a, c, (struct str){0});
        hash_hex(hash_words(&cmd, ask.n - 1), hex);
        ok = lang_tool_line(out, &t, ask.argv, false, e);
        if (ok) buf_printf(out, ", %s, options %.8s", optimisation(&ask, c), hex);
    }
    arena_release(&a);
    return ok;
}
