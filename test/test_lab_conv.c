// SPDX-License-Identifier: Apache-2.0
//
// Files of convolutions: random rows survive printing and reading; those that are built in are read and have kernels; other tools'
// headers have their own meaning; errors have line and column. Rows' sizes are those of the operators.
#include "conv_fixture.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct conv_row named_row(struct rng *r)
{
    struct conv_row x = any_row(r, 9);
    if (rng_range(r, 0, 1)) x.name = S("a \"name\", with all");
    return x;
}

static void test_round_trip(void **state)
{
    struct rng r = rng_seed(1);
    struct arena a = {0};
    for (int i = 0; i < 200; i++) {
        struct conv_data d = {0}, back;
        struct buf b = {0};
        struct err e = {0};
        for (i64 k = rng_range(&r, 1, 5); k > 0; k--) *arr_push(&a, &d.row) = named_row(&r);
        conv_print(&b, &d);
        if (!conv_read(&back, &a, buf_view(&b), &e)) fail_msg("%s\n%s", e.msg, b.p);
        assert_int_equal(back.row.n, d.row.n);
        assert_int_equal(back.note.n, 0);
        for (u32 k = 0; k < d.row.n; k++) {
            assert_true(str_eq(back.row.v[k].name, d.row.v[k].name));
            back.row.v[k].name = d.row.v[k].name;
            assert_memory_equal(&back.row.v[k], &d.row.v[k], sizeof d.row.v[k]);
        }
        buf_release(&b);
    }
    arena_release(&a);
}

/* The operators work out the same sizes, in either layout. */
static void check_task(const struct conv_row *x, enum dtype t)
{
    struct arena a = {0};
    struct symtab st;
    struct task task;
    struct candidate c;
    struct err e = {0};
    i64 dim[MAX_RANK], out[CONV_AXES], none = 0;
    const struct caps caps = {.arch = "test", .vector_bytes = 32, .n_vector_regs = 16, .n_threads = 2, .l1_bytes = 32 << 10,
                              .l2_bytes = 1 << 20, .l3_bytes = 8 << 20, .has_fma = true};
    for (enum layout l = LAYOUT_ROWS; l <= LAYOUT_CLAST; l++) {
        symtab_init(&st, &a);
        if (!conv_row_task(&task, &a, &st, x, t, l, &e)) fail_msg("%s", e.msg);
        const struct value *y = graph_value(&task.g, task.g.output.v[0]);
        assert_true(shape_is_static(&st, &y->shape, dim));
        conv_row_outputs(x, out);
        assert_int_equal(y->shape.rank, x->axes + 2);
        assert_int_equal(dim[0], x->batch);
        assert_int_equal(dim[1], x->out_channels);
        assert_memory_equal(dim + 2, out, x->axes * sizeof *out);
        assert_int_equal(y->layout, l);
        assert_true(gen_default(&task, &caps, &none, &c));
        if (!x->is_transposed) assert_true(task_flops(&task, &none) == conv_row_flops(x));
        assert_true(task_bytes(&task, &none) == conv_row_bytes(x, t));
    }
    arena_release(&a);
}

static void test_tasks(void **state)
{
    struct rng r = rng_seed(2);
    for (int i = 0; i < 100; i++) {
        struct conv_row x = named_row(&r);
        check_task(&x, i % 3 ? DT_F32 : DT_F16);
    }
}

/* Reduced rows are valid and keep their window. */
static void test_shrink(void **state)
{
    struct rng r = rng_seed(3);
    for (int i = 0; i < 500; i++) {
        struct conv_row x = any_row(&r, 9), y = x;
        struct err e = {0};
        double most = (double)rng_range(&r, 1, 4000);
        conv_row_shrink(&y, most);
        if (!conv_row_check(&y, &e)) fail_msg("%s", e.msg);
        assert_true(conv_row_flops(&y) <= conv_row_flops(&x));
        if (conv_row_flops(&x) <= most) assert_memory_equal(&x, &y, sizeof x);
        assert_memory_equal(x.kernel, y.kernel, sizeof x.kernel);
        assert_memory_equal(x.stride, y.stride, sizeof x.stride);
        assert_memory_equal(x.pad_end, y.pad_end, sizeof x.pad_end);
    }
}

static void test_built_in(void **state)
{
    struct arena a = {0};
    struct str text;
    struct err e = {0};
    u32 n_rows = 0, k = 0;
    for (const char *name; (name = conv_data_at(k, &text)); k++) {
        struct conv_data d, same;
        if (!conv_data_open(&d, &a, name, &e)) fail_msg("%s", e.msg);
        if (d.note.n) fail_msg("'%s': %s", name, d.note.v[0].p);
        assert_true(conv_read(&same, &a, text, &e));
        assert_int_equal(same.row.n, d.row.n);
        for (u32 i = 0; i < d.row.n; i++) check_task(&d.row.v[i], DT_F32);
        n_rows += d.row.n;
    }
    assert_true(k >= 14 && n_rows >= 100);
    struct conv_data none;
    assert_false(conv_data_open(&none, &a, "cosmo", &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_non_null(strstr(e.msg, "cosmoflow"));
    arena_release(&a);
}

static void test_label(void **state)
{
    struct arena a = {0};
    struct conv_data d;
    struct buf b = {0};
    struct err e = {0};
    assert_true(conv_data_open(&d, &a, "cosmoflow", &e));
    d.row.v[0].batch = 16;
    conv_row_label(&b, &d.row.v[0]);
    assert_string_equal(b.p, "in_16X1X130X130X130_k_3X3X3_och_16");
    assert_true(conv_row_flops(&d.row.v[0]) == 2.0 * 16 * 128 * 128 * 128 * 27 * 16);
    buf_release(&b);
    arena_release(&a);
}

/* Other tools' headers. */

static const char sizes_first[] = "\"InChannel\",\"InputDepth\",\"InputHeight\",\"InputWidth\",\"KernelDepth\",\"KernelHeight\",\"KernelWidth\","
                                  "\"OutputChannel\",\"OutputDepth\",\"OutputHeight\",\"OutputWidth\"\n";

static void read_ok(struct conv_data *d, struct arena *a, const char *header, const char *rows)
{
    struct err e = {0};
    if (!conv_read(d, a, str_fmt(a, "%s%s", header, rows), &e)) fail_msg("%s", e.msg);
}

static void test_dialects(void **state)
{
    struct arena a = {0};
    struct conv_data d;
    read_ok(&d, &a, sizes_first, "\"1\",\"130\",\"131\",\"132\",\"5\",\"4\",\"3\",\"16\",\"126\",\"128\",\"130\"\r\n4,5,5,5,3,3,3,8,5,3,3");
    const struct conv_row want = {.axes = 3, .batch = 1, .channels = 1, .out_channels = 16, .groups = 1, .size = {130, 131, 132},
                                  .kernel = {5, 4, 3}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    d.row.v[0].name = (struct str){0};
    assert_memory_equal(&d.row.v[0], &want, sizeof want);
    assert_int_equal(d.note.n, 1);
    assert_string_equal(d.note.v[0].p, "line 3: outputs are said to be 5 x 3 x 3, the convolution gives 3 x 3 x 3");
    read_ok(&d, &a, "\"InputDepth\",\"InputRow\",\"InputCol\",\"OutputDepth\",\"KernelRow\",\"KernelCol\",\"Stride\"\n",
            "3,224,225,64,7,5,2\n64,56,56,64,1,1,0\n");
    assert_int_equal(d.row.v[0].axes, 2);
    assert_int_equal(d.row.v[0].channels, 3);
    assert_int_equal(d.row.v[0].size[1], 225);
    assert_int_equal(d.row.v[0].kernel[1], 5);
    assert_int_equal(d.row.v[0].stride[1], 2);
    assert_int_equal(d.row.v[1].stride[0], 1);
    read_ok(&d, &a,
            "\"InputDepth\",\"InputRow\",\"InputColumn\",\"InputHeight\",\"KernelDepth\",\"KernelRow\",\"KernelCol\",\"OutputDepth\","
            "\"OutputRow\",\"OutputColumn\",\"OutputHeight\"\n",
            "32,128,127,126,3,2,1,64,127,127,124\n");
    const i64 size[] = {126, 128, 127}, kernel[] = {3, 2, 1};
    assert_int_equal(d.row.v[0].channels, 32);
    assert_int_equal(d.row.v[0].out_channels, 64);
    assert_memory_equal(d.row.v[0].size, size, sizeof size);
    assert_memory_equal(d.row.v[0].kernel, kernel, sizeof kernel);
    assert_int_equal(d.note.n, 0);
    read_ok(&d, &a, "channels,width,\"Kernel length\",\"Number of filters\",\"Dilation\",\"Stride\"\n", "80,100,11,512,1,2\n");
    assert_int_equal(d.row.v[0].axes, 1);
    assert_int_equal(d.row.v[0].stride[0], 2);
    arena_release(&a);
}

static void test_errors(void **state)
{
    static const char own[] = "channels,height,width,kernel_h,kernel_w,out_channels\n";
    static const struct { const char *header, *rows, *says; } wrong[] = {
        {"", "", "line 1: no names of columns"},
        {own, "", "no rows"},
        {"", "channels,with\n", "line 1: column 2: no column is called 'with'"},
        {"", "channels,width,channels\n", "line 1: column 3: 'channels' again, after column 1"},
        {"", "\"channels\n", "line 1: column 1: a quote that is not closed"},
        {"", "\"channels\"x\n", "line 1: column 1: text behind a closed quote"},
        {own, "3,8,8,3,3,4\n\n3,8,8,3,3\n", "line 4: 5 columns instead of 6"},
        {own, "3,8,8,3,3,4,5\n", "line 2: 7 columns instead of 6"},
        {own, "3,8,eight,3,3,4\n", "line 2: column 3 (width): expected a whole number, found 'eight'"},
        {own, "3,8,8.5,3,3,4\n", "line 2: column 3 (width): expected a whole number, found '8.5'"},
        {own, "3,8,99999999999999999999,3,3,4\n", "line 2: column 3 (width): expected a number up to 1073741824, found '9999"},
        {own, "3,8,,3,3,4\n", "line 2: column 3 (width) is empty"},
        {own, "3,8,8,3,3,\n", "line 2: column 6 (out_channels) is empty"},
        {own, "3,0,8,3,3,4\n", "line 2: size of the height is 0"},
        {own, "3,8,8,3,0,4\n", "line 2: kernel of the width is 0"},
        {own, "3,8,8,3,9,4\n", "line 2: kernel larger than the input: along the width it covers 9 of 8"},
        {own, "-3,8,8,3,3,4\n", "line 2: number of channels is -3"},
        {own, "3,,8,3,3,4\n", "line 2: column 4 (kernel_h): '3' for an axis without a size"},
        {"", "channels,width,kernel_w\n3,4,5\n", "line 2: column 'out_channels' is missing"},
        {"", "channels,depth,width,kernel_w,kernel_d,out_channels\n3,4,5,1,1,1\n", "line 2: column 'height' is missing"},
        {"", "channels,width,kernel_w,out_channels,groups\n3,4,3,4,2\n", "line 2: 2 groups do not divide 3 channels and 4"},
        {"", "channels,width,kernel_w,out_channels,stride_w\n3,4,3,4,0\n", "line 2: stride of the width is 0"},
        {"", "channels,width,kernel_w,out_channels,transposed\n3,4,3,4,yes\n", "column 5 (transposed): expected 0 or 1, found 'yes'"},
        {"", "channels,width,kernel_w,out_channels,output_pad_w\n3,4,3,4,1\n", "output pad of the width is 1"},
        {"", "batch,channels,width,kernel_w,out_channels\n1000000000,1000000000,1000000000,3,4\n", "too many elements"},
        {"", "\"Kernel length\",\"Number of filters\",\"Dilation\",\"Stride\"\n5,512,1,1\n", "line 2: column 'channels' is missing"},
        {sizes_first, "1,2,3,3,3,3,3,4,1,1,1\n", "line 2: kernel larger than the input: along the depth it covers 3 of 2"},
    };
    struct arena a = {0};
    for (i64 i = 0; i < countof(wrong); i++) {
        struct conv_data d;
        struct err e = {0};
        assert_false(conv_read(&d, &a, str_fmt(&a, "%s%s", wrong[i].header, wrong[i].rows), &e));
        assert_int_equal(e.code, ERR_INPUT);
        if (!strstr(e.msg, wrong[i].says)) fail_msg("'%s' instead of '%s'", e.msg, wrong[i].says);
    }
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_tasks),    cmocka_unit_test(test_shrink), cmocka_unit_test(test_built_in),
        cmocka_unit_test(test_label),      cmocka_unit_test(test_dialects), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
