// SPDX-License-Identifier: Apache-2.0
//
// Concatenations in place. The parts of a concatenation are written directly into one buffer,
// each by the kernel that computes it, and the concatenation itself is free. A join is such a
// buffer: the concatenation that it belongs to, and every value in it, which are its inputs
// and, if one of them is a concatenation along the same axis, that one's inputs, too.
// A concatenation whose inputs lie one behind the other in a later one's join lies there, too, and has no join of its own: a
// dense block, each of whose layers reads the concatenation of all before, takes one buffer, and no number of alternatives that
// grows with the square of its layers.
//
// The cover is extended by the resulting alternatives: each region once more with outputs or
// inputs inside a join instead of memory of their own; the concatenation as a region without
// a task, whose inputs and output are the same memory; copies into a join of values that are
// needed elsewhere as well (inputs and outputs of the graph, and inputs of several kernels).
//
// Not offered: constants as parts, the same value twice, contents known in symbols, blocked layouts.
#include "task/grow.h"

enum {
    MAX_VARIANTS = 32, /* of one region */
    MAX_DEPTH = 64,    /* concatenations of concatenations */
    MAX_APART = 64,    /* parts that are not concatenations themselves: each has another place, and so needs a kernel of its own, which
                          is built and measured. Larger ones are joined by levels of their tree (pass/tree.c), where places repeat */
};

struct joiner {
    struct cover *c;
    const struct cutter *cut;
    struct map *tasks;      /* see cover_add_task */
    u8 *made;               /* per value: bits of the layouts that a region produces it in */
    u32 *expanded;          /* per node: 1 + index of the join that replaces it, 0: none */
    struct value_list *of;  /* per value: 1 + index of the joins that it is a part of */
    struct err *e;
};

static node_id producer(const struct joiner *j, value_id v)
{
    return graph_value(j->cut->g, v)->producer;
}

/* parts */

static const struct join_part *find_part(const struct join *x, value_id v)
{
    for (u32 i = 0; i < x->part.n; i++)
        if (x->part.v[i].v == v) return &x->part.v[i];
    return NULL;
}

struct part cover_part(const struct cover *c, struct form f)
{
    if (!f.join) return (struct part){0};
    const struct join *x = &c->join.v[f.join - 1];
    const struct join_part *p = find_part(x, f.v);
    return (struct part){.whole = x->whole, .from = p->from, .axis = x->axis};
}

bool cover_is_there(const struct cover *c, struct form f)
{
    if (!f.join) return false;
    const struct join *x = &c->join.v[f.join - 1];
    const struct join_part *p = find_part(x, f.v);
    value_id in = graph_value(c->g, x->v)->shares;
    const struct value *v = graph_value(c->g, f.v);
    if (!in || f.v == in || !v->producer) return in && f.v == in;
    const struct node *n = graph_node(c->g, v->producer);
    sym start[MAX_RANK];
    const i64 *step;
    if (!str_is(n->op, "quern::Slice") || n->in.v[0] != in || op_get_syms(c->g, n, "start", start, MAX_RANK) != v->shape.rank) return false;
    bool ok = attr_ints(n, "step", &step) == v->shape.rank;
    for (u32 d = 0; d < v->shape.rank && ok; d++)
        ok = step[d] == 1 && start[d] == (d == x->axis ? p->from : sym_const(c->g->sym, 0)) && (d == x->axis || v->shape.dim[d] == graph_value(c->g, in)->shape.dim[d]);
    return ok;
}

static bool joins_along(const struct joiner *j, node_id n, u32 axis)
{
    u32 a;
    const struct op *op = op_of(j->cut->g, n);
    return op->join && op->join(j->cut->g, graph_node(j->cut->g, n), &a) && a == axis;
}

/* Adds the inputs of a concatenation that begins at `at`, and the inputs of inputs that
 * are concatenations, `deep` levels down; one that cannot be split stays one part. */
static bool add_parts(struct joiner *j, struct join *x, node_id n, sym at, u32 deep)
{
    const struct graph *g = j->cut->g;
    const struct node *nd = graph_node(g, n);
    for (u32 k = 0; k < nd->in.n; k++) {
        value_id v = nd->in.v[k];
        const struct value *part = graph_value(g, v);
        if (part->is_const || part->sdata || find_part(x, v)) return false;
        *(arr_push(j->c->arena, &x->part)) = (struct join_part){.v = v, .from = at};
        u32 mine = x->part.n - 1, n_parts = x->part.n;
        bool is_join = part->producer && joins_along(j, part->producer, x->axis);
        if (deep && is_join && j->cut->layout[v] == x->layout) {
            bool whole = add_parts(j, x, part->producer, at, deep - 1);
            x->part.v[mine].is_whole = whole;
            if (!whole) x->part.n = n_parts;
        }
        at = sym_add(g->sym, at, part->shape.dim[x->axis]);
    }
    return true;
}

static bool is_delivered(const struct joiner *j, struct form f)
{
    return j->made[f.v] >> f.layout & 1;
}

static void note_delivered(struct joiner *j)
{
    j->made = arena_array(j->cut->a, u8, j->cut->g->value.n);
    for (u32 r = 0; r < j->c->region.n; r++)
        for (u32 k = 0; k < j->c->region.v[r].n_out; k++)
            j->made[j->c->region.v[r].out[k].v] |= (u8)(1u << j->c->region.v[r].out[k].layout);
}

static u32 parts_apart(const struct join *x)
{
    u32 n = 0;
    for (u32 k = 0; k < x->part.n; k++) n += !x->part.v[k].is_whole;
    return n;
}

/* The concatenation as an empty region. */
static void add_join_region(struct joiner *j, u32 join, value_id v, u32 as)
{
    struct arena *a = j->c->arena;
    const struct join *x = &j->c->join.v[join];
    node_id n = producer(j, v);
    const struct node *nd = graph_node(j->cut->g, n);
    struct region r = {.n_nodes = 1, .n_in = nd->in.n, .n_out = 1, .task = NO_TASK};
    r.nodes = arena_new(a, node_id), *r.nodes = n;
    r.in = arena_array(a, struct form, r.n_in);
    r.out = arena_new(a, struct form), *r.out = (struct form){v, x->layout, as, 0};
    for (u32 k = 0; k < r.n_in; k++) r.in[k] = (struct form){nd->in.v[k], x->layout, join + 1, 0};
    *(arr_push(a, &j->c->region)) = r;
    j->expanded[n] = join + 1;
}

/* Whether the inputs of the concatenation lie in the join one behind the other, from `at` on; those that are concatenations along the same axis may do so
   by their own inputs. Then all of them become parts. */
static bool find_run(struct joiner *j, u32 join, node_id n, sym at, u32 deep)
{
    const struct graph *g = j->cut->g;
    const struct node *nd = graph_node(g, n);
    struct join *x = &j->c->join.v[join];
    value_id v = node_out(g, n);
    sym from = at;
    if (j->cut->layout[v] != x->layout || !is_delivered(j, (struct form){v, x->layout, 0, 0})) return false;
    for (u32 k = 0; k < nd->in.n; k++) {
        const struct value *in = graph_value(g, nd->in.v[k]);
        const struct join_part *p = find_part(x, nd->in.v[k]);
        bool is_join = !p && deep && in->producer && joins_along(j, in->producer, x->axis);
        if (p ? p->from != at : !is_join || !find_run(j, join, in->producer, at, deep - 1)) return false;
        at = sym_add(g->sym, at, in->shape.dim[x->axis]);
    }
    const struct join_part all = {.v = v, .from = from, .is_whole = true};
    *(arr_push(j->c->arena, &x->part)) = all;
    *(arr_push(j->c->arena, &j->of[v])) = join + 1;
    add_join_region(j, join, v, join + 1);
    return true;
}

/* The first value that the concatenation joins, which is none itself. */
static value_id first_leaf(const struct joiner *j, const struct join *x, value_id v)
{
    const struct graph *g = j->cut->g;
    for (u32 deep = 0; deep < MAX_DEPTH && !find_part(x, v) && graph_value(g, v)->producer && joins_along(j, graph_value(g, v)->producer, x->axis); deep++)
        v = graph_node(g, graph_value(g, v)->producer)->in.v[0];
    return v;
}

/* Makes the concatenation a part of a later one's join, where its inputs lie already. */
static bool try_within(struct joiner *j, node_id n, u32 axis)
{
    value_id v = node_out(j->cut->g, n);
    for (u32 i = 0; i < j->c->join.n; i++) {
        const struct join *x = &j->c->join.v[i];
        const struct join_part *p = x->axis == axis && !find_part(x, v) ? find_part(x, first_leaf(j, x, v)) : NULL;
        if (p && find_run(j, i, n, p->from, MAX_DEPTH)) return true;
    }
    return false;
}

static void try_join(struct joiner *j, node_id n)
{
    const struct graph *g = j->cut->g;
    struct join x = {0};
    const struct op *op = op_of(g, n);
    if (!op->join || j->expanded[n] || !op->join(g, graph_node(g, n), &x.axis)) return;
    x.v = node_out(g, n), x.layout = j->cut->layout[x.v];
    const struct value *v = graph_value(g, x.v);
    if (v->sdata || (x.layout != LAYOUT_ROWS && x.layout != LAYOUT_CLAST) || (!v->shares && try_within(j, n, x.axis))) return;
    x.whole = v->part.whole ? v->part.whole : v->shape.dim[x.axis]; /* a cache has unused rows behind it */
    if (!is_delivered(j, (struct form){x.v, x.layout, 0, 0})) return;
    bool ok = add_parts(j, &x, n, sym_const(g->sym, 0), MAX_DEPTH);
    if (!ok || parts_apart(&x) > MAX_APART) x.part.n = 0, ok = add_parts(j, &x, n, sym_const(g->sym, 0), 0);
    if (!ok || x.part.n < 2 || parts_apart(&x) > MAX_APART) return;
    *(arr_push(j->c->arena, &j->c->join)) = x;
    u32 join = j->c->join.n - 1;
    for (u32 k = 0; k < x.part.n; k++) *(arr_push(j->c->arena, &j->of[x.part.v[k].v])) = join + 1;
    add_join_region(j, join, x.v, 0);
    for (u32 k = 0; k < x.part.n; k++)
        if (x.part.v[k].is_whole) add_join_region(j, join, x.part.v[k].v, join + 1);
}

/* regions that write into joins or read from them */

/* The region computes the join's concatenation by itself: reading its parts from there is useless. */
static bool dissolves(const struct joiner *j, const struct region *r, u32 join)
{
    for (u32 i = 0; i < r->n_nodes; i++)
        if (j->expanded[r->nodes[i]] == join) return true;
    return false;
}

static struct form *nth_form(const struct region *r, u32 k)
{
    return k < r->n_in ? &r->in[k] : &r->out[k - r->n_in];
}

/* The k-th variant of the n-th form of region r: k = 0 is the original.
 * Inputs keep their layout, outputs get the join's. false: there are no more. */
static bool nth_way(const struct joiner *j, const struct region *r, u32 n, u32 k, struct form *f)
{
    *f = *nth_form(r, n);
    for (u32 i = 0; i < j->of[f->v].n && k; i++) {
        u32 join = j->of[f->v].v[i];
        enum layout l = j->c->join.v[join - 1].layout;
        if ((n < r->n_in && l != f->layout) || dissolves(j, r, join) || --k) continue;
        f->join = join, f->layout = l;
        return true;
    }
    return k == 0;
}

static struct form *copy_forms(struct arena *a, const struct form *from, u32 n)
{
    struct form *f = arena_array(a, struct form, n);
    for (u32 i = 0; i < n; i++) f[i] = from[i];
    return f;
}

/* The task of a region with the current placement of its forms. */
static bool place_task(struct joiner *j, struct region *r)
{
    struct arena *a = j->c->arena;
    const struct task *from = j->c->task.v[r->task];
    struct task *t = arena_new(a, struct task);
    struct part *part = arena_array(a, struct part, from->g.value.n);
    enum layout *layout = arena_array(a, enum layout, from->g.value.n);
    for (value_id v = 1; v < from->g.value.n; v++) {
        bool is_out = graph_is_output(&from->g, v), is_in = !graph_value(&from->g, v)->producer;
        for (u32 k = is_in ? 0 : r->n_in; k < r->n_in + (is_out ? r->n_out : 0); k++) {
            const struct form *f = nth_form(r, k);
            if (f->v == r->map_back[v]) part[v] = cover_part(j->c, *f), layout[v] = f->layout;
        }
    }
    if (!task_with_parts(t, from, a, part, layout, j->e)) return false;
    r->task = cover_add_task(j->c, j->tasks, t);
    return true;
}

static bool add_variant(struct joiner *j, u32 of, const u32 *way)
{
    struct arena *a = j->c->arena;
    struct region r = j->c->region.v[of];
    r.in = copy_forms(a, r.in, r.n_in);
    r.out = copy_forms(a, r.out, r.n_out);
    for (u32 k = 0; k < r.n_in + r.n_out; k++)
        nth_way(j, &j->c->region.v[of], k, way[k], nth_form(&r, k));
    if (!place_task(j, &r)) return false;
    *(arr_push(a, &j->c->region)) = r;
    return true;
}

/* All combinations of variants, the first being the original
 * region; those beyond MAX_VARIANTS are not offered. */
static bool add_variants(struct joiner *j, u32 of)
{
    const struct region r = j->c->region.v[of];
    u32 n = r.n_in + r.n_out, *way = arena_array(j->cut->a, u32, n);
    for (u32 made = 0, k = 0; made < MAX_VARIANTS; made++) {
        for (k = 0; k < n; k++) {
            struct form f;
            if (nth_way(j, &r, k, ++way[k], &f)) break;
            way[k] = 0;
        }
        if (k == n) break;
        if (!add_variant(j, of, way)) return false;
    }
    return true;
}

/* copies */

/* The value is also needed outside the join, or is produced there. */
static bool is_elsewhere(const struct joiner *j, value_id v, u32 join)
{
    node_id p = producer(j, v);
    return !p || node_is(j->cut->g, p, OP_CALL) || (j->expanded[p] && j->expanded[p] != join) || j->cut->is_output[v] ||
           j->cut->users[v].n > 1;
}

static bool add_copies(struct joiner *j, value_id v)
{
    const struct cutter *c = j->cut;
    const struct value *x = graph_value(c->g, v);
    enum layout l = x->producer ? c->layout[v] : x->layout;
    for (u32 i = 0; i < j->of[v].n; i++) {
        struct form to = {v, j->c->join.v[j->of[v].v[i] - 1].layout, j->of[v].v[i], 0};
        struct region r = {.n_in = 1, .n_out = 1};
        if (cover_is_there(j->c, to) || (!is_elsewhere(j, v, to.join) && to.layout == l)) continue;
        r.in = copy_forms(j->c->arena, &(struct form){v, l, 0, 0}, 1);
        r.out = copy_forms(j->c->arena, &to, 1);
        if (!cover_conversion(j->c, j->tasks, &r, j->e) || !place_task(j, &r)) return false;
        *(arr_push(j->c->arena, &j->c->region)) = r;
    }
    return true;
}

/* Whether an inner concatenation of a join is needed elsewhere, too: not only by concatenations of the join that are made there. */
static bool is_needed_alone(const struct joiner *j, value_id v, u32 join)
{
    const struct value_list *u = &j->cut->users[v];
    bool needed = j->cut->is_output[v];
    for (u32 i = 0; i < u->n; i++) needed = needed || j->expanded[u->v[i]] != join;
    return needed;
}

/* Removes other producers of the joins' results, except inner concatenations that are needed elsewhere, too; users come first, because those that keep
   their own producers need their inputs alone. */
static void drop_others(struct joiner *j)
{
    u32 n = 0;
    for (node_id i = j->cut->g->node.n; --i;) {
        u32 join = j->expanded[i];
        value_id v = join ? node_out(j->cut->g, i) : 0;
        bool inner = join && j->c->join.v[join - 1].v != v; /* lies in the join of another one only */
        if (inner && is_needed_alone(j, v, join)) j->expanded[i] = 0;
    }
    for (u32 r = 0; r < j->c->region.n; r++) {
        const struct region *x = &j->c->region.v[r];
        bool keep = true;
        for (u32 i = 0; i < x->n_nodes && x->task != NO_TASK; i++)
            keep = keep && !j->expanded[x->nodes[i]];
        if (keep) j->c->region.v[n++] = *x;
    }
    j->c->region.n = n;
}

bool cover_add_joins(struct cover *c, const struct cutter *cut, struct map *tasks, bool only,
                     struct err *e)
{
    struct joiner j = {.c = c, .cut = cut, .tasks = tasks, .e = e};
    j.expanded = arena_array(cut->a, u32, cut->g->node.n);
    j.of = arena_array(cut->a, struct value_list, cut->g->value.n);
    u32 n = c->region.n;
    note_delivered(&j);
    for (node_id i = cut->g->node.n; --i;) try_join(&j, i);
    for (u32 r = 0; r < n && c->join.n; r++)
        if (c->region.v[r].n_nodes && !node_is(c->g, c->region.v[r].nodes[0], OP_CALL) && !add_variants(&j, r)) return false;
    for (value_id v = 1; v < cut->g->value.n; v++)
        if (!add_copies(&j, v)) return false;
    if (only) drop_others(&j);
    return true;
}
