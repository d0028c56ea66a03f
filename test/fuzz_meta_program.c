// SPDX-License-Identifier: Apache-2.0
//
// Programs of sub-graphs, <sub-graph>.meta: the bytes as the content of a file, with kernels and weights of fixed content whose digests are not compared.
// Accepted plans pass plan_verify, and their constants are in the weights.
#include <meta.pb-c.h>

#include "art/meta_file.h"
#include "fuzz.h"

static const char weights[128] = "weights", code[] = "code";
static const struct meta_file files[] = {
    {.path = {"S/p.meta", 8}, .role = META_PROGRAM},
    {.path = {"S/k.so", 6}, .role = META_KERNEL, .size = sizeof code - 1},
    {.path = {"S/p.weights", 11}, .role = META_WEIGHTS, .size = sizeof weights},
};

static bool read(void *user, const struct meta_file *f, struct str *bytes, struct err *e)
{
    (void)e;
    if (f->role == META_PROGRAM) *bytes = *(const struct str *)user;
    else *bytes = (struct str){f->role == META_KERNEL ? code : weights, f->size};
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct err e = {0};
    struct plan plan;
    u8 digest[SIGN_DIGEST_BYTES];
    Quern__MetaFile f = QUERN__META_FILE__INIT;
    if (!sign_digest((struct str){(const char *)p, (i64)n}, digest, &e)) return 0; /* no libcrypto */
    f.kind = meta_z(&a, str_of(meta_program_kind)), f.version = META_VERSION;
    f.content = (ProtobufCBinaryData){n, (u8 *)(uintptr_t)p}, f.digest = (ProtobufCBinaryData){sizeof digest, digest};
    char *all = arena_alloc(&a, (i64)quern__meta_file__get_packed_size(&f) + 1);
    struct str bytes = {all, (i64)quern__meta_file__pack(&f, (u8 *)all)};
    struct meta_subgraph s = {.name = S("S")};
    for (i64 i = 0; i < countof(files); i++) *arr_push(&a, &s.file) = files[i];
    struct meta_reader r = {.read = read, .user = &bytes};
    if (meta_program_read(&plan, &a, NULL, &s, META_PROGRAM, &r, &e)) {
        if (!plan_verify(&plan, &e)) __builtin_trap();
        for (u32 i = 0; i < plan.buf.n; i++) {
            const struct plan_buf *b = &plan.buf.v[i];
            if (b->kind == PB_CONST && ((const char *)b->data < weights || (const char *)b->data + b->data_size > weights + sizeof weights)) __builtin_trap();
        }
    } else if (!e.code) __builtin_trap();
    arena_release(&a);
    return 0;
}
