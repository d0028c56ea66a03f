// SPDX-License-Identifier: Apache-2.0
//
// pass_codes: constant weights in few bits as a node of the graph, whoever wrote them in whichever form.
#include "pass/pass_codes.h"

enum { MOST_BLOCK = 256, UNIT = 16 /* terms that blocks have multiples of */, MAX_ANCESTORS = 40 };

/* Constants. */

/* Adds the nodes that v is computed from by constants alone, in order; false: there are others, or too many. */
static bool add_ancestors(const struct graph *g, value_id v, node_id *list, u32 *n)
{
    const struct value *x = graph_value(g, v);
    if (x->data) return true;
    if (!x->producer || *n == MAX_ANCESTORS) return false;
    for (u32 i = 0; i < *n; i++)
        if (list[i] == x->producer) return true;
    const struct node *nd = graph_node(g, x->producer);
    if (op_of(g, x->producer)->props & OP_CALL) return false;
    for (u32 k = 0; k < nd->in.n; k++)
        if (nd->in.v[k] && !add_ancestors(g, nd->in.v[k], list, n)) return false;
    if (*n == MAX_ANCESTORS) return false;
    list[(*n)++] = x->producer;
    return true;
}

const struct tensor *codes_content(struct graph *g, value_id v, struct arena *a)
{
    node_id list[MAX_ANCESTORS];
    u32 n = 0;
    struct err none = {0};
    struct graph one;
    struct tensor *result = NULL;
    if (!v || graph_value(g, v)->data) return v ? graph_value(g, v)->data : NULL;
    if (!add_ancestors(g, v, list, &n)) return NULL;
    graph_extract(&one, g, a, list, n, &v, 1, NULL);
    return graph_eval(&one, NULL, &result, a, NULL, &none) ? result : NULL;
}

i64 codes_block(i64 block, i64 terms)
{
    if (block >= terms) return terms > MOST_BLOCK ? MOST_BLOCK : round_up(terms, UNIT);
    if (block % UNIT) return 0;
    for (i64 b = MOST_BLOCK; b > UNIT && block > MOST_BLOCK; b -= UNIT)
        if (block % b == 0) return b;
    return block > MOST_BLOCK ? UNIT : block;
}

bool codes_alloc(struct codes *c, struct graph *g, enum dtype type, i64 terms, i64 columns, i64 block, struct err *e)
{
    c->terms = terms, c->columns = columns, c->block = codes_block(block, terms);
    c->blocks = ceil_div(terms, c->block);
    c->q = tensor_try(g->arena, type, 2, (i64[]){terms, columns}, e, "weights in few bits", S(""));
    if (c->q) c->scale = tensor_try(g->arena, DT_F32, 2, (i64[]){c->blocks, columns}, e, "scales of weights", S(""));
    if (c->scale) c->zero = tensor_try(g->arena, DT_U8, 2, (i64[]){c->blocks, columns}, e, "zero points of weights", S(""));
    return c->zero != NULL;
}

/* One zero point for all is an attribute. */
static void simplify_zeros(struct codes *c)
{
    const u8 *z = c->zero->data;
    for (i64 i = 1; i < tensor_count(c->zero); i++)
        if (z[i] != z[0]) return;
    c->offset = z[0], c->zero = NULL;
    if (c->q->dtype != DT_U8 || c->offset != 128) return;
    c->q->dtype = DT_I8, c->offset = 0; /* need no subtraction */
    for (i64 i = 0; i < tensor_count(c->q); i++) ((u8 *)c->q->data)[i] ^= 128;
}

/* In 16 bits, if nothing is rounded. */
static struct tensor *compact(struct tensor *s, struct graph *g, struct err *e)
{
    static const enum dtype types[] = {DT_F16, DT_BF16};
    for (i64 k = 0; k < countof(types); k++) {
        u16 half;
        i64 n = tensor_count(s), i = 0;
        for (; i < n; i++) {
            elem_set_f64(types[k], &half, 0, (double)((const float *)s->data)[i]);
            if (elem_f64(types[k], &half, 0) != (double)((const float *)s->data)[i]) break;
        }
        if (i < n) continue;
        struct tensor *to = tensor_try(g->arena, types[k], s->rank, s->dim, e, "scales of weights", S(""));
        for (i = 0; to && i < n; i++) elem_set_f64(types[k], to->data, i, (double)((const float *)s->data)[i]);
        return to;
    }
    return s;
}

value_id codes_add(struct graph *g, node_id n, struct codes *c, struct err *e)
{
    enum { ZERO = 2 }; /* input */
    simplify_zeros(c);
    struct tensor *scale = compact(c->scale, g, e);
    if (!scale) return 0;
    value_id in[] = {graph_add_const(g, S("codes"), c->q), graph_add_const(g, S("scales"), scale), 0};
    if (c->zero) in[ZERO] = graph_add_const(g, S("zeros"), c->zero);
    value_id w = op_node(g, n, "quern::Dequantize", c->zero ? 3 : 2, in, 0);
    node_id made = op_made(g, w);
    attr_set_int(g, made, "block", c->block);
    if (c->offset) attr_set_int(g, made, "offset", c->offset);
    if (c->to != DT_F32) attr_set_int(g, made, "to", dtype_onnx(c->to));
    return op_infer(g, made, e) ? w : 0;
}
