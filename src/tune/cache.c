// SPDX-License-Identifier: Apache-2.0
//
// The user's cache. Folder "kernels" has one file per compiled kernel, found by the hash of
// everything the code depends on (build_key); "programs" has whole programs (api_keep.c); "notes"
// has what front ends derived from their own graphs (quern_cache_put). The contents are executed,
// so nothing is accepted that another user may have placed there: a folder that belongs to another
// user or is writable by others is refused. Every file ends with a seal (core/seal.c) over its name
// and content, made with a key that is stored elsewhere and readable only by this user. A file that
// was changed, renamed, truncated by a full disk or a kill, or sealed with another key counts as
// missing. A cache may be lost at any time: nothing is synchronised, and failures to write only
// cost the next build.
//
// Files:
//   KEY (32 hex digits)  code or a note, seal
//   KEY.part             a kernel in a program of several: the program's KEY, seal
//   KEY.proof            verdict of exact verification of a kernel (plan/prove.c), seal
//   KEY.dnx              a program, seal
// Their total size is limited (by default to 2 GiB); beyond it the least recently used files are
// removed, and after a day those that a killed process left incomplete.
#include "tune/tune.h"

#include <string.h>

enum { MAX_CODE = 1 << 30, MAX_PIECES = 1 << 20, TRIM_SHARE = 64 };
static const i64 usual_limit = (i64)2 << 30; /* bytes of all files */
static const double half_written = 24 * 3600; /* seconds after which an incomplete file is considered abandoned */
static const char *const folders[] = {"kernels", "programs", "notes", "" /* code compiled by drivers, dev_vulkan_kernel.c */};

static struct str limit_file(struct arena *a)
{
    struct str folder = os_config_folder(a);
    return folder.n ? str_fmt(a, "%.*s/cache-limit", STR_ARG(folder)) : folder;
}

static i64 read_limit(void)
{
    struct arena a = {0};
    struct err e = {0};
    struct str path = limit_file(&a), text;
    i64 n;
    bool ok = path.n && os_exists(path.p) && os_read(&a, path.p, 100, &text, &e) && str_to_i64(str_trim(text), &n) && n >= 0;
    arena_release(&a);
    return ok ? n : usual_limit;
}

/* Refuses a cache folder that others can access. */
static bool open_folder(struct str *path, const char *name, struct arena *a, struct err *e)
{
    struct str all = os_cache_folder(a);
    if (!all.n) return err_set(e, ERR_SYSTEM, "neither XDG_CACHE_HOME nor HOME is set");
    if (!os_private_folder(all.p, e)) return false;
    *path = str_fmt(a, "%.*s/%s", STR_ARG(all), name);
    return os_private_folder(path->p, e);
}

void cache_open(struct cache *c, const char *name, struct arena *a, const struct log *l)
{
    struct err e = {0};
    struct str path;
    *c = (struct cache){.limit = read_limit()};
    if (c->limit == 0) return;
    if (open_folder(&path, name, a, &e) && seal_key_open(&c->key, &e)) c->folder = path;
    else log_printf(l, 1, "%s are not kept: %s", name, e.msg);
}

static struct str name_of(struct hash key, const char *suffix, struct arena *a)
{
    char hex[33];
    hash_hex(key, hex);
    return str_fmt(a, "%s%s", hex, suffix);
}

static struct str path_of(const struct cache *c, struct str name, struct arena *a)
{
    return str_fmt(a, "%.*s/%.*s", STR_ARG(c->folder), STR_ARG(name));
}

/* The file without its seal, if that is valid. */
static bool unseal(const struct cache *c, struct str name, struct str all, struct str *content)
{
    u8 seal[SEAL_BYTES];
    if (all.n < SEAL_BYTES) return false;
    *content = str_sub(all, 0, all.n - SEAL_BYTES);
    memcpy(seal, content->p + content->n, sizeof seal);
    return seal_check(&c->key, name, *content, seal);
}

bool cache_map(const struct cache *c, struct hash key, const char *suffix, struct os_file *f, struct str *content)
{
    if (!c || !c->folder.n) return false;
    struct arena a = {0};
    struct err e = {0};
    struct str name = name_of(key, suffix, &a), path = path_of(c, name, &a);
    bool ok = os_map(f, path.p, &e);
    if (ok && !unseal(c, name, (struct str){(const char *)f->p, f->n}, content)) {
        os_unmap(f);
        ok = false;
    }
    if (ok) os_note_use(path.p);
    arena_release(&a);
    return ok;
}

/* Whether this write triggers a check of the limit: on average once per 64th of the limit written,
   by any process. Larger writes are more likely to; the key serves as a random number. So a write
   costs the listing of about 64 files, and the cache exceeds its limit by a 64th. */
static bool is_due(const struct cache *c, struct hash key, i64 written) { return key.lo % (u64)i64_max(c->limit / TRIM_SHARE, 1) < (u64)written; }

bool cache_write(const struct cache *c, struct hash key, const char *suffix, const struct str *piece, i64 n)
{
    if (!c || !c->folder.n || n >= MAX_PIECES) return false;
    struct arena a = {0};
    struct err e = {0};
    u8 seal[SEAL_BYTES];
    struct str name = name_of(key, suffix, &a), *all = arena_array(&a, struct str, n + 1);
    i64 written = SEAL_BYTES;
    for (i64 i = 0; i < n; i++) all[i] = piece[i], written += piece[i].n;
    all[n] = (struct str){(const char *)seal, sizeof seal};
    bool ok = seal_make(&c->key, name, piece, n, seal, &e) && os_write_private(path_of(c, name, &a).p, all, n + 1, &e);
    arena_release(&a);
    if (ok && is_due(c, key, written)) cache_trim();
    return ok;
}

static bool get(const struct cache *c, struct hash key, const char *suffix, struct arena *a, struct str *content)
{
    if (!c || !c->folder.n) return false;
    struct err e = {0};
    struct str name = name_of(key, suffix, a), path = path_of(c, name, a), all;
    if (!os_exists(path.p) || !os_read(a, path.p, MAX_CODE, &all, &e) || !unseal(c, name, all, content)) return false;
    os_note_use(path.p);
    return true;
}

static void put(const struct cache *c, struct hash key, const char *suffix, struct str content) { cache_write(c, key, suffix, &content, 1); }

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
    struct str there;
    if (!get(c, of, "", &a, &there)) put(c, of, "", program);
    put(c, key, ".part", (struct str){(const char *)&of, sizeof of});
    arena_release(&a);
}

/* The whole cache. */

struct kept { struct str path; i64 size; double used; };
struct kepts { struct kept *v; u32 n, cap; };

static void list_folder(struct kepts *k, struct str all, const char *name, struct arena *a)
{
    struct err e = {0};
    struct str dir = str_fmt(a, "%.*s/%s", STR_ARG(all), name);
    struct os_entry *entry;
    i64 n = 0;
    if (!os_is_dir(dir.p) || !os_list_by_use(a, dir.p, &entry, &n, &e)) return;
    for (i64 i = 0; i < n; i++)
        if (*name || str_starts(entry[i].name, S("vulkan-"))) /* the folder may contain settings, too */
            *arr_push(a, k) = (struct kept){str_fmt(a, "%.*s/%.*s", STR_ARG(dir), STR_ARG(entry[i].name)), entry[i].size, entry[i].used};
}

/* Merges the folders' lists, sorted by use: returns the next file to remove. */
static struct kept *oldest(struct kepts *k, u32 *at)
{
    struct kept *best = NULL;
    i64 from = -1;
    for (i64 f = 0; f < countof(folders); f++)
        if (at[f] < k[f].n && (!best || k[f].v[at[f]].used < best->used)) best = &k[f].v[at[f]], from = f;
    if (best) at[from]++;
    return best;
}

void cache_trim(void)
{
    struct arena a = {0};
    struct kepts k[countof(folders)] = {{0}};
    u32 at[countof(folders)] = {0};
    struct str all = os_cache_folder(&a);
    i64 size = 0, limit = read_limit();
    for (i64 f = 0; f < countof(folders) && all.n; f++) {
        list_folder(&k[f], all, folders[f], &a);
        for (u32 i = 0; i < k[f].n; i++) size += k[f].v[i].size;
    }
    for (struct kept *x; (x = oldest(k, at));) {
        bool is_left = str_ends(x->path, S(".tmp")) && os_time() - x->used > half_written;
        if (size <= limit && !is_left) continue;
        os_remove_tree(x->path.p);
        size -= x->size;
    }
    arena_release(&a);
}

bool cache_look(struct cache_use *u, struct arena *a, struct err *e)
{
    struct kepts k = {0};
    *u = (struct cache_use){.folder = os_cache_folder(a), .limit = read_limit()};
    for (i64 f = 0; f < countof(folders) && u->folder.n; f++) list_folder(&k, u->folder, folders[f], a);
    for (u32 i = 0; i < k.n; i++) u->bytes += k.v[i].size;
    u->n = k.n;
    return true;
}

bool cache_set_limit(i64 bytes, struct err *e)
{
    struct arena a = {0};
    struct str path = limit_file(&a), folder = os_config_folder(&a), text = str_fmt(&a, "%lld\n", (long long)bytes);
    bool ok = bytes >= 0 || err_set(e, ERR_USAGE, "a cache cannot have %lld bytes", (long long)bytes);
    if (ok && !path.n) ok = err_set(e, ERR_SYSTEM, "no folder for settings: neither XDG_CONFIG_HOME nor HOME is set");
    ok = ok && os_private_folder(folder.p, e) && os_write(path.p, text.p, text.n, e);
    if (ok) cache_trim();
    arena_release(&a);
    return ok;
}

/* Clears only folders of this user: others are never used. */
bool cache_clear(struct err *e)
{
    struct arena a = {0};
    bool ok = true;
    for (i64 f = 0; f < countof(folders) && ok; f++) {
        struct str dir;
        ok = open_folder(&dir, folders[f], &a, e);
        struct kepts k = {0};
        if (ok) list_folder(&k, os_cache_folder(&a), folders[f], &a);
        for (u32 i = 0; i < k.n; i++) os_remove_tree(k.v[i].path.p);
    }
    arena_release(&a);
    return ok;
}
