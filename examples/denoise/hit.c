// SPDX-License-Identifier: Apache-2.0
//
// What a ray meets first: a tree of boxes, split in the middle of the longest axis of the shapes'
// centres, nearer child first.
#include <assert.h>
#include <stdlib.h>

#include "trace.h"

enum { LEAF = 4, STACK = 128 }; /* a split at least halves a box: no path is as long as that */

struct bounds {
    vec lo, hi;
};

static vec low(vec a, vec b) { return (vec){fminf(a.x, b.x), fminf(a.y, b.y), fminf(a.z, b.z)}; }
static vec high(vec a, vec b) { return (vec){fmaxf(a.x, b.x), fmaxf(a.y, b.y), fmaxf(a.z, b.z)}; }

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

static void grow(struct scene *s, int at, int first, int n, int *n_nodes)
{
    struct bounds b = {{FAR, FAR, FAR}, {-FAR, -FAR, -FAR}}, c = b;
    for (int i = first; i < first + n; i++) {
        const struct shape *x = &s->shape[s->order[i]];
        struct bounds y = bounds_of(x);
        vec m = add(y.lo, y.hi);
        b = (struct bounds){low(b.lo, y.lo), high(b.hi, y.hi)};
        c = (struct bounds){low(c.lo, m), high(c.hi, m)};
    }
    s->node[at] = (struct node){b.lo, b.hi, first, n};
    if (n <= LEAF) return;
    int axis = longest(sub(c.hi, c.lo));
    int k =
        partition(s, s->order + first, n, axis, (axis_of(c.lo, axis) + axis_of(c.hi, axis)) / 2);
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
    float from = fmaxf(fmaxf(lo.x, lo.y), fmaxf(lo.z, 0)),
          to = fminf(fminf(hi.x, hi.y), fminf(hi.z, far));
    return from <= to * (1 + 1e-6f) ? from : FAR;
}

static float inverse(float x) { return 1 / (fabsf(x) > 1e-12f ? x : 1e-12f); }

struct nearest {
    int shape; /* -1: none */
    float t;
    struct place at;
};

/* The nearest before `best->t`; with `any` the first that is found. */
static void search(const struct scene *s, const struct ray *r, bool any, struct nearest *best)
{
    vec inv = {inverse(r->d.x), inverse(r->d.y), inverse(r->d.z)};
    int stack[STACK], top = 0;
    stack[top++] = 0;
    while (top) {
        const struct node *n = &s->node[stack[--top]];
        if (enters(n, r, inv, best->t) >= FAR) continue;
        for (int i = n->first; i < n->first + n->n; i++) {
            struct place at = {0};
            float t = hit_shape(&s->shape[s->order[i]], r, &at);
            if (t < best->t) *best = (struct nearest){s->order[i], t, at};
            if (any && best->shape >= 0) return;
        }
        if (n->n) continue;
        assert(top + 2 <= STACK);
        int child = n->first;
        bool second =
            enters(&s->node[child + 1], r, inv, best->t) < enters(&s->node[child], r, inv, best->t);
        stack[top++] = child + !second, stack[top++] = child + second;
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
