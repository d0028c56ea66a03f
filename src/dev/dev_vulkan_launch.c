// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_launch.c: the commands of a launch. Every grid of a kernel is one dispatch, or several
// where an extent is beyond the device's limit: kernels add the base of the piece that they are part
// of to the number of their group. The block of parameters is n_param + 3 numbers of 32 bits, the
// last three being that base; it travels as push constants where it fits, else in memory, bound
// behind the buffers. A kernel without the base is taken as long as its grids need no pieces, and
// one that reads no parameter declares none.
#include "dev/dev_vulkan.h"

#include <string.h>

enum { N_BASE = 3, MAX_PIECES = 1 << 16 };

struct call { /* one launch on its way */
    struct vulkan *v;
    const struct dev_launch *l;
    u32 *block;                   /* parameters and base */
    VkDescriptorBufferInfo *info; /* per binding */
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

/* Buffers. */

static VkDescriptorBufferInfo describe(const struct dev_mem *m)
{
    /* to the next 16 bytes: kernels read words of several elements, and ranges of 0 do not exist */
    return (VkDescriptorBufferInfo){.buffer = vulkan_block_of(m)->buffer,
                                    .offset = (VkDeviceSize)m->offset,
                                    .range = (VkDeviceSize)round_up(i64_max(m->size, 1), 16)};
}

/* Binds buffers, and the block of parameters where it lies in memory. */
static struct vulkan_commands *bind(struct call *c, struct err *e)
{
    struct vulkan *v = c->v;
    const struct dev_kernel *k = c->l->kernel;
    i64 at, n = 4 * (c->l->n_param + N_BASE);
    if (!c->by_push) {
        void *p = vulkan_stage(v, n, &at, e);
        if (!p) return NULL;
        memcpy(p, c->block, (size_t)n);
        c->info[c->l->n_buf] = (VkDescriptorBufferInfo){v->stage.buffer, (VkDeviceSize)at,
                                                        (VkDeviceSize)round_up(n, 16)};
    }
    struct vulkan_commands *to = vulkan_open_batch(v, i64_max(k->n_binding, 1), e);
    if (to) vulkan_put_bind(to, k, c->info);
    return to;
}

/* Dispatches. */

static bool put_piece(struct call *c, u32 grid, const i64 base[3], struct err *e)
{
    const u32 *most = c->v->facts.prop.core.properties.limits.maxComputeWorkGroupCount;
    u32 n[3];
    for (int d = 0; d < 3; d++) {
        c->block[c->l->n_param + (u32)d] = (u32)base[d];
        n[d] = (u32)i64_min(c->l->grid[grid][d] - base[d], most[d]);
    }
    struct vulkan_commands *to = bind(c, e);
    if (!to) return false;
    if (!to->is_timed) vulkan_put_stamp(to);
    vulkan_put_dispatch(to, c->l->kernel, grid, n, c->block);
    return true;
}

static bool put_grid(struct call *c, u32 grid, struct err *e)
{
    const i64 *extent = c->l->grid[grid];
    const u32 *most = c->v->facts.prop.core.properties.limits.maxComputeWorkGroupCount;
    if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0) return true;
    struct vulkan_commands *to = vulkan_open_batch(c->v, 0, e);
    if (!to) return false;
    vulkan_put_barrier(to, VULKAN_COMPUTE);
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
    c.info = arena_array(&a, VkDescriptorBufferInfo, l->n_buf + 1);
    for (u32 i = 0; i < l->n_buf && ok; i++) c.info[i] = describe(&l->buf[i]);
    for (u32 i = 0; i < l->n_param && ok; i++) c.block[i] = (u32)(i32)l->param[i];
    for (u32 g = 0; g < l->n_grid && ok; g++) ok = put_grid(&c, g, e);
    arena_release(&a);
    return ok;
}
