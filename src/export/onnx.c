// SPDX-License-Identifier: Apache-2.0
//
// Exporter onnx: the network as an ONNX file. Implemented in export_onnx.c, which has other
// callers, too.
#include "export/export.h"

static bool onnx_write(const struct export_job *j, struct err *e)
{
    if (!j->graph) return err_set(e, ERR_USAGE, "export to onnx needs a network, not a compiled program");
    if (!j->path) return err_set(e, ERR_USAGE, "-o is missing");
    return export_onnx_graph(j->graph, j->path, e);
}

const struct exporter export_onnx = {
    .name = "onnx",
    .summary = "ONNX model, opset 18",
    .write = onnx_write,
};
