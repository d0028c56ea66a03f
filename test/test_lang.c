// SPDX-License-Identifier: Apache-2.0
//
// Language c on device cpu against the interpreter: random kernels must yield the same bytes, float
// functions the same value within units in the last place. Compiled without contraction, so that
// all roundings are the interpreter's; otherwise as for users. Also failures of compilers.
#include "lang_fixture.h"

/* The compiler from now on, NULL: the usual one, with such options. */
static void use_compiler(const char *name, const char *options)
{
    char command[256];
    snprintf(command, sizeof command, "%s %s", name ? name : "", options);
    setenv("QUERN_CC", command, 1);
}

static struct dev *open_cpu(u32 n_threads)
{
    struct err e = {0};
    struct dev *d = dev_find(S("cpu"))->open(&(struct dev_opts){.n_threads = n_threads}, &e);
    assert_non_null(d);
    return d;
}

static void build(struct run *r, const struct caps *c, struct buf *binary)
{
    build_as(r, "c", c, binary);
}

static void check_run(struct run *r, const struct caps *c, const char *what)
{
    struct dev *one = open_cpu(1), *two = open_cpu(2);
    struct buf binary = {0};
    void *a[MAX_ARGS], *b[MAX_ARGS];
    build(r, c, &binary);
    run_native(r, one, buf_view(&binary), a);
    run_native(r, two, buf_view(&binary), b);
    interpret(r);
    compare(r, a, what);
    compare(r, b, what);
    buf_release(&binary);
    one->driver->close(one);
    two->driver->close(two);
}

/* isa: NULL: this processor's */
static void caps_of(struct caps *c, const char *isa)
{
    struct dev *d = open_cpu(1);
    struct isa s;
    struct err e = {0};
    d->driver->caps(d, c);
    d->driver->close(d);
    if (!isa) return;
    assert_true(isa_parse(&s, str_of(isa), &e));
    isa_limits(c, s);
}

static void random_kernels(u64 from, u64 to, const char *isa)
{
    struct caps c;
    caps_of(&c, isa);
    for (u64 seed = first_seed(from, to); seed < last_seed(from, to); seed++) {
        struct run r = {.shift = seed % 3};
        struct rng g = rng_seed(seed);
        char what[128];
        snprintf(what, sizeof what, "kernel %llu", (unsigned long long)seed);
        random_kernel(&r, &g);
        check_run(&r, &c, what);
        arena_release(&r.arena);
    }
}

static void test_random_gcc(void **state)
{
    if (!has_compiler("gcc")) skip_test("no gcc");
    use_compiler("gcc", "-ffp-contract=off");
    random_kernels(1000, 1048, NULL);
}

static void test_random_clang(void **state)
{
    if (!has_compiler("clang")) skip_test("no clang (tool/deps ci)");
    use_compiler("clang", "-ffp-contract=off");
    random_kernels(1000, 1048, NULL);
}

static bool runs_on(const char *arch)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    d->driver->caps(d, &c);
    d->driver->close(d);
    return str_starts(str_of(c.arch), str_of(arch));
}

static void test_random_older(void **state) /* fewer instructions: the helpers' other halves */
{
    static const char *const compilers[] = {"gcc", "clang"};
    if (!runs_on("x86_64")) skip_test("this processor is no x86_64");
    for (i64 i = 0; i < countof(compilers); i++) {
        if (!has_compiler(compilers[i])) continue;
        use_compiler(compilers[i], "-ffp-contract=off");
        random_kernels(1500, 1512, "x86-64");
        if (!(runs_on("x86_64-avx2") || runs_on("x86_64-avx512"))) continue;
        random_kernels(1600, 1612, "x86-64-v3");
    }
}

/* Halves: every f16 and bf16, and f32 around every number and midpoint of both, converted in vectors of any width. */

enum { HALVES = 1 << 16 };

/* Numbers of a half type, midpoints between them, their neighbours in f32, and extremes. */
static struct kir_arg around_halves(struct run *r, enum dtype t)
{
    enum { EACH = 4, MORE = 64 };
    static const double more[] = {INFINITY, -INFINITY, NAN, 0, -0.0, 65504, 65519.996, 65520, -65520, 3.4028235e38, 0x1p-126, 0x1p-149, -0x1p-149, 0x1p-25, 0x1.8p-25, 0x1p-24};
    struct kir_arg a = {.n = EACH * (HALVES / 2) + MORE};
    a.p = arena_alloc(&r->arena, a.n * 4);
    float *p = a.p;
    for (u32 i = 0; i < HALVES / 2; i++) {
        u16 w[2] = {(u16)i, (u16)(i + 1)};
        float low = (float)elem_f64(t, w, 0), next = (float)elem_f64(t, w, 1), mid = low + (next - low) / 2;
        const float v[EACH] = {low, mid, nextafterf(mid, INFINITY), -nextafterf(mid, 0)};
        for (u32 j = 0; j < EACH; j++) *p++ = v[j];
    }
    for (u32 i = 0; i < MORE; i++) *p++ = (float)more[i % countof(more)];
    return a;
}

/* out = x as type `to`; spread: one element in all lanes. */
static void conversion_kernel(struct run *r, enum dtype from, enum dtype to, u32 lanes, bool spread)
{
    struct kir *k = &r->kir;
    i64 n = r->arg[0].n / lanes;
    kir_init(k, &r->arena, S("conversion"));
    kir_buf(k, S("x"), from, KA_IN);
    kir_buf(k, S("y"), to, KA_OUT);
    r->n_arg = 2;
    r->arg[1] = (struct kir_arg){arena_alloc(&r->arena, n * lanes * 4), n * lanes};
    r->grid[0][0] = r->param[0] = n, r->grid[0][1] = r->grid[0][2] = r->n_grid = 1;
    kval at = kir_mul_i(k, kir_grid(k, kir_param(k, S("n"))), lanes), vector = kir_ramp(k, at, 1, lanes);
    kval x = kir_load(k, k->buf.v[0].id, spread ? at : vector);
    kir_store(k, k->buf.v[1].id, vector, kir_splat(k, kir_cast(k, to, x), lanes));
    kir_end(k);
}

static void check_conversions(enum dtype t, u32 lanes, const struct caps *c)
{
    for (u32 kind = 0; kind < 3; kind++) {
        struct run r = {0};
        char what[128];
        bool narrows = kind == 2;
        if (narrows) r.arg[0] = around_halves(&r, t);
        else r.arg[0] = (struct kir_arg){arena_alloc(&r.arena, HALVES * 2), HALVES};
        for (u32 i = 0; !narrows && i < HALVES; i++) ((u16 *)r.arg[0].p)[i] = (u16)i;
        snprintf(what, sizeof what, "%s %s f32, %u lanes, %s", dtype_name(t), narrows ? "from" : kind ? "spread to" : "to", lanes, c->arch);
        conversion_kernel(&r, narrows ? DT_F32 : t, narrows ? t : DT_F32, lanes, kind == 1);
        check_run(&r, c, what);
        arena_release(&r.arena);
    }
}

static void check_halves(struct dev *d, const char *set)
{
    struct caps c;
    struct isa s;
    struct err e = {0};
    d->driver->caps(d, &c);
    if (set && isa_parse(&s, str_of(set), &e) && isa_contains(c.isa, isa_for_code(s))) isa_limits(&c, s);
    for (u32 lanes = 1; lanes <= 16; lanes *= lanes == 1 ? 4 : 2) {
        check_conversions(DT_F16, lanes, &c);
        check_conversions(DT_BF16, lanes, &c);
    }
}

static void test_halves(void **state)
{
    struct dev *d = open_cpu(1);
    unsetenv("QUERN_CC");
    check_halves(d, NULL);
    if (runs_on("x86_64")) check_halves(d, "x86-64-v3"), check_halves(d, "x86-64");
    if (has_compiler("clang")) check_halves(d, NULL);
    unsetenv("QUERN_CC");
    d->driver->close(d);
}

/* What chooses among bf16 is narrowed without rounding: maxima with bounds, negated, of every bf16, NaN included. */
static void test_chosen_halves(void **state)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    unsetenv("QUERN_CC");
    d->driver->caps(d, &c);
    for (u32 lanes = 1; lanes <= 16; lanes *= 4) {
        struct run r = {.n_arg = 2};
        struct kir *k = &r.kir;
        r.arg[0] = (struct kir_arg){arena_alloc(&r.arena, HALVES * 2), HALVES}, r.arg[1] = (struct kir_arg){arena_alloc(&r.arena, HALVES * 2), HALVES};
        for (u32 i = 0; i < HALVES; i++) ((u16 *)r.arg[0].p)[i] = (u16)i;
        kir_init(k, &r.arena, S("chosen"));
        kir_buf(k, S("x"), DT_BF16, KA_IN);
        kir_buf(k, S("y"), DT_BF16, KA_OUT);
        r.grid[0][0] = r.param[0] = HALVES / lanes, r.grid[0][1] = r.grid[0][2] = r.n_grid = 1;
        kval at = kir_ramp(k, kir_mul_i(k, kir_grid(k, kir_param(k, S("n"))), lanes), 1, lanes);
        kval x = kir_cast(k, DT_F32, kir_load(k, k->buf.v[0].id, at)), least = kir_max(k, kir_un(k, KI_NEG, x), kir_const_f(k, DT_F32, lanes, -2.5));
        kval inside = kir_lt(k, x, kir_const_f(k, DT_F32, lanes, 1000));
        kir_store(k, k->buf.v[1].id, at, kir_cast(k, DT_BF16, kir_select(k, inside, least, x)));
        kir_end(k);
        check_run(&r, &c, "chosen bf16");
        arena_release(&r.arena);
    }
    d->driver->close(d);
}

/* A rounded vector that becomes integers: ties of both parities, neighbours of ties, bounds. */
static void check_rounding(const struct caps *c, enum dtype t, u32 lanes)
{
    enum { COUNT = 1024 };
    struct run r = {.n_arg = 2};
    struct kir *k = &r.kir;
    double least = t == DT_U8 ? 0 : -128;
    r.arg[0] = (struct kir_arg){arena_alloc(&r.arena, COUNT * 4), COUNT}, r.arg[1] = (struct kir_arg){arena_alloc(&r.arena, COUNT * 4), COUNT};
    for (u32 i = 0; i < COUNT; i++) {
        float x = (float)((double)i * 0.5 - 256); /* neighbours of ties: one unit in the last place */
        ((float *)r.arg[0].p)[i] = i % 3 ? nextafterf(x, i % 3 == 1 ? -INFINITY : INFINITY) : x;
    }
    kir_init(k, &r.arena, S("rounded"));
    kir_buf(k, S("x"), DT_F32, KA_IN);
    kir_buf(k, S("y"), t, KA_OUT);
    r.grid[0][0] = r.param[0] = COUNT / lanes, r.grid[0][1] = r.grid[0][2] = r.n_grid = 1;
    kval at = kir_ramp(k, kir_mul_i(k, kir_grid(k, kir_param(k, S("n"))), lanes), 1, lanes), x = kir_load(k, k->buf.v[0].id, at);
    x = kir_min(k, kir_const_f(k, DT_F32, lanes, least + 255), kir_max(k, kir_const_f(k, DT_F32, lanes, least), x));
    kir_store(k, k->buf.v[1].id, at, kir_cast(k, t, kir_un(k, KI_RINT, x)));
    kir_end(k);
    check_run(&r, c, dtype_name(t));
    arena_release(&r.arena);
}

static void test_roundings(void **state)
{
    static const enum dtype types[] = {DT_U8, DT_I8, DT_I16, DT_I32};
    struct dev *d = open_cpu(1);
    struct isa s;
    struct err e = {0};
    unsetenv("QUERN_CC");
    for (u32 set = 0; set < (runs_on("x86_64") ? 3u : 1u); set++) {
        struct caps c;
        d->driver->caps(d, &c);
        if (set && isa_parse(&s, str_of(set == 1 ? "x86-64-v3" : "x86-64"), &e) && isa_contains(c.isa, isa_for_code(s))) isa_limits(&c, s);
        for (u32 i = 0; i < countof(types); i++)
            for (u32 lanes = 1; lanes <= 32; lanes *= 2) check_rounding(&c, types[i], lanes);
    }
    d->driver->close(d);
}

/* A vector of integers as vectors of all types of up to 32 bits: every number of 16 bits, in others those of more digits, too. */
static void check_integers(const struct caps *c, enum dtype from, u32 lanes)
{
    static const enum dtype types[] = {DT_U8, DT_I8, DT_U16, DT_I16, DT_U32, DT_I32, DT_F32};
    struct run r = {.n_arg = 1 + countof(types)};
    struct kir *k = &r.kir;
    char what[128];
    kir_init(k, &r.arena, S("integers"));
    kir_buf(k, S("x"), from, KA_IN);
    for (u32 i = 0; i <= countof(types); i++) r.arg[i] = (struct kir_arg){arena_alloc(&r.arena, HALVES * 4), HALVES};
    for (u32 i = 0; i < HALVES; i++) elem_set_i64(from, r.arg[0].p, i, i % 3 ? i : (i64)i * -65537);
    for (u32 i = 0; i < countof(types); i++) kir_buf(k, str_of(dtype_name(types[i])), types[i], KA_OUT);
    r.grid[0][0] = r.param[0] = HALVES / lanes, r.grid[0][1] = r.grid[0][2] = r.n_grid = 1;
    kval at = kir_ramp(k, kir_mul_i(k, kir_grid(k, kir_param(k, S("n"))), lanes), 1, lanes), x = kir_load(k, k->buf.v[0].id, at);
    for (u32 i = 0; i < countof(types); i++) kir_store(k, k->buf.v[1 + i].id, at, kir_cast(k, types[i], x));
    kir_end(k);
    snprintf(what, sizeof what, "%s, %u lanes, %s", dtype_name(from), lanes, c->arch);
    check_run(&r, c, what);
    arena_release(&r.arena);
}

static void test_integers(void **state)
{
    static const enum dtype types[] = {DT_U8, DT_I8, DT_U16, DT_I16, DT_U32, DT_I32};
    static const char *const sets[] = {NULL, "x86-64-v3", "x86-64"};
    struct dev *d = open_cpu(1);
    struct isa s;
    struct err e = {0};
    unsetenv("QUERN_CC");
    for (u32 set = 0; set < (runs_on("x86_64") ? countof(sets) : 1u); set++) {
        struct caps c;
        d->driver->caps(d, &c);
        if (set && isa_parse(&s, str_of(sets[set]), &e) && isa_contains(c.isa, isa_for_code(s))) isa_limits(&c, s);
        for (u32 i = 0; i < countof(types); i++)
            for (u32 lanes = 1; lanes <= 32; lanes *= lanes == 1 ? 8 : 2) check_integers(&c, types[i], lanes);
    }
    d->driver->close(d);
}

/* Multiply-adds of integers wrap, in vectors as in scalars. */
static void test_integer_products(void **state)
{
    static const enum dtype types[] = {DT_I32, DT_U32, DT_I64, DT_U64, DT_I16, DT_U8};
    struct dev *d = open_cpu(1);
    struct caps c;
    unsetenv("QUERN_CC");
    d->driver->caps(d, &c);
    for (u32 i = 0; i < 4 * countof(types); i++) {
        enum { COUNT = 256 };
        static const char *const names[] = {"x", "y", "z", "out"};
        enum dtype t = types[i / 4];
        u32 lanes = (u32[]){1, 4, 8, 16}[i % 4];
        struct run r = {.n_arg = countof(names)};
        struct kir *k = &r.kir;
        struct rng g = rng_seed(i);
        kval v[3];
        kir_init(k, &r.arena, S("product"));
        for (u32 a = 0; a < countof(names); a++) {
            kir_buf(k, str_of(names[a]), t, a < 3 ? KA_IN : KA_OUT);
            r.arg[a] = (struct kir_arg){arena_alloc(&r.arena, COUNT * 8), COUNT};
            for (i64 j = 0; a < 3 && j < COUNT; j++) elem_set_i64(t, r.arg[a].p, j, (i64)(rng_u64(&g) >> rng_range(&g, 0, 63)));
        }
        r.grid[0][0] = r.param[0] = COUNT / lanes, r.grid[0][1] = r.grid[0][2] = r.n_grid = 1;
        kval at = kir_ramp(k, kir_mul_i(k, kir_grid(k, kir_param(k, S("n"))), lanes), 1, lanes);
        for (u32 a = 0; a < 3; a++) v[a] = kir_load(k, k->buf.v[a].id, at);
        kir_store(k, k->buf.v[3].id, at, kir_fma(k, v[0], v[1], v[2]));
        kir_end(k);
        check_run(&r, &c, dtype_name(t));
        arena_release(&r.arena);
    }
    d->driver->close(d);
}

/* Accumulators: those of a reduction, which a compiler may vectorise. */

enum { ROWS = 8, TERMS = 151, FORMS = 3 };

/* Element (row, form) of the output: the first terms of a row combined by n accumulators, the rest by the first one of them. */
static void put_accumulation(struct kir *k, enum kir_op op, i64 n, kval row, kval terms, i64 form)
{
    enum dtype t = kir_dtype(k, k->buf.v[0].id);
    kval reg[8], zero = kir_int(k, 0), at = kir_mul_i(k, row, TERMS), whole = kir_mul_i(k, kir_bin(k, KI_DIV, terms, kir_int(k, n)), n);
    for (i64 i = 0; i < n; i++) {
        reg[i] = kir_alloc(k, KS_REG, t, 1, kir_int(k, 1));
        kir_store(k, reg[i], zero, kir_const_i(k, t, 1, op == KI_MUL));
    }
    for (u32 is_rest = 0; is_rest < 2; is_rest++) {
        kval j = kir_loop(k, KL_SERIAL, is_rest ? whole : zero, is_rest ? terms : whole, is_rest ? 1 : n);
        kval first = kir_add(k, at, j);
        for (i64 i = 0; i < (is_rest ? 1 : n); i++) {
            kval x = kir_load(k, k->buf.v[0].id, kir_add_i(k, first, i));
            kval y = kir_load(k, reg[i], zero);
            kir_store(k, reg[i], zero, kir_bin(k, op, y, x));
        }
        kir_end(k);
    }
    kval all = kir_load(k, reg[0], zero);
    for (i64 i = 1; i < n; i++) {
        kval y = kir_load(k, reg[i], zero);
        all = kir_bin(k, op, all, y);
    }
    kir_store(k, k->buf.v[1].id, kir_add_i(k, kir_mul_i(k, row, FORMS), form), all);
}

/* Rows of fewer and fewer terms. */
static void check_accumulation(const struct caps *c, enum dtype t, enum kir_op op)
{
    struct run r = {.n_arg = 2, .param = {ROWS, TERMS}, .grid = {{ROWS, 1, 1}}, .n_grid = 1};
    struct rng g = rng_seed(op);
    kir_init(&r.kir, &r.arena, S("accumulation"));
    kir_buf(&r.kir, S("x"), t, KA_IN), kir_buf(&r.kir, S("out"), t, KA_OUT);
    for (u32 a = 0; a < 2; a++) r.arg[a] = (struct kir_arg){arena_alloc(&r.arena, ROWS * TERMS * 8), ROWS * (a ? FORMS : TERMS)};
    for (i64 j = 0; j < ROWS * TERMS; j++) elem_set_i64(t, r.arg[0].p, j, rng_range(&g, -99, 99) | 1);
    kval rows = kir_param(&r.kir, S("rows")), terms = kir_param(&r.kir, S("terms")), row = kir_grid(&r.kir, rows);
    for (i64 form = 0; form < FORMS; form++) put_accumulation(&r.kir, op, 2 << form, row, kir_sub(&r.kir, terms, row), form);
    kir_end(&r.kir);
    check_run(&r, c, dtype_name(t));
    arena_release(&r.arena);
}

static void test_accumulators(void **state)
{
    static const enum dtype types[] = {DT_I64, DT_I32, DT_I16, DT_I8, DT_U32};
    static const enum kir_op ops[] = {KI_ADD, KI_MUL, KI_SUB, KI_MAX};
    static const char *const isas[] = {NULL, "x86-64-v3"};
    if (has_compiler("gcc")) use_compiler("gcc", "-ffp-contract=off");
    else unsetenv("QUERN_CC");
    for (u32 s = 0; s < countof(isas); s++) {
        struct caps c;
        if (isas[s] && !runs_on("x86_64-avx512")) continue; /* here it is native, or too much */
        caps_of(&c, isas[s]);
        for (u32 i = 0; i < countof(types); i++)
            for (u32 j = 0; j < countof(ops); j++) check_accumulation(&c, types[i], ops[j]);
    }
}

static const char *const sizes[2] = {"rows/4", "n */ x"}; /* stand in comments */

static void test_structure(void **state)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    use_compiler(NULL, "-ffp-contract=off");
    d->driver->caps(d, &c);
    for (u64 i = 0; i < 6; i++) {
        struct run r = {0};
        struct rng g = rng_seed(i);
        structured_kernel(&r, &g, sizes);
        check_run(&r, &c, "structured kernel");
        arena_release(&r.arena);
    }
    d->driver->close(d);
}

static void check_function(const struct function *f, u32 lanes, const struct caps *c, struct dev *d)
{
    enum { COUNT = 1 << 16 };
    struct run r = {0};
    struct buf binary = {0};
    void *out[MAX_ARGS];
    function_kernel(&r, f->op, lanes, COUNT);
    for (u32 i = 0; i < 2; i++)
        r.arg[i] = (struct kir_arg){arena_alloc(&r.arena, COUNT * 4), COUNT};
    fill_function(f, r.arg[0].p, COUNT);
    build(&r, c, &binary);
    run_native(&r, d, buf_view(&binary), out);
    double at, worst = function_error(f, r.arg[0].p, out[1], COUNT, &at);
    if (worst > f->ulp)
        print_message("%s x%u: %g ulp at %.9g\n", kir_op_info(f->op)->name, lanes, worst, at);
    assert_true(worst <= f->ulp);
    buf_release(&binary);
    arena_release(&r.arena);
}

static void check_functions(i64 n)
{
    struct dev *d = open_cpu(1);
    struct caps c;
    d->driver->caps(d, &c);
    for (i64 i = 0; i < n; i++) {
        check_function(&functions[i], c.vector_bytes / 4, &c, d);
        check_function(&functions[i], 1, &c, d);
    }
    d->driver->close(d);
}

static void test_functions(void **state)
{
    unsetenv("QUERN_CC");
    check_functions(countof(functions));
}

static void
test_functions_variants(void **state) /* without fused multiply-add, and by the other compiler */
{
    use_compiler(NULL, "-ffp-contract=off");
    check_functions(4);
    if (has_compiler("clang")) check_functions(4);
    unsetenv("QUERN_CC");
}

/* Failures, determinism, and the other devices. */

static void small_kernel(struct run *r)
{
    function_kernel(r, KI_NEG, 4, 128);
    r->arg[0] = (struct kir_arg){arena_alloc(&r->arena, 512), 128};
    r->arg[1] = (struct kir_arg){arena_alloc(&r->arena, 512), 128};
    for (i64 i = 0; i < 128; i++) ((float *)r->arg[0].p)[i] = (float)i;
}

static u32 count_word(struct str s, const char *word)
{
    u32 n = 0;
    i64 len = (i64)strlen(word);
    for (i64 i = 0; i + len <= s.n; i++) n += !memcmp(s.p + i, word, (size_t)len);
    return n;
}

/* Only grids that store past the caches wait for their stores at the end. */
static void test_streams(void **state)
{
    struct run r = {0};
    struct rng g = rng_seed(1);
    struct buf text = {0};
    struct caps c = {.vector_bytes = 64};
    struct err e = {0};
    structured_kernel(&r, &g, (const char *const[]){"three", "n"});
    assert_true(lang_render(&text, lang_find(S("c")), &r.kir, &c, &r.arena, &e));
    assert_int_equal(r.n_grid, 2);
    assert_int_equal(count_word(buf_view(&text), "sfence"), 1);
    buf_release(&text);
    arena_release(&r.arena);
}

/* Functions of workgroups have arguments before temporary arrays, as launches do, wherever the kernel allocates them. */
static void test_order_of_arrays(void **state)
{
    static const char *const langs[] = {"opencl", "cuda", "hip"};
    for (i64 l = 0; l < countof(langs); l++) {
        struct arena a = {0};
        struct kir k;
        struct buf text = {0};
        struct caps c = {.is_gpu = true, .subgroup = 32, .max_group = 256};
        struct err e = {0};
        kir_init(&k, &a, S("order"));
        k.group[0] = 64;
        kval temp = kir_alloc(&k, KS_TEMP, DT_F32, 1, kir_int(&k, 64)), x = kir_buf(&k, S("x"), DT_F32, KA_IN), y = kir_buf(&k, S("y"), DT_F32, KA_OUT);
        kir_grid(&k, kir_int(&k, 1));
        kir_store(&k, temp, kir_thread(&k, 0), kir_load(&k, x, kir_thread(&k, 0)));
        kir_end(&k);
        kir_grid(&k, kir_int(&k, 1));
        kir_store(&k, y, kir_thread(&k, 0), kir_load(&k, temp, kir_thread(&k, 0)));
        kir_end(&k);
        assert_true(lang_render(&text, lang_find(str_of(langs[l])), &k, &c, &a, &e));
        buf_put(&text, "", 1);
        const char *at = strstr(text.p, "order_0("), *end = at ? strchr(at, ')') : NULL, *from[3];
        assert_non_null(end);
        from[0] = strstr(at, " b_x"), from[1] = strstr(at, " b_y"), from[2] = strstr(at, " t");
        for (u32 i = 0; i < 3; i++) assert_true(from[i] && from[i] < end && (i == 0 || from[i - 1] < from[i]));
        buf_release(&text);
        arena_release(&a);
    }
}

static void test_build_errors(void **state)
{
    const struct lang *c = lang_find(S("c"));
    struct caps caps = {0};
    struct buf out = {0};
    struct err e = {0};
    unsetenv("QUERN_CC");
    assert_false(c->build(&out, S("int x = nonsense;"), &caps, 10, &e));
    assert_non_null(strstr(e.msg, "nonsense"));
    e = (struct err){0};
    setenv("QUERN_CC", "sleep 10 #", 1);
    assert_false(c->build(&out, S("int x;"), &caps, 0.1, &e));
    assert_int_equal(e.code, ERR_FAILED);
    e = (struct err){0};
    setenv("QUERN_CC", "/nowhere/cc", 1);
    assert_false(c->build(&out, S("int x;"), &caps, 10, &e));
    assert_int_equal(e.code, ERR_SYSTEM);
    assert_int_equal(out.n, 0);
    unsetenv("QUERN_CC");
    buf_release(&out);
}

static void test_deterministic(void **state)
{
    struct run r = {0};
    struct buf a = {0}, b = {0};
    struct dev *d = open_cpu(1);
    struct caps c;
    small_kernel(&r);
    d->driver->caps(d, &c);
    build(&r, &c, &a);
    build(&r, &c, &b);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, (size_t)a.n);
    buf_release(&a);
    buf_release(&b);
    d->driver->close(d);
    arena_release(&r.arena);
}

static void test_load_errors(void **state)
{
    struct run r = {0};
    struct buf a = {0};
    struct dev *d = open_cpu(1);
    struct caps c;
    struct err e = {0};
    small_kernel(&r);
    d->driver->caps(d, &c);
    build(&r, &c, &a);
    assert_null(d->driver->load(d, S("not an object"), S("function"), 1, &e));
    e = (struct err){0};
    assert_null(d->driver->load(d, buf_view(&a), S("function"), 2, &e));
    assert_non_null(strstr(e.msg, "function_1"));
    buf_release(&a);
    d->driver->close(d);
    arena_release(&r.arena);
}

/* The interpreter as a device: finds an access outside a buffer. */
static void test_interp(void **state)
{
    struct run r = {0};
    struct err e = {0};
    struct buf text = {0};
    struct dev *d = dev_find(S("interp"))->open(&(struct dev_opts){0}, &e);
    struct caps c;
    void *out[MAX_ARGS];
    small_kernel(&r);
    d->driver->caps(d, &c);
    assert_true(lang_render(&text, lang_find(S("kir")), &r.kir, &c, &r.arena, &e));
    run_native(&r, d, buf_view(&text), out);
    for (i64 i = 0; i < 128; i++) assert_true(((float *)out[1])[i] == (float)-i);
    struct dev_kernel *k = d->driver->load(d, buf_view(&text), S("function"), 1, &e);
    struct dev_mem mem[2] = {{.host = r.arg[0].p, .size = 512}, {.host = r.arg[1].p, .size = 508}};
    struct dev_launch l = {
        .kernel = k, .buf = mem, .n_buf = 2, .grid = (const i64(*)[3])r.grid, .n_grid = 1};
    assert_false(d->driver->launch(d, &l, &e));
    d->driver->unload(d, k);
    d->driver->close(d);
    buf_release(&text);
    arena_release(&r.arena);
}

static void test_caps(void **state)
{
    struct dev *d = open_cpu(3);
    struct caps c, back;
    struct buf a = {0}, b = {0};
    struct err e = {0};
    d->driver->caps(d, &c);
    assert_int_equal(c.n_threads, 3);
    assert_true(c.vector_bytes >= 16 && c.l1_bytes > 0);
    caps_print(&a, &c);
    assert_true(caps_parse(&back, buf_view(&a), &e));
    caps_print(&b, &back);
    assert_string_equal(a.p, b.p);
    assert_true(caps_parse(&back, S("dot=\"u8,i8,i32 bf16,bf16,f32\""), &e));
    assert_true(caps_has_dot(&back, DT_U8, DT_I8, DT_I32) && caps_has_dot(&back, DT_BF16, DT_BF16, DT_F32));
    assert_false(caps_has_dot(&back, DT_I8, DT_U8, DT_I32) || caps_has_dot(&c, DT_U8, DT_I8, DT_F32));
    assert_false(caps_parse(&back, S("nonsense=1"), &e));
    assert_false(caps_parse(&back, S("n_threads=-1"), &e));
    assert_false(caps_parse(&back, S("arch=\"open"), &e));
    assert_false(caps_parse(&back, S("words"), &e));
    buf_release(&a);
    buf_release(&b);
    d->driver->close(d);
}

static void test_memory(void **state)
{
    struct run r = {0};
    struct rng g = rng_seed(1);
    struct kir_memory m;
    struct err e = {0};
    structured_kernel(&r, &g, sizes);
    assert_true(kir_memory(&r.kir, &m, &e));
    assert_int_equal(m.work.n, 2);
    assert_int_equal(m.temp.n, 1);
    assert_int_equal(kir_at(&r.kir, m.temp.v[0])->aux, KS_TEMP);
    arena_release(&r.arena);
}

static void test_caps_limit(void **state)
{
    struct caps c, cpu = {.vector_bytes = 32};
    struct err e = {0};
    bool changed;
    assert_true(caps_parse(&c, S("is_gpu=1 spirv=15 matrix=\"16x16x16:f16,f16,f32,f32\""), &e));
    assert_true(caps_limit(&c, S("spirv=16"), &changed, &e) && !changed && c.spirv == 15);
    assert_true(caps_limit(&c, S(""), &changed, &e) && !changed);
    assert_true(caps_limit(&c, S("spirv=13 no-matrix debug optimize"), &changed, &e) && changed);
    assert_true(c.spirv == 13 && !c.matrix[0]);
    assert_string_equal(c.spirv_flags, "debug optimize");
    assert_true(caps_limit(&cpu, S("spirv=13 optimize"), &changed, &e) && !changed && !cpu.spirv_flags[0]);
    assert_true(caps_limit(&c, S("no-winograd"), &changed, &e) && !changed);
    assert_true(caps_limit(&cpu, S("spirv=13 no-winograd"), &changed, &e) && changed && cpu.no_winograd);
    assert_false(caps_limit(&c, S("spirv=none"), NULL, &e));
    e = (struct err){0};
    assert_false(caps_limit(&c, S("this-word-is-longer-than-what-a-list-of-flags-of-a-target-can-hold"), NULL, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_gcc),   cmocka_unit_test(test_random_clang),
        cmocka_unit_test(test_random_older), cmocka_unit_test(test_structure),
        cmocka_unit_test(test_halves), cmocka_unit_test(test_chosen_halves), cmocka_unit_test(test_roundings), cmocka_unit_test(test_integers), cmocka_unit_test(test_integer_products), cmocka_unit_test(test_accumulators),
        cmocka_unit_test(test_functions),    cmocka_unit_test(test_functions_variants),
        cmocka_unit_test(test_streams), cmocka_unit_test(test_order_of_arrays), cmocka_unit_test(test_build_errors), cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_load_errors),  cmocka_unit_test(test_interp),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_caps_limit),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
