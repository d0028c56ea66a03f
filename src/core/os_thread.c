// SPDX-License-Identifier: Apache-2.0
//
// A background thread: signals go to the threads of the owner, never
// to this one. And primitives for threads that wait for each other.
#define _GNU_SOURCE
#include "core/core.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct os_thread {
    pthread_t id;
    os_thread_fn *fn;
    void *user;
};

static void *thread_main(void *user)
{
    struct os_thread *t = user;
    t->fn(t->user);
    return NULL;
}

#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif
#ifdef HAS_TSAN
void __tsan_acquire(void *p);
void __tsan_release(void *p);
void os_order_before(void *p) { __tsan_release(p); }
void os_order_after(void *p) { __tsan_acquire(p); }
#else
void os_order_before(void *p) { (void)p; }
void os_order_after(void *p) { (void)p; }
#endif

static void wait_for_word(void *user)
{
    u32 *go_on = user;
    while (!__atomic_load_n(go_on, __ATOMIC_SEQ_CST)) os_wait_while(go_on, 0, 1);
}

struct os_thread *os_thread_start(os_thread_fn *fn, void *user)
{
    sigset_t all, was;
    struct os_thread *t = mem_alloc(sizeof *t);
    *t = (struct os_thread){.fn = fn, .user = user};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    bool ok = pthread_create(&t->id, NULL, thread_main, t) == 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (ok) return t;
    mem_free(t);
    return NULL;
}

/* All are alive at once: each waits until the last has been tried. */
bool os_threads_can_start(u32 n)
{
    u32 go_on = 0, started = 0;
    struct os_thread **t = mem_alloc((i64)sizeof *t * (n + 1));
    while (started < n && (t[started] = os_thread_start(wait_for_word, &go_on))) started++;
    __atomic_store_n(&go_on, 1, __ATOMIC_SEQ_CST);
    os_wake_all(&go_on);
    for (u32 i = 0; i < started; i++) os_thread_join(t[i]);
    mem_free(t);
    return started == n;
}

void os_thread_join(struct os_thread *t)
{
    if (!t) return;
    pthread_join(t->id, NULL);
    mem_free(t);
}

void os_wait_while(u32 *p, u32 value, double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, p, FUTEX_WAIT_PRIVATE, value, &t, NULL, 0);
}

void os_wake_all(u32 *p) { syscall(SYS_futex, p, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0); }

struct os_monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct os_monitor *os_monitor_new(void)
{
    struct os_monitor *m = mem_alloc(sizeof *m);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return m;
}

void os_monitor_free(struct os_monitor *m)
{
    if (!m) return;
    pthread_cond_destroy(&m->changed);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

void os_monitor_enter(struct os_monitor *m) { pthread_mutex_lock(&m->lock); }
void os_monitor_leave(struct os_monitor *m) { pthread_mutex_unlock(&m->lock); }
void os_monitor_wake(struct os_monitor *m) { pthread_cond_broadcast(&m->changed); }

void os_monitor_wait(struct os_monitor *m, double seconds)
{
    struct timespec t;
    if (seconds < 0 || seconds > 1e9) {
        pthread_cond_wait(&m->changed, &m->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &t);
    i64 ns = t.tv_nsec + (i64)((seconds - (double)(i64)seconds) * 1e9);
    t.tv_sec += (time_t)seconds + (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&m->changed, &m->lock, &t);
}
