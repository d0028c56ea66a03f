// SPDX-License-Identifier: Apache-2.0
//
// Verification of programs against the reference evaluator. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include <math.h>
#include <string.h>

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (u32 d = 0; d < b->rank && same; d++) same = a->dim[d] == b->dim[d];
    return same;
}

static bool compare(struct quern_check *c, const struct tensor *got, const struct tensor *want,
                    enum dtype precision, double rtol, double atol, struct err *e)
{
    if (!same_shape(got, want)) return err_set(e, ERR_FAILED, "type or shape differ");
    struct tensor_diff d = tensor_compare(got, want, rtol, atol);
    c->n_bad = d.n_bad, c->count = tensor_count(want);
    c->max_abs = d.max_abs, c->max_rel = d.max_rel;
    c->tolerance = atol;
    double scale = tensor_largest(want), unit = check_last_place(precision, scale);
    c->ulp = d.max_abs / unit, c->bound = (atol + rtol * scale) / unit;
    return true;
}

quern_status quern_tensor_check(quern *q, const quern_tensor *got, const quern_tensor *want,
                                double rtol, double atol, struct quern_check *c)
{
    if (!api_given(q, "got want c", got, want, c)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    return api_end(q, compare(c, &got->t, &want->t, want->t.dtype, rtol, atol * tensor_largest(&want->t), e));
}

struct verified { /* a run of a program */
    quern_model *m;
    const struct graph *primitives;
    const i64 *var;     /* sizes */
    double spread[64];  /* per output, by values that are rounded either way */
};

/* How far output k of the model may be from the reference. Returns the type that it is computed in. */
static enum dtype tolerance(const struct verified *v, u32 k, const struct tensor *want, double *rtol, double *atol)
{
    const struct model *m = v->m->model;
    enum dtype asked = m->io.n ? m->io.v[m->graph.input.n + k].dtype : DT_NONE;
    bool is_rounded = asked != DT_NONE && dtype_is_int(asked);
    const struct numerics n = network_numerics(v->primitives, want->dtype, v->var);
    network_tolerance(&n, rtol, atol);
    /* values halfway between integers may round either way */
    *atol = is_rounded ? 1 : dtype_is_small(n.type) ? *atol : *atol * tensor_largest(want);
    if (dtype_is_int(want->dtype) && v->spread[k] > 0) *atol = fmax(*atol, 1);
    *atol += v->spread[k];
    return n.type;
}

/* Compares output k of the model with the reference. */
static bool check_result(const struct verified *v, u32 k, const struct tensor *got, const struct tensor *want, struct quern_check *c)
{
    double rtol, atol;
    enum dtype type = tolerance(v, k, want, &rtol, &atol);
    return compare(c, got, want, type, rtol, atol, &v->m->q->err);
}

static bool find_spread(struct verified *v, quern_tensor *const *in, quern_tensor *const *want, u64 seed)
{
    struct arena a = {0};
    const struct graph *g = &v->m->model->graph;
    struct tensor **x = arena_array(&a, struct tensor *, g->input.n + 1);
    const struct tensor **y = arena_array(&a, const struct tensor *, g->output.n + 1);
    for (u32 k = 0; k < g->input.n; k++) x[k] = &in[k]->t;
    for (u32 k = 0; k < g->output.n; k++) y[k] = &want[k]->t;
    const struct rounding r = {.g = g, .primitives = v->primitives, .in = x, .want = y, .var = v->var, .seed = seed};
    bool ok = network_rounding(&r, v->spread, &v->m->q->err);
    arena_release(&a);
    return ok;
}

bool api_tolerances(quern_model *m, quern_tensor *const *in, quern_tensor *const *want, uint64_t seed, double *rtol, double *atol, struct err *e)
{
    struct verified v = {.m = m, .var = m->model->var, .primitives = model_lowered(m->model, NULL, e)};
    assert(m->model->graph.output.n <= countof(v.spread));
    if (!v.primitives || !find_spread(&v, in, want, seed)) return false;
    for (u32 k = 0; k < m->model->graph.output.n; k++) tolerance(&v, k, &want[k]->t, &rtol[k], &atol[k]);
    return true;
}

bool api_check(quern_model *m, const char *sizes, u64 seed, quern_tensor *const *in, quern_tensor *const *want, quern_tensor *const *got,
               struct quern_check *c, struct err *e)
{
    struct arena a = {0};
    i64 *var = arena_array(&a, i64, m->model->sym.var.n + 1);
    memcpy(var, m->model->var, sizeof *var * m->model->sym.var.n);
    struct verified v = {.m = m, .var = var};
    bool ok = !sizes || sym_parse_sizes(&m->model->sym, sizes, var, e);
    ok = ok && (v.primitives = model_lowered(m->model, NULL, e)) && find_spread(&v, in, want, seed);
    for (u32 k = 0; k < m->model->graph.output.n && ok; k++) ok = check_result(&v, k, &got[k]->t, &want[k]->t, &c[k]);
    arena_release(&a);
    return ok;
}

quern_status quern_verify(quern_model *m, quern_program *p, const char *sizes, uint64_t seed,
                          struct quern_check *c, int max, int *n)
{
    if (!m || !api_given(m->q, "p c n", p, max > 0 ? (const void *)c : "", n)) return QUERN_USAGE;
    quern_tensor *in[64] = {0}, *want[64] = {0}, *got[64] = {0};
    int n_in = 0, n_out = quern_program_outputs(p);
    if (n_out > max || n_out > 64)
        return api_end(m->q, err_set(api_begin(m->q), ERR_USAGE, "more than %d outputs", max));
    quern_status s = quern_model_random_inputs(m, sizes, seed, in, 64, &n_in);
    if (!s) s = quern_model_eval(m, in, n_in, want, n_out);
    if (!s) s = quern_run(p, in, n_in, got, n_out);
    for (int k = 0; k < n_out && !s; k++) c[k] = (struct quern_check){.output = quern_program_output_name(p, k)};
    if (!s) s = api_end(m->q, api_check(m, sizes, seed, in, want, got, c, api_begin(m->q)));
    *n = n_out;
    for (int k = 0; k < 64; k++)
        quern_tensor_free(in[k]), quern_tensor_free(want[k]), quern_tensor_free(got[k]);
    return s;
}
