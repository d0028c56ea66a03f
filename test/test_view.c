// SPDX-License-Identifier: Apache-2.0
//
// Networks as graphs for other programs. The text forms of one network are golden
// (test/golden/graph; GOLDEN=1 writes them anew); random networks have the properties that any
// reader relies on. test/graph.sh has other programs read them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "random_net.h"
#include "seeds.h"
#include "view/view.h"

static const char folder[] = "test/golden/graph";
static const char sample[] = "graph { input %x: f32[1,3,32,32] input %y: f32[1,1,32,32] "
                             "const %w: f32[1,3,1,1] = [0.5, 0.25, 0.25] "
                             "%c: f32[1,1,32,32] = Conv \"/conv/Conv\"(%x, %w) "
                             "%z: f32[1,1,32,32] = Add \"/Add\"(%c, %y) output %z }";

struct fixture {
    struct arena a;
    struct model *m;
    struct place_net x;
    struct view v;
    struct place_devices devices;
    struct place_allocation allocation;
    struct place_parts parts;
    struct err e;
};

static void fixture_open(struct fixture *f, struct str text)
{
    struct model_source s = {.path = "sample", .bytes = text};
    struct model_opts o = {0};
    *f = (struct fixture){0};
    f->m = model_open(&s, &o, &f->e);
    if (!f->m || !place_net_open(&f->x, f->m, &f->a, &f->e)) fail_msg("%s", f->e.msg);
    f->v = (struct view){.x = &f->x, .var = f->m->var, .n_var = f->m->n_var, .shows_params = true};
}

static void fixture_close(struct fixture *f)
{
    arena_release(&f->a);
    model_close(f->m);
}

/* A sub-graph per run of operators that have the device k % n. */
static void allocate(struct fixture *f, const char *const *device, u32 n, u32 run)
{
    f->allocation.device = arena_array(&f->a, u32, f->x.op.n + 1);
    for (u32 d = 0; d < n; d++) arr_push(&f->a, &f->devices)->name = str_of(device[d]);
    for (u32 k = 0; k < f->x.op.n; k++) {
        const u32 d = k / run % n;
        f->allocation.device[k] = d;
        if (k % run == 0) *arr_push(&f->a, &f->parts) = (struct place_part){.device = d};
        *arr_push(&f->a, &f->parts.v[f->parts.n - 1].op) = k;
    }
    for (u32 p = 1; p < f->parts.n; p++) *arr_push(&f->a, &f->parts.v[p].after) = p - 1;
    f->v.devices = &f->devices, f->v.allocation = &f->allocation, f->v.parts = &f->parts;
    view_init(&f->v, &f->a);
}

static void print(struct buf *b, const struct view *v, const char *form)
{
    if (!strcmp(form, "json")) view_json(b, v);
    else if (!strcmp(form, "graphml")) view_graphml(b, v);
    else view_dot(b, v);
}

static void check_golden(const struct view *v, const char *name, const char *form)
{
    struct arena a = {0};
    struct buf b = {0};
    struct err e = {0};
    struct str want;
    const char *path = str_fmt(&a, "%s/%s.%s", folder, name, form).p;
    print(&b, v, form);
    if (getenv("GOLDEN")) assert_true(os_write(path, b.p, b.n, &e));
    if (!os_read(&a, path, 1 << 20, &want, &e)) fail_msg("%s", e.msg);
    if (!str_eq(want, buf_view(&b))) fail_msg("%s differs:\n%s", path, b.p);
    buf_release(&b);
    arena_release(&a);
}

static void texts_of_the_sample_are_golden(void **state)
{
    static const char *const forms[] = {"json", "graphml", "dot"};
    static const char *const devices[] = {"HEXAGON:0", "X64:1"};
    struct fixture f;
    fixture_open(&f, str_of(sample));
    for (int k = 0; k < countof(forms); k++) check_golden(&f.v, "sample", forms[k]);
    allocate(&f, devices, 2, 1);
    f.v.size = 5;
    for (int k = 0; k < countof(forms); k++) check_golden(&f.v, "allocated", forms[k]);
    fixture_close(&f);
}

/* Every node before those that depend on it, operators beside tensors only, an edge once. */
static void check_json(struct str text)
{
    json_error_t at;
    json_t *all = json_loadb(text.p, (size_t)text.n, JSON_REJECT_DUPLICATES, &at), *nodes, *edges,
           *x;
    if (!all) fail_msg("%s: line %d: %.*s", at.text, at.line, STR_ARG(text));
    json_t *position = json_object();
    size_t k;
    nodes = json_object_get(all, "nodes"), edges = json_object_get(all, "edges");
    json_array_foreach(nodes, k, x)
    {
        const char *id = json_string_value(json_object_get(x, "id"));
        assert_null(json_object_get(position, id));
        assert_string_equal(id,
                            json_string_value(json_object_get(json_object_get(x, "data"), "name")));
        json_object_set_new(position, id, json_integer((json_int_t)k));
    }
    json_array_foreach(edges, k, x)
    {
        const char *from = json_string_value(json_object_get(x, "source")),
                   *to = json_string_value(json_object_get(x, "target"));
        const json_t *a = json_object_get(position, from), *b = json_object_get(position, to);
        assert_true(a && b && json_integer_value(a) < json_integer_value(b));
        const bool is_tensor = strstr(from, "tensor_") != NULL;
        assert_true(is_tensor != (strstr(to, "tensor_") != NULL));
    }
    json_decref(position);
    json_decref(all);
}

static bool reaches(const struct fixture *f, u32 from, u32 to, u8 *seen)
{
    const struct place_net *x = &f->x;
    if (from == to) return true;
    if (seen[from]++) return false;
    for (u32 k = 0; k < x->op.n; k++)
        for (u32 i = 0; i < x->op.v[k].in.n; i++) {
            const node_id maker =
                graph_value(&x->g, x->tensor.v[x->op.v[k].in.v[i]].value)->producer;
            const u32 op = maker ? x->op_of[maker] : UINT32_MAX, group = f->v.groups.of[k];
            if (op == UINT32_MAX || f->v.groups.of[op] != from || group == from) continue;
            if (reaches(f, group, to, seen)) return true;
        }
    return false;
}

static void check_groups(struct fixture *f)
{
    const struct view_groups *g = &f->v.groups;
    u32 n = 0;
    if (!g->of) return;
    for (u32 k = 0; k < g->group.n; k++) {
        n += g->group.v[k].op.n;
        for (u32 i = 0; i < g->group.v[k].op.n; i++) {
            const u32 op = g->group.v[k].op.v[i];
            assert_true(g->of[op] == k &&
                        (!f->v.part_of || f->v.part_of[op] == g->group.v[k].part));
        }
    }
    assert_true(n == f->x.op.n);
    for (u32 k = 0; k < f->x.op.n; k++) /* no group that this one's successors reach is itself */
        for (u32 i = 0; i < f->x.op.v[k].in.n; i++) {
            const node_id maker =
                graph_value(&f->x.g, f->x.tensor.v[f->x.op.v[k].in.v[i]].value)->producer;
            const u32 op = maker ? f->x.op_of[maker] : UINT32_MAX;
            if (op == UINT32_MAX || g->of[op] == g->of[k]) continue;
            u8 *seen = arena_array(&f->a, u8, g->group.n + 1);
            assert_false(reaches(f, g->of[k], g->of[op], seen));
        }
}

/* Modules that interleave, as their names are random. */
static void name_modules(struct net *t)
{
    static const char *const module[] = {"/a/", "/a/b/", "/c/", "/c/d/e/", "/"};
    for (node_id n = 1; n < t->g.node.n; n++)
        graph_node(&t->g, n)->name =
            str_fmt(&t->arena, "%sn%u", module[rng_range(&t->rng, 0, 4)], n);
}

static void random_networks_have_sound_texts(void **state)
{
    static const char *const devices[] = {"X64:0", "NVIDIA:0", "TPU:0"};
    for (u64 seed = first_seed(1, 61); seed < last_seed(1, 61); seed++) {
        struct net t;
        struct buf text = {0}, json = {0}, again = {0}, dot = {0};
        struct fixture f;
        net_open(&t, seed);
        name_modules(&t);
        graph_print(&text, &t.g, NULL);
        fixture_open(&f, buf_view(&text));
        if (seed % 2) allocate(&f, devices, 3, (u32)rng_range(&t.rng, 1, 4));
        for (int c = 0; c < N_COLLAPSES; c++) {
            view_group(&f.v, (enum view_collapse)c, &f.a);
            check_groups(&f);
            view_dot(&dot, &f.v);
        }
        view_json(&json, &f.v);
        view_json(&again, &f.v);
        check_json(buf_view(&json));
        assert_true(str_eq(buf_view(&json), buf_view(&again)));
        buf_release(&text), buf_release(&json), buf_release(&again), buf_release(&dot);
        fixture_close(&f);
        (void)net_inputs; /* of the header */
        net_close(&t);
    }
}

/* Characters that mean something in JSON, XML and DOT, or nothing at all. */
static void odd_names_are_escaped(void **state)
{
    static const char text[] =
        "graph { input %\"a<b>&\\\"c\\\\d\\x0ae\\x01\\xff\": f32[2] "
        "%y: f32[2] = Relu \"/m<&\\\"\\\\/n\\x02\\xc3\\xa4\"(%\"a<b>&\\\"c\\\\d\\x0ae\\x01\\xff\") "
        "output %y }";
    struct fixture f;
    struct buf json = {0}, xml = {0}, dot = {0};
    fixture_open(&f, str_of(text));
    view_json(&json, &f.v), view_graphml(&xml, &f.v), view_dot(&dot, &f.v);
    check_json(buf_view(&json));
    assert_non_null(strstr(xml.p, ">a&lt;b&gt;&amp;&quot;c\\d&#10;e\xef\xbf\xbd\xef\xbf\xbd<"));
    assert_non_null(strstr(dot.p, "a<b>&amp;\\\"c\\\\d\xef\xbf\xbd"));
    for (i64 i = 0; i < xml.n; i++) assert_true((u8)xml.p[i] >= 0x20 || xml.p[i] == '\n');
    buf_release(&json), buf_release(&xml), buf_release(&dot);
    fixture_close(&f);
}

/* A chain without module names is divided where few tensors pass; one with them, by modules. */
static void long_networks_become_groups(void **state)
{
    enum { N = 500 };
    for (int has_names = 0; has_names < 2; has_names++) {
        struct buf text = {0};
        struct fixture f;
        buf_z(&text, "graph { input %v0: f32[4] ");
        for (int k = 0; k < N; k++)
            buf_printf(&text, "%%v%d: f32[4] = Relu \"%s%d\"(%%v%d) ", k + 1,
                       has_names ? k < N / 2 ? "/a/b/" : "/a/c/" : "", k, k);
        buf_printf(&text, "output %%v%d }", N);
        fixture_open(&f, buf_view(&text));
        view_group(&f.v, COLLAPSE_AUTO, &f.a);
        check_groups(&f);
        assert_in_range(f.v.groups.group.n, has_names ? 2 : 20, has_names ? 2 : 60);
        if (has_names) assert_true(str_is(f.v.groups.group.v[1].name, "a/c"));
        buf_release(&text);
        fixture_close(&f);
    }
}

/* n devices have n + 1 colours. */
static void colours_are_distinct(void **state)
{
    enum { N = 64 };
    struct buf text = {0}, dot = {0};
    struct fixture f;
    struct map colours;
    const char *device[N];
    buf_z(&text, "graph { input %v0: f32[4] ");
    for (int k = 0; k < N; k++) buf_printf(&text, "%%v%d: f32[4] = Relu(%%v%d) ", k + 1, k);
    buf_printf(&text, "output %%v%d }", N);
    fixture_open(&f, buf_view(&text));
    for (int k = 0; k < N; k++) device[k] = str_fmt(&f.a, "X64:%d", k).p;
    allocate(&f, device, N, 1);
    view_dot(&dot, &f.v);
    map_init(&colours, &f.a);
    for (const char *p = dot.p; (p = strstr(p, "fillcolor=\"#")); p++)
        *map_put(&colours, (struct str){p + 12, 6}, 0) = 1;
    assert_int_equal(colours.n, N + 1);
    buf_release(&text), buf_release(&dot);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_the_sample_are_golden),
        cmocka_unit_test(random_networks_have_sound_texts),
        cmocka_unit_test(odd_names_are_escaped),
        cmocka_unit_test(long_networks_become_groups),
        cmocka_unit_test(colours_are_distinct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
