// SPDX-License-Identifier: Apache-2.0
//
// .pfm: portable float map, a format of renderers. Header "PF" (RGB) or "Pf" (grey), width,
// height and a scale whose sign is the byte order (negative: little-endian), then rows of
// floats from the bottom up. The magnitude of the scale is ignored, as by other readers.
#include <string.h>

#include "io/io.h"

enum { MAX_SIZE = 1 << 20 }; /* pixels of a side */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* The next word of the header; exactly one white space after it is consumed. */
static struct str next_word(struct str bytes, i64 *at)
{
    while (*at < bytes.n && is_space(bytes.p[*at])) ++*at;
    i64 from = *at;
    while (*at < bytes.n && !is_space(bytes.p[*at])) ++*at;
    struct str w = str_sub(bytes, from, *at);
    if (*at < bytes.n) ++*at;
    return w;
}

static float load_float(const char *p, bool little)
{
    u8 b[4];
    float f;
    for (int k = 0; k < 4; k++) b[k] = (u8)p[little ? k : 3 - k];
    u32 bits = b[0] | (u32)b[1] << 8 | (u32)b[2] << 16 | (u32)b[3] << 24;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static bool pfm_read(struct tensor *out, struct arena *a, struct str bytes, struct err *e)
{
    i64 at = 0, w, h;
    double scale;
    struct str magic = next_word(bytes, &at);
    if (!str_is(magic, "PF") && !str_is(magic, "Pf")) return err_set(e, ERR_INPUT, "not a pfm file");
    i64 c = magic.p[1] == 'F' ? 3 : 1;
    bool ok = str_to_i64(next_word(bytes, &at), &w) && str_to_i64(next_word(bytes, &at), &h) &&
              str_to_f64(next_word(bytes, &at), &scale);
    if (!ok || w < 1 || h < 1 || w > MAX_SIZE || h > MAX_SIZE || !(scale < 0 || scale > 0))
        return err_set(e, ERR_INPUT, "invalid pfm header");
    if ((bytes.n - at) / 4 / c / w < h) return err_set(e, ERR_INPUT, "pfm file too short");
    if (!io_image_new(out, a, c, h, w, e)) return false;
    float *to = out->data; /* (c, h, w) */
    for (i64 y = 0; y < h; y++)
        for (i64 x = 0; x < w; x++)
            for (i64 k = 0; k < c; k++)
                to[(k * h + y) * w + x] = load_float(bytes.p + at + 4 * (((h - 1 - y) * w + x) * c + k), scale < 0);
    return true;
}

static bool pfm_write(struct buf *out, const struct tensor *t, struct err *e)
{
    struct io_image im;
    if (!io_image_of(&im, t, e)) return false;
    if (im.c != 1 && im.c != 3)
        return err_set(e, ERR_INPUT, "pfm holds 1 or 3 channels, the tensor has %lld", (long long)im.c);
    buf_printf(out, "%s\n%lld %lld\n-1.0\n", im.c == 3 ? "PF" : "Pf", (long long)im.w, (long long)im.h);
    for (i64 y = im.h - 1; y >= 0; y--)
        for (i64 x = 0; x < im.w; x++)
            for (i64 k = 0; k < im.c; k++) {
                float f = (float)io_image_get(&im, k, y, x);
                buf_put(out, &f, sizeof f);
            }
    return true;
}

const struct io_format io_pfm = {.version = 1, .suffix = ".pfm", .read = pfm_read, .write = pfm_write};
