// SPDX-License-Identifier: Apache-2.0
//
// A candidate's kernel and its memory on a device: guard bands around every buffer, inputs filled
// by the check, all else poisoned, and enough copies of constants to leave them cold, as in a
// network.
#include "tune/instance.h"

#include <string.h>

enum { GUARD = 4096, GUARD_BYTE = 0xA5, COLD_CONST = 512 << 10, MAX_VARIANTS = 64 };

static bool alloc_guarded(const struct on *d, i64 size, struct dev_mem *whole, struct dev_mem *mem,
                          struct err *e)
{
    if (!d->driver->alloc(d->dev, round_up(size, 64) + 2 * GUARD, whole, e)) return false;
    *mem = *whole;
    mem->size = size;
    mem->offset += GUARD;
    if (mem->host) mem->host = (char *)mem->host + GUARD;
    return true;
}

static struct dev_mem guard_of(struct dev_mem whole, i64 size, bool behind)
{
    i64 at = behind ? GUARD + size : 0;
    struct dev_mem m = whole;
    m.size = behind ? whole.size - at : GUARD;
    m.offset += at;
    if (m.host) m.host = (char *)m.host + at;
    return m;
}

static bool set_guards(const struct on *d, const struct instance *x, u32 k, struct err *e)
{
    char band[GUARD + 64];
    memset(band, GUARD_BYTE, sizeof band);
    for (int b = 0; b < 2; b++) {
        struct dev_mem g = guard_of(x->whole[k], x->size[k], b);
        if (!d->driver->upload(d->dev, g, band, i64_min(g.size, (i64)sizeof band), e))
            return false;
    }
    return true;
}

bool instance_guards_intact(const struct instance *x, const struct on *d, u32 k, struct err *e)
{
    char band[GUARD + 64];
    for (int b = 0; b < 2; b++) {
        struct dev_mem g = guard_of(x->whole[k], x->size[k], b);
        i64 n = i64_min(g.size, (i64)sizeof band);
        if (!d->driver->download(d->dev, g, band, n, e)) return false;
        for (i64 i = 0; i < n; i++)
            if ((u8)band[i] != GUARD_BYTE)
                return err_set(e, ERR_FAILED, "wrote %s buffer %u", b ? "after" : "before", k);
    }
    return true;
}

/* The value whose content a buffer begins with: of a result in the memory of an input, that one; 0: of other results. */
static value_id content_of(const struct graph *g, const struct kernel_arg *a) { return a->is_out ? graph_value(g, a->v)->shares : a->v; }

/* The bytes of buffer arg in the order the kernel expects, in the arena (or the check's own
   memory). */
static const void *content(struct instance *x, u32 arg, i64 *size)
{
    const struct check *k = x->k;
    const struct kernel_arg *a = &x->s->kernel.arg[arg];
    const struct value *v = graph_value(&k->task->g, a->v);
    const value_id of = content_of(&k->task->g, a);
    const struct tensor *t = &k->value[of];
    struct place at;
    if (a->pack) {
        struct tensor *p = pack_apply(a->pack, t, k->task->g.sym, &x->arena, NULL);
        *size = p ? tensor_bytes(p) : -1;
        return p ? p->data : NULL;
    }
    if (!place_of(&at, &k->task->g, a->v, k->var)) return NULL;
    *size = at.count * dtype_size(v->dtype);
    if (!of) return NULL;
    if (!at.whole && (v->layout == LAYOUT_ROWS || (!k->want && *size == tensor_bytes(t))))
        return t->data; /* random in any layout */
    void *p = arena_try(&x->arena, *size, NULL, "an argument");
    if (!p) *size = -1;
    if (!p) return NULL;
    if (at.whole) memset(p, POISON_BYTE, (size_t)*size); /* other parts must not be read */
    place_store(&at, t, p);
    return p;
}

bool mem_poison(const struct on *d, struct dev_mem m, i64 size, struct err *e)
{
    char piece[1 << 16];
    memset(piece, POISON_BYTE, sizeof piece);
    for (i64 at = 0; at < size; at += (i64)sizeof piece) {
        struct dev_mem part = m;
        part.offset += at;
        if (part.host) part.host = (char *)part.host + at;
        if (!d->driver->upload(d->dev, part, piece, i64_min(size - at, (i64)sizeof piece), e))
            return false;
    }
    return true;
}

static bool fill_buffer(struct instance *x, const struct on *d, u32 i, struct err *e)
{
    const struct kernel *kn = &x->s->kernel;
    i64 size = 0;
    if (i < kn->n_arg) {
        x->content[i] = content(x, i, &size);
        if (size < 0) return err_set(e, ERR_FAILED, "a constant cannot be rearranged");
    } else if (!sym_eval(x->k->task->g.sym, kn->temp[i - kn->n_arg], x->k->var, &size)) {
        return err_set(e, ERR_FAILED, "size of a temporary array cannot be computed");
    }
    x->size[i] = size;
    if (!alloc_guarded(d, size, &x->whole[i], &x->mem[i], e) || !set_guards(d, x, i, e)) return false;
    const void *p = x->content[i];
    return p ? d->driver->upload(d->dev, x->mem[i], p, size, e) : mem_poison(d, x->mem[i], size, e);
}

/* Foreign devices may check bounds and drop accesses outside them. So the guard after a buffer is
   bound with it, and writes to it are found. */
static const struct dev_mem *with_guards(const struct on *d, struct instance *x, u32 n)
{
    struct caps caps;
    if (!d->driver->is_foreign) return x->mem;
    d->driver->caps(d->dev, &caps);
    struct dev_mem *m = arena_array(&x->arena, struct dev_mem, n + 1);
    for (u32 i = 0; i < n; i++) {
        m[i] = x->mem[i];
        if (caps.max_buffer == 0 || m[i].size + GUARD <= caps.max_buffer) m[i].size += GUARD;
    }
    return m;
}

static bool set_launch(struct instance *x, const struct on *d, struct err *e)
{
    const struct kernel *kn = &x->s->kernel;
    const struct symtab *st = x->k->task->g.sym;
    const i64 *var = x->k->var;
    i64 *param = arena_array(&x->arena, i64, kn->n_param + 1), work = 0;
    i64(*grid)[3] = (i64(*)[3])arena_alloc(&x->arena, (i64)sizeof(i64[3]) * (kn->n_grid + 1));
    bool ok = !kn->work || sym_eval(st, kn->work, var, &work);
    for (u32 i = 0; i < kn->n_param && ok; i++) ok = sym_eval(st, kn->param[i], var, &param[i]);
    for (u32 g = 0; g < kn->n_grid; g++)
        for (u32 k = 0; k < 3 && ok; k++) {
            grid[g][k] = 1;
            if (k < kn->grid[g].n) ok = sym_eval(st, kn->grid[g].extent[k], var, &grid[g][k]);
        }
    if (!ok) return err_set(e, ERR_FAILED, "sizes of the kernel cannot be computed");
    x->launch = (struct dev_launch){.kernel = x->kernel,
                                    .buf = with_guards(d, x, kn->n_arg + kn->n_temp),
                                    .n_buf = kn->n_arg + kn->n_temp,
                                    .param = param,
                                    .n_param = kn->n_param,
                                    .grid = (const i64(*)[3])grid,
                                    .n_grid = kn->n_grid,
                                    .work_size = work};
    return true;
}

static bool share_buffer(struct instance *x, const struct instance *with, u32 i)
{
    const struct kernel *kn = &x->s->kernel;
    if (!with || with->k != x->k || i >= kn->n_arg || kn->arg[i].pack || kn->arg[i].is_out) return false;
    for (u32 k = 0; k < with->s->kernel.n_arg; k++) {
        const struct kernel_arg *a = &with->s->kernel.arg[k];
        if (a->v != kn->arg[i].v || a->pack || a->is_out) continue;
        x->is_shared[i] = true;
        x->whole[i] = with->whole[k];
        x->mem[i] = with->mem[k];
        x->size[i] = with->size[k];
        x->content[i] = with->content[k];
        return true;
    }
    return false;
}

void subject_take_operands(struct subject *s, const value_id v[LIBRARY_OPERANDS], struct arena *a)
{
    s->kernel.arg = arena_array(a, struct kernel_arg, LIBRARY_OPERANDS);
    s->kernel.n_arg = LIBRARY_OPERANDS;
    for (u32 i = 0; i < LIBRARY_OPERANDS; i++) s->kernel.arg[i].v = v[i];
    s->kernel.arg[LIBRARY_OPERANDS - 1].is_out = true;
    s->kernel.grid = arena_alloc(a, (i64)sizeof *s->kernel.grid);
    s->kernel.n_grid = 1;
}

struct dev_kernel *instance_load(const struct on *d, const struct subject *s, struct err *e)
{
    struct buf name = {0};
    struct dev_kernel *k = s->gemm ? d->driver->gemm(d->dev, s->gemm, &name, e)
                           : s->conv  ? d->driver->conv(d->dev, s->conv, &name, e)
                                      : d->driver->load(d->dev, s->code, str_of(s->kernel.name), s->kernel.n_grid, e);
    buf_release(&name);
    return k;
}

static void take_kernel(struct instance *x, const struct on *d, struct err *e)
{
    u32 i = 0;
    while (i < d->n_loaded && d->loaded[i].s != x->s) i++;
    x->is_kept = i < d->n_loaded;
    if (!x->is_kept) x->kernel = instance_load(d, x->s, e);
    else if (d->loaded[i].kernel) x->kernel = d->loaded[i].kernel;
    else err_set(e, d->loaded[i].e.code, "%s", d->loaded[i].e.msg);
}

bool instance_open(struct instance *x, const struct on *d, const struct subject *s, const struct check *k, const struct instance *with,
                   struct err *e)
{
    u32 n = s->kernel.n_arg + s->kernel.n_temp;
    *x = (struct instance){.s = s, .k = k, .n_variants = 1};
    x->whole = arena_array(&x->arena, struct dev_mem, n + 1);
    x->is_shared = arena_array(&x->arena, bool, n + 1);
    x->mem = arena_array(&x->arena, struct dev_mem, n + 1);
    x->size = arena_array(&x->arena, i64, n + 1);
    x->content = arena_array(&x->arena, const void *, n + 1);
    x->variant = arena_array(&x->arena, struct dev_mem *, MAX_VARIANTS);
    x->variant[0] = x->mem;
    take_kernel(x, d, e);
    if (!x->kernel) return false;
    for (u32 i = 0; i < n; i++)
        if (!share_buffer(x, with, i) && !fill_buffer(x, d, i, e)) return false;
    return set_launch(x, d, e);
}

/* Makes a shared buffer its own. */
static bool feed_buffer(struct instance *x, const struct on *d, u32 i, struct err *e)
{
    i64 size = 0;
    if (x->is_shared[i]) {
        x->is_shared[i] = false;
        x->whole[i] = (struct dev_mem){0};
        return fill_buffer(x, d, i, e);
    }
    x->content[i] = content(x, i, &size);
    if (size != x->size[i]) return err_set(e, ERR_FAILED, "a constant cannot be rearranged");
    return d->driver->upload(d->dev, x->mem[i], x->content[i], size, e);
}

bool instance_feed(struct instance *x, const struct on *d, const struct check *k, struct err *e)
{
    assert(k->task == x->k->task);
    x->k = k;
    for (u32 i = 0; i < x->s->kernel.n_arg; i++)
        if (content_of(&k->task->g, &x->s->kernel.arg[i]) && !feed_buffer(x, d, i, e)) return false;
    return set_launch(x, d, e);
}

void instance_close(struct instance *x, const struct on *d)
{
    if (!x->s) return;
    for (u32 i = 0; i < x->s->kernel.n_arg + x->s->kernel.n_temp; i++)
        if (!x->is_shared[i] && x->whole[i].size) d->driver->release(d->dev, &x->whole[i]);
    for (u32 i = 0; i < x->n_copies; i++) d->driver->release(d->dev, &x->copies[i]);
    if (x->kernel && !x->is_kept) d->driver->unload(d->dev, x->kernel);
    arena_release(&x->arena);
    *x = (struct instance){0};
}

/* In a network, a layer's large weights were evicted by those of other layers since the last
   inference; its activations were not. So constants above a size have several copies, twice the
   last-level cache in total, used in turn. */

static bool is_constant(const struct instance *x, u32 i)
{
    const struct kernel *kn = &x->s->kernel;
    return i < kn->n_arg && graph_value(&x->k->task->g, kn->arg[i].v)->is_const;
}

static i64 n_variants(const struct instance *x, const struct on *d)
{
    i64 bytes = 0;
    struct caps caps = {0};
    for (u32 i = 0; i < x->s->kernel.n_arg; i++)
        if (is_constant(x, i)) bytes += x->size[i];
    if (bytes < COLD_CONST) return 1;
    d->driver->caps(d->dev, &caps);
    return i64_min(MAX_VARIANTS, ceil_div(2 * i64_max(caps.l3_bytes, caps.l2_bytes), bytes) + 1);
}

static bool copy_const(struct instance *x, const struct on *d, struct dev_mem *mem, u32 i, struct err *e)
{
    struct dev_mem whole;
    if (!alloc_guarded(d, x->size[i], &whole, mem, e)) return false;
    x->copies[x->n_copies++] = whole;
    return d->driver->upload(d->dev, *mem, x->content[i], x->size[i], e);
}

bool instance_vary(struct instance *x, const struct on *d, struct err *e)
{
    u32 n_buf = x->launch.n_buf;
    u32 want = (u32)n_variants(x, d);
    x->copies = arena_array(&x->arena, struct dev_mem, want * (n_buf + 1));
    for (; x->n_variants < want; x->n_variants++) {
        struct dev_mem *v = x->variant[x->n_variants] = arena_array(&x->arena, struct dev_mem, n_buf + 1);
        for (u32 i = 0; i < n_buf; i++) {
            v[i] = x->mem[i];
            if (is_constant(x, i) && !copy_const(x, d, &v[i], i, e)) return false;
        }
    }
    return true;
}
