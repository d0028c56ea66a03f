// SPDX-License-Identifier: Apache-2.0
//
// .npz: several arrays of NumPy in one ZIP archive (numpy.savez, numpy.savez_compressed), each a file
// NAME.npy, stored or deflated. The archive's directory, at its end, gives sizes and places; the
// headers before the contents are only skipped. Archives beyond 4 GiB (ZIP64) are rejected.
#include <string.h>
#include <zlib.h>

#include "io/io.h"

enum {
    END_SIZE = 22, ENTRY_SIZE = 46, HEADER_SIZE = 30, /* fixed parts of records */
    MAX_COMMENT = 65535,
    MAX_INFLATE = 1040, /* deflate's best ratio is below */
    STORED = 0, DEFLATED = 8,
    ENCRYPTED = 1
};

struct entry { /* of the directory */
    u32 flags, method, crc;
    i64 packed, size, at; /* bytes in the archive, of the content; place of the header */
    struct str name;
};

static u32 get16(struct str s, i64 at) { return (u32)(u8)s.p[at] | (u32)(u8)s.p[at + 1] << 8; }
static u32 get32(struct str s, i64 at) { return get16(s, at) | get16(s, at + 2) << 16; }
static bool is_record(struct str s, i64 at, u32 kind) { return at + 4 <= s.n && get32(s, at) == (0x4b50 | kind << 16); }

/* The record at the end; -1: none. */
static i64 find_end(struct str s)
{
    for (i64 at = s.n - END_SIZE; at >= 0 && at >= s.n - END_SIZE - MAX_COMMENT; at--)
        if (is_record(s, at, 0x0605) && at + END_SIZE + get16(s, at + 20) == s.n) return at;
    return -1;
}

/* The entry at *at, which is advanced. */
static bool read_entry(struct entry *x, struct str s, i64 *at, struct err *e)
{
    if (*at > s.n - ENTRY_SIZE || !is_record(s, *at, 0x0201)) return err_set(e, ERR_INPUT, "invalid directory of a zip archive");
    i64 n_name = get16(s, *at + 28), more = get16(s, *at + 30) + get16(s, *at + 32);
    if (n_name + more > s.n - *at - ENTRY_SIZE) return err_set(e, ERR_INPUT, "invalid directory of a zip archive");
    *x = (struct entry){.flags = get16(s, *at + 8), .method = get16(s, *at + 10), .crc = get32(s, *at + 16)};
    x->packed = get32(s, *at + 20), x->size = get32(s, *at + 24), x->at = get32(s, *at + 42);
    x->name = str_sub(s, *at + ENTRY_SIZE, *at + ENTRY_SIZE + n_name);
    *at += ENTRY_SIZE + n_name + more;
    if (x->packed != UINT32_MAX && x->size != UINT32_MAX && x->at != UINT32_MAX) return true;
    return err_set(e, ERR_UNSUPPORTED, "'%.*s' is larger than 4 GiB: divide it among several files", STR_ARG(x->name));
}

/* The entry's bytes in the archive. */
static bool find_packed(struct str *out, const struct entry *x, struct str s, struct err *e)
{
    bool ok = x->at <= s.n - HEADER_SIZE && is_record(s, x->at, 0x0403);
    i64 from = ok ? x->at + HEADER_SIZE + get16(s, x->at + 26) + get16(s, x->at + 28) : 0;
    if (!ok || from > s.n || x->packed > s.n - from) return err_set(e, ERR_INPUT, "'%.*s' is outside of the archive", STR_ARG(x->name));
    *out = str_sub(s, from, from + x->packed);
    return true;
}

static bool inflate_entry(char *to, const struct entry *x, struct str packed, struct err *e)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)packed.p, .avail_in = (uInt)packed.n, .next_out = (Bytef *)to, .avail_out = (uInt)x->size};
    if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return err_set(e, ERR_SYSTEM, "not enough memory to decompress '%.*s'", STR_ARG(x->name));
    int status = inflate(&z, Z_FINISH);
    inflateEnd(&z);
    return (status == Z_STREAM_END && z.total_out == (uLong)x->size) ||
           err_set(e, ERR_INPUT, "'%.*s' cannot be decompressed", STR_ARG(x->name));
}

/* The entry's content, in the archive or in the arena. */
static bool unpack(struct str *out, struct arena *a, const struct entry *x, struct str s, struct err *e)
{
    if (!find_packed(out, x, s, e)) return false;
    if (x->flags & ENCRYPTED || (x->method != STORED && x->method != DEFLATED))
        return err_set(e, ERR_UNSUPPORTED, "'%.*s' is encrypted or compressed by another method than deflate", STR_ARG(x->name));
    if (x->method == STORED ? x->size != x->packed : x->size > MAX_INFLATE * x->packed)
        return err_set(e, ERR_INPUT, "size of '%.*s' does not fit its compressed size", STR_ARG(x->name));
    if (x->method == DEFLATED) {
        char *to = arena_try(a, x->size + 1, e, "the content of '%.*s'", STR_ARG(x->name));
        if (!to || !inflate_entry(to, x, *out, e)) return false;
        *out = (struct str){to, x->size};
    }
    return crc32(0, (const Bytef *)out->p, (uInt)out->n) == x->crc || err_set(e, ERR_INPUT, "'%.*s' is damaged: wrong checksum", STR_ARG(x->name));
}

bool io_npz_read(struct io_npz *out, struct arena *a, struct str bytes, struct err *e)
{
    i64 end = find_end(bytes);
    if (end < 0) return err_set(e, ERR_INPUT, "not an npz file, or truncated");
    u32 n = get16(bytes, end + 10);
    i64 at = get32(bytes, end + 16);
    for (u32 k = 0; k < n; k++) {
        struct entry x = {0};
        struct str content = {0};
        struct arena work = {0};
        struct tensor t = {0};
        bool ok = read_entry(&x, bytes, &at, e) && (str_ends(x.name, S(".npy")) || err_set(e, ERR_INPUT, "'%.*s' is not an array (.npy)", STR_ARG(x.name)));
        ok = ok && unpack(&content, &work, &x, bytes, e) && (io_find("x.npy")->read(&t, a, content, e) || err_prefix(e, "'%.*s'", STR_ARG(x.name)));
        arena_release(&work);
        if (!ok) return false;
        *arr_push(a, out) = (struct io_npz_array){str_dup(a, str_sub(x.name, 0, x.name.n - 4)), t};
    }
    return true;
}
