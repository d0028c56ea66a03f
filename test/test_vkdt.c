// SPDX-License-Identifier: Apache-2.0
//
// Modules for vkdt: kernels of several grids become nodes, and every dependency between nodes is a
// connection. Plans are handmade from kernels in kernel IR, so no device is needed; results of
// modules are tested by vkdt.sh.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "core/spirv.h"
#include "export/export_vkdt.h"
#include "lang/lang.h"

#include <string.h>

struct fixture {
    struct arena a;
    struct caps caps;
    u32 subgroup; /* that kernels require */
    struct plan p;
    struct vkdt_model m;
    struct err e;
};

static void fixture_open(struct fixture *t)
{
    *t = (struct fixture){0};
    assert_true(caps_parse(&t->caps,
                           S("arch=\"generic\" is_gpu=1 max_group=256 subgroup=8 "
                             "subgroup_min=8 subgroup_max=8 shared_bytes=32768 "
                             "max_push=128 spirv=13 buffer_align=16"),
                           &t->e));
    t->p.arena = &t->a;
    symtab_init(&t->p.sym, &t->a);
    t->p.model = S("net");
    struct buf b = {0};
    caps_print(&b, &t->caps);
    t->p.caps = str_dup(&t->a, buf_view(&b));
    buf_release(&b);
}

static void fixture_close(struct fixture *t) { arena_release(&t->a); }

/* Builds kernels with the builder: each grid copies one argument to another. */
struct step {
    u32 from, to;
    bool adds;
};

static struct str build_kernel(struct fixture *t, const char *name, const enum kir_access *access,
                               u32 n_buf, const struct step *step, u32 n_step)
{
    struct kir k;
    kval buf[8];
    struct buf text = {0}, words = {0};
    kir_init(&k, &t->a, str_of(name));
    for (u32 i = 0; i < n_buf; i++)
        buf[i] = kir_buf(&k, str_fmt(&t->a, "b%u", i), DT_F32, access[i]);
    k.group[0] = 32;
    k.subgroup = t->subgroup;
    for (u32 s = 0; s < n_step; s++) {
        kval g = kir_grid(&k, kir_param(&k, S("H")));
        kval i = kir_add(&k, kir_mul_i(&k, g, 32), kir_thread(&k, 0));
        kval v = kir_load(&k, buf[step[s].from], i);
        if (t->subgroup) v = kir_sg(&k, KI_SGMAX, v);
        if (step[s].adds) v = kir_add(&k, v, kir_load(&k, buf[step[s].to], i));
        kir_store(&k, buf[step[s].to], i, v);
        kir_end(&k);
    }
    const struct lang *l = lang_find(S("spirv"));
    bool ok = lang_render(&text, l, &k, &t->caps, &t->a, &t->e) &&
              l->build(&words, buf_view(&text), &t->caps, 10, &t->e);
    if (!ok) fail_msg("%s", t->e.msg);
    struct str code = str_dup(&t->a, buf_view(&words));
    buf_release(&text), buf_release(&words);
    return code;
}

static u32 add_buf(struct fixture *t, enum plan_buf_kind kind)
{
    static const float content[64] = {1};
    struct plan_buf *b = arr_push(&t->a, &t->p.buf);
    *b = (struct plan_buf){.kind = kind, .name = S("buf"), .last = 100};
    b->size = kind == PB_CONST
                  ? sym_const(&t->p.sym, sizeof content)
                  : sym_mul(&t->p.sym, sym_var(&t->p.sym, S("H")), sym_const(&t->p.sym, 128));
    if (kind == PB_CONST) b->data = content, b->data_size = sizeof content;
    return t->p.buf.n - 1;
}

static void add_io(struct fixture *t, enum plan_buf_kind kind)
{
    struct plan_io io = {.name = S("io"), .dtype = DT_F32, .rank = 3, .buf = add_buf(t, kind)};
    io.dim[0] = sym_const(&t->p.sym, 1);
    io.dim[1] = sym_var(&t->p.sym, S("H"));
    io.dim[2] = sym_const(&t->p.sym, 32);
    if (kind == PB_INPUT) *(arr_push(&t->a, &t->p.input)) = io;
    else *(arr_push(&t->a, &t->p.output)) = io;
}

static void add_dispatch(struct fixture *t, struct str code, const char *entry, const u32 *buf,
                         u32 n_buf, u32 n_grid)
{
    struct plan_dispatch d = {
        .bin = t->p.bin.n, .entry = str_of(entry), .label = str_of(entry), .n_buf = n_buf};
    *(arr_push(&t->a, &t->p.bin)) = (struct plan_bin){.lang = S("spirv"), .code = code};
    d.buf = arena_array(&t->a, u32, n_buf);
    memcpy(d.buf, buf, sizeof *buf * n_buf);
    d.n_param = 1;
    d.param = arena_array(&t->a, sym, 1);
    d.param[0] = sym_var(&t->p.sym, S("H"));
    d.n_grid = n_grid;
    d.grid = arena_array(&t->a, struct plan_grid, n_grid);
    for (u32 g = 0; g < n_grid; g++) {
        d.grid[g].extent[0] = d.param[0];
        d.grid[g].extent[1] = d.grid[g].extent[2] = sym_const(&t->p.sym, 1);
    }
    *(arr_push(&t->a, &t->p.dispatch)) = d;
}

static bool make_model(struct fixture *t) { return vkdt_model_init(&t->m, &t->p, &t->a, &t->e); }

static const struct vkdt_conn *conn(const struct fixture *t, u32 node, u32 k)
{
    assert_true(node < t->m.node.n && k < t->m.node.v[node].n_conn);
    return &t->m.node.v[node].conn[k];
}

static void check_from(const struct vkdt_conn *c, enum vkdt_type type, u32 node, u32 at)
{
    assert_int_equal(c->type, type);
    assert_int_equal(c->end.kind, END_NODE);
    assert_int_equal(c->end.node, node);
    assert_int_equal(c->end.conn, at);
}

/* Two grids: a node each, with only the buffers it uses; the second reads results of the first. */
static void test_grids(void **state)
{
    struct fixture t;
    fixture_open(&t);
    add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT);
    u32 temp = add_buf(&t, PB_TEMP), weight = add_buf(&t, PB_CONST);
    struct str code = build_kernel(&t, "k", (enum kir_access[]){KA_IN, KA_OUT, KA_INOUT, KA_IN}, 4,
                                   (struct step[]){{0, 2, false}, {2, 1, false}}, 2);
    add_dispatch(&t, code, "k", (u32[]){0, 1, temp, weight}, 4, 2);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.node.n, 2);
    assert_int_equal(t.m.node.v[0].n_conn, 2); /* neither the output nor the constant */
    assert_int_equal(conn(&t, 0, 0)->end.kind, END_INPUT);
    assert_int_equal(conn(&t, 0, 1)->type, VC_WRITE);
    check_from(conn(&t, 1, 1), VC_READ, 0, 1);
    assert_int_equal(conn(&t, 1, 0)->type, VC_WRITE);
    assert_int_equal(t.m.result[0].node, 1);
    assert_int_equal(t.m.offset[weight], -1);
    assert_int_equal(t.m.weights, 0);
    fixture_close(&t);
}

/* A kernel alone: one entry point "main", set 1, bindings in the connectors' order. */
static void test_module(void **state)
{
    struct fixture t;
    struct spirv_info info;
    fixture_open(&t);
    add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT), add_io(&t, PB_OUTPUT);
    u32 weight = add_buf(&t, PB_CONST);
    struct str code = build_kernel(&t, "k", (enum kir_access[]){KA_IN, KA_IN, KA_OUT}, 3,
                                   (struct step[]){{1, 2, false}}, 1);
    add_dispatch(&t, code, "k", (u32[]){0, weight, 1}, 3, 1);
    add_dispatch(&t, code, "k", (u32[]){0, weight, 2}, 3, 1);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.kernel.n, 1); /* the same twice */
    assert_true(spirv_read_info(&info, t.m.kernel.v[0].code, &t.e));
    assert_int_equal(info.n_entry, 1);
    assert_true(str_is(info.entry[0].name, "main"));
    assert_int_equal(info.n_set, 2);
    assert_int_equal(info.n_binding, 0); /* of set 0 */
    assert_int_equal(info.entry[0].local[0], 32);
    assert_int_equal(conn(&t, 0, 0)->end.kind, END_WEIGHTS);
    assert_int_equal(t.m.weights, 256);
    fixture_close(&t);
}

/* Adding to a buffer: after its earlier readers, before its later readers. */
static void test_modify(void **state)
{
    struct fixture t;
    fixture_open(&t);
    add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT);
    u32 sum = add_buf(&t, PB_TEMP), early = add_buf(&t, PB_TEMP);
    struct step plain[] = {{0, 1, false}}, adding[] = {{0, 1, true}};
    enum kir_access out[] = {KA_IN, KA_OUT}, inout[] = {KA_IN, KA_INOUT};
    struct str copy = build_kernel(&t, "copy", out, 2, plain, 1),
               add = build_kernel(&t, "add", inout, 2, adding, 1);
    add_dispatch(&t, copy, "copy", (u32[]){0, sum}, 2, 1);
    add_dispatch(&t, copy, "copy", (u32[]){sum, early}, 2, 1);
    add_dispatch(&t, add, "add", (u32[]){0, sum}, 2, 1);
    add_dispatch(&t, copy, "copy", (u32[]){sum, 1}, 2, 1);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.node.n, 4);
    check_from(conn(&t, 1, 0), VC_READ, 0, 1);
    check_from(conn(&t, 2, 1), VC_MODIFY, 0, 1);
    assert_int_equal(t.m.node.v[2].n_conn, 3);
    check_from(conn(&t, 2, 2), VC_READ, 1, 1); /* the early reader must have run */
    assert_true(conn(&t, 2, 2)->is_order);
    check_from(conn(&t, 3, 0), VC_READ, 2, 1);
    fixture_close(&t);
}

/* Constants: each once, at offsets that every device takes, with their content. */
static void test_weights(void **state)
{
    struct fixture t;
    struct buf file = {0};
    fixture_open(&t);
    add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT), add_io(&t, PB_OUTPUT), add_io(&t, PB_OUTPUT);
    u32 w[3] = {add_buf(&t, PB_CONST), add_buf(&t, PB_CONST), add_buf(&t, PB_CONST)};
    struct step plain[] = {{0, 1, false}};
    struct str copy = build_kernel(&t, "copy", (enum kir_access[]){KA_IN, KA_OUT}, 2, plain, 1);
    add_dispatch(&t, copy, "copy", (u32[]){w[2], 2}, 2, 1);
    add_dispatch(&t, copy, "copy", (u32[]){w[0], 3}, 2, 1);
    add_dispatch(&t, copy, "copy", (u32[]){w[2], 1}, 2, 1);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.offset[w[2]], 0);
    assert_int_equal(t.m.offset[w[0]], VKDT_ALIGN);
    assert_int_equal(t.m.offset[w[1]], -1);
    vkdt_model_weights(&t.m, &file);
    assert_int_equal(file.n, t.m.weights);
    assert_int_equal(file.n, VKDT_ALIGN + 256);
    assert_memory_equal(file.p + VKDT_ALIGN, t.p.buf.v[w[0]].data, 256);
    buf_release(&file);
    fixture_close(&t);
}

/* Nodes that lead to no output are omitted, with their kernels and constants. */
static void test_dead(void **state)
{
    struct fixture t;
    fixture_open(&t);
    add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT);
    u32 temp = add_buf(&t, PB_TEMP), unread = add_buf(&t, PB_TEMP), weight = add_buf(&t, PB_CONST);
    struct step one[] = {{0, 2, false}, {1, 3, false}}, plain[] = {{0, 1, false}};
    enum kir_access access[] = {KA_IN, KA_IN, KA_OUT, KA_OUT};
    struct str both = build_kernel(&t, "both", access, 4, one, 2), copy = build_kernel(&t, "copy", access + 1, 2, plain, 1);
    add_dispatch(&t, both, "both", (u32[]){weight, 0, unread, temp}, 4, 2);
    add_dispatch(&t, copy, "copy", (u32[]){temp, 1}, 2, 1);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.node.n, 2);
    assert_int_equal(t.m.node.v[0].grid, 1);
    check_from(conn(&t, 1, 0), VC_READ, 0, 1);
    assert_int_equal(t.m.result[0].node, 1);
    assert_int_equal(t.m.kernel.n, 2);
    assert_int_equal(t.m.node.v[0].kernel, 0), assert_int_equal(t.m.node.v[1].kernel, 1);
    assert_int_equal(t.m.offset[weight], -1);
    assert_int_equal(t.m.weights, 0);
    fixture_close(&t);
}

/* Nodes visit other nodes before inputs of the network: the last connector is the first. */
static void test_inputs_last(void **state)
{
    struct fixture t;
    fixture_open(&t);
    add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT);
    u32 temp = add_buf(&t, PB_TEMP);
    struct step plain[] = {{0, 1, false}}, two[] = {{0, 2, false}, {1, 2, true}};
    enum kir_access access[] = {KA_IN, KA_IN, KA_INOUT};
    struct str copy = build_kernel(&t, "copy", (enum kir_access[]){KA_IN, KA_OUT}, 2, plain, 1);
    add_dispatch(&t, copy, "copy", (u32[]){0, temp}, 2, 1);
    add_dispatch(&t, build_kernel(&t, "two", access, 3, two, 2), "two", (u32[]){temp, 0, 1}, 3, 2);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.node.n, 3);
    assert_int_equal(conn(&t, 2, 0)->end.kind, END_INPUT);
    check_from(conn(&t, 2, 1), VC_MODIFY, 1, 1);
    fixture_close(&t);
}

static void check_refused(struct fixture *t, const char *why)
{
    assert_false(make_model(t));
    if (!strstr(t->e.msg, why)) fail_msg("'%s' without '%s'", t->e.msg, why);
    fixture_close(t);
}

static void test_refused(void **state)
{
    struct fixture t;
    struct step plain[] = {{0, 1, false}};
    enum kir_access access[] = {KA_IN, KA_OUT};
    for (int what = 0; what < 5; what++) {
        fixture_open(&t);
        add_io(&t, PB_INPUT), add_io(&t, PB_OUTPUT);
        u32 temp = add_buf(&t, PB_TEMP);
        struct str code = build_kernel(&t, "copy", access, 2, plain, 1);
        u32 buf[2] = {what == 0 ? temp : 0, what == 1 ? 0 : 1};
        add_dispatch(&t, code, what == 2 ? "other" : "copy", buf, 2, 1);
        if (what == 3) t.p.bin.v[0].code = str_sub(code, 0, code.n - 2);
        if (what == 4) t.p.input.v[0].dtype = DT_I32;
        static const char *const why[] = {"before it is written", "not its own", "entry point",
                                          "malformed", "i32"};
        check_refused(&t, why[what]);
    }
}

static void make_copy(struct fixture *t)
{
    struct step plain[] = {{0, 1, false}};
    add_io(t, PB_INPUT), add_io(t, PB_OUTPUT);
    struct str code = build_kernel(t, "copy", (enum kir_access[]){KA_IN, KA_OUT}, 2, plain, 1);
    add_dispatch(t, code, "copy", (u32[]){0, 1}, 2, 1);
}

/* vkdt requests no subgroup size: the target's default suffices, and is checked later. */
static void test_subgroup(void **state)
{
    struct fixture t;
    struct buf text = {0};
    fixture_open(&t);
    t.caps.has_subgroup = true;
    t.subgroup = 8;
    make_copy(&t);
    if (!make_model(&t)) fail_msg("%s", t.e.msg);
    assert_int_equal(t.m.subgroup, 8);
    struct vkdt_names n = {.module = "net"};
    t.m.prefix = S("net");
    vkdt_print_model(&text, &t.m, &n);
    assert_non_null(strstr(text.p, "if(qvk.subgroup_size != 8)"));
    buf_release(&text);
    fixture_close(&t);
    fixture_open(&t);
    t.caps.has_subgroup = true;
    t.caps.subgroup_max = 32;
    t.subgroup = 32;
    make_copy(&t);
    check_refused(&t, "subgroups of 32 threads");
}

static void test_parameters_in_memory(void **state)
{
    struct fixture t;
    fixture_open(&t);
    t.caps.max_push = 4;
    make_copy(&t);
    check_refused(&t, "push constants");
}

/* Whatever is done to a module's words: an answer or an error, nothing outside of it is read. */
static void test_broken_modules(void **state)
{
    struct fixture t;
    struct rng r = rng_seed(7);
    struct step plain[] = {{0, 1, false}, {1, 0, true}};
    fixture_open(&t);
    struct str code = build_kernel(&t, "k", (enum kir_access[]){KA_INOUT, KA_INOUT}, 2, plain, 2);
    for (int i = 0; i < 3000; i++) {
        struct arena a = {0};
        struct spirv_grid k;
        struct err e = {0};
        u32 *w = arena_alloc(&a, code.n), binding[1 << 12] = {0};
        memcpy(w, code.p, (size_t)code.n);
        for (i64 n = rng_range(&r, 1, 4); n > 0; n--) {
            u32 word = (u32)(rng_range(&r, 0, 1) ? rng_u64(&r) : rng_u64(&r) % 300);
            w[rng_range(&r, 0, code.n / 4 - 1)] = word;
        }
        struct str bytes = {(const char *)w,
                            rng_range(&r, 0, 3) ? code.n : rng_range(&r, 0, code.n / 4) * 4};
        if (spirv_grid_take(&k, bytes, S("k_1"), &a, &e)) spirv_grid_rebind(&k, binding);
        else assert_int_not_equal(e.code, ERR_NONE);
        arena_release(&a);
    }
    fixture_close(&t);
}

static void test_names(void **state)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        {"net", "net"},
        {"my-net", "my-net"},
        {"denox-conv", "denoxcnv"},
        {"denoise-12", "denois12"},
        {"abcdefgh", "abcdefgh"},
        {"abcdefghi", "abcdefgh"},
        {"i-net", NULL},
        {"bcdfghjklm", NULL},
        {"net_1", NULL},
        {"", NULL},
        {"1net", NULL},
        {"display", NULL},
        {"inputs", NULL},
        {"putin", "putin"},
    };
    char z[VKDT_TOKEN + 1];
    for (i64 i = 0; i < countof(cases); i++) {
        struct err e = {0};
        bool ok = vkdt_module_name(z, str_of(cases[i].name), &e);
        assert_int_equal(ok, cases[i].want != NULL);
        if (ok) assert_string_equal(z, cases[i].want);
    }
    struct arena a = {0};
    assert_true(str_is(vkdt_kernel_name(&a, "denoxcnv", 7, 12), "denoxc7"));
    assert_true(str_is(vkdt_kernel_name(&a, "ldr", 0, 1000), "ldr0"));
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids),    cmocka_unit_test(test_module),
        cmocka_unit_test(test_modify),   cmocka_unit_test(test_weights),
        cmocka_unit_test(test_dead),     cmocka_unit_test(test_inputs_last),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_broken_modules),
        cmocka_unit_test(test_subgroup), cmocka_unit_test(test_parameters_in_memory),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
