// SPDX-License-Identifier: Apache-2.0
//
// Private to lab/: JSON files of configurations, registries and results.
#ifndef QUERN_LAB_JSON_H
#define QUERN_LAB_JSON_H

#include "core/core.h"

#include <jansson.h>

/* Released by json_decref. NULL: not JSON; the error has the position. */
json_t *lab_json_read(struct str text, struct err *e);
/* A list of an object, NULL: missing. j may be NULL; the error is then unchanged. */
const json_t *lab_json_list(const json_t *j, const char *key, struct err *e);

#endif
