// SPDX-License-Identifier: Apache-2.0
//
// A small path tracer and the scenes that it renders: the box of `make demo`, and random ones that
// are a function of a number. trace.c follows paths, hit.c finds what a ray meets, surface.c has
// textures and directions, scene.c builds scenes, shapes.c what they consist of, render.c is the
// program. Lengths are metres, y is up, colours are linear.
#ifndef TRACE_H
#define TRACE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static const float PI = 3.14159265f, FAR = 1e9f, NEAR = 1e-4f;

typedef struct {
    float x, y, z;
} vec;

static inline vec add(vec a, vec b) { return (vec){a.x + b.x, a.y + b.y, a.z + b.z}; }
static inline vec sub(vec a, vec b) { return (vec){a.x - b.x, a.y - b.y, a.z - b.z}; }
static inline vec mul(vec a, vec b) { return (vec){a.x * b.x, a.y * b.y, a.z * b.z}; }
static inline vec scale(vec a, float s) { return (vec){a.x * s, a.y * s, a.z * s}; }
static inline float dot(vec a, vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static inline vec cross(vec a, vec b)
{
    return (vec){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
static inline vec unit(vec a) { return scale(a, 1 / sqrtf(fmaxf(dot(a, a), 1e-30f))); }
static inline float largest(vec a) { return fmaxf(a.x, fmaxf(a.y, a.z)); }
static inline float axis_of(vec a, int k) { return k == 0 ? a.x : k == 1 ? a.y : a.z; }

/* Two directions that are perpendicular to n and to each other, so that u, v, n is right-handed. */
static inline void frame(vec n, vec *u, vec *v)
{
    *u = unit(cross(fabsf(n.x) > 0.5f ? (vec){0, 1, 0} : (vec){1, 0, 0}, n));
    *v = cross(n, *u);
}

/* random numbers: PCG. Of several in one expression the order would be the compiler's choice: one
 * per statement or declarator. */

struct rng {
    uint64_t state;
};

static inline float next(struct rng *r) /* 0 <= x < 1 */
{
    uint64_t old = r->state;
    r->state = old * 6364136223846793005u + 1442695040888963407u;
    uint32_t x = (uint32_t)(((old >> 18) ^ old) >> 27), k = (uint32_t)(old >> 59);
    x = (x >> k) | (x << ((32 - k) & 31));
    return (float)(x >> 8) * 0x1p-24f;
}

static inline struct rng seed(uint64_t n)
{
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
    n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
    return (struct rng){n ^ (n >> 31)};
}

/* scenes */

enum surface { DIFFUSE, PLASTIC, METAL, GLASS, LIGHT };
enum texture { PLAIN, CHECKER, STRIPES, BRICKS, DOTS, NOISE, N_TEXTURES };
enum kind { BALL, TRIANGLE, PARALLELOGRAM };

struct material {
    enum surface surface;
    enum texture texture; /* solid: a function of the place; mixes colour and other */
    vec colour, other;    /* reflected part; of a light what it emits, to the side of its normal */
    vec grain;            /* what the place is multiplied with before the texture */
    float rough;          /* 0: a mirror */
    float bump;           /* slope of the dents in the surface */
};
struct shape {
    enum kind kind;
    bool smooth;  /* triangle with normals of its corners */
    int material; /* its number */
    vec a, u, v;  /* a + s u + t v; of a ball a is the centre */
    vec n[3];     /* at a, a + u, a + v if smooth; else n[0] is unit(cross(u, v)) */
    float radius;
};
struct node { /* of the tree of boxes around shapes */
    vec lo, hi;
    int first, n; /* n > 0: shapes order[first ..]; else the children are nodes first, first + 1 */
};
struct camera {
    vec at, right, up, forward; /* a picture's height spans -up/2 .. up/2 around forward */
    float aperture;             /* radius of the lens; forward reaches what is sharp */
};
struct scene {
    struct shape *shape;
    struct material *material;
    struct node *node;
    int *order, *light; /* shapes by the tree; shapes that emit */
    int n_shapes, n_materials, n_lights, max_shapes, max_materials;
    bool is_short;                 /* memory did not suffice for all that was added */
    vec sky, horizon, sun, to_sun; /* colours from above and beside, and of the sun; black: none */
    float sun_cos;                 /* of the sun's radius, seen as an angle */
    struct camera camera;
    float brightest; /* every path is limited to that, in few and in many samples alike */
};

/* scene.c */
bool scene_init(struct scene *s, uint64_t number); /* 0: the box; false: no memory */
void scene_release(struct scene *s);

/* shapes.c: adding to a scene; m is a material's number */
int scene_material(struct scene *s, struct material m);
void scene_ball(struct scene *s, vec centre, float radius, int m);
void scene_parallelogram(struct scene *s, vec a, vec u, vec v, int m);
void scene_box(struct scene *s, vec centre, vec half, float turn, int m);
/* A surface of (nu x nv) points, each at(user, i / nu, j / nv), as smooth or flat triangles. */
void scene_mesh(struct scene *s, int nu, int nv, vec (*at)(const void *, float, float),
                const void *user, bool smooth, int m);

/* hit.c */
struct ray {
    vec o, d; /* d of length 1 */
};
struct hit {
    float t;
    vec p, n; /* n as the shape has it: it may point along the ray */
    const struct material *m;
    vec colour; /* at p */
};
bool scene_grow_tree(struct scene *s);
bool find_hit(const struct scene *s, const struct ray *r, struct hit *h);
bool is_free(const struct scene *s, vec from, vec to); /* no shape in between */

/* surface.c */
vec texture_at(const struct material *m, vec p);
vec dented(const struct material *m, vec p, vec n);
vec scatter(vec n, struct rng *g); /* by the cosine */
vec reflect(vec d, vec n);
vec reflect_rough(vec d, vec n, float rough, struct rng *g);
float fresnel(float c); /* reflected part for a refractive index of 1.5 */
vec through_glass(vec d, vec n, struct rng *g);

/* trace.c */
struct sample {
    vec colour;
    vec albedo,
        normal;  /* of the first surface that is neither mirror nor glass; albedo of lights
                    and of the sky is 1; normal in the world, towards the viewer; 0 for sky */
    float depth; /* 1 / (1 + length of the path to there); 0 for sky */
};
struct sample trace(const struct scene *s, struct ray r, struct rng *g);
struct ray camera_ray(const struct camera *c, float x, float y,
                      struct rng *g); /* x, y: in heights */

#endif
