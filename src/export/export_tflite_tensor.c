// SPDX-License-Identifier: Apache-2.0
//
// Tensors and operators of the model under construction, whatever they stand for in the network.
#include "export/export_tflite.h"

#include <math.h>
#include <string.h>

struct tfl_tensor *tfl_at(const struct tfl *t, tfl_id x) { return &t->m.tensor.v[x]; }

/* Scales. */

struct tfl_quant tfl_quant_one(struct arena *a, double scale, i64 zero)
{
    float *s = arena_new(a, float);
    i64 *z = arena_new(a, i64);
    *s = (float)scale, *z = zero;
    return (struct tfl_quant){.n = 1, .scale = s, .zero = z};
}

struct tfl_quant tfl_quant_range(struct arena *a, double lo, double hi)
{
    lo = fmin(lo, 0), hi = fmax(hi, 0);
    double scale = fmax((hi - lo) / 255, 1e-12), zero = rint(-128 - lo / scale);
    return tfl_quant_one(a, scale, (i64)fmax(-128, fmin(127, zero)));
}

bool tfl_quant_same(const struct tfl_quant *x, const struct tfl_quant *y)
{
    if (x->n != y->n || (x->n > 1 && x->axis != y->axis)) return false;
    for (u32 k = 0; k < x->n; k++)
        if (x->scale[k] < y->scale[k] || x->scale[k] > y->scale[k] || x->zero[k] != y->zero[k])
            return false;
    return true;
}

/* Tensors. */

tfl_id tfl_new(struct tfl *t, const struct tfl_tensor *x)
{
    if (!t->m.tensor.n) arr_push(t->a, &t->m.tensor);
    *arr_push(t->a, &t->m.tensor) = *x;
    return t->m.tensor.n - 1;
}

i64 tfl_type_size(enum tfl_type type)
{
    switch (type) {
    case TFL_F32:
    case TFL_I32: return 4;
    case TFL_I64: return 8;
    case TFL_F16:
    case TFL_I16: return 2;
    case TFL_U8:
    case TFL_I8:
    case TFL_BOOL: return 1;
    }
    unreachable();
}

tfl_id tfl_constant(struct tfl *t, const char *name, enum tfl_type type, u32 rank, const i64 *dim,
                    const void *data)
{
    struct tfl_tensor x = {.name = str_fmt(t->a, "%s_%u", name, t->m.tensor.n),
                           .type = type,
                           .rank = rank,
                           .data = data};
    for (u32 k = 0; k < rank; k++) x.dim[k] = dim[k];
    x.size = i64_product(rank, dim) * tfl_type_size(type);
    return tfl_new(t, &x);
}

tfl_id tfl_ints(struct tfl *t, const char *name, u32 n, const i64 *v)
{
    i32 *p = arena_array(t->a, i32, n);
    for (u32 k = 0; k < n; k++) p[k] = (i32)v[k];
    return tfl_constant(t, name, TFL_I32, 1, (i64[]){n}, p);
}

tfl_id tfl_int(struct tfl *t, const char *name, i64 v)
{
    i32 *p = arena_new(t->a, i32);
    *p = (i32)v;
    return tfl_constant(t, name, TFL_I32, 0, NULL, p);
}

tfl_id tfl_float(struct tfl *t, double v)
{
    float *p = arena_new(t->a, float);
    *p = (float)v;
    return tfl_constant(t, "number", TFL_F32, 0, NULL, p);
}

tfl_id tfl_like(struct tfl *t, tfl_id x, const char *suffix, u32 rank, const i64 *dim)
{
    struct tfl_tensor y = {.type = tfl_at(t, x)->type, .rank = rank, .q = tfl_at(t, x)->q};
    y.name = str_fmt(t->a, "%.*s_%s_%u", STR_ARG(tfl_at(t, x)->name), suffix, t->m.tensor.n);
    for (u32 k = 0; k < rank; k++) y.dim[k] = dim[k];
    return tfl_new(t, &y);
}

/* Operators. */

struct tfl_operator *tfl_emit(struct tfl *t, enum tfl_code c, tfl_id out, u32 n_in,
                              const tfl_id *in)
{
    struct tfl_operator *o = arr_push(t->a, &t->m.op);
    o->code = c;
    o->node = t->at;
    for (u32 k = 0; k < n_in; k++) *arr_push(t->a, &o->in) = in[k];
    if (out) *arr_push(t->a, &o->out) = out;
    return o;
}

void tfl_options(struct tfl *t, const char *options, const char *fields, ...)
{
    struct tfl_operator *o = &t->m.op.v[t->m.op.n - 1];
    struct buf b = {0};
    va_list ap;
    va_start(ap, fields);
    buf_vprintf(&b, fields, ap);
    va_end(ap);
    o->options = options;
    o->fields = str_dup(t->a, buf_view(&b));
    buf_release(&b);
}

tfl_id tfl_reshape(struct tfl *t, tfl_id x, u32 rank, const i64 *dim, tfl_id out)
{
    struct buf b = {0};
    if (!out) out = tfl_like(t, x, "reshaped", rank, dim);
    tfl_id shape = tfl_ints(t, "shape", rank, dim);
    tfl_emit(t, TFL_RESHAPE, out, 2, (tfl_id[]){x, shape});
    for (u32 k = 0; k < rank; k++) buf_printf(&b, "%s%lld", k ? "," : "", (long long)dim[k]);
    tfl_options(t, "Reshape", "\"shape\":[%.*s]", STR_ARG(buf_view(&b)));
    buf_release(&b);
    return out;
}

/* Whether axes of more than one element keep their order. */
static bool only_moves_ones(const struct tfl_tensor *x, const i64 *perm)
{
    i64 last = -1;
    for (u32 k = 0; k < x->rank; k++) {
        if (x->dim[perm[k]] == 1) continue;
        if (perm[k] < last) return false;
        last = perm[k];
    }
    return true;
}

tfl_id tfl_transpose(struct tfl *t, tfl_id x, const i64 *perm, tfl_id out)
{
    const struct tfl_tensor from = *tfl_at(t, x);
    i64 dim[MAX_RANK];
    for (u32 k = 0; k < from.rank; k++) dim[k] = from.dim[perm[k]];
    if (only_moves_ones(&from, perm)) return tfl_reshape(t, x, from.rank, dim, out);
    if (!out) out = tfl_like(t, x, "transposed", from.rank, dim);
    tfl_id p = tfl_ints(t, "perm", from.rank, perm);
    tfl_emit(t, TFL_TRANSPOSE, out, 2, (tfl_id[]){x, p});
    tfl_options(t, "Transpose", "%s", "");
    return out;
}

tfl_id tfl_pad(struct tfl *t, tfl_id x, const i64 *before, const i64 *after, double value)
{
    const struct tfl_tensor from = *tfl_at(t, x);
    i32 *p = arena_array(t->a, i32, 2 * from.rank);
    i64 dim[MAX_RANK];
    for (u32 k = 0; k < from.rank; k++) {
        dim[k] = from.dim[k] + before[k] + after[k];
        p[2 * k] = (i32)before[k], p[2 * k + 1] = (i32)after[k];
    }
    tfl_id out = tfl_like(t, x, "padded", from.rank, dim),
           pads = tfl_constant(t, "pads", TFL_I32, 2, (i64[]){from.rank, 2}, p);
    if (value == 0) {
        tfl_emit(t, TFL_PAD, out, 2, (tfl_id[]){x, pads});
        tfl_options(t, "Pad", "%s", "");
        return out;
    }
    tfl_id filler = tfl_float(t, value);
    if (from.type == TFL_I8) { /* the nearest number of its scale */
        i8 *q = arena_new(t->a, i8);
        double n = value / (double)from.q.scale[0] + (double)from.q.zero[0];
        *q = (i8)(n < -128 ? -128 : n > 127 ? 127 : __builtin_rint(n));
        filler = tfl_constant(t, "filler", TFL_I8, 0, NULL, q);
        tfl_at(t, filler)->q = from.q;
    }
    tfl_emit(t, TFL_PADV2, out, 3, (tfl_id[]){x, pads, filler});
    tfl_options(t, "PadV2", "%s", "");
    return out;
}

tfl_id tfl_requantize(struct tfl *t, tfl_id x, const struct tfl_quant *q, tfl_id out)
{
    if (!out) {
        const struct tfl_tensor from = *tfl_at(t, x);
        if (from.type == TFL_I8 && tfl_quant_same(&from.q, q)) return x;
        out = tfl_like(t, x, "quantized", from.rank, from.dim);
        tfl_at(t, out)->type = TFL_I8, tfl_at(t, out)->q = *q;
    }
    tfl_emit(t, TFL_QUANTIZE, out, 1, &x);
    tfl_options(t, "Quantize", "%s", "");
    return out;
}

tfl_id tfl_dequantize(struct tfl *t, tfl_id in)
{
    const struct tfl_tensor from = *tfl_at(t, in);
    tfl_id out = tfl_like(t, in, "restored", from.rank, from.dim);
    tfl_at(t, out)->type = TFL_F32, tfl_at(t, out)->q.n = 0;
    tfl_emit(t, TFL_DEQUANTIZE, out, 1, &in);
    tfl_options(t, "Dequantize", "%s", "");
    return out;
}

/* Elements in another order of axes: axis k of the result is perm[k] of x. */
void *tfl_permute(struct arena *a, const void *data, i64 size, u32 rank, const i64 *dim,
                  const i64 *perm, struct err *e)
{
    i64 n = i64_product(rank, dim), step[MAX_RANK], at[MAX_RANK] = {0}, from = 0, own[MAX_RANK],
        s = 1;
    char *out = arena_try(a, n * size, e, "constant");
    for (u32 k = rank; k-- > 0; s *= dim[k]) own[k] = s;
    for (u32 k = 0; k < rank; k++) step[k] = own[perm[k]];
    for (i64 i = 0; i < n && out; i++) {
        memcpy(out + i * size, (const char *)data + from * size, (size_t)size);
        for (u32 k = rank; k-- > 0;) {
            from += step[k];
            if (++at[k] < dim[perm[k]]) break;
            from -= step[k] * at[k], at[k] = 0;
        }
    }
    return out;
}
