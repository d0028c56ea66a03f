// SPDX-License-Identifier: Apache-2.0
//
// Spaces of configurations, of GEMMs and of attention: what holds for the points of any of them.
#ifndef QUERN_TEST_LAB_FIXTURE_H
#define QUERN_TEST_LAB_FIXTURE_H

#include "lab/lab.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* of: the computation that the file is for */
static inline void read_space(struct lab_space *s, struct arena *a, const char *name, const struct lab_config *of)
{
    struct str text;
    struct err e = {0};
    const char *path = str_z(a, str_fmt(a, "test/corpus/lab_space/%s", name));
    assert_true(os_read(a, path, 1 << 20, &text, &e));
    if (!lab_space_read(s, a, text, of, &e)) fail_msg("%s", e.msg);
}

struct slice { struct lab_config c; i64 number, left; };

static inline bool take_one(void *user, const struct lab_config *c, i64 number)
{
    struct slice *x = user;
    if (x->left-- > 0) return true;
    x->c = *c, x->number = number;
    return false;
}

/* Point `at` of a whole enumeration is the first of one that starts there; returns it. */
static inline struct lab_config starts_at(const struct lab_space *s, enum lab_rules rules, i64 at)
{
    struct slice whole = {.left = at}, part = {.left = 0};
    lab_space_each(s, rules, 0, take_one, &whole);
    lab_space_each(s, rules, at, take_one, &part);
    assert_int_equal(whole.number, at);
    assert_int_equal(part.number, at);
    assert_memory_equal(&whole.c, &part.c, sizeof part.c);
    return part.c;
}

/* The rules leave nothing: the error names the rule that removed the last points, and what it wants. */
static inline void leaves_nothing(const struct lab_space *s, enum lab_rules rules, const char *message, const char *wants)
{
    struct lab_count c;
    struct err e = {0};
    assert_false(lab_space_count(s, rules, &c, &e));
    assert_int_equal(e.code, ERR_NOTHING);
    if (!strstr(e.msg, message)) fail_msg("'%s', not '%s'", e.msg, message);
    if (!strstr(e.msg, wants)) fail_msg("'%s' without '%s'", e.msg, wants);
}

#endif
