// SPDX-License-Identifier: Apache-2.0
//
// cuda.c: the language cuda, CUDA C++ without any header, built to a cubin for the target's architecture
// (lang_nvrtc.c). Nothing is fused that kernel IR does not fuse, division and square root are exact, denormals are
// kept.
#include "lang/lang_gpu.h"
#include "lang/lang_nvrtc.h"

enum { REVISION = 1 /* raise when the same kernel gives another text */ };
static const struct text_helper helpers[] = {
    {.name = "fma", .types = T_FLOAT, .n_args = 3,
     .scalar = "$E $F($E x, $E y, $E z)\n{\n    return fma$f(x, y, z);\n}\n"},
    {.name = "from_f16", .types = T_F32,
     .scalar = "f32 $F(u16 h)\n{\n    f32 x;\n    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n    return x;\n}\n"},
    {.name = "to_f16", .types = T_F32,
     .scalar = "u16 $F(f32 x)\n{\n    u16 h;\n    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n    return h;\n}\n"},
    GPU_SUBGROUP_HELPERS(T_NUMBER, T_FLOAT, T_INT),
    {0},
};

static void preamble(struct buf *out, const struct kir *k, u32 subgroup)
{
    gpu_typedefs(out, k, "long long");
    if (!gpu_has_subgroups(k)) return;
    buf_printf(out, "#define SUBGROUP %u\n", subgroup);
    buf_z(out, "#define MEMBERS (~0u >> (32 - SUBGROUP) << (thread % 32 / SUBGROUP * SUBGROUP))\n"
               "#define FROM_LANE(x, i) __shfl_sync(MEMBERS, x, i, SUBGROUP)\n");
}

static void qualify(struct buf *out, const struct kir *k)
{
    buf_printf(out, "__launch_bounds__(%u) ", kir_threads(k));
}

static void define_wide(struct buf *out, enum dtype d, u32 n)
{
    const char *name = dtype_name(d);
    if (n == 1) {
        buf_printf(out, "typedef %s %sx1;\n", name, name);
        return;
    }
    buf_printf(out, "struct __align__(%lld) %sx%u {\n    %s ", (long long)dtype_size(d) * n, name, n, name);
    for (u32 i = 0; i < n; i++) buf_printf(out, i ? ", s%u" : "s%u", i);
    buf_z(out, ";\n};\n");
}

static const struct gpu_words words = {
    .text = {.helper = helpers,
             .function = "static __device__ __forceinline__ ",
             .math = "",
             .math_end = {"f", ""},
             .infinity = {"__int_as_float(0x7f800000)", "((f64)__int_as_float(0x7f800000))"},
             .nan = {"__int_as_float(0x7fc00000)", "((f64)__int_as_float(0x7fc00000))"},
             GPU_HOOKS},
    .entry = "extern \"C\" __global__",
    .far = "",
    .close = "",
    .restricted = "__restrict__",
    .shared = "__shared__ __align__(16)",
    .group = {"(i32)blockIdx.x", "(i32)blockIdx.y", "(i32)blockIdx.z"},
    .thread = {"(i32)threadIdx.x", "(i32)threadIdx.y", "(i32)threadIdx.z"},
    .barrier = "__syncthreads();",
    .subgroup = {"thread / SUBGROUP", "thread % SUBGROUP"},
    .max_static = 48 << 10,
    .lanes = 32,
    .has_info = true,
    .preamble = preamble,
    .qualify = qualify,
    .define_wide = define_wide,
};

static bool print(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    return gpu_print(out, k, c, &words, e);
}

static bool toolchain(struct buf *out, struct err *e)
{
    buf_printf(out, "cuda %d, ", REVISION);
    return nvrtc_toolchain(out, e) && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

const struct lang lang_cuda = {
    .version = 1,
    .name = "cuda",
    .suffix = ".cu",
    .print = print,
    .build = nvrtc_build,
    .toolchain = toolchain,
    .limits = gpu_limits,
};
