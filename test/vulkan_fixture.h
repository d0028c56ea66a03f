// SPDX-License-Identifier: Apache-2.0
//
// For tests that open Vulkan devices in their own process. A driver is unloaded with its last
// instance, and its global allocations then look like leaks to the sanitizer, from code it can no
// longer name. So drivers stay loaded here.
#ifndef QUERN_VULKAN_FIXTURE_H
#define QUERN_VULKAN_FIXTURE_H

#include "dev/dev.h"

/* Call before the first device is opened. */
static inline void vulkan_stay_loaded(void)
{
    struct arena a = {0};
    struct err e = {0};
    struct str maps = {0}, line, path;
    struct dev *d = dev_find(S("vulkan"))->open(&(struct dev_opts){0}, &e);
    e = (struct err){0};
    os_read(&a, "/proc/self/maps", 1 << 24, &maps, &e);
    while (d && str_cut(maps, '\n', &line, &maps)) {
        if (!str_glob(S("*/libvulkan*"), line) || !str_cut(line, '/', &line, &path)) continue;
        os_dlopen(str_fmt(&a, "/%.*s", STR_ARG(path)).p, &e);
    }
    if (d) d->driver->close(d);
    arena_release(&a);
}

#endif
