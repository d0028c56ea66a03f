// SPDX-License-Identifier: Apache-2.0
//
// Lines of comma-separated values.
#include "lab/csv.h"

/* The next field of a line without its quotes; false: an error. *more: another one follows. */
static bool next_cell(struct str *line, struct str *cell, bool *more, struct arena *a, struct err *e)
{
    struct buf b = {0};
    bool is_quoted = line->n && line->p[0] == '"', is_open = is_quoted;
    i64 i = is_quoted;
    for (; i < line->n && (is_open || line->p[i] != ','); i++) {
        bool is_quote = line->p[i] == '"';
        if (is_quote && is_open && i + 1 < line->n && line->p[i + 1] == '"') i++; /* a doubled quote is one */
        else if (is_quote && is_open) {
            is_open = false;
            continue;
        }
        if (is_quoted && !is_open && line->p[i] != ' ') break;
        buf_char(&b, line->p[i]);
    }
    bool ok = !is_open && (i == line->n || line->p[i] == ',');
    *cell = str_dup(a, str_trim(buf_view(&b)));
    *more = i < line->n;
    *line = str_sub(*line, i + 1, line->n);
    buf_release(&b);
    return ok || err_set(e, ERR_INPUT, is_open ? "a quote that is not closed" : "text behind a closed quote");
}

bool csv_read(struct csv_line *l, struct arena *a, struct str text, struct err *e)
{
    l->n = 0;
    for (bool more = true; more; l->n++) {
        if (l->n == CSV_COLUMNS) return err_set(e, ERR_INPUT, "more than %d columns", CSV_COLUMNS);
        if (!next_cell(&text, &l->cell[l->n], &more, a, e)) return err_prefix(e, "column %u", l->n + 1);
    }
    return true;
}

void csv_print(struct buf *b, struct str s)
{
    buf_char(b, '"');
    for (i64 i = 0; i < s.n; i++) {
        if (s.p[i] == '"') buf_char(b, '"');
        buf_char(b, (u8)s.p[i] < ' ' ? '_' : s.p[i]);
    }
    buf_char(b, '"');
}
