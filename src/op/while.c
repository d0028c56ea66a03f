// SPDX-License-Identifier: Apache-2.0
//
// Data-dependent control flow. The bodies are graphs in attributes, which share the symbol table of the enclosing graph; values of that
// graph that they use are inputs of the node ("captured") and of the bodies.
//
//   quern::Loop(condition, carried ..., captured ...) -> carried ..., scanned ..., sizes
//     {body=graph, carried=int, conditional=int, trip_count=[size], varies=[names]}
//     As long as the condition holds (left out: it does), and at most `trip_count` times: the body, which has the inputs carried ...,
//     captured ... and the outputs condition (if conditional=1), carried ..., scanned .... What it gives as scanned is stacked along
//     a new first axis.
//   quern::If(condition, captured ...) -> results ..., sizes
//     {then=graph, else=graph}: one of the two, which have the same inputs and as many outputs.
//
// Variables named in `varies` are sizes of carried values that change from iteration to iteration: the body's inputs bind them. All others
// that a body mentions are known where the node runs. A size of a result that is not known before is made by the node: `sizes`
// lists pairs of output and axis, and the last output holds their values.
#include "op/op.h"

#include <string.h>

/* The body's value for output k of the node. */
static const struct value *result(const struct op_call *c, u32 b, u32 k)
{
    return graph_value(c->body[b], c->body[b]->output.v[k + c->is_conditional]);
}

/* Sizes that only the body knows. */
static bool is_inner(const struct graph *body, const struct attr *varies, sym s)
{
    const struct symtab *t = body->sym;
    for (u32 k = 0; k < body->made.n; k++)
        if (sym_has_var(t, s, body->made.v[k].var)) return true;
    for (i64 k = 0; varies && k < varies->n; k++) {
        const u64 *v = map_get(&t->names, varies->strs[k]);
        if (v && t->node.v[*v].op == SYM_VAR && sym_has_var(t, s, t->node.v[*v].a)) return true;
    }
    return false;
}

/* Shape of output k as known before the node runs: 0 for an unknown size. */
static bool shape_before(struct graph *g, node_id n, const struct op_call *c, u32 k, struct shape *s, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct attr *varies = node_attr(x, "varies");
    bool is_scan = c->is_loop && k >= c->n_carried;
    const struct value *v = c->is_loop && !is_scan ? graph_value(c->body[0], c->body[0]->input.v[k]) : result(c, 0, k);
    *s = (struct shape){.known = true};
    if (is_scan && v->shape.rank == MAX_RANK) return op_unsupported(e, g, n, "output %u has more than %d axes", k, MAX_RANK);
    if (is_scan) s->dim[s->rank++] = c->is_conditional || x->in.v[0] ? 0 : c->trip_count;
    for (u32 d = 0; d < v->shape.rank; d++) s->dim[s->rank++] = is_inner(c->body[0], varies, v->shape.dim[d]) ? 0 : v->shape.dim[d];
    if (c->is_loop) return true;
    const struct shape *other = &result(c, 1, k)->shape;
    if (other->rank != s->rank)
        return op_unsupported(e, g, n, "results of ranks %u and %u, selected at run time", other->rank, s->rank);
    for (u32 d = 0; d < s->rank; d++)
        if (s->dim[d] != other->dim[d]) s->dim[d] = 0;
    return true;
}

/* The last output, with room for one more size; its new element. */
static i64 add_size(struct graph *g, node_id n, const struct op_call *c, u32 out, u32 axis)
{
    const i64 *old;
    i64 count = attr_ints(graph_node(g, n), "sizes", &old), *list = arena_array(g->arena, i64, count + 2);
    if (count) memcpy(list, old, (size_t)count * sizeof *list);
    list[count] = out, list[count + 1] = axis;
    attr_set_ints(g, n, "sizes", list, count + 2);
    if (graph_node(g, n)->out.n <= c->n_out || !graph_node(g, n)->out.v[c->n_out]) {
        value_id like = node_first_out(graph_node(g, n));
        struct str name = str_fmt(g->arena, "%.*s_sizes", STR_ARG(like ? graph_value(g, like)->name : S("loop")));
        node_set_out(g, n, c->n_out, graph_add_value(g, name));
    }
    struct shape s = {.known = true, .rank = 1, .dim = {sym_const(g->sym, count / 2 + 1)}};
    op_set_out(g, n, c->n_out, DT_I64, &s);
    return count / 2;
}

static bool set_shape(struct graph *g, node_id n, const struct op_call *c, u32 k, struct err *e)
{
    const char *key = str_fmt(g->arena, "shape%u", k).p;
    struct shape s;
    value_id out = graph_node(g, n)->out.v[k];
    if (!out) return true;
    if (!shape_before(g, n, c, k, &s, e)) return false;
    struct shape had = {.known = true, .rank = s.rank};
    if (op_get_syms(g, graph_node(g, n), key, had.dim, MAX_RANK) == s.rank) {
        for (u32 d = 0; d < s.rank; d++)
            if (!s.dim[d]) s.dim[d] = had.dim[d];
    } else {
        bool is_scan = c->is_loop && k >= c->n_carried;
        for (u32 d = 0; d < s.rank; d++) {
            if (s.dim[d]) continue;
            i64 at = add_size(g, n, c, k, d);
            sym most = d == 0 && is_scan ? c->trip_count : 0;
            s.dim[d] = op_size_of(g, graph_node(g, n)->out.v[c->n_out], at, out, most);
        }
        op_set_syms(g, n, key, s.dim, s.rank);
    }
    op_set_out(g, n, k, result(c, 0, k)->dtype, &s);
    return true;
}

/* The inputs of the bodies correspond to the node's. */
static bool check_inputs(struct graph *g, node_id n, const struct op_call *c, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct attr *varies = node_attr(x, "varies");
    const struct value *cond = x->in.v[0] ? graph_value(g, x->in.v[0]) : NULL;
    if (cond ? cond->dtype != DT_BOOL || cond->shape.rank : !c->is_loop) return op_invalid(e, g, n, "the condition is no scalar of bool");
    for (u32 b = 0; b < c->n_body; b++)
        for (u32 k = 0; k + 1 < x->in.n; k++) {
            if (!x->in.v[k + 1]) return op_invalid(e, g, n, "input %u is missing", k + 1);
            const struct value *from = graph_value(g, x->in.v[k + 1]);
            struct value *to = graph_value(c->body[b], c->body[b]->input.v[k]);
            if (to->dtype != from->dtype || !to->shape.known || to->shape.rank != from->shape.rank)
                return op_invalid(e, g, n, "input %u of the body is %s of rank %u, expected %s of rank %u", k, dtype_name(to->dtype),
                                  to->shape.rank, dtype_name(from->dtype), from->shape.rank);
            for (u32 d = 0; d < to->shape.rank; d++)
                if (to->shape.dim[d] != from->shape.dim[d] && !is_inner(c->body[b], varies, to->shape.dim[d]) &&
                    !op_require_equal(g, n, to->shape.dim[d], from->shape.dim[d], e, "axis %u of input %u and of the body's input", d, k + 1))
                    return false;
        }
    return true;
}

/* Carried values have the shape that the next iteration expects. */
static bool check_outputs(struct graph *g, node_id n, const struct op_call *c, struct err *e)
{
    const struct attr *varies = node_attr(graph_node(g, n), "varies");
    if (c->is_conditional) {
        const struct value *v = graph_value(c->body[0], c->body[0]->output.v[0]);
        if (v->dtype != DT_BOOL || v->shape.rank) return op_invalid(e, g, n, "the body's condition is no scalar of bool");
    }
    for (u32 k = 0; k < c->n_out; k++) {
        const struct value *v = result(c, 0, k), *other = k < c->n_carried ? graph_value(c->body[0], c->body[0]->input.v[k]) : NULL;
        if (!c->is_loop) other = result(c, 1, k);
        if (!other) continue;
        if (v->dtype != other->dtype)
            return op_invalid(e, g, n, "result %u is of types %s and %s", k, dtype_name(v->dtype), dtype_name(other->dtype));
        if (!c->is_loop) continue;
        if (v->shape.rank != other->shape.rank)
            return op_unsupported(e, g, n, "carried value %u has %u axes before an iteration and %u after it", k, other->shape.rank, v->shape.rank);
        for (u32 d = 0; d < v->shape.rank; d++)
            if (v->shape.dim[d] != other->shape.dim[d] && !is_inner(c->body[0], varies, other->shape.dim[d]) &&
                !op_require_equal(g, n, v->shape.dim[d], other->shape.dim[d], e, "axis %u of carried value %u before and after an iteration", d, k))
                return false;
    }
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    struct op_call c;
    if (!op_call_get(g, graph_node(g, n), &c)) return op_invalid(e, g, n, "the bodies do not fit the node");
    if (!check_inputs(g, n, &c, e)) return false;
    for (u32 b = 0; b < c.n_body; b++)
        if (!op_infer_all((struct graph *)c.body[b], e)) return false;
    if (!check_outputs(g, n, &c, e)) return false;
    for (u32 k = 0; k < c.n_out && k < graph_node(g, n)->out.n; k++)
        if (!set_shape(g, n, &c, k, e)) return false;
    if (graph_node(g, n)->out.n <= c.n_out || !graph_node(g, n)->out.v[c.n_out]) return true;
    i64 count = attr_ints(graph_node(g, n), "sizes", NULL) / 2;
    struct shape s = {.known = true, .rank = 1, .dim = {sym_const(g->sym, count)}};
    op_set_out(g, n, c.n_out, DT_I64, &s);
    return true;
}

/* Reference evaluation. */

struct scanned { /* results of the iterations for one output */
    struct buf bytes;
    struct tensor head; /* of one iteration */
};

struct runner {
    const struct op_call *c;
    const struct node *x;
    i64 *var;          /* of the bodies: known values of the enclosing graph */
    struct arena *a;   /* of the results */
    struct err *e;
};

static struct tensor *keep(struct runner *r, const struct tensor *t)
{
    struct tensor *to = tensor_try(r->a, t->dtype, t->rank, t->dim, r->e, "result of ", r->x->name);
    if (to && tensor_bytes(t)) memcpy(to->data, t->data, (size_t)tensor_bytes(t));
    return to;
}

static bool eval_body(struct runner *r, u32 b, struct tensor *const *in, struct tensor **out, struct arena *a)
{
    struct graph_eval_opts o = {.var = r->var};
    return graph_eval(r->c->body[b], in, out, a, &o, r->e);
}

static bool note_scan(struct runner *r, struct scanned *s, const struct tensor *t, i64 iteration)
{
    bool same = iteration == 0 || t->rank == s->head.rank;
    for (u32 d = 0; d < t->rank && same && iteration; d++) same = t->dim[d] == s->head.dim[d];
    if (!same) return err_set(r->e, ERR_INPUT, "iterations yield results of different sizes");
    s->head = *t;
    buf_put(&s->bytes, t->data, tensor_bytes(t));
    return !s->bytes.failed || err_set(r->e, ERR_SYSTEM, "not enough memory for the results of the iterations");
}

static bool stack_scan(struct runner *r, struct scanned *s, u32 k, i64 iterations, struct tensor **out)
{
    const struct value *v = result(r->c, 0, k);
    i64 dim[MAX_RANK] = {iterations};
    for (u32 d = 0; d < v->shape.rank; d++) {
        dim[d + 1] = s->head.dim[d];
        if (iterations == 0 && !sym_eval(r->c->body[0]->sym, v->shape.dim[d], r->var, &dim[d + 1])) dim[d + 1] = 0;
    }
    *out = tensor_try(r->a, v->dtype, v->shape.rank + 1, dim, r->e, "result of ", r->x->name);
    if (*out && s->bytes.n) memcpy((*out)->data, s->bytes.p, (size_t)s->bytes.n);
    return *out != NULL;
}

static bool run_loop(struct runner *r, struct tensor *const *in, struct scanned *scan, struct tensor **out)
{
    const struct op_call *c = r->c;
    struct arena mine = {0}, next;
    u32 n_in = c->n_carried + c->n_captured;
    struct tensor **now = arena_array(&mine, struct tensor *, n_in + 1), **got = arena_array(&mine, struct tensor *, c->n_out + 2);
    struct arena keep_now = {0};
    i64 most = 0, iteration = 0;
    bool go = !in[0] || elem_i64(DT_BOOL, in[0]->data, 0), ok = true;
    for (u32 k = 0; k < n_in; k++) now[k] = in[k + 1];
    if (!sym_eval(c->body[0]->sym, c->trip_count, r->var, &most)) ok = err_set(r->e, ERR_INPUT, "the trip count is not known");
    for (; ok && go && iteration < most; iteration++) {
        next = (struct arena){0};
        ok = mem_check(r->e, "evaluating ", r->x->name) && eval_body(r, 0, now, got, &next);
        if (ok && c->is_conditional) go = elem_i64(DT_BOOL, got[0]->data, 0) != 0;
        for (u32 k = 0; k < c->n_scan && ok; k++) ok = note_scan(r, &scan[k], got[c->is_conditional + c->n_carried + k], iteration);
        for (u32 k = 0; k < c->n_carried && ok; k++) now[k] = got[c->is_conditional + k];
        arena_release(&keep_now);
        keep_now = next;
    }
    for (u32 k = 0; k < c->n_carried && ok; k++) ok = (out[k] = keep(r, now[k])) != NULL;
    for (u32 k = 0; k < c->n_scan && ok; k++) ok = stack_scan(r, &scan[k], c->n_carried + k, iteration, &out[c->n_carried + k]);
    arena_release(&keep_now);
    arena_release(&mine);
    return ok;
}

static bool eval_loop(struct runner *r, struct tensor *const *in, struct tensor **out)
{
    struct scanned *scan = mem_alloc((i64)sizeof *scan * (r->c->n_scan + 1));
    bool ok = run_loop(r, in, scan, out);
    for (u32 k = 0; k < r->c->n_scan; k++) buf_release(&scan[k].bytes);
    mem_free(scan);
    return ok;
}

static bool call(const struct graph *g, const struct node *x, struct tensor *const *in, const i64 *var, u32 n_var, struct tensor **out,
                  struct arena *a, struct err *e)
{
    struct op_call c;
    if (!op_call_get(g, x, &c)) return err_set(e, ERR_INPUT, "the bodies do not fit the node");
    struct runner r = {.c = &c, .x = x, .a = a, .e = e};
    r.var = arena_array(a, i64, g->sym->var.n + 1);
    for (u32 v = 0; v < g->sym->var.n; v++) r.var[v] = v < n_var ? var[v] : INT64_MIN;
    bool ok = c.is_loop ? eval_loop(&r, in, out) : eval_body(&r, elem_i64(DT_BOOL, in[0]->data, 0) != 0, in + 1, out, a);
    i64 count = c.n_size;
    if (!ok || x->out.n <= c.n_out || !x->out.v[c.n_out]) return ok;
    struct tensor *t = out[c.n_out] = tensor_new(a, DT_I64, 1, &count);
    for (i64 k = 0; k < count; k++) elem_set_i64(DT_I64, t->data, k, out[c.size[2 * k]]->dim[c.size[2 * k + 1]]);
    return true;
}

/* Inputs that need not be. */

/* Sizes that are dimensions of an input bind the variables that vary. */
static bool binds(const struct node *x, const struct graph *body, value_id v)
{
    const struct shape *s = &graph_value(body, v)->shape;
    for (u32 d = 0; d < s->rank; d++)
        if (is_inner(body, node_attr(x, "varies"), s->dim[d])) return true;
    return false;
}

bool op_call_trim(struct graph *g, node_id n)
{
    struct op_call c;
    bool changed = false;
    if (!op_call_get(g, graph_node(g, n), &c)) return false;
    for (u32 k = 1 + c.n_carried; k < graph_node(g, n)->in.n;) {
        struct node *x = graph_node(g, n);
        const struct value *from = graph_value(g, x->in.v[k]);
        bool read = false;
        for (u32 b = 0; b < c.n_body; b++) {
            value_id v = c.body[b]->input.v[k - 1];
            read |= graph_is_read(c.body[b], v) || graph_is_output(c.body[b], v) || binds(x, c.body[b], v);
        }
        if (read && !from->data) {
            k++;
            continue;
        }
        for (u32 b = 0; b < c.n_body; b++) {
            struct graph *body = (struct graph *)c.body[b];
            struct value *to = graph_value(body, body->input.v[k - 1]);
            if (read) to->data = from->data, to->is_const = true, to->given = NULL;
            if (read) to->shape = from->shape;
            for (u32 i = k - 1; i + 1 < body->input.n; i++) body->input.v[i] = body->input.v[i + 1];
            body->input.n--;
        }
        for (u32 i = k; i + 1 < x->in.n; i++) x->in.v[i] = x->in.v[i + 1];
        x->in.n--;
        changed = true;
    }
    return changed;
}

/* Instances at random. */

static struct graph *new_body(struct graph *g)
{
    struct graph *b = arena_new(g->arena, struct graph);
    graph_init(b, g->arena, g->sym);
    return b;
}

static value_id body_input(struct graph *b, const char *name, enum dtype t, u32 rank, const i64 *dim)
{
    value_id v;
    random_input(b, name, t, rank, dim, &v);
    return v;
}

static void body_output(struct graph *b, value_id v) { *arr_push(b->arena, &b->output) = v; }

/* x := x / 2 + y, i := i + 1 up to i < stop, and x is collected. */
static void random_loop(const struct op *self, struct graph *g, struct rng *r)
{
    u32 rank = (u32)rng_range(r, 0, 3);
    bool conditional = rng_range(r, 0, 1);
    i64 dim[MAX_RANK], one = 1, stop = rng_range(r, -1, 6);
    value_id in[5] = {0};
    for (u32 d = 0; d < rank; d++) dim[d] = rng_range(r, 1, 5);
    struct graph *b = new_body(g);
    value_id i = body_input(b, "i", DT_I64, 1, &one), x = body_input(b, "x", DT_F32, rank, dim), y = body_input(b, "y", DT_F32, rank, dim);
    value_id next = op_node2(b, 0, "Add", i, op_const_i(b, DT_I64, &one, 1), 0);
    value_id half = op_node2(b, 0, "Mul", x, op_const_f(b, DT_F32, 0.5), 0), sum = op_node2(b, 0, "Add", half, y, 0);
    if (conditional) {
        value_id less = op_node2(b, 0, "Less", next, op_const_i(b, DT_I64, &stop, 1), 0), c = op_node1(b, 0, "quern::Reshape", less, 0);
        op_set_syms(b, op_made(b, c), "shape", NULL, 0);
        body_output(b, c);
    }
    body_output(b, next), body_output(b, sum), body_output(b, sum);
    if (conditional && rng_range(r, 0, 1)) random_input(g, "go", DT_BOOL, 0, NULL, &in[0]);
    struct tensor *zero = tensor_new(g->arena, DT_I64, 1, &one);
    in[1] = graph_add_const(g, S("zero"), zero);
    random_input(g, "x", DT_F32, rank, dim, &in[2]);
    random_input(g, "y", DT_F32, rank, dim, &in[3]);
    node_id n = random_node(g, self, 4, in, 3);
    sym most = sym_const(g->sym, rng_range(r, 0, 9));
    attr_set_graph(g, n, "body", b);
    attr_set_int(g, n, "carried", 2);
    attr_set_int(g, n, "conditional", conditional);
    op_set_syms(g, n, "trip_count", &most, 1);
}

/* -x, or the exponential of y: of different sizes now and then. */
static void random_if(const struct op *self, struct graph *g, struct rng *r)
{
    i64 dim[2] = {rng_range(r, 1, 6), rng_range(r, 1, 6)}, other[2] = {dim[0], rng_range(r, 0, 1) ? dim[1] : rng_range(r, 1, 6)};
    value_id in[3];
    node_id n;
    random_input(g, "c", DT_BOOL, 0, NULL, &in[0]);
    random_input(g, "x", DT_F32, 2, dim, &in[1]);
    random_input(g, "y", DT_F32, 2, other, &in[2]);
    n = random_node(g, self, 3, in, 1);
    for (u32 k = 0; k < 2; k++) {
        struct graph *b = new_body(g);
        value_id x = body_input(b, "x", DT_F32, 2, dim), y = body_input(b, "y", DT_F32, 2, other);
        body_output(b, op_node1(b, 0, k ? "Neg" : "Sigmoid", k ? x : y, 0));
        attr_set_graph(g, n, k ? "then" : "else", b);
    }
}

static bool never(const struct op_eval *v, struct err *e) { return err_set(e, ERR_FAILED, "control flow is evaluated with its graph"); }

static double no_flops(const struct graph *g, const struct node *n, const i64 *var) { return 0; }

static const struct op ops[] = {
    {.name = "quern::Loop",
     .attributes = "body:graph carried:int conditional:int sizes:ints trip_count:strings varies:strings",
     .props = OP_CALL | OP_HEAVY | OP_WHOLE,
     .min_in = 0,
     .max_in = 255,
     .min_out = 0,
     .max_out = 255,
     .infer = infer,
     .eval = never,
     .call = call,
     .flops = no_flops,
     .random = random_loop},
    {.name = "quern::If",
     .attributes = "else:graph then:graph",
     .props = OP_CALL | OP_HEAVY | OP_WHOLE,
     .min_in = 0,
     .max_in = 255,
     .min_out = 0,
     .max_out = 255,
     .infer = infer,
     .eval = never,
     .call = call,
     .flops = no_flops,
     .random = random_if},
};

const struct op_family op_while = {ops, countof(ops)};
