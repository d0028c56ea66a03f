// SPDX-License-Identifier: Apache-2.0
//
// TPU: Coral's Edge TPU, which takes networks of TFLite in 8 bits only. The sub-graph, quantised by quern on its recorded inputs, as a .tflite file, and a
// script with Coral's compiler for it. Without that compiler the file runs on processors by LiteRT, not on the device.
#include "deploy/deploy.h"
#include "export/export.h"

static struct str script_of(const struct deploy_job *j)
{
    struct buf b = {0};
    deploy_put_head(&b, j, "TFLite in 8 bits to a program of the Edge TPU");
    buf_z(&b,
               "\n"
               "have edgetpu_compiler || fail 'edgetpu_compiler is not on PATH: https://coral.ai/docs/edgetpu/compiler'\n"
               "run ");
    export_edgetpu_command(&b, deploy_file(j, ".tflite").p, ".");
    buf_char(&b, '\n');
    return deploy_text(j, &b);
}

static bool write_quantised(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    const struct export_tflite_opts opts = {.log = j->log, .is_for_edgetpu = true};
    const struct deploy_script script = {
        .script = "convert.sh", .tools = "edgetpu_compiler", .product = deploy_file(j, "_edgetpu.tflite").p, .role = META_BLOB};
    struct graph *q = arena_new(j->arena, struct graph);
    struct deploy_job of_q = *j;
    struct deploy_net x;
    struct buf b = {0};
    bool made = false;
    if (!j->quantize(j->user, q, j->arena, e)) return err_prefix(e, "quantisation");
    of_q.graph = q;
    if (!deploy_net_open(&x, &of_q, false, e)) return false;
    bool ok = deploy_check_samples(&x, j, e) && export_tflite_bytes(&x.g, &opts, &b, e);
    struct str content = deploy_text(j, &b);
    deploy_net_close(&x);
    ok = ok && deploy_add(files, s, j, deploy_file(j, ".tflite").p, META_NETWORK, content, e) &&
         deploy_add(files, s, j, script.script, META_SCRIPT, script_of(j), e) && deploy_convert(&made, files, s, j, &script, e);
    if (!made) s->missing = str_fmt(j->arena, "%.*s; until then %.*s.tflite runs on processors only", STR_ARG(deploy_to_run(j, &script)), STR_ARG(j->name));
    return ok;
}

/* What there is without calibration data: the network in floats. */
static bool write_plain(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    s->missing = S("the Edge TPU computes in 8 bits: deploy with calibration data");
    return deploy_add_onnx(files, s, x, j, EXPORT_OPSET, e);
}

static bool tpu_write(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    s->framework = S("tflite");
    s->target = S("Edge TPU");
    if (!j->quantize || !j->samples->n) return deploy_with_net(s, files, j, false, write_plain, e);
    return write_quantised(s, files, j, e);
}

const struct deploy_backend deploy_tpu = {.kinds = "TPU", .framework = "tflite", .needs_samples = true, .write = tpu_write};
