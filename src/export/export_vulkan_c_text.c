// SPDX-License-Identifier: Apache-2.0
//
// Blocks of the templates that depend on the network and on options: comments, counts, sizes, and
// where kernels and weights come from. A block is a line
// "//@name" of a template.
#include "export/export_vulkan_c.h"

static void put_comment(struct buf *b, struct str s)
{
    enum { MAX = 120 };
    for (i64 i = 0; i < s.n && i < MAX; i++) {
        bool ends = s.p[i] == '/' && b->n > 0 && b->p[b->n - 1] == '*';
        buf_char(b, s.p[i] >= ' ' && s.p[i] < 0x7f && s.p[i] != '\\' && s.p[i] != '?' && !ends
                        ? s.p[i]
                        : '.');
    }
    if (s.n > MAX) buf_z(b, " ...");
}

/* The comment of the header. */

static void put_values(struct buf *b, const struct vkc_model *m, const struct plan_io *v, u32 n)
{
    for (u32 k = 0; k < n; k++) {
        buf_printf(b, " *   %u  ", k);
        put_comment(b, v[k].name);
        buf_printf(b, "  %s (", dtype_name(v[k].dtype));
        for (u32 d = 0; d < v[k].rank; d++) {
            struct buf text = {0};
            if (d) buf_z(b, ", ");
            sym_print(&text, &m->plan->sym, v[k].dim[d]);
            put_comment(b, buf_view(&text));
            buf_release(&text);
        }
        buf_char(b, ')');
        if (v[k].layout.n) buf_printf(b, ", layout %.*s", STR_ARG(v[k].layout));
        buf_char(b, '\n');
    }
}

static void put_sizes(struct buf *b, const struct vkc_model *m)
{
    const struct plan *p = m->plan;
    if (p->sym.var.n) buf_z(b, " *\n * Sizes:");
    for (u32 v = 0; v < p->sym.var.n; v++) {
        buf_z(b, v ? ", " : " ");
        put_comment(b, p->sym.var.v[v]);
        if (p->var.v[v].optimised_for != INT64_MIN)
            buf_printf(b, " (optimised for %lld)", (long long)p->var.v[v].optimised_for);
    }
    if (p->sym.var.n) buf_char(b, '\n');
    for (u32 k = 0; k < p->sym.fact.n; k++) {
        struct buf text = {0};
        sym_fact_print(&text, &p->sym, &p->sym.fact.v[k]);
        buf_z(b, " *   ");
        put_comment(b, p->sym.fact.v[k].origin);
        buf_z(b, " needs ");
        put_comment(b, buf_view(&text));
        buf_char(b, '\n');
        buf_release(&text);
    }
}

static void print_title(struct buf *b, const struct vkc_model *m)
{
    buf_z(b, "/* Network '");
    put_comment(b, m->plan->model);
    buf_printf(b,
               "' as commands of Vulkan, written by quern: changes are lost with the next "
               "export.\n * %u steps, %u pipelines, %lld bytes of weights.\n *\n"
               " * Inputs, dense and row-major:\n",
               m->step.n, m->kernel.n, (long long)m->weights);
    put_values(b, m, m->plan->input.v, m->plan->input.n);
    buf_z(b, " * Outputs:\n");
    put_values(b, m, m->plan->output.v, m->plan->output.n);
    put_sizes(b, m);
    buf_z(b, " *\n");
    vkc_print_needs(b, m);
    buf_printf(b,
               " *\n * %s_vk_check examines a physical device, %s_vk_create makes the pipelines, "
               "%s_vk_bind a run for sizes, which says how much memory it\n"
               " * needs; %s_vk_use tells the run its buffers, and %s_vk_record records it into a "
               "command buffer of the caller. There is no global state;\n"
               " * objects belong to one thread at a time, but a network may be used by many. */\n",
               m->prefix.p, m->prefix.p, m->prefix.p, m->prefix.p, m->prefix.p);
}

static void print_counts(struct buf *b, const struct vkc_model *m)
{
    const char *u = m->upper.p;
    u32 most_bindings = 0, most_params = 0;
    for (u32 k = 0; k < m->kernel.n; k++)
        if (m->kernel.v[k].n_binding > most_bindings) most_bindings = m->kernel.v[k].n_binding;
    for (u32 k = 0; k < m->plan->dispatch.n; k++)
        if (m->plan->dispatch.v[k].n_param > most_params)
            most_params = m->plan->dispatch.v[k].n_param;
    buf_printf(b,
               "    %s_VK_INPUTS = %u,\n    %s_VK_OUTPUTS = %u,\n    %s_VK_INPUT_SLOTS = %u,\n    "
               "%s_VK_OUTPUT_SLOTS = %u,\n",
               u, m->plan->input.n, u, m->plan->output.n, u, m->plan->input.n, u,
               m->plan->output.n ? m->plan->output.n : 1);
    buf_printf(b,
               "    %s_VK_STEPS = %u,\n    %s_VK_MODULES = %u,\n    %s_VK_BINDINGS = %u,\n    "
               "%s_VK_PARAMETERS = %u,\n    %s_VK_EXTENSION_SLOTS = %u,\n",
               u, m->step.n, u, m->module.n, u, most_bindings, u, most_params, u,
               vkc_count_extensions(m));
}

static void print_constants(struct buf *b, const struct vkc_model *m)
{
    const char *u = m->upper.p;
    buf_printf(b, "#define %s_VK_VERSION VK_MAKE_API_VERSION(0, 1, %u, 0) /* of Vulkan */\n", u,
               m->version);
    buf_printf(b, "#define %s_VK_WEIGHTS UINT64_C(%lld) /* bytes */\n", u, (long long)m->weights);
    buf_printf(b, "#define %s_VK_WEIGHTS_FILE \"%s_vk.weights\"\n", u, m->prefix.p);
    buf_printf(b, "#define %s_VK_SHARED_BYTES UINT32_C(%lld) /* of a workgroup */\n", u,
               (long long)i64_max(m->shared_bytes, 1));
}

static void print_sizes(struct buf *b, const struct vkc_model *m)
{
    for (u32 v = 0; v < m->plan->sym.var.n; v++) {
        buf_printf(b, "    int64_t %s; /* ", m->var[v].p);
        put_comment(b, m->plan->sym.var.v[v]);
        buf_z(b, " */\n");
    }
    if (!m->plan->sym.var.n) buf_z(b, "    int unused; /* all sizes are fixed */\n");
}

/* Where kernels and weights come from. */

static void print_code_member(struct buf *b, const struct vkc_model *m)
{
    if (m->has_kernel_files)
        buf_printf(b,
                   "    const struct %s_vk_code *code; /* the content of the files "
                   "%s_vk_module_files, in their order */\n",
                   m->prefix.p, m->prefix.p);
    else
        buf_printf(b,
                   "    const struct %s_vk_code *code; /* NULL: %s_vk_modules; others are for "
                   "tools that change kernels */\n",
                   m->prefix.p, m->prefix.p);
}

static void print_data_members(struct buf *b, const struct vkc_model *m)
{
    buf_z(b, "\n");
    if (m->has_kernel_files)
        buf_printf(b, "extern const char *const %s_vk_module_files[%s_VK_MODULES];\n", m->prefix.p,
                   m->upper.p);
    else
        buf_printf(b, "extern const struct %s_vk_code %s_vk_modules[%s_VK_MODULES];\n", m->prefix.p,
                   m->prefix.p, m->upper.p);
    if (m->has_weights_array && m->weights)
        buf_printf(b, "extern const uint32_t %s_vk_weights[];\n", m->prefix.p);
}

static void print_code(struct buf *b, const struct vkc_model *m)
{
    if (!m->has_kernel_files) {
        buf_printf(b, "    const struct %s_vk_code *code = c->code ? c->code : %s_vk_modules;\n",
                   m->prefix.p, m->prefix.p);
        return;
    }
    buf_printf(b, "    const struct %s_vk_code *code = c->code;\n", m->prefix.p);
    buf_z(b, "    if (!code) return fail(e, VK_ERROR_VALIDATION_FAILED_EXT, \"the content of the "
             "kernels' files is not given\");\n");
    buf_printf(b,
               "    for (k = 0; k < %s_VK_MODULES; k++)\n"
               "        if (code[k].bytes != module_digests[k].bytes || digest((const unsigned "
               "char *)code[k].words, code[k].bytes) != module_digests[k].digest)\n"
               "            return fail(e, VK_ERROR_VALIDATION_FAILED_EXT, \"'%%s' is not of this "
               "export\", %s_vk_module_files[k]);\n",
               m->upper.p, m->prefix.p);
}

static void print_weights(struct buf *b, const struct vkc_model *m)
{
    if (m->has_weights_array && m->weights)
        buf_printf(b, "    if (!data) data = %s_vk_weights, bytes = %s_VK_WEIGHTS;\n", m->prefix.p,
                   m->upper.p);
}

static void print_subgroup_size(struct buf *b, const struct vkc_model *m)
{
    if (m->needs_subgroup_size)
        buf_z(b, "    x->d->asks_subgroup_size = x->d->subgroup_size.subgroupSizeControl;\n"
                 "    x->d->asks_full_subgroups = x->d->subgroup_size.computeFullSubgroups;\n");
}

/* The example. */

static void print_set(struct buf *b, const struct vkc_model *m)
{
    for (u32 v = 0; v < m->plan->sym.var.n; v++) {
        struct str name = m->plan->sym.var.v[v];
        buf_printf(b, "    if (n == %lld && !memcmp(text, ", (long long)name.n);
        vkc_put_string(b, name);
        buf_printf(b, ", n)) {\n        a->o.sizes.%s = x;\n        return 1;\n    }\n",
                   m->var[v].p);
    }
}

static void print_defaults(struct buf *b, const struct vkc_model *m)
{
    enum { USUAL = 64 };
    for (u32 v = 0; v < m->plan->sym.var.n; v++) {
        i64 n = m->plan->var.v[v].optimised_for;
        buf_printf(b, "    o->sizes.%s = %lld;\n", m->var[v].p,
                   (long long)(n == INT64_MIN ? USUAL : n));
    }
}

static void print_load(struct buf *b, const struct vkc_model *m)
{
    if (!m->has_kernel_files) return;
    buf_printf(
        b,
        "static VkResult create_from_files(struct app *a, struct %s_vk_create_info *info)\n{\n"
        "    struct %s_vk_code code[%s_VK_MODULES];\n    void *file[%s_VK_MODULES];\n    VkResult "
        "r = VK_ERROR_INITIALIZATION_FAILED;\n    uint32_t k, n = 0;\n"
        "    for (; n < %s_VK_MODULES; n++) {\n        file[n] = read_file(a, "
        "%s_vk_module_files[n], &code[n].bytes);\n        if (!file[n]) break;\n"
        "        code[n].words = (const uint32_t *)file[n];\n    }\n    info->code = code;\n"
        "    if (n == %s_VK_MODULES) r = %s_vk_create(info, &a->net, &a->e);\n    for (k = 0; k < "
        "n; k++) free(file[k]);\n    return r;\n}\n\n",
        m->prefix.p, m->prefix.p, m->upper.p, m->upper.p, m->upper.p, m->prefix.p, m->upper.p,
        m->prefix.p);
}

static void print_create(struct buf *b, const struct vkc_model *m)
{
    if (m->has_kernel_files) buf_z(b, "    r = create_from_files(a, &info);\n");
    else buf_printf(b, "    r = %s_vk_create(&info, &a->net, &a->e);\n", m->prefix.p);
}

static void print_upload(struct buf *b, const struct vkc_model *m)
{
    if (!m->has_weights_array && m->weights)
        buf_z(b, "    file = read_file(a, a->o.weights, &u.bytes);\n    if (!file) return 0;\n");
}

bool vkc_print_block(struct buf *b, const struct vkc_model *m, struct str file, struct str name)
{
    static const struct block {
        const char *file, *name;
        void (*print)(struct buf *b, const struct vkc_model *m);
    } blocks[] = {
        {"h", "counts", print_counts},
        {"h", "constants", print_constants},
        {"h", "features", vkc_print_members},
        {"h", "code", print_code_member},
        {"h", "sizes", print_sizes},
        {"h", "data", print_data_members},
        {"h", "title", print_title},
        {"c", "tables", vkc_print_tables},
        {"c", "code", print_code},
        {"c", "weights", print_weights},
        {"c", "subgroup_size", print_subgroup_size},
        {"main", "set", print_set},
        {"main", "defaults", print_defaults},
        {"main", "load", print_load},
        {"main", "create", print_create},
        {"main", "upload", print_upload},
    };
    for (i64 k = 0; k < countof(blocks); k++)
        if (str_is(file, blocks[k].file) && str_is(name, blocks[k].name))
            return blocks[k].print(b, m), true;
    return false;
}
