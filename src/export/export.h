// SPDX-License-Identifier: Apache-2.0
//
// export: networks and programs in other forms. A plug-in file src/export/NAME.c describes one target form and exports one
// `const struct exporter export_NAME`. Exporters read what they are given and change nothing.
#ifndef QUERN_EXPORT_H
#define QUERN_EXPORT_H

#include "ir/ir.h"

struct plan;

struct export_job {
    const struct graph *graph;       /* the network; NULL: the exporter must do with the plans */
    const struct plan *const *plan;  /* programs */
    u32 n_plan;                      /* 0: not compiled; several where a form holds several */
    const char *path;                /* file or folder to write, as the exporter says */
    const char *const *option;       /* "name=value", ended by NULL: what the exporter knows of */
    const struct log *log;           /* NULL: silent */
};

struct exporter {
    const char *name;          /* "onnx": what --to names */
    const char *summary;       /* one line for people */
    bool (*write)(const struct export_job *j, struct err *e);
};

/* export.c: the registry */
const struct exporter *export_find(struct str name); /* NULL: none */
const struct exporter *export_all(i64 k);            /* k-th, NULL behind the last */
/* Its last value, NULL: not given. */
const char *export_option(const struct export_job *j, const char *name);
/* The network as an ONNX model; constants as initializers. Every value needs dtype and rank. */
bool export_onnx_graph(const struct graph *g, const char *path, struct err *e);
bool export_onnx_bytes(const struct graph *g, struct buf *out, struct err *e);

#endif
