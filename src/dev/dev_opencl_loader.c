// SPDX-License-Identifier: Apache-2.0
//
// dev_opencl_loader.c: the OpenCL library, opened at run time, and the devices of its platforms.
// QUERN_OPENCL_LIBRARY names another library than libOpenCL.so.1.
#include "dev/dev_opencl.h"

#include <string.h>

const char *opencl_result_name(i32 r)
{
    static const struct {
        i32 result;
        const char *name;
    } names[] = {
        {-1, "CL_DEVICE_NOT_FOUND"},
        {-2, "CL_DEVICE_NOT_AVAILABLE"},
        {-3, "CL_COMPILER_NOT_AVAILABLE"},
        {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
        {-5, "CL_OUT_OF_RESOURCES"},
        {-6, "CL_OUT_OF_HOST_MEMORY"},
        {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
        {-11, "CL_BUILD_PROGRAM_FAILURE"},
        {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
        {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
        {-30, "CL_INVALID_VALUE"},
        {-33, "CL_INVALID_DEVICE"},
        {-34, "CL_INVALID_CONTEXT"},
        {-35, "CL_INVALID_QUEUE_PROPERTIES"},
        {-36, "CL_INVALID_COMMAND_QUEUE"},
        {-38, "CL_INVALID_MEM_OBJECT"},
        {-43, "CL_INVALID_BUILD_OPTIONS"},
        {-44, "CL_INVALID_PROGRAM"},
        {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
        {-46, "CL_INVALID_KERNEL_NAME"},
        {-47, "CL_INVALID_KERNEL_DEFINITION"},
        {-48, "CL_INVALID_KERNEL"},
        {-49, "CL_INVALID_ARG_INDEX"},
        {-50, "CL_INVALID_ARG_VALUE"},
        {-51, "CL_INVALID_ARG_SIZE"},
        {-52, "CL_INVALID_KERNEL_ARGS"},
        {-54, "CL_INVALID_WORK_GROUP_SIZE"},
        {-55, "CL_INVALID_WORK_ITEM_SIZE"},
        {-56, "CL_INVALID_GLOBAL_OFFSET"},
        {-59, "CL_INVALID_OPERATION"},
        {-61, "CL_INVALID_BUFFER_SIZE"},
        {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
        {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    };
    for (i64 i = 0; i < countof(names); i++)
        if (names[i].result == r) return names[i].name;
    return r < 0 ? "an unknown failure" : "an unexpected result";
}

static const struct dev_call calls[] = {
#define X(result, name, parameters) {"cl" #name, offsetof(struct opencl_calls, name), false},
#include "dev/dev_opencl.inc"
#undef X
};

static const struct dev_library library = {"OpenCL", "QUERN_OPENCL_LIBRARY", "libOpenCL.so.1", calls,
                                           countof(calls)};

/* Whether one of the implementations that the loader (libOpenCL.so.1) opens at its first call is loaded; also if nothing tells which there are. */
static bool has_implementation(void)
{
    enum { MAX_ICD = 4096 };
    static const char folder[] = "/etc/OpenCL/vendors", *const variables[] = {"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"};
    struct arena a = {0};
    struct err e = {0};
    struct str *names, name, rest;
    i64 n = 0, known = 0;
    bool found = false;
    for (i64 i = 0; i < countof(variables); i++) found |= os_env(variables[i]) != NULL;
    if (!os_list(&a, folder, &names, &n, &e)) n = 0;
    for (i64 i = 0; i < n && !found; i++) { /* files of one line, a library */
        if (!str_ends(names[i], S(".icd"))) continue;
        if (!os_read(&a, str_fmt(&a, "%s/%.*s", folder, STR_ARG(names[i])).p, MAX_ICD, &rest, &e)) continue;
        str_cut(rest, '\n', &name, &rest);
        found = os_dlloaded(str_z(&a, str_trim(name)));
        known++;
    }
    arena_release(&a);
    return found || !known;
}

/* The loader alone does nothing yet: Debian's PyTorch links it. */
bool opencl_is_loaded(void) { return dev_library_loaded(&library) && (os_env(library.variable) || has_implementation()); }

bool opencl_loader_open(struct opencl_loader *l, struct err *e)
{
    *l = (struct opencl_loader){0};
    l->lib = dev_library_open(&library, &l->cl, e);
    return l->lib != NULL;
}

/* OpenCL cannot be shut down: implementations keep threads and memory, which the library must outlive. It stays loaded. */
void opencl_loader_close(struct opencl_loader *l) { l->lib = NULL; }

static struct str name_of(const struct opencl_loader *l, cl_device d, struct arena *a)
{
    char text[128] = {0};
    if (l->cl.GetDeviceInfo(d, CL_DEVICE_NAME, sizeof text - 1, text, NULL) < 0)
        return S("a device without a name");
    return str_dup(a, str_trim(str_of(text)));
}

static int rank_of(u64 type)
{
    return type & CL_DEVICE_TYPE_GPU ? 0 : type & CL_DEVICE_TYPE_CPU ? 2 : 1;
}

struct list {
    struct opencl_device *v;
    u32 n, cap;
};

static void list_platform(const struct opencl_loader *l, cl_platform p, struct arena *a,
                          struct list *out)
{
    enum { ANY = CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR };
    u32 n = 0;
    if (l->cl.GetDeviceIDs(p, ANY, 0, NULL, &n) < 0 || n == 0) return;
    cl_device *v = arena_array(a, cl_device, n);
    if (l->cl.GetDeviceIDs(p, ANY, n, v, NULL) < 0) return;
    for (u32 i = 0; i < n; i++) {
        struct opencl_device *d = arr_push(a, out);
        *d = (struct opencl_device){.platform = p, .id = v[i], .name = name_of(l, v[i], a)};
        if (l->cl.GetDeviceInfo(v[i], CL_DEVICE_TYPE, sizeof d->type, &d->type, NULL) < 0)
            d->type = CL_DEVICE_TYPE_CPU;
    }
}

bool opencl_list(const struct opencl_loader *l, struct arena *a, struct opencl_device **v, u32 *n,
                 struct err *e)
{
    u32 count = 0;
    struct list all = {0};
    i32 r = l->cl.GetPlatformIDs(0, NULL, &count);
    if (r == CL_PLATFORM_NOT_FOUND_KHR) r = CL_SUCCESS, count = 0;
    cl_platform *p = arena_array(a, cl_platform, count + 1);
    if (r >= 0 && count) r = l->cl.GetPlatformIDs(count, p, NULL);
    if (r < 0) return err_set(e, ERR_SYSTEM, "clGetPlatformIDs: %s (%d)", opencl_result_name(r), r);
    for (u32 i = 0; i < count; i++) list_platform(l, p[i], a, &all);
    /* Stable: the platforms' own order within a kind. */
    for (u32 i = 1; i < all.n; i++)
        for (u32 j = i; j > 0 && rank_of(all.v[j - 1].type) > rank_of(all.v[j].type); j--) {
            struct opencl_device t = all.v[j];
            all.v[j] = all.v[j - 1], all.v[j - 1] = t;
        }
    *v = all.v, *n = all.n;
    return true;
}

static bool is_loss(i32 r)
{
    return r == CL_DEVICE_NOT_AVAILABLE || r == CL_EXEC_STATUS_ERROR || r == CL_INVALID_CONTEXT ||
           r == CL_INVALID_COMMAND_QUEUE;
}

bool opencl_ok(struct opencl *o, i32 r, const char *call, struct err *e)
{
    if (r == CL_SUCCESS) return true;
    if (is_loss(r)) o->is_lost = true;
    return err_set(e, ERR_SYSTEM, "'%s': %s: %s (%d)", o->facts.name, call, opencl_result_name(r), r);
}
