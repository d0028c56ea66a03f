// SPDX-License-Identifier: Apache-2.0
//
// Loops and branches: dispatches that run other plans. Carried values are double-buffered, and the first iteration reads them in
// place; read-only values are read in place; outputs of iterations are written into their slots of the stacked result. All data stays
// on the device. The host waits only for conditions that an iteration computes, data-dependent sizes, and memory that must grow.
#include "rt/rt_private.h"

#include <string.h>

struct call {
    const struct plan_call *c;
    struct dev *dev;
    bool shares_host;
    struct rt_program *sub[2];
    const struct inner_program *inner;
    struct dev_mem cond;
    struct dev_mem *carry[2]; /* per carried value */
    struct dev_mem *result;   /* per result without memory of its own */
    struct dev_mem *slice;    /* per result: output of an iteration whose slot has no address usable by kernels */
};

/* One run. */
struct run {
    struct call *x;
    const struct call_job *j;
    i64 iteration, most;
    struct tensor *in, *out;   /* tensor heads of an iteration's inputs and outputs */
    struct dev_mem *now;       /* memory of its inputs */
    i64 *bytes;                /* per result: bytes of an iteration, -1: unknown */
    bool *is_apart;            /* per result: copied into its slot after the iteration */
};

static const i64 least = 64; /* bytes: empty memory has an address, too */

static void give_back(struct call *x, struct dev_mem *m)
{
    if (m->size) x->dev->driver->release(x->dev, m);
    *m = (struct dev_mem){0};
}

static u32 n_carried(const struct call *x) { return x->c->n_carried; }

void call_unload(struct call *x)
{
    if (!x) return;
    const struct plan_call *c = x->c;
    for (u32 b = 0; b < c->n_sub; b++) x->inner->unload(x->sub[b]);
    give_back(x, &x->cond);
    for (u32 k = 0; k < n_carried(x); k++)
        for (u32 i = 0; i < 2; i++) give_back(x, &x->carry[i][k]);
    for (u32 k = 0; k < c->n_out; k++) give_back(x, &x->result[k]), give_back(x, &x->slice[k]);
    for (u32 i = 0; i < 2; i++) mem_free(x->carry[i]);
    mem_free(x->result);
    mem_free(x->slice);
    mem_free(x);
}

struct call *call_load(const struct plan_call *c, const struct inner_program *inner, struct dev *d, struct err *e)
{
    struct call *x = mem_alloc((i64)sizeof *x);
    x->c = c, x->inner = inner, x->dev = d;
    for (u32 i = 0; i < 2; i++) x->carry[i] = mem_alloc((i64)sizeof(struct dev_mem) * (c->n_carried + 1));
    x->result = mem_alloc((i64)sizeof(struct dev_mem) * (c->n_out + 1));
    x->slice = mem_alloc((i64)sizeof(struct dev_mem) * (c->n_out + 1));
    bool ok = d->driver->alloc(d, least, &x->cond, e);
    x->shares_host = x->cond.host != NULL;
    for (u32 b = 0; b < c->n_sub && ok; b++) ok = (x->sub[b] = inner->load(c->sub[b], d, e)) != NULL;
    if (ok) return x;
    call_unload(x);
    return NULL;
}

i64 call_memory_used(const struct call *x)
{
    i64 sum = 0;
    for (u32 b = 0; b < x->c->n_sub; b++) sum += x->inner->memory_used(x->sub[b]);
    for (u32 k = 0; k < n_carried(x); k++) sum += x->carry[0][k].size + x->carry[1][k].size;
    for (u32 k = 0; k < x->c->n_out; k++) sum += x->result[k].size + x->slice[k].size;
    return sum;
}

/* Memory of at least so many bytes. The first `kept` are preserved. */
static bool reserve(struct call *x, struct dev_mem *m, i64 bytes, i64 kept, struct err *e)
{
    const struct dev_driver *v = x->dev->driver;
    struct dev_mem more;
    if (m->size >= bytes && m->size) return true;
    if (m->size && !v->fence(x->dev, e)) return false; /* the previous iteration may still be using it */
    if (!v->alloc(x->dev, i64_max(bytes, least), &more, e)) return err_prefix(e, "memory of a loop or branch");
    bool ok = !kept || (dev_copy(x->dev, more, *m, kept, e) && v->fence(x->dev, e));
    give_back(x, m);
    *m = more;
    return ok;
}

static struct dev_mem piece(struct dev_mem m, i64 at, i64 size)
{
    if (m.host) m.host = (char *)m.host + at;
    m.offset += at;
    m.size = size;
    return m;
}

static bool read_bool(struct call *x, struct dev_mem m, bool *value, struct err *e)
{
    u8 byte = 0;
    if (m.size < 1) return err_set(e, ERR_INPUT, "a condition is too short");
    if (!x->dev->driver->fence(x->dev, e)) return false;
    if (m.host) byte = *(u8 *)m.host;
    else if (!x->dev->driver->download(x->dev, m, &byte, 1, e)) return false;
    *value = byte != 0;
    return true;
}

/* Output memory of an iteration or a branch. */

static bool too_large(struct err *e) { return err_set(e, ERR_FAILED, "the outputs of a loop exceed their buffers"); }

static bool place_scan(struct run *r, u32 k, i64 bytes, struct dev_mem *m, struct err *e)
{
    struct call *x = r->x;
    struct dev_mem to = r->j->out[k];
    i64 end, at;
    if (r->bytes[k] >= 0 && r->bytes[k] != bytes)
        return err_set(e, ERR_INPUT, "iteration %lld yields %lld bytes for result %u, earlier ones %lld: stacked outputs must have equal sizes",
                       (long long)r->iteration, (long long)bytes, k, (long long)r->bytes[k]);
    r->bytes[k] = bytes;
    if (__builtin_mul_overflow(r->iteration + 1, bytes, &end) || end > INT64_MAX / 8) return too_large(e);
    at = end - bytes;
    if (!r->j->is_placed[k]) {
        i64 all, want = i64_max(end, 2 * x->result[k].size);
        if (!__builtin_mul_overflow(r->most, bytes, &all)) want = i64_max(end, i64_min(want, all));
        if (x->result[k].size < end && !reserve(x, &x->result[k], want, at, e)) return false;
        to = x->result[k];
    }
    if (to.size < end) return too_large(e);
    r->is_apart[k] = !x->shares_host && at % DEV_ALIGN != 0;
    if (r->is_apart[k]) {
        if (!reserve(x, &x->slice[k], bytes, 0, e)) return false;
        *m = piece(x->slice[k], 0, bytes);
    } else {
        *m = piece(to, at, bytes);
    }
    return true;
}

static bool place(void *user, u32 o, i64 bytes, struct dev_mem *m, struct err *e)
{
    struct run *r = user;
    struct call *x = r->x;
    const struct plan_call *c = x->c;
    if (c->is_conditional && o == 0) {
        *m = piece(x->cond, 0, 1);
        return bytes == 1 || too_large(e);
    }
    u32 k = o - c->is_conditional;
    if (k < c->n_carried) {
        struct dev_mem *to = &x->carry[r->iteration & 1][k];
        if (!reserve(x, to, bytes, 0, e)) return false;
        *m = piece(*to, 0, bytes);
        return true;
    }
    if (c->is_loop) return place_scan(r, k, bytes, m, e);
    if (r->j->is_placed[k] && r->j->out[k].size < bytes) return too_large(e);
    if (!r->j->is_placed[k] && !reserve(x, &x->result[k], bytes, 0, e)) return false;
    *m = piece(r->j->is_placed[k] ? r->j->out[k] : x->result[k], 0, bytes);
    r->bytes[k] = bytes;
    return true;
}

static bool copy_slices(struct run *r, struct err *e)
{
    const struct plan_call *c = r->x->c;
    for (u32 k = c->n_carried; c->is_loop && k < c->n_out; k++) {
        if (!r->is_apart[k]) continue;
        struct dev_mem to = r->j->is_placed[k] ? r->j->out[k] : r->x->result[k];
        if (!dev_copy(r->x->dev, piece(to, r->iteration * r->bytes[k], r->bytes[k]), r->x->slice[k], r->bytes[k], e)) return false;
    }
    return true;
}

/* Iterations. */

static bool run_sub(struct run *r, u32 b, struct arena *a, struct err *e)
{
    const struct plan_call *c = r->x->c;
    assert(b < c->n_sub && r->x->sub[b]);
    i64 *given = arena_array(a, i64, c->n_give[b] + 1);
    for (u32 k = 0; k < c->n_give[b]; k++)
        if (!sym_eval(r->j->sym, c->give[b][k].value, r->j->var, &given[k])) return err_set(e, ERR_FAILED, "a size is not known in a loop or branch");
    struct inner_run x = {.in = r->in, .mem = r->now, .given = given, .place = place, .user = r, .out = r->out};
    return r->x->inner->run(r->x->sub[b], &x, e);
}

static bool carried_bytes(const struct run *r, u32 k, i64 *bytes, struct err *e)
{
    return tensor_size_ok(r->in[k].dtype, r->in[k].rank, r->in[k].dim, bytes) || too_large(e);
}

static bool run_iteration(struct run *r, bool *go, struct err *e)
{
    const struct plan_call *c = r->x->c;
    struct arena a = {0};
    u32 first = c->is_conditional;
    bool ok = run_sub(r, 0, &a, e) && copy_slices(r, e);
    if (ok && c->is_conditional) ok = read_bool(r->x, r->x->cond, go, e);
    for (u32 k = 0; k < c->n_carried && ok; k++) {
        i64 bytes = 0;
        r->in[k] = r->out[first + k];
        r->in[k].data = NULL;
        ok = carried_bytes(r, k, &bytes, e);
        r->now[k] = piece(r->x->carry[r->iteration & 1][k], 0, ok ? bytes : 0);
    }
    arena_release(&a);
    return ok;
}

static bool run_loop(struct run *r, struct err *e)
{
    struct call *x = r->x;
    const struct plan_call *c = x->c;
    bool go = true, ok = c->cond == UINT32_MAX || read_bool(x, r->j->cond, &go, e);
    if (ok && !sym_eval(r->j->sym, c->trip_count, r->j->var, &r->most)) ok = err_set(e, ERR_FAILED, "the number of iterations of a loop is unknown");
    for (; ok && go && r->iteration < r->most; r->iteration++) ok = run_iteration(r, &go, e);
    for (u32 k = 0; k < c->n_carried && ok; k++) {
        i64 bytes = 0;
        ok = carried_bytes(r, k, &bytes, e);
        if (ok && r->iteration == 0) { /* the existing bytes, in memory of its own */
            ok = r->now[k].size >= bytes || too_large(e);
            ok = ok && reserve(x, &x->carry[1][k], bytes, 0, e) && dev_copy(x->dev, x->carry[1][k], r->now[k], bytes, e);
        }
        r->j->held[k] = piece(x->carry[(r->iteration + 1) & 1][k], 0, bytes);
    }
    for (u32 k = c->n_carried; k < c->n_out && ok; k++) {
        if (r->j->is_placed[k]) continue;
        ok = reserve(x, &x->result[k], least, 0, e);
        r->j->held[k] = piece(x->result[k], 0, r->iteration && r->bytes[k] > 0 ? r->iteration * r->bytes[k] : 0);
    }
    return ok;
}

static bool run_branch(struct run *r, struct err *e)
{
    struct arena a = {0};
    bool which = false, ok = read_bool(r->x, r->j->cond, &which, e) && run_sub(r, which, &a, e);
    for (u32 k = 0; k < r->x->c->n_out && ok; k++)
        if (!r->j->is_placed[k]) r->j->held[k] = piece(r->x->result[k], 0, r->bytes[k]);
    arena_release(&a);
    return ok;
}

/* Size of an axis of a result. */
static i64 size_of(const struct run *r, u32 k, u32 axis)
{
    const struct plan_call *c = r->x->c;
    if (!c->is_loop) return r->out[k].dim[axis];
    if (k < c->n_carried) return r->in[k].dim[axis];
    if (axis == 0) return r->iteration;
    return r->iteration ? r->out[k + c->is_conditional].dim[axis - 1] : 0;
}

static bool tell_sizes(struct run *r, struct err *e)
{
    const struct plan_call *c = r->x->c;
    i64 bytes = 8 * (i64)c->n_size;
    if (c->sizes == UINT32_MAX || !c->n_size) return true;
    if (r->j->sizes.size < bytes) return err_set(e, ERR_INPUT, "the buffer for the sizes of a loop or branch is too small");
    i64 *v = mem_alloc(bytes);
    for (u32 k = 0; k < c->n_size; k++) v[k] = size_of(r, c->size[2 * k], c->size[2 * k + 1]);
    bool ok = r->x->dev->driver->fence(r->x->dev, e) && r->x->dev->driver->upload(r->x->dev, r->j->sizes, v, bytes, e);
    mem_free(v);
    return ok;
}

/* Initial sizes of the inputs, as the outer plan states. */
static bool first_inputs(struct run *r, struct err *e)
{
    const struct plan_call *c = r->x->c;
    for (u32 k = 0; k < c->n_in; k++) {
        const struct plan_call_in *in = &c->in[k];
        r->in[k] = (struct tensor){.dtype = c->sub[0]->input.v[k].dtype, .rank = in->rank};
        for (u32 d = 0; d < in->rank; d++)
            if (!sym_eval(r->j->sym, in->dim[d], r->j->var, &r->in[k].dim[d])) return err_set(e, ERR_FAILED, "a size is not known in a loop or branch");
        i64 bytes;
        if (!carried_bytes(r, k, &bytes, e)) return false;
        r->now[k] = r->j->in[k];
    }
    return true;
}

bool call_run(struct call *x, const struct call_job *j, struct err *e)
{
    const struct plan_call *c = x->c;
    struct arena a = {0};
    struct run r = {.x = x, .j = j};
    r.in = arena_array(&a, struct tensor, c->n_in + 1);
    r.out = arena_array(&a, struct tensor, c->n_out + 2);
    r.now = arena_array(&a, struct dev_mem, c->n_in + 1);
    r.bytes = arena_array(&a, i64, c->n_out + 1);
    r.is_apart = arena_array(&a, bool, c->n_out + 1);
    for (u32 k = 0; k < c->n_out; k++) r.bytes[k] = -1;
    bool ok = first_inputs(&r, e) && (c->is_loop ? run_loop(&r, e) : run_branch(&r, e)) && tell_sizes(&r, e);
    arena_release(&a);
    return ok;
}
