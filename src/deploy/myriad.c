// SPDX-License-Identifier: Apache-2.0
//
// MYRIAD: Intel's Myriad X, by OpenVINO 2022.3, the last release that has it. The sub-graph as ONNX, and a script with the command of its compile_tool,
// which needs no device. The device computes in f16, whatever the network's types are; with --f16 inputs and outputs are f16, too.
#include "deploy/deploy.h"

enum { OPSET = 13 };

static struct str script_of(const struct deploy_job *j)
{
    const char *type = j->is_f16 ? "FP16" : "FP32";
    struct buf b = {0};
    deploy_put_head(&b, j, "ONNX to a blob of OpenVINO 2022.3");
    buf_printf(&b,
               "# SHAVES: cores, and slices of memory, that the program may use; all of them if it is not set.\n"
               "\n"
               "have compile_tool || fail 'compile_tool is not on PATH: source setupvars.sh of OpenVINO 2022.3, and build or install its developer package'\n"
               "limits=''\n"
               "[ -z \"${SHAVES-}\" ] || limits=\"-VPU_NUMBER_OF_SHAVES $SHAVES -VPU_NUMBER_OF_CMX_SLICES $SHAVES\"\n"
               "# shellcheck disable=SC2086 # options\n"
               "run compile_tool -m %.*s.onnx -d MYRIAD -o %.*s.blob -ip %s -op %s $limits\n",
               STR_ARG(j->name), STR_ARG(j->name), type, type);
    return deploy_text(j, &b);
}

static bool write_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e)
{
    const struct deploy_script script = {.script = "convert.sh", .tools = "compile_tool", .product = deploy_file(j, ".blob").p, .role = META_BLOB};
    bool made = false;
    bool ok = deploy_add_onnx(files, s, x, j, OPSET, e) &&
              deploy_add(files, s, j, script.script, META_SCRIPT, script_of(j), e) && deploy_convert(&made, files, s, j, &script, e);
    s->target = S("MYRIAD, OpenVINO 2022.3");
    if (!made) s->missing = str_fmt(j->arena, "%.*s (OpenVINO 2022.3)", STR_ARG(deploy_to_run(j, &script)));
    return ok;
}

static bool myriad_write(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e)
{
    s->framework = S("openvino-2022.3");
    return deploy_with_net(s, files, j, j->is_f16, write_net, e);
}

const struct deploy_backend deploy_myriad = {.kinds = "MYRIAD", .framework = "openvino-2022.3", .write = myriad_write};
