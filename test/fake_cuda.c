// SPDX-License-Identifier: Apache-2.0
//
// A simulation of CUDA's and of HIP's library, for tests of the driver without a GPU; named by
// QUERN_CUDA_LIBRARY and QUERN_HIP_LIBRARY. It tracks handles, memory and the current context, and
// aborts on undefined use: also if a stream uses memory that another stream used before without an
// order between the two. QUERN_FAKE_CUDA, words: devices=N, memory=MIB, lost=N (the N-th launch
// accesses an illegal address: all later calls fail likewise), at=N (device of all memory, 0), rows=N
// (workgroups along y and z at once, 65535), optin=BYTES (maximal dynamic shared memory, 101376),
// segment=BYTES (allocations are reported as if mapped by parts of that size).
//
// An image is an ELF header, then the number of functions and for each its info[8]; functions are
// k_0, k_1 ... Each takes y, extents, a number p and the base, and adds p to y[group], the
// workgroups counted in a grid of these extents. With info[6] = 1 it also takes a matrix, whose
// eight numbers follow those of three functions, and adds its number of columns.
//
// Cubins of CUDA's compiler are accepted, too. Their functions, whose first buffers=N (2) arguments
// are pointers, only record these (fake_was_given).
//
// Also simulates cuBLAS and rocBLAS (QUERN_CUBLAS_LIBRARY, QUERN_ROCBLAS_LIBRARY): column-major
// GEMM of f32, f64 and bf16. And cuDNN and MIOpen (fake_cudnn.h, fake_miopen.h).
#include <elf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { STREAM = 1, EVENT, MODULE, FUNCTION, PRODUCTS, CONVOLUTIONS, TENSOR, FILTER, WINDOW };
enum { DNN_DIMS = 5, STREAMS = 64, OUTER = 7 };
enum { OK, INVALID = 1, NOT_INITIALIZED = 3, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, NO_BINARY = 209, NOT_FOUND = 500, ILLEGAL = 700 };

enum { MATRIX = 68 + 3 * 32 }; /* in an image */

struct object {
    enum kind kind;
    struct object *next;
    int32_t info[8];  /* FUNCTION */
    int32_t dynamic;  /* maximal requestable size */
    const char *image; /* MODULE, FUNCTION */
    bool is_cubin;     /* FUNCTION */
    struct object *parts;
    long at; /* EVENT: launches before it; -1: not recorded */
    int stream; /* STREAM: its number, the default one's is 0 */
    uint64_t before[STREAMS]; /* STREAM, EVENT: per stream, the work that has ended when its next operation begins */
    int32_t n, type, list[3][DNN_DIMS]; /* TENSOR, FILTER: sizes, steps; WINDOW: pads, strides, dilations */
    int32_t groups, math; /* WINDOW */
    int32_t mode, no_alternative, is_found; /* WINDOW, of MIOpen */
};

static struct memory {
    struct memory *next;
    char *p;
    size_t n;
    int stream; /* that used it last, and when */
    uint64_t at;
} *memories;

static long n_objects, n_launches, n_contexts, n_dnn; /* n_dnn: calls of libraries of convolutions that may fail */
static size_t in_use;
static int is_lost, context, outer, n_streams, maker;
static void *current = &outer;            /* CUDA: the current context of other code, before the driver runs */
static int32_t device = OUTER;            /* HIP: likewise */
static struct object *alive, by_default; /* the default stream */
static uint64_t now, host[STREAMS];      /* the work that the host has waited for */

static long option(const char *name, long otherwise)
{
    const char *p = getenv("QUERN_FAKE_CUDA");
    size_t n = strlen(name);
    for (; p && *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (strncmp(p, name, n) == 0 && p[n] == '=') return atol(p + n + 1);
    return otherwise;
}

#define FAKE __attribute__((visibility("default")))
/* A function under both names. */
#define BOTH(cuda, hip, parameters)                                                                \
    FAKE int32_t cuda parameters;                                                                  \
    FAKE int32_t hip parameters __attribute__((alias(#cuda)));                                     \
    int32_t cuda parameters

FAKE long fake_objects(void);
long fake_objects(void) { return n_objects + n_contexts; }
FAKE void fake_reset(void);
void fake_reset(void) { is_lost = 0, n_launches = 0, n_dnn = 0; } /* a new process */

/* Whether the current context is that of other code again. */
FAKE long fake_is_outer(void);
long fake_is_outer(void) { return current == &outer && device == OUTER; }

#define READY                                                                                      \
    if (is_lost) return ILLEGAL;                                                                   \
    if (current != &context && device == OUTER) return NO_CONTEXT

static struct object *make(enum kind kind)
{
    struct object *x = calloc(1, sizeof *x);
    if (!x) abort();
    x->kind = kind, x->at = -1, x->next = alive;
    n_objects++;
    return alive = x;
}

static struct object *there(void *p, enum kind kind)
{
    for (struct object *x = alive; x; x = x->next)
        if (x == p && x->kind == kind) return x;
    abort(); /* used after its destruction, or of another kind */
}

static int32_t destroy(void *p, enum kind kind)
{
    struct object *x = there(p, kind), **at = &alive;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    free(x);
    n_objects--;
    return OK;
}

/* Time, by streams: each knows which work of the others has ended when its next operation begins. */

static void merge(uint64_t *to, const uint64_t *from)
{
    for (int i = 0; i < STREAMS; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

static struct object *stream_of(void *s) { return s ? there(s, STREAM) : &by_default; }

static struct object *begin(void *s)
{
    struct object *x = stream_of(s);
    merge(x->before, host);
    x->before[x->stream] = ++now;
    return x;
}

/* The stream's operation uses the bytes, which must be of one piece of memory. */
static char *use(struct object *s, uint64_t at, size_t n)
{
    char *p = (char *)(uintptr_t)at;
    struct memory *m = memories;
    while (m && (p < m->p || n > m->n || (size_t)(p - m->p) > m->n - n)) m = m->next;
    if (!m) return NULL;
    if (s->before[m->stream] < m->at) abort(); /* another stream may still use it */
    m->stream = s->stream, m->at = now;
    return p;
}

/* After a fork the child cannot. */
BOTH(cuInit, hipInit, (uint32_t flags))
{
    if (!maker) maker = (int)getpid();
    return flags ? INVALID : maker == (int)getpid() ? OK : NOT_INITIALIZED;
}

BOTH(cuDriverGetVersion, hipDriverGetVersion, (int32_t * v))
{
    *v = 13000;
    return OK;
}

FAKE int32_t cuGetErrorName(int32_t r, const char **name);
FAKE const char *hipGetErrorName(int32_t r);
const char *hipGetErrorName(int32_t r)
{
    switch (r) {
    case INVALID: return "FAKE_INVALID_VALUE";
    case OUT_OF_MEMORY: return "FAKE_OUT_OF_MEMORY";
    case NO_BINARY: return "FAKE_NO_BINARY_FOR_GPU";
    case NOT_FOUND: return "FAKE_NOT_FOUND";
    case ILLEGAL: return "FAKE_ILLEGAL_ADDRESS";
    default: return "FAKE_ERROR";
    }
}
int32_t cuGetErrorName(int32_t r, const char **name)
{
    *name = hipGetErrorName(r);
    return OK;
}

BOTH(cuDeviceGetCount, hipGetDeviceCount, (int32_t * n))
{
    if (maker != (int)getpid()) return NOT_INITIALIZED;
    *n = (int32_t)option("devices", 1);
    return *n ? OK : 100;
}

BOTH(cuDeviceGet, hipDeviceGet, (int32_t * d, int32_t i))
{
    *d = i;
    return i < option("devices", 1) ? OK : 101;
}

BOTH(cuDeviceGetName, hipDeviceGetName, (char *name, int32_t size, int32_t d))
{
    snprintf(name, (size_t)size, "fake %c", 'A' + d);
    return OK;
}

BOTH(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t *n, int32_t d))
{
    *n = (size_t)option("memory", 1024) << 20;
    return OK;
}

/* By number, as the drivers ask: CUDA's and HIP's. */
static int32_t attribute(int32_t *v, int32_t what, int is_hip)
{
    int32_t rows = (int32_t)option("rows", 65535), optin = (int32_t)option("optin", 101376);
    const struct {
        int32_t cuda, hip, value;
    } all[] = {{1, 56, 1024}, {2, 26, 1024}, {3, 27, 1024},  {4, 28, 64},     {5, 29, INT32_MAX}, {6, 30, rows},
               {7, 31, rows}, {8, 74, 49152}, {97, -1, optin}, {10, 87, is_hip ? 64 : 32}, {13, 5, 1500000}, {16, 63, 10},
               {36, 60, 1000000}, {37, 59, 256}, {38, 19, 1 << 20}, {75, 23, 8}, {76, 61, 6}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (what == (is_hip ? all[i].hip : all[i].cuda)) {
            *v = all[i].value;
            return OK;
        }
    return INVALID;
}
FAKE int32_t cuDeviceGetAttribute(int32_t *v, int32_t what, int32_t d);
int32_t cuDeviceGetAttribute(int32_t *v, int32_t what, int32_t d) { return attribute(v, what, 0); }
FAKE int32_t hipDeviceGetAttribute(int32_t *v, int32_t what, int32_t d);
int32_t hipDeviceGetAttribute(int32_t *v, int32_t what, int32_t d) { return attribute(v, what, 1); }

FAKE int32_t hipGetDeviceProperties(void *p, int32_t d);
int32_t hipGetDeviceProperties(void *p, int32_t d)
{
    memset(p, 0, 792);
    snprintf(p, 256, "gfx of another kind");
    strcpy((char *)p + 396, "gfx90a:sramecc+:xnack-");
    return OK;
}

FAKE int32_t cuDevicePrimaryCtxRetain(void **c, int32_t d);
int32_t cuDevicePrimaryCtxRetain(void **c, int32_t d)
{
    *c = &context;
    n_contexts++;
    return OK;
}
FAKE int32_t cuDevicePrimaryCtxRelease_v2(int32_t d);
int32_t cuDevicePrimaryCtxRelease_v2(int32_t d)
{
    if (n_contexts-- == 0) abort();
    return OK;
}
FAKE int32_t cuCtxSetCurrent(void *c);
int32_t cuCtxSetCurrent(void *c)
{
    if (c != &outer && (c != &context || !n_contexts)) abort();
    current = c;
    return is_lost ? ILLEGAL : OK;
}
FAKE int32_t cuCtxGetCurrent(void **c);
int32_t cuCtxGetCurrent(void **c)
{
    *c = current;
    return is_lost ? ILLEGAL : OK;
}
FAKE int32_t hipGetDevice(int32_t *d);
int32_t hipGetDevice(int32_t *d)
{
    *d = device;
    return is_lost ? ILLEGAL : OK;
}
FAKE int32_t hipSetDevice(int32_t d);
int32_t hipSetDevice(int32_t d)
{
    device = d;
    return is_lost ? ILLEGAL : OK;
}

BOTH(cuStreamCreate, hipStreamCreateWithFlags, (void **s, uint32_t flags))
{
    READY;
    struct object *x = make(STREAM);
    x->stream = 1 + n_streams++ % (STREAMS - 1); /* of many, two seem to be one */
    *s = x;
    return OK;
}
BOTH(cuStreamDestroy_v2, hipStreamDestroy, (void *s)) { return destroy(s, STREAM); }
BOTH(cuStreamSynchronize, hipStreamSynchronize, (void *s))
{
    READY;
    merge(host, stream_of(s)->before);
    return OK;
}
BOTH(cuStreamWaitEvent, hipStreamWaitEvent, (void *s, void *x, uint32_t flags))
{
    READY;
    if (flags) return INVALID;
    merge(stream_of(s)->before, there(x, EVENT)->before);
    return OK;
}
BOTH(cuEventCreate, hipEventCreateWithFlags, (void **x, uint32_t flags))
{
    READY;
    *x = make(EVENT);
    return OK;
}
BOTH(cuEventDestroy_v2, hipEventDestroy, (void *x)) { return destroy(x, EVENT); }
BOTH(cuEventRecord, hipEventRecord, (void *x, void *s))
{
    READY;
    struct object *e = there(x, EVENT);
    e->at = n_launches;
    memcpy(e->before, stream_of(s)->before, sizeof e->before);
    return OK;
}
/* A launch takes a quarter of a millisecond. */
BOTH(cuEventElapsedTime, hipEventElapsedTime, (float *ms, void *from, void *to))
{
    READY;
    const struct object *a = there(from, EVENT), *b = there(to, EVENT);
    if (a->at < 0 || b->at < a->at) return INVALID;
    *ms = 0.25f * (float)(b->at - a->at);
    return OK;
}

/* The bytes must be of one piece of memory. */
static char *bytes(uint64_t at, size_t n)
{
    char *p = (char *)(uintptr_t)at;
    for (struct memory *m = memories; m; m = m->next)
        if (p >= m->p && n <= m->n && (size_t)(p - m->p) <= m->n - n) return p;
    return NULL;
}

BOTH(cuMemAlloc_v2, hipMalloc, (uint64_t *p, size_t n))
{
    READY;
    if (n == 0) return INVALID;
    if (in_use + n > (size_t)option("memory", 1024) << 20) return OUT_OF_MEMORY;
    struct memory *m = malloc(sizeof *m);
    *m = (struct memory){.next = memories, .p = aligned_alloc(256, (n + 255) / 256 * 256), .n = n};
    memset(m->p, 0xEE, n); /* memory is not zeroed */
    memories = m, in_use += n, n_objects++;
    *p = (uint64_t)(uintptr_t)m->p;
    return OK;
}
BOTH(cuMemFree_v2, hipFree, (uint64_t p))
{
    for (struct memory **at = &memories, *m; (m = *at); at = &m->next) {
        if ((uint64_t)(uintptr_t)m->p != p) continue;
        *at = m->next;
        in_use -= m->n, n_objects--;
        free(m->p);
        free(m);
        return is_lost ? ILLEGAL : OK;
    }
    abort();
}
/* Pointers: of the device at=N. */
BOTH(cuPointerGetAttribute, hipPointerGetAttribute, (void *v, int32_t what, uint64_t p))
{
    const struct memory *m = memories;
    while (m && (p < (uintptr_t)m->p || p >= (uintptr_t)m->p + m->n)) m = m->next;
    if (!m) return INVALID;
    uint64_t segment = (uint64_t)option("segment", LONG_MAX), start = (p - (uintptr_t)m->p) / segment * segment;
    uint64_t size = m->n - start < segment ? m->n - start : segment;
    int32_t at = (int32_t)option("at", 0);
    start += (uintptr_t)m->p;
    switch (what) {
    case 9: memcpy(v, &at, 4); return OK;
    case 11: memcpy(v, &start, 8); return OK;
    case 12: memcpy(v, &size, sizeof size); return OK;
    default: return INVALID;
    }
}
BOTH(cuMemsetD8Async, hipMemsetD8Async, (uint64_t p, unsigned char v, size_t n, void *s))
{
    READY;
    char *to = use(begin(s), p, n);
    if (!to) return INVALID;
    memset(to, v, n);
    return OK;
}
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (uint64_t to, const void *from, size_t n, void *s))
{
    READY;
    char *p = use(begin(s), to, n);
    if (!p) return INVALID;
    memcpy(p, from, n);
    return OK;
}
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *to, uint64_t from, size_t n, void *s))
{
    READY;
    struct object *in = begin(s);
    for (struct object *x = alive; x; x = x->next) /* constants of a module */
        if (x->kind == MODULE && from == (uint64_t)(uintptr_t)x->image + MATRIX && n <= 32) {
            memcpy(to, x->image + MATRIX, n);
            return OK;
        }
    for (struct object *x = alive; x; x = x->next)
        if (x->kind == FUNCTION && from == (uint64_t)(uintptr_t)x->info && n <= sizeof x->info) {
            memcpy(to, x->info, n);
            return OK;
        }
    const char *p = use(in, from, n);
    if (!p) return INVALID;
    memcpy(to, p, n);
    return OK;
}

/* Modules. */

enum { CUBIN = 190, GIVEN = 16 };
static uint64_t given[GIVEN]; /* pointers that functions of cubins got last */
static uint32_t n_given;
FAKE long fake_was_given(uint64_t at);
long fake_was_given(uint64_t at)
{
    for (int i = 0; i < GIVEN; i++)
        if (given[i] == at) return 1;
    return 0;
}

static bool is_cubin(const char *image) { return ((const Elf64_Ehdr *)(const void *)image)->e_machine == CUBIN; }

/* The symbol of this name in a cubin; NULL: none. */
static const char *symbol(const char *image, const char *name)
{
    const Elf64_Ehdr *h = (const void *)image;
    const Elf64_Shdr *s = (const void *)(image + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        if (s[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *v = (const void *)(image + s[i].sh_offset);
        const char *names = image + s[s[i].sh_link].sh_offset;
        for (size_t k = 0; k < s[i].sh_size / sizeof *v; k++)
            if (!strcmp(names + v[k].st_name, name) && v[k].st_shndx < h->e_shnum) return image + s[v[k].st_shndx].sh_offset + v[k].st_value;
    }
    return NULL;
}

static bool describe(struct object *f, const char *image, const char *name)
{
    char info[512];
    snprintf(info, sizeof info, "%s_info", name);
    const char *p = symbol(image, info);
    if (!symbol(image, name) || !p) return false;
    memcpy(f->info, p, sizeof f->info);
    return f->is_cubin = true;
}

/* Of the last requested function of a cubin. */
static bool is_info_of_cubin(const struct object *m, const char *name)
{
    const char *end = strrchr(name, '_');
    return m->parts && m->parts->next->is_cubin && end && !strcmp(end, "_info");
}

static int32_t launch_cubin(struct object *in, void **parameters)
{
    for (long i = 0; i < option("buffers", 2); i++) {
        uint64_t at = *(uint64_t *)parameters[i];
        if (!use(in, at, 1)) abort();
        given[n_given++ % GIVEN] = at;
    }
    return OK;
}

BOTH(cuModuleLoadData, hipModuleLoadData, (void **out, const void *image))
{
    READY;
    int32_t n;
    memcpy(&n, (const char *)image + 64, 4);
    if (n < 0 && !is_cubin(image)) return NO_BINARY;
    struct object *m = make(MODULE);
    m->image = image;
    *out = m;
    return OK;
}

BOTH(cuModuleGetFunction, hipModuleGetFunction, (void **f, void *module, const char *name))
{
    READY;
    struct object *m = there(module, MODULE), *x;
    int32_t n, i;
    struct object of_cubin = {0};
    memcpy(&n, m->image + 64, 4);
    if (is_cubin(m->image) ? !describe(&of_cubin, m->image, name) : sscanf(name, "k_%d", &i) != 1 || i < 0 || i >= n) return NOT_FOUND;
    x = make(FUNCTION);
    x->is_cubin = of_cubin.is_cubin;
    memcpy(x->info, x->is_cubin ? (const char *)of_cubin.info : m->image + 68 + 32 * i, 32);
    x->dynamic = 49152, x->image = m->image;
    struct object *link = malloc(sizeof *link); /* goes with its module */
    link->next = x, link->parts = m->parts, m->parts = link;
    *f = x;
    return OK;
}

BOTH(cuModuleUnload, hipModuleUnload, (void *module))
{
    struct object *m = there(module, MODULE);
    while (m->parts) {
        struct object *link = m->parts;
        m->parts = link->parts;
        destroy(link->next, FUNCTION);
        free(link);
    }
    return destroy(m, MODULE);
}

/* Of the last requested function. */
BOTH(cuModuleGetGlobal_v2, hipModuleGetGlobal, (uint64_t * p, size_t *n, void *module, const char *name))
{
    READY;
    const struct object *m = there(module, MODULE);
    int32_t i;
    char rest[8] = "";
    if (is_info_of_cubin(m, name)) strcpy(rest, "info");
    else if (sscanf(name, "k_%d_%7s", &i, rest) != 2 || !m->parts) return NOT_FOUND;
    if (!strcmp(rest, "maps")) {
        *p = (uint64_t)(uintptr_t)m->image + MATRIX, *n = 32;
        return OK;
    }
    if (strcmp(rest, "info")) return NOT_FOUND;
    *p = (uint64_t)(uintptr_t)m->parts->next->info;
    *n = m->parts->next->info[0] == 77 ? 4 : 32;
    return OK;
}

BOTH(cuFuncGetAttribute, hipFuncGetAttribute, (int32_t * v, int32_t what, void *f))
{
    READY;
    const struct object *x = there(f, FUNCTION);
    if (what != 0 && what != 1) return INVALID;
    *v = what == 0 ? x->is_cubin ? 1024 : 512 : x->info[7]; /* threads, static shared memory */
    return OK;
}

FAKE int32_t cuFuncSetAttribute(void *f, int32_t what, int32_t v);
int32_t cuFuncSetAttribute(void *f, int32_t what, int32_t v)
{
    READY;
    if (what != 8 || v > option("optin", 101376)) return INVALID;
    there(f, FUNCTION)->dynamic = v;
    return OK;
}

/* The simulated content of a tensor map's 128 bytes. */
struct code { uint64_t address, size[2], stride; uint32_t box[2], every[2]; int32_t type, swizzle; };
static long n_codes;
FAKE long fake_codes(void);
long fake_codes(void) { return n_codes; }

FAKE int32_t cuTensorMapEncodeTiled(void *to, int32_t type, uint32_t rank, void *address, const uint64_t *size, const uint64_t *stride,
                                    const uint32_t *box, const uint32_t *every, int32_t interleave, int32_t swizzle, int32_t promotion, int32_t fill);
int32_t cuTensorMapEncodeTiled(void *to, int32_t type, uint32_t rank, void *address, const uint64_t *size, const uint64_t *stride,
                               const uint32_t *box, const uint32_t *every, int32_t interleave, int32_t swizzle, int32_t promotion, int32_t fill)
{
    static const uint32_t bytes_of[] = {1, 2, 4, 4, 8};
    if ((uintptr_t)to % 64) abort();
    if (rank != 2 || type < 0 || type > 4 || (uintptr_t)address % 16 || stride[0] % 16 || interleave || fill) return INVALID;
    uint32_t line = box[0] * bytes_of[type];
    if (line % 16 || box[0] > 256 || box[1] > 256 || !box[1] || (swizzle == 3 && line > 128) || (swizzle && swizzle != 3)) return INVALID;
    if (!bytes((uint64_t)(uintptr_t)address, (size_t)((size[1] - 1) * stride[0] + size[0] * bytes_of[type]))) abort();
    struct code x = {(uint64_t)(uintptr_t)address, {size[0], size[1]}, stride[0], {box[0], box[1]}, {every[0], every[1]}, type, swizzle};
    if (x.every[0] != 1 || x.every[1] != 1 || promotion < 0 || promotion > 3) return INVALID;
    memset(to, 0, 128);
    memcpy(to, &x, sizeof x);
    n_codes++;
    return OK;
}

/* The matrix of a launch must be that of the image, at the current address of the argument. */
static int32_t columns(const struct object *f, void **parameters)
{
    int32_t fact[8];
    struct code x;
    memcpy(fact, f->image + MATRIX, sizeof fact);
    memcpy(&x, parameters[6], sizeof x);
    if (x.address != *(uint64_t *)parameters[fact[0]] || x.size[0] != (uint64_t)fact[3] || x.size[1] != (uint64_t)fact[2]) abort();
    if (x.stride != (uint64_t)(fact[4] * fact[1]) || x.box[0] != (uint32_t)fact[6] || x.box[1] != (uint32_t)fact[5]) abort();
    if (x.swizzle != (fact[7] ? 3 : 0)) abort();
    return fact[3];
}

BOTH(cuLaunchKernel, hipModuleLaunchKernel,
     (void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
      uint32_t shared, void *s, void **parameters, void **extra))
{
    READY;
    const struct object *x = there(f, FUNCTION);
    uint64_t rows = (uint64_t)option("rows", 65535);
    uint32_t extent[3];
    struct object *in = begin(s);
    if (!gx || !gy || !gz || gy > rows || gz > rows || shared > (uint32_t)x->dynamic) return INVALID;
    if (bx != (uint32_t)x->info[1] || by != (uint32_t)x->info[2] || bz != (uint32_t)x->info[3]) abort();
    if (++n_launches == option("lost", 0)) is_lost = 1;
    if (is_lost) return ILLEGAL;
    if (x->is_cubin) return launch_cubin(in, parameters);
    uint64_t *address[2] = {parameters[0], parameters[1]};
    int32_t add = *(int32_t *)parameters[2], base[3];
    for (int d = 0; d < 3; d++) base[d] = *(int32_t *)parameters[3 + d];
    if (x->info[6]) add += columns(x, parameters);
    const char *size = use(in, *address[1], sizeof extent);
    if (!size) abort();
    memcpy(extent, size, sizeof extent);
    for (uint64_t k = 0; k < gz; k++)
        for (uint64_t j = 0; j < gy; j++)
            for (uint64_t i = 0; i < gx; i++) {
                uint64_t at = ((k + (uint64_t)base[2]) * extent[1] + j + (uint64_t)base[1]) * extent[0] + i + (uint64_t)base[0];
                int32_t *y = (int32_t *)(void *)use(in, *address[0] + 4 * at, 4);
                if (!y) abort();
                *y += add;
            }
    return OK;
}

/* Products. */

FAKE int32_t cublasCreate_v2(void **h);
FAKE int32_t rocblas_create_handle(void **h) __attribute__((alias("cublasCreate_v2")));
int32_t cublasCreate_v2(void **h)
{
    READY;
    *h = make(PRODUCTS);
    return OK;
}
FAKE int32_t cublasDestroy_v2(void *h);
FAKE int32_t rocblas_destroy_handle(void *h) __attribute__((alias("cublasDestroy_v2")));
int32_t cublasDestroy_v2(void *h) { return destroy(h, PRODUCTS); }

FAKE int32_t cublasSetStream_v2(void *h, void *s);
FAKE int32_t rocblas_set_stream(void *h, void *s) __attribute__((alias("cublasSetStream_v2")));
int32_t cublasSetStream_v2(void *h, void *s)
{
    there(h, PRODUCTS), there(s, STREAM);
    return OK;
}
FAKE int32_t cublasGetVersion_v2(void *h, int32_t *v);
int32_t cublasGetVersion_v2(void *h, int32_t *v)
{
    there(h, PRODUCTS);
    *v = 130002;
    return OK;
}
FAKE int32_t rocblas_get_version_string(char *text, size_t n);
int32_t rocblas_get_version_string(char *text, size_t n) { return snprintf(text, n, "4.1.0") < (int)n ? OK : INVALID; }

enum { F32, F64, BF16, F16 };

static double power(int n) { return n < 0 ? 1 / power(-n) : (double)((uint64_t)1 << n); }

static double from_half(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? (1024 + m) * power(e - 25) : m * power(-24);
    return h >> 15 ? -v : v;
}

static uint16_t to_half(double v)
{
    double a = v < 0 ? -v : v;
    int e = 1;
    if (!(a < 65520)) return 0x7C00;
    while (a >= 2048 * power(e - 25)) e++;
    double q = a / power(e - 25);
    int k = (int)q;
    if (q - k > 0.5 || (q - k == 0.5 && k % 2)) k++;
    return (uint16_t)((v < 0) << 15 | (((e - 1) << 10) + k));
}

static double element(uint64_t at, int type, int64_t i)
{
    const size_t size = type == F64 ? 8 : type == F32 ? 4 : 2;
    const char *p = bytes(at + (uint64_t)i * size, size);
    uint32_t bits = 0;
    float f;
    double d;
    uint16_t half;
    if (!p) abort();
    if (type == F64) return memcpy(&d, p, 8), d;
    if (type == F16) return memcpy(&half, p, 2), from_half(half);
    memcpy((char *)&bits + (type == BF16 ? 2 : 0), p, size);
    return memcpy(&f, &bits, 4), (double)f;
}

static void put(uint64_t at, int type, int64_t i, double v)
{
    const size_t size = type == F64 ? 8 : type == F32 ? 4 : 2;
    char *p = bytes(at + (uint64_t)i * size, size);
    float f = (float)v;
    uint16_t half = to_half(v);
    if (!p) abort();
    if (type == F16) memcpy(p, &half, 2);
    else memcpy(p, type == F64 ? (char *)&v : (char *)&f + (type == BF16 ? 2 : 0), size);
}

struct matrix { uint64_t at; int64_t ld, step; int is_transposed; };

static int32_t multiply(int type, const int32_t size[3], struct matrix a, struct matrix b, struct matrix c, int32_t batch)
{
    READY;
    n_launches++;
    for (int32_t x = 0; x < batch; x++)
        for (int32_t j = 0; j < size[1]; j++)
            for (int32_t i = 0; i < size[0]; i++) {
                double sum = 0;
                for (int32_t k = 0; k < size[2]; k++) {
                    int64_t in_a = a.is_transposed ? k + i * a.ld : i + k * a.ld, in_b = b.is_transposed ? j + k * b.ld : k + j * b.ld;
                    sum += element(a.at, type, x * a.step + in_a) * element(b.at, type, x * b.step + in_b);
                }
                put(c.at, type, x * c.step + i + j * c.ld, sum);
            }
    return OK;
}

/* cudaDataType_t and cublasComputeType_t; operands all of one type. -1: none of these. */
static int cuda_type(int32_t a, int32_t b, int32_t c, int32_t compute)
{
    if (a != b || a != c) return -1;
    if (a == 0 && (compute == 68 || compute == 77)) return F32;
    return a == 1 && compute == 70 ? F64 : a == 14 && compute == 68 ? BF16 : -1;
}

FAKE int32_t cublasGemmStridedBatchedEx(void *h, int32_t op_a, int32_t op_b, int32_t m, int32_t n, int32_t k, const void *alpha,
                                        uint64_t a, int32_t type_a, int32_t lda, long long step_a, uint64_t b, int32_t type_b,
                                        int32_t ldb, long long step_b, const void *beta, uint64_t c, int32_t type_c, int32_t ldc,
                                        long long step_c, int32_t batch, int32_t compute, int32_t algorithm);
int32_t cublasGemmStridedBatchedEx(void *h, int32_t op_a, int32_t op_b, int32_t m, int32_t n, int32_t k, const void *alpha,
                                   uint64_t a, int32_t type_a, int32_t lda, long long step_a, uint64_t b, int32_t type_b,
                                   int32_t ldb, long long step_b, const void *beta, uint64_t c, int32_t type_c, int32_t ldc,
                                   long long step_c, int32_t batch, int32_t compute, int32_t algorithm)
{
    int type = cuda_type(type_a, type_b, type_c, compute);
    there(h, PRODUCTS);
    if (type < 0 || (type == F64 ? *(const double *)alpha != 1 : *(const float *)alpha != 1)) return INVALID;
    return multiply(type, (int32_t[]){m, n, k}, (struct matrix){a, lda, step_a, op_a}, (struct matrix){b, ldb, step_b, op_b},
                    (struct matrix){c, ldc, step_c, 0}, batch);
}

FAKE int32_t cublasGemmEx(void *h, int32_t op_a, int32_t op_b, int32_t m, int32_t n, int32_t k, const void *alpha, uint64_t a,
                          int32_t type_a, int32_t lda, uint64_t b, int32_t type_b, int32_t ldb, const void *beta, uint64_t c,
                          int32_t type_c, int32_t ldc, int32_t compute, int32_t algorithm);
int32_t cublasGemmEx(void *h, int32_t op_a, int32_t op_b, int32_t m, int32_t n, int32_t k, const void *alpha, uint64_t a,
                     int32_t type_a, int32_t lda, uint64_t b, int32_t type_b, int32_t ldb, const void *beta, uint64_t c,
                     int32_t type_c, int32_t ldc, int32_t compute, int32_t algorithm)
{
    return cublasGemmStridedBatchedEx(h, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1,
                                      compute, algorithm);
}

FAKE int32_t rocblas_gemm_strided_batched_ex(void *h, int32_t op_a, int32_t op_b, int32_t m, int32_t n, int32_t k, const void *alpha,
                                             uint64_t a, int32_t type_a, int32_t lda, int64_t step_a, uint64_t b, int32_t type_b,
                                             int32_t ldb, int64_t step_b, const void *beta, uint64_t c, int32_t type_c, int32_t ldc,
                                             int64_t step_c, uint64_t d, int32_t type_d, int32_t ldd, int64_t step_d, int32_t batch,
                                             int32_t compute, int32_t algorithm, int32_t solution, uint32_t flags);
int32_t rocblas_gemm_strided_batched_ex(void *h, int32_t op_a, int32_t op_b, int32_t m, int32_t n, int32_t k, const void *alpha,
                                        uint64_t a, int32_t type_a, int32_t lda, int64_t step_a, uint64_t b, int32_t type_b,
                                        int32_t ldb, int64_t step_b, const void *beta, uint64_t c, int32_t type_c, int32_t ldc,
                                        int64_t step_c, uint64_t d, int32_t type_d, int32_t ldd, int64_t step_d, int32_t batch,
                                        int32_t compute, int32_t algorithm, int32_t solution, uint32_t flags)
{
    int type = type_a == 151 ? F32 : type_a == 152 ? F64 : type_a == 168 ? BF16 : -1;
    there(h, PRODUCTS);
    if (type < 0 || type_b != type_a || type_c != type_a || type_d != type_a || compute != (type == F64 ? 152 : 151)) return INVALID;
    if (op_a < 111 || op_a > 112 || op_b < 111 || op_b > 112 || c != d || ldc != ldd || step_c != step_d || flags) return INVALID;
    return multiply(type, (int32_t[]){m, n, k}, (struct matrix){a, lda, step_a, op_a == 112},
                    (struct matrix){b, ldb, step_b, op_b == 112}, (struct matrix){d, ldd, step_d, 0}, batch);
}

#include "fake_cudnn.h"
#include "fake_miopen.h"
