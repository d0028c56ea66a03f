// SPDX-License-Identifier: Apache-2.0
//
// Language spirv on device vulkan against the interpreter (group_fixture.h). Skipped without a
// Vulkan device.
//
// Mesa 22's software device treats a divisor that it proves to be 0 as undefined, and unpacks the
// upper half of a constant pair of f16 to 0; with many seeds about one kernel in a hundred shows
// that.
#include "group_fixture.h"
#include "vulkan_fixture.h"

/* Small types through words, halves by integer arithmetic, 64-bit integers as pairs. */
static void less(struct caps *c)
{
    c->has_i8 = c->has_i16 = c->has_f16 = c->has_rte_f16 = c->has_fma = c->has_i64 = false;
    c->max_push = 0;
    c->spirv = 13;
}

static int open_device(void **state)
{
    static struct fixture fixture = {.less = less};
    *state = &fixture;
    return fixture_open(&fixture, "vulkan", "spirv");
}

int main(void)
{
    vulkan_stay_loaded();
    return cmocka_run_group_tests(group_tests, open_device, close_device);
}
