// SPDX-License-Identifier: Apache-2.0
//
// nest: how long loops take on a processor with caches.
//
// Traffic. What a body touches of an operand grows with each loop around it; the loops that a cache holds the operands of form its working
// set, which is fetched once for all their trips, and again for every trip of the loops outside (Low, Igual, Smith & Quintana-Orti, Analytical
// modeling is enough for high-performance BLIS, ACM TOMS 43(2), 2016, section 3). An operand that the first loop outside does not move stays
// where it and two bodies' worth of the others fit.
//
// Sets. Rows whose distance shares a large power of two with the distance of lines of one set lie in few sets, and only that part of a cache
// keeps them.
//
// Time. Processors compute while lines are under way, but not perfectly: arithmetic and the traffic of each level are combined by a norm,
// between their sum (nothing overlaps) and their maximum (all does). A right operand that streams by from beyond the second cache delays what
// comes from the second cache to the first. An operand that comes in one piece, for the first of many bodies, is
// waited for by that body alone unless it was prefetched.
#include "gen/nest.h"

#include <math.h>

/* Fitted to the measurements of bench/model on AVX2 and AVX-512 (Zen 4). Norms are given as the factor of the greater one of two times, by
   their ratio x <= 1, with few calls of pow: searches spend most of their time here. Exponent 1: their sum, infinite: the maximum. */
typedef double norm_factor(double x);
static double overlap(double x) { return sqrt(cbrt(1 + x * x * x * x * x * x)); } /* of arithmetic and traffic; exponent 6 */
static double together(double x) { return cbrt(1 + x * x * x); } /* of the multiply-adds and loads of a step, which wait for each other; exponent 3 */
static const double unasked = 2.5; /* streams from beyond the second cache take as much longer where they are not prefetched */
static const double short_run = 128; /* bytes: rows so long take twice the time from beyond the second cache, if others lie between them */
static const double kept = 0.4;    /* share of a cache that is as if it were all of it: the rest holds what passes by */
enum { LINE = 64, WAYS = 8 };      /* bytes; lines of a set of the first two caches, roughly */

static double norm(double a, double b, norm_factor *factor)
{
    double most = a > b ? a : b, least = a > b ? b : a;
    return least > 0 && most < INFINITY ? most * factor(least / most) : a + b;
}

double nest_both(double a, double b) { return norm(a, b, overlap); }

void nest_loop(struct nest *n, double trips, double left, double right, double sums)
{
    assert(n->n < NEST_LOOPS);
    if (trips > 1) n->loop[n->n++] = (struct nest_loop){trips, {left, right, sums}};
}

struct nest_rates nest_rates_of(const struct caps *c, const struct rates *r)
{
    double vector = i64_max(4, c->vector_bytes), threads = (double)i64_max(1, c->n_threads);
    i64 l1 = i64_max(1 << 12, c->l1_bytes), l2 = i64_max(l1, c->l2_bytes), l3 = i64_max(l2, (i64)((double)c->l3_bytes / threads));
    const i64 size[N_RATE_LEVELS] = {l1, l2, l3, INT64_MAX};
    struct nest_rates n = {.cycle = r->cycle > 0 ? r->cycle : r->memory[RATE_L1].latency / 5, .launch = 2e-6};
    n.chain = r->fma_latency > 0 ? r->fma_latency : 4 * n.cycle;
    n.fma = vector / 2 / r->ops[RATE_FMA_F32].one;
    n.load = vector / r->memory[RATE_L1].read.one;
    n.in_order = c->in_order;
    n.work = n.fma + n.cycle / 2;
    const enum rate_op unit[] = {RATE_MMA_BF16, RATE_MMA_I8};
    for (i64 i = 0; i < countof(unit); i++) n.mma[i] = r->ops[unit[i]].one > 0 ? 2 / r->ops[unit[i]].one : 0;
    for (u32 l = 0; l < N_RATE_LEVELS; l++) {
        n.line[l] = fmax(1 / r->memory[l].read.one, threads / r->memory[l].read.all);
        n.near[l] = kept * (double)size[l];
        n.period[l] = l < RATE_L3 ? (double)size[l] / WAYS : 0;
    }
    return n;
}

double nest_tap(const struct nest_rates *r, double multiplies, double vectors)
{
    double fma = multiplies * r->fma, load = vectors * r->load;
    return fmax(r->in_order ? fma + load : norm(fma, load, together), r->chain);
}

double nest_step(const struct nest_rates *r, i64 pixels, i64 nr)
{
    double scalar = r->in_order ? r->load / 4 : 1.25 * fmin(r->load, r->cycle / 2); /* two loads per cycle, but perhaps not of the widest vectors */
    return nest_tap(r, (double)(pixels * nr), (double)nr + (double)pixels * scalar / r->load);
}

double nest_step_by(const struct nest_rates *r, struct tile_product p, i64 pixels, i64 nr)
{
    const double groups = (double)(p.terms / p.group), all = groups + 1; /* and what adds up the groups */
    return p.leaf == &tile_short ? (nest_step(r, (i64)(all * (double)pixels), nr) + (groups - 1) * (double)nr * r->load / 2) : nest_step(r, pixels, nr);
}

double nest_unit_seconds(const struct nest_rates *r, struct tile_product p, enum dtype operand)
{
    return tile_is_matrix(p) ? (double)(p.leaf->rows * p.leaf->rows * p.terms) * r->mma[dtype_is_int(operand)] : 0;
}

/* A register of the unit is loaded in as many pieces as it has rows. */
double nest_unit(const struct nest_rates *r, double seconds, i64 pixels, i64 nr, i64 copied)
{
    double rows = (double)tile_matrix.rows, blocks = (double)ceil_div(pixels, tile_matrix.rows);
    return norm(blocks * (double)nr * seconds, ((blocks + (double)nr) * rows + 2 * (double)copied) * r->load, together);
}

/* Fitted on Zen 4: its shuffles share a unit with multiply-adds, of vectors of 32 bytes and of 64. */
double nest_conversion(const struct nest_rates *r) { return 0.4 * r->cycle; }

/* Of the sets of a level, in how many the first lines of rows may lie. */
static double sets_of_starts(const struct nest_rates *r, u32 level, const struct nest_rows *x)
{
    i64 sets = (i64)r->period[level] / LINE, step = (i64)x->pitch / LINE, common = 1;
    if (step <= 0 || (i64)x->pitch % LINE) return (double)sets;
    for (; common < sets && step % 2 == 0; step /= 2) common *= 2;
    return (double)sets / (double)common;
}

/* Share of a level's sets in which rows may lie. */
static double share_of_sets(const struct nest_rates *r, u32 level, const struct nest_rows *x)
{
    double sets = floor(r->period[level] / LINE);
    return sets < 1 || x->pitch <= 0 ? 1 : fmin(1, ceil(x->bytes / LINE) * sets_of_starts(r, level, x) / sets);
}

double nest_room(const struct nest_rates *r, u32 level, const struct nest_rows *rows) { return r->near[level] * share_of_sets(r, level, rows); }

/* Do lines of rows that are read side by side leave before their next elements are read? */
static bool do_lines_leave(const struct nest_rates *r, u32 level, const struct nest_rows *x)
{
    return r->period[level] >= LINE && x->n > sets_of_starts(r, level, x) * WAYS;
}

/* Lines come whole, and prefetchers have no time to follow short rows with others between them. */
static double cost_of_pieces(u32 level, const struct nest_rows *x)
{
    if (x->bytes <= 0 || x->pitch < x->bytes + LINE) return 1;
    double whole = ceil(x->bytes / LINE) * LINE / x->bytes;
    return level < RATE_L2 ? whole : whole * (1 + short_run / x->bytes);
}

double nest_ends(const struct nest_rates *r, double cells, double apart)
{
    return 8 * r->cycle + cells * (r->load + 3 * apart * r->cycle);
}

struct traffic { double bytes, bodies, pieces; }; /* of one operand: fetched in so many pieces, for so many bodies */

/* Do the operands fit? */
static bool fits(const double have[N_NEST_OPERANDS], const double room[N_NEST_OPERANDS])
{
    double all = 0;
    for (u32 o = 0; o < N_NEST_OPERANDS; o++) all += have[o] / room[o];
    return all <= 1;
}

/* What comes from beyond a level. */
static void traffic_of(const struct nest *n, const struct nest_rates *r, u32 level, struct traffic t[N_NEST_OPERANDS])
{
    double have[N_NEST_OPERANDS], room[N_NEST_OPERANDS], pieces[N_NEST_OPERANDS], bodies = 1;
    u32 k = 0;
    for (u32 o = 0; o < N_NEST_OPERANDS; o++) {
        have[o] = n->bytes[o], pieces[o] = 1;
        room[o] = nest_room(r, level, &n->rows[o]);
    }
    for (; k < n->n && fits(have, room); k++) {
        double next[N_NEST_OPERANDS];
        for (u32 o = 0; o < N_NEST_OPERANDS; o++) next[o] = have[o] * (1 + (n->loop[k].trips - 1) * n->loop[k].grow[o]);
        if (!fits(next, room)) break;
        bodies *= n->loop[k].trips;
        for (u32 o = 0; o < N_NEST_OPERANDS; o++) {
            have[o] = next[o];
            if (n->loop[k].grow[o] > 0) pieces[o] *= n->loop[k].trips;
        }
    }
    for (u32 o = 0; o < N_NEST_OPERANDS; o++) {
        double again = do_lines_leave(r, level, &n->rows[o]) ? LINE / 4 : 1;
        t[o] = (struct traffic){have[o] * again, bodies, pieces[o]};
    }
    for (u32 o = 0; k == n->n && o < N_NEST_OPERANDS; o++) t[o].bytes = 0; /* all of it is there from the run before */
    if (k == n->n) return;
    double moved = 0;
    const struct nest_loop *x = &n->loop[k];
    for (u32 o = 0; o < N_NEST_OPERANDS; o++) moved += have[o] * x->grow[o] / room[o];
    for (u32 o = 0; o < N_NEST_OPERANDS; o++) {
        if (x->grow[o] == 0 && have[o] / room[o] + 2 * moved <= 1) t[o].bodies *= x->trips;
        else if (x->grow[o] > 0 && x->grow[o] < 1 && fits(have, room)) t[o].bytes *= x->grow[o];
    }
}

static double bodies_of(const struct nest *n)
{
    double x = 1;
    for (u32 i = 0; i < n->n; i++) x *= n->loop[i].trips;
    return x;
}

/* Of arithmetic and a right operand that streams by from beyond the second cache. A step computes nothing before all its lines are there, and
   the more lines it has the fewer steps are under way: exponent 2.5 for two lines, 1 for five. */
static double with_stream(double a, double b, double burst)
{
    const double exponent = fmax(1, 5 / fmax(2, burst / LINE)), most = fmax(a, b), least = fmin(a, b);
    if (!(least > 0 && most < INFINITY)) return a + b;
    const double x = least / most, power = exponent < 2.5 ? pow(x, exponent) : x * x * sqrt(x);
    return most * pow(1 + power, 1 / exponent);
}

double nest_seconds(const struct nest *n, const struct nest_rates *r)
{
    struct { double seconds, share; } piece[N_RATE_LEVELS * N_NEST_OPERANDS]; /* that single bodies wait for: the share of bodies */
    double one = n->seconds, bodies = bodies_of(n), waits = 0, near = 0; /* near: of the right operand, from the second cache to the first */
    u32 n_pieces = 0;
    for (u32 l = RATE_L1; l < RATE_DRAM; l++) {
        struct traffic t[N_NEST_OPERANDS];
        double even = 0, right = 0;
        traffic_of(n, r, l, t);
        for (u32 o = 0; o < N_NEST_OPERANDS; o++) {
            double slow = n->asked[o] > 0 ? 1 / n->asked[o] : o == NEST_RIGHT && l >= RATE_L2 ? unasked : 1;
            double s = t[o].bytes * (o == NEST_SUMS ? 2 : 1) * r->line[l + 1] * slow * cost_of_pieces(l, &n->rows[o]);
            t[o].bodies = fmin(t[o].bodies, bodies);
            double share = fmin(1, t[o].pieces / t[o].bodies);
            if (n->asked[o] > 0 || share > 0.5 || o == NEST_SUMS) *(o == NEST_RIGHT ? &right : &even) += s / t[o].bodies;
            else if (s > 0) piece[n_pieces].seconds = s / t[o].pieces, piece[n_pieces++].share = share;
        }
        if (l >= RATE_L2 && right > 0) right += near * right / (near + right); /* lines on both ways wait for each other: less than either takes */
        one = l < RATE_L2 ? nest_both(one, even + right) : with_stream(nest_both(one, even), right, n->burst);
        if (l < RATE_L2) near = right;
    }
    for (u32 i = 0; i < n_pieces; i++) waits += (nest_both(one, piece[i].seconds) - one) * piece[i].share;
    return (one + waits) * bodies;
}

double nest_read(const struct nest_rates *r, double bytes, double size, const struct nest_rows *rows)
{
    if (size <= r->near[RATE_L2]) return 0;
    return bytes * r->line[size > r->near[RATE_L3] ? RATE_DRAM : RATE_L3] * cost_of_pieces(RATE_L2, rows);
}
