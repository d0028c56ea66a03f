// SPDX-License-Identifier: Apache-2.0
//
// networks SEED: a random network (test/random_net.h) as text, as far as it is a module's: of its outputs those that are pictures of
// batch 1, each behind a convolution to three channels. Exit code 3 where none is.
#include "random_net.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_picture(struct net *t, value_id v)
{
    const struct shape *s = net_shape(t, v);
    i64 n;
    return graph_value(&t->g, v)->dtype == DT_F32 && s->rank == 4 && sym_is_const(&t->sym, s->dim[0], &n) && n == 1 &&
           sym_is_const(&t->sym, s->dim[1], &n) && n <= 64 && !sym_is_const(&t->sym, s->dim[2], &n) && !sym_is_const(&t->sym, s->dim[3], &n);
}

static value_id to_colours(struct net *t, value_id v)
{
    i64 c;
    sym_is_const(&t->sym, net_shape(t, v)->dim[1], &c);
    i64 dim[4] = {3, c, 1, 1};
    value_id in[2] = {v, net_const(t, 4, dim, 0.5)};
    node_id n = net_node(t, "Conv", 2, in);
    return op_infer(&t->g, n, &t->e) ? graph_node(&t->g, n)->out.v[0] : 0;
}

int main(int argc, char **argv)
{
    enum { MOST = 3 };
    struct net t;
    struct buf b = {0};
    u32 n = 0;
    if (argc != 2) return 2;
    net_open(&t, (u64)atoll(argv[1]));
    for (u32 k = 0; k < t.g.output.n && n < MOST; k++) {
        value_id v = t.g.output.v[k];
        if (!is_picture(&t, v)) continue;
        v = to_colours(&t, v);
        if (v) t.g.output.v[n++] = v;
    }
    t.g.output.n = n;
    if (n && is_picture(&t, t.g.input.v[0])) graph_print(&b, &t.g, NULL);
    fwrite(b.p, 1, (size_t)b.n, stdout);
    int code = b.n ? 0 : 3;
    buf_release(&b);
    net_close(&t);
    return code;
}
