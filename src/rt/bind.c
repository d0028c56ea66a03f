// SPDX-License-Identifier: Apache-2.0
//
// Sizes of a program's run: checks those of inputs, reads those that data decide, and computes what follows from them, parameters of
// kernels and places of temporary buffers, phase by phase.
#include "rt/rt_program.h"

#include <string.h>

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
bool bind_phase(struct rt_program *r, u32 i, struct err *e)
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

struct dev_mem bind_memory(const struct rt_program *r, u32 k)
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
    struct dev_mem at = from ? (struct dev_mem){0} : bind_memory(r, m->buf);
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
bool bind_made(struct rt_program *r, u32 i, const struct tensor *in, struct err *e)
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

bool bind_inputs(struct rt_program *r, const struct tensor *in, struct err *e)
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
    ok = ok && (!r->is_inner || !r->phase[0].waits || r->dev->driver->fence(r->dev, e)) && bind_made(r, 0, in, e) && (r->phase[0].is_valid || bind_phase(r, 0, e));
    return ok;
}
