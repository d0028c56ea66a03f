// SPDX-License-Identifier: Apache-2.0
//
// dev_host.c: memory of devices that work in host memory,
// and their fence: a launch is complete when it returns.
#include "dev/dev.h"

#include <string.h>

bool dev_host_alloc(struct dev *d, i64 size, struct dev_mem *m, struct err *e)
{
    *m = (struct dev_mem){.host = mem_aligned(i64_max(size, 1)), .size = size};
    return m->host || err_set(e, ERR_SYSTEM, "cannot allocate %lld bytes", (long long)size);
}

void dev_host_release(struct dev *d, struct dev_mem *m)
{
    mem_free(m->host);
    *m = (struct dev_mem){0};
}

static bool fits(struct dev_mem m, i64 n, struct err *e)
{
    return (n >= 0 && n <= m.size) || err_set(e, ERR_USAGE, "%lld bytes do not fit into %lld",
                                              (long long)n, (long long)m.size);
}

bool dev_host_upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    if (!fits(m, n, e)) return false;
    if (n) memcpy(m.host, p, (size_t)n);
    return true;
}

bool dev_host_download(struct dev *d, struct dev_mem m, void *p, i64 n, struct err *e)
{
    if (!fits(m, n, e)) return false;
    if (n) memcpy(p, m.host, (size_t)n);
    return true;
}

bool dev_host_fence(struct dev *d, struct err *e) { return true; }
