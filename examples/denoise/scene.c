// SPDX-License-Identifier: Apache-2.0
//
// Scenes. Number 0 is the box of `make demo`: coloured walls, a square light, a mirror, a glass and
// two diffuse balls. Every other number is a scene of its own: a room, a landscape under the sky or
// a studio with lamps, filled with things of many forms and materials, seen from somewhere, and
// exposed like a photograph. Numbers that give a picture of almost nothing (the camera is inside of
// something) are tried again with other random numbers.
#include <stdlib.h>

#include "trace.h"

/* random choices */

static float between(struct rng *g, float lo, float hi) { return lo + (hi - lo) * next(g); }
static int choose(struct rng *g, int n) { return (int)(next(g) * (float)n); }
static bool happens(struct rng *g, float p) { return next(g) < p; }
static float size_between(struct rng *g, float lo, float hi) /* sizes double as often anywhere */
{
    return lo * powf(hi / lo, next(g));
}

static vec colour(struct rng *g)
{
    float hue = 6 * next(g), gray = powf(next(g), 0.6f), value = between(g, 0.08f, 0.92f), c[3];
    for (int k = 0; k < 3; k++) {
        float d = fabsf(hue - 2 * (float)k);
        float pure = fminf(1, fmaxf(0, 2 - fminf(d, 6 - d)));
        c[k] = value * (gray + (1 - gray) * pure);
    }
    return (vec){c[0], c[1], c[2]};
}

static vec warmth(struct rng *g) /* of lights: from warm to cold, brightest channel 1 */
{
    float t = between(g, -1, 1);
    return t < 0 ? (vec){1, 1 + 0.25f * t, 1 + 0.6f * t} : (vec){1 - 0.4f * t, 1 - 0.15f * t, 1};
}

/* A material of things, `coarse` how large its texture is. */
static int material(struct scene *s, struct rng *g, float coarse)
{
    static const enum surface often[] = {DIFFUSE, DIFFUSE, DIFFUSE, DIFFUSE, DIFFUSE,
                                         PLASTIC, PLASTIC, PLASTIC, METAL,   GLASS};
    struct material m = {.surface = often[choose(g, 10)]};
    m.colour = colour(g), m.other = colour(g);
    if (happens(g, 0.55f)) m.texture = (enum texture)choose(g, N_TEXTURES);
    float grain = size_between(g, 1.5f, 30) / coarse;
    m.grain = (vec){grain, grain, grain};
    if (m.surface != DIFFUSE) m.rough = happens(g, 0.4f) ? 0 : size_between(g, 0.02f, 0.5f);
    if (happens(g, 0.2f)) m.bump = size_between(g, 0.02f, 0.3f);
    if (m.surface == METAL)
        m.colour = add(scale(m.colour, 0.4f), (vec){0.5f, 0.5f, 0.5f}), m.texture = PLAIN;
    if (m.surface == GLASS)
        m.colour =
            happens(g, 0.6f) ? (vec){1, 1, 1} : add(scale(m.colour, 0.4f), (vec){0.6f, 0.6f, 0.6f}),
        m.texture = PLAIN, m.bump = 0;
    return scene_material(s, m);
}

/* Of large faces: they are not clear, or little would be left to see. */
static int wall_material(struct scene *s, struct rng *g)
{
    int m = material(s, g, 1);
    struct material *x = &s->material[m];
    if (x->surface == GLASS) x->surface = DIFFUSE, x->colour = (vec){0.7f, 0.7f, 0.7f};
    if (x->surface == METAL && happens(g, 0.7f)) x->surface = DIFFUSE;
    if (x->surface == METAL) x->rough = fmaxf(x->rough, 0.1f);
    return m;
}

static int light_material(struct scene *s, struct rng *g, float strength)
{
    return scene_material(
        s, (struct material){.surface = LIGHT, .colour = scale(warmth(g), strength)});
}

/* things */

struct thing {
    vec at;     /* in the middle of what it stands on */
    float size; /* half of its height and width, roughly */
    float turn; /* around y */
    float a, b; /* of its form */
    int n;      /* corners, waves */
};

static vec turned(const struct thing *x, vec p) /* from the thing's own place to the world */
{
    float c = cosf(x->turn), s = sinf(x->turn);
    return add(x->at, (vec){c * p.x - s * p.z, p.y, s * p.x + c * p.z});
}

static vec blob_at(const void *user, float u, float v)
{
    const struct thing *x = user;
    float phi = 2 * PI * u, theta = PI * v;
    float r = x->size * (1 + x->a * sinf((float)x->n * phi) * sinf(theta) * sinf(theta) +
                         x->b * cosf(3 * theta));
    vec p = {r * sinf(theta) * cosf(phi), x->size - r * cosf(theta), r * sinf(theta) * sinf(phi)};
    return turned(x, p);
}

static vec ring_at(const void *user, float u, float v)
{
    const struct thing *x = user;
    float phi = 2 * PI * u, theta = 2 * PI * v, thick = x->size * (0.15f + 0.3f * fabsf(x->a)),
          r = x->size - thick + thick * cosf(theta), h = thick * sinf(theta);
    bool upright = x->n & 1;
    vec p = upright ? (vec){r * cosf(phi), x->size + r * sinf(phi), h}
                    : (vec){r * cosf(phi), thick + h, r * sinf(phi)};
    return turned(x, p);
}

static vec turned_at(const void *user, float u, float v) /* as from a lathe: vase, cone, column */
{
    const struct thing *x = user;
    float phi = 2 * PI * u, r = x->size * (0.5f + x->a * v + x->b * sinf((float)x->n * v));
    r *= v < 0.02f || v > 0.98f ? 0.001f : 1; /* closed at both ends */
    return turned(x, (vec){r * cosf(phi), 2 * x->size * v, r * sinf(phi)});
}

static void add_stairs(struct scene *s, struct rng *g, const struct thing *x, int m)
{
    float step = x->size / (float)x->n;
    for (int k = 0; k < x->n; k++) {
        float y = step * ((float)k + 0.5f);
        vec c = turned(x, (vec){2 * y - x->size, y, 0});
        scene_box(s, c, (vec){step, y, x->size}, x->turn, m);
        if (happens(g, 0.1f)) m = material(s, g, x->size);
    }
}

static void add_fence(struct scene *s, const struct thing *x, int m)
{
    int bars = 4 + 3 * x->n;
    float gap = 2 * x->size / (float)bars;
    for (int k = 0; k <= bars; k++) {
        vec c = turned(x, (vec){gap * (float)k - x->size, x->size, 0});
        scene_box(s, c, (vec){0.2f * gap, x->size, 0.2f * gap}, x->turn, m);
    }
    for (int k = 0; k < 2; k++)
        scene_box(s, turned(x, (vec){0, x->size * (0.3f + 1.4f * (float)k), 0}),
                  (vec){x->size, 0.2f * gap, 0.25f * gap}, x->turn, m);
}

static void add_tuft(struct scene *s, struct rng *g, const struct thing *x, int m)
{
    for (int k = 0; k < 30 * x->n; k++) {
        float phi = 2 * PI * next(g), r = x->size * sqrtf(next(g)), lean = between(g, -0.4f, 0.4f),
              wide = x->size * between(g, 0.02f, 0.08f), high = x->size * between(g, 0.6f, 2);
        vec a = add(x->at, (vec){r * cosf(phi), 0, r * sinf(phi)});
        vec u = {wide * sinf(phi), 0, -wide * cosf(phi)}, v = {lean * high, high, lean * r};
        scene_parallelogram(s, a, u, v, m);
    }
}

static void add_heap(struct scene *s, struct rng *g, const struct thing *x)
{
    int m[3];
    for (int k = 0; k < 3; k++) m[k] = material(s, g, x->size);
    bool round = happens(g, 0.5f);
    for (int k = 0; k < 6 * x->n; k++) {
        float half = x->size * between(g, 0.08f, 0.3f), px = between(g, -1, 1),
              pz = between(g, -1, 1), py = next(g);
        vec c = turned(x, (vec){x->size * px, half + x->size * py * (1 - fabsf(px)), x->size * pz});
        if (round) scene_ball(s, c, half, m[k % 3]);
        else scene_box(s, c, (vec){half, half * (0.4f + py), half * (1.4f - py)}, 6 * pz, m[k % 3]);
    }
}

static void add_thing(struct scene *s, struct rng *g, vec at, float size)
{
    struct thing x = {.at = at, .size = size, .turn = between(g, 0, 2 * PI)};
    x.a = between(g, -0.3f, 0.3f), x.b = between(g, -0.2f, 0.2f), x.n = 2 + choose(g, 7);
    int m = material(s, g, size);
    bool smooth = happens(g, 0.6f);
    switch (choose(g, 10)) {
    case 0:
    case 1: scene_ball(s, add(at, (vec){0, size, 0}), size, m); break;
    case 2: {
        vec half = {size * between(g, 0.3f, 1), 0, 0};
        half.y = size * between(g, 0.3f, 1.5f), half.z = size * between(g, 0.3f, 1);
        scene_box(s, add(at, (vec){0, half.y, 0}), half, x.turn, m);
        break;
    }
    case 3: scene_mesh(s, smooth ? 32 : 10, smooth ? 20 : 7, blob_at, &x, smooth, m); break;
    case 4: scene_mesh(s, 32, 16, ring_at, &x, smooth, m); break;
    case 5: scene_mesh(s, smooth ? 24 : 3 + x.n, 50, turned_at, &x, false, m); break;
    case 6: add_stairs(s, g, &x, m); break;
    case 7: add_fence(s, &x, m); break;
    case 8: add_tuft(s, g, &x, m); break;
    default: add_heap(s, g, &x); break;
    }
}

/* Around the middle, on y = 0. */
static void fill(struct scene *s, struct rng *g, float reach)
{
    int n = 4 + choose(g, 12);
    for (int k = 0; k < n; k++) {
        float x = between(g, -reach, reach), z = between(g, -reach, reach),
              size = size_between(g, 0.12f, 0.7f);
        vec at = {x, 0, z};
        if (happens(g, 0.15f)) at.y = between(g, 0, 1.2f); /* in the air */
        add_thing(s, g, at, size);
    }
}

/* lights */

static void add_lamp(struct scene *s, struct rng *g, vec at, bool faces_down)
{
    float size = size_between(g, 0.05f, 0.8f), strength = between(g, 0.4f, 1) / (size * size);
    int m = light_material(s, g, strength);
    if (happens(g, 0.3f)) {
        scene_ball(s, at, size * 0.3f, m);
        return;
    }
    vec n = faces_down ? (vec){0, -1, 0} : unit(sub((vec){0, 0.5f, 0}, at)), u, v;
    frame(n, &u, &v);
    u = scale(u, size * between(g, 0.5f, 1.5f)), v = scale(v, size);
    scene_parallelogram(s, sub(at, scale(add(u, v), 0.5f)), u, v, m);
}

static void add_sky(struct scene *s, struct rng *g)
{
    float strength = size_between(g, 0.1f, 1);
    s->horizon = scale(warmth(g), strength);
    s->sky = happens(g, 0.5f) ? scale((vec){0.35f, 0.6f, 1}, strength) : scale(warmth(g), strength);
    if (happens(g, 0.3f)) return;
    float phi = 2 * PI * next(g), y = between(g, 0.15f, 0.95f), r = sqrtf(1 - y * y);
    s->to_sun = (vec){r * cosf(phi), y, r * sinf(phi)};
    s->sun_cos = cosf(size_between(g, 0.005f, 0.15f));
    s->sun = scale(warmth(g), size_between(g, 0.3f, 3) / (1 - s->sun_cos) / PI);
}

/* places */

static void look(struct scene *s, struct rng *g, vec from, vec to)
{
    struct camera *c = &s->camera;
    vec forward = sub(to, from);
    float far = sqrtf(dot(forward, forward)), high = far * between(g, 0.5f, 1.1f);
    c->at = from, c->forward = forward;
    c->right = scale(unit(cross(forward, (vec){0, 1, 0})), high);
    c->up = scale(unit(cross(c->right, forward)), high);
    c->aperture = happens(g, 0.25f) ? far * size_between(g, 0.005f, 0.04f) : 0;
}

static void build_room(struct scene *s, struct rng *g)
{
    float w = between(g, 1.2f, 2.6f), h = between(g, 2, 3.2f), d = between(g, 1.5f, 3);
    vec lo = {-w, 0, -d}, x = {2 * w, 0, 0}, y = {0, h, 0}, z = {0, 0, 2 * d};
    scene_parallelogram(s, lo, x, z, wall_material(s, g));
    scene_parallelogram(s, add(lo, y), x, z, wall_material(s, g));
    scene_parallelogram(s, lo, x, y, wall_material(s, g));
    scene_parallelogram(s, lo, y, z, wall_material(s, g));
    bool window = happens(g, 0.35f); /* a wall is missing */
    if (window) add_sky(s, g);
    else scene_parallelogram(s, add(lo, x), y, z, wall_material(s, g));
    scene_parallelogram(s, add(lo, z), x, y, wall_material(s, g));
    int lamps = window ? choose(g, 2) : 1 + choose(g, 3);
    for (int k = 0; k < lamps; k++) {
        float px = between(g, -0.7f, 0.7f) * w, pz = between(g, -0.7f, 0.7f) * d;
        add_lamp(s, g, (vec){px, h - between(g, 0.02f, 0.5f), pz}, true);
    }
    fill(s, g, fminf(w, d) * 0.85f);
    float cx = between(g, -0.7f, 0.7f) * w, cy = between(g, 0.4f, 1.8f), ty = between(g, 0.2f, 1);
    look(s, g, (vec){cx, cy, d * 0.95f}, (vec){-0.3f * cx, ty, 0});
}

static vec hills_at(const void *user, float u, float v)
{
    const struct thing *x = user;
    float px = 24 * (u - 0.5f), pz = 24 * (v - 0.5f);
    float y =
        x->a * sinf(px * 1.3f + x->turn) * sinf(pz * 0.9f) + 0.3f * x->b * sinf(px * 3 + pz * 2.3f);
    return (vec){px, y * fminf(1, 0.15f * (px * px + pz * pz)), pz};
}

static void look_around(struct scene *s, struct rng *g)
{
    float phi = 2 * PI * next(g), r = between(g, 2.5f, 4.5f), cy = between(g, 0.5f, 2.5f),
          ty = between(g, 0.1f, 0.7f);
    look(s, g, (vec){r * cosf(phi), cy, r * sinf(phi)}, (vec){0, ty, 0});
}

static void build_land(struct scene *s, struct rng *g)
{
    struct thing x = {
        .a = between(g, 0, 0.5f), .b = between(g, -0.5f, 0.5f), .turn = between(g, 0, 6)};
    int m = wall_material(s, g);
    if (happens(g, 0.5f)) scene_mesh(s, 48, 48, hills_at, &x, happens(g, 0.7f), m);
    else scene_parallelogram(s, (vec){-40, 0, -40}, (vec){0, 0, 80}, (vec){80, 0, 0}, m);
    add_sky(s, g);
    fill(s, g, between(g, 1, 2.5f));
    look_around(s, g);
}

static void build_studio(struct scene *s, struct rng *g)
{
    scene_parallelogram(s, (vec){-9, 0, -9}, (vec){0, 0, 18}, (vec){18, 0, 0}, wall_material(s, g));
    if (happens(g, 0.5f)) s->sky = s->horizon = scale(warmth(g), size_between(g, 0.005f, 0.1f));
    int lamps = 1 + choose(g, 4);
    for (int k = 0; k < lamps; k++) {
        float phi = 2 * PI * next(g), r = between(g, 1, 3.5f), y = between(g, 1, 3.5f);
        add_lamp(s, g, (vec){r * cosf(phi), y, r * sinf(phi)}, false);
    }
    fill(s, g, between(g, 0.8f, 2));
    look_around(s, g);
}

/* The box of the demo, number 0. */

static int plain(struct scene *s, enum surface surface, vec c)
{
    return scene_material(s, (struct material){.surface = surface, .colour = c});
}

static void build_box(struct scene *s)
{
    int white = plain(s, DIFFUSE, (vec){0.75f, 0.75f, 0.75f});
    int tiles = scene_material(s, (struct material){.texture = CHECKER,
                                                    .colour = {0.75f, 0.75f, 0.75f},
                                                    .other = {0.34f, 0.34f, 0.34f},
                                                    .grain = {4, 0, 4}});
    vec lo = {-1.35f, 0, -1}, x = {2.7f, 0, 0}, y = {0, 2, 0}, z = {0, 0, 2.2f};
    scene_parallelogram(s, lo, x, z, tiles);
    scene_parallelogram(s, add(lo, y), x, z, white);
    scene_parallelogram(s, lo, x, y, white);
    scene_parallelogram(s, lo, y, z, plain(s, DIFFUSE, (vec){0.75f, 0.2f, 0.15f}));
    scene_parallelogram(s, add(lo, x), y, z, plain(s, DIFFUSE, (vec){0.2f, 0.6f, 0.25f}));
    scene_parallelogram(s, (vec){-0.4f, 1.99f, -0.4f}, (vec){0.8f, 0, 0}, (vec){0, 0, 0.8f},
                        plain(s, LIGHT, (vec){11, 10, 8}));
    scene_ball(s, (vec){-0.72f, 0.42f, -0.35f}, 0.42f, plain(s, METAL, (vec){0.95f, 0.95f, 0.95f}));
    scene_ball(s, (vec){0.62f, 0.38f, 0.20f}, 0.38f, plain(s, GLASS, (vec){1, 1, 1}));
    scene_ball(s, (vec){0.05f, 0.24f, -0.55f}, 0.24f,
               plain(s, DIFFUSE, (vec){0.85f, 0.65f, 0.15f}));
    scene_ball(s, (vec){-0.25f, 0.17f, 0.45f}, 0.17f,
               plain(s, DIFFUSE, (vec){0.25f, 0.35f, 0.85f}));
    s->camera = (struct camera){{0, 1, 3.55f}, {1, 0, 0}, {0, 1, 0}, {0, 0, -1.2f}, 0};
    s->brightest = 2;
}

/* exposure */

static void set_exposure(struct scene *s, float by)
{
    for (int k = 0; k < s->n_materials; k++)
        if (s->material[k].surface == LIGHT)
            s->material[k].colour = scale(s->material[k].colour, by);
    s->sky = scale(s->sky, by), s->horizon = scale(s->horizon, by), s->sun = scale(s->sun, by);
}

/* From a small picture: the mean of the logarithm of its brightness becomes what it is in
 * photographs, as long as the mean itself does not get too bright. false: there is almost nothing
 * to see. */
static bool expose(struct scene *s, struct rng *g)
{
    enum { SIZE = 24, SAMPLES = 8 };
    double sum = 0, mean = 0;
    float value[SIZE * SIZE], to = between(g, 0.08f, 0.3f);
    int seen = 0;
    for (int i = 0; i < SIZE * SIZE; i++) {
        value[i] = 0;
        for (int k = 0; k < SAMPLES; k++) {
            float x = ((float)(i % SIZE) + 0.5f) / SIZE - 0.5f,
                  y = ((float)(i / SIZE) + 0.5f) / SIZE - 0.5f;
            struct sample p = trace(s, camera_ray(&s->camera, x, y, g), g);
            value[i] += (p.colour.x + p.colour.y + p.colour.z) / (3 * SAMPLES);
            seen += p.depth > 0.1f && p.depth < 0.8f;
        }
        mean += value[i] / (SIZE * SIZE);
    }
    if (seen < SIZE * SIZE * SAMPLES / 2 || mean < 1e-4) return false;
    for (int i = 0; i < SIZE * SIZE; i++) sum += log(fmax(value[i], 0.01 * mean) / mean);
    set_exposure(s, fminf(to / (float)exp(sum / (SIZE * SIZE)), 0.5f) / (float)mean);
    return true;
}

/* public */

void scene_release(struct scene *s)
{
    free(s->shape), free(s->material), free(s->node), free(s->order), free(s->light);
    *s = (struct scene){0};
}

/* false: no memory, or nothing to see: *again */
static bool build_random(struct scene *s, struct rng *g, bool *again)
{
    int place = choose(g, 5);
    if (place < 2) build_room(s, g);
    else if (place < 4) build_land(s, g);
    else build_studio(s, g);
    float brightest = size_between(g, 2, 12);
    s->brightest = FAR;
    *again = !s->is_short && scene_grow_tree(s) && !expose(s, g);
    s->brightest = brightest;
    return !s->is_short && !*again;
}

bool scene_init(struct scene *s, uint64_t number)
{
    *s = (struct scene){0};
    struct rng g = seed(number * 2654435761u + 1);
    if (!number) {
        build_box(s);
        return !s->is_short && scene_grow_tree(s);
    }
    for (bool again = true; again;) {
        scene_release(s);
        if (build_random(s, &g, &again)) return true;
    }
    return false;
}
