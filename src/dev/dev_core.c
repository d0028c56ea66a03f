// SPDX-License-Identifier: Apache-2.0
//
// dev_core.c: processor cores that programs are compiled for without measuring them: "cpu:cortex-a76". An instruction set says which code
// is possible, a core which code is fast: predictions (gen/nest.h, caps_rates) take its clock, ports, latencies, caches and memory from here,
// so that default schedules fit it. A core is one row; its numbers are those of the machine named in it, one thread on a core.
//
// Sources, with the columns that were compared with them:
// - LLVM 19's models (llvm-mca -instruction-info: fmla, ldr q) of N1, V1, V2 and Apple A14: fma, load and load_latency, except M1's loads,
//   3 per cycle, of Apple Silicon CPU Optimization Guide (the model has 2). Chains of accumulations: V2's model has 2 cycles, those of N1 and
//   V1 have 4 without forwarding, but Arm's software optimisation guides have 4(2), "ASIMD FP multiply accumulate", and A72's 7(3).
//   Models of A72, A76 and X1 are A57's, so these three are the guides' alone.
// - A53: LLVM's AArch64SchedA53.td has one fmla per cycle. A vector load of 16 bytes takes two, in which nothing multiplies, of 8 bytes one, in
//   which the other 8 can be inserted from an integer register (lang/c.c); an accumulation is forwarded after 4 (notes on kernels of ncnn and
//   XNNPACK's aarch64_neonfma_cortex_a53).
// - N1 and V2: latencies and bytes per cycle of L2 and L3, memory: measured on Graviton2 and Graviton4, Arm Learning Paths, "Memory
//   subsystem" (5.4 and 4.0 ns, 28.8 and 21.2 ns, 95 and 110 ns; 73 and 95, 36 and 78, 21 and 37 GB/s; all cores 170 and 465 GB/s).
// - A72, A76: memory of a core: copies of 2.8 and 5.6 GB/s by tinymembench (github.com/geerlingguy/sbc-reviews, 110 and 21), twice of it.
// - The rest, which was not found measured: the technical reference manuals' caches; memory of all cores as four fifths of the data sheet (A53,
//   A76, X1, V1, M1), of one core by lines in flight.
#include "dev/dev.h"

static const struct core {
    const char *name, *isa;         /* its instruction set, as far as kernels use it */
    const char *machine;            /* that has it */
    bool is_in_order;
    u32 n;                          /* cores of the machine */
    double ghz;
    double fma, load;               /* vectors of 16 bytes per cycle: multiply-adds, loads */
    u32 fma_latency, load_latency;  /* cycles: of accumulations in a chain, of a vector's load from the first cache */
    u32 l1_kib, l2_kib, l3_kib;     /* data caches; the third one of all cores, 0: none */
    u32 l2_bytes, l3_bytes;         /* per cycle, read by one core */
    u32 l2_latency, l3_latency;     /* cycles */
    u32 dram_one, dram_all, dram_ns; /* GB/s of one core and of all; latency */
} cores[] = {
    /* name, isa, machine, in order, cores, GHz, fma, load, latencies, caches in KiB, bytes per cycle, latencies, memory */
    {"cortex-a53", "aarch64+crc", "Raspberry Pi 3", true, 4, 1.4, 1, 1, 4, 4, 32, 512, 0, 8, 0, 15, 0, 2, 3, 150},
    {"cortex-a72", "aarch64+crc", "Raspberry Pi 4", false, 4, 1.5, 1, 1, 3, 5, 32, 1024, 0, 16, 0, 21, 0, 5, 6, 130},
    {"cortex-a76", "aarch64+fp16+dotprod", "Raspberry Pi 5", false, 4, 2.4, 2, 2, 2, 5, 64, 512, 2048, 32, 16, 9, 35, 11, 14, 110},
    {"cortex-x1", "aarch64+fp16+dotprod", "Snapdragon 888", false, 1, 2.84, 4, 3, 2, 6, 64, 1024, 4096, 32, 16, 10, 45, 26, 41, 120},
    {"neoverse-n1", "aarch64+fp16+dotprod", "Graviton2", false, 64, 2.5, 2, 2, 2, 5, 64, 1024, 32768, 29, 14, 13, 72, 21, 170, 95},
    {"neoverse-v1", "aarch64+fp16fml+dotprod+sve+i8mm+bf16", "Graviton3", false, 64, 2.6, 4, 3, 2, 6, 64, 1024, 32768, 32, 16, 10, 85, 26, 246, 115},
    {"neoverse-v1-sve", "aarch64+fp16fml+dotprod+sve256+i8mm+bf16", "Graviton3, by SVE", false, 64, 2.6, 4, 4, 2, 6, 64, 1024, 32768, 32, 16, 10, 85, 26, 246, 115},
    {"neoverse-v2", "aarch64+fp16fml+dotprod+sve2+i8mm+bf16", "Graviton4", false, 96, 2.8, 4, 3, 2, 6, 64, 2048, 36864, 34, 28, 11, 59, 37, 465, 110},
    {"apple-m1", "aarch64+fp16fml+dotprod", "M1, performance cores", false, 4, 3.2, 4, 3, 4, 5, 128, 3072, 8192, 32, 16, 18, 100, 50, 54, 100},
};

/* Bytes of NEON's registers, which kernels use on all of them: SVE multiplies no faster on V1 (two of 32 bytes for four of 16) and V2 (registers
   of 16 bytes), and has no 2x2 products of bytes here. Its loads are wider on V1, which "neoverse-v1-sve" uses. */
enum { VECTOR = 16 };

/* A core that executes in order waits for a load unless its register is loaded some instructions ahead (kir_ahead). Tiles leave a quarter of the
   registers for that. */
enum { IN_ORDER_REGS = 24 };

static struct rate of_all(double one, u32 n) { return (struct rate){one, one * n}; }

/* A store takes twice as long as a load: half of the ports, or half of their width. */
static struct rate_memory level(struct rate read, double latency)
{
    struct rate half = {read.one / 2, read.all / 2};
    return (struct rate_memory){.read = read, .write = half, .copy = read, .latency = latency};
}

static struct rates rates_of(const struct core *x, const struct caps *c)
{
    double hz = x->ghz * 1e9, flops = x->fma * VECTOR / 4 * 2 * hz;
    struct rate dram = {x->dram_one * 1e9, x->dram_all * 1e9};
    struct rates r = {.cycle = 1 / hz, .fma_latency = x->fma_latency / hz, .nt_write = dram};
    r.ops[RATE_FMA_F32] = of_all(flops, x->n);
    r.ops[RATE_FMA_F64] = of_all(flops / 2, x->n);
    if (caps_has_dot(c, DT_I8, DT_I8, DT_I32)) r.ops[RATE_DOT_I8] = of_all(4 * flops, x->n);
    if (caps_has_dot(c, DT_BF16, DT_BF16, DT_F32)) r.ops[RATE_DOT_BF16] = of_all(2 * flops, x->n);
    r.memory[RATE_L1] = level(of_all(x->load * VECTOR * hz, x->n), x->load_latency / hz);
    r.memory[RATE_L2] = level(of_all(x->l2_bytes * hz, x->n), x->l2_latency / hz);
    r.memory[RATE_DRAM] = (struct rate_memory){dram, dram, dram, x->dram_ns * 1e-9};
    r.memory[RATE_L3] = x->l3_kib ? level(of_all(x->l3_bytes * hz, x->n), x->l3_latency / hz) : r.memory[RATE_DRAM];
    rates_round_all(&r);
    return r;
}

bool dev_core(struct caps *c, struct str name)
{
    for (i64 i = 0; i < countof(cores); i++) {
        const struct core *x = &cores[i];
        struct isa s;
        struct err e = {0};
        if (!str_is(name, x->name)) continue;
        bool ok = isa_parse(&s, str_of(x->isa), &e);
        assert(ok), (void)ok;
        *c = (struct caps){.n_threads = x->n, .l1_bytes = (i64)x->l1_kib << 10, .l2_bytes = (i64)x->l2_kib << 10, .l3_bytes = (i64)x->l3_kib << 10};
        isa_limits(c, s);
        c->in_order = x->is_in_order;
        if (c->in_order) c->n_vector_regs = IN_ORDER_REGS;
        c->rates = rates_of(x, c);
        return true;
    }
    return false;
}

const char *dev_core_name(i64 k) { return k < countof(cores) ? cores[k].name : NULL; }
