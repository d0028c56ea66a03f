// SPDX-License-Identifier: Apache-2.0
//
// Contents for the kernel of a contraction, and the outputs that they must have. Random ones bound errors: a sum of n terms computed in any order is off by at
// most gamma(n) = n u / (1 - n u) times the sum of the terms' absolute values (N. J. Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd edition, section 3.1), and rounding it for the output adds half a unit of that type. Devices may cut off where
// others round, which doubles u (section 2.1); so u = 2^-23 for sums of f32. For thousands of terms that bound lets a wrong one pass, so
// errors together must also be as small as rounding errors are: sqrt(n) in place of n, times lambda (N. J. Higham, T. Mary, A new approach
// to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4), in the root of their mean square.
//
// The other contents are integers whose sums are exact in the types at hand, so that outputs are right or wrong: dense ones for all terms, and
// numbered ones of which each output shows a single one, so that it says which element was taken. Kernels with fewer products than terms
// (growth > 1) compute with fractions; what they leave must still be nearer to the right integer than to any other.
#include "tune/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 64 /* of dense integers */, ROWS_SEEN = 1 << 26 /* outputs compared row by row */, MAX_HITS = 1 << 20, MAX_POINTS = 64, TRIES = 512,
       LEAP = 1000003, SHORT_SUMS = 24 /* of transforms, additions more than terms */ };
static const double lambda = 8;
static const double not_another = 0.4; /* off by no more, an integer is told from its neighbours */

/* Units. */

static double unit_of_sums(enum dtype t) { return !dtype_is_float(t) ? 0 : t == DT_F64 ? 0x1p-52 : 0x1p-23; }

i64 contraction_code(const struct contraction *s, double growth)
{
    static const i64 prime[] = {127, 251, 2039, 16777213};
    double most = fmin(check_exact_up_to(s->type, s->tf32), check_exact_up_to(s->out_type, false));
    most = fmin(most, check_exact_up_to(s->w_type, s->tf32));
    i64 k = countof(prime) - 1;
    if (growth > 1) most = fmin(most, prime[1]); /* far from where its errors reach 1/2 */
    while (k > 0 && (double)prime[k] > most) k--;
    return prime[k];
}

struct limits { double certain, likely; };

static double gamma_of(double n, double u) { return n * u / (1 - n * u); }

/* Of a sum whose terms' absolute values add up to size; largest: to which all elements in its place would. */
static struct limits limits_of(const struct contraction_check *x, double want, double size, double largest)
{
    const struct contraction *s = x->s;
    double u = unit_of_sums(s->out_type), n = (double)s->n_terms + 1, half = check_unit(s->out_type), t = 0x1p-10;
    double least = s->out_type == DT_F16 ? 0x1p-25 : s->out_type == DT_F64 ? 0x1p-1000 : 0x1p-126 * n; /* what may become 0 */
    if (!dtype_is_float(s->out_type)) return (struct limits){0, 0};
    if (x->growth > 1) n += SHORT_SUMS, size = largest * x->growth;
    if (s->out_type == DT_F64) u *= 2; /* the definition is no better */
    struct limits l = {gamma_of(n, u) * size, (exp(lambda * sqrt(n) * u + n * u * u) - 1) * size};
    if (n * u > 0.5) l.certain = l.likely; /* gamma says nothing of so many terms */
    if (s->tf32) l.certain += (2 * t + t * t) * size, l.likely += lambda * (2 * t + t * t) * size / sqrt(n);
    l.certain += half * (fabs(want) + l.certain) + least;
    l.likely = fmin(l.certain, l.likely + half * fabs(want) + least);
    return l;
}

/* Contents. */

static struct tensor *tensor_of(struct contraction_check *x, value_id v) { return &x->check.value[v]; }

/* So that no sum of absolute values is beyond what sums hold exactly, and nearly no sum, which is of about sqrt(terms) / 2 products, beyond what
   outputs do. */
static i64 largest_integer(const struct contraction_check *x)
{
    double n = (double)x->s->n_terms, most = fmin(0x1p24 / n, check_exact_up_to(x->s->out_type, false) / sqrt(n));
    return i64_max(1, i64_min((i64)sqrt(most), x->growth > 1 ? 3 : LARGEST));
}

static void fill_code(struct tensor *t, i64 code)
{
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(t->dtype, t->data, i, (double)(1 + i % code));
}

static void clear(struct tensor *t) { memset(t->data, 0, (size_t)tensor_bytes(t)); }

/* Taps go by turns, where there are many by leaps; so do channels of the input. */
static void fill_taps(struct contraction_check *x, u32 round)
{
    const struct contraction *s = x->s;
    struct tensor *w = tensor_of(x, s->w);
    i64 leap = s->is_gradient ? LEAP : 1;
    x->pick = arena_array(&x->check.arena, i64, 2 * s->m);
    fill_code(tensor_of(x, s->x), x->code);
    clear(w);
    for (i64 m = 0; m < s->m; m++) {
        i64 k = m + round * s->m, *pick = &x->pick[2 * m];
        pick[0] = m / s->mg * s->cg + (k * 7 + k / s->taps) % s->cg, pick[1] = k * leap % s->taps;
        elem_set_f64(w->dtype, w->data, contraction_weight(s, m, pick[0], pick[1]), 1);
    }
}

/* Points: single ones of the input, no two of which an output can meet. */

struct point { i64 n, c, p[MAX_RANK]; };

static bool are_near(const struct contraction *s, const struct point *a, const struct point *b)
{
    if (a->n != b->n || a->c / s->cg != b->c / s->cg) return false;
    for (u32 i = 0; i < s->n; i++)
        if (llabs(a->p[i] - b->p[i]) > (s->kernel[i] - 1) * s->dilation[i]) return false;
    return true;
}

/* Outputs and taps along an axis that meet position p: pairs in v, how many. */
static i64 meetings(const struct contraction *s, u32 i, i64 p, i64 *v)
{
    i64 n = 0;
    for (i64 o = 0; o < s->out[i]; o++)
        for (i64 k = 0; k < s->kernel[i]; k++)
            if (s->source[i][o * s->kernel[i] + k] == p) v[2 * n] = o, v[2 * n++ + 1] = k;
    return n;
}

/* The most outputs of a channel that a point reaches: along an axis each output by one tap, each tap of one output. */
static i64 most_met(const struct contraction *s)
{
    i64 n = 1;
    for (u32 i = 0; i < s->n; i++) n *= i64_min(s->out[i], s->kernel[i]);
    return n;
}

/* All outputs that the point reaches. */
static void add_hits(struct contraction_check *x, const struct point *p, i64 **met)
{
    const struct contraction *s = x->s;
    i64 n[MAX_RANK], total = 1;
    for (u32 i = 0; i < s->n; i++) total *= n[i] = meetings(s, i, p->p[i], met[i]);
    for (i64 k = 0; k < total; k++) {
        i64 rest = k, o = 0, tap = 0, first = p->c / s->cg * s->mg, scale_o = 1, scale_tap = 1;
        for (u32 i = s->n; i-- > 0; rest /= n[i]) {
            o += met[i][2 * (rest % n[i])] * scale_o, tap += met[i][2 * (rest % n[i]) + 1] * scale_tap;
            scale_o *= s->out[i], scale_tap *= s->kernel[i];
        }
        for (i64 m = first; m < first + s->mg; m++)
            x->hit[x->n_hit++] = (struct contraction_hit){contraction_out_plane(s, p->n, m) * s->out_plane + o, (double)(1 + contraction_weight(s, m, p->c, tap) % x->code)};
    }
}

static int by_place(const void *a, const void *b)
{
    i64 x = ((const struct contraction_hit *)a)->at, y = ((const struct contraction_hit *)b)->at;
    return (x > y) - (x < y);
}

/* Corners first, then anywhere. A corner of what a gradient is made of meets few taps, and there is one point of each channel. */
static struct point random_point(const struct contraction *s, u32 try, struct rng *r)
{
    struct point p = {rng_range(r, 0, s->batch - 1), rng_range(r, 0, s->c - 1), {0}};
    for (u32 i = 0; i < s->n; i++)
        p.p[i] = try < 1u << s->n && !s->is_gradient ? (try >> i & 1) * (s->in[i] - 1) : rng_range(r, 0, s->in[i] - 1);
    return p;
}

static u32 choose_points(const struct contraction *s, struct point v[MAX_POINTS], struct rng *r)
{
    u32 n = 0, most = (u32)i64_max(1, i64_min(MAX_POINTS, MAX_HITS / (most_met(s) * s->mg)));
    for (u32 try = 0; try < TRIES && n < most; try++) {
        struct point p = random_point(s, try, r);
        bool is_near = false;
        for (u32 k = 0; k < n && !is_near; k++) is_near = are_near(s, &v[k], &p);
        if (!is_near) v[n++] = p;
    }
    return n;
}

static void fill_points(struct contraction_check *x, struct rng *r)
{
    const struct contraction *s = x->s;
    struct point p[MAX_POINTS];
    struct tensor *t = tensor_of(x, s->x);
    u32 n = choose_points(s, p, r);
    i64 *met[MAX_RANK];
    for (u32 i = 0; i < s->n; i++) met[i] = arena_array(&x->check.arena, i64, 2 * s->out[i] * s->kernel[i] + 2);
    x->hit = arena_array(&x->check.arena, struct contraction_hit, (i64)n * most_met(s) * s->mg + 1);
    fill_code(tensor_of(x, s->w), x->code);
    clear(t);
    for (u32 k = 0; k < n; k++) {
        i64 at = contraction_plane(s, p[k].n, p[k].c);
        for (u32 i = 0; i < s->n; i++) at = at * s->in[i] + p[k].p[i];
        elem_set_f64(t->dtype, t->data, at, 1);
        add_hits(x, &p[k], met);
    }
    qsort(x->hit, (size_t)x->n_hit, sizeof *x->hit, by_place);
}

/* What must come out. */

/* Below 0 errors are scaled as outputs are; the product is rounded, and so may the sum be before it. */
static void activate(const struct contraction_check *x, double *want, struct limits *l)
{
    double f = x->s->negative, v = *want * f;
    enum dtype t = x->s->out_type;
    if (f == 1 || *want >= l->certain) return;
    if (*want < -l->certain) l->certain *= f, l->likely *= f;
    if (*want > 0) return;
    double more = f > 0 ? (check_unit(t) + 2 * unit_of_sums(t)) * fabs(v) + (t == DT_F16 ? 0x1p-25 : 0x1p-126) : 0;
    *want = f > 0 ? v : 0;
    l->certain += more, l->likely += more;
}

static void know(struct contraction_check *x, const struct contraction_check_opts *o, double largest)
{
    const struct contraction *s = x->s;
    struct arena *a = &x->check.arena;
    bool are_integers = x->kind == VERIFY_INTEGERS;
    i64 *pick = arena_array(a, i64, 2 * s->taps);
    x->at = o->at, x->n_at = o->n_at;
    x->want = arena_array(a, double, o->n_at + 1), x->bound = arena_array(a, double, o->n_at + 1), x->likely = arena_array(a, double, o->n_at + 1);
    for (i64 k = 0; k < o->n_at; k++) {
        struct contraction_terms t = contraction_at(s, x->check.value, o->at[k], pick);
        struct limits l = limits_of(x, t.sum, t.size, largest);
        if (are_integers) l.certain = l.likely = x->exact + (fabs(t.sum) > check_exact_up_to(s->out_type, false) ? check_unit(s->out_type) * fabs(t.sum) : 0);
        activate(x, &t.sum, &l);
        x->want[k] = t.sum, x->bound[k] = l.certain, x->likely[k] = l.likely;
    }
}

static void fill(struct contraction_check *x, const struct contraction_check_opts *o)
{
    const struct contraction *s = x->s;
    struct rng r = rng_seed(o->seed);
    double terms = (double)s->n_terms, largest = x->kind == VERIFY_INTEGERS ? (double)largest_integer(x) : 1;
    value_id v[] = {s->x, s->w, s->b};
    for (u32 k = 0; k < 3 && v[k]; k++) {
        if (x->kind == VERIFY_INTEGERS) check_fill_integers(tensor_of(x, v[k]), largest_integer(x), &r);
        if (x->kind == VERIFY_UNIT) {
            struct tensor *t = tensor_of(x, v[k]);
            for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(t->dtype, t->data, i, fabs(elem_f64(t->dtype, t->data, i)));
        }
    }
    if (s->b && (x->kind == VERIFY_TAPS || x->kind == VERIFY_POINTS)) clear(tensor_of(x, s->b));
    if (x->kind == VERIFY_TAPS) fill_taps(x, o->round);
    else if (x->kind == VERIFY_POINTS) fill_points(x, &r);
    else know(x, o, terms * largest * largest);
}

/* Comparing, in the child. */

static void compare(struct contraction_check *x, i64 at, double got, double want, double bound)
{
    struct verify_found *f = &x->found;
    double err = isfinite(got) ? fabs(got - want) : INFINITY, ratio = err <= 0 ? 0 : bound > 0 ? err / bound : INFINITY;
    bool is_worse = f->worst < 0 || ratio > f->ratio || (isinf(ratio) && isfinite(f->got) && err > fabs(f->got - f->want));
    f->n_seen++;
    f->n_bad += !(err <= bound);
    f->max_abs = fmax(f->max_abs, err);
    if (fabs(want) > bound) f->max_rel = fmax(f->max_rel, err / fabs(want));
    f->err2 += err * err, f->want2 += want * want;
    if (is_worse) f->worst = at, f->got = got, f->want = want, f->bound = bound, f->ratio = ratio;
}

static void compare_known(struct contraction_check *x, const struct place *p, const void *got)
{
    const struct tensor *t = x->check.want[0];
    for (i64 k = 0; k < x->n_at; k++) {
        double v = elem_f64(t->dtype, got, place_flat(p, t, x->at[k]));
        compare(x, x->at[k], v, x->want[k], x->bound[k]);
        x->found.n_border += contraction_is_border(x->s, x->at[k]);
        x->found.limit2 += x->likely[k] * x->likely[k];
    }
}

/* Element `at` of the input that an output of a row takes, without its last axis; -1: outside. */
static i64 row_source(const struct contraction_check *x, i64 row, i64 *last_tap)
{
    const struct contraction *s = x->s;
    i64 o[MAX_RANK], k[MAX_RANK], n, m;
    u32 outer = s->n - 1;
    for (u32 i = outer; i-- > 0; row /= s->out[i]) o[i] = row % s->out[i];
    contraction_split_plane(s, row, &n, &m);
    const i64 *pick = &x->pick[2 * m];
    i64 tap = pick[1], at = contraction_plane(s, n, pick[0]);
    for (u32 i = s->n; i-- > 0; tap /= s->kernel[i]) k[i] = tap % s->kernel[i];
    *last_tap = k[outer];
    for (u32 i = 0; i < outer; i++) {
        i64 p = s->source[i][o[i] * s->kernel[i] + k[i]];
        if (p < 0) return -1;
        at = at * s->in[i] + p;
    }
    return at * s->in[outer];
}

static void expect_taps(const struct contraction_check *x, i64 row, double *want)
{
    const struct contraction *s = x->s;
    u32 l = s->n - 1;
    i64 tap, at = row_source(x, row, &tap);
    for (i64 o = 0; o < s->out[l]; o++) {
        i64 p = at < 0 ? -1 : s->source[l][o * s->kernel[l] + tap];
        want[o] = p < 0 ? 0 : (double)(1 + (at + p) % x->code);
    }
}

static void expect_points(const struct contraction_check *x, i64 row, double *want)
{
    i64 n = x->s->out[x->s->n - 1], lo = 0, hi = x->n_hit;
    memset(want, 0, (size_t)n * sizeof *want);
    while (lo < hi) {
        i64 mid = (lo + hi) / 2;
        if (x->hit[mid].at < row * n) lo = mid + 1;
        else hi = mid;
    }
    for (; lo < x->n_hit && x->hit[lo].at < (row + 1) * n; lo++) want[x->hit[lo].at - row * n] += x->hit[lo].v;
}

void contraction_expect(const struct contraction_check *x, i64 row, double *want)
{
    (x->kind == VERIFY_TAPS ? expect_taps : expect_points)(x, row, want);
}

static bool is_border_row(const struct contraction *s, i64 row)
{
    for (u32 i = s->n - 1; i-- > 0; row /= s->out[i])
        if (row % s->out[i] == 0 || row % s->out[i] == s->out[i] - 1) return true;
    return false;
}

/* All rows, of large outputs those at borders and some of the others. */
static void compare_rows(struct contraction_check *x, const struct place *p, const void *got)
{
    const struct contraction *s = x->s;
    const struct tensor *t = x->check.want[0];
    struct arena a = {0};
    i64 n = s->out[s->n - 1], step = ceil_div(s->count, ROWS_SEEN), stride;
    double *want = arena_array(&a, double, n), *v = arena_array(&a, double, n);
    for (i64 row = 0; row < s->count / n; row++) {
        bool is_border = is_border_row(s, row);
        if (!is_border && row % step) continue;
        contraction_expect(x, row, want);
        for (i64 k = 0, run; k < n; k += run) {
            run = i64_min(n - k, place_run(p, t, row * n + k, &stride));
            read_elems(v + k, t->dtype, got, place_flat(p, t, row * n + k), stride, run);
        }
        for (i64 k = 0; k < n; k++) compare(x, row * n + k, v[k], want[k], x->exact);
        x->found.n_border += is_border ? n : i64_min(n, 2);
    }
    arena_release(&a);
}

/* What was not written is NaN, so all are asked. */
static i64 count_nonfinite(const struct place *p, const struct tensor *t, const void *got)
{
    i64 bad = 0, stride = 1, n = tensor_count(t);
    double v[256];
    bool is_dense = !p->whole && p->count == n;
    for (i64 k = 0, run; dtype_is_float(t->dtype) && k < n; k += run) {
        run = i64_min(countof(v), is_dense ? n - k : place_run(p, t, k, &stride));
        read_elems(v, t->dtype, got, is_dense ? k : place_flat(p, t, k), stride, run);
        for (i64 i = 0; i < run; i++) bad += !isfinite(v[i]);
    }
    return bad;
}

static bool look(const struct check *c, u32 k, const void *got, struct buf *why)
{
    struct contraction_check *x = (struct contraction_check *)(uintptr_t)c->comparator;
    struct verify_found *f = &x->found;
    struct place p;
    if (!place_of(&p, &c->task->g, c->task->g.output.v[k], c->var)) unreachable(); /* its buffer has a size */
    *f = (struct verify_found){.worst = -1, .n_nonfinite = count_nonfinite(&p, c->want[k], got)};
    if (x->kind == VERIFY_TAPS || x->kind == VERIFY_POINTS) compare_rows(x, &p, got);
    else compare_known(x, &p, got);
    bool are_large = x->n_at && !(f->err2 <= f->limit2);
    if (f->n_nonfinite) buf_printf(why, "%lld of %lld outputs are not finite, or were not written", (long long)f->n_nonfinite, (long long)x->s->count);
    else if (f->n_bad) buf_printf(why, "%lld of %lld outputs are wrong", (long long)f->n_bad, (long long)f->n_seen);
    else if (are_large) buf_z(why, "errors are larger than those of rounding");
    return !f->n_nonfinite && !f->n_bad && !are_large;
}

bool contraction_check_init(struct contraction_check *x, const struct contraction *s, const struct task *t, const i64 *var, enum verify_case kind,
                    const struct contraction_check_opts *o, struct err *e)
{
    *x = (struct contraction_check){.s = s, .kind = kind, .growth = o->growth > 1 ? o->growth : 1};
    x->comparator = (struct comparator){look, &x->found, sizeof x->found};
    if (!check_init(&x->check, t, var, o->seed, false, e)) return false;
    struct tensor *y = arena_new(&x->check.arena, struct tensor);
    x->check.want = arena_array(&x->check.arena, struct tensor *, 1);
    x->check.want[0] = y;
    y->dtype = s->out_type, y->rank = s->n + 2;
    y->dim[0] = s->is_gradient ? s->m : s->batch, y->dim[1] = s->is_gradient ? s->batch : s->m;
    for (u32 i = 0; i < s->n; i++) y->dim[2 + i] = s->out[i];
    x->check.comparator = &x->comparator;
    x->code = contraction_code(s, x->growth);
    x->exact = x->growth > 1 ? not_another : 0;
    fill(x, o);
    return true;
}

void contraction_check_release(struct contraction_check *x) { check_release(&x->check); }
