// SPDX-License-Identifier: Apache-2.0
//
// The registry of back ends.
#include "deploy/deploy.h"

#define X(name) extern const struct deploy_backend deploy_##name;
#include "deploy.inc"
#undef X

static const struct deploy_backend *const backends[] = {
#define X(name) &deploy_##name,
#include "deploy.inc"
#undef X
};

const struct deploy_backend *deploy_all(i64 k) { return k >= 0 && k < countof(backends) ? backends[k] : NULL; }

const struct deploy_backend *deploy_find(struct str kind)
{
    for (i64 k = 0; k < countof(backends); k++)
        if (str_is(kind, backends[k]->kind)) return backends[k];
    return NULL;
}
