// SPDX-License-Identifier: Apache-2.0
//
// Inputs and outputs of a program's run: their sizes in memory, where kernels find them, copies to and from devices with memory of their
// own, and states, which are inputs in the memory of outputs.
#include "rt/rt_program.h"

#include <string.h>

/* The state that the k-th input, or output, belongs to; NULL: none. */
static const struct plan_state *state_of(const struct plan *p, u32 k, bool is_input)
{
    for (u32 i = 0; i < p->state.n; i++)
        if ((is_input ? p->state.v[i].input : p->state.v[i].output) == k) return &p->state.v[i];
    return NULL;
}

static bool output_fails(const struct rt_program *r, const struct plan_io *io, u32 d, struct err *e)
{
    const struct symtab *t = &r->plan->sym;
    struct buf b = {0};
    i64 v;
    sym_print_vars(&b, t, io->dim[d], 0, r->bound.var);
    buf_printf(&b, ", but output '%.*s' needs its axis %u, ", STR_ARG(io->name), d);
    sym_print(&b, t, io->dim[d]);
    if (sym_eval(t, io->dim[d], r->bound.var, &v)) buf_printf(&b, " (%lld)", (long long)v);
    err_set(e, ERR_INPUT, "%.*s, to be at least 0", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

/* Bytes of an interface value in its buffer, which has the unused rows of a state, too. */
static bool io_bytes(const struct rt_program *r, const struct plan_state *s, const struct tensor *t, i64 *bytes)
{
    i64 dim[MAX_RANK], room;
    if (!s || s->axis == PLAN_NO_AXIS) return tensor_size_ok(t->dtype, t->rank, t->dim, bytes);
    memcpy(dim, t->dim, sizeof dim);
    room = r->bound.var[s->room];
    return room >= 0 && !__builtin_add_overflow(dim[s->axis], room, &dim[s->axis]) && tensor_size_ok(t->dtype, t->rank, dim, bytes);
}

/* Sizes that depend on data and are not known yet are -1. */
bool io_output_dims(const struct rt_program *r, u32 k, struct tensor *out, struct err *e)
{
    const struct plan *p = r->plan;
    const struct plan_io *io = &p->output.v[k];
    bool known = true;
    out->dtype = io->dtype;
    out->rank = io->rank;
    i64 bytes;
    for (u32 d = 0; d < io->rank; d++) {
        bool is_there = sym_eval(&p->sym, io->dim[d], r->bound.var, &out->dim[d]);
        if (is_there ? out->dim[d] < 0 : !r->is_made[k]) return output_fails(r, io, d, e);
        if (!is_there) out->dim[d] = -1, known = false;
    }
    if (known && (!io_bytes(r, state_of(p, k, false), out, &bytes) ||
                  bytes != r->bound.buf_size[io->buf]))
        return err_set(e, ERR_FAILED, "output '%.*s' is too large for these inputs", STR_ARG(io->name));
    return true;
}

/* The input's rows are the first ones of the output's. */
static bool check_state(const struct rt_program *r, const struct plan_state *s, const struct tensor *in, struct err *e)
{
    const struct plan *p = r->plan;
    const struct plan_io *io = &p->output.v[s->output];
    struct tensor out = {.dtype = in->dtype, .rank = in->rank};
    i64 bytes;
    bool ok = true;
    for (u32 d = 0; d < in->rank && ok; d++)
        ok = sym_eval(&p->sym, io->dim[d], r->bound.var, &out.dim[d]) && (d == s->axis ? in->dim[d] >= 0 && in->dim[d] <= out.dim[d] : in->dim[d] == out.dim[d]);
    ok = ok && io_bytes(r, s, &out, &bytes) && bytes == r->bound.buf_size[io->buf];
    return ok || err_set(e, ERR_FAILED, "input '%.*s' does not fit into the buffer of output '%.*s'", STR_ARG(p->input.v[s->input].name), STR_ARG(io->name));
}

/* Kernels read whole buffers: an input must be as long as its buffer, whatever the plan claims. */
bool io_check_inputs(const struct rt_program *r, const struct tensor *in, struct err *e)
{
    const struct plan *p = r->plan;
    for (u32 k = 0; k < p->input.n; k++) {
        const struct plan_state *s = state_of(p, k, true);
        i64 bytes;
        if (s && !check_state(r, s, &in[k], e)) return false;
        if (s) continue;
        if (!tensor_size_ok(in[k].dtype, in[k].rank, in[k].dim, &bytes) ||
            bytes != r->bound.buf_size[p->input.v[k].buf])
            return err_set(e, ERR_FAILED, "input '%.*s' does not have the size of its buffer",
                           STR_ARG(p->input.v[k].name));
    }
    return true;
}

/* The memory of an input or output in host memory as seen by kernels: in place, or a copy. */
static bool place(struct rt_program *r, const struct plan_io *io, void *data, struct err *e)
{
    u32 k = io->buf;
    i64 size = r->bound.buf_size[k];
    if (r->pin[k].size) {
        if (r->pin[k].size < size) return err_set(e, ERR_FAILED, "'%.*s' has %lld bytes, more than its state", STR_ARG(io->name), (long long)size);
        r->io[k] = r->pin[k], r->io[k].size = size;
        return true;
    }
    i64 least = i64_max(size, 1);
    if (!r->shares_host && r->mem[k].size < least) {
        if (r->mem[k].size) r->dev->driver->release(r->dev, &r->mem[k]);
        r->mem[k] = (struct dev_mem){0};
        if (!r->dev->driver->alloc(r->dev, r->is_pinned ? least + least / 2 : least, &r->mem[k], e)) return err_prefix(e, "'%.*s'", STR_ARG(io->name));
    }
    r->io[k] = r->shares_host ? (struct dev_mem){.host = data, .size = size} : r->mem[k];
    if (!r->shares_host) r->io[k].size = least;
    return true;
}

bool io_place_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
{
    bool ok = true;
    for (u32 k = 0; k < r->plan->input.n && ok; k++)
        if (!state_of(r->plan, k, true)) ok = place(r, &r->plan->input.v[k], in[k].data, e); /* else with its output */
    return ok;
}

/* Copies the rows of a state's input to its output's buffer. */
static bool fill_state(struct rt_program *r, const struct plan_state *s, const struct tensor *in, struct err *e)
{
    const struct plan_io *io = &r->plan->output.v[s->output];
    struct dev_mem to = r->io[io->buf];
    i64 runs = s->axis == PLAN_NO_AXIS ? 1 : i64_product(s->axis, in->dim), bytes = tensor_bytes(in), n, step;
    if (!bytes) return true;
    n = bytes / runs, step = to.size / runs;
    for (i64 i = 0; i < runs; i++) {
        struct dev_mem at = {.host = to.host ? (char *)to.host + i * step : NULL, .handle = to.handle, .offset = to.offset + i * step, .size = n};
        const char *from = (const char *)in->data + i * n;
        if (at.host) memmove(at.host, from, (size_t)n);
        else if (!r->dev->driver->upload(r->dev, at, from, n, e)) return false;
    }
    return true;
}

/* Of runs without a state: those that were placed with phase i. */
bool io_fill_states(struct rt_program *r, u32 i, const struct tensor *in, struct err *e)
{
    bool ok = true;
    for (u32 k = 0; k < r->plan->state.n && ok; k++) {
        const struct plan_state *s = &r->plan->state.v[k];
        u32 buf = r->plan->input.v[s->input].buf;
        if (!r->pin[buf].size && r->phase_of[buf] == i) ok = fill_state(r, s, &in[s->input], e);
    }
    return ok;
}

/* room: bytes of the caller's memory, if it is given for a data-dependent size. */
static bool place_output(struct rt_program *r, u32 k, struct tensor *out, i64 room, struct arena *a, struct err *e)
{
    const struct plan_io *io = &r->plan->output.v[k];
    if (!io_output_dims(r, k, out, e)) return false;
    i64 size = r->bound.buf_size[io->buf];
    if (size < 0) return err_set(e, ERR_FAILED, "size of output '%.*s' cannot be computed", STR_ARG(io->name));
    if (r->inner) return r->inner->place(r->inner->user, k, size, &r->io[io->buf], e);
    if (r->pin[io->buf].size) return place(r, io, NULL, e);
    if (out->data && r->is_made[k] && size > room)
        return err_set(e, ERR_INPUT, "output '%.*s' has %lld bytes for this input, but its buffer has %lld", STR_ARG(io->name),
                       (long long)size, (long long)room);
    if (!out->data) out->data = arena_try(a, i64_max(size, 1), e, "output '%.*s'", STR_ARG(io->name));
    if (!out->data) return false;
    return place(r, io, out->data, e);
}

/* Outputs whose sizes are known from phase i on. */
bool io_place_outputs(struct rt_program *r, u32 i, struct tensor *out, const i64 *room, struct arena *a, struct err *e)
{
    bool ok = true;
    for (u32 k = 0; k < r->plan->output.n && ok; k++)
        if (r->phase_of[r->plan->output.v[k].buf] == i) ok = place_output(r, k, &out[k], room[k], a, e);
    return ok;
}

bool io_move_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
{
    if (r->shares_host) return true;
    for (u32 k = 0; k < r->plan->input.n; k++) {
        u32 b = r->plan->input.v[k].buf;
        if (r->pin[b].size || state_of(r->plan, k, true)) continue;
        if (!r->dev->driver->upload(r->dev, r->mem[b], in[k].data, r->bound.buf_size[b], e))
            return false;
    }
    return true;
}

bool io_move_outputs(struct rt_program *r, struct tensor *out, struct err *e)
{
    if (r->shares_host) return true;
    for (u32 k = 0; k < r->plan->output.n; k++) {
        u32 b = r->plan->output.v[k].buf;
        if (r->pin[b].size) continue;
        if (!r->dev->driver->download(r->dev, r->mem[b], out[k].data, r->bound.buf_size[b], e))
            return false;
    }
    return true;
}

static bool borrow(struct rt_program *r, const struct plan_io *io, const void *data, const char *what, struct err *e)
{
    i64 size = r->bound.buf_size[io->buf];
    return r->dev->driver->borrow(r->dev, data, size, &r->io[io->buf], e) || err_prefix(e, "%s '%.*s'", what, STR_ARG(io->name));
}

bool io_borrow(struct rt_program *r, const struct tensor *in, const struct tensor *out, struct err *e)
{
    const struct plan *p = r->plan;
    bool ok = true;
    for (u32 k = 0; k < p->input.n && ok; k++) ok = borrow(r, &p->input.v[k], in[k].data, "input", e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = borrow(r, &p->output.v[k], out[k].data, "output", e);
    return ok;
}

