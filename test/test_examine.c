// SPDX-License-Identifier: Apache-2.0
//
// Examination of devices: a device that is right passes; each operation that a made-up device computes wrong is found, named, and done
// another way or refused; second definitions give what the operators give. On the Vulkan device, where there is one.
#include "lang_bed.h"
#include "tune/examine.h"

#include <unistd.h>

static bool examine(struct exam *x, const struct dev_driver *d, const struct caps *c, enum exam_when when, struct arena *a)
{
    struct err e = {0};
    struct buf tools = {0}, fp = {0};
    struct dev_opts o = {0};
    struct caps own;
    if (!dev_ask(d, &o, &own, &fp, &e)) fail_msg("%s", e.msg);
    const struct lang *l = lang_find(str_of(d->lang));
    assert_true(l->toolchain(&tools, c ? c : &own, &e));
    struct exam_target t = {.driver = d,
                            .opts = &o,
                            .lang = l,
                            .caps = c ? c : &own,
                            .fingerprint = str_dup(a, buf_view(&fp)),
                            .toolchain = str_dup(a, buf_view(&tools))};
    bool ok = exam_device(x, &t, when, a, &e);
    if (!ok && when != EXAM_KNOWN) fail_msg("%s", e.msg);
    buf_release(&tools), buf_release(&fp);
    return ok;
}

/* The interpreter agrees with itself; what is remembered is what was found. */
static void what_is_right_passes(void **state)
{
    struct arena a = {0};
    struct exam x, again;
    assert_true(examine(&x, dev_find(S("interp")), NULL, EXAM_AGAIN, &a));
    assert_true(x.n_cases > 300 && x.found.n == 0 && !x.is_known);
    assert_true(examine(&again, dev_find(S("interp")), NULL, EXAM_KNOWN, &a));
    assert_true(again.is_known && again.n_cases == x.n_cases && again.found.n == 0);
    arena_release(&a);
}

/* The interpreter with a fault: in the text of a kernel one operator is another one. */

static struct {
    struct dev_driver driver;
    const char *from, *to;
    bool crashes;
} faulty;

static struct dev_kernel *load(struct dev *d, struct str binary, struct str entry, u32 n_grid, struct err *e)
{
    struct buf b = {0};
    struct str from = str_of(faulty.from);
    for (i64 i = 0; i < binary.n;) {
        bool is_it = str_starts(str_sub(binary, i, binary.n), from);
        if (is_it && faulty.crashes) abort();
        if (is_it) buf_z(&b, faulty.to), i += from.n;
        else buf_char(&b, binary.p[i++]);
    }
    struct dev_kernel *k = dev_find(S("interp"))->load(d, buf_view(&b), entry, n_grid, e);
    buf_release(&b);
    return k;
}

static struct dev *open_faulty(const struct dev_opts *o, struct err *e)
{
    struct dev *d = dev_find(S("interp"))->open(o, e);
    return d;
}

static void make_faulty(const char *from, const char *to)
{
    faulty.driver = *dev_find(S("interp"));
    faulty.driver.load = load;
    faulty.driver.open = open_faulty;
    faulty.from = from, faulty.to = to;
    faulty.crashes = !to;
}

static bool has_finding(const struct exam *x, const char *name, enum exam_status st)
{
    for (u32 i = 0; i < x->found.n; i++)
        if (str_is(x->found.v[i].name, name) && x->found.v[i].status == st) return true;
    return false;
}

static void faults_are_found(void **state)
{
    static const struct { const char *from, *to, *name; u32 most; } list[] = {
        {": f64 = rint ", ": f64 = trunc ", "rint:f64", 1},
        {": f32 = max ", ": f32 = min ", "max:f32", 60},
        {": u32 = div ", ": u32 = mul ", "div:u32", 60},
        {": i32 = shr ", ": i32 = shl ", "shr:i32", 60},
        {": bool = isnan ", ": bool = isinf ", "isnan:f32", 2},
    };
    for (i64 i = 0; i < countof(list); i++) {
        struct arena a = {0};
        struct exam x;
        make_faulty(list[i].from, list[i].to);
        examine(&x, &faulty.driver, NULL, EXAM_AGAIN, &a);
        if (!has_finding(&x, list[i].name, EXAM_WRONG) || x.found.n > list[i].most) {
            struct buf b = {0};
            exam_report(&b, &x);
            fail_msg("%s: %.*s", list[i].name, STR_ARG(buf_view(&b)));
        }
        arena_release(&a);
    }
}

/* A driver that crashes on an operation loses that operation alone. */
static void crashes_cost_one_operation(void **state)
{
    struct arena a = {0};
    struct exam x;
    make_faulty(": f64 = sqrt ", NULL);
    examine(&x, &faulty.driver, NULL, EXAM_AGAIN, &a);
    assert_true(has_finding(&x, "sqrt:f64", EXAM_CRASH));
    assert_int_equal(x.found.n, 1);
    arena_release(&a);
}

static void findings_become_limits(void **state)
{
    struct arena a = {0};
    struct exam x;
    struct caps c = {.has_subgroup = true}, back;
    struct err e = {0};
    struct buf b = {0};
    make_faulty(": f64 = rint ", ": f64 = trunc ");
    examine(&x, &faulty.driver, NULL, EXAM_AGAIN, &a);
    exam_apply(&c, &x);
    exam_apply(&c, &x);
    assert_string_equal(c.avoid, "rint:f64");
    caps_print(&b, &c);
    assert_true(caps_parse(&back, buf_view(&b), &e));
    assert_string_equal(back.avoid, c.avoid);
    buf_release(&b);
    arena_release(&a);
}

/* Every second definition on the examination's own values, in the interpreter: a device that gets none of the operators right. */
static void second_definitions_are_right(void **state)
{
    struct arena a = {0};
    struct caps c = {.arch = "generic"};
    struct exam_case *v;
    u32 n = exam_list(&a, &c, &v), n_done = 0;
    for (u32 i = 0; i < n; i++) {
        struct exam_kernel k, want;
        struct kir safe;
        struct err e = {0};
        struct buf name = {0};
        bool is_loop = v[i].form == EXAM_LOOP && (v[i].t == DT_I64 || v[i].t == DT_U64);
        if (!is_loop && (v[i].form != EXAM_PLAIN || !kir_can_avoid(v[i].op, v[i].t, v[i].to))) continue;
        exam_print(&name, &v[i]);
        exam_build(&want, &c, &v[i], 1);
        exam_build(&k, &c, &v[i], 1);
        if (!kir_avoid(&safe, &a, &k.kir, buf_view(&name), &e)) fail_msg("%.*s: %s", STR_ARG(buf_view(&name)), e.msg);
        for (kval at = 1; at < safe.ins.n; at++)
            if (!is_loop && kir_at(&safe, at)->op == v[i].op && kir_dtype(&safe, kir_at(&safe, at)->a) == v[i].t && v[i].op != KI_CAST)
                fail_msg("%.*s is still there", STR_ARG(buf_view(&name)));
        void *got[16];
        struct buf why = {0};
        for (u32 j = 0; j < k.n_arg; j++) got[j] = k.arg[j].p;
        i64 rounds = k.rounds;
        if (!kir_eval(&safe, k.arg, &rounds, NULL, &e) || !kir_eval(&want.kir, want.arg, &rounds, NULL, &e)) fail_msg("%.*s: %s", STR_ARG(buf_view(&name)), e.msg);
        if (exam_compare(&want, &c, 0, got, &why)) fail_msg("%.*s: %.*s", STR_ARG(buf_view(&name)), STR_ARG(buf_view(&why)));
        n_done++;
        buf_release(&name), buf_release(&why);
        arena_release(&k.arena), arena_release(&want.arena);
    }
    assert_true(n_done > 60);
    arena_release(&a);
}

/* What has none is refused by name. */
static void what_has_no_other_way_is_refused(void **state)
{
    struct arena a = {0};
    struct kir k, safe;
    struct err e = {0};
    assert_true(kir_parse(&k, &a, S("kernel k(x: in f32, y: out f32)\ngrid %1 = 4\n  %2: f32 = load x[%1]\n  %3: f32 = sqrt %2\n  store y[%1] = %3\nend\n"), &e));
    assert_true(kir_avoid(&safe, &a, &k, S("rint:f64 div:f32"), &e));
    assert_false(kir_avoid(&safe, &a, &k, S("rint:f64 sqrt:f32"), &e));
    if (!strstr(e.msg, "'sqrt' of f32") || !strstr(e.msg, "--examine") || e.code != ERR_UNSUPPORTED) fail_msg("%s", e.msg);
    arena_release(&a);
}

/* A device that is here, and the same as if it had no 64-bit integers: whatever its driver gets wrong, avoided it is right. */
static void examine_vulkan(bool has_i64)
{
    const struct dev_driver *d = dev_find(S("vulkan"));
    struct arena a = {0};
    struct exam x;
    struct caps c;
    struct err e = {0};
    if (!d || !dev_ask(d, &(struct dev_opts){0}, &c, NULL, &e)) skip_test("no Vulkan device (mesa-vulkan-drivers)");
    c.has_i64 &= has_i64;
    examine(&x, d, &c, EXAM_AGAIN, &a);
    struct buf b = {0};
    exam_report(&b, &x);
    printf("%u operations in %.1f s\n%.*s", x.n_cases, x.seconds, STR_ARG(buf_view(&b)));
    buf_release(&b);
    exam_apply(&c, &x);
    examine(&x, d, &c, EXAM_AGAIN, &a);
    for (u32 i = 0; i < x.found.n; i++)
        if (x.found.v[i].status != EXAM_REFUSED) fail_msg("%.*s: %.*s", STR_ARG(x.found.v[i].name), STR_ARG(x.found.v[i].why));
    arena_release(&a);
}

static void a_vulkan_device(void **state) { examine_vulkan(true); }
static void a_vulkan_device_without_i64(void **state) { examine_vulkan(false); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_right_passes),         cmocka_unit_test(faults_are_found),
        cmocka_unit_test(crashes_cost_one_operation),   cmocka_unit_test(findings_become_limits),
        cmocka_unit_test(second_definitions_are_right), cmocka_unit_test(what_has_no_other_way_is_refused),
        cmocka_unit_test(a_vulkan_device),              cmocka_unit_test(a_vulkan_device_without_i64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
