// SPDX-License-Identifier: Apache-2.0
//
// Arrays of more than 2^31 bytes and elements on GPUs (doc/kernel-ir.md): kernels with known sizes
// use 64-bit indices only if 32 bits do not suffice; others are refused. Kernels run on OpenCL
// devices that can allocate so much: an input of which few, distant elements are read (ALL=1).
#include "gen_tasks.h"
#include "lab/conv.h"

static bool conv_task(struct fixture *b, const struct conv_row *row, enum dtype t)
{
    return conv_row_task(&b->t, &b->arena, &b->sym, row, t, LAYOUT_ROWS, &b->e);
}

static struct str render(struct fixture *b, const struct candidate *c, struct kernel *k, const struct lang *l)
{
    struct buf text = {0};
    if (!gen_kernel(k, &b->arena, c, &b->t, &b->caps, &b->e) || !lang_render(&text, l, &k->kir, &b->caps, &b->arena, &b->e)) report(b, c, 0);
    struct str s = str_dup(&b->arena, buf_view(&text));
    buf_release(&text);
    return s;
}

/* Whether a text contains 64-bit arithmetic. */
static bool is_wide(struct str text)
{
    for (struct str line; text.n;) {
        str_cut(text, '\n', &line, &text);
        if (!str_starts(line, S("typedef")) && str_glob(S("*i64*"), line)) return true;
    }
    return false;
}

/* Named implementations and defaults of rows of growing size, for all languages: 64 bits exactly where something does not fit 32. */
static void test_texts(void **state)
{
    static const struct { const char *driver, *arch; } target[] = {{"cuda", "sm_80"}, {"cuda", "sm_90"}, {"hip", "gfx90a"}};
    static const i64 size[] = {60, 500, 1290}; /* 2.2e5, 1.2e8 and 2.1e9 elements */
    u32 n[countof(size)] = {0}, n_wide[countof(size)] = {0}, n_built = 0;
    for (u32 s = 0; s < countof(size); s++)
        for (u32 i = 0; i < countof(target) * 9; i++) {
            const struct conv_impl *x = conv_impl_at(i % 9);
            const struct lang *l = lang_find(str_of(dev_find(str_of(target[i / 9].driver))->lang));
            struct conv_row row = {.axes = 3, .batch = 1, .channels = 1, .out_channels = 4, .groups = 1, .size = {size[s], size[s], size[s]},
                                   .kernel = {3, 3, 3}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .pad_begin = {1, 1, 1}, .pad_end = {1, 1, 1}};
            struct fixture b;
            struct candidate c;
            struct kernel k;
            struct buf tool = {0}, binary = {0};
            struct err none = {0};
            fixture_open(&b, i);
            assert_true(dev_target(&b.caps, target[i / 9].driver, str_of(target[i / 9].arch)));
            if (!conv_task(&b, &row, i % 2 ? DT_F32 : DT_F16) || !conv_impl_candidate(x, &b.t, &b.caps, b.var, &c, &b.e)) report(&b, NULL, i);
            struct str text = render(&b, &c, &k, l);
            assert_int_equal(k.n_param, 0); /* all sizes are known */
            n[s]++, n_wide[s] += is_wide(text);
            if (s == 2 && i % 5 == 0 && l->toolchain(&tool, NULL, &none)) {
                if (!l->build(&binary, text, &b.caps, 120, &b.e)) report(&b, &c, i);
                n_built++;
            }
            buf_release(&tool), buf_release(&binary);
            fixture_close(&b);
        }
    print_message("counting in 64 bits: %u of %u, %u of %u, %u of %u; %u built\n", n_wide[0], n[0], n_wide[1], n[1], n_wide[2], n[2], n_built);
    assert_true(n_wide[0] == 0 && n_wide[2] == n[2]);
}

/* Kernels on a device. One argument is large, and holds a few elements. */

struct far {
    struct dev *dev;
    struct dev_kernel *code;
    struct dev_mem mem[8];
    u32 n, large; /* buffers; the large one */
};

static struct dev_mem *place(struct far *f, i64 bytes, const void *content)
{
    struct err e = {0};
    struct dev_mem *m = &f->mem[f->n++];
    assert_true(f->n <= countof(f->mem));
    if (!f->dev->driver->alloc(f->dev, bytes, m, &e)) fail_msg("%s", e.msg);
    if (content) assert_true(f->dev->driver->upload(f->dev, *m, content, bytes, &e));
    return m;
}

static void put(struct far *f, enum dtype t, i64 at, double v)
{
    struct err e = {0};
    char element[8];
    struct dev_mem m = f->mem[f->large];
    m.offset += at * dtype_size(t);
    if (dtype_is_float(t)) elem_set_f64(t, element, 0, v);
    else element[0] = (char)v;
    if (!f->dev->driver->upload(f->dev, m, element, dtype_size(t), &e)) fail_msg("%s", e.msg);
}

static void load_code(struct far *f, struct str text, struct str name, u32 n_grid, const struct caps *c)
{
    struct err e = {0};
    struct buf binary = {0};
    bool ok = lang_find(S("opencl"))->build(&binary, text, c, 120, &e);
    f->code = ok ? f->dev->driver->load(f->dev, buf_view(&binary), name, n_grid, &e) : NULL;
    buf_release(&binary);
    if (!f->code) fail_msg("%s", e.msg);
}

static bool launch(struct far *f, const struct dev_launch *what, struct err *e)
{
    struct dev_launch l = *what;
    l.kernel = f->code, l.buf = f->mem, l.n_buf = f->n;
    return f->dev->driver->launch(f->dev, &l, e) && f->dev->driver->fence(f->dev, e);
}

static void put_away(struct far *f)
{
    while (f->n) f->dev->driver->release(f->dev, &f->mem[--f->n]);
    f->dev->driver->unload(f->dev, f->code);
}

static double number(i64 i, i64 k) { return (double)((i * 7 + k * 3) % 11 - 5); }

static void launch_conv(struct far *f, struct fixture *b, const struct kernel *k)
{
    struct dev_launch l = {.n_grid = k->n_grid};
    i64 grid[8][3], bytes;
    assert_true(k->n_param == 0 && k->n_grid <= countof(grid));
    for (u32 i = 0; i < k->n_temp; i++) {
        assert_true(sym_eval(&b->sym, k->temp[i], b->var, &bytes));
        place(f, bytes, NULL);
    }
    for (u32 g = 0; g < k->n_grid; g++)
        for (u32 d = 0; d < 3; d++) {
            grid[g][d] = 1;
            if (d < k->grid[g].n) assert_true(sym_eval(&b->sym, k->grid[g].extent[d], b->var, &grid[g][d]));
        }
    l.grid = (const i64(*)[3])grid;
    if (!launch(f, &l, &b->e)) fail_msg("%s", b->e.msg);
}

/* Convolutions along an axis of more than 2^31 bytes with a large stride, by each name. */
enum { TAPS = 3, OUT = 3 };

static void far_conv(struct dev *d, const struct caps *caps, u32 impl, enum dtype t, i64 batch, i64 size)
{
    const i64 stride = 1 << 20, n = (size - TAPS) / stride + 1, dims[] = {OUT, 1, TAPS};
    struct conv_row row = {.axes = 1, .batch = batch, .channels = 1, .out_channels = OUT, .groups = 1, .size = {size}, .kernel = {TAPS},
                           .stride = {stride}, .dilation = {1}};
    struct far f = {.dev = d};
    struct fixture b;
    struct candidate c;
    struct kernel k;
    fixture_open(&b, impl);
    b.caps = *caps;
    const struct conv_impl *x = conv_impl_at(impl);
    if (!conv_row_task(&b.t, &b.arena, &b.sym, &row, t, x->channels_last ? LAYOUT_CLAST : LAYOUT_ROWS, &b.e) ||
        !conv_impl_candidate(x, &b.t, caps, b.var, &c, &b.e))
        report(&b, NULL, impl);
    struct str text = render(&b, &c, &k, lang_find(S("opencl")));
    load_code(&f, text, str_of(k.name), k.n_grid, caps);
    struct tensor *w = tensor_new(&b.arena, t, 3, dims);
    for (i64 i = 0; i < OUT * TAPS; i++) elem_set_f64(t, w->data, i, number(i, 1));
    i64 count = batch * OUT * n;
    for (u32 i = 0; i < k.n_arg; i++) {
        const struct tensor *p = k.arg[i].pack ? pack_apply(k.arg[i].pack, w, &b.sym, &b.arena, NULL) : w;
        bool is_input = k.arg[i].v == b.t.g.input.v[0];
        if (is_input) f.large = i;
        place(&f, is_input ? batch * size * dtype_size(t) : k.arg[i].is_out ? count * dtype_size(t) : tensor_bytes(p), is_input || k.arg[i].is_out ? NULL : p->data);
    }
    for (i64 i = 0; i < batch * n; i++)
        for (i64 j = 0; j < TAPS; j++) put(&f, t, i / n * size + i % n * stride + j, number(i, j));
    launch_conv(&f, &b, &k);
    void *got = arena_alloc(&b.arena, count * dtype_size(t));
    for (u32 i = 0; i < k.n_arg; i++)
        if (k.arg[i].is_out) assert_true(d->driver->download(d, f.mem[i], got, count * dtype_size(t), &b.e));
    for (i64 i = 0; i < batch * n; i++)
        for (i64 o = 0; o < OUT; o++) {
            double want = 0, y = elem_f64(t, got, x->channels_last ? i * OUT + o : (i / n * OUT + o) * n + i % n);
            for (i64 j = 0; j < TAPS; j++) want += number(i, j) * number(o * TAPS + j, 1);
            if (y != want) fail_msg("'%s', output %lld of channel %lld: %g instead of %g", x->name, (long long)i, (long long)o, y, want);
        }
    put_away(&f);
    fixture_close(&b);
}

/* One byte of many, far apart: beyond 2^31 elements; with the number of elements as a parameter that is refused. */
static void far_bytes(struct dev *d, const struct caps *caps, bool has_param)
{
    const i64 n = 3200, step = 700000;
    struct far f = {.dev = d};
    struct arena a = {0};
    struct kir k;
    struct err e = {0};
    struct buf text = {0};
    const char *kernel = "kernel far(x: in u8, y: out f32%s)\ngroup 64 1 1\ngrid %%1 = 50\n%%2 = thread 0\n%%3 = mul %%1, 64\n"
                         "%%4 = add %%3, %%2\n%%5 = mul %%4, %s\n%%6: u8 = load x[%%5]\n%%7: f32 = cast %%6\nstore y[%%4] = %%7\nend\n";
    if (!kir_parse(&k, &a, str_fmt(&a, kernel, has_param ? "; p0 = \"S\"" : "", has_param ? "p0" : "700000"), &e) ||
        !lang_render(&text, lang_find(S("opencl")), &k, caps, &a, &e))
        fail_msg("%s", e.msg);
    load_code(&f, buf_view(&text), S("far"), 1, caps);
    assert_int_equal(is_wide(buf_view(&text)), !has_param);
    buf_release(&text);
    place(&f, n * step, NULL);
    place(&f, n * dtype_size(DT_F32), NULL);
    for (i64 i = 0; i < n; i++) put(&f, DT_U8, i * step, (double)(i % 100));
    const i64 grid[1][3] = {{50, 1, 1}};
    bool ok = launch(&f, &(struct dev_launch){.grid = grid, .n_grid = 1, .param = &step, .n_param = has_param}, &e);
    assert_int_equal(ok, !has_param);
    if (!ok) assert_non_null(strstr(e.msg, "buffer 0 has 2240000000 bytes, a kernel"));
    float *y = arena_alloc(&a, n * 4);
    if (ok) assert_true(d->driver->download(d, f.mem[1], y, n * 4, &e));
    for (i64 i = 0; i < n && ok; i++) assert_true(y[i] == (float)(i % 100));
    put_away(&f);
    arena_release(&a);
}

/* Limits of launches, by their parameters and by the device. */
static void test_reach(void **state)
{
    const i64 most = INT32_MAX, far = most + 1;
    struct dev_mem m[2] = {{.size = far}, {.size = 64}};
    struct dev_launch l = {.buf = m, .n_buf = 2};
    struct err e = {0};
    assert_true(dev_check_reach(&l, INT64_MAX, "d", &e) && dev_check_reach(&l, far, "d", &e));
    assert_false(dev_check_reach(&l, most, "d", &e));
    assert_true(e.code == ERR_UNSUPPORTED && strstr(e.msg, "buffer 0 has 2147483648 bytes, a kernel on 'd' can reach 2147483647"));
    l.n_param = 1, e = (struct err){0};
    assert_false(dev_check_reach(&l, INT64_MAX, "d", &e));
    assert_true(e.code == ERR_UNSUPPORTED && strstr(e.msg, "can reach 2147483647"));
    m[0].size = most;
    assert_true(dev_check_reach(&l, INT64_MAX, "d", &e));
}

/* Devices zero their allocations of gigabytes. */
static void test_opencl(void **state)
{
    struct err e = {0};
    struct caps caps;
    if (!takes_all()) skip_test("only with ALL=1: needs 5 GB");
    os_dlopen("libOpenCL.so.1", &e); /* global state of drivers is lost when they are unloaded */
    e = (struct err){0};
    struct dev *d = dev_find(S("opencl"))->open(&(struct dev_opts){0}, &e);
    if (!d) skip_test("%s", e.msg);
    d->driver->caps(d, &caps);
    far_bytes(d, &caps, false);
    far_bytes(d, &caps, true);
    for (u32 i = 0; conv_impl_at(i); i++) {
        far_conv(d, &caps, i, DT_F32, 1, ((i64)1 << 29) + 12345);
        if (i % 4 == 0) far_conv(d, &caps, i, DT_F16, 2, ((i64)1 << 30) - 9);
    }
    d->driver->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_reach),
        cmocka_unit_test(test_opencl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
