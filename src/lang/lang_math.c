// SPDX-License-Identifier: Apache-2.0
//
// lang_math.c: the helper functions of language c, and of languages
// without better ones, as text with placeholders (lang_text.h lists them).
//
// Most operate on one element; their vector forms apply them lane by lane, which gcc
// and clang turn into single instructions. Two functions that networks use most, exp
// and log in f32, are branch-free polynomials written so that one text serves
// scalars, vectors and vectorised loops: a comparison becomes a mask of all bits by
// `$M(...)`. Their coefficients are Chebyshev fits. Most others of f32 are arithmetic
// already (c.c calls kir_expand_math); the rest are calls of the C library per lane.
#include "lang/lang_text.h"

/* Definitions of one parameter or two whose body is an expression. */
#define UNARY(expr) "$V $F($V x)\n{\n    return " expr ";\n}\n"
#define BINARY(expr) "$V $F($V x, $V y)\n{\n    return " expr ";\n}\n"
#define N(id, set) .name = id, .types = set
// clang-format off
#define LIBRARY(id) {N(#id, T_FLOAT), .scalar = UNARY("$m" #id "$f(x)"), .n_args = 1}
// clang-format on
#define GENERIC(text) .scalar = text, .vector = text

#define LANES "for (int i = 0; i < $N; i++) "

/* Partial access. AVX-512 has instructions with a mask of a bit per lane, here 64; AVX2, for lanes of 4 and 8 bytes, with a mask of sign
   bits (d: i32, q: i64). A single element needs no mask, and stores with masks are slow to read again. */
#define IF_ONE "    if (__builtin_constant_p(n) && n == 1) "
#define MASK_AVX2(lane, access256, access128)                                                      \
    "#elif defined __AVX2__ && ($B == 16 || $B == 32)\n"                                           \
    "    typedef " lane " lanes __attribute__((vector_size($B)));\n"                               \
    "    lanes index;\n    " LANES "index[i] = i;\n"                                               \
    "    const lanes mask = index < (lanes){0} + (" lane ")(n < $N ? n < 0 ? 0 : n : $N);\n"       \
    "#if $B == 32\n    " access256 "#else\n    " access128 "#endif\n"
#define LOAD_AVX2(type, lane)                                                                      \
    MASK_AVX2(lane, "return ($V)__builtin_ia32_maskload" type "256((const lanes *)p, mask);\n",    \
              "return ($V)__builtin_ia32_maskload" type "((const lanes *)p, mask);\n")
#define STORE_AVX2(type, lane)                                                                     \
    MASK_AVX2(lane, "__builtin_ia32_maskstore" type "256((lanes *)p, mask, (lanes)x);\n",          \
              "__builtin_ia32_maskstore" type "((lanes *)p, mask, (lanes)x);\n")
/* SVE, where the length of its registers is the code's: the lanes below n are active. */
#define SVE_N(lane, access)                                                                        \
    "#elif __ARM_FEATURE_SVE_BITS == 8 * $B\n    __SVBool_t m;\n"                                  \
    "    __asm__(\"whilelt %0." lane ", xzr, %1\" : \"=Upl\"(m) : \"r\"(n) : \"cc\");\n" access
#define LOAD_SVE(load, lane)                                                                       \
    SVE_N(lane, "    $V r;\n    __asm__(\"" load " {%0." lane "}, %1/z, [%2]\" : \"=w\"(r) : \"Upl\"(m), \"r\"(p), " \
                "\"m\"(*(const $E(*)[$N])p));\n    return r;\n")
#define STORE_SVE(store, lane)                                                                     \
    SVE_N(lane, "    __asm__(\"" store " {%0." lane "}, %1, [%2]\" : : \"w\"(x), \"Upl\"(m), \"r\"(p) : \"memory\");\n")
#define LOAD_N(feature, builtin, lane, avx2)                                                       \
    "$V $F(const $E *p, i64 n)\n{\n" IF_ONE "return ($V){*p};\n"                                   \
    "#if defined __AVX512VL__ && defined " feature " && $B >= 16 && $B <= 64\n"                    \
    "    typedef " lane " lanes __attribute__((vector_size($B)));\n"                               \
    "    const u64 mask = n >= $N ? ~0ull >> (64 - $N) : n > 0 ? (1ull << n) - 1 : 0;\n"           \
    "    return ($V)__builtin_ia32_" builtin "$b_mask((const void *)p, (lanes){0}, mask);\n"       \
    avx2 "#else\n"                                                                                 \
    "    $V r = {0};\n"                                                                            \
    "    " LANES "if (i < n) r[i] = p[i];\n"                                                       \
    "    return r;\n"                                                                              \
    "#endif\n}\n"
/* Scattered loads. AVX-512 has an instruction, but it is slow: lanes that lie in one vector's length from the first to the last (an
   enlarged or padded row) are loaded at once and permuted. Every other element is two loads and a permutation. */
#define GATHER4                                                                                    \
    "$V $F(const $E *p, $X at, i64 n)\n{\n"                                                        \
    "#if defined __AVX512F__ && $N == 16\n"                                                        \
    "    typedef float half __attribute__((vector_size(32)));\n"                                   \
    "    typedef long long place __attribute__((vector_size(64)));\n"                              \
    "    union { $X x; place h[2]; } u = {at};\n"                                                  \
    "    union { half h[2]; float v16 __attribute__((vector_size(64))); $V v; } r;\n"              \
    "    const unsigned long long span = (unsigned long long)(at[15] - at[0]);\n"                  \
    "    if (span < 16 && n >= 16) {\n"                                                            \
    "        typedef int lanes __attribute__((vector_size(64)));\n"                                \
    "        const place lo = (place){0} + at[0], most = (place){0} + (long long)span;\n"          \
    "        if ((__builtin_ia32_ucmpq512_mask(u.h[0] - lo, most, 2, 255) &\n"                     \
    "             __builtin_ia32_ucmpq512_mask(u.h[1] - lo, most, 2, 255) & 255) == 255) {\n"      \
    "            const lanes which = __builtin_convertvector(at - at[0], lanes);\n"                \
    "            r.v = ($V)__builtin_ia32_loaddqusi512_mask((const void *)(p + at[0]), (lanes){0},\n" \
    "                                                       (2u << span) - 1);\n"                  \
    "#ifdef __clang__\n"                                                                           \
    "            r.v16 = __builtin_ia32_permvarsf512(r.v16, which);\n"                             \
    "#else\n"                                                                                      \
    "            r.v16 = __builtin_ia32_permvarsf512_mask(r.v16, which, r.v16, 0xffff);\n"         \
    "#endif\n            return r.v;\n        }\n    }\n"                                          \
    "    const unsigned m = n >= 16 ? 0xffff : n > 0 ? (1u << n) - 1 : 0;\n"                       \
    "    r.h[0] = __builtin_ia32_gatherdiv16sf((half){0}, p, u.h[0], m & 255, 4);\n"               \
    "    r.h[1] = __builtin_ia32_gatherdiv16sf((half){0}, p, u.h[1], m >> 8, 4);\n"                \
    "    return r.v;\n"                                                                            \
    "#else\n    $V r = {0};\n    " LANES "if (i < n) r[i] = p[at[i]];\n    return r;\n#endif\n}\n"
#define GATHER_STEP4                                                                               \
    "$V $F(const $E *p, i64 step, i64 n)\n{\n"                                                     \
    "#if $N == 16 || $N == 8\n"                                                                    \
    "    if (step == 2 && n >= $N) {\n        $V x, y;\n"                                          \
    "        __builtin_memcpy(&x, p, sizeof x);\n"                                                 \
    "        __builtin_memcpy(&y, p + $N - 1, sizeof y);\n"                                        \
    "        return __builtin_shufflevector(x, y,\n"                                               \
    "#if $N == 16\n"                                                                               \
    "            0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);\n"                    \
    "#else\n            0, 2, 4, 6, 9, 11, 13, 15);\n#endif\n    }\n#endif\n"                     \
    "    $V r = {0};\n    " LANES "if (i < n) r[i] = p[i * step];\n    return r;\n}\n"
#define STORE_N(feature, builtin, lane, avx2)                                                      \
    "void $F($E *p, $V x, i64 n)\n{\n" IF_ONE "{\n        *p = x[0];\n        return;\n    }\n"    \
    "#if defined __AVX512VL__ && defined " feature " && $B >= 16 && $B <= 64\n"                    \
    "    typedef " lane " lanes __attribute__((vector_size($B)));\n"                               \
    "    const u64 mask = n >= $N ? ~0ull >> (64 - $N) : n > 0 ? (1ull << n) - 1 : 0;\n"           \
    "    __builtin_ia32_" builtin "$b_mask((void *)p, (lanes)x, mask);\n"                          \
    avx2 "#else\n"                                                                                 \
    "    " LANES "if (i < n) p[i] = x[i];\n"                                                       \
    "#endif\n}\n"

#define STREAM_N                                                                                   \
    "void $F($E *p, $V x, i64 n)\n{\n"                                                             \
    "#if defined __clang__\n#define STREAM(p, x) __builtin_nontemporal_store(x, ($V *)(p))\n"      \
    "#elif defined __AVX512F__ && $B == 64\n"                                                      \
    "#define STREAM(p, x) __builtin_ia32_movntps512((void *)(p), (floats)(x))\n"                   \
    "#elif defined __AVX__ && $B == 32\n"                                                          \
    "#define STREAM(p, x) __builtin_ia32_movntps256((void *)(p), (floats)(x))\n"                   \
    "#elif defined __SSE2__ && $B == 16\n"                                                         \
    "#define STREAM(p, x) __builtin_ia32_movntps((void *)(p), (floats)(x))\n"                      \
    "#else\n#define STREAM(p, x) AT($V, p) = (x)\n#endif\n"                                       \
    "#if $B >= 16 && $B <= 64\n"                                                                   \
    "    typedef float floats __attribute__((vector_size($B)));\n"                                 \
    "    if (n >= $N && (u64)p % $B == 0) {\n        STREAM(p, x);\n        return;\n    }\n"      \
    "#endif\n    q_store_n_$T(p, x, n);\n#undef STREAM\n}\n"

#define DOT_X86(name)                                                                              \
    "#ifdef __clang__\n    return ($V)__builtin_ia32_" name "$b(z, x, y);\n"                       \
    "#else\n    return __builtin_ia32_" name "_v$Nsi(z, x, y);\n#endif\n"
/* Where x86 has no instruction for pairs of i16: both products, summed, then added. The addition is assembly, which keeps each sum in one register:
   compilers add in another register, or the products of many steps first, and have too few for all sums of a tile. */
#define DOT_PAIRS                                                                                  \
    "#if defined __AVX512VNNI__ || defined __AVXVNNI__\n" DOT_X86("vpdpwssd")                      \
    "#else\n    typedef short pairs __attribute__((vector_size($B)));\n"                           \
    "#if $B == 16\n    const $V p = ($V)__builtin_ia32_pmaddwd128((pairs)x, (pairs)y);\n"          \
    "#elif $B == 32\n    const $V p = ($V)__builtin_ia32_pmaddwd256((pairs)x, (pairs)y);\n"        \
    "#elif defined __clang__\n    const $V p = ($V)__builtin_ia32_pmaddwd512((pairs)x, (pairs)y);\n" \
    "#else\n    const $V p = ($V)__builtin_ia32_pmaddwd512_mask((pairs)x, (pairs)y, z, -1);\n#endif\n" \
    "#ifdef __AVX__\n    __asm__(\"vpaddd %1, %0, %0\" : \"+v\"(z) : \"v\"(p));\n"                    \
    "#else\n    __asm__(\"paddd %1, %0\" : \"+x\"(z) : \"x\"(p));\n#endif\n    return z;\n#endif\n}\n"
/* Sums of two products of u8 and i8 in i16, which saturate, then added. gcc would compute many products first and spill them, were additions not in order. */
#define DOT_SHORT                                                                                  \
    "    typedef char bytes __attribute__((vector_size($B)));\n"                                   \
    "#if $B == 16\n    z += ($V)__builtin_ia32_pmaddubsw128((bytes)x, (bytes)y);\n"                \
    "#elif $B == 32\n    z += ($V)__builtin_ia32_pmaddubsw256((bytes)x, (bytes)y);\n"              \
    "#elif defined __clang__\n    z += ($V)__builtin_ia32_pmaddubsw512((bytes)x, (bytes)y);\n"     \
    "#else\n    z += ($V)__builtin_ia32_pmaddubsw512_mask((bytes)x, (bytes)y, z, -1);\n#endif\n"   \
    "#if $B < 64\n    __asm__(\"\" : \"+x\"(z));\n#endif\n    return z;\n}\n"
/* One instruction of ARM: NEON's, or SVE's for registers of its length. */
#define ONE_ARM(text, x) "    __asm__(\"" text "\" : \"+w\"(z) : \"w\"(" x "), \"w\"(y));\n"
#define DOT_ARM(name, x) "#if $B == 16\n" ONE_ARM(name " %0.4s, %1.16b, %2.16b", x) "#else\n" ONE_ARM(name " %0.s, %1.b, %2.b", x) "#endif\n"
#define DOT_ARM_PAIRS(name, x) "#if $B == 16\n" ONE_ARM(name " %0.4s, %1.8h, %2.8h", x) "#else\n" ONE_ARM(name " %0.s, %1.h, %2.h", x) "#endif\n"
#define DOT_HEAD "$V $F($V z, $I x, $I y)\n{\n"

/* Integers to twice and four times as long ones, by one instruction; gcc before 13 widens both parts of a vector by themselves and joins them.
   extend: z or s. */
#define WIDEN(half, extend)                                                                        \
    "$V $F($X x)\n{\n    typedef char c16 __attribute__((vector_size(16)));\n"                      \
    "    typedef long long l2 __attribute__((vector_size(16)));\n"                                  \
    "    typedef " half " halves __attribute__((vector_size(2 * $N)));\n"                            \
    "#if defined __clang__\n    return __builtin_convertvector(x, $V);\n"                           \
    "#elif defined __AVX512F__ && $N == 16\n"                                                       \
    "    return ($V)__builtin_ia32_pmov" extend "xbd512_mask((c16)x, ($I){0}, -1);\n"               \
    "#elif defined __AVX2__ && $N == 8\n"                                                           \
    "    return ($V)__builtin_ia32_pmov" extend "xbd256((c16)(l2){(long long)x, 0});\n"             \
    "#else\n    return __builtin_convertvector(__builtin_convertvector(x, halves), $V);\n"          \
    "#endif\n}\n"
#define WIDEN_HALF(extend)                                                                         \
    "$V $F($X x)\n{\n    typedef short s16 __attribute__((vector_size(2 * $N)));\n"               \
    "#if defined __clang__\n    return __builtin_convertvector(x, $V);\n"                           \
    "#elif defined __AVX512F__ && $N == 16\n"                                                       \
    "    return ($V)__builtin_ia32_pmov" extend "xwd512_mask((s16)x, ($I){0}, -1);\n"               \
    "#elif defined __AVX2__ && $N == 8\n    return ($V)__builtin_ia32_pmov" extend "xwd256((s16)x);\n" \
    "#else\n    return __builtin_convertvector(x, $V);\n#endif\n}\n"
#define WIDEN_TO_HALF(extend)                                                                      \
    "$V $F($X x)\n{\n    typedef char c16 __attribute__((vector_size(16)));\n"                      \
    "    typedef char c32 __attribute__((vector_size(32)));\n"                                      \
    "    typedef long long l2 __attribute__((vector_size(16)));\n"                                  \
    "#if defined __clang__\n    return __builtin_convertvector(x, $V);\n"                           \
    "#elif defined __AVX512BW__ && $N == 32\n"                                                      \
    "    return ($V)__builtin_ia32_pmov" extend "xbw512_mask((c32)x, ($I){0}, -1);\n"               \
    "#elif defined __AVX2__ && $N == 16\n    return ($V)__builtin_ia32_pmov" extend "xbw256((c16)x);\n" \
    "#elif defined __SSE4_1__ && $N == 8\n"                                                         \
    "    return ($V)__builtin_ia32_pmov" extend "xbw128((c16)(l2){(long long)x, 0});\n"             \
    "#else\n    return __builtin_convertvector(x, $V);\n#endif\n}\n"

/* Words of 32 bits to shorter ones; gcc before 13 converts to bytes element by element, and to halves by more instructions. `mask`: digits
   that remain, so that saturation does not change them; all where elements fit the shorter type. */
#define SHORTEN_HEAD                                                                               \
    "$V $F($X x)\n{\n    typedef int i4 __attribute__((vector_size(16)));\n"                        \
    "    typedef char c16 __attribute__((vector_size(16)));\n"                                      \
    "    typedef int w8 __attribute__((vector_size(32)));\n"                                        \
    "    typedef int w16 __attribute__((vector_size(64)));\n"                                       \
    "    typedef short s16 __attribute__((vector_size(32)));\n"                                     \
    "    typedef short s8 __attribute__((vector_size(16)));\n"                                      \
    "    typedef long long l2 __attribute__((vector_size(16)));\n"                                  \
    "    typedef long long l4 __attribute__((vector_size(32)));\n"
#define SHORTEN_HALVES(mask, pack)                                                                 \
    "    const l4 w = (l4)(x" mask ");\n"                                                           \
    "    const s8 h = (s8)__builtin_ia32_" pack "dw128((i4)__builtin_ia32_extract128i256(w, 0),\n"  \
    "                                                  (i4)__builtin_ia32_extract128i256(w, 1));\n"
#define SHORTEN_TO_HALF(mask, pack)                                                                \
    SHORTEN_HEAD                                                                                   \
    "#if !defined __clang__ && defined __AVX512F__ && $N == 16\n"                                   \
    "    return ($V)__builtin_ia32_pmovdw512_mask((w16)x, (s16){0}, -1);\n"                         \
    "#elif !defined __clang__ && defined __AVX512VL__ && $N == 8\n"                                 \
    "    return ($V)__builtin_ia32_pmovdw256_mask((w8)x, (s8){0}, -1);\n"                           \
    "#elif !defined __clang__ && defined __AVX2__ && $N == 8\n"                                     \
    SHORTEN_HALVES(mask, pack) "    return ($V)h;\n"                                              \
    "#else\n    return __builtin_convertvector(x, $V);\n#endif\n}\n"
#define SHORTEN_TO_BYTE(mask, pack, pack_byte)                                                     \
    SHORTEN_HEAD                                                                                   \
    "#if !defined __clang__ && defined __AVX512F__ && $N == 16\n"                                   \
    "    return ($V)__builtin_ia32_pmovdb512_mask((w16)x, (c16){0}, -1);\n"                         \
    "#elif !defined __clang__ && defined __AVX512VL__ && $N == 8\n"                                 \
    "    return ($V)((l2)__builtin_ia32_pmovdb256_mask((w8)x, (c16){0}, -1))[0];\n"                 \
    "#elif !defined __clang__ && defined __AVX2__ && $N == 8\n"                                     \
    SHORTEN_HALVES(mask, pack)                                                                     \
    "    return ($V)((l2)__builtin_ia32_" pack_byte "128(h, h))[0];\n"                              \
    "#else\n    return __builtin_convertvector(x, $V);\n#endif\n}\n"

/* gcc 12 makes a selection of bits of SVE's registers by a comparison one instruction, which it cannot emit for constants (an internal error):
   it is not told where the mask is from. */
#define OPAQUE_MASK "#if __ARM_FEATURE_SVE_BITS\n    __asm__(\"\" : \"+w\"(m));\n#endif\n"
/* One instruction of x86 gives its second operand, as here, where one is NaN; compilers compare and select. */
#define LEAST(name, less)                                                                          \
    "$V $F($V x, $V y)\n{\n"                                                                       \
    "#if defined __AVX512F__ && $B == 64 && defined __clang__\n"                                   \
    "    return ($V)__builtin_ia32_" name "ps512(x, y, 4);\n"                                      \
    "#elif defined __AVX512F__ && $B == 64\n"                                                      \
    "    return ($V)__builtin_ia32_" name "ps512_mask(x, y, x, -1, 4);\n"                          \
    "#elif defined __AVX__ && $B == 32\n    return ($V)__builtin_ia32_" name "ps256(x, y);\n"      \
    "#elif defined __SSE__ && $B == 16\n    return ($V)__builtin_ia32_" name "ps(x, y);\n"         \
    "#else\n    $I m = $M(x " less " y);\n" OPAQUE_MASK                                            \
    "    return ($V)((m & ($I)x) | (~m & ($I)y));\n#endif\n}\n"

/* Rounding to the nearest integer, which becomes an i32: one instruction of x86. */
#define ROUND_I32                                                                                  \
    "$I $F($V x)\n{\n"                                                                             \
    "#if defined __AVX512F__ && $B == 64\n"                                                        \
    "    return ($I)__builtin_ia32_cvtps2dq512_mask(x, ($I){0}, -1, 4);\n"                         \
    "#elif defined __AVX__ && $B == 32\n    return ($I)__builtin_ia32_cvtps2dq256(x);\n"           \
    "#elif defined __SSE2__ && $B == 16\n    return ($I)__builtin_ia32_cvtps2dq(x);\n"             \
    "#else\n    return __builtin_convertvector(q_rint_$T(x), $I);\n#endif\n}\n"

/* e^x = 2 e^r 2^(n - 1), n integer. The last bits of t are n + 126, the exponent of the power: 1 to 254, but 0 where the result would
   be less than 2^-125.5. The power is 0 then, and so is the result: no underflow, which is slow, for all that a mask excludes from a
   softmax, and no second power as for subnormal numbers. p is 2 (e^r - 1). */
#define EXP_TEXT                                                                                   \
    "$V $F($V x)\n{\n"                                                                             \
    "    x = q_max_$T(($V){0} - 87.5f, q_min_$T(($V){0} + 89.0f, x));\n"                           \
    "    const $V magic = ($V){0} + 0x1.8000fcp23f, t = x * 0x1.715476p+0f + magic, n = t - magic;\n" \
    "    const $V r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;\n"                             \
    "    $V p = r * 0x1.6d1254p-9f + 0x1.120cbap-6f;\n"                                            \
    "    p = p * r + 0x1.555518p-4f;\n"                                                            \
    "    p = p * r + 0x1.5554dcp-2f;\n"                                                            \
    "    p = p * r + 1.0f;\n"                                                                      \
    "    p = p * (r * r) + (r + r) + 2.0f;\n"                                                      \
    "    return p * q_of_bits_$T(q_bits_of_$T(t) << 23);\n}\n"

#define LOG_TEXT                                                                                   \
    "$V $F($V x)\n{\n"                                                                             \
    "    const $I tiny = $M(x < 0x1p-126f);\n"                                                     \
    "    const $U u = q_bits_of_$T(x * q_of_bits_$T((($U)tiny & 0x74000000u) ^ 0x3f800000u));\n"   \
    "    const $I e = ($I)(u - 0x3f3504f3u) >> 23;\n"                                              \
    "    const $V f = q_of_bits_$T(u - (($U)e << 23)) - 1.0f, n = q_float_of_$T(e - (tiny & "      \
    "24));\n"                                                                                      \
    "    $V p = f * 0x1.1d9df2p-4f - 0x1.d64804p-4f;\n"                                            \
    "    p = p * f + 0x1.dea5a6p-4f;\n"                                                            \
    "    p = p * f - 0x1.fcf2acp-4f;\n"                                                            \
    "    p = p * f + 0x1.23d1d8p-3f;\n"                                                            \
    "    p = p * f - 0x1.555b52p-3f;\n"                                                            \
    "    p = p * f + 0x1.999d5cp-3f;\n"                                                            \
    "    p = p * f - 0x1.fffffcp-3f;\n"                                                            \
    "    p = p * f + 0x1.555554p-2f;\n"                                                            \
    "    p = p * (f * f * f) + n * 0x1.7f7d1cp-20f;\n"                                             \
    "    p = (p - f * f * 0.5f) + f + n * 0x1.62e4p-1f;\n"                                         \
    "    const $I zero = $M(x == 0.0f), top = $M(x == __builtin_inff()), bad = ~$M(x >= 0.0f);\n"  \
    "    const $I inf = (zero & (i32)0xff800000u) | (top & 0x7f800000);\n"                         \
    "    const $I r = (($I)q_bits_of_$T(p) & ~(zero | top)) | inf | bad;\n"                        \
    "    return q_of_bits_$T(($U)r);\n}\n"

/* f16: halfway cases to even, denormals, overflow to infinity. $H is the u16 form. Denormals of f16 are no denormals of f32 on the way where
   vectors take these for zeros (NEON of 32-bit ARM): their bits are a number of units of 2^-24. */
#define FROM_F16_TEXT                                                                              \
    "#ifdef __arm__\n"                                                                             \
    "    const $U w = q_wide_$T(h), n = w & 0x7fff, few = ($U)$M(n < 0x400u), all = ($U)$M(n >= 0x7c00u) & 0x38000000u;\n" \
    "    const $U normal = (n << 13) + 0x38000000u + all;\n"                                      \
    "    const $V tiny = (q_of_bits_$T(n | 0x4b000000u) - 0x1p23f) * 0x1p-24f;\n"                  \
    "    return q_of_bits_$T((q_bits_of_$T(tiny) & few) | (normal & ~few) | (w & 0x8000) << 16);\n#else\n" \
    "    const $U u = q_wide_$T(h), m = u & 0x7fff;\n"                                             \
    "    const $U inf = ($U)$M(m >= 0x7c00u) & 0x7f800000u;\n"                                     \
    "    const $V f = q_of_bits_$T(m << 13) * 0x1p112f;\n"                                         \
    "    return q_of_bits_$T(q_bits_of_$T(f) | inf | (u & 0x8000) << 16);\n#endif\n"
#define TO_F16_TEXT                                                                                \
    "    const $U u = q_bits_of_$T(x), a = u & 0x7fffffff;\n"                                      \
    "    const $U top = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;\n"                         \
    "    const $U low = q_bits_of_$T(q_of_bits_$T(a) + 0.5f) - 0x3f000000;\n"                      \
    "    const $U is_low = ($U)$M(a < 0x38800000u), is_inf = ($U)$M(a >= 0x477ff000u);\n"          \
    "    const $U is_nan = ($U)$M(a > 0x7f800000u);\n"                                             \
    "    const $U r = (((low & is_low) | (top & ~is_low)) & ~is_inf) | (is_inf & 0x7c00) | "       \
    "(is_nan & 0x200);\n"                                                                          \
    "    return q_narrow_$T(r | (u >> 16 & 0x8000));\n"
/* Bits of halves to words, by one instruction; gcc before 13 widens both parts of a vector by themselves and joins them. */
#define WIDE_HALVES                                                                                \
    "    typedef short s16 __attribute__((vector_size(2 * $N)));\n"                                \
    "#if defined __clang__\n    return __builtin_convertvector(x, $U);\n"                         \
    "#elif defined __AVX512F__ && $N == 16\n"                                                      \
    "    return ($U)__builtin_ia32_pmovzxwd512_mask((s16)x, ($I){0}, -1);\n"                       \
    "#elif defined __AVX2__ && $N == 8\n    return ($U)__builtin_ia32_pmovzxwd256((s16)x);\n#else\n"
/* The reverse: words are at most 65535, so that saturation does not change them. */
#define NARROW_HALVES                                                                              \
    "    typedef int i4 __attribute__((vector_size(16)));\n"                                       \
    "    typedef short s16 __attribute__((vector_size(2 * $N)));\n"                                \
    "#if defined __clang__\n    return __builtin_convertvector(x, $H);\n"                         \
    "#elif defined __AVX512F__ && $N == 16\n"                                                      \
    "    return ($H)__builtin_ia32_pmovdw512_mask(($I)x, (s16){0}, -1);\n"                         \
    "#elif defined __AVX2__ && $N == 8\n"                                                          \
    "    typedef long long l4 __attribute__((vector_size(32)));\n"                                 \
    "    return ($H)__builtin_ia32_packusdw128((i4)__builtin_ia32_extract128i256((l4)x, 0),\n"      \
    "                                          (i4)__builtin_ia32_extract128i256((l4)x, 1));\n#else\n"

/* Instructions for f16 and f32: of 16, 8 and 4 lanes and of one, by F16C and AVX-512, and of 4 and one on ARM, which has them in its base. */
#define HALF_FAST(x86_16, x86_8, x86_4, arm_4)                                                      \
    "    typedef short s16 __attribute__((vector_size(2 * $N)));\n"                                \
    "    typedef short s8 __attribute__((vector_size(16)));\n"                                      \
    "#if defined __AVX512F__ && $N == 16\n    " x86_16 "\n#elif defined __F16C__ && $N == 8\n    " x86_8 \
    "\n#elif defined __F16C__ && $N == 4\n    " x86_4 "\n#elif defined __aarch64__ && $N == 4\n    " arm_4 "\n#else\n"
#define HALF_FAST_ONE(x86, arm)                                                                     \
    "#ifdef __F16C__\n    typedef short s8 __attribute__((vector_size(16)));\n    " x86            \
    "\n#elif defined __aarch64__\n    " arm "\n#else\n"

/* There are no shifts of bytes: by 4, 2 and 1, of pairs of bytes. Those that a constant does not have are no instructions. */
#define SHR_BYTES                                                                                  \
    "$V $F($V x, $V y)\n{\n    typedef u16 __attribute__((vector_size(sizeof(x)))) halves;\n    $V m;\n" \
    "    m = ($V)((y & 4) != 0), x = (($V)((halves)x >> 4 & 0x0f0f) & m) | (x & ~m);\n"           \
    "    m = ($V)((y & 2) != 0), x = (($V)((halves)x >> 2 & 0x3f3f) & m) | (x & ~m);\n"           \
    "    m = ($V)((y & 1) != 0), x = (($V)((halves)x >> 1 & 0x7f7f) & m) | (x & ~m);\n"           \
    "    return x;\n}\n"

const struct text_helper text_helpers[] = {
    /* Shape. */
    {N("splat", ~0u), .vector = "$V $F($e x)\n{\n    return ($V){$A};\n}\n"},
    {N("ramp", T_I64), .vector = "$V $F(i64 x, i64 step)\n{\n    $V r;\n    " LANES
                                 "r[i] = x + i * step;\n    return r;\n}\n"},
    {N("select", ~0u),
     .vector = "$V $F($I m, $V x, $V y)\n{\n" OPAQUE_MASK "    return ($V)((m & ($I)x) | (~m & ($I)y));\n}\n"},
    {N("bits", ~0u),
     .scalar = "$E $F($x x)\n{\n    union { $x x; $E y; } u = {x};\n    return u.y;\n}\n"},
    {N("hadd", T_FLOAT), .across = "x + y"},
    {N("hadd", T_INT), .across = "($E)(($W)x + ($W)y)"},
    {N("hmin", T_NUMBER), .across = "x < y ? x : y"},
    {N("hmax", T_NUMBER), .across = "x > y ? x : y"},

    /* Memory. */
    {N("load_n", T_BYTES1), .vector = LOAD_N("__AVX512BW__", "loaddquqi", "char", LOAD_SVE("ld1b", "b"))},
    {N("load_n", T_BYTES2), .vector = LOAD_N("__AVX512BW__", "loaddquhi", "short", LOAD_SVE("ld1h", "h"))},
    {N("load_n", T_BYTES4), .vector = LOAD_N("__AVX512F__", "loaddqusi", "int", LOAD_AVX2("d", "int") LOAD_SVE("ld1w", "s"))},
    {N("load_n", T_BYTES8), .vector = LOAD_N("__AVX512F__", "loaddqudi", "long long", LOAD_AVX2("q", "long long") LOAD_SVE("ld1d", "d"))},
    {N("store_n", T_BYTES1), .vector = STORE_N("__AVX512BW__", "storedquqi", "char", STORE_SVE("st1b", "b"))},
    {N("store_n", T_BYTES2), .vector = STORE_N("__AVX512BW__", "storedquhi", "short", STORE_SVE("st1h", "h"))},
    {N("store_n", T_BYTES4), .vector = STORE_N("__AVX512F__", "storedqusi", "int", STORE_AVX2("d", "int") STORE_SVE("st1w", "s"))},
    {N("store_n", T_BYTES8), .vector = STORE_N("__AVX512F__", "storedqudi", "long long", STORE_AVX2("q", "long long") STORE_SVE("st1d", "d"))},
    {N("stream_n", T_NUMBER), .vector = STREAM_N, .needs = "store_n"},
    {N("gather", T_BYTES4), .vector = GATHER4},
    {N("gather", T_NUMBER), .vector =
                                "$V $F(const $E *p, $X at, i64 n)\n{\n    $V r = {0};\n    " LANES
                                "if (i < n) r[i] = p[at[i]];\n    return r;\n}\n"},
    {N("scatter", T_NUMBER), .vector = "void $F($E *p, $X at, $V x, i64 n)\n{\n    " LANES
                                       "if (i < n) p[at[i]] = x[i];\n}\n"},
    {N("gather_step", T_BYTES4), .vector = GATHER_STEP4},
    {N("gather_step", T_NUMBER),
     .vector = "$V $F(const $E *p, i64 step, i64 n)\n{\n    $V r = {0};\n    " LANES
               "if (i < n) r[i] = p[i * step];\n    return r;\n}\n"},
    {N("scatter_step", T_NUMBER), .vector = "void $F($E *p, i64 step, $V x, i64 n)\n{\n    " LANES
                                            "if (i < n) p[i * step] = x[i];\n}\n"},

    /* Integers wrap. */
    {N("neg", T_INT), GENERIC(UNARY("($V)(0 - ($U)x)"))},
    {N("abs", T_UINT), GENERIC(UNARY("x"))},
    {N("abs", T_SINT), .scalar = UNARY("x < 0 ? ($E)(0 - ($W)x) : x"), .n_args = 1},
    {N("not", T_INT), GENERIC(UNARY("($V)~x"))},
    {N("add", T_INT), .scalar = BINARY("($E)(($W)x + ($W)y)"), BINARY("($V)(($U)x + ($U)y)")},
    {N("sub", T_INT), .scalar = BINARY("($E)(($W)x - ($W)y)"), BINARY("($V)(($U)x - ($U)y)")},
    {N("mul", T_INT), .scalar = BINARY("($E)(($W)x * ($W)y)"), BINARY("($V)(($U)x * ($U)y)")},
    {N("fma", T_INT),
     .scalar = "$E $F($E x, $E y, $E z)\n{\n    return ($E)(($W)x * ($W)y + ($W)z);\n}\n",
     "$V $F($V x, $V y, $V z)\n{\n    return ($V)(($U)x * ($U)y + ($U)z);\n}\n"},
    {N("div", T_UINT), .scalar = BINARY("x / y"), .n_args = 2},
    {N("div", T_SINT), .scalar = BINARY("y == -1 ? ($E)(0 - ($W)x) : x / y"), .n_args = 2},
    {N("mod", T_UINT), .scalar = BINARY("x % y"), .n_args = 2},
    {N("mod", T_SINT), .scalar = BINARY("y == -1 ? 0 : x % y"), .n_args = 2},
    {N("shl", T_INT), .scalar = BINARY("($E)(($W)x << (y & ($s - 1)))"), .n_args = 2},
    {N("shr", 1 << DT_U8), .scalar = BINARY("x >> (y & ($s - 1))"), .vector = SHR_BYTES},
    {N("shr", T_INT), .scalar = BINARY("x >> (y & ($s - 1))"), .n_args = 2},
    {N("pow", T_INT),
     .scalar = "$E $F($E x, $E y)\n{\n    $W r = 1, f = ($W)x;\n    if (y < 0) return 0;\n"
               "    for (; y > 0; y >>= 1, f *= f) r = y & 1 ? r * f : r;\n    return ($E)r;\n}\n",
     .n_args = 2},

    /* Integers to longer and shorter ones. */
    {N("widen_u8", 1 << DT_I32), .vector = WIDEN("unsigned short", "z")},
    {N("widen_i8", 1 << DT_I32), .vector = WIDEN("short", "s")},
    {N("widen_u16", 1 << DT_I32), .vector = WIDEN_HALF("z")},
    {N("widen_i16", 1 << DT_I32), .vector = WIDEN_HALF("s")},
    {N("widen_u8", 1 << DT_I16), .vector = WIDEN_TO_HALF("z")},
    {N("widen_i8", 1 << DT_I16), .vector = WIDEN_TO_HALF("s")},
    {N("shorten", T_BYTES2), .vector = SHORTEN_TO_HALF(" & 0xffff", "packus")},
    {N("shorten", T_BYTES1), .vector = SHORTEN_TO_BYTE(" & 0xff", "packus", "packuswb")},
    {N("shorten_fit", 1 << DT_I16), .vector = SHORTEN_TO_HALF("", "packss")},
    {N("shorten_fit", 1 << DT_U16), .vector = SHORTEN_TO_HALF("", "packus")},
    {N("shorten_fit", 1 << DT_U8), .vector = SHORTEN_TO_BYTE("", "packss", "packuswb")},
    {N("shorten_fit", 1 << DT_I8), .vector = SHORTEN_TO_BYTE("", "packss", "packsswb")},

    /* Sums of products of neighbours, added to z without saturation. ARM's older processors have them for bytes of
       equal signs only: u*i is (u - 128)*i less -128*i. MMLA: of 2x2 sums. */
    {N("dot_u8_i8", 1 << DT_I32),
     .vector = DOT_HEAD
     "#ifndef __aarch64__\n" DOT_X86("vpdpbusd")
     "#elif defined __ARM_FEATURE_MATMUL_INT8\n" DOT_ARM("usdot", "x") "    return z;\n"
     "#else\n    $V w = z, low = ($I){0} + (int)0x80808080;\n    z = ($V){0};\n" DOT_ARM("sdot", "low")
     "    low = z, z = w;\n" DOT_ARM("sdot", "x ^ (int)0x80808080") "    return z - low;\n#endif\n}\n"},
    {N("dot_i8_i8", 1 << DT_I32), .vector = DOT_HEAD DOT_ARM("sdot", "x") "    return z;\n}\n"},
    {N("dot_u8_u8", 1 << DT_I32), .vector = DOT_HEAD DOT_ARM("udot", "x") "    return z;\n}\n"},
    {N("mmla_u8_i8", 1 << DT_I32), .vector = DOT_HEAD DOT_ARM("usmmla", "x") "    return z;\n}\n"},
    {N("mmla_i8_i8", 1 << DT_I32), .vector = DOT_HEAD DOT_ARM("smmla", "x") "    return z;\n}\n"},
    {N("mmla_u8_u8", 1 << DT_I32), .vector = DOT_HEAD DOT_ARM("ummla", "x") "    return z;\n}\n"},
    {N("mmla_bf16_bf16", T_F32), .vector = DOT_HEAD DOT_ARM_PAIRS("bfmmla", "x") "    return z;\n}\n"},
    {N("dot_i16_i16", 1 << DT_I32), .vector = DOT_HEAD DOT_PAIRS},
    {N("dot_u8_i8", 1 << DT_I16), .vector = DOT_HEAD DOT_SHORT},
    {N("dot_bf16_bf16", T_F32),
     .vector = DOT_HEAD
               "#ifdef __aarch64__\n" DOT_ARM_PAIRS("bfdot", "x") "    return z;\n"
               "#elif defined __clang__ && __clang_major__ < 16\n"
               "    return __builtin_ia32_dpbf16ps_$b(z, x, y);\n#else\n"
               "#if __GNUC__ < 13 && !defined __clang__\n    typedef short half;\n"
               "#else\n    typedef __bf16 half;\n#endif\n"
               "    typedef half pairs __attribute__((vector_size($B)));\n"
               "#ifdef __clang__\n    return __builtin_ia32_dpbf16ps_$b(z, (pairs)x, (pairs)y);\n"
               "#else\n    return __builtin_ia32_dpbf16ps_v$Nsf(z, (pairs)x, (pairs)y);\n#endif\n#endif\n}\n"},

    /* Products of f16 are added to f32 by halves of vectors: the first terms of all lanes, then the second. */
    {N("dot_f16_f16", T_F32),
     .vector = DOT_HEAD "    typedef short halves __attribute__((vector_size(16)));\n"
               "    const halves p = __builtin_shufflevector((halves)x, (halves)x, 0, 2, 4, 6, 1, 3, 5, 7);\n"
               "    const halves q = __builtin_shufflevector((halves)y, (halves)y, 0, 2, 4, 6, 1, 3, 5, 7);\n"
               "    __asm__(\"fmlal %0.4s, %1.4h, %2.4h\\n\\tfmlal2 %0.4s, %1.4h, %2.4h\" : \"+w\"(z) : \"w\"(p), \"w\"(q));\n    return z;\n}\n"},

    /* Numbers. */
    {N("min", T_F32), .scalar = BINARY("x < y ? x : y"), .vector = LEAST("min", "<")},
    {N("max", T_F32), .scalar = BINARY("x > y ? x : y"), .vector = LEAST("max", ">")},
    {N("min", T_NUMBER), .scalar = BINARY("x < y ? x : y"), .n_args = 2},
    {N("max", T_NUMBER), .scalar = BINARY("x > y ? x : y"), .n_args = 2},
    {N("isinf", T_F32),
     .scalar = "_Bool $F($E x)\n{\n    return $mfabs$f(x) == $0;\n}\n",
     "$I $F($V x)\n{\n    return (($I)x & 0x7fffffff) == 0x7f800000;\n}\n"},
    {N("isinf", T_F64),
     .scalar = "_Bool $F($E x)\n{\n    return $mfabs$f(x) == $0;\n}\n",
     "$I $F($V x)\n{\n    return (($I)x & 0x7fffffffffffffff) == 0x7ff0000000000000;\n}\n"},
    {N("abs", T_FLOAT), .scalar = UNARY("$mfabs$f(x)"), .n_args = 1},
    {N("mod", T_FLOAT), .scalar = BINARY("$mfmod$f(x, y)"), .n_args = 2},
    {N("pow", T_FLOAT), .scalar = BINARY("$mpow$f(x, y)"), .n_args = 2},

    /* Bits of f32, in one form for scalars and vectors. */
    {N("bits_of", T_F32),
     .scalar = "u32 $F(f32 x)\n{\n    union { f32 x; u32 y; } u = {x};\n    return u.y;\n}\n",
     "$U $F($V x)\n{\n    return ($U)x;\n}\n"},
    {N("of_bits", T_F32),
     .scalar = "f32 $F(u32 x)\n{\n    union { u32 x; f32 y; } u = {x};\n    return u.y;\n}\n",
     "$V $F($U x)\n{\n    return ($V)x;\n}\n"},
    {N("float_of", T_F32), .scalar = "f32 $F(i32 x)\n{\n    return (f32)x;\n}\n",
     "$V $F($I x)\n{\n    return __builtin_convertvector(x, $V);\n}\n"},
    {N("round_i32", T_F32), .vector = ROUND_I32, .needs = "rint"},
    {N("wide", T_F32), .scalar = "u32 $F(u16 x)\n{\n    return x;\n}\n",
     "$U $F($H x)\n{\n" WIDE_HALVES "    return __builtin_convertvector(x, $U);\n#endif\n}\n"},
    {N("narrow", T_F32), .scalar = "u16 $F(u32 x)\n{\n    return (u16)x;\n}\n",
     "$H $F($U x)\n{\n" NARROW_HALVES "    return __builtin_convertvector(x, $H);\n#endif\n}\n"},

    /* Functions of f32. */
    {N("exp", T_F32), GENERIC(EXP_TEXT), .needs = "min max bits_of of_bits"},
    {N("log", T_F32), GENERIC(LOG_TEXT), .needs = "bits_of of_bits float_of"},
    {N("from_f16", T_F32),
     .scalar = "f32 $F(u16 h)\n{\n" HALF_FAST_ONE(
         "return __builtin_ia32_vcvtph2ps((s8){(short)h})[0];",
         "union { u16 x; __fp16 y; } u = {h};\n    return u.y;") FROM_F16_TEXT "#endif\n}\n",
     "$V $F($H h)\n{\n" HALF_FAST(
         "return ($V)__builtin_ia32_vcvtph2ps512_mask((s16)h, ($V){0}, -1, 4);",
         "return ($V)__builtin_ia32_vcvtph2ps256((s16)h);",
         "s8 w = {0};\n    __builtin_memcpy(&w, &h, sizeof h);\n    return ($V)__builtin_ia32_vcvtph2ps(w);",
         "$V r;\n    __asm__(\"fcvtl %0.4s, %1.4h\" : \"=w\"(r) : \"w\"(h));\n    return r;") FROM_F16_TEXT "#endif\n}\n",
     .needs = "bits_of of_bits wide"},
    {N("to_f16", T_F32),
     .scalar = "u16 $F(f32 x)\n{\n" HALF_FAST_ONE(
         "typedef float f4 __attribute__((vector_size(16)));\n    return (u16)__builtin_ia32_vcvtps2ph((f4){x}, 0)[0];",
         "union { __fp16 y; u16 x; } u = {(__fp16)x};\n    return u.x;") TO_F16_TEXT "#endif\n}\n",
     "$H $F($V x)\n{\n" HALF_FAST(
         "return ($H)__builtin_ia32_vcvtps2ph512_mask(x, 0, (s16){0}, -1);",
         "return ($H)__builtin_ia32_vcvtps2ph256(x, 0);",
         "s8 w = __builtin_ia32_vcvtps2ph(x, 0);\n    $H r;\n    __builtin_memcpy(&r, &w, sizeof r);\n    return r;",
         "$H r;\n    __asm__(\"fcvtn %0.4h, %1.4s\" : \"=w\"(r) : \"w\"(x));\n    return r;") TO_F16_TEXT "#endif\n}\n",
     .needs = "bits_of of_bits narrow"},
    {N("from_bf16", T_F32),
     GENERIC("$V $F($H h)\n{\n    return q_of_bits_$T(q_wide_$T(h) << 16);\n}\n"),
     .needs = "of_bits wide"},
    {N("bf16_of_exact", T_F32), /* of an f32 that is a bf16 */
     GENERIC("$H $F($V x)\n{\n    return q_narrow_$T(q_bits_of_$T(x) >> 16);\n}\n"), .needs = "bits_of narrow"},
    {N("to_bf16", T_F32),
     GENERIC("$H $F($V x)\n{\n    const $U u = q_bits_of_$T(x), r = (u >> 16 & 1) + (u + 0x7fff);\n"
             "    return q_narrow_$T((r | ($U)$M(x != x)) >> 16); /* any NaN becomes the one with all bits set */\n}\n"),
     .needs = "bits_of narrow"},

    /* Functions of the C library. */
    // clang-format off
    LIBRARY(sqrt), LIBRARY(exp), LIBRARY(log), LIBRARY(sin), LIBRARY(cos), LIBRARY(tan),
    LIBRARY(asin), LIBRARY(acos), LIBRARY(atan), LIBRARY(sinh), LIBRARY(cosh), LIBRARY(tanh),
    LIBRARY(asinh), LIBRARY(acosh), LIBRARY(atanh), LIBRARY(erf), LIBRARY(floor), LIBRARY(ceil),
    LIBRARY(trunc), LIBRARY(rint),
    // clang-format on
    {0},
};
