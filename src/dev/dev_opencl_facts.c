// SPDX-License-Identifier: Apache-2.0
//
// dev_opencl_facts.c: properties of an OpenCL device, and those that quern uses.
//
// Parts of a buffer are sub-buffers, aligned to CL_DEVICE_MEM_BASE_ADDR_ALIGN. Subgroups are used if
// shuffles within them are supported, and only with sizes that can be required or that are the only ones.
#include "dev/dev_opencl.h"

#include <stdio.h>
#include <string.h>

/* Queries. Unsupported ones leave the value unchanged. */

struct asked {
    const struct opencl_loader *l;
    cl_device id;
};

static void ask_text(const struct asked *x, u32 what, char *out, size_t size)
{
    size_t n = 0;
    struct arena a = {0};
    if (x->l->cl.GetDeviceInfo(x->id, what, 0, NULL, &n) >= 0 && n && n < 1 << 20) {
        char *p = arena_alloc(&a, (i64)n + 1);
        struct str text = {0};
        if (x->l->cl.GetDeviceInfo(x->id, what, n, p, NULL) >= 0) text = str_trim(str_of(p));
        snprintf(out, size, "%.*s", STR_ARG(text));
    }
    arena_release(&a);
}

/* A number of any width. */
static u64 ask_number(const struct asked *x, u32 what)
{
    u64 wide = 0;
    size_t n = 0;
    if (x->l->cl.GetDeviceInfo(x->id, what, sizeof wide, &wide, &n) < 0) return 0;
    if (n == sizeof(u32)) {
        u32 narrow;
        memcpy(&narrow, &wide, sizeof narrow);
        return narrow;
    }
    return n == sizeof wide ? wide : 0;
}

static void ask_platform(struct opencl_facts *f, const struct opencl_loader *l, cl_platform p)
{
    char name[100] = "", version[150] = "";
    l->cl.GetPlatformInfo(p, CL_PLATFORM_NAME, sizeof name - 1, name, NULL);
    l->cl.GetPlatformInfo(p, CL_PLATFORM_VERSION, sizeof version - 1, version, NULL);
    struct str n = str_trim(str_of(name)), v = str_trim(str_of(version));
    snprintf(f->platform, sizeof f->platform, "%.*s, %.*s", STR_ARG(n), STR_ARG(v));
}

static bool has_word(struct str words, const char *want)
{
    struct str word;
    while (words.n) {
        str_cut(words, ' ', &word, &words);
        if (str_is(word, want)) return true;
    }
    return false;
}

static void ask_subgroups(struct opencl_facts *f, const struct asked *x, struct str extensions)
{
    size_t size[16] = {0}, n = 0;
    bool is_intel = has_word(extensions, "cl_intel_subgroups");
    f->has_subgroup = is_intel || (has_word(extensions, "cl_khr_subgroups") &&
                                   has_word(extensions, "cl_khr_subgroup_shuffle"));
    if (has_word(extensions, "cl_intel_required_subgroup_size") &&
        x->l->cl.GetDeviceInfo(x->id, CL_DEVICE_SUB_GROUP_SIZES_INTEL, sizeof size, size, &n) >= 0)
        for (size_t i = 0; i < n / sizeof *size && i < 16; i++) {
            if (!f->subgroup_min || size[i] < f->subgroup_min) f->subgroup_min = (u32)size[i];
            if (size[i] > f->subgroup_max) f->subgroup_max = (u32)size[i];
        }
    if (has_word(extensions, "cl_amd_device_attribute_query"))
        f->subgroup_min = f->subgroup_max = (u32)ask_number(x, CL_DEVICE_WAVEFRONT_WIDTH_AMD);
    f->has_subgroup = f->has_subgroup && f->subgroup_min > 0;
}

static void ask_extensions(struct opencl_facts *f, const struct asked *x)
{
    enum { SIZE = 1 << 16 };
    struct arena a = {0};
    char *text = arena_alloc(&a, SIZE);
    ask_text(x, CL_DEVICE_EXTENSIONS, text, SIZE);
    f->has_f16 = has_word(str_of(text), "cl_khr_fp16");
    ask_subgroups(f, x, str_of(text));
    arena_release(&a);
}

static void ask_numbers(struct opencl_facts *f, const struct asked *x)
{
    size_t item[3] = {0};
    f->n_units = (u32)ask_number(x, CL_DEVICE_MAX_COMPUTE_UNITS);
    f->mhz = (u32)ask_number(x, CL_DEVICE_MAX_CLOCK_FREQUENCY);
    f->max_group = (u32)ask_number(x, CL_DEVICE_MAX_WORK_GROUP_SIZE);
    f->align = (u32)ask_number(x, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    f->max_alloc = ask_number(x, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    f->local_bytes = ask_number(x, CL_DEVICE_LOCAL_MEM_SIZE);
    f->cache_bytes = ask_number(x, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    f->parameter_bytes = ask_number(x, CL_DEVICE_MAX_PARAMETER_SIZE);
    f->f32 = ask_number(x, CL_DEVICE_SINGLE_FP_CONFIG);
    f->f64 = ask_number(x, CL_DEVICE_DOUBLE_FP_CONFIG);
    if (x->l->cl.GetDeviceInfo(x->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof item, item, NULL) >= 0)
        for (int d = 0; d < 3; d++) f->max_item[d] = item[d];
}

static bool check_usable(const struct opencl_facts *f, const struct asked *x, struct err *e)
{
    const char *lack = NULL;
    if (!ask_number(x, CL_DEVICE_AVAILABLE)) lack = "is not available";
    else if (!ask_number(x, CL_DEVICE_COMPILER_AVAILABLE)) lack = "has no compiler";
    else if (f->major * 10 + f->minor < 12) lack = "is older than OpenCL 1.2";
    else if (!f->max_group || !f->max_item[0] || !f->max_alloc) lack = "does not report its limits";
    else if (f->align > DEV_ALIGN || (f->align & (f->align - 1)))
        return err_set(e, ERR_UNSUPPORTED, "'%s' needs memory aligned to %u bytes, at most %d is supported",
                       f->name, f->align, DEV_ALIGN);
    return !lack || err_set(e, ERR_UNSUPPORTED, "'%s' %s", f->name, lack);
}

bool opencl_facts_init(struct opencl_facts *f, const struct opencl_loader *l,
                       const struct opencl_device *d, struct err *e)
{
    const struct asked x = {l, d->id};
    *f = (struct opencl_facts){.type = d->type};
    snprintf(f->name, sizeof f->name, "%.*s", STR_ARG(d->name));
    ask_platform(f, l, d->platform);
    ask_text(&x, CL_DRIVER_VERSION, f->driver, sizeof f->driver);
    ask_text(&x, CL_DEVICE_VERSION, f->version, sizeof f->version);
    if (sscanf(f->version, "OpenCL %u.%u", &f->major, &f->minor) != 2) f->major = f->minor = 0;
    ask_numbers(f, &x);
    ask_extensions(f, &x);
    return check_usable(f, &x, e);
}

/* Queries. */

/* Rough estimates: predictions order candidates before anything is measured, and are scaled to fit
   measurements. */
static void caps_speed(const struct opencl_facts *f, struct caps *c)
{
    bool is_cpu = f->type & CL_DEVICE_TYPE_CPU;
    u32 lanes = is_cpu ? 16 : 64; /* multiply-adds per unit and cycle */
    u64 mflops = (u64)f->n_units * lanes * 2 * (f->mhz ? f->mhz : 1000);
    c->n_threads = f->n_units ? f->n_units : 1;
    c->gflops = (u32)i64_max(1, i64_min((i64)(mflops / 1000), 1000000));
    c->gbps = is_cpu ? 20 : 300;
    c->l1_bytes = 32 << 10;
    c->l2_bytes = is_cpu ? 1 << 20 : 4 << 20;
    c->l3_bytes = (i64)f->cache_bytes;
}

void opencl_caps(const struct opencl_facts *f, struct caps *c)
{
    *c = (struct caps){.is_gpu = true, .vector_bytes = 16, .n_vector_regs = 64};
    snprintf(c->arch, sizeof c->arch, "opencl%u.%u", f->major, f->minor);
    caps_speed(f, c);
    c->has_fma = f->f32 & CL_FP_FMA;
    c->max_group = (u32)i64_min(f->max_group, (i64)f->max_item[0]);
    c->subgroup = c->subgroup_min = f->subgroup_min;
    c->subgroup_max = f->subgroup_max;
    c->has_subgroup = f->has_subgroup;
    c->shared_bytes = (i64)f->local_bytes;
    c->max_bind = (u32)i64_max(8, i64_min((i64)f->parameter_bytes / 2 / 8, 1024)); /* half of it pointers */
    c->max_push = c->max_bind * 8 - 12;
    c->max_buffer = i64_min((i64)f->max_alloc, INT32_MAX); /* kernels with parameters use 32-bit indices */
    c->buffer_align = (u32)i64_max(f->align, 16);
    c->has_f16 = f->has_f16;
    c->has_f64 = f->f64 != 0;
    c->has_i8 = c->has_i16 = c->has_i64 = true;
    c->has_rte_f16 = true; /* vstore_half_rte belongs to every version */
    c->has_nan = f->f32 & CL_FP_INF_NAN;
}

void opencl_fingerprint(const struct opencl_facts *f, struct buf *out)
{
    buf_printf(out, "opencl %s, %s, driver %s, %s, %u units", f->name, f->platform, f->driver,
               f->version, f->n_units);
}

void opencl_build_options(const struct opencl_facts *f, struct buf *out)
{
    buf_printf(out, "-cl-std=CL%s", f->major >= 3 ? "3.0" : f->major == 2 ? "2.0" : "1.2");
    if (f->f32 & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)
        buf_z(out, " -cl-fp32-correctly-rounded-divide-sqrt");
}
