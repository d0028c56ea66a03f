// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_op.c: operators of kernel IR on one lane. Every operation rounds once: `.rn` also keeps the
// assembler from fusing a multiplication with an addition. Small integers are words extended by their
// sign, and wrapped after each operation that may leave their range.
#include "lang/lang_ptx.h"

#include <stdio.h>
#include <string.h>

static bool is_unsigned(enum dtype t) { return dtype_kind(t) == DK_UINT; }

pval ptx_wrap(struct ptx *s, enum dtype t, pval x)
{
    i64 v, bits = dtype_size(t) * 8;
    if (!dtype_is_int(t) || bits >= 32) return x;
    if (ptx_is_int(s, x, &v)) return ptx_int(s, PC_WORD, kir_wrap(t, v));
    if (is_unsigned(t)) return ptx_mask(s, x, ((i64)1 << bits) - 1);
    return PTX_INS(s, PC_WORD, "bfe.s32", x, ptx_int(s, PC_WORD, 0), ptx_int(s, PC_WORD, bits));
}

/* An instruction's name: arithmetic of floats, of integers by sign, or of bits. */
static const char *name_of(const char *base, const char *type)
{
    static const char *const names[] = {
        "add.rn.f32", "add.rn.f64", "sub.rn.f32", "sub.rn.f64", "mul.rn.f32", "mul.rn.f64", "div.rn.f32", "div.rn.f64",
        "fma.rn.f32", "fma.rn.f64", "neg.f32", "neg.f64", "abs.f32", "abs.f64", "sqrt.rn.f32", "sqrt.rn.f64",
        "cvt.rmi.f32.f32", "cvt.rmi.f64.f64", "cvt.rpi.f32.f32", "cvt.rpi.f64.f64", "cvt.rzi.f32.f32", "cvt.rzi.f64.f64",
        "cvt.rni.f32.f32", "cvt.rni.f64.f64", "add.s32", "add.s64", "sub.s32", "sub.s64", "mul.lo.s32", "mul.lo.s64",
        "mad.lo.s32", "mad.lo.s64", "neg.s32", "neg.s64", "abs.s32", "abs.s64", "min.s32", "min.u32", "min.s64", "min.u64",
        "max.s32", "max.u32", "max.s64", "max.u64", "div.s32", "div.u32", "div.s64", "div.u64", "rem.s32", "rem.u32",
        "rem.s64", "rem.u64", "and.b32", "and.b64", "and.pred", "or.b32", "or.b64", "or.pred", "xor.b32", "xor.b64",
        "xor.pred", "not.b32", "not.b64", "not.pred", "shl.b32", "shl.b64", "shr.s32", "shr.u32", "shr.s64", "shr.u64",
        "setp.eq.f32", "setp.eq.f64", "setp.eq.s32", "setp.eq.s64", "setp.neu.f32", "setp.neu.f64", "setp.ne.s32",
        "setp.ne.s64", "setp.lt.f32", "setp.lt.f64", "setp.lt.s32", "setp.lt.u32", "setp.lt.s64", "setp.lt.u64",
        "setp.le.f32", "setp.le.f64", "setp.le.s32", "setp.le.u32", "setp.le.s64", "setp.le.u64", "selp.b32", "selp.b64",
        "selp.f32", "selp.f64", "setp.nan.f32", "setp.nan.f64",
    };
    char want[32];
    snprintf(want, sizeof want, "%s.%s", base, type);
    for (i64 i = 0; i < countof(names); i++)
        if (strcmp(names[i], want) == 0) return names[i];
    return NULL;
}

static const char *const float_names[N_KIR_OPS] = {
    [KI_ADD] = "add.rn", [KI_SUB] = "sub.rn", [KI_MUL] = "mul.rn", [KI_DIV] = "div.rn", [KI_FMA] = "fma.rn",
    [KI_NEG] = "neg", [KI_ABS] = "abs", [KI_SQRT] = "sqrt.rn", [KI_EQ] = "setp.eq", [KI_NE] = "setp.neu",
    [KI_LT] = "setp.lt", [KI_LE] = "setp.le", [KI_ISNAN] = "setp.nan",
};
static const char *const rounding_names[N_KIR_OPS] = {
    [KI_FLOOR] = "cvt.rmi", [KI_CEIL] = "cvt.rpi", [KI_TRUNC] = "cvt.rzi", [KI_RINT] = "cvt.rni",
};
static const char *const plain_names[N_KIR_OPS] = { /* the same for both signs */
    [KI_ADD] = "add", [KI_SUB] = "sub", [KI_MUL] = "mul.lo", [KI_FMA] = "mad.lo", [KI_NEG] = "neg", [KI_EQ] = "setp.eq", [KI_NE] = "setp.ne",
};
static const char *const signed_names[N_KIR_OPS] = {
    [KI_DIV] = "div", [KI_MOD] = "rem", [KI_MIN] = "min", [KI_MAX] = "max", [KI_LT] = "setp.lt", [KI_LE] = "setp.le", [KI_SHR] = "shr",
};
static const char *const bit_names[N_KIR_OPS] = {
    [KI_AND] = "and", [KI_OR] = "or", [KI_XOR] = "xor", [KI_NOT] = "not", [KI_SHL] = "shl",
};

const char *ptx_opcode(enum kir_op op, enum dtype t, enum ptx_class c)
{
    bool is_long = c == PC_LONG || c == PC_DOUBLE;
    if (c == PC_PRED) return bit_names[op] ? name_of(bit_names[op], "pred") : NULL;
    if (c == PC_FLOAT || c == PC_DOUBLE) {
        if (rounding_names[op]) return name_of(rounding_names[op], is_long ? "f64.f64" : "f32.f32");
        return float_names[op] ? name_of(float_names[op], is_long ? "f64" : "f32") : NULL;
    }
    if (plain_names[op]) return name_of(plain_names[op], is_long ? "s64" : "s32");
    if (bit_names[op]) return name_of(bit_names[op], is_long ? "b64" : "b32");
    if (op == KI_ABS && !is_unsigned(t)) return is_long ? "abs.s64" : "abs.s32";
    if (signed_names[op]) return name_of(signed_names[op], is_unsigned(t) ? is_long ? "u64" : "u32" : is_long ? "s64" : "s32");
    return NULL;
}

static pval choose(struct ptx *s, pval cond, pval a, pval b)
{
    enum ptx_class c = ptx_class(s, a);
    static const char *const name[N_PTX_CLASSES] = {
        [PC_WORD] = "selp.b32", [PC_LONG] = "selp.b64", [PC_FLOAT] = "selp.f32", [PC_DOUBLE] = "selp.f64"};
    if (a == b) return a;
    if (c != PC_PRED) return PTX_INS(s, c, name[c], a, b, cond);
    pval yes = PTX_INS(s, c, "and.pred", cond, a), no = PTX_INS(s, c, "not.pred", cond);
    no = PTX_INS(s, c, "and.pred", no, b);
    return PTX_INS(s, c, "or.pred", yes, no);
}

/* The second operand if either is NaN. */
static pval extreme(struct ptx *s, enum kir_op op, const pval x[2])
{
    enum ptx_class c = ptx_class(s, x[0]);
    const char *test = op == KI_MIN ? c == PC_FLOAT ? "setp.lt.f32" : "setp.lt.f64" : c == PC_FLOAT ? "setp.gt.f32" : "setp.gt.f64";
    return choose(s, PTX_INS(s, PC_PRED, test, x[0], x[1]), x[0], x[1]);
}

static pval compare_bools(struct ptx *s, enum kir_op op, const pval x[2])
{
    if (op == KI_NE) return PTX_INS(s, PC_PRED, "xor.pred", x[0], x[1]);
    pval other = PTX_INS(s, PC_PRED, "not.pred", x[0]);
    if (op == KI_EQ) return PTX_INS(s, PC_PRED, "xor.pred", other, x[1]);
    return PTX_INS(s, PC_PRED, op == KI_LT ? "and.pred" : "or.pred", other, x[1]);
}

static u32 log2_up(i64 d)
{
    u32 n = 0;
    while (((i64)1 << n) < d) n++;
    return n;
}

/* By a constant: the upper half of a product. For 0 <= a < 2^31 and l = ceil(log2 d), floor(a * (floor(2^(31+l) / d)
   + 1) / 2^(31+l)) is the quotient (Granlund, Montgomery: Division by Invariant Integers using Multiplication). */
static pval divide_by(struct ptx *s, pval a, i64 d)
{
    if ((d & (d - 1)) == 0) return ptx_shr(s, a, (u32)__builtin_ctzll((u64)d));
    if (ptx_class(s, a) != PC_WORD || d > INT32_MAX) return PTX_INS(s, ptx_class(s, a), "div.u64", a, ptx_int(s, ptx_class(s, a), d));
    u32 l = log2_up(d);
    u64 factor = ((u64)1 << (31 + l)) / (u64)d + 1;
    return ptx_shr(s, PTX_INS(s, PC_WORD, "mul.hi.u32", a, ptx_int(s, PC_WORD, (i64)factor)), l - 1);
}

pval ptx_divide(struct ptx *s, enum kir_op op, pval a, pval b)
{
    enum ptx_class c = ptx_class(s, a);
    bool is_word = c == PC_WORD;
    i64 d, v;
    if (!ptx_is_int(s, b, &d) || d <= 0 || (is_word && d > INT32_MAX)) {
        const char *name = op == KI_DIV ? is_word ? "div.u32" : "div.u64" : is_word ? "rem.u32" : "rem.u64";
        return PTX_INS(s, c, name, a, b);
    }
    if (ptx_is_int(s, a, &v)) return ptx_int(s, c, op == KI_DIV ? v / d : v % d);
    if (op == KI_MOD && (d & (d - 1)) == 0) return ptx_mask(s, a, d - 1);
    pval q = divide_by(s, a, d);
    if (op == KI_DIV) return q;
    return PTX_INS(s, c, is_word ? "sub.s32" : "sub.s64", a, ptx_times(s, q, d));
}

/* The least integer divided by -1 wraps. */
static pval quotient(struct ptx *s, enum kir_op op, enum dtype t, const pval x[2])
{
    enum ptx_class c = ptx_class(s, x[0]);
    pval q = PTX_INS(s, c, ptx_opcode(op, t, c), x[0], x[1]);
    i64 d;
    if (is_unsigned(t) || dtype_size(t) < 4 || (ptx_is_int(s, x[1], &d) && d != -1)) return ptx_wrap(s, t, q);
    pval minus = PTX_INS(s, PC_PRED, c == PC_WORD ? "setp.eq.s32" : "setp.eq.s64", x[1], ptx_int(s, c, -1));
    pval other = op == KI_DIV ? PTX_INS(s, c, c == PC_WORD ? "neg.s32" : "neg.s64", x[0]) : ptx_int(s, c, 0);
    return choose(s, minus, other, q);
}

static pval shift(struct ptx *s, enum kir_op op, enum dtype t, const pval x[2])
{
    enum ptx_class c = ptx_class(s, x[0]);
    pval n = ptx_resize(s, x[1], PC_WORD);
    n = ptx_mask(s, n, dtype_size(t) * 8 - 1);
    return ptx_wrap(s, t, PTX_INS(s, c, ptx_opcode(op, t, c), x[0], n));
}

/* By squaring; 0 for a negative exponent. */
static pval power(struct ptx *s, enum dtype t, const pval x[2])
{
    enum ptx_class c = ptx_class(s, x[0]);
    bool is_long = c == PC_LONG;
    const char *bits = is_long ? "b64" : "b32", *word = is_long ? "s64" : "s32", *type = is_unsigned(t) ? is_long ? "u64" : "u32" : word;
    pval r = ptx_new(s, c), f = ptx_new(s, c), n = ptx_new(s, c), odd = ptx_new(s, PC_PRED), one = ptx_new(s, c), go = ptx_new(s, PC_PRED);
    int label = (int)ptx_labels(s, 2);
    ptx_line(s, "\tmov.%s %r, 1;\n\tmov.%s %r, %r;\n\tmov.%s %r, %r;", bits, r, bits, f, x[0], bits, n, x[1]);
    if (!is_unsigned(t)) ptx_line(s, "\tsetp.ge.%s %r, %r, 0;\n\tselp.%s %r, 1, 0, %r;", word, go, n, bits, r, go);
    ptx_line(s, "L%d:\n\tsetp.gt.%s %r, %r, 0;\n\t@!%r bra L%d;", label, type, go, n, go, label + 1);
    ptx_line(s, "\tand.%s %r, %r, 1;\n\tsetp.ne.%s %r, %r, 0;\n\t@%r mul.lo.%s %r, %r, %r;", bits, one, n, word, odd, one, odd, word, r, r, f);
    ptx_line(s, "\tmul.lo.%s %r, %r, %r;\n\tshr.%s %r, %r, 1;\n\tbra L%d;\nL%d:", word, f, f, f, type, n, n, label, label + 1);
    return ptx_wrap(s, t, r);
}

/* fmod of doubles: exact, by the bits of the significands, which are subtracted and doubled once for each bit of
   the quotient. Denormal operands are normalised: their exponents are then below 1. */
static const char remainder_text[] =
    "\t{\n\t.reg .b64 %ux, %uy, %sx, %d;\n\t.reg .b32 %ex, %ey, %n;\n\t.reg .pred %q, %z;\n"
    "\tmov.b64 %ux, $x;\n\tand.b64 %sx, %ux, 0x8000000000000000;\n\txor.b64 %ux, %ux, %sx;\n"
    "\tmov.b64 %uy, $y;\n\tand.b64 %uy, %uy, 0x7fffffffffffffff;\n"
    "\tsetp.ge.u64 %q, %ux, 0x7ff0000000000000;\n\tsetp.gt.u64 %z, %uy, 0x7ff0000000000000;\n\tor.pred %q, %q, %z;\n"
    "\tsetp.eq.u64 %z, %uy, 0;\n\tor.pred %q, %q, %z;\n\tmov.f64 $r, 0d7FF8000000000000;\n\t@%q bra DONE;\n"
    "\tmov.f64 $r, $x;\n\tsetp.lt.u64 %q, %ux, %uy;\n\t@%q bra DONE;\n"
#define PARTS(e, u)                                                                                           \
    "\tshr.u64 %d, " u ", 52;\n\tcvt.u32.u64 " e ", %d;\n\tand.b64 " u ", " u ", 0xfffffffffffff;\n"           \
    "\tsetp.ne.s32 %q, " e ", 0;\n\t@%q or.b64 " u ", " u ", 0x10000000000000;\n\t@!%q mov.b32 " e ", 1;\n"    \
    "\tclz.b64 %n, " u ";\n\tsub.s32 %n, %n, 11;\n\tshl.b64 " u ", " u ", %n;\n\tsub.s32 " e ", " e ", %n;\n"
    PARTS("%ex", "%ux") PARTS("%ey", "%uy")
    "\tsub.s32 %n, %ex, %ey;\nNEXT:\n\tsetp.ge.u64 %q, %ux, %uy;\n\t@%q sub.s64 %ux, %ux, %uy;\n"
    "\tsetp.le.s32 %q, %n, 0;\n\t@%q bra LAST;\n\tshl.b64 %ux, %ux, 1;\n\tsub.s32 %n, %n, 1;\n\tbra NEXT;\n"
    "LAST:\n\tsetp.eq.u64 %z, %ux, 0;\n\tclz.b64 %n, %ux;\n\tsub.s32 %n, %n, 11;\n\tshl.b64 %ux, %ux, %n;\n\tsub.s32 %ex, %ey, %n;\n"
    "\tsetp.gt.s32 %q, %ex, 0;\n\tsub.s32 %n, 1, %ex;\n\t@!%q shr.u64 %ux, %ux, %n;\n"
    "\tsub.s32 %ex, %ex, 1;\n\tcvt.s64.s32 %d, %ex;\n\tshl.b64 %d, %d, 52;\n\t@%q add.s64 %ux, %ux, %d;\n"
    "\t@%z mov.b64 %ux, 0;\n\tor.b64 %ux, %ux, %sx;\n\tmov.b64 $r, %ux;\nDONE:\n\t}";
#undef PARTS

static pval remainder_of(struct ptx *s, pval x, pval y)
{
    pval r = ptx_new(s, PC_DOUBLE);
    int label = (int)ptx_labels(s, 3);
    x = ptx_reg(s, x), y = ptx_reg(s, y);
    struct buf b = {0};
    for (const char *p = remainder_text; *p; p++) {
        static const char *const labels[] = {"DONE", "NEXT", "LAST"};
        u32 i = 0;
        while (i < 3 && strncmp(p, labels[i], 4)) i++;
        if (i < 3) buf_printf(&b, "L%d", label + (int)i), p += 3;
        else if (*p == '$') buf_z(&b, "%fd"), buf_printf(&b, "%u", s->def.v[*++p == 'x' ? x : *p == 'y' ? y : r].n);
        else buf_char(&b, *p);
    }
    buf_char(&b, '\n');
    buf_str(&ptx_inner(s)->code, buf_view(&b));
    buf_release(&b);
    return r;
}

/* f32 in double, where its denormals are normal numbers and the remainder is exact, too. */
static pval remainder_float(struct ptx *s, const pval x[2])
{
    if (ptx_class(s, x[0]) == PC_DOUBLE) return remainder_of(s, x[0], x[1]);
    pval a = PTX_INS(s, PC_DOUBLE, "cvt.f64.f32", x[0]), b = PTX_INS(s, PC_DOUBLE, "cvt.f64.f32", x[1]);
    return PTX_INS(s, PC_FLOAT, "cvt.rn.f32.f64", remainder_of(s, a, b));
}

static pval is_infinite(struct ptx *s, pval x)
{
    enum ptx_class c = ptx_class(s, x);
    pval size = PTX_INS(s, c, c == PC_FLOAT ? "abs.f32" : "abs.f64", x);
    pval inf = ptx_imm(s, c, c == PC_FLOAT ? 0x7f800000 : 0x7ff0000000000000);
    return PTX_INS(s, PC_PRED, c == PC_FLOAT ? "setp.eq.f32" : "setp.eq.f64", size, inf);
}

static pval by_opcode(struct ptx *s, enum kir_op op, enum dtype t, const pval x[3])
{
    enum ptx_class c = ptx_class(s, x[0]);
    const char *name = ptx_opcode(op, t, c);
    bool is_test = kir_op_info(op)->rule == 'B';
    if (!name) {
        ptx_fail(s, str_fmt(s->arena, "holds '%s' of %s, which language ptx lacks", kir_op_info(op)->name, dtype_name(t)).p);
        return x[0];
    }
    pval r = ptx_ins(s, is_test ? PC_PRED : c, name, (const pval[4]){x[0], x[1], x[2]});
    return is_test ? r : ptx_wrap(s, t, r);
}

pval ptx_scalar(struct ptx *s, enum kir_op op, enum dtype t, const pval x[3])
{
    enum ptx_class c = ptx_class(s, x[0]);
    bool is_float = c == PC_FLOAT || c == PC_DOUBLE;
    switch (op) {
    case KI_SELECT: return choose(s, x[0], x[1], x[2]);
    case KI_MIN:
    case KI_MAX:
        if (is_float) return extreme(s, op, x);
        if (c == PC_PRED) return PTX_INS(s, c, op == KI_MIN ? "and.pred" : "or.pred", x[0], x[1]);
        break;
    case KI_DIV:
        if (!is_float) return quotient(s, op, t, x);
        break;
    case KI_MOD: return is_float ? remainder_float(s, x) : quotient(s, op, t, x);
    case KI_POW:
        if (!is_float) return power(s, t, x);
        break;
    case KIR_SHIFTS: return shift(s, op, t, x);
    case KIR_COMPARISONS:
        if (c == PC_PRED) return compare_bools(s, op, x);
        break;
    case KI_ABS:
        if (!is_float && is_unsigned(t)) return x[0];
        break;
    case KI_ISNAN: return PTX_INS(s, PC_PRED, c == PC_FLOAT ? "setp.nan.f32" : "setp.nan.f64", x[0], x[0]);
    case KI_ISINF: return is_infinite(s, x[0]);
    case KIR_NOT_LANEWISE: case KIR_CONVERSIONS: case KI_NEG: case KI_NOT: case KIR_FUNCTIONS: case KIR_ROUNDING:
    case KI_ADD: case KI_SUB: case KI_MUL: case KIR_LOGIC: case KI_FMA: break;
    }
    return by_opcode(s, op, t, x);
}
