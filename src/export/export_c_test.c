// SPDX-License-Identifier: Apache-2.0
//
// export_c_test.c: a test of a program in C: inputs, what the reference evaluator makes of them, and a main function that compares. And files to build it.
#include "export/export_c.h"

#include <math.h>

static void put_array(struct buf *b, const struct tensor *x, const char *what, u32 sample, u32 k)
{
    i64 n = tensor_count(x);
    buf_printf(b, "static const %s %s_%u_%u[%lld] = {\n", c_type(x->dtype), what, sample, k, (long long)i64_max(n, 1));
    if (n) c_print_elements(b, x->dtype, x->data, n);
    else buf_z(b, "    0,\n");
    buf_z(b, "};\n");
}

static const char *value_of(enum dtype d)
{
    return d == DT_F16 ? "from_f16" : d == DT_BF16 ? "from_bf16" : "";
}

/* Compares as tensor_compare does: |got - want| <= atol + rtol*|want|. */
static void put_check(struct buf *b, enum dtype d)
{
    const char *of = value_of(d);
    buf_printf(b, "static int check_%s(const char *name, const %s *got, const %s *want, long n, double rtol, double atol)\n{\n", dtype_name(d), c_type(d), c_type(d));
    buf_z(b, "    double most = 0, error, size;\n    long i, n_bad = 0;\n    for (i = 0; i < n; i++) {\n");
    buf_printf(b, "        const double x = (double)%s(got[i]), y = (double)%s(want[i]);\n", of, of);
    buf_z(b, "        if (x == y || (x != x && y != y)) continue;\n        \n        error = x < y ? y - x : x - y, size = y < 0 ? -y : y;\n"
             "        if (!(error <= most)) most = error;\n        n_bad += !(error <= atol + rtol * size);\n    }\n"
             "    REPORT(name, n_bad, n, most);\n    return n_bad != 0;\n}\n\n");
}

static void put_checks(struct buf *b, const struct c_net *n)
{
    const struct plan *p = n->p;
    for (u32 k = 0; k < p->output.n; k++) {
        bool known = false;
        for (u32 i = 0; i < k; i++) known |= p->output.v[i].dtype == p->output.v[k].dtype;
        if (known) continue;
        if (p->output.v[k].dtype == DT_BF16)
            buf_z(b, "static float from_bf16(uint16_t h)\n{\n    union { uint32_t u; float f; } x;\n    x.u = (uint32_t)h << 16;\n    return x.f;\n}\n\n");
        if (p->output.v[k].dtype == DT_F16)
            buf_z(b, "static double from_f16(uint16_t h)\n{\n    const int e = h >> 10 & 31, m = h & 1023;\n"
                     "    const double x = e == 31 ? m ? NAN : INFINITY : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);\n    return h >> 15 ? -x : x;\n}\n\n");
        put_check(b, p->output.v[k].dtype);
    }
}

static void put_memory(struct buf *b, const struct c_net *n)
{
    buf_printf(b, "static union { double align; uint8_t bytes[%.*s_ARENA_BYTES + 1]; } arena;\n", STR_ARG(n->upper));
    for (u32 k = 0; k < n->p->output.n; k++)
        buf_printf(b, "static %s y_%u[%lld];\n", c_type(n->p->output.v[k].dtype), k, (long long)i64_max(c_io_count(n, &n->p->output.v[k]), 1));
    if (n->has_threads)
        buf_printf(b, "\n/* One thread, in two parts. */\nstatic void in_parts(void *user, %.*s_part_fn *part, void *job, int32_t n)\n{\n    (void)user;\n"
                      "    part(job, 0, n / 2, 0);\n    part(job, n / 2, n, 1);\n}\n", STR_ARG(n->prefix));
    if (n->weights.n)
        buf_printf(b, "\nstatic union { double align[2]; uint8_t bytes[%.*s_WEIGHT_BYTES + 1]; } weights;\n\n"
                      "static int read_weights(const char *path)\n{\n    FILE *f = fopen(path, \"rb\");\n"
                      "    const size_t n = f ? fread(weights.bytes, 1, %.*s_WEIGHT_BYTES, f) : 0;\n    if (f) fclose(f);\n"
                      "    return n == %.*s_WEIGHT_BYTES;\n}\n", STR_ARG(n->upper), STR_ARG(n->upper), STR_ARG(n->upper));
}

static void put_sample(struct buf *b, const struct c_net *n, const struct export_sample *s, u32 at)
{
    const struct plan *p = n->p;
    buf_printf(b, "static int sample_%u(void)\n{\n", at);
    buf_printf(b, "    const struct %.*s_in in = {", STR_ARG(n->prefix));
    for (u32 k = 0; k < p->input.n; k++) buf_printf(b, "%sin_%u_%u", k ? ", " : "", at, k);
    buf_printf(b, "%s};\n    const struct %.*s_out out = {", p->input.n ? "" : "0", STR_ARG(n->prefix));
    for (u32 k = 0; k < p->output.n; k++) buf_printf(b, "%sy_%u", k ? ", " : "", k);
    buf_printf(b, "};\n    int bad = 0;\n    %.*s_run(&in, &out, arena.bytes%s%s);\n", STR_ARG(n->prefix), n->weights.n ? ", weights.bytes" : "",
               n->has_threads ? ", in_parts, NULL" : "");
    for (u32 k = 0; k < p->output.n; k++)
        buf_printf(b, "    bad |= check_%s(\"sample %u, %.*s\", y_%u, want_%u_%u, %lld, %.17g, %.17g);\n", dtype_name(p->output.v[k].dtype), at, STR_ARG(n->out[k]),
                   k, at, k, (long long)c_io_count(n, &p->output.v[k]), s->rtol[k], s->atol[k]);
    buf_z(b, "    return bad;\n}\n\n");
}

static bool has_infinite(const struct tensor *x)
{
    for (i64 i = 0; (x->dtype == DT_F32 || x->dtype == DT_F64) && i < tensor_count(x); i++)
        if (!isfinite(elem_f64(x->dtype, x->data, i))) return true;
    return false;
}

static bool needs_math(const struct c_net *n, const struct export_job *j)
{
    bool needs = false;
    for (u32 k = 0; k < n->p->output.n; k++) needs |= n->p->output.v[k].dtype == DT_F16;
    for (u32 i = 0; i < j->n_sample; i++) {
        for (u32 k = 0; k < n->p->input.n; k++) needs |= has_infinite(j->sample[i].in[k]);
        for (u32 k = 0; k < n->p->output.n; k++) needs |= has_infinite(j->sample[i].out[k]);
    }
    return needs;
}

void c_print_test(struct buf *b, const struct c_net *n, const struct export_job *j)
{
    buf_printf(b, "/* Runs the network on inputs with known results. Exit code 0: all results are right. */\n");
    buf_printf(b, "#include \"%.*s.h\"\n\n%s"
                  "#ifdef %.*s_QUIET /* without stdio.h */\n#define REPORT(name, n_bad, n, most) ((void)(name), (void)(n), (void)(most))\n"
                  "#else\n#include <stdio.h>\n#define REPORT(name, n_bad, n, most) printf(\"%%s: %%ld of %%ld elements wrong, largest error %%g\\n\", name, n_bad, n, most)\n"
                  "#endif\n\n", STR_ARG(n->prefix), needs_math(n, j) ? "#include <math.h>\n" : "", STR_ARG(n->upper));
    for (u32 i = 0; i < j->n_sample; i++) {
        for (u32 k = 0; k < n->p->input.n; k++) put_array(b, j->sample[i].in[k], "in", i, k);
        for (u32 k = 0; k < n->p->output.n; k++) put_array(b, j->sample[i].out[k], "want", i, k);
    }
    buf_char(b, '\n');
    put_memory(b, n);
    buf_char(b, '\n');
    put_checks(b, n);
    for (u32 i = 0; i < j->n_sample; i++) put_sample(b, n, &j->sample[i], i);
    buf_z(b, n->weights.n ? "int main(int argc, char **argv)\n{\n    int bad = 0;\n" : "int main(void)\n{\n    int bad = 0;\n");
    if (n->weights.n)
        buf_z(b, "    if (argc != 2 || !read_weights(argv[1])) {\n        fprintf(stderr, \"the file of weights is missing or too short\\n\");\n        return 2;\n    }\n");
    for (u32 i = 0; i < j->n_sample; i++) buf_printf(b, "    bad |= sample_%u();\n", i);
    buf_z(b, "    return bad;\n}\n");
}

/* Files to build it. */

static struct str weights_source(const struct c_net *n)
{
    return n->weights.n ? S("") : str_fmt(n->a, " %.*s_weights", STR_ARG(n->prefix));
}

void c_print_make(struct buf *b, const struct c_net *n)
{
    struct str p = n->prefix, w = weights_source(n);
    buf_printf(b, "# make: lib%.*s.a; make test: builds and runs %.*s_test\n", STR_ARG(p), STR_ARG(p));
    buf_printf(b, "CFLAGS = -O2 -Wall -Wextra\n");
    buf_printf(b, "ARCH =%s%s\n", n->isa->march[0] ? " " : "", n->isa->march);
    buf_printf(b, "OBJECTS = $(addsuffix .o,%.*s%.*s)\n\n", STR_ARG(p), STR_ARG(w));
    buf_printf(b, "lib%.*s.a: $(OBJECTS)\n\trm -f $@\n\t$(AR) rcs $@ $(OBJECTS)\n\n", STR_ARG(p));
    buf_printf(b, "%%.o: %%.c %.*s.h\n\t$(CC) -std=c99 $(CFLAGS) $(ARCH) -c -o $@ $<\n\n", STR_ARG(p));
    buf_printf(b, "%.*s_test: %.*s_test.o lib%.*s.a\n\t$(CC) $(CFLAGS) $(ARCH) $(LDFLAGS) -o $@ %.*s_test.o lib%.*s.a -lm\n\n", STR_ARG(p), STR_ARG(p), STR_ARG(p),
               STR_ARG(p), STR_ARG(p));
    buf_printf(b, "test: %.*s_test\n\t$(RUN) ./%.*s_test%s%.*s\n\n", STR_ARG(p), STR_ARG(p), n->weights.n ? " " : "", STR_ARG(n->weights));
    buf_printf(b, "clean:\n\trm -f *.o lib%.*s.a %.*s_test\n\n.PHONY: test clean\n", STR_ARG(p), STR_ARG(p));
}

void c_print_cmake(struct buf *b, const struct c_net *n)
{
    struct str p = n->prefix;
    buf_printf(b, "cmake_minimum_required(VERSION 3.10)\nproject(%.*s C)\nset(CMAKE_C_STANDARD 99)\n", STR_ARG(p));
    buf_printf(b, "add_library(%.*s STATIC %.*s.c", STR_ARG(p), STR_ARG(p));
    if (!n->weights.n) buf_printf(b, " %.*s_weights.c", STR_ARG(p));
    buf_printf(b, ")\ntarget_include_directories(%.*s PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})\n", STR_ARG(p));
    buf_printf(b, "target_link_libraries(%.*s PUBLIC m)\n\nenable_testing()\n", STR_ARG(p));
    buf_printf(b, "add_executable(%.*s_test %.*s_test.c)\ntarget_link_libraries(%.*s_test %.*s)\n", STR_ARG(p), STR_ARG(p), STR_ARG(p), STR_ARG(p));
    buf_printf(b, "add_test(NAME %.*s COMMAND %.*s_test", STR_ARG(p), STR_ARG(p));
    if (n->weights.n) buf_printf(b, " ${CMAKE_CURRENT_SOURCE_DIR}/%.*s", STR_ARG(n->weights));
    buf_z(b, ")\n");
}
