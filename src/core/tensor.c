// SPDX-License-Identifier: Apache-2.0
//
// Dense row-major host tensors: sizes with overflow checks, allocation in an arena, comparison, copies to and from strided arrays.
//
// tensor_size_ok validates sizes from files: everything else here assumes a shape that it
// accepted. Comparison takes the second tensor as the reference; two NaN are equal, infinities
// equal only themselves, integers are compared exactly before any conversion to double.
#include "core/core.h"

#include <math.h>
#include <string.h>

/* The largest addressable size; sums of a few of them do not overflow. */
static const i64 max_bytes = (i64)1 << 48;

bool tensor_size_ok(enum dtype t, u32 rank, const i64 *dim, i64 *bytes)
{
    if (t == DT_NONE || rank > MAX_RANK) return false;
    i64 size = dtype_size(t);
    bool empty = false;
    for (u32 i = 0; i < rank; i++) {
        if (dim[i] < 0) return false;
        if (dim[i] == 0) empty = true;
        else if (__builtin_mul_overflow(size, dim[i], &size) || size > max_bytes) return false;
    }
    if (bytes) *bytes = empty ? 0 : size;
    return true;
}

i64 tensor_count(const struct tensor *t)
{
    i64 n = 1;
    for (u32 i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

double tensor_largest(const struct tensor *t)
{
    double most = 0;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        double x = fabs(elem_f64(t->dtype, t->data, i));
        if (isfinite(x) && x > most) most = x;
    }
    return most;
}

i64 tensor_bytes(const struct tensor *t) { return tensor_count(t) * dtype_size(t->dtype); }

struct tensor *tensor_new(struct arena *a, enum dtype t, u32 rank, const i64 *dim)
{
    i64 bytes = 0;
    bool ok = tensor_size_ok(t, rank, dim, &bytes);
    assert(ok);
    (void)ok;
    struct tensor *x = arena_new(a, struct tensor);
    x->dtype = t;
    x->rank = rank;
    for (u32 i = 0; i < rank; i++) x->dim[i] = dim[i];
    x->data = arena_alloc(a, bytes);
    return x;
}

struct tensor *tensor_try(struct arena *a, enum dtype t, u32 rank, const i64 *dim, struct err *e, const char *what, struct str name)
{
    i64 bytes = 0;
    struct tensor *x = arena_new(a, struct tensor);
    if (!tensor_size_ok(t, rank, dim, &bytes)) bytes = INT64_MAX;
    x->dtype = t, x->rank = rank;
    for (u32 i = 0; i < rank; i++) x->dim[i] = dim[i];
    const char *quote = name.n ? "'" : "";
    x->data = arena_try(a, bytes, e, "%s%s%.*s%s", what, quote, STR_ARG(name), quote);
    return x->data ? x : NULL;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    bool same = a->rank == b->rank;
    for (u32 i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

static bool is_exact(enum dtype t) { return !dtype_is_float(t); }

/* |got - want| as the tolerance sees it: 0 when equal as values, infinity when not comparable. */
static double distance(double got, double want)
{
    if (got == want || (isnan(got) && isnan(want))) return 0;
    double d = fabs(got - want);
    return isnan(d) ? INFINITY : d;
}

/* Both exact: u64 against a signed type of another sign differs although the bits agree. */
static bool same_integer(const struct tensor *a, const struct tensor *b, i64 i)
{
    i64 x = elem_i64(a->dtype, a->data, i), y = elem_i64(b->dtype, b->data, i);
    return x == y && (a->dtype == b->dtype || x >= 0 || (a->dtype != DT_U64 && b->dtype != DT_U64));
}

struct tensor_diff tensor_compare(const struct tensor *a, const struct tensor *b, double rtol,
                                  double atol)
{
    struct tensor_diff d = {.first_bad = -1};
    if (!same_shape(a, b))
        return (struct tensor_diff){i64_max(1, tensor_count(b)), 0, INFINITY, INFINITY, NAN, NAN};
    bool exact = is_exact(a->dtype) && is_exact(b->dtype);
    for (i64 i = 0, n = tensor_count(b); i < n; i++) {
        if (exact && same_integer(a, b, i)) continue;
        double got = elem_f64(a->dtype, a->data, i), want = elem_f64(b->dtype, b->data, i);
        double delta = distance(got, want);
        if (delta == 0 && exact)
            delta = 1; /* integers that differ only beyond the 53 bits of a double */
        if (delta == 0) continue;
        if (isfinite(got) && isfinite(want)) {
            d.max_abs = fmax(d.max_abs, delta);
            if (fabs(want) > atol) d.max_rel = fmax(d.max_rel, delta / fabs(want));
        }
        if (isfinite(want) && delta <= atol + rtol * fabs(want)) continue;
        if (d.n_bad++ == 0) d.first_bad = i, d.got = got, d.want = want;
    }
    return d;
}

/* Strided arrays. */

struct copy { /* strides in bytes */
    u32 rank;
    i64 size; /* of one element */
    i64 dim[MAX_RANK], to_step[MAX_RANK], from_step[MAX_RANK];
};

static void copy_row(const struct copy *c, char *to, const char *from, i64 to_step, i64 from_step, i64 n)
{
    if (to_step == c->size && from_step == c->size) {
        memcpy(to, from, (size_t)(n * c->size));
        return;
    }
    for (i64 i = 0; i < n; i++, to += to_step, from += from_step) {
        switch (c->size) { /* constant sizes compile to single moves */
        case 1: memcpy(to, from, 1); break;
        case 2: memcpy(to, from, 2); break;
        case 4: memcpy(to, from, 4); break;
        case 8: memcpy(to, from, 8); break;
        default: unreachable();
        }
    }
}

static void copy_axis(const struct copy *c, u32 d, char *to, const char *from)
{
    if (d + 1 >= c->rank) {
        copy_row(c, to, from, c->rank ? c->to_step[d] : c->size, c->rank ? c->from_step[d] : c->size, c->rank ? c->dim[d] : 1);
        return;
    }
    for (i64 i = 0; i < c->dim[d]; i++) copy_axis(c, d + 1, to + i * c->to_step[d], from + i * c->from_step[d]);
}

static struct copy copy_of(const struct tensor *t, const i64 *stride, bool to_array)
{
    struct copy c = {.rank = t->rank, .size = dtype_size(t->dtype)};
    i64 dense = c.size;
    for (u32 d = c.rank; d-- > 0;) {
        i64 own = stride[d] * c.size;
        c.dim[d] = t->dim[d];
        c.to_step[d] = to_array ? own : dense, c.from_step[d] = to_array ? dense : own;
        dense *= c.dim[d];
    }
    return c;
}

void tensor_from_strided(const struct tensor *t, const void *array, const i64 *stride)
{
    const struct copy c = copy_of(t, stride, false);
    copy_axis(&c, 0, t->data, array);
}

void tensor_to_strided(const struct tensor *t, void *array, const i64 *stride)
{
    const struct copy c = copy_of(t, stride, true);
    copy_axis(&c, 0, array, t->data);
}
