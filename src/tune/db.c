// SPDX-License-Identifier: Apache-2.0
//
// The tuning database: one SQLite file in write-ahead mode. Everything is appended and committed at
// once, so a kill at any moment loses at most the sample in flight; nothing measured is ever
// overwritten. Schema: doc/database.md.
#include "tune/tune.h"

#include <sqlite3.h>

enum { SCHEMA_VERSION = 4, BUSY_MS = 30000, WHOLE_BYTES = 64 << 20 };

static const char schema[] =
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

static const char *const status_name[N_TRIAL_STATUS] = {
    [TRIAL_NEW] = "new",       [TRIAL_OK] = "ok",           [TRIAL_SLOW] = "slow",
    [TRIAL_EMIT] = "emit",     [TRIAL_BUILD] = "build",     [TRIAL_BUILD_TIMEOUT] = "build-timeout",
    [TRIAL_CRASH] = "crash",   [TRIAL_TIMEOUT] = "timeout", [TRIAL_WRONG] = "wrong",
    [TRIAL_BOUNDS] = "bounds", [TRIAL_LAUNCH] = "launch",
};

const char *trial_status_name(enum trial_status s) { return status_name[s]; }

/* small layer over sqlite: prepare, bind in order of a format ("t" text, "i" integer, "f" number),
   step */

static bool db_fail(struct db *d, struct err *e, const char *sql)
{
    return err_set(e, ERR_FAILED, "database: %s (in: %s)", sqlite3_errmsg(d->sql), sql);
}

static bool db_prepare(struct db *d, sqlite3_stmt **st, struct err *e, const char *sql,
                       const char *types, va_list ap)
{
    if (sqlite3_prepare_v2(d->sql, sql, -1, st, NULL) != SQLITE_OK) return db_fail(d, e, sql);
    for (int i = 0; types[i]; i++) {
        struct str s;
        switch (types[i]) {
        case 't':
            s = va_arg(ap, struct str);
            sqlite3_bind_text(*st, i + 1, s.n ? s.p : "", (int)s.n, SQLITE_TRANSIENT);
            break;
        case 'i': sqlite3_bind_int64(*st, i + 1, va_arg(ap, i64)); break;
        case 'f': sqlite3_bind_double(*st, i + 1, va_arg(ap, double)); break;
        default: unreachable();
        }
    }
    return true;
}

static sqlite3_stmt *db_query(struct db *d, struct err *e, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = NULL;
    va_list ap;
    va_start(ap, types);
    bool ok = db_prepare(d, &st, e, sql, types, ap);
    va_end(ap);
    if (ok) return st;
    sqlite3_finalize(st);
    return NULL;
}

static bool db_do(struct db *d, struct err *e, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = NULL;
    va_list ap;
    va_start(ap, types);
    bool ok = db_prepare(d, &st, e, sql, types, ap);
    va_end(ap);
    ok = ok && (sqlite3_step(st) == SQLITE_DONE || db_fail(d, e, sql));
    sqlite3_finalize(st);
    return ok;
}

/* First column of the first row; 0 when there is none (*ok stays true). */
static i64 db_int(struct db *d, sqlite3_stmt *st, struct err *e)
{
    if (!st) return 0;
    int rc = sqlite3_step(st);
    i64 v = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) db_fail(d, e, sqlite3_sql(st));
    sqlite3_finalize(st);
    return v;
}

/* Behind the last row, or one that is the last wanted: were there fewer rows because of an error? */
static bool db_end(struct db *d, sqlite3_stmt *st, struct err *e)
{
    int rc = sqlite3_finalize(st);
    return rc == SQLITE_OK || err_set(e, ERR_FAILED, "cannot read the database: %s", sqlite3_errmsg(d->sql));
}

static struct str column(sqlite3_stmt *st, int k, struct arena *a)
{
    struct str s = {(const char *)sqlite3_column_blob(st, k), sqlite3_column_bytes(st, k)};
    return str_dup(a, s);
}

/* opening */

/* Version 1 had no cold samples, version 2 did not tell which are final, version 3 held compiled code, which is no fact that may
   travel: it is dropped. */
static bool upgrade(struct db *d, i64 version, struct err *e)
{
    return (version > 1 || db_do(d, e, "ALTER TABLE sample ADD COLUMN cold INTEGER NOT NULL DEFAULT 0", "")) &&
           (version > 2 || db_do(d, e, "ALTER TABLE sample ADD COLUMN final INTEGER NOT NULL DEFAULT 0", "")) &&
           db_do(d, e, "DROP TABLE IF EXISTS part", "") && db_do(d, e, "DROP TABLE IF EXISTS binary", "");
}

static bool check_version(struct db *d, const char *path, i64 *version, struct err *e)
{
    i64 v = *version = db_int(d, db_query(d, e, "PRAGMA user_version", ""), e);
    if (e->code) return err_prefix(e, "%s", path);
    if (v > SCHEMA_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "%s: database of version %lld, this program knows %d",
                       path, (long long)v, SCHEMA_VERSION);
    i64 all = db_int(d, db_query(d, e, "SELECT count(*) FROM sqlite_master", ""), e);
    i64 ours = db_int(
        d,
        db_query(d, e,
                 "SELECT count(*) FROM sqlite_master WHERE name IN ('trial','sample','task','env')",
                 ""),
        e);
    if (e->code) return err_prefix(e, "%s", path);
    if (v == 0 ? all > 0 && ours == 0 : ours < 4)
        return err_set(e, ERR_INPUT, "%s: not a database of quern", path);
    return true;
}

/* Bytes of the file; -1: there is none (":memory:"). By the library's own handle: closing another one would drop its locks. */
static i64 file_size(struct db *d)
{
    sqlite3_file *f = NULL;
    sqlite3_int64 size = -1;
    if (sqlite3_file_control(d->sql, "main", SQLITE_FCNTL_FILE_POINTER, &f) != SQLITE_OK || !f || !f->pMethods) return -1;
    return f->pMethods->xFileSize(f, &size) == SQLITE_OK ? size : -1;
}

/* Has the file all the pages that it says it has? Those that are in the write-ahead log alone are brought over first. Where another process
   writes at this moment the question waits for the next opening. */
static bool check_length(struct db *d, struct err *e)
{
    i64 before = db_int(d, db_query(d, e, "PRAGMA data_version", ""), e);
    sqlite3_stmt *st = db_query(d, e, "PRAGMA wal_checkpoint(PASSIVE)", "");
    bool is_whole = st && sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int64(st, 1) == sqlite3_column_int64(st, 2);
    if (!st || !db_end(d, st, e) || !db_do(d, e, "BEGIN", "")) return false;
    db_int(d, db_query(d, e, "SELECT count(*) FROM sqlite_master", ""), e);
    i64 pages = db_int(d, db_query(d, e, "PRAGMA page_count", ""), e), page = db_int(d, db_query(d, e, "PRAGMA page_size", ""), e);
    i64 after = db_int(d, db_query(d, e, "PRAGMA data_version", ""), e), size = file_size(d);
    sqlite3_exec(d->sql, "COMMIT", NULL, NULL, NULL);
    if (e->code) return false;
    if (is_whole && before == after && size >= 0 && page > 0 && size / page < pages)
        return err_set(e, ERR_INPUT, "it was cut short: %lld bytes of %lld are there (sqlite3's .recover prints what is left)", (long long)size, (long long)(pages * page));
    return true;
}

/* Is the structure of every page what it must be? 100 MB take 60 ms; files larger than WHOLE_BYTES are looked at page by page as they are read. */
static bool check_pages(struct db *d, struct err *e)
{
    if (file_size(d) > WHOLE_BYTES) return true;
    sqlite3_stmt *st = db_query(d, e, "PRAGMA quick_check(1)", "");
    if (!st) return false;
    struct arena tmp = {0};
    struct str said = sqlite3_step(st) == SQLITE_ROW ? column(st, 0, &tmp) : S("ok");
    bool ok = db_end(d, st, e) && (str_is(said, "ok") || err_set(e, ERR_INPUT, "it is damaged: %.*s (sqlite3's .recover prints what is left)", STR_ARG(said)));
    arena_release(&tmp);
    return ok;
}

static bool check_file(struct db *d, const char *path, struct err *e)
{
    return (check_length(d, e) && check_pages(d, e)) || err_prefix(e, "cannot use database '%s'", path);
}

static bool set_version(struct db *d)
{
    struct buf b = {0};
    buf_printf(&b, "PRAGMA user_version=%d", SCHEMA_VERSION);
    bool ok = sqlite3_exec(d->sql, b.p, NULL, NULL, NULL) == SQLITE_OK;
    buf_release(&b);
    return ok;
}

bool db_open(struct db *d, const char *path, struct err *e)
{
    *d = (struct db){0};
    int rc = sqlite3_open_v2(path, &d->sql, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
    if (rc != SQLITE_OK) {
        err_set(e, ERR_SYSTEM, "cannot open database '%s': %s", path,
                d->sql ? sqlite3_errmsg(d->sql) : "out of memory");
        db_close(d);
        return false;
    }
    sqlite3_busy_timeout(d->sql, BUSY_MS);
    struct err q = {0};
    i64 version = 0;
    bool ok = check_version(d, path, &version, &q) && check_file(d, path, &q);
    if (ok && version > 0 && version < SCHEMA_VERSION) ok = upgrade(d, version, &q) || err_prefix(&q, "%s", path);
    ok = ok &&
         sqlite3_exec(d->sql,
                      "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
                      NULL, NULL, NULL) == SQLITE_OK;
    ok = ok && sqlite3_exec(d->sql, schema, NULL, NULL, NULL) == SQLITE_OK;
    ok = ok && set_version(d);
    if (ok) return true;
    if (q.code) err_set(e, q.code, "%s", q.msg);
    else err_set(e, ERR_INPUT, "cannot use database '%s': %s", path, sqlite3_errmsg(d->sql));
    db_close(d);
    return false;
}

void db_close(struct db *d)
{
    sqlite3_close_v2(d->sql);
    arena_release(&d->arena);
    *d = (struct db){0};
}

/* rows */

i64 db_env(struct db *d, struct str fingerprint, struct str toolchain, struct err *e)
{
    if (!db_do(d, e, "INSERT OR IGNORE INTO env (fingerprint, toolchain) VALUES (?,?)", "tt",
               fingerprint, toolchain))
        return 0;
    return db_int(d,
                  db_query(d, e, "SELECT id FROM env WHERE fingerprint=? AND toolchain=?", "tt",
                           fingerprint, toolchain),
                  e);
}

i64 db_task(struct db *d, const struct task *t, struct err *e)
{
    char hex[33];
    hash_hex(t->key, hex);
    if (!db_do(d, e, "INSERT OR IGNORE INTO task (key, text) VALUES (?,?)", "tt", str_of(hex),
               t->text))
        return 0;
    return db_int(d, db_query(d, e, "SELECT id FROM task WHERE key=?", "t", str_of(hex)), e);
}

static void mark_vars(const struct symtab *st, sym s, bool *used)
{
    const struct sym_node *n = &st->node.v[s];
    if (n->op == SYM_VAR) used[n->a] = true;
    if (n->op != SYM_VAR && n->op != SYM_CONST)
        mark_vars(st, n->a, used), mark_vars(st, n->b, used);
}

struct str sizes_text(struct arena *a, const struct symtab *st, const i64 *var,
                      const struct task *t)
{
    bool *used = arena_array(a, bool, st->var.n + 1);
    for (value_id v = 1; v < t->g.value.n; v++) {
        const struct shape *s = &graph_value(&t->g, v)->shape;
        const struct part *p = &graph_value(&t->g, v)->part;
        for (u32 d = 0; s->known && d < s->rank; d++) mark_vars(st, s->dim[d], used);
        if (p->whole) mark_vars(st, p->whole, used), mark_vars(st, p->from, used);
    }
    struct buf b = {0};
    for (u32 v = 0; v < st->var.n; v++)
        if (used[v])
            buf_printf(&b, "%s%.*s=%lld", b.n ? " " : "", STR_ARG(st->var.v[v]), (long long)var[v]);
    struct str s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

i64 db_trial(struct db *d, i64 env, i64 task, struct str sizes, struct str candidate, struct err *e)
{
    if (!db_do(d, e, "INSERT OR IGNORE INTO trial (env, task, sizes, candidate) VALUES (?,?,?,?)",
               "iitt", env, task, sizes, candidate))
        return 0;
    return db_int(
        d,
        db_query(d, e, "SELECT id FROM trial WHERE env=? AND task=? AND sizes=? AND candidate=?",
                 "iitt", env, task, sizes, candidate),
        e);
}

bool db_trial_kernel(struct db *d, i64 trial, struct hash text, struct err *e)
{
    char hex[33];
    hash_hex(text, hex);
    return db_do(d, e, "UPDATE trial SET kernel=? WHERE id=?", "ti", str_of(hex), trial);
}

bool db_trial_status(struct db *d, i64 trial, enum trial_status s, struct str reason, struct err *e)
{
    return db_do(d, e, "UPDATE trial SET status=?, reason=? WHERE id=?", "iti", (i64)s, reason,
                 trial);
}

bool db_sample(struct db *d, i64 trial, const struct sample *s, struct err *e)
{
    return db_do(d, e, "INSERT INTO sample (trial, seconds, reference, cold, final) VALUES (?,?,?,?,?)",
                 "iffii", trial, s->seconds, s->base, (i64)s->is_cold, (i64)s->is_final);
}

struct warm { double seconds, base; bool is_final; };
struct warms { struct warm *v; u32 n, cap; };

static bool read_samples(struct db *d, struct trial_row *r, struct warms *s, struct arena *a, struct err *e)
{
    sqlite3_stmt *st = db_query(
        d, e, "SELECT id, seconds, reference, final FROM sample WHERE trial=? AND cold=0 ORDER BY id", "i", r->id);
    if (!st) return false;
    while (sqlite3_step(st) == SQLITE_ROW) {
        struct warm x = {sqlite3_column_double(st, 1), sqlite3_column_double(st, 2), sqlite3_column_int64(st, 3) != 0};
        if (x.base <= 0) r->alone = sqlite3_column_int64(st, 0);
        *arr_push(a, s) = x;
    }
    r->n = s->n;
    return db_end(d, st, e);
}

static double reference_of(const struct warms *s)
{
    struct arena tmp = {0};
    double *v = arena_array(&tmp, double, s->n + 1);
    u32 n = 0;
    for (u32 i = 0; i < s->n; i++)
        if (s->v[i].base > 0) v[n++] = s->v[i].base;
    double median = stats_of(v, n).median;
    arena_release(&tmp);
    return median;
}

/* Samples that count: all; beside a reference; while that took its usual time; and final. */
enum sieve { SIEVE_NONE, SIEVE_BESIDE, SIEVE_TYPICAL, SIEVE_FINAL };

static bool passes(const struct warm *x, enum sieve s, double typical)
{
    return (s < SIEVE_BESIDE || x->base > 0) && (s < SIEVE_TYPICAL || tune_is_typical(x->base, typical)) &&
           (s < SIEVE_FINAL || x->is_final);
}

/* By the finest sieve that leaves any. typical: of the task; 0: all are. */
static void judge(struct trial_row *r, const struct warms *s, double typical)
{
    struct arena tmp = {0};
    double *v = arena_array(&tmp, double, s->n + 1), *q = arena_array(&tmp, double, s->n + 1);
    double *base = arena_array(&tmp, double, s->n + 1);
    enum sieve by = SIEVE_FINAL;
    u32 n = 0;
    for (;; by--) {
        for (u32 i = 0; i < s->n; i++) {
            const struct warm *x = &s->v[i];
            if (passes(x, by, typical)) v[n] = x->seconds, q[n] = x->seconds / x->base, base[n++] = x->base;
        }
        if (n || by == SIEVE_NONE) break;
    }
    struct stats t = stats_of(v, n), ratio = stats_of(q, by == SIEVE_NONE ? 0 : n);
    r->n_final = by == SIEVE_FINAL ? n : 0;
    r->is_odd = by == SIEVE_BESIDE;
    r->median = t.median, r->low = t.low, r->high = t.high;
    r->ratio = ratio.median, r->ratio_low = ratio.low, r->ratio_high = ratio.high;
    r->reference = stats_of(base, by == SIEVE_NONE ? 0 : n).median;
    arena_release(&tmp);
}

static bool add_samples(struct db *d, struct trial_row *rows, u32 n, struct err *e)
{
    struct arena tmp = {0};
    struct warms *s = (struct warms *)arena_alloc(&tmp, (i64)sizeof *s * (n + 1));
    double *reference = arena_array(&tmp, double, n + 1);
    bool ok = true;
    for (u32 i = 0; i < n && ok; i++) {
        s[i] = (struct warms){0};
        ok = read_samples(d, &rows[i], &s[i], &tmp, e);
        reference[i] = reference_of(&s[i]);
    }
    double typical = tune_typical(reference, n);
    for (u32 i = 0; i < n && ok; i++) judge(&rows[i], &s[i], typical);
    arena_release(&tmp);
    return ok;
}

bool db_trials(struct db *d, i64 env, i64 task, struct str sizes, struct arena *a,
               struct trial_row **rows, u32 *n, struct err *e)
{
    struct {
        struct trial_row *v;
        u32 n, cap;
    } list = {0};
    sqlite3_stmt *st = db_query(d, e,
                                "SELECT id, candidate, status, reason FROM trial WHERE env=? AND "
                                "task=? AND sizes=? ORDER BY id",
                                "iit", env, task, sizes);
    if (!st) return false;
    while (sqlite3_step(st) == SQLITE_ROW) {
        struct trial_row r = {.id = sqlite3_column_int64(st, 0),
                              .text = column(st, 1, a),
                              .reason = column(st, 3, a)};
        i64 status = sqlite3_column_int64(st, 2);
        struct err gone = {0};
        if (status < 0 || status >= N_TRIAL_STATUS || !candidate_parse(&r.cand, r.text, &gone))
            continue;
        r.status = (enum trial_status)status;
        *(arr_push(a, &list)) = r;
    }
    *rows = list.v, *n = list.n;
    return db_end(d, st, e) && add_samples(d, list.v, list.n, e);
}

bool db_trial_row(struct db *d, i64 trial, struct arena *a, struct trial_row *row, struct err *e)
{
    *row = (struct trial_row){.id = trial};
    sqlite3_stmt *st = db_query(d, e, "SELECT candidate, status, reason FROM trial WHERE id=?", "i", trial);
    if (!st) return false;
    bool found = sqlite3_step(st) == SQLITE_ROW;
    i64 status = found ? sqlite3_column_int64(st, 1) : -1;
    if (found) row->text = column(st, 0, a), row->reason = column(st, 2, a);
    if (!db_end(d, st, e)) return false;
    if (status < 0 || status >= N_TRIAL_STATUS) return err_set(e, ERR_FAILED, "database: no trial %lld", (long long)trial);
    row->status = (enum trial_status)status;
    return add_samples(d, row, 1, e);
}

bool db_tasks(struct db *d, i64 env, struct arena *a, struct db_todo **v, u32 *n, struct err *e)
{
    struct {
        struct db_todo *v;
        u32 n, cap;
    } list = {0};
    sqlite3_stmt *st = db_query(
        d, e,
        "SELECT DISTINCT task.id, task.text, trial.sizes FROM task JOIN trial ON trial.task=task.id"
        " WHERE trial.env=? ORDER BY task.id, trial.sizes",
        "i", env);
    if (!st) return false;
    while (sqlite3_step(st) == SQLITE_ROW)
        *(arr_push(a, &list)) =
            (struct db_todo){sqlite3_column_int64(st, 0), column(st, 1, a), column(st, 2, a)};
    *v = list.v, *n = list.n;
    return db_end(d, st, e);
}

bool db_get_options(struct db *d, struct str model, struct arena *a, struct str *options,
                    struct err *e)
{
    sqlite3_stmt *st = db_query(d, e, "SELECT options FROM model WHERE name=?", "t", model);
    if (!st) return false;
    *options = sqlite3_step(st) == SQLITE_ROW ? column(st, 0, a) : (struct str){0};
    return db_end(d, st, e);
}

bool db_all_options(struct db *d, struct arena *a, struct str **options, u32 *n, struct err *e)
{
    struct {
        struct str *v;
        u32 n, cap;
    } list = {0};
    sqlite3_stmt *st = db_query(d, e, "SELECT options FROM model ORDER BY name", "");
    if (!st) return false;
    while (sqlite3_step(st) == SQLITE_ROW) *(arr_push(a, &list)) = column(st, 0, a);
    *options = list.v;
    *n = list.n;
    return db_end(d, st, e);
}

bool db_options(struct db *d, struct str model, struct str options, struct err *e)
{
    if (!db_do(d, e, "INSERT OR IGNORE INTO model VALUES (?,?)", "tt", model, options))
        return false;
    struct arena tmp = {0};
    struct str known;
    bool ok = db_get_options(d, model, &tmp, &known, e);
    if (ok && !str_eq(known, options))
        ok =
        err_set(e, ERR_USAGE,
                "'%.*s' was populated with options '%.*s', not '%.*s'; use the same, or another "
                "database",
                STR_ARG(model), STR_ARG(known), STR_ARG(options));
    arena_release(&tmp);
    return ok;
}
