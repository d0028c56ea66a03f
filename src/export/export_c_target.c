// SPDX-License-Identifier: Apache-2.0
//
// export_c_target.c: targets of programs in C. Compilers of all of them get the same C99; a target says how many values a kernel's innermost loop may keep
// in registers, which products of integers it multiplies by, and how fast it is, from which schedules follow (gen/nest.h).
//
// Sources: Cortex-M4, Cortex-M7 and Cortex-M55 technical reference manuals (a multiply-add of f32 takes 3 cycles on M4 without a dependence, 1 on M7 and M55; loads
// take 2 cycles, those that follow each other 1). RISC-V: a core like SiFive's E31 (a product per cycle, no floating point: a multiply-add of f32 takes about
// 100 cycles in libgcc). Others: a plain core. gcc's scheduling before register allocation costs an eighth more instructions in kernels that keep most of 13
// registers busy (12.2, ResNet-8 in 8 bits).
#include "export/export_c.h"

#include <stdio.h>
#include <string.h>

struct target {
    struct c_isa isa;
    enum isa_family family;
    u32 vector_bytes;  /* of the innermost loop's step, as scalars */
    u32 n_vectors;     /* that registers hold */
    const char *dot;   /* products of integers, as of caps.dot */
    u32 mhz;
    double fma;        /* f32 multiply-adds per cycle */
    double load;       /* words of 4 bytes per cycle */
    u32 cache_kib;     /* data cache, or memory without waiting */
};

static const struct target targets[] = {
    {{"generic", "any processor of 32 or 64 bits", ""}, ISA_NONE, 16, 4, "u8,i8,i32", 100, 1, 1, 32},
    {{"armv7e-m", "Cortex-M4, Cortex-M7: multiplies pairs of i16", "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -fno-schedule-insns -fno-inline-functions-called-once"},
     ISA_NONE, 16, 4, "u8,i8,i32 i16,i16,i32", 100, 0.5, 0.7, 256},
    {{"cortex-m55", "Cortex-M55 without vectors", "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard -fno-schedule-insns -fno-inline-functions-called-once"}, ISA_NONE, 16, 4, "u8,i8,i32 i16,i16,i32", 200, 1, 1, 256},
    {{"rv32imac", "RISC-V of 32 bits without floating point", "-march=rv32imac -mabi=ilp32"}, ISA_NONE, 16, 4, "u8,i8,i32", 100, 0.01, 0.7, 64},
    {{"x86-64", "x86-64, any", "-march=x86-64"}, ISA_NONE, 16, 16, "", 3000, 8, 4, 32},
    {{"aarch64", "Armv8-A, any", "-march=armv8-a"}, ISA_NONE, 16, 32, "", 2000, 4, 4, 32},
};

const struct c_isa *c_isa_at(i64 k) { return k >= 0 && k < countof(targets) ? &targets[k].isa : NULL; }

const struct c_isa *c_isa_find(struct str name, struct err *e)
{
    struct buf all = {0};
    for (i64 k = 0; k < countof(targets); k++) {
        if (str_is(name, targets[k].isa.name)) {
            buf_release(&all);
            return &targets[k].isa;
        }
        buf_printf(&all, "%s%s", k ? ", " : "", targets[k].isa.name);
    }
    err_set(e, ERR_USAGE, "no instruction set '%.*s' for programs in C, there are: %.*s", STR_ARG(name), STR_ARG(buf_view(&all)));
    buf_release(&all);
    return NULL;
}

static struct rate of_all(double one, u32 n) { return (struct rate){one, one * n}; }

static struct rates rates_of(const struct target *x, u32 n)
{
    double hz = x->mhz * 1e6, bytes = 4 * x->load * hz;
    struct rate_memory near = {of_all(bytes, n), of_all(bytes / 8, n), of_all(bytes / 8, n), 2 / hz}; /* scarce: results in bytes, not in f32 */
    struct rates r = {.cycle = 1 / hz, .fma_latency = 3 / hz, .nt_write = near.write};
    r.ops[RATE_FMA_F32] = of_all(2 * x->fma * hz, n);
    r.ops[RATE_FMA_F64] = of_all(x->fma * hz / 4, n);
    r.ops[RATE_DOT_I8] = of_all(2 * hz * (*x->dot == 'i' ? 1 : 0.5), n);
    struct rate_memory far = {of_all(bytes / 2, n), of_all(bytes / 4, n), of_all(bytes / 4, n), 8 / hz};
    r.memory[RATE_L1] = near;
    r.memory[RATE_L2] = r.memory[RATE_L3] = r.memory[RATE_DRAM] = far;
    rates_round_all(&r);
    return r;
}

void c_isa_caps(const struct c_isa *isa, u32 n_threads, struct caps *c)
{
    const struct target *x = targets;
    while (&x->isa != isa) x++;
    *c = (struct caps){.vector_bytes = x->vector_bytes, .n_vector_regs = x->n_vectors, .n_threads = n_threads};
    c->l1_bytes = (i64)x->cache_kib << 10;
    c->l2_bytes = c->l3_bytes = c->l1_bytes;
    c->fixed_point = *x->dot != 0;
    c->no_winograd = x->cache_kib && x->mhz < 1000; /* its weights are larger, and memory is scarce */
    snprintf(c->arch, sizeof c->arch, "c99-%s", isa->name);
    snprintf(c->dot, sizeof c->dot, "%s", x->dot);
    c->rates = rates_of(x, n_threads);
}
