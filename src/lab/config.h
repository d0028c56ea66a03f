// SPDX-License-Identifier: Apache-2.0
//
// Private to lab/: what differs between the configurations of GEMMs and of attention, and checks that both are made of.
#ifndef QUERN_LAB_CONFIG_H
#define QUERN_LAB_CONFIG_H

#include "lab/lab.h"

/* config_check.c: relations between fields; false: ERR_INPUT names the fields and their values. */
/* whether a field is the product of three others */
struct lab_product { u32 whole, x, y, z; };
bool lab_is_product(const struct lab_config *c, const struct lab_product *p, struct err *e);
bool lab_divides(const struct lab_config *c, u32 f, u32 whole, struct err *e);
/* Whether all threads together move a tile of that many elements in loads or stores of the field's width. */
struct lab_tile { i64 threads, elements; const char *what; };
bool lab_shares(const struct lab_config *c, u32 width, const struct lab_tile *t, struct err *e);
bool lab_group_fits(double threads, struct err *e); /* no more than any device allows */

/* config_gemm.c, config_attention.c: see those of lab.h without the prefix. */
struct lab_config_ops {
    double (*flops)(const struct lab_config *c);
    i64 (*threads)(const struct lab_config *c);
    i64 (*shared)(const struct lab_config *c, i64 size);
    i64 (*registers)(const struct lab_config *c);
    bool (*check)(const struct lab_config *c, struct err *e);
    void (*explain_product)(struct buf *b, const struct lab_config *c); /* operands and results, a line each */
    void (*explain_group)(struct buf *b, const struct lab_config *c);   /* of consistent fields */
};
extern const struct lab_config_ops lab_config_gemm, lab_config_attention;
/* The first field in which the output's layout differs from that of the scores; LAB_MAX_FIELDS: none. */
u32 lab_layouts_differ(const struct lab_config *c);

#endif
