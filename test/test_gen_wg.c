// SPDX-License-Identifier: Apache-2.0
//
// The families by workgroups on random GEMMs and reductions, under random legal schedules, for devices from the smallest
// to large ones, in f32 and f16: the interpreted kernel agrees with the reference evaluator, without races, divergent barriers
// or accesses outside. Some run on a Vulkan device, where one is present.
#include "gen_kinds.h"
#include "vulkan_fixture.h"

extern const struct gen gen_mma_gemm; /* its operands have types that the matrix units have */

static void try_family(const char *name, bool (*build)(struct fixture *b), u64 n_seeds)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.only = gen_find(str_of(name));
        bool has_tf32 = b.only == &gen_mma_gemm && strstr(b.caps.matrix, "tf32");
        if (has_tf32 && pick(&b, 0, 1)) b.tf32 = true;
        else if (pick(&b, 0, 2) == 0) b.type = DT_F16;
        else if (b.only == &gen_mma_gemm) b.type = strstr(b.caps.matrix, ":f32") && pick(&b, 0, 1) ? DT_F32 : strstr(b.caps.matrix, "bf16") ? DT_BF16 : DT_F16;
        if (build(&b)) n_tasks++, n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(is_enough(n, n_seeds));
}

static void test_gemm(void **state) { try_family("wg_gemm", random_gemm, 50); }
static void test_gemv(void **state) { try_family("wg_gemv", random_gemm, 90); }
static void test_matrix(void **state) { try_family("mma_gemm", random_gemm, 60); }

static void test_warpgroups(void **state)
{
    u32 n = 0, n_tasks = 0;
    for (u64 seed = first_seed(0, 40); seed < last_seed(0, 40); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        fixture_use_warpgroups(&b);
        b.only = gen_find(S("wgmma_gemm"));
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_BF16;
        if (random_large(&b)) n_tasks++, n += try_task(&b, seed, 3);
        fixture_close(&b);
    }
    print_message("%u tasks, %u kernels\n", n_tasks, n);
    assert_true(is_enough(n, 60));
}

/* Operands in rows of known sizes: m and batches as they come, others in whole pieces of 16 bytes. */
static bool random_rows(struct fixture *b)
{
    sym a[3], w[3];
    u32 ra = (u32)pick(b, 2, 3), rb = (u32)pick(b, 2, 3);
    sym m = sym_const(&b->sym, pick(b, 33, 150)), n = sym_const(&b->sym, 8 * pick(b, 5, 20)), k = sym_const(&b->sym, pick(b, 0, 1) ? 64 * pick(b, 1, 3) : 8 * pick(b, 5, 20));
    a[0] = w[0] = sym_const(&b->sym, pick(b, 1, 2));
    a[ra - 2] = m, a[ra - 1] = w[rb - 2] = k, w[rb - 1] = n;
    value_id x = add_input(b, "a", ra, a), y = add_input(b, "b", rb, w);
    y = add_op(b, "MatMul", x, y, 0);
    if (pick(b, 0, 1)) y = add_op(b, "Sigmoid", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* A random schedule of wgmma_gemm that lets the device copy operands in boxes. */
static bool choose_boxes(struct fixture *b, struct candidate *c)
{
    for (u32 try = 0; try < 60; try++) {
        if (!gen_random(&b->t, &b->caps, &b->rng, c)) return false;
        if (c->gen != b->only) continue;
        set_value(c, "tma", 1);
        if (gen_legal(c, &b->t, &b->caps)) return true;
    }
    return false;
}

static void test_boxes(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 60); seed < last_seed(0, 60); seed++) {
        struct fixture b;
        struct check k;
        struct candidate c;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        fixture_use_warpgroups(&b);
        b.caps.has_tile = true;
        b.only = gen_find(S("wgmma_gemm"));
        b.type = pick(&b, 0, 1) ? DT_F16 : DT_BF16;
        if (random_rows(&b) && gen_matches(b.only, &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e)) {
            for (u32 i = 0; i < 3 && choose_boxes(&b, &c); i++, n++) {
                struct kernel kernel;
                struct arena a = {0};
                if (!run(&b, &c, &k) || !gen_kernel(&kernel, &a, &c, &b.t, &b.caps, &b.e)) report(&b, &c, seed);
                assert_int_equal(kernel.kir.map.n, 2);
                arena_release(&a);
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 40));
}

static bool make_square(struct fixture *b, i64 size)
{
    sym dim[2];
    dim[0] = dim[1] = sym_const(&b->sym, size);
    value_id v = add_input(b, "a", 2, dim), w = add_input(b, "b", 2, dim);
    *arr_push(&b->arena, &b->g.output) = add_op(b, "MatMul", v, w, 0);
    return make_task(b);
}

/* Language cuda emits every legal schedule for the architecture with warpgroups, in one run of matmuls per K block; some are built where
   there is a compiler. */
static void test_warpgroups_build(void **state)
{
    const struct lang *cuda = lang_find(S("cuda"));
    struct buf tool = {0};
    struct err none = {0};
    bool builds = cuda->toolchain(&tool, NULL, &none);
    u32 n = 0, n_built = 0, n_boxes = 0;
    for (u64 seed = first_seed(0, 24); seed < last_seed(0, 24); seed++) {
        struct fixture b;
        struct candidate c;
        fixture_open_wgmma(&b, seed);
        bool is_made = seed ? random_large(&b) : make_square(&b, 4096);
        if (!is_made) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        for (u32 i = 0; i < 4 && choose(&b, i, &c); i++) {
            struct kernel k;
            struct buf text = {0}, binary = {0};
            if (c.gen != b.only) continue;
            bool ok = gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) && lang_render(&text, cuda, &k.kir, &b.caps, &b.arena, &b.e);
            if (ok && os_env("QUERN_TEST_KEEP")) ok = os_write(str_fmt(&b.arena, "%s.%llu.%u", os_env("QUERN_TEST_KEEP"), (unsigned long long)seed, i).p, text.p, text.n, &b.e);
            bool boxes = ok && strstr(text.p, " TILE(q_tiles");
            n_boxes += boxes;
            if (ok && builds && (n % 8 == 0 || (boxes && n_boxes % 4 == 1))) ok = cuda->build(&binary, buf_view(&text), &b.caps, 120, &b.e), n_built++;
            if (!ok) report(&b, &c, seed);
            const char *first = strstr(text.p, " WARPGROUP_BEGIN;");
            assert_true(first && !strstr(first + 1, " WARPGROUP_BEGIN;"));
            buf_release(&text);
            buf_release(&binary);
            n++;
        }
        fixture_close(&b);
    }
    buf_release(&tool);
    print_message("%u kernels, %u in boxes, %u built%s%s\n", n, n_boxes, n_built, builds ? "" : ", others not: ", none.msg);
    assert_true(is_enough(n, 40) && is_enough(n_boxes, 0));
}

/* Language hip spells every schedule of matrix units for the architectures that have them, and the interpreter runs it; some are built where the compiler
   knows the architecture. */
struct mfma_run {
    const char *arch, *as; /* as: that it is built for; NULL: it is not */
    u32 n, n_built;
};

static void try_mfma(struct mfma_run *r, const char *family, bool (*build)(struct fixture *b), u64 seed)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16};
    const struct lang *hip = lang_find(S("hip"));
    struct fixture b;
    struct candidate c;
    struct check k;
    fixture_open(&b, seed);
    assert_true(dev_target(&b.caps, "hip", str_of(r->arch)));
    b.only = gen_find(str_of(family));
    b.type = types[pick(&b, 0, 3)];
    b.tf32 = b.type == DT_F32 && strstr(b.caps.matrix, "tf32") && pick(&b, 0, 1);
    if (build(&b) && gen_matches(b.only, &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e)) {
        for (u32 i = 0; i < 3 && choose(&b, i, &c); i++) {
            struct kernel kernel;
            struct caps to = b.caps;
            struct buf text = {0}, binary = {0};
            if (c.gen != b.only) continue;
            bool ok = run(&b, &c, &k) && gen_kernel(&kernel, &b.arena, &c, &b.t, &b.caps, &b.e) &&
                      lang_render(&text, hip, &kernel.kir, &b.caps, &b.arena, &b.e);
            if (ok && os_env("QUERN_TEST_KEEP")) ok = os_write(str_fmt(&b.arena, "%s.%llu.%u", os_env("QUERN_TEST_KEEP"), (unsigned long long)seed, i).p, text.p, text.n, &b.e);
            if (r->as) snprintf(to.arch, sizeof to.arch, "%s", r->as);
            if (ok && r->as && r->n % 8 == 0) ok = hip->build(&binary, buf_view(&text), &to, 120, &b.e), r->n_built++;
            if (!ok) report(&b, &c, seed);
            assert_non_null(strstr(text.p, "__builtin_amdgcn_mfma_f32_"));
            buf_release(&text), buf_release(&binary);
            r->n++;
        }
        check_release(&k);
    }
    fixture_close(&b);
}

static void test_mfma(void **state)
{
    static const struct { const char *arch, *as; } p[] = {{"gfx908", "gfx908"}, {"gfx90a", "gfx90a"}, {"gfx942", "gfx942"}, {"gfx942", "gfx940"}};
    const struct lang *hip = lang_find(S("hip"));
    struct fixture b;
    for (u32 i = 0; i < countof(p); i++) {
        struct caps c = {0};
        struct buf binary = {0};
        struct err e = {0};
        snprintf(c.arch, sizeof c.arch, "%s", p[i].as);
        bool builds = hip->build(&binary, S("extern \"C\" __attribute__((global)) void k(void) {}"), &c, 120, &e);
        struct mfma_run r = {.arch = p[i].arch, .as = builds ? p[i].as : NULL};
        buf_release(&binary);
        if (!builds && strcmp(p[i].arch, p[i].as)) continue; /* once without building */
        for (u64 seed = first_seed(0, 9); seed < last_seed(0, 9); seed++) {
            try_mfma(&r, "mma_gemm", random_gemm, seed);
            try_mfma(&r, "mma_conv", random_conv, seed);
        }
        print_message("%s: %u kernels, %u built for %s\n", r.arch, r.n, r.n_built, p[i].as);
        assert_true(is_enough(r.n, 20));
    }
    fixture_open(&b, 1);
    assert_true(make_square(&b, 64) && dev_target(&b.caps, "hip", S("gfx90a")) && gen_matches(&gen_mma_gemm, &b.t, &b.caps));
    assert_true(dev_target(&b.caps, "hip", S("gfx906")) && !gen_matches(&gen_mma_gemm, &b.t, &b.caps));
    fixture_close(&b);
}

static void test_row(void **state) { try_family("wg_reduce", random_row, 100); }
/* Instances of all operators, of all types, that one of the families takes. */
static void test_operators(void **state)
{
    static const char *const family[] = {"wg_gemm", "wg_gemv", "wg_reduce"};
    u32 n = 0;
    for (u64 seed = first_seed(0, 6); seed < last_seed(0, 6); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct fixture b;
            if (!op_all(i)->random || op_all(i)->props & OP_CALL) continue;
            fixture_open(&b, seed * 1000 + (u64)i);
            fixture_use_workgroups(&b);
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            bool made = make_task(&b);
            for (u32 f = 0; made && f < countof(family); f++) {
                b.only = gen_find(str_of(family[f]));
                n += try_task(&b, seed, 2);
            }
            fixture_close(&b);
        }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 100));
}

/* Defaults of a large device with matrix units. */
static void expect_default(const char *name, enum dtype t, const char *op, const i64 *a, const i64 *w)
{
    struct fixture b;
    struct candidate c;
    sym dim[2];
    fixture_open(&b, 1);
    b.type = t;
    assert_true(caps_parse(&b.caps, S("arch=test is_gpu=1 vector_bytes=16 max_group=1024 subgroup=32 subgroup_min=32 "
                                      "subgroup_max=32 shared_bytes=49152 has_subgroup=1 has_f16=1 gflops=60000 gbps=4000 "
                                      "matrix=\"16x16x16:f16,f16,f16,f16 16x16x16:f16,f16,f32,f32\""), &b.e));
    for (u32 i = 0; i < 2; i++) dim[i] = sym_const(&b.sym, a[i]);
    value_id x = add_input(&b, "a", 2, dim), y = 0;
    for (u32 i = 0; w && i < 2; i++) dim[i] = sym_const(&b.sym, w[i]);
    if (w) y = add_input(&b, "b", 2, dim);
    *arr_push(&b.arena, &b.g.output) = add_op(&b, op, x, y, 0);
    assert_true(make_task(&b) && gen_default(&b.t, &b.caps, NULL, &c));
    assert_string_equal(c.gen->name, name);
    if (c.gen == &gen_mma_gemm) assert_int_equal(c.sched.v[3], 32); /* long sums, unless short ones were measured */
    fixture_close(&b);
}

static void test_choice(void **state)
{
    const i64 square[] = {2048, 2048}, line[] = {1, 2048}, column[] = {2048, 1}, rows[] = {512, 1000};
    expect_default("mma_gemm", DT_F16, "MatMul", square, square);
    expect_default("wg_gemm", DT_F32, "MatMul", square, square);
    expect_default("wg_gemv", DT_F16, "MatMul", line, square);
    expect_default("wg_gemv", DT_F32, "MatMul", square, column);
    expect_default("wg_reduce", DT_F32, "Softmax", rows, NULL);
}

struct shares { const struct gen *gen[32]; i64 n[32]; u32 count; };

static bool count_one(void *user, const struct candidate *c)
{
    struct shares *x = user;
    u32 i = 0;
    while (i < x->count && x->gen[i] != c->gen) i++;
    if (i == x->count) x->gen[x->count++] = c->gen;
    x->n[i]++;
    return true;
}

/* A search looks at so many schedules of each family: however large a space, that gives it a choice of legal ones. */
static void test_space(void **state)
{
    enum { LOOKED_AT = 40000 };
    for (u64 seed = first_seed(0, 12); seed < last_seed(0, 12); seed++) {
        struct fixture b;
        struct shares x = {0};
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = DT_F16;
        assert_true(make_square(&b, 4096));
        gen_scatter(&b.t, &b.caps, LOOKED_AT, seed, count_one, &x);
        for (u32 i = 0; i < x.count; i++)
            if (x.gen[i] == gen_find(S("wg_gemm")) || x.gen[i] == &gen_mma_gemm) assert_in_range(x.n[i], 50, LOOKED_AT);
        fixture_close(&b);
    }
}

static void test_device(void **state)
{
    static const struct { const char *name; bool (*build)(struct fixture *); } family[] = {
        {"wg_gemm", random_gemm},
        {"wg_reduce", random_row},
        {"wg_gemv", random_gemm},
    };
    struct gpus g = find_gpus();
    for (u64 seed = first_seed(1000, 1012); seed < last_seed(1000, 1012); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        if (pick(&b, 0, 2) == 0) b.type = DT_F16;
        b.only = gen_find(str_of(family[seed % countof(family)].name));
        if (family[seed % countof(family)].build(&b)) try_gpu(&b, &g, seed);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_gemv),
        cmocka_unit_test(test_matrix), cmocka_unit_test(test_warpgroups), cmocka_unit_test(test_warpgroups_build), cmocka_unit_test(test_mfma),
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_space),
        cmocka_unit_test(test_device),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
