// SPDX-License-Identifier: Apache-2.0
//
// Candidates that earlier versions stored are read by today's names of families and parameters.
#include "gen_tasks.h"

static struct str renamed(struct buf *b, struct str text)
{
    buf_reset(b);
    candidate_rename(b, text);
    return buf_view(b);
}

/* "gemm.14 mr=10 ..." with another revision. */
static struct str with_revision(struct arena *a, struct str text, u32 revision)
{
    struct str name, was, rest;
    if (!str_cut(text, '.', &name, &rest) || !str_cut(rest, ' ', &was, &rest)) fail_msg("%.*s: no revision", STR_ARG(text));
    return str_fmt(a, "%.*s.%u %.*s", STR_ARG(name), revision, STR_ARG(rest));
}

/* test/golden/gen/renamed.txt: a candidate of each family with a renamed name or parameter, "as it was -> as it is", of any revision. */
static void test_golden(void **state)
{
    static const struct str arrow = {" -> ", 4};
    struct arena a = {0};
    struct buf b = {0}, printed = {0};
    struct str text, line;
    struct err e = {0};
    u32 n = 0;
    if (!os_read(&a, "test/golden/gen/renamed.txt", 1 << 20, &text, &e)) fail_msg("%s", e.msg);
    for (; str_cut(text, '\n', &line, &text); n++) {
        struct candidate c;
        i64 at = 0;
        while (at < line.n && !str_starts(str_sub(line, at, line.n), arrow)) at++;
        struct str before = str_sub(line, 0, at), now = str_sub(line, at + arrow.n, line.n);
        assert_string_equal(str_fmt(&a, "%.*s", STR_ARG(renamed(&b, before))).p, str_fmt(&a, "%.*s", STR_ARG(now)).p);
        struct str family, rest;
        str_cut(now, '.', &family, &rest);
        const struct gen *gen = gen_find(family);
        if (!gen) fail_msg("%.*s: no such family", STR_ARG(family));
        before = with_revision(&a, before, gen->revision), now = with_revision(&a, now, gen->revision); /* others are not parsed */
        if (!candidate_parse(&c, before, &e)) fail_msg("%.*s: %s", STR_ARG(before), e.msg);
        buf_reset(&printed);
        candidate_print(&printed, &c);
        assert_true(str_eq(buf_view(&printed), now));
    }
    assert_int_equal(n, 25);
    buf_release(&printed);
    buf_release(&b);
    arena_release(&a);
}

/* No name of today is one that is replaced: with any values. */
static void test_stable(void **state)
{
    struct buf b = {0}, printed = {0};
    struct candidate c = {0};
    for (i64 i = 0; (c.gen = gen_at(i)); i++) {
        buf_reset(&printed);
        candidate_print(&printed, &c);
        buf_reset(&b);
        if (candidate_rename(&b, buf_view(&printed))) fail_msg("'%.*s' becomes '%.*s'", STR_ARG(buf_view(&printed)), STR_ARG(buf_view(&b)));
        assert_true(str_eq(buf_view(&b), buf_view(&printed)));
    }
    buf_release(&printed);
    buf_release(&b);
}

/* Whatever the text: as many words, each with the value that it had, and nothing is renamed twice. */
static void test_any_text(void **state)
{
    static const char *const words[] = {"", "row", "row.3", "map.4", "group_row.1", "chunks", "chunks=8", "map=", "=", "=chunks", "kc=1=2", "ks=3", ".", "turn=1"};
    struct rng r = rng_seed(7);
    struct buf text = {0}, once = {0}, twice = {0};
    for (u32 k = 0; k < 20000; k++) {
        buf_reset(&text), buf_reset(&once), buf_reset(&twice);
        for (i64 i = rng_range(&r, 0, 6); i >= 0; i--) {
            buf_z(&text, words[rng_range(&r, 0, countof(words) - 1)]);
            if (i) buf_char(&text, ' ');
        }
        bool is_new = candidate_rename(&once, buf_view(&text));
        assert_true(is_new == !str_eq(buf_view(&once), buf_view(&text)));
        u32 spaces[2] = {0}, values[2] = {0};
        for (u32 side = 0; side < 2; side++) {
            struct str s = buf_view(side ? &once : &text);
            for (i64 i = 0; i < s.n; i++) spaces[side] += s.p[i] == ' ', values[side] += s.p[i] == '=';
        }
        assert_true(spaces[0] == spaces[1] && values[0] == values[1]);
        assert_false(candidate_rename(&twice, buf_view(&once)));
    }
    buf_release(&text), buf_release(&once), buf_release(&twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_stable), cmocka_unit_test(test_any_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
