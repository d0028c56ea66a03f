// SPDX-License-Identifier: Apache-2.0
//
// wg_gemm's schedules: random legal ones, those that a search would not try included, for random products (primes, batches,
// transposed operands, fused ones) in all types give what the reference gives in the interpreter, without races or accesses outside.
// COUNT is how many, a tenth of them on OpenCL's device. Streams of mma_gemm do so, too. And schedules that were found to be fast elsewhere exist in this family, and
// are predicted to be.
#include "gen_tasks.h"

#include "gen/block.h"

extern const struct gen gen_wg_gemm, gen_mma_gemm;

/* Random legal schedules. */

/* Fast enough for the interpreter. */
static bool is_small(const struct fixture *b, const struct candidate *c)
{
    struct block s = block_of(&c->sched);
    struct block_task x;
    assert_true(block_task_of(&x, &b->t, b->var));
    double blocks = (double)(x.batch * ceil_div(x.m, s.bm) * ceil_div(x.n, s.bn)), rounds = (double)ceil_div(x.k, s.bk);
    return blocks * rounds * (double)(s.bm * s.bn * s.bk) < 4e6 && s.bm * s.bn <= 4096;
}

static struct candidate random_legal(struct fixture *b)
{
    struct candidate c = {.gen = &gen_wg_gemm}, other;
    if (gen_random(&b->t, &b->caps, &b->rng, &other) && other.gen == c.gen && is_small(b, &other)) c = other;
    else c = gen_initial(c.gen, &b->t, &b->caps, b->var);
    for (u32 i = 0; i < 40; i++) { /* outside the pruned space */
        other = c;
        for (i64 n = pick(b, 1, 3); n > 0; n--) {
            i64 p = pick(b, 0, N_PARAM - 1);
            other.sched.v[p] = block_param[p].values[pick(b, 0, (i64)block_param[p].n - 1)];
        }
        if (gen_legal(&other, &b->t, &b->caps) && is_small(b, &other)) c = other;
    }
    return c;
}

static void test_random(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16};
    u32 n = 0, streams = 0;
    for (u64 seed = first_seed(0, 120); seed < last_seed(0, 120); seed++) {
        struct fixture b;
        struct check k;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.only = &gen_wg_gemm;
        b.type = types[pick(&b, 0, countof(types) - 1)];
        bool ok = random_gemm(&b) && gen_matches(b.only, &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e);
        for (u32 i = 0; ok && i < 2; i++, n++) {
            struct candidate c = random_legal(&b);
            streams += c.sched.v[P_stream_k] > 0;
            if (!run(&b, &c, &k)) report(&b, &c, seed);
        }
        if (ok) check_release(&k);
        fixture_close(&b);
    }
    print_message("%u schedules, %u of streams\n", n, streams);
    assert_true(is_enough(n, 80) && is_enough(streams, 10));
}

/* Matrix units: workgroups share the K blocks of random legal schedules. */
static void test_matrix_streams(void **state)
{
    u32 n = 0;
    for (u64 seed = first_seed(9000, 9080); seed < last_seed(9000, 9080); seed++) {
        struct fixture b;
        struct check k;
        struct candidate c;
        fixture_open(&b, seed);
        fixture_use_workgroups(&b);
        b.only = &gen_mma_gemm;
        b.type = strstr(b.caps.matrix, "bf16") && pick(&b, 0, 1) ? DT_BF16 : DT_F16;
        bool ok = random_gemm(&b) && gen_matches(b.only, &b.t, &b.caps) && check_init(&k, &b.t, b.var, seed, true, &b.e);
        for (i64 i = 0; ok && i < 6; i++) {
            if (!gen_random(&b.t, &b.caps, &b.rng, &c) || c.gen != b.only) c = gen_initial(b.only, &b.t, &b.caps, b.var);
            set_value(&c, "split_k", 1), set_value(&c, "stream_k", 1 << i % 3);
            if (!gen_legal(&c, &b.t, &b.caps)) continue;
            if (!run(&b, &c, &k)) report(&b, &c, seed);
            n++;
        }
        if (ok) check_release(&k);
        fixture_close(&b);
    }
    print_message("%u streams\n", n);
    assert_true(is_enough(n, 19));
}

/* Fast elsewhere. */

/* batch, m, n, k; W subgroup, BMxBNxBK/TMxTN, BL, WL subgroups' and threads' layout, BS, WS scatter along rows and columns. */
static const char *const known[] = {
    "1 512 2048 8192 W64 64x64x16/4x4 BL2x2 WL8x8 BS4/4 WS4/4 LSU1 Map4 GSW0 UN16 RP0 SP1",
    "1 1024 2048 4096 W64 64x64x16/4x4 BL2x2 WL8x8 BS4/4 WS4/4 LSU1 Map8 GSW0 UN16 RP0 SP1",
    "1 1024 4096 2048 W64 64x64x16/4x4 BL2x2 WL8x8 BS4/4 WS4/4 LSU1 Map8 GSW0 UN16 RP0 SP1",
    "1 2048 2048 2048 W64 64x64x16/4x4 BL2x2 WL8x8 BS4/4 WS4/4 LSU1 Map8 GSW0 UN16 RP0 SP1",
    "1 2048 8192 2048 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS4/2 LSU1 Map8 GSW0 UN4 RP0 SP1",
    "1 4096 4096 4096 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS4/2 LSU1 Map8 GSW0 UN4 RP0 SP1",
    "4 1024 1024 2048 W64 64x64x16/4x4 BL2x2 WL8x8 BS2/4 WS1/4 LSU1 Map8 GSW0 UN16 RP0 SP0",
    "16 1024 4096 256 W64 128x64x8/8x8 BL1x2 WL16x4 BS2/2 WS1/2 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "8 2048 1024 1024 W64 128x64x8/8x8 BL1x2 WL16x4 BS2/2 WS1/2 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "2 2048 2048 1024 W64 32x32x8/4x4 BL1x1 WL8x8 BS4/2 WS1/2 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "1 2048 2048 2048 W64 64x64x16/4x4 BL2x2 WL8x8 BS2/4 WS1/4 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "1 2048 4096 1024 W64 64x64x16/4x4 BL2x2 WL8x8 BS2/4 WS1/4 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "1 4096 8192 512 W64 128x64x8/8x8 BL1x2 WL16x4 BS2/2 WS1/2 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "1 8192 2048 512 W64 32x32x8/4x4 BL1x1 WL8x8 BS2/2 WS1/2 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "1 8192 2048 1024 W64 128x64x8/8x8 BL1x2 WL16x4 BS2/2 WS1/2 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "1 256 16384 4096 W64 64x64x16/4x4 BL2x2 WL8x8 BS2/4 WS1/4 LSU1 Map4 GSW0 UN16 RP0 SP0",
    "1 256 65536 4096 W64 64x32x16/4x4 BL2x1 WL8x8 BS2/4 WS1/2 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "2 512 4096 8192 W64 32x32x8/4x4 BL1x1 WL8x8 BS2/2 WS1/2 LSU1 Map8 GSW0 UN8 RP0 SP0",
    "12 1024 64 1024 W64 64x64x16/4x4 BL1x4 WL16x4 BS4/4 WS2/4 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "16 1024 64 1024 W64 64x64x16/4x4 BL1x4 WL16x4 BS4/4 WS2/4 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "12 1024 1024 64 W64 64x64x8/8x4 BL1x2 WL8x8 BS2/4 WS2/4 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "16 1024 1024 64 W64 64x64x8/8x4 BL2x1 WL4x16 BS8/4 WS4/4 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "1 1024 1024 1024 W64 64x64x16/4x4 BL1x4 WL16x4 BS4/4 WS1/4 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "1 1024 1024 4096 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS1/2 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "1 1024 4096 1024 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS2/4 LSU1 Map8 GSW0 UN16 RP1 SP0",
    "32 2048 128 2048 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS4/2 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "32 2048 2048 128 W64 64x64x8/8x4 BL1x2 WL8x8 BS8/4 WS4/4 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "1 2048 4096 4096 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS2/4 LSU1 Map8 GSW0 UN16 RP0 SP0",
    "1 512 1024 512 W32 32x32x16/2x4 BL1x4 WL16x2 BS2/4 WS2/4 LSU2 Map8 GSW4 UN32 RP0 SP1",
    "1 512 1024 1024 W32 32x32x16/2x4 BL1x4 WL16x2 BS2/4 WS2/4 LSU2 Map16 GSW4 UN16 RP0 SP1",
    "1 512 1024 2048 W32 32x32x16/2x4 BL1x4 WL16x2 BS2/4 WS2/4 LSU2 Map16 GSW4 UN16 RP0 SP1",
    "1 512 2048 512 W32 64x32x16/8x4 BL2x1 WL4x8 BS4/4 WS4/4 LSU2 Map8 GSW4 UN8 RP0 SP1",
    "1 512 2048 1024 W32 64x32x16/4x4 BL1x4 WL16x2 BS4/4 WS4/4 LSU2 Map8 GSW4 UN8 RP0 SP1",
    "1 1024 2048 1024 W32 64x64x8/8x8 BL2x1 WL4x8 BS4/4 WS4/4 LSU2 Map16 GSW4 UN8 RP0 SP1",
    "1 1024 2048 2048 W32 64x64x16/8x4 BL1x4 WL8x4 BS4/4 WS4/4 LSU2 Map16 GSW4 UN8 RP0 SP1",
    "1 1024 2048 4096 W32 64x64x32/4x8 BL1x4 WL16x2 BS4/4 WS4/4 LSU2 Map8 GSW4 UN16 RP0 SP1",
    "1 1024 4096 1024 W32 64x64x32/8x8 BL2x1 WL4x8 BS4/4 WS4/4 LSU2 Map16 GSW4 UN8 RP0 SP0",
    "1 1024 4096 2048 W32 128x64x8/8x4 BL4x2 WL4x8 BS4/4 WS4/4 LSU1 Map8 GSW0 UN8 RP0 SP1",
    "1 2048 4096 2048 W32 64x64x32/8x8 BL2x1 WL4x8 BS4/4 WS4/4 LSU2 Map16 GSW4 UN8 RP0 SP0",
    "1 2048 4096 4096 W32 64x64x32/8x8 BL2x1 WL4x8 BS4/4 WS4/4 LSU2 Map8 GSW4 UN8 RP0 SP0",
    "1 2048 4096 8192 W32 64x64x16/4x8 BL1x4 WL16x2 BS4/4 WS4/4 LSU1 Map8 GSW0 UN32 RP0 SP1",
    "1 2048 8192 2048 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map16 GSW0 UN32 RP0 SP0",
    "1 2048 8192 4096 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map8 GSW0 UN8 RP0 SP0",
    "1 4096 8192 4096 W32 128x64x16/8x8 BL4x1 WL4x8 BS4/4 WS4/4 LSU1 Map8 GSW0 UN16 RP0 SP0",
    "1 4096 8192 8192 W32 128x64x16/8x8 BL4x1 WL4x8 BS4/4 WS4/4 LSU1 Map8 GSW0 UN32 RP0 SP0",
    "1 4096 8192 16384 W32 128x64x16/8x8 BL1x4 WL16x2 BS4/4 WS4/4 LSU1 Map8 GSW0 UN32 RP0 SP0",
    "1 4096 16384 4096 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map8 GSW0 UN32 RP0 SP0",
    "1 4096 16384 8192 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map8 GSW0 UN32 RP0 SP0",
    "1 8192 16384 8192 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map8 GSW0 UN16 RP0 SP0",
    "1 8192 16384 16384 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map8 GSW0 UN16 RP0 SP0",
    "1 8192 16384 32768 W32 128x64x16/8x8 BL1x4 WL16x2 BS4/4 WS4/4 LSU1 Map8 GSW0 UN8 RP0 SP0",
    "1 8192 32768 8192 W32 64x128x16/8x8 BL4x1 WL2x16 BS4/4 WS4/4 LSU1 Map8 GSW0 UN32 RP0 SP0",
    "1 8192 32768 16384 W32 128x64x16/8x8 BL1x4 WL16x2 BS4/4 WS4/4 LSU1 Map8 GSW0 UN8 RP0 SP0",
    "1 1024 1024 1024 W64 32x32x8/4x4 BL1x1 WL8x8 BS2/2 WS1/2 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "1 1024 1024 4096 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS1/2 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "1 1024 4096 1024 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS2/4 LSU1 Map8 GSW0 UN16 RP1 SP0",
    "1 2048 4096 4096 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS2/4 LSU1 Map8 GSW0 UN16 RP0 SP0",
    "12 1024 64 1024 W64 64x64x16/4x4 BL2x2 WL8x8 BS2/2 WS1/2 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "12 1024 1024 64 W64 64x64x16/4x4 BL4x1 WL4x16 BS4/4 WS1/4 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "16 1024 64 1024 W64 64x64x16/4x4 BL2x2 WL8x8 BS2/2 WS2/1 LSU1 Map4 GSW0 UN16 RP1 SP0",
    "16 1024 1024 64 W64 64x64x8/8x4 BL2x1 WL4x16 BS8/4 WS4/4 LSU1 Map4 GSW0 UN8 RP0 SP0",
    "32 2048 128 2048 W64 64x64x16/4x4 BL1x4 WL16x4 BS4/4 WS4/4 LSU1 Map4 GSW0 UN16 RP0 SP0",
};

struct product_case { struct candidate c; i64 batch, m, n, k; };

static struct product_case known_one(const char *text)
{
    struct candidate c = {.gen = &gen_wg_gemm};
    int batch, m, n, k, w, bm, bn, bk, tm, tn, bly, blx, wly, wlx, bsm, bsn, wsm, wsn, lsu, map, gsw, un, rp, sp;
    int read = sscanf(text, "%d %d %d %d W%d %dx%dx%d/%dx%d BL%dx%d WL%dx%d BS%d/%d WS%d/%d LSU%d Map%d GSW%d UN%d RP%d SP%d", &batch, &m, &n, &k, &w, &bm, &bn, &bk, &tm,
                   &tn, &bly, &blx, &wly, &wlx, &bsm, &bsn, &wsm, &wsn, &lsu, &map, &gsw, &un, &rp, &sp);
    assert_int_equal(read, 24);
    int threads = bm / tm * (bn / tn) * lsu;
    const struct { const char *name; int v; } all[] = {
        {"w", w}, {"tm", tm}, {"tn", tn}, {"bk", bk}, {"bly", bly}, {"blx", blx}, {"wly", wly}, {"wlx", wlx}, {"bswm", bsm},
        {"bswn", bsn}, {"wswm", wsm}, {"wswn", wsn}, {"split_k_local", lsu}, {"raster", map}, {"gsw", gsw}, {"un", un}, {"rp", rp}, {"sp", sp},
        {"glwa", bm * bk / threads % 4 ? 2 : 4}, {"glwb", bn * bk / threads % 4 ? 2 : 4}, {"lc", 1}, {"rc", lsu > 1}, {"split_k", 1}};
    for (u32 i = 0; i < countof(all); i++) set_value(&c, all[i].name, all[i].v);
    struct block s = block_of(&c.sched);
    assert_int_equal(s.bm, bm);
    assert_int_equal(s.bn, bn);
    assert_int_equal(s.threads, threads);
    return (struct product_case){c, batch, m, n, k};
}

/* y = a^T x b, a stored by terms; on a device with subgroups of w threads. */
static void open_product(struct fixture *b, i64 w, i64 batch, i64 m, i64 n, i64 k)
{
    sym one[3], two[3];
    i64 perm[] = {0, 2, 1}, dim[] = {batch, k, m};
    fixture_open(b, 1);
    fixture_use_workgroups(b);
    b->caps.subgroup = b->caps.subgroup_min = b->caps.subgroup_max = (u32)w;
    b->caps.max_group = 1024;
    b->caps.shared_bytes = 64 << 10;
    b->caps.thread_regs = 255, b->caps.unit_regs = 65536;
    b->caps.unit_threads = w == 64 ? 2560 : 2048, b->caps.unit_shared = w == 64 ? 65536 : 167936;
    b->caps.gflops = w == 64 ? 12200 : 19500, b->caps.gbps = w == 64 ? 1000 : 1500;
    for (u32 i = 0; i < 3; i++) one[i] = sym_const(&b->sym, dim[i]), two[i] = one[i];
    two[2] = sym_const(&b->sym, n);
    value_id x = add_op(b, "Transpose", add_input(b, "a", 3, one), 0, 0), y = add_input(b, "b", 3, two);
    attr_set_ints(&b->g, graph_value(&b->g, x)->producer, "perm", perm, 3);
    y = add_op(b, "MatMul", x, y, 0);
    *arr_push(&b->arena, &b->g.output) = y;
    assert_true(op_infer_all(&b->g, &b->e));
    node_id nodes[] = {graph_value(&b->g, x)->producer, graph_value(&b->g, y)->producer};
    enum layout *l = arena_array(&b->arena, enum layout, b->g.value.n);
    assert_true(task_make(&b->t, &b->g, &b->arena, nodes, 2, b->g.output.v, 1, l, NULL, &b->e));
}

static void test_known(void **state)
{
    for (u32 i = 0; i < countof(known); i++) {
        struct product_case x = known_one(known[i]);
        struct block s = block_of(&x.c.sched);
        struct fixture b;
        struct check k;
        open_product(&b, s.w, 1 + i % 2, 2 * s.bm, s.bn, 2 * s.bk);
        if (!gen_legal(&x.c, &b.t, &b.caps)) fail_msg("not legal: %s", known[i]);
        assert_true(check_init(&k, &b.t, b.var, i, true, &b.e));
        if (!run(&b, &x.c, &k)) report(&b, &x.c, i);
        check_release(&k);
        fixture_close(&b);
    }
}

/* Those of one subgroup's size, built for a target whose tools are here. */
static void build_known(const char *lang, const char *arch, u32 step)
{
    const struct lang *l = lang_find(str_of(lang));
    struct buf which = {0};
    struct err e = {0};
    bool there = l->toolchain(&which, NULL, &e);
    buf_release(&which);
    if (!there) skip_test("%s", e.msg);
    for (u32 i = 0; i < countof(known); i += step) {
        struct product_case x = known_one(known[i]);
        struct fixture b;
        struct kernel kernel;
        struct buf text = {0}, bin = {0};
        open_product(&b, x.c.sched.v[P_w], x.batch, x.m, x.n, x.k);
        set_value(&x.c, "stream_k", i / step % 2);
        snprintf(b.caps.arch, sizeof b.caps.arch, "%s", arch);
        bool ok = gen_kernel(&kernel, &b.arena, &x.c, &b.t, &b.caps, &b.e) && lang_render(&text, l, &kernel.kir, &b.caps, &b.arena, &b.e) &&
                  l->build(&bin, buf_view(&text), &b.caps, 60, &b.e);
        if (!ok) fail_msg("%s: %s", known[i], b.e.msg);
        buf_release(&text), buf_release(&bin);
        fixture_close(&b);
    }
}

static void test_cuda(void **state) { build_known("cuda", "sm_80", takes_all() ? 1 : 7); }
static void test_hip(void **state) { build_known("hip", "gfx906", takes_all() ? 1 : 31); }

/* Random legal schedules of random products run on OpenCL's device, where one is present. Halves are stored by every device; one
   that has no arithmetic in them sums in f32. */
static bool try_opencl(const struct caps *caps, u64 seed)
{
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16};
    struct fixture b;
    struct check k;
    fixture_open(&b, seed);
    b.caps = *caps;
    b.only = &gen_wg_gemm;
    b.type = types[pick(&b, 0, countof(types) - 1)];
    bool ok = random_gemm(&b) && gen_matches(b.only, &b.t, &b.caps);
    if (ok) {
        struct candidate c = random_legal(&b);
        open_device_check(&b, &k, seed);
        if (!verify_on(&b, "opencl", &c, &k)) report(&b, &c, seed);
        check_release(&k);
    }
    fixture_close(&b);
    return ok;
}

static void test_opencl(void **state)
{
    u32 n = 0;
    struct caps caps;
    struct err e = {0};
    struct dev_opts o = {.n_threads = 2};
    if (!dev_ask(dev_find(S("opencl")), &o, &caps, NULL, &e)) skip_test("no OpenCL device: %s", e.msg);
    for (u64 seed = first_seed(5000, 5040); seed < last_seed(5000, 5040); seed++) n += try_opencl(&caps, seed);
    print_message("%u schedules\n", n);
    assert_true(is_enough(n, 15));
}

/* Predictions. */

/* A schedule like the known ones: values drawn from their spaces. */
static bool draw_like(struct fixture *b, struct candidate *c)
{
    static const i32 few[] = {1, 2, 4, 8}, wide[] = {8, 16, 32};
    i32 w = (i32)b->caps.subgroup, wly = 2 << pick(b, 0, 3);
    const struct { const char *name; i32 v; } all[] = {
        {"w", w}, {"wly", wly}, {"wlx", w / wly}, {"bly", few[pick(b, 0, 3)]}, {"blx", few[pick(b, 0, 3)]}, {"tm", few[pick(b, 1, 3)]},
        {"tn", few[pick(b, 1, 3)]}, {"bk", wide[pick(b, 0, 2)]}, {"split_k_local", few[pick(b, 0, 1)]}, {"bswm", few[pick(b, 1, 3)]},
        {"bswn", few[pick(b, 1, 3)]}, {"wswm", few[pick(b, 0, 2)]}, {"wswn", few[pick(b, 0, 2)]}, {"sp", (i32)pick(b, 0, 1)},
        {"rp", (i32)pick(b, 0, 1)}, {"un", wide[pick(b, 0, 2)]}, {"raster", few[pick(b, 2, 3)]}, {"glwa", 4}, {"glwb", 4}, {"lc", 1}, {"split_k", 1}};
    *c = (struct candidate){.gen = &gen_wg_gemm};
    for (u32 i = 0; i < countof(all); i++) set_value(c, all[i].name, all[i].v);
    set_value(c, "gsw", c->sched.v[P_split_k_local] > 1 ? 4 : 0), set_value(c, "rc", c->sched.v[P_split_k_local] > 1);
    struct block s = block_of(&c->sched);
    return s.threads <= 256 && gen_legal(c, &b->t, &b->caps);
}

/* The best known schedules are predicted to be better than most of them. */
static void test_predicted(void **state)
{
    enum { OTHERS = 300 };
    double sum = 0;
    u32 n_upper = 0;
    for (u32 i = 0; i < countof(known); i++) {
        struct product_case x = known_one(known[i]);
        struct fixture b;
        u32 slower = 0, n = 0;
        open_product(&b, x.c.sched.v[P_w], x.batch, x.m, x.n, x.k);
        double own = gen_predict(&x.c, &b.t, &b.caps, b.var);
        while (n < OTHERS) {
            struct candidate c;
            if (!draw_like(&b, &c)) continue;
            slower += gen_predict(&c, &b.t, &b.caps, b.var) > own;
            n++;
        }
        sum += (double)slower / OTHERS, n_upper += 2 * slower > OTHERS;
        if (getenv("VERBOSE")) print_message("%3.0f %% slower than %s\n", 100.0 * slower / OTHERS, known[i]);
        fixture_close(&b);
    }
    print_message("%.0f %% of the others predicted slower, %u of %u known ones in the upper half\n", 100 * sum / countof(known), n_upper,
                  (u32)countof(known));
    assert_true(3 * n_upper > 2 * countof(known) && sum > 0.6 * countof(known));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_matrix_streams), cmocka_unit_test(test_known), cmocka_unit_test(test_predicted),
                                       cmocka_unit_test(test_cuda), cmocka_unit_test(test_hip), cmocka_unit_test(test_opencl)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
