// SPDX-License-Identifier: Apache-2.0
//
// Paths. At every diffuse bounce one light is sampled (the sun is one of them), Russian roulette
// ends paths, and every path is limited in brightness: few and many samples have the same
// expectation.
#include "trace.h"

enum { MAX_BOUNCES = 12 };

static const float CLEAR = 0.1f; /* metal that is less rough is looked through for features */

struct ray camera_ray(const struct camera *c, float x, float y, struct rng *g)
{
    vec to = add(c->forward, add(scale(c->right, x), scale(c->up, y)));
    if (c->aperture <= 0) return (struct ray){c->at, unit(to)};
    float r = c->aperture * sqrtf(next(g)), phi = 2 * PI * next(g);
    vec lens = add(scale(unit(c->right), r * cosf(phi)), scale(unit(c->up), r * sinf(phi)));
    return (struct ray){add(c->at, lens), unit(sub(to, lens))};
}

/* light */

static vec sky(const struct scene *s, vec d, bool with_sun)
{
    if (with_sun && dot(d, s->to_sun) > s->sun_cos && largest(s->sun) > 0) return s->sun;
    float t = sqrtf(fminf(1, fmaxf(0, d.y)));
    return add(scale(s->horizon, 1 - t), scale(s->sky, t));
}

static vec sun_light(const struct scene *s, const struct hit *h, vec n, struct rng *g)
{
    float c = 1 - next(g) * (1 - s->sun_cos), r = sqrtf(1 - c * c), phi = 2 * PI * next(g);
    vec u, v;
    frame(s->to_sun, &u, &v);
    vec d = add(scale(s->to_sun, c), add(scale(u, r * cosf(phi)), scale(v, r * sinf(phi))));
    float cos_here = dot(n, d);
    if (cos_here <= 0 || !is_free(s, h->p, add(h->p, scale(d, 1e4f)))) return (vec){0};
    return scale(mul(h->colour, s->sun), 2 * (1 - s->sun_cos) * cos_here);
}

/* A point of the light, its normal and its area. */
static float light_point(const struct shape *x, vec *at, vec *n, struct rng *g)
{
    float s = next(g), t = next(g);
    if (x->kind == BALL) {
        float z = 2 * s - 1, r = sqrtf(fmaxf(0, 1 - z * z));
        *n = (vec){r * cosf(2 * PI * t), r * sinf(2 * PI * t), z};
        *at = add(x->a, scale(*n, x->radius));
        return 4 * PI * x->radius * x->radius;
    }
    if (x->kind == TRIANGLE && s + t > 1) s = 1 - s, t = 1 - t;
    *at = add(x->a, add(scale(x->u, s), scale(x->v, t)));
    *n = x->n[0];
    vec area = cross(x->u, x->v);
    return sqrtf(dot(area, area)) * (x->kind == TRIANGLE ? 0.5f : 1);
}

static vec shape_light(const struct scene *s, const struct hit *h, vec n, struct rng *g, int light)
{
    const struct shape *x = &s->shape[light];
    vec at, there;
    float area = light_point(x, &at, &there, g);
    vec d = sub(at, h->p);
    float d2 = dot(d, d), cos_here = dot(n, d), cos_there = -dot(there, d);
    if (cos_here <= 0 || cos_there <= 0 || !is_free(s, h->p, at)) return (vec){0};
    return scale(mul(h->colour, s->material[x->material].colour),
                 area * cos_here * cos_there / (PI * d2 * d2));
}

static vec direct_light(const struct scene *s, const struct hit *h, vec n, struct rng *g)
{
    int lights = s->n_lights + (largest(s->sun) > 0);
    if (!lights) return (vec){0};
    int k = lights > 1 ? (int)(next(g) * (float)lights) : 0;
    vec x = k < s->n_lights ? shape_light(s, h, n, g, s->light[k]) : sun_light(s, h, n, g);
    return scale(x, (float)lights);
}

/* paths */

struct path {
    const struct scene *s;
    struct ray r;
    vec weight;
    bool sees_light;   /* no light was sampled at the last bounce */
    bool has_features; /* else all surfaces so far were clear */
    float length;
    struct sample out;
};

static void set_features(struct path *p, const struct hit *h, vec n)
{
    bool clear = h->m->surface == GLASS || (h->m->surface == METAL && h->m->rough < CLEAR);
    p->length += h->t;
    if (p->has_features || clear) return;
    p->has_features = true;
    p->out.albedo = h->m->surface == LIGHT ? p->weight : mul(p->weight, h->colour);
    p->out.normal = n;
    p->out.depth = 1 / (1 + p->length);
}

/* The next direction; what it brings is multiplied with the colour. */
static bool bounce(struct path *p, const struct hit *h, vec n, struct rng *g)
{
    vec d = p->r.d;
    enum surface surface = h->m->surface;
    p->sees_light = true;
    vec tint = h->colour;
    if (surface == PLASTIC) {
        bool mirrors = next(g) < fresnel(-dot(d, n));
        surface = mirrors ? METAL : DIFFUSE;
        if (mirrors) tint = (vec){1, 1, 1};
    }
    if (surface == DIFFUSE) {
        p->out.colour = add(p->out.colour, mul(p->weight, direct_light(p->s, h, n, g)));
        p->sees_light = false;
        d = scatter(n, g);
    } else if (surface == METAL) {
        d = reflect_rough(d, n, h->m->rough, g);
        if (dot(d, n) <= 0) return false;
    } else {
        d = through_glass(d, h->n, g);
    }
    p->weight = mul(p->weight, tint);
    p->r = (struct ray){h->p, d};
    return true;
}

static bool survives(struct path *p, int bounces, struct rng *g)
{
    if (bounces <= 3) return true;
    float keep = fminf(1, largest(p->weight));
    if (next(g) >= keep) return false;
    p->weight = scale(p->weight, 1 / keep);
    return true;
}

static void see_sky(struct path *p)
{
    vec light = sky(p->s, p->r.d, p->sees_light);
    p->out.colour = add(p->out.colour, mul(p->weight, light));
    if (!p->has_features) p->out.albedo = p->weight;
}

struct sample trace(const struct scene *s, struct ray r, struct rng *g)
{
    struct path p = {.s = s, .r = r, .weight = {1, 1, 1}, .sees_light = true};
    for (int k = 0; k < MAX_BOUNCES; k++) {
        struct hit h;
        if (!find_hit(s, &p.r, &h)) {
            see_sky(&p);
            break;
        }
        bool front = dot(h.n, p.r.d) < 0;
        vec n = front ? h.n : scale(h.n, -1);
        set_features(&p, &h, n);
        if (h.m->surface == LIGHT) {
            if (p.sees_light && front) p.out.colour = add(p.out.colour, mul(p.weight, h.colour));
            break;
        }
        if (!bounce(&p, &h, n, g) || !survives(&p, k, g)) break;
    }
    float top = largest(p.out.colour);
    if (top > s->brightest) p.out.colour = scale(p.out.colour, s->brightest / top);
    return p.out;
}
