// SPDX-License-Identifier: Apache-2.0
//
// Private to gen/: gradients of convolutions' weights as contractions by a workgroup (wg_conv_grad, mma_conv_grad).
#ifndef QUERN_GEN_ADDR_GRAD_H
#define QUERN_GEN_ADDR_GRAD_H

#include "gen/contract.h"
#include "gen/grad.h"

struct grad_address {
    struct grad q;
    struct gemm x;       /* sizes: rows, columns and terms, batches are conv groups */
    bool by_channel;     /* columns count input channels innermost */
    i64 taps;
    struct addressing address;
};
bool grad_address_of(struct grad_address *s, const struct task *t); /* false: the task is no such gradient of floats */
void grad_address_open(struct grad_address *x, struct contraction *p); /* sets p->address; p->m is set before */

#endif
