// SPDX-License-Identifier: Apache-2.0
//
// Language opencl on device opencl against the interpreter (group_bed.h). Skipped where there is no OpenCL device.
#include "group_bed.h"

static int open_device(void **state)
{
    static struct bed bed;
    *state = &bed;
    return bed_open(&bed, "opencl", "opencl");
}

int main(void)
{
    return cmocka_run_group_tests(group_tests, open_device, close_device);
}
