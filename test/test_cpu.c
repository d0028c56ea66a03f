// SPDX-License-Identifier: Apache-2.0
//
// Threads of device cpu: grids of any size execute every iteration exactly once, with any number of
// threads and on any processors of the caller, whose affinity is preserved; threads of the pool
// leave the caller's processor free if and only if there are enough others.
#define _GNU_SOURCE /* sched_getaffinity */
#include "lang_fixture.h"

#include <sched.h>
#include <unistd.h>

enum { MOST = 20000 }; /* iterations */

struct fixture {
    struct dev *d;
    struct dev_kernel *kernel;
    struct dev_mem count; /* i32 per iteration: how often it was done */
};

/* count[i] += 1 for the iteration i of a grid a x b x c */
static void counting_kernel(struct run *r)
{
    struct kir *k = &r->kir;
    kir_init(k, &r->arena, S("counting"));
    kval count = kir_buf(k, S("count"), DT_I32, KA_INOUT);
    kval size[3] = {kir_param(k, S("a")), kir_param(k, S("b")), kir_param(k, S("c"))}, at[3];
    for (u32 i = 0; i < 3; i++) at[i] = kir_grid(k, size[i]);
    for (u32 i = 1; i < 3; i++) at[i] = kir_add(k, kir_mul(k, at[i - 1], size[i]), at[i]);
    kir_store(k, count, at[2], kir_add(k, kir_load(k, count, at[2]), kir_const_i(k, DT_I32, 1, 1)));
    for (u32 i = 0; i < 3; i++) kir_end(k);
}

/* The state of all tests: its binary. */
static int build_kernel(void **state)
{
    struct run r = {0};
    struct err e = {0};
    struct caps c;
    struct buf *binary = mem_alloc(sizeof *binary);
    struct dev *d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = 1}, &e);
    if (!d) return -1;
    d->driver->caps(d, &c);
    counting_kernel(&r);
    build_as(&r, "c", &c, binary);
    *state = binary;
    d->driver->close(d);
    arena_release(&r.arena);
    return 0;
}

static int forget_kernel(void **state)
{
    buf_release(*state);
    mem_free(*state);
    return 0;
}

static struct fixture fixture_open(const struct buf *binary, u32 n_threads)
{
    struct err e = {0};
    struct fixture b = {.d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = n_threads}, &e)};
    assert_non_null(b.d);
    b.kernel = b.d->driver->load(b.d, buf_view(binary), S("counting"), 1, &e);
    assert_non_null(b.kernel);
    assert_true(b.d->driver->alloc(b.d, MOST * 4, &b.count, &e));
    return b;
}

static void fixture_close(struct fixture *b)
{
    b->d->driver->release(b->d, &b->count);
    b->d->driver->unload(b->d, b->kernel);
    b->d->driver->close(b->d);
}

static void launch_once(struct fixture *b, const i64 size[3])
{
    struct err e = {0};
    i64 n = size[0] * size[1] * size[2];
    const i32 *count = b->count.host;
    memset(b->count.host, 0, MOST * 4);
    struct dev_launch l = {.kernel = b->kernel,
                           .buf = &b->count,
                           .n_buf = 1,
                           .param = size,
                           .n_param = 3,
                           .grid = (const i64(*)[3])size,
                           .n_grid = 1};
    assert_true(b->d->driver->launch(b->d, &l, &e));
    for (i64 i = 0; i < MOST; i++) assert_int_equal(count[i], i < n);
}

static void random_launch(struct fixture *b, struct rng *g)
{
    i64 size[3];
    do
        for (u32 i = 0; i < 3; i++) size[i] = rng_range(g, 0, rng_range(g, 0, 3) ? 30 : 400);
    while (size[0] * size[1] * size[2] > MOST);
    launch_once(b, size);
}

static cpu_set_t allowed(pid_t thread)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(thread, sizeof set, &set), 0);
    return set;
}

static cpu_set_t only(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

static void allow(const cpu_set_t *set) { assert_int_equal(sched_setaffinity(0, sizeof *set, set), 0); }

static void every_iteration_once(void **state)
{
    static const u32 n_threads[] = {1, 2, 4, 9}; /* more than there are processors, too: then they sleep, not spin */
    struct rng g = rng_seed(1);
    cpu_set_t before = allowed(0);
    for (u32 i = 0; i < countof(n_threads); i++) {
        struct fixture b = fixture_open(*state, n_threads[i]);
        for (u32 j = 0; j < 60; j++) random_launch(&b, &g);
        fixture_close(&b);
        cpu_set_t after = allowed(0);
        assert_true(CPU_EQUAL(&before, &after));
    }
}

/* From launch to launch the caller is on another processor, the only one it may use, and then on any. */
static void callers_that_move(void **state)
{
    cpu_set_t all = allowed(0), one;
    struct rng g = rng_seed(2);
    for (u32 n = 2; n <= 4; n += 2) {
        struct fixture b = fixture_open(*state, n);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &all)) continue;
            one = only(cpu);
            allow(&one);
            for (u32 j = 0; j < 5; j++) random_launch(&b, &g);
            cpu_set_t after = allowed(0);
            assert_true(CPU_EQUAL(&one, &after));
            allow(&all);
            random_launch(&b, &g);
        }
        fixture_close(&b);
    }
}

static void one_processor(void **state)
{
    cpu_set_t all = allowed(0), one = only(sched_getcpu());
    struct rng g = rng_seed(3);
    allow(&one);
    for (u32 n = 1; n <= 4; n *= 2) {
        struct fixture b = fixture_open(*state, n);
        for (u32 j = 0; j < 10; j++) random_launch(&b, &g);
        fixture_close(&b);
    }
    cpu_set_t after = allowed(0);
    assert_true(CPU_EQUAL(&one, &after));
    allow(&all);
}

/* Threads of this process but for the caller. */
static u32 others(pid_t id[8])
{
    struct arena a = {0};
    struct err e = {0};
    struct str *name;
    i64 n, self = os_thread_id();
    u32 found = 0;
    assert_true(os_list(&a, "/proc/self/task", &name, &n, &e));
    for (i64 i = 0; i < n; i++) {
        i64 t = 0;
        if (!str_to_i64(name[i], &t) || t == self) continue;
        assert_true(found < 8);
        id[found++] = (pid_t)t;
    }
    arena_release(&a);
    return found;
}

static void pool_avoids_the_callers_processor(void **state)
{
    cpu_set_t all = allowed(0);
    for (u32 n = 2; n <= 4; n++) {
        pid_t before[8], id[8];
        u32 n_before = others(before), n_id;
        struct fixture b = fixture_open(*state, n);
        launch_once(&b, (const i64[]){100, 1, 1});
        n_id = others(id);
        assert_int_equal(n_id, n_before + n - 1);
        for (u32 i = 0; i < n_id; i++) {
            cpu_set_t set = allowed(id[i]), both;
            bool is_new = true;
            for (u32 j = 0; j < n_before; j++) is_new = is_new && id[i] != before[j];
            if (!is_new) continue;
            CPU_AND(&both, &set, &all);
            assert_true(CPU_EQUAL(&both, &set));
            assert_int_equal(CPU_COUNT(&set), CPU_COUNT(&all) - (CPU_COUNT(&all) >= (int)n));
        }
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_iteration_once),
        cmocka_unit_test(callers_that_move),
        cmocka_unit_test(one_processor),
        cmocka_unit_test(pool_avoids_the_callers_processor),
    };
    return cmocka_run_group_tests(tests, build_kernel, forget_kernel);
}
