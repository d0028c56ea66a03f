// SPDX-License-Identifier: Apache-2.0
//
// The registry of networks, in the order of their file names.
#include "zoo/zoo.h"

#define X(name) extern const struct zoo zoo_##name;
#include "zoo.inc"
#undef X

static const struct zoo *const all[] = {
#define X(name) &zoo_##name,
#include "zoo.inc"
#undef X
    NULL,
};

const struct zoo *zoo_at(i64 k) { return k < countof(all) ? all[k] : NULL; }

const struct zoo *zoo_find(struct str name)
{
    for (i64 k = 0; all[k]; k++)
        if (str_is(name, all[k]->name)) return all[k];
    return NULL;
}
