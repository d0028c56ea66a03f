// SPDX-License-Identifier: Apache-2.0
//
// Integrity of the database: merges and upgrades, also if killed midway; foreign, truncated or
// damaged files (single bytes) are refused, or all rows are intact; everything recoverable is
// recovered, and nothing else; read-only files are read.
#include "tune/db.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE = 4096 };

struct fixture { struct arena a; struct str dir; const char *path, *bad; struct task task[2]; };

static void fixture_open(struct fixture *b)
{
    struct err e = {0};
    *b = (struct fixture){0};
    assert_true(os_temp_dir(&b->a, &b->dir, &e));
    b->path = str_fmt(&b->a, "%.*s/a.db", STR_ARG(b->dir)).p;
    b->bad = str_fmt(&b->a, "%.*s/a.db.bad", STR_ARG(b->dir)).p;
    for (int k = 0; k < 2; k++) {
        b->task[k].text = str_fmt(&b->a, "graph { task %d }", k);
        b->task[k].key = hash_bytes(b->task[k].text.p, b->task[k].text.n);
    }
}

static void fixture_close(struct fixture *b)
{
    os_remove_tree(b->dir.p);
    arena_release(&b->a);
}

static i64 ask(struct db *d, const char *sql)
{
    struct err e = {0};
    i64 n = db_int(d, db_query(d, &e, sql, ""), &e);
    if (e.code) fail_msg("%s", e.msg);
    return n;
}

static i64 samples(struct db *d) { return ask(d, "SELECT count(*) FROM sample"); }

static void add_rows(struct db *d, const struct task *t, const char *env, u32 n)
{
    struct err e = {0};
    assert_true(db_do(d, &e, "BEGIN", ""));
    i64 ev = db_env(d, str_of(env), S("cc"), &e), task = db_task(d, t, &e);
    for (u32 i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "gemm.1 c=%u", i);
        i64 id = db_trial(d, ev, task, S("H=4"), str_of(text), &e);
        for (u32 k = 0; k < 3; k++) assert_true(db_sample(d, id, &(struct sample){.seconds = 1.25 + i + k, .base = 2, .is_cold = k == 0}, &e));
        assert_true(db_trial_status(d, id, TRIAL_OK, S(""), &e));
        assert_int_equal(db_trial(d, ev, task, S("H=4"), str_of(text), &e), id);
    }
    if (!db_do(d, &e, "COMMIT", "")) fail_msg("%s", e.msg);
}

static void make(struct fixture *b, u32 n)
{
    struct db d;
    struct err e = {0};
    if (!db_open(&d, b->path, &e)) fail_msg("%s", e.msg);
    add_rows(&d, &b->task[0], "x", n);
    assert_true(db_options(&d, S("net"), S("{}"), &e));
    db_close(&d);
}

static struct str content(struct fixture *b, const char *path)
{
    struct str s;
    struct err e = {0};
    if (!os_read(&b->a, path, 1 << 28, &s, &e)) fail_msg("%s", e.msg);
    return s;
}

static void put(const char *path, struct str s)
{
    struct err e = {0};
    if (!os_write_private(path, &s, 1, &e)) fail_msg("%s", e.msg); /* which does not wait for the disk */
}

/* n bytes anywhere become others. */
static void scatter(char *p, i64 size, u32 n, struct rng *r)
{
    for (; n > 0; n--) {
        char c = (char)rng_u64(r);
        p[rng_range(r, 0, size - 1)] = c;
    }
}

static const char *with(struct fixture *b, const char *path, const char *suffix) { return str_fmt(&b->a, "%s%s", path, suffix).p; }

static void test_merge(void **state)
{
    struct fixture b;
    struct db x, y;
    struct err e = {0};
    i64 n;
    fixture_open(&b);
    const char *other = with(&b, b.path, ".b");
    assert_true(db_open(&x, b.path, &e) && db_open(&y, other, &e));
    add_rows(&x, &b.task[0], "x", 3);
    add_rows(&y, &b.task[0], "x", 5); /* three are known */
    add_rows(&y, &b.task[1], "y", 2); /* another environment */
    assert_true(db_do(&y, &e, "CREATE TABLE binary (key TEXT PRIMARY KEY, code BLOB)", "") && db_do(&y, &e, "INSERT INTO binary VALUES ('k', 'code')", ""));
    assert_true(db_merge(&x, other, &n, &e));
    assert_int_equal(n, 4);
    assert_int_equal(ask(&x, "SELECT count(*) FROM trial"), 7);
    assert_int_equal(samples(&x), 21);
    assert_int_equal(ask(&x, "SELECT count(*) FROM sqlite_master WHERE type='table'"), 5); /* no code comes over */
    assert_true(db_merge(&x, other, &n, &e));
    assert_int_equal(n, 0);
    assert_int_equal(samples(&x), 21);
    assert_false(db_merge(&x, "/nonexistent/file.db", &n, &e));
    e = (struct err){0};
    struct buf csv = {0};
    assert_true(db_export(&x, &csv, &e));
    u32 lines = 0;
    for (i64 i = 0; i < csv.n; i++) lines += csv.p[i] == '\n';
    assert_int_equal(lines, 22);
    buf_release(&csv);
    assert_true(db_prune(&x, S("foreign"), 1, &n, &e));
    assert_int_equal(n, 2);
    assert_true(db_prune(&x, S("losers"), 1, &n, &e));
    assert_int_equal(ask(&x, "SELECT count(*) FROM trial"), 3);
    assert_false(db_prune(&x, S("everything"), 1, &n, &e));
    e = (struct err){0};
    assert_true(db_options(&x, S("m"), S("H=4"), &e) && db_options(&x, S("m"), S("H=4"), &e));
    assert_false(db_options(&x, S("m"), S("H=5"), &e));
    assert_true(e.code == ERR_USAGE && strstr(e.msg, "H=4") && strstr(e.msg, "H=5"));
    db_close(&x);
    db_close(&y);
    fixture_close(&b);
}

/* A database as an older version made it, without checksums; version 3 with compiled code. n trials with three samples each. */
static void make_old(struct fixture *b, int version, u32 n)
{
    static const char *const back[] = {"ALTER TABLE sample DROP COLUMN final; ALTER TABLE sample DROP COLUMN cold; PRAGMA user_version=1;",
                                       "ALTER TABLE sample DROP COLUMN final; PRAGMA user_version=2;", "PRAGMA user_version=3;", "PRAGMA user_version=4;"};
    struct db d = {0};
    assert_int_equal(sqlite3_open(b->path, &d.sql), SQLITE_OK);
    assert_int_equal(sqlite3_exec(d.sql, "PRAGMA journal_mode=WAL", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(d.sql, db_schema, NULL, NULL, NULL), SQLITE_OK);
    add_rows(&d, &b->task[0], "x", n);
    if (version < 4) {
        assert_int_equal(sqlite3_exec(d.sql, "CREATE TABLE binary (key TEXT PRIMARY KEY, code BLOB NOT NULL);"
                                             "CREATE TABLE part (key TEXT PRIMARY KEY, program TEXT NOT NULL);"
                                             "INSERT INTO binary VALUES ('00', randomblob(1000000)), ('01', randomblob(1000000))", NULL, NULL, NULL), SQLITE_OK);
    }
    assert_int_equal(sqlite3_exec(d.sql, back[version - 1], NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(d.sql);
    arena_release(&d.arena);
}

/* An upgraded database keeps its rows, except compiled code, whose space is freed. */
static void test_upgrade(void **state)
{
    for (int version = 1; version <= 4; version++) {
        struct fixture b;
        struct db d;
        struct err e = {0};
        struct trial_row row;
        struct db_pages_state pages = {0};
        fixture_open(&b);
        make_old(&b, version, 3);
        assert_true(version > 3 || content(&b, b.path).n > 2000000);
        if (!db_open(&d, b.path, &e)) fail_msg("version %d: %s", version, e.msg);
        assert_int_equal(samples(&d), 9);
        assert_int_equal(ask(&d, "SELECT count(*) FROM sqlite_master WHERE type='table'"), 5);
        assert_int_equal(ask(&d, "PRAGMA user_version"), DB_VERSION);
        assert_true(sqlite3_file_control(d.sql, "main", DB_PAGES_STATE, &pages) == SQLITE_OK && pages.has_sums);
        assert_true(db_trial_row(&d, 1, &b.a, &row, &e) && row.n > 0 && row.n_final == 0);
        assert_true(db_sample(&d, 1, &(struct sample){.seconds = 1, .base = 2, .is_final = true}, &e));
        assert_true(db_trial_row(&d, 1, &b.a, &row, &e) && row.n_final == 1 && row.ratio == 0.5);
        db_close(&d);
        assert_true(content(&b, b.path).n < 100000);
        assert_false(os_exists(with(&b, b.path, "-wal")));
        fixture_close(&b);
    }
}

/* Versions 5 and 6 had other names of families and parameters, and so have files that get their checksums later: their candidates are renamed,
   but for one that was stored under both names. */
static void test_upgrade_names(void **state)
{
    static const char rename_all[] = "UPDATE trial SET candidate = 'map.4 c=' || id WHERE id < 3; UPDATE trial SET candidate = 'gemm.1 kc=8' WHERE id = 3;"
                                     "UPDATE trial SET candidate = 'gemm.1 bk=8' WHERE id = 4;";
    for (int version = 4; version <= 6; version++) {
        struct fixture b;
        struct db d;
        struct err e = {0};
        fixture_open(&b);
        if (version == 4) make_old(&b, 4, 5);
        else make(&b, 5);
        if (version == 4) assert_int_equal(sqlite3_open(b.path, &d.sql), SQLITE_OK);
        else assert_true(db_open(&d, b.path, &e));
        assert_int_equal(sqlite3_exec(d.sql, rename_all, NULL, NULL, NULL), SQLITE_OK);
        if (version == 4) sqlite3_close(d.sql);
        else assert_true(db_do(&d, &e, version == 5 ? "PRAGMA user_version=5" : "PRAGMA user_version=6", "")), db_close(&d);
        if (!db_open(&d, b.path, &e)) fail_msg("version %d: %s", version, e.msg);
        assert_int_equal(ask(&d, "PRAGMA user_version"), DB_VERSION);
        assert_int_equal(samples(&d), 15);
        assert_int_equal(ask(&d, "SELECT count(*) FROM trial WHERE candidate IN ('elementwise.4 c=1', 'elementwise.4 c=2')"), 2);
        assert_int_equal(ask(&d, "SELECT count(*) FROM trial WHERE candidate IN ('gemm.1 kc=8', 'gemm.1 bk=8')"), 2);
        db_close(&d);
        if (!db_open(&d, b.path, &e)) fail_msg("again: %s", e.msg);
        db_close(&d);
        fixture_close(&b);
    }
}

/* Whenever it is killed. */
static void test_upgrade_killed(void **state)
{
    const char *count = getenv("COUNT");
    struct rng r = rng_seed(3);
    for (int k = 0; k < (count ? atoi(count) : 12); k++) {
        struct fixture b;
        struct db d;
        struct err e = {0};
        fixture_open(&b);
        make_old(&b, 1 + k % 4, 300);
        pid_t child = fork();
        if (child == 0) _exit(!db_open(&d, b.path, &e));
        os_sleep((double)rng_range(&r, 0, 30000) * 1e-6);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (!db_open(&d, b.path, &e)) fail_msg("%d: %s", k, e.msg);
        assert_int_equal(samples(&d), 900);
        db_close(&d);
        fixture_close(&b);
    }
}

/* By several processes at once, and while one that does not know the new version uses it: without checksums then, until the next time. */
static void test_upgrade_together(void **state)
{
    struct fixture b;
    struct db d, old = {0};
    struct err e = {0};
    pid_t child[4];
    fixture_open(&b);
    make_old(&b, 3, 300);
    for (int k = 0; k < 4; k++) {
        child[k] = fork();
        if (child[k]) continue;
        bool ok = db_open(&d, b.path, &e) && db_sample(&d, 1, &(struct sample){.seconds = 1, .base = 2}, &e);
        if (!ok) fprintf(stderr, "%s\n", e.msg);
        else db_close(&d);
        _exit(!ok);
    }
    for (int k = 0; k < 4; k++) {
        int status = -1;
        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_int_equal(status, 0);
    }
    if (!db_open(&d, b.path, &e)) fail_msg("%s", e.msg);
    assert_int_equal(samples(&d), 904);
    assert_int_equal(ask(&d, "PRAGMA user_version"), DB_VERSION);
    db_close(&d);
    os_remove_tree(b.path);
    make_old(&b, 4, 3);
    assert_int_equal(sqlite3_open(b.path, &old.sql), SQLITE_OK);
    assert_int_equal(samples(&old), 9);
    if (!db_open(&d, b.path, &e)) fail_msg("%s", e.msg);
    assert_int_equal(ask(&d, "PRAGMA user_version"), 4);
    assert_true(db_sample(&d, 1, &(struct sample){.seconds = 1, .base = 2}, &e));
    assert_int_equal(samples(&old), 10);
    db_close(&d);
    sqlite3_close(old.sql);
    assert_true(db_open(&d, b.path, &e));
    assert_int_equal(samples(&d), 10);
    assert_int_equal(ask(&d, "PRAGMA user_version"), DB_VERSION);
    db_close(&d);
    fixture_close(&b);
}

/* Every row, or an error that names the file. */
static bool reads_all(struct fixture *b, const char *path, i64 want, struct err *e)
{
    struct db d;
    struct buf out = {0};
    struct trial_row *row;
    u32 n = 0;
    *e = (struct err){0};
    if (!db_open(&d, path, e)) return false;
    bool ok = db_trials(&d, 1, 1, S("H=4"), &b->a, &row, &n, e) && db_stats(&d, &out, e) && db_export(&d, &out, e);
    if (ok && samples(&d) != want) fail_msg("%lld samples of %lld, without an error", (long long)samples(&d), (long long)want);
    buf_release(&out);
    db_close(&d);
    return ok;
}

/* Foreign files, and files with flipped bytes. A wrong byte is detected anywhere, including inside
   a row, except in unused space of free pages. */
static void test_broken(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct rng r = rng_seed(9);
    const char *all = getenv("ALL");
    fixture_open(&b);
    make(&b, 150);
    put(b.bad, S("not a database at all, but long enough to be one's header: 0123456789012345678901234567890"));
    assert_false(reads_all(&b, b.bad, 450, &e));
    assert_non_null(strstr(e.msg, "a.db.bad"));
    struct str good = content(&b, b.path);
    for (i64 at = 0; at < good.n; at += all ? 1 : rng_range(&r, 1, 700)) {
        struct arena_mark mark = arena_mark(&b.a);
        char *copy = arena_alloc(&b.a, good.n + 1);
        memcpy(copy, good.p, (size_t)good.n);
        copy[at] = (char)(copy[at] ^ (1 << rng_range(&r, 0, 7)));
        put(b.bad, (struct str){copy, good.n});
        if (reads_all(&b, b.bad, 450, &e)) fail_msg("a flipped bit of byte %lld is accepted", (long long)at);
        if (!strstr(e.msg, "a.db.bad")) fail_msg("'%s' does not name the file", e.msg);
        arena_rewind(&b.a, mark);
    }
    for (u32 i = 0; i < 60; i++) {
        char *copy = arena_alloc(&b.a, good.n + 1);
        memcpy(copy, good.p, (size_t)good.n);
        scatter(copy, good.n, 20, &r);
        put(b.bad, (struct str){copy, i % 2 ? good.n : rng_range(&r, 2, good.n - 1)});
        assert_false(reads_all(&b, b.bad, 450, &e));
    }
    fixture_close(&b);
}

/* A database truncated anywhere is refused, including within its last page; so is one with a
   foreign page, for any query. */
static void test_cut(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct rng r = rng_seed(12);
    fixture_open(&b);
    make(&b, 150);
    struct str good = content(&b, b.path);
    const i64 pages = good.n / PAGE;
    assert_true(good.n % PAGE == 0 && pages > 10);
    assert_true(reads_all(&b, b.path, 450, &e));
    for (i64 k = 0; k < pages * 5; k++) {
        const i64 part[] = {0, 1, rng_range(&r, 2, 200), rng_range(&r, 201, PAGE - 2), PAGE - 1}, n = k / 5 * PAGE + part[k % 5];
        if (n <= 1) continue; /* an empty file is a new database, and one byte an empty file to SQLite, which once wrote it into such */
        put(b.bad, str_sub(good, 0, n));
        if (reads_all(&b, b.bad, 450, &e)) fail_msg("%lld bytes of %lld are accepted", (long long)n, (long long)good.n);
        if (!strstr(e.msg, "a.db.bad")) fail_msg("'%s' does not name the file", e.msg);
    }
    for (i64 k = 0; k < pages * 3; k++) {
        char *copy = arena_alloc(&b.a, good.n + 1), *page = copy + k / 3 * PAGE;
        memcpy(copy, good.p, (size_t)good.n);
        for (i64 i = 0; i < PAGE; i++) page[i] = k % 3 == 1 ? (char)rng_u64(&r) : 0;
        if (k % 3 == 2) memcpy(page, good.p + (k / 3 + 1) % pages * PAGE, PAGE);
        put(b.bad, (struct str){copy, good.n});
        if (reads_all(&b, b.bad, 450, &e)) fail_msg("page %lld may be something else", (long long)(k / 3 + 1));
    }
    fixture_close(&b);
}

/* In a file too large for a full check, each page is compared when it is read. */
static void test_large(void **state)
{
    struct fixture b;
    struct db d;
    struct err e = {0};
    struct trial_row row;
    fixture_open(&b);
    assert_true(db_open(&d, b.path, &e));
    add_rows(&d, &b.task[0], "x", 1000);
    assert_true(db_do(&d, &e, "INSERT INTO model VALUES ('large', zeroblob(70000000))", ""));
    db_close(&d);
    char *bytes = (char *)(uintptr_t)content(&b, b.path).p;
    i64 size = content(&b, b.path).n, at = -1;
    const double seconds = 1.25 + 400;
    char image[8];
    for (int k = 0; k < 8; k++) memcpy(&image[7 - k], (const char *)&seconds + k, 1);
    for (i64 i = 0; i + 8 <= size && at < 0; i++)
        if (memcmp(bytes + i, image, 8) == 0) at = i;
    assert_true(at > 0);
    bytes[at + 5] ^= 4; /* a time that is another one by a millionth */
    put(b.bad, (struct str){bytes, size});
    assert_true(db_open(&d, b.bad, &e));
    assert_true(db_trial_row(&d, 1, &b.a, &row, &e));
    assert_false(db_trial_row(&d, 401, &b.a, &row, &e));
    if (!strstr(e.msg, "a.db.bad") || !strstr(e.msg, "checksum")) fail_msg("%s", e.msg);
    db_close(&d);
    fixture_close(&b);
}

/* The files as a kill leaves them: rows in the log alone. */
static void make_log(struct fixture *b, struct str *file, struct str *log)
{
    struct db d;
    struct err e = {0};
    make(b, 20);
    assert_true(db_open(&d, b->path, &e));
    for (u32 k = 0; k < 10; k++) add_rows(&d, &b->task[1], "y", k + 1);
    *file = content(b, b->path), *log = content(b, with(b, b->path, "-wal"));
    db_close(&d);
    assert_true(log->n > 10 * PAGE);
}

enum { IN_FILE = 60, IN_LOG = 3 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10) };

/* A damaged log: all its transactions are applied, or it is refused and unchanged. The effects of a
   kill are no damage. */
static void test_log(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct rng r = rng_seed(4);
    struct str file, log;
    fixture_open(&b);
    make_log(&b, &file, &log);
    const char *bad_log = with(&b, b.bad, "-wal");
    for (i64 at = 0, step = 0; at < log.n; at += step) {
        step = rng_range(&r, 1, at < 32 + 24 || at > log.n - 30 ? 1 : 500);
        char *copy = arena_alloc(&b.a, log.n);
        memcpy(copy, log.p, (size_t)log.n);
        copy[at] = (char)(copy[at] ^ (1 << rng_range(&r, 0, 7)));
        put(b.bad, file), put(bad_log, (struct str){copy, log.n});
        if (reads_all(&b, b.bad, IN_FILE + IN_LOG, &e)) continue; /* it was not needed */
        if (!strstr(e.msg, "a.db.bad")) fail_msg("'%s' does not name the file", e.msg);
        assert_true(str_eq(content(&b, bad_log), (struct str){copy, log.n}));
    }
    for (int k = 0; k < 40; k++) {
        struct db d;
        i64 n = rng_range(&r, 33, log.n - 1);
        if ((n - 32) % (24 + PAGE) == 0) n++;
        put(b.bad, file), put(bad_log, str_sub(log, 0, n));
        e = (struct err){0};
        if (!db_open(&d, b.bad, &e)) fail_msg("cut at %lld: %s", (long long)n, e.msg);
        assert_true(samples(&d) >= IN_FILE);
        db_close(&d);
    }
    fixture_close(&b);
}

/* Recovers b.bad; returns the number of recovered samples, < 0: none. */
static i64 repaired(struct fixture *b, struct db_saved *s)
{
    const char *to = with(b, b->bad, ".new");
    struct err e = {0};
    struct db d;
    os_remove_tree(to);
    if (!db_repair(b->bad, to, s, &e)) {
        assert_true(e.msg[0] && !os_exists(to));
        return -1;
    }
    assert_true(reads_all(b, to, s->n_samples, &e));
    assert_true(db_open(&d, to, &e));
    assert_int_equal(ask(&d, "SELECT count(*) FROM sample WHERE seconds NOT BETWEEN 1.25 AND 10000"), 0);
    db_close(&d);
    return s->n_samples;
}

static void test_repair(void **state)
{
    struct fixture b;
    struct db_saved s;
    struct err e = {0};
    struct rng r = rng_seed(5);
    struct str file, log;
    i64 least = 450;
    fixture_open(&b);
    make(&b, 150);
    struct str good = content(&b, b.path);
    put(b.bad, good);
    assert_true(repaired(&b, &s) == 450 && s.n_trials == 150 && s.n_tasks == 1 && s.n_damaged == 0);
    assert_false(db_repair(b.bad, b.path, &s, &e)); /* exists already */
    assert_int_equal(e.code, ERR_USAGE);
    for (i64 k = 0; k < good.n / PAGE; k++) { /* without any of its pages */
        char *copy = arena_alloc(&b.a, good.n);
        memcpy(copy, good.p, (size_t)good.n);
        memset(copy + k * PAGE, 0xee, PAGE);
        put(b.bad, (struct str){copy, good.n});
        i64 n = repaired(&b, &s);
        least = n < least ? n : least;
        assert_int_equal(s.n_damaged, 1);
    }
    assert_true(least >= -1 && least < 450);
    for (int k = 0; k < 4; k++) { /* a byte that is wrong is put right, the checksum's or another */
        char *copy = arena_alloc(&b.a, good.n);
        memcpy(copy, good.p, (size_t)good.n);
        i64 at = k ? rng_range(&r, 0, good.n - 1) : 3 * PAGE - 2;
        copy[at] = (char)(copy[at] + 1 + rng_range(&r, 0, 200));
        put(b.bad, (struct str){copy, good.n});
        assert_int_equal(repaired(&b, &s), 450);
        assert_true(s.n_damaged == 1 && s.n_corrected == 1);
    }
    for (int k = 0; k < 40; k++) { /* hostile ones */
        char *copy = arena_alloc(&b.a, good.n);
        memcpy(copy, good.p, (size_t)good.n);
        scatter(copy, good.n, 200, &r);
        for (i64 p = 0; k % 2 && p < good.n / PAGE; p++) { /* whose checksums are right */
            u64 sum = db_page_sum(copy + p * PAGE, PAGE, p + 1);
            for (int i = 0; i < DB_SUM_BYTES; i++, sum >>= 8) copy[p * PAGE + PAGE - DB_SUM_BYTES + i] = (char)sum;
        }
        put(b.bad, (struct str){copy, good.n - rng_range(&r, 0, k % 4 ? 1 : good.n - 1)});
        os_remove_tree(with(&b, b.bad, ".new"));
        e = (struct err){0};
        assert_true(db_repair(b.bad, with(&b, b.bad, ".new"), &s, &e) || e.msg[0]);
    }
    make_log(&b, &file, &log);
    put(b.bad, file), put(with(&b, b.bad, "-wal"), log);
    assert_int_equal(repaired(&b, &s), 450 + IN_FILE + IN_LOG);
    fixture_close(&b);
}

/* Old databases have no checksums: anything that looks like a row is accepted. */
static void test_repair_old(void **state)
{
    struct fixture b;
    struct db_saved s;
    for (int version = 1; version <= 4; version++) {
        fixture_open(&b);
        make_old(&b, version, 100);
        struct str good = content(&b, b.path);
        char *copy = (char *)(uintptr_t)good.p;
        memset(copy, 0xee, 100); /* no head */
        put(b.bad, good);
        assert_int_equal(repaired(&b, &s), 300);
        assert_true(s.n_trials == 100 && s.n_tasks == 1);
        fixture_close(&b);
    }
}

/* As a user to whom neither the file nor its folder belongs. */
static void as_nobody(void (*check)(struct fixture *b), struct fixture *b)
{
    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
        check(b);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void must(bool ok, const char *what, const struct err *e)
{
    if (ok) return;
    fprintf(stderr, "%s: %s\n", what, e->msg);
    _exit(1);
}

static void check_readable(struct fixture *b)
{
    struct db d;
    struct err e = {0}, refused = {0};
    struct buf out = {0};
    must(db_open(&d, b->path, &e), "open", &e);
    must(d.is_readonly, "it is said that it can be written", &e);
    must(samples(&d) == IN_FILE + IN_LOG, "samples", &e);
    must(db_stats(&d, &out, &e) && db_export(&d, &out, &e), "read", &e);
    must(db_env(&d, S("x"), S("cc"), &e) == 1 && db_env(&d, S("z"), S("cc"), &e) == -1, "environments", &e);
    must(db_task(&d, &b->task[1], &e) == 2, "tasks", &e);
    must(!db_trial(&d, 1, 1, S("H=4"), S("new"), &refused) && strstr(refused.msg, "can only be read"), "a trial is added", &refused);
    db_close(&d);
    buf_release(&out);
}

/* Read-only files are read: in writable and read-only folders, with a log left by a kill, of an old
   version. Nothing is written. */
static void test_readonly(void **state)
{
    for (int k = 0; k < 8; k++) {
        struct fixture b;
        struct str file, log;
        bool has_log = k & 1, is_still = k & 2, is_old = k & 4;
        if (is_old && has_log) continue;
        fixture_open(&b);
        if (is_old) {
            make_old(&b, 3, 20);
            struct db d = {0};
            assert_int_equal(sqlite3_open(b.path, &d.sql), SQLITE_OK);
            for (u32 i = 0; i < 10; i++) add_rows(&d, &b.task[1], "y", i + 1);
            sqlite3_close(d.sql);
        } else {
            make_log(&b, &file, &log);
            if (has_log) put(b.path, file), put(with(&b, b.path, "-wal"), log);
        }
        struct str before = content(&b, b.path);
        assert_true(chmod(b.path, 0444) == 0 && chmod(b.dir.p, is_still ? 0555 : 0777) == 0);
        if (has_log) assert_int_equal(chmod(with(&b, b.path, "-wal"), 0444), 0);
        as_nobody(check_readable, &b);
        assert_true(str_eq(content(&b, b.path), before));
        if (has_log) assert_true(str_eq(content(&b, with(&b, b.path, "-wal")), log));
        assert_int_equal(chmod(b.dir.p, 0700), 0);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),  cmocka_unit_test(test_upgrade), cmocka_unit_test(test_upgrade_killed),
        cmocka_unit_test(test_upgrade_names), cmocka_unit_test(test_upgrade_together),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_cut),     cmocka_unit_test(test_large),
        cmocka_unit_test(test_log),    cmocka_unit_test(test_repair),  cmocka_unit_test(test_repair_old),
        cmocka_unit_test(test_readonly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
