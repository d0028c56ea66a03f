// SPDX-License-Identifier: Apache-2.0
//
// Databases from the inside, for db*.c: statements, opening, checksums of pages, the write-ahead log.
#ifndef QUERN_DB_H
#define QUERN_DB_H

#include "tune/tune.h"

#include <sqlite3.h>

enum { DB_VERSION = 5, DB_SUM_BYTES = 8 };

/* db.c: statements. types: one letter for each parameter, "t" struct str, "i" i64, "f" double. */
sqlite3_stmt *db_query(struct db *d, struct err *e, const char *sql, const char *types, ...); /* NULL: failed */
bool db_do(struct db *d, struct err *e, const char *sql, const char *types, ...);
i64 db_int(struct db *d, sqlite3_stmt *st, struct err *e); /* first column of the first row, 0: there is none; ends the statement, which may be NULL */
/* Ends a statement behind its last row, or one that is the last wanted: were there fewer rows because of an error? */
bool db_end(struct db *d, sqlite3_stmt *st, struct err *e);
struct str db_column(sqlite3_stmt *st, int k, struct arena *a);
/* Reports the last failure; of damage where it is, and what saves the rest. Returns false. */
bool db_fail(struct db *d, struct err *e, const char *what);

/* db_open.c */
extern const char db_schema[];

/* db_pages.c: the layer below SQLite that writes and compares the checksums of pages. */
enum { DB_PAGES_STATE = 0x71756e01 }; /* of sqlite3_file_control */
struct db_pages_state {
    bool has_sums;
    i64 bad;          /* number of the last page that was not what it must be; 0: none was */
    bool is_foreign;  /* it has no checksum: another program wrote it */
};
const char *db_page_layer(void); /* its name for sqlite3_open_v2; NULL: out of memory */
u64 db_page_sum(const void *page, i64 size, i64 number); /* of a page of that size, its checksum included; never 0 */
u64 db_page_stored_sum(const void *page, i64 size);

/* db_wal.c: a write-ahead log as a file. */
struct db_wal {
    const u8 *p;
    i64 page, n_frames; /* bytes of a page; whole frames */
    u32 salt[2], sum[2];
    bool is_big, is_whole; /* byte order of the checksums; nothing follows the last frame */
};
struct db_frame {
    u32 number, commit;   /* of the page; pages of the database after the transaction that ends here, 0: it goes on */
    const u8 *page;
    bool is_current;      /* of this log, and not of one before that had its place */
    bool is_next;         /* has the checksum that follows from the one stored in the frame before */
    bool is_right;        /* both */
};
bool db_wal_read(struct db_wal *w, struct str file);
/* Likewise without the head, which is damaged: every frame but the first can be told. */
void db_wal_read_headless(struct db_wal *w, struct str file, i64 page); /* false: the head is damaged, or it has no frame (n_frames 0) */
struct db_frame db_wal_frame(const struct db_wal *w, i64 k);
/* Are there transactions that SQLite does not find any more, because something before them is damaged? */
bool db_wal_is_damaged(struct str file);

/* db_rows.c: rows in the pages of a file that SQLite may not be able to open, whatever tree they belong to. */
enum { DB_MAX_COLUMNS = 8 };
struct db_value { enum { DB_NULL, DB_INT, DB_REAL, DB_TEXT } kind; i64 i; double f; struct str t; };
struct db_row {
    bool is_index;        /* an entry of an index: the last column is the id of the row that it is of */
    i64 id;               /* of a table's row */
    u32 n; struct db_value v[DB_MAX_COLUMNS];
};
struct db_rows {
    struct str file, log;                                 /* in: the database, its write-ahead log */
    void (*row)(void *user, const struct db_row *r); void *user; /* texts are valid during the call */
    i64 n_pages, n_damaged, n_corrected, n_lost_frames;   /* out: pages; of these damaged, put right by their checksum; frames of the log */
};
bool db_rows_read(struct db_rows *r, struct err *e);

#endif
