// SPDX-License-Identifier: Apache-2.0
//
// run NET.dnx IN OUT: a compiled network in a program of one's own. Needs nothing but libquern (for
// the files) or libquern_rt.
//     cc -o run run.c $(pkg-config --cflags --libs quern)
#include <stdio.h>

#include "quern.h"

int main(int argc, char **argv)
{
    quern *q = quern_open(NULL);
    quern_program *net = NULL;
    quern_tensor *in = NULL, *out = NULL;
    struct quern_run_opts o = QUERN_OPTS(quern_run_opts);
    o.threads = 2;
    if (argc != 4) return fprintf(stderr, "usage: run NET.dnx IN.png OUT.png\n"), 2;
    quern_status s = quern_program_open(q, argv[1], &o, &net);
    if (!s) s = quern_tensor_read(q, argv[2], &in);
    if (!s) s = quern_run(net, &in, 1, &out, 1);
    if (!s) s = quern_tensor_write(q, argv[3], out);
    if (s) fprintf(stderr, "run: %s\n", quern_error(q));
    quern_tensor_free(in);
    quern_tensor_free(out);
    quern_program_close(net);
    quern_close(q);
    return s != QUERN_OK;
}
