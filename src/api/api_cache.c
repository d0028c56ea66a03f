// SPDX-License-Identifier: Apache-2.0
//
// The user's cache as a whole. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include <stdio.h>
#include <string.h>

quern_status quern_cache_info(quern *q, struct quern_cache *info)
{
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct cache_use u;
    struct quern_cache out = {.size = info->size};
    bool ok = cache_look(&u, &a, e);
    if (ok) {
        snprintf(out.folder, sizeof out.folder, "%.*s", STR_ARG(u.folder));
        out.entries = u.n, out.bytes = u.bytes, out.limit = u.limit;
        memcpy(info, &out, out.size < sizeof out ? out.size : sizeof out);
    }
    arena_release(&a);
    return api_end(q, ok);
}

quern_status quern_cache_limit(quern *q, int64_t bytes)
{
    struct err *e = api_begin(q);
    return api_end(q, cache_set_limit(bytes, e));
}

quern_status quern_cache_clear(quern *q)
{
    struct err *e = api_begin(q);
    return api_end(q, cache_clear(e));
}
