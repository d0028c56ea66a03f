// SPDX-License-Identifier: Apache-2.0
//
// Database maintenance: statistics, export, merging results of other machines or runs, pruning.
#include "tune/db.h"

static struct str col(sqlite3_stmt *st, int k)
{
    const char *p =
        (const char *)sqlite3_column_text(st, k); /* before the length: it may convert */
    return (struct str){p, sqlite3_column_bytes(st, k)};
}

static bool put_status_counts(struct db *d, struct buf *b, struct err *e)
{
    static const char sql[] = "SELECT status, count(*) FROM trial GROUP BY status ORDER BY status";
    bool first = true;
    sqlite3_stmt *st = db_query(d, e, sql, "");
    if (!st) return false;
    buf_z(b, ",\"trials_by_status\":{");
    while (sqlite3_step(st) == SQLITE_ROW) {
        i64 s = sqlite3_column_int64(st, 0);
        if (s < 0 || s >= N_TRIAL_STATUS) continue;
        buf_printf(b, "%s\"%s\":%lld", first ? "" : ",", trial_status_name((enum trial_status)s),
                   (long long)sqlite3_column_int64(st, 1));
        first = false;
    }
    buf_char(b, '}');
    return db_end(d, st, e);
}

static bool put_envs(struct db *d, struct buf *b, struct err *e)
{
    static const char sql[] = "SELECT fingerprint, toolchain, (SELECT count(*) FROM trial WHERE "
                              "env=env.id) FROM env ORDER BY id";
    bool first = true;
    sqlite3_stmt *st = db_query(d, e, sql, "");
    if (!st) return false;
    buf_z(b, ",\"environments\":[");
    while (sqlite3_step(st) == SQLITE_ROW) {
        buf_z(b, first ? "{\"device\":" : ",{\"device\":");
        buf_json_str(b, col(st, 0));
        buf_z(b, ",\"toolchain\":");
        buf_json_str(b, col(st, 1));
        buf_printf(b, ",\"trials\":%lld}", (long long)sqlite3_column_int64(st, 2));
        first = false;
    }
    buf_char(b, ']');
    return db_end(d, st, e);
}

struct found { struct reach *v; u32 n, cap; };

/* Trials until the best candidate was found, for each task of an environment. */
static bool put_env_reach(struct db *d, i64 env, struct found *all, struct arena *a, struct buf *b,
                          struct err *e)
{
    struct db_todo *todo;
    u32 n;
    if (!db_tasks(d, env, a, &todo, &n, e)) return false;
    for (u32 i = 0; i < n; i++) {
        struct reach r;
        char hex[33];
        if (!tune_reach(d, env, todo[i].task, todo[i].sizes, &r, e)) return false;
        if (r.n_trials < 2 || !r.to_near) continue;
        hash_hex(hash_bytes(todo[i].text.p, todo[i].text.n), hex);
        buf_printf(b, "%s{\"environment\":%lld,\"task\":\"%s\",\"sizes\":", all->n ? "," : "",
                   (long long)env, hex);
        buf_json_str(b, todo[i].sizes);
        buf_printf(b, ",\"trials\":%u,\"trials_to_95_percent\":%u}", r.n_trials, r.to_near);
        *arr_push(a, all) = r;
    }
    return true;
}

static bool put_reach(struct db *d, struct buf *b, struct err *e)
{
    struct arena a = {0};
    struct found all = {0};
    sqlite3_stmt *st = db_query(d, e, "SELECT id FROM env ORDER BY id", "");
    bool ok = st != NULL;
    buf_z(b, ",\"searched\":[");
    while (ok && sqlite3_step(st) == SQLITE_ROW)
        ok = put_env_reach(d, sqlite3_column_int64(st, 0), &all, &a, b, e);
    if (ok) ok = db_end(d, st, e);
    else sqlite3_finalize(st);
    struct reaches r = reaches_of(all.v, all.n);
    buf_z(b, "],\"trials_to_95_percent\":{\"median\":");
    buf_f64(b, r.median);
    buf_printf(b, ",\"most\":%u}", r.most);
    arena_release(&a);
    return ok;
}

bool db_stats(struct db *d, struct buf *b, struct err *e)
{
    static const char *const counts[][2] = {
        {"tasks", "SELECT count(*) FROM task"}, {"trials", "SELECT count(*) FROM trial"}, {"samples", "SELECT count(*) FROM sample"},
    };
    for (i64 i = 0; i < countof(counts); i++) {
        i64 n = db_int(d, db_query(d, e, counts[i][1], ""), e);
        if (e->code) return false;
        buf_printf(b, "%s\"%s\":%lld", i ? "," : "{", counts[i][0], (long long)n);
    }
    bool ok = put_status_counts(d, b, e) && put_envs(d, b, e) && put_reach(d, b, e);
    buf_char(b, '}');
    return ok;
}

static void put_csv(struct buf *b, struct str s)
{
    buf_char(b, '"');
    for (i64 i = 0; i < s.n; i++) {
        if (s.p[i] == '"') buf_char(b, '"');
        buf_char(b, s.p[i]);
    }
    buf_char(b, '"');
}

bool db_export(struct db *d, struct buf *b, struct err *e)
{
    static const char sql[] =
        "SELECT env.fingerprint, env.toolchain, task.key, trial.sizes, trial.candidate, "
        "trial.kernel, trial.status, trial.reason,"
        " sample.seconds, sample.reference, sample.cold, sample.final FROM trial JOIN env ON env.id=trial.env "
        "JOIN task ON task.id=trial.task"
        " LEFT JOIN sample ON sample.trial=trial.id ORDER BY trial.id, sample.id";
    sqlite3_stmt *st = db_query(d, e, sql, "");
    if (!st) return false;
    buf_z(b, "device,toolchain,task,sizes,candidate,kernel,status,reason,seconds,reference_seconds,"
             "cold,final\n");
    while (sqlite3_step(st) == SQLITE_ROW) {
        for (int k = 0; k < 6; k++) put_csv(b, col(st, k)), buf_char(b, ',');
        i64 s = sqlite3_column_int64(st, 6);
        buf_z(b,
              s >= 0 && s < N_TRIAL_STATUS ? trial_status_name((enum trial_status)s) : "unknown");
        buf_char(b, ',');
        put_csv(b, col(st, 7));
        for (int k = 8; k < 12; k++) {
            buf_char(b, ',');
            if (sqlite3_column_type(st, k) != SQLITE_NULL) buf_f64(b, sqlite3_column_double(st, k));
        }
        buf_char(b, '\n');
    }
    return db_end(d, st, e);
}

/* Copies another database of any version, writable or not, into a temporary one of this connection. */
static bool attach_copy(struct db *d, const char *file, struct err *e)
{
    struct db from;
    if (!os_exists(file)) return err_set(e, ERR_INPUT, "no database '%s'", file);
    if (!db_open_to_read(&from, file, e)) return false;
    bool ok = db_do(d, e, "ATTACH '' AS other", "");
    sqlite3_backup *b = ok ? sqlite3_backup_init(d->sql, "other", from.sql, "main") : NULL;
    int rc = b ? sqlite3_backup_step(b, -1) : SQLITE_ERROR;
    if (b) sqlite3_backup_finish(b);
    if (ok && rc != SQLITE_DONE) ok = db_fail(rc == SQLITE_IOERR_DATA || rc == SQLITE_CORRUPT ? &from : d, e, "reading the database to merge");
    db_close(&from);
    return ok;
}

static bool db_script(struct db *d, const char *sql, struct err *e)
{
    return sqlite3_exec(d->sql, sql, NULL, NULL, NULL) == SQLITE_OK || db_fail(d, e, sql);
}

static void undo(struct db *d)
{
    if (!sqlite3_get_autocommit(d->sql)) sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
}

/* Inserts missing rows with their samples; a trial that both have keeps this database's samples.
   Only the known tables and columns are read, whatever else the other file contains. */
bool db_merge(struct db *d, const char *other, i64 *n_new, struct err *e)
{
    static const char sql[] =
        "BEGIN IMMEDIATE;"
        "INSERT OR IGNORE INTO env (fingerprint, toolchain) SELECT fingerprint, toolchain FROM "
        "other.env ORDER BY id;"
        "INSERT OR IGNORE INTO task (key, text) SELECT key, text FROM other.task ORDER BY id;"
        "CREATE TEMP TABLE fresh AS SELECT o.id AS old, e.id AS env, t.id AS task, o.sizes, "
        "o.candidate, o.kernel, o.status, o.reason"
        " FROM other.trial o JOIN other.env oe ON oe.id=o.env JOIN other.task ot ON ot.id=o.task"
        " JOIN main.env e ON e.fingerprint=oe.fingerprint AND e.toolchain=oe.toolchain JOIN "
        "main.task t ON t.key=ot.key"
        " WHERE NOT EXISTS (SELECT 1 FROM main.trial m WHERE m.env=e.id AND m.task=t.id AND "
        "m.sizes=o.sizes AND m.candidate=o.candidate);"
        "INSERT INTO main.trial (env, task, sizes, candidate, kernel, status, reason)"
        " SELECT env, task, sizes, candidate, kernel, status, reason FROM fresh ORDER BY old;"
        "INSERT INTO main.sample (trial, seconds, reference, cold, final) SELECT m.id, s.seconds, "
        "s.reference, s.cold, s.final FROM fresh f"
        " JOIN main.trial m ON m.env=f.env AND m.task=f.task AND m.sizes=f.sizes AND "
        "m.candidate=f.candidate"
        " JOIN other.sample s ON s.trial=f.old ORDER BY s.id;"
        "INSERT OR IGNORE INTO main.model (name, options) SELECT name, options FROM other.model ORDER BY name;"
        "COMMIT;";
    *n_new = 0;
    bool ok = attach_copy(d, other, e) && db_script(d, sql, e);
    if (ok) *n_new = db_int(d, db_query(d, e, "SELECT count(*) FROM fresh", ""), e);
    undo(d);
    sqlite3_exec(d->sql, "DROP TABLE IF EXISTS temp.fresh; DETACH other;", NULL, NULL, NULL);
    return ok && !e->code;
}

bool db_prune(struct db *d, struct str what, i64 env, i64 *n_gone, struct err *e)
{
    static const char *const which[][2] = {
        {"failed", "status NOT IN (0, 1, 2)"},
        {"foreign", "env <> ?1"},
        {"losers", "id NOT IN (SELECT trial FROM sample WHERE reference=0 AND cold=0) AND "
                   "id NOT IN (SELECT id FROM (SELECT trial.id AS id, row_number() OVER (PARTITION "
                   "BY env, task, sizes ORDER BY (SELECT max(final) FROM sample WHERE sample.trial=trial.id) DESC,"
                   " (SELECT avg(seconds) FROM sample WHERE sample.trial=trial.id AND cold=0)) AS "
                   "place FROM trial WHERE status=1) WHERE place<=3)"}};
    i64 k = 0;
    while (k < countof(which) && !str_is(what, which[k][0])) k++;
    if (k == countof(which))
        return err_set(e, ERR_USAGE, "'%.*s' is not one of failed, foreign, losers", STR_ARG(what));
    struct buf sql = {0};
    buf_printf(&sql,
               "BEGIN IMMEDIATE; CREATE TEMP TABLE gone AS SELECT id FROM trial WHERE %s;"
               "DELETE FROM sample WHERE trial IN (SELECT id FROM gone); DELETE FROM trial WHERE "
               "id IN (SELECT id FROM gone);"
               "COMMIT;",
               which[k][1]);
    struct str rest = buf_view(&sql), one;
    bool ok = true;
    while (ok && str_cut(rest, ';', &one, &rest)) {
        sqlite3_stmt *st = NULL;
        ok = sqlite3_prepare_v2(d->sql, one.p, (int)one.n, &st, NULL) == SQLITE_OK;
        if (ok && sqlite3_bind_parameter_count(st) > 0) sqlite3_bind_int64(st, 1, env);
        ok = (ok && sqlite3_step(st) == SQLITE_DONE) || db_fail(d, e, which[k][1]);
        sqlite3_finalize(st);
    }
    *n_gone = ok ? db_int(d, db_query(d, e, "SELECT count(*) FROM gone", ""), e) : 0;
    undo(d);
    ok = db_script(d, "DROP TABLE IF EXISTS temp.gone", e) && ok;
    if (ok) sqlite3_exec(d->sql, "VACUUM", NULL, NULL, NULL); /* failing to shrink the file is no error */
    buf_release(&sql);
    return ok && !e->code;
}
