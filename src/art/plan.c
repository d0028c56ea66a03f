// SPDX-License-Identifier: Apache-2.0
//
// What every plan must satisfy, wherever it came from. Readers of files rely on it: behind
// plan_verify no index is out of range and no expression uses an unbound variable.
#include "art/art.h"

enum { MAX_WORK_DIMS = 3 };

static bool check_sym(const struct plan *p, sym s, const char *what, struct err *e)
{
    if (s == 0 || s >= p->sym.node.n)
        return err_set(e, ERR_INPUT, "%s is not an expression of this plan", what);
    return true;
}

static bool check_io(const struct plan *p, const struct plan_io *io, enum plan_buf_kind kind,
                     struct err *e)
{
    if (io->rank > MAX_RANK || io->dtype <= DT_NONE || io->dtype >= N_DTYPES)
        return err_set(e, ERR_INPUT, "interface '%.*s' has no valid type", STR_ARG(io->name));
    if (io->buf >= p->buf.n || p->buf.v[io->buf].kind != kind)
        return err_set(e, ERR_INPUT, "interface '%.*s' has no buffer of its own",
                       STR_ARG(io->name));
    for (u32 d = 0; d < io->rank; d++)
        if (!check_sym(p, io->dim[d], "an interface size", e)) return false;
    return true;
}

static bool check_buf(const struct plan *p, const struct plan_buf *b, struct err *e)
{
    if (!check_sym(p, b->size, "a buffer size", e)) return false;
    if (b->first > b->last || (p->dispatch.n > 0 && b->last >= p->dispatch.n))
        return err_set(e, ERR_INPUT, "buffer '%.*s' lives outside the plan", STR_ARG(b->name));
    i64 n;
    if (b->kind == PB_CONST &&
        (!sym_is_const(&p->sym, b->size, &n) || n != b->data_size || (n > 0 && !b->data)))
        return err_set(e, ERR_INPUT, "constant '%.*s' does not have its size", STR_ARG(b->name));
    return true;
}

static bool check_dispatch(const struct plan *p, u32 at, struct err *e)
{
    const struct plan_dispatch *d = &p->dispatch.v[at];
    if (d->bin >= p->bin.n) return err_set(e, ERR_INPUT, "dispatch %u has no binary", at);
    if (d->n_grid == 0 || d->entry.n == 0)
        return err_set(e, ERR_INPUT, "dispatch %u has no kernel", at);
    for (u32 i = 0; i < d->n_buf; i++) {
        if (d->buf[i] >= p->buf.n)
            return err_set(e, ERR_INPUT, "dispatch %u names a buffer that is not there", at);
        const struct plan_buf *b = &p->buf.v[d->buf[i]];
        if (b->first > at || b->last < at)
            return err_set(e, ERR_INPUT, "dispatch %u uses buffer '%.*s' outside its life", at,
                           STR_ARG(b->name));
    }
    for (u32 i = 0; i < d->n_param; i++)
        if (!check_sym(p, d->param[i], "a kernel parameter", e)) return false;
    for (u32 i = 0; i < d->n_grid; i++)
        for (u32 x = 0; x < MAX_WORK_DIMS; x++)
            if (!check_sym(p, d->grid[i].extent[x], "a grid size", e)) return false;
    return check_sym(p, d->work, "a scratch size", e);
}

/* Every variable is the whole size of some input axis, so that inputs bind it. */
static bool check_vars(const struct plan *p, struct err *e)
{
    if (p->var.n != p->sym.var.n)
        return err_set(e, ERR_INPUT, "variables and their values differ in number");
    for (u32 v = 0; v < p->sym.var.n; v++) {
        bool bound = false;
        for (u32 k = 0; k < p->input.n && !bound; k++)
            for (u32 d = 0; d < p->input.v[k].rank && !bound; d++) {
                const struct sym_node *s = &p->sym.node.v[p->input.v[k].dim[d]];
                bound = s->op == SYM_VAR && s->a == v;
            }
        if (!bound)
            return err_set(e, ERR_INPUT, "no input binds size '%.*s'", STR_ARG(p->sym.var.v[v]));
    }
    return true;
}

/* Every buffer of the caller's is named by one interface value, so that it can be found when the
 * program runs. */
static bool check_owners(const struct plan *p, struct err *e)
{
    u8 *named = mem_alloc(i64_max(p->buf.n, 1));
    bool ok = true;
    for (u32 i = 0; i < p->input.n + p->output.n && ok; i++) {
        const struct plan_io *io = i < p->input.n ? &p->input.v[i] : &p->output.v[i - p->input.n];
        if (named[io->buf]++)
            ok = err_set(e, ERR_INPUT, "interface '%.*s' has no buffer of its own",
                         STR_ARG(io->name));
    }
    for (u32 i = 0; i < p->buf.n && ok; i++) {
        bool outer = p->buf.v[i].kind == PB_INPUT || p->buf.v[i].kind == PB_OUTPUT;
        if (outer && !named[i])
            ok = err_set(e, ERR_INPUT, "buffer '%.*s' belongs to no interface value",
                         STR_ARG(p->buf.v[i].name));
    }
    mem_free(named);
    return ok;
}

bool plan_verify(const struct plan *p, struct err *e)
{
    for (u32 i = 0; i < p->input.n; i++)
        if (!check_io(p, &p->input.v[i], PB_INPUT, e)) return false;
    for (u32 i = 0; i < p->output.n; i++)
        if (!check_io(p, &p->output.v[i], PB_OUTPUT, e)) return false;
    if (!check_owners(p, e)) return false;
    for (u32 i = 0; i < p->buf.n; i++)
        if (!check_buf(p, &p->buf.v[i], e)) return false;
    for (u32 i = 0; i < p->dispatch.n; i++)
        if (!check_dispatch(p, i, e)) return false;
    return check_vars(p, e);
}
