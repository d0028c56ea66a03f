// SPDX-License-Identifier: Apache-2.0
//
// The registry of tensor file formats, and whole files. The format is selected by the suffix of the path,
// case-insensitively, never by content: `-o out.png` has no content yet, and both directions should follow the same rule.
#include "io/io.h"

#define X(name) extern const struct io_format io_##name;
#include "io.inc"
#undef X

static const struct io_format *const formats[] = {
#define X(name) &io_##name,
#include "io.inc"
#undef X
};

const struct io_format *io_all(i64 k)
{
    return k >= 0 && k < countof(formats) ? formats[k] : NULL;
}

const struct io_format *io_find(const char *path)
{
    struct str s = str_of(path);
    for (i64 k = 0; k < countof(formats); k++) {
        struct str suffix = str_of(formats[k]->suffix);
        if (str_glob(suffix, str_sub(s, s.n - suffix.n, s.n))) return formats[k];
    }
    return NULL;
}

static const struct io_format *find_or_complain(const char *path, struct err *e)
{
    const struct io_format *f = io_find(path);
    struct buf known = {0};
    if (f) return f;
    for (i64 k = 0; k < countof(formats); k++) buf_printf(&known, "%s%s", k ? " " : "", formats[k]->suffix);
    err_set(e, ERR_USAGE, "unknown kind of tensor file '%s' (known: %s)", path, known.p ? known.p : "");
    buf_release(&known);
    return NULL;
}

bool io_read(struct tensor *out, struct arena *a, const char *path, struct err *e)
{
    struct os_file file = {0};
    const struct io_format *f = find_or_complain(path, e);
    if (!f || !os_map(&file, path, e)) return false;
    bool ok = f->read(out, a, (struct str){(const char *)file.p, file.n}, e);
    os_unmap(&file);
    return ok || err_prefix(e, "'%s'", path);
}

bool io_write(const struct tensor *t, const char *path, struct err *e)
{
    struct buf b = {0};
    const struct io_format *f = find_or_complain(path, e);
    if (!f) return false;
    bool ok = f->write(&b, t, e) || err_prefix(e, "'%s'", path);
    if (ok && b.failed) ok = err_set(e, ERR_FAILED, "'%s': tensor too large to write", path);
    if (ok) ok = os_write(path, b.p, b.n, e);
    buf_release(&b);
    return ok;
}
