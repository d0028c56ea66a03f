// SPDX-License-Identifier: Apache-2.0
//
// Bad input of the attention operators of ai.onnx and com.microsoft: heads that do not divide, caches, masks, tables and lengths that contradict each other are
// errors that name node, input and sizes, when a model is opened or, where sizes are symbolic, when they are bound; then nothing is written. Lengths
// and positions that are data, out of any range, lead to the reference's results and write nothing beside the outputs.
#include "op/op.h"
#include "program_fixture.h"

#include <math.h>

/* Models. */

struct bad { const char *inputs, *call, *attributes, *want; };

static void refuse(const struct bad *x)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    struct str quote, name = str_of(x->call);
    str_cut(name, '(', &name, &quote);
    struct str text = str_fmt(&a, "graph {\n%s  %%y: f32[] = %.*s \"bad\"(%.*s%s%s%s\n  output %%y\n}\n", x->inputs, STR_ARG(name), STR_ARG(quote), *x->attributes ? " {" : "",
                             x->attributes, *x->attributes ? "}" : "");
    symtab_init(&st, &a);
    if (!graph_parse(&g, &a, &st, text, &e)) fail_msg("%s\n%s", e.msg, text.p);
    if (op_infer_all(&g, &e)) fail_msg("accepted instead of '%s':\n%s", x->want, text.p);
    if (!strstr(e.msg, x->want) || !strstr(e.msg, "'bad'")) fail_msg("'%s' instead of '%s'", e.msg, x->want);
    if (e.code != ERR_INPUT && e.code != ERR_UNSUPPORTED) fail_msg("%s: code %d", e.msg, (int)e.code);
    arena_release(&a);
}

#define IN(name, dims) "  input %" name ": f32[" dims "]\n"
#define INTS(name, dims) "  input %" name ": i32[" dims "]\n"
#define QKV(q, k, v) IN("q", q) IN("k", k) IN("v", v)

static void test_attention(void **state)
{
    static const char two[] = "q_num_heads=2, kv_num_heads=2";
    static const struct bad bad[] = {
        {QKV("2,3,10", "2,5,8", "2,5,8"), "Attention(%q, %k, %v)", "q_num_heads=3, kv_num_heads=1", "Q (input 0) has 10 columns, which is no multiple of 3 heads"},
        {QKV("2,3,8", "2,5,4", "2,5,7"), "Attention(%q, %k, %v)", "q_num_heads=4, kv_num_heads=2", "V (input 2) has 7 columns, which is no multiple of 2 heads"},
        {QKV("2,3,8", "2,5,6", "2,5,6"), "Attention(%q, %k, %v)", "q_num_heads=4, kv_num_heads=3", "4 heads of queries are not a multiple of 3 of keys"},
        {QKV("2,3,8", "2,5,8", "2,5,8"), "Attention(%q, %k, %v)", "q_num_heads=2", "q_num_heads and kv_num_heads"},
        {QKV("2,3,8", "2,5,6", "2,5,6"), "Attention(%q, %k, %v)", two, "K (input 1) is [2,5,6], expected [2,?,8]: batch, keys, kv_num_heads * head size of Q"},
        {QKV("2,3,8", "3,5,8", "3,5,8"), "Attention(%q, %k, %v)", two, "K (input 1) is [3,5,8], expected [2,?,8]"},
        {QKV("2,3,8", "2,5,8", "2,6,8"), "Attention(%q, %k, %v)", two, "V (input 2) is [2,6,8], expected [2,5,?]"},
        {QKV("2,4,3,8", "2,2,5,4", "2,2,5,4"), "Attention(%q, %k, %v)", "", "K (input 1) is [2,2,5,4], expected [2,?,?,8]"},
        {QKV("2,4,3,8", "2,2,5,8", "2,1,5,8"), "Attention(%q, %k, %v)", "", "V (input 2) is [2,1,5,8], expected [2,2,5,?]: batch, heads of K, keys, head size"},
        {QKV("2,4,3,8", "2,3,5,8", "2,3,5,8"), "Attention(%q, %k, %v)", "", "4 heads of queries are not a multiple of 3 of keys"},
        {QKV("2,4,3,8", "2,5,16", "2,5,16"), "Attention(%q, %k, %v)", "", "must all be of rank 3 or all of rank 4"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("m", "2,2,4,5"), "Attention(%q, %k, %v, %m)", two, "attn_mask (input 3) is [2,2,4,5], expected [2 or 1,2 or 1,3 or 1,?]: batch, q_num_heads, queries, keys"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("m", "3,2,3,5"), "Attention(%q, %k, %v, %m)", two, "attn_mask (input 3) is [3,2,3,5]"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("m", "3,3,5"), "Attention(%q, %k, %v, %m)", two, "attn_mask (input 3) is [3,3,5], expected [2 or 1,3 or 1,?]: q_num_heads, queries, keys"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("m", "3,9"), "Attention(%q, %k, %v, %m)", two, "attn_mask (input 3) is [3,9], longer by 4 than the 5 keys"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("m", "1,1,1,3,5"), "Attention(%q, %k, %v, %m)", two, "attn_mask (input 3) of rank 5, expected 1 to 4"},
        {QKV("2,3,8", "2,5,8", "2,5,8") INTS("m", "3,5"), "Attention(%q, %k, %v, %m)", two, "attn_mask of type i32; cast it"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("pk", "2,2,4,4"), "Attention(%q, %k, %v, _, %pk)", two, "past_key and past_value belong together"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("pk", "2,3,4,4") IN("pv", "2,3,4,4"), "Attention(%q, %k, %v, _, %pk, %pv)", two, "past_key (input 4) is [2,3,4,4], expected [2,2,?,4]: batch, heads of K, positions, head size of K"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("pk", "2,2,4,4") IN("pv", "2,2,3,4"), "Attention(%q, %k, %v, _, %pk, %pv)", two, "past_value (input 5) is [2,2,3,4], expected [2,2,4,4]"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("pk", "2,4,8") IN("pv", "2,4,8"), "Attention(%q, %k, %v, _, %pk, %pv)", two, "past_key (input 4) is [2,4,8], expected [2,2,?,4]"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("m", "3,10") IN("pk", "2,2,4,4") IN("pv", "2,2,4,4"), "Attention(%q, %k, %v, %m, %pk, %pv)", two, "longer by 1 than the 9 keys of past_key and K together"},
        {QKV("2,3,8", "2,5,8", "2,5,8") INTS("n", "3"), "Attention(%q, %k, %v, _, _, _, %n)", two, "nonpad_kv_seqlen (input 6) is [3], expected [2]: batch"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("n", "2"), "Attention(%q, %k, %v, _, _, _, %n)", two, "nonpad_kv_seqlen of type f32, expected integers"},
        {QKV("2,3,8", "2,5,8", "2,5,8") IN("s", "3"), "quern::Attention(%q, %k, %v, _, _, _, _, %s)", two, "the sinks (input 7) is [3], expected [2]: heads of Q"},
    };
    for (u32 i = 0; i < countof(bad); i++) refuse(&bad[i]);
}

#define MS "com.microsoft::"
#define MHA MS "MultiHeadAttention"

static void test_multi_head(void **state)
{
    static const char two[] = "num_heads=2";
    static const struct bad bad[] = {
        {QKV("2,3,8", "2,4,8", "2,4,8"), MHA "(%q, %k, %v)", "num_heads=3", "axis 2 of input 0 is 8, which is no multiple of 3 heads"},
        {QKV("2,3,8", "2,4,8", "2,4,7"), MHA "(%q, %k, %v)", two, "axis 2 of input 2 is 7, which is no multiple of 2 heads"},
        {QKV("2,3,8", "2,4,8", "2,4,8"), MHA "(%q, %k, %v)", "num_heads=0", "num_heads 0"},
        {QKV("2,3,8", "3,4,8", "3,4,8"), MHA "(%q, %k, %v)", two, "key (input 1) is [3,4,8], expected [2,?,8]: batch, keys, columns of query"},
        {QKV("2,3,8", "2,4,6", "2,4,6"), MHA "(%q, %k, %v)", two, "key (input 1) is [2,4,6], expected [2,?,8]"},
        {QKV("2,3,8", "2,4,8", "2,5,8"), MHA "(%q, %k, %v)", two, "value (input 2) is [2,5,8], expected [2,4,?]"},
        {QKV("2,3,8", "2,3,4,4", "2,3,4,4"), MHA "(%q, %k, %v)", two, "key (input 1) is [2,3,4,4], expected [2,2,?,4]: batch, num_heads, keys, head size of query"},
        {QKV("2,3,8", "2,2,4,4", "2,2,5,4"), MHA "(%q, %k, %v)", two, "value (input 2) is [2,2,5,4], expected [2,2,4,?]"},
        {IN("q", "2,3,8") IN("k", "2,4,3,2,4"), MHA "(%q, %k)", two, "key (input 1) is [2,4,3,2,4], expected [2,?,2,2,4]"},
        {IN("q", "2,3,2,2,4"), MHA "(%q)", two, "query (input 0) is [2,3,2,2,4], expected [2,?,2,3,?]: batch, positions, num_heads, tensors side by side, head size"},
        {IN("q", "2,3,8"), MHA "(%q)", two, "of ranks that do not go together: expected are 3, 3, 3;"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("b", "20"), MHA "(%q, %k, %v, %b)", two, "bias and of queries, keys and values must not be smaller: 20 and 24"},
        {QKV("2,3,8", "2,4,8", "2,4,8") INTS("m", "2,3"), MHA "(%q, %k, %v, _, %m)", two, "the mask (input 4) is [2,3], expected [2,4]: batch, keys of past and present"},
        {QKV("2,3,8", "2,4,8", "2,4,8") INTS("m", "2,4,4"), MHA "(%q, %k, %v, _, %m)", two, "the mask (input 4) is [2,4,4], expected [2,3,4]"},
        {QKV("2,3,8", "2,4,8", "2,4,8") INTS("m", "3"), MHA "(%q, %k, %v, _, %m)", two, "a mask (input 4) of rank 1 with 3 elements; supported are one or two for each of 2 sequences"},
        {QKV("2,3,8", "2,4,8", "2,4,8") INTS("m", "2,1,3,4"), MHA "(%q, %k, %v, _, %m)", two, "a mask (input 4) of rank 4"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("m", "2,4"), MHA "(%q, %k, %v, _, %m)", two, "the mask (input 4) is of type f32; an additive one is attention_bias"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("s", "2,2,3,5"), MHA "(%q, %k, %v, _, _, %s)", two, "attention_bias (input 5) is [2,2,3,5], expected [2 or 1,2 or 1,3,4]"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("s", "3,4"), MHA "(%q, %k, %v, _, _, %s)", two, "attention_bias (input 5) is [3,4], expected [2 or 1,2 or 1,3,4]"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("pk", "2,2,5,4"), MHA "(%q, %k, %v, _, _, _, %pk)", two, "past_key (input 6) and past_value (input 7) belong together"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("pk", "2,2,5,3") IN("pv", "2,2,5,4"), MHA "(%q, %k, %v, _, _, _, %pk, %pv)", two, "past_key (input 6) is [2,2,5,3], expected [2,2,?,4]"},
        {QKV("2,3,8", "2,4,8", "2,4,8") IN("pk", "2,2,5,4") IN("pv", "2,2,6,4"), MHA "(%q, %k, %v, _, _, _, %pk, %pv)", two, "past_value (input 7) is [2,2,6,4], expected [2,2,5,4]"},
        {QKV("2,3,8", "2,4,8", "2,4,8") INTS("m", "2,4") IN("pk", "2,2,5,4") IN("pv", "2,2,5,4"), MHA "(%q, %k, %v, _, %m, _, %pk, %pv)", two, "the mask (input 4) is [2,4], expected [2,9]"},
    };
    for (u32 i = 0; i < countof(bad); i++) refuse(&bad[i]);
}

#define ATT MS "Attention"
#define XWB(x, w, b) IN("x", x) IN("w", w) IN("b", b)

static void test_merged(void **state)
{
    static const char two[] = "num_heads=2";
    static const struct bad bad[] = {
        {XWB("2,3,8", "8,24", "24"), ATT "(%x, %w, %b)", "num_heads=0", "num_heads 0"},
        {XWB("2,3,8", "8,24", "24"), ATT "(%x, %w, %b)", "num_heads=5", "axis 1 of input 1 is 24, which is no multiple of 15 heads"},
        {XWB("2,3,8", "7,24", "24"), ATT "(%x, %w, %b)", two, "the weights (input 1) is [7,24], expected [8,?]: channels of the input"},
        {XWB("2,3,8", "8,24", "23"), ATT "(%x, %w, %b)", two, "the bias (input 2) is [23], expected [24]: columns of the weights"},
        {XWB("2,3,8", "8,24", "24"), ATT "(%x, %w, %b)", "num_heads=2, qkv_hidden_sizes=[8,8,7]", "qkv_hidden_sizes for 2 heads"},
        {XWB("2,3,8", "8,24", "24"), ATT "(%x, %w, %b)", "num_heads=2, qkv_hidden_sizes=[8,8,6]", "sum of qkv_hidden_sizes must be equal, not 24 and 22"},
        {XWB("6,8", "8,24", "24"), ATT "(%x, %w, %b)", two, "input 0 of rank 2"},
        {XWB("2,3,8", "8,24", "24") INTS("m", "2,4"), ATT "(%x, %w, %b, %m)", two, "the mask (input 3) is [2,4], expected [2,3]"},
        {XWB("2,3,8", "8,24", "24") INTS("m", "5"), ATT "(%x, %w, %b, %m)", two, "rank 1 with 5 elements"},
        {XWB("2,3,8", "8,24", "24") IN("p", "2,2,2,5,3"), ATT "(%x, %w, %b, _, %p)", two, "past (input 4) is [2,2,2,5,3], expected [2,2,2,?,4]: keys and values, batch, heads, positions, head size"},
        {XWB("2,3,8", "8,24", "24") IN("p", "2,3,2,5,4"), ATT "(%x, %w, %b, _, %p)", two, "past (input 4) is [2,3,2,5,4]"},
        {XWB("2,3,8", "8,24", "24") IN("p", "2,2,2,5,4") INTS("m", "2,3"), ATT "(%x, %w, %b, %m, %p)", two, "the mask (input 3) is [2,3], expected [2,8]"},
        {XWB("2,3,8", "8,24", "24") IN("s", "2,2,3,4"), ATT "(%x, %w, %b, _, _, %s)", two, "attention_bias (input 5) is [2,2,3,4], expected [2 or 1,2 or 1,3,3]"},
    };
    for (u32 i = 0; i < countof(bad); i++) refuse(&bad[i]);
}

#define GQA MS "GroupQueryAttention"
#define STEP(q, k, p) QKV(q, k, k) IN("pk", p) IN("pv", p) INTS("n", "2")
#define TOTAL(n) "  const %t: i32[1] = [" n "]\n"
#define TABLES(a, b) IN("c", a) IN("s", b)

static void test_group_query(void **state)
{
    static const char heads[] = "num_heads=4, kv_num_heads=2";
    static const struct bad bad[] = {
        {STEP("2,1,16", "2,1,8", "2,2,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", "num_heads=4, kv_num_heads=3", "num_heads 4 is no multiple of kv_num_heads 3"},
        {STEP("2,1,18", "2,1,8", "2,2,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", heads, "axis 2 of input 0 is 18, which is no multiple of 4 heads"},
        {IN("q", "2,1,30") INTS("n", "2"), GQA "(%q, _, _, _, _, %n)", heads, "axis 2 of input 0 is 30, which is no multiple of 8 heads"},
        {STEP("2,1,16", "2,1,6", "2,2,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", heads, "key (input 1) is [2,1,6], expected [2,1,8]: batch, positions of query, kv_num_heads * head size of query"},
        {STEP("2,2,16", "2,1,8", "2,2,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", heads, "key (input 1) is [2,1,8], expected [2,2,8]"},
        {STEP("2,1,16", "2,1,8", "2,4,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", heads, "past_key (input 3) is [2,4,5,4], expected [2,2,?,4]"},
        {STEP("2,1,16", "2,1,8", "3,2,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", heads, "past_key (input 3) is [3,2,5,4]"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") IN("pw", "2,2,6,4"), GQA "(%q, %k, %v, %pk, %pw, %n)", heads, "past_value (input 4) is [2,2,6,4], expected [2,2,5,4]"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4"), GQA "(%q, %k, %v, %pk, _, %n)", heads, "past_key (input 3) and past_value (input 4) belong together"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4"), GQA "(%q, %k, _, %pk, %pv, %n)", heads, "key (input 1) and value (input 2) belong together"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4"), GQA "(%q, %k, %v, %pk, %pv)", heads, "input 5 is missing"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") INTS("m", "3"), GQA "(%q, %k, %v, %pk, %pv, %m)", heads, "seqlens_k (input 5) and the batch must be equal, not 3 and 2"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") TOTAL("7"), GQA "(%q, %k, %v, %pk, %pv, %n, %t)", heads, "past_key and the new ones, beside total_sequence_length (input 6), must not be smaller: 6 and 7"},
        {STEP("2,3,16", "2,3,8", "2,2,5,4") TOTAL("2"), GQA "(%q, %k, %v, %pk, %pv, %n, %t)", heads, "total_sequence_length (input 6), beside the new keys, must not be smaller: 2 and 3"},
        {QKV("2,3,16", "2,3,8", "2,3,8") INTS("n", "2") TOTAL("4"), GQA "(%q, %k, %v, _, _, %n, %t)", heads, "must not be smaller: 3 and 4"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") "  const %t: i32[2] = [6,6]\n", GQA "(%q, %k, %v, %pk, %pv, %n, %t)", heads, "total_sequence_length (input 6) and 1 must be equal, not 2 and 1"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") TABLES("5,2", "5,2") TOTAL("6"), GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s)", "num_heads=4, kv_num_heads=2, do_rotary=1", "cos_cache (input 7) has, beside the keys, must not be smaller: 5 and 6"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") TABLES("9,2", "8,2") TOTAL("6"), GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s)", "num_heads=4, kv_num_heads=2, do_rotary=1", "sin_cache (input 8) is [8,2], expected [9,2]"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") TABLES("9,3", "9,3") TOTAL("6"), GQA "(%q, %k, %v, %pk, %pv, %n, %t, %c, %s)", "num_heads=4, kv_num_heads=2, do_rotary=1", "cos_cache (input 7) rotates 6 elements of heads of 4"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4"), GQA "(%q, %k, %v, %pk, %pv, %n)", "num_heads=4, kv_num_heads=2, do_rotary=1", "input 7 is missing"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") IN("b", "1,1,1,7"), GQA "(%q, %k, %v, %pk, %pv, %n, _, _, _, _, %b)", heads, "attention_bias (input 10) is [1,1,1,7], expected [2 or 1,4 or 1,1,6]"},
        {STEP("2,1,16", "2,1,8", "2,2,5,4") IN("b", "2"), GQA "(%q, %k, %v, %pk, %pv, %n, _, _, _, _, _, %b)", heads, "head_sink (input 11) is [2], expected [4]: num_heads"},
    };
    for (u32 i = 0; i < countof(bad); i++) refuse(&bad[i]);
}

#define PAGED(q, k, v, cache) QKV(q, k, v) IN("kc", cache) IN("vc", cache) INTS("n", "3") INTS("p", "2") INTS("t", "2,4")
#define PA MS "PagedAttention(%q, %k, %v, %kc, %vc, %n, %p, %t"

static void test_paged(void **state)
{
    static const char heads[] = "num_heads=4, kv_num_heads=2";
    static const struct bad bad[] = {
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4"), PA ")", "num_heads=4, kv_num_heads=3", "num_heads 4 is no multiple of kv_num_heads 3"},
        {PAGED("5,18", "5,8", "5,8", "9,4,2,4"), PA ")", heads, "axis 1 of input 0 is 18, which is no multiple of 4 heads"},
        {PAGED("5,16", "6,8", "6,8", "9,4,2,4"), PA ")", heads, "key (input 1) is [6,8], expected [5,8]: tokens, kv_num_heads * head size of query"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,5"), PA ")", heads, "key_cache (input 3) is [9,4,2,5], expected [?,?,2,4]: pages, positions of a page, kv_num_heads, head size of query"},
        {PAGED("5,16", "5,8", "5,8", "9,4,8"), PA ")", heads, "input 3 of rank 3"},
        {QKV("5,16", "5,8", "5,8") IN("kc", "9,4,2,4") IN("vc", "8,4,2,4") INTS("n", "3") INTS("p", "2") INTS("t", "2,4"), PA ")", heads, "value_cache (input 4) is [8,4,2,4], expected [9,4,2,4]"},
        {QKV("5,16", "5,8", "5,8") "  input %kc: i8[9,4,2,4]\n  input %vc: i8[9,4,2,4]\n" INTS("n", "3") INTS("p", "2") INTS("t", "2,4"), PA ")", heads, "a cache (input 3) of type i8 with queries of f32"},
        {QKV("5,16", "5,8", "5,8") IN("kc", "9,4,2,4") IN("vc", "9,4,2,4") INTS("n", "2") INTS("p", "2") INTS("t", "2,4"), PA ")", heads, "cumulative_sequence_length (input 5) is [2], expected [3]: sequences + 1"},
        {QKV("5,16", "5,8", "5,8") IN("kc", "9,4,2,4") IN("vc", "9,4,2,4") INTS("n", "3") INTS("p", "3") INTS("t", "2,4"), PA ")", heads, "past_seqlens (input 6) is [3], expected [2]"},
        {QKV("5,16", "5,8", "5,8") IN("kc", "9,4,2,4") IN("vc", "9,4,2,4") INTS("n", "3") INTS("p", "2") IN("t", "2,4"), PA ")", heads, "input 7 of type f32, expected integers"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4"), PA ")", "num_heads=4, kv_num_heads=2, local_window_size=0", "local_window_size 0, expected -1 or at least 1"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4"), PA ")", "num_heads=4, kv_num_heads=2, kv_cache_layout=\"LATENT\"", "kv_cache_layout 'LATENT'"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4"), PA ")", "num_heads=4, kv_num_heads=2, k_quant_type=\"PER_TENSOR\"", "a quantised cache ('k_quant_type')"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4"), PA ")", "num_heads=4, kv_num_heads=2, do_rotary=1", "input 8 is missing"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4") TABLES("9,3", "9,3"), PA ", %c, %s)", "num_heads=4, kv_num_heads=2, do_rotary=1", "cos_cache (input 8) rotates 6 elements of heads of 4"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4") INTS("s", "4"), PA ", _, _, %s)", heads, "slot_mapping (input 10) is [4], expected [5]: tokens"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4") IN("s", "2"), PA ", _, _, _, %s)", heads, "head_sink (input 11) is [2], expected [4]: num_heads"},
        {PAGED("5,16", "5,8", "5,8", "9,4,2,4") IN("s", "4"), PA ", _, _, _, _, %s)", heads, "q_norm_weight (input 12) and k_norm_weight (input 13) belong together"},
    };
    for (u32 i = 0; i < countof(bad); i++) refuse(&bad[i]);
}

#define ROT MS "RotaryEmbedding"

static void test_rotary(void **state)
{
    static const struct bad bad[] = {
        {IN("x", "2,3,8") INTS("p", "2,4") TABLES("9,2", "9,2"), ROT "(%x, %p, %c, %s)", "", "position_ids (input 1) is [2,4], expected [2,3]: batch, positions of the input"},
        {IN("x", "2,3,8") INTS("p", "2") TABLES("9,2", "9,2"), ROT "(%x, %p, %c, %s)", "", "position_ids (input 1) is [2], expected [1]"},
        {IN("x", "2,3,8") INTS("p", "2,3") TABLES("9,2", "9,3"), ROT "(%x, %p, %c, %s)", "", "sin_cache (input 3) is [9,3], expected [9,2]"},
        {IN("x", "2,3,8") INTS("p", "1") TABLES("2,2", "2,2"), ROT "(%x, %p, %c, %s)", "", "cos_cache (input 2) has, beside those of the input, must not be smaller: 2 and 3"},
        {IN("x", "2,3,10") INTS("p", "2,3") TABLES("9,2", "9,2"), ROT "(%x, %p, %c, %s)", "", "the number of heads is not known"},
        {IN("x", "2,8") INTS("p", "2,3") TABLES("9,2", "9,2"), ROT "(%x, %p, %c, %s)", "", "input 0 of rank 2"},
    };
    for (u32 i = 0; i < countof(bad); i++) refuse(&bad[i]);
}

/* Runs. Outputs lie between guards. */

enum { GUARD = 64, ROOM = 4096, N_OUT = 3 };
static const float guard = -12345.75f;

struct guarded {
    float memory[N_OUT][GUARD + ROOM + GUARD];
    quern_tensor *out[N_OUT];
    int n;
};

static void guarded_open(struct guarded *x, const struct fixture *f, int n, const int64_t dim[][4], const int *rank)
{
    *x = (struct guarded){.n = n};
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < GUARD + ROOM + GUARD; i++) x->memory[k][i] = guard;
        must(f, quern_tensor_view(f->q, QUERN_F32, rank[k], dim[k], x->memory[k] + GUARD, &x->out[k]));
        assert_true(quern_tensor_count(x->out[k]) <= ROOM);
    }
}

/* used: the outputs were written, all of them; else nothing was. */
static void guarded_close(struct guarded *x, bool used)
{
    for (int k = 0; k < x->n; k++) {
        i64 n = used ? quern_tensor_count(x->out[k]) : 0;
        for (i64 i = 0; i < GUARD + ROOM + GUARD; i++)
            if ((x->memory[k][i] == guard) != (i < GUARD || i >= GUARD + n)) fail_msg("output %d: element %d is %g", k, (int)i - GUARD, (double)x->memory[k][i]);
        quern_tensor_free(x->out[k]);
    }
}

static quern_tensor *ints(const struct fixture *f, int rank, const int64_t *dim, const int32_t *v)
{
    quern_tensor *t = NULL;
    must(f, quern_tensor_new(f->q, QUERN_I32, rank, dim, NULL, &t));
    memcpy(quern_tensor_data(t), v, sizeof *v * (size_t)quern_tensor_count(t));
    return t;
}

static const char *const devices[] = {"interp", "cpu"};

/* MultiHeadAttention with caches whose lengths are symbolic, and a mask whose length follows from them. */
static void test_sizes(void **state)
{
    static const char text[] = "graph {\n" QKV("2,S,8", "2,S,8", "2,S,8") "  input %m: i32[2,T]\n" IN("pk", "2,2,P,4") IN("pv", "2,2,P,4")
                               "  %y: f32[], %k1: f32[], %v1: f32[] = " MHA " \"bad\"(%q, %k, %v, _, %m, _, %pk, %pv) {num_heads=2}\n"
                               "  output %y\n  output %k1\n  output %v1\n}\n";
    static const struct { int64_t keys, mask, past, values; quern_status want; const char *text; } cases[] = {
        {3, 8, 5, 5, QUERN_OK, ""}, {3, 7, 5, 5, QUERN_INPUT, "needs T to be P+S (8)"}, {3, 9, 5, 5, QUERN_INPUT, "needs T to be P+S (8)"}, {4, 8, 5, 5, QUERN_INPUT, "'k' has size 4 on axis 1, expected 3"},
        {3, 8, 5, 4, QUERN_INPUT, "'pv' has size 4 on axis 2, expected 5"}};
    for (int d = 0; d < 2; d++) {
        struct fixture f;
        assert_true(fixture_open(&f, text, devices[d]));
        for (int c = 0; c < countof(cases); c++) {
            struct rng r = rng_seed(4);
            struct guarded g;
            static const int rank[] = {3, 4, 4};
            const int64_t dim[3][4] = {{2, 3, 8}, {2, 2, 8, 4}, {2, 2, 8, 4}}, q[] = {2, 3, 8}, k[] = {2, cases[c].keys, 8}, m[] = {2, cases[c].mask},
                          pk[] = {2, 2, cases[c].past, 4}, pv[] = {2, 2, cases[c].values, 4};
            static const int32_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
            quern_tensor *in[] = {floats(&f, 3, q, &r), floats(&f, 3, k, &r), floats(&f, 3, k, &r), ints(&f, 2, m, ones), floats(&f, 4, pk, &r), floats(&f, 4, pv, &r)};
            guarded_open(&g, &f, 3, dim, rank);
            quern_status got = quern_run(f.p, in, 6, g.out, 3);
            if (got != cases[c].want || !strstr(quern_error(f.q), cases[c].text)) fail_msg("case %d: %d, '%s'", c, (int)got, quern_error(f.q));
            guarded_close(&g, got == QUERN_OK);
            for (int i = 0; i < countof(in); i++) quern_tensor_free(in[i]);
        }
        fixture_close(&f);
    }
}

/* A prompt longer than the tables of the rotation. */
static void test_too_long(void **state)
{
    static const char text[] = "graph {\n" QKV("1,S,16", "1,S,8", "1,S,8") INTS("n", "1") TABLES("6,2", "6,2")
                               "  %y: f32[] = " GQA " \"bad\"(%q, %k, %v, _, _, %n, _, %c, %s) {num_heads=4, kv_num_heads=2, do_rotary=1}\n  output %y\n}\n";
    for (int d = 0; d < 2; d++) {
        struct fixture f;
        assert_true(fixture_open(&f, text, devices[d]));
        for (int64_t s = 5; s <= 8; s++) {
            struct rng r = rng_seed(5);
            struct guarded g;
            const int rank = 3;
            const int64_t dim[1][4] = {{1, s, 16}}, q[] = {1, s, 16}, k[] = {1, s, 8}, t[] = {6, 2}, one = 1;
            quern_tensor *in[] = {floats(&f, 3, q, &r), floats(&f, 3, k, &r), floats(&f, 3, k, &r), ints(&f, 1, &one, &(int32_t){(int32_t)s - 1}), floats(&f, 2, t, &r), floats(&f, 2, t, &r)};
            guarded_open(&g, &f, 1, dim, &rank);
            quern_status got = quern_run(f.p, in, 6, g.out, 1);
            assert_int_equal(got, s <= 6 ? QUERN_OK : QUERN_INPUT);
            if (got && !strstr(quern_error(f.q), "GroupQueryAttention 'bad'")) fail_msg("%s", quern_error(f.q));
            guarded_close(&g, got == QUERN_OK);
            for (int i = 0; i < countof(in); i++) quern_tensor_free(in[i]);
        }
        fixture_close(&f);
    }
}

/* Lengths and positions out of any range: as the reference, which clamps positions. */
static void check_data(const char *device, const int32_t *length, const int32_t *at)
{
    static const char text[] = "graph {\n" QKV("2,2,16", "2,2,8", "2,2,8") IN("pk", "2,2,5,4") IN("pv", "2,2,5,4") INTS("n", "2") TABLES("9,2", "9,2") "  input %i: i64[2,2]\n"
                               "  %y: f32[], %k1: f32[], %v1: f32[] = " GQA " \"a\"(%q, %k, %v, %pk, %pv, %n, _, %c, %s, %i) {num_heads=4, kv_num_heads=2, do_rotary=1}\n"
                               "  output %y\n  output %k1\n  output %v1\n}\n";
    static const int64_t q[] = {2, 2, 16}, k[] = {2, 2, 8}, p[] = {2, 2, 5, 4}, t[] = {9, 2}, two[] = {2, 2}, dim[3][4] = {{2, 2, 16}, {2, 2, 7, 4}, {2, 2, 7, 4}};
    static const int rank[] = {3, 4, 4};
    struct rng r = rng_seed(6);
    struct fixture f;
    struct guarded g;
    assert_true(fixture_open(&f, text, device));
    quern_tensor *in[] = {floats(&f, 3, q, &r), floats(&f, 3, k, &r), floats(&f, 3, k, &r), floats(&f, 4, p, &r), floats(&f, 4, p, &r), ints(&f, 1, two, length),
                          floats(&f, 2, t, &r), floats(&f, 2, t, &r), NULL}, *want[3] = {0};
    must(&f, quern_tensor_new(f.q, QUERN_I64, 2, two, NULL, &in[8]));
    for (int i = 0; i < 4; i++) ((int64_t *)quern_tensor_data(in[8]))[i] = at[i];
    guarded_open(&g, &f, 3, dim, rank);
    must(&f, quern_model_eval(f.m, in, 9, want, 3));
    must(&f, quern_run(f.p, in, 9, g.out, 3));
    for (int o = 0; o < 3; o++)
        for (i64 i = 0; i < quern_tensor_count(want[o]); i++) {
            float x = g.memory[o][GUARD + i], y = ((float *)quern_tensor_data(want[o]))[i];
            if (!(fabsf(x - y) <= 1e-4f * (1 + fabsf(y))) && !(isnan(x) && isnan(y))) fail_msg("%s: output %d, element %d: %g, expected %g", device, o, (int)i, (double)x, (double)y);
        }
    guarded_close(&g, true);
    for (int i = 0; i < 9; i++) quern_tensor_free(in[i]);
    for (int i = 0; i < 3; i++) quern_tensor_free(want[i]);
    fixture_close(&f);
}

static void test_data(void **state)
{
    static const int32_t length[][2] = {{4, 6}, {INT32_MAX, 6}, {-1, INT32_MIN}, {100, 0}}, at[][4] = {{3, 4, 5, 6}, {INT32_MAX, -1, 9, 8}, {INT32_MIN, 0, -9, -10}};
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < countof(length); i++) check_data(devices[d], length[i], at[i % countof(at)]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention), cmocka_unit_test(test_multi_head), cmocka_unit_test(test_merged), cmocka_unit_test(test_group_query), cmocka_unit_test(test_paged), cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_too_long), cmocka_unit_test(test_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
