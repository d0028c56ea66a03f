// SPDX-License-Identifier: Apache-2.0
//
// A library that looks like CUDA's and like HIP's, for tests of the driver without a GPU; named by QUERN_CUDA_LIBRARY and QUERN_HIP_LIBRARY.
// It keeps book of handles, memory and the current context and aborts on what a real driver would
// leave undefined. QUERN_FAKE_CUDA, words: devices=N, memory=MIB, lost=N (the N-th launch meets an illegal address: all that follows fails
// likewise), rows=N (groups along y and z at once, 65535), optin=BYTES (shared memory that can be asked for, 101376).
//
// An image is an ELF header, then the number of functions and for each its info[8]; functions are k_0, k_1 ... Each takes y, extents, a number p
// and the base, and adds p to y[group], the groups counted in a grid of these extents. With info[6] = 1 it takes a matrix, too, whose eight numbers stand
// behind those of three functions, and adds its number of columns.
//
// It looks like cuBLAS and rocBLAS, too (QUERN_CUBLAS_LIBRARY, QUERN_ROCBLAS_LIBRARY): products of f32, f64 and bf16, columns behind
// each other. And like cuDNN and MIOpen (fake_cudnn.h, fake_miopen.h).
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { STREAM = 1, EVENT, MODULE, FUNCTION, PRODUCTS, CONVOLUTIONS, TENSOR, FILTER, WINDOW };
enum { DNN_DIMS = 5 };
enum { OK, INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, NO_BINARY = 209, NOT_FOUND = 500, ILLEGAL = 700 };

enum { MATRIX = 68 + 3 * 32 }; /* in an image */

struct object {
    enum kind kind;
    struct object *next;
    int32_t info[8];  /* FUNCTION */
    int32_t dynamic;  /* that may be asked for */
    const char *image; /* MODULE, FUNCTION */
    struct object *parts;
    long at; /* EVENT: launches before it; -1: not recorded */
    int32_t n, type, list[3][DNN_DIMS]; /* TENSOR, FILTER: sizes, steps; WINDOW: pads, strides, dilations */
    int32_t groups, math; /* WINDOW */
};

static struct memory {
    struct memory *next;
    char *p;
    size_t n;
} *memories;

static long n_objects, n_launches, n_contexts;
static size_t in_use;
static int is_current, is_lost, context;
static struct object *alive;

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
void fake_reset(void) { is_lost = 0, n_launches = 0; } /* a new process */

#define READY                                                                                      \
    if (is_lost) return ILLEGAL;                                                                   \
    if (!is_current) return NO_CONTEXT

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
    abort(); /* used after its end, or something else */
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

BOTH(cuInit, hipInit, (uint32_t flags)) { return flags ? INVALID : OK; }

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
    if (c && (c != &context || !n_contexts)) abort();
    is_current = c != NULL;
    return is_lost ? ILLEGAL : OK;
}
FAKE int32_t hipSetDevice(int32_t d);
int32_t hipSetDevice(int32_t d)
{
    is_current = 1;
    return is_lost ? ILLEGAL : OK;
}

BOTH(cuStreamCreate, hipStreamCreateWithFlags, (void **s, uint32_t flags))
{
    READY;
    *s = make(STREAM);
    return OK;
}
BOTH(cuStreamDestroy_v2, hipStreamDestroy, (void *s)) { return destroy(s, STREAM); }
BOTH(cuStreamSynchronize, hipStreamSynchronize, (void *s))
{
    READY;
    there(s, STREAM);
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
    there(s, STREAM);
    there(x, EVENT)->at = n_launches;
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
    *m = (struct memory){memories, aligned_alloc(256, (n + 255) / 256 * 256), n};
    memset(m->p, 0xEE, n); /* nothing is zero by itself */
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
BOTH(cuMemsetD8Async, hipMemsetD8Async, (uint64_t p, unsigned char v, size_t n, void *s))
{
    READY;
    there(s, STREAM);
    if (!bytes(p, n)) return INVALID;
    memset(bytes(p, n), v, n);
    return OK;
}
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (uint64_t to, const void *from, size_t n, void *s))
{
    READY;
    there(s, STREAM);
    if (!bytes(to, n)) return INVALID;
    memcpy(bytes(to, n), from, n);
    return OK;
}
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *to, uint64_t from, size_t n, void *s))
{
    READY;
    there(s, STREAM);
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
    if (!bytes(from, n)) return INVALID;
    memcpy(to, bytes(from, n), n);
    return OK;
}

/* Modules. */

BOTH(cuModuleLoadData, hipModuleLoadData, (void **out, const void *image))
{
    READY;
    int32_t n;
    memcpy(&n, (const char *)image + 64, 4);
    if (n < 0) return NO_BINARY;
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
    memcpy(&n, m->image + 64, 4);
    if (sscanf(name, "k_%d", &i) != 1 || i < 0 || i >= n) return NOT_FOUND;
    x = make(FUNCTION);
    memcpy(x->info, m->image + 68 + 32 * i, 32);
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

/* Of the function that was asked for last. */
BOTH(cuModuleGetGlobal_v2, hipModuleGetGlobal, (uint64_t * p, size_t *n, void *module, const char *name))
{
    READY;
    const struct object *m = there(module, MODULE);
    int32_t i;
    char rest[8] = "";
    if (sscanf(name, "k_%d_%7s", &i, rest) != 2 || !m->parts) return NOT_FOUND;
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
    *v = what == 0 ? 512 : x->info[7]; /* threads, static shared memory */
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

/* What a matrix's 128 bytes are made of here. */
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

/* The matrix that a launch brings must be that of the image, in the argument as it is now. */
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
    there(s, STREAM);
    if (!gx || !gy || !gz || gy > rows || gz > rows || shared > (uint32_t)x->dynamic) return INVALID;
    if (bx != (uint32_t)x->info[1] || by != (uint32_t)x->info[2] || bz != (uint32_t)x->info[3]) abort();
    if (++n_launches == option("lost", 0)) is_lost = 1;
    if (is_lost) return ILLEGAL;
    uint64_t *address[2] = {parameters[0], parameters[1]};
    int32_t add = *(int32_t *)parameters[2], base[3];
    for (int d = 0; d < 3; d++) base[d] = *(int32_t *)parameters[3 + d];
    if (x->info[6]) add += columns(x, parameters);
    if (!bytes(*address[1], sizeof extent)) abort();
    memcpy(extent, bytes(*address[1], sizeof extent), sizeof extent);
    for (uint64_t k = 0; k < gz; k++)
        for (uint64_t j = 0; j < gy; j++)
            for (uint64_t i = 0; i < gx; i++) {
                uint64_t at = ((k + (uint64_t)base[2]) * extent[1] + j + (uint64_t)base[1]) * extent[0] + i + (uint64_t)base[0];
                int32_t *y = (int32_t *)(void *)bytes(*address[0] + 4 * at, 4);
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

enum { F32, F64, BF16 };

static double element(uint64_t at, int type, int64_t i)
{
    const size_t size = type == F64 ? 8 : type == F32 ? 4 : 2;
    const char *p = bytes(at + (uint64_t)i * size, size);
    uint32_t bits = 0;
    float f;
    double d;
    if (!p) abort();
    if (type == F64) return memcpy(&d, p, 8), d;
    memcpy((char *)&bits + (type == BF16 ? 2 : 0), p, size);
    return memcpy(&f, &bits, 4), (double)f;
}

static void put(uint64_t at, int type, int64_t i, double v)
{
    const size_t size = type == F64 ? 8 : type == F32 ? 4 : 2;
    char *p = bytes(at + (uint64_t)i * size, size);
    float f = (float)v;
    if (!p) abort();
    memcpy(p, type == F64 ? (char *)&v : (char *)&f + (type == BF16 ? 2 : 0), size);
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
