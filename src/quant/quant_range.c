// SPDX-License-Identifier: Apache-2.0
//
// Ranges from the values of calibration runs.
//
// Ranges contain 0, which a quantised type then represents exactly: pads, and the results of Relu.
// For the same reason zeros are not counted in histograms: no choice of a range changes them, but
// half of the results of Relu would hide the distribution of the others.
//
// Entropy: thresholds are candidates for the largest magnitude. For each, the histogram up to it, with
// everything beyond in its last bin, is compared with the same histogram after its reduction to the
// steps of the quantised type; the least Kullback-Leibler divergence wins (Migacz 2017). Ranges may
// be asymmetric here: a threshold cuts both ends, and the number of steps up to it follows from that.
#include "quant/quant.h"

#include <math.h>

enum { STEPS = 255, STRIDE = 4 }; /* steps of an 8-bit type; distance of candidate thresholds in bins */

static const char *const names[N_QUANT_METHODS] = {"min-max", "entropy", "percentile"};

const char *quant_method_name(enum quant_method m) { return names[m]; }

enum quant_method quant_method_parse(struct str s, bool *ok)
{
    for (int m = 0; m < N_QUANT_METHODS; m++)
        if (str_is(s, names[m])) return *ok = true, (enum quant_method)m;
    return *ok = false, QUANT_MIN_MAX;
}

bool quant_needs_bins(enum quant_method m) { return m != QUANT_MIN_MAX; }

static void add_sums(struct quant_seen *s, const struct tensor *t, struct arena *a)
{
    const float *x = t->data;
    i64 channels = t->dim[s->axis], inner = 1;
    for (u32 d = (u32)s->axis + 1; d < t->rank; d++) inner *= t->dim[d];
    if (!s->sum) s->sum = arena_array(a, double, channels), s->n_channels = channels;
    if (channels != s->n_channels) return; /* a symbolic number of channels has no weights */
    for (i64 row = 0, n = inner ? tensor_count(t) / inner : 0; row < n; row++) {
        double sum = 0;
        for (i64 i = 0; i < inner; i++) sum += (double)x[row * inner + i];
        s->sum[row % channels] += sum;
    }
}

bool quant_see(struct quant_seen *s, const struct tensor *t, struct arena *a, i64 *at)
{
    const float *x = t->data;
    i64 n = tensor_count(t);
    assert(t->dtype == DT_F32);
    float lo = 0, hi = 0;
    for (i64 i = 0; i < n; i++) {
        if (!isfinite(x[i])) return *at = i, false;
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    s->lo = fmin(s->lo, (double)lo), s->hi = fmax(s->hi, (double)hi);
    s->n += n;
    if (s->axis >= 0) add_sums(s, t, a);
    return true;
}

void quant_count(struct quant_seen *s, const struct tensor *t, struct arena *a)
{
    const float *x = t->data;
    if (!s->bin) s->bin = arena_array(a, u64, 2 * QUANT_BINS), s->limit = fmax(-s->lo, s->hi);
    double per = s->limit > 0 ? QUANT_BINS / s->limit : 0;
    for (i64 i = 0, n = tensor_count(t); i < n; i++) {
        if (x[i] == 0 || !isfinite(x[i])) continue;
        i64 k = (i64)floor((double)x[i] * per) + QUANT_BINS;
        s->bin[i64_max(0, i64_min(k, 2 * QUANT_BINS - 1))]++;
    }
}

static double cut(const struct quant_seen *s, i64 bins) { return s->limit * (double)bins / QUANT_BINS; }

static struct quant_range cut_range(const struct quant_seen *s, i64 bins)
{
    return (struct quant_range){fmax(s->lo, -cut(s, bins)), fmin(s->hi, cut(s, bins))};
}

/* p log(p / q) of the n first bins of magnitudes m, reduced to `steps`; beyond: count of larger ones. */
static double divergence(const u64 *m, i64 n, i64 steps, u64 beyond)
{
    double kl = 0, within = 0;
    for (i64 i = 0; i < n; i++) within += (double)m[i];
    double total = within + (double)beyond;
    if (within == 0) return INFINITY;
    for (i64 g = 0; g < steps; g++) {
        i64 from = g * n / steps, to = (g + 1) * n / steps, used = 0;
        double sum = 0;
        for (i64 i = from; i < to; i++) used += m[i] > 0, sum += (double)m[i];
        for (i64 i = from; i < to; i++) {
            double p = (double)m[i] + (i == n - 1 ? (double)beyond : 0);
            double q = m[i] ? sum / (double)used : 1e-4; /* a last bin that holds nothing of its own */
            if (p > 0) kl += p / total * log(p / total * (within / q));
        }
    }
    return kl;
}

static struct quant_range entropy_range(const struct quant_seen *s)
{
    u64 m[QUANT_BINS], beyond = 0;
    i64 best = QUANT_BINS;
    double least = INFINITY;
    for (i64 i = 0; i < QUANT_BINS; i++) m[i] = s->bin[QUANT_BINS + i] + s->bin[QUANT_BINS - 1 - i];
    for (i64 n = QUANT_BINS; n > 0; n -= STRIDE) {
        struct quant_range r = cut_range(s, n);
        i64 steps = (i64)rint(STEPS * cut(s, n) / (r.hi - r.lo));
        if (n < steps) break;
        double kl = divergence(m, n, steps, beyond);
        if (kl < least) least = kl, best = n;
        for (i64 i = n - STRIDE; i < n; i++) beyond += m[i];
    }
    return cut_range(s, best);
}

/* Bins that hold at most `most` elements, from the end of the negative or the positive ones inwards. */
static i64 free_bins(const struct quant_seen *s, bool positive, double most)
{
    double sum = 0;
    for (i64 k = 0; k < QUANT_BINS; k++) {
        sum += (double)s->bin[positive ? 2 * QUANT_BINS - 1 - k : k];
        if (sum > most) return k;
    }
    return 0; /* nothing would remain */
}

static struct quant_range percentile_range(const struct quant_seen *s, double percentile)
{
    double most = (double)s->n * (100 - percentile) / 100;
    return (struct quant_range){cut_range(s, QUANT_BINS - free_bins(s, false, most)).lo,
                                cut_range(s, QUANT_BINS - free_bins(s, true, most)).hi};
}

struct quant_range quant_range_of(const struct quant_seen *s, const struct quant_opts *o)
{
    struct quant_range all = {s->lo, s->hi};
    if (!s->bin || s->limit == 0) return all;
    switch (o->method) {
    case QUANT_MIN_MAX: return all;
    case QUANT_ENTROPY: return entropy_range(s);
    case QUANT_PERCENTILE: return percentile_range(s, o->percentile);
    case N_QUANT_METHODS: break;
    }
    unreachable();
}

struct quant_step quant_step_of(struct quant_range r, bool is_signed)
{
    /* The product of two scales must be a normal f32; a value that is always 0 may have any scale. */
    double scale = r.hi > r.lo ? fmax((r.hi - r.lo) / STEPS, 0x1p-60) : 1;
    struct quant_step s = {.scale = (float)scale};
    i64 zero = (i64)rint(-r.lo / (double)s.scale);
    s.zero = i64_max(0, i64_min(zero, STEPS)) - (is_signed ? 128 : 0);
    return s;
}
