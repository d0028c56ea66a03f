// SPDX-License-Identifier: Apache-2.0
//
// From a plan to the steps that a command buffer records. A step is a grid of a dispatch. It waits
// for the steps before it only if it depends on one since the last barrier: reads what that wrote,
// or writes what that read or wrote. Temporary buffers share memory by the barriers between which
// they are used, so that steps without a barrier between them never use the same memory for
// different buffers.
#include "export/export_vulkan_c.h"

#include <string.h>

struct state { /* of a buffer since the last barrier */
    bool is_read, is_written;
};

struct builder {
    struct vkc_model *m;
    const struct plan *p;
    struct state *state; /* per buffer */
    u32 (*epoch)[2];     /* per dispatch: barriers before its first and its last step */
    u32 n_barrier;
    struct spirv_info *info; /* per binary; n_entry 0: not read */
    struct arena *a;
    struct err *e;
};

bool vkc_has_capability(const struct vkc_model *m, u32 capability)
{
    for (u32 k = 0; k < m->n_capability; k++)
        if (m->capability[k] == capability) return true;
    return false;
}

/* What is not recorded in one command buffer. */
static bool check_plan(const struct plan *p, struct err *e)
{
    if (p->state.n)
        return err_set(e, ERR_UNSUPPORTED,
                       "the program has caches in place, which recorded commands cannot keep: "
                       "compile it without --state");
    if (plan_has_calls(p))
        return err_set(e, ERR_UNSUPPORTED,
                       "the program has loops or branches that are decided at run time, but the "
                       "commands are recorded before it");
    if (p->made.n)
        return err_set(e, ERR_UNSUPPORTED,
                       "size '%.*s' is computed while the program runs, but the commands are "
                       "recorded before it",
                       STR_ARG(p->sym.var.v[p->made.v[0].var]));
    if (p->given.n)
        return err_set(e, ERR_UNSUPPORTED, "size '%.*s' follows from no input",
                       STR_ARG(p->sym.var.v[p->given.v[0]]));
    if (p->input.n == 0) return err_set(e, ERR_UNSUPPORTED, "network without inputs");
    for (u32 k = 0; k < p->output.n; k++)
        for (u32 i = 0; i < k; i++)
            if (p->output.v[i].buf == p->output.v[k].buf)
                return err_set(e, ERR_UNSUPPORTED, "outputs '%.*s' and '%.*s' are one buffer",
                               STR_ARG(p->output.v[i].name), STR_ARG(p->output.v[k].name));
    return true;
}

/* Modules and kernels. */

static bool add_capability(struct builder *b, u32 capability)
{
    struct vkc_model *m = b->m;
    if (vkc_has_capability(m, capability)) return true;
    if (m->n_capability == VKC_CAPABILITIES)
        return err_set(b->e, ERR_INPUT, "more than %d capabilities", VKC_CAPABILITIES);
    m->capability[m->n_capability++] = capability;
    return true;
}

static u32 minor_of(u32 spirv) { return spirv >= 16 ? 3 : spirv >= 14 ? 2 : spirv > 10 ? 1 : 0; }

static bool read_module(struct builder *b, u32 bin, u32 *number)
{
    struct vkc_model *m = b->m;
    const struct plan_bin *x = &b->p->bin.v[bin];
    struct spirv_info *info = &b->info[bin];
    for (*number = 0; *number < m->module.n; ++*number)
        if (m->module.v[*number] == bin) return true;
    if (!str_is(x->lang, "spirv"))
        return err_set(
            b->e, ERR_UNSUPPORTED,
            "program is in language '%.*s', Vulkan runs 'spirv': compile it for a Vulkan device",
            STR_ARG(x->lang));
    if (!spirv_read_info(info, x->code, b->e)) return false;
    if (info->n_set > 1)
        return err_set(b->e, ERR_UNSUPPORTED, "kernel uses descriptor set %u", info->n_set - 1);
    if (info->push_bytes % 4 || info->push_bytes > INT32_MAX)
        return err_set(b->e, ERR_INPUT, "%lld bytes of push constants",
                       (long long)info->push_bytes);
    *arr_push(b->a, &m->module) = bin;
    m->version = minor_of(info->version) > m->version ? minor_of(info->version) : m->version;
    m->shared_bytes = i64_max(m->shared_bytes, info->shared_bytes);
    m->needs_subgroup_size |= info->subgroup != 0;
    for (u32 k = 0; k < info->n_capability; k++)
        if (!add_capability(b, info->capability[k])) return false;
    return true;
}

static bool add_floats(struct builder *b, const struct spirv_grid *g)
{
    struct vkc_model *m = b->m;
    for (u32 i = 0; i < g->n_floats; i++) {
        u32 k = 0;
        while (k < m->n_floats &&
               (m->floats[k].mode != g->floats[i].mode || m->floats[k].width != g->floats[i].width))
            k++;
        if (k < m->n_floats) continue;
        if (k == SPIRV_MAX_FLOATS)
            return err_set(b->e, ERR_INPUT, "more than %d controls of floats", SPIRV_MAX_FLOATS);
        m->floats[m->n_floats++] = g->floats[i];
    }
    return true;
}

static u32 add_kernel(struct builder *b, const struct vkc_kernel *k)
{
    struct vkc_model *m = b->m;
    for (u32 i = 0; i < m->kernel.n; i++)
        if (m->kernel.v[i].module == k->module && str_eq(m->kernel.v[i].entry, k->entry)) return i;
    *arr_push(b->a, &m->kernel) = *k;
    return m->kernel.n - 1;
}

/* How the kernel receives its parameters, from its declarations (dev_vulkan_launch.c). */
static bool find_form(struct builder *b, struct vkc_step *s, const struct vkc_kernel *k)
{
    const struct plan_dispatch *d = &b->p->dispatch.v[s->dispatch];
    i64 plain = 4 * (i64)d->n_param, with_base = plain + 4 * VKC_BASE;
    bool by_push = k->n_binding <= d->n_buf;
    s->n_buffer = by_push ? k->n_binding : d->n_buf;
    s->form = !by_push                     ? VKC_IN_MEMORY
              : k->push_bytes == with_base ? VKC_PUSHED_WITH_BASE
              : k->push_bytes              ? VKC_PUSHED
                                           : VKC_NONE;
    bool fits = by_push ? k->push_bytes == 0 || k->push_bytes == plain || k->push_bytes == with_base
                        : k->n_binding == d->n_buf + 1 && k->push_bytes == 0;
    enum { MOST = 16000 }; /* vkCmdUpdateBuffer writes 64 KiB */
    if (fits && k->n_binding > 0 && d->n_param <= MOST) return true;
    return err_set(b->e, ERR_INPUT,
                   "kernel has %u bindings and %u bytes of push constants, which does not fit %u "
                   "buffers and %u parameters",
                   k->n_binding, k->push_bytes, d->n_buf, d->n_param);
}

/* Buffers. */

static u32 add_buffer(struct builder *b, u32 buf)
{
    struct vkc_model *m = b->m;
    if (m->number[buf] != UINT32_MAX) return m->number[buf];
    m->number[buf] = m->buffer.n;
    *arr_push(b->a, &m->buffer) = (struct vkc_buffer){.buf = buf};
    return m->number[buf];
}

/* Whether the step depends on one since the last barrier. */
static bool depends(const struct builder *b, const struct vkc_step *s, const u8 *use)
{
    const u32 *buf = b->p->dispatch.v[s->dispatch].buf;
    for (u32 i = 0; i < s->n_buffer; i++) {
        struct state x = b->state[buf[i]];
        if ((use[i] && x.is_written) || (use[i] & USE_WRITE && x.is_read)) return true;
    }
    return false;
}

static bool note_uses(struct builder *b, struct vkc_step *s, const u8 *use)
{
    const struct plan_dispatch *d = &b->p->dispatch.v[s->dispatch];
    s->waits = depends(b, s, use);
    if (s->waits) b->n_barrier++, memset(b->state, 0, sizeof *b->state * b->p->buf.n);
    for (u32 i = 0; i < s->n_buffer; i++) {
        const struct plan_buf *x = &b->p->buf.v[d->buf[i]];
        if (use[i] & USE_WRITE && (x->kind == PB_CONST || x->kind == PB_INPUT))
            return err_set(b->e, ERR_UNSUPPORTED, "kernel writes into '%.*s', which is not its own",
                           STR_ARG(x->name));
        b->state[d->buf[i]].is_read |= use[i] & USE_READ;
        b->state[d->buf[i]].is_written |= (use[i] & USE_WRITE) != 0;
        add_buffer(b, d->buf[i]);
    }
    if (s->grid == 0) b->epoch[s->dispatch][0] = b->n_barrier;
    b->epoch[s->dispatch][1] = b->n_barrier;
    return true;
}

static bool add_step(struct builder *b, u32 dispatch, u32 grid, struct arena *scratch)
{
    const struct plan_dispatch *d = &b->p->dispatch.v[dispatch];
    const struct spirv_info *info = &b->info[d->bin];
    struct vkc_step s = {.dispatch = dispatch, .grid = grid};
    struct vkc_kernel k = {.entry = str_fmt(b->a, "%.*s_%u", STR_ARG(d->entry), grid)};
    struct spirv_grid g;
    if (!read_module(b, d->bin, &k.module) ||
        !spirv_grid_read(&g, b->p->bin.v[d->bin].code, k.entry, scratch, b->e) ||
        !add_floats(b, &g))
        return false;
    k.n_binding = info->n_binding, k.push_bytes = (u32)info->push_bytes,
    k.subgroup = info->subgroup;
    memcpy(k.local, g.local, sizeof k.local);
    if (!find_form(b, &s, &k)) return false;
    s.kernel = add_kernel(b, &k);
    if (!note_uses(b, &s, g.use)) return false;
    *arr_push(b->a, &b->m->step) = s;
    return true;
}

static bool add_steps(struct builder *b)
{
    struct arena scratch = {0};
    bool ok = true;
    for (u32 i = 0; i < b->p->dispatch.n && ok; i++) {
        const struct plan_dispatch *d = &b->p->dispatch.v[i];
        for (u32 g = 0; g < d->n_grid && ok; g++) {
            ok = add_step(b, i, g, &scratch) ||
                 err_prefix(b->e, "dispatch '%.*s'", STR_ARG(d->label));
            arena_reset(&scratch);
        }
    }
    arena_release(&scratch);
    return ok;
}

/* Kernels of a module are made in a row, so that one module is held at a time. */
static void sort_kernels(struct builder *b)
{
    struct vkc_model *m = b->m;
    struct vkc_kernel *old = m->kernel.v;
    u32 n = 0, *to = arena_array(b->a, u32, m->kernel.n + 1);
    m->kernel.v = arena_array(b->a, struct vkc_kernel, m->kernel.n + 1);
    for (u32 x = 0; x < m->module.n; x++)
        for (u32 k = 0; k < m->kernel.n; k++)
            if (old[k].module == x) to[k] = n, m->kernel.v[n++] = old[k];
    for (u32 i = 0; i < m->step.n; i++) m->step.v[i].kernel = to[m->step.v[i].kernel];
}

static bool place_constants(struct builder *b)
{
    struct vkc_model *m = b->m;
    for (u32 k = 0; k < m->buffer.n; k++) {
        struct vkc_buffer *x = &m->buffer.v[k];
        const struct plan_buf *buf = &b->p->buf.v[x->buf];
        if (buf->kind == PB_TEMP)
            x->first = b->epoch[buf->first][0], x->last = b->epoch[buf->last][1];
        if (buf->kind != PB_CONST) continue;
        x->at = m->weights;
        if (buf->data_size > INT32_MAX - VKC_ALIGN)
            return err_set(b->e, ERR_UNSUPPORTED, "constant '%.*s' has 2 GiB and more",
                           STR_ARG(buf->name));
        m->weights += round_up(i64_max(buf->data_size, 1), VKC_ALIGN);
    }
    return true;
}

/* Expressions. */

static void mark_size(struct vkc_model *m, sym s)
{
    const struct sym_node *x = &m->plan->sym.node.v[s];
    if (s == 0 || m->size[s]) return;
    m->size[s] = 1;
    if (x->op == SYM_CONST || x->op == SYM_VAR) return;
    mark_size(m, x->a);
    mark_size(m, x->b);
}

static void mark_io(struct vkc_model *m, const struct plan_io *io)
{
    for (u32 d = 0; d < io->rank; d++) mark_size(m, io->dim[d]);
}

static void number_sizes(struct vkc_model *m)
{
    const struct plan *p = m->plan;
    for (u32 i = 0; i < m->step.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[m->step.v[i].dispatch];
        for (u32 x = 0; x < 3; x++) mark_size(m, d->grid[m->step.v[i].grid].extent[x]);
        for (u32 k = 0; k < d->n_param; k++) mark_size(m, d->param[k]);
    }
    for (u32 k = 0; k < m->buffer.n; k++) mark_size(m, p->buf.v[m->buffer.v[k].buf].size);
    for (u32 k = 0; k < p->input.n; k++) mark_io(m, &p->input.v[k]);
    for (u32 k = 0; k < p->output.n; k++) mark_io(m, &p->output.v[k]);
    for (u32 k = 0; k < p->sym.fact.n; k++)
        mark_size(m, p->sym.fact.v[k].a), mark_size(m, p->sym.fact.v[k].b);
    for (sym s = 1; s < p->sym.node.n; s++) /* operands have smaller numbers than their users */
        if (m->size[s]) m->size[s] = ++m->n_size;
}

/* A member of a struct in C and C++: "batch", "H", "size_int". */
static struct str var_name(const struct vkc_model *m, struct arena *a, u32 v)
{
    struct str s = m->plan->sym.var.v[v];
    char *z = arena_alloc(a, s.n + 1);
    for (i64 i = 0; i < s.n; i++) {
        char c = s.p[i];
        z[i] =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'
                ? c
                : '_';
    }
    bool is_upper = s.n > 0 && z[0] >= 'A' && z[0] <= 'Z';
    struct str name = {z, s.n};
    /* words of the languages and of headers are in lower case, and short */
    enum { MAX_NAME = 60 };
    bool is_free = s.n > 0 && s.n < MAX_NAME &&
                   (is_upper || str_is(name, "batch") || str_is(name, "sequence") ||
                    str_is(name, "height") || str_is(name, "width"));
    if (!is_free) name = str_fmt(a, "size%u_%.*s", v, (int)i64_min(s.n, MAX_NAME), z);
    for (u32 i = 0; i < v; i++)
        if (str_eq(m->var[i], name)) return str_fmt(a, "size%u", v);
    return name;
}

bool vkc_model_init(struct vkc_model *m, const struct plan *p, struct arena *a, struct err *e)
{
    struct builder b = {.m = m, .p = p, .a = a, .e = e};
    m->plan = p;
    m->number = arena_array(a, u32, p->buf.n + 1);
    m->size = arena_array(a, u32, p->sym.node.n + 1);
    m->var = arena_array(a, struct str, p->sym.var.n + 1);
    b.state = arena_array(a, struct state, p->buf.n + 1);
    b.epoch = (u32(*)[2])arena_alloc(a, (i64)sizeof(u32[2]) * (p->dispatch.n + 1));
    b.info = arena_array(a, struct spirv_info, p->bin.n + 1);
    for (u32 k = 0; k < p->buf.n; k++) m->number[k] = UINT32_MAX;
    for (u32 v = 0; v < p->sym.var.n; v++) m->var[v] = var_name(m, a, v);
    if (!check_plan(p, e)) return false;
    for (u32 k = 0; k < p->input.n; k++) add_buffer(&b, p->input.v[k].buf);
    for (u32 k = 0; k < p->output.n; k++) add_buffer(&b, p->output.v[k].buf);
    if (!add_steps(&b)) return false;
    if (!m->step.n) return err_set(e, ERR_UNSUPPORTED, "the program has no kernels");
    sort_kernels(&b);
    number_sizes(m);
    return place_constants(&b);
}

void vkc_model_weights(const struct vkc_model *m, struct buf *out)
{
    static const char zeros[VKC_ALIGN];
    for (u32 k = 0; k < m->buffer.n; k++) {
        const struct plan_buf *b = &m->plan->buf.v[m->buffer.v[k].buf];
        if (b->kind != PB_CONST) continue;
        i64 room = round_up(i64_max(b->data_size, 1), VKC_ALIGN);
        buf_put(out, b->data, b->data_size);
        buf_put(out, zeros, room - b->data_size);
    }
    assert(out->failed || out->n == m->weights);
}

u64 vkc_digest(struct str bytes)
{
    u64 h = UINT64_C(0xcbf29ce484222325);
    for (i64 i = 0; i < bytes.n; i += 8) {
        u64 w = 0;
        memcpy(&w, bytes.p + i, (size_t)i64_min(8, bytes.n - i));
        h = (h ^ w) * UINT64_C(0x100000001b3);
        h ^= h >> 29;
    }
    return h;
}
