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
    const char *kinds;        /* of devices, words: "HEXAGON" */
    const char *framework;    /* what runs the result: "snpe" */
    bool needs_samples;       /* without calibration data it can only describe how to go on */
    /* Adds the files, and fills in framework, target and missing. */
    bool (*write)(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, struct err *e);
};
const struct deploy_backend *deploy_find(struct str kind); /* NULL: none */
const struct deploy_backend *deploy_all(i64 k);            /* k-th, NULL after the last */

/* deploy_net.c: the sub-graph as converters take it: sizes are numbers, those of the samples where they are not given; what sizes determine is constant; inputs
   and outputs have names of letters, digits and '_', the network's where possible. Types of the interface are f16 instead of f32 if `f16`. */
struct deploy_net {
    struct graph g;
    struct model *m;          /* that has its memory; NULL: the job's */
};
bool deploy_net_open(struct deploy_net *x, const struct deploy_job *j, bool f16, struct err *e);
void deploy_net_close(struct deploy_net *x);
/* Opens it for a part of a back end's work. */
typedef bool deploy_net_fn(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_net *x, const struct deploy_job *j, struct err *e);
bool deploy_with_net(struct meta_subgraph *s, struct meta_contents *files, const struct deploy_job *j, bool f16, deploy_net_fn *fn, struct err *e);
/* Every input of four or five axes has a batch of 1. */
bool deploy_check_batch(const struct deploy_net *x, const struct deploy_job *j, struct err *e);
/* As ONNX of that opset, in the job's arena; ERR_UNSUPPORTED names the node that it cannot express. */
bool deploy_onnx(struct str *bytes, const struct deploy_net *x, const struct deploy_job *j, i64 opset, struct err *e);
bool deploy_add_onnx(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, i64 opset, struct err *e);

/* deploy_samples.c: recorded inputs as files. */
enum deploy_layout { DEPLOY_ROWS, DEPLOY_CHANNELS_LAST /* axis 1 is the last one, of three and more axes */ };
/* Every sample has the shapes that the network's inputs have now. */
bool deploy_check_samples(const struct deploy_net *x, const struct deploy_job *j, struct err *e);
/* FOLDER/<input>/<k>SUFFIX: headerless little-endian content; floats are f32, integers and truth values i32. */
struct deploy_raw { const char *folder, *suffix; enum deploy_layout layout; };
bool deploy_add_raw(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_net *x, const struct deploy_job *j, const struct deploy_raw *r,
                    struct err *e);
struct str deploy_raw_path(const struct deploy_net *x, const struct deploy_job *j, const struct deploy_raw *r, u32 input, u32 k);

/* deploy.c: shared by the back ends. */
/* Adds a file of the sub-graph, "convert.sh", with its size and digest; the content must stay valid. */
bool deploy_add(struct meta_contents *files, struct meta_subgraph *s, const struct deploy_job *j, const char *name, enum meta_role role, struct str content,
                struct err *e);
struct str deploy_file(const struct deploy_job *j, const char *suffix); /* "subgraph_1.onnx" of ".onnx" */
/* The tools of a script, words; of "a|b" one is enough. */
bool deploy_has_tools(const struct deploy_job *j, const char *tools);
/* Writes the sub-graph's files into a temporary folder and runs the script there, if its tools are on PATH; then adds what it has to make. *made: it was run. A
   script that fails, or makes nothing, is an error with the end of its output. */
struct deploy_script { const char *script, *tools, *product; enum meta_role role; };
bool deploy_convert(bool *made, struct meta_contents *files, struct meta_subgraph *s, const struct deploy_job *j, const struct deploy_script *x, struct err *e);
/* "run Subgraph_1/convert.sh where a or b is on PATH": for meta_subgraph.missing. */
struct str deploy_to_run(const struct deploy_job *j, const struct deploy_script *x);
/* A script: what every one begins with. */
void deploy_put_head(struct buf *b, const struct deploy_job *j, const char *what);
struct str deploy_text(const struct deploy_job *j, struct buf *b); /* as a slice of the arena; releases the buffer */

#endif
