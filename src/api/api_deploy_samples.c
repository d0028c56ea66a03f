// SPDX-License-Identifier: Apache-2.0
//
// Calibration data of sub-graphs: the network in floats is run on the caller's samples, with the values that enter these sub-graphs as further outputs,
// which are recorded.
#include "api/api_deploy.h"

#include <string.h>

struct recording {
    struct api_deploy *d;
    struct api_samples samples;
    struct api_net net;
    struct graph graph;        /* the network with more outputs */
};

static bool wants(const struct api_part *p) { return p->backend && p->backend->needs_samples; }

static bool is_listed(const struct graph *g, value_id v)
{
    for (u32 k = 0; k < g->output.n; k++)
        if (g->output.v[k] == v) return true;
    return graph_value(g, v)->producer == 0;
}

/* Makes the values that enter sub-graphs outputs. false: no sub-graph wants samples. */
static bool add_outputs(struct recording *r)
{
    struct api_deploy *d = r->d;
    bool any = false;
    graph_clone(&r->graph, &d->net.g, &d->arena);
    for (u32 k = 0; k < d->parts.n; k++) {
        if (!wants(&d->part[k])) continue;
        any = true;
        for (u32 i = 0; i < d->parts.v[k].in.n; i++)
            if (!is_listed(&r->graph, d->parts.v[k].in.v[i])) *arr_push(&d->arena, &r->graph.output) = d->parts.v[k].in.v[i];
    }
    return any;
}

static bool copy_tensor(struct api_deploy *d, struct tensor **to, const struct tensor *from, struct err *e)
{
    *to = tensor_try(&d->arena, from->dtype, from->rank, from->dim, e, "calibration data", S(""));
    if (*to) memcpy((*to)->data, from->data, (size_t)tensor_bytes(from));
    return *to != NULL;
}

static bool record_part(struct recording *r, u32 k, struct err *e)
{
    struct api_deploy *d = r->d;
    const struct place_part *p = &d->parts.v[k];
    struct deploy_samples *s = &d->part[k].samples;
    struct tensor **in = arena_array(&d->arena, struct tensor *, p->in.n + 1);
    for (u32 i = 0; i < p->in.n; i++)
        if (!copy_tensor(d, &in[i], api_net_value(&r->net, p->in.v[i]), e)) return false;
    *arr_push(&d->arena, s) = in;
    return true;
}

static bool record(void *user, int n, struct err *e)
{
    struct recording *r = user;
    if (!api_net_run(&r->net)) return false;
    for (u32 k = 0; k < r->d->parts.n; k++)
        if (wants(&r->d->part[k]) && !record_part(r, k, e)) return false;
    return true;
}

bool api_deploy_samples(struct api_deploy *d)
{
    struct recording r = {.d = d};
    if (!add_outputs(&r) || !d->o.sample) return true;
    bool ok = api_samples_open(&r.samples, d->m, d->o.sample, d->o.user, &d->q->err) &&
              api_net_open(&r.net, &r.samples, &r.graph, NULL, 0, &d->arena) && api_samples_each(&r.samples, record, &r);
    api_net_close(&r.net);
    return ok;
}
