// SPDX-License-Identifier: Apache-2.0
//
// Verification of deployments against the reference evaluator: the whole, and each sub-graph alone on what it really read, so that errors neither add up
// nor hide each other. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "place/place.h"

enum { MAX_IO = 64 };

struct job {
    quern *q;
    quern_model *m;
    quern_deployment *d;
    quern_request *r;
    const char *sizes;
    u64 seed;
    quern_deployment_check_fn *fn;
    void *user;
    struct arena a;
    struct place_net net;
};

/* A model with the results of the same network on the same inputs. */
struct side {
    quern_model *m;
    quern_tensor *in[MAX_IO], *want[MAX_IO], *got[MAX_IO];
    int n_in, n_out;
};

static void side_close(struct side *s)
{
    for (int k = 0; k < MAX_IO; k++) quern_tensor_free(s->in[k]), quern_tensor_free(s->want[k]), quern_tensor_free(s->got[k]);
    quern_model_close(s->m);
}

static bool request_failed(const struct job *j) { return err_set(&j->q->err, ERR_FAILED, "%s", quern_request_error(j->r)); }

/* A tensor of the last run. */
static bool get(const struct job *j, const char *name, quern_tensor **t) { return quern_request_tensor(j->r, name, t) == QUERN_OK || request_failed(j); }

/* The graph as a model; with floats of 16 bits if the deployment's are. */
static bool open_model(struct job *j, const struct graph *g, struct side *s)
{
    bool is_narrow = false;
    for (u32 k = 0; k < g->input.n; k++)
        is_narrow |= graph_value(g, g->input.v[k])->dtype == DT_F32 && s->in[k] && quern_tensor_dtype(s->in[k]) == QUERN_F16;
    s->n_in = (int)g->input.n, s->n_out = (int)g->output.n;
    if (s->n_in > MAX_IO || s->n_out > MAX_IO) return err_set(&j->q->err, ERR_UNSUPPORTED, "more than %d inputs or outputs", MAX_IO);
    return api_model_of(j->q, g, str_z(&j->a, j->net.name), is_narrow, &s->m);
}

/* Sizes of the model from its inputs, as text. */
static const char *sizes_of(struct job *j, const struct side *s)
{
    struct buf b = {0};
    api_print_sizes(&b, s->m, s->in, s->n_in);
    const char *z = b.n ? str_dup(&j->a, buf_view(&b)).p : NULL;
    buf_release(&b);
    return z;
}

static bool check(struct job *j, struct side *s, const char *subgraph, const char *const *name)
{
    struct quern_check c[MAX_IO] = {0};
    if (quern_model_eval(s->m, s->in, s->n_in, s->want, s->n_out)) return false;
    for (int k = 0; k < s->n_out; k++) c[k].output = name[k];
    if (!api_check(s->m, sizes_of(j, s), j->seed, s->in, s->want, s->got, c, api_begin(j->q))) return false;
    for (int k = 0; k < s->n_out && j->fn; k++) j->fn(j->user, subgraph, &c[k]);
    return true;
}

/* Sub-graphs. */

static const char *tensor_at(const struct job *j, int k, bool is_output, u32 i) { return quern_subgraph_tensor(j->d, k, is_output, (int)i); }

static bool find_value(const struct job *j, const char *name, value_id *v)
{
    for (u32 t = 0; t < j->net.tensor.n; t++)
        if (str_is(j->net.tensor.v[t].name, name)) return *v = j->net.tensor.v[t].value, true;
    return err_set(&j->q->err, ERR_INPUT, "the network has no tensor '%s': the deployment was made of another one", name);
}

/* Sub-graph k in the terms of the network. */
static bool find_part(struct job *j, int k, struct place_part *p)
{
    const char *name;
    *p = (struct place_part){0};
    for (int i = 0; (name = quern_subgraph_operator(j->d, k, i)); i++) {
        const u64 *at = map_get(&j->net.op_by_name, str_of(name));
        if (!at) return err_set(&j->q->err, ERR_INPUT, "the network has no operator '%s': the deployment was made of another one", name);
        *arr_push(&j->a, &p->op) = (u32)*at;
    }
    for (u32 i = 0; (name = tensor_at(j, k, false, i)); i++)
        if (!find_value(j, name, arr_push(&j->a, &p->in))) return false;
    for (u32 i = 0; (name = tensor_at(j, k, true, i)); i++)
        if (!find_value(j, name, arr_push(&j->a, &p->out))) return false;
    return true;
}

static bool check_part(struct job *j, int k, const char *subgraph)
{
    struct side s = {0};
    struct place_part p;
    struct graph g;
    const char *name[MAX_IO];
    bool ok = find_part(j, k, &p) && (p.in.n <= MAX_IO && p.out.n <= MAX_IO ? true : err_set(&j->q->err, ERR_UNSUPPORTED, "more than %d tensors", MAX_IO));
    for (u32 i = 0; ok && i < p.in.n; i++) ok = get(j, tensor_at(j, k, false, i), &s.in[i]);
    for (u32 i = 0; ok && i < p.out.n; i++) ok = get(j, name[i] = tensor_at(j, k, true, i), &s.got[i]);
    if (ok) place_part_graph(&g, &j->net, &p, &j->a);
    ok = ok && open_model(j, &g, &s) && check(j, &s, subgraph, name);
    side_close(&s);
    return ok;
}

/* The whole. */

/* Random inputs of the deployment's types. */
static bool random_inputs(struct job *j, struct side *s)
{
    int n = 0;
    if (quern_model_random_inputs(j->m, j->sizes, j->seed, s->in, MAX_IO, &n)) return false;
    if (n != quern_deployment_inputs(j->d)) return err_set(&j->q->err, ERR_INPUT, "the network has %d inputs, the deployment %d", n, quern_deployment_inputs(j->d));
    for (int k = 0; k < n; k++) {
        struct quern_deployment_value v = QUERN_OPTS(quern_deployment_value);
        quern_tensor *t = NULL;
        if (quern_deployment_value(j->d, 0, k, &v)) return false;
        if (v.type == quern_tensor_dtype(s->in[k])) continue;
        if (quern_tensor_cast(j->q, s->in[k], v.type, &t)) return false;
        quern_tensor_free(s->in[k]);
        s->in[k] = t;
    }
    return true;
}

static bool run(struct job *j, struct side *s)
{
    for (int k = 0; k < quern_deployment_inputs(j->d); k++)
        if (quern_request_set_input(j->r, k, s->in[k])) return request_failed(j);
    return quern_request_run(j->r) == QUERN_OK || request_failed(j);
}

static bool check_whole(struct job *j, struct side *s)
{
    const char *name[MAX_IO];
    if (!open_model(j, &j->m->model->graph, s)) return false;
    for (int k = 0; k < s->n_out; k++) {
        struct quern_deployment_value v = QUERN_OPTS(quern_deployment_value);
        if (quern_deployment_value(j->d, 1, k, &v) || !get(j, v.name, &s->got[k])) return false;
        name[k] = v.origin;
    }
    return check(j, s, NULL, name);
}

/* Whether the deployment was made of this network. */
static bool is_of_network(struct job *j)
{
    struct quern_subgraph x = QUERN_OPTS(quern_subgraph);
    struct place_part p;
    for (int k = 0; quern_deployment_subgraph(j->d, k, &x); k++)
        if (!find_part(j, k, &p)) return false;
    return true;
}

static bool verify(struct job *j)
{
    struct side whole = {0};
    struct quern_subgraph x = QUERN_OPTS(quern_subgraph);
    bool ok = place_net_open(&j->net, j->m->model, &j->a, &j->q->err) && is_of_network(j) && random_inputs(j, &whole) && quern_request_create(j->d, &j->r) == QUERN_OK &&
              run(j, &whole);
    for (int k = 0; ok && quern_deployment_subgraph(j->d, k, &x); k++) ok = check_part(j, k, x.name) || err_prefix(&j->q->err, "%s", x.name);
    ok = ok && check_whole(j, &whole);
    quern_request_destroy(j->r);
    side_close(&whole);
    return ok;
}

quern_status quern_verify_deployment(quern_model *m, quern_deployment *d, const char *sizes, uint64_t seed, quern_deployment_check_fn *fn, void *user)
{
    if (!m || !api_given(m->q, "d", d)) return QUERN_USAGE;
    struct job j = {.q = m->q, .m = m, .d = d, .sizes = sizes, .seed = seed, .fn = fn, .user = user};
    api_begin(m->q);
    bool ok = verify(&j);
    arena_release(&j.a);
    return api_end(m->q, ok);
}
