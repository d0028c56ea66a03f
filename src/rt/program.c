// SPDX-License-Identifier: Apache-2.0
//
// Loading and running plans. Sizes are bound from the inputs' shapes at each
// run; memory and kernel parameters are recomputed only when they change. On a
// device that shares the host's memory inputs and outputs are used in place; on
// others the program has copies of them, or they are in device memory already.
#include "rt/rt_private.h"

#include <string.h>

/* Dispatches between two places where data-dependent sizes are read. Their derived values are
   computed when the sizes are known, and stay until one of them, or of the earlier ones, changes. */
struct phase {
    struct arena arena;    /* parameters and grids */
    struct dev_mem block;  /* temporaries whose sizes, or upper bounds of them, are known from here on */
    i64 total;             /* bytes of them */
    u32 from, to;          /* dispatches */
    bool waits;            /* for an element of a buffer */
    u32 made_from, made_to; /* sizes made before them */
    bool is_valid;
};

struct bound { /* everything derived from the sizes */
    i64 *var;                  /* INT64_MIN: unknown */
    i64 *buf_size;             /* per buffer, bytes; -1: unknown */
    u32 *laid_in;              /* per buffer: the phase of its block; UINT32_MAX: none */
    i64 *offset;               /* per buffer: offset in its block */
    i64 *room;                 /* per buffer: reserved bytes */
    struct dev_launch *launch; /* per dispatch; buf filled at each run */
    struct dev_mem **slot;     /* per dispatch: its buffers */
};

struct rt_program {
    struct arena arena;
    const struct plan *plan;
    struct dev *dev;
    bool shares_host;
    struct dev_kernel **kernel; /* per dispatch */
    bool *kernel_is_shared;     /* per dispatch: the kernel of an earlier one */
    struct dev_mem
        *mem; /* per buffer: constants, and copies of inputs and outputs on devices with memory of their own */
    struct dev_mem *io; /* per buffer: memory of inputs and outputs in this run */
    struct dev_mem *pin; /* per buffer: memory of a state for it; size 0: none */
    bool is_pinned;      /* any */
    i64 *room;           /* per output: bytes of the caller's memory, if its size depends on data */
    struct arena scratch; /* of one binding of sizes; keeps its memory */
    struct phase *phase;
    u32 n_phases, *phase_of; /* per buffer: when its size is known */
    bool *is_made;           /* per output: a size depends on data */
    u32 n_lost;           /* of the device, when the constants were uploaded */
    struct bound bound;
    struct call **call; /* per dispatch; NULL: a kernel */
    struct dev_mem *held; /* per buffer: memory of a call's result */
    i64 *given;           /* values of the plan's given variables */
    bool is_inner;        /* called by an outer plan */
    const struct inner_run *inner; /* during a run */
    rt_watch_fn *watch;   /* NULL: none */
    void *watcher;
    bool profiling;
    double *seconds, *flops, *bytes; /* per dispatch, see struct rt_times */
    double last;                     /* seconds of the last run */
};

/* loading */

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

/* Binding of sizes. */

/* The state that the k-th input, or output, belongs to; NULL: none. */
static const struct plan_state *state_of(const struct plan *p, u32 k, bool is_input)
{
    for (u32 i = 0; i < p->state.n; i++)
        if ((is_input ? p->state.v[i].input : p->state.v[i].output) == k) return &p->state.v[i];
    return NULL;
}

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

/* The first input that names a variable of a fact. */
static const struct plan_io *input_with(const struct plan *p, const struct sym_fact *f)
{
    for (u32 v = 0; v < p->sym.var.n; v++) {
        if (!sym_has_var(&p->sym, f->a, v) && !sym_has_var(&p->sym, f->b, v)) continue;
        for (u32 k = 0; k < p->input.n; k++)
            for (u32 d = 0; d < p->input.v[k].rank; d++)
                if (sym_has_var(&p->sym, p->input.v[k].dim[d], v)) return &p->input.v[k];
    }
    return NULL;
}

static bool check_facts(const struct plan *p, const i64 *var, struct err *e)
{
    const struct sym_fact *f = sym_fact_broken(&p->sym, var);
    if (!f) return true;
    struct buf b = {0};
    const struct plan_io *io = input_with(p, f);
    sym_fact_explain(&b, &p->sym, f, var);
    err_set(e, ERR_INPUT, "%s%.*s%s%.*s", io ? "input '" : "", STR_ARG(io ? io->name : S("")), io ? "': " : "",
            STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

/* "8", "8, which is H", "8, which is H*2 for H = 4" */
static void put_expected(struct buf *b, const struct symtab *t, sym s, const i64 *var)
{
    i64 v;
    if (sym_eval(t, s, var, &v)) buf_printf(b, "%lld", (long long)v);
    else buf_z(b, "a size");
    if (sym_is_const(t, s, NULL)) return;
    buf_z(b, ", which is ");
    sym_print(b, t, s);
    if (t->node.v[s].op != SYM_VAR) buf_z(b, " for "), sym_print_vars(b, t, s, 0, var);
}

static bool check_sizes(const struct plan *p, const struct tensor *in, const i64 *var,
                        struct err *e)
{
    for (u32 k = 0; k < p->input.n; k++)
        for (u32 d = 0; d < p->input.v[k].rank; d++) {
            const struct plan_io *io = &p->input.v[k];
            i64 want;
            if (sym_eval(&p->sym, io->dim[d], var, &want) && in[k].dim[d] == want && want >= 0) continue;
            struct buf b = {0};
            put_expected(&b, &p->sym, io->dim[d], var);
            err_set(e, ERR_INPUT, "input '%.*s' has size %lld on axis %u, expected %.*s", STR_ARG(io->name), (long long)in[k].dim[d], d,
                    STR_ARG(buf_view(&b)));
            buf_release(&b);
            return false;
        }
    return true;
}

/* Bytes of the dispatch's buffers, or, without a dispatch, of all of the plan's. is_empty: one of them has none. */
static i64 buffer_bytes(const struct rt_program *r, const struct plan_dispatch *d, bool *is_empty)
{
    u32 n = d ? d->n_buf : r->plan->buf.n;
    i64 bytes = 0;
    *is_empty = false;
    for (u32 k = 0; k < n; k++) {
        i64 size = i64_max(r->bound.buf_size[d ? d->buf[k] : k], 0);
        bytes += i64_min(size, INT64_MAX - bytes);
        *is_empty |= size == 0;
    }
    return bytes;
}

/* Bounds the grids of an artifact before anything is launched: every iteration reads or writes at
   least one element. n_all: receives the number of iterations of all grids. */
static bool check_grids(const struct plan_dispatch *d, const i64 (*grid)[3], i64 most, i64 *n_all, struct err *e)
{
    *n_all = 0;
    for (u32 g = 0; g < d->n_grid; g++) {
        const i64 *n = grid[g];
        i64 rows, all;
        if (n[0] == 0 || n[1] == 0 || n[2] == 0) continue;
        bool over = __builtin_mul_overflow(n[0], n[1], &rows) || __builtin_mul_overflow(rows, n[2], &all) || all > most;
        if (over)
            return err_set(e, ERR_INPUT, "grid %u of %lld x %lld x %lld exceeds the needs of its buffers (%lld): the program is invalid", g,
                           (long long)n[0], (long long)n[1], (long long)n[2], (long long)most);
        *n_all += i64_min(all, INT64_MAX - *n_all);
    }
    return true;
}

static bool check_launch(const struct rt_program *r, const struct plan_dispatch *d, const struct dev_launch *l, struct err *e)
{
    bool is_empty;
    i64 bytes = buffer_bytes(r, d, &is_empty), n;
    if (!check_grids(d, l->grid, plan_most_iterations(bytes, is_empty), &n, e)) return false;
    if (n == 0) return true; /* nothing runs */
    if (!d->is_value) bytes = buffer_bytes(r, NULL, &is_empty);
    /* Bounds sizes likewise. Programs that do not mark values get looser bounds. */
    i64 most = plan_most_size(bytes, is_empty || !d->is_value);
    for (u32 k = 0; k < d->n_param; k++)
        if (plan_size_is_over(d, k, l->param[k], most))
            return err_set(e, ERR_INPUT, "parameter %u is %lld, which exceeds the needs of its buffers (%lld): the program is invalid", k, (long long)l->param[k],
                           (long long)most);
    return true;
}

static bool bind_launch(struct rt_program *r, struct phase *h, u32 i, struct err *e)
{
    struct bound *b = &r->bound;
    const struct plan_dispatch *d = &r->plan->dispatch.v[i];
    if (d->call) return true;
    i64 *param = arena_array(&h->arena, i64, d->n_param);
    i64(*grid)[3] = (i64(*)[3])arena_alloc(&h->arena, (i64)sizeof(i64[3]) * d->n_grid);
    i64 work;
    bool ok = sym_eval(&r->plan->sym, d->work, b->var, &work) && work >= 0;
    for (u32 k = 0; k < d->n_param && ok; k++)
        ok = sym_eval(&r->plan->sym, d->param[k], b->var, &param[k]);
    for (u32 g = 0; g < d->n_grid; g++)
        for (u32 x = 0; x < 3 && ok; x++)
            ok = sym_eval(&r->plan->sym, d->grid[g].extent[x], b->var, &grid[g][x]) &&
                 grid[g][x] >= 0;
    if (!ok) return err_set(e, ERR_FAILED, "%.*s: the sizes of kernel '%.*s' are negative or too large for these inputs", STR_ARG(d->label), STR_ARG(d->entry));
    b->launch[i] = (struct dev_launch){.kernel = r->kernel[i],
                                       .buf = b->slot[i],
                                       .n_buf = d->n_buf,
                                       .param = param,
                                       .n_param = d->n_param,
                                       .grid = (const i64(*)[3])grid,
                                       .n_grid = d->n_grid,
                                       .work_size = work};
    return check_launch(r, d, &b->launch[i], e) || err_prefix(e, "kernel '%.*s'", STR_ARG(d->entry));
}

static bool grow_block(struct rt_program *r, struct phase *h, struct err *e)
{
    assert(h->total >= 0);
    if (h->block.size >= h->total && h->block.size > 0) return true;
    /* the previous iteration may still be using it */
    if (h->block.size && r->is_inner && !r->dev->driver->fence(r->dev, e)) return false;
    if (h->block.size) r->dev->driver->release(r->dev, &h->block);
    h->block = (struct dev_mem){0};
    /* of a state, which grows with each run: not again with the next ones */
    i64 more = r->is_pinned ? h->total / 2 + (1 << 16) : 0;
    return r->dev->driver->alloc(r->dev, i64_max(h->total + more, 64), &h->block, e) || err_prefix(e, "temporary memory for inputs of these sizes");
}

static bool same_sizes(const struct rt_program *r, const i64 *var)
{
    if (!r->phase[0].is_valid) return false;
    for (u32 v = 0; v < r->plan->sym.var.n; v++)
        if (var[v] != INT64_MIN && r->bound.var[v] != var[v]) return false;
    return true;
}

/* Invalidates phase i and later ones; the sizes made before i are known. */
static void forget(struct rt_program *r, u32 i)
{
    const struct plan *p = r->plan;
    struct bound *b = &r->bound;
    for (u32 k = 0; k < p->buf.n; k++) {
        if (r->phase_of[k] < i) continue;
        bool is_copy = p->buf.v[k].kind != PB_CONST && p->buf.v[k].kind != PB_HELD; /* of inputs and outputs of other sizes */
        if (is_copy && r->mem[k].size && !r->is_pinned) { /* a state's runs change sizes each time */
            r->dev->driver->release(r->dev, &r->mem[k]);
            r->mem[k] = (struct dev_mem){0};
        }
        b->buf_size[k] = -1;
        if (b->laid_in[k] >= i) b->laid_in[k] = UINT32_MAX;
    }
    for (; i < r->n_phases; i++) {
        struct phase *h = &r->phase[i];
        arena_reset(&h->arena);
        h->is_valid = false;
        if (i + 1 == r->n_phases) break;
        for (u32 k = h[1].made_from; k < h[1].made_to; k++) b->var[p->made.v[k].var] = INT64_MIN;
    }
}

/* Known sizes as constants; sizes that are computed later between 0 and their bounds. */
static struct sym_bounds *bound_vars(const struct rt_program *r, struct arena *a)
{
    const struct plan *p = r->plan;
    const struct sym_bounds unknown = {INT64_MIN, INT64_MIN};
    struct sym_bounds *v = arena_array(a, struct sym_bounds, p->sym.var.n + 1), most;
    for (u32 k = 0; k < p->sym.var.n; k++) v[k] = (struct sym_bounds){r->bound.var[k], r->bound.var[k]};
    for (u32 k = 0; k < p->made.n; k++) {
        const struct plan_made *m = &p->made.v[k];
        if (v[m->var].least != INT64_MIN) continue;
        bool is_bounded = m->most && sym_eval_bounds(&p->sym, m->most, v, &most) && most.most >= 0;
        v[m->var] = is_bounded ? (struct sym_bounds){0, most.most} : unknown;
    }
    return v;
}

/* Buffers placed with phase i: those whose size is known from there on, and later ones that cannot become large, to
   avoid allocations after the synchronisation. Large means more than all of those together, and more than 16 MiB. */
static bool lay_out_phase(struct rt_program *r, u32 i, struct err *e)
{
    enum { SMALL = 1 << 24 };
    const struct plan *p = r->plan;
    struct bound *b = &r->bound;
    struct sym_bounds *var = bound_vars(r, &r->scratch), most;
    i64 *size = arena_array(&r->scratch, i64, p->buf.n + 1), large = SMALL;
    for (u32 k = 0; k < p->buf.n; k++) large += i64_min(i64_max(b->buf_size[k], 0), INT64_MAX / 4 - large);
    for (u32 k = 0; k < p->buf.n; k++) {
        size[k] = -1;
        if (p->buf.v[k].kind != PB_TEMP || b->laid_in[k] != UINT32_MAX || r->phase_of[k] < i) continue;
        if (r->phase_of[k] == i) size[k] = b->buf_size[k];
        else if (sym_eval_bounds(&p->sym, p->buf.v[k].size, var, &most) && most.most <= large) size[k] = i64_max(most.most, 0);
        if (size[k] >= 0) b->laid_in[k] = i, b->room[k] = size[k];
    }
    return memory_lay_out(p, size, b->offset, &r->phase[i].total, &r->scratch, e) && grow_block(r, &r->phase[i], e);
}

/* Recomputes the values that depend on sizes first known in phase i. */
static bool rebind(struct rt_program *r, u32 i, struct err *e)
{
    const struct plan *p = r->plan;
    struct bound *b = &r->bound;
    struct phase *h = &r->phase[i];
    bool ok = true;
    forget(r, i);
    for (u32 k = 0; k < p->buf.n && ok; k++)
        if (r->phase_of[k] == i) ok = memory_buf_size(p, k, b->var, &b->buf_size[k], e);
    ok = ok && lay_out_phase(r, i, e);
    for (u32 k = 0; k < p->buf.n && ok; k++)
        if (r->phase_of[k] == i && p->buf.v[k].kind == PB_TEMP && b->buf_size[k] > b->room[k])
            ok = err_set(e, ERR_FAILED, "buffer '%.*s' is larger than its bound", STR_ARG(p->buf.v[k].name));
    for (u32 k = h->from; k < h->to && ok; k++) ok = bind_launch(r, h, k, e);
    return h->is_valid = ok;
}

static struct dev_mem find_mem(const struct rt_program *r, u32 k)
{
    enum plan_buf_kind kind = r->plan->buf.v[k].kind;
    if (kind == PB_CONST) return r->mem[k];
    if (kind == PB_HELD) return r->held[k];
    if (kind != PB_TEMP) return r->io[k];
    if (r->bound.laid_in[k] == UINT32_MAX) return (struct dev_mem){0}; /* unknown size */
    struct dev_mem m = r->phase[r->bound.laid_in[k]].block;
    i64 at = r->bound.offset[k];
    if (m.host) m.host = (char *)m.host + at;
    m.offset += at;
    m.size = r->bound.buf_size[k];
    return m;
}

/* Data-dependent sizes. */

static bool read_elem(struct rt_program *r, const struct plan_made *m, const struct tensor *in, i64 *x, struct err *e)
{
    i64 size = dtype_size(m->dtype), end = (m->elem + 1) * size, have = r->bound.buf_size[m->buf];
    const char *from = NULL;
    char *copy = NULL;
    for (u32 k = 0; k < r->plan->input.n; k++)
        if (r->plan->input.v[k].buf == m->buf) from = in[k].data, have = tensor_bytes(&in[k]);
    struct dev_mem at = from ? (struct dev_mem){0} : find_mem(r, m->buf);
    if (!from) have = i64_min(have, at.size); /* buffers held by calls, or passed to their plans, need not have
                                                 the expected size */
    if (have < end) return err_set(e, ERR_INPUT, "buffer '%.*s' is too short", STR_ARG(r->plan->buf.v[m->buf].name));
    if (!from && r->shares_host) from = at.host;
    if (!from) from = copy = mem_aligned(end);
    if (!from) return err_set(e, ERR_SYSTEM, "not enough memory for a size that is made: %lld bytes", (long long)end);
    bool ok = !copy || r->dev->driver->download(r->dev, at, copy, end, e);
    if (ok) *x = elem_i64(m->dtype, from, m->elem);
    mem_free(copy);
    return ok;
}

/* Reports that value k of the plan is not a valid size. */
static bool fails(const struct plan *p, u32 k, const i64 *var, struct err *e)
{
    struct arena tmp = {0};
    struct buf b = {0};
    struct sym_made *all = arena_array(&tmp, struct sym_made, p->made.n);
    for (u32 i = 0; i < p->made.n; i++) {
        const struct plan_made *m = &p->made.v[i];
        all[i] = (struct sym_made){.var = m->var, .expr = m->expr, .most = m->most, .at = m->elem, .is_negated = m->take == PLAN_MINUS, .need = m->need};
        if (!m->expr) all[i].value = p->buf.v[m->buf].name;
    }
    sym_made_explain(&b, &p->sym, all, p->made.n, k, var);
    err_set(e, ERR_INPUT, "%.*s", STR_ARG(buf_view(&b)));
    buf_release(&b);
    arena_release(&tmp);
    return false;
}

/* INT64_MIN: undefined, or from an element out of range of sizes. */
static bool made_value(struct rt_program *r, const struct plan_made *m, const struct tensor *in, i64 *x, struct err *e)
{
    const i64 far = INT64_C(1) << 40;
    if (m->expr) {
        if (!sym_eval(&r->plan->sym, m->expr, r->bound.var, x)) *x = INT64_MIN;
        return true;
    }
    if (!read_elem(r, m, in, x, e)) return false;
    *x = i64_max(-far, i64_min(*x, far));
    if (m->take == PLAN_MINUS) *x = -*x;
    if (m->take != PLAN_TAKE) *x = i64_max(*x, 0);
    return true;
}

static bool is_size(const struct plan *p, const struct plan_made *m, const i64 *var)
{
    i64 most, x = var[m->var];
    return x >= 0 && (!m->most || !sym_eval(&p->sym, m->most, var, &most) || x <= most);
}

/* Facts about sizes made before phase i can be checked only now; those that are made later have values of an earlier run, if any. */
static bool check_made_facts(const struct rt_program *r, u32 i, struct err *e)
{
    const struct plan *p = r->plan;
    if (!p->sym.fact.n || r->phase[i].made_from == r->phase[i].made_to) return true;
    struct arena tmp = {0};
    i64 *var = arena_array(&tmp, i64, p->sym.var.n + 1);
    memcpy(var, r->bound.var, sizeof *var * p->sym.var.n);
    for (u32 k = r->phase[i].made_to; k < p->made.n; k++) var[p->made.v[k].var] = INT64_MIN;
    bool ok = check_facts(p, var, e);
    arena_release(&tmp);
    return ok;
}

/* Computes the sizes made before phase i; invalidates values derived from other ones. */
static bool make_sizes(struct rt_program *r, u32 i, const struct tensor *in, struct err *e)
{
    const struct plan *p = r->plan;
    struct phase *h = &r->phase[i];
    for (u32 k = h->made_from; k < h->made_to; k++) {
        i64 x = 0, *var = &r->bound.var[p->made.v[k].var], was = *var;
        if (!made_value(r, &p->made.v[k], in, &x, e)) return h->is_valid = false;
        *var = x;
        if (!is_size(p, &p->made.v[k], r->bound.var)) return h->is_valid = fails(p, k, r->bound.var, e);
        if (was != x) h->is_valid = false;
    }
    return check_made_facts(r, i, e) || (h->is_valid = false);
}

static bool bind_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
{
    const struct plan *p = r->plan;
    arena_reset(&r->scratch);
    i64 *var = arena_array(&r->scratch, i64, p->sym.var.n + 1);
    bool ok = true;
    for (u32 k = 0; k < p->input.n && ok; k++) ok = check_input(p, k, &in[k], e);
    if (ok) plan_bind(p, in, r->given, var);
    ok = ok && check_facts(p, var, e) && check_sizes(p, in, var, e);
    if (ok && !same_sizes(r, var)) {
        forget(r, 0);
        memcpy(r->bound.var, var, sizeof *var * p->sym.var.n);
    }
    ok = ok && (!r->is_inner || !r->phase[0].waits || r->dev->driver->fence(r->dev, e)) && make_sizes(r, 0, in, e) && (r->phase[0].is_valid || rebind(r, 0, e));
    return ok;
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
static bool output_dims(const struct rt_program *r, u32 k, struct tensor *out, struct err *e)
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
static bool check_input_bytes(const struct rt_program *r, const struct tensor *in, struct err *e)
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

/* Data-dependent values are not requested here, even if an earlier run left them. */
bool rt_output_dims(struct rt_program *r, const struct tensor *in, struct tensor *out,
                    struct err *e)
{
    if (!bind_inputs(r, in, e) || !check_input_bytes(r, in, e)) return false;
    for (u32 k = 0; k < r->plan->output.n; k++) {
        if (!output_dims(r, k, &out[k], e)) return false;
        for (u32 d = 0; r->is_made[k] && d < out[k].rank; d++)
            if (!is_bound_by_inputs(r, r->plan->output.v[k].dim[d])) out[k].dim[d] = -1;
    }
    return true;
}

/* Results of calls stay in their memory until then. */
static bool fill_slots(struct rt_program *r, u32 i, struct err *e)
{
    const struct plan_dispatch *d = &r->plan->dispatch.v[i];
    for (u32 k = 0; k < d->n_buf; k++) {
        const struct plan_buf *b = &r->plan->buf.v[d->buf[k]];
        struct dev_mem *m = &r->bound.slot[i][k];
        *m = find_mem(r, d->buf[k]);
        if (b->kind != PB_HELD) continue;
        if (m->size < r->bound.buf_size[d->buf[k]]) return err_set(e, ERR_FAILED, "'%.*s' is read before it is computed", STR_ARG(b->name));
        m->size = r->bound.buf_size[d->buf[k]];
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

static bool place_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
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
static bool fill_states(struct rt_program *r, u32 i, const struct tensor *in, struct err *e)
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
    if (!output_dims(r, k, out, e)) return false;
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
static bool place_outputs(struct rt_program *r, u32 i, struct tensor *out, const i64 *room, struct arena *a, struct err *e)
{
    bool ok = true;
    for (u32 k = 0; k < r->plan->output.n && ok; k++)
        if (r->phase_of[r->plan->output.v[k].buf] == i) ok = place_output(r, k, &out[k], room[k], a, e);
    return ok;
}

static bool move_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
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

static bool move_outputs(struct rt_program *r, struct tensor *out, struct err *e)
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
        struct dev_mem from = r->held[b], to = find_mem(r, b);
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
    for (u32 k = 0; k < c->n_in; k++) j.in[k] = find_mem(r, c->in[k].buf);
    if (c->cond != UINT32_MAX) j.cond = find_mem(r, c->cond);
    if (c->sizes != UINT32_MAX) j.sizes = find_mem(r, c->sizes);
    for (u32 k = 0; k < c->n_out; k++) { /* buffers that may be written in place */
        u32 b = c->out[k];
        if (b == UINT32_MAX) continue;
        r->held[b] = (struct dev_mem){0};
        if (r->plan->buf.v[b].kind != PB_HELD && r->phase_of[b] <= phase && (!c->is_loop || k >= c->n_carried))
            j.out[k] = find_mem(r, b), j.is_placed[k] = true;
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

static bool launch_phase(struct rt_program *r, const struct phase *h, struct err *e)
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
static bool launch_all(struct rt_program *r, const struct tensor *in, struct tensor *out, const i64 *room, struct arena *a,
                       struct err *e)
{
    double first = os_now();
    for (u32 i = 0; i < r->n_phases; i++) {
        if (i && !((!r->phase[i].waits || r->dev->driver->fence(r->dev, e)) && make_sizes(r, i, in, e))) return false;
        if (!r->phase[i].is_valid && !rebind(r, i, e)) return false;
        if (!place_outputs(r, i, out, room, a, e) || !fill_states(r, i, in, e)) return false;
        if (!copy_results(r, i, e) || !launch_phase(r, &r->phase[i], e)) return false;
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
    for (u32 k = 0; k < p->output.n; k++) {
        r->room[k] = 0;
        if (out[k].data && r->is_made[k] && !tensor_size_ok(out[k].dtype, out[k].rank, out[k].dim, &r->room[k])) r->room[k] = 0;
    }
    bool ok = bind_inputs(r, in, e) && check_input_bytes(r, in, e) && restore_constants(r, e) && place_inputs(r, in, e) &&
              move_inputs(r, in, e);
    double first = os_now();
    ok = ok && launch_all(r, in, out, r->room, a, e) && finish(r, first, e) && move_outputs(r, out, e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = output_dims(r, k, &out[k], e);
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

static bool borrow(struct rt_program *r, const struct plan_io *io, const void *data, const char *what, struct err *e)
{
    i64 size = r->bound.buf_size[io->buf];
    if (size && (uintptr_t)data % DEV_BORROW_ALIGN)
        return err_set(e, ERR_USAGE, "%s '%.*s' is at address 0x%llx, expected a multiple of %d", what, STR_ARG(io->name),
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
        return err_set(e, ERR_UNSUPPORTED, "device '%s' cannot share memory within this process: arrays must be in host memory", v->name);
    if (plan_has_calls(r->plan))
        return err_set(e, ERR_UNSUPPORTED, "the program has loops or branches, which are decided by the host: run it on arrays in host memory");
    if (r->plan->state.n)
        return err_set(e, ERR_UNSUPPORTED, "output '%.*s' is in the memory of input '%.*s': run the program on arrays in host memory, or with a state",
                       STR_ARG(r->plan->output.v[r->plan->state.v[0].output].name), STR_ARG(r->plan->input.v[r->plan->state.v[0].input].name));
    if (r->plan->made.n)
        return err_set(e, ERR_UNSUPPORTED, "size '%.*s' is computed while the program runs, which needs synchronisation: run it on arrays in host memory",
                       STR_ARG(r->plan->sym.var.v[r->plan->made.v[0].var]));
    bool ok = rt_output_dims(r, in, arena_array(&tmp, struct tensor, r->plan->output.n + 1), e) && borrow_all(r, in, out, e);
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

i64 rt_memory_used(const struct rt_program *r)
{
    i64 sum = 0;
    for (u32 i = 0; i < r->n_phases; i++) sum += r->phase[i].is_valid ? r->phase[i].total : 0;
    for (u32 i = 0; i < r->plan->dispatch.n; i++) sum += r->call[i] ? call_memory_used(r->call[i]) : 0;
    return sum;
}

/* Plans in plans. */

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
    bool ok = bind_inputs(r, x->in, e) && check_input_bytes(r, x->in, e) && check_memory(r, x, e) &&
              (r->n_lost == r->dev->n_lost || load_constants(r, e)) && launch_all(r, x->in, x->out, room, &tmp, e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = output_dims(r, k, &x->out[k], e);
    r->inner = NULL;
    arena_release(&tmp);
    return ok;
}

static const struct inner_program inner_program = {.load = load_inner, .run = run_inner, .memory_used = rt_memory_used, .unload = rt_unload};
