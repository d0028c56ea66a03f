// SPDX-License-Identifier: Apache-2.0
//
// Texts of microbenchmarks. GPUs run workgroups of 256 threads, processors vectors of their widest kind, with enough chains of multiply-adds
// and enough loads in flight to hide the latency of each. Kernels that access memory repeat a slice; values that they store depend on the
// round, so that compilers can neither drop stores nor replace loops by calls.
#include "tune/rates.h"

enum {
    GROUP = 256,                              /* threads */
    GROUP_CHAINS = 16, VECTOR_CHAINS = 12,
    GROUP_LANES = 4, UNROLL = 8               /* of accesses: elements of a thread, accesses per iteration */
};
static const char head[] = "kernel k(x: in %s, y: out %s; p0 = \"G\", p1 = \"R\", p2 = \"S\")\n";

u32 micro_group(const struct caps *c) { return c->is_gpu ? (u32)i64_min(GROUP, c->max_group) : 1; }

/* "f32", "i64x16" */
struct type_name { char z[16]; };
static struct type_name type_of(const char *type, u32 lanes)
{
    struct buf b = {0};
    struct type_name t = {{0}};
    buf_z(&b, type);
    if (lanes > 1) buf_printf(&b, "x%u", lanes);
    for (i64 i = 0; i < b.n && i + 1 < countof(t.z); i++) t.z[i] = b.p[i];
    buf_release(&b);
    return t;
}

/* Multiply-adds. */

struct chains {
    enum dtype in, by, sum; /* of the factors; in and sum equal: fma */
    u32 lanes;          /* of the sum */
    u32 terms;          /* that a lane of the sum adds in one step */
};

/* %3 (and %8, of another type) are the factors, %6 the index of the group's, or thread's, results. */
static void put_operands(struct buf *t, const struct caps *c, const struct chains *q)
{
    struct type_name in = type_of(dtype_name(q->in), q->lanes * q->terms), at = type_of("i64", q->lanes * q->terms);
    buf_printf(t, head, dtype_name(q->in), dtype_name(q->sum));
    if (c->is_gpu) buf_printf(t, "group %u 1 1\ngrid %%1 = p0\n  %%2 = thread 0\n", micro_group(c));
    else buf_printf(t, "grid %%1 = p0\n  %%2: %s = %s 0, 1\n", at.z, q->lanes * q->terms > 1 ? "ramp" : "add");
    buf_printf(t, "  %%3: %s = load x[%%2]\n", in.z);
    if (q->by != q->in) buf_printf(t, "  %%8: %s = cast %%3\n", type_of(dtype_name(q->by), q->lanes * q->terms).z);
    if (c->is_gpu) buf_printf(t, "  %%5 = mul %%1, %u\n  %%6 = add %%5, %%2\n", micro_group(c));
    else if (q->lanes == 1) buf_printf(t, "  %%6 = add %%1, 0\n");
    else buf_printf(t, "  %%5 = mul %%1, %u\n  %%6: %s = ramp %%5, 1\n", q->lanes, type_of("i64", q->lanes).z);
}

/* Of the n elements of %4; the result is number 899 + n. */
static void put_sum(struct buf *t, u32 n, const char *type)
{
    for (u32 i = 0; i < n; i++) {
        buf_printf(t, "  %%%u: %s = load %%4[%u]\n", 800 + i, type, i);
        if (i) buf_printf(t, "  %%%u: %s = add %%%u, %%%u\n", 900 + i, type, i > 1 ? 899 + i : 800, 800 + i);
    }
}

static void put_chains(struct buf *t, const struct caps *c, const struct chains *q)
{
    u32 n = c->is_gpu ? GROUP_CHAINS : VECTOR_CHAINS;
    struct type_name sum = type_of(dtype_name(q->sum), q->lanes);
    put_operands(t, c, q);
    buf_printf(t, "  reg %%4: %s[%u]\n", sum.z, n);
    for (u32 i = 0; i < n; i++) buf_printf(t, "  store %%4[%u] = %s(%u)\n", i, sum.z, i);
    buf_z(t, "  loop %7 = 0..p1 step 1\n");
    for (u32 i = 0; i < n; i++) {
        buf_printf(t, "    %%%u: %s = load %%4[%u]\n    %%%u: %s = ", 100 + 2 * i, sum.z, i, 101 + 2 * i, sum.z);
        if (q->terms > 1) buf_printf(t, "dot %%3, %%%d, %%%u\n", q->by != q->in ? 8 : 3, 100 + 2 * i);
        else buf_printf(t, "fma %%%u, %%3, %%3\n", 100 + 2 * i);
        buf_printf(t, "    store %%4[%u] = %%%u\n", i, 101 + 2 * i);
    }
    buf_z(t, "  end\n");
    put_sum(t, n, sum.z);
    buf_printf(t, "  store y[%%6] = %%%u\nend\n", 899 + n);
}

/* The operands' types of an instruction that the target has. */
static bool dot_types(const struct caps *c, enum rate_op op, struct chains *q)
{
    static const struct { enum rate_op op; enum dtype a, b, sum; } known[] = {
        {RATE_DOT_I8, DT_U8, DT_I8, DT_I32}, {RATE_DOT_I8, DT_I8, DT_I8, DT_I32}, {RATE_DOT_I8, DT_U8, DT_U8, DT_I32}, {RATE_DOT_BF16, DT_BF16, DT_BF16, DT_F32}};
    for (i64 i = 0; i < countof(known); i++)
        if (known[i].op == op && caps_has_dot(c, known[i].a, known[i].b, known[i].sum)) {
            *q = (struct chains){.in = known[i].a, .by = known[i].b, .sum = known[i].sum, .lanes = 1, .terms = 4 / (u32)dtype_size(known[i].a)};
            return true;
        }
    return false;
}

double micro_ops_text(struct buf *t, const struct caps *c, enum rate_op op, u32 part)
{
    struct chains q = {.in = op == RATE_FMA_F64 ? DT_F64 : DT_F32, .lanes = 1, .terms = 1};
    q.by = q.sum = q.in;
    bool is_there = op == RATE_FMA_F32 || (op == RATE_FMA_F64 && (!c->is_gpu || c->has_f64)) || dot_types(c, op, &q);
    if (!is_there) return 0;
    if (!c->is_gpu) q.lanes = (u32)i64_max(1, c->vector_bytes / part / dtype_size(q.sum));
    put_chains(t, c, &q);
    return 2.0 * (c->is_gpu ? GROUP_CHAINS : VECTOR_CHAINS) * q.lanes * q.terms * micro_group(c);
}

/* Matrix units. */

static u32 n_subgroups(const struct caps *c) { return (u32)i64_max(1, micro_group(c) / i64_max(1, c->subgroup)); }
static u32 subgroup_of(const struct caps *c) { return c->is_gpu ? c->subgroup : 1; } /* fragments of a processor are a thread's */

void micro_mma_sizes(i64 size[MICRO_BUFFERS], const struct caps *c, const struct caps_matrix *s, i64 groups)
{
    size[0] = s->m * s->k * dtype_size(kir_frag_stored(s->a));
    size[1] = s->k * s->n * dtype_size(kir_frag_stored(s->b));
    size[2] = groups * n_subgroups(c) * MICRO_FRAGMENTS * s->m * s->n * dtype_size(s->c);
}

double micro_mma_text(struct buf *t, const struct caps *c, const struct caps_matrix *s)
{
    u32 m = (u32)s->m, n = (u32)s->n, k = (u32)s->k;
    struct buf acc = {0};
    buf_printf(t, "kernel k(a: in %s, b: in %s, c: out %s; p0 = \"G\", p1 = \"R\", p2 = \"S\")\ngroup %u 1 1 subgroup %u\ngrid %%1 = p0\n",
               dtype_name(kir_frag_stored(s->a)), dtype_name(kir_frag_stored(s->b)), dtype_name(s->c), n_subgroups(c) * subgroup_of(c), subgroup_of(c));
    buf_printf(t, "  %%2: %s_a%ux%u = fload a[0] pitch %u\n", dtype_name(s->a), m, k, k);
    u32 pitch = c->is_gpu ? n : n * kir_frag_group(s->b);
    buf_printf(t, "  %%3: %s_b%ux%u = fload b[0] pitch %u%s\n", dtype_name(s->b), k, n, pitch, c->is_gpu ? "" : " groups");
    buf_printf(&acc, "%s_acc%ux%u", dtype_name(s->c), m, n);
    buf_printf(t, "  reg %%4: %s[%u]\n  %%5: %s = fill %s(0)\n", acc.p, MICRO_FRAGMENTS, acc.p, dtype_name(s->c));
    for (u32 i = 0; i < MICRO_FRAGMENTS; i++) buf_printf(t, "  store %%4[%u] = %%5\n", i);
    buf_z(t, "  loop %6 = 0..p1 step 1\n");
    for (u32 i = 0; i < MICRO_FRAGMENTS; i++)
        buf_printf(t, "    %%%u: %s = load %%4[%u]\n    %%%u: %s = fmma %%2, %%3, %%%u\n    store %%4[%u] = %%%u\n", 10 + 2 * i, acc.p, i,
                   11 + 2 * i, acc.p, 10 + 2 * i, i, 11 + 2 * i);
    buf_printf(t, "  end\n  %%8 = mul %%1, %u\n  %%9 = subgroup 0\n  %%50 = add %%8, %%9\n  %%7 = mul %%50, %u\n", n_subgroups(c), m * n * MICRO_FRAGMENTS);
    for (u32 i = 0; i < MICRO_FRAGMENTS; i++)
        buf_printf(t, "  %%%u: %s = load %%4[%u]\n  %%%u = add %%7, %u\n  fstore c[%%%u] = %%%u pitch %u\n", 30 + 2 * i, acc.p, i, 31 + 2 * i,
                   i * m * n, 31 + 2 * i, 30 + 2 * i, n);
    buf_z(t, "end\n");
    buf_release(&acc);
    return 2.0 * m * n * k * MICRO_FRAGMENTS * n_subgroups(c);
}

/* Memory. */

static u32 access_lanes(const struct caps *c) { return c->is_gpu ? GROUP_LANES : (u32)i64_max(1, c->vector_bytes / 4); }

i64 micro_memory_step(const struct caps *c) { return (i64)UNROLL * access_lanes(c) * micro_group(c); }

/* Number i of an iteration, at %200 + i; %13 is the number of the round. */
static void put_access(struct buf *t, enum micro_access access, u32 i, const char *type)
{
    u32 at = 200 + i, loaded = 400 + i, before = 500 + i, sum = 600 + i;
    if (access == MICRO_READ || access == MICRO_COPY) buf_printf(t, "      %%%u: %s = load x[%%%u]\n", loaded, type, at);
    switch (access) {
    case MICRO_READ:
        buf_printf(t, "      %%%u: %s = load %%4[%u]\n      %%%u: %s = add %%%u, %%%u\n      store %%4[%u] = %%%u\n", before, type, i, sum, type,
                   before, loaded, i, sum);
        break;
    case MICRO_COPY: buf_printf(t, "      %%%u: %s = add %%%u, %%13\n      store y[%%%u] = %%%u\n", sum, type, loaded, at, sum); break;
    case MICRO_WRITE: buf_printf(t, "      store y[%%%u] = %%13\n", at); break;
    case MICRO_NT_WRITE: buf_printf(t, "      stream y[%%%u] = %%13\n", at); break;
    case N_MICRO_ACCESSES:
    default: unreachable();
    }
}

/* The indices of so many neighbours. */
static void put_index(struct buf *t, u32 id, u32 from, u32 lanes)
{
    if (lanes > 1) buf_printf(t, "  %%%u: %s = ramp %%%u, 1\n", id, type_of("i64", lanes).z, from);
    else buf_printf(t, "  %%%u = add %%%u, 0\n", id, from);
}

void micro_memory_text(struct buf *t, const struct caps *c, enum micro_access access)
{
    u32 lanes = access_lanes(c);
    struct type_name f = type_of("f32", lanes);
    bool sums = access == MICRO_READ;
    /* %3: first element of the group's, or thread's, slice; %10: index of its result, %11 as a vector. */
    buf_printf(t, head, "f32", "f32");
    if (c->is_gpu) buf_printf(t, "group %u 1 1\n", micro_group(c));
    buf_z(t, "grid %1 = p0\n  %2 = mul %1, p2\n");
    if (c->is_gpu)
        buf_printf(t, "  %%8 = thread 0\n  %%9 = mul %%8, %u\n  %%3 = add %%2, %%9\n  %%14 = mul %%1, %u\n  %%10 = add %%14, %%9\n", lanes,
                   lanes * micro_group(c));
    else buf_printf(t, "  %%3 = add %%2, 0\n  %%10 = mul %%1, %u\n", lanes);
    if (sums) buf_printf(t, "  reg %%4: %s[%d]\n", f.z, UNROLL);
    for (u32 i = 0; i < UNROLL && sums; i++) buf_printf(t, "  store %%4[%u] = %s(0)\n", i, f.z);
    buf_z(t, "  loop %5 = 0..p1 step 1\n    %12: f32 = cast %5\n");
    buf_printf(t, lanes > 1 ? "    %%13: %s = splat %%12\n" : "    %%13: %s = add %%12, f32(0)\n", f.z);
    buf_printf(t, "    loop %%6 = 0..p2 step %lld\n      %%7 = add %%3, %%6\n", (long long)micro_memory_step(c));
    for (u32 i = 0; i < UNROLL; i++) {
        buf_printf(t, "      %%%u = add %%7, %u\n    ", 100 + i, i * lanes * micro_group(c));
        put_index(t, 200 + i, 100 + i, lanes);
        put_access(t, access, i, f.z);
    }
    buf_z(t, "    end\n  end\n");
    if (sums) put_sum(t, UNROLL, f.z), put_index(t, 11, 10, lanes), buf_printf(t, "  store y[%%11] = %%%d\n", 899 + UNROLL);
    buf_z(t, "end\n");
}

/* Each thread's result has the index %10. */
static void put_grid(struct buf *t, const struct caps *c, u32 threads, const char *type)
{
    buf_printf(t, head, type, type);
    if (!c->is_gpu) buf_z(t, "grid %1 = p0\n  %10 = add %1, 0\n");
    else buf_printf(t, "group %u 1 1\ngrid %%1 = p0\n  %%8 = thread 0\n  %%9 = mul %%1, %u\n  %%10 = add %%8, %%9\n", threads, threads);
}

void micro_chase_text(struct buf *t, const struct caps *c)
{
    put_grid(t, c, (u32)i64_max(8, c->subgroup), "i32"); /* all threads of a subgroup do the same */
    buf_z(t, "  reg %2: i32[1]\n  %11: i32 = cast p2\n  store %2[0] = %11\n  loop %3 = 0..p1 step 1\n    %4: i32 = load %2[0]\n    %5 = cast %4\n"
             "    %6: i32 = load x[%5]\n    store %2[0] = %6\n  end\n  %7: i32 = load %2[0]\n  store y[%10] = %7\nend\n");
}

void micro_launch_text(struct buf *t, const struct caps *c)
{
    put_grid(t, c, micro_group(c), "f32");
    buf_z(t, "  store y[%10] = f32(0)\nend\n");
}

void micro_barrier_text(struct buf *t, const struct caps *c)
{
    u32 threads = c->is_gpu ? micro_group(c) : c->n_threads;
    if (threads < 2) return;
    buf_printf(t, head, "f32", "f32");
    buf_printf(t, "group %u 1 1\ngrid %%1 = p0\n  %%2 = thread 0\n  loop %%5 = 0..p1 step 1\n    barrier\n  end\n"
                  "  %%6 = mul %%1, %u\n  %%7 = add %%6, %%2\n  store y[%%7] = f32(0)\nend\n", threads, threads);
}
