// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: facts that networks need proven, and random expressions whose normal form must
// equal the written expression, round-trip as text, and be independent of the table's earlier
// content.
#include "sym_fixture.h"

static void check_same(struct symtab *t, const char *x, const char *y)
{
    struct buf b = {0};
    sym s = parse(t, x), r = parse(t, y);
    if (s == r) return;
    sym_print(&b, t, s);
    buf_z(&b, " is not ");
    sym_print(&b, t, r);
    fail_msg("%s == %s: %s", x, y, b.p);
}

/* clang-format off */
static void facts_are_proven(void **state)
{
    static const char *const same[][2] = {
#define P "(H + (64 - H%64)%64)"
        {P "//2*2", P}, {P "//64*64", P}, {"(" P "//2//2//2)*8", P},
        {"2*((H + (-H % 64))//2)", "H + -H % 64"},
#undef P
        {"(H-2)//2+1", "H//2"}, {"2*H//2", "H"}, {"(H+2-3)+1", "H"}, {"H//3//5", "H//15"},
        {"((H+1)//2+1)//2", "(H+3)//4"}, {"(3*H//2)//2", "3*H//4"}, {"(3*H//4)//2", "3*H//8"},
        {"(5*H)//3", "H + 2*H//3"}, {"-(-H//2)", "(H+1)//2"}, {"(4*H+2)//8", "(2*H+1)//4"},
        {"(H+W)*(H-W)", "H*H - W*W"},
        {"(H+1)*(W+2)*3//((W+2)*3)", "H+1"}, {"H*W*C//(W*C)", "H"},
        {"(H*W+W+C)//W", "H+1+C//W"}, {"H%64//64", "0"}, {"H%128%64", "H%64"},
        {"H%64%64", "H%64"},
        {"min(H,H)", "H"}, {"min(H,H+1)", "H"}, {"max(H,-3)", "H"}, {"max(W,H)", "max(H,W)"},
        {"min(H+3,W+3)", "min(H,W)+3"}, {"min(4*H,6*W)", "2*min(2*H,3*W)"},
        {"min(min(H,W),H)", "min(H,W)"}, {"min(H, (H+63)//64*64)", "H"},
        {"min(H*W, (H+63)//64*64*W)", "H*W"},
        {"max(H%64, 0)", "H%64"}, {"min(H%64, 63)", "H%64"}, 
        {"max(0, H - min(H,5))", "H - min(H,5)"},
        {"min(H, (H+1)//2)", "(H+1)//2"}, {"max(H//2*2, H-1)", "H//2*2"},
        {"7//2", "3"}, {"-7//2", "-4"},
        {"-7%3", "2"}, {"7%-3", "-2"},
        {"7//-2", "-4"}, {"H//-2", "-((H+1)//2)"}, {"H//H", "1"}, {"0*H", "0"},
        {"H//1", "H"}, {"H%1", "0"},
        {"6*H//(4*W)", "3*H//(2*W)"}, {"H//0", "1//0"}, {"H+1//0", "1//0"},
        {"9223372036854775807+1", "1//0"}, {"9223372036854775807*H*2", "1//0"},
    };
    /* clang-format on */
    struct fixture *f = *state;
    for (int i = 0; i < countof(same); i++) check_same(&f->t, same[i][0], same[i][1]);
}

static void divisibility_is_proven(void **state)
{
    struct fixture *f = *state;
    struct symtab *t = &f->t;
    assert_true(sym_divides(t, 64, parse(t, "H + (-H % 64)")));
    assert_true(sym_divides(t, -8, parse(t, "min(16*H, 24*W) + 8")));
    assert_false(sym_divides(t, 2, parse(t, "H")));
    assert_false(sym_divides(t, 4, parse(t, "4*H+2")));
    assert_false(sym_divides(t, 0, parse(t, "H")));
    assert_true(sym_divides(t, 5, parse(t, "0")));
}

static void bounds_are_proven(void **state)
{
    static const struct {
        const char *expr;
        bool known;
        i64 lo;
    } cases[] = {
        {"H+3", true, 3},        {"H*W-2", true, -2},
        {"3-H", false, 0},       {"(H+3)//2", true, 1},
        {"H-W", false, 0},       {"H//0", false, 0},
        {"-7", true, -7},        {"(H+63)//64*64-H", true, 0},
        {"5-H%6", true, 0},      {"max(H-W,4)", true, 4},
        {"W//(H-5)", false, 0},  {"max(H,W)-W", true, 0},
        {"H-min(W,H)", true, 0},
    };
    struct fixture *f = *state;
    for (int i = 0; i < countof(cases); i++) {
        i64 lo = INT64_MIN;
        if (sym_lower_bound(&f->t, parse(&f->t, cases[i].expr), &lo) != cases[i].known)
            fail_msg("%s", cases[i].expr);
        if (cases[i].known && lo != cases[i].lo) fail_msg("%s: %lld", cases[i].expr, (long long)lo);
    }
}

static void operations_on_none_and_undefined(void **state)
{
    struct fixture *f = *state;
    struct symtab *t = &f->t;
    sym h = sym_var(t, S("H")), bad = sym_div(t, h, sym_const(t, 0));
    i64 v, var = 5;
    assert_int_equal(sym_add(t, 0, h), 0);
    assert_int_equal(sym_max(t, h, 0), 0);
    assert_false(sym_is_defined(t, 0));
    assert_false(sym_is_defined(t, bad));
    assert_false(sym_eval(t, bad, &var, &v));
    assert_int_equal(sym_mul(t, bad, sym_const(t, 0)), bad);
    assert_int_equal(sym_min(t, bad, h), bad);
    assert_int_equal(sym_const(t, INT64_MIN), bad);
    var = INT64_MIN;
    assert_false(sym_eval(t, h, &var, &v));
    var = INT64_MAX / 2;
    assert_false(sym_eval(t, sym_mul(t, h, sym_const(t, 3)), &var, &v));
}

static void large_expressions_become_undefined(void **state)
{
    struct fixture *f = *state;
    struct symtab *t = &f->t;
    sym x = sym_const(t, 1), h = sym_var(t, S("H")), w = sym_var(t, S("W"));
    for (int i = 0; i < 3000; i++) x = sym_min(t, sym_add(t, x, h), sym_mul(t, w, sym_const(t, i)));
    assert_false(sym_is_defined(t, x));
    x = sym_add(t, h, w);
    for (int i = 0; i < 100; i++) x = sym_mul(t, x, sym_add(t, x, sym_const(t, 1)));
    assert_false(sym_is_defined(t, x));
    x = h;
    for (int i = 0; i < 3000; i++) x = sym_div(t, sym_add(t, x, w), sym_const(t, 3));
    assert_true(x != 0);
}

/* A random expression, built in a table and evaluated as written at the same time. */
struct gen {
    struct rng rng;
    struct symtab *t;
    i64 var[3];
};

struct pair {
    sym s;
    i64 v;
    bool ok; /* the written expression has a value */
};

/* Not as the library does it: the largest q with q*b on the right side of a. */
static i64 floor_of(i64 a, i64 b)
{
    i64 q = (i64)((double)a / (double)b) + 2;
    while (b > 0 ? q * b > a : q * b < a) q--;
    return q;
}

static struct pair combine(struct gen *g, struct pair x, struct pair y)
{
    struct symtab *t = g->t;
    bool ok = x.ok && y.ok, div = ok && y.v != 0;
    switch (rng_range(&g->rng, 0, 8)) {
    case 0: return (struct pair){sym_add(t, x.s, y.s), x.v + y.v, ok};
    case 1: return (struct pair){sym_sub(t, x.s, y.s), x.v - y.v, ok};
    case 2: return (struct pair){sym_mul(t, x.s, y.s), x.v * y.v, ok};
    case 3: return (struct pair){sym_min(t, x.s, y.s), i64_min(x.v, y.v), ok};
    case 4: return (struct pair){sym_max(t, x.s, y.s), i64_max(x.v, y.v), ok};
    case 5:
        return (struct pair){sym_mod(t, x.s, y.s), div ? x.v - y.v * floor_of(x.v, y.v) : 0, div};
    case 6: return (struct pair){sym_cdiv(t, x.s, y.s), div ? -floor_of(-x.v, y.v) : 0, div};
    default: return (struct pair){sym_div(t, x.s, y.s), div ? floor_of(x.v, y.v) : 0, div};
    }
}

static struct pair random_expr(struct gen *g, int depth)
{
    i64 pick = rng_range(&g->rng, 0, depth > 0 ? 9 : 2);
    if (pick == 0) {
        i64 i = rng_range(&g->rng, 0, 2);
        return (struct pair){sym_var(g->t, str_sub(S("HWC"), i, i + 1)), g->var[i], true};
    }
    if (pick <= 2) {
        i64 c = rng_range(&g->rng, -3, 12);
        return (struct pair){sym_const(g->t, c), c, true};
    }
    struct pair x = random_expr(g, depth - 1), y = random_expr(g, depth - 1);
    struct pair z = combine(g, x, y);
    if (z.v < -1000000 || z.v > 1000000) z.v = 0, z.ok = false;
    return z;
}

static void check_round_trip(struct symtab *t, sym s)
{
    struct buf b = {0}, b2 = {0};
    struct arena a = {0};
    struct symtab other;
    symtab_init(&other, &a);
    sym_print(&b, t, s);
    sym r = parse(t, b.p);
    if (r != s) sym_print(&b2, t, r);
    if (r != s) fail_msg("%s parses to %s", b.p, b2.p);
    sym_var(&other, S("C")); /* another order of names and ids */
    sym_print(&b2, &other, sym_copy(&other, t, s));
    assert_string_equal(b.p, b2.p);
    assert_int_equal(sym_copy(t, &other, parse(&other, b.p)), s);
    buf_release(&b);
    buf_release(&b2);
    arena_release(&a);
}

/* The value is within the bounds for any ranges around the variables; for single numbers it equals
   both. */
static void check_bounds(struct gen *g, sym s, i64 v, const char *text)
{
    struct sym_bounds var[3], all;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++)
            var[i] = (struct sym_bounds){g->var[i] - k * rng_range(&g->rng, 0, 9), g->var[i] + k * rng_range(&g->rng, 0, 9)};
        bool ok = sym_eval_bounds(g->t, s, var, &all);
        if (ok ? all.least > v || all.most < v || (!k && all.least < all.most) : !k)
            fail_msg("%s = %lld is not between %lld and %lld", text, (long long)v, (long long)all.least, (long long)all.most);
    }
}

static void check_random(struct symtab *t, u64 seed)
{
    struct gen g = {.rng = rng_seed(seed), .t = t};
    for (int i = 0; i < 3; i++) g.var[i] = rng_range(&g.rng, 0, 40);
    struct pair x = random_expr(&g, 5);
    i64 v = 0;
    if (x.ok && sym_is_defined(t, x.s)) {
        struct buf b = {0};
        sym_print(&b, t, x.s);
        bool ok = sym_eval(t, x.s, g.var, &v);
        if (!ok || v != x.v)
            fail_msg("seed %llu: %s is %lld, not %lld, at H=%lld W=%lld C=%lld",
                     (unsigned long long)seed, b.p, (long long)v, (long long)x.v,
                     (long long)g.var[0], (long long)g.var[1], (long long)g.var[2]);
        i64 lo;
        if (sym_lower_bound(t, x.s, &lo) && lo > v)
            fail_msg("seed %llu: %s >= %lld", (unsigned long long)seed, b.p, (long long)lo);
        check_bounds(&g, x.s, v, b.p);
        buf_release(&b);
    }
    check_round_trip(t, x.s);
}

static void random_expressions_keep_their_value(void **state)
{
    struct fixture *f = *state;
    sym_var(&f->t, S("H")), sym_var(&f->t, S("W")), sym_var(&f->t, S("C"));
    for (u64 seed = 1; seed <= 20000; seed++) check_random(&f->t, seed);
}

static void names_are_quoted(void **state)
{
    struct fixture *f = *state;
    static const struct str names[] = {
        {"batch size", 10}, {"min", 3},        {"", 0}, {"a'b\\c", 5},
        {"1x", 2},          {"\n\x7f\xff", 3}, {"?", 1}};
    for (int i = 0; i < countof(names); i++) {
        sym s = sym_add(&f->t, sym_var(&f->t, names[i]), sym_const(&f->t, 1));
        check_round_trip(&f->t, s);
    }
}

static void broken_text_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {"",       "H+",     "(H",
                                      "H)",     "min(H)", "min(H,",
                                      "min",    "H W",    "99999999999999999999",
                                      "'abc",   "'\\x1",  "'\\q'",
                                      "H/2",    "*",      "?",
                                      "max(,)", "H//"};
    char *p = mem_alloc(100000);
    for (int i = 0; i < 100000; i++) p[i] = i % 2 ? '-' : '(';
    for (int i = 0; i <= countof(bad); i++) {
        struct err e = {0};
        struct str s = i < countof(bad) ? str_of(bad[i]) : (struct str){p, 100000};
        if (sym_parse(&f->t, s, &e) != 0) fail_msg("parsed: %.20s", s.p);
        assert_int_equal(e.code, ERR_INPUT);
    }
    mem_free(p);
}

/* Names may be bound to expressions, and to each other, and unbound again. */
static void names_are_defined(void **state)
{
    struct symtab *t = &((struct fixture *)*state)->t;
    sym h = sym_var(t, S("H")), w = sym_var(t, S("W"));
    sym_define(t, S("height"), h);
    sym_define(t, S("N"), sym_const(t, 1));
    sym_define(t, S("H"), w);
    sym_define(t, S("W"), h);
    assert_int_equal(parse(t, "N*height"), h);
    assert_int_equal(parse(t, "H"), w);
    assert_int_equal(parse(t, "W - height"), sym_const(t, 0));
    sym_undefine(t);
    assert_int_equal(parse(t, "H"), h);
    assert_int_equal(parse(t, "height + N"), sym_add(t, h, sym_const(t, 1)));
    assert_int_equal(t->var.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(facts_are_proven, setup, teardown),
        cmocka_unit_test_setup_teardown(divisibility_is_proven, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_are_proven, setup, teardown),
        cmocka_unit_test_setup_teardown(operations_on_none_and_undefined, setup, teardown),
        cmocka_unit_test_setup_teardown(large_expressions_become_undefined, setup, teardown),
        cmocka_unit_test_setup_teardown(random_expressions_keep_their_value, setup, teardown),
        cmocka_unit_test_setup_teardown(names_are_quoted, setup, teardown),
        cmocka_unit_test_setup_teardown(names_are_defined, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_text_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
