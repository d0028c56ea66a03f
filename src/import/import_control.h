// SPDX-License-Identifier: Apache-2.0
//
// Private to import_control.c, import_known.c and import_call.c: control flow of a graph that is being inferred.
#ifndef QUERN_IMPORT_CONTROL_H
#define QUERN_IMPORT_CONTROL_H

#include "import/import.h"
#include "op/op.h"

struct control {
    struct graph *g;
    const struct import_bodies *bodies;
    struct import_lists *lists;
    struct err *e;
    /* import_control, for bodies that remain */
    bool (*infer)(struct graph *g, const struct import_bodies *bodies, struct err *e);
};

/* import_known.c */
/* A node's body as read from the file, NULL: none; and the range of the node's inputs that it
   captured. */
const struct graph *control_body(const struct control *c, node_id n, const char *attr);
bool control_captured(const struct control *c, node_id n, const char *attr, u32 *from, u32 *count);
value_id control_scalar(struct graph *g, node_id n, value_id v); /* converts to a value without axes */
/* A value that depends on constants only. */
bool control_is_constant(const struct graph *g, value_id v);

/* import_call.c: nodes that remain, as quern::Loop and quern::If, and are decided at run time. */
bool control_keep_loop(struct control *c, node_id n);
bool control_keep_scan(struct control *c, node_id n);
bool control_keep_branch(struct control *c, node_id n);
/* bodies with sequences as inputs or outputs are unsupported */
bool control_can_keep(const struct control *c, node_id n);
/* Whether the number of iterations of a Loop follows from constants. */
bool control_is_decided(const struct control *c, node_id n);

#endif
