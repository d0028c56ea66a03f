// SPDX-License-Identifier: Apache-2.0
//
// Conversion of pictures to a network's inputs and back. A file holds f32 (1, c, h,
// w) in 0..1; a network may need channels first or last, with or without a batch
// axis, three channels instead of one, no alpha, or bytes. Programs compiled for a
// layout declare it; for others the channel axis is the one of size one to four.
#include "cli.h"

#include <stdio.h>
#include <string.h>

bool is_picture(const char *path) { return has_suffix(path, ".png") || has_suffix(path, ".pfm"); }

static int no_picture(const struct cli *c, const char *layout)
{
    return usage_error(c, "layout %s does not determine the number of channels, use .npy", layout);
}

/* Index of element (c, y, x) of a picture in the network's tensor. */
struct picture {
    int64_t c, h, w;
    int64_t step_c, step_h, step_w;
    int rank;
    int64_t dim[4];
};

static bool is_channels(int64_t d) { return d >= 1 && d <= 4; }

static bool is_last(const struct want *want, const int64_t *d)
{
    if (!strcmp(want->layout, "HWC") || !strcmp(want->layout, "NHWC")) return true;
    if (!strcmp(want->layout, "CHW")) return false;
    return is_channels(d[2]) && !is_channels(d[0]);
}

/* (1, c, h, w), (c, h, w), (1, h, w, c), (h, w, c) or (h, w), as far as `want` determines it. */
static bool picture_of(struct picture *o, const struct want *want, const int64_t *from)
{
    const int64_t *d = want->dim + (want->rank == 4), h = from[2], w = from[3];
    *o = (struct picture){.h = h, .w = w, .rank = want->rank, .dim = {1}};
    int64_t *to = o->dim + (want->rank == 4);
    if (want->rank == 2) {
        o->c = 1, o->step_h = w, o->step_w = 1;
        to[0] = h, to[1] = w;
        return true;
    }
    if (want->rank != 3 && want->rank != 4) return false;
    if (is_last(want, d)) {
        o->c = d[2] < 0 ? from[1] : d[2], o->step_c = 1, o->step_w = o->c, o->step_h = o->c * w;
        to[0] = h, to[1] = w, to[2] = o->c;
        return true;
    }
    o->c = d[0] < 0 ? from[1] : d[0];
    o->step_c = h * w, o->step_h = w, o->step_w = 1;
    to[0] = o->c, to[1] = h, to[2] = w;
    return true;
}

/* The channel of a picture of `have` channels for channel
 * c of one of `need`; -1: opaque alpha, -2: impossible. */
static int64_t channel_from(int64_t have, int64_t need, int64_t c)
{
    if (have == need) return c;
    bool alpha = have == 2 || have == 4, grey = have <= 2;
    if (c == need - 1 && (need == 2 || need == 4)) return alpha ? have - 1 : -1;
    if (grey) return 0;
    return need >= 3 ? c : -2;
}

/* `t` holds a picture, f32 (1, c, h, w). */
static quern_status fit_picture(struct cli *c, const struct want *want, quern_tensor **t)
{
    const int64_t *from = quern_tensor_dims(*t);
    struct picture o;
    quern_tensor *fit = NULL;
    if (!picture_of(&o, want, from)) return QUERN_OK;
    for (int64_t k = 0; k < o.c; k++)
        if (channel_from(from[1], o.c, k) == -2) return QUERN_OK;
    quern_status s = quern_tensor_new(c->q, QUERN_F32, o.rank, o.dim, NULL, &fit);
    if (s) return s;
    bool is_byte = want->dtype == QUERN_U8;
    for (int64_t k = 0; k < o.c; k++) {
        int64_t i = channel_from(from[1], o.c, k);
        const float *plane = i < 0 ? NULL : (const float *)quern_tensor_data(*t) + i * o.h * o.w;
        float *to = (float *)quern_tensor_data(fit) + k * o.step_c;
        for (int64_t y = 0; y < o.h; y++)
            for (int64_t x = 0; x < o.w; x++)
                to[y * o.step_h + x * o.step_w] = (plane ? plane[y * o.w + x] : 1) * (is_byte ? 255 : 1);
    }
    quern_tensor_free(*t);
    *t = fit;
    return QUERN_OK;
}

int picture_to_input(struct cli *c, const struct want *want, quern_tensor **t)
{
    if (!strcmp(want->layout, "CHWC8")) return no_picture(c, want->layout);
    return fail(c, fit_picture(c, want, t));
}

/* Bytes become 0..1. */
static void scale(quern_tensor *t, float by)
{
    float *v = quern_tensor_data(t);
    for (int64_t i = 0, n = quern_tensor_count(t); i < n; i++) v[i] *= by;
}

/* f32 (h, w, c) to (1, c, h, w) */
static quern_status to_planes(struct cli *c, quern_tensor **t)
{
    const int64_t *d = quern_tensor_dims(*t) + (quern_tensor_rank(*t) == 4), h = d[0], w = d[1], n = d[2];
    const float *from = quern_tensor_data(*t);
    quern_tensor *planes = NULL;
    quern_status s = quern_tensor_new(c->q, QUERN_F32, 4, (int64_t[]){1, n, h, w}, NULL, &planes);
    if (s) return s;
    float *to = quern_tensor_data(planes);
    for (int64_t p = 0; p < h * w; p++)
        for (int64_t k = 0; k < n; k++) to[k * h * w + p] = from[p * n + k];
    quern_tensor_free(*t);
    *t = planes;
    return QUERN_OK;
}

int picture_of_output(struct cli *c, const char *layout, quern_tensor **t)
{
    bool is_byte = quern_tensor_dtype(*t) == QUERN_U8, is_all = !strcmp(layout, "NHWC"), is_hwc = is_all || !strcmp(layout, "HWC");
    quern_tensor *f = NULL;
    if (!strcmp(layout, "CHWC8") || (is_all && quern_tensor_dims(*t)[0] != 1)) return no_picture(c, layout);
    if (!is_byte && !is_hwc) return EXIT_DONE; /* the file's writer supports it unchanged */
    quern_status s = quern_tensor_cast(c->q, *t, QUERN_F32, &f);
    if (s) return fail(c, s);
    quern_tensor_free(*t);
    *t = f;
    if (is_byte) scale(f, 1.0f / 255);
    return is_hwc ? fail(c, to_planes(c, t)) : EXIT_DONE;
}
