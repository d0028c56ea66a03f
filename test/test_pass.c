// SPDX-License-Identifier: Apache-2.0
//
// Passes on small graphs: test/golden/pass/NAME.graph becomes NAME.out (text form, doc/graph-ir.md), and still means the same;
// f16-NAME.graph with storage in f16, where it means the same but for rounding.
// Random networks mean the same behind the passes, too. GOLDEN=1 writes the .out files anew: read the difference.
#include "pass/pass.h"
#include "random_net.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const char folder[] = "test/golden/pass";

/* Both graphs on the same inputs; tolerance of the largest value. */
static bool same_meaning(struct net *t, const struct graph *after, const i64 *var, double tolerance)
{
    struct arena a = {0};
    struct err e = {0};
    struct tensor *in = net_inputs(t, &a, var), *p[32];
    assert_true(t->g.input.n <= 32);
    struct tensor **want = arena_array(&a, struct tensor *, t->g.output.n), **got = arena_array(&a, struct tensor *, t->g.output.n);
    for (u32 k = 0; k < t->g.input.n; k++) p[k] = &in[k];
    bool ran = graph_eval(&t->g, p, want, &a, NULL, &e), same = true;
    if (ran && !graph_eval(after, p, got, &a, NULL, &e)) fail_msg("%s", e.msg);
    for (u32 k = 0; k < t->g.output.n && ran; k++) {
        double top = 1;
        for (i64 i = 0, n = tensor_count(want[k]); i < n; i++) top = fmax(top, fabs(elem_f64(want[k]->dtype, want[k]->data, i)));
        same = same && tensor_compare(got[k], want[k], 0, tolerance * top).n_bad == 0;
    }
    arena_release(&a);
    return same;
}

static void test_golden(void **state)
{
    struct arena a = {0};
    struct str *names;
    struct err e = {0};
    i64 n, done = 0;
    assert_true(os_list(&a, folder, &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        if (!str_ends(names[i], S(".graph"))) continue;
        struct net t = {.rng = rng_seed(1)};
        struct graph g;
        struct str text, want = {0};
        struct buf b = {0};
        const char *out = str_fmt(&a, "%s/%.*s.out", folder, (int)names[i].n - 6, names[i].p).p;
        symtab_init(&t.sym, &t.arena);
        assert_true(os_read(&a, str_fmt(&a, "%s/%.*s", folder, STR_ARG(names[i])).p, 1 << 20, &text, &e));
        bool ok = graph_parse(&t.g, &t.arena, &t.sym, text, &e) && op_infer_all(&t.g, &e);
        graph_clone(&g, &t.g, &t.arena);
        bool is_f16 = str_starts(names[i], S("f16-"));
        const struct pass_env env = {.flags = is_f16 ? PASS_F16 : 0};
        if (!ok || !pass_run_all(&g, &env, &e)) fail_msg("%.*s: %s", STR_ARG(names[i]), e.msg);
        graph_print(&b, &g, &(struct graph_text_opts){0});
        if (getenv("GOLDEN")) assert_true(os_write(out, b.p, b.n, &e));
        if (!os_read(&a, out, 1 << 20, &want, &e)) fail_msg("%s", e.msg);
        if (!str_eq(want, buf_view(&b))) fail_msg("%s differs:\n%s", out, b.p);
        assert_true(same_meaning(&t, &g, (i64[]){3, 4, 5, 6}, is_f16 ? 4e-3 : 1e-4));
        buf_release(&b);
        net_close(&t);
        done++;
    }
    arena_release(&a);
    assert_true(done >= 7);
}

/* Behind the passes: primitives only, distinct outputs that nodes deliver, the same meaning; a second run changes nothing. */
static void test_random(void **state)
{
    for (u64 seed = 5000; seed < 5150; seed++) {
        struct net t;
        struct graph g;
        struct buf once = {0}, twice = {0};
        net_open(&t, seed);
        graph_clone(&g, &t.g, &t.arena);
        if (!pass_run_all(&g, NULL, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (node_id n = 1; n < g.node.n; n++) assert_true(!graph_node(&g, n)->dead && !op_of(&g, n)->expand);
        for (u32 k = 0; k < g.output.n; k++) {
            assert_true(graph_value(&g, g.output.v[k])->producer != 0);
            for (u32 j = 0; j < k; j++) assert_true(g.output.v[j] != g.output.v[k]);
        }
        if (!same_meaning(&t, &g, (i64[]){5, 7}, 1e-4)) fail_msg("seed %d: another meaning", (int)seed);
        graph_print(&once, &g, NULL);
        assert_true(pass_run_all(&g, NULL, &t.e));
        graph_print(&twice, &g, NULL);
        if (!str_eq(buf_view(&once), buf_view(&twice))) fail_msg("seed %d: passes go on changing things", (int)seed);
        buf_release(&once);
        buf_release(&twice);
        net_close(&t);
    }
}

/* Storage in f16: the interface keeps its names and types, and every product that can take f16 does. */
static void test_narrow(void **state)
{
    u32 n_half = 0;
    for (u64 seed = 6000; seed < 6100; seed++) {
        struct net t;
        struct graph g, full;
        net_open(&t, seed);
        graph_clone(&g, &t.g, &t.arena);
        graph_clone(&full, &t.g, &t.arena);
        assert_true(pass_run_all(&full, NULL, &t.e));
        if (!pass_run_all(&g, &(struct pass_env){.flags = PASS_F16}, &t.e)) fail_msg("seed %d: %s", (int)seed, t.e.msg);
        for (u32 k = 0; k < g.output.n; k++) {
            const struct value *was = graph_value(&full, full.output.v[k]), *is = graph_value(&g, g.output.v[k]);
            if (!str_eq(was->name, is->name) || was->dtype != is->dtype) fail_msg("seed %d: output %d", (int)seed, (int)k);
        }
        for (node_id n = 1; n < g.node.n; n++) {
            const struct node *x = graph_node(&g, n);
            const struct value *out = graph_value(&g, x->out.v[0]);
            if (!(op_of(&g, n)->props & (OP_CONV | OP_MATMUL)) || !dtype_is_float(out->dtype)) continue;
            for (u32 k = 0; k < x->in.n; k++)
                if (x->in.v[k]) assert_int_equal(graph_value(&g, x->in.v[k])->dtype, out->dtype);
            n_half += out->dtype == DT_F16;
        }
        net_close(&t);
    }
    assert_true(n_half > 20);
}

static void test_order(void **state)
{
    u32 last = 0;
    for (i64 k = 0; pass_at(k); k++) {
        assert_true(pass_at(k)->rank >= last && pass_at(k)->name && pass_at(k)->summary && pass_at(k)->run);
        last = pass_at(k)->rank;
    }
    assert_true(last > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_random), cmocka_unit_test(test_narrow), cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
