// SPDX-License-Identifier: Apache-2.0
//
// text.c: prints a kernel. The grammar is in doc/kernel-ir.md; parse.c reads it back.
//
// The text is canonical: values are numbered in order of appearance, and constants, parameters
// and buffers are printed where they are used, so the text does not depend on where the
// builder placed them. Equal texts mean equal kernels; its hash is a key of the database.
#include "kir/kir.h"

struct printer {
    struct buf *b;
    const struct kir *k;
    u32 *id; /* text number of each instruction, 0 = none */
    u32 n_ids;
    u32 depth; /* of indentation */
};

static void put_type(struct printer *p, const struct kir_ins *x)
{
    buf_z(p->b, dtype_name(x->dtype));
    if (x->role) buf_printf(p->b, "_%s%ux%u", kir_role_name(x->role), x->rows, x->cols);
    if (x->lanes > 1) buf_printf(p->b, "x%u", x->lanes);
}

static void put_const(struct printer *p, const struct kir_ins *x)
{
    bool is_plain = x->dtype == DT_I64 && x->lanes == 1;
    if (!is_plain) {
        put_type(p, x);
        buf_char(p->b, '(');
    }
    if (dtype_is_float(x->dtype)) buf_f64(p->b, x->imm.f);
    else buf_printf(p->b, "%lld", (long long)x->imm.i);
    if (!is_plain) buf_char(p->b, ')');
}

static void put_value(struct printer *p, kval v)
{
    const struct kir_ins *x = kir_at(p->k, v);
    if (x->op == KI_CONST) put_const(p, x);
    else if (x->op == KI_PARAM) buf_printf(p->b, "p%lld", (long long)x->imm.i);
    else if (x->op == KI_BUF) buf_str(p->b, p->k->buf.v[x->imm.i].name);
    else buf_printf(p->b, "%%%u", p->id[v]);
}

static void put_access(struct printer *p, kval array, kval idx)
{
    buf_char(p->b, ' ');
    put_value(p, array);
    buf_char(p->b, '[');
    put_value(p, idx);
    buf_char(p->b, ']');
}

static void put_first(struct printer *p, kval n)
{
    if (!n) return;
    buf_z(p->b, " first ");
    put_value(p, n);
}

static void put_pitch(struct printer *p, kval pitch, enum kir_frag_order order, kval panels)
{
    buf_z(p->b, " pitch ");
    put_value(p, pitch);
    buf_z(p->b, order == KF_COLUMNS ? " columns" : order == KF_GROUPS ? " groups" : "");
    if (!panels) return;
    buf_z(p->b, " panels ");
    put_value(p, panels);
}

/* "%5: f32x8 = add %3, %4" */
static void put_pure(struct printer *p, kval v)
{
    const struct kir_ins *x = kir_at(p->k, v);
    buf_printf(p->b, "%%%u", p->id[v]);
    if (x->dtype != DT_I64 || x->lanes > 1 || x->role) {
        buf_z(p->b, ": ");
        put_type(p, x);
    }
    buf_printf(p->b, " = %s", kir_op_info(x->op)->name);
    if (x->op == KI_LOAD || x->op == KI_FLOAD) {
        put_access(p, x->a, x->b);
        if (x->op == KI_LOAD) put_first(p, x->c);
        else put_pitch(p, x->c, x->aux, x->d);
        return;
    }
    const char *sep = " ";
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++, sep = ", ") {
        buf_z(p->b, sep);
        put_value(p, kir_operand(x, i));
    }
    if (kir_has_imm(x->op)) buf_printf(p->b, "%s%lld", sep, (long long)x->imm.i);
}

static void put_store(struct printer *p, const struct kir_ins *x)
{
    buf_z(p->b, x->op == KI_STORE ? kir_way_name(x->aux) : kir_op_info(x->op)->name);
    put_access(p, x->a, x->b);
    buf_z(p->b, " = ");
    put_value(p, x->c);
    if (x->op == KI_STORE) put_first(p, x->d);
    else put_pitch(p, x->d, x->aux, 0);
}

/* "tile %3[0] = m0[%4, 64]" */
static void put_tile(struct printer *p, const struct kir_ins *x)
{
    buf_z(p->b, "tile");
    put_access(p, x->a, x->b);
    buf_printf(p->b, " = m%lld[", (long long)x->imm.i);
    put_value(p, x->c);
    buf_z(p->b, ", ");
    put_value(p, x->d);
    buf_char(p->b, ']');
}

static void put_alloc(struct printer *p, kval v)
{
    const struct kir_ins *x = kir_at(p->k, v);
    buf_printf(p->b, "%s %%%u: ", kir_space_name(x->aux), p->id[v]);
    put_type(p, x);
    buf_char(p->b, '[');
    put_value(p, x->a);
    buf_char(p->b, ']');
    if (x->imm.i) buf_z(p->b, " swizzled");
}

static void put_loop(struct printer *p, kval v)
{
    const struct kir_ins *x = kir_at(p->k, v);
    buf_z(p->b, "loop ");
    if (x->aux != KL_SERIAL) buf_printf(p->b, "%s ", kir_loop_name(x->aux));
    buf_printf(p->b, "%%%u = ", p->id[v]);
    put_value(p, x->a);
    buf_z(p->b, "..");
    put_value(p, x->b);
    i64 step;
    if (!kir_is_const(p->k, x->c, &step) || step != 1) {
        buf_z(p->b, " step ");
        put_value(p, x->c);
    }
}

static void put_ins(struct printer *p, kval v)
{
    const struct kir_ins *x = kir_at(p->k, v);
    switch (x->op) {
    case KI_STORE:
    case KI_FSTORE: put_store(p, x); break;
    case KI_PREFETCH:
        buf_z(p->b, "prefetch");
        put_access(p, x->a, x->b);
        if (x->aux == KC_SECOND) buf_z(p->b, " second");
        break;
    case KI_ALLOC: put_alloc(p, v); break;
    case KI_LOOP: put_loop(p, v); break;
    case KI_GRID:
        buf_printf(p->b, "grid %%%u = ", p->id[v]);
        put_value(p, x->a);
        break;
    case KI_IF:
        buf_z(p->b, "if ");
        put_value(p, x->a);
        break;
    case KI_ELSE:
    case KI_END:
    case KI_BARRIER: buf_z(p->b, kir_op_info(x->op)->name); break;
    case KI_TILE: put_tile(p, x); break;
    case KI_AWAIT: buf_printf(p->b, "await %lld", (long long)x->imm.i); break;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS:
    case KI_BUF: case KI_LOAD: case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FILL:
    case KI_FLOAD: case KI_FMMA: put_pure(p, v); break;
    }
    buf_char(p->b, '\n');
}

static u32 group_size(const struct kir *k, u32 dim) { return k->group[dim] ? k->group[dim] : 1; }

/* "kernel NAME(x: in f32, y: out f32; p0 = "H*W")" */
static void put_header(struct printer *p)
{
    const struct kir *k = p->k;
    buf_printf(p->b, "kernel %.*s(", STR_ARG(k->name));
    for (u32 i = 0; i < k->buf.n; i++) {
        const struct kir_ins *x = kir_at(k, k->buf.v[i].id);
        buf_printf(p->b, "%s%.*s: %s %s", i ? ", " : "", STR_ARG(k->buf.v[i].name),
                   kir_access_name(x->aux), dtype_name(x->dtype));
    }
    for (u32 i = 0; i < k->param.n; i++)
        buf_printf(p->b, "%s p%u = \"%.*s\"", i ? "," : ";", i, STR_ARG(k->param.v[i]));
    buf_z(p->b, ")\n");
    for (u32 i = 0; i < k->map.n; i++) {
        const struct kir_map *m = &k->map.v[i];
        buf_printf(p->b, "map %.*s %lld %lld pitch %lld box %u %u\n", STR_ARG(k->buf.v[m->buf].name), (long long)m->rows,
                   (long long)m->cols, (long long)m->pitch, m->box_rows, m->box_cols);
    }
    if (k->as_written) buf_z(p->b, "rounds as written\n");
    if (kir_threads(k) == 1 && !k->subgroup) return;
    buf_printf(p->b, "group %u %u %u", group_size(k, 0), group_size(k, 1), group_size(k, 2));
    if (k->subgroup) buf_printf(p->b, " subgroup %u", k->subgroup);
    if (kir_warpgroup(k) > 1) buf_printf(p->b, " warpgroup %u", k->warpgroup);
    buf_char(p->b, '\n');
}

void kir_print(struct buf *b, const struct kir *k)
{
    struct printer p = {.b = b, .k = k, .id = mem_alloc((i64)sizeof(u32) * (k->ins.n + 1))};
    put_header(&p);
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op == KI_CONST || x->op == KI_PARAM || x->op == KI_BUF) continue;
        p.id[v] = kir_is_named(x) ? ++p.n_ids : 0;
        if (p.depth && (x->op == KI_END || x->op == KI_ELSE)) p.depth--;
        for (u32 i = 0; i < p.depth; i++) buf_z(b, "  ");
        put_ins(&p, v);
        p.depth += kir_opens(x->op) || x->op == KI_ELSE;
    }
    mem_free(p.id);
}
