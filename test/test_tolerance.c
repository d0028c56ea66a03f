// SPDX-License-Identifier: Apache-2.0
//
// Tolerances (src/tune/tolerance.c): results that are right but round less, or otherwise, than the reference are within them: those of random chains of
// operators that are computed without rounding any value on the way, and sums in f32. Results that are off by more units in the last place are not.
#include "gen_fixture.h"

static const enum dtype types[] = {DT_F64, DT_F32, DT_F16, DT_BF16};

/* A matmul with random operators behind it, none of which is a function with a pole. */
static bool random_chain(struct fixture *b)
{
    static const char *const one[] = {"Relu", "Sigmoid", "Tanh", "Exp", "Erf", "Neg"}, *const two[] = {"Add", "Mul", "Sub"};
    i64 rows = pick(b, 1, 9), k = pick(b, 1, 300), n = pick(b, 1, 40), length = pick(b, 0, 6);
    value_id x = add_input(b, "x", 2, (sym[]){sym_const(&b->sym, rows), sym_const(&b->sym, k)});
    value_id y = add_op(b, "MatMul", x, add_const(b, "w", 2, (i64[]){k, n}), 0);
    bool has_exp = false;
    for (i64 i = 0; i < length; i++) {
        i64 op = pick(b, 0, countof(one) + countof(two) - 1);
        if (op == 3 && has_exp) op = 0; /* of large numbers */
        has_exp |= op == 3;
        if (op == 3) y = add_op(b, "Tanh", y, 0, 0);
        if (op < countof(one)) y = add_op(b, one[op], y, 0, 0);
        else y = add_op(b, two[op - countof(one)], y, add_const(b, "c", 1, &n), 0);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

/* The task's output with all values on the way in f64, rounded once. */
static struct tensor *unrounded(struct fixture *b, const struct check *c)
{
    struct graph g;
    struct tensor **in = arena_array(&b->arena, struct tensor *, b->t.g.input.n + 1), *out;
    graph_clone(&g, &b->t.g, &b->arena);
    for (value_id v = 1; v < g.value.n; v++) {
        struct value *x = graph_value(&g, v);
        if (!dtype_is_float(x->dtype)) continue;
        x->dtype = DT_F64;
        if (x->producer) continue;
        const struct tensor *t = &c->value[v];
        struct tensor *to = tensor_new(&b->arena, DT_F64, t->rank, t->dim);
        for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_f64(DT_F64, to->data, i, elem_f64(t->dtype, t->data, i));
        if (x->is_const) x->data = to;
        for (u32 k = 0; k < g.input.n; k++)
            if (g.input.v[k] == v) in[k] = to;
    }
    if (!graph_eval(&g, in, &out, &b->arena, &(struct graph_eval_opts){.var = b->var}, &b->e)) fail_msg("%s", b->e.msg);
    struct tensor *to = tensor_new(&b->arena, c->want[0]->dtype, out->rank, out->dim);
    for (i64 i = 0, n = tensor_count(out); i < n; i++) elem_set_f64(to->dtype, to->data, i, elem_f64(DT_F64, out->data, i));
    return to;
}

/* In the layout of the task's output. */
static bool accepts(struct fixture *b, const struct check *c, const struct tensor *t)
{
    struct buf why = {0};
    struct place p;
    assert_true(place_of(&p, &b->t.g, b->t.g.output.v[0], b->var));
    void *bytes = arena_alloc(&b->arena, (size_t)(p.count * dtype_size(t->dtype)));
    place_store(&p, t, bytes);
    bool ok = check_output(c, 0, bytes, &why);
    if (!ok && getenv("VERBOSE")) print_message("%.*s\n", STR_ARG(buf_view(&why)));
    buf_release(&why);
    return ok;
}

static void test_unrounded(void **state)
{
    u32 n = 0, n_rounded = 0;
    for (u64 seed = first_seed(0, 400); seed < last_seed(0, 400); seed++) {
        struct fixture b;
        struct check c;
        fixture_open(&b, seed);
        b.type = types[seed % countof(types)];
        if (random_chain(&b) && check_init(&c, &b.t, b.var, seed, true, &b.e)) {
            struct tensor *t = unrounded(&b, &c);
            if (!accepts(&b, &c, t)) fail_msg("seed %llu: an unrounded result is outside the tolerance", (unsigned long long)seed);
            n_rounded += memcmp(t->data, c.want[0]->data, (size_t)tensor_bytes(t)) != 0, n++;
            check_release(&c);
        }
        fixture_close(&b);
    }
    assert_true(is_enough(n, 300) && is_enough(n_rounded, 60));
}

/* Of single matmuls, at the largest result. */
static void test_last_places(void **state)
{
    for (u32 i = 0; i < countof(types); i++) {
        struct fixture b;
        struct check c;
        fixture_open(&b, 1 + i);
        b.type = types[i];
        value_id x = add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, 4), sym_const(&b.sym, 64)});
        *arr_push(&b.arena, &b.g.output) = add_op(&b, "MatMul", x, add_const(&b, "w", 2, (i64[]){64, 32}), 0);
        assert_true(make_task(&b) && check_init(&c, &b.t, b.var, i, true, &b.e));
        bool is_short = dtype_size(b.type) == 2;
        i64 most = 0;
        double scale = 0;
        struct tensor *t = c.want[0], *got = tensor_new(&b.arena, t->dtype, t->rank, t->dim);
        for (i64 k = 0; k < tensor_count(t); k++)
            if (fabs(elem_f64(t->dtype, t->data, k)) > scale) scale = fabs(elem_f64(t->dtype, t->data, k)), most = k;
        double sums = 2 * (1 + 8 * sqrt(64) + 2 * 34), places[2] = {is_short ? 1 : 16, is_short ? 7 : sums}; /* within, outside */
        for (u32 k = 0; k < 2; k++) {
            memcpy(got->data, t->data, (size_t)tensor_bytes(t));
            elem_set_f64(t->dtype, got->data, most, elem_f64(t->dtype, t->data, most) + places[k] * check_last_place(t->dtype, scale));
            assert_int_equal(accepts(&b, &c, got), k == 0);
        }
        check_release(&c);
        fixture_close(&b);
    }
}

/* Sums of random numbers in f32, one term after the other, never leave the bound of sums; those without one of few terms do. */
static void test_sums(void **state)
{
    struct rng r = rng_seed(3);
    static const i64 sizes[] = {2, 10, 100, 1000, 30000};
    for (u32 i = 0; i < countof(sizes); i++) {
        double rtol, atol, worst = 0, scale = 0, lost = 0;
        check_tolerance(&(struct numerics){.type = DT_F32, .terms = (double)sizes[i], .steps = 1}, &rtol, &atol);
        for (u32 trial = 0; trial < 200; trial++) {
            volatile float sum = 0;
            double exact = 0, term = 0;
            for (i64 k = 0; k < sizes[i]; k++) {
                float a = (float)(rng_f64(&r) * 2 - 1), b = (float)(rng_f64(&r) * 2 - 1);
                term = (double)a * (double)b, exact += term, sum = (float)((double)sum + term);
            }
            worst = fmax(worst, fabs((double)sum - exact)), scale = fmax(scale, fabs(exact)), lost = fmax(lost, fabs(term));
        }
        assert_true(worst <= atol * scale);
        if (sizes[i] <= 1000) assert_true(lost > atol * scale + rtol * scale);
    }
}

/* Facts of a graph: a cast to f32 behind operators of bf16. */
static void test_numerics(void **state)
{
    struct fixture b;
    double rtol, atol, network_rtol, network_atol;
    fixture_open(&b, 0);
    b.type = DT_BF16;
    value_id x = add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, 8), sym_const(&b.sym, 50)});
    value_id y = add_op(&b, "Relu", add_op(&b, "MatMul", x, add_const(&b, "w", 2, (i64[]){50, 16}), 0), 0, 0);
    y = add_op(&b, "Cast", y, 0, 0);
    attr_set_int(&b.g, graph_value(&b.g, y)->producer, "to", 1);
    *arr_push(&b.arena, &b.g.output) = y;
    assert_true(op_infer_all(&b.g, &b.e));
    const struct numerics n = graph_numerics(&b.g, DT_F32, b.var), all = network_numerics(&b.g, DT_F32, b.var);
    assert_int_equal(n.type, DT_BF16);
    assert_true(n.terms == 50 && n.steps == 3 && n.roundings == 2 && all.terms == 100);
    check_tolerance(&n, &rtol, &atol), network_tolerance(&all, &network_rtol, &network_atol);
    assert_true(rtol > 0x1p-7 && rtol < 0x1.01p-7 && atol > 0x1p-5 && atol < 0x1.1p-5);
    assert_true(network_rtol == rtol && network_atol < atol);
    check_tolerance(&(struct numerics){.type = DT_I32, .terms = 50, .steps = 1}, &rtol, &atol);
    assert_true(rtol == 0 && atol == 0);
    fixture_close(&b);
}

static value_id add_number(struct fixture *b, double number)
{
    value_id v = add_const(b, "number", 0, NULL);
    struct tensor *t = graph_value(&b->g, v)->data;
    elem_set_f64(t->dtype, t->data, 0, number);
    return v;
}

static value_id add_cast(struct fixture *b, value_id v, enum dtype t)
{
    value_id y = add_op(b, "Cast", v, 0, 0);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "to", t == DT_U8 ? 2 : t == DT_I8 ? 3 : 1);
    return y;
}

/* Quarters of integers, rounded: those halfway between two integers may become either, in integer outputs, dequantised ones and sums. */
static void test_ties(void **state)
{
    enum { PLAIN, DEQUANTISED, SUMMED, N_KINDS };
    for (u32 i = 0; i < 2 * N_KINDS; i++) {
        const u32 kind = i % N_KINDS, type = i < N_KINDS ? DT_U8 : DT_I8;
        struct fixture b;
        struct check c;
        fixture_open(&b, 1 + i);
        b.type = DT_F32;
        value_id x = add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, 40), sym_const(&b.sym, 8)});
        value_id y = add_op(&b, "Floor", add_op(&b, "Mul", x, add_number(&b, 100), 0), 0, 0);
        y = add_op(&b, "Mul", y, add_number(&b, 0.25), 0);
        if (type == DT_U8) y = add_op(&b, "Add", y, add_number(&b, 40), 0);
        y = add_cast(&b, add_op(&b, "Round", y, 0, 0), type);
        if (kind != PLAIN) y = add_op(&b, "Mul", add_cast(&b, y, DT_F32), add_number(&b, 0.5), 0);
        if (kind == SUMMED) y = add_op(&b, "MatMul", y, add_const(&b, "w", 2, (i64[]){8, 8}), 0);
        *arr_push(&b.arena, &b.g.output) = y;
        if (!make_task(&b) || !check_init(&c, &b.t, b.var, i, true, &b.e)) fail_msg("%s", b.e.msg);
        struct tensor *t = c.want[0], *got = tensor_new(&b.arena, t->dtype, t->rank, t->dim);
        assert_true(c.ties.spread && accepts(&b, &c, t));
        i64 n_ties = 0;
        for (i64 k = 0; k < tensor_count(t); k++) {
            const double want = elem_f64(t->dtype, t->data, k), step = kind == PLAIN ? 1 : 0.5;
            const double quarters = kind == SUMMED ? 0 : floor((double)((float *)c.value[b.t.g.input.v[0]].data)[k] * 100.0f) + (type == DT_U8 ? 160 : 0);
            const bool is_tie = kind != SUMMED && fmod(fabs(quarters), 4) == 2;
            const double other = quarters > 4 * want / step ? want + step : want - step, beyond = 2 * want - other;
            memcpy(got->data, t->data, (size_t)tensor_bytes(t));
            elem_set_f64(t->dtype, got->data, k, kind == SUMMED ? want + 0.25 : other);
            if (accepts(&b, &c, got) != (is_tie || kind == SUMMED)) fail_msg("kind %u, element %lld: %g instead of %g", kind, (long long)k, other, want);
            elem_set_f64(t->dtype, got->data, k, kind == SUMMED ? want + 1000 : beyond);
            if (accepts(&b, &c, got)) fail_msg("kind %u, element %lld: %g instead of %g", kind, (long long)k, beyond, want);
            n_ties += is_tie;
        }
        assert_true(kind == SUMMED || n_ties > 20);
        check_release(&c);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unrounded),
        cmocka_unit_test(test_last_places),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_numerics),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
