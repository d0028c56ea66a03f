// SPDX-License-Identifier: Apache-2.0
//
// The device's library as a kernel like any other, verified and timed in the same way; baselines of speed-ups.
#include "lab/conv.h"

#include <string.h>

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

/* Weights with their second axis innermost, as libraries require for channels last. */
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

static bool is_by_library(struct conv_base *b, const struct conv_place *p, const struct conv_row *r, enum dtype type, enum layout l, struct arena *a,
                          struct err *why)
{
    struct buf name = {0};
    if (conv_row_is_fused(r)) return err_set(why, ERR_UNSUPPORTED, "libraries are not used for convolutions with bias or activation");
    conv_library(&b->library, r, type, l);
    b->by_library = dev_ask_conv(p->driver, &p->dev, &b->library, &name, why);
    if (b->by_library) b->name = str_dup(a, buf_view(&name));
    buf_release(&name);
    return b->by_library;
}

bool conv_find_base(struct conv_base *b, const struct conv_place *p, const struct task *t, const struct conv_row *r, enum dtype type,
                    enum layout l, const struct conv_base_opts *o, struct arena *a, struct err *e)
{
    struct err why = {0};
    struct candidate c;
    bool takes_library = !o->want || strcmp(o->want, "reference");
    *b = (struct conv_base){0};
    if (takes_library && is_by_library(b, p, r, type, l, a, &why)) {
        conv_library_subject(&b->subject, &b->library, t, a);
        return true;
    }
    if (takes_library && o->want) return err_set(e, why.code, "no baseline 'vendor': %s", why.msg);
    if (takes_library) log_printf(o->log, 2, "baseline: the reference schedule (%s)", why.msg);
    bool ok = conv_default(&c, p, t, e) && conv_build(&b->subject, p, t, &c, o->only_known, a, e);
    if (ok) b->name = S("reference");
    return ok;
}
