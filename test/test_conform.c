// SPDX-License-Identifier: Apache-2.0
//
// The reference evaluator against ONNX's own node tests (package libonnx-testdata), an independent
// definition of the operators. Every case agrees or is rejected with a reason; inputs that decide
// sizes (axes, shapes, pads) become constants of the model first, as in networks. Skipped without
// the package.
//
// TEST_CONFORM=glob runs the cases whose name matches, TEST_CONFORM_LIST=1 prints every rejection.
#include "import/import.h"
#include "io/io.h"
#include "op/op.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skip.h"

#define CASES "/usr/share/libonnx-testdata/data/node"

enum { MAX_TENSORS = 64, LEAST_PASSED = 450 };

struct test_case {
    struct arena a;
    struct symtab st;
    struct graph g;
    struct str name;
    struct tensor t[MAX_TENSORS];   /* the inputs as files give them */
    struct tensor *in[MAX_TENSORS]; /* those that stay inputs */
    struct tensor *out[MAX_TENSORS];
    u32 n_in;
    struct err e;
};

enum outcome { PASSED, FAILED, REFUSED };

static const char *path_of(struct test_case *c, const char *file, u32 k)
{
    return str_fmt(&c->a, CASES "/%.*s/test_data_set_0/%s_%u.pb", STR_ARG(c->name), file, k).p;
}

static bool read_inputs(struct test_case *c)
{
    for (c->n_in = 0; c->n_in < MAX_TENSORS && os_exists(path_of(c, "input", c->n_in)); c->n_in++)
        if (!io_read(c->in[c->n_in] = &c->t[c->n_in], &c->a, path_of(c, "input", c->n_in), &c->e))
            return false;
    return true;
}

/* Inputs that determine sizes: small vectors and scalars. */
static bool is_parameter(const struct tensor *t)
{
    return t->rank <= 1 && tensor_count(t) <= 16 &&
           (t->dtype == DT_I64 || t->dtype == DT_I32 || t->dtype == DT_F32 || t->dtype == DT_BOOL);
}

/* The model with those inputs turned into constants. */
static bool with_constants(struct test_case *c, struct str *bytes)
{
    struct tensor *content[MAX_TENSORS] = {0};
    u32 kept = 0;
    for (u32 k = 0; k < c->n_in; k++) {
        if (is_parameter(&c->t[k])) content[k] = &c->t[k];
        else c->in[kept++] = &c->t[k];
    }
    return import_freeze(bytes, &c->a, *bytes, content, c->n_in, &c->e);
}

static bool import(struct test_case *c, bool constants)
{
    struct str bytes;
    if (!os_read(&c->a, str_fmt(&c->a, CASES "/%.*s/model.onnx", STR_ARG(c->name)).p, 1 << 28,
                 &bytes, &c->e))
        return false;
    symtab_init(&c->st, &c->a);
    graph_init(&c->g, &c->a, &c->st);
    if (constants && !with_constants(c, &bytes)) return false;
    return import_bytes(&c->g, &c->a, &c->st, bytes, &c->e);
}

/* The cases hold bf16 as u16. */
static void as_bf16(struct tensor *t)
{
    if (t->dtype == DT_U16) t->dtype = DT_BF16;
}

/* Random numbers are the implementation's own: only their types and shapes can be compared. */
static bool is_random(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (!graph_node(g, n)->dead && op_of(g, n)->props & OP_RANDOM) return true;
    return false;
}

static bool agrees(struct test_case *c, u32 k)
{
    struct tensor want;
    if (!os_exists(path_of(c, "output", k)) ||
        !io_read(&want, &c->a, path_of(c, "output", k), &c->e))
        return true;
    const struct tensor *got = c->out[k];
    if (got->dtype == DT_BF16) as_bf16(&want);
    bool half = want.dtype == DT_F16 || want.dtype == DT_BF16;
    if (got->dtype != want.dtype || got->rank != want.rank ||
        memcmp(got->dim, want.dim, sizeof(i64) * want.rank)) {
        printf("FAILED %.*s: output %u: %s of rank %u, expected %s of rank %u\n", STR_ARG(c->name),
               k, dtype_name(got->dtype), got->rank, dtype_name(want.dtype), want.rank);
        return false;
    }
    struct tensor_diff d = tensor_compare(got, &want, half ? 1e-2 : 1e-3, half ? 1e-2 : 1e-5);
    if (is_random(&c->g)) return true;
    if (d.n_bad)
        printf("FAILED %.*s: output %u: %lld wrong, first %lld: %g, expected %g\n",
               STR_ARG(c->name), k, (long long)d.n_bad, (long long)d.first_bad, d.got, d.want);
    return !d.n_bad;
}

static enum outcome run_case(struct test_case *c)
{
    bool ok = import(c, false) && read_inputs(c);
    if (!ok) {
        c->e = (struct err){0};
        if (!read_inputs(c) || !import(c, true)) return REFUSED;
    }
    assert_true(c->g.output.n < MAX_TENSORS);
    for (u32 k = 0; k < c->g.input.n; k++)
        if (graph_value(&c->g, c->g.input.v[k])->dtype == DT_BF16) as_bf16(c->in[k]);
    if (!graph_eval(&c->g, c->in, c->out, &c->a, NULL, &c->e)) return REFUSED;
    for (u32 k = 0; k < c->g.output.n; k++)
        if (!agrees(c, k)) return FAILED;
    return PASSED;
}

static void test_cases(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct str *names;
    i64 n, count[3] = {0};
    const char *glob = getenv("TEST_CONFORM");
    if (!os_is_dir(CASES)) skip_test("no '%s' (tool/deps test)", CASES);
    assert_true(os_list(&a, CASES, &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        struct test_case *c = arena_new(&a, struct test_case);
        c->name = names[i];
        if (glob && !str_glob(str_of(glob), c->name)) continue;
        enum outcome o = run_case(c);
        count[o]++;
        if (o == REFUSED && getenv("TEST_CONFORM_LIST"))
            printf("REFUSED %.*s: %s\n", STR_ARG(c->name), c->e.msg);
        if (o == REFUSED) assert_true(c->e.code != ERR_NONE && c->e.msg[0]);
        arena_release(&c->a);
    }
    printf("%d passed, %d failed, %d refused\n", (int)count[PASSED], (int)count[FAILED],
           (int)count[REFUSED]);
    assert_int_equal(count[FAILED], 0);
    assert_true(glob || count[PASSED] >= LEAST_PASSED);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
