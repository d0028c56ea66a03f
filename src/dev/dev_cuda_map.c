// SPDX-License-Identifier: Apache-2.0
//
// dev_cuda_map.c: tensor maps of tile copies. A binary describes each in NAME_0_maps: number of the argument,
// bytes of an element, rows, columns, row pitch in elements, rows and columns of a box, 1 if boxes are
// swizzled. The driver encodes them with the argument's address, cuTensorMapEncodeTiled, once per address.
#include "dev/dev_cuda.h"

#include <string.h>

enum { BUFFER, BYTES, ROWS, COLS, PITCH, BOX_ROWS, BOX_COLS, SWIZZLED }; /* of CUDA_MAP_INTS */
enum { MAX_BOX = 256, SWIZZLE_NONE = 0, SWIZZLE_128 = 3, PROMOTE_128 = 2 };

/* CUtensorMapDataType of that many bytes: elements are copied unchanged, and zeros are zeros. -1: none. */
static i32 type_of(i32 bytes) { return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 4 : -1; }

static bool is_possible(const i32 *x)
{
    if (x[BUFFER] < 0 || type_of(x[BYTES]) < 0 || x[ROWS] < 1 || x[COLS] < 1 || x[COLS] > x[PITCH] || x[ROWS] > INT32_MAX / x[PITCH]) return false;
    if (x[BOX_ROWS] < 1 || x[BOX_ROWS] > MAX_BOX || x[BOX_COLS] < 1 || x[BOX_COLS] > MAX_BOX || (x[SWIZZLED] & ~1)) return false;
    return (i64)x[PITCH] * x[BYTES] % 16 == 0 && x[BOX_COLS] * x[BYTES] % 16 == 0;
}

bool cuda_map_check(struct cuda *c, const struct cuda_map *m, u32 n, struct str name, struct err *e)
{
    if (n && !c->cu.TensorMapEncode)
        return err_set(e, ERR_UNSUPPORTED, "'%.*s' has tile copies: '%s' needs a driver that has 'cuTensorMapEncodeTiled' (of CUDA 12)", STR_ARG(name),
                       c->facts.name);
    for (u32 i = 0; i < n; i++)
        if (!is_possible(m[i].fact)) return err_set(e, ERR_INPUT, "matrix %u of '%.*s' in binary is invalid", i, STR_ARG(name));
    return true;
}

static bool encode(struct cuda *c, struct cuda_map *m, u64 address, struct err *e)
{
    const i32 *x = m->fact;
    _Alignas(64) u8 code[CUDA_MAP_BYTES];
    u64 size[2] = {(u64)x[COLS], (u64)x[ROWS]}, stride = (u64)x[PITCH] * (u64)x[BYTES];
    u32 box[2] = {(u32)x[BOX_COLS], (u32)x[BOX_ROWS]}, every[2] = {1, 1};
    i32 r = c->cu.TensorMapEncode(code, type_of(x[BYTES]), 2, address, size, &stride, box, every, 0, x[SWIZZLED] ? SWIZZLE_128 : SWIZZLE_NONE,
                                  PROMOTE_128, 0);
    if (!cuda_ok(c, r, "TensorMapEncodeTiled", e)) return false;
    memcpy(m->code, code, sizeof code);
    m->address = address;
    return true;
}

bool cuda_map_prepare(struct cuda *c, struct cuda_map *m, u32 n, const struct dev_launch *l, struct err *e)
{
    for (u32 i = 0; i < n; i++) {
        const i32 *x = m[i].fact;
        if ((u32)x[BUFFER] >= l->n_buf) return err_set(e, ERR_INPUT, "a matrix in buffer %d, of %u", x[BUFFER], l->n_buf);
        const struct dev_mem *b = &l->buf[x[BUFFER]];
        i64 need = (((i64)x[ROWS] - 1) * x[PITCH] + x[COLS]) * x[BYTES];
        if (b->size < need)
            return err_set(e, ERR_INPUT, "a matrix of %lld bytes in buffer %d, which has %lld", (long long)need, x[BUFFER], (long long)b->size);
        u64 address = cuda_address(b);
        if (address != m[i].address && !encode(c, &m[i], address, e)) return false;
    }
    return true;
}
