// SPDX-License-Identifier: Apache-2.0
//
// Everything that distinguishes two graphs, as text: the text form with keys, facts, names, and hashes
// of all constants.
#include "ir/ir.h"

#include <stdatomic.h>

static void put_hash(struct buf *b, struct hash h)
{
    char hex[33];
    hash_hex(h, hex);
    buf_printf(b, "%s ", hex);
}

enum { MAX_HASHERS = 4, MIN_THREADED = 16 << 20 /* bytes */ };

/* Large constants are hashed by several threads, each taking the next one. */
struct hashing {
    const struct tensor **v;
    u32 n, cap;
    struct hash *out;
    _Atomic u32 next;
};

static void hash_next(void *user)
{
    struct hashing *h = user;
    for (u32 i = atomic_fetch_add(&h->next, 1); i < h->n; i = atomic_fetch_add(&h->next, 1))
        h->out[i] = hash_bytes(h->v[i]->data, tensor_bytes(h->v[i]));
}

/* The names of a graph and its bodies, which profiles and interfaces show, and the constants. */
static void put_names(struct buf *b, const struct graph *g, struct hashing *h, struct arena *a)
{
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        buf_printf(b, "%.*s ", STR_ARG(x->name));
        if (x->data) *arr_push(a, h) = x->data;
    }
    for (node_id n = 1; n < g->node.n; n++) {
        const struct node *x = graph_node(g, n);
        buf_printf(b, "%.*s ", STR_ARG(x->name));
        for (u32 k = 0; k < x->attr.n; k++)
            if (x->attr.v[k].kind == ATTR_GRAPH) put_names(b, x->attr.v[k].graph, h, a);
    }
}

void graph_print_content(struct buf *b, const struct graph *g)
{
    struct arena a = {0};
    struct hashing h = {.n = 0};
    graph_print(b, g, &(struct graph_text_opts){.keys = true});
    for (u32 k = 0; k < g->sym->fact.n; k++) {
        const struct sym_fact *f = &g->sym->fact.v[k];
        sym_fact_print(b, g->sym, f);
        buf_printf(b, " for %.*s\n", STR_ARG(f->origin));
    }
    put_names(b, g, &h, &a);
    h.out = arena_array(&a, struct hash, h.n + 1);
    struct os_thread *helper[MAX_HASHERS] = {NULL};
    i64 bytes = 0;
    for (u32 i = 0; i < h.n; i++) bytes += tensor_bytes(h.v[i]);
    for (i64 i = 1; i < i64_min(MAX_HASHERS, os_n_cpus()) && bytes >= MIN_THREADED; i++) helper[i] = os_thread_start(hash_next, &h);
    hash_next(&h);
    for (u32 i = 0; i < MAX_HASHERS; i++) os_thread_join(helper[i]);
    for (u32 i = 0; i < h.n; i++) put_hash(b, h.out[i]);
    arena_release(&a);
}
