// SPDX-License-Identifier: Apache-2.0
//
// exact_conv.c: Conv and MatMul of integers, of floats over a field, or of terms, and sums of terms,
// computed by their definitions, independently of the kernels and as fast as the arithmetic allows:
// they are most of a task's work.
#include "tune/exact.h"

#include "kir/field.h"
#include "kir/term.h"

static bool is_there(const i64 *place, i64 p) { return !place || place[p] >= 0; }

/* Modulo 2^64, and then of the type. */
static union kir_cell dot_of_integers(enum dtype t, union kir_cell sum, const union kir_cell *x, const union kir_cell *y, i64 n, const i64 *place, i64 parts)
{
    u64 s = (u64)sum.i;
    for (i64 p = 0; p < parts; p++)
        for (i64 i = p * n; i < (p + 1) * n && is_there(place, p); i++) s += (u64)x[i].i * (u64)y[i].i;
    return (union kir_cell){.i = t == DT_I32 ? (i32)s : (i64)s};
}

/* sum + x[0]*y[0] + x[1]*y[1] ..., in that order if it matters. t: type of the sums; parts: number
   of runs of n terms; those with place < 0 are skipped, none if there are no places. */
static union kir_cell dot(enum kir_arithmetic k, enum dtype t, union kir_cell sum, const union kir_cell *x, const union kir_cell *y, i64 n, const i64 *place,
                          i64 parts)
{
    if (!dtype_is_float(t)) return dot_of_integers(t, sum, x, y, n, place, parts);
    struct field_dot d = field_dot_from(sum);
    union kir_cell r;
    for (i64 p = 0; p < parts && k == KIR_FIELD; p++)
        if (is_there(place, p)) field_dot_add(&d, x + p * n, y + p * n, n);
    if (k == KIR_FIELD && field_dot_end(&d, &r)) return r;
    for (i64 p = 0; p < parts; p++)
        for (i64 i = p * n; i < (p + 1) * n && is_there(place, p); i++)
            kir_scalar_in(k)(KI_FMA, t, t, (union kir_cell[3]){x[i], y[i], sum}, &sum);
    return sum;
}

struct conv { /* (n, m, o...) = sum over c, k... of (n, c, o*stride + k*dilation - begin ...) * (m, c, k...) */
    enum kir_arithmetic arithmetic;
    enum dtype type; /* of the sums */
    struct op_window w;
    i64 begin[MAX_RANK], groups, taps, pixels, in_pixels;
    const struct tensor *x, *wt, *y;
    const union kir_cell *fill; /* the padding's value; NULL: 0, whose terms are left out */
};

static bool is_plain_float(enum dtype t) { return dtype_is_float(t) && !dtype_is_small(t); }

/* All of floats, or of integers that are added in 32 or 64 bits. */
static bool has_known_types(const struct graph *g, const struct node *x)
{
    enum dtype y = graph_value(g, x->out.v[0])->dtype;
    bool ok = is_plain_float(y) || y == DT_I32 || y == DT_I64;
    for (u32 i = 0; i < x->in.n && ok; i++) {
        enum dtype t = x->in.v[i] ? graph_value(g, x->in.v[i])->dtype : y;
        ok = dtype_is_float(y) ? is_plain_float(t) : dtype_kind(t) == DK_INT || dtype_kind(t) == DK_UINT;
    }
    return ok;
}

/* Index of a tap's pixel in an input channel; -1: outside. */
static i64 tap_at(const struct conv *c, i64 pixel, i64 tap)
{
    i64 at = 0, scale = 1;
    for (u32 i = c->w.n; i-- > 0; pixel /= c->y->dim[2 + i], tap /= c->w.kernel[i]) {
        i64 p = pixel % c->y->dim[2 + i] * c->w.stride[i] + tap % c->w.kernel[i] * c->w.dilation[i] - c->begin[i];
        if (p < 0 || p >= c->x->dim[2 + i]) return -1;
        at += p * scale;
        scale *= c->x->dim[2 + i];
    }
    return at;
}

/* Reorders (m, c, taps) to (m, taps, c), the order of the terms. */
static union kir_cell *by_taps(const struct conv *c, const union kir_cell *w, struct arena *a)
{
    i64 n = c->wt->dim[1] * c->taps, all = c->y->dim[1] * n;
    union kir_cell *to = arena_array(a, union kir_cell, all + 1);
    for (i64 m = 0; m < all; m += n)
        for (i64 k = 0; k < c->wt->dim[1]; k++)
            for (i64 t = 0; t < c->taps; t++) to[m + t * c->wt->dim[1] + k] = w[m + k * c->taps + t];
    return to;
}

/* One pixel of all output channels of an image. place: of each tap; w: by taps; in: scratch for a
   group's terms. */
static void conv_pixel(const struct conv *c, const i64 *place, const union kir_cell *x, const union kir_cell *w, const union kir_cell *bias,
                       union kir_cell *in, union kir_cell *y)
{
    i64 per_group = c->y->dim[1] / c->groups, channels = c->wt->dim[1];
    for (i64 m = 0; m < c->y->dim[1]; m++) {
        const union kir_cell *from = x + m / per_group * channels * c->in_pixels;
        for (i64 t = 0; t < c->taps && m % per_group == 0; t++)
            for (i64 k = 0; k < channels && (place[t] >= 0 || c->fill); k++)
                in[t * channels + k] = place[t] >= 0 ? from[k * c->in_pixels + place[t]] : *c->fill;
        y[m * c->pixels] = dot(c->arithmetic, c->type, bias ? bias[m] : (union kir_cell){0}, in, w + m * channels * c->taps, channels,
                               c->fill ? NULL : place, c->taps);
    }
}

static bool conv(const struct exact_values *v, const struct node *x)
{
    struct conv c = {.arithmetic = v->arithmetic, .x = &v->shape[x->in.v[0]], .wt = &v->shape[x->in.v[1]], .y = &v->shape[x->out.v[0]]};
    c.groups = attr_int(x, "group", 1), c.type = emit_type(c.y->dtype);
    c.fill = op_has_in(x, 3) ? v->cell[x->in.v[3]] : NULL;
    const union kir_cell *bias = x->in.n > 2 && x->in.v[2] ? v->cell[x->in.v[2]] : NULL;
    struct arena a = {0};
    op_window_get(v->g, x, &c.w);
    for (u32 i = 0; i < c.w.n; i++)
        if (!sym_eval(v->g->sym, c.w.begin[i], v->var, &c.begin[i])) return false;
    c.taps = op_window_taps(&c.w);
    c.pixels = i64_product(c.w.n, c.y->dim + 2), c.in_pixels = i64_product(c.w.n, c.x->dim + 2);
    i64 *place = arena_array(&a, i64, c.taps + 1);
    const union kir_cell *w = by_taps(&c, v->cell[x->in.v[1]], &a);
    union kir_cell *in = arena_array(&a, union kir_cell, c.wt->dim[1] * c.taps + 1);
    for (i64 p = 0; p < c.pixels; p++) {
        for (i64 t = 0; t < c.taps; t++) place[t] = tap_at(&c, p, t);
        for (i64 n = 0; n < c.y->dim[0]; n++)
            conv_pixel(&c, place, v->cell[x->in.v[0]] + n * c.x->dim[1] * c.in_pixels, w, bias, in, v->cell[x->out.v[0]] + n * c.y->dim[1] * c.pixels + p);
    }
    arena_release(&a);
    return true;
}

/* Offset of the matrix of operand t for batch number `at` of y: axes of size 1 are broadcast. */
static i64 matrix_at(const struct tensor *t, const struct tensor *y, i64 at)
{
    i64 offset = 0, scale = t->dim[t->rank - 1] * t->dim[t->rank - 2];
    for (u32 i = 3; i <= y->rank; i++) {
        i64 size = y->dim[y->rank - i], own = i <= t->rank ? t->dim[t->rank - i] : 1;
        if (own > 1) offset += at % size * scale;
        scale *= own;
        at /= size;
    }
    return offset;
}

static bool matmul(const struct exact_values *v, const struct node *x)
{
    const struct tensor *a = &v->shape[x->in.v[0]], *b = &v->shape[x->in.v[1]], *y = &v->shape[x->out.v[0]];
    if (a->rank < 2 || b->rank < 2) return false;
    i64 rows = y->dim[y->rank - 2], columns = y->dim[y->rank - 1], terms = a->dim[a->rank - 1];
    union kir_cell *to = v->cell[x->out.v[0]];
    struct arena scratch = {0};
    union kir_cell *by_column = arena_array(&scratch, union kir_cell, columns * terms + 1);
    for (i64 n = 0, batch = i64_product(y->rank - 2, y->dim); n < batch; n++) {
        const union kir_cell *left = v->cell[x->in.v[0]] + matrix_at(a, y, n), *right = v->cell[x->in.v[1]] + matrix_at(b, y, n);
        for (i64 k = 0; k < terms; k++)
            for (i64 j = 0; j < columns; j++) by_column[j * terms + k] = right[k * columns + j];
        for (i64 r = 0; r < rows; r++)
            for (i64 j = 0; j < columns; j++)
                *to++ = dot(v->arithmetic, emit_type(y->dtype), (union kir_cell){0}, left + r * terms, by_column + j * terms, terms, NULL, 1);
    }
    arena_release(&scratch);
    return true;
}

/* A sum or product over axes in the guaranteed order (gen/gen.h). */
static bool ordered_sum(const struct exact_values *v, const struct node *x, const struct op_reduce *r)
{
    const struct tensor *in = &v->shape[x->in.v[0]], *out = &v->shape[x->out.v[0]];
    const enum dtype type = emit_type(in->dtype);
    i64 n_out = tensor_count(out), n_in = tensor_count(in);
    struct arena a = {0};
    union kir_cell *part = arena_array(&a, union kir_cell, n_out * ROW_PARTS + 1), *to = v->cell[x->out.v[0]];
    for (i64 i = 0; i < n_out * ROW_PARTS; i++) part[i] = (union kir_cell){.f = r->combine == KI_MUL};
    for (i64 i = 0; i < n_in; i++) {
        i64 rest = i, number = 0, scale = 1, kept = 0, kept_scale = 1;
        for (u32 d = in->rank, k = r->n_axes; d-- > 0; rest /= in->dim[d]) {
            bool is_reduced = k && r->axis[k - 1] == d;
            if (is_reduced) number += rest % in->dim[d] * scale, scale *= in->dim[d], k--;
            else kept += rest % in->dim[d] * kept_scale, kept_scale *= in->dim[d];
        }
        union kir_cell *sum = &part[kept * ROW_PARTS + number % ROW_PARTS];
        term_scalar(r->combine, type, type, (union kir_cell[3]){*sum, v->cell[x->in.v[0]][i]}, sum);
    }
    for (i64 o = 0; o < n_out; o++) {
        union kir_cell *p = part + o * ROW_PARTS;
        for (i64 half = ROW_PARTS / 2; half; half /= 2)
            for (i64 u = 0; u < half; u++) term_scalar(r->combine, type, type, (union kir_cell[3]){p[u], p[u + half]}, &p[u]);
        to[o] = p[0]; /* of f16 and bf16: rounded at the store */
    }
    arena_release(&a);
    return true;
}

bool exact_define(const struct exact_values *v, node_id n)
{
    const struct node *x = graph_node(v->g, n);
    const struct op *op = op_of(v->g, n);
    struct op_reduce r;
    bool is_conv = str_is(x->op, "Conv"), is_matmul = str_is(x->op, "MatMul");
    if (v->arithmetic == KIR_TERMS && op->props & OP_REDUCE && op->reduce(v->g, x, &r) && (r.combine == KI_ADD || r.combine == KI_MUL) &&
        is_plain_float(graph_value(v->g, x->in.v[0])->dtype))
        return ordered_sum(v, x, &r);
    return (is_conv || is_matmul) && has_known_types(v->g, x) && (is_conv ? conv : matmul)(v, x);
}
