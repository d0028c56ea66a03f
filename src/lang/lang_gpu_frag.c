// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu_frag.c: fragments of cuda and hip: a struct of the elements held by a thread of the subgroup.
// The mapping is the hardware's; a language supplies it as row and column of element i of thread `lane`.
// Loads, stores, sums and casts are loops over the elements, which compilers unroll. Adjacent 16-bit
// elements are moved in pairs: addresses and pitches of fragments are multiples of 16 bytes or of a row.
// Blocks of 8x8 elements that a language fetches from shared arrays are aligned likewise, swizzled or not.
#include "lang/lang_gpu.h"

/* Pins a warpgroup's accumulators to the registers where matmuls expect them, opaque to the compiler. */
static struct str pin_call(struct text *t, const struct kir_ins *x)
{
    return kir_warpgroup(t->k) > 1 ? text_fmt(t, "    %.*s(f);\n", STR_ARG(gpu_frag_pin(t, x))) : S("");
}

/* A prelude function that creates a fragment f, element by element. R in its header is the result
   type. */
static void define(struct text *t, const struct kir_ins *x, struct str head, u32 n, struct str body)
{
    struct str type = gpu_frag_type(t, x), pin = pin_call(t, x);
    buf_printf(&t->prelude, "#define R %.*s\n%s%.*s\n{\n    R f;\n#pragma unroll\n", STR_ARG(type), t->style->function, STR_ARG(head));
    buf_printf(&t->prelude, "    for (i32 i = 0; i < %u; i++) %.*s\n%.*s    return f;\n}\n#undef R\n", n, STR_ARG(body), STR_ARG(pin));
}

static struct str address(struct text *t, const struct gpu_place *p, const struct kir_ins *access)
{
    struct str i = access->aux ? text_fmt(t, "(at + (%s) + (%s) * pitch)", p->row, p->col)
                               : text_fmt(t, "(at + (%s) * pitch + (%s))", p->row, p->col);
    return text_fmt(t, "p[%.*s]", STR_ARG(gpu_swizzled(t, access->a, i)));
}

/* Elements i and i + 1 are adjacent in memory. */
static bool is_paired(const struct kir_frag *f, const struct gpu_place *p, bool by_columns)
{
    return dtype_size(f->dtype) == 2 && p->is_down == by_columns;
}

static bool is_shared(const struct text *t, kval array)
{
    const struct kir_ins *x = kir_at(t->k, array);
    return x->op == KI_ALLOC && x->aux == KS_SHARED;
}

/* 8x8 blocks of half types in shared arrays, whose lines are 16 bytes and aligned to that. */
static bool is_fetched(const struct text *t, const struct kir_ins *x, const struct kir_frag *f)
{
    return gpu_words(t)->fetch && is_shared(t, x->a) && dtype_size(f->dtype) == 2 && (f->role == KR_A || f->role == KR_B);
}

/* The first element of word w in thread 0 is the corner of block w: thread 8w + r finds its line
   from there. */
static void fetch_body(struct text *t, const struct kir_ins *x, const struct kir_frag *f, const struct gpu_place *p)
{
    const char *elem = dtype_name(text_rep(f->dtype));
    struct gpu_place line = {.row = text_fmt(t, x->aux ? "%s" : "%s + line", p->row).p,
                             .col = text_fmt(t, x->aux ? "%s + line" : "%s", p->col).p};
    buf_printf(&t->prelude, "    const i32 line = lane %% 8, i = lane / 8 %% %u * 2;\n    lane = 0;\n", p->n / 2);
    buf_printf(&t->prelude, "    const %s *from = &%.*s;\n", elem, STR_ARG(address(t, &line, x)));
    gpu_words(t)->fetch(&t->prelude, p->n / 2, !is_paired(f, p, x->aux));
    buf_z(&t->prelude, "    return f;\n}\n");
}

static struct str move_function(struct text *t, const struct kir_ins *x, const struct kir_ins *frag, bool is_load)
{
    struct kir_frag f = kir_frag_of(frag);
    struct gpu_place p = gpu_frag_place(t, &f);
    struct str type = gpu_frag_type(t, frag), tag = gpu_frag_tag(t, &f), at = address(t, &p, x);
    const char *swizzled = gpu_is_swizzled(t->k, x->a) ? "swizzled_" : "";
    bool fetched = is_load && is_fetched(t, x, &f);
    struct str name = text_fmt(t, "q_%s_%s_%s%.*s", fetched ? "ffetch" : is_load ? "fload" : "fstore", x->aux ? "columns" : "rows", swizzled,
                               STR_ARG(tag));
    if (t->err->code || !gpu_first_use(t, name)) return name;
    const char *elem = dtype_name(text_rep(kir_frag_stored(f.dtype)));
    bool pairs = is_paired(&f, &p, x->aux);
    struct str pin = is_load ? pin_call(t, frag) : S("");
    struct str one = text_fmt(t, "f.x[i]");
    if (pairs) {
        if (gpu_first_use(t, S("u32x1"))) gpu_words(t)->define_wide(&t->types, DT_U32, 1);
        struct str word = S("u32x1");
        one = S("f.w[i / 2]");
        at = text_fmt(t, "*(%s%.*s *)&%.*s", is_load ? "const " : "", STR_ARG(word), STR_ARG(at));
    }
    if (f.dtype == DT_TF32) at = text_fmt(t, "%.*s(%.*s)", STR_ARG(text_helper(t, "to_tf32", DT_F32, 1, DT_NONE)), STR_ARG(at));
    if (is_load)
        buf_printf(&t->prelude, "%s%.*s %.*s(const %s *p, i32 at, i32 pitch, i32 lane)\n{\n    %.*s f;\n", t->style->function,
                   STR_ARG(type), STR_ARG(name), elem, STR_ARG(type));
    else buf_printf(&t->prelude, "%svoid %.*s(%s *p, i32 at, i32 pitch, i32 lane, %.*s f)\n{\n", t->style->function,
                    STR_ARG(name), elem, STR_ARG(type));
    if (fetched) {
        fetch_body(t, x, &f, &p);
        return name;
    }
    buf_printf(&t->prelude, "#pragma unroll\n    for (i32 i = 0; i < %u; i += %d) ", p.n, pairs ? 2 : 1);
    if (is_load) buf_printf(&t->prelude, "%.*s = %.*s;\n%.*s    return f;\n}\n", STR_ARG(one), STR_ARG(at), STR_ARG(pin));
    else buf_printf(&t->prelude, "%.*s = %.*s;\n}\n", STR_ARG(at), STR_ARG(one));
    return name;
}

/* Between a fragment and an array of a thread's own elements, whose indices are constant. */
static struct str own_function(struct text *t, const struct kir_ins *x, const struct kir_ins *frag)
{
    const bool is_load = x->op == KI_FLOAD;
    const struct kir_frag f = kir_frag_of(frag);
    const struct gpu_place p = gpu_frag_place(t, &f);
    const u32 lanes = kir_at(t->k, x->a)->lanes;
    const struct str type = gpu_frag_type(t, frag), tag = gpu_frag_tag(t, &f), pin = is_load ? pin_call(t, frag) : S("");
    const struct str name = text_fmt(t, "q_%s_own_%s%u_%.*s", is_load ? "fload" : "fstore", x->aux ? "columns" : "rows", lanes, STR_ARG(tag));
    if (!p.is_own && !t->err->code)
        err_set(t->err, ERR_UNSUPPORTED, "a thread's elements of %ux%u %s fragments in kernel '%.*s'", f.rows, f.cols, dtype_name(f.dtype), STR_ARG(t->k->name));
    if (t->err->code || !gpu_first_use(t, name)) return name;
    const char *elem = dtype_name(text_rep(f.dtype)), *at = x->aux ? "at + (i >> 1 & 1) + ((i >> 2) * 2 + (i & 1)) * pitch"
                                                         : lanes == 2 ? "(at + (i >> 1 & 1) * pitch + (i >> 2)) * 2 + (i & 1)" : "at + (i >> 1 & 1) * pitch + (i >> 2) * 2 + (i & 1)";
    buf_printf(&t->prelude, "%s%.*s %.*s(%s%s *p, i32 at, i32 pitch%s%.*s%s)\n{\n", t->style->function, STR_ARG(is_load ? type : S("void")), STR_ARG(name),
               is_load ? "const " : "", elem, is_load ? "" : ", ", STR_ARG(is_load ? S("") : type), is_load ? "" : " f");
    if (is_load) buf_printf(&t->prelude, "    %.*s f;\n", STR_ARG(type));
    buf_printf(&t->prelude, "#pragma unroll\n    for (i32 i = 0; i < %u; i++) ", p.n);
    if (is_load) buf_printf(&t->prelude, "f.x[i] = p[%s];\n%.*s    return f;\n}\n", at, STR_ARG(pin));
    else buf_printf(&t->prelude, "p[%s] = f.x[i];\n}\n", at);
    return name;
}

/* An access to such an array: of one element it is a variable, or one per lane. */
static struct str own_access(struct text *t, const struct kir_ins *x, const struct kir_ins *frag, kval pitch)
{
    i64 at, step, n = 0;
    const struct kir_ins *array = kir_at(t->k, x->a);
    const struct str f = own_function(t, x, frag), name = gpu_array_name(t, x->a);
    kir_is_const(t->k, array->a, &n);
    if (!kir_is_const(t->k, x->b, &at) || !kir_is_const(t->k, pitch, &step) || (n == 1 && array->lanes > 1)) {
        err_set(t->err, ERR_UNSUPPORTED, "a thread's elements of a fragment at an unknown place in kernel '%.*s'", STR_ARG(t->k->name));
        return f;
    }
    return text_fmt(t, "%.*s(%s%.*s, %lld, %lld", STR_ARG(f), n == 1 ? "&" : "", STR_ARG(name), (long long)at, (long long)step);
}

static struct str place_text(struct text *t, kval array, kval index, kval pitch)
{
    struct str a = gpu_array_name(t, array), i = text_bare(t, index), n = text_bare(t, pitch);
    return text_fmt(t, "%.*s, %.*s, %.*s, thread %% (SUBGROUP * %u)", STR_ARG(a), STR_ARG(i), STR_ARG(n), kir_warpgroup(t->k));
}

void gpu_frag_store(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (kir_is_own(t->k, x)) {
        text_line(t, "%.*s, %.*s);", STR_ARG(own_access(t, x, kir_at(t->k, x->c), x->d)), STR_ARG(text_bare(t, x->c)));
        return;
    }
    struct str f = move_function(t, x, kir_at(t->k, x->c), false), at = place_text(t, x->a, x->b, x->d);
    text_line(t, "%.*s(%.*s, %.*s);", STR_ARG(f), STR_ARG(at), STR_ARG(text_bare(t, x->c)));
}

static struct str fill(struct text *t, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    struct str name = text_fmt(t, "q_fill_%.*s", STR_ARG(gpu_frag_tag(t, &f)));
    if (gpu_first_use(t, name))
        define(t, x, text_fmt(t, "R %.*s(%s a)", STR_ARG(name), dtype_name(text_rep(f.dtype))), gpu_frag_place(t, &f).n,
                 S("f.x[i] = a;"));
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(name), STR_ARG(text_bare(t, x->a)));
}

/* An element of a fragment as f32, if it is a half. */
static struct str wide(struct text *t, enum dtype d, const char *s)
{
    if (text_rep(d) == d) return str_of(s);
    struct str h = text_helper(t, d == DT_F16 ? "from_f16" : "from_bf16", DT_F32, 1, DT_NONE);
    return text_fmt(t, "%.*s(%s)", STR_ARG(h), s);
}

static struct str narrow(struct text *t, enum dtype d, struct str s)
{
    if (text_rep(d) == d) return text_fmt(t, "(%s)(%.*s)", dtype_name(d), STR_ARG(s));
    struct str h = text_helper(t, d == DT_F16 ? "to_f16" : "to_bf16", DT_F32, 1, DT_NONE);
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(h), STR_ARG(s));
}

/* Sums and products element by element. */
static struct str combine(struct text *t, const struct kir_ins *x)
{
    struct kir_frag f = kir_frag_of(x);
    bool is_sum = x->op == KI_ADD;
    struct str name = text_fmt(t, "q_f%s_%.*s", is_sum ? "add" : "mul", STR_ARG(gpu_frag_tag(t, &f)));
    struct str a = wide(t, f.dtype, "a.x[i]"), b = wide(t, f.dtype, "b.x[i]");
    struct str value = narrow(t, f.dtype, text_fmt(t, "%.*s %s %.*s", STR_ARG(a), is_sum ? "+" : "*", STR_ARG(b)));
    if (gpu_first_use(t, name))
        define(t, x, text_fmt(t, "R %.*s(R a, R b)", STR_ARG(name)), gpu_frag_place(t, &f).n,
                 text_fmt(t, "f.x[i] = %.*s;", STR_ARG(value)));
    return text_fmt(t, "%.*s(%.*s, %.*s)", STR_ARG(name), STR_ARG(text_bare(t, x->a)), STR_ARG(text_bare(t, x->b)));
}

static struct str cast(struct text *t, const struct kir_ins *x)
{
    const struct kir_ins *from = kir_at(t->k, x->a);
    struct kir_frag f = kir_frag_of(x), g = kir_frag_of(from);
    struct str arg = gpu_frag_type(t, from);
    struct str name = text_fmt(t, "q_fcast_%s_%.*s", dtype_name(g.dtype), STR_ARG(gpu_frag_tag(t, &f)));
    struct str value = narrow(t, f.dtype, wide(t, g.dtype, "a.x[i]"));
    if (gpu_first_use(t, name))
        define(t, x, text_fmt(t, "R %.*s(%.*s a)", STR_ARG(name), STR_ARG(arg)), gpu_frag_place(t, &f).n,
                 text_fmt(t, "f.x[i] = %.*s;", STR_ARG(value)));
    return text_fmt(t, "%.*s(%.*s)", STR_ARG(name), STR_ARG(text_bare(t, x->a)));
}

static struct str multiply(struct text *t, const struct kir_ins *x)
{
    struct kir_frag a = kir_frag_of(kir_at(t->k, x->a)), b = kir_frag_of(kir_at(t->k, x->b)), c = kir_frag_of(x);
    struct caps_matrix m = {.m = c.rows, .n = c.cols, .k = a.cols, .a = a.dtype, .b = b.dtype, .c = c.dtype, .d = c.dtype};
    struct str type = gpu_frag_type(t, x), ta = gpu_frag_type(t, kir_at(t->k, x->a)),
               tb = gpu_frag_type(t, kir_at(t->k, x->b));
    struct str name = text_fmt(t, "q_fmma_%.*s_%.*s", STR_ARG(gpu_frag_tag(t, &a)), STR_ARG(gpu_frag_tag(t, &c)));
    if (gpu_first_use(t, name)) {
        buf_printf(&t->prelude, "%s%.*s %.*s(%.*s a, %.*s b, %.*s c)\n{\n", t->style->function, STR_ARG(type), STR_ARG(name),
                   STR_ARG(ta), STR_ARG(tb), STR_ARG(type));
        if (!gpu_words(t)->multiply || !gpu_words(t)->multiply(&t->prelude, &m))
            err_set(t->err, ERR_UNSUPPORTED, "fmma of %s, %lldx%lldx%lld, is not supported by this language (kernel '%.*s')",
                    dtype_name(a.dtype), (long long)m.m, (long long)m.n, (long long)m.k, STR_ARG(t->k->name));
        buf_z(&t->prelude, "    return c;\n}\n");
    }
    return text_fmt(t, "%.*s(%.*s, %.*s, %.*s)", STR_ARG(name), STR_ARG(text_bare(t, x->a)), STR_ARG(text_bare(t, x->b)),
                    STR_ARG(text_bare(t, x->c)));
}

struct str gpu_frag(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    switch (x->op) {
    case KI_FILL: return fill(t, x);
    case KI_ADD:
    case KI_MUL: return combine(t, x);
    case KI_CAST: return cast(t, x);
    case KI_FMMA: return multiply(t, x);
    case KI_LOAD: return gpu_load(t, v);
    case KI_FLOAD: {
        if (gpu_is_described(t, x)) return gpu_warpgroup_operand(t, v);
        if (kir_is_own(t->k, x)) return text_fmt(t, "%.*s)", STR_ARG(own_access(t, x, x, x->c)));
        struct str f = move_function(t, x, x, true), at = place_text(t, x->a, x->b, x->c);
        return text_fmt(t, "%.*s(%.*s)", STR_ARG(f), STR_ARG(at));
    }
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KI_BITS: case KIR_UNARY: case KI_SUB:
    case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW: case KIR_LOGIC:
    case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS: case KI_SELECT: case KIR_ARRAYS:
    case KI_STORE: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL: case KIR_SYNC:
    case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FSTORE:
    default: unreachable();
    }
}
