// SPDX-License-Identifier: Apache-2.0
//
// The other files of a module's directory: main.c with the callbacks of a vkdt module, the
// lists of connectors and parameters, the Makefile fragment, and a readme, from which vkdt
// generates its tooltips (sections "parameters" and "connectors", one line per name).
//
// Height and width come from the module's own inputs. If all outputs are as large as
// the first input, vkdt's defaults negotiate sizes, and the module works at any scale;
// else the module declares the size of its outputs and takes its inputs at full size.
#include "export/export_vkdt.h"

static const struct plan *first(const struct vkdt_module *m) { return m->model[0].plan; }
static bool has_choice(const struct vkdt_module *m) { return m->n_model > 1; }

static void put_header_name(struct buf *b, const struct vkdt_model *m)
{
    if (m->suffix[0]) buf_printf(b, "denox_%s.h", m->suffix);
    else buf_z(b, "denox_model.h");
}

/* "input", "input1", "input2" */
static void put_name(struct buf *b, const char *what, u32 k)
{
    buf_z(b, what);
    if (k) buf_printf(b, "%u", k);
}

static bool is_same_size(const struct vkdt_model *m)
{
    const struct vkdt_image *x = &m->in[0];
    bool same = m->plan->sym.node.v[x->h].op == SYM_VAR && m->plan->sym.node.v[x->w].op == SYM_VAR;
    for (u32 k = 0; k < m->plan->input.n; k++) same &= m->in[k].h == x->h && m->in[k].w == x->w;
    for (u32 k = 0; k < m->plan->output.n; k++) same &= m->out[k].h == x->h && m->out[k].w == x->w;
    return same;
}

static bool all_same_size(const struct vkdt_module *m)
{
    for (u32 k = 0; k < m->n_model; k++)
        if (!is_same_size(&m->model[k])) return false;
    return true;
}

/* Calls. */

static void put_values(struct buf *b, const struct vkdt_model *m)
{
    for (u32 v = 0; v < m->plan->sym.var.n; v++) {
        if (m->var_axis[v] == 'N') buf_z(b, "1, ");
        else
            buf_printf(b, "picture[%u].%s, ", m->var_input[v], m->var_axis[v] == 'H' ? "ht" : "wd");
    }
}

static void put_suffix(struct buf *b, const struct vkdt_model *m)
{
    if (m->suffix[0]) buf_printf(b, "_%s", m->suffix);
}

/* One call per model, chosen by the parameter when there are several. */
static void put_calls(struct buf *b, const struct vkdt_module *m,
                      void (*put)(struct buf *b, const struct vkdt_module *m, u32 k))
{
    if (!has_choice(m)) {
        buf_z(b, "  ");
        put(b, m, 0);
        return;
    }
    buf_z(b, "  switch(get_model(module))\n  {\n");
    for (u32 k = 0; k < m->n_model; k++) {
        if (k + 1 < m->n_model) buf_printf(b, "    case %u:\n      ", k);
        else buf_z(b, "    default:\n      ");
        put(b, m, k);
        buf_z(b, "      break;\n");
    }
    buf_z(b, "  }\n");
}

static void put_sizes_call(struct buf *b, const struct vkdt_module *m, u32 k)
{
    buf_z(b, "denox_image_sizes");
    put_suffix(b, &m->model[k]);
    buf_char(b, '(');
    put_values(b, &m->model[k]);
    buf_z(b, "in, out);\n");
}

static void put_source_call(struct buf *b, const struct vkdt_module *m, u32 k)
{
    buf_z(b, "denox_read_source");
    put_suffix(b, &m->model[k]);
    buf_z(b, "(module, mapped, p);\n");
}

static void put_nodes_call(struct buf *b, const struct vkdt_module *m, u32 k)
{
    const struct plan *p = m->model[k].plan;
    buf_z(b, "err = denox_create_nodes");
    put_suffix(b, &m->model[k]);
    buf_z(b, "(graph, module, ");
    put_values(b, &m->model[k]);
    for (u32 i = 0; i < p->input.n; i++) buf_printf(b, "%sinput[%u], \"output\"", i ? ", " : "", i);
    for (u32 i = 0; i < p->output.n; i++) buf_printf(b, ", output[%u], \"input\"", i);
    buf_z(b, ");\n");
}

/* main.c */

static void put_choice(struct buf *b)
{
    buf_z(b, "static int\n"
             "get_model(const dt_module_t *module)\n"
             "{\n"
             "  return dt_module_param_int(module, dt_module_get_param(module->so, "
             "dt_token(\"model\")))[0];\n"
             "}\n\n"
             "dt_graph_run_t\n"
             "check_params(dt_module_t *module, uint32_t parid, uint32_t num, void *oldval)\n"
             "{ // another network: other weights and other nodes\n"
             "  return dt_module_param_int(module, parid)[0] != *(int*)oldval ? s_graph_run_all : "
             "s_graph_run_none;\n"
             "}\n\n");
}

static void put_roi_callbacks(struct buf *b)
{
    buf_z(b, "void\n"
             "modify_roi_out(dt_graph_t *graph, dt_module_t *module)\n"
             "{\n"
             "  dt_roi_t picture[NUM_INPUTS], in[NUM_INPUTS], out[NUM_OUTPUTS];\n"
             "  for(int k=0;k<NUM_INPUTS;k++)\n"
             "  {\n"
             "    picture[k].wd = module->connector[k].roi.full_wd;\n"
             "    picture[k].ht = module->connector[k].roi.full_ht;\n"
             "  }\n"
             "  get_sizes(module, picture, in, out);\n"
             "  for(int k=0;k<NUM_OUTPUTS;k++)\n"
             "  {\n"
             "    dt_roi_t *roi = &module->connector[NUM_INPUTS+k].roi;\n"
             "    roi->full_wd = out[k].wd;\n"
             "    roi->full_ht = out[k].ht;\n"
             "    roi->marker  = module->connector[0].roi.marker;\n"
             "  }\n"
             "}\n\n"
             "void\n"
             "modify_roi_in(dt_graph_t *graph, dt_module_t *module)\n"
             "{ // the output's size follows from the whole input's\n"
             "  for(int k=0;k<NUM_INPUTS;k++)\n"
             "  {\n"
             "    module->connector[k].roi.wd = module->connector[k].roi.full_wd;\n"
             "    module->connector[k].roi.ht = module->connector[k].roi.full_ht;\n"
             "  }\n"
             "}\n\n");
}

static void put_adders(struct buf *b, const struct vkdt_module *m)
{
    buf_printf(b,
               "static int\n"
               "add_input(dt_graph_t *graph, dt_module_t *module, const char *kernel, const char "
               "*format,\n"
               "    const dt_roi_t *size, const dt_roi_t *tensor)\n"
               "{ // from picture to tensor\n"
               "  const int push[] = { size->wd, size->ht };\n"
               "  return dt_node_add(graph, module, \"%s\", kernel, size->wd, size->ht, 1, "
               "sizeof(push), push, 2,\n"
               "      \"input\",  \"read\",  \"rgba\", \"*\",    dt_no_roi,\n"
               "      \"output\", \"write\", \"ssbo\", format, tensor);\n"
               "}\n\n",
               m->name.module);
    buf_printf(b,
               "static int\n"
               "add_output(dt_graph_t *graph, dt_module_t *module, const char *kernel, const char "
               "*format,\n"
               "    const dt_roi_t *size)\n"
               "{ // from tensor to picture\n"
               "  const int push[] = { size->wd, size->ht };\n"
               "  return dt_node_add(graph, module, \"%s\", kernel, size->wd, size->ht, 1, "
               "sizeof(push), push, 2,\n"
               "      \"input\",  \"read\",  \"ssbo\", format, dt_no_roi,\n"
               "      \"output\", \"write\", \"rgba\", \"f16\",  size);\n"
               "}\n\n",
               m->name.module);
}

u32 vkdt_shader_of(const struct vkdt_image *v, u32 k)
{
    u32 j = 0;
    while (j < k && (v[j].dtype != v[k].dtype || v[j].c != v[k].c || v[j].layout != v[k].layout))
        j++;
    return j;
}

static void put_inputs(struct buf *b, const struct vkdt_module *m)
{
    const struct vkdt_model *x = &m->model[0];
    for (u32 k = 0; k < x->plan->input.n; k++) {
        i64 size = dtype_size(x->in[k].dtype);
        buf_printf(
            b,
            "  const dt_roi_t tensor%u = { .wd = denox_pad(INT64_C(%lld) * in[%u].wd * in[%u].ht)",
            k, (long long)(x->in[k].c * size), k, k);
        if (size > 1) buf_printf(b, " / %lld", (long long)size);
        buf_printf(b, ", .ht = 1 };\n  input[%u] = add_input(graph, module, \"", k);
        put_name(b, "input", m->has_pre ? 0 : vkdt_shader_of(x->in, k));
        buf_printf(b, "\", \"%s\", in+%u, &tensor%u);\n", vkdt_format(x->in[k].dtype), k, k);
    }
}

static void put_outputs(struct buf *b, const struct vkdt_module *m)
{
    const struct vkdt_model *x = &m->model[0];
    for (u32 k = 0; k < x->plan->output.n; k++) {
        buf_printf(b, "  output[%u] = add_output(graph, module, \"", k);
        put_name(b, "output", m->has_post ? 0 : vkdt_shader_of(x->out, k));
        buf_printf(b, "\", \"%s\", out+%u);\n", vkdt_format(x->out[k].dtype), k);
    }
}

static void put_create_nodes(struct buf *b, const struct vkdt_module *m)
{
    buf_z(b, "void\n"
             "create_nodes(dt_graph_t *graph, dt_module_t *module)\n"
             "{\n"
             "  dt_roi_t picture[NUM_INPUTS], in[NUM_INPUTS], out[NUM_OUTPUTS];\n"
             "  int input[NUM_INPUTS], output[NUM_OUTPUTS], err = 0;\n"
             "  for(int k=0;k<NUM_INPUTS;k++) picture[k] = module->connector[k].roi;\n"
             "  get_sizes(module, picture, in, out);\n");
    put_inputs(b, m);
    put_outputs(b, m);
    put_calls(b, m, put_nodes_call);
    buf_z(b, "  if(err)\n"
             "  { // the message is set: pass the picture on as it is\n"
             "    dt_connector_bypass(graph, module, 0, NUM_INPUTS);\n"
             "    return;\n"
             "  }\n"
             "  for(int k=0;k<NUM_INPUTS;k++)  dt_connector_copy(graph, module, k, input[k], 0);\n"
             "  for(int k=0;k<NUM_OUTPUTS;k++) dt_connector_copy(graph, module, NUM_INPUTS+k, "
             "output[k], 1);\n"
             "}\n");
}

void vkdt_print_main(struct buf *b, const struct vkdt_module *m)
{
    buf_printf(b,
               "// module %s, written by quern: changes are lost with the next export.\n"
               "#include \"modules/api.h\"\n",
               m->name.module);
    for (u32 k = 0; k < m->n_model; k++) {
        buf_z(b, "#include \"");
        put_header_name(b, &m->model[k]);
        buf_z(b, "\"\n");
    }
    buf_printf(b, "\nenum { NUM_INPUTS = %u, NUM_OUTPUTS = %u };\n\n", first(m)->input.n,
               first(m)->output.n);
    if (has_choice(m)) put_choice(b);
    buf_z(b, "static void\n"
             "get_sizes(const dt_module_t *module, const dt_roi_t *picture, dt_roi_t *in, dt_roi_t "
             "*out)\n"
             "{ // of the network's tensors, for pictures of these sizes\n");
    put_calls(b, m, put_sizes_call);
    buf_z(b, "}\n\n");
    if (!all_same_size(m)) put_roi_callbacks(b);
    buf_z(b, "void\n"
             "read_source(dt_module_t *module, void *mapped, dt_read_source_params_t *p)\n{\n");
    put_calls(b, m, put_source_call);
    buf_z(b, "}\n\n");
    put_adders(b, m);
    put_create_nodes(b, m);
}

/* The other files. */

void vkdt_print_connectors(struct buf *b, const struct vkdt_module *m)
{
    for (u32 k = 0; k < first(m)->input.n; k++) {
        put_name(b, "input", k);
        buf_z(b, ":read:*:*\n");
    }
    for (u32 k = 0; k < first(m)->output.n; k++) {
        put_name(b, "output", k);
        buf_z(b, ":write:*:*\n");
    }
}

void vkdt_print_params(struct buf *b, const struct vkdt_module *m)
{
    if (has_choice(m)) buf_z(b, "model:int:1:0\n");
}

void vkdt_print_params_ui(struct buf *b, const struct vkdt_module *m)
{
    if (!has_choice(m)) return;
    buf_z(b, "model:combo");
    for (u32 k = 0; k < m->n_model; k++) buf_printf(b, ":%s", m->model[k].suffix);
    buf_char(b, '\n');
}

/* A module's weights are copied to where vkdt looks for them. */
static bool is_copied(const struct vkdt_module *m, u32 k)
{
    return m->has_weights && m->model[k].weights;
}

void vkdt_print_make(struct buf *b, const struct vkdt_module *m)
{
    buf_z(b, "MOD_DEPS=");
    for (u32 k = 0; k < m->n_model; k++) {
        buf_printf(b, "%spipe/modules/%s/", k ? " " : "", m->name.module);
        put_header_name(b, &m->model[k]);
        if (is_copied(m, k)) buf_printf(b, " ../bin/data/%.*s", STR_ARG(m->model[k].file));
    }
    buf_char(b, '\n');
    for (u32 k = 0; k < m->n_model; k++) {
        struct str file = m->model[k].file;
        if (is_copied(m, k))
            buf_printf(b,
                       "\n../bin/data/%.*s: pipe/modules/%s/%.*s\n\tmkdir -p ../bin/data\n"
                       "\tcp $< $@\n",
                       STR_ARG(file), m->name.module, STR_ARG(file));
    }
}

void vkdt_print_ignore(struct buf *b, const struct vkdt_module *m)
{
    buf_z(b, "# kernels are not made from sources here\n");
    for (u32 k = 0; k < m->n_model; k++)
        buf_printf(b, "!%.*s*.comp.spv\n", STR_ARG(m->model[k].prefix));
}

static void put_image_line(struct buf *b, const char *what, u32 k, const struct plan_io *io)
{
    buf_z(b, "* `");
    put_name(b, what, k);
    buf_z(b, "` ");
    for (i64 i = 0; i < io->name.n; i++) /* '*', '`' and ':' would end the tooltip */
        buf_char(b, io->name.p[i] > ' ' && io->name.p[i] < 0x7f && io->name.p[i] != '`' &&
                            io->name.p[i] != ':' && io->name.p[i] != '*'
                        ? io->name.p[i]
                        : '_');
    buf_printf(b, " of the network, %s\n", dtype_name(io->dtype));
}

static void put_needs(struct buf *b, const struct vkdt_module *m)
{
    for (u32 k = 0; k < m->n_model; k++) {
        const struct vkdt_model *x = &m->model[k];
        const char *sep = has_choice(m) ? ": " : "";
        if (x->subgroup)
            buf_printf(b,
                       "%s%skernels work in subgroups of %u threads; on a device with others the "
                       "module passes its input on and says so.\n\n",
                       x->suffix, sep, x->subgroup);
        if (x->needs_matrix)
            buf_printf(b, "%s%skernels use cooperative matrices.\n\n", x->suffix, sep);
    }
}

void vkdt_print_readme(struct buf *b, const struct vkdt_module *m)
{
    buf_printf(b, "# %s: a neural network\n\n", m->name.module);
    if (!str_is(m->name.title, m->name.module))
        buf_printf(b, "exported as '%.*s'; names in vkdt have at most %d characters.\n\n",
                   STR_ARG(m->name.title), VKDT_TOKEN);
    put_needs(b, m);
    buf_z(b,
          "this directory was written by `quern export --to vkdt`. vkdt's makefile compiles "
          "`main.c`, "
          "`input.comp`\n(picture to tensor) and `output.comp` (tensor to picture), and copies the "
          "weights to `bin/data`.\n\n## parameters\n\n");
    if (has_choice(m)) buf_z(b, "* `model` the network to use\n");
    buf_z(b, "\n## connectors\n\n");
    for (u32 k = 0; k < first(m)->input.n; k++)
        put_image_line(b, "input", k, &first(m)->input.v[k]);
    for (u32 k = 0; k < first(m)->output.n; k++)
        put_image_line(b, "output", k, &first(m)->output.v[k]);
    buf_z(b, "\n## technical\n\n");
    for (u32 k = 0; k < m->n_model; k++)
        buf_printf(b, "%s%s%u dispatches, %u kernels, %lld bytes of weights\n\n",
                   m->model[k].suffix, has_choice(m) ? ": " : "", m->model[k].node.n,
                   m->model[k].kernel.n, (long long)m->model[k].weights);
}
