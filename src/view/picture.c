// SPDX-License-Identifier: Apache-2.0
//
// What a picture shows, and where.
//
// Of groups one box each is drawn, and only tensors that pass between them. Parameters are drawn on
// request, for operators that are no group.
//
// Networks are long chains, pictures are not. Boxes are divided by their depth into columns, about
// as many as make the picture as wide as a page. A tensor that boxes of another column read is
// repeated there, so no edge leaves its column, and every column starts at the top. One that many
// boxes read is repeated beside each but the first. Where a box reads many tensors from elsewhere,
// or many pass from one group to another, they are drawn as one.
#include "view/picture.h"

#include <math.h>
#include <string.h>

enum { MANY_STEPS = 16, MOST_COLUMNS = 12, MANY_READERS = 5, MANY_TENSORS = 4 };

u32 picture_box(const struct view *v, u32 op) { return v->groups.of ? v->groups.of[op] : op; }

bool picture_is_group(const struct view *v, u32 op)
{
    return v->groups.of && v->groups.group.v[v->groups.of[op]].op.n > 1;
}

bool picture_is_interface(const struct graph *g, value_id v)
{
    for (u32 k = 0; k < g->input.n; k++)
        if (g->input.v[k] == v) return true;
    for (u32 k = 0; k < g->output.n; k++)
        if (g->output.v[k] == v) return true;
    return false;
}

/* UINT32_MAX: none. */
static u32 maker_box(const struct picture *p, u32 t)
{
    return p->maker[t] ? picture_box(p->v, p->maker[t] - 1) : UINT32_MAX;
}

bool picture_reads(const struct picture *p, u32 op, u32 t)
{
    if (!p->is_shown[t]) return false;
    if (p->v->x->tensor.v[t].is_param) return !picture_is_group(p->v, op);
    return maker_box(p, t) != picture_box(p->v, op);
}

bool picture_is_far(const struct picture *p, u32 op, u32 t)
{
    const u32 box = picture_box(p->v, op);
    return p->first[t] ? p->first[t] != box + 1 : p->column[box] != p->home[t];
}

/* Tensors. */

static void note_reader(struct picture *p, u32 t, u32 op, u8 *is_read)
{
    const struct view *v = p->v;
    const u32 part = v->part_of ? v->part_of[op] + 1 : 0;
    if (!p->maker[t]) p->part[t] = !is_read[t] || p->part[t] == part ? part : 0;
    else if (maker_box(p, t) != picture_box(v, op) && v->part_of &&
             v->part_of[p->maker[t] - 1] + 1 == part)
        p->part[t] = part;
    is_read[t] = 1;
    if (v->x->tensor.v[t].is_param) p->is_shown[t] |= v->shows_params && !picture_is_group(v, op);
    else p->is_shown[t] |= maker_box(p, t) != picture_box(v, op);
}

/* Tensors are in the frame of their sub-graph if it reads them itself; inputs of the network are in
 * none. */
static void find_tensors(struct picture *p)
{
    const struct place_net *x = p->v->x;
    u8 *is_read = arena_array(p->a, u8, x->tensor.n + 1);
    for (u32 k = 0; k < x->op.n; k++) {
        const struct place_op *op = &x->op.v[k];
        for (u32 i = 0; i < op->in.n; i++) note_reader(p, op->in.v[i], k, is_read);
        for (u32 i = 0; i < op->out.n; i++) p->maker[op->out.v[i]] = k + 1;
    }
    for (u32 t = 0; t < x->tensor.n; t++) {
        if (!picture_is_interface(&x->g, x->tensor.v[t].value)) continue;
        p->is_shown[t] = 1;
        if (!p->maker[t]) p->part[t] = 0;
    }
}

/* Bundles. */

/* Per tensor: 1 + the only box that reads it; 0: none, or several. */
static u32 *only_readers(const struct picture *p)
{
    const struct place_net *x = p->v->x;
    u32 *only = arena_array(p->a, u32, x->tensor.n + 1);
    u8 *is_shared = arena_array(p->a, u8, x->tensor.n + 1);
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) {
            const u32 t = x->op.v[k].in.v[i], box = picture_box(p->v, k) + 1;
            if (!picture_reads(p, k, t)) continue;
            is_shared[t] |= only[t] && only[t] != box;
            only[t] = box;
        }
    for (u32 t = 0; t < x->tensor.n; t++)
        if (is_shared[t] || picture_is_interface(&x->g, x->tensor.v[t].value)) only[t] = 0;
    return only;
}

/* Tensors from one group to one other box: if they are many, the first stands for all. */
static void find_bundles(struct picture *p)
{
    const struct place_net *x = p->v->x;
    if (!p->v->groups.of) return;
    const u32 *only = only_readers(p);
    struct map by;
    map_init(&by, p->a);
    for (u32 sweep = 0; sweep < 2; sweep++)
        for (u32 t = 0; t < x->tensor.n; t++) {
            if (!p->maker[t] || !only[t]) continue;
            const u32 pair[] = {maker_box(p, t), only[t]};
            const struct str key = {(const char *)pair, sizeof pair};
            const u64 *known = map_get(&by, key);
            const u32 first = known ? (u32)*known : t;
            if (!known) *map_put(&by, key, 0) = t;
            if (sweep == 0) p->n_bundle[first]++;
            else if (first != t && p->n_bundle[first] >= MANY_TENSORS) p->is_shown[t] = 0;
        }
    for (u32 t = 0; t < x->tensor.n; t++)
        if (p->n_bundle[t] < MANY_TENSORS) p->n_bundle[t] = 0;
}

/* Columns. */

/* Longest paths to the boxes, whose numbers need not be in topological order. Returns the longest
 * one. */
static u32 find_depths(struct picture *p, u32 *depth)
{
    enum { MOST_SWEEPS = 100 };
    const struct place_net *x = p->v->x;
    u32 most = 0;
    bool changed = true;
    for (u32 sweep = 0; changed && sweep < MOST_SWEEPS; sweep++) {
        changed = false;
        for (u32 k = 0; k < x->op.n; k++)
            for (u32 i = 0; i < x->op.v[k].in.n; i++) {
                const u32 from = maker_box(p, x->op.v[k].in.v[i]), to = picture_box(p->v, k);
                if (from == UINT32_MAX || from == to || depth[to] > depth[from]) continue;
                depth[to] = depth[from] + 1, changed = true;
                most = depth[to] > most ? depth[to] : most;
            }
    }
    return most;
}

/* Inputs are above their first reader. */
static void find_homes(struct picture *p)
{
    const struct place_net *x = p->v->x;
    for (u32 t = 0; t < x->tensor.n; t++)
        p->home[t] = p->maker[t] ? p->column[maker_box(p, t)] : UINT32_MAX;
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) {
            const u32 t = x->op.v[k].in.v[i], c = p->column[picture_box(p->v, k)];
            if (!p->maker[t] && c < p->home[t]) p->home[t] = c;
        }
    for (u32 t = 0; t < x->tensor.n; t++)
        if (p->home[t] == UINT32_MAX) p->home[t] = 0; /* nothing reads it */
}

/* Calls fn for each box that reads a tensor, several times if its operators are not neighbours. */
static void each_reader(struct picture *p, void (*fn)(struct picture *p, u32 op, u32 t))
{
    const struct place_net *x = p->v->x;
    u32 *last = arena_array(p->a, u32, x->tensor.n + 1); /* 1 + box */
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) {
            const u32 t = x->op.v[k].in.v[i], box = picture_box(p->v, k);
            if (last[t] != box + 1 && picture_reads(p, k, t)) fn(p, k, t);
            last[t] = box + 1;
        }
}

/* first[t] counts readers until it is known that they are many. */
static void count_reader(struct picture *p, u32 op, u32 t) { p->first[t]++; }

static void find_first(struct picture *p, u32 op, u32 t)
{
    const u32 box = picture_box(p->v, op);
    if (p->first[t] == UINT32_MAX && p->column[box] == p->home[t]) p->first[t] = box + 1;
}

static void count_far(struct picture *p, u32 op, u32 t)
{
    p->n_far[picture_box(p->v, op)] += picture_is_far(p, op, t);
}

static void add_repeat(struct picture *p, u32 op, u32 t)
{
    const u32 box = picture_box(p->v, op);
    if (!p->first[t] && !p->n_far[box] && picture_is_far(p, op, t))
        p->repeats[t] |= (u16)(1u << p->column[box]);
}

static void find_repeats(struct picture *p)
{
    each_reader(p, count_reader);
    for (u32 t = 0; t < p->v->x->tensor.n; t++)
        p->first[t] = p->first[t] < MANY_READERS ? 0 : UINT32_MAX;
    each_reader(p, find_first);
    each_reader(p, count_far);
    for (u32 b = 0; b < p->n_boxes; b++)
        if (p->n_far[b] < MANY_TENSORS) p->n_far[b] = 0;
    each_reader(p, add_repeat);
}

static void find_columns(struct picture *p)
{
    const u32 most = find_depths(p, p->column);
    p->n_columns =
        most < MANY_STEPS ? 1 : (u32)fmin(MOST_COLUMNS, fmax(1, round(sqrt(0.38 * most))));
    for (u32 k = 0; k < p->n_boxes; k++)
        p->column[k] = (u32)((u64)p->column[k] * p->n_columns / (most + 1));
}

void picture_arrange(struct picture *p, const struct view *v, struct arena *a)
{
    const u32 n = v->x->tensor.n + 1, n_boxes = v->groups.of ? v->groups.group.n : v->x->op.n;
    *p = (struct picture){.v = v, .a = a, .n_boxes = n_boxes};
    p->column = arena_array(a, u32, n_boxes + 1), p->n_far = arena_array(a, u32, n_boxes + 1);
    p->maker = arena_array(a, u32, n), p->is_shown = arena_array(a, u8, n),
    p->part = arena_array(a, u32, n);
    p->home = arena_array(a, u32, n), p->repeats = arena_array(a, u16, n),
    p->first = arena_array(a, u32, n);
    p->n_bundle = arena_array(a, u32, n);
    find_tensors(p);
    find_columns(p);
    find_bundles(p);
    find_homes(p);
    find_repeats(p);
}
