// SPDX-License-Identifier: Apache-2.0
//
// The OpenCL driver, with kernels written in OpenCL C (for language opencl see test_lang*.c). A
// missing library means no device; a device whose library is loaded is queried in this process. On
// every available device: memory is zeroed and never overlaps, kernels see exactly their ranges,
// arguments are those of the current launch, grids beyond 65535 workgroups run every workgroup
// once, and build and launch errors are clear. Skipped without a device.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "dev_fixture.h"
#include "skip.h"

static struct dev *real; /* NULL: none */
static char why_not[256];

static const struct dev_driver *driver(void) { return dev_find(S("opencl")); }

static void test_absent(void **state)
{
    struct err e = {0};
    setenv("QUERN_OPENCL_LIBRARY", "libthere_is_none.so.7", 1);
    assert_int_equal(driver()->count(), 0);
    assert_false(dev_ask(driver(), &(struct dev_opts){0}, NULL, NULL, &e));
    assert_true(strstr(e.msg, "no OpenCL") && strstr(e.msg, "libthere_is_none.so.7"));
    e = (struct err){0};
    setenv("QUERN_OPENCL_LIBRARY", "libm.so.6", 1); /* a library, but another one */
    assert_false(dev_ask(driver(), &(struct dev_opts){0}, NULL, NULL, &e));
    assert_non_null(strstr(e.msg, "the OpenCL library has no 'clGetPlatformIDs'"));
    unsetenv("QUERN_OPENCL_LIBRARY");
}

/* In a process of its own. 0: as it should be, 77: nothing tells which implementations there are. */
static int look_at_loader(void)
{
    struct err e = {0};
    unsetenv("OCL_ICD_VENDORS"), unsetenv("OCL_ICD_FILENAMES"), unsetenv("OPENCL_VENDOR_PATH");
    if (os_dlloaded("libOpenCL.so.1") || access("/etc/OpenCL/vendors/pocl.icd", R_OK) || !os_dlopen("libOpenCL.so.1", &e)) return 77;
    if (driver()->is_loaded()) return 1; /* as if its functions had been called */
    return driver()->count() && !driver()->is_loaded() ? 2 : 0;
}

/* A library that links OpenCL's loader, as Debian's PyTorch does, does not use it thereby: devices are queried, and candidates measured, by children. */
static void test_loader_alone(void **state)
{
    int status = 0;
    pid_t p = fork();
    if (p == 0) _exit(look_at_loader());
    assert_true(p > 0 && waitpid(p, &status, 0) == p && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip_test("no loader, or no list of implementations");
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A driver that cannot be opened in children of a process that has its library, as threads of a library are not copied. */

static pid_t loaded_in; /* 0: nowhere yet */
static u32 n_opened;

static bool is_loaded(void) { return loaded_in != 0; }

static struct dev *open_once(const struct dev_opts *o, struct err *e)
{
    if (loaded_in && getpid() != loaded_in) abort();
    loaded_in = getpid();
    n_opened++;
    return dev_find(S("interp"))->open(o, e);
}

static void test_asked_where_the_library_is(void **state)
{
    struct err e = {0};
    struct dev_driver d = *dev_find(S("interp"));
    struct dev_opts o = {0};
    struct caps c;
    d.is_foreign = true, d.is_loaded = is_loaded, d.open = open_once;
    assert_true(dev_ask(&d, &o, &c, NULL, &e));
    assert_true(!loaded_in && !n_opened && !dev_is_taken(&d)); /* queried in a child */
    struct dev *own = d.open(&o, &e);
    if (!dev_ask(&d, &o, &c, NULL, &e)) fail_msg("%s", e.msg);
    assert_true(n_opened == 2 && dev_is_taken(&d));
    d.close(own);
}

static int open_real(void **state)
{
    struct err e = {0};
    os_dlopen("libOpenCL.so.1", &e); /* global state of drivers is lost when they are unloaded */
    e = (struct err){0};
    real = driver()->open(&(struct dev_opts){0}, &e);
    if (!real) snprintf(why_not, sizeof why_not, "%.*s", (int)sizeof why_not - 1, e.msg);
    return 0;
}

static int close_real(void **state)
{
    if (real) real->driver->close(real);
    return 0;
}

static void skip_without(void)
{
    if (!real) skip_test("no OpenCL device: %s", why_not);
}

static struct dev_kernel *load(const char *text, u32 n_grid, struct err *e)
{
    return real->driver->load(real, str_of(text), S("k"), n_grid, e);
}

static struct dev_kernel *must_load(const char *text, u32 n_grid)
{
    struct err e = {0};
    struct dev_kernel *k = load(text, n_grid, &e);
    if (!k) fail_msg("%s", e.msg);
    return k;
}

/* Every group adds its number in the whole grid to its element, times p. */
static const char count_groups[] =
    "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"
    "void k_0(__global int *y, int p, int ex, int ey, int bx, int by, int bz)\n"
    "{\n"
    "    int x = get_group_id(0) + bx, r = get_group_id(1) + by, z = get_group_id(2) + bz;\n"
    "    int at = (z * ey + r) * ex + x;\n"
    "    y[at] += at * p + 1;\n"
    "}\n";

static void test_caps(void **state)
{
    skip_without();
    struct caps c = {0};
    struct buf fp = {0};
    real->driver->caps(real, &c);
    real->driver->fingerprint(real, &fp);
    assert_true(c.is_gpu && c.max_group > 0 && c.shared_bytes >= 16384 && c.max_buffer > 1 << 20);
    assert_true(c.buffer_align <= DEV_ALIGN && c.max_bind >= 8 && c.gflops > 0 && c.gbps > 0);
    assert_true(str_starts(buf_view(&fp), S("opencl ")) && !memchr(fp.p, '\n', (size_t)fp.n));
    buf_release(&fp);
}

static struct dev *open_counted(const struct dev_opts *o, struct err *e)
{
    n_opened++;
    return driver()->open(o, e);
}

static void test_asked_here(void **state)
{
    skip_without();
    struct err e = {0};
    struct dev_driver d = *driver();
    struct caps c;
    d.open = open_counted, n_opened = 0;
    assert_true(dev_is_taken(&d));
    if (!dev_ask(&d, &(struct dev_opts){0}, &c, NULL, &e)) fail_msg("%s", e.msg);
    assert_true(n_opened == 1 && c.max_group > 0);
}

static void test_memory(void **state)
{
    skip_without();
    struct err e = {0};
    struct dev_mem m;
    use_memory(real, 9);
    assert_false(real->driver->alloc(real, -1, &m, &e));
    e = (struct err){0};
    assert_false(real->driver->alloc(real, INT64_MAX, &m, &e));
    assert_non_null(strstr(e.msg, "9223372036854775807 bytes"));
}

static void run(struct dev_kernel *k, struct dev_mem *m, u32 n_buf, const i64 *param, u32 n_param,
                const i64 (*grid)[3], u32 n_grid)
{
    struct err e = {0};
    struct dev_launch l = {.kernel = k, .buf = m, .n_buf = n_buf, .param = param,
                           .n_param = n_param, .grid = grid, .n_grid = n_grid};
    if (!real->driver->launch(real, &l, &e)) fail_msg("%s", e.msg);
}

static void finish(void)
{
    struct err e = {0};
    if (!real->driver->fence(real, &e)) fail_msg("%s", e.msg);
}

static void test_grids(void **state)
{
    skip_without();
    static const i64 grids[][3] = {{1, 1, 1}, {0, 5, 5}, {5, 0, 1}, {7, 3, 2}, {70001, 1, 1}, {1, 65536, 1}, {2, 65537, 1}, {1, 1, 131072}};
    struct dev_kernel *k = must_load(count_groups, 1);
    for (i64 i = 0; i < countof(grids); i++) {
        struct err e = {0};
        struct dev_mem m;
        i64 n = grids[i][0] * grids[i][1] * grids[i][2];
        assert_true(real->driver->alloc(real, 4 * n, &m, &e));
        for (i64 p = 1; p <= 3; p++) /* 1 + 2 + 3 */
            run(k, &m, 1, (const i64[]){p, grids[i][0], grids[i][1]}, 3, &grids[i], 1);
        finish();
        assert_true(n ? real->driver->elapsed(real) > 0 : real->driver->elapsed(real) == 0);
        i32 *y = mem_alloc(4 * n + 4);
        assert_true(real->driver->download(real, m, y, 4 * n, &e));
        for (i64 x = 0; x < n; x++)
            if (y[x] != (i32)(6 * x + 3)) fail_msg("grid %lld, group %lld: %d", (long long)i, (long long)x, y[x]);
        mem_free(y);
        real->driver->release(real, &m);
    }
    real->driver->unload(real, k);
}

/* Two grids: the second one reads the results of the first. */
static const char shift_twice[] =
    "__kernel __attribute__((reqd_work_group_size(4, 2, 1)))\n"
    "void k_0(__global const int *x, __global int *t, __global int *y, int n, int bx, int by, int bz)\n"
    "{\n"
    "    int i = (get_group_id(0) + bx) * 8 + get_local_id(1) * 4 + get_local_id(0);\n"
    "    if (i < n) t[n - 1 - i] = x[i] + 1;\n"
    "}\n"
    "__kernel __attribute__((reqd_work_group_size(8, 1, 1)))\n"
    "void k_1(__global const int *x, __global int *t, __global int *y, int n, int bx, int by, int bz)\n"
    "{\n"
    "    __local int s[8];\n"
    "    int l = get_local_id(0), i = (get_group_id(0) + bx) * 8 + l;\n"
    "    s[l] = i < n ? t[n - 1 - i] : 0;\n"
    "    barrier(CLK_LOCAL_MEM_FENCE);\n"
    "    if (i < n) y[i] = s[l] + 10;\n"
    "}\n";

static struct dev_mem part_of(struct dev_mem whole, i64 at, i64 size)
{
    whole.offset += at;
    whole.size = size;
    return whole;
}

/* Ranges of one block, different ones at each launch, in random order: every launch accesses
   exactly its ranges. */
static void test_pieces(void **state)
{
    skip_without();
    enum { PIECES = 7, COUNT = 200, ROUNDS = 60 };
    const i64 grid[2][3] = {{COUNT / 8 + 1, 1, 1}, {COUNT / 8 + 1, 1, 1}}, param = COUNT;
    struct err e = {0};
    struct dev_mem block, piece[PIECES];
    struct dev_kernel *k = must_load(shift_twice, 2);
    struct rng r = rng_seed(5);
    i32 want[PIECES][COUNT] = {{0}}, got[COUNT];
    assert_true(real->driver->alloc(real, PIECES * 1024, &block, &e));
    for (i64 i = 0; i < PIECES; i++) piece[i] = part_of(block, 1024 * i, sizeof got);
    for (u32 n = 0; n < ROUNDS; n++) {
        i64 a = rng_range(&r, 0, PIECES - 1), t = (a + rng_range(&r, 1, 3)) % PIECES;
        i64 b = (t + rng_range(&r, 1, 3)) % PIECES; /* at most 6 further than a: never a itself */
        struct dev_mem m[3] = {piece[a], piece[t], piece[b]};
        run(k, m, 3, &param, 1, grid, 2);
        for (i64 i = 0; i < COUNT; i++) {
            want[t][COUNT - 1 - i] = want[a][i] + 1;
            want[b][i] = want[a][i] + 11;
        }
        if (n % 5 == 0) finish();
    }
    for (u32 i = 0; i < PIECES; i++) {
        assert_true(real->driver->download(real, piece[i], got, sizeof got, &e));
        assert_memory_equal(got, want[i], sizeof got);
    }
    real->driver->unload(real, k);
    real->driver->release(real, &block);
}

/* Many launches between two fences, each depending on the one before; more parts than are kept. */
static void test_many(void **state)
{
    skip_without();
    static const char plus[] = "__kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n"
                               "void k_0(__global int *x, __global int *y, int bx, int by, int bz) { y[0] = x[0] + 1; }\n";
    enum { TIMES = 5000 };
    const i64 grid[1][3] = {{1, 1, 1}};
    struct err e = {0};
    struct dev_mem block;
    struct dev_kernel *k = must_load(plus, 1);
    i32 last;
    assert_true(real->driver->alloc(real, (TIMES + 1) * DEV_ALIGN, &block, &e));
    for (i64 i = 0; i < TIMES; i++) {
        struct dev_mem m[2] = {part_of(block, i * DEV_ALIGN, 4), part_of(block, (i + 1) * DEV_ALIGN, 4)};
        run(k, m, 2, NULL, 0, grid, 1);
    }
    finish();
    assert_true(real->driver->elapsed(real) > 0);
    assert_true(real->driver->download(real, part_of(block, TIMES * DEV_ALIGN, 4), &last, 4, &e));
    assert_int_equal(last, TIMES);
    finish();
    assert_true(real->driver->elapsed(real) == 0);
    real->driver->unload(real, k);
    real->driver->release(real, &block);
}

static void refuse_load(const char *text, u32 n_grid, const char *words)
{
    struct err e = {0};
    struct dev_kernel *k = load(text, n_grid, &e);
    if (k) fail_msg("loaded: %s", text);
    if (!strstr(e.msg, words)) fail_msg("'%s' does not say '%s'", e.msg, words);
}

static void test_bad_binaries(void **state)
{
    skip_without();
    refuse_load("", 1, "no source text");
    refuse_load("__kernel void k_0(__global int *y) { y[0] = there_is_none; }", 1, "there_is_none");
    refuse_load(count_groups, 2, "'k_1'");
    refuse_load("void k_0(void) {}", 1, "'k_0'");
    refuse_load("__kernel __attribute__((reqd_work_group_size(100000, 1, 1))) void k_0(__global int *y, int x, int b, int c) {}",
                1, "100000");
}

static void refuse_launch(struct dev_launch *l, const char *words)
{
    struct err e = {0};
    assert_false(real->driver->launch(real, l, &e));
    if (!strstr(e.msg, words)) fail_msg("'%s' does not say '%s'", e.msg, words);
}

static void test_bad_launches(void **state)
{
    skip_without();
    struct err e = {0};
    struct dev_mem m, odd;
    i64 grid[2][3] = {{1, 1, 1}, {1, 1, 1}}, param[3] = {1, 1, 1};
    struct dev_kernel *k = must_load(count_groups, 1);
    assert_true(real->driver->alloc(real, 4096, &m, &e));
    struct dev_launch good = {.kernel = k, .buf = &m, .n_buf = 1, .param = param, .n_param = 3,
                              .grid = (const i64(*)[3])grid, .n_grid = 1}, l = good;
    l.n_grid = 2;
    refuse_launch(&l, "1 grids");
    l = good, l.n_param = 2;
    refuse_launch(&l, "7 arguments");
    param[1] = (i64)1 << 31;
    refuse_launch(&good, "beyond 32 bits");
    param[1] = 1, grid[0][1] = -1;
    refuse_launch(&good, "extent -1");
    grid[0][1] = (i64)1 << 31;
    refuse_launch(&good, "extent 2147483648");
    grid[0][1] = grid[0][2] = INT32_MAX;
    refuse_launch(&good, "too large");
    struct caps c;
    real->driver->caps(real, &c);
    grid[0][1] = grid[0][2] = 1, odd = part_of(m, 4, 4), l = good, l.buf = &odd;
    if (c.buffer_align > 4) refuse_launch(&l, "begins at 4");
    odd = part_of(m, 4096, 4096);
    refuse_launch(&l, "not allocated");
    assert_true(real->driver->launch(real, &good, &e)); /* nothing is broken by it */
    finish();
    real->driver->unload(real, k);
    real->driver->release(real, &m);
}

int main(void)
{
    const struct CMUnitTest absent[] = {cmocka_unit_test(test_absent), cmocka_unit_test(test_loader_alone), cmocka_unit_test(test_asked_where_the_library_is)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caps),         cmocka_unit_test(test_memory),
        cmocka_unit_test(test_grids),        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_many),         cmocka_unit_test(test_bad_binaries),
        cmocka_unit_test(test_bad_launches), cmocka_unit_test(test_asked_here),
    };
    int failed = cmocka_run_group_tests(absent, NULL, NULL); /* children ask before this process opens anything */
    return failed + cmocka_run_group_tests(tests, open_real, close_real);
}
