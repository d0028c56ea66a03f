// SPDX-License-Identifier: Apache-2.0
//
// Artifacts: written files are read again, the same plan yields the same bytes, any safetensors
// reader can list it, broken files are rejected safely, and each invariant of plan_verify is
// detected when violated.
#include "random_plan.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dnx_fixture.h"

struct fixture { struct arena arena; struct plan plan; struct buf bytes; struct err e; };

static void fixture_open(struct fixture *b, u64 seed)
{
    *b = (struct fixture){0};
    random_plan(&b->plan, &b->arena, seed);
    if (!plan_verify(&b->plan, &b->e) || !dnx_write(&b->plan, &b->bytes, &b->e)) fail_msg("seed %d: %s", (int)seed, b->e.msg);
}

static void fixture_close(struct fixture *b)
{
    buf_release(&b->bytes);
    arena_release(&b->arena);
}

static void same_buf(const struct plan *p, const struct plan *q, u32 i)
{
    const struct plan_buf *x = &p->buf.v[i], *y = &q->buf.v[i];
    i64 var[2] = {17, 23}, n, m;
    assert_true(x->kind == y->kind && x->first == y->first && x->last == y->last && x->data_size == y->data_size);
    assert_true(str_eq(x->name, y->name));
    assert_true(sym_eval(&p->sym, x->size, var, &n) && sym_eval(&q->sym, y->size, var, &m) && n == m);
    if (x->kind != PB_CONST) return;
    assert_memory_equal(x->data, y->data, (size_t)x->data_size);
}

static void test_round_trip(void **state)
{
    for (u64 seed = 0; seed < 200; seed++) {
        struct fixture b;
        struct plan q;
        struct buf again = {0};
        fixture_open(&b, seed);
        if (!dnx_read(&q, &b.arena, buf_view(&b.bytes), &b.e)) fail_msg("seed %d: %s", (int)seed, b.e.msg);
        assert_true(q.buf.n == b.plan.buf.n && q.dispatch.n == b.plan.dispatch.n && q.bin.n == b.plan.bin.n);
        for (u32 i = 0; i < q.buf.n; i++) same_buf(&b.plan, &q, i);
        assert_true(str_eq(q.input.v[0].name, b.plan.input.v[0].name));
        assert_true(q.var.v[0].optimised_for == 64 && q.var.v[1].optimised_for == INT64_MIN);
        assert_true(dnx_write(&q, &again, &b.e));
        assert_true(str_eq(buf_view(&again), buf_view(&b.bytes))); /* all of it came back */
        buf_release(&again);
        fixture_close(&b);
    }
}

/* The rules of safetensors, by an independent reader: header length, JSON object, tensors that fill
   the data part without holes, each as long as its type and shape require, metadata of strings
   only. */
static void test_safetensors(void **state)
{
    for (u64 seed = 0; seed < 50; seed++) {
        struct fixture b;
        u64 n = 0;
        fixture_open(&b, seed);
        memcpy(&n, b.bytes.p, 8);
        assert_true(n % 8 == 0 && 8 + n <= (u64)b.bytes.n && b.bytes.p[8] == '{' && (8 + n) % 64 == 0);
        json_t *h = json_loadb(b.bytes.p + 8, n, JSON_REJECT_DUPLICATES, NULL), *t, *v;
        assert_non_null(h);
        const char *name, *key;
        json_int_t covered = 0, end = 0;
        json_object_foreach(h, name, t) {
            if (strcmp(name, "__metadata__") == 0) {
                json_object_foreach(t, key, v) assert_true(json_is_string(v));
                continue;
            }
            json_int_t from = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
            json_int_t to = json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1));
            assert_string_equal(json_string_value(json_object_get(t, "dtype")), "U8");
            assert_int_equal(json_integer_value(json_array_get(json_object_get(t, "shape"), 0)), to - from);
            assert_true(from % 64 == 0 && from <= to);
            covered += to - from;
            end = to > end ? to : end;
        }
        assert_true(covered == end && end == b.bytes.n - 8 - (json_int_t)n);
        json_decref(h);
        fixture_close(&b);
    }
}

static bool reads(const char *p, i64 n)
{
    struct arena a = {0};
    struct plan q;
    struct err e = {0};
    u8 *own = mem_alloc(n); /* of exactly its size: sanitizers detect reads past its end */
    memcpy(own, p, (size_t)n);
    bool ok = dnx_read(&q, &a, (struct str){(const char *)own, n}, &e);
    assert_true(ok || (e.code != ERR_NONE && e.msg[0]));
    mem_free(own);
    arena_release(&a);
    return ok;
}

static void test_broken(void **state)
{
    struct rng r = rng_seed(3);
    u32 n_read = 0;
    for (u64 seed = 0; seed < 3; seed++) {
        struct fixture b;
        fixture_open(&b, seed + 300);
        for (i64 n = 0; n < b.bytes.n; n += 1 + b.bytes.n / 3000) assert_false(reads(b.bytes.p, n) && n < b.bytes.n - 64);
        for (u32 k = 0; k < 1500; k++) {
            struct buf c = {0};
            buf_put(&c, b.bytes.p, b.bytes.n);
            for (i64 f = rng_range(&r, 1, 3); f > 0; f--) {
                char bit = (char)(1 << rng_range(&r, 0, 7));
                c.p[rng_range(&r, 0, c.n - 1)] ^= bit;
            }
            n_read += reads(c.p, c.n);
            buf_release(&c);
        }
        fixture_close(&b);
    }
    assert_true(n_read < 4500 / 2); /* changes of padding, names and times may be undetected; most others are
                                       detected */
}

/* Any change of the plan is detected, including names and times. Files of writers without the hash
   are read. */
static void test_hash(void **state)
{
    static const char *const key[] = {"model", "fingerprint", "explain"};
    for (u64 seed = 0; seed < 20; seed++) {
        struct fixture b;
        struct dnx_fixture x;
        fixture_open(&b, seed);
        dnx_fixture_open(&x, buf_view(&b.bytes));
        json_object_set_new(x.plan, key[seed % countof(key)], json_string("other"));
        for (int k = 0; k < 3; k++) {
            static const enum dnx_hash hash[] = {OLD_HASH, NO_HASH, NEW_HASH};
            struct buf c = {0};
            struct plan q;
            struct err e = {0};
            dnx_fixture_write(&x, hash[k], &c);
            bool ok = dnx_read(&q, &b.arena, buf_view(&c), &e);
            assert_true(ok == (hash[k] != OLD_HASH) && (ok || (e.code == ERR_INPUT && strstr(e.msg, "hash"))));
            buf_release(&c);
        }
        dnx_fixture_close(&x);
        fixture_close(&b);
    }
}

/* The artifact with these facts instead of its own. */
static void with_facts(const struct buf *bytes, const char *facts, struct buf *out)
{
    struct dnx_fixture x;
    dnx_fixture_open(&x, buf_view(bytes));
    json_t *list = json_loads(facts, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(list);
    json_object_set_new(x.plan, "facts", list);
    dnx_fixture_write(&x, NO_HASH, out);
    dnx_fixture_close(&x);
}

/* Accepted facts are also evaluated safely at any sizes. */
static bool facts_are_read(const char *facts)
{
    static const i64 sizes[] = {INT64_MIN, 0, 1, 17, INT64_MAX};
    struct fixture b;
    struct buf c = {0};
    struct plan q;
    fixture_open(&b, 7);
    with_facts(&b.bytes, facts, &c);
    bool ok = dnx_read(&q, &b.arena, buf_view(&c), &b.e);
    assert_true(ok || (b.e.code == ERR_INPUT && b.e.msg[0]));
    for (int i = 0; ok && i < (int)(countof(sizes) * countof(sizes)); i++) {
        i64 var[8] = {sizes[i % (int)countof(sizes)], sizes[i / (int)countof(sizes)]};
        const struct sym_fact *f = sym_fact_broken(&q.sym, var);
        if (strstr(facts, "H//0") && var[0] != INT64_MIN && !f) fail_msg("what has no value holds");
        struct buf text = {0};
        assert_true(q.sym.var.n <= countof(var));
        if (f) sym_fact_explain(&text, &q.sym, f, var);
        buf_release(&text);
    }
    buf_release(&c);
    fixture_close(&b);
    return ok;
}

static void test_facts(void **state)
{
    static const char *const good[] = {
        "[]",
        "[{\"kind\":\"equal\",\"a\":\"H//0\",\"b\":\"H\",\"node\":\"x\"}]",
        "[{\"kind\":\"equal\",\"a\":\"H\",\"b\":17,\"node\":\"x\"}]",
        "[{\"kind\":\"multiple\",\"a\":\"H\",\"b\":\"16\",\"node\":\"Conv 'x'\"}]",
        /* never satisfied: every run is rejected */
        "[{\"kind\":\"multiple\",\"a\":\"H\",\"b\":\"0\",\"node\":\"x\"}]",
        "[{\"kind\":\"multiple\",\"a\":\"H\",\"b\":\"H-17\",\"node\":\"x\"}]",
        "[{\"kind\":\"at_least\",\"a\":\"H*9223372036854775807\",\"b\":\"-9223372036854775807\",\"node\":\"\"}]",
        "[{\"kind\":\"at_most\",\"a\":\"7//H\",\"b\":\"min(H,max(H,2))\",\"node\":\"\"},{\"kind\":\"equal\",\"a\":\"1\",\"b\":\"2\",\"node\":\"\\u0001\\n\"}]",
    };
    static const char *const bad[] = {
        "7", "{}", "[7]", "[[]]", "[{}]", "null", "\"equal\"",
        "[{\"kind\":\"sometimes\",\"a\":\"H\",\"b\":\"1\",\"node\":\"x\"}]",
        "[{\"kind\":\"equal\",\"a\":\"H\",\"node\":\"x\"}]",
        "[{\"kind\":\"equal\",\"a\":\"H\",\"b\":\"Nobody\",\"node\":\"x\"}]",
        "[{\"kind\":\"equal\",\"a\":\"H+\",\"b\":\"H\",\"node\":\"x\"}]",
        "[{\"kind\":\"equal\",\"a\":\"\",\"b\":\"H\",\"node\":\"x\"}]",
        "[{\"kind\":\"equal\",\"a\":\"H\",\"b\":\"H\",\"node\":7}]",
    };
    for (int i = 0; i < (int)countof(good); i++)
        if (!facts_are_read(good[i])) fail_msg("refused: %s", good[i]);
    for (int i = 0; i < (int)countof(bad); i++)
        if (facts_are_read(bad[i])) fail_msg("read: %s", bad[i]);
    struct buf deep = {0};
    buf_z(&deep, "[{\"kind\":\"equal\",\"b\":\"H\",\"node\":\"x\",\"a\":\"");
    for (int i = 0; i < 200000; i++) buf_char(&deep, '(');
    buf_z(&deep, "\"}]");
    assert_false(facts_are_read(deep.p));
    buf_release(&deep);
}

/* variants */

static u32 choose_at(void *user, const struct str *isa, u32 n, struct err *e)
{
    u32 at = *(const u32 *)user;
    assert_true(n == 3 && str_is(isa[0], "x86-64 sse3") && str_is(isa[1], "aarch64") && str_is(isa[2], "vax anything"));
    if (at >= n) err_set(e, ERR_USAGE, "no such variant");
    return at;
}

static void same_plan(const struct plan *p, const struct plan *q)
{
    assert_true(str_eq(p->isa, q->isa) && str_eq(p->model, q->model) && p->buf.n == q->buf.n && p->dispatch.n == q->dispatch.n);
    for (u32 i = 0; i < p->buf.n; i++) same_buf(p, q, i);
}

/* All variants, or the selected one, are read; equal content is stored once. */
static void test_variants(void **state)
{
    for (u64 seed = 0; seed < 40; seed++) {
        struct arena a = {0};
        struct plan v[3], q;
        struct buf out = {0}, alone = {0}, again = {0};
        struct err e = {0};
        for (u32 i = 0; i < 3; i++) {
            random_plan(&v[i], &a, i == 1 ? seed + 1 : seed);
            v[i].isa = str_of((const char *[]){"x86-64 sse3", "aarch64", "vax anything"}[i]);
        }
        assert_true(dnx_write(&v[0], &alone, &e));
        v[0].also = &v[1], v[1].also = &v[2];
        assert_true(dnx_write(&v[0], &out, &e));
        assert_true(dnx_read(&q, &a, buf_view(&out), &e));
        const struct plan *p = &q;
        for (u32 i = 0; i < 3; i++, p = p->also) same_plan(&v[i], p);
        assert_null(p);
        assert_true(dnx_write(&q, &again, &e) && str_eq(buf_view(&again), buf_view(&out)));
        for (u32 i = 0; i < 4; i++) {
            bool ok = dnx_read_variant(&q, &a, buf_view(&out), choose_at, &i, &e);
            assert_true(ok == (i < 3));
            if (!ok) break;
            same_plan(&v[i], &q);
            assert_null(q.also);
        }
        e = (struct err){0};
        u32 n_own = 0;
        for (u32 i = 0; i < v[1].buf.n; i++) n_own += v[1].buf.v[i].kind == PB_CONST;
        u32 n_const = 0, n_alone = 0; /* tensors */
        for (i64 i = 0; i + 9 < out.n; i++) n_const += !memcmp(out.p + i, "\"const.", 7) && memcmp(out.p + i - 1, "\\", 1);
        for (i64 i = 0; i + 9 < alone.n; i++) n_alone += !memcmp(alone.p + i, "\"const.", 7) && memcmp(alone.p + i - 1, "\\", 1);
        assert_true(n_const <= n_alone + n_own); /* the third has none of its own */
        buf_release(&out), buf_release(&alone), buf_release(&again);
        arena_release(&a);
    }
}

/* With other variants in the header. */
static bool variants_are_read(const char *change)
{
    struct fixture b;
    struct buf c = {0};
    struct plan q;
    struct dnx_fixture f;
    fixture_open(&b, 7);
    dnx_fixture_open(&f, buf_view(&b.bytes));
    json_t *list = json_loads(change, JSON_DECODE_ANY, NULL), *x;
    assert_non_null(list);
    size_t i;
    json_array_foreach(list, i, x) if (json_is_true(x)) json_array_set_new(list, i, json_deep_copy(f.plan));
    json_object_set_new(f.plan, "variants", list);
    dnx_fixture_write(&f, NEW_HASH, &c);
    dnx_fixture_close(&f);
    bool ok = dnx_read(&q, &b.arena, buf_view(&c), &b.e);
    assert_true(ok || (b.e.code == ERR_INPUT && b.e.msg[0]));
    buf_release(&c);
    fixture_close(&b);
    return ok;
}

static void test_broken_variants(void **state)
{
    static const char *const bad[] = {"7", "{}", "[]", "null", "[7]", "[{}]", "[[]]", "[true, 7]", "[true, {\"isa\": 7}]", "\"\"", "[{\"isa\": []}]"};
    assert_true(variants_are_read("[true]") && variants_are_read("[true, true]"));
    for (i64 i = 0; i < countof(bad); i++)
        if (variants_are_read(bad[i])) fail_msg("read: %s", bad[i]);
}

static bool has_key(const struct buf *bytes, const char *key)
{
    struct dnx_fixture x;
    dnx_fixture_open(&x, buf_view(bytes));
    char *text = json_dumps(x.plan, JSON_COMPACT);
    bool has = strstr(text, key) != NULL;
    free(text);
    dnx_fixture_close(&x);
    return has;
}

/* Files of earlier versions, with the keys of their time, are written again as the current version. */
static void test_earlier_versions(void **state)
{
    static const struct { const char *path, *key; } file[] = {
        {"test/corpus/dnx/plain.dnx", "\"version\":6"}, {"test/corpus/dnx/facts.dnx", "\"node\":"}, {"test/corpus/dnx/loop.dnx", "\"axes\":"},
        {"test/corpus/dnx/loop.dnx", "\"trip_count\":"}};
    for (i64 i = 0; i < countof(file); i++) {
        struct arena a = {0};
        struct plan p, q;
        struct err e = {0};
        struct str old;
        struct buf b = {0}, again = {0};
        assert_true(os_read(&a, file[i].path, 1 << 20, &old, &e));
        if (!dnx_read(&p, &a, old, &e) || !dnx_write(&p, &b, &e)) fail_msg("%s: %s", file[i].path, e.msg);
        assert_true(has_key(&b, file[i].key));
        assert_true(dnx_read(&q, &a, buf_view(&b), &e) && dnx_write(&q, &again, &e));
        assert_true(str_eq(buf_view(&again), buf_view(&b)));
        buf_release(&b);
        buf_release(&again);
        arena_release(&a);
    }
}

/* invariants, each violated once */

/* A value is a parameter. */
static void test_values(void **state)
{
    static const char *const list[] = {"[]", "[0]", "[2, 0, 0]", "[3]", "[-1]", "[\"0\"]", "{}", "7", "[4294967296]"};
    struct fixture b;
    u64 seed = 0;
    for (fixture_open(&b, seed); b.plan.dispatch.v[0].n_param != 3; fixture_open(&b, ++seed)) fixture_close(&b);
    for (i64 k = 0; k < countof(list); k++) {
        struct dnx_fixture x;
        struct buf c = {0};
        struct plan q;
        struct err e = {0};
        dnx_fixture_open(&x, buf_view(&b.bytes));
        json_object_set_new(json_array_get(json_object_get(x.plan, "dispatches"), 0), "values", json_loads(list[k], JSON_DECODE_ANY, NULL));
        dnx_fixture_write(&x, NEW_HASH, &c);
        bool ok = dnx_read(&q, &b.arena, buf_view(&c), &e);
        if (ok != (k < 3)) fail_msg("%s: %s", list[k], e.msg);
        if (ok) assert_true(q.dispatch.v[0].is_value[0] == (k > 0) && !q.dispatch.v[0].is_value[1] && q.dispatch.v[0].is_value[2] == (k == 2));
        buf_release(&c);
        dnx_fixture_close(&x);
    }
    fixture_close(&b);
}

static void v_bin(struct plan *p) { p->dispatch.v[0].bin = p->bin.n; }
static void v_buf(struct plan *p) { p->dispatch.v[0].buf[0] = p->buf.n; }
static void v_grid(struct plan *p) { p->dispatch.v[0].n_grid = 0; }
static void v_entry(struct plan *p) { p->dispatch.v[0].entry.n = 0; }
static void v_extent(struct plan *p) { p->dispatch.v[0].grid[0].extent[2] = 0; }
static void v_work(struct plan *p) { p->dispatch.v[0].work = p->sym.node.n; }
static void v_size(struct plan *p) { p->buf.v[0].size = 0; }
static void v_life(struct plan *p) { p->buf.v[0].first = 1, p->buf.v[0].last = 0; }
static void v_late(struct plan *p) { p->buf.v[0].last = p->dispatch.n; }
static void v_io_kind(struct plan *p) { p->buf.v[p->input.v[0].buf].kind = PB_TEMP; }
static void v_io_buf(struct plan *p) { p->output.v[0].buf = p->buf.n; }
static void v_io_dim(struct plan *p) { p->input.v[0].dim[1] = 0; }
static void v_io_rank(struct plan *p) { p->input.v[0].rank = MAX_RANK + 1; }
static void v_io_type(struct plan *p) { p->input.v[0].dtype = DT_NONE; }
static void v_var(struct plan *p) { sym_var(&p->sym, S("free")), (arr_push(p->arena, &p->var))->optimised_for = 1; }
static void v_vars(struct plan *p) { p->var.n--; }
static void v_unbound(struct plan *p) { p->input.n = 0; }
static void v_const(struct plan *p)
{
    struct plan_buf b = {.kind = PB_CONST, .name = S("c"), .size = sym_const(&p->sym, 8), .data = "1234", .data_size = 4};
    *(arr_push(p->arena, &p->buf)) = b;
}
static void v_twice(struct plan *p)
{
    struct plan_io io = p->input.v[0];
    *(arr_push(p->arena, &p->input)) = io;
}
static void v_orphan(struct plan *p)
{
    struct plan_buf b = p->buf.v[p->input.v[0].buf];
    *(arr_push(p->arena, &p->buf)) = b;
}
static void v_outside(struct plan *p)
{
    struct plan_buf b = {.kind = PB_TEMP, .name = S("t"), .size = sym_const(&p->sym, 8), .first = p->dispatch.n - 1, .last = p->dispatch.n - 1};
    *(arr_push(p->arena, &p->buf)) = b;
    p->dispatch.v[0].buf[0] = p->buf.n - 1;
}

static void test_verify(void **state)
{
    static const struct { const char *name; void (*violate)(struct plan *); } all[] = {
        {"bin", v_bin}, {"buf", v_buf}, {"grid", v_grid}, {"entry", v_entry}, {"extent", v_extent}, {"work", v_work},
        {"size", v_size}, {"life", v_life}, {"late", v_late}, {"io kind", v_io_kind}, {"io buf", v_io_buf}, {"io dim", v_io_dim},
        {"io rank", v_io_rank}, {"io type", v_io_type}, {"var", v_var}, {"vars", v_vars}, {"unbound", v_unbound},
        {"const", v_const}, {"twice", v_twice}, {"orphan", v_orphan}, {"outside", v_outside},
    };
    for (i64 i = 0; i < countof(all); i++) {
        struct fixture b;
        u64 seed = 0;
        for (fixture_open(&b, seed); b.plan.dispatch.n < 2; fixture_open(&b, ++seed)) fixture_close(&b);
        all[i].violate(&b.plan);
        if (plan_verify(&b.plan, &b.e)) fail_msg("%s was not noticed", all[i].name);
        assert_true(b.e.code == ERR_INPUT && b.e.msg[0]);
        fixture_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_hash), cmocka_unit_test(test_earlier_versions), cmocka_unit_test(test_facts), cmocka_unit_test(test_verify),
        cmocka_unit_test(test_values), cmocka_unit_test(test_variants), cmocka_unit_test(test_broken_variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
