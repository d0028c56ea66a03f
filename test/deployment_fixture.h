// SPDX-License-Identifier: Apache-2.0
//
// Deployments of small networks: sub-graphs given as graphs' texts, compiled by the library, and written as the files of a folder.
#ifndef QUERN_TEST_DEPLOYMENT_FIXTURE_H
#define QUERN_TEST_DEPLOYMENT_FIXTURE_H

#include "api/api.h"
#include "art/meta.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_PROGRAMS = 32 };

struct deployment {
    struct arena a;
    struct err e;
    quern *q;
    struct meta_model m;
    struct meta_contents files;
    quern_program *program[MAX_PROGRAMS];
    u32 n_programs;
};

static inline void deployment_init(struct deployment *d, const char *name)
{
    *d = (struct deployment){.q = quern_open(NULL)};
    d->m.name = str_of(name);
}

static inline void deployment_release(struct deployment *d)
{
    for (u32 i = 0; i < d->n_programs; i++) quern_program_close(d->program[i]);
    quern_close(d->q);
    arena_release(&d->a);
}

/* An f32 tensor; dims: "4,H", "" of a scalar. */
static inline u32 deployment_tensor(struct deployment *d, const char *name, const char *dims)
{
    struct meta_tensor *t = arr_push(&d->a, &d->m.tensor);
    struct str rest = str_of(dims), dim;
    *t = (struct meta_tensor){.name = str_of(name), .origin = str_of(name), .dtype = DT_F32};
    for (bool more = rest.n > 0; more;) {
        more = str_cut(rest, ',', &dim, &rest);
        t->dim[t->rank++] = dim;
    }
    return d->m.tensor.n - 1;
}

/* NULL: the device is absent. */
static inline quern_program *deployment_compile(struct deployment *d, const char *graph, const char *device)
{
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    quern_model *m;
    quern_program *p = NULL;
    o.device = device;
    if (quern_model_read(d->q, graph, strlen(graph), "net", NULL, &m)) fail_msg("%s", quern_error(d->q));
    if (quern_compile(m, NULL, &o, &p) == QUERN_OK) d->program[d->n_programs++] = p;
    else if (strcmp(device, "cpu") == 0) fail_msg("%s", quern_error(d->q));
    quern_model_close(m);
    return p;
}

struct deployment_part {
    const char *graph;    /* its inputs and outputs in the order of in and out */
    const char *name;     /* "X64:0" */
    const char *device;   /* of quern: "cpu", "opencl" */
    const char *fallback; /* of quern; NULL: none */
    u32 in[4], n_in, out[4], n_out, after[4], n_after;
};

static inline void deployment_program(struct deployment *d, struct meta_subgraph *s, const char *graph, const char *device, bool is_fallback)
{
    quern_program *p = deployment_compile(d, graph, device);
    struct str folder = is_fallback ? str_fmt(&d->a, "%.*s/fallback", STR_ARG(s->name)) : s->name;
    struct meta_program_files to = {folder, str_fmt(&d->a, "net_%u", d->m.subgraph.n - 1), is_fallback ? META_FALLBACK : META_PROGRAM};
    u32 first = d->files.n;
    assert_non_null(p);
    if (!meta_program_write(&d->files, &p->plan, &to, &d->a, &d->e)) fail_msg("%s", d->e.msg);
    for (u32 i = first; i < d->files.n; i++) *arr_push(&d->a, &s->file) = d->files.v[i].file;
    if (is_fallback) return;
    struct str lang = p->plan.bin.n ? p->plan.bin.v[0].lang : S("c");
    s->framework = str_is(lang, "c") ? S("native") : str_is(lang, "spirv") ? S("vulkan") : str_is(lang, "kir") ? S("interp") : lang;
    s->target = str_of(device);
}

static inline u32 deployment_add(struct deployment *d, const struct deployment_part *x)
{
    struct meta_subgraph *s = arr_push(&d->a, &d->m.subgraph);
    u32 k = d->m.subgraph.n - 1;
    *s = (struct meta_subgraph){.name = str_fmt(&d->a, "Subgraph_%u", k), .device = str_of(x->name), .seconds = 1e-6};
    for (u32 i = 0; i < x->n_in; i++) *arr_push(&d->a, &s->in) = x->in[i];
    for (u32 i = 0; i < x->n_out; i++) *arr_push(&d->a, &s->out) = x->out[i];
    for (u32 i = 0; i < x->n_after; i++) *arr_push(&d->a, &s->after) = x->after[i];
    *arr_push(&d->a, &s->op) = str_fmt(&d->a, "op_%u", k);
    deployment_program(d, s, x->graph, x->device, false);
    if (x->fallback) deployment_program(d, s, x->graph, x->fallback, true);
    return k;
}

/* y = Relu(x w) over x (n, 4), z = y + 1, on two devices; n is symbolic. */
static const char deployment_first[] = "graph { input %x: f32[N,4] const %w: f32[4,8] = [1,2,3,4,5,6,7,8,-1,-2,-3,-4,-5,-6,-7,-8,1,0,1,0,1,0,1,0,2,2,2,2,3,3,3,3]"
                                       "%m: f32[N,8] = MatMul(%x, %w) %y: f32[N,8] = Relu(%m) output %y }";
static const char deployment_second[] = "graph { input %y: f32[N,8] const %c: f32[1] = [1] %z: f32[N,8] = Add(%y, %c) output %z }";

static inline void deployment_chain(struct deployment *d, const char *name, const char *const device[2], const char *const quern_device[2], const char *fallback)
{
    deployment_init(d, name);
    u32 x = deployment_tensor(d, "tensor_0", "N,4"), y = deployment_tensor(d, "tensor_1", "N,8"), z = deployment_tensor(d, "tensor_2", "N,8");
    *arr_push(&d->a, &d->m.input) = x;
    *arr_push(&d->a, &d->m.output) = z;
    deployment_add(d, &(struct deployment_part){deployment_first, device[0], quern_device[0], NULL, {x}, 1, {y}, 1, {0}, 0});
    deployment_add(d, &(struct deployment_part){deployment_second, device[1], quern_device[1], fallback, {y}, 1, {z}, 1, {0}, 1});
}

#endif
