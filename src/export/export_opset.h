// SPDX-License-Identifier: Apache-2.0
//
// Private to export_opset*.c: a graph in the vocabulary of an opset.
#ifndef QUERN_EXPORT_OPSET_H
#define QUERN_EXPORT_OPSET_H

#include "export/export.h"
#include "op/op.h"

/* Nodes made of one that the opset does not have. why: of its expansion; empty: it was replaced by another form. */
struct opset_part { node_id first, last; u32 depth; struct str why; };

struct opset_size { sym s; value_id v; }; /* a size as a tensor [1] of i64 */

struct opset_job {
    struct graph *g;
    struct arena *a;
    i64 opset;
    node_id n;               /* the node at hand */
    struct { struct opset_part *v; u32 n, cap; } part;
    struct { struct opset_size *v; u32 n, cap; } size;
    struct err *e;
};

enum opset_result { OPSET_NO, OPSET_DONE, OPSET_FAILED }; /* not concerned; the node is dead, or in its form; error */

/* export_opset_form.c: ONNX's own operators whose older form, or whose definition by older operators, is not what op_expand makes. */
enum opset_result opset_form(struct opset_job *j);
/* export_opset_own.c: of domain quern. */
enum opset_result opset_own(struct opset_job *j);
/* Sizes as a tensor [n] of i64, computed from the shapes of inputs if they are no numbers. 0: error. */
value_id opset_sizes(struct opset_job *j, const sym *s, u32 n);
/* The node is dead, and the new ones from `first` on are inferred. */
enum opset_result opset_replaced(struct opset_job *j, node_id first);

#endif
