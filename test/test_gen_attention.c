// SPDX-License-Identifier: Apache-2.0
//
// Attention in one kernel: random instances (heads that share keys, masks that leave nothing, large scores, one key or none, sizes that are not known, inputs with
// room behind them as caches have, softmax in several spellings and other functions of rows) under random legal schedules agree with the reference
// evaluator, interpreted, compiled and in exact arithmetic, by dot products of 16-bit operands, also in a promised order of sums, with keys divided among grid
// iterations, in pages that a table names, and with statistics of rows as results; other graphs are refused.
#include "gen_instances.h"

static void open_attention(struct fixture *b, u64 seed)
{
    fixture_open(b, seed);
    b->only = gen_find(S("attention"));
    b->type = seed % 7 == 3 ? DT_F16 : seed % 7 == 5 ? DT_BF16 : DT_F32;
}

static bool build_random(struct fixture *b, u64 seed)
{
    b->caps.deterministic = seed % 5 == 4;
    return random_attention(b);
}

static void test_random(void **state) { try_instances(&(struct instances){open_attention, build_random, 0, 400, .least = 500, .tries = 4}); }

static bool build_statistics(struct fixture *b, u64 seed)
{
    b->caps.deterministic = seed % 7 == 4;
    return random_attention(b) && b->g.output.n == 1 && add_statistics(b);
}

static void test_statistics(void **state) { try_instances(&(struct instances){open_attention, build_statistics, 8000, 8300, .least = 100, .tries = 4}); }

static void test_parts(void **state)
{
    u32 all_compiled = 0;
    for (enum attention_part part = 0; part < N_PARTS; part++) {
        u32 n = 0, n_compiled = 0;
        for (u64 seed = first_seed(10000, 10250); seed < last_seed(10000, 10250); seed++) {
            struct fixture b;
            open_attention(&b, seed);
            bool ok = random_attention_part(&b, seed, part);
            b.caps.deterministic = seed % 7 == 4 && part < PART_COLUMNS;
            u32 own = ok ? try_task(&b, seed, 4) : 0;
            if (own && seed % 16 == 3) try_device(&b, "cpu", seed), n_compiled++;
            n += own;
            fixture_close(&b);
        }
        print_message("%s: %u kernels, %u compiled\n", attention_part_name(part), n, n_compiled);
        assert_true(is_enough(n, 16));
        all_compiled += n_compiled;
    }
    assert_true(is_enough(all_compiled, 3));
}

static bool build_exact_part(struct fixture *b, u64 seed) { return random_attention_part(b, seed, seed % N_PARTS) && b->type == DT_F32; }

static void test_exact_parts(void **state) { try_exactly(&(struct instances){open_attention, build_exact_part, 12000, 12200, .least = 30}); }

static bool has_dot(struct fixture *b)
{
    struct kernel k;
    struct candidate c = gen_initial(b->only, &b->t, &b->caps, b->var);
    bool found = false;
    if (!gen_kernel(&k, &b->arena, &c, &b->t, &b->caps, &b->e)) report(b, &c, 0);
    for (kval i = 1; i < k.kir.ins.n; i++) found |= k.kir.ins.v[i].op == KI_DOT;
    return found;
}

/* Scores of 16-bit operands by dot products, where the target has them for their type; not where a prologue has made them f32. */
static void test_dots(void **state)
{
    static const char dots[] = "bf16,bf16,f32 f16,f16,f32";
    u32 n = 0, n_dots = 0;
    for (u64 seed = first_seed(9000, 9160); seed < last_seed(9000, 9160); seed++) {
        struct fixture b;
        open_attention(&b, seed);
        b.type = seed % 2 ? DT_F16 : DT_BF16;
        memcpy(b.caps.dot, dots, sizeof dots);
        if (random_attention(&b) && (seed % 3 || place_in_room(&b)) && gen_matches(b.only, &b.t, &b.caps)) n += try_task(&b, seed, 4), n_dots += has_dot(&b);
        fixture_close(&b);
    }
    print_message("%u kernels, of %u default ones with DOT\n", n, n_dots);
    assert_true(is_enough(n, 100) && is_enough(n_dots, 20));
}

static void test_empty(void **state) { try_instances(&(struct instances){open_attention, random_empty_attention, 14000, 15200, .least = 200, .tries = 4}); }

/* Rows of a product that are not those of whole heads. */
static void test_cut_heads(void **state)
{
    struct fixture b;
    open_attention(&b, 5);
    try_cut_heads(&b, 5);
    fixture_close(&b);
}

static bool build_in_room(struct fixture *b, u64 seed)
{
    b->caps.deterministic = seed % 7 == 4;
    return random_attention(b) && place_in_room(b);
}

static void test_room(void **state) { try_instances(&(struct instances){open_attention, build_in_room, 4000, 4300, .least = 200, .tries = 4}); }

static void test_compiled(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(2000, 2060); seed < last_seed(2000, 2060); seed++) {
        struct fixture b;
        open_attention(&b, seed);
        if (random_attention(&b) && (seed % 2 || place_in_room(&b)) && gen_matches(b.only, &b.t, &b.caps)) try_device(&b, "cpu", seed), n++;
        fixture_close(&b);
    }
    assert_true(is_enough(n, 8));
}

/* A random schedule that divides the keys; false: none is found. */
static bool choose_split(struct fixture *b, struct candidate *c)
{
    u32 split = 0;
    while (!str_is(str_of("split"), b->only->param[split].name)) split++;
    for (u32 try = 0; try < 100; try++) {
        if (!gen_random(&b->t, &b->caps, &b->rng, c)) return false;
        if (c->gen == b->only && c->sched.v[split]) return true;
    }
    return false;
}

/* Every part of the keys has its own maximum, and some have no key of a row. */
static void test_split(void **state)
{
    u32 n = 0, n_compiled = 0;
    for (u64 seed = first_seed(6000, 6600); seed < last_seed(6000, 6600); seed++) {
        struct fixture b;
        struct candidate c;
        struct check k;
        open_attention(&b, seed);
        bool is_compiled = seed % 8 == 0;
        if (random_attention(&b) && (seed % 3 || place_in_room(&b)) && gen_matches(b.only, &b.t, &b.caps) && choose_split(&b, &c) &&
            check_init(&k, &b.t, b.var, seed, true, &b.e)) {
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            check_release(&k);
            struct dev_opts o = {.n_threads = 2};
            assert_true(!is_compiled || dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e));
            if (is_compiled && choose_split(&b, &c)) {
                open_device_check(&b, &k, seed);
                if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
                check_release(&k);
                n_compiled++;
            }
            n++;
        }
        fixture_close(&b);
    }
    print_message("%u kernels, %u compiled\n", n, n_compiled);
    assert_true(is_enough(n, 60) && is_enough(n_compiled, 4));
}

/* Keys or values (b, h, n, size) in pages of a cache (pages, positions, h, size) that a table names. */
static value_id paged(struct fixture *b, const char *name, const struct attention_sizes *z, sym page, value_id table, i64 size)
{
    sym d = sym_const(&b->sym, size), dim[] = {z->b, z->n, z->h, d};
    value_id v = add_op(b, "Gather", add_input(b, name, 4, (const sym[]){draw_size(b, 1, 9, 2), page, z->h, d}), table, 0);
    v = add_op(b, "quern::Reshape", v, 0, 0);
    op_set_syms(&b->g, graph_value(&b->g, v)->producer, "shape", dim, 4);
    return with_perm(b, v, (const i64[]){0, 2, 1, 3});
}

static bool random_paged(struct fixture *b)
{
    static const i64 head[] = {1, 4, 8, 16, 19, 32}, pages[] = {1, 3, 8, 16, 20, 32, 64};
    struct symtab *t = &b->sym;
    struct attention_sizes z = {.each = 1, .d = head[pick(b, 0, 5)], .e = head[pick(b, 0, 5)]};
    z.b = draw_size(b, 1, 2, 2), z.h = sym_const(t, pick(b, 1, 4)), z.sq = pick(b, 0, 1) ? sym_const(t, 1) : draw_size(b, 1, 5, 2);
    sym page = sym_const(t, pages[pick(b, 0, 6)]), n_pages = draw_size(b, 1, 9, 2);
    z.n = sym_mul(t, n_pages, page);
    value_id table = add_input(b, "table", 2, (const sym[]){z.b, n_pages});
    graph_value(&b->g, table)->dtype = DT_I64;
    value_id q = add_input(b, "q", 4, (const sym[]){z.b, z.h, z.sq, sym_const(t, z.d)}), k = paged(b, "k", &z, page, table, z.d), v = paged(b, "v", &z, page, table, z.e);
    value_id x = add_op(b, "MatMul", q, with_perm(b, k, (const i64[]){0, 1, 3, 2}), 0);
    x = random_softmax(b, random_scores(b, x, &z, true), &z);
    if (!pick(b, 0, 2)) {
        value_id is_there = add_input(b, "is_there", 4, (const sym[]){z.b, sym_const(t, 1), z.n, sym_const(t, 1)});
        graph_value(&b->g, is_there)->dtype = DT_BOOL;
        v = add_op(b, "Where", is_there, v, op_const_f(&b->g, b->type, 0));
    }
    x = add_op(b, "MatMul", x, v, 0);
    *arr_push(&b->arena, &b->g.output) = x;
    return infer_nodes(b) && make_task(b);
}

/* A random schedule that reads keys where they lie; false: none is found. */
static bool choose_in_place(struct fixture *b, struct candidate *c)
{
    u32 keys = 0;
    while (!str_is(str_of("keys"), b->only->param[keys].name)) keys++;
    for (u32 try = 0; try < 200; try++) {
        if (!gen_random(&b->t, &b->caps, &b->rng, c)) return false;
        if (c->gen == b->only && c->sched.v[keys]) return true;
    }
    return false;
}

/* All of an attention through pages, by itself or as a part that is one kernel, too: statistics, or an output from given ones. */
static bool open_paged(struct fixture *b, u64 seed)
{
    static const char dots[] = "bf16,bf16,f32 f16,f16,f32";
    open_attention(b, seed);
    if (seed % 2) memcpy(b->caps.dot, dots, sizeof dots);
    if (!random_paged(b)) return false;
    return seed % 5 == 1 ? take_part(b, PART_STATISTICS) : seed % 5 == 3 ? take_part(b, PART_OUTPUT) : true;
}

/* Keys and values through a table of pages: whole pages, parts of them, all heads in turns. */
static void test_pages(void **state)
{
    u32 n = 0, n_parts = 0, n_heads = 0, n_exact = 0, n_compiled = 0, heads = 0;
    while (!str_is(str_of("heads"), gen_find(S("attention"))->param[heads].name)) heads++;
    for (u64 seed = first_seed(9000, 9300); seed < last_seed(9000, 9300); seed++) {
        struct fixture b;
        struct candidate c;
        struct check k;
        if (open_paged(&b, seed) && gen_matches(b.only, &b.t, &b.caps) && choose_in_place(&b, &c) && check_init(&k, &b.t, b.var, seed, true, &b.e)) {
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            check_release(&k);
            n++, n_parts += seed % 5 % 2, n_heads += c.sched.v[heads] == 1;
            if (b.type == DT_F32 && seed % 4 == 1) n_exact += check_exactly(&b, seed, &c);
            struct dev_opts o = {.n_threads = 2};
            if (seed % 16 == 0 && dev_ask(dev_find(S("cpu")), &o, &b.caps, NULL, &b.e) && choose_in_place(&b, &c)) {
                open_device_check(&b, &k, seed);
                if (!verify_on(&b, "cpu", &c, &k)) report(&b, &c, seed);
                check_release(&k);
                n_compiled++;
            }
        }
        fixture_close(&b);
    }
    print_message("%u kernels, %u of parts, %u of several heads, %u exact, %u compiled\n", n, n_parts, n_heads, n_exact, n_compiled);
    assert_true(is_enough(n, 30) && is_enough(n_parts, 8) && is_enough(n_heads, 2) && is_enough(n_exact, 2));
}

static bool build_exact(struct fixture *b, u64 seed)
{
    b->type = DT_F32;
    b->caps.deterministic = seed % 2;
    return random_attention(b);
}

static void test_exact(void **state) { try_exactly(&(struct instances){open_attention, build_exact, 0, 160, .least = 30}); }

/* Whether a task is of the family. */
static bool is_attention_of(const char *text, bool is_ordered)
{
    struct arena a = {0};
    struct symtab st;
    struct task t;
    struct err e = {0};
    struct caps c = {.arch = "test", .vector_bytes = 64, .n_vector_regs = 32, .n_threads = 1, .l1_bytes = 32 << 10, .l2_bytes = 1 << 20, .deterministic = is_ordered};
    symtab_init(&st, &a);
    if (!task_parse(&t, &a, &st, str_of(text), &e)) fail_msg("%s", e.msg);
    bool yes = gen_matches(gen_find(S("attention")), &t, &c);
    arena_release(&a);
    return yes;
}

static bool is_attention(const char *text) { return is_attention_of(text, false); }

#define HEAD "graph {\n  input %q: f32[2,4,10,16]\n  input %k: f32[2,4,16,30]\n  input %v: f32[2,4,30,8]\n  input %z: f32[2,4,10,30]\n" \
             "  input %w0: f32[2,4,10,8]\n  %s: none[?] = MatMul(%q, %k)\n"
#define MAX "  %m: none[?] = quern::ReduceMax(%s) {axes=[3], keepdims=1}\n  %d: none[?] = Sub(%s, %m)\n  %e: none[?] = Exp(%d)\n"
#define SUM "  %l: none[?] = quern::ReduceSum(%e) {axes=[3], keepdims=1}\n  %p: none[?] = Div(%e, %l)\n"
#define SUMS "  %l: none[?] = quern::ReduceSum(%e) {axes=[3], keepdims=1}\n  %f: none[?] = Div(%e, %l)\n"
#define COLUMNS "  %c: none[?] = quern::ReduceSum(%p) {axes=[2], keepdims=0}\n"
#define VALUES """  %y: none[?] = MatMul(%p, %v)\n  output %y\n"

static void test_refused(void **state)
{
    static const struct { const char *text; bool is_attention; } what[] = {
        {HEAD MAX SUM VALUES "}\n", true},
        {HEAD MAX SUM VALUES "  output %p\n}\n", false},                                                                /* probabilities are needed */
        {HEAD MAX SUM VALUES "  output %l\n}\n", true},                                                                 /* statistics of rows */
        {HEAD MAX SUM VALUES "  output %e\n}\n", false},
        {HEAD MAX SUM "  %w: none[?] = MatMul(%p, %v)\n  %y: none[?] = Add(%w, %w0)\n  output %y\n}\n", true},
        {HEAD MAX SUM "  %w: none[?] = MatMul(%p, %v)\n  %y: none[?] = Mul(%w, %l)\n  output %y\n}\n", false},           /* behind the second product */
        {HEAD MAX SUM "  %w: none[?] = MatMul(%p, %v)\n  %y: none[?] = quern::ReduceSum(%w) {axes=[3], keepdims=1}\n  output %y\n}\n", false},
        {HEAD "  %p: none[?] = Exp(%s)\n" VALUES "}\n", true},                                                          /* nothing is reduced */
        {HEAD MAX "  output %m\n}\n", true},                                                                            /* no second product */
        {HEAD MAX SUM "  output %m\n  output %l\n}\n", true},
        {HEAD MAX SUM "  output %p\n}\n", false},
        {HEAD MAX SUM COLUMNS VALUES "  output %c\n}\n", true},                                                         /* sums of columns */
        {HEAD MAX SUM COLUMNS "  output %c\n}\n", true},
        {HEAD "  %p: none[?] = Exp(%s)\n" COLUMNS "  output %c\n}\n", true},
        {HEAD MAX SUM COLUMNS "  %a: none[?] = quern::ReduceSum(%c) {axes=[2], keepdims=1}\n  output %a\n}\n", false},
        {HEAD MAX "  %l: none[?] = quern::ReduceSum(%e) {axes=[2], keepdims=1}\n  %p: none[?] = Div(%e, %l)\n" VALUES "}\n", false},   /* along queries */
        {HEAD MAX SUMS "  %p: none[?] = Add(%f, %s)\n" VALUES "}\n", false},                                             /* scores and exponentials */
        {HEAD MAX SUMS "  %p: none[?] = Add(%f, %z)\n" VALUES "}\n", true},
        {"graph {\n  input %q: f32[4,10,10]\n  input %k: f32[4,10,10]\n  input %v: f32[4,10,8]\n  %s: none[?] = MatMul(%q, %k)\n"
         "  %t: none[?] = Transpose(%s) {perm=[0,2,1]}\n  %l: none[?] = quern::ReduceSum(%t) {axes=[2], keepdims=1}\n  %p: none[?] = Div(%t, %l)\n" VALUES "}\n", false},
    };
    for (u32 i = 0; i < countof(what); i++)
        if (is_attention(what[i].text) != what[i].is_attention) fail_msg("task %u", i);
}

#define LONG(ROWS) "graph {\n  input %q: f32[4," ROWS ",16]\n  input %k: f32[4,16,9000]\n  input %v: f32[4,9000,8]\n  %s: none[?] = MatMul(%q, %k)\n"

/* Rows of which not all together fit into the second cache, where keys are not taken by blocks: of other functions of them, or in a promised order of sums. */
static void test_long(void **state)
{
    const char *sigmoid = LONG("70") "  %e: none[?] = Sigmoid(%s)\n  %l: none[?] = quern::ReduceSum(%e) {axes=[2], keepdims=1}\n  %p: none[?] = Div(%e, %l)\n" VALUES "}\n";
    const char *softmax = LONG("9000") "  %m: none[?] = quern::ReduceMax(%s) {axes=[2], keepdims=1}\n  %d: none[?] = Sub(%s, %m)\n  %e: none[?] = Exp(%d)\n"
                          "  %l: none[?] = quern::ReduceSum(%e) {axes=[2], keepdims=1}\n  %p: none[?] = Div(%e, %l)\n" VALUES "}\n";
    assert_true(is_attention_of(sigmoid, false) && is_attention_of(softmax, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_exact_parts),
        cmocka_unit_test(test_dots),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_cut_heads),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_compiled),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
