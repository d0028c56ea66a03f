// SPDX-License-Identifier: Apache-2.0
//
// Tensor files: written tensors are read back equal, files of other programs are read, and
// truncated or damaged ones yield an error or some tensor, never a crash (run with sanitizers).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/io.h"

static const struct io_format *format(const char *path)
{
    const struct io_format *f = io_find(path);
    assert_non_null(f);
    return f;
}

static void fill(struct tensor *t, struct rng *r)
{
    i64 n = tensor_count(t);
    for (i64 k = 0; k < n; k++) {
        if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, k, rng_normal(r));
        else elem_set_i64(t->dtype, t->data, k, t->dtype == DT_BOOL ? rng_range(r, 0, 1) : (i64)rng_u64(r));
    }
}

static struct tensor *random_tensor(struct arena *a, struct rng *r, enum dtype t)
{
    i64 dim[MAX_RANK];
    u32 rank = (u32)rng_range(r, 0, 5);
    for (u32 k = 0; k < rank; k++) dim[k] = rng_range(r, rng_range(r, 0, 9) ? 1 : 0, 4);
    struct tensor *x = tensor_new(a, t, rank, dim);
    fill(x, r);
    return x;
}

static void check_equal(const struct tensor *a, const struct tensor *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    for (u32 k = 0; k < a->rank; k++) assert_int_equal(a->dim[k], b->dim[k]);
    if (tensor_bytes(a)) assert_memory_equal(a->data, b->data, (size_t)tensor_bytes(a));
}

/* Formats that preserve every tensor exactly. */
static void test_exact(void **state)
{
    static const char *const paths[] = {"x.npy", "x.pb", "x.RAW"};
    struct rng r = rng_seed(1);
    for (int round = 0; round < 300; round++) {
        const struct io_format *f = format(paths[round % 3]);
        struct arena a = {0};
        struct buf b = {0};
        struct err e = {0};
        enum dtype type = (enum dtype)rng_range(&r, 1, N_DTYPES - 1);
        if (round % 3 == 0 && dtype_is_small(type)) type = DT_F32; /* npy has none of these */
        struct tensor *t = random_tensor(&a, &r, type), back = *t;
        back.data = NULL;
        assert_true(f->write(&b, t, &e));
        if (!f->read(&back, &a, buf_view(&b), &e)) fail_msg("%s: %s", f->suffix, e.msg);
        check_equal(&back, t);
        buf_release(&b);
        arena_release(&a);
    }
}

static void test_npy_foreign(void **state)
{
    static const struct { const char *header; enum dtype t; u32 rank; double first, second; } files[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", DT_F32, 1, 9.223373136366404e18, 1},
        {"{'descr': '>i2', 'fortran_order': False, 'shape': (4,)}\n", DT_I16, 1, 0x5f00, 1},
        {"{\"shape\": (2L, 2L), 'fortran_order': True , 'descr': '|u1'} ", DT_U8, 2, 0x5f, 0},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': ()}", DT_BOOL, 0, 1, 1},
    };
    static const u8 content[] = {0x5f, 0, 0, 1, 0x3f, 0x80, 0, 0};
    for (i64 k = 0; k < countof(files); k++) {
        for (int version = 1; version <= 3; version++) {
            struct arena a = {0};
            struct buf b = {0};
            struct err e = {0};
            struct tensor t = {0};
            size_t n = strlen(files[k].header);
            buf_put(&b, "\x93NUMPY", 6);
            buf_put(&b, (u8[]){(u8)version, 0, (u8)n, 0, 0, 0}, version == 1 ? 4 : 6);
            buf_z(&b, files[k].header);
            buf_put(&b, content, sizeof content);
            if (!io_find("a.npy")->read(&t, &a, buf_view(&b), &e)) fail_msg("file %d: %s", (int)k, e.msg);
            assert_int_equal(t.dtype, files[k].t);
            assert_int_equal(t.rank, files[k].rank);
            assert_true(elem_f64(t.dtype, t.data, 0) == files[k].first);
            if (k == 0 || k == 1) assert_true(elem_f64(t.dtype, t.data, 1) == files[k].second);
            if (k == 2) assert_int_equal(elem_i64(t.dtype, t.data, 2), 0);
            if (k == 2) assert_int_equal(elem_i64(t.dtype, t.data, 3), 1);
            buf_release(&b);
            arena_release(&a);
        }
    }
}

/* Column-major files: element (i, j, k) is where NumPy puts it. */
static void test_npy_fortran(void **state)
{
    static const char header[] = "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3, 4), }";
    struct arena a = {0};
    struct buf b = {0};
    struct err e = {0};
    struct tensor t = {0};
    buf_put(&b, "\x93NUMPY\x01\x00", 8);
    buf_put(&b, (u8[]){sizeof header - 1, 0}, 2);
    buf_z(&b, header);
    for (i32 k = 0; k < 24; k++) buf_put(&b, &k, 4);
    assert_true(io_find("a.npy")->read(&t, &a, buf_view(&b), &e));
    for (i64 i = 0; i < 24; i++) {
        i64 x = i / 12, y = i / 4 % 3, z = i % 4;
        assert_int_equal(elem_i64(DT_I32, t.data, i), x + 2 * y + 6 * z);
    }
    buf_release(&b);
    arena_release(&a);
}

/* Images: values that the format can hold come back in shape (1, c, h, w). */
static void check_image(const char *path, const struct tensor *t, double step)
{
    struct arena a = {0};
    struct buf b = {0};
    struct err e = {0};
    struct tensor back = {0};
    struct io_image im;
    assert_true(io_image_of(&im, t, &e));
    if (!format(path)->write(&b, t, &e) || !format(path)->read(&back, &a, buf_view(&b), &e)) fail_msg("%s", e.msg);
    assert_int_equal(back.dtype, DT_F32);
    assert_int_equal(back.rank, 4);
    i64 want[] = {1, im.c, im.h, im.w};
    for (int k = 0; k < 4; k++) assert_int_equal(back.dim[k], want[k]);
    for (i64 c = 0; c < im.c; c++)
        for (i64 y = 0; y < im.h; y++)
            for (i64 x = 0; x < im.w; x++) {
                double v = io_image_get(&im, c, y, x), got = elem_f64(DT_F32, back.data, (c * im.h + y) * im.w + x);
                if (step > 0) v = v < 0 ? 0 : v > 1 ? 1 : v;
                assert_true(v - got <= step / 2 + 1e-6 && got - v <= step / 2 + 1e-6);
            }
    buf_release(&b);
    arena_release(&a);
}

static void test_images(void **state)
{
    static const struct { u32 rank; i64 dim[4]; } shapes[] = {
        {4, {1, 3, 5, 7}}, {4, {1, 1, 4, 2}}, {3, {3, 2, 2}}, {2, {3, 9}}, {4, {1, 6, 5, 3}}, {3, {1, 1, 1}},
    };
    struct rng r = rng_seed(2);
    for (i64 k = 0; k < countof(shapes); k++) {
        struct arena a = {0};
        struct tensor *t = tensor_new(&a, k % 2 ? DT_F16 : DT_F32, shapes[k].rank, shapes[k].dim);
        fill(t, &r);
        check_image("x.pfm", t, 0);
        check_image("x.png", t, 1.0 / 255);
        arena_release(&a);
    }
    struct arena a = {0};
    struct tensor *t = tensor_new(&a, DT_F32, 4, (i64[]){1, 4, 3, 3});
    fill(t, &r);
    check_image("x.png", t, 1.0 / 255);
    arena_release(&a);
}

static void test_not_images(void **state)
{
    static const struct { const char *path; u32 rank; i64 dim[4]; } cases[] = {
        {"x.png", 4, {2, 3, 4, 4}}, {"x.png", 1, {7}}, {"x.png", 3, {5, 4, 4}}, {"x.pfm", 4, {1, 4, 2, 2}},
        {"x.pfm", 4, {1, 3, 0, 2}}, {"x.png", 0, {0}},
    };
    for (i64 k = 0; k < countof(cases); k++) {
        struct arena a = {0};
        struct buf b = {0};
        struct err e = {0};
        struct tensor *t = tensor_new(&a, DT_F32, cases[k].rank, cases[k].dim);
        assert_false(format(cases[k].path)->write(&b, t, &e));
        assert_int_equal(e.code, ERR_INPUT);
        buf_release(&b);
        arena_release(&a);
    }
}

/* 16-bit RGB, handmade: a stored-block zlib stream with the CRCs that libpng checks. */
static u32 crc32_of(const u8 *p, i64 n)
{
    u32 c = 0xffffffff;
    for (i64 i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ c >> 1 : c >> 1;
    }
    return ~c;
}

static void put_be(struct buf *b, u32 v) { buf_put(b, (u8[]){(u8)(v >> 24), (u8)(v >> 16), (u8)(v >> 8), (u8)v}, 4); }

static void put_chunk(struct buf *b, const char *type, const u8 *p, i64 n)
{
    put_be(b, (u32)n);
    i64 from = b->n;
    buf_z(b, type);
    buf_put(b, p, n);
    put_be(b, crc32_of((const u8 *)b->p + from, n + 4));
}

static void test_png_wide(void **state)
{
    struct buf b = {0}, z = {0};
    struct arena a = {0};
    struct err e = {0};
    struct tensor t = {0};
    static const u8 head[] = {0, 0, 0, 1, 0, 0, 0, 1, 16, 2, 0, 0, 0}, row[] = {0, 0x12, 0x34, 0xff, 0xff, 0x00, 0x01};
    u32 s1 = 1, s2 = 0;
    for (i64 k = 0; k < countof(row); k++) s1 += row[k], s2 += s1;
    buf_put(&z, (u8[]){0x78, 1, 1, sizeof row, 0, (u8)~sizeof row, 0xff}, 7);
    buf_put(&z, row, sizeof row);
    put_be(&z, s2 << 16 | s1);
    buf_put(&b, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(&b, "IHDR", head, sizeof head);
    put_chunk(&b, "IDAT", (u8 *)z.p, z.n);
    put_chunk(&b, "IEND", NULL, 0);
    if (!format("x.png")->read(&t, &a, buf_view(&b), &e)) fail_msg("%s", e.msg);
    assert_true(elem_f64(DT_F32, t.data, 0) == (double)((float)0x1234 / 65535));
    assert_true(elem_f64(DT_F32, t.data, 1) == 1);
    assert_true(elem_f64(DT_F32, t.data, 2) == (double)(1.0f / 65535));
    buf_release(&b);
    buf_release(&z);
    arena_release(&a);
}

/* Every truncation and many flipped bits of a file of each format. */
static void read_any(const struct io_format *f, struct str bytes)
{
    struct arena a = {0};
    struct err e = {0};
    struct tensor t = {.dtype = DT_F32, .rank = 2, .dim = {3, 4}};
    if (!f->read(&t, &a, bytes, &e)) {
        assert_int_not_equal(e.code, ERR_NONE);
        assert_true(e.msg[0]);
    } else {
        double sum = 0; /* touches all of it */
        for (i64 k = 0, n = tensor_count(&t); k < n; k++) sum += elem_f64(t.dtype, t.data, k);
        assert_true(sum == sum || sum != sum);
    }
    arena_release(&a);
}

static void test_broken(void **state)
{
    struct rng r = rng_seed(3);
    for (i64 k = 0; io_all(k); k++) {
        const struct io_format *f = io_all(k);
        struct arena a = {0};
        struct buf b = {0};
        struct err e = {0};
        struct tensor *t = tensor_new(&a, DT_F32, 3, (i64[]){3, 8, 5});
        fill(t, &r);
        assert_true(f->write(&b, t, &e));
        for (i64 n = 0; n < b.n; n++) {
            char *cut = arena_alloc(&a, n + 1); /* separate memory: reads past its end are detected */
            memcpy(cut, b.p, (size_t)n);
            read_any(f, (struct str){cut, n});
        }
        for (int round = 0; round < 2000; round++) {
            struct str s = str_dup(&a, buf_view(&b));
            i64 reach = round % 2 ? s.n : i64_min(s.n, 100); /* headers matter most */
            for (i64 m = rng_range(&r, 1, 4); m > 0; m--) {
                char bit = (char)(1 << rng_range(&r, 0, 7));
                ((char *)(uintptr_t)s.p)[rng_range(&r, 0, reach - 1)] ^= bit;
            }
            read_any(f, s);
        }
        buf_release(&b);
        arena_release(&a);
    }
}

static void test_files(void **state)
{
    struct arena a = {0};
    struct err e = {0};
    struct str dir;
    struct tensor *t = tensor_new(&a, DT_F32, 4, (i64[]){1, 1, 2, 3}), back = {0};
    assert_true(os_temp_dir(&a, &dir, &e));
    for (i64 k = 0; io_all(k); k++) {
        struct str path = str_fmt(&a, "%.*s/t%s", STR_ARG(dir), io_all(k)->suffix);
        back = *t;
        if (!io_write(t, path.p, &e) || !io_read(&back, &a, path.p, &e)) fail_msg("%s", e.msg);
        check_equal(&back, t);
    }
    assert_false(io_read(&back, &a, "nothing.txt", &e));
    assert_int_equal(e.code, ERR_USAGE);
    e = (struct err){0};
    assert_false(io_read(&back, &a, str_fmt(&a, "%.*s/none.npy", STR_ARG(dir)).p, &e));
    assert_non_null(strstr(e.msg, "none.npy"));
    os_remove_tree(dir.p);
    arena_release(&a);
}

/* Arrays of several types come back as they were; the same arrays are the same bytes. */
static void test_npz(void **state)
{
    static const struct { const char *name; enum dtype type; u32 rank; i64 dim[3]; } of[] = {
        {"image", DT_F32, 3, {2, 3, 4}}, {"ids", DT_I64, 1, {5}}, {"scalar", DT_F16, 0, {0}}, {"none", DT_U8, 2, {0, 7}}};
    struct arena a = {0};
    struct err e = {0};
    struct io_npz z = {0}, back = {0};
    struct buf b = {0}, again = {0};
    for (i64 k = 0; k < countof(of); k++) {
        struct tensor *t = tensor_new(&a, of[k].type, of[k].rank, of[k].dim);
        for (i64 i = 0; i < tensor_count(t); i++)
            if (dtype_is_float(t->dtype)) elem_set_f64(t->dtype, t->data, i, 0.5 * (double)i - 3);
            else elem_set_i64(t->dtype, t->data, i, 1000 * i - 7);
        *arr_push(&a, &z) = (struct io_npz_array){str_of(of[k].name), *t};
    }
    assert_true(io_npz_write(&b, &z, &e) && io_npz_write(&again, &z, &e));
    assert_true(b.n == again.n && !memcmp(b.p, again.p, (size_t)b.n));
    if (!io_npz_read(&back, &a, buf_view(&b), &e)) fail_msg("%s", e.msg);
    assert_int_equal(back.n, z.n);
    for (u32 k = 0; k < z.n; k++) {
        const struct tensor *x = &z.v[k].t, *y = &back.v[k].t;
        assert_true(str_eq(z.v[k].name, back.v[k].name) && x->dtype == y->dtype && x->rank == y->rank);
        assert_int_equal(tensor_bytes(x), tensor_bytes(y));
        assert_true(!tensor_bytes(x) || !memcmp(x->data, y->data, (size_t)tensor_bytes(x)));
    }
    buf_release(&b);
    buf_release(&again);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npz), cmocka_unit_test(test_exact),       cmocka_unit_test(test_npy_foreign), cmocka_unit_test(test_npy_fortran),
        cmocka_unit_test(test_images),      cmocka_unit_test(test_not_images),  cmocka_unit_test(test_png_wide),
        cmocka_unit_test(test_broken),      cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
