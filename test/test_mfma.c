// SPDX-License-Identifier: Apache-2.0
//
// Matrix multiplication by v_mfma: language hip's text for every shape of every target is compiled
// for this machine, with the instruction's definition, and yields the interpreter's bits for any
// order in memory; and hipcc emits the instruction. Missing features of a target are errors.
#include "lang_fixture.h"
#include "lang/lang_tool.h"

struct shape {
    enum dtype type;
    int side, terms;
    const char *arch, *instruction; /* first that has it */
};

static const struct shape shapes[] = {
    {DT_F16, 16, 16, "gfx908", "v_mfma_f32_16x16x16f16"},     {DT_F16, 32, 8, "gfx908", "v_mfma_f32_32x32x8f16"},
    {DT_BF16, 16, 8, "gfx908", "v_mfma_f32_16x16x8bf16"},     {DT_BF16, 32, 4, "gfx908", "v_mfma_f32_32x32x4bf16"},
    {DT_BF16, 16, 16, "gfx90a", "v_mfma_f32_16x16x16bf16"}, {DT_BF16, 32, 8, "gfx90a", "v_mfma_f32_32x32x8bf16"},
    {DT_F32, 16, 4, "gfx908", "v_mfma_f32_16x16x4f32"},       {DT_F32, 32, 2, "gfx908", "v_mfma_f32_32x32x2f32"},
    {DT_F32, 16, 16, "gfx908", "v_mfma_f32_16x16x4f32"},      {DT_F32, 32, 8, "gfx908", "v_mfma_f32_32x32x2f32"},
    {DT_TF32, 16, 8, "gfx942", "v_mfma_f32_16x16x8_xf32"},    {DT_TF32, 32, 4, "gfx942", "v_mfma_f32_32x32x4_xf32"},
};

static const struct { const char *name; u32 n_shapes; } archs[] = {{"gfx906", 0}, {"gfx908", 8}, {"gfx90a", 8}, {"gfx942", 10}};

/* bit 0: the left operand is column-major, 1: the right one, 2: the result. */
static void parse_product(struct run *r, const struct shape *s, u32 by)
{
    static const char *const order[] = {"", " columns"};
    const char *t = dtype_name(s->type), *held = dtype_name(s->type == DT_TF32 ? DT_F32 : s->type);
    int n = s->side, k = s->terms, left = (by & 1 ? n : k) + 8, right = (by & 2 ? k : n) + 8;
    const char *text = str_fmt(&r->arena,
        "kernel product(x: in %s, y: in %s, f: in f32, z: out f32)\ngroup 64 1 1 subgroup 64\ngrid %%1 = 1\n  %%2: %s_a%dx%d = fload x[0] pitch %d%s\n"
        "  %%3: %s_b%dx%d = fload y[0] pitch %d%s\n  %%4: f32_acc%dx%d = fill f32(%d)\n  %%5: f32_acc%dx%d = fmma %%2, %%3, %%4\n"
        "  %%6: f32_acc%dx%d = fmma %%2, %%3, %%5\n  %%7: f32_acc%dx%d = fload f[0] pitch 0 columns\n  %%8: f32_acc%dx%d = mul %%6, %%7\n"
        "  fstore z[0] = %%8 pitch %d%s\nend\n",
        held, held, t, n, k, left, order[by & 1], t, k, n, right, order[by >> 1 & 1], n, n, s->type != DT_TF32, n, n, n, n, n, n, n, n, n, order[by >> 2]).p;
    struct err e = {0};
    if (!kir_parse(&r->kir, &r->arena, str_of(text), &e) || !kir_verify(&r->kir, &e)) fail_msg("%s\n%s", e.msg, text);
}

/* Numbers whose sums are exact; those of tf32 when they have been rounded, in all ways. Factors of rows are powers of two. */
static void fill_arguments(struct run *r, const struct shape *s, struct rng *g)
{
    enum dtype held = s->type == DT_TF32 ? DT_F32 : s->type;
    for (u32 i = 0; i < 4; i++) {
        i64 n = i == 3 ? s->side * s->side : i == 2 ? s->side : (s->side + 8) * (s->side + 8);
        r->arg[i] = (struct kir_arg){arena_alloc(&r->arena, n * 4), n};
        for (i64 j = 0; j < n && i < 2; j++) {
            bool loses = s->type == DT_TF32;
            i64 v = !loses ? rng_range(g, 0, 100) : i ? (4096 << rng_range(g, 0, 1)) + 1 : rng_range(g, 4096, 8191);
            elem_set_i64(held, r->arg[i].p, j, rng_range(g, 0, 1) ? v : -v);
        }
        for (i64 j = 0; j < n && i == 2; j++) elem_set_i64(DT_F32, r->arg[i].p, j, 1 << (j * 5 % 7));
    }
}

/* AMD's ISA, "Matrix arithmetic instructions": with n terms a thread in an operand, term k of row (column) i is element k % n of thread i +
   SIDE * (k / n); of the results, (i, j) is element i / 8 * 4 + i % 4 of thread j + 32 * (i / 4 % 2), or i % 4 of j + 16 * (i / 4). The
   threads run one after the other, twice: operands do not depend on sums, and are all known at the second time. */
static const char machine[] =
    "static int now, lane, call;\nstatic float known[2][2][64][4][4]; /* operand, thread, instruction, element */\n"
    "#define __builtin_amdgcn_workgroup_id_x() 0\n#define __builtin_amdgcn_workitem_id_x() lane\n#define _Float16 short\n"
    "#define amdgpu_flat_work_group_size(least, most) used\n"
    "static float number(const char *p, int bytes, bool is_bf16)\n{\n    float f;\n    unsigned short h;\n    unsigned w;\n"
    "    if (bytes == 4) return __builtin_memcpy(&f, p, 4), f;\n    __builtin_memcpy(&h, p, 2);\n"
    "    if (is_bf16) w = (unsigned)h << 16;\n    else if (h << 1 & 0xffff) w = (h & 0x8000u) << 16 | ((h & 0x7fffu) << 13) + (112u << 23);\n"
    "    else w = (h & 0x8000u) << 16;\n    return __builtin_memcpy(&f, &w, 4), f;\n}\n"
    "template <int SIDE, int BYTES, bool BF16, class T, class Z> static Z mfma(T x, T y, Z z)\n{\n"
    "    const int n = sizeof x / BYTES, at = call % 4;\n    const int set = call++ / 4;\n"
    "    for (int i = 0; i < n && !now; i++) {\n        known[set][0][lane][at][i] = number((char *)&x + BYTES * i, BYTES, BF16);\n"
    "        known[set][1][lane][at][i] = number((char *)&y + BYTES * i, BYTES, BF16);\n    }\n"
    "    for (int i = 0; i < SIDE && now; i++)\n        for (int j = 0; j < SIDE; j++) {\n"
    "            const int owner = SIDE == 32 ? j + 32 * (i / 4 % 2) : j + 16 * (i / 4), e = SIDE == 32 ? i / 8 * 4 + i % 4 : i % 4;\n"
    "            for (int k = 0; k < n * 64 / SIDE && owner == lane; k++)\n"
    "                z[e] += known[set][0][i + SIDE * (k / n)][at][k % n] * known[set][1][j + SIDE * (k / n)][at][k % n];\n        }\n"
    "    return z;\n}\n"
#define MACHINE(name, side, bytes, bf16) "#define __builtin_amdgcn_mfma_f32_" name "(x, y, z, p, q, r) mfma<" side ", " bytes ", " bf16 ">(x, y, z)\n"
    MACHINE("16x16x16f16", "16", "2", "false") MACHINE("32x32x8f16", "32", "2", "false")
    MACHINE("16x16x16bf16_1k", "16", "2", "true") MACHINE("32x32x8bf16_1k", "32", "2", "true")
    MACHINE("16x16x8bf16", "16", "2", "true") MACHINE("32x32x4bf16", "32", "2", "true")
    MACHINE("16x16x4f32", "16", "4", "false") MACHINE("32x32x2f32", "32", "4", "false")
    MACHINE("16x16x8_xf32", "16", "4", "false") MACHINE("32x32x4_xf32", "32", "4", "false");

static const char threads[] =
    "extern \"C\" void run(const void *x, const void *y, const float *f, float *z)\n{\n    for (now = 0; now < 2; now++)\n"
    "        for (lane = 0; lane < 64; lane++) call = 0, product_0((const %s *)x, (const %s *)y, f, z, 0, 0, 0);\n}\n";

typedef void run_fn(const void *x, const void *y, const void *f, float *z);

/* false: there is no such compiler. */
static bool compile(const char *const *argv, const char *name, struct str text, struct buf *out)
{
    struct err e = {0};
    struct lang_tool t = {argv[0], NULL, 300};
    bool ok = lang_tool_convert(out, &t, &(struct lang_convert){argv, name, "out", text}, &e);
    if (!ok && e.code != ERR_SYSTEM) fail_msg("%s\n%.*s", e.msg, STR_ARG(text));
    return ok;
}

static void render(struct buf *text, struct run *r, const char *arch)
{
    struct caps c;
    struct err e = {0};
    assert_true(dev_target(&c, "hip", str_of(arch)));
    if (!lang_render(text, lang_find(S("hip")), &r->kir, &c, &r->arena, &e)) fail_with(r, "render", &e);
}

/* The text of `r` on the machine that is defined above; false: no compiler. */
static bool emulate(struct run *r, const struct shape *s, float *z)
{
    static const char *const argv[] = {"clang", "-x", "c++", "-w", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-o", "@out", "@in", NULL};
    struct buf text = {0}, code = {0}, binary = {0};
    struct err e = {0};
    const char *held = dtype_size(s->type) == 2 ? "u16" : "f32";
    render(&text, r, s->arch);
    buf_printf(&code, "%s%.*s", machine, STR_ARG(buf_view(&text)));
    buf_printf(&code, threads, held, held);
    bool there = compile(argv, "k.cpp", buf_view(&code), &binary);
    if (there) {
        void *lib = os_dlopen_bytes(binary.p, binary.n, &e), *symbol = lib ? os_dlsym(lib, "run") : NULL;
        run_fn *run;
        if (!symbol) fail_msg("%s", e.msg);
        memcpy(&run, &symbol, sizeof symbol);
        run(r->arg[0].p, r->arg[1].p, r->arg[2].p, z);
        os_dlclose(lib);
    }
    buf_release(&text), buf_release(&code), buf_release(&binary);
    return there;
}

static void threads_hold_what_they_multiply(void **state)
{
    struct rng g = rng_seed(11);
    for (i64 i = 0; i < countof(shapes); i++)
        for (u32 by = 0; by < 8; by++) {
            struct run r = {0};
            float z[32 * 32];
            parse_product(&r, &shapes[i], by);
            fill_arguments(&r, &shapes[i], &g);
            if (!emulate(&r, &shapes[i], z)) skip_test("no clang (tool/deps ci)");
            r.n_arg = 4;
            interpret(&r);
            if (memcmp(z, r.arg[3].p, (size_t)r.arg[3].n * sizeof *z))
                fail_msg("%s %dx%d, order %u: %g is %g in the interpreter", dtype_name(shapes[i].type), shapes[i].side, shapes[i].terms, by, (double)z[1],
                         ((double)((float *)r.arg[3].p)[1]));
            arena_release(&r.arena);
        }
}

static bool has_hip(void)
{
    struct buf b = {0};
    struct err e = {0};
    bool ok = lang_find(S("hip"))->toolchain(&b, NULL, &e);
    if (!ok) print_message("skipped: %s\n", e.msg);
    buf_release(&b);
    return ok;
}

/* Whether the installed compiler supports the architecture. */
static bool is_known(const char *arch, struct err *e)
{
    struct caps c;
    struct buf out = {0};
    dev_target_near(&c, "hip", str_of(arch));
    bool ok = lang_find(S("hip"))->build(&out, S("extern \"C\" __attribute__((global)) void k(void) {}"), &c, 120, e);
    buf_release(&out);
    return ok;
}

/* The instructions of gfx942 are those of gfx940, which compilers knew first; NULL: none of the two. */
static const char *built_as(const char *arch)
{
    struct err e = {0}, older = {0};
    if (is_known(arch, &e)) return arch;
    assert_int_equal(e.code, ERR_FAILED);
    if (!strstr(e.msg, arch)) fail_msg("'%s' is not in '%s'", arch, e.msg);
    return !strcmp(arch, "gfx942") && is_known("gfx940", &older) ? "gfx940" : NULL;
}

static bool is_listed(const struct caps *c, const struct shape *s)
{
    struct str list = str_of(c->matrix);
    struct caps_matrix m;
    while (caps_matrix_next(&list, &m))
        if (m.m == s->side && m.n == s->side && m.k == s->terms && m.a == s->type && m.b == s->type && m.c == DT_F32 && m.d == DT_F32) return true;
    return false;
}

/* Names of instructions got more underscores, and "_1k" less. */
static bool has_instruction(struct str text, const char *name)
{
    for (i64 i = 0; i < text.n; i++) {
        const char *p = name;
        for (i64 j = i; j < text.n && *p; j++) {
            if (*p == '_') p++;
            if (text.p[j] == '_') continue;
            if (text.p[j] != *p) break;
            p++;
        }
        if (!*p) return true;
    }
    return false;
}

static u32 check_instruction(const struct shape *s, const char *arch, const char *as)
{
    struct run r = {0};
    struct buf text = {0}, assembly = {0};
    const char *option = str_fmt(&r.arena, "--offload-arch=%s", as).p;
    const char *const argv[] = {"hipcc", "-S", "--cuda-device-only", option, "-O3", "-nogpuinc", "-w", "-o", "@out", "@in", NULL};
    parse_product(&r, s, 0);
    render(&text, &r, arch);
    assert_true(compile(argv, "k.hip", buf_view(&text), &assembly));
    if (!has_instruction(buf_view(&assembly), s->instruction)) fail_msg("no '%s' for %s:\n%s", s->instruction, as, text.p);
    buf_release(&text), buf_release(&assembly);
    arena_release(&r.arena);
    return 1;
}

/* Every shape that a target lists is one here, and one instruction there. */
static void targets_have_instructions(void **state)
{
    bool builds = has_hip();
    for (i64 i = 0; i < countof(archs); i++) {
        struct caps c;
        struct caps_matrix m;
        u32 n = 0, n_listed = 0;
        assert_true(dev_target(&c, "hip", str_of(archs[i].name)));
        const char *as = builds && c.matrix[0] ? built_as(archs[i].name) : NULL;
        struct str list = str_of(c.matrix);
        while (caps_matrix_next(&list, &m)) n_listed++;
        for (i64 j = 0; j < countof(shapes); j++)
            if (is_listed(&c, &shapes[j])) n += as ? check_instruction(&shapes[j], archs[i].name, as) : 1;
        assert_int_equal(n, n_listed);
        assert_int_equal(n, archs[i].n_shapes);
        print_message("%s: %u shapes%s%s\n", archs[i].name, n, as ? ", built for " : n && builds ? ", not built: hipcc does not know it" : "", as ? as : "");
    }
    if (!builds) skip();
}

/* Compilers reject instructions that an architecture lacks, or has none of. */
static void others_are_refused(void **state)
{
    static const struct { u32 shape; const char *arch; } p[] = {{0, "gfx906"}, {6, "gfx906"}, {4, "gfx908"}, {10, "gfx90a"}};
    static const struct shape impossible[] = {{DT_F16, 16, 8, "", ""}, {DT_F32, 32, 4, "", ""}, {DT_TF32, 16, 16, "", ""}};
    for (i64 i = 0; i < countof(impossible); i++) {
        struct run r = {0};
        struct buf text = {0};
        struct err e = {0};
        struct caps c;
        dev_target(&c, "hip", S("gfx942"));
        parse_product(&r, &impossible[i], 0);
        assert_false(lang_render(&text, lang_find(S("hip")), &r.kir, &c, &r.arena, &e));
        assert_non_null(strstr(e.msg, "no fragments of"));
        buf_release(&text);
        arena_release(&r.arena);
    }
    if (!has_hip()) skip();
    for (i64 i = 0; i < countof(p); i++) {
        struct run r = {0};
        struct buf text = {0}, binary = {0};
        struct err e = {0};
        struct caps c;
        dev_target(&c, "hip", str_of(p[i].arch));
        parse_product(&r, &shapes[p[i].shape], 0);
        render(&text, &r, p[i].arch);
        assert_false(lang_find(S("hip"))->build(&binary, buf_view(&text), &c, 120, &e));
        assert_int_equal(e.code, ERR_FAILED);
        buf_release(&text), buf_release(&binary);
        arena_release(&r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_hold_what_they_multiply), cmocka_unit_test(targets_have_instructions),
                                       cmocka_unit_test(others_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
