// SPDX-License-Identifier: Apache-2.0
//
// Tensors of more than 2^31 elements and 2^32 bytes on CPUs, without their memory: distant windows
// read few elements of a huge input of untouched zeros, and the outputs are at the end of a huge
// value that they are part of. Every named implementation and every matching family is compared
// with the definition.
#include "gen_tasks.h"
#include "lab/conv.h"

enum { SIDE = 32800, CHANNELS = 2, OUT_CHANNELS = 3, STRIDE = 10932, N_OUT = 4, TAPS = 9, BEHIND = 2 };
static const i64 whole = ((i64)1 << 27) + 8; /* channels of the value that the outputs are a part of */

struct place_in { i64 n, c, y, x; enum layout layout; i64 channels, side; };

static i64 flat(const struct place_in *p)
{
    if (p->layout == LAYOUT_ROWS) return ((p->n * p->channels + p->c) * p->side + p->y) * p->side + p->x;
    return ((p->n * p->side + p->y) * p->side + p->x) * p->channels + p->c;
}

static i64 input_at(enum layout l, i64 c, i64 y, i64 x)
{
    return flat(&(struct place_in){.c = c, .y = y, .x = x, .layout = l, .channels = CHANNELS, .side = SIDE});
}

static i64 first_channel(void) { return whole - OUT_CHANNELS - BEHIND; }

static i64 output_at(enum layout l, i64 c, i64 y, i64 x)
{
    return flat(&(struct place_in){.c = first_channel() + c, .y = y, .x = x, .layout = l, .channels = whole, .side = N_OUT});
}

/* Small integers, whose sums are exact. */
static double element(i64 c, i64 y, i64 x) { return (double)((c * 5 + y * 3 + x * 7) % 9 - 4); }
static double weight(i64 m, i64 c, i64 tap) { return (double)((m * 7 + c * 3 + tap * 5) % 5 - 2); }

struct large {
    struct fixture b;
    enum layout layout;
    i64 pad;
    struct dev *d;
    struct dev_mem x, y;
};

static bool is_inside(i64 at) { return at >= 0 && at < SIDE; }

/* Output (m, y, x); with `to`, its input elements are stored there instead. */
static double reference_at(const struct large *t, i64 m, i64 y, i64 x, u16 *to)
{
    double sum = 0;
    for (i64 tap = 0; tap < TAPS; tap++) {
        i64 iy = y * STRIDE - t->pad + tap / 3, ix = x * STRIDE - t->pad + tap % 3;
        for (i64 c = 0; c < CHANNELS && is_inside(iy) && is_inside(ix); c++) {
            sum += element(c, iy, ix) * weight(m, c, tap);
            if (to) elem_set_f64(DT_F16, to, input_at(t->layout, c, iy, ix), element(c, iy, ix));
        }
    }
    return sum;
}

static void make(struct large *t, enum layout l, i64 pad)
{
    struct conv_row row = {.axes = 2, .batch = 1, .channels = CHANNELS, .out_channels = OUT_CHANNELS, .groups = 1, .size = {SIDE, SIDE},
                           .kernel = {3, 3}, .stride = {STRIDE, STRIDE}, .dilation = {1, 1}, .pad_begin = {pad, pad}, .pad_end = {pad, pad}};
    struct fixture *b = &t->b;
    struct dev_opts o = {.n_threads = 1};
    struct task own;
    fixture_open(b, 0);
    t->layout = l, t->pad = pad;
    assert_true(dev_ask(dev_find(S("cpu")), &o, &b->caps, NULL, &b->e));
    assert_true(conv_row_task(&own, &b->arena, &b->sym, &row, DT_F16, l, &b->e));
    struct part *part = arena_array(&b->arena, struct part, own.g.value.n);
    enum layout *layout = arena_array(&b->arena, enum layout, own.g.value.n);
    for (value_id v = 1; v < own.g.value.n; v++) layout[v] = graph_value(&own.g, v)->layout;
    part[own.g.output.v[0]] = (struct part){.axis = 1, .from = sym_const(&b->sym, first_channel()), .whole = sym_const(&b->sym, whole)};
    assert_true(task_with_parts(&b->t, &own, &b->arena, part, layout, &b->e));
}

/* false: not enough address space. */
static bool open_memory(struct large *t)
{
    struct dev_opts o = {.n_threads = 2};
    const i64 in = (i64)CHANNELS * SIDE * SIDE, out = whole * N_OUT * N_OUT;
    assert_true(in > INT32_MAX && out > INT32_MAX && 2 * in > UINT32_MAX && 2 * out > UINT32_MAX);
    t->d = dev_find(S("cpu"))->open(&o, &t->b.e);
    assert_non_null(t->d);
    if (!t->d->driver->alloc(t->d, 2 * in, &t->x, &t->b.e)) return false;
    if (!t->d->driver->alloc(t->d, 2 * out, &t->y, &t->b.e)) {
        t->d->driver->release(t->d, &t->x);
        return false;
    }
    for (i64 i = 0; i < N_OUT * N_OUT; i++) reference_at(t, 0, i / N_OUT, i % N_OUT, t->x.host);
    return true;
}

static void close_all(struct large *t, bool has_memory)
{
    if (has_memory) t->d->driver->release(t->d, &t->x), t->d->driver->release(t->d, &t->y);
    t->d->driver->close(t->d);
    fixture_close(&t->b);
}

static const void *weights(struct fixture *b, const struct kernel_arg *a, i64 *size)
{
    i64 dim[] = {OUT_CHANNELS, CHANNELS, 3, 3};
    struct tensor *w = tensor_new(&b->arena, DT_F16, 4, dim);
    for (i64 i = 0; i < tensor_count(w); i++) elem_set_f64(DT_F16, w->data, i, weight(i / (CHANNELS * TAPS), i / TAPS % CHANNELS, i % TAPS));
    if (a->pack) w = pack_apply(a->pack, w, &b->sym, &b->arena, NULL);
    assert_non_null(w);
    *size = tensor_bytes(w);
    return w->data;
}

/* The kernel on this memory; arrays of its own are small. */
static void launch(struct large *t, const struct kernel *kn, struct dev_kernel *kernel)
{
    struct fixture *b = &t->b;
    const struct dev_driver *d = t->d->driver;
    struct dev_mem *buf = arena_array(&b->arena, struct dev_mem, kn->n_arg + kn->n_temp);
    bool own[16] = {0};
    i64(*grid)[3] = (i64(*)[3])arena_alloc(&b->arena, (i64)sizeof(i64[3]) * kn->n_grid), size, work = 0;
    for (u32 i = 0; i < kn->n_arg + kn->n_temp; i++) {
        const struct kernel_arg *a = i < kn->n_arg ? &kn->arg[i] : NULL;
        const void *from = NULL;
        if (a && a->v == b->t.g.input.v[0]) buf[i] = t->x;
        else if (a && a->is_out) buf[i] = t->y;
        else {
            assert_true(i < countof(own));
            if (a) from = weights(b, a, &size);
            else assert_true(sym_eval(&b->sym, kn->temp[i - kn->n_arg], b->var, &size));
            own[i] = d->alloc(t->d, size, &buf[i], &b->e);
            assert_true(own[i] && (!from || d->upload(t->d, buf[i], from, size, &b->e)));
        }
    }
    for (u32 g = 0; g < kn->n_grid; g++)
        for (u32 k = 0; k < 3; k++) {
            grid[g][k] = 1;
            if (k < kn->grid[g].n) assert_true(sym_eval(&b->sym, kn->grid[g].extent[k], b->var, &grid[g][k]));
        }
    assert_true(!kn->work || sym_eval(&b->sym, kn->work, b->var, &work));
    struct dev_launch l = {.kernel = kernel, .buf = buf, .n_buf = kn->n_arg + kn->n_temp, .grid = (const i64(*)[3])grid, .n_grid = kn->n_grid,
                           .work_size = work};
    assert_true(d->launch(t->d, &l, &b->e) && d->fence(t->d, &b->e));
    for (u32 i = 0; i < kn->n_arg + kn->n_temp; i++)
        if (own[i]) d->release(t->d, &buf[i]);
}

static void check_outputs(const struct large *t, const struct candidate *c)
{
    const u16 *y = t->y.host;
    for (i64 i = 0; i < OUT_CHANNELS * N_OUT * N_OUT; i++) {
        i64 m = i / (N_OUT * N_OUT), oy = i / N_OUT % N_OUT, ox = i % N_OUT, at = output_at(t->layout, m, oy, ox);
        double want = reference_at(t, m, oy, ox, NULL), got = elem_f64(DT_F16, y, at);
        if (got != want) fail_msg("%s: output (%lld, %lld, %lld) at %lld: %g instead of %g", c->gen->name, (long long)m, (long long)oy,
                                  (long long)ox, (long long)at, got, want);
    }
    for (i64 k = 1; k <= BEHIND; k++) assert_int_equal(y[output_at(t->layout, OUT_CHANNELS - 1 + k, N_OUT - 1, N_OUT - 1)], 0);
}

static void try_candidate(struct large *t, const struct candidate *c)
{
    struct fixture *b = &t->b;
    struct kernel kn;
    struct buf text = {0}, binary = {0};
    const struct lang *l = lang_find(S("c"));
    for (i64 i = 0; i < OUT_CHANNELS * N_OUT * N_OUT; i++)
        ((u16 *)t->y.host)[output_at(t->layout, i / (N_OUT * N_OUT), i / N_OUT % N_OUT, i % N_OUT)] = 0xffff;
    if (!gen_kernel(&kn, &b->arena, c, &b->t, &b->caps, &b->e) || !lang_render(&text, l, &kn.kir, &b->caps, &b->arena, &b->e) ||
        !l->build(&binary, buf_view(&text), &b->caps, 60, &b->e))
        report(b, c, 0);
    struct dev_kernel *kernel = t->d->driver->load(t->d, buf_view(&binary), str_of(kn.name), kn.n_grid, &b->e);
    assert_non_null(kernel);
    launch(t, &kn, kernel);
    t->d->driver->unload(t->d, kernel);
    check_outputs(t, c);
    buf_release(&text), buf_release(&binary);
}

static u32 try_names(struct large *t)
{
    const struct conv_impl *x;
    struct candidate c;
    u32 n = 0;
    for (u32 i = 0; (x = conv_impl_at(i)); i++) {
        if (x->channels_last != (t->layout == LAYOUT_CLAST)) continue;
        if (!conv_impl_candidate(x, &t->b.t, &t->b.caps, t->b.var, &c, &t->b.e)) report(&t->b, NULL, 0);
        try_candidate(t, &c);
        n++;
    }
    return n;
}

static u32 try_families(struct large *t)
{
    static const char *const name[] = {"conv_direct", "conv_gemm", "conv_igemm", "elementwise"};
    u32 n = 0;
    for (u32 i = 0; i < countof(name); i++) {
        const struct gen *g = gen_find(str_of(name[i]));
        if (!gen_matches(g, &t->b.t, &t->b.caps)) continue;
        struct candidate c = gen_initial(g, &t->b.t, &t->b.caps, t->b.var);
        try_candidate(t, &c);
        n++;
    }
    return n;
}

static void try_layout(enum layout l, i64 pad)
{
    struct large t = {0};
    make(&t, l, pad);
    bool has = open_memory(&t);
    u32 n = has ? try_names(&t) + try_families(&t) : 0;
    close_all(&t, has);
    if (!has) skip_test("no room for addresses");
    print_message("%u kernels\n", n);
    assert_true(n > 4);
}

static void test_rows(void **state) { try_layout(LAYOUT_ROWS, 0), try_layout(LAYOUT_ROWS, 1); }
static void test_channels_last(void **state) { try_layout(LAYOUT_CLAST, 1), try_layout(LAYOUT_CLAST, 0); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_channels_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
