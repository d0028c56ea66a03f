// SPDX-License-Identifier: Apache-2.0
//
// The program as C tables: expressions of sizes, buffers, kernels and steps, in the types that
// vulkan_c.c.in declares; modules and weights as arrays.
#include "export/export_vulkan_c.h"

#include <string.h>

void vkc_put_string(struct buf *b, struct str s)
{
    enum { MAX = 400 };
    buf_char(b, '"');
    for (i64 i = 0; i < s.n && i < MAX; i++) {
        char c = s.p[i];
        if (c == '"' || c == '\\' || c == '?') buf_char(b, '\\'); /* no trigraphs */
        buf_char(b, c >= ' ' && c < 0x7f ? c : '.');
    }
    buf_z(b, s.n > MAX ? " ...\"" : "\"");
}

static u32 number_of(const struct vkc_model *m, sym s) { return m->size[s] - 1; }

/* Sizes. */

static void put_expressions(struct buf *b, const struct vkc_model *m)
{
    static const char *const op[] = {
        [SYM_CONST] = "CONST", [SYM_VAR] = "VAR", [SYM_ADD] = "ADD", [SYM_MUL] = "MUL",
        [SYM_DIV] = "DIV",     [SYM_MIN] = "MIN", [SYM_MAX] = "MAX"};
    buf_printf(b,
               "enum { N_EXPRESSIONS = %u };\nstatic const struct expression "
               "expressions[N_EXPRESSIONS] = {",
               m->n_size);
    u32 n = 0;
    for (sym s = 1; s < m->plan->sym.node.n; s++) {
        const struct sym_node *x = &m->plan->sym.node.v[s];
        if (!m->size[s]) continue;
        buf_z(b, n++ % 5 ? " " : "\n    ");
        if (x->op == SYM_CONST && x->value == INT64_MIN) buf_z(b, "{OP_DIV, 0, 0},"); /* no value */
        else if (x->op == SYM_CONST)
            buf_printf(b, "{OP_CONST, INT64_C(%lld), 0},", (long long)x->value);
        else if (x->op == SYM_VAR) buf_printf(b, "{OP_VAR, %u, 0},", x->a);
        else buf_printf(b, "{OP_%s, %u, %u},", op[x->op], number_of(m, x->a), number_of(m, x->b));
    }
    buf_z(b, "\n};\n\n");
}

static void put_facts(struct buf *b, const struct vkc_model *m)
{
    static const char *const condition[N_FACT_KINDS] = {[FACT_EQUAL] = "EQUAL",
                                                        [FACT_MULTIPLE] = "MULTIPLE",
                                                        [FACT_AT_LEAST] = "AT_LEAST",
                                                        [FACT_AT_MOST] = "AT_MOST"};
    const struct symtab *t = &m->plan->sym;
    buf_z(b, "static const struct fact facts[] = {\n");
    for (u32 k = 0; k < t->fact.n; k++) {
        const struct sym_fact *f = &t->fact.v[k];
        struct buf text = {0};
        sym_fact_print(&text, t, f);
        buf_printf(b, "    {IS_%s, %u, %u, ", condition[f->kind], number_of(m, f->a),
                   number_of(m, f->b));
        vkc_put_string(b, buf_view(&text));
        buf_z(b, ", ");
        vkc_put_string(b, f->origin.n ? f->origin : S("the network"));
        buf_z(b, "},\n");
        buf_release(&text);
    }
    buf_z(b, "    {IS_EQUAL, 0, 0, NULL, NULL},\n};\n\n");
}

static void put_sizes(struct buf *b, const struct vkc_model *m)
{
    u32 n = m->plan->sym.var.n;
    buf_printf(b, "enum { N_SIZES = %u };\nstatic const char *const size_names[] = {", n);
    for (u32 v = 0; v < n; v++) {
        vkc_put_string(b, m->plan->sym.var.v[v]);
        buf_z(b, ", ");
    }
    buf_printf(b, "NULL};\n\nstatic void read_sizes(int64_t *to, const struct %s_vk_sizes *s)\n{\n",
               m->prefix.p);
    for (u32 v = 0; v < n; v++) buf_printf(b, "    to[%u] = s->%s;\n", v, m->var[v].p);
    buf_z(b, n ? "}\n\n" : "    (void)s;\n    to[0] = 0;\n}\n\n");
}

/* Buffers. */

static u32 io_index(const struct plan *p, u32 buf, bool is_input)
{
    u32 n = is_input ? p->input.n : p->output.n;
    const struct plan_io *v = is_input ? p->input.v : p->output.v;
    for (u32 k = 0; k < n; k++)
        if (v[k].buf == buf) return k;
    unreachable(); /* checked by plan_verify */
}

static void put_place(struct buf *b, const struct vkc_model *m, const struct vkc_buffer *x)
{
    const struct plan_buf *p = &m->plan->buf.v[x->buf];
    u32 bytes = number_of(m, p->size);
    switch (p->kind) {
    case PB_INPUT:
        buf_printf(b, "    {IN_INPUT, %u, %u, 0, 0},", bytes, io_index(m->plan, x->buf, true));
        break;
    case PB_OUTPUT:
        buf_printf(b, "    {IN_OUTPUT, %u, %u, 0, 0},", bytes, io_index(m->plan, x->buf, false));
        break;
    case PB_CONST:
        buf_printf(b, "    {IN_WEIGHTS, %u, UINT64_C(%lld), 0, 0},", bytes, (long long)x->at);
        break;
    case PB_TEMP:
        buf_printf(b, "    {IN_TEMPORARY, %u, 0, %u, %u},", bytes, x->first, x->last);
        break;
    case PB_HELD:
    case PB_STATE:
    case N_PLAN_BUF_KINDS: unreachable();
    }
    buf_z(b, " /* ");
    for (i64 i = 0; i < p->name.n && i < 80; i++)
        buf_char(b, p->name.p[i] > ' ' && p->name.p[i] < 0x7f && p->name.p[i] != '*' ? p->name.p[i]
                                                                                     : '.');
    buf_z(b, " */\n");
}

static void put_tensors(struct buf *b, const struct vkc_model *m, const char *name,
                        const struct plan_io *v, u32 n)
{
    buf_printf(b, "static const struct tensor %s[] = {\n", name);
    for (u32 k = 0; k < n; k++) {
        buf_z(b, "    {");
        vkc_put_string(b, v[k].name);
        buf_printf(b, ", \"%s\", ", dtype_name(v[k].dtype));
        vkc_put_string(b, v[k].layout);
        buf_printf(b, ", %d, %u, {", (int)dtype_size(v[k].dtype), v[k].rank);
        for (u32 d = 0; d < v[k].rank; d++)
            buf_printf(b, d ? ", %u" : "%u", number_of(m, v[k].dim[d]));
        buf_z(b, v[k].rank ? "}},\n" : "0}},\n");
    }
    buf_z(b, "};\n\n");
}

static void put_buffers(struct buf *b, const struct vkc_model *m)
{
    buf_printf(b, "enum { N_BUFFERS = %u };\nstatic const struct place_of places[N_BUFFERS] = {\n",
               m->buffer.n);
    for (u32 k = 0; k < m->buffer.n; k++) put_place(b, m, &m->buffer.v[k]);
    buf_z(b, "};\n\n");
    put_tensors(b, m, "inputs", m->plan->input.v, m->plan->input.n);
    put_tensors(b, m, "outputs", m->plan->output.v, m->plan->output.n);
}

/* Steps. */

static void put_kernels(struct buf *b, const struct vkc_model *m)
{
    buf_printf(b, "enum { N_KERNELS = %u };\nstatic const struct kernel kernels[N_KERNELS] = {\n",
               m->kernel.n);
    for (u32 k = 0; k < m->kernel.n; k++) {
        const struct vkc_kernel *x = &m->kernel.v[k];
        buf_printf(b, "    {%u, ", x->module);
        vkc_put_string(b, x->entry);
        buf_printf(b, ", %u, %u, %u, {%u, %u, %u}},\n", x->n_binding, x->push_bytes, x->subgroup,
                   x->local[0], x->local[1], x->local[2]);
    }
    buf_z(b, "};\n\n");
}

struct list { /* an array of numbers, twenty in a line */
    struct buf *b;
    u32 n;
};

static void put_number(struct list *l, u32 x)
{
    buf_printf(l->b, l->n++ % 20 ? " %u," : "\n    %u,", x);
}

static void put_step(struct buf *b, const struct vkc_model *m, const struct vkc_step *s, u32 at[2])
{
    static const char *const form[] = {[VKC_NONE] = "NO_PARAMETERS",
                                       [VKC_PUSHED] = "PUSHED",
                                       [VKC_PUSHED_WITH_BASE] = "PUSHED_WITH_BASE",
                                       [VKC_IN_MEMORY] = "IN_MEMORY"};
    const struct plan_dispatch *d = &m->plan->dispatch.v[s->dispatch];
    const sym *grid = d->grid[s->grid].extent;
    buf_printf(b, "    {%u, %d, %s, %u, %u, %u, %u, {%u, %u, %u}, ", s->kernel, s->waits,
               form[s->form], at[0], s->n_buffer, at[1], d->n_param, number_of(m, grid[0]),
               number_of(m, grid[1]), number_of(m, grid[2]));
    vkc_put_string(b, d->label.n ? d->label : d->entry);
    buf_z(b, "},\n");
    at[0] += s->n_buffer, at[1] += d->n_param;
}

static void put_steps(struct buf *b, const struct vkc_model *m)
{
    struct list l = {b, 0};
    u32 at[2] = {0, 0};
    buf_z(b, "static const uint32_t buffers[] = {");
    for (u32 i = 0; i < m->step.n; i++)
        for (u32 k = 0; k < m->step.v[i].n_buffer; k++)
            put_number(&l, m->number[m->plan->dispatch.v[m->step.v[i].dispatch].buf[k]]);
    buf_z(b, "\n};\n\nstatic const uint32_t params[] = {");
    l.n = 0;
    for (u32 i = 0; i < m->step.n; i++) {
        const struct plan_dispatch *d = &m->plan->dispatch.v[m->step.v[i].dispatch];
        for (u32 k = 0; k < d->n_param; k++) put_number(&l, number_of(m, d->param[k]));
    }
    buf_printf(b, "%s\n};\n\nenum { N_STEPS = %u };\nstatic const struct step steps[N_STEPS] = {\n",
               l.n ? "" : "0", m->step.n);
    for (u32 i = 0; i < m->step.n; i++) put_step(b, m, &m->step.v[i], at);
    buf_z(b, "};\n\n");
}

/* Modules and weights. */

i64 vkc_module_bytes(const struct vkc_model *m, u32 k)
{
    return m->plan->bin.v[m->module.v[k]].code.n;
}

static void put_words(struct buf *b, struct str bytes)
{
    for (i64 i = 0; i + 4 <= bytes.n; i += 4) {
        u32 w;
        memcpy(&w, bytes.p + i, 4);
        buf_printf(b, "%s0x%x", !i ? "\n" : i % 40 ? "," : ",\n", w);
    }
}

static void put_modules(struct buf *b, const struct vkc_model *m)
{
    const char *name = m->prefix.p;
    for (u32 k = 0; k < m->module.n; k++) {
        buf_printf(b, "static const uint32_t module%u[] = {\n", k);
        put_words(b, m->plan->bin.v[m->module.v[k]].code);
        buf_z(b, "};\n\n");
    }
    buf_printf(b, "const struct %s_vk_code %s_vk_modules[%s_VK_MODULES] = {\n", name, name,
               m->upper.p);
    for (u32 k = 0; k < m->module.n; k++) buf_printf(b, "    {module%u, sizeof module%u},\n", k, k);
    buf_z(b, "};\n");
}

static void put_files(struct buf *b, const struct vkc_model *m)
{
    buf_printf(b, "const char *const %s_vk_module_files[%s_VK_MODULES] = {\n", m->prefix.p,
               m->upper.p);
    for (u32 k = 0; k < m->module.n; k++) buf_printf(b, "    \"%s_vk%u.spv\",\n", m->prefix.p, k);
    buf_z(b, "};\n");
}

void vkc_print_data(struct buf *b, const struct vkc_model *m)
{
    buf_printf(b, "/* Kernels%s of the network: see %s_vk.h. */\n#include \"%s_vk.h\"\n\n",
               m->has_weights_array ? " and weights" : "", m->prefix.p, m->prefix.p);
    if (m->has_kernel_files) put_files(b, m);
    else put_modules(b, m);
    if (!m->has_weights_array || !m->weights) return;
    struct buf w = {0};
    vkc_model_weights(m, &w);
    buf_printf(b, "\nconst uint32_t %s_vk_weights[] = {\n", m->prefix.p);
    put_words(b, buf_view(&w));
    buf_z(b, "};\n");
    b->failed |= w.failed;
    buf_release(&w);
}

/* All tables. */

static void put_digests(struct buf *b, const struct vkc_model *m)
{
    if (m->weights)
        buf_printf(b, "static const uint64_t weights_digest = UINT64_C(0x%016llx);\n\n",
                   (unsigned long long)m->weights_digest);
    else buf_z(b, "static const uint64_t weights_digest = 0;\n\n");
    if (!m->has_kernel_files) return;
    buf_z(
        b,
        "static const struct {\n    size_t bytes;\n    uint64_t digest;\n} module_digests[] = {\n");
    for (u32 k = 0; k < m->module.n; k++)
        buf_printf(b, "    {%lld, UINT64_C(0x%016llx)},\n", (long long)vkc_module_bytes(m, k),
                   (unsigned long long)vkc_digest(m->plan->bin.v[m->module.v[k]].code));
    buf_z(b, "};\n\n");
}

void vkc_print_tables(struct buf *b, const struct vkc_model *m)
{
    put_sizes(b, m);
    put_expressions(b, m);
    put_facts(b, m);
    put_buffers(b, m);
    put_kernels(b, m);
    put_steps(b, m);
    vkc_print_features(b, m);
    put_digests(b, m);
}
