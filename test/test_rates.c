// SPDX-License-Identifier: Apache-2.0
//
// Rates of devices: steps, text, assumptions for described targets, storage; kernels of the microbenchmarks, which the interpreter
// runs and which must do as many operations, and touch as many elements, as is divided by their time. No test depends on time.
#include "gen/gen.h"
#include "gen/nest.h"
#include "seeds.h"
#include "tune/rates.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct { const char *driver, *arch; } targets[] = {
    {"cpu", "x86-64-v2"}, {"cpu", "x86-64-v3"}, {"cpu", "x86-64-v4+avx512vnni+avx512bf16"}, {"cpu", "aarch64+dotprod"}, {"cpu", "riscv64"},
    {"cpu", "x86-64-v4+amx-bf16+amx-int8"},
    {"cuda", "sm_70"},    {"cuda", "sm_80"},    {"cuda", "sm_90"},                          {"hip", "gfx90a"},          {"hip", "gfx942"}};

static struct caps target(i64 i)
{
    struct caps c;
    if (!dev_target(&c, targets[i].driver, str_of(targets[i].arch))) fail_msg("%s", targets[i].arch);
    return c;
}

/* All numbers of r, in the order of memory. */
enum { N_NUMBERS = sizeof(struct rates) / sizeof(double) };
static double *numbers(struct rates *r) { return (double *)(void *)r; }

static struct rates random_rates(struct rng *g)
{
    struct rates r = {.launch = 0};
    for (i64 i = 0; i < N_NUMBERS; i++)
        if (rng_range(g, 0, 3)) numbers(&r)[i] = pow(10, (double)rng_range(g, -9000, 15000) / 1000);
    return r;
}

static void test_round(void **state)
{
    struct rng g = {1};
    assert_true(rates_round(0) == 0 && rates_round(-1) == 0 && rates_round(NAN) == 0 && rates_round(INFINITY) == 0);
    assert_true(rates_round(1) == 1 && rates_round(1e9) == 1e9 && rates_round(1.02) == 1 && rates_round(1.04) == 1.05);
    for (u32 i = 0; i < 2000; i++) {
        double x = pow(10, (double)rng_range(&g, -12000, 18000) / 1000), y = rates_round(x);
        assert_true(fabs(y / x - 1) < 0.03);
        assert_true(rates_round(y) == y);
        assert_true(rates_round(x * 1.06) > y);
    }
}

static void test_text(void **state)
{
    struct rng g = {2};
    for (u32 i = 0; i < 200; i++) {
        struct rates r = random_rates(&g), back;
        struct buf b = {0};
        struct err e = {0};
        rates_round_all(&r);
        rates_print(&b, &r);
        if (!rates_parse(&back, buf_view(&b), &e)) fail_msg("%s", e.msg);
        assert_memory_equal(&r, &back, sizeof r);
        buf_release(&b);
    }
    static const struct { const char *text, *message; } wrong[] = {
        {"launch", "no '=' in rate 'launch'"},     {"speed=3", "unknown rate 'speed'"},
        {"launch=fast", "bad value 'fast' of rate 'launch'"}, {"fma.f32=1e9", "bad value '1e9' of rate 'fma.f32'"},
        {"launch=-1", "bad value '-1' of rate 'launch'"},     {"l1.read=1,", "bad value '1,' of rate 'l1.read'"},
        {"barrier=nan", "bad value 'nan' of rate 'barrier'"}, {"barrier=1e99", "bad value '1e99' of rate 'barrier'"}};
    for (i64 i = 0; i < countof(wrong); i++) {
        struct rates r;
        struct err e = {0};
        assert_false(rates_parse(&r, str_of(wrong[i].text), &e));
        assert_string_equal(e.msg, wrong[i].message);
    }
}

static void assert_rate(struct rate r) { assert_true(r.one > 0 && r.all >= r.one); }

/* Without measurements, the rates are those that predictions assume. */
static void test_assumed(void **state)
{
    for (i64 i = 0; i < countof(targets); i++) {
        struct caps c = target(i);
        struct rates r = caps_rates(&c);
        double n = c.is_gpu ? 1 : c.n_threads;
        assert_true(fabs(r.ops[RATE_FMA_F32].all / n / (c.is_gpu ? 1e9 * (c.gflops ? c.gflops : 4000) : r.ops[RATE_FMA_F32].one) - 1) < 1e-9);
        assert_true(fabs(r.memory[RATE_DRAM].read.all / n / (c.is_gpu ? 1e9 * (c.gbps ? c.gbps : 100) : r.memory[RATE_DRAM].read.one) - 1) < 1e-9);
        for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++) {
            const struct rate_memory *m = &r.memory[l];
            assert_rate(m->read), assert_rate(m->write), assert_rate(m->copy);
            assert_true(m->latency > 0 && m->latency < 1e-5);
            assert_true(l == RATE_L1 || (m->read.one <= m[-1].read.one && m->latency >= m[-1].latency));
        }
        assert_rate(r.nt_write);
        assert_true(r.launch > 0 && r.barrier > 0);
        assert_true(rates_peak(&r, DT_F32) >= r.ops[RATE_FMA_F32].all && rates_peak(&r, DT_F64) <= rates_peak(&r, DT_F32));
        assert_true((r.ops[RATE_DOT_BF16].one > 0) == (strstr(c.dot, "bf16") != NULL));
        assert_true((r.ops[RATE_MMA_F16].one > 0) == (strstr(c.matrix, ":f16,f16") != NULL));
        assert_true((r.ops[RATE_MMA_BF16].one > 0) == (strstr(c.matrix, ":bf16,bf16") != NULL) && (r.ops[RATE_MMA_I8].one > 0) == (strstr(c.matrix, "i8,i8") != NULL));
    }
}

/* What is emulated has rates of its own, also where it is only described: its memory is slower than that of any GPU; what was measured counts first. */
static void test_emulated(void **state)
{
    struct caps c = target(7), back;
    struct buf b = {0};
    const double n = c.n_threads = 3;
    struct rates gpu = caps_rates(&c);
    c.is_emulated = true;
    caps_print(&b, &c);
    assert_true(caps_parse(&back, buf_view(&b), &(struct err){0}) && back.is_emulated);
    struct rates r = caps_rates(&back);
    for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++) {
        const struct rate_memory *m = &r.memory[l];
        assert_rate(m->read), assert_rate(m->write), assert_rate(m->copy);
        assert_true(m->read.all == n * m->read.one && m->read.all < gpu.memory[l].read.all / 10 && m->read.all < r.ops[RATE_FMA_F32].all / 10);
    }
    back.rates.memory[RATE_L2].read.all = 77;
    r = caps_rates(&back);
    assert_true(r.memory[RATE_L2].read.all == 77 && r.memory[RATE_L2].read.one > 77);
    buf_release(&b);
    back.n_threads = 0, back.rates = (struct rates){0}; /* not described: one */
    r = caps_rates(&back);
    for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++) assert_rate(r.memory[l].read), assert_rate(r.memory[l].write), assert_rate(r.memory[l].copy);
    assert_rate(r.ops[RATE_FMA_F32]), assert_rate(r.nt_write);
}

static void test_measured_first(void **state)
{
    struct rng g = {3};
    for (u32 n = 0; n < 50; n++) {
        struct caps c = target(n % countof(targets));
        struct rates assumed = caps_rates(&c), r;
        c.rates = random_rates(&g);
        r = caps_rates(&c);
        for (i64 i = 0; i < N_NUMBERS; i++) {
            double m = numbers(&c.rates)[i];
            assert_true(numbers(&r)[i] == (m > 0 ? m : numbers(&assumed)[i]));
        }
    }
    struct caps c = target(2); /* other instructions, other rates */
    c.rates = random_rates(&g);
    assert_true(caps_limit(&c, S("isa=x86-64-v3"), NULL, &(struct err){0}));
    assert_memory_equal(&c.rates, &(struct rates){.launch = 0}, sizeof c.rates);
}

/* Cores are chosen by name, with or without driver or family, and have rates of their own, on which predictions depend. */
static void test_cores(void **state)
{
    struct rates last = {.launch = 0};
    i64 n = 0;
    for (const char *name; (name = dev_core_name(n)); n++) {
        struct caps c, d;
        struct rates back;
        struct buf b = {0};
        struct err e = {0};
        assert_true(dev_target(&c, "cpu", str_of(name)) && c.isa.family == ISA_AARCH64 && c.n_threads > 0);
        assert_memory_not_equal(&c.rates, &last, sizeof last);
        rates_print(&b, &c.rates);
        assert_true(rates_parse(&back, buf_view(&b), &e));
        assert_memory_equal(&c.rates, &back, sizeof back);
        struct rates r = caps_rates(&c);
        struct nest_rates x = nest_rates_of(&c, &r);
        double per_cycle = r.ops[RATE_FMA_F32].one * r.cycle / 8; /* multiply-adds of vectors */
        assert_true(per_cycle > 0.95 && per_cycle < 4.2);
        assert_true(x.cycle == r.cycle && x.chain == r.fma_latency);
        assert_true(nest_step(&x, 8, 3) >= 24 * x.fma && nest_step(&x, 8, 3) < 1.5 * 24 * x.fma);
        assert_true(nest_step(&x, 1, 1) >= x.chain);
        for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++)
            assert_true(l == RATE_L1 || (r.memory[l].read.one <= r.memory[l - 1].read.one && r.memory[l].latency >= r.memory[l - 1].latency));
        static const char *const before[] = {"", "cpu:", "aarch64:"};
        for (i64 i = 0; i < countof(before); i++) {
            const struct dev_driver *v;
            struct dev_opts o = {.n_threads = 0};
            char text[64];
            snprintf(text, sizeof text, "%s%s", before[i], name);
            if (!dev_select(text, &v, &o, &e) || !dev_ask(v, &o, &d, NULL, &e)) fail_msg("%s: %s", text, e.msg);
            assert_memory_equal(&c, &d, sizeof c);
        }
        last = c.rates;
        buf_release(&b);
    }
    assert_true(n >= 8);
    static const char *const unknown[] = {"cortex-a99", "cpu:cortex-a99", "aarch64:cortex-a99"};
    for (i64 i = 0; i < countof(unknown); i++) {
        const struct dev_driver *v;
        struct dev_opts o = {.n_threads = 0};
        struct err e = {0};
        assert_false(dev_select(unknown[i], &v, &o, &e));
        assert_true(strstr(e.msg, "cortex-a99") && strstr(e.msg, "cortex-a76"));
    }
}

/* The kernels, by the interpreter. */

enum { GROUPS = 3, ROUNDS = 5, STEPS = 2 };

struct run {
    struct arena a;
    struct kir k;
    struct kir_arg arg[MICRO_BUFFERS];
    i64 slice;
};

static enum dtype type_of(const struct run *r, u32 i) { return kir_dtype(&r->k, r->k.buf.v[i].id); }
static double at(const struct run *r, u32 i, i64 k) { return elem_f64(type_of(r, i), r->arg[i].p, k); }

/* Inputs are filled with ones. */
static void start(struct run *r, struct buf *text, const i64 *n)
{
    struct err e = {0};
    if (!kir_parse(&r->k, &r->a, buf_view(text), &e) || !kir_verify(&r->k, &e)) fail_msg("%s in\n%.*s", e.msg, STR_ARG(buf_view(text)));
    for (u32 i = 0; i < r->k.buf.n; i++) {
        r->arg[i] = (struct kir_arg){arena_alloc(&r->a, n[i] * dtype_size(type_of(r, i))), n[i]};
        for (i64 k = 0; k < n[i]; k++) elem_set_f64(type_of(r, i), r->arg[i].p, k, 1);
    }
    buf_release(text);
}

static void eval(struct run *r)
{
    struct err e = {0};
    const i64 param[] = {GROUPS, ROUNDS, r->slice};
    if (!kir_eval(&r->k, r->arg, param, &(struct kir_eval_opts){.seed = 7}, &e)) fail_msg("%s", e.msg);
}

static void end(struct run *r)
{
    arena_release(&r->a);
    *r = (struct run){.slice = 0};
}

static double sum_of(const struct run *r, u32 i)
{
    double sum = 0;
    for (i64 k = 0; k < r->arg[i].n; k++) sum += at(r, i, k);
    return sum;
}

/* Each chain adds 1 * 1 once for each multiply-add, so the results count them. */
static void test_ops_count(void **state)
{
    u32 n_dots = 0;
    for (i64 i = 0; i < countof(targets); i++)
        for (enum rate_op op = RATE_FMA_F32; op < N_RATE_OPS; op++)
            for (u32 part = 1; part <= 2; part++) {
                struct caps c = target(i);
                struct buf text = {0};
                struct run r = {.slice = 0};
                double work = micro_ops_text(&text, &c, op, part), first;
                if (!work) continue;
                bool is_dot = op == RATE_DOT_I8 || op == RATE_DOT_BF16;
                i64 lanes = c.is_gpu ? 1 : i64_max(1, c.vector_bytes / part / (op == RATE_FMA_F64 ? 8 : 4));
                n_dots += is_dot;
                start(&r, &text, (i64[]){1024, GROUPS * micro_group(&c) * lanes});
                eval(&r);
                i64 chains = c.is_gpu ? 16 : 12;
                first = (double)(r.arg[1].n * chains * (chains - 1) / 2); /* initial values of the chains */
                assert_true((sum_of(&r, 1) - first) * 2 == work * GROUPS * ROUNDS);
                end(&r);
            }
    assert_true(n_dots > 0);
}

/* A processor's matrix unit is measured, and not functions in its place. */
static void assert_instructions(struct run *r, const struct caps *c, const char *name)
{
    struct buf text = {0};
    struct err e = {0};
    if (!lang_render(&text, lang_find(S("c")), &r->k, c, &r->a, &e)) fail_msg("%s", e.msg);
    buf_char(&text, 0);
    assert_true(strstr(strstr(text.p, "for ("), name) && strstr(text.p, "_tile_loadconfig(tile_shapes)"));
    buf_release(&text);
}

static void test_mma_count(void **state)
{
    u32 n = 0;
    for (i64 i = 0; i < countof(targets); i++) {
        struct caps c = target(i);
        struct str rest = str_of(c.matrix);
        struct caps_matrix s;
        while (caps_matrix_next(&rest, &s)) {
            struct buf text = {0};
            struct run r = {.slice = 0};
            i64 size[MICRO_BUFFERS];
            if (s.c != s.d) continue;
            double work = micro_mma_text(&text, &c, &s);
            micro_mma_sizes(size, &c, &s, GROUPS);
            start(&r, &text, (i64[]){s.m * s.k, s.k * s.n, size[2] / dtype_size(s.c)});
            eval(&r);
            assert_true(sum_of(&r, 2) * 2 == work * GROUPS * ROUNDS);
            if (!c.is_gpu) assert_instructions(&r, &c, s.a == DT_BF16 ? "dpbf16ps" : s.a == DT_U8 ? "dpbu" : "dpbs");
            end(&r), n++;
        }
    }
    assert_true(n > 10);
}

static void test_memory(void **state)
{
    for (i64 i = 0; i < countof(targets); i++)
        for (enum micro_access x = MICRO_READ; x < N_MICRO_ACCESSES; x++) {
            struct caps c = target(i);
            struct buf text = {0};
            struct run r = {.slice = STEPS * micro_memory_step(&c)};
            i64 results = GROUPS * micro_memory_step(&c) / 8, all = GROUPS * r.slice;
            micro_memory_text(&text, &c, x);
            start(&r, &text, (i64[]){all, x == MICRO_READ ? results : all});
            eval(&r);
            if (x == MICRO_READ) assert_true(sum_of(&r, 1) == (double)(ROUNDS * all)); /* each element once in each round */
            for (i64 k = 0; k < all && x != MICRO_READ; k++) assert_true(at(&r, 1, k) == ROUNDS - 1 + (x == MICRO_COPY));
            end(&r);
        }
}

static i64 odd(struct rng *g, i64 most) { return rng_range(g, 0, 3) ? rng_range(g, 0, most) | 1 : 0; }

/* Slices lie within the array and the level for any number of processors and any sizes, also those of arrays that a device keeps small. */
static void test_slices(void **state)
{
    u32 n = 0, n_tight = 0;
    for (u64 seed = first_seed(0, 20000); seed < last_seed(0, 20000); seed++) {
        struct rng g = {seed + 1};
        struct caps c = target((i64)(seed % countof(targets)));
        c.n_threads = (u32)odd(&g, 700), c.l1_bytes = odd(&g, 200 << 10), c.l2_bytes = odd(&g, 80 << 20), c.l3_bytes = odd(&g, 300 << 20);
        const i64 array = rng_range(&g, 0, 1) ? odd(&g, 64 << 10) : odd(&g, 64 << 20), step = micro_memory_step(&c);
        const enum rate_level l = (enum rate_level)rng_range(&g, RATE_L1, N_RATE_LEVELS - 1);
        const enum micro_access x = (enum micro_access)rng_range(&g, MICRO_READ, N_MICRO_ACCESSES - 1);
        const struct micro_slice one = micro_slice_of(&c, l, x, array, false), all = micro_slice_of(&c, l, x, array, true);
        const i64 arrays = x == MICRO_COPY && l != RATE_DRAM ? 2 : 1, bytes = i64_max(2 * micro_level_bytes(&c, l, array), l == RATE_L3 ? 4 * c.l2_bytes : 0);
        assert_true(one.groups == 1 && all.groups >= i64_max(1, c.n_threads));
        assert_true(one.n >= all.n && all.n >= 0 && one.n % step == 0 && all.n % step == 0);
        assert_true(4 * all.groups * all.n <= array && 4 * one.n <= array);
        assert_true(4 * arrays * one.n <= bytes + 1);
        n += all.n > 0, n_tight += all.n > 0 && 4 * all.groups * (all.n + step) > array;
    }
    print_message("%u slices, %u of them as long as the array permits\n", n, n_tight);
    assert_true(n > 1000 && n_tight > 100);
}

static void test_others(void **state)
{
    for (i64 i = 0; i < countof(targets); i++) {
        enum { LINES = 64 };
        struct caps c = target(i);
        struct buf text = {0};
        struct run r = {.slice = 9};
        i64 threads = c.is_gpu ? i64_max(8, c.subgroup) : 1, want = r.slice;
        micro_chase_text(&text, &c);
        start(&r, &text, (i64[]){LINES, GROUPS * threads});
        for (i64 k = 0; k < LINES; k++) elem_set_i64(DT_I32, r.arg[0].p, k, (5 * k + 3) % LINES);
        for (u32 k = 0; k < ROUNDS; k++) want = (5 * want + 3) % LINES;
        eval(&r);
        for (i64 k = 0; k < r.arg[1].n; k++) assert_true(at(&r, 1, k) == (double)want);
        end(&r);
        micro_launch_text(&text, &c);
        start(&r, &text, (i64[]){64, GROUPS * micro_group(&c)});
        eval(&r);
        assert_true(sum_of(&r, 1) == 0);
        end(&r);
        micro_barrier_text(&text, &c);
        if (!text.n) continue; /* a single thread */
        start(&r, &text, (i64[]){64, GROUPS * (c.is_gpu ? (i64)micro_group(&c) : (i64)c.n_threads)});
        eval(&r);
        assert_true(sum_of(&r, 1) == 0);
        end(&r);
    }
}

/* Measuring and keeping. */

static bool on_device(const char *driver, struct dev_opts o, bool (*do_it)(struct rates *r, const struct device_target *t, struct err *e), struct rates *r, struct err *e)
{
    struct buf tools = {0}, fingerprint = {0};
    struct caps c;
    const struct dev_driver *d = dev_find(str_of(driver));
    if (!dev_ask(d, &o, &c, &fingerprint, e)) fail_msg("%s", e->msg);
    const struct lang *l = lang_find(str_of(d->lang));
    bool has_tools = l->toolchain(&tools, &c, &(struct err){0}); /* a described device's compiler need not be installed */
    assert_true(has_tools || o.target.n);
    struct device_target t = {
        .driver = d, .opts = &o, .lang = l, .caps = &c, .fingerprint = buf_view(&fingerprint), .toolchain = buf_view(&tools)};
    bool ok = do_it(r, &t, e);
    buf_release(&tools), buf_release(&fingerprint);
    return ok;
}

static bool measure(struct rates *r, const char *driver, struct dev_opts o, struct err *e) { return on_device(driver, o, rates_measure, r, e); }

static void test_measure(void **state)
{
    struct rates r, rounded;
    struct err e = {0};
    if (!measure(&r, "cpu", (struct dev_opts){.n_threads = 2}, &e)) fail_msg("%s", e.msg);
    rounded = r;
    rates_round_all(&rounded);
    assert_memory_equal(&r, &rounded, sizeof r);
    assert_rate(r.ops[RATE_FMA_F32]), assert_rate(r.ops[RATE_FMA_F64]), assert_rate(r.nt_write);
    for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++) {
        assert_rate(r.memory[l].read), assert_rate(r.memory[l].write), assert_rate(r.memory[l].copy);
        assert_true(r.memory[l].latency > 0);
    }
    assert_true(r.launch > 0 && r.barrier > 0);
    assert_false(measure(&r, "interp", (struct dev_opts){.n_threads = 1}, &e));
    assert_string_equal(e.msg, "device 'interp' has no rates: it interprets");
    assert_false(measure(&r, "null", (struct dev_opts){.n_threads = 1}, &(struct err){0}));
    e = (struct err){0};
    assert_false(measure(&r, "cuda", (struct dev_opts){.target = S("sm_80")}, &e));
    assert_string_equal(e.msg, "device 'cuda' is only described and cannot be measured");
    assert_memory_equal(&r, &(struct rates){.launch = 0}, sizeof r);
}

/* Cached rates are found by this user only and for this device only. */
static void test_storage(void **state)
{
    const struct dev_driver *cpu = dev_find(S("cpu")), *null = dev_find(S("null"));
    const struct rates none = {.launch = 0};
    struct arena a = {0};
    struct rng g = {4};
    struct str dir, *name;
    struct err e = {0};
    struct rates r, found;
    struct cache c;
    i64 n;
    assert_true(os_temp_dir(&a, &dir, &e));
    setenv("XDG_CACHE_HOME", dir.p, 1), setenv("XDG_CONFIG_HOME", dir.p, 1);
    do r = random_rates(&g);
    while (!(r.ops[RATE_FMA_F32].one > 0));
    rates_round_all(&r);
    assert_false(rates_find(&found, cpu, S("here, 2 threads")));
    assert_memory_equal(&found, &none, sizeof r);
    rates_keep(&r, cpu, S("here, 2 threads"));
    assert_true(rates_find(&found, cpu, S("here, 2 threads")));
    assert_memory_equal(&found, &r, sizeof r);
    assert_false(rates_find(&found, cpu, S("here, 1 threads")) || rates_find(&found, null, S("here, 2 threads")));
    cache_open(&c, "devices", &a, NULL);
    assert_true(os_list(&a, c.folder.p, &name, &n, &e) && n == 1);
    struct str path = str_fmt(&a, "%.*s/%.*s", STR_ARG(c.folder), STR_ARG(name[0])), file;
    assert_true(os_read(&a, path.p, 1 << 20, &file, &e) && file.n > 10);
    char *changed = arena_alloc(&a, file.n);
    memcpy(changed, file.p, (size_t)file.n);
    changed[9] ^= 1; /* a digit; the seal is that of the old content */
    assert_true(os_write(path.p, changed, file.n, &e));
    assert_false(rates_find(&found, cpu, S("here, 2 threads")));
    assert_memory_equal(&found, &none, sizeof r);
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* Each rate and each time is the better one of both; unknown ones are 0. */
static void test_better(void **state)
{
    struct rng g = {5};
    for (u32 n = 0; n < 100; n++) {
        struct rates x = random_rates(&g), y = random_rates(&g), both = x, again, none = {.launch = 0};
        rates_better(&both, &y);
        for (u32 i = 0; i < N_RATE_OPS; i++) assert_true(both.ops[i].one == fmax(x.ops[i].one, y.ops[i].one) && both.ops[i].all == fmax(x.ops[i].all, y.ops[i].all));
        const double a = x.launch, b = y.launch;
        assert_true(both.launch == (a > 0 && b > 0 ? fmin(a, b) : fmax(a, b)));
        again = both;
        rates_better(&again, &x), rates_better(&again, &y), rates_better(&again, &none);
        assert_memory_equal(&again, &both, sizeof both);
        rates_better(&none, &both);
        assert_memory_equal(&none, &both, sizeof both);
    }
}

static bool first_use(struct rates *r, const struct device_target *t, struct err *e)
{
    (void)e;
    return rates_at_first_use(r, t);
}

struct found { struct rates r; bool ok; };

static void use_in_child(void *user, int fd)
{
    struct found f;
    (void)user;
    memset(&f, 0, sizeof f);
    f.ok = on_device("cpu", (struct dev_opts){.n_threads = 1}, first_use, &f.r, &(struct err){0});
    os_child_put(fd, &f, sizeof f);
}

/* Processes that use a processor for the first time at the same time have the same rates, and so has the next one. */
static void test_first_use(void **state)
{
    enum { PROCESSES = 3 };
    struct arena a = {0};
    struct err e = {0};
    struct str dir;
    struct os_child child[PROCESSES];
    struct found f[PROCESSES], next = {.ok = false};
    assert_true(os_temp_dir(&a, &dir, &e));
    setenv("XDG_CACHE_HOME", dir.p, 1), setenv("XDG_CONFIG_HOME", dir.p, 1);
    for (u32 i = 0; i < PROCESSES; i++) {
        assert_true(os_child_start(&child[i], use_in_child, NULL, &e));
        child[i].runs_programs = true;
    }
    for (u32 i = 0; i < PROCESSES; i++) {
        assert_int_equal(os_child_get(&child[i], &f[i], sizeof f[i], 0), OS_EXITED);
        os_child_end(&child[i]);
        assert_true(f[i].ok);
        assert_rate(f[i].r.ops[RATE_FMA_F32]);
        assert_memory_equal(&f[i].r, &f[0].r, sizeof f[0].r);
    }
    next.ok = on_device("cpu", (struct dev_opts){.n_threads = 1}, first_use, &next.r, &e);
    assert_true(next.ok);
    assert_memory_equal(&next.r, &f[0].r, sizeof next.r);
    assert_false(on_device("interp", (struct dev_opts){.n_threads = 1}, first_use, &next.r, &e));
    assert_memory_equal(&next.r, &(struct rates){.launch = 0}, sizeof next.r);
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* As a launch and a copy. */
static bool use_link(struct rates *r, const struct device_target *t, struct err *e)
{
    struct link_rates l;
    bool ok = link_at_first_use(&l, t);
    (void)e;
    *r = (struct rates){.launch = l.latency};
    r->memory[RATE_DRAM].copy.one = l.bandwidth;
    return ok;
}

/* Copies are timed once; the next process finds their rates. */
static void test_link(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct str dir;
    struct rates first, next;
    assert_true(os_temp_dir(&a, &dir, &e));
    setenv("XDG_CACHE_HOME", dir.p, 1), setenv("XDG_CONFIG_HOME", dir.p, 1);
    assert_true(on_device("cpu", (struct dev_opts){.n_threads = 1}, use_link, &first, &e));
    assert_true(first.memory[RATE_DRAM].copy.one > 1e6 && first.launch > 0 && first.launch < 1);
    for (int i = 0; i < 3; i++) {
        assert_true(on_device("cpu", (struct dev_opts){.n_threads = 1}, use_link, &next, &e));
        assert_memory_equal(&next, &first, sizeof next);
    }
    assert_false(on_device("cpu", (struct dev_opts){.target = S("aarch64")}, use_link, &next, &e));
    os_remove_tree(dir.p);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round),     cmocka_unit_test(test_text),      cmocka_unit_test(test_assumed),
                                       cmocka_unit_test(test_emulated), cmocka_unit_test(test_measured_first), cmocka_unit_test(test_cores), cmocka_unit_test(test_ops_count), cmocka_unit_test(test_mma_count),
                                       cmocka_unit_test(test_memory),    cmocka_unit_test(test_slices), cmocka_unit_test(test_others),    cmocka_unit_test(test_measure),
                                       cmocka_unit_test(test_storage), cmocka_unit_test(test_better), cmocka_unit_test(test_first_use), cmocka_unit_test(test_link)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
