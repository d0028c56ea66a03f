// SPDX-License-Identifier: Apache-2.0
//
// vulkan.c: GPUs, and CPU implementations, through Vulkan 1.0 to 1.4. Binaries are SPIR-V
// modules (conventions in doc/lang-spirv.md). The loader is opened at run time; a machine
// without it has no devices of this kind, which is an error only if one is requested.
//
// Launches are recorded and run in order; fence() waits for them. A lost device
// is recreated at the next use: kernels and ranges of memory stay valid, their
// contents become zero, and struct dev counts it. One thread at a time.
#include "dev/dev_vulkan.h"

/* Opening. */

static bool open_device(struct vulkan *v, struct err *e)
{
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                     .queueFamilyIndex = v->facts.family,
                                     .queueCount = 1,
                                     .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                               .pNext = &v->facts.on.core,
                               .queueCreateInfoCount = 1,
                               .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = v->facts.n_extension,
                               .ppEnabledExtensionNames = v->facts.extension};
    v->device = v->attached.f.device;
    if (v->device || vulkan_ok(v, v->vk.CreateDevice(v->facts.gpu, &info, NULL, &v->device),
                               "vkCreateDevice", e))
        return true;
    v->device = NULL;
    return false;
}

static bool make_device(struct vulkan *v, struct err *e)
{
    v->is_lost = false;
    if (!open_device(v, e)) return false;
    if (!vulkan_load_calls(&v->vk, v->device, e)) {
        if (v->vk.DestroyDevice && !vulkan_is_attached(v)) v->vk.DestroyDevice(v->device, NULL);
        v->device = NULL; /* nothing else can be called */
        return false;
    }
    if (!vulkan_queue_init(v, e)) return false;
    vulkan_cache_open(v);
    return true;
}

static void destroy_device(struct vulkan *v)
{
    if (!v->device) return;
    vulkan_kernels_destroy(v);
    vulkan_cache_close(v);
    vulkan_memory_destroy(v);
    vulkan_queue_destroy(v);
    if (!vulkan_is_attached(v)) v->vk.DestroyDevice(v->device, NULL);
    v->device = NULL;
}

static void vulkan_close(struct dev *d)
{
    struct vulkan *v = d->priv;
    struct err e = {0};
    if (v->device && !v->is_lost) vulkan_wait(v, &e);
    destroy_device(v);
    vulkan_return(v);
    vulkan_memory_forget(v);
    vulkan_loader_close(&v->loader);
    vulkan_queue_forget(v);
    mem_free(v);
    mem_free(d);
}

/* The index-th of the devices whose names match. */
static bool choose_gpu(struct vulkan *v, const struct dev_opts *o, VkPhysicalDevice *gpu,
                       struct err *e)
{
    struct arena a = {0};
    VkPhysicalDevice *all;
    u32 n, k = 0;
    *gpu = NULL;
    bool ok = vulkan_list(&v->loader, &a, &all, &n, e);
    for (u32 i = 0; i < n && ok && !*gpu; i++) {
        VkPhysicalDeviceProperties p;
        v->vk.GetPhysicalDeviceProperties(all[i], &p);
        if (o->name.n && !str_glob(o->name, str_of(p.deviceName))) continue;
        if (k++ == o->index) *gpu = all[i];
    }
    if (ok && n == 0) ok = err_set(e, ERR_USAGE, "Vulkan lists no devices");
    if (ok && !*gpu)
        ok = err_set(e, ERR_USAGE, "Vulkan has %u devices, none of which matches '%.*s'", n,
                     STR_ARG(o->name));
    arena_release(&a);
    return ok;
}

static struct dev *vulkan_open(const struct dev_opts *o, struct err *e)
{
    extern const struct dev_driver dev_vulkan;
    struct vulkan *v = mem_alloc((i64)sizeof *v);
    struct dev *d = mem_alloc((i64)sizeof *d);
    VkPhysicalDevice gpu;
    *d = (struct dev){.driver = &dev_vulkan, .priv = v};
    v->dev = d;
    if (o->attached) v->attached = *o->attached;
    bool ok = o->attached ? vulkan_loader_attach(&v->loader, &v->attached.f, e)
                          : vulkan_loader_open(&v->loader, e);
    if (o->attached) v->loader.attached = &v->attached;
    v->vk = v->loader.vk;
    gpu = v->attached.f.gpu;
    if (ok && (gpu || choose_gpu(v, o, &gpu, e)) &&
        vulkan_facts_init(&v->facts, &v->loader, gpu, e) && make_device(v, e))
        return d;
    vulkan_close(d);
    return NULL;
}

/* Devices that are present. */

static void names(struct buf *out)
{
    struct vulkan_loader l;
    struct arena a = {0};
    struct err e = {0};
    VkPhysicalDevice *v;
    u32 n;
    if (!vulkan_loader_open(&l, &e)) return;
    if (vulkan_list(&l, &a, &v, &n, &e))
        for (u32 i = 0; i < n; i++) {
            VkPhysicalDeviceProperties p;
            l.vk.GetPhysicalDeviceProperties(v[i], &p);
            buf_printf(out, "%s\n", p.deviceName);
        }
    vulkan_loader_close(&l);
    arena_release(&a);
}

static u32 count(void)
{
    struct buf b = {0};
    u32 n = 0;
    names(&b);
    for (i64 i = 0; i < b.n; i++) n += b.p[i] == '\n';
    buf_release(&b);
    return n;
}

/* Using it. */

/* Recreates a lost device. */
static bool revive(struct vulkan *v, struct err *e)
{
    if (vulkan_is_attached(v))
        return err_set(e, ERR_SYSTEM, "'%s' was lost: close the program, and attach another device",
                       vulkan_name(&v->facts));
    destroy_device(v);
    if (!make_device(v, e) || !vulkan_memory_remake(v, e) || !vulkan_kernels_remake(v, e)) {
        v->is_lost = true; /* the next use tries again */
        return err_prefix(e, "a lost device could not be recreated");
    }
    v->dev->n_lost++;
    return true;
}

static bool ready(struct vulkan *v, struct err *e) { return !v->is_lost || revive(v, e); }

static bool no_complaint(const struct vulkan *v, struct err *e)
{
    return !v->loader.complaint[0] || err_set(e, ERR_FAILED, "validation: %s", v->loader.complaint);
}

static void caps(struct dev *d, struct caps *c)
{
    const struct vulkan *v = d->priv;
    vulkan_caps(&v->facts, c);
}

static void fingerprint(struct dev *d, struct buf *out)
{
    const struct vulkan *v = d->priv;
    vulkan_fingerprint(&v->facts, out);
}

static bool alloc(struct dev *d, i64 size, struct dev_mem *m, struct err *e)
{
    return ready(d->priv, e) && vulkan_alloc(d->priv, size, m, e);
}

static void release(struct dev *d, struct dev_mem *m) { vulkan_release(d->priv, m); }

static bool upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    return ready(d->priv, e) && vulkan_upload(d->priv, m, p, n, e);
}

static bool download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e)
{
    return ready(d->priv, e) && vulkan_download(d->priv, m, p, n, e) && no_complaint(d->priv, e);
}

static bool copy(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e)
{
    return ready(d->priv, e) && vulkan_copy(d->priv, to, from, n, e);
}

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e)
{
    struct dev_kernel *k = NULL;
    if (ready(d->priv, e)) k = vulkan_kernel_load(d->priv, binary, entry, n_grid, e);
    if (!k || no_complaint(d->priv, e)) return k;
    vulkan_kernel_unload(d->priv, k);
    return NULL;
}

static void unload(struct dev *d, struct dev_kernel *k) { vulkan_kernel_unload(d->priv, k); }

static bool launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    return ready(d->priv, e) && vulkan_launch(d->priv, l, e);
}

static bool fence(struct dev *d, struct err *e)
{
    struct vulkan *v = d->priv;
    struct err late = v->late;
    v->late = (struct err){0};
    if (late.code) return err_set(e, late.code, "%s", late.msg);
    return ready(d->priv, e) && vulkan_fence(d->priv, e) && no_complaint(d->priv, e);
}

static double elapsed(struct dev *d)
{
    const struct vulkan *v = d->priv;
    return v->last;
}

const struct dev_driver dev_vulkan = {
    .version = 1,
    .name = "vulkan",
    .lang = "spirv",
    .is_foreign = true,
    .count = count,
    .names = names,
    .open = vulkan_open,
    .close = vulkan_close,
    .caps = caps,
    .fingerprint = fingerprint,
    .alloc = alloc,
    .release = release,
    .upload = upload,
    .download = download,
    .load = load,
    .unload = unload,
    .launch = launch,
    .fence = fence,
    .copy = copy,
    .elapsed = elapsed,
    .borrow = vulkan_borrow,
    .follow = vulkan_follow,
    .lead = vulkan_lead,
};
