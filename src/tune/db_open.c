// SPDX-License-Identifier: Apache-2.0
//
// Opening databases. A file may come from anybody and have any version: it is checked before use,
// upgraded in one transaction, and opened for reading if it cannot be written.
//
// Checks: the file is one of ours; the write-ahead log has no committed transaction that SQLite
// would drop (db_wal.c); no page is missing; in files up to WHOLE_BYTES, every page has its
// checksum (db_pages.c) and the pages are consistent. In larger files each page's checksum is
// compared when the page is read. Until all checks have passed nothing is written, not even when
// the file is closed.
//
// A file that cannot be written is read in place if SQLite can do so, also in a read-only folder
// provided that its log is empty. Otherwise, and if its version is old, a private copy is read.
#include "tune/db.h"

#include <string.h>

enum { BUSY_MS = 30000, BRIEFLY_MS = 1000, WHOLE_BYTES = 64 << 20, FIRST_WITHOUT_CODE = 4, FIRST_WITH_SUMS = 5 };
static const i64 max_copy = (i64)1 << 36; /* bytes: beyond any free disk space */

const char db_schema[] =
    "CREATE TABLE IF NOT EXISTS env (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, toolchain "
    "TEXT NOT NULL,"
    "  UNIQUE (fingerprint, toolchain));"
    "CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, text TEXT "
    "NOT NULL);"
    "CREATE TABLE IF NOT EXISTS trial (id INTEGER PRIMARY KEY, env INTEGER NOT NULL REFERENCES "
    "env, task INTEGER NOT NULL"
    "  REFERENCES task, sizes TEXT NOT NULL, candidate TEXT NOT NULL, kernel TEXT NOT NULL DEFAULT "
    "'', status INTEGER NOT NULL"
    "  DEFAULT 0, reason TEXT NOT NULL DEFAULT '', UNIQUE (env, task, sizes, candidate));"
    "CREATE TABLE IF NOT EXISTS sample (id INTEGER PRIMARY KEY, trial INTEGER NOT NULL REFERENCES "
    "trial, seconds REAL NOT NULL,"
    "  reference REAL NOT NULL, cold INTEGER NOT NULL DEFAULT 0, final INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX IF NOT EXISTS sample_trial ON sample (trial);"
    "CREATE TABLE IF NOT EXISTS model (name TEXT PRIMARY KEY, options TEXT NOT NULL);";

/* Executes several statements. */
static bool run(struct db *d, const char *sql, struct err *e)
{
    return sqlite3_exec(d->sql, sql, NULL, NULL, NULL) == SQLITE_OK || db_fail(d, e, sql);
}

/* Switches to write-ahead mode. If several processes switch at once, SQLite may refuse without
   waiting, to avoid deadlock: then it is retried. */
static bool use_log(struct db *d, struct err *e)
{
    static const char sql[] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL";
    double until = os_now() + BUSY_MS * 1e-3;
    int rc = sqlite3_exec(d->sql, sql, NULL, NULL, NULL);
    for (; rc == SQLITE_BUSY && os_now() < until; rc = sqlite3_exec(d->sql, sql, NULL, NULL, NULL)) os_sleep(0.01);
    return rc == SQLITE_OK || db_fail(d, e, sql);
}

static void undo(struct db *d)
{
    if (!sqlite3_get_autocommit(d->sql)) sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
}

static i64 ask(struct db *d, const char *sql, struct err *e) { return db_int(d, db_query(d, e, sql, ""), e); }

/* Connections. */

/* Opens untrusted files: their schema cannot run code, and closing does not checkpoint an unchecked
   log. */
static void distrust(struct db *d)
{
    static const int off[] = {SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW, SQLITE_DBCONFIG_TRUSTED_SCHEMA,
                              SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION};
    for (i64 i = 0; i < countof(off); i++) sqlite3_db_config(d->sql, off[i], 0, NULL);
    sqlite3_db_config(d->sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(d->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_exec(d->sql, "PRAGMA cell_size_check=ON; PRAGMA foreign_keys=ON;", NULL, NULL, NULL);
}

/* flags: SQLite's; without SQLITE_OPEN_CREATE the file must not change. */
static bool connect(struct db *d, const char *name, int flags, struct err *e)
{
    int sums = DB_SUM_BYTES;
    sqlite3_close_v2(d->sql);
    d->sql = NULL;
    const char *layer = db_page_layer();
    if (!layer || sqlite3_open_v2(name, &d->sql, flags, layer) != SQLITE_OK)
        return err_set(e, ERR_SYSTEM, "cannot open it: %s", d->sql ? sqlite3_errmsg(d->sql) : "out of memory");
    sqlite3_busy_timeout(d->sql, BUSY_MS);
    distrust(d);
    /* of a new file, or at the next VACUUM */
    sqlite3_file_control(d->sql, "main", SQLITE_FCNTL_RESERVE_BYTES, &sums);
    d->is_readonly = !(flags & SQLITE_OPEN_CREATE) || sqlite3_db_readonly(d->sql, "main") == 1;
    return true;
}

static bool is_file(const struct db *d)
{
    const char *name = sqlite3_db_filename(d->sql, "main");
    return name && *name;
}

static bool has_log(const char *path)
{
    struct arena a = {0};
    struct os_file f;
    struct err e = {0};
    bool is = os_map(&f, str_fmt(&a, "%s-wal", path).p, &e) && f.n > 0;
    if (!e.code) os_unmap(&f);
    arena_release(&a);
    return is;
}

/* In a read-only folder SQLite must be told that the file is immutable. */
static bool connect_still(struct db *d, const char *path, struct err *e)
{
    struct buf b = {0};
    buf_z(&b, "file:");
    for (const char *p = path; *p; p++) {
        if (strchr("%?#", *p)) buf_printf(&b, "%%%02x", (unsigned)*p);
        else buf_char(&b, *p);
    }
    buf_z(&b, "?immutable=1");
    bool ok = !b.failed && connect(d, b.p, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, e);
    buf_release(&b);
    return ok;
}

static bool copy_file(const char *from, const char *to, bool may_lack, struct err *e)
{
    struct os_file f;
    struct err missing = {0};
    if (may_lack && !os_map(&f, from, &missing)) return true;
    if (!may_lack && !os_map(&f, from, e)) return false;
    bool ok = f.n <= max_copy && os_write(to, f.p, f.n, e);
    os_unmap(&f);
    return ok;
}

static bool connect_copy(struct db *d, const char *path, struct err *e)
{
    struct arena a = {0};
    bool ok = os_temp_dir(&d->arena, &d->copy, e);
    const char *to = ok ? str_fmt(&a, "%.*s/copy.db", STR_ARG(d->copy)).p : NULL;
    ok = ok && copy_file(path, to, false, e) && copy_file(str_fmt(&a, "%s-wal", path).p, str_fmt(&a, "%s-wal", to).p, true, e) &&
         connect(d, to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, e);
    arena_release(&a);
    return ok;
}

/* Checks. */

static bool check_version(struct db *d, i64 *version, struct err *e)
{
    i64 v = *version = ask(d, "PRAGMA user_version", e);
    if (e->code) return false;
    if (v > DB_VERSION) return err_set(e, ERR_UNSUPPORTED, "database of version %lld, this program knows %d", (long long)v, DB_VERSION);
    i64 all = ask(d, "SELECT count(*) FROM sqlite_master", e);
    i64 ours = ask(d, "SELECT count(*) FROM sqlite_master WHERE type='table' AND name IN ('trial','sample','task','env')", e);
    if (e->code) return false;
    if (v <= 0 ? all > 0 && ours == 0 : ours < 4) return err_set(e, ERR_INPUT, "not a database of quern");
    if (v <= 0 && all > 0) *version = FIRST_WITHOUT_CODE; /* a process was killed before it stored the version */
    return true;
}

static bool log_is_damaged(const char *path, struct hash *content, struct err *e)
{
    struct arena a = {0};
    struct os_file f = {0};
    struct err missing = {0};
    bool is = os_map(&f, str_fmt(&a, "%s-wal", path).p, &missing) && db_wal_is_damaged((struct str){(const char *)f.p, f.n});
    *content = hash_bytes(f.p, f.n);
    os_unmap(&f);
    arena_release(&a);
    return is;
}

/* The caller holds the write lock, or cannot get it: then a log that another process is writing is
   checked twice. */
static bool check_log(struct db *d, const char *path, struct err *e)
{
    struct hash first, second;
    bool is = is_file(d) && log_is_damaged(path, &first, e);
    if (is && d->is_readonly) {
        os_sleep(0.2);
        is = log_is_damaged(path, &second, e) && memcmp(&first, &second, sizeof first) == 0;
    }
    return !is || err_set(e, ERR_INPUT, "the write-ahead log beside it is damaged: the latest measurements cannot be read; 'quern db repair' saves the rest");
}

/* Bytes of the file; -1: ":memory:". Uses the library's own handle, because closing another one
   would drop its locks. */
static i64 file_size(struct db *d)
{
    sqlite3_file *f = NULL;
    sqlite3_int64 size = -1;
    if (sqlite3_file_control(d->sql, "main", SQLITE_FCNTL_FILE_POINTER, &f) != SQLITE_OK || !f || !f->pMethods) return -1;
    return f->pMethods->xFileSize(f, &size) == SQLITE_OK ? size : -1;
}

/* Checkpoints the log. is_whole: all pages are in the file itself. If another process is writing,
   this waits for the next opening. */
static bool bring_over(struct db *d, const char *path, bool *is_whole, struct err *e)
{
    *is_whole = d->is_readonly && !has_log(path);
    if (d->is_readonly) return true;
    sqlite3_stmt *st = db_query(d, e, "PRAGMA wal_checkpoint(PASSIVE)", "");
    *is_whole = st && sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 1) == sqlite3_column_int64(st, 2);
    return st && db_end(d, st, e);
}

static bool check_length(struct db *d, const char *path, struct err *e)
{
    bool is_whole;
    i64 before = ask(d, "PRAGMA data_version", e);
    if (!bring_over(d, path, &is_whole, e) || !run(d, "BEGIN", e)) return false;
    ask(d, "SELECT count(*) FROM sqlite_master", e);
    i64 pages = ask(d, "PRAGMA page_count", e), page = ask(d, "PRAGMA page_size", e);
    i64 after = ask(d, "PRAGMA data_version", e), size = file_size(d);
    undo(d);
    if (e->code) return false;
    if (is_whole && before == after && size >= 0 && page > 0 && size / page < pages)
        return err_set(e, ERR_INPUT, "it was cut short: %lld bytes of %lld are there; 'quern db repair' saves the rest", (long long)size, (long long)(pages * page));
    return true;
}

static bool check_sums(struct db *d, i64 version, struct err *e)
{
    struct db_pages_state s = {.has_sums = true};
    sqlite3_file_control(d->sql, "main", DB_PAGES_STATE, &s);
    return version < FIRST_WITH_SUMS || s.has_sums || err_set(e, ERR_INPUT, "its head is damaged: pages have no checksums; 'quern db repair' saves the rest");
}

/* Verifies the checksum of every page; 100 MB take 60 ms. */
static bool check_pages(struct db *d, struct err *e)
{
    if (file_size(d) > WHOLE_BYTES) return true;
    sqlite3_stmt *st = db_query(d, e, "PRAGMA quick_check(1)", "");
    if (!st) return false;
    struct arena tmp = {0};
    struct str said = sqlite3_step(st) == SQLITE_ROW ? db_column(st, 0, &tmp) : S("ok");
    bool ok = db_end(d, st, e) && (str_is(said, "ok") || err_set(e, ERR_INPUT, "it is damaged: %.*s; 'quern db repair' saves the rest", STR_ARG(said)));
    arena_release(&tmp);
    return ok;
}

static bool check(struct db *d, const char *path, i64 *version, struct err *e)
{
    bool ok = run(d, d->is_readonly ? "BEGIN" : "BEGIN IMMEDIATE", e) && check_version(d, version, e) && check_log(d, path, e);
    undo(d);
    return ok && check_length(d, path, e) && check_sums(d, *version, e) && check_pages(d, e);
}

/* Versions. */

static bool db_create(struct db *d, struct err *e)
{
    bool ok = use_log(d, e) && run(d, "BEGIN IMMEDIATE", e) && run(d, db_schema, e) &&
              run(d, "PRAGMA user_version=7; COMMIT", e);
    if (!ok) undo(d);
    return ok;
}

struct renamed { i64 id; struct str candidate; };

bool db_rename_candidates(struct db *d, struct err *e)
{
    struct arena tmp = {0};
    struct { struct renamed *v; u32 n, cap; } all = {0};
    struct buf now = {0};
    sqlite3_stmt *st = db_query(d, e, "SELECT id, candidate FROM trial", "");
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        buf_reset(&now);
        if (!candidate_rename(&now, db_column(st, 1, &tmp))) continue;
        *arr_push(&tmp, &all) = (struct renamed){sqlite3_column_int64(st, 0), str_dup(&tmp, buf_view(&now))};
    }
    bool ok = st && db_end(d, st, e);
    for (u32 i = 0; i < all.n && ok; i++)
        ok = db_do(d, e, "UPDATE OR IGNORE trial SET candidate = ?2 WHERE id = ?1", "it", all.v[i].id, all.v[i].candidate);
    buf_release(&now);
    arena_release(&tmp);
    return ok;
}

/* Version 1 had no cold samples, version 2 did not mark the final ones, version 3 held compiled code, which must not travel between
   machines and is dropped, versions 5 and 6 had other names of families and parameters. All or nothing, and once, even if several processes
   open the file at the same time. A file without checksums becomes of the current version when it gets them (add_sums). */
static bool change_tables(struct db *d, struct err *e)
{
    if (!run(d, "BEGIN IMMEDIATE", e)) return false;
    i64 v = ask(d, "PRAGMA user_version", e);
    bool ok = !e->code && (v > 1 || v == 0 || run(d, "ALTER TABLE sample ADD COLUMN cold INTEGER NOT NULL DEFAULT 0", e)) &&
              (v > 2 || v == 0 || run(d, "ALTER TABLE sample ADD COLUMN final INTEGER NOT NULL DEFAULT 0", e)) &&
              (v >= FIRST_WITHOUT_CODE || run(d, "DROP TABLE IF EXISTS part; DROP TABLE IF EXISTS binary; PRAGMA user_version=4", e)) &&
              db_rename_candidates(d, e) && (v < FIRST_WITH_SUMS || run(d, "PRAGMA user_version=7", e)) && run(d, "COMMIT", e);
    if (!ok) undo(d);
    return ok;
}

/* Whether no other process uses the file, so that it can leave write-ahead mode. */
static bool is_alone(struct db *d)
{
    sqlite3_stmt *st = NULL;
    bool is = sqlite3_prepare_v2(d->sql, "PRAGMA journal_mode=DELETE", -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW &&
              str_is((struct str){(const char *)sqlite3_column_text(st, 0), sqlite3_column_bytes(st, 0)}, "delete");
    sqlite3_finalize(st);
    return is;
}

/* Version 4 had no checksums: rewrites all pages except free ones (which shrinks files whose code
   was dropped). If that is impossible now, because others use the file or the disk is full, it
   waits for the next opening. */
static bool add_sums(struct db *d, struct err *e)
{
    sqlite3_busy_timeout(d->sql, BRIEFLY_MS);
    bool ok = is_alone(d) && sqlite3_exec(d->sql, "VACUUM", NULL, NULL, NULL) == SQLITE_OK;
    int rc = sqlite3_errcode(d->sql) & 0xff;
    sqlite3_busy_timeout(d->sql, BUSY_MS);
    if (!ok && (rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB)) return db_fail(d, e, "VACUUM");
    return use_log(d, e) && (!ok || run(d, "PRAGMA user_version=7", e));
}

static bool upgrade(struct db *d, struct err *e)
{
    if (!change_tables(d, e)) return false;
    i64 v = ask(d, "PRAGMA user_version", e);
    return !e->code && (v >= DB_VERSION || add_sums(d, e));
}

/* Opening. */

static bool prepare(struct db *d, const char *path, struct err *e)
{
    i64 version = 0;
    if (!check(d, path, &version, e)) return false;
    if (d->is_readonly && version != DB_VERSION) return err_set(e, ERR_SYSTEM, "its version is old");
    sqlite3_db_config(d->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (d->is_readonly) return run(d, "PRAGMA query_only=ON", e);
    if (version == DB_VERSION) return use_log(d, e);
    return version == 0 ? db_create(d, e) : upgrade(d, e);
}

/* Writes to a copy would be lost, so they are refused. */
static bool read_copy(struct db *d, const char *path, struct err *e)
{
    bool ok = connect_copy(d, path, e) && prepare(d, sqlite3_db_filename(d->sql, "main"), e) && run(d, "PRAGMA query_only=ON", e);
    d->is_readonly = true;
    return ok;
}

static bool is_unwritable(const struct db *d)
{
    int rc = d->sql ? sqlite3_errcode(d->sql) & 0xff : SQLITE_CANTOPEN;
    return d->is_readonly || rc == SQLITE_CANTOPEN || rc == SQLITE_READONLY;
}

static bool open_somehow(struct db *d, const char *path, int flags, struct err *e)
{
    struct err as_it_is = {0}, still = {0};
    if (connect(d, path, flags, &as_it_is) && prepare(d, path, &as_it_is)) return true;
    bool is_there = strcmp(path, ":memory:") != 0 && os_exists(path);
    if (as_it_is.code == ERR_INPUT || as_it_is.code == ERR_UNSUPPORTED || !is_there || !is_unwritable(d)) {
        *e = as_it_is;
        return false;
    }
    if (!has_log(path)) {
        if (connect_still(d, path, &still) && prepare(d, path, &still)) return true;
        if (still.code == ERR_INPUT) *e = still;
    }
    return !e->code && read_copy(d, path, e);
}

static bool open_file(struct db *d, const char *path, int flags, struct err *e)
{
    struct err why = {0};
    *d = (struct db){0};
    if (open_somehow(d, path, flags, &why)) return true;
    if (strstr(why.msg, path)) err_set(e, why.code, "cannot use %s", why.msg);
    else err_set(e, why.code, "cannot use database '%s': %s", path, why.msg);
    db_close(d);
    return false;
}

bool db_open(struct db *d, const char *path, struct err *e)
{
    return open_file(d, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, e);
}

bool db_open_to_read(struct db *d, const char *path, struct err *e) { return open_file(d, path, SQLITE_OPEN_READWRITE, e); }

void db_close(struct db *d)
{
    sqlite3_close_v2(d->sql);
    if (d->copy.n) os_remove_tree(d->copy.p);
    arena_release(&d->arena);
    *d = (struct db){0};
}
