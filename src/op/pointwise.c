// SPDX-License-Identifier: Apache-2.0
//
// op_pointwise: out[i] = f(a[i], b[i], c[i]) with NumPy broadcasting. Each operator is one row of
// pointwise.inc, which is expanded into its kernel builder, its two reference functions and its
// descriptor. ONNX's variadic operators (Max, Min, Sum, Mean) are composites of binary rows.
//
// Integers wrap. What C leaves undefined is defined alike in kernels and in the reference: x/0 = 0,
// x mod 0 = 0, shifts by the width or more give 0, powers outside i64 give 0.
#include "op/op.h"

#include <math.h>

enum types {
    T_FLOAT,
    T_NUM,
    T_INT,
    T_UINT,
    T_BOOL,
    T_ALL,
    T_COND /* bool, then two of any type */
};
enum result { R_SAME, R_TRUTH };

struct par {
    const char *name;
    double def;
    const char *word; /* the string that counts as 1; NULL: the attribute is a number */
};

/* Parameters visible to a row's expressions. */
struct ctx {
    double q0, q1; /* attributes */
    double fb;     /* second operand as a float (reference only) */
    bool flt, uns, is_u64, has_b, has_c;
    i64 bits;
};

struct row {
    enum types types;
    enum result result;
    enum op_fold fold;
    struct par par[2];
    kval (*kernel)(struct kir *k, const struct ctx *x, kval a, kval b, kval c);
    double (*f64)(const struct ctx *x, double a, double b, double c);
    i64 (*i64)(const struct ctx *x, i64 a, i64 b, i64 c);
};

/* Helpers of kernel expressions. */

static kval number(struct kir *k, kval like, double v)
{
    enum dtype t = kir_dtype(k, like);
    return dtype_is_float(t) ? kir_const_f(k, t, 1, v) : kir_const_i(k, t, 1, (i64)v);
}

static kval bin(struct kir *k, enum kir_op op, kval a, kval b) { return kir_bin(k, op, a, b); }

static kval sel(struct kir *k, kval c, kval a, kval b)
{
    u32 n = kir_lanes(k, c);
    if (kir_lanes(k, a) > n) n = kir_lanes(k, a);
    if (kir_lanes(k, b) > n) n = kir_lanes(k, b);
    return kir_select(k, kir_splat(k, c, n), kir_splat(k, a, n), kir_splat(k, b, n));
}

#define K(v) number(k, a, v)
#define UN(op, x) kir_un(k, KI_##op, x)
#define BIN(op, x, y) bin(k, KI_##op, x, y)
#define SEL(c, x, y) sel(k, c, x, y)
#define TRUE kir_const_i(k, DT_BOOL, 1, 1)
#define FALSE kir_const_i(k, DT_BOOL, 1, 0)

static kval softplus(struct kir *k, kval a) /* max(a, 0) + log(1 + exp(-|a|)) */
{
    kval tail = UN(LOG, BIN(ADD, K(1), UN(EXP, UN(NEG, UN(ABS, a)))));
    return BIN(ADD, BIN(MAX, K(0), a), tail);
}

/* a/2 (1 + erf(a / sqrt(2))), or 1 + tanh(sqrt(2/pi) (a + 0.044715 a^3)): Hendrycks and Gimpel,
   Gaussian Error Linear Units, 2016 */
static const double gelu_erf = 0.70710678118654752440, gelu_tanh = 0.79788456080286535588,
                    gelu_cube = 0.044715,
                    gelu_none = -40; /* 0 up to there, and so for -inf */

/* x Phi(x), Phi the normal distribution, as max(x, 0) - a Phi(-a) with a = |x|: half the operations
   of a formula with erf, and more precise, as nothing cancels but Phi(-a) where it is small. A
   polynomial fits the fourth root of Phi(-a), which is as smooth as Phi(-a) is not, in the form
   2^(-1/4) + a r(a): so the powers are exact at 0, squared as 2^(-1/2) + w and
   1/2 + w (sqrt(2) + w). Even and odd terms are two chains, as one would be too long.
   Minimax fit of absolute error 1.3e-9 of Phi(-a); with roundings 2 units in the last place for
   x > 0, and 1.8e-7 absolute for x < 0. */
enum { GELU_TERMS = 11 };
struct gelu_fit { double end, root[GELU_TERMS]; };
static const struct gelu_fit gelu_by_erf = {5.6, {-0x1.57853cp-3, -0x1.9b2152p-5, 0x1.2d0bfcp-8, 0x1.014a4cp-8,
    -0x1.a19454p-13, -0x1.8718b8p-13, 0x1.258abcp-18, 0x1.76b262p-17, -0x1.2f93c6p-19, 0x1.80960ap-23,
    -0x1.61992cp-28}};
/* Likewise of the logistic function of 2 sqrt(2/pi) (x + 0.044715 x^3) in place of Phi(x): 1.4e-8 of
   it, with roundings the same. */
static const struct gelu_fit gelu_by_tanh = {5.2, {-0x1.578520p-3, -0x1.9b2544p-5, 0x1.36265cp-8, 0x1.08e8b6p-8,
    -0x1.7a4d56p-12, -0x1.0b4a3ep-17, -0x1.95bc28p-13, 0x1.da9082p-14, -0x1.d3f18ap-16, 0x1.bf3956p-19,
    -0x1.54b132p-23}};
static const double gelu_double_root = 1.6817928305074290861, sqrt_2 = 1.41421356237309504880;

static kval gelu_f32(struct kir *k, kval x, const struct gelu_fit *f)
{
    u32 lanes = kir_lanes(k, x), n = GELU_TERMS;
#define C(v) kir_const_f(k, DT_F32, lanes, v)
    kval a = kir_min(k, C(f->end), UN(ABS, x)), square = kir_mul(k, a, a);
    kval odd = C(f->root[n - 2]), even = C(f->root[n - 1]);
    for (u32 i = n - 3; i > 0; i -= 2) {
        even = kir_fma(k, even, square, C(f->root[i]));
        odd = kir_fma(k, odd, square, C(f->root[i - 1]));
    }
    kval r = kir_fma(k, odd, a, kir_fma(k, even, square, C(f->root[0])));
    kval s = kir_mul(k, r, a), w = kir_mul(k, s, kir_add(k, s, C(gelu_double_root)));
    kval tail = kir_fma(k, w, kir_add(k, w, C(sqrt_2)), C(0.5));
    return kir_fma(k, UN(NEG, a), tail, kir_max(k, C(0), x));
#undef C
}

static kval gelu(struct kir *k, kval a, bool is_tanh)
{
    if (kir_dtype(k, a) == DT_F32) return gelu_f32(k, a, is_tanh ? &gelu_by_tanh : &gelu_by_erf);
    a = BIN(MAX, K(gelu_none), a);
    kval x = is_tanh ? BIN(MUL, K(gelu_tanh),
                           BIN(ADD, a, BIN(MUL, K(gelu_cube), BIN(MUL, a, BIN(MUL, a, a)))))
                     : BIN(MUL, K(gelu_erf), a);
    return BIN(MUL, BIN(MUL, K(0.5), a), BIN(ADD, K(1), is_tanh ? UN(TANH, x) : UN(ERF, x)));
}

static kval clip(struct kir *k, kval a, kval lo, kval hi)
{
    if (lo) a = BIN(MAX, lo, a);
    return hi ? BIN(MIN, hi, a) : a;
}

/* a < -lambd ? a + bias : a > lambd ? a - bias : 0, in floats */
static kval shrink(struct kir *k, kval v, double lambd, double bias)
{
    enum dtype t = kir_dtype(k, v);
    kval a = dtype_is_float(t) ? v : kir_cast(k, DT_F64, v);
    kval in = SEL(BIN(LT, K(lambd), a), BIN(SUB, a, K(bias)), K(0));
    return kir_cast(k, t, SEL(BIN(LT, a, K(-lambd)), BIN(ADD, a, K(bias)), in));
}

/* max or min that keeps a NaN of either operand */
static kval extreme(struct kir *k, enum kir_op op, kval a, kval b)
{
    double c;
    if (!dtype_is_float(kir_dtype(k, a)) || (kir_is_float(k, a, &c) && c == c))
        return bin(k, op, a, b);
    if (kir_is_float(k, b, &c) && c == c) return bin(k, op, b, a);
    return SEL(UN(ISNAN, a), a, bin(k, op, a, b));
}

/* b if dividing by it is defined, else 1 */
static kval safe_divisor(struct kir *k, kval a, kval b, kval *zero, kval *minus)
{
    bool uns = dtype_kind(kir_dtype(k, a)) == DK_UINT;
    *zero = BIN(EQ, b, K(0));
    *minus = uns ? FALSE : BIN(EQ, b, K(-1));
    return SEL(BIN(OR, *zero, *minus), K(1), b);
}

static kval div_k(struct kir *k, kval a, kval b)
{
    kval zero, minus, d = safe_divisor(k, a, b, &zero, &minus);
    kval q = BIN(DIV, a, d);
    if (dtype_kind(kir_dtype(k, a)) != DK_UINT) q = SEL(minus, UN(NEG, a), q);
    return SEL(zero, K(0), q);
}

static kval mod_k(struct kir *k, kval a, kval b, bool c_sign)
{
    enum dtype_kind kind = dtype_kind(kir_dtype(k, a));
    kval zero, minus, d = kind == DK_FLOAT ? b : safe_divisor(k, a, b, &zero, &minus);
    kval r = BIN(MOD, a, d);
    if (c_sign || kind == DK_UINT) return r;
    /* a zero has the divisor's sign */
    if (kind == DK_FLOAT) r = SEL(BIN(EQ, r, K(0)), SEL(BIN(LT, b, K(0)), K(-0.0), K(0)), r);
    kval differ = BIN(XOR, BIN(LT, r, K(0)), BIN(LT, b, K(0)));
    return SEL(BIN(AND, BIN(NE, r, K(0)), differ), BIN(ADD, r, b), r);
}

/* Squares and cubes are common and exact enough as products. */
static kval pow_float(struct kir *k, kval a, kval b)
{
    double n;
    if (!kir_is_float(k, b, &n) || (n != 1 && n != 2 && n != 3 && n != -1)) return BIN(POW, a, b);
    if (n == -1) return BIN(DIV, K(1), a);
    kval p = n > 1 ? BIN(MUL, a, a) : a;
    return n > 2 ? BIN(MUL, p, a) : p;
}

static kval pow_k(struct kir *k, kval v, kval b)
{
    enum dtype t = kir_dtype(k, v);
    if (dtype_is_float(t)) return pow_float(k, v, kir_cast(k, t, b));
    kval a = pow_float(k, kir_cast(k, DT_F64, v), kir_cast(k, DT_F64, b));
    kval ok = BIN(LT, UN(ABS, a), K(9e18));
    return kir_cast(k, t, kir_cast(k, DT_I64, SEL(ok, a, K(0))));
}

static kval shift_k(struct kir *k, kval a, kval b, bool right)
{
    i64 bits = 8 * dtype_size(kir_dtype(k, a));
    bool uns = dtype_kind(kir_dtype(k, a)) == DK_UINT;
    kval by = BIN(AND, b, K((double)(bits - 1))), inside = BIN(LT, b, K((double)bits));
    if (!uns) inside = BIN(AND, inside, BIN(LE, K(0), b));
    kval rest = right && !uns ? SEL(BIN(LT, a, K(0)), K(-1), K(0)) : K(0);
    return SEL(inside, right ? BIN(SHR, a, by) : BIN(SHL, a, by), rest);
}

/* Of i64, shifted arithmetically by the lowest six bits of c; half of the last place is added before. */
struct mul_shift { kval sum, by, result; };

static struct mul_shift mul_shift(struct kir *k, kval a, kval b, kval c)
{
    kval p = bin(k, KI_MUL, kir_cast(k, DT_I64, a), kir_cast(k, DT_I64, b)), one = kir_const_i(k, DT_I64, 1, 1);
    kval by = bin(k, KI_AND, kir_cast(k, DT_I64, c), kir_const_i(k, DT_I64, 1, 63));
    kval half = bin(k, KI_SHR, kir_cast(k, DT_U64, bin(k, KI_SHL, one, by)), kir_const_i(k, DT_U64, 1, 1));
    kval sum = bin(k, KI_ADD, p, kir_cast(k, DT_I64, half));
    return (struct mul_shift){sum, by, bin(k, KI_SHR, sum, by)};
}

static kval mul_shift_k(struct kir *k, kval a, kval b, kval c) { return kir_cast(k, kir_dtype(k, a), mul_shift(k, a, b, c).result); }

static kval mul_shift_even_k(struct kir *k, kval v, kval b, kval c)
{
    struct mul_shift m = mul_shift(k, v, b, c);
    kval a = m.result, rest = BIN(AND, m.sum, BIN(SUB, bin(k, KI_SHL, K(1), m.by), K(1)));
    kval is_tie = BIN(AND, BIN(EQ, rest, K(0)), BIN(LT, K(0), m.by));
    return kir_cast(k, kir_dtype(k, v), SEL(is_tie, BIN(AND, a, K(-2)), a));
}

/* Helpers of reference expressions. */

static i64 shift_down(i64 p, u32 by) { return p < 0 ? (i64)~(~(u64)p >> by) : (i64)((u64)p >> by); }

static i64 mul_shift_i(i64 a, i64 b, i64 c)
{
    u32 by = (u32)(c & 63);
    return shift_down((i64)((u64)a * (u64)b + (((u64)1 << by) >> 1)), by);
}

static i64 mul_shift_even_i(i64 a, i64 b, i64 c)
{
    u32 by = (u32)(c & 63);
    u64 rest = ((u64)a * (u64)b + (((u64)1 << by) >> 1)) & (((u64)1 << by) - 1);
    return mul_shift_i(a, b, c) & (by && !rest ? -2 : -1);
}

static double gelu_f(double a, bool is_tanh)
{
    double x = a < gelu_none ? gelu_none : a;
    return 0.5 * x * (1 + (is_tanh ? tanh(gelu_tanh * (x + gelu_cube * x * x * x)) : erf(gelu_erf * x)));
}

static double softplus_f(double a)
{
    return (a > 0 ? a : 0) + log1p(exp(-fabs(a))) + (a != a ? a : 0);
}
static double clamp(double v, double lo, double hi) { return v < lo ? lo : v > hi ? hi : v; }
static double clip_f(double a, double lo, double hi)
{
    return a < lo ? (lo > hi ? hi : lo) : a > hi ? hi : a;
}
static bool less(i64 a, i64 b, bool is_u64) { return is_u64 ? (u64)a < (u64)b : a < b; }

static i64 clip_i(i64 a, const i64 *lo, const i64 *hi, bool is_u64)
{
    if (lo && less(a, *lo, is_u64)) a = *lo;
    return hi && less(*hi, a, is_u64) ? *hi : a;
}

static double shrink_f(double a, double lambd, double bias)
{
    return a < -lambd ? a + bias : a > lambd ? a - bias : 0;
}

static i64 div_i(i64 a, i64 b, bool is_u64)
{
    if (b == 0) return 0;
    if (is_u64) return (i64)((u64)a / (u64)b);
    return b == -1 ? (i64)(0 - (u64)a) : a / b;
}

static i64 mod_i(i64 a, i64 b, bool c_sign, bool is_u64)
{
    if (b == 0) return 0;
    if (is_u64) return (i64)((u64)a % (u64)b);
    i64 r = b == -1 ? 0 : a % b;
    return !c_sign && r && (r < 0) != (b < 0) ? r + b : r;
}

static double mod_f(double a, double b, bool c_sign)
{
    double r = fmod(a, b);
    if (!c_sign && r == 0) return copysign(0, b);
    return !c_sign && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static i64 pow_i(double a, double b)
{
    double r = pow(a, b);
    return fabs(r) < 9e18 ? (i64)r : 0;
}

static i64 shift_i(i64 a, i64 b, bool right, bool uns, i64 bits)
{
    bool ones = right && !uns && a < 0; /* shifted in from the left */
    if (b < 0 || b >= bits) return ones ? -1 : 0;
    if (!right) return (i64)((u64)a << b);
    return ones ? (i64)~(~(u64)a >> b) : (i64)((u64)a >> b);
}

/* Functions of rows, each of which uses few of its parameters. */

#define LT(x, y) less(x, y, is_u64)
#define SEE                                                                                        \
    double q0 = x->q0, q1 = x->q1, fb = x->fb;                                                     \
    bool flt = x->flt, uns = x->uns, is_u64 = x->is_u64, has_b = x->has_b, has_c = x->has_c;       \
    i64 bits = x->bits;                                                                            \
    (void)q0, (void)q1, (void)fb, (void)flt, (void)uns, (void)is_u64, (void)has_b, (void)has_c,    \
        (void)bits;                                                                                \
    (void)a, (void)b, (void)c

#define X(id, name, lo, hi, types, result, props, fold, par, kernel, ff, fi)                       \
    static kval kernel_##id(struct kir *k, const struct ctx *x, kval a, kval b, kval c)            \
    {                                                                                              \
        SEE;                                                                                       \
        return kernel;                                                                             \
    }                                                                                              \
    static double f64_##id(const struct ctx *x, double a, double b, double c)                      \
    {                                                                                              \
        SEE;                                                                                       \
        return (ff);                                                                               \
    }                                                                                              \
    static i64 i64_##id(const struct ctx *x, i64 a, i64 b, i64 c)                                  \
    {                                                                                              \
        SEE;                                                                                       \
        return (i64)(fi);                                                                          \
    }
#include "op/pointwise.inc"
#undef X
#undef LT

/* Sizes. */

/* The input that determines the type: 1 for Where, else 0. */
static u32 main_input(const struct row *row) { return row->types == T_COND; }

static bool type_ok(enum types types, enum dtype t)
{
    switch (types) {
    case T_FLOAT: return dtype_is_float(t);
    case T_NUM: return dtype_is_float(t) || dtype_is_int(t);
    case T_INT: return dtype_is_int(t);
    case T_UINT: return dtype_kind(t) == DK_UINT;
    case T_BOOL: return t == DT_BOOL;
    case T_ALL:
    case T_COND: return t != DT_NONE;
    }
    unreachable();
}

static const struct row *row_of(const struct node *n) { return op_find(n->op)->row; }

static bool types_ok(const struct graph *g, node_id n, const struct row *row, struct err *e)
{
    const struct node *x = graph_node(g, n);
    enum dtype t = graph_value(g, x->in.v[main_input(row)])->dtype;
    if (!type_ok(row->types, t))
        return op_unsupported(e, g, n, "elements of type %s", dtype_name(t));
    for (u32 i = 0; i < x->in.n; i++) {
        enum dtype ti = x->in.v[i] ? graph_value(g, x->in.v[i])->dtype : t;
        enum dtype want = row->types == T_COND && i == 0 ? DT_BOOL : t;
        if (str_is(x->op, "Pow") ? ti == DT_BOOL : ti != want)
            return op_invalid(e, g, n, "input %u has type %s, expected %s", i, dtype_name(ti),
                              dtype_name(want));
    }
    return true;
}

static bool join_shapes(struct graph *g, node_id n, struct shape *out, struct err *e)
{
    const struct node *x = graph_node(g, n);
    *out = (struct shape){.known = true};
    for (u32 i = 0; i < x->in.n; i++) {
        if (!x->in.v[i]) continue;
        const struct value *v = graph_value(g, x->in.v[i]);
        if (!op_broadcast(g, out, &v->shape, out))
            return op_invalid(e, g, n, "shape %.*s of '%.*s' does not fit %.*s of the inputs before",
                              STR_ARG(op_shape_text(g, &v->shape)), STR_ARG(v->name), STR_ARG(op_shape_text(g, out)));
    }
    return true;
}

static bool par_value(const struct node *n, const struct par *p, double *out)
{
    const struct attr *a = node_attr(n, p->name);
    *out = p->def;
    if (!a) return !p->word || isfinite(p->def);
    if (p->word) return *out = str_is(a->s, p->word), a->kind == ATTR_STR;
    if (a->kind == ATTR_INT) *out = (double)a->i;
    else if (a->kind == ATTR_FLOAT) *out = a->f;
    else return false;
    return true;
}

static bool infer(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct row *row = row_of(x);
    struct shape s;
    double q;
    if (!types_ok(g, n, row, e) || !join_shapes(g, n, &s, e)) return false;
    for (u32 i = 0; i < 2 && row->par[i].name; i++)
        if (!par_value(x, &row->par[i], &q))
            return op_invalid(e, g, n, "attribute '%s'", row->par[i].name);
    enum dtype t = graph_value(g, x->in.v[main_input(row)])->dtype;
    op_set_out(g, n, 0, row->result == R_TRUTH ? DT_BOOL : t, &s);
    op_fold(g, n, row->fold);
    return true;
}

/* Reference. */

static struct ctx make_ctx(const struct row *row, const struct node *n, enum dtype t)
{
    struct ctx x = {
        .flt = dtype_is_float(t), .uns = dtype_kind(t) == DK_UINT, .is_u64 = t == DT_U64};
    x.bits = 8 * dtype_size(t);
    x.has_b = n->in.n > 1 && n->in.v[1];
    x.has_c = n->in.n > 2 && n->in.v[2];
    if (row->par[0].name) par_value(n, &row->par[0], &x.q0);
    if (row->par[1].name) par_value(n, &row->par[1], &x.q1);
    return x;
}

/* A walk over the operands of a broadcast in row-major order of the result. */
struct walk {
    const struct tensor *t[3], *out;
    i64 step[3][MAX_RANK], at[3], idx[MAX_RANK];
};

static void walk_init(struct walk *w, const struct op_eval *v)
{
    *w = (struct walk){.out = v->out[0]};
    for (u32 i = 0; i < v->n->in.n; i++) {
        const struct tensor *t = w->t[i] = v->in[i];
        i64 step = 1;
        for (u32 r = 0; t && r < t->rank; r++) {
            u32 axis = t->rank - 1 - r;
            w->step[i][w->out->rank - 1 - r] = t->dim[axis] == 1 ? 0 : step;
            step *= t->dim[axis];
        }
    }
}

static void walk_next(struct walk *w)
{
    for (u32 r = w->out->rank; r-- > 0;) {
        i64 back = ++w->idx[r] < w->out->dim[r] ? 0 : w->idx[r];
        for (u32 i = 0; i < 3; i++) w->at[i] += w->step[i][r] * (back ? 1 - back : 1);
        if (!back) return;
        w->idx[r] = 0;
    }
}

static double walk_f64(const struct walk *w, u32 i)
{
    const struct tensor *t = w->t[i];
    if (!t) return 0;
    if (dtype_is_float(t->dtype)) return elem_f64(t->dtype, t->data, w->at[i]);
    i64 k = elem_i64(t->dtype, t->data, w->at[i]);
    return t->dtype == DT_U64 ? (double)(u64)k : (double)k;
}

static i64 walk_i64(const struct walk *w, u32 i)
{
    const struct tensor *t = w->t[i];
    return t && !dtype_is_float(t->dtype) ? elem_i64(t->dtype, t->data, w->at[i]) : 0;
}

static bool eval(const struct op_eval *v, struct err *e)
{
    const struct row *row = row_of(v->n);
    struct ctx x = make_ctx(row, v->n, v->in[main_input(row)]->dtype);
    struct walk w;
    struct tensor *out = v->out[0];
    walk_init(&w, v);
    for (i64 i = 0, n = tensor_count(out); i < n; i++, walk_next(&w)) {
        double a = walk_f64(&w, 0), b = walk_f64(&w, 1), c = walk_f64(&w, 2);
        x.fb = b;
        double f = x.flt ? row->f64(&x, a, b, c) : 0;
        if (x.flt && out->dtype != DT_BOOL) elem_set_f64(out->dtype, out->data, i, f);
        else if (x.flt) elem_set_i64(DT_BOOL, out->data, i, f != 0);
        else
            elem_set_i64(out->dtype, out->data, i,
                         row->i64(&x, walk_i64(&w, 0), walk_i64(&w, 1), walk_i64(&w, 2)));
    }
    return true;
}

static kval lower(struct emit *m, const struct node *n, u32 k, const kval *idx)
{
    const struct row *row = row_of(n);
    enum dtype t = graph_value(m->g, n->in.v[main_input(row)])->dtype;
    u32 rank = graph_value(m->g, n->out.v[0])->shape.rank;
    struct ctx x = make_ctx(row, n, t);
    kval in[3] = {0};
    for (u32 i = 0; i < n->in.n; i++) {
        kval at[MAX_RANK] = {0};
        if (!n->in.v[i]) continue;
        emit_broadcast(m, n->in.v[i], rank, idx, at);
        in[i] = emit_value(m, n->in.v[i], at);
    }
    return row->kernel(m->k, &x, in[0], in[1], in[2]);
}

/* Random instances. */

static enum dtype random_type(enum types types, struct rng *r)
{
    static const enum dtype f[] = {DT_F32, DT_F32, DT_F32, DT_F64, DT_F16, DT_BF16};
    static const enum dtype i[] = {DT_I32, DT_I64, DT_U8, DT_I8, DT_U16, DT_I16, DT_U32, DT_U64};
    static const enum dtype u[] = {DT_U8, DT_U16, DT_U32, DT_U64};
    switch (types) {
    case T_FLOAT: return f[rng_range(r, 0, countof(f) - 1)];
    case T_NUM: return random_type(rng_range(r, 0, 2) ? T_FLOAT : T_INT, r);
    case T_INT: return i[rng_range(r, 0, countof(i) - 1)];
    case T_UINT: return u[rng_range(r, 0, countof(u) - 1)];
    case T_BOOL: return DT_BOOL;
    case T_ALL:
    case T_COND: return random_type(rng_range(r, 0, 3) ? T_NUM : T_BOOL, r);
    }
    unreachable();
}

/* Inputs of shapes that broadcast: trailing parts of one shape with some sizes replaced by 1. */
static void random_inputs(struct graph *g, struct rng *r, const enum dtype *t, u32 n, value_id *in)
{
    i64 dim[4];
    u32 rank = (u32)rng_range(r, 0, 4);
    for (u32 i = 0; i < rank; i++) dim[i] = rng_range(r, 1, 6);
    for (u32 k = 0; k < n; k++) {
        i64 part[4];
        u32 from = k == 0 || rng_range(r, 0, 1) ? 0 : (u32)rng_range(r, 0, rank);
        for (u32 i = from; i < rank; i++)
            part[i - from] = k > 0 && rng_range(r, 0, 3) == 0 ? 1 : dim[i];
        random_input(g, "x", t[k], rank - from, part, &in[k]);
    }
}

static void random_pars(struct graph *g, struct rng *r, const struct row *row)
{
    node_id n = g->node.n - 1;
    for (u32 i = 0; i < 2 && row->par[i].name; i++) {
        const struct par *p = &row->par[i];
        if (p->word) attr_set_str(g, n, p->name, rng_range(r, 0, 1) ? str_of(p->word) : S("LEFT"));
        else if (row->types == T_FLOAT && row->result == R_SAME)
            attr_set_float(g, n, p->name, 0.25 * (double)rng_range(r, 1, 6));
        else if (row->fold == FOLD_MOD || row->result == R_TRUTH)
            attr_set_int(g, n, p->name, rng_range(r, 0, 1));
    }
}

static void random_instance(const struct op *self, struct graph *g, struct rng *r)
{
    const struct row *row = self->row;
    enum dtype t = random_type(row->types, r), types[3] = {t, t, t};
    if (row->types == T_COND) types[0] = DT_BOOL;
    bool mixed = str_is(str_of(self->name), "Pow");
    if (mixed) types[1] = random_type(T_NUM, r);
    value_id in[3] = {0};
    u32 n = (u32)rng_range(r, self->min_in, self->max_in);
    random_inputs(g, r, types, n, in);
    if (self->max_in > self->min_in) /* Clip: the bounds are scalars */
        for (u32 i = 1; i < n; i++) in[i] = op_const_f(g, t, i == 1 ? -1 : 2);
    if (mixed && rng_range(r, 0, 1)) in[1] = op_const_f(g, types[1], (double)rng_range(r, -2, 4));
    random_node(g, self, n, in, 1);
    random_pars(g, r, row);
}

/* Composites of any number of inputs: a chain of binary ones. */

struct chain {
    const char *step;
    enum op_fold fold;
    bool is_mean;
};

static bool infer_chain(struct graph *g, node_id n, struct err *e)
{
    const struct node *x = graph_node(g, n);
    const struct chain *c = op_find(x->op)->row;
    struct shape s;
    if (!join_shapes(g, n, &s, e)) return false;
    enum dtype t = graph_value(g, x->in.v[0])->dtype;
    for (u32 i = 0; i < x->in.n; i++)
        if (!x->in.v[i] || graph_value(g, x->in.v[i])->dtype != t)
            return op_invalid(e, g, n, "inputs of different types");
    if (!type_ok(T_NUM, t)) return op_unsupported(e, g, n, "elements of type %s", dtype_name(t));
    op_set_out(g, n, 0, t, &s);
    struct sym_data sum, term;
    bool known = !c->is_mean && s.rank <= 1 && op_sym_content(g, x->in.v[0], 64, &sum);
    for (u32 i = 1; known && i < x->in.n; i++) {
        struct sym_data a = sum;
        known =
            op_sym_content(g, x->in.v[i], 64, &term) && op_fold_two(g, c->fold, &a, &term, &sum);
    }
    if (known) op_set_sdata(g, x->out.v[0], sum.num, sum.n, sum.den);
    return true;
}

static bool expand_chain(struct graph *g, node_id n, struct err *e)
{
    const struct node x = *graph_node(g, n);
    const struct chain *c = op_find(x.op)->row;
    value_id v = x.in.v[0], out = x.out.v[0];
    for (u32 i = 1; i < x.in.n; i++)
        v = op_node(g, n, c->step, 2, (value_id[]){v, x.in.v[i]},
                    c->is_mean || i + 1 < x.in.n ? 0 : out);
    enum dtype t = graph_value(g, out)->dtype;
    if (c->is_mean) op_node(g, n, "Div", 2, (value_id[]){v, op_const_f(g, t, x.in.n)}, out);
    else if (x.in.n == 1) op_node(g, n, "Identity", 1, &v, out);
    return true;
}

static void random_chain(const struct op *self, struct graph *g, struct rng *r)
{
    enum dtype t = random_type(T_NUM, r), types[4] = {t, t, t, t};
    value_id in[4];
    u32 n = (u32)rng_range(r, 1, 4);
    random_inputs(g, r, types, n, in);
    random_node(g, self, n, in, 1);
}

/* Descriptors. */

#define NOPAR                                                                                      \
    {                                                                                              \
        NULL, 0, NULL                                                                              \
    }
#define PAR1(n0, d0)                                                                               \
    {                                                                                              \
        n0, d0, NULL                                                                               \
    }
#define PAR2(n0, d0, n1, d1)                                                                       \
    {n0, d0, NULL}, { n1, d1, NULL }
#define WORD(n0, other, one)                                                                       \
    {                                                                                              \
        n0, NAN, one                                                                               \
    }
#define FLAG(n0, one) /* an optional word */                                           \
    {                                                                                              \
        n0, 0, one                                                                                 \
    }
#define X(id, nm, lo, hi, ty, res, pr, fo, pa, ke, ff, fi)                                         \
    static const struct row row_##id = {.types = T_##ty,                                           \
                                        .result = R_##res,                                         \
                                        .fold = FOLD_##fo,                                         \
                                        .par = {pa},                                               \
                                        .kernel = kernel_##id,                                     \
                                        .f64 = f64_##id,                                           \
                                        .i64 = i64_##id};
#include "op/pointwise.inc"
#undef X

static const struct chain chain_max = {"quern::Max", FOLD_MAX, false};
static const struct chain chain_min = {"quern::Min", FOLD_MIN, false};
static const struct chain chain_sum = {"Add", FOLD_ADD, false};
static const struct chain chain_mean = {"Add", FOLD_NONE, true};

#define CHAIN(nm, chain_)                                                                          \
    {.name = nm,                                                                                   \
     .props = OP_ONE_TYPE,                                                                         \
     .min_in = 1,                                                                                  \
     .max_in = 255,                                                                                \
     .min_out = 1,                                                                                 \
     .max_out = 1,                                                                                 \
     .infer = infer_chain,                                                                         \
     .expand = expand_chain,                                                                       \
     .random = random_chain,                                                                       \
     .row = &(chain_)},

static const struct op ops[] = {
#define X(id, nm, lo, hi, ty, res, pr, fo, pa, ke, ff, fi)                                         \
    {.name = nm,                                                                                   \
     .props = OP_POINTWISE | (pr),                                                                 \
     .min_in = lo,                                                                                 \
     .max_in = hi,                                                                                 \
     .min_out = 1,                                                                                 \
     .max_out = 1,                                                                                 \
     .infer = infer,                                                                               \
     .eval = eval,                                                                                 \
     .lower = lower,                                                                               \
     .random = random_instance,                                                                    \
     .row = &row_##id},
#include "op/pointwise.inc"
#undef X
    CHAIN("Max", chain_max) CHAIN("Min", chain_min) CHAIN("Sum", chain_sum)
        CHAIN("Mean", chain_mean)};

const struct op_family op_pointwise = {ops, countof(ops)};
