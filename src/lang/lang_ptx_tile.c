// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_tile.c: tile copies (TMA), as lang_gpu_tile.c describes them: the workgroup's first thread issues and
// awaits them, and each pending group of copies has a barrier object in shared memory. PTX ISA, "Tensors",
// "mbarrier" and "cp.async.bulk.tensor": a phase ends after its one arrival, which closes the group, and all
// announced bytes. The fence before a copy orders it after the threads' own accesses before a barrier.
#include "lang/lang_ptx.h"

static i64 slots(const struct ptx *s) { return gpu_tile_slots(s->k, s->from, s->to); }

static pval is_first(struct ptx *s)
{
    return PTX_INS(s, PC_PRED, "setp.eq.s32", ptx_reg(s, ptx_thread(s)), ptx_int(s, PC_WORD, 0));
}

void ptx_tile_open(struct ptx *s, i64 at)
{
    i64 n = slots(s);
    if (!n) return;
    if (!s->shared) buf_printf(&s->memory, "\t.shared .align 8 .b8 q_objects[%lld];\n", (long long)n * 8);
    s->objects = ptx_source(s, PC_WORD, "mov.u32", s->shared ? s->shared : "q_objects");
    s->objects = ptx_reg(s, ptx_add(s, s->objects, ptx_int(s, PC_WORD, s->shared ? at : 0)));
    s->made = ptx_new(s, PC_WORD);
    s->ended = ptx_new(s, PC_WORD);
    pval first = is_first(s);
    int label = (int)ptx_labels(s, 1);
    ptx_line(s, "\tmov.b32 %r, 0;\n\tmov.b32 %r, 0;\n\t@!%r bra L%d;", s->made, s->ended, first, label);
    for (i64 i = 0; i < n; i++) ptx_line(s, "\tmbarrier.init.shared::cta.b64 [%r+%l], 1;", s->objects, 8 * i);
    ptx_line(s, "\tfence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;\nL%d:", label);
}

/* The barrier object of group number `of`, in registers of this place. */
static pval object(struct ptx *s, pval of)
{
    pval r = ptx_new(s, PC_WORD);
    ptx_line(s, "\trem.u32 %r, %r, %l;\n\tmad.lo.s32 %r, %r, 8, %r;", r, of, slots(s), r, r, s->objects);
    return r;
}

void ptx_tile(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    const struct kir_map *m = &s->k->map.v[x->imm.i];
    struct ptx_place to = ptx_address_plain(s, x->a, x->b);
    pval row = ptx_reg(s, ptx_lane_as(s, x->c, 0, PC_WORD)), col = ptx_reg(s, ptx_lane_as(s, x->d, 0, PC_WORD));
    pval map = ptx_source(s, PC_LONG, "mov.b64", str_fmt(s->arena, "%.*s_m%lld", STR_ARG(s->name), (long long)x->imm.i).p);
    map = PTX_INS(s, PC_LONG, "cvta.param.u64", map);
    pval at = object(s, s->made);
    i64 bytes = (i64)m->box_rows * m->box_cols * dtype_size(kir_dtype(s->k, x->a));
    pval place = ptx_new(s, PC_WORD);
    ptx_line(s, "\tfence.proxy.async.shared::cta;\n\tmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r], %l;", at, bytes);
    ptx_line(s, "\tadd.s32 %r, %r, %l;", place, to.base, to.offset);
    ptx_line(s, "\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r], [%r, {%r, %r}], [%r];", place, map, col,
             row, at);
}

/* The first thread closes a group and polls until at most the newest ones are pending. */
void ptx_tile_await(struct ptx *s, i64 newest)
{
    if (!slots(s)) return;
    pval first = is_first(s), more = ptx_new(s, PC_PRED), done = ptx_new(s, PC_PRED), state = ptx_new(s, PC_LONG),
         pending = ptx_new(s, PC_WORD), phase = ptx_new(s, PC_WORD);
    int label = (int)ptx_labels(s, 3);
    ptx_line(s, "\t@!%r bra L%d;", first, label + 2);
    ptx_line(s, "\tmbarrier.arrive.shared::cta.b64 %r, [%r];\n\tadd.s32 %r, %r, 1;", state, object(s, s->made), s->made, s->made);
    ptx_line(s, "L%d:\n\tadd.s32 %r, %r, %l;\n\tsetp.lt.u32 %r, %r, %r;\n\t@!%r bra L%d;", label, pending, s->ended, newest, more, pending,
             s->made, more, label + 2);
    pval at = object(s, s->ended);
    ptx_line(s, "\tdiv.u32 %r, %r, %l;\n\tand.b32 %r, %r, 1;", phase, s->ended, slots(s), phase, phase);
    ptx_line(s, "L%d:\n\tmbarrier.try_wait.parity.shared::cta.b64 %r, [%r], %r;\n\t@!%r bra L%d;", label + 1, done, at, phase, done, label + 1);
    ptx_line(s, "\tadd.s32 %r, %r, 1;\n\tbra L%d;\nL%d:", s->ended, s->ended, label, label + 2);
}
