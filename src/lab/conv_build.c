// SPDX-License-Identifier: Apache-2.0
//
// From the name of an implementation to a kernel: its candidate, the search for it, its build or the cached code.
#include "lab/conv.h"

enum { MOST_LISTED = 256 /* candidates tried per implementation */ };
static const char any[] = "tuned";

/* A label; impl NULL: any schedule. */
static bool find_impl(struct str name, const struct conv_impl **impl, struct err *e)
{
    struct buf b = {0};
    const struct conv_impl *x;
    *impl = conv_impl_find(name);
    if (*impl || str_is(name, any)) return true;
    for (u32 i = 0; (x = conv_impl_at(i)); i++) buf_printf(&b, "%s, ", x->name);
    err_set(e, ERR_USAGE, "no implementation '%.*s'; there are: %.*s%s", STR_ARG(name), STR_ARG(buf_view(&b)), any);
    buf_release(&b);
    return false;
}

bool conv_layout(enum layout *l, struct str name, struct err *e)
{
    const struct conv_impl *impl;
    if (!find_impl(name, &impl, e)) return false;
    *l = impl && !impl->channels_last ? LAYOUT_ROWS : LAYOUT_CLAST;
    return true;
}

/* The database's best candidate with the label's properties; false: there is none. */
static bool best_known(struct candidate *c, const struct conv_place *p, const struct task *t, const struct conv_impl *impl, struct err *e)
{
    struct arena a = {0};
    struct trial_row *rows = NULL;
    u32 n = 0, n_kept = 0;
    i64 *none = arena_array(&a, i64, 1), task = db_task(p->db, t, e);
    bool ok = task && db_trials(p->db, p->env, task, sizes_text(&a, t->g.sym, none, t), &a, &rows, &n, e);
    for (u32 i = 0; ok && i < n; i++)
        if (!impl || conv_impl_keeps(impl, &rows[i].cand, p->caps)) rows[n_kept++] = rows[i];
    const struct trial_row *best = tune_choice(rows, n_kept);
    if (best) *c = best->cand;
    arena_release(&a);
    return best != NULL;
}

bool conv_default(struct candidate *c, const struct conv_place *p, const struct task *t, struct err *e)
{
    i64 none = 0;
    return gen_default(t, p->caps, &none, c) ||
           err_set(e, ERR_UNSUPPORTED, "no generator for this convolution on device '%s'", p->driver->name);
}

bool conv_choose(struct candidate *c, const struct conv_place *p, const struct task *t, struct str name, struct err *e)
{
    const struct conv_impl *impl;
    i64 none = 0;
    if (!find_impl(name, &impl, e)) return false;
    if (best_known(c, p, t, impl, e) || e->code) return !e->code;
    if (impl) return conv_impl_candidate(impl, t, p->caps, &none, c, e);
    return conv_default(c, p, t, e);
}

/* Searching. */

struct list { struct candidate *v; u32 n, at; };

static bool next_listed(void *user, struct candidate *c)
{
    struct list *l = user;
    if (l->at == l->n) return false;
    *c = l->v[l->at++];
    return true;
}

bool conv_tune(const struct conv_place *p, const struct task *t, struct str name, const struct tune_opts *o, struct err *e)
{
    struct arena a = {0};
    struct list l = {0};
    struct tune_opts x = *o;
    struct tune_result r;
    const struct conv_impl *impl;
    if (!find_impl(name, &impl, e)) return false;
    struct tune_task one = {.task = t, .var = arena_array(&a, i64, 1), .weight = 1};
    const struct tune_source source = {next_listed, &l};
    if (impl) {
        u32 most = o->max_candidates ? o->max_candidates : MOST_LISTED;
        l.v = arena_array(&a, struct candidate, most);
        l.n = conv_impl_tuned(impl, t, p->caps, one.var, o->seed, l.v, most, e);
        x.source = &source;
    }
    bool ok = (!impl || l.n) && tune_run(p->db, &one, 1, &x, &r, e);
    arena_release(&a);
    return ok;
}

/* Building. */

static bool take_known(struct subject *s, const struct builder *b, struct str text, struct arena *a, struct err *e)
{
    struct hash key = build_key(b, text);
    return cache_get(b->cache, key, a, &s->code) ||
           err_set(e, ERR_NOTHING, "kernel '%s' is not in the cache: it was never built here for this device", s->kernel.name);
}

static bool build(struct subject *s, const struct builder *b, struct str text, struct arena *a, struct err *e)
{
    struct built out = {0};
    if (!build_all(b, &text, 1, &out, a, e)) return false;
    s->code = out.code;
    return out.ok || err_set(e, ERR_FAILED, "kernel '%s' cannot be built: %.*s", s->kernel.name, STR_ARG(out.message));
}

bool conv_build(struct subject *s, const struct conv_place *p, const struct task *t, const struct candidate *c, bool only_known,
                struct arena *a, struct err *e)
{
    const struct builder b = {.cache = p->cache, .lang = p->lang, .caps = p->caps, .toolchain = p->toolchain, .stop = p->stop};
    struct buf text = {0};
    *s = (struct subject){0};
    bool ok = gen_kernel(&s->kernel, a, c, t, p->caps, e) && lang_render(&text, p->lang, &s->kernel.kir, p->caps, a, e) &&
              (only_known ? take_known : build)(s, &b, buf_view(&text), a, e);
    buf_release(&text);
    return ok;
}
