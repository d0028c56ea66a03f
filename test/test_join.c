// SPDX-License-Identifier: Apache-2.0
//
// A real U-Net with concatenation in place and without, on every available device: the number of
// dispatches, and the reference's results at several sizes.
#include "pass/pass.h"
#include "plan/plan.h"
#include "rt/rt.h"
#include "tune/tune.h"
#include "vulkan_fixture.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "skip.h"

struct fixture {
    struct arena arena;
    struct symtab sym;
    struct graph g, lowered;
    struct cover cover;
    struct selection sel;
    struct plan plan;
    struct caps caps;
    struct dev *dev;
    struct err e;
};

static void fixture_open(struct fixture *b, const char *device, const struct cover_opts *cut)
{
    static const i64 var[] = {64, 64};
    const struct dev_driver *d = dev_find(str_of(device));
    *b = (struct fixture){0};
    symtab_init(&b->sym, &b->arena);
    graph_init(&b->g, &b->arena, &b->sym);
    b->dev = d->open(&(struct dev_opts){.n_threads = 2}, &b->e);
    assert_non_null(b->dev);
    d->caps(b->dev, &b->caps);
    bool ok = zoo_build(zoo_find(S("oidn-small")), NULL, true, &b->g, &b->e) && op_infer_all(&b->g, &b->e);
    if (ok) graph_clone(&b->lowered, &b->g, &b->arena);
    struct plan_code code = {.builder = {.lang = lang_find(str_of(d->lang)), .caps = &b->caps}};
    struct plan_env env = {.lang = code.builder.lang, .caps = &b->caps, .device = device, .model = S("unet"),
                           .build = plan_build_code, .build_user = &code};
    ok = ok && pass_run_all(&b->lowered, NULL, &b->e) && cover_build(&b->cover, &b->lowered, &b->arena, cut, &b->e) &&
         plan_select(&b->sel, &b->cover, var, plan_cost_predicted, &b->caps, &b->arena, &b->e) &&
         plan_make(&b->plan, &b->cover, &b->sel, var, &env, &b->arena, &b->e);
    if (!ok) fail_msg("%s", b->e.msg);
}

static void fixture_close(struct fixture *b)
{
    b->dev->driver->close(b->dev);
    struct arena a = b->arena;
    arena_release(&a);
}

static u32 count_joins(const struct fixture *b)
{
    u32 n = 0;
    for (u32 i = 0; i < b->sel.choice.n; i++) n += b->cover.region.v[b->sel.choice.v[i].region].task == NO_TASK;
    return n;
}

/* Nothing is dispatched for the four concatenations, whose buffers have two writers each. */
static void check_plan(const struct fixture *b)
{
    assert_int_equal(count_joins(b), 4);
    assert_int_equal(b->plan.dispatch.n + 4, b->sel.choice.n);
    for (u32 i = 0; i < b->sel.choice.n; i++) {
        const struct region *r = &b->cover.region.v[b->sel.choice.v[i].region];
        for (u32 k = 0; k < r->n_nodes && r->task != NO_TASK; k++) assert_null(op_of(&b->lowered, r->nodes[k])->join);
    }
}

static void check_run(struct fixture *b, struct rt_program *p, i64 h, i64 w)
{
    struct arena a = {0};
    struct rng r = rng_seed((u64)(h * 1000 + w));
    struct tensor *in = tensor_new(&a, DT_F32, 4, (i64[]){1, 3, h, w}), *want, got = {0};
    for (i64 i = 0; i < tensor_count(in); i++) elem_set_f64(DT_F32, in->data, i, rng_f64(&r) * 2 - 1);
    if (!graph_eval(&b->g, &in, &want, &a, NULL, &b->e) || !rt_run(p, in, &got, &a, &b->e)) fail_msg("%s", b->e.msg);
    double scale = fmax(1e-6, tensor_largest(want));
    struct tensor_diff d = tensor_compare(&got, want, 0, 1e-4 * scale);
    if (d.n_bad) fail_msg("%lldx%lld: %lld elements differ, by up to %g of %g", (long long)h, (long long)w, (long long)d.n_bad, d.max_abs, scale);
    arena_release(&a);
}

static void try_device(const char *device, i64 h, i64 w)
{
    struct fixture b;
    fixture_open(&b, device, &(struct cover_opts){.only_joins = true});
    check_plan(&b);
    struct rt_program *p = rt_load(&b.plan, b.dev, &b.e);
    if (!p) fail_msg("%s", b.e.msg);
    check_run(&b, p, 1, 1);
    if (h) check_run(&b, p, h, w);
    rt_unload(p);
    fixture_close(&b);
}

static void test_cpu(void **state) { try_device("cpu", 17, 31); }
static void test_interp(void **state) { try_device("interp", 0, 0); }

static void test_vulkan(void **state)
{
    vulkan_stay_loaded();
    if (!dev_find(S("vulkan"))->count()) skip_test("no Vulkan device");
    try_device("vulkan", 17, 31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_interp),
        cmocka_unit_test(test_vulkan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
