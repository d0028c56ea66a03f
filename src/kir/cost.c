// SPDX-License-Identifier: Apache-2.0
//
// cost.c: static counts for one launch, for the cost model and for reports. One traversal
// with a stack of weights: the product of the trip counts around an instruction. Trip
// counts and conditions that depend on outer indices are evaluated at the middle of those
// indices, so the main path of a tiled loop counts and its tails do not. Data-dependent
// conditions are unknown: a branch counts half, a loop bound one iteration.
#include "kir/kir.h"

struct counter {
    const struct kir *k;
    struct kir_cost *cost;
    bool *known; /* per instruction: mid is its value */
    i64 *mid;
    double weight;
    struct {
        double before, then;
    } open[64]; /* weight outside; weight of an IF's first branch */
    u32 n_open;
};

static bool mid_of(const struct counter *c, kval v, i64 *out)
{
    *out = c->mid[v];
    return c->known[v];
}

static void learn(struct counter *c, kval v, i64 value)
{
    c->known[v] = true;
    c->mid[v] = value;
}

/* Threads that share a fragment; any size if none is required. */
static u32 sharers(const struct kir *k)
{
    return k->subgroup ? k->subgroup * kir_warpgroup(k) : (u32)i64_min(kir_threads(k), 32);
}

/* Elements of a value held by one thread. */
static double elements_of(const struct kir *k, const struct kir_ins *x)
{
    return x->role ? (double)x->rows * x->cols / sharers(k) : x->lanes;
}

/* Integer arithmetic on middle values. */
static void follow(struct counter *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    union kir_cell in[3] = {{0}}, out;
    if (x->lanes != 1 || dtype_is_float(x->dtype) || kir_op_info(x->op)->cls != 'P') return;
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
        if (kir_lanes(c->k, kir_operand(x, i)) != 1 || !mid_of(c, kir_operand(x, i), &in[i].i))
            return;
    enum dtype t = x->a ? kir_dtype(c->k, x->op == KI_SELECT ? x->b : x->a) : DT_I64;
    if (kir_scalar(x->op, t, x->dtype, in, &out)) learn(c, v, out.i);
}

static void enter(struct counter *c, double times)
{
    c->open[c->n_open].before = c->weight;
    c->weight *= times;
    c->open[c->n_open++].then = c->weight;
}

static void enter_grid(struct counter *c, kval v)
{
    i64 n = 1;
    mid_of(c, kir_at(c->k, v)->a, &n);
    n = i64_max(n, 0);
    learn(c, v, n / 2);
    enter(c, (double)n);
}

static void enter_loop(struct counter *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    i64 from, to, step = kir_at(c->k, x->c)->imm.i;
    if (!mid_of(c, x->a, &from) || !mid_of(c, x->b, &to)) {
        enter(c, 1);
        return;
    }
    double n = to > from ? ((double)to - (double)from + (double)step - 1) / (double)step : 0;
    i64 iterations = n < 1e15 ? (i64)n : (i64)1e15, half;
    if (!__builtin_mul_overflow(iterations / 2, step, &half) &&
        !__builtin_add_overflow(from, half, &half))
        learn(c, v, half);
    enter(c, (double)iterations);
}

static void enter_if(struct counter *c, kval v)
{
    i64 cond;
    bool is_known = mid_of(c, kir_at(c->k, v)->a, &cond);
    enter(c, is_known ? cond != 0 : 0.5);
}

static void enter_else(struct counter *c)
{
    double before = c->open[c->n_open - 1].before;
    c->weight = before - c->open[c->n_open - 1].then;
}

static void count_memory(struct counter *c, const struct kir_ins *x)
{
    const struct kir_ins *p = kir_at(c->k, x->a);
    bool is_far = kir_is_far(p);
    double n = (double)p->lanes * kir_lanes(c->k, x->b);
    if (x->op == KI_FLOAD || x->op == KI_FSTORE)
        n = elements_of(c->k, x->op == KI_FLOAD ? x : kir_at(c->k, x->c));
    double bytes = is_far ? c->weight * n * (double)dtype_size(p->dtype) : 0;
    if (x->op == KI_LOAD || x->op == KI_FLOAD) c->cost->bytes_loaded += bytes;
    else c->cost->bytes_stored += bytes;
}

/* By one thread of a workgroup; its branch counts for all threads. */
static void count_tile(struct counter *c, const struct kir_ins *x)
{
    const struct kir_map *m = &c->k->map.v[x->imm.i];
    double n = (double)m->box_rows * m->box_cols / kir_threads(c->k);
    c->cost->bytes_loaded += c->weight * n * (double)dtype_size(kir_dtype(c->k, x->a));
}

static double flops_of(const struct kir *k, const struct kir_ins *x)
{
    const struct kir_ins *a = kir_at(k, x->a);
    if (x->op == KI_FMMA) return 2 * elements_of(k, x) * a->cols;
    if (x->op == KI_DOT || x->op == KI_MMLA) return (x->op == KI_DOT ? 2.0 : 4.0) * a->lanes;
    bool is_arithmetic = kir_op_info(x->op)->rule == 'S' && kir_op_info(x->op)->cls == 'P';
    if (x->op == KI_HADD || x->op == KI_HMIN || x->op == KI_HMAX)
        return dtype_is_float(a->dtype) ? a->lanes - 1 : 0;
    if (!is_arithmetic || !dtype_is_float(x->dtype)) return 0;
    return (x->op == KI_FMA ? 2 : 1) * elements_of(k, x);
}

static void count_ins(struct counter *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    switch (x->op) {
    case KI_GRID: enter_grid(c, v); return;
    case KI_LOOP: enter_loop(c, v); return;
    case KI_IF: enter_if(c, v); return;
    case KI_ELSE: enter_else(c); return;
    case KI_END: c->weight = c->open[--c->n_open].before; return;
    case KI_CONST:
    case KI_PARAM:
    case KI_BUF:
    case KI_ALLOC: return;
    case KI_PREFETCH: break;
    case KI_TILE: count_tile(c, x); break;
    case KI_LOAD:
    case KI_STORE:
    case KI_FLOAD:
    case KI_FSTORE: count_memory(c, x); break;
    case KIR_NO_OP: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS: case KIR_SYNC:
    case KI_THREAD: case KI_SUBGROUP: case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FILL:
    case KI_FMMA: c->cost->flops += c->weight * flops_of(c->k, x); break;
    }
    c->cost->instructions += c->weight;
}

/* Registers: in each innermost loop (or grid body without one), vectors and floats alive at once,
   the elements of REG arrays it touches included. */

static bool is_register(const struct kir_ins *x)
{
    bool is_value =
        x->dtype != DT_NONE && x->op != KI_CONST && x->op != KI_ALLOC && x->op != KI_BUF;
    return is_value && x->op != KI_RAMP && (x->lanes > 1 || x->role || dtype_is_float(x->dtype));
}

/* Of one thread; a vector is one register. */
static u32 regs_of(const struct kir *k, const struct kir_ins *x)
{
    return x->role ? ((u32)x->rows * x->cols - 1) / sharers(k) + 1 : 1;
}

static u32 array_regs(const struct kir *k, kval from, kval to, u8 *seen)
{
    u32 n = 0;
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(k, v), *p = kir_at(k, x->a);
        bool is_reg =
            (x->op == KI_LOAD || x->op == KI_STORE) && p->op == KI_ALLOC && p->aux == KS_REG;
        if (is_reg && !seen[x->a]) n += (u32)i64_min(kir_at(k, p->a)->imm.i, 1024) * regs_of(k, p);
        if (is_reg) seen[x->a] = 1;
    }
    for (kval v = from; v < to; v++) seen[kir_at(k, v)->a] = 0;
    return n;
}

/* Values from outside that are used inside stay alive through the loop. */
static u32 range_regs(const struct kir *k, kval from, kval to, const kval *last)
{
    u32 now = 0, most = 0, outside = 0;
    kval *freed = mem_alloc((i64)sizeof(kval) * (to - from + 1));
    for (kval v = 1; v < from; v++)
        if (is_register(kir_at(k, v)) && last[v] >= from && last[v] < to)
            outside += regs_of(k, kir_at(k, v));
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(k, v);
        u32 regs = is_register(x) && last[v] ? regs_of(k, x) : 0;
        now += regs;
        most = now > most ? now : most;
        if (regs && last[v] < to) freed[last[v] - from] += regs;
        now -= freed[v - from];
    }
    mem_free(freed);
    return most + outside;
}

static void count_regs(const struct kir *k, struct kir_cost *c)
{
    struct {
        kval head;
        bool has_inner;
    } open[64];
    u32 n = 0;
    kval *last = mem_alloc((i64)sizeof(kval) * k->ins.n);
    u8 *seen = mem_alloc(k->ins.n);
    for (kval v = 1; v < k->ins.n; v++)
        for (u32 i = 0; i < kir_op_info(kir_at(k, v)->op)->n_args; i++)
            last[kir_operand(kir_at(k, v), i)] = v;
    for (kval v = 1; v < k->ins.n; v++) {
        enum kir_op op = kir_at(k, v)->op;
        for (u32 i = 0; i < n && (op == KI_GRID || op == KI_LOOP); i++) open[i].has_inner = true;
        if (kir_opens(op)) {
            open[n].head = v;
            open[n++].has_inner = op == KI_IF;
        }
        if (op != KI_END || open[--n].has_inner) continue;
        u32 regs = range_regs(k, open[n].head, v, last) + array_regs(k, open[n].head, v, seen);
        c->n_regs = regs > c->n_regs ? regs : c->n_regs;
    }
    mem_free(last);
    mem_free(seen);
}

void kir_count(const struct kir *k, const i64 *param, struct kir_cost *cost)
{
    struct counter c = {.k = k, .cost = cost, .weight = 1};
    *cost = (struct kir_cost){0};
    for (u32 i = 0; i < 3; i++) c.weight *= k->group[i] > 1 ? k->group[i] : 1;
    c.known = mem_alloc(k->ins.n);
    c.mid = mem_alloc((i64)sizeof(i64) * k->ins.n);
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op == KI_CONST && !dtype_is_float(x->dtype)) learn(&c, v, x->imm.i);
        else if (x->op == KI_PARAM) learn(&c, v, param[x->imm.i]);
        else if (x->op == KI_THREAD || x->op == KI_SUBGROUP) learn(&c, v, 0);
        else follow(&c, v);
        count_ins(&c, v);
    }
    count_regs(k, cost);
    mem_free(c.known);
    mem_free(c.mid);
}
