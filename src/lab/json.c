// SPDX-License-Identifier: Apache-2.0
//
// json.c: a file as JSON, and lists in it, with specific errors.
#include "lab/json.h"

json_t *lab_json_read(struct str text, struct err *e)
{
    json_error_t why;
    json_t *j = json_loadb(text.p ? text.p : "", (size_t)text.n, 0, &why);
    if (!j) err_set(e, ERR_INPUT, "line %d, column %d: %s", why.line, why.column, why.text);
    return j;
}

const json_t *lab_json_list(const json_t *j, const char *key, struct err *e)
{
    const json_t *list = json_object_get(j, key);
    if (json_is_array(list)) return list;
    if (j) err_set(e, ERR_INPUT, "no list '%s'", key);
    return NULL;
}
