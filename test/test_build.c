// SPDX-License-Identifier: Apache-2.0
//
// Building many texts, with a language whose compiler behaves as the text says: it fails, exits,
// exceeds the time limit, or rejects two texts in one program. Joined or not, in any order, each
// text gets the verdict it would get alone; cached results are found; code shared with other
// kernels is returned only if permitted.
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
    if (count_of(text, "lacks")) return err_set(e, ERR_UNSUPPORTED, "needs what the target lacks");
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
/* has only cached results */
static const struct lang spent = {.version = 1, .name = "fake", .build = refuse, .join = join};

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

struct fixture {
    struct arena arena;
    struct cache cache;
    struct caps caps;
    struct builder builder;
    struct str text[MOST];
    struct built out[MOST];
    u32 n;
};

static void open_fixture(struct fixture *b, u64 seed, u32 n_kinds)
{
    struct rng r = rng_seed(seed);
    struct err e = {0};
    *b = (struct fixture){.n = (u32)rng_range(&r, 1, MOST)};
    assert_true(os_temp_dir(&b->arena, &b->cache.folder, &e));
    b->builder = (struct builder){.cache = &b->cache, .lang = &fake, .caps = &b->caps, .toolchain = S("t"), .timeout = 0.02,
                                  .n_parallel = (u32)rng_range(&r, 1, 4), .may_join = true};
    for (u32 i = 0; i < b->n; i++) {
        struct buf t = {0};
        buf_printf(&t, "<%u %s>\n", i, kinds[rng_range(&r, 0, n_kinds - 1)]);
        /* a few are too large to join many */
        for (i64 k = rng_range(&r, 0, 9) ? 0 : 90000; k > 0; k--) buf_char(&t, '.');
        b->text[i] = str_dup(&b->arena, buf_view(&t));
        buf_release(&t);
    }
}

static void close_fixture(struct fixture *b)
{
    os_remove_tree(b->cache.folder.p);
    arena_release(&b->arena);
}

static void build(struct fixture *b)
{
    struct err e = {0};
    if (!build_all(&b->builder, b->text, b->n, b->out, &b->arena, &e)) fail_msg("%s", e.msg);
}

static void shuffle(struct fixture *b, struct rng *r)
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
        struct fixture b;
        struct rng r = rng_seed(seed);
        open_fixture(&b, seed, countof(kinds));
        for (int order = 0; order < 2; order++) {
            if (order) b.builder.cache = NULL; /* built again, among others */
            build(&b);
            for (u32 i = 0; i < b.n; i++) check_one(b.text[i], &b.out[i]);
            shuffle(&b, &r);
        }
        close_fixture(&b);
    }
}

static void test_found_again(void **state)
{
    u32 n_parts = 0, n_alone = 0;
    for (u64 seed = 100; seed < 125; seed++) {
        struct fixture b;
        bool was_part[MOST];
        open_fixture(&b, seed, countof(kinds) - 1);
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
        close_fixture(&b);
    }
    assert_true(n_parts > 100 && n_alone > 5);
}

/* One run of the compiler, one program in the cache. */
static void test_one_program(void **state)
{
    struct fixture b;
    struct os_entry *entry;
    struct err e = {0};
    i64 n, n_programs = 0;
    open_fixture(&b, 7, 1);
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
    close_fixture(&b);
}

/* Missing features of the target are distinguished from failures. */
static void test_reasons(void **state)
{
    struct fixture b;
    open_fixture(&b, 1, 1);
    b.n = 3;
    for (u32 i = 0; i < b.n; i++) b.text[i] = str_fmt(&b.arena, "<%u %s>\n", i, i == 0 ? "lacks" : i == 1 ? "bad" : "dies");
    build(&b);
    assert_int_equal(b.out[0].why, ERR_UNSUPPORTED);
    assert_int_equal(b.out[1].why, ERR_FAILED);
    assert_int_equal(b.out[2].why, ERR_FAILED);
    close_fixture(&b);
}

/* A program with a kernel that the driver does not load is halved until that kernel is alone: the others are in programs without it, and
   those are found in the cache from then on. */
static void test_halved(void **state)
{
    for (u64 seed = 0; seed < 20; seed++) {
        struct fixture b;
        struct rng r = rng_seed(seed);
        struct err e = {0};
        open_fixture(&b, seed, 1);
        b.n = (u32)rng_range(&r, 1, 16), b.builder.n_parallel = 1;
        u32 bad = (u32)rng_range(&r, 0, b.n - 1), n_halved = 0;
        for (u32 i = 0; i < b.n; i++) b.text[i] = str_fmt(&b.arena, "<%u fine%s>\n", i, i == bad ? " unloadable" : "");
        build(&b);
        for (u32 i = 0; i < b.n; i++)
            while (count_of(b.out[i].code, "unloadable") && build_halve(&b.builder, b.text, b.out, b.n, i, &b.arena, &e)) n_halved++;
        assert_true(n_halved <= 5);
        for (int again = 0; again < 2; again++) {
            for (u32 i = 0; i < b.n; i++) {
                check_one(b.text[i], &b.out[i]);
                assert_int_equal(count_of(b.out[i].code, "unloadable"), i == bad);
            }
            assert_false(b.out[bad].is_part);
            b.builder.lang = &spent;
            build(&b);
        }
        close_fixture(&b);
    }
}

/* A user of this test's: caches and settings in folders of its own. */
struct home { struct arena a; struct str dir; char *cache, *config; };

static char *keep_variable(struct home *h, const char *name, const char *value)
{
    const char *before = getenv(name);
    char *kept = before ? (char *)(uintptr_t)str_fmt(&h->a, "%s", before).p : NULL;
    setenv(name, value, 1);
    return kept;
}

static void put_back(const char *name, const char *before)
{
    if (before) setenv(name, before, 1);
    else unsetenv(name);
}

static const char *beneath(struct home *h, const char *path) { return str_fmt(&h->a, "%.*s/%s", STR_ARG(h->dir), path).p; }

static void home_open(struct home *h)
{
    struct err e = {0};
    *h = (struct home){0};
    assert_true(os_temp_dir(&h->a, &h->dir, &e));
    h->cache = keep_variable(h, "XDG_CACHE_HOME", beneath(h, "cache"));
    h->config = keep_variable(h, "XDG_CONFIG_HOME", beneath(h, "config"));
}

static void home_close(struct home *h)
{
    put_back("XDG_CACHE_HOME", h->cache);
    put_back("XDG_CONFIG_HOME", h->config);
    os_remove_tree(h->dir.p);
    arena_release(&h->a);
}

static bool is_kept(struct home *h)
{
    struct cache c;
    cache_open(&c, "kernels", &h->a, &(struct log){0});
    return c.folder.n > 0;
}

/* Damaged or truncated files count as missing. */
static void test_cache(void **state)
{
    struct home h;
    struct cache c;
    struct err e = {0};
    struct str code, file;
    struct hash key = {.lo = 7, .hi = 9};
    home_open(&h);
    struct arena *a = &h.a;
    cache_open(&c, "kernels", a, &(struct log){0});
    assert_true(c.folder.n > 0);
    assert_false(cache_get(&c, key, a, &code));
    cache_put(&c, key, S("native code"));
    assert_true(cache_get(&c, key, a, &code) && str_is(code, "native code"));
    const char *path = str_fmt(a, "%.*s/00000000000000090000000000000007", STR_ARG(c.folder)).p;
    assert_true(os_read(a, path, 1 << 20, &file, &e));
    for (i64 n = 0; n < file.n; n++) {
        assert_true(os_write_private(path, &(struct str){file.p, n}, 1, &e));
        assert_false(cache_get(&c, key, a, &code));
        char *wrong = (char *)arena_alloc(a, file.n);
        memcpy(wrong, file.p, (size_t)file.n);
        wrong[n] ^= 16;
        assert_true(os_write_private(path, &(struct str){wrong, file.n}, 1, &e));
        assert_false(cache_get(&c, key, a, &code));
    }
    home_close(&h);
}

/* Code that this user's quern did not put there is not run: that of another user, whose key is another one, and that of another kernel. */
static void test_cache_planted(void **state)
{
    struct home h;
    struct cache mine, theirs;
    struct err e = {0};
    struct str code, file;
    const struct hash key = {.lo = 7, .hi = 9}, other = {.lo = 8, .hi = 9};
    home_open(&h);
    cache_open(&mine, "kernels", &h.a, &(struct log){0});
    cache_put(&mine, key, S("mine"));
    setenv("XDG_CACHE_HOME", beneath(&h, "their-cache"), 1), setenv("XDG_CONFIG_HOME", beneath(&h, "their-config"), 1);
    cache_open(&theirs, "kernels", &h.a, &(struct log){0});
    cache_put(&theirs, key, S("theirs"));
    const char *to = str_fmt(&h.a, "%.*s/00000000000000090000000000000007", STR_ARG(mine.folder)).p;
    const char *from = str_fmt(&h.a, "%.*s/00000000000000090000000000000007", STR_ARG(theirs.folder)).p;
    assert_true(cache_get(&mine, key, &h.a, &code) && str_is(code, "mine"));
    assert_true(os_read(&h.a, to, 1 << 20, &file, &e));
    const char *renamed = str_fmt(&h.a, "%.*s/00000000000000090000000000000008", STR_ARG(mine.folder)).p;
    assert_true(os_write_private(renamed, &file, 1, &e));
    assert_false(cache_get(&mine, other, &h.a, &code));
    assert_true(os_read(&h.a, from, 1 << 20, &file, &e) && os_write_private(to, &file, 1, &e));
    assert_false(cache_get(&mine, key, &h.a, &code));
    assert_true(cache_get(&theirs, key, &h.a, &code) && str_is(code, "theirs"));
    home_close(&h);
}

/* A cache that others may write into, that belongs to another user, or is a link, is none; nor is one without a secret key. */
static void test_cache_folder(void **state)
{
    struct home h;
    struct stat st;
    struct str bytes;
    struct err e = {0};
    home_open(&h);
    const char *all = beneath(&h, "cache/quern"), *kernels = beneath(&h, "cache/quern/kernels"), *key = beneath(&h, "config/quern/cache-key");
    assert_true(is_kept(&h));
    assert_true(stat(kernels, &st) == 0 && (st.st_mode & 0777) == 0700 && stat(all, &st) == 0 && (st.st_mode & 0777) == 0700);
    assert_true(stat(key, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_size == SEAL_KEY_BYTES);
    const char *folder[] = {all, kernels};
    for (int k = 0; k < 2; k++) {
        assert_true(chmod(folder[k], 0720) == 0 && !is_kept(&h));
        assert_true(chmod(folder[k], 0702) == 0 && !is_kept(&h));
        assert_true(chmod(folder[k], 0755) == 0 && is_kept(&h));
        if (geteuid() == 0) {
            assert_true(chown(folder[k], 65534, 65534) == 0 && !is_kept(&h));
            assert_true(chown(folder[k], 0, 0) == 0 && is_kept(&h));
        }
        const char *moved = str_fmt(&h.a, "%s-moved", folder[k]).p;
        assert_true(rename(folder[k], moved) == 0 && symlink(moved, folder[k]) == 0 && !is_kept(&h));
        assert_true(unlink(folder[k]) == 0 && rename(moved, folder[k]) == 0 && is_kept(&h));
    }
    assert_true(chmod(key, 0640) == 0 && !is_kept(&h));
    assert_true(chmod(key, 0600) == 0 && is_kept(&h));
    assert_true(os_read(&h.a, key, 100, &bytes, &e));
    assert_true(os_write_private(key, &(struct str){bytes.p, 31}, 1, &e) && !is_kept(&h));
    assert_true(unlink(key) == 0 && is_kept(&h));
    home_close(&h);
}

/* Large files are sealed by several threads, in pieces that their ends do not agree with. */
static void test_seal(void **state)
{
    enum { BYTES = (5 << 20) + 77 };
    struct arena a = {0};
    struct err e = {0};
    const struct seal_key key = {{1, 2, 3}}, other = {{1, 2, 4}};
    char *p = arena_alloc(&a, BYTES);
    u8 seal[2][SEAL_BYTES];
    for (i64 i = 0; i < BYTES; i++) p[i] = (char)(i * 7 + (i >> 11));
    const struct str all = {p, BYTES}, piece[] = {{p, 5}, {p + 5, 0}, {p + 5, (3 << 20) + 1}, {p + 6 + (3 << 20), BYTES - 6 - (3 << 20)}};
    assert_true(seal_make(&key, S("name"), &all, 1, seal[0], &e) && seal_check(&key, S("name"), all, seal[0]));
    assert_true(seal_make(&key, S("name"), piece, countof(piece), seal[1], &e) && seal_check(&key, S("name"), all, seal[1]));
    assert_false(seal_check(&other, S("name"), all, seal[0]));
    assert_false(seal_check(&key, S("nam"), all, seal[0]));
    assert_false(seal_check(&key, S("name"), str_sub(all, 0, BYTES - 1), seal[0]));
    for (i64 at = 0; at < BYTES; at += (1 << 20) - 3) {
        p[at] ^= 1;
        assert_false(seal_check(&key, S("name"), all, seal[0]));
        p[at] ^= 1;
    }
    for (u32 i = 0; i < SEAL_BYTES; i++) {
        seal[1][i] ^= 128;
        assert_false(seal_check(&key, S("name"), all, seal[1]));
        seal[1][i] ^= 128;
    }
    assert_true(seal_check(&key, S("name"), all, seal[1]));
    assert_true(seal_make(&key, S("none"), NULL, 0, seal[0], &e) && seal_check(&key, S("none"), S(""), seal[0]));
    arena_release(&a);
}

/* An empty file with this apparent size, last used so many seconds ago. */
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

/* Beyond 2 GiB, or the configured limit, the least recently used files are removed, independently
   of the time of writing, kernels and programs together; incomplete files after a day. */
static void test_cache_limit(void **state)
{
    struct home h;
    struct cache_use u;
    struct cache c;
    struct err e = {0};
    const i64 gib = (i64)1 << 30;
    home_open(&h);
    const char *kernels = beneath(&h, "cache/quern/kernels"), *programs = beneath(&h, "cache/quern/programs");
    assert_true(os_mkdirs(kernels, &e) && os_mkdirs(programs, &e));
    sparse_file(kernels, "oldest", gib / 2, 5000);
    sparse_file(programs, "older", gib, 4000);
    sparse_file(kernels, "old", gib / 2, 3000);
    sparse_file(programs, "being-written.1-0.tmp", 10, 3600);
    sparse_file(programs, "left.1-0.tmp", 10, 100000);
    cache_trim();
    /* 10 bytes too many */
    assert_true(cache_look(&u, &h.a, &e) && u.n == 3 && u.bytes == gib * 3 / 2 + 10 && u.limit == 2 * gib);
    assert_false(os_exists(beneath(&h, "cache/quern/kernels/oldest")) || os_exists(beneath(&h, "cache/quern/programs/left.1-0.tmp")));
    os_note_use(beneath(&h, "cache/quern/programs/older"));
    sparse_file(kernels, "new", gib, 0);
    cache_trim();
    assert_true(cache_look(&u, &h.a, &e) && u.n == 2);
    assert_true(os_exists(beneath(&h, "cache/quern/programs/older")) && os_exists(beneath(&h, "cache/quern/kernels/new")));
    assert_true(cache_set_limit(gib, &e) && cache_look(&u, &h.a, &e) && u.n == 1 && u.limit == gib);
    assert_false(cache_set_limit(-1, &e));
    e = (struct err){0};
    assert_true(chmod(kernels, 0700) == 0 && chmod(programs, 0700) == 0 && chmod(beneath(&h, "cache/quern"), 0700) == 0);
    cache_open(&c, "kernels", &h.a, &(struct log){0});
    assert_true(c.folder.n > 0 && cache_clear(&e) && cache_look(&u, &h.a, &e) && u.n == 0);
    assert_true(cache_set_limit(0, &e));
    cache_open(&c, "kernels", &h.a, &(struct log){0});
    assert_int_equal(c.folder.n, 0);
    home_close(&h);
}

static void write_code(const struct cache *c, struct hash key, struct str content) { cache_put(c, key, content); }

static void write_pieces(const struct cache *c, struct hash key, struct str content)
{
    const struct str piece[] = {str_sub(content, 0, content.n / 3), str_sub(content, content.n / 3, content.n)};
    assert_true(cache_write(c, key, ".proof", piece, countof(piece)));
}

/* Writing respects the limit within a small margin, with large and small files. */
static void test_cache_grows(void **state)
{
    static const struct { i64 size; void (*write)(const struct cache *c, struct hash key, struct str content); } way[] = {
        {500, write_code}, {20000, write_code}, {500, write_pieces}, {20000, write_pieces}};
    struct home h;
    struct cache c;
    struct err e = {0};
    const i64 limit = 1 << 20;
    home_open(&h);
    char *code = arena_alloc(&h.a, 20000);
    for (i64 k = 0; k < countof(way); k++) {
        i64 most = 0;
        assert_true(cache_set_limit(limit, &e));
        cache_open(&c, "kernels", &h.a, &(struct log){0});
        assert_int_equal(c.limit, limit);
        for (i64 i = 0; i * way[k].size < 2 * limit; i++) {
            struct cache_use u;
            way[k].write(&c, hash_bytes(&i, sizeof i), (struct str){code, way[k].size});
            if (i % 20) continue;
            assert_true(cache_look(&u, &h.a, &e));
            most = i64_max(most, u.bytes);
        }
        assert_true(most > limit * 3 / 4 && most < limit * 9 / 8);
    }
    home_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_found_again),
        cmocka_unit_test(test_one_program), cmocka_unit_test(test_halved), cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_planted),
        cmocka_unit_test(test_cache_folder),
        cmocka_unit_test(test_seal),
        cmocka_unit_test(test_cache_limit), cmocka_unit_test(test_cache_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
