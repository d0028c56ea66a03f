// SPDX-License-Identifier: Apache-2.0
//
// Kernels that round as written (kir.as_written): random ones of multiplications, additions and FMA
// that share operands, in loops, branches, unrolled tiles and tails, yield the interpreter's bytes
// by gcc and by clang, with and without FMA instructions, in vectors of any width, and on available
// GPUs. Functions of f32 are the same in vectors and scalars.
#include "group_fixture.h"
#include "vulkan_fixture.h"

enum { COUNT_IN = 96, N_OUT = 3 };

/* Values on which a rounding more or less is seen: full mantissas, neighbours that cancel, products that leave the range in between; for
   devices that keep them, denormals. */
static double hard_value(struct rng *g, enum dtype t, bool is_mild)
{
    static const double special[] = {0, -0.0, 1, -1, 0.1, -3, 1e-30, 1e30, 3.4e38, -3.4e38, INFINITY, NAN};
    double v = rng_normal(g);
    i64 what = rng_range(g, 0, 15);
    if (what == 0) return special[rng_range(g, 0, is_mild ? 5 : (i64)countof(special) - 1)];
    if (what == 1 && !is_mild) return v * (t == DT_F32 ? 0x1p-140 : 0x1p-1060);
    if (what == 2 && !is_mild) return v * (t == DT_F32 ? 0x1p-70 : 0x1p-520);
    if (what == 3 && !is_mild) return v * (t == DT_F32 ? 0x1p70 : 0x1p520);
    if (what < 8) return (v < 0 ? -1 : 1) + v * 0x1p-12;
    return v;
}

struct maker {
    struct run *r;
    struct rng *g;
    enum dtype t;
    u32 lanes;
    bool is_mild;
    kval v[48];
    u32 n;
};

static void add_value(struct maker *b, kval v)
{
    if (b->n < countof(b->v)) b->v[b->n++] = v;
    else b->v[rng_range(b->g, 0, b->n - 1)] = v;
}

static kval any(struct maker *b) { return b->v[rng_range(b->g, 0, b->n - 1)]; }

/* One of the newest, which few have used. */
static kval fresh(struct maker *b)
{
    u32 back = (u32)rng_range(b->g, 1, 3);
    return b->v[b->n > back ? b->n - back : 0];
}

/* The same product alone, in sums and in multiply-adds. */
static void shared_product(struct maker *b)
{
    struct kir *k = &b->r->kir;
    kval x = any(b), y = any(b), z = fresh(b), p = kir_mul(k, x, y);
    add_value(b, kir_add(k, p, z));
    if (rng_range(b->g, 0, 1)) add_value(b, kir_sub(k, z, p));
    if (rng_range(b->g, 0, 1)) add_value(b, kir_fma(k, x, y, any(b)));
    if (rng_range(b->g, 0, 1)) add_value(b, kir_fma(k, x, y, p));
    if (rng_range(b->g, 0, 2) == 0) add_value(b, kir_un(k, KI_NEG, p));
    if (rng_range(b->g, 0, 2) == 0) add_value(b, p);
}

static void one_step(struct maker *b)
{
    struct kir *k = &b->r->kir;
    kval x = any(b), y = fresh(b), z = any(b);
    switch (rng_range(b->g, 0, 14)) {
    case 0: case 1: case 2: shared_product(b); break;
    case 3: case 4: add_value(b, kir_add(k, x, y)); break;
    case 5: add_value(b, kir_sub(k, x, y)); break;
    case 6: add_value(b, kir_mul(k, x, y)); break;
    case 7: add_value(b, kir_fma(k, x, y, z)); break;
    case 8: add_value(b, kir_fma(k, kir_un(k, KI_NEG, x), y, rng_range(b->g, 0, 1) ? kir_un(k, KI_NEG, z) : z)); break;
    case 13: add_value(b, kir_un(k, KI_NEG, kir_fma(k, x, y, z))); break;
    case 9: add_value(b, kir_select(k, kir_lt(k, x, z), kir_mul(k, x, y), z)); break;
    case 10: add_value(b, kir_mul(k, x, kir_const_f(k, b->t, b->lanes, (double)rng_range(b->g, -3, 3) / 4))); break;
    case 11: add_value(b, kir_sub(k, kir_mul(k, x, x), kir_mul(k, y, y))); break;
    case 12: add_value(b, kir_bin(k, rng_range(b->g, 0, 1) ? KI_MIN : KI_MAX, kir_mul(k, x, z), y)); break;
    default:
        if (b->lanes > 1) add_value(b, kir_splat(k, kir_un(k, KI_HADD, kir_mul(k, x, y)), b->lanes));
        break;
    }
}

static void steps(struct maker *b, i64 n)
{
    while (n-- > 0) one_step(b);
}

/* Sums in registers over a loop whose products are half invariant, and in a branch. */
static void sum_loop(struct maker *b, kval source, kval base)
{
    struct kir *k = &b->r->kir;
    u32 had = b->n;
    kval n_sums = kir_int(k, 3), acc = kir_alloc(k, KS_REG, b->t, b->lanes, n_sums), x = any(b), y = any(b);
    for (i64 i = 0; i < 3; i++) kir_store(k, acc, kir_int(k, i), any(b));
    kval i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, rng_range(b->g, 2, 7)), 1);
    kval w = kir_load(k, source, kir_ramp(k, kir_add(k, kir_mod_i(k, base, 32), i), 1, b->lanes));
    kval u = kir_loop(k, KL_UNROLL, kir_int(k, 0), n_sums, 1);
    kval old = kir_load(k, acc, u);
    kval sum = rng_range(b->g, 0, 1) ? kir_fma(k, x, y, old) : kir_add(k, kir_mul(k, x, w), old);
    kir_store(k, acc, u, sum);
    kir_if(k, kir_lt(k, i, kir_add_i(k, u, 1)));
    kir_store(k, acc, u, kir_fma(k, x, w, sum));
    kir_else(k);
    kir_store(k, acc, u, kir_sub(k, kir_mul(k, x, y), sum));
    kir_end(k);
    kir_end(k);
    kir_end(k);
    b->n = had;
    for (i64 j = 0; j < 3; j++) add_value(b, kir_load(k, acc, kir_int(k, j)));
}

static void add_floats(struct maker *b, const char *name, enum kir_access access, i64 n)
{
    struct run *r = b->r;
    kir_buf(&r->kir, str_of(name), b->t, access);
    struct kir_arg a = {.p = arena_alloc(&r->arena, n * dtype_size(b->t) + 64), .n = n};
    for (i64 i = 0; i < n; i++) elem_set_f64(b->t, a.p, i, hard_value(b->g, b->t, b->is_mild));
    r->arg[r->n_arg++] = a;
}

/* Scalars are in a loop that the compiler may make vectors of. */
static void rounding_kernel(struct run *r, u64 seed, bool is_mild, bool may_be_f64)
{
    static const char *const in[] = {"x", "y", "z"}, *const out[N_OUT] = {"p", "q", "s"};
    struct rng g = rng_seed(seed);
    struct maker b = {.r = r, .g = &g, .t = may_be_f64 && rng_range(&g, 0, 3) == 0 ? DT_F64 : DT_F32, .is_mild = is_mild};
    struct kir *k = &r->kir;
    b.lanes = 1u << rng_range(&g, 0, 4);
    kir_init(k, &r->arena, S("rounding"));
    k->as_written = true;
    for (i64 i = 0; i < countof(in); i++) add_floats(&b, in[i], KA_IN, COUNT_IN);
    for (i64 i = 0; i < N_OUT; i++) add_floats(&b, out[i], KA_OUT, COUNT_IN - 3);
    i64 rounds = b.lanes == 1 ? 31 : 1, step = rounds * b.lanes;
    r->grid[0][0] = ceil_div(COUNT_IN - 3, step);
    r->grid[0][1] = r->grid[0][2] = 1;
    r->n_grid = 1;
    kval base = kir_mul_i(k, kir_grid(k, kir_int(k, r->grid[0][0])), step);
    if (b.lanes == 1) base = kir_add(k, base, kir_loop(k, KL_VECTOR, kir_int(k, 0), kir_int(k, rounds), 1));
    kval n = kir_min(k, kir_int(k, b.lanes), kir_sub(k, kir_int(k, COUNT_IN - 3), base)), idx = kir_ramp(k, base, 1, b.lanes);
    for (u32 i = 0; i < countof(in); i++) add_value(&b, kir_load_n(k, k->buf.v[i].id, idx, n));
    add_value(&b, kir_splat(k, kir_load(k, k->buf.v[1].id, kir_int(k, 5)), b.lanes));
    steps(&b, rng_range(&g, 4, 20));
    if (rng_range(&g, 0, 1)) sum_loop(&b, k->buf.v[2].id, base), steps(&b, rng_range(&g, 1, 8));
    for (u32 i = 0; i < N_OUT; i++) kir_store_n(k, k->buf.v[3 + i].id, idx, fresh(&b), n);
    if (b.lanes == 1) kir_end(k);
    kir_end(k);
}

/* Bit by bit, but for payloads of NaN. */
static bool is_same(enum dtype t, const void *a, const void *b, i64 i)
{
    i64 size = dtype_size(t);
    double x = elem_f64(t, a, i), y = elem_f64(t, b, i);
    return (isnan(x) && isnan(y)) || !memcmp((const char *)a + i * size, (const char *)b + i * size, (size_t)size);
}

static bool all_same(const struct run *r, void *out[MAX_ARGS], bool signs_of_zeros, struct err *e)
{
    for (u32 i = 0; i < r->n_arg; i++) {
        enum dtype t = kir_dtype(&r->kir, r->kir.buf.v[i].id);
        for (i64 j = 0; j < r->arg[i].n; j++)
            if (!is_same(t, r->arg[i].p, out[i], j) && (signs_of_zeros || elem_f64(t, out[i], j) != 0 || elem_f64(t, r->arg[i].p, j) != 0))
                return err_set(e, ERR_FAILED, "%.*s[%lld] is %a, not %a", STR_ARG(r->kir.buf.v[i].name), (long long)j, elem_f64(t, out[i], j),
                               elem_f64(t, r->arg[i].p, j));
    }
    return true;
}

/* The interpreter's results where the target has no FMA: as product and sum. */
static void interpret_for(struct run *r, bool has_fma)
{
    struct err e = {0};
    struct kir two, whole = r->kir;
    if (!has_fma) {
        assert_true(kir_avoid(&two, &r->arena, &r->kir, S("fma:f32 fma:f64"), &e));
        r->kir = two;
    }
    interpret(r);
    r->kir = whole;
}

/* Whether it yields the interpreter's bytes, with FMA of one or of two roundings. Signs of zeros
   are not rounding, and GPU devices do not guarantee them. */
static bool agrees(struct run *r, void *out[MAX_ARGS], bool has_fma, bool signs_of_zeros, struct err *e)
{
    struct kir_arg given[MAX_ARGS];
    memcpy(given, r->arg, sizeof given);
    for (u32 i = 0; i < r->n_arg; i++) { /* the interpreter writes into its own */
        i64 size = given[i].n * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id));
        r->arg[i].p = memcpy(arena_alloc(&r->arena, size + 64), given[i].p, (size_t)size);
    }
    interpret_for(r, has_fma);
    bool ok = all_same(r, out, signs_of_zeros, e);
    memcpy(r->arg, given, sizeof given);
    return ok;
}

static void run_on(struct run *r, const char *lang, struct dev *d, const struct caps *c, void *out[MAX_ARGS])
{
    struct buf binary = {0};
    build_as(r, lang, c, &binary);
    run_native(r, d, buf_view(&binary), out);
    buf_release(&binary);
}

/* One kernel on a device; false: it gave other bytes. */
static bool runs_as_written(struct run *r, const char *lang, struct dev *d, const struct caps *c, bool has_fma)
{
    struct err e = {0};
    void *out[MAX_ARGS];
    run_on(r, lang, d, c, out);
    bool ok = agrees(r, out, has_fma, true, &e);
    if (!ok && r->kir.as_written) fail_with(r, lang, &e);
    return ok;
}

static struct dev *open_cpu(struct caps *c)
{
    struct err e = {0};
    struct dev *d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = 1}, &e);
    assert_non_null(d);
    d->driver->caps(d, c);
    return d;
}

/* Whether this processor has all extensions of the named set. */
static bool has_isa(const char *name)
{
    struct isa s;
    struct err e = {0};
    return isa_parse(&s, str_of(name), &e) && isa_contains(isa_here(), s);
}

/* Kernels by one compiler for one set of instructions, NULL: this processor's. */
static u32 n_other(const char *compiler, const char *isa, u64 from, u64 to, bool as_written)
{
    struct caps c;
    struct err e = {0};
    u32 n = 0;
    if (!has_compiler(compiler) || (isa && !has_isa(isa))) return 0;
    struct dev *d = open_cpu(&c);
    if (isa) {
        struct isa s;
        assert_true(isa_parse(&s, str_of(isa), &e));
        isa_limits(&c, s);
    }
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct run r = {.shift = seed % 3};
        rounding_kernel(&r, seed, false, true);
        r.kir.as_written = as_written;
        n += !runs_as_written(&r, "c", d, &c, c.has_fma);
        arena_release(&r.arena);
    }
    d->driver->close(d);
    return n;
}

static void check_compiler(const char *name)
{
    n_other(name, NULL, 0, 60, true);
    n_other(name, "x86-64-v3", 1000, 1040, true);
    n_other(name, "x86-64-v2", 2000, 2020, true);
}

static void test_gcc(void **state)
{
    if (!has_compiler("gcc")) skip_test("no gcc");
    check_compiler("gcc");
}

static void test_clang(void **state)
{
    if (!has_compiler("clang")) skip_test("no clang (tool/deps ci)");
    check_compiler("clang");
}

/* The same kernels, left to the compiler's liking, do not all give these bytes: the test would see it. */
static void test_is_seen(void **state)
{
    struct caps c;
    struct dev *d = open_cpu(&c);
    d->driver->close(d);
    if (!c.has_fma) skip_test("no fused multiply-add");
    if (!has_compiler("gcc")) skip_test("no gcc");
    u32 n = n_other("gcc", NULL, 0, 30, false);
    assert_true(seeds_are_given() || n > 0);
}

/* Functions in vectors of any width and in scalars. */
static void check_function(enum kir_op op, struct dev *d, const struct caps *c)
{
    enum { COUNT = 1 << 12 };
    const struct function *f = functions;
    void *first = NULL;
    while (f->op != op) f++;
    for (u32 lanes = 1; lanes <= c->vector_bytes / 4; lanes *= 4) {
        struct run *r = mem_alloc(sizeof *r);
        struct buf binary = {0};
        void *out[MAX_ARGS];
        *r = (struct run){0};
        function_kernel(r, op, lanes, COUNT);
        r->kir.as_written = true;
        for (u32 i = 0; i < 2; i++) r->arg[i] = (struct kir_arg){arena_alloc(&r->arena, COUNT * 4), COUNT};
        fill_function(f, r->arg[0].p, COUNT);
        build_as(r, "c", c, &binary);
        run_native(r, d, buf_view(&binary), out);
        if (!first) first = memcpy(mem_alloc(COUNT * 4), out[1], COUNT * 4);
        for (i64 i = 0; i < COUNT; i++)
            if (!is_same(DT_F32, first, out[1], i))
                fail_msg("%s of %a is %a in scalars, %a in vectors of %u", kir_op_info(op)->name, elem_f64(DT_F32, r->arg[0].p, i),
                         elem_f64(DT_F32, first, i), elem_f64(DT_F32, out[1], i), lanes);
        double at;
        assert_true(function_error(f, r->arg[0].p, out[1], COUNT, &at) <= f->ulp);
        buf_release(&binary);
        arena_release(&r->arena);
        mem_free(r);
    }
    mem_free(first);
}

static void test_functions(void **state)
{
    static const char *const compilers[] = {"gcc", "clang"};
    struct caps c;
    struct dev *d = open_cpu(&c);
    for (i64 i = 0; i < countof(compilers); i++) {
        if (!has_compiler(compilers[i])) continue;
        for (i64 j = 0; j < countof(functions); j++)
            if (is_taken((u64)(i + j))) check_function(functions[j].op, d, &c);
    }
    d->driver->close(d);
}

/* On a device of groups: one old iteration per thread. Where the FMA are the device's own (has_fma), Vulkan leaves it to the device whether they
   round once or twice, but it must be the same everywhere (may: which of them it still can be); elsewhere they are products and sums. */
static void check_kernel(struct fixture *b, const char *lang, const struct caps *c, u64 seed, bool may[2])
{
    struct run r = {0};
    struct err e[2] = {0};
    void *out[MAX_ARGS];
    rounding_kernel(&r, seed, true, c->has_f64);
    spread(&r, 32);
    assert_true(r.kir.as_written);
    run_on(&r, lang, b->dev, c, out);
    for (u32 i = 0; i < 2; i++) may[i] = may[i] && agrees(&r, out, i, false, &e[i]);
    if (!may[0] && !may[1]) fail_with(&r, lang, &e[e[1].code != 0]);
    arena_release(&r.arena);
}

static void check_device(const char *driver, const char *lang)
{
    struct fixture b;
    fixture_open(&b, driver, lang);
    skip_without(&b);
    bool is_opencl = str_is(S("opencl"), lang);
    for (u32 less = 0; less < 2; less++) {
        struct caps c = b.caps;
        c.has_fma = c.has_fma && !less;
        bool may[2] = {!is_opencl, is_opencl || c.has_fma};
        u64 from = 4000 + less * 40, to = from + 20;
        for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) check_kernel(&b, lang, &c, seed, may);
    }
    b.dev->driver->close(b.dev);
}

static void test_vulkan(void **state) { check_device("vulkan", "spirv"); }
static void test_opencl(void **state) { check_device("opencl", "opencl"); }

/* The text contains the flag and round-trips. */
static void test_text(void **state)
{
    for (u32 asks = 0; asks < 2; asks++) {
        struct run r = {0};
        struct kir k;
        struct buf text = {0}, again = {0};
        struct err e = {0};
        rounding_kernel(&r, 7, false, true);
        r.kir.as_written = asks;
        kir_print(&text, &r.kir);
        if (!kir_parse(&k, &r.arena, buf_view(&text), &e)) fail_msg("%s", e.msg);
        kir_print(&again, &k);
        assert_int_equal(k.as_written, asks);
        assert_true(str_eq(buf_view(&text), buf_view(&again)));
        buf_release(&text);
        buf_release(&again);
        arena_release(&r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gcc),       cmocka_unit_test(test_clang),  cmocka_unit_test(test_is_seen),
        cmocka_unit_test(test_functions), cmocka_unit_test(test_vulkan), cmocka_unit_test(test_opencl),
        cmocka_unit_test(test_text),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
