// SPDX-License-Identifier: Apache-2.0
//
// gemm DB M N K [DEVICE [t]]: the best kernel that a database knows for a matrix product, built into a program and run on tensors. Without
// one for this very product it says which is nearest, and its schedule is used where that is hoped to be faster than the default. t: the
// left operand is transposed.
//     cc -o gemm gemm.c $(pkg-config --cflags --libs quern)
#include <stdio.h>
#include <stdlib.h>

#include "quern.h"

static void tell(const struct quern_gemm_found *f)
{
    printf("%s\n", f->name[0] ? f->name : f->candidate);
    if (f->distance > 0)
        printf("measured for %lld x %lld x %lld%s, 2^%.1f times away\n", (long long)f->m, (long long)f->n, (long long)f->k,
               f->is_transposed ? ", transposed" : "", f->distance);
    else printf("%.4f ms\n", f->seconds * 1e3);
}

/* y = a x b with random content; what the run took. */
static quern_status multiply(quern_model *m, quern_db *db, const char *device)
{
    quern_program *p = NULL;
    quern_tensor *in[2] = {NULL}, *y = NULL;
    int n = 0;
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    o.device = device;
    quern_status s = quern_compile(m, db, &o, &p);
    if (!s) s = quern_model_random_inputs(m, NULL, 1, in, 2, &n);
    if (!s) s = quern_run(p, in, n, &y, 1);
    if (!s) printf("ran in %.4f ms, y[0] = %g\n", quern_program_seconds(p) * 1e3, *(float *)quern_tensor_data(y));
    for (int k = 0; k < 2; k++) quern_tensor_free(in[k]);
    quern_tensor_free(y);
    quern_program_close(p);
    return s;
}

int main(int argc, char **argv)
{
    if (argc < 5) return fprintf(stderr, "usage: gemm DB M N K [DEVICE [t]]\n"), 2;
    quern *q = quern_open(NULL);
    quern_db *db = NULL;
    quern_model *m = NULL;
    struct quern_gemm_found found;
    const char *device = argc > 5 ? argv[5] : "vulkan";
    struct quern_gemm_shape x = QUERN_OPTS(quern_gemm_shape);
    x.m = atoll(argv[2]), x.n = atoll(argv[3]), x.k = atoll(argv[4]);
    x.is_transposed = argc > 6 && argv[6][0] == 't';
    quern_status s = quern_db_open(q, argv[1], &db);
    if (!s) s = quern_gemm_find(db, &x, device, &found);
    if (!s) tell(&found);
    if (s == QUERN_NOTHING) s = QUERN_OK, printf("nothing is known, the default schedule is used\n");
    if (!s) s = quern_model_gemm(q, &x, &m);
    if (!s) s = multiply(m, db, device);
    if (s) fprintf(stderr, "gemm: %s\n", quern_error(q));
    quern_model_close(m);
    quern_db_close(db);
    quern_close(q);
    return s != QUERN_OK;
}
