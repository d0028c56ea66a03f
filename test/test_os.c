// SPDX-License-Identifier: Apache-2.0
//
// Files, folders, processes and shared objects, in a temporary folder.
#include "core/core.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

struct fixture {
    struct arena a;
    struct str dir;
};

static int setup(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    struct err e = {0};
    *state = f;
    return os_temp_dir(&f->a, &f->dir, &e) ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    os_remove_tree(f->dir.p);
    int left = os_exists(f->dir.p);
    arena_release(&f->a);
    mem_free(f);
    return left;
}

static const char *in_dir(struct fixture *f, const char *name)
{
    return str_fmt(&f->a, "%s/%s", f->dir.p, name).p;
}

static void files_read_back(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct os_file m;
    struct str s;
    const char *path = in_dir(f, "x");
    assert_true(os_write(path, "hello", 5, &e));
    assert_true(os_read(&f->a, path, 5, &s, &e) && str_is(s, "hello") && s.p[5] == 0);
    assert_true(os_map(&m, path, &e) && m.n == 5 && memcmp(m.p, "hello", 5) == 0);
    assert_true(os_write(path, "", 0, &e)); /* the mapping keeps the old file */
    assert_memory_equal(m.p, "hello", 5);
    os_unmap(&m);
    assert_true(os_map(&m, path, &e) && m.n == 0 && m.p != NULL);
    os_unmap(&m);
    assert_true(os_read(&f->a, path, 0, &s, &e) && s.n == 0);
}

static void writing_keeps_links_and_modes(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct stat st;
    struct str *names, s;
    i64 n;
    assert_true(os_write(in_dir(f, "a"), "1", 1, &e));
    assert_int_equal(chmod(in_dir(f, "a"), 0640), 0);
    assert_int_equal(symlink("a", in_dir(f, "b")), 0);
    assert_true(os_write(in_dir(f, "b"), "2", 1, &e));
    assert_true(os_read(&f->a, in_dir(f, "a"), 9, &s, &e) && str_is(s, "2"));
    assert_true(stat(in_dir(f, "a"), &st) == 0 && (st.st_mode & 0777) == 0640);
    assert_true(os_list(&f->a, f->dir.p, &names, &n, &e) && n == 2); /* nothing temporary left */
    assert_true(str_is(names[0], "a") && str_is(names[1], "b"));
    assert_true(os_write("/dev/null", "x", 1, &e));
}

static void failures_name_the_file(void **state)
{
    struct fixture *f = *state;
    struct os_file m;
    struct str s, *names;
    i64 n;
    const char *none = in_dir(f, "none"), *below = in_dir(f, "none/x");
    struct err e[6] = {0};
    assert_false(os_map(&m, none, &e[0]));
    os_unmap(&m);
    assert_false(os_read(&f->a, none, 9, &s, &e[1]));
    assert_false(os_write(below, "x", 1, &e[2]));
    assert_false(os_list(&f->a, none, &names, &n, &e[3]));
    assert_false(os_map(&m, f->dir.p, &e[4]));
    assert_null(os_dlopen(none, &e[5]));
    for (int i = 0; i < 6; i++)
        if (!strstr(e[i].msg, f->dir.p)) fail_msg("%d: %s", i, e[i].msg);
    assert_true(os_write(none, "123456", 6, NULL));
    struct err large = {0};
    assert_false(os_read(&f->a, none, 5, &s, &large));
    assert_int_equal(large.code, ERR_INPUT);
}

static void folders(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    assert_true(os_mkdirs(in_dir(f, "p/q//r/"), &e));
    assert_true(os_mkdirs(in_dir(f, "p/q"), &e));
    assert_true(os_is_dir(in_dir(f, "p/q/r")) && !os_is_dir(in_dir(f, "p/x")));
    assert_true(os_write(in_dir(f, "p/file"), "", 0, &e));
    assert_false(os_mkdirs(in_dir(f, "p/file/x"), &e));
    assert_int_equal(symlink("/", in_dir(f, "p/root")), 0); /* not followed when removed */
    os_remove_tree(in_dir(f, "p"));
    assert_false(os_exists(in_dir(f, "p")));
    assert_true(os_exists("/dev/null"));
}

static struct os_status sh(const char *script, double timeout, struct buf *out)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    return os_run(&(struct os_proc_opts){argv, timeout, out});
}

static void processes_report_how_they_ended(void **state)
{
    struct buf out = {0};
    struct os_status s = sh("echo out; echo err >&2; cat; exit 3", 10, &out);
    assert_true(s.how == OS_EXITED && s.code == 3 && str_is(buf_view(&out), "out\nerr\n"));
    s = sh("kill -SEGV $$", 0, NULL);
    assert_true(s.how == OS_SIGNALLED && s.code == SIGSEGV);
    const char *argv[] = {"/nonexistent/program", NULL};
    s = os_run(&(struct os_proc_opts){argv, 1, &out});
    assert_int_equal(s.how, OS_NOT_STARTED);
    buf_release(&out);
}

static void time_outs_end_the_whole_group(void **state)
{
    struct fixture *f = *state;
    struct buf out = {0};
    const char *script =
        str_fmt(&f->a, "(sleep 3; touch %s/late) & echo first; sleep 600", f->dir.p).p;
    struct os_status s = sh(script, 1, &out);
    assert_int_equal(s.how, OS_TIMEOUT);
    assert_string_equal(out.p, "first\n");
    s = sh("yes", 0.3, &out); /* output without end */
    assert_int_equal(s.how, OS_TIMEOUT);
    s = sh("sleep 60 & exit 0", 30, &out); /* the orphan holds the pipe open */
    assert_int_equal(s.how, OS_EXITED);
    usleep(2100000);
    assert_false(os_exists(in_dir(f, "late")));
    buf_release(&out);
}

static void much_output_does_not_block(void **state)
{
    struct buf out = {0};
    struct os_status s =
        sh("i=0; while [ $i -lt 200 ]; do head -c 4096 /dev/zero; i=$((i+1)); done", 30, &out);
    assert_true(s.how == OS_EXITED && s.code == 0 && out.n == 200 * 4096);
    buf_release(&out);
}

static void children_inherit_no_files(void **state)
{
    struct fixture *f = *state;
    struct buf out = {0};
    struct os_file m;
    assert_true(os_write(in_dir(f, "x"), "x", 1, NULL) && os_map(&m, in_dir(f, "x"), NULL));
    sh("ls /proc/self/fd | wc -l", 10, &out); /* 0 1 2 and the listed folder */
    assert_true(str_is(str_trim(buf_view(&out)), "4"));
    os_unmap(&m);
    buf_release(&out);
}

/* A shared object whose function returns n. */
static struct str build_library(struct fixture *f, int n)
{
    struct buf out = {0};
    struct str so;
    const char *src = in_dir(f, "lib.c"), *lib = in_dir(f, "lib.so");
    struct str text = str_fmt(&f->a, "int answer(void) { return %d; }\n", n);
    assert_true(os_write(src, text.p, text.n, NULL));
    const char *argv[] = {"cc", "-shared", "-fPIC", "-o", lib, src, NULL};
    struct os_status s = os_run(&(struct os_proc_opts){argv, 60, &out});
    if (s.how != OS_EXITED || s.code) fail_msg("cc: %s", out.p);
    assert_true(os_read(&f->a, lib, 1 << 24, &so, NULL));
    buf_release(&out);
    return so;
}

static int call(void *lib)
{
    int (*fn)(void);
    *(void **)&fn = os_dlsym(lib, "answer");
    assert_null(os_dlsym(lib, "question"));
    return fn();
}

static void code_loads_from_memory(void **state)
{
    struct fixture *f = *state;
    struct err e = {0}, bad = {0};
    struct str one = build_library(f, 1), two = build_library(f, 2);
    void *a = os_dlopen_bytes(one.p, one.n, &e), *b = os_dlopen_bytes(two.p, two.n, &e);
    void *c = os_dlopen(in_dir(f, "lib.so"), &e);
    assert_true(a && b && c);
    assert_int_equal(call(a), 1); /* two at once are two, although both files were closed */
    assert_int_equal(call(b), 2);
    assert_int_equal(call(c), 2);
    os_dlclose(a), os_dlclose(b), os_dlclose(c);
    assert_null(os_dlopen_bytes("no code", 7, &bad));
    assert_non_null(strstr(bad.msg, "cannot load"));
    assert_null(strstr(bad.msg, "/proc"));
}

static void the_machine_is_known(void **state)
{
    char model[100];
    os_cpu_model(model, sizeof model);
    assert_true(strlen(model) > 0 && !strchr(model, '\n'));
    assert_true(os_n_cpus() > 0 && os_peak_rss() > 0 && os_now() <= os_now());
    struct hash x = os_cpu_features(), y = os_cpu_features();
    assert_true(x.lo == y.lo && x.hi == y.hi);
    assert_null(os_env("QUERN_NO_SUCH_VARIABLE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_read_back, setup, teardown),
        cmocka_unit_test_setup_teardown(writing_keeps_links_and_modes, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_name_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(folders, setup, teardown),
        cmocka_unit_test(processes_report_how_they_ended),
        cmocka_unit_test_setup_teardown(time_outs_end_the_whole_group, setup, teardown),
        cmocka_unit_test(much_output_does_not_block),
        cmocka_unit_test_setup_teardown(children_inherit_no_files, setup, teardown),
        cmocka_unit_test_setup_teardown(code_loads_from_memory, setup, teardown),
        cmocka_unit_test(the_machine_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
