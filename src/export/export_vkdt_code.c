// SPDX-License-Identifier: Apache-2.0
//
// The header that holds a network: sizes as C expressions, a function that reads the weights,
// and one that creates the nodes and connects them. Names and arguments are those of vkdt's own
// modules with networks (denox_create_nodes: graph, module, one size per variable, then node
// and connector of each input and output), so hand-written modules can include it as well.
//
// Sizes are checked before the first node is created: unsupported
// ones leave a message and a module that passes its input on.
#include "export/export_vkdt.h"

struct coder {
    struct buf *b;
    const struct vkdt_model *m;
    const struct vkdt_names *n;
    const struct plan *p;
    struct arena a;
    u32 *num; /* per expression: 1 + k of the constant "rk", 0: emitted in place */
};

/* Text from a file, in a // comment. */
static void put_comment(struct buf *b, struct str s)
{
    enum { MAX = 100 };
    for (i64 i = 0; i < s.n && i < MAX; i++)
        buf_char(b, s.p[i] >= ' ' && s.p[i] < 0x7f && s.p[i] != '\\' ? s.p[i] : '?');
    if (s.n > MAX) buf_z(b, " ...");
}

static void put_suffix(struct buf *b, const struct vkdt_model *m)
{
    if (m->suffix[0]) buf_printf(b, "_%s", m->suffix);
}

/* Sizes. */

static void put_var(struct buf *b, const struct symtab *t, u32 v)
{
    struct str name = t->var.v[v];
    bool is_letter = name.n == 1 && ((name.p[0] >= 'A' && name.p[0] <= 'Z') ||
                                     (name.p[0] >= 'a' && name.p[0] <= 'z'));
    if (is_letter) buf_char(b, name.p[0]);
    else buf_printf(b, "size%u", v);
}

static void put_size(struct coder *c, sym s)
{
    const struct sym_node *x = &c->p->sym.node.v[s];
    if (c->num[s]) buf_printf(c->b, "r%u", c->num[s] - 1);
    else if (x->op == SYM_VAR) put_var(c->b, &c->p->sym, x->a);
    else if (x->value > INT32_MAX || x->value < INT32_MIN)
        buf_printf(c->b, "INT64_C(%lld)", (long long)x->value);
    else buf_printf(c->b, "%lld", (long long)x->value);
}

static void mark_size(struct coder *c, sym s)
{
    const struct sym_node *x = &c->p->sym.node.v[s];
    if (c->num[s] || x->op == SYM_CONST || x->op == SYM_VAR) return;
    c->num[s] = 1;
    mark_size(c, x->a);
    mark_size(c, x->b);
}

static void put_infix(struct coder *c, const struct sym_node *x, const char *op)
{
    const struct sym_node *b = &c->p->sym.node.v[x->b];
    put_size(c, x->a);
    if (x->op == SYM_ADD && b->op == SYM_CONST && b->value < 0 && b->value >= -INT32_MAX) {
        buf_printf(c->b, " - %lld", (long long)-b->value);
        return;
    }
    buf_z(c->b, op);
    put_size(c, x->b);
}

static void put_call(struct coder *c, const struct sym_node *x, const char *function)
{
    buf_z(c->b, function);
    put_size(c, x->a);
    buf_z(c->b, ", ");
    put_size(c, x->b);
    buf_char(c->b, ')');
}

static void put_expression(struct coder *c, const struct sym_node *x)
{
    switch (x->op) {
    case SYM_ADD: put_infix(c, x, " + "); return;
    case SYM_MUL: put_infix(c, x, " * "); return;
    case SYM_DIV: put_call(c, x, "denox_div("); return;
    case SYM_MIN: put_call(c, x, "denox_min("); return;
    case SYM_MAX: put_call(c, x, "denox_max("); return;
    case SYM_CONST:
    case SYM_VAR: break;
    }
    unreachable();
}

/* Operands have smaller numbers than their users. */
static void put_sizes(struct coder *c)
{
    u32 n = 0;
    for (sym s = 1; s < c->p->sym.node.n; s++) {
        if (!c->num[s]) continue;
        c->num[s] = 1 + n;
        buf_printf(c->b, "  const int64_t r%u = ", n++);
        put_expression(c, &c->p->sym.node.v[s]);
        buf_z(c->b, ";\n");
    }
}

static void forget_sizes(struct coder *c)
{
    for (sym s = 0; s < c->p->sym.node.n; s++) c->num[s] = 0;
}

void vkdt_print_vars(struct buf *b, const struct vkdt_model *m, const char *type)
{
    for (u32 v = 0; v < m->plan->sym.var.n; v++) {
        buf_z(b, type);
        put_var(b, &m->plan->sym, v);
        buf_z(b, ", ");
    }
}

/* Buffers: those of the interface in elements, the others in bytes. */

static enum dtype buf_type(const struct plan *p, u32 buf)
{
    for (u32 k = 0; k < p->input.n; k++)
        if (p->input.v[k].buf == buf) return p->input.v[k].dtype;
    for (u32 k = 0; k < p->output.n; k++)
        if (p->output.v[k].buf == buf) return p->output.v[k].dtype;
    return DT_U8;
}

/* Elements of a buffer whose size is a multiple of VKDT_PAD bytes. */
static void put_extent(struct coder *c, u32 buf)
{
    i64 n, per = dtype_size(buf_type(c->p, buf));
    sym size = c->p->buf.v[buf].size;
    if (sym_is_const(&c->p->sym, size, &n)) {
        buf_printf(c->b, "%lld", (long long)(round_up(n, VKDT_PAD) / per));
        return;
    }
    buf_z(c->b, "denox_pad(");
    put_size(c, size);
    buf_char(c->b, ')');
    if (per > 1) buf_printf(c->b, " / %lld", (long long)per);
}

/* Work groups in x, y and z: the innermost dimension of a grid is x. */
static sym group_count(const struct vkdt_model *m, const struct vkdt_node *n, u32 axis)
{
    return m->plan->dispatch.v[n->dispatch].grid[n->grid].extent[axis];
}

static void mark_sizes(struct coder *c)
{
    for (u32 i = 0; i < c->m->node.n; i++) {
        const struct vkdt_node *n = &c->m->node.v[i];
        const struct plan_dispatch *d = &c->p->dispatch.v[n->dispatch];
        for (u32 x = 0; x < 3; x++) mark_size(c, group_count(c->m, n, x));
        for (u32 k = 0; k < d->n_param && n->has_push; k++) mark_size(c, d->param[k]);
        for (u32 k = 0; k < n->n_conn; k++)
            if (n->conn[k].type == VC_WRITE) mark_size(c, c->p->buf.v[n->conn[k].buf].size);
    }
    for (u32 k = 0; k < c->p->input.n; k++) mark_size(c, c->p->buf.v[c->p->input.v[k].buf].size);
}

/* Limits. */

static bool may_be_large(const struct coder *c, u32 node)
{
    i64 n;
    sym x = group_count(c->m, &c->m->node.v[node], 0);
    return !sym_is_const(&c->p->sym, x, &n) || n > VKDT_GROUPS;
}

static void put_item(struct coder *c, u32 *n, sym s)
{
    buf_z(c->b, *n == 0 ? "    " : *n % 12 ? ", " : ",\n    ");
    put_size(c, s);
    ++*n;
}

static void put_byte_counts(struct coder *c)
{
    u32 count = 0;
    buf_z(c->b, "  const int64_t bytes[] = { // of buffers\n");
    for (u32 k = 0; k < c->p->input.n; k++)
        put_item(c, &count, c->p->buf.v[c->p->input.v[k].buf].size);
    for (u32 i = 0; i < c->m->node.n; i++)
        for (u32 k = 0; k < c->m->node.v[i].n_conn; k++)
            if (c->m->node.v[i].conn[k].type == VC_WRITE)
                put_item(c, &count, c->p->buf.v[c->m->node.v[i].conn[k].buf].size);
    buf_z(c->b, "\n  };\n");
}

/* Kernels without a base of their workgroups must run in one piece. */
static void put_whole_check(struct coder *c)
{
    u32 count = 0;
    for (u32 i = 0; i < c->m->node.n; i++) {
        if (c->m->node.v[i].has_base || !may_be_large(c, i)) continue;
        if (!count)
            buf_z(c->b, "  const int64_t whole[] = { // groups in x of nodes that cannot be split\n");
        put_item(c, &count, group_count(c->m, &c->m->node.v[i], 0));
    }
    if (count)
        buf_printf(c->b,
                   "\n  };\n  for(int i=0;i<%u;i++)\n"
                   "    if(whole[i] > denox_max_groups())\n"
                   "      return denox_fail(graph, \"%s: image too large\");\n",
                   count, c->n->module);
}

/* vkdt ignores errors from reading a source: it would continue with weights of zero. */
static void put_weights_check(struct coder *c)
{
    if (!c->m->weights) return;
    buf_printf(c->b,
               "  if(!denox_has_file(graph, \"%.*s\", %lld))\n"
               "    return denox_fail(graph, \"%s: weights are missing or of another version\");\n",
               STR_ARG(c->m->resource), (long long)c->m->weights, c->n->module);
}

static void put_checks(struct coder *c)
{
    put_byte_counts(c);
    u32 count = 0;
    buf_z(c->b, "  const int64_t groups[] = { // of threads: x, y, z of each dispatch\n");
    for (u32 i = 0; i < c->m->node.n; i++)
        for (u32 x = 0; x < 3; x++) put_item(c, &count, group_count(c->m, &c->m->node.v[i], x));
    buf_z(c->b, "\n  };\n");
    buf_printf(
        c->b,
        "  if(!denox_fits(bytes, sizeof(bytes)/sizeof(bytes[0])) ||\n"
        "     !denox_can_dispatch(groups, sizeof(groups)/sizeof(groups[0])))\n"
        "    return denox_fail(graph, \"%s: image too large\");\n"
        "  if(denox_count_nodes(groups, sizeof(groups)/sizeof(groups[0])) >= graph->max_nodes - "
        "graph->num_nodes)\n"
        "    return denox_fail(graph, \"%s: too many nodes\");\n",
        c->n->module, c->n->module);
    put_whole_check(c);
    if (c->m->subgroup)
        buf_printf(c->b,
                   "  if(qvk.subgroup_size != %u)\n"
                   "    return denox_fail(graph, \"%s: made for subgroups of %u threads\");\n",
                   c->m->subgroup, c->n->module, c->m->subgroup);
    if (c->m->needs_matrix)
        buf_printf(c->b,
                   "  if(!qvk.coopmat_supported)\n"
                   "    return denox_fail(graph, \"%s: device without cooperative matrices\");\n",
                   c->n->module);
}

/* Nodes. */

static void put_conn(struct coder *c, u32 node, u32 k)
{
    static const char *const types[] = {"read", "write", "modify"};
    const struct vkdt_conn *x = &c->m->node.v[node].conn[k];
    buf_z(c->b, "      \"");
    if (k >= 26) buf_char(c->b, 'a');
    buf_char(c->b, (char)('a' + k % 26));
    buf_printf(c->b, "\", \"%s\", \"ssbo\", \"%s\", ", types[x->type],
               vkdt_format(buf_type(c->p, x->buf)));
    if (x->type == VC_WRITE) buf_printf(c->b, "&roi%u_%u", node, k);
    else buf_z(c->b, "dt_no_roi");
}

static void put_push(struct coder *c, u32 node)
{
    const struct plan_dispatch *d = &c->p->dispatch.v[c->m->node.v[node].dispatch];
    buf_printf(c->b, "  const int pc%u[] = { ", node);
    for (u32 k = 0; k < d->n_param; k++) {
        if (k) buf_z(c->b, ", ");
        put_size(c, d->param[k]);
    }
    if (c->m->node.v[node].has_base) buf_z(c->b, d->n_param ? ", 0, 0, 0" : "0, 0, 0");
    buf_z(c->b, " };\n");
}

static void put_rois(struct coder *c, u32 node)
{
    const struct vkdt_node *n = &c->m->node.v[node];
    for (u32 k = 0; k < n->n_conn; k++) {
        if (n->conn[k].type != VC_WRITE) continue;
        buf_printf(c->b, "  const dt_roi_t roi%u_%u = { .wd = ", node, k);
        put_extent(c, n->conn[k].buf);
        buf_z(c->b, ", .ht = 1 };\n");
    }
}

static void put_node(struct coder *c, u32 node)
{
    const struct vkdt_node *n = &c->m->node.v[node];
    struct str kernel = vkdt_kernel_name(&c->a, c->m->prefix.p, n->kernel, c->m->kernel.n);
    put_rois(c, node);
    if (n->has_push) put_push(c, node);
    buf_printf(c->b, "  int n%u = dt_node_add(graph, module, \"%s\", \"%.*s\",\n      ", node,
               c->n->module, STR_ARG(kernel));
    put_size(c, group_count(c->m, n, 0));
    buf_z(c->b, " * DT_LOCAL_SIZE_X, ");
    put_size(c, group_count(c->m, n, 1));
    buf_z(c->b, " * DT_LOCAL_SIZE_Y, ");
    put_size(c, group_count(c->m, n, 2));
    if (n->has_push) buf_printf(c->b, ", sizeof(pc%u), pc%u", node, node);
    else buf_z(c->b, ", 0, 0");
    buf_printf(c->b, ", %u", n->n_conn);
    for (u32 k = 0; k < n->n_conn; k++) {
        buf_z(c->b, ",\n");
        put_conn(c, node, k);
    }
    buf_z(c->b, ");\n");
}

/* Connecting sets the offset of both ends to 0, so it comes first. */
static void put_connection(struct coder *c, u32 node, u32 k)
{
    const struct vkdt_conn *x = &c->m->node.v[node].conn[k];
    if (x->type == VC_WRITE) return;
    switch (x->end.kind) {
    case END_INPUT:
        buf_printf(c->b,
                   "  denox_bind_input(graph, module, input%u_id, input%u_connector, n%u, %u);%s\n",
                   x->end.node, x->end.node, node, k, x->is_order ? " // visited early" : "");
        return;
    case END_NODE:
        buf_printf(c->b, "  CONN(dt_node_connect(graph, n%u, %u, n%u, %u));%s\n", x->end.node,
                   x->end.conn, node, k, x->is_order ? " // comes first" : "");
        return;
    case END_WEIGHTS:
        buf_printf(c->b, "  CONN(dt_node_connect(graph, weights, 0, n%u, %u));%s\n", node, k, x->is_order ? " // visited early" : "");
        if (c->m->offset[x->buf] && !x->is_order)
            buf_printf(c->b, "  graph->node[n%u].connector[%u].ssbo_offset = %lld;\n", node, k,
                       (long long)c->m->offset[x->buf]);
        return;
    }
    unreachable();
}

static void put_nodes(struct coder *c)
{
    if (c->m->weights)
        buf_printf(c->b,
                   "\n  const dt_roi_t roi_weights = { .wd = %lld, .ht = 1 };\n"
                   "  const int weights = dt_node_add(graph, module, \"%s\", \"weights\", 1, 1, 1, "
                   "0, 0, 1,\n      \"w\", \"source\", \"ssbo\", \"u8\", &roi_weights);\n",
                   (long long)c->m->weights, c->n->module);
    for (u32 i = 0; i < c->m->node.n; i++) {
        const struct plan_dispatch *d = &c->p->dispatch.v[c->m->node.v[i].dispatch];
        buf_z(c->b, "\n  // ");
        put_comment(c->b, d->label);
        buf_char(c->b, '\n');
        put_node(c, i);
        for (u32 k = 0; k < c->m->node.v[i].n_conn; k++) put_connection(c, i, k);
        if (c->m->node.v[i].has_base && may_be_large(c, i))
            buf_printf(c->b, "  n%u = denox_split(graph, n%u);\n", i, i);
    }
    buf_char(c->b, '\n');
    for (u32 k = 0; k < c->p->output.n; k++)
        buf_printf(c->b,
                   "  denox_bind_output(graph, module, output%u_id, output%u_connector, "
                   "n%u, %u);\n",
                   k, k, c->m->result[k].node, c->m->result[k].conn);
}

/* Functions. */

static void put_helpers(struct buf *b)
{
    buf_printf(b,
               "#ifndef DENOX_PAD // several networks in one module share the following\n"
               "#define DENOX_PAD %d // bytes: kernels may read whole vectors up to there\n"
               "#ifndef DENOX_MAX_GROUPS // of a dispatch, in x, that every vulkan device takes\n"
               "#define DENOX_MAX_GROUPS %d\n"
               "#endif\n\n",
               VKDT_PAD, VKDT_GROUPS);
    buf_z(b, vkdt_helpers);
    buf_z(b, "#endif\n\n");
}

static void put_images(struct coder *c, const char *list, const struct vkdt_image *v, u32 n)
{
    for (u32 k = 0; k < n; k++) {
        buf_printf(c->b, "  %s[%u] = (dt_roi_t){ .wd = ", list, k);
        put_size(c, v[k].w);
        buf_z(c->b, ", .ht = ");
        put_size(c, v[k].h);
        buf_z(c->b, " };\n");
    }
}

static void put_image_sizes(struct coder *c)
{
    forget_sizes(c);
    for (u32 k = 0; k < c->p->input.n; k++)
        mark_size(c, c->m->in[k].h), mark_size(c, c->m->in[k].w);
    for (u32 k = 0; k < c->p->output.n; k++)
        mark_size(c, c->m->out[k].h), mark_size(c, c->m->out[k].w);
    buf_z(c->b, "// width and height of the network's inputs and outputs\n"
                "static inline void\n"
                "denox_image_sizes");
    put_suffix(c->b, c->m);
    buf_char(c->b, '(');
    vkdt_print_vars(c->b, c->m, "int64_t ");
    buf_z(c->b, "dt_roi_t *in, dt_roi_t *out)\n{\n");
    put_sizes(c);
    put_images(c, "in", c->m->in, c->p->input.n);
    put_images(c, "out", c->m->out, c->p->output.n);
    buf_z(c->b, "}\n\n");
}

static void put_read_source(struct coder *c)
{
    buf_z(c->b, "static inline int\ndenox_read_source");
    put_suffix(c->b, c->m);
    buf_z(c->b, "(dt_module_t *module, void *mapped, dt_read_source_params_t *p)\n{\n"
                "  if(p->node->kernel != dt_token(\"weights\")) return 0;\n");
    buf_printf(c->b,
               "  const size_t size = %lld;\n"
               "  FILE *f = dt_graph_open_resource(module->graph, 0, \"%.*s\", \"rb\");\n"
               "  const int ok = f && fread(mapped, 1, size, f) == size && fgetc(f) == EOF;\n"
               "  if(f) fclose(f);\n"
               "  return ok ? 0 : denox_fail(module->graph,\n"
               "      \"%s: weights are missing or of another version\");\n"
               "}\n\n",
               (long long)c->m->weights, STR_ARG(c->m->resource), c->n->module);
}

static void put_ends(struct coder *c, const char *what, u32 n)
{
    for (u32 k = 0; k < n; k++)
        buf_printf(c->b, ",\n    int %s%u_id, const char *%s%u_connector", what, k, what, k);
}

static void put_create_nodes(struct coder *c)
{
    forget_sizes(c);
    mark_sizes(c);
    buf_z(c->b, "// adds the network's nodes and connects them to the given ones; 0: done\n"
                "static inline int\ndenox_create_nodes");
    put_suffix(c->b, c->m);
    buf_z(c->b, "(dt_graph_t *graph, dt_module_t *module");
    for (u32 v = 0; v < c->p->sym.var.n; v++) {
        buf_z(c->b, v ? ", int64_t " : ",\n    int64_t ");
        put_var(c->b, &c->p->sym, v);
    }
    put_ends(c, "input", c->p->input.n);
    put_ends(c, "output", c->p->output.n);
    buf_z(c->b, ")\n{\n");
    put_sizes(c);
    put_weights_check(c);
    put_checks(c);
    put_nodes(c);
    buf_z(c->b, "  return 0;\n}\n");
}

void vkdt_print_model(struct buf *b, const struct vkdt_model *m, const struct vkdt_names *n)
{
    struct coder c = {.b = b, .m = m, .n = n, .p = m->plan};
    c.num = arena_array(&c.a, u32, c.p->sym.node.n);
    buf_z(b, "// network '");
    put_comment(b, c.p->model);
    buf_printf(b,
               "' as nodes of vkdt, written by quern: %u dispatches, %u kernels.\n"
               "// changes are lost with the next export.\n#pragma once\n"
               "#include \"modules/api.h\"\n#include <stdint.h>\n#include <stdio.h>\n\n",
               m->node.n, m->kernel.n);
    put_helpers(b);
    put_image_sizes(&c);
    put_read_source(&c);
    put_create_nodes(&c);
    arena_release(&c.a);
}
