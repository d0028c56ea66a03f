// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_facts.c: properties of a physical device. Everything that quern may use is a
// row of a table here: structures to query (and when they exist), features to enable (and
// the SPIR-V capability that each permits). Supported features are enabled; a module that
// needs others is rejected with the feature's name. No vendor gets special treatment.
#include "dev/dev_vulkan.h"

#include <stdio.h>
#include <string.h>

/* Tables. A structure may be queried from some version on,
   or with an extension before (version 0: only with it). */

struct link {
    const char *name; /* of the structure */
    size_t at;
    int type; /* VkStructureType, possibly newer than the headers */
    u32 version;
    const char *extension;
};

enum { MATRIX_FEATURES = 1000506000, MATRIX_PROPERTIES = 1000506001 };

static const struct link feature_links[] = {
#define STRUCTURE(member, type, stype, minor, extension)                                           \
    {"VkPhysicalDevice" #type, offsetof(struct vulkan_features, member),                           \
     VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_##stype, (minor) ? VK_MAKE_API_VERSION(0, 1, minor, 0) : 0, \
     extension},
#include "core/spirv_features.inc"
    {"VkPhysicalDeviceCooperativeMatrixFeaturesKHR", offsetof(struct vulkan_features, matrix),
     MATRIX_FEATURES, 0, "VK_KHR_cooperative_matrix"},
};

#define PROPERTIES(member, sType, version, extension)                                              \
    {                                                                                              \
        NULL, offsetof(struct vulkan_properties, member), sType, version, extension                \
    }
static const struct link property_links[] = {
    PROPERTIES(subgroup, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, VK_API_VERSION_1_1,
               NULL),
    PROPERTIES(subgroup_size, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES,
               VK_API_VERSION_1_3, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME),
    PROPERTIES(driver, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES, VK_API_VERSION_1_2,
               VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME),
    PROPERTIES(maintenance3, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
               VK_API_VERSION_1_1, VK_KHR_MAINTENANCE_3_EXTENSION_NAME),
    PROPERTIES(maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES,
               VK_API_VERSION_1_3, VK_KHR_MAINTENANCE_4_EXTENSION_NAME),
    PROPERTIES(floats, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES,
               VK_API_VERSION_1_2, VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME),
};

/* Extensions without features that modules rely on, and the version that includes them. */
static const struct {
    const char *name;
    u32 version;
} plain_extensions[] = {
    {VK_KHR_STORAGE_BUFFER_STORAGE_CLASS_EXTENSION_NAME, VK_API_VERSION_1_1},
    {VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME, VK_API_VERSION_1_2},
};

static const struct feature {
    const char *name; /* after the last dot: its name in the specification */
    size_t at;        /* a VkBool32 */
    u32 capability;   /* of SPIR-V that needs it; 0: none */
} features[] = {
#define FEATURE(member, field, capability)                                                         \
    {#member "." #field, offsetof(struct vulkan_features, member.field), capability},
#include "core/spirv_features.inc"
    {"matrix.cooperativeMatrix", offsetof(struct vulkan_features, matrix.cooperativeMatrix), SPV_CAP_MATRIX},
};

static const struct {
    const char *name;
    u32 capability;
    VkSubgroupFeatureFlags bit;
} subgroup_features[] = {
#define SUBGROUP(name, capability, bit) {name, capability, VK_SUBGROUP_FEATURE_##bit},
#include "core/spirv_features.inc"
};

bool vulkan_feature(u32 k, struct vulkan_feature *x)
{
    if (k >= countof(features)) return false;
    *x = (struct vulkan_feature){.structure = "VkPhysicalDeviceFeatures",
                                 .name = strrchr(features[k].name, '.') + 1,
                                 .at = features[k].at,
                                 .type = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                 .version = VK_API_VERSION_1_0};
    for (i64 i = 0; i < countof(feature_links);
         i++) { /* the structure that begins last before it */
        const struct link *l = &feature_links[i];
        if (l->at > x->at || l->at < x->base) continue;
        x->structure = l->name, x->base = l->at, x->type = l->type, x->version = l->version,
        x->extension = l->extension;
    }
    return true;
}

/* Queries. */

struct asked { /* the device's extensions */
    VkExtensionProperties *v;
    u32 n;
};

static bool is_there(const struct asked *x, const char *name)
{
    for (u32 i = 0; i < x->n; i++)
        if (strcmp(x->v[i].extensionName, name) == 0) return true;
    return false;
}

static bool by_extension(const struct vulkan_facts *f, const struct asked *x, u32 version,
                         const char *extension)
{
    bool is_core = version && f->version >= version;
    return !is_core && extension && is_there(x, extension);
}

/* Structures of Vulkan begin with these two members. */
static VkBaseOutStructure *structure(void *base, size_t at)
{
    return (VkBaseOutStructure *)((char *)base + at);
}

/* Appends the structures that the device supports to the chain. */
static void chain(const struct vulkan_facts *f, const struct asked *x, void *base,
                  const struct link *links, i64 n)
{
    VkBaseOutStructure *end = base;
    for (i64 i = 0; i < n; i++) {
        const struct link *l = &links[i];
        VkBaseOutStructure *s = structure(base, l->at);
        bool is_core = l->version && f->version >= l->version;
        if (!is_core && !by_extension(f, x, l->version, l->extension)) continue;
        s->sType = (VkStructureType)l->type;
        s->pNext = NULL;
        end->pNext = s;
        end = s;
    }
}

static VkBool32 *feature_at(struct vulkan_features *v, const struct feature *x)
{
    return (VkBool32 *)((char *)v + x->at);
}

static bool has_feature(const struct vulkan_facts *f, const struct feature *x)
{
    return *(const VkBool32 *)((const char *)&f->on + x->at) != 0;
}

static void ask_features(struct vulkan_facts *f, const struct vulkan_loader *l,
                         const struct asked *x)
{
    struct vulkan_features there = {
        .core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    chain(f, x, &there, feature_links, countof(feature_links));
    l->vk.GetPhysicalDeviceFeatures2(f->gpu, &there.core);
    f->on = (struct vulkan_features){.core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2};
    chain(f, x, &f->on, feature_links, countof(feature_links));
    for (i64 i = 0; i < countof(features); i++)
        *feature_at(&f->on, &features[i]) =
            *feature_at(&there, &features[i]) && (!l->attached || l->attached->feature[i]);
    _Static_assert(countof(features) <= VULKAN_FEATURES, "numbers of features");
}

static void ask_properties(struct vulkan_facts *f, const struct vulkan_loader *l,
                           const struct asked *x)
{
    f->prop = (struct vulkan_properties){
        .core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    chain(f, x, &f->prop, property_links, countof(property_links));
    l->vk.GetPhysicalDeviceProperties2(f->gpu, &f->prop.core);
    if (l->attached && !l->attached->controls_floats)
        memset(&f->prop.floats, 0, sizeof f->prop.floats);
}

static void enable(struct vulkan_facts *f, const char *extension)
{
    assert(f->n_extension < VULKAN_MAX_EXTENSIONS);
    f->extension[f->n_extension++] = extension;
}

static void choose_extensions(struct vulkan_facts *f, const struct asked *x)
{
    for (i64 i = 0; i < countof(feature_links); i++)
        if (by_extension(f, x, feature_links[i].version, feature_links[i].extension))
            enable(f, feature_links[i].extension);
    for (i64 i = 0; i < countof(plain_extensions); i++)
        if (by_extension(f, x, plain_extensions[i].version, plain_extensions[i].name))
            enable(f, plain_extensions[i].name);
}

/* Prefers a queue family without graphics: a display's queue is busy. */
static bool choose_family(struct vulkan_facts *f, const struct vulkan_loader *l, struct arena *a,
                          struct err *e)
{
    u32 n = 0;
    l->vk.GetPhysicalDeviceQueueFamilyProperties(f->gpu, &n, NULL);
    VkQueueFamilyProperties *v = arena_array(a, VkQueueFamilyProperties, n + 1);
    l->vk.GetPhysicalDeviceQueueFamilyProperties(f->gpu, &n, v);
    bool found = false;
    for (u32 i = 0; i < n; i++) {
        bool computes = v[i].queueCount && v[i].queueFlags & VK_QUEUE_COMPUTE_BIT &&
                        (!l->attached || l->attached->f.family == i);
        bool only = !(v[i].queueFlags & VK_QUEUE_GRAPHICS_BIT);
        if (!computes || (found && !only)) continue;
        if (found && !(v[f->family].queueFlags & VK_QUEUE_GRAPHICS_BIT)) continue;
        f->family = i;
        found = true;
    }
    if (!found) return err_set(e, ERR_UNSUPPORTED, "'%s' has no queue that computes", vulkan_name(f));
    f->timestamp_bits = v[f->family].timestampValidBits;
    return true;
}

/* Cooperative matrices. */

struct matrix_shape { /* VkCooperativeMatrixPropertiesKHR, see struct vulkan_matrix_features */
    VkStructureType sType;
    void *pNext;
    u32 m, n, k;
    u32 a, b, c, d; /* VkComponentTypeKHR */
    VkBool32 saturates;
    u32 scope;
};
typedef VkResult(VKAPI_PTR *list_shapes)(VkPhysicalDevice, u32 *, struct matrix_shape *);

enum { SCOPE_SUBGROUP = 3, COMPONENT_BF16 = 1000141000 };

static const char *component_name(u32 component)
{
    static const char *const names[] = {"f16", "f32", "f64", "i8", "i16", "i32",
                                        "i64", "u8",  "u16", "u32", "u64"};
    if (component == COMPONENT_BF16) return "bf16";
    return component < countof(names) ? names[component] : NULL;
}

static void put_shape(struct vulkan_facts *f, const struct matrix_shape *s)
{
    const char *type[4] = {component_name(s->a), component_name(s->b), component_name(s->c),
                           component_name(s->d)};
    if (s->scope != SCOPE_SUBGROUP || s->saturates) return;
    for (int i = 0; i < 4; i++)
        if (!type[i]) return;
    char word[64];
    int n = snprintf(word, sizeof word, "%s%ux%ux%u:%s,%s,%s,%s", f->matrix[0] ? " " : "", s->m,
                     s->n, s->k, type[0], type[1], type[2], type[3]);
    size_t used = strlen(f->matrix);
    if (strstr(f->matrix, word + (word[0] == ' ')) || used + (size_t)n >= sizeof f->matrix) return;
    memcpy(f->matrix + used, word, (size_t)n + 1);
}

static void ask_matrices(struct vulkan_facts *f, const struct vulkan_loader *l, struct arena *a)
{
    list_shapes list;
    u32 n = 0;
    PFN_vkVoidFunction p = l->vk.GetInstanceProcAddr(
        l->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    memcpy(&list, &p, sizeof list);
    if (!f->on.matrix.cooperativeMatrix || !list || list(f->gpu, &n, NULL) < 0) return;
    struct matrix_shape *v = arena_array(a, struct matrix_shape, n + 1);
    for (u32 i = 0; i < n; i++) v[i].sType = (VkStructureType)MATRIX_PROPERTIES;
    if (list(f->gpu, &n, v) < 0) return;
    for (u32 i = 0; i < n; i++) put_shape(f, &v[i]);
}

static bool ask_all(struct vulkan_facts *f, const struct vulkan_loader *l, struct arena *a,
                    struct err *e)
{
    struct asked x = {0};
    VkPhysicalDeviceProperties p;
    l->vk.GetPhysicalDeviceProperties(f->gpu, &p);
    f->version = p.apiVersion < l->version ? p.apiVersion : l->version;
    if (!l->vk.GetPhysicalDeviceFeatures2 || !l->vk.GetPhysicalDeviceProperties2)
        return err_set(e, ERR_UNSUPPORTED,
                       "'%s' lacks a feature: Vulkan 1.1 or VK_KHR_get_physical_device_properties2",
                       p.deviceName);
    VkResult r = l->vk.EnumerateDeviceExtensionProperties(f->gpu, NULL, &x.n, NULL);
    x.v = arena_array(a, VkExtensionProperties, x.n + 1);
    if (r >= 0 && x.n) r = l->vk.EnumerateDeviceExtensionProperties(f->gpu, NULL, &x.n, x.v);
    if (r < 0)
        return err_set(e, ERR_SYSTEM, "'%s': vkEnumerateDeviceExtensionProperties: %s", p.deviceName,
                       vulkan_result_name(r));
    ask_properties(f, l, &x);
    ask_features(f, l, &x);
    choose_extensions(f, &x);
    if (f->version < VK_API_VERSION_1_1 &&
        !is_there(&x, VK_KHR_STORAGE_BUFFER_STORAGE_CLASS_EXTENSION_NAME))
        return err_set(e, ERR_UNSUPPORTED,
                       "'%s' lacks a feature: Vulkan 1.1 or VK_KHR_storage_buffer_storage_class",
                       p.deviceName);
    ask_matrices(f, l, a);
    return choose_family(f, l, a, e);
}

/* Kernels use 32-bit indices. Mesa's CPU devices report Vulkan's minimum, but access whole buffers;
   pictures of 4K need that. (The validation layer sees only the reported limit.) */
static i64 reachable(const struct vulkan_facts *f, const struct vulkan_loader *l)
{
    const VkPhysicalDeviceProperties *p = &f->prop.core.properties;
    bool is_nominal = p->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU &&
                      p->limits.maxStorageBufferRange == 1 << 27 && !l->messenger;
    return is_nominal ? INT32_MAX : i64_min(p->limits.maxStorageBufferRange, INT32_MAX);
}

bool vulkan_facts_init(struct vulkan_facts *f, const struct vulkan_loader *l, VkPhysicalDevice gpu,
                       struct err *e)
{
    struct arena a = {0};
    *f = (struct vulkan_facts){.gpu = gpu};
    bool ok = ask_all(f, l, &a, e);
    l->vk.GetPhysicalDeviceMemoryProperties(gpu, &f->memory);
    VkPhysicalDeviceType t = f->prop.core.properties.deviceType;
    f->is_host = t == VK_PHYSICAL_DEVICE_TYPE_CPU || t == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    if (t == VK_PHYSICAL_DEVICE_TYPE_CPU) f->timestamp_bits = 0; /* data of its queries follow */
    f->max_range = reachable(f, l);
    arena_release(&a);
    return ok;
}

/* Queries. */

static u32 spirv_version(u32 vulkan)
{
    if (vulkan >= VK_API_VERSION_1_3) return 16;
    if (vulkan >= VK_API_VERSION_1_2) return 15;
    return vulkan >= VK_API_VERSION_1_1 ? 13 : 10;
}

/* Rough estimates: predictions order candidates before anything is measured, and are scaled to fit
   measurements. */
static void caps_speed(const struct vulkan_facts *f, struct caps *c)
{
    switch ((int)f->prop.core.properties.deviceType) {
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
        c->n_threads = (u32)os_n_cpus();
        c->gflops = 20 * c->n_threads, c->gbps = 10, c->l2_bytes = 1 << 20, c->l3_bytes = 32 << 20;
        c->is_emulated = true;
        break;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
        c->n_threads = 16, c->gflops = 1000, c->gbps = 50, c->l2_bytes = 4 << 20;
        break;
    default: c->n_threads = 64, c->gflops = 10000, c->gbps = 500, c->l2_bytes = 64 << 20; break;
    }
    c->l1_bytes = 32 << 10;
}

static void caps_subgroups(const struct vulkan_facts *f, struct caps *c)
{
    const VkPhysicalDeviceSubgroupProperties *s = &f->prop.subgroup;
    const VkPhysicalDeviceSubgroupSizeControlProperties *z = &f->prop.subgroup_size;
    VkSubgroupFeatureFlags needed = VK_SUBGROUP_FEATURE_BASIC_BIT |
                                    VK_SUBGROUP_FEATURE_ARITHMETIC_BIT |
                                    VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    bool has_some = s->supportedStages & VK_SHADER_STAGE_COMPUTE_BIT;
    c->subgroup = has_some ? s->subgroupSize : 0;
    c->subgroup_min = c->subgroup_max = c->subgroup;
    c->has_subgroup = has_some && (s->supportedOperations & needed) == needed;
    if (!f->on.subgroup_size.subgroupSizeControl) return;
    if (!(z->requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT)) return;
    c->subgroup_min = z->minSubgroupSize, c->subgroup_max = z->maxSubgroupSize;
}

static i64 max_buffer(const struct vulkan_facts *f)
{
    i64 n = f->max_range;
    u64 one = f->prop.maintenance3.maxMemoryAllocationSize, buf = f->prop.maintenance4.maxBufferSize;
    if (one && one < (u64)n) n = (i64)one;
    if (buf && buf < (u64)n) n = (i64)buf;
    return n;
}

void vulkan_caps(const struct vulkan_facts *f, struct caps *c)
{
    const VkPhysicalDeviceLimits *l = &f->prop.core.properties.limits;
    const struct vulkan_features *on = &f->on;
    *c = (struct caps){.is_gpu = true, .vector_bytes = 16, .n_vector_regs = 64, .has_fma = true};
    snprintf(c->arch, sizeof c->arch, "vulkan%u.%u", VK_API_VERSION_MAJOR(f->version),
             VK_API_VERSION_MINOR(f->version));
    caps_speed(f, c);
    caps_subgroups(f, c);
    c->max_group = (u32)i64_min(l->maxComputeWorkGroupInvocations, l->maxComputeWorkGroupSize[0]);
    c->shared_bytes = l->maxComputeSharedMemorySize;
    c->max_push = l->maxPushConstantsSize;
    c->max_buffer = max_buffer(f);
    c->max_bind = l->maxPerStageDescriptorStorageBuffers;
    c->buffer_align = (u32)l->minStorageBufferOffsetAlignment;
    c->has_f16 = on->storage16.storageBuffer16BitAccess && on->small.shaderFloat16;
    c->has_f64 = on->core.features.shaderFloat64;
    c->has_i8 = on->storage8.storageBuffer8BitAccess && on->small.shaderInt8;
    c->has_i16 = on->storage16.storageBuffer16BitAccess && on->core.features.shaderInt16;
    c->has_i64 = on->core.features.shaderInt64;
    c->has_rte_f16 = f->prop.floats.shaderRoundingModeRTEFloat16 && on->small.shaderFloat16;
    c->has_nan = f->prop.floats.shaderSignedZeroInfNanPreserveFloat32 &&
                 (!c->has_f64 || f->prop.floats.shaderSignedZeroInfNanPreserveFloat64);
    c->spirv = spirv_version(f->version);
    if (on->memory_model.vulkanMemoryModel) memcpy(c->matrix, f->matrix, sizeof c->matrix);
}

void vulkan_fingerprint(const struct vulkan_facts *f, struct buf *out)
{
    const VkPhysicalDeviceProperties *p = &f->prop.core.properties;
    const VkPhysicalDeviceDriverProperties *d = &f->prop.driver;
    buf_printf(out, "vulkan %s, %04x:%04x, driver", p->deviceName, p->vendorID, p->deviceID);
    if (d->sType) buf_printf(out, " %s %s,", d->driverName, d->driverInfo);
    buf_printf(out, " version %08x, api %u.%u.%u, cache ", p->driverVersion,
               VK_API_VERSION_MAJOR(f->version), VK_API_VERSION_MINOR(f->version),
               VK_API_VERSION_PATCH(p->apiVersion));
    for (u32 i = 0; i < VK_UUID_SIZE; i++) buf_printf(out, "%02x", p->pipelineCacheUUID[i]);
    if (p->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) buf_printf(out, ", %d processors", os_n_cpus());
}

/* Missing features. */

static bool has_float_control(const struct vulkan_facts *f, u32 capability)
{
    const VkPhysicalDeviceFloatControlsProperties *p = &f->prop.floats;
    switch (capability) {
    case SPV_CAP_DENORM_PRESERVE:
        return p->shaderDenormPreserveFloat16 || p->shaderDenormPreserveFloat32;
    case SPV_CAP_KEEP_NAN:
        return p->shaderSignedZeroInfNanPreserveFloat16 || p->shaderSignedZeroInfNanPreserveFloat32;
    case SPV_CAP_ROUND_EVEN:
        return p->shaderRoundingModeRTEFloat16 || p->shaderRoundingModeRTEFloat32;
    default: return false;
    }
}

/* NULL: the device supports this capability. */
static const char *missing(const struct vulkan_facts *f, u32 capability)
{
    const VkPhysicalDeviceSubgroupProperties *s = &f->prop.subgroup;
    if (capability <= SPV_CAP_SHADER || has_float_control(f, capability)) return NULL;
    for (i64 i = 0; i < countof(features); i++)
        if (features[i].capability == capability)
            return has_feature(f, &features[i]) ? NULL : strrchr(features[i].name, '.') + 1;
    for (i64 i = 0; i < countof(subgroup_features); i++) {
        if (subgroup_features[i].capability != capability) continue;
        bool there = s->supportedStages & VK_SHADER_STAGE_COMPUTE_BIT &&
                     s->supportedOperations & subgroup_features[i].bit;
        return there ? NULL : subgroup_features[i].name;
    }
    switch (capability) {
    case SPV_CAP_DENORM_PRESERVE: return "shaderDenormPreserveFloat32";
    case SPV_CAP_KEEP_NAN: return "shaderSignedZeroInfNanPreserveFloat32";
    case SPV_CAP_ROUND_EVEN: return "shaderRoundingModeRTEFloat32";
    default: return "";
    }
}

static bool can_subgroup(const struct vulkan_facts *f, u32 size, struct err *e)
{
    struct caps c = {0};
    caps_subgroups(f, &c);
    bool fits = size >= c.subgroup_min && size <= c.subgroup_max && (size & (size - 1)) == 0;
    return size == 0 || fits ||
           err_set(e, ERR_UNSUPPORTED,
                   "the kernel needs subgroups of %u threads, '%s' offers %u to %u", size,
                   vulkan_name(f), c.subgroup_min, c.subgroup_max);
}

bool vulkan_can_run(const struct vulkan_facts *f, const struct spirv_info *m, struct err *e)
{
    const VkPhysicalDeviceLimits *l = &f->prop.core.properties.limits;
    for (u32 i = 0; i < m->n_capability; i++) {
        const char *name = missing(f, m->capability[i]);
        if (!name) continue;
        if (*name)
            return err_set(e, ERR_UNSUPPORTED, "the kernel needs the feature '%s', which '%s' lacks",
                           name, vulkan_name(f));
        return err_set(e, ERR_UNSUPPORTED, "the kernel needs SPIR-V capability %u, which is not known",
                       m->capability[i]);
    }
    if (m->version > spirv_version(f->version))
        return err_set(e, ERR_UNSUPPORTED, "the kernel is SPIR-V 1.%u, '%s' takes up to 1.%u",
                       m->version - 10, vulkan_name(f), spirv_version(f->version) - 10);
    if (m->n_set > 1 || m->n_binding > l->maxPerStageDescriptorStorageBuffers)
        return err_set(e, ERR_UNSUPPORTED, "the kernel binds %u buffers, '%s' allows %u",
                       m->n_binding, vulkan_name(f), l->maxPerStageDescriptorStorageBuffers);
    if (m->push_bytes > l->maxPushConstantsSize || m->shared_bytes > l->maxComputeSharedMemorySize)
        return err_set(e, ERR_UNSUPPORTED,
                       "the kernel needs %lld bytes of shared memory and %lld of parameters, '%s' "
                       "has %u and %u",
                       (long long)m->shared_bytes, (long long)m->push_bytes, vulkan_name(f),
                       l->maxComputeSharedMemorySize, l->maxPushConstantsSize);
    return can_subgroup(f, m->subgroup, e);
}
