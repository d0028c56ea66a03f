// SPDX-License-Identifier: Apache-2.0
//
// encode IN OUT: a picture in linear colour (.npy, .pfm) as screens show it (.png).
#include <stdio.h>

#include "quern.h"
#include "srgb.h"

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: encode IN.npy|IN.pfm OUT.png\n"), 2;
    quern *q = quern_open(NULL);
    quern_tensor *t = NULL;
    if (quern_tensor_read(q, argv[1], &t))
        return fprintf(stderr, "encode: %s\n", quern_error(q)), 1;
    if (quern_tensor_dtype(t) != QUERN_F32)
        return fprintf(stderr, "encode: '%s' is not of f32\n", argv[1]), 1;
    float *x = quern_tensor_data(t);
    for (int64_t i = 0; i < quern_tensor_count(t); i++) x[i] = srgb_encode(x[i]);
    quern_status s = quern_tensor_write(q, argv[2], t);
    if (s) fprintf(stderr, "encode: %s\n", quern_error(q));
    quern_tensor_free(t);
    quern_close(q);
    return s != QUERN_OK;
}
