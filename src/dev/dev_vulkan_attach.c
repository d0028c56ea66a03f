// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_attach.c: a device that other code of this process opened, and its buffers. Which
// features and extensions are enabled cannot be asked of a VkDevice: they are read from the
// VkDeviceCreateInfo that it was made with. Kernels, memory, descriptors and command buffers are
// the driver's own as on other devices; device, queue and borrowed buffers are never destroyed.
//
// One queue orders everything: the caller's earlier submissions come first, and every batch begins
// and ends with a barrier for all commands.
#include "dev/dev_vulkan.h"

#include <stdio.h>
#include <string.h>

/* What is enabled. */

static bool has_extension(const VkDeviceCreateInfo *made, const char *name)
{
    for (u32 i = 0; i < made->enabledExtensionCount; i++)
        if (strcmp(made->ppEnabledExtensionNames[i], name) == 0) return true;
    return false;
}

/* The structures of whole versions, which stand for those of their extensions. */
static const struct {
    int type;
    const char *name;
    size_t at;
} of_versions[] = {
#define OF(n, field)                                                                               \
    {                                                                                              \
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_##n##_FEATURES, #field,                         \
            offsetof(VkPhysicalDeviceVulkan1##n##Features, field)                                  \
    }
    OF(1, storageBuffer16BitAccess),
    OF(2, storageBuffer8BitAccess),
    OF(2, shaderFloat16),
    OF(2, shaderInt8),
    OF(2, vulkanMemoryModel),
    OF(2, vulkanMemoryModelDeviceScope),
    OF(2, shaderSubgroupExtendedTypes),
    OF(3, subgroupSizeControl),
    OF(3, computeFullSubgroups),
    OF(3, maintenance4),
#undef OF
};

static bool is_on(const void *structure, size_t at)
{
    return *(const VkBool32 *)(const void *)((const char *)structure + at) != 0;
}

static bool is_on_in(const VkBaseInStructure *s, const struct vulkan_feature *x)
{
    if ((int)s->sType == x->type) return is_on(s, x->at - x->base);
    for (i64 i = 0; i < countof(of_versions); i++)
        if ((int)s->sType == of_versions[i].type && strcmp(of_versions[i].name, x->name) == 0)
            return is_on(s, of_versions[i].at);
    return false;
}

static bool is_enabled(const VkDeviceCreateInfo *made, const struct vulkan_feature *x, u32 version)
{
    bool is_core = x->version && version >= x->version, on = false;
    if (!is_core && !has_extension(made, x->extension)) return false;
    if (made->pEnabledFeatures && x->type == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2)
        on = is_on(made->pEnabledFeatures, x->at - offsetof(VkPhysicalDeviceFeatures2, features));
    for (const VkBaseInStructure *s = made->pNext; s && !on; s = s->pNext) on = is_on_in(s, x);
    return on;
}

/* Attaching. */

static bool check_foreign(const struct dev_foreign *f, bool has_device, struct err *e)
{
    const char *lacks = !f->find       ? "vkGetInstanceProcAddr"
                        : !f->instance ? "VkInstance"
                        : !f->gpu      ? "VkPhysicalDevice"
                        : !has_device  ? NULL
                        : !f->device   ? "VkDevice"
                        : !f->queue    ? "VkQueue"
                        : !f->made     ? "VkDeviceCreateInfo"
                                       : NULL;
    if (lacks) return err_set(e, ERR_USAGE, "the %s is NULL", lacks);
    if (!f->lock != !f->unlock) return err_set(e, ERR_USAGE, "lock and unlock belong together");
    return f->version >= VK_API_VERSION_1_0 ||
           err_set(e, ERR_USAGE, "version %u is no apiVersion of an instance", f->version);
}

static bool read_made(struct dev_attached *x, u32 version, struct err *e)
{
    const VkDeviceCreateInfo *made = x->f.made;
    struct vulkan_feature y;
    if (made->sType != VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO)
        return err_set(e, ERR_USAGE, "the VkDeviceCreateInfo has another sType");
    for (u32 k = 0; vulkan_feature(k, &y); k++) x->feature[k] = is_enabled(made, &y, version);
    x->controls_floats = version >= VK_API_VERSION_1_2 ||
                         has_extension(made, VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME);
    if (version < VK_API_VERSION_1_1 &&
        !has_extension(made, VK_KHR_STORAGE_BUFFER_STORAGE_CLASS_EXTENSION_NAME))
        return err_set(e, ERR_UNSUPPORTED,
                       "'%s' was made without Vulkan 1.1 or VK_KHR_storage_buffer_storage_class",
                       x->name);
    x->f.made = NULL; /* valid during the call only */
    return true;
}

static bool attach(struct dev_attached *x, struct err *e)
{
    struct vulkan_loader l;
    struct vulkan_facts facts;
    VkPhysicalDeviceProperties p;
    if (!vulkan_loader_attach(&l, &x->f, e)) return false;
    l.vk.GetPhysicalDeviceProperties(x->f.gpu, &p);
    snprintf(x->name, sizeof x->name, "%s", p.deviceName);
    if (!read_made(x, p.apiVersion < l.version ? p.apiVersion : l.version, e)) return false;
    l.attached = x;
    return vulkan_facts_init(&facts, &l, x->f.gpu, e);
}

struct dev_attached *dev_vulkan_attach(const struct dev_foreign *f, struct err *e)
{
    if (!check_foreign(f, true, e)) return NULL;
    struct dev_attached *x = mem_alloc((i64)sizeof *x);
    *x = (struct dev_attached){.f = *f};
    if (attach(x, e)) return x;
    mem_free(x);
    return NULL;
}

void dev_vulkan_detach(struct dev_attached *x) { mem_free(x); }

struct str dev_vulkan_attached_name(const struct dev_attached *x) { return str_of(x->name); }

bool dev_vulkan_needs(const struct dev_foreign *f, struct dev_needs *out, struct arena *a,
                      struct err *e)
{
    struct vulkan_loader l;
    struct vulkan_feature y;
    struct vulkan_facts *facts = arena_new(a, struct vulkan_facts);
    *out = (struct dev_needs){0};
    if (!check_foreign(f, false, e) || !vulkan_loader_attach(&l, f, e) ||
        !vulkan_facts_init(facts, &l, f->gpu, e))
        return false;
    out->extension = arena_array(a, const char *, VULKAN_MAX_EXTENSIONS);
    out->feature = arena_array(a, const char *, VULKAN_FEATURES);
    while (out->n_extension < facts->n_extension)
        out->extension[out->n_extension] = facts->extension[out->n_extension], out->n_extension++;
    for (u32 k = 0; vulkan_feature(k, &y); k++)
        if (is_on(&facts->on, y.at))
            out->feature[out->n_feature++] = str_fmt(a, "%s::%s", y.structure, y.name).p;
    out->chain = &facts->on.core;
    return true;
}

/* Buffers of others. */

static bool check_range(const struct vulkan *v, const struct dev_range *r, i64 size, struct err *e)
{
    u64 align = v->facts.prop.core.properties.limits.minStorageBufferOffsetAlignment,
        need = (u64)round_up(i64_max(size, 1), DEV_BORROW_ALIGN);
    if (align < DEV_BORROW_ALIGN) align = DEV_BORROW_ALIGN;
    if (!r || !r->buffer) return err_set(e, ERR_USAGE, "no buffer is given");
    if (r->offset % align)
        return err_set(e, ERR_USAGE, "offset %llu in its buffer is no multiple of %llu",
                       (unsigned long long)r->offset, (unsigned long long)align);
    return (r->size >= need && r->offset <= INT64_MAX - need) ||
           err_set(e, ERR_USAGE, "%llu bytes of a buffer are given, %llu are needed",
                   (unsigned long long)r->size, (unsigned long long)need);
}

bool vulkan_borrow(struct dev *d, const void *at, i64 size, struct dev_mem *m, struct err *e)
{
    struct vulkan *v = d->priv;
    const struct dev_range *r = at;
    if (!vulkan_is_attached(v))
        return err_set(e, ERR_UNSUPPORTED,
                       "device '%s' is not the caller's (quern_vulkan_attach), so it shares no "
                       "buffers: arrays must be in host memory",
                       d->driver->name);
    if (!check_range(v, r, size, e)) return false;
    struct vulkan_block *b = mem_alloc((i64)sizeof *b);
    *b = (struct vulkan_block){.next = v->borrowed,
                               .is_borrowed = true,
                               .buffer = vulkan_buffer(r->buffer),
                               .size = (i64)r->offset + size};
    v->borrowed = b;
    *m = (struct dev_mem){.handle = (u64)(uintptr_t)b, .offset = (i64)r->offset, .size = size};
    return true;
}

void vulkan_return(struct vulkan *v)
{
    for (struct vulkan_block *b; (b = v->borrowed);) {
        v->borrowed = b->next;
        mem_free(b);
    }
}

bool vulkan_follow(struct dev *d, void *stream, struct err *e)
{
    struct vulkan *v = d->priv;
    if (v->is_lost) return err_set(e, ERR_SYSTEM, "'%s' was lost", vulkan_name(&v->facts));
    return !stream ||
           err_set(e, ERR_USAGE, "the attached queue orders the work: NULL is expected as stream");
}

bool vulkan_lead(struct dev *d, void *stream, struct err *e)
{
    struct vulkan *v = d->priv;
    bool ok = !vulkan_is_attached(v) || v->is_lost || vulkan_submit(v, e);
    vulkan_return(v);
    return ok;
}
