// SPDX-License-Identifier: Apache-2.0
//
// Exporter tflite: a network as a model of TFLite (LiteRT), in f32, or in i8 where it is quantised.
// Implemented in export_tflite.c, which has other callers, too.
#include "export/export.h"

#include <string.h>

static bool read_options(struct export_tflite_opts *o, const struct export_job *j, struct err *e)
{
    const char *layout = export_option(j, "layout"), *type = export_option(j, "interface");
    const char *device = export_option(j, "for");
    *o = (struct export_tflite_opts){.log = j->log, .is_for_edgetpu = device};
    if (layout && strcmp(layout, "nchw") && strcmp(layout, "nhwc"))
        return err_set(e, ERR_USAGE, "--layout is nchw or nhwc, not '%s'", layout);
    o->is_channels_last = layout && !strcmp(layout, "nhwc");
    if (type && !strcmp(type, "int8")) o->type = EXPORT_TFLITE_I8;
    if (type && !strcmp(type, "uint8")) o->type = EXPORT_TFLITE_U8;
    if (type && !o->type && strcmp(type, "f32"))
        return err_set(e, ERR_USAGE, "--interface is f32, int8 or uint8, not '%s'", type);
    if (device && strcmp(device, "edgetpu"))
        return err_set(e, ERR_USAGE, "--for is edgetpu, not '%s'", device);
    return true;
}

static bool tflite_write(const struct export_job *j, struct err *e)
{
    struct export_tflite_opts o;
    if (!j->graph)
        return err_set(e, ERR_USAGE, "export to tflite needs a network, not a compiled program");
    if (!j->path) return err_set(e, ERR_USAGE, "-o is missing");
    return read_options(&o, j, e) && export_tflite_graph(j->graph, &o, j->path, e);
}

const struct exporter export_tflite = {
    .name = "tflite",
    .summary = "model of TFLite (LiteRT), f32 or int8; for the Edge TPU, too",
    .write = tflite_write,
};
