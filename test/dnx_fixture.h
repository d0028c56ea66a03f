// SPDX-License-Identifier: Apache-2.0
//
// Artifacts with a replaced plan: files that quern would not write.
#ifndef QUERN_TEST_DNX_FIXTURE_H
#define QUERN_TEST_DNX_FIXTURE_H

#include "core/core.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct dnx_fixture {
    struct str data;   /* after the header, of the original bytes */
    json_t *header, *metadata, *plan; /* plan is to be modified */
};

static inline void dnx_fixture_open(struct dnx_fixture *b, struct str bytes)
{
    u64 n = 0;
    assert_true(bytes.n >= 8);
    for (int i = 7; i >= 0; i--) n = n << 8 | (u8)bytes.p[i];
    b->header = json_loadb(bytes.p + 8, n, 0, NULL);
    b->metadata = json_object_get(b->header, "__metadata__");
    b->plan = json_loads(json_string_value(json_object_get(b->metadata, "quern")), 0, NULL);
    b->data = str_sub(bytes, 8 + (i64)n, bytes.n);
    assert_true(b->header && b->metadata && b->plan);
}

enum dnx_hash { NO_HASH, OLD_HASH, NEW_HASH }; /* of the plan */

static inline void dnx_fixture_write(const struct dnx_fixture *b, enum dnx_hash hash, struct buf *out)
{
    char *text = json_dumps(b->plan, JSON_COMPACT | JSON_SORT_KEYS), hex[33];
    hash_hex(hash_bytes(text, (i64)strlen(text)), hex);
    json_object_set_new(b->metadata, "quern", json_string(text));
    if (hash == NEW_HASH) json_object_set_new(b->metadata, "hash", json_string(hex));
    if (hash == NO_HASH) json_object_del(b->metadata, "hash");
    free(text);
    text = json_dumps(b->header, JSON_COMPACT);
    u64 n = strlen(text);
    for (int i = 0; i < 8; i++) buf_char(out, (char)(n >> (8 * i)));
    buf_put(out, text, (i64)n);
    buf_str(out, b->data);
    free(text);
}

static inline void dnx_fixture_close(struct dnx_fixture *b)
{
    json_decref(b->header);
    json_decref(b->plan);
}

#endif
