// SPDX-License-Identifier: Apache-2.0
//
// Inspection: devices, files of any kind, kernel names, the selector's reasons. Declared and
// documented in include/quern.h.
#include "api/api_model.h"

#include "art/meta.h"
#include "core/spirv.h"
#include "import/import.h"
#include "lab/lab.h"
#include "tune/rates.h"

#include <stdio.h>
#include <string.h>

void quern_text_free(char *text) { mem_free(text); }

/* Devices. */

static void put_text(struct buf *b, const char *key, struct str text)
{
    buf_printf(b, ",\"%s\":", key);
    buf_json_str(b, text);
}

static void put_device(struct buf *b, const struct dev_info *x)
{
    struct buf caps = {0}, rates = {0};
    struct rates known = x->caps.rates;
    bool is_known = dev_is_described(&x->opts) || rates_find(&known, x->driver, x->fingerprint);
    caps_print(&caps, &x->caps);
    buf_printf(b, "{\"name\":\"%s\",\"language\":\"%s\"", x->driver->name, x->driver->lang);
    put_text(b, "device", x->name);
    if (dev_is_described(&x->opts)) buf_z(b, ",\"described\":true");
    if (x->trouble.n) put_text(b, "trouble", x->trouble);
    put_text(b, "fingerprint", x->fingerprint);
    put_text(b, "caps", buf_view(&caps));
    if (is_known) rates_print(&rates, &known); /* nothing of a described architecture, which has none */
    if (rates.n) put_text(b, "rates", buf_view(&rates));
    buf_char(b, '}');
    buf_release(&caps);
    buf_release(&rates);
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

static bool test_conformance(const char *device, struct buf *b, struct arena *a, struct err *e)
{
    struct api_target t;
    struct conformance x = {0};
    bool ok = api_target_choose(&t, device, 0, NULL, e) && dev_ask(t.driver, &t.dev, &t.caps, &t.fingerprint, e);
    t.lang = ok ? lang_for(str_of(t.driver->lang), e) : NULL;
    ok = t.lang && t.lang->toolchain(&t.toolchain, &t.caps, e) && api_target_test(&x, &t, true, a, e);
    if (ok) {
        buf_printf(b, "%s, %.*s: %u operations", t.driver->name, STR_ARG(buf_view(&t.fingerprint)), x.n_cases);
        if (!x.is_known) buf_printf(b, " in %.1f s", x.seconds);
        buf_printf(b, x.found.n ? ", %u failed:\n" : ", all passed\n", x.found.n);
        conform_report(b, &x);
    }
    api_target_close(&t);
    return ok;
}

quern_status quern_test_conformance(quern *q, const char *device, char **text)
{
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct buf b = {0};
    bool ok = test_conformance(device, &b, &a, e);
    *text = NULL;
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    arena_release(&a);
    return api_end(q, ok);
}

static void put_rate(struct buf *b, const char *name, struct rate r, const char *unit)
{
    if (r.all > 0) buf_printf(b, "  %-14s %9.1f %9.1f %s\n", name, r.one * 1e-9, r.all * 1e-9, unit);
}

static void put_table(struct buf *b, const struct rates *r, bool is_gpu)
{
    static const char *const op[] = {"f32", "f64", "dot i8", "dot bf16", "mma f16", "mma bf16", "mma tf32", "mma f32", "mma i8"};
    static const char *const level[] = {"L1", "L2", "L3", "DRAM"};
    buf_printf(b, "  %-14s %9s %9s\n", "", is_gpu ? "1 group" : "1 thread", "all");
    for (u32 i = 0; i < N_RATE_OPS; i++) put_rate(b, op[i], r->ops[i], i == RATE_DOT_I8 || i == RATE_MMA_I8 ? "Gop/s" : "GFLOP/s");
    for (u32 i = 0; i < N_RATE_LEVELS; i++) {
        const struct rate_memory *m = &r->memory[i];
        const struct { const char *name; struct rate r; } access[] = {{"read", m->read}, {"write", m->write}, {"copy", m->copy}};
        for (i64 k = 0; k < countof(access); k++) {
            char name[16];
            snprintf(name, sizeof name, "%s %s", level[i], access[k].name);
            put_rate(b, name, access[k].r, "GB/s");
        }
        if (m->latency > 0) buf_printf(b, "  %s %-*s %9.1f           ns\n", level[i], 13 - (int)strlen(level[i]), "latency", m->latency * 1e9);
    }
    put_rate(b, "DRAM nt write", r->nt_write, "GB/s");
    if (r->launch > 0) buf_printf(b, "  %-14s           %9.2f us\n", "launch", r->launch * 1e6);
    if (r->barrier > 0) buf_printf(b, "  %-14s           %9.2f us\n", "barrier", r->barrier * 1e6);
}

quern_status quern_measure(quern *q, const struct quern_measure_opts *o, char **text)
{
    if (!api_given(q, "text", text)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct quern_measure_opts x = {0};
    struct api_target t;
    struct buf b = {0};
    if (o) memcpy(&x, o, o->size < sizeof x ? o->size : sizeof x);
    bool ok = api_target_open(&t, x.device, x.threads, x.target, e) && api_target_measure(&t, e);
    *text = NULL;
    if (ok) {
        rates_keep(&t.caps.rates, t.driver, buf_view(&t.fingerprint));
        buf_printf(&b, "%s, %.*s:\n", t.driver->name, STR_ARG(buf_view(&t.fingerprint)));
        put_table(&b, &t.caps.rates, t.caps.is_gpu);
        *text = api_text(&b);
    }
    api_target_close(&t);
    return api_end(q, ok);
}

/* Plans. */

/* e: why they could not be read or checked. */
static void put_signers(struct buf *b, quern *q, struct arena *a, const struct dnx_signatures *s, const struct err *e)
{
    struct api_keys keys;
    struct err none = {0};
    if (!s->n) buf_printf(b, "%s\n", e->code ? e->msg : "not signed");
    if (s->n && !api_trusted_keys(q, &keys, a, q->trusted, &none)) keys.n = 0;
    for (u32 k = 0; k < s->n; k++) {
        char id[SIGN_ID_BYTES];
        u32 t = 0;
        sign_key_id(s->v[k].key, id);
        while (t < keys.n && memcmp(keys.v[t].key, s->v[k].key, SIGN_KEY_BYTES) != 0) t++;
        if (e->code) buf_printf(b, "signed by key %s: not checked, %s\n", id, e->msg);
        else if (!s->v[k].is_right) buf_printf(b, "SIGNATURE WRONG, changed after it was signed: key %s\n", id);
        else if (t < keys.n) buf_printf(b, "signed by key %s, trusted as '%.*s'\n", id, STR_ARG(keys.v[t].name));
        else buf_printf(b, "signed by key %s, which is not trusted\n", id);
    }
}

static void put_signatures(struct buf *b, quern *q, struct arena *a, struct str bytes)
{
    struct dnx_signatures s;
    struct err e = {0};
    if (dnx_signatures(&s, bytes, &e)) dnx_check_signatures(&s, bytes, &e);
    put_signers(b, q, a, &s, &e);
}

/* A folder, its model.meta, or a packed file. */
static bool show_deployment(struct buf *b, quern *q, struct arena *a, const char *path, struct err *e)
{
    struct dnx_signatures s;
    struct err unchecked = {0};
    struct api_trust t = {q, q->trusted};
    const struct meta_opts o = {true, q->o.require_signature ? api_check_trust : NULL, &t};
    struct meta_store *x = meta_open(path, &o, e);
    if (!x) return false;
    meta_print_model(b, meta_model_of(x));
    dnx_check_beside(&s, meta_model_bytes(x), meta_signature_bytes(x), &unchecked);
    buf_char(b, '\n');
    put_signers(b, q, a, &s, &unchecked);
    meta_close(x);
    return true;
}

/* Of all variants. */
static bool put_reasons(struct buf *b, const struct plan *first, struct err *e)
{
    u32 k = 0;
    for (const struct plan *v = first; v; v = v->also, k++) {
        if (first->also) plan_show_variant(b, v, k);
        if (!plan_show_reasons(b, v)) return err_set(e, ERR_INPUT, "the artifact holds no reasons");
    }
    return true;
}

quern_status quern_explain(quern *q, const char *dnx, char **text)
{
    if (!api_given(q, "dnx text", dnx, text)) return QUERN_USAGE;
    struct err *e = api_begin(q);
    struct arena a = {0};
    struct os_file f = {0};
    struct plan p;
    struct buf b = {0};
    bool ok = api_artifact_open(q, &f, &p, &a, dnx, NULL, e) && (put_reasons(&b, &p, e) || err_prefix(e, "%s", dnx));
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    os_unmap(&f);
    arena_release(&a);
    return api_end(q, ok);
}

quern_status quern_program_explain(quern_program *p, char **text)
{
    if (!p || !api_given(p->q, "text", text)) return QUERN_USAGE;
    struct err *e = api_begin(p->q);
    struct buf b = {0};
    bool ok = put_reasons(&b, p->all ? p->all : &p->plan, e);
    if (ok) *text = api_text(&b);
    else buf_release(&b);
    return api_end(p->q, ok);
}

/* Any file. */

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

quern_status quern_model_text(quern_model *m, char **text)
{
    if (!m || !api_given(m->q, "text", text)) return QUERN_USAGE;
    struct buf b = {0};
    api_begin(m->q);
    graph_print(&b, &m->model->graph, &(struct graph_text_opts){0});
    *text = api_text(&b);
    return QUERN_OK;
}

/* The declarations of a module, and its text if spirv-dis is installed. */
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
    if (meta_is_store(path)) return show_deployment(b, q, a, path, e);
    if (!api_artifact_load(q, &f, path, NULL, e)) return false;
    struct str bytes = {(const char *)f.p, f.n};
    bool ok;
    if (str_starts(bytes, S("SQLite format 3"))) ok = show_database(b, path, e);
    else if (str_starts(bytes, S("kernel "))) ok = show_kernel(b, a, bytes, e);
    else if (spirv_is_module(bytes)) ok = show_spirv(b, bytes, e);
    else if (meta_is_program(bytes)) ok = meta_print_program(b, bytes, e);
    else if (api_is_dnx(&f)) {
        ok = api_artifact_read(q, &f, &p, a, NULL, e);
        if (ok) plan_show(b, &p), put_signatures(b, q, a, bytes);
    } else {
        os_unmap(&f);
        struct symtab st;
        struct graph g;
        symtab_init(&st, a);
        if (!import_graph(&g, a, &st, path, e)) return false; /* its errors name the file */
        graph_print(b, &g, &(struct graph_text_opts){0});
        return true;
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
