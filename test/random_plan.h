// SPDX-License-Identifier: Apache-2.0
//
// Random plans for tests: buffers with symbolic sizes and lifetimes, constants (some with equal
// content), dispatches. They pass plan_verify, but their binaries are not executable. Equal seeds
// yield equal plans.
#ifndef QUERN_RANDOM_PLAN_H
#define QUERN_RANDOM_PLAN_H

#include "art/art.h"

static sym random_size(struct plan *p, struct rng *r)
{
    sym h = sym_var(&p->sym, S("H")), w = sym_var(&p->sym, S("W 2")), c = sym_const(&p->sym, rng_range(r, 1, 40));
    switch (rng_range(r, 0, 3)) {
    case 0: return c;
    case 1: return sym_mul(&p->sym, sym_mul(&p->sym, h, w), c);
    case 2: return sym_mul(&p->sym, sym_cdiv(&p->sym, h, sym_const(&p->sym, 2)), c);
    default: return sym_max(&p->sym, sym_sub(&p->sym, w, c), sym_const(&p->sym, 0));
    }
}

static struct str random_bytes(struct arena *a, struct rng *r)
{
    i64 n = rng_range(r, 0, 100);
    char *p = arena_alloc(a, n + 1);
    bool same = rng_range(r, 0, 2) == 0; /* equal contents occur */
    for (i64 i = 0; i < n; i++) p[i] = same ? 'x' : (char)rng_u64(r);
    return (struct str){p, n};
}

static void random_io(struct plan *p, bool is_input)
{
    struct plan_io io = {.name = is_input ? S("in \"1\"\n") : S("out"), .dtype = DT_F32, .rank = 2, .buf = p->buf.n};
    io.dim[0] = sym_var(&p->sym, S("H")), io.dim[1] = sym_var(&p->sym, S("W 2"));
    struct plan_buf b = {.kind = is_input ? PB_INPUT : PB_OUTPUT, .name = io.name, .last = 0};
    b.size = sym_mul(&p->sym, sym_mul(&p->sym, io.dim[0], io.dim[1]), sym_const(&p->sym, 4));
    *(arr_push(p->arena, &p->buf)) = b;
    if (is_input) *(arr_push(p->arena, &p->input)) = io;
    else *(arr_push(p->arena, &p->output)) = io;
}

static void random_buf(struct plan *p, struct rng *r, u32 n_dispatch)
{
    struct plan_buf b = {.kind = rng_range(r, 0, 2) ? PB_TEMP : PB_CONST, .name = S("buf")};
    b.first = (u32)rng_range(r, 0, n_dispatch - 1), b.last = (u32)rng_range(r, b.first, n_dispatch - 1);
    b.size = random_size(p, r);
    if (b.kind == PB_CONST) {
        struct str s = random_bytes(p->arena, r);
        b.data = s.p, b.data_size = s.n, b.size = sym_const(&p->sym, s.n), b.content = hash_bytes(s.p, s.n);
    }
    *(arr_push(p->arena, &p->buf)) = b;
}

static void random_dispatch(struct plan *p, struct rng *r, u32 at)
{
    struct plan_dispatch d = {.bin = (u32)rng_range(r, 0, p->bin.n - 1), .entry = S("k"), .label = S("Conv+Relu"), .ops = rng_range(r, 0, 1) ? S("Conv+Relu") : S(""), .layer = rng_range(r, 0, 1) ? S("Conv") : S(""),
                              .task = S("00ff"), .candidate = S("map.1 lanes=8"), .device = S("null"), .n_grid = 1};
    d.seconds = rng_range(r, 0, 1) ? rng_f64(r) : 0;
    d.is_measured = d.seconds > 0 && rng_range(r, 0, 1);
    d.buf = arena_array(p->arena, u32, p->buf.n);
    for (u32 i = 0; i < p->buf.n; i++)
        if (p->buf.v[i].first <= at && at <= p->buf.v[i].last) d.buf[d.n_buf++] = i;
    d.n_param = (u32)rng_range(r, 0, 3);
    d.param = arena_array(p->arena, sym, d.n_param);
    for (u32 i = 0; i < d.n_param; i++) d.param[i] = random_size(p, r);
    d.is_value = at % 4 ? arena_array(p->arena, bool, d.n_param + 1) : NULL;
    for (u32 i = 0; i < d.n_param && d.is_value; i++) d.is_value[i] = (at + i) % 2;
    d.grid = arena_array(p->arena, struct plan_grid, 1);
    for (u32 x = 0; x < 3; x++) d.grid->extent[x] = random_size(p, r);
    d.work = random_size(p, r);
    d.flops = rng_range(r, 0, 1) ? random_size(p, r) : 0;
    *(arr_push(p->arena, &p->dispatch)) = d;
}

static void random_plan(struct plan *p, struct arena *a, u64 seed)
{
    struct rng rng = rng_seed(seed), *r = &rng;
    u32 n = (u32)rng_range(r, 1, 12);
    *p = (struct plan){.arena = a, .model = S("net"), .caps = S("arch=generic"), .fingerprint = S("somewhere"), .explain = S("{}")};
    symtab_init(&p->sym, a);
    sym_var(&p->sym, S("H")), sym_var(&p->sym, S("W 2"));
    (arr_push(a, &p->var))->optimised_for = 64;
    (arr_push(a, &p->var))->optimised_for = INT64_MIN;
    random_io(p, true);
    random_io(p, false);
    for (i64 k = rng_range(r, 0, 30); k > 0; k--) random_buf(p, r, n);
    for (i64 k = rng_range(r, 1, 3); k > 0; k--) {
        struct plan_bin b = {.lang = S("c"), .code = random_bytes(a, r)};
        b.content = hash_bytes(b.code.p, b.code.n);
        *(arr_push(a, &p->bin)) = b;
    }
    for (u32 i = 0; i < n; i++) random_dispatch(p, r, i);
}

#endif
