// SPDX-License-Identifier: Apache-2.0
//
// The driver of cuda and hip, each with a missing library and with a simulated one (fake_cuda.c):
// memory is zeroed and never overlaps, grids beyond the device's limits run every workgroup once,
// kernels get what their binary declares, truncated or damaged images never reach the driver, fatal
// failures are reported, and everything is released. Also described architectures. Real devices:
// tool/device-check.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dev/dev_cuda.h"
#include "dev_fixture.h"

static char fake_path[4096];
static const char *const names[] = {"cuda", "hip"};
static const char *const variables[] = {"QUERN_CUDA_LIBRARY", "QUERN_HIP_LIBRARY"};

static const struct dev_driver *use_fake(int k, const char *options)
{
    setenv(variables[k], fake_path, 1);
    setenv("QUERN_FAKE_CUDA", options, 1);
    return dev_find(str_of(names[k]));
}

static struct dev *open_fake(int k, const char *options)
{
    struct err e = {0};
    struct dev *d = use_fake(k, options)->open(&(struct dev_opts){0}, &e);
    if (!d) fail_msg("%s", e.msg);
    return d;
}

static void expect(const struct err *e, const char *words)
{
    if (!strstr(e->msg, words)) fail_msg("'%s' does not say '%s'", e->msg, words);
}

/* The simulated library's image format. */
struct image {
    char elf[64];
    i32 n, info[3][8], matrix[8];
};

static struct image image(u32 n)
{
    struct image x = {.elf = "\177ELF\2\1\1", .n = (i32)n};
    for (u32 i = 0; i < n; i++) x.info[i][0] = 1, x.info[i][1] = 32, x.info[i][2] = 2, x.info[i][3] = 1;
    return x;
}

static struct dev_kernel *load(struct dev *d, const struct image *x, u32 n_grid, struct err *e)
{
    return d->driver->load(d, (struct str){(const char *)x, sizeof *x}, S("k"), n_grid, e);
}

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

static void test_absent(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        const struct dev_driver *v = dev_find(str_of(names[k]));
        setenv(variables[k], "libthere_is_none.so.7", 1);
        assert_int_equal(v->count(), 0);
        assert_false(dev_ask(v, &(struct dev_opts){0}, NULL, NULL, &e));
        expect(&e, k ? "no HIP" : "no CUDA");
        e = (struct err){0};
        setenv(variables[k], "libm.so.6", 1);
        assert_null(v->open(&(struct dev_opts){0}, &e));
        expect(&e, k ? "has no 'hipInit'" : "has no 'cuInit'");
        e = (struct err){0};
        assert_int_equal(use_fake(k, "devices=0")->count(), 0);
        assert_null(v->open(&(struct dev_opts){0}, &e));
        expect(&e, "lists no devices");
    }
}

static void test_caps(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        struct caps c = {0};
        struct buf fp = {0};
        const struct dev_driver *v = use_fake(k, "devices=2");
        assert_int_equal(v->count(), 2);
        assert_true(dev_ask(v, &(struct dev_opts){.name = S("*b")}, &c, &fp, &e));
        assert_string_equal(c.arch, k ? "gfx90a" : "sm_86");
        assert_true(c.is_gpu && c.max_group == 1024 && c.subgroup == (k ? 64 : 32) && c.n_threads == 10);
        assert_true(c.shared_bytes == (k ? 49152 : 101376) && c.gbps == 64 && c.l2_bytes == 1 << 20 && c.matrix[0]);
        assert_non_null(strstr(fp.p, k ? "hip fake B, gfx90a, 10 units" : "cuda fake B, sm_86, 10 units"));
        assert_false(dev_ask(v, &(struct dev_opts){.name = S("*none*")}, NULL, NULL, &e));
        expect(&e, "2 devices, none of which matches '*none*'");
        assert_false(v->in_use()); /* queried in children */
        buf_release(&fp);
    }
}

/* A library used by this process is unusable in its children, so it is queried here; the thread's
   current context is preserved. */
static void test_in_use(void **state)
{
    void *lib;
    question *is_outer = ask_fake(&lib, "fake_is_outer");
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        struct buf fp = {0};
        struct dev *d = open_fake(k, "devices=2");
        assert_true(d->driver->in_use() && is_outer());
        if (!dev_ask(d->driver, &(struct dev_opts){.index = 1}, NULL, &fp, &e)) fail_msg("%s", e.msg);
        assert_non_null(strstr(fp.p, "fake B"));
        use_memory(d, 5);
        assert_true(is_outer());
        d->driver->close(d);
        assert_true(is_outer());
        buf_release(&fp);
    }
    os_dlclose(lib);
}

/* By number. */
static void test_numbers(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        struct dev_opts o = {0};
        const struct dev_driver *v = use_fake(k, "devices=2"), *found;
        struct buf fp = {0};
        assert_true(dev_select(k ? "hip:1" : "cuda:1", &found, &o, &e) && found == v && o.index == 1);
        assert_true(dev_ask(v, &o, NULL, &fp, &e) && strstr(fp.p, "fake B"));
        assert_true(dev_select(k ? "hip:2" : "cuda:2", &found, &o, &e));
        assert_false(dev_ask(v, &o, NULL, NULL, &e));
        expect(&e, "has 2 devices, no number 2");
        assert_true(dev_select(v->name, &found, &o, &e) && o.index == 0);
        buf_release(&fp);
    }
    struct err e = {0};
    struct dev_opts o = {0};
    const struct dev_driver *v;
    assert_false(dev_select("cpu:1", &v, &o, &e));
    expect(&e, "knows no architecture '1'");
}

static void test_memory(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        struct dev_mem m;
        struct dev *d = open_fake(k, "memory=300");
        use_memory(d, 3);
        assert_false(d->driver->alloc(d, -1, &m, &e));
        e = (struct err){0};
        assert_false(d->driver->alloc(d, 301 << 20, &m, &e));
        expect(&e, "315621376 bytes");
        e = (struct err){0};
        assert_true(d->driver->alloc(d, 200 << 20, &m, &e));
        assert_false(d->driver->alloc(d, 200 << 20, &m, &e));
        expect(&e, "FAKE_OUT_OF_MEMORY (2)");
        d->driver->close(d); /* with unreleased memory */
    }
}

/* Launches of two grids. */

struct fixture {
    struct dev *d;
    struct dev_mem buf[2];
    struct dev_kernel *kernel;
    i64 grid[2][3], param;
    struct dev_launch launch;
};

static void open_fixture(struct fixture *b, int k, const char *options, const struct image *x, const i64 grid[3])
{
    struct err e = {0};
    u32 extent[3] = {(u32)grid[0], (u32)grid[1], (u32)grid[2]};
    *b = (struct fixture){.d = open_fake(k, options), .param = 3};
    assert_true(b->d->driver->alloc(b->d, 4 * grid[0] * grid[1] * grid[2], &b->buf[0], &e));
    assert_true(b->d->driver->alloc(b->d, sizeof extent, &b->buf[1], &e));
    assert_true(b->d->driver->upload(b->d, b->buf[1], extent, sizeof extent, &e));
    b->kernel = load(b->d, x, 2, &e);
    if (!b->kernel) fail_msg("%s", e.msg);
    for (int i = 0; i < 2; i++) memcpy(b->grid[i], grid, sizeof b->grid[i]);
    b->launch = (struct dev_launch){.kernel = b->kernel, .buf = b->buf, .n_buf = 2, .param = &b->param,
                                    .n_param = 1, .grid = (const i64(*)[3])b->grid, .n_grid = 2};
}

static void close_fixture(struct fixture *b)
{
    b->d->driver->unload(b->d, b->kernel);
    for (int i = 0; i < 2; i++) b->d->driver->release(b->d, &b->buf[i]);
    b->d->driver->close(b->d);
}

static void check_groups(struct fixture *b, i32 want)
{
    struct err e = {0};
    i32 *p = mem_alloc(b->buf[0].size + 4);
    assert_true(b->d->driver->download(b->d, b->buf[0], p, b->buf[0].size, &e));
    for (i64 i = 0; i < b->buf[0].size / 4; i++)
        if (p[i] != want) fail_msg("group %lld: %d, not %d", (long long)i, p[i], want);
    mem_free(p);
}

static void test_grids(void **state)
{
    static const i64 grids[][3] = {{1, 1, 1}, {7, 1, 1}, {100, 8, 1}, {3, 9, 2}, {17, 8, 9}, {1, 1, 8}, {1, 33, 17}, {0, 5, 5}, {5, 5, 0}};
    for (i64 i = 0; i < 2 * countof(grids); i++) {
        struct fixture b;
        struct err e = {0};
        struct image x = image(2);
        open_fixture(&b, (int)(i % 2), "rows=8", &x, grids[i / 2]);
        bool is_empty = b.buf[0].size == 0;
        for (i32 n = 1; n <= 3; n++) {
            assert_true(b.d->driver->launch(b.d, &b.launch, &e) && b.d->driver->launch(b.d, &b.launch, &e));
            assert_true(b.d->driver->fence(b.d, &e));
            assert_true(is_empty ? b.d->driver->elapsed(b.d) == 0 : b.d->driver->elapsed(b.d) > 0.9e-3);
            check_groups(&b, 12 * n);
        }
        assert_true(b.d->driver->fence(b.d, &e) && b.d->driver->elapsed(b.d) == 0);
        close_fixture(&b);
    }
}

/* Copies between launches stop the clock; launches still count. */
static void test_clock(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct fixture b;
        struct err e = {0};
        struct image x = image(2);
        open_fixture(&b, k, "", &x, (const i64[]){4, 1, 1});
        for (i32 n = 1; n <= 5; n++) {
            assert_true(b.d->driver->launch(b.d, &b.launch, &e));
            check_groups(&b, 6 * n);
        }
        assert_true(b.d->driver->fence(b.d, &e));
        assert_true(b.d->driver->elapsed(b.d) > 2.49e-3 && b.d->driver->elapsed(b.d) < 2.51e-3);
        close_fixture(&b);
    }
}

static void refuse_image(struct dev *d, const struct image *x, u32 n_grid, const char *words)
{
    struct err e = {0};
    assert_null(load(d, x, n_grid, &e));
    expect(&e, words);
}

static void test_binaries(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        struct dev *d = open_fake(k, "");
        struct image x = image(2);
        refuse_image(d, &x, 3, "no function 'k_2' in binary");
        x.n = -1;
        refuse_image(d, &x, 1, "FAKE_NO_BINARY_FOR_GPU (209)");
        x = image(1), x.info[0][0] = 2;
        refuse_image(d, &x, 1, "version 2 of the calling convention");
        x.info[0][0] = 77;
        refuse_image(d, &x, 1, "has 4 bytes");
        x = image(1), x.info[0][1] = 0;
        refuse_image(d, &x, 1, "groups of 0 x 2 x 1");
        x.info[0][1] = 512; /* 1024 threads, this function allows 512 */
        refuse_image(d, &x, 1, "groups of 512 x 2 x 1");
        x = image(1), x.info[0][4] = k ? 32 : 64;
        refuse_image(d, &x, 1, "needs subgroups of");
        x = image(1), x.info[0][5] = 101377;
        refuse_image(d, &x, 1, "101377 bytes of shared memory");
        x = image(1), x.info[0][5] = k ? 49152 : 101376, x.info[0][4] = k ? 64 : 32;
        struct dev_kernel *good = load(d, &x, 1, &e);
        if (!good) fail_msg("%s", e.msg);
        d->driver->unload(d, good);
        d->driver->close(d);
    }
}

/* Large shared memory is requested before it is used. */
static void test_shared(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct image x = image(2);
    x.info[1][5] = 90000, x.info[1][7] = 1000;
    open_fixture(&b, 0, "", &x, (const i64[]){2, 1, 1});
    assert_true(b.d->driver->launch(b.d, &b.launch, &e) && b.d->driver->fence(b.d, &e));
    check_groups(&b, 6);
    close_fixture(&b);
    x.info[1][7] = 20000;
    struct dev *d = open_fake(0, "");
    refuse_image(d, &x, 2, "110000 bytes of shared memory");
    d->driver->close(d);
}

static void refuse_matrix(struct dev *d, int at, i32 v, const char *words)
{
    struct image x = image(1);
    x.info[0][6] = 1;
    memcpy(x.matrix, (i32[]){1, 4, 1, 3, 4, 1, 4, 0}, sizeof x.matrix);
    if (at < 8) x.matrix[at] = v;
    else x.info[0][6] = v;
    refuse_image(d, &x, 1, words);
}

/* A function gets tensor maps for the current addresses of the arguments; the driver creates them
   once per address. */
static void test_matrices(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct image x = image(2);
    void *lib;
    question *codes = ask_fake(&lib, "fake_codes");
    x.info[1][6] = 1;
    memcpy(x.matrix, (i32[]){1, 4, 1, 3, 4, 1, 4, 0}, sizeof x.matrix); /* the three extents */
    open_fixture(&b, 0, "rows=1", &x, (const i64[]){2, 2, 1});
    long before = codes();
    for (int i = 0; i < 3; i++) assert_true(b.d->driver->launch(b.d, &b.launch, &e));
    assert_int_equal(codes() - before, 1);
    check_groups(&b, 3 * (3 + 6));
    struct dev_mem other, first = b.buf[1];
    u32 extent[3] = {2, 2, 1};
    assert_true(b.d->driver->alloc(b.d, 64, &other, &e) && b.d->driver->upload(b.d, other, extent, sizeof extent, &e));
    b.buf[1] = other;
    for (int i = 0; i < 2; i++) assert_true(b.d->driver->launch(b.d, &b.launch, &e));
    assert_int_equal(codes() - before, 2);
    check_groups(&b, 5 * (3 + 6));
    b.buf[1].size = 11;
    assert_false(b.d->driver->launch(b.d, &b.launch, &e));
    expect(&e, "a matrix of 12 bytes in buffer 1, which has 11");
    b.buf[1] = first;
    b.d->driver->release(b.d, &other);
    close_fixture(&b);
    static const i32 bad[][2] = {{0, -1}, {1, 3}, {2, 0}, {3, 5}, {4, 3}, {4, 6}, {5, 257}, {6, 3}, {6, 0}, {7, 2}};
    struct dev *d = open_fake(0, "");
    for (i64 i = 0; i < countof(bad); i++) refuse_matrix(d, bad[i][0], bad[i][1], "matrix 0 of 'k_0' in binary is invalid");
    refuse_matrix(d, 8, -1, "has -1 matrices");
    refuse_matrix(d, 8, 33, "has 33 matrices");
    refuse_matrix(d, 8, 2, "'k_0_maps' in binary has 32 bytes");
    d->driver->close(d);
    d = open_fake(1, ""); /* an interface that has none */
    refuse_matrix(d, 7, 0, "cuTensorMapEncodeTiled");
    d->driver->close(d);
    x.matrix[0] = 7;
    open_fixture(&b, 0, "", &x, (const i64[]){2, 1, 1});
    e = (struct err){0};
    assert_false(b.d->driver->launch(b.d, &b.launch, &e));
    expect(&e, "a matrix in buffer 7, of 2");
    close_fixture(&b);
    os_dlclose(lib);
}

/* Images: out-of-range offsets are rejected. */
static void put_number(char *p, i64 at, u64 v, int n)
{
    for (int i = 0; i < n; i++) p[at + i] = (char)(v >> (8 * i));
}

static i64 make_elf(char *p)
{
    memset(p, 0, 1024);
    memcpy(p, "\177ELF\2\1\1", 7);
    put_number(p, 32, 64, 8), put_number(p, 40, 500, 8);
    put_number(p, 54, 56, 2), put_number(p, 56, 2, 2), put_number(p, 58, 64, 2), put_number(p, 60, 3, 2);
    for (int i = 0; i < 2; i++) put_number(p, 64 + 56 * i + 8, 200, 8), put_number(p, 64 + 56 * i + 32, 300, 8);
    for (int i = 0; i < 3; i++)
        put_number(p, 500 + 64 * i + 4, 1, 4), put_number(p, 500 + 64 * i + 24, 200, 8), put_number(p, 500 + 64 * i + 32, 300, 8);
    return 500 + 3 * 64;
}

static void test_images(void **state)
{
    char whole[1024], bundle[2048] = "__CLANG_OFFLOAD_BUNDLE__";
    struct err e = {0};
    i64 n = make_elf(whole);
    assert_true(cuda_binary_check((struct str){whole, n}, &e));
    for (i64 i = 0; i < n; i++) assert_false(cuda_binary_check((struct str){whole, i}, &e));
    put_number(bundle, 24, 2, 8); /* an empty part, as clang writes for the host, and the image */
    put_number(bundle, 32, 512, 8), put_number(bundle, 48, 4, 8);
    put_number(bundle, 60, 512, 8), put_number(bundle, 68, (u64)n, 8), put_number(bundle, 76, 9, 8);
    memcpy(bundle + 512, whole, (size_t)n);
    assert_true(cuda_binary_check((struct str){bundle, 512 + n}, &e));
    for (i64 i = 0; i < 512 + n; i++) assert_false(cuda_binary_check((struct str){bundle, i}, &e));
    struct rng r = rng_seed(1);
    for (int i = 0; i < 20000; i++) { /* reads no byte outside, whatever the content (checked by sanitizers) */
        i64 size = rng_range(&r, 0, 512 + n);
        char *copy = mem_alloc(size + 1);
        memcpy(copy, bundle, (size_t)size);
        for (int k = 0; k < 3 && size; k++) {
            char c = (char)rng_u64(&r);
            copy[rng_range(&r, 0, size - 1)] = c;
        }
        cuda_binary_check((struct str){copy, size}, &e);
        mem_free(copy);
    }
}

static void test_bad_launches(void **state)
{
    for (int k = 0; k < 2; k++) {
        struct fixture b;
        struct image x = image(2);
        open_fixture(&b, k, "", &x, (const i64[]){4, 1, 1});
        const struct {
            i64 extent, param, size;
            const char *words;
        } bad[] = {{-1, 1, 16, "extent -1"}, {4, (i64)1 << 31, 16, "beyond 32 bits"}, {4, 1, 4096, "not allocated"}};
        for (i64 i = 0; i < countof(bad); i++) {
            struct err e = {0};
            b.grid[1][1] = bad[i].extent, b.param = bad[i].param, b.buf[0].size = bad[i].size;
            assert_false(b.d->driver->launch(b.d, &b.launch, &e));
            expect(&e, bad[i].words);
        }
        struct err e = {0};
        b.buf[0].size = 16, b.launch.n_grid = 1;
        assert_false(b.d->driver->launch(b.d, &b.launch, &e));
        expect(&e, "2 grids, not 1");
        check_groups(&b, 0);
        close_fixture(&b);
    }
}

static void test_lost(void **state)
{
    void *lib;
    question *reset = ask_fake(&lib, "fake_reset");
    for (int k = 0; k < 2; k++) {
        struct fixture b;
        struct err e = {0};
        struct image x = image(2);
        open_fixture(&b, k, "lost=4", &x, (const i64[]){2, 1, 1});
        assert_true(b.d->driver->launch(b.d, &b.launch, &e));
        assert_false(b.d->driver->launch(b.d, &b.launch, &e));
        expect(&e, "'fake A': LaunchKernel: FAKE_ILLEGAL_ADDRESS (700)");
        e = (struct err){0};
        assert_false(b.d->driver->fence(b.d, &e));
        expect(&e, "was lost by an earlier failure");
        e = (struct err){0};
        assert_false(b.d->driver->upload(b.d, b.buf[1], &k, 4, &e));
        expect(&e, "was lost");
        close_fixture(&b); /* all goes without a complaint */
        reset();
    }
    os_dlclose(lib);
}

static void test_leaves_nothing(void **state)
{
    void *lib;
    question *objects = ask_fake(&lib, "fake_objects");
    for (int k = 0; k < 2; k++) {
        struct fixture b;
        struct image x = image(2);
        open_fixture(&b, k, "", &x, (const i64[]){2, 1, 1});
        assert_true(objects() >= 8);
        b.d->driver->close(b.d); /* kernels and memory go with it */
        assert_int_equal(objects(), 0);
    }
    os_dlclose(lib);
}

/* Architectures that are not here. */
static void test_targets(void **state)
{
    static const char *const known[] = {"cuda:sm_75", "cuda:sm_90a", "hip:gfx906", "hip:gfx942"};
    for (i64 i = 0; i < countof(known); i++) {
        struct err e = {0};
        struct caps c, again;
        struct buf text = {0};
        struct dev_opts o = {0};
        const struct dev_driver *v;
        assert_true(dev_select(known[i], &v, &o, &e) && dev_is_described(&o));
        assert_true(dev_ask(v, &o, &c, NULL, &e));
        assert_string_equal(c.arch, strchr(known[i], ':') + 1);
        assert_true(c.is_gpu && c.max_group == 1024 && c.shared_bytes >= 65536 && c.gflops > 1000 && c.gbps > 100);
        assert_true(c.thread_regs >= 255 && c.unit_regs >= 65536 && c.unit_threads >= 1024 && c.unit_shared >= c.shared_bytes);
        caps_print(&text, &c);
        assert_true(caps_parse(&again, buf_view(&text), &e));
        struct str list = str_of(c.matrix);
        struct caps_matrix m;
        for (u32 n = 0; caps_matrix_next(&list, &m); n++) assert_true(m.m >= 16 && m.k >= 2 && n < 12);
        assert_null(v->open(&o, &e));
        expect(&e, "only described");
        buf_release(&text);
    }
    struct err e = {0};
    struct caps c;
    struct dev_opts o = {0};
    const struct dev_driver *v;
    assert_false(dev_select("cuda:sm_1", &v, &o, &e));
    expect(&e, "no architecture 'sm_1'; there are: cuda:sm_70");
    e = (struct err){0};
    assert_false(dev_select("cpu:sm_90", &v, &o, &e));
    expect(&e, "knows no architecture 'sm_90'");
    dev_target_near(&c, "cuda", S("sm_120"));
    assert_true(!strcmp(c.arch, "sm_120") && c.max_group == 1024 && strstr(c.matrix, "16x8x16"));
    assert_true(c.has_copy && !c.warpgroup && !c.warpgroup_matrix[0]); /* only sm_90a has warpgroups */
    dev_target_near(&c, "cuda", S("sm_61"));
    assert_true(!strcmp(c.arch, "sm_61") && !c.matrix[0] && !c.has_copy);
    dev_target_near(&c, "cuda", S("sm_90a"));
    assert_true(c.has_copy && c.warpgroup == 4 && strstr(c.warpgroup_matrix, "64x256x16:bf16"));
    assert_true(caps_parse(&c, S("team_matrix=\"64x8x16:f16,f16,f32,f32\" team=4"), &e)); /* as earlier versions describe it */
    assert_true(c.warpgroup == 4 && !strcmp(c.warpgroup_matrix, "64x8x16:f16,f16,f32,f32"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_caps), /* queries children before this process opens anything */
        cmocka_unit_test(test_absent),        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_in_use),        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_grids),         cmocka_unit_test(test_clock),
        cmocka_unit_test(test_binaries),      cmocka_unit_test(test_shared),
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_images),        cmocka_unit_test(test_bad_launches),
        cmocka_unit_test(test_lost),          cmocka_unit_test(test_leaves_nothing),
        cmocka_unit_test(test_targets),
    };
    const char *slash = strrchr(argv[0], '/');
    snprintf(fake_path, sizeof fake_path, "%.*sfake_cuda.so", slash ? (int)(slash + 1 - argv[0]) : 0, argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
