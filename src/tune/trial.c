// SPDX-License-Identifier: Apache-2.0
//
// Candidates run in a child process, one after another until one fails, because starting a child,
// opening a device and copying a task's inputs take longer than most kernels. The child opens the
// device and the reference candidate once. It loads each binary, verifies it on each check (outputs
// poisoned, guard bands around every buffer, inputs compared afterwards), times it beside the
// reference, alternating single samples, and reports every step. The parent selects the next
// candidate, decides whether to take another sample, and enforces time limits: a child that crashes
// or hangs yields a status, and a new child is started. If kernels share the child's memory, the
// predecessors of a failed one may be to blame: it is repeated in a child of its own, whose verdict
// counts.
//
// Candidates are not trusted. A child for the CPU loads all code first (kernels are stateless
// between calls, so one copy serves all checks), then gives up everything but its memory. A child
// with a vendor's driver gives up what it can before loading the driver (os_sandbox.c). Every child
// has resource limits.
#include "tune/instance.h"

#include <math.h>
#include <string.h>

enum { MAX_REPEAT = 10000 };
static const double min_sample_seconds =
    200e-6; /* shorter runs are repeated, so that the timer's noise stays below a percent */
static const double start_seconds = 30; /* allowance for opening the device and moving data */
static const double slow_rate = 20e6;   /* bytes per second, for larger data */
/* a longer run is unaffected by being the first, or by following another kernel */
static const double long_seconds = 20e-3;
static const double wake_seconds = 0.03; /* of work before a device is timed for the first time */
static const i64 max_evict = 256 << 20;
/* maximum; polling interval; idle share of the time */
static const double settle_seconds = 0.2, settle_step = 10e-3, settled = 0.05;

/* Messages of the child. ALLOW: the next message follows within that many seconds, otherwise the
   child hangs. Runs of the candidate get its time limit; opening the device and moving data get
   much more. */
enum message_kind { MSG_READY /* the first one: all code is loaded */, MSG_ALLOW, MSG_SAMPLE, MSG_FOUND, MSG_END };

struct message {
    u8 kind, status;
    u32 check; /* FOUND: by this check's comparator */
    i64 n_text;
    double seconds;
    struct sample sample;
};

/* Messages of the parent: the next subject, and after each sample whether to continue. */
enum { STOP, GO_ON };

struct child {
    const struct trial_session *t;
    const struct trial_opts *o;
    const struct subject *s; /* the current subject */
    int fd;
    struct on on;
    struct instance base;    /* the reference candidate; kernel NULL: not open yet */
    i64 base_repeat;         /* its runs per sample; 0: unknown */
    void *scratch; i64 n_scratch; /* data read from the device */
};

static double data_seconds(const struct trial_session *t)
{
    double bytes = t->timing ? task_bytes(t->timing->task, t->timing->var) : 0;
    for (u32 i = 0; i < t->n_checks; i++) bytes = fmax(bytes, task_bytes(t->checks[i]->task, t->checks[i]->var));
    return start_seconds + bytes / slow_rate;
}

static void send_end(struct child *c, enum trial_status st, struct str reason)
{
    struct message m = {.kind = MSG_END, .status = (u8)st, .n_text = reason.n};
    os_child_put(c->fd, &m, sizeof m);
    os_child_put(c->fd, reason.p, reason.n);
}

static void send_found(const struct child *c, u32 check)
{
    const struct comparator *j = c->t->checks[check]->comparator;
    struct message m = {.kind = MSG_FOUND, .check = check, .n_text = j ? j->n_found : 0};
    if (!j) return;
    os_child_put(c->fd, &m, sizeof m);
    os_child_put(c->fd, j->found, j->n_found);
}

static void send_allow(const struct child *c, double seconds)
{
    struct message m = {.kind = MSG_ALLOW, .seconds = seconds};
    os_child_put(c->fd, &m, sizeof m);
}

/* Time limit of n runs. Foreign drivers may finish compiling a kernel at its first run. */
static double time_for(const struct child *c, const struct instance *x, u32 n)
{
    bool builds = c->on.driver->is_foreign && !x->has_run;
    return n * c->o->timeout + (builds ? start_seconds : 0);
}

/* Works until an idle device has raised its clock frequency. */
static bool wake(struct child *c, struct instance *x, struct err *e)
{
    double end = os_now() + wake_seconds;
    bool ok = true;
    while (c->on.driver->is_foreign && ok && os_now() < end) {
        send_allow(c, time_for(c, x, 1));
        ok = c->on.driver->launch(c->on.dev, &x->launch, e) && c->on.driver->fence(c->on.dev, e);
        x->has_run = ok;
    }
    send_allow(c, data_seconds(c->t)); /* the candidate is loaded next */
    return ok;
}

static bool run_once(struct child *c, struct instance *x, struct err *e)
{
    send_allow(c, time_for(c, x, 1));
    bool ok = c->on.driver->launch(c->on.dev, &x->launch, e) && c->on.driver->fence(c->on.dev, e);
    send_allow(c, data_seconds(c->t));
    x->has_run = true;
    return ok;
}

/* Verification. */

/* Whether a kernel that writes a part of a value left the other parts unchanged. */
static bool others_intact(const struct check *k, u32 out, const void *got, struct buf *why)
{
    struct place p;
    if (!place_of(&p, &k->task->g, k->task->g.output.v[out], k->var)) unreachable();
    i64 at = place_touched(&p, k->want[out], got, POISON_BYTE);
    if (at >= 0) buf_printf(why, "output %u: wrote element %lld, of another part", out, (long long)at);
    return at < 0;
}

/* Buffer i after the run; NULL: it cannot be read. */
static const void *read_buffer(struct child *c, const struct instance *x, u32 i, struct err *e)
{
    if (c->n_scratch <= x->size[i]) {
        mem_free(c->scratch);
        c->n_scratch = x->size[i] + 1;
        c->scratch = mem_aligned(c->n_scratch);
        if (!c->scratch) err_set(e, ERR_SYSTEM, "not enough memory for a kernel's output: %lld bytes", (long long)c->n_scratch);
        if (!c->scratch) return c->n_scratch = 0, NULL;
    }
    return c->on.driver->download(c->on.dev, x->mem[i], c->scratch, x->size[i], e) ? c->scratch : NULL;
}

static enum trial_status check_out(const struct check *k, value_id v, const void *got, struct buf *why)
{
    u32 out = 0;
    while (k->task->g.output.v[out] != v) out++;
    if (!(k->comparator ? k->comparator->compare : check_output)(k, out, got, why)) return TRIAL_WRONG;
    return others_intact(k, out, got, why) ? TRIAL_OK : TRIAL_BOUNDS;
}

static enum trial_status check_buffer(struct child *c, const struct instance *x, u32 i, struct buf *why)
{
    const struct kernel_arg *a = &x->s->kernel.arg[i];
    struct err e = {0};
    const void *got = read_buffer(c, x, i, &e);
    if (!got) {
        buf_z(why, e.msg);
        return TRIAL_LAUNCH;
    }
    if (a->is_out) return check_out(x->k, a->v, got, why);
    if (memcmp(got, x->content[i], (size_t)x->size[i]) == 0) return TRIAL_OK;
    buf_printf(why, "wrote to its input, buffer %u", i);
    return TRIAL_BOUNDS;
}

static enum trial_status check_guards(struct child *c, const struct instance *x, struct buf *why)
{
    const struct kernel *kn = &x->s->kernel;
    struct err e = {0};
    for (u32 i = 0; i < kn->n_arg + kn->n_temp; i++)
        if (!instance_guards_intact(x, &c->on, i, &e)) {
            buf_z(why, e.msg);
            return TRIAL_BOUNDS;
        }
    return TRIAL_OK;
}

static enum trial_status check_buffers(struct child *c, const struct instance *x, struct buf *why)
{
    const struct kernel *kn = &x->s->kernel;
    enum trial_status st = check_guards(c, x, why);
    for (u32 i = 0; i < kn->n_arg && st == TRIAL_OK; i++) st = check_buffer(c, x, i, why);
    return st;
}

/* Hash of the outputs' bytes. */
static bool hash_outputs(struct child *c, const struct instance *x, struct hash *h, struct err *e)
{
    *h = (struct hash){0};
    for (u32 i = 0; i < x->s->kernel.n_arg; i++) {
        if (!x->s->kernel.arg[i].is_out) continue;
        const void *got = read_buffer(c, x, i, e);
        if (!got) return false;
        const struct hash chain[] = {*h, hash_bytes(got, x->size[i])};
        *h = hash_bytes(chain, sizeof chain);
    }
    return true;
}

/* Repeats the run in the same memory: the result must be the same bytes. */
static enum trial_status run_again(struct child *c, struct instance *x, struct buf *why)
{
    struct hash first, second;
    struct err e = {0};
    bool ok = hash_outputs(c, x, &first, &e) && run_once(c, x, &e) && hash_outputs(c, x, &second, &e);
    if (ok && memcmp(&first, &second, sizeof first) == 0) return check_guards(c, x, why);
    buf_z(why, ok ? "a second run on the same inputs left other bytes" : e.msg);
    return ok ? TRIAL_WRONG : TRIAL_LAUNCH;
}

/* Opens the reference candidate, which stays open for all candidates timed beside it. */
static bool open_base(struct child *c, struct err *e)
{
    if (!c->o->base || !c->t->timing || c->base.kernel) return true;
    return instance_open(&c->base, &c->on, c->o->base, c->t->timing, NULL, e) && instance_vary(&c->base, &c->on, e) &&
           wake(c, &c->base, e);
}

static bool open_for(struct child *c, const struct check *k, struct instance *x, struct err *e)
{
    if (k->in_place && x->kernel) return instance_feed(x, &c->on, k, e);
    instance_close(x, &c->on);
    return instance_open(x, &c->on, c->s, k, &c->base, e);
}

/* Leaves x open. */
static enum trial_status verify(struct child *c, u32 check, struct instance *x, struct buf *why)
{
    const struct check *k = c->t->checks[check];
    struct err e = {0};
    enum trial_status st = TRIAL_LAUNCH;
    if (open_base(c, &e) && open_for(c, k, x, &e) && run_once(c, x, &e)) st = check_buffers(c, x, why), send_found(c, check);
    else buf_z(why, e.msg);
    if (st == TRIAL_OK && k->twice) st = run_again(c, x, why);
    if (st != TRIAL_OK) {
        struct arena a = {0};
        struct str sizes = sizes_text(&a, k->task->g.sym, k->var, k->task);
        if (sizes.n) buf_printf(why, " (%.*s)", STR_ARG(sizes));
        arena_release(&a);
    }
    return st;
}

/* Timing. */

/* If a single thread of this process does all the work, its CPU time counts, which excludes other
   load. */
static double clock_now(const struct child *c)
{
    bool alone = !c->on.driver->is_foreign && c->o->dev.n_threads == 1;
    return alone ? os_thread_seconds() : os_now();
}

static double time_runs(struct child *c, struct instance *x, i64 repeat, struct err *e)
{
    double start = clock_now(c);
    for (i64 i = 0; i < repeat; i++) {
        x->launch.buf = x->variant[x->turn++ % x->n_variants];
        if (!c->on.driver->launch(c->on.dev, &x->launch, e)) return -1;
    }
    if (!c->on.driver->fence(c->on.dev, e)) return -1;
    return dev_elapsed(c->on.dev, clock_now(c) - start) / (double)repeat;
}

/* Number of runs per sample, and the time of a warm one. 0: failed. */
static i64 repeats(struct child *c, struct instance *x, double *t, struct err *e)
{
    send_allow(c, time_for(c, x, 2));
    *t = x->has_run ? 0 : time_runs(c, x, 1, e); /* first touch of memory */
    if (*t >= 0) *t = time_runs(c, x, 1, e);
    if (*t < 0) return 0;
    return *t >= min_sample_seconds
               ? 1
               : i64_min(MAX_REPEAT, (i64)(min_sample_seconds / (*t + 1e-8)) + 1);
}

/* false: the parent needs no more samples, or is gone */
static bool send_sample(struct child *c, const struct message *m)
{
    u8 answer = STOP;
    return os_child_put(c->fd, m, sizeof *m) && os_child_take(c->fd, &answer, 1) && answer == GO_ON;
}

/* One run with flushed caches: twice the size of the last level is overwritten. Private caches of
   other threads keep their contents, which the candidate's threads may hit. */
static bool time_cold(struct child *c, struct instance *x, struct err *e)
{
    struct caps caps;
    struct dev_mem m;
    c->on.driver->caps(c->on.dev, &caps);
    i64 size = i64_min(2 * i64_max(caps.l3_bytes, caps.l2_bytes), max_evict);
    if (size <= 0) return true;
    send_allow(c, data_seconds(c->t));
    if (!c->on.driver->alloc(c->on.dev, size, &m, e)) return false;
    bool ok = mem_poison(&c->on, m, size, e) && c->on.driver->fence(c->on.dev, e);
    send_allow(c, c->o->timeout);
    struct message s = {.kind = MSG_SAMPLE, .sample = {.is_cold = true}};
    if (ok) s.sample.seconds = time_runs(c, x, 1, e);
    c->on.driver->release(c->on.dev, &m);
    if (!ok || s.sample.seconds < 0) return false;
    send_sample(c, &s); /* the answer concerns warm samples */
    send_allow(c, c->o->timeout);
    return time_runs(c, x, 1, e) >= 0; /* warms the caches again */
}

static bool is_library(const struct subject *s) { return s->gemm || s->conv; }

/* A CPU library has threads of its own; its idle threads and ours spin for a while. */
static bool has_other_threads(const struct child *c, const struct instance *x)
{
    const struct subject *b = c->o->base;
    return b && !c->on.driver->is_foreign && c->o->dev.n_threads != 1 && is_library(x->s) != is_library(b);
}

/* Waits until the other side's threads sleep, so that the processors are free. */
static void settle(void)
{
    for (double end = os_now() + settle_seconds; os_now() < end;) {
        double busy = os_process_seconds(), from = os_now();
        os_sleep(settle_step);
        if (os_process_seconds() - busy < settled * (os_now() - from)) break;
    }
}

/* Wakes its own threads by an uncounted run. */
static bool take_turn(struct child *c, struct instance *x, double run_seconds, struct err *e)
{
    settle();
    return run_seconds >= long_seconds || time_runs(c, x, 1, e) >= 0;
}

static bool time_base(struct child *c, struct message *m, struct err *e)
{
    bool first = c->base_repeat == 0;
    if (!c->o->base) return true;
    if (first) c->base_repeat = repeats(c, &c->base, &m->sample.base, e);
    if (c->base_repeat == 0) return false;
    if (!first || c->base_repeat > 1) m->sample.base = time_runs(c, &c->base, c->base_repeat, e);
    return m->sample.base >= 0;
}

/* One run with warm constants may show that the candidate cannot win, before copies of constants
   are made. */
static bool is_lost(const struct child *c, const struct message *m)
{
    return c->o->lost > 0 && c->o->base && m->sample.seconds >= min_sample_seconds && m->sample.seconds > c->o->lost * m->sample.base;
}

/* If one run is long enough for a sample, the run that showed it is the first one. */
static bool take_samples(struct child *c, struct instance *x, struct err *e)
{
    struct message m = {.kind = MSG_SAMPLE};
    bool turns = has_other_threads(c, x);
    if (turns) settle();
    i64 repeat = repeats(c, x, &m.sample.seconds, e);
    if (turns) settle();
    if (repeat == 0 || !time_base(c, &m, e)) return false;
    if (is_lost(c, &m) && !send_sample(c, &m)) return true;
    if ((!c->o->same_constants && !instance_vary(x, &c->on, e)) || (c->o->cold && !time_cold(c, x, e))) return false;
    bool is_first = repeat == 1 && x->n_variants == 1 && !c->o->cold && !turns && !is_lost(c, &m) && m.sample.seconds >= long_seconds;
    for (u32 i = 0; i < c->o->max_samples; i++) {
        send_allow(c, 2 * (c->o->timeout + settle_seconds));
        if (turns && !take_turn(c, &c->base, m.sample.base, e)) return false;
        if ((i > 0 || !is_first) && !time_base(c, &m, e)) return false;
        if (turns && !take_turn(c, x, m.sample.seconds, e)) return false;
        if (i > 0 || !is_first) m.sample.seconds = time_runs(c, x, repeat, e);
        if (m.sample.seconds < 0) return false;
        if (!send_sample(c, &m)) break;
    }
    return true;
}

static enum trial_status time_all(struct child *c, struct instance *x, struct buf *why)
{
    struct err e = {0};
    bool ok = open_base(c, &e) && (x->kernel || instance_open(x, &c->on, c->s, c->t->timing, &c->base, &e)) && take_samples(c, x, &e);
    if (!ok) buf_z(why, e.msg);
    return ok ? TRIAL_OK : TRIAL_LAUNCH;
}

/* An instance verified on the check used for timing is kept. */
static void measure(struct child *c)
{
    const struct trial_session *t = c->t;
    struct instance x = {0};
    struct buf why = {0};
    enum trial_status st = TRIAL_OK;
    for (u32 i = 0; i < t->n_checks && st == TRIAL_OK; i++) st = verify(c, i, &x, &why);
    if (x.k != t->timing) instance_close(&x, &c->on);
    if (st == TRIAL_OK && t->timing) st = time_all(c, &x, &why);
    instance_close(&x, &c->on);
    send_end(c, st, buf_view(&why));
    buf_release(&why);
}

/* System libraries may do anything: a child that uses one cannot be confined by a filter. */
static bool may_be_confined(const struct child *c)
{
    bool has_library = c->o->base && is_library(c->o->base);
    for (u32 i = c->t->first; i < c->t->end; i++) has_library |= is_library(&c->t->subject[i]);
    return !c->on.driver->is_foreign && !has_library;
}

static void load_one(struct child *c, const struct subject *s)
{
    struct loaded *l = &c->on.loaded[c->on.n_loaded++];
    *l = (struct loaded){.s = s};
    if (s->code.n) l->kernel = instance_load(&c->on, s, &l->e);
    else err_set(&l->e, ERR_FAILED, "no code to run");
}

/* Enters the sandbox. Whoever runs the session reports whether the system supports it. */
static void confine(struct child *c)
{
    struct caps caps;
    bool may = c->on.dev && may_be_confined(c);
    if (may) c->on.driver->caps(c->on.dev, &caps); /* available from now on */
    if (may) {
        const struct trial_session *t = c->t;
        c->on.loaded = mem_alloc((i64)sizeof *c->on.loaded * (t->end - t->first + 1));
        if (c->o->base) load_one(c, c->o->base);
        for (u32 i = t->first; i < t->end; i++) load_one(c, &t->subject[i]);
    }
    if (may) os_sandbox_enter(c->on.driver->shares ? OS_SANDBOX_SHARED : OS_SANDBOX_MEMORY, c->fd);
}

static void child_main(void *user, int fd)
{
    struct child c = {.t = user, .o = ((struct trial_session *)user)->o, .fd = fd};
    struct message ready = {.kind = MSG_READY};
    c.on.driver = c.o->driver;
    struct err e = {0};
    u32 k;
    os_limit_child(c.on.driver->is_foreign);
    if (c.on.driver->is_foreign) os_sandbox_enter(OS_SANDBOX_DEVICE, fd);
    c.on.dev = c.o->driver->open(&c.o->dev, &e);
    confine(&c);
    os_child_put(fd, &ready, sizeof ready);
    while (os_child_take(fd, &k, sizeof k)) {
        c.s = &c.t->subject[k];
        if (c.on.dev) measure(&c);
        else send_end(&c, TRIAL_LAUNCH, str_of(e.msg));
    }
}

/* The parent's side. */

static void end(struct trial_session *t)
{
    os_child_end(&t->child);
    t->is_running = false;
}

static enum trial_status how_ended(struct trial_session *t, enum os_exit how, struct buf *reason)
{
    struct os_status s = os_child_end(&t->child);
    t->is_running = false;
    if (how == OS_STOPPED) return TRIAL_NEW;
    if (how == OS_TIMEOUT) {
        buf_z(reason, "did not end in time");
        return TRIAL_TIMEOUT;
    }
    if (s.how == OS_SIGNALLED)
        buf_printf(reason, "ended by signal %d (%s)", s.code, strsignal(s.code));
    else buf_printf(reason, "ended without a result, exit code %d", s.code);
    return TRIAL_CRASH;
}

static enum trial_status take_end(struct trial_session *t, const struct message *m,
                                  struct buf *reason)
{
    char text[2048];
    enum os_exit how = OS_EXITED;
    for (i64 left = m->n_text; left > 0 && how == OS_EXITED;) {
        i64 n = i64_min(left, (i64)sizeof text);
        how = os_child_get(&t->child, text, n, start_seconds);
        if (how == OS_EXITED) buf_put(reason, text, n);
        left -= n;
    }
    if (how != OS_EXITED) return how_ended(t, how, reason);
    if (m->status != TRIAL_OK) end(t);
    return (enum trial_status)m->status;
}

/* The next message within the child's allowance. TRIAL_OK: received. TRIAL_NEW: the deadline passed
   first. */
static enum trial_status next_message(struct trial_session *t, struct message *m, double limit,
                                      struct buf *reason)
{
    double deadline = t->o->deadline;
    double left = deadline > 0 ? fmax(deadline - os_now(), 0.001) : limit;
    enum os_exit how = os_child_get(&t->child, m, sizeof *m, fmin(limit, left));
    if (how == OS_EXITED) return TRIAL_OK;
    if (how != OS_TIMEOUT || left >= limit) return how_ended(t, how, reason);
    end(t);
    return TRIAL_NEW;
}

/* Copies a comparator's findings to the caller. TRIAL_OK: done. A child that sends anything
   unexpected counts as crashed. */
static enum trial_status take_found(struct trial_session *t, const struct message *m, struct buf *reason)
{
    const struct comparator *j = m->check < t->n_checks ? t->checks[m->check]->comparator : NULL;
    enum os_exit how = OS_SIGNALLED;
    if (j && m->n_text == j->n_found) how = os_child_get(&t->child, j->found, j->n_found, start_seconds);
    return how == OS_EXITED ? TRIAL_OK : how_ended(t, how, reason);
}

static enum trial_status follow(struct trial_session *t, trial_sample_fn *fn, void *user,
                                struct buf *reason)
{
    double limit = data_seconds(t);
    for (u32 n = 0;;) {
        struct message m;
        enum trial_status st = next_message(t, &m, limit, reason);
        if (st != TRIAL_OK) return st;
        if (m.kind == MSG_END) return take_end(t, &m, reason);
        if (m.kind == MSG_READY) t->is_ready = true;
        if (m.kind == MSG_ALLOW) limit = m.seconds;
        if (m.kind == MSG_FOUND && (st = take_found(t, &m, reason)) != TRIAL_OK) return st;
        if (m.kind != MSG_SAMPLE) continue;
        u8 answer = fn(user, &m.sample, m.sample.is_cold ? n : ++n) ? GO_ON : STOP;
        os_child_send(&t->child, &answer, 1); /* if the child is gone, the next message reports it */
        limit = data_seconds(t);
    }
}

/* Uses the running child, or a new one that loads the subjects of [k, end). */
static enum trial_status try(struct trial_session *t, u32 k, u32 end_of, trial_sample_fn *fn, void *user, struct buf *reason)
{
    struct err e = {0};
    if (t->is_running && (k < t->first || k >= t->end)) end(t);
    if (!t->is_running) {
        t->first = k, t->end = end_of, t->is_ready = false;
        if (!os_child_start(&t->child, child_main, t, &e)) {
            buf_z(reason, e.msg);
            return TRIAL_LAUNCH;
        }
        t->child.stop = t->o->stop;
        t->is_running = true;
    }
    os_child_send(&t->child, &k, sizeof k);
    return follow(t, fn, user, reason);
}

enum trial_status trial_next(struct trial_session *t, u32 k, trial_sample_fn *fn, void *user,
                             struct buf *reason)
{
    assert(k < t->n_subjects);
    bool was_running = t->is_running && k >= t->first && k < t->end, is_foreign = t->o->driver->is_foreign;
    struct buf why = {0};
    enum trial_status st = try(t, k, t->n_subjects, fn, user, &why);
    bool may_be_others = !is_foreign && (was_running || (!t->is_ready && t->end - t->first > 1));
    if (st != TRIAL_OK && st != TRIAL_NEW && may_be_others) {
        buf_reset(&why);
        st = try(t, k, k + 1, fn, user, &why);
    }
    buf_str(reason, buf_view(&why));
    buf_release(&why);
    return st;
}

void trial_close(struct trial_session *t)
{
    if (t->is_running) end(t);
}

enum trial_status trial_run(const struct subject *s, const struct check *const *checks,
                            u32 n_checks, const struct check *timing, const struct trial_opts *o,
                            trial_sample_fn *fn, void *user, struct buf *reason)
{
    struct trial_session t = {
        .subject = s, .n_subjects = 1, .checks = checks, .n_checks = n_checks, .timing = timing, .o = o};
    enum trial_status st = trial_next(&t, 0, fn, user, reason);
    trial_close(&t);
    return st;
}
