// SPDX-License-Identifier: Apache-2.0
//
// Allocations of a small network, after a first line with a device and its settings. What is
// accepted places every operator, and is the same when it is printed and read again; what is
// refused has a reason.
#include <string.h>

#include "fuzz.h"
#include "place/place.h"

static const char net[] = "graph { input %x: f32[1,4,8,8] input %y: f32[1,1,8,8] const %w: "
                          "f32[1,4,1,1] = [0.5, 0.25, 0.25, 1] "
                          "%c: f32[1,1,8,8] = Conv(%x, %w) %z: f32[1,1,8,8] = Add(%c, %y) %e: "
                          "f32[1,1,8,8] = Erf(%z) output %e }";

static void read_again(const struct place_net *x, struct place_devices *d,
                       const struct place_allocation *y, struct arena *a)
{
    struct buf b = {0};
    struct place_allocation again;
    struct err e = {0};
    const u32 n = d->n;
    place_allocation_print(&b, y, x, d);
    if (!place_allocation_parse(&again, x, d, buf_view(&b), a, &e) || d->n != n) __builtin_trap();
    if (memcmp(again.device, y->device, sizeof y->device[0] * x->op.n)) __builtin_trap();
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct err e = {0};
    struct model_source s = {.path = "net", .bytes = S(net)};
    struct model_opts o = {0};
    struct model *m = model_open(&s, &o, &e);
    struct place_net x;
    struct place_devices d = {0};
    struct place_allocation y;
    struct str line, rest;
    if (!m || !place_net_open(&x, m, &a, &e)) __builtin_trap();
    str_cut(str_dup(&a, (struct str){(const char *)p, (i64)n}), '\n', &line, &rest);
    const char *device = str_z(&a, line);
    if (line.n && !place_devices_parse(&d, &device, 1, &a, &e) && (e.code == ERR_NONE || d.n))
        __builtin_trap();
    e = (struct err){0};
    bool ok = place_allocation_parse(&y, &x, &d, rest, &a, &e);
    if (ok == (e.code != ERR_NONE)) __builtin_trap();
    for (u32 k = 0; ok && k < x.op.n; k++)
        if (y.device[k] >= d.n || !place_can_run(&d.v[y.device[k]], &x, k, &e)) __builtin_trap();
    if (ok) read_again(&x, &d, &y, &a);
    arena_release(&a);
    model_close(m);
    return 0;
}
