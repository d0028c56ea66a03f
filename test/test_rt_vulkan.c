// SPDX-License-Identifier: Apache-2.0
//
// Programs on a lost device with memory of its own (fake_vulkan.c): that run fails, the next one
// has its constants again. And recorded programs that are run again.
#include "rt/rt.h"
#include "vulkan_module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char fake_path[4096];

static u32 add_buffer(struct plan *p, enum plan_buf_kind kind, i64 size, const void *data)
{
    *arr_push(p->arena, &p->buf) = (struct plan_buf){.kind = kind,
                                                     .name = S("b"),
                                                     .size = sym_const(&p->sym, size),
                                                     .data = data,
                                                     .data_size = data ? size : 0,
                                                     .content = hash_bytes(data, data ? size : 0)};
    return p->buf.n - 1;
}

static struct plan_io interface(struct plan *p, const char *name, i64 count, u32 buf)
{
    struct plan_io io = {.name = str_of(name), .dtype = DT_U32, .rank = 1, .buf = buf};
    io.dim[0] = sym_const(&p->sym, count);
    return io;
}

/* One kernel that counts its groups: y[group] += 1 on a grid of 3 x 2, whose extents are a constant. */
static void make_plan(struct plan *p, struct arena *a, struct str code)
{
    static const u32 extents[3] = {3, 2, 1};
    *p = (struct plan){.arena = a, .model = S("counts")};
    symtab_init(&p->sym, a);
    u32 x = add_buffer(p, PB_INPUT, 4, NULL), y = add_buffer(p, PB_OUTPUT, 24, NULL),
        c = add_buffer(p, PB_CONST, sizeof extents, extents);
    *arr_push(a, &p->input) = interface(p, "x", 1, x);
    *arr_push(a, &p->output) = interface(p, "y", 6, y);
    *arr_push(a, &p->bin) = (struct plan_bin){
        .lang = S("spirv"), .code = code, .content = hash_bytes(code.p, code.n)};
    struct plan_dispatch d = {.entry = S("k"), .label = S("Count"), .task = S("0"), .device = S("vulkan"),
                              .n_buf = 2, .n_param = 1, .n_grid = 1, .work = sym_const(&p->sym, 0)};
    d.buf = arena_array(a, u32, 2), d.buf[0] = y, d.buf[1] = c;
    d.param = arena_array(a, sym, 1), d.param[0] = sym_const(&p->sym, 7);
    d.grid = arena_array(a, struct plan_grid, 1);
    for (int i = 0; i < 3; i++) d.grid->extent[i] = sym_const(&p->sym, extents[i]);
    *arr_push(a, &p->dispatch) = d;
}

static bool run(struct rt_program *r, u32 want, struct err *e)
{
    u32 x = 0, y[6] = {0};
    struct tensor in = {.dtype = DT_U32, .rank = 1, .dim = {1}, .data = &x}, out = {.data = y};
    if (!rt_run(r, &in, &out, NULL, e)) return false;
    for (int i = 0; i < 6; i++)
        if (y[i] != want) fail_msg("group %d ran %u times, not %u", i, y[i], want);
    assert_true(rt_seconds(r) > 0);
    return true;
}

static void test_lost(void **state)
{
    struct arena a = {0};
    struct plan p;
    struct err e = {0};
    struct module m = module(2, 4, SPV_CAP_SHADER, 64);
    setenv("QUERN_VULKAN_LOADER", fake_path, 1);
    setenv("QUERN_FAKE_VULKAN", "lost=5", 1);
    make_plan(&p, &a, buf_view(&m.code));
    struct dev *d = dev_find(S("vulkan"))->open(&(struct dev_opts){0}, &e);
    struct rt_program *r = d ? rt_load(&p, d, &e) : NULL;
    if (!r) fail_msg("%s", e.msg);
    u32 n = 1;
    while (run(r, n, &e)) n++;
    assert_true(n > 1 && strstr(e.msg, "the device was lost") && d->n_lost == 0);
    e = (struct err){0};
    for (n = 1; n <= 4; n++) /* counted from zero: the output's memory was allocated again */
        if (!run(r, n, &e)) fail_msg("%s", e.msg);
    assert_int_equal(d->n_lost, 1);
    rt_unload(r);
    d->driver->close(d);
    buf_release(&m.code);
    arena_release(&a);
}

/* The counts of several programs' runs do not depend on which of them were recorded before, nor on
   whether every kernel is timed alone. */
static void test_again(void **state)
{
    struct arena a = {0};
    struct plan p;
    struct err e = {0};
    struct module m = module(2, 4, SPV_CAP_SHADER, 64);
    struct rt_program *r[2];
    setenv("QUERN_VULKAN_LOADER", fake_path, 1);
    setenv("QUERN_FAKE_VULKAN", "devices=1", 1);
    make_plan(&p, &a, buf_view(&m.code));
    struct dev *d = dev_find(S("vulkan"))->open(&(struct dev_opts){0}, &e);
    for (int i = 0; i < 2; i++) {
        r[i] = d ? rt_load(&p, d, &e) : NULL;
        if (!r[i]) fail_msg("%s", e.msg);
    }
    for (u32 n = 1; n <= 20; n++) {
        rt_profile(r[1], n % 5 == 0);
        for (int i = 0; i < 2; i++)
            if (!run(r[i], n, &e)) fail_msg("%s", e.msg);
        double s = rt_profile_times(r[1]).seconds[0]; /* 1000 ticks of 2 ns */
        assert_true(n % 5 ? s == 0 : s > 1.99e-6 && s < 2.01e-6);
    }
    rt_unload(r[1]);
    if (!run(r[0], 21, &e)) fail_msg("%s", e.msg);
    rt_unload(r[0]);
    d->driver->close(d);
    buf_release(&m.code);
    arena_release(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost), cmocka_unit_test(test_again)};
    const char *slash = strrchr(argv[0], '/');
    snprintf(fake_path, sizeof fake_path, "%.*sfake_vulkan.so", slash ? (int)(slash + 1 - argv[0]) : 0,
             argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
