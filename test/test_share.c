// SPDX-License-Identifier: Apache-2.0
//
// Kernels that differ only in sizes: of random tasks in two sizes and random schedules, the common kernel is exactly the task's with the
// sizes of each as parameters. What makes kernels of one form, and what does not. A dense block, each of whose layers concatenates all
// before it, has the reference's results, and as many texts for any number of layers, compiled alone or several in a unit. Units of random texts.
#include "gen_tasks.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "rt/rt.h"
#include "tune/exact.h"

/* The kernel and one of the same schedule for smaller sizes; NULL: the sizes cannot be reduced. */
static struct exact_variant *smaller(struct fixture *b, const struct candidate *c, const struct kernel *k)
{
    static const i64 guess[] = {13, 11};
    const struct exact_reduce_opts o = {.cand = c, .caps = &b->caps, .structure = exact_structure_of(&k->kir), .guess = guess, .most = 100, .may = 1e9, .limit = 1e9};
    i64 n_steps = 0;
    return exact_reduce(&o, &b->t, &n_steps);
}

static void check(struct fixture *b, const struct task *t, const struct kernel *k, const i64 *var, const struct candidate *c, u64 seed)
{
    struct exact_result r = {0};
    if (!exact_compare(&r, t, k, var, &(struct exact_opts){.seed = seed, .once = true}, &b->e)) report(b, c, seed);
    if (r.verdict == EXACT_DIFFERS) {
        print_error("%.*s\n", (int)r.why.n, r.why.p);
        report(b, c, seed);
    }
    exact_result_release(&r);
}

struct counts { u32 n, n_shared, n_params; };

/* The same kernel twice, and one for smaller sizes. */
static void share_both(struct fixture *b, const struct candidate *c, struct kernel k[2], struct exact_variant *v, u64 seed, struct counts *n)
{
    struct gen_shared x[] = {{&k[0], &b->t, c}, {&v->kernel, &v->task, c}, {&k[1], &b->t, c}};
    if (!gen_share(x, 3, &b->arena, &b->e)) report(b, c, seed);
    bool same = !strcmp(k[0].name, v->kernel.name);
    assert_string_equal(k[0].name, k[1].name);
    assert_int_equal(k[0].n_param, k[1].n_param);
    assert_int_equal(k[0].kir.ins.v == v->kernel.kir.ins.v, same);
    n->n++, n->n_shared += same, n->n_params += same ? k[0].n_param : 0;
    check(b, &b->t, &k[0], b->var, c, seed);
    check(b, &v->task, &v->kernel, v->var, c, seed);
}

static void try_pair(struct fixture *b, const struct candidate *c, u64 seed, struct counts *n)
{
    struct kernel k[2];
    if (!gen_kernel(&k[0], &b->arena, c, &b->t, &b->caps, &b->e) || !gen_kernel(&k[1], &b->arena, c, &b->t, &b->caps, &b->e)) report(b, c, seed);
    struct exact_variant *v = smaller(b, c, &k[0]);
    if (v && strcmp(v->kernel.name, k[0].name)) share_both(b, c, k, v, seed, n);
    exact_variant_close(v);
}

static void test_random(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_conv, random_gemm, random_row, random_pool, random_transpose, random_grad, random_depthwise, random_point};
    struct counts n = {0};
    for (u64 seed = first_seed(0, 160); seed < last_seed(0, 160); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        bool made = make[seed % countof(make)](&b);
        for (u32 i = 0; made && i < 3; i++) {
            struct candidate c;
            if (choose(&b, i, &c)) try_pair(&b, &c, seed, &n);
        }
        fixture_close(&b);
    }
    print_message("%u kernels in two sizes, %u shared, with %u sizes\n", n.n, n.n_shared, n.n_params);
    assert_true(is_enough(n.n, 100) && is_enough(n.n_shared, 50) && n.n_params >= n.n_shared);
}

/* Forms. */

/* Rows of a matrix: a sum over n terms of a tile of two rows that are `pitch` apart. */
static struct kir_form rows(struct arena *a, i64 n_rows, i64 terms, i64 pitch)
{
    struct kir k;
    struct kir_form f;
    kir_init(&k, a, S("rows"));
    kval x = kir_buf(&k, S("x"), DT_F32, KA_IN), y = kir_buf(&k, S("y"), DT_F32, KA_OUT);
    kval g = kir_grid(&k, kir_int(&k, n_rows / 2)), sum = kir_alloc(&k, KS_REG, DT_F32, 1, kir_int(&k, 2));
    for (i64 j = 0; j < 2; j++) kir_store(&k, sum, kir_int(&k, j), kir_const_f(&k, DT_F32, 1, 0));
    kval i = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), kir_int(&k, terms), 1), r = kir_loop(&k, KL_UNROLL, kir_int(&k, 0), kir_int(&k, 2), 1);
    kval row = kir_add(&k, kir_mul_i(&k, g, 2), r), at = kir_add(&k, kir_mul_i(&k, row, pitch), i);
    kir_store(&k, sum, r, kir_add(&k, kir_load(&k, sum, r), kir_load(&k, x, at)));
    kir_end(&k);
    kir_end(&k);
    for (i64 j = 0; j < 2; j++) kir_store(&k, y, kir_add_i(&k, kir_mul_i(&k, g, 2), j), kir_load(&k, sum, kir_int(&k, j)));
    kir_end(&k);
    kir_form_of(&f, a, &k);
    return f;
}

static bool is_same_form(struct kir_form x, struct kir_form y) { return x.hash.lo == y.hash.lo && x.hash.hi == y.hash.hi; }

static void test_form(void **state)
{
    struct arena a = {0};
    struct kir common;
    struct err e = {0};
    struct kir_form x = rows(&a, 10, 30, 100), y = rows(&a, 12, 40, 100);
    assert_true(is_same_form(x, y));                       /* of other extents */
    assert_false(is_same_form(x, rows(&a, 10, 30, 101)));  /* the distance of unrolled rows is part of their addresses */
    const struct kir_form *both[] = {&x, &y};
    struct str *size[2];
    kir_share(&common, &a, both, 2, size);
    if (!kir_verify(&common, &e)) fail_msg("%s", e.msg);
    assert_int_equal(common.param.n, 2);
    assert_true(str_is(size[0][0], "5") && str_is(size[0][1], "30") && str_is(size[1][0], "6") && str_is(size[1][1], "40"));
    arena_release(&a);
}

/* A dense block. */

static value_id conv(struct fixture *b, value_id x, i64 from, i64 to, i64 side)
{
    value_id y = add_weighted(b, "Conv", x, 4, (i64[]){to, from, side, side}, NULL);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){side / 2, side / 2, side / 2, side / 2}, 4);
    return y;
}

enum { START = 24, GROWTH = 8, WIDTH = 16, SIDE = 9 };

/* Of n layers, and the concatenation of all. */
static void dense(struct fixture *b, u32 n)
{
    value_id all[65], cat = 0;
    all[0] = add_input(b, "x", 4, (sym[]){sym_const(&b->sym, 1), sym_const(&b->sym, START), sym_const(&b->sym, SIDE), sym_const(&b->sym, SIDE)});
    all[0] = conv(b, all[0], START, START, 1);
    for (u32 i = 0; i <= n; i++) {
        cat = i ? graph_op(&b->g, "Concat", S("cat"), i + 1, all) : all[0];
        if (i) attr_set_int(&b->g, graph_value(&b->g, cat)->producer, "axis", 1);
        if (i < n) all[i + 1] = conv(b, add_op(b, "Relu", conv(b, add_op(b, "Relu", cat, 0, 0), START + GROWTH * i, WIDTH, 1), 0, 0), WIDTH, GROWTH, 3);
    }
    *arr_push(&b->arena, &b->g.output) = conv(b, cat, START + GROWTH * n, 5, 1);
}

static void compare_run(struct fixture *b, const struct graph *g, const struct plan *p, struct dev *dev)
{
    struct tensor *in = tensor_new(&b->arena, DT_F32, 4, (i64[]){1, START, SIDE, SIDE}), *want, got = {0};
    for (i64 i = 0; i < tensor_count(in); i++) elem_set_f64(DT_F32, in->data, i, rng_f64(&b->rng) * 2 - 1);
    struct rt_program *r = rt_load(p, dev, &b->e);
    if (!r || !graph_eval(g, &in, &want, &b->arena, NULL, &b->e) || !rt_run(r, in, &got, &b->arena, &b->e)) fail_msg("%s", b->e.msg);
    double scale = tensor_largest(want);
    struct tensor_diff d = tensor_compare(&got, want, 0, 1e-5 * scale);
    if (d.n_bad) fail_msg("%lld elements differ, by up to %g of %g", (long long)d.n_bad, d.max_abs, scale);
    rt_unload(r);
}

/* So that values of many layers are about as large as those of one. */
static void scale_weights(struct graph *g)
{
    for (value_id v = 1; v < g->value.n; v++) {
        struct tensor *t = graph_value(g, v)->data;
        i64 n = t ? tensor_count(t) : 0;
        for (i64 i = 0; i < n; i++) elem_set_f64(DT_F32, t->data, i, elem_f64(DT_F32, t->data, i) / sqrt((double)n / (double)t->dim[0]));
    }
}

/* The number of its units. */
static u32 run_dense(u32 n, const char *driver, const struct lang *l, u32 *n_dispatches)
{
    struct fixture b;
    struct cover c;
    struct selection sel;
    struct plan plan;
    struct graph lowered;
    fixture_open(&b, 2 * n);
    const struct dev_driver *d = dev_find(str_of(driver));
    struct dev *dev = d->open(&(struct dev_opts){.n_threads = 2}, &b.e);
    if (!dev) fail_msg("%s", b.e.msg);
    if (str_is(str_of(driver), "cpu")) d->caps(dev, &b.caps);
    else b.caps.vector_bytes = 32;
    dense(&b, n);
    scale_weights(&b.g);
    bool ok = op_infer_all(&b.g, &b.e);
    if (ok) graph_clone(&lowered, &b.g, &b.arena);
    struct plan_code code = {.builder = {.lang = l, .caps = &b.caps}};
    const struct plan_env env = {.lang = l, .caps = &b.caps, .device = driver, .model = S("dense"), .build = plan_build_code, .build_user = &code};
    ok = ok && pass_run_all(&lowered, NULL, &b.e) && cover_build(&c, &lowered, &b.arena, &(struct cover_opts){0}, &b.e) &&
         plan_select(&sel, &c, b.var, plan_cost_predicted, &b.caps, &b.arena, &b.e) && plan_make(&plan, &c, &sel, b.var, &env, &b.arena, &b.e);
    if (!ok) fail_msg("%s", b.e.msg);
    u32 n_units = plan.bin.n;
    *n_dispatches = plan.dispatch.n;
    compare_run(&b, &b.g, &plan, dev);
    d->close(dev);
    fixture_close(&b);
    return n_units;
}

static void test_dense(void **state)
{
    for (u32 n = 1; n <= 63; n += n < 4 ? 1 : n < 20 ? 8 : 21) {
        u32 n_dispatches, n_texts = run_dense(n, "interp", lang_find(S("kir")), &n_dispatches);
        print_message("%u layers: %u dispatches, %u texts\n", n, n_dispatches, n_texts);
        assert_true(n_dispatches >= 2 * n && n_texts <= 24); /* inputs of up to 256 channels have distances of their own */
    }
}

/* Units. */

static void test_dense_units(void **state)
{
    struct lang alone = *lang_find(S("c"));
    struct buf version = {0};
    if (!alone.toolchain(&version, NULL, &(struct err){0})) skip_test("no C compiler");
    buf_release(&version);
    alone.join_program = NULL;
    u32 n[2], n_texts = run_dense(6, "cpu", &alone, &n[0]), n_units = run_dense(6, "cpu", lang_find(S("c")), &n[1]);
    print_message("%u dispatches, %u texts in %u units\n", n[1], n_texts, n_units);
    assert_int_equal(n[0], n[1]);
    assert_true(n_texts >= 5 && n_units >= 1 && n_units < n_texts);
}

/* Types and helpers of several texts are there once, before their users; all functions are there. */
static void test_join(void **state)
{
    static const char *const text[] = {"/* a, rounds as written */\n#define ONE 1\ntypedef int i;\nstruct s {\n    i x;\n};\nstatic i f(i x)\n{\n#if ONE\n    return x;\n#endif\n}\n\nvoid a_0(i n)\n{\n    f(n);\n}\n",
                                       "/* b, rounds as written */\n#define ONE 1\ntypedef int i;\nstatic i g(i x) { return x; }\nstatic i f(i x)\n{\n#if ONE\n    return x;\n#endif\n}\n\nvoid b_0(i n)\n{\n    g(f(n));\n}\n"};
    static const char *const joined = "/* a, rounds as written */\n#define ONE 1\ntypedef int i;\nstruct s {\n    i x;\n};\nstatic i f(i x)\n{\n#if ONE\n    return x;\n#endif\n}\n\nvoid a_0(i n)\n{\n    f(n);\n}\n"
                                      "/* b, rounds as written */\n#define ONE 1\nstatic i g(i x) { return x; }\n\nvoid b_0(i n)\n{\n    g(f(n));\n}\n";
    struct buf b = {0};
    lang_find(S("c"))->join_program(&b, (const struct str[]){str_of(text[0]), str_of(text[1])}, 2);
    assert_true(str_is(buf_view(&b), joined));
    buf_release(&b);
}

static void concatenate(struct buf *out, const struct str *text, u32 n)
{
    for (u32 i = 0; i < n; i++) buf_str(out, text[i]);
}

/* Each text is in its unit and in no other one, in order. Those that are alone are; others share units of their kind, which are as full as they may be. */
static void check_units(const struct plan_text *text, u32 n, const struct str *unit, const u32 *of, u32 n_units)
{
    for (u32 u = 0; u < n_units; u++) {
        struct buf all = {0};
        u32 members = 0, first = n;
        for (u32 i = 0; i < n; i++) {
            if (of[i] != u) continue;
            if (!members++) first = i;
            buf_str(&all, text[i].text);
            assert_true(text[i].as_written == text[first].as_written && (i == first || !text[i].is_alone));
        }
        assert_true(members == 1 || (members > 1 && !text[first].is_alone && all.n <= 64000));
        assert_true(str_eq(buf_view(&all), unit[u]));
        for (u32 i = first + 1; i < n; i++) /* a later text would not have had room */
            assert_true(of[i] <= u || text[i].is_alone || text[first].is_alone || text[i].as_written != text[first].as_written || all.n + text[i].text.n > 64000);
        buf_release(&all);
    }
}

static void test_units(void **state)
{
    const struct lang l = {.name = "test", .join_program = concatenate};
    for (u64 seed = first_seed(0, 200); seed < last_seed(0, 200); seed++) {
        struct arena a = {0};
        struct rng r = rng_seed(seed);
        u32 n = (u32)rng_range(&r, 0, 60), *of = arena_array(&a, u32, n + 1);
        struct plan_text *text = arena_array(&a, struct plan_text, n + 1);
        struct str *unit = arena_array(&a, struct str, n + 1);
        for (u32 i = 0; i < n; i++) {
            i64 bytes = rng_range(&r, 1, rng_range(&r, 0, 3) ? 9000 : 90000);
            char *p = arena_alloc(&a, bytes);
            memset(p, 'a' + (int)(i % 26), (size_t)bytes);
            text[i] = (struct plan_text){{p, bytes}, rng_range(&r, 0, 4) == 0, rng_range(&r, 0, 2) == 0};
        }
        u32 n_units = plan_units(unit, of, text, n, &l, &a);
        check_units(text, n, unit, of, n_units);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_form), cmocka_unit_test(test_join), cmocka_unit_test(test_units),
                                       cmocka_unit_test(test_dense_units), cmocka_unit_test(test_dense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
