// SPDX-License-Identifier: Apache-2.0
//
// The GEMM of a configuration as a task, and the configuration as a candidate of wg_gemm. Fields and
// parameters are matched by name (field.inc); the order of either does not matter.
#include "lab/lab.h"

#include "op/op.h"

#include <string.h>

static const char family[] = "wg_gemm";

/* The task. */

static value_id add_input(struct graph *g, const char *name, enum dtype type, const struct lab_config *c, i64 rows, i64 cols)
{
    value_id v = graph_add_value(g, str_of(name));
    struct value *x = graph_value(g, v);
    x->dtype = type;
    x->shape = (struct shape){.known = true, .rank = c->n_batch + 2};
    for (u32 i = 0; i < c->n_batch; i++) x->shape.dim[i] = sym_const(g->sym, c->batch[i]);
    x->shape.dim[c->n_batch] = sym_const(g->sym, rows);
    x->shape.dim[c->n_batch + 1] = sym_const(g->sym, cols);
    *arr_push(g->arena, &g->input) = v;
    return v;
}

/* Transposes the last two axes. */
static value_id add_transpose(struct graph *g, value_id v, u32 rank)
{
    i64 perm[MAX_RANK];
    value_id t = graph_op(g, "Transpose", S("at"), 1, &v);
    for (u32 i = 0; i < rank; i++) perm[i] = i;
    perm[rank - 2] = rank - 1, perm[rank - 1] = rank - 2;
    attr_set_ints(g, graph_value(g, t)->producer, "perm", perm, rank);
    return t;
}

void lab_graph(struct graph *g, const struct lab_config *c, enum dtype type)
{
    bool t = c->v[LF_TRANS], tf32 = type == DT_TF32;
    assert(c->kind == LAB_MM);
    if (tf32) type = DT_F32;
    value_id in[2] = {add_input(g, "a", type, c, t ? c->k : c->m, t ? c->m : c->k)};
    in[1] = add_input(g, "b", type, c, c->k, c->n);
    if (t) in[0] = add_transpose(g, in[0], c->n_batch + 2);
    value_id y = graph_op(g, "MatMul", S("y"), 2, in);
    if (tf32) attr_set_int(g, graph_value(g, y)->producer, "tf32", 1);
    *arr_push(g->arena, &g->output) = y;
}

bool lab_task(struct task *t, struct arena *a, struct symtab *st, const struct lab_config *c, enum dtype type, struct err *e)
{
    struct graph g = {0};
    graph_init(&g, a, st);
    lab_graph(&g, c, type);
    if (!op_infer_all(&g, e)) return false;
    enum layout *rows = arena_array(a, enum layout, g.value.n);
    node_id nodes[] = {1, 2};
    return task_make(t, &g, a, nodes, g.node.n - 1, g.output.v, 1, rows, NULL, e);
}

void lab_vendor_gemm(struct dev_gemm *p, const struct lab_config *c, enum dtype type)
{
    *p = (struct dev_gemm){.type = type, .a_transposed = c->v[LF_TRANS] != 0, .batch = 1, .m = c->m, .n = c->n, .k = c->k};
    for (u32 i = 0; i < c->n_batch; i++) p->batch *= c->batch[i];
}

/* The candidate. */

/* Values of parameters that names lack. Shared arrays have the operands' type; the left operand's is K-major. Other parameters have their
   first value, which has no effect. */
static i32 unsaid(const struct gen_param *p, const struct lab_config *c, enum dtype type)
{
    if (!strcmp(p->name, "half")) return dtype_size(type) == 2;
    if (!strcmp(p->name, "ta")) return !c->v[LF_TRANS];
    return p->values[0];
}

/* The field of this parameter; N_LAB_FIELDS: none. */
static u32 field_of(const struct gen_param *p)
{
    u32 f = 0;
    while (f < N_LAB_FIELDS && strcmp(lab_field(LAB_MM, f)->param, p->name)) f++;
    return f;
}

static bool has_value(const struct gen_param *p, i32 v)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] == v) return true;
    return false;
}

static bool has_param(const struct gen *g, const char *name)
{
    for (u32 i = 0; i < g->n_param; i++)
        if (!strcmp(g->param[i].name, name)) return true;
    return false;
}

static const struct gen *find_family(struct err *e)
{
    const struct gen *g = gen_find(S(family));
    if (!g) err_set(e, ERR_UNSUPPORTED, "no generator '%s'", family);
    for (u32 f = 0; g && f < N_LAB_FIELDS; f++)
        if (lab_field(LAB_MM, f)->param[0] && !has_param(g, lab_field(LAB_MM, f)->param)) {
            err_set(e, ERR_UNSUPPORTED, "generator '%s' has no parameter '%s'", family, lab_field(LAB_MM, f)->param);
            return NULL;
        }
    return g;
}

/* A parameter without a field has the value that names imply. */
static bool say_values(const struct gen_param *p, u32 f, i32 v, struct err *e)
{
    struct buf b = {0};
    for (u32 i = 0; i < p->n; i++) buf_printf(&b, "%s%d", i ? ", " : "", p->values[i]);
    err_set(e, ERR_UNSUPPORTED, "'%s%d': generator '%s' has %.*s for it", f < N_LAB_FIELDS ? lab_field(LAB_MM, f)->tag : p->name, v, family,
            STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

bool lab_fits(const struct lab_config *c, enum dtype type, const struct caps *caps, struct err *e)
{
    i64 threads = lab_threads(c), shared = lab_shared(c, dtype_size(type));
    if (threads > caps->max_group)
        return err_set(e, ERR_UNSUPPORTED, "groups of %lld threads, the device allows %u", (long long)threads, caps->max_group);
    return shared <= caps->shared_bytes || err_set(e, ERR_UNSUPPORTED, "%lld bytes of shared memory of a group, the device has %lld",
                                                   (long long)shared, (long long)caps->shared_bytes);
}

bool lab_candidate(struct candidate *x, const struct lab_config *c, enum dtype type, struct err *e)
{
    *x = (struct candidate){.gen = find_family(e)};
    if (!x->gen || !lab_config_check(c, e)) return false;
    for (u32 i = 0; i < x->gen->n_param; i++) {
        const struct gen_param *p = &x->gen->param[i];
        u32 f = field_of(p);
        x->sched.v[i] = f < N_LAB_FIELDS ? c->v[f] : unsaid(p, c, type);
        if (!has_value(p, x->sched.v[i])) return say_values(p, f, x->sched.v[i], e);
    }
    return true;
}

bool lab_config_of(struct lab_config *c, const struct candidate *x, const struct lab_config *like, enum dtype type)
{
    if (!str_is(str_of(x->gen->name), family)) return false;
    *c = *like;
    for (u32 i = 0; i < x->gen->n_param; i++) {
        u32 f = field_of(&x->gen->param[i]);
        if (f < N_LAB_FIELDS) c->v[f] = x->sched.v[i];
        else if (x->sched.v[i] != unsaid(&x->gen->param[i], c, type)) return false;
    }
    c->v[LF_BM] = c->v[LF_TM] * c->v[LF_WLY] * c->v[LF_BLY];
    c->v[LF_BN] = c->v[LF_TN] * c->v[LF_WLX] * c->v[LF_BLX];
    return lab_config_check(c, &(struct err){0});
}
