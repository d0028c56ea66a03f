// SPDX-License-Identifier: Apache-2.0
//
// Language opencl on device opencl against the interpreter (group_fixture.h). Skipped without an
// OpenCL device.
#include "group_fixture.h"

static int open_device(void **state)
{
    static struct fixture fixture;
    *state = &fixture;
    return fixture_open(&fixture, "opencl", "opencl");
}

int main(void)
{
    return cmocka_run_group_tests(group_tests, open_device, close_device);
}
