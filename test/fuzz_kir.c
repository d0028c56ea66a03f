// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR as text: what parses verifies, and prints to text that parses again; so do all kernels
// made of it.
#include "fuzz.h"
#include "kir/kir.h"

static bool wants_all(const void *user, const struct kir_ins *x) { return true; }

static void check(const struct kir *k)
{
    struct err e = {0};
    if (!kir_verify(k, &e)) __builtin_trap();
}

static void rewrite(const struct kir *k)
{
    struct arena a = {0};
    struct err e = {0};
    struct kir flat, math, threads;
    const struct kir_limits l = {.max_lanes_bytes = 16, .max_unroll = 5000};
    if (kir_legalise(&flat, &a, k, &l, &e)) {
        check(&flat);
        kir_expand_math(&math, &a, &flat, wants_all, NULL);
        check(&math);
    }
    if (kir_threads(k) == 1 && kir_spread(&threads, &a, k, 64, &e)) check(&threads);
    arena_release(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct arena a = {0};
    struct kir k = {0}, again = {0};
    struct err e = {0};
    struct buf b = {0};
    if (kir_parse(&k, &a, (struct str){(const char *)p, (i64)n}, &e)) {
        kir_print(&b, &k);
        if (!kir_parse(&again, &a, buf_view(&b), &e)) __builtin_trap();
        rewrite(&k);
    }
    buf_release(&b);
    arena_release(&a);
    return 0;
}
