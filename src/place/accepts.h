// SPDX-License-Identifier: Apache-2.0
//
// Private to place/: what converters of other vendors accept.
#ifndef QUERN_PLACE_ACCEPTS_H
#define QUERN_PLACE_ACCEPTS_H

#include "op/op.h"

enum accepts {
    ACCEPTS_HEXAGON,
    ACCEPTS_MYRIAD,
    ACCEPTS_ARA1,
    ACCEPTS_TPU,
    ACCEPTS_CV22,
    ACCEPTS_OPENVINO,
    ACCEPTS_NPU,
    N_ACCEPTS
};

/* Whether the converter takes this node; the error says why not. */
bool place_accepts(enum accepts by, const struct graph *g, node_id n, struct err *e);

#endif
