// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu_tile.c: tile copies (TILE), executed by a unit of the device (TMA). The description of a matrix is a parameter
// of the grid's function, created by the launcher from NAME_maps and the argument's address. Only the workgroup's first
// thread issues and awaits copies; each pending group of copies has a barrier object in shared memory, as many as there
// are at once: the newest that an AWAIT leaves pending, and the one it waits for. Other threads synchronise by a barrier.
#include "lang/lang_gpu.h"

#include <string.h>

enum { LINE_BYTES = 128, ATOM_BYTES = 1024, OBJECT_BYTES = 8 };

static bool has_tile(const struct kir *k, kval from, kval to, i64 map)
{
    for (kval v = from; v < to; v++)
        if (kir_at(k, v)->op == KI_TILE && (map < 0 || kir_at(k, v)->imm.i == map)) return true;
    return false;
}

i64 gpu_tile_slots(const struct kir *k, kval from, kval to)
{
    i64 n = 0;
    if (!has_tile(k, from, to, -1)) return 0;
    for (kval v = from; v < to; v++)
        if (kir_at(k, v)->op == KI_AWAIT) n = i64_max(n, kir_at(k, v)->imm.i);
    return n + 1;
}

i64 gpu_tile_bytes(const struct kir *k, kval from, kval to) { return gpu_tile_slots(k, from, to) * OBJECT_BYTES; }

static i64 box_bytes(const struct kir *k, const struct kir_ins *x)
{
    const struct kir_map *m = &k->map.v[x->imm.i];
    return (i64)m->box_rows * m->box_cols * dtype_size(kir_dtype(k, x->a));
}

bool gpu_check_tile(const struct kir *k, kval v, const struct caps *c, const struct gpu_words *w, struct err *e)
{
#define REFUSE(...) return err_set(e, ERR_UNSUPPORTED, __VA_ARGS__)
    const struct kir_ins *x = kir_at(k, v), *array = kir_at(k, x->a);
    if (!w->has_tiles || !c->has_tile) REFUSE("kernel '%.*s' has tile copies, which the target lacks", STR_ARG(k->name));
    i64 size = dtype_size(array->dtype), unit = array->imm.i ? ATOM_BYTES : LINE_BYTES, cols = k->map.v[x->imm.i].box_cols;
    if (kir_multiple(k, x->b) % (unit / size)) REFUSE("a tile at no multiple of %lld bytes in kernel '%.*s'", (long long)unit, STR_ARG(k->name));
    if (array->imm.i && cols * size != LINE_BYTES)
        REFUSE("tiles in lines of %lld bytes in a swizzled array, in kernel '%.*s'", (long long)(cols * size), STR_ARG(k->name));
#undef REFUSE
    return true;
}

void gpu_tile_parameters(struct buf *out, const struct kir *k, kval from, kval to)
{
    for (u32 i = 0; i < k->map.n; i++)
        if (has_tile(k, from, to, i)) buf_printf(out, ",\n    const __grid_constant__ q_map m%u", i);
}

/* Whether boxes of the matrix are copied to a swizzled array. All or none must be: the order of
   elements is part of the tensor map. */
static int order_of(const struct kir *k, kval from, kval to, u32 map)
{
    int found = 0;
    for (kval v = from; v < to; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op == KI_TILE && x->imm.i == map) found |= kir_at(k, x->a)->imm.i ? 2 : 1;
    }
    return found;
}

u32 gpu_tile_facts(const struct kir *k, kval from, kval to, i64 (*fact)[GPU_TILE_FACTS], struct err *e)
{
    u32 n = 0;
    for (u32 i = 0; i < k->map.n; i++) {
        const struct kir_map *m = &k->map.v[i];
        int order = order_of(k, from, to, i);
        if (!order) continue;
        if (order == 3) err_set(e, ERR_UNSUPPORTED, "tiles of a matrix in arrays of both orders in kernel '%.*s'", STR_ARG(k->name));
        const i64 all[GPU_TILE_FACTS] = {m->buf, dtype_size(kir_dtype(k, k->buf.v[m->buf].id)), m->rows, m->cols, m->pitch, m->box_rows,
                                         m->box_cols, order == 2};
        if (fact) memcpy(fact[n], all, sizeof all);
        n++;
    }
    return n;
}

u32 gpu_tile_maps(struct text *t, struct buf *out, struct str name, kval from, kval to)
{
    u32 n = gpu_tile_facts(t->k, from, to, NULL, t->err);
    if (!n) return 0;
    i64 (*fact)[GPU_TILE_FACTS] = arena_alloc(t->arena, (i64)sizeof *fact * n);
    gpu_tile_facts(t->k, from, to, fact, t->err);
    buf_printf(out, "extern \"C\" __device__ const int %.*s_maps[] = {\n", STR_ARG(name));
    for (u32 i = 0; i < n; i++) {
        buf_z(out, "    ");
        for (u32 j = 0; j < GPU_TILE_FACTS; j++) buf_printf(out, j ? ", %lld" : "%lld", (long long)fact[i][j]);
        buf_z(out, ",\n");
    }
    buf_z(out, "};\n");
    return n;
}

void gpu_tile_open(struct text *t, struct str objects, kval from, kval to)
{
    i64 n = gpu_tile_slots(t->k, from, to);
    if (!n) return;
    text_line(t, "u64 *const q_tiles = %.*s;", STR_ARG(objects));
    text_line(t, "u32 q_made = 0, q_ended = 0;");
    text_line(t, "TILES_OPEN(q_tiles, %lld);", (long long)n);
}

/* The memory must stay allocated until the copies complete. */
void gpu_tile_close(struct text *t, kval from, kval to)
{
    i64 n = gpu_tile_slots(t->k, from, to);
    if (n) text_line(t, "TILES_AWAIT(q_tiles, %lld, q_made, q_ended, 0);", (long long)n);
}

/* The grid that contains an instruction: its first and last one. */
static void grid_of(const struct kir *k, kval v, kval *from, kval *to)
{
    for (*from = 1;; ++*from) {
        if (kir_at(k, *from)->op != KI_GRID) continue;
        *to = text_end(k, *from);
        if (*to > v) return;
        *from = *to;
    }
}

void gpu_tile(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    kval from, to;
    grid_of(t->k, v, &from, &to);
    text_line(t, "TILE(q_tiles + q_made %% %lld, %.*s + (%.*s), &m%lld, %.*s, %.*s, %lld);", (long long)gpu_tile_slots(t->k, from, to),
              STR_ARG(gpu_array_name(t, x->a)), STR_ARG(text_bare(t, x->b)), (long long)x->imm.i, STR_ARG(text_bare(t, x->c)),
              STR_ARG(text_bare(t, x->d)), (long long)box_bytes(t->k, x));
}

void gpu_tile_await(struct text *t, kval v)
{
    kval from, to;
    grid_of(t->k, v, &from, &to);
    i64 n = gpu_tile_slots(t->k, from, to);
    if (n) text_line(t, "TILES_AWAIT(q_tiles, %lld, q_made, q_ended, %lld);", (long long)n, (long long)kir_at(t->k, v)->imm.i);
}
