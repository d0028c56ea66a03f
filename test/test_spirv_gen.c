// SPDX-License-Identifier: Apache-2.0
//
// Kernels of random tasks in language spirv, by every family for workgroups: spirv-val accepts them
// for devices from the smallest to large ones, and a Vulkan device, if there is one, computes the
// results of the reference evaluator.
#include "gen_kinds.h"
#include "spirv_tools.h"
#include "vulkan_fixture.h"

static struct dev *device; /* NULL: none */
static struct caps device_caps;

static int open_device(void **state)
{
    struct err e = {0};
    device = dev_find(S("vulkan"))->open(&(struct dev_opts){0}, &e);
    if (device) device->driver->caps(device, &device_caps);
    return 0;
}

static int close_device(void **state)
{
    if (device) device->driver->close(device);
    return 0;
}

static bool write_module(struct buf *out, const struct kernel *k, const struct caps *c,
                         struct err *e)
{
    struct arena a = {0};
    struct buf text = {0};
    const struct lang *l = lang_find(S("spirv"));
    bool ok = lang_render(&text, l, &k->kir, c, &a, e) && l->build(out, buf_view(&text), c, 10, e);
    if (!ok && getenv("DUMP")) printf("%s\n", text.p);
    buf_release(&text);
    arena_release(&a);
    return ok;
}

static bool uses_matrices(struct str module)
{
    struct spirv_info info;
    struct err e = {0};
    if (!spirv_read_info(&info, module, &e)) fail_msg("%s", e.msg);
    return spirv_has_capability(&info, SPV_CAP_MATRIX);
}

static bool validate(struct str module, const struct caps *c, struct err *e)
{
    struct buf out = {0}, nv = {0};
    const char *option[] = {"--target-env", target_env(c), NULL};
    if (uses_matrices(module)) matrices_to_nv(module, &nv);
    bool ok = run_tool("spirv-val", option, nv.n ? buf_view(&nv) : module, &out);
    if (!ok) err_set(e, ERR_FAILED, "%s", out.p);
    if (getenv("KEEP")) os_write(getenv("KEEP"), module.p, module.n, e);
    buf_release(&out);
    buf_release(&nv);
    return ok;
}

static bool launch(const struct kernel *k, struct dev_kernel *code, const struct check *c,
                   const struct bound *b, struct err *e)
{
    const struct dev_driver *v = device->driver;
    struct dev_mem mem[64];
    i64 grid[16][3], n = 0;
    bool ok = k->n_arg + k->n_temp <= countof(mem) && k->n_grid <= countof(grid);
    for (u32 i = 0; i < k->n_arg; i++) {
        i64 size = b->arg[i].n * dtype_size(kir_dtype(&k->kir, k->kir.buf.v[i].id));
        ok = ok && v->alloc(device, size, &mem[n++], e) &&
             v->upload(device, mem[i], b->arg[i].p, size, e);
    }
    for (u32 i = 0; i < k->n_temp; i++) {
        i64 size;
        ok = ok && sym_eval(c->task->g.sym, k->temp[i], c->var, &size) &&
             v->alloc(device, size, &mem[n++], e);
    }
    for (u32 i = 0; i < k->n_grid; i++)
        for (u32 d = 0; d < 3; d++) {
            grid[i][d] = 1;
            if (d < k->grid[i].n)
                ok = ok && sym_eval(c->task->g.sym, k->grid[i].extent[d], c->var, &grid[i][d]);
        }
    struct dev_launch l = {.kernel = code,
                           .buf = mem,
                           .n_buf = (u32)n,
                           .param = b->param,
                           .n_param = k->n_param,
                           .grid = (const i64(*)[3])grid,
                           .n_grid = k->n_grid};
    ok = ok && v->launch(device, &l, e) && v->fence(device, e);
    for (u32 i = 0; ok && i < k->n_arg; i++)
        ok = v->download(device, mem[i], b->arg[i].p, mem[i].size, e);
    while (n > 0) v->release(device, &mem[--n]);
    return ok;
}

static bool run_on_device(const struct kernel *k, struct str module, const struct check *c,
                          struct arena *a, struct err *e)
{
    struct bound b;
    if (!bind_arguments(&b, k, c, a, e)) return false;
    struct dev_kernel *code = device->driver->load(device, module, str_of(k->name), k->n_grid, e);
    bool ok = code && launch(k, code, c, &b, e) && compare_outputs(k, c, &b, e);
    if (code) device->driver->unload(device, code);
    return ok;
}

static bool try_candidate(struct fixture *b, const struct candidate *c, const struct check *k,
                          bool runs)
{
    struct arena a = {0};
    struct kernel kernel;
    struct buf module = {0};
    bool ok = gen_kernel(&kernel, &a, c, &b->t, &b->caps, &b->e) &&
              write_module(&module, &kernel, &b->caps, &b->e) &&
              validate(buf_view(&module), &b->caps, &b->e);
    if (ok && runs) ok = run_on_device(&kernel, buf_view(&module), k, &a, &b->e);
    buf_release(&module);
    arena_release(&a);
    return ok;
}

/* The first schedule of every family that does the task, and two random ones; for a random target
   or for the device. */
static u32 try_spirv(struct fixture *b, u64 seed, bool runs)
{
    struct check k;
    u32 done = 0;
    if (runs) b->caps = device_caps;
    b->caps.spirv = runs ? device_caps.spirv : 16;
    if (!check_init(&k, &b->t, b->var, seed, true, &b->e)) return 0;
    for (i64 i = -2; i < 0 || gen_at(i); i++) {
        struct candidate c;
        if (i < 0 && !gen_random(&b->t, &b->caps, &b->rng, &c)) continue;
        if (i >= 0 && !gen_takes(gen_at(i), &b->t, &b->caps)) continue;
        if (i >= 0) c = gen_initial(gen_at(i), &b->t, &b->caps, NULL);
        if (getenv("GEN") && !str_is(str_of(getenv("GEN")), c.gen->name)) continue;
        if (!try_candidate(b, &c, &k, runs)) report(b, &c, seed);
        done++;
    }
    check_release(&k);
    return done;
}

static void try_tasks(u64 n_seeds, bool runs)
{
    static bool (*const make[])(struct fixture *) = {random_conv, random_gemm, random_row, random_pool, random_transpose};
    u32 n = 0;
    for (u64 seed = first_seed(0, n_seeds); seed < last_seed(0, n_seeds); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        if (pick(&b, 0, 2) == 0) b.type = DT_F16;
        if (make[seed % countof(make)](&b)) n += try_spirv(&b, seed, runs);
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, n_seeds / 2));
}

static void kernels_are_valid(void **state) { try_tasks(70, false); }

/* Attention by cooperative matrices: the default schedule and a random one. */
static void attention_is_valid(void **state)
{
    const struct gen *g = gen_find(S("mma_attention"));
    u32 n = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.type = DT_F16, b.caps.spirv = 16;
        bool is_there = random_attention(&b) && gen_matches(g, &b.t, &b.caps);
        for (u32 i = 0; is_there && i < 2; i++, n++) {
            struct candidate c = i ? fixture_schedule(&b, g) : gen_initial(g, &b.t, &b.caps, b.var);
            if (!try_candidate(&b, &c, NULL, false)) report(&b, &c, seed);
        }
        fixture_close(&b);
    }
    print_message("%u kernels\n", n);
    assert_true(is_enough(n, 12));
}

static void kernels_compute(void **state)
{
    if (!device) skip_test("no Vulkan device");
    try_tasks(20, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_valid),
        cmocka_unit_test(attention_is_valid),
        cmocka_unit_test(kernels_compute),
    };
    vulkan_stay_loaded();
    return cmocka_run_group_tests(tests, open_device, close_device);
}
