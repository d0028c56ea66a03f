// SPDX-License-Identifier: Apache-2.0
//
// Matmuls and convolutions by matrix units of processors (AMX): bytes to i32, exactly, and bf16 to f32, of random sizes that are no multiples of a
// tile's, under random legal schedules, against the reference evaluator: interpreted; compiled for this processor with a model of the tile
// registers (tile_model.h); and compiled for a processor that has them, of which only the instructions are looked at.
#include "gen_kinds.h"

extern const struct gen gen_gemm, gen_conv_gemm, gen_conv_igemm;

static const char units[] = "16x16x32:bf16,bf16,f32,f32 16x16x64:u8,i8,i32,i32 16x16x64:i8,i8,i32,i32 16x16x64:i8,u8,i32,i32 16x16x64:u8,u8,i32,i32";

static void use_units(struct caps *c)
{
    c->vector_bytes = 64, c->n_vector_regs = 32;
    memcpy(c->matrix, units, sizeof units);
}

static u32 count(const struct kir *k, enum kir_op op)
{
    u32 n = 0;
    for (kval v = 1; v < k->ins.n; v++) n += kir_at(k, v)->op == op;
    return n;
}

static bool random_large_bytes(struct fixture *b)
{
    b->is_large = true;
    return random_bytes(b);
}

static bool random_large_halves(struct fixture *b)
{
    b->type = DT_BF16;
    return random_large(b);
}

static bool random_large_conv_halves(struct fixture *b)
{
    b->is_large = true;
    return random_conv_halves(b);
}

static bool random_large_conv_bytes(struct fixture *b)
{
    b->is_large = true;
    return random_conv_bytes(b);
}

static const struct kind { bool (*make)(struct fixture *); const struct gen *gen; } kinds[] = {
    {random_large_bytes, &gen_gemm},         {random_large_halves, &gen_gemm},     {random_large_conv_bytes, &gen_conv_gemm},
    {random_large_conv_bytes, &gen_conv_igemm}, {random_large_conv_halves, &gen_conv_gemm}, {random_large_conv_halves, &gen_conv_igemm},
};

static bool uses_units(struct fixture *b, const struct candidate *c)
{
    struct kernel k;
    if (!gen_kernel(&k, &b->arena, c, &b->t, &b->caps, &b->e)) report(b, c, 0);
    return count(&k.kir, KI_FMMA) > 0;
}

/* Schedules of the family: the default one first, then some that use the unit, if there are any among a few. */
static struct candidate schedule(struct fixture *b, const struct gen *g, u32 i)
{
    enum { DRAWS = 8 };
    struct candidate c = gen_initial(g, &b->t, &b->caps, b->var);
    for (u32 n = 0; i && n < DRAWS && (n == 0 || !uses_units(b, &c)); n++) c = fixture_schedule(b, g);
    return c;
}

/* How many kernels of a family use the unit. */
static u32 interpret_kind(const struct kind *x, u64 seed, u32 tries)
{
    struct fixture b;
    struct check k;
    u32 n = 0;
    fixture_open(&b, seed);
    use_units(&b.caps);
    b.only = x->gen;
    if (x->make(&b) && gen_takes(x->gen, &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e)) {
        for (u32 i = 0; i < tries; i++) {
            struct candidate c = schedule(&b, x->gen, i);
            if (!uses_units(&b, &c)) continue;
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            n++;
        }
        check_release(&k);
    }
    fixture_close(&b);
    return n;
}

static void test_interpreted(void **state)
{
    u32 all = 0;
    for (i64 i = 0; i < countof(kinds); i++) {
        u32 n = 0;
        for (u64 seed = first_seed(0, 24); seed < last_seed(0, 24); seed++) n += interpret_kind(&kinds[i], seed, 3);
        print_message("%s: %u kernels by matrix units\n", kinds[i].gen->name, n);
        all += n;
    }
    assert_true(is_enough(all, 100)); /* few kinds have some in a part of the seeds */
}

/* On this processor, where tile registers are a model. */
static u32 run_kind(const struct kind *x, u64 seed, u32 tries)
{
    struct dev_opts o = {.n_threads = 2};
    struct fixture b;
    struct check k;
    u32 n = 0;
    fixture_open(&b, seed);
    assert_true(dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
    use_units(&b.caps);
    if (x->make(&b) && gen_takes(x->gen, &b.t, &b.caps)) {
        open_device_check(&b, &k, seed);
        for (u32 i = 0; i < tries; i++) {
            struct candidate c = schedule(&b, x->gen, i);
            if (!uses_units(&b, &c)) continue;
            if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
            n++;
        }
        check_release(&k);
    }
    fixture_close(&b);
    return n;
}

static void test_modelled(void **state)
{
    struct arena a = {0};
    char *model = realpath("test/tile_model.h", NULL);
    struct buf b = {0};
    struct err e = {0};
    assert_non_null(model);
    setenv("QUERN_CC", str_fmt(&a, "gcc -include %s", model).p, 1);
    free(model);
    if (!lang_find(S("c"))->toolchain(&b, NULL, &e)) skip_test("no gcc");
    for (i64 i = 0; i < countof(kinds); i++) {
        u32 n = 0;
        for (u64 seed = first_seed(100, 108); seed < last_seed(100, 108); seed++) n += run_kind(&kinds[i], seed, 2);
        print_message("%s: %u kernels by a model of tiles\n", kinds[i].gen->name, n);
        assert_true(is_enough(n, 3));
    }
    unsetenv("QUERN_CC");
    buf_release(&b);
    arena_release(&a);
}

/* Instructions. */

static struct caps processor(const char *isa)
{
    struct caps c = {.n_threads = 1, .l1_bytes = 48 << 10, .l2_bytes = 2 << 20, .l3_bytes = 32 << 20};
    struct isa s;
    struct err e = {0};
    assert_true(isa_parse(&s, str_of(isa), &e));
    isa_limits(&c, s);
    return c;
}

/* Of the default kernel of a matmul; false: it cannot be built or disassembled here. */
static bool disassemble(struct buf *out, enum dtype left, enum dtype right)
{
    struct fixture b;
    struct candidate c;
    struct kernel k;
    struct buf text = {0}, bin = {0};
    struct str dir;
    fixture_open(&b, 0);
    b.caps = processor("x86-64-v4+avx512vnni+avx512bf16+amx-bf16+amx-int8");
    b.type = left;
    sym dim[2] = {sym_const(&b.sym, 100), sym_const(&b.sym, 130)};
    value_id x = add_input(&b, "x", 2, dim);
    b.type = right;
    value_id w = dtype_is_int(right) ? const_ints(&b, "w", right, 2, (i64[]){130, 70}) : add_const(&b, "w", 2, (i64[]){130, 70});
    *arr_push(&b.arena, &b.g.output) = add_op(&b, "MatMul", x, w, 0);
    assert_true(make_task(&b));
    assert_true(os_temp_dir(&b.arena, &dir, &b.e));
    const char *path = str_fmt(&b.arena, "%.*s/k.so", STR_ARG(dir)).p;
    c = (struct candidate){.gen = &gen_gemm};
    c = gen_initial(&gen_gemm, &b.t, &b.caps, b.var);
    const struct lang *l = lang_find(S("c"));
    if (!gen_kernel(&k, &b.arena, &c, &b.t, &b.caps, &b.e) || !lang_render(&text, l, &k.kir, &b.caps, &b.arena, &b.e)) report(&b, &c, 0);
    if (!l->build(&bin, buf_view(&text), &b.caps, 60, &b.e)) report(&b, &c, 0);
    bool ok = os_write(path, bin.p, bin.n, &b.e);
    const char *const argv[] = {"objdump", "-d", path, NULL};
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 60, .out = out});
    os_remove_tree(str_z(&b.arena, dir));
    buf_release(&text), buf_release(&bin);
    fixture_close(&b);
    return ok && s.how == OS_EXITED && s.code == 0;
}

static void test_instructions(void **state)
{
    static const struct { enum dtype a, b; const char *name; } products[] = {
        {DT_BF16, DT_BF16, "tdpbf16ps"}, {DT_U8, DT_I8, "tdpbusd"}, {DT_I8, DT_I8, "tdpbssd"}, {DT_I8, DT_U8, "tdpbsud"}, {DT_U8, DT_U8, "tdpbuud"}};
    static const char *const others[] = {"ldtilecfg", "tileloadd", "tilestored", "tilezero", "tilerelease"};
    unsetenv("QUERN_CC");
    if (isa_here().family != ISA_X86_64) skip_test("the compiler is not for x86-64");
    for (i64 i = 0; i < countof(products); i++) {
        struct buf out = {0};
        if (!disassemble(&out, products[i].a, products[i].b)) skip_test("no objdump");
        buf_char(&out, 0);
        if (!strstr(out.p, products[i].name)) fail_msg("no %s:\n%s", products[i].name, out.p);
        for (i64 j = 0; j < countof(others); j++)
            if (!strstr(out.p, others[j])) fail_msg("no %s:\n%s", others[j], out.p);
        buf_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_interpreted), cmocka_unit_test(test_modelled), cmocka_unit_test(test_instructions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
