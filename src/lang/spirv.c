// SPDX-License-Identifier: Apache-2.0
//
// spirv.c: the language spirv. Its text is kernel IR, legalised for the target; building
// it writes the words of a SPIR-V module directly, without another compiler. The same
// text and target yield the same words. doc/lang-spirv.md describes the module interface.
#include "lang/lang_spirv.h"

enum { REVISION = 6 }; /* incremented when the same text yields other words */

/* Vulkan's functions are inaccurate or missing. */
static bool wants_all(const void *user, const struct kir *k, kval v) { return true; }

static bool print(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    struct arena a = {0};
    struct kir safe;
    bool ok = kir_lower(&safe, &a, k, wants_all, NULL, str_of(c->avoid), e);
    if (ok) kir_print(out, &safe);
    arena_release(&a);
    return ok && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

static bool has_fragments(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->role) return true;
    return false;
}

static bool has_panels(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->op == KI_FLOAD && kir_at(k, v)->d) return true;
    return false;
}

static bool has_own(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_is_own(k, kir_at(k, v))) return true;
    return false;
}

static bool check(const struct kir *k, const struct caps *c, struct err *e)
{
    u32 n = kir_threads(k), version = c->spirv;
    if (c->max_group && n > c->max_group)
        return err_set(e, ERR_UNSUPPORTED,
                       "kernel '%.*s' has workgroups of %u threads, the target supports at most %u",
                       STR_ARG(k->name), n, c->max_group);
    if (has_fragments(k) && version < 13)
        return err_set(e, ERR_UNSUPPORTED, "kernel '%.*s' has fragments, which spir-v 1.%u lacks",
                       STR_ARG(k->name), version % 10);
    if (kir_warpgroup(k) > 1)
        return err_set(e, ERR_UNSUPPORTED, "fragments of warpgroups in kernel '%.*s'", STR_ARG(k->name));
    if (has_panels(k)) return err_set(e, ERR_UNSUPPORTED, "a fragment in panels in kernel '%.*s'", STR_ARG(k->name));
    if (has_own(k)) return err_set(e, ERR_UNSUPPORTED, "a thread's elements of fragments in kernel '%.*s'", STR_ARG(k->name));
    if (kir_has_op(k, KI_TILE)) return err_set(e, ERR_UNSUPPORTED, "kernel '%.*s' has tile copies, which the target lacks", STR_ARG(k->name));
    if (kir_has_op(k, KI_DOT) || kir_has_op(k, KI_MMLA)) /* print expands them */
        return err_set(e, ERR_UNSUPPORTED, "'dot' in kernel '%.*s'", STR_ARG(k->name));
    return true;
}

static void release(struct spv *s)
{
    struct buf *const all[] = {&s->capabilities, &s->extensions, &s->entries,     &s->modes,
                               &s->strings,      &s->names,      &s->decorations, &s->globals,
                               &s->functions,    &s->vars,       &s->prologue,    &s->code};
    for (i64 i = 0; i < countof(all); i++) buf_release(all[i]);
}

static void preamble(struct spv *s)
{
    spv_need(s, SPV_CAP_SHADER);
    if (s->is_vulkan) spv_need(s, SPV_CAP_VULKAN_MEMORY);
    spv_debug_open(s);
    if (!s->k->subgroup) return;
    u32 id = spv_id(s);
    spv_put_text(&s->strings, SPV_STRING, &id, 1,
                 str_fmt(s->arena, "quern subgroup=%u", s->k->subgroup), NULL, 0);
}

static bool write_module(struct buf *out, const struct kir *k, const struct caps *c, struct err *e)
{
    struct arena a = {0};
    struct err why = {0};
    struct spv s = {.k = k,
                    .caps = c,
                    .arena = &a,
                    .err = &why,
                    .version = c->spirv ? c->spirv : 10,
                    .is_vulkan = has_fragments(k)};
    map_init(&s.known, &a);
    preamble(&s);
    spv_kernel(&s);
    bool ok = !why.code && spv_assemble(&s, out);
    release(&s);
    arena_release(&a);
    return ok || err_set(e, why.code, "%s", why.msg);
}

static bool build(struct buf *binary, struct str text, const struct caps *c, double timeout,
                  struct err *e)
{
    struct arena a = {0};
    struct kir *k = arena_new(&a, struct kir);
    bool ok = kir_parse(k, &a, text, e) && check(k, c, e) && write_module(binary, k, c, e) &&
              (!spv_has_flag(c, "optimize") || spv_optimize(binary, timeout, e));
    arena_release(&a);
    return ok;
}

static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    buf_printf(out, "spir-v %d", REVISION);
    return !out->failed || err_set(e, ERR_SYSTEM, "out of memory");
}

/* Vectors are scalarised anyway; wide ones show which accesses are contiguous. */
static struct kir_limits limits(const struct caps *c)
{
    return (struct kir_limits){.max_unroll = 20000};
}

const struct lang lang_spirv = {
    .version = 1,
    .name = "spirv",
    .suffix = ".kir",
    .print = print,
    .build = build,
    .toolchain = toolchain,
    .builds_itself = true,
    .limits = limits,
    .disassemble = spv_disassemble,
};
