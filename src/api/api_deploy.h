// SPDX-License-Identifier: Apache-2.0
//
// Private to api/, deployments: the state of quern_deploy.
//
//   api_deploy.c         the steps, and the description of the whole
//   api_deploy_part.c    sub-graphs: networks of their own, programs, files
//   api_deploy_samples.c calibration data of sub-graphs
#ifndef QUERN_API_DEPLOY_H
#define QUERN_API_DEPLOY_H

#include "api/api_model.h"
#include "deploy/deploy.h"

/* A sub-graph on its way to files. */
struct api_part {
    const struct place_part *part;
    const struct place_device *device;
    const struct deploy_backend *backend; /* NULL: quern compiles it */
    struct graph graph;
    quern_model *m;                /* of the graph; NULL: not needed */
    quern_model *quantized;        /* NULL: not needed */
    quern_program *p, *fallback;   /* NULL: none */
    struct deploy_samples samples;
};

struct api_deploy {
    quern *q;
    quern_model *m;
    quern_db *db;
    struct quern_deploy_opts o;
    struct arena arena;
    struct str name;
    struct place_net net;
    struct place_devices devices;
    struct place_allocation allocation;
    struct place_parts parts;
    struct api_part *part;         /* per sub-graph */
    struct meta_model meta;
    struct meta_contents files;
};

/* api_deploy_part.c. All of them: false, and the context has the error. */
bool api_part_open(struct api_deploy *d, u32 k);    /* its graph, and what makes its files */
bool api_part_compile(struct api_deploy *d, u32 k); /* no effect on those of vendors */
bool api_part_write(struct api_deploy *d, u32 k);   /* programs as files */
bool api_part_convert(struct api_deploy *d, u32 k); /* vendors' files */
void api_part_close(struct api_part *p);

/* api_deploy_samples.c: fills in the samples of all sub-graphs whose back ends want them. */
bool api_deploy_samples(struct api_deploy *d);

#endif
