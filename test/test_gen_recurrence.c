// SPDX-License-Identifier: Apache-2.0
//
// Kernels of recurrent layers: random cells, directions, lengths, states and peepholes, f16 to f64, sizes known or symbolic, weights constant
// or not, under random legal schedules of the families for processors and for devices with workgroups. The interpreted kernel agrees
// with the reference evaluator, without races or accesses outside; some are compiled and run on the processor and on a Vulkan
// device, where one is present.
#include "gen_tasks.h"
#include "vulkan_fixture.h"

static bool random_layer(struct fixture *b)
{
    const struct op *op = op_find(S("quern::Recurrence"));
    op->random(op, &b->g, &b->rng);
    for (u32 i = 0; pick(b, 0, 1) && i < b->g.input.n; i++) { /* steps and batch of the projected inputs */
        struct shape *s = &graph_value(&b->g, b->g.input.v[i])->shape;
        i64 n;
        for (u32 k = 0; i == 0 && k < 2; k++)
            if (sym_is_const(&b->sym, s->dim[k], &n)) s->dim[k] = size_of(b, n, true);
    }
    return make_single(b);
}

static void try_layers(const char *family, u64 n_seeds)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (str_starts(str_of(family), S("wg_"))) fixture_use_workgroups(&b);
        b.only = gen_find(str_of(family));
        if (random_layer(&b)) n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 2 * n_seeds));
}

static void test_processor(void **state) { try_layers("recurrence", 90); }
static void test_groups(void **state) { try_layers("wg_recurrence", 60); }

static void test_devices(void **state)
{
    struct gpus g = find_gpus();
    for (u64 seed = first_seed(1000, 1010); seed < last_seed(1000, 1010); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        if (seed % 2) fixture_use_workgroups(&b);
        b.only = gen_find(seed % 2 ? S("wg_recurrence") : S("recurrence"));
        if (!random_layer(&b)) fail_msg("seed %llu: %s", (unsigned long long)seed, b.e.msg);
        if (seed % 2) try_gpu(&b, &g, seed);
        else try_device(&b, "cpu", seed);
        fixture_close(&b);
    }
}

/* A schedule of several threads; false: the layer has too few units. */
static bool choose_threads(struct fixture *b, struct candidate *c)
{
    for (u32 i = 1; i < 200 && choose(b, i, c); i++)
        for (u32 p = 0; c->gen == b->only && p < c->gen->n_param; p++)
            if (!strcmp(c->gen->param[p].name, "split") && c->sched.v[p] > 1) return true;
    return false;
}

/* With the intended number of threads, and with one: the device starts the others. */
static void test_threads(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2010); seed < last_seed(2000, 2010); seed++) {
        struct fixture b;
        struct candidate c;
        struct check k;
        fixture_open(&b, seed);
        b.only = gen_find(S("recurrence"));
        b.caps.n_threads = 3;
        if (random_layer(&b) && choose_threads(&b, &c) && check_init(&k, &b.t, b.var, seed, true, &b.e)) {
            for (u32 i = 0; i < 2; i++) {
                b.caps.n_threads = i ? 1 : 3;
                if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
                n++;
            }
            check_release(&k);
        }
        fixture_close(&b);
    }
    assert_true(is_enough(n, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_threads),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
