// SPDX-License-Identifier: Apache-2.0
//
// Languages cuda, ptx, hip and opencl without a device: random kernels build for several architectures
// if their compilers are installed; missing features of a target are errors.
#include "lang_fixture.h"

struct target {
    const char *lang, *arch;
};

static const struct target targets[] = {
    {"cuda", "sm_75"}, {"cuda", "sm_80"}, {"cuda", "sm_90"}, {"ptx", "sm_75"}, {"ptx", "sm_80"}, {"ptx", "sm_90"}, {"hip", "gfx906"}, {"hip", "gfx90a"}, {"opencl", "any"},
};

static bool has_toolchain(const char *lang)
{
    struct buf b = {0};
    struct err e = {0};
    bool ok = lang_find(str_of(lang))->toolchain(&b, NULL, &e);
    if (ok) print_message("%s: %s\n", lang, b.p);
    else print_message("skipped: %s: %s\n", lang, e.msg);
    buf_release(&b);
    return ok;
}

static struct caps caps_of(const struct target *t)
{
    struct caps c = {.is_gpu = true, .has_f64 = true, .has_i64 = true, .max_group = 1024, .shared_bytes = 64 << 10};
    struct caps known;
    dev_target_near(&known, str_is(S("ptx"), t->lang) ? "cuda" : t->lang, str_of(t->arch));
    c.has_copy = known.has_copy;
    c.warpgroup = known.warpgroup;
    memcpy(c.warpgroup_matrix, known.warpgroup_matrix, sizeof c.warpgroup_matrix);
    snprintf(c.arch, sizeof c.arch, "%s", t->arch);
    return c;
}

/* Launchers find the launch parameters by the symbol NAME_0_info. */
static bool has_symbol(struct buf *b, const char *name)
{
    i64 n = (i64)strlen(name) + 1;
    for (i64 i = 0; i + n <= b->n; i++)
        if (memcmp(b->p + i, name, (size_t)n) == 0) return true;
    return false;
}

/* OpenCL's driver is the compiler; here clang, if installed. */
static bool check_opencl(struct str text, struct err *e)
{
    struct arena a = {0};
    struct buf said = {0};
    struct str dir;
    if (!os_temp_dir(&a, &dir, e)) return false;
    const char *file = str_fmt(&a, "%.*s/k.cl", STR_ARG(dir)).p;
    const char *argv[] = {"clang", "-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-Xclang", "-finclude-default-header",
                          "-fsyntax-only", "-Werror", "-Wno-unused", file, NULL};
    bool ok = os_write(file, text.p, text.n, e);
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 60, .out = &said});
    if (ok && s.how == OS_EXITED && s.code && s.code != 127) ok = err_set(e, ERR_FAILED, "%s", said.p);
    os_remove_tree(dir.p);
    buf_release(&said);
    arena_release(&a);
    return ok;
}

static void check_build(struct run *r, const struct target *t)
{
    struct caps c = caps_of(t);
    struct buf binary = {0};
    struct err e = {0};
    build_as(r, t->lang, &c, &binary);
    if (str_is(S("opencl"), t->lang)) {
        if (!check_opencl(buf_view(&binary), &e)) fail_with(r, "clang", &e);
    } else {
        assert_true(has_symbol(&binary, str_fmt(&r->arena, "%.*s_0_info", STR_ARG(r->kir.name)).p));
    }
    buf_release(&binary);
}

static void random_kernels_build(const char *lang)
{
    if (!has_toolchain(lang)) skip();
    for (u64 seed = first_seed(4000, 4016); seed < last_seed(4000, 4016); seed++)
        for (i64 j = 0; j < countof(targets); j++) {
            struct run r = {0};
            struct rng g = rng_seed(seed);
            if (!str_is(str_of(lang), targets[j].lang)) continue;
            random_kernel(&r, &g);
            check_build(&r, &targets[j]);
            arena_release(&r.arena);
        }
}

static void cuda_builds(void **state) { random_kernels_build("cuda"); }
static void ptx_builds(void **state) { random_kernels_build("ptx"); }
static void hip_builds(void **state) { random_kernels_build("hip"); }
static void opencl_builds(void **state) { random_kernels_build("opencl"); }

static void parse(struct run *r, const char *text)
{
    struct err e = {0};
    if (!kir_parse(&r->kir, &r->arena, str_of(text), &e)) fail_msg("%s\n%s", e.msg, text);
}

/* Threads that share an array, and subgroups, of every type that can be exchanged. */
static const char workgroups[] =
    "kernel workgroups(x: in %s, y: out %s; p0 = \"n\")\ngroup 64 2 1 subgroup 32\ngrid %%1 = p0\ngrid %%2 = 3\n"
    "  shared %%3: %s[%d]\n  %%4 = thread 0\n  %%5 = thread 1\n  %%6 = mul %%5, 64\n  %%7 = add %%6, %%4\n"
    "  %%8 = mul %%1, 384\n  %%9 = mul %%2, 128\n  %%10 = add %%8, %%9\n  %%11 = add %%10, %%7\n"
    "  %%12: %s = load x[%%11]\n  store %%3[%%7] = %%12\n  barrier\n  %%13 = sub 127, %%7\n"
    "  %%14: %s = load %%3[%%13]\n  %%15: %s = sgadd %%14\n  %%16: %s = sgmax %%12\n  %%17 = subgroup 1\n"
    "  %%18 = xor %%17, 1\n  %%19: %s = shuffle %%15, %%18\n  %%20: %s = add %%19, %%16\n"
    "  %%21 = subgroup 0\n  %%22: %s = cast %%21\n  %%23: %s = add %%20, %%22\n  store y[%%11] = %%23\nend\nend\n";

static void workgroups_build(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_I32, DT_U8, DT_I64};
    bool cuda = has_toolchain("cuda"), hip = has_toolchain("hip"), ptx = has_toolchain("ptx");
    if (!cuda && !hip && !ptx) skip();
    for (i64 i = 0; i < countof(types); i++)
        for (i64 j = 0; j < countof(targets); j++) {
            struct run r = {0};
            const char *t = dtype_name(types[i]);
            bool is_cuda = str_is(S("cuda"), targets[j].lang), is_hip = str_is(S("hip"), targets[j].lang);
            bool is_ptx = str_is(S("ptx"), targets[j].lang);
            if (!(is_cuda && cuda) && !(is_hip && hip) && !(is_ptx && ptx)) continue;
            int n = !is_hip && types[i] == DT_F32 ? 16000 : 128; /* too much for a static array */
            parse(&r, str_fmt(&r.arena, workgroups, t, t, t, n, t, t, t, t, t, t, t, t).p);
            check_build(&r, &targets[j]);
            arena_release(&r.arena);
        }
}

/* Rounds copied ahead into shared arrays, all of a piece or its first elements. */
static const char ahead[] =
    "kernel ahead(x: in %s, y: out %s; p0 = \"n\")\ngroup 32 1 1\ngrid %%1 = p0\n  shared %%2: %s[256]\n  %%3 = thread 0\n"
    "  %%4 = mul %%3, %d\n  %%5 = mul %%1, 256\n  %%6 = add %%5, %%4\n  %%7: i64x%d = ramp %%6, 1\n  %%8: i64x%d = ramp %%4, 1\n"
    "  %%9 = sub p0, %%3\n  %%10: %sx%d = load x[%%7]%s\n  copy %%2[%%8] = %%10\n  await 0\n  barrier\n"
    "  %%11: %sx%d = load %%2[%%8]\n  store y[%%7] = %%11\nend\n";

static void copies_build(void **state)
{
    static const struct { enum dtype t; int lanes; const char *first; bool is_copy; } p[] = {
        {DT_F32, 4, "", true}, {DT_F32, 8, " first %9", true}, {DT_F16, 8, " first %9", true}, {DT_U8, 2, "", false},
    };
    if (!has_toolchain("cuda")) skip();
    for (i64 i = 0; i < countof(p); i++)
        for (int old = 0; old < 2; old++) {
            struct run r = {0};
            struct target on = {"cuda", old ? "sm_75" : "sm_80"};
            struct caps c = caps_of(&on);
            struct buf text = {0};
            struct err e = {0};
            const char *t = dtype_name(p[i].t);
            int n = p[i].lanes;
            parse(&r, str_fmt(&r.arena, ahead, t, t, t, n, n, n, t, n, p[i].first, t, n).p);
            assert_true(lang_render(&text, lang_find(S("cuda")), &r.kir, &c, &r.arena, &e));
            assert_true((strstr(text.p, "    COPY(") != NULL) == (p[i].is_copy && !old));
            check_build(&r, &on);
            buf_release(&text);
            arena_release(&r.arena);
        }
}

/* A product of fragments as a subgroup does it: m, n, k of the target's matrix units. */
static const char product[] =
    "kernel product(x: in %s, y: in %s, z: out %s)\ngroup %d 1 1 subgroup %d\ngrid %%1 = 1\n"
    "  shared %%2: %s[%d] swizzled\n  %%3: %s_a%dx%d = fload x[0] pitch %d\n  %%4: %s_b%dx%d = fload y[0] pitch %d columns\n"
    "  %%5: %s_acc%dx%d = fill %s(0)\n  %%6: %s_acc%dx%d = fmma %%3, %%4, %%5\n  %%7: %s_acc%dx%d = add %%6, %%6\n"
    "  fstore %%2[0] = %%7 pitch %d\n  barrier\n  %%8: %s_acc%dx%d = fload %%2[0] pitch %d\n  %%9: %s_acc%dx%d = fload %%2[0] pitch 0 columns\n"
    "  %%10: %s_acc%dx%d = mul %%8, %%9\n  fstore z[0] = %%10 pitch %d columns\nend\n";

static void fragments_build(void **state)
{
    static const struct {
        struct target on;
        int w, m, n, k;
        enum dtype in, sum;
    } p[] = {
        {{"cuda", "sm_80"}, 32, 16, 8, 16, DT_F16, DT_F32},   {{"cuda", "sm_80"}, 32, 16, 8, 16, DT_F16, DT_F16},
        {{"cuda", "sm_75"}, 32, 16, 8, 8, DT_F16, DT_F32},    {{"cuda", "sm_90"}, 32, 16, 8, 16, DT_BF16, DT_F32},
        {{"ptx", "sm_80"}, 32, 16, 8, 16, DT_F16, DT_F16},    {{"ptx", "sm_75"}, 32, 16, 8, 8, DT_F16, DT_F32},
        {{"ptx", "sm_90"}, 32, 16, 8, 16, DT_BF16, DT_F32},   {{"ptx", "sm_80"}, 32, 16, 8, 16, DT_F16, DT_F32},
        {{"hip", "gfx90a"}, 64, 16, 16, 16, DT_F16, DT_F32},  {{"hip", "gfx90a"}, 64, 32, 32, 8, DT_F16, DT_F32},
        {{"hip", "gfx90a"}, 64, 16, 16, 16, DT_BF16, DT_F32}, {{"hip", "gfx90a"}, 64, 32, 32, 8, DT_BF16, DT_F32},
    };
    bool cuda = has_toolchain("cuda"), hip = has_toolchain("hip"), ptx = has_toolchain("ptx");
    if (!cuda && !hip && !ptx) skip();
    for (i64 i = 0; i < countof(p); i++) {
        struct run r = {0};
        const char *t = dtype_name(p[i].in), *s = dtype_name(p[i].sum);
        int m = p[i].m, n = p[i].n, k = p[i].k, w = p[i].w;
        if (!(str_is(S("cuda"), p[i].on.lang) ? cuda : str_is(S("ptx"), p[i].on.lang) ? ptx : hip)) continue;
        parse(&r, str_fmt(&r.arena, product, t, t, s, w, w, s, m * n, t, m, k, k, t, k, n, k, s, m, n, s, s, m, n, s, m, n,
                          n, s, m, n, n, s, m, n, s, m, n, m).p);
        check_build(&r, &p[i].on);
        arena_release(&r.arena);
    }
}

/* Operands in shared arrays: lines of 48 bytes or swizzled ones of 128, of either order. */
static const char staged[] =
    "kernel staged(x: in %s, z: out f32)\ngroup 32 1 1 subgroup 32\ngrid %%1 = 1\n  shared %%2: %s[2048]%s\n  %%3 = thread 0\n"
    "  loop %%4 = 0..2048 step 32\n    %%5 = add %%4, %%3\n    %%6: %s = load x[%%5]\n    store %%2[%%5] = %%6\n  end\n  barrier\n"
    "  %%7: %s_a16x%d = fload %%2[0] pitch %d%s\n  %%8: %s_b%dx8 = fload %%2[1024] pitch %d%s\n  %%9: f32_acc16x8 = fill f32(0)\n"
    "  %%10: f32_acc16x8 = fmma %%7, %%8, %%9\n  fstore z[0] = %%10 pitch 8\nend\n";

/* Fragments are loaded in 8x8 blocks, transposed if the elements of a register are not adjacent. */
static void fetches_build(void **state)
{
    if (!has_toolchain("cuda")) skip();
    for (u32 i = 0; i < 16; i++) {
        bool a = i & 1, b = i & 2, swizzled = i & 4, small = i & 8;
        const struct target on = {"cuda", small ? "sm_75" : "sm_80"};
        struct caps c = caps_of(&on);
        struct run r = {0};
        struct buf text = {0};
        struct err e = {0};
        const char *t = small ? "f16" : "bf16";
        int k = small ? 8 : 16, pitch = swizzled ? 64 : 24;
        parse(&r, str_fmt(&r.arena, staged, t, t, swizzled ? " swizzled" : "", t, t, k, pitch, a ? " columns" : "", t, k, pitch, b ? " columns" : "").p);
        assert_true(lang_render(&text, lang_find(S("cuda")), &r.kir, &c, &r.arena, &e));
        assert_non_null(strstr(text.p, str_fmt(&r.arena, "ldmatrix.sync.aligned.m8n8.x%d%s.shared", k / 4, a ? ".trans" : "").p));
        assert_non_null(strstr(text.p, str_fmt(&r.arena, "ldmatrix.sync.aligned.m8n8.x%d%s.shared", k / 8, b ? "" : ".trans").p));
        check_build(&r, &on);
        buf_release(&text);
        arena_release(&r.arena);
    }
}

/* Matmuls of two warpgroups in four steps with the operands' layouts: rows of K or columns, in lines of 128 bytes. */
struct warpgroup_case {
    int n;
    enum dtype in, sum;
    bool a_across, b_across, in_branch;
};

static struct str warpgroup_kernel(struct arena *a, const struct warpgroup_case *p)
{
    struct buf b = {0};
    const char *t = dtype_name(p->in), *s = dtype_name(p->sum);
    int panel_b = p->b_across ? 4096 : 0, all = (128 + p->n) * 64, n = p->n;
    buf_printf(&b, "kernel wg(x: in %s, z: out %s; p0 = \"n\")\ngroup 256 1 1 subgroup 32 warpgroup 4\ngrid %%1 = p0\n"
                   "  shared %%2: %s[%d] swizzled\n  shared %%3: %s[%d]\n  %%4 = thread 0\n  %%5 = mul %%4, 8\n  %%6 = subgroup 0\n"
                   "  %%7 = div %%6, 4\n  %%8 = mul %%7, 4096\n  reg %%9: %s_acc64x%d[1]\n  %%10: %s_acc64x%d = fill %s(0)\n"
                   "  store %%9[0] = %%10\n  loop %%11 = 0..4\n    barrier\n    loop %%12 = 0..%d step 2048\n"
                   "      %%13 = add %%5, %%12\n      %%14: i64x8 = ramp %%13, 1\n      %%15: %sx8 = load x[%%14]\n"
                   "      copy %%2[%%14] = %%15\n    end\n    await 0\n    barrier\n",
               t, s, t, all, s, 2 * 64 * (n + 8), s, n, s, n, s, all, t);
    if (p->in_branch) buf_z(&b, "    %100: bool = lt %11, 3\n    if %100\n");
    for (int i = 0; i < 4; i++) {
        int at = 20 + 10 * i, step_a = p->a_across ? 1024 * i : 16 * i, step_b = p->b_across ? 1024 * i : 16 * i;
        buf_printf(&b, "    %%%d = add %%8, %d\n    %%%d: %s_a64x16 = fload %%2[%%%d] pitch 64%s\n", at, step_a, at + 1, t, at,
                   p->a_across ? " columns" : "");
        buf_printf(&b, "    %%%d: %s_b16x%d = fload %%2[%d] pitch 64%s", at + 2, t, n, 128 * 64 + step_b, p->b_across ? "" : " columns");
        if (panel_b && n > 64) buf_printf(&b, " panels %d", panel_b);
        buf_printf(&b, "\n    %%%d: %s_acc64x%d = load %%9[0]\n    %%%d: %s_acc64x%d = fmma %%%d, %%%d, %%%d\n    store %%9[0] = %%%d\n",
                   at + 3, s, n, at + 4, s, n, at + 1, at + 2, at + 3, at + 4);
    }
    if (p->in_branch) buf_z(&b, "    end\n");
    buf_printf(&b, "  end\n  %%60: %s_acc64x%d = load %%9[0]\n  %%61: %s_acc64x%d = add %%60, %%60\n  %%62 = mul %%7, %d\n"
                   "  fstore %%3[%%62] = %%61 pitch %d\n  barrier\n  loop %%63 = 0..%d step 256\n    %%64 = add %%63, %%4\n    %%65 = mul %%64, 1\n"
                   "    %%66: %s = load %%3[%%65]\n    store z[%%65] = %%66\n  end\nend\n", s, n, s, n, 64 * n, n, 2 * 64 * n, s);
    struct str text = str_dup(a, buf_view(&b));
    buf_release(&b);
    return text;
}

static i64 count_of(const char *text, const char *word)
{
    i64 n = 0;
    for (; (text = strstr(text, word)) != NULL; text++) n++;
    return n;
}

static void warpgroup_matmuls_build(void **state)
{
    static const struct warpgroup_case p[] = {
        {64, DT_F16, DT_F32, false, false, false},  {128, DT_F16, DT_F16, false, true, false}, {256, DT_BF16, DT_F32, true, true, false},
        {128, DT_BF16, DT_F32, true, false, false}, {64, DT_F16, DT_F32, false, true, true},
    };
    static const struct target on = {"cuda", "sm_90a"};
    bool builds = has_toolchain("cuda");
    for (i64 i = 0; i < countof(p); i++) {
        struct run r = {0};
        struct caps c = caps_of(&on);
        struct buf text = {0};
        struct err e = {0};
        c.shared_bytes = 232448;
        parse(&r, warpgroup_kernel(&r.arena, &p[i]).p);
        if (!lang_render(&text, lang_find(S("cuda")), &r.kir, &c, &r.arena, &e)) fail_msg("%s", e.msg);
        assert_int_equal(count_of(text.p, "  WARPGROUP_BEGIN;"), 1);
        assert_int_equal(count_of(text.p, "  WARPGROUP_END;"), 1);
        assert_int_equal(count_of(text.p, "    q_fmma_"), 4);
        if (os_env("QUERN_TEST_KEEP")) os_write(os_env("QUERN_TEST_KEEP"), text.p, text.n, &(struct err){0});
        struct buf binary = {0};
        if (builds && !lang_find(S("cuda"))->build(&binary, buf_view(&text), &c, 120, &e)) fail_msg("%s", e.msg);
        buf_release(&text);
        buf_release(&binary);
        arena_release(&r.arena);
    }
    if (!builds) skip();
}

/* The address at which the unit reads element (line, at) of an operand by its descriptor: PTX ISA,
   "Strides" and "Shared memory matrix layout" of wgmma, for a 128-byte swizzle and 2-byte elements.
   across: lines are along K, panels of 64 elements are `lead` apart. */
static u32 found_at(u64 d, bool across, u32 line, u32 at)
{
    u32 start = (u32)(d & 0x3fff) << 4, lead = (u32)(d >> 16 & 0x3fff) << 4, stride = (u32)(d >> 32 & 0x3fff) << 4;
    u32 b = start + line / 8 * stride + line % 8 * 128 + (across ? at / 64 * lead + at % 64 * 2 : at * 2);
    return b ^ (b >> 7 & 7) << 4;
}

/* The description that a kernel computes, by the host's compiler. */
static void descriptions_are_right(void **state)
{
    static const struct { bool across; u32 lines, length, panels; } p[] = {
        {false, 64, 16, 0}, {false, 256, 16, 0}, {true, 16, 64, 0}, {true, 16, 256, 2048}, {true, 16, 128, 8192},
    };
    static const struct target on = {"cuda", "sm_90a"};
    struct run r = {0};
    struct caps c = caps_of(&on);
    struct buf text = {0}, code = {0}, binary = {0};
    struct err e = {0};
    c.shared_bytes = 232448;
    parse(&r, warpgroup_kernel(&r.arena, &(struct warpgroup_case){128, DT_F16, DT_F32, false, true, false}).p);
    if (!lang_render(&text, lang_find(S("cuda")), &r.kir, &c, &r.arena, &e)) fail_msg("%s", e.msg);
    const char *from = strstr(text.p, "#define OPERAND"), *to = from ? strchr(from, '\n') : NULL;
    assert_non_null(to);
    buf_printf(&code, "typedef unsigned u32;\ntypedef unsigned long long u64;\n#define __cvta_generic_to_shared(p) (p)\n%.*s\n"
                      "u64 describe(u32 p, u32 lead);\nu64 describe(u32 p, u32 lead) { return OPERAND(p, lead); }\n", (int)(to - from), from);
    if (!lang_find(S("c"))->build(&binary, buf_view(&code), &(struct caps){.arch = "generic"}, 60, &e)) fail_msg("%s", e.msg);
    void *lib = os_dlopen_bytes(binary.p, binary.n, &e), *symbol = lib ? os_dlsym(lib, "describe") : NULL;
    u64 (*describe)(u32, u32);
    if (!symbol) fail_msg("%s", e.msg);
    memcpy(&describe, &symbol, sizeof symbol);
    for (i64 i = 0; i < countof(p); i++)
        for (u32 first = 0; first < 60000; first += p[i].across ? 1024 : first % 128 == 96 ? 1024 - 96 : 32) {
            u64 d = describe(first, p[i].panels ? p[i].panels * 2 : 16);
            assert_int_equal(d >> 62, 1); /* 128 bytes */
            assert_int_equal(d >> 46 & 0xffff, 0);
            for (u32 line = 0; line < p[i].lines; line++)
                for (u32 at = 0; at < p[i].length; at++) {
                    u32 b = first + (line * 64 + at % 64 + at / 64 * p[i].panels) * 2; /* kernel IR's byte of FLOAD */
                    assert_int_equal(found_at(d, p[i].across, line, at), b ^ (b >> 7 & 7) << 4);
                }
        }
    os_dlclose(lib);
    buf_release(&text);
    buf_release(&code);
    buf_release(&binary);
    arena_release(&r.arena);
}

/* Operands of f32 as tf32: rounded when they are loaded, from memory or shared arrays, never fetched by pieces of 16 bits. */
static void tf32_builds(void **state)
{
    static const char kernel[] =
        "kernel product(x: in f32, y: in f32, z: out f32)\ngroup 32 1 1 subgroup 32\ngrid %%1 = 1\n  shared %%2: f32[256]%s\n"
        "  %%3 = thread 0\n  store %%2[%%3] = f32(1)\n  barrier\n  %%4: tf32_a16x%d = fload %s[0] pitch 16%s\n"
        "  %%5: tf32_b%dx8 = fload y[0] pitch 8%s\n  %%6: f32_acc16x8 = fill f32(0)\n  %%7: f32_acc16x8 = fmma %%4, %%5, %%6\n"
        "  fstore z[0] = %%7 pitch 8\nend\n";
    const struct target on = {"cuda", "sm_80"};
    struct caps c = caps_of(&on);
    if (!has_toolchain("cuda")) skip();
    for (u32 i = 0; i < 16; i++) {
        struct run r = {0};
        struct buf text = {0};
        struct err e = {0};
        int k = i & 8 ? 4 : 8;
        parse(&r, str_fmt(&r.arena, kernel, i & 4 ? " swizzled" : "", k, i & 1 ? "%2" : "x", i & 2 ? " columns" : "", k,
                          i & 2 ? "" : " columns").p);
        assert_true(lang_render(&text, lang_find(S("cuda")), &r.kir, &c, &r.arena, &e));
        assert_non_null(strstr(text.p, str_fmt(&r.arena, "mma.sync.aligned.m16n8k%d.row.col.f32.tf32.tf32.f32", k).p));
        assert_non_null(strstr(text.p, "cvt.rna.tf32.f32"));
        assert_null(strstr(text.p, "ldmatrix"));
        check_build(&r, &on);
        buf_release(&text);
        arena_release(&r.arena);
    }
}

static void expect(const char *kernel, const char *lang, const struct caps *c, const char *message)
{
    struct run r = {0};
    struct buf out = {0};
    struct err e = {0};
    parse(&r, kernel);
    assert_false(lang_render(&out, lang_find(str_of(lang)), &r.kir, c, &r.arena, &e));
    if (!strstr(e.msg, message)) fail_msg("'%s' is not in '%s'", message, e.msg);
    buf_release(&out);
    arena_release(&r.arena);
}

/* Operands in unsupported layouts, or that could be changed before they are read. */
static void warpgroup_errors(void **state)
{
    static const struct { const char *from, *to, *message; } p[] = {
        {"[24576] swizzled", "[24576]", "unsupported memory layout"}, {"warpgroup 4", "warpgroup 2", "warpgroups of 2"},
        {"pitch 64\n    %22", "pitch 128\n    %22", "unsupported memory layout"}, {"= add %8, 16\n", "= add %8, 8\n", "unsupported memory layout"},
        {"= add %8, 16\n", "= add %8, 64\n", "unsupported memory layout"}, {"panels 4096", "panels 4100", "unsupported memory layout"},
        {"    %23: f32", "    barrier\n    %23: f32", "a barrier between"},
    };
    static const struct target on = {"cuda", "sm_90a"};
    for (i64 i = 0; i < countof(p); i++) {
        struct run r = {0};
        struct caps c = caps_of(&on);
        c.shared_bytes = 232448;
        const char *text = warpgroup_kernel(&r.arena, &(struct warpgroup_case){256, DT_F16, DT_F32, false, true, false}).p;
        const char *at = strstr(text, p[i].from);
        if (!at) fail_msg("'%s' is not in\n%s", p[i].from, text);
        text = str_fmt(&r.arena, "%.*s%s%s", (int)(at - text), text, p[i].to, at + strlen(p[i].from)).p;
        expect(text, "cuda", &c, p[i].message);
        arena_release(&r.arena);
    }
}

static void errors_are_named(void **state)
{
    static const char *const langs[] = {"cuda", "ptx", "hip", "opencl"};
    static const char doubles[] = "kernel d(x: out f64)\ngrid %1 = 4\n  store x[%1] = f64(1)\nend\n";
    static const char large[] = "kernel l(x: out f32)\ngroup 128 1 1\ngrid %1 = 4\n  store x[%1] = f32(1)\nend\n";
    static const char shared[] = "kernel s(x: out f32)\ngroup 32 1 1\ngrid %1 = 4\n  shared %2: f32[1000]\n  %3 = thread 0\n"
                                 "  store %2[%3] = f32(1)\n  barrier\n  %4: f32 = load %2[%3]\n  store x[%3] = %4\nend\n";
    static const char across[] = "kernel a(x: in f32, y: out f32)\ngroup 32 1 1\ngrid %1 = 1\n  %2 = thread 0\n"
                                 "  %3: f32 = load x[%2]\n  %4: f32 = sgadd %3\n  store y[%2] = %4\nend\n";
    static const char wgmma[] = "kernel t(x: in f16, y: out f32)\ngroup 128 1 1 subgroup 32 warpgroup 4\ngrid %1 = 1\n"
                               "  %2: f16_a16x16 = fload x[0] pitch 16\n  %3: f16_b16x8 = fload x[0] pitch 16 columns\n"
                               "  %4: f32_acc16x8 = fill f32(0)\n  %5: f32_acc16x8 = fmma %2, %3, %4\n  fstore y[0] = %5 pitch 8\nend\n";
    static const char work[] = "kernel w(x: in f32, y: out f32)\ngrid %1 = 1\n  work %2: f32[8]\n  %3: f32 = load x[%1]\n"
                               "  store %2[%1] = %3\n  %4: f32 = load %2[%1]\n  store y[%1] = %4\nend\n";
    for (i64 i = 0; i < countof(langs); i++) {
        struct caps c = {.is_gpu = true, .max_group = 64, .shared_bytes = 2048};
        expect(doubles, langs[i], &c, "f64");
        expect(large, langs[i], &c, "128 threads");
        expect(shared, langs[i], &c, "4000 bytes");
        expect(work, langs[i], &c, "scratch memory");
    }
    expect(wgmma, "cuda", &(struct caps){.is_gpu = true}, "warpgroups of 4");
    expect(wgmma, "ptx", &(struct caps){.is_gpu = true}, "warpgroups of 4");
    expect(across, "opencl", &(struct caps){.is_gpu = true}, "subgroups");
}

/* Only valid architectures reach a compiler's command line. */
static void architectures_are_checked(void **state)
{
    static const struct target bad[] = {{"cuda", "x86_64"}, {"cuda", "sm_80 -x"}, {"cuda", "sm_"}, {"ptx", "sm_80 -x"}, {"hip", "sm_80"}, {"hip", "gfx9/.."}};
    for (i64 i = 0; i < countof(bad); i++) {
        struct caps c = caps_of(&bad[i]);
        struct buf out = {0};
        struct err e = {0};
        assert_false(lang_find(str_of(bad[i].lang))->build(&out, S("int x;"), &c, 10, &e));
        assert_non_null(strstr(e.msg, bad[i].arch));
        buf_release(&out);
    }
}

/* A compiler's message comes through, also of an architecture it does not know. */
static void build_errors(void **state)
{
    for (i64 i = 0; i < countof(targets); i++) {
        struct caps c = caps_of(&targets[i]);
        struct buf out = {0};
        struct err e = {0};
        if (str_is(S("opencl"), targets[i].lang) || !has_toolchain(targets[i].lang)) continue;
        const char *text = str_is(S("ptx"), targets[i].lang) ? ".version 8.0\n.target sm_75\n.global .nonsense x;\n" : "int x = nonsense;";
        assert_false(lang_find(str_of(targets[i].lang))->build(&out, str_of(text), &c, 60, &e));
        if (!strstr(e.msg, "nonsense")) fail_msg("%s", e.msg);
        assert_int_equal(out.n, 0);
        buf_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opencl_builds),
        cmocka_unit_test(cuda_builds),
        cmocka_unit_test(ptx_builds),
        cmocka_unit_test(hip_builds),
        cmocka_unit_test(workgroups_build),
        cmocka_unit_test(copies_build),
        cmocka_unit_test(fragments_build),
        cmocka_unit_test(tf32_builds),
        cmocka_unit_test(fetches_build),
        cmocka_unit_test(warpgroup_matmuls_build),
        cmocka_unit_test(descriptions_are_right),
        cmocka_unit_test(warpgroup_errors),
        cmocka_unit_test(errors_are_named),
        cmocka_unit_test(architectures_are_checked),
        cmocka_unit_test(build_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
