// SPDX-License-Identifier: Apache-2.0
//
// One operator on a caller's arrays. Declared and documented in include/quern.h.
//
// A call is written as the text of a graph with one node, which contains everything its program
// depends on: operator, attributes, types, sizes (by name if they may change) and, as interface
// layouts, the order of axes of dense arrays. Programs are cached by that text. Other arrays are
// copied.
#include "api/api_model.h"

#include <string.h>

enum { MAX_ARRAYS = 16, MAX_KEPT = 64, MAX_SIZE_NAMES = 64 };

struct kept { /* a program and the time of its last use */
    struct hash key;
    quern_program *program;
    u64 used;
};

struct quern_op {
    quern *q;
    quern_db *db;
    struct arena arena;
    struct str name, attrs;
    const char *device; /* NULL: the default */
    int threads;
    struct { u32 rank; struct str size[MAX_RANK]; } sizes[MAX_ARRAYS]; /* of inputs; empty: fixed */
    /* number of inputs with named sizes; 0: all sizes are fixed */
    u32 n_sizes;
    struct kept kept[MAX_KEPT];
    u32 n_kept;
    u64 clock;
};

struct view { /* an array in a call */
    const struct quern_array *a;
    enum dtype dtype;
    const char *layout; /* order of axes in memory, for the interface; NULL: row-major */
    bool is_dense;      /* used in place */
    struct tensor t;    /* as seen by the program */
    char name[8];
};

struct call {
    quern_op *op;
    struct view in[MAX_ARRAYS], out[MAX_ARRAYS];
    u32 n_in, n_out;
    struct { struct str name; i64 is; } size[MAX_SIZE_NAMES];
    u32 n_sizes;
    struct buf text, sizes;
    struct quern_io_opts io[2 * MAX_ARRAYS];
    int n_io;
};

/* Opening. */

static bool is_size_name(struct str s)
{
    bool ok = s.n > 0 && !(s.p[0] >= '0' && s.p[0] <= '9');
    for (i64 i = 0; i < s.n && ok; i++) {
        char c = s.p[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    }
    return ok;
}

/* An expression over names, "H+4": its value is checked when the program runs. */
static bool is_expression(struct str s)
{
    bool ok = s.n > 0;
    for (i64 i = 0; i < s.n && ok; i++)
        ok = is_size_name(str_sub(s, i, i + 1)) || (s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] && strchr("+-*/%() ", s.p[i]));
    return ok;
}

static bool read_sizes(quern_op *op, const char *text, struct err *e)
{
    struct str rest = str_of(text), one, axis;
    while (rest.n) {
        if (op->n_sizes == MAX_ARRAYS) return err_set(e, ERR_USAGE, "sizes of more than %d inputs", MAX_ARRAYS);
        str_cut(rest, ',', &one, &rest);
        u32 k = op->n_sizes++;
        for (one = str_trim(one); one.n;) {
            u32 d = op->sizes[k].rank++;
            if (d == MAX_RANK) return err_set(e, ERR_USAGE, "more than %d sizes of input %u", MAX_RANK, k);
            str_cut(one, ':', &axis, &one);
            axis = str_trim(axis);
            bool is_fixed = str_is(axis, "?");
            if (!is_fixed && !is_expression(axis))
                return err_set(e, ERR_USAGE, "size '%.*s' of input %u is neither '?' nor a name or an expression of names",
                               STR_ARG(axis), k);
            op->sizes[k].size[d] = is_fixed ? (struct str){0} : str_dup(&op->arena, axis);
        }
    }
    return true;
}

quern_status quern_op_open(quern *q, const char *name, const char *attributes, const struct quern_op_opts *o, quern_op **out)
{
    if (!api_given(q, "op out", name, out)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct quern_op_opts x = {0};
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    quern_op *op = mem_alloc(sizeof *op);
    op->q = q, op->db = x.db, op->threads = api_threads(q, x.threads);
    op->name = str_dup(&op->arena, str_of(name)), op->attrs = str_dup(&op->arena, str_of(attributes));
    op->device = x.device ? str_z(&op->arena, str_of(x.device)) : NULL;
    bool ok = read_sizes(op, x.sizes, e);
    if (ok) *out = op;
    else quern_op_close(op);
    return api_end(q, ok);
}

void quern_op_close(quern_op *op)
{
    if (!op) return;
    for (u32 i = 0; i < op->n_kept; i++) quern_program_close(op->kept[i].program);
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
    v->dtype = v->t.dtype;
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

static bool name_size(struct call *c, u32 k, u32 d, i64 is, struct err *e)
{
    struct str name = c->op->sizes[k].size[d];
    u32 i = 0;
    if (!is_size_name(name)) {
        buf_str(&c->text, name);
        return true;
    }
    while (i < c->n_sizes && !str_eq(c->size[i].name, name)) i++;
    if (i == MAX_SIZE_NAMES) return err_set(e, ERR_USAGE, "more than %d names of sizes", MAX_SIZE_NAMES);
    if (i < c->n_sizes && c->size[i].is != is)
        return err_set(e, ERR_INPUT, "input %u has size %lld on axis %u, expected %lld ('%.*s')", k, (long long)is, d,
                       (long long)c->size[i].is, STR_ARG(name));
    if (i == c->n_sizes) {
        buf_printf(&c->sizes, "%s%.*s:%lld", i ? "," : "", STR_ARG(name), (long long)is);
        c->size[c->n_sizes].name = name, c->size[c->n_sizes++].is = is;
    }
    buf_str(&c->text, name);
    return true;
}

static bool print_input(struct call *c, u32 k, struct err *e)
{
    const struct quern_op *op = c->op;
    const struct quern_array *a = c->in[k].a;
    bool named = k < op->n_sizes && op->sizes[k].rank > 0;
    if (named && op->sizes[k].rank != (u32)a->rank)
        return err_set(e, ERR_INPUT, "input %u has rank %d, expected %u", k, a->rank, op->sizes[k].rank);
    buf_printf(&c->text, "  input %%%s: %s[", c->in[k].name, dtype_name(c->in[k].dtype));
    for (u32 d = 0; d < (u32)a->rank; d++) {
        if (d) buf_char(&c->text, ',');
        if (!named || !op->sizes[k].size[d].n) buf_printf(&c->text, "%lld", (long long)a->dim[d]);
        else if (!name_size(c, k, d, a->dim[d], e)) return false;
    }
    buf_z(&c->text, "]\n");
    return true;
}

static void ask_layout(struct call *c, const struct view *v)
{
    if (v->layout) c->io[c->n_io++] = (struct quern_io_opts){.name = v->name, .layout = v->layout};
}

static bool print_call(struct call *c, struct err *e)
{
    struct buf *b = &c->text;
    buf_z(b, "graph {\n");
    for (u32 k = 0; k < c->n_in; k++)
        if (c->in[k].a && !print_input(c, k, e)) return false;
    for (u32 k = 0; k < c->n_out; k++) buf_printf(b, "%s%%%s: none[?]", k ? ", " : "  ", c->out[k].name);
    buf_printf(b, " = %.*s(", STR_ARG(c->op->name));
    for (u32 k = 0; k < c->n_in; k++) buf_printf(b, "%s%s%s", k ? ", " : "", c->in[k].a ? "%" : "_", c->in[k].a ? c->in[k].name : "");
    buf_char(b, ')');
    if (c->op->attrs.n) buf_printf(b, " {%.*s}", STR_ARG(c->op->attrs));
    for (u32 k = 0; k < c->n_out; k++) buf_printf(b, "\n  output %%%s", c->out[k].name);
    buf_z(b, "\n}\n");
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
    c->n_in = (u32)n_in, c->n_out = (u32)n_out;
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
    for (u32 k = 0; k < c->n_out; k++) {
        struct view *v = &c->out[k];
        if (!look(v, &out[k], e)) return err_prefix(e, "output %u", k);
        name_array(v, 'o', k);
        for (int d = 0; d < out[k].rank; d++)
            if (out[k].dim[d] > 1 && out[k].stride[d] == 0 && tensor_count(&v->t))
                return err_set(e, ERR_USAGE, "output %u has stride 0 on axis %d: elements would lie in the same place", k, d);
    }
    return true;
}

static void call_end(struct call *c)
{
    buf_release(&c->text);
    buf_release(&c->sizes);
}

/* Prefixes messages with the operator, unless the model's messages do already. */
static quern_status finish(quern_op *op, bool ok)
{
    struct str said = str_of(op->q->err.msg);
    bool is_named = str_starts(said, S("'")) && str_starts(str_sub(said, 1, said.n), op->name);
    if (!ok && !is_named) err_prefix(&op->q->err, "'%.*s'", STR_ARG(op->name));
    return api_end(op->q, ok);
}

/* Models and programs. */

/* Sets the error on failure. */
static bool make_model(struct call *c, quern_model **m)
{
    struct quern_model_opts o = QUERN_OPTS(quern_model_opts);
    o.optimize_for = c->n_sizes ? c->sizes.p : NULL;
    o.io = c->io, o.n_io = c->n_io;
    return quern_model_read(c->op->q, c->text.p, (size_t)c->text.n, c->op->name.p, &o, m) == QUERN_OK;
}

quern_status quern_op_model(quern_op *op, const struct quern_array *in, int n_in, const struct quern_array *out, int n_out,
                            quern_model **model)
{
    if (!op || !api_given(op->q, "in model", n_in > 0 ? (const void *)in : "", model)) return QUERN_USAGE;
    struct err *e = api_begin(op->q);
    struct call c;
    bool ok = call_start(&c, op, in, n_in, n_out, e) && (!out || call_outputs(&c, out, e)) && print_call(&c, e) && make_model(&c, model);
    call_end(&c);
    return finish(op, ok);
}

/* Reports the sizes of outputs if the model was made for exactly these sizes. */
static bool report_shapes(const quern_model *m, struct quern_array *out, struct err *e)
{
    for (u32 k = 0; k < m->model->graph.output.n; k++) {
        const struct value *v = graph_value(&m->model->graph, m->model->graph.output.v[k]);
        i64 dim[MAX_RANK], bytes;
        if (!shape_eval(&m->model->sym, &v->shape, m->model->var, dim) || !tensor_size_ok(v->dtype, v->shape.rank, dim, &bytes))
            return err_set(e, ERR_UNSUPPORTED, "the size of output %u cannot be computed", k);
        api_array_rows(&out[k], v->dtype, v->shape.rank, dim);
    }
    return true;
}

quern_status quern_op_shape(quern_op *op, const struct quern_array *in, int n_in, struct quern_array *out, int n_out)
{
    if (!op || !api_given(op->q, "in out", n_in > 0 ? (const void *)in : "", n_out > 0 ? (const void *)out : "")) return QUERN_USAGE;
    quern_model *m = NULL;
    struct err *e = api_begin(op->q);
    struct call c;
    bool ok = call_start(&c, op, in, n_in, n_out, e) && print_call(&c, e);
    c.n_io = 0; /* the operator's own shapes, whatever the inputs' layouts */
    ok = ok && make_model(&c, &m) && report_shapes(m, out, &op->q->err);
    quern_model_close(m);
    call_end(&c);
    return finish(op, ok);
}

static struct kept *make_room(quern_op *op)
{
    if (op->n_kept < MAX_KEPT) return &op->kept[op->n_kept++];
    struct kept *old = op->kept;
    for (u32 i = 1; i < MAX_KEPT; i++)
        if (op->kept[i].used < old->used) old = &op->kept[i];
    quern_program_close(old->program);
    return old;
}

static struct hash call_key(const struct call *c)
{
    struct buf b = {0};
    buf_str(&b, buf_view(&c->text));
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
    for (u32 i = 0; i < op->n_kept; i++)
        if (op->kept[i].key.lo == key.lo && op->kept[i].key.hi == key.hi) {
            op->kept[i].used = ++op->clock;
            return op->kept[i].program;
        }
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    quern_model *m = NULL;
    quern_program *p = NULL;
    o.device = op->device, o.threads = op->threads;
    if (make_model(c, &m) && quern_compile(m, op->db, &o, &p) == QUERN_OK)
        *make_room(op) = (struct kept){.key = key, .program = p, .used = ++op->clock};
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
    u32 n = 0;
    bool ok = true;
    for (u32 k = 0; k < c->n_in && ok; k++) {
        if (!c->in[k].a) continue;
        ok = bring(&c->in[k], false, e);
        in[n] = (quern_tensor){.t = c->in[k].t}, x[n] = &in[n];
        n++;
    }
    for (u32 k = 0; k < c->n_out && ok; k++) {
        ok = bring(&c->out[k], true, e);
        out[k] = (quern_tensor){.t = c->out[k].t}, y[k] = &out[k];
    }
    ok = ok && quern_run(p, x, (int)n, y, (int)c->n_out) == QUERN_OK;
    for (u32 k = 0; k < c->n_out && ok; k++)
        if (!c->out[k].is_dense && tensor_count(&c->out[k].t)) tensor_to_strided(&c->out[k].t, c->out[k].a->data, c->out[k].a->stride);
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
    call_end(&c);
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
    u32 n = 0;
    for (u32 k = 0; k < c->n_in; k++)
        if (c->in[k].a) in[n++] = c->in[k].t;
    for (u32 k = 0; k < c->n_out; k++) out[k] = c->out[k].t;
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
    for (u32 k = 0; k < c.n_out && ok; k++) ok = check_place(&c.out[k], "output", e);
    if (ok) p = program_of(&c);
    ok = p && enqueue(&c, p, stream);
    call_end(&c);
    return finish(op, ok);
}
