// SPDX-License-Identifier: Apache-2.0
//
// SPIR-V: declarations of modules; and language spirv: modules of random kernels, of every operator
// and type, and of whole operators are validated by spirv-val.
#include "core/spirv.h"
#include "lang_fixture.h"
#include "spirv_tools.h"

static struct str read_module(struct arena *a, const char *path)
{
    struct str s = {0};
    struct err e = {0};
    if (!os_read(a, path, 1 << 20, &s, &e)) fail_msg("%s", e.msg);
    return s;
}

/* A module of another compiler: glslang. */
static void reads_declarations(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct spirv_info f;
    struct str m = read_module(&a, "test/corpus/spirv/glsl.spv");
    if (!spirv_read_info(&f, m, &e)) fail_msg("%s", e.msg);
    assert_int_equal(f.version, 15);
    assert_int_equal(f.n_entry, 1);
    assert_true(str_is(f.entry[0].name, "main"));
    assert_int_equal(f.entry[0].local[0], 8);
    assert_int_equal(f.entry[0].local[1], 4);
    assert_int_equal(f.entry[0].local[2], 1);
    assert_int_equal(f.n_set, 1);
    assert_int_equal(f.n_binding, 3);
    assert_int_equal(f.push_bytes, 24);
    assert_int_equal(f.shared_bytes, 100 * 4 + 7 * 16);
    assert_int_equal(f.subgroup, 0);
    assert_true(spirv_has_capability(&f, SPV_CAP_SHADER));
    assert_true(spirv_has_capability(&f, SPV_CAP_SUBGROUP_ARITHMETIC));
    assert_false(spirv_has_capability(&f, SPV_CAP_F64));
    arena_release(&a);
}

static void refuses_invalid_modules(void **state)
{
    struct arena a = {0};
    struct spirv_info f;
    struct str m = read_module(&a, "test/corpus/spirv/glsl.spv");
    struct str bad[] = {{0}, str_sub(m, 0, 16), str_sub(m, 0, m.n - 1), str_sub(m, 4, m.n)};
    for (i64 i = 0; i < countof(bad); i++) {
        struct err e = {0};
        assert_false(spirv_read_info(&f, bad[i], &e));
        assert_int_equal(e.code, ERR_INPUT);
    }
    arena_release(&a);
}

static void validate(const struct run *r, const struct caps *c, struct str module, const char *what)
{
    struct buf out = {0};
    struct err e = {0};
    struct spirv_info info;
    const char *option[] = {"--target-env", target_env(c), NULL};
    if (!spirv_read_info(&info, module, &e)) fail_with(r, what, &e);
    if (!run_tool("spirv-val", option, module, &out)) {
        if (os_env("QUERN_TEST_KEEP")) os_write(os_env("QUERN_TEST_KEEP"), module.p, module.n, &e);
        err_set(&e, ERR_FAILED, "%s", out.p);
        fail_with(r, what, &e);
    }
    buf_release(&out);
}

static void build_and_validate(struct run *r, const struct caps *c, const char *what)
{
    struct buf binary = {0};
    build_as(r, "spirv", c, &binary);
    validate(r, c, buf_view(&binary), what);
    buf_release(&binary);
}

static void random_kernels_are_valid(void **state)
{
    struct caps c = gpu_caps();
    for (u64 seed = first_seed(2000, 2120); seed < last_seed(2000, 2120); seed++) {
        struct run r = {0};
        struct rng g = rng_seed(seed);
        char what[64];
        snprintf(what, sizeof what, "kernel %llu", (unsigned long long)seed);
        random_kernel(&r, &g);
        build_and_validate(&r, &c, what);
        arena_release(&r.arena);
    }
}

/* One operator on operands of one type, as text; kir_verify decides whether it is valid. */

static bool op_kernel(struct run *r, enum kir_op op, enum dtype t, u32 lanes)
{
    struct buf b = {0};
    struct err e = {0};
    const struct kir_op_info *info = kir_op_info(op);
    const char *in = dtype_name(t), *out = info->rule == 'B' ? "bool" : in;
    buf_printf(
        &b,
        "kernel op(a: in %s, b: in %s, c: in %s, r: out %s)\ngrid %%1 = 16\n  %%2 = mul %%1, %u\n",
        in, in, in, out, lanes);
    if (lanes > 1) buf_printf(&b, "  %%3: i64x%u = ramp %%2, 1\n", lanes);
    else buf_z(&b, "  %3 = add %2, 0\n");
    char type[32] = "";
    if (lanes > 1) snprintf(type, sizeof type, "x%u", lanes);
    for (u32 i = 0; i < info->n_args; i++)
        buf_printf(&b, "  %%%u: %s%s = load %c[%%3]\n", 4 + i, in, type, 'a' + (int)i);
    buf_printf(&b, "  %%7: %s%s = %s", out, type, info->name);
    for (u32 i = 0; i < info->n_args; i++) buf_printf(&b, "%s %%%u", i ? "," : "", 4 + i);
    buf_z(&b, "\n  store r[%3] = %7\nend\n");
    bool ok = kir_parse(&r->kir, &r->arena, buf_view(&b), &e);
    buf_release(&b);
    return ok;
}

static void operators_are_valid(void **state)
{
    struct caps c = gpu_caps();
    u32 n = 0;
    for (enum kir_op op = 1; op < N_KIR_OPS; op++)
        for (enum dtype t = 1; t < N_DTYPES; t++)
            for (u32 lanes = 1; lanes <= 4 && !dtype_is_small(t); lanes *= 4) {
                struct run r = {0};
                const struct kir_op_info *info = kir_op_info(op);
                bool is_plain = info->cls == 'P' && (info->rule == 'S' || info->rule == 'B');
                if (is_plain && op_kernel(&r, op, t, lanes)) {
                    build_and_validate(&r, &c, info->name);
                    n++;
                }
                arena_release(&r.arena);
            }
    assert_true(n > 300);
}

/* Every type to every other: by value, by bits where the size is the same. */
static void conversions_are_valid(void **state)
{
    struct caps c = gpu_caps();
    for (enum dtype from = 1; from < N_DTYPES; from++)
        for (enum dtype to = 1; to < N_DTYPES; to++) {
            if (dtype_is_small(from) || dtype_is_small(to)) continue;
            struct run r = {0};
            struct kir *k = &r.kir;
            kir_init(k, &r.arena, S("convert"));
            kval x = kir_buf(k, S("x"), from, KA_IN), y = kir_buf(k, S("y"), to, KA_OUT);
            kval at = kir_ramp(k, kir_mul_i(k, kir_grid(k, kir_int(k, 9)), 8), 1, 8),
                 v = kir_load(k, x, at);
            bool has_bits = dtype_size(from) == dtype_size(to) && from != DT_BOOL && to != DT_BOOL;
            kir_store(k, y, at, kir_cast(k, to, v));
            kir_end(k);
            kir_grid(k, kir_int(k, 9));
            v = kir_load(k, x, at = kir_int(k, 0));
            kir_store(k, y, at, has_bits ? kir_bits(k, to, v) : kir_cast(k, to, v));
            kir_end(k);
            build_and_validate(&r, &c, dtype_name(to));
            arena_release(&r.arena);
        }
}

/* The same kernels for versions of SPIR-V, restricted targets, and with debug information. */
static void targets_are_served(void **state)
{
    static const char *const flags[] = {"", "debug", "nonsemantic", "debug optimize"};
    static const u32 versions[] = {10, 13, 15, 16};
    for (i64 i = 0; i < 16; i++) {
        struct caps c = gpu_caps();
        struct run r = {0};
        struct rng g = rng_seed(2700 + (u64)i);
        c.spirv = versions[i % 4];
        c.max_push = i % 3 ? 128 : 0;
        c.has_nan = c.has_rte_f16 = i % 5 == 0 && c.spirv > 13;
        if (i % 3 == 1) c.has_i64 = false;
        if (i % 7 == 0) c.has_i8 = c.has_i16 = c.has_f16 = c.has_fma = false;
        snprintf(c.spirv_flags, sizeof c.spirv_flags, "%s", flags[i / 4]);
        random_kernel(&r, &g);
        build_and_validate(&r, &c, flags[i / 4]);
        arena_release(&r.arena);
    }
}

/* Missing features are errors, not replaced. */
static void lacks_are_errors(void **state)
{
    static const struct {
        const char *kernel, *word;
    } bad[] = {
        {"kernel k(x: in f64, y: out f64)\ngrid %1 = 9\n  %2: f64 = load x[%1]\n  store y[%1] = "
         "%2\nend\n",
         "f64"},
        {"kernel k(y: out f32)\ngroup 2048 1 1\ngrid %1 = 9\n  store y[%1] = f32(0)\nend\n",
         "2048 threads"},
        {"kernel k(y: out f32)\ngrid %1 = 9\n  shared %2: f32[9000]\n  store %2[0] = f32(0)\n  %3: "
         "f32 = load %2[0]\n  store y[%1] = %3\nend\n",
         "shared"},
        {"kernel k(y: out f32)\ngrid %1 = 9\n  work %2: f32[9]\n  store y[%1] = f32(0)\nend\n",
         "scratch"},
        {"kernel k(y: out f32)\ngroup 32 1 1\ngrid %1 = 9\n  %2: f32 = sgadd f32(1)\n  store y[%1] "
         "= %2\nend\n",
         "subgroup"},
    };
    struct caps c = gpu_caps();
    c.has_f64 = c.has_i64 = c.has_subgroup = false;
    for (i64 i = 0; i < countof(bad); i++) {
        struct buf out = {0};
        struct err e = {0};
        assert_false(lang_find(S("spirv"))->build(&out, str_of(bad[i].kernel), &c, 10, &e));
        if (!strstr(e.msg, bad[i].word)) fail_msg("'%s' in: %s", bad[i].word, e.msg);
        buf_release(&out);
    }
}

static void build_text(const char *text, const char *flags, struct buf *out)
{
    struct err e = {0};
    struct caps c = gpu_caps();
    snprintf(c.spirv_flags, sizeof c.spirv_flags, "%s", flags);
    if (!lang_find(S("spirv"))->build(out, str_of(text), &c, 10, &e)) fail_msg("%s", e.msg);
}

static const char subgroup_kernel[] =
    "kernel sums(x: in f32, y: out f32)\ngroup 64 2 1 subgroup 32\ngrid %1 = 10\n"
    "  shared %2: f32[100]\n  store %2[%1] = f32(0)\n  %3: f32 = load %2[0]\n"
    "  %4: f32 = sgadd %3\n  store y[%1] = %4\nend\ngrid %5 = 4\n  store y[%5] = f32(1)\nend\n";

/* Requirements are declared in the module for drivers; the optimiser preserves them. */
static void requirements_are_declared(void **state)
{
    static const char *const flags[] = {"", "debug", "nonsemantic", "optimize"};
    for (i64 i = 0; i < countof(flags); i++) {
        struct buf b = {0};
        struct err e = {0};
        struct spirv_info f;
        build_text(subgroup_kernel, flags[i], &b);
        assert_true(spirv_read_info(&f, buf_view(&b), &e));
        assert_int_equal(f.subgroup, 32);
        assert_int_equal(f.n_entry, 2);
        assert_true(str_is(f.entry[0].name, "sums_0") && str_is(f.entry[1].name, "sums_1"));
        assert_int_equal(f.entry[0].local[0], 64);
        assert_int_equal(f.entry[0].local[1], 2);
        assert_int_equal(f.shared_bytes, 400);
        assert_int_equal(f.n_binding, 2);
        assert_int_equal(f.push_bytes, 0);
        assert_int_equal(f.version, 16);
        assert_true(spirv_has_capability(&f, SPV_CAP_SUBGROUP_ARITHMETIC));
        assert_false(spirv_has_capability(&f, SPV_CAP_F16));
        buf_release(&b);
    }
}

/* Index arithmetic needs no 64-bit integers, not even when it starts from floats; data does. */
static void indices_are_words(void **state)
{
    static const struct {
        const char *body;
        bool is_wide;
    } kernels[] = {
        {"  %2: f32 = load x[%1]\n  %3 = cast %2\n  %4 = min %3, p0\n  %5: f32 = load x[%4]\n"
         "  store y[%1] = %5\nend\n",
         false},
        {"  %2: f32 = load x[%1]\n  %3 = cast %2\n  %4 = add %3, 1\n  %5: f32 = cast %4\n"
         "  store y[%1] = %5\nend\n",
         true},
        {"  reg %2: i64[2]\n  store %2[0] = %1\n  %3 = load %2[0]\n  %4: f32 = load x[%3]\n"
         "  store y[%1] = %4\nend\n",
         false},
        {"  %2 = load z[%1]\n  %3: f32 = load x[%2]\n  store y[%1] = %3\nend\n", true},
    };
    for (i64 i = 0; i < countof(kernels); i++) {
        struct arena a = {0};
        struct buf b = {0};
        struct err e = {0};
        struct spirv_info f;
        struct str text = str_fmt(&a,
                                  "kernel k(x: in f32, y: out f32, z: in i64; p0 = \"N\")\n"
                                  "grid %%1 = p0\n%s",
                                  kernels[i].body);
        build_text(text.p, "", &b);
        assert_true(spirv_read_info(&f, buf_view(&b), &e));
        assert_int_equal(spirv_has_capability(&f, SPV_CAP_I64), kernels[i].is_wide);
        buf_release(&b);
        arena_release(&a);
    }
}

/* Shared arrays of two grids are not in use at the same time. */
static void shared_arrays_of_grids(void **state)
{
    struct buf b = {0};
    struct err e = {0};
    struct spirv_info f;
    build_text(
        "kernel k(y: out f32)\ngrid %1 = 9\n  shared %2: f32[100]\n  store %2[0] = f32(0)\n"
        "  %3: f32 = load %2[0]\n  store y[%1] = %3\nend\ngrid %4 = 9\n  shared %5: f32[300]\n"
        "  store %5[0] = f32(0)\n  %6: f32 = load %5[0]\n  store y[%4] = %6\nend\n",
        "", &b);
    assert_true(spirv_read_info(&f, buf_view(&b), &e));
    assert_int_equal(f.shared_bytes, 1200);
    buf_release(&b);
}

static void same_text_same_words(void **state)
{
    struct buf a = {0}, b = {0};
    build_text(subgroup_kernel, "nonsemantic", &a);
    build_text(subgroup_kernel, "nonsemantic", &b);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, (size_t)a.n);
    buf_release(&a);
    buf_release(&b);
}

static const char matrix_kernel[] =
    "kernel mm(a: in f16, b: in f16, c: out f16, f: in f32; p0 = \"M//16\", p1 = \"K\")\ngroup 64 1 1 "
    "subgroup 32\ngrid %1 = p0\n"
    "  shared %2: f16[512]\n  reg %3: f32_acc16x16[1]\n  %4: f32_acc16x16 = fill f32(0)\n  store "
    "%3[0] = %4\n"
    "  %5 = mul %1, 16\n  %6 = mul p1, %5\n"
    "  %7: f16_a16x8 = fload a[%6] pitch p1\n  %8: f16_b8x16 = fload b[0] pitch 8 columns\n"
    "  %9: f32_acc16x16 = load %3[0]\n  %10: f32_acc16x16 = fmma %7, %8, %9\n  store %3[0] = %10\n"
    "  %11: f32_acc16x16 = load %3[0]\n  %20: f32_acc16x16 = fload f[0] pitch 0 columns\n  %21: f32_acc16x16 = mul %11, %20\n  %12: f16_acc16x16 = cast %21\n  fstore %2[0] = %12 pitch "
    "16\n  barrier\n"
    "  %13 = thread 0\n  %14 = mul %13, 8\n  %15: i64x8 = ramp %14, 1\n  %16: f16x8 = load "
    "%2[%15]\n  %17 = mul %1, 256\n"
    "  %18 = add %17, %14\n  %19: i64x8 = ramp %18, 1\n  store c[%19] = %16\nend\n";

static u32 count_op(struct str module, enum spirv_op op, u32 n_words)
{
    u32 n = 0, w;
    for (i64 i = SPIRV_HEADER * 4; i < module.n; i += (i64)(w >> 16) * 4) {
        memcpy(&w, module.p + i, sizeof w);
        assert_true(w >> 16);
        n += (w & 0xffff) == (u32)op && w >> 16 == n_words;
    }
    return n;
}

static void matrices_are_written(void **state)
{
    struct buf b = {0};
    struct err e = {0};
    struct spirv_info f;
    build_text(matrix_kernel, "", &b);
    struct str m = buf_view(&b);
    assert_true(spirv_read_info(&f, m, &e));
    assert_true(spirv_has_capability(&f, SPV_CAP_MATRIX) &&
                spirv_has_capability(&f, SPV_CAP_VULKAN_MEMORY));
    assert_true(spirv_has_capability(&f, SPV_CAP_F16));
    assert_int_equal(f.n_extension, 1);
    assert_true(str_is(f.extension[0], "SPV_KHR_cooperative_matrix"));
    assert_int_equal(f.shared_bytes, 1024);
    assert_int_equal(count_op(m, SPV_TYPE_MATRIX, 7), 4); /* A, B, accumulators of f32 and f16 */
    assert_int_equal(count_op(m, SPV_MATRIX_LOAD, 7), 3);
    assert_int_equal(count_op(m, SPV_F_MUL, 5), 1);
    assert_int_equal(count_op(m, SPV_MATRIX_STORE, 6), 1);
    assert_int_equal(count_op(m, SPV_MATRIX_MULADD, 6), 1);
    struct buf nv = {0}, out = {0};
    matrices_to_nv(m, &nv);
    if (!run_tool("spirv-val", (const char *const[]){"--target-env", "vulkan1.3", NULL},
                  buf_view(&nv), &out))
        fail_msg("%s", out.p);
    buf_release(&nv);
    buf_release(&out);
    buf_release(&b);
}

/* test/golden/spirv/NAME.kir becomes NAME.out, as spirv-dis prints it. GOLDEN=1 rewrites the .out
   files. */
static void goldens_are_the_same(void **state)
{
    static const char folder[] = "test/golden/spirv";
    struct arena a = {0};
    struct err e = {0};
    struct str *names, text, want;
    i64 n, done = 0;
    assert_true(os_list(&a, folder, &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        static const char *const option[] = {"--no-header", NULL};
        struct buf module = {0}, got = {0};
        if (!str_ends(names[i], S(".kir"))) continue;
        struct str stem = str_sub(names[i], 0, names[i].n - 4);
        const char *out = str_fmt(&a, "%s/%.*s.out", folder, STR_ARG(stem)).p;
        assert_true(
            os_read(&a, str_fmt(&a, "%s/%.*s", folder, STR_ARG(names[i])).p, 1 << 20, &text, &e));
        build_text(text.p, "debug", &module);
        assert_true(run_tool("spirv-dis", option, buf_view(&module), &got));
        if (getenv("GOLDEN")) assert_true(os_write(out, got.p, got.n, &e));
        if (!os_read(&a, out, 1 << 20, &want, &e)) fail_msg("%s", e.msg);
        if (!str_eq(buf_view(&got), want)) fail_msg("%.*s differs:\n%s", STR_ARG(stem), got.p);
        buf_release(&module);
        buf_release(&got);
        done++;
    }
    assert_true(done >= 6);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_declarations),       cmocka_unit_test(refuses_invalid_modules),
        cmocka_unit_test(random_kernels_are_valid), cmocka_unit_test(operators_are_valid),
        cmocka_unit_test(conversions_are_valid),    cmocka_unit_test(targets_are_served),
        cmocka_unit_test(lacks_are_errors),         cmocka_unit_test(requirements_are_declared),
        cmocka_unit_test(same_text_same_words),
        cmocka_unit_test(indices_are_words), cmocka_unit_test(shared_arrays_of_grids),     cmocka_unit_test(matrices_are_written),
        cmocka_unit_test(goldens_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
