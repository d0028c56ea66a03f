// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_queue.c: submission of commands to the device. They are collected into batches, and a
// batch is submitted when it is full and at every wait: recorded into one of a few command buffers,
// while others run, or without recording if a command buffer with identical commands exists.
//
// Everything runs in order. A batch begins with a full memory barrier, and there is
// another between commands that may write and later ones, regardless of the buffers that
// they share. A batch therefore has the same effect whatever ran before it. Batches with
// launches are enclosed by two timestamps, each taken when all earlier work is done.
#include "dev/dev_vulkan.h"

#include <string.h>

static const i64 stage_bytes = (i64)16 << 20;

/* Creation and destruction. */

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
    if (vulkan_is_attached(v)) v->queue = v->attached.f.queue;
    else v->vk.GetDeviceQueue(v->device, v->facts.family, 0, &v->queue);
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
        mem_free(v->batch[i].commands.v);
        v->batch[i] = (struct vulkan_batch){0};
    }
    v->vk.DestroyCommandPool(v->device, v->commands, NULL); /* with its command buffers */
    v->vk.DestroyQueryPool(v->device, v->stamps, NULL);
    v->commands = VK_NULL_HANDLE;
    v->stamps = VK_NULL_HANDLE;
    vulkan_commands_reset(&v->open);
    v->stage_used = 0;
    v->seconds = v->last = v->submitted = 0;
}

void vulkan_queue_forget(struct vulkan *v)
{
    mem_free(v->open.v);
    v->open = (struct vulkan_commands){0};
}

/* Batches. */

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

static bool finish_batch(struct vulkan *v, u32 i, struct err *e)
{
    struct vulkan_batch *b = &v->batch[i];
    if (!b->is_running) return true;
    if (!vulkan_ok(v, v->vk.WaitForFences(v->device, 1, &b->fence, VK_TRUE, UINT64_MAX),
                   "vkWaitForFences", e) ||
        !vulkan_ok(v, v->vk.ResetFences(v->device, 1, &b->fence), "vkResetFences", e))
        return false;
    b->is_running = false;
    return !b->commands.is_timed || read_stamps(v, i, e);
}

/* What is collected always has a command: one without is equal to none. */
void vulkan_forget(struct vulkan *v)
{
    for (u32 i = 0; i < VULKAN_BATCHES; i++) v->batch[i].commands.n = 0;
}

/* One at rest that does the same, else the one that was submitted longest ago. */
static u32 choose_batch(const struct vulkan *v)
{
    u32 oldest = 0;
    for (u32 i = 0; i < VULKAN_BATCHES; i++) {
        if (!v->batch[i].is_running && vulkan_commands_equal(&v->batch[i].commands, &v->open))
            return i;
        if (v->batch[i].turn < v->batch[oldest].turn) oldest = i;
    }
    return oldest;
}

/* A batch with the collected commands, ready to be submitted. */
static struct vulkan_batch *find_batch(struct vulkan *v, struct err *e)
{
    u32 i = choose_batch(v);
    struct vulkan_batch *b = &v->batch[i];
    if (!finish_batch(v, i, e)) return NULL;
    if (vulkan_commands_equal(&b->commands, &v->open)) return b;
    vulkan_commands_copy(&b->commands, &v->open);
    if (vulkan_commands_record(v, b, e)) return b;
    vulkan_commands_reset(&b->commands);
    return NULL;
}

/* A queue that is shared belongs to one thread at a time. */
static VkResult put_in_queue(struct vulkan *v, struct vulkan_batch *b)
{
    const struct dev_foreign *f = &v->attached.f;
    VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                         .commandBufferCount = 1,
                         .pCommandBuffers = &b->cmd};
    if (f->lock) f->lock(f->user);
    VkResult r = v->vk.QueueSubmit(v->queue, 1, &info, b->fence);
    if (f->unlock) f->unlock(f->user);
    return r;
}

bool vulkan_submit(struct vulkan *v, struct err *e)
{
    if (!v->open.n) return true;
    if (v->open.is_timed) vulkan_put_stamp(&v->open);
    vulkan_put_barrier(&v->open, vulkan_is_attached(v) ? VULKAN_OTHERS : 0);
    struct vulkan_batch *b = find_batch(v, e);
    vulkan_commands_reset(&v->open);
    if (!b) return false;
    if (b->commands.is_timed && v->submitted == 0) v->submitted = os_now();
    if (!vulkan_ok(v, put_in_queue(v, b), "vkQueueSubmit", e)) return false;
    b->is_running = true;
    b->turn = ++v->turn;
    return true;
}

struct vulkan_commands *vulkan_open_batch(struct vulkan *v, u32 n_descriptor, struct err *e)
{
    struct vulkan_commands *c = &v->open;
    bool is_full = c->n > VULKAN_WORDS ||
                   (n_descriptor && (c->n_set == VULKAN_SETS ||
                                     c->n_descriptor + n_descriptor > VULKAN_DESCRIPTORS));
    if (is_full && !vulkan_submit(v, e)) return NULL;
    if (c->n == 0) {
        c->written = vulkan_is_attached(v) ? VULKAN_OTHERS : VULKAN_ANY;
        vulkan_put_barrier(c, VULKAN_ANY);
    }
    return c;
}

bool vulkan_wait(struct vulkan *v, struct err *e)
{
    if (!vulkan_submit(v, e)) return false;
    for (u32 i = 0; i < VULKAN_BATCHES; i++)
        if (!finish_batch(v, i, e)) return false;
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
    struct vulkan_commands *c = vulkan_open_batch(v, 0, e);
    if (!c) return false;
    vulkan_put_barrier(c, VULKAN_COPY);
    vulkan_put_copy(c, from, to, part);
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

bool vulkan_copy(struct vulkan *v, struct dev_mem to, struct dev_mem from, i64 n, struct err *e)
{
    VkBufferCopy part = {(VkDeviceSize)from.offset, (VkDeviceSize)to.offset, (VkDeviceSize)n};
    if (!fits(to, n, e) || !fits(from, n, e)) return false;
    return n == 0 || copy(v, vulkan_block_of(&from)->buffer, vulkan_block_of(&to)->buffer, part, e);
}
