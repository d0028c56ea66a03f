// SPDX-License-Identifier: Apache-2.0
//
// Programs that are kept in the user's cache, so that the next process that compiles the same network for the same device and sizes
// only maps a file. The key is the hash of everything that a program follows from: the imported graph with the content of its
// constants, sizes, interface, options, limits of the device, toolchain, and the library's own build. Programs that measured
// times had a part in are not kept: databases change.
#include "api/api_model.h"

enum { MAX_KEPT = 1 << 30 /* bytes of one program */ };

static void put_hash(struct buf *b, struct hash h)
{
    char hex[33];
    hash_hex(h, hex);
    buf_printf(b, "%s ", hex);
}

/* The graph's text, names (which profiles and interfaces show), and content of the constants, which the text leaves out. */
static void put_graph(struct buf *b, const struct graph *g)
{
    graph_print(b, g, &(struct graph_text_opts){.keys = true});
    for (value_id v = 1; v < g->value.n; v++) {
        const struct value *x = graph_value(g, v);
        buf_str(b, x->name);
        buf_char(b, ' ');
        if (x->data) put_hash(b, hash_bytes(x->data->data, tensor_bytes(x->data)));
    }
    for (node_id n = 1; n < g->node.n; n++) buf_printf(b, "%.*s ", STR_ARG(graph_node(g, n)->name));
}

bool api_keep_key(struct hash *key, const quern_model *m, const struct api_target *t, const struct cover_opts *cut)
{
    struct arena a = {0};
    struct buf b = {0};
    struct hash build;
    bool ok = os_build_id(&build);
    put_hash(&b, build);
    buf_printf(&b, "%.*s\n%.*s\n", STR_ARG(m->name), STR_ARG(api_options_print(m, t, cut, &a)));
    caps_print(&b, &t->caps);
    buf_printf(&b, "\n%.*s\n%.*s\n", STR_ARG(buf_view(&t->fingerprint)), STR_ARG(buf_view(&t->toolchain)));
    put_graph(&b, &m->graph);
    ok = ok && !b.failed;
    if (ok) *key = hash_bytes(b.p, b.n);
    buf_release(&b);
    arena_release(&a);
    return ok;
}

bool api_keep_find(quern_program *p, const struct cache *c, struct hash key)
{
    struct arena a = {0};
    struct err e = {0};
    struct str path = cache_path(c, key, ".dnx", &a);
    bool ok = path.n && os_map(&p->file, path.p, &e);
    if (ok && !dnx_read(&p->plan, &p->arena, (struct str){(const char *)p->file.p, p->file.n}, &e)) {
        arena_release(&p->arena);
        os_unmap(&p->file);
        p->plan = (struct plan){0};
        ok = false;
    }
    arena_release(&a);
    return ok;
}

void api_keep_put(const quern_program *p, const struct cache *c, struct hash key)
{
    struct arena a = {0};
    struct err e = {0};
    struct buf b = {0};
    struct str path = cache_path(c, key, ".dnx", &a);
    if (path.n && dnx_write(&p->plan, &b, &e) && b.n <= MAX_KEPT && os_write_private(path.p, buf_view(&b), &e)) cache_trim(c);
    buf_release(&b);
    arena_release(&a);
}
