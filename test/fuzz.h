// SPDX-License-Identifier: Apache-2.0
//
// The interface of every test/fuzz_NAME.c: one function that feeds the bytes to a parser. `make
// fuzz` links it with libFuzzer, the tests with fuzz_main.c, which runs test/corpus/NAME. No state
// is kept between calls.
#ifndef QUERN_FUZZ_H
#define QUERN_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#endif
