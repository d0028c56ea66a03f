// SPDX-License-Identifier: Apache-2.0
//
// Accumulators: registers of a scalar or a vector that loops of a kernel add to.
#include "lower/lower.h"

enum dtype emit_acc_type(const struct emit *m, enum dtype t)
{
    return dtype_is_float(t) && m->acc_f64 ? DT_F64 : emit_type(t);
}

void emit_acc_open(struct emit *m, struct emit_acc *a, u32 lanes, kval init)
{
    a->lanes = lanes;
    a->reg = kir_alloc(m->k, KS_REG, kir_dtype(m->k, init), lanes, kir_int(m->k, 1));
    emit_acc_set(m, a, init);
}

kval emit_acc_get(struct emit *m, const struct emit_acc *a)
{
    return kir_load(m->k, a->reg, kir_int(m->k, 0));
}

void emit_acc_set(struct emit *m, const struct emit_acc *a, kval v)
{
    kir_store(m->k, a->reg, kir_int(m->k, 0), kir_splat(m->k, v, a->lanes));
}

void emit_acc_fma(struct emit *m, const struct emit_acc *a, kval x, kval y)
{
    kval old = emit_acc_get(m, a);
    if (dtype_is_float(kir_dtype(m->k, old))) emit_acc_set(m, a, kir_fma(m->k, x, y, old));
    else emit_acc_set(m, a, kir_bin(m->k, KI_ADD, old, kir_bin(m->k, KI_MUL, x, y)));
}

u32 emit_lanes(const struct emit *m, u32 n, const kval *idx)
{
    u32 lanes = 1;
    for (u32 i = 0; i < n; i++)
        if (kir_lanes(m->k, idx[i]) > lanes) lanes = kir_lanes(m->k, idx[i]);
    return lanes;
}
