// SPDX-License-Identifier: Apache-2.0
//
// Files named by untrusted files: beneath a folder, through no link, regular, with and without
// openat2; caches of links; files that only their owner may have written.
#include <stddef.h>

#include "core/core.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"

struct fixture {
    struct arena a;
    struct str dir;
};

static const char *in_dir(struct fixture *f, const char *name) { return str_fmt(&f->a, "%s/%s", f->dir.p, name).p; }

static void put(struct fixture *f, const char *name, const char *content)
{
    struct err e = {0};
    if (!os_write(in_dir(f, name), content, (i64)strlen(content), &e)) fail_msg("%s", e.msg);
}

static void link_to(struct fixture *f, const char *to, const char *name) { assert_int_equal(symlink(to, in_dir(f, name)), 0); }

/* net/model.onnx with net/w.bin, net/deep/w.bin; links of all kinds; a pipe; hub: a cache of links. */
static int setup(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    struct err e = {0};
    *state = f;
    if (!os_temp_dir(&f->a, &f->dir, &e)) return -1;
    assert_true(os_mkdirs(in_dir(f, "net/deep"), &e) && os_mkdirs(in_dir(f, "hub/blobs/sub"), &e) && os_mkdirs(in_dir(f, "hub/snapshots/1"), &e));
    put(f, "secret", "secret!!");
    put(f, "net/model.onnx", "model"), put(f, "net/w.bin", "01234567"), put(f, "net/deep/w.bin", "abcdefgh");
    link_to(f, "w.bin", "net/inside"), link_to(f, "../secret", "net/outside"), link_to(f, in_dir(f, "secret"), "net/absolute");
    link_to(f, "..", "net/up"), link_to(f, "deep", "net/folder"), link_to(f, "/proc/self/fd/0", "net/magic");
    assert_int_equal(mkfifo(in_dir(f, "net/pipe"), 0600), 0);
    put(f, "hub/blobs/m", "model"), put(f, "hub/blobs/w", "HUBBLOBS"), put(f, "hub/blobs/sub/w", "DEEPBLOB");
    link_to(f, "../../blobs/m", "hub/snapshots/1/model.onnx"), link_to(f, "../../blobs/w", "hub/snapshots/1/w.bin");
    link_to(f, "../../blobs/sub/w", "hub/snapshots/1/deep.bin"), link_to(f, "../../../secret", "hub/snapshots/1/outside");
    return 0;
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

struct tried { const char *name, *content; /* NULL: refused */ const char *why; };

/* false: unexpected result, printed to standard error, for children. */
static bool check(struct fixture *f, const char *folder, const char *model, bool links, const struct tried *t)
{
    char got[9] = {0};
    struct err e = {0};
    struct os_beside at = {.dir = in_dir(f, folder), .model = model ? in_dir(f, model) : NULL, .follow_links = links};
    bool ok = os_read_beside(&at, str_of(t->name), 2, got, 4, &e);
    bool fits = t->content ? ok && strcmp(got, t->content) == 0 : !ok && e.code && (!t->why || strstr(e.msg, t->why));
    if (!fits) print_error("%s/%s: %s '%s' %s\n", folder, t->name, ok ? "read" : "refused", got, e.msg);
    return fits;
}

static bool check_all(struct fixture *f, const char *folder, const char *model, bool links, const struct tried *t, i64 n)
{
    bool ok = true;
    for (i64 k = 0; k < n; k++) ok &= check(f, folder, model, links, &t[k]);
    return ok;
}

static const struct tried plain[] = {
    {"w.bin", "2345", NULL},   {"deep/w.bin", "cdef", NULL}, {"./deep//w.bin", "cdef", NULL}, {"inside", NULL, "symbolic link"},
    {"outside", NULL, "symbolic link"}, {"absolute", NULL, "--external-data-links"}, {"folder/w.bin", NULL, "symbolic link"},
    {"up/secret", NULL, "symbolic link"}, {"magic", NULL, "symbolic link"}, {"../secret", NULL, NULL}, {"deep/../../secret", NULL, NULL},
    {"none", NULL, "No such file"}, {"w.bin/x", NULL, NULL}, {"pipe", NULL, "not a regular file"}, {"deep", NULL, "not a regular file"},
    {"", NULL, NULL}, {"model.onnx", NULL, "too short"},
};

static const struct tried hub[] = {{"w.bin", "BBLO", NULL}, {"deep.bin", "EPBL", NULL}, {"outside", NULL, "symbolic link"}, {"none", NULL, "No such file"}};

static const struct tried followed[] = {{"inside", "2345", NULL}, {"outside", "cret", NULL}, {"folder/w.bin", "cdef", NULL}, {"pipe", NULL, "not a regular file"}};

static bool check_everything(struct fixture *f)
{
    bool ok = check_all(f, "net", "net/model.onnx", false, plain, countof(plain)) && check_all(f, "net", NULL, false, plain, countof(plain));
    ok &= check_all(f, "hub/snapshots/1", "hub/snapshots/1/model.onnx", false, hub, countof(hub));
    return ok & check_all(f, "net", "net/model.onnx", true, followed, countof(followed));
}

static void test_beside(void **state) { assert_true(check_everything(*state)); }

/* From here on openat2 fails like that. */
static bool forbid_openat2(int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (u32)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (u32)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {countof(code), code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

static void test_without_openat2(void **state)
{
    const int errors[] = {ENOSYS, EPERM};
    for (i64 k = 0; k < countof(errors); k++) {
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) _exit(!forbid_openat2(errors[k]) ? 77 : check_everything(*state) ? 0 : 1);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip_test("no seccomp");
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

/* Only its owner can have written it, and only the owner can read a private key. */
static void test_own(void **state)
{
    struct fixture *f = *state;
    const struct { mode_t mode; bool open, secret; } modes[] = {{0600, true, true}, {0644, true, false}, {0640, true, false}, {0666, false, false}, {0620, false, false}};
    for (i64 k = 0; k < countof(modes); k++)
        for (int is_secret = 0; is_secret < 2; is_secret++) {
            struct err e = {0};
            struct str s;
            assert_int_equal(chmod(in_dir(f, "secret"), modes[k].mode), 0);
            assert_int_equal(os_read_own(&f->a, in_dir(f, "secret"), is_secret, 100, &s, &e), is_secret ? modes[k].secret : modes[k].open);
            assert_true(e.code || str_is(s, "secret!!"));
        }
    struct err e = {0};
    struct str s;
    assert_false(os_read_own(&f->a, in_dir(f, "net/pipe"), false, 100, &s, &e)); /* and does not wait for a writer */
    e = (struct err){0};
    assert_true(os_own_folder(in_dir(f, "net"), &e));
    assert_true(!os_own_folder(in_dir(f, "none"), &e) && !e.code);
    assert_int_equal(chmod(in_dir(f, "net"), 0777), 0);
    assert_true(!os_own_folder(in_dir(f, "net"), &e) && strstr(e.msg, "chmod"));
}

/* A copy does not change with the file; files above the limit are mapped. Pipes are refused at
   once. */
static void test_load(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct os_file m;
    assert_true(os_load(&m, in_dir(f, "net/w.bin"), 8, &e) && m.is_copy && m.n == 8 && (uintptr_t)m.p % 64 == 0);
    assert_int_equal(truncate(in_dir(f, "net/w.bin"), 0), 0);
    assert_memory_equal(m.p, "01234567", 8);
    os_unmap(&m);
    assert_true(os_load(&m, in_dir(f, "net/w.bin"), 8, &e) && m.n == 0);
    os_unmap(&m);
    assert_true(os_load(&m, in_dir(f, "net/deep/w.bin"), 7, &e) && !m.is_copy && m.n == 8);
    os_unmap(&m);
    assert_false(os_load(&m, in_dir(f, "net/pipe"), 8, &e));
    assert_non_null(strstr(e.msg, "not a regular file"));
    e = (struct err){0};
    assert_false(os_map(&m, in_dir(f, "net/pipe"), &e));
    assert_non_null(strstr(e.msg, "not a regular file"));
}

static void test_write_new(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct stat st;
    assert_true(os_write_new(in_dir(f, "key"), 0600, "k", 1, &e));
    assert_true(stat(in_dir(f, "key"), &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_size == 1);
    assert_false(os_write_new(in_dir(f, "key"), 0600, "k", 1, &e));
    link_to(f, "nowhere", "dangling");
    assert_false(os_write_new(in_dir(f, "dangling"), 0600, "k", 1, &e));
    assert_false(os_exists(in_dir(f, "nowhere")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_beside, setup, teardown), cmocka_unit_test_setup_teardown(test_without_openat2, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own, setup, teardown),    cmocka_unit_test_setup_teardown(test_load, setup, teardown),
        cmocka_unit_test_setup_teardown(test_write_new, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
