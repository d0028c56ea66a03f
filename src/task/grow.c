// SPDX-License-Identifier: Apache-2.0
//
// Growing of regions. Forward: an anchor fuses following pointwise nodes as long as exactly one value leaves the
// region, so a residual add or x*sigmoid(x) fuses but nothing is computed twice. Backward: views are cheap to
// recompute and are fused, but for concatenations that are read through others; pointwise nodes only if they have
// no other users, and no expensive values that are broadcast, such as buckets of relative positions. Node ids are in topological order (graph_sort ran).
#include "task/grow.h"

static void note_users(struct cutter *c)
{
    const struct graph *g = c->g;
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        for (u32 k = 0; k < x->in.n; k++) {
            value_id v = x->in.v[k];
            if (!v) continue;
            struct value_list *u = &c->users[v];
            if (u->n == 0 || u->v[u->n - 1] != n) *(arr_push(c->a, u)) = n;
        }
    }
}

void cutter_init(struct cutter *c, const struct graph *g, struct arena *a)
{
    *c = (struct cutter){.g = g, .a = a};
    c->users = arena_array(a, struct value_list, g->value.n);
    c->is_output = arena_array(a, bool, g->value.n);
    c->layout = arena_array(a, enum layout, g->value.n);
    c->in_blocks = arena_array(a, bool, g->value.n);
    c->owner = arena_array(a, u32, g->node.n);
    c->anchored = arena_array(a, struct node_set, g->node.n);
    c->seen = arena_array(a, u32, i64_max(g->node.n, g->value.n));
    c->search = arena_new(a, u32);
    note_users(c);
    for (u32 k = 0; k < g->output.n; k++) c->is_output[g->output.v[k]] = true;
    for (u32 k = 0; k < g->made.n; k++) c->is_output[g->made.v[k].v] = true;
}

struct node_set set_new(const struct cutter *c)
{
    return (struct node_set){.v = arena_array(c->a, node_id, MAX_REGION)};
}

struct node_set set_copy(const struct cutter *c, const struct node_set *s, u32 n)
{
    struct node_set r = set_new(c);
    for (u32 i = 0; i < n; i++) set_add(&r, s->v[i]);
    return r;
}

bool set_has(const struct node_set *s, node_id n)
{
    for (u32 i = 0; i < s->n; i++)
        if (s->v[i] == n) return true;
    return false;
}

void set_add(struct node_set *s, node_id n)
{
    assert(s->n < MAX_REGION && !set_has(s, n));
    s->v[s->n++] = n;
}

void set_sort(struct node_set *s)
{
    for (u32 i = 1; i < s->n; i++)
        for (u32 j = i; j > 0 && s->v[j - 1] > s->v[j]; j--) {
            node_id n = s->v[j];
            s->v[j] = s->v[j - 1], s->v[j - 1] = n;
        }
}

u32 cutter_search(const struct cutter *c) { return ++*c->search; }

bool node_is(const struct graph *g, node_id n, u32 props)
{
    return (op_of(g, n)->props & props) != 0;
}

value_id node_out(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    for (u32 k = 0; k < x->out.n; k++)
        if (x->out.v[k]) return x->out.v[k];
    unreachable();
}

static bool is_live(const struct cutter *c, const struct node_set *s, value_id v)
{
    if (c->is_output[v]) return true;
    for (u32 i = 0; i < c->users[v].n; i++)
        if (!set_has(s, c->users[v].v[i])) return true;
    return false;
}

u32 set_live_outs(const struct cutter *c, const struct node_set *s, value_id *v, u32 max)
{
    u32 n = 0;
    for (u32 i = 0; i < s->n; i++) {
        const struct node *x = graph_node(c->g, s->v[i]);
        for (u32 k = 0; k < x->out.n; k++) {
            if (!x->out.v[k] || !is_live(c, s, x->out.v[k])) continue;
            if (v && n < max) v[n] = x->out.v[k];
            n++;
        }
    }
    return n;
}

enum { MAX_SEARCH = 512 }; /* nodes visited before a dependency is assumed */

/* Whether node p, outside of the set, depends on it. Ids are
 * topological: nothing before the set's first node does. */
static bool depends(const struct cutter *c, const struct node_set *s, node_id first, node_id p)
{
    node_id stack[MAX_SEARCH];
    u32 n = 0, met = 0, search = cutter_search(c);
    if (p > first) stack[n++] = p;
    while (n) {
        const struct node *x = graph_node(c->g, stack[--n]);
        for (u32 k = 0; k < x->in.n; k++) {
            node_id q = x->in.v[k] ? graph_value(c->g, x->in.v[k])->producer : 0;
            if (q < first || c->seen[q] == search) continue;
            if (set_has(s, q) || ++met >= MAX_SEARCH) return true;
            c->seen[q] = search;
            stack[n++] = q;
        }
    }
    return false;
}

static node_id first_of(const struct node_set *s)
{
    node_id first = s->v[0];
    for (u32 i = 1; i < s->n; i++)
        if (s->v[i] < first) first = s->v[i];
    return first;
}

static bool inputs_ready(const struct cutter *c, const struct node_set *s, node_id n)
{
    const struct node *x = graph_node(c->g, n);
    node_id first = first_of(s);
    for (u32 k = 0; k < x->in.n; k++) {
        node_id p = x->in.v[k] ? graph_value(c->g, x->in.v[k])->producer : 0;
        if (p && !set_has(s, p) && depends(c, s, first, p)) return false;
    }
    return true;
}

bool set_feeds_itself(const struct cutter *c, const struct node_set *s, const value_id *out, u32 n)
{
    struct node_set made = set_new(c);
    for (u32 i = 0; i < n; i++)
        if (!set_has(&made, graph_value(c->g, out[i])->producer)) set_add(&made, graph_value(c->g, out[i])->producer);
    node_id first = first_of(&made);
    for (u32 i = 0; i < s->n; i++) {
        const struct node *x = graph_node(c->g, s->v[i]);
        for (u32 k = 0; k < x->in.n; k++) {
            node_id p = x->in.v[k] ? graph_value(c->g, x->in.v[k])->producer : 0;
            if (p && !set_has(s, p) && depends(c, &made, first, p)) return true;
        }
    }
    return false;
}

static bool same_reduction(const struct graph *g, node_id a, node_id b)
{
    struct op_reduce ra, rb;
    const struct op *oa = op_of(g, a), *ob = op_of(g, b);
    if (!oa->reduce || !ob->reduce) return false;
    if (!oa->reduce(g, graph_node(g, a), &ra) || !ob->reduce(g, graph_node(g, b), &rb))
        return false;
    if (!ra.keepdims || !rb.keepdims || ra.n_axes != rb.n_axes) return false;
    for (u32 i = 0; i < ra.n_axes; i++)
        if (ra.axis[i] != rb.axis[i]) return false;
    return shape_equal(&graph_value(g, graph_node(g, a)->in.v[0])->shape,
                       &graph_value(g, graph_node(g, b)->in.v[0])->shape);
}

/* Whether n may follow the anchor in one kernel. Its elements
 * must be the anchor's (or, for a reduction, those of a row). */
static bool fits_behind(const struct cutter *c, node_id anchor, node_id n)
{
    const struct graph *g = c->g;
    const struct shape *out = &graph_value(g, node_out(g, n))->shape;
    if (c->owner[n]) return false;
    if (node_is(g, anchor, OP_REDUCE)) {
        if (node_is(g, n, OP_REDUCE)) return same_reduction(g, anchor, n);
        if (!node_is(g, n, OP_POINTWISE)) return false;
        const struct shape *full = &graph_value(g, graph_node(g, anchor)->in.v[0])->shape;
        return shape_equal(out, full) ||
               shape_equal(out, &graph_value(g, node_out(g, anchor))->shape);
    }
    return node_is(g, n, OP_POINTWISE) &&
           shape_equal(out, &graph_value(g, node_out(g, anchor))->shape);
}

enum {
    MAX_USERS = 64,   /* of one value that are examined */
    MAX_ALONG = 32,   /* values that may be fused with one, examined */
    MAX_AGAIN = 8,    /* operations below which recomputing an element for each use is cheaper than storing and loading it */
    OFTEN = 16,       /* uses of each element, of MANY elements in all, from which on views that spread elements are not repeated */
    MANY = 1 << 14,
    MAX_COUNTED = 64, /* variables of sizes that are examined */
    MAX_CHOICE = 4,   /* parts of a concatenation up to which computing all for each element is cheaper than storing and loading */
};

/* The first node that reads a value of the set and may join it. */
static node_id next_behind(const struct cutter *c, const struct node_set *s, node_id anchor)
{
    node_id best = 0;
    for (u32 i = 0; i < s->n; i++) {
        const struct node *x = graph_node(c->g, s->v[i]);
        for (u32 k = 0; k < x->out.n; k++) {
            const struct value_list *u = &c->users[x->out.v[k]];
            for (u32 j = 0; x->out.v[k] && j < u->n && j < MAX_USERS; j++) {
                node_id n = u->v[j];
                if (n <= anchor || (best && n >= best) || set_has(s, n)) continue;
                if (fits_behind(c, anchor, n) && inputs_ready(c, s, n)) best = n;
            }
        }
    }
    return best;
}

/* Small integers: quantised values. */
static bool is_quantised(const struct cutter *c, value_id v)
{
    enum dtype t = graph_value(c->g, v)->dtype;
    return !dtype_is_float(t) && t != DT_BOOL && dtype_size(t) <= 2;
}

/* Whether v would be computed by the only node outside of the set that reads it. */
static bool is_left_to_reader(const struct cutter *c, const struct node_set *s, value_id v)
{
    const struct value_list *u = &c->users[v];
    bool is_sum = graph_value(c->g, v)->dtype == DT_I32; /* of bytes */
    return !c->is_output[v] && u->n == 1 && !set_has(s, u->v[0]) && node_is(c->g, u->v[0], is_sum ? OP_POINTWISE | OP_REDUCE : OP_POINTWISE);
}

/* A quantised value is stored as such: dequantising it is the reader's prologue. */
void grow_epilogue(const struct cutter *c, struct node_set *s, node_id anchor)
{
    u32 best = s->n, quantised = 0;
    value_id out = 0;
    while (s->n < MAX_REGION - 16) {
        node_id n = next_behind(c, s, anchor);
        if (!n) break;
        set_add(s, n);
        if (set_live_outs(c, s, &out, 1) != 1) continue;
        best = s->n;
        if (is_quantised(c, out)) quantised = best;
    }
    s->n = best;
    if (quantised && quantised < best && set_live_outs(c, s, &out, 1) == 1 && is_left_to_reader(c, s, out)) s->n = quantised;
}

/* How often the consumer uses elements of v, as in broadcasting. */
enum again { AGAIN_NOT, AGAIN_SOME, AGAIN_OFTEN };

/* Elements of a value, where unknown sizes are SOME; false: too many sizes. */
static bool usual_count(const struct cutter *c, value_id v, i64 *n)
{
    enum { SOME = 64 };
    struct graph *g = (struct graph *)c->g;
    i64 var[MAX_COUNTED];
    if (g->sym->var.n > MAX_COUNTED) return false;
    for (u32 i = 0; i < g->sym->var.n; i++) var[i] = SOME;
    return sym_eval(g->sym, shape_count(g->sym, &graph_value(g, v)->shape), var, n);
}

static enum again asks_again(const struct cutter *c, node_id consumer, value_id v)
{
    struct graph *g = (struct graph *)c->g;
    i64 out, in;
    const struct shape *asked = &graph_value(g, node_out(g, consumer))->shape, *has = &graph_value(g, v)->shape;
    if (!node_is(g, consumer, OP_POINTWISE | OP_VIEW) || op_of(g, consumer)->join || shape_equal(asked, has)) return AGAIN_NOT;
    if (shape_count(g->sym, asked) == shape_count(g->sym, has)) return AGAIN_NOT;
    if (!usual_count(c, node_out(g, consumer), &out) || !usual_count(c, v, &in) || out / 2 < in) return AGAIN_NOT;
    return out >= MANY && out / OFTEN >= in ? AGAIN_OFTEN : AGAIN_SOME;
}

/* A search for the nodes to fuse with a value. */
struct along {
    value_id stack[MAX_ALONG];
    u32 n;
    struct { value_id v; u32 users; } met[MAX_ALONG]; /* values of several users, and their number of visits */
    u32 n_met;
};

/* Users of elements: the shape of a value is known without computing it. */
static u32 count_readers(const struct cutter *c, value_id v)
{
    u32 n = 0;
    for (u32 i = 0; i < c->users[v].n && i < MAX_USERS; i++) n += !graph_value(c->g, node_out(c->g, c->users[v].v[i]))->sdata;
    return n;
}

/* Visits one of its readers: is it the last? */
static bool is_last_reader(const struct cutter *c, struct along *w, value_id v)
{
    u32 i = 0, n = count_readers(c, v);
    if (n <= 1) return true;
    while (i < w->n_met && w->met[i].v != v) i++;
    if (i == MAX_ALONG) return false;
    if (i == w->n_met) w->met[w->n_met].v = v, w->met[w->n_met++].users = 0;
    return ++w->met[i].users == n;
}

static void push_inputs(const struct cutter *c, struct along *w, node_id p)
{
    const struct node *x = graph_node(c->g, p);
    for (u32 k = 0; k < x->in.n && w->n < MAX_ALONG; k++) {
        bool twice = false;
        for (u32 i = 0; i < k; i++) twice |= x->in.v[i] == x->in.v[k];
        if (x->in.v[k] && !twice && !graph_value(c->g, x->in.v[k])->is_const) w->stack[w->n++] = x->in.v[k];
    }
}

/* A view that spreads elements: neighbours in its result need not be neighbours in its input. */
static bool spreads(const struct cutter *c, node_id n)
{
    const struct node *x = graph_node(c->g, n);
    return x->in.n == 1 && node_is(c->g, n, OP_VIEW) && asks_again(c, n, x->in.v[0]);
}

/* Whether an element of v would take much computation if its producers were fused. 64-bit integers are slow in vectors, and so are elements that
   a view spreads, which are loaded one by one. */
static bool is_much(const struct cutter *c, value_id v, bool often)
{
    struct along w = {.stack = {v}, .n = 1};
    u32 work = 0;
    while (w.n && work <= MAX_AGAIN) {
        value_id x = w.stack[--w.n];
        node_id p = graph_value(c->g, x)->producer;
        if (!p || c->owner[p] || c->is_output[x] || graph_value(c->g, x)->sdata) continue;
        bool moves = node_is(c->g, p, OP_VIEW);
        if (node_is(c->g, p, OP_WHOLE | OP_HEAVY) || (!moves && !node_is(c->g, p, OP_POINTWISE))) continue;
        if (!moves && x != v && !is_last_reader(c, &w, x)) continue;
        if (!moves) work += dtype_size(graph_value(c->g, x)->dtype) > 4 ? 2 : 1;
        else if (often && spreads(c, p)) return true;
        push_inputs(c, &w, p);
    }
    return work > MAX_AGAIN;
}

enum { MAX_VIEWS = 8 /* one behind the other, examined */ };

/* Is v a concatenation, or a part or another view of one? */
static bool is_joined(const struct cutter *c, value_id v)
{
    for (u32 i = 0; v && i < MAX_VIEWS; i++) {
        node_id p = graph_value(c->g, v)->producer;
        if (!p || !node_is(c->g, p, OP_VIEW)) return false;
        if (op_of(c->g, p)->join) return true;
        v = graph_node(c->g, p)->in.n ? graph_node(c->g, p)->in.v[0] : 0;
    }
    return false;
}

/* Concatenations through which others are read, by several nodes each, would be taken apart again by every reader, the last of a row of blocks through
   all before (channel shuffles, dual paths): they are values of their own. */
static bool is_nested(const struct cutter *c, const struct node_set *s, value_id v)
{
    if (count_readers(c, v) < 2 || !is_joined(c, v)) return false;
    for (u32 i = 0; i < s->n; i++)
        if (op_of(c->g, s->v[i])->join) return true;
    return false;
}

static bool has_matmul(const struct cutter *c, const struct node_set *s)
{
    for (u32 i = 0; i < s->n; i++)
        if (node_is(c->g, s->v[i], OP_MATMUL)) return true;
    return false;
}

/* Does a matmul of the set need v to know where its operand lies? It would be asked for at every element: where that is computed, it is a value of its own. */
static bool is_place(const struct cutter *c, const struct node_set *s, node_id consumer, value_id v)
{
    const struct node *x = graph_node(c->g, consumer);
    return node_is(c->g, consumer, OP_VIEW) && x->in.n == 2 && x->in.v[0] != v && dtype_is_int(graph_value(c->g, v)->dtype) && has_matmul(c, s);
}

static bool has_all_users(const struct cutter *c, const struct node_set *s, value_id v)
{
    for (u32 i = 0; i < c->users[v].n && c->users[v].n > 1; i++)
        if (!set_has(s, c->users[v].v[i])) return false;
    return true;
}

/* Is v computed by few operations from far fewer elements than it has, as masks of positions and padding are? A kernel of attention that computes it sees which
   keys it leaves out; of several readers each computes it again, which takes less than to load it. */
static bool is_from_little(const struct cutter *c, value_id v)
{
    struct along w = {.stack = {v}, .n = 1};
    i64 from = 0, own;
    for (u32 steps = 0; w.n; steps++) {
        value_id x = w.stack[--w.n];
        node_id p = graph_value(c->g, x)->producer;
        i64 n;
        bool is_computed = p && !c->owner[p] && !c->is_output[x] && node_is(c->g, p, OP_POINTWISE | OP_VIEW) && !node_is(c->g, p, OP_WHOLE | OP_HEAVY);
        if (steps == MAX_ALONG) return false;
        if (graph_value(c->g, x)->sdata) continue;
        if (is_computed) push_inputs(c, &w, p);
        else if (!usual_count(c, x, &n)) return false;
        else from += n;
    }
    return usual_count(c, v, &own) && own / OFTEN >= from && !is_much(c, v, false);
}

/* Does a node of the set read what another one computes, perhaps moved? */
static bool reads_through_views(const struct cutter *c, const struct node_set *s, node_id reader, node_id of)
{
    for (u32 steps = 0; steps < MAX_VIEWS; steps++) {
        const value_id v = node_out(c->g, of);
        node_id next = 0;
        for (u32 i = 0; i < c->users[v].n && i < MAX_USERS; i++) {
            const node_id n = c->users[v].v[i];
            if (n == reader) return true;
            if (set_has(s, n) && node_is(c->g, n, OP_VIEW)) next = n;
        }
        if (!next) return false;
        of = next;
    }
    return false;
}

/* Is v computed from 64-bit integers, and asked for OFTEN beside a product? Stored as what it is computed to, as a mask of padding, it is loaded faster. */
static bool is_wide(const struct cutter *c, const struct node_set *s, node_id consumer, value_id v)
{
    const node_id p = graph_value(c->g, v)->producer;
    const struct node *x = graph_node(c->g, p);
    i64 out, in;
    bool is_wide = false;
    for (u32 k = 0; k < x->in.n; k++) is_wide |= x->in.v[k] && dtype_size(graph_value(c->g, x->in.v[k])->dtype) > 4 && !graph_value(c->g, x->in.v[k])->is_const;
    if (!is_wide || dtype_size(graph_value(c->g, v)->dtype) > 4 || node_is(c->g, p, OP_VIEW) || !has_matmul(c, s)) return false;
    for (u32 i = 0; i < s->n && !node_is(c->g, consumer, OP_POINTWISE); i++)
        if (node_is(c->g, s->v[i], OP_POINTWISE) && reads_through_views(c, s, s->v[i], consumer)) consumer = s->v[i];
    return usual_count(c, node_out(c->g, consumer), &out) && usual_count(c, v, &in) && out / OFTEN >= in;
}

/* Whether recomputing the producer inside the consumer would be cheap. */
static bool comes_along(const struct cutter *c, const struct node_set *s, node_id consumer,
                        value_id v)
{
    const struct graph *g = c->g;
    node_id p = graph_value(g, v)->producer;
    if (!p || set_has(s, p) || c->owner[p] || c->is_output[v]) return false;
    if (node_is(g, p, OP_WHOLE | OP_HEAVY) || is_nested(c, s, v)) return false;
    if (!node_is(g, p, OP_VIEW)) {
        if (!node_is(g, p, OP_POINTWISE) || node_is(g, consumer, OP_WINDOW | OP_SAMPLE) || is_place(c, s, consumer, v)) return false;
        if (op_of(g, consumer)->join && graph_node(g, consumer)->in.n > MAX_CHOICE) return false;
        if (!has_all_users(c, s, v) && !(has_matmul(c, s) && is_from_little(c, v))) return false;
        if (is_wide(c, s, consumer, v)) return false;
    }
    enum again again = asks_again(c, consumer, v);
    return again == AGAIN_NOT || !is_much(c, v, again == AGAIN_OFTEN);
}

/* A node's elements are computed once for each distinct index. Pointwise nodes
 * request the same indices from their inputs, views another one for each input. */
enum { MAX_INDICES = 48, MAX_WORK = 256 };

struct work {
    u32 index[MAX_REGION][MAX_INDICES]; /* per node of the set, by numbers */
    u32 n[MAX_REGION];
    u32 last; /* number given out */
};

static bool work_ask(struct work *w, u32 i, u32 index)
{
    for (u32 k = 0; k < w->n[i]; k++)
        if (w->index[i][k] == index) return true;
    if (w->n[i] == MAX_INDICES) return false;
    w->index[i][w->n[i]++] = index;
    return true;
}

/* The indices that node i of the set requests from node j. */
static bool work_pass(const struct cutter *c, const struct node_set *s, struct work *w, u32 i, u32 j)
{
    const struct node *x = graph_node(c->g, s->v[i]);
    for (u32 k = 0; k < x->in.n; k++) {
        if (!x->in.v[k] || graph_value(c->g, x->in.v[k])->producer != s->v[j]) continue;
        bool same = node_is(c->g, s->v[i], OP_POINTWISE);
        for (u32 n = 0; n < w->n[i]; n++)
            if (!work_ask(w, j, same ? w->index[i][n] : ++w->last)) return false;
    }
    return true;
}

/* Whether the set, in any order, is a kernel of reasonable size. */
static bool is_small(const struct cutter *c, const struct node_set *set)
{
    struct node_set s = {.n = set->n};
    node_id v[MAX_REGION];
    struct work w = {.last = 0};
    u32 sum = 0, views = 0;
    for (u32 i = 0; i < s.n; i++) v[i] = set->v[i], views += !node_is(c->g, v[i], OP_POINTWISE);
    if (views < 4) return true; /* 3 views: each node with a few indices */
    s.v = v;
    set_sort(&s);
    for (u32 i = s.n; i-- > 0;) {
        for (u32 j = i + 1; j < s.n; j++)
            if (!work_pass(c, &s, &w, j, i)) return false;
        if (!w.n[i]) w.index[i][w.n[i]++] = ++w.last;
        sum += w.n[i];
    }
    return sum <= MAX_WORK;
}

/* The producer joins the set unless that makes a kernel of unreasonable size. */
static bool take_along(const struct cutter *c, struct node_set *s, node_id n)
{
    set_add(s, n);
    if (is_small(c, s)) return true;
    s->n--;
    return false;
}

/* Whether v joins several values that are no constants. */
static bool joins_several(const struct cutter *c, value_id v)
{
    node_id p = graph_value(c->g, v)->producer;
    u32 n = 0;
    if (!p || !op_of(c->g, p)->join) return false;
    const struct node *x = graph_node(c->g, p);
    for (u32 k = 0; k < x->in.n; k++) n += x->in.v[k] && !graph_value(c->g, x->in.v[k])->is_const;
    return n > 1;
}

static void grow_backwards(const struct cutter *c, struct node_set *s, bool is_behind_joins)
{
    for (u32 i = 0; i < s->n; i++) {
        const struct node *x = graph_node(c->g, s->v[i]);
        for (u32 k = 0; k < x->in.n && s->n < MAX_REGION; k++) {
            value_id v = x->in.v[k];
            if (v && !(is_behind_joins && joins_several(c, v)) && comes_along(c, s, s->v[i], v) &&
                take_along(c, s, graph_value(c->g, v)->producer)) {
                i = (u32)-1; /* a node's last user may just
                              *have joined: start again */
                break;
            }
        }
    }
    set_sort(s);
}

void grow_prologue(const struct cutter *c, struct node_set *s) { grow_backwards(c, s, false); }

void grow_prologue_behind_joins(const struct cutter *c, struct node_set *s) { grow_backwards(c, s, true); }
