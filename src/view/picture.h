// SPDX-License-Identifier: Apache-2.0
//
// Private to view/: what a picture shows, and where. Boxes are operators, or groups of them.
#ifndef QUERN_VIEW_PICTURE_H
#define QUERN_VIEW_PICTURE_H

#include "view/view.h"

struct picture {
    const struct view *v;
    struct arena *a;
    u32 n_boxes, n_columns;
    u32 *column;  /* per box */
    u32 *n_far;   /* per box: tensors that it reads from elsewhere, if they are drawn as one node;
                     else 0 */
    u32 *maker;   /* per tensor: 1 + operator; 0: none */
    u8 *is_shown; /* per tensor */
    u32 *part;    /* per tensor: 1 + sub-graph in whose frame it is; 0: none */
    u32 *home;    /* per tensor: its column */
    u16 *repeats; /* per tensor: bits of other columns that it is repeated in */
    u32 *first; /* per tensor that is repeated beside each box: 1 + the first box that reads it; 0:
                   it is not */
    u32 *n_bundle; /* per tensor: tensors that it stands for, with itself; 0: itself alone */
};

/* In the arena. */
void picture_arrange(struct picture *p, const struct view *v, struct arena *a);
u32 picture_box(const struct view *v, u32 op);
bool picture_is_group(const struct view *v, u32 op); /* its box is a group of several */
bool picture_is_interface(const struct graph *g, value_id v);
/* Whether there is an edge from the tensor to the operator's box; it may begin elsewhere, see
 * picture_is_far. */
bool picture_reads(const struct picture *p, u32 op, u32 tensor);
/* Whether that edge begins at a repetition of the tensor. */
bool picture_is_far(const struct picture *p, u32 op, u32 tensor);

#endif
