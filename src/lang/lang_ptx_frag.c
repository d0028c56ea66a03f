// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_frag.c: operations on fragments, the registers of a thread's elements (lang_ptx_layout.c). Operands of
// warpgroups are descriptors of shared memory (lang_gpu_warpgroup.c): a LONG.
#include "lang/lang_ptx.h"

enum { WARP = 32, CHUNK_BYTES = 16 };

static bool is_half(enum dtype t) { return t == DT_F16 || t == DT_BF16; }


static pval thread(struct ptx *s) { return ptx_mask(s, ptx_thread(s), WARP * kir_warpgroup(s->k) - 1); }

static pval part(struct ptx *s, const struct kir_ins *x, bool is_row)
{
    struct ptx_layout l = ptx_layout(s, x);
    pval all = thread(s), lane = ptx_mask(s, all, WARP - 1), fourth = ptx_mask(s, lane, 3), quad = ptx_shr(s, lane, 2);
    if (kir_warpgroup(s->k) > 1 && is_row) quad = ptx_add(s, quad, ptx_times(s, ptx_shr(s, all, 5), 16));
    switch (is_row ? l.row : l.col) {
    case PTX_BY_QUAD: return quad;
    case PTX_BY_FOURTH: return fourth;
    case PTX_BY_PAIR: return ptx_times(s, fourth, 2);
    default: unreachable();
    }
}

/* Elements from the fragment's first: (row, col) in memory. */
struct lines { pval pitch; i64 known; bool by_columns; }; /* known: a constant pitch, 0: not */

static struct lines lines_of(struct ptx *s, kval pitch, bool by_columns)
{
    struct lines l = {ptx_lane_as(s, pitch, 0, PC_WORD), 0, by_columns};
    ptx_is_int(s, l.pitch, &l.known);
    return l;
}

static pval times_pitch(struct ptx *s, const struct lines *l, pval x)
{
    i64 v;
    if (l->known) return ptx_times(s, x, l->known);
    return ptx_is_int(s, x, &v) ? ptx_times(s, l->pitch, v) : PTX_INS(s, PC_WORD, "mul.lo.s32", x, l->pitch);
}

static pval linear(struct ptx *s, const struct lines *l, pval row, pval col)
{
    pval line = l->by_columns ? col : row, at = l->by_columns ? row : col;
    return ptx_add(s, times_pitch(s, l, line), at);
}

/* Address of element i of the fragment: access is its FLOAD or FSTORE. */
static struct ptx_place element(struct ptx *s, const struct kir_ins *access, const struct kir_ins *frag, const struct lines *l, u32 i)
{
    i64 row, col;
    ptx_offset(s, frag, i, &row, &col);
    pval at = linear(s, l, part(s, frag, true), part(s, frag, false));
    if (l->known) return ptx_address_from(s, access->a, access->b, at, l->by_columns ? col * l->known + row : row * l->known + col);
    at = ptx_add(s, at, linear(s, l, ptx_int(s, PC_WORD, row), ptx_int(s, PC_WORD, col)));
    return ptx_address_from(s, access->a, access->b, at, 0);
}

static const char *way(const struct ptx *s, kval array) { return s->array[array].is_constant ? ".nc" : ""; }

static void line_of(struct ptx *s, const pval *r, u32 n)
{
    for (u32 i = 0; i < n; i++) ptx_put(s, i ? ", %r" : "{%r", r[i]);
    ptx_put(s, "}");
}

/* Blocks of 8x8 halves from a shared array. Thread 8 j + r has the address of line r of block j, whose corner is the
   first element of register j of thread 0. */
static void fetch(struct ptx *s, const struct kir_ins *x, const struct lines *l, pval *r, u32 n, bool is_across)
{
    pval lane = ptx_mask(s, ptx_thread(s), WARP - 1), line = ptx_mask(s, lane, 7), block = ptx_mask(s, ptx_shr(s, lane, 3), (i64)n - 1);
    pval row = x->role == KR_A ? ptx_times(s, ptx_mask(s, block, 1), 8) : ptx_times(s, block, 8);
    pval col = x->role == KR_A ? ptx_times(s, ptx_shr(s, block, 1), 8) : ptx_int(s, PC_WORD, 0);
    if (l->by_columns) col = ptx_add(s, line, col);
    else row = ptx_add(s, line, row);
    struct ptx_place p = ptx_address_from(s, x->a, x->b, linear(s, l, row, col), 0);
    ptx_put(s, "\tldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 ", (int)n, is_across ? ".trans" : "");
    line_of(s, r, n);
    ptx_line(s, ", [%r+%l];", p.base, p.offset);
}

static void load_halves(struct ptx *s, const struct kir_ins *x, const struct lines *l, pval *r, u32 n, bool is_paired)
{
    const char *space = ptx_space_name(s, x->a), *nc = way(s, x->a);
    for (u32 i = 0; i < n; i++) {
        struct ptx_place p = element(s, x, x, l, 2 * i);
        if (is_paired) {
            ptx_line(s, "\tld.%s%s.b32 %r, [%r+%l];", space, nc, r[i], p.base, p.offset);
            continue;
        }
        struct ptx_place q = element(s, x, x, l, 2 * i + 1);
        pval lo = ptx_new(s, PC_WORD), hi = ptx_new(s, PC_WORD);
        ptx_line(s, "\tld.%s%s.u16 %r, [%r+%l];\n\tld.%s%s.u16 %r, [%r+%l];", space, nc, lo, p.base, p.offset, space, nc, hi, q.base, q.offset);
        ptx_line(s, "\tprmt.b32 %r, %r, %r, 0x5410;", r[i], lo, hi);
    }
}

static void load_singles(struct ptx *s, const struct kir_ins *x, const struct lines *l, pval *r, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        struct ptx_place p = element(s, x, x, l, i);
        pval to = x->dtype == DT_TF32 ? ptx_new(s, PC_FLOAT) : r[i];
        ptx_line(s, "\tld.%s%s.f32 %r, [%r+%l];", ptx_space_name(s, x->a), way(s, x->a), to, p.base, p.offset);
        if (x->dtype == DT_TF32) ptx_line(s, "\tcvt.rna.tf32.f32 %r, %r;", r[i], to);
    }
}

/* PTX ISA, "Matrix Descriptor Format": a 128-byte swizzle, groups of eight rows 1024 bytes apart; the leading offset
   is the distance of panels if lines are across K, else unused. */
static pval describe(struct ptx *s, const struct kir_ins *x)
{
    i64 panels = 0;
    bool is_across = (x->role == KR_B) != x->aux;
    if (is_across && x->d) kir_is_const(s->k, x->d, &panels);
    i64 lead = i64_max(panels * dtype_size(x->dtype), CHUNK_BYTES);
    struct ptx_place p = ptx_address_plain(s, x->a, x->b);
    pval at = ptx_add(s, p.base, ptx_int(s, PC_WORD, p.offset));
    at = PTX_INS(s, PC_LONG, "cvt.u64.u32", ptx_mask(s, ptx_shr(s, at, 4), 0x3fff));
    u64 rest = (u64)(lead >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
    return PTX_INS(s, PC_LONG, "or.b64", at, ptx_int(s, PC_LONG, (i64)rest));
}

static void load(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct ptx_layout l = ptx_layout(s, x);
    pval *r = ptx_frag(s, v);
    u32 n = ptx_frag_size(s, x);
    if (ptx_is_described(s, x)) {
        r[0] = describe(s, x);
        return;
    }
    struct lines lines = lines_of(s, x->c, x->aux);
    for (u32 i = 0; i < n; i++) r[i] = ptx_new(s, ptx_frag_class(x));
    bool is_paired = l.is_down == (bool)x->aux, is_operand = x->role == KR_A || x->role == KR_B;
    if (!is_half(x->dtype)) load_singles(s, x, &lines, r, n);
    else if (is_operand && s->array[x->a].space == PX_SHARED) fetch(s, x, &lines, r, n, !is_paired);
    else load_halves(s, x, &lines, r, n, is_paired);
}

static void store(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *frag = kir_at(s->k, x->c);
    struct lines lines = lines_of(s, x->d, x->aux);
    const pval *r = ptx_frag(s, x->c);
    const char *space = ptx_space_name(s, x->a);
    bool half = is_half(frag->dtype), is_paired = ptx_layout(s, frag).is_down == (bool)x->aux;
    for (u32 i = 0; i < ptx_frag_size(s, frag); i++) {
        struct ptx_place p = element(s, x, frag, &lines, half ? 2 * i : i);
        if (!half || is_paired) {
            ptx_line(s, "\tst.%s.%s [%r+%l], %r;", space, half ? "b32" : "f32", p.base, p.offset, ptx_reg(s, r[i]));
            continue;
        }
        struct ptx_place q = element(s, x, frag, &lines, 2 * i + 1);
        ptx_line(s, "\tst.%s.u16 [%r+%l], %r;", space, p.base, p.offset, ptx_reg(s, r[i]));
        ptx_line(s, "\tst.%s.u16 [%r+%l], %r;", space, q.base, q.offset, ptx_reg(s, ptx_shr(s, r[i], 16)));
    }
}

/* A thread's own elements: four are two columns of two rows. */

/* The register of element i, in an array of registers; 0: an error. */
static pval own(struct ptx *s, const struct kir_ins *x, kval pitch, u32 i)
{
    const struct ptx_array *a = &s->array[x->a];
    const i64 row = i >> 1 & 1, col = (i64)(i >> 2) * 2 + (i & 1);
    i64 at, step;
    bool is_known = kir_is_const(s->k, x->b, &at) && kir_is_const(s->k, pitch, &step);
    i64 e = is_known ? at + (x->aux ? row + col * step : row * step + col / a->unit) : -1;
    if (e >= 0 && e < a->count) return a->var[e * a->unit + col % a->unit];
    ptx_fail(s, "accesses a thread's own elements of a fragment at an unknown place");
    return 0;
}

static void load_own(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    bool half = is_half(x->dtype);
    pval even = 0;
    for (u32 i = 0; i < ptx_layout(s, x).n; i++) {
        pval from = own(s, x, x->c, i), to = from ? ptx_new(s, ptx_class(s, from)) : 0;
        if (!from) return;
        PTX_TO(s, to, half ? "mov.b32" : "mov.f32", from); /* the array may change */
        if (!half) ptx_frag(s, v)[i] = to;
        else if (i % 2) ptx_frag(s, v)[i / 2] = ptx_reg(s, ptx_pack(s, 2, (const pval[4]){even, to}));
        even = to;
    }
}

static void store_own(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *frag = kir_at(s->k, x->c);
    const pval *r = ptx_frag(s, x->c);
    for (u32 i = 0; i < ptx_layout(s, frag).n; i++) {
        pval to = own(s, x, x->d, i);
        if (!to) return;
        if (!is_half(frag->dtype)) PTX_TO(s, to, "mov.f32", r[i]);
        else PTX_TO(s, to, "mov.b32", i % 2 ? ptx_shr(s, r[i / 2], 16) : ptx_mask(s, r[i / 2], 0xffff));
    }
}

static void fill(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    pval a = ptx_lane(s, x->a, 0);
    if (is_half(x->dtype)) a = ptx_pack(s, 2, (const pval[4]){a, a});
    a = ptx_reg(s, a);
    for (u32 i = 0; i < ptx_frag_size(s, x); i++) ptx_frag(s, v)[i] = a;
}

/* Sums, products and casts element by element, halves in f32. */
static pval as_float(struct ptx *s, const struct kir_ins *x, const pval *r, u32 i)
{
    return is_half(x->dtype) ? ptx_half_of(s, x->dtype, r[i / 2], i % 2) : r[i];
}

static void by_elements(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *a = kir_at(s->k, x->a), *b = x->op == KI_CAST ? NULL : kir_at(s->k, x->b);
    const char *op = x->op == KI_ADD ? "add.rn.f32" : "mul.rn.f32";
    u32 n = ptx_layout(s, x).n;
    pval even = 0;
    for (u32 i = 0; i < n; i++) {
        pval r = as_float(s, a, ptx_frag(s, x->a), i);
        if (b) r = PTX_INS(s, PC_FLOAT, op, r, as_float(s, b, ptx_frag(s, x->b), i));
        if (!is_half(x->dtype)) ptx_frag(s, v)[i] = r;
        else if (i % 2) ptx_frag(s, v)[i / 2] = ptx_to_halves(s, x->dtype, even, r);
        else even = r;
    }
}

/* Products. */

static void operands(struct ptx *s, const pval *r, u32 n)
{
    line_of(s, r, n);
    ptx_put(s, ", ");
}

static void multiply(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *a = kir_at(s->k, x->a), *b = kir_at(s->k, x->b);
    const char *sum = dtype_name(x->dtype), *in = dtype_name(a->dtype);
    u32 n = ptx_frag_size(s, x);
    pval *r = ptx_frag(s, v);
    if (a->dtype != b->dtype || !(x->dtype == DT_F32 || (x->dtype == DT_F16 && a->dtype == DT_F16))) {
        ptx_fail(s, str_fmt(s->arena, "has a product of %s and %s in %s, which language ptx lacks", in, dtype_name(b->dtype), sum).p);
        return;
    }
    for (u32 i = 0; i < n; i++) r[i] = ptx_into(s, v, i) ? ptx_into(s, v, i) : ptx_new(s, ptx_frag_class(x));
    ptx_put(s, "\tmma.sync.aligned.m16n8k%d.row.col.%s.%s.%s.%s ", (int)a->cols, sum, in, in, sum);
    operands(s, r, n);
    operands(s, ptx_frag(s, x->a), ptx_frag_size(s, a));
    operands(s, ptx_frag(s, x->b), ptx_frag_size(s, b));
    line_of(s, ptx_frag(s, x->c), n);
    ptx_line(s, ";");
}

/* A descriptor, or words. */
static void operands_of_left(struct ptx *s, kval v)
{
    if (ptx_is_described(s, kir_at(s->k, v))) ptx_put(s, "%r, ", ptx_frag(s, v)[0]);
    else operands(s, ptx_frag(s, v), ptx_frag_size(s, kir_at(s->k, v)));
}

/* The sums stay in their registers until the run ends: they must be those of an array. */
static void multiply_by_warpgroup(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *a = kir_at(s->k, x->a), *b = kir_at(s->k, x->b), *c = kir_at(s->k, x->c);
    bool is_known = (a->dtype == DT_F16 || (a->dtype == DT_BF16 && x->dtype == DT_F32)) && a->cols == 16 && x->cols <= 256;
    bool is_in_place = s->into[v] && c->op == KI_LOAD && c->a == s->into[v];
    if (!is_known || !is_in_place) {
        ptx_fail(s, is_known ? "has a warpgroup's sums outside of an array" : "has an unknown product of a warpgroup");
        return;
    }
    if (gpu_run_begins(s->facts, v)) ptx_line(s, "\twgmma.fence.sync.aligned;");
    u32 n = ptx_frag_size(s, x);
    for (u32 i = 0; i < n; i++) ptx_frag(s, v)[i] = ptx_same(s, ptx_into(s, v, i));
    ptx_put(s, "\twgmma.mma_async.sync.aligned.m64n%dk16.%s.%s.%s ", (int)x->cols, dtype_name(x->dtype), dtype_name(a->dtype), dtype_name(b->dtype));
    operands(s, ptx_frag(s, v), n);
    operands_of_left(s, x->a);
    ptx_line(s, "%r, 1, 1, 1, %s%d;", ptx_frag(s, x->b)[0], ptx_is_described(s, a) ? a->aux ? "1, " : "0, " : "", b->aux ? 0 : 1);
}

void ptx_frag_op(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v), *frag = x->op == KI_FSTORE ? kir_at(s->k, x->c) : x;
    if (ptx_frag_size(s, frag) == 0) {
        ptx_fail(s, str_fmt(s->arena, "has fragments of %ux%u %s, which language ptx lacks", frag->rows, frag->cols, dtype_name(frag->dtype)).p);
        return;
    }
    switch (x->op) {
    case KI_FILL: fill(s, v); break;
    case KI_FLOAD: kir_is_own(s->k, x) ? load_own(s, v) : load(s, v); break;
    case KI_FSTORE: kir_is_own(s->k, x) ? store_own(s, v) : store(s, v); break;
    case KI_ADD:
    case KI_MUL:
    case KI_CAST: by_elements(s, v); break;
    case KI_FMMA: kir_warpgroup(s->k) > 1 ? multiply_by_warpgroup(s, v) : multiply(s, v); break;
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KI_BITS: case KIR_UNARY: case KI_SUB:
    case KI_DIV: case KI_MOD: case KI_MIN: case KI_MAX: case KI_POW: case KIR_LOGIC:
    case KIR_SHIFTS: case KIR_COMPARISONS: case KI_FMA: case KIR_DOTS: case KI_SELECT: case KIR_ARRAYS:
    case KI_LOAD: case KI_STORE: case KI_TILE: case KI_PREFETCH: case KIR_CONTROL: case KIR_SYNC:
    case KIR_SG_REDUCTIONS: case KI_SHUFFLE:
    default: unreachable();
    }
}
