// SPDX-License-Identifier: Apache-2.0
//
// hip.c: the language hip, HIP C++ without headers, built to a code object for the
// target's architecture by hipcc. Library functions are those of the device's bitcode
// library, whose square root and remainder are exact. Only kernel IR's own FMAs are fused.
#include "lang/lang_gpu.h"
#include "lang/lang_tool.h"

enum { REVISION = 2 /* incremented when the same kernel yields another text */ };

#define OPTIONS "-O3", "-nogpuinc", "-ffp-contract=off", "-fno-fast-math", "-fhip-fp32-correctly-rounded-divide-sqrt", "-w"

static const struct text_helper helpers[] = {
    {.name = "fma", .types = T_FLOAT, .n_args = 3, .scalar = "$E $F($E x, $E y, $E z)\n{\n    return $mfma$f(x, y, z);\n}\n"},
    {.name = "from_f16", .types = T_F32,
     .scalar = "f32 $F(u16 h)\n{\n    _Float16 x;\n    __builtin_memcpy(&x, &h, 2);\n    return (f32)x;\n}\n"},
    {.name = "to_f16", .types = T_F32,
     .scalar = "u16 $F(f32 x)\n{\n    const _Float16 y = (_Float16)x;\n    u16 h;\n    __builtin_memcpy(&h, &y, 2);\n    return h;\n}\n"},
    {.name = "to_tf32", .types = T_F32, /* tf32_from_f32 of the host */
     .scalar = "u32 $F(f32 x)\n{\n    u32 w;\n    __builtin_memcpy(&w, &x, 4);\n"
               "    return (w & 0x7f800000u) == 0x7f800000u ? w : (w + 0x1000u) & ~0x1fffu;\n}\n"},
    GPU_SUBGROUP_HELPERS(T_NUMBER, T_FLOAT, T_INT),
    {0},
};

static void preamble(struct buf *out, const struct kir *k, u32 subgroup)
{
    static const char *const functions[] = {"sqrt", "fabs", "floor", "ceil", "trunc", "rint"};
    gpu_typedefs(out, k, "long long");
    buf_z(out, "#define __device__ __attribute__((device))\n");
    for (int d = 0; d < 2; d++) {
        const char *t = d ? "f64" : "f32";
        if (d && !gpu_has_type(k, DT_F64)) break;
        for (i64 i = 0; i < countof(functions); i++)
            buf_printf(out, "extern \"C\" __device__ %s __ocml_%s_%s(%s);\n", t, functions[i], t, t);
        buf_printf(out, "extern \"C\" __device__ %s __ocml_fmod_%s(%s, %s);\n", t, t, t, t);
        buf_printf(out, "extern \"C\" __device__ %s __ocml_fma_%s(%s, %s, %s);\n", t, t, t, t, t);
    }
    if (!gpu_has_subgroups(k)) return;
    buf_printf(out, "#define SUBGROUP %u\n", subgroup);
    buf_z(out, "#define FROM_LANE(x, i) from_lane(x, (thread & 63 & -SUBGROUP) + (i))\n"
               "template <typename T> static __device__ T from_lane(T x, i32 lane)\n{\n"
               "    i32 w[(sizeof x + 3) / 4] = {};\n    __builtin_memcpy(w, &x, sizeof x);\n"
               "    for (u32 i = 0; i < sizeof w / 4; i++) w[i] = __builtin_amdgcn_ds_bpermute(4 * lane, w[i]);\n"
               "    __builtin_memcpy(&x, w, sizeof x);\n    return x;\n}\n");
}

static void qualify(struct buf *out, const struct kir *k)
{
    buf_printf(out, "__attribute__((amdgpu_flat_work_group_size(1, %u))) ", kir_threads(k));
}

static void define_wide(struct buf *out, enum dtype d, u32 n)
{
    const char *name = dtype_name(d);
    if (n == 1) buf_printf(out, "typedef %s %sx1 __attribute__((may_alias));\n", name, name);
    else buf_printf(out, "typedef %s %sx%u __attribute__((ext_vector_type(%u), may_alias));\n", name, name, n, n);
}

/* Matrix multiplication by v_mfma: AMD's CDNA1 to CDNA3 ISA, "Matrix arithmetic instructions" and their register layouts. With sides of m = 16 or
   32, 64 / m threads share a row of the left operand or a column of the right one, each with so many neighbours along K. A shape with a larger K
   than an instruction is several instructions, on a thread's first terms, its next ones ..: both operands use the same order, and neighbours are
   loaded at once. Sums are f32. */
static const struct mfma {
    enum dtype type;
    u32 side, terms; /* of the fragments */
    u32 steps;       /* instructions */
    const char *name, *in; /* of the operands of one, in C */
} mfma[] = {
    {DT_F16, 16, 16, 1, "16x16x16f16", "_Float16"}, {DT_F16, 32, 8, 1, "32x32x8f16", "_Float16"},
    {DT_BF16, 16, 16, 1, "16x16x16bf16_1k", "i16"}, {DT_BF16, 32, 8, 1, "32x32x8bf16_1k", "i16"},
    {DT_BF16, 16, 8, 1, "16x16x8bf16", "i16"},      {DT_BF16, 32, 4, 1, "32x32x4bf16", "i16"},
    {DT_F32, 16, 4, 1, "16x16x4f32", "f32"},        {DT_F32, 32, 2, 1, "32x32x2f32", "f32"},
    {DT_F32, 16, 16, 4, "16x16x4f32", "f32"},       {DT_F32, 32, 8, 4, "32x32x2f32", "f32"},
    {DT_TF32, 16, 8, 1, "16x16x8_xf32", "f32"},     {DT_TF32, 32, 4, 1, "32x32x4_xf32", "f32"},
};

static const struct mfma *find_mfma(enum dtype type, i64 side, i64 terms)
{
    for (i64 i = 0; i < countof(mfma); i++)
        if (mfma[i].type == type && mfma[i].side == side && mfma[i].terms == terms) return &mfma[i];
    return NULL;
}

/* Accumulators stay in place when they are converted to half types for a store. */
static bool place_sums(struct gpu_place *p, const struct kir_frag *f)
{
    bool is_sum = f->dtype == DT_F32 || f->dtype == DT_F16 || f->dtype == DT_BF16, is_small = f->rows == 16;
    if (!is_sum || f->rows != f->cols || (f->rows != 16 && f->rows != 32)) return false;
    if (is_small) *p = (struct gpu_place){4, "lane / 16 * 4 + i", "lane % 16", true, false};
    else *p = (struct gpu_place){16, "i / 4 * 8 + lane / 32 * 4 + i % 4", "lane % 32", true, false};
    return true;
}

static bool place(struct gpu_place *p, const struct kir_frag *f, u32 warpgroup)
{
    static const char *const across[] = {"lane % 16", "lane % 32"};
    static const char *const along[][3] = {{"lane / 16", "lane / 16 * 2 + i", "lane / 16 * 4 + i"},
                                           {"lane / 32", "lane / 32 * 2 + i", "lane / 32 * 4 + i"}};
    if (f->role == KR_ACC) return place_sums(p, f);
    bool is_a = f->role == KR_A;
    u32 side = is_a ? f->rows : f->cols, terms = is_a ? f->cols : f->rows, n = side * terms / 64;
    if (!find_mfma(f->dtype, side, terms)) return false;
    const char *i = across[side / 32], *t = along[side / 32][n / 2];
    *p = (struct gpu_place){n, is_a ? i : t, is_a ? t : i, !is_a, false};
    return true;
}

static bool multiply(struct buf *out, const struct caps_matrix *m)
{
    const struct mfma *x = m->m == m->n && m->a == m->b && m->c == DT_F32 ? find_mfma(m->a, m->m, m->k) : NULL;
    if (!x) return false;
    u32 n = x->side * x->terms / 64 / x->steps;
    buf_printf(out, n > 1 ? "    typedef %s in __attribute__((ext_vector_type(%u)));\n" : "    typedef %s in;\n", x->in, n);
    buf_printf(out, "    typedef f32 sums __attribute__((ext_vector_type(%u)));\n", x->side * x->side / 64);
    buf_printf(out, "    in x[%u], y[%u];\n    sums z;\n", x->steps, x->steps);
    buf_z(out, "    __builtin_memcpy(x, a.x, sizeof x);\n    __builtin_memcpy(y, b.x, sizeof y);\n    __builtin_memcpy(&z, c.x, sizeof z);\n");
    buf_printf(out, "#pragma unroll\n    for (i32 i = 0; i < %u; i++) z = __builtin_amdgcn_mfma_f32_%s(x[i], y[i], z, 0, 0, 0);\n", x->steps, x->name);
    buf_z(out, "    __builtin_memcpy(c.x, &z, sizeof z);\n");
    return true;
}

static const struct gpu_words words = {
    .text = {.helper = helpers,
             .function = "static __device__ inline __attribute__((always_inline)) ",
             .math = "__ocml_",
             .math_end = {"_f32", "_f64"},
             .infinity = {"__builtin_inff()", "__builtin_inf()"},
             .nan = {"__builtin_nanf(\"\")", "__builtin_nan(\"\")"},
             GPU_HOOKS},
    .entry = "extern \"C\" __attribute__((global))",
    .far = "",
    .close = "",
    .restricted = "__restrict__",
    .shared = "__attribute__((shared))",
    .group = {"(i32)__builtin_amdgcn_workgroup_id_x()", "(i32)__builtin_amdgcn_workgroup_id_y()",
              "(i32)__builtin_amdgcn_workgroup_id_z()"},
    .thread = {"(i32)__builtin_amdgcn_workitem_id_x()", "(i32)__builtin_amdgcn_workitem_id_y()",
               "(i32)__builtin_amdgcn_workitem_id_z()"},
    .barrier = "__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"); __builtin_amdgcn_s_barrier(); "
               "__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");",
    .subgroup = {"thread / SUBGROUP", "thread % SUBGROUP"},
    .lanes = 64,
    .has_info = true,
    .preamble = preamble,
    .qualify = qualify,
    .define_wide = define_wide,
    .place = place,
    .multiply = multiply,
};

static bool print(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    return gpu_print(out, k, c, &words, e);
}

static const char hint[] = "install hipcc (Debian: hipcc), or add ROCm's folder bin to PATH";

static bool is_arch(struct str s)
{
    bool ok = str_starts(s, S("gfx")) && s.n > 3;
    for (i64 i = 3; i < s.n && ok; i++) {
        char c = s.p[i];
        ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == ':' || c == '+' || c == '-';
    }
    return ok;
}

static bool build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    struct arena a = {0};
    if (!is_arch(str_of(c->arch)))
        return err_set(e, ERR_UNSUPPORTED, "no hip for the architecture '%s': expected 'gfx90a' or the like", c->arch);
    const char *argv[] = {"hipcc", "--genco", str_fmt(&a, "--offload-arch=%s", c->arch).p, OPTIONS, "-o", "@out", "@in", NULL};
    struct lang_tool t = {"hipcc", hint, timeout};
    struct lang_convert v = {argv, "k.hip", "k.co", text};
    bool ok = lang_tool_convert(binary, &t, &v, e);
    arena_release(&a);
    return ok;
}

/* The version lines of hipcc's output. */
static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    static const char *const argv[] = {"hipcc", "--offload-arch=gfx906", "--version", NULL}, *const options[] = {OPTIONS};
    struct lang_tool t = {"hipcc", hint, 30};
    struct buf text = {0};
    struct str line, rest;
    bool ok = lang_tool_run(&t, argv, &text, e);
    buf_printf(out, "hip %d", REVISION);
    for (rest = buf_view(&text); ok && rest.n;) {
        str_cut(rest, '\n', &line, &rest);
        if (str_glob(S("*version*"), line)) buf_printf(out, ", %.*s", STR_ARG(str_trim(line)));
    }
    for (i64 i = 0; i < countof(options) && ok; i++) buf_printf(out, " %s", options[i]);
    buf_release(&text);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

const struct lang lang_hip = {
    .version = 1,
    .name = "hip",
    .suffix = ".hip",
    .print = print,
    .build = build,
    .toolchain = toolchain,
    .limits = gpu_limits,
    .join = gpu_join,
};
