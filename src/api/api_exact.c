// SPDX-License-Identifier: Apache-2.0
//
// Exact verification of kernels against their tasks (tune/exact.h): those of a program, or those
// that would be selected for a model. For kernels of artifacts see plan/prove.c. Declared and
// documented in include/quern.h.
#include "api/api_model.h"
#include "tune/exact.h"

#include <string.h>
#include <time.h>

/* Reporting. */

static bool report(const struct plan_kernel *j, const struct caps *caps, uint64_t seed, quern_exact_fn *fn, void *user, struct err *e)
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

static bool tell_all(const struct plan_kernels *x, const struct caps *caps, const struct telling *to, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < x->kernel.n && ok; i++) ok = report(&x->kernel.v[i], caps, to->seed, to->fn, to->user, e);
    return ok;
}

/* A variant of an artifact, whose device may be absent. */
static bool verify_plan(quern_model *m, const struct plan *p, const struct telling *to, struct err *e)
{
    struct arena a = {0};
    struct plan_kernels x;
    struct caps caps;
    plan_kernels_init(&x, &a);
    const struct graph *g = caps_parse(&caps, p->caps, e) ? model_lowered(m->model, &caps, e) : NULL;
    bool ok = g && plan_kernels_of(&x, p, g, &caps, e) && tell_all(&x, &caps, to, e);
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

/* The kernels that would be compiled. */
static bool verify_choice(quern_model *m, quern_db *db, const struct quern_compile_opts *o, const struct telling *to, struct err *e)
{
    struct arena a = {0};
    struct plan_kernels x;
    struct api_target t = {0};
    struct db *known = db && !o->untuned ? &db->db : NULL;
    struct cover_opts cut = {.no_fusion = o->no_fusion, .no_concat = o->no_memory_concat};
    struct plan_choice *c = arena_new(&a, struct plan_choice);
    plan_kernels_init(&x, &a);
    bool ok = api_target_open_rated(&t, m->q, o->device, o->threads, o->target, e) && api_choose(c, m, known, &t, cut, &a, e);
    if (ok) plan_kernels_chosen(&x, &c->c, &c->s);
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
