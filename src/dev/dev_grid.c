// SPDX-License-Identifier: Apache-2.0
//
// dev_grid.c: checks of GPU launches, and the parts of a grid that has more workgroups
// than a device launches at once. Kernels get the first workgroup of a part.
#include "dev/dev.h"

#include <string.h>

enum { MAX_PIECES = 1 << 16 };

static bool check_grid(const struct dev_launch *l, u32 g, const u32 most[3], const char *device,
                       struct err *e)
{
    i64 pieces = 1;
    for (int d = 0; d < 3; d++) {
        i64 n = l->grid[g][d];
        if (n < 0 || n > INT32_MAX)
            return err_set(e, ERR_USAGE, "grid %u has extent %lld", g, (long long)n);
        pieces *= i64_max(1, i64_min(ceil_div(n, most[d]), MAX_PIECES));
        if (pieces > MAX_PIECES)
            return err_set(e, ERR_UNSUPPORTED, "grid %u is too large for '%s'", g, device);
    }
    return true;
}

bool dev_check_launch(const struct dev_launch *l, u32 n_grid, const u32 most[3], const char *device,
                      struct err *e)
{
    if (l->n_grid != n_grid)
        return err_set(e, ERR_USAGE, "kernel has %u grids, not %u", n_grid, l->n_grid);
    for (u32 i = 0; i < l->n_param; i++)
        if (l->param[i] < INT32_MIN || l->param[i] > INT32_MAX)
            return err_set(e, ERR_UNSUPPORTED, "parameter %u is %lld, beyond 32 bits", i,
                           (long long)l->param[i]);
    for (u32 g = 0; g < l->n_grid; g++)
        if (!check_grid(l, g, most, device, e)) return false;
    return true;
}

bool dev_check_reach(const struct dev_launch *l, i64 most, const char *device, struct err *e)
{
    if (l->n_param) most = i64_min(most, INT32_MAX);
    for (u32 i = 0; i < l->n_buf; i++)
        if (l->buf[i].size > most)
            return err_set(e, ERR_UNSUPPORTED,
                           "buffer %u has %lld bytes, a kernel on '%s' can reach %lld", i,
                           (long long)l->buf[i].size, device, (long long)most);
    return true;
}

bool dev_next_piece(struct dev_piece *p, const i64 extent[3], const u32 most[3])
{
    if (extent[0] == 0 || extent[1] == 0 || extent[2] == 0) return false;
    int d = 0;
    if (p->n[0] == 0) d = 3; /* the first one */
    for (; d < 3; d++) {     /* the next one: an odometer */
        p->base[d] += most[d];
        if (p->base[d] < extent[d]) break;
        p->base[d] = 0;
    }
    if (d == 3 && p->n[0] != 0) return false;
    for (int k = 0; k < 3; k++) p->n[k] = (u32)i64_min(extent[k] - p->base[k], most[k]);
    return true;
}
