// SPDX-License-Identifier: Apache-2.0
//
// TPU: Coral's Edge TPU, which takes networks of TFLite in 8 bits only. The sub-graph, quantised by quern on its recorded inputs, as a .tflite file, and a
// script with Coral's compiler for it. Without that compiler the file runs on processors by LiteRT, not on the device.
#include "deploy/deploy.h"
#include "export/export.h"

enum { MAX_FILE = 1 << 30 };

static struct str script_of(const struct deploy_job *j)
{
    struct buf b = {0};
    deploy_put_head(&b, j, "TFLite in 8 bits to a program of the Edge TPU");
    buf_printf(&b,
               "\n"
               "have edgetpu_compiler || fail 'edgetpu_compiler is not on PATH: https://coral.ai/docs/edgetpu/compiler'\n"
               "run edgetpu_compiler -s -o . %.*s.tflite\n",
               STR_ARG(j->name));
    return deploy_text(j, &b);
}

/* By the exporter, which writes files. */
static bool tflite_of(struct str *out, const struct deploy_net *x, const struct deploy_job *j, const struct exporter *to, struct err *e)
{
    static const char *const options[] = {"for=edgetpu", NULL};
    struct str folder;
    if (!os_temp_dir(j->arena, &folder, e)) return false;
    const char *path = str_fmt(j->arena, "%.*s/net.tflite", STR_ARG(folder)).p;
    const struct export_job job = {.graph = &x->g, .path = path, .option = options, .log = j->log};
    bool ok = to->write(&job, e) && os_read(j->arena, path, MAX_FILE, out, e);
    os_remove_tree(folder.p);
    return ok;
}

static bool write_quantised(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, const struct exporter *to, struct err *e)
{
    const struct deploy_script script = {
        .script = "convert.sh", .tools = "edgetpu_compiler", .product = deploy_file(j, "_edgetpu.tflite").p, .role = META_BLOB};
    struct graph *q = arena_new(j->arena, struct graph);
    struct deploy_job of_q = *j;
    struct deploy_net x;
    struct str content;
    bool made = false;
    if (!j->quantize(j->user, q, j->arena, e)) return err_prefix(e, "quantisation");
    of_q.graph = q;
    if (!deploy_net_open(&x, &of_q, false, e)) return false;
    bool ok = deploy_check_samples(&x, j, e) && tflite_of(&content, &x, j, to, e);
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
    const struct exporter *to = export_find(S("tflite"));
    s->framework = S("tflite");
    s->target = S("Edge TPU");
    if (!j->quantize || !j->samples->n) return deploy_with_net(s, files, j, false, write_plain, e);
    if (!to) return err_set(e, ERR_UNSUPPORTED, "this build has no exporter for TFLite");
    return write_quantised(s, files, j, to, e);
}

const struct deploy_backend deploy_tpu = {.kinds = "TPU", .framework = "tflite", .needs_samples = true, .write = tpu_write};
