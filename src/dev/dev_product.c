// SPDX-License-Identifier: Apache-2.0
//
// dev_product.c: what drivers share that offer products and convolutions of a vendor's library: how a product with rows behind each other is
// told to libraries that count columns first, and whether a launch has its buffers. No operand is ever copied for it.
#include "dev/dev.h"

static bool fits(i64 v) { return v > 0 && v <= INT32_MAX; }

bool dev_columns_of(struct dev_columns *c, const struct dev_product *p, struct err *e)
{
    bool ok = fits(p->batch) && fits(p->m) && fits(p->n) && fits(p->k);
    *c = (struct dev_columns){.m = (i32)p->n,
                              .n = (i32)p->m,
                              .k = (i32)p->k,
                              .lda = (i32)p->n,
                              .ldb = (i32)(p->a_transposed ? p->m : p->k),
                              .ldc = (i32)p->n,
                              .step_a = p->k * p->n,
                              .step_b = p->m * p->k,
                              .step_c = p->m * p->n,
                              .b_transposed = p->a_transposed};
    return ok || err_set(e, ERR_UNSUPPORTED, "sizes of a product that libraries cannot be told");
}

/* Three buffers of at least so many bytes. */
static bool check_buffers(const char *what, const i64 want[3], const struct dev_launch *l, struct err *e)
{
    if (l->n_buf != 3 || l->n_param != 0 || l->n_grid != 1)
        return err_set(e, ERR_USAGE, "a %s has three buffers and nothing else, not %u, with %u parameters and %u grids", what, l->n_buf,
                       l->n_param, l->n_grid);
    for (u32 i = 0; i < l->n_buf; i++)
        if (l->buf[i].size < want[i])
            return err_set(e, ERR_USAGE, "buffer %u of a %s has %lld bytes, it needs %lld", i, what, (long long)l->buf[i].size,
                           (long long)want[i]);
    return true;
}

bool dev_product_check(const struct dev_product *p, const struct dev_launch *l, struct err *e)
{
    i64 size = dtype_size(p->type) * p->batch;
    return check_buffers("product", (i64[]){size * p->m * p->k, size * p->k * p->n, size * p->m * p->n}, l, e);
}

bool dev_conv_check(const struct dev_conv *c, const struct dev_launch *l, struct err *e)
{
    i64 size = dtype_size(c->type);
    i64 x = c->batch * c->channels * i64_product(c->axes, c->size), w = c->channels / c->groups * c->out_channels * i64_product(c->axes, c->kernel);
    i64 y = c->batch * c->out_channels * i64_product(c->axes, c->outputs);
    return check_buffers("convolution", (i64[]){size * x, size * (c->of_weights ? y : w), size * (c->of_weights ? w : y)}, l, e);
}
