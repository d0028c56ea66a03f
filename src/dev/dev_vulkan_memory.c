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

/* A block for this size: of the usual size, else of the required one, at last after releasing empty
   blocks. */
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
