// SPDX-License-Identifier: Apache-2.0
//
// Lines of comma-separated values (RFC 4180, without line breaks in fields).
#ifndef QUERN_LAB_CSV_H
#define QUERN_LAB_CSV_H

#include "core/core.h"

enum { CSV_COLUMNS = 64 };
struct csv_line {
    u32 n;
    struct str cell[CSV_COLUMNS]; /* without quotes and white space around them, kept in the arena */
};
/* false with ERR_INPUT and the column: a quote that is not closed, too many columns. */
bool csv_read(struct csv_line *l, struct arena *a, struct str text, struct err *e);
/* A field in quotes; control characters become '_'. */
void csv_print(struct buf *b, struct str s);

#endif
