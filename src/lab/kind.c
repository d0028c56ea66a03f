// SPDX-License-Identifier: Apache-2.0
//
// The computations that kernel names encode: one kind for each operator of the tool that the names come from, with its fields. Two of that
// tool's kernels are one kind here: attn_v2 differs from attn_v1 only in where it multiplies by the scale.
#include "lab/lab.h"

static const struct lab_field_info gemm_field[N_LAB_FIELDS] = {
#define X(id, tag, key, old, param, least, most, what) {tag, key, old, param, what, least, most},
#include "lab/field.inc"
#undef X
};
static const struct lab_field_info attention_field[N_LAB_ATTENTION_FIELDS] = {
#define X(id, tag, key, least, most, what) {tag, key, "", "", what, least, most},
#include "lab/field_attention.inc"
#undef X
};

static const struct lab_fields gemm_fields = {gemm_field, N_LAB_FIELDS, N_LAB_FIELDS, (u64)1 << LF_BM};
static const struct lab_fields attention_fields = {attention_field, N_LAB_ATTENTION_FIELDS, LA_SHP, (u64)1 << LA_BR | (u64)1 << LA_SA};

bool lab_is_attention(enum lab_kind k) { return k != LAB_MM; }

const struct lab_fields *lab_fields(enum lab_kind k) { return lab_is_attention(k) ? &attention_fields : &gemm_fields; }

const struct lab_field_info *lab_field(enum lab_kind k, u32 f)
{
    assert(f < lab_fields(k)->n);
    return &lab_fields(k)->v[f];
}

static const char stats[] = "statistics of the rows of the scores", output[] = "output, from the rows' statistics";
enum { GEMMA2_SOFTCAP = 50 };

/* Kernels of a split attention follow each other. */
static const struct lab_kind_info kinds[N_LAB_KINDS] = {
    [LAB_MM] = {.prefix = "MM", .op = "matmul", .what = "matmul"},
    [LAB_ATTENTION] = {.prefix = "Attention", .op = "attn_v1", .alias = "attn_v2", .what = "attention", .computes = {.has_o = true}},
    [LAB_ATTENTION_ORIGIN] = {.prefix = "AttentionOrigin", .op = "attention_origin", .what = "causal attention", .is_origin = true,
                              .computes = {.is_causal = true, .has_o = true}},
    [LAB_ATTENTION_SPLIT] = {.prefix = "Attention", .op = "attn_split", .what = "causal attention by two kernels", .lists = "k2",
                             .n_parts = 2, .first = LAB_ATTENTION_K1, .computes = {.is_causal = true, .has_o = true}},
    [LAB_ATTENTION_K1] = {.prefix = "AttentionK1", .op = "attn_k1", .what = stats, .lists = "k1",
                          .computes = {.is_causal = true, .has_stats = true}},
    [LAB_ATTENTION_K2] = {.prefix = "AttentionK2", .op = "attn_k2", .what = output, .lists = "k2",
                          .computes = {.is_causal = true, .takes_stats = true, .has_o = true}},
    [LAB_GEMMA2_ORIGIN] = {.prefix = "Gemma2Origin", .op = "gemma2_origin", .what = "causal attention with a softcap", .is_origin = true,
                           .computes = {.is_causal = true, .softcap = GEMMA2_SOFTCAP, .has_o = true}},
    [LAB_GEMMA2_SPLIT] = {.prefix = "Gemma2", .op = "gemma2_split", .what = "causal attention with a softcap by two kernels",
                          .lists = "k2", .n_parts = 2, .first = LAB_GEMMA2_K1,
                          .computes = {.is_causal = true, .softcap = GEMMA2_SOFTCAP, .has_o = true}},
    [LAB_GEMMA2_K1] = {.prefix = "Gemma2K1", .op = "gemma2_k1", .what = stats, .lists = "k1",
                       .computes = {.is_causal = true, .softcap = GEMMA2_SOFTCAP, .has_stats = true}},
    [LAB_GEMMA2_K2] = {.prefix = "Gemma2K2", .op = "gemma2_k2", .what = output, .lists = "k2",
                       .computes = {.is_causal = true, .softcap = GEMMA2_SOFTCAP, .takes_stats = true, .has_o = true}},
    [LAB_H2O_ORIGIN] = {.prefix = "H2OOrigin", .op = "h2o_origin", .what = "causal attention and the sums of its columns",
                        .is_origin = true, .computes = {.is_causal = true, .has_o = true, .has_sums = true}},
    [LAB_H2O_SPLIT] = {.prefix = "Attention", .op = "h2o_split", .what = "causal attention and the sums of its columns by three kernels",
                       .lists = "k3", .n_parts = 3, .first = LAB_H2O_K1, .computes = {.is_causal = true, .has_o = true, .has_sums = true}},
    [LAB_H2O_K1] = {.prefix = "H2OK1", .op = "h2o_k1", .what = stats, .lists = "k1", .computes = {.is_causal = true, .has_stats = true}},
    [LAB_H2O_K2] = {.prefix = "H2OK2", .op = "h2o_k2", .what = "sums of the probabilities' columns, from the rows' statistics",
                    .lists = "k2", .computes = {.is_causal = true, .takes_stats = true, .has_sums = true}},
    [LAB_H2O_K3] = {.prefix = "H2OK3", .op = "h2o_k3", .what = output, .lists = "k3",
                    .computes = {.is_causal = true, .takes_stats = true, .has_o = true}},
};

const struct lab_kind_info *lab_kind(u32 k)
{
    assert(k < N_LAB_KINDS);
    return &kinds[k];
}

bool lab_kind_find(enum lab_kind *k, struct str op, struct err *e)
{
    for (u32 i = 0; i < N_LAB_KINDS; i++)
        if (str_is(op, kinds[i].op) || (kinds[i].alias && str_is(op, kinds[i].alias))) return *k = (enum lab_kind)i, true;
    struct buf b = {0};
    for (u32 i = 0; i < N_LAB_KINDS; i++) {
        buf_printf(&b, "%s%s", i ? ", " : "", kinds[i].op);
        if (kinds[i].alias) buf_printf(&b, ", %s", kinds[i].alias);
    }
    err_set(e, ERR_USAGE, "no kind '%.*s', expected one of %.*s", STR_ARG(op), STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

struct lab_attention lab_attention_of(enum lab_kind k, u32 part)
{
    assert(lab_is_attention(k) && part <= lab_kind(k)->n_parts);
    return lab_kind(part ? lab_kind(k)->first + part - 1 : k)->computes;
}
