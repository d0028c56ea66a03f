// SPDX-License-Identifier: Apache-2.0
//
// A network as a model of TFLite (LiteRT): its stages in order, its interface, and what is tidied
// up afterwards (doc/export-tflite.md).
#include "export/export_tflite.h"

#include "export/export.h"

struct job {
    struct tfl t;
    struct export_tflite_opts o;
};

/* The interface. */

static struct tfl_quant unsigned_quant(struct tfl *t, const struct tfl_quant *q)
{
    return tfl_quant_one(t->a, (double)q->scale[0], q->zero[0] + 128);
}

static enum tfl_type interface_type(const struct job *x, value_id v, bool is_stored)
{
    enum dtype d = graph_value(&x->t.g, v)->dtype;
    if (x->o.type && is_stored) return x->o.type == EXPORT_TFLITE_I8 ? TFL_I8 : TFL_U8;
    switch ((int)d) {
    case DT_I32: return TFL_I32;
    case DT_I64: return TFL_I64;
    case DT_BOOL: return TFL_BOOL;
    case DT_U8: return TFL_U8;
    case DT_I8: return TFL_I8;
    default: return TFL_F32;
    }
}

static void add_name(struct tfl *t, bool is_output, value_id v, tfl_id id)
{
    *arr_push(t->a, is_output ? &t->m.output : &t->m.input) = id;
    if (is_output) *arr_push(t->a, &t->m.out_name) = graph_value(&t->g, v)->name;
    else *arr_push(t->a, &t->m.in_name) = graph_value(&t->g, v)->name;
}

static enum tfl_layout interface_layout(const struct tfl *t, value_id v)
{
    return t->keeps_layout || graph_value(&t->g, v)->shape.rank < 3 ? TFL_ROWS : TFL_CLAST;
}

static void add_input(struct job *x, value_id v)
{
    struct tfl *t = &x->t;
    struct tfl_value *to = &t->v[v];
    enum tfl_layout l = interface_layout(t, v);
    u32 rank = graph_value(&t->g, v)->shape.rank;
    i64 dim[MAX_RANK];
    tfl_dims(t, v, l, dim);
    enum tfl_type type = interface_type(x, v, to->q.n);
    tfl_id id = tfl_constant(t, "input", type, rank, dim, NULL);
    struct tfl_tensor *y = tfl_at(t, id);
    y->name = graph_value(&t->g, v)->name, y->size = 0;
    bool is_i8 = to->q.n && type == TFL_I8;
    if (is_i8) y->q = to->q;
    if (to->q.n && type == TFL_U8) tfl_at(t, id)->q = unsigned_quant(t, &to->q);
    to->id[is_i8 ? TFL_STORED : TFL_REAL][l] = id;
    add_name(t, false, v, id);
}

/* A tensor of its own: no input, constant or other output. */
static tfl_id own_tensor(struct tfl *t, tfl_id x)
{
    bool is_shared = tfl_at(t, x)->data;
    for (u32 k = 0; k < t->m.input.n; k++) is_shared |= t->m.input.v[k] == x;
    for (u32 k = 0; k < t->m.output.n; k++) is_shared |= t->m.output.v[k] == x;
    return is_shared ? tfl_reshape(t, x, tfl_at(t, x)->rank, tfl_at(t, x)->dim, 0) : x;
}

static bool add_output(struct job *x, value_id v)
{
    struct tfl *t = &x->t;
    const struct tfl_quant q = t->v[tfl_of(t, v)].q;
    enum tfl_type type = interface_type(x, v, q.n);
    tfl_id id = tfl_get(t, v,
                        !q.n              ? TFL_REAL
                        : type == TFL_F32 ? TFL_RESTORED
                                          : TFL_STORED,
                        interface_layout(t, v));
    if (!id) return false;
    if (q.n && type == TFL_U8) {
        tfl_id y = tfl_like(t, id, "unsigned", tfl_at(t, id)->rank, tfl_at(t, id)->dim);
        tfl_at(t, y)->type = TFL_U8, tfl_at(t, y)->q = unsigned_quant(t, &q);
        id = tfl_requantize(t, id, &q, y);
    }
    id = own_tensor(t, id);
    tfl_at(t, id)->name = graph_value(&t->g, v)->name;
    add_name(t, true, v, id);
    return true;
}

/* Tidying. */

/* The operator that writes each tensor, 1 + index. */
static u32 *writers(const struct tfl_model *m, struct arena *work)
{
    u32 *by = arena_array(work, u32, m->tensor.n);
    for (u32 k = 0; k < m->op.n; k++)
        for (u32 i = 0; i < m->op.v[k].out.n; i++) by[m->op.v[k].out.v[i]] = k + 1;
    return by;
}

/* A RESHAPE of a RESHAPE reads what that reads. */
static void join_reshapes(struct tfl_model *m, const u32 *by)
{
    for (u32 k = 0; k < m->op.n; k++) {
        struct tfl_operator *o = &m->op.v[k];
        while (o->code == TFL_RESHAPE && by[o->in.v[0]] &&
               m->op.v[by[o->in.v[0]] - 1].code == TFL_RESHAPE)
            o->in.v[0] = m->op.v[by[o->in.v[0]] - 1].in.v[0];
    }
}

static void drop_unused_operators(struct tfl_model *m, bool *used)
{
    u32 n = 0;
    bool *live = used + m->tensor.n;
    for (u32 k = 0; k < m->input.n; k++) used[m->input.v[k]] = true;
    for (u32 k = 0; k < m->output.n; k++) used[m->output.v[k]] = true;
    for (u32 k = m->op.n; k-- > 0;) {
        for (u32 i = 0; i < m->op.v[k].out.n; i++) live[k] |= used[m->op.v[k].out.v[i]];
        for (u32 i = 0; i < m->op.v[k].in.n && live[k]; i++) used[m->op.v[k].in.v[i]] = true;
    }
    for (u32 k = 0; k < m->op.n; k++)
        if (live[k]) m->op.v[n++] = m->op.v[k];
    m->op.n = n;
}

static void renumber(tfl_id *v, u32 n, const tfl_id *to)
{
    for (u32 k = 0; k < n; k++) v[k] = to[v[k]];
}

static void tidy(struct tfl *t)
{
    struct arena work = {0};
    struct tfl_model *m = &t->m;
    join_reshapes(m, writers(m, &work));
    bool *used = arena_array(&work, bool, m->tensor.n + m->op.n);
    tfl_id *to = arena_array(&work, tfl_id, m->tensor.n), n = 1;
    drop_unused_operators(m, used);
    for (tfl_id k = 1; k < m->tensor.n; k++)
        if (used[k]) to[k] = n, m->tensor.v[n++] = m->tensor.v[k];
    m->tensor.n = n;
    for (u32 k = 0; k < m->op.n; k++) {
        renumber(m->op.v[k].in.v, m->op.v[k].in.n, to);
        renumber(m->op.v[k].out.v, m->op.v[k].out.n, to);
        m->op.v[k].version = tfl_version(m, &m->op.v[k]);
    }
    renumber(m->input.v, m->input.n, to);
    renumber(m->output.v, m->output.n, to);
    arena_release(&work);
}

/* The network. */

/* Bytes that are numbers, without a scale: operators of TFLite move them, but compute with other
   meanings of i8. */
static bool check_bytes(struct tfl *t, const struct node *n, const struct tfl_row *r)
{
    if (t->is_q || r->ability == TFL_SAME_Q || r->write == tfl_cast) return true;
    for (u32 k = 0; k < n->in.n + n->out.n; k++) {
        value_id v = k < n->in.n ? n->in.v[k] : n->out.v[k - n->in.n];
        enum dtype d = v ? graph_value(&t->g, v)->dtype : DT_NONE;
        if (d == DT_I8 || d == DT_U8) return tfl_refuse(t, n, "elements of type %s", dtype_name(d));
    }
    return true;
}

static bool convert_nodes(struct tfl *t)
{
    for (node_id n = 1; n < t->g.node.n; n++) {
        const struct node *x = graph_node(&t->g, n); /* the graph does not change */
        const struct tfl_row *r = t->row(x->op);
        if (!r->write) continue;
        t->at = n;
        t->is_q = tfl_quant_runs(t, x, r);
        if (!mem_check(t->e, "exporting ", x->name)) return false;
        if (!check_bytes(t, x, r) || !r->write(t, x)) return op_blame(t->e, &t->g, n);
    }
    t->at = 0, t->is_q = false;
    return true;
}

static bool convert(struct job *x, const struct graph *g)
{
    struct tfl *t = &x->t;
    if (!tfl_prepare(t, g)) return false;
    t->v = arena_array(t->a, struct tfl_value, t->g.value.n);
    t->uses = graph_use_counts(&t->g, t->a);
    if (!tfl_quant_find(t)) return false;
    tfl_layouts_choose(t);
    for (u32 k = 0; k < t->g.input.n; k++) add_input(x, t->g.input.v[k]);
    if (!convert_nodes(t)) return false;
    for (u32 k = 0; k < t->g.output.n; k++)
        if (!add_output(x, t->g.output.v[k])) return false;
    tidy(t);
    return !x->o.is_for_edgetpu || tfl_edgetpu_check(t);
}

static bool convert_with(struct job *x, const struct graph *g, const struct export_tflite_opts *o)
{
    x->o = *o;
    x->t.row = tfl_row_find;
    x->t.keeps_layout = !o->is_channels_last;
    x->t.rounds_constants = o->is_for_edgetpu;
    x->t.log = o->log;
    return convert(x, g);
}

bool export_tflite_bytes(const struct graph *g, const struct export_tflite_opts *o, struct buf *out,
                         struct err *e)
{
    struct arena a = {0};
    struct job x = {.t = {.a = &a, .e = e}};
    struct tfl_pieces p = {0};
    bool ok = convert_with(&x, g, o) && tfl_lay_out(&x.t, &p);
    for (u32 k = 0; k < p.n && ok; k++) buf_str(out, p.v[k]);
    arena_release(&a);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

bool export_tflite_graph(const struct graph *g, const struct export_tflite_opts *o,
                         const char *path, struct err *e)
{
    struct arena a = {0};
    struct job x = {.t = {.a = &a, .e = e}};
    struct tfl_pieces p = {0};
    bool ok = convert_with(&x, g, o) && tfl_lay_out(&x.t, &p) && os_write_pieces(path, p.v, p.n, e);
    arena_release(&a);
    return ok;
}
