// SPDX-License-Identifier: Apache-2.0
//
// The contractions of a network, as it was imported: matrix products, convolutions, transposed ones, their gradients, and those that
// larger operators consist of (Gemm, Attention, LSTM, Einsum ...), for given sizes. Equal ones are counted. Bodies of loops and branches
// are not entered: how often they run is not known.
//
// The products of an attention are recognised by what is between them (task/attention.c), not by an operator. So chains of exporters and
// operators for attention look alike.
#include "model/model.h"

#include "op/op.h"
#include "task/task.h"

struct collection {
    struct model_expanded x;
    struct arena *a;
    const char **role;     /* per node */
    struct map seen;       /* operator, role, type, sizes -> number of the entry */
    struct model_contraction_list *out;
};

static bool is_contraction(const struct op *op)
{
    return op->props & (OP_MATMUL | OP_CONV | OP_TRANSPOSED | OP_CONV_GRAD);
}

static void find_roles(struct collection *c)
{
    struct attention_pairs all;
    c->role = arena_array(c->a, const char *, c->x.g.node.n + 1);
    task_attentions(&all, &c->x.g, c->a);
    for (u32 i = 0; i < all.n; i++) c->role[all.v[i].scores] = "scores", c->role[all.v[i].values] = "values";
}

/* Sizes. */

/* Sizes of one operand for all of a batch belong to the rows: (b, m, k) x (k, n) is (b m, k) x (k, n). At most four others remain. */
static void set_batch(struct model_contraction *x, const i64 *batch, u32 n)
{
    bool is_shared = true;
    for (u32 i = 0; i + 2 < x->rank[1]; i++) is_shared &= x->dim[1][i] == 1;
    for (u32 i = 0; i < n; i++) {
        if (is_shared) x->m *= batch[i];
        else if (batch[i] == 1) continue;
        else if (x->n_batch == MODEL_MAX_BATCH) x->batch[x->n_batch - 1] *= batch[i];
        else x->batch[x->n_batch++] = batch[i];
    }
}

/* Operands that are vectors count as matrices of one row, one column. */
static void set_matmul(struct model_contraction *x, const i64 *y, u32 ry)
{
    const i64 *a = x->dim[0], *b = x->dim[1];
    u32 ra = x->rank[0], rb = x->rank[1];
    x->k = a[ra - 1];
    x->m = ra > 1 ? a[ra - 2] : 1;
    x->n = rb > 1 ? b[rb - 1] : 1;
    set_batch(x, y, ry - (ra > 1) - (rb > 1));
}

static void print_dims(struct buf *b, const i64 *dim, u32 rank)
{
    for (u32 i = 0; i < rank; i++) buf_printf(b, "%s%lld", i ? "x" : "", (long long)dim[i]);
}

/* "12x1024x64 * 12x64x1024"; of convolutions with strides and groups if there are any: "/2", " g32" */
static struct str shape_text(const struct collection *c, const struct model_contraction *x, const struct node *nd)
{
    struct buf b = {0};
    const i64 *stride;
    i64 n = attr_ints(nd, "strides", &stride), groups = attr_int(nd, "group", 1);
    print_dims(&b, x->dim[0], x->rank[0]);
    buf_z(&b, " * ");
    print_dims(&b, x->dim[1], x->rank[1]);
    bool equal = true, one = true;
    for (i64 i = 0; i < n; i++) equal &= stride[i] == stride[0], one &= stride[i] == 1;
    for (i64 i = 0; i < n && !one && (i == 0 || !equal); i++) buf_printf(&b, "%s%lld", i ? "x" : " /", (long long)stride[i]);
    if (groups != 1) buf_printf(&b, " g%lld", (long long)groups);
    struct str s = str_dup(c->a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* false: a size is not known. */
static bool describe(const struct collection *c, node_id n, struct model_contraction *x)
{
    const struct graph *g = &c->x.g;
    const struct node *nd = graph_node(g, n), *from = graph_node(&c->x.m->graph, model_origin(&c->x, n));
    i64 y[MAX_RANK];
    *x = (struct model_contraction){.op = from->op, .node = from->name, .role = c->role[n] ? c->role[n] : "", .count = 1};
    for (u32 k = 0; k < 2; k++) {
        const struct shape *s = op_in_shape(g, nd, k);
        if (!shape_eval(g->sym, s, c->x.var, x->dim[k])) return false;
        x->rank[k] = s->rank;
    }
    const struct shape *s = &graph_value(g, nd->out.v[0])->shape;
    if (!shape_eval(g->sym, s, c->x.var, y)) return false;
    x->type = op_in_dtype(g, nd, 0);
    x->flops = op_flops(g, n, c->x.var);
    if (op_of(g, n)->props & OP_MATMUL) set_matmul(x, y, s->rank);
    x->shape = shape_text(c, x, nd);
    return true;
}

static void add(struct collection *c, const struct model_contraction *x)
{
    struct str key = str_fmt(c->a, "%.*s %s %s %.*s", STR_ARG(x->op), x->role, dtype_name(x->type), STR_ARG(x->shape));
    u64 *known = map_get(&c->seen, key);
    if (known) {
        c->out->v[*known].count++;
        return;
    }
    map_put(&c->seen, key, c->out->n);
    *arr_push(c->a, c->out) = *x;
}

bool model_contractions(struct model_contraction_list *out, struct model *m, const char *sizes, struct arena *a, struct err *e)
{
    struct collection c = {.a = a, .out = out};
    *out = (struct model_contraction_list){0};
    map_init(&c.seen, a);
    if (!model_expand(&c.x, m, sizes, a, e)) return false;
    find_roles(&c);
    for (node_id n = 1; n < c.x.g.node.n; n++) {
        struct model_contraction x;
        if (graph_node(&c.x.g, n)->dead || !is_contraction(op_of(&c.x.g, n))) continue;
        if (!describe(&c, n, &x)) return op_unsupported(e, &m->graph, model_origin(&c.x, n), "a size depends on data");
        add(&c, &x);
    }
    return true;
}
