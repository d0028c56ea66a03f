// SPDX-License-Identifier: Apache-2.0
//
// request: runs deployments. A model is a deployment whose sub-graphs are loaded, each on its device instance; a request is one run of the network, with
// tensors of its own and everybody's weights. Each device instance has a thread that runs one sub-graph at a time, of the oldest request that has one
// ready; so several requests overlap. What loads and runs a sub-graph is a back end, a table of functions.
//
// Threads: models and requests may be used by any thread, a request by one at a time. Everything that several threads see is in a struct that says so
// and is protected by the model's monitor; a request's tensors belong to its sub-graphs while it runs, in the order of their dependences.
#ifndef QUERN_REQUEST_H
#define QUERN_REQUEST_H

#include "art/meta.h"
#include "core/core.h"

/* Back ends. */

struct req_place {       /* a device instance */
    struct str name;     /* "X64:0" */
    struct str framework;
    struct str target;   /* what its first sub-graph was made for */
    struct str device;   /* of the back end, as the caller named it; empty: the one that it was made for, else the usual one */
    i64 threads;         /* of a processor */
    struct arena *a;
    void *choice;        /* set by find */
};
struct req_source {      /* a sub-graph's files */
    const struct meta_model *model;
    const struct meta_subgraph *subgraph;
    enum meta_role role; /* META_PROGRAM or META_FALLBACK */
    meta_read_fn *read;  /* any thread may call it; bytes are valid as long as the model */
    void *user;
    bool layers;         /* times of layers are requested */
};
struct req_layer { const char *name; double seconds; };
struct req_report {      /* of a run */
    double in, out;      /* seconds of copies to the device and back; the rest is execution */
    const struct req_layer *layer; u32 n_layers; /* valid until the next run */
};
struct req_backend {
    const char *name;
    bool (*runs)(struct str framework);
    /* Whether the device is here; in the thread that opens the model. */
    bool (*find)(struct req_place *p, struct err *e);
    /* The others are called by the instance's own thread. NULL: error. */
    void *(*open)(const struct req_place *p, struct err *e);
    void (*close)(void *device);
    void *(*load)(void *device, const struct req_source *s, struct err *e);
    void (*unload)(void *unit);
    /* Types and sizes of the outputs for these inputs; -1: known after the run. */
    bool (*dims)(void *unit, const struct tensor *in, struct tensor *out, struct err *e);
    /* out[k].data: memory for it, or NULL: to be taken from the arena. Errors but ERR_INPUT, ERR_USAGE and ERR_STOPPED mean that the device failed. */
    bool (*run)(void *unit, const struct tensor *in, struct tensor *out, struct arena *a, struct req_report *report, struct err *e);
};
/* backend.c: programs of quern, by rt: frameworks "native" "vulkan" "opencl" "cuda" "hip" "interp". */
extern const struct req_backend req_backend_program;
/* openvino.c: blobs of OpenVINO, framework "openvino". */
extern const struct req_backend req_backend_openvino;

/* Models. */

struct req_override { struct str name, device; }; /* "INTELGPU:0", "*llvmpipe*" */
enum req_profile { REQ_NO_PROFILE, REQ_STEPS, REQ_LAYERS /* kernels one by one, which takes longer */ };
struct req_model_opts {
    struct meta_opts meta;
    bool only_list;               /* nothing is loaded: its requests are refused */
    bool fallback;                /* sub-graphs whose device is absent, or fails, run on the CPU, if they have a program for it */
    i64 threads;                  /* of all processors together; 0: all */
    const struct req_override *override; u32 n_overrides;
    enum req_profile profile;
    const struct req_backend *const *backend; u32 n_backends; /* the first that runs a framework is used; 0: all of this library */
    struct log log;               /* the line may come from any thread */
    const struct stop *stop;      /* of the context: requests end when it is set; NULL: never */
    double (*clock)(void *user);  /* seconds, for profiles; NULL: os_now */
    void *user;
};
struct req_model;
struct req_model *req_model_open(const char *path, const struct req_model_opts *o, struct err *e);
/* Waits for running requests. Memory remains until the last request is destroyed. NULL: nothing. Not in callbacks. */
void req_model_close(struct req_model *m);
const struct meta_model *req_model_meta(const struct req_model *m);
enum req_state { REQ_LISTED, REQ_READY, REQ_FALLBACK, REQ_UNAVAILABLE };
struct req_state_of {             /* of a sub-graph */
    enum req_state state;
    struct str device;            /* instance that runs it now */
    const char *why;              /* of the last two: why its own device does not run it; "" otherwise */
    i64 runs;
    double seconds;               /* of all of them */
};
void req_model_state(struct req_model *m, u32 subgraph, struct req_state_of *s);
/* Sizes of input k if the model's variables have those of the text ("H=17,W=31"; NULL: none), others `usual`. */
bool req_model_sizes(const struct req_model *m, u32 k, const char *sizes, i64 usual, i64 dim[MAX_RANK], struct err *e);
u32 req_model_active(struct req_model *m); /* instances that run a sub-graph, or will at once */
void req_trace(struct req_model *m, struct buf *b); /* Chrome's trace format, of everything so far */
void req_chart(struct req_model *m, struct buf *b); /* likewise SVG: sub-graphs by device and time, requests as colours */

/* Requests. */

struct request;
typedef void request_done_fn(void *user, struct request *r, const struct err *e); /* e->code ERR_NONE: success */
struct request *request_create(struct req_model *m, struct err *e);
/* Cancels it and waits for its end; in its own callback: after it. NULL: nothing. */
void request_destroy(struct request *r);
bool request_is_in_callback(struct request *r); /* the calling thread is in its callback */
struct req_model *request_model(const struct request *r);
/* Memory of input k with these sizes, to be filled; dim NULL: all are fixed. The tensor is the request's, valid until the next call for this input. */
bool request_input(struct request *r, u32 k, u32 rank, const i64 *dim, struct tensor *t, struct err *e);
/* The caller's memory instead, unchanged until the request is done. */
bool request_set_input(struct request *r, u32 k, const struct tensor *t, struct err *e);
bool request_output(struct request *r, u32 k, struct tensor *t, struct err *e); /* after a success; valid until the next start */
bool request_tensor(struct request *r, u32 tensor, struct tensor *t, struct err *e); /* likewise any tensor of the deployment, by its index */
void request_on_done(struct request *r, request_done_fn *fn, void *user);
bool request_start(struct request *r, struct err *e); /* returns at once */
/* false: an error of the call. *is_done: it is over, and *result says how; seconds < 0: waits until it is. Not in callbacks. */
bool request_wait(struct request *r, double seconds, bool *is_done, struct err *result, struct err *e);
void request_cancel(struct request *r); /* it ends with ERR_STOPPED after what runs now */

#endif
