// SPDX-License-Identifier: Apache-2.0
//
// dev_opencl_kernel.c: kernels from OpenCL C, and their launches. The binary is the source text,
// which the driver builds when the kernel is loaded (with a cache of its own). For each grid
// there is a function NAME_0, NAME_1, ...; its parameters are a pointer per buffer, the kernel's
// parameters as 32-bit int, and three more: the first workgroup of the launched part of the grid.
//
// The queue is in order, so the writes of one grid are visible to the next.
// Times are the sums of the launches' events, without gaps between launches.
#include "dev/dev_opencl.h"

#include <string.h>

enum { N_BASE = 3, MAX_TEXT = 1 << 28 };
/* Workgroups per launch: drivers keep global ids in 32 bits and launch y and z in 16. */
static const i64 max_ids = INT32_MAX;
static const u32 max_rows = 65535;

struct function { /* one grid */
    cl_kernel kernel;
    u32 n_arg;
    u64 *set; /* per argument: serial of a memory object, or a number with bit 63; 0: not set */
    size_t local[3];
};

struct dev_kernel {
    struct arena arena;
    struct dev_kernel *next;
    cl_program program;
    u32 n_grid;
    struct function *function; /* per grid */
    const struct dev_gemm *gemm; /* NULL: functions of a program */
};

/* Building. */

/* The first lines of the compiler's messages. */
static void put_log(struct opencl *o, cl_program p, struct buf *out)
{
    size_t n = 0;
    struct arena a = {0};
    if (o->cl.GetProgramBuildInfo(p, o->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &n) < 0 || n > 1 << 24) n = 0;
    char *text = arena_alloc(&a, (i64)n + 1);
    if (n && o->cl.GetProgramBuildInfo(p, o->id, CL_PROGRAM_BUILD_LOG, n, text, NULL) < 0) text[0] = 0;
    struct str rest = str_of(text), line;
    for (int k = 0; k < 3 && rest.n;) {
        str_cut(rest, '\n', &line, &rest);
        line = str_trim(line);
        if (line.n == 0) continue;
        buf_printf(out, "%s%.*s", out->n ? "; " : "", (int)i64_min(line.n, 250), line.p);
        k++;
    }
    arena_release(&a);
}

static bool build(struct opencl *o, struct dev_kernel *k, struct str text, struct err *e)
{
    i32 r = CL_SUCCESS;
    size_t n = (size_t)text.n;
    struct buf options = {0}, log = {0};
    if (text.n <= 0 || text.n > MAX_TEXT) return err_set(e, ERR_INPUT, "no source text in binary");
    k->program = o->cl.CreateProgramWithSource(o->context, 1, &text.p, &n, &r);
    if (!opencl_ok(o, r, "clCreateProgramWithSource", e)) {
        k->program = NULL;
        return false;
    }
    opencl_build_options(&o->facts, &options);
    r = o->cl.BuildProgram(k->program, 1, &o->id, options.p, NULL, NULL);
    if (r < 0) put_log(o, k->program, &log);
    if (r < 0 && log.n)
        err_set(e, ERR_FAILED, "'%s' does not build the kernel: %.*s", o->facts.name,
                STR_ARG(buf_view(&log)));
    bool ok = opencl_ok(o, r, "clBuildProgram", e);
    buf_release(&log);
    buf_release(&options);
    return ok;
}

static bool check_function(struct opencl *o, struct function *f, struct str name, struct err *e)
{
    size_t threads = 1, most = 0;
    u64 shared = 0;
    cl_kernel k = f->kernel;
    i32 r = o->cl.GetKernelInfo(k, CL_KERNEL_NUM_ARGS, sizeof f->n_arg, &f->n_arg, NULL);
    if (!opencl_ok(o, r, "clGetKernelInfo", e)) return false;
    r = o->cl.GetKernelWorkGroupInfo(k, o->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof f->local,
                                     f->local, NULL);
    if (r >= 0) r = o->cl.GetKernelWorkGroupInfo(k, o->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL);
    if (r >= 0) r = o->cl.GetKernelWorkGroupInfo(k, o->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof shared, &shared, NULL);
    if (!opencl_ok(o, r, "clGetKernelWorkGroupInfo", e)) return false;
    bool fits = true;
    for (int d = 0; d < 3; d++) {
        if (f->local[d] == 0) f->local[d] = 1;
        fits = fits && f->local[d] <= o->facts.max_item[d] && f->local[d] <= most;
        threads = fits ? threads * f->local[d] : threads;
    }
    if (!fits || threads > most)
        return err_set(e, ERR_UNSUPPORTED, "workgroups of %zu x %zu x %zu threads in '%.*s', '%s' allows %zu",
                       f->local[0], f->local[1], f->local[2], STR_ARG(name), o->facts.name, most);
    return shared <= o->facts.local_bytes ||
           err_set(e, ERR_UNSUPPORTED, "'%.*s' needs %llu bytes of shared memory, '%s' has %llu",
                   STR_ARG(name), (unsigned long long)shared, o->facts.name,
                   (unsigned long long)o->facts.local_bytes);
}

static bool find_function(struct opencl *o, struct dev_kernel *k, struct str entry, u32 grid,
                          struct err *e)
{
    i32 r = CL_SUCCESS;
    struct function *f = &k->function[grid];
    struct str name = str_fmt(&k->arena, "%.*s_%u", STR_ARG(entry), grid);
    f->kernel = o->cl.CreateKernel(k->program, name.p, &r);
    if (r < 0) f->kernel = NULL;
    if (r < 0) return err_set(e, ERR_INPUT, "no function '%.*s' in binary: %s (%d)", STR_ARG(name), opencl_result_name(r), r);
    if (!check_function(o, f, name, e)) return false;
    f->set = arena_array(&k->arena, u64, f->n_arg + 1);
    return true;
}

static void destroy(struct opencl *o, struct dev_kernel *k)
{
    for (u32 g = 0; g < k->n_grid && !k->gemm; g++)
        if (k->function[g].kernel) o->cl.ReleaseKernel(k->function[g].kernel);
    if (k->program) o->cl.ReleaseProgram(k->program);
    struct arena a = k->arena;
    arena_release(&a);
}

static struct dev_kernel *keep(struct opencl *o, struct dev_kernel *k)
{
    k->next = o->kernels;
    return o->kernels = k;
}

struct dev_kernel *opencl_kernel_gemm(struct opencl *o, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    struct arena a = {0};
    if (!opencl_gemm_check(o, p, name, e)) return NULL;
    struct dev_kernel *k = arena_new(&a, struct dev_kernel);
    struct dev_gemm *own = arena_new(&a, struct dev_gemm);
    *own = *p;
    *k = (struct dev_kernel){.arena = a, .n_grid = 1, .gemm = own};
    return keep(o, k);
}

struct dev_kernel *opencl_kernel_load(struct opencl *o, struct str binary, struct str entry,
                                      u32 n_grid, struct err *e)
{
    struct arena a = {0};
    struct dev_kernel *k = arena_new(&a, struct dev_kernel);
    *k = (struct dev_kernel){.n_grid = n_grid};
    k->function = arena_array(&a, struct function, n_grid + 1);
    k->arena = a;
    bool ok = build(o, k, binary, e);
    for (u32 g = 0; g < n_grid && ok; g++) ok = find_function(o, k, entry, g, e);
    if (ok) return keep(o, k);
    destroy(o, k);
    return NULL;
}

void opencl_kernel_unload(struct opencl *o, struct dev_kernel *k)
{
    for (struct dev_kernel **at = &o->kernels; k && *at; at = &(*at)->next) {
        if (*at != k) continue;
        *at = k->next;
        destroy(o, k);
        break;
    }
}

void opencl_kernels_destroy(struct opencl *o)
{
    while (o->kernels) opencl_kernel_unload(o, o->kernels);
}

/* Launching. */

static bool set_memory(struct opencl *o, struct function *f, u32 i, const struct dev_mem *m,
                       struct err *e)
{
    struct opencl_object x;
    if (!opencl_piece(o, m, &x, e)) return false;
    if (f->set[i] == x.serial) return true;
    f->set[i] = x.serial;
    return opencl_ok(o, o->cl.SetKernelArg(f->kernel, i, sizeof x.mem, &x.mem), "clSetKernelArg", e);
}

static bool set_number(struct opencl *o, struct function *f, u32 i, i64 v, struct err *e)
{
    i32 x = (i32)v;
    u64 known = (u64)1 << 63 | (u32)x;
    if (f->set[i] == known) return true;
    f->set[i] = known;
    return opencl_ok(o, o->cl.SetKernelArg(f->kernel, i, sizeof x, &x), "clSetKernelArg", e);
}

/* Reads the times of all launches so far, after waiting for them. */
static bool collect(struct opencl *o, struct err *e)
{
    if (o->n_event == 0) return true;
    i32 r = o->cl.WaitForEvents(o->n_event, o->event);
    for (u32 i = 0; i < o->n_event; i++) {
        u64 from = 0, to = 0;
        cl_event x = o->event[i];
        bool known = o->cl.GetEventProfilingInfo(x, CL_PROFILING_COMMAND_START, sizeof from, &from, NULL) >= 0 &&
                     o->cl.GetEventProfilingInfo(x, CL_PROFILING_COMMAND_END, sizeof to, &to, NULL) >= 0;
        if (!known || to < from) o->seconds = -1;
        else if (o->seconds >= 0) o->seconds += (double)(to - from) * 1e-9;
        o->cl.ReleaseEvent(x);
    }
    o->n_event = 0;
    return opencl_ok(o, r, "clWaitForEvents", e);
}

static bool enqueue(struct opencl *o, struct function *f, const struct dev_piece *p, struct err *e)
{
    size_t global[3];
    for (int d = 0; d < 3; d++) global[d] = p->n[d] * f->local[d];
    if (o->n_event == OPENCL_EVENTS && !collect(o, e)) return false;
    i32 r = o->cl.EnqueueNDRangeKernel(o->queue, f->kernel, 3, NULL, global, f->local, 0, NULL,
                                       &o->event[o->n_event]);
    if (r >= 0) o->n_event++;
    return opencl_ok(o, r, "clEnqueueNDRangeKernel", e);
}

static void groups_at_once(const struct function *f, u32 most[3])
{
    most[0] = (u32)(max_ids / (i64)f->local[0]);
    most[1] = most[2] = max_rows;
}

static bool launch_grid(struct opencl *o, const struct dev_launch *l, u32 grid, struct err *e)
{
    struct function *f = &l->kernel->function[grid];
    struct dev_piece p = {0};
    u32 most[3], n = 0;
    groups_at_once(f, most);
    for (u32 i = 0; i < l->n_buf; i++)
        if (!set_memory(o, f, n++, &l->buf[i], e)) return err_prefix(e, "buffer %u", i);
    for (u32 i = 0; i < l->n_param; i++)
        if (!set_number(o, f, n++, l->param[i], e)) return false;
    while (dev_next_piece(&p, l->grid[grid], most)) {
        for (u32 d = 0; d < N_BASE; d++)
            if (!set_number(o, f, n + d, p.base[d], e)) return false;
        if (!enqueue(o, f, &p, e)) return false;
    }
    return true;
}

static bool check(struct opencl *o, const struct dev_launch *l, struct err *e)
{
    const struct dev_kernel *k = l->kernel;
    u32 most[3];
    for (u32 g = 0; g < k->n_grid; g++) {
        u32 n = l->n_buf + l->n_param + N_BASE;
        if (k->function[g].n_arg != n)
            return err_set(e, ERR_USAGE, "kernel has %u arguments, which does not fit %u buffers and %u parameters",
                           k->function[g].n_arg, l->n_buf, l->n_param);
        groups_at_once(&k->function[g], most);
        if (!dev_check_launch(l, k->n_grid, most, o->facts.name, e)) return false;
    }
    return dev_check_reach(l, (i64)o->facts.max_alloc, o->facts.name, e);
}

bool opencl_launch(struct opencl *o, const struct dev_launch *l, struct err *e)
{
    if (l->kernel->gemm) return opencl_gemm_launch(o, l->kernel->gemm, l, e);
    if (!check(o, l, e)) return false;
    opencl_spare_parts(o, l);
    for (u32 g = 0; g < l->n_grid; g++)
        if (!launch_grid(o, l, g, e)) return false;
    return true;
}

bool opencl_fence(struct opencl *o, struct err *e)
{
    bool ok = collect(o, e) && opencl_ok(o, o->cl.Finish(o->queue), "clFinish", e);
    o->last = o->seconds;
    o->seconds = 0;
    return ok;
}
