// SPDX-License-Identifier: Apache-2.0
//
// The registry of exporters.
#include "export/export.h"

#define X(name) extern const struct exporter export_##name;
#include "export.inc"
#undef X

static const struct exporter *const exporters[] = {
#define X(name) &export_##name,
#include "export.inc"
#undef X
};

const struct exporter *export_all(i64 k)
{
    return k >= 0 && k < countof(exporters) ? exporters[k] : NULL;
}

const struct exporter *export_find(struct str name)
{
    for (i64 k = 0; k < countof(exporters); k++)
        if (str_is(name, exporters[k]->name)) return exporters[k];
    return NULL;
}
