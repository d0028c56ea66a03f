// SPDX-License-Identifier: Apache-2.0
//
// The runtime: memory of random plans never overlaps while both buffers live and takes at most as
// much as without sharing; wrong inputs are errors that name the input; sizes change between runs;
// empty images; the devices null and interp.
#include "random_plan.h"
#include "rt/rt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "seeds.h"

static void test_memory(void **state)
{
    u64 shared = 0, unshared = 0;
    for (u64 seed = 0; seed < 300; seed++) {
        struct arena a = {0};
        struct plan p;
        struct rt_memory m;
        struct err e = {0};
        i64 var[2] = {(i64)(seed % 7) * 13, 60}, size[64];
        random_plan(&p, &a, seed);
        assert_true(rt_plan_memory(&p, var, &a, &m, &e));
        assert_true(m.total <= m.unshared);
        for (u32 i = 0; i < p.buf.n; i++) {
            if (p.buf.v[i].kind != PB_TEMP) continue;
            assert_true(sym_eval(&p.sym, p.buf.v[i].size, var, &size[i]));
            assert_true(m.offset[i] % 64 == 0 && m.offset[i] >= 0 && m.offset[i] + size[i] <= m.total);
            for (u32 j = 0; j < i; j++) {
                const struct plan_buf *x = &p.buf.v[i], *y = &p.buf.v[j];
                if (y->kind != PB_TEMP || x->first > y->last || y->first > x->last) continue;
                assert_true(m.offset[i] + size[i] <= m.offset[j] || m.offset[j] + size[j] <= m.offset[i]);
            }
        }
        shared += (u64)m.total, unshared += (u64)m.unshared;
        arena_release(&a);
    }
    assert_true(shared < unshared * 9 / 10);
}

/* Buffers as chains, skip connections and wide graphs have them. */
static void many_buffers(struct plan *p, struct rng *r, u32 n)
{
    *p = (struct plan){.arena = p->arena};
    symtab_init(&p->sym, p->arena);
    u32 n_dispatches = (u32)rng_range(r, 1, n), most = (u32)rng_range(r, 1, n_dispatches);
    for (u32 i = 0; i < n_dispatches; i++) *(arr_push(p->arena, &p->dispatch)) = (struct plan_dispatch){0};
    for (u32 i = 0; i < n; i++) {
        struct plan_buf b = {.kind = PB_TEMP, .name = S("b"), .first = (u32)rng_range(r, 0, n_dispatches - 1)};
        b.last = (u32)i64_min(n_dispatches - 1, b.first + (i % 8 ? rng_range(r, 0, 2) : rng_range(r, 0, most)));
        b.size = sym_const(&p->sym, rng_range(r, 0, 30) * (rng_range(r, 0, 1) ? 64 : 1));
        *(arr_push(p->arena, &p->buf)) = b;
    }
}

/* By definition: larger buffers first, then by index, each at the lowest offset without overlap. */
static void place_one_by_one(const struct plan *p, i64 *offset)
{
    bool placed[300] = {0};
    i64 size[300], at;
    for (u32 i = 0; i < p->buf.n; i++) assert_true(sym_eval(&p->sym, p->buf.v[i].size, NULL, &size[i])), size[i] = round_up(size[i], DEV_ALIGN);
    for (u32 k = 0; k < p->buf.n; k++) {
        u32 best = UINT32_MAX;
        for (u32 i = 0; i < p->buf.n; i++)
            if (!placed[i] && (best == UINT32_MAX || size[i] > size[best])) best = i;
        const struct plan_buf *x = &p->buf.v[best];
        bool fits = false;
        for (at = 0; !fits; at += DEV_ALIGN) {
            fits = true;
            for (u32 j = 0; j < p->buf.n && fits; j++)
                fits = !placed[j] || p->buf.v[j].first > x->last || x->first > p->buf.v[j].last || offset[j] + size[j] <= at ||
                       offset[j] >= at + size[best];
        }
        offset[best] = at - DEV_ALIGN, placed[best] = true;
    }
}

static void test_memory_places(void **state)
{
    for (u64 seed = first_seed(0, 100); seed < last_seed(0, 100); seed++) {
        struct arena a = {0};
        struct plan p = {.arena = &a};
        struct rt_memory m;
        struct err e = {0};
        struct rng r = rng_seed(seed);
        i64 want[300];
        many_buffers(&p, &r, (u32)rng_range(&r, 1, seed % 10 ? 60 : 300));
        assert_true(rt_plan_memory(&p, NULL, &a, &m, &e));
        place_one_by_one(&p, want);
        for (u32 i = 0; i < p.buf.n; i++) assert_int_equal(m.offset[i], want[i]);
        arena_release(&a);
    }
}

/* So many that a quadratic number of steps would show. */
static void test_memory_many(void **state)
{
    struct arena a = {0};
    struct plan p = {.arena = &a};
    struct rt_memory m;
    struct err e = {0};
    struct rng r = rng_seed(1);
    many_buffers(&p, &r, (u32)seeds_env("BUFFERS", 20000));
    double start = os_now();
    assert_true(rt_plan_memory(&p, NULL, &a, &m, &e));
    if (getenv("VERBOSE")) fprintf(stderr, "%u buffers: %.1f ms, %.2f of what they take unshared\n", p.buf.n, (os_now() - start) * 1e3, (double)m.total / (double)m.unshared);
    for (u32 i = 0; i < p.buf.n; i++) { /* against some of the others */
        u32 j = (u32)rng_range(&r, 0, p.buf.n - 1);
        const struct plan_buf *x = &p.buf.v[i], *y = &p.buf.v[j];
        i64 nx, ny;
        assert_true(sym_eval(&p.sym, x->size, NULL, &nx) && sym_eval(&p.sym, y->size, NULL, &ny) && m.offset[i] + nx <= m.total);
        if (i == j || !nx || !ny || x->first > y->last || y->first > x->last) continue;
        assert_true(m.offset[i] + nx <= m.offset[j] || m.offset[j] + ny <= m.offset[i]);
    }
    arena_release(&a);
}

static void test_memory_limits(void **state)
{
    struct arena a = {0};
    struct plan p;
    struct rt_memory m;
    u32 refused = 0;
    for (u64 seed = 0; seed < 100; seed++) {
        struct err e = {0};
        random_plan(&p, &a, seed);
        refused += !rt_plan_memory(&p, (i64[]){INT64_C(1) << 40, INT64_C(1) << 40}, &a, &m, &e);
        assert_true(refused == 0 || e.code == ERR_NONE || e.msg[0]);
        e = (struct err){0};
        rt_plan_memory(&p, (i64[]){-5, INT64_MIN}, &a, &m, &e);
    }
    assert_true(refused > 10);
    arena_release(&a);
}

struct fixture { struct arena arena; struct plan p; struct dev *dev; struct rt_program *rt; struct err e; };

/* A random plan with two sizes, on a device. */
static void program(struct fixture *b, const char *driver)
{
    struct plan *p = &b->p;
    *b = (struct fixture){0};
    random_plan(p, &b->arena, 11);
    for (u32 i = 0; i < p->bin.n; i++) p->bin.v[i].lang = str_of(dev_find(str_of(driver))->lang);
    struct buf isa = {0};
    isa_print_all(&isa, isa_here());
    p->isa = str_dup(&b->arena, buf_view(&isa));
    buf_release(&isa);
    b->dev = dev_find(str_of(driver))->open(&(struct dev_opts){0}, &b->e);
    b->rt = rt_load(p, b->dev, &b->e);
}

static void done(struct fixture *b)
{
    rt_unload(b->rt);
    b->dev->driver->close(b->dev);
    arena_release(&b->arena);
}

static bool run(struct fixture *b, enum dtype t, u32 rank, i64 h, i64 w, struct tensor *out)
{
    struct tensor in = {.dtype = t, .rank = rank, .dim = {h, w}};
    i64 bytes;
    b->e = (struct err){0};
    *out = (struct tensor){0};
    if (!tensor_size_ok(t, rank, in.dim, &bytes)) bytes = 0;
    in.data = arena_alloc(&b->arena, i64_min(bytes, 1 << 20) + 1);
    return rt_run(b->rt, &in, out, &b->arena, &b->e);
}

static void test_inputs(void **state)
{
    struct fixture b;
    struct tensor out;
    program(&b, "null");
    assert_non_null(b.rt);
    assert_true(run(&b, DT_F32, 2, 50, 60, &out));
    assert_true(out.rank == 2 && out.dim[0] == 50 && out.dim[1] == 60 && out.dtype == DT_F32 && out.data);
    i64 used = rt_memory_used(b.rt);
    assert_false(run(&b, DT_F16, 2, 50, 60, &out));
    assert_true(strstr(b.e.msg, "f16") && strstr(b.e.msg, "f32"));
    assert_false(run(&b, DT_F32, 3, 50, 60, &out));
    assert_true(strstr(b.e.msg, "rank 3") != NULL);
    assert_false(run(&b, DT_F32, 2, -1, 60, &out));
    assert_false(run(&b, DT_F32, 2, INT64_MAX / 2, 60, &out));
    assert_true(run(&b, DT_F32, 2, 100, 70, &out) && rt_memory_used(b.rt) >= used); /* larger */
    assert_true(run(&b, DT_F32, 2, 1, 1, &out) && out.dim[0] == 1);                 /* smaller */
    assert_true(run(&b, DT_F32, 2, 50, 60, &out) && rt_memory_used(b.rt) == used);
    assert_true(run(&b, DT_F32, 2, 0, 60, &out) && out.dim[0] == 0);                /* no pixels */
    rt_profile(b.rt, true);
    assert_true(run(&b, DT_F32, 2, 9, 9, &out));
    assert_true(rt_profile_times(b.rt).n == b.p.dispatch.n);
    done(&b);
}

/* Grids beyond the bounds of their buffers: an error that names the kernel, before anything is
   launched. Sizes up to the bounds run. */
static void test_grids(void **state)
{
    static const i64 grid[][3] = {
        {(i64)1 << 40, 1, 1}, {1, (i64)1 << 31, 1}, {65536, 65536, 65536}, {INT64_MAX, INT64_MAX, 1}, {1, 1, INT64_MAX}, {1 << 20, 1, 1}, {-1, 1, 1},
        {65536, 1, 1}, {0, INT64_MAX, INT64_MAX}, {50, 60, 4}, /* from here on good */
    };
    for (i64 k = 0; k < countof(grid); k++) {
        struct fixture b;
        struct tensor out;
        bool is_good = k >= countof(grid) - 3;
        program(&b, "null");
        for (u32 i = 0; i < b.p.dispatch.n; i++)
            for (int d = 0; d < 3; d++) b.p.dispatch.v[i].grid->extent[d] = sym_const(&b.p.sym, grid[k][d]);
        if (run(&b, DT_F32, 2, 50, 60, &out) != is_good) fail_msg("grid %d: %s", (int)k, b.e.msg);
        if (!is_good) assert_non_null(strstr(b.e.msg, "kernel 'k'"));
        done(&b);
    }
}

/* Likewise sizes in parameters that the compiler did not mark as values. Files without marks get
   looser bounds. */
static void test_params(void **state)
{
    static const struct { i64 x; bool runs, runs_unmarked; } t[] = {
        {(i64)1 << 40, false, false}, {INT64_MAX, false, false}, {-((i64)1 << 40), false, false}, {INT64_MIN + 1, false, false},
        {(i64)1 << 29, false, true}, {-((i64)1 << 29), false, true}, {1 << 20, true, true}, {-(1 << 20), true, true}, {64 * 3000, true, true}, {0, true, true},
    };
    enum { MARKED, UNMARKED, OLD, N_WAYS };
    for (i64 k = 0; k < countof(t) * N_WAYS; k++) {
        struct fixture b;
        struct tensor out;
        i64 x = t[k / N_WAYS].x, way = k % N_WAYS;
        bool runs = way == MARKED || (way == OLD ? t[k / N_WAYS].runs_unmarked : t[k / N_WAYS].runs);
        program(&b, "null");
        for (u32 i = 0; i < b.p.dispatch.n; i++) {
            struct plan_dispatch *d = &b.p.dispatch.v[i];
            if (!d->n_param) continue;
            d->is_value = way == OLD ? NULL : arena_array(&b.arena, bool, d->n_param);
            for (u32 v = 0; v < d->n_param && way == MARKED; v++) d->is_value[v] = true;
            d->param[d->n_param - 1] = sym_const(&b.p.sym, x);
            for (int v = 0; v < 3; v++) d->grid->extent[v] = sym_const(&b.p.sym, 1);
        }
        if (run(&b, DT_F32, 2, 50, 60, &out) != runs) fail_msg("%lld, way %d: %s", (long long)x, (int)way, b.e.msg);
        if (!runs) assert_true(strstr(b.e.msg, "kernel 'k'") && strstr(b.e.msg, "parameter"));
        done(&b);
    }
}

/* Code that is none: refused when the program is loaded, by the device that would run it. */
static void test_bad_code(void **state)
{
    static const char *const driver[] = {"interp", "cpu"};
    for (i64 i = 0; i < countof(driver); i++) {
        struct fixture b;
        program(&b, driver[i]);
        assert_null(b.rt);
        assert_true(b.e.code != ERR_NONE && strstr(b.e.msg, "kernel 'k'"));
        done(&b);
    }
}

/* Code for a processor with more extensions than this one is not loaded, nor is code without a list
   of extensions. */
static void test_processor(void **state)
{
    static const struct { const char *isa, *says; } bad[] = {{"x86-64 avx11", "'avx11'"}, {"aarch64 sve9", "'sve9'"}, {"vax", "'vax'"}, {"", "does not say"}};
    struct arena a = {0};
    struct plan p;
    struct err e = {0};
    random_plan(&p, &a, 4); /* language c */
    struct dev *d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = 1}, &e), *none = dev_find(S("null"))->open(&(struct dev_opts){0}, &e);
    for (i64 i = 0; i < countof(bad); i++) {
        bool is_ours = str_starts(str_of(bad[i].isa), isa_here().family == ISA_X86_64 ? S("x86") : S("aarch64"));
        p.isa = str_of(bad[i].isa);
        e = (struct err){0};
        assert_null(rt_load(&p, d, &e));
        assert_int_equal(e.code, ERR_UNSUPPORTED);
        if (i > 1 || is_ours) assert_non_null(strstr(e.msg, bad[i].says));
        assert_non_null(strstr(e.msg, "compile the network"));
        struct rt_program *r = rt_load(&p, none, &e); /* it runs nothing */
        assert_non_null(r);
        rt_unload(r);
    }
    d->driver->close(d);
    none->driver->close(none);
    arena_release(&a);
}

static void test_wrong_device(void **state)
{
    struct arena a = {0};
    struct plan p;
    struct err e = {0};
    random_plan(&p, &a, 4); /* language c */
    struct dev *d = dev_find(S("interp"))->open(&(struct dev_opts){0}, &e);
    assert_null(rt_load(&p, d, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    d->driver->close(d);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), cmocka_unit_test(test_memory_places), cmocka_unit_test(test_memory_many),
        cmocka_unit_test(test_memory_limits), cmocka_unit_test(test_inputs), cmocka_unit_test(test_grids), cmocka_unit_test(test_params),
        cmocka_unit_test(test_bad_code), cmocka_unit_test(test_processor), cmocka_unit_test(test_wrong_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
