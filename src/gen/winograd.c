// SPDX-License-Identifier: Apache-2.0
//
// winograd: 3x3 and 3x3x3 convolutions of stride 1 by Winograd's minimal filtering F(m x m, 3 x 3) (A. Lavin, S. Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016, sections 4 and 5). The outputs are cut in tiles of m x m pixels. A tile's n x n
// inputs (n = m + 2) become values at n x n points; there the convolution is one GEMM per point, of tiles x input channels with
// input channels x output channels, whose results are transformed back to pixels. m*m*9 multiply-adds become n*n: 2.25, 4 and 5.06 times
// less. Volumes have a third axis, z, nested outside: tiles of mz x m x m, mz = 1 without savings along z, mz = 2 with 1.5 times less.
//
// A grid iteration takes tb*tx tiles that follow each other in the image and some blocks of output channels. All tiles are brought
// to the points once, then block by block the products of all points go through the register tile and back to pixels through the
// epilogue. So what waits in the second cache is inputs at points [point][tile][channel] and one block of products
// [point][tile][width]; weights, brought to the points in f64 when the program is compiled, stream by once per iteration.
//
// The products touch nothing but scratch memory and weights, so they are the time to fetch from far: step by step they ask for the inputs
// of the next iteration's tiles and for the places where this one's outputs will go.
//
// Tiles inside the image are read in place from inputs with channels last; others are first copied with zeros around
// (cpu_band.c). Inputs that are computed on the way are copied likewise, a row of the iteration's tiles at a time. Sums along z are
// taken while loading: along that axis, points are few and their rows short. Where windows of pooling divide the tile, a tile's
// outputs are pooled before they are stored.
//
// Of integers, values at points are i16, products are added by pairs, and outputs are divided exactly (wino_is_exact).
//
// Dims: tiles (image, z, y, x); nz*n*n points; input channels; output channels in blocks of nr vectors.
#include "gen/winograd.h"

enum { LINE = 64, MAX_LINES = 4, SHORTEST = 8 }; /* bytes of a line of memory; streams of them that products ask for; bytes of the shortest vector */

struct source { kval buf, at, z_step, y_step, x_step; }; /* a tile's inputs: of the first channel, and from pixel to pixel */

/* A row of tiles in memory, as many as a register tile holds: its lines are asked for one by one while products are computed. */
struct lines {
    struct source at;            /* its first pixel */
    i64 planes, rows, pixels, per_pixel; /* the last in lines */
    i64 each;                    /* elements of a line */
    i64 per_step;                /* lines asked for with each step of the product */
    kval first;                  /* step */
};

struct winograd {
    struct emit *m;
    struct band b;            /* of a strip, window along z: a tile's; its register tile holds outputs of one vector of channels: a column of them, or all where they are stored by rows */
    struct wino_sched s;
    struct wino w, wz;        /* along y and x; along z: one tap where there is none */
    i32 za;                   /* axis z, -1: none */
    struct conv_tail tail;
    bool pools;               /* the tail's pooling, before anything is stored */
    struct wino_scratch at;
    struct tile t;            /* of the products */
    enum dtype type;          /* of values at points: that of the sums, of integers i16 */
    u32 lanes, wide;          /* of vectors of sums and outputs; of values at points */
    i64 shift;                /* of integers: outputs are 2^shift times the sums */
    i64 tiles;                /* of a grid iteration */
    sym n_z, n_y, n_x;        /* tiles of an image */
    kval z0;                  /* first output along z of the tile at hand */
    kval v, p, wbuf;          /* scratch: inputs by point, products; weights */
    kval first, n;            /* tiles of this iteration: number of the first, and how many */
    struct lines lines[MAX_LINES]; /* asked for by the products */
    u32 n_lines;
};

/* The transform. */

/* The sum of n coefficients times values, those of 1 first. */
static kval weighted_sum(const struct winograd *w, const double *c, const kval *d, i64 n)
{
    struct kir *k = w->m->k;
    kval sum = 0;
    for (u32 pass = 0; pass < 2; pass++)
        for (i64 i = 0; i < n; i++) {
            if (c[i] == 0 || (c[i] == 1) != (pass == 0)) continue;
            kval f = kir_const_f(k, kir_dtype(k, d[i]), kir_lanes(k, d[i]), c[i]);
            if (!sum) sum = pass ? kir_mul(k, d[i], f) : d[i];
            else if (c[i] == 1) sum = kir_add(k, sum, d[i]);
            else if (c[i] == -1) sum = kir_sub(k, sum, d[i]);
            else sum = kir_fma(k, f, d[i], sum);
        }
    return sum;
}

/* a + f*b */
static kval add_scaled(const struct winograd *w, kval a, double f, kval b)
{
    struct kir *k = w->m->k;
    if (f == 1) return kir_add(k, a, b);
    if (f == -1) return kir_sub(k, a, b);
    return kir_fma(k, kir_const_f(k, kir_dtype(k, b), kir_lanes(k, b), f), b, a);
}

/* Behind point k and those that share its terms: the one of opposite sign, where there is one. */
static i64 next_points(const struct wino *x, i64 k) { return k == 0 || k == x->n - 1 ? k + 1 : k + 2; }

/* n inputs along an axis -> their values at point k and those that share its terms. */
static void to_points_from(const struct winograd *w, const kval *d, i64 k, kval *out)
{
    const struct wino *x = &w->w;
    if (k == 0) out[0] = weighted_sum(w, x->even[0], d, x->n);
    else if (k == x->n - 1) out[k] = weighted_sum(w, x->odd[k], d, x->n);
    else {
        kval even = weighted_sum(w, x->even[k], d, x->n), odd = weighted_sum(w, x->odd[k], d, x->n);
        out[k] = add_scaled(w, even, x->point[k], odd);
        out[k + 1] = add_scaled(w, even, x->point[k + 1], odd);
    }
}

/* n inputs along an axis -> their values at n points */
static void to_points(const struct winograd *w, const kval *d, kval *out)
{
    for (i64 k = 0; k < w->w.n; k = next_points(&w->w, k)) to_points_from(w, d, k, out);
}

/* products at n points -> outputs first, first + 2 ... along an axis (first 0 or 1): sums of product * point^i, infinity to the last one only */
static void to_half(const struct winograd *w, const kval *p, i64 first, kval *out)
{
    struct kir *k = w->m->k;
    const struct wino *x = &w->w;
    if (!first) out[0] = p[0];
    for (i64 j = 1; j < x->n - 1; j += 2) {
        kval term = first ? kir_sub(k, p[j], p[j + 1]) : kir_add(k, p[j], p[j + 1]);
        double power = 1;
        for (i64 i = 0; i < x->m; i++, power *= x->point[j]) {
            if (i % 2 != first) continue;
            if (i == 0 || j > 1) out[i] = add_scaled(w, out[i], power, term);
            else out[i] = power == 1 ? term : kir_mul(k, term, kir_const_f(k, kir_dtype(k, term), kir_lanes(k, term), power));
        }
    }
    if (first) out[x->m - 1] = kir_add(k, out[x->m - 1], p[x->n - 1]);
}

/* all m of them */
static void to_outputs(const struct winograd *w, const kval *p, kval *out)
{
    for (i64 first = 0; first < 2; first++) to_half(w, p, first, out);
}

/* Weights. */

static i64 n_points(const struct winograd *w) { return w->wz.n * w->w.n * w->w.n; }

static struct pack_mat pack_points(const struct winograd *w, const struct wino *axis, u32 number)
{
    double *g = arena_array(w->m->arena, double, countof(axis->g)), scale = wino_is_integer(&w->b.c) ? (double)axis->scale : 1;
    for (i64 i = 0; i < countof(axis->g); i++) g[i] = axis->g[i] * scale;
    return (struct pack_mat){number, (u32)axis->n, g};
}

/* Packed weights: [block][point z][point y][point x][input channel][nr*lanes], of integers [..][pair of input channels][nr*lanes][of the pair]. */
static kval pack_weights(const struct winograd *w)
{
    const struct conv *c = &w->b.c;
    struct symtab *t = w->m->g->sym;
    struct pack *p = arena_new(w->m->arena, struct pack);
    u32 ya = (u32)c->ya, xa = (u32)c->xa, za = w->za >= 0 ? (u32)w->za : ya;
    const struct { i64 extent; u32 axis; i64 stride; } dim[] = {
        {w->b.n_blocks, 0, w->b.width}, {w->wz.n, za, 1}, {w->w.n, ya, 1}, {w->w.n, xa, 1}, {wino_steps(c), 1, w->t.dot_k}, {w->b.width, 0, 1}, {w->t.dot_k, 1, 1}};
    for (u32 i = 0; i < countof(dim); i++) {
        if ((i == 1 && w->za < 0) || (i == 6 && w->t.dot_k == 1)) continue;
        pack_dim_i(p, t, dim[i].extent, dim[i].axis, dim[i].stride);
    }
    if (w->za >= 0) p->mat[p->n_mat++] = pack_points(w, &w->wz, za);
    p->mat[p->n_mat++] = pack_points(w, &w->w, ya);
    p->mat[p->n_mat++] = pack_points(w, &w->w, xa);
    p->dtype = w->type;
    return emit_pack(w->m, c->w, p);
}

/* Tiles. */

/* z, y, x; -1: there is none */
static i32 tile_axis(const struct winograd *w, u32 i) { return i == 0 ? w->za : i == 1 ? w->b.c.ya : w->b.c.xa; }

/* Position of tile t of this iteration: sets the band's image and its output range. */
static void place_tile(struct winograd *w, kval t)
{
    struct kir *k = w->m->k;
    struct band *b = &w->b;
    kval at = kir_add(k, w->first, t), n_x = emit_size(w->m, w->n_x), n_y = emit_size(w->m, w->n_y);
    kval row = kir_div(k, at, n_x), plane = kir_div(k, row, n_y);
    b->pos[0] = plane;
    if (w->za >= 0) {
        kval n_z = emit_size(w->m, w->n_z);
        b->pos[0] = kir_div(k, plane, n_z);
        b->pos[w->za] = w->z0 = kir_mul_i(k, kir_mod(k, plane, n_z), w->s.mz);
    }
    b->x0 = kir_mul_i(k, kir_mod(k, at, n_x), w->s.m);
    b->y0 = kir_mul_i(k, kir_mod(k, row, n_y), w->s.m);
    b->x1 = kir_add_i(k, b->x0, w->s.m), b->y1 = kir_add_i(k, b->y0, w->s.m);
}

static kval source_at(const struct winograd *w, const struct source *in, i64 z, i64 y, i64 x)
{
    struct kir *k = w->m->k;
    kval at = kir_add(k, kir_mul_i(k, in->y_step, y), kir_mul_i(k, in->x_step, x));
    return kir_add(k, in->at, z ? kir_add(k, at, kir_mul_i(k, in->z_step, z)) : at);
}

/* Channels first.. of a tile's inputs as a vector; limit: how many of them exist, 0: all. */
struct channel_run { kval first; u32 lanes; kval limit; };

/* These channels of a pixel, summed along z to point kz. */
static kval load_point(const struct winograd *w, const struct source *in, const struct channel_run *c, const i64 at[3])
{
    struct kir *k = w->m->k;
    const double *sum = w->wz.in[at[0]];
    kval d[WINO_MAX] = {0};
    for (i64 z = 0; z < w->wz.n; z++) {
        if (sum[z] == 0) continue;
        kval i = kir_ramp(k, kir_add(k, source_at(w, in, z, at[1], at[2]), c->first), 1, c->lanes);
        d[z] = kir_cast(k, w->type, c->limit ? kir_load_n(k, in->buf, i, c->limit) : kir_load(k, in->buf, i));
    }
    return weighted_sum(w, sum, d, w->wz.n);
}

/* These channels from a tile's inputs to their values at the points of one plane. Some columns of points at a time, from inputs loaded anew, because
   not all values between the axes fit in registers. */
static void point_vector(const struct winograd *w, const struct source *in, kval t, const struct channel_run *c, i64 kz)
{
    struct kir *k = w->m->k;
    const struct wino *f = &w->w;
    i64 n = f->n;
    kval d[WINO_MAX], rows[WINO_MAX][WINO_MAX], out[WINO_MAX];
    kval to = kir_add(k, kir_mul_i(k, t, w->at.v_pitch), c->first);
    for (i64 g = 0; g < n; g = next_points(f, g)) {
        for (i64 y = 0; y < n; y++) {
            for (i64 x = 0; x < n; x++) d[x] = f->in[g][x] != 0 ? load_point(w, in, c, (i64[]){kz, y, x}) : 0;
            to_points_from(w, d, g, rows[y]);
        }
        for (i64 x = g; x < next_points(f, g); x++) {
            for (i64 y = 0; y < n; y++) d[y] = rows[y][x];
            to_points(w, d, out);
            for (i64 y = 0; y < n; y++)
                kir_store(k, w->v, kir_ramp(k, kir_add_i(k, to, ((kz * n + y) * n + x) * w->at.v_plane), 1, c->lanes), out[y]);
        }
    }
}

static void point_planes(const struct winograd *w, const struct source *in, kval t, const struct channel_run *c)
{
    for (i64 kz = 0; kz < w->wz.n; kz++) point_vector(w, in, t, c, kz);
}

/* Whole vectors, then what is left of the channels, by a vector of that length if it is a power of two: loads of parts of vectors are slow, of i16 with
   AVX2 one element at a time. */
static void point_vectors(const struct winograd *w, const struct source *in, kval t)
{
    struct kir *k = w->m->k;
    i64 ic = w->b.c.ic, rest = ic % w->wide;
    bool is_short = (rest & (rest - 1)) == 0 && rest * wino_size(&w->b.c) >= SHORTEST;
    struct channel_run c = {kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, ic - rest), w->wide), w->wide, 0};
    point_planes(w, in, t, &c);
    kir_end(k);
    if (!rest) return;
    c = (struct channel_run){kir_int(k, ic - rest), is_short ? (u32)rest : w->wide, is_short ? 0 : kir_int(k, rest)};
    point_planes(w, in, t, &c);
}

/* A value with channels last in place, from channel c of pixel at[z, y, x] on. */
static struct source source_in(const struct winograd *w, value_id v, kval buf, kval c, const kval at[3])
{
    struct emit *m = w->m;
    const struct band *b = &w->b;
    struct symtab *t = m->g->sym;
    const struct shape room = value_room(graph_value(m->g, v));
    sym row = sym_mul(t, room.dim[b->xa], room.dim[1]);
    kval idx[MAX_RANK] = {b->pos[0], c};
    if (w->za >= 0) idx[w->za] = at[0];
    idx[b->ya] = at[1], idx[b->xa] = at[2];
    return (struct source){.buf = buf,
                           .at = emit_offset(m, v, idx),
                           .z_step = emit_size(m, sym_mul(t, room.dim[b->ya], row)),
                           .y_step = emit_size(m, row),
                           .x_step = emit_size(m, room.dim[1])};
}

/* 0 <= from and from + n <= size */
static kval fits_in(const struct winograd *w, kval from, i64 n, sym size)
{
    struct kir *k = w->m->k;
    kval last = kir_add_i(k, from, n);
    return kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), from), kir_bin(k, KI_LE, last, emit_size(w->m, size)));
}

/* The first input of the tile at hand. */
static void first_input(const struct winograd *w, kval at[3])
{
    struct kir *k = w->m->k;
    const struct conv *c = &w->b.c;
    at[1] = kir_sub(k, w->b.y0, emit_size(w->m, c->pad[c->ya])), at[2] = kir_sub(k, w->b.x0, emit_size(w->m, c->pad[c->xa]));
    if (w->za >= 0) at[0] = kir_sub(k, w->z0, emit_size(w->m, c->pad[w->za]));
}

/* Do all inputs exist, from the first on? */
static kval is_inside(const struct winograd *w, const kval at[3])
{
    struct kir *k = w->m->k;
    const struct conv *c = &w->b.c;
    kval ok = kir_bin(k, KI_AND, fits_in(w, at[1], w->w.n, c->in[c->ya]), fits_in(w, at[2], w->w.n, c->in[c->xa]));
    return w->za < 0 ? ok : kir_bin(k, KI_AND, ok, fits_in(w, at[0], w->wz.n, c->in[w->za]));
}

/* Tile x of the strip in scratch, number t of the iteration. */
static void point_copied(const struct winograd *w, kval x, kval t)
{
    struct kir *k = w->m->k;
    const struct band *b = &w->b;
    struct source in = {.buf = b->work, .at = kir_mul(k, kir_mul_i(k, x, w->s.m), b->step[b->xa])};
    in.y_step = b->step[b->ya], in.x_step = b->step[b->xa];
    if (w->za >= 0) in.z_step = b->step[w->za];
    point_vectors(w, &in, t);
}

/* All tiles of inputs that lie in memory. */
static void point_in_place(struct winograd *w)
{
    struct kir *k = w->m->k;
    kval at[3] = {0}, t = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->n, 1);
    place_tile(w, t);
    first_input(w, at);
    kir_if(k, is_inside(w, at));
    struct source in = source_in(w, w->b.c.x, w->m->buf[w->b.c.x], kir_int(k, 0), at);
    point_vectors(w, &in, t);
    kir_else(k);
    band_fill(&w->b);
    point_copied(w, kir_int(k, 0), t);
    kir_end(k);
    kir_end(k);
}

/* All tiles of inputs that are computed: those of one row of the image after those of another. */
static void point_rows(struct winograd *w)
{
    struct kir *k = w->m->k;
    struct band *b = &w->b;
    kval n_x = emit_size(w->m, w->n_x), end = kir_add(k, w->first, w->n);
    kval last = kir_div(k, kir_add_i(k, end, -1), n_x);
    kval row = kir_loop(k, KL_SERIAL, kir_div(k, w->first, n_x), kir_add_i(k, last, 1), 1);
    kval from = kir_sub(k, kir_max(k, w->first, kir_mul(k, row, n_x)), w->first);
    kval to = kir_sub(k, kir_min(k, end, kir_mul(k, kir_add_i(k, row, 1), n_x)), w->first);
    place_tile(w, from);
    b->x1 = kir_add(k, b->x0, kir_mul_i(k, kir_sub(k, to, from), w->s.m));
    band_fill(b);
    kval t = kir_loop(k, KL_SERIAL, from, to, 1);
    point_copied(w, kir_sub(k, t, from), t);
    kir_end(k);
    kir_end(k);
}

/* Zeros for tiles from..to that a register tile of products takes in but that do not exist. */
static void clear_points(const struct winograd *w, kval from, kval to)
{
    struct kir *k = w->m->k;
    i64 d;
    if (kir_is_const(k, kir_sub(k, to, from), &d) && d == 0) return;
    kval p = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, n_points(w)), 1), at = kir_mul_i(k, p, w->at.v_plane);
    kval i = kir_loop(k, KL_SERIAL, kir_mul_i(k, from, w->at.v_pitch), kir_mul_i(k, to, w->at.v_pitch), w->wide);
    kir_store(k, w->v, kir_ramp(k, kir_add(k, at, i), 1, w->wide), kir_const_f(k, w->type, w->wide, 0));
    kir_end(k);
    kir_end(k);
}

/* Products. */

/* Of a value with channels last, `channels` of them; steps: of all products that the lines are spread over. */
static void lines_size(const struct winograd *w, struct lines *l, value_id v, i64 channels, i64 steps)
{
    l->each = LINE / dtype_size(graph_value(w->m->g, v)->dtype);
    l->per_pixel = ceil_div(channels, l->each);
    l->per_step = ceil_div(l->planes * l->rows * l->pixels * l->per_pixel, steps);
}

static void lines_ask(const struct winograd *w, const struct lines *l, kval step)
{
    struct kir *k = w->m->k;
    const struct source *s = &l->at;
    i64 row = l->pixels * l->per_pixel, last = l->planes * l->rows * row - 1;
    step = kir_mul_i(k, kir_add(k, l->first, step), l->per_step);
    for (i64 i = 0; i < l->per_step; i++) {
        kval n = kir_min(k, kir_add_i(k, step, i), kir_int(k, last)), y = kir_div_i(k, n, row), x = kir_mod_i(k, n, row), at = s->at;
        if (l->planes > 1) at = kir_add(k, at, kir_mul(k, kir_div_i(k, y, l->rows), s->z_step)), y = kir_mod_i(k, y, l->rows);
        at = kir_add(k, kir_add(k, at, kir_mul(k, y, s->y_step)), kir_mul(k, kir_div_i(k, x, l->per_pixel), s->x_step));
        kir_prefetch(k, s->buf, kir_add(k, at, kir_mul_i(k, kir_mod_i(k, x, l->per_pixel), l->each)));
    }
}

/* Steps of a product in an iteration of its loop. */
static i64 steps_at_once(const struct winograd *w) { return i64_min(w->s.ku, wino_steps(&w->b.c)); }

/* What the products of the register tile of tiles t.. ask for: inputs of the next iteration's tiles, and the places of the outputs. */
static void lines_open(struct winograd *w, kval block, kval t)
{
    struct kir *k = w->m->k;
    struct band *b = &w->b;
    const struct graph *g = w->m->g;
    i64 steps = n_points(w) * (wino_steps(&b->c) / steps_at_once(w));
    i64 blocks = w->s.ob ? i64_min(w->s.ob, b->n_blocks) : b->n_blocks;
    kval at[3] = {0};
    w->n_lines = 0;
    if (b->c.plain) {
        struct lines *in = &w->lines[w->n_lines++];
        place_tile(w, kir_add_i(k, t, w->tiles));
        first_input(w, at);
        *in = (struct lines){.planes = w->wz.n, .rows = w->w.n, .pixels = w->s.tx * w->s.m};
        in->first = kir_mul_i(k, kir_mod_i(k, block, blocks), steps);
        in->at = source_in(w, b->c.x, w->m->buf[b->c.x], kir_int(k, 0), at);
        lines_size(w, in, b->c.x, b->c.ic, steps * blocks);
    }
    place_tile(w, t);
    for (u32 i = 0; !w->s.nt && !w->b.temp && !w->b.rows && i < g->output.n && w->n_lines < countof(w->lines); i++) {
        value_id v = g->output.v[i];
        struct lines *out = &w->lines[w->n_lines++];
        i64 n[3] = {w->s.mz, w->s.m, w->s.m};
        at[0] = w->z0, at[1] = b->y0, at[2] = b->x0;
        for (u32 d = w->za < 0; d < 3 && w->tail.pooled >> i & 1; d++) {
            i64 win = w->tail.win[tile_axis(w, d)];
            n[d] /= win, at[d] = kir_div_i(k, at[d], win);
        }
        *out = (struct lines){.planes = n[0], .rows = n[1], .pixels = w->s.tx * n[2], .first = kir_int(k, 0)};
        out->at = source_in(w, v, w->m->out[v], kir_mul_i(k, block, b->width), at);
        lines_size(w, out, v, b->width, steps);
    }
}

/* Register tile of tiles t.. at point p (of V and of the products) with one block's weights. */
static void product_tile(struct winograd *w, kval p, kval t, kval w_at)
{
    struct kir *k = w->m->k;
    i64 steps = wino_steps(&w->b.c), ku = steps_at_once(w), whole = steps / ku * ku, width = w->b.width * w->t.dot_k;
    kval at = kir_add(k, kir_mul_i(k, p, w->at.v_plane), kir_mul_i(k, t, w->at.v_pitch));
    struct tile_in in = {.buf = w->v, .x_step = kir_int(k, w->at.v_pitch), .y_step = kir_int(k, 0)};
    tile_clear(&w->t, 0, 0, 0);
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), ku);
    for (i64 u = 0; u < ku; u++) {
        kval step = kir_add_i(k, i, u);
        in.at = kir_add(k, at, kir_mul_i(k, step, w->t.dot_k));
        tile_step(&w->t, &in, w->wbuf, kir_add(k, w_at, kir_mul_i(k, step, width)));
    }
    for (u32 j = 0; j < w->n_lines; j++)
        lines_ask(w, &w->lines[j], kir_add(k, kir_mul_i(k, p, steps / ku), kir_div_i(k, i, ku)));
    kir_end(k);
    for (i64 step = whole; step < steps; step++) {
        in.at = kir_add_i(k, at, step * w->t.dot_k);
        tile_step(&w->t, &in, w->wbuf, kir_add_i(k, w_at, step * width));
    }
    kval to = kir_add(k, kir_mul_i(k, p, w->at.m_plane), kir_mul_i(k, t, w->at.m_pitch));
    for (i64 x = 0; x < w->t.tx; x++)
        for (i64 j = 0; j < w->t.nr; j++)
            kir_store(k, w->p, kir_ramp(k, kir_add_i(k, to, x * w->at.m_pitch + j * w->lanes), 1, w->lanes),
                      kir_load(k, w->t.acc, kir_int(k, x * w->t.nr + j)));
}

static void products(struct winograd *w, kval block, kval tiles)
{
    struct kir *k = w->m->k;
    i64 points = n_points(w), size = wino_steps(&w->b.c) * w->t.dot_k * w->b.width;
    kval p = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, points), 1);
    kval w_at = kir_mul_i(k, kir_add(k, kir_mul_i(k, block, points), p), size);
    kval t = kir_loop(k, KL_SERIAL, kir_int(k, 0), tiles, w->s.tx);
    if (w->s.far) lines_open(w, block, t);
    product_tile(w, p, t, w_at);
    kir_end(k);
    kir_end(k);
}

/* Outputs. */

static kval bias_at(const struct winograd *w, kval c, kval limit)
{
    struct emit *m = w->m;
    kval idx = kir_ramp(m->k, c, 1, w->lanes);
    emit_limit(m, limit);
    kval v = kir_splat(m->k, kir_cast(m->k, w->b.type, emit_value(m, w->b.c.b, &idx)), w->lanes);
    emit_limit(m, 0);
    return v;
}

/* One vector of products of a plane's point (y, x), summed along z to output iz. */
static kval load_product(const struct winograd *w, kval from, i64 iz, i64 y, i64 x)
{
    struct kir *k = w->m->k;
    i64 n = w->w.n;
    kval p[WINO_MAX] = {0};
    for (i64 z = 0; z < w->wz.n; z++)
        if (w->wz.out[iz][z] != 0)
            p[z] = kir_load(k, w->p, kir_ramp(k, kir_add_i(k, from, ((z * n + y) * n + x) * w->at.m_plane), 1, w->lanes));
    return weighted_sum(w, w->wz.out[iz], p, w->wz.n);
}

/* One vector of output channels, the c-th of its block, of plane iz of tile t: from the products to columns first, first + 2 ... of
   m x m pixels. Values between the axes of all columns would not fit in registers. */
static void output_half(const struct winograd *w, kval from, i64 iz, i64 first, kval *pixel)
{
    i64 n = w->w.n, m = w->w.m;
    kval p[WINO_MAX], rows[WINO_MAX][WINO_MAX], out[WINO_MAX];
    kval shift = w->shift ? kir_const_i(w->m->k, w->b.type, w->lanes, w->shift) : 0;
    for (i64 y = 0; y < n; y++) {
        for (i64 x = 0; x < n; x++) p[x] = x == (first ? 0 : n - 1) ? 0 : load_product(w, from, iz, y, x);
        to_half(w, p, first, rows[y]);
    }
    for (i64 x = first; x < m; x += 2) {
        for (i64 y = 0; y < n; y++) p[y] = rows[y][x];
        to_outputs(w, p, out);
        for (i64 y = 0; y < m; y++) pixel[y * m + x] = shift ? kir_bin(w->m->k, KI_SHR, out[y], shift) : out[y];
    }
}

/* Where these products begin. */
static kval products_at(const struct winograd *w, kval t, kval c) { return kir_add(w->m->k, kir_mul_i(w->m->k, t, w->at.m_pitch), c); }

/* Channels c.. of the tile at hand: their numbers as a vector, and how many of them exist (0: all). */
struct channels { kval c, end, limit, bias; };

/* Opens what is done only where output `at` of the axis exists; false: it always does. */
static bool open_existing(const struct winograd *w, i32 axis, i64 tile, kval at)
{
    const struct conv *c = &w->b.c;
    if (gen_static(c->g, c->out[axis], 1) % tile == 0) return false;
    kir_if(w->m->k, kir_lt(w->m->k, at, emit_size(w->m, c->out[axis])));
    return true;
}

/* Columns x.. of a plane, as many as the register tile has. */
static void store_columns(struct winograd *w, i64 x, const kval *pixel, const struct channels *c)
{
    struct kir *k = w->m->k;
    struct tile *t = &w->b.t;
    kval at = kir_add_i(k, w->b.x0, x);
    bool opened = x && open_existing(w, w->b.c.xa, w->s.m, at);
    for (i64 i = 0; i < t->ty * t->tx; i++) {
        kval v = pixel[i / t->tx * w->s.m + x + i % t->tx];
        kir_store(k, t->acc, kir_int(k, i), c->bias ? kir_add(k, v, c->bias) : v);
    }
    struct tile_out o = band_target(&w->b, w->b.y0, at);
    o.c = c->c, o.c_end = c->end;
    tile_store(t, &o);
    if (opened) kir_end(k);
}

/* Plane iz of a tile, one vector of channels, through the register tile; nothing where it does not exist along z. */
static void output_plane(struct winograd *w, kval t, i64 iz, kval j, const struct channels *c)
{
    struct kir *k = w->m->k;
    struct band *b = &w->b;
    kval pixel[WINO_MAX * WINO_MAX], from = products_at(w, t, j);
    bool opened = iz && open_existing(w, w->za, w->s.mz, kir_add_i(k, w->z0, iz)), is_whole = b->t.tx > 1;
    if (w->za >= 0) b->pos[w->za] = kir_add_i(k, w->z0, iz);
    for (i64 first = 0; first < 2; first++) {
        output_half(w, from, iz, first, pixel);
        for (i64 x = first; !is_whole && x < w->s.m; x += 2) store_columns(w, x, pixel, c);
    }
    if (is_whole) store_columns(w, 0, pixel, c);
    if (opened) kir_end(k);
}

/* Pooling. */

/* n[0] x n[1] x n[2] elements of a value along z, y and x, the first at idx: those in v, or windows of another box, pooled. */
struct box {
    value_id of;
    kval idx[MAX_RANK];
    i64 n[3];
    const kval *v;
    const struct box *in; /* NULL: v */
};

/* Of the box's element (d[0], d[1], d[2]): its index, and the condition that it exists (0: always). */
static kval box_place(const struct winograd *w, const struct box *x, const i64 d[3], kval idx[MAX_RANK])
{
    struct kir *k = w->m->k;
    const struct shape *s = &graph_value(w->m->g, x->of)->shape;
    kval ok = 0;
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = x->idx[a];
    for (u32 i = 0; i < 3; i++) {
        i32 a = tile_axis(w, i);
        if (a < 0) continue;
        idx[a] = kir_add_i(k, idx[a], d[i]);
        if (d[i] == 0 && x->of != w->tail.pool) continue; /* a tile's first output exists, a window's first may not */
        if (gen_static(w->m->g, w->b.c.out[a], 1) % (i ? w->s.m : w->s.mz) == 0) continue;
        kval in = kir_lt(k, idx[a], emit_size(w->m, s->dim[a]));
        ok = ok ? kir_bin(k, KI_AND, ok, in) : in;
    }
    return ok;
}

/* What pooling makes of the window at (d[0], d[1], d[2]), of which all elements exist. */
static kval pool_window(const struct winograd *w, const struct box *x, const i64 d[3], kval limit)
{
    const struct box *in = x->in;
    kval win[2 * WINO_MAX * WINO_MAX], idx[MAX_RANK];
    i64 s[3] = {in->n[0] / x->n[0], in->n[1] / x->n[1], in->n[2] / x->n[2]}, n = s[0] * s[1] * s[2];
    for (i64 i = 0; i < n; i++) {
        i64 at[3] = {d[0] * s[0] + i / s[2] / s[1], d[1] * s[1] + i / s[2] % s[1], d[2] * s[2] + i % s[2]};
        kval v = in->v[(at[0] * in->n[1] + at[1]) * in->n[2] + at[2]];
        box_place(w, in, at, idx);
        win[i] = conv_tail_element(w->m, &w->tail, in->of, idx, v, limit);
    }
    return conv_tail_pool(w->m, &w->tail, win, n);
}

static void box_each(const struct winograd *w, const struct box *x, kval limit, bool guarded)
{
    struct kir *k = w->m->k;
    for (i64 i = 0; i < x->n[0] * x->n[1] * x->n[2]; i++) {
        const i64 d[3] = {i / x->n[2] / x->n[1], i / x->n[2] % x->n[1], i % x->n[2]};
        kval idx[MAX_RANK], ok = guarded ? box_place(w, x, d, idx) : 0;
        if (!guarded) box_place(w, x, d, idx);
        if (ok) kir_if(k, ok);
        conv_tail_store(w->m, &w->tail, x->of, idx, x->in ? pool_window(w, x, d, limit) : x->v[i], limit);
        if (ok) kir_end(k);
    }
}

/* Stores those that exist. */
static void box_store(const struct winograd *w, const struct box *x, kval limit)
{
    struct kir *k = w->m->k;
    kval idx[MAX_RANK], all = box_place(w, x, (i64[]){x->n[0] - 1, x->n[1] - 1, x->n[2] - 1}, idx);
    if (all) kir_if(k, all);
    box_each(w, x, limit, false);
    if (!all) return;
    kir_else(k);
    box_each(w, x, limit, true);
    kir_end(k);
}

/* Stores the windows of a tile. */
static void pool_tile(const struct winograd *w, const struct box *x, kval limit)
{
    struct box p = {.of = w->tail.pool, .in = x};
    for (u32 a = 0; a < MAX_RANK; a++) p.idx[a] = x->idx[a];
    for (u32 i = 0; i < 3; i++) {
        i32 a = tile_axis(w, i);
        i64 win = a < 0 ? 1 : w->tail.win[a];
        p.n[i] = x->n[i] / win;
        if (a >= 0) p.idx[a] = kir_div_i(w->m->k, x->idx[a], win);
    }
    box_store(w, &p, limit);
}

/* All planes of a tile, one vector of channels, pooled. */
static void output_pooled(struct winograd *w, kval t, kval j, const struct channels *c)
{
    struct kir *k = w->m->k;
    i64 plane = w->s.m * w->s.m;
    kval pixel[2 * WINO_MAX * WINO_MAX];
    struct box x = {.of = w->b.c.y, .n = {w->s.mz, w->s.m, w->s.m}, .v = pixel};
    for (u32 a = 0; a < MAX_RANK; a++) x.idx[a] = w->b.pos[a];
    if (w->za >= 0) x.idx[w->za] = w->z0;
    x.idx[1] = kir_ramp(k, c->c, 1, w->lanes), x.idx[w->b.c.ya] = w->b.y0, x.idx[w->b.c.xa] = w->b.x0;
    for (i64 i = 0; i < 2 * w->s.mz; i++) output_half(w, products_at(w, t, j), i / 2, i % 2, pixel + i / 2 * plane);
    for (i64 i = 0; c->bias && i < w->s.mz * plane; i++) pixel[i] = kir_add(k, pixel[i], c->bias);
    if (!w->tail.all_pooled) box_store(w, &x, c->limit);
    pool_tile(w, &x, c->limit);
}

static void outputs(struct winograd *w, kval block)
{
    struct kir *k = w->m->k;
    struct band *b = &w->b;
    bool ragged = b->c.oc % b->width != 0;
    kval t = kir_loop(k, KL_SERIAL, kir_int(k, 0), w->n, 1);
    place_tile(w, t);
    b->y1 = emit_size(w->m, b->y_ext), b->x1 = emit_size(w->m, b->x_ext);
    kval j = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, b->width), w->lanes);
    struct channels c = {.c = kir_add(k, kir_mul_i(k, block, b->width), j), .end = ragged ? kir_int(k, b->c.oc) : 0};
    if (ragged) kir_if(k, kir_lt(k, c.c, c.end));
    c.limit = ragged ? kir_sub(k, c.end, c.c) : 0;
    c.bias = b->c.b ? bias_at(w, c.c, c.limit) : 0;
    if (w->pools) output_pooled(w, t, j, &c);
    for (i64 iz = 0; !w->pools && iz < w->s.mz; iz++) output_plane(w, t, iz, j, &c);
    if (ragged) kir_end(k);
    kir_end(k);
    kir_end(k);
}

/* The kernel. */

/* How integers are multiplied: as pairs of i16 (winograd_points.c). */
static void multiply_words(struct winograd *w, const struct caps *caps)
{
    i64 scale = w->w.scale * w->w.scale * w->wz.scale;
    band_multiply_by(&w->b, wino_product(&w->b.c, caps), caps);
    w->type = DT_I16;
    while ((i64)1 << w->shift < scale) w->shift++;
}

static void winograd_init(struct winograd *w, struct emit *m, const struct task *t, const struct caps *caps, const struct wino_sched *s)
{
    struct symtab *st = t->g.sym;
    struct conv c;
    wino_of(&c, &w->tail, t);
    w->pools = wino_pools(&c, &w->tail, s);
    w->za = wino_z(&c);
    wino_init(&w->w, s->m, WINO_TAPS);
    wino_init(&w->wz, s->mz, wino_z_taps(&c));
    const struct conv_sched cs = {
        .ty = s->m, .tx = s->m, .nr = s->nr, .th = 1, .tw = c.plain ? 1 : s->tb * s->tx, .stage = STAGE_PIXELS, .ku = 1};
    w->m = m, w->s = *s;
    band_init(&w->b, m, &c, caps, &cs);
    w->type = w->b.type;
    if (wino_is_integer(&c)) multiply_words(w, caps);
    w->at = wino_scratch(&c, s, w->b.lanes);
    if (w->za >= 0) w->b.c.k[w->za] = w->wz.n;
    w->lanes = w->b.lanes, w->wide = (u32)wino_wide(&c, w->lanes), w->tiles = s->tb * s->tx;
    w->n_z = w->za >= 0 ? sym_cdiv(st, c.out[w->za], sym_const(st, s->mz)) : sym_const(st, 1);
    w->n_y = sym_cdiv(st, c.out[c.ya], sym_const(st, s->m));
    w->n_x = sym_cdiv(st, c.out[c.xa], sym_const(st, s->m));
    w->t = w->b.t;
    w->t.ty = 1, w->t.tx = s->tx, w->t.ahead = s->ahead;
    w->b.t.nr = 1;
    if (!w->b.c.by_rows) w->b.t.tx = 1; /* outputs are stored as soon as a column of them is there */
}

/* Opens the grid; returns the number of its part of the output channels. */
static kval open_grid(struct winograd *w, i64 parts)
{
    struct kir *k = w->m->k;
    struct symtab *st = w->m->g->sym;
    struct band *b = &w->b;
    sym all = sym_mul(st, sym_mul(st, b->c.out[0], w->n_z), sym_mul(st, w->n_y, w->n_x));
    kval part = kir_grid(k, kir_int(k, parts));
    kval g = kir_grid(k, emit_size(w->m, sym_cdiv(st, all, sym_const(st, w->tiles))));
    band_alloc(b);
    w->v = kir_alloc(k, KS_WORK, w->type, 1, kir_int(k, w->at.v));
    w->p = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, w->at.m));
    tile_open(&w->t);
    b->group = kir_int(k, 0);
    for (u32 a = 0; a < MAX_RANK; a++) b->pos[a] = kir_int(k, 0);
    w->first = kir_mul_i(k, g, w->tiles);
    w->n = kir_min(k, kir_int(k, w->tiles), kir_sub(k, emit_size(w->m, all), w->first));
    return part;
}

static void winograd_grid(struct winograd *w)
{
    struct kir *k = w->m->k;
    i64 blocks = w->b.n_blocks, ob = w->s.ob ? i64_min(w->s.ob, blocks) : blocks;
    kval part = open_grid(w, ceil_div(blocks, ob));
    if (w->b.c.plain) point_in_place(w);
    else point_rows(w);
    kval padded = kir_mul_i(k, kir_div_i(k, kir_add_i(k, w->n, w->s.tx - 1), w->s.tx), w->s.tx);
    clear_points(w, w->n, padded);
    kval from = kir_mul_i(k, part, ob), to = kir_min(k, kir_add_i(k, from, ob), kir_int(k, blocks));
    kval block = kir_loop(k, KL_SERIAL, from, to, 1);
    products(w, block, padded);
    outputs(w, block);
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

void gen_winograd_emit(struct emit *m, const struct task *t, const struct caps *caps, const struct wino_sched *s)
{
    struct winograd *w = arena_new(m->arena, struct winograd);
    struct result *r = arena_new(m->arena, struct result);
    winograd_init(w, m, t, caps, s);
    *r = (struct result){.v = w->b.c.y, .inner = 1};
    w->wbuf = pack_weights(w);
    emit_args(m);
    emit_stream(m, s->nt);
    band_layout(&w->b);
    if (!w->b.c.simple && !w->pools) result_open(m, r, w->b.type);
    w->b.temp = r->temp;
    winograd_grid(w);
    if (r->temp) gen_elementwise_rest(m, t, caps, r->v, result_load, r);
}
