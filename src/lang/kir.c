// SPDX-License-Identifier: Apache-2.0
//
// kir.c: the language kir, kernel IR's own text, which the interpreter runs. Its limits
// cause only rewrites that a processor would need, too; "building" only checks the text.
#include "lang/lang.h"

static bool print(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    struct arena a = {0};
    struct kir safe;
    bool ok = kir_avoid(&safe, &a, k, str_of(c->avoid), e);
    if (ok) kir_print(out, &safe);
    arena_release(&a);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

static bool build(struct buf *binary, struct str text, const struct caps *c, double timeout,
                  struct err *e)
{
    struct arena a = {0};
    struct kir *k = arena_new(&a, struct kir);
    bool ok = kir_parse(k, &a, text, e);
    arena_release(&a);
    if (ok) buf_str(binary, text);
    return ok && (!binary->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    buf_z(out, "kernel IR 1");
    return !out->failed || err_set(e, ERR_SYSTEM, "out of memory");
}

static struct kir_limits limits(const struct caps *c)
{
    return (struct kir_limits){.max_unroll = 100000};
}

const struct lang lang_kir = {
    .version = 1,
    .name = "kir",
    .suffix = ".kir",
    .print = print,
    .build = build,
    .toolchain = toolchain,
    .limits = limits,
    .shares = true,
};
