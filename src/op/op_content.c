// SPDX-License-Identifier: Apache-2.0
//
// Contents of values that are known now: constants, and symbols.
#include "op/op.h"

#include <math.h>

i64 op_const_ints(const struct graph *g, value_id v, i64 out[], i64 max)
{
    if (!v) return -1;
    const struct value *x = graph_value(g, v);
    if (x->data && dtype_kind(x->data->dtype) != DK_FLOAT) {
        i64 n = tensor_count(x->data);
        if (n > max) return -1;
        for (i64 i = 0; i < n; i++) out[i] = elem_i64(x->data->dtype, x->data->data, i);
        return n;
    }
    if (!x->sdata || x->sdata->den != 1 || x->sdata->n > max) return -1;
    for (i64 i = 0; i < x->sdata->n; i++)
        if (!sym_is_const(g->sym, x->sdata->num[i], &out[i])) return -1;
    return x->sdata->n;
}

bool op_sym_ints(const struct graph *g, value_id v, sym out[], i64 max, i64 *n)
{
    struct sym_data d;
    if (!op_sym_content(g, v, max, &d) || d.den != 1) return false;
    for (i64 i = 0; i < d.n; i++) out[i] = d.num[i];
    *n = d.n;
    return true;
}

/* v as num/den with den a power of two up to 1024 and |v| small enough for float arithmetic to be
 * exact. */
static bool dyadic(double v, i64 den, i64 *num)
{
    double x = v * (double)den;
    if (!(fabs(x) < 16777216.0) || x != floor(x)) return false;
    *num = (i64)x;
    return true;
}

static bool float_content(const struct graph *g, const struct tensor *t, i64 n,
                          struct sym_data *out)
{
    for (i64 den = 1; den <= 1024; den *= 2) {
        i64 i = 0;
        for (i64 num; i < n && dyadic(elem_f64(t->dtype, t->data, i), den, &num); i++)
            out->num[i] = sym_const(g->sym, num);
        out->den = den;
        if (i == n) return true;
    }
    return false;
}

bool op_sym_content(const struct graph *g, value_id v, i64 max, struct sym_data *out)
{
    if (!v) return false;
    const struct value *x = graph_value(g, v);
    if (x->sdata) {
        *out = *x->sdata;
        return out->n <= max;
    }
    const struct tensor *t = x->data;
    i64 n = t ? tensor_count(t) : 0;
    if (!t || n > max) return false;
    *out = (struct sym_data){.n = n, .den = 1, .num = arena_array(g->arena, sym, n + 1)};
    if (dtype_is_float(t->dtype)) return float_content(g, t, n, out);
    for (i64 i = 0; i < n; i++) out->num[i] = sym_const(g->sym, elem_i64(t->dtype, t->data, i));
    return true;
}

void op_set_sdata(struct graph *g, value_id v, const sym *num, i64 n, i64 den)
{
    assert(den > 0);
    for (i64 i = 0; i < n; i++)
        if (!sym_is_defined(g->sym, num[i])) return; /* an overflow: unknown until run time */
    struct sym_data *d = arena_new(g->arena, struct sym_data);
    *d = (struct sym_data){.n = n, .den = den, .num = arena_array(g->arena, sym, n + 1)};
    for (i64 i = 0; i < n; i++) d->num[i] = num[i];
    graph_value(g, v)->sdata = d;
}
