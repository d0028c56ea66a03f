// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by vendor libraries: random rows in both layouts against the reference evaluator;
// weights that change in place; too small buffers. The CPU's library is skipped if missing; for
// cuda and hip there are simulated ones (fake_cudnn.h, fake_miopen.h): each of their calls fails
// once, they are missing, or lack functions.
#include "conv_fixture.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

static char fake_path[4096];

struct where { const char *driver, *name; }; /* the library's name begins so */

/* false: the library rejects the convolution, or is missing. */
static bool has_library(const struct where *w, const struct dev_conv *c, struct err *e)
{
    struct buf name = {0};
    *e = (struct err){0};
    bool has = dev_ask_conv(dev_find(str_of(w->driver)), &(struct dev_opts){.n_threads = 2}, c, &name, e);
    assert_int_equal(has, e->code == ERR_NONE);
    if (has) assert_true(str_starts(buf_view(&name), str_of(w->name)));
    else assert_true(e->msg[0]);
    buf_release(&name);
    return has;
}

/* Two checks of different content share memory; n: of runs that the library took. */
static u32 try_row(const struct where *w, const struct conv_row *r, enum dtype t, enum layout l)
{
    struct arena a = {0};
    struct symtab st;
    struct task task;
    struct dev_conv library;
    struct subject s;
    struct check c[2];
    struct buf why = {0};
    struct err e = {0};
    i64 none = 0;
    conv_library(&library, r, t, l);
    if (!has_library(w, &library, &e)) return 0;
    symtab_init(&st, &a);
    assert_true(conv_row_task(&task, &a, &st, r, t, l, &e));
    conv_library_subject(&s, &library, &task, &a);
    for (u32 i = 0; i < 2; i++) assert_true(check_init(&c[i], &task, &none, i + 1, true, &e));
    c[1].in_place = true;
    const struct check *const checks[] = {&c[0], &c[1]};
    const struct trial_opts o = {.driver = dev_find(str_of(w->driver)), .dev = {.n_threads = 2}, .timeout = 20};
    enum trial_status st_of = trial_run(&s, checks, 2, NULL, &o, NULL, NULL, &why);
    if (st_of != TRIAL_OK) {
        buf_char(&why, ' ');
        conv_row_label(&why, r);
        fail_msg("%s %s %s", trial_status_name(st_of), why.p, layout_name(l));
    }
    check_release(&c[0]);
    check_release(&c[1]);
    buf_release(&why);
    arena_release(&a);
    return 1;
}

static const struct conv_row plain = {.axes = 2, .batch = 1, .groups = 1, .channels = 3, .out_channels = 5, .size = {6, 7}, .kernel = {3, 3},
                                      .stride = {1, 1}, .dilation = {1, 1}};

static void try_many(const struct where *w, int many, u32 least)
{
    struct rng r = rng_seed(1);
    struct dev_conv library;
    struct err e = {0};
    u32 n = 0;
    conv_library(&library, &plain, DT_F32, LAYOUT_ROWS);
    if (!has_library(w, &library, &e)) skip_test("%s: %s", w->driver, e.msg);
    for (int i = 0; i < many; i++) {
        struct conv_row x = any_pass(&r, 20);
        if (i % 3) memcpy(x.pad_end, x.pad_begin, sizeof x.pad_end); /* all that some libraries have */
        if (conv_row_check(&x, &e)) n += try_row(w, &x, i % 5 ? DT_F32 : i % 2 ? DT_F16 : DT_BF16, i % 2 ? LAYOUT_CLAST : LAYOUT_ROWS);
    }
    assert_true(n >= least);
    library.type = DT_F64;
    assert_false(has_library(w, &library, &e));
    assert_non_null(strstr(e.msg, "no convolutions of 'f64'"));
}

static void test_here(void **state) { try_many(&(struct where){"cpu", "oneDNN "}, 60, 30); }

static const struct vendor {
    struct where where;
    const char *what, *driver, *library; /* environment variables */
} vendors[] = {{{"cuda", "cuDNN 9.26.0"}, "cuDNN", "QUERN_CUDA_LIBRARY", "QUERN_CUDNN_LIBRARY"},
               {{"hip", "MIOpen 3.4.1"}, "MIOpen", "QUERN_HIP_LIBRARY", "QUERN_MIOPEN_LIBRARY"}};

static void use_fakes(void)
{
    for (int i = 0; i < countof(vendors); i++) setenv(vendors[i].driver, fake_path, 1), setenv(vendors[i].library, fake_path, 1);
}

static void expect_lack(const struct vendor *v, const struct dev_conv *c, const char *why)
{
    struct err e = {0};
    assert_false(has_library(&v->where, c, &e));
    if (!strstr(e.msg, why)) fail_msg("%s %s: %s", v->what, why, e.msg);
}

static void test_fake(void **state)
{
    use_fakes();
    for (int i = 0; i < countof(vendors); i++) {
        const struct vendor *v = &vendors[i];
        struct dev_conv c;
        try_many(&v->where, 60, 25);
        conv_library(&c, &plain, DT_F32, LAYOUT_ROWS);
        c.pad_end[1] = 1, c.outputs[1]++;
        expect_lack(v, &c, "other pads at the end");
        conv_library(&c, &plain, DT_F32, LAYOUT_ROWS);
        c.channels = (i64)1 << 32;
        expect_lack(v, &c, "exceed the library");
        c.channels = c.size[0] = c.size[1] = c.batch = INT32_MAX, c.outputs[0] = c.outputs[1] = INT32_MAX - 2;
        expect_lack(v, &c, "exceed the library");
        conv_library(&c, &plain, DT_F32, LAYOUT_ROWS);
        setenv("QUERN_FAKE_CUDA", "memory=0", 1);
        expect_lack(v, &c, "MemAlloc");
        unsetenv("QUERN_FAKE_CUDA");
        setenv(v->library, "libthere_is_none.so.7", 1);
        expect_lack(v, &c, "libthere_is_none.so.7");
        setenv(v->library, "libm.so.6", 1); /* lacks everything */
        expect_lack(v, &c, " library has no '");
    }
}

static long ask(void *lib, const char *name)
{
    long (*q)(void);
    void *f = os_dlsym(lib, name);
    memcpy(&q, &f, sizeof q);
    return q();
}

/* Opens the convolution and runs it once. */
static bool run_once(const struct vendor *v, const struct dev_conv *c, struct err *e)
{
    struct dev *d = dev_find(str_of(v->where.driver))->open(&(struct dev_opts){0}, e);
    struct dev_mem buf[3] = {{0}};
    struct buf name = {0};
    i64 size[3];
    assert_non_null(d);
    dev_conv_bytes(c, size);
    for (int i = 0; i < 3; i++) assert_true(d->driver->alloc(d, size[i], &buf[i], e));
    struct dev_kernel *k = d->driver->conv(d, c, &name, e);
    const i64 grid[1][3] = {{1, 1, 1}};
    bool ok = k && d->driver->launch(d, &(struct dev_launch){.kernel = k, .buf = buf, .n_buf = 3, .grid = grid, .n_grid = 1}, e) &&
              d->driver->fence(d, e);
    if (k) d->driver->unload(d, k);
    d->driver->close(d);
    buf_release(&name);
    return ok;
}

/* Whichever call fails, the library is named, and nothing is left. */
static void test_failures(void **state)
{
    struct conv_row r = plain;
    struct err e = {0};
    use_fakes();
    void *lib = os_dlopen(fake_path, &e);
    assert_non_null(lib);
    for (int i = 0; i < 4 * countof(vendors); i++) {
        const struct vendor *v = &vendors[i / 4];
        struct dev_conv c;
        bool ok = false;
        r.is_transposed = i % 2;
        conv_library(&c, &r, i & 2 ? DT_F16 : DT_F32, LAYOUT_CLAST);
        int n = 0;
        while (!ok && n < 40) {
            char option[32];
            snprintf(option, sizeof option, "dnn=%d", ++n);
            setenv("QUERN_FAKE_CUDA", option, 1);
            ask(lib, "fake_reset");
            e = (struct err){0};
            ok = run_once(v, &c, &e);
            if (!ok && !strstr(e.msg, v->what)) fail_msg("%s", e.msg);
            assert_int_equal(ask(lib, "fake_objects"), 0);
        }
        unsetenv("QUERN_FAKE_CUDA");
        assert_in_range(n, 10, 30);
    }
    ask(lib, "fake_reset");
    os_dlclose(lib);
}

/* Sizes are checked before the library is called. */
static void test_buffers(void **state)
{
    const struct dev_conv c = {.type = DT_F32, .axes = 1, .batch = 2, .channels = 3, .out_channels = 4, .groups = 1, .size = {5},
                               .kernel = {2}, .outputs = {4}, .stride = {1}, .dilation = {1}};
    struct dev_mem buf[] = {{.size = 4 * 30}, {.size = 4 * 24}, {.size = 4 * 32}};
    struct dev_launch l = {.buf = buf, .n_buf = 3, .n_grid = 1};
    for (u32 i = 0; i < 3; i++) {
        struct err e = {0};
        assert_true(dev_conv_check(&c, &l, &e));
        buf[i].size--;
        assert_false(dev_conv_check(&c, &l, &e));
        assert_non_null(strstr(e.msg, "of a convolution has"));
        buf[i].size++;
    }
    l.n_buf = 2;
    struct err e = {0};
    assert_false(dev_conv_check(&c, &l, &e));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_here), cmocka_unit_test(test_fake), cmocka_unit_test(test_failures), cmocka_unit_test(test_buffers)};
    const char *slash = strrchr(argv[0], '/');
    snprintf(fake_path, sizeof fake_path, "%.*sfake_cuda.so", slash ? (int)(slash + 1 - argv[0]) : 0, argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
