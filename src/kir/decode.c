// SPDX-License-Identifier: Apache-2.0
//
// decode.c: the interpreter's form of a kernel: cells instead of
// values, jumps instead of structure. Relies on a verified kernel.
#include "kir/eval.h"

struct decoder {
    struct eval_code_list *d;
    const struct kir *k;
    struct arena *arena;
    struct {
        u32 *v;
        u32 n, cap;
    } open; /* operations that wait for their END; grids: NO_OP */
    u32 n_grids_open;
};

static const u32 NO_OP = UINT32_MAX;

static struct eval_op *add_op(struct decoder *c, enum eval_code code, kval src)
{
    struct eval_op *o = arr_push(c->arena, &c->d->op);
    o->code = (u8)code;
    o->op = kir_at(c->k, src)->op;
    o->threads = c->d->n_threads;
    o->src = src;
    return o;
}

static void open_push(struct decoder *c, u32 op) { *arr_push(c->arena, &c->open) = op; }

static bool mixes_lanes(enum kir_op op)
{
    return op == KI_SPLAT || op == KI_RAMP || op == KI_LANE || op == KI_HADD || op == KI_HMIN ||
           op == KI_HMAX || op == KI_DOT || op == KI_MMLA || op == KI_HALVES || op == KI_ZIP;
}

static void decode_pure(struct decoder *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    const struct kir_ins *a = kir_at(c->k, x->op == KI_SELECT ? x->b : x->a);
    bool is_group = kir_is_collective(c->k, v), is_shape = mixes_lanes(x->op);
    struct eval_op *o = add_op(c, is_group ? EC_GROUP : is_shape ? EC_SHAPE : EC_PURE, v);
    if (!is_group) o->fn = eval_find_of(c->d->arithmetic, x->op, a->dtype, x->dtype);
    o->imm = x->imm.i;
    o->lanes = x->lanes;
    o->lanes_a = a->lanes;
    o->from = a->dtype;
    o->to = x->dtype;
    o->r = c->d->cell[v];
    o->a = c->d->cell[x->a];
    o->b = c->d->cell[x->b];
    o->c = c->d->cell[x->c];
}

static void decode_memory(struct decoder *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    bool is_load = x->op == KI_LOAD, is_group = kir_is_collective(c->k, v);
    struct eval_op *o = add_op(c, is_group ? EC_GROUP : is_load ? EC_LOAD : kir_is_copy(c->k, v) ? EC_COPY : EC_STORE, v);
    o->lanes = kir_at(c->k, x->b)->lanes;
    o->r = c->d->cell[v];
    o->a = c->d->cell[x->a];
    o->b = c->d->cell[x->b];
    o->c = c->d->cell[x->c]; /* LOAD: count of lanes; FLOAD: pitch; STORE, FSTORE: value */
    o->d = c->d->cell[x->d]; /* STORE: count of lanes; FSTORE: pitch; FLOAD: distance of panels */
}

static void decode_grid(struct decoder *c, kval v)
{
    if (!c->n_grids_open++) *arr_push(c->arena, &c->d->grid) = (struct eval_grid){0};
    struct eval_grid *g = &c->d->grid.v[c->d->grid.n - 1];
    g->index[g->n_dims] = c->d->cell[v];
    g->extent[g->n_dims++] = c->d->cell[kir_at(c->k, v)->a];
    g->begin = c->d->op.n;
    open_push(c, NO_OP);
}

static void decode_loop(struct decoder *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    open_push(c, c->d->op.n);
    struct eval_op *o = add_op(c, EC_LOOP, v);
    o->r = c->d->cell[v];
    o->a = c->d->cell[x->a];
    o->b = c->d->cell[x->b];
    o->imm = kir_at(c->k, x->c)->imm.i;
}

static void decode_if(struct decoder *c, kval v)
{
    open_push(c, c->d->op.n);
    struct eval_op *o = add_op(c, EC_IF, v);
    o->a = c->d->cell[kir_at(c->k, v)->a];
}

static void decode_tile(struct decoder *c, kval v)
{
    const struct kir_ins *x = kir_at(c->k, v);
    struct eval_op *o = add_op(c, EC_TILE, v);
    o->imm = x->imm.i;
    o->a = c->d->cell[x->a], o->b = c->d->cell[x->b];
    o->c = c->d->cell[x->c], o->d = c->d->cell[x->d];
}

static void decode_else(struct decoder *c, kval v)
{
    u32 head = c->open.v[c->open.n - 1];
    c->open.v[c->open.n - 1] = c->d->op.n;
    c->d->op.v[head].jump = c->d->op.n;
    struct eval_op *o = add_op(c, EC_ELSE, v);
    o->a = c->d->op.v[head].a;
}

static void decode_end(struct decoder *c, kval v)
{
    u32 head = c->open.v[--c->open.n];
    if (head == NO_OP) {
        if (!--c->n_grids_open) add_op(c, EC_STOP, v);
        return;
    }
    if (c->d->op.v[head].code == EC_LOOP) {
        struct eval_op next = c->d->op.v[head];
        next.code = EC_NEXT;
        next.jump = head + 1;
        *add_op(c, EC_NEXT, v) = next;
        c->d->op.v[head].jump = c->d->op.n;
    } else {
        c->d->op.v[head].jump = c->d->op.n;
        add_op(c, EC_ENDIF, v);
    }
}

static void decode_ins(struct decoder *c, kval v)
{
    switch (kir_at(c->k, v)->op) {
    case KI_CONST:
    case KI_PARAM:
    case KI_THREAD:
    case KI_SUBGROUP:
    case KI_PREFETCH:
    case KI_BUF: break;
    case KI_ALLOC:
        if (kir_at(c->k, v)->aux != KS_TEMP) add_op(c, EC_ALLOC, v)->a = c->d->cell[v];
        break;
    case KI_LOAD:
    case KI_STORE:
    case KI_FLOAD:
    case KI_FSTORE: decode_memory(c, v); break;
    case KI_TILE: decode_tile(c, v); break;
    case KI_GRID: decode_grid(c, v); break;
    case KI_LOOP: decode_loop(c, v); break;
    case KI_IF: decode_if(c, v); break;
    case KI_ELSE: decode_else(c, v); break;
    case KI_END: decode_end(c, v); break;
    case KI_BARRIER: add_op(c, EC_BARRIER, v); break;
    case KI_AWAIT: add_op(c, EC_AWAIT, v)->imm = kir_at(c->k, v)->imm.i; break;
    case KIR_NO_OP: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS: case KIR_SG_REDUCTIONS:
    case KI_SHUFFLE: case KI_FILL: case KI_FMMA: decode_pure(c, v); break;
    }
}

/* Places of values. */
static bool assign_cells(struct eval_code_list *d, const struct kir *k, struct arena *a)
{
    d->cell = arena_array(a, u32, k->ins.n);
    *arr_push(a, &d->array) = 0;
    d->n_cells = d->n_threads; /* the first ones: none */
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op == KI_BUF || x->op == KI_ALLOC) {
            d->cell[v] = d->array.n;
            *arr_push(a, &d->array) = v;
        } else if (x->role) {
            d->cell[v] = (u32)d->n_frag_cells;
            d->n_frag_cells += (i64)x->rows * x->cols * d->n_holders;
        } else if (x->dtype != DT_NONE) {
            d->cell[v] = (u32)d->n_cells;
            d->n_cells += (i64)x->lanes * d->n_threads;
        }
        if (d->n_cells > INT32_MAX || d->n_frag_cells > INT32_MAX) return false;
    }
    return true;
}

bool eval_decode(struct eval_code_list *d, const struct kir *k, struct arena *a)
{
    struct decoder c = {.d = d, .k = k, .arena = a};
    if (!assign_cells(d, k, a)) return false;
    for (kval v = 1; v < k->ins.n; v++) decode_ins(&c, v);
    return true;
}
