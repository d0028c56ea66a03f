// SPDX-License-Identifier: Apache-2.0
//
// Child processes: runs a program, captures its output, and ends it with all its children when its time is up.
//
// The child leads a process group of its own, so that one kill reaches a compiler's helpers too, and has limits (os_limit.c).
//
// A killed tuner must leave nothing behind that disturbs the next measurement. The system can end a process with its parent
// (PR_SET_PDEATHSIG), but not the compiler proper, which is a grandchild. Programs with helpers are therefore run by an
// os_child, which outlives its own parent for as long as it takes to end them: while a program runs it is not killed with
// its parent but watches it, by a pidfd, and the socket between them, which the parent shuts down to abandon the child.
//
// vfork, because a tuner has gigabytes mapped and copying page tables would cost more than the
// child: until exec the child shares our memory and may only make system calls. The parent never
// blocks on one of the two things it waits for (output, exit): poll watches both.
#define _GNU_SOURCE
#include "core/os_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MAX = 64 << 20, POLL_MS = 20 };
static const double gone_seconds = 1; /* for killed processes to be gone, which takes less than a millisecond */

struct start {
    const char *const *argv;
    pid_t parent;
    int out;            /* becomes standard output and standard error, -1: discard them */
    sigset_t mask;      /* signals that were blocked before */
    struct limits limits;
    volatile int error; /* why it could not be started, set by the child */
};

/* Runs in the child, in the parent's memory. */
static void child_exec(struct start *s)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->parent) _exit(127); /* killed before the request took effect */
    for (int i = 1; i < NSIG; i++) sigaction(i, &dfl, NULL);
    int null = open("/dev/null", O_RDWR);
    bool ok = null >= 0 && dup2(null, 0) >= 0 && dup2(s->out >= 0 ? s->out : null, 1) >= 0 &&
              dup2(1, 2) >= 0;
    close_range(3, ~0u, 0); /* also files that the owner forgot to mark */
    limits_take(&s->limits);
    sigprocmask(SIG_SETMASK, &s->mask, NULL);
    if (ok) execvp(s->argv[0], (char *const *)(uintptr_t)s->argv);
    s->error = errno;
    _exit(127);
}

/* No handler may run in the child while it shares our memory: signals are blocked meanwhile. */
static pid_t child_start(struct start *s)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &s->mask);
    pid_t pid = vfork();
    if (pid == 0) child_exec(s);
    if (pid < 0) s->error = errno;
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
    if (pid > 0 && s->error) {
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    return pid;
}

struct child {
    pid_t pid;
    int out;   /* read end of its output, -1: none or at its end */
    int pidfd; /* readable when it has ended, -1: not supported */
    struct buf *text;
    struct owner owner; /* of this process */
    bool ended;      /* but not reaped: its number, and its group's, is still its own */
    bool is_given_up; /* the parent of this process is gone, or abandons the result */
};

/* Reads the available output, at least a full pipe, but returns to check the clock. */
static void child_read(struct child *c)
{
    char piece[16384];
    for (int i = 0; i < 8; i++) {
        ssize_t n = read(c->out, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) {
            close(c->out);
            c->out = -1;
            return;
        }
        buf_put(c->text, piece, i64_min(n, i64_max(0, OUTPUT_MAX - c->text->n)));
    }
}

static void child_step(struct child *c, int ms)
{
    const struct owner *w = &c->owner;
    struct pollfd fds[4] = {{.fd = c->out, .events = POLLIN},
                            {.fd = c->pidfd, .events = POLLIN},
                            {.fd = w->fd, .events = POLLRDHUP},
                            {.fd = w->pidfd, .events = POLLIN}};
    bool may_sleep = c->pidfd >= 0 && (w->fd < 0 || w->pidfd >= 0);
    if (!may_sleep && (ms < 0 || ms > POLL_MS)) ms = POLL_MS;
    poll(fds, 4, ms);
    if (fds[0].revents) child_read(c);
    c->is_given_up = w->fd >= 0 && (fds[2].revents || fds[3].revents || owner_is_gone(w));
    siginfo_t info = {0};
    int rc = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    c->ended = rc == 0 ? info.si_pid == c->pid : errno != EINTR;
}

/* True: it ended by itself before the time. */
static bool child_wait(struct child *c, double timeout)
{
    double end = os_now() + timeout;
    while (!c->ended && !c->is_given_up) {
        double left = end - os_now();
        if (timeout > 0 && left <= 0) return false;
        child_step(c, timeout > 0 ? (int)(left < 1e6 ? left * 1e3 + 1 : 1e9) : -1);
    }
    return true;
}

/* Ends the process group, including processes that an ended child left running. Killed processes
   may take time to disappear on busy processors, and only the child itself can be waited for; nor
   do all systems' init processes reap orphans, so there is a limit. */
static pid_t end_group(pid_t group, int *wstatus)
{
    pid_t got;
    kill(-group, SIGKILL);
    do got = waitpid(group, wstatus, 0);
    while (got < 0 && errno == EINTR);
    for (double end = os_now() + gone_seconds; kill(-group, 0) == 0 && os_now() < end;) os_sleep(1e-3);
    return got;
}

static struct os_status child_finish(struct child *c, double timeout)
{
    bool in_time = child_wait(c, timeout);
    int wstatus = 0;
    pid_t got = end_group(c->pid, &wstatus);
    if (c->out >= 0) child_read(c);
    if (c->is_given_up) return (struct os_status){OS_STOPPED, SIGKILL};
    if (!in_time) return (struct os_status){OS_TIMEOUT, SIGKILL};
    if (got < 0) return (struct os_status){OS_NOT_STARTED, errno}; /* our owner ignores SIGCHLD */
    if (WIFSIGNALED(wstatus)) return (struct os_status){OS_SIGNALLED, WTERMSIG(wstatus)};
    return (struct os_status){OS_EXITED, WEXITSTATUS(wstatus)};
}

static struct os_status run(const struct os_proc_opts *o, struct owner owner)
{
    int fd[2] = {-1, -1};
    if (o->out && pipe2(fd, O_CLOEXEC) != 0) return (struct os_status){OS_NOT_STARTED, errno};
    struct child c = {.out = fd[0], .pidfd = -1, .text = o->out, .owner = owner};
    if (c.out >= 0) fcntl(c.out, F_SETFL, O_NONBLOCK);
    struct start start = {.argv = o->argv, .parent = getpid(), .out = fd[1]};
    limits_of_program(&start.limits, o->timeout);
    c.pid = child_start(&start);
    if (fd[1] >= 0) close(fd[1]);
    struct os_status st = {OS_NOT_STARTED, start.error};
    if (c.pid > 0) {
        c.pidfd = pidfd_open(c.pid, 0);
        st = child_finish(&c, o->timeout);
    }
    if (c.pidfd >= 0) close(c.pidfd);
    if (c.out >= 0) close(c.out);
    return st;
}

struct os_status os_run(const struct os_proc_opts *o)
{
    struct owner owner = owner_of_this();
    if (owner.fd < 0) return run(o, owner);
    prctl(PR_SET_PDEATHSIG, 0);
    struct os_status st = {OS_STOPPED, 0};
    if (!owner_is_gone(&owner)) st = run(o, owner);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (owner.pidfd >= 0) close(owner.pidfd);
    return st;
}

bool os_in_path(struct arena *a, const char *program)
{
    struct str dir, rest = str_of(os_env("PATH"));
    while (rest.n) {
        str_cut(rest, ':', &dir, &rest);
        if (dir.n && os_exists(str_fmt(a, "%.*s/%s", STR_ARG(dir), program).p)) return true;
    }
    return false;
}
