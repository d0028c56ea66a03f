// SPDX-License-Identifier: Apache-2.0
//
// The launches of a program's run: kernels, and loops and branches (call.c), in their order.
#include "rt/rt_program.h"

/* Results of calls stay in their memory until then. */
static bool fill_slots(struct rt_program *r, u32 i, struct err *e)
{
    const struct plan_dispatch *d = &r->plan->dispatch.v[i];
    for (u32 k = 0; k < d->n_buf; k++) {
        const struct plan_buf *b = &r->plan->buf.v[d->buf[k]];
        struct dev_mem *m = &r->bound.slot[i][k];
        *m = bind_memory(r, d->buf[k]);
        if (b->kind != PB_HELD) continue;
        if (m->size < r->bound.buf_size[d->buf[k]]) return err_set(e, ERR_FAILED, "'%.*s' is read before it is computed", STR_ARG(b->name));
        m->size = r->bound.buf_size[d->buf[k]];
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
        if (!again) sum += (double)i64_max(r->bound.buf_size[d->buf[k]], 0);
    }
    return sum;
}

/* Copies results held by calls to outputs whose sizes are now known. */
static bool copy_held(struct rt_program *r, u32 i, u32 phase, struct err *e)
{
    const struct plan_call *c = r->plan->dispatch.v[i].call;
    for (u32 k = 0; k < c->n_out; k++) {
        u32 b = c->out[k];
        if (b == UINT32_MAX || r->plan->buf.v[b].kind == PB_HELD || r->phase_of[b] != phase || !r->held[b].size) continue;
        struct dev_mem from = r->held[b], to = bind_memory(r, b);
        if (from.size < r->bound.buf_size[b]) return err_set(e, ERR_FAILED, "'%.*s' has another size than expected", STR_ARG(r->plan->buf.v[b].name));
        if (!dev_copy(r->dev, to, from, r->bound.buf_size[b], e)) return false;
    }
    return true;
}

static bool run_call(struct rt_program *r, u32 i, struct err *e)
{
    const struct plan_call *c = r->plan->dispatch.v[i].call;
    struct arena a = {0};
    u32 phase = 0;
    struct call_job j = {.sym = &r->plan->sym, .var = r->bound.var};
    while (phase + 1 < r->n_phases && r->phase[phase].to <= i) phase++;
    j.in = arena_array(&a, struct dev_mem, c->n_in + 1);
    j.out = arena_array(&a, struct dev_mem, c->n_out + 1);
    j.held = arena_array(&a, struct dev_mem, c->n_out + 1);
    j.is_placed = arena_array(&a, bool, c->n_out + 1);
    for (u32 k = 0; k < c->n_in; k++) j.in[k] = bind_memory(r, c->in[k].buf);
    if (c->cond != UINT32_MAX) j.cond = bind_memory(r, c->cond);
    if (c->sizes != UINT32_MAX) j.sizes = bind_memory(r, c->sizes);
    for (u32 k = 0; k < c->n_out; k++) { /* buffers that may be written in place */
        u32 b = c->out[k];
        if (b == UINT32_MAX) continue;
        r->held[b] = (struct dev_mem){0};
        if (r->plan->buf.v[b].kind != PB_HELD && r->phase_of[b] <= phase && (!c->is_loop || k >= c->n_carried))
            j.out[k] = bind_memory(r, b), j.is_placed[k] = true;
    }
    bool ok = call_run(r->call[i], &j, e);
    for (u32 k = 0; k < c->n_out && ok; k++)
        if (c->out[k] != UINT32_MAX) r->held[c->out[k]] = j.held[k];
    for (u32 p = 0; p <= phase && ok; p++) ok = copy_held(r, i, p, e);
    arena_release(&a);
    return ok;
}

/* Of calls in earlier phases. */
static bool copy_results(struct rt_program *r, u32 phase, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < r->phase[phase].from && ok; i++)
        if (r->call[i]) ok = copy_held(r, i, phase, e);
    return ok;
}

bool launch_phase(struct rt_program *r, const struct phase *h, struct err *e)
{
    const struct dev_driver *v = r->dev->driver;
    assert(h->is_valid && h->from <= h->to && h->to <= r->plan->dispatch.n);
    for (u32 i = h->from; i < h->to; i++) {
        double start = r->profiling ? os_now() : 0;
        const struct plan_dispatch *d = &r->plan->dispatch.v[i];
        if (stop_is_set(e->stop)) return err_set(e, ERR_STOPPED, "stopped");
        if (d->call && !run_call(r, i, e)) return err_prefix(e, "%s '%.*s'", d->call->is_loop ? "Loop" : "If", STR_ARG(d->label));
        if (!d->call && !(fill_slots(r, i, e) && v->launch(r->dev, &r->bound.launch[i], e)))
            return err_prefix(e, "kernel '%.*s' (%.*s)", STR_ARG(d->entry), STR_ARG(d->label));
        if (r->watch && !d->call && !(v->fence(r->dev, e) && r->watch(r->watcher, i, r->bound.slot[i], r->bound.var, e))) return false;
        if (!r->profiling) continue;
        if (!v->fence(r->dev, e)) return false;
        r->seconds[i] += dev_elapsed(r->dev, os_now() - start);
        r->flops[i] += dispatch_flops(r, i);
        r->bytes[i] += dispatch_bytes(r, i);
    }
    return true;
}

/* Phase by phase: waits for the elements of data-dependent sizes, then computes the values that follow. */
bool launch_all(struct rt_program *r, const struct tensor *in, struct tensor *out, const i64 *room, struct arena *a,
                       struct err *e)
{
    double first = os_now();
    for (u32 i = 0; i < r->n_phases; i++) {
        if (i && !((!r->phase[i].waits || r->dev->driver->fence(r->dev, e)) && bind_made(r, i, in, e))) return false;
        if (!r->phase[i].is_valid && !bind_phase(r, i, e)) return false;
        if (!io_place_outputs(r, i, out, room, a, e) || !io_fill_states(r, i, in, e)) return false;
        if (!copy_results(r, i, e) || !launch_phase(r, &r->phase[i], e)) return false;
    }
    r->last = r->profiling ? os_now() - first : -1;
    return true;
}
