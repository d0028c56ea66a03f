// SPDX-License-Identifier: Apache-2.0
//
// Tensors as images, for the image formats. Networks represent pictures as (1, c, h, w); users may also pass (c,
// h, w), (h, w) or (1, h, w, c). A rank-4 tensor is interpreted as (1, c, h, w) if its axis 1 can be channels.
#include "io/io.h"

enum { MAX_CHANNELS = 4 };

static bool channels_ok(i64 c) { return c >= 1 && c <= MAX_CHANNELS; }

static void set_planes(struct io_image *im, const i64 *dim) /* (c, h, w) */
{
    im->c = dim[0], im->h = dim[1], im->w = dim[2];
    im->step_c = dim[1] * dim[2], im->step_h = dim[2], im->step_w = 1;
}

static void set_pixels(struct io_image *im, const i64 *dim) /* (h, w, c) */
{
    im->h = dim[0], im->w = dim[1], im->c = dim[2];
    im->step_h = dim[1] * dim[2], im->step_w = dim[2], im->step_c = 1;
}

bool io_image_of(struct io_image *im, const struct tensor *t, struct err *e)
{
    i64 plane[3] = {1, t->dim[0], t->dim[1]};
    *im = (struct io_image){.t = t};
    if (t->rank == 4 && t->dim[0] == 1) {
        if (channels_ok(t->dim[1])) set_planes(im, t->dim + 1);
        else set_pixels(im, t->dim + 1);
    } else if (t->rank == 3) {
        set_planes(im, t->dim);
    } else if (t->rank == 2) {
        set_planes(im, plane);
    }
    if (channels_ok(im->c) && im->h > 0 && im->w > 0) return true;
    return err_set(e, ERR_INPUT, "tensor is not an image: needs shape (1, c, h, w), (c, h, w), (h, w) or (1, h, w, c) "
                                 "with 1 to 4 channels");
}

double io_image_get(const struct io_image *im, i64 c, i64 y, i64 x)
{
    return elem_f64(im->t->dtype, im->t->data, c * im->step_c + y * im->step_h + x * im->step_w);
}

bool io_image_new(struct tensor *out, struct arena *a, i64 c, i64 h, i64 w, struct err *e)
{
    i64 dim[] = {1, c, h, w};
    if (!tensor_size_ok(DT_F32, 4, dim, NULL)) return err_set(e, ERR_INPUT, "image too large");
    const struct tensor *t = tensor_try(a, DT_F32, 4, dim, e, "the pixels of an image", S(""));
    if (t) *out = *t;
    return t != NULL;
}
