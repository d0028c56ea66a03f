// SPDX-License-Identifier: Apache-2.0
//
// rates.c: how fast a target is: multiply-adds by instruction, memory by level, launches, barriers. Measured rates come from
// microbenchmarks (tune/rates.h); without them they are assumed from the target's limits, so described devices have rates, too.
//
// Text: "key=value" words, values of one thread and of all threads separated by a comma, zeros omitted. Values are rounded to
// 48 steps per decade (4.9 %) of three digits: measurements that differ by less mostly agree, and printing and parsing is exact.
#include "core/core.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_PER_DECADE = 48 };

/* Every field of struct rates: n is 2 for a struct rate. */
#define PAIR(name, member) {name, offsetof(struct rates, member), 2, false}
#define SECONDS(name, member) {name, offsetof(struct rates, member), 1, true}
#define LEVEL(name, level)                                                                                             \
    PAIR(name ".read", memory[level].read), PAIR(name ".write", memory[level].write), PAIR(name ".copy", memory[level].copy), \
        SECONDS(name ".latency", memory[level].latency)
static const struct field { const char *name; size_t at; u32 n; bool is_seconds; } fields[] = {
    PAIR("fma.f32", ops[RATE_FMA_F32]), PAIR("fma.f64", ops[RATE_FMA_F64]), PAIR("dot.i8", ops[RATE_DOT_I8]),
    PAIR("dot.bf16", ops[RATE_DOT_BF16]), PAIR("mma.f16", ops[RATE_MMA_F16]), PAIR("mma.bf16", ops[RATE_MMA_BF16]),
    PAIR("mma.tf32", ops[RATE_MMA_TF32]), PAIR("mma.f32", ops[RATE_MMA_F32]), PAIR("mma.i8", ops[RATE_MMA_I8]),
    LEVEL("l1", RATE_L1), LEVEL("l2", RATE_L2), LEVEL("l3", RATE_L3), LEVEL("dram", RATE_DRAM),
    PAIR("dram.nt", nt_write), SECONDS("launch", launch), SECONDS("barrier", barrier), SECONDS("cycle", cycle), SECONDS("fma.latency", fma_latency),
};
_Static_assert(sizeof(struct rates) == sizeof(double) * (2 * N_RATE_OPS + 7 * N_RATE_LEVELS + 6), "fields lists all of struct rates");

static double *numbers(struct rates *r, const struct field *f) { return (double *)(void *)((char *)r + f->at); }

double rates_round(double x)
{
    char text[32];
    if (!(x > 0) || isinf(x)) return 0;
    snprintf(text, sizeof text, "%.2e", pow(10, round(log10(x) * STEPS_PER_DECADE) / STEPS_PER_DECADE));
    return str_to_f64(str_of(text), &x) ? x : 0;
}

void rates_round_all(struct rates *r)
{
    for (i64 i = 0; i < countof(fields); i++)
        for (u32 k = 0; k < fields[i].n; k++) numbers(r, &fields[i])[k] = rates_round(numbers(r, &fields[i])[k]);
}

void rates_better(struct rates *r, const struct rates *x)
{
    for (i64 i = 0; i < countof(fields); i++)
        for (u32 k = 0; k < fields[i].n; k++) {
            double *to = &numbers(r, &fields[i])[k], from = numbers((struct rates *)(uintptr_t)x, &fields[i])[k];
            if (fields[i].is_seconds ? from > 0 && (from < *to || *to <= 0) : from > *to) *to = from;
        }
}

void rates_print(struct buf *b, const struct rates *rates)
{
    struct rates r = *rates;
    const char *space = "";
    for (i64 i = 0; i < countof(fields); i++) {
        const double *v = numbers(&r, &fields[i]);
        if (v[0] <= 0 && (fields[i].n < 2 || v[1] <= 0)) continue;
        buf_printf(b, "%s%s=%.3g", space, fields[i].name, v[0]);
        if (fields[i].n > 1) buf_printf(b, ",%.3g", v[1]);
        space = " ";
    }
}

static bool parse_number(struct str text, double *v) { return str_to_f64(text, v) && *v >= 0 && *v < 1e30; }

static bool parse_field(struct rates *r, struct str key, struct str value, struct err *e)
{
    for (i64 i = 0; i < countof(fields); i++) {
        double *v = numbers(r, &fields[i]);
        struct str one, all;
        if (!str_is(key, fields[i].name)) continue;
        bool ok = fields[i].n == 1 ? parse_number(value, v)
                                   : str_cut(value, ',', &one, &all) && parse_number(one, &v[0]) && parse_number(all, &v[1]);
        return ok || err_set(e, ERR_USAGE, "bad value '%.*s' of rate '%s'", STR_ARG(value), fields[i].name);
    }
    return err_set(e, ERR_USAGE, "unknown rate '%.*s'", STR_ARG(key));
}

bool rates_parse(struct rates *r, struct str text, struct err *e)
{
    struct str word, key, value;
    *r = (struct rates){0};
    for (text = str_trim(text); text.n; text = str_trim(text)) {
        str_cut(text, ' ', &word, &text);
        if (!str_cut(word, '=', &key, &value)) return err_set(e, ERR_USAGE, "no '=' in rate '%.*s'", STR_ARG(word));
        if (!parse_field(r, key, value, e)) return false;
    }
    return true;
}

/* Assumptions. */

static struct rate rate_of(double one, double threads) { return (struct rate){one, one * threads}; }

static void assume_level(struct rate_memory *m, double bytes_per_second, double threads, double latency)
{
    m->read = rate_of(bytes_per_second, threads);
    m->write = rate_of(bytes_per_second / 2, threads);
    m->copy = rate_of(bytes_per_second, threads);
    m->latency = latency;
}

enum rate_op rate_op_mma(enum dtype operand)
{
    if (dtype_is_int(operand)) return RATE_MMA_I8;
    return operand == DT_F16 ? RATE_MMA_F16 : operand == DT_BF16 ? RATE_MMA_BF16 : operand == DT_TF32 ? RATE_MMA_TF32 : RATE_MMA_F32;
}

/* A product of tiles (TDPBF16PS, TDPBSSD and the like) begins every 16 cycles: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966),
   "Intel AMX": latency and throughput of the instructions. */
enum { TILE_CYCLES = 16 };

/* A clock of 4 GHz, two vectors of up to 32 bytes per cycle, multiplied and from or to registers, 12 GB/s of memory per thread. Vectors of 64
   bytes take twice as long: most processors that have them split them (Zen 4), have one unit for them, or slow down their clock. */
static void assume_processor(struct rates *r, const struct caps *c)
{
    const double hz = 4e9, dram = 12e9, vector = i64_max(4, c->vector_bytes), n = i64_max(1, c->n_threads);
    const double unit = fmin(vector, 32);
    struct str rest = str_of(c->matrix);
    struct caps_matrix m;
    double flops = unit / 4 * (c->has_fma ? 4 : 2) * hz;
    r->ops[RATE_FMA_F32] = rate_of(flops, n);
    r->ops[RATE_FMA_F64] = rate_of(flops / 2, n);
    if (caps_has_dot(c, DT_U8, DT_I8, DT_I32) || caps_has_dot(c, DT_I8, DT_I8, DT_I32)) r->ops[RATE_DOT_I8] = rate_of(4 * flops, n);
    if (caps_has_dot(c, DT_BF16, DT_BF16, DT_F32)) r->ops[RATE_DOT_BF16] = rate_of(2 * flops, n);
    while (caps_matrix_next(&rest, &m)) r->ops[rate_op_mma(m.a)] = rate_of(2.0 * (double)(m.m * m.n * m.k) / TILE_CYCLES * hz * unit / vector, n);
    assume_level(&r->memory[RATE_L1], 2 * unit * hz, n, 5 / hz);
    assume_level(&r->memory[RATE_L2], 32 * hz, n, 14 / hz);
    assume_level(&r->memory[RATE_L3], 16 * hz, n, 50 / hz);
    assume_level(&r->memory[RATE_DRAM], dram, n, 90e-9);
    r->memory[RATE_DRAM].write = r->nt_write = rate_of(dram, n);
    r->launch = 2e-6;
    r->barrier = 1e-6;
}

/* Of matrix units, in multiples of vectors' multiply-adds. */
static double mma_speed(enum dtype operand)
{
    if (dtype_is_int(operand)) return 16;
    return operand == DT_TF32 ? 4 : operand == DT_F32 ? 2 : 8;
}

/* One workgroup has a multiprocessor, of about 400 GFLOP/s, to itself. Shared memory, and the first cache, move a word for a quarter of the threads
   that multiply and add in a cycle, half of them where subgroups have 64 threads; the cache that multiprocessors share is twice as fast as memory. */
static void assume_gpu(struct rates *r, const struct caps *c)
{
    struct str rest = str_of(c->matrix);
    struct caps_matrix m;
    double flops = 1e9 * (c->gflops ? c->gflops : 4000), dram = 1e9 * (c->gbps ? c->gbps : 100), n = fmax(1, floor(flops / 4e11));
    r->ops[RATE_FMA_F32] = rate_of(flops / n, n);
    if (c->has_f64) r->ops[RATE_FMA_F64] = rate_of(flops / n / 2, n);
    while (caps_matrix_next(&rest, &m)) r->ops[rate_op_mma(m.a)] = rate_of(mma_speed(m.a) * flops / n, n);
    assume_level(&r->memory[RATE_L1], flops / 2 / n * (c->subgroup >= 64 ? 2 : 1), n, 30e-9);
    assume_level(&r->memory[RATE_L2], 2 * dram / n, n, 200e-9);
    assume_level(&r->memory[RATE_L3], 2 * dram / n, n, 300e-9);
    assume_level(&r->memory[RATE_DRAM], dram / n, n, 500e-9);
    r->memory[RATE_DRAM].write = r->nt_write = rate_of(dram / n, n);
    r->launch = 3e-6;
    r->barrier = 5e-8;
}

/* Vectors of 8 lanes are multiplied at once, but memory, shared memory included, is accessed lane by lane, an instruction each, and nothing hides
   what waits. Measured with Mesa 22.3's lavapipe on Zen 4, as `quern devices --measure` measures it here. */
static void assume_emulated(struct rates *r, const struct caps *c)
{
    static const double bytes[N_RATE_LEVELS] = {[RATE_L1] = 2.2e9, [RATE_L2] = 2.6e9, [RATE_L3] = 2.3e9, [RATE_DRAM] = 1e9};
    static const double latency[N_RATE_LEVELS] = {[RATE_L1] = 2e-9, [RATE_L2] = 5e-9, [RATE_L3] = 2e-8, [RATE_DRAM] = 1.9e-7};
    const double n = i64_max(1, c->n_threads);
    r->ops[RATE_FMA_F32] = rate_of(5e10, n), r->ops[RATE_FMA_F64] = rate_of(2.8e10, n), r->nt_write = rate_of(1e9, n);
    for (enum rate_level l = RATE_L1; l < N_RATE_LEVELS; l++) {
        const struct rate all = rate_of(bytes[l], n);
        r->memory[l] = (struct rate_memory){.read = all, .write = all, .copy = all, .latency = latency[l]};
    }
    r->launch = 7e-6, r->barrier = 2e-7;
}

struct rates caps_rates(const struct caps *c)
{
    struct rates r = {0}, measured = c->rates;
    if (c->is_gpu) assume_gpu(&r, c);
    else assume_processor(&r, c);
    if (c->is_emulated) assume_emulated(&r, c);
    for (i64 i = 0; i < countof(fields); i++)
        for (u32 k = 0; k < fields[i].n; k++) {
            double v = numbers(&measured, &fields[i])[k];
            if (v > 0) numbers(&r, &fields[i])[k] = v;
        }
    return r;
}

double rates_peak(const struct rates *r, enum dtype t)
{
    double most = r->ops[t == DT_F64 ? RATE_FMA_F64 : RATE_FMA_F32].all;
    if (t != DT_F64) most = fmax(most, r->ops[rate_op_mma(t)].all);
    if (t == DT_BF16) most = fmax(most, r->ops[RATE_DOT_BF16].all);
    if (t == DT_I8 || t == DT_U8) most = fmax(most, r->ops[RATE_DOT_I8].all);
    return most;
}

double rates_bandwidth(const struct rates *r)
{
    const struct rate_memory *m = &r->memory[RATE_DRAM];
    return fmax(m->read.all, m->copy.all);
}
