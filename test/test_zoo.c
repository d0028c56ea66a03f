// SPDX-License-Identifier: Apache-2.0
//
// Networks of the zoo whose sizes can be chosen: their values neither vanish nor grow, a change of any weight shows in the outputs (so an
// error of any layer does), and wrong sizes are refused by name.
#include "export/export.h"
#include "import/import.h"
#include "zoo/zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct net_case {
    const struct zoo *z;
    struct arena arena;
    struct symtab sym;
    struct graph g;
    struct tensor **in;
    struct err e;
};

static void fill(struct tensor *t, struct rng *r)
{
    for (i64 i = 0; i < tensor_count(t); i++) {
        if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, i, 2 * rng_f64(r) - 1);
        else elem_set_i64(t->dtype, t->data, i, rng_range(r, 0, 9));
    }
}

static const char deep[] = "layers=24"; /* as deep as the deepest published one */

static void open_case(struct net_case *c, const struct zoo *z, const char *sizes)
{
    struct rng r = rng_seed(1);
    *c = (struct net_case){.z = z};
    symtab_init(&c->sym, &c->arena);
    graph_init(&c->g, &c->arena, &c->sym);
    if (!zoo_build(z, sizes, true, &c->g, &c->e) || !op_infer_all(&c->g, &c->e)) fail_msg("%s: %s", z->name, c->e.msg);
    c->in = arena_array(&c->arena, struct tensor *, c->g.input.n);
    for (u32 k = 0; k < c->g.input.n; k++) {
        const struct value *v = graph_value(&c->g, c->g.input.v[k]);
        i64 dim[MAX_RANK];
        if (!shape_is_static(&c->sym, &v->shape, dim)) fail_msg("%s: its small sizes are not fixed", z->name);
        c->in[k] = tensor_new(&c->arena, v->dtype, v->shape.rank, dim);
        fill(c->in[k], &r);
    }
}

static struct tensor **eval(struct net_case *c, struct arena *a)
{
    struct tensor **out = arena_array(a, struct tensor *, c->g.output.n);
    if (!graph_eval(&c->g, c->in, out, a, NULL, &c->e)) fail_msg("%s: %s", c->z->name, c->e.msg);
    return out;
}

static void check_values(const struct zoo *z, const char *sizes)
{
    struct net_case c;
    open_case(&c, z, sizes);
    struct tensor **out = eval(&c, &c.arena);
    for (u32 o = 0; o < c.g.output.n; o++) {
        double sum = 0, n = (double)tensor_count(out[o]);
        for (i64 i = 0; i < tensor_count(out[o]); i++) {
            double x = elem_f64(DT_F32, out[o]->data, i);
            sum += x * x;
        }
        if (!(sum / n > 0.1 && sum / n < 10)) fail_msg("%s: output %u has a mean square of %g", z->name, o, sum / n);
    }
    arena_release(&c.arena);
}

static void test_values(void **state)
{
    for (i64 k = 0; zoo_at(k); k++) {
        if (!zoo_at(k)->size) continue;
        check_values(zoo_at(k), NULL);
        check_values(zoo_at(k), deep);
    }
}

static bool has(const char *name, const char *part) { return strstr(name, part) != NULL; }

/* Weights that have no influence by definition. */
static bool is_idle(const struct net_case *c, const struct value *v)
{
    const char *name = v->name.p;
    if (has(name, "key.bias")) return true;  /* the same for all keys of a query */
    if (has(name, "regions")) return true;   /* 0 and -100, a mask */
    /* the last windows of small pictures have one token */
    return str_is(str_of(c->z->name), "swin-moe") && has(name, "stage.3") && (has(name, "query") || has(name, "key") || has(name, "table"));
}

static bool is_weight(const struct net_case *c, const struct value *v)
{
    return v->is_const && v->data && v->dtype == DT_F32 && v->shape.rank > 0 && tensor_count(v->data) > 1 && !is_idle(c, v);
}

static void scale(const struct tensor *t, double by)
{
    for (i64 i = 0; i < tensor_count(t); i++) elem_set_f64(DT_F32, t->data, i, by * elem_f64(DT_F32, t->data, i));
}

/* Largest difference of an output, relative to its largest element. */
static double distance(const struct net_case *c, struct tensor **a, struct tensor **b)
{
    double most = 0;
    for (u32 o = 0; o < c->g.output.n; o++) most = fmax(most, tensor_compare(a[o], b[o], 0, 0).max_abs / tensor_largest(b[o]));
    return most;
}

/* Changes each weight in turn; returns their number. */
static u32 change_weights(const struct zoo *z, const char *sizes, const char *only, double *least)
{
    struct net_case c;
    u32 n = 0;
    open_case(&c, z, sizes);
    struct tensor **want = eval(&c, &c.arena);
    for (value_id v = 1; v < c.g.value.n; v++) {
        const struct value *x = graph_value(&c.g, v);
        struct arena a = {0};
        if (!is_weight(&c, x) || !has(x->name.p, only)) continue;
        scale(x->data, 1.25);
        double d = distance(&c, eval(&c, &a), want);
        if (!(d > 1e-4)) fail_msg("%s: '%s' 1.25 times as large changes the outputs by %g", z->name, x->name.p, d);
        *least = fmin(*least, d);
        scale(x->data, 0.8);
        arena_release(&a);
        n++;
    }
    arena_release(&c.arena);
    return n;
}

static void test_weights(void **state)
{
    double least = INFINITY;
    u32 n = 0, n_deep = 0;
    for (i64 k = 0; zoo_at(k); k++) {
        if (!zoo_at(k)->size) continue;
        n += change_weights(zoo_at(k), NULL, "", &least);
        n_deep += change_weights(zoo_at(k), deep, "layer.0.", &least);
    }
    assert_true(n > 200 && n_deep > 50);
    print_message("%u weights, %u in front of 23 layers: outputs change by at least %g\n", n, n_deep, least);
}

/* A network whose weights are in a file beside the model is the same network. */
static void test_split(void **state)
{
    struct net_case c, back = {0};
    struct str dir;
    open_case(&c, zoo_find(S("llama2")), NULL);
    assert_true(os_temp_dir(&c.arena, &dir, &c.e));
    const char *path = str_fmt(&c.arena, "%s/net.onnx", dir.p).p, *whole = str_fmt(&c.arena, "%s/whole.onnx", dir.p).p;
    const char *beside = str_fmt(&c.arena, "%s.data", path).p;
    if (!export_onnx_split(&c.g, path, 1000, &c.e) || !export_onnx_graph(&c.g, whole, &c.e)) fail_msg("%s", c.e.msg);
    assert_true(os_exists(beside) && !os_exists(str_fmt(&c.arena, "%s.data", whole).p));
    symtab_init(&back.sym, &back.arena);
    back.z = c.z, back.in = c.in;
    if (!import_graph(&back.g, &back.arena, &back.sym, path, &back.e)) fail_msg("%s", back.e.msg);
    assert_true(distance(&c, eval(&back, &back.arena), eval(&c, &c.arena)) == 0);
    struct err e = {0};
    assert_true(os_write(beside, "short", 5, &e));
    assert_false(import_graph(&back.g, &back.arena, &back.sym, path, &e));
    os_remove_tree(dir.p);
    arena_release(&back.arena);
    arena_release(&c.arena);
}

static void refuse(const char *net, const char *sizes, const char *want)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    symtab_init(&st, &a);
    graph_init(&g, &a, &st);
    assert_false(zoo_build(zoo_find(str_of(net)), sizes, true, &g, &e));
    assert_int_equal(e.code, ERR_USAGE);
    if (!strstr(e.msg, want)) fail_msg("'%s' does not say '%s'", e.msg, want);
    arena_release(&a);
}

static void test_refused(void **state)
{
    refuse("resnet50", "layers=2", "'resnet50' has no size 'layers', its sizes are fixed");
    refuse("gpt2", "window=2", "'gpt2' has no size 'window'; it has layers, width, heads");
    refuse("gpt2", "layers=0", "'layers=0' is not within 1 to 1048576");
    refuse("gpt2", "layers=1048577", "is not within");
    refuse("gpt2", "layers=99999999999999999999", "not of the form");
    refuse("gpt2", "layers", "not of the form");
    refuse("gpt2", "width=50", "a width of 50 is not a multiple of 3 heads");
    refuse("llama3-1b", "kv-heads=4", "6 heads are not a multiple of 4");
    refuse("llama2", "width=4", "cannot be rotated");
    refuse("swin-moe", "image=48", "not a multiple of 32");
    refuse("vit", "patch=5", "not a multiple of patches of 5");
    refuse("swin-moe", "batch=0", "not within 1");
}

/* Sizes of published networks, without building them. */
static void test_real(void **state)
{
    for (i64 k = 0; zoo_at(k); k++) {
        u32 n = 0;
        for (const struct zoo_size *s = zoo_at(k)->size; s && s->name; s++, n++)
            if (s->small < 1 || s->small > ZOO_LARGEST || s->real < 0 || s->real > ZOO_LARGEST) fail_msg("%s: %s", zoo_at(k)->name, s->name);
        assert_true(n <= ZOO_MAX_SIZES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_weights), cmocka_unit_test(test_split), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_real)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
