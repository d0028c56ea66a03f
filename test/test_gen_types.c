// SPDX-License-Identifier: Apache-2.0
//
// Kernels of other element types than f32: matmuls, convolutions, reductions and pooling of f16, bf16 and f64, and matmuls of integers of 32 and 64
// bits whose sums wrap, and of f32 with weights stored in 16 bits, of random sizes under random legal schedules, against the reference evaluator: interpreted, and compiled for this CPU as it
// is and restricted to AVX2. Default schedules of integers use register tiles, those of f16 and bf16 convert
// both operands once.
#include "gen_tasks.h"

extern const struct gen gen_gemm;

static const enum dtype floats[] = {DT_F16, DT_BF16, DT_F64}, integers[] = {DT_I32, DT_U32, DT_I64, DT_U64};

static bool (*const of_floats[])(struct fixture *) = {random_gemm, random_conv, random_row, random_pool, random_point, random_depthwise, random_transpose};

/* An operand of any bits, as a constant or as an input. */
static value_id of_any_bits(struct fixture *b, const char *name, u32 rank, const i64 *dim)
{
    struct tensor *t = tensor_new(&b->arena, b->type, rank, dim);
    for (i64 i = 0, n = tensor_count(t); i < n; i++) elem_set_i64(b->type, t->data, i, (i64)rng_u64(&b->rng));
    return graph_add_const(&b->g, str_of(name), t);
}

/* Sums of products that overflow, plus a row that does. */
static bool random_wrapping(struct fixture *b)
{
    static const i64 sizes[] = {1, 2, 3, 5, 8, 15, 16, 17, 33, 65};
    i64 m = sizes[pick(b, 0, countof(sizes) - 1)], n = sizes[pick(b, 0, countof(sizes) - 1)], k = sizes[pick(b, 0, countof(sizes) - 1)];
    bool has_variable = pick(b, 0, 1);
    sym rows = size_of(b, m, has_variable), left[2] = {rows, sym_const(&b->sym, k)}, right[2] = {left[1], sym_const(&b->sym, n)};
    value_id x = add_input(b, "x", 2, left), w;
    if (pick(b, 0, 2)) w = of_any_bits(b, "w", 2, (i64[]){k, n});
    else w = add_op(b, "Mul", add_input(b, "w", 2, right), of_any_bits(b, "scale", 1, &n), 0);
    value_id y = add_op(b, "MatMul", x, w, 0);
    if (pick(b, 0, 1)) y = add_op(b, "Add", y, of_any_bits(b, "bias", 1, &n), 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static bool make_floats(struct fixture *b, u64 seed)
{
    b->type = floats[seed % countof(floats)];
    return of_floats[seed / countof(floats) % countof(of_floats)](b);
}

static bool make_integers(struct fixture *b, u64 seed)
{
    b->type = integers[seed % countof(integers)];
    return random_wrapping(b);
}

/* f32, with constant weights of a contraction in 16 bits, as pass_compact.c stores them. */
static bool make_compact(struct fixture *b, u64 seed)
{
    static bool (*const contractions[])(struct fixture *) = {random_gemm, random_conv, random_point, random_depthwise, random_transpose};
    struct graph *g = &b->t.g;
    u32 n_changed = 0;
    b->type = DT_F32;
    if (!contractions[seed % countof(contractions)](b)) return false;
    for (node_id n = 1; n < g->node.n; n++) {
        if (!(op_of(g, n)->props & (OP_MATMUL | OP_CONV | OP_TRANSPOSED))) continue;
        struct value *w = graph_value(g, graph_node(g, n)->in.v[1]);
        if (!w->is_const || w->data) continue;
        w->dtype = seed / countof(contractions) % 2 ? DT_F16 : DT_BF16;
        n_changed++;
    }
    return n_changed > 0;
}

static u32 interpret_tasks(bool (*make)(struct fixture *, u64), u64 from, u64 to)
{
    u32 n = 0;
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (make(&b, seed)) n += try_task(&b, seed, 4);
        fixture_close(&b);
    }
    return n;
}

static void test_floats(void **state)
{
    u32 n = interpret_tasks(make_floats, 0, 210);
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 400));
}

static void test_integers(void **state)
{
    u32 n = interpret_tasks(make_integers, 1000, 1060);
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 200));
}

static void test_compact(void **state)
{
    u32 n = interpret_tasks(make_compact, 5000, 5100);
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 150));
}

/* Matmuls of integers have register tiles, not the elementwise fallback. */
static void test_family(void **state)
{
    for (u64 seed = 0; seed < countof(integers); seed++) {
        struct fixture b;
        struct candidate c;
        fixture_open(&b, 2000 + seed);
        b.type = integers[seed];
        sym dim[2] = {sym_const(&b.sym, 64), sym_const(&b.sym, 96)};
        value_id y = add_op(&b, "MatMul", add_input(&b, "x", 2, dim), of_any_bits(&b, "w", 2, (i64[]){96, 64}), 0);
        *arr_push(&b.arena, &b.g.output) = y;
        assert_true(make_task(&b) && gen_default(&b.t, &b.caps, b.var, &c));
        assert_ptr_equal(c.gen, &gen_gemm);
        fixture_close(&b);
    }
}

static i64 parameter_of(const struct candidate *c, const char *name)
{
    u32 i = 0;
    while (i < c->gen->n_param && strcmp(c->gen->param[i].name, name) != 0) i++;
    assert_true(i < c->gen->n_param);
    return c->sched.v[i];
}

/* Matmuls of many rows of halves convert their left operand once, those of f32 need not copy it. In AVX2, whose conversions hide less behind
   multiply-adds, they convert a constant right operand once, too. */
static void test_conversions(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
    for (u32 i = 0; i < 2 * countof(types); i++) {
        struct fixture b;
        struct candidate c;
        fixture_open(&b, 0);
        b.type = types[i / 2];
        b.caps.vector_bytes = i % 2 ? 64 : 32, b.caps.n_vector_regs = i % 2 ? 32 : 16;
        sym dim[2] = {sym_const(&b.sym, 512), sym_const(&b.sym, 512)};
        value_id y = add_op(&b, "MatMul", add_input(&b, "x", 2, dim), add_const(&b, "w", 2, (i64[]){512, 512}), 0);
        *arr_push(&b.arena, &b.g.output) = y;
        node_id n = graph_value(&b.g, y)->producer;
        assert_true(op_infer_all(&b.g, &b.e) && task_make(&b.t, &b.g, &b.arena, &n, 1, &y, 1, arena_array(&b.arena, enum layout, b.g.value.n), NULL, &b.e));
        assert_true(gen_default(&b.t, &b.caps, b.var, &c));
        assert_ptr_equal(c.gen, &gen_gemm);
        assert_int_equal(parameter_of(&c, "pack"), b.type != DT_F32);
        if (b.caps.vector_bytes == 32) assert_int_equal(parameter_of(&c, "right"), b.type != DT_F32 ? 1 : 2);
        fixture_close(&b);
    }
}

/* Restricted to AVX2 every second time, where this processor has it. */
static void compile_task(bool (*make)(struct fixture *, u64), u64 seed)
{
    struct fixture b;
    struct check k;
    struct candidate c;
    const struct dev_opts o = {.n_threads = 2};
    fixture_open(&b, seed);
    assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
    if (seed / 2 % 2) caps_limit(&b.caps, S("isa=x86-64-v3"), NULL, &(struct err){0});
    if (make(&b, seed)) {
        open_device_check(&b, &k, seed);
        if (!choose(&b, (u32)(seed % 2), &c)) report(&b, NULL, seed);
        if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
        check_release(&k);
    }
    fixture_close(&b);
}

static void test_compiled(void **state)
{
    for (u64 seed = first_seed(3000, 3084); seed < last_seed(3000, 3084); seed++) compile_task(make_floats, seed);
    for (u64 seed = first_seed(4000, 4032); seed < last_seed(4000, 4032); seed++) compile_task(make_integers, seed);
    for (u64 seed = first_seed(6000, 6040); seed < last_seed(6000, 6040); seed++) compile_task(make_compact, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_compact),
        cmocka_unit_test(test_family),
        cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
