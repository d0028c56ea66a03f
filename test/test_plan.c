// SPDX-License-Identifier: Apache-2.0
//
// Whole programs from random networks: passes, cover, selection, plan, runtime, compared with the
// reference evaluation of the original graph. Half of the time costs are random, so that every kind
// of region is selected somewhere, and so are schedules. The cover's guarantees are checked on each
// network, the selection is compared with an exhaustive search over regions.
//
// SEED=n runs one network and prints it (seeds.h), TEST_DEVICE=cpu|interp|vulkan only that device.
#include "pass/pass.h"
#include "plan/plan.h"
#include "random_net.h"
#include "rt/rt.h"
#include "seeds.h"
#include "tune/tune.h"
#include "vulkan_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "skip.h"

struct world {             /* where programs run */
    const struct dev_driver *driver;
    struct dev *dev;
    struct caps caps;
    const struct lang *lang;
    u64 seed;              /* of random costs; 0: predicted */
    enum net_kind kind;
    struct cover_opts cut;
    u32 n_joins;           /* concatenations made in memory so far */
    u32 n_blocked;         /* kernels chosen so far that deliver channels in blocks */
};

struct made {              /* a network with its program */
    struct net net;
    struct graph lowered;
    struct cover cover;
    struct selection sel;
    struct plan plan;
};

static void world_open(struct world *w, const char *driver, u32 threads)
{
    struct err e = {0};
    *w = (struct world){.driver = dev_find(str_of(driver))};
    w->dev = w->driver->open(&(struct dev_opts){.n_threads = threads}, &e);
    assert_non_null(w->dev);
    w->driver->caps(w->dev, &w->caps);
    w->lang = lang_find(str_of(w->driver->lang));
}

static void world_close(struct world *w) { w->driver->close(w->dev); }

/* A random candidate, unless it would take too long. */
static bool random_candidate(const struct world *w, const struct task *t, const i64 *var, struct rng *r, struct candidate *c)
{
    struct candidate other;
    if (!gen_default(t, &w->caps, var, c)) return false;
    if (!gen_random(t, &w->caps, r, &other)) return true;
    if (gen_predict(&other, t, &w->caps, var) < 20 * gen_predict(c, t, &w->caps, var)) *c = other;
    return true;
}

static bool any_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    const struct world *w = user;
    *c = (struct task_cost){0};
    struct rng r = rng_seed(w->seed ^ t->key.lo);
    bool ok = w->seed && rng_range(&r, 0, 3) ? random_candidate(w, t, var, &r, &c->best) : gen_default(t, &w->caps, var, &c->best);
    if (!ok) return false;
    c->ok = true;
    c->seconds = gen_predict(&c->best, t, &w->caps, var);
    /* nothing that takes for ever */
    if (w->seed) c->seconds = (double)rng_range(&r, 1, 1000) * 1e-6 + 10 * c->seconds;
    return true;
}

static bool lower(struct made *m)
{
    graph_clone(&m->lowered, &m->net.g, &m->net.arena);
    return pass_run_all(&m->lowered, NULL, &m->net.e);
}

static bool make_plan(struct made *m, struct world *w, const i64 *var)
{
    struct arena *a = &m->net.arena;
    struct plan_code code = {.builder = {.lang = w->lang, .caps = &w->caps}};
    struct plan_env env = {.lang = w->lang, .caps = &w->caps, .device = w->driver->name, .model = S("random"), .build = plan_build_code, .build_user = &code};
    return cover_build(&m->cover, &m->lowered, a, &w->cut, &m->net.e) &&
           plan_select(&m->sel, &m->cover, var, any_cost, w, a, &m->net.e) &&
           plan_make(&m->plan, &m->cover, &m->sel, var, &env, a, &m->net.e);
}

/* The graph without its constants' content. */
static void show_graph(struct buf *b, const struct graph *g)
{
    struct buf whole = {0};
    graph_print(&whole, g, &(struct graph_text_opts){0});
    struct str rest = buf_view(&whole), line;
    while (str_cut(rest, '\n', &line, &rest)) {
        bool cut = str_starts(str_trim(line), S("const")) && line.n > 100;
        buf_str(b, cut ? str_sub(line, 0, 100) : line);
        buf_char(b, '\n');
    }
    buf_release(&whole);
}

static void show(struct made *m)
{
    struct buf b = {0};
    show_graph(&b, &m->net.g);
    if (m->lowered.arena) show_graph(&b, &m->lowered);
    for (u32 i = 0; i < m->plan.dispatch.n; i++)
        buf_printf(&b, "%u %.*s [%.*s]\n", i, STR_ARG(m->plan.dispatch.v[i].label), STR_ARG(m->plan.dispatch.v[i].candidate));
    fwrite(b.p, 1, (size_t)b.n, stderr);
    buf_release(&b);
}

/* Error of got relative to the largest element of want. */
static double distance(const struct tensor *got, const struct tensor *want)
{
    double worst = 0, scale = 1e-6;
    if (got->dtype != want->dtype || got->rank != want->rank) return INFINITY;
    for (u32 d = 0; d < got->rank; d++)
        if (got->dim[d] != want->dim[d]) return INFINITY;
    for (i64 i = 0, n = tensor_count(want); i < n; i++) {
        double x = elem_f64(want->dtype, want->data, i), y = elem_f64(got->dtype, got->data, i);
        if (isnan(x) && isnan(y)) continue;
        if (isfinite(x)) scale = fmax(scale, fabs(x));
        if (x != y) worst = fmax(worst, isfinite(x - y) ? fabs(x - y) : INFINITY);
    }
    return worst / scale;
}

/* One run at these sizes against the evaluator. false: the sizes do not fit this network. */
static bool run_once(struct made *m, struct rt_program *p, const i64 *var, u64 seed)
{
    struct arena a = {0};
    struct err e = {0};
    struct tensor *in = net_inputs(&m->net, &a, var), *in_p[2] = {&in[0], &in[1]};
    struct tensor **want = arena_array(&a, struct tensor *, m->net.g.output.n);
    struct tensor *got = arena_array(&a, struct tensor, m->net.g.output.n);
    bool ok = graph_eval(&m->net.g, in_p, want, &a, NULL, &e);
    if (ok && !rt_run(p, in, got, &a, &e)) {
        show(m);
        fail_msg("seed %llu, %lldx%lld: %s", (unsigned long long)seed, (long long)var[0], (long long)var[1], e.msg);
    }
    for (u32 k = 0; ok && k < m->net.g.output.n; k++) {
        double d = distance(&got[k], want[k]);
        if (d < 3e-4) continue;
        show(m);
        fail_msg("seed %llu, %lldx%lld: output %u is off by %g", (unsigned long long)seed, (long long)var[0], (long long)var[1], k, d);
    }
    arena_release(&a);
    return ok;
}

/* cover: every form needed is delivered */

static bool cover_delivers(const struct cover *c, struct form f)
{
    for (u32 r = 0; r < c->region.n; r++)
        for (u32 i = 0; i < c->region.v[r].n_out; i++)
            if (form_equal(c->region.v[r].out[i], f)) return true;
    return false;
}

static bool is_given(const struct cover *c, struct form f)
{
    const struct value *x = graph_value(c->g, f.v);
    return x->is_const || (x->producer == 0 && f.layout == LAYOUT_ROWS && !f.join);
}

static double region_cost(const struct made *m, const struct region *x)
{
    const struct task_cost *c = x->task == NO_TASK ? NULL : &m->sel.cost[x->task];
    return !c ? 0 : c->ok ? c->seconds : INFINITY;
}

static void check_cover(const struct made *m)
{
    const struct cover *c = &m->cover;
    for (u32 r = 0; r < c->region.n; r++) {
        const struct region *x = &c->region.v[r];
        for (u32 i = 0; i < x->n_in; i++) {
            if (is_given(c, x->in[i])) continue;
            node_id p = graph_value(c->g, x->in[i].v)->producer;
            if (!cover_delivers(c, x->in[i]))
                fail_msg("nothing delivers '%.*s' %s, join %u", STR_ARG(graph_value(c->g, x->in[i].v)->name),
                         layout_name(x->in[i].layout), x->in[i].join);
            assert_true(x->n_nodes == 0 || p < x->nodes[x->n_nodes - 1]); /* no dispatch depends on a later one */
        }
        for (u32 i = 1; i < x->n_nodes; i++) assert_true(x->nodes[i - 1] < x->nodes[i]);
    }
    for (u32 k = 0; k < c->g->output.n; k++) {
        struct form f = {c->g->output.v[k], LAYOUT_ROWS, 0, 0};
        assert_true(is_given(c, f) || cover_delivers(c, f));
    }
}

/* In program order: every input of a region was produced before, in that layout. */
static void check_order(const struct made *m)
{
    const struct cover *c = &m->cover;
    double sum = 0;
    for (u32 i = 0; i < m->sel.choice.n; i++) {
        const struct region *x = &c->region.v[m->sel.choice.v[i].region];
        sum += region_cost(m, x);
        for (u32 k = 0; k < x->n_in; k++) {
            bool found = is_given(c, x->in[k]);
            for (u32 j = 0; j < i && !found; j++) {
                const struct region *y = &c->region.v[m->sel.choice.v[j].region];
                for (u32 o = 0; o < y->n_out; o++) found |= form_equal(y->out[o], x->in[k]);
            }
            assert_true(found);
        }
    }
    assert_true(fabs(sum - m->sel.seconds) <= 1e-9 * fabs(sum));
}

/* Concatenations that the program makes in memory. With only_joins: all that could be. */
static u32 count_joins(const struct made *m)
{
    u32 n = 0;
    for (u32 i = 0; i < m->sel.choice.n; i++) {
        const struct region *x = &m->cover.region.v[m->sel.choice.v[i].region];
        n += x->task == NO_TASK;
    }
    return n;
}

static u32 count_blocked(const struct made *m)
{
    u32 n = 0;
    for (u32 i = 0; i < m->sel.choice.n; i++) {
        const struct region *x = &m->cover.region.v[m->sel.choice.v[i].region];
        for (u32 k = 0; k < x->n_out; k++) n += layout_block(x->out[k].layout) > 1;
    }
    return n;
}


static void try_net(struct world *w, u64 seed, u32 *n_done)
{
    static const i64 sizes[][2] = {{6, 5}, {2, 19}, {3, 3}, {7, 6}};
    static const i64 extreme[][2] = {{1, 1}, {17, 31}};
    struct made m = {0};
    net_open_as(&m.net, seed, w->kind);
    if (getenv("VERBOSE")) fprintf(stderr, "seed %llu, %.3f s\n", (unsigned long long)seed, os_now());
    w->seed = seed % 2 ? seed * 7919 + 1 : 0;
    if (getenv("SEED")) show(&m);
    if (!lower(&m) || !make_plan(&m, w, sizes[seed % 4])) {
        show(&m);
        if (m.cover.g) check_cover(&m);
        fail_msg("seed %llu: %s", (unsigned long long)seed, m.net.e.msg);
    }
    if (getenv("SEED")) show(&m);
    check_cover(&m);
    check_order(&m);
    w->n_joins += count_joins(&m), w->n_blocked += count_blocked(&m);
    struct rt_program *p = rt_load(&m.plan, w->dev, &m.net.e);
    if (!p) fail_msg("seed %llu: %s", (unsigned long long)seed, m.net.e.msg);
    for (u32 i = 0; i < 3; i++) *n_done += run_once(&m, p, sizes[(seed + i) % 4], seed);
    for (u32 i = 0; i < 2 && w->kind == NET_JOINS; i++) *n_done += run_once(&m, p, extreme[i], seed);
    rt_unload(p);
    net_close(&m.net);
}

/* Ordinary networks, or with many concatenations, all in place or as the costs decide, or with
   blocked channels. */
enum how { ANY_NET, SOME_JOINS, ONLY_JOINS, IN_BLOCKS };

static void try_many(const char *device, u64 n, enum how how)
{
    struct world w;
    u32 done = 0;
    if (getenv("TEST_DEVICE") && strcmp(getenv("TEST_DEVICE"), device)) return;
    u64 first = first_seed(0, n), end = last_seed(0, n);
    world_open(&w, device, 2);
    w.kind = how == ANY_NET ? NET_ANY : how == IN_BLOCKS ? NET_CONVS : NET_JOINS, w.cut.only_joins = how == ONLY_JOINS;
    if (how == IN_BLOCKS) w.cut.blocks = LAYOUT_C8;
    for (u64 s = first; s < end; s++) try_net(&w, s, &done);
    world_close(&w);
    assert_true(seeds_are_given() || (done > end - first && (how != ONLY_JOINS || w.n_joins > end - first)));
    assert_true(how != IN_BLOCKS || is_enough(w.n_blocked, 0));
    if (getenv("VERBOSE")) fprintf(stderr, "%s: %u runs, %u concatenations in memory\n", device, done, w.n_joins);
}

static void test_interp(void **state) { try_many("interp", 200, ANY_NET); }
static void test_cpu(void **state) { try_many("cpu", 12, ANY_NET); }
static void test_interp_joins(void **state) {
    try_many("interp", 60, SOME_JOINS);
    try_many("interp", 100, ONLY_JOINS);
}
static void test_interp_blocks(void **state) { try_many("interp", 80, IN_BLOCKS); }
static void test_cpu_joins(void **state) { try_many("cpu", 12, ONLY_JOINS); }

static void test_vulkan(void **state)
{
    vulkan_stay_loaded();
    if (!dev_find(S("vulkan"))->count()) skip_test("no Vulkan device");
    try_many("vulkan", 8, ANY_NET);
    try_many("vulkan", 12, ONLY_JOINS);
}

/* The cheapest combination of regions that produces everything needed, each value by one region
   (conversions aside). Dependencies are acyclic: nodes are ordered, and results of conversions are
   not converted again. */
static double cheapest(const struct made *m)
{
    const struct cover *c = &m->cover;
    double best = INFINITY;
    for (u32 mask = 1; mask < 1u << c->region.n; mask++) {
        double sum = 0;
        bool ok = true;
        for (u32 r = 0; r < c->region.n && ok; r++) {
            const struct region *x = &c->region.v[r];
            if (!(mask >> r & 1)) continue;
            sum += region_cost(m, x);
            for (u32 i = 0; i < x->n_in && ok; i++) {
                bool found = is_given(c, x->in[i]);
                for (u32 q = 0; q < c->region.n && !found; q++)
                    for (u32 o = 0; (mask >> q & 1) && (x->n_nodes || c->region.v[q].n_nodes) && o < c->region.v[q].n_out; o++)
                        found |= form_equal(c->region.v[q].out[o], x->in[i]);
                ok = found;
            }
            for (u32 q = 0; q < r && ok; q++) /* one region per value */
                for (u32 o = 0; (mask >> q & 1) && x->n_nodes && c->region.v[q].n_nodes && o < c->region.v[q].n_out; o++)
                    for (u32 i = 0; i < x->n_out; i++) ok = ok && x->out[i].v != c->region.v[q].out[o].v;
        }
        for (u32 k = 0; k < c->g->output.n && ok; k++) {
            bool found = false;
            for (u32 q = 0; q < c->region.n && !found; q++)
                for (u32 o = 0; (mask >> q & 1) && o < c->region.v[q].n_out; o++)
                    found |= form_equal(c->region.v[q].out[o], (struct form){c->g->output.v[k], LAYOUT_ROWS, 0, 0});
            ok = found;
        }
        if (ok && sum < best) best = sum;
    }
    return best;
}

static void test_exact(void **state)
{
    struct world w;
    u32 done = 0;
    world_open(&w, "interp", 1);
    for (u64 seed = 1; seed < 120; seed += 2) {
        struct made m = {0};
        i64 var[2] = {6, 5};
        net_open(&m.net, seed);
        w.seed = seed;
        const struct cover_opts cut = {.blocks = seed & 2 ? LAYOUT_C8 : LAYOUT_ROWS};
        assert_true(lower(&m) && cover_build(&m.cover, &m.lowered, &m.net.arena, &cut, &m.net.e));
        if (m.cover.region.n > 0 && m.cover.region.n <= 14) {
            assert_true(plan_select(&m.sel, &m.cover, var, any_cost, &w, &m.net.arena, &m.net.e));
            double best = cheapest(&m);
            if (m.sel.is_exact && fabs(best - m.sel.seconds) > 1e-9 * best) {
                show(&m);
                fail_msg("seed %llu: chosen %g, cheapest %g", (unsigned long long)seed, m.sel.seconds, best);
            }
            done++;
        }
        net_close(&m.net);
    }
    world_close(&w);
    assert_true(done > 10);
}

/* Programs with a guaranteed order of sums: the same bits for any selection, cover and fusion. */

static bool same_bits(const struct tensor *a, const struct tensor *b)
{
    for (i64 i = 0, n = tensor_count(a); i < n; i++) {
        double x = elem_f64(a->dtype, a->data, i), y = elem_f64(b->dtype, b->data, i);
        if ((x != y || signbit(x) != signbit(y)) && !(isnan(x) && isnan(y))) return false;
    }
    return true;
}

/* The network of a seed under choices of another, at some sizes. got: per output; NULL where the sizes do not fit it. */
static void run_choice(struct made *m, struct world *w, u64 seed, u64 choice, const i64 *var, struct tensor **got)
{
    struct err e = {0};
    *m = (struct made){0};
    net_open_as(&m->net, seed, w->kind);
    w->seed = choice;
    if (!lower(m) || !make_plan(m, w, var)) {
        show(m);
        fail_msg("seed %llu, choice %llu: %s", (unsigned long long)seed, (unsigned long long)choice, m->net.e.msg);
    }
    struct rt_program *p = rt_load(&m->plan, w->dev, &m->net.e);
    if (!p) fail_msg("seed %llu: %s", (unsigned long long)seed, m->net.e.msg);
    const struct tensor *in = net_inputs(&m->net, &m->net.arena, var);
    *got = arena_array(&m->net.arena, struct tensor, m->net.g.output.n + 1);
    if (!rt_run(p, in, *got, &m->net.arena, &e)) *got = NULL;
    rt_unload(p);
}

static void show_choice(const struct made *m)
{
    for (u32 i = 0; i < m->plan.dispatch.n; i++)
        print_message("    %.*s: %.*s\n", STR_ARG(m->plan.dispatch.v[i].label), STR_ARG(m->plan.dispatch.v[i].candidate));
}

static void try_choices(const char *device, u64 n, enum net_kind kind)
{
    static const i64 sizes[][2] = {{6, 5}, {3, 19}, {13, 9}};
    const enum layout blocks[] = {LAYOUT_ROWS, LAYOUT_C8, LAYOUT_C16};
    struct world worlds[2]; /* of one and of two threads */
    u32 n_same = 0;
    if (getenv("TEST_DEVICE") && strcmp(getenv("TEST_DEVICE"), device)) return;
    for (u32 i = 0; i < countof(worlds); i++) {
        world_open(&worlds[i], device, 1 + i);
        worlds[i].kind = kind;
        assert_true(caps_limit(&worlds[i].caps, S("deterministic"), NULL, &(struct err){0}));
    }
    for (u64 seed = first_seed(0, n), end = last_seed(0, n); seed < end; seed++) {
        struct made m[3];
        struct tensor *got[3];
        for (u32 i = 0; i < 3; i++) {
            struct world *w = &worlds[i > 0];
            w->cut = (struct cover_opts){.no_fusion = i == 1, .blocks = w->caps.is_gpu ? LAYOUT_ROWS : blocks[(seed + i) % 3], .blocks_from = 1};
            run_choice(&m[i], w, seed, i ? seed * 31 + i : 0, sizes[seed % 3], &got[i]);
        }
        for (u32 i = 1; i < 3 && got[0] && got[i]; i++)
            for (u32 k = 0; k < m[0].net.g.output.n; k++) {
                if (same_bits(&got[0][k], &got[i][k])) { n_same++; continue; }
                show(&m[0]);
                show_choice(&m[0]), print_message("  and\n"), show_choice(&m[i]);
                fail_msg("seed %llu: output %u depends on what was chosen", (unsigned long long)seed, k);
            }
        for (u32 i = 0; i < 3; i++) net_close(&m[i].net);
    }
    for (u32 i = 0; i < countof(worlds); i++) world_close(&worlds[i]);
    assert_true(is_enough(n_same, n));
}

static void test_deterministic(void **state)
{
    try_choices("interp", 60, NET_ANY);
    try_choices("interp", 40, NET_CONVS);
    try_choices("cpu", 6, NET_CONVS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_interp),
        cmocka_unit_test(test_interp_joins),
        cmocka_unit_test(test_interp_blocks),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_cpu_joins),
        cmocka_unit_test(test_vulkan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
