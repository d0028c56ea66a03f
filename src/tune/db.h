// SPDX-License-Identifier: Apache-2.0
//
// Internals of the database, for db*.c: statements, opening, page checksums, the write-ahead log.
#ifndef QUERN_DB_H
#define QUERN_DB_H

#include "tune/tune.h"

#include <sqlite3.h>

enum { DB_VERSION = 7, DB_SUM_BYTES = 8 };

/* db.c: statements. types: one letter per parameter, "t" struct str, "i" i64, "f" double. */
sqlite3_stmt *db_query(struct db *d, struct err *e, const char *sql, const char *types, ...); /* NULL: error */
bool db_do(struct db *d, struct err *e, const char *sql, const char *types, ...);
/* first column of the first row, 0: no row; finalises the statement, which may be NULL */
i64 db_int(struct db *d, sqlite3_stmt *st, struct err *e);
/* Finalises a statement after its last row, or the last wanted one. false: rows are missing because
   of an error. */
bool db_end(struct db *d, sqlite3_stmt *st, struct err *e);
struct str db_column(sqlite3_stmt *st, int k, struct arena *a);
/* Reports the last error; for damage, the place and the means of recovery. Returns false. */
bool db_fail(struct db *d, struct err *e, const char *what);

/* db_open.c */
extern const char db_schema[];
/* Stores the candidates of earlier versions by the names that families and parameters have today. Inside a transaction. */
bool db_rename_candidates(struct db *d, struct err *e);

/* db_pages.c: the layer below SQLite that writes and verifies page checksums. */
enum { DB_PAGES_STATE = 0x71756e01 }; /* opcode of sqlite3_file_control */
struct db_pages_state {
    bool has_sums;
    i64 bad;          /* number of the last wrong page; 0: none */
    bool is_foreign;  /* the page has no checksum: another program wrote it */
};
const char *db_page_layer(void); /* name for sqlite3_open_v2; NULL: out of memory */
/* checksum of a page of that size, excluding its checksum field; never 0 */
u64 db_page_sum(const void *page, i64 size, i64 number);
u64 db_page_stored_sum(const void *page, i64 size);

/* db_wal.c: a write-ahead log as a file. */
struct db_wal {
    const u8 *p;
    i64 page, n_frames; /* page size in bytes; complete frames */
    u32 salt[2], sum[2];
    bool is_big, is_whole; /* byte order of the checksums; no partial frame follows */
};
struct db_frame {
    u32 number, commit;   /* page number; size of the database in pages if a transaction commits here, else 0 */
    const u8 *page;
    bool is_current;      /* belongs to this log, not to a previous one */
    bool is_next;         /* its checksum continues the one stored in the previous frame */
    bool is_right;        /* both */
};
bool db_wal_read(struct db_wal *w, struct str file);
/* The same with a damaged header: every frame but the first can be recognised. */
/* false: the header is damaged, or there is no frame (n_frames 0) */
void db_wal_read_headless(struct db_wal *w, struct str file, i64 page);
struct db_frame db_wal_frame(const struct db_wal *w, i64 k);
/* Whether committed transactions are unreachable for SQLite because of damage before them. */
bool db_wal_is_damaged(struct str file);

/* db_rows.c: rows in the pages of a file that SQLite may be unable to open, whatever their trees. */
enum { DB_MAX_COLUMNS = 8 };
struct db_value { enum { DB_NULL, DB_INT, DB_REAL, DB_TEXT } kind; i64 i; double f; struct str t; };
struct db_row {
    bool is_index;        /* an index entry: the last column is the id of its row */
    i64 id;               /* of a table's row */
    u32 n; struct db_value v[DB_MAX_COLUMNS];
};
struct db_rows {
    struct str file, log;                                 /* in: the database, its write-ahead log */
    void (*row)(void *user, const struct db_row *r); void *user; /* texts are valid during the call */
    i64 n_pages, n_damaged, n_corrected, n_lost_frames;   /* out: pages; damaged ones; corrected ones; frames of
                                                             the log that are lost */
};
bool db_rows_read(struct db_rows *r, struct err *e);

#endif
