// SPDX-License-Identifier: Apache-2.0
//
// conformance_case.c: kernels of single operations, on all pairs of difficult values; the third
// operand runs through these values, too. The interpreter runs the same kernel. Results that kernel
// IR leaves undefined (division of integers by zero, shifts by too much, conversions that overflow)
// are not tested. Permitted differences of targets are accepted: flushed denormals, quotients and
// roots within a few units in the last place, multiply-adds rounded once or twice. If the target
// does not guarantee infinities, NaN and the sign of zero, these are not compared.
#include "tune/conformance.h"

#include <math.h>
#include <string.h>

/* Values. */

enum { MAX_VALUES = 40 };

struct values {
    union kir_cell v[MAX_VALUES];
    u32 n;
};

static void add_float(struct values *s, enum dtype t, double x)
{
    x = kir_round(t, x);
    for (u32 i = 0; i < s->n; i++)
        if (memcmp(&s->v[i].f, &x, sizeof x) == 0) return;
    if (s->n < MAX_VALUES) s->v[s->n++].f = x;
}

static void add_int(struct values *s, enum dtype t, i64 x)
{
    x = kir_wrap(t, x);
    for (u32 i = 0; i < s->n; i++)
        if (s->v[i].i == x) return;
    if (s->n < MAX_VALUES) s->v[s->n++].i = x;
}

static const struct float_type { enum dtype t; int digits, min; } float_types[] = {
    {DT_F16, 11, -14}, {DT_BF16, 8, -126}, {DT_F32, 24, -126}, {DT_F64, 53, -1022}};

static const struct float_type *float_type(enum dtype t)
{
    for (i64 i = 0; i < countof(float_types); i++)
        if (float_types[i].t == t) return &float_types[i];
    unreachable();
}

static void float_values(struct values *s, enum dtype t)
{
    static const double both[] = {0,   1,       0.5, 1.5, 2.5, 3.5, 0.49999999999999994, 2, 3, 7, 100.25, INFINITY, 1e-3, 65504,
                                  1e5, 2147483648.0};
    const struct float_type *f = float_type(t);
    double whole = ldexp(1, f->digits - 1), max = ldexp(2 - ldexp(1, 1 - f->digits), t == DT_F16 ? 15 : -f->min + 1);
    for (i64 i = 0; i < countof(both); i++) add_float(s, t, both[i]), add_float(s, t, -both[i]);
    add_float(s, t, NAN);
    const double edges[] = {max, -max, ldexp(1, f->min), ldexp(1, f->min - f->digits + 1), whole / 2 - 0.5, whole / 2 + 0.5, -whole - 1};
    for (i64 i = 0; i < countof(edges); i++) add_float(s, t, edges[i]);
}

static void int_values(struct values *s, enum dtype t)
{
    static const i64 common[] = {0, 1, -1, 2, -2, 3, 5, -7, 10, 100, 127, -128, 255, 32767, -32768, 65535, 0x12345678, -0x12345678};
    i64 bits = dtype_size(t) * 8;
    u64 top = 1ull << (bits - 1);
    for (i64 i = 0; i < countof(common); i++) add_int(s, t, common[i]);
    const i64 edges[] = {(i64)top,         (i64)(top - 1),  (i64)(top + 1), (i64)(top - 2), INT32_MIN,           INT32_MAX,
                         (i64)UINT32_MAX, (i64)1 << 32, -((i64)1 << 32), 0x0123456789abcdef, -((i64)1 << 40) - 3};
    for (i64 i = 0; i < countof(edges); i++) add_int(s, t, edges[i]);
}

static struct values values_of(enum dtype t)
{
    struct values s = {0};
    if (dtype_is_float(t)) float_values(&s, t);
    else if (t == DT_BOOL) add_int(&s, t, 0), add_int(&s, t, 1);
    else int_values(&s, t);
    return s;
}

static void set_cell(enum dtype t, void *p, i64 i, union kir_cell x)
{
    if (dtype_is_float(t)) elem_set_f64(t, p, i, x.f);
    else elem_set_i64(t, p, i, x.i);
}

static union kir_cell get_cell(enum dtype t, const void *p, i64 i)
{
    union kir_cell x;
    if (dtype_is_float(t)) x.f = elem_f64(t, p, i);
    else x.i = elem_i64(t, p, i);
    return x;
}

/* The list of cases. */

struct list {
    struct conform_case *v;
    u32 n, cap;
    struct arena *a;
};

static void add(struct list *l, enum conform_form form, enum kir_op op, enum dtype t, enum dtype to)
{
    *(arr_push(l->a, l)) = (struct conform_case){.op = op, .t = t, .to = to, .form = form};
}

static void add_all(struct list *l, const enum kir_op *op, i64 n, enum dtype t)
{
    for (i64 i = 0; i < n; i++) {
        bool is_test = kir_op_info(op[i])->rule == 'B';
        add(l, CONFORM_PLAIN, op[i], t, is_test ? DT_BOOL : t);
    }
}

static bool has_type(const struct caps *c, enum dtype t)
{
    if (dtype_is_small(t) || t == DT_TF32) return false; /* in memory only, or not a type of values */
    if (!c->is_gpu) return true;
    return t == DT_F64 ? c->has_f64 : t == DT_I64 || t == DT_U64 ? c->has_i64 || !c->spirv : true;
}

static void add_constants(struct list *l, enum dtype t)
{
    static const enum kir_op floats[] = {KI_DIV, KI_MUL, KI_ADD, KI_MAX}, ints[] = {KI_DIV, KI_MOD, KI_MUL, KI_SHR, KI_SHL};
    bool is_float = dtype_is_float(t);
    const enum kir_op *op = is_float ? floats : ints;
    i64 n = is_float ? countof(floats) : countof(ints);
    u32 n_values = values_of(t).n;
    for (i64 i = 0; i < n; i++)
        for (u32 k = 0; k < n_values; k += k < 4 ? 1 : 5) {
            add(l, CONFORM_CONST, op[i], t, t);
            l->v[l->n - 1].constant = k;
        }
}

static void add_casts(struct list *l, const struct caps *c, enum dtype t)
{
    for (enum dtype to = DT_NONE + 1; to < N_DTYPES; to++)
        if (to != t && has_type(c, to)) add(l, CONFORM_PLAIN, KI_CAST, t, to);
    for (enum dtype to = DT_NONE + 1; to < N_DTYPES; to++)
        if (to != t && to != DT_BOOL && t != DT_BOOL && has_type(c, to) && dtype_size(to) == dtype_size(t)) add(l, CONFORM_PLAIN, KI_BITS, t, to);
}

static void add_type(struct list *l, const struct caps *c, enum dtype t)
{
    static const enum kir_op floats[] = {KI_NEG, KI_ABS,   KI_SQRT,  KI_FLOOR, KI_CEIL, KI_TRUNC, KI_RINT, KI_ADD, KI_SUB,   KI_MUL,
                                         KI_DIV, KI_MIN,   KI_MAX,   KI_FMA,   KI_SELECT, KI_ISNAN, KI_ISINF, KI_EQ, KI_NE, KI_LT, KI_LE},
                             slow[] = {KI_MOD, KI_EXP, KI_LOG, KI_SIN, KI_TANH, KI_ERF},
                             ints[] = {KI_NEG, KI_ABS, KI_NOT, KI_ADD, KI_SUB, KI_MUL, KI_DIV, KI_MOD, KI_MIN, KI_MAX, KI_POW, KI_AND,
                                       KI_OR,  KI_XOR, KI_SHL, KI_SHR, KI_FMA, KI_SELECT, KI_EQ, KI_NE, KI_LT, KI_LE},
                             bools[] = {KI_NOT, KI_AND, KI_OR, KI_XOR, KI_EQ, KI_NE};
    bool is_half = t == DT_F16 || t == DT_BF16; /* only moved and converted */
    if (t == DT_BOOL) add_all(l, bools, countof(bools), t);
    else if (dtype_is_int(t)) add_all(l, ints, countof(ints), t);
    else if (!is_half) {
        add_all(l, floats, countof(floats), t);
        add_all(l, slow, countof(slow), t);
    }
    add_casts(l, c, t);
    if (t == DT_BOOL || is_half) return;
    if (dtype_size(t) >= 4) add_constants(l, t);
    add(l, CONFORM_LOOP, KI_LOOP, t, t);
    static const enum kir_op ops[] = {KI_SGADD, KI_SGMIN, KI_SGMAX, KI_SHUFFLE};
    bool is_word = t == DT_F32 || t == DT_I32 || t == DT_U32;
    if (!c->is_gpu || !c->has_subgroup || !c->subgroup || !is_word) return;
    for (i64 i = 0; i < countof(ops); i++) add(l, CONFORM_SUBGROUP, ops[i], t, t);
}

u32 conform_list(struct arena *a, const struct caps *c, struct conform_case **v)
{
    struct list l = {.a = a};
    for (enum dtype t = DT_NONE + 1; t < N_DTYPES; t++)
        if (has_type(c, t)) add_type(&l, c, t);
    *v = l.v;
    return l.n;
}

static u32 arg_of(const struct conform_case *v, u32 n, enum dtype *types, u32 *n_types)
{
    for (u32 i = 0; i < n; i++) {
        u32 k = 0;
        while (k < *n_types && types[k] != v[i].to) k++;
        if (k == *n_types) types[(*n_types)++] = v[i].to;
    }
    return *n_types;
}

bool conform_together(const struct conform_case *v, u32 n)
{
    enum { MOST = 48, MOST_SLOW = 3, MOST_TYPES = 5 };
    enum dtype types[N_DTYPES];
    u32 n_types = 0, n_slow = 0;
    for (u32 i = 0; i < n; i++) {
        if (v[i].t != v[0].t || (v[i].form == CONFORM_SUBGROUP) != (v[0].form == CONFORM_SUBGROUP)) return false;
        n_slow += dtype_is_float(v[i].t) && (v[i].op == KI_MOD || kir_can_expand(v[i].op, DT_F32));
    }
    return n <= MOST && n_slow <= MOST_SLOW && arg_of(v, n, types, &n_types) <= MOST_TYPES;
}

static void put_cell(struct buf *b, enum dtype t, union kir_cell x)
{
    if (dtype_is_float(t)) buf_f64(b, x.f);
    else if (t == DT_U64) buf_printf(b, "%llu", (unsigned long long)x.i);
    else buf_printf(b, "%lld", (long long)x.i);
}

void conform_print(struct buf *b, const struct conform_case *x)
{
    bool is_cast = x->op == KI_CAST || x->op == KI_BITS;
    buf_printf(b, "%s:%s", x->form == CONFORM_LOOP ? "loop" : kir_op_info(x->op)->name, dtype_name(x->t));
    if (is_cast) buf_printf(b, ":%s", dtype_name(x->to));
    if (x->form != CONFORM_CONST) return;
    buf_char(b, '=');
    put_cell(b, x->t, values_of(x->t).v[x->constant]);
}

/* Kernels. */

static kval constant_of(struct kir *k, const struct conform_case *x)
{
    struct values s = values_of(x->t);
    return dtype_is_float(x->t) ? kir_const_f(k, x->t, 1, s.v[x->constant].f) : kir_const_i(k, x->t, 1, s.v[x->constant].i);
}

/* Replaces operands for which kernel IR leaves the result undefined. */
static kval defined(struct kir *k, const struct conform_case *x, kval b)
{
    enum dtype t = x->t;
    if (dtype_is_float(t)) return b;
    if (x->op == KI_DIV || x->op == KI_MOD)
        return kir_select(k, kir_bin(k, KI_EQ, b, kir_const_i(k, t, 1, 0)), kir_const_i(k, t, 1, 1), b);
    if (x->op == KI_SHL || x->op == KI_SHR) return kir_bin(k, KI_AND, b, kir_const_i(k, t, 1, dtype_size(t) * 8 - 1));
    return x->op == KI_POW ? kir_bin(k, KI_AND, b, kir_const_i(k, t, 1, 15)) : b;
}

/* rounds times r = r * b + c, in a loop-carried register; for floats r = c - r, which does not
   grow. */
static kval carried(struct kir *k, const struct conform_case *x, const kval *in)
{
    kval zero = kir_int(k, 0), r = kir_alloc(k, KS_REG, x->t, 1, kir_int(k, 1));
    kir_store(k, r, zero, in[0]);
    kir_loop(k, KL_SERIAL, zero, kir_param(k, S("rounds")), 1);
    kval v = kir_load(k, r, zero);
    v = dtype_is_float(x->t) ? kir_sub(k, in[2], v) : kir_add(k, kir_mul(k, v, in[1]), in[2]);
    kir_store(k, r, zero, v);
    kir_end(k);
    return kir_load(k, r, zero);
}

static kval emit(struct kir *k, const struct conform_case *x, const kval *in)
{
    kval b = defined(k, x, x->form == CONFORM_CONST ? constant_of(k, x) : in[1]);
    if (x->form == CONFORM_LOOP) return carried(k, x, in);
    if (x->op == KI_CAST) return kir_cast(k, x->to, in[0]);
    if (x->op == KI_BITS) return kir_bits(k, x->to, in[0]);
    if (x->op == KI_SELECT) return kir_select(k, kir_lt(k, in[0], in[1]), in[1], in[2]);
    if (x->op == KI_FMA) return kir_fma(k, in[0], in[1], in[2]);
    if (x->op == KI_SHUFFLE) return kir_shuffle(k, in[0], kir_bin(k, KI_XOR, kir_subgroup(k, 1), kir_int(k, 1)));
    if (x->form == CONFORM_SUBGROUP) return kir_sg(k, x->op, in[0]);
    return kir_op_info(x->op)->n_args == 1 ? kir_un(k, x->op, in[0]) : kir_bin(k, x->op, in[0], b);
}

/* Operands: all pairs of values. Reductions over a subgroup get small integers, whose sums are the
   same in any order. */
static void fill(struct conform_kernel *k, enum dtype t, bool is_subgroup)
{
    struct values s = values_of(t);
    for (u32 i = 0; i < 3; i++) k->arg[i] = (struct kir_arg){arena_alloc(&k->arena, k->n_values * dtype_size(t) + 64), k->n_values};
    for (i64 i = 0; i < k->n_values; i++) {
        i64 a = i / s.n % s.n, b = i % s.n, c = (a * 7 + b * 3) % s.n;
        union kir_cell small;
        if (dtype_is_float(t)) small.f = (double)(i % 17 - 8);
        else small.i = kir_wrap(t, i % 17 - 8);
        set_cell(t, k->arg[0].p, i, is_subgroup ? small : s.v[a]);
        set_cell(t, k->arg[1].p, i, s.v[b]);
        set_cell(t, k->arg[2].p, i, s.v[c]);
    }
}

static void place_results(struct conform_kernel *k, kval *buf)
{
    enum dtype types[N_DTYPES];
    u32 n_types = 0;
    arg_of(k->v, k->n, types, &n_types);
    k->result = arena_alloc(&k->arena, (i64)sizeof *k->result * k->n);
    for (u32 i = 0; i < k->n; i++) {
        u32 arg = 3;
        while (types[arg - 3] != k->v[i].to) arg++;
        k->result[i].arg = arg;
        k->result[i].at = k->arg[arg].n;
        k->arg[arg].n += k->n_values;
    }
    k->n_arg = 3 + n_types;
    for (u32 i = 3; i < k->n_arg; i++) {
        k->is_out[i] = true;
        k->arg[i].p = arena_alloc(&k->arena, k->arg[i].n * dtype_size(types[i - 3]) + 64);
        buf[i] = kir_buf(&k->kir, str_fmt(&k->arena, "r%u", i - 3), types[i - 3], KA_OUT);
    }
}

void conform_build(struct conform_kernel *x, const struct caps *c, const struct conform_case *v, u32 n)
{
    kval buf[countof(x->arg)], in[3];
    bool is_subgroup = v[0].form == CONFORM_SUBGROUP;
    u32 threads = is_subgroup ? 2 * c->subgroup : 1;
    *x = (struct conform_kernel){.v = v, .n = n, .rounds = 5};
    struct kir *k = &x->kir;
    struct values s = values_of(v[0].t);
    x->n_values = round_up((i64)s.n * s.n, threads);
    x->n_grid = x->n_values / threads;
    kir_init(k, &x->arena, S("conformance"));
    if (is_subgroup) k->group[0] = threads, k->subgroup = c->subgroup;
    for (u32 i = 0; i < 3; i++) buf[i] = kir_buf(k, str_fmt(&x->arena, "x%u", i), v[0].t, KA_IN);
    fill(x, v[0].t, is_subgroup);
    place_results(x, buf);
    kval g = kir_grid(k, kir_int(k, x->n_grid)), at = g;
    if (is_subgroup) at = kir_add(k, kir_mul_i(k, g, threads), kir_thread(k, 0));
    for (u32 i = 0; i < 3; i++) in[i] = kir_load(k, buf[i], at);
    for (u32 i = 0; i < n; i++) kir_store(k, buf[x->result[i].arg], kir_add_i(k, at, x->result[i].at), emit(k, &v[i], in));
    kir_end(k);
}

/* Comparison. */

static bool is_denormal(enum dtype t, double x)
{
    return dtype_is_float(t) && x != 0 && fabs(x) < ldexp(1, float_type(t)->min);
}

static union kir_cell flushed(enum dtype t, union kir_cell x)
{
    if (dtype_is_float(t) && is_denormal(t, x.f)) x.f = copysign(0, x.f);
    return x;
}

/* Tolerance of a result, in units in the last place. */
static double allowance(const struct conform_case *x)
{
    bool narrows = x->op == KI_CAST && (!dtype_is_float(x->t) || dtype_size(x->to) < dtype_size(x->t));
    if (kir_can_expand(x->op, x->t)) return x->t == DT_F64 ? 256 : 16;
    return x->op == KI_DIV || x->op == KI_SQRT ? 4 : narrows ? 1 : 0;
}

static bool near(const struct conform_case *x, double want, double got, bool has_nan)
{
    const struct float_type *f = float_type(x->to);
    int exponent;
    if (isnan(want)) return isnan(got) || !has_nan;
    if (isinf(want)) return got == want || !has_nan || (allowance(x) > 0 && fabs(got) >= ldexp(1.999, f->t == DT_F16 ? 15 : -f->min + 1));
    if (got == want) return signbit(got) == signbit(want) || !has_nan;
    frexp(want, &exponent);
    double unit = ldexp(1, (want == 0 || exponent - 1 < f->min ? f->min + 1 : exponent) - f->digits);
    if (isinf(got)) got = copysign(ldexp(1, f->t == DT_F16 ? 16 : -f->min + 2), got);
    return fabs(got - want) <= allowance(x) * unit;
}

static bool same(const struct conform_case *x, union kir_cell want, union kir_cell got, bool has_nan)
{
    return dtype_is_float(x->to) ? near(x, want.f, got.f, has_nan) : want.i == got.i;
}

static bool has_denormals(const struct conform_case *x, const union kir_cell *in)
{
    return is_denormal(x->t, in[0].f) || is_denormal(x->t, in[1].f) || is_denormal(x->t, in[2].f);
}

/* Whether kernel IR defines the result and the target guarantees it. */
static bool is_defined(const struct conform_case *x, const union kir_cell *in, bool has_nan)
{
    if (!dtype_is_float(x->t)) return true;
    u32 n = x->form == CONFORM_LOOP ? 3 : x->op == KI_SELECT ? 3 : kir_op_info(x->op)->n_args;
    for (u32 i = 0; i < n && !has_nan; i++)
        if (!isfinite(in[i].f)) return false;
    if (x->form == CONFORM_LOOP) return !has_denormals(x, in);
    if (x->op == KI_MOD) return !is_denormal(x->t, in[1].f) && !is_denormal(x->t, in[0].f);
    if (x->op != KI_CAST || !dtype_is_int(x->to)) return true;
    i64 bits = dtype_size(x->to) * 8;
    bool is_u = dtype_kind(x->to) == DK_UINT;
    double v = trunc(in[0].f), hi = ldexp(1, (int)bits - !is_u);
    return v < hi && v >= (is_u ? 0 : -hi); /* not NaN */
}

/* Whether the error is at most that of flushed denormals, among operands or on the way to a result
   close to the smallest normal number. */
static bool is_within_denormals(const struct conform_case *x, const union kir_cell *in, double want, double got)
{
    double least = ldexp(1, float_type(x->to)->min);
    bool may_lose = is_denormal(x->to, want) || (dtype_is_float(x->t) && has_denormals(x, in)) || kir_can_expand(x->op, x->t);
    return may_lose && fabs(want) < 16 * least && fabs(got - want) <= least;
}

/* Whether the result is that with flushed denormals, or with a multiply-add that rounds twice. */
static bool is_permitted(const struct conform_case *x, const union kir_cell *in, union kir_cell want, union kir_cell got, bool has_nan)
{
    union kir_cell z[3] = {flushed(x->t, in[0]), flushed(x->t, in[1]), flushed(x->t, in[2])}, r = want;
    if (dtype_is_float(x->to) && is_within_denormals(x, in, want.f, got.f)) return true;
    if (x->op == KI_FMA && dtype_is_float(x->t)) {
        union kir_cell m[3] = {in[0], in[1]};
        kir_scalar(KI_MUL, x->t, x->t, m, &m[0]);
        m[1] = in[2];
        kir_scalar(KI_ADD, x->t, x->t, m, &r);
        if (same(x, r, got, has_nan)) return true;
    }
    if (!dtype_is_float(x->t) || x->form == CONFORM_LOOP || x->form == CONFORM_SUBGROUP || x->op == KI_BITS) return false;
    if (x->op == KI_SELECT) r = z[0].f < z[1].f ? z[1] : z[2];
    else if (!kir_scalar(x->op, x->t, x->to, z, &r)) return false;
    return same(x, r, got, has_nan) || same(x, flushed(x->to, r), got, has_nan);
}

static void put_why(struct buf *b, const struct conform_case *x, const union kir_cell *in, union kir_cell want, union kir_cell got)
{
    u32 n = x->form == CONFORM_LOOP ? 3 : kir_op_info(x->op)->n_args;
    for (u32 i = 0; i < n && i < 3; i++) {
        if (i) buf_z(b, ", ");
        put_cell(b, x->t, in[i]);
    }
    buf_z(b, " gives ");
    put_cell(b, x->to, got);
    buf_z(b, ", not ");
    put_cell(b, x->to, want);
}

u32 conform_compare(const struct conform_kernel *k, const struct caps *c, u32 at, void *const *got, struct buf *why)
{
    const struct conform_case *x = &k->v[at];
    u32 arg = k->result[at].arg, n_wrong = 0;
    bool has_nan = !c->is_gpu || c->has_nan;
    struct values s = values_of(x->t);
    for (i64 i = 0; i < k->n_values; i++) {
        i64 where = k->result[at].at + i;
        union kir_cell in[3], want = get_cell(x->to, k->arg[arg].p, where), is = get_cell(x->to, got[arg], where);
        for (u32 j = 0; j < 3; j++) in[j] = get_cell(x->t, k->arg[j].p, i);
        if (x->form == CONFORM_CONST) in[1] = s.v[x->constant];
        if (same(x, want, is, has_nan) || !is_defined(x, in, has_nan) || is_permitted(x, in, want, is, has_nan)) continue;
        if (n_wrong++ == 0) put_why(why, x, in, want, is);
    }
    return n_wrong;
}
