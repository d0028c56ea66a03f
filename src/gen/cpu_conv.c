// SPDX-License-Identifier: Apache-2.0
//
// cpu_conv: convolutions as contractions on processors (cpu_contract.h) whose left operand is never built. A grid iteration
// computes a band of output rows, a range of x, and some blocks of output channels, in register
// tiles of ty x tx pixels by nr vectors of channels; weights are packed block by block in the order
// in which the steps read them. Which elements of the input a tile meets is the addressing's business (cpu_addr_*.c).
//
// Dims: n, spatial axes 2.., output channels split in blocks of nr vectors, taps, input channels.
//
// Weights of 16 bits are converted by the tiles that read them, or where an iteration has many tiles once for each block, to scratch memory.
#include "gen/conv_cost.h"
#include "gen/cpu_band.h"

void conv_may_widen(struct band *b, const struct caps *caps)
{
    struct conv_tiles t;
    conv_tiles_open(&t, &b->c, caps, b->is_flat, NULL);
    conv_tiles_multiply_by(&t, (struct tile_product){.leaf = b->t.leaf, .terms = b->dot_k, .group = b->dot_k});
    conv_tiles_set(&t, &b->s);
    b->widens = conv_tiles_widen(&t, caps, &b->s);
}

kval conv_weights(const struct band *b) { return b->wide ? b->wide : b->wbuf; }

/* In wbuf. */
static kval packed_block(struct band *b, kval block)
{
    struct kir *k = b->m->k;
    return kir_mul_i(k, kir_add(k, kir_mul_i(k, b->group, b->n_blocks), block), b->block_weights);
}

kval conv_weights_at(struct band *b, kval block) { return b->wide ? kir_int(b->m->k, 0) : packed_block(b, block); }

static void widen_block(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    kval from = packed_block(b, e->at[CPU_BLOCK]), i = kir_loop(k, KL_SERIAL, kir_int(k, 0), kir_int(k, b->block_weights), b->width);
    for (i64 j = 0; j < b->width; j += b->lanes) {
        kval at = kir_add_i(k, i, j), w = kir_load(k, b->wbuf, kir_ramp(k, kir_add(k, from, at), 1, b->lanes));
        kir_store(k, b->wide, kir_ramp(k, at, 1, b->lanes), kir_cast(k, b->type, w));
    }
    kir_end(k);
}

void conv_in_place(struct band *b)
{
    struct symtab *t = b->m->g->sym;
    const struct value *x = graph_value(b->m->g, b->c.x);
    const struct shape room = value_room(x);
    u32 order[MAX_RANK], n = layout_order(x->layout, x->shape.rank, order);
    sym block = sym_const(t, layout_block(x->layout)), size = block;
    while (n--) {
        u32 a = order[n];
        *(a == 1 ? &b->c_step : &b->step[a]) = emit_size(b->m, size);
        size = sym_mul(t, size, a == 1 ? sym_cdiv(t, room.dim[a], block) : room.dim[a]);
    }
}

struct tile_out conv_target(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    struct tile_out o = band_target(b, e->at[CPU_Y], e->at[CPU_X]);
    o.c = kir_add(k, kir_mul_i(k, b->group, b->c.oc), kir_mul_i(k, e->at[CPU_BLOCK], b->width)); /* first output channel */
    if (b->c.oc % b->width && !(b->splits_rest && e->is_full)) o.c_end = kir_mul_i(k, kir_add_i(k, b->group, 1), b->c.oc);
    return o;
}

/* Sums of a tile's parts are together. */
static void store_collected(struct cpu_contraction *p, const struct cpu_piece *e)
{
    struct tile_out o = conv_target(p, e);
    tile_store(p->t, &o);
}

void conv_levels(struct cpu_contraction *p, kval from, kval to)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    struct cpu_level *block = from && b->s.order == 0 ? cpu_level_add(p, CPU_BLOCK, from, to, 1) : NULL;
    if (block && b->wide) block->enter = widen_block;
    if (b->ya >= 0) cpu_level_add(p, CPU_Y, b->y0, b->y1, b->s.ty);
    struct cpu_level *x = b->xa >= 0 ? cpu_level_add(p, CPU_X, b->x0, b->x1, b->s.tx) : NULL;
    if (from && b->s.order == 1) cpu_level_add(p, CPU_BLOCK, from, to, 1);
    if (!p->address->take) return;
    x->leave = store_collected;
    cpu_level_add(p, CPU_PART, kir_int(k, 0), kir_int(k, b->s.tx), b->t.tx);
}

static struct cpu_contraction contraction_of(struct band *b)
{
    i64 parts = b->s.split_k;
    bool is_shared = parts > 1 || b->t.leaf == &tile_terms;
    return (struct cpu_contraction){.m = b->m, .address = b->address, .own = b, .t = &b->t, .width = b->width, .per = b->per,
                                    .r = {.v = b->c.y, .inner = 1, .parts = parts}, .bias = b->c.b, .bias_last = is_shared};
}

void conv_walk(struct band *b, kval from, kval to)
{
    struct cpu_contraction p = contraction_of(b);
    conv_levels(&p, from, to);
    cpu_nest(&p, NULL, cpu_tile);
}

/* Output channels behind the last whole block get tiles of their own: the others are stored without masks, which are slow, and nothing is computed for
   channels that do not exist. */
static void split_rest(struct cpu_contraction *p)
{
    struct band *b = p->own;
    b->splits_rest = b->n_blocks > 1 && b->c.oc % b->width;
    for (u32 i = 0; b->splits_rest && i < p->n_levels; i++)
        if (p->level[i].axis == CPU_BLOCK) p->level[i].rest = b->c.oc % b->width, p->level[i].columns = kir_int(b->m->k, b->c.oc);
}

u32 conv_open(struct cpu_contraction *p)
{
    struct band *b = p->own;
    struct kir *k = b->m->k;
    i64 ob = b->s.ob ? i64_min(b->s.ob, b->n_blocks) : b->n_blocks, parts = ceil_div(b->n_blocks, ob), ks = i64_max(1, b->s.split_k);
    b->temp = p->r.temp;
    kval part = band_open(b, b->c.groups * parts * ks);
    b->share = kir_mod_i(k, part, ks), part = kir_div_i(k, part, ks);
    b->group = kir_div_i(k, part, parts);
    if (b->widens) b->wide = kir_alloc(k, KS_WORK, b->type, 1, kir_int(k, b->block_weights));
    if (b->s.stage != STAGE_DIRECT) band_fill(b);
    kval from = kir_mul_i(k, kir_mod_i(k, part, parts), ob);
    conv_levels(p, from, kir_min(k, kir_add_i(k, from, ob), kir_int(k, b->n_blocks)));
    split_rest(p);
    return 3;
}

void conv_emit(struct band *b, const struct task *t, const struct caps *caps)
{
    struct cpu_contraction p = contraction_of(b);
    cpu_emit(&p, !b->c.simple || b->s.split_k > 1, t, caps);
}
