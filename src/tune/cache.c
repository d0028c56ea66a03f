// SPDX-License-Identifier: Apache-2.0
//
// The user's caches. That of compiled kernels has one file per kernel in a folder that only this user may write, found by the hash of
// everything that the code depends on (build_key). Code in them is run, so a folder that others may write into is refused,
// and every file carries the hash of its content: what was cut short by a full disk or a kill is not there. A cache may be
// lost at any time, so nothing is synchronised, and failures to write only cost the next build.
//
// Files: KEY (32 hex digits): magic, hash of the code, code. KEY.part, for a kernel in a program that has others, too: magic,
// hash, the program's KEY. Whole programs (api_keep.c) are in a folder of their own. A folder has at most 2 GiB: beyond
// that what was used longest ago goes, and what a process that was killed left half written, after a day.
#include "tune/tune.h"

#include <string.h>

static const char magic[16] = "quern kernel 1\n";
enum { MAX_CODE = 1 << 30, TRIM_EVERY = 64 /* writes */ };
static const i64 max_size = (i64)2 << 30; /* bytes of all files */
static const double half_written = 24 * 3600; /* seconds: nothing takes so long to write */

struct cache_head {
    char magic[sizeof magic];
    struct hash content;
};

void cache_open(struct cache *c, const char *name, struct arena *a, const struct log *l)
{
    struct err e = {0};
    struct str folder = os_cache_folder(a);
    *c = (struct cache){0};
    if (!folder.n) return;
    struct str path = str_fmt(a, "%.*s/%s", STR_ARG(folder), name);
    if (os_private_folder(path.p, &e)) c->folder = path;
    else log_printf(l, 1, "%s are not kept: %s", name, e.msg);
}

struct str cache_path(const struct cache *c, struct hash key, const char *suffix, struct arena *a)
{
    char hex[33];
    if (!c || !c->folder.n) return (struct str){0};
    hash_hex(key, hex);
    return str_fmt(a, "%.*s/%s%s", STR_ARG(c->folder), hex, suffix);
}

static bool get(const struct cache *c, struct hash key, const char *suffix, struct arena *a, struct str *content)
{
    struct cache_head h;
    struct err e = {0};
    struct str all, path = cache_path(c, key, suffix, a);
    if (!path.n || !os_read(a, path.p, MAX_CODE, &all, &e)) return false;
    if (all.n < (i64)sizeof h) return false;
    memcpy(&h, all.p, sizeof h);
    *content = str_sub(all, (i64)sizeof h, all.n);
    struct hash is = hash_bytes(content->p, content->n);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || is.lo != h.content.lo || is.hi != h.content.hi) return false;
    os_note_use(path.p);
    return true;
}

void cache_trim(const struct cache *c)
{
    if (!c || !c->folder.n) return;
    struct arena a = {0};
    struct os_entry *entry;
    struct err e = {0};
    i64 n = 0, size = 0;
    if (!os_list_by_use(&a, c->folder.p, &entry, &n, &e)) n = 0;
    for (i64 i = 0; i < n; i++) size += entry[i].size;
    for (i64 i = 0; i < n; i++) {
        bool is_left = str_ends(entry[i].name, S(".tmp")) && os_time() - entry[i].used > half_written;
        if (size <= max_size && !is_left) continue;
        os_remove_tree(str_fmt(&a, "%.*s/%.*s", STR_ARG(c->folder), STR_ARG(entry[i].name)).p);
        size -= entry[i].size;
    }
    arena_release(&a);
}

static void put(const struct cache *c, struct hash key, const char *suffix, struct str content)
{
    if (!c || !c->folder.n) return;
    struct arena a = {0};
    struct err e = {0};
    struct cache_head h = {.content = hash_bytes(content.p, content.n)};
    memcpy(h.magic, magic, sizeof magic);
    struct str piece[] = {{(const char *)&h, sizeof h}, content};
    os_write_private(cache_path(c, key, suffix, &a).p, piece, countof(piece), &e);
    if (key.lo % TRIM_EVERY == 0) cache_trim(c);
    arena_release(&a);
}

bool cache_get(const struct cache *c, struct hash key, struct arena *a, struct str *code)
{
    return get(c, key, "", a, code);
}

void cache_put(const struct cache *c, struct hash key, struct str code) { put(c, key, "", code); }

bool cache_get_part(const struct cache *c, struct hash key, struct arena *a, struct str *program)
{
    struct str name;
    struct hash of;
    return get(c, key, ".part", a, &name) && name.n == sizeof of &&
           (memcpy(&of, name.p, sizeof of), get(c, of, "", a, program));
}

void cache_put_part(const struct cache *c, struct hash key, struct str program)
{
    struct arena a = {0};
    struct hash of = hash_bytes(program.p, program.n);
    if (c && c->folder.n && !os_exists(cache_path(c, of, "", &a).p)) put(c, of, "", program);
    put(c, key, ".part", (struct str){(const char *)&of, sizeof of});
    arena_release(&a);
}
