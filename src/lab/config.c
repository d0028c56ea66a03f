// SPDX-License-Identifier: Apache-2.0
//
// Configurations of any kind: sizes, checks and descriptions are those of its computation.
#include "lab/config.h"

static const struct lab_config_ops *ops(const struct lab_config *c)
{
    return lab_is_attention(c->kind) ? &lab_config_attention : &lab_config_gemm;
}

double lab_flops(const struct lab_config *c) { return ops(c)->flops(c); }
i64 lab_threads(const struct lab_config *c) { return ops(c)->threads(c); }
i64 lab_shared(const struct lab_config *c, i64 size) { return ops(c)->shared(c, size); }
i64 lab_registers(const struct lab_config *c) { return ops(c)->registers(c); }
bool lab_config_check(const struct lab_config *c, struct err *e) { return ops(c)->check(c, e); }

double lab_name_flops(struct str name, const struct lab_config *like)
{
    struct lab_config c;
    struct buf b = {0};
    if (lab_name_parse(&c, name, &(struct err){0})) return lab_flops(&c);
    lab_name_product(&b, like);
    buf_char(&b, ' ');
    bool is_this = str_starts(name, buf_view(&b));
    buf_release(&b);
    return is_this ? lab_flops(like) : 0;
}

void lab_explain(struct buf *b, const struct lab_config *c)
{
    struct err e = {0};
    const struct lab_fields *t = lab_fields(c->kind);
    lab_name_print(b, c);
    buf_char(b, '\n');
    ops(c)->explain_product(b, c);
    if (lab_config_check(c, &e)) ops(c)->explain_group(b, c);
    else buf_printf(b, "impossible %s\n", e.msg);
    for (u32 f = 0; f < t->n; f++) buf_printf(b, "  %-4s %5d  %s\n", t->v[f].tag, c->v[f], t->v[f].what);
}
