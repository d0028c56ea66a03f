// SPDX-License-Identifier: Apache-2.0
//
// Meta files as text for people.
#include "art/meta_file.h"

#include <jansson.h>
#include <stdlib.h>

static void put_tensor(struct buf *b, const char *what, const struct meta_tensor *t)
{
    buf_printf(b, "%s %.*s: %s[", what, STR_ARG(t->name), dtype_name(t->dtype));
    for (u32 d = 0; d < t->rank; d++) buf_printf(b, "%s%.*s", d ? "," : "", STR_ARG(t->dim[d]));
    buf_char(b, ']');
    if (t->origin.n && !str_eq(t->origin, t->name)) buf_printf(b, ", '%.*s' in the network", STR_ARG(t->origin));
    buf_char(b, '\n');
}

static void put_names(struct buf *b, const char *what, const struct str *v, u32 n)
{
    if (!n) return;
    buf_printf(b, "  %s:", what);
    for (u32 i = 0; i < n; i++) buf_printf(b, " %.*s", STR_ARG(v[i]));
    buf_char(b, '\n');
}

static void put_tensors(struct buf *b, const char *what, const struct meta_model *m, const u32 *v, u32 n)
{
    if (!n) return;
    buf_printf(b, "  %s:", what);
    for (u32 i = 0; i < n; i++) buf_printf(b, " %.*s", STR_ARG(m->tensor.v[v[i]].name));
    buf_char(b, '\n');
}

static void put_digest(struct buf *b, const u8 *digest)
{
    for (int i = 0; i < 8; i++) buf_printf(b, "%02x", digest[i]);
}

static void put_subgraph(struct buf *b, const struct meta_model *m, const struct meta_subgraph *s)
{
    buf_printf(b, "\n%.*s: device %.*s, %.*s", STR_ARG(s->name), STR_ARG(s->device), STR_ARG(s->framework));
    if (s->target.n) buf_printf(b, ", for %.*s", STR_ARG(s->target));
    if (s->seconds > 0) buf_printf(b, ", %.6f ms expected", s->seconds * 1e3);
    buf_char(b, '\n');
    if (s->missing.n) buf_printf(b, "  NOT COMPLETE: %.*s\n", STR_ARG(s->missing));
    put_names(b, "operators", s->op.v, s->op.n);
    put_tensors(b, "inputs", m, s->in.v, s->in.n);
    put_tensors(b, "outputs", m, s->out.v, s->out.n);
    if (s->after.n) buf_z(b, "  after:");
    for (u32 i = 0; i < s->after.n; i++) buf_printf(b, " %.*s%s", STR_ARG(m->subgraph.v[s->after.v[i]].name), i + 1 == s->after.n ? "\n" : "");
    for (u32 i = 0; i < s->file.n; i++) {
        const struct meta_file *f = &s->file.v[i];
        buf_printf(b, "  %-11s %12lld bytes  ", meta_role_name(f->role), (long long)f->size);
        put_digest(b, f->digest);
        buf_printf(b, "  %.*s\n", STR_ARG(f->path));
    }
}

void meta_print_model(struct buf *b, const struct meta_model *m)
{
    buf_printf(b, "deployment '%.*s': %u sub-graphs, %u tensors\n", STR_ARG(m->name), m->subgraph.n, m->tensor.n);
    for (u32 k = 0; k < m->input.n; k++) put_tensor(b, "input", &m->tensor.v[m->input.v[k]]);
    for (u32 k = 0; k < m->output.n; k++) put_tensor(b, "output", &m->tensor.v[m->output.v[k]]);
    for (u32 k = 0; k < m->subgraph.n; k++) put_subgraph(b, m, &m->subgraph.v[k]);
}

static void put_file(struct buf *b, const char *what, size_t k, const Quern__File *f)
{
    buf_printf(b, "%s%zu: %s, %llu bytes\n", what, k, f->path, (unsigned long long)f->size);
}

/* The plan as indented JSON, or as it is. */
static void put_plan(struct buf *b, const char *text)
{
    json_t *j = json_loads(text, 0, NULL);
    char *pretty = j ? json_dumps(j, JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17)) : NULL;
    buf_z(b, pretty ? pretty : text);
    buf_char(b, '\n');
    free(pretty); /* made by jansson */
    json_decref(j);
}

bool meta_print_program(struct buf *b, struct str bytes, struct err *e)
{
    struct arena a = {0};
    const Quern__Program *x = meta_unwrap(&quern__program__descriptor, meta_program_kind, &a, bytes, e);
    if (x) {
        buf_z(b, "program of a sub-graph\n");
        for (size_t i = 0; i < x->n_code; i++) put_file(b, "code.", i, x->code[i]);
        if (x->weights) put_file(b, "weights ", 0, x->weights);
        for (size_t i = 0; i < x->n_constant; i++)
            buf_printf(b, "const.%zu: %llu bytes at %llu\n", i, (unsigned long long)x->constant[i]->size, (unsigned long long)x->constant[i]->offset);
        put_plan(b, x->plan);
    }
    arena_release(&a);
    return x != NULL;
}
