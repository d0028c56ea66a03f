// SPDX-License-Identifier: Apache-2.0
//
// Layouts of whole networks: for any costs, nothing is copied from one layout to another between
// the first and the last computing kernel, with and without blocked channels. Transposed convolutions are channels last like others.
#include "plan/plan.h"
#include "pass/pass.h"
#include "zoo/zoo.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct net_cover {
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct cover c;
    i64 var[8];
    struct caps caps;
    u64 seed;        /* of random costs, 0: predicted ones */
};

static void open_net(struct net_cover *n, const char *name)
{
    struct err e = {0};
    *n = (struct net_cover){0};
    n->caps = (struct caps){.arch = "test", .vector_bytes = 64, .n_vector_regs = 32, .n_threads = 1, .l1_bytes = 48 << 10,
                            .l2_bytes = 1 << 20, .l3_bytes = 32 << 20, .has_fma = true};
    symtab_init(&n->sym, &n->arena);
    graph_init(&n->g, &n->arena, &n->sym);
    if (!zoo_build(zoo_find(str_of(name)), NULL, true, &n->g, &e) || !op_infer_all(&n->g, &e) || !pass_run_all(&n->g, NULL, &e)) fail_msg("%s", e.msg);
    for (u32 i = 0; i < countof(n->var); i++) n->var[i] = 256;
}

static void cut_net(struct net_cover *n, const struct cover_opts *o)
{
    struct err e = {0};
    if (!cover_build(&n->c, &n->g, &n->arena, o, &e)) fail_msg("%s", e.msg);
}

static bool any_cost(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    struct net_cover *n = user;
    if (!n->seed) return plan_cost_predicted(&n->caps, t, var, c);
    struct rng r = rng_seed(n->seed ^ t->key.lo);
    *c = (struct task_cost){.ok = true, .seconds = (double)rng_range(&r, 1, 1000) * 1e-6};
    return true;
}

static bool is_copy(const struct region *r)
{
    return !r->n_nodes && r->task != NO_TASK && r->in[0].layout != r->out[0].layout;
}

/* Copies between two kernels; *blocked: kernels that deliver channels in blocks. */
static u32 count_copies(struct net_cover *n, u32 *blocked)
{
    struct selection s;
    struct err e = {0};
    u32 copies = 0, first = 0;
    if (!plan_select(&s, &n->c, n->var, any_cost, n, &n->arena, &e)) fail_msg("%s", e.msg);
    u32 last = s.choice.n;
    while (first < last && !n->c.region.v[s.choice.v[first].region].n_nodes) first++;
    while (last > first && !n->c.region.v[s.choice.v[last - 1].region].n_nodes) last--;
    for (u32 i = first; i < last; i++) {
        const struct region *r = &n->c.region.v[s.choice.v[i].region];
        copies += is_copy(r);
        for (u32 k = 0; k < r->n_out; k++) *blocked += layout_block(r->out[k].layout) > 1;
    }
    return copies;
}

static void check_net(const char *name, bool has_blocks)
{
    static const struct cover_opts cut[] = {{0}, {.blocks = LAYOUT_C16}, {.blocks = LAYOUT_C8, .blocks_from = 64}};
    u32 blocked = 0;
    for (u32 i = 0; i < countof(cut); i++) {
        struct net_cover n;
        open_net(&n, name);
        cut_net(&n, &cut[i]);
        if (!i) assert_int_equal(count_copies(&n, &blocked), 0);
        for (n.seed = 1; n.seed < 12; n.seed++)
            if (count_copies(&n, &blocked)) fail_msg("%s: a copy with blocks '%s', seed %d", name, layout_name(cut[i].blocks), (int)n.seed);
        assert_true(blocked == 0 || i > 0);
        struct arena a = n.arena;
        arena_release(&a);
    }
    assert_int_equal(blocked > 0, has_blocks);
}

/* Without any other convolution near them. */
static void test_transposed(void **state)
{
    struct net_cover n = {0};
    struct err e = {0};
    symtab_init(&n.sym, &n.arena);
    graph_init(&n.g, &n.arena, &n.sym);
    value_id x = graph_add_value(&n.g, S("x")), in = x;
    const i64 dim[] = {1, 32, 4, 4};
    graph_value(&n.g, x)->dtype = DT_F32, graph_value(&n.g, x)->shape = (struct shape){.known = true, .rank = 4};
    for (u32 a = 0; a < 4; a++) graph_value(&n.g, x)->shape.dim[a] = sym_const(&n.sym, dim[a]);
    *arr_push(&n.arena, &n.g.input) = x;
    for (u32 i = 0; i < 3; i++) {
        struct tensor *w = tensor_new(&n.arena, DT_F32, 4, (i64[]){32, 32, 4, 4});
        value_id y = graph_op(&n.g, "ConvTranspose", S("y"), 2, (value_id[]){x, graph_add_const(&n.g, S("w"), w)});
        attr_set_ints(&n.g, graph_value(&n.g, y)->producer, "strides", (i64[]){2, 2}, 2);
        attr_set_ints(&n.g, graph_value(&n.g, y)->producer, "pads", (i64[]){1, 1, 1, 1}, 4);
        x = graph_op(&n.g, "Relu", S("relu"), 1, &y);
    }
    *arr_push(&n.arena, &n.g.output) = x;
    if (!op_infer_all(&n.g, &e)) fail_msg("%s", e.msg);
    cut_net(&n, NULL);
    for (u32 i = 0; i < n.c.region.n; i++)
        for (u32 k = 0; k < n.c.region.v[i].n_out; k++) {
            struct form f = n.c.region.v[i].out[k];
            assert_true(f.v == x || f.v == in || f.layout == LAYOUT_CLAST);
        }
    struct arena a = n.arena;
    arena_release(&a);
}

static void test_resnet50(void **state) { check_net("resnet50", true); }
static void test_mobilenetv2(void **state) { check_net("mobilenetv2", true); }
static void test_oidn(void **state) { check_net("oidn", true); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_resnet50),
        cmocka_unit_test(test_mobilenetv2),
        cmocka_unit_test(test_oidn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
