// SPDX-License-Identifier: Apache-2.0
//
// What a device can do at most, as far as kernels reach it: the denominators of other measurements. Kernels are texts of kernel IR, run on an
// open device by a small rig.
#ifndef QUERN_LAB_CEILING_H
#define QUERN_LAB_CEILING_H

#include "dev/dev.h"
#include "lang/lang.h"

/* rig.c */

struct rig { struct dev *dev; struct caps caps; };
enum { RIG_BUFFERS = 3 };
struct rig_kernel {         /* called "k", of one grid and one parameter, which is the number of groups (or iterations) */
    i64 groups;             /* these three are given */
    u32 launches;           /* per try */
    i64 size[RIG_BUFFERS];  /* bytes; 0: no such buffer */
    struct dev_kernel *kernel;
    struct dev_mem buf[RIG_BUFFERS];
    u32 n_buf;
};
/* Builds it and makes its buffers. After a failure it is to be closed, too. */
bool rig_open(struct rig_kernel *k, const struct rig *r, struct str text, struct err *e);
void rig_close(struct rig_kernel *k, const struct rig *r);
bool rig_launch(const struct rig_kernel *k, const struct rig *r, struct err *e);   /* launches times, and waits */
double rig_seconds(const struct rig_kernel *k, const struct rig *r, struct err *e); /* of a launch, the best of several tries; negative: it failed */
/* From few groups to k's, until a launch takes a twentieth of a second: what is slow would take for ever. */
bool rig_grow(struct rig_kernel *k, const struct rig *r, struct err *e);
bool rig_fill(const struct rig *r, struct dev_mem m, struct err *e);               /* with zeros that are really there */

/* ceiling.c: 0: it cannot be measured, err says why. */

double ceiling_copy(const struct rig *r, struct err *e);    /* bytes read and written, GB/s */
double ceiling_fma(const struct rig *r, struct err *e);     /* f32 multiply-adds in registers, GFLOP/s */
double ceiling_product(const struct rig *r, const struct caps_matrix *s, struct err *e); /* by matrix units of that shape, GFLOP/s */
/* c = a * b + 0 for each subgroup, CEILING_FRAGMENTS times, this many rounds; and the sizes of its buffers. */
enum { CEILING_FRAGMENTS = 4 };
void ceiling_product_text(struct buf *t, const struct caps_matrix *s, u32 subgroup, u32 rounds);
void ceiling_product_sizes(i64 size[RIG_BUFFERS], const struct caps_matrix *s, i64 groups);

struct ceilings { double gbps, gflops, matrix_gflops; }; /* 0: there is none, or it could not be measured */
/* All of a device's, in a child process; matrix units for operands of type t. */
bool ceilings_ask(struct ceilings *c, const struct dev_driver *v, const struct dev_opts *o, enum dtype t, struct err *e);

#endif
