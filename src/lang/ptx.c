// SPDX-License-Identifier: Apache-2.0
//
// ptx.c: the language ptx, PTX ISA text written from kernel IR without a compiler of C++, assembled to a cubin
// (lang_ptxas.c). Semantics, calling convention and limits are those of language cuda (doc/lang-gpu.md), which is
// the one to read and to ship as source; this one is built many times faster. doc/lang-ptx.md
#include "lang/lang_ptx.h"

enum { REVISION = 1 /* incremented when the same kernel yields another text */ };

static bool has_fragments(struct gpu_place *p, const struct kir_frag *f, u32 warpgroup) { return true; }

static const struct gpu_words words = {.lanes = 32, .place = has_fragments, .has_tiles = true, .warpgroup = 4};
static const struct text_style style = {.index = DT_I32};

static i64 version_of(struct str arch) /* 90 of sm_90a; 0: none */
{
    i64 v;
    if (!str_starts(arch, S("sm_"))) return 0;
    arch = str_sub(arch, 3, arch.n);
    while (arch.n && (arch.p[arch.n - 1] < '0' || arch.p[arch.n - 1] > '9')) arch.n--;
    return str_to_i64(arch, &v) ? v : 0;
}

/* The oldest version of the ISA that has the architecture and all instructions used, so that older drivers accept it. */
static const char *ptx_version(i64 arch) { return arch > 100 ? "8.7" : arch == 100 ? "8.6" : "8.0"; }

static bool print(struct buf *out, const struct kir *in, const struct caps *c, struct err *e)
{
    struct arena a = {0};
    struct err err = {0};
    struct kir k;
    if (!gpu_check(in, c, &words, e)) return false;
    bool ok = kir_lower(&k, &a, in, gpu_wants_all, NULL, str_of(c->avoid), e);
    if (ok) {
        struct text facts = {.style = &style, .caps = c, .arena = &a, .err = &err};
        struct ptx s = {.k = &k, .caps = c, .arena = &a, .err = &err, .facts = &facts, .arch = version_of(str_of(c->arch))};
        text_open(&facts, &k);
        gpu_warpgroup_open(&facts);
        buf_printf(out, "// %.*s\n.version %s\n.target %s\n.address_size 64\n", STR_ARG(k.name), ptx_version(s.arch), c->arch);
        ptx_kernel(&s, out);
        text_close(&facts);
        ok = !err.code || err_set(e, err.code, "%s", err.msg);
    }
    arena_release(&a);
    return ok;
}

static bool toolchain(struct buf *out, const struct caps *c, struct err *e)
{
    buf_printf(out, "ptx %d, ", REVISION);
    return ptxas_toolchain(out, e) && (!out->failed || err_set(e, ERR_SYSTEM, "out of memory"));
}

const struct lang lang_ptx = {
    .version = 1,
    .name = "ptx",
    .runs_as = "cuda",
    .suffix = ".ptx",
    .print = print,
    .build = ptxas_build,
    .toolchain = toolchain,
    .limits = gpu_limits,
};
