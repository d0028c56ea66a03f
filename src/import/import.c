// SPDX-License-Identifier: Apache-2.0
//
// The registry of model formats, and whole files. A format that recognises the content has precedence over the
// path's suffix, so that a renamed file works and an invalid one is reported by the importer of its suffix.
#include "import/import.h"

#define X(name) extern const struct importer import_##name;
#include "import.inc"
#undef X

static const struct importer *const importers[] = {
#define X(name) &import_##name,
#include "import.inc"
#undef X
};

static const struct importer *find_importer(struct str bytes, struct str path)
{
    for (i64 k = 0; k < countof(importers); k++)
        if (importers[k]->match(bytes)) return importers[k];
    for (i64 k = 0; k < countof(importers); k++)
        if (str_ends(path, str_of(importers[k]->suffix))) return importers[k];
    return NULL;
}

/* The folder part of a path, "." if there is none. */
static const char *folder_of(struct arena *a, struct str path)
{
    i64 n = path.n;
    while (n > 0 && path.p[n - 1] != '/') n--;
    return n ? str_z(a, str_sub(path, 0, n)) : ".";
}

static bool read_with(const struct importer *m, const struct import_job *j, struct err *e)
{
    if (!m) return err_set(e, ERR_INPUT, "unknown model format");
    bool ok = m->read(j, e) && (j->all || j->interface_only || graph_verify(j->g, e));
    return ok || import_advise(e);
}

/* Reads a whole file into private memory, because the file may change meanwhile. */
static bool load(struct str *out, struct arena *a, const struct os_reader *f, struct err *e)
{
    char *p = arena_try(a, f->n + 1, e, "the file");
    if (!p) return false;
    *out = (struct str){p, f->n};
    return os_reader_get(f, p, f->n, 0) || err_set(e, ERR_INPUT, "the file was truncated or became unreadable");
}

/* Formats are recognised by the first bytes. */
static bool read_file(struct import_job *j, struct arena *a, const char *path, struct err *e)
{
    enum { HEAD = 1 << 16 };
    struct os_reader f;
    struct arena own = {0};
    if (!os_reader_open(&f, path, e)) return false;
    const struct os_reader head = {f.fd, i64_min(f.n, HEAD)};
    bool ok = load(&j->bytes, &own, &head, e);
    const struct importer *m = ok ? find_importer(j->bytes, str_of(path)) : NULL;
    j->beside = &(struct os_beside){.dir = folder_of(a, str_of(path)), .model = path, .follow_links = j->follow_links};
    if (m && m->reads_files) j->file = &f;
    else if (ok && f.n > head.n) ok = load(&j->bytes, &own, &f, e);
    ok = ok && read_with(m, j, e);
    arena_release(&own);
    os_reader_close(&f);
    j->bytes = (struct str){0};
    j->beside = NULL;
    j->file = NULL;
    return ok;
}

bool import_run(struct import_job *j, struct arena *a, struct symtab *st, const char *path, struct err *e)
{
    graph_init(j->g, a, st);
    bool ok = j->bytes.p ? read_with(find_importer(j->bytes, str_of(path)), j, e) : read_file(j, a, path, e);
    return ok || (path && err_prefix(e, "'%s'", path));
}

bool import_graph(struct graph *g, struct arena *a, struct symtab *st, const char *path, struct err *e)
{
    return import_run(&(struct import_job){.g = g}, a, st, path, e);
}

bool import_bytes(struct graph *g, struct arena *a, struct symtab *st, struct str bytes, struct err *e)
{
    if (!bytes.p) bytes.p = "";
    return import_run(&(struct import_job){.g = g, .bytes = bytes}, a, st, NULL, e);
}
