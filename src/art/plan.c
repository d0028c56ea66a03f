// SPDX-License-Identifier: Apache-2.0
//
// The invariants of every plan. Readers of files rely on them: after plan_verify
// no index is out of range and no expression uses an unbound variable.
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
    if (io->buf >= p->buf.n || (p->buf.v[io->buf].kind != kind && p->buf.v[io->buf].kind != PB_STATE))
        return err_set(e, ERR_INPUT, "interface '%.*s' has no buffer of its own",
                       STR_ARG(io->name));
    for (u32 d = 0; d < io->rank; d++)
        if (!check_sym(p, io->dim[d], "an interface size", e)) return false;
    return true;
}

static bool check_facts(const struct plan *p, struct err *e)
{
    for (u32 i = 0; i < p->sym.fact.n; i++) {
        const struct sym_fact *f = &p->sym.fact.v[i];
        if (!check_sym(p, f->a, "a fact", e) || !check_sym(p, f->b, "a fact", e)) return false;
    }
    return true;
}

static bool bind_inputs(const struct plan *p, const struct tensor *in, bool sums, i64 *var)
{
    bool any = false;
    for (u32 k = 0; k < p->input.n; k++)
        for (u32 d = 0; d < p->input.v[k].rank; d++) {
            sym s = p->input.v[k].dim[d];
            if (sums || p->sym.node.v[s].op == SYM_VAR) any |= sym_solve(&p->sym, s, in ? in[k].dim[d] : 0, var);
        }
    return any;
}

void plan_bind(const struct plan *p, const struct tensor *in, const i64 *given, i64 *var)
{
    for (u32 v = 0; v < p->sym.var.n; v++) var[v] = INT64_MIN;
    for (u32 k = 0; k < p->given.n; k++) var[p->given.v[k]] = given ? given[k] : 0;
    bind_inputs(p, in, false, var);
    while (bind_inputs(p, in, true, var)) {}
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

static bool bad_call(u32 at, const char *what, struct err *e) { return err_set(e, ERR_INPUT, "call %u %s", at, what); }

/* The inner plans have the inputs and outputs that the call states. */
static bool check_sub(const struct plan *p, u32 at, u32 b, struct err *e)
{
    const struct plan_call *c = p->dispatch.v[at].call;
    const struct plan *s = c->sub[b];
    u32 first = c->is_conditional;
    if (s->input.n != c->n_in || s->output.n != c->n_out + first || s->given.n != c->n_give[b]) return bad_call(at, "does not match the interface of its plan", e);
    for (u32 k = 0; k < c->n_in; k++)
        if (s->input.v[k].rank != c->in[k].rank) return bad_call(at, "has an input of another rank", e);
    for (u32 k = 0; k < c->n_carried; k++)
        if (s->input.v[k].rank != s->output.v[first + k].rank || s->input.v[k].dtype != s->output.v[first + k].dtype)
            return bad_call(at, "carries a value that changes its type", e);
    if (first && (s->output.v[0].rank || s->output.v[0].dtype != DT_BOOL)) return bad_call(at, "has a condition that is no bool", e);
    for (u32 k = 0; k < c->n_give[b]; k++)
        if (c->give[b][k].var != s->given.v[k] || !check_sym(p, c->give[b][k].value, "a given size", e))
            return bad_call(at, "passes other sizes than its plan declares", e);
    for (u32 k = 0; k < c->n_size; k++) {
        const struct plan_io *o = &s->output.v[first + c->size[2 * k]];
        if (c->size[2 * k + 1] >= o->rank + (c->is_loop && c->size[2 * k] >= c->n_carried)) return bad_call(at, "reports the size of a missing axis", e);
    }
    return true;
}

static bool check_call(const struct plan *p, u32 at, struct err *e)
{
    const struct plan_call *c = p->dispatch.v[at].call;
    if (c->n_sub != (c->is_loop ? 1u : 2u) || (c->is_conditional && !c->is_loop)) return bad_call(at, "is neither a loop nor a branch", e);
    if (c->n_carried > c->n_in || c->n_carried > c->n_out || (!c->is_loop && (c->n_carried || c->cond == UINT32_MAX)))
        return bad_call(at, "carries a missing value", e);
    if (c->is_loop && !check_sym(p, c->trip_count, "the trip count", e)) return false;
    for (u32 k = 0; k < c->n_in; k++)
        for (u32 d = 0; d < c->in[k].rank; d++)
            if (c->in[k].rank > MAX_RANK || !check_sym(p, c->in[k].dim[d], "a size of an input of a call", e)) return false;
    for (u32 k = 0; k < c->n_size; k++)
        if (c->size[2 * k] >= c->n_out) return bad_call(at, "reports the size of a missing result", e);
    for (u32 k = 0; k < c->n_out; k++) { /* a buffer belongs to one result only */
        if (c->out[k] == UINT32_MAX) continue;
        if (c->out[k] >= p->buf.n) return bad_call(at, "refers to a missing buffer", e);
        enum plan_buf_kind kind = p->buf.v[c->out[k]].kind;
        if (kind == PB_INPUT || kind == PB_CONST || kind == PB_STATE || c->out[k] == c->sizes || c->out[k] == c->cond) return bad_call(at, "writes a read-only buffer", e);
        for (u32 j = 0; j < k; j++)
            if (c->out[j] == c->out[k]) return bad_call(at, "writes a buffer twice", e);
        for (u32 j = 0; j < c->n_in; j++)
            if (c->in[j].buf == c->out[k]) return bad_call(at, "writes what it reads", e);
    }
    if (c->sizes != UINT32_MAX && (c->sizes >= p->buf.n || p->buf.v[c->sizes].kind == PB_INPUT || p->buf.v[c->sizes].kind == PB_CONST))
        return bad_call(at, "has no buffer for sizes", e);
    for (u32 b = 0; b < c->n_sub; b++)
        if (!c->sub[b] || !check_sub(p, at, b, e)) return false;
    return true;
}

static u32 later(u32 a, u32 b) { return a > b ? a : b; }

/* Sizes of results may be known later. */
static u32 call_known_at(const struct plan *p, const u32 *known, const struct plan_call *c)
{
    u32 at = c->trip_count ? plan_sym_at(p, known, c->trip_count) : 0;
    for (u32 k = 0; k < c->n_in; k++) {
        for (u32 d = 0; d < c->in[k].rank; d++)
            at = later(at, plan_sym_at(p, known, c->in[k].dim[d]));
        at = later(at, plan_sym_at(p, known, p->buf.v[c->in[k].buf].size));
    }
    if (c->cond != UINT32_MAX) at = later(at, plan_sym_at(p, known, p->buf.v[c->cond].size));
    if (c->sizes != UINT32_MAX) at = later(at, plan_sym_at(p, known, p->buf.v[c->sizes].size));
    for (u32 b = 0; b < c->n_sub; b++)
        for (u32 k = 0; k < c->n_give[b]; k++)
            at = later(at, plan_sym_at(p, known, c->give[b][k].value));
    return at;
}

bool plan_has_calls(const struct plan *p)
{
    for (u32 i = 0; i < p->dispatch.n; i++)
        if (p->dispatch.v[i].call) return true;
    return false;
}

static void add_buffer(struct plan_dispatch *d, u32 buf)
{
    for (u32 k = 0; k < d->n_buf; k++)
        if (d->buf[k] == buf) return;
    if (buf != UINT32_MAX) d->buf[d->n_buf++] = buf;
}

void plan_call_buffers(struct plan_dispatch *d, struct arena *a)
{
    const struct plan_call *c = d->call;
    d->n_buf = 0;
    d->buf = arena_array(a, u32, c->n_in + c->n_out + 2);
    add_buffer(d, c->cond);
    for (u32 k = 0; k < c->n_in; k++) add_buffer(d, c->in[k].buf);
    for (u32 k = 0; k < c->n_out; k++) add_buffer(d, c->out[k]);
    add_buffer(d, c->sizes);
}

static bool check_dispatch(const struct plan *p, u32 at, struct err *e)
{
    const struct plan_dispatch *d = &p->dispatch.v[at];
    if (d->call && !check_call(p, at, e)) return false;
    if (!d->call && d->bin >= p->bin.n) return err_set(e, ERR_INPUT, "dispatch %u has no binary", at);
    if (!d->call && (d->n_grid == 0 || d->entry.n == 0))
        return err_set(e, ERR_INPUT, "dispatch %u has no kernel", at);
    for (u32 i = 0; i < d->n_buf; i++) {
        if (d->buf[i] >= p->buf.n)
            return err_set(e, ERR_INPUT, "dispatch %u refers to a missing buffer", at);
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
    return d->call || check_sym(p, d->work, "a scratch size", e);
}

/* The variables that inputs bind are known at 0: those that are the whole size of some axis, or the only one in a sum that is
   not bound otherwise. */
static u32 *bound_at(const struct plan *p, struct arena *a)
{
    u32 *known = arena_array(a, u32, p->sym.var.n + 1);
    i64 *var = arena_array(a, i64, p->sym.var.n + 1);
    plan_bind(p, NULL, NULL, var);
    for (u32 v = 0; v < p->sym.var.n; v++) known[v] = var[v] == INT64_MIN ? UINT32_MAX : 0;
    return known;
}

u32 *plan_known_at(const struct plan *p, struct arena *a)
{
    u32 *known = bound_at(p, a);
    for (u32 k = 0; k < p->made.n; k++) known[p->made.v[k].var] = p->made.v[k].at;
    return known;
}

u32 plan_sym_at(const struct plan *p, const u32 *known, sym s)
{
    const struct sym_node *x = &p->sym.node.v[s];
    if (s == 0 || x->op == SYM_CONST) return 0;
    if (x->op == SYM_VAR) return known[x->a];
    u32 a = plan_sym_at(p, known, x->a), b = plan_sym_at(p, known, x->b);
    return a > b ? a : b;
}

static bool bad_made(const struct plan *p, u32 k, const char *what, struct err *e)
{
    return err_set(e, ERR_INPUT, "data-dependent size %u %s", k, what);
}

/* Where it is read its buffer is written and still alive. What else the program needs to know then is checked with the values. */
static bool check_made_buf(const struct plan *p, u32 k, const u32 *known, struct err *e)
{
    const struct plan_made *m = &p->made.v[k];
    if (m->buf >= p->buf.n || m->elem < 0 || m->elem > INT64_MAX / 16 || m->dtype >= N_DTYPES || !dtype_is_int(m->dtype) ||
        (unsigned)m->take >= N_PLAN_TAKES)
        return bad_made(p, k, "names no integer of a buffer", e);
    const struct plan_buf *b = &p->buf.v[m->buf];
    if (b->kind == PB_STATE) return bad_made(p, k, "is of a state", e);
    if (plan_sym_at(p, known, b->size) > m->at) return bad_made(p, k, "is of a buffer whose size is not known then", e);
    if (b->kind == PB_INPUT) return true;
    if (m->at == 0 || b->first >= m->at || b->last + 1 < m->at || b->kind == PB_CONST)
        return bad_made(p, k, "is of a buffer that is not alive then", e);
    return true;
}

static bool check_made(const struct plan *p, u32 *known, struct err *e)
{
    for (u32 k = 0; k < p->made.n; k++) {
        const struct plan_made *m = &p->made.v[k];
        if (m->var >= p->sym.var.n || known[m->var] != UINT32_MAX) return bad_made(p, k, "is made twice, or no size", e);
        if (m->at > p->dispatch.n || (k && m->at < p->made.v[k - 1].at)) return bad_made(p, k, "is not in order", e);
        if (m->expr >= p->sym.node.n || m->most >= p->sym.node.n) return bad_made(p, k, "is no expression of this plan", e);
        if (plan_sym_at(p, known, m->most) > m->at) return bad_made(p, k, "has a bound that is not known then", e);
        if (m->expr ? plan_sym_at(p, known, m->expr) > m->at : !check_made_buf(p, k, known, e))
            return bad_made(p, k, "depends on a size that is not known then", e);
        known[m->var] = m->at;
    }
    return true;
}

/* Sizes that a dispatch needs are known before it. */
static bool check_known(const struct plan *p, const u32 *known, struct err *e)
{
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        u32 at = plan_sym_at(p, known, d->work);
        if (d->call && (at = call_known_at(p, known, d->call)) <= i) continue;
        for (u32 k = 0; k < d->n_param; k++) at = later(at, plan_sym_at(p, known, d->param[k]));
        for (u32 k = 0; k < d->n_grid; k++)
            for (u32 x = 0; x < MAX_WORK_DIMS; x++) at = later(at, plan_sym_at(p, known, d->grid[k].extent[x]));
        for (u32 k = 0; k < d->n_buf; k++) at = later(at, plan_sym_at(p, known, p->buf.v[d->buf[k]].size));
        if (at > i) return err_set(e, ERR_INPUT, "dispatch %u needs a size that is computed after it", i);
    }
    for (u32 k = 0; k < p->input.n; k++)
        for (u32 d = 0; d < p->input.v[k].rank; d++)
            if (plan_sym_at(p, known, p->input.v[k].dim[d]) > 0)
                return err_set(e, ERR_INPUT, "input '%.*s' has a size that is computed later", STR_ARG(p->input.v[k].name));
    for (u32 k = 0; k < p->output.n; k++)
        for (u32 d = 0; d < p->output.v[k].rank; d++)
            if (plan_sym_at(p, known, p->output.v[k].dim[d]) > p->dispatch.n)
                return err_set(e, ERR_INPUT, "output '%.*s' has a size that nothing binds", STR_ARG(p->output.v[k].name));
    return true;
}

/* Every variable is the whole size of some input axis, so that inputs bind it, or made. */
static bool check_vars(const struct plan *p, struct err *e)
{
    struct arena tmp = {0};
    if (p->var.n != p->sym.var.n)
        return err_set(e, ERR_INPUT, "variables and their values differ in number");
    u32 *known = bound_at(p, &tmp);
    bool ok = check_made(p, known, e);
    for (u32 v = 0; v < p->sym.var.n && ok; v++)
        if (known[v] == UINT32_MAX) ok = err_set(e, ERR_INPUT, "no input binds size '%.*s'", STR_ARG(p->sym.var.v[v]));
    ok = ok && check_known(p, known, e);
    arena_release(&tmp);
    return ok;
}

/* The input and the output of a state share a buffer, which no other state has. */
static bool check_states(const struct plan *p, struct err *e)
{
    for (u32 k = 0; k < p->state.n; k++) {
        const struct plan_state *s = &p->state.v[k];
        bool is_given = s->axis == PLAN_NO_AXIS && s->room == UINT32_MAX, ok = s->input < p->input.n && s->output < p->output.n;
        for (u32 i = 0; i < p->given.n; i++) is_given |= s->axis < MAX_RANK && p->given.v[i] == s->room;
        const struct plan_io *in = ok ? &p->input.v[s->input] : NULL, *out = ok ? &p->output.v[s->output] : NULL;
        ok = ok && is_given && in->dtype == out->dtype && in->rank == out->rank && (s->axis < in->rank || s->axis == PLAN_NO_AXIS) && in->buf == out->buf &&
             p->buf.v[in->buf].kind == PB_STATE;
        for (u32 i = 0; i < k && ok; i++) ok = p->state.v[i].input != s->input && p->state.v[i].output != s->output;
        if (!ok) return err_set(e, ERR_INPUT, "state %u is not an input and an output with one buffer", k);
    }
    return true;
}

static bool is_of_state(const struct plan *p, u32 buf)
{
    for (u32 k = 0; k < p->state.n; k++)
        if (p->input.v[p->state.v[k].input].buf == buf) return true;
    return false;
}

/* Every buffer of the caller's is named by one interface value, that of a state by its two, so that it can be found when the
 * program runs. */
static bool check_owners(const struct plan *p, struct err *e)
{
    u8 *named = mem_alloc(i64_max(p->buf.n, 1));
    bool ok = true;
    for (u32 i = 0; i < p->input.n + p->output.n && ok; i++) {
        const struct plan_io *io = i < p->input.n ? &p->input.v[i] : &p->output.v[i - p->input.n];
        if (named[io->buf]++ >= (p->buf.v[io->buf].kind == PB_STATE ? 2 : 1))
            ok = err_set(e, ERR_INPUT, "interface '%.*s' has no buffer of its own",
                         STR_ARG(io->name));
    }
    for (u32 i = 0; i < p->buf.n && ok; i++) {
        bool outer = p->buf.v[i].kind == PB_INPUT || p->buf.v[i].kind == PB_OUTPUT;
        if (p->buf.v[i].kind == PB_STATE && (named[i] != 2 || !is_of_state(p, i))) ok = err_set(e, ERR_INPUT, "buffer '%.*s' belongs to no state", STR_ARG(p->buf.v[i].name));
        if (outer && !named[i])
            ok = err_set(e, ERR_INPUT, "buffer '%.*s' belongs to no interface value",
                         STR_ARG(p->buf.v[i].name));
    }
    mem_free(named);
    return ok;
}

/* Sizes are told by their text: each plan has expressions of its own. */
static bool same_size(const struct plan *p, sym s, const struct plan *q, sym t)
{
    struct buf a = {0}, b = {0};
    sym_print(&a, &p->sym, s);
    sym_print(&b, &q->sym, t);
    bool same = str_eq(buf_view(&a), buf_view(&b));
    buf_release(&a);
    buf_release(&b);
    return same;
}

static bool same_ios(const struct plan *p, const struct plan *q, const struct plan_io *x, const struct plan_io *y, u32 n)
{
    for (u32 k = 0; k < n; k++) {
        if (!str_eq(x[k].name, y[k].name) || !str_eq(x[k].layout, y[k].layout) || x[k].dtype != y[k].dtype || x[k].rank != y[k].rank) return false;
        for (u32 d = 0; d < x[k].rank; d++)
            if (!same_size(p, x[k].dim[d], q, y[k].dim[d])) return false;
    }
    return true;
}

bool plan_same_interface(const struct plan *p, const struct plan *q)
{
    return p->input.n == q->input.n && p->output.n == q->output.n && same_ios(p, q, p->input.v, q->input.v, p->input.n) &&
           same_ios(p, q, p->output.v, q->output.v, p->output.n);
}

bool plan_verify(const struct plan *p, struct err *e)
{
    for (u32 k = 0; k < p->given.n; k++)
        if (p->given.v[k] >= p->sym.var.n) return err_set(e, ERR_INPUT, "a given size is missing");
    for (u32 i = 0; i < p->input.n; i++)
        if (!check_io(p, &p->input.v[i], PB_INPUT, e)) return false;
    for (u32 i = 0; i < p->output.n; i++)
        if (!check_io(p, &p->output.v[i], PB_OUTPUT, e)) return false;
    if (!check_states(p, e) || !check_owners(p, e)) return false;
    for (u32 i = 0; i < p->buf.n; i++)
        if (!check_buf(p, &p->buf.v[i], e)) return false;
    for (u32 i = 0; i < p->dispatch.n; i++)
        if (!check_dispatch(p, i, e)) return false;
    return check_facts(p, e) && check_vars(p, e);
}
