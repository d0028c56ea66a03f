// SPDX-License-Identifier: Apache-2.0
//
// What a ray meets first: a tree of boxes, nearer child first. A box is split across the longest
// axis of its shapes' centres, where the sum of surface times shapes of both halves is least of a
// few places (Wald 2007: On fast construction of SAH-based bounding volume hierarchies).
#include <assert.h>
#include <stdlib.h>

#include "trace.h"

enum {
    LEAF = 3,
    STACK = 512 /* every split leaves 15/16 of an axis at most, or half of the shapes */
};

struct bounds {
    vec lo, hi;
};

/* One instruction each, which fminf and fmaxf are not: these need not care for what is no number.
 */
static float less(float a, float b) { return a < b ? a : b; }
static float more(float a, float b) { return a > b ? a : b; }
static vec low(vec a, vec b) { return (vec){less(a.x, b.x), less(a.y, b.y), less(a.z, b.z)}; }
static vec high(vec a, vec b) { return (vec){more(a.x, b.x), more(a.y, b.y), more(a.z, b.z)}; }

static struct bounds bounds_of(const struct shape *s)
{
    vec r = {s->radius, s->radius, s->radius}, b = add(s->a, s->u), c = add(s->a, s->v);
    if (s->kind == BALL) return (struct bounds){sub(s->a, r), add(s->a, r)};
    struct bounds x = {low(s->a, low(b, c)), high(s->a, high(b, c))};
    if (s->kind == TRIANGLE) return x;
    b = add(b, s->v);
    return (struct bounds){low(x.lo, b), high(x.hi, b)};
}

static float centre_of(const struct shape *s, int axis)
{
    struct bounds b = bounds_of(s);
    return axis_of(b.lo, axis) + axis_of(b.hi, axis);
}

/* the tree */

static int longest(vec size)
{
    return size.x >= size.y && size.x >= size.z ? 0 : size.y >= size.z ? 1 : 2;
}

/* Those below `at` first; returns their number. */
static int partition(const struct scene *s, int *order, int n, int axis, float at)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (centre_of(&s->shape[order[i]], axis) < at) {
            int x = order[i];
            order[i] = order[k], order[k++] = x;
        }
    return k;
}

static const struct bounds nothing = {{FAR, FAR, FAR}, {-FAR, -FAR, -FAR}};

static struct bounds both(struct bounds a, struct bounds b)
{
    return (struct bounds){low(a.lo, b.lo), high(a.hi, b.hi)};
}

static float cost(struct bounds b, int n) /* surface times shapes */
{
    vec d = sub(b.hi, b.lo);
    return n ? (float)n * (d.x * d.y + d.y * d.z + d.z * d.x) : 0;
}

/* The place between lo and hi on an axis with the least cost. */
static float best_place(const struct scene *s, const int *order, int n, int axis, float lo,
                        float hi)
{
    enum { BINS = 16 };
    struct bounds bin[BINS], left = nothing, right[BINS + 1];
    int count[BINS] = {0}, behind = 0, before = 0;
    for (int k = 0; k < BINS; k++) bin[k] = nothing;
    for (int i = 0; i < n; i++) {
        const struct shape *x = &s->shape[order[i]];
        int k = (int)((centre_of(x, axis) - lo) / (hi - lo) * BINS);
        k = k < 0 ? 0 : k >= BINS ? BINS - 1 : k;
        bin[k] = both(bin[k], bounds_of(x)), count[k]++;
    }
    right[BINS] = nothing;
    for (int k = BINS - 1; k > 0; k--) right[k] = both(right[k + 1], bin[k]);
    float least = FAR * FAR, place = (lo + hi) / 2;
    for (int k = 0; k < BINS; k++) behind += count[k];
    for (int k = 1; k < BINS; k++) {
        left = both(left, bin[k - 1]), before += count[k - 1], behind -= count[k - 1];
        float c = cost(left, before) + cost(right[k], behind);
        if (before && behind && c < least) least = c, place = lo + (hi - lo) * (float)k / BINS;
    }
    return place;
}

static void grow(struct scene *s, int at, int first, int n, int *n_nodes)
{
    struct bounds b = nothing, c = nothing;
    for (int i = first; i < first + n; i++) {
        struct bounds x = bounds_of(&s->shape[s->order[i]]);
        vec m = add(x.lo, x.hi);
        b = both(b, x), c = both(c, (struct bounds){m, m});
    }
    s->node[at] = (struct node){b.lo, b.hi, first, n};
    if (n <= LEAF) return;
    int axis = longest(sub(c.hi, c.lo)), *order = s->order + first;
    float lo = axis_of(c.lo, axis), hi = axis_of(c.hi, axis);
    int k = hi > lo ? partition(s, order, n, axis, best_place(s, order, n, axis, lo, hi)) : 0;
    if (k == 0 || k == n) k = n / 2;
    int child = *n_nodes;
    *n_nodes += 2;
    s->node[at].first = child, s->node[at].n = 0;
    grow(s, child, first, k, n_nodes);
    grow(s, child + 1, first + k, n - k, n_nodes);
}

bool scene_grow_tree(struct scene *s)
{
    size_t n = (size_t)s->n_shapes;
    s->order = malloc((n + 1) * sizeof *s->order);
    s->light = malloc((n + 1) * sizeof *s->light);
    s->node = malloc((2 * n + 1) * sizeof *s->node);
    if (!s->order || !s->light || !s->node) return s->is_short = true, false;
    s->n_lights = 0;
    for (int i = 0; i < s->n_shapes; i++) {
        s->order[i] = i;
        if (s->material[s->shape[i].material].surface == LIGHT) s->light[s->n_lights++] = i;
    }
    int n_nodes = 1;
    grow(s, 0, 0, s->n_shapes, &n_nodes);
    return true;
}

/* rays; a shape's place is (s, t) of its parallelogram */

struct place {
    float s, t;
};

static float hit_ball(const struct shape *b, const struct ray *r)
{
    vec oc = sub(r->o, b->a);
    float h = dot(oc, r->d), c = dot(oc, oc) - b->radius * b->radius, disc = h * h - c;
    if (disc < 0) return FAR;
    float root = sqrtf(disc), near = -h - root, far = -h + root;
    return near > NEAR ? near : far > NEAR ? far : FAR;
}

/* Moeller and Trumbore: Fast, minimum storage ray/triangle intersection, 1997 */
static float hit_flat(const struct shape *x, const struct ray *r, struct place *at)
{
    vec p = cross(r->d, x->v);
    float det = dot(x->u, p);
    if (fabsf(det) < 1e-12f) return FAR;
    vec o = sub(r->o, x->a), q = cross(o, x->u);
    at->s = dot(o, p) / det, at->t = dot(r->d, q) / det;
    if (at->s < 0 || at->t < 0) return FAR;
    if (x->kind == TRIANGLE ? at->s + at->t > 1 : at->s > 1 || at->t > 1) return FAR;
    float t = dot(x->v, q) / det;
    return t > NEAR ? t : FAR;
}

static float hit_shape(const struct shape *x, const struct ray *r, struct place *at)
{
    return x->kind == BALL ? hit_ball(x, r) : hit_flat(x, r, at);
}

/* Where the ray enters, at most `far`; FAR: not at all. */
static float enters(const struct node *n, const struct ray *r, vec inv, float far)
{
    vec a = mul(sub(n->lo, r->o), inv), b = mul(sub(n->hi, r->o), inv), lo = low(a, b),
        hi = high(a, b);
    float from = more(more(lo.x, lo.y), more(lo.z, 0)),
          to = less(less(hi.x, hi.y), less(hi.z, far));
    return from <= to * (1 + 1e-6f) ? from : FAR;
}

static float inverse(float x) { return 1 / (fabsf(x) > 1e-12f ? x : 1e-12f); }

struct nearest {
    int shape; /* -1: none */
    float t;
    struct place at;
};

struct step {
    int node;
    float from; /* where the ray enters it */
};

/* The nearest before `best->t`; with `any` the first that is found. */
static void search(const struct scene *s, const struct ray *r, bool any, struct nearest *best)
{
    vec inv = {inverse(r->d.x), inverse(r->d.y), inverse(r->d.z)};
    struct step stack[STACK];
    int top = 0;
    stack[top++] = (struct step){0, enters(s->node, r, inv, best->t)};
    while (top) {
        struct step at = stack[--top];
        if (at.from >= best->t) continue;
        const struct node *n = &s->node[at.node];
        for (int i = n->first; i < n->first + n->n; i++) {
            struct place place = {0, 0};
            float t = hit_shape(&s->shape[s->order[i]], r, &place);
            if (t < best->t) *best = (struct nearest){s->order[i], t, place};
            if (any && best->shape >= 0) return;
        }
        if (n->n) continue;
        assert(top + 2 <= STACK);
        struct step a = {n->first, enters(&s->node[n->first], r, inv, best->t)},
                    b = {n->first + 1, enters(&s->node[n->first + 1], r, inv, best->t)};
        stack[top++] = b.from < a.from ? a : b;
        stack[top++] = b.from < a.from ? b : a;
    }
}

bool find_hit(const struct scene *s, const struct ray *r, struct hit *h)
{
    struct nearest x = {-1, FAR, {0, 0}};
    search(s, r, false, &x);
    if (x.shape < 0) return false;
    const struct shape *f = &s->shape[x.shape];
    h->t = x.t, h->p = add(r->o, scale(r->d, x.t)), h->m = &s->material[f->material];
    float rest = 1 - x.at.s - x.at.t;
    h->n =
        f->kind == BALL ? scale(sub(h->p, f->a), 1 / f->radius)
        : f->smooth
            ? unit(add(scale(f->n[0], rest), add(scale(f->n[1], x.at.s), scale(f->n[2], x.at.t))))
            : f->n[0];
    h->colour = texture_at(h->m, h->p);
    if (h->m->bump > 0) h->n = dented(h->m, h->p, h->n);
    return true;
}

bool is_free(const struct scene *s, vec from, vec to)
{
    vec d = sub(to, from);
    float length = sqrtf(dot(d, d));
    struct ray r = {from, scale(d, 1 / fmaxf(length, NEAR))};
    struct nearest x = {-1, length - 2 * NEAR, {0, 0}};
    search(s, &r, true, &x);
    return x.shape < 0;
}
