// SPDX-License-Identifier: Apache-2.0
//
// Private to lab/: JSON files as its readers of configurations, registries and results need them.
#ifndef QUERN_LAB_JSON_H
#define QUERN_LAB_JSON_H

#include "core/core.h"

#include <jansson.h>

/* Released by json_decref. NULL: it is no JSON; the error says where. */
json_t *lab_json_read(struct str text, struct err *e);
/* A list of an object, NULL: there is none. Of j = NULL, too, and then the error stays as it is. */
const json_t *lab_json_list(const json_t *j, const char *key, struct err *e);

#endif
