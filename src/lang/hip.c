// SPDX-License-Identifier: Apache-2.0
//
// hip.c: the language hip, HIP C++ without any header, built to a code object for the target's architecture by hipcc.
// Functions of the library are those of the device's bitcode library, whose square root and remainder are exact.
// Nothing is fused that kernel IR does not fuse.
#include "lang/lang_gpu.h"
#include "lang/lang_tool.h"

enum { REVISION = 1 /* raise when the same kernel gives another text */ };

#define OPTIONS "-O3", "-nogpuinc", "-ffp-contract=off", "-fno-fast-math", "-fhip-fp32-correctly-rounded-divide-sqrt", "-w"

static const struct text_helper helpers[] = {
    {.name = "fma", .types = T_FLOAT, .n_args = 3, .scalar = "$E $F($E x, $E y, $E z)\n{\n    return $mfma$f(x, y, z);\n}\n"},
    {.name = "from_f16", .types = T_F32,
     .scalar = "f32 $F(u16 h)\n{\n    _Float16 x;\n    __builtin_memcpy(&x, &h, 2);\n    return (f32)x;\n}\n"},
    {.name = "to_f16", .types = T_F32,
     .scalar = "u16 $F(f32 x)\n{\n    const _Float16 y = (_Float16)x;\n    u16 h;\n    __builtin_memcpy(&h, &y, 2);\n    return h;\n}\n"},
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

/* v_mfma_f32_16x16x16 and 32x32x8 of f16 and bf16: AMD's CDNA2 ISA, "Matrix arithmetic", register layouts. Sums are
   f32; as halves, in which they may be stored, they stay where they are. */
static bool place(struct gpu_place *p, const struct kir_frag *f, u32 team)
{
    bool is_half = f->dtype == DT_F16 || f->dtype == DT_BF16, is_sum = is_half || f->dtype == DT_F32;
    if (f->role == KR_A && is_half && f->rows == 16 && f->cols == 16)
        *p = (struct gpu_place){4, "lane % 16", "lane / 16 * 4 + i", false};
    else if (f->role == KR_B && is_half && f->rows == 16 && f->cols == 16)
        *p = (struct gpu_place){4, "lane / 16 * 4 + i", "lane % 16", true};
    else if (f->role == KR_ACC && is_sum && f->rows == 16 && f->cols == 16)
        *p = (struct gpu_place){4, "lane / 16 * 4 + i", "lane % 16", true};
    else if (f->role == KR_A && is_half && f->rows == 32 && f->cols == 8)
        *p = (struct gpu_place){4, "lane % 32", "lane / 32 * 4 + i", false};
    else if (f->role == KR_B && is_half && f->rows == 8 && f->cols == 32)
        *p = (struct gpu_place){4, "lane / 32 * 4 + i", "lane % 32", true};
    else if (f->role == KR_ACC && is_sum && f->rows == 32 && f->cols == 32)
        *p = (struct gpu_place){16, "i / 4 * 8 + lane / 32 * 4 + i % 4", "lane % 32", true};
    return p->n > 0;
}

static bool multiply(struct buf *out, const struct caps_matrix *m)
{
    bool is_small = m->m == 16 && m->n == 16 && m->k == 16, is_large = m->m == 32 && m->n == 32 && m->k == 8;
    bool is_bf16 = m->a == DT_BF16;
    if ((!is_small && !is_large) || m->a != m->b || m->c != DT_F32) return false;
    buf_printf(out, "    typedef %s in4 __attribute__((ext_vector_type(4)));\n", is_bf16 ? "i16" : "_Float16");
    buf_printf(out, "    typedef f32 sums __attribute__((ext_vector_type(%d)));\n", is_small ? 4 : 16);
    buf_z(out, "    in4 x, y;\n    sums z;\n    __builtin_memcpy(&x, a.x, sizeof x);\n"
               "    __builtin_memcpy(&y, b.x, sizeof y);\n    __builtin_memcpy(&z, c.x, sizeof z);\n");
    buf_printf(out, "    z = __builtin_amdgcn_mfma_f32_%s%s(x, y, z, 0, 0, 0);\n", is_small ? "16x16x16" : "32x32x8",
               is_bf16 ? "bf16_1k" : "f16");
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

static const char hint[] = "install hipcc";

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

/* Of what hipcc says about itself, the lines with versions. */
static bool toolchain(struct buf *out, struct err *e)
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
