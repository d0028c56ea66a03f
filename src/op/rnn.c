// SPDX-License-Identifier: Apache-2.0
//
// RNN, GRU, LSTM. Composites: the products of all steps' inputs with their weights, for all gates and directions, are one
// matrix product; biases are added to it. The part that depends on the previous step is quern::Recurrence (recurrence.c).
// With layout 1 (batch first) inputs, states and outputs are transposed before and after.
//
//   x (t, b, i)  w (d, g*u, i)  r (d, g*u, u)  b? (d, 2*g*u)  lens? (b)  h0? (d, b, u)   LSTM: c0? (d, b, u)  p? (d, 3*u)
//   y? (t, d, b, u)  y_h? (d, b, u)                                                      LSTM: y_c? (d, b, u)
//
// Dims: t steps, b batch, i inputs, d directions, g gates, u hidden units; layout 1: (b, t, i), (b, d, u), (b, t, d, u).
#include "op/op.h"

enum { IN_X, IN_W, IN_R, IN_B, IN_LENS, IN_H0, IN_C0, IN_P };

struct sizes { sym t, b, i, d, u; bool batch_first; };

static struct sizes sizes_of(const struct graph *g, const struct node *nd, const struct op_cell *c)
{
    const struct shape *x = op_in_shape(g, nd, IN_X);
    bool batch_first = attr_int(nd, "layout", 0);
    return (struct sizes){x->dim[batch_first], x->dim[!batch_first], x->dim[2], sym_const(g->sym, c->n_dirs),
                          sym_const(g->sym, c->hidden), batch_first};
}

static bool input_fits(struct graph *g, node_id n, u32 k, u32 rank, const sym *want, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    if (!op_has_in(nd, k)) return true;
    const struct shape *s = op_in_shape(g, nd, k);
    if (s->rank != rank) return op_invalid(e, g, n, "input %u of rank %u, expected %u", k, s->rank, rank);
    for (u32 i = 0; i < rank; i++) {
        if (op_sizes_agree(g, s->dim[i], want[i])) continue;
        struct buf a = {0}, b = {0};
        sym_print(&a, g->sym, s->dim[i]);
        sym_print(&b, g->sym, want[i]);
        op_invalid(e, g, n, "axis %u of input %u is %.*s, expected %.*s", i, k, STR_ARG(buf_view(&a)), STR_ARG(buf_view(&b)));
        buf_release(&a);
        buf_release(&b);
        return false;
    }
    return true;
}

static bool inputs_fit(struct graph *g, node_id n, const struct op_cell *c, const struct sizes *z, struct err *e)
{
    sym rows = sym_const(g->sym, c->n_gates * c->hidden);
    const sym w[] = {z->d, rows, z->i}, r[] = {z->d, rows, z->u}, b[] = {z->d, sym_const(g->sym, 2 * c->n_gates * c->hidden)},
              p[] = {z->d, sym_const(g->sym, 3 * c->hidden)};
    const sym state[] = {z->batch_first ? z->b : z->d, z->batch_first ? z->d : z->b, z->u};
    return input_fits(g, n, IN_W, 3, w, e) && input_fits(g, n, IN_R, 3, r, e) && input_fits(g, n, IN_B, 2, b, e) &&
           input_fits(g, n, IN_LENS, 1, &z->b, e) && input_fits(g, n, IN_H0, 3, state, e) && input_fits(g, n, IN_C0, 3, state, e) &&
           input_fits(g, n, IN_P, 2, p, e);
}

static bool types_fit(struct graph *g, node_id n, struct err *e)
{
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, IN_X);
    if (!dtype_is_float(t)) return op_invalid(e, g, n, "type %s", dtype_name(t));
    for (u32 k = IN_W; k < nd->in.n; k++) {
        if (!op_has_in(nd, k)) continue;
        enum dtype has = op_in_dtype(g, nd, k);
        if (k == IN_LENS ? !dtype_is_int(has) : has != t) return op_invalid(e, g, n, "input %u of type %s", k, dtype_name(has));
    }
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct op_cell c;
    const struct node *nd = graph_node(g, n);
    enum dtype t = op_in_dtype(g, nd, IN_X);
    if (op_in_shape(g, nd, IN_X)->rank != 3) return op_invalid(e, g, n, "input of rank %u, expected 3", op_in_shape(g, nd, IN_X)->rank);
    if (!op_cell_read(g, n, IN_R, &c, e)) return false;
    struct sizes z = sizes_of(g, graph_node(g, n), &c);
    if (!types_fit(g, n, e) || !inputs_fit(g, n, &c, &z, e)) return false;
    struct shape y = {.rank = 4, .dim = {z.t, z.d, z.b, z.u}}, state = {.rank = 3, .dim = {z.d, z.b, z.u}};
    if (z.batch_first) {
        y = (struct shape){.rank = 4, .dim = {z.b, z.t, z.d, z.u}};
        state.dim[0] = z.b, state.dim[1] = z.d;
    }
    op_set_out(g, n, 0, t, &y);
    for (u32 k = 1; k < 3; k++) op_set_out(g, n, k, t, &state);
    return true;
}

/* Expansion. */

static value_id transposed(struct graph *g, node_id n, value_id v, const i64 *perm, u32 rank, value_id out)
{
    v = op_node1(g, n, "Transpose", v, out);
    attr_set_ints(g, op_made(g, v), "perm", perm, rank);
    return v;
}

static value_id reshaped(struct graph *g, node_id n, value_id v, const i64 *dim, u32 rank)
{
    return op_node2(g, n, "Reshape", v, op_const_i(g, DT_I64, dim, rank), 0);
}

/* Columns from .. to-1 of a matrix. */
static value_id columns(struct graph *g, node_id n, value_id v, i64 from, i64 to)
{
    const i64 axis = 1;
    const value_id in[] = {v, op_const_i(g, DT_I64, &from, 1), op_const_i(g, DT_I64, &to, 1), op_const_i(g, DT_I64, &axis, 1)};
    return op_node(g, n, "Slice", 4, in, 0);
}

static value_id zeros(struct graph *g, enum dtype t, i64 rows, i64 cols)
{
    return graph_add_const(g, S("zeros"), tensor_new(g->arena, t, 2, (i64[]){rows, cols}));
}

/* The bias of the projected inputs, (d*g*u): both biases, except that of the recurrent matmul that
   r multiplies. */
static value_id bias_of(struct graph *g, node_id n, const struct op_cell *c, value_id *apart)
{
    value_id b = graph_node(g, n)->in.v[IN_B];
    enum dtype t = op_in_dtype(g, graph_node(g, n), IN_X);
    i64 all = c->n_gates * c->hidden, added = c->linear_before_reset ? 2 * c->hidden : all;
    value_id inputs = columns(g, n, b, 0, all), recurrent = columns(g, n, b, all, all + added);
    if (c->linear_before_reset) {
        *apart = columns(g, n, b, all + added, 2 * all);
        recurrent = op_node2(g, n, "Concat", recurrent, zeros(g, t, c->n_dirs, c->hidden), 0);
        attr_set_int(g, op_made(g, recurrent), "axis", 1);
    }
    i64 count = c->n_dirs * all;
    return reshaped(g, n, op_node2(g, n, "Add", inputs, recurrent, 0), &count, 1);
}

static value_id projected(struct graph *g, node_id n, const struct op_cell *c, value_id x, value_id *apart)
{
    static const i64 turn[] = {1, 0};
    const struct node *nd = graph_node(g, n);
    bool has_bias = op_has_in(nd, IN_B);
    value_id w = reshaped(g, n, nd->in.v[IN_W], (i64[]){c->n_dirs * c->n_gates * c->hidden, -1}, 2);
    value_id p = op_node2(g, n, "MatMul", x, transposed(g, n, w, turn, 2, 0), 0);
    return has_bias ? op_node2(g, n, "Add", p, bias_of(g, n, c, apart), 0) : p;
}

/* All sequences are known to be as long as there are steps. */
static bool lengths_are_full(const struct graph *g, value_id lens, sym steps)
{
    i64 t, n;
    const struct tensor *x = graph_value(g, lens)->data;
    if (!x || !sym_is_const(g->sym, steps, &t)) return false;
    n = tensor_count(x);
    for (i64 i = 0; i < n; i++)
        if (elem_i64(x->dtype, x->data, i) != t) return false;
    return true;
}

static value_id state_of(struct graph *g, node_id n, u32 k, bool batch_first)
{
    static const i64 swap[] = {1, 0, 2};
    if (!op_has_in(graph_node(g, n), k)) return 0;
    value_id v = graph_node(g, n)->in.v[k];
    return batch_first ? transposed(g, n, v, swap, 3, 0) : v;
}

/* The node's outputs, of the recurrence or transposed after it. */
static void deliver(struct graph *g, node_id n, node_id to, bool batch_first)
{
    static const i64 sequence[] = {2, 0, 1, 3}, state[] = {1, 0, 2};
    for (u32 k = 0; k < graph_node(g, n)->out.n; k++) {
        value_id out = graph_node(g, n)->out.v[k];
        if (!out || !batch_first) {
            node_set_out(g, to, k, out);
            continue;
        }
        value_id v = graph_add_value(g, S("steps_first"));
        node_set_out(g, to, k, v);
        transposed(g, n, v, k ? state : sequence, k ? 3 : 4, out);
    }
}

static bool expand(struct graph *g, node_id n, struct err *e)
{
    static const i64 swap[] = {1, 0, 2};
    struct op_cell c;
    if (!op_cell_read(g, n, IN_R, &c, e)) return false;
    struct sizes z = sizes_of(g, graph_node(g, n), &c);
    value_id x = graph_node(g, n)->in.v[IN_X], in[7] = {0};
    if (z.batch_first) x = transposed(g, n, x, swap, 3, 0);
    in[0] = projected(g, n, &c, x, &in[6]);
    in[1] = graph_node(g, n)->in.v[IN_R];
    if (op_has_in(graph_node(g, n), IN_LENS) && !lengths_are_full(g, graph_node(g, n)->in.v[IN_LENS], z.t))
        in[2] = graph_node(g, n)->in.v[IN_LENS];
    for (u32 k = IN_H0; k <= IN_C0; k++) in[k - IN_H0 + 3] = state_of(g, n, k, z.batch_first);
    if (op_has_in(graph_node(g, n), IN_P)) in[5] = graph_node(g, n)->in.v[IN_P];
    u32 n_in = 7;
    while (!in[n_in - 1]) n_in--;
    node_id to = graph_add_node(g, S("quern::Recurrence"), graph_node(g, n)->name);
    for (u32 k = 0; k < n_in; k++) node_add_in(g, to, in[k]);
    for (u32 i = 0; i < graph_node(g, n)->attr.n; i++) {
        const struct attr a = graph_node(g, n)->attr.v[i];
        if (!str_is(a.name, "layout") && !str_is(a.name, "output_sequence")) attr_copy(g, to, &a);
    }
    attr_set_str(g, to, "cell", graph_node(g, n)->op);
    deliver(g, n, to, z.batch_first);
    return true;
}

static void random_layer(const struct op *self, struct graph *g, struct rng *r) { op_cell_random(self, g, r, false); }

/* Nothing in the operators changed but `layout`, which opset 14 added. */
#define LAYER(NAME, MAX_IN, MAX_OUT) \
    {.name = NAME, .min_in = 3, .max_in = MAX_IN, .min_out = 1, .max_out = MAX_OUT, .infer = infer, .expand = expand, .random = random_layer}

static const struct op ops[] = {LAYER("RNN", 6, 2), LAYER("GRU", 6, 2), LAYER("LSTM", 8, 3)};

const struct op_family op_rnn = {ops, countof(ops)};
