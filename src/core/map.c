// SPDX-License-Identifier: Apache-2.0
//
// A map from byte strings to integers: open addressing with linear
// probing over indices into an array of entries. Iterating `v[0..n)`
// yields insertion order, so no output depends on hash order.
//
// Entries are never removed. Memory is the arena's; growing leaves the old table behind, which costs at
// most the same again. The pointers returned by map_get and map_put are valid until the next map_put.
#include "core/core.h"

#include <string.h>

void map_init(struct map *m, struct arena *a) { *m = (struct map){.arena = a}; }

/* The slot of key, or the free slot for it. */
static u32 map_slot(const struct map *m, struct str key, u64 hash)
{
    u32 mask = m->n_slots - 1, i = (u32)hash & mask;
    for (; m->slot[i]; i = (i + 1) & mask) {
        const struct map_entry *e = &m->v[m->slot[i] - 1];
        if (e->hash == hash && str_eq(e->key, key)) break;
    }
    return i;
}

u64 *map_get(const struct map *m, struct str key)
{
    if (m->n == 0) return NULL;
    u32 at = m->slot[map_slot(m, key, hash_u64(key.p, key.n))];
    return at ? &m->v[at - 1].val : NULL;
}

/* Keeps at least half of the slots free. */
static void map_grow(struct map *m)
{
    m->n_slots = m->n_slots ? m->n_slots * 2 : 16;
    m->slot = arena_array(m->arena, u32, m->n_slots);
    for (u32 i = 0; i < m->n; i++) m->slot[map_slot(m, m->v[i].key, m->v[i].hash)] = i + 1;
}

u64 *map_put(struct map *m, struct str key, u64 val)
{
    u64 hash = hash_u64(key.p, key.n);
    if ((u64)m->n * 2 >= m->n_slots) map_grow(m);
    u32 at = map_slot(m, key, hash);
    if (!m->slot[at]) {
        *arr_push(m->arena, m) = (struct map_entry){.key = str_dup(m->arena, key), .hash = hash};
        m->slot[at] = m->n;
    }
    struct map_entry *e = &m->v[m->slot[at] - 1];
    e->val = val;
    return &e->val;
}
