// SPDX-License-Identifier: Apache-2.0
//
// OpenVINO's C library, opened at run time: the functions that deployments need of it, for their back ends in deploy/ and request/. Not a driver of
// quern's kernels. Numbers of its enumerations other than OK change between versions, and are not used.
#ifndef QUERN_DEV_OPENVINO_H
#define QUERN_DEV_OPENVINO_H

#include "core/core.h"

typedef struct { i64 rank; i64 *dims; } openvino_shape;
typedef struct { const char *number, *description; } openvino_version;
typedef struct { char **name; size_t n; } openvino_devices;

/* Opaque: core, model, compiled, request, tensor, port. Results are 0, or an error that last_error describes. */
struct openvino {
    void *lib;
    int (*version)(openvino_version *v);
    void (*version_free)(openvino_version *v);
    const char *(*last_error)(void); /* NULL: the library lacks it */
    int (*core_create)(void **core);
    void (*core_free)(void *core);
    int (*devices)(const void *core, openvino_devices *d);
    void (*devices_free)(openvino_devices *d);
    int (*set_property)(const void *core, const char *device, ...); /* pairs of words, NULL at their end */
    int (*read_model)(const void *core, const char *path, const char *weights, void **model);
    void (*model_free)(void *model);
    int (*compile_model)(const void *core, const void *model, const char *device, size_t n_words, void **compiled, ...);
    int (*import_model)(const void *core, const char *content, size_t n, const char *device, void **compiled);
    int (*export_model)(const void *compiled, const char *path);
    void (*compiled_free)(void *compiled);
    int (*n_inputs)(const void *compiled, size_t *n);
    int (*n_outputs)(const void *compiled, size_t *n);
    int (*input)(const void *compiled, size_t k, void **port);
    int (*output)(const void *compiled, size_t k, void **port);
    int (*port_shape)(const void *port, openvino_shape *s);
    int (*port_type)(const void *port, int *type);
    void (*port_free)(void *port);
    int (*shape_free)(openvino_shape *s);
    int (*request_create)(const void *compiled, void **request);
    int (*request_infer)(void *request);
    int (*set_input)(void *request, size_t k, const void *tensor);
    int (*set_output)(void *request, size_t k, const void *tensor);
    void (*request_free)(void *request);
    int (*tensor_create)(int type, openvino_shape s, void *p, void **tensor); /* uses the memory, does not copy it */
    int (*tensor_bytes)(const void *tensor, size_t *n);
    void (*tensor_free)(void *tensor);
};

/* Looks for $QUERN_OPENVINO, for the system's library, and in the package openvino of the python3 on PATH. */
bool openvino_open(struct openvino *o, struct err *e);
void openvino_close(struct openvino *o);
bool openvino_fails(const struct openvino *o, int status, const char *what, struct err *e); /* status 0: false without an error */
/* "2026.4.1-21984-.." */
void openvino_version_text(const struct openvino *o, char *out, i64 n);
/* The device's name, "CPU", of "OPENVINO_CPU:0" or "OPENVINO_CPU"; further GPUs are "GPU.1". false: none of OpenVINO's. */
bool openvino_device(struct str instance, char *out, i64 n);
bool openvino_has_device(const struct openvino *o, const void *core, const char *device);

#endif
