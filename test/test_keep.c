// SPDX-License-Identifier: Apache-2.0
//
// Programs in the user's cache: the next compilation of the same network only opens a file and
// yields the same results; other constants, sizes, names or options are other programs; a damaged
// file is rebuilt; programs selected with a database are not cached.
#include "api/api_model.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char net[] = "graph {\n"
                          "  input %x: f32[1,3,H,W]\n"
                          "  const %c: f32[1,3,1,1] = [0.5, 2, -1]\n"
                          "  %y: f32[1,3,H,W] = Mul \"scale\"(%x, %c)\n"
                          "  %z: f32[1,3,H,W] = Relu(%y)\n"
                          "  output %z\n"
                          "}\n";

struct fixture {
    struct arena a;
    struct str cache; /* the user's caches and settings, of this test */
    quern *q;
    quern_db *db;
    struct quern_compile_opts o;
};

static void fixture_open(struct fixture *b)
{
    struct err e = {0};
    memset(b, 0, sizeof *b);
    assert_true(os_temp_dir(&b->a, &b->cache, &e));
    setenv("XDG_CACHE_HOME", b->cache.p, 1);
    setenv("XDG_CONFIG_HOME", b->cache.p, 1);
    b->q = quern_open(NULL);
    b->o = (struct quern_compile_opts){.size = sizeof b->o, .device = "cpu", .threads = 1, .keep = 1};
}

static void fixture_close(struct fixture *b)
{
    quern_db_close(b->db);
    quern_close(b->q);
    os_remove_tree(b->cache.p);
    arena_release(&b->a);
}

static i64 n_kept(struct fixture *b, struct os_entry **entry)
{
    struct err e = {0};
    i64 n = 0, done = 0;
    struct str dir = str_fmt(&b->a, "%.*s/quern/programs", STR_ARG(b->cache));
    if (!os_is_dir(dir.p) || !os_list_by_use(&b->a, dir.p, entry, &n, &e)) return 0;
    for (i64 i = 0; i < n; i++) done += !str_ends((*entry)[i].name, S(".tmp")); /* or it is being written */
    return done;
}

/* Compiles and runs it; returns the sum of its outputs, which differs for every constant. */
static double run(struct fixture *b, const char *text, const char *sizes)
{
    quern_model *m = NULL;
    quern_program *p = NULL;
    quern_tensor *in[4], *out[4] = {0};
    int n = 0;
    double sum = 0;
    struct quern_model_opts mo = QUERN_OPTS(quern_model_opts);
    mo.optimize_for = sizes;
    assert_int_equal(quern_model_read(b->q, text, strlen(text), "net", &mo, &m), QUERN_OK);
    assert_int_equal(quern_compile(m, b->db, &b->o, &p), QUERN_OK);
    assert_int_equal(quern_program_random_inputs(p, "H:5,W:7", 1, in, 4, &n), QUERN_OK);
    assert_int_equal(quern_run(p, in, n, out, 1), QUERN_OK);
    for (i64 i = 0; i < quern_tensor_count(out[0]); i++) sum += elem_f64(DT_F32, quern_tensor_data(out[0]), i);
    quern_tensor_free(in[0]), quern_tensor_free(out[0]);
    quern_program_close(p);
    quern_model_close(m);
    return sum;
}

/* The network with one piece of its text replaced. */
static const char *with(struct fixture *b, const char *old, const char *new)
{
    const char *at = strstr(net, old);
    assert_non_null(at);
    return str_fmt(&b->a, "%.*s%s%s", (int)(at - net), net, new, at + strlen(old)).p;
}

static void test_found_again(void **state)
{
    struct fixture b;
    struct os_entry *was, *is;
    fixture_open(&b);
    double sum = run(&b, net, NULL);
    assert_int_equal(n_kept(&b, &was), 1);
    assert_true(run(&b, net, NULL) == sum);
    assert_int_equal(n_kept(&b, &is), 1);
    assert_true(was[0].changed == is[0].changed); /* nothing was written */
    assert_true(run(&b, with(&b, "0.5, 2", "0.5, 3"), NULL) != sum);
    assert_int_equal(n_kept(&b, &is), 2);
    assert_true(run(&b, net, "H:5,W:7") == sum);
    assert_int_equal(n_kept(&b, &is), 3);
    run(&b, with(&b, "\"scale\"", "\"gain\""), NULL); /* profiles show names */
    assert_int_equal(n_kept(&b, &is), 4);
    b.o.no_fusion = 1;
    assert_true(run(&b, net, NULL) == sum);
    assert_int_equal(n_kept(&b, &is), 5);
    b.o.keep = 0, b.o.no_fusion = 0;
    run(&b, with(&b, "0.5, 2", "0.5, 4"), NULL);
    assert_int_equal(n_kept(&b, &is), 5);
    fixture_close(&b);
}

/* A loop whose body has a constant that is too long for the text of a key. */
static const char *loop_with(struct fixture *b, int last)
{
    struct buf t = {0};
    buf_z(&t, "graph {\n"
              "  input %s: f32[105]\n"
              "  input %x: f32[N,105]\n"
              "  const %i: i64[] = [0]\n"
              "  _, %t: f32[105], %y: f32[N,105] = quern::Loop(_, %i, %s, %x) {body=graph {\n"
              "    input %i: i64[]\n"
              "    input %s: f32[105]\n"
              "    input %x_2: f32[N,105]\n"
              "    const %w: f32[105] = [");
    for (int k = 0; k < 105; k++) buf_printf(&t, "%s%d", k ? "," : "", k < 104 ? k : last);
    buf_z(&t, "]\n"
              "    %v: f32[105] = Gather(%x_2, %i) {axis=0}\n"
              "    %u: f32[105] = Add(%s, %w)\n"
              "    %t: f32[105] = Add(%u, %v)\n"
              "    %y: f32[105] = Identity(%t)\n"
              "    const %one: i64[] = [1]\n"
              "    %r: i64[] = Add(%i, %one)\n"
              "    output %r\n"
              "    output %t\n"
              "    output %y\n"
              "  }, carried=2, conditional=0, trip_count=strs[\"N\"], shape1=strs[\"105\"], shape2=strs[\"N\",\"105\"]}\n"
              "  output %t\n"
              "  output %y\n"
              "}\n");
    const char *z = str_dup(&b->a, buf_view(&t)).p;
    buf_release(&t);
    return z;
}

static bool key_of(struct fixture *b, const char *text, struct hash *key)
{
    quern_model *m = NULL;
    struct api_target t;
    struct err e = {0};
    if (quern_model_read(b->q, text, strlen(text), "net", NULL, &m)) fail_msg("%s", quern_error(b->q));
    assert_true(api_target_open(&t, "cpu", 1, NULL, &e));
    bool ok = api_keep_key(key, m, &t, &(struct cover_opts){0});
    api_target_close(&t);
    quern_model_close(m);
    return ok;
}

static void test_bodies(void **state)
{
    struct fixture b;
    struct hash x, same, other;
    fixture_open(&b);
    assert_true(key_of(&b, loop_with(&b, 5), &x) && key_of(&b, loop_with(&b, 5), &same) && key_of(&b, loop_with(&b, 6), &other));
    assert_true(memcmp(&x, &same, sizeof x) == 0);
    assert_true(memcmp(&x, &other, sizeof x) != 0);
    fixture_close(&b);
}

/* Assumptions about sizes are part of a program, even if no kernel uses them. */
static void test_facts(void **state)
{
    struct fixture b;
    struct hash x[3];
    fixture_open(&b);
    assert_true(key_of(&b, net, &x[0]));
    assert_true(key_of(&b, with(&b, "graph {\n", "graph {\n  fact at_least(H, 2) \"option assume\"\n"), &x[1]));
    assert_true(key_of(&b, with(&b, "graph {\n", "graph {\n  fact at_least(H, 3) \"option assume\"\n"), &x[2]));
    for (int k = 0; k < 3; k++) assert_true(memcmp(&x[k], &x[(k + 1) % 3], sizeof x[0]) != 0);
    fixture_close(&b);
}

static void test_damaged(void **state)
{
    struct fixture b;
    struct os_entry *entry;
    struct err e = {0};
    struct str good, now;
    fixture_open(&b);
    double sum = run(&b, net, NULL);
    assert_int_equal(n_kept(&b, &entry), 1);
    const char *path = str_fmt(&b.a, "%.*s/quern/programs/%.*s", STR_ARG(b.cache), STR_ARG(entry[0].name)).p;
    assert_true(os_read(&b.a, path, 1 << 24, &good, &e));
    struct str program = str_sub(good, 0, good.n - SEAL_BYTES);
    for (int k = 1; k < 16; k++) {
        char *flipped = arena_alloc(&b.a, good.n);
        memcpy(flipped, good.p, (size_t)good.n);
        flipped[(good.n - 1) * k / 15] ^= 1;
        struct str bad = k % 2 ? str_sub(good, 0, good.n * k / 16) : (struct str){flipped, good.n};
        assert_true(os_write_private(path, &bad, 1, &e));
        assert_true(run(&b, net, NULL) == sum);
        /* same input, same bytes */
        assert_true(os_read(&b.a, path, 1 << 24, &now, &e) && str_eq(str_sub(now, 0, now.n - SEAL_BYTES), program));
    }
    fixture_close(&b);
}

/* Written when the program is closed, whether it ran or not, and soon after a run without closing. */
static void test_when(void **state)
{
    struct fixture b;
    struct os_entry *entry;
    for (int runs = 0; runs < 2; runs++) {
        quern_model *m = NULL;
        quern_program *p = NULL;
        quern_tensor *in[1], *out[1] = {0};
        int n = 0;
        fixture_open(&b);
        assert_int_equal(quern_model_read(b.q, net, strlen(net), "net", NULL, &m), QUERN_OK);
        assert_int_equal(quern_compile(m, NULL, &b.o, &p), QUERN_OK);
        quern_model_close(m);
        assert_int_equal(n_kept(&b, &entry), 0);
        assert_int_equal(quern_program_random_inputs(p, "H:5,W:7", 1, in, 1, &n), QUERN_OK);
        for (int k = 0; k < 3 * runs; k++) assert_int_equal(quern_run(p, in, 1, out, 1), QUERN_OK);
        for (int k = 0; k < 3000 && runs && !n_kept(&b, &entry); k++) os_sleep(0.01);
        assert_int_equal(n_kept(&b, &entry), runs);
        quern_program_close(p);
        assert_int_equal(n_kept(&b, &entry), 1);
        quern_tensor_free(in[0]), quern_tensor_free(out[0]);
        fixture_close(&b);
    }
}

/* Processes that write the same program concurrently do not interfere. */
static void test_together(void **state)
{
    struct fixture b;
    struct os_entry *entry;
    pid_t child[4];
    fixture_open(&b);
    for (int k = 0; k < 4; k++) {
        child[k] = fork();
        if (child[k]) continue;
        double sum = 0;
        for (int i = 0; i < 3; i++) sum = run(&b, net, NULL);
        _exit(sum == 0);
    }
    for (int k = 0; k < 4; k++) {
        int status = -1;
        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(n_kept(&b, &entry), 1);
    run(&b, net, NULL);
    assert_int_equal(n_kept(&b, &entry), 1);
    fixture_close(&b);
}

static void test_database(void **state)
{
    struct fixture b;
    struct os_entry *entry;
    fixture_open(&b);
    assert_int_equal(quern_db_open(b.q, ":memory:", &b.db), QUERN_OK);
    run(&b, net, NULL);
    assert_int_equal(n_kept(&b, &entry), 0);
    b.o.untuned = 1; /* it has no part in it */
    run(&b, net, NULL);
    assert_int_equal(n_kept(&b, &entry), 1);
    fixture_close(&b);
}

/* What front ends keep: found by the whole key, in this context and others, until it is damaged or the cache is cleared. */
static void test_notes(void **state)
{
    struct fixture b;
    struct os_entry *entry;
    struct err e = {0};
    char *data = NULL;
    size_t size = 0;
    i64 n = 0;
    fixture_open(&b);
    assert_int_equal(quern_cache_get(b.q, "a\0b", 3, &data, &size), QUERN_NOTHING);
    assert_int_equal(quern_cache_put(b.q, "a\0b", 3, "x\0y", 3), QUERN_OK);
    assert_int_equal(quern_cache_put(b.q, "empty", 5, NULL, 0), QUERN_OK);
    assert_int_equal(quern_cache_get(b.q, "a", 1, &data, &size), QUERN_NOTHING);
    quern *other = quern_open(NULL);
    assert_int_equal(quern_cache_get(other, "a\0b", 3, &data, &size), QUERN_OK);
    assert_true(size == 3 && !memcmp(data, "x\0y", 3));
    quern_text_free(data);
    assert_int_equal(quern_cache_get(other, "empty", 5, &data, &size), QUERN_OK);
    assert_int_equal(size, 0);
    quern_text_free(data);
    assert_int_equal(quern_cache_put(b.q, "a\0b", 3, "other", 5), QUERN_OK);
    assert_int_equal(quern_cache_get(other, "a\0b", 3, &data, &size), QUERN_OK);
    assert_true(size == 5 && !memcmp(data, "other", 5));
    quern_text_free(data);
    struct str dir = str_fmt(&b.a, "%.*s/quern/notes", STR_ARG(b.cache));
    assert_true(os_list_by_use(&b.a, dir.p, &entry, &n, &e) && n == 2);
    for (i64 k = 0; k < n; k++) assert_true(os_write(str_fmt(&b.a, "%.*s/%.*s", STR_ARG(dir), STR_ARG(entry[k].name)).p, "otherx", 6, &e));
    assert_int_equal(quern_cache_get(other, "a\0b", 3, &data, &size), QUERN_NOTHING);
    assert_int_equal(quern_cache_put(b.q, "k", 1, "v", 1), QUERN_OK);
    assert_int_equal(quern_cache_clear(b.q), QUERN_OK);
    assert_int_equal(quern_cache_get(b.q, "k", 1, &data, &size), QUERN_NOTHING);
    quern_close(other);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_again),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_when),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_database),
        cmocka_unit_test(test_notes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
