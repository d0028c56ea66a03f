// SPDX-License-Identifier: Apache-2.0
//
// The cover of a small network with a skip connection: which regions must be there for the selector to choose from, and what
// the same network costs with a kernel for each node.
#include "gen_bed.h"
#include "pass/pass.h"
#include "plan/plan.h"

/* conv and relu; the result is pooled, and joined again with what became of the pooling */
static const char net[] = "graph {\n"
                          "  input %x: f32[1,4,2*h,2*w]\n"
                          "  const %w: f32[8,4,3,3]\n"
                          "  const %v: f32[4,16,3,3]\n"
                          "  %c: none[?] = Conv(%x, %w) {pads=[1,1,1,1]}\n"
                          "  %full: none[?] = Relu(%c)\n"
                          "  %half: none[?] = MaxPool(%full) {kernel_shape=[2,2], strides=[2,2]}\n"
                          "  %up: none[?] = quern::Upsample(%half) {scales=[1,1,2,2]}\n"
                          "  %both: none[?] = Concat(%up, %full) {axis=1}\n"
                          "  %y: none[?] = Conv(%both, %v) {pads=[1,1,1,1]}\n"
                          "  output %y\n"
                          "}\n";

struct world {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct cover c;
    struct err e;
};

static void world_open(struct world *w, bool no_fusion)
{
    *w = (struct world){0};
    symtab_init(&w->sym, &w->a);
    if (!graph_parse(&w->g, &w->a, &w->sym, S(net), &w->e) || !pass_run_all(&w->g, NULL, &w->e) ||
        !cover_build(&w->c, &w->g, &w->a, &(struct cover_opts){.no_fusion = no_fusion}, &w->e))
        fail_msg("%s", w->e.msg);
}

static void world_close(struct world *w) { arena_release(&w->a); }

/* "Conv+Relu->c,full": operators and values delivered */
static struct str name_of(struct world *w, const struct region *r)
{
    struct buf b = {0};
    for (u32 i = 0; i < r->n_nodes; i++)
        buf_printf(&b, "%s%.*s", i ? "+" : "", STR_ARG(graph_node(&w->g, r->nodes[i])->op));
    for (u32 i = 0; i < r->n_out; i++)
        buf_printf(&b, "%s%.*s", i ? "," : "->", STR_ARG(graph_value(&w->g, r->out[i].v)->name));
    struct str s = str_dup(&w->a, buf_view(&b));
    buf_release(&b);
    return s;
}

static bool has_region(struct world *w, const char *name)
{
    for (u32 i = 0; i < w->c.region.n; i++)
        if (str_is(name_of(w, &w->c.region.v[i]), name)) return true;
    return false;
}

static void test_alternatives(void **state)
{
    static const char *const names[] = {
        "Conv+Relu->full",                       /* pointwise behind the anchor */
        "Conv+Relu+MaxPool->full,half",          /* pooling beside the skip connection */
        "quern::Upsample+Concat+Conv->y",        /* views in front */
        "Conv->y",                               /* or kept out */
        "quern::Upsample+Concat->both",
        "Conv->c", "Relu->full", "MaxPool->half", "quern::Upsample->up", "Concat->both",
    };
    struct world w;
    world_open(&w, false);
    for (u32 i = 0; i < countof(names); i++)
        if (!has_region(&w, names[i])) fail_msg("no region %s", names[i]);
    world_close(&w);
}

static void test_no_fusion(void **state)
{
    struct world w;
    world_open(&w, true);
    for (u32 i = 0; i < w.c.region.n; i++) assert_true(w.c.region.v[i].n_nodes <= 1);
    world_close(&w);
}

/* Every kernel costs the same: the fewest are chosen. */
static bool one_each(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    *c = (struct task_cost){.ok = true, .seconds = 1};
    return true;
}

static void test_selection(void **state)
{
    struct world w;
    struct selection s;
    world_open(&w, false);
    const i64 var[] = {8, 8};
    assert_true(plan_select(&s, &w.c, var, one_each, NULL, &w.a, &w.e));
    assert_int_equal(s.choice.n, 2); /* conv, relu and pool; the rest */
    plan_select_unfused(&s, &w.c, &w.a);
    assert_true(s.unfused.n >= 6 && s.unfused_seconds == s.unfused.n);
    for (u32 i = 0; i < s.unfused.n; i++)
        assert_true(w.c.region.v[s.unfused.v[i].region].n_nodes <= 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_no_fusion),
        cmocka_unit_test(test_selection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
