// SPDX-License-Identifier: Apache-2.0
//
// Facts about sizes: their consequences and texts; on all sizes that satisfy them every expression
// keeps its value; a satisfiable requirement holds for exactly the sizes that satisfy it.
#include "sym_fixture.h"

#include "seeds.h"

static void start(struct fixture *f)
{
    arena_release(&f->a);
    f->a = (struct arena){0};
    symtab_init(&f->t, &f->a);
}

static bool equal(struct symtab *t, const char *a, const char *b)
{
    sym second = parse(t, b); /* one order for all compilers: of two names the first one stays */
    return sym_require_equal(t, parse(t, a), second, S("Add 'x'"));
}

static void check_text(const struct symtab *t, u32 k, const char *want)
{
    struct buf b = {0};
    if (k >= t->fact.n) fail_msg("no fact %u, wanted %s", k, want);
    sym_fact_print(&b, t, &t->fact.v[k]);
    if (!str_is(buf_view(&b), want)) fail_msg("'%s', wanted '%s'", b.p, want);
    buf_release(&b);
}

/* clang-format off */
static void requirements_are_inferred(void **state)
{
    static const struct { const char *a, *b, *fact; } rows[] = {
        {"H//2*2", "H", "H to be a multiple of 2"},
        {"H//2//2//2*8", "H", "H to be a multiple of 8"},
        {"(H+1)//2*2", "H", "H to be a multiple of 2"},
        {"(H+1)//2*2-1", "H", "H-1 to be a multiple of 2"},
        {"(H-1)//4*4+3", "H", "H-3 to be a multiple of 4"},
        {"B*(H//2)*2", "B*H", "H to be a multiple of 2"},
        {"P+S", "T", "T to be P+S"},
        {"B2", "B1", "B2 to be B1"},
        {"4*Q", "H", "H to be Q*4"},
        {"H", "256", "H to be 256"},
        {"min(S,512)", "S", "S to be at most 512"},
        {"B*min(S,512)", "B*S", "S to be at most 512"},
        {"min(S+P,1024)", "S+P", "P+S to be at most 1024"},
        {"max(S-1,0)", "S-1", "S to be at least 1"},
        {"H//2", "W//3", "H//2 to be W//3"},
        {"3*H", "2*W", "H*3 to be W*2"},
    };
    struct fixture *f = *state;
    for (int k = 0; k < (int)countof(rows); k++) {
        start(f);
        assert_true(equal(&f->t, rows[k].a, rows[k].b));
        check_text(&f->t, 0, rows[k].fact);
        assert_int_equal(f->t.fact.n, 1);
        assert_true(equal(&f->t, rows[k].a, rows[k].b)); /* it follows now */
        assert_int_equal(f->t.fact.n, 1);
        if (k != 15) assert_int_equal(parse(&f->t, rows[k].a), parse(&f->t, rows[k].b));
    }
}
/* clang-format on */

static void contradictions_are_refused(void **state)
{
    static const char *const rows[][2] = {
        {"3", "4"}, {"H", "H+1"}, {"H//2*2", "H//2*2+1"}, {"H//2*4", "H//2*2+H//2*2+3"}, {"H+1", "0"}, {"H-2*(H//2)", "2"},
    };
    struct fixture *f = *state;
    for (int k = 0; k < (int)countof(rows); k++) {
        start(f);
        if (equal(&f->t, rows[k][0], rows[k][1])) fail_msg("%s == %s", rows[k][0], rows[k][1]);
        assert_int_equal(f->t.fact.n, 0);
    }
}

static void facts_narrow_each_other(void **state)
{
    struct fixture *f = *state;
    start(f);
    assert_true(equal(&f->t, "H//2*2", "H"));
    assert_true(sym_divides(&f->t, 2, parse(&f->t, "H")));
    assert_true(equal(&f->t, "H//2//2*2", "H//2"));
    assert_true(sym_divides(&f->t, 4, parse(&f->t, "H")));
    check_text(&f->t, 1, "H to be a multiple of 4");
    assert_true(equal(&f->t, "H", "W"));
    assert_true(sym_divides(&f->t, 4, parse(&f->t, "W")));
    assert_false(equal(&f->t, "H//2*2+1", "W"));
}

static void sizes_look_plain(void **state)
{
    static const char *const rows[] = {"H", "H//2", "H//16", "H*3", "H*H", "H//2*W", "(H+3)//32", "H//4*2+5"};
    struct fixture *f = *state;
    struct buf b = {0};
    start(f);
    assert_true(sym_require_multiple(&f->t, parse(&f->t, "H"), 16, S("x")));
    for (int k = 0; k < (int)countof(rows); k++) {
        sym s = parse(&f->t, rows[k]);
        b.n = 0;
        sym_print(&b, &f->t, sym_plain(&f->t, s));
        assert_int_equal(parse(&f->t, b.p), s);
        if (k < 4 && !str_is(buf_view(&b), rows[k])) fail_msg("'%s', wanted '%s'", b.p, rows[k]);
    }
    buf_release(&b);
}

/* Random chains of halving and joining, as networks have them. */
static sym random_size(struct symtab *t, struct rng *r, int depth)
{
    static const char *const name[] = {"H", "W"};
    i64 what = depth ? rng_range(r, 0, 7) : 7;
    sym a = what < 7 ? random_size(t, r, depth - 1) : 0;
    switch (what) {
    case 0: return sym_mul(t, a, sym_const(t, rng_range(r, 2, 3)));
    case 1:
    case 2: {
        sym by = sym_const(t, rng_range(r, 2, 4));
        return sym_div(t, sym_add(t, a, sym_const(t, rng_range(r, 0, 2))), by);
    }
    case 3: return sym_add(t, a, sym_const(t, rng_range(r, -1, 3)));
    case 4: return sym_add(t, a, random_size(t, r, depth - 1));
    case 5: return sym_min(t, a, sym_const(t, rng_range(r, 1, 40)));
    case 6: return sym_max(t, a, random_size(t, r, depth - 1));
    default: return sym_var(t, str_of(name[rng_range(r, 0, 3) == 0]));
    }
}

enum { N_EXPR = 6, SPAN = 25 };

/* The effect of a requirement on expressions, at all sizes that satisfy the facts. */
struct demand {
    sym a, b;
    bool is_equal; /* otherwise a >= b */
};

static void check_sizes(struct symtab *t, const sym *e, const struct demand *d, const i64 *var)
{
    i64 a, b;
    bool holds = !sym_fact_broken(t, var);
    if (holds && sym_eval(t, d->a, var, &a) && sym_eval(t, d->b, var, &b) && (d->is_equal ? a != b : a < b))
        fail_msg("facts hold, where %lld is not %lld", (long long)a, (long long)b);
    for (int k = 0; k < N_EXPR; k++) {
        if (!sym_eval(t, e[k], var, &a) || !holds) continue;
        if (!sym_eval(t, sym_current(t, e[k]), var, &b) || a != b) fail_msg("%lld became %lld", (long long)a, (long long)b);
        if (!sym_eval(t, sym_plain(t, sym_current(t, e[k])), var, &b) || a != b) fail_msg("plain form differs");
    }
}

static void check_values(struct symtab *t, const sym *e, const struct demand *d)
{
    i64 var[8];
    for (i64 h = 0; h < SPAN; h++)
        for (i64 w = 0; w < SPAN; w += 3) {
            for (u32 k = 0; k < t->var.n; k++) var[k] = str_is(t->var.v[k], "H") ? h : w;
            check_sizes(t, e, d, var);
        }
}

static void check_random(struct fixture *f, u64 seed)
{
    struct rng r = rng_seed(seed);
    sym e[N_EXPR];
    start(f);
    for (int k = 0; k < N_EXPR; k++) e[k] = random_size(&f->t, &r, (int)rng_range(&r, 0, 4));
    for (int k = 0; k < 3; k++) {
        struct demand d = {.is_equal = rng_range(&r, 0, 3) != 0};
        d.a = random_size(&f->t, &r, (int)rng_range(&r, 0, 4));
        d.b = random_size(&f->t, &r, (int)rng_range(&r, 0, 4));
        if (d.is_equal ? !sym_require_equal(&f->t, d.a, d.b, S("x")) : !sym_require_at_least(&f->t, d.a, d.b, S("x"))) break;
        assert_true(f->t.var.n <= 2); /* trials leave no variables */
        check_values(&f->t, e, &d);
    }
}

static void values_stay(void **state)
{
    for (u64 seed = first_seed(1, 400); seed < last_seed(1, 400); seed++) check_random(*state, seed);
}

/* For one variable the facts are equivalent to the requirement. */
static void facts_are_exact(void **state)
{
    struct fixture *f = *state;
    for (u64 seed = first_seed(1, 300); seed < last_seed(1, 300); seed++) {
        struct rng r = rng_seed(seed);
        start(f);
        sym h = parse(&f->t, "H"), a = h, b = h;
        for (i64 k = rng_range(&r, 0, 3); k > 0; k--) {
            i64 m = rng_range(&r, 2, 3), c = rng_range(&r, 0, 2);
            a = sym_add(&f->t, sym_mul(&f->t, sym_div(&f->t, sym_add(&f->t, a, sym_const(&f->t, c)), sym_const(&f->t, m)), sym_const(&f->t, m)),
                        sym_const(&f->t, rng_range(&r, -1, 1)));
        }
        bool ok = sym_require_equal(&f->t, a, b, S("x"));
        for (i64 v = 0; v < 60; v++) {
            i64 x;
            if (!sym_eval(&f->t, a, &v, &x)) continue;
            bool holds = ok && !sym_fact_broken(&f->t, &v);
            if (holds != (x == v)) fail_msg("at %lld: %d", (long long)v, holds);
        }
    }
}

/* The same with smaller and larger of two, and with bounds. */
static void facts_refuse_nothing_else(void **state)
{
    struct fixture *f = *state;
    for (u64 seed = first_seed(1, 600); seed < last_seed(1, 600); seed++) {
        struct rng r = rng_seed(seed);
        start(f);
        sym_var(&f->t, S("H"));
        struct demand d = {.is_equal = rng_range(&r, 0, 1)};
        d.a = random_size(&f->t, &r, (int)rng_range(&r, 0, 4)), d.b = random_size(&f->t, &r, (int)rng_range(&r, 0, 3));
        if (f->t.var.n > 1) continue;
        bool ok = d.is_equal ? sym_require_equal(&f->t, d.a, d.b, S("x")) : sym_require_at_least(&f->t, d.a, d.b, S("x"));
        for (i64 v = 0; v < 60; v++) {
            i64 x, y;
            if (!sym_eval(&f->t, d.a, &v, &x) || !sym_eval(&f->t, d.b, &v, &y)) continue;
            bool holds = ok && !sym_fact_broken(&f->t, &v), want = d.is_equal ? x == y : x >= y;
            if (holds != want) fail_msg("seed %lld: %lld and %lld at %lld: %d", (long long)seed, (long long)x, (long long)y, (long long)v, holds);
        }
    }
}

static void bounds_are_of_variables(void **state)
{
    static const struct { const char *a, *b, *fact; } rows[] = {
        {"H+2", "5", "H to be at least 3"},         {"(H-3)//2+1", "1", "H to be at least 3"}, {"H//2//2", "2", "H to be at least 8"},
        {"min(H,7)*2", "5", "H to be at least 3"},  {"5", "H", "H to be at most 5"},            {"H", "W", "H to be at least W"},
        {"H//2+max(H,4)", "9", "H to be at least 6"}, {"9", "H*2", "H to be at most 4"}, {"1", "(H+3)//4", "H to be at most 4"},
    };
    struct fixture *f = *state;
    i64 lo;
    for (int k = 0; k < (int)countof(rows); k++) {
        start(f);
        assert_true(sym_require_at_least(&f->t, parse(&f->t, rows[k].a), parse(&f->t, rows[k].b), S("Conv 'x'")));
        check_text(&f->t, 0, rows[k].fact);
        assert_true(sym_require_at_least(&f->t, parse(&f->t, rows[k].a), parse(&f->t, rows[k].b), S("Conv 'x'")));
        assert_int_equal(f->t.fact.n, 1);
    }
    start(f); /* through floors */
    assert_true(sym_require_multiple(&f->t, parse(&f->t, "H"), 2, S("x")));
    assert_true(sym_require_at_least(&f->t, parse(&f->t, "H//4"), sym_const(&f->t, 1), S("x")));
    assert_true(sym_require_at_least(&f->t, sym_const(&f->t, 9), parse(&f->t, "H//4"), S("x")));
    assert_int_equal(parse(&f->t, "min(1,H//4)"), sym_const(&f->t, 1));
    assert_int_equal(parse(&f->t, "max(9,H//4)"), sym_const(&f->t, 9));
    assert_int_equal(parse(&f->t, "min(W,H//4+W)"), parse(&f->t, "W"));
    start(f); /* the stronger fact is kept, and a contradiction to it is rejected */
    for (int k = 1; k < 4; k++) assert_true(sym_require_at_least(&f->t, parse(&f->t, "H"), sym_const(&f->t, k), S("x")));
    check_text(&f->t, 0, "H to be at least 3");
    assert_int_equal(f->t.fact.n, 1);
    assert_false(sym_require_at_least(&f->t, sym_const(&f->t, 2), parse(&f->t, "H"), S("x")));
    assert_true(sym_require_multiple(&f->t, parse(&f->t, "H"), 4, S("x")));
    assert_true(sym_lower_bound(&f->t, parse(&f->t, "H//2"), &lo));
    assert_int_equal(lo, 2);
    assert_false(sym_require_at_least(&f->t, parse(&f->t, "min(H,7)"), sym_const(&f->t, 8), S("x")));
}

static void sums_are_solved(void **state)
{
    struct fixture *f = *state;
    i64 var[4] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
    start(f);
    sym s = parse(&f->t, "4*Q+1");
    assert_true(sym_solve(&f->t, s, 9, var));
    assert_int_equal(var[0], 2);
    assert_false(sym_solve(&f->t, s, 9, var));
    var[0] = INT64_MIN;
    assert_false(sym_solve(&f->t, parse(&f->t, "Q*Q"), 9, var));
    assert_false(sym_solve(&f->t, parse(&f->t, "Q+R"), 9, var));
    assert_false(sym_solve(&f->t, parse(&f->t, "Q//2"), 9, var));
    var[0] = 3;
    assert_true(sym_solve(&f->t, parse(&f->t, "Q*Q+R"), 10, var));
    assert_int_equal(var[1], 1);
}

static void explanations_name_sizes(void **state)
{
    struct fixture *f = *state;
    struct buf b = {0};
    i64 var[4] = {255};
    start(f);
    assert_true(sym_require_equal(&f->t, parse(&f->t, "H//2*2"), parse(&f->t, "H"), S("Concat '/Concat'")));
    const struct sym_fact *x = sym_fact_broken(&f->t, var);
    assert_non_null(x);
    sym_fact_explain(&b, &f->t, x, var);
    assert_string_equal(b.p, "H = 255, but Concat '/Concat' needs H to be a multiple of 2");
    buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requirements_are_inferred, setup, teardown),
        cmocka_unit_test_setup_teardown(contradictions_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_narrow_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(sizes_look_plain, setup, teardown),
        cmocka_unit_test_setup_teardown(values_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(facts_refuse_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_are_of_variables, setup, teardown),
        cmocka_unit_test_setup_teardown(sums_are_solved, setup, teardown),
        cmocka_unit_test_setup_teardown(explanations_name_sizes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
