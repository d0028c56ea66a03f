// SPDX-License-Identifier: Apache-2.0
//
// What scenes consist of: balls, parallelograms and triangles, and how boxes and curved surfaces
// are made of them.
#include <stdlib.h>

#include "trace.h"

/* Room for one more; false: no memory. */
static bool make_room(void **array, int n, int *max, size_t size)
{
    if (n < *max) return true;
    int more = *max ? 2 * *max : 64;
    void *p = realloc(*array, (size_t)more * size);
    if (!p) return false;
    *array = p, *max = more;
    return true;
}

int scene_material(struct scene *s, struct material m)
{
    void *p = s->material;
    if (!make_room(&p, s->n_materials, &s->max_materials, sizeof m)) return s->is_short = true, 0;
    s->material = p;
    s->material[s->n_materials] = m;
    return s->n_materials++;
}

static void add_shape(struct scene *s, struct shape x)
{
    void *p = s->shape;
    if (!make_room(&p, s->n_shapes, &s->max_shapes, sizeof x)) {
        s->is_short = true;
        return;
    }
    s->shape = p;
    s->shape[s->n_shapes++] = x;
}

void scene_ball(struct scene *s, vec centre, float radius, int m)
{
    add_shape(s, (struct shape){.kind = BALL, .material = m, .a = centre, .radius = radius});
}

void scene_parallelogram(struct scene *s, vec a, vec u, vec v, int m)
{
    vec n = unit(cross(u, v));
    add_shape(
        s, (struct shape){.kind = PARALLELOGRAM, .material = m, .a = a, .u = u, .v = v, .n = {n}});
}

void scene_box(struct scene *s, vec centre, vec half, float turn, int m)
{
    vec axis[3] = {{cosf(turn) * half.x, 0, sinf(turn) * half.x},
                   {0, half.y, 0},
                   {-sinf(turn) * half.z, 0, cosf(turn) * half.z}};
    for (int k = 0; k < 3; k++) {
        vec w = axis[k], u = axis[(k + 1) % 3], v = axis[(k + 2) % 3];
        vec corner = sub(centre, add(u, v)), u2 = scale(u, 2), v2 = scale(v, 2);
        scene_parallelogram(s, add(corner, w), v2, u2, m); /* normals outwards */
        scene_parallelogram(s, sub(corner, w), u2, v2, m);
    }
}

/* curved surfaces */

struct mesh {
    vec (*at)(const void *, float, float);
    const void *user;
    bool smooth;
    int m;
};

static vec slope(const struct mesh *x, float s, float t)
{
    float e = 1e-3f;
    vec u = sub(x->at(x->user, s + e, t), x->at(x->user, s - e, t)),
        v = sub(x->at(x->user, s, t + e), x->at(x->user, s, t - e));
    return unit(cross(u, v));
}

static void add_triangle(struct scene *s, const struct mesh *x, const float c[3][2])
{
    vec p[3];
    for (int k = 0; k < 3; k++) p[k] = x->at(x->user, c[k][0], c[k][1]);
    struct shape f = {.kind = TRIANGLE, .material = x->m, .a = p[0]};
    f.u = sub(p[1], p[0]), f.v = sub(p[2], p[0]);
    vec n = cross(f.u, f.v);
    if (dot(n, n) < 1e-16f) return; /* at a pole */
    f.n[0] = unit(n);
    f.smooth = x->smooth;
    for (int k = 0; k < 3 && x->smooth; k++) {
        vec m = slope(x, c[k][0], c[k][1]);
        f.n[k] = dot(m, n) > 0 ? m : unit(n);
    }
    add_shape(s, f);
}

void scene_mesh(struct scene *s, int nu, int nv, vec (*at)(const void *, float, float),
                const void *user, bool smooth, int m)
{
    struct mesh x = {at, user, smooth, m};
    for (int i = 0; i < nu; i++)
        for (int j = 0; j < nv; j++) {
            float u0 = (float)i / (float)nu, u1 = (float)(i + 1) / (float)nu;
            float v0 = (float)j / (float)nv, v1 = (float)(j + 1) / (float)nv;
            add_triangle(s, &x, (const float[3][2]){{u0, v0}, {u1, v0}, {u1, v1}});
            add_triangle(s, &x, (const float[3][2]){{u0, v0}, {u1, v1}, {u0, v1}});
        }
}
