// SPDX-License-Identifier: Apache-2.0
//
// winograd_points: what Winograd convolutions (winograd.c) know before anything is emitted: the points of F(m, 3) and their
// matrices, which convolutions and poolings tiles can do, and the scratch memory of a grid iteration.
#include "gen/winograd.h"

#include <math.h>

/* Points. */

/* Coefficients of the product of (x - point) over all finite points but `but` and `and_but`: returns their number. */
static i64 polynomial(const struct wino *w, i64 but, i64 and_but, double c[WINO_MAX])
{
    i64 len = 1;
    c[0] = 1;
    for (i64 l = 0; l < w->n - 1; l++) {
        if (l == but || l == and_but) continue;
        c[len] = 0;
        for (i64 i = len++; i > 0; i--) c[i] = c[i - 1] - w->point[l] * c[i];
        c[0] *= -w->point[l];
    }
    return len;
}

/* The points of least error among pairs of eighths (doc/winograd.md): rows and their powers are exact in f32. Rows of Toom and Cook:
 * for a finite point the polynomial that is zero at all others, for infinity the one that is zero at all. Those of p and -p are
 * q*x*(x + p) and q*x*(x - p), q even: two sums, one multiplied by +-p. */
void wino_init(struct wino *w, i64 m, i64 taps)
{
    static const double all[][WINO_MAX] = {
        {0, 1, -1}, {0, 0.625, -0.625, 1.5, -1.5}, {0, 1, -1, 2, -2, 0.5, -0.5}};
    double c[WINO_MAX + 1];
    *w = (struct wino){.m = m, .n = m + taps - 1, .taps = taps, .scale = m == 1 ? 1 : m == 2 ? 2 : 0};
    if (m == 1) {
        for (i64 k = 0; k < w->n; k++) w->in[k][k] = w->g[k * w->taps + k] = w->out[0][k] = 1;
        return;
    }
    assert(taps == WINO_TAPS && w->n <= WINO_MAX && w->n % 2 == 0);
    for (i64 k = 0; k < w->n - 1; k++) w->point[k] = all[m / 2 - 1][k];
    for (i64 k = 0; k < w->n - 1; k++) {
        double norm = 1, power = 1;
        for (i64 l = 0; l < w->n - 1; l++) norm *= l == k ? 1 : w->point[k] - w->point[l];
        for (i64 i = 0; i < WINO_TAPS; i++, power *= w->point[k]) w->g[k * WINO_TAPS + i] = power / norm;
    }
    w->g[w->n * WINO_TAPS - 1] = 1;
    for (i64 i = polynomial(w, 0, -1, c); i-- > 0;) w->even[0][i] = c[i];
    for (i64 i = polynomial(w, -1, -1, c); i-- > 0;) w->odd[w->n - 1][i] = c[i];
    for (i64 k = 1; k < w->n - 1; k += 2) {
        i64 len = polynomial(w, k, k + 1, c);
        for (i64 i = 0; i < len; i++) w->even[k][i + 1] = w->odd[k][i] = c[i];
    }
    /* The matrices in full, of points whose rows are known. */
    for (i64 k = 0; k < w->n; k++) {
        i64 pair = k > 0 && k < w->n - 1 ? (k - 1) / 2 * 2 + 1 : k; /* its row */
        double x = k < w->n - 1 ? w->point[k] : 1, power = 1;
        for (i64 i = 0; i < w->n; i++) w->in[k][i] = w->even[pair][i] + x * w->odd[pair][i];
        for (i64 i = 0; i < w->m; i++, power *= x) w->out[i][k] = k < w->n - 1 ? power : i == w->m - 1;
    }
}

double wino_growth(i64 m)
{
    struct wino w;
    double most = 0;
    wino_init(&w, m, WINO_TAPS);
    for (i64 i = 0; i < w.m; i++) {
        double row = 0;
        for (i64 k = 0; k < w.n; k++) {
            double in = 0, g = 0;
            for (i64 j = 0; j < w.n; j++) in += fabs(w.in[k][j]);
            for (i64 j = 0; j < WINO_TAPS; j++) g += fabs(w.g[k * WINO_TAPS + j]);
            row += fabs(w.out[i][k]) * in * g;
        }
        most = fmax(most, row);
    }
    return most / WINO_TAPS;
}

/* Integers. */

struct tile_product wino_product(const struct conv *c, const struct caps *caps)
{
    if (!wino_is_integer(c)) return tile_multiply_add;
    struct tile_product p = tile_product_of(caps, &(struct tile_operands){DT_I16, DT_I16, c->type, c->ic, 0});
    return p.leaf == &tile_dot ? p : (struct tile_product){0};
}

/* The largest sum of magnitudes of a row of a matrix: by so much a transform enlarges its operand at most. */
static double largest_row(const double *row, i64 n_rows, i64 pitch, i64 n)
{
    double most = 0;
    for (i64 k = 0; k < n_rows; k++) {
        double sum = 0;
        for (i64 i = 0; i < n; i++) sum += fabs(row[k * pitch + i]);
        most = fmax(most, sum);
    }
    return most;
}

/* Sums are exact if
 *   - no value at a point exceeds i16: |inputs|, at most x, times the transform's largest row along each axis, 2 for m = 2; and |weights| likewise, of which
 *     g times 2 is used, rows of at most 3;
 *   - the outputs, which are the scale of all axes (4 or 8) times the sums of terms of the definition, fit i32. Products at points may exceed it on
 *     the way: additions modulo 2^32 have the right result whenever it fits, and a shift then divides it exactly.
 * With x = 255 and weights of at most 128 that is 1,827 channels of a plane, with x = w = 255 917. */
bool wino_is_exact(const struct conv *c, const struct wino_sched *s)
{
    struct wino w[2];
    i64 most[2];
    double x, weight, sum;
    wino_init(&w[0], s->m, WINO_TAPS);
    wino_init(&w[1], s->mz, wino_z_taps(c));
    if (!w[0].scale || !w[1].scale || !op_conv_most(c->g, graph_node(c->g, graph_value(c->g, c->y)->producer), most)) return false;
    x = (double)most[0], weight = (double)most[1];
    sum = x * weight * (double)(c->ic * WINO_TAPS * WINO_TAPS * wino_z_taps(c));
    for (i64 axis = 0; axis < 3; axis++) { /* y, x, z */
        const struct wino *a = &w[axis / 2];
        x *= largest_row(a->in[0], a->n, WINO_MAX, a->n), weight *= largest_row(a->g, a->n, a->taps, a->taps) * (double)a->scale, sum *= (double)a->scale;
    }
    return x <= INT16_MAX && weight <= INT16_MAX && sum <= INT32_MAX;
}

/* Sizes. */

/* Lines of a cache, an odd number of them, so that the points of one tile do not fall on the same few sets. */
static i64 odd_lines(i64 elements, i64 size)
{
    const i64 line = 64 / size;
    return (ceil_div(elements, line) | 1) * line;
}

static i64 lines_apart(i64 elements, i64 size) /* tiles likewise, where they would all fall on two sets */
{
    const i64 line = 64 / size, far = 2048 / size;
    elements = ceil_div(elements, line) * line;
    return elements % far ? elements : elements + line;
}

static bool tail_of(struct conv_tail *tail, const struct conv *c)
{
    if (!conv_tail_of(tail, c) || tail->ragged) return false;
    for (u32 i = 0; i < c->g->output.n; i++)
        if (graph_value(c->g, c->g->output.v[i])->layout != LAYOUT_CLAST) return false;
    return true;
}

bool wino_window(const struct conv *c)
{
    bool ok = c->groups == 1 && (c->rank == 4 || c->rank == 5);
    for (u32 a = 2; ok && a < c->rank; a++)
        ok = (c->k[a] == WINO_TAPS || (a + 2 < c->rank && c->k[a] == 1)) && c->stride[a] == 1 && c->dil[a] == 1;
    return ok;
}

bool wino_of(struct conv *c, struct conv_tail *tail, const struct task *t)
{
    if (!conv_anchor_any(c, t) || !wino_window(c)) return false;
    if (wino_is_integer(c) && dtype_size(graph_value(c->g, c->x)->dtype) > 2) return false;
    c->xa = (i32)c->rank - 1, c->ya = c->xa - 1; /* of one pixel, too */
    if (!conv_fit(c, t)) return false;
    if (!tail_of(tail, c)) *tail = (struct conv_tail){0};
    return true;
}

bool wino_pools(const struct conv *c, const struct conv_tail *tail, const struct wino_sched *s)
{
    if (!tail->pool) return false;
    bool z = wino_z(c) < 0 || s->mz % tail->win[wino_z(c)] == 0;
    return z && s->m % tail->win[c->ya] == 0 && s->m % tail->win[c->xa] == 0;
}

struct wino_scratch wino_scratch(const struct conv *c, const struct wino_sched *s, u32 lanes)
{
    i64 n = s->m + WINO_TAPS - 1, nz = s->mz + wino_z_taps(c) - 1, tiles = s->tb * s->tx, size = wino_size(c);
    struct wino_scratch r = {.v_pitch = lines_apart(round_up(c->ic, wino_wide(c, lanes)), size), .m_pitch = s->nr * lanes};
    r.v_plane = odd_lines(tiles * r.v_pitch, size);
    r.m_plane = odd_lines(tiles * r.m_pitch, 4);
    r.v = wino_points(c, s) * r.v_plane, r.m = wino_points(c, s) * r.m_plane;
    r.strip = nz * n * ((c->plain ? 1 : tiles) * s->m + WINO_TAPS - 1) * c->ic;
    return r;
}
