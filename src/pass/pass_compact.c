// SPDX-License-Identifier: Apache-2.0
//
// Constant weights of matmuls and convolutions of f32 whose values all fit 16 bits are stored so: exporters write weights of f16 or bf16 with a Cast to
// f32, which constant folding evaluates, and checkpoints in bf16 are often exported in f32. Nothing is rounded. Kernels for processors convert what they
// load, so that weights take half the memory, and matmuls of few rows, which wait for them, half the time. For graphs after all other passes.
#include "pass/pass.h"

#include <string.h>

enum { WEIGHT = 1, MIN_ELEMENTS = 1 << 14 /* fewer stay in a cache */ };

static bool fits(const struct tensor *w, enum dtype t)
{
    u16 half;
    for (i64 i = 0, n = tensor_count(w); i < n; i++) {
        float x = ((const float *)w->data)[i];
        elem_set_f64(t, &half, 0, x);
        if (elem_f64(t, &half, 0) != x) return false; /* nor does NaN, whose bits would not be the same */
    }
    return true;
}

/* Those of f16 or bf16 that w was made of; NULL: it was not, something has changed it since (a sign of zero, too), or one is NaN. */
static struct tensor *source_of(const struct tensor *w)
{
    enum { MANY = 4096 };
    const struct tensor *s = w->narrow;
    const float *now = w->data;
    float row[MANY];
    if (!s || s->rank != w->rank || memcmp(s->dim, w->dim, sizeof w->dim[0] * w->rank) != 0) return NULL;
    for (i64 i = 0, n = tensor_count(w); i < n; i += MANY) {
        i64 some = i64_min(MANY, n - i);
        bool is_nan = false;
        halves_to_f32(s->dtype, (const u16 *)s->data + i, some, row);
        for (i64 k = 0; k < some; k++) is_nan |= row[k] != row[k];
        if (is_nan || memcmp(row, now + i, (size_t)some * sizeof *row) != 0) return NULL;
    }
    return w->narrow;
}

/* The weights in 16 bits; NULL: they do not fit, or memory ends, which e says. bf16 if there is a choice: its conversion is shorter, and subnormal numbers, of
   which small f16 are, take some processors longer. What they were converted from serves as it is. */
static struct tensor *compact(const struct value *x, struct arena *a, struct err *e)
{
    const struct tensor *w = x->data;
    struct tensor *s = source_of(w);
    if (s && s->dtype == DT_BF16) return s;
    enum dtype t = fits(w, DT_BF16) ? DT_BF16 : s || fits(w, DT_F16) ? DT_F16 : DT_NONE;
    if (s && t == DT_F16) return s;
    struct tensor *to = t == DT_NONE ? NULL : tensor_try(a, t, w->rank, w->dim, e, "weights ", x->name);
    for (i64 i = 0, n = to ? tensor_count(to) : 0; i < n; i++) elem_set_f64(t, to->data, i, ((const float *)w->data)[i]);
    return to;
}

static bool is_weight(const struct graph *g, node_id n)
{
    const struct node *x = graph_node(g, n);
    if (x->dead || !(op_of(g, n)->props & (OP_MATMUL | OP_CONV | OP_TRANSPOSED)) || x->in.n <= WEIGHT || !x->in.v[WEIGHT]) return false;
    const struct value *v = graph_value(g, x->in.v[WEIGHT]);
    return v->data && v->dtype == DT_F32 && op_in_dtype(g, x, 0) == DT_F32 && tensor_count(v->data) >= MIN_ELEMENTS;
}

bool pass_compact(struct graph *g, bool *changed, struct err *e)
{
    struct arena a = {0};
    u32 n_values = g->value.n;
    value_id *stored = arena_array(&a, value_id, n_values); /* per constant that was looked at: its new form, or itself */
    bool ok = true;
    *changed = false;
    for (node_id n = 1; n < g->node.n && ok; n++) {
        if (!is_weight(g, n)) continue;
        value_id v = graph_node(g, n)->in.v[WEIGHT];
        if (!stored[v]) {
            const struct value x = *graph_value(g, v);
            struct tensor *to = compact(&x, g->arena, e);
            stored[v] = to ? graph_add_const(g, x.name, to) : v;
            ok = !e->code;
        }
        *changed |= stored[v] != v;
        graph_node(g, n)->in.v[WEIGHT] = stored[v];
    }
    arena_release(&a);
    return ok;
}
