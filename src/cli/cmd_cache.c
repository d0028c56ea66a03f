// SPDX-License-Identifier: Apache-2.0
//
// quern cache: size of the user's cache of compiled kernels and programs, its limit, and emptying it.
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2GiB", "500M", "1.5gb", "1000000": bytes. Units are powers of 1024, with a "B" and no "i" of 1000. */
static bool read_size(const char *s, int64_t *bytes)
{
    static const char unit[] = "kmgt";
    char *end;
    double v = strtod(s, &end), by = 1;
    if (end == s || !(v >= 0)) return false;
    while (*end == ' ') end++;
    const char *at = *end ? strchr(unit, *end | 0x20) : NULL;
    if (at) {
        end++;
        double base = (*end | 0x20) == 'b' ? 1000 : 1024;
        for (const char *u = unit; u <= at; u++) by *= base;
        if ((*end | 0x20) == 'i') end++;
    }
    if ((*end | 0x20) == 'b') end++;
    if (*end || v * by > 9e18) return false;
    *bytes = (int64_t)(v * by);
    return true;
}

static void print(const struct cli *c, const struct quern_cache *x)
{
    if (opts_flag(c, "json", false)) {
        printf("{\"folder\":");
        json_text(x->folder);
        printf(",\"entries\":%lld,\"bytes\":%lld,\"limit\":%lld}\n", (long long)x->entries, (long long)x->bytes, (long long)x->limit);
        return;
    }
    printf("folder   %s\n", x->folder);
    printf("entries  %lld\n", (long long)x->entries);
    printf("size     %.1f MiB\n", (double)x->bytes / (1 << 20));
    printf("limit    %.1f MiB\n", (double)x->limit / (1 << 20));
}

static int run(struct cli *c)
{
    const char *size = opts_text(c, "size");
    struct quern_cache x = QUERN_OPTS(quern_cache);
    int64_t bytes = 0;
    if (size && !read_size(size, &bytes)) return usage_error(c, "'%s' is not a size, such as 500MiB or 2GiB", size);
    quern_status s = opts_flag(c, "clear", false) ? quern_cache_clear(c->q) : QUERN_OK;
    if (!s && size) s = quern_cache_limit(c->q, bytes);
    if (!s) s = quern_cache_info(c->q, &x);
    if (!s) print(c, &x);
    return fail(c, s);
}

static const struct opt options[] = {
    {"size", 0, OPT_TEXT, "SIZE", "set the size limit: 500MiB, 2GiB (default), 0 for nothing; least recently used files are evicted"},
    {"clear", 0, OPT_FLAG, NULL, "empty the cache"},
    OPT_END,
};

const struct cmd cmd_cache = {
    .name = "cache",
    .summary = "print, limit or empty the user's cache of compiled kernels and programs",
    .args = "",
    .min_args = 0,
    .max_args = 0,
    .options = options,
    .run = run,
};
