// SPDX-License-Identifier: Apache-2.0
//
// dev_vulkan_launch.c: the commands of a launch. Every grid of a kernel is one dispatch,
// or several if an extent is beyond the device's limit: kernels add the base of the
// launched part to their workgroup id. The block of parameters is n_param + 3 numbers of
// 32 bits, the last three being that base; it is passed as push constants if it fits,
// else in memory, bound after the buffers. A kernel without the base is accepted as long
// as its grids need not be divided, and one that reads no parameter declares none.
#include "dev/dev_vulkan.h"

#include <string.h>

enum { N_BASE = 3 };

struct call { /* a launch in progress */
    struct vulkan *v;
    const struct dev_launch *l;
    u32 *block;                   /* parameters and base */
    VkDescriptorBufferInfo *info; /* per binding */
    bool by_push, has_base, is_borrowed;
};

static const u32 *groups_at_once(const struct call *c)
{
    return c->v->facts.prop.core.properties.limits.maxComputeWorkGroupCount;
}

/* Checks. */

/* Without the base a grid cannot be launched in parts. */
static bool check_whole(const struct call *c, struct err *e)
{
    const u32 *most = groups_at_once(c);
    for (u32 g = 0; g < c->l->n_grid && !c->has_base; g++)
        for (int d = 0; d < 3; d++)
            if (c->l->grid[g][d] > most[d])
                return err_set(e, ERR_UNSUPPORTED, "grid %u has extent %lld, '%s' allows %u", g,
                               (long long)c->l->grid[g][d], vulkan_name(&c->v->facts), most[d]);
    return true;
}

static bool check(const struct call *c, struct err *e)
{
    const struct vulkan_facts *f = &c->v->facts;
    const char *name = vulkan_name(f);
    return dev_check_launch(c->l, c->l->kernel->n_grid, groups_at_once(c), name, e) &&
           dev_check_reach(c->l, f->max_range, name, e) && check_whole(c, e);
}

/* How the kernel receives its parameters, from its declarations. */
static bool check_form(struct call *c, struct err *e)
{
    const struct dev_launch *l = c->l;
    const struct dev_kernel *k = l->kernel;
    u32 plain = 4 * l->n_param, with_base = 4 * (l->n_param + N_BASE);
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
    /* rounded up to 16 bytes: kernels read words of several elements, and a range of 0 is not
       allowed */
    return (VkDescriptorBufferInfo){.buffer = vulkan_block_of(m)->buffer,
                                    .offset = (VkDeviceSize)m->offset,
                                    .range = (VkDeviceSize)round_up(i64_max(m->size, 1), 16)};
}

/* Binds buffers, and the block of parameters if it is in memory. */
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
    if (to) vulkan_put_bind(to, k, c->info), to->is_borrowed |= c->is_borrowed;
    return to;
}

/* Dispatches. */

static bool put_piece(struct call *c, u32 grid, const struct dev_piece *p, struct err *e)
{
    for (int d = 0; d < 3; d++) c->block[c->l->n_param + (u32)d] = (u32)p->base[d];
    struct vulkan_commands *to = bind(c, e);
    if (!to) return false;
    if (!to->is_timed) vulkan_put_stamp(to);
    vulkan_put_dispatch(to, c->l->kernel, grid, p->n, c->block);
    return true;
}

static bool put_grid(struct call *c, u32 grid, struct err *e)
{
    struct dev_piece p = {0};
    while (dev_next_piece(&p, c->l->grid[grid], groups_at_once(c))) {
        bool is_first = !p.base[0] && !p.base[1] && !p.base[2];
        struct vulkan_commands *to = is_first ? vulkan_open_batch(c->v, 0, e) : NULL;
        if (is_first && !to) return false;
        if (is_first) vulkan_put_barrier(to, VULKAN_COMPUTE);
        if (!put_piece(c, grid, &p, e)) return false;
    }
    return true;
}

bool vulkan_launch(struct vulkan *v, const struct dev_launch *l, struct err *e)
{
    struct arena a = {0};
    struct call c = {.v = v, .l = l};
    c.block = arena_array(&a, u32, l->n_param + N_BASE);
    bool ok = check_form(&c, e) && check(&c, e);
    c.info = arena_array(&a, VkDescriptorBufferInfo, l->n_buf + 1);
    for (u32 i = 0; i < l->n_buf && ok; i++)
        c.info[i] = describe(&l->buf[i]), c.is_borrowed |= vulkan_block_of(&l->buf[i])->is_borrowed;
    for (u32 i = 0; i < l->n_param && ok; i++) c.block[i] = (u32)(i32)l->param[i];
    for (u32 g = 0; g < l->n_grid && ok; g++) ok = put_grid(&c, g, e);
    arena_release(&a);
    return ok;
}
