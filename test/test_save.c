// SPDX-License-Identifier: Apache-2.0
//
// A program that is opened and saved again yields the same file, with all its variants, whichever
// of them runs here.
#include "program_fixture.h"

#include <stdlib.h>

static const char net[] = "graph {\n  input %x: f32[N,8]\n  %y: f32[N,8] = Relu(%x)\n  output %y\n}\n";

/* Instruction sets that any processor of this family runs, and more. */
static const char *const *two_sets(void)
{
    static const char *const x86[] = {"x86-64", "x86-64-v2", "x86-64,x86-64-v2"}, *const arm[] = {"aarch64", "aarch64+dotprod", "aarch64,aarch64+dotprod"};
    return isa_here().family == ISA_X86_64 ? x86 : isa_here().family == ISA_AARCH64 ? arm : NULL;
}

static void read_file(struct arena *a, const char *path, struct str *out)
{
    struct err e = {0};
    if (!os_read(a, path, 1 << 24, out, &e)) fail_msg("%s", e.msg);
}

static void test_variants(void **state)
{
    const char *const *isa = two_sets();
    if (!isa) skip();
    struct arena a = {0};
    struct err e = {0};
    struct str dir, first, again;
    struct quern_compile_opts o = QUERN_OPTS(quern_compile_opts);
    struct quern_target_opts target = QUERN_OPTS(quern_target_opts);
    struct fixture b = {.q = quern_open(NULL)};
    if (!os_temp_dir(&a, &dir, &e)) fail_msg("%s", e.msg);
    const char *path = str_fmt(&a, "%.*s/net.dnx", STR_ARG(dir)).p, *copy = str_fmt(&a, "%.*s/copy.dnx", STR_ARG(dir)).p;
    target.isa = isa[2], o.target = &target, o.device = "cpu";
    must(&b, quern_model_read(b.q, net, strlen(net), "net", NULL, &b.m));
    must(&b, quern_compile(b.m, NULL, &o, &b.p));
    must(&b, quern_program_save(b.p, path));
    read_file(&a, path, &first);
    for (int k = 0; k < 2; k++) { /* the one that is named, or the best: either is saved with the other */
        struct quern_run_opts r = QUERN_OPTS(quern_run_opts);
        quern_program *p = NULL;
        r.device = "cpu", r.isa = k ? isa[0] : NULL;
        must(&b, quern_program_open(b.q, path, &r, &p));
        must(&b, quern_program_save(p, copy));
        read_file(&a, copy, &again);
        assert_true(str_eq(first, again));
        quern_program_close(p);
    }
    fixture_close(&b);
    os_remove_tree(dir.p);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_variants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
