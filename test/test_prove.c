// SPDX-License-Identifier: Apache-2.0
//
// Exact verification of an artifact's kernels: cached verdicts are found, damaged ones are not; the
// program has the same bytes whichever process computes them; a wrong kernel is replaced by the
// default schedule, and its verdict is not cached. Kernels that differ only in sizes and constants
// are verified once, unless that one is wrong.
#include "api/api_model.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char net[] = "graph {\n"
                          "  input %x: f32[1,8,H,W]\n"
                          "  const %c: f32[1,8,1,1] = [0.5, 2, -1, 3, 4, 5, 6, 7]\n"
                          "  %p: f32[1,8,H//2,W//2] = MaxPool(%x) {kernel_shape=[2,2], strides=[2,2], pads=[0,0,0,0], ceil_mode=0, dilations=[1,1]}\n"
                          "  %y: f32[1,8,1,1] = ReduceMean(%p) {axes=[2,3], keepdims=1, noop_with_empty_axes=0}\n"
                          "  %z: f32[1,8,1,1] = Mul(%y, %c)\n"
                          "  %s: f32[1,8,1,1] = Softmax(%z) {axis=1}\n"
                          "  output %s\n"
                          "}\n";

/* Three kernels of one structure; the third one of another form: 5 is a size that no reduction changes. */
static const char alike[] = "graph {\n"
                            "  input %x: f32[64,H]\n"
                            "  input %y: f32[48,H]\n"
                            "  input %z: f32[5,H]\n"
                            "  const %c: f32[] = [0.25]\n"
                            "  const %d: f32[] = [0.125]\n"
                            "  %p: f32[64,H] = Mul(%x, %c)\n"
                            "  %q: f32[48,H] = Mul(%y, %d)\n"
                            "  %r: f32[5,H] = Mul(%z, %d)\n"
                            "  output %p\n"
                            "  output %q\n"
                            "  output %r\n"
                            "}\n";

struct fixture {
    struct arena a;
    quern *q;
    quern_model *m;
    struct api_target t;
    struct plan_choice x;
    struct cache cache;
    struct log log;
    struct buf said;      /* warnings */
    struct err e;
};

static void hear(void *user, int level, struct str text)
{
    struct fixture *b = user;
    if (level == 1) buf_str(&b->said, text);
}

static void fixture_open(struct fixture *b, const char *text)
{
    struct str dir;
    memset(b, 0, sizeof *b);
    assert_true(os_temp_dir(&b->a, &dir, &b->e));
    setenv("XDG_CACHE_HOME", dir.p, 1);
    setenv("XDG_CONFIG_HOME", dir.p, 1);
    b->q = quern_open(NULL);
    b->log = (struct log){.line = hear, .user = b, .level = 2};
    assert_int_equal(quern_model_read(b->q, text, strlen(text), "net", NULL, &b->m), QUERN_OK);
    assert_true(api_target_open(&b->t, "cpu", 1, NULL, &b->e));
    if (!api_choose(&b->x, b->m, NULL, &b->t, (struct cover_opts){.no_fusion = true}, &b->a, &b->e)) fail_msg("%s", b->e.msg);
    cache_open(&b->cache, "kernels", &b->a, &b->log);
    assert_true(b->cache.folder.n > 0);
}

static void fixture_close(struct fixture *b)
{
    os_remove_tree(getenv("XDG_CACHE_HOME"));
    buf_release(&b->said);
    api_target_close(&b->t);
    quern_model_close(b->m);
    quern_close(b->q);
    arena_release(&b->a);
}

static struct task_cost *cost_at(struct fixture *b, u32 i) { return &b->x.s.cost[b->x.c.region.v[b->x.s.choice.v[i].region].task]; }

/* changed, and the verdicts in the order of the program. */
static bool prove(struct fixture *b, struct buf *out)
{
    const struct prove_env env = {.caps = &b->t.caps, .var = b->m->model->var, .cache = &b->cache, .log = &b->log};
    struct prover *p = prove_start(&env, &b->x, &b->a);
    bool changed;
    if (!prove_finish(p, &changed, &b->e)) fail_msg("%s", b->e.msg);
    prove_end(p);
    for (u32 i = 0; i < b->x.s.choice.n; i++) buf_printf(out, "%.*s\n", STR_ARG(cost_at(b, i)->proof));
    return changed;
}

static struct os_entry *proofs(struct fixture *b, u32 *n)
{
    struct os_entry *all, *some;
    i64 n_all;
    *n = 0;
    assert_true(os_list_by_use(&b->a, b->cache.folder.p, &all, &n_all, &b->e));
    some = arena_array(&b->a, struct os_entry, n_all + 1);
    for (i64 i = 0; i < n_all; i++)
        if (str_ends(all[i].name, S(".proof"))) some[(*n)++] = all[i];
    return some;
}

/* As hash_hex writes it. */
static struct hash hash_of_hex(struct str s)
{
    struct hash h = {0};
    char high[17] = {0}, low[17] = {0};
    memcpy(high, s.p, 16), memcpy(low, s.p + 16, 16);
    h.hi = strtoull(high, NULL, 16), h.lo = strtoull(low, NULL, 16);
    return h;
}

/* Replaces the text of one cached verdict, with a valid checksum. */
static void plant(struct fixture *b, const struct os_entry *f, char from, char to)
{
    struct os_file map;
    struct str content, piece;
    struct hash key;
    struct buf text = {0};
    key = hash_of_hex(f->name);
    assert_true(cache_map(&b->cache, key, ".proof", &map, &content));
    for (i64 i = 0; i < content.n; i++) buf_char(&text, content.p[i] == from ? to : content.p[i]);
    os_unmap(&map);
    piece = buf_view(&text);
    assert_true(cache_write(&b->cache, key, ".proof", &piece, 1));
    buf_release(&text);
}

static void test_kept(void **state)
{
    struct fixture b;
    struct buf first = {0}, again = {0}, planted = {0}, damaged = {0};
    u32 n, n_again;
    fixture_open(&b, net);
    assert_false(prove(&b, &first));
    struct os_entry *f = proofs(&b, &n);
    assert_int_equal(n, b.x.s.choice.n);
    assert_false(strstr(first.p, "\"verdict\":\"DIFFERS\"") || !strstr(first.p, "\"verdict\":\"exact\",\"sizes\":\"1x8x1x1\""));
    assert_false(prove(&b, &again));
    assert_string_equal(again.p, first.p);
    for (u32 i = 0; i < n; i++) plant(&b, &f[i], 'x', '*'); /* verdicts come from the cache and are not
                                                               recomputed */
    assert_false(prove(&b, &planted));
    assert_non_null(strstr(planted.p, "\"verdict\":\"exact\",\"sizes\":\"1*8*1*1\""));
    for (u32 i = 0; i < n; i++) { /* but only if this user wrote them */
        struct str path = str_fmt(&b.a, "%.*s/%.*s", STR_ARG(b.cache.folder), STR_ARG(f[i].name)), all;
        assert_true(os_read(&b.a, path.p, 1 << 16, &all, &b.e));
        for (i64 k = 0; k < all.n; k++)
            if (all.p[k] == '*') ((char *)(uintptr_t)all.p)[k] = '+';
        assert_true(os_write(path.p, all.p, all.n, &b.e));
    }
    assert_false(prove(&b, &damaged));
    assert_string_equal(damaged.p, first.p);
    proofs(&b, &n_again);
    assert_int_equal(n_again, n);
    buf_release(&first), buf_release(&again), buf_release(&planted), buf_release(&damaged);
    fixture_close(&b);
}

static void emit_nothing(struct emit *m, const struct task *t, const struct caps *c, const struct sched *s) { emit_args(m); }

static void test_wrong(void **state)
{
    struct fixture b;
    struct buf right = {0}, wrong = {0};
    u32 n_before, n_behind;
    fixture_open(&b, net);
    assert_false(prove(&b, &right));
    proofs(&b, &n_before);
    struct candidate *c = &cost_at(&b, 1)->best;
    const struct gen *real = c->gen;
    struct gen bad = *real;
    bad.name = "bad", bad.emit = emit_nothing;
    c->gen = &bad;
    assert_true(prove(&b, &wrong));
    assert_ptr_equal(c->gen, real);
    assert_string_equal(wrong.p, right.p);
    assert_non_null(strstr(b.said.p, "does not compute its task and is replaced: bad."));
    proofs(&b, &n_behind);
    assert_int_equal(n_behind, n_before);
    buf_release(&right), buf_release(&wrong);
    fixture_close(&b);
}

static struct str verdict_at(struct fixture *b, u32 i) { return cost_at(b, i)->proof; }

static void test_alike(void **state)
{
    struct fixture b;
    struct buf right = {0}, again = {0}, wrong = {0};
    u32 n;
    fixture_open(&b, alike);
    assert_int_equal(b.x.s.choice.n, 3);
    assert_false(prove(&b, &right));
    proofs(&b, &n);
    assert_int_equal(n, 2);
    assert_true(str_eq(verdict_at(&b, 0), verdict_at(&b, 1)));
    assert_false(str_eq(verdict_at(&b, 0), verdict_at(&b, 2)));
    assert_false(prove(&b, &again));
    assert_string_equal(again.p, right.p);
    struct candidate *c[] = {&cost_at(&b, 0)->best, &cost_at(&b, 1)->best};
    const struct gen *real = c[0]->gen;
    struct gen bad = *real;
    bad.name = "bad", bad.emit = emit_nothing;
    c[0]->gen = c[1]->gen = &bad;
    assert_true(prove(&b, &wrong));
    assert_ptr_equal(c[0]->gen, real);
    assert_ptr_equal(c[1]->gen, real); /* not by the verdict of the first one's replacement */
    buf_release(&right), buf_release(&again), buf_release(&wrong);
    fixture_close(&b);
}

static void compile(struct fixture *b, const char *path, struct str *bytes)
{
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    quern_program *p = NULL;
    o.device = "cpu", o.threads = 1, o.prove = 1;
    assert_int_equal(quern_compile(b->m, NULL, &o, &p), QUERN_OK);
    assert_int_equal(quern_program_save(p, path), QUERN_OK);
    quern_program_close(p);
    assert_true(os_read(&b->a, path, 1 << 26, bytes, &b->e));
}

static void test_bytes(void **state)
{
    struct fixture b;
    struct str one, two;
    fixture_open(&b, net);
    const char *path = str_fmt(&b.a, "%s/net.dnx", getenv("XDG_CACHE_HOME")).p;
    compile(&b, path, &one);
    compile(&b, path, &two);
    assert_true(str_eq(one, two));
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_alike),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
