// SPDX-License-Identifier: Apache-2.0
//
// export: conversion of networks and programs to other formats. A plug-in file src/export/NAME.c describes
// one target format and exports one `const struct exporter export_NAME`. Exporters do not modify their input.
#ifndef QUERN_EXPORT_H
#define QUERN_EXPORT_H

#include "ir/ir.h"

struct plan;
struct lang;

struct export_job {
    const struct graph *graph;       /* the network; NULL: only plans are available */
    const struct plan *const *plan;  /* programs */
    u32 n_plan;                      /* 0: not compiled; several if a format supports several */
    const char *path;                /* file or folder to write, depending on the exporter */
    const char *const *option;       /* "name=value", ended by NULL: options of the exporter */
    const struct log *log;           /* NULL: silent */
    const struct export_sample *sample; /* of exporters with a target: inputs and what the network makes of them */
    u32 n_sample;
};

/* What the reference evaluator computes, to test exported code with. */
struct export_sample {
    const struct tensor **in, **out;  /* per input and output of the program */
    double *rtol, *atol;              /* per output: tolerance, see tensor_compare */
};

/* What programs are made for that an exporter takes, where it takes networks. */
struct export_target {
    struct caps caps;
    const struct lang *lang;
};

struct exporter {
    const char *name;          /* "onnx": the name for --to */
    const char *summary;       /* one-line summary */
    /* Optional: the target of the options. Of a network the caller then makes one program for it, with samples. */
    bool (*target)(const struct export_job *j, struct export_target *t, struct err *e);
    bool (*write)(const struct export_job *j, struct err *e);
};

/* export.c: the registry */
const struct exporter *export_find(struct str name); /* NULL: none */
const struct exporter *export_all(i64 k);            /* k-th, NULL after the last */
/* Its last value, NULL: not given. */
const char *export_option(const struct export_job *j, const char *name);
/* The network as an ONNX model, with constants as initializers. Every value needs dtype and rank. */
bool export_onnx_graph(const struct graph *g, const char *path, struct err *e);
/* Likewise; if all constants have more than `most` bytes, those of 1 KiB and more are in a file beside it, PATH.data. (export_onnx_graph:
   where a file of 2 GiB, the largest that ONNX allows, could not hold them.) */
bool export_onnx_split(const struct graph *g, const char *path, i64 most, struct err *e);
bool export_onnx_bytes(const struct graph *g, struct buf *out, struct err *e);
/* Likewise in an opset from EXPORT_OLDEST_OPSET to EXPORT_OPSET, and of ONNX's own domain alone. ERR_UNSUPPORTED: a node that it cannot express. */
enum { EXPORT_OLDEST_OPSET = 13, EXPORT_OPSET = 18 };
bool export_onnx_bytes_at(const struct graph *g, i64 opset, struct buf *out, struct err *e);
bool export_onnx_graph_at(const struct graph *g, i64 opset, const char *path, struct err *e);
/* export_opset.c: that vocabulary: `to` shares g's symbols and constants; in the arena. */
bool export_opset_lower(struct graph *to, const struct graph *g, i64 opset, struct arena *a, struct err *e);

/* What viewers of networks show beside it: */
struct export_onnx_notes {
    struct map node;     /* name of a node's first output -> its documentation, const char * */
    struct map property; /* of the model: key -> const char * */
};
/* The network with notes, and with the types of all values. */
bool export_onnx_noted(const struct graph *g, const struct export_onnx_notes *notes, const char *path, struct err *e);

/* export_tflite.c: the network as a model of TFLite (doc/export-tflite.md); sizes are fixed. Needs flatc. */
enum export_tflite_type { EXPORT_TFLITE_F32, EXPORT_TFLITE_I8, EXPORT_TFLITE_U8 };
struct export_tflite_opts {
    bool is_channels_last;         /* inputs and outputs of three and more axes; else the network's axes */
    enum export_tflite_type type;  /* of inputs and outputs that are quantised; F32: the network's */
    bool is_for_edgetpu;           /* refuse what the Edge TPU's compiler does not map to the device */
    const struct log *log;         /* NULL: silent */
};
bool export_tflite_graph(const struct graph *g, const struct export_tflite_opts *o, const char *path, struct err *e);
bool export_tflite_bytes(const struct graph *g, const struct export_tflite_opts *o, struct buf *out, struct err *e);

/* export_tflite_edgetpu.c: the command that compiles a model for the Edge TPU: a line of shell, without its end. Of
   MODEL.tflite it makes FOLDER/MODEL_edgetpu.tflite, and MODEL_edgetpu.log beside it. */
void export_edgetpu_command(struct buf *b, const char *model, const char *folder);

#endif
