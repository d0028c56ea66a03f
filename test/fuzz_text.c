// SPDX-License-Identifier: Apache-2.0
//
// The one-line languages: candidates, symbolic sizes, limits of targets, instruction sets. Parsed
// text prints to text that parses to the same.
#include "fuzz.h"
#include "gen/gen.h"

#include <string.h>

static void fuzz_candidate(struct str s)
{
    struct candidate c, again;
    struct err e = {0};
    struct buf b = {0};
    if (candidate_parse(&c, s, &e)) {
        candidate_print(&b, &c);
        if (!candidate_parse(&again, buf_view(&b), &e) || memcmp(&c, &again, sizeof c)) __builtin_trap();
    }
    buf_release(&b);
}

static void fuzz_sym(struct str s)
{
    struct arena a = {0};
    struct symtab t;
    struct err e = {0};
    struct buf b = {0};
    symtab_init(&t, &a);
    sym x = sym_parse(&t, s, &e);
    if (x) {
        sym_print(&b, &t, x);
        if (sym_parse(&t, buf_view(&b), &e) != x) __builtin_trap();
    }
    buf_release(&b);
    arena_release(&a);
}

static void fuzz_caps(struct str s)
{
    struct caps c = {0}, again = {0};
    struct err e = {0};
    struct buf b = {0};
    if (caps_parse(&c, s, &e)) {
        caps_print(&b, &c);
        if (!caps_parse(&again, buf_view(&b), &e)) __builtin_trap();
    }
    buf_release(&b);
}

static void fuzz_rates(struct str s)
{
    struct rates r, again;
    struct err e = {0};
    struct buf b = {0};
    if (rates_parse(&r, s, &e)) {
        rates_round_all(&r);
        rates_print(&b, &r);
        if (!rates_parse(&again, buf_view(&b), &e) || memcmp(&r, &again, sizeof r)) __builtin_trap();
    }
    buf_release(&b);
}

static void fuzz_isa(struct str s)
{
    struct isa x, again;
    struct err e = {0};
    struct buf b = {0}, all = {0};
    if (isa_parse(&x, s, &e)) {
        isa_print(&b, x, '+');
        isa_print_all(&all, x);
        if (!isa_parse(&again, buf_view(&b), &e) || !isa_equal(x, again)) __builtin_trap();
        if (!isa_parse(&again, buf_view(&all), &e) || !isa_equal(x, again)) __builtin_trap();
        if (!isa_check(buf_view(&all), x, &e)) __builtin_trap();
    }
    e = (struct err){0};
    isa_check(s, isa_here(), &e);
    buf_release(&b);
    buf_release(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct str s = {(const char *)p, (i64)n};
    fuzz_candidate(s);
    fuzz_sym(s);
    fuzz_caps(s);
    fuzz_rates(s);
    fuzz_isa(s);
    return 0;
}
