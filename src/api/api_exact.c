// SPDX-License-Identifier: Apache-2.0
//
// Kernels against their tasks in exact arithmetic (tune/exact.h): those of a program, or those that would be chosen for a model. Those that go
// into an artifact: api_prove.c. Declared and documented in include/quern.h.
#include "api/api_model.h"
#include "tune/exact.h"

#include <string.h>
#include <time.h>

struct exact_job { /* a kernel, and what it was found to be */
    const struct task *task;
    struct candidate cand;
    struct str label;
    u32 n;                  /* dispatches */
};

struct exact_jobs {
    struct arena *a;
    struct map known;       /* key and candidate -> index */
    struct { struct exact_job *v; u32 n, cap; } job;
};

static void add_job(struct exact_jobs *x, const struct exact_job *j)
{
    struct buf key = {0};
    char hex[33];
    hash_hex(j->task->key, hex);
    buf_printf(&key, "%s ", hex);
    candidate_print(&key, &j->cand);
    u64 *known = map_get(&x->known, buf_view(&key));
    if (known) x->job.v[*known].n++;
    else {
        *arr_push(x->a, &x->job) = *j;
        x->job.v[x->job.n - 1].n = 1;
        map_put(&x->known, str_dup(x->a, buf_view(&key)), x->job.n - 1);
    }
    buf_release(&key);
}

/* Of a model: what is chosen. */

static void jobs_of_choice(struct exact_jobs *x, const struct cover *c, const struct selection *s)
{
    for (u32 i = 0; i < s->choice.n; i++) {
        const struct region *r = &c->region.v[s->choice.v[i].region];
        if (r->task == NO_TASK || task_is_call(c->task.v[r->task])) continue;
        add_job(x, &(struct exact_job){.task = c->task.v[r->task], .cand = s->cost[r->task].best, .label = plan_label(c, r, x->a)});
    }
    for (u32 b = 0; b < c->body.n; b++) jobs_of_choice(x, c->body.v[b], &s->body[b]);
}

/* Of a program: its dispatches name tasks by their keys. What was chosen from depends on options that the program does not tell, so all covers
   are asked. */

static void note_tasks(struct map *by_key, const struct cover *c, struct arena *a)
{
    for (u32 i = 0; i < c->task.n; i++) {
        char hex[33];
        hash_hex(c->task.v[i]->key, hex);
        map_put(by_key, str_dup(a, str_of(hex)), (u64)(uintptr_t)c->task.v[i]);
    }
    for (u32 b = 0; b < c->body.n; b++) note_tasks(by_key, c->body.v[b], a);
}

static bool all_tasks(struct map *by_key, quern_model *m, const struct caps *caps, struct arena *a, struct err *e)
{
    const struct graph *g = api_lowered(m, caps, e);
    bool ok = g != NULL;
    for (u32 i = 0; i < 8 && ok; i++) {
        struct cover *c = arena_new(a, struct cover);
        struct cover_opts cut = {.no_fusion = i & 1, .no_concat = i >> 1 & 1};
        if (i & 4) api_offer_blocks(&cut, caps);
        ok = cover_build(c, g, a, &cut, e);
        if (ok) note_tasks(by_key, c, a);
    }
    return ok;
}

/* Where quern builds a language itself the same kernel gives the same bytes. Those of others' compilers depend on their versions. */
static bool is_code_of(const struct plan_bin *bin, const struct kernel *k, const struct caps *caps, struct arena *a, bool *same, struct err *e)
{
    const struct lang *l = lang_find(bin->lang);
    struct buf text = {0}, code = {0};
    *same = true;
    if (!l || !l->builds_itself) return true;
    bool ok = lang_render(&text, l, &k->kir, caps, a, e) && l->build(&code, buf_view(&text), caps, 60, e);
    if (ok) *same = str_eq(buf_view(&code), bin->code);
    buf_release(&code);
    buf_release(&text);
    return ok;
}

/* The dispatch must run what the schedule makes of the task: the name, which has the schedule's digest, sizes and grids are compared. */
static bool is_kernel_of(const struct plan *p, const struct plan_dispatch *d, const struct exact_job *j, const struct caps *caps, struct err *e)
{
    struct arena a = {0};
    struct kernel k;
    struct symtab *st = j->task->g.sym;
    bool ok = gen_kernel(&k, &a, &j->cand, j->task, caps, e);
    bool same = ok && str_is(d->entry, k.name) && d->n_param == k.n_param && d->n_grid == k.n_grid && d->n_buf == k.n_arg + k.n_temp;
    for (u32 i = 0; i < d->n_param && same; i++) same = sym_copy(st, &p->sym, d->param[i]) == k.param[i];
    for (u32 i = 0; i < d->n_grid && same; i++)
        for (u32 x = 0; x < k.grid[i].n && same; x++) same = sym_copy(st, &p->sym, d->grid[i].extent[x]) == k.grid[i].extent[x];
    if (ok && same) ok = is_code_of(&p->bin.v[d->bin], &k, caps, &a, &same, e);
    arena_release(&a);
    if (!ok) return false;
    return same || err_set(e, ERR_INPUT, "kernel '%.*s' is not what this version of quern makes of its schedule", STR_ARG(d->entry));
}

static bool jobs_of_plan(struct exact_jobs *x, struct map *by_key, const struct plan *p, const struct caps *caps, struct err *e)
{
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        for (u32 b = 0; d->call && b < d->call->n_sub; b++)
            if (!jobs_of_plan(x, by_key, d->call->sub[b], caps, e)) return false;
        if (d->call) continue;
        u64 *task = map_get(by_key, d->task);
        if (!task)
            return err_set(e, ERR_INPUT, "'%.*s' is no kernel of this model: the program was made of another model, or with other interface options",
                           STR_ARG(d->label));
        struct exact_job j = {.task = (const struct task *)(uintptr_t)*task, .label = d->label};
        if (!candidate_parse(&j.cand, d->candidate, e) || !is_kernel_of(p, d, &j, caps, e)) return err_prefix(e, "%.*s", STR_ARG(d->label));
        add_job(x, &j);
    }
    return true;
}

/* Telling. */

static bool tell(const struct exact_job *j, const struct caps *caps, uint64_t seed, quern_exact_fn *fn, void *user, struct err *e)
{
    struct exact_result r;
    struct buf kernel = {0};
    clock_t start = clock();
    bool ok = exact_check(&r, j->task, &j->cand, caps, &(struct exact_opts){.seed = seed}, e);
    candidate_print(&kernel, &j->cand);
    if (ok) {
        struct str layer = j->label, none = S("");
        char *text = mem_alloc(layer.n + kernel.n + r.sizes.n + r.why.n + 4), *at[4];
        const struct str part[4] = {layer, buf_view(&kernel), r.sizes.n ? buf_view(&r.sizes) : none, r.why.n ? buf_view(&r.why) : none};
        char *p = text;
        for (u32 i = 0; i < 4; p += part[i].n + 1, i++) {
            at[i] = p;
            if (part[i].n) memcpy(p, part[i].p, (size_t)part[i].n);
            p[part[i].n] = 0;
        }
        struct quern_exact x = {.verdict = (int)r.verdict, .layer = at[0], .kernel = at[1], .sizes = at[2], .why = at[3],
                                .dispatches = (int)j->n,
                                .seconds = (double)(clock() - start) / CLOCKS_PER_SEC};
        fn(user, &x);
        mem_free(text);
    }
    buf_release(&kernel);
    exact_result_release(&r);
    return ok;
}

struct telling { uint64_t seed; quern_exact_fn *fn; void *user; };

static bool tell_all(const struct exact_jobs *x, const struct caps *caps, const struct telling *to, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < x->job.n && ok; i++) ok = tell(&x->job.v[i], caps, to->seed, to->fn, to->user, e);
    return ok;
}

/* A variant of an artifact, whose device need not be here. */
static bool verify_plan(quern_model *m, const struct plan *p, const struct telling *to, struct err *e)
{
    struct arena a = {0};
    struct exact_jobs x = {.a = &a};
    struct caps caps;
    struct map by_key;
    map_init(&x.known, &a);
    map_init(&by_key, &a);
    bool ok = caps_parse(&caps, p->caps, e) && all_tasks(&by_key, m, &caps, &a, e) && jobs_of_plan(&x, &by_key, p, &caps, e) &&
              tell_all(&x, &caps, to, e);
    arena_release(&a);
    return ok;
}

static bool verify_file(quern_model *m, const char *path, const struct telling *to, struct err *e)
{
    struct os_file f = {0};
    struct arena a = {0};
    struct plan p;
    bool ok = os_map(&f, path, e) && (dnx_read(&p, &a, (struct str){(const char *)f.p, f.n}, e) || err_prefix(e, "'%s'", path));
    for (const struct plan *v = &p; ok && v; v = v->also) ok = verify_plan(m, v, to, e);
    arena_release(&a);
    os_unmap(&f);
    return ok;
}

/* What would be compiled. */
static bool verify_choice(quern_model *m, quern_db *db, const struct quern_compile_opts *o, const struct telling *to, struct err *e)
{
    struct arena a = {0};
    struct exact_jobs x = {.a = &a};
    struct api_target t = {0};
    struct db *known = db && !o->untuned ? &db->db : NULL;
    struct cover_opts cut = {.no_fusion = o->no_fusion, .no_concat = o->no_memory_concat};
    struct api_choice *c = arena_new(&a, struct api_choice);
    map_init(&x.known, &a);
    bool ok = api_target_open(&t, o->device, o->threads, o->target, e) && api_choose(c, m, known, &t, cut, &a, e);
    if (ok) jobs_of_choice(&x, &c->c, &c->s);
    ok = ok && tell_all(&x, &t.caps, to, e);
    api_target_close(&t);
    arena_release(&a);
    return ok;
}

quern_status quern_verify_exact(quern_model *m, const char *program, quern_db *db, const struct quern_compile_opts *o, uint64_t seed,
                                quern_exact_fn *fn, void *user)
{
    struct err *e = api_begin(m->q);
    struct quern_compile_opts opts = {0};
    if (o) memcpy(&opts, o, o->size < sizeof opts ? o->size : sizeof opts);
    const struct telling to = {seed, fn, user};
    return api_end(m->q, program ? verify_file(m, program, &to, e) : verify_choice(m, db, &opts, &to, e));
}
