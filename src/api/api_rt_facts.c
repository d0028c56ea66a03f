// SPDX-License-Identifier: Apache-2.0
//
// What a program consists of, and what is expected of it. Declared and documented in include/quern.h.
#include "api/api.h"

#include <string.h>

/* "H:1080,W:1920": sizes that costs refer to. */
static const char *sizes_text(const struct plan *p, struct arena *a)
{
    struct buf b = {0};
    for (u32 v = 0; v < p->sym.var.n; v++)
        if (p->var.v[v].optimised_for != INT64_MIN)
            buf_printf(&b, "%s%.*s:%lld", b.n ? "," : "", STR_ARG(p->sym.var.v[v]), (long long)p->var.v[v].optimised_for);
    struct str text = str_dup(a, buf_view(&b));
    buf_release(&b);
    return text.n ? text.p : "";
}

static const char *isa_text(const struct plan *p, struct arena *a)
{
    struct isa s;
    struct err unknown = {0};
    struct buf b = {0};
    if (!p->isa.n || !isa_parse(&s, p->isa, &unknown)) return "";
    isa_print(&b, s, '+');
    struct str text = str_dup(a, buf_view(&b));
    buf_release(&b);
    return text.n ? text.p : "";
}

static const char *fingerprint_text(struct dev *d, struct arena *a)
{
    struct buf b = {0};
    if (d) d->driver->fingerprint(d, &b);
    struct str text = str_dup(a, buf_view(&b));
    buf_release(&b);
    return text.n ? text.p : "";
}

/* Constants with the same content share memory. */
static i64 constant_bytes(const struct plan *p)
{
    i64 sum = 0;
    for (u32 i = 0; i < p->buf.n; i++) {
        u32 k = 0;
        while (k < i && !(p->buf.v[k].kind == PB_CONST && p->buf.v[k].data == p->buf.v[i].data)) k++;
        if (p->buf.v[i].kind == PB_CONST && k == i) sum += p->buf.v[i].data_size;
    }
    return sum;
}

/* The time of all dispatches at selection; 0 if one is unknown. */
static double expected_seconds(const struct plan *p, bool *is_measured)
{
    double sum = 0;
    *is_measured = p->dispatch.n > 0;
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        if (!(d->seconds > 0)) return *is_measured = false, 0;
        sum += d->seconds;
        *is_measured &= d->is_measured;
    }
    return sum;
}

quern_status quern_program_facts(quern_program *p, struct quern_program_facts *out)
{
    if (!p || !api_given(p->q, "out", out)) return QUERN_USAGE;
    if (!p->has_facts) {
        const struct plan *plan = &p->plan;
        bool is_measured;
        p->has_facts = true;
        p->facts = (struct quern_program_facts){.size = sizeof p->facts,
                                                .model = plan->model.n ? plan->model.p : "",
                                                .device = p->dev ? p->dev->driver->name : "",
                                                .isa = isa_text(plan, &p->arena),
                                                .sizes = sizes_text(plan, &p->arena),
                                                .dispatches = (int)plan->dispatch.n,
                                                .constants = constant_bytes(plan),
                                                .seconds = expected_seconds(plan, &is_measured),
                                                .fingerprint = fingerprint_text(p->dev, &p->arena)};
        p->facts.is_measured = is_measured;
    }
    size_t size = out->size;
    memcpy(out, &p->facts, size < sizeof p->facts ? size : sizeof p->facts);
    out->size = size;
    return QUERN_OK;
}
