// SPDX-License-Identifier: Apache-2.0
//
// exact.c: compares kernels with plain kernels of their tasks' nodes, over a field. A plain kernel
// (emit_output: a grid over an output's elements, each computed independently; op.whole for
// operators that define it) uses row-major values, whatever the layouts: those are applied to its
// content by the places of tune/check.c. Conv and MatMul are computed by their definitions
// (exact_conv.c). So both sides share only the definitions of the other operators (op.lower), which
// test_op compares with their evaluation in double precision.
//
// Every kernel is run twice, with different elements and another order of its iterations. If the
// results differ and the kernel rounds to integers or inspects the bits of floats, whose arguments
// another order of the same terms may push across a step, the same kernel is verified with the
// tolerance; otherwise it is wrong.
#include "tune/exact.h"

#include "kir/field.h"
#include "kir/term.h"
#include "tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* If sizes cannot be reduced to the requested work, it may exceed it by this factor, and more for a
   single evaluation. */
enum { N_EVALUATIONS = 2, SPREAD = 256, MAY_EXCEED = 8, MAY_EXCEED_ONCE = 75 };

const char *exact_verdict_name(enum exact_verdict v)
{
    static const char *const name[] = {"exact", "by tolerance", "DIFFERS"};
    assert(v < N_EXACT_VERDICTS);
    return name[v];
}

void exact_result_release(struct exact_result *r)
{
    buf_release(&r->sizes);
    buf_release(&r->why);
}

/* Content. */

struct content { /* of a task's values, row-major */
    struct arena *a;
    enum kir_arithmetic arithmetic;
    const struct caps *ordered; /* of terms: exact_opts' */
    const struct task *t;
    const i64 *var;
    struct tensor *shape;   /* per value; without data */
    union kir_cell **cell;  /* per value: random or given, and the results of the plain kernels */
};

static i64 random_int(enum dtype t, struct rng *r)
{
    if (t == DT_BOOL) return (i64)(rng_u64(r) & 1);
    i64 v = rng_range(r, 1, 9);
    return dtype_kind(t) == DK_INT && (rng_u64(r) & 1) ? -v : v;
}

/* An element in memory: a small float's code. */
static union kir_cell element(enum kir_arithmetic k, enum dtype t, const struct tensor *data, i64 i, struct rng *r)
{
    if (!dtype_is_float(t)) return (union kir_cell){.i = data ? elem_i64(t, data->data, i) : random_int(t, r)};
    if (!dtype_is_small(t)) return data ? kir_number(k, elem_f64(t, data->data, i)) : k == KIR_TERMS ? term_new(t, r) : field_random(r);
    u8 code = 0;
    if (data) code = ((const u8 *)data->data)[i];
    else elem_set_f64(t, &code, 0, t == DT_F8E8M0 ? rng_f64(r) : rng_f64(r) * 2 - 1);
    return (union kir_cell){.i = code};
}

static bool shape_of_value(const struct content *c, value_id v, struct tensor *s, struct err *e)
{
    const struct value *x = graph_value(&c->t->g, v);
    i64 bytes;
    s->dtype = x->dtype, s->rank = x->shape.rank;
    return (shape_eval(c->t->g.sym, &x->shape, c->var, s->dim) && tensor_size_ok(DT_F64, s->rank, s->dim, &bytes) && bytes < 1ll << 30) ||
           err_set(e, ERR_FAILED, "sizes of a value cannot be computed, or are too large");
}

static union kir_cell unknown(const struct content *c) { return c->arithmetic == KIR_FIELD ? field_nan() : (union kir_cell){.f = NAN}; }

static bool content_init(struct content *c, u64 seed, struct err *e)
{
    const struct graph *g = &c->t->g;
    struct rng r = rng_seed(seed);
    c->shape = arena_array(c->a, struct tensor, g->value.n);
    c->cell = arena_array(c->a, union kir_cell *, g->value.n);
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        if (!shape_of_value(c, v, &c->shape[v], e)) return false;
        i64 n = tensor_count(&c->shape[v]);
        c->cell[v] = arena_try(c->a, (n + 1) * (i64)sizeof(union kir_cell), e, "a value of a task");
        if (!c->cell[v]) return false;
        for (i64 i = 0; i < n; i++) c->cell[v][i] = x->producer ? unknown(c) : element(c->arithmetic, x->dtype, x->data, i, &r);
    }
    return true;
}

/* Arguments. */

/* y += f * x; of integers all three are. */
static void add_product(enum kir_arithmetic k, bool is_integer, union kir_cell f, union kir_cell x, union kir_cell *y)
{
    if (is_integer) y->i += f.i * x.i;
    else kir_scalar_in(k)(KI_FMA, DT_F64, DT_F64, (union kir_cell[3]){f, x, *y}, y);
}

/* A constant's elements times the matrices of a pack, in the pack's order. */
static union kir_cell *multiply(const struct content *c, const struct pack_mat *m, struct tensor *s, const union kir_cell *x)
{
    i64 n = s->dim[m->axis], outer = i64_product(m->axis, s->dim), inner = i64_product(s->rank - m->axis - 1, s->dim + m->axis + 1);
    union kir_cell *to = arena_array(c->a, union kir_cell, outer * m->rows * inner + 1), *f = arena_array(c->a, union kir_cell, m->rows * n);
    bool is_integer = !dtype_is_float(s->dtype);
    for (i64 i = 0; i < m->rows * n; i++) f[i] = is_integer ? (union kir_cell){.i = (i64)m->v[i]} : kir_number(c->arithmetic, m->v[i]);
    for (i64 o = 0; o < outer; o++)
        for (i64 i = 0; i < m->rows; i++)
            for (i64 k = 0; k < n; k++)
                for (i64 j = 0; j < inner; j++)
                    add_product(c->arithmetic, is_integer, f[i * n + k], x[(o * n + k) * inner + j], &to[(o * m->rows + i) * inner + j]);
    s->dim[m->axis] = m->rows;
    return to;
}

/* Elements as words. */
static union kir_cell *join_cells(const struct content *c, const struct pack *p, const union kir_cell *x, i64 n)
{
    i64 per = pack_per_word(p);
    union kir_cell *to = arena_array(c->a, union kir_cell, n / per + 1);
    for (i64 i = 0; i < n; i++) to[i / per].i |= (i64)((u64)(x[i].i & ((1 << p->bits) - 1)) << i % per * p->bits);
    return to;
}

static bool pack_cells(const struct content *c, const struct kernel_arg *a, struct kir_arg *arg, struct err *e)
{
    struct tensor s = c->shape[a->v];
    const union kir_cell *x = c->cell[a->v];
    struct pack plain = *a->pack;
    for (u32 i = 0; i < plain.n_mat; i++) x = multiply(c, &plain.mat[i], &s, x);
    plain.n_mat = 0, plain.dtype = DT_NONE, plain.bits = 0;
    /* of each element, from 1 on: 0 marks padding */
    struct tensor *number = tensor_new(c->a, DT_I64, s.rank, s.dim);
    for (i64 i = 0, n = tensor_count(number); i < n; i++) elem_set_i64(DT_I64, number->data, i, i + 1);
    const struct tensor *p = pack_apply(&plain, number, c->t->g.sym, c->a, e);
    if (!p) return e->code || err_set(e, ERR_FAILED, "a constant cannot be rearranged");
    union kir_cell *to = arena_array(c->a, union kir_cell, tensor_count(p) + 1);
    for (i64 i = 0, n = tensor_count(p); i < n; i++) {
        i64 from = elem_i64(DT_I64, p->data, i);
        if (from) to[i] = x[from - 1];
    }
    if (a->pack->bits) to = join_cells(c, a->pack, to, tensor_count(p));
    *arg = (struct kir_arg){to, tensor_count(p) / pack_per_word(a->pack)};
    return true;
}

static bool bind_argument(const struct content *c, const struct kernel_arg *a, struct kir_arg *arg, struct err *e)
{
    struct place at;
    if (a->pack) return pack_cells(c, a, arg, e);
    if (!place_of(&at, &c->t->g, a->v, c->var) || at.count > 1 << 27) return err_set(e, ERR_FAILED, "an argument is too large");
    union kir_cell *p = arena_try(c->a, (at.count + 1) * (i64)sizeof *p, e, "an argument");
    if (!p) return false;
    for (i64 i = 0; i < at.count && (a->is_out || at.whole); i++) p[i] = unknown(c);
    const value_id of = a->is_out ? graph_value(&c->t->g, a->v)->shares : a->v; /* whose content it begins with */
    for (i64 i = 0, n = of ? tensor_count(&c->shape[of]) : 0; i < n; i++) p[place_flat(&at, &c->shape[of], i)] = c->cell[of][i];
    *arg = (struct kir_arg){p, at.count};
    return true;
}

static bool params_of(const struct content *c, const struct kir *k, i64 **param, struct err *e)
{
    *param = arena_array(c->a, i64, k->param.n + 1);
    for (u32 i = 0; i < k->param.n; i++) {
        sym s = sym_parse(c->t->g.sym, k->param.v[i], e);
        if (!s || !sym_eval(c->t->g.sym, s, c->var, &(*param)[i])) return err_set(e, ERR_FAILED, "size '%.*s'", STR_ARG(k->param.v[i]));
    }
    return true;
}

/* The plain kernel. */

/* Extracts a node with all values row-major, in buffers of their own. back: the task's value of
   each value. */
static void extract_plain(struct graph *to, const struct graph *from, node_id n, value_id **back, struct arena *a)
{
    const struct node *x = graph_node(from, n);
    value_id *out = arena_array(a, value_id, x->out.n + 1);
    u32 n_out = 0;
    for (u32 i = 0; i < x->out.n; i++)
        if (x->out.v[i]) out[n_out++] = x->out.v[i];
    graph_extract(to, from, a, &n, 1, out, n_out, back);
    for (value_id v = 1; v < to->value.n; v++) {
        graph_value(to, v)->layout = LAYOUT_ROWS;
        graph_value(to, v)->part = (struct part){0};
    }
}

/* Kernels round to f16 and bf16 at stores and conversions, and keep values between nodes in f32. So
   do terms: values stay as computed until they are compared. */
static void keep_wide(struct graph *g)
{
    const struct node *n = graph_node(g, 1);
    const struct value *x = n->in.n && n->in.v[0] ? graph_value(g, n->in.v[0]) : NULL;
    for (u32 i = 0; i < g->output.n && !op_of(g, 1)->whole; i++) {
        struct value *y = graph_value(g, g->output.v[i]);
        bool is_code = op_of(g, 1)->props & OP_KEPT; /* kernels do not round what codes stand for */
        bool converts = (x && dtype_is_float(x->dtype) && x->dtype != y->dtype && !is_code) || str_is(n->op, "BitCast");
        if ((y->dtype == DT_F16 || y->dtype == DT_BF16) && !converts) y->dtype = DT_F32;
    }
}

static bool emit_plain(struct emit *m, struct kir *k, const struct graph *g, struct arena *a, struct err *e)
{
    const struct op *op = op_of(g, 1);
    if (!op_plain_kernel(m, k, g, a)) return err_set(e, ERR_UNSUPPORTED, "%s has no plain kernel", op->name);
    struct kir one = *k; /* wider vectors are interpreted faster */
    struct err none = {0};
    if (!op->whole && !kir_spread(k, a, &one, SPREAD, &none)) *k = one;
    return kir_verify(k, e);
}

struct runs { /* how kernels are run */
    enum kir_arithmetic arithmetic;
    u64 seed;
    i64 max_steps, *n_steps;
};

static bool run(const struct kir *k, const struct kir_arg *arg, const i64 *param, const struct runs *how, struct err *e)
{
    struct kir_eval_opts o = {.seed = how->seed, .arithmetic = how->arithmetic, .max_steps = how->max_steps, .n_steps = how->n_steps};
    return kir_eval(k, arg, param, &o, e);
}

struct bound { struct kir_arg *arg; i64 *param; }; /* arguments of a kernel */

static bool bind_kernel(const struct content *c, const struct kernel *k, struct bound *b, struct err *e)
{
    b->arg = arena_array(c->a, struct kir_arg, k->n_arg + 1);
    for (u32 i = 0; i < k->n_arg; i++)
        if (!bind_argument(c, &k->arg[i], &b->arg[i], e)) return false;
    return params_of(c, &k->kir, &b->param, e);
}

/* Runs a node by the kernel whose order of sums is guaranteed. *done: there is one. */
static bool run_ordered(const struct content *c, node_id n, const struct runs *how, bool *done, struct err *e)
{
    const struct graph *g = &c->t->g;
    struct content one = *c;
    struct task t;
    struct candidate cand;
    struct kernel k;
    struct bound b;
    value_id *back;
    enum layout *rows = arena_array(c->a, enum layout, g->value.n);
    *done = false;
    if (!c->ordered || !(op_of(g, n)->props & OP_CONV)) return true;
    for (value_id v = 0; v < g->value.n; v++) rows[v] = LAYOUT_ROWS;
    if (!task_make(&t, g, c->a, &n, 1, graph_node(g, n)->out.v, 1, rows, &back, e)) return false;
    if (!gen_order(&t, c->ordered, &cand)) return true;
    *done = true;
    one.t = &t;
    one.shape = arena_array(c->a, struct tensor, t.g.value.n);
    one.cell = arena_array(c->a, union kir_cell *, t.g.value.n);
    for (value_id v = 1; v < t.g.value.n; v++) one.shape[v] = c->shape[back[v]], one.cell[v] = c->cell[back[v]];
    if (!gen_kernel(&k, c->a, &cand, &t, c->ordered, e) || !bind_kernel(&one, &k, &b, e) || !run(&k.kir, b.arg, b.param, how, e)) return false;
    for (u32 i = 0; i < k.n_arg; i++) {
        value_id v = k.arg[i].v;
        struct place at;
        if (!k.arg[i].is_out) continue;
        if (!place_of(&at, &t.g, v, c->var)) unreachable(); /* was computed before */
        for (i64 x = 0, count = tensor_count(&one.shape[v]); x < count; x++)
            one.cell[v][x] = ((const union kir_cell *)b.arg[i].p)[place_flat(&at, &one.shape[v], x)];
    }
    return true;
}

static bool run_node(const struct content *c, node_id n, const struct runs *how, struct err *e)
{
    bool done;
    if (!run_ordered(c, n, how, &done, e) || done) return !e->code;
    struct graph g;
    struct kir k;
    struct emit m;
    i64 *param;
    value_id *back;
    if (exact_define(&(struct exact_values){&c->t->g, c->var, c->shape, c->cell, c->arithmetic}, n)) return true;
    extract_plain(&g, &c->t->g, n, &back, c->a);
    if (c->arithmetic == KIR_TERMS) keep_wide(&g);
    if (!emit_plain(&m, &k, &g, c->a, e) || !params_of(c, &k, &param, e)) return false;
    struct kir_arg *arg = arena_array(c->a, struct kir_arg, m.arg.n + 1);
    for (u32 i = 0; i < m.arg.n; i++) {
        value_id v = back[m.arg.v[i].v];
        arg[i] = (struct kir_arg){c->cell[v], tensor_count(&c->shape[v])};
    }
    return run(&k, arg, param, how, e);
}

static bool run_plain(const struct content *c, const struct runs *how, struct err *e)
{
    bool ok = true;
    for (node_id n = 1; n < c->t->g.node.n && ok; n++)
        if (!graph_node(&c->t->g, n)->dead) ok = run_node(c, n, how, e);
    return ok;
}

/* Comparing. */

static void put_cell(struct buf *b, enum dtype t, union kir_cell x)
{
    if (dtype_is_float(dtype_stored(t))) buf_printf(b, "%u", (u32)(u64)x.i);
    else buf_printf(b, "%lld", (long long)x.i);
}

/* An element as stored in memory. */
static union kir_cell stored(const struct content *c, enum dtype t, union kir_cell x)
{
    if (c->arithmetic == KIR_TERMS && dtype_is_float(t) && !dtype_is_small(t)) term_scalar(KI_CAST, DT_F64, t, (union kir_cell[3]){x}, &x);
    return x;
}

static bool compare_output(const struct content *c, value_id v, const union kir_cell *got, struct buf *why)
{
    const struct tensor *s = &c->shape[v];
    bool is_float = dtype_is_float(dtype_stored(s->dtype));
    i64 n = tensor_count(s), n_bad = 0, first = 0;
    struct place at;
    if (!place_of(&at, &c->t->g, v, c->var)) unreachable(); /* was computed before */
    for (i64 i = n; i-- > 0;) {
        union kir_cell x = got[place_flat(&at, s, i)], y = stored(c, s->dtype, c->cell[v][i]);
        if (is_float ? (c->arithmetic == KIR_TERMS ? term_equal : field_equal)(x, y) : x.i == y.i) continue;
        n_bad++, first = i;
    }
    if (!n_bad) return true;
    buf_printf(why, "%lld of %lld elements differ, first (", (long long)n_bad, (long long)n);
    for (u32 d = 0; d < s->rank; d++)
        buf_printf(why, "%s%lld", d ? "," : "", (long long)(first / i64_product(s->rank - d - 1, s->dim + d + 1) % s->dim[d]));
    buf_z(why, is_float ? "): residue " : "): ");
    put_cell(why, s->dtype, got[place_flat(&at, s, first)]);
    buf_z(why, ", expected ");
    put_cell(why, s->dtype, c->cell[v][first]);
    return false;
}

/* One evaluation. *same: equal, otherwise with a reason. false: not evaluated. A kernel that the
   interpreter rejects is not the same. */
static bool evaluate(const struct content *c, const struct kernel *k, const struct runs *how, bool *same, struct buf *why, struct err *e)
{
    struct bound b;
    struct err stopped = {0};
    *same = false;
    if (!bind_kernel(c, k, &b, e) || !run_plain(c, how, e)) return false;
    if (!run(&k->kir, b.arg, b.param, how, &stopped)) {
        if (strstr(stopped.msg, "too many steps")) return err_set(e, ERR_FAILED, "too long to be interpreted");
        buf_z(why, stopped.msg);
        return true;
    }
    *same = true;
    for (u32 i = 0; i < k->n_arg && *same; i++)
        if (k->arg[i].is_out) *same = compare_output(c, k->arg[i].v, b.arg[i].p, why);
    return true;
}

/* A node of constants only is computed, and rounded, when the kernel is generated. */
static bool has_constant_node(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        bool known = !x->dead;
        for (u32 i = 0; i < x->in.n && known; i++) {
            const struct value *v = x->in.v[i] ? graph_value(g, x->in.v[i]) : NULL;
            known = !v || v->data || v->sdata;
        }
        if (known) return true;
    }
    return false;
}

/* Names a step of the kernel whose result depends on rounding of its operands. */
static const char *step_in(const struct task *t, const struct kir *k)
{
    if (has_constant_node(&t->g)) return "arithmetic on constants";
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        enum dtype from = x->a ? (enum dtype)kir_at(k, x->a)->dtype : DT_NONE;
        if (x->op == KI_BITS && (dtype_is_float(from) || dtype_is_float(x->dtype))) return "bits of floats";
        if (!dtype_is_float(from)) continue;
        if (x->op == KI_RINT || x->op == KI_FLOOR || x->op == KI_CEIL || x->op == KI_TRUNC) return "rounding to integers";
        if (x->op == KI_CAST && !dtype_is_float(x->dtype)) return "conversion to integers";
    }
    return NULL;
}

/* Compares the same kernel in floating point with the evaluator. */
static bool within_tolerance(const struct task *t, const struct kernel *k, const i64 *var, const struct runs *how, struct buf *why)
{
    struct check c;
    struct arena a = {0};
    struct err e = {0};
    struct kir_arg *arg = arena_array(&a, struct kir_arg, k->n_arg + 1);
    i64 *param = NULL;
    if (!check_init(&c, t, var, how->seed, true, &e)) return false;
    bool ok = params_of(&(struct content){.a = &a, .t = t, .var = var}, &k->kir, &param, &e);
    for (u32 i = 0; i < k->n_arg && ok; i++) {
        const struct kernel_arg *x = &k->arg[i];
        struct tensor *p = x->pack ? pack_apply(x->pack, &c.value[x->v], t->g.sym, &a, &e) : NULL;
        struct place at;
        ok = place_of(&at, &t->g, x->v, var) && (p || !x->pack);
        if (!ok) break;
        i64 n = p ? tensor_count(p) : at.count;
        arg[i] = (struct kir_arg){p ? p->data : arena_alloc(&a, (n + 1) * dtype_size(graph_value(&t->g, x->v)->dtype)), n};
        const value_id of = x->is_out ? graph_value(&t->g, x->v)->shares : x->v;
        if (!p && of) place_store(&at, &c.value[of], arg[i].p);
    }
    ok = ok && run(&k->kir, arg, param, how, &e);
    for (u32 o = 0; o < t->g.output.n && ok; o++)
        for (u32 i = 0; i < k->n_arg && ok; i++)
            if (k->arg[i].is_out && k->arg[i].v == t->g.output.v[o]) ok = check_output(&c, o, arg[i].p, why);
    check_release(&c);
    arena_release(&a);
    return ok;
}

static void put_sizes(struct buf *b, const struct task *t, const i64 *var)
{
    const struct shape *s = &graph_value(&t->g, t->g.output.v[0])->shape;
    i64 dim[MAX_RANK];
    if (b->n) buf_z(b, ", ");
    if (!shape_eval(t->g.sym, s, var, dim)) return;
    for (u32 d = 0; d < s->rank; d++) buf_printf(b, "%s%lld", d ? "x" : "", (long long)dim[d]);
    if (!s->rank) buf_z(b, "scalar");
}

bool exact_compare(struct exact_result *r, const struct task *t, const struct kernel *k, const i64 *var, const struct exact_opts *o,
                   struct err *e)
{
    bool same = true, ok = true;
    enum kir_arithmetic arithmetic = o->ordered ? KIR_TERMS : KIR_FIELD;
    for (u32 i = 0; i < (o->once || o->ordered ? 1 : N_EVALUATIONS) && ok && same; i++) {
        struct arena a = {0};
        struct content c = {.a = &a, .arithmetic = arithmetic, .ordered = o->ordered, .t = t, .var = var};
        struct runs how = {.arithmetic = arithmetic, .seed = o->seed + 1 + i, .max_steps = 400000000, .n_steps = &r->n_steps};
        ok = content_init(&c, o->seed + i, e) && evaluate(&c, k, &how, &same, &r->why, e);
        arena_release(&a);
    }
    if (e->code == ERR_SYSTEM) return false;
    put_sizes(&r->sizes, t, var);
    if (!ok) { /* undecidable */
        r->verdict = EXACT_TOLERANCE;
        buf_z(&r->why, e->msg);
        *e = (struct err){0};
        return true;
    }
    if (same) return true;
    if (o->ordered) {
        r->verdict = EXACT_DIFFERS;
        return true;
    }
    const char *step = step_in(t, &k->kir);
    struct runs how = {.seed = o->seed + 1, .max_steps = 400000000, .n_steps = &r->n_steps};
    r->verdict = EXACT_DIFFERS;
    if (!step || !within_tolerance(t, k, var, &how, &r->why)) return true;
    r->verdict = EXACT_TOLERANCE;
    r->why.n = 0;
    buf_z(&r->why, step);
    return true;
}

/* Sizes. */

/* Non-temporal stores are legal for outputs that fill a part of the last-level cache. */
static struct caps small_caches(const struct caps *caps)
{
    struct caps c = *caps;
    c.l3_bytes = i64_min(c.l3_bytes, 256);
    return c;
}

static bool streams(const struct candidate *c)
{
    for (u32 i = 0; i < c->gen->n_param; i++)
        if (!strcmp(c->gen->param[i].name, "nt") && c->sched.v[i] == 1) return true;
    return false;
}

struct attempt { /* at one set of sizes */
    struct exact_result *r;
    const struct candidate *cand;
    const struct caps *caps;
    const struct exact_opts *o;
    double most, least; /* requested work; the least found, 0: none */
    bool done;          /* something was compared */
};

static bool attempt(struct attempt *x, const struct task *t, const struct kernel *k, const i64 *var, struct err *e)
{
    struct exact_opts once = *x->o;
    double work = exact_work(t, var);
    x->least = x->least > 0 ? fmin(x->least, work) : work;
    if (work > MAY_EXCEED_ONCE * x->most) return true;
    once.once |= work > MAY_EXCEED * x->most;
    x->r->n_steps += (i64)work;
    x->done = true;
    return exact_compare(x->r, t, k, var, &once, e);
}

/* Sizes near the guess that the task's nodes require of each other, too: what is compared while a program runs is no fact of the network, but one of the
   task alone. */
static i64 *sizes_of_task(const struct task *t, const i64 guess[2], struct arena *a)
{
    const struct symtab *st = t->g.sym;
    struct symtab own;
    struct task alone;
    struct err e = {0};
    i64 *var = exact_sizes(t->g.sym, guess, a);
    symtab_init(&own, a);
    if (!task_parse(&alone, a, &own, t->text, &e)) return var;
    const i64 *known = exact_sizes(&own, guess, a);
    bool *fixed = arena_array(a, bool, st->var.n + 1);
    for (u32 v = 0; v < st->var.n; v++)
        for (u32 k = 0; k < own.var.n && !fixed[v]; k++)
            if (str_eq(st->var.v[v], own.var.v[k])) var[v] = known[k], fixed[v] = true;
    sym_fact_adjust(st, var, fixed);
    return var;
}

/* A task that is only meaningful with the facts of its network, or with sizes that are compared while it runs, is evaluated at its own sizes. */
static bool attempt_whole(struct attempt *x, const struct task *t, const i64 guess[2], struct err *e)
{
    struct arena a = {0};
    struct kernel k;
    const i64 *var = sizes_of_task(t, guess, &a);
    bool ok = !exact_sizes_fit(t, var) || !task_fits(t, var) || (gen_kernel(&k, &a, x->cand, t, x->caps, e) && attempt(x, t, &k, var, e));
    arena_release(&a);
    return ok;
}

static bool try_sizes(struct attempt *x, const struct task *t, const i64 guess[2], struct exact_structure structure, struct err *e)
{
    const struct exact_reduce_opts o = {.cand = x->cand, .caps = x->caps, .structure = structure, .guess = guess, .most = x->most, .may = MAY_EXCEED * x->most, .limit = MAY_EXCEED_ONCE * x->most};
    struct exact_variant *v = exact_reduce(&o, t, &x->r->n_steps);
    if (!v) return attempt_whole(x, t, guess, e);
    bool ok = attempt(x, &v->task, &v->kernel, v->var, e);
    exact_variant_close(v);
    return ok;
}

static bool check_in_one(struct exact_result *r, const struct task *t, const struct candidate *c, const struct caps *caps, const struct exact_opts *o,
                         struct err *e)
{
    static const i64 guess[][2] = {{37, 43}, {80, 19}, {21, 18}, {13, 11}, {64, 48}, {128, 96}, {7, 5}, {3, 2}, {256, 192}};
    struct arena a = {0};
    struct kernel k;
    struct caps small = small_caches(caps);
    struct attempt x = {.r = r, .cand = c, .caps = streams(c) ? &small : caps, .o = o, .most = (double)(o->max_work ? o->max_work : EXACT_WORK)};
    struct exact_structure structure = {0};
    *r = (struct exact_result){0};
    bool ok = gen_kernel(&k, &a, c, t, caps, e);
    if (ok) structure = exact_structure_of(&k.kir);
    arena_release(&a);
    u32 n = t->g.sym->var.n ? countof(guess) : 1, n_done = 0, wanted = o->once ? 1 : 2;
    for (u32 i = 0; i < n && n_done < wanted && ok && r->verdict == EXACT_YES; i++) {
        ok = try_sizes(&x, t, guess[i], structure, e);
        n_done += x.done, x.done = false;
    }
    if (ok && !n_done) {
        r->verdict = EXACT_TOLERANCE;
        if (x.least > 0) buf_printf(&r->why, "%.0f million operations at the smallest sizes that keep all of its schedule", x.least / 1e6);
        else buf_z(&r->why, "its sizes cannot be chosen");
    }
    return ok;
}

bool exact_check(struct exact_result *r, const struct task *t, const struct candidate *c, const struct caps *caps, const struct exact_opts *o,
                 struct err *e)
{
    struct exact_opts in_order = *o;
    struct exact_result order = {0};
    bool ok = check_in_one(r, t, c, caps, o, e);
    if (!ok || !caps->deterministic || r->verdict == EXACT_DIFFERS) return ok;
    in_order.ordered = caps;
    ok = check_in_one(&order, t, c, caps, &in_order, e);
    r->n_steps += order.n_steps;
    if (ok && order.verdict == EXACT_DIFFERS) {
        r->verdict = EXACT_DIFFERS;
        r->why.n = 0;
        buf_printf(&r->why, "rounded in another order than guaranteed: %.*s", STR_ARG(buf_view(&order.why)));
    }
    exact_result_release(&order);
    return ok;
}
