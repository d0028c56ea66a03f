// SPDX-License-Identifier: Apache-2.0
//
// What surfaces look like and where light goes from them: solid textures, dents, lobes.
#include "trace.h"

/* noise */

static float lattice(int x, int y, int z) /* -1..1 */
{
    uint32_t h = (uint32_t)x * 0x8da6b343u ^ (uint32_t)y * 0xd8163841u ^ (uint32_t)z * 0xcb1ab31fu;
    h = (h ^ (h >> 15)) * 0x2c1b3c6du;
    h = (h ^ (h >> 12)) * 0x297a2d39u;
    return (float)((h ^ (h >> 15)) >> 8) * 0x1p-23f - 1;
}

static float ease(float t) { return t * t * (3 - 2 * t); }
static float mix(float a, float b, float t) { return a + (b - a) * t; }

static float noise(vec p) /* values at whole numbers, smooth in between */
{
    float fx = floorf(p.x), fy = floorf(p.y), fz = floorf(p.z);
    int x = (int)fx, y = (int)fy, z = (int)fz;
    float u = ease(p.x - fx), v = ease(p.y - fy), w = ease(p.z - fz), plane[2];
    for (int k = 0; k < 2; k++)
        plane[k] = mix(mix(lattice(x, y, z + k), lattice(x + 1, y, z + k), u),
                       mix(lattice(x, y + 1, z + k), lattice(x + 1, y + 1, z + k), u), v);
    return mix(plane[0], plane[1], w);
}

static float clouds(vec p) /* four octaves, 0..1 mostly */
{
    float sum = 0.5f, size = 0.35f;
    for (int k = 0; k < 4; k++, size /= 2, p = scale(p, 2.03f)) sum += size * noise(p);
    return sum;
}

/* textures: how much of the other colour, 0..1 */

static float part_of(float x) { return x - floorf(x); }

static float bricks(vec p)
{
    float y = part_of(p.y), shift = 0.5f * part_of(floorf(p.y) * 0.5f) * 2;
    return y < 0.1f || part_of(p.x + shift) < 0.06f || part_of(p.z + shift) < 0.06f;
}

static float amount(enum texture t, vec p)
{
    vec c = {part_of(p.x) - 0.5f, part_of(p.y) - 0.5f, part_of(p.z) - 0.5f};
    switch (t) {
    case CHECKER: return (float)(((int)floorf(p.x) + (int)floorf(p.y) + (int)floorf(p.z)) & 1);
    case STRIPES: return part_of(p.x + 0.3f * p.y + 0.1f * noise(p)) < 0.5f;
    case BRICKS: return bricks(p);
    case DOTS: return dot(c, c) < 0.16f;
    case NOISE: return fminf(1, fmaxf(0, 1.6f * clouds(p) - 0.3f));
    case PLAIN:
    case N_TEXTURES: break;
    }
    return 0;
}

vec texture_at(const struct material *m, vec p)
{
    const vec off = {0.37f, 0.41f, 0.43f}; /* floors and walls are not where a texture changes */
    float t = amount(m->texture, add(mul(p, m->grain), off));
    return add(scale(m->colour, 1 - t), scale(m->other, t));
}

vec dented(const struct material *m, vec p, vec n)
{
    vec q = mul(p, m->grain);
    float step = 0.05f, here = clouds(q);
    vec slope = {clouds(add(q, (vec){step, 0, 0})) - here, clouds(add(q, (vec){0, step, 0})) - here,
                 clouds(add(q, (vec){0, 0, step})) - here};
    slope = scale(slope, m->bump / step);
    return unit(sub(n, sub(slope, scale(n, dot(n, slope)))));
}

/* directions */

vec scatter(vec n, struct rng *g)
{
    float phi = 2 * PI * next(g), r2 = next(g), r = sqrtf(r2);
    vec u, v;
    frame(n, &u, &v);
    return unit(
        add(add(scale(u, r * cosf(phi)), scale(v, r * sinf(phi))), scale(n, sqrtf(1 - r2))));
}

vec reflect(vec d, vec n) { return sub(d, scale(n, 2 * dot(d, n))); }

/* Around the mirrored direction: to a point of a ball there. */
vec reflect_rough(vec d, vec n, float rough, struct rng *g)
{
    vec m = reflect(d, n);
    if (rough <= 0) return m;
    float z = 2 * next(g) - 1, phi = 2 * PI * next(g), size = rough * cbrtf(next(g)),
          r = sqrtf(fmaxf(0, 1 - z * z));
    return unit(add(m, scale((vec){r * cosf(phi), r * sinf(phi), z}, size)));
}

float fresnel(float c)
{
    float x = 1 - c;
    return 0.04f + 0.96f * x * x * x * x * x;
}

vec through_glass(vec d, vec n, struct rng *g)
{
    bool enters = dot(d, n) < 0;
    float eta = enters ? 1 / 1.5f : 1.5f;
    vec m = enters ? n : scale(n, -1);
    float c = -dot(d, m), k = 1 - eta * eta * (1 - c * c);
    if (k < 0) return reflect(d, m);
    if (next(g) < fresnel(enters ? c : sqrtf(k))) return reflect(d, m);
    return unit(add(scale(d, eta), scale(m, eta * c - sqrtf(k))));
}
