// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of deployments, model.meta: the bytes as a file, and as the content of one with the right digest. An accepted description is written and read
// again.
#include <meta.pb-c.h>

#include "art/meta_file.h"
#include "fuzz.h"

static void try_file(struct str bytes)
{
    struct arena a = {0};
    struct err e = {0};
    struct meta_model m, again;
    struct buf b = {0}, c = {0};
    if (meta_read_model(&m, &a, bytes, &e)) {
        if (!meta_write_model(&b, &m, &e) || !meta_read_model(&again, &a, buf_view(&b), &e)) __builtin_trap();
        if (!meta_write_model(&c, &again, &e) || !str_eq(buf_view(&b), buf_view(&c))) __builtin_trap();
    } else if (!e.code) __builtin_trap();
    buf_release(&b);
    buf_release(&c);
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct err e = {0};
    u8 digest[SIGN_DIGEST_BYTES];
    struct str bytes = {(const char *)p, (i64)n};
    try_file(bytes);
    Quern__MetaFile f = QUERN__META_FILE__INIT;
    if (!sign_digest(bytes, digest, &e)) return 0; /* no libcrypto */
    f.kind = meta_z(&a, str_of(meta_model_kind)), f.version = META_VERSION;
    f.content = (ProtobufCBinaryData){n, (u8 *)(uintptr_t)p}, f.digest = (ProtobufCBinaryData){sizeof digest, digest};
    char *all = arena_alloc(&a, (i64)quern__meta_file__get_packed_size(&f) + 1);
    try_file((struct str){all, (i64)quern__meta_file__pack(&f, (u8 *)all)});
    arena_release(&a);
    return 0;
}
