// SPDX-License-Identifier: Apache-2.0
//
// The user's cache as a whole, and what front ends keep there. Declared and documented in include/quern.h.
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

/* Notes. */

static void open_notes(struct cache *c, quern *q, struct arena *a) { cache_open(c, "notes", a, &q->log); }

quern_status quern_cache_get(quern *q, const void *key, size_t key_size, char **data, size_t *size)
{
    if (!api_given(q, "key data size", key_size ? key : "", data, size)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct cache c;
    struct str content;
    open_notes(&c, q, &a);
    bool ok = cache_get(&c, hash_bytes(key, (i64)key_size), &a, &content) || err_set(e, ERR_NOTHING, "nothing is kept for this key");
    if (ok) {
        struct buf b = {0};
        buf_str(&b, content);
        *size = (size_t)content.n;
        *data = api_text(&b);
    }
    arena_release(&a);
    return api_end(q, ok);
}

quern_status quern_cache_put(quern *q, const void *key, size_t key_size, const void *data, size_t size)
{
    if (!api_given(q, "key data", key_size ? key : "", size ? data : "")) return QUERN_USAGE;
    api_begin(q);
    struct arena a = {0};
    struct cache c;
    open_notes(&c, q, &a);
    cache_put(&c, hash_bytes(key, (i64)key_size), (struct str){data, (i64)size});
    arena_release(&a);
    return api_end(q, true);
}
