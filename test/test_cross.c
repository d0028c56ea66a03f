// SPDX-License-Identifier: Apache-2.0
//
// Kernels in language c for other CPU architectures, ARM of 64 and of 32 bits, x86 of 32 bits: built by a cross compiler, run
// in an emulator (or by this processor, which has instructions that the emulator lacks), and compared with the interpreter; and whole
// programs compiled for them (--isa aarch64), compared with the reference. Skipped without cross compilers (tool/deps cross).
#include "art/art.h"
#include "lang_fixture.h"
#include "quern.h"

static const struct processor {
    const char *triple, *compiler, *emulator;
} arm64 = {"aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64"}, arm32 = {"arm-linux-gnueabihf", "arm-linux-gnueabihf-gcc", "qemu-arm"},
  x86 = {"i686-linux-gnu", "i686-linux-gnu-gcc", "qemu-i386"};

/* What is emulated has everything, SVE's registers in the length of the code. */
static const char *cpu_of(struct isa isa)
{
    struct isa sve256;
    struct err e = {0};
    assert_true(isa_parse(&sve256, S("aarch64+sve256"), &e));
    return isa_contains(isa, sve256) ? "max,sve256=on" : "max";
}

static const struct processor *processor_of(enum isa_family family) { return family == ISA_X86 ? &x86 : family == ISA_ARMV7 ? &arm32 : &arm64; }

/* The emulator of x86 ends at AVX2. */
static bool is_emulated(struct isa isa)
{
    struct isa avx512;
    struct err e = {0};
    assert_true(isa_parse(&avx512, S("i686+avx512f"), &e));
    return !isa_contains(isa, avx512);
}

/* Whether this processor has all of an instruction set of 32 bits in 64 bits, too. */
static bool is_here(struct isa isa)
{
    struct arena a = {0};
    struct buf b = {0};
    struct str name, extensions;
    struct err e = {0};
    isa_print_all(&b, isa);
    str_cut(buf_view(&b), ' ', &name, &extensions);
    bool ok = isa_check(str_fmt(&a, "x86-64 %.*s", STR_ARG(extensions)), isa_here(), &e);
    buf_release(&b);
    arena_release(&a);
    return ok;
}

/* Output of the process only. */
static bool run_process(const char *const *argv, struct buf *out)
{
    struct os_status s = os_run(&(struct os_proc_opts){.argv = argv, .timeout = 300, .out = out});
    return s.how == OS_EXITED && s.code == 0;
}

/* Runs a program for an instruction set, where libraries are needed with those of its processor; the path of a file may follow. */
static bool run_foreign(struct arena *a, struct isa isa, const char *program, const char *file, struct buf *out)
{
    const struct processor *to = processor_of(isa.family);
    const char *root = str_fmt(a, "/usr/%s", to->triple).p, *library = str_fmt(a, "%s/lib", root).p;
    /* Named, or the loader might find this system's libraries of 32 bits, which may be of another version. */
    const char *const emulated[] = {to->emulator, "-cpu", cpu_of(isa), "-L", root, "-E", str_fmt(a, "LD_LIBRARY_PATH=%s", library).p, program, file, NULL};
    const char *const here[] = {str_fmt(a, "%s/ld-linux.so.2", library).p, "--library-path", library, program, file, NULL};
    return run_process(is_emulated(isa) ? emulated : here, out);
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

static void build_static(struct run *r, const struct caps *c, const char *source, const char *binary)
{
    enum { MAX_OPTIONS = 96 };
    struct buf isa = {0}, said = {0};
    struct str rest, word;
    const char *argv[MAX_OPTIONS] = {processor_of(c->isa.family)->compiler, "-O2", "-std=gnu11", "-w", "-ffp-contract=off", source, "-o", binary, "-lm"};
    u32 n = 9;
    isa_options(&isa, c->isa);
    for (rest = buf_view(&isa); rest.n && n < MAX_OPTIONS - 1;) {
        str_cut(rest, ' ', &word, &rest);
        argv[n++] = str_z(&r->arena, word);
    }
    assert_true(n > 9 && !rest.n);
    if (!run_process(argv, &said)) fail_msg("%s: %.*s", source, STR_ARG(buf_view(&said)));
    buf_release(&isa), buf_release(&said);
}

/* Runs the kernel on its arguments; results in out[]. true: it uses DOT or MMLA instructions. */
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
    build_static(r, c, source, binary);
    if (!run_foreign(a, c->isa, binary, data, &result) || result.n != in.n)
        fail_msg("the program fails: %.*s", (int)program.n, program.p);
    i64 at = 0;
    for (u32 i = 0; i < r->n_arg; i++) {
        i64 size = r->arg[i].n * dtype_size(kir_dtype(&r->kir, r->kir.buf.v[i].id));
        out[i] = arena_alloc(a, size);
        memcpy(out[i], result.p + at, (size_t)size);
        at += size;
    }
    bool has_dot = strstr((char *)text.p, "q_dot_") || strstr((char *)text.p, "q_mmla_");
    buf_release(&text), buf_release(&program), buf_release(&in), buf_release(&result);
    return has_dot;
}

static struct caps caps_of(const char *isa)
{
    struct caps c = {.n_threads = 1};
    struct isa s;
    struct err e = {0};
    assert_true(isa_parse(&s, str_of(isa), &e));
    isa_limits(&c, s);
    return c;
}

/* Bytes are any; floats are integers, whose sums are exact. */
static void fill_integers(struct run *r, struct rng *g, const enum dtype t[3])
{
    for (u32 i = 0; i < 2; i++)
        for (i64 j = 0; j < r->arg[i].n; j++)
            if (dtype_is_float(t[i])) elem_set_f64(t[i], r->arg[i].p, j, (double)rng_range(g, -9, 9));
            else elem_set_i64(t[i], r->arg[i].p, j, rng_range(g, t[i] == DT_U8 ? 0 : -128, t[i] == DT_U8 ? 255 : 127));
    for (i64 j = 0; t[2] == DT_F32 && j < r->arg[2].n; j++) elem_set_f64(DT_F32, r->arg[2].p, j, (double)rng_range(g, -99, 99));
}

/* sum + a*b, three vectors of `lanes` sums with the groups of both operands. */
static void product_kernel(struct run *r, struct rng *g, const enum dtype t[3], u32 lanes, kval (*product)(struct kir *k, kval a, kval b, kval c))
{
    struct kir *k = &r->kir;
    kir_init(k, &r->arena, S("products"));
    r->grid[0][0] = r->param[0] = 3;
    r->grid[0][1] = r->grid[0][2] = r->n_grid = 1;
    u32 wide = lanes * kir_dot_terms(t[0], t[1], t[2]);
    add_arg(r, g, "a", t[0], KA_IN, 3 * wide);
    add_arg(r, g, "b", t[1], KA_IN, 3 * wide);
    add_arg(r, g, "sum", t[2], KA_IN, 3 * lanes);
    add_arg(r, g, "out", t[2], KA_OUT, 3 * lanes);
    fill_integers(r, g, t);
    kval at = kir_grid(k, kir_param(k, S("n"))), to = kir_ramp(k, kir_mul_i(k, at, lanes), 1, lanes);
    kval from = kir_ramp(k, kir_mul_i(k, at, wide), 1, wide);
    kval x = kir_load(k, k->buf.v[0].id, from), y = kir_load(k, k->buf.v[1].id, from);
    kir_store(k, k->buf.v[3].id, to, product(k, x, y, kir_load(k, k->buf.v[2].id, to)));
    kir_end(k);
}

/* Sums of products of random neighbours, of all pairs of types, in vectors of 4 to 16 words. */
static void dot_kernel(struct run *r, struct rng *g)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32}, {DT_I8, DT_U8, DT_I32},     {DT_I8, DT_I8, DT_I32},
                                       {DT_U8, DT_U8, DT_I32}, {DT_BF16, DT_BF16, DT_F32}, {DT_F16, DT_F16, DT_F32},
                                       {DT_I16, DT_I16, DT_I32}};
    u32 pair = (u32)rng_range(g, 0, countof(of) - 1);
    product_kernel(r, g, of[pair], 4u << rng_range(g, 0, 2), kir_dot);
}

/* Of large f16, whose products f16 could not hold. */
static void half_kernel(struct run *r, struct rng *g)
{
    static const enum dtype of[] = {DT_F16, DT_F16, DT_F32};
    product_kernel(r, g, of, 4, kir_dot);
    for (u32 i = 0; i < 2; i++)
        for (i64 j = 0; j < r->arg[i].n; j++) elem_set_f64(DT_F16, r->arg[i].p, j, (double)rng_range(g, -9, 9) * (j % 2 ? 1 : 1024));
}

/* Likewise of two rows with two columns; of i8 with u8 there is no instruction. */
static kval rows_with_columns(struct kir *k, kval a, kval b, kval c)
{
    return kir_halves(k, kir_mmla(k, kir_halves(k, a, a, 1), b, c), kir_mmla(k, a, b, c), 0);
}

static void mmla_kernel(struct run *r, struct rng *g)
{
    static const enum dtype of[][3] = {{DT_U8, DT_I8, DT_I32}, {DT_I8, DT_I8, DT_I32}, {DT_U8, DT_U8, DT_I32}, {DT_BF16, DT_BF16, DT_F32}, {DT_I8, DT_U8, DT_I32}};
    product_kernel(r, g, of[rng_range(g, 0, countof(of) - 1)], 4, rows_with_columns);
}

/* Returns the number of kernels with such instructions. */
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

static void need(const struct processor *p)
{
    if (!is_there(p->compiler)) skip_test("no '%s' (tool/deps cross)", p->compiler);
    if (!is_there(p->emulator)) skip_test("no '%s' (tool/deps cross)", p->emulator);
}

static void test_arm32(void **state)
{
    need(&arm32);
    struct caps base = caps_of("armv7"), neon = caps_of("armv7+neon"), fma = caps_of("armv7+neon-vfpv4");
    assert_true(!base.has_fma && !neon.has_fma && fma.has_fma);
    assert_int_equal(check_kernels(&base, random_kernel, 4000, 4), 0);
    check_kernels(&neon, random_kernel, 4100, 4);
    check_kernels(&fma, random_kernel, 4200, 8);
    check_kernels(&fma, dot_kernel, 4300, 4);
}

static void test_x86(void **state)
{
    need(&x86);
    struct caps base = caps_of("i686"), avx2 = caps_of("i686+avx2+fma+f16c"), avx512 = caps_of("i686+avx512vl+avx512bw+avx512dq+avx512vnni");
    assert_true(!base.has_fma && avx2.has_fma && avx512.vector_bytes == 64);
    assert_int_equal(check_kernels(&base, random_kernel, 6000, 6), 0);
    check_kernels(&base, half_kernel, 6050, 3);
    check_kernels(&avx2, random_kernel, 6100, 6);
    check_kernels(&avx2, dot_kernel, 6200, 6);
    if (!is_here(avx512.isa)) print_message("without AVX-512, which neither this processor nor the emulator has\n");
    else {
        check_kernels(&avx512, random_kernel, 6300, 6);
        assert_true(check_kernels(&avx512, dot_kernel, 6400, 6) > 1);
    }
}

static void test_sve(void **state)
{
    need(&arm64);
    struct caps plain = caps_of("aarch64+sve256+dotprod"), all = caps_of("aarch64+sve256+dotprod+i8mm+bf16");
    assert_true(plain.vector_bytes == 32);
    check_kernels(&plain, random_kernel, 5000, 10);
    assert_true(check_kernels(&plain, dot_kernel, 5100, 10) > 3);
    assert_true(check_kernels(&all, dot_kernel, 5200, 12) > 5);
}

static void test_arm(void **state)
{
    need(&arm64);
    struct caps plain = caps_of("aarch64"), old = caps_of("aarch64+dotprod"), new = caps_of("aarch64+dotprod+i8mm+bf16"), halves = caps_of("aarch64+fp16fml");
    assert_int_equal(check_kernels(&plain, random_kernel, 3000, 4), 0);
    struct caps in_order = plain;
    in_order.in_order = true;
    assert_int_equal(check_kernels(&in_order, random_kernel, 3700, 4), 0);
    assert_true(check_kernels(&old, dot_kernel, 3100, 10) > 3);
    assert_true(check_kernels(&new, dot_kernel, 3200, 14) > 5);
    check_kernels(&new, random_kernel, 3300, 4);
    assert_true(check_kernels(&halves, half_kernel, 3600, 3) == 3);
    assert_int_equal(check_kernels(&old, mmla_kernel, 3400, 4), 0);
    assert_true(check_kernels(&new, mmla_kernel, 3500, 12) > 6);
}

/* A program: its dispatches in order, each kernel from its shared object, as the runtime there would. */

static const char float_net[] = "graph {\n  input %x: f32[1,3,13,11]\n"
                          "  const %w: f32[4,3,3,3] = [-2,1,1,-2,-1,1,0,2,1,-3,1,-3,3,0,-1,1,-2,-2,2,0,1,3,1,0,0,2,3,-2,-2,2,-2,3,1,0,2,-3,2,3,-3,-2,3,1,-3,-1,3,-3,3,3,-1,0,1,2,0,2,"
                          "3,0,0,2,3,1,0,-2,-1,-3,-3,-2,0,-2,-1,2,0,3,2,3,-1,0,1,3,0,1,-1,1,1,0,1,-2,-1,2,-3,3,-1,1,2,2,-2,2,3,-1,1,1,1,-3,2,2,-2,2,3,1]\n"
                          "  const %v: f32[2,4,1,1] = [1,-1,2,3,0.5,1,-2,1]\n"
                          "  %a: f32[1,4,13,11] = Conv \"first\"(%x, %w) {kernel_shape=[3,3], pads=[1,1,1,1]}\n  %b: f32[1,4,13,11] = Relu(%a)\n"
                          "  %y: f32[1,2,13,11] = Conv \"second\"(%b, %v) {kernel_shape=[1,1]}\n  output %y\n}\n";

static void print_weights(struct buf *b, const char *name, const char *type, const i64 dim[4], i64 most)
{
    struct rng r = rng_seed((u64)dim[1]);
    i64 n = dim[0] * dim[1] * dim[2] * dim[3];
    buf_printf(b, "  const %%%s: %s[%lld,%lld,%lld,%lld] = [", name, type, (long long)dim[0], (long long)dim[1], (long long)dim[2], (long long)dim[3]);
    for (i64 i = 0; i < n; i++) buf_printf(b, "%s%lld", i ? "," : "", (long long)rng_range(&r, -most, most));
    buf_z(b, "]\n");
}

/* From sums of bytes to bytes again. */
static void print_rescaling(struct buf *b, char layer)
{
    const char *line[] = {"f: f32[1,32,13,11] = Cast(%$c) {to=1}", "g: f32[1,32,13,11] = Mul(%$f, %part)",  "h: f32[1,32,13,11] = Floor(%$g)",
                          "i: f32[1,32,13,11] = Max(%$h, %zero)",  "j: f32[1,32,13,11] = Min(%$i, %most)"};
    for (u32 i = 0; i < countof(line); i++) {
        buf_printf(b, "  %%%c", layer);
        for (const char *p = line[i]; *p; p++) buf_char(b, *p == '$' ? layer : *p);
        buf_char(b, '\n');
    }
}

/* A network of bytes, whose numbers all are exact: the products of its second convolution, of 32 channels, are MMLAs where they exist. */
static void print_bytes_net(struct buf *b)
{
    buf_z(b, "graph {\n  input %x: f32[1,3,13,11]\n  const %four: f32[] = [4]\n  const %part: f32[] = [0.015625]\n  const %zero: f32[] = [0]\n  const %most: f32[] = [255]\n");
    print_weights(b, "u", "i8", (i64[]){32, 3, 3, 3}, 127);
    print_weights(b, "v", "i8", (i64[]){32, 32, 3, 3}, 127);
    print_weights(b, "w", "f32", (i64[]){2, 32, 1, 1}, 3);
    buf_z(b, "  %a: f32[1,3,13,11] = Add(%x, %four)\n  %b: u8[1,3,13,11] = Cast(%a) {to=2}\n  %kc: i32[1,32,13,11] = Conv(%b, %u) {kernel_shape=[3,3], pads=[1,1,1,1]}\n");
    print_rescaling(b, 'k');
    buf_z(b, "  %q: u8[1,32,13,11] = Cast(%kj) {to=2}\n  %lc: i32[1,32,13,11] = Conv(%q, %v) {kernel_shape=[3,3], pads=[1,1,1,1]}\n");
    print_rescaling(b, 'l');
    buf_z(b, "  %y: f32[1,2,13,11] = Conv(%lj, %w) {kernel_shape=[1,1]}\n  output %y\n}\n");
}

struct there { /* a plan and the folder that it goes to */
    struct arena a;
    struct plan p;
    struct str dir;
    struct buf text;
    struct isa isa;
};

static i64 value_of(const struct there *t, sym s)
{
    i64 v;
    assert_true(sym_eval(&t->p.sym, s, NULL, &v));
    return v;
}

static void put_file(struct there *t, const char *name, u32 k, struct str content)
{
    write_file(str_fmt(&t->a, "%.*s/%s%u", STR_ARG(t->dir), name, k).p, content);
}

static void print_dispatch(struct there *t, const struct plan_dispatch *d)
{
    struct buf *b = &t->text;
    buf_z(b, "    {\n        void *arg[] = {");
    for (u32 k = 0; k < d->n_buf; k++) buf_printf(b, "buf[%u], ", d->buf[k]);
    buf_z(b, "0};\n        i64 param[] = {");
    for (u32 k = 0; k < d->n_param; k++) buf_printf(b, "%lld, ", (long long)value_of(t, d->param[k]));
    buf_printf(b, "0};\n        void *work = aligned_alloc(64, %lld);\n", (long long)round_up(value_of(t, d->work) + 64, 64));
    for (u32 g = 0; g < d->n_grid; g++) {
        i64 n = 1;
        for (u32 x = 0; x < 3; x++) n *= value_of(t, d->grid[g].extent[x]);
        buf_printf(b, "        kernel(\"code%u\", \"%.*s_%u\")(arg, param, 0, %lld, work);\n", d->bin, STR_ARG(d->entry), g, (long long)n);
    }
    buf_z(b, "    }\n");
}

static void print_runner(struct there *t)
{
    struct buf *b = &t->text;
    buf_z(b, "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\ntypedef long long i64;\n"
             "typedef void grid(void *const *, const i64 *, i64, i64, void *);\n"
             "static grid *kernel(const char *file, const char *name)\n{\n    char path[4096];\n    snprintf(path, sizeof path, \"%s/%s\", DIR, file);\n"
             "    void *lib = dlopen(path, RTLD_NOW), *f = lib ? dlsym(lib, name) : NULL;\n"
             "    if (!f) { printf(\"%s\", dlerror()); exit(1); }\n    return (grid *)f;\n}\n"
             "static void *load(const char *file, i64 size)\n{\n    char path[4096], *p = aligned_alloc(64, size + 64 - size % 64);\n"
             "    if (!file) return p;\n    snprintf(path, sizeof path, \"%s/%s\", DIR, file);\n    FILE *f = fopen(path, \"rb\");\n"
             "    if (!f || fread(p, 1, size, f) != (size_t)size) exit(2);\n    return p;\n}\n");
    buf_printf(b, "int main(void)\n{\n    void *buf[%u];\n", t->p.buf.n + 1);
    for (u32 k = 0; k < t->p.buf.n; k++) {
        const struct plan_buf *x = &t->p.buf.v[k];
        bool has_file = x->kind == PB_INPUT || x->kind == PB_CONST;
        i64 size = value_of(t, x->size);
        if (has_file) buf_printf(b, "    buf[%u] = load(\"data%u\", %lld);\n", k, k, (long long)size);
        else buf_printf(b, "    buf[%u] = load(NULL, %lld);\n", k, (long long)size);
        if (x->kind == PB_CONST) put_file(t, "data", k, (struct str){x->data, x->data_size});
    }
    for (u32 i = 0; i < t->p.bin.n; i++) put_file(t, "code", i, t->p.bin.v[i].code);
    for (u32 i = 0; i < t->p.dispatch.n; i++) print_dispatch(t, &t->p.dispatch.v[i]);
    u32 out = t->p.output.v[0].buf;
    buf_printf(b, "    fwrite(buf[%u], 1, %lld, stdout);\n    return 0;\n}\n", out, (long long)value_of(t, t->p.buf.v[out].size));
}

/* Its output for the input x. */
static void run_there(struct there *t, const float *x, i64 n, struct buf *out)
{
    u32 in = t->p.input.v[0].buf;
    print_runner(t);
    put_file(t, "data", in, (struct str){(const char *)x, n * (i64)sizeof *x});
    const char *source = str_fmt(&t->a, "%.*s/run.c", STR_ARG(t->dir)).p, *binary = str_fmt(&t->a, "%.*s/run", STR_ARG(t->dir)).p;
    write_file(source, buf_view(&t->text));
    const struct processor *to = processor_of(t->isa.family);
    const char *const build[] = {to->compiler, "-O1", "-std=gnu11", "-w", str_fmt(&t->a, "-DDIR=\"%.*s\"", STR_ARG(t->dir)).p, source, "-o", binary, "-ldl", NULL};
    if (!run_process(build, out)) fail_msg("%.*s\n%.*s", STR_ARG(buf_view(&t->text)), STR_ARG(buf_view(out)));
    out->n = 0;
    if (!run_foreign(&t->a, t->isa, binary, NULL, out))
        fail_msg("the program fails: %.*s", STR_ARG(buf_view(out)));
}

/* Does code of ARM have an instruction of this encoding, whatever its registers? */
static bool has_instruction(const struct plan *p, u32 encoding)
{
    enum { REGISTERS = 0x1f << 16 | 0x1f << 5 | 0x1f };
    for (u32 i = 0; i < p->bin.n; i++)
        for (i64 at = 0; at + 4 <= p->bin.v[i].code.n; at += 4) {
            u32 word;
            memcpy(&word, p->bin.v[i].code.p + at, sizeof word);
            if ((word & ~(u32)REGISTERS) == encoding) return true;
        }
    return false;
}

static void check_program(const char *isa, const char *net, bool has_usmmla)
{
    struct there t = {0};
    struct err e = {0};
    struct buf out = {0};
    struct str bytes;
    quern *q = quern_open(NULL);
    quern_model *m;
    quern_program *p = NULL;
    quern_tensor *in, *want = NULL;
    struct quern_target_opts target = QUERN_OPTS(quern_target_opts);
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    float x[3 * 13 * 11];
    struct rng r = rng_seed(5);
    for (i64 i = 0; i < countof(x); i++) x[i] = (float)rng_range(&r, -4, 4);
    target.isa = isa, o.target = &target, o.threads = 1;
    assert_true(os_temp_dir(&t.a, &t.dir, &e));
    const char *path = str_fmt(&t.a, "%.*s/net.dnx", STR_ARG(t.dir)).p;
    if (quern_model_read(q, net, strlen(net), "net", NULL, &m) || quern_compile(m, NULL, &o, &p)) fail_msg("%s: %s", isa, quern_error(q));
    assert_int_equal(quern_run(p, NULL, 0, NULL, 0), QUERN_USAGE); /* it is not for this processor */
    if (quern_program_save(p, path) || quern_tensor_new(q, QUERN_F32, 4, (int64_t[]){1, 3, 13, 11}, x, &in) || quern_model_eval(m, &in, 1, &want, 1))
        fail_msg("%s", quern_error(q));
    assert_true(os_read(&t.a, path, 1 << 24, &bytes, &e) && dnx_read(&t.p, &t.a, bytes, &e));
    assert_true(isa_parse(&t.isa, t.p.isa, &e) && t.isa.family == caps_of(isa).isa.family);
    enum { USMMLA = 0x4e80ac00 };
    if (has_instruction(&t.p, USMMLA) != has_usmmla) fail_msg("%s: %s usmmla", isa, has_usmmla ? "no" : "there is");
    run_there(&t, x, countof(x), &out);
    assert_int_equal(out.n, 2 * 13 * 11 * (i64)sizeof(float));
    for (i64 i = 0; i < 2 * 13 * 11; i++) {
        float got;
        memcpy(&got, out.p + i * (i64)sizeof got, sizeof got);
        if (!(fabsf(got - ((float *)quern_tensor_data(want))[i]) < 1e-3f)) fail_msg("%s: element %lld is %g", isa, (long long)i, (double)got);
    }
    quern_tensor_free(in), quern_tensor_free(want);
    quern_program_close(p);
    quern_model_close(m);
    quern_close(q);
    os_remove_tree(str_z(&t.a, t.dir));
    buf_release(&out), buf_release(&t.text);
    arena_release(&t.a);
}

static const struct program { const char *isa; bool is_of_bytes, has_usmmla; }
programs[] = {
    {"aarch64", false, false},
    {"aarch64+dotprod+bf16+sve", false, false},
    {"aarch64+dotprod+i8mm+sve256", false, false},
    {"aarch64+dotprod", true, false},
    {"aarch64+dotprod+sve256", true, false},
    {"aarch64+dotprod+i8mm", true, true},
},
programs32[] = {
    {"armv7", false, false},
    {"armv7+neon-vfpv4", false, false},
    {"armv7+neon", true, false},
},
programs_x86[] = {
    {"i686", false, false},
    {"i686+avx2+fma+f16c", false, false},
    {"i686+sse4.2", true, false},
    {"i686+avx2", true, false},
    {"i686+avx512vl+avx512bw+avx512dq+avx512vnni", true, false},
};

static void check_programs(const struct program *x, u32 n)
{
    struct arena a = {0};
    struct buf bytes = {0};
    print_bytes_net(&bytes);
    for (u32 i = 0; i < n; i++) {
        struct isa isa = caps_of(x[i].isa).isa;
        if (!is_emulated(isa) && !is_here(isa)) continue;
        check_program(x[i].isa, x[i].is_of_bytes ? str_z(&a, buf_view(&bytes)) : float_net, x[i].has_usmmla);
    }
    buf_release(&bytes);
    arena_release(&a);
}

static void test_program(void **state)
{
    if (isa_here().family == ISA_AARCH64) skip_test("this processor is the one that is emulated");
    need(&arm64);
    check_programs(programs, countof(programs));
}

static void test_program32(void **state)
{
    if (isa_here().family == ISA_ARMV7) skip_test("this processor is the one that is emulated");
    need(&arm32);
    check_programs(programs32, countof(programs32));
}

static void test_program_x86(void **state)
{
    if (isa_here().family == ISA_X86) skip_test("this processor is the one that is emulated");
    need(&x86);
    check_programs(programs_x86, countof(programs_x86));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arm),   cmocka_unit_test(test_program),   cmocka_unit_test(test_sve),
                                       cmocka_unit_test(test_arm32), cmocka_unit_test(test_program32), cmocka_unit_test(test_x86),
                                       cmocka_unit_test(test_program_x86)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
