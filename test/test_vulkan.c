// SPDX-License-Identifier: Apache-2.0
//
// The Vulkan driver. With a missing library or a faulty one (fake_vulkan.c): clear errors, zeroed
// memory that never overlaps, data that survives both ways of transfer, grids beyond the device's
// limits that run every workgroup once, recovery of a lost device. With a real device (Mesa's
// lavapipe suffices): the same through the whole stack, with the validation layer if installed. The
// second part is skipped without a device.
#include "lang/lang.h"
#include "vulkan_module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "dev_fixture.h"
#include "skip.h"

static char fake_path[4096];
static struct str cache_dir; /* of this process, instead of the user's */

static const struct dev_driver *driver(void)
{
    return dev_find(S("vulkan"));
}

static void use_fake(const char *options)
{
    setenv("QUERN_VULKAN_LOADER", fake_path, 1);
    setenv("QUERN_FAKE_VULKAN", options, 1);
}

static struct dev *open_fake(const char *options)
{
    struct err e = {0};
    use_fake(options);
    struct dev *d = driver()->open(&(struct dev_opts){0}, &e);
    if (!d) fail_msg("%s", e.msg);
    return d;
}

/* Opening fails, and the message has these words. */
static void refuse(const char *options, const char *words)
{
    struct err e = {0};
    use_fake(options);
    assert_null(driver()->open(&(struct dev_opts){0}, &e));
    if (!strstr(e.msg, words)) fail_msg("'%s' does not say '%s'", e.msg, words);
}

static struct dev_kernel *load(struct dev *d, struct module m, struct err *e)
{
    struct dev_kernel *k = d->driver->load(d, buf_view(&m.code), S("k"), 1, e);
    buf_release(&m.code);
    return k;
}

/* Missing libraries and devices. */

static void test_absent(void **state)
{
    struct err e = {0};
    const struct dev_driver *v;
    struct dev_opts o = {0};
    setenv("QUERN_VULKAN_LOADER", "libthere_is_none.so.7", 1);
    assert_int_equal(driver()->count(), 0);
    assert_false(dev_select("*fake*", &v, &o, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_true(strstr(e.msg, "'*fake*'") && strstr(e.msg, "'cpu'"));
    e = (struct err){0};
    assert_true(dev_select("vulkan", &v, &o, &e)); /* the driver is known; opening reports the reason */
    assert_false(dev_ask(v, &o, NULL, NULL, &e));
    assert_true(strstr(e.msg, "no Vulkan") && strstr(e.msg, "libthere_is_none.so.7"));
}

static void test_refused(void **state)
{
    refuse("devices=0", "no devices");
    refuse("without=1", "'vkCmdDispatch'");
    refuse("compute=0", "'fake A' has no queue that computes");
    refuse("version=10", "VK_KHR_storage_buffer_storage_class");
    use_fake("devices=0");
    assert_int_equal(driver()->count(), 0);
}

static void test_layer_absent(void **state)
{
    struct err e = {0};
    use_fake("devices=1");
    setenv("QUERN_VULKAN_VALIDATE", "1", 1);
    struct dev *d = driver()->open(&(struct dev_opts){0}, &e);
    unsetenv("QUERN_VULKAN_VALIDATE");
    assert_null(d);
    assert_true(strstr(e.msg, "VK_LAYER_KHRONOS_validation") != NULL);
}

/* Two devices: the discrete one first; every one is listed, and found by name. */
static void test_select(void **state)
{
    struct arena a = {0};
    struct dev_info *v;
    const struct dev_driver *found;
    struct dev_opts o = {0};
    struct caps c = {0};
    struct buf fp = {0};
    struct err e = {0};
    use_fake("devices=2");
    u32 n = dev_list(&a, &v), k = 0;
    while (k < n && v[k].driver != driver()) k++;
    assert_true(k + 2 < n && v[k].opts.index == 0 && v[k + 1].opts.index == 1);
    for (u32 i = k + 2; i < n; i++) assert_true(v[i].driver == driver() && dev_is_described(&v[i].opts));
    assert_true(str_is(v[k].name, "fake B") && str_is(v[k + 1].name, "fake A"));
    assert_true(strstr(v[k].fingerprint.p, "fake B") && v[k].caps.is_gpu && v[k].trouble.n == 0);
    assert_true(dev_select("FAKE?a", &found, &o, &e) && found == driver());
    assert_true(dev_ask(found, &o, &c, &fp, &e));
    assert_true(strstr(fp.p, "fake A") && c.buffer_align == 64 && c.max_group == 1024);
    assert_true(c.has_f64 == false && c.max_buffer == 1 << 27 && c.spirv == 16);
    buf_release(&fp);
    assert_false(dev_ask(driver(), &(struct dev_opts){.name = S("*none*")}, NULL, NULL, &e));
    assert_true(strstr(e.msg, "'*none*'") != NULL);
    arena_release(&a);
}

/* Memory. */

static void test_memory(void **state)
{
    static const char *const kinds[] = {"host=0", "host=1"};
    for (i64 i = 0; i < countof(kinds); i++) {
        struct dev *d = open_fake(kinds[i]);
        use_memory(d, 3);
        d->driver->close(d);
    }
}

static void test_out_of_memory(void **state)
{
    struct err e = {0};
    struct dev_mem m, small;
    struct dev *d = open_fake("memory=100");
    assert_true(d->driver->alloc(d, 1000, &small, &e));
    assert_false(d->driver->alloc(d, 90 << 20, &m, &e));
    assert_true(strstr(e.msg, "94371840 bytes") && strstr(e.msg, "1024 are in use"));
    assert_true(strstr(e.msg, "vkAllocateMemory") && strstr(e.msg, "out of device memory"));
    e = (struct err){0};
    d->driver->release(d, &small);
    assert_true(d->driver->alloc(d, 90 << 20, &m, &e)); /* the empty block is given back for it */
    d->driver->release(d, &m);
    assert_false(d->driver->alloc(d, -1, &m, &e));
    d->driver->close(d);
}

/* A question to the fake library, which stays loaded: lib is the caller's. */
typedef long question(void);
static question *ask_fake(void **lib, const char *name)
{
    struct err e = {0};
    question *q;
    *lib = os_dlopen(fake_path, &e);
    void *f = os_dlsym(*lib, name);
    memcpy(&q, &f, sizeof q);
    return q;
}

/* All objects are destroyed, whatever happened before. */
static void test_leaves_nothing(void **state)
{
    struct err e = {0};
    struct dev_mem m;
    void *lib;
    question *objects = ask_fake(&lib, "fake_objects");
    struct dev *d = open_fake("host=0");
    assert_true(d->driver->alloc(d, 1000, &m, &e));
    struct dev_kernel *k = load(d, module(2, 4, SPV_CAP_SHADER, 64), &e);
    assert_non_null(k);
    assert_true(objects() > 5);
    d->driver->unload(d, k);
    d->driver->close(d); /* memory that was not released goes with the device */
    assert_int_equal(objects(), 0);
    os_dlclose(lib);
}

/* Pipelines are remembered; a file that is damaged anywhere, or cut off, is not given to the driver. */
static i64 reopen(question *cached)
{
    struct err e = {0};
    struct dev *d = open_fake("host=0");
    struct dev_kernel *k = load(d, module(2, 4, SPV_CAP_SHADER, 64), &e);
    assert_non_null(k);
    i64 n = cached();
    d->driver->unload(d, k);
    d->driver->close(d);
    return n;
}

static void test_cache(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct str text, *names;
    i64 n;
    void *lib;
    question *cached = ask_fake(&lib, "fake_cache");
    os_remove_tree(str_fmt(&a, "%s/quern", cache_dir.p).p);
    assert_int_equal(reopen(cached), 0);
    i64 good = reopen(cached);
    assert_true(good > 100);
    struct str folder = str_fmt(&a, "%s/quern", cache_dir.p);
    assert_true(os_list(&a, folder.p, &names, &n, &e));
    assert_int_equal(n, 1);
    const char *path = str_fmt(&a, "%s/%s", folder.p, names[0].p).p;
    for (i64 i = 0; i < good + 32; i += 13) {
        assert_true(os_read(&a, path, 1 << 20, &text, &e));
        char *p = arena_alloc(&a, text.n + 1);
        memcpy(p, text.p, (size_t)text.n);
        p[i] ^= 4;
        assert_true(os_write(path, p, i % 2 ? text.n : i, &e));
        assert_int_equal(reopen(cached), 0);
        assert_int_equal(reopen(cached), good);
    }
    os_dlclose(lib);
    arena_release(&a);
}

/* Launches. */

struct fixture {
    struct dev *d;
    struct dev_mem buf[2];
    struct dev_kernel *kernel;
    i64 grid[1][3], param[40];
    struct dev_launch launch;
};

/* A kernel of one parameter on a grid; the first buffer counts the groups. */
static void open_fixture_on(struct fixture *b, struct dev *d, const i64 grid[3], struct module m,
                            u32 n_param)
{
    struct err e = {0};
    i64 groups = grid[0] * grid[1] * grid[2];
    u32 extent[3] = {(u32)grid[0], (u32)grid[1], (u32)grid[2]};
    *b = (struct fixture){.d = d};
    assert_true(b->d->driver->alloc(b->d, 4 * groups, &b->buf[0], &e));
    assert_true(b->d->driver->alloc(b->d, sizeof extent, &b->buf[1], &e));
    assert_true(b->d->driver->upload(b->d, b->buf[1], extent, sizeof extent, &e));
    b->kernel = load(b->d, m, &e);
    if (!b->kernel) fail_msg("%s", e.msg);
    memcpy(b->grid[0], grid, sizeof b->grid[0]);
    b->launch = (struct dev_launch){.kernel = b->kernel,
                                    .buf = b->buf,
                                    .n_buf = 2,
                                    .param = b->param,
                                    .n_param = n_param,
                                    .grid = (const i64(*)[3])b->grid,
                                    .n_grid = 1};
}

static void open_fixture(struct fixture *b, const char *options, const i64 grid[3], struct module m,
                         u32 n_param)
{
    open_fixture_on(b, open_fake(options), grid, m, n_param);
}

static void close_fixture(struct fixture *b)
{
    b->d->driver->unload(b->d, b->kernel);
    for (int i = 0; i < 2; i++) b->d->driver->release(b->d, &b->buf[i]);
    b->d->driver->close(b->d);
}

static bool launch(struct fixture *b, struct err *e)
{
    return b->d->driver->launch(b->d, &b->launch, e) && b->d->driver->fence(b->d, e);
}

/* Every group ran this many times. */
static void check_groups(struct fixture *b, u32 times)
{
    struct err e = {0};
    u32 *p = mem_alloc(b->buf[0].size + 4);
    assert_true(b->d->driver->download(b->d, b->buf[0], p, b->buf[0].size, &e));
    for (i64 i = 0; i < b->buf[0].size / 4; i++)
        if (p[i] != times) fail_msg("group %lld ran %u times, not %u", (long long)i, p[i], times);
    mem_free(p);
}

static void test_grids(void **state)
{
    static const i64 grids[][3] = {{1, 1, 1}, {7, 1, 1},  {8, 1, 1}, {9, 1, 1},  {70, 1, 1},
                                   {3, 9, 2}, {17, 8, 9}, {1, 1, 8}, {1, 33, 1}, {0, 5, 5}, {5, 5, 0}};
    for (i64 i = 0; i < countof(grids); i++)
        for (int by_push = 0; by_push < 2; by_push++) {
            struct fixture b;
            struct err e = {0};
            struct module m = by_push ? module(2, 4, SPV_CAP_SHADER, 64) : module(3, 0, SPV_CAP_SHADER, 64);
            open_fixture(&b, "groups=8", grids[i], m, 1);
            for (u32 n = 1; n <= 3; n++) {
                assert_true(launch(&b, &e));
                check_groups(&b, n);
            }
            close_fixture(&b);
        }
}

/* Without the base in its parameters a kernel runs as far as one dispatch goes. */
static void test_no_base(void **state)
{
    struct fixture b;
    struct err e = {0};
    open_fixture(&b, "groups=8", (const i64[]){8, 2, 1}, module(2, 1, SPV_CAP_SHADER, 64), 1);
    assert_true(launch(&b, &e));
    check_groups(&b, 1);
    b.grid[0][0] = 9;
    assert_false(launch(&b, &e));
    assert_true(strstr(e.msg, "extent 9") && strstr(e.msg, "allows 8"));
    close_fixture(&b);
}

/* More launches than a batch holds, then more than all hold. */
static void test_many(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct dev_mem swap;
    open_fixture(&b, "host=0", (const i64[]){3, 1, 1}, module(2, 4, SPV_CAP_SHADER, 64), 1);
    assert_true(b.d->driver->alloc(b.d, 12, &swap, &e));
    for (u32 i = 0; i < 4000; i++) { /* another set of buffers each time */
        struct dev_mem t = b.buf[0];
        b.buf[0] = swap, swap = t;
        assert_true(b.d->driver->launch(b.d, &b.launch, &e));
    }
    assert_true(b.d->driver->fence(b.d, &e));
    check_groups(&b, 2000);
    assert_true(b.d->driver->elapsed(b.d) >= 2e-6); /* 1000 ticks of 2 ns a batch, of 36 bits */
    assert_true(b.d->driver->elapsed(b.d) < 1e-3);
    assert_true(b.d->driver->fence(b.d, &e));
    assert_true(b.d->driver->elapsed(b.d) == 0);
    b.d->driver->release(b.d, &swap);
    close_fixture(&b);
}

/* Recordings are submitted again. Programs are random lists of launches and uploads; each is run
   repeatedly between others, while kernels and memory are created and destroyed, with the same
   results as if recorded each time. */
enum { N_COUNTERS = 4, N_STEPS = 12, MAX_GROUPS = 9, N_KERNELS = 2 };

struct again {
    struct dev *d;
    struct dev_kernel *kernel[N_KERNELS];
    struct dev_mem counter[N_COUNTERS], extent;
    u32 want[N_COUNTERS][MAX_GROUPS];
};

struct step { /* a launch on that many groups, or an upload of this number to all of a counter */
    u32 counter, kernel, groups;
    bool is_upload;
};

static void load_again(struct again *x, u32 k)
{
    struct err e = {0};
    if (x->kernel[k]) x->d->driver->unload(x->d, x->kernel[k]);
    x->kernel[k] = load(x->d, k ? module(3, 0, SPV_CAP_SHADER, 64) : module(2, 4, SPV_CAP_SHADER, 64), &e);
    if (!x->kernel[k]) fail_msg("%s", e.msg);
}

static void alloc_again(struct again *x, u32 i)
{
    struct err e = {0};
    if (x->counter[i].size) x->d->driver->release(x->d, &x->counter[i]);
    assert_true(x->d->driver->alloc(x->d, sizeof x->want[i], &x->counter[i], &e));
    memset(x->want[i], 0, sizeof x->want[i]);
}

static void run_step(struct again *x, const struct step *s)
{
    struct err e = {0};
    u32 all[MAX_GROUPS], *want = x->want[s->counter];
    i64 grid[1][3] = {{s->groups, 1, 1}}, param = 5;
    struct dev_mem buf[2] = {x->counter[s->counter], x->extent};
    struct dev_launch l = {.kernel = x->kernel[s->kernel], .buf = buf, .n_buf = 2, .param = &param,
                           .n_param = 1, .grid = (const i64(*)[3])grid, .n_grid = 1};
    for (u32 i = 0; i < MAX_GROUPS; i++) all[i] = 100 * s->groups;
    bool ok = s->is_upload ? x->d->driver->upload(x->d, buf[0], all, sizeof all, &e)
                           : x->d->driver->launch(x->d, &l, &e);
    if (!ok) fail_msg("%s", e.msg);
    for (u32 i = 0; i < MAX_GROUPS; i++)
        if (s->is_upload) want[i] = all[i];
        else want[i] += i < s->groups;
}

static void check_again(struct again *x)
{
    struct err e = {0};
    u32 got[MAX_GROUPS];
    assert_true(x->d->driver->fence(x->d, &e));
    for (u32 i = 0; i < N_COUNTERS; i++) {
        assert_true(x->d->driver->download(x->d, x->counter[i], got, sizeof got, &e));
        assert_memory_equal(got, x->want[i], sizeof got);
    }
}

static void random_again(struct again *x, struct rng *r)
{
    struct step program[5][N_STEPS];
    for (u32 p = 0; p < 5; p++)
        for (u32 s = 0; s < N_STEPS; s++)
            program[p][s] = (struct step){.counter = (u32)rng_range(r, 0, N_COUNTERS - 1),
                                          .kernel = (u32)rng_range(r, 0, N_KERNELS - 1),
                                          .groups = (u32)rng_range(r, 1, MAX_GROUPS),
                                          .is_upload = rng_range(r, 0, 4) == 0};
    for (u32 i = 0; i < 300; i++) {
        const struct step *s = program[rng_range(r, 0, 4)];
        for (u32 k = 0; k < N_STEPS; k++) run_step(x, &s[k]);
        check_again(x);
        u32 change = (u32)rng_range(r, 0, 20);
        if (change < N_KERNELS) load_again(x, change);
        else if (change < N_KERNELS + N_COUNTERS) alloc_again(x, change - N_KERNELS);
    }
}

/* A program that nothing happens to is not recorded again. */
static void count_again(struct again *x, question *recordings)
{
    static const struct step program[] = {{0, 0, 3, false}, {1, 1, 9, false}, {2, 0, 2, true}, {2, 1, 9, false}};
    i64 first = 0;
    for (u32 i = 0; i < 20; i++) {
        for (u32 k = 0; k < countof(program); k++) run_step(x, &program[k]);
        check_again(x);
        if (i == 1) first = recordings(); /* the first run also clears fresh memory */
    }
    assert_int_equal(recordings(), first);
    load_again(x, 0);
    run_step(x, &program[0]);
    check_again(x);
    assert_true(recordings() > first);
}

static void test_again(void **state)
{
    static const char *const kinds[] = {"groups=8", "groups=8 host=1"};
    void *lib;
    question *recordings = ask_fake(&lib, "fake_recordings");
    for (i64 i = 0; i < countof(kinds); i++) {
        struct again x = {.d = open_fake(kinds[i])};
        struct err e = {0};
        struct rng r = rng_seed(11);
        const u32 extent[3] = {MAX_GROUPS, 1, 1};
        assert_true(x.d->driver->alloc(x.d, sizeof extent, &x.extent, &e));
        assert_true(x.d->driver->upload(x.d, x.extent, extent, sizeof extent, &e));
        for (u32 k = 0; k < N_KERNELS; k++) load_again(&x, k);
        for (u32 k = 0; k < N_COUNTERS; k++) alloc_again(&x, k);
        count_again(&x, recordings);
        random_again(&x, &r);
        for (u32 k = 0; k < N_KERNELS; k++) x.d->driver->unload(x.d, x.kernel[k]);
        x.d->driver->close(x.d);
    }
    os_dlclose(lib);
}

static void test_bad_launches(void **state)
{
    struct fixture b;
    struct err e = {0};
    open_fixture(&b, "host=0", (const i64[]){3, 1, 1}, module(2, 4, SPV_CAP_SHADER, 64), 1);
    b.param[0] = INT64_C(1) << 31;
    assert_false(launch(&b, &e) || !strstr(e.msg, "beyond 32 bits"));
    b.param[0] = 0, e = (struct err){0};
    b.launch.n_param = 9;
    assert_false(launch(&b, &e) || !strstr(e.msg, "9 parameters"));
    b.launch.n_param = 1, e = (struct err){0};
    b.buf[0].size = INT64_C(1) << 28;
    assert_false(launch(&b, &e) || !strstr(e.msg, "268435456"));
    b.buf[0].size = 12, e = (struct err){0};
    b.grid[0][1] = -1;
    assert_false(launch(&b, &e) || !strstr(e.msg, "extent -1"));
    b.grid[0][1] = 1, e = (struct err){0};
    assert_true(launch(&b, &e));
    check_groups(&b, 1);
    close_fixture(&b);
}

static void test_features(void **state)
{
    struct err e = {0};
    struct dev *d = open_fake("small=0");
    static const struct {
        u32 capability;
        const char *words;
    } bad[] = {{SPV_CAP_STORAGE_16, "'storageBuffer16BitAccess', which 'fake A' lacks"},
               {SPV_CAP_F64, "'shaderFloat64'"},
               {SPV_CAP_MATRIX, "'cooperativeMatrix'"},
               {SPV_CAP_SUBGROUP_ARITHMETIC, "'subgroup arithmetic'"},
               {SPV_CAP_ROUND_EVEN, "'shaderRoundingModeRTE"},
               {12345, "capability 12345"}};
    for (i64 i = 0; i < countof(bad); i++) {
        e = (struct err){0};
        assert_null(load(d, module(1, 0, bad[i].capability, 64), &e));
        if (!strstr(e.msg, bad[i].words)) fail_msg("'%s' does not say %s", e.msg, bad[i].words);
    }
    e = (struct err){0};
    assert_null(load(d, module(1, 0, SPV_CAP_SHADER, 2048), &e));
    assert_true(strstr(e.msg, "2048") != NULL);
    assert_null(load(d, module(65, 0, SPV_CAP_SHADER, 64), &(struct err){0}));
    assert_null(load(d, module(1, 33, SPV_CAP_SHADER, 64), &(struct err){0}));
    assert_null(d->driver->load(d, S("no module"), S("k"), 1, &(struct err){0}));
    assert_null(d->driver->load(d, S(""), S("k"), 1, &(struct err){0}));
    struct module m = module(1, 0, SPV_CAP_SHADER, 64);
    e = (struct err){0};
    assert_null(d->driver->load(d, buf_view(&m.code), S("k"), 2, &e)); /* it has one grid */
    assert_true(strstr(e.msg, "'k_1'") != NULL);
    buf_release(&m.code);
    d->driver->close(d);
    d = open_fake("small=1");
    e = (struct err){0};
    struct dev_kernel *k = load(d, module(1, 0, SPV_CAP_STORAGE_16, 64), &e);
    assert_non_null(k);
    d->driver->unload(d, k);
    d->driver->close(d);
}

/* The device is lost at some submission: that operation fails, the next one finds everything in its
   place again and memory zero. */
static void test_lost(void **state)
{
    for (int lost = 2; lost < 6; lost++) {
        char options[32];
        struct fixture b;
        struct err e = {0};
        snprintf(options, sizeof options, "lost=%d", lost);
        open_fixture(&b, options, (const i64[]){5, 1, 1}, module(2, 4, SPV_CAP_SHADER, 64), 1);
        u32 good = 0, extent[3] = {5, 1, 1}, failures = 0;
        for (u32 i = 0; i < 8 && b.d->n_lost == 0; i++) {
            if (launch(&b, &e)) good++;
            else failures++;
        }
        assert_int_equal(failures, 1);
        assert_int_equal(good, lost); /* those before, and the one after */
        assert_true(strstr(e.msg, "vkQueueSubmit: the device was lost") && strstr(e.msg, "fake A"));
        assert_int_equal(b.d->n_lost, 1);
        u8 zero[12], want[12] = {0};
        e = (struct err){0};
        assert_true(b.d->driver->download(b.d, b.buf[1], zero, sizeof zero, &e));
        assert_memory_equal(zero, want, sizeof zero);
        assert_true(b.d->driver->upload(b.d, b.buf[1], extent, sizeof extent, &e));
        assert_true(launch(&b, &e));
        close_fixture(&b);
    }
}

/* A device that other code opened, of the fake library. */
struct other {
    void *lib;
    PFN_vkGetInstanceProcAddr find;
    VkInstance instance;
    VkDevice device;
    struct dev_foreign f;
    long n_locks, depth;
};

static void lock(void *user)
{
    struct other *o = user;
    o->n_locks++;
    assert_int_equal(o->depth++, 0);
}

static void unlock(void *user) { assert_int_equal(--((struct other *)user)->depth, 0); }

static void open_other(struct other *o, const char *options)
{
    static const VkDeviceQueueCreateInfo queues = {.sType =
                                                       VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                                   .queueFamilyIndex = 1,
                                                   .queueCount = 1};
    static const VkDeviceCreateInfo made = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                            .queueCreateInfoCount = 1,
                                            .pQueueCreateInfos = &queues};
    VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkPhysicalDevice gpu;
    VkQueue queue;
    u32 n = 1;
    struct err e = {0};
    *o = (struct other){.lib = os_dlopen(fake_path, &e)};
    setenv("QUERN_FAKE_VULKAN", options, 1);
    void *f = os_dlsym(o->lib, "vkGetInstanceProcAddr");
    memcpy(&o->find, &f, sizeof f);
#define CALL(name) ((PFN_vk##name)o->find(o->instance, "vk" #name))
    assert_int_equal(CALL(CreateInstance)(&info, NULL, &o->instance), VK_SUCCESS);
    assert_true(CALL(EnumeratePhysicalDevices)(o->instance, &n, &gpu) >= 0 && n == 1);
    assert_int_equal(CALL(CreateDevice)(gpu, &made, NULL, &o->device), VK_SUCCESS);
    CALL(GetDeviceQueue)(o->device, 1, 0, &queue);
    o->f = (struct dev_foreign){.instance = o->instance,
                                .gpu = gpu,
                                .device = o->device,
                                .queue = queue,
                                .family = 1,
                                .version = VK_API_VERSION_1_3,
                                .find = (void (*)(void))o->find,
                                .made = &made,
                                .lock = lock,
                                .unlock = unlock,
                                .user = o};
}

static void close_other(struct other *o)
{
    CALL(DestroyDevice)(o->device, NULL);
    CALL(DestroyInstance)(o->instance, NULL);
    os_dlclose(o->lib);
}

/* The driver destroys its own objects and no others, submits under the lock, and does not recreate
 * a device that is not its own. */
static void test_attached(void **state)
{
    for (int lost = 0; lost < 4; lost++) {
        char options[32];
        struct other o;
        struct fixture b;
        struct err e = {0};
        void *lib;
        question *objects = ask_fake(&lib, "fake_objects");
        snprintf(options, sizeof options, "lost=%d", lost ? lost + 1 : 0);
        open_other(&o, options);
        long n_own = objects();
        struct dev_attached *x = dev_vulkan_attach(&o.f, &e);
        if (!x) fail_msg("%s", e.msg);
        struct dev *d = driver()->open(&(struct dev_opts){.attached = x}, &e);
        if (!d) fail_msg("%s", e.msg);
        dev_vulkan_detach(x); /* the device has what it needs */
        open_fixture_on(&b, d, (const i64[]){5, 1, 1}, module(2, 4, SPV_CAP_SHADER, 64), 1);
        u32 good = 0;
        while (good < 4 && launch(&b, &e)) good++;
        assert_int_equal(o.n_locks,
                         lost ? lost + 1 : 4); /* a submission each, the last one failed */
        if (lost) {
            assert_non_null(strstr(e.msg, "the device was lost"));
            e = (struct err){0};
            assert_false(launch(&b, &e));
            assert_non_null(strstr(e.msg, "attach another"));
            assert_int_equal(d->n_lost, 0);
        } else check_groups(&b, 4);
        close_fixture(&b);
        assert_int_equal(objects(), n_own);
        close_other(&o);
        assert_int_equal(objects(), 0);
        os_dlclose(lib);
    }
}

/* A real device. */

static struct dev *real; /* NULL: none */

static void skip_without(void)
{
    if (!real) skip_test("no Vulkan device");
}

static void test_real_memory(void **state)
{
    skip_without();
    use_memory(real, 9);
}

/* y = x + 1, 64 threads a group. */
static const char plus_one[] = "kernel k(x: in i32, y: inout i32; p0 = \"N\", p1 = \"G\")\n"
                               "group 64 1 1\n"
                               "grid %1 = p1\n"
                               "  %2 = thread 0\n"
                               "  %3 = mul %1, 64\n"
                               "  %4 = add %3, %2\n"
                               "  %5: bool = lt %4, p0\n"
                               "  if %5\n"
                               "    %6: i32 = load x[%4]\n"
                               "    %7: i32 = add %6, i32(1)\n"
                               "    store y[%4] = %7\n"
                               "  end\n"
                               "end\n";

static struct dev_kernel *compile(const char *text)
{
    struct arena a = {0};
    struct kir k;
    struct caps c;
    struct buf source = {0}, code = {0};
    struct err e = {0};
    const struct lang *l = lang_find(S("spirv"));
    real->driver->caps(real, &c);
    bool ok = kir_parse(&k, &a, str_of(text), &e) && lang_render(&source, l, &k, &c, &a, &e) &&
              l->build(&code, buf_view(&source), &c, 10, &e);
    struct dev_kernel *x = ok ? real->driver->load(real, buf_view(&code), S("k"), 1, &e) : NULL;
    if (!x) fail_msg("%s", e.msg);
    buf_release(&source);
    buf_release(&code);
    arena_release(&a);
    return x;
}

/* Launches that depend on each other, more than a batch holds; sizes down to nothing, and grids
   beyond 65535 groups. */
static void test_real_launches(void **state)
{
    skip_without();
    static const i64 sizes[] = {0, 1, 1000, 70000 * 64 + 5};
    struct dev_kernel *k = compile(plus_one);
    for (i64 i = 0; i < countof(sizes); i++) {
        struct dev_mem m[2];
        struct err e = {0};
        i64 n = sizes[i], param[2] = {n, ceil_div(n, 64)}, grid[1][3] = {{param[1], 1, 1}};
        u32 times = n < 100000 ? 600 : 2, rounds = 3; /* the later ones as recorded in the first */
        number_buffers(real, m, n);
        for (u32 t = 0; t < times * rounds; t++) {
            struct dev_mem order[2] = {m[t % 2], m[(t + 1) % 2]};
            struct dev_launch l = {.kernel = k, .buf = order, .n_buf = 2, .param = param, .n_param = 2,
                                   .grid = (const i64(*)[3])grid, .n_grid = 1};
            if (!real->driver->launch(real, &l, &e)) fail_msg("%s", e.msg);
            if ((t + 1) % times) continue;
            if (!real->driver->fence(real, &e)) fail_msg("%s", e.msg);
            assert_true(real->driver->elapsed(real) > 0 || n == 0);
        }
        check_numbers(real, m[0], n, (i32)(times * rounds));
        for (int b = 0; b < 2; b++) real->driver->release(real, &m[b]);
    }
    real->driver->unload(real, k);
}

/* Querying a device does not hold it: children can still open it. */
static void opens_it(void *user, int fd)
{
    struct err e = {0};
    struct dev_mem m;
    struct dev *d = driver()->open(&(struct dev_opts){0}, &e);
    bool ok = d && d->driver->alloc(d, 1000, &m, &e) && d->driver->fence(d, &e);
    os_child_put(fd, &ok, sizeof ok);
}

static void test_children(void **state)
{
    struct err e = {0};
    struct os_child c;
    struct caps caps;
    const struct dev_driver *v;
    struct dev_opts o = {0};
    bool ok = false;
    assert_true(dev_select("vulkan", &v, &o, &e));
    if (!dev_ask(v, &o, &caps, NULL, &e)) skip_test("no Vulkan device: %s", e.msg);
    assert_true(caps.is_gpu && caps.max_group > 0 && caps.buffer_align <= 256);
    const struct rates none = {.launch = 0}, known = caps_rates(&caps);
    assert_memory_equal(&caps.rates, &none, sizeof none); /* it was not measured: what is assumed passes for no limit of the device */
    if (caps.gflops <= 20 * caps.n_threads) assert_true(caps.is_emulated);
    if (caps.is_emulated) assert_true(known.memory[RATE_L1].read.all < known.ops[RATE_FMA_F32].all / 10 && known.memory[RATE_DRAM].read.one > 0);
    assert_true(os_child_start(&c, opens_it, NULL, &e));
    assert_int_equal(os_child_get(&c, &ok, sizeof ok, 60), OS_EXITED);
    os_child_end(&c);
    assert_true(ok);
}

static void find_real(void)
{
    struct err e = {0};
    unsetenv("QUERN_VULKAN_LOADER");
    vulkan_stay_loaded();
    setenv("QUERN_VULKAN_VALIDATE", "1", 1);
    real = driver()->open(&(struct dev_opts){0}, &e);
    unsetenv("QUERN_VULKAN_VALIDATE");
    if (!real && strstr(e.msg, "VK_LAYER")) real = driver()->open(&(struct dev_opts){0}, &e);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_absent),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_layer_absent),   cmocka_unit_test(test_select),
        cmocka_unit_test(test_memory),         cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_leaves_nothing), cmocka_unit_test(test_grids),
        cmocka_unit_test(test_cache),          cmocka_unit_test(test_no_base),
        cmocka_unit_test(test_many),           cmocka_unit_test(test_again),
        cmocka_unit_test(test_bad_launches),   cmocka_unit_test(test_features),
        cmocka_unit_test(test_lost),           cmocka_unit_test(test_attached),
    };
    const struct CMUnitTest real_tests[] = {
        cmocka_unit_test(test_real_memory),
        cmocka_unit_test(test_real_launches),
    };
    const char *slash = strrchr(argv[0], '/');
    snprintf(fake_path, sizeof fake_path, "%.*sfake_vulkan.so", slash ? (int)(slash + 1 - argv[0]) : 0,
             argv[0]);
    struct arena a = {0};
    struct err e = {0};
    if (!os_temp_dir(&a, &cache_dir, &e)) return 1;
    setenv("XDG_CACHE_HOME", cache_dir.p, 1);
    const struct CMUnitTest children[] = {cmocka_unit_test(test_children)};
    int failed = cmocka_run_group_tests(children, NULL, NULL); /* before this process opens anything */
    failed += cmocka_run_group_tests(tests, NULL, NULL);
    find_real();
    failed += cmocka_run_group_tests(real_tests, NULL, NULL);
    if (real) real->driver->close(real);
    os_remove_tree(cache_dir.p);
    arena_release(&a);
    return failed;
}
