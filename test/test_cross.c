// SPDX-License-Identifier: Apache-2.0
//
// Kernels in language c for a processor that is not here: built by a cross compiler, run in an emulator of that processor, and
// compared with the interpreter. Skipped where there is none (tool/deps cross).
#include "lang_bed.h"

static const char *const compiler = "aarch64-linux-gnu-gcc", *const emulator = "qemu-aarch64";

/* Its output, of the process and of nothing else. */
static bool run_process(const char *const *argv, struct buf *out)
{
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 300, .out = out});
    return s.how == OS_EXITED && s.code == 0;
}

static bool is_there(const char *name)
{
    bool ok = run_process((const char *const[]){name, "--version", NULL}, NULL);
    return ok;
}

/* A program that reads the arguments from a file, runs the kernel's grid and writes the arguments. */
static void print_program(struct buf *b, const struct run *r, struct str kernel)
{
    assert_true(r->n_grid == 1 && r->grid[0][1] == 1 && r->grid[0][2] == 1);
    buf_str(b, kernel);
    buf_z(b, "\n#include <stdio.h>\nint main(int n, char **file)\n{\n    static i64 work[8192];\n    FILE *f = fopen(file[1], \"rb\");\n");
    for (u32 i = 0; i < r->n_arg; i++) {
        i64 size = r->arg[i].n * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id));
        buf_printf(b, "    static __attribute__((aligned(64))) char a%u[%lld];\n", i, (long long)size + 64);
        buf_printf(b, "    if (fread(a%u, 1, %lld, f) != %lld) return 1;\n", i, (long long)size, (long long)size);
    }
    buf_z(b, "    void *buf[] = {");
    for (u32 i = 0; i < r->n_arg; i++) buf_printf(b, "a%u, ", i);
    buf_z(b, "};\n    i64 param[] = {");
    for (u32 i = 0; i < r->kir.param.n; i++) buf_printf(b, "%lld, ", (long long)r->param[i]);
    buf_printf(b, "0};\n    %.*s_0(buf, param, 0, %lld, work);\n", STR_ARG(r->kir.name), (long long)r->grid[0][0]);
    for (u32 i = 0; i < r->n_arg; i++)
        buf_printf(b, "    fwrite(a%u, 1, sizeof a%u - 64, stdout);\n", i, i);
    buf_z(b, "    return 0;\n}\n");
}

static void write_file(const char *path, struct str content)
{
    struct err e = {0};
    if (!os_write(path, content.p, content.n, &e)) fail_msg("%s", e.msg);
}

/* What the kernel makes of its arguments, each in out[]. true: it takes sums of products as instructions. */
static bool run_cross(struct run *r, const struct caps *c, void *out[MAX_ARGS])
{
    struct err e = {0};
    struct buf text = {0}, program = {0}, in = {0}, result = {0};
    struct str dir;
    struct arena *a = &r->arena;
    if (!os_temp_dir(a, &dir, &e) || !kir_verify(&r->kir, &e)) fail_with(r, "verify", &e);
    if (!lang_render(&text, lang_find(S("c")), &r->kir, c, a, &e)) fail_with(r, "render", &e);
    print_program(&program, r, buf_view(&text));
    for (u32 i = 0; i < r->n_arg; i++)
        buf_str(&in, (struct str){r->arg[i].p, r->arg[i].n * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id))});
    const char *source = str_fmt(a, "%.*s/k.c", STR_ARG(dir)).p, *binary = str_fmt(a, "%.*s/k", STR_ARG(dir)).p,
               *data = str_fmt(a, "%.*s/in", STR_ARG(dir)).p;
    write_file(source, buf_view(&program));
    write_file(data, buf_view(&in));
    const char *const build[] = {compiler, "-O2", "-std=gnu11", "-w", "-static", "-ffp-contract=off", c->cflags, source, "-o", binary, "-lm", NULL};
    if (!run_process(build, &result)) fail_msg("%.*s\n%.*s", (int)program.n, program.p, (int)result.n, result.p);
    result.n = 0;
    if (!run_process((const char *const[]){emulator, "-cpu", "max", binary, data, NULL}, &result) || result.n != in.n)
        fail_msg("the program fails: %.*s", (int)program.n, program.p);
    i64 at = 0;
    for (u32 i = 0; i < r->n_arg; i++) {
        i64 size = r->arg[i].n * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id));
        out[i] = arena_alloc(a, size);
        memcpy(out[i], result.p + at, (size_t)size);
        at += size;
    }
    bool has_dot = strstr((char *)text.p, "q_dot_") != NULL;
    buf_release(&text), buf_release(&program), buf_release(&in), buf_release(&result);
    return has_dot;
}

static struct caps arm(const char *cflags, const char *dot)
{
    struct caps c = {.arch = "aarch64-neon", .vector_bytes = 16, .n_vector_regs = 32, .n_threads = 1, .has_fma = true};
    snprintf(c.cflags, sizeof c.cflags, "%s", cflags);
    snprintf(c.dot, sizeof c.dot, "%s", dot);
    return c;
}

/* Sums of products of random neighbours, of all pairs of types, in vectors of 4 to 16 words. */
static void dot_kernel(struct run *r, struct rng *g)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32}, {DT_I8, DT_U8, DT_I32},     {DT_I8, DT_I8, DT_I32},
                                       {DT_U8, DT_U8, DT_I32}, {DT_BF16, DT_BF16, DT_F32}, {DT_I16, DT_I16, DT_I32}};
    struct kir *k = &r->kir;
    kir_init(k, &r->arena, S("dots"));
    r->grid[0][0] = r->param[0] = 3;
    r->grid[0][1] = r->grid[0][2] = r->n_grid = 1;
    u32 pair = (u32)rng_range(g, 0, countof(of) - 1), lanes = 4u << rng_range(g, 0, 2);
    const enum dtype *t = of[pair];
    u32 wide = lanes * kir_dot_terms(t[0], t[1], t[2]);
    add_arg(r, g, "a", t[0], KA_IN, 3 * wide);
    add_arg(r, g, "b", t[1], KA_IN, 3 * wide);
    add_arg(r, g, "sum", t[2], KA_IN, 3 * lanes);
    add_arg(r, g, "out", t[2], KA_OUT, 3 * lanes);
    for (u32 i = 0; i < 2; i++) /* bf16: sums that are exact; bytes: all of them */
        for (i64 j = 0; j < r->arg[i].n; j++)
            if (t[i] == DT_BF16) elem_set_f64(t[i], r->arg[i].p, j, (double)rng_range(g, -9, 9));
            else elem_set_i64(t[i], r->arg[i].p, j, rng_range(g, t[i] == DT_U8 ? 0 : -128, t[i] == DT_U8 ? 255 : 127));
    for (i64 j = 0; t[2] == DT_F32 && j < r->arg[2].n; j++) elem_set_f64(DT_F32, r->arg[2].p, j, (double)rng_range(g, -99, 99));
    kval at = kir_grid(k, kir_param(k, S("n"))), to = kir_ramp(k, kir_mul_i(k, at, lanes), 1, lanes);
    kval from = kir_ramp(k, kir_mul_i(k, at, wide), 1, wide);
    kval x = kir_load(k, k->buf.v[0].id, from), y = kir_load(k, k->buf.v[1].id, from);
    kir_store(k, k->buf.v[3].id, to, kir_dot(k, x, y, kir_load(k, k->buf.v[2].id, to)));
    kir_end(k);
}

/* Returns how many took sums of products as instructions. */
static i64 check_kernels(const struct caps *c, void (*make)(struct run *r, struct rng *g), u64 seed, i64 n)
{
    i64 n_dots = 0;
    for (i64 i = 0; i < n; i++) {
        struct run r = {0};
        struct rng g = rng_seed(seed + (u64)i);
        void *out[MAX_ARGS];
        char what[64];
        snprintf(what, sizeof what, "kernel %lld", (long long)(seed + (u64)i));
        make(&r, &g);
        n_dots += run_cross(&r, c, out);
        interpret(&r);
        compare(&r, out, what);
        arena_release(&r.arena);
    }
    return n_dots;
}

static void test_arm(void **state)
{
    static const char dots[] = "u8,i8,i32 i8,i8,i32 u8,u8,i32";
    if (!is_there(compiler)) skip_test("no '%s' (tool/deps cross)", compiler);
    if (!is_there(emulator)) skip_test("no '%s' (tool/deps cross)", emulator);
    struct caps plain = arm("-march=armv8-a", ""), old = arm("-march=armv8.2-a+dotprod", dots),
                new = arm("-march=armv8.6-a", "u8,i8,i32 i8,i8,i32 u8,u8,i32 bf16,bf16,f32");
    assert_int_equal(check_kernels(&plain, random_kernel, 3000, 4), 0);
    assert_true(check_kernels(&old, dot_kernel, 3100, 10) > 3);
    assert_true(check_kernels(&new, dot_kernel, 3200, 14) > 5);
    check_kernels(&new, random_kernel, 3300, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
