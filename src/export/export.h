// SPDX-License-Identifier: Apache-2.0
//
// export: networks and programs in other forms. A plug-in file src/export/NAME.c describes one target form and exports one
// `const struct exporter export_NAME`. Exporters read what they are given and change nothing.
#ifndef QUERN_EXPORT_H
#define QUERN_EXPORT_H

#include "ir/ir.h"

struct plan;

struct export_job {
    const struct graph *graph; /* the network; NULL: the exporter must do with the plan */
    const struct plan *plan;   /* the program; NULL: not compiled */
    const char *path;          /* file or folder to write, as the exporter says */
};

struct exporter {
    const char *name;          /* "onnx": what --to names */
    const char *summary;       /* one line for people */
    bool (*write)(const struct export_job *j, struct err *e);
};

/* export.c: the registry */
const struct exporter *export_find(struct str name); /* NULL: none */
const struct exporter *export_all(i64 k);            /* k-th, NULL behind the last */
/* The network as an ONNX model; constants as initializers. Every value needs dtype and rank. */
bool export_onnx_graph(const struct graph *g, const char *path, struct err *e);
bool export_onnx_bytes(const struct graph *g, struct buf *out, struct err *e);

#endif
