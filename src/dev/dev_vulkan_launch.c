// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_launch.c: recording a launch. Every grid of a kernel is one dispatch, or several where
// an extent is beyond the device's limit: kernels add the base of the piece that they are part of
// to the number of their group. The block of parameters is n_param + 3 numbers of 32 bits, the
// last three being that base; it travels as push constants where it fits, else in memory, bound
// behind the buffers. A kernel without the base is taken as long as its grids need no pieces, and
// one that reads no parameter declares none.
#include "dev/dev_vulkan.h"

#include <string.h>

enum { N_BASE = 3, MAX_PIECES = 1 << 16 };

struct call { /* one launch on its way */
    struct vulkan *v;
    const struct dev_launch *l;
    u32 *block;   /* parameters and base */
    bool by_push, has_base;
};

/* Checks. */

static bool check_buffers(const struct call *c, struct err *e)
{
    const struct vulkan_facts *f = &c->v->facts;
    for (u32 i = 0; i < c->l->n_buf; i++)
        if (c->l->buf[i].size > f->max_range)
            return err_set(e, ERR_UNSUPPORTED,
                           "buffer %u has %lld bytes, a kernel on '%s' can reach %lld", i,
                           (long long)c->l->buf[i].size, vulkan_name(f),
                           (long long)f->max_range);
    return true;
}

static bool check_params(const struct call *c, struct err *e)
{
    for (u32 i = 0; i < c->l->n_param; i++)
        if (c->l->param[i] < INT32_MIN || c->l->param[i] > INT32_MAX)
            return err_set(e, ERR_UNSUPPORTED, "parameter %u is %lld, beyond 32 bits", i,
                           (long long)c->l->param[i]);
    return true;
}

static bool check_grids(const struct call *c, struct err *e)
{
    const u32 *most = c->v->facts.prop.core.properties.limits.maxComputeWorkGroupCount;
    for (u32 g = 0; g < c->l->n_grid; g++) {
        i64 pieces = 1;
        for (int d = 0; d < 3; d++) {
            i64 n = c->l->grid[g][d];
            if (n < 0 || n > INT32_MAX)
                return err_set(e, ERR_USAGE, "grid %u has extent %lld", g, (long long)n);
            if (n > most[d] && !c->has_base)
                return err_set(e, ERR_UNSUPPORTED, "grid %u has extent %lld, '%s' allows %u", g,
                               (long long)n, vulkan_name(&c->v->facts), most[d]);
            pieces *= i64_max(1, i64_min(ceil_div(n, most[d]), MAX_PIECES));
            if (pieces > MAX_PIECES)
                return err_set(e, ERR_UNSUPPORTED, "grid %u is too large for '%s'", g,
                               vulkan_name(&c->v->facts));
        }
    }
    return true;
}

/* How the kernel takes its parameters: told by what it declares. */
static bool check_form(struct call *c, struct err *e)
{
    const struct dev_launch *l = c->l;
    const struct dev_kernel *k = l->kernel;
    u32 plain = 4 * l->n_param, with_base = 4 * (l->n_param + N_BASE);
    if (l->n_grid != k->n_grid)
        return err_set(e, ERR_USAGE, "kernel has %u grids, not %u", k->n_grid, l->n_grid);
    c->by_push = k->n_binding <= l->n_buf;
    c->has_base = !c->by_push || k->push_bytes == with_base;
    bool fits = c->by_push ? k->push_bytes == 0 || k->push_bytes == plain || c->has_base
                           : k->n_binding == l->n_buf + 1 && k->push_bytes == 0;
    return fits || err_set(e, ERR_USAGE,
                           "kernel has %u bindings and %u bytes of push constants, which does not "
                           "fit %u buffers and %u parameters",
                           k->n_binding, k->push_bytes, l->n_buf, l->n_param);
}

/* Descriptor sets. */

static VkDescriptorBufferInfo describe(const struct dev_mem *m)
{
    /* to the next 16 bytes: kernels read words of several elements, and ranges of 0 do not exist */
    return (VkDescriptorBufferInfo){.buffer = vulkan_block_of(m)->buffer,
                                    .offset = (VkDeviceSize)m->offset,
                                    .range = (VkDeviceSize)round_up(i64_max(m->size, 1), 16)};
}

static void reserve_infos(struct vulkan *v, u32 n)
{
    if (n <= v->bound.cap) return;
    mem_free(v->bound.info);
    v->bound.cap = 2 * n;
    v->bound.info = mem_alloc((i64)sizeof *v->bound.info * v->bound.cap);
    v->bound.kernel = NULL;
}

/* The set of the launch before is taken again if it says the same; timing launches a kernel many
   times. */
static bool same_as_bound(struct call *c, const VkDescriptorBufferInfo *param)
{
    struct vulkan *v = c->v;
    const struct dev_kernel *k = c->l->kernel;
    bool same = v->bound.kernel == k && v->bound.n == k->n_binding;
    reserve_infos(v, k->n_binding);
    for (u32 i = 0; i < k->n_binding; i++) {
        VkDescriptorBufferInfo x = i < c->l->n_buf ? describe(&c->l->buf[i]) : *param;
        VkDescriptorBufferInfo *was = &v->bound.info[i];
        same = same && was->buffer == x.buffer && was->offset == x.offset && was->range == x.range;
        *was = x;
    }
    v->bound.n = k->n_binding;
    return same;
}

static bool make_set(struct vulkan *v, struct vulkan_batch *b, const struct dev_kernel *k,
                     struct err *e)
{
    VkDescriptorSetAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                        .descriptorPool = b->pool,
                                        .descriptorSetCount = 1,
                                        .pSetLayouts = &k->set_layout};
    v->bound.kernel = NULL;
    if (!vulkan_ok(v, v->vk.AllocateDescriptorSets(v->device, &info, &v->bound.set),
                   "vkAllocateDescriptorSets", e))
        return false;
    b->n_set++;
    b->n_descriptor += k->n_binding;
    v->bound.kernel = k;
    struct arena a = {0};
    VkWriteDescriptorSet *w = arena_array(&a, VkWriteDescriptorSet, k->n_binding + 1);
    for (u32 i = 0; i < k->n_binding; i++)
        w[i] = (VkWriteDescriptorSet){.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                      .dstSet = v->bound.set,
                                      .dstBinding = i,
                                      .descriptorCount = 1,
                                      .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                      .pBufferInfo = &v->bound.info[i]};
    v->vk.UpdateDescriptorSets(v->device, k->n_binding, w, 0, NULL);
    arena_release(&a);
    return true;
}

/* Binds buffers, and the block of parameters where it lies in memory. */
static struct vulkan_batch *bind(struct call *c, struct err *e)
{
    struct vulkan *v = c->v;
    const struct dev_kernel *k = c->l->kernel;
    VkDescriptorBufferInfo param = {0};
    i64 at, n = 4 * (c->l->n_param + N_BASE);
    if (!c->by_push) {
        void *p = vulkan_stage(v, n, &at, e);
        if (!p) return NULL;
        memcpy(p, c->block, (size_t)n);
        param = (VkDescriptorBufferInfo){v->stage.buffer, (VkDeviceSize)at,
                                         (VkDeviceSize)round_up(n, 16)};
    }
    struct vulkan_batch *b = vulkan_record(v, i64_max(k->n_binding, 1), e);
    if (!b || (!same_as_bound(c, &param) && !make_set(v, b, k, e))) return NULL;
    v->vk.CmdBindDescriptorSets(b->cmd, VK_PIPELINE_BIND_POINT_COMPUTE, k->layout, 0, 1,
                                &v->bound.set, 0, NULL);
    return b;
}

/* Dispatches. */

static bool put_piece(struct call *c, u32 grid, const i64 base[3], struct err *e)
{
    struct vulkan *v = c->v;
    const struct dev_kernel *k = c->l->kernel;
    const u32 *most = v->facts.prop.core.properties.limits.maxComputeWorkGroupCount;
    u32 n[3];
    for (int d = 0; d < 3; d++) {
        c->block[c->l->n_param + (u32)d] = (u32)base[d];
        n[d] = (u32)i64_min(c->l->grid[grid][d] - base[d], most[d]);
    }
    struct vulkan_batch *b = bind(c, e);
    if (!b) return false;
    vulkan_start_clock(v);
    v->vk.CmdBindPipeline(b->cmd, VK_PIPELINE_BIND_POINT_COMPUTE, k->pipeline[grid]);
    if (k->push_bytes)
        v->vk.CmdPushConstants(b->cmd, k->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, k->push_bytes,
                               c->block);
    v->vk.CmdDispatch(b->cmd, n[0], n[1], n[2]);
    return true;
}

static bool put_grid(struct call *c, u32 grid, struct err *e)
{
    const i64 *extent = c->l->grid[grid];
    const u32 *most = c->v->facts.prop.core.properties.limits.maxComputeWorkGroupCount;
    if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0) return true;
    if (!vulkan_record(c->v, 0, e)) return false;
    vulkan_barrier(c->v, VULKAN_COMPUTE);
    i64 at[3];
    for (at[2] = 0; at[2] < extent[2]; at[2] += most[2])
        for (at[1] = 0; at[1] < extent[1]; at[1] += most[1])
            for (at[0] = 0; at[0] < extent[0]; at[0] += most[0])
                if (!put_piece(c, grid, at, e)) return false;
    return true;
}

bool vulkan_launch(struct vulkan *v, const struct dev_launch *l, struct err *e)
{
    struct arena a = {0};
    struct call c = {.v = v, .l = l};
    c.block = arena_array(&a, u32, l->n_param + N_BASE);
    bool ok = check_form(&c, e) && check_buffers(&c, e) && check_params(&c, e) && check_grids(&c, e);
    for (u32 i = 0; i < l->n_param && ok; i++) c.block[i] = (u32)(i32)l->param[i];
    for (u32 g = 0; g < l->n_grid && ok; g++) ok = put_grid(&c, g, e);
    arena_release(&a);
    return ok;
}
