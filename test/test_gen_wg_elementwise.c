// SPDX-License-Identifier: Apache-2.0
//
// Elementwise kernels by workgroups: random instances of every operator, and views that
// transpose, in all layouts and element types, under random legal schedules through the
// interpreter, which sees races, divergent barriers and accesses outside. The operators run on a
// Vulkan device, too, where one is present.
#include "gen_fixture.h"
#include "vulkan_fixture.h"

static void test_operators(void **state)
{
    for (u64 seed = first_seed(50, 52); seed < last_seed(50, 52); seed++)
        for (i64 i = 0; op_all(i); i++) {
            struct fixture b;
            if (getenv("OP") && strcmp(getenv("OP"), op_all(i)->name)) continue;
            if (!op_all(i)->random || op_all(i)->props & OP_CALL) continue;
            fixture_open(&b, seed * 1000 + (u64)i);
            fixture_use_workgroups(&b);
            op_all(i)->random(op_all(i), &b.g, &b.rng);
            if (make_single(&b)) try_task(&b, seed, 3);
            fixture_close(&b);
        }
}

/* Runs a kernel on a device, in this process; compares the result. */
static bool run_on(struct dev *d, const struct kernel *k, struct str code, const struct check *c, struct err *e)
{
    const struct graph *g = &c->task->g;
    struct arena a = {0};
    u32 n = k->n_arg + k->n_temp;
    struct dev_mem *mem = arena_array(&a, struct dev_mem, n + 1);
    i64 *param = arena_array(&a, i64, k->n_param + 1), (*grid)[3] = arena_alloc(&a, 24 * k->n_grid + 24);
    struct dev_launch l = {.buf = mem, .n_buf = n, .param = param, .n_param = k->n_param,
                           .grid = (const i64(*)[3])grid, .n_grid = k->n_grid};
    struct dev_kernel *loaded = d->driver->load(d, code, str_of(k->name), k->n_grid, e);
    bool ok = (l.kernel = loaded) != NULL;
    for (u32 i = 0; i < k->n_param; i++) ok = ok && sym_eval(g->sym, k->param[i], c->var, &param[i]);
    for (u32 i = 0; i < 3 * k->n_grid; i++) {
        sym extent = i % 3 < k->grid[i / 3].n ? k->grid[i / 3].extent[i % 3] : sym_const(g->sym, 1);
        ok = ok && sym_eval(g->sym, extent, c->var, &grid[i / 3][i % 3]);
    }
    for (u32 i = 0; i < n && ok; i++) {
        const struct value *v = i < k->n_arg ? graph_value(g, k->arg[i].v) : NULL;
        const struct tensor *packed = v && k->arg[i].pack ? pack_apply(k->arg[i].pack, &c->value[k->arg[i].v], g->sym, &a, NULL) : NULL;
        i64 size = packed ? dtype_size(packed->dtype) : v ? dtype_size(v->dtype) : 1;
        struct place at = {0};
        ok = v ? place_of(&at, g, k->arg[i].v, c->var) : sym_eval(g->sym, k->temp[i - k->n_arg], c->var, &at.count);
        if (packed) at.count = tensor_count(packed);
        ok = ok && d->driver->alloc(d, at.count * size, &mem[i], e);
        if (!ok || !v) continue;
        void *host = packed ? packed->data : arena_alloc(&a, at.count * size + 1);
        if (!packed) memset(host, OTHERS_BYTE, (size_t)(at.count * size));
        if (!packed && !k->arg[i].is_out) place_store(&at, &c->value[k->arg[i].v], host);
        ok = d->driver->upload(d, mem[i], host, at.count * size, e);
    }
    ok = ok && d->driver->launch(d, &l, e) && d->driver->fence(d, e);
    for (u32 i = 0; i < k->n_arg && ok; i++) {
        if (!k->arg[i].is_out) continue;
        void *host = arena_alloc(&a, mem[i].size + 1);
        ok = d->driver->download(d, mem[i], host, mem[i].size, e);
        for (u32 o = 0; o < g->output.n && ok; o++)
            if (g->output.v[o] == k->arg[i].v) ok = compare(c, o, host, e);
    }
    for (u32 i = 0; i < n; i++) d->driver->release(d, &mem[i]);
    if (loaded) d->driver->unload(d, loaded);
    arena_release(&a);
    return ok;
}

/* Mesa's llvmpipe silently ends the loops of a thread after 65,535 iterations: nested sums by single threads exceed that. */
static bool is_too_long(const struct task *t, const i64 *var)
{
    for (u32 i = 0; i < t->g.output.n; i++)
        if (gen_work(t, t->g.output.v[i], var) > 30000) return true;
    return false;
}

/* False: nothing was run. */
static bool try_on(struct dev *d, struct fixture *b, u64 seed)
{
    const struct lang *lang = lang_find(str_of(d->driver->lang));
    struct buf text = {0}, code = {0};
    struct kernel kernel;
    struct candidate c;
    struct check k;
    if (is_too_long(&b->t, b->var)) return false;
    if (!check_init(&k, &b->t, b->var, seed, true, &b->e)) return false; /* sizes that cannot be */
    if (!choose(b, pick(b, 0, 1), &c)) report(b, NULL, seed);
    k.rtol *= 20, k.atol *= 20;
    bool ok = gen_kernel(&kernel, &b->arena, &c, &b->t, &b->caps, &b->e) &&
              lang_render(&text, lang, &kernel.kir, &b->caps, &b->arena, &b->e) &&
              lang->build(&code, buf_view(&text), &b->caps, 60, &b->e) && run_on(d, &kernel, buf_view(&code), &k, &b->e);
    if (!ok) report(b, &c, seed);
    buf_release(&text), buf_release(&code);
    check_release(&k);
    return true;
}

static void try_operators(const struct dev_driver *driver)
{
    struct err e = {0};
    struct dev *d = driver->open(&(struct dev_opts){0}, &e);
    if (!d) fail_msg("%s", e.msg);
    for (i64 i = 0; op_all(i); i++) {
        struct fixture b;
        u64 seed = seeds_env("SEED", 70) * 1000 + (u64)i;
        if (getenv("OP") ? strcmp(getenv("OP"), op_all(i)->name) != 0 : !is_taken((u64)i)) continue;
        if (!op_all(i)->random || op_all(i)->props & OP_CALL) continue;
        fixture_open(&b, seed);
        driver->caps(d, &b.caps);
        op_all(i)->random(op_all(i), &b.g, &b.rng);
        if (make_single(&b)) try_on(d, &b, seed);
        fixture_close(&b);
    }
    driver->close(d);
}

static bool weights_are_constant(const struct fixture *b)
{
    const struct graph *g = &b->t.g;
    return graph_value(g, graph_node(g, b->t.anchor)->in.v[1])->is_const;
}

/* Recurrent layers of constant weights: a family that packs them. */
static void try_packed(const struct dev_driver *driver)
{
    struct err e = {0};
    struct dev *d = driver->open(&(struct dev_opts){0}, &e);
    u32 n = 0;
    if (!d) fail_msg("%s", e.msg);
    for (u64 seed = 70000; n < 3 && seed < 70100; seed++) {
        struct fixture b;
        const struct op *op = op_find(S("quern::Recurrence"));
        fixture_open(&b, seed);
        driver->caps(d, &b.caps);
        b.only = gen_find(S("wg_recurrence"));
        op->random(op, &b.g, &b.rng);
        if (make_single(&b) && gen_matches(b.only, &b.t, &b.caps) && weights_are_constant(&b)) n += try_on(d, &b, seed);
        fixture_close(&b);
    }
    assert_int_equal(n, 3);
    driver->close(d);
}

static void test_device(void **state)
{
    struct gpus g = find_gpus(); /* queries children before this process opens anything */
    vulkan_stay_loaded();
    for (u32 i = 0; i < g.n; i++) {
        try_operators(dev_find(str_of(g.v[i])));
        if (!getenv("OP")) try_packed(dev_find(str_of(g.v[i])));
    }
}

/* A permutation of the axes with something pointwise around it. */
static bool random_transpose(struct fixture *b)
{
    static const enum dtype types[] = {DT_F32, DT_F16, DT_F16, DT_U8, DT_I64, DT_BOOL};
    u32 rank = (u32)pick(b, 1, 4);
    bool symbolic = pick(b, 0, 1);
    sym dim[MAX_RANK];
    i64 perm[MAX_RANK];
    b->type = types[pick(b, 0, countof(types) - 1)];
    for (u32 i = 0; i < rank; i++) {
        i64 n = pick(b, 0, 9) ? pick(b, 1, i + 2 < rank ? 3 : 70) : pick(b, 0, 1);
        dim[i] = size_of(b, n, symbolic && pick(b, 0, 1));
        perm[i] = i;
    }
    for (u32 i = rank; i-- > 1;) {
        i64 j = pick(b, 0, i), t = perm[i];
        perm[i] = perm[j], perm[j] = t;
    }
    value_id x = add_input(b, "x", rank, dim);
    if (dtype_is_float(b->type) && pick(b, 0, 1)) x = add_op(b, "Relu", x, 0, 0);
    value_id y = add_op(b, "Transpose", x, 0, 0);
    attr_set_ints(&b->g, graph_value(&b->g, y)->producer, "perm", perm, rank);
    if (dtype_is_float(b->type) && pick(b, 0, 1)) {
        sym turned[MAX_RANK];
        for (u32 i = 0; i < rank; i++) turned[i] = dim[perm[i]];
        y = add_op(b, "Mul", y, add_input(b, "z", rank, turned), 0);
    }
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static void test_transposes(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(0, 150); seed < last_seed(0, 150); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        if (random_transpose(&b)) n += try_task(&b, seed, 5);
        fixture_close(&b);
    }
    assert_true(is_enough(n, 300));
}

/* The default schedule for a few usual tasks: memory access order. */
static void default_of(struct fixture *b, struct candidate *c)
{
    assert_true(make_task(b));
    assert_true(gen_default(&b->t, &b->caps, b->var, c));
    assert_string_equal(c->gen->name, "wg_elementwise");
}

static void test_choice(void **state)
{
    struct fixture b;
    struct candidate c;
    fixture_open(&b, 1);
    fixture_use_workgroups(&b);
    b.type = DT_F16;
    sym dim[4] = {sym_const(&b.sym, 64), sym_const(&b.sym, 512)};
    *arr_push(&b.arena, &b.g.output) = add_op(&b, "Relu", add_input(&b, "x", 2, dim), 0, 0);
    default_of(&b, &c);
    assert_int_equal(value_of(&c, "vec"), 8); /* 16 bytes */
    assert_int_equal(value_of(&c, "stage"), 0);
    fixture_close(&b);

    fixture_open(&b, 1);
    fixture_use_workgroups(&b);
    sym square[2] = {sym_const(&b.sym, 512), sym_const(&b.sym, 512)};
    *arr_push(&b.arena, &b.g.output) = add_op(&b, "Transpose", add_input(&b, "x", 2, square), 0, 0);
    default_of(&b, &c);
    assert_int_equal(value_of(&c, "stage"), 1);
    assert_int_equal(value_of(&c, "axis"), 1);
    fixture_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_transposes),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
