// SPDX-License-Identifier: Apache-2.0
//
// Work in a child process: work that may crash, hang or be wrong runs in a fork of this process, shares all
// its data and communicates through a socket. The child leads a process group of its own, so that ending it
// ends its children; programs that it runs have groups of their own, which it ends itself (os_run.c).
#define _GNU_SOURCE
#include "core/os_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_MS = 100 /* latency for a stop that is not a signal of this thread */ };
static const double end_seconds = 2; /* time for a child to end its programs, which takes milliseconds */

/* Of this process, once it is a child; another one has its own. */
static int owner_fd = -1, owner_pid;

struct owner owner_of_this(void)
{
    return (struct owner){owner_fd, owner_pid, owner_fd >= 0 ? pidfd_open(owner_pid, 0) : -1};
}

bool owner_is_gone(const struct owner *w)
{
    struct pollfd f = {.fd = w->fd, .events = POLLRDHUP};
    return w->fd >= 0 && (getppid() != w->pid || (poll(&f, 1, 0) > 0 && f.revents));
}

static void child_main(os_child_fn *fn, void *user, int fd, int parent)
{
    owner_fd = fd, owner_pid = parent;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends with the parent when it is killed */
    if (getppid() != parent) _exit(1);
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL); /* a crash ends this process, whatever handlers our owner has */
    signal(SIGPIPE, SIG_IGN);
    fn(user, fd);
    _exit(0);
}

bool os_child_start(struct os_child *c, os_child_fn *fn, void *user, struct err *e)
{
    int p[2], parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) != 0)
        return err_set(e, ERR_SYSTEM, "cannot create a socket: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) {
        close(p[0]), close(p[1]);
        return err_set(e, ERR_SYSTEM, "cannot start a process: %s", strerror(errno));
    }
    if (pid == 0) {
        close(p[0]);
        child_main(fn, user, p[1], parent);
    }
    close(p[1]);
    *c = (struct os_child){.pid = pid, .fd = p[0]};
    return true;
}

bool os_child_put(int fd, const void *p, i64 n)
{
    for (const char *at = p; n > 0;) {
        ssize_t k = write(fd, at, (size_t)n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k, n -= k;
    }
    return true;
}

bool os_child_take(int fd, void *p, i64 n)
{
    for (char *at = p; n > 0;) {
        ssize_t k = read(fd, at, (size_t)n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k, n -= k;
    }
    return true;
}

bool os_child_send(const struct os_child *c, const void *p, i64 n)
{
    for (const char *at = p; n > 0;) {
        ssize_t k = send(c->fd, at, (size_t)n, MSG_NOSIGNAL); /* a child that is gone is no reason to die */
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k, n -= k;
    }
    return true;
}

static enum os_exit wait_readable(const struct os_child *c, double seconds)
{
    struct pollfd f = {.fd = c->fd, .events = POLLIN};
    double end = os_now() + seconds;
    for (;;) {
        double left = end - os_now();
        if (stop_is_set(c->stop)) return OS_STOPPED;
        if (seconds > 0 && left <= 0) return OS_TIMEOUT;
        int ms = seconds <= 0 ? -1 : (int)(left < 1e6 ? left * 1000 : 1e9) + 1;
        if (c->stop && (ms < 0 || ms > STOP_MS)) ms = STOP_MS;
        int k = poll(&f, 1, ms);
        if (k > 0) return OS_EXITED;
        if (k < 0 && errno != EINTR) return OS_SIGNALLED;
    }
}

enum os_exit os_child_get(const struct os_child *c, void *p, i64 n, double seconds)
{
    double end = os_now() + seconds;
    for (char *at = p; n > 0;) {
        double left = seconds > 0 ? end - os_now() : 0;
        if (seconds > 0 && left <= 0) return OS_TIMEOUT;
        enum os_exit w = wait_readable(c, left);
        if (w != OS_EXITED) return w;
        ssize_t k = read(c->fd, at, (size_t)n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return OS_SIGNALLED;
        at += k, n -= k;
    }
    return OS_EXITED;
}

/* Has it ended by itself? A moment is enough for one that closed its end; one that runs programs ends them first. */
static pid_t leave(const struct os_child *c, int *st)
{
    pid_t done = waitpid(c->pid, st, WNOHANG);
    double end = os_now() + (c->runs_programs ? end_seconds : 20e-3), left;
    int pidfd = done == 0 ? pidfd_open(c->pid, 0) : -1;
    while (done == 0 && (left = end - os_now()) > 0) {
        struct pollfd f = {.fd = c->fd, .events = POLLIN}, ended = {.fd = pidfd, .events = POLLIN};
        if (!c->runs_programs && poll(&f, 1, 0) == 0) break; /* still working: not leaving */
        poll(&ended, 1, pidfd >= 0 ? (int)(left * 1e3) + 1 : 1);
        done = waitpid(c->pid, st, WNOHANG);
    }
    if (pidfd >= 0) close(pidfd);
    return done;
}

/* The child closed its end or is being abandoned: it gets a moment to exit by itself, then the whole group
   is killed. The socket is shut down, not only closed: children started later have copies of this end. */
struct os_status os_child_end(struct os_child *c)
{
    int st = 0;
    if (c->runs_programs) shutdown(c->fd, SHUT_RDWR);
    pid_t done = leave(c, &st);
    bool killed = done == 0;
    kill(-c->pid, SIGKILL);
    if (killed) kill(c->pid, SIGKILL);
    while (done <= 0 && (done = waitpid(c->pid, &st, 0)) < 0 && errno == EINTR) {}
    close(c->fd);
    struct os_status s = {killed ? OS_TIMEOUT : OS_EXITED, 0};
    if (!killed && WIFSIGNALED(st)) s = (struct os_status){OS_SIGNALLED, WTERMSIG(st)};
    else if (!killed && WIFEXITED(st)) s.code = WEXITSTATUS(st);
    *c = (struct os_child){0};
    return s;
}

void *os_share(i64 n)
{
    void *p = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void os_unshare(void *p, i64 n)
{
    if (p) munmap(p, (size_t)n);
}
