// SPDX-License-Identifier: Apache-2.0
//
// Building many texts, with a language whose compiler does what a text asks for: fail, end its process, take too long, refuse two
// texts in one program. Whether texts are joined or not and in whatever order, each gets the verdict that it deserves alone; what
// was built is found again; code that has others' kernels is given only to those who may have it.
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tune/tune.h"

static i64 count_of(struct str s, const char *word)
{
    i64 n = 0, w = (i64)strlen(word);
    for (i64 i = 0; i + w <= s.n; i++) n += memcmp(s.p + i, word, (size_t)w) == 0;
    return n;
}

static bool compile(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    if (count_of(text, "dies")) kill(getpid(), SIGKILL);
    if (count_of(text, "slow")) usleep((unsigned)(timeout * 1.2e6));
    if (count_of(text, "slow") || count_of(text, "bad")) return err_set(e, ERR_FAILED, "refused: %.*s", STR_ARG(text));
    if (count_of(text, "same") > 1) return err_set(e, ERR_FAILED, "defined twice");
    buf_str(binary, text);
    return true;
}

static bool refuse(struct buf *binary, struct str text, const struct caps *c, double timeout, struct err *e)
{
    return err_set(e, ERR_FAILED, "refused: %.*s", STR_ARG(text));
}

static void join(struct buf *out, const struct str *text, u32 n)
{
    for (u32 i = 0; i < n; i++) buf_str(out, text[i]);
}

static const struct lang fake = {.version = 1, .name = "fake", .build = compile, .join = join};
static const struct lang spent = {.version = 1, .name = "fake", .build = refuse, .join = join}; /* knows only what was built before */

enum { MOST = 60 };
static const char *const kinds[] = {"fine", "fine", "fine", "fine", "fine", "fine", "fine", "same", "bad", "dies", "slow"};

static bool is_good(struct str text) { return count_of(text, "fine") || count_of(text, "same"); }

static void check_one(struct str text, const struct built *b)
{
    assert_int_equal(b->ok, is_good(text));
    if (count_of(text, "slow")) assert_true(b->timed_out); /* others may be late on a machine that is busy */
    if (b->ok && b->is_part) assert_int_equal(count_of(b->code, text.p), 1);
    if (b->ok && !b->is_part) assert_true(str_eq(b->code, text));
    if (b->ok) return;
    struct str want = count_of(text, "dies") ? S("ended without a result") : str_trim(text);
    char word[64];
    snprintf(word, sizeof word, "%.*s", STR_ARG(want));
    if (!count_of(b->message, word)) fail_msg("'%.*s' does not say '%s'", STR_ARG(b->message), word);
    assert_int_equal(count_of(b->message, "\n"), count_of(text, "dies") ? 0 : 1); /* of itself alone */
}

struct bed {
    struct arena arena;
    struct cache cache;
    struct caps caps;
    struct builder builder;
    struct str text[MOST];
    struct built out[MOST];
    u32 n;
};

static void open_bed(struct bed *b, u64 seed, u32 n_kinds)
{
    struct rng r = rng_seed(seed);
    struct err e = {0};
    *b = (struct bed){.n = (u32)rng_range(&r, 1, MOST)};
    assert_true(os_temp_dir(&b->arena, &b->cache.folder, &e));
    b->builder = (struct builder){.cache = &b->cache, .lang = &fake, .caps = &b->caps, .toolchain = S("t"), .timeout = 0.02,
                                  .n_parallel = (u32)rng_range(&r, 1, 4), .may_join = true};
    for (u32 i = 0; i < b->n; i++) {
        struct buf t = {0};
        buf_printf(&t, "<%u %s>\n", i, kinds[rng_range(&r, 0, n_kinds - 1)]);
        for (i64 k = rng_range(&r, 0, 9) ? 0 : 90000; k > 0; k--) buf_char(&t, '.'); /* a few are too large to join many */
        b->text[i] = str_dup(&b->arena, buf_view(&t));
        buf_release(&t);
    }
}

static void close_bed(struct bed *b)
{
    os_remove_tree(b->cache.folder.p);
    arena_release(&b->arena);
}

static void build(struct bed *b)
{
    struct err e = {0};
    if (!build_all(&b->builder, b->text, b->n, b->out, &b->arena, &e)) fail_msg("%s", e.msg);
}

static void shuffle(struct bed *b, struct rng *r)
{
    for (u32 i = b->n; i > 1; i--) {
        u32 k = (u32)rng_range(r, 0, i - 1);
        struct str t = b->text[i - 1];
        b->text[i - 1] = b->text[k], b->text[k] = t;
    }
}

static void test_verdicts(void **state)
{
    for (u64 seed = 0; seed < 25; seed++) {
        struct bed b;
        struct rng r = rng_seed(seed);
        open_bed(&b, seed, countof(kinds));
        for (int order = 0; order < 2; order++) {
            if (order) b.builder.cache = NULL; /* built anew, among others */
            build(&b);
            for (u32 i = 0; i < b.n; i++) check_one(b.text[i], &b.out[i]);
            shuffle(&b, &r);
        }
        close_bed(&b);
    }
}

static void test_found_again(void **state)
{
    u32 n_parts = 0, n_alone = 0;
    for (u64 seed = 100; seed < 125; seed++) {
        struct bed b;
        bool was_part[MOST];
        open_bed(&b, seed, countof(kinds) - 1);
        build(&b);
        for (u32 i = 0; i < b.n; i++) was_part[i] = b.out[i].is_part;
        b.builder.lang = &spent;
        build(&b);
        for (u32 i = 0; i < b.n; i++) {
            assert_int_equal(b.out[i].ok, is_good(b.text[i]));
            assert_int_equal(b.out[i].is_part, was_part[i]);
            if (b.out[i].ok) check_one(b.text[i], &b.out[i]);
        }
        b.builder.may_join = false; /* of a program for keeps */
        build(&b);
        for (u32 i = 0; i < b.n; i++) {
            assert_int_equal(b.out[i].ok, is_good(b.text[i]) && !was_part[i]);
            assert_false(b.out[i].is_part);
            n_parts += was_part[i], n_alone += b.out[i].ok;
        }
        b.builder.lang = &fake;
        build(&b);
        for (u32 i = 0; i < b.n; i++)
            if (is_good(b.text[i])) assert_true(b.out[i].ok && str_eq(b.out[i].code, b.text[i]));
        close_bed(&b);
    }
    assert_true(n_parts > 100 && n_alone > 5);
}

/* One run of the compiler, one program in the cache. */
static void test_one_program(void **state)
{
    struct bed b;
    struct os_entry *entry;
    struct err e = {0};
    i64 n, n_programs = 0;
    open_bed(&b, 7, 1);
    b.n = 16, b.builder.n_parallel = 1;
    for (u32 i = 0; i < b.n; i++) b.text[i] = str_fmt(&b.arena, "<%u fine>\n", i);
    build(&b);
    for (u32 i = 0; i < b.n; i++) {
        check_one(b.text[i], &b.out[i]);
        assert_true(b.out[i].is_part && b.out[i].code.p == b.out[0].code.p);
    }
    assert_true(os_list_by_use(&b.arena, b.cache.folder.p, &entry, &n, &e));
    for (i64 i = 0; i < n; i++) n_programs += !str_ends(entry[i].name, S(".part"));
    assert_int_equal(n, b.n + 1);
    assert_int_equal(n_programs, 1);
    close_bed(&b);
}

/* What is damaged or cut short is not there, and a folder that others may write into is no cache. */
static void test_cache(void **state)
{
    struct arena a = {0};
    struct cache c;
    struct err e = {0};
    struct str dir, code, file;
    struct hash key = {.lo = 7, .hi = 9};
    const char *before = getenv("XDG_CACHE_HOME");
    assert_true(os_temp_dir(&a, &dir, &e));
    setenv("XDG_CACHE_HOME", dir.p, 1);
    cache_open(&c, "kernels", &a, &(struct log){0});
    assert_true(c.folder.n > 0);
    assert_false(cache_get(&c, key, &a, &code));
    cache_put(&c, key, S("native code"));
    assert_true(cache_get(&c, key, &a, &code) && str_is(code, "native code"));
    const char *path = str_fmt(&a, "%.*s/00000000000000090000000000000007", STR_ARG(c.folder)).p;
    if (!os_exists(path)) path = str_fmt(&a, "%.*s/00000000000000070000000000000009", STR_ARG(c.folder)).p;
    assert_true(os_read(&a, path, 1 << 20, &file, &e));
    for (i64 n = 0; n < file.n; n++) {
        assert_true(os_write_private(path, &(struct str){file.p, n}, 1, &e));
        assert_false(cache_get(&c, key, &a, &code));
        char *wrong = (char *)arena_alloc(&a, file.n);
        memcpy(wrong, file.p, (size_t)file.n);
        wrong[n] ^= 16;
        assert_true(os_write_private(path, &(struct str){wrong, file.n}, 1, &e));
        assert_false(cache_get(&c, key, &a, &code));
    }
    assert_int_equal(chmod(c.folder.p, 0777), 0);
    cache_open(&c, "kernels", &a, &(struct log){0});
    assert_int_equal(c.folder.n, 0);
    cache_put(&c, key, S("nowhere"));
    assert_false(cache_get(&c, key, &a, &code));
    os_remove_tree(dir.p);
    if (before) setenv("XDG_CACHE_HOME", before, 1);
    else unsetenv("XDG_CACHE_HOME");
    arena_release(&a);
}

/* An empty file of this size, as far as the file system is concerned, that was used so many seconds ago. */
static void sparse_file(const char *dir, const char *name, i64 size, i64 age)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0 && ftruncate(fd, size) == 0);
    struct timespec t = {.tv_sec = (i64)os_time() - age};
    assert_int_equal(futimens(fd, (struct timespec[2]){t, t}), 0);
    close(fd);
}

/* Beyond 2 GiB what was used longest ago goes, whenever it was written; what nobody finished writing goes after a day. */
static void test_cache_limit(void **state)
{
    struct arena a = {0};
    struct cache c = {0};
    struct err e = {0};
    struct os_entry *entry;
    i64 n;
    const i64 gib = (i64)1 << 30;
    assert_true(os_temp_dir(&a, &c.folder, &e));
    sparse_file(c.folder.p, "oldest", gib / 2, 5000);
    sparse_file(c.folder.p, "older", gib, 4000);
    sparse_file(c.folder.p, "old", gib / 2, 3000);
    sparse_file(c.folder.p, "being-written.1-0.tmp", 10, 3600);
    sparse_file(c.folder.p, "left.1-0.tmp", 10, 100000);
    cache_trim(&c);
    assert_true(os_list_by_use(&a, c.folder.p, &entry, &n, &e) && n == 3); /* 10 bytes too many */
    assert_true(str_is(entry[0].name, "older") && str_is(entry[1].name, "being-written.1-0.tmp") && str_is(entry[2].name, "old"));
    os_note_use(str_fmt(&a, "%.*s/older", STR_ARG(c.folder)).p);
    sparse_file(c.folder.p, "new", gib, 0);
    cache_trim(&c);
    assert_true(os_list_by_use(&a, c.folder.p, &entry, &n, &e) && n == 2);
    assert_true(os_exists(str_fmt(&a, "%.*s/older", STR_ARG(c.folder)).p) && os_exists(str_fmt(&a, "%.*s/new", STR_ARG(c.folder)).p));
    os_remove_tree(c.folder.p);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_found_again),
        cmocka_unit_test(test_one_program),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
