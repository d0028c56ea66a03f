// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own operators, as the standard lists them (onnx_operators.inc).
#include "op/op.h"

static const struct op_onnx operators[] = {
#define X(name, first, last, gone) {name, first, last, gone},
#include "op/onnx_operators.inc"
#undef X
};

const struct op_onnx *op_onnx_all(i64 k) { return k < countof(operators) ? &operators[k] : NULL; }

const struct op_onnx *op_onnx_find(struct str name)
{
    for (i64 k = 0; k < countof(operators); k++)
        if (str_is(name, operators[k].name)) return &operators[k];
    return NULL;
}
