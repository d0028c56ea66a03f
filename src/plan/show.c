// SPDX-License-Identifier: Apache-2.0
//
// Plans as readable text: the content of an artifact, and the selector's reasons, which explain.c
// wrote as JSON.
#include "plan/plan.h"

#include "core/spirv.h"

#include <jansson.h>

static void put_syms(struct buf *b, const struct plan *p, const sym *s, u32 n, const char *sep)
{
    for (u32 i = 0; i < n; i++) {
        if (i) buf_z(b, sep);
        sym_print(b, &p->sym, s[i]);
    }
}

static void put_ios(struct buf *b, const struct plan *p, const char *what, const struct plan_io *io,
                    u32 n)
{
    for (u32 i = 0; i < n; i++) {
        buf_printf(b, "%s %.*s %s [", what, STR_ARG(io[i].name), dtype_name(io[i].dtype));
        put_syms(b, p, io[i].dim, io[i].rank, ", ");
        buf_char(b, ']');
        if (io[i].layout.n) buf_printf(b, " %.*s", STR_ARG(io[i].layout));
        buf_char(b, '\n');
    }
}

static void put_facts(struct buf *b, const struct symtab *t)
{
    for (u32 i = 0; i < t->fact.n; i++) {
        buf_printf(b, "%.*s needs ", STR_ARG(t->fact.v[i].origin));
        sym_fact_print(b, t, &t->fact.v[i]);
        buf_char(b, '\n');
    }
}

/* The plans of a loop or branch, without details of kernels. */
static void put_call(struct buf *b, const struct plan *p, u32 i)
{
    const struct plan_dispatch *d = &p->dispatch.v[i];
    const struct plan_call *c = d->call;
    buf_printf(b, "%3u %s  %.*s", i, c->is_loop ? "loop" : "branch", STR_ARG(d->label));
    if (c->is_loop) buf_z(b, c->is_conditional || c->cond != UINT32_MAX ? "  while a condition holds, at most " : "  iterations: ");
    if (c->is_loop) sym_print(b, &p->sym, c->trip_count);
    for (u32 k = 0; k < c->n_sub; k++) buf_printf(b, "%s%u dispatches", k ? " or " : "  of ", c->sub[k]->dispatch.n);
    buf_char(b, '\n');
}

/* The kinds of code in an artifact, and their consequences for users. */
enum code_kind { CODE_X86_64, CODE_X86, CODE_AARCH64, CODE_ARM, CODE_NATIVE, CODE_CUBIN, CODE_PTX, CODE_HIP, CODE_SPIRV, CODE_TEXT, CODE_KIR, CODE_OTHER, N_CODE_KINDS };

static enum code_kind kind_of_elf(struct str code)
{
    enum { MACHINE = 18, X86 = 3, ARM = 40, X86_64 = 62, AARCH64 = 183, CUDA = 190, AMDGPU = 224 };
    if (code.n < MACHINE + 2) return CODE_NATIVE;
    switch ((u8)code.p[MACHINE] | (u8)code.p[MACHINE + 1] << 8) {
    case X86_64: return CODE_X86_64;
    case X86: return CODE_X86;
    case AARCH64: return CODE_AARCH64;
    case ARM: return CODE_ARM;
    case CUDA: return CODE_CUBIN;
    case AMDGPU: return CODE_HIP;
    default: return CODE_NATIVE;
    }
}

/* Detected by the content, and by how the language's driver treats it. */
static enum code_kind kind_of_code(const struct plan_bin *b)
{
    if (spirv_is_module(b->code)) return CODE_SPIRV;
    if (str_starts(b->code, S("\x7f" "ELF"))) return kind_of_elf(b->code);
    if (str_is(b->lang, "c")) return CODE_NATIVE;
    if (str_is(b->lang, "hip")) return CODE_HIP;
    if (str_is(b->lang, "cuda")) return CODE_PTX;
    if (str_is(b->lang, "opencl")) return CODE_TEXT;
    return str_is(b->lang, "kir") ? CODE_KIR : CODE_OTHER;
}

static void count_code(const struct plan *p, i64 n[N_CODE_KINDS], i64 bytes[N_CODE_KINDS])
{
    for (u32 i = 0; i < p->bin.n; i++) {
        enum code_kind k = kind_of_code(&p->bin.v[i]);
        n[k]++, bytes[k] += p->bin.v[i].code.n;
    }
    for (u32 i = 0; i < p->dispatch.n; i++)
        for (u32 s = 0; p->dispatch.v[i].call && s < p->dispatch.v[i].call->n_sub; s++) count_code(p->dispatch.v[i].call->sub[s], n, bytes);
}

static void put_code(struct buf *b, const struct plan *p)
{
    static const char *const name[N_CODE_KINDS] = {
        "native x86-64: runs with the user's rights", "native x86 of 32 bits: runs with the user's rights",
        "native aarch64: runs with the user's rights", "native ARM of 32 bits: runs with the user's rights", "native: runs with the user's rights",
        "native NVIDIA (cubin): runs on the GPU", "PTX: compiled by the driver, runs on the GPU", "native AMD (HIP code object): runs on the GPU",
        "SPIR-V: compiled by the driver, runs on the GPU", "OpenCL C: compiled by the driver, runs on its device",
        "kernel IR: interpreted", "of a language not known here",
    };
    i64 n[N_CODE_KINDS] = {0}, bytes[N_CODE_KINDS] = {0};
    count_code(p, n, bytes);
    for (int k = 0; k < N_CODE_KINDS; k++)
        if (n[k]) buf_printf(b, "code %s, %lld %s, %lld bytes\n", name[k], (long long)n[k], n[k] == 1 ? "binary" : "binaries", (long long)bytes[k]);
}

/* The instruction set of native code as a level; unknown words are printed unchanged. */
static void put_isa(struct buf *b, const struct plan *p)
{
    struct isa s;
    struct err unknown = {0};
    if (isa_parse(&s, p->isa, &unknown)) isa_print(b, s, '+');
    else buf_str(b, p->isa);
}

/* Caches, those in place and those whose pairs are told by their names. */
static void put_states(struct buf *b, const struct plan *p)
{
    struct arena a = {0};
    struct plan_state *v = arena_array(&a, struct plan_state, p->input.n + 1);
    for (u32 k = 0, n = plan_find_states(p, v); k < n; k++)
        buf_printf(b, "cache %.*s -> %.*s%s\n", STR_ARG(p->input.v[v[k].input].name), STR_ARG(p->output.v[v[k].output].name), plan_is_in_place(p, &v[k]) ? ", in place" : "");
    arena_release(&a);
}

static void put_plan(struct buf *b, const struct plan *p)
{
    i64 consts = 0, code = 0;
    for (u32 i = 0; i < p->buf.n; i++)
        consts += p->buf.v[i].kind == PB_CONST ? p->buf.v[i].data_size : 0;
    for (u32 i = 0; i < p->bin.n; i++) code += p->bin.v[i].code.n;
    buf_printf(b, "program %.*s\ntarget %.*s\n", STR_ARG(p->model), STR_ARG(p->caps));
    if (p->isa.n) {
        buf_z(b, "instruction set ");
        put_isa(b, p);
        buf_char(b, '\n');
    }
    if (p->fingerprint.n) buf_printf(b, "measured on %.*s\n", STR_ARG(p->fingerprint));
    put_ios(b, p, "input", p->input.v, p->input.n);
    put_ios(b, p, "output", p->output.v, p->output.n);
    put_states(b, p);
    put_facts(b, &p->sym);
    put_code(b, p);
    buf_printf(b, "%u dispatches, %u binaries (%lld bytes), constants %lld bytes\n", p->dispatch.n,
               p->bin.n, (long long)code, (long long)consts);
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        if (d->call) {
            put_call(b, p, i);
            continue;
        }
        buf_printf(b, "%3u %.*s  [%.*s]  %.*s  grid ", i, STR_ARG(d->entry), STR_ARG(d->candidate),
                   STR_ARG(d->label));
        for (u32 g = 0; g < d->n_grid; g++) {
            if (g) buf_z(b, " then ");
            put_syms(b, p, d->grid[g].extent, 3, " x ");
        }
        buf_printf(b, "  binary %u, %lld bytes\n", d->bin, (long long)p->bin.v[d->bin].code.n);
    }
}

void plan_show_variant(struct buf *b, const struct plan *p, u32 k)
{
    buf_printf(b, "%svariant %u, ", k ? "\n" : "", k);
    put_isa(b, p);
    buf_char(b, '\n');
}

void plan_show(struct buf *b, const struct plan *p)
{
    bool several = p->also != NULL;
    for (u32 k = 0; p; p = p->also, k++) {
        if (several) plan_show_variant(b, p, k);
        put_plan(b, p);
    }
}

/* The selector's reasons. */

/* A concatenation in place: no dispatch. */
static bool is_joined(const json_t *r) { return json_is_true(json_object_get(r, "joined")); }

/* ", exact (1x20x37x43)", ", by tolerance: conversion to integers (1x8x18x18)" */
static void put_proof(struct buf *b, const json_t *p)
{
    const char *verdict = json_string_value(json_object_get(p, "verdict")), *why = json_string_value(json_object_get(p, "why")),
               *sizes = json_string_value(json_object_get(p, "sizes"));
    if (!verdict) return;
    buf_printf(b, ", %s", verdict);
    if (why) buf_printf(b, ": %s", why);
    if (sizes && *sizes) buf_printf(b, " (%s)", sizes);
}

static void put_ms(struct buf *b, const json_t *r)
{
    const json_t *s = json_object_get(r, "seconds");
    if (is_joined(r)) {
        buf_z(b, "in memory, nothing to do");
        return;
    }
    if (!json_is_number(s)) {
        buf_z(b, "no kernel can do it");
        return;
    }
    buf_printf(b, "%.4f ms %s", json_number_value(s) * 1e3,
               json_is_true(json_object_get(r, "measured")) ? "measured" : "predicted");
    json_int_t n = json_integer_value(json_object_get(r, "trials"));
    if (n > 0) buf_printf(b, ", best of %lld", (long long)n);
    const char *k = json_string_value(json_object_get(r, "kernel"));
    if (k) buf_printf(b, ", %s", k);
    put_proof(b, json_object_get(r, "proof"));
}

static void put_region(struct buf *b, const json_t *r)
{
    const json_t *nodes = json_object_get(r, "nodes"), *ops = json_object_get(r, "ops"),
                 *in = json_object_get(r, "in");
    if (json_array_size(nodes) == 0) buf_z(b, "copy");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const char *name = json_string_value(json_array_get(nodes, i)),
                   *op = json_string_value(json_array_get(ops, i));
        buf_printf(b, "%s%s(%s)", i ? " + " : "", name ? name : "", op ? op : "");
    }
    const char *out = json_string_value(json_object_get(r, "out"));
    buf_z(b, " ");
    for (size_t i = 0; i < json_array_size(in); i++) {
        const char *l = json_string_value(json_array_get(in, i));
        buf_printf(b, "%s%s", i ? "," : "", l ? l : "");
    }
    buf_printf(b, "->%s: ", out ? out : "");
    put_ms(b, r);
    buf_char(b, '\n');
}

static void put_unfused(struct buf *b, const json_t *u)
{
    const json_t *list = json_object_get(u, "dispatches");
    if (!json_array_size(list)) return;
    buf_printf(b, "a kernel for each operator: %.3f ms in %zu dispatches\n",
               json_number_value(json_object_get(u, "seconds")) * 1e3, json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        buf_z(b, "      ");
        put_region(b, json_array_get(list, i));
    }
}

static void put_explain(struct buf *b, const json_t *j)
{
    const json_t *list = json_object_get(j, "dispatches"), *sizes = json_object_get(j, "sizes"), *v;
    const char *name;
    buf_printf(b, "total %.3f ms, choice %s",
               json_number_value(json_object_get(j, "seconds")) * 1e3,
               json_is_true(json_object_get(j, "exact")) ? "exact" : "bounded");
    json_object_foreach((json_t *)(uintptr_t)sizes, name, v)
        buf_printf(b, ", %s=%lld", name, (long long)json_integer_value(v));
    buf_char(b, '\n');
    for (size_t i = 0, n = 0; i < json_array_size(list); i++) {
        const json_t *d = json_array_get(list, i), *other = json_object_get(d, "alternatives"),
                     *chosen = json_object_get(d, "chosen");
        if (!other) other = json_object_get(d, "rivals"); /* of older artifacts */
        if (is_joined(chosen)) buf_z(b, "  - ");
        else buf_printf(b, "%3zu ", n++);
        put_region(b, chosen);
        for (size_t k = 0; k < json_array_size(other); k++) {
            buf_z(b, "      not ");
            put_region(b, json_array_get(other, k));
        }
    }
    put_unfused(b, json_object_get(j, "unfused"));
}

bool plan_show_reasons(struct buf *b, const struct plan *p)
{
    json_error_t je;
    json_t *j = p->explain.n ? json_loadb(p->explain.p, (size_t)p->explain.n, 0, &je) : NULL;
    if (j) put_explain(b, j);
    json_decref(j);
    return j != NULL;
}

