// SPDX-License-Identifier: Apache-2.0
//
// Verification of a program kernel by kernel (plan/layers.c). Declared and documented in
// include/quern.h.
#include "api/api_model.h"

struct watched { /* a run */
    quern_program *p;
    struct plan_layers *layers;
    quern_layer_fn *fn;
    void *user;
};

static void report(void *user, const struct plan_layer *l)
{
    const struct watched *w = user;
    struct arena a = {0};
    const struct plan_dispatch *d = l->dispatch;
    w->fn(w->user, &(struct quern_layer){.layer = str_z(&a, d->label), .ops = str_z(&a, d->ops), .value = str_z(&a, l->value),
                                         .kernel = str_z(&a, d->candidate), .n_bad = l->n_bad, .count = l->count, .ulp = l->ulp,
                                         .bound = l->bound, .at = l->at, .got = l->got, .want = l->want,
                                         .type = dtype_name(l->precision), .loss = l->loss});
    arena_release(&a);
}

static bool compare(void *user, u32 dispatch, const struct dev_mem *buf, const i64 *var, struct err *e)
{
    const struct watched *w = user;
    return plan_layers_compare(w->layers, dispatch, w->p->dev, buf, var, e);
}

static bool verify_layers(struct watched *w, quern_model *m, const char *sizes, uint64_t seed, struct err *e)
{
    quern_tensor *in[64] = {0}, *got[64] = {0};
    struct tensor given[64];
    struct caps caps;
    int n_in = 0, n_out = quern_program_outputs(w->p);
    const struct graph *g = NULL;
    bool ok = quern_model_random_inputs(m, sizes, seed, in, 64, &n_in) == QUERN_OK && caps_parse(&caps, w->p->plan.caps, e) &&
              (g = model_lowered(m->model, &caps, e)) && (w->layers = plan_layers_open(&w->p->plan, g, &caps, report, w, e));
    for (int k = 0; k < n_in; k++) given[k] = in[k]->t;
    ok = ok && plan_layers_evaluate(w->layers, given, e);
    if (ok && n_out > 64) ok = err_set(e, ERR_USAGE, "more than 64 outputs");
    if (ok) {
        rt_watch(w->p->rt, compare, w);
        ok = quern_run(w->p, in, n_in, got, n_out) == QUERN_OK;
        rt_watch(w->p->rt, NULL, NULL);
    }
    for (int k = 0; k < 64; k++) quern_tensor_free(in[k]), quern_tensor_free(got[k]);
    return ok;
}

quern_status quern_verify_layers(quern_model *m, quern_program *p, const char *sizes, uint64_t seed, quern_layer_fn *fn, void *user)
{
    struct err *e = api_begin(m->q);
    struct watched w = {.p = p, .fn = fn, .user = user};
    bool ok = verify_layers(&w, m, sizes, seed, e);
    plan_layers_close(w.layers);
    return api_end(m->q, ok);
}
