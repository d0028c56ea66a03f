// SPDX-License-Identifier: Apache-2.0
//
// Looking inside: devices, any file and name of a kernel quern knows, the selector's reasons. Declared and documented in
// include/quern.h.
#include "api/api_model.h"

#include "core/spirv.h"
#include "import/import.h"
#include "lab/lab.h"
#include "tune/examine.h"

#include <jansson.h>
#include <string.h>

void quern_text_free(char *text) { mem_free(text); }

/* devices */

static void put_text(struct buf *b, const char *key, struct str text)
{
    buf_printf(b, ",\"%s\":", key);
    buf_json_str(b, text);
}

static void put_device(struct buf *b, const struct dev_info *x)
{
    struct buf caps = {0};
    caps_print(&caps, &x->caps);
    buf_printf(b, "{\"name\":\"%s\",\"language\":\"%s\"", x->driver->name, x->driver->lang);
    put_text(b, "device", x->name);
    if (dev_is_described(&x->opts)) buf_z(b, ",\"described\":true");
    if (x->trouble.n) put_text(b, "trouble", x->trouble);
    put_text(b, "fingerprint", x->fingerprint);
    put_text(b, "caps", buf_view(&caps));
    buf_char(b, '}');
    buf_release(&caps);
}

quern_status quern_devices(quern *q, char **json)
{
    if (!api_given(q, "json", json)) return QUERN_USAGE;
    api_begin(q);
    struct arena a = {0};
    struct buf b = {0};
    struct dev_info *v;
    u32 n = dev_list(&a, &v);
    for (u32 i = 0; i < n; i++) {
        buf_z(&b, i ? ",\n " : "[");
        put_device(&b, &v[i]);
    }
    buf_z(&b, n ? "]" : "[]");
    *json = api_text(&b);
    arena_release(&a);
    return QUERN_OK;
}

static bool examine(const char *device, struct buf *b, struct arena *a, struct err *e)
{
    struct api_target t;
    struct exam x = {0};
    bool ok = api_target_choose(&t, device, 0, NULL, e) && dev_ask(t.driver, &t.dev, &t.caps, &t.fingerprint, e);
    t.lang = ok ? lang_find(str_of(t.driver->lang)) : NULL;
    ok = ok && (t.lang || err_set(e, ERR_FAILED, "device '%s' runs language '%s', which is not built in", t.driver->name, t.driver->lang)) &&
         t.lang->toolchain(&t.toolchain, &t.caps, e) && api_target_examine(&x, &t, true, a, e);
    if (ok) {
        buf_printf(b, "%s, %.*s: %u operations", t.driver->name, STR_ARG(buf_view(&t.fingerprint)), x.n_cases);
        if (!x.is_known) buf_printf(b, " in %.1f s", x.seconds);
        buf_printf(b, x.found.n ? ", %u not as they should be:\n" : ", all as they should be\n", x.found.n);
        exam_report(b, &x);
    }
    api_target_close(&t);
    return ok;
}

quern_status quern_examine(quern *q, const char *device, char **text)
{
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct buf b = {0};
    bool ok = examine(device, &b, &a, e);
    *text = NULL;
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    arena_release(&a);
    return api_end(q, ok);
}

/* plans */

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
        buf_printf(b, "%.*s needs ", STR_ARG(t->fact.v[i].who));
        sym_fact_print(b, t, &t->fact.v[i]);
        buf_char(b, '\n');
    }
}

/* What a loop or branch runs, without the details of its kernels. */
static void put_call(struct buf *b, const struct plan *p, u32 i)
{
    const struct plan_dispatch *d = &p->dispatch.v[i];
    const struct plan_call *c = d->call;
    buf_printf(b, "%3u %s  %.*s", i, c->is_loop ? "loop" : "branch", STR_ARG(d->label));
    if (c->is_loop) buf_z(b, c->is_conditional || c->cond != UINT32_MAX ? "  while a condition holds, at most " : "  rounds: ");
    if (c->is_loop) sym_print(b, &p->sym, c->rounds);
    for (u32 k = 0; k < c->n_sub; k++) buf_printf(b, "%s%u dispatches", k ? " or " : "  of ", c->sub[k]->dispatch.n);
    buf_char(b, '\n');
}

static bool is_spirv(struct str bytes)
{
    u32 word = 0;
    if (bytes.n >= 4) memcpy(&word, bytes.p, 4);
    return word == SPIRV_MAGIC;
}

/* What kinds of code an artifact holds, and what that means for who runs it. */
enum code_kind { CODE_X86_64, CODE_AARCH64, CODE_NATIVE, CODE_CUBIN, CODE_PTX, CODE_HIP, CODE_SPIRV, CODE_TEXT, CODE_KIR, CODE_OTHER, N_CODE_KINDS };

static enum code_kind kind_of_elf(struct str code)
{
    enum { MACHINE = 18, X86_64 = 62, AARCH64 = 183, CUDA = 190, AMDGPU = 224 };
    if (code.n < MACHINE + 2) return CODE_NATIVE;
    switch ((u8)code.p[MACHINE] | (u8)code.p[MACHINE + 1] << 8) {
    case X86_64: return CODE_X86_64;
    case AARCH64: return CODE_AARCH64;
    case CUDA: return CODE_CUBIN;
    case AMDGPU: return CODE_HIP;
    default: return CODE_NATIVE;
    }
}

/* By the content, and by what the language's driver does with it. */
static enum code_kind kind_of_code(const struct plan_bin *b)
{
    if (is_spirv(b->code)) return CODE_SPIRV;
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
        "native x86-64: runs with the user's rights", "native aarch64: runs with the user's rights", "native: runs with the user's rights",
        "native NVIDIA (cubin): runs on the GPU", "PTX: compiled by the driver, runs on the GPU", "native AMD (HIP code object): runs on the GPU",
        "SPIR-V: compiled by the driver, runs on the GPU", "OpenCL C: compiled by the driver, runs on its device",
        "kernel IR: interpreted", "of a language not known here",
    };
    i64 n[N_CODE_KINDS] = {0}, bytes[N_CODE_KINDS] = {0};
    count_code(p, n, bytes);
    for (int k = 0; k < N_CODE_KINDS; k++)
        if (n[k]) buf_printf(b, "code %s, %lld %s, %lld bytes\n", name[k], (long long)n[k], n[k] == 1 ? "binary" : "binaries", (long long)bytes[k]);
}

static void put_signatures(struct buf *b, quern *q, struct arena *a, struct str bytes)
{
    struct dnx_signatures s;
    struct api_keys keys;
    struct err e = {0}, none = {0};
    if (!dnx_signatures(&s, bytes, &e) || !s.n) buf_printf(b, "%s\n", e.code ? e.msg : "not signed");
    bool is_known = s.n && dnx_check_signatures(&s, bytes, &e);
    if (s.n && !api_trusted_keys(q, &keys, a, q->trusted, &none)) keys.n = 0;
    for (u32 k = 0; k < s.n; k++) {
        char id[SIGN_ID_BYTES];
        u32 t = 0;
        sign_key_id(s.v[k].key, id);
        while (t < keys.n && memcmp(keys.v[t].key, s.v[k].key, SIGN_KEY_BYTES) != 0) t++;
        if (!is_known) buf_printf(b, "signed by key %s: not checked, %s\n", id, e.msg);
        else if (!s.v[k].is_right) buf_printf(b, "SIGNATURE WRONG, changed after it was signed: key %s\n", id);
        else if (t < keys.n) buf_printf(b, "signed by key %s, trusted as '%.*s'\n", id, STR_ARG(keys.v[t].name));
        else buf_printf(b, "signed by key %s, which is not trusted\n", id);
    }
}

/* The instruction set of native code, by its level; words that this version does not know as they are. */
static void put_isa(struct buf *b, const struct plan *p)
{
    struct isa s;
    struct err unknown = {0};
    if (isa_parse(&s, p->isa, &unknown)) isa_print(b, s, '+');
    else buf_str(b, p->isa);
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

static void put_variant(struct buf *b, const struct plan *p, u32 k)
{
    buf_printf(b, "%svariant %u, ", k ? "\n" : "", k);
    put_isa(b, p);
    buf_char(b, '\n');
}

static void put_plans(struct buf *b, const struct plan *p)
{
    bool several = p->also != NULL;
    for (u32 k = 0; p; p = p->also, k++) {
        if (several) put_variant(b, p, k);
        put_plan(b, p);
    }
}

/* the selector's reasons */

/* A concatenation in memory: no dispatch. */
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
        const json_t *d = json_array_get(list, i), *rivals = json_object_get(d, "rivals"),
                     *chosen = json_object_get(d, "chosen");
        if (is_joined(chosen)) buf_z(b, "  - ");
        else buf_printf(b, "%3zu ", n++);
        put_region(b, chosen);
        for (size_t k = 0; k < json_array_size(rivals); k++) {
            buf_z(b, "      not ");
            put_region(b, json_array_get(rivals, k));
        }
    }
    put_unfused(b, json_object_get(j, "unfused"));
}

static bool put_reasons(struct buf *b, const struct plan *p)
{
    json_error_t je;
    json_t *j = p->explain.n ? json_loadb(p->explain.p, (size_t)p->explain.n, 0, &je) : NULL;
    if (j) put_explain(b, j);
    json_decref(j);
    return j != NULL;
}

quern_status quern_explain(quern *q, const char *dnx, char **text)
{
    if (!api_given(q, "dnx text", dnx, text)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct os_file f = {0};
    struct plan p;
    struct buf b = {0};
    bool ok = api_artifact_open(q, &f, &p, &a, dnx, NULL, e);
    u32 k = 0;
    for (const struct plan *v = &p; v && ok; v = v->also, k++) {
        if (p.also) put_variant(&b, v, k);
        ok = put_reasons(&b, v) || err_set(e, ERR_INPUT, "%s: the artifact holds no reasons", dnx);
    }
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    os_unmap(&f);
    arena_release(&a);
    return api_end(q, ok);
}

/* any file */

static bool show_database(struct buf *b, const char *path, struct err *e)
{
    struct db d;
    if (!db_open(&d, path, e)) return false;
    bool ok = db_stats(&d, b, e);
    if (ok) buf_char(b, '\n');
    db_close(&d);
    return ok;
}

static bool show_kernel(struct buf *b, struct arena *a, struct str text, struct err *e)
{
    struct kir k;
    if (!kir_parse(&k, a, text, e) || !kir_verify(&k, e)) return false;
    kir_print(b, &k);
    return true;
}

static bool show_model(struct buf *b, struct arena *a, const char *path, struct err *e)
{
    struct symtab st;
    struct graph g;
    symtab_init(&st, a);
    if (!import_graph(&g, a, &st, path, e)) return false;
    graph_print(b, &g, &(struct graph_text_opts){0});
    return true;
}

quern_status quern_model_text(quern_model *m, char **text)
{
    if (!m || !api_given(m->q, "text", text)) return QUERN_USAGE;
    struct buf b = {0};
    api_begin(m->q);
    graph_print(&b, &m->graph, &(struct graph_text_opts){0});
    *text = api_text(&b);
    return QUERN_OK;
}

/* What a module declares, and its text where the tool for that is installed. */
static bool show_spirv(struct buf *b, struct str module, struct err *e)
{
    struct spirv_info info;
    struct err missing = {0};
    if (!spirv_read_info(&info, module, e)) return false;
    buf_printf(b,
               "SPIR-V %u.%u, %lld bytes, %u bindings, %lld bytes of push constants, %lld shared",
               info.version / 10, info.version % 10, (long long)module.n, info.n_binding,
               (long long)info.push_bytes, (long long)info.shared_bytes);
    if (info.subgroup) buf_printf(b, ", subgroups of %u", info.subgroup);
    buf_char(b, '\n');
    for (u32 k = 0; k < info.n_entry; k++) {
        const struct spirv_entry *x = &info.entry[k];
        buf_printf(b, "kernel %.*s, groups of %u x %u x %u\n", STR_ARG(x->name), x->local[0],
                   x->local[1], x->local[2]);
    }
    for (u32 k = 0; k < info.n_extension; k++)
        buf_printf(b, "extension %.*s\n", STR_ARG(info.extension[k]));
    const struct lang *l = lang_find(S("spirv"));
    if (l && !l->disassemble(b, module, &missing)) buf_printf(b, "; %s\n", missing.msg);
    return true;
}

static bool show_name(struct buf *b, struct str name, struct err *e)
{
    struct lab_config c;
    if (!lab_name_parse(&c, name, e)) return false;
    lab_explain(b, &c);
    return true;
}

static bool show(quern *q, struct buf *b, struct arena *a, const char *path, struct err *e)
{
    struct os_file f;
    struct plan p;
    if (!api_artifact_load(q, &f, path, NULL, e)) return false;
    struct str bytes = {(const char *)f.p, f.n};
    bool ok;
    if (str_starts(bytes, S("SQLite format 3"))) ok = show_database(b, path, e);
    else if (str_starts(bytes, S("kernel "))) ok = show_kernel(b, a, bytes, e);
    else if (is_spirv(bytes)) ok = show_spirv(b, bytes, e);
    else if (api_is_dnx(&f)) {
        ok = api_artifact_read(q, &f, &p, a, NULL, e);
        if (ok) put_plans(b, &p), put_signatures(b, q, a, bytes);
    } else {
        os_unmap(&f);
        return show_model(b, a, path, e); /* names the file itself */
    }
    os_unmap(&f);
    return ok || err_prefix(e, "'%s'", path);
}

quern_status quern_show(quern *q, const char *path, char **text)
{
    if (!api_given(q, "path text", path, text)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct buf b = {0};
    bool ok = lab_is_name(str_of(path)) ? show_name(&b, str_of(path), e) : show(q, &b, &a, path, e);
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    arena_release(&a);
    return api_end(q, ok);
}
