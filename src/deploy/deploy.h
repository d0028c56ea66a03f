// SPDX-License-Identifier: Apache-2.0
//
// deploy: the files of a sub-graph for runtimes other than quern's: the network in the form that a vendor's converter reads, samples of its
// inputs for calibration, the commands that convert it, and what they make if the tools are here. A plug-in file src/deploy/NAME.c describes one
// converter and exports one `const struct deploy_backend deploy_NAME`. Sub-graphs that quern's runtime runs are programs (art/meta.h), not made here.
// Nothing is claimed that was not done: what is still missing is said in meta_subgraph.missing.
#ifndef QUERN_DEPLOY_H
#define QUERN_DEPLOY_H

#include "art/meta.h"
#include "place/place.h"

/* What the inputs of a sub-graph were in runs of the float network. */
struct deploy_samples {
    struct tensor ***v;       /* per sample, an array with a tensor per input of the sub-graph's network */
    u32 n, cap;               /* n 0: there are none */
};

struct deploy_job {
    struct str module;        /* "MediapipeNet" */
    struct str folder;        /* "Subgraph_1" */
    struct str name;          /* of its files: "subgraph_1" */
    const struct place_device *device;
    const struct graph *graph; /* the sub-graph as a network of its own; inferred */
    const struct deploy_samples *samples;
    bool is_f16;              /* floats may be f16 */
    /* The network in 8 bits (QDQ form), calibrated on the samples. Made on demand: NULL without samples. */
    bool (*quantize)(void *user, struct graph *to, struct arena *a, struct err *e);
    void *user;
    bool no_tools;            /* converters are not run although they are on PATH */
    const struct log *log;
    const struct stop *stop;
    struct arena *arena;      /* of everything that is made */
};

struct deploy_backend {
    const char *kind;         /* of devices: "HEXAGON" */
    const char *framework;    /* what runs the result: "snpe" */
    bool needs_samples;       /* without calibration data it can only describe how to go on */
    /* Adds the files, and fills in framework, target and missing. */
    bool (*write)(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e);
};
const struct deploy_backend *deploy_find(struct str kind); /* NULL: none */
const struct deploy_backend *deploy_all(i64 k);            /* k-th, NULL after the last */

/* deploy.c: shared by the back ends. */
/* Adds a file of the sub-graph, "convert.sh", with its size and digest; the content must stay valid. */
bool deploy_add(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_job *j, const char *name, enum meta_role role, struct str content,
                struct err *e);
/* The sub-graph as ONNX of that opset, with sizes that are numbers; ERR_UNSUPPORTED names the node that it cannot express. */
bool deploy_onnx(struct str *bytes, const struct deploy_job *j, i64 opset, struct err *e);
/* Writes the files into a temporary folder and runs the script there, if all tools (names, ended by NULL) are on PATH; then reads the product. *made: it was run.
   A script that fails is an error with the end of its output. */
bool deploy_convert(struct str *product, bool *made, const struct meta_contents *files, const struct deploy_job *j, const char *script,
                    const char *const *tool, const char *product_name, struct err *e);

#endif
