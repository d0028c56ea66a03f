// SPDX-License-Identifier: Apache-2.0
//
// Tests that cannot be done on this machine say why: tool/check counts them as skipped and repeats the reason in its summary. Scripts print
// the same line, and end with exit code 77 when nothing at all could be checked. Include after cmocka.h.
#ifndef QUERN_TEST_SKIP_H
#define QUERN_TEST_SKIP_H

#include <stdarg.h>
#include <stdio.h>

/* Does not return. */
__attribute__((format(printf, 1, 2))) static inline void skip_test(const char *reason, ...)
{
    va_list ap;
    va_start(ap, reason);
    printf("skipped: ");
    vprintf(reason, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    skip();
}

#endif
