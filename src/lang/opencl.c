// SPDX-License-Identifier: Apache-2.0
//
// opencl.c: the language opencl, OpenCL C 1.2. Its binary is the text: a device's driver builds it at load
// time. Halves are converted by vload_half and vstore_half_rte, which every device supports; f32 operations
// are rounded one by one, division and square root with the driver's accuracy (doc/lang-gpu.md).
#include "lang/lang_gpu.h"

#define SG_FN(id, fn) {.name = id, .types = ~0u, .n_args = 1, .scalar = "$E $F($E x, i32 thread)\n{\n    return ($E)" fn "(x);\n}\n"}
#define WORD_FN(id, types_, fn, word) \
    {.name = id, .types = types_, .n_args = 1, .scalar = "$E $F($E x, i32 thread)\n{\n    return ($E)" fn "((" word ")x);\n}\n"}
static const struct text_helper helpers[] = {
    {.name = "fma", .types = T_FLOAT, .n_args = 3,
     .scalar = "$E $F($E x, $E y, $E z)\n{\n    return fma(x, y, z);\n}\n"},
    {.name = "from_f16", .types = T_F32,
     .scalar = "f32 $F(u16 h)\n{\n    return vload_half(0, (const half *)&h);\n}\n"},
    {.name = "to_f16", .types = T_F32,
     .scalar = "u16 $F(f32 x)\n{\n    u16 h;\n    vstore_half_rte(x, 0, (half *)&h);\n    return h;\n}\n"},
    WORD_FN("sgadd", T_BYTES1 | T_BYTES2, "sub_group_reduce_add", "i32"), SG_FN("sgadd", "sub_group_reduce_add"),
    WORD_FN("sgmin", T_BYTES1 | T_BYTES2, "sub_group_reduce_min", "i32"), SG_FN("sgmin", "sub_group_reduce_min"),
    WORD_FN("sgmax", T_BYTES1 | T_BYTES2, "sub_group_reduce_max", "i32"), SG_FN("sgmax", "sub_group_reduce_max"),
    {.name = "shuffle", .types = ~0u, .n_args = 2,
     .scalar = "$E $F($E x, i32 lane, i32 thread)\n{\n    return SHUFFLE(x, (u32)lane);\n}\n"},
    {0},
};

static void subgroup_words(struct buf *out, const struct kir *k)
{
    buf_z(out, "#ifdef cl_khr_subgroups\n#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n#endif\n"
               "#ifdef cl_khr_subgroup_shuffle\n#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable\n"
               "#define SHUFFLE(x, lane) sub_group_shuffle(x, lane)\n"
               "#else\n#define SHUFFLE(x, lane) intel_sub_group_shuffle(x, lane)\n#endif\n");
    if (k->subgroup)
        buf_printf(out, "#ifdef cl_intel_required_subgroup_size\n"
                        "#define SUBGROUP __attribute__((intel_reqd_sub_group_size(%u)))\n"
                        "#else\n#error \"subgroups of a required size\"\n#endif\n", k->subgroup);
    else buf_z(out, "#define SUBGROUP\n");
}

static void preamble(struct buf *out, const struct kir *k, u32 subgroup)
{
    buf_z(out, "#pragma OPENCL FP_CONTRACT OFF\n");
    if (gpu_has_type(k, DT_F64)) buf_z(out, "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n");
    gpu_typedefs(out, k, "long");
    if (gpu_has_subgroups(k)) subgroup_words(out, k);
}

static void qualify(struct buf *out, const struct kir *k)
{
    u32 n[3];
    for (u32 i = 0; i < 3; i++) n[i] = k->group[i] ? k->group[i] : 1;
    buf_printf(out, "__attribute__((reqd_work_group_size(%u, %u, %u))) ", n[0], n[1], n[2]);
    if (gpu_has_subgroups(k)) buf_z(out, "SUBGROUP ");
}

static void define_wide(struct buf *out, enum dtype d, u32 n)
{
    const char *name = dtype_name(d);
    static const char *const type[N_DTYPES] = {[DT_U32] = "uint", [DT_I32] = "int", [DT_F32] = "float",
                                               [DT_U64] = "ulong", [DT_I64] = "long", [DT_F64] = "double"};
    assert(type[d]);
    if (n == 1) buf_printf(out, "typedef %s %sx1 __attribute__((may_alias));\n", name, name);
    else buf_printf(out, "typedef %s%u %sx%u __attribute__((may_alias));\n", type[d], n, name, n);
}

static const struct gpu_words words = {
    .text = {.helper = helpers,
             .function = "static inline ",
             .math = "",
             .math_end = {"", ""},
             .infinity = {"INFINITY", "((f64)INFINITY)"},
             .nan = {"NAN", "((f64)NAN)"},
             GPU_HOOKS},
    .entry = "__kernel",
    .far = "__global ",
    .close = "__local ",
    .restricted = "restrict",
    .shared = "__local",
    .group = {"(i32)get_group_id(0)", "(i32)get_group_id(1)", "(i32)get_group_id(2)"},
    .thread = {"(i32)get_local_id(0)", "(i32)get_local_id(1)", "(i32)get_local_id(2)"},
    .barrier = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    .subgroup = {"(i32)get_sub_group_id()", "(i32)get_sub_group_local_id()"},
    .preamble = preamble,
    .qualify = qualify,
    .define_wide = define_wide,
};

static bool print(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    return gpu_print(out, k, c, &words, e);
}

static bool build(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    buf_str(binary, text);
    return !binary->failed || err_set(e, ERR_SYSTEM, "out of memory");
}

static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    buf_z(out, "OpenCL C 1.2");
    return !out->failed || err_set(e, ERR_SYSTEM, "out of memory");
}

const struct lang lang_opencl = {
    .version = 1,
    .name = "opencl",
    .suffix = ".cl",
    .print = print,
    .build = build,
    .toolchain = toolchain,
    .limits = gpu_limits,
};
