// SPDX-License-Identifier: Apache-2.0
//
// The price of prologues and epilogues: operations are counted with functions as arithmetic; predictions grow with the number of evaluations; and the
// selection stores what a kernel would evaluate again and again, but not what is cheaper than storing and loading it.
#include "gen_fixture.h"
#include "plan/plan.h"

/* x with so many sines, one after the other. */
static value_id sines(struct fixture *b, value_id x, u32 n)
{
    while (n--) x = add_op(b, "Sin", x, 0, 0);
    return x;
}

static bool product(struct fixture *b, i64 rows, i64 terms, i64 columns, u32 n_sines)
{
    sym dim[] = {sym_const(&b->sym, rows), sym_const(&b->sym, terms)};
    value_id x = sines(b, add_input(b, "x", 2, dim), n_sines);
    *arr_push(&b->arena, &b->g.output) = add_op(b, "MatMul", x, add_const(b, "w", 2, (i64[]){terms, columns}), 0);
    return op_infer_all(&b->g, &b->e);
}

static void test_count(void **state)
{
    struct fixture b;
    fixture_open(&b, 0);
    value_id x = add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, 30), sym_const(&b.sym, 40)});
    value_id relu = add_op(&b, "Relu", x, 0, 0), one = sines(&b, x, 1), two = sines(&b, one, 1), turned = add_op(&b, "Transpose", x, 0, 0);
    value_id many[5] = {x, one, two, relu, x}, all = graph_op(&b.g, "Concat", S("all"), 5, many);
    attr_set_int(&b.g, graph_value(&b.g, all)->producer, "axis", 1);
    *arr_push(&b.arena, &b.g.output) = all;
    assert_true(op_infer_all(&b.g, &b.e));
    assert_true(gen_front(&b.g, x) == 0 && gen_front(&b.g, turned) == 0);
    double r = gen_front(&b.g, relu), s = gen_front(&b.g, one), t = gen_front(&b.g, two);
    assert_true(r > 0 && r < 4);
    assert_true(s > 5 * r && t > 1.5 * s && t < 2.5 * s);
    assert_true(gen_front(&b.g, all) > s + t); /* each element evaluates all parts */
    fixture_close(&b);
}

/* From the elements of a product: nothing where they are the output, few operations of a Relu, many of a function, and all outputs count. */
static void test_count_behind(void **state)
{
    double n[4];
    for (u32 i = 0; i < countof(n); i++) {
        struct fixture b;
        fixture_open(&b, 0);
        value_id x = add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, 30), sym_const(&b.sym, 40)});
        value_id y = add_op(&b, "MatMul", sines(&b, x, 1), add_const(&b, "w", 2, (i64[]){40, 50}), 0);
        value_id relu = add_op(&b, "Relu", y, 0, 0), sine = sines(&b, y, 1);
        if (i != 1) *arr_push(&b.arena, &b.g.output) = i == 0 ? y : sine;
        if (i % 2) *arr_push(&b.arena, &b.g.output) = relu;
        assert_true(op_infer_all(&b.g, &b.e));
        n[i] = gen_back(&b.g, y);
        fixture_close(&b);
    }
    assert_true(n[0] == 0 && n[1] > 0 && n[1] < 4);
    assert_true(n[2] > 5 * n[1] && n[3] == n[1] + n[2]);
}

/* Seconds of the schedule with nb blocks of columns per grid iteration, 0: all; 0: it is not legal. */
static double seconds(struct fixture *b, struct candidate c, i32 nb)
{
    for (u32 i = 0; i < c.gen->n_param; i++)
        if (!strcmp(c.gen->param[i].name, "nb")) c.sched.v[i] = nb;
    return gen_legal(&c, &b->t, &b->caps) ? gen_predict(&c, &b->t, &b->caps, b->var) : 0;
}

/* Left operands packed again for each block of columns pay their prologue for each, those packed for all columns once. */
static void test_columns(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 20); seed < last_seed(0, 20); seed++) {
        struct fixture plain, front;
        fixture_open(&plain, seed), fixture_open(&front, seed);
        plain.caps.vector_bytes = front.caps.vector_bytes = 64;
        i64 rows = pick(&plain, 100, 3000), terms = pick(&plain, 16, 128), columns = pick(&plain, 512, 2048);
        assert_true(product(&plain, rows, terms, columns, 0) && product(&front, rows, terms, columns, 3));
        assert_true(make_task(&plain) && make_task(&front));
        for (u32 i = 0; i < 50; i++) {
            struct candidate c;
            if (!gen_random(&front.t, &front.caps, &front.rng, &c) || strcmp(c.gen->name, "gemm")) continue;
            double a1 = seconds(&plain, c, 1), a0 = seconds(&plain, c, 0), b1 = seconds(&front, c, 1), b0 = seconds(&front, c, 0);
            if (a1 <= 0 || a0 <= 0 || b1 <= 0 || b0 <= 0) continue;
            assert_true(b1 > a1 && b0 > a0);
            assert_true(b1 - a1 > 2 * (b0 - a0)); /* at least 512/(8*16) blocks */
            n++;
        }
        fixture_close(&plain), fixture_close(&front);
    }
    print_message("%u schedules\n", n);
    assert_true(is_enough(n, 40));
}

/* Does the kernel of the product evaluate its prologue? */
static bool is_fused(struct fixture *b)
{
    struct cover c = {0};
    struct selection s;
    bool fused = false;
    assert_true(cover_build(&c, &b->g, &b->arena, NULL, &b->e));
    assert_true(plan_select(&s, &c, b->var, plan_cost_predicted, &b->caps, &b->arena, &b->e));
    for (u32 i = 0; i < s.choice.n; i++) {
        const struct region *r = &c.region.v[s.choice.v[i].region];
        for (u32 k = 0; k < r->n_nodes; k++) fused |= r->n_nodes > 1 && op_of(&b->g, r->nodes[k])->props & OP_MATMUL;
    }
    return fused;
}

static void test_selection(void **state)
{
    for (u64 seed = first_seed(0, 10); seed < last_seed(0, 10); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.caps.n_threads = 64;
        i64 rows = pick(&b, 2000, 8000), terms = pick(&b, 32, 128), columns = pick(&b, 2000, 8000);
        assert_true(product(&b, rows, terms, columns, 6));
        assert_false(is_fused(&b)); /* a prologue of 6 sines, for tens of blocks of columns */
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_count_behind),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_selection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
