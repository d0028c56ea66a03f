// SPDX-License-Identifier: Apache-2.0
//
// Recovery of a damaged database into a new one. Rows are found page by page (db_rows.c) and
// recognised by their columns. Nothing is guessed: a task's text must hash to its key, a trial
// needs its environment and its task, a sample its trial. If the page of an environment or a trial
// is lost but its index entry is not, the row is rebuilt from the index; such a trial keeps its
// samples and counts as incomplete, so that the next run repeats it.
#include "tune/db.h"

#include <math.h>

struct env_row { i64 id; struct str fingerprint, toolchain; };
struct task_row { i64 id; struct str key, text; };
struct repaired_trial { i64 id, env, task, status; struct str sizes, candidate, kernel, reason; };
struct sample_row { i64 id, trial, is_cold, is_final; double seconds, reference; };
struct model_row { struct str name, options; };

#define LIST(type) struct { struct type *v; u32 n, cap; }
struct finds {
    struct arena a;
    LIST(env_row) env, indexed_env;
    LIST(task_row) task;
    LIST(repaired_trial) trial, indexed_trial;
    LIST(sample_row) sample;
    LIST(model_row) model;
};

/* Compares the columns' types with letters, "f" for any number: "nttf". */
static bool has_columns(const struct db_row *r, const char *kinds)
{
    u32 k = 0;
    for (; kinds[k] && k < r->n; k++) {
        static const char letter[] = {[DB_NULL] = 'n', [DB_INT] = 'i', [DB_REAL] = 'f', [DB_TEXT] = 't'};
        bool ok = letter[r->v[k].kind] == kinds[k] || (kinds[k] == 'f' && r->v[k].kind == DB_INT);
        if (!ok) return false;
    }
    return !kinds[k] && k == r->n;
}

static struct str text(struct finds *f, const struct db_value *v) { return str_dup(&f->a, v->t); }
static double real(const struct db_value *v) { return v->kind == DB_INT ? (double)v->i : v->f; }

static bool is_key(struct str s)
{
    bool ok = s.n == 32;
    for (i64 i = 0; i < s.n && ok; i++) ok = (s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] >= 'a' && s.p[i] <= 'f');
    return ok;
}

static bool is_key_of(struct str key, struct str content)
{
    char hex[33];
    hash_hex(hash_bytes(content.p, content.n), hex);
    return str_is(key, hex);
}

static void see_table_row(struct finds *f, const struct db_row *r)
{
    const struct db_value *v = r->v;
    if (has_columns(r, "ntt") && is_key(v[1].t)) {
        if (is_key_of(v[1].t, v[2].t)) *arr_push(&f->a, &f->task) = (struct task_row){r->id, text(f, &v[1]), text(f, &v[2])};
    } else if (has_columns(r, "ntt")) {
        *arr_push(&f->a, &f->env) = (struct env_row){r->id, text(f, &v[1]), text(f, &v[2])};
    } else if (has_columns(r, "niitttit")) {
        if (v[6].i >= 0 && v[6].i < N_TRIAL_STATUS)
            *arr_push(&f->a, &f->trial) = (struct repaired_trial){r->id,           v[1].i,         v[2].i,         v[6].i,
                                                                  text(f, &v[3]), text(f, &v[4]), text(f, &v[5]), text(f, &v[7])};
    } else if (has_columns(r, "niff") || has_columns(r, "niffi") || has_columns(r, "niffii")) {
        struct sample_row s = {r->id, v[1].i, r->n > 4 ? v[4].i : 0, r->n > 5 ? v[5].i : 0, real(&v[2]), real(&v[3])};
        if (isfinite(s.seconds) && s.seconds > 0 && isfinite(s.reference) && s.reference >= 0) *arr_push(&f->a, &f->sample) = s;
    } else if (has_columns(r, "tt")) {
        *arr_push(&f->a, &f->model) = (struct model_row){text(f, &v[0]), text(f, &v[1])};
    }
}

static void see_row(void *user, const struct db_row *r)
{
    struct finds *f = user;
    const struct db_value *v = r->v;
    if (!r->is_index) see_table_row(f, r);
    else if (has_columns(r, "tti"))
        *arr_push(&f->a, &f->indexed_env) = (struct env_row){v[2].i, text(f, &v[0]), text(f, &v[1])};
    else if (has_columns(r, "iitti"))
        *arr_push(&f->a, &f->indexed_trial) = (struct repaired_trial){v[4].i, v[0].i, v[1].i, TRIAL_NEW, text(f, &v[2]), text(f, &v[3]), S(""), S("")};
}

/* Inserts into the new database with unchanged ids. */

static bool put_envs(struct db *d, const struct env_row *v, u32 n, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < n && ok; i++)
        ok = db_do(d, e, "INSERT OR IGNORE INTO env (id, fingerprint, toolchain) VALUES (?,?,?)", "itt", v[i].id, v[i].fingerprint, v[i].toolchain);
    return ok;
}

static bool put_trials(struct db *d, const struct repaired_trial *v, u32 n, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < n && ok; i++)
        ok = db_do(d, e, "INSERT OR IGNORE INTO trial (id, env, task, sizes, candidate, kernel, status, reason) SELECT ?1,?2,?3,?4,?5,?6,?7,?8"
                   " WHERE EXISTS (SELECT 1 FROM env WHERE id=?2) AND EXISTS (SELECT 1 FROM task WHERE id=?3)", "iiitttit",
                   v[i].id, v[i].env, v[i].task, v[i].sizes, v[i].candidate, v[i].kernel, v[i].status, v[i].reason);
    return ok;
}

static bool put_rest(struct db *d, const struct finds *f, struct err *e)
{
    bool ok = true;
    for (u32 i = 0; i < f->sample.n && ok; i++) {
        const struct sample_row *s = &f->sample.v[i];
        ok = db_do(d, e, "INSERT OR IGNORE INTO sample (id, trial, seconds, reference, cold, final) SELECT ?1,?2,?3,?4,?5,?6"
                   " WHERE EXISTS (SELECT 1 FROM trial WHERE id=?2)", "iiffii", s->id, s->trial, s->seconds, s->reference, s->is_cold, s->is_final);
    }
    for (u32 i = 0; i < f->model.n && ok; i++)
        ok = db_do(d, e, "INSERT OR IGNORE INTO model (name, options) VALUES (?,?)", "tt", f->model.v[i].name, f->model.v[i].options);
    return ok;
}

static bool put_all(struct db *d, const struct finds *f, struct err *e)
{
    bool ok = db_do(d, e, "BEGIN IMMEDIATE", "") && put_envs(d, f->env.v, f->env.n, e) && put_envs(d, f->indexed_env.v, f->indexed_env.n, e);
    for (u32 i = 0; i < f->task.n && ok; i++)
        ok = db_do(d, e, "INSERT OR IGNORE INTO task (id, key, text) VALUES (?,?,?)", "itt", f->task.v[i].id, f->task.v[i].key, f->task.v[i].text);
    return ok && put_trials(d, f->trial.v, f->trial.n, e) && put_trials(d, f->indexed_trial.v, f->indexed_trial.n, e) && put_rest(d, f, e) &&
           db_rename_candidates(d, e) && db_do(d, e, "COMMIT", "");
}

static i64 count(struct db *d, const char *sql, struct err *e) { return db_int(d, db_query(d, e, sql, ""), e); }

static bool write_out(const char *out, const struct finds *f, struct db_saved *s, struct err *e)
{
    struct db d;
    if (!db_open(&d, out, e)) return false;
    bool ok = put_all(&d, f, e);
    s->n_tasks = ok ? count(&d, "SELECT count(*) FROM task", e) : 0;
    s->n_trials = ok ? count(&d, "SELECT count(*) FROM trial", e) : 0;
    s->n_samples = ok ? count(&d, "SELECT count(*) FROM sample", e) : 0;
    s->n_left = (i64)f->sample.n - s->n_samples;
    db_close(&d);
    return ok && !e->code;
}

static bool read_in(const char *in, struct finds *f, struct db_saved *s, struct err *e)
{
    struct os_file file, log = {0};
    struct err none = {0};
    if (!os_map(&file, in, e)) return false;
    os_map(&log, str_fmt(&f->a, "%s-wal", in).p, &none);
    struct db_rows r = {.file = {(const char *)file.p, file.n}, .log = {(const char *)log.p, log.n}, .row = see_row, .user = f};
    bool ok = db_rows_read(&r, e);
    s->n_pages = r.n_pages, s->n_damaged = r.n_damaged, s->n_corrected = r.n_corrected, s->n_lost_frames = r.n_lost_frames;
    os_unmap(&file);
    os_unmap(&log);
    if (ok && !f->env.n && !f->indexed_env.n && !f->task.n && !f->trial.n) ok = err_set(e, ERR_INPUT, "nothing of a database of quern is in it");
    return ok || err_prefix(e, "'%s'", in);
}

bool db_repair(const char *in, const char *out, struct db_saved *s, struct err *e)
{
    struct finds f = {0};
    *s = (struct db_saved){0};
    if (os_exists(out)) return err_set(e, ERR_USAGE, "'%s' exists already: the rows are saved into a new file", out);
    bool ok = read_in(in, &f, s, e);
    if (ok && !write_out(out, &f, s, e)) {
        os_remove_tree(out);
        os_remove_tree(str_fmt(&f.a, "%s-wal", out).p);
        os_remove_tree(str_fmt(&f.a, "%s-shm", out).p);
        ok = false;
    }
    arena_release(&f.a);
    return ok;
}
