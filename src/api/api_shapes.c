// SPDX-License-Identifier: Apache-2.0
//
// Contractions and attentions of a model. Declared and documented in include/quern.h.
#include "api/api_model.h"

#include "lab/lab.h"

#include <math.h>
#include <string.h>

/* Contractions. */

static struct quern_contraction public_contraction(const struct model_contraction *c, struct arena *a)
{
    struct quern_contraction x = {.size = sizeof x, .op = str_z(a, c->op), .node = str_z(a, c->node), .role = c->role, .shape = c->shape.p,
                                  .type = (quern_dtype)dtype_onnx(c->type), .count = (int)i64_min(c->count, INT32_MAX), .flops = c->flops,
                                  .n_batch = (int)c->n_batch, .m = c->m, .n = c->n, .k = c->k};
    for (u32 k = 0; k < 2; k++) {
        x.rank[k] = (int)c->rank[k];
        for (u32 i = 0; i < c->rank[k]; i++) x.dim[k][i] = c->dim[k][i];
    }
    for (u32 i = 0; i < c->n_batch; i++) x.batch[i] = c->batch[i];
    return x;
}

quern_status quern_model_contractions(quern_model *m, const char *sizes, void (*each)(void *user, const struct quern_contraction *x), void *user)
{
    if (!m) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    if (!each) return api_end(m->q, err_set(e, ERR_USAGE, "'each' is NULL"));
    struct arena a = {0};
    struct model_contraction_list all;
    bool ok = model_contractions(&all, m->model, sizes, &a, e);
    for (u32 k = 0; ok && k < all.n; k++) {
        struct quern_contraction x = public_contraction(&all.v[k], &a);
        each(user, &x);
    }
    arena_release(&a);
    return api_end(m->q, ok);
}

/* Attentions. */

static void put_word(struct buf *b, const char *word) { buf_printf(b, "%s%s", b->n ? "+" : "", word); }

/* The own key of a query is the last one that a window or a causal mask keeps; other bands are masks of some kind. */
static const char *mask_text(struct arena *a, const struct model_mask *m)
{
    struct buf b = {0};
    bool is_causal = m->right == 0, is_window = m->left != MODEL_UNBOUNDED && m->left >= 0, is_odd = m->left < 0 || (m->right != 0 && m->right != MODEL_UNBOUNDED);
    if (is_causal) put_word(&b, "causal");
    if (is_window) put_word(&b, "window "), buf_printf(&b, "%lld", (long long)m->left + 1);
    if (m->is_more || is_odd) put_word(&b, "mask");
    if (m->has_bias) put_word(&b, "bias");
    const char *text = str_z(a, buf_view(&b));
    buf_release(&b);
    return text;
}

/* Why no kind computes the attention by its sizes; NULL: they fit. */
static const char *sizes_differ(const struct model_attention *x, struct arena *a)
{
    double usual = 1 / sqrt((double)x->head_size);
    if (x->heads != x->key_heads) return str_fmt(a, "%lld heads of queries share %lld of keys", (long long)x->heads, (long long)x->key_heads).p;
    if (x->queries != x->keys) return str_fmt(a, "%lld queries attend to %lld keys", (long long)x->queries, (long long)x->keys).p;
    if (x->head_size != x->value_size) return str_fmt(a, "heads of %lld elements have values of %lld", (long long)x->head_size, (long long)x->value_size).p;
    if (fabs(x->scale - usual) > 1e-3 * usual) return str_fmt(a, "scores are scaled by %.4g, not by 1 / sqrt(size of a head) = %.4g", x->scale, usual).p;
    return NULL;
}

/* The whole attention of these properties, not the kernels of a split one; NULL: there is none. */
static const struct lab_kind_info *kind_of(const struct lab_attention *x)
{
    for (u32 k = 0; k < N_LAB_KINDS; k++) {
        const struct lab_kind_info *i = lab_kind(k);
        const struct lab_attention *c = &i->computes;
        if (c->has_o && !c->takes_stats && !i->n_parts && c->is_causal == x->is_causal && c->softcap == x->softcap && c->has_sums == x->has_sums) return i;
    }
    return NULL;
}

static void set_kind(struct quern_attention *to, const struct model_attention *x, struct arena *a)
{
    const struct lab_attention form = {.is_causal = x->mask.right == 0, .softcap = x->softcap, .has_o = true, .has_sums = x->has_sums};
    const struct lab_kind_info *k = kind_of(&form);
    bool is_masked = to->mask[0] && strcmp(to->mask, "causal") != 0;
    if (x->is_other) to->why = "scores pass through more than scale, softcap, mask and softmax";
    else if (is_masked) to->why = str_fmt(a, "kinds have a causal mask or none, not '%s'", to->mask).p;
    else if (!k && !form.is_causal) to->why = "kinds without a causal mask have neither a softcap nor sums of columns";
    else if (!k) to->why = str_fmt(a, "no kind has a softcap of %.6g%s", x->softcap, x->has_sums ? " and sums of columns" : "").p;
    else to->why = sizes_differ(x, a);
    if (!to->why) to->kind = k->op;
}

static struct quern_attention public_attention(const struct model_attention *m, struct arena *a)
{
    struct quern_attention x = {.size = sizeof x, .op = str_z(a, m->op), .node = str_z(a, m->node), .type = (quern_dtype)dtype_onnx(m->type),
                                .count = (int)i64_min(m->count, INT32_MAX), .batch = m->batch, .heads = m->heads, .key_heads = m->key_heads,
                                .queries = m->queries, .keys = m->keys, .head_size = m->head_size, .value_size = m->value_size, .scale = m->scale,
                                .softcap = m->softcap, .mask = mask_text(a, &m->mask), .has_sums = m->has_sums};
    set_kind(&x, m, a);
    return x;
}

quern_status quern_model_attentions(quern_model *m, const char *sizes, void (*each)(void *user, const struct quern_attention *x), void *user)
{
    if (!m) return QUERN_USAGE;
    struct err *e = api_begin(m->q);
    if (!each) return api_end(m->q, err_set(e, ERR_USAGE, "'each' is NULL"));
    struct arena a = {0};
    struct model_attention_list all;
    bool ok = model_attentions(&all, m->model, sizes, &a, e);
    for (u32 k = 0; ok && k < all.n; k++) {
        struct quern_attention x = public_attention(&all.v[k], &a);
        each(user, &x);
    }
    arena_release(&a);
    return api_end(m->q, ok);
}
