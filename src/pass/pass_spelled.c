// SPDX-License-Identifier: Apache-2.0
//
// pass_spelled: weights in few bits as exporters of AWQ and GPTQ spell them: fields of words by shifts and masks, Cast, Sub of zero points, Mul by scales,
// each broadcast or gathered in some way, then Reshape and Transpose. Floats of 4 and 8 bits likewise: Cast of them, or Gather of a table that has their
// values, and Mul. There may be no scales, where products are scaled. Whatever the shapes are, codes, zero points and scales of every element follow by
// moving each of them as the product is moved; blocks are the longest pieces of columns with one scale and zero point.
#include "pass/pass_codes.h"
#include "pass/pass_match.h"

#include <math.h>

enum { MAX_VIEWS = 6 };

struct spelled {
    value_id codes, zeros, scales; /* zeros, scales 0: none; as the product's operands have them */
    node_id views[MAX_VIEWS];      /* from the product on, in reverse order */
    u32 n_views;
    value_id product;
};

static bool is_view(const struct graph *g, node_id n)
{
    static const char *const ops[] = {"Reshape", "Transpose", "Identity", "Flatten", "Squeeze", "Unsqueeze"};
    for (u32 i = 0; i < countof(ops); i++)
        if (str_is(graph_node(g, n)->op, ops[i])) return true;
    return false;
}

/* An integer, perhaps as a float. */
static bool is_integer(const struct graph *g, value_id v)
{
    node_id cast = match_any(g, v, "Cast");
    return dtype_is_int(graph_value(g, v)->dtype) || (cast && dtype_is_int(op_in_dtype(g, graph_node(g, cast), 0)));
}

/* One of few numbers: a float of few bits, or an element of a short table. */
static bool is_one_of_few(struct graph *g, value_id v)
{
    node_id cast = match_any(g, v, "Cast"), gather = match_any(g, v, "Gather");
    const struct value *table = gather ? graph_value(g, graph_node(g, gather)->in.v[0]) : NULL;
    if (table) return table->data && tensor_count(table->data) <= UINT8_MAX + 1;
    enum dtype t = cast ? op_in_dtype(g, graph_node(g, cast), 0) : DT_F32;
    return dtype_is_small(t) && dtype_is_float(t);
}

/* v is codes, or codes less zero points, in either order with a conversion to floats. */
static bool find_difference(struct graph *g, value_id v, struct spelled *s)
{
    node_id cast = match_any(g, v, "Cast");
    value_id inside = cast ? graph_node(g, cast)->in.v[0] : v;
    node_id sub = match_any(g, inside, "Sub");
    if (!sub) return s->codes = v, is_integer(g, v) || is_one_of_few(g, v);
    s->codes = graph_node(g, sub)->in.v[0], s->zeros = graph_node(g, sub)->in.v[1];
    return is_integer(g, s->codes);
}

static bool find(struct graph *g, value_id v, struct spelled *s)
{
    *s = (struct spelled){0};
    enum dtype t = graph_value(g, v)->dtype;
    for (node_id n = graph_value(g, v)->producer; n && is_view(g, n); n = graph_value(g, v)->producer) {
        if (s->n_views == MAX_VIEWS) return false;
        s->views[s->n_views++] = n;
        v = graph_node(g, n)->in.v[0];
    }
    node_id mul = match_any(g, v, "Mul");
    s->product = v;
    if (graph_value(g, v)->dtype != t) return false;
    if (!mul) return find_difference(g, v, s);
    const struct node *n = graph_node(g, mul);
    for (u32 k = 0; k < 2; k++) {
        s->zeros = 0, s->scales = n->in.v[1 - k];
        if (find_difference(g, n->in.v[k], s)) return true;
    }
    return false;
}

/* Content of an operand, broadcast and moved as the product is; NULL: unknown. The nodes for that are removed again. */
static const struct tensor *moved(struct graph *g, const struct spelled *s, value_id v, struct arena *a)
{
    const struct shape to = graph_value(g, s->product)->shape;
    node_id first = g->node.n;
    struct err none = {0};
    v = op_node_expand(g, 0, v, to.rank, to.dim, 0);
    for (u32 i = s->n_views; i-- > 0;) {
        const struct node view = *graph_node(g, s->views[i]);
        value_id in[MAX_RANK];
        for (u32 k = 0; k < view.in.n && k < MAX_RANK; k++) in[k] = k ? view.in.v[k] : v;
        v = op_node_same(g, s->views[i], view.op.p, view.in.n, in, NULL, 0);
    }
    const struct tensor *t = op_infer_from(g, first, &none) ? codes_content(g, v, a) : NULL;
    for (node_id n = first; n < g->node.n; n++) graph_node(g, n)->dead = true;
    return t;
}

struct elements { /* of the operand as it is stored */
    const struct tensor *codes, *zeros, *scales;
    bool is_transposed;
    i64 terms, columns;
};

static i64 at(const struct elements *x, i64 term, i64 column) { return x->is_transposed ? column * x->terms + term : term * x->columns + column; }
static double number(const struct tensor *t, i64 i) { return t ? elem_f64(t->dtype, t->data, i) : 0; }
static double scale_of(const struct elements *x, i64 i) { return x->scales ? number(x->scales, i) : 1; }

/* The largest blocks in which every column has one scale and one zero point: the greatest common divisor of where others begin. 0: kernels read none. */
static i64 find_block(const struct elements *x)
{
    i64 block = 0;
    for (i64 n = 0; n < x->columns; n++)
        for (i64 k = 1; k < x->terms; k++) {
            i64 i = at(x, k, n), before = at(x, k - 1, n), a = k, b = block;
            if (scale_of(x, i) == scale_of(x, before) && number(x->zeros, i) == number(x->zeros, before)) continue;
            while (b) { i64 rest = a % b; a = b, b = rest; }
            block = a;
        }
    return codes_block(block ? block : x->terms, x->terms);
}

/* The least float that all codes are, without zero points; false: there is none. */
static bool find_float(const struct elements *x, enum dtype *type)
{
    static const enum dtype types[] = {DT_F4E2M1, DT_F8E4M3FN, DT_F8E5M2};
    for (u32 k = 0; k < countof(types); k++) {
        i64 i = 0, n = x->terms * x->columns;
        for (u8 code; i < n && number(x->zeros, i) == 0; i++) {
            elem_set_f64(types[k], &code, 0, number(x->codes, i));
            if (elem_f64(types[k], &code, 0) != number(x->codes, i)) break; /* a NaN, too */
        }
        if (i == n) return *type = types[k], true;
    }
    return false;
}

/* The least type that holds all codes and zero points, and what is added to them; false: there is none. */
static bool find_integer(const struct elements *x, enum dtype *type, i64 *shift)
{
    double low = INFINITY, high = -INFINITY, low_zero = INFINITY, high_zero = -INFINITY;
    for (i64 i = 0; i < x->terms * x->columns; i++) {
        double q = number(x->codes, i), z = number(x->zeros, i);
        if (q != rint(q) || z != rint(z)) return false;
        low = fmin(low, q), high = fmax(high, q), low_zero = fmin(low_zero, z), high_zero = fmax(high_zero, z);
    }
    static const struct { enum dtype type; i64 n; } types[] = {{DT_U2, 4}, {DT_U4, 16}, {DT_U8, 256}};
    for (u32 i = 0; i < 2 * countof(types); i++) { /* unsigned before signed */
        i64 n = types[i / 2].n, by = i % 2 ? n / 2 : 0;
        if (low + (double)by < 0 || high + (double)by >= (double)n || low_zero + (double)by < 0 || high_zero + (double)by > UINT8_MAX) continue;
        return *type = types[i / 2].type, *shift = by, true;
    }
    return false;
}

static bool find_type(const struct elements *x, enum dtype *type, i64 *shift)
{
    *shift = 0;
    for (i64 i = 0; i < x->terms * x->columns; i++)
        if (!isfinite(scale_of(x, i))) return false;
    return find_integer(x, type, shift) || find_float(x, type);
}

static void fill(struct codes *c, const struct elements *x, i64 shift)
{
    for (i64 k = 0; k < c->terms; k++)
        for (i64 n = 0; n < c->columns; n++)
            elem_set_f64(c->q->dtype, c->q->data, k * c->columns + n, number(x->codes, at(x, k, n)) + (double)shift);
    for (i64 b = 0; b < c->blocks; b++)
        for (i64 n = 0; n < c->columns; n++) {
            i64 from = at(x, b * c->block, n), to = b * c->columns + n;
            ((float *)c->scale->data)[to] = (float)scale_of(x, from);
            ((u8 *)c->zero->data)[to] = (u8)((i64)number(x->zeros, from) + shift);
        }
}

bool codes_spelled(struct graph *g, value_id v, bool is_transposed, struct codes *c, bool *ok, struct err *e)
{
    struct arena a = {0};
    struct spelled s;
    i64 dim[MAX_RANK], shift, block;
    enum dtype type;
    const struct value *w = graph_value(g, v);
    if (w->data || !codes_stand_for(w->dtype) || w->shape.rank != 2 || !shape_is_static(g->sym, &w->shape, dim)) return false;
    if (dim[0] * dim[1] < CODES_MIN_ELEMENTS || !find(g, v, &s)) return false;
    struct elements x = {.is_transposed = is_transposed, .terms = dim[is_transposed], .columns = dim[!is_transposed]};
    *c = (struct codes){.to = w->dtype};
    x.codes = moved(g, &s, s.codes, &a);
    if (x.codes && s.scales) x.scales = moved(g, &s, s.scales, &a);
    if (x.codes && s.zeros) x.zeros = moved(g, &s, s.zeros, &a);
    bool found = x.codes && (x.scales || !s.scales) && (x.zeros || !s.zeros) && (block = find_block(&x)) && find_type(&x, &type, &shift);
    if (found) *ok = codes_alloc(c, g, type, x.terms, x.columns, block, e);
    if (found && *ok) fill(c, &x, shift);
    arena_release(&a);
    return found;
}
