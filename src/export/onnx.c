// SPDX-License-Identifier: Apache-2.0
//
// Exporter onnx: the network as an ONNX file. Implemented in export_onnx.c, which has other
// callers, too.
#include "export/export.h"

static bool onnx_write(const struct export_job *j, struct err *e)
{
    if (!j->graph) return err_set(e, ERR_USAGE, "export to onnx needs a network, not a compiled program");
    if (!j->path) return err_set(e, ERR_USAGE, "-o is missing");
    const char *opset = export_option(j, "opset");
    i64 v;
    if (!opset) return export_onnx_graph(j->graph, j->path, e);
    if (!str_to_i64(str_of(opset), &v)) return err_set(e, ERR_USAGE, "option opset: '%s' is not a number", opset);
    return export_onnx_graph_at(j->graph, v, j->path, e);
}

const struct exporter export_onnx = {
    .name = "onnx",
    .summary = "ONNX model, opset 18 or an older one",
    .write = onnx_write,
};
