// SPDX-License-Identifier: Apache-2.0
//
// The registry of exporters.
#include "export/export.h"

#include <string.h>

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

const char *export_option(const struct export_job *j, const char *name)
{
    const char *value = NULL;
    size_t n = strlen(name);
    for (u32 k = 0; j->option && j->option[k]; k++)
        if (!strncmp(j->option[k], name, n) && j->option[k][n] == '=') value = j->option[k] + n + 1;
    return value;
}
