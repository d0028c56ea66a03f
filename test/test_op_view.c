// SPDX-License-Identifier: Apache-2.0
//
// Operators that move elements: symbolic shapes of size arithmetic as exported by frameworks,
// clamping of slices and pads for every size, errors for invalid sizes, and vectors: an index map
// that preserves the last axis must keep loads along it contiguous. (Values are tested for every
// operator by test_op and test_gen.)
#include "op/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct net {
    struct arena a;
    struct symtab sym;
    struct graph g;
    struct err e;
};

static bool net_open(struct net *t, const char *body)
{
    *t = (struct net){0};
    symtab_init(&t->sym, &t->a);
    struct str text = str_fmt(&t->a, "graph {\n%s}\n", body);
    if (!graph_parse(&t->g, &t->a, &t->sym, text, &t->e)) fail_msg("%s\n%s", t->e.msg, body);
    return op_infer_all(&t->g, &t->e);
}

static struct shape *out_shape(struct net *t)
{
    return &graph_value(&t->g, t->g.output.v[0])->shape;
}

/* The shape of the first output, before and after expansion. */
static void check_shape(const char *body, const char *want)
{
    struct net t;
    bool ok = net_open(&t, body);
    for (int round = 0; ok && round < 2; round++) {
        struct buf b = {0};
        struct str rest = str_of(want), word;
        bool same = true;
        for (u32 a = 0; a < out_shape(&t)->rank; a++) {
            sym_print(&b, &t.sym, out_shape(&t)->dim[a]);
            buf_char(&b, ' ');
            str_cut(rest, ' ', &word, &rest);
            same &= sym_parse(&t.sym, word, &t.e) == out_shape(&t)->dim[a];
        }
        if (!same || rest.n)
            fail_msg("%s: got %.*s, expected %s", body, STR_ARG(buf_view(&b)), want);
        buf_release(&b);
        ok = op_expand_all(&t.g, &t.e) && op_infer_all(&t.g, &t.e);
    }
    if (!ok) fail_msg("%s", t.e.msg);
    arena_release(&t.a);
}

static void check_refused(const char *body, enum err_code code, const char *why)
{
    struct net t;
    assert_false(net_open(&t, body));
    assert_int_equal(t.e.code, code);
    if (!strstr(t.e.msg, why)) fail_msg("'%s' lacks '%s'", t.e.msg, why);
    arena_release(&t.a);
}

static void test_flatten_chain(void **state) /* x.view(x.size(0), -1) */
{
    check_shape("input %x: f32[N,3,H,W]\n"
                "const %i: i64[] = [0]\n"
                "const %zero: i64[1] = [0]\n"
                "const %rest: i64[1] = [-1]\n"
                "%s: i64[?] = Shape(%x)\n"
                "%n: i64[?] = Gather(%s, %i) {axis=0}\n"
                "%u: i64[?] = Unsqueeze(%n, %zero)\n"
                "%to: i64[?] = Concat(%u, %rest) {axis=0}\n"
                "%y: f32[?] = Reshape(%x, %to)\n"
                "output %y\n",
                "N 3*H*W");
}

static void test_window_partition(void **state) /* H padded to a multiple of 8, cut into windows */
{
    check_shape("input %x: f32[1,4,H,W]\n"
                "const %hw: i64[2] = [2, 3]\n"
                "const %eight: i64[2] = [8, 8]\n"
                "const %none: i64[6] = [0, 0, 0, 0, 0, 0]\n"
                "const %lead: i64[2] = [1, 4]\n"
                "const %one: i64[1] = [8]\n"
                "%s: i64[?] = Shape(%x)\n"
                "%size: i64[?] = Gather(%s, %hw)\n"
                "%m: i64[?] = Neg(%size)\n"
                "%over: i64[?] = Mod(%m, %eight)\n"
                "%pads: i64[?] = Concat(%none, %over) {axis=0}\n"
                "%p: f32[?] = Pad(%x, %pads) {mode=\"reflect\"}\n"
                "%s2: i64[?] = Shape(%p) {start=2}\n"
                "%n: i64[?] = Div(%s2, %eight)\n"
                "%nh: i64[?], %nw: i64[?] = Split(%n) {axis=0}\n"
                "%to: i64[?] = Concat(%lead, %nh, %one, %nw, %one) {axis=0}\n"
                "%y: f32[?] = Reshape(%p, %to)\n"
                "%z: f32[?] = Transpose(%y) {perm=[0,2,4,3,5,1]}\n"
                "const %flat: i64[3] = [-1, 64, 4]\n"
                "%w: f32[?] = Reshape(%z, %flat)\n"
                "output %w\n",
                "((H+7)//8)*((W+7)//8) 64 4");
}

static void
test_crop_like(void **state) /* up-sampled tensor cropped to the size of a skip connection */
{
    check_shape("input %x: f32[1,8,H,W]\n"
                "const %c: i64[4] = [1, 1, 2, 2]\n"
                "const %from: i64[2] = [0, 0]\n"
                "const %axes: i64[2] = [2, 3]\n"
                "%big: f32[?] = Tile(%x, %c)\n"
                "%s: i64[?] = Shape(%x) {start=2}\n"
                "%y: f32[?] = Slice(%big, %from, %s, %axes)\n"
                "%z: f32[?] = Concat(%x, %y) {axis=1}\n"
                "output %z\n",
                "1 16 H W");
}

static void test_differences(void **state) /* x[1:] and x[:-1] have equal shapes */
{
    check_shape("input %x: f32[1,1,H,W]\n"
                "const %one: i64[1] = [1]\n"
                "const %zero: i64[1] = [0]\n"
                "const %far: i64[1] = [9223372036854775807]\n"
                "const %last: i64[1] = [-1]\n"
                "const %axis: i64[1] = [3]\n"
                "%a: f32[?] = Slice(%x, %one, %far, %axis)\n"
                "%b: f32[?] = Slice(%x, %zero, %last, %axis)\n"
                "%y: f32[?] = Concat(%a, %b) {axis=2}\n"
                "output %y\n",
                "1 1 2*H max(W-1,0)");
}

/* The size of a slice of a symbolic axis is NumPy's, for every size of the axis. */
static void test_slice_sizes(void **state)
{
    static const i64 edge[] = {INT64_MIN, -INT32_MAX, -4, -3, -1, 0, 1, 2, 5, INT32_MAX, INT64_MAX};
    for (i64 b = 0; b < countof(edge); b++)
        for (i64 e = 0; e < countof(edge); e++)
            for (i64 step = -3; step <= 3; step++) {
                if (!step) continue;
                struct arena a = {0};
                struct net t;
                struct str body = str_fmt(
                    &a,
                    "input %%x: f32[W]\nconst %%b: i64[1] = [%lld]\nconst %%e: i64[1] = [%lld]\n"
                    "const %%a: i64[1] = [0]\nconst %%s: i64[1] = [%lld]\n"
                    "%%y: f32[?] = Slice(%%x, %%b, %%e, %%a, %%s)\noutput %%y\n",
                    (long long)edge[b], (long long)edge[e], (long long)step);
                assert_true(net_open(&t, body.p));
                for (i64 w = 0; w < 9; w++) {
                    i64 lo = edge[b] < 0 ? edge[b] < -w ? -1 - w : edge[b] + w : edge[b], got,
                        n = 0;
                    i64 hi = edge[e] < 0 ? edge[e] < -w ? -1 - w : edge[e] + w : edge[e];
                    lo = step > 0 ? i64_max(0, i64_min(w, lo)) : i64_max(-1, i64_min(w - 1, lo));
                    hi = step > 0 ? i64_max(0, i64_min(w, hi)) : i64_max(-1, i64_min(w - 1, hi));
                    for (i64 i = lo; step > 0 ? i < hi : i > hi; i += step) n++;
                    assert_true(sym_eval(&t.sym, out_shape(&t)->dim[0], &w, &got));
                    if (got != n)
                        fail_msg("[%lld:%lld:%lld] of %lld: %lld", (long long)edge[b],
                                 (long long)edge[e], (long long)step, (long long)w, (long long)got);
                }
                arena_release(&t.a);
                arena_release(&a);
            }
}

static void test_errors(void **state)
{
    check_refused("input %x: f32[2,3]\nconst %t: i64[2] = [4, -1]\n%y: f32[?] = Reshape \"r\"(%x, "
                  "%t)\noutput %y\n",
                  ERR_INPUT, "'r'");
    check_refused(
        "input %x: f32[2,3]\ninput %t: i64[N]\n%y: f32[?] = Reshape \"r\"(%x, %t)\noutput %y\n",
        ERR_UNSUPPORTED, "run time");
    check_refused("input %x: f32[2,3]\n%y: f32[?] = Transpose(%x) {perm=[0,0]}\noutput %y\n",
                  ERR_INPUT, "perm");
    check_refused("input %x: f32[2,3]\nconst %i: i64[1] = [3]\n%y: f32[?] = Gather(%x, %i) "
                  "{axis=1}\noutput %y\n",
                  ERR_INPUT, "index 3");
    check_refused(
        "input %x: f32[2,H]\ninput %y: f32[3,H]\n%z: f32[?] = Concat(%x, %y) {axis=1}\noutput %z\n",
        ERR_INPUT, "axis 0 of input 1");
    check_refused("input %x: f32[2,5]\n%a: f32[?], %b: f32[?] = Split(%x) {axis=1}\noutput %a\n",
                  ERR_INPUT, "equal parts");
    check_refused(
        "input %x: f32[2,3]\nconst %a: i64[2] = [0, -2]\n%y: f32[?] = Squeeze(%x, %a)\noutput %y\n",
        ERR_INPUT, "axis");
    check_refused(
        "input %x: f32[2]\nconst %p: i64[2] = [-3, 0]\n%y: f32[?] = Pad(%x, %p)\noutput %y\n",
        ERR_INPUT, "pads");
    check_refused("input %x: f32[2]\n%y: f32[?] = Einsum(%x) {equation=\"ij->i\"}\noutput %y\n",
                  ERR_INPUT, "labels");
    check_refused(
        "input %x: f32[2]\nconst %k: i64[1] = [3]\n%y: f32[?] = TopK(%x, %k)\noutput %y\n",
        ERR_INPUT, "k is 3");
}

/* One row of 8 elements along the last axis of the output: the number of loads, and whether they
   are contiguous. */
static void check_contiguous(const char *body)
{
    struct net t;
    struct kir k;
    struct emit m;
    kval idx[MAX_RANK];
    u32 n_loads = 0;
    if (!net_open(&t, body) || !op_expand_all(&t.g, &t.e) || !op_infer_all(&t.g, &t.e))
        fail_msg("%s", t.e.msg);
    kir_init(&k, &t.a, S("row"));
    emit_init(&m, &k, &t.g, op_lower, &t.a);
    emit_args(&m);
    value_id v = t.g.output.v[0];
    u32 last = out_shape(&t)->rank - 1;
    for (u32 a = 0; a < 2 && a < last; a++) idx[a] = kir_grid(&k, emit_dim(&m, v, a));
    kval block = kir_grid(&k, kir_int(&k, 2));
    for (u32 a = 2; a < last; a++)
        idx[a] = kir_loop(&k, KL_SERIAL, kir_int(&k, 0), emit_dim(&m, v, a), 1);
    idx[last] = kir_ramp(&k, kir_bin(&k, KI_MUL, block, kir_int(&k, 8)), 1, 8);
    emit_store(&m, v, idx, emit_value(&m, v, idx));
    for (u32 i = 1; i < k.ins.n; i++) {
        const struct kir_ins *x = &k.ins.v[i];
        if (x->op != KI_LOAD) continue;
        n_loads++;
        const struct kir_ins *at = kir_at(&k, x->b);
        bool uniform = at->lanes == 1;
        if (!uniform && (at->op != KI_RAMP || at->imm.i != 1))
            fail_msg("load %%%u is not contiguous: %s", i, body);
    }
    assert_true(n_loads > 0);
    arena_release(&t.a);
}

static void test_vectors(void **state)
{
    check_contiguous(
        "input %x: f32[2,3,4,16]\n%y: f32[?] = Transpose(%x) {perm=[1,2,0,3]}\noutput %y\n");
    check_contiguous("input %x: f32[1,64,H,16]\nconst %t: i64[5] = [1, 8, 8, -1, 16]\n"
                     "%y: f32[?] = Reshape(%x, %t)\noutput %y\n");
    check_contiguous("input %x: f32[1,64,4,4]\nconst %t: i64[3] = [1, 64, 16]\n%y: f32[?] = "
                     "Reshape(%x, %t)\noutput %y\n");
    check_contiguous("input %x: f32[1,3,H,16]\nconst %p: i64[8] = [0, 0, 1, 0, 0, 0, 2, 0]\n"
                     "%y: f32[?] = Pad(%x, %p)\noutput %y\n");
    check_contiguous(
        "input %x: f32[1,3,H,18]\nconst %b: i64[2] = [1, 1]\nconst %e: i64[2] = [3, 17]\n"
        "const %a: i64[2] = [1, 3]\n%y: f32[?] = Slice(%x, %b, %e, %a)\noutput %y\n");
    check_contiguous("input %x: f32[1,3,H,16]\ninput %z: f32[1,5,H,16]\n%y: f32[?] = Concat(%x, "
                     "%z) {axis=1}\noutput %y\n");
    check_contiguous("input %x: f32[1,3,H,8]\ninput %z: f32[1,3,H,8]\n%y: f32[?] = Concat(%x, %z) "
                     "{axis=3}\noutput %y\n");
    check_contiguous(
        "input %x: f32[9,16]\ninput %i: i64[4]\n%y: f32[?] = Gather(%x, %i)\noutput %y\n");
    check_contiguous("input %x: f32[3,1,16]\nconst %s: i64[3] = [3, 4, 16]\n%y: f32[?] = "
                     "Expand(%x, %s)\noutput %y\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flatten_chain), cmocka_unit_test(test_window_partition),
        cmocka_unit_test(test_crop_like),     cmocka_unit_test(test_differences),
        cmocka_unit_test(test_slice_sizes),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
