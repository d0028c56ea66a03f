// SPDX-License-Identifier: Apache-2.0
//
// group_grad: random gradients of convolutions' weights (one to three axes, strides, padding, dilation, groups, something in front and
// behind, all layouts, known and unknown sizes) on random devices under random legal schedules give in the interpreter, which finds
// races and accesses outside, what the reference gives; some do on devices. Every way to copy and number of chunks must have been met.
#include "gen_tasks.h"
#include "vulkan_bed.h"

enum { N_PIPES = 3 };

struct seen { u32 n, pipe[N_PIPES], chunks, groups, axes[4]; };

static const struct gen *family(void) { return gen_find(S("group_grad")); }

static void tally(struct bed *b, const struct candidate *c, struct seen *s)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    s->n++;
    s->pipe[value_of(c, "pipe")]++;
    s->chunks += value_of(c, "chunks") > 1;
    s->groups += attr_int(n, "group", 1) > 1;
    s->axes[graph_value(&b->t.g, n->in.v[0])->shape.rank - 2]++;
}

static void try_tasks(u64 from, u64 to, enum dtype type, struct seen *seen)
{
    for (u64 seed = first_seed(from); seed < last_seed(to); seed++) {
        struct bed b;
        struct check k;
        bed_open(&b, seed);
        bed_use_groups(&b);
        b.type = type;
        bool ok = random_grad(&b) && family()->match(&b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e);
        for (u32 i = 0; ok && i < 4; i++) {
            struct candidate c = i ? bed_schedule(&b, family()) : gen_initial(family(), &b.t, &b.caps, b.var);
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            tally(&b, &c, seen);
        }
        if (ok) check_release(&k);
        bed_close(&b);
    }
}

static void test_interpreted(void **state)
{
    struct seen s = {0};
    try_tasks(0, 60, DT_F32, &s);
    try_tasks(1000, 1015, DT_F16, &s);
    try_tasks(2000, 2010, DT_BF16, &s);
    print_message("%u kernels, %u with chunks, %u with groups of channels\n", s.n, s.chunks, s.groups);
    if (getenv("SEED")) return;
    for (u32 i = 0; i < N_PIPES; i++) assert_true(s.pipe[i] > 10);
    for (u32 i = 1; i < 4; i++) assert_true(s.axes[i] > 10);
    assert_true(s.chunks > 20 && s.groups > 10);
}

static void test_devices(void **state)
{
    struct gpus g = find_gpus();
    u32 n = 0;
    for (u64 seed = first_seed(5000); seed < last_seed(5010); seed++) {
        struct bed b;
        bed_open(&b, seed);
        b.only = family();
        if (random_grad(&b)) n += try_gpu(&b, &g, seed);
        bed_close(&b);
    }
    assert_true(n > 4 || getenv("SEED"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreted), cmocka_unit_test(test_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
