// SPDX-License-Identifier: Apache-2.0
//
// gemm: GEMM on processors, batched and broadcast, of any sizes, and convolutions of
// single pixels, which are such: the schedules and which of them is good. gen/cpu_addr_matrix.c emits them.
//
// Dims: y (b.., m, n) = a (b.., m, k) x b (b.., k, n); pixels m, output channels n, input channels k.
#include "gen/cpu_gemm.h"
#include "gen/nest.h"

#include <math.h>
#include <string.h>

// clang-format off
#define PARAMS(P)                                                                                  \
    P(mr, "rows of the register tile, of a matrix unit 16 each", 1, 2, 3, 4, 6, 8, 10, 12, 14, 28) \
    P(nr, "vectors of columns of the register tile", 1, 2, 3, 4, 6, 8)                             \
    P(bk, "terms of a pass, 0 = all", 0, 8, 32, 128, 256, 512)                                     \
    P(mb, "tiles of rows per grid iteration at most, 0 = all", 0, 1, 2, 4, 8, 16, 32, 64)          \
    P(nb, "blocks of columns per grid iteration at most, 0 = all", 0, 1, 2, 4, 8, 16, 32, 64)      \
    P(pack, "left operand: 0 in place, 1 packed, 2 packed and rounded to 8 bits, where it may "    \
      "be", LEFT_PLACE, LEFT_PACKED, LEFT_BYTES)                                                   \
    P(right, "right operand: 0 in place, 1 packed (16-bit constants: converted) by each "          \
      "iteration, 2 once, 3 in place by vectors of terms, nr columns at a time", RIGHT_PLACE,      \
      RIGHT_BLOCKS, RIGHT_ONCE, RIGHT_INNER)                                                       \
    P(split_k, "summands of a result, computed apart", 1, 2, 4)                                    \
    P(ku, "terms per step of the inner loop", 1, 4)                                                \
    P(ahead, "terms that a constant right operand is prefetched ahead, 0 = not, 1 a block of "     \
      "columns, 2 likewise into the second cache", 0, AHEAD_BLOCK, AHEAD_SECOND, 16, 64)           \
    P(fetch, "left operand: 1 the next tile's rows are asked for while a tile is computed", 0, 1)  \
    P(nt, "results: 1 stored past the caches", 0, 1)
// clang-format on
GEN_PARAMS(PARAMS)

GEN_PARAM_READER(struct gemm_sched, sched_of, PARAMS)

static void emit(struct emit *m, const struct task *t, const struct caps *c, const struct sched *v)
{
    struct gemm_sched s = sched_of(v);
    gemm_emit(m, t, c, &s);
}

/* FEW_ROWS that a block of columns is read for: multiply-adds with fewer need lines from memory faster than the first cache can ask for
   (Zen 4: 24 at a time, 110 ns each: 14 GB/s; the second cache reads 28 GB/s). FEW_BLOCKS of columns: more of them find most rows of the
   left operand in a cache, unless short sums store results all the time. */
enum { SHORT = 128 /* terms */, FEW = 2048 /* results */, FEW_ROWS = 32, FEW_BLOCKS = 4 };

struct sizes { /* of a task, for what is asked of every schedule */
    i64 m, n, k, lanes, batch, threads, l2_bytes;
    i64 cells; /* accumulators of a tile that keeps the multipliers busy */
    struct tile_product product;
    bool has_rows, any_rows, static_k, may_round, a_plain, b_plain, b_const, b_converts, has_codes; /* any_rows: their number is not known */
    bool has_inner; /* both operands have vectors of terms in place, or the left one as it is packed (cpu_inner.c) */
    i64 square; /* run-time right operands are transposed in squares of so many where they are packed: gemm_square; else 0 */
    i64 run;    /* bytes of a vector of results stored past the caches; 0: they are not */
    bool a_far; /* the left operand is more than the second cache keeps */
    bool is_short; /* short sums of operands that are computed, as in attention: results are most of what is moved */
};

/* Groups of terms are whole in memory if the left operand is read in place. */
static bool has_whole_groups(const struct gemm *x, const struct caps *c)
{
    i64 g = gemm_product(x, c, LEFT_PACKED, RIGHT_ONCE).terms, k = gen_static(x->g, x->k, -1);
    return g == 1 || (k > 0 && k % g == 0);
}

enum { UNIT_CELLS = 64 }; /* two blocks of 16 rows by two vectors */

static struct sizes sizes_of(const struct gemm *x, const struct caps *c)
{
    struct sizes z = {.m = gen_eval(x->g, x->m, NULL),
                      .n = gen_eval(x->g, x->n, NULL),
                      .k = gen_eval(x->g, x->k, NULL),
                      .lanes = gen_lanes(c, x->type),
                      .batch = 1,
                      .threads = i64_max(1, c->n_threads),
                      .l2_bytes = c->l2_bytes,
                      .product = gemm_product(x, c, LEFT_PACKED, RIGHT_ONCE),
                      .has_codes = x->codes.block > 0,
                      .has_rows = x->m_axis >= 0,
                      .any_rows = gen_static(x->g, x->m, -1) < 0,
                      .static_k = gen_static(x->g, x->k, -1) > 0,
                      .may_round = x->codes.block && x->digits == 1 && !gemm_has_words(x, c),
                      .a_plain = x->a_plain && has_whole_groups(x, c),
                      .b_plain = x->b_plain && gemm_product(x, c, LEFT_PLACE, RIGHT_PLACE).terms == 1,
                      .b_const = x->b_const,
                      .b_converts = gemm_converts_right(x, c)};
    z.cells = tile_is_matrix(z.product) ? UNIT_CELLS : c->n_vector_regs / (z.product.leaf == &tile_code_dots ? 4 : 2);
    for (u32 i = 0; i < x->outer.n; i++) z.batch *= gen_eval(x->g, x->outer.g[i].extent, NULL);
    i64 size = dtype_size(graph_value(x->g, x->g->output.v[0])->dtype), n = gen_static(x->g, x->n, 0);
    if (x->simple && !x->by_rows && n * size % 64 == 0 && gen_may_nt(x->g, c, 64)) z.run = z.lanes * size;
    z.is_short = !x->b_const && z.k <= SHORT;
    z.a_far = 4.0 * (double)z.batch * (double)z.m * (double)z.k > (double)z.l2_bytes;
    return z;
}

/* Whatever the task is. Few rows at a time let the right operand stream by: then it is asked for
   some steps ahead, else a block ahead. */
static bool is_sane(const struct caps *c, struct tile_product p, const struct gemm_sched *s)
{
    if (!tile_is_legal_by(c, p, s->mr, s->nr) || s->ahead > (s->right == RIGHT_ONCE ? 64 : s->right == RIGHT_BLOCKS ? AHEAD_SECOND : 0)) return false;
    if (c->deterministic && s->split_k > 1) return false;
    if (s->bk % p.terms) return false;
    if (s->right == RIGHT_INNER) return !c->deterministic && gemm_inner_suits(p) && gemm_inner_is_legal(c, s->mr, s->columns) && !s->fetch && s->ku == 4 && (!s->bk || s->bk >= 128);
    if (tile_is_matrix(p)) return s->split_k == 1 && !s->ahead && !s->fetch;
    if (s->mr > 4 && s->nr > 1 && s->mr * s->nr < (i64)c->n_vector_regs / 2) return false;
    return s->ahead <= AHEAD_SECOND || s->mb < 2;
}

/* A pass is shorter than the sum; short passes are for operands that stream by. */
static bool is_good_pass(const struct sizes *z, const struct gemm_sched *s)
{
    if (!s->bk) return !s->pack || z->static_k;
    if (s->bk >= z->k) return s->bk == 8 && !z->static_k;
    return s->bk >= 128 || z->k <= 8 * s->bk || (s->right == RIGHT_PLACE && z->m <= 16);
}

/* Groups of mb among n: the least mb that gives as many of them. */
static bool is_good_group(i64 mb, i64 n)
{
    return !mb || (mb < n && (mb == 1 || ceil_div(n, mb / 2) > ceil_div(n, mb)));
}

/* Enough iterations for all threads, and each of them large, where there is enough work. */
static bool is_good_grid(const struct sizes *z, const struct gemm_sched *s, i64 tiles,
                         i64 blocks)
{
    double work = (double)z->m * (double)z->n * (double)z->k * (double)z->batch;
    double n = (double)(z->batch * s->split_k * (s->mb ? ceil_div(tiles, s->mb) : 1) *
                        (s->nb ? ceil_div(blocks, s->nb) : 1));
    if (work < 1e6) return true;
    double most = (double)tiles * (double)blocks * (double)z->batch;
    if (n < fmin((double)z->threads, most)) return false;
    bool large = s->mb == param[P_mb].values[param[P_mb].n - 1] || work / n >= 2e6;
    if (z->is_short && (double)z->m * (double)z->n * (double)z->batch / n >= FEW) return true; /* rows of results are stored one after the other */
    return n <= 8 * (double)z->threads || large || n <= 2 * (double)z->batch;
}

static bool is_good_split(const struct sizes *z, const struct gemm_sched *s, i64 results)
{
    if (s->split_k == 1) return true;
    return z->static_k && z->k >= s->split_k * 16 && results <= 16 * z->threads &&
           (s->split_k - 1) * (ceil_div(z->k, s->split_k * 16) * 16) < z->k;
}

static bool suits(const struct sizes *z, const struct gemm_sched *s)
{
    i64 tiles = ceil_div(z->m, s->mr), blocks = ceil_div(z->n, s->nr * z->lanes), unit = tile_unit(z->product);
    if (!s->pack && !z->a_plain) return false;
    bool in_blocks = s->right == RIGHT_BLOCKS, is_inner = s->right == RIGHT_INNER;
    if (is_inner && (!z->has_inner || s->pack == LEFT_BYTES || z->lanes % s->columns || z->k < 2 * z->lanes * z->product.terms)) return false;
    if (z->b_const ? s->right != RIGHT_ONCE && !(in_blocks && z->b_converts && tiles > 1) : s->ahead > AHEAD_SECOND) return false;
    if (in_blocks && !z->b_const && s->ahead && (!z->square || !(s->bk || z->static_k))) return false;
    if (s->right == RIGHT_PLACE && !z->b_plain) return false;
    if (z->has_codes && (s->split_k > 1 || s->bk % z->product.terms || (in_blocks && s->ahead))) return false;
    if (z->product.leaf == &tile_code_dots && s->right == RIGHT_ONCE && !s->pack) return false;
    if (z->product.leaf == &tile_codes && z->m >= FEW_ROWS && s->ahead && s->ahead <= AHEAD_SECOND) return false; /* many rows: converted once */
    if (s->pack == LEFT_BYTES && (!z->may_round || z->product.leaf != &tile_code_dots || s->right != RIGHT_ONCE)) return false;
    if (!z->has_rows && (s->mr > 1 || s->mb)) return false;
    if ((s->nr > 1 && (s->nr - 1) * z->lanes >= z->n) || (s->mr > unit && s->mr - unit >= z->m)) return false;
    if (s->mr * (is_inner ? s->columns : s->nr) < z->cells && s->mr * 4 <= z->m && s->nr * z->lanes * 2 <= z->n && z->m > 16)
        return false;
    if (s->ahead && (s->ahead <= AHEAD_SECOND) != (tiles > 1)) return false;
    if (z->any_rows ? s->ahead == AHEAD_BLOCK : s->ahead == AHEAD_SECOND && z->m >= FEW_ROWS) return false; /* any number: perhaps few */
    if (!is_good_group(s->mb, tiles) || !is_good_group(s->nb, blocks)) return false;
    if (!is_good_pass(z, s) || !is_good_split(z, s, tiles * blocks * z->batch)) return false;
    if (s->ku == 1 && z->k > 64) return false;
    if (s->fetch && (s->pack || s->bk || !z->a_far || tiles < 2 || z->k <= 64 || (blocks > FEW_BLOCKS && !z->is_short))) return false;
    if (s->nt && (!z->run || s->nr * z->run % 64 || s->bk || s->split_k > 1)) return false;
    i64 rows = s->mb ? s->mb * s->mr : z->m, terms = s->bk ? s->bk : z->k;
    if (s->pack && (double)rows * (double)terms * 4 > 4 * (double)z->l2_bytes + 1e6) return false;
    return is_good_grid(z, s, tiles, blocks);
}

/* A task and what is asked of it for every schedule. */
struct facts {
    struct gemm x;
    struct sizes z;
    bool is_gathered; /* the right operand, where it is packed: its neighbours in memory are terms of a column */
};

static bool analyze(const struct gen_problem *p)
{
    struct facts *f = p->facts;
    if (p->c->is_gpu || p->c->vector_bytes < 8 || !gemm_take(&f->x, p->t)) return false;
    f->z = sizes_of(&f->x, p->c);
    f->z.has_inner = !f->x.b_const && dtype_is_float(f->x.type) && gemm_inner_suits(f->z.product) && gemm_has_dense_terms(p->t, &f->x, (u32)(f->z.lanes * f->z.product.terms));
    f->is_gathered = !f->x.b_const && !f->x.pixels && !gemm_is_dense_along_last(p->t, f->x.b, (u32)f->z.lanes);
    f->z.square = f->x.b_const || f->z.product.terms > 1 ? 0 : gemm_square(p->t, &f->x, (u32)f->z.lanes);
    return true;
}

static bool legal(const struct gen_problem *p, const struct sched *v)
{
    const struct facts *f = p->facts;
    const struct gemm_sched s = gemm_tile(sched_of(v), f->z.product);
    return is_sane(p->c, gemm_product(&f->x, p->c, s.pack, s.right), &s) && suits(&f->z, &s);
}

/* Right operands, of which a batch may share one. */
static double right_count(const struct gemm *x, const i64 *var)
{
    double n = 1;
    for (u32 i = 0; !x->pixels && i + 2 < x->bs->rank; i++) n *= (double)gen_eval(x->g, x->bs->dim[i], var);
    return n;
}

/* Prediction: the loops of one thread. */

struct work { /* of a grid iteration; terms are groups of a DOT */
    double m, n, k, bk;        /* its rows, columns, terms; terms of a pass */
    double size[N_NEST_OPERANDS]; /* bytes of a term of an operand, of a sum */
    struct tile_product product;
    double words;              /* of four bytes in a term */
    double unit;               /* seconds of a matrix unit for a term of a block of rows and a vector of columns; 0: there is none */
    bool converts[2];          /* terms of an operand, which are of another type than the sums, are converted by each tile */
    double codes;              /* terms of a block of codes, which is a term here; 0: terms are no blocks */
    double dots;               /* of them: instructions for the products of 4 terms, 0: multiply-adds of each */
    double registers, others;  /* of vectors; of codes: those that a step takes beside its sums and columns */
    double unpack;             /* seconds by which making a vector of floats of codes delays multiply-adds */
    double m_all, n_all, k_all, batch;
    double lanes, width, passes;
    double columns;            /* RIGHT_INNER: as the schedule's; else 0 */
};

/* Fitted on Zen 4: a logical operation and a subtraction of 16 lanes, or more of fewer; bytes are widened and converted; floats take a dozen operations. */
static double unpack_seconds(const struct nest_rates *r, enum dtype codes)
{
    if (dtype_is_float(codes)) return 8 * nest_conversion(r);
    return 1.25 * nest_conversion(r);
}

static double size_of(const struct gemm *x, value_id v) { return (double)dtype_size(graph_value(x->g, v)->dtype); }

/* As tiles read them: constants and operands in place have the type of their value, packed ones that of the sums. */
static void set_sizes(struct work *w, const struct gemm *x, const struct caps *c, const struct gemm_sched *s)
{
    const value_id v[2] = {x->a, x->b};
    const bool own[2] = {!s->pack, s->right == RIGHT_PLACE || (x->b_const && s->right == RIGHT_ONCE)};
    const struct tile_product p = gemm_product(x, c, s->pack, s->right);
    bool is_dot = p.terms > 1 && !tile_has_codes(p.leaf); /* groups of four bytes */
    w->product = p, w->words = (double)(p.terms / p.group);
    w->size[NEST_SUMS] = (double)dtype_size(x->type);
    for (u32 i = 0; i < 2; i++) {
        w->size[i] = is_dot ? 4 * w->words : own[i] ? size_of(x, v[i]) : w->size[NEST_SUMS];
        w->converts[i] = !is_dot && own[i] && graph_value(x->g, v[i])->dtype != x->type;
    }
    const struct op_codes *q = &x->codes;
    if (q->block) w->size[NEST_RIGHT] = (double)code_bits(q->type) / 8 + (size_of(x, q->scale) + (q->zero ? 1 : 0)) / (double)q->block;
    if (!tile_has_codes(p.leaf)) return; /* RIGHT_BLOCKS: what is converted stays in a cache */
    w->codes = (double)q->block, w->words = (double)q->block;
    const bool are_words = gemm_has_words(x, c);
    const double each = caps_has_dot(c, DT_U8, DT_I8, DT_I32) ? 1 : are_words ? 2.5 : 2; /* in pairs; additions share no unit with products */
    w->dots = p.leaf == &tile_code_dots ? (double)p.sums * each : 0;
    w->size[NEST_LEFT] = w->dots > 0 ? w->codes * (double)p.sums * (are_words ? 2 : 1) + 8 : w->size[NEST_LEFT] * w->codes;
    w->size[NEST_RIGHT] *= w->codes;
    w->others = code_bits(q->type) < 8 ? 5 : 1; /* codes of a word wait, and masks */
    w->converts[NEST_RIGHT] = false;
}

static struct work work_of(const struct gemm *x, const struct caps *c, const struct gemm_sched *s, const i64 *var)
{
    const struct gemm_split d = gemm_split_of(x, s, gen_lanes(c, x->type));
    double group = (double)gemm_product(x, c, s->pack, s->right).terms;
    struct work w = {.lanes = gen_lanes(c, x->type), .registers = (double)c->n_vector_regs, .batch = 1};
    w.m_all = (double)i64_max(1, gen_eval(x->g, x->m, var));
    w.n_all = (double)i64_max(1, gen_eval(x->g, x->n, var));
    w.k_all = ceil((double)i64_max(1, gen_eval(x->g, x->k, var)) / group);
    for (u32 i = 0; i < x->outer.n; i++) w.batch *= (double)i64_max(1, gen_eval(x->g, x->outer.g[i].extent, var));
    w.width = (double)s->nr * w.lanes, w.columns = (double)s->columns;
    w.m = d.mb ? fmin(w.m_all, (double)(d.mb * s->mr)) : w.m_all;
    w.n = d.nb ? fmin(w.n_all, (double)d.nb * w.width) : w.n_all;
    w.k = d.chunk ? (double)d.chunk / group : w.k_all;
    w.bk = s->bk ? fmin(w.k, (double)s->bk / group) : w.k;
    w.passes = ceil(w.k / w.bk);
    set_sizes(&w, x, c, s);
    return w;
}

/* Sums of a block and of all terms share the registers; more wait in memory, and compilers move them about. Fitted on Zen 4: one or two digits to tiles of
   many rows; of three, sums of all terms are seldom needed, and those of the digits are stored after each product of four terms. */
static double spill_of_dots(const struct nest_rates *r, const struct work *w, i64 rows, i64 nr)
{
    const bool are_three = w->product.sums == CODE_DIGITS;
    const double cycles = are_three ? 40 : 3, spare = are_three ? 4 : -1, sums = (double)(w->product.sums + !are_three);
    return cycles * r->cycle * fmax(0, sums * (double)(rows * nr) + (double)nr - spare - w->registers);
}

/* A term takes as long as storing and loading a sum, if one of them waits in memory: each term adds to it. Fitted on Zen 4. */
static double chain_of_codes(const struct nest_rates *r, const struct work *w, i64 rows, i64 nr)
{
    const double cycles = 13;
    return (double)(rows * nr + nr) + w->others > w->registers ? cycles * r->cycle : 0;
}

/* A term of some rows, whose elements are each converted and spread, and `nr` vectors of columns. */
static double step_of_tile(const struct nest_rates *r, const struct gemm_sched *s, const struct work *w, i64 rows, i64 nr)
{
    if (w->unit > 0) return nest_unit(r, w->unit, rows, nr, rows % tile_matrix.rows);
    if (w->dots > 0) { /* a block's sums are converted, and end with some operations */
        double each = nest_step(r, (i64)(w->dots * (double)rows), nr) / 4 + (double)nr * w->unpack / 4;
        return w->codes * each + (double)(rows * nr) * (double)(w->product.sums + 2) * r->fma + 20 * r->cycle + spill_of_dots(r, w, rows, nr);
    }
    if (w->codes > 0) {
        double each = nest_step(r, rows, nr) + (double)nr * w->unpack + (w->converts[NEST_LEFT] ? (double)rows * r->cycle : 0);
        each = fmax(each, chain_of_codes(r, w, rows, nr));
        return w->codes * each + (double)(rows * nr) * 2 * r->fma + 10 * r->cycle; /* and what a block's sums begin and end with */
    }
    if (w->columns > 0) { /* a share of a vector of terms */
        const double columns = (double)gemm_inner_columns(s, (i64)w->lanes, rows), all = (double)rows * columns;
        const double most = fmax((double)rows, columns), least = fmin((double)rows, columns);
        const double converted = (w->converts[NEST_LEFT] ? (double)rows : 0) + (w->converts[NEST_RIGHT] ? columns : 0);
        const double longer = rows > 1 && (least < 3 || most > 2 * least) ? 1.3 : 1; /* oblong tiles and small ones: fitted on Zen 4 */
        return (double)nr * (longer * nest_tap(r, all, (double)rows + columns) + converted * nest_conversion(r)) / columns;
    }
    double t = nest_step_by(r, w->product, rows, nr);
    if (w->converts[NEST_LEFT]) t += (double)rows * r->cycle;
    if (w->converts[NEST_RIGHT]) t += (double)nr * nest_conversion(r);
    return t;
}

/* One term of all rows of an iteration, left over ones included, and `nr` vectors of columns. */
static double step_of_rows(const struct gemm *x, const struct nest_rates *r, const struct gemm_sched *s, const struct work *w, i64 nr)
{
    i64 m = (i64)w->m, rest = m % s->mr;
    if (gen_static(x->g, x->m, -1) < 0) rest = gemm_rest(rest, s->mr, w->product.leaf);
    return (double)(m / s->mr) * step_of_tile(r, s, w, s->mr, nr) + (rest ? step_of_tile(r, s, w, rest, nr) : 0);
}

/* RIGHT_INNER: what is behind the terms of a tile. Every result has a vector, which is halved with another one; groups of them are stored and loaded. */
static double inner_ends(const struct nest_rates *r, const struct work *w, i64 mr)
{
    const double halving = 1; /* cycles: fitted on Zen 4 */
    return (double)mr * w->lanes * (2 * r->load / w->columns + halving * r->cycle) + w->lanes / w->columns * 8 * r->cycle;
}

/* Multiply-adds of an iteration, and what every tile costs at its ends: sums are cleared or loaded, then stored. */
static double tiles_seconds(const struct gemm *x, const struct nest_rates *r, const struct gemm_sched *s, const struct work *w)
{
    double whole = floor(w->n / w->width), rest = w->n - whole * w->width, cells = (double)(s->mr * s->nr);
    double steps = whole * step_of_rows(x, r, s, w, s->nr);
    if (rest > 0) steps += step_of_rows(x, r, s, w, ceil_div((i64)rest, (i64)w->lanes));
    double tiles = ceil(w->m / (double)s->mr) * ceil(w->n / w->width);
    double ends = nest_ends(r, cells, x->by_rows ? w->lanes : 0) + (w->passes - 1) * nest_ends(r, 2 * cells, 0);
    if (w->columns > 0) ends += w->passes * inner_ends(r, w, s->mr);
    return steps * w->k * (1 + 0.02 / (double)s->ku) + tiles * ends;
}

/* To evaluate an operand's prologue, of terms as work counts them: n of them. */
static double front_seconds(const struct gen_problem *p, u32 operand, const struct work *w, double n)
{
    const struct gemm *x = &((const struct facts *)p->facts)->x;
    double group = (double)w->product.terms;
    if (operand == NEST_RIGHT && x->codes.block) return n / w->lanes * (w->unpack + 2 * p->nest->fma);
    return n * group / w->lanes * gen_problem_front(p, operand) * p->nest->work / 2;
}

/* Vectors of so many elements of the right operand loaded and stored, where it is packed. Transposed, or loaded apart: fitted on Zen 4. */
static double pack_right_seconds(const struct gen_problem *p, const struct work *w, double n)
{
    const struct facts *f = p->facts;
    const struct nest_rates *r = p->nest;
    const double piece = (double)f->z.square;
    if (piece > 0) return n / piece * (0.7 + 0.35 * log2(piece)) * r->cycle;
    return n * w->words * (3 * r->load + r->cycle) / w->lanes + (f->is_gathered ? 1.75 * n * fmax(1, (double)w->product.terms / 2) * r->cycle : 0);
}

/* Operands rearranged by an iteration: vectors evaluated or loaded, and stored. */
static double pack_seconds(const struct gen_problem *p, const struct gemm_sched *s, const struct work *w)
{
    const struct nest_rates *r = p->nest;
    double vector = 2 * r->load + r->cycle, t = 0;
    if (s->pack) t += w->m * w->k * w->words / w->lanes * vector + w->m * w->passes * 8 * r->cycle + front_seconds(p, 0, w, w->m * w->k);
    if (s->right == RIGHT_BLOCKS)
        t += pack_right_seconds(p, w, w->k * w->n) + w->passes * ceil(w->n / w->width) * 20 * r->cycle + front_seconds(p, 1, w, w->k * w->n);
    return t;
}

/* RIGHT_INNER: the share of lines that hardware prefetches in time, fitted on Zen 4. A single row goes through columns faster than a stream gets going; all
   columns one after the other are one stream, which waits at every page. */
static double followed(const struct gemm_sched *s, const struct work *w)
{
    const double until = 1340 / (w->size[NEST_RIGHT] * w->bk); /* bytes */
    if (s->mr > 1) return 0.95;
    return w->columns > 1 || w->passes > 1 ? 1 / (1 + until * until) : 0.96;
}

/* The share of the right operand's lines that are there in time. In passes, the last block of an iteration asks for what is computed with much later,
   steps ahead of the end of a pass ask in vain, and few steps ahead are too late for memory. For many rows there is time enough. steps: of a pass. */
static double asked(const struct gemm_sched *s, const struct work *w, double steps)
{
    if (s->right == RIGHT_INNER) return followed(s, w);
    if (!s->ahead) return 0;
    if (s->ahead > AHEAD_SECOND) return (s->ahead > 16 ? 1 : 0.95) / (1 + (double)s->ahead / (2 * steps));
    if (w->m_all >= FEW_ROWS) return 1;
    return (s->ahead == AHEAD_BLOCK ? 0.5 : 1) * (w->passes > 1 ? 1 - 1 / ceil(w->n / w->width) : 1);
}

/* Bytes that the epilogue reads for each result, besides those of rows and columns. */
static double bytes_behind(const struct gen_problem *p, const struct gemm *x, const struct work *w)
{
    const struct graph *g = x->g;
    double bytes = 0;
    for (value_id v = 1; v < g->value.n; v++) {
        bool is_read = !graph_value(g, v)->producer && v != x->a && v != x->b && !gen_depends(g, x->a, v) && !gen_depends(g, x->b, v);
        if (is_read && gen_count(g, v, p->var) >= w->m_all * w->n_all) bytes += size_of(x, v);
    }
    return bytes;
}

/* Whether an iteration of short sums stores its results so that memory follows: rows, or long parts of them, few enough that prefetchers
   follow each (Zen 4). */
static bool are_followed(const struct nest_rates *r, const struct work *w)
{
    const double part = 2048; /* bytes */
    double size = w->size[NEST_SUMS];
    return size * w->m * w->n <= r->near[RATE_L2] / 4 && size * w->n >= fmin(size * w->n_all, part);
}

/* What multiply-adds wait for beside the traffic that they overlap with: lines of a left operand in place that come from memory and are not asked for
   ahead (fitted to the products of attention on Zen 4), and those of short sums that are stored in pieces all over the result. */
static double waiting(const struct nest_rates *r, const struct gemm_sched *s, const struct work *w, const struct nest *n, bool in_pieces)
{
    const double unasked = 0.4;
    double left = w->size[NEST_LEFT] * w->batch * w->m_all * w->k_all, results = w->size[NEST_SUMS] * w->batch * w->m_all * w->n_all, t = 0;
    if (!s->pack && !s->fetch && left > r->near[RATE_L3]) t += unasked * left * r->line[RATE_DRAM];
    if (in_pieces) t += nest_read(r, results, results, &n->rows[NEST_SUMS]);
    return t;
}

/* What packing waits for: the left operand comes from beyond the second cache. */
static double pack_traffic(const struct nest_rates *r, const struct gemm_sched *s, const struct work *w)
{
    const double size = w->size[NEST_LEFT];
    const struct nest_rows left = {size * w->bk, size * w->k_all, 1};
    return s->pack ? nest_read(r, size * w->m * w->k, size * w->batch * w->m_all * w->k_all, &left) : 0;
}

/* Seconds of TLB misses in a block of columns of an iteration: all its rows are visited once, in the left operand and in the results, and if they lie in more
   pages than the second-level TLB has entries, each page misses (Goto & van de Geijn 2008, section 4.2). Fitted on Zen 4, which has 3072 entries; others
   have 1536 to 2048. */
static double tlb_seconds(const struct work *w, const struct gemm_sched *s)
{
    const double page = 4096, entries = 2048, spare = 0.75, miss = 36e-9;
    double left = w->size[NEST_LEFT] * w->bk, pitch = s->pack ? left : w->size[NEST_LEFT] * w->k_all, results = w->size[NEST_SUMS] * w->n_all;
    double pages = w->m * ((pitch < page ? pitch / page : fmax(1, left / page)) + fmin(1, results / page));
    return pages * miss * fmax(0, fmin(1, pages / entries - spare));
}

/* How often a tile's rows come from the second cache: RIGHT_INNER reads them for each group of columns, and the first cache keeps them beside these, or not. */
static double left_again(const struct nest_rates *r, const struct work *w, const struct gemm_sched *s, const struct nest *n)
{
    double share = 0;
    if (w->columns <= 0) return 1;
    share += w->size[NEST_LEFT] * (double)s->mr * w->bk / nest_room(r, RATE_L1, &n->rows[NEST_LEFT]);
    share += w->size[NEST_RIGHT] * w->columns * w->bk / nest_room(r, RATE_L1, &n->rows[NEST_RIGHT]);
    return share > 2 ? w->width / w->columns : 1;
}

/* Rows of a right operand that is read where it lies, by tiles or to be packed for them: a part of each for a block of columns. Passes of few terms
   go through all blocks of an iteration: prefetchers follow that many rows (Zen 4: 8 at 21 GB/s, and 32 at 14). */
static struct nest_rows right_rows(const struct facts *f, const struct gemm_sched *s, const struct work *w)
{
    const double streams = 16, size = w->size[NEST_RIGHT];
    bool is_apart = s->right == RIGHT_PLACE || (s->right == RIGHT_BLOCKS && !f->x.b_const && !f->is_gathered);
    if (s->right == RIGHT_INNER) return (struct nest_rows){size * w->bk, size * w->k_all, (double)s->columns};
    if (!is_apart) return (struct nest_rows){0};
    return (struct nest_rows){size * (s->right == RIGHT_PLACE && w->passes > 1 && w->bk <= streams ? w->n : w->width), size * w->n_all, 1};
}

static double predict(const struct gen_problem *p, const struct sched *v)
{
    const struct gemm *x = &((const struct facts *)p->facts)->x;
    const struct caps *c = p->c;
    const struct nest_rates *r = p->nest;
    const struct gemm_sched sched = gemm_tile(sched_of(v), ((const struct facts *)p->facts)->z.product), *s = &sched;
    const i64 *var = p->var;
    const bool is_short = ((const struct facts *)p->facts)->z.is_short;
    struct work w = work_of(x, c, s, var);
    w.unit = nest_unit_seconds(r, ((const struct facts *)p->facts)->z.product, graph_value(x->g, x->a)->dtype);
    if (x->codes.block) w.unpack = unpack_seconds(r, x->codes.type);
    if (is_short) w.size[NEST_SUMS] += bytes_behind(p, x, &w) / 2; /* read only */
    double tiles = ceil(w.m / (double)s->mr), blocks = ceil(w.n / w.width), threads = (double)i64_max(1, c->n_threads);
    double rows = ceil(w.m_all / w.m), columns = ceil(w.n_all / w.n), share = w.batch * rows * columns * (double)s->split_k;
    const double *size = w.size;
    struct nest n = {.bytes = {size[NEST_LEFT] * (double)s->mr * w.bk, size[NEST_RIGHT] * w.bk * w.width, size[NEST_SUMS] * (double)s->mr * w.width}};
    n.seconds = (tiles_seconds(x, r, s, &w) + pack_seconds(p, s, &w)) / (tiles * blocks * w.passes);
    n.burst = s->ahead > AHEAD_SECOND ? (w.dots > 0 ? 2 : w.codes > 0 ? 4 : size[NEST_RIGHT]) * w.width : 0; /* of codes a unit's words; as bytes, few operations wait */
    n.asked[NEST_RIGHT] = asked(s, &w, w.codes > 0 ? w.bk * w.codes / (double)code_unit(x->codes.type) : w.bk);
    if (!s->pack) n.rows[NEST_LEFT] = (struct nest_rows){size[NEST_LEFT] * w.bk, size[NEST_LEFT] * w.k_all, (double)(s->fetch ? 2 * s->mr : s->mr)};
    n.rows[NEST_RIGHT] = right_rows(p->facts, s, &w);
    n.bytes[NEST_LEFT] *= left_again(r, &w, s, &n);
    bool are_kept = is_short && are_followed(r, &w);
    n.rows[NEST_SUMS] = (struct nest_rows){size[NEST_SUMS] * (are_kept ? w.n : w.width), size[NEST_SUMS] * w.n_all, 1};
    nest_loop(&n, tiles, 1, 0, 1);
    nest_loop(&n, blocks, 0, 1, 1);
    nest_loop(&n, w.passes, 1, 1, 0);
    nest_loop(&n, rows, 1, 0, 1);
    nest_loop(&n, w.batch * (double)s->split_k, 1, 1, 1);
    nest_loop(&n, columns, 0, 1, 1);
    double t = nest_seconds(&n, r) * ceil(share / threads) / share, wait = r->launch;
    double results = size[NEST_SUMS] * w.batch * w.m_all * w.n_all;
    t += (waiting(r, s, &w, &n, is_short && !are_kept) + (pack_traffic(r, s, &w) + tlb_seconds(&w, s) * blocks * w.passes) * share) / threads;
    if (s->right == RIGHT_ONCE && !x->b_const) {
        const double right = w.k_all * w.n_all * right_count(x, var), bytes = size[NEST_RIGHT] * right;
        t += nest_read(r, bytes, 2 * bytes, &(struct nest_rows){0}) / threads; /* stored and read again */
        t += (pack_right_seconds(p, &w, right) + front_seconds(p, 1, &w, right)) / threads, wait += r->launch * (threads > 1);
    }
    if (!x->simple || s->split_k > 1) t += 3 * results * (double)s->split_k * r->line[RATE_DRAM] / threads, wait += r->launch * (threads > 1);
    return wait + (s->nt ? gen_nt_seconds(p, t) : t);
}

/* Of operands whose terms are neighbours: tiles of vectors of terms, and one of blocks that are packed, which are far from each other. */
static bool start(const struct gen_problem *p, u32 number, struct sched *v)
{
    static const struct { i64 mr, nr; enum gemm_right right; } tile[] = {{1, 1, RIGHT_INNER}, {1, 8, RIGHT_INNER}, {2, 4, RIGHT_INNER}, {3, 4, RIGHT_INNER}, {4, 4, RIGHT_INNER}, {4, 3, RIGHT_BLOCKS}};
    const struct facts *f = p->facts;
    if (!f->z.has_inner || number >= countof(tile)) return false;
    v->v[P_mr] = tile[number].mr, v->v[P_nr] = tile[number].nr, v->v[P_right] = tile[number].right;
    v->v[P_pack] = f->z.a_plain ? LEFT_PLACE : LEFT_PACKED;
    v->v[P_split_k] = 1, v->v[P_ku] = 4;
    return true;
}

const struct gen gen_gemm = {
    GEN_FAMILY("gemm", 15), .facts = sizeof(struct facts), .analyze = analyze, .start = start, .legal = legal,
    .emit = emit, .predict = predict,
};
