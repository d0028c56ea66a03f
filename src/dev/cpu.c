// SPDX-License-Identifier: Apache-2.0
//
// cpu.c: the CPU that this program runs on. Binaries are shared objects of language
// c (calling convention in lang/lang.h), loaded from memory. The iterations of a
// grid are distributed in chunks to the threads of a pool, each of which has its
// own scratch memory that grows on demand and is kept from launch to launch.
//
// Threads of a workgroup are threads of the pool, all in the same iteration, which synchronise at barriers (struct workgroup).
// If the pool has fewer threads than the workgroup, a larger one is started for it.
//
// A launch is complete when it returns. One device serves one launch at a time; open several for concurrent launches.
#include "dev/dev.h"

#include <pthreadpool.h>
#include <stdatomic.h>
#include <string.h>

enum { CHUNKS_PER_THREAD = 8 }; /* small enough to balance, large enough to amortise the counter */

typedef void (*grid_function)(void *const *buf, const i64 *param, i64 begin, i64 end, void *work);

/* State shared by the threads of a workgroup, as functions of language c expect it (lang/lang.h). */
struct workgroup {
    _Alignas(64) u32 arrived;
    _Alignas(64) u32 round;
    u32 sleepers;
    _Alignas(64) void (*yield)(void);
    void *scratch;
    void (*wait)(struct workgroup *, u32 round, u32 turn);
    void (*wake)(struct workgroup *);
    u32 spins;
    u32 turns; /* before a thread sleeps */
};

/* A barrier takes less than a microsecond if every thread has a processor of its
   own. Otherwise spinning threads delay those that they wait for: then they sleep. */
enum { SPINS = 1024, SPINS_CROWDED = 16, MAX_TURNS = 16 };
static const double crowded = 20e-6, sleep_most = 2e-3; /* seconds */

struct cpu {
    pthreadpool_t pool; /* NULL: one thread */
    pthreadpool_t wide; /* for workgroups of more threads than the pool has, NULL: not started */
    u32 n_wide;
    struct workgroup *wg;
    u32 n_threads;
    u32 n_cpus;    /* that this process may use */
    i64 caller;    /* id of the launching thread */
    u32 n_busy;    /* threads still busy with the launch */
    i64 *worker;   /* ids of the pool's threads except the caller, n_threads - 1 */
    int caller_at; /* processor that the workers currently avoid; < 0: none */
    void **work;   /* scratch memory per thread */
    i64 work_size; /* bytes of each */
    void **buf;    /* addresses of the launch's buffers */
    u32 buf_cap;
    u64 n_uploads; /* so far */
    struct caps caps; /* queried on first use; arch empty: not yet */
};

struct dev_kernel {
    void *lib;
    u32 n_grid;
    grid_function *grid;
    u32 *wg_size; /* threads of a workgroup, per grid; 0: no workgroups */
    struct host_gemm *gemm; /* both NULL: grids of a shared object */
    struct host_conv *conv;
};

/* Opening. */

static u32 count(void) { return 1; }

static void cpu_close(struct dev *d)
{
    struct cpu *c = d->priv;
    if (c->pool) pthreadpool_destroy(c->pool);
    if (c->wide) pthreadpool_destroy(c->wide);
    mem_free(c->wg);
    for (u32 i = 0; i < c->n_threads; i++) mem_free(c->work[i]);
    mem_free(c->work);
    mem_free(c->worker);
    mem_free(c->buf);
    mem_free(c);
    mem_free(d);
}

/* A thread that is woken may be placed on the waker's processor, and wait there for milliseconds
   while others are idle. So the workers avoid the processor that the caller runs on at each launch. */

struct roll_call {
    i64 *id; /* per iteration */
    _Atomic u32 n; /* number that have started */
    u32 all;
};

/* Iterations wait for each other, so each gets a thread of its own. */
static void answer(void *context, size_t i)
{
    struct roll_call *r = context;
    os_order_after(context);
    r->id[i] = os_thread_id();
    atomic_fetch_add(&r->n, 1);
    while (atomic_load(&r->n) < r->all) os_yield();
    os_order_before(context);
}

static void find_workers(struct cpu *c)
{
    i64 self = os_thread_id();
    struct roll_call r = {.id = mem_alloc((i64)sizeof *r.id * c->n_threads), .all = c->n_threads};
    c->worker = mem_alloc((i64)sizeof *c->worker * c->n_threads);
    os_order_before(&r);
    pthreadpool_parallelize_1d(c->pool, answer, &r, c->n_threads, 0);
    os_order_after(&r);
    for (u32 i = 0, n = 0; i < c->n_threads; i++)
        if (r.id[i] != self) c->worker[n++] = r.id[i];
    mem_free(r.id);
}

static void make_way(struct cpu *c)
{
    int at = os_cpu();
    if (at == c->caller_at) return;
    os_keep_off(c->worker, c->n_threads - 1, at);
    c->caller_at = at;
}

/* NULL: refused by the system. The library does not check whether its threads start, and would wait
   for them forever. */
static pthreadpool_t start_pool(u32 n) { return os_threads_can_start(n - 1) ? pthreadpool_create(n) : NULL; }

static bool no_threads(u32 n, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "cannot start %u threads: a limit of this user or container is reached (ulimit -u, pids.max); request fewer", n);
}

static struct dev *cpu_open(const struct dev_opts *o, struct err *e)
{
    struct dev *d = mem_alloc((i64)sizeof *d);
    struct cpu *c = mem_alloc((i64)sizeof *c);
    extern const struct dev_driver dev_cpu;
    *d = (struct dev){.driver = &dev_cpu, .priv = c};
    c->n_cpus = (u32)os_n_cpus();
    c->n_threads = o->n_threads ? o->n_threads : c->n_cpus;
    c->work = mem_alloc((i64)sizeof *c->work * c->n_threads);
    if (c->n_threads > 1) c->pool = start_pool(c->n_threads);
    c->caller_at = -1;
    if (c->pool) find_workers(c);
    if (c->n_threads == 1 || c->pool) return d;
    no_threads(c->n_threads, e);
    cpu_close(d);
    return NULL;
}

/* Properties. */

static struct str cache_file(struct arena *a, u32 index, const char *name)
{
    struct str s = {0};
    struct err e = {0};
    os_read(a, str_fmt(a, "/sys/devices/system/cpu/cpu0/cache/index%u/%s", index, name).p, 4096, &s,
            &e);
    return str_trim(s);
}

static i64 cache_bytes(struct str s) /* "48K" */
{
    i64 v = 0, unit = str_ends(s, S("K")) ? 1 << 10 : str_ends(s, S("M")) ? 1 << 20 : 1;
    if (unit > 1) s.n--;
    return str_to_i64(s, &v) && v > 0 && v < (i64)1 << 40 ? v * unit : 0;
}

static void caps_caches(struct caps *c)
{
    struct arena a = {0};
    c->l1_bytes = 32 << 10;
    c->l2_bytes = 512 << 10;
    c->l3_bytes = 8 << 20;
    for (u32 i = 0; i < 8; i++) {
        i64 level = 0, n = cache_bytes(cache_file(&a, i, "size"));
        if (str_is(cache_file(&a, i, "type"), "Instruction") || n == 0) continue;
        if (!str_to_i64(cache_file(&a, i, "level"), &level)) continue;
        if (level == 1) c->l1_bytes = n;
        if (level == 2) c->l2_bytes = n;
        if (level == 3) c->l3_bytes = n;
    }
    arena_release(&a);
}

static void cpu_caps(struct dev *d, struct caps *c)
{
    struct cpu *cpu = d->priv;
    if (!cpu->caps.arch[0]) {
        cpu->caps = (struct caps){.n_threads = cpu->n_threads};
        isa_limits(&cpu->caps, isa_here());
        caps_caches(&cpu->caps);
    }
    *c = cpu->caps;
}

static struct str features(char room[33]) /* lists all features of this processor */
{
    hash_hex(os_cpu_features(), room);
    return (struct str){room, 8};
}

static void fingerprint(struct dev *d, struct buf *out)
{
    char model[128], hex[33];
    struct caps c;
    cpu_caps(d, &c);
    os_cpu_model(model, sizeof model);
    buf_printf(out, "cpu %s, %s, features %.*s, %u threads", model, c.arch, STR_ARG(features(hex)), c.n_threads);
}

/* Programs without such a list, of older versions, were built for the processor they were compiled
   on. */
static bool can_run(struct dev *d, struct str isa, struct str made_on, struct err *e)
{
    char hex[33];
    struct arena a = {0};
    if (isa.n) return isa_check(isa, isa_here(), e);
    bool same = str_glob(str_fmt(&a, "*, features %.*s,*", STR_ARG(features(hex))), made_on);
    arena_release(&a);
    return same || err_set(e, ERR_UNSUPPORTED, "it does not say which extensions of an instruction set its code needs (version 3 and older), and was not "
                           "compiled on such a processor; compile the network again");
}

/* Kernels. */

static void unload(struct dev *d, struct dev_kernel *k)
{
    if (k->lib) os_dlclose(k->lib);
    host_gemm_close(k->gemm);
    host_conv_close(k->conv);
    mem_free(k->grid);
    mem_free(k->wg_size);
    mem_free(k);
}

static u32 wg_size_of(void *lib, struct str entry, u32 grid)
{
    static const char *const name[] = {"threads", "team"}; /* the second in code of artifacts before version 5 */
    const u32 *n = NULL;
    struct arena a = {0};
    for (u32 i = 0; i < countof(name) && !n; i++) n = os_dlsym(lib, str_fmt(&a, "%.*s_%u_%s", STR_ARG(entry), grid, name[i]).p);
    arena_release(&a);
    return n ? *n : 0;
}

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid,
                               struct err *e)
{
    struct arena a = {0};
    struct dev_kernel *k = mem_alloc((i64)sizeof *k);
    k->n_grid = n_grid;
    k->grid = mem_alloc((i64)sizeof *k->grid * i64_max(n_grid, 1));
    k->wg_size = mem_alloc((i64)sizeof *k->wg_size * i64_max(n_grid, 1));
    k->lib = os_dlopen_bytes(binary.p, binary.n, e);
    bool ok = k->lib != NULL;
    for (u32 i = 0; ok && i < n_grid; i++) {
        void *f = os_dlsym(k->lib, str_fmt(&a, "%.*s_%u", STR_ARG(entry), i).p);
        memcpy(&k->grid[i], &f, sizeof f);
        k->wg_size[i] = wg_size_of(k->lib, entry, i);
        ok = f || err_set(e, ERR_INPUT, "no function '%.*s_%u' in binary", STR_ARG(entry), i);
    }
    arena_release(&a);
    if (ok) return k;
    unload(d, k);
    return NULL;
}

static struct dev_kernel *gemm(struct dev *d, const struct dev_gemm *p, struct buf *name, struct err *e)
{
    const struct cpu *c = d->priv;
    struct host_gemm *x = host_gemm_open(p, c->n_threads, name, e);
    if (!x) return NULL;
    struct dev_kernel *k = mem_alloc((i64)sizeof *k);
    *k = (struct dev_kernel){.n_grid = 1, .gemm = x};
    return k;
}

static struct dev_kernel *conv(struct dev *d, const struct dev_conv *s, struct buf *name, struct err *e)
{
    const struct cpu *c = d->priv;
    struct host_conv *x = host_conv_open(s, c->n_threads, name, e);
    if (!x) return NULL;
    struct dev_kernel *k = mem_alloc((i64)sizeof *k);
    *k = (struct dev_kernel){.n_grid = 1, .conv = x};
    return k;
}

static bool upload(struct dev *d, struct dev_mem m, const void *p, i64 n, struct err *e)
{
    struct cpu *c = d->priv;
    c->n_uploads++;
    return dev_host_upload(d, m, p, n, e);
}

/* With more threads than processors the pool would spin for tens of milliseconds while busy threads
   need the processors. Then its threads sleep as soon as a launch is complete, and the launching
   thread sleeps until then. */

static void crowd_begin(struct cpu *c, u32 n)
{
    c->caller = os_thread_id();
    __atomic_store_n(&c->n_busy, n, __ATOMIC_SEQ_CST);
}

static void crowd_end(struct cpu *c)
{
    const double most = 10e-3; /* seconds, in case of a lost wake-up */
    u32 left = __atomic_sub_fetch(&c->n_busy, 1, __ATOMIC_SEQ_CST);
    if (left == 0) os_wake_all(&c->n_busy);
    else if (os_thread_id() == c->caller)
        while ((left = __atomic_load_n(&c->n_busy, __ATOMIC_SEQ_CST)) > 0) os_wait_while(&c->n_busy, left, most);
}

struct job { /* one grid, shared by the threads */
    grid_function f;
    struct cpu *cpu;
    const i64 *param;
    i64 total, chunk;
    _Atomic i64 next; /* first iteration not distributed yet */
    bool is_crowded;
};

static void job_run(void *context, size_t thread)
{
    struct job *j = context;
    os_order_after(context);
    for (;;) {
        i64 begin = atomic_fetch_add_explicit(&j->next, j->chunk, memory_order_relaxed);
        if (begin >= j->total) break;
        j->f(j->cpu->buf, j->param, begin, i64_min(begin + j->chunk, j->total),
             j->cpu->work[thread]);
    }
    if (j->is_crowded) crowd_end(j->cpu);
    os_order_before(context);
}

static bool grow_work(struct cpu *c, i64 size, struct err *e)
{
    if (size <= c->work_size) return true;
    c->work_size = 0;
    for (u32 i = 0; i < c->n_threads; i++) {
        mem_free(c->work[i]);
        c->work[i] = mem_aligned(size);
        if (!c->work[i])
            return err_set(e, ERR_SYSTEM, "cannot allocate %lld bytes of scratch memory",
                           (long long)size);
    }
    c->work_size = size;
    return true;
}

/* n items, each on a thread of its own. */
static void run_pool(struct cpu *c, pthreadpool_t pool, pthreadpool_task_1d_t fn, void *job, u32 n)
{
    os_order_before(job);
    pthreadpool_parallelize_1d(pool, fn, job, n, n > c->n_cpus ? PTHREADPOOL_FLAG_YIELD_WORKERS : 0);
    os_order_after(job);
}

static void run_grid(struct cpu *c, grid_function f, const i64 *param, i64 total)
{
    i64 chunk = i64_max(1, total / ((i64)c->n_threads * CHUNKS_PER_THREAD));
    struct job j = {.f = f, .cpu = c, .param = param, .total = total, .chunk = chunk, .is_crowded = c->n_threads > c->n_cpus};
    if (!c->pool || total == 1) f(c->buf, param, 0, total, c->work[0]);
    else {
        make_way(c);
        if (j.is_crowded) crowd_begin(c, c->n_threads);
        run_pool(c, c->pool, job_run, &j, c->n_threads);
    }
}

struct workgroup_job {
    grid_function f;
    struct cpu *cpu;
    const i64 *param;
    i64 total;
    bool is_crowded;
};

static void workgroup_run(void *context, size_t thread)
{
    struct workgroup_job *j = context;
    os_order_after(context);
    j->f(j->cpu->buf, j->param, (i64)thread, j->total, j->cpu->wg);
    if (j->is_crowded) crowd_end(j->cpu);
    os_order_before(context);
}

/* A pool of at least n threads; NULL: they cannot be started. */
static pthreadpool_t pool_of(struct cpu *c, u32 n)
{
    if (c->pool && c->n_threads >= n) return c->pool;
    if (c->n_wide >= n) return c->wide;
    if (c->wide) pthreadpool_destroy(c->wide);
    c->wide = start_pool(n);
    c->n_wide = c->wide ? n : 0;
    return c->wide;
}

/* Yields to runnable threads. A thread that returns late was on a contended processor and sleeps
   until the barrier is complete; so do a thread that waits very long, and all if there are more
   threads than processors. */
static void workgroup_wait(struct workgroup *t, u32 round, u32 turn)
{
    if (turn < t->turns) {
        double start = os_now();
        os_yield();
        if (os_now() - start < crowded) return;
    }
    __atomic_add_fetch(&t->sleepers, 1, __ATOMIC_SEQ_CST);
    os_wait_while(&t->round, round, sleep_most);
    __atomic_sub_fetch(&t->sleepers, 1, __ATOMIC_SEQ_CST);
}

static void workgroup_wake(struct workgroup *t) { os_wake_all(&t->round); }

/* One item per thread of the workgroup; they wait for each other, so each needs a thread of its
   own. */
static bool run_workgroup(struct cpu *c, grid_function f, const i64 *param, i64 total, u32 n, struct err *e)
{
    struct workgroup_job j = {f, c, param, total, n > c->n_cpus};
    pthreadpool_t pool = pool_of(c, n);
    if (!pool) return no_threads(n, e);
    if (!c->wg) c->wg = mem_aligned((i64)sizeof *c->wg);
    if (!c->wg) return err_set(e, ERR_SYSTEM, "cannot allocate memory for threads");
    *c->wg = (struct workgroup){.yield = os_yield, .scratch = c->work[0], .wait = workgroup_wait, .wake = workgroup_wake};
    c->wg->spins = j.is_crowded ? SPINS_CROWDED : SPINS;
    c->wg->turns = j.is_crowded ? 0 : MAX_TURNS;
    if (pool == c->pool) make_way(c);
    if (j.is_crowded) crowd_begin(c, n);
    run_pool(c, pool, workgroup_run, &j, n);
    return true;
}

static bool launch(struct dev *d, const struct dev_launch *l, struct err *e)
{
    struct cpu *c = d->priv;
    if (l->kernel->gemm) return host_gemm_run(l->kernel->gemm, l, e);
    if (l->kernel->conv) return host_conv_run(l->kernel->conv, l, c->n_uploads, e);
    if (l->n_grid != l->kernel->n_grid)
        return err_set(e, ERR_USAGE, "kernel has %u grids, not %u", l->kernel->n_grid, l->n_grid);
    if (!grow_work(c, l->work_size, e)) return false;
    if (l->n_buf > c->buf_cap) {
        mem_free(c->buf);
        c->buf_cap = l->n_buf * 2;
        c->buf = mem_alloc((i64)sizeof *c->buf * c->buf_cap);
    }
    for (u32 i = 0; i < l->n_buf; i++) c->buf[i] = l->buf[i].host;
    for (u32 i = 0; i < l->n_grid; i++) {
        i64 rows, total;
        bool over = __builtin_mul_overflow(l->grid[i][0], l->grid[i][1], &rows) ||
                    __builtin_mul_overflow(rows, l->grid[i][2], &total);
        if (over) return err_set(e, ERR_USAGE, "grid %u too large", i);
        if (total <= 0) continue;
        if (!l->kernel->wg_size[i]) run_grid(c, l->kernel->grid[i], l->param, total);
        else if (!run_workgroup(c, l->kernel->grid[i], l->param, total, l->kernel->wg_size[i], e)) return false;
    }
    return true;
}

const struct dev_driver dev_cpu = {
    .version = 1,
    .name = "cpu",
    .lang = "c",
    .count = count,
    .open = cpu_open,
    .close = cpu_close,
    .caps = cpu_caps,
    .fingerprint = fingerprint,
    .can_run = can_run,
    .alloc = dev_host_alloc,
    .release = dev_host_release,
    .upload = upload,
    .download = dev_host_download,
    .load = load,
    .unload = unload,
    .launch = launch,
    .fence = dev_host_fence,
    .gemm = gemm,
    .conv = conv,
};
