// SPDX-License-Identifier: Apache-2.0
//
// The tasks of test_hashes.c's kernels, and the devices they are generated for. Tasks are collected
// as text, so that the symbol table of an earlier task cannot affect a later kernel.
#ifndef QUERN_TEST_HASH_TASKS_H
#define QUERN_TEST_HASH_TASKS_H

#include "../bench/graphs.h"
#include "gen_kinds.h"
#include "import/import.h"
#include "lab/conv.h"
#include "zoo/zoo.h"

enum { HASH_RANDOM = 2000, HASH_PER_OPERATOR = 3, HASH_BLOCKS_FROM = 256 };

struct hash_task {
    const char *source;  /* "zoo/resnet50", "data/jasper", "random/conv" */
    struct str text;
};

struct hash_tasks {
    struct arena arena;
    struct { struct hash_task *v; u32 n, cap; } all;
    struct map seen;     /* texts */
};

static inline void hash_add(struct hash_tasks *h, const char *source, const struct task *t)
{
    if (task_is_call(t) || map_get(&h->seen, t->text)) return;
    struct hash_task x = {source, str_dup(&h->arena, t->text)};
    map_put(&h->seen, x.text, h->all.n);
    *arr_push(&h->arena, &h->all) = x;
}

/* Every task that a network may be cut into, with and without channels in blocks. The graph is inferred. */
static inline void hash_add_graph(struct hash_tasks *h, const char *source, struct graph *g)
{
    static const struct cover_opts opts[] = {{0}, {.blocks = LAYOUT_C16, .blocks_from = HASH_BLOCKS_FROM}};
    struct err e = {0};
    if (!pass_run_all(g, NULL, &e)) fail_msg("%s: %s", source, e.msg);
    for (u32 k = 0; k < countof(opts); k++) {
        struct cover c = {0};
        if (!cover_build(&c, g, g->arena, &opts[k], &e)) fail_msg("%s: %s", source, e.msg);
        for (u32 i = 0; i < c.task.n; i++) hash_add(h, source, c.task.v[i]);
    }
}

static inline const char *hash_source(struct hash_tasks *h, const char *kind, const char *name)
{
    return str_fmt(&h->arena, "%s/%s", kind, name).p;
}

static inline void hash_zoo(struct hash_tasks *h)
{
    for (i64 i = 0; zoo_at(i); i++) {
        struct arena a = {0};
        struct symtab st;
        struct graph g;
        struct err e = {0};
        symtab_init(&st, &a);
        graph_init(&g, &a, &st);
        if (!zoo_build(zoo_at(i), NULL, true, &g, &e) || !op_infer_all(&g, &e)) fail_msg("%s: %s", zoo_at(i)->name, e.msg);
        hash_add_graph(h, hash_source(h, "zoo", zoo_at(i)->name), &g);
        arena_release(&a);
    }
}

static inline void hash_model(struct hash_tasks *h, const char *path)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err e = {0};
    symtab_init(&st, &a);
    if (!import_graph(&g, &a, &st, path, &e)) fail_msg("%s: %s", path, e.msg);
    hash_add_graph(h, path, &g);
    arena_release(&a);
}

/* Rows of bench/compare. */
static inline bool hash_row(void *user, const struct bench_row *r, struct err *e)
{
    struct hash_tasks *h = user;
    hash_add_graph(h, str_fmt(&h->arena, "bench/%.*s", STR_ARG(r->group)).p, r->g);
    return true;
}

static inline void hash_rows(struct hash_tasks *h, const char *path)
{
    struct err e = {0};
    if (!bench_each_row(path, NULL, hash_row, h, &e)) fail_msg("%s", e.msg);
}

/* Rows of data sets in either layout, in turn in f32 and f16, and their gradients. */
static inline void hash_data(struct hash_tasks *h)
{
    struct str text;
    const char *name;
    for (u32 d = 0; (name = conv_data_at(d, &text)) != NULL; d++) {
        struct arena a = {0};
        struct conv_data data = {0};
        struct err e = {0};
        const char *source = hash_source(h, "data", name);
        if (!conv_read(&data, &a, text, &e)) fail_msg("%s: %s", name, e.msg);
        for (u32 i = 0; i < data.row.n * N_CONV_PASSES; i++) {
            struct symtab st;
            struct task t;
            struct conv_row row = data.row.v[i / N_CONV_PASSES], made;
            enum layout l = i % 2 ? LAYOUT_ROWS : LAYOUT_CLAST;
            row.pass = (enum conv_pass)(i % N_CONV_PASSES);
            symtab_init(&st, &a);
            if (!conv_row_computed(&made, &row, &e)) continue;
            if (!conv_row_task(&t, &a, &st, &made, i / 2 % 2 ? DT_F16 : DT_F32, l, &e)) fail_msg("%s, row %u: %s", name, i / N_CONV_PASSES, e.msg);
            hash_add(h, source, &t);
        }
        arena_release(&a);
    }
}

/* The builders of gen_tasks.h and gen_kinds.h. */
static inline bool hash_three(struct fixture *b) { return random_conv_like(b, true); }
static inline bool hash_filter(struct fixture *b) { return random_filter(b, false); }
static inline bool hash_outer(struct fixture *b) { return random_filter(b, true); }
static inline bool hash_large(struct fixture *b)
{
    b->type = pick(b, 0, 1) ? DT_F16 : DT_BF16;
    return random_large(b);
}

static inline void hash_fixtures(struct hash_tasks *h)
{
    static const struct { const char *name; bool (*build)(struct fixture *b); } kind[] = {
        {"random/conv", random_conv}, {"random/three", hash_three}, {"random/point", random_point}, {"random/depthwise", random_depthwise},
        {"random/pool", random_pool}, {"random/transpose", random_transpose}, {"random/grad", random_grad}, {"random/gemm", random_gemm},
        {"random/row", random_row}, {"random/chain", random_chain}, {"random/filter", hash_filter}, {"random/outer", hash_outer},
        {"random/bytes", random_bytes}, {"random/conv_bytes", random_conv_bytes}, {"random/large", hash_large},
    };
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F32, DT_F16, DT_BF16};
    u32 first = h->all.n;
    for (u64 seed = 0; h->all.n < first + HASH_RANDOM; seed++) {
        struct fixture b;
        u64 k = seed / countof(kind);
        fixture_open(&b, seed);
        if (k % 2) fixture_use_workgroups(&b); /* tasks for such devices are larger */
        b.type = types[k % countof(types)];
        b.tf32 = k % 7 == 0;
        b.in_blocks = k % 3 == 0;
        if (kind[seed % countof(kind)].build(&b)) hash_add(h, kind[seed % countof(kind)].name, &b.t);
        fixture_close(&b);
    }
}

/* Attention, by seeds of its own, so that it changes no other task. */
static inline void hash_attention(struct hash_tasks *h)
{
    enum { ATTENTION = 120 };
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16};
    u32 first = h->all.n;
    for (u64 seed = 0; h->all.n < first + ATTENTION; seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.type = types[seed % countof(types)];
        if (random_attention(&b)) hash_add(h, "random/attention", &b.t);
        fixture_close(&b);
    }
}

/* Likewise its gradients. */
static inline void hash_attention_grad(struct hash_tasks *h)
{
    enum { GRADIENTS = 60 };
    static const enum dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16};
    u32 first = h->all.n;
    for (u64 seed = 0; h->all.n < first + GRADIENTS; seed++) {
        struct fixture b;
        fixture_open(&b, seed);
        b.type = types[seed % countof(types)];
        if (random_attention_grad(&b)) hash_add(h, "random/attention_grad", &b.t);
        fixture_close(&b);
    }
}

/* Instances of each operator by its name, so that a new operator changes no other's. */
static inline void hash_operators(struct hash_tasks *h)
{
    for (i64 i = 0; op_all(i); i++) {
        const struct op *op = op_all(i);
        if (!op->random || op->props & OP_CALL) continue;
        for (u64 k = 0; k < HASH_PER_OPERATOR; k++) {
            struct fixture b;
            fixture_open(&b, hash_u64(op->name, (i64)strlen(op->name)) + k);
            op->random(op, &b.g, &b.rng);
            if (make_single(&b)) hash_add(h, "random/operators", &b.t);
            fixture_close(&b);
        }
    }
}

/* Devices. */

struct hash_device {
    const char *name;
    struct caps caps;
};

struct hash_devices {
    struct arena arena;
    struct { struct hash_device *v; u32 n, cap; } all;
};

/* Whether an earlier device has the same limits. Other compiler features are invisible to families. */
static inline bool hash_has_limits(struct hash_devices *d, const struct caps *c)
{
    struct caps x = *c, y;
    for (u32 i = 0; i < d->all.n; i++) {
        struct buf a = {0}, b = {0};
        y = d->all.v[i].caps;
        x.isa = y.isa, memcpy(x.arch, y.arch, sizeof x.arch);
        caps_print(&a, &x), caps_print(&b, &y);
        bool same = str_eq(buf_view(&a), buf_view(&b));
        buf_release(&a), buf_release(&b);
        if (same) return true;
    }
    return false;
}

static inline void hash_add_device(struct hash_devices *d, struct str name, struct caps *c)
{
    if (!c->is_gpu) c->n_threads = 16; /* independent of this machine */
    if (hash_has_limits(d, c)) return;
    *arr_push(&d->arena, &d->all) = (struct hash_device){str_dup(&d->arena, name).p, *c};
}

/* All architectures that dev_target describes (but x86 of 32 bits, whose few registers exclude schedules of the others), some extensions with instructions of their own, and devices of Vulkan and OpenCL as
   quern devices prints them. */
static inline void hash_find_devices(struct hash_devices *d)
{
    static const char *const drivers[] = {"cpu", "cuda", "hip"};
    static const char *const isas[] = {"x86-64-v3 avxvnni", "x86-64-v4 avx512vnni avx512bf16", "aarch64 dotprod i8mm bf16"};
    static const struct { const char *name, *text; } others[] = {
        {"vulkan:llvmpipe",
         "arch=\"vulkan1.3\" vector_bytes=16 n_vector_regs=64 n_threads=2 l1_bytes=32768 l2_bytes=1048576 l3_bytes=33554432 has_fma=1 is_gpu=1 "
         "max_group=1024 subgroup=8 subgroup_min=8 subgroup_max=8 shared_bytes=32768 max_push=128 max_buffer=2147483647 max_bind=32 buffer_align=16 "
         "has_subgroup=1 has_f16=1 has_f64=1 has_i8=1 has_i16=1 has_i64=1 has_rte_f16=1 has_nan=1 spirv=16 gflops=40 gbps=10"},
        {"vulkan:matrix",
         "arch=\"vulkan1.3\" vector_bytes=16 n_vector_regs=64 n_threads=64 l2_bytes=4194304 has_fma=1 is_gpu=1 max_group=1024 subgroup=32 subgroup_min=32 "
         "subgroup_max=32 shared_bytes=49152 max_push=256 buffer_align=64 has_subgroup=1 has_f16=1 has_i8=1 has_i16=1 has_i64=1 spirv=16 gflops=20000 "
         "gbps=500 matrix=\"16x16x16:f16,f16,f32,f32 16x16x16:f16,f16,f16,f16 16x8x16:f16,f16,f32,f32\""},
        {"vulkan:small",
         "arch=\"vulkan1.1\" vector_bytes=16 n_vector_regs=64 n_threads=4 l2_bytes=524288 is_gpu=1 max_group=128 subgroup=4 subgroup_min=4 subgroup_max=4 "
         "shared_bytes=16384 max_push=128 max_buffer=134217728 max_bind=16 buffer_align=256 spirv=13 gflops=100 gbps=10"},
        {"opencl:pocl",
         "arch=\"opencl3.0\" vector_bytes=16 n_vector_regs=64 n_threads=2 l1_bytes=32768 l2_bytes=1048576 l3_bytes=33554432 has_fma=1 is_gpu=1 max_group=4096 "
         "shared_bytes=1048576 max_push=500 max_buffer=2147483647 max_bind=64 buffer_align=128 has_f64=1 has_i8=1 has_i16=1 has_i64=1 has_rte_f16=1 has_nan=1 "
         "gflops=166 gbps=20"},
    };
    struct err e = {0};
    struct caps c;
    for (u32 i = 0; i < countof(drivers); i++) {
        struct buf names = {0};
        dev_target_names(drivers[i], &names);
        struct str rest = buf_view(&names), line, driver, arch;
        while (str_cut(rest, '\n', &line, &rest)) {
            assert_true(str_cut(line, ':', &driver, &arch) && dev_target(&c, drivers[i], arch));
            if (c.isa.family != ISA_X86) hash_add_device(d, line, &c);
        }
        buf_release(&names);
    }
    for (u32 i = 0; i < countof(isas); i++) {
        assert_true(dev_target(&c, "cpu", str_of(isas[i])));
        hash_add_device(d, str_fmt(&d->arena, "cpu:%s", isas[i]), &c);
    }
    for (u32 i = 0; i < countof(others); i++) {
        if (!caps_parse(&c, str_of(others[i].text), &e)) fail_msg("%s", e.msg);
        hash_add_device(d, str_of(others[i].name), &c);
    }
}

#endif
