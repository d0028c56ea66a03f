// SPDX-License-Identifier: Apache-2.0
//
// lang_nvrtc.c: NVIDIA's run-time compiler, a library that is opened when first needed, and
// the compiler nvcc if it is missing. The library stays loaded: opening it takes longer
// than compiling a small kernel, and the processes that build candidates build many.
#include "lang/lang_nvrtc.h"

#include "lang/lang_tool.h"

#include <string.h>

static const char *const libraries[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
static const char *const compilers[] = {"nvcc", "/usr/local/cuda/bin/nvcc"};
static const char *const options[] = {"-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true", "-std=c++17", "-w"};

typedef int status;     /* 0: success */
typedef void *program;
struct nvrtc {
    const char *(*error)(status s);
    status (*version)(int *major, int *minor);
    status (*create)(program *p, const char *text, const char *name, int n_headers, const char *const *headers,
                     const char *const *names);
    status (*compile)(program p, int n, const char *const *option);
    status (*binary_size)(program p, size_t *n);
    status (*binary)(program p, char *to);
    status (*log_size)(program p, size_t *n);
    status (*log)(program p, char *to);
    status (*destroy)(program *p);
};

static bool open_nvrtc(struct nvrtc *n)
{
    struct err ignored = {0};
    void *lib = NULL;
    for (i64 i = 0; i < countof(libraries) && !lib; i++) lib = os_dlopen(libraries[i], &ignored);
    const struct { const char *name; void *to; } entry[] = {
        {"nvrtcGetErrorString", &n->error}, {"nvrtcVersion", &n->version},
        {"nvrtcCreateProgram", &n->create}, {"nvrtcCompileProgram", &n->compile},
        {"nvrtcGetCUBINSize", &n->binary_size}, {"nvrtcGetCUBIN", &n->binary},
        {"nvrtcGetProgramLogSize", &n->log_size}, {"nvrtcGetProgramLog", &n->log},
        {"nvrtcDestroyProgram", &n->destroy},
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

bool nvidia_check_arch(const struct caps *c, const char *lang, struct err *e)
{
    struct str arch = str_of(c->arch);
    bool ok = str_starts(arch, S("sm_")) && arch.n > 3;
    for (i64 i = 3; i < arch.n && ok; i++) ok = arch.p[i] >= '0' && (arch.p[i] <= '9' || arch.p[i] == 'a');
    return ok || err_set(e, ERR_UNSUPPORTED, "no %s for the architecture '%s': expected 'sm_80' or the like", lang, c->arch);
}

/* The reason of a failed build: the first lines of the compiler's messages. */
static bool say(const struct nvrtc *n, program p, status s, struct arena *a, struct err *e)
{
    enum { MAX_MESSAGE = 600 };
    size_t size = 0;
    const char *log = "";
    if (n->log_size(p, &size) == 0 && size > 1) {
        char *text = arena_alloc(a, (i64)size + 1);
        if (n->log(p, text) == 0) log = text;
    }
    return err_set(e, ERR_FAILED, "'nvrtc' failed: %s: %.*s", n->error(s), MAX_MESSAGE, log);
}

static bool take_binary(const struct nvrtc *n, program p, struct buf *binary, struct arena *a, struct err *e)
{
    size_t size = 0;
    status s = n->binary_size(p, &size);
    char *bytes = s == 0 ? arena_alloc(a, (i64)size + 1) : NULL;
    if (s == 0) s = n->binary(p, bytes);
    if (s || size == 0) return err_set(e, ERR_FAILED, "'nvrtc' returned no binary: %s", n->error(s));
    buf_str(binary, (struct str){bytes, (i64)size});
    return true;
}

static bool build_by_library(const struct nvrtc *n, struct buf *binary, struct str text, const struct caps *c,
                             struct err *e)
{
    struct arena a = {0};
    program p = NULL;
    const char *option[countof(options) + 1] = {str_fmt(&a, "-arch=%s", c->arch).p};
    for (i64 i = 0; i < countof(options); i++) option[i + 1] = options[i];
    status s = n->create(&p, str_z(&a, text), "k.cu", 0, NULL, NULL);
    bool ok = s == 0 || err_set(e, ERR_FAILED, "'nvrtc' failed: %s", n->error(s));
    if (ok && (s = n->compile(p, countof(option), option)) != 0) ok = say(n, p, s, &a, e);
    ok = ok && take_binary(n, p, binary, &a, e);
    if (p) n->destroy(&p);
    arena_release(&a);
    return ok && (!binary->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

static bool build_by_compiler(const char *nvcc, struct buf *binary, struct str text, const struct caps *c, double timeout,
                              struct err *e)
{
    struct arena a = {0};
    const char *argv[countof(options) + 8] = {nvcc, "-cubin", str_fmt(&a, "-arch=%s", c->arch).p, "-o", "@out", "@in"};
    for (i64 i = 0; i < countof(options); i++) argv[6 + i] = options[i];
    struct lang_tool t = {.program = "nvcc", .timeout = timeout};
    struct lang_convert v = {argv, "k.cu", "k.cubin", text};
    bool ok = lang_tool_convert(binary, &t, &v, e);
    arena_release(&a);
    return ok;
}

/* The library, *nvcc NULL; else a compiler. */
static bool find_compiler(struct nvrtc *n, const char **nvcc, struct arena *a, struct err *e)
{
    *nvcc = NULL;
    if (open_nvrtc(n)) return true;
    *nvcc = lang_tool_first(a, compilers, countof(compilers));
    return *nvcc || err_set(e, ERR_SYSTEM, "no compiler for cuda found: install nvrtc (libnvrtc.so, in LD_LIBRARY_PATH) or nvcc (in PATH; "
                                           "Debian: nvidia-cuda-toolkit)");
}

bool nvrtc_build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    struct arena a = {0};
    struct nvrtc n;
    const char *nvcc;
    bool ok = nvidia_check_arch(c, "cuda", e) && find_compiler(&n, &nvcc, &a, e);
    if (ok) ok = nvcc ? build_by_compiler(nvcc, binary, text, c, timeout, e) : build_by_library(&n, binary, text, c, e);
    arena_release(&a);
    return ok;
}

bool nvrtc_toolchain(struct buf *out, struct err *e)
{
    struct arena a = {0};
    struct nvrtc n;
    int major = 0, minor = 0;
    const char *nvcc;
    bool ok = find_compiler(&n, &nvcc, &a, e);
    if (ok && nvcc) {
        struct lang_tool t = {.program = "nvcc", .timeout = 30};
        ok = lang_tool_line(out, &t, (const char *const[]){nvcc, "--version", NULL}, true, e);
    } else if (ok) {
        n.version(&major, &minor);
        buf_printf(out, "nvrtc %d.%d", major, minor);
    }
    for (i64 i = 0; i < countof(options) && ok; i++) buf_printf(out, " %s", options[i]);
    arena_release(&a);
    return ok;
}
