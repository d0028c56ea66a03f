// SPDX-License-Identifier: Apache-2.0
//
// Loading and running plans. Sizes are bound from the inputs' shapes at each
// run; memory and kernel parameters are recomputed only when they change (bind.c). On a
// device that shares the host's memory inputs and outputs are used in place; on
// others the program has copies of them, or they are in device memory already (io.c).
#include "rt/rt_program.h"

/* Loading. */

static bool load_kernels(struct rt_program *r, struct arena *a, struct err *e)
{
    const struct plan *p = r->plan;
    struct map known; /* entry, binary, grids -> dispatch */
    map_init(&known, a);
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        if (d->call) continue;
        const struct plan_bin *b = &p->bin.v[d->bin];
        if (!str_is(b->lang, r->dev->driver->lang))
            return err_set(e, ERR_UNSUPPORTED,
                           "program is in language '%.*s', device '%s' runs '%s'", STR_ARG(b->lang),
                           r->dev->driver->name, r->dev->driver->lang);
        struct str key = str_fmt(a, "%u %u %.*s", d->bin, d->n_grid, STR_ARG(d->entry));
        const u64 *at = map_get(&known, key);
        if (at) { /* the same kernel loaded before */
            r->kernel[i] = r->kernel[*at];
            r->kernel_is_shared[i] = true;
            continue;
        }
        map_put(&known, key, i);
        r->kernel[i] = r->dev->driver->load(r->dev, b->code, d->entry, d->n_grid, e);
        if (!r->kernel[i]) return err_prefix(e, "kernel '%.*s'", STR_ARG(d->entry));
    }
    return true;
}

/* Native code is not loaded if the processor lacks one of its instructions. */
static bool check_processor(const struct rt_program *r, struct err *e)
{
    const struct plan *p = r->plan;
    const struct dev_driver *v = r->dev->driver;
    if (!v->can_run || p->bin.n == 0 || !str_is(p->bin.v[0].lang, v->lang)) return true;
    return v->can_run(r->dev, p->isa, p->fingerprint, e) || err_prefix(e, "program '%.*s'", STR_ARG(p->model));
}

static const struct inner_program inner_program;

static bool load_all_kernels(struct rt_program *r, struct err *e)
{
    if (!check_processor(r, e)) return false;
    struct arena scratch = {0};
    bool ok = load_kernels(r, &scratch, e);
    arena_release(&scratch);
    for (u32 i = 0; i < r->plan->dispatch.n && ok; i++)
        if (r->plan->dispatch.v[i].call) ok = (r->call[i] = call_load(r->plan->dispatch.v[i].call, &inner_program, r->dev, e)) != NULL;
    return ok;
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

/* A device that was lost in an earlier run is reopened by its first use, with empty memory: uploads
   the constants again. */
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

/* One phase for each position at which sizes are read, and one before all. */
static void find_phases(struct rt_program *r, struct arena *a)
{
    const struct plan *p = r->plan;
    u32 n = 1, k = 0;
    r->phase = arena_array(a, struct phase, p->made.n + 1);
    while (k < p->made.n && p->made.v[k].at == 0) k++;
    r->phase[0].made_to = k;
    for (; k < p->made.n; r->phase[n - 1].made_to = ++k) {
        if (p->made.v[k].at == r->phase[n - 1].from) continue;
        r->phase[n - 1].to = p->made.v[k].at;
        r->phase[n++] = (struct phase){.from = p->made.v[k].at, .made_from = k};
    }
    r->phase[n - 1].to = p->dispatch.n;
    r->n_phases = n;
    for (u32 i = 0; i < n; i++)
        for (k = r->phase[i].made_from; k < r->phase[i].made_to; k++) r->phase[i].waits |= !p->made.v[k].expr;
}

static void find_dependents(struct rt_program *r, struct arena *a)
{
    const struct plan *p = r->plan;
    u32 *known = plan_known_at(p, a);
    r->phase_of = arena_array(a, u32, p->buf.n + 1);
    r->is_made = arena_array(a, bool, p->output.n + 1);
    for (u32 k = 0; k < p->buf.n; k++) /* the first that begins where the size is known */
        while (r->phase[r->phase_of[k]].from < plan_sym_at(p, known, p->buf.v[k].size)) r->phase_of[k]++;
    for (u32 k = 0; k < p->output.n; k++)
        for (u32 d = 0; d < p->output.v[k].rank; d++) r->is_made[k] |= plan_sym_at(p, known, p->output.v[k].dim[d]) > 0;
    for (u32 k = 0; k < p->made.n; k++) /* computed from inputs: unknown from their shapes */
        if (p->made.v[k].at == 0) known[p->made.v[k].var] = 1;
    for (u32 k = 0; k < p->output.n; k++)
        for (u32 d = 0; d < p->output.v[k].rank; d++) r->is_made[k] |= plan_sym_at(p, known, p->output.v[k].dim[d]) > 0;
}

static void new_bound(struct rt_program *r, struct arena *a)
{
    const struct plan *p = r->plan;
    struct bound *b = &r->bound;
    b->var = arena_array(a, i64, p->sym.var.n + 1);
    b->buf_size = arena_array(a, i64, p->buf.n + 1);
    b->laid_in = arena_array(a, u32, p->buf.n + 1);
    b->offset = arena_array(a, i64, p->buf.n + 1);
    b->room = arena_array(a, i64, p->buf.n + 1);
    for (u32 k = 0; k < p->buf.n; k++) b->laid_in[k] = UINT32_MAX;
    b->launch = arena_array(a, struct dev_launch, p->dispatch.n + 1);
    b->slot = arena_array(a, struct dev_mem *, p->dispatch.n + 1);
    for (u32 i = 0; i < p->dispatch.n; i++) b->slot[i] = arena_array(a, struct dev_mem, p->dispatch.v[i].n_buf);
}

static struct rt_program *load(const struct plan *p, struct dev *d, bool is_inner, struct err *e)
{
    struct arena a = {0};
    struct rt_program *r = arena_new(&a, struct rt_program);
    *r = (struct rt_program){.plan = p, .dev = d, .is_inner = is_inner};
    r->kernel = arena_array(&a, struct dev_kernel *, p->dispatch.n + 1);
    r->kernel_is_shared = arena_array(&a, bool, p->dispatch.n + 1);
    r->mem = arena_array(&a, struct dev_mem, p->buf.n + 1);
    r->io = arena_array(&a, struct dev_mem, p->buf.n + 1);
    r->pin = arena_array(&a, struct dev_mem, p->buf.n + 1);
    r->room = arena_array(&a, i64, p->output.n + 1);
    r->held = arena_array(&a, struct dev_mem, p->buf.n + 1);
    r->call = arena_array(&a, struct call *, p->dispatch.n + 1);
    r->given = arena_array(&a, i64, p->given.n + 1);
    r->seconds = arena_array(&a, double, p->dispatch.n + 1);
    r->flops = arena_array(&a, double, p->dispatch.n + 1);
    r->bytes = arena_array(&a, double, p->dispatch.n + 1);
    find_phases(r, &a);
    find_dependents(r, &a);
    new_bound(r, &a);
    r->arena = a;
    if (find_sharing(r, e) && load_all_kernels(r, e) && load_constants(r, e)) return r;
    rt_unload(r);
    return NULL;
}

struct rt_program *rt_load(const struct plan *p, struct dev *d, struct err *e) { return load(p, d, false, e); }

void rt_unload(struct rt_program *r)
{
    if (!r) return;
    for (u32 i = 0; i < r->plan->dispatch.n; i++) {
        if (r->kernel[i] && !r->kernel_is_shared[i]) r->dev->driver->unload(r->dev, r->kernel[i]);
        call_unload(r->call[i]);
    }
    for (u32 i = 0; i < r->plan->buf.n; i++)
        if (r->mem[i].size && !(r->shares_host)) r->dev->driver->release(r->dev, &r->mem[i]);
    for (u32 i = 0; i < r->n_phases; i++) {
        if (r->phase[i].block.size) r->dev->driver->release(r->dev, &r->phase[i].block);
        arena_release(&r->phase[i].arena);
    }
    arena_release(&r->scratch);
    struct arena a = r->arena;
    arena_release(&a);
}

/* Running. */

static bool is_bound_by_inputs(const struct rt_program *r, sym s)
{
    const struct plan *p = r->plan;
    const struct sym_node *x = &p->sym.node.v[s];
    if (x->op == SYM_CONST) return true;
    if (x->op != SYM_VAR) return is_bound_by_inputs(r, x->a) && is_bound_by_inputs(r, x->b);
    for (u32 k = 0; k < p->made.n; k++)
        if (p->made.v[k].var == x->a) return false;
    return true;
}

/* Data-dependent values are not requested here, even if an earlier run left them. */
bool rt_output_dims(struct rt_program *r, const struct tensor *in, struct tensor *out,
                    struct err *e)
{
    if (!bind_inputs(r, in, e) || !io_check_inputs(r, in, e)) return false;
    for (u32 k = 0; k < r->plan->output.n; k++) {
        if (!io_output_dims(r, k, &out[k], e)) return false;
        for (u32 d = 0; r->is_made[k] && d < out[k].rank; d++)
            if (!is_bound_by_inputs(r, r->plan->output.v[k].dim[d])) out[k].dim[d] = -1;
    }
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
    for (u32 k = 0; k < p->output.n; k++) {
        r->room[k] = 0;
        if (out[k].data && r->is_made[k] && !tensor_size_ok(out[k].dtype, out[k].rank, out[k].dim, &r->room[k])) r->room[k] = 0;
    }
    bool ok = bind_inputs(r, in, e) && io_check_inputs(r, in, e) && restore_constants(r, e) && io_place_inputs(r, in, e);
    double begin = os_now();
    ok = ok && io_move_inputs(r, in, e);
    double first = os_now();
    ok = ok && launch_all(r, in, out, r->room, a, e) && finish(r, first, e);
    double last = os_now();
    ok = ok && io_move_outputs(r, out, e);
    r->moves = r->shares_host ? (struct rt_moves){0} : (struct rt_moves){first - begin, os_now() - last};
    for (u32 k = 0; k < p->output.n && ok; k++) ok = io_output_dims(r, k, &out[k], e);
    return ok;
}

const struct plan *program_plan(const struct rt_program *r) { return r->plan; }
struct dev *program_dev(const struct rt_program *r) { return r->dev; }
struct arena *program_scratch(struct rt_program *r) { return &r->scratch; }

void program_pin(struct rt_program *r, u32 buf, struct dev_mem m)
{
    r->pin[buf] = m;
    r->is_pinned = m.size != 0;
}

void program_give(struct rt_program *r, u32 var, i64 value)
{
    for (u32 k = 0; k < r->plan->given.n; k++)
        if (r->plan->given.v[k] == var) r->given[k] = value;
}

bool rt_enqueue(struct rt_program *r, const struct tensor *in, const struct tensor *out, void *stream, struct err *e)
{
    const struct dev_driver *v = r->dev->driver;
    struct arena tmp = {0};
    if (!v->borrow)
        return err_set(e, ERR_UNSUPPORTED, "device '%s' cannot share memory within this process: arrays must be in host memory", v->name);
    if (plan_has_calls(r->plan))
        return err_set(e, ERR_UNSUPPORTED, "the program has loops or branches, which are decided by the host: run it on arrays in host memory");
    if (r->plan->state.n)
        return err_set(e, ERR_UNSUPPORTED, "output '%.*s' is in the memory of input '%.*s': run the program on arrays in host memory, or with a state",
                       STR_ARG(r->plan->output.v[r->plan->state.v[0].output].name), STR_ARG(r->plan->input.v[r->plan->state.v[0].input].name));
    if (r->plan->made.n)
        return err_set(e, ERR_UNSUPPORTED, "size '%.*s' is computed while the program runs, which needs synchronisation: run it on arrays in host memory",
                       STR_ARG(r->plan->sym.var.v[r->plan->made.v[0].var]));
    bool ok = rt_output_dims(r, in, arena_array(&tmp, struct tensor, r->plan->output.n + 1), e) && io_borrow(r, in, out, e);
    arena_release(&tmp);
    ok = ok && v->follow(r->dev, stream, e) && launch_phase(r, &r->phase[0], e);
    r->last = -1;
    struct err later = {0}; /* the launches so far are ordered even if something failed, and no memory stays borrowed */
    return v->lead(r->dev, stream, ok ? e : &later) && ok;
}

bool rt_shares_host(const struct rt_program *r) { return r->shares_host; }

void rt_watch(struct rt_program *r, rt_watch_fn *fn, void *user)
{
    r->watch = fn;
    r->watcher = user;
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
struct rt_moves rt_moves(const struct rt_program *r) { return r->moves; }

i64 rt_memory_used(const struct rt_program *r)
{
    i64 sum = 0;
    for (u32 i = 0; i < r->n_phases; i++) sum += r->phase[i].is_valid ? r->phase[i].total : 0;
    for (u32 i = 0; i < r->plan->dispatch.n; i++) sum += r->call[i] ? call_memory_used(r->call[i]) : 0;
    return sum;
}

/* Plans in plans. */

/* The memory of its inputs is at least as large as they are. */
static bool check_memory(struct rt_program *r, const struct inner_run *x, struct err *e)
{
    for (u32 k = 0; k < r->plan->input.n; k++) {
        u32 b = r->plan->input.v[k].buf;
        if (x->mem[k].size < r->bound.buf_size[b])
            return err_set(e, ERR_FAILED, "'%.*s' is shorter than expected", STR_ARG(r->plan->input.v[k].name));
        r->io[b].size = r->bound.buf_size[b];
    }
    return true;
}

static struct rt_program *load_inner(const struct plan *p, struct dev *d, struct err *e) { return load(p, d, true, e); }

static bool run_inner(struct rt_program *r, const struct inner_run *x, struct err *e)
{
    const struct plan *p = r->plan;
    struct arena tmp = {0};
    i64 *room = arena_array(&tmp, i64, p->output.n + 1);
    assert(!r->inner); /* a plan does not run itself */
    r->inner = x;
    for (u32 k = 0; k < p->given.n; k++) r->given[k] = x->given[k];
    for (u32 k = 0; k < p->input.n; k++) r->io[p->input.v[k].buf] = x->mem[k];
    bool ok = bind_inputs(r, x->in, e) && io_check_inputs(r, x->in, e) && check_memory(r, x, e) &&
              (r->n_lost == r->dev->n_lost || load_constants(r, e)) && launch_all(r, x->in, x->out, room, &tmp, e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = io_output_dims(r, k, &x->out[k], e);
    r->inner = NULL;
    arena_release(&tmp);
    return ok;
}

static const struct inner_program inner_program = {.load = load_inner, .run = run_inner, .memory_used = rt_memory_used, .unload = rt_unload};
