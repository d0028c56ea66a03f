// SPDX-License-Identifier: Apache-2.0
//
// Saved states, read by states of a program without kernels: one cache in place, one copied, one without positions. An accepted file is
// written again as it was; a refused one leaves the state as it was. Each input is also tried with the hash that it should have.
#include <string.h>

#include "fuzz.h"
#include "rt/rt.h"

enum { MAX = 6, HASH = 16 };

static void add_buf(struct plan *p, enum plan_buf_kind kind, sym size)
{
    *arr_push(p->arena, &p->buf) = (struct plan_buf){.kind = kind, .name = S("b"), .size = size};
}

static struct plan_io io_of(struct str name, u32 buf, u32 rank, sym d0, sym d1, sym d2)
{
    return (struct plan_io){.name = name, .dtype = DT_F32, .rank = rank, .buf = buf, .dim = {d0, d1, d2}};
}

/* past_k (2, P, 3) and present_k in place, past_v and present_v likewise with buffers of their own, past_c (5); tokens (S). */
static void make_plan(struct plan *p, struct arena *a)
{
    *p = (struct plan){.arena = a, .model = S("net")};
    symtab_init(&p->sym, a);
    struct symtab *t = &p->sym;
    sym past = sym_var(t, S("P")), new = sym_var(t, S("S")), room = sym_var(t, S("room")), two = sym_const(t, 2), three = sym_const(t, 3), five = sym_const(t, 5);
    sym all = sym_add(t, past, new), row = sym_const(t, 4 * 2 * 3);
    for (u32 v = 0; v < 3; v++) arr_push(a, &p->var);
    add_buf(p, PB_STATE, sym_mul(t, row, sym_add(t, all, room)));
    add_buf(p, PB_INPUT, sym_mul(t, row, past)), add_buf(p, PB_OUTPUT, sym_mul(t, row, all));
    add_buf(p, PB_INPUT, sym_const(t, 20)), add_buf(p, PB_OUTPUT, sym_const(t, 20)), add_buf(p, PB_INPUT, sym_mul(t, new, sym_const(t, 4)));
    *arr_push(a, &p->input) = io_of(S("past_k"), 0, 3, two, past, three), *arr_push(a, &p->output) = io_of(S("present_k"), 0, 3, two, all, three);
    *arr_push(a, &p->input) = io_of(S("past_v"), 1, 3, two, past, three), *arr_push(a, &p->output) = io_of(S("present_v"), 2, 3, two, all, three);
    *arr_push(a, &p->input) = io_of(S("past_c"), 3, 1, five, 0, 0), *arr_push(a, &p->output) = io_of(S("present_c"), 4, 1, five, 0, 0);
    *arr_push(a, &p->input) = io_of(S("tokens"), 5, 1, new, 0, 0);
    *arr_push(a, &p->given) = 2;
    *arr_push(a, &p->state) = (struct plan_state){.input = 0, .output = 0, .axis = 1, .room = 2};
}

static void read(struct rt_state *s, struct str bytes)
{
    struct err e = {0}, none = {0};
    struct buf before = {0}, after = {0};
    if (!rt_state_write(s, &before, &none)) __builtin_trap();
    bool ok = rt_state_read(s, bytes, &e);
    if (ok == (e.code != ERR_NONE) || !rt_state_write(s, &after, &none)) __builtin_trap();
    if (!str_eq(buf_view(&after), ok ? bytes : buf_view(&before))) __builtin_trap();
    buf_release(&before);
    buf_release(&after);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct err e = {0};
    struct plan plan;
    make_plan(&plan, &a);
    if (!plan_verify(&plan, &e)) __builtin_trap();
    const struct dev_driver *v = dev_find(S("interp"));
    struct dev *d = v->open(&(struct dev_opts){.n_threads = 1}, &e);
    struct rt_program *r = d ? rt_load(&plan, d, &e) : NULL;
    struct rt_state *s = r ? rt_state_new(r, MAX, NULL, &e) : NULL;
    if (!s) __builtin_trap();
    char *copy = arena_alloc(&a, (i64)n + 1);
    if (n) memcpy(copy, p, n);
    read(s, (struct str){copy, (i64)n});
    if (n > HASH) {
        struct hash h = hash_bytes(copy, (i64)n - HASH);
        for (u32 i = 0; i < 8; i++) copy[n - HASH + i] = (char)(h.lo >> (8 * i)), copy[n - HASH + 8 + i] = (char)(h.hi >> (8 * i));
        read(s, (struct str){copy, (i64)n});
    }
    rt_state_free(s);
    rt_unload(r);
    v->close(d);
    arena_release(&a);
    return 0;
}
