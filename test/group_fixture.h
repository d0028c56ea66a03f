// SPDX-License-Identifier: Apache-2.0
//
// Fixture for tests of languages with workgroups on a device: random kernels must yield the
// interpreter's bytes, float functions the same value within units in the last place.
#ifndef QUERN_TEST_GROUP_FIXTURE_H
#define QUERN_TEST_GROUP_FIXTURE_H

#include "lang_fixture.h"

struct fixture { /* the device, for all tests */
    const char *lang;
    struct dev *dev;   /* NULL: none; every test is skipped */
    char why_not[256]; /* otherwise: the reason */
    struct caps caps;
    void (*less)(struct caps *c); /* reduces the target's features; optional */
};

static inline int fixture_open(struct fixture *b, const char *driver, const char *lang)
{
    struct err e = {0};
    const struct dev_driver *d = dev_find(str_of(driver));
    b->lang = lang;
    if (d) b->dev = d->open(&(struct dev_opts){0}, &e);
    else err_set(&e, ERR_UNSUPPORTED, "there is no such driver");
    if (b->dev) d->caps(b->dev, &b->caps);
    else snprintf(b->why_not, sizeof b->why_not, "no %s device: %.200s", driver, e.msg);
    return 0;
}

static inline void skip_without(const struct fixture *b)
{
    if (!b->dev) skip_test("%s", b->why_not);
}

static inline int close_device(void **state)
{
    struct fixture *b = *state;
    if (b->dev) b->dev->driver->close(b->dev);
    return 0;
}

static inline void check_run(struct fixture *b, struct run *r, const struct caps *c, const char *what)
{
    struct buf binary = {0};
    void *out[MAX_ARGS];
    build_as(r, b->lang, c, &binary);
    if (os_env("QUERN_TEST_KEEP"))
        os_write(os_env("QUERN_TEST_KEEP"), binary.p, binary.n, &(struct err){0});
    run_native(r, b->dev, buf_view(&binary), out);
    interpret(r);
    compare(r, out, what);
    buf_release(&binary);
}

static inline void random_kernels(struct fixture *b, const struct caps *c, u64 from, u64 to)
{
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct run r = {0};
        struct rng g = rng_seed(seed);
        char what[64];
        snprintf(what, sizeof what, "kernel %llu", (unsigned long long)seed);
        random_kernel(&r, &g);
        check_run(b, &r, c, what);
        arena_release(&r.arena);
    }
}

static inline void random_kernels_agree(void **state)
{
    struct fixture *b = *state;
    skip_without(b);
    random_kernels(b, &b->caps, 3000, 3016);
}

static inline void random_kernels_agree_on_less(void **state)
{
    struct fixture *b = *state;
    skip_without(b);
    if (!b->less) skip_test("no poorer target of this kind");
    struct caps c = b->caps;
    b->less(&c);
    random_kernels(b, &c, 3500, 3516);
}

/* Kernels without workgroups are run on such a device like this: one old iteration per thread. The
   parameters' texts are sizes in A and B. */
static inline void spread(struct run *r, u32 threads)
{
    struct kir out;
    struct symtab table;
    struct err e = {0};
    const i64 var[] = {r->param[0], r->param[1]};
    symtab_init(&table, &r->arena);
    sym_var(&table, S("A"));
    sym_var(&table, S("B"));
    if (!kir_spread(&out, &r->arena, &r->kir, threads, &e)) fail_with(r, "spread", &e);
    r->kir = out;
    assert_true(out.param.n <= countof(r->param));
    for (u32 i = 0; i < out.param.n; i++)
        assert_true(sym_eval(&table, sym_parse(&table, out.param.v[i], &e), var, &r->param[i]));
    u32 n = 0;
    for (kval v = 1; v < out.ins.n; v++) { /* one dimension each */
        if (kir_at(&out, v)->op != KI_GRID) continue;
        const struct kir_ins *x = kir_at(&out, kir_at(&out, v)->a);
        r->grid[n][0] = x->op == KI_PARAM ? r->param[x->imm.i] : x->imm.i;
        r->grid[n][1] = r->grid[n][2] = 1;
        n++;
    }
    assert_int_equal(n, r->n_grid);
}

static inline void structures_agree(void **state)
{
    struct fixture *b = *state;
    skip_without(b);
    for (u64 i = 0; i < 6; i++) {
        struct run r = {0};
        struct rng g = rng_seed(i);
        structured_kernel(&r, &g, (const char *const[]){"A", "B"});
        spread(&r, 8u << i % 3);
        check_run(b, &r, &b->caps, "structured kernel");
        arena_release(&r.arena);
    }
}

/* Kernels from text: x in, y out, `n` elements each. */
static inline void text_kernel(struct run *r, struct rng *g, const char *text, i64 n)
{
    struct err e = {0};
    if (!kir_parse(&r->kir, &r->arena, str_of(text), &e)) fail_msg("%s\n%s", e.msg, text);
    for (u32 i = 0; i < r->kir.buf.n; i++) {
        enum dtype t = kir_dtype(&r->kir, r->kir.buf.v[i].id);
        struct kir_arg a = {.p = arena_alloc(&r->arena, n * dtype_size(t) + 64), .n = n};
        for (i64 j = 0; j < n; j++)
            if (dtype_is_float(t)) elem_set_f64(t, a.p, j, random_value(g, t));
            else elem_set_i64(t, a.p, j, t == DT_BOOL ? rng_range(g, 0, 1) : (i64)rng_u64(g));
        r->arg[r->n_arg++] = a;
    }
    r->n_grid = 1;
}

/* Threads exchange elements through shared arrays: wide, by elements, reversed. */
static inline void shared_kernel(struct run *r, struct rng *g, enum dtype t, bool is_wide, bool is_copied)
{
    const char *type = dtype_name(t);
    struct str text =
        str_fmt(&r->arena,
                "kernel exchange(x: in %s, y: out %s, z: out %s)\ngroup 8 2 1\ngrid %%1 = 5\n"
                "  shared %%2: %s[64]%s\n  %%3 = thread 0\n  %%4 = thread 1\n  %%5 = mul %%4, 8\n  "
                "%%6 = add %%5, %%3\n"
                "  %%7 = mul %%6, 4\n  %%8 = mul %%1, 64\n  %%9 = add %%8, %%7\n  %%10: i64x4 = "
                "ramp %%9, 1\n"
                "  %%11: %sx4 = load x[%%10]\n  %%12: i64x4 = ramp %%7, 1\n  %s %%2[%%12] = "
                "%%11\n%s  barrier\n"
                "  %%13 = sub 60, %%7\n  %%14: i64x4 = ramp %%13, 1\n  %%15: %sx4 = load "
                "%%2[%%14]\n  store y[%%10] = %%15\n"
                "  barrier\n  store %%2[%%14] = %%15\n  barrier\n  %%16 = add %%7, 3\n  %%17: "
                "i64x4 = ramp %%%d, %d\n"
                "  %%18: %sx4 = load %%2[%%17]\n  store z[%%10] = %%18\nend\n",
                type, type, type, type, is_copied ? " swizzled" : "", type, is_copied ? "copy" : "store",
                is_copied ? "  await 0\n" : "", type, is_wide ? 7 : 16, is_wide ? 1 : -1, type);
    text_kernel(r, g, text.p, 5 * 64);
    r->grid[0][0] = 5;
    r->grid[0][1] = r->grid[0][2] = 1;
}

static inline void groups_agree(void **state)
{
    struct fixture *b = *state;
    skip_without(b);
    for (enum dtype t = 1; t < N_DTYPES; t++)
        for (u32 i = 0; i < 4 && !dtype_is_small(t); i++) {
            struct run r = {0};
            struct rng g = rng_seed(t);
            struct caps c = b->caps;
            if (!is_taken(t + i)) continue;
            if (i == 2) c.has_i8 = c.has_i16 = c.has_f16 = false;
            shared_kernel(&r, &g, t, i == 0, i == 3);
            check_run(b, &r, &c, "exchange");
            arena_release(&r.arena);
        }
}

static inline void subgroups_agree(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_I32, DT_U32, DT_I8, DT_U16, DT_F64};
    struct fixture *b = *state;
    skip_without(b);
    if (!b->caps.has_subgroup) skip_test("the device has no subgroups");
    for (i64 i = 0; i < countof(types); i++) {
        struct run r = {0};
        struct rng g = rng_seed((u64)i);
        const char *type = dtype_name(types[i]), *to = dtype_is_float(types[i]) ? "max" : "add";
        struct str text = str_fmt(
            &r.arena,
            "kernel across(x: in %s, y: out %s, z: out i32)\ngroup 64 1 1 subgroup %u\ngrid %%1 = "
            "3\n"
            "  %%2 = thread 0\n  %%3 = mul %%1, 64\n  %%4 = add %%3, %%2\n  %%5: %s = load x[%%4]\n"
            "  %%6: %s = sg%s %%5\n  %%7: %s = sgmin %%5\n  %%8 = subgroup 1\n  %%9 = xor %%8, 1\n"
            "  %%10: %s = shuffle %%5, %%9\n  %%11: %s = sub %%6, %%7\n  %%12: %s = add %%11, "
            "%%10\n"
            "  store y[%%4] = %%12\n  %%13 = subgroup 0\n  %%14 = mul %%13, 1000\n  %%15 = add "
            "%%14, %%8\n"
            "  %%16: i32 = cast %%15\n  store z[%%4] = %%16\nend\n",
            type, type, b->caps.subgroup, type, type, to, type, type, type, type);
        text_kernel(&r, &g, text.p, 3 * 64);
        for (i64 j = 0; dtype_is_float(types[i]) && j < 3 * 64;
             j++) /* no NaN: its extremes depend on the device */
            elem_set_f64(types[i], r.arg[0].p, j, (double)rng_range(&g, -1000, 1000) / 8);
        r.grid[0][0] = 3;
        r.grid[0][1] = r.grid[0][2] = 1;
        check_run(b, &r, &b->caps, "across");
        arena_release(&r.arena);
    }
}

/* Every f16 to f32 and back, and every f32 near the midpoint of two f16: exact, with and without
   hardware conversion. */
static inline void halves_agree(void **state)
{
    enum { COUNT = 1 << 16 };
    struct fixture *b = *state;
    skip_without(b);
    for (int i = 0; i < 4; i++) {
        struct run r = {0};
        struct rng g = rng_seed(1);
        struct caps c = b->caps;
        const char *half = i & 1 ? "bf16" : "f16";
        struct str text = str_fmt(&r.arena,
                                  "kernel halves(x: in %s, y: out f32, u: in f32, v: out "
                                  "%s)\ngroup 64 1 1\ngrid %%1 = 512\n"
                                  "  %%2 = thread 0\n  %%3 = mul %%1, 128\n  %%4 = mul %%2, 2\n  "
                                  "%%5 = add %%3, %%4\n  %%6: i64x2 = ramp %%5, 1\n"
                                  "  %%7: %sx2 = load x[%%6]\n  %%8: f32x2 = cast %%7\n  store "
                                  "y[%%6] = %%8\n  %%9: f32x2 = load u[%%6]\n"
                                  "  %%10: %sx2 = cast %%9\n  store v[%%6] = %%10\nend\n",
                                  half, half, half, half);
        text_kernel(&r, &g, text.p, COUNT);
        if (i & 2) c.has_rte_f16 = false;
        for (u32 j = 0; j < COUNT; j++) {
            ((u16 *)r.arg[0].p)[j] = (u16)j;
            u32 u = (u32)rng_u64(&g) & ~0x1fffu; /* mostly halfway cases and their neighbours */
            u32 bits = u | (u32[]){0x1000, 0xfff, 0x1001, 0}[j % 4];
            if (i & 1) bits = (u & ~0xffffu) | (u32[]){0x8000, 0x7fff, 0x8001, 0}[j % 4];
            else bits = (bits & 0x807fffff) | (u32)rng_range(&g, 100, 145) << 23;
            memcpy((u32 *)r.arg[2].p + j, &bits, 4);
        }
        r.grid[0][0] = 512;
        r.grid[0][1] = r.grid[0][2] = 1;
        check_run(b, &r, &c, half);
        arena_release(&r.arena);
    }
}

/* Remainders and powers, which are loops of kernel IR. */
static inline void loops_agree(void **state)
{
    static const struct {
        enum dtype t;
        const char *op;
    } ops[] = {
        {DT_F32, "mod"}, {DT_F64, "mod"}, {DT_I32, "pow"}, {DT_U8, "pow"},
        {DT_I64, "pow"}, {DT_I32, "mod"}, {DT_I64, "div"},
    };
    struct fixture *b = *state;
    skip_without(b);
    for (i64 i = 0; i < countof(ops); i++) {
        struct run r = {0};
        struct rng g = rng_seed((u64)i);
        const char *type = dtype_name(ops[i].t);
        struct str text = str_fmt(
            &r.arena,
            "kernel loops(x: in %s, w: in %s, y: out %s)\ngrid %%1 = 600\n  %%2: %s = load x[%%1]\n"
            "  %%3: %s = load w[%%1]\n  %%4: %s = %s %%2, %%3\n  store y[%%1] = %%4\nend\n",
            type, type, type, type, type, type, ops[i].op);
        text_kernel(&r, &g, text.p, 600);
        for (i64 j = 0; j < 600; j++) {
            void *w = r.arg[1].p;
            if (dtype_is_float(ops[i].t)) {
                double v = elem_f64(ops[i].t, w, j);
                if (j % 3 == 0)
                    elem_set_f64(ops[i].t, r.arg[0].p, j,
                                 elem_f64(ops[i].t, w, j) * (double)rng_range(&g, 0, 50));
                if (fabs(v) < 1e-30) elem_set_f64(ops[i].t, w, j, j % 2 ? 3 : 0);
            } else if (elem_i64(ops[i].t, w, j) == 0 || j % 2) {
                elem_set_i64(ops[i].t, w, j, j % 7 ? j % 7 : -1);
            }
        }
        r.grid[0][0] = 600;
        r.grid[0][1] = r.grid[0][2] = 1;
        check_run(b, &r, &b->caps, ops[i].op);
        arena_release(&r.arena);
    }
}

/* Magnitudes of extended values, which a compiler confuses. */
static inline void magnitudes_agree(void **state)
{
    static const char *const types[][2] = {{"i32", "i64"}, {"i8", "i64"}, {"i8", "i32"}, {"i64", "i64"}, {"i16", "i16"}};
    struct fixture *b = *state;
    skip_without(b);
    for (i64 i = 0; i < countof(types); i++) {
        struct run r = {0};
        struct rng g = rng_seed((u64)i);
        text_kernel(&r, &g,
                    str_fmt(&r.arena, "kernel magnitudes(x: in %s, y: out %s)\ngrid %%1 = 600\n  %%2: %s = load x[%%1]\n  %%3: %s = cast %%2\n"
                                      "  %%4: %s = abs %%3\n  store y[%%1] = %%4\nend\n", types[i][0], types[i][1], types[i][0], types[i][1], types[i][1]).p, 600);
        r.grid[0][0] = 600;
        r.grid[0][1] = r.grid[0][2] = 1;
        check_run(b, &r, &b->caps, types[i][0]);
        arena_release(&r.arena);
    }
}

/* On a device with exact arithmetic, functions have the accuracy of their expansions. */
static inline void functions_are_accurate(void **state)
{
    enum { COUNT = 1 << 14 };
    struct fixture *b = *state;
    skip_without(b);
    for (i64 i = 0; i < countof(functions); i++) {
        const struct function *f = &functions[i];
        struct run r = {0};
        struct buf binary = {0};
        void *out[MAX_ARGS];
        double at;
        function_kernel(&r, f->op, 1, COUNT);
        for (u32 j = 0; j < 2; j++)
            r.arg[j] = (struct kir_arg){arena_alloc(&r.arena, COUNT * 4), COUNT};
        fill_function(f, r.arg[0].p, COUNT);
        build_as(&r, b->lang, &b->caps, &binary);
        run_native(&r, b->dev, buf_view(&binary), out);
        double worst = function_error(f, r.arg[0].p, out[1], COUNT, &at);
        if (worst > f->ulp + 2) fail_msg("%s: %g ulp at %.9g", kir_op_info(f->op)->name, worst, at);
        buf_release(&binary);
        arena_release(&r.arena);
    }
}

static const struct CMUnitTest group_tests[] = {
    cmocka_unit_test(random_kernels_agree), cmocka_unit_test(random_kernels_agree_on_less),
    cmocka_unit_test(structures_agree),     cmocka_unit_test(groups_agree),
    cmocka_unit_test(subgroups_agree),      cmocka_unit_test(halves_agree),
    cmocka_unit_test(loops_agree),          cmocka_unit_test(magnitudes_agree),     cmocka_unit_test(functions_are_accurate),
};

#endif
