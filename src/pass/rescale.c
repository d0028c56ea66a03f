// SPDX-License-Identifier: Apache-2.0
//
// rescale: folds the constant factors behind an integer sum into one, and drops what a quantiser's clamp does anyway. For devices that multiply integers.
// requires: expanded, inferred. ensures: new nodes are inferred. x is an i32 cast to f32; a, b, c are constants, c a positive number in the last but one:
//
//   (x * a) * c        x * (a * c)
//   (x * a + b) * c    x * (a * c) + b * c
//   Clip(y, l, h) * c  Clip(y * c, l * c, h * c), Relu likewise
//   Clip(y, l, h) clamped to integers within round(l) .. round(h) and rounded: without the Clip
//
// Each rule applies where nothing else reads the values in between. The results differ from the original ones by roundings of f32, as those of kernels may.
#include "pass/pass_linear.h"
#include "pass/pass_match.h"

#include <math.h>

struct scaler {
    struct graph *g;
    struct matcher m;
    struct err *e;
    bool *ok;
};

/* Which input of the binary node n is a constant of f32; the other one is not. -1: none. */
static i32 const_side(const struct scaler *s, node_id n)
{
    const struct node *x = graph_node(s->g, n);
    for (u32 k = 0; k < 2; k++) {
        const struct value *c = graph_value(s->g, x->in.v[k]);
        if (c->data && c->dtype == DT_F32 && !graph_value(s->g, x->in.v[1 - k])->is_const) return (i32)k;
    }
    return -1;
}

static value_id input(const struct scaler *s, node_id n, i32 k) { return graph_node(s->g, n)->in.v[k]; }

/* Whether v is an integer sum in f32. */
static bool is_sum(const struct scaler *s, value_id v)
{
    node_id n = graph_value(s->g, v)->producer;
    return n && str_is(graph_node(s->g, n)->op, "Cast") && graph_value(s->g, input(s, n, 0))->dtype == DT_I32 && graph_value(s->g, v)->dtype == DT_F32;
}

/* Of v = x * a with a sum x: the node; 0: it is none. */
static node_id scaled_sum(const struct scaler *s, value_id v)
{
    node_id n = match_only(&s->m, v, "Mul");
    i32 k = n ? const_side(s, n) : -1;
    return k >= 0 && is_sum(s, input(s, n, 1 - k)) ? n : 0;
}

static value_id node2(struct scaler *s, node_id like, const char *op, value_id a, value_id b, value_id out)
{
    value_id v = op_node2(s->g, like, op, a, b, out);
    *s->ok = *s->ok && op_infer(s->g, op_made(s->g, v), s->e);
    return v;
}

/* A value within constant bounds. */
struct bounds {
    node_id node; /* Relu or Clip, whose result nothing else reads */
    double least, most;
};

static bool find_bounds(const struct scaler *s, value_id v, struct bounds *b)
{
    *b = (struct bounds){.node = match_only(&s->m, v, "Relu"), .least = 0, .most = INFINITY};
    if (b->node) return true;
    if (!(b->node = match_only(&s->m, v, "Clip"))) return false;
    const struct node *x = graph_node(s->g, b->node);
    b->least = attr_float(x, "min", -INFINITY), b->most = attr_float(x, "max", INFINITY);
    return (!op_has_in(x, 1) || linear_number(s->g, x->in.v[1], &b->least)) && (!op_has_in(x, 2) || linear_number(s->g, x->in.v[2], &b->most));
}

/* n: y * c, y within bounds behind scaled sums. */
static bool fold_into_bounds(struct scaler *s, node_id n, value_id c, value_id y, value_id out)
{
    struct bounds b;
    double number;
    if (!linear_number(s->g, c, &number) || !(number > 0) || !find_bounds(s, y, &b)) return false;
    value_id x = input(s, b.node, 0), in[3] = {0};
    if (!match_only(&s->m, x, "Add") && !scaled_sum(s, x)) return false;
    in[0] = node2(s, n, "Mul", x, c, 0);
    bool is_relu = str_is(graph_node(s->g, b.node)->op, "Relu");
    if (!is_relu) in[1] = op_const_f(s->g, DT_F32, b.least * number), in[2] = op_const_f(s->g, DT_F32, b.most * number);
    graph_node(s->g, n)->dead = true;
    value_id v = op_node(s->g, b.node, is_relu ? "Relu" : "Clip", is_relu ? 1 : 3, in, out);
    *s->ok = *s->ok && op_infer(s->g, op_made(s->g, v), s->e);
    return true;
}

/* n: Mul of a value and a constant. */
static bool fold_factor(struct scaler *s, node_id n)
{
    i32 k = const_side(s, n);
    if (k < 0) return false;
    value_id c = input(s, n, k), y = input(s, n, 1 - k), out = graph_node(s->g, n)->out.v[0];
    node_id sum = match_only(&s->m, y, "Add"), mul = scaled_sum(s, y);
    if (mul) {
        i32 m = const_side(s, mul);
        value_id x = input(s, mul, 1 - m), a = node2(s, n, "Mul", input(s, mul, m), c, 0);
        graph_node(s->g, n)->dead = true;
        node2(s, n, "Mul", x, a, out);
        return true;
    }
    i32 b = sum ? const_side(s, sum) : -1;
    if (b >= 0 && (mul = scaled_sum(s, input(s, sum, 1 - b)))) {
        i32 m = const_side(s, mul);
        value_id x = input(s, mul, 1 - m), a = node2(s, n, "Mul", input(s, mul, m), c, 0), offset = node2(s, n, "Mul", input(s, sum, b), c, 0);
        graph_node(s->g, n)->dead = true;
        node2(s, n, "Add", node2(s, n, "Mul", x, a, 0), offset, out);
        return true;
    }
    return fold_into_bounds(s, n, c, y, out);
}

/* n: Round, the end of a quantisation. */
static bool drop_bounds(struct scaler *s, node_id n)
{
    struct bounds b;
    double least, most;
    node_id min = match_only(&s->m, input(s, n, 0), "quern::Min");
    i32 k = min ? const_side(s, min) : -1;
    if (k < 0 || !linear_number(s->g, input(s, min, k), &most) || most != rint(most)) return false;
    node_id max = match_only(&s->m, input(s, min, 1 - k), "quern::Max");
    if (!max || (k = const_side(s, max)) < 0 || !linear_number(s->g, input(s, max, k), &least) || least != rint(least)) return false;
    if (!find_bounds(s, input(s, max, 1 - k), &b) || rint(b.least) > least || rint(b.most) < most) return false;
    graph_node(s->g, max)->in.v[1 - k] = input(s, b.node, 0);
    return true;
}

static bool run(struct graph *g, bool *ok, struct err *e)
{
    struct arena a = {0};
    struct scaler s = {.g = g, .m = matcher_of(g, &a), .e = e, .ok = ok};
    bool changed = false;
    for (node_id n = 1, end = g->node.n; n < end && *ok; n++) {
        const struct node *x = graph_node(g, n);
        if (x->dead || x->out.n != 1) continue;
        bool is_new = false; /* reads what this run made: next time */
        for (u32 k = 0; k < x->in.n; k++) is_new |= x->in.v[k] >= s.m.n_values;
        if (is_new) continue;
        if (str_is(x->op, "Mul") && x->in.n == 2) changed |= fold_factor(&s, n);
        else if (str_is(x->op, "Round")) changed |= drop_bounds(&s, n);
    }
    arena_release(&a);
    return changed;
}

const struct pass pass_rescale = {
    .version = 2,
    .name = "rescale",
    .summary = "folds the constant factors behind integer sums",
    .when = PASS_INTEGER,
    .rank = 142,
    .run = run,
};
