// SPDX-License-Identifier: Apache-2.0
//
// wg_filter: tiles of pixels of workgroups, what their taps meet (wg_filter.h).
//
// Rows of taps are written out together with a thread's rows of pixels: what is met in a row is read once for all pairs of them that meet it. Positions
// are counted from the first one of the workgroup's taps; a splat's taps go the other way, from the last one to the first.
#include "gen/wg_filter.h"

#include <math.h>

enum { MAX_ROUNDS = 16, ROUNDS = 8 /* of copies written out: all, or of a loop */, SECTOR = 32 /* bytes that memory moves at a time */ };

static const double load_cost = 4; /* of 4 bytes of every thread, from shared memory or a cache, in multiply-adds */

static i64 tile_size(const struct filter_tile *t, u32 axis) { return axis ? t->px * t->vec : t->py * t->ry; }

/* Taps of the workgroup along an axis. */
static i64 taps_of(const struct filter_tile *t, u32 axis) { return axis ? t->q->f.kernel[1] : t->span; }

static i64 reach(const struct filter_tile *t, u32 axis) { return (taps_of(t, axis) - 1) * t->q->f.dilation[axis]; }

/* Of the input tile. */
static i64 size_of(const struct filter_tile *t, u32 axis) { return tile_size(t, axis) + reach(t, axis); }

void filter_tile_init(struct filter_tile *t, const struct filtering *q, i64 planes)
{
    t->q = q, t->py = t->threads / t->px, t->span = q->f.kernel[0], t->planes = planes, t->ones = q->f.normalize;
}

/* Elements of staged weights from one pixel to the next: odd, so that neighbouring threads have different banks. */
static i64 pitch(const struct filter_tile *t) { return (t->iu * t->q->f.kernel[1]) | 1; }

/* Workgroups along axis 0 (rows) or 1 (columns) of the output. */
static sym parts_of(const struct filter_tile *t, u32 axis)
{
    struct symtab *st = t->m->g->sym;
    return sym_cdiv(st, t->q->size[axis], sym_const(st, tile_size(t, axis)));
}

/* Inside the grid, n, first and the numbers of the tile known: the thread's pixels, and the arrays. */
static void enter(struct filter_tile *t, kval down, kval across)
{
    struct kir *k = t->m->k;
    t->y0 = kir_mul_i(k, down, tile_size(t, 0)), t->x0 = kir_mul_i(k, across, tile_size(t, 1));
    t->row = kir_mul_i(k, kir_div_i(k, t->g.t, t->px), t->ry), t->col = kir_mul_i(k, kir_mod_i(k, t->g.t, t->px), t->vec);
    t->y = kir_add(k, t->y0, t->row), t->x = kir_add(k, t->x0, t->col);
    if (t->halo) t->array = kir_alloc(k, KS_SHARED, t->q->type, 1, kir_int(k, t->planes * size_of(t, 0) * size_of(t, 1)));
    if (t->stage) t->staged = kir_alloc(k, KS_SHARED, t->q->type, 1, kir_int(k, tile_size(t, 0) * tile_size(t, 1) * pitch(t)));
}

/* Elements 0 .. all-1 distributed to the workgroup's threads, neighbours side by side. */
typedef void element_fn(const void *user, kval e);

static void each_element(const struct filter_tile *t, i64 all, element_fn *fn, const void *user)
{
    struct kir *k = t->m->k;
    i64 whole = all / t->g.n, looped = whole <= MAX_ROUNDS ? 0 : whole / ROUNDS * ROUNDS;
    if (looped) {
        kval r = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, looped), ROUNDS);
        for (i64 i = 0; i < ROUNDS; i++) fn(user, kir_add(k, kir_mul_i(k, kir_add_i(k, r, i), t->g.n), t->g.t));
        kir_end(k);
    }
    for (i64 i = looped; i < whole; i++) fn(user, kir_add_i(k, t->g.t, i * t->g.n));
    if (all % t->g.n == 0) return;
    kval e = kir_add_i(k, t->g.t, whole * t->g.n);
    kir_if(k, kir_lt(k, e, kir_int(k, all)));
    fn(user, e);
    kir_end(k);
}

/* The first position of the image under the workgroup's taps along an axis. */
static kval origin(const struct filter_tile *t, u32 axis)
{
    struct kir *k = t->m->k;
    const struct op_filter *f = &t->q->f;
    kval from = axis ? t->x0 : t->y0, tap = axis ? kir_int(k, 0) : kir_mul_i(k, t->first, f->dilation[0]);
    if (f->splat) return kir_add_i(k, kir_sub(k, from, tap), f->begin[axis] - reach(t, axis));
    return kir_add_i(k, kir_add(k, from, tap), -f->begin[axis]);
}

/* Is the position inside along an axis? */
static kval within(const struct filter_tile *t, u32 axis, kval at)
{
    struct kir *k = t->m->k;
    kval n = emit_dim(t->m, t->q->met, 2 + axis);
    return gen_is_inside(k, at, n);
}

static kval clamp(const struct filter_tile *t, u32 axis, kval at)
{
    return emit_clamp(t->m, at, graph_value(t->m->g, t->q->met)->shape.dim[2 + axis]);
}

/* An input tile of n channels from c on. */
struct input_tile { const struct filter_tile *t; kval c; i64 n; };

static void copy_element(const void *user, kval e)
{
    const struct input_tile *p = user;
    const struct filter_tile *t = p->t;
    struct kir *k = t->m->k;
    i64 cols = size_of(t, 1), size = size_of(t, 0) * cols;
    kval plane = kir_div_i(k, e, size), rest = kir_mod_i(k, e, size);
    kval y = kir_add(k, origin(t, 0), kir_div_i(k, rest, cols)), x = kir_add(k, origin(t, 1), kir_mod_i(k, rest, cols));
    kval ok = kir_bin(k, KI_AND, within(t, 0, y), within(t, 1, x)), channel = kir_min(k, plane, kir_int(k, p->n - 1));
    kval v = emit_value(t->m, t->q->met, (kval[]){t->n, kir_add(k, p->c, channel), clamp(t, 0, y), clamp(t, 1, x)});
    v = kir_cast(k, t->q->type, v);
    if (t->ones) v = kir_select(k, kir_lt(k, plane, kir_int(k, p->n)), v, kir_const_f(k, t->q->type, 1, 1));
    kir_store(k, t->array, e, kir_select(k, ok, v, kir_const_f(k, t->q->type, 1, 0)));
}

void filter_tile_fill(const struct filter_tile *t, kval c, i64 n, bool again)
{
    struct input_tile p = {t, c, n};
    if (!t->halo) return;
    if (again) kir_barrier(t->m->k);
    each_element(t, (n + t->ones) * size_of(t, 0) * size_of(t, 1), copy_element, &p);
    kir_barrier(t->m->k);
}

kval filter_tile_exists(const struct filter_tile *t)
{
    struct kir *k = t->m->k;
    return kir_bin(k, KI_AND, kir_lt(k, t->y, emit_size(t->m, t->q->size[0])), kir_lt(k, t->x, emit_size(t->m, t->q->size[1])));
}

kval filter_tile_has_row(const struct filter_tile *t, i64 a)
{
    struct kir *k = t->m->k;
    if (!a || sym_divides(t->m->g->sym, t->ry, t->q->size[0])) return 0;
    return kir_lt(k, kir_add_i(k, t->y, a), emit_size(t->m, t->q->size[0]));
}

kval filter_tile_own_row(const struct filter_tile *t, i64 a)
{
    struct kir *k = t->m->k;
    kval y = kir_add_i(k, t->y, a);
    return filter_tile_has_row(t, a) ? kir_min(k, y, kir_add_i(k, emit_size(t->m, t->q->size[0]), -1)) : y;
}

kval filter_tile_pixels(const struct filter_tile *t) { return kir_ramp(t->m->k, t->x, 1, (u32)t->vec); }

kval filter_tile_is_inside(const struct filter_tile *t)
{
    struct kir *k = t->m->k;
    kval all = 0;
    for (u32 i = 0; i < 2; i++) {
        kval from = kir_add(k, origin(t, i), i ? t->col : t->row), to = kir_add_i(k, from, reach(t, i) + (i ? t->vec : t->ry));
        kval in = kir_bin(k, KI_AND, kir_bin(k, KI_LE, kir_int(k, 0), from), kir_bin(k, KI_LE, to, emit_dim(t->m, t->q->met, 2 + i)));
        all = all ? kir_bin(k, KI_AND, all, in) : in;
    }
    return all;
}

/* Taps. */

u32 filter_taps_rows(const struct filter_tile *t, const struct filter_taps *p, i64 row[FILTER_ROWS])
{
    u32 n = 0;
    assert(p->n * t->ry <= FILTER_ROWS);
    for (i64 i = 0; i < p->n; i++)
        for (i64 a = 0; a < t->ry; a++)
            if (!i || a + t->q->f.dilation[0] >= t->ry) row[n++] = a + i * t->q->f.dilation[0]; /* else the tap before reads it, too */
    return n;
}

i64 filter_taps_tap(const struct filter_tile *t, const struct filter_taps *p, i64 a, i64 r)
{
    i64 way = r - a, tap = way / t->q->f.dilation[0];
    if (way < 0 || way % t->q->f.dilation[0] || tap >= p->n) return -1;
    return t->q->f.splat ? p->n - 1 - tap : tap;
}

/* Of the input of row r, from the first position under the workgroup's taps. */
static void relative(const struct filter_tile *t, const struct filter_taps *p, i64 r, kval at[2])
{
    struct kir *k = t->m->k;
    const struct op_filter *f = &t->q->f;
    kval i = kir_sub(k, p->i, t->first), j = p->j;
    if (f->splat) i = kir_sub(k, kir_int(k, t->span - p->n), i), j = kir_sub(k, kir_int(k, f->kernel[1] - 1), j);
    at[0] = kir_add_i(k, kir_add(k, t->row, kir_mul_i(k, i, f->dilation[0])), r);
    at[1] = kir_add(k, t->col, kir_mul_i(k, j, f->dilation[1]));
}

void filter_taps_place(const struct filter_tile *t, const struct filter_taps *p, i64 r, kval at[2], kval *ok)
{
    struct kir *k = t->m->k;
    *ok = 0;
    relative(t, p, r, at);
    for (u32 i = 0; i < 2; i++) {
        at[i] = kir_add(k, origin(t, i), at[i]);
        if (i) at[i] = kir_ramp(k, at[i], 1, (u32)t->vec);
        if (p->inside) continue;
        kval in = kir_splat(k, within(t, i, at[i]), (u32)t->vec);
        *ok = *ok ? kir_bin(k, KI_AND, *ok, in) : in;
        at[i] = clamp(t, i, at[i]);
    }
}

static kval of_halo(const struct filter_tile *t, const struct filter_taps *p, i64 r, kval plane)
{
    struct kir *k = t->m->k;
    kval at[2];
    relative(t, p, r, at);
    kval line = kir_add(k, kir_mul_i(k, plane, size_of(t, 0)), at[0]);
    return kir_load(k, t->array, kir_ramp(k, kir_add(k, kir_mul_i(k, line, size_of(t, 1)), at[1]), 1, (u32)t->vec));
}

kval filter_taps_meet(const struct filter_tile *t, const struct filter_taps *p, i64 r, kval c, kval plane)
{
    struct kir *k = t->m->k;
    kval at[2], ok;
    if (t->halo) return of_halo(t, p, r, plane);
    filter_taps_place(t, p, r, at, &ok);
    kval v = emit_value(t->m, t->q->met, (kval[]){t->n, c, at[0], at[1]});
    v = kir_splat(k, kir_cast(k, t->q->type, v), (u32)t->vec);
    return ok ? kir_select(k, ok, v, kir_const_f(k, t->q->type, (u32)t->vec, 0)) : v;
}

kval filter_taps_one(const struct filter_tile *t, const struct filter_taps *p, i64 r)
{
    struct kir *k = t->m->k;
    kval at[2], ok, one = kir_const_f(k, t->q->type, (u32)t->vec, 1);
    if (t->halo) return of_halo(t, p, r, kir_int(k, t->planes - 1));
    filter_taps_place(t, p, r, at, &ok);
    return ok ? kir_select(k, ok, one, kir_const_f(k, t->q->type, (u32)t->vec, 0)) : one;
}

void filter_taps_columns(const struct filter_tile *t, struct filter_taps p, filter_taps_fn *fn, const void *user)
{
    struct kir *k = t->m->k;
    i64 kw = t->q->f.kernel[1], ju = t->ju, whole = kw / ju * ju;
    kval j = whole > ju ? kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), ju) : kir_int(k, 0);
    for (i64 u = 0; u < ju; u++) p.j = kir_add_i(k, j, u), fn(user, &p);
    if (whole > ju) kir_end(k);
    for (i64 u = whole; u < kw; u++) p.j = kir_int(k, u), fn(user, &p);
}

void filter_taps_blocks(const struct filter_tile *t, filter_taps_fn *fn, const void *user)
{
    struct kir *k = t->m->k;
    i64 kh = t->q->f.kernel[0], whole = kh / t->iu * t->iu;
    struct filter_taps p = {.i = kir_int(k, 0), .n = t->iu, .inside = true};
    if (whole > t->iu) p.i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, whole), t->iu);
    fn(user, &p);
    if (whole > t->iu) kir_end(k);
    p.i = kir_int(k, whole), p.n = kh - whole;
    if (p.n) fn(user, &p);
}

struct columns { const struct filter_tile *t; bool inside; filter_taps_fn *fn; const void *user; };

static void all_columns(const void *user, const struct filter_taps *p)
{
    const struct columns *c = user;
    struct filter_taps own = *p;
    own.inside = c->inside;
    filter_taps_columns(c->t, own, c->fn, c->user);
}

void filter_taps_all(const struct filter_tile *t, bool inside, filter_taps_fn *fn, const void *user)
{
    filter_taps_blocks(t, all_columns, &(struct columns){t, inside, fn, user});
}

/* Staged weights. */

kval filter_stage_at(const struct filter_tile *t, const struct filter_taps *p, i64 tap, i64 a)
{
    struct kir *k = t->m->k;
    kval pixel = kir_add(k, kir_mul_i(k, kir_add_i(k, t->row, a), tile_size(t, 1)), t->col);
    kval at = kir_add(k, kir_mul_i(k, pixel, pitch(t)), kir_add_i(k, p->j, tap * t->q->f.kernel[1]));
    return kir_ramp(k, at, pitch(t), (u32)t->vec);
}

struct staging { const struct filter_tile *t; const struct filter_taps *p; filter_stage_fn *fn; const void *user; };

static void stage_element(const void *user, kval e)
{
    const struct staging *x = user;
    const struct filter_tile *t = x->t;
    struct emit *m = t->m;
    struct kir *k = m->k;
    i64 n = x->p->n * t->q->f.kernel[1], cols = tile_size(t, 1);
    kval tap = kir_mod_i(k, e, n), pixel = kir_div_i(k, e, n);
    kval y = kir_add(k, t->y0, kir_div_i(k, pixel, cols)), c = kir_add(k, t->x0, kir_mod_i(k, pixel, cols));
    struct filter_stage s = {.idx = {t->n, kir_add(k, kir_mul_i(k, x->p->i, t->q->f.kernel[1]), tap), emit_clamp(m, y, t->q->size[0]),
                                     emit_clamp(m, c, t->q->size[1])},
                             .exists = kir_bin(k, KI_AND, kir_lt(k, y, emit_size(m, t->q->size[0])), kir_lt(k, c, emit_size(m, t->q->size[1]))),
                             .at = kir_add(k, kir_mul_i(k, pixel, pitch(t)), tap)};
    x->fn(x->user, &s);
}

void filter_stage_each(const struct filter_tile *t, const struct filter_taps *p, filter_stage_fn *fn, const void *user)
{
    struct staging s = {t, p, fn, user};
    each_element(t, tile_size(t, 0) * tile_size(t, 1) * p->n * t->q->f.kernel[1], stage_element, &s);
}

/* Choosing. */

static i64 threads_of(const struct filter_tile *t) { return t->px * t->py; }

static bool is_useful(const struct filter_tile *t)
{
    i64 width = filtering_size(t->q, 1, NULL), height = filtering_size(t->q, 0, NULL), w = tile_size(t, 1);
    if (t->px > 4 && w >= 2 * width) return false;
    if (w < 32 && 4 * w <= width) return false;
    return t->ry == 1 ? t->py <= 32 || t->py < 2 * height : tile_size(t, 0) < 2 * height;
}

value_id filter_weights(const struct filtering *q)
{
    bool grad = op_of(q->g, graph_value(q->g, q->out)->producer)->props & OP_FILTER_GRAD;
    const struct shape *w = &graph_value(q->g, grad ? q->out : q->side)->shape;
    if (grad) return q->simple ? q->g->output.v[0] : q->out;
    for (u32 i = 0; i < q->g->input.n; i++)
        if (q->g->input.v[i] != q->met && shape_equal(&graph_value(q->g, q->g->input.v[i])->shape, w)) return q->g->input.v[i];
    return q->side;
}

static i64 staged_bytes(const struct filter_tile *t) { return t->stage ? tile_size(t, 0) * tile_size(t, 1) * pitch(t) * dtype_size(t->q->type) : 0; }

bool filter_tile_is_legal(const struct filter_tile *t, value_id weights, const struct caps *caps)
{
    const struct filtering *q = t->q;
    i64 bytes = filter_tile_bytes(t);
    if (!t->py || t->ju > q->f.kernel[1] || t->iu > q->f.kernel[0] || !sym_divides(q->g->sym, t->vec, q->size[1])) return false;
    if (t->stage && (graph_value(q->g, weights)->layout != LAYOUT_CLAST || q->f.splat || q->taps == 1)) return false;
    return is_useful(t) && bytes <= caps->shared_bytes && wg_is_legal(caps, threads_of(t), bytes + staged_bytes(t));
}

i64 filter_tile_bytes(const struct filter_tile *t)
{
    i64 n = t->planes * dtype_size(t->q->type);
    if (!t->halo) return 0;
    for (u32 i = 0; i < 2; i++)
        if (__builtin_mul_overflow(n, size_of(t, i), &n)) return INT64_MAX;
    return n;
}

double filter_tile_groups(const struct filter_tile *t, const i64 *var)
{
    double n = (double)i64_max(1, gen_eval(t->q->g, t->q->batch, var));
    for (u32 i = 0; i < 2; i++) n *= ceil((double)filtering_size(t->q, i, var) / (double)tile_size(t, i));
    return n;
}

/* Vectors begin anywhere, so that elements are read one by one; neighbouring threads' are as far apart as vectors are long. */
double filter_tile_meeting(const struct filter_tile *t)
{
    double vec = (double)t->vec;
    return load_cost * vec * (1 + vec) / 2 * (double)dtype_size(t->q->type) / 4 + (t->halo ? 0 : 1);
}

double filter_tile_moving(const struct filter_tile *t, value_id v)
{
    return 1 + load_cost * fmax(0.5, (double)(t->vec * dtype_size(graph_value(t->q->g, v)->dtype)) / 4);
}

double filter_tile_copying(const struct filter_tile *t)
{
    double elements = (double)filter_tile_bytes(t) / (double)dtype_size(t->q->type);
    return (16 + 2 * load_cost) * ceil(elements / (double)threads_of(t));
}

double filter_tile_staging(const struct filter_tile *t)
{
    return t->stage ? (double)(t->span * t->q->f.kernel[1] * t->ry * t->vec) * (8 + 2 * load_cost) : 0;
}

double filter_tile_slots(const struct filter_tile *t) { return (double)threads_of(t) + 24; }

/* A workgroup that stages waits for memory, then for arithmetic: others must fit beside it. */
static double staged_rate(const struct filter_tile *t, double run, const struct caps *caps)
{
    double alone = 2 * (double)staged_bytes(t) / (double)i64_max(1, caps->shared_bytes);
    return (0.3 + 0.7 * fmin(1, run / (4 * SECTOR))) / (1 + alone);
}

double filter_tile_dense(const struct filter_tile *t, value_id weights, const struct caps *caps)
{
    const struct value *v = graph_value(t->q->g, weights);
    i64 size = dtype_size(v->dtype);
    double run = (double)(tile_size(t, 1) * size), n = (double)(t->q->taps * size);
    if (t->stage) return staged_rate(t, (double)(t->iu * t->q->f.kernel[1] * size), caps);
    if (v->layout == LAYOUT_ROWS) return 0.3 + 0.7 * fmin(1, run / (4 * SECTOR));
    return fmax(0.1, fmin(1, n / SECTOR) * 0.25);
}

/* Kernels. */

bool filter_work_analyze(const struct gen_problem *p, u32 props)
{
    struct filter_work *w = p->facts;
    return p->c->is_gpu && filtering_of(&w->q, p->t, props) && wg_is_legal(p->c, p->gen->param[0].values[0], 0);
}

void filter_work_emit(struct filter_work *w, const struct task *t, const struct caps *caps, i64 shares, filter_work_fn *fn)
{
    struct filter_tile *tile = &w->t;
    struct emit *m = tile->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    wg_init(&tile->g, m, tile->threads, 0);
    emit_args(m);
    w->r = (struct result){.v = w->q.out, .inner = 3};
    if (!w->q.simple) result_open(m, &w->r, w->q.type);
    kval image = kir_grid(k, emit_size(m, sym_mul(st, w->q.batch, sym_const(st, shares))));
    kval down = kir_grid(k, emit_size(m, parts_of(tile, 0))), across = kir_grid(k, emit_size(m, parts_of(tile, 1)));
    wg_enter(&tile->g);
    tile->n = kir_div_i(k, image, shares), tile->first = kir_mul_i(k, kir_mod_i(k, image, shares), tile->iu);
    enter(tile, down, across);
    fn(w);
    for (u32 i = 0; i < 3; i++) kir_end(k);
    if (w->r.temp) gen_elementwise_rest(m, t, caps, w->q.out, result_load, &w->r);
}
