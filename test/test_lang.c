// SPDX-License-Identifier: Apache-2.0
//
// Language c on device cpu against the interpreter: random kernels must yield the same bytes, float
// functions the same value within units in the last place. Compiled without contraction, so that
// all roundings are the interpreter's; otherwise as for users. Also failures of compilers.
#include "lang_fixture.h"

/* The compiler from now on, NULL: the usual one, with such options. */
static void use_compiler(const char *name, const char *options)
{
    char command[256];
    snprintf(command, sizeof command, "%s %s", name ? name : "", options);
    setenv("QUERN_CC", command, 1);
}

static struct dev *open_cpu(u32 n_threads)
{
    struct err e = {0};
    struct dev *d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = n_threads}, &e);
    assert_non_null(d);
    return d;
}

static void build(struct run *r, const struct caps *c, struct buf *binary)
{
    build_as(r, "c", c, binary);
}

static void check_run(struct run *r, const struct caps *c, const char *what)
{
    struct dev *one = open_cpu(1), *two = open_cpu(2);
    struct buf binary = {0};
    void *a[MAX_ARGS], *b[MAX_ARGS];
    build(r, c, &binary);
    run_native(r, one, buf_view(&binary), a);
    run_native(r, two, buf_view(&binary), b);
    interpret(r);
    compare(r, a, what);
    compare(r, b, what);
    buf_release(&binary);
    one->driver->close(one);
    two->driver->close(two);
}

static void random_kernels(u64 from, u64 to, const char *isa)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    struct isa s;
    struct err e = {0};
    d->driver->caps(d, &c);
    if (isa) {
        assert_true(isa_parse(&s, str_of(isa), &e));
        isa_limits(&c, s);
    }
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct run r = {.shift = seed % 3};
        struct rng g = rng_seed(seed);
        char what[64];
        snprintf(what, sizeof what, "kernel %llu", (unsigned long long)seed);
        random_kernel(&r, &g);
        check_run(&r, &c, what);
        arena_release(&r.arena);
    }
    d->driver->close(d);
}

static void test_random_gcc(void **state)
{
    if (!has_compiler("gcc")) skip_test("no gcc");
    use_compiler("gcc", "-ffp-contract=off");
    random_kernels(1000, 1048, NULL);
}

static void test_random_clang(void **state)
{
    if (!has_compiler("clang")) skip_test("no clang (tool/deps ci)");
    use_compiler("clang", "-ffp-contract=off");
    random_kernels(1000, 1048, NULL);
}

static bool runs_on(const char *arch)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    d->driver->caps(d, &c);
    d->driver->close(d);
    return str_starts(str_of(c.arch), str_of(arch));
}

static void test_random_older(void **state) /* fewer instructions: the helpers' other halves */
{
    static const char *const compilers[] = {"gcc", "clang"};
    if (!runs_on("x86_64")) skip_test("this processor is no x86_64");
    for (i64 i = 0; i < countof(compilers); i++) {
        if (!has_compiler(compilers[i])) continue;
        use_compiler(compilers[i], "-ffp-contract=off");
        random_kernels(1500, 1512, "x86-64");
        if (!(runs_on("x86_64-avx2") || runs_on("x86_64-avx512"))) continue;
        random_kernels(1600, 1612, "x86-64-v3");
    }
}

static const char *const sizes[2] = {"rows/4", "n */ x"}; /* stand in comments */

static void test_structure(void **state)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    use_compiler(NULL, "-ffp-contract=off");
    d->driver->caps(d, &c);
    for (u64 i = 0; i < 6; i++) {
        struct run r = {0};
        struct rng g = rng_seed(i);
        structured_kernel(&r, &g, sizes);
        check_run(&r, &c, "structured kernel");
        arena_release(&r.arena);
    }
    d->driver->close(d);
}

static void check_function(const struct function *f, u32 lanes, const struct caps *c, struct dev *d)
{
    enum { COUNT = 1 << 16 };
    struct run r = {0};
    struct buf binary = {0};
    void *out[MAX_ARGS];
    function_kernel(&r, f->op, lanes, COUNT);
    for (u32 i = 0; i < 2; i++)
        r.arg[i] = (struct kir_arg){arena_alloc(&r.arena, COUNT * 4), COUNT};
    fill_function(f, r.arg[0].p, COUNT);
    build(&r, c, &binary);
    run_native(&r, d, buf_view(&binary), out);
    double at, worst = function_error(f, r.arg[0].p, out[1], COUNT, &at);
    if (worst > f->ulp)
        print_message("%s x%u: %g ulp at %.9g\n", kir_op_info(f->op)->name, lanes, worst, at);
    assert_true(worst <= f->ulp);
    buf_release(&binary);
    arena_release(&r.arena);
}

static void check_functions(i64 n)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    d->driver->caps(d, &c);
    for (i64 i = 0; i < n; i++) {
        check_function(&functions[i], c.vector_bytes / 4, &c, d);
        check_function(&functions[i], 1, &c, d);
    }
    d->driver->close(d);
}

static void test_functions(void **state)
{
    unsetenv("QUERN_CC");
    check_functions(countof(functions));
}

static void
test_functions_variants(void **state) /* without fused multiply-add, and by the other compiler */
{
    use_compiler(NULL, "-ffp-contract=off");
    check_functions(4);
    if (has_compiler("clang")) check_functions(4);
    unsetenv("QUERN_CC");
}

/* Failures, determinism, and the other devices. */

static void small_kernel(struct run *r)
{
    function_kernel(r, KI_NEG, 4, 128);
    r->arg[0] = (struct kir_arg){arena_alloc(&r->arena, 512), 128};
    r->arg[1] = (struct kir_arg){arena_alloc(&r->arena, 512), 128};
    for (i64 i = 0; i < 128; i++) ((float *)r->arg[0].p)[i] = (float)i;
}

static u32 count_word(struct str s, const char *word)
{
    u32 n = 0;
    i64 len = (i64)strlen(word);
    for (i64 i = 0; i + len <= s.n; i++) n += !memcmp(s.p + i, word, (size_t)len);
    return n;
}

/* Only grids that store past the caches wait for their stores at the end. */
static void test_streams(void **state)
{
    struct run r = {0};
    struct rng g = rng_seed(1);
    struct buf text = {0};
    struct caps c = {.vector_bytes = 64};
    struct err e = {0};
    structured_kernel(&r, &g, (const char *const[]){"three", "n"});
    assert_true(lang_render(&text, lang_find(S("c")), &r.kir, &c, &r.arena, &e));
    assert_int_equal(r.n_grid, 2);
    assert_int_equal(count_word(buf_view(&text), "sfence"), 1);
    buf_release(&text);
    arena_release(&r.arena);
}

/* Functions of workgroups have arguments before temporary arrays, as launches do, wherever the kernel allocates them. */
static void test_order_of_arrays(void **state)
{
    static const char *const langs[] = {"opencl", "cuda", "hip"};
    for (i64 l = 0; l < countof(langs); l++) {
        struct arena a = {0};
        struct kir k;
        struct buf text = {0};
        struct caps c = {.is_gpu = true, .subgroup = 32, .max_group = 256};
        struct err e = {0};
        kir_init(&k, &a, S("order"));
        k.group[0] = 64;
        kval temp = kir_alloc(&k, KS_TEMP, DT_F32, 1, kir_int(&k, 64)), x = kir_buf(&k, S("x"), DT_F32, KA_IN), y = kir_buf(&k, S("y"), DT_F32, KA_OUT);
        kir_grid(&k, kir_int(&k, 1));
        kir_store(&k, temp, kir_thread(&k, 0), kir_load(&k, x, kir_thread(&k, 0)));
        kir_end(&k);
        kir_grid(&k, kir_int(&k, 1));
        kir_store(&k, y, kir_thread(&k, 0), kir_load(&k, temp, kir_thread(&k, 0)));
        kir_end(&k);
        assert_true(lang_render(&text, lang_find(str_of(langs[l])), &k, &c, &a, &e));
        buf_put(&text, "", 1);
        const char *at = strstr(text.p, "order_0("), *end = at ? strchr(at, ')') : NULL, *from[3];
        assert_non_null(end);
        from[0] = strstr(at, " b_x"), from[1] = strstr(at, " b_y"), from[2] = strstr(at, " t");
        for (u32 i = 0; i < 3; i++) assert_true(from[i] && from[i] < end && (i == 0 || from[i - 1] < from[i]));
        buf_release(&text);
        arena_release(&a);
    }
}

static void test_build_errors(void **state)
{
    const struct lang *c = lang_find(S("c"));
    struct caps caps = {0};
    struct buf out = {0};
    struct err e = {0};
    unsetenv("QUERN_CC");
    assert_false(c->build(&out, S("int x = nonsense;"), &caps, 10, &e));
    assert_non_null(strstr(e.msg, "nonsense"));
    e = (struct err){0};
    setenv("QUERN_CC", "sleep 10 #", 1);
    assert_false(c->build(&out, S("int x;"), &caps, 0.1, &e));
    assert_int_equal(e.code, ERR_FAILED);
    e = (struct err){0};
    setenv("QUERN_CC", "/nowhere/cc", 1);
    assert_false(c->build(&out, S("int x;"), &caps, 10, &e));
    assert_int_equal(e.code, ERR_SYSTEM);
    assert_int_equal(out.n, 0);
    unsetenv("QUERN_CC");
    buf_release(&out);
}

static void test_deterministic(void **state)
{
    struct run r = {0};
    struct buf a = {0}, b = {0};
    struct dev *d = open_cpu(1);
    struct caps c;
    small_kernel(&r);
    d->driver->caps(d, &c);
    build(&r, &c, &a);
    build(&r, &c, &b);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, (size_t)a.n);
    buf_release(&a);
    buf_release(&b);
    d->driver->close(d);
    arena_release(&r.arena);
}

static void test_load_errors(void **state)
{
    struct run r = {0};
    struct buf a = {0};
    struct dev *d = open_cpu(1);
    struct caps c;
    struct err e = {0};
    small_kernel(&r);
    d->driver->caps(d, &c);
    build(&r, &c, &a);
    assert_null(d->driver->load(d, S("not an object"), S("function"), 1, &e));
    e = (struct err){0};
    assert_null(d->driver->load(d, buf_view(&a), S("function"), 2, &e));
    assert_non_null(strstr(e.msg, "function_1"));
    buf_release(&a);
    d->driver->close(d);
    arena_release(&r.arena);
}

/* The interpreter as a device: finds an access outside a buffer. */
static void test_interp(void **state)
{
    struct run r = {0};
    struct err e = {0};
    struct buf text = {0};
    struct dev *d = dev_find(S("interp"))->open(&(struct dev_opts){0}, &e);
    struct caps c;
    void *out[MAX_ARGS];
    small_kernel(&r);
    d->driver->caps(d, &c);
    assert_true(lang_render(&text, lang_find(S("kir")), &r.kir, &c, &r.arena, &e));
    run_native(&r, d, buf_view(&text), out);
    for (i64 i = 0; i < 128; i++) assert_true(((float *)out[1])[i] == (float)-i);
    struct dev_kernel *k = d->driver->load(d, buf_view(&text), S("function"), 1, &e);
    struct dev_mem mem[2] = {{.host = r.arg[0].p, .size = 512}, {.host = r.arg[1].p, .size = 508}};
    struct dev_launch l = {
        .kernel = k, .buf = mem, .n_buf = 2, .grid = (const i64(*)[3])r.grid, .n_grid = 1};
    assert_false(d->driver->launch(d, &l, &e));
    d->driver->unload(d, k);
    d->driver->close(d);
    buf_release(&text);
    arena_release(&r.arena);
}

static void test_caps(void **state)
{
    struct dev *d = open_cpu(3);
    struct caps c, back;
    struct buf a = {0}, b = {0};
    struct err e = {0};
    d->driver->caps(d, &c);
    assert_int_equal(c.n_threads, 3);
    assert_true(c.vector_bytes >= 16 && c.l1_bytes > 0);
    caps_print(&a, &c);
    assert_true(caps_parse(&back, buf_view(&a), &e));
    caps_print(&b, &back);
    assert_string_equal(a.p, b.p);
    assert_true(caps_parse(&back, S("dot=\"u8,i8,i32 bf16,bf16,f32\""), &e));
    assert_true(caps_has_dot(&back, DT_U8, DT_I8, DT_I32) && caps_has_dot(&back, DT_BF16, DT_BF16, DT_F32));
    assert_false(caps_has_dot(&back, DT_I8, DT_U8, DT_I32) || caps_has_dot(&c, DT_U8, DT_I8, DT_F32));
    assert_false(caps_parse(&back, S("nonsense=1"), &e));
    assert_false(caps_parse(&back, S("n_threads=-1"), &e));
    assert_false(caps_parse(&back, S("arch=\"open"), &e));
    assert_false(caps_parse(&back, S("words"), &e));
    buf_release(&a);
    buf_release(&b);
    d->driver->close(d);
}

static void test_memory(void **state)
{
    struct run r = {0};
    struct rng g = rng_seed(1);
    struct kir_memory m;
    struct err e = {0};
    structured_kernel(&r, &g, sizes);
    assert_true(kir_memory(&r.kir, &m, &e));
    assert_int_equal(m.work.n, 2);
    assert_int_equal(m.temp.n, 1);
    assert_int_equal(kir_at(&r.kir, m.temp.v[0])->aux, KS_TEMP);
    arena_release(&r.arena);
}

static void test_caps_limit(void **state)
{
    struct caps c, cpu = {.vector_bytes = 32};
    struct err e = {0};
    bool changed;
    assert_true(caps_parse(&c, S("is_gpu=1 spirv=15 matrix=\"16x16x16:f16,f16,f32,f32\""), &e));
    assert_true(caps_limit(&c, S("spirv=16"), &changed, &e) && !changed && c.spirv == 15);
    assert_true(caps_limit(&c, S(""), &changed, &e) && !changed);
    assert_true(caps_limit(&c, S("spirv=13 no-matrix debug optimize"), &changed, &e) && changed);
    assert_true(c.spirv == 13 && !c.matrix[0]);
    assert_string_equal(c.spirv_flags, "debug optimize");
    assert_true(caps_limit(&cpu, S("spirv=13 optimize"), &changed, &e) && !changed && !cpu.spirv_flags[0]);
    assert_true(caps_limit(&c, S("no-winograd"), &changed, &e) && !changed);
    assert_true(caps_limit(&cpu, S("spirv=13 no-winograd"), &changed, &e) && changed && cpu.no_winograd);
    assert_false(caps_limit(&c, S("spirv=none"), NULL, &e));
    e = (struct err){0};
    assert_false(caps_limit(&c, S("this-word-is-longer-than-what-a-list-of-flags-of-a-target-can-hold"), NULL, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_gcc),   cmocka_unit_test(test_random_clang),
        cmocka_unit_test(test_random_older), cmocka_unit_test(test_structure),
        cmocka_unit_test(test_functions),    cmocka_unit_test(test_functions_variants),
        cmocka_unit_test(test_streams), cmocka_unit_test(test_order_of_arrays), cmocka_unit_test(test_build_errors), cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_load_errors),  cmocka_unit_test(test_interp),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_caps_limit),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
