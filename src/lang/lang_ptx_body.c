// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_body.c: the traversal of a kernel. Every grid becomes an entry NAME_0, NAME_1 ... with the calling
// convention of lang_gpu.c, followed by the constants NAME_0_info and NAME_0_maps that its launcher reads.
#include "lang/lang_ptx.h"

#include <string.h>

/* Values. */

/* The type of an operation: division of indices that are not negative is unsigned. */
static bool is_index_division(const struct ptx *s, const struct kir_ins *x)
{
    return (x->op == KI_DIV || x->op == KI_MOD) && x->dtype == DT_I64 && kir_range(s->k, x->a).lo >= 0 && kir_range(s->k, x->b).lo > 0;
}

/* i64 is computed in 64 bits if the result or an operand needs them. */
static enum ptx_class class_of_operands(const struct ptx *s, kval v, enum dtype t)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum ptx_class c = ptx_class_for(t);
    if (t != DT_I64) return c;
    bool is_wide = s->facts->val[v].is_wide;
    for (u32 i = x->op == KI_SELECT; i < kir_op_info(x->op)->n_args; i++) is_wide |= s->facts->val[kir_operand(x, i)].is_wide;
    return is_wide ? PC_LONG : PC_WORD;
}

/* One lane of an operator; halves are computed in f32. */
static pval lane_of(struct ptx *s, kval v, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum dtype t = kir_dtype(s->k, x->op == KI_SELECT ? x->b : x->a);
    bool half = t == DT_F16 || t == DT_BF16, computes = half && x->op != KI_SELECT;
    enum ptx_class c = class_of_operands(s, v, t);
    pval arg[4] = {0};
    for (u32 j = 0; j < kir_op_info(x->op)->n_args; j++) {
        arg[j] = ptx_lane_as(s, kir_operand(x, j), i, c);
        if (computes) arg[j] = ptx_from_half(s, t, arg[j]);
    }
    const char *name = ptx_into(s, v, i) ? ptx_opcode(x->op, t, c) : NULL;
    if (name) {
        ptx_to(s, ptx_into(s, v, i), name, arg);
        return ptx_same(s, ptx_into(s, v, i));
    }
    if (is_index_division(s, x)) return ptx_resize(s, ptx_divide(s, x->op, arg[0], arg[1]), ptx_class_of(s, v));
    arg[0] = kir_op_info(x->op)->n_args == 1 ? ptx_reg(s, arg[0]) : arg[0];
    pval r = ptx_scalar(s, x->op, computes ? DT_F32 : t, arg);
    if (computes && x->dtype == t) return ptx_to_half(s, t, r);
    return x->dtype == DT_I64 ? ptx_resize(s, r, ptx_class_of(s, v)) : r;
}

static void conversion(struct ptx *s, kval v, u32 i)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum dtype from = kir_dtype(s->k, x->a);
    enum ptx_class c = ptx_class_of(s, v);
    bool from_word = (from == DT_F16 || from == DT_BF16) && x->op == KI_CAST && x->dtype != from && x->dtype != DT_BOOL && ptx_has_words(s, x->a);
    if (from_word) {
        pval f = ptx_half_of(s, from, ptx_word(s, x->a, i / 2), i % 2);
        ptx_set(s, v, i, ptx_cast(s, DT_F32, x->dtype, f, c));
        return;
    }
    pval a = ptx_lane(s, x->a, i);
    pval r = x->op == KI_CAST ? ptx_cast(s, from, x->dtype, a, c) : ptx_bits(s, from, x->dtype, a);
    ptx_set(s, v, i, x->dtype == DT_I64 ? ptx_resize(s, r, c) : r);
}

/* Vectors of halves are made in pairs. */
static bool cast_pairs(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    enum dtype from = kir_dtype(s->k, x->a), t = x->dtype;
    if (x->op != KI_CAST || (t != DT_F16 && t != DT_BF16) || from != DT_F32 || x->lanes < 2) return false;
    for (u32 i = 0; i < x->lanes; i += 2) {
        pval lo = ptx_reg(s, ptx_lane(s, x->a, i)), hi = ptx_reg(s, ptx_lane(s, x->a, i + 1));
        ptx_set_word(s, v, i / 2, ptx_to_halves(s, t, lo, hi));
    }
    return true;
}

/* Lanes from, from + step ..., folded in halves. */
static pval fold(struct ptx *s, const struct kir_ins *x, u32 from, u32 step)
{
    enum kir_op op = x->op == KI_HADD ? KI_ADD : x->op == KI_HMIN ? KI_MIN : KI_MAX;
    enum dtype t = kir_dtype(s->k, x->a);
    if (step == kir_lanes(s->k, x->a)) return ptx_lane(s, x->a, from);
    pval a = fold(s, x, from, 2 * step), b = fold(s, x, from + step, 2 * step);
    if (t != DT_F16 && t != DT_BF16) return ptx_scalar(s, op, t, (const pval[3]){a, b});
    pval wide[3] = {ptx_from_half(s, t, a), ptx_from_half(s, t, b)};
    return ptx_to_half(s, t, ptx_scalar(s, op, DT_F32, wide));
}

static void lanewise(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (s->facts->val[v].uses == 0 || ptx_is_derived(s->k, v)) return;
    if (x->role) ptx_frag_op(s, v);
    else if (cast_pairs(s, v)) return;
    else
        for (u32 i = 0; i < x->lanes; i++) {
            if (x->op == KI_CAST || x->op == KI_BITS) conversion(s, v, i);
            else ptx_set(s, v, i, lane_of(s, v, i));
        }
}

/* Structures. */

static void open_loop(struct ptx *s, kval v)
{
    ptx_open(s, v, false);
    struct ptx_level *l = ptx_inner(s);
    l->label = ptx_labels(s, 2);
    l->counter = ptx_new(s, PC_WORD);
    ptx_set(s, v, 0, l->counter);
}

/* Tested at its end; before the first trip, too, unless it is known to happen. */
static void close_loop(struct ptx *s)
{
    struct ptx_level l;
    kval v = ptx_inner(s)->open;
    const struct kir_ins *x = kir_at(s->k, v);
    ptx_close(s, &l);
    pval from = ptx_lane_as(s, x->a, 0, PC_WORD), to = ptx_lane_as(s, x->b, 0, PC_WORD), step = ptx_lane_as(s, x->c, 0, PC_WORD);
    i64 first, end;
    bool is_entered = ptx_is_int(s, from, &first) && ptx_is_int(s, to, &end) && first < end;
    pval more = ptx_new(s, PC_PRED);
    ptx_line(s, "\tmov.b32 %r, %r;", l.counter, from);
    if (!is_entered) ptx_line(s, "\tsetp.ge.s32 %r, %r, %r;\n\t@%r bra L%d;", more, l.counter, to, more, (int)l.label + 1);
    ptx_line(s, "L%d:", (int)l.label);
    ptx_append(s, &l.code);
    ptx_line(s, "\tadd.s32 %r, %r, %r;\n\tsetp.lt.s32 %r, %r, %r;\n\t@%r bra L%d;", l.counter, l.counter, step, more, l.counter, to, more,
             (int)l.label);
    ptx_line(s, "L%d:", (int)l.label + 1);
}

static void open_branch(struct ptx *s, kval v)
{
    pval cond = ptx_lane(s, kir_at(s->k, v)->a, 0);
    ptx_open(s, v, true);
    ptx_inner(s)->cond = cond;
    ptx_inner(s)->label = ptx_labels(s, 2);
}

static void divide(struct ptx *s)
{
    struct ptx_level *l = ptx_inner(s);
    ptx_forget(s);
    l->other = l->code;
    l->code = (struct buf){0};
    l->is_divided = true;
}

static void close_branch(struct ptx *s)
{
    struct ptx_level l;
    ptx_close(s, &l);
    int label = (int)l.label;
    ptx_line(s, "\t@!%r bra L%d;", l.cond, label);
    ptx_append(s, l.is_divided ? &l.other : &l.code);
    if (l.is_divided) ptx_line(s, "\tbra L%d;\nL%d:", label + 1, label);
    if (l.is_divided) ptx_append(s, &l.code);
    ptx_line(s, "L%d:", l.is_divided ? label + 1 : label);
}

static void barrier(struct ptx *s)
{
    if (kir_warpgroup(s->k) > 1) ptx_line(s, "\tfence.proxy.async.shared::cta;");
    ptx_line(s, "\tbar.sync 0;");
}

static void instruction(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    bool is_used = s->facts->val[v].uses > 0;
    if (gpu_run_ends(s->facts, v)) ptx_line(s, "\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;");
    switch (x->op) {
    case KI_LOOP: open_loop(s, v); break;
    case KI_IF: open_branch(s, v); break;
    case KI_ELSE: divide(s); break;
    case KI_END: kir_at(s->k, ptx_inner(s)->open)->op == KI_LOOP ? close_loop(s) : close_branch(s); break;
    case KI_ALLOC: ptx_alloc(s, v); break;
    case KI_LOAD: ptx_load(s, v); break;
    case KI_STORE: ptx_store(s, v); break;
    case KI_BARRIER: barrier(s); break;
    case KI_AWAIT: ptx_await(s, v); break;
    case KI_TILE: ptx_tile(s, v); break;
    case KIR_HORIZONTAL:
        if (is_used) ptx_set(s, v, 0, fold(s, x, 0, 1));
        break;
    case KIR_LANEWISE: lanewise(s, v); break;
    case KIR_SG_REDUCTIONS: case KI_SHUFFLE:
        if (is_used) ptx_collective(s, v);
        break;
    case KIR_FRAGMENTS:
        if (is_used || x->op == KI_FSTORE) ptx_frag_op(s, v);
        break;
    case KIR_DOTS: ptx_fail(s, "holds 'dot', which must be expanded first"); break;
    case KIR_NO_OP: case KIR_LEAVES: case KI_RAMP: case KI_SPLAT: case KI_LANE: case KI_HALVES: case KI_ZIP: case KI_BUF: case KI_GRID:
    case KI_PREFETCH: break; /* a hint; caches share loads between threads */
    }
}

/* Functions. */

static void open_function(struct ptx *s)
{
    s->level.n = s->def.n = s->entry.n = 0;
    s->n_label = 0;
    memset(s->n_reg, 0, sizeof s->n_reg);
    memset(s->bucket, 0, PTX_BUCKETS * sizeof *s->bucket);
    *arr_push(s->arena, &s->def) = (struct ptx_def){0};
    *arr_push(s->arena, &s->entry) = (struct ptx_entry){0};
    ptx_open(s, 0, false);
    i64 shared = gpu_shared_bytes(s->k, s->from, s->to);
    s->shared = shared > PTX_MAX_STATIC ? "q_shared" : NULL;
    ptx_tile_open(s, ptx_arrays(s));
}

static u32 n_far(const struct kir *k)
{
    u32 n = 0;
    for (kval v = 1; v < k->ins.n; v++) n += kir_is_far(kir_at(k, v));
    return n;
}

static bool uses_map(const struct ptx *s, u32 map)
{
    for (kval v = s->from; v < s->to; v++)
        if (kir_at(s->k, v)->op == KI_TILE && kir_at(s->k, v)->imm.i == map) return true;
    return false;
}

/* A pointer per array, the kernel's parameters, the first workgroup of the launched part, tensor maps. */
static void parameters(struct ptx *s, struct buf *out)
{
    u32 far = n_far(s->k), n = far + s->k->param.n + 3;
    for (u32 i = 0; i < n; i++)
        buf_printf(out, "%s\t.param .%s %.*s_p%u", i ? ",\n" : "", i < far ? "u64 .ptr .global .align 16" : "b32", STR_ARG(s->name), i);
    for (u32 i = 0; i < s->k->map.n; i++)
        if (uses_map(s, i)) buf_printf(out, ",\n\t.param .align 64 .b8 %.*s_m%u[128]", STR_ARG(s->name), i);
}

static void registers(const struct ptx *s, struct buf *out)
{
    static const char *const type[N_PTX_CLASSES] = {"pred %p", "b16 %h", "b32 %r", "b64 %rd", "f32 %f", "f64 %fd"};
    for (u32 i = 0; i < N_PTX_CLASSES; i++)
        if (s->n_reg[i]) buf_printf(out, "\t.reg .%s<%u>;\n", type[i], s->n_reg[i]);
}

static void constants(struct ptx *s, struct buf *out)
{
    const struct kir *k = s->k;
    u32 n_map = gpu_tile_facts(k, s->from, s->to, NULL, s->err);
    i64 shared = gpu_shared_bytes(k, s->from, s->to);
    buf_printf(out, ".visible .global .align 4 .b32 %.*s_info[8] = {1, %u, %u, %u, %u, %lld, %u, 0};\n", STR_ARG(s->name), s->group[0],
               s->group[1], s->group[2], k->subgroup, (long long)(s->shared ? shared : 0), n_map);
    if (!n_map) return;
    i64 (*fact)[GPU_TILE_FACTS] = arena_alloc(s->arena, (i64)sizeof *fact * n_map);
    gpu_tile_facts(k, s->from, s->to, fact, s->err);
    buf_printf(out, ".visible .global .align 4 .b32 %.*s_maps[%u] = {", STR_ARG(s->name), n_map * GPU_TILE_FACTS);
    for (u32 i = 0; i < n_map * GPU_TILE_FACTS; i++) buf_printf(out, i ? ", %lld" : "%lld", (long long)fact[i / GPU_TILE_FACTS][i % GPU_TILE_FACTS]);
    buf_z(out, "};\n");
}

static void grid_function(struct ptx *s, struct buf *out, u32 number, kval open)
{
    static const char *const group[] = {"%ctaid.x", "%ctaid.y", "%ctaid.z"};
    const struct kir *k = s->k;
    kval dim[3] = {0}, end;
    s->name = str_fmt(s->arena, "%.*s_%u", STR_ARG(k->name), number);
    s->from = open, s->to = text_end(k, open);
    u32 n = text_grid(s->facts, open, dim, &end), base = n_far(k) + k->param.n;
    open_function(s);
    for (u32 i = 0; i < n; i++) { /* the last is the innermost */
        u32 d = n - 1 - i;
        pval first = ptx_source(s, PC_WORD, "ld.param.b32", str_fmt(s->arena, "[%.*s_p%u]", STR_ARG(s->name), base + d).p);
        ptx_set(s, dim[i], 0, ptx_add(s, ptx_source(s, PC_WORD, "mov.u32", group[d]), first));
    }
    for (kval v = open; v < end && !s->err->code; v++) instruction(s, v);
    if (gpu_run_ends(s->facts, end)) ptx_line(s, "\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;");
    ptx_tile_await(s, 0); /* the memory must stay allocated until the copies complete */
    buf_printf(out, "\n.visible .entry %.*s(\n", STR_ARG(s->name));
    parameters(s, out);
    buf_printf(out, "\n)\n.reqntid %u, %u, %u\n{\n", s->group[0], s->group[1], s->group[2]);
    registers(s, out);
    buf_str(out, buf_view(&s->memory));
    while (s->level.n > 1) { /* after an error */
        struct ptx_level l;
        ptx_close(s, &l);
        buf_release(&l.code);
        buf_release(&l.other);
    }
    buf_str(out, buf_view(&s->level.v[0].code));
    buf_z(out, "\tret;\n}\n");
    buf_release(&s->level.v[0].code);
    buf_reset(&s->memory);
    constants(s, out);
}

void ptx_kernel(struct ptx *s, struct buf *out)
{
    struct buf functions = {0};
    bool is_dynamic = false;
    u32 n = 0;
    s->bucket = arena_array(s->arena, u32, PTX_BUCKETS);
    s->array = arena_array(s->arena, struct ptx_array, s->k->ins.n + 1);
    for (u32 i = 0; i < 3; i++) s->group[i] = s->k->group[i] ? s->k->group[i] : 1;
    ptx_number(s);
    ptx_find_in_place(s);
    for (kval v = 1; v < s->k->ins.n && !s->err->code; v++) {
        if (kir_at(s->k, v)->op != KI_GRID) continue;
        grid_function(s, &functions, n++, v);
        is_dynamic |= s->shared != NULL;
        v = text_end(s->k, v);
    }
    if (is_dynamic) buf_z(out, ".extern .shared .align 1024 .b8 q_shared[];\n");
    buf_str(out, buf_view(&functions));
    buf_release(&functions);
    buf_release(&s->memory);
}
