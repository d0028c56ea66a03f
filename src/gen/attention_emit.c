// SPDX-License-Identifier: Apache-2.0
//
// attention_emit: attention on processors. A grid iteration owns a batch, a head and some tiles of rows. It multiplies its rows with the keys, tile by tile,
// into scratch memory, which the second cache holds; then reduces every row where it lies, as reduce_row does; then multiplies what the rows have become
// with the values, through the epilogue to the output. Both products are GEMMs (cpu_addr_matrix.c). Scores are never in memory as a whole: what is kept of
// them grows with the keys, or not at all (attention_online.c), but not with the queries. Keys that a band or a mask excludes for all rows of an iteration are
// left out: their exponentials are zeros. (Rows that have no key at all are as the definition has them.)
//
// Without values, an iteration ends with the statistics of its rows. Sums of columns are a grid of their own (attention_columns.c).
#include "gen/attention.h"

static struct gemm_sched gemm_sched_of(const struct attention_sched *s, bool is_second)
{
    return (struct gemm_sched){.mr = s->mr, .nr = is_second ? s->nv : s->nr, .mb = s->mb, .split_k = 1, .pack = LEFT_PACKED, .right = RIGHT_ONCE, .ku = s->ku};
}

/* attention_find_fn: of p. */
static void find_given(struct attention_kernel *a, kval row, kval idx[MAX_RANK])
{
    attention_find_row(a, row);
    for (u32 i = 0; i < MAX_RANK; i++) idx[i] = a->p[i];
}

static void find_keys(struct attention_kernel *a)
{
    attention_find_keys(a);
    if (!a->x.rows.n) attention_check_rows(a, find_given, a->x.p);
}

/* Those of all heads of the iteration: what differs between them is data, a mask or given statistics. */
static void find_keys_of_heads(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    if (!a->heads || !(a->x.has_mask || (a->x.has_band && !a->x.rows.n))) {
        find_keys(a);
        return;
    }
    kval first = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1)), behind = kir_alloc(k, KS_REG, DT_I64, 1, kir_int(k, 1)), zero = kir_int(k, 0);
    kir_store(k, first, zero, a->first.n);
    kir_store(k, behind, zero, zero);
    attention_open_head(a);
    find_keys(a);
    kir_store(k, first, zero, kir_min(k, kir_load(k, first, zero), a->from));
    kir_store(k, behind, zero, kir_max(k, kir_load(k, behind, zero), a->to));
    attention_close_head(a);
    a->from = kir_max(k, kir_min(k, kir_load(k, first, zero), a->first.n), zero);
    a->to = kir_max(k, kir_min(k, kir_load(k, behind, zero), a->first.n), zero);
}

/* The kernel. */

static const struct cpu_addressing score_tiles = {.find = gemm_find, .multiply = gemm_multiply, .take = gemm_leave};
static const struct cpu_addressing value_tiles = {.target = gemm_target, .find = gemm_find, .multiply = gemm_multiply};

static void open_grid(struct attention_kernel *a)
{
    struct emit *m = a->m;
    struct kir *k = m->k;
    struct symtab *st = m->g->sym;
    const struct space *all = &a->x.scores.outer;
    struct space outer = *all;
    sym heads = sym_const(st, 1);
    if (a->s.heads) {
        outer.n--;
        heads = all->g[outer.n].extent, a->head_axis = all->g[outer.n].axis, a->heads = emit_size(m, heads);
    }
    sym mr = sym_const(st, a->s.mr), tiles = sym_cdiv(st, a->x.scores.m, mr), mb = a->first.d.mb ? sym_const(st, a->first.d.mb) : tiles;
    sym rows = sym_mul(st, mb, mr);
    bool has_values = attention_has_values(&a->x);
    kval pos[MAX_RANK], gb = kir_grid(k, emit_size(m, space_count(&outer, st, 0, outer.n)));
    kval gm = kir_grid(k, emit_size(m, a->first.d.mb ? sym_cdiv(st, tiles, mb) : sym_const(st, 1)));
    a->batch = a->batches = gb;
    if (a->s.split) a->part = kir_grid(k, a->n_parts);
    a->n_rows = emit_size(m, rows);
    space_at(m, &outer, gb, pos);
    kval m0 = kir_mul(k, gm, a->n_rows), m1 = kir_min(k, kir_add(k, m0, a->n_rows), emit_size(m, a->x.scores.m));
    attention_place(&a->first, pos, m0, m1);
    if (has_values) attention_place(&a->second, pos, m0, m1);
    attention_open_scores(a, rows);
    a->second.left = a->scores, a->second.pitch = a->pitch, a->second.is_given = true;
    if (has_values) gemm_open_arrays(&a->second, rows);
    if (attention_is_online(&a->s)) attention_open_sums(a, sym_mul(st, rows, heads));
    if (!a->heads) gemm_pack_left(&a->first);
    a->first.is_given = true;
}

/* Whole rows of scores. */
static void all_keys(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    struct gemm_kernel *first = &a->first, *second = &a->second;
    kval from = kir_div_i(k, a->from, first->width), to = kir_div_i(k, kir_add_i(k, a->to, first->width - 1), first->width);
    if (a->s.keys == KEYS_PLACE) attention_dot_keys(a, a->from, a->to);
    else attention_product(first, attention_has_part(a) ? from : kir_int(k, 0), attention_has_part(a) ? to : first->n_blocks);
    if (attention_has_part(a)) a->rows.from = a->from, a->rows.count = kir_sub(k, a->to, a->from);
    attention_do_row(a, kir_loop(k, KL_SERIAL, first->m0, first->m1, 1), a->from);
    kir_end(k);
    if (!attention_has_values(&a->x)) return;
    if (attention_has_part(a)) second->is_part = true, second->first = second->c.at = a->from, second->c.len = kir_sub(k, a->to, a->from);
    attention_product(second, kir_int(k, 0), second->n_blocks);
}

/* Blocks of keys, of all or of a part of them. */
static void by_blocks(struct attention_kernel *a)
{
    struct kir *k = a->m->k;
    attention_online(a);
    attention_open_head(a);
    if (a->s.split) {
        attention_split_store(a);
    } else {
        kval row = kir_loop(k, KL_SERIAL, a->first.m0, a->first.m1, 1);
        attention_finish_row(a, row, attention_own(a, row));
        kir_end(k);
    }
    attention_close_head(a);
}

static void init(struct attention_kernel *a, const struct task *t, const struct caps *c)
{
    const struct gemm_sched s[2] = {gemm_sched_of(&a->s, false), gemm_sched_of(&a->s, true)};
    bool in_place = a->s.values == VALUES_PLACE;
    a->first = (struct gemm_kernel){.m = a->m, .t = t, .x = a->x.scores};
    gemm_init(&a->first, c, &s[0], attention_score_product(&a->x, c));
    if (a->s.keys == KEYS_PLACE) a->first.page = attention_page(t, a->x.scores.b, a->x.scores.bs->rank - 1);
    a->first.s.ahead = a->s.ahead ? AHEAD_SECOND : 0;
    a->first.c.address = &score_tiles;
    if (!attention_has_values(&a->x)) return;
    a->second = (struct gemm_kernel){.m = a->m, .t = t, .x = a->x.values};
    gemm_init(&a->second, c, &s[1], tile_multiply_add);
    if (in_place) a->second.page = attention_page(t, a->x.values.b, a->x.values.bs->rank - 2);
    a->second.s.ahead = a->first.s.ahead;
    if (attention_is_online(&a->s)) a->second.c.address = in_place ? &attention_sum_rows : &attention_sum_tiles;
    else a->second.c.address = in_place ? &attention_value_rows : &value_tiles;
}

/* The grid of rows: their statistics, and the second product. */
static void sum_rows(struct attention_kernel *a, const struct caps *c)
{
    if (a->s.split) attention_split_open(a);
    open_grid(a);
    attention_open_rows(a, c);
    find_keys_of_heads(a);
    if (a->s.split) attention_split_keys(a);
    if (attention_is_online(&a->s)) by_blocks(a);
    else all_keys(a);
    for (u32 i = 0; i < (a->s.split ? 3 : 2); i++) kir_end(a->m->k);
    if (a->s.split) attention_split_merge(a);
}

void attention_emit(struct emit *m, const struct task *t, const struct caps *c, const struct attention_sched *s)
{
    struct attention_kernel *a = arena_new(m->arena, struct attention_kernel);
    const struct graph *all = m->g;
    a->m = m, a->s = *s;
    attention_of(&a->x, t);
    attention_form(&a->x, t, c);
    init(a, t, c);
    emit_args(m);
    const bool packs_values = s->values == VALUES_ONCE && attention_has_values(&a->x);
    if (attention_has_values(&a->x)) m->g = attention_graph_of(m, a->x.values.y);
    if (s->keys == KEYS_ONCE) gemm_open_temps(&a->first);
    if (packs_values) gemm_open_temps(&a->second);
    if (s->keys == KEYS_ONCE && !a->x.scores.b_const) gemm_pack_once(&a->first);
    if (packs_values && !a->x.values.b_const) gemm_pack_once(&a->second);
    if (a->x.columns.out) attention_columns_open(a);
    if (attention_has_rows(&a->x)) sum_rows(a, c);
    m->g = all;
    if (a->x.columns.out) attention_columns_sum(a, c);
    m->g = all;
}
