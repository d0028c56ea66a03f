// SPDX-License-Identifier: Apache-2.0
//
// Rows of damaged databases: any bytes are read safely, and every reported row lies within them.
// Input: the size of the database (4 bytes, little-endian), the database, its write-ahead log.
#include "fuzz.h"
#include "tune/db.h"

#include <string.h>

static volatile u32 seen; /* so that all texts are read */

static void see_row(void *user, const struct db_row *r)
{
    if (r->n > DB_MAX_COLUMNS) __builtin_trap();
    for (u32 k = 0; k < r->n; k++)
        for (i64 i = 0; r->v[k].kind == DB_TEXT && i < r->v[k].t.n; i++) seen += (u8)r->v[k].t.p[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct err e = {0};
    u32 size = 0;
    if (n < 4) return 0;
    for (int i = 3; i >= 0; i--) size = size << 8 | p[i];
    if (size > n - 4) size = (u32)(n - 4);
    struct db_rows r = {.file = {(const char *)p + 4, size}, .log = {(const char *)p + 4 + size, (i64)(n - 4 - size)}, .row = see_row};
    if (!db_rows_read(&r, &e) && !e.msg[0]) __builtin_trap();
    db_wal_is_damaged(r.log);
    return 0;
}
