// SPDX-License-Identifier: Apache-2.0
//
// HEXAGON: Qualcomm's DSP and HTP, by SNPE (QAIRT). The sub-graph as ONNX, its recorded inputs with the lists that the quantiser reads, and a
// script with the commands of converter, quantiser and cache generator.
//
// Today's converter keeps the network's layouts, as the older one does if it is told to (--preserve_io). Before it had that option, inputs
// became channels last, so there is a second set of files and a list for it, where inputs have three axes and more.
#include "deploy/deploy.h"

enum { OPSET = 17 };

static const struct deploy_raw rows = {"calib", ".raw", DEPLOY_ROWS}, last = {"calib_last", ".raw", DEPLOY_CHANNELS_LAST};

static bool has_channels(const struct graph *g)
{
    for (u32 k = 0; k < g->input.n; k++)
        if (graph_value(g, g->input.v[k])->shape.rank >= 3) return true;
    return false;
}

/* A line of output names, then a line per sample: a path, or name:=path of each input. */
static struct str list_of(const struct deploy_net *x, const struct deploy_job *j, const struct deploy_raw *r)
{
    const struct graph *g = &x->g;
    struct buf b = {0};
    for (u32 k = 0; k < g->output.n; k++) buf_printf(&b, "%s%.*s", k ? " " : "%", STR_ARG(graph_value(g, g->output.v[k])->name));
    buf_char(&b, '\n');
    for (u32 k = 0; k < j->samples->n; k++)
        for (u32 i = 0; i < g->input.n; i++) {
            struct str path = deploy_raw_path(x, j, r, i, k);
            if (g->input.n > 1) buf_printf(&b, "%.*s:=", STR_ARG(graph_value(g, g->input.v[i])->name));
            buf_printf(&b, "%.*s%c", STR_ARG(path), i + 1 < g->input.n ? ' ' : '\n');
        }
    return deploy_text(j, &b);
}

static void put_names(struct buf *b, const struct graph *g, const struct value_list *list, const char *between)
{
    for (u32 k = 0; k < list->n; k++) buf_printf(b, "%s%.*s", k ? between : "", STR_ARG(graph_value(g, list->v[k])->name));
}

/* Options of the older converter: -d NAME 1,3,H,W and the layout of pictures. */
static void put_inputs(struct buf *b, const struct graph *g)
{
    static const char *const layouts[] = {[3] = "NCF", [4] = "NCHW", [5] = "NCDHW"};
    i64 n;
    for (u32 k = 0; k < g->input.n; k++) {
        const struct value *v = graph_value(g, g->input.v[k]);
        buf_printf(b, " \\\n        -d %.*s ", STR_ARG(v->name));
        for (u32 a = 0; a < v->shape.rank && sym_is_const(g->sym, v->shape.dim[a], &n); a++) buf_printf(b, "%s%lld", a ? "," : "", (long long)n);
        if (v->shape.rank == 4 || v->shape.rank == 5) buf_printf(b, " --input_layout %.*s %s", STR_ARG(v->name), layouts[v->shape.rank]);
    }
    for (u32 k = 0; k < g->output.n; k++) buf_printf(b, " \\\n        --out_node %.*s", STR_ARG(graph_value(g, g->output.v[k])->name));
}

static void put_conversion(struct buf *b, const struct deploy_net *x, const struct deploy_job *j)
{
    buf_printf(b,
               "\n# To a container in floats. The list of calibration data is that of the layout which the converter gives the inputs.\n"
               "list=input_list.txt\n"
               "if have qairt-converter; then\n"
               "    run qairt-converter --input_network %.*s.onnx --output_path float.dlc\n"
               "elif have snpe-onnx-to-dlc; then\n"
               "    keep='--preserve_io layout'\n"
               "    snpe-onnx-to-dlc --help 2>&1 | grep -q -e --preserve_io || keep='' list=%s\n"
               "    # shellcheck disable=SC2086 # options\n"
               "    run snpe-onnx-to-dlc --input_network %.*s.onnx --output_path float.dlc $keep",
               STR_ARG(j->name), has_channels(&x->g) ? "input_list_last.txt" : "input_list.txt", STR_ARG(j->name));
    put_inputs(b, &x->g);
    buf_z(b, "\nelse fail 'neither qairt-converter nor snpe-onnx-to-dlc is on PATH: source envsetup.sh of the QAIRT or SNPE SDK'\nfi\n");
}

static void put_quantiser(struct buf *b)
{
    buf_z(b, "\n# To 8 bits: QUANTIZER_OPTIONS may have more, such as --act_bitwidth 16.\n"
             "[ -s \"$list\" ] || fail \"$list is missing: deploy with calibration data\"\n"
             "quantizer=''\n"
             "for tool in qairt-quantizer snpe-dlc-quant snpe-dlc-quantize; do\n"
             "    if have \"$tool\"; then quantizer=$tool; break; fi\n"
             "done\n"
             "[ -n \"$quantizer\" ] || fail 'no quantizer on PATH: qairt-quantizer, snpe-dlc-quant or snpe-dlc-quantize'\n"
             "# shellcheck disable=SC2086 # options\n"
             "run \"$quantizer\" --input_dlc float.dlc --input_list \"$list\" --output_dlc fixed.dlc ${QUANTIZER_OPTIONS-}\n");
}

static void put_cache(struct buf *b, const struct deploy_net *x, const struct deploy_job *j)
{
    buf_printf(b,
               "\n# The cache for the HTP of these chips; a container without one is prepared by the device when it loads it.\n"
               "if have snpe-dlc-graph-prepare; then\n"
               "    run snpe-dlc-graph-prepare --input_dlc %s.dlc --output_dlc %.*s.dlc --htp_socs \"${HTP_SOCS-sm8550}\"%s \\\n"
               "        --set_output_tensors ",
               j->is_f16 ? "float" : "fixed", STR_ARG(j->name), j->is_f16 ? " --use_float_io" : "");
    put_names(b, &x->g, &x->g.output, ",");
    buf_printf(b, "\nelse\n    echo 'snpe-dlc-graph-prepare is not on PATH: no cache'\n    cp %s.dlc %.*s.dlc\nfi\n", j->is_f16 ? "float" : "fixed",
               STR_ARG(j->name));
}

static struct str script_of(const struct deploy_net *x, const struct deploy_job *j)
{
    struct buf b = {0};
    deploy_put_head(&b, j, "ONNX to a container of SNPE (.dlc)");
    put_conversion(&b, x, j);
    if (!j->is_f16) put_quantiser(&b);
    put_cache(&b, x, j);
    return deploy_text(j, &b);
}

static bool add_samples(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    if (!j->samples->n) return true;
    if (!deploy_add(files, s, j, "input_list.txt", META_CALIBRATION, list_of(x, j, &rows), e) || !deploy_add_raw(files, s, x, j, &rows, e)) return false;
    return !has_channels(&x->g) || (deploy_add(files, s, j, "input_list_last.txt", META_CALIBRATION, list_of(x, j, &last), e) &&
                                    deploy_add_raw(files, s, x, j, &last, e));
}

static bool write_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    const struct deploy_script script = {.script = "convert.sh",
                                         .tools = j->is_f16 ? "qairt-converter|snpe-onnx-to-dlc"
                                                            : "qairt-converter|snpe-onnx-to-dlc qairt-quantizer|snpe-dlc-quant|snpe-dlc-quantize",
                                         .product = deploy_file(j, ".dlc").p,
                                         .role = META_BLOB};
    bool made = false, can_run = j->samples->n || j->is_f16;
    if (!deploy_check_batch(x, j, e) || !deploy_check_samples(x, j, e)) return false;
    bool ok = deploy_add_onnx(files, s, x, j, OPSET, e) && add_samples(files, s, x, j, e) &&
              deploy_add(files, s, j, script.script, META_SCRIPT, script_of(x, j), e) && (!can_run || deploy_convert(&made, files, s, j, &script, e));
    const char *socs = os_env("HTP_SOCS");
    s->target = str_fmt(j->arena, "%s, HTP of %s", j->is_f16 ? "f16" : "8 bits", socs && *socs ? socs : "sm8550");
    if (!made) s->missing = deploy_to_run(j, &script);
    if (!can_run) s->missing = str_fmt(j->arena, "deploy with calibration data, then %.*s", STR_ARG(s->missing));
    return ok;
}

static bool hexagon_write(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    s->framework = S("snpe");
    return deploy_with_net(s, files, j, false, write_net, e);
}

const struct deploy_backend deploy_hexagon = {.kinds = "HEXAGON", .framework = "snpe", .needs_samples = true, .write = hexagon_write};
