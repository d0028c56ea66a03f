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

enum { MAX_KEPT = 1 << 30 /* bytes of one program */ };

bool api_keep_key(struct hash *key, const quern_model *m, const struct api_target *t, const struct cover_opts *cut)
{
    struct arena a = {0};
    struct buf b = {0};
    struct hash build;
    char hex[33];
    bool ok = os_build_id(&build);
    hash_hex(build, hex);
    buf_printf(&b, "%s %.*s\n%.*s\n", hex, STR_ARG(m->model->name), STR_ARG(api_options_print(m, t, cut, &a)));
    caps_print(&b, &t->caps);
    buf_char(&b, '\n');
    rates_print(&b, &t->caps.rates);
    buf_printf(&b, "\n%.*s\n%.*s\n", STR_ARG(buf_view(&t->fingerprint)), STR_ARG(buf_view(&t->toolchain)));
    for (u32 k = 0; k < m->model->state.n; k++) buf_printf(&b, "state %u:%u\n", m->model->state.v[k].input, m->model->state.v[k].output);
    graph_print_content(&b, &m->model->graph);
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
