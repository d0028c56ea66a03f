// SPDX-License-Identifier: Apache-2.0
//
// Private to lab/: how the configurations of one computation are chosen. Fields of the `head` are chosen one after the other; those of each
// part of the `tail` are coupled only with each other and with the head, so points are counted, and skipped, by multiplication.
#ifndef QUERN_LAB_SPACE_H
#define QUERN_LAB_SPACE_H

#include "lab/lab.h"

enum { SPACE_MAX_PART = 6, SPACE_MAX_PARTS = 5 };

struct space_stage { /* a rule in reports */
    const char *what;
    const char *wants; /* keys of a file that it concerns, and what it wants of them */
};
struct space_head { u8 field, stage; bool ends; /* the last field of its stage */ };
struct space_part { u32 n; u8 field[SPACE_MAX_PART]; u8 stage; };

struct space_choice { /* the choices so far, and the rules */
    const struct lab_space *s;
    enum lab_rules rules;
    struct lab_config c;
};

struct space_rules {
    u32 n_stages;
    const struct space_stage *stage;
    u32 n_head;
    const struct space_head *head;
    u32 n_parts;
    const struct space_part *part;
    /* Rules that depend only on fields up to this one; may set fields that follow from them. */
    bool (*head_fits)(struct space_choice *x, u32 field);
    bool (*part_is_used)(const struct lab_config *c, u32 part); /* else its fields are 0; NULL: all are */
    bool (*part_fits)(const struct space_choice *x, u32 part, const struct lab_config *c);
    /* Rules after those of parts: of the head and its parts, then of the head again; cut NULL: none of them. */
    u32 cut_stage, last_stage;
    bool (*cut)(const struct space_choice *x);
    bool (*cut_part)(const struct space_choice *x, u32 part, const struct lab_config *c);
    bool (*last)(const struct space_choice *x);
    void (*count_more)(const struct space_choice *x, struct lab_count *c); /* stages that heads do not count; NULL: none */
};

bool space_has(const struct lab_list *l, i64 v);

/* space_gemm.c, space_attention.c */
extern const struct space_rules space_gemm, space_attention;

#endif
