// SPDX-License-Identifier: Apache-2.0
//
// Tile registers of AMX in plain C, for texts of language c that are compiled on a processor without them: `-include` defines the intrinsics that such
// texts use before they do. After the pseudocode of Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2 (LDTILECFG, TILELOADD,
// TDPBF16PS, TDPBSSD ...); where a processor raises #UD or #GP, the program ends.
#ifndef QUERN_TEST_TILE_MODEL_H
#define QUERN_TEST_TILE_MODEL_H

#include <string.h>

enum { TM_TILES = 8, TM_ROWS = 16, TM_BYTES = 64 };

static _Thread_local struct {
    int is_configured;
    unsigned rows[TM_TILES], bytes[TM_TILES];
    unsigned char data[TM_TILES][TM_ROWS][TM_BYTES];
} tm;

#define TM_CALL __attribute__((noinline, unused)) /* texts have many calls, which compile for long if they are expanded */
#define TM_NEED(x) do { if (!(x)) __builtin_trap(); } while (0)

static TM_CALL void tm_config(const void *config)
{
    const unsigned char *c = config;
    TM_NEED(c[0] == 1); /* palette */
    for (int i = 1; i < 16; i++) TM_NEED(c[i] == 0); /* start_row and reserved bytes */
    for (int i = 0; i < 16; i++) {
        unsigned rows = c[48 + i], bytes = c[16 + 2 * i] | (unsigned)c[17 + 2 * i] << 8;
        TM_NEED(i < TM_TILES || (!rows && !bytes));
        TM_NEED(rows <= TM_ROWS && bytes <= TM_BYTES && bytes % 4 == 0 && !rows == !bytes);
        if (i < TM_TILES) tm.rows[i] = rows, tm.bytes[i] = bytes;
    }
    memset(tm.data, 0, sizeof tm.data);
    tm.is_configured = 1;
}

static TM_CALL void tm_release(void)
{
    TM_NEED(tm.is_configured); /* no error of a processor's: texts have no reason to */
    memset(&tm, 0, sizeof tm);
}

static TM_CALL void tm_zero(int d)
{
    TM_NEED(tm.is_configured && tm.rows[d]);
    memset(tm.data[d], 0, sizeof tm.data[d]);
}

static TM_CALL void tm_load(int d, const void *p, long long stride)
{
    tm_zero(d);
    for (unsigned r = 0; r < tm.rows[d]; r++) memcpy(tm.data[d][r], (const char *)p + r * stride, tm.bytes[d]);
}

static TM_CALL void tm_store(int s, void *p, long long stride)
{
    TM_NEED(tm.is_configured && tm.rows[s]);
    for (unsigned r = 0; r < tm.rows[s]; r++) memcpy((char *)p + r * stride, tm.data[s][r], tm.bytes[s]);
}

/* What all products require: three registers, shapes that fit. */
static void tm_check(int d, int a, int b)
{
    TM_NEED(tm.is_configured && d != a && d != b && a != b);
    TM_NEED(tm.rows[d] && tm.rows[d] == tm.rows[a] && tm.bytes[d] == tm.bytes[b] && tm.bytes[a] / 4 == tm.rows[b]);
}

static float tm_f32(unsigned u)
{
    float f;
    if (!(u & 0x7f800000)) u &= 0x80000000; /* denormals are zeros */
    memcpy(&f, &u, sizeof f);
    return f;
}

static float tm_flush(float f)
{
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return tm_f32(u);
}

static float tm_bf16(const unsigned char *p, unsigned i)
{
    unsigned short u;
    memcpy(&u, p + 2 * i, sizeof u);
    return tm_f32((unsigned)u << 16);
}

static TM_CALL void tm_dpbf16ps(int d, int a, int b)
{
    tm_check(d, a, b);
    for (unsigned m = 0; m < tm.rows[d]; m++)
        for (unsigned n = 0; n < tm.bytes[d] / 4; n++) {
            float sum[2] = {0, 0}, c;
            for (unsigned k = 0; k < tm.bytes[a] / 4; k++)
                for (unsigned i = 0; i < 2; i++)
                    sum[i] = tm_flush(__builtin_fmaf(tm_bf16(tm.data[a][m], 2 * k + i), tm_bf16(tm.data[b][k], 2 * n + i), sum[i]));
            memcpy(&c, &tm.data[d][m][4 * n], sizeof c);
            c = tm_flush(tm_flush(c) + tm_flush(sum[0] + sum[1]));
            memcpy(&tm.data[d][m][4 * n], &c, sizeof c);
        }
}

static int tm_byte(const unsigned char *p, unsigned i, int is_signed) { return is_signed ? (signed char)p[i] : p[i]; }

/* Sums wrap. */
static TM_CALL void tm_dpb(int d, int a, int b, int a_signed, int b_signed)
{
    tm_check(d, a, b);
    for (unsigned m = 0; m < tm.rows[d]; m++)
        for (unsigned n = 0; n < tm.bytes[d] / 4; n++) {
            unsigned c;
            memcpy(&c, &tm.data[d][m][4 * n], sizeof c);
            for (unsigned k = 0; k < tm.bytes[a] / 4; k++)
                for (unsigned i = 0; i < 4; i++)
                    c += (unsigned)(tm_byte(tm.data[a][m], 4 * k + i, a_signed) * tm_byte(tm.data[b][k], 4 * n + i, b_signed));
            memcpy(&tm.data[d][m][4 * n], &c, sizeof c);
        }
}

#define _tile_loadconfig(p) tm_config(p)
#define _tile_release() tm_release()
#define _tile_zero(d) tm_zero(d)
#define _tile_loadd(d, p, n) tm_load(d, p, n)
#define _tile_stored(s, p, n) tm_store(s, p, n)
#define _tile_dpbf16ps(d, a, b) tm_dpbf16ps(d, a, b)
#define _tile_dpbssd(d, a, b) tm_dpb(d, a, b, 1, 1)
#define _tile_dpbsud(d, a, b) tm_dpb(d, a, b, 1, 0)
#define _tile_dpbusd(d, a, b) tm_dpb(d, a, b, 0, 1)
#define _tile_dpbuud(d, a, b) tm_dpb(d, a, b, 0, 0)

#endif
