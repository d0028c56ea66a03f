// SPDX-License-Identifier: Apache-2.0
//
// The frame of meta files: kind, version, content and its digest (doc/meta.proto). Bytes are untrusted: protobuf-c takes memory from the arena,
// at most a multiple of the bytes' number; messages nest three deep by their schema, so its recursion is bounded.
#include "art/meta_file.h"

#include <string.h>

enum {
    MAX_BYTES = 1 << 28,
    FACTOR = 64,         /* a field of two bytes costs 40 while it is scanned */
    BASE = 1 << 16,      /* added to that */
};

const char meta_model_kind[] = "quern model", meta_program_kind[] = "quern program";

static void *unpack(const ProtobufCMessageDescriptor *d, struct arena *a, struct str bytes, struct err *e)
{
    struct arena_budget b = {.a = a, .e = e, .left = BASE + bytes.n * FACTOR, .what = "the content of a meta file"};
    ProtobufCAllocator alloc = {.alloc = arena_budget_alloc, .free = arena_budget_free, .allocator_data = &b};
    if (bytes.n > MAX_BYTES) return err_set(e, ERR_INPUT, "larger than %d bytes", MAX_BYTES), NULL;
    void *m = protobuf_c_message_unpack(d, &alloc, (size_t)bytes.n, (const u8 *)(bytes.n ? bytes.p : ""));
    if (!m) err_set(e, ERR_INPUT, "invalid or truncated protobuf (%s)", d->short_name);
    return m;
}

bool meta_is_kind(struct str bytes, const char *kind)
{
    i64 n = (i64)strlen(kind);
    return bytes.n > 2 + n && bytes.p[0] == 0x0a && bytes.p[1] == (char)n && memcmp(bytes.p + 2, kind, (size_t)n) == 0;
}

void *meta_unwrap(const ProtobufCMessageDescriptor *d, const char *kind, struct arena *a, struct str bytes, struct err *e)
{
    u8 digest[SIGN_DIGEST_BYTES];
    Quern__MetaFile *f = unpack(&quern__meta_file__descriptor, a, bytes, e);
    if (!f) return NULL;
    if (strcmp(f->kind, kind) != 0) return err_set(e, ERR_INPUT, "kind is '%.50s', expected '%s'", f->kind, kind), NULL;
    if (f->version < 1 || f->version > META_VERSION)
        return err_set(e, ERR_UNSUPPORTED, "version is %u, this program reads 1 to %d", f->version, META_VERSION), NULL;
    struct str content = {(const char *)f->content.data, (i64)f->content.len};
    if (!sign_digest(content, digest, e)) return NULL;
    if (f->digest.len != sizeof digest || memcmp(f->digest.data, digest, sizeof digest) != 0)
        return err_set(e, ERR_INPUT, "digest: the content was changed or truncated"), NULL;
    return unpack(d, a, content, e);
}

static char *pack(struct arena *a, const ProtobufCMessage *m, i64 *n, struct err *e)
{
    *n = (i64)protobuf_c_message_get_packed_size(m);
    char *p = arena_try(a, *n + 1, e, "a meta file");
    if (p) protobuf_c_message_pack(m, (u8 *)p);
    return p;
}

bool meta_wrap(struct buf *out, const char *kind, const ProtobufCMessage *m, struct err *e)
{
    struct arena a = {0};
    u8 digest[SIGN_DIGEST_BYTES];
    i64 n;
    char *content = pack(&a, m, &n, e);
    bool ok = content && (n <= MAX_BYTES || err_set(e, ERR_UNSUPPORTED, "a meta file has more than %d bytes", MAX_BYTES)) &&
              sign_digest((struct str){content, n}, digest, e);
    Quern__MetaFile f = QUERN__META_FILE__INIT;
    f.kind = meta_z(&a, str_of(kind)), f.version = META_VERSION;
    f.content = (ProtobufCBinaryData){(size_t)n, (u8 *)content}, f.digest = (ProtobufCBinaryData){sizeof digest, digest};
    char *all = ok ? pack(&a, &f.base, &n, e) : NULL;
    if (all) buf_put(out, all, n);
    arena_release(&a);
    return all && (!out->failed || err_set(e, ERR_SYSTEM, "not enough memory for a meta file"));
}

struct str meta_text(struct arena *a, const char *z) { return str_dup(a, str_of(z)); }

char *meta_z(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    if (s.n) memcpy(p, s.p, (size_t)s.n);
    return p;
}

bool meta_read_entry(struct meta_file *f, struct arena *a, const Quern__File *x, struct err *e)
{
    *f = (struct meta_file){.path = meta_text(a, x->path), .role = (enum meta_role)x->role, .size = (i64)x->size};
    if (!meta_path_is_valid(f->path)) return err_set(e, ERR_INPUT, "path of a file is invalid: '%.100s'", x->path);
    if (x->role < 0 || (u32)x->role >= N_META_ROLES) return err_set(e, ERR_INPUT, "role of '%s' is unknown: %d", f->path.p, (int)x->role);
    if (f->size < 0) return err_set(e, ERR_INPUT, "size of '%s' is invalid", f->path.p);
    if (x->digest.len != SIGN_DIGEST_BYTES) return err_set(e, ERR_INPUT, "digest of '%s' has %zu bytes, expected %d", f->path.p, x->digest.len, SIGN_DIGEST_BYTES);
    memcpy(f->digest, x->digest.data, SIGN_DIGEST_BYTES);
    return true;
}

Quern__File *meta_write_entry(const struct meta_file *f, struct arena *a)
{
    Quern__File *x = arena_new(a, Quern__File);
    quern__file__init(x);
    x->path = meta_z(a, f->path), x->role = (Quern__Role)f->role, x->size = (u64)f->size;
    x->digest = (ProtobufCBinaryData){SIGN_DIGEST_BYTES, (u8 *)(uintptr_t)f->digest};
    return x;
}
