// SPDX-License-Identifier: Apache-2.0
//
// group_filter: filters with weights of their own for every pixel (quern::Filter) by groups of threads. A thread has a vector of
// neighbouring pixels of a row with sums for all channels, or as many as have registers, so that each weight is read once, side by side with those of the
// thread's neighbours; what taps meet comes through the caches. Threads away from the borders have code without tests.
#include "gen/gen_filter.h"
#include "gen/gen_group.h"

#include <math.h>

enum { P_THREADS, P_PX, P_VEC, P_JU, N_PARAM };
enum { MAX_SUMS = 48, MAX_WRITTEN = 400 /* multiply-adds */ };

static const i32 v_threads[] = {32, 64, 128, 256};
static const i32 v_px[] = {1, 4, 8, 16, 32, 64, 128};
static const i32 v_vec[] = {1, 2, 4};
static const i32 v_ju[] = {1, 2, 4, 8};

static const struct gen_param param[N_PARAM] = {
    [P_THREADS] = {"threads", "threads of a group", v_threads, countof(v_threads)},
    [P_PX] = {"px", "threads along x, the others along y", v_px, countof(v_px)},
    [P_VEC] = {"vec", "pixels of a thread", v_vec, countof(v_vec)},
    [P_JU] = {"ju", "taps of a row written out", v_ju, countof(v_ju)},
};

struct work {
    struct emit *m;
    struct filtering q;
    struct group g;
    struct result r;
    i64 vec, ju, block; /* block: channels that have sums at once */
    kval n, y, x;       /* image, first pixel */
    kval acc;           /* REG array [channel of the block, the sum of weights behind them] */
};

/* Channels c .. c+n-1. */
struct pass {
    kval c;
    i64 n;
    bool inside; /* all that taps meet exists */
};

/* What a tap at position `tap` of the kernel meets along axis i at p; with ok: kept inside, and whether it was. */
static kval meet(const struct work *w, u32 i, kval p, kval tap, kval *ok)
{
    struct kir *k = w->m->k;
    const struct op_filter *f = &w->q.f;
    sym size = graph_value(w->q.g, w->q.met)->shape.dim[2 + i];
    kval off = kir_add_i(k, kir_mul_i(k, tap, f->dilation[i]), -f->begin[i]);
    kval at = f->splat ? kir_sub(k, p, off) : kir_add(k, p, off);
    if (i && w->vec > 1) at = kir_ramp(k, at, 1, (u32)w->vec);
    if (!ok) return at;
    kval in = kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), at), kir_lt(k, at, emit_size(w->m, size)));
    *ok = *ok ? kir_bin(k, KI_AND, kir_splat(k, *ok, (u32)w->vec), kir_splat(k, in, (u32)w->vec)) : in;
    return emit_clamp(w->m, at, size);
}

static kval as_sum(const struct work *w, kval v) { return kir_splat(w->m->k, kir_cast(w->m->k, w->q.type, v), (u32)w->vec); }

static void add_to(const struct work *w, i64 slot, kval a, kval b)
{
    struct kir *k = w->m->k;
    kval at = kir_int(k, slot), old = kir_load(k, w->acc, at);
    kir_store(k, w->acc, at, b ? kir_fma(k, a, b, old) : kir_add(k, a, old));
}

static void add_tap(const struct work *w, const struct pass *p, kval i, kval j)
{
    struct kir *k = w->m->k;
    kval ok = 0, y = meet(w, 0, w->y, i, p->inside ? NULL : &ok), x = meet(w, 1, w->x, j, p->inside ? NULL : &ok);
    kval own = w->vec > 1 ? kir_ramp(k, w->x, 1, (u32)w->vec) : w->x;
    bool splat = w->q.f.splat;
    kval idx[4] = {w->n, kir_add(k, kir_mul_i(k, i, w->q.f.kernel[1]), j), splat ? y : w->y, splat ? x : own};
    kval weight = as_sum(w, emit_value(w->m, w->q.side, idx));
    if (ok) weight = kir_select(k, ok, weight, kir_const_f(k, w->q.type, (u32)w->vec, 0));
    for (i64 c = 0; c < p->n; c++)
        add_to(w, c, weight, as_sum(w, emit_value(w->m, w->q.met, (kval[]){w->n, kir_add_i(k, p->c, c), y, x})));
    if (w->q.f.normalize) add_to(w, p->n, weight, 0);
}

static void add_taps(const struct work *w, const struct pass *p)
{
    struct kir *k = w->m->k;
    i64 kw = w->q.f.kernel[1], whole = kw / w->ju * w->ju;
    kval zero = kir_int(k, 0), i = kir_loop(k, KL_SERIAL, zero, kir_int(k, w->q.f.kernel[0]), 1);
    kval j = whole > w->ju ? kir_loop(k, KL_SERIAL, zero, kir_int(k, whole), w->ju) : zero;
    for (i64 u = 0; u < w->ju; u++) add_tap(w, p, i, kir_add_i(k, j, u));
    if (whole > w->ju) kir_end(k);
    for (i64 u = whole; u < kw; u++) add_tap(w, p, i, kir_int(k, u));
    kir_end(k);
}

static void store(const struct work *w, const struct pass *p)
{
    struct kir *k = w->m->k;
    kval all = 0, x = w->vec > 1 ? kir_ramp(k, w->x, 1, (u32)w->vec) : w->x;
    if (w->q.f.normalize)
        all = kir_add(k, kir_load(k, w->acc, kir_int(k, p->n)), kir_const_f(k, w->q.type, (u32)w->vec, w->q.f.epsilon));
    for (i64 c = 0; c < p->n; c++) {
        kval sum = kir_load(k, w->acc, kir_int(k, c));
        if (all) sum = kir_bin(k, KI_DIV, sum, all);
        result_store(w->m, &w->r, (kval[]){w->n, kir_add_i(k, p->c, c), w->y, x}, sum, 0);
    }
}

/* Does all that the thread's taps meet exist? */
static kval is_inside(const struct work *w)
{
    struct kir *k = w->m->k;
    const struct op_filter *f = &w->q.f;
    kval all = 0;
    for (u32 i = 0; i < 2; i++) {
        i64 reach = (f->kernel[i] - 1) * f->dilation[i];
        kval from = kir_add_i(k, i ? w->x : w->y, f->splat ? f->begin[i] - reach : -f->begin[i]);
        kval to = kir_add_i(k, from, reach + (i ? w->vec : 1));
        kval in = kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), from), kir_bin(k, KI_LE, to, emit_dim(w->m, w->q.met, 2 + i)));
        all = all ? kir_bin(k, KI_AND, all, in) : in;
    }
    return all;
}

static void do_pass(const struct work *w, kval c, i64 n)
{
    struct kir *k = w->m->k;
    struct pass p = {c, n, true};
    for (i64 i = 0; i < n + w->q.f.normalize; i++) kir_store(k, w->acc, kir_int(k, i), kir_const_f(k, w->q.type, (u32)w->vec, 0));
    kir_if(k, is_inside(w));
    add_taps(w, &p);
    kir_else(k);
    p.inside = false;
    add_taps(w, &p);
    kir_end(k);
    store(w, &p);
}

static i64 block_of(const struct filtering *q, i64 vec) { return ceil_div(q->channels, ceil_div(q->channels, i64_max(1, MAX_SUMS / vec - q->f.normalize))); }

static sym parts(const struct work *w, u32 axis, i64 size)
{
    struct symtab *t = w->m->g->sym;
    return sym_cdiv(t, w->q.size[axis], sym_const(t, size));
}

static void grid(struct work *w, i64 px, i64 py)
{
    struct emit *m = w->m;
    struct kir *k = m->k;
    w->n = kir_grid(k, emit_size(m, w->q.batch));
    kval down = kir_grid(k, emit_size(m, parts(w, 0, py))), across = kir_grid(k, emit_size(m, parts(w, 1, px * w->vec)));
    group_enter(&w->g);
    w->y = kir_add(k, kir_mul_i(k, down, py), kir_div_i(k, w->g.t, px));
    w->x = kir_mul_i(k, kir_add(k, kir_mul_i(k, across, px), kir_mod_i(k, w->g.t, px)), w->vec);
    w->acc = kir_alloc(k, KS_REG, w->q.type, (u32)w->vec, kir_int(k, w->block + 1));
    kir_if(k, kir_bin(k, KI_AND, kir_lt(k, w->y, emit_size(m, w->q.size[0])), kir_lt(k, w->x, emit_size(m, w->q.size[1]))));
    i64 whole = w->q.channels / w->block * w->block;
    do_pass(w, whole > w->block ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), w->block) : kir_int(k, 0), w->block);
    if (whole > w->block) kir_end(k);
    if (whole < w->q.channels) do_pass(w, kir_int(k, whole), w->q.channels - whole);
    for (u32 i = 0; i < 4; i++) kir_end(k);
}

static void emit(struct emit *m, const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct work *w = arena_new(m->arena, struct work);
    const i32 *v = s->v;
    filtering_of(&w->q, t, OP_FILTER);
    w->m = m, w->vec = v[P_VEC], w->ju = v[P_JU], w->block = block_of(&w->q, w->vec);
    group_init(&w->g, m, v[P_THREADS], 0);
    emit_args(m);
    w->r = (struct result){.v = w->q.out, .inner = 3};
    if (!w->q.simple) result_open(m, &w->r, w->q.type);
    grid(w, v[P_PX], v[P_THREADS] / v[P_PX]);
    if (w->r.temp) gen_map_rest(m, t, caps, w->q.out, result_load, &w->r);
}

/* Choice. */

static bool is_legal(const struct filtering *q, const struct caps *caps, const i32 *v)
{
    i64 width = filtering_size(q, 1, NULL), height = filtering_size(q, 0, NULL), py = v[P_THREADS] / v[P_PX];
    if (v[P_PX] > v[P_THREADS] || v[P_JU] > q->f.kernel[1] || !group_is_legal(caps, v[P_THREADS], 0)) return false;
    if (!sym_divides(q->g->sym, v[P_VEC], q->size[1])) return false;
    if (v[P_JU] > 1 && v[P_JU] * block_of(q, v[P_VEC]) * v[P_VEC] > MAX_WRITTEN) return false;
    return (v[P_PX] <= 4 || v[P_PX] * v[P_VEC] < 2 * width) && (py <= 32 || py < 2 * height);
}

static bool match(const struct task *t, const struct caps *caps)
{
    struct filtering q;
    return caps->is_gpu && filtering_of(&q, t, OP_FILTER) && group_is_legal(caps, v_threads[0], 0);
}

static bool legal(const struct task *t, const struct caps *caps, const struct sched *s)
{
    struct filtering q;
    return filtering_of(&q, t, OP_FILTER) && is_legal(&q, caps, s->v);
}

/* Weights once from memory; what they meet from the caches, four times as fast for threads side by side. */
static double seconds(const struct filtering *q, const struct caps *caps, const i32 *v, const i64 *var)
{
    double w = (double)filtering_size(q, 1, var), h = (double)filtering_size(q, 0, var), vec = v[P_VEC], py = v[P_THREADS] / v[P_PX];
    struct group_load l = {.threads = v[P_THREADS]};
    l.groups = ceil(h / py) * ceil(w / (v[P_PX] * vec)) * (double)i64_max(1, gen_eval(q->g, q->batch, var));
    double passes = ceil((double)q->channels / (double)block_of(q, (i64)vec)), c = (double)q->channels;
    double tap = passes * (2 + vec * (v[P_JU] > 1 ? 1 : 1.5)) + 2.5 * c * vec;
    l.flops = 2 * l.groups * (double)l.threads * (double)q->taps * tap;
    bool rows = graph_value(q->g, q->side)->layout == LAYOUT_ROWS;
    double dense = fmin(1, (double)v[P_PX] * vec / 32);
    l.bytes = gen_bytes(q->g, q->side, var) * passes / (rows ? 0.3 + 0.7 * dense : 0.25) + gen_bytes(q->g, q->met, var) + gen_bytes(q->g, q->out, var);
    return group_seconds(caps, &l) + 0.2 * l.flops / gen_flop_rate(caps);
}

static double predict(const struct task *t, const struct caps *caps, const struct sched *s, const i64 *var)
{
    struct filtering q;
    return filtering_of(&q, t, OP_FILTER) ? seconds(&q, caps, s->v, var) : 1e9;
}

struct choice {
    struct filtering q;
    const struct caps *caps;
    const i64 *var;
};

static double cost(const void *user, const struct sched *s)
{
    const struct choice *c = user;
    return is_legal(&c->q, c->caps, s->v) ? seconds(&c->q, c->caps, s->v, c->var) : 0;
}

static void initial(const struct task *t, const struct caps *caps, const i64 *var, struct sched *out)
{
    struct choice c = {.caps = caps, .var = var};
    filtering_of(&c.q, t, OP_FILTER);
    *out = (struct sched){0};
    bool found = gen_best(&(struct gen_search){param, 0, N_PARAM, cost, &c}, out);
    assert(found);
    (void)found;
}

const struct gen gen_group_filter = {
    .version = 1,
    .name = "group_filter",
    .revision = 1,
    .param = param,
    .n_param = N_PARAM,
    .match = match,
    .initial = initial,
    .legal = legal,
    .emit = emit,
    .predict = predict,
};
