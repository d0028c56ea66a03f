// SPDX-License-Identifier: Apache-2.0
//
// Language spirv on device vulkan against the interpreter: random kernels must give the same bytes, functions of floats the
// same value within units in the last place. Skipped where there is no Vulkan device.
#include "lang_bed.h"

struct bed { /* the device, for all tests */
    struct dev *dev;
    struct caps caps;
};

static int open_device(void **state)
{
    static struct bed bed;
    struct err e = {0};
    const struct dev_driver *vulkan = dev_find(S("vulkan"));
    assert_non_null(vulkan);
    bed.dev = vulkan->open(&(struct dev_opts){0}, &e);
    if (bed.dev) vulkan->caps(bed.dev, &bed.caps);
    else print_message("no vulkan device: %s\n", e.msg);
    *state = &bed;
    return 0;
}

static int close_device(void **state)
{
    struct bed *b = *state;
    if (b->dev) b->dev->driver->close(b->dev);
    return 0;
}

static void check_run(struct bed *b, struct run *r, const struct caps *c, const char *what)
{
    struct buf binary = {0};
    void *out[MAX_ARGS];
    build_as(r, "spirv", c, &binary);
    if (os_env("QUERN_TEST_KEEP")) os_write(os_env("QUERN_TEST_KEEP"), binary.p, binary.n, &(struct err){0});
    run_native(r, b->dev, buf_view(&binary), out);
    interpret(r);
    compare(r, out, what);
    buf_release(&binary);
}

static i64 n_random(void) { return os_env("QUERN_TEST_N") ? atoi(os_env("QUERN_TEST_N")) : 8; }
static u64 seed(void) { return os_env("QUERN_TEST_SEED") ? (u64)atoll(os_env("QUERN_TEST_SEED")) : 3000; }

static void random_kernels(struct bed *b, const struct caps *c, u64 first)
{
    for (i64 i = 0; i < n_random(); i++) {
        struct run r = {0};
        struct rng g = rng_seed(first + (u64)i);
        char what[64];
        snprintf(what, sizeof what, "kernel %lld", (long long)(first + (u64)i));
        random_kernel(&r, &g);
        check_run(b, &r, c, what);
        arena_release(&r.arena);
    }
}

static void random_kernels_agree(void **state)
{
    struct bed *b = *state;
    if (!b->dev) skip();
    random_kernels(b, &b->caps, seed());
}

/* Small types through words, halves by integer arithmetic: what a poorer device would get. */
static void random_kernels_agree_on_less(void **state)
{
    struct bed *b = *state;
    if (!b->dev) skip();
    struct caps c = b->caps;
    c.has_i8 = c.has_i16 = c.has_f16 = c.has_rte_f16 = c.has_nan = c.has_fma = false;
    c.max_push = 0;
    c.spirv = 13;
    random_kernels(b, &c, seed() + 500);
}

/* As every generator without groups is run on such a device: one old iteration per thread. The parameters' texts are sizes
   in A and B. */
static void spread(struct run *r, u32 threads)
{
    struct kir out;
    struct symtab table;
    struct err e = {0};
    const i64 var[] = {r->param[0], r->param[1]};
    symtab_init(&table, &r->arena);
    sym_var(&table, S("A"));
    sym_var(&table, S("B"));
    if (!kir_spread(&out, &r->arena, &r->kir, threads, &e)) fail_with(r, "spread", &e);
    r->kir = out;
    assert_true(out.param.n <= countof(r->param));
    for (u32 i = 0; i < out.param.n; i++)
        assert_true(sym_eval(&table, sym_parse(&table, out.param.v[i], &e), var, &r->param[i]));
    u32 n = 0;
    for (kval v = 1; v < out.ins.n; v++) { /* one dimension each */
        if (kir_at(&out, v)->op != KI_GRID) continue;
        const struct kir_ins *x = kir_at(&out, kir_at(&out, v)->a);
        r->grid[n][0] = x->op == KI_PARAM ? r->param[x->imm.i] : x->imm.i;
        r->grid[n][1] = r->grid[n][2] = 1;
        n++;
    }
    assert_int_equal(n, r->n_grid);
}

static void structures_agree(void **state)
{
    struct bed *b = *state;
    if (!b->dev) skip();
    for (u64 i = 0; i < 6; i++) {
        struct run r = {0};
        struct rng g = rng_seed(i);
        structured_kernel(&r, &g, (const char *const[]){"A", "B"});
        spread(&r, 8u << i % 3);
        check_run(b, &r, &b->caps, "structured kernel");
        arena_release(&r.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_kernels_agree),
        cmocka_unit_test(random_kernels_agree_on_less),
        cmocka_unit_test(structures_agree),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
