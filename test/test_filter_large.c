// SPDX-License-Identifier: Apache-2.0
//
// Filters with weights per pixel on arrays of more than 2^31 elements and 2^32 bytes, without their
// memory: unwritten zeros are backed by one page, except some elements at both ends. Weights in
// both orders, gather and scatter, and the gradient of weights from pictures with that many
// channels.
#include "core/core.h"
#include "quern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "skip.h"

enum { K = 21, TAPS = K * K, SIDE = 2210, PIXELS = SIDE * SIDE, CHANNELS = 4096 + 64, SMALL = 720 };
static const u16 one = 0x3c00; /* in f16 */

static u16 *zeros(i64 n)
{
    assert_true(n > INT32_MAX && 2 * n > UINT32_MAX);
    void *p = mmap(NULL, (size_t)n * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static struct quern_array map_of(void *data, quern_dtype type, i64 channels, i64 side, bool last)
{
    return (struct quern_array){.type = type, .rank = 4, .dim = {1, channels, side, side}, .data = data,
                                .stride = {channels * side * side, last ? 1 : side * side, last ? side * channels : side, last ? channels : 1}};
}

static void apply(const char *name, const char *attributes, const struct quern_array *in, const struct quern_array *out)
{
    struct quern_op_opts o = QUERN_OPTS(quern_op_opts);
    quern *q = quern_open(NULL);
    quern_op *op;
    o.threads = 2;
    assert_non_null(q);
    if (quern_op_open(q, name, attributes, &o, &op) || quern_op_run(op, in, 2, out, 1)) fail_msg("%s", quern_error(q));
    quern_op_close(op);
    quern_close(q);
}

static i64 weight_at(i64 tap, i64 p, bool last) { return last ? p * TAPS + tap : tap * PIXELS + p; }

/* x is 1, 2, 3 ... from left to right; the weights of the corners are ones for the innermost taps,
   and so are those of a pixel in the middle. */
static void try_weights(const char *mode, bool last)
{
    struct arena a = {0};
    const i64 r = K / 2, corner = PIXELS - 1, middle = (i64)(SIDE / 2) * SIDE + SIDE / 2, last_tap = TAPS - 1;
    u16 *w = zeros((i64)TAPS * PIXELS);
    if (!w) skip_test("no room for addresses");
    float *x = arena_array(&a, float, PIXELS), *y = arena_array(&a, float, PIXELS), *want = arena_array(&a, float, PIXELS);
    const i64 at[3] = {0, middle, corner}, tap[3] = {last_tap, last_tap - 1, 0}, off[3] = {r * SIDE + r, r * SIDE + r - 1, -r * SIDE - r};
    for (i64 p = 0; p < PIXELS; p++) x[p] = (float)(p % SIDE + 1), y[p] = -1;
    for (u32 i = 0; i < 3; i++) {
        bool splat = mode[0] == 's';
        w[weight_at(tap[i], at[i], last)] = one;
        want[splat ? at[i] + off[i] : at[i]] += x[splat ? at[i] : at[i] + off[i]];
    }
    char attributes[64];
    snprintf(attributes, sizeof attributes, "kernel_shape=[%d,%d], mode=\"%s\"", K, K, mode);
    struct quern_array in[2] = {map_of(x, QUERN_F32, 1, SIDE, false), map_of(w, QUERN_F16, TAPS, SIDE, last)}, out = map_of(y, QUERN_F32, 1, SIDE, false);
    apply("quern::WeightedFilter", attributes, in, &out);
    for (i64 p = 0; p < PIXELS; p++)
        if (y[p] != want[p]) fail_msg("pixel %lld: %g instead of %g", (long long)p, (double)y[p], (double)want[p]);
    munmap(w, (size_t)TAPS * PIXELS * 2);
    arena_release(&a);
}

static void test_gather(void **state) { try_weights("gather", false); }
static void test_gather_last(void **state) { try_weights("gather", true); }
static void test_splat(void **state) { try_weights("splat", false); }

/* dw[t, p] = sum over channels of dy[c, p] * x[c, p + off(t)], for 1 x 2 taps. */
static void test_gradient(void **state)
{
    struct arena a = {0};
    const i64 n = (i64)SMALL * SMALL, end = CHANNELS * n - 1;
    u16 *x = zeros(CHANNELS * n), *dy = zeros(CHANNELS * n);
    if (!x || !dy) skip_test("no room for addresses");
    u16 *dw = arena_array(&a, u16, 2 * n);
    dy[end - 1] = x[end - 1] = x[end] = dy[0] = x[1] = one;
    struct quern_array in[2] = {map_of(dy, QUERN_F16, CHANNELS, SMALL, false), map_of(x, QUERN_F16, CHANNELS, SMALL, false)};
    struct quern_array out = map_of(dw, QUERN_F16, 2, SMALL, false);
    apply("quern::WeightedFilterGradWeights", "kernel_shape=[1,2]", in, &out);
    for (i64 i = 0; i < 2 * n; i++) {
        bool is_one = i == n || i == n - 2 || i == 2 * n - 2;
        if (dw[i] != (is_one ? one : 0)) fail_msg("element %lld: %x", (long long)i, dw[i]);
    }
    munmap(x, (size_t)(CHANNELS * n) * 2), munmap(dy, (size_t)(CHANNELS * n) * 2);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather), cmocka_unit_test(test_gather_last), cmocka_unit_test(test_splat), cmocka_unit_test(test_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
