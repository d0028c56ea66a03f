// SPDX-License-Identifier: Apache-2.0
//
// Operators of the domains com.microsoft and ai.onnx.ml, and recurrent layers, against results of
// ONNX Runtime: each model in test/golden/ort has the content of its inputs as initializers
// "in:NAME" and its outputs as "want:NAME" (written by test/ort_cases.py). The model is imported,
// exported, imported again, and evaluated.
//
// TEST_ORT=glob runs the files that match, TEST_ORT_DIR=DIR those of another folder,
// TEST_ORT_LIST=1 lists them.
#include "export/export.h"
#include "import/import.h"
#include "io/io.h"
#include "op/op.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <onnx.pb-c.h>

enum { MAX_TENSORS = 32 };

struct golden {
    struct arena a;
    struct symtab st;
    struct graph g;
    Onnx__ModelProto *m;
    struct tensor *in[MAX_TENSORS], *got[MAX_TENSORS];
    struct err e;
};

/* The initializer PREFIX + name; NULL: there is none. */
static struct tensor *stored(struct golden *c, const char *prefix, struct str name)
{
    struct str full = str_fmt(&c->a, "%s%.*s", prefix, STR_ARG(name));
    for (size_t k = 0; k < c->m->graph->n_initializer; k++) {
        struct tensor *t = arena_new(&c->a, struct tensor);
        if (!str_is(full, c->m->graph->initializer[k]->name)) continue;
        if (io_onnx_tensor(t, &c->a, c->m->graph->initializer[k], NULL, &c->e)) return t;
    }
    return NULL;
}

static bool has_calls(const struct graph *g)
{
    for (node_id n = 1; n < g->node.n; n++)
        if (op_of(g, n)->props & OP_CALL) return true;
    return false;
}

static bool import(struct golden *c, struct str bytes)
{
    struct graph first;
    struct buf again = {0};
    symtab_init(&c->st, &c->a);
    graph_init(&first, &c->a, &c->st);
    bool ok = import_bytes(&first, &c->a, &c->st, bytes, &c->e);
    if (ok && has_calls(&first)) { /* which are not exported */
        c->g = first;
        return true;
    }
    ok = ok && export_onnx_bytes(&first, &again, &c->e);
    if (ok) {
        struct str copy = str_dup(&c->a, buf_view(&again));
        graph_init(&c->g, &c->a, &c->st);
        ok = import_bytes(&c->g, &c->a, &c->st, copy, &c->e);
    }
    buf_release(&again);
    return ok;
}

/* Quantised results may be one step off: rounding halves after arithmetic in another order. A model whose results ONNX
   Runtime only approximates has its own tolerance. */
static bool agrees(struct golden *c, const char *file, u32 k)
{
    struct str name = graph_value(&c->g, c->g.output.v[k])->name;
    const struct tensor *want = stored(c, "want:", name), *got = c->got[k];
    if (!want) return printf("FAILED %s: no content for output '%.*s'\n", file, STR_ARG(name)), false;
    bool empty = !tensor_count(want) && !tensor_count(got); /* for loops without iterations ONNX Runtime does not report the other sizes */
    if (got->dtype != want->dtype || got->rank != want->rank || (!empty && memcmp(got->dim, want->dim, sizeof(i64) * want->rank))) {
        printf("FAILED %s: '%.*s' is %s of rank %u, expected %s of rank %u\n", file, STR_ARG(name), dtype_name(got->dtype),
               got->rank, dtype_name(want->dtype), want->rank);
        return false;
    }
    if (empty) return true;
    bool half = want->dtype == DT_F16 || want->dtype == DT_BF16;
    bool bytes = want->dtype == DT_U8 || want->dtype == DT_I8;
    const struct tensor *own = stored(c, "tolerance", S(""));
    double tol = own ? elem_f64(own->dtype, own->data, 0) : half ? 1e-2 : 1e-4;
    struct tensor_diff d = tensor_compare(got, want, tol, bytes ? 1 : tol);
    if (!d.n_bad) return true;
    printf("FAILED %s: '%.*s': %lld wrong, first %lld: %g, expected %g\n", file, STR_ARG(name), (long long)d.n_bad,
           (long long)d.first_bad, d.got, d.want);
    return false;
}

static bool run(struct golden *c, const char *file, struct str bytes)
{
    c->m = io_onnx_unpack(&onnx__model_proto__descriptor, &c->a, bytes, &c->e);
    if (!c->m || !import(c, bytes)) return printf("FAILED %s: %s\n", file, c->e.msg), false;
    assert_true(c->g.input.n <= MAX_TENSORS && c->g.output.n <= MAX_TENSORS);
    for (u32 k = 0; k < c->g.input.n; k++) {
        c->in[k] = stored(c, "in:", graph_value(&c->g, c->g.input.v[k])->name);
        if (!c->in[k]) return printf("FAILED %s: no content for input %u\n", file, k), false;
    }
    if (!graph_eval(&c->g, c->in, c->got, &c->a, NULL, &c->e)) return printf("FAILED %s: %s\n", file, c->e.msg), false;
    bool ok = true;
    for (u32 k = 0; k < c->g.output.n; k++) ok &= agrees(c, file, k);
    return ok;
}

static void test_golden(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct str *names;
    i64 n, failed = 0, count = 0;
    const char *glob = getenv("TEST_ORT"), *own = getenv("TEST_ORT_DIR"), *dir = own ? own : "test/golden/ort";
    assert_true(os_list(&a, dir, &names, &n, &e));
    for (i64 i = 0; i < n; i++) {
        struct golden *c = arena_new(&a, struct golden);
        const char *file = str_z(&a, names[i]);
        struct str bytes;
        if (!str_glob(S("*.onnx"), names[i]) || (glob && !str_glob(str_of(glob), names[i]))) continue;
        if (!os_read(&c->a, str_fmt(&a, "%s/%s", dir, file).p, 1 << 28, &bytes, &c->e)) fail_msg("%s", c->e.msg);
        bool ok = run(c, file, bytes);
        if (ok && getenv("TEST_ORT_LIST")) printf("ok %s\n", file);
        failed += !ok, count++;
        arena_release(&c->a);
    }
    printf("%d models, %d failed\n", (int)count, (int)failed);
    arena_release(&a);
    assert_int_equal(failed, 0);
    assert_true(count > 0 || glob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
