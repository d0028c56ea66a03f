// SPDX-License-Identifier: Apache-2.0
//
// Rates of a device. Kernels are built in parallel, like those of candidates; a child process loads and times them, as drivers crash and hang.
// Every rate is measured several times, in turns with all others, so that a disturbance does not affect all samples of one. The best one
// counts: other work on the machine only makes kernels slower.
//
// Arrays x and y are far larger than the caches; a level is measured on slices that fill a part of it. Latency is that of a chain of loads
// through the lines of that part in an order that prefetchers do not predict.
#include "tune/rates.h"

#include <math.h>
#include <string.h>

enum {
    MOST_MEASUREMENTS = 4, /* at first use */
    REVISION = 1, /* of the kernels and of what is made of their times */
    REPEATS = 6, LONG_REPEATS = 4,
    LEAST_LOADS = 4096, MAX_KERNELS = 64, MAX_POINTS = 96,
    LINE = 64, /* bytes */
    CHILD_SECONDS = 120
};
static const i64 least_bytes = 64 << 20, most_bytes = 512 << 20; /* of x and y */
static const double cpu_seconds = 0.3e-3, gpu_seconds = 2e-3;    /* of a sample, at least */
static const double long_seconds = 15e-3;                        /* and at most, where it can be */
static const double most_flops = 1e16;                           /* of a thread or workgroup that computes */

enum kind { KIND_OPS, KIND_MEMORY, KIND_CHASE, KIND_LAUNCH, KIND_BARRIER };

struct kernel_text {
    enum kind kind;
    enum rate_op op;
    enum micro_access access;
    struct caps_matrix shape; /* m 0: no matrix units */
    double work;              /* of a group's round */
    struct str code;          /* empty: it cannot be built */
};

struct session {
    const struct device_target *t;
    struct kernel_text kernel[MAX_KERNELS];
    u32 n;
};

/* In the child. */

struct point { /* a number to be measured */
    struct micro_kernel k;
    double work;   /* of a launch's round: the number is a rate; 0: it is seconds */
    double *to;
    bool is_all;   /* the one before is of the same kernel, for one thread */
    double seconds[REPEATS];
};

struct bench {
    struct micro m;
    struct dev_mem x, y, z; /* z: results of kernels that write little */
    struct dev_kernel *kernel[MAX_KERNELS];
    struct point point[MAX_POINTS];
    u32 n;
    struct rates r;
};

struct answer { struct rates r; struct err e; };

static bool open_arrays(struct bench *b, struct err *e)
{
    const struct caps *c = &b->m.caps;
    i64 bytes = least_bytes, groups = micro_groups(c, true);
    while (bytes < 2 * i64_max(c->l2_bytes, c->l3_bytes) && bytes < most_bytes) bytes *= 2;
    while (c->max_buffer && bytes > c->max_buffer) bytes /= 2;
    const struct dev_driver *v = b->m.dev->driver;
    return v->alloc(b->m.dev, bytes, &b->x, e) && v->alloc(b->m.dev, bytes, &b->y, e) &&
           v->alloc(b->m.dev, i64_max(4096, groups * micro_group(c) * 64), &b->z, e) && micro_fill(&b->m, b->x, e) &&
           micro_fill(&b->m, b->y, e) && micro_fill(&b->m, b->z, e);
}

static void close_all(struct bench *b, u32 n_kernels)
{
    const struct dev_driver *v = b->m.dev->driver;
    for (u32 i = 0; i < n_kernels; i++)
        if (b->kernel[i]) v->unload(b->m.dev, b->kernel[i]);
    struct dev_mem *mem[] = {&b->x, &b->y, &b->z};
    for (i64 i = 0; i < countof(mem); i++)
        if (mem[i]->size) v->release(b->m.dev, mem[i]);
    v->close(b->m.dev);
}

static bool has_several(const struct caps *c) { return micro_groups(c, true) > 1; } /* threads or workgroups */

static struct point *add_point(struct bench *b, u32 kernel, i64 groups, double work, double *to)
{
    assert(b->n < MAX_POINTS);
    struct point *p = &b->point[b->n++];
    *p = (struct point){.k = {.kernel = b->kernel[kernel], .groups = groups, .rounds = 1, .borrows = true}, .work = work * (double)groups, .to = to};
    p->k.buf[0] = b->x, p->k.buf[1] = b->z, p->k.n_buf = 2;
    return p;
}

/* As many workgroups of matrix units as y has room for. */
static i64 mma_groups(const struct bench *b, const struct caps_matrix *s, i64 groups)
{
    i64 size[MICRO_BUFFERS];
    micro_mma_sizes(size, &b->m.caps, s, 1);
    return i64_max(1, i64_min(groups, b->y.size / size[2]));
}

/* The rate of one thread or workgroup, and of all. */
static void add_ops(struct bench *b, u32 i, const struct kernel_text *t)
{
    const struct caps *c = &b->m.caps;
    struct rate *to = &b->r.ops[t->op];
    for (u32 all = 0; all <= has_several(c); all++) {
        i64 groups = all ? micro_groups(c, true) : 1;
        struct point *p = add_point(b, i, t->shape.m ? mma_groups(b, &t->shape, groups) : groups, t->work, all ? &to->all : &to->one);
        p->is_all = all;
        if (!t->shape.m) continue;
        p->k.buf[1] = b->x, p->k.buf[2] = b->y, p->k.n_buf = 3;
    }
}

static struct rate *rate_of_access(struct bench *b, enum rate_level level, enum micro_access access)
{
    struct rate_memory *m = &b->r.memory[level];
    switch (access) {
    case MICRO_READ: return &m->read;
    case MICRO_WRITE: return &m->write;
    case MICRO_COPY: return &m->copy;
    case MICRO_NT_WRITE: return &b->r.nt_write;
    case N_MICRO_ACCESSES:
    default: unreachable();
    }
}

static void add_memory(struct bench *b, u32 i, enum rate_level level, enum micro_access access)
{
    const struct caps *c = &b->m.caps;
    struct rate *to = rate_of_access(b, level, access);
    for (u32 all = 0; all <= has_several(c); all++) {
        const struct micro_slice x = micro_slice_of(c, level, access, b->x.size, all);
        if (!x.n) continue;
        struct point *p = add_point(b, i, x.groups, (access == MICRO_COPY ? 2.0 : 1.0) * 4 * (double)x.n, all ? &to->all : &to->one);
        p->k.slice = x.n, p->is_all = all;
        if (access != MICRO_READ) p->k.buf[1] = b->y;
    }
}

static void add_points(struct bench *b, u32 i, const struct kernel_text *t)
{
    const struct caps *c = &b->m.caps;
    switch (t->kind) {
    case KIND_OPS: add_ops(b, i, t); break;
    case KIND_MEMORY:
        for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++)
            if (t->access != MICRO_NT_WRITE || l == RATE_DRAM) add_memory(b, i, l, t->access);
        break;
    case KIND_LAUNCH: add_point(b, i, micro_groups(c, false), 0, &b->r.launch)->k.launches = 16; break;
    case KIND_BARRIER: add_point(b, i, 1, 0, &b->r.barrier)->k.rounds = 16; break;
    case KIND_CHASE: break; /* after all others: it needs content of its own */
    }
}

/* Several matrix shapes have the same number, which is that of the fastest. */
static void evaluate(struct point *p)
{
    double s = p->seconds[0], count = p->k.launches ? p->k.launches : (double)p->k.rounds;
    for (u32 i = 1; i < REPEATS; i++) s = fmin(s, p->seconds[i]);
    if (s <= 0) return;
    *p->to = p->work > 0 ? fmax(*p->to, p->work * count / s) : s / count;
}

static double least_seconds(const struct bench *b) { return b->m.caps.is_gpu ? gpu_seconds : cpu_seconds; }

/* If even one round takes long, memory is not the limit, and a smaller slice has the same rate. */
static void shrink(const struct bench *b, struct point *p)
{
    i64 step = micro_memory_step(&b->m.caps), slice = p->k.slice;
    double s = p->k.rounds == 1 ? micro_seconds(&p->k, &b->m, &(struct err){0}) : 0;
    if (s < long_seconds) return;
    p->k.slice = i64_max(step, (i64)((double)slice * long_seconds / s) / step * step);
    p->work *= (double)p->k.slice / (double)slice;
}

/* Starts from half the rounds of a single thread: its time can be no shorter. */
static void grow(struct bench *b, u32 i)
{
    struct micro_kernel *k = &b->point[i].k;
    if (b->point[i].is_all) {
        const struct micro_kernel *one = &b->point[i - 1].k;
        k->rounds = i64_max(1, one->rounds * i64_max(one->slice, 1) / i64_max(k->slice, 1) / 2);
    }
    if (!micro_grow(k, &b->m, least_seconds(b), &(struct err){0})) k->kernel = NULL;
    if (k->kernel && k->slice) shrink(b, &b->point[i]);
}

/* A kernel that fails has no rate. */
static void measure_points(struct bench *b)
{
    for (u32 i = 0; i < b->n; i++) grow(b, i);
    for (u32 n = 0; n < REPEATS; n++)
        for (u32 i = 0; i < b->n; i++) {
            struct point *p = &b->point[i];
            bool is_long = n >= LONG_REPEATS && p->seconds[0] > 4 * least_seconds(b);
            if (p->k.kernel) p->seconds[n] = is_long ? p->seconds[0] : micro_seconds(&p->k, &b->m, &(struct err){0});
        }
    for (u32 i = 0; i < b->n; i++)
        if (b->point[i].k.kernel) evaluate(&b->point[i]);
}

/* Latency. */

/* A cycle through n lines, n a power of two: a linear congruential generator of full period. reading: evicts it from the caches. */
static bool put_cycle(struct bench *b, i64 n, struct point *reading, struct err *e)
{
    const u32 step = LINE / sizeof(i32);
    i32 *line = mem_alloc(n * LINE);
    for (i64 i = 0; i < n; i++) line[i * step] = (i32)((i * 1664525 + 1013904223) % n * step);
    struct dev_mem part = b->x;
    part.size = n * LINE;
    bool ok = b->m.dev->driver->upload(b->m.dev, part, line, n * LINE, e);
    mem_free(line);
    return ok && (!reading || micro_launch(&reading->k, &b->m, e));
}

static void measure_latency(struct bench *b, u32 kernel, enum rate_level level, struct point *reading)
{
    struct err e = {0};
    i64 bytes = i64_min(micro_level_bytes(&b->m.caps, level, b->x.size), b->x.size), n = 1;
    while (2 * n * LINE <= bytes) n *= 2;
    if (n < 16 || !put_cycle(b, n, level == RATE_DRAM ? reading : NULL, &e)) return;
    b->n = 0;
    struct point *p = add_point(b, kernel, 1, 0, &b->r.memory[level].latency);
    p->k.rounds = 2 * n; /* a victim cache is filled by the first pass */
    if (!b->m.caps.is_gpu && level != RATE_DRAM && !micro_launch(&p->k, &b->m, &e)) return;
    p->k.rounds = LEAST_LOADS;
    if (!micro_grow(&p->k, &b->m, least_seconds(b), &e)) return;
    for (i64 i = 0; i < REPEATS; i++) { /* each from another line */
        p->k.slice = (i + 1) * n / (REPEATS + 1) * (i64)(LINE / sizeof(i32));
        p->seconds[i] = micro_seconds(&p->k, &b->m, &e);
    }
    evaluate(p);
}

static void measure_latencies(struct bench *b, const struct session *s)
{
    struct point reading = {0};
    u32 chase = MAX_KERNELS;
    for (u32 i = 0; i < s->n; i++) {
        if (s->kernel[i].kind == KIND_CHASE) chase = i;
        if (s->kernel[i].kind == KIND_MEMORY && s->kernel[i].access == MICRO_READ)
            reading.k = (struct micro_kernel){.kernel = b->kernel[i], .groups = 1, .rounds = 1, .n_buf = 2, .buf = {b->y, b->z}};
    }
    reading.k.slice = b->y.size / 4 / micro_memory_step(&b->m.caps) * micro_memory_step(&b->m.caps);
    for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS && chase < s->n && b->kernel[chase]; l++)
        measure_latency(b, chase, l, reading.k.kernel ? &reading : NULL);
}

static void complete(struct rate *r) { r->all = fmax(r->all, r->one); }

static void child_main(void *user, int fd)
{
    const struct session *s = user;
    const struct dev_driver *v = s->t->driver;
    struct bench *b = mem_alloc((i64)sizeof *b);
    struct answer a;
    memset(&a, 0, sizeof a); /* padding, too: it goes through the pipe */
    b->m = (struct micro){.dev = v->open(s->t->opts, &a.e), .caps = *s->t->caps};
    if (b->m.dev && open_arrays(b, &a.e)) {
        for (u32 i = 0; i < s->n; i++) {
            b->kernel[i] = s->kernel[i].code.n ? v->load(b->m.dev, s->kernel[i].code, S("k"), 1, &(struct err){0}) : NULL;
            if (b->kernel[i]) add_points(b, i, &s->kernel[i]);
        }
        measure_points(b);
        measure_latencies(b, s);
        a.r = b->r;
        /* All threads are at least as fast as one: a lower rate was disturbed, and of a single thread there is none. */
        for (u32 i = 0; i < N_RATE_OPS; i++) complete(&a.r.ops[i]);
        for (u32 i = 0; i < N_RATE_LEVELS; i++) complete(&a.r.memory[i].read), complete(&a.r.memory[i].write), complete(&a.r.memory[i].copy);
        complete(&a.r.nt_write);
    }
    if (b->m.dev) close_all(b, s->n);
    os_child_put(fd, &a, sizeof a);
    mem_free(b);
}

/* In the parent. */

static struct kernel_text *add_kernel(struct session *s, enum kind kind)
{
    if (s->n == MAX_KERNELS) s->n--; /* many shapes of matrix units: the last ones are left out */
    s->kernel[s->n] = (struct kernel_text){.kind = kind};
    return &s->kernel[s->n++];
}

static bool parse_and_render(struct buf *out, struct str text, const struct device_target *t, struct arena *a)
{
    struct kir k;
    struct err e = {0};
    bool ok = kir_parse(&k, a, text, &e) && kir_verify(&k, &e) && lang_render(out, t->lang, &k, t->caps, a, &e);
    if (!ok && t->log) log_printf(t->log, 3, "microbenchmark: %s", e.msg);
    return ok;
}

static void take_text(struct session *s, struct kernel_text *k, struct buf *text, struct arena *a)
{
    struct buf source = {0};
    if (text->n && parse_and_render(&source, buf_view(text), s->t, a)) k->code = str_dup(a, buf_view(&source));
    buf_release(&source);
    buf_release(text);
}

static void list_kernels(struct session *s, struct arena *a)
{
    const struct caps *c = s->t->caps;
    struct str rest = str_of(c->matrix);
    struct caps_matrix shape;
    for (enum rate_op op = RATE_FMA_F32; op < N_RATE_OPS; op++)
        for (u32 part = 1; part <= (c->vector_bytes > 32 ? 2 : 1); part++) {
            struct kernel_text *k = add_kernel(s, KIND_OPS);
            struct buf text = {0};
            k->op = op, k->work = micro_ops_text(&text, c, op, part);
            take_text(s, k, &text, a);
        }
    for (enum micro_access x = MICRO_READ; x < N_MICRO_ACCESSES; x++) {
        struct kernel_text *k = add_kernel(s, KIND_MEMORY);
        struct buf text = {0};
        k->access = x, micro_memory_text(&text, c, x);
        take_text(s, k, &text, a);
    }
    const struct { enum kind kind; void (*put)(struct buf *t, const struct caps *c); } other[] = {
        {KIND_CHASE, micro_chase_text}, {KIND_LAUNCH, micro_launch_text}, {KIND_BARRIER, micro_barrier_text}};
    for (i64 i = 0; i < countof(other); i++) {
        struct buf text = {0};
        other[i].put(&text, c);
        take_text(s, add_kernel(s, other[i].kind), &text, a);
    }
    while (caps_matrix_next(&rest, &shape)) {
        if (shape.c != shape.d) continue;
        struct kernel_text *k = add_kernel(s, KIND_OPS);
        struct buf text = {0};
        k->op = rate_op_mma(shape.a), k->shape = shape, k->work = micro_mma_text(&text, c, &shape);
        take_text(s, k, &text, a);
    }
}

/* Texts that do not compile have no code. */
static bool build_kernels(struct session *s, const struct cache *c, struct arena *a, struct err *e)
{
    const struct device_target *t = s->t;
    struct builder b = {.cache = c, .lang = t->lang, .caps = t->caps, .toolchain = t->toolchain, .stop = t->stop};
    struct str *text = arena_array(a, struct str, s->n);
    struct built *out = arena_array(a, struct built, s->n);
    u32 *of = arena_array(a, u32, s->n), n = 0;
    for (u32 i = 0; i < s->n; i++)
        if (s->kernel[i].code.n) text[n] = s->kernel[i].code, of[n++] = i;
    if (!build_all(&b, text, n, out, a, e)) return false;
    for (u32 i = 0; i < n; i++) s->kernel[of[i]].code = out[i].ok ? out[i].code : (struct str){0};
    return true;
}

static bool measure(struct rates *r, const struct device_target *t, struct arena *a, struct err *e)
{
    struct session *s = arena_new(a, struct session);
    struct answer answer = {.e = {0}};
    struct cache kernels;
    struct os_child child;
    s->t = t;
    list_kernels(s, a);
    cache_open(&kernels, "kernels", a, t->log);
    if (!build_kernels(s, &kernels, a, e) || !os_child_start(&child, child_main, s, e)) return false;
    child.stop = t->stop;
    enum os_exit how = os_child_get(&child, &answer, sizeof answer, CHILD_SECONDS);
    os_child_end(&child);
    if (how == OS_STOPPED) return err_set(e, ERR_STOPPED, "stopped");
    if (how != OS_EXITED) return err_set(e, ERR_FAILED, "device '%s' %s when its rates were measured", t->driver->name, how == OS_TIMEOUT ? "hung" : "crashed");
    if (answer.e.code) return err_set(e, answer.e.code, "%s", answer.e.msg);
    *r = answer.r;
    rates_round_all(r);
    double flops = r->ops[RATE_FMA_F32].one;
    return (flops > 0 && flops < most_flops) || err_set(e, ERR_FAILED, "device '%s' has no rates: it computes nothing", t->driver->name);
}

bool rates_measure(struct rates *r, const struct device_target *t, struct err *e)
{
    struct arena a = {0};
    *r = (struct rates){0};
    bool ok = !dev_is_described(t->opts) || err_set(e, ERR_USAGE, "device '%s' is only described and cannot be measured", t->driver->name);
    if (ok && str_is(str_of(t->lang->name), "kir")) ok = err_set(e, ERR_UNSUPPORTED, "device '%s' has no rates: it interprets", t->driver->name);
    ok = ok && measure(r, t, &a, e);
    arena_release(&a);
    return ok;
}

/* Storage: a file of the text that rates_print writes. */

static struct hash key_of(const struct dev_driver *v, struct str fingerprint)
{
    struct buf b = {0};
    buf_printf(&b, "rates %d\n%s\n%.*s\n", REVISION, v->name, STR_ARG(fingerprint));
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

void rates_keep(const struct rates *r, const struct dev_driver *v, struct str fingerprint)
{
    struct arena a = {0};
    struct cache c;
    struct buf b = {0};
    cache_open(&c, "devices", &a, &(struct log){0});
    rates_print(&b, r);
    cache_put(&c, key_of(v, fingerprint), buf_view(&b));
    buf_release(&b);
    arena_release(&a);
}

bool rates_find(struct rates *r, const struct dev_driver *v, struct str fingerprint)
{
    struct arena a = {0};
    struct cache c;
    struct str text;
    *r = (struct rates){0};
    cache_open(&c, "devices", &a, &(struct log){0});
    bool ok = cache_get(&c, key_of(v, fingerprint), &a, &text) && rates_parse(r, text, &(struct err){0}) && r->ops[RATE_FMA_F32].one > 0;
    if (!ok) *r = (struct rates){0};
    arena_release(&a);
    return ok;
}

/* First use. */

static bool are_near(double x, double y)
{
    const double near = 1.06; /* one step of rounded rates */
    return fmax(x, y) <= near * fmin(x, y);
}

/* What choices depend on most. */
static bool do_agree(const struct rates *x, const struct rates *y)
{
    const struct rate *fma[] = {&x->ops[RATE_FMA_F32], &y->ops[RATE_FMA_F32]}, *read[] = {&x->memory[RATE_DRAM].read, &y->memory[RATE_DRAM].read};
    return are_near(fma[0]->one, fma[1]->one) && are_near(fma[0]->all, fma[1]->all) && are_near(read[0]->one, read[1]->one) &&
           are_near(read[0]->all, read[1]->all);
}

static bool measure_until_agreed(struct rates *best, const struct device_target *t, struct err *e)
{
    struct rates last;
    if (!rates_measure(best, t, e)) return false;
    last = *best;
    for (u32 n = 1; n < MOST_MEASUREMENTS; n++) {
        struct rates now;
        if (!rates_measure(&now, t, e)) return false;
        rates_better(best, &now);
        if (do_agree(&now, &last)) return true;
        last = now;
    }
    if (t->log) log_printf(t->log, 2, "device '%s' was measured beside other work: 'quern devices --measure' repeats that", t->driver->name);
    return true;
}

bool rates_at_first_use(struct rates *r, const struct device_target *t)
{
    struct arena a = {0};
    struct cache c;
    struct err e = {0};
    char hex[33];
    if (rates_find(r, t->driver, t->fingerprint)) return true;
    cache_open(&c, "devices", &a, &(struct log){0});
    hash_hex(key_of(t->driver, t->fingerprint), hex);
    int lock = c.folder.n ? os_lock(str_fmt(&a, "%.*s/%s.lock", STR_ARG(c.folder), hex).p, MOST_MEASUREMENTS * CHILD_SECONDS, t->stop) : -1;
    bool ok = lock >= 0 && (rates_find(r, t->driver, t->fingerprint) || measure_until_agreed(r, t, &e));
    if (ok) rates_keep(r, t->driver, t->fingerprint);
    else *r = (struct rates){0};
    if (e.code && e.code != ERR_STOPPED && t->log) log_printf(t->log, 2, "%s", e.msg);
    os_unlock(lock);
    arena_release(&a);
    return ok;
}
