// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_kernel.c: kernels from SPIR-V modules. A module declares its requirements
// (core/spirv.h); one pipeline is created per grid when the kernel is loaded. The
// module's words are kept, so that the kernel can be recreated after the device was lost.
//
// The driver's compiled pipelines are cached between processes in the
// user's cache folder, one file per driver and device. Files that are
// not exactly as written are ignored: drivers have crashed on less.
#include "dev/dev_vulkan.h"

#include <string.h>

/* Pipelines. */

static bool check_group(const struct vulkan *v, const struct spirv_entry *x, struct err *e)
{
    const VkPhysicalDeviceLimits *l = &v->facts.prop.core.properties.limits;
    u64 n = 1;
    bool fits = true;
    for (int d = 0; d < 3; d++) {
        fits = fits && x->local[d] > 0 && x->local[d] <= l->maxComputeWorkGroupSize[d];
        n = fits ? n * x->local[d] : n;
    }
    return (fits && n <= l->maxComputeWorkGroupInvocations) ||
           err_set(e, ERR_UNSUPPORTED,
                   "workgroups of %u x %u x %u threads, '%s' allows %u x %u x %u and %u in all",
                   x->local[0], x->local[1], x->local[2], vulkan_name(&v->facts),
                   l->maxComputeWorkGroupSize[0], l->maxComputeWorkGroupSize[1],
                   l->maxComputeWorkGroupSize[2], l->maxComputeWorkGroupInvocations);
}

static const struct spirv_entry *find_entry(const struct spirv_info *m, struct str name)
{
    for (u32 i = 0; i < m->n_entry; i++)
        if (str_eq(m->entry[i].name, name)) return &m->entry[i];
    return NULL;
}

static bool read_module(struct vulkan *v, struct dev_kernel *k, struct err *e)
{
    struct spirv_info *m = arena_new(&k->arena, struct spirv_info);
    if (!spirv_read_info(m, k->code, e) || !vulkan_can_run(&v->facts, m, e)) return false;
    if (m->n_binding > VULKAN_DESCRIPTORS || m->push_bytes % 4)
        return err_set(e, ERR_UNSUPPORTED, "%u bindings and %lld bytes of parameters", m->n_binding,
                       (long long)m->push_bytes);
    k->n_binding = m->n_binding;
    k->push_bytes = (u32)m->push_bytes;
    k->subgroup = m->subgroup;
    for (u32 i = 0; i < k->n_grid; i++) {
        struct str name = str_fmt(&k->arena, "%.*s_%u", STR_ARG(k->entry), i);
        const struct spirv_entry *x = find_entry(m, name);
        if (!x) return err_set(e, ERR_INPUT, "no entry point '%.*s' in binary", STR_ARG(name));
        if (!check_group(v, x, e)) return false;
        memcpy(k->local[i], x->local, sizeof x->local);
    }
    return true;
}

static bool make_layouts(struct vulkan *v, struct dev_kernel *k, struct err *e)
{
    struct arena a = {0};
    VkDescriptorSetLayoutBinding *b = arena_array(&a, VkDescriptorSetLayoutBinding, k->n_binding + 1);
    for (u32 i = 0; i < k->n_binding; i++)
        b[i] = (VkDescriptorSetLayoutBinding){.binding = i,
                                              .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                              .descriptorCount = 1,
                                              .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    VkDescriptorSetLayoutCreateInfo set = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
        .bindingCount = k->n_binding,
        .pBindings = b};
    VkPushConstantRange push = {VK_SHADER_STAGE_COMPUTE_BIT, 0, k->push_bytes};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                         .setLayoutCount = 1,
                                         .pSetLayouts = &k->set_layout,
                                         .pushConstantRangeCount = k->push_bytes > 0,
                                         .pPushConstantRanges = &push};
    bool ok = vulkan_ok(v, v->vk.CreateDescriptorSetLayout(v->device, &set, NULL, &k->set_layout),
                        "vkCreateDescriptorSetLayout", e) &&
              vulkan_ok(v, v->vk.CreatePipelineLayout(v->device, &layout, NULL, &k->layout),
                        "vkCreatePipelineLayout", e);
    arena_release(&a);
    return ok;
}

/* Full subgroups are requested if supported: kernels rely on them. */
static VkPipelineShaderStageCreateFlags stage_flags(const struct vulkan *v, const struct dev_kernel *k,
                                                    u32 grid)
{
    bool full = k->subgroup && k->local[grid][0] % k->subgroup == 0 &&
                v->facts.on.subgroup_size.computeFullSubgroups;
    return full ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT : 0;
}

/* Where all subgroups have one size, workgroups may have more of them than may be asked for. */
static bool asks_size(const struct vulkan *v, const struct dev_kernel *k, u32 grid)
{
    const VkPhysicalDeviceSubgroupSizeControlProperties *p = &v->facts.prop.subgroup_size;
    const u32 *n = k->local[grid];
    bool is_beyond = (u64)n[0] * n[1] * n[2] > (u64)k->subgroup * p->maxComputeWorkgroupSubgroups;
    return k->subgroup && v->facts.on.subgroup_size.subgroupSizeControl && p->requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT &&
           !(is_beyond && p->minSubgroupSize == p->maxSubgroupSize);
}

static bool make_pipeline(struct vulkan *v, struct dev_kernel *k, u32 grid, VkShaderModule module,
                          struct err *e)
{
    struct arena a = {0};
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo size = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO,
        .requiredSubgroupSize = k->subgroup};
    bool asks = asks_size(v, k, grid);
    VkComputePipelineCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .pNext = asks ? &size : NULL,
                  .flags = stage_flags(v, k, grid),
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = module,
                  .pName = str_fmt(&a, "%.*s_%u", STR_ARG(k->entry), grid).p},
        .layout = k->layout,
    };
    bool ok = vulkan_ok(v, v->vk.CreateComputePipelines(v->device, v->cache, 1, &info, NULL,
                                                        &k->pipeline[grid]),
                        "vkCreateComputePipelines", e);
    arena_release(&a);
    v->has_compiled = true;
    return ok;
}

static bool make_pipelines(struct vulkan *v, struct dev_kernel *k, struct err *e)
{
    VkShaderModule module = VK_NULL_HANDLE;
    VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                     .codeSize = (size_t)k->code.n,
                                     .pCode = (const u32 *)(const void *)k->code.p};
    bool ok = make_layouts(v, k, e) &&
              vulkan_ok(v, v->vk.CreateShaderModule(v->device, &info, NULL, &module),
                        "vkCreateShaderModule", e);
    for (u32 i = 0; i < k->n_grid && ok; i++) ok = make_pipeline(v, k, i, module, e);
    v->vk.DestroyShaderModule(v->device, module, NULL);
    return ok;
}

static void destroy_pipelines(struct vulkan *v, struct dev_kernel *k)
{
    for (u32 i = 0; i < k->n_grid; i++) {
        v->vk.DestroyPipeline(v->device, k->pipeline[i], NULL);
        k->pipeline[i] = VK_NULL_HANDLE;
    }
    v->vk.DestroyPipelineLayout(v->device, k->layout, NULL);
    v->vk.DestroyDescriptorSetLayout(v->device, k->set_layout, NULL);
    k->layout = VK_NULL_HANDLE;
    k->set_layout = VK_NULL_HANDLE;
}

/* Kernels. */

static struct dev_kernel *new_kernel(struct str code, struct str entry, u32 n_grid)
{
    struct dev_kernel *k = mem_alloc((i64)sizeof *k);
    k->code = str_dup(&k->arena, code); /* 16-byte aligned, as words must be */
    k->entry = str_dup(&k->arena, entry);
    k->n_grid = n_grid;
    k->pipeline = arena_array(&k->arena, VkPipeline, n_grid + 1);
    k->local = (u32(*)[3])arena_alloc(&k->arena, (i64)sizeof(u32[3]) * (n_grid + 1));
    return k;
}

struct dev_kernel *vulkan_kernel_load(struct vulkan *v, struct str code, struct str entry,
                                      u32 n_grid, struct err *e)
{
    struct dev_kernel *k = new_kernel(code, entry, n_grid);
    k->next = v->kernels;
    v->kernels = k;
    if (read_module(v, k, e) && make_pipelines(v, k, e)) return k;
    vulkan_kernel_unload(v, k);
    return NULL;
}

void vulkan_kernel_unload(struct vulkan *v, struct dev_kernel *k)
{
    if (v->device) {
        if (!v->is_lost) vulkan_wait(v, &v->late); /* may still be running */
        vulkan_forget(v);
        destroy_pipelines(v, k);
    }
    for (struct dev_kernel **at = &v->kernels; *at; at = &(*at)->next)
        if (*at == k) {
            *at = k->next;
            break;
        }
    arena_release(&k->arena);
    mem_free(k);
}

bool vulkan_kernels_remake(struct vulkan *v, struct err *e)
{
    for (struct dev_kernel *k = v->kernels; k; k = k->next)
        if (!make_pipelines(v, k, e)) return false;
    return true;
}

void vulkan_kernels_destroy(struct vulkan *v)
{
    for (struct dev_kernel *k = v->kernels; k; k = k->next) destroy_pipelines(v, k);
}

/* The cache: pipelines compiled by the driver, one file of this user per driver, with a seal
   (core/seal.c) because they are executed. */

enum { MAX_CACHE = 64 << 20 };

static struct str cache_name(const struct vulkan *v, struct arena *a)
{
    const VkPhysicalDeviceProperties *p = &v->facts.prop.core.properties;
    char hex[33];
    struct hash h = hash_bytes(p->pipelineCacheUUID, VK_UUID_SIZE);
    hash_hex(h, hex);
    return str_fmt(a, "vulkan-%04x-%04x-%08x-%.16s.bin", p->vendorID, p->deviceID, p->driverVersion, hex);
}

/* The path and the key of its seal; false: this user has no cache, or one that others can write to. */
static bool open_cache(struct arena *a, struct str name, struct str *path, struct seal_key *key)
{
    struct str folder = os_cache_folder(a);
    struct err e = {0}; /* failure only costs time */
    if (!folder.n || !os_private_folder(folder.p, &e) || !seal_key_open(key, &e)) return false;
    *path = str_fmt(a, "%.*s/%.*s", STR_ARG(folder), STR_ARG(name));
    return true;
}

/* Also performs a check that drivers should perform: that the data is their own. */
static struct str read_cache(const struct vulkan *v, struct arena *a)
{
    const VkPhysicalDeviceProperties *p = &v->facts.prop.core.properties;
    struct str name = cache_name(v, a), path, all;
    struct seal_key key;
    struct err e = {0};
    VkPipelineCacheHeaderVersionOne one;
    u8 seal[SEAL_BYTES];
    if (!open_cache(a, name, &path, &key) || !os_exists(path.p) || !os_read(a, path.p, MAX_CACHE, &all, &e)) return (struct str){0};
    if (all.n < (i64)(sizeof seal + sizeof one)) return (struct str){0};
    struct str text = str_sub(all, 0, all.n - SEAL_BYTES);
    memcpy(seal, text.p + text.n, sizeof seal);
    memcpy(&one, text.p, sizeof one);
    bool ok = seal_check(&key, name, text, seal) && one.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE && one.vendorID == p->vendorID &&
              one.deviceID == p->deviceID && memcmp(one.pipelineCacheUUID, p->pipelineCacheUUID, VK_UUID_SIZE) == 0;
    return ok ? text : (struct str){0};
}

void vulkan_cache_open(struct vulkan *v)
{
    struct arena a = {0};
    struct str data = read_cache(v, &a);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                      .initialDataSize = (size_t)data.n,
                                      .pInitialData = data.p};
    v->has_compiled = false;
    if (v->vk.CreatePipelineCache(v->device, &info, NULL, &v->cache) != VK_SUCCESS)
        v->cache = VK_NULL_HANDLE; /* optional */
    arena_release(&a);
}

static void write_cache(struct vulkan *v, struct arena *a)
{
    size_t n = 0;
    struct err e = {0};
    struct str name = cache_name(v, a), path;
    struct seal_key key;
    u8 seal[SEAL_BYTES];
    if (!open_cache(a, name, &path, &key) || v->vk.GetPipelineCacheData(v->device, v->cache, &n, NULL) != VK_SUCCESS) return;
    if (n < sizeof(VkPipelineCacheHeaderVersionOne) || n > MAX_CACHE - SEAL_BYTES) return;
    char *p = arena_alloc(a, (i64)n);
    if (v->vk.GetPipelineCacheData(v->device, v->cache, &n, p) != VK_SUCCESS) return;
    const struct str piece[] = {{p, (i64)n}, {(const char *)seal, sizeof seal}};
    if (seal_make(&key, name, piece, 1, seal, &e)) os_write_private(path.p, piece, countof(piece), &e);
}

void vulkan_cache_close(struct vulkan *v)
{
    struct arena a = {0};
    if (v->cache && v->has_compiled && !v->is_lost) write_cache(v, &a);
    v->vk.DestroyPipelineCache(v->device, v->cache, NULL);
    v->cache = VK_NULL_HANDLE;
    arena_release(&a);
}
