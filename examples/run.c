// SPDX-License-Identifier: Apache-2.0
//
// run NET.dnx IN... OUT: a compiled network in a program of one's own. Needs nothing but libquern
// (for the files) or libquern_rt.
//     cc -o run run.c $(pkg-config --cflags --libs quern)
#include <stdio.h>

#include "quern.h"

enum { MAX_IN = 8 };

int main(int argc, char **argv)
{
    int n = argc - 3;
    if (n < 1 || n > MAX_IN)
        return fprintf(stderr, "usage: run NET.dnx IN... OUT (at most %d inputs)\n", MAX_IN), 2;
    quern *q = quern_open(NULL);
    quern_program *net = NULL;
    quern_tensor *in[MAX_IN] = {0}, *out = NULL;
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    o.threads = 2;
    quern_status s = quern_program_open(q, argv[1], &o, &net);
    for (int k = 0; k < n && !s; k++) s = quern_tensor_read(q, argv[2 + k], &in[k]);
    if (!s) s = quern_run(net, in, n, &out, 1);
    if (!s) s = quern_tensor_write(q, argv[argc - 1], out);
    if (s) fprintf(stderr, "run: %s\n", quern_error(q));
    for (int k = 0; k < n; k++) quern_tensor_free(in[k]);
    quern_tensor_free(out);
    quern_program_close(net);
    quern_close(q);
    return s != QUERN_OK;
}
