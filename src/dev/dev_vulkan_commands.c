// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_commands.c: commands as numbers. The commands of a batch are collected
// as words and given to Vulkan only when it is submitted. Identical batches are
// recognised by comparing words, and their recording is submitted again: a program
// that runs for the same sizes, or a kernel that is timed, is recorded once.
//
// A command is its opcode, the number of words, and those words. Buffers and kernels
// are identified by handles and addresses, so words are valid only until one of them
// is destroyed (vulkan_forget). Data is never part of them, only its place.
#include "dev/dev_vulkan.h"

#include <string.h>

enum command {
    BARRIER,  /* uses before, uses after (0: the host reads) */
    FILL,     /* with zero: buffer, offset, size */
    COPY,     /* from, to, offset in from, offset in to, size */
    STAMP,    /* first (0) or second */
    BIND,     /* kernel, then buffer, offset and size of each binding */
    DISPATCH, /* kernel, grid, workgroups in x, y, z, the push constants */
};

/* Collecting. */

static u64 *put(struct vulkan_commands *c, enum command op, u32 n)
{
    u32 need = c->n + 1 + n;
    if (need > c->cap) {
        u32 cap = 2 * need + 256;
        u64 *more = mem_alloc((i64)sizeof *more * cap);
        if (c->n) memcpy(more, c->v, sizeof *more * c->n);
        mem_free(c->v);
        c->v = more, c->cap = cap;
    }
    u64 *at = c->v + c->n;
    at[0] = (u64)op | (u64)n << 8;
    c->n = need;
    return at + 1;
}

void vulkan_put_barrier(struct vulkan_commands *c, u32 next)
{
    if (!c->written) return;
    u64 *w = put(c, BARRIER, 2);
    w[0] = c->written, w[1] = next;
    c->written = 0;
}

void vulkan_put_fill(struct vulkan_commands *c, VkBuffer b, i64 at, i64 size)
{
    u64 *w = put(c, FILL, 3);
    w[0] = vulkan_word(b), w[1] = (u64)at, w[2] = (u64)size;
    c->written |= VULKAN_COPY;
}

void vulkan_put_copy(struct vulkan_commands *c, VkBuffer from, VkBuffer to, VkBufferCopy part)
{
    u64 *w = put(c, COPY, 5);
    w[0] = vulkan_word(from), w[1] = vulkan_word(to);
    w[2] = part.srcOffset, w[3] = part.dstOffset, w[4] = part.size;
    c->written |= VULKAN_COPY;
}

void vulkan_put_stamp(struct vulkan_commands *c)
{
    put(c, STAMP, 1)[0] = c->is_timed;
    c->is_timed = true;
}

/* Omitted if equal to the previous one. */
void vulkan_put_bind(struct vulkan_commands *c, const struct dev_kernel *k,
                     const VkDescriptorBufferInfo *info)
{
    u32 at = c->n, size = 1 + 3 * k->n_binding;
    u64 *w = put(c, BIND, size);
    w[0] = (u64)(uintptr_t)k;
    for (u32 i = 0; i < k->n_binding; i++) {
        w[1 + 3 * i] = vulkan_word(info[i].buffer);
        w[2 + 3 * i] = info[i].offset;
        w[3 + 3 * i] = info[i].range;
    }
    if (c->n_set && memcmp(c->v + c->bound, c->v + at, sizeof *w * (1 + size)) == 0) {
        c->n = at;
        return;
    }
    c->bound = at;
    c->n_set++;
    c->n_descriptor += k->n_binding;
}

void vulkan_put_dispatch(struct vulkan_commands *c, const struct dev_kernel *k, u32 grid,
                         const u32 n[3], const u32 *push)
{
    u32 words = (k->push_bytes + 7) / 8;
    u64 *w = put(c, DISPATCH, 5 + words);
    w[0] = (u64)(uintptr_t)k, w[1] = grid;
    for (int d = 0; d < 3; d++) w[2 + d] = n[d];
    if (words) w[4 + words] = 0; /* half of the last word may be unused */
    if (words) memcpy(w + 5, push, k->push_bytes);
    c->written |= VULKAN_COMPUTE;
}

void vulkan_commands_reset(struct vulkan_commands *c)
{
    *c = (struct vulkan_commands){.v = c->v, .cap = c->cap};
}

void vulkan_commands_copy(struct vulkan_commands *to, const struct vulkan_commands *from)
{
    mem_free(to->v);
    *to = *from;
    to->cap = from->n;
    to->v = mem_alloc((i64)sizeof *to->v * i64_max(from->n, 1));
    if (from->n) memcpy(to->v, from->v, sizeof *to->v * from->n);
}

bool vulkan_commands_equal(const struct vulkan_commands *a, const struct vulkan_commands *b)
{
    if (a->is_borrowed || b->is_borrowed) return false;
    return a->n == b->n && (a->n == 0 || memcmp(a->v, b->v, sizeof *a->v * a->n) == 0);
}

/* Recording. */

static VkPipelineStageFlags stages_of(u64 uses)
{
    if (uses & VULKAN_OTHERS) return VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    return (uses & VULKAN_COPY ? VK_PIPELINE_STAGE_TRANSFER_BIT : 0) |
           (uses & VULKAN_COMPUTE ? VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT : 0);
}

static VkAccessFlags writes_of(u64 uses)
{
    if (uses & VULKAN_OTHERS) return VK_ACCESS_MEMORY_WRITE_BIT;
    return (uses & VULKAN_COPY ? VK_ACCESS_TRANSFER_WRITE_BIT : 0) |
           (uses & VULKAN_COMPUTE ? VK_ACCESS_SHADER_WRITE_BIT : 0);
}

static VkAccessFlags reads_of(u64 uses)
{
    if (uses & VULKAN_OTHERS) return VK_ACCESS_MEMORY_READ_BIT;
    return (uses & VULKAN_COPY ? VK_ACCESS_TRANSFER_READ_BIT : 0) |
           (uses & VULKAN_COMPUTE ? VK_ACCESS_SHADER_READ_BIT : 0);
}

/* Earlier writes become visible to later commands, which also write; at the end of a batch to the
 * host. */
static void record_barrier(struct vulkan *v, VkCommandBuffer cmd, const u64 *w)
{
    bool to_host = !w[1] || w[1] & VULKAN_OTHERS;
    VkMemoryBarrier m = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                         .srcAccessMask = writes_of(w[0]),
                         .dstAccessMask = (w[1] ? reads_of(w[1]) | writes_of(w[1]) : 0) |
                                          (to_host ? VK_ACCESS_HOST_READ_BIT : 0)};
    v->vk.CmdPipelineBarrier(cmd, stages_of(w[0]),
                             (w[1] ? stages_of(w[1]) : 0) |
                                 (to_host ? VK_PIPELINE_STAGE_HOST_BIT : 0),
                             0, 1, &m, 0, NULL, 0, NULL);
}

static void record_stamp(struct vulkan *v, VkCommandBuffer cmd, u32 batch, u64 which)
{
    if (!v->stamps) return;
    if (which == 0) v->vk.CmdResetQueryPool(cmd, v->stamps, 2 * batch, 2);
    v->vk.CmdWriteTimestamp(cmd, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, v->stamps,
                            2 * batch + (u32)which);
}

static bool record_bind(struct vulkan *v, struct vulkan_batch *b, const u64 *w, struct err *e)
{
    const struct dev_kernel *k = (const struct dev_kernel *)(uintptr_t)w[0];
    struct arena a = {0};
    VkDescriptorSet set;
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = b->pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &k->set_layout};
    if (!vulkan_ok(v, v->vk.AllocateDescriptorSets(v->device, &info, &set),
                   "vkAllocateDescriptorSets", e))
        return false;
    VkDescriptorBufferInfo *x = arena_array(&a, VkDescriptorBufferInfo, k->n_binding + 1);
    VkWriteDescriptorSet *put = arena_array(&a, VkWriteDescriptorSet, k->n_binding + 1);
    for (u32 i = 0; i < k->n_binding; i++) {
        x[i] = (VkDescriptorBufferInfo){vulkan_buffer(w[1 + 3 * i]), w[2 + 3 * i], w[3 + 3 * i]};
        put[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = set,
                                        .dstBinding = i,
                                        .descriptorCount = 1,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                        .pBufferInfo = &x[i]};
    }
    v->vk.UpdateDescriptorSets(v->device, k->n_binding, put, 0, NULL);
    v->vk.CmdBindDescriptorSets(b->cmd, VK_PIPELINE_BIND_POINT_COMPUTE, k->layout, 0, 1, &set, 0,
                                NULL);
    arena_release(&a);
    return true;
}

static void record_dispatch(struct vulkan *v, VkCommandBuffer cmd, const u64 *w)
{
    const struct dev_kernel *k = (const struct dev_kernel *)(uintptr_t)w[0];
    v->vk.CmdBindPipeline(cmd, VK_PIPELINE_BIND_POINT_COMPUTE, k->pipeline[w[1]]);
    if (k->push_bytes)
        v->vk.CmdPushConstants(cmd, k->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, k->push_bytes, w + 5);
    v->vk.CmdDispatch(cmd, (u32)w[2], (u32)w[3], (u32)w[4]);
}

static bool record_one(struct vulkan *v, struct vulkan_batch *b, const u64 *w, struct err *e)
{
    VkBufferCopy part;
    switch ((enum command)(w[0] & 0xff)) {
    case BARRIER: record_barrier(v, b->cmd, w + 1); return true;
    case FILL:
        v->vk.CmdFillBuffer(b->cmd, vulkan_buffer(w[1]), w[2], w[3], 0);
        return true;
    case COPY:
        part = (VkBufferCopy){w[3], w[4], w[5]};
        v->vk.CmdCopyBuffer(b->cmd, vulkan_buffer(w[1]), vulkan_buffer(w[2]), 1, &part);
        return true;
    case STAMP: record_stamp(v, b->cmd, (u32)(b - v->batch), w[1]); return true;
    case BIND: return record_bind(v, b, w + 1, e);
    case DISPATCH: record_dispatch(v, b->cmd, w + 1); return true;
    default: unreachable();
    }
}

bool vulkan_commands_record(struct vulkan *v, struct vulkan_batch *b, struct err *e)
{
    VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    const struct vulkan_commands *c = &b->commands;
    bool ok = vulkan_ok(v, v->vk.ResetDescriptorPool(v->device, b->pool, 0), "vkResetDescriptorPool",
                        e) &&
              vulkan_ok(v, v->vk.BeginCommandBuffer(b->cmd, &info), "vkBeginCommandBuffer", e);
    for (u32 at = 0; at < c->n && ok; at += 1 + (u32)(c->v[at] >> 8))
        ok = record_one(v, b, c->v + at, e);
    return ok && vulkan_ok(v, v->vk.EndCommandBuffer(b->cmd), "vkEndCommandBuffer", e);
}
