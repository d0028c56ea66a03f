// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_share.c: a device shared with other users of the vendor's library in this process: their current context, their memory, their
// streams. The driver's own stream does not synchronise with the default stream, so events order both directions. doc/device-cuda.md
#include "dev/dev_cuda.h"

enum { INVALID_VALUE = 1, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 }; /* a result; attributes of pointers: the same in both */

/* A driver that was not initialised lists no devices; HIP initialises itself when first queried. */
bool cuda_in_use(const struct cuda_api *api)
{
    struct cuda c = {.api = api};
    i32 n = 0;
    if (!dev_library_loaded(&api->library)) return false;
    if (api->has_gfx) return true;
    struct err e = {0};
    c.lib = dev_library_open(&api->library, &c.cu, &e);
    bool is_in_use = c.lib && c.cu.DeviceGetCount(&n) == 0;
    if (c.lib) os_dlclose(c.lib);
    return is_in_use;
}

bool cuda_enter(struct cuda *c, struct err *e)
{
    if (c->is_lost)
        return err_set(e, ERR_SYSTEM, "'%s' was lost by an earlier failure, a new process has to open it again", c->facts.name);
    if (c->api->has_gfx)
        return cuda_ok(c, c->cu.GetDevice(&c->outer_device), "GetDevice", e) && cuda_ok(c, c->cu.SetDevice(c->device), "SetDevice", e);
    return cuda_ok(c, c->cu.CtxGetCurrent(&c->outer), "CtxGetCurrent", e) &&
           cuda_ok(c, c->cu.CtxSetCurrent(c->context), "CtxSetCurrent", e);
}

bool cuda_leave(struct cuda *c, bool ok)
{
    if (c->api->has_gfx) c->cu.SetDevice(c->outer_device);
    else c->cu.CtxSetCurrent(c->outer);
    return ok;
}

struct range { /* an allocation, or a part of memory that is mapped by parts */
    i32 device;
    u64 start;
    size_t n;
};

static i32 find_range(struct cuda *c, u64 at, struct range *r)
{
    i32 s = c->cu.PointerGetAttribute(&r->device, DEVICE_ORDINAL, at);
    if (s == 0) s = c->cu.PointerGetAttribute(&r->start, RANGE_START, at);
    return s ? s : c->cu.PointerGetAttribute(&r->n, RANGE_SIZE, at);
}

/* Whether the device's memory goes on at the end of a range, and to where: PyTorch's expandable segments are mapped by parts. */
static bool goes_on(struct cuda *c, u64 *end)
{
    struct range r = {.device = -1};
    if (find_range(c, *end, &r) || r.device != c->device || r.start > *end || r.start + r.n <= *end) return false;
    *end = r.start + r.n;
    return true;
}

bool cuda_check_pointer(struct cuda *c, u64 at, i64 size, struct err *e)
{
    struct range r = {.device = -1};
    i32 s = find_range(c, at, &r);
    if (s == INVALID_VALUE)
        return err_set(e, ERR_USAGE, "address 0x%llx is in no memory that %s knows, expected memory of '%s'", (unsigned long long)at, c->api->what,
                       c->facts.name);
    if (!cuda_ok(c, s, "PointerGetAttribute", e)) return false;
    if (r.device != c->device)
        return err_set(e, ERR_USAGE, "address 0x%llx is in memory of device %d, expected device %d, '%s'", (unsigned long long)at, r.device,
                       c->device, c->facts.name);
    u64 end = r.start + r.n;
    while (at >= r.start && end - at < (u64)size && goes_on(c, &end)) {}
    if (at >= r.start && end - at >= (u64)size) return true;
    return err_set(e, ERR_USAGE, "%lld bytes from address 0x%llx on reach beyond its allocation, %llu bytes from 0x%llx on", (long long)size,
                   (unsigned long long)at, (unsigned long long)(end - r.start), (unsigned long long)r.start);
}

static bool put_behind(struct cuda *c, void *later, void *earlier, struct err *e)
{
    return cuda_ok(c, c->cu.EventRecord(c->order, earlier), "EventRecord", e) &&
           cuda_ok(c, c->cu.StreamWaitEvent(later, c->order, 0), "StreamWaitEvent", e);
}

bool cuda_follow(struct cuda *c, void *stream, struct err *e) { return put_behind(c, c->stream, stream, e); }

bool cuda_lead(struct cuda *c, void *stream, struct err *e) { return put_behind(c, stream, c->stream, e); }
