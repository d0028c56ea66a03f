// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_block.c: blocks of device memory, each with one buffer over it.
#include "dev/dev_vulkan.h"

static int find_type(const struct vulkan *v, u32 allowed, VkMemoryPropertyFlags want)
{
    const VkPhysicalDeviceMemoryProperties *m = &v->facts.memory;
    for (u32 i = 0; i < m->memoryTypeCount; i++)
        if (allowed >> i & 1 && (m->memoryTypes[i].propertyFlags & want) == want) return (int)i;
    return -1;
}

/* The type of memory to use, in order of preference; on
   a device that works in host memory it is host-visible. */
static int choose_type(const struct vulkan *v, u32 allowed, bool for_host)
{
    enum {
        LOCAL = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT,
        SEEN = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
        CACHED = VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
    };
    static const VkMemoryPropertyFlags host[] = {SEEN | CACHED, SEEN},
                                       shared[] = {LOCAL | SEEN | CACHED, LOCAL | SEEN, LOCAL, 0},
                                       own[] = {LOCAL, 0};
    const VkMemoryPropertyFlags *want = for_host ? host : v->facts.is_host ? shared : own;
    i64 n = for_host ? countof(host) : v->facts.is_host ? countof(shared) : countof(own);
    for (i64 i = 0; i < n; i++) {
        int t = find_type(v, allowed, want[i]);
        if (t >= 0) return t;
    }
    return -1;
}

static bool make_buffer(struct vulkan *v, struct vulkan_block *b, struct err *e)
{
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = (VkDeviceSize)b->size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
    };
    return vulkan_ok(v, v->vk.CreateBuffer(v->device, &info, NULL, &b->buffer), "vkCreateBuffer", e);
}

static bool back_buffer(struct vulkan *v, struct vulkan_block *b, bool for_host, struct err *e)
{
    VkMemoryRequirements need;
    v->vk.GetBufferMemoryRequirements(v->device, b->buffer, &need);
    int type = choose_type(v, need.memoryTypeBits, for_host);
    if (type < 0)
        return err_set(e, ERR_UNSUPPORTED, "'%s' has no memory of the right kind",
                       vulkan_name(&v->facts));
    VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                 .allocationSize = need.size,
                                 .memoryTypeIndex = (u32)type};
    if (!vulkan_ok(v, v->vk.AllocateMemory(v->device, &info, NULL, &b->memory), "vkAllocateMemory", e))
        return false;
    if (!vulkan_ok(v, v->vk.BindBufferMemory(v->device, b->buffer, b->memory, 0),
                   "vkBindBufferMemory", e))
        return false;
    if (!(v->facts.memory.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) ||
        (!for_host && !v->facts.is_host))
        return true;
    void *p = NULL;
    bool ok = vulkan_ok(v, v->vk.MapMemory(v->device, b->memory, 0, VK_WHOLE_SIZE, 0, &p),
                        "vkMapMemory", e);
    b->map = p;
    return ok;
}

void vulkan_block_destroy(struct vulkan *v, struct vulkan_block *b)
{
    v->vk.DestroyBuffer(v->device, b->buffer, NULL);
    v->vk.FreeMemory(v->device, b->memory, NULL); /* unmaps it */
    b->buffer = VK_NULL_HANDLE;
    b->memory = VK_NULL_HANDLE;
    b->map = NULL;
}

bool vulkan_block_make(struct vulkan *v, struct vulkan_block *b, i64 size, bool for_host,
                       struct err *e)
{
    b->size = size;
    if (make_buffer(v, b, e) && back_buffer(v, b, for_host, e)) return true;
    vulkan_block_destroy(v, b);
    return false;
}
