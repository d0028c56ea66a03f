// SPDX-License-Identifier: Apache-2.0
//
// A sub-graph as vendors' converters take it. They want sizes that are numbers, no arithmetic on shapes, and names that need no quotes in their
// lists of files and options.
#include "deploy/deploy.h"

#include "export/export.h"
#include "op/op.h"

/* Sizes. */

static bool is_static(const struct graph *g, const struct value_list *list, value_id *which)
{
    i64 dim[MAX_RANK];
    for (u32 k = 0; k < list->n; k++)
        if (!shape_is_static(g->sym, &graph_value(g, list->v[k])->shape, dim)) return *which = list->v[k], false;
    return true;
}

static bool not_static(const struct deploy_job *j, value_id v, struct err *e)
{
    const struct value *x = graph_value(j->graph, v);
    struct graph *g = (struct graph *)(uintptr_t)j->graph; /* its symbols, for the text */
    struct str shape = op_shape_text(g, &x->shape);
    return err_set(e, ERR_UNSUPPORTED,
                   "%s takes sizes that are numbers, '%.*s' is %.*s: fix them when the network is opened (--assume H:224,W:224, --input-shape)",
                   j->device->kind->name, STR_ARG(x->name), STR_ARG(shape));
}

/* "H:32,'odd name':3" of the sizes that the first sample has. */
static bool put_sizes(struct buf *b, const struct deploy_job *j, struct err *e)
{
    const struct graph *g = j->graph;
    i64 *var = arena_array(j->arena, i64, g->sym->var.n + 1);
    if (!graph_bind(g, j->samples->v[0], var, e)) return err_prefix(e, "calibration data");
    for (u32 k = 0; k < g->sym->var.n; k++)
        if (var[k] != INT64_MIN && !graph_made(g, k)) buf_printf(b, "%s%.*s:%lld", b->n ? "," : "", STR_ARG(g->sym->var.v[k]), (long long)var[k]);
    return true;
}

/* The network again, with these sizes. */
static bool open_fixed(struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    struct buf sizes = {0}, bytes = {0};
    bool ok = put_sizes(&sizes, j, e) && export_onnx_bytes(j->graph, &bytes, e);
    struct str content = deploy_text(j, &bytes), text = deploy_text(j, &sizes);
    const struct model_source from = {.path = str_z(j->arena, j->name), .bytes = content};
    x->m = ok ? model_open(&from, &(struct model_opts){.assume = text.n ? text.p : NULL}, e) : NULL;
    if (x->m) graph_clone(&x->g, &x->m->graph, j->arena);
    return x->m != NULL;
}

/* Names. */

static bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

static bool is_taken(const struct graph *g, struct str name, value_id own)
{
    for (value_id v = 1; v < g->value.n; v++)
        if (v != own && str_eq(graph_value(g, v)->name, name)) return true;
    return false;
}

static void rename_plainly(struct graph *g, value_id v, struct arena *a)
{
    struct str old = graph_value(g, v)->name, name;
    char *p = arena_array(a, char, old.n + 2);
    i64 n = 0;
    if (!old.n || (old.p[0] >= '0' && old.p[0] <= '9')) p[n++] = '_';
    for (i64 i = 0; i < old.n; i++) p[n++] = is_plain(old.p[i]) ? old.p[i] : '_';
    name = (struct str){p, n};
    for (u32 k = 2; is_taken(g, name, v); k++) name = str_fmt(a, "%.*s_%u", (int)n, p, k);
    graph_value(g, v)->name = name;
}

/* An input that is an output, too, has two names then. */
static void rename_interface(struct graph *g, struct arena *a)
{
    for (u32 k = 0; k < g->output.n; k++) {
        value_id v = g->output.v[k];
        bool seen = graph_value(g, v)->producer == 0;
        for (u32 i = 0; i < k; i++) seen |= g->output.v[i] == v;
        if (seen) g->output.v[k] = op_node1(g, 0, "Identity", v, 0);
    }
    for (u32 k = 0; k < g->input.n; k++) rename_plainly(g, g->input.v[k], a);
    for (u32 k = 0; k < g->output.n; k++) rename_plainly(g, g->output.v[k], a);
}

/* Types. */

static void f16_input(struct graph *g, u32 k)
{
    value_id in = g->input.v[k];
    struct value old = *graph_value(g, in);
    if (!dtype_is_float(old.dtype) || old.dtype == DT_F16) return;
    value_id narrow = graph_add_value(g, old.name);
    graph_value(g, narrow)->dtype = DT_F16, graph_value(g, narrow)->shape = old.shape;
    graph_swap_names(g, in, narrow);
    g->input.v[k] = narrow;
    op_node_cast(g, 0, narrow, old.dtype, in);
}

static void f16_output(struct graph *g, u32 k)
{
    value_id out = g->output.v[k];
    struct value old = *graph_value(g, out);
    if (!dtype_is_float(old.dtype) || old.dtype == DT_F16) return;
    value_id narrow = op_node_cast(g, 0, out, DT_F16, 0);
    graph_value(g, narrow)->dtype = DT_F16, graph_value(g, narrow)->shape = old.shape;
    graph_swap_names(g, out, narrow);
    g->output.v[k] = narrow;
}

static bool complete(struct deploy_net *x, const struct deploy_job *j, bool f16, struct err *e)
{
    struct graph *g = &x->g;
    node_id first = g->node.n;
    value_id v;
    if (!is_static(g, &g->input, &v) || !is_static(g, &g->output, &v))
        return err_set(e, ERR_UNSUPPORTED, "%s takes sizes that are numbers, those of '%.*s' depend on data", j->device->kind->name,
                       STR_ARG(graph_value(g, v)->name));
    rename_interface(g, j->arena);
    for (u32 k = 0; f16 && k < g->input.n; k++) f16_input(g, k);
    for (u32 k = 0; f16 && k < g->output.n; k++) f16_output(g, k);
    return op_infer_from(g, first, e);
}

bool deploy_net_open(struct deploy_net *x, const struct deploy_job *j, bool f16, struct err *e)
{
    value_id v;
    *x = (struct deploy_net){0};
    if (is_static(j->graph, &j->graph->input, &v) && !j->graph->made.n) graph_clone(&x->g, j->graph, j->arena);
    else if (!j->samples->n) return not_static(j, is_static(j->graph, &j->graph->input, &v) ? j->graph->output.v[0] : v, e);
    else if (!open_fixed(x, j, e)) return false;
    bool ok = complete(x, j, f16, e);
    if (!ok) deploy_net_close(x);
    return ok;
}

void deploy_net_close(struct deploy_net *x)
{
    model_close(x->m);
    x->m = NULL;
}

bool deploy_check_batch(const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    i64 n;
    for (u32 k = 0; k < x->g.input.n; k++) {
        const struct value *v = graph_value(&x->g, x->g.input.v[k]);
        bool has_batch = v->shape.rank == 4 || v->shape.rank == 5;
        if (has_batch && sym_is_const(x->g.sym, v->shape.dim[0], &n) && n != 1)
            return err_set(e, ERR_UNSUPPORTED, "%s's converter takes a batch of 1, input '%.*s' has %lld: open the network with a batch of 1", j->device->kind->name,
                           STR_ARG(v->name), (long long)n);
    }
    return true;
}

bool deploy_onnx(struct str *bytes, const struct deploy_net *x, const struct deploy_job *j, i64 opset, struct err *e)
{
    struct buf b = {0};
    bool ok = export_onnx_bytes_at(&x->g, opset, &b, e);
    *bytes = deploy_text(j, &b);
    return ok;
}

bool deploy_add_onnx(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, i64 opset, struct err *e)
{
    struct str onnx;
    return deploy_onnx(&onnx, x, j, opset, e) && deploy_add(files, s, j, deploy_file(j, ".onnx").p, META_NETWORK, onnx, e);
}

bool deploy_with_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, bool f16, deploy_net_fn *fn, struct err *e)
{
    struct deploy_net x;
    if (!deploy_net_open(&x, j, f16, e)) return false;
    bool ok = fn(s, files, &x, j, e);
    deploy_net_close(&x);
    return ok;
}
