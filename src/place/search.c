// SPDX-License-Identifier: Apache-2.0
//
// The search for the best allocation: local search from several starts. Starts are each device
// for everything, the joint selection (joint.c), list scheduling, and the best division into a
// first and a second part. Moves give an operator, a run of consecutive operators of a
// sub-graph, or a whole sub-graph to another device. What no move improves is disturbed by
// random moves and improved again; the random numbers are always the same ones.
//
// The time of an allocation is exact where sub-graphs are cheap to evaluate: on described
// devices, and in small networks, whose sub-graphs recur. In large ones most candidates are
// compared by the shares that operators have in the time of the whole network, and only what
// that recommends is compiled.
#include "place/cost.h"

#include <math.h>
#include <string.h>

enum {
    TINY_NET = 12,      /* operators: all moves of two of them */
    SMALL_NET = 24,     /* every candidate is exact */
    MOST_EXACT = 150,   /* candidates of a large network */
    MOST_MOVES = 20000, /* candidates of a descent, of networks of at most */
    MOVES_NET = 64,     /* so many operators; fewer in larger ones, where each takes longer */
    DISTURBANCES = 12,
    SMALL_DISTURBANCES = 250,
};

struct score {
    double first, second;
    u32 parts;
};

struct searcher {
    struct place_costs *c;
    const struct place_search *o;
    u32 n, n_devices;
    bool is_exact;    /* the current comparisons */
    struct arena tmp; /* of one evaluation */
    struct arena a;
    u32 *best, *trial;
    struct score best_value;
    struct map
        known; /* devices of all operators -> index of a score, of exact ones of small networks */
    struct {
        struct score *v;
        u32 n, cap;
    } score;
    u64 n_tried;
    double end; /* time; 0: none */
    bool is_cut_short, failed;
    struct rng rng;
    struct err *e;
};

const char *place_aim_name(enum place_aim aim)
{
    static const char *const names[] = {"latency", "throughput", "energy"};
    return names[aim];
}

bool place_aim_parse(struct str s, enum place_aim *aim)
{
    for (u32 k = 0; k < N_PLACE_AIMS; k++)
        if (str_is(s, place_aim_name((enum place_aim)k))) {
            *aim = (enum place_aim)k;
            return true;
        }
    return false;
}

static double aimed(enum place_aim aim, double latency, double period, double joules)
{
    switch (aim) {
    case PLACE_LATENCY: return latency;
    case PLACE_THROUGHPUT: return period;
    case PLACE_ENERGY: return joules;
    case N_PLACE_AIMS: break;
    }
    unreachable();
}

/* --- evaluation --- */

static bool is_over(struct searcher *s)
{
    if (s->end > 0 && os_now() > s->end) s->is_cut_short = true;
    return s->is_cut_short || s->failed;
}

static struct score compute(struct searcher *s, const u32 *device)
{
    struct schedule x;
    const enum place_aim aim = s->o->aim;
    arena_reset(&s->tmp);
    s->n_tried++;
    if (s->failed || !mem_check(s->e, "placing the network", S("")) ||
        !schedule_make(&x, s->c, device, s->is_exact ? SCHEDULE_EXACT : SCHEDULE_ROUGH, &s->tmp,
                       s->e)) {
        s->failed = true;
        return (struct score){INFINITY, INFINITY, 0};
    }
    return (struct score){aimed(aim, x.latency, x.period, x.joules),
                          aim == PLACE_LATENCY ? x.sum : x.latency, x.n_parts};
}

static struct score evaluate(struct searcher *s, const u32 *device)
{
    if (s->n > SMALL_NET || !s->is_exact) return compute(s, device);
    const struct str key = {(const char *)device, (i64)sizeof *device * s->n};
    const u64 *at = map_get(&s->known, key);
    if (at) return s->score.v[*at];
    struct score v = compute(s, device);
    *arr_push(&s->a, &s->score) = v;
    map_put(&s->known, key, s->score.n - 1);
    return v;
}

/* Differences that are rounding errors do not count. */
static bool is_less(struct score a, struct score b)
{
    const double near = 1e-9;
    if (isinf(a.first)) return false;
    if (isinf(b.first) || fabs(a.first - b.first) > near * fabs(b.first)) return a.first < b.first;
    if (fabs(a.second - b.second) > near * fabs(b.second)) return a.second < b.second;
    return a.parts < b.parts;
}

/* --- moves --- */

static bool can_all(const struct searcher *s, u32 d)
{
    for (u32 k = 0; k < s->n; k++)
        if (!s->c->can[d][k]) return false;
    return true;
}

/* Tries `trial`; keeps it in `now` if it is better. */
static bool try_trial(struct searcher *s, u32 *now, struct score *value)
{
    struct score v = evaluate(s, s->trial);
    bool better = is_less(v, *value);
    if (better) *value = v, memcpy(now, s->trial, sizeof *now * s->n);
    else memcpy(s->trial, now, sizeof *now * s->n);
    return better;
}

/* Operators by sub-graph, in topological order. */
struct parts {
    u32 n;
    u32 *of;
    struct place_ops *op;
};

static void list_parts(const struct searcher *s, const u32 *device, struct parts *p,
                       struct arena *a)
{
    struct place_runs r;
    place_runs(&r, &s->c->dag, device, s->n_devices, 0, a);
    *p = (struct parts){.n = r.n, .of = r.of, .op = arena_array(a, struct place_ops, r.n + 1)};
    for (u32 k = 0; k < s->n; k++) *arr_push(a, &p->op[r.of[k]]) = k;
}

static bool give(struct searcher *s, const u32 *op, u32 n, u32 d)
{
    bool changed = false;
    for (u32 i = 0; i < n; i++) {
        if (!s->c->can[d][op[i]]) return false;
        changed |= s->trial[op[i]] != d;
        s->trial[op[i]] = d;
    }
    return changed;
}

static bool try_give(struct searcher *s, u32 *now, struct score *value, const u32 *op, u32 n)
{
    for (u32 d = 0; d < s->n_devices; d++) {
        if (is_over(s)) return false;
        if (!give(s, op, n, d)) memcpy(s->trial, now, sizeof *now * s->n);
        else if (try_trial(s, now, value)) return true;
    }
    return false;
}

/* Runs of operators of each sub-graph: whole, beginnings and ends, and in small ones all. */
static bool try_runs(struct searcher *s, u32 *now, struct score *value)
{
    struct arena a = {0};
    struct parts p;
    bool better = false;
    list_parts(s, now, &p, &a);
    for (u32 i = 0; i < p.n && !better; i++) {
        const u32 n = p.op[i].n, step = n > 40 ? n / 20 : 1;
        for (u32 from = 0; from < n && !better; from += step)
            for (u32 to = n; to > from && !better; to = to > step ? to - step : 0)
                if (n <= 12 || from == 0 || to == n)
                    better = try_give(s, now, value, p.op[i].v + from, to - from);
    }
    arena_release(&a);
    return better;
}

static bool try_singles(struct searcher *s, u32 *now, struct score *value)
{
    bool better = false;
    for (u32 k = 0; k < s->n; k++) better |= try_give(s, now, value, &k, 1);
    return better;
}

/* Marks everything that k needs (before), or that needs it (behind), k included. */
static void mark_cone(const struct searcher *s, u32 k, bool before, bool *in)
{
    const struct place_dag *d = &s->c->dag;
    in[k] = true;
    for (u32 i = 0; i < s->n; i++) {
        const u32 at = before ? s->n - 1 - i : i;
        const struct place_ops *next = before ? &d->before[at] : &d->behind[at];
        for (u32 n = 0; in[at] && n < next->n; n++) in[next->v[n]] = true;
    }
}

/* Everything that is connected with k, in whatever direction. */
static void mark_component(const struct searcher *s, u32 k, bool *in)
{
    u32 was = 0, now = 1;
    in[k] = true;
    while (now != was) {
        was = now, now = 0;
        for (u32 i = 0; i < s->n; i++)
            if (in[i]) mark_cone(s, i, true, in), mark_cone(s, i, false, in);
        for (u32 i = 0; i < s->n; i++) now += in[i];
    }
}

/* Branches: an operator with all that it needs, with all that needs it, with all that is connected
 * with it. */
static bool try_cones(struct searcher *s, u32 *now, struct score *value)
{
    struct arena a = {0};
    bool *in = arena_array(&a, bool, s->n + 1), better = false;
    u32 *op = arena_array(&a, u32, s->n + 1), n_kinds = s->n <= SMALL_NET ? 3 : 2;
    for (u32 k = 0; k < s->n && !is_over(s); k++)
        for (u32 kind = 0; kind < n_kinds; kind++) {
            u32 n = 0;
            memset(in, 0, sizeof *in * s->n);
            if (kind == 2) mark_component(s, k, in);
            else mark_cone(s, k, kind == 0, in);
            for (u32 i = 0; i < s->n; i++)
                if (in[i]) op[n++] = i;
            better |= try_give(s, now, value, op, n);
        }
    arena_release(&a);
    return better;
}

/* An operator and one that reads its result, together. */
static bool try_pairs(struct searcher *s, u32 *now, struct score *value)
{
    bool better = false;
    for (u32 k = 0; k < s->n && s->n <= SMALL_NET; k++)
        for (u32 i = 0; i < s->n; i++)
            if (i > k) better |= try_give(s, now, value, (u32[]){k, i}, 2);
    return better;
}

/* Two operators, each to any device. */
static bool try_any_two(struct searcher *s, u32 *now, struct score *value)
{
    const u32 n_ways = s->n_devices * s->n_devices;
    bool better = false;
    for (u32 k = 0; k < s->n && s->n <= TINY_NET; k++)
        for (u32 i = k + 1; i < s->n; i++)
            for (u32 way = 0; way < n_ways && !is_over(s); way++) {
                const u32 a = way / s->n_devices, b = way % s->n_devices;
                if (!s->c->can[a][k] || !s->c->can[b][i]) continue;
                s->trial[k] = a, s->trial[i] = b;
                better |= try_trial(s, now, value);
            }
    return better;
}

static void descend(struct searcher *s, u32 *now, struct score *value)
{
    const u64 most = s->n_tried + (s->n > MOVES_NET ? MOST_MOVES * MOVES_NET / s->n : MOST_MOVES);
    memcpy(s->trial, now, sizeof *now * s->n);
    while (!is_over(s) && s->n_tried < most)
        if (!try_runs(s, now, value) && !try_singles(s, now, value) && !try_cones(s, now, value) &&
            !try_pairs(s, now, value) && !try_any_two(s, now, value))
            break;
}

/* --- starts --- */

/* List scheduling: every operator goes where it ends first, with copies and what is busy in mind.
   factor: of the devices' times, and of copies behind them. */
static void list_schedule(struct searcher *s, u32 *device, const double *factor)
{
    const struct place_costs *c = s->c;
    struct arena a = {0};
    double *end = arena_array(&a, double, s->n + 1),
           *busy = arena_array(&a, double, s->n_devices + 1);
    for (u32 k = 0; k < s->n; k++) {
        double least = INFINITY;
        device[k] = UINT32_MAX;
        for (u32 d = 0; d < s->n_devices; d++) {
            if (!c->can[d][k]) continue;
            double ready = busy[d];
            for (u32 i = 0; i < c->dag.before[k].n; i++) {
                const u32 p = c->dag.before[k].v[i];
                const value_id v = node_first_out(graph_node(&c->x->g, c->x->op.v[p].node));
                const double copy =
                    v && device[p] != UINT32_MAX ? place_copy_seconds(c, v, device[p], d) : 0;
                ready = fmax(ready, end[p] + copy * factor[s->n_devices]);
            }
            const double key = ready + c->alone[d][k] * factor[d];
            if (device[k] == UINT32_MAX || key < least) least = key, device[k] = d;
        }
        end[k] = least;
        if (device[k] != UINT32_MAX) busy[device[k]] = least;
    }
    arena_release(&a);
}

struct starts {
    u32 **v;
    u32 n, cap;
};

static u32 *add_start(struct searcher *s, struct starts *to)
{
    u32 *device = arena_array(&s->a, u32, s->n + 1);
    *arr_push(&s->a, to) = device;
    return device;
}

static bool is_complete(const struct searcher *s, const u32 *device)
{
    for (u32 k = 0; k < s->n; k++)
        if (device[k] == UINT32_MAX || !s->c->can[device[k]][k]) return false;
    return true;
}

static void start_by_list(struct searcher *s, struct starts *to)
{
    u32 *device = add_start(s, to);
    double *factor = arena_array(&s->a, double, s->n_devices + 1);
    for (u32 d = 0; d <= s->n_devices; d++) factor[d] = 1;
    list_schedule(s, device, factor);
    if (!is_complete(s, device)) to->n--;
}

/* Every operator where it is fastest, or takes least energy. */
static void start_by_operator(struct searcher *s, struct starts *to)
{
    u32 *device = add_start(s, to);
    for (u32 k = 0; k < s->n; k++) {
        double least = INFINITY;
        device[k] = UINT32_MAX;
        for (u32 d = 0; d < s->n_devices; d++) {
            const double cost =
                s->c->alone[d][k] * (s->o->aim == PLACE_ENERGY ? s->c->d->v[d].watts : 1);
            if (s->c->can[d][k] && (device[k] == UINT32_MAX || cost < least))
                least = cost, device[k] = d;
        }
    }
    if (!is_complete(s, device)) to->n--;
}

/* For each two devices the best place to go over from one to the other. */
static void start_by_cuts(struct searcher *s, struct starts *to)
{
    enum { MOST_CUTS = 100 };
    const u32 step = s->n / MOST_CUTS + 1;
    for (u32 a = 0; a < s->n_devices; a++)
        for (u32 b = 0; b < s->n_devices && !is_over(s); b++) {
            u32 *device = a == b ? NULL : add_start(s, to);
            struct score least = {INFINITY, INFINITY, 0};
            for (u32 cut = 1; device && cut < s->n; cut += step) {
                for (u32 k = 0; k < s->n; k++) {
                    s->trial[k] = k < cut ? a : b;
                    for (u32 d = 0; d < s->n_devices && !s->c->can[s->trial[k]][k]; d++)
                        s->trial[k] = d;
                }
                struct score v = is_complete(s, s->trial) ? evaluate(s, s->trial) : least;
                if (is_less(v, least)) least = v, memcpy(device, s->trial, sizeof *device * s->n);
            }
            if (device && isinf(least.first)) to->n--;
        }
}

static bool list_starts(struct searcher *s, struct starts *to, double *bound)
{
    double total;
    u32 *device;
    for (u32 d = 0; d < s->n_devices; d++) {
        if (!can_all(s, d)) continue;
        device = add_start(s, to);
        for (u32 k = 0; k < s->n; k++) device[k] = d;
    }
    device = add_start(s, to);
    if (!joint_select(s->c, s->o->aim, true, device, &total, s->e)) return false;
    if (!is_complete(s, device)) to->n--;
    device = add_start(s, to);
    if (!joint_select(s->c, s->o->aim, false, device, &total, s->e)) return false;
    if (!is_complete(s, device)) to->n--;
    *bound = s->o->aim == PLACE_ENERGY ? total : total / s->n_devices;
    start_by_list(s, to);
    start_by_operator(s, to);
    start_by_cuts(s, to);
    return !s->failed;
}

/* --- search --- */

static bool all_described(const struct place_costs *c)
{
    for (u32 d = 0; d < c->d->n; d++)
        if (c->class_of[d] != UINT32_MAX) return false;
    return true;
}

static void offer(struct searcher *s, const u32 *device)
{
    struct score v = evaluate(s, device);
    if (!is_less(v, s->best_value)) return;
    s->best_value = v;
    memcpy(s->best, device, sizeof *device * s->n);
}

/* Changes some operators, or runs of them. */
static void disturb(struct searcher *s, u32 *now)
{
    for (i64 i = rng_range(&s->rng, 1, 4); i > 0; i--) {
        const u32 from = (u32)rng_range(&s->rng, 0, s->n - 1),
                  d = (u32)rng_range(&s->rng, 0, s->n_devices - 1);
        const u32 n = rng_range(&s->rng, 0, 1) ? 1 : (u32)rng_range(&s->rng, 1, s->n / 4 + 1);
        for (u32 k = from; k < s->n && k < from + n; k++)
            if (s->c->can[d][k]) now[k] = d;
    }
}

/* Another start: a list schedule for devices that are faster or slower than they are, or runs of
   operators on random devices. */
static void draw(struct searcher *s, u32 *now)
{
    u32 d = 0;
    if (rng_range(&s->rng, 0, 1)) {
        double *factor = arena_array(&s->a, double, s->n_devices + 1);
        for (; d <= s->n_devices; d++) factor[d] = exp2(4 * rng_f64(&s->rng) - 2);
        list_schedule(s, now, factor);
        return;
    }
    for (u32 k = 0; k < s->n; k++) {
        if (!k || rng_range(&s->rng, 0, 1)) d = (u32)rng_range(&s->rng, 0, s->n_devices - 1);
        if (s->c->can[d][k]) now[k] = d;
    }
}

/* Local search from `now`, by the current comparisons; the best is kept there. Now and then the
   walk goes on from a local optimum that is worse. */
static void improve(struct searcher *s, u32 *now, u32 n_disturbances)
{
    u32 *at = arena_array(&s->a, u32, s->n + 1), *other = arena_array(&s->a, u32, s->n + 1);
    struct score value = evaluate(s, now), at_value;
    descend(s, now, &value);
    memcpy(at, now, sizeof *now * s->n), at_value = value;
    for (u32 i = 0; i < n_disturbances && !is_over(s); i++) {
        memcpy(other, at, sizeof *now * s->n);
        if (i % 4 == 3 || (i % 4 == 1 && s->n <= SMALL_NET)) draw(s, other);
        else disturb(s, other);
        struct score v = evaluate(s, other);
        descend(s, other, &v);
        if (is_less(v, value)) value = v, memcpy(now, other, sizeof *now * s->n);
        if (is_less(v, at_value) || rng_range(&s->rng, 0, 3) == 0)
            at_value = v, memcpy(at, other, sizeof *now * s->n);
        if (i % 16 == 15) at_value = value, memcpy(at, now, sizeof *now * s->n);
    }
}

/* Large networks: moves of whole sub-graphs and halves of them, by their own times. */
static void improve_exactly(struct searcher *s)
{
    const u64 most = s->n_tried + MOST_EXACT;
    u32 *now = arena_array(&s->a, u32, s->n + 1);
    bool better = true;
    while (better && !is_over(s) && s->n_tried < most) {
        struct arena a = {0};
        struct parts p;
        memcpy(now, s->best, sizeof *now * s->n);
        memcpy(s->trial, now, sizeof *now * s->n);
        list_parts(s, now, &p, &a);
        better = false;
        for (u32 i = 0; i < p.n && !better && s->n_tried < most; i++) {
            const u32 n = p.op[i].n;
            better = try_give(s, now, &s->best_value, p.op[i].v, n);
            for (u32 part = 1; part < 4 && !better && n > 4; part++)
                better =
                    try_give(s, now, &s->best_value, p.op[i].v, n * part / 4) ||
                    try_give(s, now, &s->best_value, p.op[i].v + n * part / 4, n - n * part / 4);
        }
        memcpy(s->best, now, sizeof *now * s->n);
        arena_release(&a);
    }
}

static void search(struct searcher *s, struct starts *st)
{
    const bool is_small = s->n <= SMALL_NET || all_described(s->c);
    s->is_exact = true;
    for (u32 i = 0; i < st->n && !s->failed; i++) offer(s, st->v[i]);
    u32 n = s->n <= SMALL_NET ? SMALL_DISTURBANCES : DISTURBANCES;
    for (u32 i = 0; i <= st->n && !is_over(s);
         i++) { /* the best start once more, with disturbances */
        if (s->o->progress)
            s->o->progress(s->o->user,
                           &(struct place_progress){s->n_tried, i, st->n + 1, s->best_value.first});
        u32 *now = arena_array(&s->a, u32, s->n + 1);
        memcpy(now, i < st->n ? st->v[i] : s->best, sizeof *now * s->n);
        s->is_exact = is_small;
        improve(s, now, i < st->n ? 0 : n);
        s->is_exact = true;
        offer(s, now);
    }
    if (!is_small) improve_exactly(s);
}

bool place_expect(struct place_expected *x, struct place_costs *c, const struct place_allocation *y,
                  enum place_aim aim, struct arena *a, struct err *e)
{
    struct schedule s;
    if (!schedule_make(&s, c, y->device, SCHEDULE_FINAL, a, e)) return false;
    *x = (struct place_expected){.latency = s.latency,
                                 .period = s.period,
                                 .joules = s.joules,
                                 .seconds = s.seconds,
                                 .start = s.start,
                                 .busy = s.busy};
    x->value = aimed(aim, s.latency, s.period, s.joules);
    x->y.device = arena_array(a, u32, c->x->op.n + 1);
    memcpy(x->y.device, y->device, sizeof *y->device * c->x->op.n);
    if (!place_parts_of(&x->parts, c->x, y, s.of, s.n_parts, a, e)) return false;
    x->parts.least = s.least, x->parts.is_minimal = s.is_minimal;
    return true;
}

/* The best device for everything, and whether its schedule is no worse than the best one found. */
static bool compare_singles(struct searcher *s, struct place_found *f, struct arena *a)
{
    f->single = UINT32_MAX, f->single_value = INFINITY;
    for (u32 d = 0; d < s->n_devices; d++) {
        struct place_expected x;
        if (!can_all(s, d)) continue;
        for (u32 k = 0; k < s->n; k++) s->trial[k] = d;
        if (!place_expect(&x, s->c, &(struct place_allocation){s->trial}, s->o->aim, a, s->e))
            return false;
        if (x.value < f->single_value) f->single = d, f->single_value = x.value;
        if (x.value < f->best.value) f->best = x;
    }
    return true;
}

static bool check_aim(const struct searcher *s)
{
    for (u32 d = 0; d < s->n_devices && s->o->aim == PLACE_ENERGY; d++)
        if (!(s->c->d->v[d].watts > 0))
            return err_set(
                s->e, ERR_USAGE,
                "energy needs the watts of every device; '%.*s' has none: '%.*s=watts:10'",
                STR_ARG(s->c->d->v[d].name), STR_ARG(s->c->d->v[d].name));
    return true;
}

/* Every operator on the first device that can run it. */
static bool start_anyhow(struct searcher *s)
{
    for (u32 k = 0; k < s->n; k++) {
        u32 d = 0;
        while (d < s->n_devices && !s->c->can[d][k]) d++;
        if (d == s->n_devices)
            return err_set(s->e, ERR_NOTHING, "none of the devices can run operator '%.*s'",
                           STR_ARG(s->c->x->op.v[k].name));
        s->best[k] = d;
    }
    return true;
}

bool place_search(struct place_found *f, struct place_costs *c, const struct place_search *o,
                  struct arena *a, struct err *e)
{
    struct searcher s = {.c = c,
                         .o = o,
                         .n = c->x->op.n,
                         .n_devices = c->d->n,
                         .rng = rng_seed(1),
                         .e = e,
                         .best_value = {INFINITY, INFINITY, 0}};
    struct starts st = {0};
    *f = (struct place_found){.best = {.value = INFINITY}};
    s.end = o->seconds > 0 ? os_now() + o->seconds : 0;
    map_init(&s.known, &s.a);
    s.best = arena_array(&s.a, u32, s.n + 1), s.trial = arena_array(&s.a, u32, s.n + 1);
    bool ok = check_aim(&s) && start_anyhow(&s) && (!s.n || list_starts(&s, &st, &f->bound));
    if (ok && s.n) search(&s, &st);
    ok = ok && !s.failed &&
         (!s.n || !isinf(s.best_value.first) ||
          err_set(e, ERR_NOTHING, "no allocation to these devices can run"));
    ok = ok && place_expect(&f->best, c, &(struct place_allocation){s.best}, o->aim, a, e) &&
         compare_singles(&s, f, a);
    f->n_tried = s.n_tried, f->n_compiled = c->n_parts, f->is_cut_short = s.is_cut_short;
    arena_release(&s.tmp);
    arena_release(&s.a);
    return ok;
}
