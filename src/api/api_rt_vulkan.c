// SPDX-License-Identifier: Apache-2.0
//
// The caller's own device of Vulkan. Declared and documented in include/quern.h.
#include "api/api.h"

#include <string.h>

static struct dev_foreign foreign_of(const struct quern_vulkan *v)
{
    struct quern_vulkan x = {0};
    memcpy(&x, v, v->size < sizeof x ? v->size : sizeof x);
    return (struct dev_foreign){.instance = x.instance,
                                .gpu = x.physical_device,
                                .device = x.device,
                                .queue = x.queue,
                                .family = x.family,
                                .version = x.version,
                                .find = x.get_instance_proc_addr,
                                .made = x.create_info,
                                .lock = x.lock,
                                .unlock = x.unlock,
                                .user = x.user};
}

quern_status quern_vulkan_attach(quern *q, const struct quern_vulkan *v)
{
    if (!q) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct dev_attached *x = NULL;
    if (v) {
        struct dev_foreign f = foreign_of(v);
        x = dev_vulkan_attach(&f, e);
        if (!x) return api_end(q, false);
    }
    dev_vulkan_detach(q->attached);
    q->attached = x;
    return QUERN_OK;
}

quern_status quern_vulkan_requirements(quern *q, const struct quern_vulkan *v,
                                       struct quern_vulkan_requirements *out)
{
    if (!api_given(q, "v out", v, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct dev_foreign f = foreign_of(v);
    struct dev_needs needs;
    struct quern_vulkan_requirements x = {.size = out->size};
    arena_reset(&q->needs);
    if (!dev_vulkan_needs(&f, &needs, &q->needs, e)) return api_end(q, false);
    x.extensions = needs.extension, x.n_extensions = needs.n_extension;
    x.features = needs.feature, x.n_features = needs.n_feature;
    x.chain = needs.chain;
    memcpy(out, &x, out->size < sizeof x ? out->size : sizeof x);
    return QUERN_OK;
}
