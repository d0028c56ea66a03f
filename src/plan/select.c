// SPDX-License-Identifier: Apache-2.0
//
// The selector. State: the forms (value in a layout) still needed. The value whose producer stands
// last in the graph is decided next: every region that delivers it is tried, other layouts of it
// are converted, the region's inputs are needed from there on. Costs add, so the best completion of
// a state does not depend on how it was reached: states are remembered (dynamic programming over
// the frontier). Chains with skip connections have few states; where a graph has too many, the rest
// is decided by the locally cheapest region and the selection is marked as not exact.
#include "plan/plan.h"

#include <math.h>
#include <string.h>

enum { MAX_STATES = 200000, MAX_NEED = 256, MAX_CONV = 32 };

struct state {
    struct form v[MAX_NEED];
    u32 n;
}; /* ascending by producer, value, layout, join */

struct decided {
    double cost;
    i32 region;
}; /* -1: cannot be completed */

struct chooser {
    const struct cover *c;
    struct arena *a;
    struct arena tmp;      /* states on the way, rewound behind each attempt */
    double *cost;          /* per region */
    struct value_list *by; /* per value: regions that deliver it */
    struct map memo;       /* state -> index of decided */
    struct {
        struct decided *v;
        u32 n, cap;
    } done;
    bool greedy;
    bool unfused; /* only regions of one node */
};

static node_id producer(const struct chooser *k, value_id v)
{
    return graph_value(k->c->g, v)->producer;
}

static bool form_before(const struct chooser *k, struct form a, struct form b)
{
    node_id pa = producer(k, a.v), pb = producer(k, b.v);
    if (pa != pb) return pa < pb;
    if (a.v != b.v) return a.v < b.v;
    return a.layout != b.layout ? a.layout < b.layout : a.join < b.join;
}

static bool state_add(const struct chooser *k, struct state *s, struct form f)
{
    u32 i = s->n;
    while (i > 0 && !form_before(k, s->v[i - 1], f)) {
        if (form_equal(s->v[i - 1], f)) return true;
        i--;
    }
    if (s->n == MAX_NEED) return false;
    memmove(&s->v[i + 1], &s->v[i], sizeof s->v[0] * (s->n - i));
    s->v[i] = f;
    s->n++;
    return true;
}

static bool is_given(const struct chooser *k, struct form f)
{
    const struct value *x = graph_value(k->c->g, f.v);
    return x->is_const || (x->producer == 0 && f.layout == x->layout && !f.join);
}

/* The region that only copies a value to another place or layout; -1: none. */
static i32 conversion(const struct chooser *k, struct form from, struct form to)
{
    for (u32 i = 0; i < k->by[to.v].n; i++) {
        const struct region *r = &k->c->region.v[k->by[to.v].v[i]];
        if (r->n_nodes == 0 && form_equal(r->in[0], from) && form_equal(r->out[0], to))
            return (i32)k->by[to.v].v[i];
    }
    return -1;
}

static bool delivers(const struct region *r, struct form f)
{
    for (u32 i = 0; i < r->n_out; i++)
        if (form_equal(r->out[i], f)) return true;
    return false;
}

/* The form in which region r delivers v; NULL: none. */
static const struct form *delivered(const struct region *r, value_id v)
{
    for (u32 i = 0; i < r->n_out; i++)
        if (r->out[i].v == v) return &r->out[i];
    return NULL;
}

/* Takes region r for the last value of the state: next = what is needed then. Cost includes
   conversions; INFINITY: impossible. conv (may be NULL) receives the conversions. What an input of
   the graph is needed as besides is decided next, from where it is given. */
static double take(const struct chooser *k, const struct state *s, u32 r, struct state *next,
                   i32 *conv, u32 *n_conv)
{
    const struct region *x = &k->c->region.v[r];
    double cost = k->cost[r];
    u32 n = 0;
    next->n = 0;
    for (u32 i = 0; i < s->n; i++) {
        struct form f = s->v[i];
        const struct form *from = delivered(x, f.v);
        if (delivers(x, f)) continue;
        if (!from || !x->n_nodes) {
            if (!state_add(k, next, f)) return INFINITY;
        } else {
            i32 cv = conversion(k, *from, f);
            if (cv < 0 || n == MAX_CONV) return INFINITY;
            cost += k->cost[cv];
            if (conv) conv[n] = cv;
            n++;
        }
    }
    if (n_conv) *n_conv = n;
    for (u32 i = 0; i < x->n_in; i++)
        if (!is_given(k, x->in[i]) && !state_add(k, next, x->in[i])) return INFINITY;
    return cost;
}

/* The value decided next is the last form's. An input in a layout it does not come in: its
 * conversion is the only option. */
static double solve(struct chooser *k, const struct state *s, i32 *region);

static double try_region(struct chooser *k, const struct state *s, u32 r, bool only_here)
{
    struct arena_mark m = arena_mark(&k->tmp);
    struct state *next = arena_new(&k->tmp, struct state);
    double cost = take(k, s, r, next, NULL, NULL);
    i32 unused;
    if (!isinf(cost) && !only_here) cost += solve(k, next, &unused);
    arena_rewind(&k->tmp, m);
    return cost;
}

static bool is_join(const struct chooser *k, u32 r) { return k->c->region.v[r].task == NO_TASK; }

static double solve_new(struct chooser *k, const struct state *s, i32 *region)
{
    value_id v = s->v[s->n - 1].v;
    bool is_input = producer(k, v) == 0;
    double best = INFINITY;
    *region = -1;
    for (u32 i = 0; i < k->by[v].n; i++) {
        u32 r = k->by[v].v[i];
        if (isinf(k->cost[r]) || (k->c->region.v[r].n_nodes == 0) != is_input) continue;
        if (k->unfused && (k->c->region.v[r].n_nodes > 1 || is_join(k, r))) continue;
        if (k->greedy && is_join(k, r) && *region >= 0) continue; /* free only at first sight */
        if (is_input && !delivers(&k->c->region.v[r], s->v[s->n - 1])) continue;
        double cost = try_region(k, s, r, k->greedy);
        if (cost < best) best = cost, *region = (i32)r;
    }
    if (k->greedy && *region >= 0) return try_region(k, s, (u32)*region, false); /* to its end */
    return best;
}

static double solve(struct chooser *k, const struct state *s, i32 *region)
{
    *region = -1;
    if (s->n == 0) return 0;
    struct str key = {(const char *)s->v, (i64)sizeof s->v[0] * s->n};
    u64 *known = map_get(&k->memo, key);
    if (known) {
        *region = k->done.v[*known].region;
        return k->done.v[*known].cost;
    }
    if (k->done.n > MAX_STATES) k->greedy = true;
    double cost = solve_new(k, s, region);
    *(arr_push(k->a, &k->done)) = (struct decided){cost, *region};
    map_put(&k->memo, key, k->done.n - 1);
    return cost;
}

static void index_regions(struct chooser *k)
{
    const struct cover *c = k->c;
    k->by = arena_array(k->a, struct value_list, c->g->value.n);
    for (u32 r = 0; r < c->region.n; r++)
        for (u32 i = 0; i < c->region.v[r].n_out; i++)
            *(arr_push(k->a, &k->by[c->region.v[r].out[i].v])) = r;
}

static void cost_regions(struct chooser *k, const struct selection *s)
{
    const struct cover *c = k->c;
    k->cost = arena_array(k->a, double, c->region.n);
    for (u32 r = 0; r < c->region.n; r++) {
        const struct region *x = &c->region.v[r];
        if (x->task != NO_TASK) k->cost[r] = s->cost[x->task].ok ? s->cost[x->task].seconds : INFINITY;
    }
}

/* All of a phase comes before the next one, whose sizes are made by then; else in the order as it is. */
static void order_phases(struct chooser *k, struct choices *to)
{
    const u32 *phase = graph_phases(k->c->g, k->a);
    struct choice *old = arena_array(k->a, struct choice, to->n + 1);
    u32 n = 0, left = to->n;
    memcpy(old, to->v, to->n * sizeof *old);
    for (u32 p = 0; n < left; p++)
        for (u32 i = 0; i < left; i++)
            if (phase[producer(k, k->c->region.v[old[i].region].out[0].v)] == p) to->v[n++] = old[i];
}

/* Walks the decisions from the outputs; the program runs the other way round. */
static bool write_down(struct chooser *k, struct choices *to, struct state *now, struct err *e)
{
    struct state *next = arena_new(k->a, struct state);
    while (now->n > 0) {
        i32 region, conv[MAX_CONV];
        u32 n_conv = 0;
        solve(k, now, &region);
        if (region < 0)
            return err_set(e, ERR_NOTHING, "no way to compute '%.*s'",
                           STR_ARG(graph_value(k->c->g, now->v[now->n - 1].v)->name));
        take(k, now, (u32)region, next, conv, &n_conv);
        for (u32 i = n_conv; i > 0; i--) (arr_push(k->a, to))->region = (u32)conv[i - 1];
        (arr_push(k->a, to))->region = (u32)region;
        struct state *t = now;
        now = next, next = t;
    }
    for (u32 i = 0, j = to->n; i + 1 < j; i++) {
        struct choice t = to->v[i];
        to->v[i] = to->v[--j];
        to->v[j] = t;
    }
    if (k->c->g->made.n) order_phases(k, to);
    return true;
}

static bool choose(struct chooser *k, struct selection *s, struct choices *to, double *seconds,
                   struct err *e)
{
    const struct graph *g = k->c->g;
    i32 first;
    map_init(&k->memo, k->a);
    index_regions(k);
    cost_regions(k, s);
    struct state *start = arena_new(k->a, struct state);
    for (u32 i = 0; i < g->output.n; i++) {
        value_id v = g->output.v[i];
        if (!state_add(k, start, (struct form){v, graph_value(g, v)->layout, 0}))
            return err_set(e, ERR_UNSUPPORTED, "more than %d outputs", MAX_NEED);
    }
    for (u32 i = 0; i < g->made.n; i++) {
        value_id v = g->made.v[i].v;
        if (!v || !graph_value(g, v)->producer) continue;
        if (!state_add(k, start, (struct form){v, graph_value(g, v)->layout, 0}))
            return err_set(e, ERR_UNSUPPORTED, "more than %d outputs and sizes that are made", MAX_NEED);
    }
    *seconds = solve(k, start, &first);
    bool ok = write_down(k, to, start, e);
    arena_release(&k->tmp);
    return ok;
}

bool plan_select(struct selection *s, const struct cover *c, const i64 *var, plan_cost_fn *cost,
                 void *user, struct arena *a, struct err *e)
{
    struct chooser k = {.c = c, .a = a};
    *s = (struct selection){.cost = arena_array(a, struct task_cost, c->task.n)};
    for (u32 t = 0; t < c->task.n; t++) {
        s->cost[t].ok = cost(user, c->task.v[t], var, &s->cost[t]);
        if (isnan(s->cost[t].seconds)) s->cost[t].seconds = 0; /* a prediction for empty sizes */
    }
    bool ok = choose(&k, s, &s->choice, &s->seconds, e);
    s->is_exact = !k.greedy;
    s->n_states = k.done.n;
    return ok;
}

void plan_select_unfused(struct selection *s, const struct cover *c, struct arena *a)
{
    struct chooser k = {.c = c, .a = a, .unfused = true};
    struct err none = {0};
    if (!choose(&k, s, &s->unfused, &s->unfused_seconds, &none)) s->unfused.n = 0;
}
