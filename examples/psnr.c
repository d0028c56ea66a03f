// SPDX-License-Identifier: Apache-2.0
//
// psnr A B: peak signal-to-noise ratio of two pictures of the same size, in decibel; the peak is 1.
#include <math.h>
#include <stdio.h>

#include "quern.h"

static double mean_square(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum / (double)n;
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: psnr A.png B.png\n"), 2;
    quern *q = quern_open(NULL);
    quern_tensor *a = NULL, *b = NULL;
    if (quern_tensor_read(q, argv[1], &a) || quern_tensor_read(q, argv[2], &b))
        return fprintf(stderr, "psnr: %s\n", quern_error(q)), 1;
    int64_t n = quern_tensor_count(a);
    if (n != quern_tensor_count(b) || quern_tensor_dtype(a) != QUERN_F32 ||
        quern_tensor_dtype(b) != QUERN_F32)
        return fprintf(stderr, "psnr: the pictures differ in size\n"), 1;
    printf("%.2f\n", -10 * log10(mean_square(quern_tensor_data(a), quern_tensor_data(b), n)));
    quern_tensor_free(a);
    quern_tensor_free(b);
    quern_close(q);
    return 0;
}
