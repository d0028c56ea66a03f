// SPDX-License-Identifier: Apache-2.0
//
// Trials on a device of a vendor's library: candidates share a child process until one fails, each
// gets its own verdict whatever ran before, a lost device is a row and the next candidate is
// measured. Planted kernels, on a real device if present and on a simulated one that gets lost
// (fake_vulkan.c).
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

#include "tune_fixture.h"

static char fake_path[4096];

/* This body for thread 0 of each group: x, y, input and output of 300 elements. */
static struct subject plant(struct fixture *b, const char *body)
{
    struct kir k;
    struct buf source = {0}, code = {0};
    bool out_first = b->kernel.arg[0].is_out;
    struct str text = str_fmt(&b->arena,
                              "kernel %s(%s)\ngroup 64 1 1\ngrid %%1 = 1\n  %%2 = thread 0\n"
                              "  %%3: bool = eq %%2, 0\n  if %%3\n%s\n  end\nend\n",
                              b->kernel.name,
                              out_first ? "y: inout f32, x: inout f32" : "x: inout f32, y: inout f32", body);
    bool ok = kir_parse(&k, &b->arena, text, &b->e) &&
              lang_render(&source, b->lang, &k, &b->caps, &b->arena, &b->e) &&
              b->lang->build(&code, buf_view(&source), &b->caps, 10, &b->e);
    if (!ok) fail_msg("%s", b->e.msg);
    struct subject s = {.kernel = b->kernel, .code = str_dup(&b->arena, buf_view(&code))};
    buf_release(&source);
    buf_release(&code);
    return s;
}

#define RIGHT                                                                                      \
    "loop %10 = 0..300 step 1\n%11: f32 = load x[%10]\n%12: f32 = max %11, f32(0)\n"               \
    "store y[%10] = %12\nend\n"

static const struct {
    const char *body;
    enum trial_status want;
    const char *reason;
} planted[] = {
    {RIGHT, TRIAL_OK, ""},
    {RIGHT, TRIAL_OK, ""},
    {"loop %10 = 0..300 step 1\n%11: f32 = load x[%10]\nstore y[%10] = %11\nend\n", TRIAL_WRONG,
     "*output 0*differ*"},
    {RIGHT, TRIAL_OK, ""},
    {RIGHT "store y[300] = f32(1)\n", TRIAL_BOUNDS, "*after buffer*"},
    {RIGHT "store x[7] = f32(5)\n", TRIAL_BOUNDS, "*input*"},
    {"loop %10 = 0..299 step 1\n%11: f32 = load x[%10]\n%12: f32 = max %11, f32(0)\n"
     "store y[%10] = %12\nend\n",
     TRIAL_WRONG, "*1 of 300*"},
    {RIGHT, TRIAL_OK, ""},
    {RIGHT, TRIAL_OK, ""},
};

static void test_planted(void **state)
{
    struct fixture b;
    struct err e = {0};
    struct buf why = {0};
    struct subject s[countof(planted)];
    if (!dev_ask(dev_find(S("vulkan")), &(struct dev_opts){0}, NULL, NULL, &e)) skip_test("no Vulkan device: %s", e.msg);
    fixture_open(&b, "vulkan");
    b.o.timeout = 20;
    for (i64 i = 0; i < countof(planted); i++) s[i] = plant(&b, planted[i].body);
    struct subject base = s[0];
    b.o.base = &base;
    const struct check *checks[] = {&b.check};
    struct trial_session t = {
        .subject = s, .n_subjects = countof(planted), .checks = checks, .n_checks = 1, .timing = &b.check, .o = &b.o};
    for (u32 i = 0, pid = 0; i < countof(planted); i++) {
        buf_reset(&why);
        b.n_samples = 0;
        enum trial_status st = trial_next(&t, i, count_sample, &b, &why);
        if (st != planted[i].want || !str_glob(str_of(planted[i].reason), buf_view(&why)))
            fail_msg("candidate %u: %s, '%.*s'", i, trial_status_name(st), STR_ARG(buf_view(&why)));
        assert_int_equal(b.n_samples, st == TRIAL_OK ? 5 : 0);
        assert_int_equal(t.is_running, st == TRIAL_OK);
        if (i > 0 && planted[i - 1].want == TRIAL_OK && st == TRIAL_OK)
            assert_int_equal(t.child.pid, pid); /* the same child */
        pid = (u32)t.child.pid;
    }
    trial_close(&t);
    buf_release(&why);
    fixture_close(&b);
}

/* Enough samples: the child continues with the next candidate. */
static bool one_sample(void *user, const struct sample *s, u32 n)
{
    u32 *count = user;
    ++*count;
    return false;
}

static void test_stop(void **state)
{
    struct fixture b;
    struct buf why = {0};
    setenv("QUERN_VULKAN_LOADER", fake_path, 1);
    setenv("QUERN_FAKE_VULKAN", "idle=1", 1);
    fixture_open(&b, "vulkan");
    struct subject s[] = {plant(&b, RIGHT), plant(&b, RIGHT), plant(&b, RIGHT)};
    struct trial_session t = {.subject = s, .n_subjects = countof(s), .timing = &b.check, .o = &b.o};
    u32 n = 0;
    for (u32 i = 0; i < countof(s); i++) {
        assert_int_equal(trial_next(&t, i, one_sample, &n, &why), TRIAL_OK);
        assert_int_equal(n, i + 1);
    }
    trial_close(&t);
    buf_release(&why);
    fixture_close(&b);
}

static void test_lost(void **state)
{
    struct fixture b;
    struct buf why = {0};
    setenv("QUERN_VULKAN_LOADER", fake_path, 1);
    setenv("QUERN_FAKE_VULKAN", "idle=1 lost=3", 1);
    fixture_open(&b, "vulkan");
    struct subject s[] = {plant(&b, RIGHT), plant(&b, RIGHT)};
    struct trial_session t = {.subject = s, .n_subjects = countof(s), .timing = &b.check, .o = &b.o};
    for (u32 i = 0; i < countof(s); i++) {
        buf_reset(&why);
        assert_int_equal(trial_next(&t, i, count_sample, &b, &why), TRIAL_LAUNCH);
        assert_true(str_glob(S("*'fake A'*vkQueueSubmit*device was lost*"), buf_view(&why)));
        assert_false(t.is_running);
    }
    setenv("QUERN_FAKE_VULKAN", "idle=1", 1);
    buf_reset(&why);
    assert_int_equal(trial_next(&t, 0, count_sample, &b, &why), TRIAL_OK);
    trial_close(&t);
    setenv("QUERN_FAKE_VULKAN", "devices=0", 1); /* gone for good */
    assert_int_equal(trial_next(&t, 0, count_sample, &b, &why), TRIAL_LAUNCH);
    assert_true(str_glob(S("*no devices*"), buf_view(&why)));
    trial_close(&t);
    buf_release(&why);
    fixture_close(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planted),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_lost),
    };
    const char *slash = strrchr(argv[0], '/');
    snprintf(fake_path, sizeof fake_path, "%.*sfake_vulkan.so", slash ? (int)(slash + 1 - argv[0]) : 0,
             argv[0]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
