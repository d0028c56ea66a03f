// SPDX-License-Identifier: Apache-2.0
//
// .npz: arrays as numpy.savez writes them, a ZIP archive of stored files NAME.npy. Same arrays, same bytes: the date of every file is the
// earliest that the format has.
#include <zlib.h>

#include "io/io.h"

enum { STORED = 0, NEEDS_VERSION = 20, FIRST_DATE = 1 << 5 | 1 /* 1 January 1980 */ };

static void put16(struct buf *b, u32 v)
{
    buf_char(b, (char)v);
    buf_char(b, (char)(v >> 8));
}

static void put32(struct buf *b, i64 v)
{
    put16(b, (u32)v & 0xffff);
    put16(b, (u32)(v >> 16) & 0xffff);
}

/* What header and entry of the directory have in common. */
static void put_facts(struct buf *b, struct str name, const struct buf *content)
{
    put16(b, NEEDS_VERSION);
    put16(b, 0); /* flags */
    put16(b, STORED);
    put16(b, 0); /* time */
    put16(b, FIRST_DATE);
    put32(b, crc32(0, (const Bytef *)content->p, (uInt)content->n));
    put32(b, content->n);
    put32(b, content->n);
    put16(b, (u32)name.n);
    put16(b, 0); /* further fields */
}

static void put_entry(struct buf *directory, struct str name, const struct buf *content, i64 at)
{
    put32(directory, 0x02014b50);
    put16(directory, NEEDS_VERSION);
    put_facts(directory, name, content);
    put16(directory, 0); /* comment */
    put16(directory, 0); /* disk */
    put16(directory, 0); /* attributes */
    put32(directory, 0);
    put32(directory, at);
    buf_str(directory, name);
}

static bool put_array(struct buf *out, struct buf *directory, const struct io_npz_array *x, struct arena *a, struct err *e)
{
    struct buf content = {0};
    struct str name = str_fmt(a, "%.*s.npy", STR_ARG(x->name));
    bool ok = io_find("x.npy")->write(&content, &x->t, e);
    ok = ok && ((name.n < 1 << 16 && content.n < UINT32_MAX - (1 << 20) - out->n) || err_set(e, ERR_UNSUPPORTED, "arrays of more than 4 GiB do not fit an .npz file"));
    if (ok) {
        put_entry(directory, name, &content, out->n);
        put32(out, 0x04034b50);
        put_facts(out, name, &content);
        buf_str(out, name);
        buf_put(out, content.p, content.n);
    }
    buf_release(&content);
    return ok;
}

bool io_npz_write(struct buf *out, const struct io_npz *z, struct err *e)
{
    struct arena a = {0};
    struct buf directory = {0};
    bool ok = z->n < 1 << 16 || err_set(e, ERR_UNSUPPORTED, "more arrays than an .npz file can have");
    for (u32 k = 0; ok && k < z->n; k++) ok = put_array(out, &directory, &z->v[k], &a, e);
    i64 at = out->n;
    buf_put(out, directory.p, directory.n);
    put32(out, 0x06054b50);
    put32(out, 0); /* disks */
    put16(out, z->n);
    put16(out, z->n);
    put32(out, directory.n);
    put32(out, at);
    put16(out, 0); /* comment */
    buf_release(&directory);
    arena_release(&a);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "not enough memory for an .npz file"));
}
