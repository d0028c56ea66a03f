// SPDX-License-Identifier: Apache-2.0
//
// Matmuls whose right operand is codes of few bits (quern::Dequantize): kernels of `gemm` under random legal schedules, of all types, blocks, zero
// points and odd sizes, with prologues and epilogues, against the reference evaluator, with codes of all values: interpreted, compiled for this CPU as
// it is and restricted to AVX2, and exactly, over a field; by multiply-adds and, where the left operand may be rounded, by products of bytes. Kernels of
// other families compute the numbers as any operand's prologue. Default schedules read codes, not floats. Words hold codes as lower.h says.
#include "gen_tasks.h"
#include "tune/exact.h"

extern const struct gen gen_gemm;

static const enum dtype types[] = {DT_U2, DT_U4, DT_U8, DT_I8, DT_F4E2M1, DT_F8E4M3FN};

static struct tensor *codes(struct fixture *b, enum dtype t, i64 k, i64 n)
{
    struct tensor *q = tensor_new(&b->arena, t, 2, (i64[]){k, n});
    for (i64 i = 0; i < k * n; i++) {
        if (dtype_is_float(t)) elem_set_f64(t, q->data, i, rng_f64(&b->rng) * 12 - 6);
        else elem_set_i64(t, q->data, i, (i64)(rng_u64(&b->rng) & 255) - (t == DT_I8 ? 128 : 0));
    }
    return q;
}

static value_id weights_of(struct fixture *b, enum dtype t, i64 k, i64 n, i64 block)
{
    static const enum dtype scales[] = {DT_F32, DT_F16, DT_BF16};
    i64 blocks[] = {ceil_div(k, block), n};
    bool is_float = dtype_is_float(t), has_zeros = pick(b, 0, 1) && !is_float, has_offset = pick(b, 0, 1) && !is_float && t != DT_I8;
    struct tensor *scale = tensor_new(&b->arena, scales[pick(b, 0, 2)], 2, blocks), *zero = tensor_new(&b->arena, DT_U8, 2, blocks);
    for (i64 i = 0; i < blocks[0] * n; i++) {
        elem_set_f64(scale->dtype, scale->data, i, (rng_f64(&b->rng) + 0.1) * (pick(b, 0, 1) ? 0.1 : -0.1));
        elem_set_i64(DT_U8, zero->data, i, pick(b, 0, (1 << i64_min(8, dtype_bits(t))) - 1));
    }
    value_id in[3] = {graph_add_const(&b->g, S("q"), codes(b, t, k, n)), graph_add_const(&b->g, S("scale"), scale), 0};
    if (has_zeros) in[2] = graph_add_const(&b->g, S("zero"), zero);
    value_id w = graph_op(&b->g, "quern::Dequantize", S("w"), has_zeros ? 3 : 2, in);
    node_id node = graph_value(&b->g, w)->producer;
    attr_set_int(&b->g, node, "block", block);
    if (has_offset && !has_zeros) attr_set_int(&b->g, node, "offset", (i64)1 << (dtype_bits(t) - 1));
    if (b->type != DT_F32) attr_set_int(&b->g, node, "to", dtype_onnx(b->type));
    return w;
}

/* Products of bytes, by words or by pairs, or none. */
static void choose_dots(struct fixture *b, u64 seed)
{
    static const char dots[] = "u8,i8,i32", pairs[] = "u8,i8,i16 i16,i16,i32";
    if (seed % 5 == 1) memcpy(b->caps.dot, dots, sizeof dots);
    if (seed % 5 >= 3) memcpy(b->caps.dot, pairs, sizeof pairs);
}

/* Contents of constants are dropped from tasks; random ones would be small codes. */
static void keep_contents(struct fixture *b)
{
    value_id from = 1;
    for (value_id v = 1; v < b->t.g.value.n; v++) {
        struct value *x = graph_value(&b->t.g, v);
        if (!x->is_const) continue;
        while (!graph_value(&b->g, from)->is_const || graph_value(&b->g, from)->dtype != x->dtype) from++;
        x->data = graph_value(&b->g, from++)->data;
    }
}

static bool make(struct fixture *b, u64 seed, bool has_contents)
{
    static const i64 blocks[] = {16, 32, 48, 64, 128, 256}, rows[] = {1, 1, 2, 4, 7, 16, 33, 70};
    static const i64 columns[] = {1, 3, 16, 17, 40, 64, 100}, some[] = {1, 15, 16, 33, 96, 130, 256, 300};
    enum dtype t = types[seed % countof(types)];
    i64 block = blocks[pick(b, 0, countof(blocks) - 1)], m = rows[pick(b, 0, countof(rows) - 1)];
    i64 n = columns[pick(b, 0, countof(columns) - 1)], k = some[pick(b, 0, countof(some) - 1)];
    b->type = pick(b, 0, 3) ? DT_F32 : pick(b, 0, 1) ? DT_F16 : DT_BF16;
    bool has_variable = pick(b, 0, 1), is_batched = pick(b, 0, 3) == 0;
    sym left[3] = {sym_const(&b->sym, 2), size_of(b, m, has_variable), sym_const(&b->sym, k)};
    value_id x = add_input(b, "x", is_batched ? 3 : 2, is_batched ? left : left + 1);
    if (pick(b, 0, 3) == 0) x = add_op(b, "Relu", x, 0, 0);
    value_id w = weights_of(b, t, k, n, block), y = add_op(b, "MatMul", x, w, 0);
    i64 digits = pick(b, 0, 3);
    if (digits < 3 && digits) attr_set_int(&b->g, graph_value(&b->g, y)->producer, "digits", digits);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    if (!make_task(b)) return false;
    if (has_contents) keep_contents(b);
    return true;
}

static void test_interpreted(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 300); seed < last_seed(0, 300); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.caps.deterministic = seed / 7 % 4 == 0;
        choose_dots(&b, seed);
        if (make(&b, seed, true)) n += try_task(&b, seed, 4);
        else fail_msg("seed %d: %s", (int)seed, b.e.msg);
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 500));
}

/* Devices with workgroups evaluate the prologue. */
static void test_workgroups(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(1000, 1060); seed < last_seed(1000, 1060); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        if (make(&b, seed, true)) n += try_task(&b, seed, 2);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 60));
}

static void test_compiled(void **state)
{
    const struct dev_opts o = {.n_threads = 2};
    for (u64 seed = first_seed(2000, 2060); seed < last_seed(2000, 2060); seed++) {
        struct fixture b;
        struct check k;
        struct candidate c;
        fixture_open(&b, seed);
        assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
        if (seed / 2 % 2) caps_limit(&b.caps, S("isa=x86-64-v3"), NULL, &(struct err){0});
        assert_true(make(&b, seed, true));
        open_device_check(&b, &k, seed);
        if (!choose(&b, (u32)(seed % 2), &c)) report(&b, NULL, seed);
        if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
        check_release(&k);
        fixture_close(&b);
    }
}

/* Sums of blocks times scales are the sums of the numbers, whatever the scales are. */
static void test_exact(void **state)
{
    u32 n_exact = 0, n = 0;
    for (u64 seed = first_seed(3000, 3040); seed < last_seed(3000, 3040); seed++) {
        struct fixture b;
        struct candidate c;
        struct exact_result r;
        const struct exact_opts o = {.seed = seed, .max_work = 200000};
        fixture_open(&b, seed);
        b.caps.deterministic = seed / 7 % 2;
        choose_dots(&b, seed);
        assert_true(make(&b, seed, false) && choose(&b, (u32)(seed % 3), &c));
        if (!exact_check(&r, &b.t, &c, &b.caps, &o, &b.e)) fail_msg("seed %d: %s", (int)seed, b.e.msg);
        if (r.verdict == EXACT_DIFFERS) b.e = (struct err){0}, err_set(&b.e, ERR_FAILED, "%.*s", (int)r.why.n, r.why.p), report(&b, &c, seed);
        n_exact += r.verdict == EXACT_YES, n++;
        exact_result_release(&r);
        fixture_close(&b);
    }
    print_message("%u of %u exact\n", n_exact, n);
}

/* A product of one row reads codes as they are, one of many rows converts them once; neither has weights of f32 in memory. */
static void test_default(void **state)
{
    static const i64 rows[] = {1, 512};
    for (u64 i = 0; i < countof(rows) * countof(types); i++) {
        struct fixture b;
        struct candidate c;
        struct kernel k;
        fixture_open(&b, i);
        b.caps.vector_bytes = 64;
        sym dim[2] = {sym_const(&b.sym, rows[i % countof(rows)]), sym_const(&b.sym, 1024)};
        value_id y = add_op(&b, "MatMul", add_input(&b, "x", 2, dim), weights_of(&b, types[i / countof(rows)], 1024, 1024, 32), 0);
        *arr_push(&b.arena, &b.g.output) = y;
        node_id nodes[] = {1, 2};
        assert_true(op_infer_all(&b.g, &b.e) && task_make(&b.t, &b.g, &b.arena, nodes, 2, &y, 1, arena_array(&b.arena, enum layout, b.g.value.n), NULL, &b.e));
        assert_true(gen_default(&b.t, &b.caps, b.var, &c) && gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e));
        assert_ptr_equal(c.gen, &gen_gemm);
        assert_int_equal(k.n_temp, 0);
        assert_int_equal(value_of(&c, "right"), rows[i % countof(rows)] == 512 ? 1 : 2);
        fixture_close(&b);
    }
}

/* A row's block is integers of 7, 15 or 22 bits, whatever its magnitude: results have that error of the largest element of a block, also of sums of the
   largest codes; zeros stay zeros, columns of zero points are 0, and an element that is no number spoils its row alone. Integers of 22 bits are exact. */
static void test_digits(void **state)
{
    enum { K = 256, N = 32, M = 6, BLOCK = 32 };
    static const double magnitude[M] = {1, 1e30, 1e-20, 0, 3e34, 1e-29};
    /* Products of 4 bytes or of pairs; one digit, two where it may be one, two or three; zero points or none; codes of 4 bits or of 8, whose pairs are of i16,
       for one digit or two. */
    for (u64 way = 0; way < 32; way++) {
        const bool are_bytes = way / 16, are_words = are_bytes && way % 2;
        if (are_words && way / 2 % 4 == 3) continue;
        struct fixture b;
        struct candidate c;
        struct kernel k;
        struct check check;
        struct bound bound;
        fixture_open(&b, way);
        choose_dots(&b, way % 2 ? 3 : 1);
        b.caps.vector_bytes = 64;
        const i64 codes = are_bytes ? 256 : 16;
        struct tensor *q = tensor_new(&b.arena, are_bytes ? DT_U8 : DT_U4, 2, (i64[]){K, N}), *scale = tensor_new(&b.arena, DT_F32, 2, (i64[]){K / BLOCK, N});
        for (i64 i = 0; i < K * N; i++) ((u8 *)q->data)[i] = (u8)(i % N == 0 ? codes - 1 : i % N == 1 ? 0 : i % N == 2 ? codes / 2 : rng_range(&b.rng, 0, codes - 1));
        for (i64 i = 0; i < tensor_count(scale); i++) ((float *)scale->data)[i] = (float)(0.1 + rng_f64(&b.rng));
        value_id in[] = {graph_add_const(&b.g, S("q"), q), graph_add_const(&b.g, S("s"), scale)}, w = graph_op(&b.g, "quern::Dequantize", S("w"), 2, in);
        attr_set_int(&b.g, graph_value(&b.g, w)->producer, "block", BLOCK);
        const bool has_offset = way / 8 % 2;
        if (has_offset) attr_set_int(&b.g, graph_value(&b.g, w)->producer, "offset", codes / 2);
        const i64 fewest = (i64[]){1, 1, 2, 3}[way / 2 % 4], digits = are_words ? 2 : (i64[]){1, 2, 2, 3}[way / 2 % 4], rows = way % 2 && digits == 3 ? 1 : M, odd_row = rows > 1; /* pairs of three digits are for one row */
        value_id y = add_op(&b, "MatMul", add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, rows), sym_const(&b.sym, K)}), w, 0);
        if (fewest < 3) attr_set_int(&b.g, graph_value(&b.g, y)->producer, "digits", fewest);
        *arr_push(&b.arena, &b.g.output) = y;
        assert_true(op_infer_all(&b.g, &b.e) && task_make(&b.t, &b.g, &b.arena, (node_id[]){1, 2}, 2, &y, 1, arena_array(&b.arena, enum layout, b.g.value.n), NULL, &b.e));
        keep_contents(&b);
        c = gen_initial(&gen_gemm, &b.t, &b.caps, b.var);
        assert_int_equal(value_of(&c, "right"), 2);
        assert_true(value_of(&c, "pack") == 1 || (fewest == 1 && value_of(&c, "pack") == 2));
        set_value(&c, "pack", digits == 1 ? 2 : 1);
        for (i64 f = 1; f <= 3; f++) { /* bytes are for operands that may be bytes */
            attr_set_int(&b.t.g, b.t.anchor, "digits", f % 3);
            struct candidate bytes = c;
            set_value(&bytes, "pack", 2);
            assert_int_equal(gen_legal(&bytes, &b.t, &b.caps), f == 1 && !are_words);
        }
        attr_set_int(&b.t.g, b.t.anchor, "digits", fewest % 3);
        assert_true(gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) && check_init(&check, &b.t, b.var, way, true, &b.e));
        float *x = check.value[b.t.g.input.v[0]].data;
        for (i64 i = 0; i < rows * K; i++) x[i] = (float)((rng_f64(&b.rng) * 2 - 1) * magnitude[i / K]);
        for (int odd = 0; odd < 3; odd++) {
            if (odd == 2)
                for (i64 i = 0; i < rows * K; i++) x[i] = ldexpf((float)rng_range(&b.rng, -4194303, 4194303), (int)(i / K) * 7 - 20);
            if (odd == 1) x[odd_row * K + 5] = NAN;
            assert_true(bind_arguments(&bound, &k, &check, &b.arena, &b.e));
            if (!kir_eval(&k.kir, bound.arg, bound.param, NULL, &b.e)) fail_msg("%s", b.e.msg);
            const float *got = bound.arg[k.n_arg - 1].p;
            for (i64 i = 0; i < rows * N; i++) {
                double want = 0, error = 0, unit = digits == 1 ? 127 : digits == 2 ? 16319 : 1 << 21;
                float exact = 0;
                for (i64 from = 0; from < K; from += BLOCK) {
                    double most = 0, weights = 0, sum = 0, s = (double)((float *)scale->data)[from / BLOCK * N + i % N];
                    for (i64 t = from; t < from + BLOCK; t++) {
                        double a = (double)x[i / N * K + t], code = (double)((u8 *)q->data)[t * N + i % N] - (has_offset ? codes / 2 : 0), v = code * s;
                        sum += a * code, want += a * v, most = fmax(most, fabs(a)), weights += fabs(v);
                    }
                    error += most * weights * (0.5 / unit + 1e-6);
                    exact = fmaf((float)sum, (float)s, exact);
                }
                if (odd == 1 && i / N == odd_row) assert_true(isnan(got[i]));
                else if (has_offset && i % N == 2) assert_true(got[i] == 0);
                else if (odd == 2 && digits == 3 && !are_bytes) assert_true(got[i] == exact);
                else if (!(fabs((double)got[i] - want) <= error)) fail_msg("way %d: element %d: %g instead of %g", (int)way, (int)i, (double)got[i], want);
            }
        }
        check_release(&check);
        fixture_close(&b);
    }
}

/* A sum of K times (code - zero), of the same code, zero point and left operand, 1, which is the largest of its block, in each term; digits as the attribute. */
static void try_far_zero(u64 way, enum dtype type, i64 offset, i64 digits)
{
    enum { K = 512, N = 16, ZERO = 255 };
    struct fixture b;
    struct candidate c;
    struct kernel k;
    struct check check;
    struct bound bound;
    fixture_open(&b, way);
    choose_dots(&b, way % 2 ? 3 : 1);
    b.caps.vector_bytes = 64;
    const i64 code = type == DT_I8 ? -128 : offset < 0 ? (1 << dtype_bits(type)) - 1 : 0;
    struct tensor *q = tensor_new(&b.arena, type, 2, (i64[]){K, N}), *scale = tensor_new(&b.arena, DT_F32, 2, (i64[]){1, N}), *zero = tensor_new(&b.arena, DT_U8, 2, (i64[]){1, N});
    for (i64 i = 0; i < K * N; i++) elem_set_i64(type, q->data, i, code);
    for (i64 i = 0; i < N; i++) ((float *)scale->data)[i] = 0.5, ((u8 *)zero->data)[i] = ZERO;
    value_id in[] = {graph_add_const(&b.g, S("q"), q), graph_add_const(&b.g, S("s"), scale), 0};
    if (!offset) in[2] = graph_add_const(&b.g, S("z"), zero);
    value_id x = add_input(&b, "x", 2, (sym[]){sym_const(&b.sym, 1), sym_const(&b.sym, K)}), w = graph_op(&b.g, "quern::Dequantize", S("w"), offset ? 2 : 3, in);
    attr_set_int(&b.g, graph_value(&b.g, w)->producer, "block", K);
    if (offset) attr_set_int(&b.g, graph_value(&b.g, w)->producer, "offset", offset);
    value_id y = add_op(&b, "MatMul", x, w, 0);
    if (digits) attr_set_int(&b.g, graph_value(&b.g, y)->producer, "digits", digits);
    *arr_push(&b.arena, &b.g.output) = y;
    assert_true(op_infer_all(&b.g, &b.e) && task_make(&b.t, &b.g, &b.arena, (node_id[]){1, 2}, 2, &y, 1, arena_array(&b.arena, enum layout, b.g.value.n), NULL, &b.e));
    keep_contents(&b);
    c = gen_initial(&gen_gemm, &b.t, &b.caps, b.var);
    assert_true(gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) && check_init(&check, &b.t, b.var, way, false, &b.e));
    for (i64 i = 0; i < K; i++) ((float *)check.value[b.t.g.input.v[0]].data)[i] = 1;
    if (!bind_arguments(&bound, &k, &check, &b.arena, &b.e) || !kir_eval(&k.kir, bound.arg, bound.param, NULL, &b.e)) report(&b, &c, way);
    for (i64 i = 0; i < N; i++) {
        const double got = (double)((const float *)bound.arg[k.n_arg - 1].p)[i], want = 0.5 * K * (double)(code - (offset ? offset : ZERO));
        if (fabs(got - want) <= 1e-4 * fabs(want)) continue;
        err_set(&b.e, ERR_FAILED, "%s, offset %d, digits %d: %.9g instead of %.9g", dtype_name(type), (int)offset, (int)digits, got, want);
        report(&b, &c, way);
    }
    check_release(&check);
    fixture_close(&b);
}

/* Zero points beyond the codes, which no model has, but graphs may: integers' sums of a long block would overflow. offset 0: they are those of columns. */
static void test_far_zeros(void **state)
{
    static const i64 offsets[] = {0, 255, -300, 5000, -100000, 1 << 30, -((i64)1 << 31)};
    for (u64 way = 0; way < countof(offsets) * 4 * 3 * 2; way++) try_far_zero(way, types[way / 2 % 4], offsets[way / 24], (i64)(way / 8 % 3));
}

/* Element j of a word is in its bits from j * bits on. */
static void test_words(void **state)
{
    for (u32 bits = 1; bits <= 8; bits *= 2) {
        struct arena a = {0};
        struct symtab st;
        struct pack p = {.bits = bits, .dtype = DT_U32}, bytes = {.bits = bits, .dtype = DT_U8};
        struct tensor *t = tensor_new(&a, DT_U8, 2, (i64[]){32, 5});
        symtab_init(&st, &a);
        for (i64 i = 0; i < 160; i++) ((u8 *)t->data)[i] = (u8)(i * 37);
        pack_dim_i(&p, &st, 5, 1, 1);
        pack_dim_i(&p, &st, 32, 0, 1);
        const struct tensor *w = pack_apply(&p, t, &st, &a, NULL);
        assert_true(w && w->dtype == DT_U32 && tensor_count(w) == 5 * bits && pack_per_word(&p) == 32 / bits);
        for (i64 i = 0; i < 160; i++) {
            u32 word = ((const u32 *)w->data)[i * bits / 32], want = ((const u8 *)t->data)[i % 32 * 5 + i / 32] & ((1u << bits) - 1);
            assert_int_equal(word >> i * bits % 32 & ((1u << bits) - 1), want);
        }
        bytes.n = p.n, memcpy(bytes.dim, p.dim, sizeof p.dim);
        const struct tensor *also = pack_apply(&bytes, t, &st, &a, NULL);
        for (i64 i = 0; i < tensor_bytes(w); i++) assert_int_equal(((const u8 *)also->data)[i], ((const u32 *)w->data)[i / 4] >> i % 4 * 8 & 255);
        arena_release(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words), cmocka_unit_test(test_digits), cmocka_unit_test(test_far_zeros), cmocka_unit_test(test_interpreted), cmocka_unit_test(test_workgroups),
        cmocka_unit_test(test_default), cmocka_unit_test(test_exact), cmocka_unit_test(test_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
