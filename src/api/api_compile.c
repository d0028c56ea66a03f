// SPDX-License-Identifier: Apache-2.0
//
// From model to program: target, cover, costs, selection, plan. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include <string.h>

/* Dumps. */

struct dumper {
    quern *q;
    const struct lang *lang;
};

/* Text and binary; the stage of the latter has the name of the language. */
static void dump_code(void *user, struct str text, struct str code)
{
    const struct dumper *d = user;
    const struct lang *l = d->lang;
    struct buf b = {0};
    struct err e = {0};
    api_dump(d->q, "code", text);
    if (!l->disassemble || !api_wants_dump(d->q, l->name)) return;
    if (l->disassemble(&b, code, &e)) api_dump(d->q, l->name, buf_view(&b));
    else log_printf(&d->q->log, 1, "%s", e.msg);
    buf_release(&b);
}

static void dump_kernel(void *user, const struct kir *k)
{
    const struct dumper *d = user;
    struct buf b = {0};
    kir_print(&b, k);
    api_dump(d->q, "kernels", buf_view(&b));
    buf_release(&b);
}

static void dump_tasks(quern *q, const struct cover *c)
{
    if (!api_wants_dump(q, "tasks")) return;
    struct buf b = {0};
    for (u32 i = 0; i < c->task.n; i++)
        buf_printf(&b, "# task %u\n%.*s\n", i, STR_ARG(c->task.v[i]->text));
    api_dump(q, "tasks", buf_view(&b));
    buf_release(&b);
}

static const struct str *layout_names(const quern_model *m, u32 first, u32 n, struct arena *a)
{
    if (m->model->io.n == 0) return NULL;
    struct str *name = arena_array(a, struct str, n + 1);
    for (u32 k = 0; k < n; k++) name[k] = io_layout_name(m->model->io.v[first + k].layout);
    return name;
}

/* Warns if the database was populated with other options, because its results may concern other
   kernels. */
static bool check_options(const quern_model *m, struct db *d, const struct api_target *t,
                          const struct cover_opts *cut, struct err *e)
{
    struct arena a = {0};
    struct str known, options = api_options_print(m, t, cut, &a);
    bool ok = db_get_options(d, api_options_key(m, t, &a), &a, &known, e);
    if (ok && known.n && !str_eq(known, options))
        log_printf(&m->q->log, 1,
                   "'%.*s' was populated with options %.*s and is compiled with %.*s",
                   STR_ARG(m->model->name), STR_ARG(known), STR_ARG(options));
    arena_release(&a);
    return ok;
}

struct plan_target api_plan_target(const struct api_target *t, struct db *known)
{
    return (struct plan_target){.caps = &t->caps, .fingerprint = buf_view(&t->fingerprint), .toolchain = buf_view(&t->toolchain), .db = known};
}

bool api_choose(struct plan_choice *x, quern_model *m, struct db *known, const struct api_target *t, struct cover_opts cut, struct arena *work,
                struct err *e)
{
    const struct plan_target on = api_plan_target(t, known);
    const struct graph *g = model_lowered(m->model, &t->caps, e);
    bool ok = g && plan_cover(&x->c, g, cut, &on, work, e) && (!known || check_options(m, known, t, &cut, e));
    if (ok) dump_tasks(m->q, &x->c);
    ok = ok && plan_choose(&x->s, &x->c, m->model->var, &on, work, e);
    if (ok && known && !x->s.n_known)
        log_printf(&m->q->log, 1,
                   "the database has no measurements of '%.*s' for this device and these options: times "
                   "are predicted",
                   STR_ARG(m->model->name));
    return ok;
}

struct making {
    quern_model *m;
    struct db *known;      /* the database for costs, NULL: none */
    struct cover_opts cut;
    bool prove;            /* verify every kernel */
    bool in_files;         /* the program is only written, as files: a binary per kernel */
    struct arena *a;       /* of the plan */
};

/* Selects and builds a program. */
static bool choose(const struct making *want, const struct api_target *t, struct plan *p, struct arena *work, struct err *e)
{
    quern_model *m = want->m;
    struct plan_choice x;
    struct cache cache;
    cache_open(&cache, "kernels", work, &m->q->log);
    struct dumper dumper = {m->q, t->lang};
    struct plan_code code = {
        .builder = {.cache = &cache, .lang = t->lang, .caps = &t->caps, .toolchain = buf_view(&t->toolchain), .stop = &m->q->stop},
        .see = dump_code,
        .user = &dumper};
    struct plan_env env = {.lang = t->lang,
                           .caps = &t->caps,
                           .device = t->driver ? t->driver->name : "",
                           .fingerprint = buf_view(&t->fingerprint),
                           .model = m->model->name,
                           .outer = &m->model->graph,
                           .in_layout = layout_names(m, 0, m->model->graph.input.n, work),
                           .out_layout = layout_names(m, m->model->graph.input.n, m->model->graph.output.n, work),
                           .build = plan_build_code,
                           .build_user = &code,
                           .separate = want->in_files,
                           .see_kernel = api_wants_dump(m->q, "kernels") ? dump_kernel : NULL,
                           .user = &dumper};
    const struct prove_env prove = {.caps = &t->caps, .var = m->model->var, .cache = &cache, .log = &m->q->log, .stop = &m->q->stop};
    return api_choose(&x, m, want->known, t, want->cut, work, e) &&
           plan_make_verified(p, &x, &env, want->prove ? &prove : NULL, m->model->var, want->a, e);
}

static bool keep_texts(void *user, const struct str *text, u32 n, struct str *out, struct arena *a, struct err *e)
{
    for (u32 k = 0; k < n; k++) out[k] = text[k];
    return true;
}

bool api_program_text(quern_model *m, const struct lang *l, const struct caps *c, struct plan *p, struct arena *a, struct err *e)
{
    struct arena work = {0};
    struct plan_choice x;
    struct cache cache;
    struct api_target t = {.lang = l, .caps = *c};
    struct dumper dumper = {m->q, l};
    cache_open(&cache, "kernels", &work, &m->q->log);
    struct plan_env env = {.lang = l,
                           .caps = c,
                           .device = "",
                           .model = m->model->name,
                           .outer = &m->model->graph,
                           .in_layout = layout_names(m, 0, m->model->graph.input.n, &work),
                           .out_layout = layout_names(m, m->model->graph.input.n, m->model->graph.output.n, &work),
                           .build = keep_texts,
                           .see_kernel = api_wants_dump(m->q, "kernels") ? dump_kernel : NULL,
                           .user = &dumper};
    const struct prove_env prove = {.caps = c, .var = m->model->var, .cache = &cache, .log = &m->q->log, .stop = &m->q->stop};
    bool ok = api_choose(&x, m, NULL, &t, (struct cover_opts){0}, &work, e) && plan_make_verified(p, &x, &env, &prove, m->model->var, a, e);
    arena_release(&work);
    return ok;
}

/* A cached program, or a new one. */
static bool compile_one(const struct making *g, const struct quern_compile_opts *o, quern_program *p, struct err *e)
{
    struct arena work = {0};
    struct api_target t;
    struct cache kept = {0};
    struct hash key;
    bool ok = api_target_open_rated(&t, g->m->q, o->device, o->threads, o->target, e);
    if (ok && o->keep && !g->in_files && !g->known && !g->m->q->dump && api_keep_key(&key, g->m, &t, &g->cut)) cache_open(&kept, "programs", &work, &g->m->q->log);
    bool is_kept = ok && api_keep_find(p, &kept, key);
    ok = ok && (is_kept || choose(g, &t, &p->plan, &work, e));
    if (ok && !g->in_files && !dev_is_described(&t.dev)) ok = api_program_start(p, o->device, o->threads, e);
    if (ok && !is_kept) p->keep = api_keep_new(&kept, key);
    api_target_close(&t);
    arena_release(&work);
    return ok;
}

/* One variant. is_here: this processor can run it. */
static bool compile_variant(const struct making *g, const struct quern_compile_opts *o, const char *isa, struct plan *p, bool *is_here, struct err *e)
{
    struct arena work = {0};
    struct api_target t;
    struct quern_target_opts target = api_target_with(o->target, isa);
    bool ok = api_target_open_rated(&t, g->m->q, o->device, o->threads, &target, e) && choose(g, &t, p, &work, e);
    *is_here = ok && !dev_is_described(&t.dev);
    if (ok && !*is_here && g->known) log_printf(&g->m->q->log, 2, "'%s' is not here: its schedules are predicted, not measured", isa);
    api_target_close(&t);
    arena_release(&work);
    return ok || err_prefix(e, "instruction set '%s'", isa);
}

/* One after another; of those this processor can run, the one with the most extensions is loaded. */
static bool compile_variants(const struct making *g, const struct quern_compile_opts *o, const struct api_isas *isas, quern_program *p, struct err *e)
{
    struct plan *all = arena_array(g->a, struct plan, isas->n);
    bool *is_here = arena_array(g->a, bool, isas->n);
    for (u32 i = 0; i < isas->n; i++)
        if (!compile_variant(g, o, isas->v[i], &all[i], &is_here[i], e)) return false;
    u32 best = 0;
    if (!plan_link_variants(all, isas->v, is_here, isas->n, &best, e)) return false;
    p->all = all;
    p->plan = all[best];
    p->plan.also = NULL;
    return g->in_files || !is_here[best] || api_program_start(p, o->device, o->threads, e);
}

bool api_compile(quern_model *m, quern_db *db, const struct quern_compile_opts *o, bool in_files, quern_program *p, struct err *e)
{
    struct arena a = {0};
    struct api_isas isas;
    struct making g = {.m = m, .known = db && !o->untuned ? &db->db : NULL, .prove = o->prove, .in_files = in_files, .a = &p->arena};
    g.cut = (struct cover_opts){.no_fusion = o->no_fusion, .no_concat = o->no_memory_concat};
    bool ok = api_isas(&isas, o->target, &a, e);
    ok = ok && (isas.n > 1 ? compile_variants(&g, o, &isas, p, e) : compile_one(&g, o, p, e));
    arena_release(&a);
    return ok;
}

quern_status quern_compile(quern_model *m, quern_db *db, const struct quern_compile_opts *o,
                           quern_program **out)
{
    if (!m || !api_given(m->q, "out", out)) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    struct quern_compile_opts opts = {0};
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    opts.threads = api_threads(m->q, opts.threads);
    quern_program *p = mem_alloc(sizeof *p);
    p->q = m->q;
    bool ok = api_compile(m, db, &opts, false, p, e);
    if (ok) *out = p;
    else quern_program_close(p);
    return api_end(m->q, ok);
}

/* All variants, including those of an opened artifact. */
static const struct plan *all_variants(const quern_program *p, struct plan *opened, struct arena *a, struct err *e)
{
    if (!p->is_opened) return p->all ? p->all : &p->plan;
    return dnx_read(opened, a, (struct str){(const char *)p->file.p, p->file.n}, e) ? opened : NULL;
}

quern_status quern_program_save(quern_program *p, const char *path)
{
    if (!p || !api_given(p->q, "path", path)) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    struct arena a = {0};
    struct plan opened;
    struct str *piece;
    i64 n;
    const struct plan *all = all_variants(p, &opened, &a, e);
    bool ok = all && dnx_pieces(all, &a, &piece, &n, e) && os_write_pieces(path, piece, n, e); /* from the plan's memory: constants may be gigabytes */
    arena_release(&a);
    return api_end(p->q, ok);
}
