// SPDX-License-Identifier: Apache-2.0
//
// CV22: Ambarella's CVflow, by CNNGen, which is to be had under a non-disclosure agreement. The sub-graph as ONNX, its recorded inputs as lists of
// files, and a script with the commands of its tools as public users of them have them.
#include "deploy/deploy.h"

enum { OPSET = 13 };

static const struct deploy_raw raw = {"calib", ".bin", DEPLOY_ROWS};

/* Of one input dra_bin_list.txt, of several dra_bin_list_NAME.txt. */
static struct str list_name(const struct deploy_net *x, const struct deploy_job *j, u32 input)
{
    if (x->g.input.n == 1) return S("dra_bin_list.txt");
    return str_fmt(j->arena, "dra_bin_list_%.*s.txt", STR_ARG(graph_value(&x->g, x->g.input.v[input])->name));
}

static struct str list_of(const struct deploy_net *x, const struct deploy_job *j, u32 input)
{
    struct buf b = {0};
    for (u32 k = 0; k < j->samples->n; k++) buf_printf(&b, "%.*s\n", STR_ARG(deploy_raw_path(x, j, &raw, input, k)));
    return deploy_text(j, &b);
}

static void put_sources(struct buf *b, const struct deploy_net *x, const struct deploy_job *j)
{
    const struct graph *g = &x->g;
    i64 n;
    for (u32 k = 0; k < g->input.n; k++) {
        const struct value *v = graph_value(g, g->input.v[k]);
        struct str list = list_name(x, j, k);
        buf_z(b, " \\\n    -isrc 'is:");
        for (u32 a = 0; a < v->shape.rank && sym_is_const(g->sym, v->shape.dim[a], &n); a++) buf_printf(b, "%s%lld", a ? "," : "", (long long)n);
        buf_printf(b, "|iq|idf:fp32|i:%.*s=%.*s'", STR_ARG(v->name), STR_ARG(list));
    }
    for (u32 k = 0; k < g->output.n; k++) buf_printf(b, " \\\n    -odst 'o:%.*s|odf:fp32'", STR_ARG(graph_value(g, g->output.v[k])->name));
}

static struct str script_of(const struct deploy_net *x, const struct deploy_job *j)
{
    struct buf b = {0};
    deploy_put_head(&b, j, "ONNX to a program of CVflow");
    buf_printf(&b,
               "# CVFLOW_ENV: the SDK's file with its environment, .../env/cv22.env. COERCE: 8 bits by default; act-allow-fp16,coeff-force-fx16 ..\n"
               "\n"
               "# shellcheck disable=SC1090 # the user's\n"
               "[ -z \"${CVFLOW_ENV-}\" ] || . \"$CVFLOW_ENV\"\n"
               "for tool in graph_surgery.py onnxparser.py vas cavalry_gen; do\n"
               "    have \"$tool\" || fail \"$tool is not on PATH: set CVFLOW_ENV to the environment of Ambarella's CNNGen\"\n"
               "done\n"
               "run graph_surgery.py onnx -m %.*s.onnx -o surgery.onnx -t Default\n"
               "run onnxparser.py -m surgery.onnx -o %.*s -of parsed -c \"${COERCE-act-force-fx8,coeff-force-fx8}\"",
               STR_ARG(j->name), STR_ARG(j->name));
    put_sources(&b, x, j);
    buf_printf(&b,
               "\n"
               "cd parsed\n"
               "run vas -auto -show-progress %.*s.vas\n"
               "run cavalry_gen -d vas_output/ -f ../%.*s.bin\n",
               STR_ARG(j->name), STR_ARG(j->name));
    return deploy_text(j, &b);
}

static bool add_samples(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    for (u32 i = 0; j->samples->n && i < x->g.input.n; i++)
        if (!deploy_add(files, s, j, list_name(x, j, i).p, META_CALIBRATION, list_of(x, j, i), e)) return false;
    return deploy_add_raw(files, s, x, j, &raw, e);
}

static bool write_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    const struct deploy_script script = {.script = "convert.sh",
                                         .tools = "graph_surgery.py onnxparser.py vas cavalry_gen",
                                         .product = deploy_file(j, ".bin").p,
                                         .role = META_BLOB};
    bool made = false;
    if (!deploy_check_batch(x, j, e) || !deploy_check_samples(x, j, e)) return false;
    bool ok = deploy_add_onnx(files, s, x, j, OPSET, e) && add_samples(files, s, x, j, e) &&
              deploy_add(files, s, j, script.script, META_SCRIPT, script_of(x, j), e) && (!j->samples->n || deploy_convert(&made, files, s, j, &script, e));
    s->target = S("CV22");
    if (!made) s->missing = str_fmt(j->arena, "%.*s (Ambarella's CNNGen)", STR_ARG(deploy_to_run(j, &script)));
    if (!j->samples->n) s->missing = str_fmt(j->arena, "deploy with calibration data, then %.*s", STR_ARG(s->missing));
    return ok;
}

static bool cv22_write(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    s->framework = S("cvflow");
    return deploy_with_net(s, files, j, false, write_net, e);
}

const struct deploy_backend deploy_cv22 = {.kinds = "CV22", .framework = "cvflow", .needs_samples = true, .write = cv22_write};
