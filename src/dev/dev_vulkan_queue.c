// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_queue.c: commands on their way to the device. They are recorded into batches, a few of
// which go round: while one is recorded, others run. A batch is submitted when it is full and at
// every wait.
//
// Everything runs in order. Between commands that may write and what follows lies one full memory
// barrier; which buffers they share is not looked at. A batch with launches stands between two
// timestamps, each taken when all that came before it is done.
#include "dev/dev_vulkan.h"

#include <string.h>

static const i64 stage_bytes = (i64)16 << 20;

/* Making and destroying. */

static bool make_batch(struct vulkan *v, struct vulkan_batch *b, struct err *e)
{
    VkCommandBufferAllocateInfo cmd = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                       .commandPool = v->commands,
                                       .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                       .commandBufferCount = 1};
    VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, VULKAN_DESCRIPTORS};
    VkDescriptorPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
                                       .maxSets = VULKAN_SETS,
                                       .poolSizeCount = 1,
                                       .pPoolSizes = &size};
    return vulkan_ok(v, v->vk.AllocateCommandBuffers(v->device, &cmd, &b->cmd),
                     "vkAllocateCommandBuffers", e) &&
           vulkan_ok(v, v->vk.CreateFence(v->device, &fence, NULL, &b->fence), "vkCreateFence", e) &&
           vulkan_ok(v, v->vk.CreateDescriptorPool(v->device, &pool, NULL, &b->pool),
                     "vkCreateDescriptorPool", e);
}

bool vulkan_queue_init(struct vulkan *v, struct err *e)
{
    VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
        .queueFamilyIndex = v->facts.family,
    };
    VkQueryPoolCreateInfo stamps = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                    .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                    .queryCount = 2 * VULKAN_BATCHES};
    v->vk.GetDeviceQueue(v->device, v->facts.family, 0, &v->queue);
    bool ok = vulkan_ok(v, v->vk.CreateCommandPool(v->device, &pool, NULL, &v->commands),
                        "vkCreateCommandPool", e);
    for (u32 i = 0; i < VULKAN_BATCHES && ok; i++) ok = make_batch(v, &v->batch[i], e);
    if (!ok || !v->facts.timestamp_bits) return ok;
    return vulkan_ok(v, v->vk.CreateQueryPool(v->device, &stamps, NULL, &v->stamps),
                     "vkCreateQueryPool", e);
}

void vulkan_queue_destroy(struct vulkan *v)
{
    for (u32 i = 0; i < VULKAN_BATCHES; i++) {
        v->vk.DestroyFence(v->device, v->batch[i].fence, NULL);
        v->vk.DestroyDescriptorPool(v->device, v->batch[i].pool, NULL);
        v->batch[i] = (struct vulkan_batch){0};
    }
    v->vk.DestroyCommandPool(v->device, v->commands, NULL); /* with its command buffers */
    v->vk.DestroyQueryPool(v->device, v->stamps, NULL);
    v->commands = VK_NULL_HANDLE;
    v->stamps = VK_NULL_HANDLE;
    v->current = v->written = 0;
    v->stage_used = 0;
    v->seconds = v->last = v->submitted = 0;
    v->bound.kernel = NULL;
}

/* Barriers and timestamps. */

static VkPipelineStageFlags stages_of(u32 uses)
{
    return (uses & VULKAN_COPY ? VK_PIPELINE_STAGE_TRANSFER_BIT : 0) |
           (uses & VULKAN_COMPUTE ? VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT : 0);
}

static VkAccessFlags writes_of(u32 uses)
{
    return (uses & VULKAN_COPY ? VK_ACCESS_TRANSFER_WRITE_BIT : 0) |
           (uses & VULKAN_COMPUTE ? VK_ACCESS_SHADER_WRITE_BIT : 0);
}

static VkAccessFlags reads_of(u32 uses)
{
    return (uses & VULKAN_COPY ? VK_ACCESS_TRANSFER_READ_BIT : 0) |
           (uses & VULKAN_COMPUTE ? VK_ACCESS_SHADER_READ_BIT : 0);
}

static void put_barrier(struct vulkan *v, VkPipelineStageFlags next, VkAccessFlags access)
{
    VkMemoryBarrier m = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = writes_of(v->written),
                         .dstAccessMask = access};
    v->vk.CmdPipelineBarrier(v->batch[v->current].cmd, stages_of(v->written), next, 0, 1, &m, 0,
                             NULL, 0, NULL);
}

void vulkan_barrier(struct vulkan *v, enum vulkan_use next)
{
    if (v->written) put_barrier(v, stages_of(next), reads_of(next) | writes_of(next));
    v->written = next;
}

static void put_stamp(struct vulkan *v, u32 which)
{
    if (v->stamps)
        v->vk.CmdWriteTimestamp(v->batch[v->current].cmd, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                v->stamps, 2 * v->current + which);
}

void vulkan_start_clock(struct vulkan *v)
{
    struct vulkan_batch *b = &v->batch[v->current];
    if (b->is_timed) return;
    b->is_timed = true;
    if (v->stamps) v->vk.CmdResetQueryPool(b->cmd, v->stamps, 2 * v->current, 2);
    put_stamp(v, 0);
}

static bool read_stamps(struct vulkan *v, u32 batch, struct err *e)
{
    u64 t[2] = {0};
    if (!v->stamps) return true;
    VkResult r = v->vk.GetQueryPoolResults(v->device, v->stamps, 2 * batch, 2, sizeof t, t, sizeof *t,
                                           VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    if (!vulkan_ok(v, r, "vkGetQueryPoolResults", e)) return false;
    u32 bits = v->facts.timestamp_bits;
    u64 mask = bits >= 64 ? UINT64_MAX : ((u64)1 << bits) - 1; /* the counter may wrap */
    double period = v->facts.prop.core.properties.limits.timestampPeriod;
    v->seconds += (double)((t[1] - t[0]) & mask) * period * 1e-9;
    return true;
}

/* Batches. */

static bool finish_batch(struct vulkan *v, u32 i, struct err *e)
{
    struct vulkan_batch *b = &v->batch[i];
    if (!b->is_running) return true;
    if (!vulkan_ok(v, v->vk.WaitForFences(v->device, 1, &b->fence, VK_TRUE, UINT64_MAX),
                   "vkWaitForFences", e) ||
        !vulkan_ok(v, v->vk.ResetFences(v->device, 1, &b->fence), "vkResetFences", e) ||
        !vulkan_ok(v, v->vk.ResetDescriptorPool(v->device, b->pool, 0), "vkResetDescriptorPool", e))
        return false;
    b->is_running = false;
    b->n_set = b->n_descriptor = 0;
    return !b->is_timed || read_stamps(v, i, e);
}

static bool submit(struct vulkan *v, struct err *e)
{
    struct vulkan_batch *b = &v->batch[v->current];
    if (!b->is_open) return true;
    if (b->is_timed) put_stamp(v, 1);
    if (v->written) put_barrier(v, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &b->cmd};
    b->is_open = false;
    v->bound.kernel = NULL;
    if (!vulkan_ok(v, v->vk.EndCommandBuffer(b->cmd), "vkEndCommandBuffer", e)) return false;
    if (b->is_timed && v->submitted == 0) v->submitted = os_now();
    if (!vulkan_ok(v, v->vk.QueueSubmit(v->queue, 1, &info, b->fence), "vkQueueSubmit", e))
        return false;
    b->is_running = true;
    v->current = (v->current + 1) % VULKAN_BATCHES;
    return true;
}

static bool begin_batch(struct vulkan *v, struct err *e)
{
    struct vulkan_batch *b = &v->batch[v->current];
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                     .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    if (!finish_batch(v, v->current, e)) return false;
    b->is_timed = false;
    b->is_open =
        vulkan_ok(v, v->vk.BeginCommandBuffer(b->cmd, &info), "vkBeginCommandBuffer", e);
    return b->is_open;
}

struct vulkan_batch *vulkan_record(struct vulkan *v, u32 n_descriptor, struct err *e)
{
    struct vulkan_batch *b = &v->batch[v->current];
    bool is_full = n_descriptor && (b->n_set == VULKAN_SETS ||
                                    b->n_descriptor + n_descriptor > VULKAN_DESCRIPTORS);
    if (b->is_open && is_full && !submit(v, e)) return NULL;
    b = &v->batch[v->current];
    return b->is_open || begin_batch(v, e) ? b : NULL;
}

bool vulkan_wait(struct vulkan *v, struct err *e)
{
    if (!submit(v, e)) return false;
    for (u32 i = 0; i < VULKAN_BATCHES; i++) /* the oldest first */
        if (!finish_batch(v, (v->current + i) % VULKAN_BATCHES, e)) return false;
    v->stage_used = 0;
    return true;
}

bool vulkan_fence(struct vulkan *v, struct err *e)
{
    if (!vulkan_wait(v, e)) return false;
    double by_host = v->submitted > 0 ? os_now() - v->submitted : 0;
    v->last = v->stamps ? v->seconds : by_host;
    v->seconds = v->submitted = 0;
    return true;
}

/* Moving data. */

void *vulkan_stage(struct vulkan *v, i64 n, i64 *at, struct err *e)
{
    assert(n > 0 && n <= stage_bytes);
    if (!v->stage.size && !vulkan_block_make(v, &v->stage, stage_bytes, true, e)) {
        v->stage.size = 0;
        return NULL;
    }
    if (v->stage_used + n > stage_bytes && !vulkan_wait(v, e)) return NULL;
    *at = v->stage_used;
    v->stage_used = round_up(*at + n, VULKAN_ALIGN);
    return v->stage.map + *at;
}

static bool copy(struct vulkan *v, VkBuffer from, VkBuffer to, VkBufferCopy part, struct err *e)
{
    struct vulkan_batch *b = vulkan_record(v, 0, e);
    if (!b) return false;
    vulkan_barrier(v, VULKAN_COPY);
    v->vk.CmdCopyBuffer(b->cmd, from, to, 1, &part);
    return true;
}

static bool fits(struct dev_mem m, i64 n, struct err *e)
{
    return (n >= 0 && n <= m.size) || err_set(e, ERR_USAGE, "%lld bytes do not fit into %lld",
                                              (long long)n, (long long)m.size);
}

bool vulkan_upload(struct vulkan *v, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    const struct vulkan_block *b = vulkan_block_of(&m);
    if (!fits(m, n, e) || (b->map && !vulkan_wait(v, e))) return false;
    if (b->map && n) memcpy(b->map + m.offset, p, (size_t)n);
    for (i64 done = 0, size, at; done < n && !b->map; done += size) {
        size = i64_min(n - done, stage_bytes / 4);
        void *to = vulkan_stage(v, size, &at, e);
        if (!to) return false;
        memcpy(to, (const char *)p + done, (size_t)size);
        VkBufferCopy part = {(VkDeviceSize)at, (VkDeviceSize)(m.offset + done), (VkDeviceSize)size};
        if (!copy(v, v->stage.buffer, b->buffer, part, e)) return false;
    }
    return true;
}

bool vulkan_download(struct vulkan *v, struct dev_mem m, void *p, i64 n, struct err *e)
{
    const struct vulkan_block *b = vulkan_block_of(&m);
    if (!fits(m, n, e) || (b->map && !vulkan_wait(v, e))) return false;
    if (b->map && n) memcpy(p, b->map + m.offset, (size_t)n);
    for (i64 done = 0, size, at; done < n && !b->map; done += size) {
        size = i64_min(n - done, stage_bytes);
        const void *from = vulkan_stage(v, size, &at, e);
        if (!from) return false;
        VkBufferCopy part = {(VkDeviceSize)(m.offset + done), (VkDeviceSize)at, (VkDeviceSize)size};
        if (!copy(v, b->buffer, v->stage.buffer, part, e) || !vulkan_wait(v, e)) return false;
        memcpy((char *)p + done, from, (size_t)size);
    }
    return true;
}
