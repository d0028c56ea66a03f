// SPDX-License-Identifier: Apache-2.0
//
// Weights in few bits through the passes (pass/codes.c): MatMulNBits of all widths, blocks, zero points and groups, and DequantizeLinear of all types,
// axes and blocks in front of MatMul and Gemm, with scales of 8 bits, too (NVFP4, MXFP4), weights spelled as exporters of GPTQ and AWQ do, and floats of
// few bits, converted or looked up, become products of codes, with the same results and
// no weights of f32 in memory. What kernels cannot read is folded.
#include "pass/pass.h"
#include "seeds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct net {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct rng r;
    struct err e;
    i64 k, n; /* of the weights */
    bool is_folded; /* the weights become numbers */
};

static i64 pick(struct net *t, i64 lo, i64 hi) { return rng_range(&t->r, lo, hi); }

static struct tensor *numbers(struct net *t, enum dtype type, u32 rank, const i64 *dim, double lo, double hi)
{
    struct tensor *x = tensor_new(&t->a, type, rank, dim);
    for (i64 i = 0; i < tensor_count(x); i++) {
        if (dtype_is_float(type)) elem_set_f64(type, x->data, i, lo + (hi - lo) * rng_f64(&t->r));
        else elem_set_i64(type, x->data, i, rng_range(&t->r, (i64)lo, (i64)hi));
    }
    return x;
}

static value_id constant(struct net *t, const char *name, struct tensor *x) { return graph_add_const(&t->g, str_of(name), x); }

static value_id input(struct net *t, enum dtype type)
{
    value_id v = graph_add_value(&t->g, S("x"));
    struct value *x = graph_value(&t->g, v);
    x->dtype = type;
    x->shape = (struct shape){.known = true, .rank = 2, .dim = {sym_const(&t->sym, pick(t, 1, 3)), sym_const(&t->sym, t->k)}};
    *arr_push(&t->a, &t->g.input) = v;
    return v;
}

static node_id finish(struct net *t, value_id y)
{
    *arr_push(&t->a, &t->g.output) = y;
    if (!op_infer_all(&t->g, &t->e)) fail_msg("%s", t->e.msg);
    return graph_value(&t->g, y)->producer;
}

static void nbits_net(struct net *t)
{
    const i64 bits = (i64)2 << pick(t, 0, 2), block = (i64)16 << pick(t, 0, 4), blocks = ceil_div(t->k, block), zeros = pick(t, 0, 3);
    const enum dtype type = pick(t, 0, 3) ? DT_F32 : DT_F16;
    value_id in[6] = {input(t, type), constant(t, "q", numbers(t, DT_U8, 3, (i64[]){t->n, blocks, block * bits / 8}, 0, 255)),
                      constant(t, "scale", numbers(t, type, 2, (i64[]){t->n, blocks}, 0.01, 0.05))};
    u32 n = 3;
    if (zeros == 1) in[3] = constant(t, "zero", numbers(t, DT_U8, 2, (i64[]){t->n, (blocks * bits + 7) / 8}, 0, 255)), n = 4;
    if (zeros >= 2) { /* floats, which are codes or not */
        struct tensor *z = numbers(t, type, 2, (i64[]){t->n, blocks}, 0, (double)(1 << bits) - 1);
        for (i64 i = 0; zeros == 2 && i < tensor_count(z); i++) elem_set_f64(type, z->data, i, floor(elem_f64(type, z->data, i)));
        in[3] = constant(t, "zero", z), n = 4;
        t->is_folded = zeros == 3;
    }
    if (pick(t, 0, 2) == 0) {
        struct tensor *group = tensor_new(&t->a, DT_I32, 1, &t->k);
        i32 *v = group->data;
        for (i64 i = 0; i < t->k; i++) v[i] = (i32)(i / block);
        for (i64 i = t->k - 1; i > 0; i--) { /* a permutation of the terms */
            i64 j = pick(t, 0, i);
            i32 was = v[i];
            v[i] = v[j], v[j] = was;
        }
        if (pick(t, 0, 3) == 0 && blocks > 1) { /* one group has more terms than a block */
            i64 i = 0;
            while (v[i] != blocks - 1) i++;
            v[i] = 0, t->is_folded = true;
        }
        in[4] = constant(t, "group", group), n = 5;
    }
    if (pick(t, 0, 1)) in[5] = constant(t, "bias", numbers(t, type, 1, &t->n, -1, 1)), n = 6;
    value_id y = graph_op(&t->g, "com.microsoft::MatMulNBits", S("y"), n, in);
    node_id id = graph_value(&t->g, y)->producer;
    attr_set_int(&t->g, id, "N", t->n), attr_set_int(&t->g, id, "K", t->k);
    attr_set_int(&t->g, id, "bits", bits), attr_set_int(&t->g, id, "block_size", block);
    finish(t, y);
}

static value_id cast(struct net *t, value_id v, enum dtype to)
{
    v = graph_op(&t->g, "Cast", S("cast"), 1, &v);
    attr_set_int(&t->g, graph_value(&t->g, v)->producer, "to", dtype_onnx(to));
    return v;
}

/* Scales: 0 of f8 (e4m3), which have a scale themselves (NVFP4), 1 powers of two (MXFP4), else numbers. */
static value_id scales_of(struct net *t, i64 kind, enum dtype real, u32 rank, const i64 *dim)
{
    if (kind > 1) return constant(t, "scale", numbers(t, real, rank, dim, 0.01, 0.05));
    if (kind == 1) return constant(t, "powers", numbers(t, DT_F8E8M0, rank, dim, 0.01, 0.05));
    value_id in[] = {constant(t, "scales", numbers(t, DT_F8E4M3FN, rank, dim, 10, 400)), constant(t, "of scales", numbers(t, real, 0, NULL, 0.0001, 0.0002))};
    return graph_op(&t->g, "DequantizeLinear", S("scale"), 2, in);
}

static void qdq_net(struct net *t)
{
    static const enum dtype types[] = {DT_U4, DT_I4, DT_U8, DT_I8, DT_U2, DT_I2, DT_F4E2M1, DT_F8E4M3FN, DT_F8E5M2};
    const enum dtype type = types[pick(t, 0, countof(types) - 1)], real = pick(t, 0, 3) ? DT_F32 : DT_BF16;
    const bool is_float = dtype_is_float(type), is_transposed = pick(t, 0, 1), is_gemm = pick(t, 0, 1), has_zeros = pick(t, 0, 1) && !is_float;
    const i64 kind = pick(t, 0, 4), block = (i64)8 << pick(t, 0, 6), scaled = pick(t, 0, 5), most = ((i64)1 << dtype_bits(type)) - 1; /* scales: one, by column, by block */
    i64 q[2], s[2], dims = kind == 0 ? 0 : kind == 1 ? 1 : 2;
    q[is_transposed] = t->k, q[!is_transposed] = t->n;
    s[is_transposed] = ceil_div(t->k, block), s[!is_transposed] = t->n;
    if (kind == 1) s[0] = t->n;
    const i64 shift = dtype_kind(type) == DK_INT ? (most + 1) / 2 : 0;
    struct tensor *codes = is_float ? numbers(t, type, 2, q, -6, 6) : numbers(t, type, 2, q, (double)-shift, (double)(most - shift));
    const bool is_cast = real == DT_BF16 && pick(t, 0, 1); /* dequantised in f32 */
    value_id x = input(t, real), in[3] = {constant(t, "q", codes), scales_of(t, scaled, is_cast ? DT_F32 : real, (u32)dims, s), 0};
    if (has_zeros) in[2] = constant(t, "zero", numbers(t, type, (u32)dims, s, (double)-shift, (double)(most - shift)));
    value_id w = graph_op(&t->g, "DequantizeLinear", S("w"), has_zeros ? 3 : 2, in);
    node_id id = graph_value(&t->g, w)->producer;
    attr_set_int(&t->g, id, "axis", kind == 1 ? !is_transposed : is_transposed);
    if (kind > 1) attr_set_int(&t->g, id, "block_size", block);
    if (scaled == 1) attr_set_int(&t->g, id, "output_dtype", dtype_onnx(is_cast ? DT_F32 : real));
    if (is_cast) w = cast(t, w, real);
    t->is_folded = kind > 1 && block < 16 && block < t->k;
    if (is_transposed && !is_gemm) {
        w = graph_op(&t->g, "Transpose", S("wt"), 1, &w);
        attr_set_ints(&t->g, graph_value(&t->g, w)->producer, "perm", (i64[]){1, 0}, 2);
    }
    value_id operands[] = {x, w}, y = graph_op(&t->g, is_gemm ? "Gemm" : "MatMul", S("y"), 2, operands);
    if (is_gemm && is_transposed) attr_set_int(&t->g, graph_value(&t->g, y)->producer, "transB", 1);
    finish(t, y);
}

static value_id shape_of(struct net *t, u32 n, const i64 *dim)
{
    struct tensor *x = tensor_new(&t->a, DT_I64, 1, (i64[]){n});
    for (u32 i = 0; i < n; i++) elem_set_i64(DT_I64, x->data, i, dim[i]);
    return constant(t, "shape", x);
}

/* As exporters of GPTQ (terms, columns) and AWQ (columns, terms) spell it: words shifted and masked, zero points subtracted, scaled, reshaped, transposed. */
static void spelled_net(struct net *t)
{
    enum { FIELDS = 8, BITS = 4 };
    const i64 block = (i64)16 << pick(t, 0, 3), blocks = pick(t, 2, 4);
    const bool is_transposed = pick(t, 0, 1), has_zeros = pick(t, 0, 2), early = pick(t, 0, 1);
    t->k = block * blocks, t->n = ceil_div(1 << 14, t->k) + pick(t, 0, 9);
    t->is_folded = pick(t, 0, 5) == 0; /* scales change within blocks of 16 */
    const i64 own = t->is_folded ? 8 : block, n_own = t->k / own;
    struct tensor *shift = tensor_new(&t->a, DT_U32, 3, is_transposed ? (i64[]){1, 1, FIELDS} : (i64[]){1, FIELDS, 1});
    struct tensor *words = tensor_new(&t->a, DT_U32, 3, is_transposed ? (i64[]){t->n, t->k / FIELDS, 1} : (i64[]){t->k / FIELDS, 1, t->n});
    for (i64 i = 0; i < FIELDS; i++) elem_set_i64(DT_U32, shift->data, i, i * BITS);
    for (i64 i = 0; i < tensor_count(words); i++) elem_set_i64(DT_U32, words->data, i, (i64)(rng_u64(&t->r) & UINT32_MAX));
    i64 fifteen = 15, s[] = {n_own, 1, t->n}, st[] = {t->n, n_own, 1}, q[] = {n_own, own, t->n}, qt[] = {t->n, n_own, own}, w[] = {t->k, t->n}, wt[] = {t->n, t->k};
    struct tensor *mask = tensor_new(&t->a, DT_U32, 0, NULL);
    elem_set_i64(DT_U32, mask->data, 0, fifteen);
    value_id x = input(t, DT_F32), v = graph_op(&t->g, "BitShift", S("shifted"), 2, (value_id[]){constant(t, "words", words), constant(t, "by", shift)});
    attr_set_str(&t->g, graph_value(&t->g, v)->producer, "direction", S("RIGHT"));
    v = graph_op(&t->g, "BitwiseAnd", S("fields"), 2, (value_id[]){v, constant(t, "mask", mask)});
    v = graph_op(&t->g, "Reshape", S("blocks"), 2, (value_id[]){v, shape_of(t, 3, is_transposed ? qt : q)});
    const enum dtype zeros = early ? DT_I32 : DT_F32;
    v = graph_op(&t->g, "Cast", S("cast"), 1, &v);
    attr_set_int(&t->g, graph_value(&t->g, v)->producer, "to", dtype_onnx(has_zeros ? zeros : DT_F32));
    if (has_zeros) {
        struct tensor *z = numbers(t, DT_I32, 3, is_transposed ? st : s, 0, 15), *f = tensor_new(&t->a, zeros, 3, is_transposed ? st : s);
        for (i64 i = 0; i < tensor_count(z); i++) elem_set_f64(zeros, f->data, i, elem_f64(DT_I32, z->data, i));
        v = graph_op(&t->g, "Sub", S("centred"), 2, (value_id[]){v, constant(t, "zeros", f)});
    }
    if (has_zeros && early) {
        v = graph_op(&t->g, "Cast", S("float"), 1, &v);
        attr_set_int(&t->g, graph_value(&t->g, v)->producer, "to", dtype_onnx(DT_F32));
    }
    value_id scale = constant(t, "scale", numbers(t, DT_F32, 3, is_transposed ? st : s, 0.01, 0.05));
    v = graph_op(&t->g, "Mul", S("scaled"), 2, pick(t, 0, 1) ? (value_id[]){v, scale} : (value_id[]){scale, v});
    v = graph_op(&t->g, "Reshape", S("w"), 2, (value_id[]){v, shape_of(t, 2, is_transposed ? wt : w)});
    if (is_transposed) {
        v = graph_op(&t->g, "Transpose", S("wt"), 1, &v);
        attr_set_ints(&t->g, graph_value(&t->g, v)->producer, "perm", (i64[]){1, 0}, 2);
    }
    finish(t, graph_op(&t->g, "MatMul", S("y"), 2, (value_id[]){x, v}));
}

/* Floats of few bits as numbers of a table, or converted, with scales for blocks, for columns, or none. */
static void float_net(struct net *t)
{
    static const enum dtype types[] = {DT_F4E2M1, DT_F8E4M3FN, DT_F8E5M2, DT_I8};
    static const float table[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0F, -0.5, -1, -1.5, -2, -3, -4, -6};
    const enum dtype type = types[pick(t, 0, countof(types) - 1)];
    const i64 block = (i64)16 << pick(t, 0, 3), blocks = pick(t, 2, 4), kind = pick(t, 0, 2), sixteen = 16;
    const bool by_table = type == DT_F4E2M1 && pick(t, 0, 2);
    t->k = block * blocks, t->n = ceil_div(1 << 14, t->k) + pick(t, 0, 9);
    i64 w[] = {t->n, blocks, block}, s[] = {t->n, kind == 1 ? 1 : blocks, 1}, flat[] = {t->n, t->k};
    value_id x = input(t, DT_F32), v;
    if (by_table) {
        struct tensor *values = tensor_new(&t->a, DT_F32, 1, &sixteen);
        memcpy(values->data, table, sizeof table);
        t->is_folded = pick(t, 0, 3) == 0;
        if (t->is_folded) ((float *)values->data)[3] = 0.1F; /* a number that no such float is */
        v = graph_op(&t->g, "Gather", S("looked up"), 2, (value_id[]){constant(t, "table", values), constant(t, "codes", numbers(t, DT_I64, 3, w, 0, 15))});
    } else {
        v = cast(t, constant(t, "codes", numbers(t, type, 3, w, type == DT_I8 ? -128 : -6, type == DT_I8 ? 127 : 6)), DT_F32);
    }
    if (kind) v = graph_op(&t->g, "Mul", S("scaled"), 2, (value_id[]){v, constant(t, "scale", numbers(t, DT_F32, 3, s, 0.01, 0.05))});
    v = graph_op(&t->g, "Reshape", S("w"), 2, (value_id[]){v, shape_of(t, 2, flat)});
    v = graph_op(&t->g, "Transpose", S("wt"), 1, &v);
    attr_set_ints(&t->g, graph_value(&t->g, v)->producer, "perm", (i64[]){1, 0}, 2);
    finish(t, graph_op(&t->g, "MatMul", S("y"), 2, (value_id[]){x, v}));
}

static bool has_codes(const struct graph *g)
{
    struct op_codes c;
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && op_codes_get(g, n, &c)) return true;
    return false;
}

/* Weights of f32, f16 or bf16 that a node reads. */
static bool has_numbers(const struct net *t, const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        for (u32 k = 0; !graph_node(g, n)->dead && k < graph_node(g, n)->in.n; k++) {
            const struct value *v = graph_value(g, graph_node(g, n)->in.v[k]);
            if (v->data && dtype_size(v->dtype) > 1 && tensor_count(v->data) >= t->k * t->n) return true;
        }
    return false;
}

static void check(struct net *t, u64 seed)
{
    struct graph g;
    struct rng r = rng_seed(seed);
    struct tensor *want = NULL, *got = NULL;
    i64 dim[MAX_RANK];
    const struct value *x = graph_value(&t->g, t->g.input.v[0]);
    shape_is_static(&t->sym, &x->shape, dim);
    struct tensor *in = tensor_new(&t->a, x->dtype, x->shape.rank, dim);
    for (i64 i = 0; i < tensor_count(in); i++) elem_set_f64(in->dtype, in->data, i, rng_f64(&r) * 2 - 1);
    graph_clone(&g, &t->g, &t->a);
    if (!pass_run_all(&g, NULL, &t->e)) fail_msg("seed %d: %s", (int)seed, t->e.msg);
    assert_true(graph_eval(&t->g, &in, &want, &t->a, NULL, &t->e) && graph_eval(&g, &in, &got, &t->a, NULL, &t->e));
    double tolerance = in->dtype == DT_F32 ? 1e-6 : in->dtype == DT_F16 ? 2e-3 : 2e-2; /* of f16 and bf16 the order of terms changes roundings of sums */
    if (tensor_compare(got, want, 0, tolerance * fmax(1e-3, tensor_largest(want))).n_bad) fail_msg("seed %d: another meaning", (int)seed);
    if (has_codes(&g) == t->is_folded || has_numbers(t, &g) != t->is_folded) fail_msg("seed %d: the weights are %s", (int)seed, t->is_folded ? "codes" : "numbers");
}

static void each(u64 from, u64 to, void (*make)(struct net *t))
{
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct net t = {.r = rng_seed(seed)};
        symtab_init(&t.sym, &t.a);
        graph_init(&t.g, &t.a, &t.sym);
        t.k = pick(&t, 128, 150), t.n = pick(&t, 128, 150);
        make(&t);
        check(&t, seed);
        arena_release(&t.a);
    }
}

static void test_nbits(void **state) { each(0, 120, nbits_net); }
static void test_qdq(void **state) { each(1000, 1160, qdq_net); }
static void test_spelled(void **state) { each(2000, 2060, spelled_net); }
static void test_floats(void **state) { each(3000, 3080, float_net); }

/* Products of two dequantised operands are left to `integer`, also where the left one is moved. */
static void test_quantised(void **state)
{
    for (i64 way = 0; way < 2; way++) {
        struct net t = {.r = rng_seed((u64)way), .k = 128, .n = 128};
        struct graph g;
        i64 one = 1;
        symtab_init(&t.sym, &t.a);
        graph_init(&t.g, &t.a, &t.sym);
        value_id scale = constant(&t, "s", numbers(&t, DT_F32, 0, &one, 0.01, 0.02)), zero = constant(&t, "z", numbers(&t, DT_U8, 0, &one, 0, 9));
        value_id x = input(&t, DT_F32), q = graph_op(&t.g, "QuantizeLinear", S("q"), 3, (value_id[]){x, scale, zero});
        value_id a = graph_op(&t.g, "DequantizeLinear", S("a"), 3, (value_id[]){q, scale, zero});
        value_id w = constant(&t, "w", numbers(&t, DT_I8, 2, (i64[]){t.k, t.n}, -128, 127));
        if (way) a = graph_op(&t.g, "Flatten", S("f"), 1, &a);
        w = graph_op(&t.g, "DequantizeLinear", S("d"), 2, (value_id[]){w, scale});
        finish(&t, graph_op(&t.g, "MatMul", S("y"), 2, (value_id[]){a, w}));
        for (u32 flags = 0; flags <= PASS_INTEGER; flags += PASS_INTEGER) {
            graph_clone(&g, &t.g, &t.a);
            if (!pass_run_all(&g, &(struct pass_env){.flags = flags}, &t.e)) fail_msg("%s", t.e.msg);
            assert_false(has_codes(&g));
        }
        arena_release(&t.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nbits), cmocka_unit_test(test_qdq), cmocka_unit_test(test_spelled), cmocka_unit_test(test_floats), cmocka_unit_test(test_quantised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
