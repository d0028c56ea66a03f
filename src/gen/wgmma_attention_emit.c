// SPDX-License-Identifier: Apache-2.0
//
// wgmma_attention_emit: attention whose products are those of warpgroups (Shah et al., FlashAttention-3, 2024, without its separate warps for copies). Queries,
// and blocks of keys and values, lie in swizzled shared memory in lines of 128 bytes, as those of wgmma_gemm, which the matrix units read by themselves.
// Scores never leave the registers: a thread has its elements of their fragments, of whole rows with three others, and the rounded exponentials become
// fragments again, the left operand of the second product. The sums of the output stay in fragments; a row's factor becomes one with equal columns.
//
// Blocks are copied ahead without registers. A block has one barrier: behind it what was copied is visible, and no thread reads the block before, whose
// place is copied to next. With several warpgroups one multiplies while another one computes exponentials.
#include "gen/wg_attention.h"

enum { LINE_BYTES = 128 /* of a swizzled array: doc/kernel-ir.md */, PAIR = 2, SPAN = 8 /* columns of which a thread has a pair */, MAX_STEPS = 16 /* of a block */ };

void wgmma_attention_stage(const struct wg_attention_sched *s, struct contraction *p)
{
    p->s.pipe = PIPE_ASYNC, p->s.stages = s->stages;
    p->st = (struct staging){.type = p->st.type, .swizzled = true, .panel = LINE_BYTES / dtype_size(p->st.type), .a_as_is = true, .b_as_is = true, .a_wide = s->glwq};
    p->leaf = &leaf_wgmma;
}

void wgmma_attention_open(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct wg_attention_room r = wg_attention_room_of(&a->x, &a->s);
    const enum dtype type = a->first.st.type;
    a->first.a.array = kir_alloc_swizzled(k, type, kir_int(k, r.q));
    a->first.b.array = kir_alloc_swizzled(k, type, kir_int(k, r.kv));
    a->second.b.array = kir_alloc_swizzled(k, type, kir_int(k, r.v));
    a->p = kir_alloc(k, KS_REG, type, PAIR, kir_int(k, a->s.ptr * a->s.ptc / PAIR));
    a->factors = kir_alloc(k, KS_REG, DT_F32, 1, kir_int(k, a->s.ptr));
}

static void copy_queries(struct wg_attention *a)
{
    struct contraction *p = &a->first;
    p->k_block = kir_int(a->m->k, 0);
    wg_copy_async(&p->a.copy, p->a.array);
}

static void copy_block(struct wg_attention *a, kval block, kval stage)
{
    struct kir *k = a->m->k;
    struct contraction *keys = &a->first, *values = &a->second;
    keys->k_block = kir_int(k, 0), keys->b.first = kir_mul_i(k, block, a->s.bc), keys->b.stage = stage;
    wg_copy_async(&keys->b.copy, keys->b.array);
    values->k_block = block, values->b.stage = stage;
    wg_copy_async(&values->b.copy, values->b.array);
}

static void copy_block_below(struct wg_attention *a, kval block, kval end, kval stage)
{
    struct kir *k = a->m->k;
    kir_if(k, kir_lt(k, block, end));
    copy_block(a, block, stage);
    kir_end(k);
}

/* Fragments of a row of them, each `columns` wide, to the thread's tile of pairs. */
static void take_own(const struct wg_attention *a, const struct mma_leaf *l, const struct fma_leaf *to)
{
    struct kir *k = a->m->k;
    const i64 pitch = fma_vectors(to);
    for (i64 j = 0; j < l->t.wn; j++) kir_frag_store(k, to->acc, kir_int(k, j * l->t.c.cols / SPAN), mma_get(&l->t, k, 0, j), kir_int(k, pitch), false);
}

/* Operands of the second product. Fragments of exponentials are made before the first one is multiplied: no register changes during a run. */
struct right_product { struct contraction *p; kval left[MAX_STEPS]; i64 step; };

static kval left_of(void *user, i64 term, i64 i)
{
    const struct right_product *x = user;
    assert(i == 0);
    return x->left[term / x->step];
}

static kval right_of(void *user, i64 term, i64 j) { return mma_right(((struct right_product *)user)->p, term, j); }

static void add_values(struct wg_attention *a, kval stage)
{
    struct kir *k = a->m->k;
    const struct mma_tile *t = &a->s.units[1].t;
    struct right_product x = {.p = &a->second, .step = t->a.cols};
    kval pitch = kir_int(k, fma_vectors(&a->scores));
    assert(a->s.bc / x.step <= MAX_STEPS);
    for (i64 term = 0; term < a->s.bc; term += x.step) x.left[term / x.step] = kir_frag_load(k, &t->a, a->p, kir_int(k, term / SPAN), pitch, false);
    x.p->b.stage = stage;
    mma_multiply(t, k, &(struct mma_source){&x, left_of, right_of}, a->s.bc, false);
}

/* The sums so far, by their rows' factors. */
static void scale_sums(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const struct mma_tile *t = &a->s.units[1].t;
    kval factor = kir_frag_load(k, &t->c, a->factors, kir_int(k, 0), kir_int(k, 0), true);
    for (i64 j = 0; j < t->wn; j++) mma_set(t, k, 0, j, kir_mul(k, mma_get(t, k, 0, j), factor));
}

static void multiply_keys(struct wg_attention *a, kval stage)
{
    struct contraction *p = &a->first;
    mma_clear(&a->s.units[0].t, a->m->k);
    p->now = kir_int(a->m->k, 0), p->b.stage = stage;
    p->leaf->multiply(p);
}

void wgmma_attention_keys(struct wg_attention *a)
{
    struct kir *k = a->m->k;
    const i64 stages = a->s.stages, ahead = stages - 1;
    kval begin = kir_div_i(k, a->keys.from, a->s.bc), end = kir_div_i(k, kir_add_i(k, a->keys.to, a->s.bc - 1), a->s.bc);
    copy_queries(a);
    for (i64 i = 0; i < ahead; i++) {
        copy_block_below(a, kir_add_i(k, begin, i), end, kir_int(k, i));
        if (i + 1 < ahead) kir_await(k, ahead);
    }
    kval block = kir_loop(k, KL_SERIAL, begin, end, 1), i = kir_sub(k, block, begin), stage = kir_mod_i(k, i, stages);
    kir_await(k, ahead - 1);
    kir_barrier(k);
    multiply_keys(a, stage);
    copy_block_below(a, kir_add_i(k, block, ahead), end, kir_mod_i(k, kir_add_i(k, i, ahead), stages));
    take_own(a, &a->s.units[0], &a->scores);
    wg_attention_softmax(a, block);
    scale_sums(a);
    add_values(a, stage);
    kir_end(k);
    kir_await(k, 0);
}

void wgmma_attention_sums(struct wg_attention *a)
{
    fma_open(&a->sums, &a->second.g, DT_F32);
    take_own(a, &a->s.units[1], &a->sums);
}
