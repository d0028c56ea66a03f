// SPDX-License-Identifier: Apache-2.0
//
// dev.c: the registry of device drivers. The list is generated from file names.
#include "dev/dev.h"

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
