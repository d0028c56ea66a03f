// SPDX-License-Identifier: Apache-2.0
//
// The tuning database: one SQLite file in write-ahead mode. Rows are appended and committed at
// once, so a kill at any moment loses at most the sample in flight; measurements are never
// overwritten. Schema: doc/database.md. Opening, and rejection of damaged files: db_open.c.
#include "tune/db.h"

static const char *const status_name[N_TRIAL_STATUS] = {
    [TRIAL_NEW] = "new",       [TRIAL_OK] = "ok",           [TRIAL_SLOW] = "slow",
    [TRIAL_EMIT] = "emit",     [TRIAL_BUILD] = "build",     [TRIAL_BUILD_TIMEOUT] = "build-timeout",
    [TRIAL_CRASH] = "crash",   [TRIAL_TIMEOUT] = "timeout", [TRIAL_WRONG] = "wrong",
    [TRIAL_BOUNDS] = "bounds", [TRIAL_LAUNCH] = "launch",
};

const char *trial_status_name(enum trial_status s) { return status_name[s]; }

/* Statements. */

bool db_fail(struct db *d, struct err *e, const char *what)
{
    struct db_pages_state pages = {0};
    const char *file = sqlite3_db_filename(d->sql, "main");
    int rc = sqlite3_extended_errcode(d->sql);
    if (rc == SQLITE_IOERR_DATA) sqlite3_file_control(d->sql, "main", DB_PAGES_STATE, &pages);
    if (pages.bad)
        return err_set(e, ERR_INPUT, "database '%s': page %lld %s; 'quern db repair' saves the rest", file, (long long)pages.bad,
                       pages.is_foreign ? "was written by another program and has no checksum" : "is damaged: its checksum is wrong (or another program changed it)");
    if ((rc & 0xff) == SQLITE_CORRUPT)
        return err_set(e, ERR_INPUT, "database '%s' is damaged: %s; 'quern db repair' saves the rest", file, sqlite3_errmsg(d->sql));
    if ((rc & 0xff) == SQLITE_NOTADB)
        return err_set(e, ERR_INPUT, "'%s' is not a database, or its head is damaged: then 'quern db repair' saves the rest", file);
    if ((rc & 0xff) == SQLITE_READONLY) return err_set(e, ERR_SYSTEM, "database '%s' can only be read", file && *file ? file : "");
    return err_set(e, ERR_FAILED, "database: %s (in: %s)", sqlite3_errmsg(d->sql), what);
}

static bool prepare(struct db *d, sqlite3_stmt **st, struct err *e, const char *sql, const char *types, va_list ap)
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

sqlite3_stmt *db_query(struct db *d, struct err *e, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = NULL;
    va_list ap;
    va_start(ap, types);
    bool ok = prepare(d, &st, e, sql, types, ap);
    va_end(ap);
    if (ok) return st;
    sqlite3_finalize(st);
    return NULL;
}

bool db_do(struct db *d, struct err *e, const char *sql, const char *types, ...)
{
    sqlite3_stmt *st = NULL;
    va_list ap;
    va_start(ap, types);
    bool ok = prepare(d, &st, e, sql, types, ap);
    va_end(ap);
    int rc = SQLITE_ROW;
    while (ok && rc == SQLITE_ROW) rc = sqlite3_step(st); /* some pragmas return a row */
    ok = ok && (rc == SQLITE_DONE || db_fail(d, e, sql));
    sqlite3_finalize(st);
    return ok;
}

i64 db_int(struct db *d, sqlite3_stmt *st, struct err *e)
{
    if (!st) return 0;
    int rc = sqlite3_step(st);
    i64 v = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) db_fail(d, e, sqlite3_sql(st));
    sqlite3_finalize(st);
    return v;
}

bool db_end(struct db *d, sqlite3_stmt *st, struct err *e)
{
    return sqlite3_finalize(st) == SQLITE_OK || db_fail(d, e, "reading");
}

struct str db_column(sqlite3_stmt *st, int k, struct arena *a)
{
    struct str s = {(const char *)sqlite3_column_blob(st, k), sqlite3_column_bytes(st, k)};
    return str_dup(a, s);
}

/* Rows. */

enum { NOWHERE = -1 /* id of rows missing in a read-only database; no row refers to it */ };

i64 db_env(struct db *d, struct str fingerprint, struct str toolchain, struct err *e)
{
    static const char query[] = "SELECT id FROM env WHERE fingerprint=? AND toolchain=?";
    i64 id = db_int(d, db_query(d, e, query, "tt", fingerprint, toolchain), e);
    if (id || e->code) return id;
    if (d->is_readonly) return NOWHERE;
    if (!db_do(d, e, "INSERT OR IGNORE INTO env (fingerprint, toolchain) VALUES (?,?)", "tt", fingerprint, toolchain)) return 0;
    return db_int(d, db_query(d, e, query, "tt", fingerprint, toolchain), e);
}

i64 db_task(struct db *d, const struct task *t, struct err *e)
{
    static const char query[] = "SELECT id FROM task WHERE key=?";
    char hex[33];
    hash_hex(t->key, hex);
    i64 id = db_int(d, db_query(d, e, query, "t", str_of(hex)), e);
    if (id || e->code) return id;
    if (d->is_readonly) return NOWHERE;
    if (!db_do(d, e, "INSERT OR IGNORE INTO task (key, text) VALUES (?,?)", "tt", str_of(hex), t->text)) return 0;
    return db_int(d, db_query(d, e, query, "t", str_of(hex)), e);
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

/* Filters of samples: all; with a reference; with a reference of the usual time; and taken in
   finals. */
enum sieve { SIEVE_NONE, SIEVE_BESIDE, SIEVE_TYPICAL, SIEVE_FINAL };

static bool passes(const struct warm *x, enum sieve s, double typical)
{
    return (s < SIEVE_BESIDE || x->base > 0) && (s < SIEVE_TYPICAL || tune_is_typical(x->base, typical)) &&
           (s < SIEVE_FINAL || x->is_final);
}

/* Computes statistics by the strictest filter that leaves any sample. typical: usual reference time
   of the task; 0: unknown. */
static void compute_statistics(struct trial_row *r, const struct warms *s, double typical)
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
    for (u32 i = 0; i < n && ok; i++) compute_statistics(&rows[i], &s[i], typical);
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
                              .text = db_column(st, 1, a),
                              .reason = db_column(st, 3, a)};
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
    if (found) row->text = db_column(st, 0, a), row->reason = db_column(st, 2, a);
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
            (struct db_todo){sqlite3_column_int64(st, 0), db_column(st, 1, a), db_column(st, 2, a)};
    *v = list.v, *n = list.n;
    return db_end(d, st, e);
}

bool db_get_options(struct db *d, struct str model, struct arena *a, struct str *options,
                    struct err *e)
{
    sqlite3_stmt *st = db_query(d, e, "SELECT options FROM model WHERE name=?", "t", model);
    if (!st) return false;
    *options = sqlite3_step(st) == SQLITE_ROW ? db_column(st, 0, a) : (struct str){0};
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
    while (sqlite3_step(st) == SQLITE_ROW) *(arr_push(a, &list)) = db_column(st, 0, a);
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
