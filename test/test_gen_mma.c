// SPDX-License-Identifier: Apache-2.0
//
// Matrix instructions under every addressing: random convolutions of one to three axes (strides, padding, dilation, groups, transposed ones, bias, something
// in front and behind, all layouts, known and unknown sizes) as products, and gradients of their weights, on random devices with matrix units, under random legal schedules, give in the
// interpreter, which finds races and accesses outside, what the reference gives. Every way to overlap copies, stream-K and
// swizzled arrays must have occurred.
#include "gen_tasks.h"

enum { N_PIPES = 5 };

struct seen { u32 n, pipe[N_PIPES], stages[6], chunks, stream, ahead, swizzled, groups, vectors, up, axes[4], type[N_DTYPES]; };

static void tally(struct fixture *b, const struct candidate *c, struct seen *s)
{
    const struct node *n = graph_node(&b->t.g, b->t.anchor);
    const struct value *x = graph_value(&b->t.g, n->in.v[0]);
    bool is_warpgroup = !strncmp(c->gen->name, "wgmma", 5);
    s->n++;
    s->chunks += value_of(c, "split_k") > 1;
    if (is_warpgroup) s->stages[value_of(c, "stages")]++;
    else s->pipe[value_of(c, "pipe")]++, s->stream += value_of(c, "stream_k") > 0, s->ahead += value_of(c, "rp") > 0, s->swizzled += value_of(c, "swz") > 0;
    s->groups += attr_int(n, "group", 1) > 1;
    s->up += op_of(&b->t.g, b->t.anchor)->props & OP_TRANSPOSED ? 1 : 0;
    s->vectors += x->layout == LAYOUT_CLAST;
    s->axes[x->shape.rank - 2]++;
    s->type[x->dtype]++;
}

static void try_family(struct fixture *b, const struct gen *g, u64 seed, struct seen *seen)
{
    struct check k;
    if (!gen_takes(g, &b->t, &b->caps) || !check_init(&k, &b->t, b->var, seed, true, &b->e)) return;
    for (u32 i = 0; i < 4; i++) {
        struct candidate c = i ? fixture_schedule(b, g) : gen_initial(g, &b->t, &b->caps, b->var);
        if (!run(b, &c, &k)) report(b, &c, seed);
        tally(b, &c, seen);
    }
    check_release(&k);
}

static bool random_task(struct fixture *b, u64 seed) { return (seed % 4 == 3 ? random_transpose : seed % 2 ? random_conv : random_plain_conv)(b); }

/* Large enough for the blocks of warpgroups. */
static bool random_large_conv(struct fixture *b, u64 seed)
{
    u32 axes = (u32)pick(b, 1, 2), rank = axes + 2;
    bool up = seed % 3 == 2, symbolic = pick(b, 0, 2) == 0;
    i64 groups = pick(b, 0, 4) ? 1 : 2, ic = pick(b, 0, 1) ? 16 * pick(b, 1, 3) : pick(b, 9, 40), oc = pick(b, 33, 72);
    i64 w[MAX_RANK] = {groups * (up ? ic : oc), up ? oc : ic}, strides[2], pads[4] = {0}, n = groups * oc;
    sym dim[MAX_RANK] = {draw_size(b, 1, 2, 2), sym_const(&b->sym, groups * ic)};
    for (u32 i = 0; i < axes; i++) {
        w[2 + i] = pick(b, 1, 3), strides[i] = pick(b, 1, 2);
        if (!up) pads[i] = pick(b, 0, 1), pads[axes + i] = pick(b, 0, 1);
        dim[2 + i] = size_of(b, axes == 1 ? pick(b, 70, 140) : pick(b, 9, 16), symbolic);
    }
    value_id x = add_input(b, "x", rank, dim), y = add_weighted(b, up ? "ConvTranspose" : "Conv", x, rank, w, pick(b, 0, 1) ? &n : NULL);
    node_id node = graph_value(&b->g, y)->producer;
    attr_set_int(&b->g, node, "group", groups);
    attr_set_ints(&b->g, node, "strides", strides, axes);
    attr_set_ints(&b->g, node, "pads", pads, 2 * axes);
    if (pick(b, 0, 1)) y = add_op(b, "Relu", y, 0, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    return make_task(b);
}

static bool random_gradient(struct fixture *b, u64 seed) { return random_grad(b); }

/* warpgroups: on devices that have them. */
static struct seen try_tasks(const char *family, bool warpgroups, u64 n, bool (*make)(struct fixture *b, u64 seed))
{
    struct seen s = {0};
    for (u64 seed = first_seed(0, n); seed < last_seed(0, n); seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        do fixture_use_workgroups(&b);
        while (!b.caps.matrix[0]);
        b.type = fixture_matrix_type(&b);
        if (warpgroups) fixture_use_warpgroups(&b), b.type = pick(&b, 0, 1) ? DT_F16 : DT_BF16;
        if (make(&b, seed)) try_family(&b, gen_find(str_of(family)), seed, &s);
        fixture_close(&b);
    }
    if (getenv("VERBOSE"))
        print_message("%u: pipe %u %u %u %u %u, chunks %u, stream %u, ahead %u, swizzled %u, groups %u, channels last %u, transposed %u, axes %u %u %u, f16 %u bf16 %u f32 %u\n",
                      s.n, s.pipe[0], s.pipe[1], s.pipe[2], s.pipe[3], s.pipe[4], s.chunks, s.stream, s.ahead, s.swizzled, s.groups, s.vectors, s.up, s.axes[1],
                      s.axes[2], s.axes[3], s.type[DT_F16], s.type[DT_BF16], s.type[DT_F32]);
    assert_true(is_enough(s.n, n));
    for (u32 i = 0; !warpgroups && i < N_PIPES; i++) assert_true(is_enough(s.pipe[i], 5));
    return s;
}

static void test_convolutions(void **state)
{
    struct seen s = try_tasks("mma_igemm", false, 120, random_task);
    for (u32 i = 1; i < countof(s.axes); i++) assert_true(is_enough(s.axes[i], 20));
    assert_true(is_enough(s.ahead, 10) && is_enough(s.swizzled, 20) && is_enough(s.groups, 10) && is_enough(s.vectors, 10) && is_enough(s.up, 20));
    assert_true(is_enough(s.type[DT_F16], 20) && is_enough(s.type[DT_BF16], 10) && is_enough(s.type[DT_F32], 5));
}

static void test_gradients(void **state)
{
    struct seen s = try_tasks("mma_conv_grad", false, 60, random_gradient);
    for (u32 i = 1; i < countof(s.axes); i++) assert_true(is_enough(s.axes[i], 10));
    assert_true(is_enough(s.stream, 10) && is_enough(s.groups, 10));
}

static void test_warpgroups(void **state)
{
    struct seen s = try_tasks("wgmma_igemm", true, 40, random_large_conv);
    for (u32 i = 2; i < countof(s.stages); i++) assert_true(is_enough(s.stages[i], 3));
    for (u32 i = 1; i < 3; i++) assert_true(is_enough(s.axes[i], 5));
    assert_true(is_enough(s.groups, 5) && is_enough(s.vectors, 5) && is_enough(s.up, 5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_convolutions), cmocka_unit_test(test_gradients), cmocka_unit_test(test_warpgroups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
