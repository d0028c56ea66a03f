// SPDX-License-Identifier: Apache-2.0
//
// Exact verification: laws of the interpreter's field; random tasks of all families under random
// schedules are exactly equal; planted faults are found, including those that no tolerance
// distinguishes from rounding; reduced sizes preserve a kernel's structure.
#include "gen_tasks.h"
#include "kir/field.h"
#include "tune/exact.h"

/* The field. */

static union kir_cell calc(enum kir_op op, union kir_cell x, union kir_cell y)
{
    union kir_cell r;
    assert_true(field_scalar(op, DT_F32, DT_F32, (union kir_cell[3]){x, y}, &r));
    return r;
}

static bool is_prime(u64 n)
{
    for (u64 d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return n > 1;
}

static void test_laws(void **state)
{
    struct rng r = rng_seed(1);
    assert_true(is_prime(FIELD_P) && is_prime(FIELD_Q) && FIELD_P == 2ll * FIELD_Q + 1);
    for (u32 i = 0; i < 2000; i++) {
        union kir_cell x = field_random(&r), y = field_random(&r), z = field_random(&r), small = field_const((double)rng_range(&r, -999, 999) / 8);
        if (i % 3 == 0) y = small;
        assert_true(field_equal(field_mul(field_add(x, y), z), field_add(field_mul(x, z), field_mul(y, z))));
        assert_int_equal(field_fma(x, y, z).i, field_add(field_mul(x, y), z).i);
        assert_true(field_equal(calc(KI_SUB, field_add(x, y), y), x));
        if (y.i) assert_true(field_equal(field_mul(calc(KI_DIV, x, y), y), x));
        assert_true(field_equal(calc(KI_EXP, field_add(x, y), y), field_mul(calc(KI_EXP, x, x), calc(KI_EXP, y, y))));
        assert_true(field_equal(calc(KI_MAX, calc(KI_MAX, x, y), z), calc(KI_MAX, x, calc(KI_MAX, z, y))));
        assert_true(field_equal(calc(KI_MIN, x, y), calc(KI_NEG, calc(KI_MAX, calc(KI_NEG, x, x), calc(KI_NEG, y, y)), y)));
        assert_true(field_equal(calc(KI_TANH, calc(KI_NEG, x, x), x), calc(KI_NEG, calc(KI_TANH, x, x), x)));
        assert_false(field_equal(calc(KI_TANH, x, x), calc(KI_ERF, x, x)));
    }
}

/* Sums of products that are reduced once: the same residues; infinities, NaN and results of exp are not summed so. */
static void test_sums(void **state)
{
    enum { N = 300 };
    const union kir_cell special[] = {field_const(INFINITY), field_const(-INFINITY), field_nan(), calc(KI_EXP, field_const(2), field_const(2))};
    struct rng r = rng_seed(3);
    union kir_cell x[N], y[N], sum = field_random(&r), got;
    struct field_dot d = field_dot_from(sum);
    for (u32 i = 0; i < N; i++) x[i] = field_random(&r), y[i] = field_random(&r), sum = field_add(sum, field_mul(x[i], y[i]));
    field_dot_add(&d, x, y, N / 2), field_dot_add(&d, x + N / 2, y + N / 2, N - N / 2);
    assert_true(field_dot_end(&d, &got));
    assert_int_equal(got.i, sum.i);
    for (u32 i = 0; i < countof(special); i++) {
        for (u32 at = 0; at < 3; at++) {
            union kir_cell a[3] = {x[0], x[1], x[2]};
            a[at] = special[i];
            assert_int_equal(field_fma(a[0], a[1], a[2]).i, field_add(field_mul(a[0], a[1]), a[2]).i);
        }
        x[7] = special[i];
        d = field_dot_from(y[0]);
        field_dot_add(&d, x, y, N);
        assert_false(field_dot_end(&d, &got));
    }
}

static void test_constants(void **state)
{
    for (i64 n = 1; n < 200; n++)
        for (i64 d = 1; d < 60; d++) {
            union kir_cell f = field_const((float)((double)n / (double)d)), g = field_const((double)n / (double)d);
            assert_true(field_equal(field_mul(f, field_int(d)), field_int(n)));
            assert_true(field_equal(f, g));
        }
    float third = 1.0f / 3;
    assert_false(field_equal(field_const(third), field_const(nextafterf(third, 1))));
    assert_true(field_equal(field_const(-0.375), calc(KI_NEG, field_mul(field_int(3), field_const(0.125)), field_int(0))));
    assert_true(field_equal(calc(KI_MAX, field_const(-INFINITY), field_int(-5)), field_int(-5)));
    for (i64 i = -40; i < 40; i++) {
        union kir_cell x = field_const((double)i / 8), r;
        assert_true(field_equal(calc(KI_FLOOR, x, x), field_int((i64)floor((double)i / 8))));
        assert_true(field_equal(calc(KI_RINT, x, x), field_int((i64)rint((double)i / 8))));
        assert_true(field_scalar(KI_CAST, DT_F32, DT_I32, (union kir_cell[3]){x}, &r) && r.i == i / 8);
        assert_true(field_scalar(KI_LT, DT_F32, DT_BOOL, (union kir_cell[3]){x, field_int(1)}, &r) && r.i == (i < 8));
    }
}

/* Kernels. */

static enum exact_verdict check_one(struct fixture *b, const struct kernel *k, u64 seed, bool prints)
{
    struct exact_result r = {0};
    struct err e = {0};
    if (!exact_compare(&r, &b->t, k, b->var, &(struct exact_opts){.seed = seed}, &e)) fail_msg("%s", e.msg);
    enum exact_verdict v = r.verdict;
    if (prints && v) fprintf(stderr, "seed %llu %s: %s, %.*s\n", (unsigned long long)seed, k->name, exact_verdict_name(v), (int)r.why.n, r.why.p);
    exact_result_release(&r);
    return v;
}

static void test_random(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_conv, random_gemm, random_row, random_pool, random_transpose, random_grad, random_depthwise};
    u32 n = 0, n_exact = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (pick(&b, 0, 1)) fixture_use_workgroups(&b);
        bool made = seed % 8 == 7 ? random_conv_like(&b, true) : make[seed % 7](&b);
        for (u32 i = 0; made && i < 3; i++) {
            struct candidate c;
            struct kernel k;
            if (!choose(&b, i, &c)) break;
            if (!gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e)) report(&b, &c, seed);
            enum exact_verdict v = check_one(&b, &k, seed, true);
            if (v == EXACT_DIFFERS) report(&b, &c, seed);
            n++, n_exact += v == EXACT_YES;
            struct kernel legal = k; /* as languages get it: unrolled, in narrower vectors */
            if (seed % 4) continue;
            if (!kir_legalise(&legal.kir, &b.arena, &k.kir, &(struct kir_limits){.max_lanes_bytes = 16}, &b.e)) report(&b, &c, seed);
            if (check_one(&b, &legal, seed, true) != v) report(&b, &c, seed);
        }
        fixture_close(&b);
    }
    print_message("%u kernels, %u exact\n", n, n_exact);
    assert_true(is_enough(n, 200) && n_exact * 20 >= n * 19);
}

/* Operators with families of their own, which are rare among instances of all operators. */
static bool random_rare(struct fixture *b)
{
    static const char *const names[] = {"quern::Recurrence", "quern::Filter", "SoftmaxCrossEntropyLoss"};
    const struct op *op = op_find(str_of(names[pick(b, 0, countof(names) - 1)]));
    op->random(op, &b->g, &b->rng);
    return make_task(b);
}

/* Every schedule that is legal with a guaranteed order of sums has that order. */

static bool random_operator(struct fixture *b)
{
    const struct op *op = NULL;
    i64 n = 0;
    while (op_all(n)) n++;
    while (!op || !op->random || op->props & OP_CALL) op = op_all(pick(b, 0, n - 1));
    op->random(op, &b->g, &b->rng);
    return make_task(b);
}

static void test_order(void **state)
{
    static bool (*const make[])(struct fixture *) = {random_conv, random_gemm, random_row,       random_pool,    random_transpose,
                                                 random_grad, random_depthwise, random_operator, random_rare};
    u32 n = 0, n_same = 0, n_none = 0;
    for (u64 seed = first_seed(0, 400); seed < last_seed(0, 400); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (pick(&b, 0, 2) == 0) fixture_use_workgroups(&b);
        bool made = make[seed % countof(make)](&b), can = made && choose(&b, 0, &(struct candidate){0});
        assert_true(caps_limit(&b.caps, S("deterministic"), NULL, &b.e));
        if (can && b.t.g.node.n == 2 && !choose(&b, 0, &(struct candidate){0})) { /* larger ones fall apart */
            print_error("seed %llu: no family keeps to the order\n%.*s", (unsigned long long)seed, STR_ARG(b.t.text));
            n_none++;
        }
        for (u32 i = 0; made && i < 3; i++) {
            struct candidate c;
            struct kernel k;
            struct exact_result r = {0};
            const struct exact_opts o = {.seed = seed, .ordered = &b.caps};
            if (!choose(&b, i, &c)) break;
            if (!gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) || !exact_compare(&r, &b.t, &k, b.var, &o, &b.e)) report(&b, &c, seed);
            if (r.verdict == EXACT_DIFFERS) {
                struct buf text = {0};
                candidate_print(&text, &c);
                print_error("seed %llu, %.*s: rounded in another order, %.*s\n%.*s", (unsigned long long)seed, STR_ARG(buf_view(&text)),
                            STR_ARG(buf_view(&r.why)), STR_ARG(b.t.text));
                buf_release(&text);
            }
            n += r.verdict != EXACT_TOLERANCE, n_same += r.verdict == EXACT_YES;
            exact_result_release(&r);
        }
        fixture_close(&b);
    }
    print_message("%u kernels, %u in order\n", n, n_same);
    assert_true(n_same == n && !n_none && is_enough(n, 400));
}

/* Instances of all operators and types: all families agree with the definitions. */
static void test_operators(void **state)
{
    u32 n[N_EXACT_VERDICTS] = {0};
    for (u64 seed = first_seed(0, 5); seed < last_seed(0, 5); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct fixture b;
            if (!op_all(i)->random || op_all(i)->props & OP_CALL) continue;
            fixture_open(&b, seed * 1000 + (u64)i);
            if (pick(&b, 0, 1)) fixture_use_workgroups(&b);
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            bool made = make_task(&b);
            for (u32 k = 0; made && k < 2; k++) {
                struct candidate c;
                struct kernel kernel;
                if (!choose(&b, k, &c)) break;
                if (!gen_kernel(&kernel, &b.arena, &c, &b.t, &b.caps, &b.e)) report(&b, &c, seed);
                enum exact_verdict v = check_one(&b, &kernel, seed, getenv("VERBOSE") != NULL);
                if (v == EXACT_DIFFERS) {
                    check_one(&b, &kernel, seed, true);
                    report(&b, &c, seed);
                }
                n[v]++;
            }
            fixture_close(&b);
        }
    print_message("%u exact, %u by tolerance\n", n[EXACT_YES], n[EXACT_TOLERANCE]);
    assert_true(is_enough(n[EXACT_YES], 1000) && n[EXACT_TOLERANCE] * 20 < n[EXACT_YES]);
}

/* Faults. */

struct lines { struct str v[4096]; u32 n; };

static void split(struct lines *l, struct str text)
{
    struct str line;
    l->n = 0;
    for (bool more = true; more && l->n < countof(l->v);) {
        struct str rest = text;
        more = str_cut(rest, '\n', &line, &text);
        l->v[l->n++] = more ? line : rest;
    }
}

enum fault { TERM, PLACE, STALE, NO_BARRIER, ROUNDS, CONSTANT, N_FAULTS };
static const char *const fault_name[] = {"missing term", "wrong index", "store left out", "barrier left out", "missing round", "constant off by a last place"};

/* The line with the fault, on place of z; nothing: it has no place for one. "%%9..": a number that no value has. */

static void plant_term(struct buf *out, const char *z)
{
    char a[64], b[64], c[64];
    const char *p = strstr(z, "= fma ");
    if (p && sscanf(p, "= fma %63[^,], %63[^,], %63s", a, b, c) == 3) buf_printf(out, "%.*s= max %s, %s\n", (int)(p - z), z, c, c);
}

static void plant_place(struct buf *out, const char *z)
{
    char a[64], b[64];
    const char *p = strstr(z, "= load ");
    if (!p || strstr(p, "first") || sscanf(p, "= load %63[^[][%63[^]]]", a, b) != 2 || a[0] == '%') return;
    buf_printf(out, "%%90001 = add %s, 1\n%.*s= load %s[%%90001]\n", b, (int)(p - z), z, a);
}

static void plant_round(struct buf *out, const char *z)
{
    const char *p = strstr(z, "= 0..");
    if (p && strstr(z, "loop ") && !strstr(z, "unroll")) buf_printf(out, "%.*s= 1..%s\n", (int)(p - z), z, p + 5);
}

static void plant_constant(struct buf *out, const char *z)
{
    double v;
    int end = 0;
    for (const char *p = z; (p = strstr(p, "f32x")); p++) {
        if (sscanf(p, "f32x%*d(%lf%n", &v, &end) != 1 || p[end] != ')' || v == 0 || fabs(v) == 1) continue;
        buf_printf(out, "%.*s", (int)(strchr(p, '(') + 1 - z), z);
        buf_f64(out, (double)nextafterf((float)v, INFINITY));
        buf_printf(out, "%s\n", p + end);
        return;
    }
}

static bool plant(struct buf *out, struct str line, enum fault f)
{
    char *z = strndup(line.p, (size_t)line.n);
    bool gone = (f == STALE && strstr(z, "  store %")) || (f == NO_BARRIER && strstr(z, "barrier"));
    if (f == TERM) plant_term(out, z);
    if (f == PLACE) plant_place(out, z);
    if (f == ROUNDS) plant_round(out, z);
    if (f == CONSTANT) plant_constant(out, z);
    free(z);
    return gone || out->n > 0;
}

/* Would the ordinary verification have found it? */
static bool is_within_tolerance(struct fixture *b, const struct kernel *k, u64 seed)
{
    struct check c;
    struct bound to = {0};
    struct err e = {0};
    struct arena a = {0};
    assert_true(check_init(&c, &b->t, b->var, seed, true, &e) && bind_arguments(&to, k, &c, &a, &e));
    bool ok = kir_eval(&k->kir, to.arg, to.param, NULL, &e);
    for (u32 o = 0; o < b->t.g.output.n && ok; o++)
        for (u32 i = 0; i < k->n_arg && ok; i++)
            if (k->arg[i].is_out && k->arg[i].v == b->t.g.output.v[o]) ok = compare(&c, o, to.arg[i].p, &e);
    check_release(&c);
    arena_release(&a);
    return ok;
}

/* The kernel with a fault in line i; false: there is no place for one. */
static bool with_fault(struct kernel *wrong, const struct lines *l, u32 i, enum fault f, struct arena *a)
{
    struct buf bad = {0}, one = {0};
    struct err e = {0};
    bool has = plant(&one, l->v[i], f);
    for (u32 j = 0; has && j < l->n; j++) {
        if (j == i) buf_str(&bad, buf_view(&one));
        else buf_printf(&bad, "%.*s\n", STR_ARG(l->v[j]));
    }
    has = has && kir_parse(&wrong->kir, a, buf_view(&bad), &e);
    buf_release(&bad), buf_release(&one);
    return has;
}

struct faults { u32 n[N_FAULTS], found[N_FAULTS], hidden[N_FAULTS]; };

static void try_faults(struct fixture *b, const struct candidate *c, struct faults *x)
{
    struct lines *l = arena_new(&b->arena, struct lines);
    struct kernel k;
    struct buf text = {0};
    if (!gen_kernel(&k, &b->arena, c, &b->t, &b->caps, &b->e)) report(b, c, 0);
    kir_print(&text, &k.kir);
    split(l, buf_view(&text));
    assert_int_equal(check_one(b, &k, 1, true), EXACT_YES);
    for (u32 f = 0; f < N_FAULTS; f++)
        for (u32 i = 0, done = 0; i < l->n && done < 6; i++) {
            struct arena a = {0};
            struct kernel wrong = k;
            /* for unused elements neither a missing term nor a constant makes a difference */
            bool is_idle = f == CONSTANT && with_fault(&wrong, l, i, TERM, &a) && is_within_tolerance(b, &wrong, 1);
            if (!is_idle && with_fault(&wrong, l, i, (enum fault)f, &a)) {
                bool found = check_one(b, &wrong, 1, false) == EXACT_DIFFERS, hidden = is_within_tolerance(b, &wrong, 1);
                if (!found && getenv("VERBOSE")) fprintf(stderr, "%s: not found: %.*s\n", fault_name[f], STR_ARG(l->v[i]));
                x->n[f]++, x->found[f] += found, x->hidden[f] += found && hidden;
                assert_true(found || (hidden && f != CONSTANT)); /* a mutation without effect is not a fault */
                done++;
            }
            arena_release(&a);
        }
    buf_release(&text);
}

static void test_faults(void **state)
{
    struct faults x = {0};
    static const char *const family[] = {"conv_winograd", "gemm", "wg_gemm", "conv_igemm"};
    for (u32 f = 0; f < countof(family); f++) {
        u32 done = 0;
        for (u64 seed = 0; seed < 60 && done < 2; seed++) {
            struct fixture b;
            fixture_open(&b, seed);
            if (f == 2) fixture_use_workgroups(&b);
            b.only = gen_find(str_of(family[f]));
            bool made = f == 0 ? random_conv_like(&b, true) : f == 3 ? random_conv(&b) : random_gemm(&b);
            if (made && gen_matches(b.only, &b.t, &b.caps)) {
                struct candidate c = gen_initial(b.only, &b.t, &b.caps, b.var);
                for (u32 i = 0; f == 0 && c.sched.v[0] < 4 && i < 100; i++) c = fixture_schedule(&b, b.only); /* tiles of 4 have constants beside 1 */
                try_faults(&b, &c, &x);
                done++;
            }
            fixture_close(&b);
        }
        assert_int_equal(done, 2);
    }
    for (u32 f = 0; f < N_FAULTS; f++) {
        print_message("%s: %u planted, %u change nothing, the others found; %u of these are within the tolerance\n", fault_name[f], x.n[f],
                      x.n[f] - x.found[f], x.hidden[f]);
        assert_true(x.n[f] > 0 && x.found[f] > 0);
    }
    assert_true(x.hidden[CONSTANT] > 0);
}

/* Sizes. */

/* A convolution; attention heads, whose number and length are factors of another size, in quotes,
   too; an embedding, whose work is mostly memory. */
static void test_reduced(void **state)
{
    static const struct { const char *text, *whole; } net[] = {
        {"graph { input %0: f32[1,256,56,56] @clast const %1: f32[512,256,3,3] %2: f32[1,512,56,56] @clast = Conv(%0, %1) "
         "{kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1], dilations=[1,1], group=1} output %2 }", "1x512x56x56"},
        {"graph { input %0: f32[1,12,384,64] %1: f32[1,384,12,64] = Transpose(%0) {perm=[0,2,1,3]} "
         "%2: f32[1,384,768] = quern::Reshape(%1) {shape=strs[\"1\",\"384\",\"768\"]} const %3: f32[768,768] "
         "%4: f32[1,384,768] = MatMul(%2, %3) output %4 }", "1x384x768"},
        {"graph { input %0: i64[1,128] const %1: f32[2000000,96] %2: f32[1,128,96] = Gather(%1, %0) {axis=0} output %2 }", "none"},
    };
    for (u32 i = 0; i < countof(net); i++) {
        struct fixture b;
        struct exact_result r;
        struct candidate c;
        fixture_open(&b, 2);
        if (!task_parse(&b.t, &b.arena, &b.sym, str_of(net[i].text), &b.e)) fail_msg("%s", b.e.msg);
        assert_true(gen_default(&b.t, &b.caps, NULL, &c));
        if (!exact_check(&r, &b.t, &c, &b.caps, &(struct exact_opts){0}, &b.e)) fail_msg("%s", b.e.msg);
        print_message("%s: %s, at %.*s, %lld steps\n", c.gen->name, exact_verdict_name(r.verdict), (int)r.sizes.n, r.sizes.p, (long long)r.n_steps);
        assert_int_equal(r.verdict, EXACT_YES);
        assert_true(r.n_steps < 100000000 && r.sizes.n > 0 && !strstr(r.sizes.p, net[i].whole));
        exact_result_release(&r);
        fixture_close(&b);
    }
}

/* Sizes that are compared while a program runs are equal in its tasks, though no fact says so. */
static void test_compared(void **state)
{
    static const char *const net[] = {
        "graph { input %0: f32[64,n] input %1: f32[32,128] %2: f32[64,128] = MatMul(%0, %1) output %2 }",
        "graph { input %0: f32[64,n] input %1: f32[m,128] %2: f32[64,128] = MatMul(%0, %1) output %2 }",
        "graph { input %0: f32[64,2*n] input %1: f32[m,24] %2: f32[64,24] = MatMul(%0, %1) %3: f32[64,24] = Relu(%2) output %3 }",
        "graph { input %0: f32[n,8] input %1: f32[17,8] %2: f32[17,8] = Add(%0, %1) output %2 }",
    };
    for (u32 i = 0; i < countof(net); i++)
        for (u64 seed = 0; seed < 4; seed++) {
            struct fixture b;
            struct exact_result r;
            struct candidate c;
            fixture_open(&b, seed);
            if (!task_restore(&b.t, &b.arena, &b.sym, str_of(net[i]), &b.e)) fail_msg("%s", b.e.msg);
            if (!gen_random(&b.t, &b.caps, &b.rng, &c)) fail_msg("no schedule: %s", net[i]);
            if (!exact_check(&r, &b.t, &c, &b.caps, &(struct exact_opts){.seed = seed}, &b.e)) fail_msg("%s", b.e.msg);
            if (r.verdict != EXACT_YES) fail_msg("%s: %s: %.*s", net[i], exact_verdict_name(r.verdict), (int)r.why.n, r.why.p);
            exact_result_release(&r);
            fixture_close(&b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laws),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_reduced),
        cmocka_unit_test(test_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
