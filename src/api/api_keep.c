// SPDX-License-Identifier: Apache-2.0
//
// Programs in the user's cache, so that the next process that compiles the same network for the
// same device and sizes only maps a file. The key is the hash of everything a program depends on:
// the imported graph with its constants, sizes, interface, options, limits of the device,
// toolchain, and the build of the library. Programs selected with measurements are not cached,
// because databases change.
//
// Writing hundreds of megabytes takes longer than the first run of many networks. So a thread
// writes after the first result, and closing the program waits for it. The file appears completely
// or not at all, and is written directly from the plan's memory.
#include "api/api_model.h"

#include <stdatomic.h>

enum { MAX_KEPT = 1 << 30 /* bytes of one program */ };

static void put_hash(struct buf *b, struct hash h)
{
    char hex[33];
    hash_hex(h, hex);
    buf_printf(b, "%s ", hex);
}

enum { MAX_HASHERS = 4, WORTH_THREADS = 16 << 20 /* bytes */ };

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

static void hash_tensors(struct hashing *h)
{
    struct os_thread *helper[MAX_HASHERS] = {NULL};
    i64 bytes = 0;
    for (u32 i = 0; i < h->n; i++) bytes += tensor_bytes(h->v[i]);
    for (i64 i = 1; i < i64_min(MAX_HASHERS, os_n_cpus()) && bytes >= WORTH_THREADS; i++) helper[i] = os_thread_start(hash_next, h);
    hash_next(h);
    for (u32 i = 0; i < MAX_HASHERS; i++) os_thread_join(helper[i]);
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

/* The graph's text, and what the text omits. */
static void put_graph(struct buf *b, const struct graph *g, struct arena *a)
{
    struct hashing h = {.n = 0};
    graph_print(b, g, &(struct graph_text_opts){.keys = true});
    for (u32 k = 0; k < g->sym->fact.n; k++) {
        const struct sym_fact *f = &g->sym->fact.v[k];
        sym_fact_print(b, g->sym, f);
        buf_printf(b, " for %.*s\n", STR_ARG(f->origin));
    }
    put_names(b, g, &h, a);
    h.out = arena_array(a, struct hash, h.n + 1);
    hash_tensors(&h);
    for (u32 i = 0; i < h.n; i++) put_hash(b, h.out[i]);
}

bool api_keep_key(struct hash *key, const quern_model *m, const struct api_target *t, const struct cover_opts *cut)
{
    struct arena a = {0};
    struct buf b = {0};
    struct hash build;
    bool ok = os_build_id(&build);
    put_hash(&b, build);
    buf_printf(&b, "%.*s\n%.*s\n", STR_ARG(m->model->name), STR_ARG(api_options_print(m, t, cut, &a)));
    caps_print(&b, &t->caps);
    buf_printf(&b, "\n%.*s\n%.*s\n", STR_ARG(buf_view(&t->fingerprint)), STR_ARG(buf_view(&t->toolchain)));
    put_graph(&b, &m->model->graph, &a);
    ok = ok && !b.failed;
    if (ok) *key = hash_bytes(b.p, b.n);
    buf_release(&b);
    arena_release(&a);
    return ok;
}

bool api_keep_find(quern_program *p, const struct cache *c, struct hash key)
{
    struct err e = {0};
    struct str content;
    bool ok = cache_map(c, key, ".dnx", &p->file, &content);
    if (ok && !dnx_read(&p->plan, &p->arena, content, &e)) {
        arena_release(&p->arena);
        os_unmap(&p->file);
        p->plan = (struct plan){0};
        ok = false;
    }
    return ok;
}

struct keeper {
    struct api_keep keep; /* first: the program holds a pointer to it */
    struct arena arena;
    struct cache cache;
    struct hash key;
    const struct plan *plan;
    bool is_started;
    struct os_thread *thread;
};

static void write_program(void *user)
{
    const struct keeper *k = user;
    struct arena a = {0};
    struct err e = {0};
    struct str *piece;
    i64 n = 0, size = 0;
    bool ok = dnx_pieces(k->plan, &a, &piece, &n, &e);
    for (i64 i = 0; i < n; i++) size += piece[i].n;
    if (ok && size <= MAX_KEPT) cache_write(&k->cache, k->key, ".dnx", piece, n);
    arena_release(&a);
}

static void start_keeping(struct api_keep *keep, const struct plan *p)
{
    struct keeper *k = (struct keeper *)keep;
    if (k->is_started) return;
    k->plan = p;
    k->thread = os_thread_start(write_program, k);
    k->is_started = k->thread != NULL;
}

static void end_keeping(struct api_keep *keep, const struct plan *p)
{
    struct keeper *k = (struct keeper *)keep;
    if (!k->is_started) k->plan = p, write_program(k);
    else os_thread_join(k->thread);
    struct arena a = k->arena;
    arena_release(&a);
}

struct api_keep *api_keep_new(const struct cache *c, struct hash key)
{
    if (!c->folder.n) return NULL;
    struct arena a = {0};
    struct keeper *k = arena_new(&a, struct keeper);
    *k = (struct keeper){.keep = {start_keeping, end_keeping}, .key = key, .cache = *c};
    k->cache.folder = str_dup(&a, c->folder);
    k->arena = a;
    return &k->keep;
}
