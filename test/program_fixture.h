// SPDX-License-Identifier: Apache-2.0
//
// A graph's text as a model and a program for a device, by the public functions, and small tensors
// for it.
#ifndef QUERN_TEST_PROGRAM_FIXTURE_H
#define QUERN_TEST_PROGRAM_FIXTURE_H

#include "core/core.h"
#include "quern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    quern *q;
    quern_model *m;
    quern_program *p;
};

static inline void must(const struct fixture *b, quern_status s)
{
    if (s) fail_msg("%s", quern_error(b->q));
}

/* false: the device is missing. */
static inline bool fixture_open(struct fixture *b, const char *text, const char *device)
{
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    *b = (struct fixture){.q = quern_open(NULL)};
    o.device = device;
    must(b, quern_model_read(b->q, text, strlen(text), "net", NULL, &b->m));
    if (quern_compile(b->m, NULL, &o, &b->p)) {
        if (strcmp(device, "vulkan")) fail_msg("%s: %s", device, quern_error(b->q));
        return false;
    }
    return true;
}

static inline void fixture_close(struct fixture *b)
{
    quern_program_close(b->p);
    quern_model_close(b->m);
    quern_close(b->q);
}

static inline quern_tensor *floats(const struct fixture *b, int rank, const int64_t *dim, struct rng *r)
{
    quern_tensor *t = NULL;
    must(b, quern_tensor_new(b->q, QUERN_F32, rank, dim, NULL, &t));
    float *v = quern_tensor_data(t);
    for (i64 i = 0; i < quern_tensor_count(t); i++) v[i] = (float)rng_range(r, -3, 3);
    return t;
}

#endif
