// SPDX-License-Identifier: Apache-2.0
//
// A Vulkan library for tests of the driver, named by QUERN_VULKAN_LOADER: simulated devices, with
// faults that real ones rarely show. Commands are executed at each submission; submitting a command
// buffer that is being recorded, was never recorded, or refers to a destroyed object ends the
// process. A dispatch runs the only kernel: every workgroup adds 1 to the u32 at its number (group
// + base, x innermost, the extents of the whole grid in elements 0..2 of the second buffer) in the
// first buffer; the base follows the first word of the push constants, or of the third buffer.
//
// QUERN_FAKE_VULKAN holds words "key=number":
//   devices    how many (1)             host      1: a CPU, 0: a discrete GPU (0)
//   version    10, 11, 12, 13 (13)      compute   0: no queue computes (1)
//   lost       the n-th submission loses the device (0: none)
//   memory     MiB of device memory (1024)
//   groups     of one dimension in one dispatch (65535)
//   without    1: lacks vkCmdDispatch   push      bytes of push constants (128)
//   small      0: no 16-bit storage, no f16 (1)
//   idle       1: dispatches do nothing (0)
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#define FAKE static VKAPI_ATTR

static long option(const char *key, long usual)
{
    const char *z = getenv("QUERN_FAKE_VULKAN"), *at = z ? strstr(z, key) : NULL;
    return at ? strtol(at + strlen(key) + 1, NULL, 10) : usual;
}

/* Objects: one kind for all; handles point to them. */

struct command;

struct object {
    char *p;              /* memory */
    size_t size;
    struct object *under; /* memory of a buffer */
    struct object *next;  /* of a pool: its sets */
    VkDescriptorBufferInfo bound[64];
    uint32_t push[64];
    struct command *commands; /* of a command buffer */
    size_t n_command;
    enum { INITIAL, RECORDING, EXECUTABLE, GONE } state;
};

static long n_objects, n_submits, n_recordings, cache_size;
static struct object gpus[8];
static size_t in_use;

static void *make(void)
{
    n_objects++;
    return calloc(1, sizeof(struct object));
}

/* Destroyed objects are remembered until the instance is destroyed. */
static struct object *gone;

static void destroy(void *p)
{
    struct object *x = p;
    if (!x) return;
    n_objects--;
    free(x->commands);
    *x = (struct object){.state = GONE, .next = gone};
    gone = x;
}

static void *there(void *p)
{
    if (((struct object *)p)->state == GONE) abort();
    return p;
}

/* Tests ask whether everything was destroyed. */
__attribute__((visibility("default"))) long fake_objects(void);
long fake_objects(void) { return n_objects; }

/* Command buffers that were begun since the instance was made. */
__attribute__((visibility("default"))) long fake_recordings(void);
long fake_recordings(void) { return n_recordings; }

/* Bytes that the last pipeline cache was made from. */
__attribute__((visibility("default"))) long fake_cache(void);
long fake_cache(void) { return cache_size; }

/* Instance. */

FAKE VkResult EnumerateInstanceVersion(uint32_t *v)
{
    *v = VK_MAKE_API_VERSION(0, 1, option("version", 13) % 10, 0);
    return VK_SUCCESS;
}

FAKE VkResult EnumerateInstanceLayerProperties(uint32_t *n, VkLayerProperties *v)
{
    *n = 0;
    return VK_SUCCESS;
}

FAKE VkResult EnumerateInstanceExtensionProperties(const char *layer, uint32_t *n,
                                                   VkExtensionProperties *v)
{
    *n = 0;
    return VK_SUCCESS;
}

FAKE VkResult CreateInstance(const VkInstanceCreateInfo *i, const VkAllocationCallbacks *a,
                             VkInstance *out)
{
    n_submits = n_recordings = 0;
    in_use = 0;
    *out = make();
    return VK_SUCCESS;
}

FAKE void DestroyInstance(VkInstance i, const VkAllocationCallbacks *a)
{
    destroy((void *)i);
    for (struct object *x; (x = gone); free(x)) gone = x->next;
}

FAKE VkResult EnumeratePhysicalDevices(VkInstance i, uint32_t *n, VkPhysicalDevice *v)
{
    uint32_t there = (uint32_t)option("devices", 1);
    for (uint32_t k = 0; v && k < *n && k < there; k++) v[k] = (void *)&gpus[k];
    *n = there;
    return VK_SUCCESS;
}

FAKE void GetPhysicalDeviceProperties(VkPhysicalDevice d, VkPhysicalDeviceProperties *p)
{
    long k = (struct object *)(void *)d - gpus, groups = option("groups", 65535);
    *p = (VkPhysicalDeviceProperties){
        .apiVersion = VK_MAKE_API_VERSION(0, 1, option("version", 13) % 10, 7),
        .vendorID = 0x1234,
        .deviceID = (uint32_t)k,
        .deviceType = option("host", 0) ? VK_PHYSICAL_DEVICE_TYPE_CPU
                      : k == 0          ? VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU
                                        : VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU,
        .deviceName = "fake A",
        .limits = {.maxComputeWorkGroupCount = {(uint32_t)groups, (uint32_t)groups, (uint32_t)groups},
                   .maxComputeWorkGroupSize = {1024, 1024, 64},
                   .maxComputeWorkGroupInvocations = 1024,
                   .maxComputeSharedMemorySize = 32768,
                   .maxPushConstantsSize = (uint32_t)option("push", 128),
                   .maxStorageBufferRange = 1 << 27,
                   .maxPerStageDescriptorStorageBuffers = 64,
                   .minStorageBufferOffsetAlignment = 64,
                   .timestampPeriod = 2},
    };
    p->deviceName[5] = (char)('A' + k);
    if (option("devices", 1) == 1 && !option("host", 0))
        p->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

FAKE void GetPhysicalDeviceProperties2(VkPhysicalDevice d, VkPhysicalDeviceProperties2 *p)
{
    GetPhysicalDeviceProperties(d, &p->properties);
}

FAKE void GetPhysicalDeviceFeatures2(VkPhysicalDevice d, VkPhysicalDeviceFeatures2 *f)
{
    for (VkBaseOutStructure *s = f->pNext; s; s = s->pNext)
        if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES)
            ((VkPhysicalDevice16BitStorageFeatures *)(void *)s)->storageBuffer16BitAccess =
                option("small", 1) != 0;
}

FAKE void GetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice d, uint32_t *n,
                                                 VkQueueFamilyProperties *v)
{
    VkQueueFlags compute = option("compute", 1) ? VK_QUEUE_COMPUTE_BIT : 0;
    if (v && *n >= 2) {
        v[0] = (VkQueueFamilyProperties){VK_QUEUE_GRAPHICS_BIT | compute, 1, 36, {1, 1, 1}};
        v[1] = (VkQueueFamilyProperties){VK_QUEUE_TRANSFER_BIT | compute, 1, 36, {1, 1, 1}};
    }
    *n = 2;
}

FAKE void GetPhysicalDeviceMemoryProperties(VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties *m)
{
    VkMemoryPropertyFlags seen =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    *m = (VkPhysicalDeviceMemoryProperties){.memoryTypeCount = 2, .memoryHeapCount = 1};
    m->memoryTypes[0].propertyFlags = seen;
    m->memoryTypes[1].propertyFlags =
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | (option("host", 0) ? seen : 0);
}

FAKE VkResult EnumerateDeviceExtensionProperties(VkPhysicalDevice d, const char *layer, uint32_t *n,
                                                 VkExtensionProperties *v)
{
    *n = 0;
    return VK_SUCCESS;
}

/* Device. */

FAKE VkResult CreateDevice(VkPhysicalDevice d, const VkDeviceCreateInfo *i,
                           const VkAllocationCallbacks *a, VkDevice *out)
{
    if (i->pQueueCreateInfos->queueFamilyIndex != 1) return VK_ERROR_INITIALIZATION_FAILED;
    *out = make();
    return VK_SUCCESS;
}

FAKE void DestroyDevice(VkDevice d, const VkAllocationCallbacks *a) { destroy(d); }

FAKE void GetDeviceQueue(VkDevice d, uint32_t family, uint32_t k, VkQueue *q) { *q = (void *)d; }

/* Objects without behaviour. */
#define PLAIN(type, info)                                                                          \
    FAKE VkResult Create##type(VkDevice d, const info *i, const VkAllocationCallbacks *a,          \
                               Vk##type *out)                                                      \
    {                                                                                              \
        *out = make();                                                                             \
        return VK_SUCCESS;                                                                         \
    }                                                                                              \
    FAKE void Destroy##type(VkDevice d, Vk##type x, const VkAllocationCallbacks *a) { destroy(x); }
PLAIN(Fence, VkFenceCreateInfo)
PLAIN(QueryPool, VkQueryPoolCreateInfo)
PLAIN(ShaderModule, VkShaderModuleCreateInfo)
PLAIN(DescriptorSetLayout, VkDescriptorSetLayoutCreateInfo)
PLAIN(PipelineLayout, VkPipelineLayoutCreateInfo)

FAKE void DestroyPipeline(VkDevice d, VkPipeline x, const VkAllocationCallbacks *a) { destroy(x); }

FAKE VkResult CreateComputePipelines(VkDevice d, VkPipelineCache c, uint32_t n,
                                     const VkComputePipelineCreateInfo *i,
                                     const VkAllocationCallbacks *a, VkPipeline *out)
{
    *out = make();
    return VK_SUCCESS;
}

/* A cache holds the data it was created from, or its own. */
FAKE VkResult CreatePipelineCache(VkDevice d, const VkPipelineCacheCreateInfo *i,
                                  const VkAllocationCallbacks *a, VkPipelineCache *out)
{
    *out = make();
    cache_size = (long)i->initialDataSize;
    return VK_SUCCESS;
}

FAKE void DestroyPipelineCache(VkDevice d, VkPipelineCache x, const VkAllocationCallbacks *a)
{
    destroy(x);
}

FAKE VkResult GetPipelineCacheData(VkDevice d, VkPipelineCache c, size_t *n, void *p)
{
    const VkPipelineCacheHeaderVersionOne head = {
        .headerSize = sizeof head,
        .headerVersion = VK_PIPELINE_CACHE_HEADER_VERSION_ONE,
        .vendorID = 0x1234,
    };
    *n = sizeof head + 100;
    if (!p) return VK_SUCCESS;
    memset(p, 7, *n);
    memcpy(p, &head, sizeof head);
    return VK_SUCCESS;
}

/* Pools of command buffers and of descriptor sets: destroyed with everything allocated from them. */

static void *make_in(struct object *pool)
{
    struct object *x = make();
    x->next = pool->next;
    return pool->next = x;
}

static void empty(struct object *pool)
{
    for (struct object *x; (x = pool->next);) {
        pool->next = x->next;
        destroy(x);
    }
}

static void destroy_pool(struct object *pool)
{
    if (pool) empty(pool);
    destroy(pool);
}

FAKE VkResult CreateCommandPool(VkDevice d, const VkCommandPoolCreateInfo *i,
                                const VkAllocationCallbacks *a, VkCommandPool *out)
{
    *out = make();
    return VK_SUCCESS;
}

FAKE void DestroyCommandPool(VkDevice d, VkCommandPool x, const VkAllocationCallbacks *a)
{
    destroy_pool((void *)x);
}

FAKE VkResult AllocateCommandBuffers(VkDevice d, const VkCommandBufferAllocateInfo *i,
                                     VkCommandBuffer *out)
{
    *out = make_in((void *)i->commandPool);
    return VK_SUCCESS;
}

FAKE VkResult CreateDescriptorPool(VkDevice d, const VkDescriptorPoolCreateInfo *i,
                                   const VkAllocationCallbacks *a, VkDescriptorPool *out)
{
    *out = make();
    return VK_SUCCESS;
}

FAKE void DestroyDescriptorPool(VkDevice d, VkDescriptorPool x, const VkAllocationCallbacks *a)
{
    destroy_pool((void *)x);
}

FAKE VkResult AllocateDescriptorSets(VkDevice d, const VkDescriptorSetAllocateInfo *i,
                                     VkDescriptorSet *out)
{
    *out = make_in((void *)i->descriptorPool);
    return VK_SUCCESS;
}

FAKE void UpdateDescriptorSets(VkDevice d, uint32_t n, const VkWriteDescriptorSet *w, uint32_t m,
                               const VkCopyDescriptorSet *c)
{
    for (uint32_t i = 0; i < n; i++)
        ((struct object *)(void *)w[i].dstSet)->bound[w[i].dstBinding] = *w[i].pBufferInfo;
}

FAKE VkResult ResetDescriptorPool(VkDevice d, VkDescriptorPool p, VkDescriptorPoolResetFlags f)
{
    empty((void *)p);
    return VK_SUCCESS;
}

/* Memory. */

FAKE VkResult CreateBuffer(VkDevice d, const VkBufferCreateInfo *i, const VkAllocationCallbacks *a,
                           VkBuffer *out)
{
    struct object *b = make();
    b->size = i->size;
    *out = (void *)b;
    return VK_SUCCESS;
}

FAKE void DestroyBuffer(VkDevice d, VkBuffer b, const VkAllocationCallbacks *a) { destroy(b); }

FAKE void GetBufferMemoryRequirements(VkDevice d, VkBuffer b, VkMemoryRequirements *r)
{
    *r = (VkMemoryRequirements){((struct object *)(void *)b)->size, 256, 3};
}

FAKE VkResult AllocateMemory(VkDevice d, const VkMemoryAllocateInfo *i,
                             const VkAllocationCallbacks *a, VkDeviceMemory *out)
{
    if (in_use + i->allocationSize > (size_t)option("memory", 1024) << 20)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    struct object *m = make();
    m->size = i->allocationSize;
    m->p = malloc(m->size);
    memset(m->p, 0xEE, m->size); /* memory is not zeroed */
    in_use += m->size;
    *out = (void *)m;
    return VK_SUCCESS;
}

FAKE void FreeMemory(VkDevice d, VkDeviceMemory x, const VkAllocationCallbacks *a)
{
    struct object *m = (void *)x;
    if (!m) return;
    in_use -= m->size;
    free(m->p);
    destroy(m);
}

FAKE VkResult BindBufferMemory(VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize at)
{
    ((struct object *)(void *)b)->under = (void *)m;
    return VK_SUCCESS;
}

FAKE VkResult MapMemory(VkDevice d, VkDeviceMemory m, VkDeviceSize at, VkDeviceSize n,
                        VkMemoryMapFlags f, void **out)
{
    *out = ((struct object *)(void *)m)->p;
    return VK_SUCCESS;
}

static char *bytes(VkBuffer b, VkDeviceSize at, VkDeviceSize n)
{
    const struct object *x = there((void *)b);
    if (at + n > x->size) abort(); /* an error of the validation layer */
    return x->under->p + at;
}

/* Commands. */

struct command {
    enum { FILL, COPY, PIPELINE, SET, PUSH, DISPATCH } what;
    VkBuffer from, to;
    VkBufferCopy part;
    int value;
    struct object *object; /* a pipeline, a set */
    uint32_t push[64], groups[3];
};

static struct command *add(VkCommandBuffer c)
{
    struct object *o = (void *)c;
    if (o->state != RECORDING) abort();
    o->commands = realloc(o->commands, sizeof *o->commands * (o->n_command + 1));
    memset(&o->commands[o->n_command], 0, sizeof *o->commands);
    return &o->commands[o->n_command++];
}

static uint32_t *element(const VkDescriptorBufferInfo *b, uint64_t i)
{
    if (4 * i + 4 > b->range) abort();
    return (uint32_t *)(void *)bytes(b->buffer, b->offset + 4 * i, 4);
}

static void dispatch(const struct object *o, const uint32_t n[3])
{
    const uint32_t *extent = element(&o->bound[1], 0),
                   *base = (o->bound[2].buffer ? element(&o->bound[2], 0) : o->push) + 1;
    for (uint64_t k = base[2]; k < base[2] + n[2]; k++)
        for (uint64_t j = base[1]; j < base[1] + n[1]; j++)
            for (uint64_t i = base[0]; i < base[0] + n[0]; i++)
                ++*element(&o->bound[0], (k * extent[1] + j) * extent[0] + i);
}

static void carry_out(struct object *o, const struct command *x)
{
    switch (x->what) {
    case FILL: memset(bytes(x->to, x->part.dstOffset, x->part.size), x->value, x->part.size); break;
    case COPY:
        memmove(bytes(x->to, x->part.dstOffset, x->part.size),
                bytes(x->from, x->part.srcOffset, x->part.size), x->part.size);
        break;
    case PIPELINE: there(x->object); break;
    case SET: memcpy(o->bound, ((struct object *)there(x->object))->bound, sizeof o->bound); break;
    case PUSH: memcpy(o->push, x->push, sizeof o->push); break;
    case DISPATCH: dispatch(o, x->groups); break;
    default: abort();
    }
}

FAKE VkResult BeginCommandBuffer(VkCommandBuffer c, const VkCommandBufferBeginInfo *i)
{
    struct object *o = (void *)c;
    if (o->state == RECORDING) abort();
    o->state = RECORDING;
    o->n_command = 0;
    n_recordings++;
    return VK_SUCCESS;
}

FAKE VkResult EndCommandBuffer(VkCommandBuffer c)
{
    ((struct object *)(void *)c)->state = EXECUTABLE;
    return VK_SUCCESS;
}

FAKE VkResult QueueSubmit(VkQueue q, uint32_t n, const VkSubmitInfo *i, VkFence f)
{
    struct object *o = (void *)i->pCommandBuffers[0];
    if (o->state != EXECUTABLE) abort();
    if (++n_submits == option("lost", 0)) return VK_ERROR_DEVICE_LOST;
    memset(o->bound, 0, sizeof o->bound);
    memset(o->push, 0, sizeof o->push);
    for (size_t k = 0; k < o->n_command; k++) carry_out(o, &o->commands[k]);
    return VK_SUCCESS;
}

FAKE VkResult WaitForFences(VkDevice d, uint32_t n, const VkFence *f, VkBool32 all, uint64_t t)
{
    return VK_SUCCESS;
}

FAKE VkResult ResetFences(VkDevice d, uint32_t n, const VkFence *f) { return VK_SUCCESS; }

FAKE VkResult GetQueryPoolResults(VkDevice d, VkQueryPool p, uint32_t first, uint32_t n, size_t size,
                                  void *out, VkDeviceSize stride, VkQueryResultFlags f)
{
    uint64_t t[2] = {(UINT64_C(1) << 36) - 500, 500}; /* wraps around: 1000 ticks of 2 ns */
    memcpy(out, t, size < sizeof t ? size : sizeof t);
    return VK_SUCCESS;
}

FAKE void CmdPipelineBarrier(VkCommandBuffer c, VkPipelineStageFlags s, VkPipelineStageFlags t,
                             VkDependencyFlags f, uint32_t n, const VkMemoryBarrier *m, uint32_t nb,
                             const VkBufferMemoryBarrier *b, uint32_t ni,
                             const VkImageMemoryBarrier *i)
{
}

FAKE void CmdResetQueryPool(VkCommandBuffer c, VkQueryPool p, uint32_t first, uint32_t n) {}

FAKE void CmdWriteTimestamp(VkCommandBuffer c, VkPipelineStageFlagBits s, VkQueryPool p, uint32_t q)
{
}

FAKE void CmdFillBuffer(VkCommandBuffer c, VkBuffer b, VkDeviceSize at, VkDeviceSize n, uint32_t v)
{
    *add(c) = (struct command){FILL, .to = b, .part = {0, at, n}, .value = (int)v & 0xff};
}

FAKE void CmdCopyBuffer(VkCommandBuffer c, VkBuffer from, VkBuffer to, uint32_t n,
                        const VkBufferCopy *r)
{
    for (uint32_t i = 0; i < n; i++)
        *add(c) = (struct command){COPY, .from = from, .to = to, .part = r[i]};
}

FAKE void CmdBindPipeline(VkCommandBuffer c, VkPipelineBindPoint b, VkPipeline p)
{
    *add(c) = (struct command){PIPELINE, .object = (void *)p};
}

FAKE void CmdBindDescriptorSets(VkCommandBuffer c, VkPipelineBindPoint b, VkPipelineLayout l,
                                uint32_t first, uint32_t n, const VkDescriptorSet *s, uint32_t m,
                                const uint32_t *o)
{
    *add(c) = (struct command){SET, .object = (void *)s[0]};
}

FAKE void CmdPushConstants(VkCommandBuffer c, VkPipelineLayout l, VkShaderStageFlags s, uint32_t at,
                           uint32_t n, const void *p)
{
    struct command *x = add(c);
    x->what = PUSH;
    memcpy((char *)x->push + at, p, n);
}

FAKE void CmdDispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t most = (uint32_t)option("groups", 65535);
    if (x > most || y > most || z > most) abort();
    if (!option("idle", 0)) *add(c) = (struct command){DISPATCH, .groups = {x, y, z}};
}

/* Entry points. */

#define X(level, need, name) {"vk" #name, (PFN_vkVoidFunction)name},
#define CreateDebugUtilsMessengerEXT NULL
#define DestroyDebugUtilsMessengerEXT NULL
FAKE PFN_vkVoidFunction GetDeviceProcAddr(VkDevice d, const char *name);
static const struct {
    const char *name;
    PFN_vkVoidFunction f;
} calls[] = {
#include "dev/dev_vulkan.inc"
};

static PFN_vkVoidFunction find(const char *name)
{
    if (option("without", 0) && strcmp(name, "vkCmdDispatch") == 0) return NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0) return calls[i].f;
    return NULL;
}

FAKE PFN_vkVoidFunction GetDeviceProcAddr(VkDevice d, const char *name) { return find(name); }

__attribute__((visibility("default"))) VKAPI_ATTR PFN_vkVoidFunction
vkGetInstanceProcAddr(VkInstance i, const char *name);
VKAPI_ATTR PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance i, const char *name)
{
    return find(name);
}
