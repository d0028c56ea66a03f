// SPDX-License-Identifier: Apache-2.0
//
// Skipped tests state their reason: tool/check counts them and repeats the reason in its summary.
// Scripts print the same line, and exit with code 77 if nothing was tested. Programs that ask for it run
// only the tests that the environment names (TEST='*_compiled'). Include after cmocka.h.
#ifndef QUERN_TEST_SKIP_H
#define QUERN_TEST_SKIP_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

static inline void select_tests(void)
{
    const char *names = getenv("TEST");
    if (names) cmocka_set_test_filter(names);
}

#endif
