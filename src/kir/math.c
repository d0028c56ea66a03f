// SPDX-License-Identifier: Apache-2.0
//
// math.c: constants of the two types, and steps shared by the functions.
// The polynomials are minimax fits of relative error below a tenth of the
// last digit of f32; those of f64 are accurate to about its last digit.
#include "kir/math.h"

// clang-format off
static const double expm1_f32[] = {0x1p-1, 0x1.5554acp-3, 0x1.555486p-5, 0x1.122a0ap-7,
    0x1.6d99e2p-10};
static const double log_f32[] = {0x1.55557ap-1, 0x1.995e5ap-2, 0x1.31effap-2};
static const double log5_f32[] = {0x1.999ap-2, 0x1.24521ap-2, 0x1.dfb7eap-3};
static const double sin_f32[] = {-0x1.555544p-3, 0x1.1106fcp-7, -0x1.992c26p-13};
static const double cos_f32[] = {0x1.55554ap-5, -0x1.6c0c26p-10, 0x1.99e4p-16};
static const double atan_f32[] = {-0x1.55554ap-2, 0x1.9991bp-3, -0x1.23b6b2p-3, 0x1.b1ffdcp-4,
    -0x1.f2436cp-5};
static const double asin_f32[] = {0x1.5555cap-3, 0x1.33015ep-4, 0x1.748baep-5, 0x1.8ba2d2p-6,
    0x1.59df1p-5};
static const double erf_f32[] = {0x1.06eba8p-3, -0x1.81273p-2, 0x1.ce29d6p-4, -0x1.b7c024p-6,
    0x1.5247c6p-8, -0x1.97ab0cp-11, 0x1.294786p-14};
static const double erfc_root_f32[] = {0x1.0168dp+0, -0x1.3c3a38p-2, -0x1.039228p-4,
    -0x1.9df6a4p-5, 0x1.0ef63cp-4, -0x1.6c1e2ap-6, 0x1.a82bf6p-9, -0x1.78c1a8p-13};
static const double expm1_f64[] = {0x1p-1, 0x1.5555555555559p-3, 0x1.555555555555bp-5,
    0x1.111111110f5ecp-7, 0x1.6c16c16c14316p-10, 0x1.a01a01b03e03bp-13, 0x1.a01a01b119514p-16,
    0x1.71ddf759b6a2bp-19, 0x1.27e4c4cd0110dp-22, 0x1.af609bb20db02p-26, 0x1.1f96acdaebef2p-29};
static const double log_f64[] = {0x1.5555555555591p-1, 0x1.999999997ffc9p-2,
    0x1.2492494208c21p-2, 0x1.c71c51d680b79p-3, 0x1.74664e8870415p-3, 0x1.399fb700ffd28p-3,
    0x1.2f1d89dd5f094p-3};
static const double log5_f64[] = {0x1.9999999999b18p-2, 0x1.2492492459cdcp-2,
    0x1.c71c722b8a465p-3, 0x1.745cea4b5a107p-3, 0x1.3b1ee1b8f1b6p-3, 0x1.0f80396fa3e6ap-3,
    0x1.0e44ae0a0b72bp-3};
static const double sin_f64[] = {-0x1.5555555555555p-3, 0x1.111111111110ap-7,
    -0x1.a01a01a0188c1p-13, 0x1.71de3a530c555p-19, -0x1.ae64525c97d04p-26,
    0x1.61206c2c0ea01p-33, -0x1.aa91f242175dbp-41};
static const double cos_f64[] = {0x1.555555555554bp-5, -0x1.6c16c16c14efdp-10,
    0x1.a01a019c6f769p-16, -0x1.27e4f7d7c9ee2p-22, 0x1.1ee9c87aca48dp-29,
    -0x1.8f9ba70560858p-37};
static const double atan_f64[] = {-0x1.555555555553ep-2, 0x1.9999999995984p-3,
    -0x1.24924922b3695p-3, 0x1.c71c70e821617p-4, -0x1.745cf910f4ddfp-4, 0x1.3b111c57738efp-4,
    -0x1.10ebd8ce6b8cbp-4, 0x1.df10edeefddcdp-5, -0x1.9cd93c6c95c97p-5, 0x1.37e4202e1d838p-5,
    -0x1.2585fa3d7edfcp-6};
static const double asin_f64[] = {0x1.5555555555577p-3, 0x1.333333332e09fp-4,
    0x1.6db6db721bfcdp-5, 0x1.f1c71a90a962ap-6, 0x1.6e8bdf672e8e7p-6, 0x1.1c49e62555037p-6,
    0x1.ca20906d76952p-7, 0x1.757ce63fafea9p-7, 0x1.616ea2b5d3499p-7, 0x1.e2eb6e89bd763p-9,
    0x1.648eb3c72b9a5p-6, -0x1.595b4cf98b3cfp-6, 0x1.0bb6137a30b3fp-5};
static const double erf_f64[] = {0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2,
    0x1.ce2f21a042b34p-4, -0x1.b82ce31284f38p-6, 0x1.565bcd0dbd921p-8, -0x1.c02db3db49762p-11,
    0x1.f9a321e4b84f9p-14, -0x1.f4d1e434bc0cfp-17, 0x1.b9df305cad6f7p-20,
    -0x1.5f1f40faeea79p-23, 0x1.f7b99d7c8709ap-27, -0x1.38ac2290d3965p-30,
    0x1.062759c5be8ecp-34};
static const double erfc_f64[] = {0x1.3e0a99a0dfd49p-3, -0x1.a72747a5a8508p-4,
    0x1.10eccdaed0c74p-4, -0x1.5627486941a59p-5, 0x1.a1b82b4ad759ep-6, -0x1.f18336926e137p-7,
    0x1.21615756e1072p-7, -0x1.49b9e92c18e8fp-8, 0x1.71c2f7732b247p-9, -0x1.79fecab0521a6p-10,
    0x1.f913db9f85b7fp-11, -0x1.23c453d7549d9p-11, -0x1.5a58fba8de26fp-11,
    -0x1.a7bb25973d2dfp-10, -0x1.5d0c16c21b1c7p-11, 0x1.971697a060c84p-10, 0x1.da6623852a272p-9,
    0x1.db94804bec543p-9, 0x1.16eabea10aac3p-9, 0x1.71438667d80edp-11, 0x1.bf43da299d35ap-14};
static const u64 two_by_pi_f32[] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
    0xdb629599, 0x3c439041};
static const u64 two_by_pi_f64[] = {0, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0,
    0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0, 0x06492eea09d1921c,
    0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08};

static const struct math_type math_f32 = {
    .type = DT_F32,
    .bits = DT_U32,
    .digits = 23,
    .bias = 127,
    .sqrt_half = 0x3f3504f3,
    .head = 0xfffff000,
    .least = 0x1p-126,
    .lift = 0x1p24,
    .n_lift = 24,
    .huge = 0x1p30,
    .exp_lo = -176,
    .exp_hi = 89,
    .ln2 = {0x1.62e4p-1, 0x1.7f7d1cp-20},
    .pi_2 = {0x1.921fb6p+0, -0x1.777a5cp-25},
    .reduce = {0x1.921cp+0, 0x1.daap-15, 0x1.10b4p-30, 0x1.84698ap-48},
    .reduce_max = 512,
    .two_by_pi = two_by_pi_f32,
    .n_two_by_pi = countof(two_by_pi_f32),
    .two_thirds = {0x1.555556p-1, -0x1.555556p-26},
    .tanh_max = 10,
    .erf_small = 1.125,
    .erf_max = 4,
    .expm1 = {expm1_f32, countof(expm1_f32)},
    .log = {log_f32, countof(log_f32)},
    .log5 = {log5_f32, countof(log5_f32)},
    .sin = {sin_f32, countof(sin_f32)},
    .cos = {cos_f32, countof(cos_f32)},
    .atan = {atan_f32, countof(atan_f32)},
    .asin = {asin_f32, countof(asin_f32)},
    .erf = {erf_f32, countof(erf_f32)},
    .erfc_root = {erfc_root_f32, countof(erfc_root_f32)},
};

static const struct math_type math_f64 = {
    .type = DT_F64,
    .bits = DT_U64,
    .digits = 52,
    .bias = 1023,
    .sqrt_half = 0x3fe6a09e667f3bcd,
    .head = 0xfffffffff8000000,
    .least = 0x1p-1022,
    .lift = 0x1p54,
    .n_lift = 54,
    .huge = 0x1p60,
    .exp_lo = -1418,
    .exp_hi = 710,
    .ln2 = {0x1.62e42fefa2p-1, 0x1.9ef35793c7673p-41},
    .pi_2 = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54},
    .reduce = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69, 0x1.b839a252049c1p-104},
    .reduce_max = 0x1p20,
    .two_by_pi = two_by_pi_f64,
    .n_two_by_pi = countof(two_by_pi_f64),
    .two_thirds = {0x1.5555555555555p-1, 0x1.5555555555555p-55},
    .tanh_max = 20,
    .erf_small = 1,
    .erf_max = 6,
    .erfc_mid = 3.5,
    .erfc_half = 2.5,
    .expm1 = {expm1_f64, countof(expm1_f64)},
    .log = {log_f64, countof(log_f64)},
    .log5 = {log5_f64, countof(log5_f64)},
    .sin = {sin_f64, countof(sin_f64)},
    .cos = {cos_f64, countof(cos_f64)},
    .atan = {atan_f64, countof(atan_f64)},
    .asin = {asin_f64, countof(asin_f64)},
    .erf = {erf_f64, countof(erf_f64)},
    .erfc = {erfc_f64, countof(erfc_f64)},
};
// clang-format on

const struct math_type *math_type(enum dtype t)
{
    return t == DT_F32 ? &math_f32 : t == DT_F64 ? &math_f64 : NULL;
}

kval math_const(const struct math *m, double v)
{
    return kir_const_f(m->k, m->t->type, m->lanes, v);
}

kval math_word(const struct math *m, u64 v)
{
    return kir_const_i(m->k, m->t->bits, m->lanes, (i64)v);
}

kval math_poly(const struct math *m, const struct math_poly *p, kval x)
{
    kval r = math_const(m, p->c[p->n - 1]);
    for (u32 i = p->n - 1; i-- > 0;) r = kir_fma(m->k, r, x, math_const(m, p->c[i]));
    return r;
}

/* Signs. */

static u64 sign_bit(const struct math *m) { return (u64)1 << (dtype_size(m->t->type) * 8 - 1); }

kval math_abs(const struct math *m, kval x) { return kir_un(m->k, KI_ABS, x); }

kval math_sign(const struct math *m, kval x)
{
    return kir_bin(m->k, KI_AND, kir_bits(m->k, m->t->bits, x), math_word(m, sign_bit(m)));
}

kval math_flip(const struct math *m, kval x, kval sign)
{
    kval r = kir_bin(m->k, KI_XOR, kir_bits(m->k, m->t->bits, x), sign);
    return kir_bits(m->k, m->t->type, r);
}

/* Exponents. */

static kval int_const(const struct math *m, i64 v)
{
    return kir_const_i(m->k, DT_I32, m->lanes, v);
}

static kval power_of_two(const struct math *m, kval n)
{
    kval e = kir_cast(m->k, m->t->bits, kir_add(m->k, n, int_const(m, m->t->bias)));
    return kir_bits(m->k, m->t->type, kir_bin(m->k, KI_SHL, e, math_word(m, m->t->digits)));
}

kval math_power_of_two(const struct math *m, kval n)
{
    return power_of_two(m, kir_cast(m->k, DT_I32, n));
}

/* In two steps: 2^n itself may be no normal number. */
kval math_scale(const struct math *m, kval x, kval n)
{
    kval e = kir_cast(m->k, DT_I32, n), half = kir_bin(m->k, KI_SHR, e, int_const(m, 1));
    x = kir_mul(m->k, x, power_of_two(m, half));
    return kir_mul(m->k, x, power_of_two(m, kir_sub(m->k, e, half)));
}

kval math_split(const struct math *m, kval x, kval *n)
{
    struct kir *k = m->k;
    const struct math_type *t = m->t;
    kval is_tiny = kir_lt(k, x, math_const(m, t->least)), digits = math_word(m, t->digits);
    x = kir_mul(k, x, kir_select(k, is_tiny, math_const(m, t->lift), math_const(m, 1)));
    u64 one = (u64)t->bias << t->digits;
    kval u = kir_bits(k, t->bits, x), biased = kir_add(k, u, math_word(m, one - t->sqrt_half));
    biased = kir_bin(k, KI_SHR, biased, digits);
    kval e = kir_sub(k, kir_cast(k, DT_I32, biased), int_const(m, t->bias));
    e = kir_sub(k, e, kir_select(k, is_tiny, int_const(m, t->n_lift), int_const(m, 0)));
    *n = kir_cast(k, t->type, e);
    u = kir_sub(k, u, kir_bin(k, KI_SHL, biased, digits));
    return kir_bits(k, t->type, kir_add(k, u, math_word(m, one)));
}
