// SPDX-License-Identifier: Apache-2.0
//
// A row as the device's own library is asked for it, and that as a kernel like any other: verified and timed in the same way.
#include "lab/conv.h"

void conv_library(struct dev_conv *x, const struct conv_row *r, enum dtype t, enum layout l)
{
    *x = (struct dev_conv){.type = t, .is_transposed = r->is_transposed, .channels_last = l == LAYOUT_CLAST, .of_weights = r->pass == CONV_WEIGHTS, .axes = r->axes,
                           .batch = r->batch, .channels = r->channels, .out_channels = r->out_channels, .groups = r->groups};
    conv_row_outputs(r, x->outputs);
    for (u32 i = 0; i < r->axes; i++) {
        x->size[i] = r->size[i], x->kernel[i] = r->kernel[i], x->stride[i] = r->stride[i], x->dilation[i] = r->dilation[i];
        x->pad_begin[i] = r->pad_begin[i], x->pad_end[i] = r->pad_end[i] - r->output_pad[i];
    }
}

/* Weights with their second axis behind the others, as libraries want them beside channels last. */
static const struct pack *second_last(const struct graph *g, value_id w, struct arena *a)
{
    const struct shape *s = &graph_value(g, w)->shape;
    struct pack *p = arena_new(a, struct pack);
    p->n = s->rank;
    for (u32 i = 0; i < s->rank; i++) {
        u32 axis = i == 0 ? 0 : i + 1 == s->rank ? 1 : i + 1;
        p->dim[i].extent = s->dim[axis], p->dim[i].axis = axis, p->dim[i].stride = 1;
    }
    return p;
}

void conv_library_subject(struct subject *s, const struct dev_conv *library, const struct task *t, struct arena *a)
{
    const struct node *n = graph_node(&t->g, t->anchor);
    *s = (struct subject){.conv = library};
    subject_take_operands(s, (value_id[]){n->in.v[0], n->in.v[1], n->out.v[0]}, a);
    if (library->channels_last && !library->of_weights) s->kernel.arg[1].pack = second_last(&t->g, n->in.v[1], a);
}
