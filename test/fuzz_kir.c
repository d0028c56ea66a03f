// SPDX-License-Identifier: Apache-2.0
//
// Kernel IR as text: parsed text verifies and round-trips; all kernels derived from it verify; the
// interpreter runs it safely.
#include "fuzz.h"
#include "kir/kir.h"

#include <string.h>

static bool wants_all(const void *user, const struct kir *k, kval v) { return true; }

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

/* On zeros: 16 elements each, every parameter 3. */
static void run(const struct kir *k)
{
    enum { N = 16, MAX_ARGS = 64 };
    static u8 memory[MAX_ARGS][N * 8];
    struct kir_arg arg[MAX_ARGS];
    i64 param[MAX_ARGS];
    struct err e = {0};
    const struct kir_eval_opts o = {.seed = k->ins.n, .max_steps = 20000, .max_bytes = 1 << 24};
    if (k->buf.n > MAX_ARGS || k->param.n > MAX_ARGS) return;
    memset(memory, 0, sizeof memory);
    for (i64 i = 0; i < MAX_ARGS; i++) {
        arg[i] = (struct kir_arg){memory[i], N};
        param[i] = 3;
    }
    kir_eval(k, arg, param, &o, &e);
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
        run(&k);
    }
    buf_release(&b);
    arena_release(&a);
    return 0;
}
