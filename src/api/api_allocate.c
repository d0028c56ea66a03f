// SPDX-License-Identifier: Apache-2.0
//
// Placement of a network's operators on devices: templates, checks, and the search for the best
// allocation. Targets are opened here, as for compiling; src/place does the rest. Declared and
// documented in include/quern.h.
#include "api/api_model.h"

#include <math.h>
#include <string.h>

#include "place/place.h"
#include "tune/rates.h"

/* Where nothing is measured: a PCIe or USB 3 link with a driver's overhead, see doc/allocation.md.
 */
static const double assumed_bandwidth = 5e9, assumed_latency = 20e-6;

struct placing {
    quern_model *m;
    struct db *db;
    struct quern_allocate_opts o;
    struct arena a;
    struct place_net x;
    struct place_devices d;
    enum place_aim aim;
    struct api_target *target; /* per device */
    struct plan_target *plan;
    struct place_target *cost;
    u32 n_open;
    struct place_costs *costs;
};

/* --- targets --- */

static bool is_absent(const struct place_device *d, struct err *e)
{
    struct err why = *e;
    const char *name = d->name.p;
    e->code = ERR_NONE;
    if (d->kind->route == PLACE_OPENVINO || d->kind->route == PLACE_VENDOR)
        return err_set(e, ERR_USAGE,
                       "device '%s' is not quern's, so its times have to be described: "
                       "'%s=gflops:1000;gbs:10'",
                       name, name);
    return err_set(e, why.code,
                   "device '%s': %s; describe one that is elsewhere by its architecture, "
                   "'%s=device:..' (quern devices), or by rates, '%s=gflops:1000;gbs:100'",
                   name, why.msg, name, name);
}

static void find_link(struct placing *p, u32 k)
{
    const struct place_device *d = &p->d.v[k];
    const struct api_target *t = d->is_described ? NULL : &p->target[k];
    struct place_target *to = &p->cost[k];
    struct link_rates r = {0};
    to->link_bandwidth = d->link_bandwidth, to->link_latency = d->link_latency;
    if (to->link_bandwidth > 0 || (t && t->driver->can_run) ||
        (!t && d->kind->route == PLACE_NATIVE))
        return;
    if (t && !dev_is_described(&t->dev)) {
        struct quern *q = p->m->q;
        const struct device_target target = {.driver = t->driver,
                                             .opts = &t->dev,
                                             .lang = t->lang,
                                             .caps = &t->caps,
                                             .fingerprint = buf_view(&t->fingerprint),
                                             .toolchain = buf_view(&t->toolchain),
                                             .log = &q->log,
                                             .stop = &q->stop};
        link_at_first_use(&r, &target);
    }
    to->link_bandwidth = r.bandwidth > 0 ? r.bandwidth : assumed_bandwidth;
    if (!(to->link_latency > 0)) to->link_latency = r.bandwidth > 0 ? r.latency : assumed_latency;
}

static bool open_target(struct placing *p, u32 k, struct err *e)
{
    const struct place_device *d = &p->d.v[k];
    if (!d->is_described) {
        if (!d->device.n) return is_absent(d, e);
        const int threads =
            d->kind->route == PLACE_NATIVE ? (int)place_device_threads(&p->d, k) : 0;
        if (!api_target_open_rated(&p->target[k], p->m->q, str_z(&p->a, d->device), threads, NULL,
                                   e))
            return is_absent(d, e);
        p->plan[k] = api_plan_target(&p->target[k], p->db);
        p->cost[k].plan = &p->plan[k];
    }
    find_link(p, k);
    return true;
}

static bool open_costs(struct placing *p, struct err *e)
{
    p->target = arena_array(&p->a, struct api_target, p->d.n + 1);
    p->plan = arena_array(&p->a, struct plan_target, p->d.n + 1);
    p->cost = arena_array(&p->a, struct place_target, p->d.n + 1);
    for (; p->n_open < p->d.n; p->n_open++)
        if (!open_target(p, p->n_open, e)) {
            api_target_close(&p->target[p->n_open]);
            return false;
        }
    p->costs = place_costs_open(&p->x, p->m->model, &p->d, p->cost, e);
    return p->costs != NULL;
}

/* --- reports --- */

static struct quern_subgraph_time *list_parts(struct placing *p, const struct place_expected *x)
{
    struct quern_subgraph_time *v = arena_array(&p->a, struct quern_subgraph_time, x->parts.n + 1);
    for (u32 i = 0; i < x->parts.n; i++) {
        const struct place_part *s = &x->parts.v[i];
        v[i] = (struct quern_subgraph_time){.device = p->d.v[s->device].name.p,
                                            .first = p->x.op.v[s->op.v[0]].name.p,
                                            .last = p->x.op.v[s->op.v[s->op.n - 1]].name.p,
                                            .n_ops = (int)s->op.n,
                                            .n_inputs = (int)s->in.n,
                                            .n_outputs = (int)s->out.n,
                                            .start = x->start[i],
                                            .seconds = x->seconds[i]};
    }
    return v;
}

static struct quern_device_load *list_loads(struct placing *p, const struct place_expected *x)
{
    struct quern_device_load *v = arena_array(&p->a, struct quern_device_load, p->d.n + 1);
    for (u32 d = 0; d < p->d.n; d++)
        v[d] = (struct quern_device_load){.device = p->d.v[d].name.p, .busy = x->busy[d]};
    for (u32 i = 0; i < x->parts.n; i++) {
        v[x->parts.v[i].device].n_subgraphs++;
        v[x->parts.v[i].device].n_ops += (int)x->parts.v[i].op.n;
    }
    return v;
}

static bool has_watts(const struct placing *p)
{
    for (u32 d = 0; d < p->d.n; d++)
        if (!(p->d.v[d].watts > 0)) return false;
    return true;
}

static void report(struct placing *p, const struct place_expected *x, const struct place_found *f)
{
    struct quern_placement r = {.aim = place_aim_name(p->aim),
                                .value = x->value,
                                .latency = x->latency,
                                .period = x->period};
    if (has_watts(p)) r.joules = x->joules;
    r.n_subgraphs = (int)x->parts.n, r.subgraph = list_parts(p, x),
    r.is_minimal = x->parts.is_minimal;
    r.n_devices = (int)p->d.n, r.device = list_loads(p, x);
    if (f) {
        r.bound = f->bound, r.n_tried = (int64_t)f->n_tried, r.n_compiled = (int64_t)f->n_compiled,
        r.is_cut_short = f->is_cut_short;
        if (f->single != UINT32_MAX)
            r.single = p->d.v[f->single].name.p, r.single_value = f->single_value;
    }
    p->o.report(p->o.report_user, &r);
}

/* --- the three ways --- */

static void progress(void *user, const struct place_progress *x)
{
    const struct placing *p = user;
    const double unit = p->aim == PLACE_ENERGY ? 1 : 1e3;
    struct buf b = {0};
    buf_printf(&b, "%llu allocations", (unsigned long long)x->n_tried);
    if (isfinite(x->best))
        buf_printf(&b, ", best %.4g %s", x->best * unit, p->aim == PLACE_ENERGY ? "J" : "ms");
    const struct quern_event ev = {.kind = QUERN_PROGRESS,
                                   .text = b.p,
                                   .done = x->n_done,
                                   .total = x->n_starts,
                                   .seconds_left = -1};
    if (p->m->q->o.on_event) p->m->q->o.on_event(p->m->q->o.user, &ev);
    buf_release(&b);
}

static bool search(struct placing *p, struct place_allocation *y, struct err *e)
{
    struct place_found f;
    const struct place_search o = {
        .aim = p->aim, .seconds = p->o.seconds, .progress = progress, .user = p};
    if (!open_costs(p, e) || !place_search(&f, p->costs, &o, &p->a, e)) return false;
    *y = f.best.y;
    if (p->o.report) report(p, &f.best, &f);
    return true;
}

static bool fill_template(struct placing *p, struct place_allocation *y, struct err *e)
{
    u32 d = place_device_find(&p->d, str_of(p->o.on));
    if (d == UINT32_MAX) {
        struct place_device x;
        if (!place_device_named(&x, str_of(p->o.on), &p->a, e)) return false;
        d = p->d.n;
        *arr_push(&p->a, &p->d) = x;
    }
    for (u32 k = 0; k < p->x.op.n; k++) {
        y->device[k] = d;
        if (!place_can_run(&p->d.v[d], &p->x, k, e))
            return err_prefix(e, "operator '%.*s' cannot run on '%.*s'", STR_ARG(p->x.op.v[k].name),
                              STR_ARG(p->d.v[d].name));
    }
    return true;
}

static bool expect(struct placing *p, const struct place_allocation *y, struct err *e)
{
    struct place_expected x;
    struct place_parts parts;
    if (!p->o.report) return place_split(&parts, &p->x, y, &p->a, e);
    if (!open_costs(p, e) || !place_expect(&x, p->costs, y, p->aim, &p->a, e)) return false;
    report(p, &x, NULL);
    return true;
}

static bool is_check(const struct placing *p) { return p->o.check || p->o.check_file; }

static bool read_options(struct placing *p, struct err *e)
{
    u32 n = 0;
    while (p->o.devices && p->o.devices[n]) n++;
    if (p->o.on && is_check(p))
        return err_set(e, ERR_USAGE, "an allocation is either made for one device or checked");
    if (!n && !is_check(p) && !p->o.on)
        return err_set(e, ERR_USAGE, "no devices are given to place the network on");
    if (p->o.minimise && !place_aim_parse(str_of(p->o.minimise), &p->aim))
        return err_set(e, ERR_USAGE, "cannot minimise '%s'; there are: latency, throughput, energy",
                       p->o.minimise);
    if (p->o.seconds < 0 || isnan(p->o.seconds))
        return err_set(e, ERR_USAGE, "a search of %g seconds", p->o.seconds);
    return place_devices_parse(&p->d, p->o.devices, n, &p->a, e);
}

static bool place(struct placing *p, char **json, struct err *e)
{
    struct place_allocation y;
    struct buf b = {0};
    if (!read_options(p, e) || !place_net_open(&p->x, p->m->model, &p->a, e)) return false;
    y.device = arena_array(&p->a, u32, p->x.op.n + 1);
    bool ok = true;
    if (p->o.on) ok = fill_template(p, &y, e);
    else if (is_check(p))
        ok = place_allocation_read(&y, &p->x, &p->d, p->o.check, p->o.check_file, &p->a, e);
    else ok = search(p, &y, e);
    if (ok && (p->o.on || is_check(p))) ok = expect(p, &y, e);
    if (!ok) return false;
    place_allocation_print(&b, &y, &p->x, &p->d);
    *json = api_text(&b);
    return true;
}

quern_status quern_allocate(quern_model *m, quern_db *db, const struct quern_allocate_opts *o,
                            char **json)
{
    struct placing p = {.m = m, .db = db ? &db->db : NULL};
    if (!m || !api_given(m->q, "options json", o, json)) return QUERN_USAGE;
    memcpy(&p.o, o, o->size < sizeof p.o ? o->size : sizeof p.o);
    struct err *e = api_begin(m->q);
    bool ok = place(&p, json, e);
    place_costs_close(p.costs);
    for (u32 k = 0; k < p.n_open; k++) api_target_close(&p.target[k]);
    arena_release(&p.a);
    return api_end(m->q, ok);
}
