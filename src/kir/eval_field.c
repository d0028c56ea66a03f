// SPDX-License-Identifier: Apache-2.0
//
// eval_field.c: arithmetic of the interpreter over a field (field.h) and on terms (term.h). Moves of cells, and integers, are as in eval_ops.c.
#include "kir/eval.h"
#include "kir/field.h"
#include "kir/term.h"

kir_scalar_fn *kir_scalar_in(enum kir_arithmetic k) { return k == KIR_FIELD ? field_scalar : k == KIR_TERMS ? term_scalar : kir_scalar; }

union kir_cell kir_number(enum kir_arithmetic k, double v) { return k == KIR_FIELD ? field_const(v) : (union kir_cell){.f = v}; }

static bool exact_scalar(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    u32 n_args = kir_op_info(o->op)->n_args;
    for (u32 l = from; l < from + n; l++) {
        union kir_cell x[3] = {m[o->a + l]};
        if (n_args > 1) x[1] = m[o->b + l];
        if (n_args > 2) x[2] = m[o->c + l];
        if (!field_scalar(o->op, o->from, o->to, x, &m[o->r + l])) return false;
    }
    return true;
}

static bool exact_add(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = from; l < from + n; l++) m[o->r + l] = field_add(m[o->a + l], m[o->b + l]);
    return true;
}

static bool exact_mul(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = from; l < from + n; l++) m[o->r + l] = field_mul(m[o->a + l], m[o->b + l]);
    return true;
}

static bool exact_fma(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 l = from; l < from + n; l++) m[o->r + l] = field_fma(m[o->a + l], m[o->b + l], m[o->c + l]);
    return true;
}

static bool exact_reduce(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    enum kir_op op = o->op == KI_HADD ? KI_ADD : o->op == KI_HMIN ? KI_MIN : KI_MAX;
    for (u32 i = from; i < from + n; i++) {
        union kir_cell s = m[o->a + i];
        for (u32 l = 1; l < o->lanes_a; l++)
            field_scalar(op, o->from, o->to, (union kir_cell[3]){s, m[o->a + l * o->threads + i]}, &s);
        m[o->r + i] = s;
    }
    return true;
}

static bool exact_dot(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 i = from; i < from + n; i++)
        for (u32 l = 0; l < o->lanes; l++) {
            union kir_cell s = m[o->c + l * o->threads + i];
            u32 p, q, terms = kir_dot_places(o->op, o->lanes_a / o->lanes, l, &p, &q);
            for (u32 j = 0; j < terms; j++)
                s = field_fma(m[o->a + (p + j) * o->threads + i], m[o->b + (q + j) * o->threads + i], s);
            m[o->r + l * o->threads + i] = s;
        }
    return true;
}

/* Terms. */

static bool term_ops(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    u32 n_args = kir_op_info(o->op)->n_args;
    for (u32 l = from; l < from + n; l++) {
        union kir_cell x[3] = {m[o->a + l]};
        if (n_args > 1) x[1] = m[o->b + l];
        if (n_args > 2) x[2] = m[o->c + l];
        if (!term_scalar(o->op, o->from, o->to, x, &m[o->r + l])) return false;
    }
    return true;
}

/* The upper half onto the lower half until one lane is left. */
static bool term_reduce(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    enum kir_op op = o->op == KI_HADD ? KI_ADD : o->op == KI_HMIN ? KI_MIN : KI_MAX;
    for (u32 i = from; i < from + n; i++) {
        union kir_cell t[64];
        for (u32 l = 0; l < o->lanes_a; l++) t[l] = m[o->a + l * o->threads + i];
        for (u32 h = o->lanes_a / 2; h; h /= 2)
            for (u32 l = 0; l < h; l++) term_scalar(op, o->from, o->to, (union kir_cell[3]){t[l], t[l + h]}, &t[l]);
        m[o->r + i] = t[0];
    }
    return true;
}

static bool term_dot(union kir_cell *m, const struct eval_op *o, u32 from, u32 n)
{
    for (u32 i = from; i < from + n; i++)
        for (u32 l = 0; l < o->lanes; l++) {
            union kir_cell s = m[o->c + l * o->threads + i];
            u32 p, q, terms = kir_dot_places(o->op, o->lanes_a / o->lanes, l, &p, &q);
            for (u32 j = 0; j < terms; j++)
                s = term_step(KI_DOT, o->to, m[o->a + (p + j) * o->threads + i], m[o->b + (q + j) * o->threads + i], s);
            m[o->r + l * o->threads + i] = s;
        }
    return true;
}

static eval_fn *find_terms(enum kir_op op, enum dtype from, enum dtype to)
{
    switch (op) {
    case KI_SELECT:
    case KI_SPLAT:
    case KI_LANE:
    case KI_HALVES:
    case KI_ZIP: return eval_find(op, from, to);
    case KIR_DOTS: return term_dot;
    case KIR_HORIZONTAL: return term_reduce;
    case KIR_NO_OP: case KIR_LEAVES: case KI_RAMP: case KIR_CONVERSIONS: case KIR_UNARY:
    case KIR_BINARY: case KI_FMA: case KIR_STRUCTURE: case KIR_COLLECTIVES: return term_ops;
    default: unreachable();
    }
}

static eval_fn *find_field(enum kir_op op, enum dtype from, enum dtype to)
{
    switch (op) {
    case KI_SELECT:
    case KI_SPLAT:
    case KI_LANE:
    case KI_HALVES:
    case KI_ZIP: return eval_find(op, from, to);
    case KI_ADD: return exact_add;
    case KI_MUL: return exact_mul;
    case KI_FMA: return exact_fma;
    case KIR_DOTS: return exact_dot;
    case KIR_HORIZONTAL: return exact_reduce;
    case KIR_NO_OP: case KIR_LEAVES: case KI_RAMP: case KIR_CONVERSIONS: case KIR_UNARY:
    case KI_SUB: case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW:
    case KIR_LOGIC: case KIR_SHIFTS: case KIR_COMPARISONS: case KIR_STRUCTURE:
    case KIR_COLLECTIVES: return exact_scalar;
    default: unreachable();
    }
}

eval_fn *eval_find_of(enum kir_arithmetic k, enum kir_op op, enum dtype from, enum dtype to)
{
    if (!k || (!dtype_is_float(from) && !dtype_is_float(to))) return eval_find(op, from, to);
    return k == KIR_FIELD ? find_field(op, from, to) : find_terms(op, from, to);
}
