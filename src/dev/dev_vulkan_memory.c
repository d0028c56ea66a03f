// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_memory.c: device memory from large blocks. A driver supports
// few allocations (4096 in all on some) and each is slow, so memory is
// suballocated from 64 MiB blocks, best fit first. Larger sizes get a block
// of their own. Each block has one buffer; kernels are bound to its parts.
//
// Invariants of a block: 1. Gaps are in ascending order,
// inside the block, and not adjacent. 2. Every part and gap
// begins and ends at a multiple of VULKAN_ALIGN. 3. One gap
// of the whole size means that the block is unused.
#include "dev/dev_vulkan.h"

#include <string.h>

static const i64 block_bytes = (i64)64 << 20;

/* Blocks. */

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

/* Gaps. */

static void insert_gap(struct vulkan_block *b, u32 i, i64 at, i64 size)
{
    if (b->n_gap == b->cap_gap) {
        u32 cap = b->cap_gap ? 2 * b->cap_gap : 16;
        struct vulkan_gap *more = mem_alloc((i64)sizeof *more * cap);
        if (b->n_gap) memcpy(more, b->gap, sizeof *more * b->n_gap);
        mem_free(b->gap);
        b->gap = more, b->cap_gap = cap;
    }
    memmove(&b->gap[i + 1], &b->gap[i], sizeof *b->gap * (b->n_gap - i));
    b->gap[i] = (struct vulkan_gap){at, size};
    b->n_gap++;
}

static void remove_gap(struct vulkan_block *b, u32 i)
{
    b->n_gap--;
    memmove(&b->gap[i], &b->gap[i + 1], sizeof *b->gap * (b->n_gap - i));
}

static i64 take(struct vulkan_block *b, u32 i, i64 size)
{
    i64 at = b->gap[i].at;
    b->gap[i].at += size;
    b->gap[i].size -= size;
    if (b->gap[i].size == 0) remove_gap(b, i);
    return at;
}

static void give(struct vulkan_block *b, i64 at, i64 size)
{
    u32 i = 0;
    while (i < b->n_gap && b->gap[i].at < at) i++;
    assert(i == b->n_gap || at + size <= b->gap[i].at);
    assert(i == 0 || b->gap[i - 1].at + b->gap[i - 1].size <= at);
    insert_gap(b, i, at, size);
    if (i + 1 < b->n_gap && at + size == b->gap[i + 1].at) {
        b->gap[i].size += b->gap[i + 1].size;
        remove_gap(b, i + 1);
    }
    if (i > 0 && b->gap[i - 1].at + b->gap[i - 1].size == at) {
        b->gap[i - 1].size += b->gap[i].size;
        remove_gap(b, i);
    }
}

static bool is_empty(const struct vulkan_block *b)
{
    return b->n_gap == 1 && b->gap[0].size == b->size;
}

/* Parts. */

static i64 part_size(i64 size) { return round_up(i64_max(size, 1), VULKAN_ALIGN); }

static bool find_part(struct vulkan *v, i64 size, struct dev_mem *m)
{
    struct vulkan_block *best = NULL;
    u32 at = 0;
    for (struct vulkan_block *b = v->blocks; b; b = b->next)
        for (u32 i = 0; i < b->n_gap; i++)
            if (b->gap[i].size >= size && (!best || b->gap[i].size < best->gap[at].size))
                best = b, at = i;
    if (!best) return false;
    m->handle = (u64)(uintptr_t)best;
    m->offset = take(best, at, size);
    return true;
}

static void drop_empty(struct vulkan *v)
{
    vulkan_forget(v);
    for (struct vulkan_block **at = &v->blocks, *b; (b = *at);) {
        if (!is_empty(b)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        vulkan_block_destroy(v, b);
        mem_free(b->gap);
        mem_free(b);
    }
}

static bool add_block(struct vulkan *v, i64 size, struct err *e)
{
    struct vulkan_block *b = mem_alloc((i64)sizeof *b);
    if (!vulkan_block_make(v, b, size, false, e)) {
        mem_free(b);
        return false;
    }
    insert_gap(b, 0, 0, size);
    b->next = v->blocks;
    v->blocks = b;
    return true;
}

/* A block for this size: as large as usual, else as large as needed, at last with what is empty
   given back. */
static bool more_memory(struct vulkan *v, i64 size, struct err *e)
{
    struct err why = {0};
    if (size < block_bytes && add_block(v, block_bytes, &why)) return true;
    if (v->is_lost || !vulkan_wait(v, e)) return false;
    drop_empty(v);
    why = (struct err){0};
    if (add_block(v, size, &why)) return true;
    return err_set(e, why.code, "cannot allocate %lld bytes on '%s', where %lld are in use: %s",
                   (long long)size, vulkan_name(&v->facts), (long long)v->used, why.msg);
}

static bool check_size(const struct vulkan *v, i64 size, struct err *e)
{
    u64 one = v->facts.prop.maintenance3.maxMemoryAllocationSize;
    u64 buf = v->facts.prop.maintenance4.maxBufferSize;
    u64 most = one ? one : (u64)1 << 40;
    if (buf && buf < most) most = buf;
    return (size >= 0 && (u64)size <= most) ||
           err_set(e, ERR_UNSUPPORTED, "cannot allocate %lld bytes on '%s': at most %llu in one piece",
                   (long long)size, vulkan_name(&v->facts), (unsigned long long)most);
}

/* Fresh memory is zero. */
static bool clear(struct vulkan *v, const struct dev_mem *m, i64 size, struct err *e)
{
    struct vulkan_block *b = vulkan_block_of(m);
    if (b->map) { /* its previous user may still be at work */
        if (!vulkan_wait(v, e)) return false;
        memset(b->map + m->offset, 0, (size_t)size);
        return true;
    }
    struct vulkan_commands *c = vulkan_open_batch(v, 0, e);
    if (!c) return false;
    vulkan_put_barrier(c, VULKAN_COPY);
    vulkan_put_fill(c, b->buffer, m->offset, size);
    return true;
}

bool vulkan_alloc(struct vulkan *v, i64 size, struct dev_mem *m, struct err *e)
{
    *m = (struct dev_mem){.size = size};
    if (!check_size(v, size, e)) return false;
    i64 n = part_size(size);
    if (!find_part(v, n, m) && (!more_memory(v, n, e) || !find_part(v, n, m))) return false;
    v->used += n;
    if (clear(v, m, n, e)) return true;
    vulkan_release(v, m);
    return false;
}

void vulkan_release(struct vulkan *v, struct dev_mem *m)
{
    struct vulkan_block *b = vulkan_block_of(m);
    if (b) {
        i64 n = part_size(m->size);
        give(b, m->offset, n);
        v->used -= n;
    }
    *m = (struct dev_mem){0};
}

bool vulkan_memory_remake(struct vulkan *v, struct err *e)
{
    for (struct vulkan_block *b = v->blocks; b; b = b->next) {
        struct dev_mem all = {.handle = (u64)(uintptr_t)b};
        if (!vulkan_block_make(v, b, b->size, false, e) || !clear(v, &all, b->size, e)) return false;
    }
    return true;
}

void vulkan_memory_destroy(struct vulkan *v)
{
    for (struct vulkan_block *b = v->blocks; b; b = b->next) vulkan_block_destroy(v, b);
    vulkan_block_destroy(v, &v->stage);
    v->stage.size = 0;
}

void vulkan_memory_forget(struct vulkan *v)
{
    while (v->blocks) {
        struct vulkan_block *b = v->blocks;
        v->blocks = b->next;
        mem_free(b->gap);
        mem_free(b);
    }
}
