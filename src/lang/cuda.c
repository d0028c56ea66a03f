// SPDX-License-Identifier: Apache-2.0
//
// cuda.c: the language cuda, CUDA C++ without headers, built to a cubin
// for the target's architecture (lang_nvrtc.c). Only kernel IR's own FMAs
// are fused, division and square root are exact, denormals are preserved.
#include "lang/lang_gpu.h"
#include "lang/lang_nvrtc.h"

enum { REVISION = 3 /* incremented when the same kernel yields another text */ };
static const struct text_helper helpers[] = {
    {.name = "fma", .types = T_FLOAT, .n_args = 3,
     .scalar = "$E $F($E x, $E y, $E z)\n{\n    return fma$f(x, y, z);\n}\n"},
    {.name = "from_f16", .types = T_F32,
     .scalar = "f32 $F(u16 h)\n{\n    f32 x;\n    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n    return x;\n}\n"},
    {.name = "to_f16", .types = T_F32,
     .scalar = "u16 $F(f32 x)\n{\n    u16 h;\n    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n    return h;\n}\n"},
    {.name = "to_tf32", .types = T_F32,
     .scalar = "u32 $F(f32 x)\n{\n    u32 r;\n    asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(x));\n    return r;\n}\n"},
    GPU_SUBGROUP_HELPERS(T_NUMBER, T_FLOAT, T_INT),
    {0},
};

#define COPIES                                                                                                \
    "#define COPY(to, from, bytes, valid) asm volatile(\"cp.async.ca.shared.global [%0], [%1], %2, %3;\" :: "       \
    "\"r\"((u32)__cvta_generic_to_shared(to)), \"l\"(from), \"n\"(bytes), \"r\"(valid) : \"memory\")\n"              \
    "#define VALID(n, most) ((n) <= 0 ? 0 : (n) >= (most) ? (most) : (n))\n"                                        \
    "#define AWAIT(n) asm volatile(\"cp.async.commit_group;\\n\\tcp.async.wait_group %0;\" :: \"n\"(n) : \"memory\")\n"

/* PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Matrix Descriptor Format": a 128-byte swizzle, groups
   of eight rows 1024 bytes apart; the leading offset is the distance of panels if lines are across K, else unused. */
#define WARPGROUPS                                                                                                       \
    "#define OPERAND(p, lead) ((u64)((u32)__cvta_generic_to_shared(p) >> 4 & 0x3fff) | (u64)((lead) >> 4) << 16 | "   \
    "(u64)(1024 >> 4) << 32 | (u64)1 << 62)\n"                                                                       \
    "#define WARPGROUP_BEGIN asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\")\n"                               \
    "#define WARPGROUP_END asm volatile(\"wgmma.commit_group.sync.aligned;\\n\\twgmma.wait_group.sync.aligned 0;\" ::: \"memory\")\n" \
    "#define WARPGROUP_FENCE asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\")\n"                           \
    "#define PIN_FLOAT(v) asm volatile(\"\" : \"+f\"(v) :: \"memory\")\n"                                           \
    "#define PIN_WORD(v) asm volatile(\"\" : \"+r\"(v) :: \"memory\")\n"

/* PTX ISA, "Tensors", "mbarrier" and "cp.async.bulk.tensor": a phase ends after its one arrival, which closes the group, and
   all announced bytes. The fence before a copy orders it after the threads' own accesses to the memory before a barrier. */
#define TILES                                                                                                       \
    "struct __align__(64) q_map {\n    u64 w[16];\n};\n"                                                             \
    "#define TILE_PLACE(p) ((u32)__cvta_generic_to_shared(p))\n"                                                     \
    "static __device__ __forceinline__ bool TILE_FIRST()\n{\n    return (threadIdx.x | threadIdx.y | threadIdx.z) == 0;\n}\n" \
    "static __device__ __forceinline__ void TILES_OPEN(u64 *objects, u32 n)\n{\n    if (!TILE_FIRST()) return;\n"       \
    "    for (u32 i = 0; i < n; i++)\n"                                                                              \
    "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], 1;\" :: \"r\"(TILE_PLACE(objects + i)) : \"memory\");\n" \
    "    asm volatile(\"fence.mbarrier_init.release.cluster;\\n\\tfence.proxy.async.shared::cta;\" ::: \"memory\");\n}\n" \
    "static __device__ __forceinline__ void TILE(u64 *object, const void *to, const q_map *map, i32 row, i32 col, u32 bytes)\n{\n" \
    "    asm volatile(\"fence.proxy.async.shared::cta;\\n\\tmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\" :: "  \
    "\"r\"(TILE_PLACE(object)), \"r\"(bytes) : \"memory\");\n"                                                       \
    "    asm volatile(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\" :: " \
    "\"r\"(TILE_PLACE(to)), \"l\"(map), \"r\"(col), \"r\"(row), \"r\"(TILE_PLACE(object)) : \"memory\");\n}\n"         \
    "static __device__ __forceinline__ void TILES_AWAIT(u64 *objects, u32 n, u32 &made, u32 &ended, u32 newest)\n{\n"  \
    "    if (!TILE_FIRST()) return;\n    u64 state;\n"                                                               \
    "    asm volatile(\"mbarrier.arrive.shared::cta.b64 %0, [%1];\" : \"=l\"(state) : \"r\"(TILE_PLACE(objects + made % n)) : \"memory\");\n" \
    "    for (made++; ended + newest < made; ended++) {\n        u32 done = 0;\n        while (!done)\n"              \
    "            asm volatile(\"{\\n\\t.reg .pred p;\\n\\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n\\t" \
    "selp.u32 %0, 1, 0, p;\\n\\t}\" : \"=r\"(done) : \"r\"(TILE_PLACE(objects + ended % n)), \"r\"(ended / n & 1) : \"memory\");\n" \
    "    }\n}\n"

static void preamble(struct buf *out, const struct kir *k, u32 subgroup)
{
    gpu_typedefs(out, k, "long long");
    if (kir_has_op(k, KI_AWAIT)) buf_z(out, COPIES);
    if (kir_warpgroup(k) > 1) buf_z(out, WARPGROUPS);
    if (kir_has_op(k, KI_TILE)) buf_z(out, TILES);
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

/* The sums of wgmma.m64nNk16, and its left operand in registers: PTX ISA, "Register Fragments for wgmma". */
static bool warpgroup_place(struct gpu_place *p, const struct kir_frag *f)
{
    bool is_sum = f->role == KR_ACC && (f->dtype == DT_F32 || f->dtype == DT_F16), is_left = f->role == KR_A && (f->dtype == DT_F16 || f->dtype == DT_BF16);
    if (!(is_sum || is_left) || f->rows != 64 || f->cols % 8) return false;
    *p = (struct gpu_place){f->cols / 2u, "lane / 32 * 16 + lane % 32 / 4 + (i >> 1 & 1) * 8", "(i >> 2) * 8 + lane % 4 * 2 + (i & 1)", false, true};
    return true;
}

/* mma.sync.m16n8k16 and m16n8k8 of f16 and bf16, m16n8k8 and m16n8k4 of tf32: PTX ISA, "Matrix fragments for mma". */
static bool place(struct gpu_place *p, const struct kir_frag *f, u32 warpgroup)
{
    if (warpgroup > 1) return warpgroup_place(p, f);
    bool is_half = f->dtype == DT_F16 || f->dtype == DT_BF16, is_sum = f->dtype == DT_F32 || f->dtype == DT_F16;
    if (f->role == KR_A && is_half && f->rows == 16 && (f->cols == 16 || f->cols == 8))
        *p = (struct gpu_place){f->cols / 2u, "lane / 4 + (i >> 1 & 1) * 8", "lane % 4 * 2 + (i & 1) + (i >> 2) * 8", false, true};
    else if (f->role == KR_B && is_half && f->cols == 8 && (f->rows == 16 || f->rows == 8))
        *p = (struct gpu_place){f->rows / 4u, "lane % 4 * 2 + (i & 1) + (i >> 1) * 8", "lane / 4", true, false};
    else if (f->role == KR_A && f->dtype == DT_TF32 && f->rows == 16 && (f->cols == 8 || f->cols == 4))
        *p = (struct gpu_place){f->cols / 2u, "lane / 4 + (i & 1) * 8", "lane % 4 + (i >> 1) * 4", false, false};
    else if (f->role == KR_B && f->dtype == DT_TF32 && f->cols == 8 && (f->rows == 8 || f->rows == 4))
        *p = (struct gpu_place){f->rows / 4u, "lane % 4 + i * 4", "lane / 4", true, false};
    else if (f->role == KR_ACC && is_sum && f->rows == 16 && f->cols == 8)
        *p = (struct gpu_place){4, "lane / 4 + (i >> 1) * 8", "lane % 4 * 2 + (i & 1)", false, true};
    return p->n > 0;
}

static void registers(struct buf *out, u32 from, u32 to)
{
    for (u32 i = from; i < to; i++) buf_printf(out, i > from ? ", %%%u" : "%%%u", i);
}

static bool multiply(struct buf *out, const struct caps_matrix *m)
{
    const char *in = dtype_name(m->a), *sum = dtype_name(m->c);
    i64 most = m->a == DT_TF32 ? 8 : 16, per_word = most / 8;
    bool is_known = m->a == m->b && m->m == 16 && m->n == 8 && (m->k == most || m->k == most / 2);
    u32 n = m->c == DT_F32 ? 4 : 2, n_a = (u32)(m->k / 2 / per_word), n_b = n_a / 2;
    char held = per_word == 1 ? 'x' : 'w';
    if (!is_known || (m->a != DT_F16 && m->c != DT_F32)) return false;
    buf_printf(out, "    asm volatile(\"mma.sync.aligned.m16n8k%lld.row.col.%s.%s.%s.%s {", (long long)m->k, sum, in, in, sum);
    registers(out, 0, n);
    buf_z(out, "}, {");
    registers(out, n, n + n_a);
    buf_z(out, "}, {");
    registers(out, n + n_a, n + n_a + n_b);
    buf_z(out, "}, {");
    registers(out, 0, n);
    buf_z(out, "};\"\n                 : ");
    for (u32 i = 0; i < n; i++) buf_printf(out, "%s\"+%s\"(c.%s[%u])", i ? ", " : "", n == 4 ? "f" : "r", n == 4 ? "x" : "w", i);
    buf_z(out, "\n                 : ");
    for (u32 i = 0; i < n_a; i++) buf_printf(out, "%s\"r\"(a.%c[%u])", i ? ", " : "", held, i);
    for (u32 i = 0; i < n_b; i++) buf_printf(out, ", \"r\"(b.%c[%u])", held, i);
    buf_z(out, ");\n");
    return true;
}

/* ldmatrix, from sm_75 on as mma.sync is: PTX ISA, "Warp-level matrix load instruction". */
static void fetch(struct buf *out, u32 n, bool is_across)
{
    buf_printf(out, "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x%u%s.shared.b16 {", n, is_across ? ".trans" : "");
    registers(out, 0, n);
    buf_printf(out, "}, [%%%u];\" : ", n);
    for (u32 i = 0; i < n; i++) buf_printf(out, "%s\"=r\"(f.w[%u])", i ? ", " : "", i);
    buf_z(out, " : \"r\"((u32)__cvta_generic_to_shared(from)) : \"memory\");\n");
}

static bool warpgroup_multiply(struct buf *out, const struct caps_matrix *m, enum gpu_left a, bool b_across)
{
    enum { WORDS = 4 /* of the left operand */ };
    bool in_registers = a == GPU_LEFT_REGISTERS;
    bool is_half = m->a == DT_F16 || m->a == DT_BF16, is_sum = m->c == DT_F32 || (m->c == DT_F16 && m->a == DT_F16);
    u32 n = (u32)m->n / (m->c == DT_F32 ? 2 : 4);
    if (!is_half || !is_sum || m->m != 64 || m->k != 16 || m->n % 8 || m->n > 256) return false;
    buf_printf(out, "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n%lldk16.%s.%s.%s {", (long long)m->n, dtype_name(m->c),
               dtype_name(m->a), dtype_name(m->b));
    registers(out, 0, n);
    buf_z(out, in_registers ? "}, {" : "}, ");
    registers(out, n, n + (in_registers ? WORDS : 1));
    if (in_registers) buf_printf(out, "}, %%%u, 1, 1, 1, %d;\"\n                 : ", n + WORDS, b_across);
    else buf_printf(out, ", %%%u, 1, 1, 1, %d, %d;\"\n                 : ", n + 1, a == GPU_LEFT_COLUMNS, b_across);
    for (u32 i = 0; i < n; i++)
        buf_printf(out, "%s\"+%s\"(c.%s[%u])", i ? ", " : "", m->c == DT_F32 ? "f" : "r", m->c == DT_F32 ? "x" : "w", i);
    buf_z(out, "\n                 : ");
    for (u32 i = 0; i < WORDS && in_registers; i++) buf_printf(out, "\"r\"(a.w[%u]), ", i);
    buf_z(out, in_registers ? "\"l\"(b));\n" : "\"l\"(a), \"l\"(b));\n");
    return true;
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
    .shared = "__shared__",
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
    .has_copies = true,
    .has_tiles = true,
    .place = place,
    .multiply = multiply,
    .fetch = fetch,
    .warpgroup = 4,
    .warpgroup_multiply = warpgroup_multiply,
};

static bool print(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    return gpu_print(out, k, c, &words, e);
}

static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
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
    .join = gpu_join,
};
