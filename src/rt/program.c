// SPDX-License-Identifier: Apache-2.0
//
// Loading and running plans. Sizes are bound from the inputs' shapes at each run; memory and kernel
// parameters are worked out again only when they change. On a device that shares the host's memory
// inputs and outputs are used in place; on others they are where the program has copies of them, or
// in the device's memory already.
#include "rt/rt.h"

struct bound { /* all that follows from the sizes */
    struct arena arena;
    i64 *var; /* NULL: nothing bound yet */
    struct rt_memory mem;
    i64 *buf_size;             /* per buffer, bytes */
    struct dev_launch *launch; /* per dispatch; buf filled at each run */
    struct dev_mem **slot;     /* per dispatch: its buffers */
};

struct rt_program {
    struct arena arena;
    const struct plan *plan;
    struct dev *dev;
    bool shares_host;
    struct dev_kernel **kernel; /* per dispatch */
    struct dev_mem
        *mem; /* per buffer: constants, and copies of inputs and outputs on devices with memory of their own */
    struct dev_mem *io; /* per buffer: where inputs and outputs lie in this run */
    struct dev_mem block; /* temporaries */
    u32 n_lost;           /* of the device, when the constants were uploaded */
    struct bound bound;
    bool profiling;
    double *seconds, *flops, *bytes; /* per dispatch, see struct rt_times */
    double last;                     /* seconds of the last run */
};

/* loading */

static bool load_kernels(struct rt_program *r, struct err *e)
{
    const struct plan *p = r->plan;
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        const struct plan_bin *b = &p->bin.v[d->bin];
        if (!str_is(b->lang, r->dev->driver->lang))
            return err_set(e, ERR_UNSUPPORTED,
                           "program is in language '%.*s', device '%s' runs '%s'", STR_ARG(b->lang),
                           r->dev->driver->name, r->dev->driver->lang);
        for (u32 j = 0; j < i && !r->kernel[i]; j++) /* the same kernel loaded before */
            if (p->dispatch.v[j].bin == d->bin && str_eq(p->dispatch.v[j].entry, d->entry) &&
                p->dispatch.v[j].n_grid == d->n_grid)
                r->kernel[i] = r->kernel[j];
        if (!r->kernel[i])
            r->kernel[i] = r->dev->driver->load(r->dev, b->code, d->entry, d->n_grid, e);
        if (!r->kernel[i]) return err_prefix(e, "kernel '%.*s'", STR_ARG(d->entry));
    }
    return true;
}

static bool load_constants(struct rt_program *r, struct err *e)
{
    const struct plan *p = r->plan;
    const struct dev_driver *v = r->dev->driver;
    for (u32 i = 0; i < p->buf.n; i++) {
        const struct plan_buf *b = &p->buf.v[i];
        if (b->kind != PB_CONST) continue;
        if (r->shares_host) {
            r->mem[i] = (struct dev_mem){.host = (void *)(uintptr_t)b->data, .size = b->data_size};
            continue;
        }
        if (!r->mem[i].size && !v->alloc(r->dev, i64_max(b->data_size, 1), &r->mem[i], e))
            return false;
        if (!v->upload(r->dev, r->mem[i], b->data, b->data_size, e)) return false;
    }
    r->n_lost = r->dev->n_lost;
    return true;
}

/* A device that was lost in an earlier run is made anew by the first use, without its contents. */
static bool restore_constants(struct rt_program *r, struct err *e)
{
    if (!r->dev->driver->fence(r->dev, e)) return false;
    return r->n_lost == r->dev->n_lost || load_constants(r, e);
}

static bool find_sharing(struct rt_program *r, struct err *e)
{
    struct dev_mem probe = {0};
    if (!r->dev->driver->alloc(r->dev, 64, &probe, e)) return false;
    r->shares_host = probe.host != NULL;
    r->dev->driver->release(r->dev, &probe);
    return true;
}

struct rt_program *rt_load(const struct plan *p, struct dev *d, struct err *e)
{
    struct arena a = {0};
    struct rt_program *r = arena_new(&a, struct rt_program);
    *r = (struct rt_program){.plan = p, .dev = d};
    r->kernel = arena_array(&a, struct dev_kernel *, p->dispatch.n + 1);
    r->mem = arena_array(&a, struct dev_mem, p->buf.n + 1);
    r->io = arena_array(&a, struct dev_mem, p->buf.n + 1);
    r->seconds = arena_array(&a, double, p->dispatch.n + 1);
    r->flops = arena_array(&a, double, p->dispatch.n + 1);
    r->bytes = arena_array(&a, double, p->dispatch.n + 1);
    r->arena = a;
    if (find_sharing(r, e) && load_kernels(r, e) && load_constants(r, e)) return r;
    rt_unload(r);
    return NULL;
}

static void unload_kernels(struct rt_program *r)
{
    for (u32 i = 0; i < r->plan->dispatch.n; i++) {
        bool shared = false;
        for (u32 j = 0; j < i && !shared; j++) shared = r->kernel[j] == r->kernel[i];
        if (r->kernel[i] && !shared) r->dev->driver->unload(r->dev, r->kernel[i]);
    }
}

void rt_unload(struct rt_program *r)
{
    if (!r) return;
    unload_kernels(r);
    for (u32 i = 0; i < r->plan->buf.n; i++)
        if (r->mem[i].size && !(r->shares_host)) r->dev->driver->release(r->dev, &r->mem[i]);
    if (r->block.size) r->dev->driver->release(r->dev, &r->block);
    arena_release(&r->bound.arena);
    struct arena a = r->arena;
    arena_release(&a);
}

/* binding sizes */

static bool check_input(const struct plan *p, u32 k, const struct tensor *t, struct err *e)
{
    const struct plan_io *io = &p->input.v[k];
    if (t->dtype != io->dtype)
        return err_set(e, ERR_INPUT, "input '%.*s' is %s, expected %s", STR_ARG(io->name),
                       dtype_name(t->dtype), dtype_name(io->dtype));
    if (t->rank != io->rank)
        return err_set(e, ERR_INPUT, "input '%.*s' has rank %u, expected %u", STR_ARG(io->name),
                       t->rank, io->rank);
    return true;
}

static void bind_vars(const struct plan *p, const struct tensor *in, i64 *var)
{
    for (u32 v = 0; v < p->sym.var.n; v++) var[v] = INT64_MIN;
    for (u32 k = 0; k < p->input.n; k++)
        for (u32 d = 0; d < p->input.v[k].rank; d++) {
            const struct sym_node *s = &p->sym.node.v[p->input.v[k].dim[d]];
            if (s->op == SYM_VAR && var[s->a] == INT64_MIN) var[s->a] = in[k].dim[d];
        }
}

static bool check_sizes(const struct plan *p, const struct tensor *in, const i64 *var,
                        struct err *e)
{
    for (u32 k = 0; k < p->input.n; k++)
        for (u32 d = 0; d < p->input.v[k].rank; d++) {
            const struct plan_io *io = &p->input.v[k];
            i64 want;
            if (!sym_eval(&p->sym, io->dim[d], var, &want))
                return err_set(e, ERR_INPUT, "size of input '%.*s', axis %u, cannot be worked out",
                               STR_ARG(io->name), d);
            if (in[k].dim[d] != want || want < 0)
                return err_set(e, ERR_INPUT, "input '%.*s' has size %lld on axis %u, expected %lld",
                               STR_ARG(io->name), (long long)in[k].dim[d], d, (long long)want);
        }
    return true;
}

static bool bind_launch(struct rt_program *r, u32 i, struct err *e)
{
    struct bound *b = &r->bound;
    const struct plan_dispatch *d = &r->plan->dispatch.v[i];
    i64 *param = arena_array(&b->arena, i64, d->n_param);
    i64(*grid)[3] = (i64(*)[3])arena_alloc(&b->arena, (i64)sizeof(i64[3]) * d->n_grid);
    i64 work;
    bool ok = sym_eval(&r->plan->sym, d->work, b->var, &work) && work >= 0;
    for (u32 k = 0; k < d->n_param && ok; k++)
        ok = sym_eval(&r->plan->sym, d->param[k], b->var, &param[k]);
    for (u32 g = 0; g < d->n_grid; g++)
        for (u32 x = 0; x < 3 && ok; x++)
            ok = sym_eval(&r->plan->sym, d->grid[g].extent[x], b->var, &grid[g][x]) &&
                 grid[g][x] >= 0;
    if (!ok)
        return err_set(e, ERR_FAILED,
                       "sizes of kernel '%.*s' cannot be worked out for these inputs",
                       STR_ARG(d->entry));
    b->slot[i] = arena_array(&b->arena, struct dev_mem, d->n_buf);
    b->launch[i] = (struct dev_launch){.kernel = r->kernel[i],
                                       .buf = b->slot[i],
                                       .n_buf = d->n_buf,
                                       .param = param,
                                       .n_param = d->n_param,
                                       .grid = (const i64(*)[3])grid,
                                       .n_grid = d->n_grid,
                                       .work_size = work};
    return true;
}

static bool grow_block(struct rt_program *r, struct err *e)
{
    if (r->block.size >= r->bound.mem.total && r->block.size > 0) return true;
    if (r->block.size) r->dev->driver->release(r->dev, &r->block);
    r->block = (struct dev_mem){0};
    return r->dev->driver->alloc(r->dev, i64_max(r->bound.mem.total, 64), &r->block, e);
}

static bool same_sizes(const struct rt_program *r, const i64 *var)
{
    if (!r->bound.var) return false;
    for (u32 v = 0; v < r->plan->sym.var.n; v++)
        if (r->bound.var[v] != var[v]) return false;
    return true;
}

/* Copies of inputs and outputs that had other sizes. */
static void drop_copy(struct rt_program *r, u32 k)
{
    if (r->plan->buf.v[k].kind == PB_CONST || !r->mem[k].size) return;
    r->dev->driver->release(r->dev, &r->mem[k]);
    r->mem[k] = (struct dev_mem){0};
}

static bool rebind(struct rt_program *r, const i64 *var, struct err *e)
{
    const struct plan *p = r->plan;
    struct bound *b = &r->bound;
    arena_release(&b->arena);
    *b = (struct bound){0};
    i64 *now = arena_array(&b->arena, i64, p->sym.var.n + 1);
    for (u32 v = 0; v < p->sym.var.n; v++) now[v] = var[v];
    b->var = now;
    b->buf_size = arena_array(&b->arena, i64, p->buf.n + 1);
    b->launch = arena_array(&b->arena, struct dev_launch, p->dispatch.n + 1);
    b->slot = arena_array(&b->arena, struct dev_mem *, p->dispatch.n + 1);
    for (u32 k = 0; k < p->buf.n; k++) drop_copy(r, k);
    bool ok = rt_plan_memory(p, var, &b->arena, &b->mem, e) && grow_block(r, e);
    for (u32 k = 0; k < p->buf.n && ok; k++) {
        ok = sym_eval(&p->sym, p->buf.v[k].size, var, &b->buf_size[k]) && b->buf_size[k] >= 0;
        if (!ok)
            err_set(e, ERR_FAILED, "size of buffer '%.*s' cannot be worked out",
                    STR_ARG(p->buf.v[k].name));
    }
    for (u32 i = 0; i < p->dispatch.n && ok; i++) ok = bind_launch(r, i, e);
    if (!ok) b->var = NULL;
    return ok;
}

static bool bind_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
{
    const struct plan *p = r->plan;
    struct arena tmp = {0};
    i64 *var = arena_array(&tmp, i64, p->sym.var.n + 1);
    bool ok = true;
    for (u32 k = 0; k < p->input.n && ok; k++) ok = check_input(p, k, &in[k], e);
    if (ok) bind_vars(p, in, var);
    ok = ok && check_sizes(p, in, var, e) && (same_sizes(r, var) || rebind(r, var, e));
    arena_release(&tmp);
    return ok;
}

/* running */

static bool output_dims(const struct rt_program *r, struct tensor *out, struct err *e)
{
    const struct plan *p = r->plan;
    for (u32 k = 0; k < p->output.n; k++) {
        const struct plan_io *io = &p->output.v[k];
        out[k].dtype = io->dtype;
        out[k].rank = io->rank;
        i64 bytes;
        for (u32 d = 0; d < io->rank; d++)
            if (!sym_eval(&p->sym, io->dim[d], r->bound.var, &out[k].dim[d]))
                return err_set(e, ERR_FAILED, "size of output '%.*s' cannot be worked out",
                               STR_ARG(io->name));
        if (!tensor_size_ok(io->dtype, io->rank, out[k].dim, &bytes) ||
            bytes != r->bound.buf_size[io->buf])
            return err_set(e, ERR_FAILED,
                           "output '%.*s' is empty of meaning for these inputs: a size is negative "
                           "or too large",
                           STR_ARG(io->name));
    }
    return true;
}

/* Kernels read whole buffers: an input must be as long as its buffer, whatever the plan claims. */
static bool check_input_bytes(const struct rt_program *r, const struct tensor *in, struct err *e)
{
    const struct plan *p = r->plan;
    for (u32 k = 0; k < p->input.n; k++) {
        i64 bytes;
        if (!tensor_size_ok(in[k].dtype, in[k].rank, in[k].dim, &bytes) ||
            bytes != r->bound.buf_size[p->input.v[k].buf])
            return err_set(e, ERR_FAILED, "input '%.*s' does not have the size of its buffer",
                           STR_ARG(p->input.v[k].name));
    }
    return true;
}

bool rt_output_dims(struct rt_program *r, const struct tensor *in, struct tensor *out,
                    struct err *e)
{
    return bind_inputs(r, in, e) && check_input_bytes(r, in, e) && output_dims(r, out, e);
}

static struct dev_mem find_mem(const struct rt_program *r, u32 k)
{
    enum plan_buf_kind kind = r->plan->buf.v[k].kind;
    if (kind == PB_CONST) return r->mem[k];
    if (kind != PB_TEMP) return r->io[k];
    struct dev_mem m = r->block;
    i64 at = r->bound.mem.offset[k];
    if (m.host) m.host = (char *)m.host + at;
    m.offset += at;
    m.size = r->bound.buf_size[k];
    return m;
}

static void fill_slots(struct rt_program *r)
{
    const struct plan *p = r->plan;
    for (u32 i = 0; i < p->dispatch.n; i++)
        for (u32 k = 0; k < p->dispatch.v[i].n_buf; k++) r->bound.slot[i][k] = find_mem(r, p->dispatch.v[i].buf[k]);
}

/* Where an input or output in the host's memory lies for kernels: there, or in a copy. */
static bool place(struct rt_program *r, const struct plan_io *io, void *data, struct err *e)
{
    u32 k = io->buf;
    i64 size = r->bound.buf_size[k];
    if (!r->shares_host && !r->mem[k].size && !r->dev->driver->alloc(r->dev, i64_max(size, 1), &r->mem[k], e)) return false;
    r->io[k] = r->shares_host ? (struct dev_mem){.host = data, .size = size} : r->mem[k];
    return true;
}

static bool place_all(struct rt_program *r, const struct tensor *in, const struct tensor *out, struct err *e)
{
    const struct plan *p = r->plan;
    bool ok = true;
    for (u32 k = 0; k < p->input.n && ok; k++) ok = place(r, &p->input.v[k], in[k].data, e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = place(r, &p->output.v[k], out[k].data, e);
    return ok;
}

static bool move_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
{
    if (r->shares_host) return true;
    for (u32 k = 0; k < r->plan->input.n; k++) {
        u32 b = r->plan->input.v[k].buf;
        if (!r->dev->driver->upload(r->dev, r->mem[b], in[k].data, r->bound.buf_size[b], e))
            return false;
    }
    return true;
}

static bool move_outputs(struct rt_program *r, struct tensor *out, struct err *e)
{
    if (r->shares_host) return true;
    for (u32 k = 0; k < r->plan->output.n; k++) {
        u32 b = r->plan->output.v[k].buf;
        if (!r->dev->driver->download(r->dev, r->mem[b], out[k].data, r->bound.buf_size[b], e))
            return false;
    }
    return true;
}

static double dispatch_flops(const struct rt_program *r, u32 i)
{
    i64 n = 0;
    sym f = r->plan->dispatch.v[i].flops;
    return f && sym_eval(&r->plan->sym, f, r->bound.var, &n) ? (double)n : 0;
}

static double dispatch_bytes(const struct rt_program *r, u32 i)
{
    const struct plan_dispatch *d = &r->plan->dispatch.v[i];
    double sum = 0;
    for (u32 k = 0; k < d->n_buf; k++) {
        bool again = false;
        for (u32 j = 0; j < k; j++) again |= d->buf[j] == d->buf[k];
        if (!again) sum += (double)r->bound.buf_size[d->buf[k]];
    }
    return sum;
}

static bool launch_all(struct rt_program *r, struct err *e)
{
    const struct dev_driver *v = r->dev->driver;
    double first = os_now();
    for (u32 i = 0; i < r->plan->dispatch.n; i++) {
        double start = r->profiling ? os_now() : 0;
        if (!v->launch(r->dev, &r->bound.launch[i], e))
            return err_prefix(e, "kernel '%.*s' (%.*s)", STR_ARG(r->plan->dispatch.v[i].entry),
                              STR_ARG(r->plan->dispatch.v[i].label));
        if (!r->profiling) continue;
        if (!v->fence(r->dev, e)) return false;
        r->seconds[i] += dev_elapsed(r->dev, os_now() - start);
        r->flops[i] += dispatch_flops(r, i);
        r->bytes[i] += dispatch_bytes(r, i);
    }
    r->last = r->profiling ? os_now() - first : -1;
    return true;
}

static bool finish(struct rt_program *r, double first, struct err *e)
{
    if (!r->dev->driver->fence(r->dev, e)) return false;
    if (!r->profiling) r->last = dev_elapsed(r->dev, os_now() - first);
    return true;
}

bool rt_run(struct rt_program *r, const struct tensor *in, struct tensor *out, struct arena *a,
            struct err *e)
{
    const struct plan *p = r->plan;
    if (!rt_output_dims(r, in, out, e)) return false;
    for (u32 k = 0; k < p->output.n; k++)
        if (!out[k].data)
            out[k].data = arena_alloc(a, i64_max(r->bound.buf_size[p->output.v[k].buf], 1));
    if (!restore_constants(r, e) || !place_all(r, in, out, e) || !move_inputs(r, in, e)) return false;
    fill_slots(r);
    double first = os_now();
    return launch_all(r, e) && finish(r, first, e) && move_outputs(r, out, e);
}

static bool borrow(struct rt_program *r, const struct plan_io *io, const void *data, const char *what, struct err *e)
{
    i64 size = r->bound.buf_size[io->buf];
    if (size && (uintptr_t)data % DEV_BORROW_ALIGN)
        return err_set(e, ERR_USAGE, "%s '%.*s' lies at 0x%llx, expected a multiple of %d", what, STR_ARG(io->name),
                       (unsigned long long)(uintptr_t)data, DEV_BORROW_ALIGN);
    return r->dev->driver->borrow(r->dev, data, size, &r->io[io->buf], e) || err_prefix(e, "%s '%.*s'", what, STR_ARG(io->name));
}

static bool borrow_all(struct rt_program *r, const struct tensor *in, const struct tensor *out, struct err *e)
{
    const struct plan *p = r->plan;
    bool ok = true;
    for (u32 k = 0; k < p->input.n && ok; k++) ok = borrow(r, &p->input.v[k], in[k].data, "input", e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = borrow(r, &p->output.v[k], out[k].data, "output", e);
    return ok;
}

bool rt_enqueue(struct rt_program *r, const struct tensor *in, const struct tensor *out, void *stream, struct err *e)
{
    const struct dev_driver *v = r->dev->driver;
    struct arena tmp = {0};
    if (!v->borrow)
        return err_set(e, ERR_UNSUPPORTED, "device '%s' uses no memory of others in this process, arrays must lie in the host's", v->name);
    bool ok = rt_output_dims(r, in, arena_array(&tmp, struct tensor, r->plan->output.n + 1), e) && borrow_all(r, in, out, e);
    arena_release(&tmp);
    if (ok) fill_slots(r);
    ok = ok && v->follow(r->dev, stream, e) && launch_all(r, e);
    struct err later = {0}; /* what was launched is in order even if something failed, and nothing stays borrowed */
    return v->lead(r->dev, stream, ok ? e : &later) && ok;
}

void rt_profile(struct rt_program *r, bool on)
{
    r->profiling = on;
    for (u32 i = 0; i < r->plan->dispatch.n; i++) r->seconds[i] = r->flops[i] = r->bytes[i] = 0;
}

struct rt_times rt_profile_times(const struct rt_program *r)
{
    return (struct rt_times){r->seconds, r->flops, r->bytes, r->plan->dispatch.n};
}

double rt_seconds(const struct rt_program *r) { return r->last; }

i64 rt_memory_used(const struct rt_program *r) { return r->bound.var ? r->bound.mem.total : 0; }
