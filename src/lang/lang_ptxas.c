// SPDX-License-Identifier: Apache-2.0
//
// lang_ptxas.c: PTX to a cubin by NVIDIA's assembler: the library nvJitLink, which is opened when first needed and
// stays loaded, else the program ptxas.
#include "lang/lang_ptx.h"

#include "lang/lang_nvrtc.h"
#include "lang/lang_tool.h"

#include <string.h>

static const char *const libraries[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so", "/usr/local/cuda/lib64/libnvJitLink.so"};
static const char *const programs[] = {"ptxas", "/usr/local/cuda/bin/ptxas"};

enum { INPUT_PTX = 2, OK = 0 };

typedef int status;
typedef void *linker;
struct library {
    status (*create)(linker *l, u32 n, const char **option);
    status (*destroy)(linker *l);
    status (*add)(linker l, int kind, const void *data, size_t n, const char *name);
    status (*complete)(linker l);
    status (*size)(linker l, size_t *n);
    status (*cubin)(linker l, void *to);
    status (*log_size)(linker l, size_t *n);
    status (*log)(linker l, char *to);
    status (*version)(unsigned *major, unsigned *minor);
};

static bool open_library(struct library *l)
{
    struct err ignored = {0};
    void *lib = NULL;
    for (i64 i = 0; i < countof(libraries) && !lib; i++) lib = os_dlopen(libraries[i], &ignored);
    const struct { const char *name; void *to; } entry[] = {
        {"nvJitLinkCreate", &l->create}, {"nvJitLinkDestroy", &l->destroy}, {"nvJitLinkAddData", &l->add},
        {"nvJitLinkComplete", &l->complete}, {"nvJitLinkGetLinkedCubinSize", &l->size}, {"nvJitLinkGetLinkedCubin", &l->cubin},
        {"nvJitLinkGetErrorLogSize", &l->log_size}, {"nvJitLinkGetErrorLog", &l->log}, {"nvJitLinkVersion", &l->version},
    };
    bool ok = lib != NULL;
    for (i64 i = 0; i < countof(entry) && ok; i++) {
        void *f = os_dlsym(lib, entry[i].name);
        memcpy(entry[i].to, &f, sizeof f);
        ok = f != NULL;
    }
    if (lib && !ok) os_dlclose(lib);
    return ok;
}

/* The first lines of the assembler's messages. */
static bool say(const struct library *l, linker x, struct arena *a, struct err *e)
{
    enum { MAX_MESSAGE = 600 };
    size_t n = 0;
    const char *log = "";
    if (x && l->log_size(x, &n) == OK && n > 1) {
        char *text = arena_alloc(a, (i64)n + 1);
        if (l->log(x, text) == OK) log = text;
    }
    return err_set(e, ERR_FAILED, "'nvJitLink' failed: %.*s", MAX_MESSAGE, log);
}

static bool take_binary(const struct library *l, linker x, struct buf *binary, struct arena *a)
{
    size_t n = 0;
    if (l->size(x, &n) != OK || n == 0) return false;
    char *bytes = arena_alloc(a, (i64)n);
    if (l->cubin(x, bytes) != OK) return false;
    buf_str(binary, (struct str){bytes, (i64)n});
    return true;
}

static bool build_by_library(const struct library *l, struct buf *binary, struct str text, const struct caps *c, struct err *e)
{
    struct arena a = {0};
    linker x = NULL;
    const char *option[] = {str_fmt(&a, "-arch=%s", c->arch).p};
    bool ok = l->create(&x, countof(option), option) == OK && l->add(x, INPUT_PTX, str_z(&a, text), (size_t)text.n + 1, "k.ptx") == OK &&
              l->complete(x) == OK && take_binary(l, x, binary, &a);
    if (!ok) say(l, x, &a, e);
    if (x) l->destroy(&x);
    arena_release(&a);
    return ok && (!binary->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

/* The library, *program NULL; else a program. */
static bool find_assembler(struct library *l, const char **program, struct arena *a, struct err *e)
{
    *program = NULL;
    if (open_library(l)) return true;
    *program = lang_tool_first(a, programs, countof(programs));
    return *program || err_set(e, ERR_SYSTEM, "no assembler for ptx found: install nvJitLink (libnvJitLink.so) or ptxas");
}

static bool build_by_program(const char *program, struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    struct arena a = {0};
    const char *argv[] = {program, str_fmt(&a, "-arch=%s", c->arch).p, "-o", "@out", "@in", NULL};
    struct lang_tool t = {.program = "ptxas", .timeout = timeout};
    struct lang_convert v = {argv, "k.ptx", "k.cubin", text};
    bool ok = lang_tool_convert(binary, &t, &v, e);
    arena_release(&a);
    return ok;
}

bool ptxas_build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    struct arena a = {0};
    struct library l;
    const char *program;
    bool ok = nvidia_check_arch(c, "ptx", e) && find_assembler(&l, &program, &a, e);
    if (ok) ok = program ? build_by_program(program, binary, text, c, timeout, e) : build_by_library(&l, binary, text, c, e);
    arena_release(&a);
    return ok;
}

bool ptxas_toolchain(struct buf *out, struct err *e)
{
    struct arena a = {0};
    struct library l;
    const char *program;
    unsigned major = 0, minor = 0;
    bool ok = find_assembler(&l, &program, &a, e);
    if (ok && program) {
        struct lang_tool t = {.program = "ptxas", .timeout = 30};
        ok = lang_tool_line(out, &t, (const char *const[]){program, "--version", NULL}, true, e);
    } else if (ok) {
        l.version(&major, &minor);
        buf_printf(out, "nvjitlink %u.%u", major, minor);
    }
    arena_release(&a);
    return ok;
}
