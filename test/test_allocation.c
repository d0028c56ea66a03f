// SPDX-License-Identifier: Apache-2.0
//
// Devices by name and settings, what the converters of other vendors accept, and allocations as
// text: what is read is written again, errors name line, operator and device, and say what it
// could have been.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "place/place.h"

#define NET(body)                                                                                  \
    "graph { input %x: f32[1,4,8,8] input %y: f32[1,1,8,8] const %w: f32[1,4,1,1] = [0.5, 0.25, "  \
    "0.25, 1] " body " }"
#define SAMPLE NET("%c: f32[1,1,8,8] = Conv(%x, %w) %z: f32[1,1,8,8] = Add(%c, %y) output %z")

struct fixture {
    struct arena a;
    struct model *m;
    struct place_net x;
    struct place_devices d;
    struct place_allocation y;
    struct err e;
};

static void fixture_open(struct fixture *f, const char *net)
{
    struct model_source s = {.path = "net", .bytes = str_of(net)};
    struct model_opts o = {0};
    *f = (struct fixture){0};
    f->m = model_open(&s, &o, &f->e);
    if (!f->m || !place_net_open(&f->x, f->m, &f->a, &f->e)) fail_msg("%s", f->e.msg);
}

static void fixture_close(struct fixture *f)
{
    arena_release(&f->a);
    model_close(f->m);
}

/* --- devices --- */

static void fourteen_kinds_and_ours(void **state)
{
    static const char *const optimas[] = {"X86",    "X64",      "ARM",  "ARM64",  "NVIDIA",
                                          "AMDGPU", "INTELGPU", "MALI", "ADRENO", "HEXAGON",
                                          "MYRIAD", "ARA1",     "TPU",  "CV22"};
    for (i64 k = 0; k < countof(optimas); k++)
        assert_string_equal(place_kind_at((u32)k)->name, optimas[k]);
    u32 n = 0;
    for (; place_kind_at(n); n++) {
        const struct place_kind *k = place_kind_at(n);
        assert_ptr_equal(place_kind_find(str_of(k->name)), k);
        assert_true((k->device != NULL) == (k->route == PLACE_NATIVE || k->route == PLACE_GPU));
        assert_true((k->can_run != NULL) ==
                    (k->route == PLACE_OPENVINO || k->route == PLACE_VENDOR));
    }
    assert_int_equal(n, 20);
    assert_null(place_kind_find(S("x64")));
}

static bool devices_of(struct fixture *f, const char *text)
{
    f->d = (struct place_devices){0}, f->e = (struct err){0};
    return place_devices_parse(&f->d, &text, 1, &f->a, &f->e);
}

static void settings_replace_defaults(void **state)
{
    struct fixture f = {0};
    if (!devices_of(&f, "INTELGPU:0=device:*llvmpipe*;slowdown:3;watts:15"))
        fail_msg("%s", f.e.msg);
    assert_true(str_is(f.d.v[0].device, "*llvmpipe*") && str_is(f.d.v[0].name, "INTELGPU:0") &&
                !f.d.v[0].is_described);
    assert_true(f.d.v[0].slowdown == 3 && f.d.v[0].watts == 15);
    if (!devices_of(&f,
                    " TPU:2 = gflops:4000; gbs:1.5; start:1e-4; link_gbs:0.3; link_latency:2e-4 "))
        fail_msg("%s", f.e.msg);
    const struct place_device *t = &f.d.v[0];
    assert_true(t->is_described && t->flops == 4e12 && t->bandwidth == 1.5e9 && t->start == 1e-4 &&
                t->link_bandwidth == 0.3e9 && t->link_latency == 2e-4);
    assert_true(t->slowdown == 1 && t->instance == 2 && !t->device.n);
    if (!devices_of(&f, "NVIDIA:1")) fail_msg("%s", f.e.msg);
    assert_true(str_is(f.d.v[0].device, "cuda:1"));
    if (!devices_of(&f, "NVIDIA:0=device:cuda:sm_90")) fail_msg("%s", f.e.msg);
    assert_true(str_is(f.d.v[0].device, "cuda:sm_90"));
    arena_release(&f.a);
}

static void processors_share_threads(void **state)
{
    static const char *const text[] = {"CPU:0", "CPU:1", "CPU:2=threads:1", "OPENCL:0"};
    struct place_devices d = {0};
    struct arena a = {0};
    struct err e = {0};
    assert_true(place_devices_parse(&d, text, 4, &a, &e));
    assert_int_equal(place_device_threads(&d, 0), i64_max((os_n_cpus() - 1) / 2, 1));
    assert_int_equal(place_device_threads(&d, 1), i64_max((os_n_cpus() - 1) / 2, 1));
    assert_int_equal(place_device_threads(&d, 2), 1);
    assert_int_equal(place_device_threads(&d, 3), os_n_cpus());
    arena_release(&a);
}

static void wrong_devices_are_named(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"HEXGON:0", "did you mean 'HEXAGON'?"},
        {"x64:0", "did you mean 'X64'?"},
        {"", "unknown kind ''"},
        {"QWERTZUIOP:0", "there are: X86 X64"},
        {"X64", "the number of the instance is missing: 'X64:0'"},
        {"X64:a", "'a' is no number"},
        {"X64:-1", "'-1'"},
        {"X64:", "''"},
        {"X64:01", "'01'"},
        {"X64:1000", "0 to 999"},
        {"X64:0=", ""},
        {"X64:0=threads", "'threads' is no setting KEY:VALUE"},
        {"X64:0=threads:0", "not a number from 1 to 4096"},
        {"X64:0=speed:2", "unknown setting 'speed'; there are: device threads slowdown"},
        {"X64:0=slowdown:0", "not a positive number"},
        {"X64:0=slowdown:inf", "not a positive number"},
        {"X64:0=slowdown:nan", "not a positive number"},
        {"X64:0=watts:-1", "not a number (watts)"},
        {"TPU:0=gflops:4000", "gbs is missing"},
        {"TPU:0=gbs:4", "gflops is missing"},
        {"TPU:0=device:cpu", "none of quern's drivers"},
        {"NVIDIA:0=threads:2", "is no processor"},
        {"X64:0=device:", "'device' is empty"},
    };
    struct fixture f = {0};
    for (i64 k = 0; k < countof(wrong); k++) {
        bool ok = devices_of(&f, wrong[k].text);
        if (!wrong[k].why[0]) assert_true(ok);
        else if (ok || !strstr(f.e.msg, wrong[k].why))
            fail_msg("'%s': %s", wrong[k].text, ok ? "accepted" : f.e.msg);
    }
    const char *const twice[] = {"X64:0", "X64:0=threads:1"};
    f.d = (struct place_devices){0}, f.e = (struct err){0};
    assert_false(place_devices_parse(&f.d, twice, 2, &f.a, &f.e));
    assert_non_null(strstr(f.e.msg, "'X64:0' is named twice"));
    arena_release(&f.a);
}

/* --- converters --- */

/* Of the first operator. NULL: it can. */
static void expect_on(const char *device, const char *net, const char *why)
{
    struct fixture f;
    fixture_open(&f, net);
    if (!place_devices_parse(&f.d, &device, 1, &f.a, &f.e)) fail_msg("%s", f.e.msg);
    bool ok = place_can_run(&f.d.v[0], &f.x, 0, &f.e);
    if (ok != !why || (why && !strstr(f.e.msg, why)))
        fail_msg("%s: %s", device, ok ? "accepted" : f.e.msg);
    fixture_close(&f);
}

static void converters_accept_what_they_are_documented_to(void **state)
{
    static const char *const vendors[] = {"HEXAGON:0",      "MYRIAD:0",      "ARA1:0",
                                          "TPU:0",          "CV22:0",        "OPENVINO_CPU:0",
                                          "OPENVINO_GPU:0", "OPENVINO_NPU:0"};
    static const char batch[] = "graph { input %x: f32[2,4,8,8] const %w: f32[1,4,1,1] = [1,2,3,4] "
                                "%c: f32[2,1,8,8] = Conv(%x, %w) output %c }";
    static const char open[] =
        "graph { input %x: f32[1,4,H,W] %c: f32[1,4,H,W] = Relu(%x) output %c }";
    for (i64 k = 0; k < countof(vendors); k++) expect_on(vendors[k], SAMPLE, NULL);
    for (i64 k = 0; k < 5; k++)
        expect_on(vendors[k], batch, "takes one sample at a time; 'x' has 2");
    for (i64 k = 5; k < countof(vendors); k++) expect_on(vendors[k], batch, NULL);
    for (i64 k = 0; k < 5; k++) expect_on(vendors[k], open, "needs fixed sizes");
    expect_on("OPENVINO_CPU:0", open, NULL);
    expect_on("OPENVINO_NPU:0", open, "needs fixed sizes");
    expect_on("X64:0", open, NULL);
}

static void converters_say_why_not(void **state)
{
    expect_on("HEXAGON:0", NET("%c: f32[1,4,8,8] = Mish(%x) output %c"),
              "reads ONNX up to opset 17; 'Mish' came with opset 18");
    expect_on("CV22:0", NET("%c: f32[1,4,8,8] = Erf(%x) output %c"),
              "Ambarella's onnxparser does not take operator 'Erf'");
    expect_on("TPU:0", NET("%c: f32[1,4,8,8] = Div(%x, %y) output %c"),
              "edgetpu_compiler does not take operator 'Div'");
    expect_on("TPU:0",
              "graph { input %x: f32[1,4,8,8] const %w: f32[4,2,1,1] = [1,2,3,4,5,6,7,8] %c: "
              "f32[1,4,8,8] = Conv(%x, %w) {group=2} output %c }",
              "depthwise");
    expect_on("TPU:0",
              "graph { input %x: f32[1,2] const %w: f32[2,2] = [1,2,3,4] %c: f32[1,2] = MatMul(%x, "
              "%w) output %c }",
              NULL);
    expect_on(
        "TPU:0",
        "graph { input %x: f32[1,2] input %w: f32[2,2] %c: f32[1,2] = MatMul(%x, %w) output %c }",
        "operand 1 of 'MatMul' to be constant");
    expect_on("OPENVINO_CPU:0",
              "graph { input %x: f32[4] %c: f32[4] = quern::Max(%x, %x) output %c }",
              "is no operator of ONNX");
    expect_on("ARA1:0", "graph { input %x: i32[4] %c: i32[4] = Add(%x, %x) output %c }",
              "does not compute in i32");
    expect_on("HEXAGON:0", "graph { input %x: f64[4] %c: f64[4] = Add(%x, %x) output %c }",
              "does not compute in f64");
}

/* --- allocations --- */

static void read_again_as_written(void **state)
{
    struct fixture f;
    struct buf b = {0};
    fixture_open(&f, SAMPLE);
    if (!place_allocation_parse(
            &f.y, &f.x, &f.d, S("{\"add_5\": \"X64:1\", \"conv2d_2\": \"HEXAGON:0\"}"), &f.a, &f.e))
        fail_msg("%s", f.e.msg);
    assert_true(f.d.n == 2 && str_is(f.d.v[f.y.device[0]].name, "HEXAGON:0") &&
                str_is(f.d.v[f.y.device[1]].name, "X64:1"));
    place_allocation_print(&b, &f.y, &f.x, &f.d);
    assert_string_equal(b.p, "{\n  \"conv2d_2\": \"HEXAGON:0\",\n  \"add_5\": \"X64:1\"\n}\n");
    struct place_allocation again;
    assert_true(place_allocation_parse(&again, &f.x, &f.d, buf_view(&b), &f.a, &f.e));
    assert_true(f.d.n == 2 && again.device[0] == f.y.device[0] && again.device[1] == f.y.device[1]);
    buf_release(&b);
    fixture_close(&f);
}

static void wrong_allocations_are_explained(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"", "line 1, column 0"},
        {"[]", "not an object"},
        {"{\n\"conv2d_2\": \"X64:0\",\n}", "line 3"},
        {"{\"conv2d_2\": \"X64:0\"}", "operator 'add_5' has no device: add \"add_5\": \"X64:0\""},
        {"{}", "2 operators have no device, the first is 'conv2d_2': add \"conv2d_2\": \"X64:0\""},
        {"{\"conv2d_2\": \"X64:0\",\n \"add_5\": \"X64:0\",\n \"conv2d_3\": \"X64:0\"}",
         "line 3: no operator 'conv2d_3', did you mean 'conv2d_2'?"},
        {"{\"conv2d_2\": \"X64:0\",\n \"something_else\": \"X64:0\"}",
         "line 2: no operator 'something_else'; network 'net' has 2, 'conv2d_2' to 'add_5'"},
        {"{\"conv2d_2\": \"X64:0\",\n\n \"add_5\": \"HEXGON:0\"}",
         "line 3: operator 'add_5': device 'HEXGON:0': unknown kind 'HEXGON', did you mean "
         "'HEXAGON'?"},
        {"{\"conv2d_2\": \"X64\", \"add_5\": \"X64:0\"}",
         "line 1: operator 'conv2d_2': device 'X64': the number of the instance is missing"},
        {"{\"conv2d_2\": 1, \"add_5\": \"X64:0\"}", "the device of operator 'conv2d_2' is no text"},
        {"{\"conv2d_2\": {\"add_5\": \"X64:0\"}}", "the device of operator 'conv2d_2' is no text"},
        {"{\"conv2d_2\": \"X64:0\", \"add_5\": \"X64:0\",\n\"add_5\": \"X64:1\"}", "line 2"},
        {"{\"conv2d_2\": \"X64:0\", \"add\\n\\\"\\\\_5\": \"X64:1\"}", "line 1: no operator 'add"},
    };
    struct fixture f;
    fixture_open(&f, SAMPLE);
    for (i64 k = 0; k < countof(wrong); k++) {
        f.d = (struct place_devices){0}, f.e = (struct err){0};
        bool ok = place_allocation_parse(&f.y, &f.x, &f.d, str_of(wrong[k].text), &f.a, &f.e);
        if (ok || !strstr(f.e.msg, wrong[k].why))
            fail_msg("'%s': %s", wrong[k].text, ok ? "accepted" : f.e.msg);
    }
    fixture_close(&f);
}

static void refused_operators_name_alternatives(void **state)
{
    static const char net[] =
        "graph { input %x: f32[1,4,8,8] %c: f32[1,4,8,8] = Erf(%x) output %c }";
    static const char *const devices[] = {"TPU:0", "X64:0", "HEXAGON:0"};
    struct fixture f;
    fixture_open(&f, net);
    assert_true(place_devices_parse(&f.d, devices, 3, &f.a, &f.e));
    assert_false(
        place_allocation_parse(&f.y, &f.x, &f.d, S("{\n\"erf_1\":\n\"TPU:0\"}"), &f.a, &f.e));
    assert_string_equal(f.e.msg, "line 2: operator 'erf_1' cannot run on 'TPU:0': edgetpu_compiler "
                                 "does not take operator 'Erf'; it can on X64:0, HEXAGON:0");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fourteen_kinds_and_ours),
        cmocka_unit_test(settings_replace_defaults),
        cmocka_unit_test(processors_share_threads),
        cmocka_unit_test(wrong_devices_are_named),
        cmocka_unit_test(converters_accept_what_they_are_documented_to),
        cmocka_unit_test(converters_say_why_not),
        cmocka_unit_test(read_again_as_written),
        cmocka_unit_test(wrong_allocations_are_explained),
        cmocka_unit_test(refused_operators_name_alternatives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
