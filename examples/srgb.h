// SPDX-License-Identifier: Apache-2.0
//
// How screens want colours: sRGB (IEC 61966-2-1).
#ifndef SRGB_H
#define SRGB_H

#include <math.h>

static inline float srgb_encode(float x)
{
    x = x > 0 ? (x < 1 ? x : 1) : 0;
    return x <= 0.0031308f ? 12.92f * x : 1.055f * powf(x, 1 / 2.4f) - 0.055f;
}

#endif
