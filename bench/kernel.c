// SPDX-License-Identifier: Apache-2.0
//
// Benchmark of single kernels: the default schedule and the best predicted ones on a device.
//
//   build/bench/kernel [-D DEVICE] [-T TYPE] [-t THREADS] [-l LIMITS] [-n CANDIDATES] [-c CANDIDATE] [-g FAMILY] [-o FILE] [-v] [-d] [-C] SHAPE ...
//
// SHAPE:
//   conv:C,H,W,OC,K,STRIDE,GROUPS          padding K/2, bias and Relu fused; GROUPS may be omitted
//   deconv:C,H,W,OC,K,STRIDE,GROUPS        transposed, STRIDE times as large
//   maxpool:C,H,W,K,STRIDE, meanpool:      padding K/2
//   gemm:M,N,K
//   codes:M,N,K,BITS,BLOCK,DIGITS         with constant weights of 2, 4 or 8 bits in blocks of 32 (if omitted) terms, or of 16 bits (bf16);
//                                         the left operand may be rounded to so many digits (1: 8 bits; codes of 8 bits are unsigned then, as those of MatMulNBits)
//   softmax:ROWS,N
//   attention:HEADS,QUERIES,KEYS,D,CAUSAL  softmax(q k^T) v, heads innermost but for D; CAUSAL (1: the last query sees all keys) may be omitted
//   token:HEADS,SHARED,KEYS,D              likewise a query of each of HEADS heads, of which SHARED at a time share keys; keys and values as caches have them: heads outermost
//   relu:ROWS,N, sum:                      elementwise; of each row
//   pair:C,H,W,MIDDLE,OC,K                 two convolutions, both K x K
//   residual:C,H,W,MIDDLE,OC,STRIDE        three convolutions: 1x1, 3x3 depthwise, 1x1
//   volume:C,D,H,W,OC,K,PADDING,BATCH      a 3-D convolution; by default padding K/2 and one volume
//   pooled:                                likewise, followed by a maximum pool of 2
//   weights:                               likewise, the gradient of the weights
//   filter:C,H,W,K, splat:, softmax-filter:, outer:   K x K weights per pixel, and their gradient; `,rows`: x innermost
//   task:FILE                              a task's text, as `quern compile -d tasks` prints it, of static sizes
//
// With `,rows`, `,c8` or `,c16` after them images have x innermost, or channels in blocks, instead of channels last. DEVICE is as in
// `quern devices`, by default this processor, restricted by LIMITS (isa=x86-64-v3). TYPE: f32, f16, bf16, f64; for matrix products
// also i32, u32, i64, u64 and, as for convolutions, u8, with i8 weights and i32 sums, which convolutions scale back to u8, and i16, which are bytes less zero
// points (pass/words.c). -g restricts the candidates to one family, -v
// verifies, -d prints the kernel's text, -o writes the binary of the last candidate to a file, -C flushes the caches before each run (of one thread of this processor). One line per
// candidate: GFLOP/s, percent of the peak (measured here, reported by other devices), GB/s for one transfer of inputs and outputs,
// predicted time. Kernels for described devices (cpu:cortex-a76) are built and not run.
#include "target.h"
#include "tune/rates.h"
#include "tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct opts { u32 threads, n; const char *candidate, *device, *limits, *binary; const struct gen *family; enum dtype type; bool verify, dump, cold; };

struct bench {
    struct opts o;
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct task t;
    struct bench_target target;
    double peak;        /* FLOP per second */
};

#ifdef __AVX512F__
enum { VECTOR_BYTES = 64 };
#else
enum { VECTOR_BYTES = 32 };
#endif
typedef float vec __attribute__((vector_size(VECTOR_BYTES)));

/* Independent chains of multiply-adds in registers: the Makefile permits contraction here, for the
   host's processor. */
__attribute__((noinline)) static void fma_chains(vec *out, i64 n)
{
    vec x = *out + 1.0f, y = *out + 0.5f, a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4, f = x + 5, g = x + 6, h = x + 7,
        i = x + 8, j = x + 9, k = x + 10, l = x + 11;
    for (; n; n--) {
        a = a * y + x, b = b * y + x, c = c * y + x, d = d * y + x, e = e * y + x, f = f * y + x;
        g = g * y + x, h = h * y + x, i = i * y + x, j = j * y + x, k = k * y + x, l = l * y + x;
    }
    *out = a + b + c + d + e + f + g + h + i + j + k + l;
}

/* One thread: CPU time of this thread, which is less disturbed by other load. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double measure_peak(void)
{
    double best = 0;
    vec x = {0};
    for (u32 i = 0; i < 20; i++) {
        double t = thread_seconds();
        fma_chains(&x, 200000);
        double r = 200000.0 * 12 * 2 * (VECTOR_BYTES / sizeof(float)) / (thread_seconds() - t);
        best = r > best ? r : best;
    }
    return best;
}

static value_id add_input(struct bench *b, const char *name, u32 rank, const i64 *dim)
{
    value_id v = graph_add_value(&b->g, str_of(name));
    struct value *x = graph_value(&b->g, v);
    x->dtype = b->o.type;
    x->shape = (struct shape){.known = true, .rank = rank};
    for (u32 i = 0; i < rank; i++) x->shape.dim[i] = sym_const(&b->sym, dim[i]);
    *arr_push(&b->arena, &b->g.input) = v;
    return v;
}

static value_id add_const(struct bench *b, const char *name, u32 rank, const i64 *dim)
{
    struct tensor *t = tensor_new(&b->arena, b->o.type == DT_U8 ? DT_I8 : b->o.type, rank, dim);
    return graph_add_const(&b->g, str_of(name), t);
}

static bool finish(struct bench *b, value_id y, enum layout layout, struct err *e)
{
    *arr_push(&b->arena, &b->g.output) = y;
    if (!op_infer_all(&b->g, e) || !op_expand_all(&b->g, e) || !op_infer_all(&b->g, e)) return false;
    u32 n = 0;
    node_id *nodes = arena_array(&b->arena, node_id, b->g.node.n);
    for (node_id i = 1; i < b->g.node.n; i++)
        if (!graph_node(&b->g, i)->dead) nodes[n++] = i;
    enum layout *l = arena_array(&b->arena, enum layout, b->g.value.n);
    for (value_id v = 1; v < b->g.value.n; v++)
        l[v] = graph_value(&b->g, v)->shape.rank >= 3 ? layout : LAYOUT_ROWS;
    return task_make(&b->t, &b->g, &b->arena, nodes, n, b->g.output.v, b->g.output.n, l, NULL, e);
}

static void set_window(struct bench *b, value_id y, i64 begin, i64 end, i64 stride)
{
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "pads", (i64[]){begin, begin, end, end}, 4);
    attr_set_ints(&b->g, n, "strides", (i64[]){stride, stride}, 2);
}

static value_id add_cast(struct bench *b, value_id x, enum dtype t)
{
    value_id y = graph_op(&b->g, "Cast", S("cast"), 1, &x);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "to", dtype_onnx(t));
    return y;
}

static value_id add_scalar_op(struct bench *b, const char *op, value_id x, double c)
{
    return graph_op(&b->g, op, str_of(op), 2, (value_id[]){x, op_const_f(&b->g, DT_F32, c)});
}

static bool is_quantised(const struct bench *b) { return b->o.type == DT_U8 || b->o.type == DT_I16; }

/* Sums of `channels` channels rescaled to the range of u8, as in quantised networks. */
static value_id requantised(struct bench *b, value_id y, i64 channels)
{
    struct tensor *t = tensor_new(&b->arena, DT_F32, 3, (i64[]){channels, 1, 1});
    y = graph_op(&b->g, "Mul", S("scale"), 2, (value_id[]){add_cast(b, y, DT_F32), graph_add_const(&b->g, S("scales"), t)});
    y = add_scalar_op(b, "Min", add_scalar_op(b, "Max", y, 0), 255);
    return add_cast(b, graph_op(&b->g, "Round", S("round"), 1, &y), b->o.type);
}

/* s: channels, height, width, output channels, kernel size, stride, groups. With bias and Relu. */
static value_id add_conv(struct bench *b, value_id x, const i64 *s)
{
    i64 p = s[4] / 2, groups = s[6] ? s[6] : 1;
    struct tensor *bias = tensor_new(&b->arena, op_sum_type(b->o.type), 1, (i64[]){s[3]});
    value_id in[3] = {x, add_const(b, "w", 4, (i64[]){s[3], s[0] / groups, s[4], s[4]}), graph_add_const(&b->g, S("b"), bias)};
    value_id y = graph_op(&b->g, "Conv", S("conv"), 3, in);
    set_window(b, y, p, p, s[5]);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "group", groups);
    if (b->o.type == DT_I16) attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "most", (i64[]){255, 128}, 2);
    if (is_quantised(b)) return requantised(b, y, s[3]);
    return graph_op(&b->g, "Relu", S("relu"), 1, &y);
}

static value_id add_image(struct bench *b, const i64 *s) { return add_input(b, "x", 4, (i64[]){1, s[0], s[1], s[2]}); }

static bool make_conv(struct bench *b, const i64 *s, enum layout layout, struct err *e)
{
    return finish(b, add_conv(b, add_image(b, s), s), layout, e);
}

static bool make_pair(struct bench *b, const i64 *s, enum layout layout, struct err *e)
{
    value_id y = add_conv(b, add_image(b, s), (i64[]){s[0], s[1], s[2], s[3], s[5], 1, 1});
    return finish(b, add_conv(b, y, (i64[]){s[3], s[1], s[2], s[4], s[5], 1, 1}), layout, e);
}

static bool make_residual(struct bench *b, const i64 *s, enum layout layout, struct err *e)
{
    value_id y = add_conv(b, add_image(b, s), (i64[]){s[0], s[1], s[2], s[3], 1, 1, 1});
    y = add_conv(b, y, (i64[]){s[3], s[1], s[2], s[3], 3, s[5], s[3]});
    return finish(b, add_conv(b, y, (i64[]){s[3], s[1], s[2], s[4], 1, 1, 1}), layout, e);
}

static bool make_deconv(struct bench *b, const i64 *s, enum layout layout, struct err *e)
{
    i64 groups = s[6] ? s[6] : 1, over = s[4] - s[5], begin = over > 0 ? over / 2 : 0, end = over > 0 ? over - begin : 0;
    value_id in[3] = {add_input(b, "x", 4, (i64[]){1, s[0], s[1], s[2]}), add_const(b, "w", 4, (i64[]){s[0], s[3] / groups, s[4], s[4]}),
                      add_const(b, "b", 1, (i64[]){s[3]})};
    value_id y = graph_op(&b->g, "ConvTranspose", S("deconv"), 3, in);
    set_window(b, y, begin, end, s[5]);
    attr_set_int(&b->g, graph_value(&b->g, y)->producer, "group", groups);
    return finish(b, graph_op(&b->g, "Relu", S("relu"), 1, &y), layout, e);
}

static bool make_pool(struct bench *b, const char *op, const i64 *s, enum layout layout, struct err *e)
{
    value_id x = add_input(b, "x", 4, (i64[]){1, s[0], s[1], s[2]}), y = graph_op(&b->g, op, S("pool"), 1, &x);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", (i64[]){s[3], s[3]}, 2);
    set_window(b, y, s[3] / 2, s[3] / 2, s[4]);
    return finish(b, y, layout, e);
}

/* s: channels, depth, height, width, output channels, kernel size, padding, images. With bias and
   Relu. */
static bool make_volume(struct bench *b, const i64 *s, bool pool, enum layout layout, struct err *e)
{
    i64 p = s[6], two[] = {2, 2, 2};
    value_id in[3] = {add_input(b, "x", 5, (i64[]){s[7], s[0], s[1], s[2], s[3]}),
                      add_const(b, "w", 5, (i64[]){s[4], s[0], s[5], s[5], s[5]}), add_const(b, "b", 1, (i64[]){s[4]})};
    value_id y = graph_op(&b->g, "Conv", S("conv"), 3, in);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){p, p, p, p, p, p}, 6);
    y = graph_op(&b->g, "Relu", S("relu"), 1, &y);
    if (!pool) return finish(b, y, layout, e);
    y = graph_op(&b->g, "MaxPool", S("pool"), 1, &y);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", two, 3);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "strides", two, 3);
    return finish(b, y, layout, e);
}

/* Likewise: the gradient of the weights. */
static bool make_weights(struct bench *b, const i64 *s, enum layout layout, struct err *e)
{
    i64 p = s[6], less = s[5] - 1 - 2 * p;
    value_id in[2] = {add_input(b, "x", 5, (i64[]){s[7], s[0], s[1], s[2], s[3]}),
                      add_input(b, "dy", 5, (i64[]){s[7], s[4], s[1] - less, s[2] - less, s[3] - less})};
    value_id y = graph_op(&b->g, "quern::ConvGradWeight", S("weights"), 2, in);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "pads", (i64[]){p, p, p, p, p, p}, 6);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "kernel_shape", (i64[]){s[5], s[5], s[5]}, 3);
    return finish(b, y, layout, e);
}

/* s: channels, height, width, kernel size. A filter with weights per pixel, or their gradient. */
enum filter { GATHER, SPLAT, BY_SOFTMAX, OUTER };
static bool make_filter(struct bench *b, const i64 *s, enum filter kind, enum layout layout, struct err *e)
{
    bool outer = kind == OUTER;
    i64 begin = (s[3] - 1) / 2;
    sym size[2] = {sym_const(&b->sym, s[1]), sym_const(&b->sym, s[2])};
    value_id in[2] = {add_image(b, s), add_input(b, outer ? "dy" : "w", 4, (i64[]){1, outer ? s[0] : s[3] * s[3], s[1], s[2]})};
    value_id y = graph_op(&b->g, outer ? "quern::FilterOuter" : "quern::Filter", S("filter"), 2, in);
    node_id n = graph_value(&b->g, y)->producer;
    attr_set_ints(&b->g, n, "kernel_shape", (i64[]){s[3], s[3]}, 2);
    attr_set_ints(&b->g, n, "begins", (i64[]){begin, begin}, 2);
    if (kind == BY_SOFTMAX) attr_set_int(&b->g, n, "softmax", 1);
    if (kind == SPLAT) attr_set_int(&b->g, n, "splat", 1), op_set_syms(&b->g, n, "out", size, 2);
    return finish(b, y, layout, e);
}

static bool make_gemm(struct bench *b, const i64 *s, struct err *e)
{
    value_id in[2] = {add_input(b, "a", 2, (i64[]){s[0], s[2]}), add_const(b, "b", 2, (i64[]){s[2], s[1]})};
    return finish(b, graph_op(&b->g, "MatMul", S("matmul"), 2, in), LAYOUT_ROWS, e);
}

/* s: rows, columns, terms, bits of weights, block. */
static bool make_codes(struct bench *b, const i64 *s, struct err *e)
{
    const i64 block = s[4] ? s[4] : 32, dim[] = {s[2], s[1]}, blocks[] = {ceil_div(s[2], block), s[1]};
    const enum dtype type = s[3] == 2 ? DT_U2 : s[3] == 4 ? DT_U4 : s[3] == 8 ? (s[5] ? DT_U8 : DT_I8) : DT_BF16;
    struct tensor *q = tensor_new(&b->arena, type, 2, dim);
    value_id in[2] = {graph_add_const(&b->g, S("b"), q)}, w = in[0], a = add_input(b, "a", 2, (i64[]){s[0], s[2]});
    if (type != DT_BF16) {
        in[1] = graph_add_const(&b->g, S("scales"), tensor_new(&b->arena, DT_F16, 2, blocks));
        w = graph_op(&b->g, "quern::Dequantize", S("w"), 2, in);
        attr_set_int(&b->g, graph_value(&b->g, w)->producer, "block", block);
        if (type != DT_I8) attr_set_int(&b->g, graph_value(&b->g, w)->producer, "offset", 1 << (s[3] - 1));
    }
    value_id y = graph_op(&b->g, "MatMul", S("matmul"), 2, (value_id[]){a, w});
    if (s[5]) attr_set_int(&b->g, graph_value(&b->g, y)->producer, "digits", s[5]);
    return finish(b, y, LAYOUT_ROWS, e);
}

static bool make_softmax(struct bench *b, const i64 *s, struct err *e)
{
    value_id x = add_input(b, "x", 2, s);
    return finish(b, graph_op(&b->g, "Softmax", S("softmax"), 1, &x), LAYOUT_ROWS, e);
}

/* (s, heads, d) with another order of axes. */
static value_id add_heads(struct bench *b, const char *name, const i64 *dim, const i64 *perm)
{
    value_id x = add_input(b, name, 3, dim), y = graph_op(&b->g, "Transpose", str_of(name), 1, &x);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "perm", perm, 3);
    return y;
}

/* softmax(q k^T) v */
static bool finish_attention(struct bench *b, value_id scores, value_id v, struct err *e)
{
    value_id x = graph_op(&b->g, "Softmax", S("softmax"), 1, &scores);
    return finish(b, graph_op(&b->g, "MatMul", S("y"), 2, (const value_id[]){x, v}), LAYOUT_ROWS, e);
}

static value_id where_causal(struct bench *b, value_id x, const i64 *s)
{
    value_id in[3] = {graph_op(&b->g, "quern::Band", S("band"), 0, NULL), x, op_const_f(&b->g, b->o.type, -INFINITY)};
    node_id n = graph_value(&b->g, in[0])->producer;
    op_set_syms(&b->g, n, "size", (const sym[]){sym_const(&b->sym, s[1]), sym_const(&b->sym, s[2])}, 2);
    op_set_syms(&b->g, n, "offset", (const sym[]){sym_const(&b->sym, s[2] - s[1])}, 1);
    attr_set_int(&b->g, n, "right", 0);
    return graph_op(&b->g, "Where", S("causal"), 3, in);
}

static bool make_attention(struct bench *b, const i64 *s, struct err *e)
{
    value_id q = add_heads(b, "q", (const i64[]){s[1], s[0], s[3]}, (const i64[]){1, 0, 2});
    value_id k = add_heads(b, "k", (const i64[]){s[2], s[0], s[3]}, (const i64[]){1, 2, 0});
    value_id v = add_heads(b, "v", (const i64[]){s[2], s[0], s[3]}, (const i64[]){1, 0, 2});
    value_id x = graph_op(&b->g, "MatMul", S("scores"), 2, (const value_id[]){q, k});
    value_id in[2] = {x, op_const_f(&b->g, b->o.type, 0.125)};
    x = graph_op(&b->g, "Mul", S("scaled"), 2, in);
    if (s[4]) x = where_causal(b, x, s);
    return finish_attention(b, x, v, e);
}

/* s: heads, heads that share keys, keys, size of a head. */
static bool make_token(struct bench *b, const i64 *s, struct err *e)
{
    const i64 groups = s[0] / s[1];
    value_id q = add_input(b, "q", 3, (const i64[]){groups, s[1], s[3]});
    value_id k = add_heads(b, "k", (const i64[]){groups, s[2], s[3]}, (const i64[]){0, 2, 1});
    value_id v = add_input(b, "v", 3, (const i64[]){groups, s[2], s[3]});
    return finish_attention(b, graph_op(&b->g, "MatMul", S("scores"), 2, (const value_id[]){q, k}), v, e);
}

static bool make_relu(struct bench *b, const i64 *s, struct err *e)
{
    value_id x = add_input(b, "x", 2, s);
    return finish(b, graph_op(&b->g, "Relu", S("relu"), 1, &x), LAYOUT_ROWS, e);
}

static bool make_sum(struct bench *b, const i64 *s, struct err *e)
{
    struct tensor *axes = tensor_new(&b->arena, DT_I64, 1, (i64[]){1});
    *(i64 *)axes->data = 1;
    value_id in[2] = {add_input(b, "x", 2, s), graph_add_const(&b->g, S("axes"), axes)};
    return finish(b, graph_op(&b->g, "ReduceSum", S("sum"), 2, in), LAYOUT_ROWS, e);
}

/* The layout of images: the name after the last comma; channels last without one. */
static enum layout layout_behind(const char *text)
{
    const char *comma = strrchr(text, ',');
    bool named = false;
    enum layout l = comma ? layout_parse(str_of(comma + 1), &named) : LAYOUT_CLAST;
    return named ? l : LAYOUT_CLAST;
}

static bool read_task(struct bench *b, const char *path, struct err *e)
{
    enum { MAX_BYTES = 1 << 20 };
    struct str text;
    return os_read(&b->arena, path, MAX_BYTES, &text, e) && task_parse(&b->t, &b->arena, &b->sym, text, e);
}

static bool parse_shape(struct bench *b, const char *text, struct err *e)
{
    i64 s[8] = {0};
    int n = 0, used = 0;
    enum layout layout = layout_behind(text);
    const char *numbers = strchr(text, ':');
    for (const char *p = numbers ? numbers + 1 : text + strlen(text); n < 8 && sscanf(p, "%lld%n", (long long *)&s[n], &used) == 1; p += used + 1) {
        n++;
        if (p[used] != ',') break;
    }
    bool images = (n == 6 || n == 7) && s[0] > 0 && s[6] >= 0 && (!s[6] || s[0] % s[6] + s[3] % s[6] == 0);
    if (!strncmp(text, "conv:", 5) && images) return make_conv(b, s, layout, e);
    bool volumes = n >= 6 && s[6] >= 0 && s[7] >= 0;
    if (volumes && n == 6) s[6] = s[5] / 2;
    if (volumes && n < 8) s[7] = 1;
    if (!strncmp(text, "volume:", 7) && volumes) return make_volume(b, s, false, layout, e);
    if (!strncmp(text, "pooled:", 7) && volumes) return make_volume(b, s, true, layout, e);
    if (!strncmp(text, "weights:", 8) && volumes) return make_weights(b, s, layout, e);
    if (!strncmp(text, "deconv:", 7) && images) return make_deconv(b, s, layout, e);
    if (!strncmp(text, "maxpool:", 8) && n == 5) return make_pool(b, "MaxPool", s, layout, e);
    if (!strncmp(text, "meanpool:", 9) && n == 5) return make_pool(b, "AveragePool", s, layout, e);
    if (!strncmp(text, "filter:", 7) && n == 4) return make_filter(b, s, GATHER, layout, e);
    if (!strncmp(text, "softmax-filter:", 15) && n == 4) return make_filter(b, s, BY_SOFTMAX, layout, e);
    if (!strncmp(text, "splat:", 6) && n == 4) return make_filter(b, s, SPLAT, layout, e);
    if (!strncmp(text, "outer:", 6) && n == 4) return make_filter(b, s, OUTER, layout, e);
    if (!strncmp(text, "pair:", 5) && n == 6) return make_pair(b, s, layout, e);
    if (!strncmp(text, "residual:", 9) && n == 6) return make_residual(b, s, layout, e);
    if (!strncmp(text, "gemm:", 5) && n == 3) return make_gemm(b, s, e);
    if (!strncmp(text, "codes:", 6) && n >= 4 && n <= 6) return make_codes(b, s, e);
    if (!strncmp(text, "attention:", 10) && (n == 4 || n == 5)) return make_attention(b, s, e);
    if (!strncmp(text, "token:", 6) && n == 4 && s[1] > 0 && s[0] % s[1] == 0) return make_token(b, s, e);
    if (!strncmp(text, "softmax:", 8) && n == 2) return make_softmax(b, s, e);
    if (!strncmp(text, "relu:", 5) && n == 2) return make_relu(b, s, e);
    if (!strncmp(text, "sum:", 4) && n == 2) return make_sum(b, s, e);
    if (!strncmp(text, "task:", 5)) return read_task(b, text + 5, e);
    return err_set(e, ERR_USAGE, "malformed shape '%s'", text);
}

struct best { struct candidate v[64]; double s[64]; u32 n, max; struct bench *b; };

enum { LOOKED_AT = 4000000 }; /* schedules of a family */

static bool keep_best(void *user, const struct candidate *c)
{
    struct best *k = user;
    const struct gen *only = k->b->o.family;
    if (only && c->gen != only) return true;
    double s = gen_predict(c, &k->b->t, &k->b->target.caps, NULL);
    u32 i = k->n;
    if (i == k->max && s >= k->s[i - 1]) return true;
    if (i < k->max) k->n++;
    else i--;
    for (; i > 0 && k->s[i - 1] > s; i--) k->v[i] = k->v[i - 1], k->s[i] = k->s[i - 1];
    k->v[i] = *c, k->s[i] = s;
    return true;
}

static bool take_sample(void *user, const struct sample *s, u32 n)
{
    double *best = user;
    if (!*best || s->seconds < *best) *best = s->seconds;
    return n < 15;
}

typedef void grid_fn(void *const *buf, const int64_t *param, int64_t begin, int64_t end, void *work);

static void *make_buffer(const struct bench *b, const struct check *c, const struct kernel_arg *x)
{
    const struct value *v = graph_value(&b->t.g, x->v);
    const struct tensor *t = &c->value[x->v];
    struct arena a = {0};
    struct place at = {0};
    place_of(&at, &b->t.g, x->v, c->var);
    i64 n = at.count;
    struct tensor *p = x->pack ? pack_apply(x->pack, t, b->t.g.sym, &a, NULL) : NULL;
    i64 size = p ? tensor_bytes(p) : n * dtype_size(v->dtype);
    void *m = mem_aligned(size + 128);
    if (p) memcpy(m, p->data, (size_t)size);
    else if (!x->is_out) place_store(&at, t, m);
    arena_release(&a);
    return m;
}

static double run_here(const struct bench *b, const struct check *c, const struct subject *s, struct err *e)
{
    const struct kernel *k = &s->kernel;
    struct symtab *st = b->t.g.sym;
    void *lib = os_dlopen_bytes(s->code.p, s->code.n, e), *buf[64] = {0};
    i64 param[64], work = 0, size = 0;
    double best = 0, used = 0;
    if (!lib) return 0;
    for (u32 i = 0; i < k->n_arg; i++) buf[i] = make_buffer(b, c, &k->arg[i]);
    for (u32 i = 0; i < k->n_param; i++) sym_eval(st, k->param[i], c->var, &param[i]);
    for (u32 i = 0; i < k->n_temp && sym_eval(st, k->temp[i], c->var, &size); i++) buf[k->n_arg + i] = mem_aligned(size + 64);
    sym_eval(st, k->work, c->var, &work);
    const i64 cold_size = 128 << 20;
    void *scratch = mem_aligned(work + 64), *cold = b->o.cold ? mem_aligned(cold_size) : NULL;
    for (u32 n = 0; n < 100 && (n < 5 || used < 1); n++) {
        if (b->o.cold) memset(cold, (int)n, cold_size);
        double t0 = thread_seconds();
        for (u32 g = 0; g < k->n_grid; g++) {
            i64 total = 1, x = 1;
            char name[80];
            for (u32 d = 0; d < 3; d++) sym_eval(st, k->grid[g].extent[d], c->var, &x), total *= x;
            snprintf(name, sizeof name, "%s_%u", k->name, g);
            grid_fn *fn = (grid_fn *)(uintptr_t)os_dlsym(lib, name);
            if (fn) fn(buf, param, 0, total, scratch);
        }
        double t = thread_seconds() - t0;
        used += t;
        if (!best || t < best) best = t;
    }
    for (u32 i = 0; i < k->n_arg + k->n_temp; i++) mem_free(buf[i]);
    mem_free(scratch);
    mem_free(cold);
    os_dlclose(lib);
    return best;
}

/* Of a device that is absent: the prediction, beside the peak that it assumes. */
static void show_prediction(const struct bench *b, const struct check *timing, const struct candidate *c, const char *name)
{
    struct rates r = caps_rates(&b->target.caps);
    double seconds = gen_predict(c, &b->t, &b->target.caps, NULL), flops = task_flops(&b->t, timing->var) / seconds;
    double peak = b->o.threads == 1 ? r.ops[RATE_FMA_F32].one : r.ops[RATE_FMA_F32].all;
    printf("predicted %8.1f GFLOP/s %5.1f %% %9.1f us  %s\n", flops / 1e9, 100 * flops / peak, seconds * 1e6, name);
}

static void run(struct bench *b, const struct check *timing, const struct candidate *c)
{
    struct subject s = {0};
    struct arena a = {0};
    struct buf text = {0}, bin = {0}, why = {0}, name = {0};
    struct err e = {0};
    const struct lang *l = b->target.lang;
    const struct check *checks[] = {timing};
    double best = 0, wall = 0, t0 = os_now();
    candidate_print(&name, c);
    bool ok = gen_kernel(&s.kernel, &a, c, &b->t, &b->target.caps, &e) && lang_render(&text, l, &s.kernel.kir, &b->target.caps, &a, &e) &&
              l->build(&bin, buf_view(&text), &b->target.caps, 60, &e);
    if (b->o.dump) printf("%.*s\n", (int)text.n, text.p);
    s.code = buf_view(&bin);
    if (ok && b->o.binary) ok = os_write(b->o.binary, s.code.p, s.code.n, &e);
    struct trial_opts o = {.driver = b->target.driver, .dev = b->target.dev, .timeout = 20, .max_samples = 16};
    double built = os_now() - t0;
    enum trial_status st = TRIAL_OK;
    bool is_absent = dev_is_described(&b->target.dev);
    bool here = !is_absent && !b->target.caps.is_gpu && b->o.threads == 1;
    if (is_absent) st = ok ? TRIAL_OK : TRIAL_BUILD;
    if (ok && here) best = run_here(b, timing, &s, &e);
    if (!is_absent && (!ok || !here || b->o.verify)) st = ok ? trial_run(&s, checks, b->o.verify, timing, &o, take_sample, &wall, &why) : TRIAL_BUILD;
    if (!best) best = wall;
    double flops = task_flops(&b->t, timing->var);
    if (st == TRIAL_OK && is_absent) show_prediction(b, timing, c, name.p);
    else if (st == TRIAL_OK)
        printf("%8.1f GFLOP/s %5.1f %% %7.1f GB/s %9.1f us (predicted %9.1f, built in %.2f s)  %s\n", flops / best / 1e9,
               100 * flops / best / b->peak, task_bytes(&b->t, timing->var) / best / 1e9, best * 1e6,
               1e6 * gen_predict(c, &b->t, &b->target.caps, NULL), built, name.p);
    else
        printf("%s: %s %.*s\n", name.p, e.msg[0] ? e.msg : trial_status_name(st), (int)why.n, why.p ? why.p : "");
    fflush(stdout);
    buf_release(&text), buf_release(&bin), buf_release(&why), buf_release(&name);
    arena_release(&a);
}

static bool bench_shape(const char *text, const struct opts *o, double peak, struct err *e)
{
    struct bench b = {.o = *o, .peak = peak * o->threads};
    struct check timing;
    symtab_init(&b.sym, &b.arena);
    graph_init(&b.g, &b.arena, &b.sym);
    b.target.dev.n_threads = o->threads;
    b.target.dev.limits = str_of(o->limits);
    if (!bench_target_open(&b.target, o->device, e)) return false;
    if (b.target.caps.is_gpu) b.peak = 1e9 * b.target.caps.gflops;
    struct rates measured;
    bool is_gpu_here = b.target.caps.is_gpu && !dev_is_described(&b.target.dev);
    if (is_gpu_here && rates_find(&measured, b.target.driver, buf_view(&b.target.fingerprint))) b.target.caps.rates = measured;
    i64 none = 0;
    if (dev_is_described(&b.target.dev)) b.peak = caps_rates(&b.target.caps).ops[RATE_FMA_F32].one * o->threads;
    if (!parse_shape(&b, text, e) || !check_init(&timing, &b.t, &none, 1, o->verify, e)) return false;
    printf("%s, %s, peak %.1f GFLOP/s\n", text, dtype_name(o->type), b.peak / 1e9);
    struct candidate c;
    if (o->candidate) {
        if (!candidate_parse(&c, str_of(o->candidate), e)) return false;
        run(&b, &timing, &c);
    } else {
        struct best k = {.max = o->n, .b = &b};
        bool any = o->family ? gen_takes(o->family, &b.t, &b.target.caps) : gen_default(&b.t, &b.target.caps, NULL, &c);
        if (!any) return err_set(e, ERR_NOTHING, "no generator");
        if (o->family) c = gen_initial(o->family, &b.t, &b.target.caps, NULL);
        run(&b, &timing, &c);
        if (o->n) gen_scatter(&b.t, &b.target.caps, LOOKED_AT, 1, keep_best, &k);
        for (u32 i = 0; i < k.n; i++) run(&b, &timing, &k.v[i]);
    }
    check_release(&timing);
    bench_target_release(&b.target);
    arena_release(&b.arena);
    return true;
}

int main(int argc, char **argv)
{
    struct opts o = {.threads = 1, .type = DT_F32};
    struct err e = {0};
    int c;
    while ((c = getopt(argc, argv, "D:T:t:l:n:c:g:o:vdC")) != -1) {
        if (c == 'D') o.device = optarg;
        if (c == 'T') o.type = dtype_parse(str_of(optarg));
        if (c == 't') o.threads = (u32)atoi(optarg);
        if (c == 'n') o.n = (u32)i64_min(atoi(optarg), 64);
        if (c == 'l') o.limits = optarg;
        if (c == 'o') o.binary = optarg;
        if (c == 'c') o.candidate = optarg;
        if (c == 'g' && !(o.family = gen_find(str_of(optarg)))) {
            fprintf(stderr, "unknown family '%s'\n", optarg);
            return 1;
        }
        if (c == 'v') o.verify = true;
        if (c == 'd') o.dump = true;
        if (c == 'C') o.cold = true;
    }
    if (!dtype_is_float(o.type) && o.type != DT_U8 && o.type != DT_I16 && !(dtype_is_int(o.type) && dtype_size(o.type) >= 4)) {
        fprintf(stderr, "-T takes a type of floats, u8, i16, or integers of 32 and 64 bits\n");
        return 1;
    }
    double peak = measure_peak();
    for (int i = optind; i < argc; i++)
        if (!bench_shape(argv[i], &o, peak, &e)) {
            fprintf(stderr, "%s: %s\n", argv[i], e.msg);
            return 1;
        }
    return 0;
}
