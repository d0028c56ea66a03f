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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_finds_what_enumeration_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
