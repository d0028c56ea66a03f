// SPDX-License-Identifier: Apache-2.0
//
// The files of a run as comma-separated values: every sample, a summary of each layer, operations and bytes for the roofline. Milliseconds
// with six decimal places; names have no commas.
#include "lab/conv.h"

#include <math.h>

/* Characters that end a field become '_'. */
static void put_name(struct buf *b, struct str s)
{
    for (i64 i = 0; i < s.n; i++) buf_char(b, s.p[i] == ',' || s.p[i] == '"' || s.p[i] == '\n' ? '_' : s.p[i]);
}

/* "2,in_1X32..": number and name of the layer. */
static void put_layer(struct buf *b, const struct conv_result *x)
{
    buf_printf(b, "%u,", x->layer);
    conv_row_label(b, x->row);
    buf_char(b, ',');
}

void conv_print_samples(struct buf *b, const struct conv_run *r)
{
    buf_z(b, "layer,layer_name,implementation,iteration,ms\n");
    for (u32 i = 0; i < r->result.n; i++) {
        const struct conv_result *x = &r->result.v[i];
        for (u32 k = 0; k < x->times.n; k++)
            for (u32 side = 0; side <= (x->base.n > 0); side++) {
                put_layer(b, x);
                put_name(b, side ? x->base : r->implementation);
                buf_printf(b, ",%u,%.6f\n", k, (side ? x->times.base : x->times.seconds)[k] * 1e3);
            }
    }
}

double conv_limit(const struct conv_run *r, const struct conv_row *row)
{
    double rate = rates_peak(&r->limit, r->type), bandwidth = rates_bandwidth(&r->limit);
    double s = rate > 0 ? conv_row_flops(row) / rate : 0;
    return bandwidth > 0 ? fmax(s, conv_row_bytes(row, r->type) / bandwidth) : s;
}

void conv_print_ceilings(struct buf *b, const struct conv_run *r)
{
    const struct rate *op = r->limit.ops;
    const struct { const char *name, *unit; double value; } ceiling[] = {
        {"fma", "GFLOP/s", op[r->type == DT_F64 ? RATE_FMA_F64 : RATE_FMA_F32].all},
        {"dot", "GFLOP/s", r->type == DT_BF16 ? op[RATE_DOT_BF16].all : 0},
        {"matrix", "GFLOP/s", r->type == DT_F64 ? 0 : op[rate_op_mma(r->type)].all},
        {"memory", "GB/s", rates_bandwidth(&r->limit)}};
    buf_z(b, "name,unit,value\n");
    for (i64 i = 0; i < countof(ceiling); i++)
        if (ceiling[i].value > 0) buf_printf(b, "%s,%s,%.3f\n", ceiling[i].name, ceiling[i].unit, ceiling[i].value * 1e-9);
}

double conv_seed_figure(double rms, double n_outputs) { return rms / sqrt(n_outputs); }

void conv_print_seed(struct buf *b, const struct verify_report *r)
{
    const struct verify_result *x = &r->result[VERIFY_UNIT];
    double n = (double)i64_max(x->found.n_seen, 1), figure = conv_seed_figure(sqrt(x->found.err2 / n), (double)r->n_outputs);
    if (!x->n_rounds || !x->found.n_seen) return;
    buf_printf(b, "  norm/count      %.3g: the old criterion %s it at 1e-4 and %s it at 1e-5%s\n", figure, figure <= 1e-4 ? "passes" : "fails",
               figure <= 1e-5 ? "passes" : "fails", x->found.n_seen < r->n_outputs ? " (from the sample)" : "");
}

static void put_interval(struct buf *b, struct stats s, double unit)
{
    buf_printf(b, ",%.6f,%.6f", s.low * unit, s.high * unit);
}

/* Layers may have different baselines: a library may lack some. */
static struct str first_base(const struct conv_run *r)
{
    for (u32 i = 0; i < r->result.n; i++)
        if (r->result.v[i].base.n) return r->result.v[i].base;
    return (struct str){0};
}

void conv_print_summary(struct buf *b, const struct conv_run *r)
{
    struct str base = first_base(r);
    buf_z(b, "layer_name,");
    put_name(b, r->implementation);
    buf_z(b, "_median,");
    put_name(b, base.n ? base : S("none"));
    buf_z(b, "_median,low_ms,high_ms,base_low_ms,base_high_ms,ratio,ratio_low,ratio_high,gflop,gbytes,gflops,percent_of_limit,base\n");
    for (u32 i = 0; i < r->result.n; i++) {
        const struct conv_result *x = &r->result.v[i];
        if (!x->times.n) continue;
        double flop = conv_row_flops(x->row), bytes = conv_row_bytes(x->row, r->type), limit = conv_limit(r, x->row);
        conv_row_label(b, x->row);
        buf_printf(b, ",%.6f,%.6f", x->times.of.median * 1e3, x->times.of_base.median * 1e3);
        put_interval(b, x->times.of, 1e3);
        put_interval(b, x->times.of_base, 1e3);
        buf_printf(b, ",%.6f", x->times.ratio.median);
        put_interval(b, x->times.ratio, 1);
        buf_printf(b, ",%.6f,%.6f,%.3f,", flop * 1e-9, bytes * 1e-9, flop * 1e-9 / x->times.of.median);
        if (limit > 0) buf_printf(b, "%.2f", limit / x->times.of.median * 100);
        buf_char(b, ',');
        put_name(b, x->base);
        buf_char(b, '\n');
    }
}

void conv_print_roofline(struct buf *b, const struct conv_run *r)
{
    buf_z(b, "layer,layer_name,implementation,flops,bytes,seconds\n");
    for (u32 i = 0; i < r->result.n; i++) {
        const struct conv_result *x = &r->result.v[i];
        for (u32 side = 0; x->times.n && side <= (x->base.n > 0); side++) {
            put_layer(b, x);
            put_name(b, side ? x->base : r->implementation);
            buf_printf(b, ",%.0f,%.0f,%.9f\n", conv_row_flops(x->row), conv_row_bytes(x->row, r->type),
                       (side ? x->times.of_base : x->times.of).median);
        }
    }
}

bool conv_run_is_timed(const struct conv_run *r)
{
    u32 i = 0;
    while (i < r->result.n && !r->result.v[i].times.n) i++;
    return i < r->result.n;
}

static bool write_file(const char *dir, const char *name, struct str text, struct err *e)
{
    struct arena a = {0};
    bool ok = os_write(str_fmt(&a, "%s/%s", dir, name).p, text.p, text.n, e);
    arena_release(&a);
    return ok;
}

bool conv_write_files(const struct conv_run *r, const char *dir, struct str params, struct err *e)
{
    static const struct { const char *name; void (*print)(struct buf *b, const struct conv_run *r); } files[] = {
        {"samples.csv", conv_print_samples}, {"summary.csv", conv_print_summary}, {"roofline.csv", conv_print_roofline}, {"ceilings.csv", conv_print_ceilings}};
    bool ok = os_mkdirs(dir, e) && write_file(dir, "params.txt", params, e);
    for (i64 i = 0; i < countof(files) && ok; i++) {
        struct buf b = {0};
        files[i].print(&b, r);
        ok = write_file(dir, files[i].name, buf_view(&b), e);
        buf_release(&b);
    }
    return ok;
}
