// SPDX-License-Identifier: Apache-2.0
//
// The search for the best allocation against enumeration of all, on random networks small enough
// for it and three devices of which two are described; its bounds; and the model of time itself.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "dev/dev.h"
#include "place/cost.h"
#include "seeds.h"

enum { MAX_OPS = 8, MAX_DEVICES = 4 };

struct fixture {
    struct arena a;
    struct model *m;
    struct place_net x;
    struct place_devices d;
    struct caps caps;
    struct plan_target plan;
    struct place_target t[MAX_DEVICES];
    struct place_costs *c;
    struct err e;
};

/* The first device is a processor that plan selection knows, the others are described. */
static void fixture_open(struct fixture *f, struct str net, const char *const *devices, u32 n)
{
    struct model_source s = {.path = "net", .bytes = net};
    struct model_opts o = {0};
    *f = (struct fixture){0};
    f->m = model_open(&s, &o, &f->e);
    if (!f->m || !place_net_open(&f->x, f->m, &f->a, &f->e) ||
        !place_devices_parse(&f->d, devices, n, &f->a, &f->e))
        fail_msg("%s", f->e.msg);
    assert_true(dev_target(&f->caps, "cpu", S("x86-64-v3")));
    f->caps.n_threads = 2;
    f->plan = (struct plan_target){
        .caps = &f->caps, .fingerprint = S("described"), .toolchain = S("none")};
    for (u32 k = 0; k < n; k++) {
        const struct place_device *d = &f->d.v[k];
        f->t[k] = (struct place_target){d->is_described ? NULL : &f->plan, d->link_bandwidth,
                                        d->link_latency};
    }
    f->c = place_costs_open(&f->x, f->m, &f->d, f->t, &f->e);
    if (!f->c) fail_msg("%s", f->e.msg);
}

static void fixture_close(struct fixture *f)
{
    place_costs_close(f->c);
    arena_release(&f->a);
    model_close(f->m);
}

/* --- random networks --- */

/* n operators on values (1, 8, 16, 16), of few kinds. */
static void random_net(struct buf *b, struct rng *r, u32 n)
{
    static const char *const unary[] = {"Relu(%%v%d)",
                                        "Sigmoid(%%v%d)",
                                        "Conv(%%v%d, %%w1)",
                                        "Conv(%%v%d, %%w3) {pads=[1,1,1,1]}",
                                        "Conv(%%v%d, %%w3) {pads=[1,1,1,1]}",
                                        "MaxPool(%%v%d) {kernel_shape=[3,3], pads=[1,1,1,1]}",
                                        "Softmax(%%v%d) {axis=1}"};
    bool is_read[MAX_OPS + 1] = {false};
    buf_z(b, "graph { input %v0: f32[1,8,16,16]\n");
    for (int k = 1; k <= 3; k += 2) {
        buf_printf(b, "const %%w%d: f32[8,8,%d,%d] = [", k, k, k);
        for (int i = 0; i < 64 * k * k; i++) buf_printf(b, "%s%d", i ? "," : "", i % 5 - 2);
        buf_z(b, "]\n");
    }
    for (int k = 1; k <= (int)n; k++) {
        const int x = (int)rng_range(r, k > 3 ? k - 3 : 0, k - 1), y = (int)rng_range(r, 0, k - 1);
        buf_printf(b, "%%v%d: f32[1,8,16,16] = ", k);
        if (rng_range(r, 0, 2)) buf_printf(b, unary[rng_range(r, 0, countof(unary) - 1)], x);
        else
            buf_printf(b, "%s(%%v%d, %%v%d)", rng_range(r, 0, 1) ? "Add" : "Mul", x, y),
                is_read[y] = true;
        is_read[x] = true;
        buf_char(b, '\n');
    }
    for (u32 k = 1; k <= n; k++)
        if (!is_read[k]) buf_printf(b, "output %%v%u\n", k);
    buf_z(b, "}\n");
}

/* Operators that are one primitive each. */
static void simple_net(struct buf *b, struct rng *r, int n)
{
    static const char *const unary[] = {"Relu", "Tanh", "Abs", "Exp"};
    buf_z(b, "graph { input %v0: f32[1,8,16,16]\n");
    for (int k = 1; k <= n; k++) {
        const int x = (int)rng_range(r, k > 2 ? k - 2 : 0, k - 1), y = (int)rng_range(r, 0, k - 1);
        buf_printf(b, "%%v%d: f32[1,8,16,16] = ", k);
        if (rng_range(r, 0, 1))
            buf_printf(b, "%s(%%v%d)\n", unary[rng_range(r, 0, countof(unary) - 1)], x);
        else buf_printf(b, "Sub(%%v%d, %%v%d)\n", x, y);
    }
    for (int k = 1; k <= n; k++)
        if (k == n || rng_range(r, 0, 3) == 0) buf_printf(b, "output %%v%d\n", k);
    buf_z(b, "}\n");
}

static struct str random_device(struct arena *a, struct rng *r, const char *name)
{
    return str_fmt(a, "%s=gflops:%d;gbs:%d;start:%de-7;link_gbs:%d;link_latency:%de-7;watts:%d",
                   name, (int)rng_range(r, 20, 200), (int)rng_range(r, 2, 20),
                   (int)rng_range(r, 0, 40), (int)rng_range(r, 2, 30), (int)rng_range(r, 0, 20),
                   (int)rng_range(r, 1, 9));
}

/* --- enumeration --- */

static double value_of(const struct schedule *s, enum place_aim aim)
{
    return aim == PLACE_LATENCY ? s->latency : aim == PLACE_THROUGHPUT ? s->period : s->joules;
}

static void enumerate(struct fixture *f, double best[N_PLACE_AIMS], double single[N_PLACE_AIMS])
{
    u32 device[MAX_OPS] = {0}, n = f->x.op.n, k;
    for (u32 aim = 0; aim < N_PLACE_AIMS; aim++) best[aim] = single[aim] = INFINITY;
    do {
        struct arena tmp = {0};
        struct schedule s;
        bool same = true;
        if (!schedule_make(&s, f->c, device, SCHEDULE_FINAL, &tmp, &f->e)) fail_msg("%s", f->e.msg);
        for (k = 1; k < n; k++) same &= device[k] == device[0];
        for (u32 aim = 0; aim < N_PLACE_AIMS; aim++) {
            best[aim] = fmin(best[aim], value_of(&s, aim));
            if (same) single[aim] = fmin(single[aim], value_of(&s, aim));
        }
        arena_release(&tmp);
        for (k = 0; k < n && ++device[k] == f->d.n; k++) device[k] = 0;
    } while (k < n);
}

static double worst;

static void check_found(struct fixture *f, u64 seed, enum place_aim aim, double best, double single)
{
    struct place_found x;
    const struct place_search o = {.aim = aim};
    if (!place_search(&x, f->c, &o, &f->a, &f->e)) fail_msg("seed %d: %s", (int)seed, f->e.msg);
    worst = fmax(worst, x.best.value / best - 1);
    if (x.best.value > best * 1.02)
        fail_msg("seed %d, %s: found %g, there is %g", (int)seed, place_aim_name(aim), x.best.value,
                 best);
    if (x.best.value < best * (1 - 1e-9))
        fail_msg("seed %d, %s: found %g, which is none: %g is the best", (int)seed,
                 place_aim_name(aim), x.best.value, best);
    if (x.best.value > single)
        fail_msg("seed %d, %s: found %g, one device takes %g", (int)seed, place_aim_name(aim),
                 x.best.value, single);
    assert_true(fabs(x.single_value - single) <= 1e-12 * single);
    if (x.bound > best * (1 + 1e-9))
        fail_msg("seed %d, %s: bound %g, but %g is possible", (int)seed, place_aim_name(aim),
                 x.bound, best);
    assert_true(x.bound > 0 && x.best.parts.is_minimal);
}

static void search_finds_what_enumeration_does(void **state)
{
    u32 n_divided = 0;
    for (u64 seed = first_seed(1, 101); seed < last_seed(1, 101); seed++) {
        struct rng r = rng_seed(seed);
        struct arena a = {0};
        struct buf net = {0};
        struct fixture f;
        double best[N_PLACE_AIMS], single[N_PLACE_AIMS];
        const char *devices[3] = {"X64:0=watts:20"};
        random_net(&net, &r, (u32)rng_range(&r, 7, MAX_OPS));
        devices[1] = random_device(&a, &r, "MALI:0").p,
        devices[2] = random_device(&a, &r, "ADRENO:0").p;
        fixture_open(&f, buf_view(&net), devices, 3);
        enumerate(&f, best, single);
        for (u32 aim = 0; aim < N_PLACE_AIMS; aim++)
            check_found(&f, seed, aim, best[aim], single[aim]);
        n_divided += best[PLACE_THROUGHPUT] < single[PLACE_THROUGHPUT] * 0.98;
        fixture_close(&f);
        buf_release(&net);
        arena_release(&a);
    }
    print_message("worst: %.4f %% above the optimum\n", worst * 100);
    assert_true(n_divided > 5 || seeds_are_given()); /* several devices help now and then */
}

/* --- the model of time --- */

/* A program's selection, as quern compile makes it. */
static double selected(struct fixture *f)
{
    struct cover cover;
    struct selection s;
    const struct graph *g = model_lowered(f->m, &f->caps, &f->e);
    assert_non_null(g);
    assert_true(plan_cover(&cover, g, (struct cover_opts){0}, &f->plan, &f->a, &f->e));
    assert_true(plan_choose(&s, &cover, f->m->var, &f->plan, &f->a, &f->e));
    return s.seconds;
}

static void a_sub_graph_takes_what_its_program_does(void **state)
{
    static const char *const devices[] = {"X64:0", "X64:1=slowdown:3;start:1e-3"};
    for (u64 seed = first_seed(1, 11); seed < last_seed(1, 11); seed++) {
        struct rng r = rng_seed(seed);
        struct buf net = {0};
        struct fixture f;
        double one = 0, slow = 0;
        const u64 all = ((u64)1 << MAX_OPS) - 1;
        random_net(&net, &r, MAX_OPS);
        fixture_open(&f, buf_view(&net), devices, 2);
        const u64 ops = all >> (MAX_OPS - f.x.op.n);
        assert_true(place_part_seconds(f.c, 0, &ops, &one, &f.e) &&
                    place_part_seconds(f.c, 1, &ops, &slow, &f.e));
        assert_true(one > 0 && fabs(one - selected(&f)) < 1e-9 * one);
        assert_true(fabs(slow - (3 * one + 1e-3)) < 1e-9 * slow);
        fixture_close(&f);
        buf_release(&net);
    }
}

/* Each value is copied once from its device to each other one that needs it, by way of the host. */
static double additive(const struct fixture *f, const u32 *device)
{
    const struct place_net *x = &f->x;
    double sum = 0;
    for (u32 k = 0; k < x->op.n; k++) sum += f->c->alone[device[k]][k];
    for (u32 t = 0; t < x->tensor.n; t++) {
        const value_id v = x->tensor.v[t].value;
        const node_id n = graph_value(&x->g, v)->producer;
        const u32 from = n ? device[x->op_of[n]] : UINT32_MAX;
        bool needed[MAX_DEVICES + 1] = {false};
        if (x->tensor.v[t].is_param) continue;
        for (u32 k = 0; k < x->op.n; k++)
            for (u32 i = 0; i < x->op.v[k].in.n; i++) needed[device[k]] |= x->op.v[k].in.v[i] == t;
        for (u32 k = 0; k < x->g.output.n; k++) needed[f->d.n] |= x->g.output.v[k] == v;
        for (u32 d = 0; d <= f->d.n; d++)
            if (needed[d]) sum += place_copy_seconds(f->c, v, from, d < f->d.n ? d : UINT32_MAX);
    }
    return sum;
}

static void joint_selection_is_exact(void **state)
{
    for (u64 seed = first_seed(1, 61); seed < last_seed(1, 61); seed++) {
        struct rng r = rng_seed(seed);
        struct arena a = {0};
        struct buf net = {0};
        struct fixture f;
        const char *devices[3];
        u32 device[MAX_OPS] = {0}, got[MAX_OPS], k;
        double best = INFINITY, total, bound;
        simple_net(&net, &r, 6);
        devices[0] = random_device(&a, &r, "TPU:0").p,
        devices[1] = random_device(&a, &r, "MALI:0").p,
        devices[2] = random_device(&a, &r, "ADRENO:0").p;
        fixture_open(&f, buf_view(&net), devices, 3);
        const u32 n = f.x.op.n;
        const bool is_same = f.c->low.node.n == n + 1; /* no pass has removed an operator */
        do {
            best = fmin(best, additive(&f, device));
            for (k = 0; k < n && ++device[k] == f.d.n; k++) device[k] = 0;
        } while (k < n);
        assert_true(joint_select(f.c, PLACE_LATENCY, true, got, &total, &f.e));
        if (total > best * (1 + 1e-9) || (is_same && total < best * (1 - 1e-9)))
            fail_msg("seed %d: %g, there is %g", (int)seed, total, best);
        assert_true(!is_same || fabs(additive(&f, got) - best) <= 1e-9 * best);
        assert_true(joint_select(f.c, PLACE_LATENCY, false, got, &bound, &f.e) && bound <= total &&
                    bound > 0);
        fixture_close(&f);
        buf_release(&net);
        arena_release(&a);
    }
}

static void converters_get_only_what_they_accept(void **state)
{
    static const char *const devices[] = {"X64:0=slowdown:100", "TPU:0=gflops:9000;gbs:900"};
    static const char net[] =
        "graph { input %x: f32[1,8,16,16] %a: f32[1,8,16,16] = Relu(%x) %b: f32[1,8,16,16] = "
        "Erf(%a) %c: f32[1,8,16,16] = Sigmoid(%b) output %c }";
    struct fixture f;
    struct place_found x;
    fixture_open(&f, S(net), devices, 2);
    assert_true(place_search(&x, f.c, &(struct place_search){0}, &f.a, &f.e));
    assert_true(x.best.y.device[0] == 1 && x.best.y.device[1] == 0 && x.best.y.device[2] == 1);
    assert_true(x.single == 0 && x.single_value > x.best.value && x.best.parts.n == 3);
    fixture_close(&f);
}

static void equal_searches_have_equal_results(void **state)
{
    static const char *const devices[] = {"X64:0", "MALI:0=gflops:40;gbs:8;start:1e-6"};
    struct rng r = rng_seed(7);
    struct buf net = {0};
    struct fixture f, g;
    struct place_found x, y;
    random_net(&net, &r, MAX_OPS);
    fixture_open(&f, buf_view(&net), devices, 2);
    fixture_open(&g, buf_view(&net), devices, 2);
    assert_true(place_search(&x, f.c, &(struct place_search){.aim = PLACE_THROUGHPUT}, &f.a, &f.e));
    assert_true(place_search(&y, g.c, &(struct place_search){.aim = PLACE_THROUGHPUT}, &g.a, &g.e));
    assert_memory_equal(x.best.y.device, y.best.y.device, sizeof(u32) * f.x.op.n);
    assert_true(x.best.value == y.best.value && x.n_tried == y.n_tried && x.bound == y.bound);
    fixture_close(&f);
    fixture_close(&g);
    buf_release(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sub_graph_takes_what_its_program_does),
        cmocka_unit_test(joint_selection_is_exact),
        cmocka_unit_test(converters_get_only_what_they_accept),
        cmocka_unit_test(equal_searches_have_equal_results),
        cmocka_unit_test(search_finds_what_enumeration_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
