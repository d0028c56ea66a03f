// SPDX-License-Identifier: Apache-2.0
//
// The builder's records about each instruction.
#include "kir/build.h"

struct kir_range kir_range(const struct kir *k, kval v) { return k->side.v[v].range; }
i64 kir_multiple(const struct kir *k, kval v) { return (i64)1 << k->side.v[v].twos; }
u32 kir_data(const struct kir *k, kval v) { return k->side.v[v].data; }
