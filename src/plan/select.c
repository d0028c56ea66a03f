// SPDX-License-Identifier: Apache-2.0
//
// The selector. State: the forms (value in a layout) still needed. The value whose producer is last
// in the graph is decided next: every region that produces it is tried, its other layouts are
// converted from the result, and the region's inputs are added to the state. Costs are additive, so
// the best completion of a state is independent of the path to it: states are memoised (dynamic
// programming over the frontier). Chains with skip connections have few states. The search is
// depth-first with an explicit stack, because networks are thousands of nodes deep.
//
// If a graph has too many or too wide states, the search is abandoned and the whole graph is
// decided by area flow, the estimate of technology mapping: a form's cost is its region's cost plus
// that of the region's inputs, each divided by its number of uses. Its time is proportional to the
// number of regions; the selection is marked as inexact.
#include "plan/plan.h"

#include <math.h>
#include <string.h>

enum {
    MAX_STATES = 200000,
    MAX_FORMS = 1 << 23, /* of all memoised states: 100 MB */
    MAX_CONV = 256       /* conversions after one region */
};

struct state {
    struct form *v; /* ascending by producer, value, layout, join */
    u32 n;
};

struct decided {
    double cost;
    i32 region; /* -1: cannot be completed */
};

/* A state whose regions are being tried. */
struct frame {
    struct state s;
    struct arena_mark mark; /* of chooser.tmp, before the state */
    u32 tried;              /* index of the next region of the last form's value */
    double step;            /* cost of the current one */
    double best;
    i32 region;
};

/* Area flow: the least cost of a form, and its region. */
struct flow {
    struct form f;
    double cost;
};

struct chooser {
    const struct cover *c;
    struct arena a;        /* of this search */
    struct arena tmp;      /* states of the current path, a stack */
    double *cost;          /* per region */
    struct value_list *by; /* per value: regions that produce it */
    struct map memo;       /* state -> index of decided */
    struct {
        struct decided *v;
        u32 n, cap;
    } done;
    i64 n_forms; /* in memo */
    struct {
        struct frame *v;
        u32 n, cap;
    } open;
    struct {
        struct flow *v;
        u32 n, cap;
    } *flow;      /* per value */
    struct {
        struct form *v;
        u32 n, cap;
    } *need;      /* per value, for area flow */
    u32 *uses;    /* per value */
    bool unfused; /* only single-node regions */
    bool no_joins;
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
    if (a.layout != b.layout) return a.layout < b.layout;
    return a.join != b.join ? a.join < b.join : a.device < b.device;
}

/* s->v has room. */
static void state_add(const struct chooser *k, struct state *s, struct form f)
{
    u32 i = s->n;
    while (i > 0 && !form_before(k, s->v[i - 1], f)) {
        if (form_equal(s->v[i - 1], f)) return;
        i--;
    }
    memmove(&s->v[i + 1], &s->v[i], sizeof s->v[0] * (s->n - i));
    s->v[i] = f;
    s->n++;
}

static bool is_given(const struct chooser *k, struct form f)
{
    const struct value *x = graph_value(k->c->g, f.v);
    return x->is_const || (x->producer == 0 && f.layout == x->layout && !f.join && !f.device) || cover_is_there(k->c, f);
}

/* The region that only copies a value to another placement or layout; -1: none. */
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

/* The form of v that region r produces; NULL: none. */
static const struct form *delivered(const struct region *r, value_id v)
{
    for (u32 i = 0; i < r->n_out; i++)
        if (r->out[i].v == v) return &r->out[i];
    return NULL;
}

/* Applies region r to the last value of the state: next = the forms needed then. Returns the cost
   including conversions; INFINITY: impossible. conv (may be NULL) receives the conversions. Further
   forms of a graph input are decided next, from its given form. */
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
        if (from && delivers(x, f)) continue;
        if (!from || !x->n_nodes) {
            next->v[next->n++] = f; /* already sorted */
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
        if (!is_given(k, x->in[i])) state_add(k, next, x->in[i]);
    return cost;
}

static bool is_join(const struct chooser *k, u32 r)
{
    const struct region *x = &k->c->region.v[r];
    return x->task == NO_TASK && ((x->n_in && x->in[0].join) || x->out[0].join);
}

/* Whether region r may produce a form (of an input of the graph or not). */
static bool is_open(const struct chooser *k, u32 r, struct form f)
{
    const struct region *x = &k->c->region.v[r];
    bool is_input = producer(k, f.v) == 0;
    if (isinf(k->cost[r]) || (x->n_nodes == 0) != is_input) return false;
    if (k->unfused && (x->n_nodes > 1 || is_join(k, r))) return false;
    return !is_input || delivers(x, f);
}

/* Exact search. */

static struct str state_key(const struct state *s)
{
    return (struct str){(const char *)s->v, (i64)sizeof s->v[0] * s->n};
}

static const struct decided *known(const struct chooser *k, const struct state *s)
{
    static const struct decided nothing = {0, -1};
    if (s->n == 0) return &nothing;
    const u64 *at = map_get(&k->memo, state_key(s));
    return at ? &k->done.v[*at] : NULL;
}

static void frame_open(struct chooser *k, struct state s, struct arena_mark m)
{
    *(arr_push(&k->a, &k->open)) = (struct frame){.s = s, .mark = m, .best = INFINITY, .region = -1};
}

/* All regions were tried. */
static double frame_close(struct chooser *k)
{
    assert(k->open.n > 0);
    struct frame *f = &k->open.v[--k->open.n];
    assert((f->region < 0) == !isfinite(f->best));
    *(arr_push(&k->a, &k->done)) = (struct decided){f->best, f->region};
    map_put(&k->memo, state_key(&f->s), k->done.n - 1);
    k->n_forms += f->s.n;
    arena_rewind(&k->tmp, f->mark);
    return f->best;
}

/* Tries the next applicable region of the frame's state; false: none left. */
static bool frame_next(struct chooser *k, struct frame *f, struct state *next)
{
    const struct form last = f->s.v[f->s.n - 1];
    const struct value_list *by = &k->by[last.v];
    while (f->tried < by->n) {
        u32 r = by->v[f->tried++];
        if (!is_open(k, r, last)) continue;
        next->v = arena_array(&k->tmp, struct form, f->s.n + k->c->region.v[r].n_in);
        f->step = take(k, &f->s, r, next, NULL, NULL);
        if (!isinf(f->step)) return true;
    }
    return false;
}

static void frame_offer(struct chooser *k, struct frame *f, double cost)
{
    if (cost >= f->best) return;
    f->best = cost;
    f->region = (i32)k->by[f->s.v[f->s.n - 1].v].v[f->tried - 1];
}

/* Decides all reachable states; false: too many. */
static bool search(struct chooser *k, const struct state *start)
{
    if (start->n == 0) return true;
    frame_open(k, *start, arena_mark(&k->tmp));
    while (k->open.n) {
        struct frame *f = &k->open.v[k->open.n - 1];
        struct arena_mark m = arena_mark(&k->tmp);
        struct state next;
        if (!frame_next(k, f, &next)) {
            double cost = frame_close(k);
            if (k->open.n) {
                f = &k->open.v[k->open.n - 1];
                frame_offer(k, f, f->step + cost);
            }
            continue;
        }
        const struct decided *d = known(k, &next);
        if (d) {
            frame_offer(k, f, f->step + d->cost);
            arena_rewind(&k->tmp, m);
        } else {
            if (k->done.n >= MAX_STATES || k->n_forms >= MAX_FORMS || k->open.n >= MAX_STATES ||
                (i64)k->open.n * next.n >= 4 * (i64)MAX_FORMS)
                return false;
            frame_open(k, next, m);
        }
    }
    return true;
}

static void write_choice(struct chooser *k, struct arena *a, struct choices *to, u32 region,
                         const i32 *conv, u32 n_conv)
{
    for (u32 i = n_conv; i > 0; i--) (arr_push(a, to))->region = (u32)conv[i - 1];
    (arr_push(a, to))->region = region;
}

static bool no_way(const struct chooser *k, value_id v, struct err *e)
{
    return err_set(e, ERR_NOTHING, "no way to compute '%.*s'", STR_ARG(graph_value(k->c->g, v)->name));
}

/* Follows the decisions from the outputs. */
static bool write_exact(struct chooser *k, struct arena *a, struct choices *to, struct state now,
                        struct err *e)
{
    while (now.n > 0) {
        i32 conv[MAX_CONV], region = known(k, &now)->region;
        u32 n_conv = 0;
        if (region < 0) return no_way(k, now.v[now.n - 1].v, e);
        struct state next = {
            .v = arena_array(&k->tmp, struct form, now.n + k->c->region.v[region].n_in)};
        take(k, &now, (u32)region, &next, conv, &n_conv);
        write_choice(k, a, to, (u32)region, conv, n_conv);
        now = next;
    }
    return true;
}

/* Area flow. */

static double flow_of(const struct chooser *k, struct form f)
{
    if (is_given(k, f)) return 0;
    for (u32 i = 0; i < k->flow[f.v].n; i++)
        if (form_equal(k->flow[f.v].v[i].f, f)) return k->flow[f.v].v[i].cost;
    return INFINITY;
}

static void flow_offer(struct chooser *k, struct form f, double cost)
{
    for (u32 i = 0; i < k->flow[f.v].n; i++) {
        struct flow *x = &k->flow[f.v].v[i];
        if (!form_equal(x->f, f)) continue;
        if (cost < x->cost) x->cost = cost;
        return;
    }
    *(arr_push(&k->a, &k->flow[f.v])) = (struct flow){f, cost};
}

static double region_flow(const struct chooser *k, u32 r)
{
    const struct region *x = &k->c->region.v[r];
    double cost = k->cost[r];
    if (k->no_joins && is_join(k, r)) return INFINITY;
    for (u32 i = 0; i < x->n_in; i++) {
        if (k->no_joins && x->in[i].join) return INFINITY;
        u32 uses = x->n_nodes ? k->uses[x->in[i].v] : 1;
        cost += flow_of(k, x->in[i]) / (uses ? uses : 1);
    }
    return cost;
}

/* Forms of value v, given those of its region's inputs: computed by a region, then converted. */
static void flow_value(struct chooser *k, value_id v)
{
    for (u32 copies = 0; copies < 2; copies++)
        for (u32 i = 0; i < k->by[v].n; i++) {
            u32 r = k->by[v].v[i];
            const struct region *x = &k->c->region.v[r];
            if ((x->n_nodes == 0) != copies || isinf(k->cost[r])) continue;
            if (k->unfused && (x->n_nodes > 1 || is_join(k, r))) continue;
            double cost = region_flow(k, r) / x->n_out;
            for (u32 o = 0; o < x->n_out && !isinf(cost); o++) flow_offer(k, x->out[o], cost);
        }
}

/* Cost of producing all needed forms of value v, and of the other outputs of region r, by r. */
static double deliver_cost(const struct chooser *k, u32 r, i32 *conv, u32 *n_conv)
{
    const struct region *x = &k->c->region.v[r];
    double cost = region_flow(k, r);
    u32 n = 0;
    for (u32 o = 0; o < x->n_out && !isinf(cost); o++) {
        const value_id v = x->out[o].v;
        for (u32 i = 0; i < k->need[v].n; i++) {
            struct form f = k->need[v].v[i];
            if (delivers(x, f)) continue;
            i32 cv = conversion(k, x->out[o], f);
            if (cv < 0 || n == MAX_CONV) return INFINITY;
            cost += k->cost[cv];
            conv[n++] = cv;
        }
    }
    *n_conv = n;
    return cost;
}

static void need_add(struct chooser *k, struct form f)
{
    if (is_given(k, f)) return;
    for (u32 i = 0; i < k->need[f.v].n; i++)
        if (form_equal(k->need[f.v].v[i], f)) return;
    *(arr_push(&k->a, &k->need[f.v])) = f;
}

static bool flow_decide(struct chooser *k, struct arena *a, struct choices *to, value_id v, struct err *e)
{
    i32 region = -1, conv[MAX_CONV], best_conv[MAX_CONV];
    u32 n_conv = 0, n_best = 0;
    double best = INFINITY;
    for (u32 i = 0; i < k->by[v].n; i++) {
        u32 r = k->by[v].v[i];
        if (!is_open(k, r, k->need[v].v[0])) continue;
        double cost = deliver_cost(k, r, conv, &n_conv);
        if (cost >= best) continue;
        best = cost, region = (i32)r, n_best = n_conv;
        memcpy(best_conv, conv, sizeof conv[0] * n_conv);
    }
    if (region < 0) return no_way(k, v, e);
    write_choice(k, a, to, (u32)region, best_conv, n_best);
    const struct region *x = &k->c->region.v[region];
    for (u32 o = 0; o < x->n_out; o++) k->need[x->out[o].v].n = 0;
    for (u32 i = 0; i < x->n_in; i++) need_add(k, x->in[i]);
    return true;
}

/* Conversions of a graph input to its needed forms. */
static bool flow_input(struct chooser *k, struct arena *a, struct choices *to, value_id v, struct err *e)
{
    while (k->need[v].n) {
        struct form f = k->need[v].v[--k->need[v].n];
        i32 region = -1;
        for (u32 i = 0; i < k->by[v].n && region < 0; i++)
            if (is_open(k, k->by[v].v[i], f)) region = (i32)k->by[v].v[i];
        if (region < 0) return no_way(k, v, e);
        write_choice(k, a, to, (u32)region, NULL, 0);
        for (u32 i = 0; i < k->c->region.v[region].n_in; i++) need_add(k, k->c->region.v[region].in[i]);
    }
    return true;
}

static bool write_flow(struct chooser *k, struct arena *a, struct choices *to,
                       const struct state *start, struct err *e)
{
    const struct graph *g = k->c->g;
    to->n = 0;
    k->flow = arena_alloc(&k->a, (i64)sizeof k->flow[0] * g->value.n);
    k->need = arena_alloc(&k->a, (i64)sizeof k->need[0] * g->value.n);
    for (value_id v = 1; v < g->value.n; v++)
        if (!producer(k, v)) flow_value(k, v);
    for (node_id n = 1; n < g->node.n; n++)
        for (u32 o = 0; o < graph_node(g, n)->out.n; o++)
            if (graph_node(g, n)->out.v[o]) flow_value(k, graph_node(g, n)->out.v[o]);
    for (u32 i = 0; i < start->n; i++) *(arr_push(&k->a, &k->need[start->v[i].v])) = start->v[i];
    for (node_id n = g->node.n; --n;)
        for (u32 o = graph_node(g, n)->out.n; o-- > 0;) {
            value_id v = graph_node(g, n)->out.v[o];
            if (v && k->need[v].n && !flow_decide(k, a, to, v, e)) return false;
        }
    for (value_id v = 1; v < g->value.n; v++)
        if (!producer(k, v) && !flow_input(k, a, to, v, e)) return false;
    return true;
}

/* Omits concatenations in place that conflict. */
static bool choose_flow(struct chooser *k, struct arena *a, struct choices *to,
                        const struct state *start, struct err *e)
{
    struct err first = {0};
    if (write_flow(k, a, to, start, &first)) return true;
    k->no_joins = true;
    return write_flow(k, a, to, start, e);
}

/* Both searches. */

static void index_regions(struct chooser *k)
{
    const struct cover *c = k->c;
    k->by = arena_array(&k->a, struct value_list, c->g->value.n);
    for (u32 r = 0; r < c->region.n; r++)
        for (u32 i = 0; i < c->region.v[r].n_out; i++)
            *(arr_push(&k->a, &k->by[c->region.v[r].out[i].v])) = r;
}

static void cost_regions(struct chooser *k, const struct selection *s)
{
    const struct cover *c = k->c;
    k->cost = arena_array(&k->a, double, c->region.n);
    for (u32 r = 0; r < c->region.n; r++) {
        const struct region *x = &c->region.v[r];
        k->cost[r] = x->seconds;
        if (x->task != NO_TASK) k->cost[r] += s->cost[x->task].ok ? s->cost[x->task].seconds : INFINITY;
    }
}

/* Orders dispatches by phase, because sizes of a phase are read before it; otherwise keeps the
   order. */
static void order_phases(struct chooser *k, struct choices *to)
{
    const u32 *phase = graph_phases(k->c->g, &k->a);
    struct choice *old = arena_array(&k->a, struct choice, to->n + 1);
    u32 n = 0, left = to->n;
    memcpy(old, to->v, to->n * sizeof *old);
    for (u32 p = 0; n < left; p++)
        for (u32 i = 0; i < left; i++)
            if (phase[producer(k, k->c->region.v[old[i].region].out[0].v)] == p) to->v[n++] = old[i];
}

static bool choose(struct chooser *k, struct selection *s, struct choices *to, struct arena *a,
                   bool *exact, struct err *e)
{
    const struct graph *g = k->c->g;
    struct state start = {.v = arena_array(&k->a, struct form, g->output.n + g->made.n)};
    map_init(&k->memo, &k->a);
    index_regions(k);
    cost_regions(k, s);
    k->uses = graph_use_counts(g, &k->a);
    for (u32 i = 0; i < g->output.n; i++)
        state_add(k, &start,
                  (struct form){g->output.v[i], graph_value(g, g->output.v[i])->layout, 0, 0});
    for (u32 i = 0; i < g->made.n; i++) {
        value_id v = g->made.v[i].v;
        if (v && graph_value(g, v)->producer)
            state_add(k, &start, (struct form){v, graph_value(g, v)->layout, 0, 0});
    }
    *exact = search(k, &start);
    bool ok = *exact ? write_exact(k, a, to, start, e) : choose_flow(k, a, to, &start, e);
    /* Decisions run from the outputs: the program is the reverse. */
    for (u32 i = 0, j = to->n; i + 1 < j; i++) {
        struct choice t = to->v[i];
        to->v[i] = to->v[--j];
        to->v[j] = t;
    }
    if (ok && g->made.n) order_phases(k, to);
    return ok;
}

static double sum_costs(const struct chooser *k, const struct choices *to)
{
    double sum = 0;
    for (u32 i = 0; i < to->n; i++) sum += k->cost[to->v[i].region];
    return sum;
}

static void chooser_release(struct chooser *k)
{
    arena_release(&k->tmp);
    arena_release(&k->a);
}

/* Cost of a call's bodies times the maximal number of iterations; of branches, the more expensive
   one. */
static void call_cost(const struct cover *c, const struct selection *s, const struct task *t, const i64 *var, struct task_cost *cost)
{
    enum { ASSUMED_TRIPS = 16 };
    struct op_call x;
    i64 trips = 1;
    u32 at;
    *cost = (struct task_cost){.ok = op_call_get(&t->g, graph_node(&t->g, t->anchor), &x)};
    if (!cost->ok) return;
    for (u32 b = 0; b < x.n_body; b++)
        if (cover_body(c, x.body[b], &at)) cost->seconds = fmax(cost->seconds, s->body[at].seconds);
    if (x.is_loop && (!sym_eval(t->g.sym, x.trip_count, var, &trips) || x.is_conditional)) trips = i64_min(trips, ASSUMED_TRIPS);
    cost->seconds *= (double)i64_max(0, i64_min(trips, 1 << 20));
}

/* Every selected region belongs to the cover, and has a kernel or needs none. */
static bool is_sound(const struct selection *s, const struct cover *c)
{
    for (u32 i = 0; i < s->choice.n; i++) {
        u32 r = s->choice.v[i].region;
        if (r >= c->region.n || (c->region.v[r].task != NO_TASK && !s->cost[c->region.v[r].task].ok)) return false;
    }
    return true;
}

bool plan_select(struct selection *s, const struct cover *c, const i64 *var, plan_cost_fn *cost,
                 void *user, struct arena *a, struct err *e)
{
    struct chooser k = {.c = c};
    assert(c->g && (cost || !c->task.n));
    *s = (struct selection){.cost = arena_array(a, struct task_cost, c->task.n)};
    s->body = arena_array(a, struct selection, c->body.n + 1);
    for (u32 b = 0; b < c->body.n; b++)
        if (!plan_select(&s->body[b], c->body.v[b], var, cost, user, a, e)) return false;
    for (u32 t = 0; t < c->task.n; t++) {
        if (!mem_check(e, "choosing kernels", S(""))) return false;
        if (task_is_call(c->task.v[t])) call_cost(c, s, c->task.v[t], var, &s->cost[t]);
        else s->cost[t].ok = cost(user, c->task.v[t], var, &s->cost[t]);
        if (isnan(s->cost[t].seconds)) s->cost[t].seconds = 0; /* predicted for empty sizes */
    }
    bool ok = choose(&k, s, &s->choice, a, &s->is_exact, e);
    s->seconds = sum_costs(&k, &s->choice);
    s->n_states = k.done.n;
    chooser_release(&k);
    assert(!ok || is_sound(s, c));
    return ok;
}

void plan_select_unfused(struct selection *s, const struct cover *c, struct arena *a)
{
    struct chooser k = {.c = c, .unfused = true};
    struct err none = {0};
    bool exact;
    if (!choose(&k, s, &s->unfused, a, &exact, &none)) s->unfused.n = 0;
    s->unfused_seconds = sum_costs(&k, &s->unfused);
    chooser_release(&k);
}
