// SPDX-License-Identifier: Apache-2.0
//
// dev_opencl_memory.c: device memory. Every allocation is a buffer of OpenCL. Kernels take
// memory objects, not addresses, so a range used by a launch becomes a sub-buffer; it is
// kept with its buffer, because sessions and the tuner launch on the same ranges repeatedly.
#include "dev/dev_opencl.h"

#include <string.h>

enum { MAX_PARTS = 4096 }; /* per buffer; beyond that all are released */

struct part {
    i64 at, size;
    struct opencl_object object;
};

struct opencl_buffer {
    struct opencl_buffer *next;
    i64 size;
    struct opencl_object whole;
    struct part *part;
    u32 n_part, cap_part;
};

static struct opencl_buffer *buffer_of(const struct dev_mem *m)
{
    return (struct opencl_buffer *)(uintptr_t)m->handle;
}

/* Enqueued launches keep their memory objects alive. */
static void drop_parts(struct opencl *o, struct opencl_buffer *b)
{
    for (u32 i = 0; i < b->n_part; i++) o->cl.ReleaseMemObject(b->part[i].object.mem);
    b->n_part = 0;
}

static void destroy(struct opencl *o, struct opencl_buffer *b)
{
    drop_parts(o, b);
    if (b->whole.mem) o->cl.ReleaseMemObject(b->whole.mem);
    mem_free(b->part);
    mem_free(b);
}

static bool make(struct opencl *o, struct opencl_buffer *b, struct err *e)
{
    static const u8 zero = 0;
    i32 r = CL_SUCCESS;
    b->whole.mem = o->cl.CreateBuffer(o->context, CL_MEM_READ_WRITE, (size_t)b->size, NULL, &r);
    b->whole.serial = ++o->serial;
    if (r < 0) b->whole.mem = NULL;
    if (!opencl_ok(o, r, "clCreateBuffer", e)) return false;
    r = o->cl.EnqueueFillBuffer(o->queue, b->whole.mem, &zero, 1, 0, (size_t)b->size, 0, NULL, NULL);
    return opencl_ok(o, r, "clEnqueueFillBuffer", e);
}

bool opencl_alloc(struct opencl *o, i64 size, struct dev_mem *m, struct err *e)
{
    *m = (struct dev_mem){0};
    if (size < 0 || (u64)size > o->facts.max_alloc)
        return err_set(e, ERR_UNSUPPORTED, "cannot allocate %lld bytes on '%s': at most %llu in one piece",
                       (long long)size, o->facts.name, (unsigned long long)o->facts.max_alloc);
    struct opencl_buffer *b = mem_alloc((i64)sizeof *b);
    b->size = i64_min(round_up(i64_max(size, 1), 64), (i64)o->facts.max_alloc);
    if (!make(o, b, e)) {
        destroy(o, b);
        return err_prefix(e, "cannot allocate %lld bytes", (long long)size);
    }
    b->next = o->buffers;
    o->buffers = b;
    *m = (struct dev_mem){.handle = (u64)(uintptr_t)b, .size = size};
    return true;
}

void opencl_release(struct opencl *o, struct dev_mem *m)
{
    struct opencl_buffer *b = buffer_of(m);
    for (struct opencl_buffer **at = &o->buffers; b && *at; at = &(*at)->next) {
        if (*at != b) continue;
        *at = b->next;
        destroy(o, b);
        break;
    }
    *m = (struct dev_mem){0};
}

void opencl_memory_destroy(struct opencl *o)
{
    while (o->buffers) {
        struct opencl_buffer *b = o->buffers;
        o->buffers = b->next;
        destroy(o, b);
    }
}

static bool is_inside(const struct dev_mem *m, i64 n)
{
    const struct opencl_buffer *b = buffer_of(m);
    return b && n >= 0 && m->offset >= 0 && n <= b->size && m->offset <= b->size - n;
}

bool opencl_upload(struct opencl *o, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    if (n == 0) return true;
    assert(is_inside(&m, n));
    i32 r = o->cl.EnqueueWriteBuffer(o->queue, buffer_of(&m)->whole.mem, 1, (size_t)m.offset,
                                     (size_t)n, p, 0, NULL, NULL);
    return opencl_ok(o, r, "clEnqueueWriteBuffer", e);
}

bool opencl_download(struct opencl *o, struct dev_mem m, void *p, i64 n, struct err *e)
{
    if (n == 0) return true;
    assert(is_inside(&m, n));
    i32 r = o->cl.EnqueueReadBuffer(o->queue, buffer_of(&m)->whole.mem, 1, (size_t)m.offset,
                                    (size_t)n, p, 0, NULL, NULL);
    return opencl_ok(o, r, "clEnqueueReadBuffer", e);
}

/* Parts. */

static struct part *push_part(struct opencl_buffer *b)
{
    if (b->n_part == b->cap_part) {
        u32 cap = b->cap_part ? 2 * b->cap_part : 16;
        struct part *more = mem_alloc((i64)sizeof *more * cap);
        if (b->n_part) memcpy(more, b->part, sizeof *more * b->n_part);
        mem_free(b->part);
        b->part = more, b->cap_part = cap;
    }
    return &b->part[b->n_part++];
}

static bool make_part(struct opencl *o, struct opencl_buffer *b, i64 at, i64 size, struct err *e)
{
    const struct {
        size_t at, size;
    } region = {(size_t)at, (size_t)size};
    i32 r = CL_SUCCESS;
    cl_mem mem = o->cl.CreateSubBuffer(b->whole.mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                       &region, &r);
    if (!opencl_ok(o, r, "clCreateSubBuffer", e)) return false;
    *push_part(b) = (struct part){at, size, {mem, ++o->serial}};
    return true;
}

void opencl_spare_parts(struct opencl *o, const struct dev_launch *l)
{
    for (u32 i = 0; i < l->n_buf; i++) {
        struct opencl_buffer *b = buffer_of(&l->buf[i]);
        if (b && b->n_part + l->n_buf > MAX_PARTS) drop_parts(o, b);
    }
}

bool opencl_piece(struct opencl *o, const struct dev_mem *m, struct opencl_object *x, struct err *e)
{
    struct opencl_buffer *b = buffer_of(m);
    if (!is_inside(m, m->size)) return err_set(e, ERR_USAGE, "a launch uses memory that was not allocated");
    if (m->offset % i64_max(o->facts.align, 1))
        return err_set(e, ERR_USAGE, "memory for '%s' begins at %lld, not a multiple of %u", o->facts.name,
                       (long long)m->offset, o->facts.align);
    /* rounded up to 16 bytes: kernels read words of several elements, and a size of 0 is not
       allowed */
    i64 size = i64_min(round_up(i64_max(m->size, 1), 16), b->size - m->offset);
    if (size == 0 || size == b->size) { /* empty at the very end, or the whole buffer */
        *x = b->whole;
        return true;
    }
    for (u32 i = 0; i < b->n_part; i++)
        if (b->part[i].at == m->offset && b->part[i].size == size) {
            *x = b->part[i].object;
            return true;
        }
    if (!make_part(o, b, m->offset, size, e)) return false;
    *x = b->part[b->n_part - 1].object;
    return true;
}
