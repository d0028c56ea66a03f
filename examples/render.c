// SPDX-License-Identifier: Apache-2.0
//
// render OUT.png WIDTH HEIGHT SAMPLES: a small path tracer, for pictures with real noise. A box
// with coloured walls, a square light, a mirror, a glass and two diffuse balls. Direct light by
// sampling the light at every diffuse bounce, Russian roulette, every path limited in brightness
// (both the noisy and the converged picture: they have the same expectation). Each pixel has random
// numbers of its own, so the picture does not depend on the number of threads.
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "quern.h"

enum { THREADS = 2, MAX_BOUNCES = 12 };
static const float PI = 3.14159265f, FAR = 1e9f, NEAR = 1e-4f, BRIGHTEST = 2;

typedef struct {
    float x, y, z;
} vec;

static vec add(vec a, vec b) { return (vec){a.x + b.x, a.y + b.y, a.z + b.z}; }
static vec sub(vec a, vec b) { return (vec){a.x - b.x, a.y - b.y, a.z - b.z}; }
static vec mul(vec a, vec b) { return (vec){a.x * b.x, a.y * b.y, a.z * b.z}; }
static vec scale(vec a, float s) { return (vec){a.x * s, a.y * s, a.z * s}; }
static float dot(vec a, vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static vec unit(vec a) { return scale(a, 1 / sqrtf(dot(a, a))); }
static vec cross(vec a, vec b)
{
    return (vec){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
static float axis_of(vec a, int k) { return k == 0 ? a.x : k == 1 ? a.y : a.z; }

/* the scene */

enum surface { DIFFUSE, CHECKER, MIRROR, GLASS, LIGHT };

struct material {
    enum surface surface;
    vec colour;
};
struct ball {
    vec centre;
    float radius;
    struct material m;
};
struct wall {
    int axis;
    float at;
    vec lo, hi;
    struct material m;
}; /* perpendicular to an axis, between lo and hi on the others */

static const struct ball balls[] = {
    {{-0.72f, 0.42f, -0.35f}, 0.42f, {MIRROR, {0.95f, 0.95f, 0.95f}}},
    {{0.62f, 0.38f, 0.20f}, 0.38f, {GLASS, {1, 1, 1}}},
    {{0.05f, 0.24f, -0.55f}, 0.24f, {DIFFUSE, {0.85f, 0.65f, 0.15f}}},
    {{-0.25f, 0.17f, 0.45f}, 0.17f, {DIFFUSE, {0.25f, 0.35f, 0.85f}}},
};
enum { N_BALLS = sizeof balls / sizeof *balls };

static const float LIGHT_Y = 1.99f;
static const vec light_lo = {-0.4f, 1.99f, -0.4f}, light_hi = {0.4f, 1.99f, 0.4f},
                 light_colour = {11, 10, 8};
static const struct wall walls[] = {
    {1, 0, {-1.35f, 0, -1}, {1.35f, 2, 1.2f}, {CHECKER, {0.75f, 0.75f, 0.75f}}},
    {1, 2, {-1.35f, 0, -1}, {1.35f, 2, 1.2f}, {DIFFUSE, {0.75f, 0.75f, 0.75f}}},
    {2, -1, {-1.35f, 0, -1}, {1.35f, 2, 1.2f}, {DIFFUSE, {0.75f, 0.75f, 0.75f}}},
    {0, -1.35f, {-1.35f, 0, -1}, {1.35f, 2, 1.2f}, {DIFFUSE, {0.75f, 0.2f, 0.15f}}},
    {0, 1.35f, {-1.35f, 0, -1}, {1.35f, 2, 1.2f}, {DIFFUSE, {0.2f, 0.6f, 0.25f}}},
    {1, 1.99f, {-0.4f, 1.99f, -0.4f}, {0.4f, 1.99f, 0.4f}, {LIGHT, {11, 10, 8}}},
};
enum { N_WALLS = sizeof walls / sizeof *walls };

/* random numbers: PCG */

struct rng {
    uint64_t state;
};

static float next(struct rng *r)
{
    uint64_t old = r->state;
    r->state = old * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), k = (uint32_t)(old >> 59);
    x = (x >> k) | (x << ((32 - k) & 31));
    return (float)(x >> 8) * 0x1p-24f;
}

static struct rng seed(uint64_t n)
{
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return (struct rng){n ^ (n >> 31)};
}

/* hits */

struct ray {
    vec o, d;
};
struct hit {
    float t;
    vec p, n;
    struct material m;
};

static float hit_ball(const struct ball *s, const struct ray *r)
{
    vec oc = sub(r->o, s->centre);
    float b = dot(oc, r->d), c = dot(oc, oc) - s->radius * s->radius, disc = b * b - c;
    if (disc < 0) return FAR;
    float root = sqrtf(disc), near = -b - root, far = -b + root;
    return near > NEAR ? near : far > NEAR ? far : FAR;
}

static float hit_wall(const struct wall *w, const struct ray *r)
{
    float d = axis_of(r->d, w->axis);
    if (fabsf(d) < 1e-9f) return FAR;
    float t = (w->at - axis_of(r->o, w->axis)) / d;
    if (t <= NEAR) return FAR;
    for (int k = 0; k < 3; k++) {
        float x = axis_of(r->o, k) + t * axis_of(r->d, k);
        if (k != w->axis && (x < axis_of(w->lo, k) || x > axis_of(w->hi, k))) return FAR;
    }
    return t;
}

static bool find_hit(const struct ray *r, struct hit *h)
{
    const struct ball *ball = NULL;
    const struct wall *wall = NULL;
    h->t = FAR;
    for (int k = 0; k < N_WALLS; k++) {
        float t = hit_wall(&walls[k], r);
        if (t < h->t) h->t = t, wall = &walls[k];
    }
    for (int k = 0; k < N_BALLS; k++) {
        float t = hit_ball(&balls[k], r);
        if (t < h->t) h->t = t, ball = &balls[k];
    }
    if (h->t >= FAR) return false;
    h->p = add(r->o, scale(r->d, h->t));
    h->m = ball ? ball->m : wall->m;
    h->n = ball ? scale(sub(h->p, ball->centre), 1 / ball->radius)
                : (vec){wall->axis == 0, wall->axis == 1, wall->axis == 2};
    if (h->m.surface == CHECKER) {
        bool odd = ((int)floorf(h->p.x * 4) + (int)floorf(h->p.z * 4)) & 1;
        h->m = (struct material){DIFFUSE, scale(h->m.colour, odd ? 0.45f : 1)};
    }
    return true;
}

static bool is_free(vec from, vec to)
{
    vec d = sub(to, from);
    float length = sqrtf(dot(d, d));
    struct ray r = {from, scale(d, 1 / length)};
    for (int k = 0; k < N_BALLS; k++)
        if (hit_ball(&balls[k], &r) < length - 2 * NEAR) return false;
    return true; /* the room is convex */
}

/* light */

static vec direct_light(const struct hit *h, vec n, struct rng *g)
{
    float u = next(g), v = next(g);
    vec at = {light_lo.x + u * (light_hi.x - light_lo.x), LIGHT_Y,
              light_lo.z + v * (light_hi.z - light_lo.z)};
    vec d = sub(at, h->p);
    float d2 = dot(d, d), cos_here = dot(n, d), cos_there = d.y;
    if (cos_here <= 0 || cos_there <= 0 || !is_free(h->p, at)) return (vec){0};
    float area = (light_hi.x - light_lo.x) * (light_hi.z - light_lo.z);
    return scale(mul(h->m.colour, light_colour), area * cos_here * cos_there / (PI * d2 * d2));
}

static vec scatter(vec n, struct rng *g) /* by the cosine */
{
    float phi = 2 * PI * next(g), r2 = next(g), r = sqrtf(r2);
    vec u = unit(cross(fabsf(n.x) > 0.5f ? (vec){0, 1, 0} : (vec){1, 0, 0}, n)), v = cross(n, u);
    return unit(
        add(add(scale(u, r * cosf(phi)), scale(v, r * sinf(phi))), scale(n, sqrtf(1 - r2))));
}

static vec reflect(vec d, vec n) { return sub(d, scale(n, 2 * dot(d, n))); }

static vec through_glass(vec d, vec n, struct rng *g)
{
    bool enters = dot(d, n) < 0;
    float eta = enters ? 1 / 1.5f : 1.5f;
    vec m = enters ? n : scale(n, -1);
    float c = -dot(d, m), k = 1 - eta * eta * (1 - c * c);
    if (k < 0) return reflect(d, m);
    float cos_out = enters ? c : sqrtf(k), f = 0.04f + 0.96f * powf(1 - cos_out, 5);
    if (next(g) < f) return reflect(d, m);
    return unit(add(scale(d, eta), scale(m, eta * c - sqrtf(k))));
}

static vec trace(struct ray r, struct rng *g)
{
    vec sum = {0}, weight = {1, 1, 1};
    bool sees_light = true; /* not counted by direct_light before */
    for (int bounce = 0; bounce < MAX_BOUNCES; bounce++) {
        struct hit h;
        if (!find_hit(&r, &h)) break;
        if (h.m.surface == LIGHT) {
            if (sees_light && r.d.y > 0) sum = add(sum, mul(weight, h.m.colour));
            break;
        }
        vec n = dot(h.n, r.d) < 0 ? h.n : scale(h.n, -1), d;
        sees_light = h.m.surface != DIFFUSE;
        if (h.m.surface == DIFFUSE) {
            sum = add(sum, mul(weight, direct_light(&h, n, g)));
            d = scatter(n, g);
        } else {
            d = h.m.surface == MIRROR ? reflect(r.d, n) : through_glass(r.d, h.n, g);
        }
        weight = mul(weight, h.m.colour);
        float keep = fmaxf(weight.x, fmaxf(weight.y, weight.z));
        if (bounce > 3 && next(g) > keep) break;
        if (bounce > 3) weight = scale(weight, 1 / keep);
        r = (struct ray){h.p, d};
    }
    float top = fmaxf(sum.x, fmaxf(sum.y, sum.z));
    return top > BRIGHTEST ? scale(sum, BRIGHTEST / top) : sum;
}

/* the picture */

struct picture {
    int w, h, samples;
    float *data; /* (1, 3, h, w) */
};
struct job {
    const struct picture *p;
    int first;
};

static float encode(float x) /* sRGB */
{
    x = x < 0 ? 0 : x > 1 ? 1 : x;
    return x <= 0.0031308f ? 12.92f * x : 1.055f * powf(x, 1 / 2.4f) - 0.055f;
}

static void render_pixel(const struct picture *p, int x, int y)
{
    struct rng g = seed((uint64_t)y * 100003u + (uint64_t)x + 1);
    vec sum = {0};
    for (int s = 0; s < p->samples; s++) {
        float u = ((float)x + next(&g) - (float)p->w / 2) / (float)p->h,
              v = ((float)p->h / 2 - (float)y - next(&g)) / (float)p->h;
        sum = add(sum, trace((struct ray){{0, 1, 3.55f}, unit((vec){u, v, -1.2f})}, &g));
    }
    sum = scale(sum, 1 / (float)p->samples);
    int64_t at = (int64_t)y * p->w + x, plane = (int64_t)p->w * p->h;
    p->data[at] = encode(sum.x), p->data[at + plane] = encode(sum.y),
    p->data[at + 2 * plane] = encode(sum.z);
}

static void *render_rows(void *user)
{
    const struct job *j = user;
    for (int y = j->first; y < j->p->h; y += THREADS)
        for (int x = 0; x < j->p->w; x++) render_pixel(j->p, x, y);
    return NULL;
}

int main(int argc, char **argv)
{
    struct picture p = {.w = argc > 4 ? atoi(argv[2]) : 0,
                        .h = argc > 4 ? atoi(argv[3]) : 0,
                        .samples = argc > 4 ? atoi(argv[4]) : 0};
    if (p.w < 1 || p.h < 1 || p.samples < 1)
        return fprintf(stderr, "usage: render OUT.png WIDTH HEIGHT SAMPLES\n"), 2;
    quern *q = quern_open(NULL);
    quern_tensor *t = NULL;
    if (quern_tensor_new(q, QUERN_F32, 4, (int64_t[]){1, 3, p.h, p.w}, NULL, &t))
        return fprintf(stderr, "render: %s\n", quern_error(q)), 1;
    p.data = quern_tensor_data(t);
    pthread_t thread[THREADS];
    struct job job[THREADS];
    for (int k = 0; k < THREADS; k++) {
        job[k] = (struct job){&p, k};
        if (pthread_create(&thread[k], NULL, render_rows, &job[k])) return perror("render"), 1;
    }
    for (int k = 0; k < THREADS; k++) pthread_join(thread[k], NULL);
    quern_status s = quern_tensor_write(q, argv[1], t);
    if (s) fprintf(stderr, "render: %s\n", quern_error(q));
    quern_tensor_free(t);
    quern_close(q);
    return s != QUERN_OK;
}
