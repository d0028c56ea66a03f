// SPDX-License-Identifier: Apache-2.0
//
// Child processes for untrusted or long-running work: they are confined and limited, and release
// everything, however their parent ends.
#define _GNU_SOURCE
#include "core/core.h"
#include "dev/dev.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "skip.h"

/* Forbidden actions of a candidate. true: permitted. */

static bool writes_a_file(void) { return open("/tmp/quern-planted", O_WRONLY | O_CREAT, 0600) >= 0; }
static bool reads_a_file(void) { return open("/etc/passwd", O_RDONLY) >= 0; }
static bool opens_a_socket(void) { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }
static bool kills(void) { return kill(getppid(), 0) == 0; }
static bool forks(void)
{
    pid_t p = fork();
    if (p == 0) _exit(0);
    return p > 0;
}
static bool executes(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return false;
}
static bool traces(void) { return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) == 0; }
static bool removes(void) { return unlink("/tmp/quern-nothing-of-this-name") == 0 || errno == ENOENT; }
static bool maps_code(void) { return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED; }
static bool writes_to_standard_error(void) { return write(2, "", 0) == 0; }

/* Permitted actions of a kernel and its library. */

static bool allocates(void)
{
    bool ok = true;
    for (i64 n = 1; n < (i64)64 << 20 && ok; n *= 4) {
        volatile char *p = mem_aligned(n);
        ok = p != NULL;
        if (ok) p[n - 1] = 1;
        mem_free((void *)(uintptr_t)p);
    }
    return ok;
}
static bool starts_threads(void) { return os_threads_can_start(5); }
static bool waits(void) { return os_sleep(1e-3), os_yield(), os_now() > 0; }
static bool aborts(void) { abort(); }

enum outcome { LET, REFUSED, ENDED, ABORTED };

static const struct deed {
    const char *name;
    bool (*act)(void);
    enum outcome in_memory, in_device;
} deeds[] = {
    {"allocates", allocates, LET, LET},
    {"starts threads", starts_threads, LET, LET},
    {"waits", waits, LET, LET},
    {"aborts", aborts, ABORTED, ABORTED},
    {"reads a file", reads_a_file, REFUSED, LET},
    {"maps code", maps_code, REFUSED, LET},
    {"writes to standard error", writes_to_standard_error, REFUSED, LET},
    {"writes a file", writes_a_file, ENDED, LET /* a temporary one */},
    {"removes", removes, ENDED, LET},
    {"opens a socket", opens_a_socket, ENDED, LET},
    {"kills", kills, ENDED, REFUSED},
    {"forks", forks, ENDED, LET},
    {"executes", executes, ENDED, LET},
    {"traces", traces, ENDED, REFUSED},
};

struct plan { const struct deed *deed; enum os_sandbox_kind kind; };

static void act(void *user, int fd)
{
    const struct plan *p = user;
    u8 said[2] = {0};
    os_limit_child(p->kind == OS_SANDBOX_DEVICE);
    said[0] = os_sandbox_enter(p->kind, fd);
    os_child_put(fd, said, 1);
    said[1] = p->deed->act();
    os_child_put(fd, &said[1], 1);
}

static enum outcome outcome_of(const struct plan *p)
{
    struct os_child c;
    u8 entered = 0, let = 0;
    struct err e = {0};
    assert_true(os_child_start(&c, act, (void *)(uintptr_t)p, &e));
    assert_int_equal(os_child_get(&c, &entered, 1, 30), OS_EXITED);
    assert_true(entered);
    enum os_exit how = os_child_get(&c, &let, 1, 30);
    struct os_status s = os_child_end(&c);
    if (how == OS_EXITED) return let ? LET : REFUSED;
    if (s.how == OS_EXITED && p->deed->act == executes) return LET;
    assert_int_equal(s.how, OS_SIGNALLED);
    assert_true(s.code == SIGSYS || s.code == SIGABRT);
    return s.code == SIGSYS ? ENDED : ABORTED;
}

static void check_deeds(enum os_sandbox_kind kind)
{
    static const char *const word[] = {"let", "refused", "ended", "aborted"};
    if (os_sandbox_lacks(kind)) skip_test("no %s", os_sandbox_lacks(kind));
    for (i64 i = 0; i < countof(deeds); i++) {
        enum outcome want = kind == OS_SANDBOX_MEMORY ? deeds[i].in_memory : deeds[i].in_device;
        enum outcome got = outcome_of(&(struct plan){&deeds[i], kind});
        /* signals are a younger part of Landlock */
        if (kind == OS_SANDBOX_DEVICE && deeds[i].act == kills && got == LET) continue;
        if (got != want) fail_msg("%s: %s, not %s", deeds[i].name, word[got], word[want]);
    }
    unlink("/tmp/quern-planted");
}

static void candidates_have_their_memory_only(void **state) { check_deeds(OS_SANDBOX_MEMORY); }
static void drivers_do_not_touch_others(void **state) { check_deeds(OS_SANDBOX_DEVICE); }

static void writes_outside(void *user, int fd)
{
    const char *path = user;
    u8 said = os_sandbox_enter(OS_SANDBOX_DEVICE, fd);
    said += open(path, O_WRONLY) >= 0 ? 2 : open(path, O_RDONLY) >= 0 ? 4 : 0;
    os_child_put(fd, &said, 1);
}

/* A file outside of temporary folders: this program, unless it was built below one. */
static void drivers_write_to_permitted_places(void **state)
{
    char path[4096] = {0};
    struct os_child c;
    u8 said = 0;
    assert_true(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    if (os_sandbox_lacks(OS_SANDBOX_DEVICE)) skip_test("no %s", os_sandbox_lacks(OS_SANDBOX_DEVICE));
    if (!strncmp(path, "/tmp/", 5) || !strncmp(path, "/var/tmp/", 9)) skip_test("the test lies in a temporary folder");
    char *name = strrchr(path, '/');
    memcpy(name, "/test_child.c.planted", sizeof "/test_child.c.planted");
    struct err e = {0};
    assert_true(os_write(path, "mine", 4, &e));
    assert_true(os_child_start(&c, writes_outside, path, &e));
    assert_int_equal(os_child_get(&c, &said, 1, 30), OS_EXITED);
    os_child_end(&c);
    unlink(path);
    assert_int_equal(said, 1 + 4);
}

static void writes_to_shared(void *user, int fd)
{
    volatile char *p = *(char **)user;
    os_sandbox_enter(OS_SANDBOX_MEMORY, fd);
    *p = 2;
    os_child_put(fd, "x", 1);
}

/* The database's log has an index that all its processes see: a wild pointer must not reach it. */
static void shared_memory_is_out_of_reach(void **state)
{
    if (os_sandbox_lacks(OS_SANDBOX_MEMORY)) skip_test("no %s", os_sandbox_lacks(OS_SANDBOX_MEMORY));
    struct os_child c;
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), x;
    struct err e = {0};
    *p = 1;
    assert_true(os_child_start(&c, writes_to_shared, &p, &e));
    assert_int_equal(os_child_get(&c, &x, 1, 30), OS_SIGNALLED);
    struct os_status s = os_child_end(&c);
    assert_true(s.how != OS_EXITED || s.code != 0);
    assert_int_equal(*p, 1);
    munmap(p, 4096);
}

static void enters(void *user, int fd)
{
    double start = os_now();
    os_limit_child(false);
    os_sandbox_enter(*(enum os_sandbox_kind *)user, fd);
    start = os_now() - start;
    os_child_put(fd, &start, sizeof start);
}

static void the_cost_is_reported(void **state)
{
    enum { N = 21 };
    for (enum os_sandbox_kind k = OS_SANDBOX_MEMORY; k <= OS_SANDBOX_DEVICE; k += OS_SANDBOX_DEVICE) {
        double t[N];
        struct err e = {0};
        for (int i = 0; i < N; i++) {
            struct os_child c;
            assert_true(os_child_start(&c, enters, &k, &e));
            assert_int_equal(os_child_get(&c, &t[i], sizeof t[i], 30), OS_EXITED);
            os_child_end(&c);
            for (int j = i; j > 0 && t[j] < t[j - 1]; j--) {
                double x = t[j];
                t[j] = t[j - 1], t[j - 1] = x;
            }
        }
        print_message("%s: %.3f ms, limits and sandbox of a child (median of %d; slowest %.3f)\n", k == OS_SANDBOX_MEMORY ? "memory" : "device",
                      t[N / 2] * 1e3, N, t[N - 1] * 1e3);
    }
}

/* Programs end with their owner. They are identified by an environment variable. */

static i64 n_marked(const char *mark)
{
    struct arena a = {0};
    struct str *names;
    i64 n, found = 0, pid;
    struct err e = {0};
    assert_true(os_list(&a, "/proc", &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        struct str env;
        if (!str_to_i64(names[i], &pid) || pid == getpid()) continue;
        if (!os_read(&a, str_fmt(&a, "/proc/%lld/environ", (long long)pid).p, 1 << 20, &env, NULL)) continue;
        found += env.n > 0 && memmem(env.p, (size_t)env.n, mark, strlen(mark)) != NULL;
    }
    arena_release(&a);
    return found;
}

static bool becomes(const char *mark, i64 least, i64 most)
{
    i64 n = -1;
    for (double end = os_now() + 20; os_now() < end; os_sleep(0.01)) {
        n = n_marked(mark);
        if (n >= least && n <= most) return true;
    }
    print_message("%lld processes\n", (long long)n);
    return false;
}

static void runs_a_script(void *user, int fd)
{
    const char *argv[] = {"env", user, "sh", "-c", "sleep 300 & sleep 300; sleep 300", NULL};
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 250});
    os_child_put(fd, &s, sizeof s);
    _exit(s.how == OS_STOPPED ? 7 : 8);
}

/* As a tuner that builds. */
static void be_killed(const char *mark)
{
    struct os_child c;
    struct err e = {0};
    char x;
    if (!os_child_start(&c, runs_a_script, (void *)(uintptr_t)mark, &e)) _exit(1);
    c.runs_programs = true;
    os_child_get(&c, &x, 1, 300);
    _exit(2);
}

static void programs_end_with_a_killed_tuner(void **state)
{
    char mark[64];
    for (int i = 0; i < 2; i++) {
        snprintf(mark, sizeof mark, "QUERN_TEST_CHILD=%d.%d", (int)getpid(), i);
        pid_t tuner = fork();
        if (tuner == 0) be_killed(mark);
        assert_true(becomes(mark, 3, 3)); /* the shell and two that it started */
        kill(tuner, SIGKILL);
        waitpid(tuner, NULL, 0);
        assert_true(becomes(mark, 0, 0));
    }
}

static void programs_end_with_an_abandoned_child(void **state)
{
    char mark[64];
    struct os_child c;
    struct err e = {0};
    snprintf(mark, sizeof mark, "QUERN_TEST_CHILD=%d.x", (int)getpid());
    assert_true(os_child_start(&c, runs_a_script, mark, &e));
    c.runs_programs = true;
    assert_true(becomes(mark, 3, 3));
    struct os_status s = os_child_end(&c);
    assert_int_equal(n_marked(mark), 0); /* when this returns */
    assert_true(s.how == OS_EXITED && s.code == 7); /* it had time for its own affairs */
}

static void waits_for_ever(void *user, int fd) { for (;;) os_sleep(10); }

static void a_stop_ends_waiting(void **state)
{
    struct os_child c;
    struct stop stop = {1};
    struct err e = {0};
    char x;
    assert_true(os_child_start(&c, waits_for_ever, NULL, &e));
    c.stop = &stop;
    assert_int_equal(os_child_get(&c, &x, 1, 0), OS_STOPPED);
    os_child_end(&c);
    e.stop = &stop;
    assert_false(mem_check(&e, "", S("")));
    assert_int_equal(e.code, ERR_STOPPED);
}

static void tells_limits(void *user, int fd)
{
    struct rlimit r[3];
    os_limit_child(*(bool *)user);
    getrlimit(RLIMIT_CORE, &r[0]), getrlimit(RLIMIT_AS, &r[1]), getrlimit(RLIMIT_CPU, &r[2]);
    os_child_put(fd, r, sizeof r);
}

static void candidates_have_limits(void **state)
{
    for (int has_driver = 0; has_driver < 2; has_driver++) {
        struct rlimit r[3];
        struct os_child c;
        struct err e = {0};
        bool x = has_driver;
        assert_true(os_child_start(&c, tells_limits, &x, &e));
        assert_int_equal(os_child_get(&c, r, sizeof r, 30), OS_EXITED);
        os_child_end(&c);
        assert_true(r[0].rlim_max == 0 && r[2].rlim_max != RLIM_INFINITY);
        assert_true(has_driver || r[1].rlim_max != RLIM_INFINITY); /* drivers map more than there is */
    }
}

static void programs_have_limits(void **state)
{
    struct buf out = {0};
    const char *argv[] = {"sh", "-c", "ulimit -c; ulimit -f; ulimit -v; ulimit -t; ulimit -Hc", NULL};
    struct os_status s = os_run(&(struct os_proc_opts){argv, 3, &out});
    assert_true(s.how == OS_EXITED && s.code == 0);
    char core[32], file[32], space[32], seconds[32], hard[32];
    assert_int_equal(sscanf(out.p, "%31s %31s %31s %31s %31s", core, file, space, seconds, hard), 5);
    assert_true(!strcmp(core, "0") && !strcmp(hard, "0"));
    assert_true(atoll(file) > 0 && atoll(space) > 0 && atoll(seconds) >= 3);
    buf_release(&out);
}

/* A process that may start few threads. Processes of root are not counted. */
static void be_limited(void)
{
    struct rlimit r = {4, 4};
    struct err e = {0};
    if (getuid() == 0 && (setgroups(0, NULL) != 0 || setgid(61234) != 0 || setuid(61234) != 0)) _exit(77);
    if (setrlimit(RLIMIT_NPROC, &r) != 0) _exit(77);
    struct dev *d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = 40}, &e);
    if (d) _exit(3);
    if (!strstr(e.msg, "cannot start 40 threads")) _exit(4);
    d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = 1}, &e);
    _exit(d ? 0 : 5);
}

static void too_many_threads_are_an_error(void **state)
{
    int st = 0;
    pid_t p = fork();
    if (p == 0) alarm(60), be_limited();
    waitpid(p, &st, 0);
    if (WIFEXITED(st) && WEXITSTATUS(st) == 77) skip_test("the number of processes cannot be limited");
    if (!WIFEXITED(st) || WEXITSTATUS(st)) fail_msg("status %#x", (unsigned)st);
}

static void say_room(const char *tmpdir, struct err *e)
{
    struct arena a = {0};
    struct str dir;
    setenv("TMPDIR", tmpdir, 1);
    bool made = os_temp_dir(&a, &dir, e), has_room = made && os_temp_has_room(e);
    if (made) os_remove_tree(str_z(&a, dir));
    if (has_room) err_set(e, ERR_FAILED, "there is room");
    arena_release(&a);
}

static void temporary_folders_are_named(void **state)
{
    const char *was = getenv("TMPDIR");
    struct err none = {0}, full = {0};
    struct stat st;
    char kept[4096] = {0};
    if (was) snprintf(kept, sizeof kept, "%s", was);
    say_room("/nonexistent/folder", &none);
    assert_non_null(strstr(none.msg, "'/nonexistent/folder' (TMPDIR)"));
    assert_int_equal(none.code, ERR_SYSTEM);
    if (stat("/sys/kernel", &st) == 0) { /* no files can be created there */
        say_room("/sys/kernel", &full);
        assert_non_null(strstr(full.msg, "'/sys/kernel' (TMPDIR)"));
    }
    if (was) setenv("TMPDIR", kept, 1);
    else unsetenv("TMPDIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_have_their_memory_only),
        cmocka_unit_test(drivers_do_not_touch_others),
        cmocka_unit_test(drivers_write_to_permitted_places),
        cmocka_unit_test(shared_memory_is_out_of_reach),
        cmocka_unit_test(the_cost_is_reported),
        cmocka_unit_test(programs_end_with_a_killed_tuner),
        cmocka_unit_test(programs_end_with_an_abandoned_child),
        cmocka_unit_test(a_stop_ends_waiting),
        cmocka_unit_test(candidates_have_limits),
        cmocka_unit_test(programs_have_limits),
        cmocka_unit_test(too_many_threads_are_an_error),
        cmocka_unit_test(temporary_folders_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
