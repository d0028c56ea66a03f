// SPDX-License-Identifier: Apache-2.0
//
// Candidates in a child process: one after another until one fails where the device is foreign,
// because opening a GPU takes longer than measuring a kernel on it, else one each. The child opens the device, loads the binary, verifies it on each check
// (outputs poisoned, guard bands around every buffer, inputs compared afterwards), then times it
// beside the reference candidate, one sample of each in turn, and reports every step. The parent
// says which candidate is next, whether another sample is wanted, and applies the clock: a child
// that crashes or hangs is a status. After a failure of any kind a new child begins afresh.
#include "tune/tune.h"

#include <math.h>
#include <string.h>

enum { GUARD = 4096, GUARD_BYTE = 0xA5, POISON_BYTE = 0xFF, MAX_REPEAT = 10000 };
static const double min_sample_seconds =
    200e-6; /* shorter runs are repeated: the timer's noise stays below a percent */
static const double start_seconds = 30; /* opening the device and moving data may take this long */
static const double wake_seconds = 0.03; /* of work before a device is timed for the first time */
static const i64 max_evict = 256 << 20;

/* What the child says. ALLOW: the next message comes within that many seconds, or the child hangs:
   runs of the candidate are given its time-out, opening the device and moving data much more. */
enum message_kind { MSG_ALLOW, MSG_SAMPLE, MSG_END };

struct message {
    u8 kind, status;
    i64 n_text;
    double seconds;
    struct sample sample;
};

/* What the parent says: which subject is next, and after each sample whether to go on. */
enum { STOP, GO_ON };

/* A kernel's memory on the device. */
struct instance {
    struct arena arena; /* of what follows */
    const struct subject *s;
    struct dev_kernel *kernel;
    struct dev_mem *whole; /* per buffer, guards included; size 0: shared with the other instance */
    struct dev_mem *mem;   /* per buffer, what the kernel sees */
    i64 *size;             /* bytes per buffer */
    struct dev_launch launch;
    struct dev_mem *
        *variant; /* n_variants copies of mem that differ in the memory of the constants */
    struct dev_mem *copies; /* the memory of those */
    u32 n_variants, n_copies, turn;
};

struct child {
    const struct trial_session *t;
    const struct trial_opts *o;
    const struct subject *s; /* whose turn it is */
    int fd;
    struct dev *dev;
    struct instance base; /* the reference candidate; kernel NULL: not open yet */
};

static void send_end(struct child *c, enum trial_status st, struct str reason)
{
    struct message m = {.kind = MSG_END, .status = (u8)st, .n_text = reason.n};
    os_child_put(c->fd, &m, sizeof m);
    os_child_put(c->fd, reason.p, reason.n);
}

static void send_allow(const struct child *c, double seconds)
{
    struct message m = {.kind = MSG_ALLOW, .seconds = seconds};
    os_child_put(c->fd, &m, sizeof m);
}

/* memory */

static bool alloc_guarded(struct child *c, i64 size, struct dev_mem *whole, struct dev_mem *mem,
                          struct err *e)
{
    if (!c->o->driver->alloc(c->dev, round_up(size, 64) + 2 * GUARD, whole, e)) return false;
    *mem = *whole;
    mem->size = size;
    mem->offset += GUARD;
    if (mem->host) mem->host = (char *)mem->host + GUARD;
    return true;
}

static struct dev_mem guard_of(struct dev_mem whole, i64 size, bool behind)
{
    i64 at = behind ? GUARD + size : 0;
    struct dev_mem m = whole;
    m.size = behind ? whole.size - at : GUARD;
    m.offset += at;
    if (m.host) m.host = (char *)m.host + at;
    return m;
}

static bool set_guards(struct child *c, const struct instance *x, u32 k, struct err *e)
{
    char band[GUARD + 64];
    memset(band, GUARD_BYTE, sizeof band);
    for (int b = 0; b < 2; b++) {
        struct dev_mem g = guard_of(x->whole[k], x->size[k], b);
        if (!c->o->driver->upload(c->dev, g, band, i64_min(g.size, (i64)sizeof band), e))
            return false;
    }
    return true;
}

static bool guards_intact(struct child *c, const struct instance *x, u32 k, struct err *e)
{
    char band[GUARD + 64];
    for (int b = 0; b < 2; b++) {
        struct dev_mem g = guard_of(x->whole[k], x->size[k], b);
        i64 n = i64_min(g.size, (i64)sizeof band);
        if (!c->o->driver->download(c->dev, g, band, n, e)) return false;
        for (i64 i = 0; i < n; i++)
            if ((u8)band[i] != GUARD_BYTE)
                return err_set(e, ERR_FAILED, "wrote %s buffer %u", b ? "behind" : "before", k);
    }
    return true;
}

/* content of buffer k for this check: bytes in the order the kernel expects, in the arena (or the
 * check's own memory) */
static const void *content(struct instance *y, const struct check *k, u32 arg, i64 *size)
{
    const struct kernel_arg *a = &y->s->kernel.arg[arg];
    const struct value *x = graph_value(&k->task->g, a->v);
    const struct tensor *t = &k->value[a->v];
    struct place at;
    if (a->pack) {
        struct tensor *p = pack_apply(a->pack, t, k->task->g.sym, &y->arena);
        *size = p ? tensor_bytes(p) : -1;
        return p ? p->data : NULL;
    }
    if (!place_of(&at, &k->task->g, a->v, k->var)) return NULL;
    *size = at.count * dtype_size(x->dtype);
    if (a->is_out) return NULL;
    if (!at.whole && (x->layout == LAYOUT_ROWS || (!k->want && *size == tensor_bytes(t))))
        return t->data; /* random either way */
    void *p = arena_alloc(&y->arena, *size);
    if (at.whole) memset(p, POISON_BYTE, (size_t)*size); /* other parts, which are not to be read */
    place_store(&at, t, p);
    return p;
}

static bool poison(struct child *c, struct dev_mem m, i64 size, struct err *e)
{
    char piece[1 << 16];
    memset(piece, POISON_BYTE, sizeof piece);
    for (i64 at = 0; at < size; at += (i64)sizeof piece) {
        struct dev_mem part = m;
        part.offset += at;
        if (part.host) part.host = (char *)part.host + at;
        if (!c->o->driver->upload(c->dev, part, piece, i64_min(size - at, (i64)sizeof piece), e))
            return false;
    }
    return true;
}

static bool fill_buffer(struct child *c, struct instance *x, const struct check *k, u32 i,
                        struct err *e)
{
    const struct kernel *kn = &x->s->kernel;
    i64 size = 0;
    const void *p = NULL;
    if (i < kn->n_arg) {
        p = content(x, k, i, &size);
        if (size < 0) return err_set(e, ERR_FAILED, "a constant cannot be rearranged");
    } else if (!sym_eval(k->task->g.sym, kn->temp[i - kn->n_arg], k->var, &size)) {
        return err_set(e, ERR_FAILED, "size of a temporary array cannot be worked out");
    }
    x->size[i] = size;
    if (!alloc_guarded(c, size, &x->whole[i], &x->mem[i], e) || !set_guards(c, x, i, e))
        return false;
    return p ? c->o->driver->upload(c->dev, x->mem[i], p, size, e) : poison(c, x->mem[i], size, e);
}

/* Foreign devices may check bounds themselves and drop what lies outside. So the guard behind a
   buffer is bound with it: what is written there is found. */
static const struct dev_mem *with_guards(const struct child *c, struct instance *x, u32 n)
{
    struct caps caps;
    if (!c->o->driver->is_foreign) return x->mem;
    c->o->driver->caps(c->dev, &caps);
    struct dev_mem *m = arena_array(&x->arena, struct dev_mem, n + 1);
    for (u32 i = 0; i < n; i++) {
        m[i] = x->mem[i];
        if (caps.max_buffer == 0 || m[i].size + GUARD <= caps.max_buffer) m[i].size += GUARD;
    }
    return m;
}

static bool set_launch(const struct child *c, struct instance *x, const struct check *k,
                       struct err *e)
{
    const struct kernel *kn = &x->s->kernel;
    const struct symtab *st = k->task->g.sym;
    i64 *param = arena_array(&x->arena, i64, kn->n_param + 1), work = 0;
    i64(*grid)[3] = (i64(*)[3])arena_alloc(&x->arena, (i64)sizeof(i64[3]) * (kn->n_grid + 1));
    bool ok = !kn->work || sym_eval(st, kn->work, k->var, &work);
    for (u32 i = 0; i < kn->n_param && ok; i++) ok = sym_eval(st, kn->param[i], k->var, &param[i]);
    for (u32 g = 0; g < kn->n_grid; g++)
        for (u32 d = 0; d < 3 && ok; d++) {
            grid[g][d] = 1;
            if (d < kn->grid[g].n) ok = sym_eval(st, kn->grid[g].extent[d], k->var, &grid[g][d]);
        }
    if (!ok) return err_set(e, ERR_FAILED, "sizes of the kernel cannot be worked out");
    x->launch = (struct dev_launch){.kernel = x->kernel,
                                    .buf = with_guards(c, x, kn->n_arg + kn->n_temp),
                                    .n_buf = kn->n_arg + kn->n_temp,
                                    .param = param,
                                    .n_param = kn->n_param,
                                    .grid = (const i64(*)[3])grid,
                                    .n_grid = kn->n_grid,
                                    .work_size = work};
    return true;
}

/* Inputs that the other instance has already (same value, same form) are shared: both then read the
 * same memory. */
static bool share_buffer(struct instance *x, const struct instance *with, u32 i)
{
    const struct kernel *kn = &x->s->kernel;
    if (!with || i >= kn->n_arg || kn->arg[i].pack) return false;
    for (u32 k = 0; k < with->s->kernel.n_arg; k++) {
        const struct kernel_arg *a = &with->s->kernel.arg[k];
        if (a->v != kn->arg[i].v || a->pack || a->is_out != kn->arg[i].is_out) continue;
        x->mem[i] = with->mem[k];
        x->size[i] = with->size[k];
        return true;
    }
    return false;
}

static bool open_instance(struct child *c, struct instance *x, const struct subject *s,
                          const struct check *k, const struct instance *with, struct err *e)
{
    u32 n = s->kernel.n_arg + s->kernel.n_temp;
    *x = (struct instance){.s = s};
    x->whole = arena_array(&x->arena, struct dev_mem, n + 1);
    x->mem = arena_array(&x->arena, struct dev_mem, n + 1);
    x->size = arena_array(&x->arena, i64, n + 1);
    x->kernel = c->o->driver->load(c->dev, s->code, str_of(s->kernel.name), s->kernel.n_grid, e);
    if (!x->kernel) return false;
    for (u32 i = 0; i < n; i++)
        if (!share_buffer(x, with, i) && !fill_buffer(c, x, k, i, e)) return false;
    return set_launch(c, x, k, e);
}

static void close_instance(struct child *c, struct instance *x)
{
    if (!x->s) return;
    for (u32 i = 0; i < x->s->kernel.n_arg + x->s->kernel.n_temp; i++)
        if (x->whole && x->whole[i].size) c->o->driver->release(c->dev, &x->whole[i]);
    for (u32 i = 0; i < x->n_copies; i++) c->o->driver->release(c->dev, &x->copies[i]);
    if (x->kernel) c->o->driver->unload(c->dev, x->kernel);
    arena_release(&x->arena);
    *x = (struct instance){0};
}

/* A device at rest runs at a fraction of its clock. */
static bool wake(struct child *c, struct instance *x, struct err *e)
{
    double end = os_now() + wake_seconds;
    bool ok = true;
    while (c->o->driver->is_foreign && ok && os_now() < end) {
        send_allow(c, c->o->timeout);
        ok = c->o->driver->launch(c->dev, &x->launch, e) && c->o->driver->fence(c->dev, e);
    }
    return ok;
}

static bool run_once(struct child *c, struct instance *x, struct err *e)
{
    send_allow(c, c->o->timeout);
    bool ok = c->o->driver->launch(c->dev, &x->launch, e) && c->o->driver->fence(c->dev, e);
    send_allow(c, start_seconds);
    return ok;
}

/* verifying */

/* A kernel that delivers a part leaves the other parts as they are. */
static bool others_intact(const struct check *k, u32 out, const void *got, struct buf *why)
{
    struct place p;
    if (!place_of(&p, &k->task->g, k->task->g.output.v[out], k->var)) unreachable();
    i64 at = place_touched(&p, k->want[out], got, POISON_BYTE);
    if (at >= 0) buf_printf(why, "output %u: wrote element %lld, of another part", out, (long long)at);
    return at < 0;
}

static enum trial_status check_buffers(struct child *c, const struct check *k, struct instance *x,
                                       struct buf *why)
{
    const struct kernel *kn = &x->s->kernel;
    struct err e = {0};
    u32 out = 0;
    for (u32 i = 0; i < kn->n_arg + kn->n_temp; i++)
        if (!guards_intact(c, x, i, &e)) {
            buf_z(why, e.msg);
            return TRIAL_BOUNDS;
        }
    for (u32 i = 0; i < kn->n_arg; i++) {
        void *got = mem_alloc(x->size[i] + 1);
        i64 size;
        bool ok = c->o->driver->download(c->dev, x->mem[i], got, x->size[i], &e);
        enum trial_status st = TRIAL_OK;
        if (!ok) {
            buf_z(why, e.msg);
            st = TRIAL_LAUNCH;
        } else if (kn->arg[i].is_out) {
            while (k->task->g.output.v[out] != kn->arg[i].v) out++;
            if (!check_output(k, out, got, why)) st = TRIAL_WRONG;
            else if (!others_intact(k, out, got, why)) st = TRIAL_BOUNDS;
            out = 0;
        } else if (memcmp(got, content(x, k, i, &size), (size_t)x->size[i]) != 0) {
            buf_printf(why, "wrote to its input, buffer %u", i);
            st = TRIAL_BOUNDS;
        }
        mem_free(got);
        if (st != TRIAL_OK) return st;
    }
    return TRIAL_OK;
}

static enum trial_status verify_one(struct child *c, const struct check *k, struct buf *why)
{
    struct instance x = {0};
    struct err e = {0};
    enum trial_status st = TRIAL_LAUNCH;
    if (open_instance(c, &x, c->s, k, NULL, &e) && run_once(c, &x, &e))
        st = check_buffers(c, k, &x, why);
    else buf_z(why, e.msg);
    close_instance(c, &x);
    if (st != TRIAL_OK) {
        struct arena a = {0};
        struct str sizes = sizes_text(&a, k->task->g.sym, k->var, k->task);
        if (sizes.n) buf_printf(why, " (%.*s)", STR_ARG(sizes));
        arena_release(&a);
    }
    return st;
}

/* timing */

/* Inside a network a layer's large weights were evicted by the other layers' since the last
   inference, its activations were not. So constants above a size are kept in several copies, twice
   the last cache in all, used in turn. */
enum { COLD_CONST = 512 << 10, MAX_VARIANTS = 64 };

static bool is_constant(const struct child *c, const struct kernel *kn, u32 arg)
{
    return graph_value(&c->t->timing->task->g, kn->arg[arg].v)->is_const;
}

static i64 const_bytes(const struct child *c, const struct instance *x)
{
    const struct kernel *kn = &x->s->kernel;
    i64 sum = 0;
    for (u32 i = 0; i < kn->n_arg; i++)
        if (is_constant(c, kn, i)) sum += x->size[i];
    return sum;
}

static bool copy_const(struct child *c, struct instance *x, struct dev_mem *mem, u32 i,
                       struct err *e)
{
    struct dev_mem whole;
    if (!alloc_guarded(c, x->size[i], &whole, mem, e)) return false;
    x->copies[x->n_copies++] = whole;
    char piece[1 << 16];
    for (i64 at = 0; at < x->size[i]; at += (i64)sizeof piece) {
        i64 n = i64_min(x->size[i] - at, (i64)sizeof piece);
        struct dev_mem from = x->mem[i], to = *mem;
        from.offset += at, to.offset += at;
        if (from.host) from.host = (char *)from.host + at;
        if (to.host) to.host = (char *)to.host + at;
        if (!c->o->driver->download(c->dev, from, piece, n, e) ||
            !c->o->driver->upload(c->dev, to, piece, n, e))
            return false;
    }
    return true;
}

static bool make_variants(struct child *c, struct instance *x, struct err *e)
{
    const struct kernel *kn = &x->s->kernel;
    u32 n_buf = kn->n_arg + kn->n_temp;
    i64 bytes = const_bytes(c, x);
    struct caps caps = {0};
    c->o->driver->caps(c->dev, &caps);
    i64 want =
        bytes < COLD_CONST
            ? 1
            : i64_min(MAX_VARIANTS, ceil_div(2 * i64_max(caps.l3_bytes, caps.l2_bytes), bytes) + 1);
    x->variant = arena_array(&x->arena, struct dev_mem *, want);
    x->copies = arena_array(&x->arena, struct dev_mem, want * n_buf);
    for (x->n_variants = 0; x->n_variants < want; x->n_variants++) {
        struct dev_mem *v = arena_array(&x->arena, struct dev_mem, n_buf + 1);
        for (u32 i = 0; i < n_buf; i++) {
            v[i] = x->mem[i];
            bool is_const = i < kn->n_arg && is_constant(c, kn, i);
            if (x->n_variants > 0 && is_const && !copy_const(c, x, &v[i], i, e)) return false;
        }
        x->variant[x->n_variants] = v;
    }
    return true;
}

/* Where one thread of this process does all the work its processor time counts: what else the
   machine does meanwhile is none of the kernel's. */
static double clock_now(const struct child *c)
{
    bool alone = !c->o->driver->is_foreign && c->o->dev.n_threads == 1;
    return alone ? os_thread_seconds() : os_now();
}

static double time_runs(struct child *c, struct instance *x, i64 repeat, struct err *e)
{
    double start = clock_now(c);
    for (i64 i = 0; i < repeat; i++) {
        x->launch.buf = x->variant[x->turn++ % x->n_variants];
        if (!c->o->driver->launch(c->dev, &x->launch, e)) return -1;
    }
    if (!c->o->driver->fence(c->dev, e)) return -1;
    return dev_elapsed(c->dev, clock_now(c) - start) / (double)repeat;
}

/* How often a run must be repeated for one sample, and what one took, warm. 0: it failed. */
static i64 repeats(struct child *c, struct instance *x, double *t, struct err *e)
{
    send_allow(c, 2 * c->o->timeout);
    *t = time_runs(c, x, 1, e); /* memory is touched the first time */
    if (*t >= 0) *t = time_runs(c, x, 1, e);
    if (*t < 0) return 0;
    return *t >= min_sample_seconds
               ? 1
               : i64_min(MAX_REPEAT, (i64)(min_sample_seconds / (*t + 1e-8)) + 1);
}

/* false: the parent has seen enough, or is gone */
static bool send_sample(struct child *c, const struct message *m)
{
    u8 answer = STOP;
    return os_child_put(c->fd, m, sizeof *m) && os_child_take(c->fd, &answer, 1) && answer == GO_ON;
}

/* One run with nothing of it in the caches: written over by twice the size of the last level.
   Private caches of other threads keep what they hold, which the candidate's threads may find
   again. */
static bool time_cold(struct child *c, struct instance *x, struct err *e)
{
    struct caps caps;
    struct dev_mem m;
    c->o->driver->caps(c->dev, &caps);
    i64 size = i64_min(2 * i64_max(caps.l3_bytes, caps.l2_bytes), max_evict);
    if (size <= 0) return true;
    send_allow(c, start_seconds);
    if (!c->o->driver->alloc(c->dev, size, &m, e)) return false;
    bool ok = poison(c, m, size, e) && c->o->driver->fence(c->dev, e);
    send_allow(c, c->o->timeout);
    struct message s = {.kind = MSG_SAMPLE, .sample = {.is_cold = true}};
    if (ok) s.sample.seconds = time_runs(c, x, 1, e);
    c->o->driver->release(c->dev, &m);
    if (!ok || s.sample.seconds < 0) return false;
    send_sample(c, &s); /* the answer is for warm ones */
    send_allow(c, c->o->timeout);
    return time_runs(c, x, 1, e) >= 0; /* warm again */
}

/* The reference candidate stays open for all that are timed beside it. */
static bool open_base(struct child *c, struct err *e)
{
    if (!c->o->base || c->base.kernel) return true;
    return open_instance(c, &c->base, c->o->base, c->t->timing, NULL, e) &&
           make_variants(c, &c->base, e) && wake(c, &c->base, e);
}

/* Where one run is enough for a sample, the run that showed it is the first. */
static bool take_samples(struct child *c, struct instance *x, struct err *e)
{
    struct instance *base = c->o->base ? &c->base : NULL;
    double tb = 0, tx = 0;
    i64 rb = base ? repeats(c, base, &tb, e) : 1, rx = rb ? repeats(c, x, &tx, e) : 0;
    if (rx == 0 || (c->o->cold && !time_cold(c, x, e))) return false;
    for (u32 i = 0; i < c->o->max_samples; i++) {
        struct message m = {.kind = MSG_SAMPLE, .sample = {.base = tb, .seconds = tx}};
        bool again = i > 0 || c->o->cold;
        send_allow(c, 2 * c->o->timeout);
        if (base && (again || rb > 1)) m.sample.base = time_runs(c, base, rb, e);
        if (again || rx > 1) m.sample.seconds = time_runs(c, x, rx, e);
        if (m.sample.seconds < 0 || m.sample.base < 0) return false;
        if (!send_sample(c, &m)) break;
    }
    return true;
}

static enum trial_status time_all(struct child *c, struct buf *why)
{
    struct instance x = {0};
    struct err e = {0};
    bool ok = open_base(c, &e) &&
              open_instance(c, &x, c->s, c->t->timing, c->o->base ? &c->base : NULL, &e) &&
              make_variants(c, &x, &e) && take_samples(c, &x, &e);
    if (!ok) buf_z(why, e.msg);
    close_instance(c, &x);
    return ok ? TRIAL_OK : TRIAL_LAUNCH;
}

static void measure(struct child *c)
{
    const struct trial_session *t = c->t;
    struct buf why = {0};
    enum trial_status st = TRIAL_OK;
    for (u32 i = 0; i < t->n_checks && st == TRIAL_OK; i++) st = verify_one(c, t->checks[i], &why);
    if (st == TRIAL_OK && t->timing) st = time_all(c, &why);
    send_end(c, st, buf_view(&why));
    buf_release(&why);
}

static void child_main(void *user, int fd)
{
    struct child c = {.t = user, .o = ((struct trial_session *)user)->o, .fd = fd};
    struct err e = {0};
    u32 k;
    c.dev = c.o->driver->open(&c.o->dev, &e);
    while (os_child_take(fd, &k, sizeof k)) {
        c.s = &c.t->subject[k];
        if (c.dev) measure(&c);
        else send_end(&c, TRIAL_LAUNCH, str_of(e.msg));
    }
}

/* the parent's side */

static void end(struct trial_session *t)
{
    os_child_end(&t->child);
    t->is_running = false;
}

static enum trial_status how_ended(struct trial_session *t, enum os_exit how, struct buf *reason)
{
    struct os_status s = os_child_end(&t->child);
    t->is_running = false;
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
    if (m->status != TRIAL_OK || !t->o->driver->is_foreign) end(t);
    return (enum trial_status)m->status;
}

/* The next message within the time that the child was given. TRIAL_OK: there is one. TRIAL_NEW: the
   run's own time is over first. */
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

static enum trial_status follow(struct trial_session *t, trial_sample_fn *fn, void *user,
                                struct buf *reason)
{
    double limit = start_seconds;
    for (u32 n = 0;;) {
        struct message m;
        enum trial_status st = next_message(t, &m, limit, reason);
        if (st != TRIAL_OK) return st;
        if (m.kind == MSG_END) return take_end(t, &m, reason);
        if (m.kind == MSG_ALLOW) limit = m.seconds;
        if (m.kind != MSG_SAMPLE) continue;
        u8 answer = fn(user, &m.sample, m.sample.is_cold ? n : ++n) ? GO_ON : STOP;
        os_child_send(&t->child, &answer, 1); /* if it is gone, the next message says how */
        limit = start_seconds;
    }
}

enum trial_status trial_next(struct trial_session *t, u32 k, trial_sample_fn *fn, void *user,
                             struct buf *reason)
{
    struct err e = {0};
    if (!t->is_running && !os_child_start(&t->child, child_main, t, &e)) {
        buf_z(reason, e.msg);
        return TRIAL_LAUNCH;
    }
    t->is_running = true;
    os_child_send(&t->child, &k, sizeof k);
    return follow(t, fn, user, reason);
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
        .subject = s, .checks = checks, .n_checks = n_checks, .timing = timing, .o = o};
    enum trial_status st = trial_next(&t, 0, fn, user, reason);
    trial_close(&t);
    return st;
}
