// SPDX-License-Identifier: Apache-2.0
//
// verify.c: checks the invariants of kir.h. It assumes nothing,
// so it can check the parser's result from an untrusted text;
// all other code relies on its checks and may assert them.
//
// One traversal: a stack of open structures, and for every instruction whether it is in scope.
#include "kir/kir.h"

#include <string.h>

struct checker {
    const struct kir *k;
    struct err *e;
    kval v; /* the current instruction */
    const struct kir_ins *x;
    u8 *visible;       /* per instruction */
    struct open *open; /* stack of open structures */
    u32 n_open;
    u32 n_grid;     /* open GRIDs */
    bool grid_done; /* inner GRID just ended: only END may follow */
    bool body;      /* the innermost open GRID has a body already */
};

struct open {
    kval head;
    kval first; /* values that leave scope with it */
    bool has_else;
};

static bool bad(struct checker *c, const char *what)
{
    return err_set(c->e, ERR_INPUT, "kernel '%.*s': %s at '%s' (instruction %u, %%%u)",
                   STR_ARG(c->k->name), what, kir_op_info(c->x->op)->name, c->v,
                   kir_text_id(c->k, c->v));
}

#define NEED(cond, what)                                                                           \
    do {                                                                                           \
        if (!(cond)) return bad(c, (what));                                                        \
    } while (0)

static bool is_lanes(u32 n) { return n >= 1 && n <= 64 && (n & (n - 1)) == 0; }

static const struct kir_ins *arg(const struct checker *c, kval v) { return kir_at(c->k, v); }

static bool is_array(const struct kir_ins *x) { return x->op == KI_BUF || x->op == KI_ALLOC; }

static bool is_index(const struct kir_ins *x) { return x->dtype == DT_I64 && x->lanes == 1; }

static bool is_size(const struct kir_ins *x)
{
    return is_index(x) && (x->op == KI_CONST || x->op == KI_PARAM);
}

static bool is_half(u8 t) { return t == DT_F16 || t == DT_BF16; }

static bool is_scalar(const struct kir_ins *x) { return x->lanes == 1 && !x->role; }

static bool is_same_shape(const struct kir_ins *x, const struct kir_ins *y)
{
    return x->role == y->role && x->rows == y->rows && x->cols == y->cols;
}

/* Operands. */

static bool is_access(enum kir_op op)
{
    return op == KI_LOAD || op == KI_STORE || op == KI_PREFETCH || op == KI_FLOAD ||
           op == KI_FSTORE || op == KI_TILE;
}

/* Whether operand i of an operator may be a fragment, or an array of them. */
static bool takes_frag(enum kir_op op, u32 i)
{
    switch (op) {
    case KI_FMMA:
    case KI_ADD:
    case KI_MUL:
    case KI_CAST: return true;
    case KI_LOAD: return i == 0;
    case KI_STORE: return i == 0 || i == 2;
    case KI_FSTORE: return i == 2;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KI_BITS: case KIR_UNARY: case KI_SUB:
    case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS:
    case KI_SELECT: case KIR_ARRAYS: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL:
    case KIR_SYNC: case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FILL: case KI_FLOAD: return false;
    default: unreachable();
    }
}

static bool check_operands(struct checker *c)
{
    u32 n = kir_op_info(c->x->op)->n_args;
    for (u32 i = 0; i < 4; i++) {
        kval v = kir_operand(c->x, i);
        if (i >= n) {
            NEED(!v, "too many operands");
            continue;
        }
        bool is_optional = (c->x->op == KI_LOAD && i == 2) || ((c->x->op == KI_STORE || c->x->op == KI_FLOAD) && i == 3);
        if (!v && is_optional) continue;
        NEED(v && v < c->v, "operand does not precede its use");
        NEED(c->visible[v], "operand is not in scope");
        bool wants_array = i == 0 && is_access(c->x->op);
        NEED(wants_array == is_array(arg(c, v)),
             wants_array ? "operand is not an array" : "operand is an array");
        NEED(arg(c, v)->dtype != DT_NONE, "operand has no value");
        NEED(!arg(c, v)->role || takes_frag(c->x->op, i), "operand is a fragment");
    }
    return true;
}

/* Types. */

static bool dtype_fits(enum kir_op op, enum dtype t)
{
    bool is_float = dtype_is_float(t), is_int = dtype_is_int(t);
    switch (op) {
    case KI_NOT:
    case KIR_LOGIC: return !is_float;
    case KIR_SHIFTS: return is_int;
    case KI_EQ:
    case KI_NE: return true;
    case KI_NEG:
    case KI_ABS:
    case KIR_ARITHMETIC:
    case KI_FMA:
    case KI_LT:
    case KI_LE:
    case KIR_HORIZONTAL:
    case KIR_SG_REDUCTIONS: return is_float || is_int;
    case KIR_NO_OP: case KIR_LEAVES: case KI_RAMP: case KI_SPLAT: case KI_LANE: case KI_HALVES: case KI_ZIP:
    case KIR_CONVERSIONS: case KIR_FUNCTIONS: case KIR_ROUNDING: case KIR_CLASSIFYING:
    case KIR_DOTS: case KI_SELECT: case KIR_STRUCTURE: case KI_SHUFFLE: case KIR_FRAGMENTS: return is_float;
    default: unreachable();
    }
}

static bool check_arithmetic(struct checker *c)
{
    const struct kir_op_info *info = kir_op_info(c->x->op);
    const struct kir_ins *a = arg(c, c->x->a);
    for (u32 i = 1; i < info->n_args; i++) {
        const struct kir_ins *b = arg(c, kir_operand(c->x, i));
        NEED(b->dtype == a->dtype && b->lanes == a->lanes && is_same_shape(a, b),
             "operands of different types");
    }
    NEED(dtype_fits(c->x->op, a->dtype), "operation does not exist for this type");
    NEED(!is_half(a->dtype) || a->role, "arithmetic on a storage type");
    NEED(!a->role || a->role == KR_ACC, "arithmetic on a fragment that does not accumulate");
    NEED(c->x->dtype == (info->rule == 'B' ? DT_BOOL : a->dtype) && c->x->lanes == a->lanes &&
             is_same_shape(c->x, a),
         "wrong result type");
    return true;
}

static bool check_const(struct checker *c)
{
    const struct kir_ins *x = c->x;
    if (dtype_is_float(x->dtype))
        NEED(x->imm.f != x->imm.f || kir_round(x->dtype, x->imm.f) == x->imm.f,
             "constant does not fit its type");
    else NEED(kir_wrap(x->dtype, x->imm.i) == x->imm.i, "constant does not fit its type");
    return true;
}

static bool check_shape_op(struct checker *c)
{
    const struct kir_ins *x = c->x, *a = arg(c, x->a);
    switch (x->op) {
    case KI_RAMP:
        NEED(is_index(a) && x->dtype == DT_I64 && x->lanes > 1, "ramp needs an i64 base and lanes");
        NEED(x->imm.i, "ramp of stride 0");
        return true;
    case KI_SPLAT:
        NEED(a->lanes < x->lanes && a->dtype == x->dtype, "splat needs fewer lanes of its type");
        NEED(a->lanes == 1 || x->dtype != DT_BOOL, "splat of a vector of truth values");
        return true;
    case KI_LANE:
        NEED(a->lanes > x->lanes && a->dtype == x->dtype, "wrong result type");
        NEED(x->lanes == 1 || x->dtype != DT_BOOL, "some lanes of a vector of truth values");
        NEED(x->imm.i >= 0 && x->imm.i < a->lanes / x->lanes, "no such lane");
        return true;
    case KI_HALVES:
        NEED(a->lanes == x->lanes && a->dtype == x->dtype && arg(c, x->b)->lanes == x->lanes && arg(c, x->b)->dtype == x->dtype, "operands of different types");
        NEED(x->lanes > 1 && x->dtype != DT_BOOL, "halves of a scalar or of truth values");
        NEED(x->imm.i == 0 || x->imm.i == 1, "no such half");
        return true;
    case KI_ZIP:
        NEED(arg(c, x->b)->lanes == a->lanes && a->dtype == x->dtype && arg(c, x->b)->dtype == x->dtype, "operands of different types");
        NEED(a->lanes > 1 && x->lanes > 1 && x->lanes <= 2 * a->lanes && x->dtype != DT_BOOL, "zip of scalars or of truth values, or too few lanes");
        NEED(x->imm.i >= 0 && x->imm.i < 2 * a->lanes && x->imm.i % x->lanes == 0, "no such lanes");
        return true;
    case KIR_HORIZONTAL:
        NEED(dtype_fits(x->op, a->dtype) && !is_half(a->dtype),
             "operation does not exist for this type");
        NEED(x->lanes == 1 && a->dtype == x->dtype && a->lanes > 1, "wrong type");
        return true;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANEWISE: case KIR_DOTS: case KIR_STRUCTURE:
    case KIR_COLLECTIVES:
    default: unreachable();
    }
}

static bool check_convert(struct checker *c)
{
    const struct kir_ins *x = c->x, *a = arg(c, x->a);
    NEED(x->lanes == a->lanes && is_same_shape(x, a), "wrong result type");
    NEED(!a->role || (a->role == KR_ACC && x->dtype != DT_BOOL),
         "cast of a fragment that does not accumulate");
    if (x->op == KI_BITS)
        NEED(dtype_size(x->dtype) == dtype_size(a->dtype) && x->dtype != DT_BOOL &&
                 a->dtype != DT_BOOL,
             "types of different size");
    return true;
}

static bool check_dot(struct checker *c)
{
    const struct kir_ins *x = c->x, *a = arg(c, x->a), *b = arg(c, x->b), *s = arg(c, x->c);
    u32 terms = kir_dot_terms(a->dtype, b->dtype, s->dtype);
    NEED(terms, "operation does not exist for these types");
    NEED(a->lanes == b->lanes && a->lanes == terms * s->lanes, "operands of different lanes");
    NEED(x->op == KI_DOT || s->lanes == 4, "sums that are no matrix of 2x2");
    NEED(x->dtype == s->dtype && x->lanes == s->lanes, "wrong result type");
    return true;
}

static bool check_select(struct checker *c)
{
    const struct kir_ins *x = c->x, *p = arg(c, x->a), *a = arg(c, x->b), *b = arg(c, x->c);
    NEED(p->dtype == DT_BOOL && p->lanes == x->lanes, "condition is not a bool of the same lanes");
    NEED(a->dtype == x->dtype && b->dtype == x->dtype, "operands of different types");
    NEED(a->lanes == x->lanes && b->lanes == x->lanes, "operands of different types");
    return true;
}

/* Memory. */

static bool check_access(struct checker *c, kval n, u32 *lanes)
{
    const struct kir_ins *p = arg(c, c->x->a), *i = arg(c, c->x->b);
    NEED(c->n_grid, "memory access outside a grid");
    NEED(i->dtype == DT_I64, "index is not i64");
    NEED(p->lanes == 1 || i->lanes == 1, "vector index into an array of vectors");
    *lanes = (u32)p->lanes * i->lanes;
    if (!n) return true;
    NEED(p->lanes == 1 && !p->role && (i->lanes == 1 || i->op == KI_RAMP),
         "partial access without a ramp");
    NEED(is_index(arg(c, n)), "lane count is not i64");
    return true;
}

static bool check_load(struct checker *c)
{
    u32 lanes;
    if (!check_access(c, c->x->c, &lanes)) return false;
    const struct kir_ins *p = arg(c, c->x->a);
    NEED(c->x->dtype == p->dtype && c->x->lanes == lanes && is_same_shape(c->x, p),
         "wrong result type");
    return true;
}

/* A store that may complete later. */
static bool check_copy(struct checker *c)
{
    const struct kir_ins *p = arg(c, c->x->a), *val = arg(c, c->x->c);
    NEED(p->op == KI_ALLOC && p->aux == KS_SHARED && !c->x->d,
         "copy to anything but all of a piece of a shared array");
    NEED(val->op == KI_LOAD && kir_is_far(arg(c, val->a)), "copy of anything but a load of an argument or a temp array");
    NEED(kir_is_contiguous(c->k, c->x->b) && kir_is_contiguous(c->k, val->b), "copy of scattered elements");
    return true;
}

static bool check_store(struct checker *c)
{
    u32 lanes;
    if (!check_access(c, c->x->d, &lanes)) return false;
    const struct kir_ins *p = arg(c, c->x->a), *val = arg(c, c->x->c);
    NEED(p->op != KI_BUF || p->aux != KA_IN, "store to a read-only buffer");
    NEED(val->dtype == p->dtype && val->lanes == lanes && is_same_shape(val, p),
         "value of the wrong type");
    NEED(c->x->aux <= KW_STREAM, "unknown way to store");
    NEED(c->x->aux != KW_STREAM || kir_is_far(p), "stream to anything but an argument or a temp array");
    return c->x->aux != KW_COPY || check_copy(c);
}

/* Subgroup operations. */

static bool check_collective(struct checker *c)
{
    const struct kir_ins *x = c->x, *a = arg(c, x->a);
    NEED(c->n_grid, "threads outside a grid");
    if (x->op == KI_FILL) {
        NEED(x->role && x->dtype == a->dtype && is_scalar(a) && x->dtype != DT_BOOL,
             "fill needs a scalar of its type");
        return true;
    }
    NEED(is_scalar(a) && is_scalar(x) && x->dtype == a->dtype, "operand is not a scalar of its type");
    if (x->op == KI_SHUFFLE) {
        NEED(is_index(arg(c, x->b)), "thread number is not an i64 scalar");
        return true;
    }
    NEED(dtype_fits(x->op, a->dtype) && !is_half(a->dtype),
         "operation does not exist for this type");
    return true;
}

static bool check_mma(struct checker *c)
{
    const struct kir_ins *x = c->x, *a = arg(c, x->a), *b = arg(c, x->b), *s = arg(c, x->c);
    NEED(a->role == KR_A && b->role == KR_B && s->role == KR_ACC, "operand of another role");
    NEED(a->cols == b->rows && a->rows == s->rows && b->cols == s->cols,
         "operands of different shapes");
    bool is_float = dtype_is_float(s->dtype);
    NEED(dtype_is_float(a->dtype) == is_float && dtype_is_float(b->dtype) == is_float,
         "operands of different kinds");
    NEED(x->dtype == s->dtype && is_same_shape(x, s), "wrong result type");
    return true;
}

/* FLOAD, FSTORE of a thread's own elements. */
static bool check_own_access(struct checker *c, const struct kir_ins *frag, const struct kir_ins *array)
{
    bool is_half_a = frag->role == KR_A && (frag->dtype == DT_F16 || frag->dtype == DT_BF16);
    NEED(!array->role && c->k->subgroup == KIR_OWN_SUBGROUP, "a thread's elements of a fragment, without subgroups of 32");
    NEED((frag->role == KR_ACC || is_half_a) && frag->rows == KIR_OWN_ROWS * kir_warpgroup(c->k) && frag->cols % KIR_OWN_COLS == 0,
         "a thread's elements of a fragment in unknown order");
    NEED(frag->dtype == array->dtype && (c->x->aux == KF_ROWS || c->x->aux == KF_COLUMNS), "fragment of the wrong type or order");
    NEED(array->lanes == 1 || (array->lanes == 2 && c->x->aux == KF_ROWS), "a thread's elements in vectors that are no pairs of columns");
    NEED(c->x->op == KI_FSTORE || !c->x->d, "a thread's elements in panels");
    return true;
}

/* FLOAD, FSTORE */
static bool check_frag_access(struct checker *c, const struct kir_ins *frag, kval pitch)
{
    const struct kir_ins *p = arg(c, c->x->a);
    NEED(c->n_grid, "memory access outside a grid");
    if (kir_is_own(c->k, c->x)) {
        NEED(is_index(arg(c, c->x->b)) && is_index(arg(c, pitch)), "index or pitch is not an i64 scalar");
        return check_own_access(c, frag, p);
    }
    NEED(p->op == KI_BUF || p->aux == KS_SHARED || p->aux == KS_TEMP || (p->aux == KS_WORK && kir_is_alone(c->k)),
         "fragment in memory of one thread");
    NEED(is_index(arg(c, c->x->b)) && is_index(arg(c, pitch)), "index or pitch is not an i64 scalar");
    NEED(frag->role && kir_frag_stored(frag->dtype) == p->dtype, "fragment of the wrong type");
    NEED(c->x->aux <= KF_GROUPS, "unknown order of elements");
    if (c->x->aux == KF_GROUPS) {
        u32 group = kir_frag_group(p->dtype);
        NEED(c->x->op == KI_FLOAD && frag->role == KR_B && !c->x->d && kir_is_alone(c->k), "groups of anything but a right operand of one thread");
        NEED(group && frag->rows % group == 0, "rows are no whole groups");
    }
    NEED(c->x->op == KI_FSTORE || !c->x->d || is_index(arg(c, c->x->d)), "distance of panels is not an i64 scalar");
    NEED(c->x->op == KI_FLOAD || p->op != KI_BUF || p->aux != KA_IN, "store to a read-only buffer");
    return true;
}

static bool check_prefetch(struct checker *c)
{
    NEED(c->n_grid, "memory access outside a grid");
    NEED(kir_is_far(arg(c, c->x->a)), "prefetch from neither an argument nor a temp array");
    NEED(is_index(arg(c, c->x->b)), "index is not an i64 scalar");
    NEED(c->x->aux <= KC_SECOND, "unknown cache");
    return true;
}

static bool check_tile(struct checker *c)
{
    const struct kir_ins *x = c->x, *p = arg(c, x->a);
    NEED(c->n_grid, "memory access outside a grid");
    NEED(x->imm.i >= 0 && x->imm.i < c->k->map.n, "no such matrix");
    const struct kir_buf *from = &c->k->buf.v[c->k->map.v[x->imm.i].buf];
    NEED(p->op == KI_ALLOC && p->aux == KS_SHARED && p->dtype == arg(c, from->id)->dtype, "tile to anything but a shared array of its type");
    NEED(is_index(arg(c, x->b)) && is_index(arg(c, x->c)) && is_index(arg(c, x->d)), "index is not an i64 scalar");
    return true;
}

static bool check_alloc(struct checker *c)
{
    const struct kir_ins *x = c->x, *count = arg(c, x->a);
    bool in_grid = c->n_grid > 0, direct = c->n_open == c->n_grid;
    NEED(x->aux <= KS_TEMP, "unknown memory space");
    NEED(is_size(count), "size is neither constant nor parameter");
    NEED(!x->imm.i || (x->imm.i == 1 && x->aux == KS_SHARED), "swizzled array that is not shared");
    i64 n;
    if (kir_is_const(c->k, x->a, &n)) NEED(n >= 0 && n <= (i64)1 << 40, "invalid size");
    switch ((enum kir_space)x->aux) {
    case KS_REG:
        NEED(in_grid && count->op == KI_CONST, "reg array outside a grid or of unknown size");
        NEED(n <= 1 << 20, "reg array too large");
        NEED(!x->role || x->dtype != DT_BOOL, "fragments of truth values");
        return true;
    case KS_WORK:
    case KS_SHARED: NEED(in_grid && direct, "work array not directly in a grid"); break;
    case KS_TEMP: NEED(!c->n_open, "temp array inside a grid"); break;
    }
    NEED(x->lanes == 1 && !x->role, "array of vectors or fragments outside registers");
    return true;
}

static bool check_buf(struct checker *c)
{
    const struct kir *k = c->k;
    i64 i = c->x->imm.i;
    NEED(!c->n_open, "buffer inside a grid");
    NEED(i >= 0 && i < k->buf.n && k->buf.v[i].id == c->v, "buffer and argument list disagree");
    NEED(c->x->aux <= KA_INOUT && c->x->lanes == 1, "invalid buffer");
    return true;
}

/* Structure. */

static bool is_leaf(enum kir_op op) { return op == KI_CONST || op == KI_PARAM; }

static bool open_push(struct checker *c)
{
    NEED(c->n_open < 64, "structures nested too deep");
    c->open[c->n_open++] = (struct open){.head = c->v, .first = c->v};
    return true;
}

static bool check_grid(struct checker *c)
{
    NEED(c->n_open == c->n_grid && c->n_grid < 3,
         "grid inside another structure or deeper than three");
    NEED(!c->body, "grid after other instructions of a grid");
    NEED(is_size(arg(c, c->x->a)) && is_index(c->x),
         "grid extent is neither constant nor parameter");
    c->n_grid++;
    return open_push(c);
}

static bool check_loop(struct checker *c)
{
    const struct kir_ins *x = c->x;
    i64 step;
    NEED(x->aux <= KL_VECTOR, "unknown kind of loop");
    NEED(is_index(arg(c, x->a)) && is_index(arg(c, x->b)) && is_index(x),
         "loop bound is not an i64 scalar");
    NEED(is_index(arg(c, x->c)) && kir_is_const(c->k, x->c, &step) && step > 0,
         "loop step is not a positive constant");
    NEED(c->n_grid, "loop outside a grid");
    return open_push(c);
}

static bool check_if(struct checker *c)
{
    NEED(arg(c, c->x->a)->dtype == DT_BOOL && arg(c, c->x->a)->lanes == 1, "condition is not a bool");
    NEED(c->n_grid, "if outside a grid");
    return open_push(c);
}

static void hide_from(struct checker *c, kval first)
{
    memset(c->visible + first, 0, c->v - first);
}

static bool check_else(struct checker *c)
{
    struct open *o = c->n_open ? &c->open[c->n_open - 1] : NULL;
    NEED(o && arg(c, o->head)->op == KI_IF && !o->has_else, "else without if");
    hide_from(c, o->first);
    o->first = c->v;
    o->has_else = true;
    return true;
}

static bool check_end(struct checker *c)
{
    NEED(c->n_open, "end without a structure");
    struct open *o = &c->open[--c->n_open];
    hide_from(c, o->first);
    if (arg(c, o->head)->op != KI_GRID) return true;
    c->n_grid--;
    c->grid_done = c->n_grid > 0;
    c->body = c->n_grid > 0;
    return true;
}

static bool check_barrier(struct checker *c)
{
    NEED(c->n_grid, "barrier outside a grid");
    for (u32 i = 0; i < c->n_open; i++)
        NEED(arg(c, c->open[i].head)->op != KI_IF, "barrier inside if");
    return true;
}

static bool check_place(struct checker *c)
{
    enum kir_op op = c->x->op;
    NEED(!c->grid_done || op == KI_END, "instruction after an inner grid");
    bool is_outer = op == KI_BUF || op == KI_GRID || op == KI_ALLOC || is_leaf(op);
    NEED(c->n_open || is_outer, "instruction outside a grid");
    return true;
}

static bool check_rules(struct checker *c)
{
    const struct kir_ins *x = c->x;
    switch (x->op) {
    case KI_CONST: return check_const(c);
    case KI_PARAM:
        NEED(is_index(x) && x->imm.i >= 0 && x->imm.i < c->k->param.n, "no such parameter");
        return true;
    case KI_SUBGROUP:
        NEED(is_index(x) && (x->imm.i == 0 || x->imm.i == 1), "no such number of a subgroup");
        return true;
    case KIR_SG_REDUCTIONS:
    case KI_SHUFFLE:
    case KI_FILL: return check_collective(c);
    case KI_FMMA: return check_mma(c);
    case KI_FLOAD: return check_frag_access(c, x, x->c);
    case KI_FSTORE: return check_frag_access(c, arg(c, x->c), x->d);
    case KI_THREAD:
        NEED(is_index(x) && x->imm.i >= 0 && x->imm.i < 3, "no such dimension");
        return true;
    case KIR_LANES: return check_shape_op(c);
    case KI_CAST:
    case KI_BITS: return check_convert(c);
    case KIR_DOTS: return check_dot(c);
    case KI_SELECT: return check_select(c);
    case KI_BUF: return check_buf(c);
    case KI_ALLOC: return check_alloc(c);
    case KI_LOAD: return check_load(c);
    case KI_STORE: return check_store(c);
    case KI_PREFETCH: return check_prefetch(c);
    case KI_TILE: return check_tile(c);
    case KI_GRID: return check_grid(c);
    case KI_LOOP: return check_loop(c);
    case KI_IF: return check_if(c);
    case KI_ELSE: return check_else(c);
    case KI_END: return check_end(c);
    case KI_BARRIER: return check_barrier(c);
    case KI_AWAIT:
        NEED(c->n_grid && x->imm.i >= 0 && x->imm.i <= 64, "invalid await");
        return true;
    case KIR_NO_OP: case KIR_UNARY: case KIR_BINARY: case KI_FMA: return check_arithmetic(c);
    default: unreachable();
    }
}

/* Types of fragments occur only where the operators' rules compare or require them. */
static bool check_frag_type(struct checker *c)
{
    const struct kir_ins *x = c->x;
    NEED(x->role <= KR_ACC && (x->role != 0) == (x->rows != 0) && (x->role != 0) == (x->cols != 0),
         "invalid fragment");
    NEED(x->dtype != DT_TF32 || x->role == KR_A || x->role == KR_B, "tf32 other than as an operand of fmma");
    if (!x->role) return true;
    NEED(x->lanes == 1 && x->rows <= KIR_MAX_SIDE && x->cols <= KIR_MAX_SIDE, "invalid fragment");
    bool is_array = x->op == KI_ALLOC || x->op == KI_LOAD;
    NEED(is_array || x->op == KI_FILL || x->op == KI_FLOAD || x->op == KI_FMMA ||
             takes_frag(x->op, 0),
         "result cannot be a fragment");
    return true;
}

static bool check_ins(struct checker *c)
{
    const struct kir_ins *x = c->x;
    bool has_value = kir_op_info(x->op)->rule != 'V';
    NEED(x->op != KI_NONE, "no instruction");
    NEED((x->dtype < N_DTYPES || x->dtype == DT_TF32) && !dtype_is_small(x->dtype) && (x->dtype != DT_NONE) == has_value, "wrong result type");
    NEED(!has_value || is_lanes(x->lanes), "invalid number of lanes");
    if (!check_frag_type(c) || !check_place(c) || !check_operands(c) || !check_rules(c))
        return false;
    c->visible[c->v] = has_value;
    if (!is_leaf(x->op) && x->op != KI_GRID && x->op != KI_END) c->body = c->n_grid > 0;
    else if (x->op == KI_END && !c->n_grid) c->grid_done = c->body = false;
    return true;
}

/* The header. */

static bool is_word(struct str s)
{
    for (i64 i = 0; i < s.n; i++) {
        char ch = s.p[i];
        bool is_letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
        if (!is_letter && !(i && ch >= '0' && ch <= '9')) return false;
    }
    return s.n > 0;
}

static bool check_param(const struct kir *k, u32 i)
{
    struct str s = k->param.v[i];
    for (i64 j = 0; j < s.n; j++)
        if (s.p[j] == '"' || (u8)s.p[j] < ' ') return false;
    for (u32 j = 0; j < i; j++)
        if (str_eq(k->param.v[j], s)) return false;
    return true;
}

static bool check_map(const struct kir *k, const struct kir_map *m, struct err *e)
{
    const struct kir_ins *b = m->buf < k->buf.n ? kir_at(k, k->buf.v[m->buf].id) : NULL;
    bool is_known = b && b->aux == KA_IN && m->rows > 0 && m->cols > 0 && m->cols <= m->pitch && m->rows <= INT32_MAX / m->pitch;
    i64 size = b ? dtype_size(b->dtype) : 1;
    is_known = is_known && m->box_rows > 0 && m->box_rows <= KIR_MAX_SIDE && m->box_cols > 0 && m->box_cols <= KIR_MAX_SIDE;
    if (is_known && m->pitch * size % 16 == 0 && m->box_cols * size % 16 == 0) return true;
    return err_set(e, ERR_INPUT, "kernel '%.*s': invalid matrix of %lld x %lld in boxes of %u x %u", STR_ARG(k->name), (long long)m->rows,
                   (long long)m->cols, m->box_rows, m->box_cols);
}

static bool check_header(const struct kir *k, struct err *e)
{
    if (!is_word(k->name))
        return err_set(e, ERR_INPUT, "kernel name is not an identifier: '%.*s'", STR_ARG(k->name));
    if (k->buf.n > 4096 || k->param.n > 4096)
        return err_set(e, ERR_INPUT, "kernel '%.*s' has too many arguments", STR_ARG(k->name));
    for (u32 i = 0; i < k->buf.n; i++) {
        if (!is_word(k->buf.v[i].name))
            return err_set(e, ERR_INPUT, "buffer name is not an identifier: '%.*s'",
                           STR_ARG(k->buf.v[i].name));
        for (u32 j = 0; j < i; j++)
            if (str_eq(k->buf.v[i].name, k->buf.v[j].name))
                return err_set(e, ERR_INPUT, "two buffers named '%.*s'", STR_ARG(k->buf.v[i].name));
        kval id = k->buf.v[i].id;
        if (id >= k->ins.n || kir_at(k, id)->op != KI_BUF || kir_at(k, id)->imm.i != i)
            return err_set(e, ERR_INPUT, "buffer '%.*s' has no instruction",
                           STR_ARG(k->buf.v[i].name));
    }
    for (u32 i = 0; i < k->map.n; i++)
        if (!check_map(k, &k->map.v[i], e)) return false;
    for (u32 i = 0; i < k->param.n; i++)
        if (!check_param(k, i)) return err_set(e, ERR_INPUT, "invalid text of parameter p%u", i);
    return true;
}

static bool check_group(const struct kir *k, struct err *e)
{
    u32 n = k->subgroup, width = k->group[0] ? k->group[0] : 1;
    u64 threads = 1;
    for (u32 i = 0; i < 3; i++) {
        threads *= k->group[i] ? k->group[i] : 1;
        if (k->group[i] > 1 << 16 || threads > 1 << 16)
            return err_set(e, ERR_INPUT, "invalid workgroup size %u", k->group[i]);
    }
    if (n && (n > 128 || (n & (n - 1)) || width % n))
        return err_set(e, ERR_INPUT, "kernel '%.*s': subgroups of %u in a workgroup of width %u",
                       STR_ARG(k->name), n, width);
    u32 warpgroup = kir_warpgroup(k);
    if (warpgroup > 1 && (!n || warpgroup > 8 || (warpgroup & (warpgroup - 1)) || threads % (n * warpgroup)))
        return err_set(e, ERR_INPUT, "kernel '%.*s': warpgroups of %u subgroups of %u in a workgroup of %llu",
                       STR_ARG(k->name), warpgroup, n, (unsigned long long)threads);
    return true;
}

bool kir_verify(const struct kir *k, struct err *e)
{
    if (!check_header(k, e) || !check_group(k, e)) return false;
    struct checker c = {.k = k, .e = e};
    c.visible = mem_alloc(k->ins.n + 1);
    c.open = mem_alloc((i64)sizeof(struct open) * (k->ins.n + 1));
    bool ok = true;
    for (c.v = 1; ok && c.v < k->ins.n; c.v++) {
        c.x = kir_at(k, c.v);
        ok = c.x->op < N_KIR_OPS ? check_ins(&c)
                                 : err_set(e, ERR_INPUT, "unknown operator at instruction %u", c.v);
    }
    if (ok && c.n_open)
        ok = err_set(e, ERR_INPUT, "kernel '%.*s': structure is not closed", STR_ARG(k->name));
    mem_free(c.visible);
    mem_free(c.open);
    return ok;
}
