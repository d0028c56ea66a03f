// SPDX-License-Identifier: Apache-2.0
//
// States: the caches of a program from one run to the next. Declared and documented in include/quern.h, described in doc/decoding.md.
#include "api/api.h"

#include <string.h>

enum { MAX_SAVED = 1 << 30 }; /* bytes of a file that are read into memory; larger ones are mapped */

struct quern_state {
    quern_program *p;
    struct rt_state *s;
    struct arena arena;
    struct tensor *in, *out; /* of a run */
    bool *is_made;           /* per output */
};

static quern_state *take(quern_program *p, struct rt_state *s)
{
    quern_state *x = mem_alloc(sizeof *x);
    *x = (quern_state){.p = p, .s = s};
    x->in = arena_array(&x->arena, struct tensor, p->plan.input.n + 1);
    x->out = arena_array(&x->arena, struct tensor, p->plan.output.n + 1);
    x->is_made = arena_array(&x->arena, bool, p->plan.output.n + 1);
    return x;
}

quern_status quern_state_create(quern_program *p, int64_t max, const struct quern_state_opts *o, quern_state **out)
{
    if (!p || !api_given(p->q, "out", out)) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    struct quern_state_opts opts = {0};
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    struct rt_state *s = api_is_started(p, e) ? rt_state_new(p->rt, max, opts.sizes, e) : NULL;
    if (s) *out = take(p, s);
    return api_end(p->q, s != NULL);
}

quern_status quern_state_fork(quern_state *s, quern_state **out)
{
    if (!s || !api_given(s->p->q, "out", out)) return QUERN_USAGE;
    struct err *e = api_begin(s->p->q);
    struct rt_state *to = rt_state_clone(s->s, e);
    if (to) *out = take(s->p, to);
    return api_end(s->p->q, to != NULL);
}

quern_status quern_state_copy(quern_state *to, quern_state *from)
{
    if (!to || !api_given(to->p->q, "from", from)) return QUERN_USAGE;
    struct err *e = api_begin(to->p->q);
    return api_end(to->p->q, rt_state_copy(to->s, from->s, e));
}

void quern_state_destroy(quern_state *s)
{
    if (!s) return;
    rt_state_free(s->s);
    arena_release(&s->arena);
    mem_free(s);
}

int64_t quern_state_length(const quern_state *s) { return s ? rt_state_length(s->s) : 0; }
int64_t quern_state_max(const quern_state *s) { return s ? rt_state_max(s->s) : 0; }
int64_t quern_state_memory(const quern_state *s) { return s ? rt_state_bytes(s->s) : 0; }

int quern_state_holds_input(const quern_state *s, int k) { return s && k >= 0 && k < quern_program_inputs(s->p) && rt_state_output(s->s, (u32)k) != UINT32_MAX; }
int quern_state_holds_output(const quern_state *s, int k) { return s && k >= 0 && k < quern_program_outputs(s->p) && rt_state_input(s->s, (u32)k) != UINT32_MAX; }

quern_status quern_state_truncate(quern_state *s, int64_t length)
{
    if (!s) return QUERN_USAGE;
    struct err *e = api_begin(s->p->q);
    return api_end(s->p->q, rt_state_truncate(s->s, length, e));
}

static bool take_inputs(quern_state *s, quern_tensor *const *in, struct err *e)
{
    for (u32 k = 0; k < s->p->plan.input.n; k++) {
        const struct plan_io *io = &s->p->plan.input.v[k];
        bool is_held = rt_state_output(s->s, k) != UINT32_MAX;
        if (is_held && in[k]) return err_set(e, ERR_USAGE, "input '%.*s' is in the state: NULL is expected", STR_ARG(io->name));
        if (!is_held && !in[k]) return err_set(e, ERR_USAGE, "input '%.*s' is NULL", STR_ARG(io->name));
        s->in[k] = in[k] ? in[k]->t : (struct tensor){0};
    }
    return true;
}

static bool place_outputs(quern_state *s, quern_tensor **out, struct err *e)
{
    for (u32 k = 0; k < s->p->plan.output.n; k++) {
        bool is_held = rt_state_input(s->s, k) != UINT32_MAX;
        s->is_made[k] = api_depends_on_data(&s->out[k]);
        if (is_held && out[k]) return err_set(e, ERR_USAGE, "output '%.*s' goes to the state: NULL is expected", STR_ARG(s->p->plan.output.v[k].name));
        if (!is_held && !api_output_place(s->p, k, &s->out[k], out[k], e)) return false;
    }
    return true;
}

quern_status quern_state_run(quern_state *s, quern_tensor *const *in, int n_in, quern_tensor **out, int n_out)
{
    if (!s || !api_given(s->p->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    quern_program *p = s->p;
    struct err *e = api_begin(p->q);
    struct arena a = {0};
    memset(s->out, 0, sizeof *s->out * p->plan.output.n);
    memset(s->is_made, 0, sizeof *s->is_made * p->plan.output.n);
    bool ok = api_counts_check(p, n_in, n_out, e) && take_inputs(s, in, e) && rt_state_output_dims(s->s, s->in, s->out, e) && place_outputs(s, out, e) &&
              rt_state_run(s->s, s->in, s->out, &a, e);
    for (u32 k = 0; k < p->plan.output.n && n_out == (int)p->plan.output.n; k++)
        if (rt_state_input(s->s, k) == UINT32_MAX) ok = api_output_deliver(&s->out[k], s->is_made[k], ok, &out[k], e);
    arena_release(&a);
    if (ok && p->keep) p->keep->start(p->keep, &p->plan);
    return api_end(p->q, ok);
}

quern_status quern_state_save(quern_state *s, const char *path)
{
    if (!s || !api_given(s->p->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(s->p->q);
    struct buf b = {0};
    bool ok = rt_state_write(s->s, &b, e) && os_write(path, b.p, b.n, e);
    buf_release(&b);
    return api_end(s->p->q, ok);
}

quern_status quern_state_load(quern_state *s, const char *path)
{
    if (!s || !api_given(s->p->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(s->p->q);
    struct os_file f = {0};
    bool ok = os_load(&f, path, MAX_SAVED, e) && (rt_state_read(s->s, (struct str){(const char *)f.p, f.n}, e) || err_prefix(e, "'%s'", path));
    os_unmap(&f);
    return api_end(s->p->q, ok);
}
