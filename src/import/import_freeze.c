// SPDX-License-Identifier: Apache-2.0
//
// Replaces inputs of an ONNX model by constants. Test cases (and some exports)
// pass values that decide sizes (target shapes, axes, pads, k) as inputs; quern
// compiles for known operations, so such inputs are fixed before the import.
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"

bool import_freeze(struct str *out, struct arena *a, struct str model,
                   struct tensor *const *content, i64 n, struct err *e)
{
    Onnx__ModelProto *p = io_onnx_unpack(&onnx__model_proto__descriptor, a, model, e);
    if (!p) return false;
    if (!p->graph || (i64)p->graph->n_input < n)
        return err_set(e, ERR_INPUT, "model has fewer than %lld inputs", (long long)n);
    Onnx__GraphProto *g = p->graph;
    Onnx__TensorProto **all = arena_array(a, Onnx__TensorProto *, (i64)g->n_initializer + n);
    if (g->n_initializer) memcpy(all, g->initializer, g->n_initializer * sizeof *all);
    size_t count = g->n_initializer;
    for (i64 i = 0; i < n; i++) {
        if (!content[i]) continue;
        all[count] = arena_new(a, Onnx__TensorProto);
        io_onnx_fill(all[count], content[i], a);
        all[count++]->name = g->input[i]->name;
    }
    g->initializer = all;
    g->n_initializer = count;
    size_t size = onnx__model_proto__get_packed_size(p);
    u8 *bytes = arena_try(a, (i64)size, e, "the model with its constants");
    if (!bytes) return false;
    onnx__model_proto__pack(p, bytes);
    *out = (struct str){(const char *)bytes, (i64)size};
    return true;
}
