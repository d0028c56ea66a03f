// SPDX-License-Identifier: Apache-2.0
//
// A deployment's files: a folder, or a packed file. Files are compared with the sizes and digests of model.meta when they are read, so that its signature
// covers all of them. They are written under a temporary name that is replaced when all is complete: nothing half-written is left behind. A folder's
// files are opened beneath it, and not through links.
#include "art/meta_file.h"

#include <string.h>

/* Smaller files are read instead of mapped: truncating one while it is in use does no harm. */
enum { COPIED = 64 << 20, MAX_META = 1 << 28, FIRST_BYTES = 64 };

struct loaded { struct str path; struct os_file file; };
struct meta_store {
    struct arena a;
    const char *path;
    const char *folder;      /* NULL: packed */
    bool is_private;
    struct os_file packed;
    struct meta_packed_list list;
    struct { struct loaded *v; u32 n, cap; } loaded; /* of a folder */
    struct str meta, signatures;
    struct meta_model model;
};

const struct meta_model *meta_model_of(const struct meta_store *s) { return &s->model; }
struct str meta_model_bytes(const struct meta_store *s) { return s->meta; }
struct str meta_signature_bytes(const struct meta_store *s) { return s->signatures; }

/* Reading. */

static bool find_packed(const struct meta_store *s, struct str name, struct str *bytes)
{
    for (u32 i = 0; i < s->list.n; i++)
        if (str_eq(s->list.v[i].name, name)) return *bytes = s->list.v[i].bytes, true;
    return false;
}

static bool load(struct meta_store *s, struct str path, i64 most, struct str *bytes, struct err *e)
{
    if (!s->folder) return find_packed(s, path, bytes) || err_set(e, ERR_INPUT, "file '%.*s' is missing", STR_ARG(path));
    for (u32 i = 0; i < s->loaded.n; i++)
        if (str_eq(s->loaded.v[i].path, path)) return *bytes = (struct str){(const char *)s->loaded.v[i].file.p, s->loaded.v[i].file.n}, true;
    struct os_file f;
    if (!os_load_beside(&f, &(struct os_beside){.dir = s->folder}, path, most, e)) return false;
    *arr_push(&s->a, &s->loaded) = (struct loaded){str_dup(&s->a, path), f};
    *bytes = (struct str){(const char *)f.p, f.n};
    return true;
}

bool meta_store_read(void *user, const struct meta_file *f, struct str *bytes, struct err *e)
{
    struct meta_store *s = user;
    u8 digest[SIGN_DIGEST_BYTES];
    if (!load(s, f->path, s->is_private ? INT64_MAX : COPIED, bytes, e)) return err_prefix(e, "'%s'", s->path);
    if (bytes->n != f->size)
        return err_set(e, ERR_INPUT, "'%s': file '%.*s' has %lld bytes, model.meta says %lld: it was truncated or changed", s->path, STR_ARG(f->path),
                       (long long)bytes->n, (long long)f->size);
    if (!sign_digest(*bytes, digest, e)) return false;
    return memcmp(digest, f->digest, sizeof digest) == 0 ||
           err_set(e, ERR_INPUT, "'%s': file '%.*s' differs from its digest in model.meta: it was changed", s->path, STR_ARG(f->path));
}

static bool first_bytes(const char *path, char *p, i64 *n)
{
    struct os_reader r;
    struct err e = {0};
    if (os_is_dir(path) || !os_reader_open(&r, path, &e)) return false;
    *n = i64_min(r.n, FIRST_BYTES);
    bool ok = os_reader_get(&r, p, *n, 0);
    os_reader_close(&r);
    return ok;
}

bool meta_is_store(const char *path)
{
    struct arena a = {0};
    char p[FIRST_BYTES];
    i64 n;
    bool is_dir = os_is_dir(path);
    if (is_dir) path = str_fmt(&a, "%s/" META_MODEL_FILE, path).p;
    bool ok = first_bytes(path, p, &n) && (meta_is_model((struct str){p, n}) || (!is_dir && meta_is_packed((struct str){p, n})));
    arena_release(&a);
    return ok;
}

/* The folder of the model.meta at this path; NULL: it is another file. */
static const char *folder_of(struct arena *a, const char *path)
{
    struct str s = str_of(path), name = S(META_MODEL_FILE);
    if (os_is_dir(path)) return str_dup(a, s).p;
    if (str_eq(s, name)) return ".";
    if (!str_ends(s, S("/" META_MODEL_FILE))) return NULL;
    return s.n == name.n + 1 ? "/" : str_dup(a, str_sub(s, 0, s.n - name.n - 1)).p;
}

static bool open_files(struct meta_store *s, struct err *e)
{
    s->folder = folder_of(&s->a, s->path);
    if (s->folder) {
        struct arena tmp = {0};
        bool is_signed = os_exists(str_fmt(&tmp, "%s/" META_SIGNATURE_FILE, s->folder).p);
        arena_release(&tmp);
        return load(s, S(META_MODEL_FILE), INT64_MAX, &s->meta, e) && (!is_signed || load(s, S(META_SIGNATURE_FILE), INT64_MAX, &s->signatures, e));
    }
    if (!os_load(&s->packed, s->path, s->is_private ? INT64_MAX : COPIED, e)) return false;
    if (!meta_packed_read(&s->list, &s->a, (struct str){(const char *)s->packed.p, s->packed.n}, e)) return false;
    find_packed(s, S(META_SIGNATURE_FILE), &s->signatures);
    return find_packed(s, S(META_MODEL_FILE), &s->meta) || err_set(e, ERR_INPUT, "file '" META_MODEL_FILE "' is missing");
}

struct meta_store *meta_open(const char *path, const struct meta_opts *o, struct err *e)
{
    struct meta_store *s = mem_alloc(sizeof *s);
    *s = (struct meta_store){.path = NULL};
    s->path = str_dup(&s->a, str_of(path)).p;
    s->is_private = o && o->is_private;
    bool ok = open_files(s, e) && (!o || !o->check || o->check(o->user, s->meta, s->signatures, e)) && meta_read_model(&s->model, &s->a, s->meta, e);
    if (ok) return s;
    err_prefix(e, "'%s'", path);
    meta_close(s);
    return NULL;
}

void meta_close(struct meta_store *s)
{
    if (!s) return;
    for (u32 i = 0; i < s->loaded.n; i++) os_unmap(&s->loaded.v[i].file);
    os_unmap(&s->packed);
    struct arena a = s->a;
    arena_release(&a);
    mem_free(s);
}

/* Writing. */

struct all_files {
    struct str meta, signatures;
    const struct meta_contents *contents;
};

static bool write_file(const char *path, const struct meta_content *c, struct err *e)
{
    struct buf b = {0};
    if (c->file.role != META_SCRIPT) return os_write_pieces(path, c->piece, c->n_piece, e);
    for (i64 i = 0; i < c->n_piece; i++) buf_str(&b, c->piece[i]);
    bool ok = os_write_new(path, 0777, b.p, b.n, e);
    buf_release(&b);
    return ok;
}

static bool write_beneath(const char *folder, const struct meta_content *c, struct arena *a, struct err *e)
{
    struct str path = str_fmt(a, "%s/%.*s", folder, STR_ARG(c->file.path));
    i64 n = path.n;
    while (path.p[n - 1] != '/') n--;
    return os_mkdirs(str_dup(a, str_sub(path, 0, n - 1)).p, e) && write_file(path.p, c, e);
}

static bool write_folder(const char *path, const struct all_files *x, struct err *e)
{
    struct arena a = {0};
    struct str tmp = {0};
    bool ok = (!os_exists(path) || err_set(e, ERR_USAGE, "'%s' exists already", path)) && os_mkdir_beside(&a, path, &tmp, e);
    for (u32 i = 0; i < x->contents->n && ok; i++) ok = write_beneath(tmp.p, &x->contents->v[i], &a, e);
    ok = ok && os_write(str_fmt(&a, "%s/" META_MODEL_FILE, tmp.p).p, x->meta.p, x->meta.n, e);
    if (ok && x->signatures.n) ok = os_write(str_fmt(&a, "%s/" META_SIGNATURE_FILE, tmp.p).p, x->signatures.p, x->signatures.n, e);
    ok = ok && os_rename_folder(tmp.p, path, e);
    if (!ok && tmp.n) os_remove_tree(tmp.p);
    arena_release(&a);
    return ok;
}

static bool write_packed(const char *path, const struct all_files *x, struct err *e)
{
    struct arena a = {0};
    struct { struct meta_piece *v; u32 n, cap; } p = {0};
    *arr_push(&a, &p) = (struct meta_piece){S(META_MODEL_FILE), &x->meta, 1};
    if (x->signatures.n) *arr_push(&a, &p) = (struct meta_piece){S(META_SIGNATURE_FILE), &x->signatures, 1};
    for (u32 i = 0; i < x->contents->n; i++) {
        const struct meta_content *c = &x->contents->v[i];
        *arr_push(&a, &p) = (struct meta_piece){c->file.path, c->piece, c->n_piece};
    }
    bool ok = meta_packed_write(path, p.v, p.n, e);
    arena_release(&a);
    return ok;
}

/* The contents in the order of the model's lists, which must name exactly them. */
static bool sort_contents(struct meta_contents *sorted, struct arena *a, const struct meta_model *m, const struct meta_contents *files, struct err *e)
{
    struct map at;
    map_init(&at, a);
    for (u32 i = 0; i < files->n; i++) map_put(&at, files->v[i].file.path, i);
    for (u32 k = 0; k < m->subgraph.n; k++)
        for (u32 i = 0; i < m->subgraph.v[k].file.n; i++) {
            const struct meta_file *f = &m->subgraph.v[k].file.v[i];
            const u64 *found = map_get(&at, f->path);
            const struct meta_file *g = found ? &files->v[*found].file : NULL;
            if (!g || g->size != f->size || memcmp(g->digest, f->digest, sizeof f->digest) != 0 || g->role != f->role)
                return err_set(e, ERR_USAGE, "file '%.*s' of sub-graph '%.*s' %s", STR_ARG(f->path), STR_ARG(m->subgraph.v[k].name),
                               g ? "differs from its content" : "has no content");
            *arr_push(a, sorted) = files->v[*found];
        }
    return sorted->n == files->n || err_set(e, ERR_USAGE, "%u files are given, the sub-graphs list %u", files->n, sorted->n);
}

typedef bool write_fn(const char *path, const struct all_files *x, struct err *e);

static bool write_all(write_fn *write, const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e)
{
    struct arena a = {0};
    struct buf meta = {0};
    struct meta_contents sorted = {0};
    bool ok = meta_write_model(&meta, m, e) && sort_contents(&sorted, &a, m, files, e) && write(path, &(struct all_files){.meta = buf_view(&meta), .contents = &sorted}, e);
    buf_release(&meta);
    arena_release(&a);
    return ok;
}

bool meta_write_folder(const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e)
{
    return write_all(write_folder, path, m, files, e);
}

bool meta_write_packed(const char *path, const struct meta_model *m, const struct meta_contents *files, struct err *e)
{
    return write_all(write_packed, path, m, files, e);
}

/* All files of a store, compared with their digests. */
static bool read_all(struct meta_contents *c, struct meta_store *s, struct arena *a, struct err *e)
{
    for (u32 k = 0; k < s->model.subgraph.n; k++)
        for (u32 i = 0; i < s->model.subgraph.v[k].file.n; i++) {
            const struct meta_file *f = &s->model.subgraph.v[k].file.v[i];
            struct str *bytes = arena_new(a, struct str);
            if (!meta_store_read(s, f, bytes, e)) return false;
            *arr_push(a, c) = (struct meta_content){*f, bytes, 1};
        }
    return true;
}

bool meta_pack(struct meta_store *s, const char *path, struct err *e)
{
    struct arena a = {0};
    struct meta_contents c = {0};
    bool ok = read_all(&c, s, &a, e) && (s->folder ? write_packed : write_folder)(path, &(struct all_files){s->meta, s->signatures, &c}, e);
    arena_release(&a);
    return ok;
}

bool meta_sign(const char *path, const u8 secret[SIGN_KEY_BYTES], bool only, const char *out, struct err *e)
{
    struct arena a = {0};
    struct meta_contents c = {0};
    struct buf b = {0};
    struct meta_store *s = meta_open(path, &(struct meta_opts){.is_private = true}, e);
    bool ok = s && read_all(&c, s, &a, e) && (dnx_sign_beside(&b, s->meta, s->signatures, secret, only, e) || err_prefix(e, "'%s'", path));
    if (ok && s->folder && out) ok = err_set(e, ERR_USAGE, "'%s' is a folder: it is signed in place", path);
    if (ok && s->folder) ok = os_write(str_fmt(&a, "%s/" META_SIGNATURE_FILE, s->folder).p, b.p, b.n, e);
    else if (ok) ok = write_packed(out ? out : path, &(struct all_files){s->meta, buf_view(&b), &c}, e);
    buf_release(&b);
    arena_release(&a);
    meta_close(s);
    return ok;
}
