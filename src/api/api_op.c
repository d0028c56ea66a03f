// SPDX-License-Identifier: Apache-2.0
//
// One operator on a caller's arrays. Declared and documented in include/quern.h.
//
// A call is written as the text of a graph with one node (model/call.c) and, as interface layouts,
// the order of axes of dense arrays. Programs are kept by that text. Other arrays are copied.
#include "api/api_model.h"

#include <string.h>

enum { MAX_ARRAYS = CALL_MAX_ARRAYS };

struct quern_op {
    quern *q;
    quern_db *db;
    struct arena arena;
    struct call_op op;
    const char *device; /* NULL: the default */
    int threads;
    struct plan_kept kept;
};

struct view { /* an array in a call */
    const struct quern_array *a;
    const char *layout; /* order of axes in memory, for the interface; NULL: row-major */
    bool is_dense;      /* used in place */
    struct tensor t;    /* as seen by the program */
    char name[8];
};

struct call {
    quern_op *op;
    struct view in[MAX_ARRAYS], out[MAX_ARRAYS];
    u32 n_in, n_out;
    struct call_outputs outputs;
    struct call_text text;
    struct quern_io_opts io[2 * MAX_ARRAYS];
    int n_io;
};

/* Opening. */

quern_status quern_op_open(quern *q, const char *name, const char *attributes, const struct quern_op_opts *o, quern_op **out)
{
    if (!api_given(q, "op out", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct quern_op_opts x = {0};
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    quern_op *op = mem_alloc(sizeof *op);
    op->q = q, op->db = x.db, op->threads = api_threads(q, x.threads);
    op->op.name = str_dup(&op->arena, str_of(name)), op->op.attrs = str_dup(&op->arena, str_of(attributes));
    op->device = x.device ? str_z(&op->arena, str_of(x.device)) : NULL;
    bool ok = model_call_attributes(&op->op, &op->arena, e) || err_prefix(e, "'%s'", name);
    ok = ok && model_call_sizes(&op->op, &op->arena, x.sizes, e);
    if (ok) *out = op;
    else quern_op_close(op);
    return api_end(q, ok);
}

void quern_op_close(quern_op *op)
{
    if (!op) return;
    for (u32 i = 0; i < op->kept.n; i++) quern_program_close(op->kept.v[i].program);
    arena_release(&op->arena);
    mem_free(op);
}

/* Layouts of arrays. */

static const char *clast_name(int rank) { return rank == 3 ? "NWC" : rank == 4 ? "NHWC" : "NDHWC"; }

/* Checks the array and whether it can be used in place. Sizes are in the program's order. */
static bool look(struct view *v, const struct quern_array *a, struct err *e)
{
    int rows[MAX_RANK], clast[MAX_RANK];
    i64 bytes;
    *v = (struct view){.a = a};
    if (!api_array(&v->t, &bytes, a, e)) return false;
    for (int d = 0; d < a->rank; d++) rows[d] = d, clast[d] = d == 0 ? 0 : d == a->rank - 1 ? 1 : d + 1;
    const int *order = rows;
    v->is_dense = bytes == 0 || api_array_lies(a, rows);
    if (!v->is_dense && a->rank >= 3 && a->rank <= 5 && api_array_lies(a, clast))
        v->is_dense = true, v->layout = clast_name(a->rank), order = clast;
    if (!v->is_dense) v->t.data = NULL;
    for (int d = 0; d < a->rank; d++) v->t.dim[d] = a->dim[order[d]];
    return true;
}

/* The text of a call. */

static void ask_layout(struct call *c, const struct view *v)
{
    if (v->layout) c->io[c->n_io++] = (struct quern_io_opts){.name = v->name, .layout = v->layout};
}

static bool print_call(struct call *c, struct err *e)
{
    struct call_array in[MAX_ARRAYS] = {0};
    for (u32 k = 0; k < c->n_in; k++)
        if (c->in[k].a) in[k] = (struct call_array){c->in[k].t.dtype, (u32)c->in[k].a->rank, c->in[k].a->dim};
    if (!model_call_print(&c->text, &c->op->op, in, c->n_in, &c->outputs, e)) return false;
    for (u32 k = 0; k < c->n_in; k++) ask_layout(c, &c->in[k]);
    for (u32 k = 0; k < c->n_out; k++) ask_layout(c, &c->out[k]);
    return true;
}

static void name_array(struct view *v, char letter, u32 k)
{
    u32 n = 0;
    v->name[n++] = letter;
    if (k > 9) v->name[n++] = (char)('0' + k / 10);
    v->name[n] = (char)('0' + k % 10);
}

static bool call_start(struct call *c, quern_op *op, const struct quern_array *in, int n_in, int n_out, struct err *e)
{
    *c = (struct call){.op = op};
    if (n_in < 0 || n_in > MAX_ARRAYS || n_out < 1 || n_out > MAX_ARRAYS)
        return err_set(e, ERR_USAGE, "%d inputs and %d outputs, expected up to %d, and one output at least", n_in, n_out, MAX_ARRAYS);
    c->n_in = (u32)n_in, c->n_out = c->outputs.n = (u32)n_out;
    for (u32 k = 0; k < c->n_in; k++) {
        if (!in[k].type) continue;
        if (!look(&c->in[k], &in[k], e)) return err_prefix(e, "input %u", k);
        name_array(&c->in[k], 'i', k);
    }
    for (u32 k = 0; k < c->n_out; k++) name_array(&c->out[k], 'o', k);
    return true;
}

static bool call_outputs(struct call *c, const struct quern_array *out, struct err *e)
{
    u32 n = 0;
    for (u32 k = 0; k < c->n_out; k++) {
        struct view *v = &c->out[k];
        c->outputs.is_omitted[k] = !out[k].type;
        if (!out[k].type) continue;
        n++;
        if (!look(v, &out[k], e)) return err_prefix(e, "output %u", k);
        name_array(v, 'o', k);
        for (int d = 0; d < out[k].rank; d++)
            if (out[k].dim[d] > 1 && out[k].stride[d] == 0 && tensor_count(&v->t))
                return err_set(e, ERR_USAGE, "output %u has stride 0 on axis %d: elements would lie in the same place", k, d);
    }
    return n || err_set(e, ERR_USAGE, "all %u outputs are omitted", c->n_out);
}

/* Prefixes messages with the operator, unless the model's messages do already. */
static quern_status finish(quern_op *op, bool ok)
{
    struct str said = str_of(op->q->err.msg);
    bool is_named = str_starts(said, S("'")) && str_starts(str_sub(said, 1, said.n), op->op.name);
    if (!ok && !is_named) err_prefix(&op->q->err, "'%.*s'", STR_ARG(op->op.name));
    return api_end(op->q, ok);
}

/* Models and programs. */

/* Sets the error on failure. */
static bool make_model(struct call *c, quern_model **m)
{
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    o.optimize_for = c->text.n_sizes ? c->text.sizes.p : NULL;
    o.io = c->io, o.n_io = c->n_io;
    return quern_model_read(c->op->q, c->text.text.p, (size_t)c->text.text.n, c->op->op.name.p, &o, m) == QUERN_OK;
}

quern_status quern_op_model(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                            quern_model **model)
{
    if (!op || !api_given(op->q, "in model", n_in > 0 ? (const void *)in : "", model)) return QUERN_USAGE;
    struct err *e = api_begin(op->q);
    struct call c;
    bool ok = call_start(&c, op, in, n_in, n_out, e) && (!out || call_outputs(&c, out, e)) && print_call(&c, e) && make_model(&c, model);
    call_text_release(&c.text);
    return finish(op, ok);
}

/* Outputs without a rank. */
static bool omit_outputs(struct call *c, const struct quern_array *out, struct err *e)
{
    u32 n = 0;
    for (u32 k = 0; k < c->n_out; k++) n += c->outputs.is_omitted[k] = out[k].rank == -1;
    return n < c->n_out || err_set(e, ERR_USAGE, "all %u outputs are omitted", c->n_out);
}

/* Reports the sizes of outputs if the model was made for exactly these sizes. */
static bool report_shapes(const quern_model *m, struct quern_array *out, struct err *e)
{
    for (u32 k = 0; k < m->model->graph.output.n; k++, out++) {
        const struct value *v = graph_value(&m->model->graph, m->model->graph.output.v[k]);
        i64 dim[MAX_RANK], bytes;
        while (out->rank == -1) out++;
        if (!shape_eval(&m->model->sym, &v->shape, m->model->var, dim) || !tensor_size_ok(v->dtype, v->shape.rank, dim, &bytes))
            return err_set(e, ERR_UNSUPPORTED, "the size of output %u cannot be computed", k);
        api_array_rows(out, v->dtype, v->shape.rank, dim);
    }
    return true;
}

quern_status quern_op_shape(quern_op *op, const struct quern_array *in, int n_in, struct quern_array *out, int n_out)
{
    if (!op || !api_given(op->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    quern_model *m = NULL;
    struct err *e = api_begin(op->q);
    struct call c;
    bool ok = call_start(&c, op, in, n_in, n_out, e) && omit_outputs(&c, out, e) && print_call(&c, e);
    c.n_io = 0; /* the operator's own shapes, whatever the inputs' layouts */
    ok = ok && make_model(&c, &m) && report_shapes(m, out, &op->q->err);
    quern_model_close(m);
    call_text_release(&c.text);
    return finish(op, ok);
}

static struct hash call_key(const struct call *c)
{
    struct buf b = {0};
    buf_str(&b, buf_view(&c->text.text));
    for (int k = 0; k < c->n_io; k++) buf_printf(&b, "%s %s\n", c->io[k].name, c->io[k].layout);
    struct hash h = hash_bytes(b.p, b.n);
    buf_release(&b);
    return h;
}

/* The program for the call, built on demand. NULL: error. */
static quern_program *program_of(struct call *c)
{
    quern_op *op = c->op;
    struct hash key = call_key(c);
    quern_program *p = plan_kept_find(&op->kept, key);
    if (p) return p;
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    quern_model *m = NULL;
    o.device = op->device, o.threads = op->threads;
    if (make_model(c, &m) && quern_compile(m, op->db, &o, &p) == QUERN_OK) quern_program_close(plan_kept_add(&op->kept, key, p));
    quern_model_close(m);
    return p;
}

/* Copies. */

/* Allocates memory for an array that cannot be used in place. */
static bool bring(struct view *v, bool is_out, struct err *e)
{
    i64 bytes = tensor_bytes(&v->t);
    if (bytes && !v->a->data) return err_set(e, ERR_USAGE, "'%s' has no memory", v->name);
    if (v->is_dense && v->t.data) return true;
    v->is_dense = false;
    v->t.data = mem_aligned(i64_max(bytes, 64));
    if (!v->t.data) return err_set(e, ERR_SYSTEM, "not enough memory for a copy of %lld bytes", (long long)bytes);
    if (!is_out && bytes) tensor_from_strided(&v->t, v->a->data, v->a->stride);
    return true;
}

static void let_go(struct view *v)
{
    if (v->a && !v->is_dense) mem_free(v->t.data);
}

/* Running. */

static bool run(struct call *c, quern_program *p)
{
    quern_tensor in[MAX_ARRAYS], out[MAX_ARRAYS], *x[MAX_ARRAYS], *y[MAX_ARRAYS];
    struct err *e = &c->op->q->err;
    u32 n = 0, n_out = 0;
    bool ok = true;
    for (u32 k = 0; k < c->n_in && ok; k++) {
        if (!c->in[k].a) continue;
        ok = bring(&c->in[k], false, e);
        in[n] = (quern_tensor){.t = c->in[k].t}, x[n] = &in[n];
        n++;
    }
    for (u32 k = 0; k < c->n_out && ok; k++) {
        if (!c->out[k].a) continue;
        ok = bring(&c->out[k], true, e);
        out[n_out] = (quern_tensor){.t = c->out[k].t}, y[n_out] = &out[n_out];
        n_out++;
    }
    ok = ok && quern_run(p, x, (int)n, y, (int)n_out) == QUERN_OK;
    for (u32 k = 0; k < c->n_out && ok; k++)
        if (c->out[k].a && !c->out[k].is_dense && tensor_count(&c->out[k].t)) tensor_to_strided(&c->out[k].t, c->out[k].a->data, c->out[k].a->stride);
    return ok;
}

quern_status quern_op_run(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out)
{
    if (!op || !api_given(op->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(op->q);
    struct call c;
    quern_program *p = NULL;
    bool ok = call_start(&c, op, in, n_in, n_out, e) && call_outputs(&c, out, e) && print_call(&c, e);
    p = ok ? program_of(&c) : NULL;
    ok = p && run(&c, p);
    for (u32 k = 0; k < c.n_in; k++) let_go(&c.in[k]);
    for (u32 k = 0; k < c.n_out; k++) let_go(&c.out[k]);
    call_text_release(&c.text);
    return finish(op, ok);
}

/* In device memory. */

static bool check_place(const struct view *v, const char *what, struct err *e)
{
    if (v->is_dense) return true;
    struct buf b = {0};
    for (int d = 0; d < v->a->rank; d++) buf_printf(&b, "%s%lld", d ? ", " : "", (long long)v->a->stride[d]);
    err_set(e, ERR_UNSUPPORTED, "%s '%s' has strides (%.*s), on a device arrays must be dense, row by row or with channels last", what, v->name,
            STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

static bool enqueue(struct call *c, quern_program *p, void *stream)
{
    struct tensor in[MAX_ARRAYS], out[MAX_ARRAYS];
    u32 n = 0, n_out = 0;
    for (u32 k = 0; k < c->n_in; k++)
        if (c->in[k].a) in[n++] = c->in[k].t;
    for (u32 k = 0; k < c->n_out; k++)
        if (c->out[k].a) out[n_out++] = c->out[k].t;
    return api_enqueue(p, in, out, stream, &c->op->q->err);
}

quern_status quern_op_enqueue(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out, void *stream)
{
    if (!op || !api_given(op->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    struct err *e = api_begin(op->q);
    struct call c;
    quern_program *p = NULL;
    bool ok = call_start(&c, op, in, n_in, n_out, e) && call_outputs(&c, out, e) && print_call(&c, e);
    for (u32 k = 0; k < c.n_in && ok; k++) ok = !c.in[k].a || check_place(&c.in[k], "input", e);
    for (u32 k = 0; k < c.n_out && ok; k++) ok = !c.out[k].a || check_place(&c.out[k], "output", e);
    if (ok) p = program_of(&c);
    ok = p && enqueue(&c, p, stream);
    call_text_release(&c.text);
    return finish(op, ok);
}
