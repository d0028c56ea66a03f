// SPDX-License-Identifier: Apache-2.0
//
// dev.c: the registry of device drivers. The list is generated from file names.
#include "dev/dev.h"

#include <string.h>

#define X(name) extern const struct dev_driver dev_##name;
#include "dev.inc"
#undef X

static const struct dev_driver *const drivers[] = {
#define X(name) &dev_##name,
#include "dev.inc"
#undef X
};

const struct dev_driver *const *dev_all(i64 *n)
{
    *n = countof(drivers);
    return drivers;
}

const struct dev_driver *dev_find(struct str name)
{
    for (i64 i = 0; i < countof(drivers); i++)
        if (str_is(name, drivers[i]->name)) return drivers[i];
    return NULL;
}

double dev_elapsed(struct dev *d, double by_host)
{
    double t = d->driver->elapsed ? d->driver->elapsed(d) : -1;
    return t >= 0 ? t : by_host;
}

/* Through host memory. */
static bool carry(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e)
{
    void *p = mem_aligned(n);
    bool ok = (p || err_set(e, ERR_SYSTEM, "not enough memory to copy %lld bytes", (long long)n)) && d->driver->download(d, from, p, n, e) &&
              d->driver->upload(d, to, p, n, e);
    mem_free(p);
    return ok;
}

bool dev_copy(struct dev *d, struct dev_mem to, struct dev_mem from, i64 n, struct err *e)
{
    if (n > to.size || n > from.size)
        return err_set(e, ERR_USAGE, "%lld bytes of %lld do not fit into %lld", (long long)n, (long long)from.size, (long long)to.size);
    if (n == 0) return true;
    if (d->driver->copy) return d->driver->copy(d, to, from, n, e);
    if (!d->driver->fence(d, e)) return false;
    if (!to.host || !from.host) return carry(d, to, from, n, e);
    memcpy(to.host, from.host, (size_t)n);
    return true;
}
