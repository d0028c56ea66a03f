// SPDX-License-Identifier: Apache-2.0
//
// Operands rearranged while the program runs. A family that packs constants (emit_pack) gets the same
// array of an operand that is computed while running, such as the weights of a modulated convolution: a
// TEMP array, filled by a grid of the kernel before the family's own. The operand's prologue is evaluated
// there, once per element of the array.
//
// Elements of the innermost dimension are a vector, because they are stored side by side. The other
// dimensions are loops, ordered by the distance of their steps in the operand: lines of the operand are
// used up while the first cache holds them. The outermost ones are the grid. In workgroups each thread has
// one element, and neighbours store side by side. Axes with matrices (struct pack_mat) are no loops: all
// elements along them are loaded, multiplied in registers, and stored.
#include "lower/lower.h"

enum {
    ITERATIONS = 64,    /* of the grid, if there is work for as many */
    LEAST = 4096,       /* elements of an iteration worth a launch */
    FAR = 1 << 30,      /* a distance that depends on sizes not known now */
};

struct packing {
    struct emit *m;
    const struct pack *p;
    value_id v;
    kval to;
    enum dtype type;    /* of the packed array */
    u32 order[PACK_DIMS], n; /* dimensions that are loops, outermost first */
    kval at[PACK_DIMS]; /* index of each dimension; 0 of those with matrices */
};

/* The matrix along an axis; NULL: none. */
static const struct pack_mat *matrix_of(const struct pack *p, u32 axis)
{
    for (u32 i = 0; i < p->n_mat; i++)
        if (p->mat[i].axis == axis) return &p->mat[i];
    return NULL;
}

static i64 known(const struct packing *x, sym s, i64 otherwise)
{
    i64 n;
    return sym_is_const(x->m->g->sym, s, &n) ? n : otherwise;
}

/* Elements from an element of the operand to the next one along a dimension. */
static i64 distance(const struct packing *x, u32 dim)
{
    const struct value *v = graph_value(x->m->g, x->v);
    const u32 rank = v->shape.rank, axis = x->p->dim[dim].axis;
    i64 n = x->p->dim[dim].stride;
    bool is_clast = v->layout == LAYOUT_CLAST;
    for (u32 a = 0; a < rank; a++) {
        bool is_inner = is_clast && axis == 1 ? false : is_clast && a == 1 ? true : a > axis;
        if (is_inner && __builtin_mul_overflow(n, known(x, v->shape.dim[a], FAR), &n)) return INT64_MAX;
    }
    return n;
}

/* Sorts the loops: insertion sort, stable. */
static void order_loops(struct packing *x)
{
    i64 far[PACK_DIMS];
    for (u32 d = 0; d + 1 < x->p->n; d++) {
        if (matrix_of(x->p, x->p->dim[d].axis)) continue;
        u32 i = x->n++;
        i64 own = distance(x, d);
        for (; i > 0 && far[i - 1] < own; i--) far[i] = far[i - 1], x->order[i] = x->order[i - 1];
        far[i] = own, x->order[i] = d;
    }
}

static sym extent_of(const struct packing *x, u32 dim) { return x->p->dim[dim].extent; }

/* In the packed array, from an index of a dimension to the next. */
static sym step_of(const struct packing *x, u32 dim)
{
    sym n = sym_const(x->m->g->sym, 1);
    for (u32 d = dim + 1; d < x->p->n; d++) n = sym_mul(x->m->g->sym, n, extent_of(x, d));
    return n;
}

/* Whether indices along an axis may be negative. */
static bool has_steps_back(const struct packing *x, u32 axis)
{
    for (u32 d = 0; d < x->p->n; d++)
        if (x->p->dim[d].axis == axis && x->p->dim[d].stride < 0) return true;
    return false;
}

/* Whether every index along an axis is one of the operand. */
static bool is_inside(const struct packing *x, u32 axis)
{
    i64 most = 0, size = known(x, graph_value(x->m->g, x->v)->shape.dim[axis], -1);
    if (has_steps_back(x, axis)) return false;
    for (u32 d = 0; d < x->p->n; d++) {
        i64 n = known(x, extent_of(x, d), FAR) - 1, far;
        if (x->p->dim[d].axis != axis) continue;
        if (__builtin_mul_overflow(n, x->p->dim[d].stride, &far) || __builtin_add_overflow(most, far, &most)) return false;
    }
    return most < size;
}

/* Sets the operand's index, but along axes with matrices: of `lanes` elements along the last dimension. */
static void operand_index(const struct packing *x, u32 lanes, kval idx[MAX_RANK])
{
    struct kir *k = x->m->k;
    const u32 last = x->p->n - 1;
    for (u32 a = 0; a < MAX_RANK; a++) idx[a] = kir_int(k, 0);
    for (u32 d = 0; d < x->p->n; d++)
        if (!matrix_of(x->p, x->p->dim[d].axis))
            idx[x->p->dim[d].axis] = kir_add(k, idx[x->p->dim[d].axis], kir_mul_i(k, x->at[d], x->p->dim[d].stride));
    idx[x->p->dim[last].axis] = kir_ramp(k, idx[x->p->dim[last].axis], x->p->dim[last].stride, lanes);
}

/* The operand's elements, zeros outside of it. */
static kval operand_load(const struct packing *x, const kval idx[MAX_RANK], u32 lanes)
{
    struct kir *k = x->m->k;
    const u32 rank = graph_value(x->m->g, x->v)->shape.rank;
    kval at[MAX_RANK], inside = 0;
    u32 clamped = 0; /* axes */
    for (u32 a = 0; a < rank; a++) {
        at[a] = idx[a];
        if (matrix_of(x->p, a) || is_inside(x, a)) continue;
        inside = kir_and(k, inside, kir_lt(k, idx[a], emit_dim(x->m, x->v, a)));
        if (has_steps_back(x, a)) inside = kir_and(k, inside, kir_lt(k, kir_int(k, -1), idx[a]));
        at[a] = emit_clamp(x->m, idx[a], graph_value(x->m->g, x->v)->shape.dim[a]);
        clamped |= 1u << a;
    }
    kval v = kir_splat(k, kir_cast(k, emit_type(x->type), emit_clamped(x->m, x->v, at, clamped)), lanes);
    kval zero = kir_splat(k, emit_zero(x->m, x->type), lanes);
    return inside ? kir_select(k, kir_splat(k, inside, lanes), v, zero) : v;
}

static void store(const struct packing *x, kval at, kval v, u32 lanes)
{
    kir_store(x->m->k, x->to, kir_ramp(x->m->k, at, 1, lanes), emit_narrow(x->m, x->type, v));
}

/* Sum of n elements, `step` apart, times the coefficients. */
static kval weighted_sum(const struct packing *x, const double *c, const kval *v, i64 n, i64 step)
{
    struct kir *k = x->m->k;
    kval sum = 0;
    for (i64 i = 0; i < n; i++) {
        if (c[i] == 0) continue;
        kval f = kir_const_f(k, kir_dtype(k, v[i * step]), kir_lanes(k, v[i * step]), c[i]);
        sum = sum ? kir_fma(k, f, v[i * step], sum) : c[i] == 1 ? v[i * step] : kir_mul(k, f, v[i * step]);
    }
    return sum ? sum : kir_const_f(k, kir_dtype(k, v[0]), kir_lanes(k, v[0]), 0);
}

/* The elements along the axes of the matrices, row-major, from `from` times the matrices. */
static kval *multiply(const struct packing *x, kval *from)
{
    i64 size[countof(x->p->mat)], outer = 1;
    for (u32 i = 0; i < x->p->n_mat; i++) size[i] = known(x, graph_value(x->m->g, x->v)->shape.dim[x->p->mat[i].axis], 0);
    for (u32 i = 0; i < x->p->n_mat; i++) {
        const struct pack_mat *m = &x->p->mat[i];
        i64 inner = i64_product(x->p->n_mat - i - 1, size + i + 1);
        kval *to = arena_array(x->m->arena, kval, outer * m->rows * inner);
        for (i64 o = 0; o < outer; o++)
            for (i64 r = 0; r < m->rows; r++)
                for (i64 j = 0; j < inner; j++)
                    to[(o * m->rows + r) * inner + j] = weighted_sum(x, m->v + r * size[i], from + o * size[i] * inner + j, size[i], inner);
        from = to, outer *= m->rows;
    }
    return from;
}

/* All elements of the operand along the axes of the matrices, row-major, in f64: products are rounded once, as those of constants. */
static kval *load_all(const struct packing *x, u32 lanes)
{
    i64 n = 1, size[MAX_RANK];
    kval idx[MAX_RANK];
    for (u32 i = 0; i < x->p->n_mat; i++) {
        size[i] = known(x, graph_value(x->m->g, x->v)->shape.dim[x->p->mat[i].axis], 0);
        n *= size[i];
    }
    kval *v = arena_array(x->m->arena, kval, n);
    operand_index(x, lanes, idx);
    for (i64 c = 0; c < n; c++) {
        i64 rest = c;
        for (u32 i = x->p->n_mat; i-- > 0; rest /= size[i]) idx[x->p->mat[i].axis] = kir_int(x->m->k, rest % size[i]);
        v[c] = kir_cast(x->m->k, DT_F64, operand_load(x, idx, lanes));
    }
    return v;
}

/* In the packed array, of the row-major number of an element along the axes of the matrices. */
static kval cell_offset(const struct packing *x, i64 cell)
{
    struct kir *k = x->m->k;
    kval at = kir_int(k, 0);
    for (u32 i = x->p->n_mat; i-- > 0; cell /= x->p->mat[i].rows)
        for (u32 d = 0; d < x->p->n; d++)
            if (x->p->dim[d].axis == x->p->mat[i].axis)
                at = kir_add(k, at, kir_mul_i(k, emit_size(x->m, step_of(x, d)), cell % x->p->mat[i].rows));
    return at;
}

/* `lanes` neighbours along the last dimension. */
static void pack_elements(const struct packing *x, u32 lanes)
{
    struct kir *k = x->m->k;
    kval to = kir_int(k, 0), idx[MAX_RANK];
    for (u32 d = 0; d < x->p->n; d++) to = kir_add(k, to, kir_mul(k, x->at[d], emit_size(x->m, step_of(x, d))));
    if (!x->p->n_mat) {
        operand_index(x, lanes, idx);
        store(x, to, operand_load(x, idx, lanes), lanes);
        return;
    }
    const kval *cell = multiply(x, load_all(x, lanes));
    i64 n = 1;
    for (u32 i = 0; i < x->p->n_mat; i++) n *= x->p->mat[i].rows;
    for (i64 c = 0; c < n; c++) store(x, kir_add(k, to, cell_offset(x, c)), cell[c], lanes);
}

/* Opens the loop over a dimension; false: it has one index. */
static bool open_loop(struct packing *x, u32 dim, kval from, kval to, i64 step)
{
    struct kir *k = x->m->k;
    i64 n = known(x, extent_of(x, dim), 0);
    x->at[dim] = from;
    if (n == step) return false;
    x->at[dim] = kir_loop(k, KL_SERIAL, from, to, step);
    return true;
}

/* The last dimension in vectors, then one by one. */
static void pack_row(struct packing *x)
{
    struct kir *k = x->m->k;
    const u32 last = x->p->n - 1;
    i64 lanes = 1, n = known(x, extent_of(x, last), INT64_MAX), widest = x->m->vector_bytes / i64_max(4, dtype_size(x->type));
    while (2 * lanes <= i64_min(n, i64_min(widest, 64))) lanes *= 2;
    kval end = emit_size(x->m, extent_of(x, last)), whole = kir_mul_i(k, kir_div_i(k, end, lanes), lanes);
    bool is_open = open_loop(x, last, kir_int(k, 0), whole, lanes);
    pack_elements(x, (u32)lanes);
    if (is_open) kir_end(k);
    if (lanes == 1 || n % lanes == 0) return;
    x->at[last] = kir_loop(k, KL_SERIAL, whole, end, 1);
    pack_elements(x, 1);
    kir_end(k);
}

/* Elements of all dimensions but the first n loops. */
static i64 inner_elements(const struct packing *x, u32 n)
{
    i64 all = known(x, extent_of(x, x->p->n - 1), FAR);
    for (u32 i = n; i < x->n; i++)
        if (__builtin_mul_overflow(all, known(x, extent_of(x, x->order[i]), FAR), &all)) return INT64_MAX;
    return all;
}

/* The grid's index as that of the given dimensions. */
static void split(struct packing *x, kval index, const u32 *dim, u32 n)
{
    struct kir *k = x->m->k;
    for (u32 i = n; i-- > 0;) {
        kval size = emit_size(x->m, extent_of(x, dim[i]));
        x->at[dim[i]] = i ? kir_mod(k, index, size) : index;
        if (i) index = kir_div(k, index, size);
    }
}

static sym count(const struct packing *x, const u32 *dim, u32 n)
{
    sym all = sym_const(x->m->g->sym, 1);
    for (u32 i = 0; i < n; i++) all = sym_mul(x->m->g->sym, all, extent_of(x, dim[i]));
    return all;
}

static void by_iterations(struct packing *x)
{
    struct kir *k = x->m->k;
    u32 n_grid = 0, n_open = 0;
    for (; n_grid < x->n && inner_elements(x, n_grid + 1) >= LEAST; n_grid++)
        if (known(x, count(x, x->order, n_grid), FAR) >= ITERATIONS) break;
    split(x, kir_grid(k, emit_size(x->m, count(x, x->order, n_grid))), x->order, n_grid);
    for (u32 i = n_grid; i < x->n; i++)
        n_open += open_loop(x, x->order[i], kir_int(k, 0), emit_size(x->m, extent_of(x, x->order[i])), 1);
    pack_row(x);
    for (u32 i = 0; i < n_open + 1; i++) kir_end(k);
}

static void by_threads(struct packing *x, i64 threads)
{
    struct kir *k = x->m->k;
    struct symtab *t = x->m->g->sym;
    u32 dim[PACK_DIMS], n = 0;
    for (u32 d = 0; d < x->p->n; d++)
        if (!matrix_of(x->p, x->p->dim[d].axis)) dim[n++] = d;
    sym all = count(x, dim, n);
    kval i = kir_mul_i(k, kir_grid(k, emit_size(x->m, sym_cdiv(t, all, sym_const(t, threads)))), threads);
    i64 step = 1;
    for (u32 d = 0; d < 3; d++) {
        if (k->group[d] > 1) i = kir_add(k, i, kir_mul_i(k, kir_thread(k, d), step));
        step *= i64_max(1, k->group[d]);
    }
    kir_if(k, kir_lt(k, i, emit_size(x->m, all)));
    split(x, i, dim, n);
    pack_elements(x, 1);
    kir_end(k);
    kir_end(k);
}

void emit_pack_grid(struct emit *m, value_id v, const struct pack *p, kval to)
{
    struct packing x = {.m = m, .p = p, .v = v, .to = to, .type = pack_dtype(p, graph_value(m->g, v)->dtype)};
    const i64 threads = kir_threads(m->k);
    assert(p->n > 0 && !matrix_of(p, p->dim[p->n - 1].axis));
    for (u32 d = 0; d < p->n; d++) {
        assert(!matrix_of(p, p->dim[d].axis) || p->dim[d].stride == 1);
        x.at[d] = kir_int(m->k, 0);
    }
    order_loops(&x);
    if (threads > 1) by_threads(&x, threads);
    else by_iterations(&x);
}
