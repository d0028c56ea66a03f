// SPDX-License-Identifier: Apache-2.0
//
// args: a kernel's arguments, in order: packed constants, inputs, other constants, outputs; then the grids that pack operands which are
// no constants.
#include "lower/lower.h"

static kval add_arg(struct emit *m, struct kernel_arg arg, const char *prefix)
{
    struct str name = str_fmt(m->arena, "%s%u", prefix, m->arg.n);
    *arr_push(m->arena, &m->arg) = arg;
    const struct value *x = graph_value(m->g, arg.v);
    /* of a part only its own elements are written */
    enum kir_access out = x->part.whole ? KA_INOUT : KA_OUT;
    enum dtype type = arg.pack ? pack_dtype(arg.pack, x->dtype) : x->dtype;
    return kir_buf(m->k, name, dtype_stored(type), arg.is_out ? out : KA_IN);
}

kval emit_pack(struct emit *m, value_id v, const struct pack *p)
{
    const struct value *x = graph_value(m->g, v);
    struct emit_packed later = {.v = v, .pack = p};
    if (x->is_const) {
        m->packed[v] = true;
        return add_arg(m, (struct kernel_arg){.v = v, .pack = p}, "pack");
    }
    sym n = sym_const(m->g->sym, 1);
    for (u32 i = 0; i < p->n; i++) n = sym_mul(m->g->sym, n, p->dim[i].extent);
    later.to = kir_alloc(m->k, KS_TEMP, dtype_stored(pack_dtype(p, x->dtype)), 1, emit_size(m, n));
    *arr_push(m->arena, &m->packing) = later;
    return later.to;
}

void emit_args(struct emit *m)
{
    for (u32 i = 0; i < m->g->input.n; i++) {
        value_id v = m->g->input.v[i];
        const struct value *x = graph_value(m->g, v);
        if (m->n_uses[v] && !x->sdata && !x->is_const)
            m->buf[v] = add_arg(m, (struct kernel_arg){.v = v}, "in");
    }
    for (value_id v = 1; v < m->g->value.n; v++) {
        const struct value *x = graph_value(m->g, v);
        bool wanted = (x->is_const || x->data) && !x->sdata && m->n_uses[v] > (u32)m->packed[v];
        if (wanted && !emit_is_literal(x)) m->buf[v] = add_arg(m, (struct kernel_arg){.v = v}, "const");
    }
    for (u32 i = 0; i < m->g->output.n; i++) {
        value_id v = m->g->output.v[i];
        if (m->out[v]) continue;
        m->out[v] = add_arg(m, (struct kernel_arg){.v = v, .is_out = true}, "out");
        if (!m->buf[v]) m->buf[v] = m->out[v];
    }
    for (u32 i = 0; i < m->packing.n; i++) emit_pack_grid(m, m->packing.v[i].v, m->packing.v[i].pack, m->packing.v[i].to);
}
