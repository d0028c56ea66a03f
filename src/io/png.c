// SPDX-License-Identifier: Apache-2.0
//
// .png through libpng: grey, grey with alpha, RGB or RGBA of 8 or 16 bits to f32 in 0..1 as stored (no gamma applied;
// palettes, transparency and fewer bits are expanded); writing clamps to 0..1 and rounds to 8 bits.
//
// libpng reports errors by a callback and may not return from it, so its calls run under setjmp in
// functions without resources: its own memory comes from an arena, pixels are in the caller's. A
// picture with more pixels than its bytes can inflate to is rejected before anything is allocated.
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "io/io.h"

enum {
    MAX_SIDE = 1 << 18,   /* pixels */
    MAX_SAMPLES = 1 << 28, /* of a picture: a gigabyte of f32 */
    MAX_CHUNK = 1 << 20,  /* bytes of an ancillary chunk: unused text and profiles */
    MAX_PIECE = 16 << 20, /* bytes that libpng may allocate at once: a row of the widest picture, not the claim of a chunk */
    MAX_INFLATE = 1040,   /* deflate's best ratio is below */
};

/* State of the callbacks. */
struct png_job {
    struct str bytes;    /* reading: the file */
    i64 at;
    struct buf *out;     /* writing: the file */
    struct arena *heap;  /* libpng's memory */
    struct err *e;
    png_structp png;
    png_infop info;
    jmp_buf jump;
};

static void on_error(png_structp png, png_const_charp message)
{
    struct png_job *j = png_get_error_ptr(png);
    err_set(j->e, ERR_INPUT, "invalid png: %s", message);
    longjmp(j->jump, 1);
}

static void on_warning(png_structp png, png_const_charp message) {}

static png_voidp on_alloc(png_structp png, png_alloc_size_t n)
{
    struct png_job *j = png_get_mem_ptr(png);
    return n > MAX_PIECE ? NULL : arena_alloc(j->heap, (i64)n);
}

static void on_free(png_structp png, png_voidp p) {}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct png_job *j = png_get_io_ptr(png);
    if ((i64)n > j->bytes.n - j->at) png_error(png, "cut off");
    memcpy(to, j->bytes.p + j->at, n);
    j->at += (i64)n;
}

static void on_write(png_structp png, png_bytep from, size_t n)
{
    struct png_job *j = png_get_io_ptr(png);
    buf_put(j->out, from, (i64)n);
}

static void on_flush(png_structp png) {}

/* Sizes, after the expansions that make every file one of four kinds. */
static void read_header(struct png_job *j)
{
    png_set_user_limits(j->png, MAX_SIDE, MAX_SIDE);
    png_set_chunk_malloc_max(j->png, MAX_CHUNK);
    png_set_chunk_cache_max(j->png, 100);
    png_set_read_fn(j->png, j, on_read);
    png_read_info(j->png, j->info);
    i64 stored = (i64)png_get_rowbytes(j->png, j->info) * png_get_image_height(j->png, j->info);
    if (stored / MAX_INFLATE > j->bytes.n) png_error(j->png, "too short for its size");
    png_set_expand(j->png);
    png_set_interlace_handling(j->png);
    png_read_update_info(j->png, j->info);
    i64 row = (i64)png_get_image_width(j->png, j->info) * png_get_channels(j->png, j->info);
    if (row > MAX_SAMPLES / png_get_image_height(j->png, j->info)) png_error(j->png, "too large");
}

static float load_sample(const u8 *p, i64 k, bool is_wide)
{
    return is_wide ? (float)(p[2 * k] << 8 | p[2 * k + 1]) / 65535 : (float)p[k] / 255;
}

/* Rows of samples to planes (c, h, w). */
static void spread(struct tensor *t, u8 *const *row, bool is_wide)
{
    i64 c = t->dim[1], h = t->dim[2], w = t->dim[3];
    float *to = t->data;
    for (i64 y = 0; y < h; y++)
        for (i64 x = 0; x < w; x++)
            for (i64 k = 0; k < c; k++) to[(k * h + y) * w + x] = load_sample(row[y], x * c + k, is_wide);
}

static bool read_pixels(struct png_job *j, struct tensor *out, struct arena *a)
{
    if (setjmp(j->jump)) return false;
    read_header(j);
    i64 h = png_get_image_height(j->png, j->info), w = png_get_image_width(j->png, j->info);
    i64 c = png_get_channels(j->png, j->info), row_size = (i64)png_get_rowbytes(j->png, j->info);
    u8 **row = arena_array(j->heap, u8 *, h), *pixels = arena_try(j->heap, h * row_size, j->e, "the pixels of a png file");
    if (!pixels) return false;
    for (i64 y = 0; y < h; y++) row[y] = pixels + y * row_size;
    png_read_image(j->png, row);
    png_read_end(j->png, NULL);
    if (!io_image_new(out, a, c, h, w, j->e)) return false;
    spread(out, row, png_get_bit_depth(j->png, j->info) == 16);
    return true;
}

static bool png_read(struct tensor *out, struct arena *a, struct str bytes, struct err *e)
{
    struct arena heap = {0};
    struct png_job j = {.bytes = bytes, .heap = &heap, .e = e};
    bool ok = false;
    if (bytes.n < 8 || png_sig_cmp((png_const_bytep)bytes.p, 0, 8)) return err_set(e, ERR_INPUT, "not a png file");
    j.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, on_alloc, on_free);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    if (j.info) ok = read_pixels(&j, out, a);
    else err_set(e, ERR_SYSTEM, "cannot start libpng");
    if (j.png) png_destroy_read_struct(&j.png, &j.info, NULL);
    arena_release(&heap);
    return ok;
}

static u8 to_byte(double v)
{
    return v >= 1 ? 255 : v > 0 ? (u8)(v * 255 + 0.5) : 0; /* NaN is 0 */
}

/* Without alpha even channels would be refused: 2 and 4 channels are grey and RGB with alpha. */
static bool write_pixels(struct png_job *j, const struct io_image *im)
{
    static const int colour[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                                 PNG_COLOR_TYPE_RGB_ALPHA};
    u8 *row = arena_alloc(j->heap, im->w * im->c);
    if (setjmp(j->jump)) return false;
    png_set_write_fn(j->png, j, on_write, on_flush);
    png_set_IHDR(j->png, j->info, (png_uint_32)im->w, (png_uint_32)im->h, 8, colour[im->c], PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(j->png, j->info);
    for (i64 y = 0; y < im->h; y++) {
        for (i64 x = 0; x < im->w; x++)
            for (i64 c = 0; c < im->c; c++) row[x * im->c + c] = to_byte(io_image_get(im, c, y, x));
        png_write_row(j->png, row);
    }
    png_write_end(j->png, NULL);
    return true;
}

static bool png_write(struct buf *out, const struct tensor *t, struct err *e)
{
    struct arena heap = {0};
    struct png_job j = {.out = out, .heap = &heap, .e = e};
    struct io_image im;
    bool ok = false;
    if (!io_image_of(&im, t, e)) return false;
    if (im.w > MAX_SIDE || im.h > MAX_SIDE) return err_set(e, ERR_INPUT, "image too large for png");
    j.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, on_alloc, on_free);
    j.info = j.png ? png_create_info_struct(j.png) : NULL;
    if (j.info) ok = write_pixels(&j, &im);
    else err_set(e, ERR_SYSTEM, "cannot start libpng");
    if (j.png) png_destroy_write_struct(&j.png, &j.info);
    arena_release(&heap);
    return ok;
}

const struct io_format io_png = {.version = 1, .suffix = ".png", .read = png_read, .write = png_write};
