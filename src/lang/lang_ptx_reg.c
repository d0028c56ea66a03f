// SPDX-License-Identifier: Apache-2.0
//
// lang_ptx_reg.c: arrays of registers. One of a single element (legalisation splits others, but for those that hold
// a thread's elements of fragments) is a register per lane; a load is the register itself, without a copy, if nothing is stored to it up to the value's last use. A
// value that is only stored there may be computed in the register, as the sums of a contraction are.
#include "lang/lang_ptx.h"

static bool is_single(const struct ptx *s, kval array)
{
    const struct kir_ins *x = kir_at(s->k, array);
    i64 n;
    return x->op == KI_ALLOC && x->aux == KS_REG && kir_is_const(s->k, x->a, &n) && n == 1;
}

/* The end of the outermost loop that contains the use but not the definition: the value lives as long. */
static kval reach(const struct kir *k, const kval *loop_end, const kval *loop_open, kval def, kval use)
{
    kval last = use;
    for (kval l = loop_open[use]; l && l > def; l = loop_open[l]) last = loop_end[l];
    return last;
}

/* Per instruction the innermost loop around it, per loop its end. */
static void find_loops(const struct kir *k, kval *open, kval *end)
{
    kval stack[256] = {0};
    u32 depth = 0;
    for (kval v = 1; v < k->ins.n; v++) {
        enum kir_op op = kir_at(k, v)->op;
        kval inner = 0;
        for (u32 i = depth; i && !inner; i--) inner = kir_at(k, stack[i])->op == KI_LOOP ? stack[i] : 0;
        open[v] = inner;
        if (kir_opens(op) && depth + 1 < countof(stack)) stack[++depth] = v;
        if (op == KI_END && depth) end[stack[depth--]] = v;
    }
}

/* Lanes of derived values are emitted at their uses, loads of asynchronous copies with the store. */
static void find_last_uses(struct ptx *s)
{
    const struct kir *k = s->k;
    kval *open = arena_array(s->arena, kval, k->ins.n + 1), *end = arena_array(s->arena, kval, k->ins.n + 1);
    find_loops(k, open, end);
    bool *is_late = arena_array(s->arena, bool, k->ins.n + 1);
    s->last = arena_array(s->arena, kval, k->ins.n + 1);
    for (kval v = k->ins.n - 1; v; v--) {
        const struct kir_ins *x = kir_at(k, v);
        is_late[v] |= ptx_is_derived(k, v);
        if (kir_is_copy(k, v)) is_late[x->c] = true;
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval a = kir_operand(x, i);
            if (!a) continue;
            kval use = is_late[v] ? s->last[v] : x->op == KI_LOOP ? end[v] : v, at = use ? reach(k, end, open, a, use) : 0;
            if (at > s->last[a]) s->last[a] = at;
        }
    }
}

static bool is_one_instruction(const struct ptx *s, const struct kir_ins *x)
{
    if (x->role) return x->op == KI_FMMA;
    if (x->dtype != DT_F32 && x->dtype != DT_F64) return false;
    return x->op == KI_FMA || x->op == KI_ADD || x->op == KI_SUB || x->op == KI_MUL;
}

/* Whether the value, or one that it is derived from, is loaded from an array of registers. */
static bool is_of_array(const struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    if (x->op == KI_LOAD) return is_single(s, x->a);
    for (u32 i = 0; ptx_is_derived(s->k, v) && i < kir_op_info(x->op)->n_args; i++)
        if (kir_operand(x, i) && is_of_array(s, kir_operand(x, i))) return true;
    return false;
}

/* Whether lanes of an operand are those of an array in another order. */
static bool is_permuted(const struct ptx *s, const struct kir_ins *x)
{
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
        enum kir_op op = kir_at(s->k, kir_operand(x, i))->op;
        bool moves = op == KI_SPLAT || op == KI_LANE || op == KI_HALVES || op == KI_ZIP;
        if (moves && is_of_array(s, kir_operand(x, i))) return true;
    }
    return false;
}

struct accesses { kval last_load, last_use, last_store; }; /* to an array, so far */

static bool may_be_in_place(const struct ptx *s, kval store, const struct accesses *a)
{
    const struct kir_ins *x = kir_at(s->k, store);
    kval v = x->c;
    bool is_plain = !x->d && s->facts->val[v].uses == 1 && s->facts->val[v].block == s->facts->val[store].block;
    if (!is_plain || !is_one_instruction(s, kir_at(s->k, v)) || is_permuted(s, kir_at(s->k, v))) return false;
    return a->last_load < v && a->last_store < v && a->last_use <= v;
}

void ptx_find_in_place(struct ptx *s)
{
    const struct kir *k = s->k;
    s->into = arena_array(s->arena, kval, k->ins.n + 1);
    struct accesses *all = arena_array(s->arena, struct accesses, k->ins.n + 1);
    find_last_uses(s);
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if ((x->op != KI_LOAD && x->op != KI_STORE) || !is_single(s, x->a)) continue;
        struct accesses *a = &all[x->a];
        if (x->op == KI_LOAD) {
            a->last_load = v;
            if (s->last[v] > a->last_use) a->last_use = s->last[v];
            continue;
        }
        if (may_be_in_place(s, v, a)) s->into[x->c] = x->a;
        a->last_store = v;
    }
}

/* Whether the array is stored to before the last use of a loaded value; results in place are stored earlier. */
static bool is_changed(const struct ptx *s, kval load)
{
    const struct kir *k = s->k;
    kval array = kir_at(k, load)->a;
    for (kval v = load + 1; v <= s->last[load] && v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        bool is_store = (x->op == KI_STORE && x->a == array && s->into[x->c] != array) || (x->op == KI_FSTORE && x->a == array) || s->into[v] == array;
        if (is_store && v < s->last[load]) return true;
    }
    return false;
}

pval ptx_into(struct ptx *s, kval v, u32 i) { return s->into[v] ? s->array[s->into[v]].var[i] : 0; }

void ptx_alloc(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    struct ptx_array *a = &s->array[v];
    if (x->aux != KS_REG) return;
    if (a->count < 0 || a->count > 1 << 16) {
        ptx_fail(s, "has an array of registers that is too large");
        return;
    }
    if (a->space == PX_REG) {
        u32 n = x->role ? ptx_frag_size(s, x) : a->unit * (u32)a->count;
        a->var = arena_array(s->arena, pval, n + 1);
        for (u32 i = 0; i < n; i++) a->var[i] = ptx_new(s, x->role ? ptx_frag_class(x) : ptx_class_for(x->dtype));
    } else if (x->role) {
        ptx_fail(s, "has an array of fragments with an index that is not constant");
    } else if (a->count) {
        buf_printf(&s->memory, "\t.local .align 16 .b8 l%u[%lld];\n", v, (long long)(a->count * a->unit * a->size));
    }
}

static const char *move_of(struct ptx *s, pval x)
{
    static const char *const move[N_PTX_CLASSES] = {"mov.pred", "mov.b16", "mov.b32", "mov.b64", "mov.f32", "mov.f64"};
    return move[ptx_class(s, x)];
}

/* Whether lane i is one of the first n. */
static pval is_valid(struct ptx *s, kval n, u32 i)
{
    pval count = ptx_reg(s, ptx_lane(s, n, 0));
    bool is_word = ptx_class(s, count) == PC_WORD;
    return PTX_INS(s, PC_PRED, is_word ? "setp.gt.s32" : "setp.gt.s64", count, ptx_int(s, is_word ? PC_WORD : PC_LONG, i));
}

pval *ptx_reg_at(struct ptx *s, kval array, kval index)
{
    const struct ptx_array *a = &s->array[array];
    i64 at = 0;
    if (a->count == 1) return a->var;
    if (kir_lanes(s->k, index) == 1 && kir_is_const(s->k, index, &at) && at >= 0 && at < a->count) return a->var + at * a->unit;
    ptx_fail(s, "has an array of a thread's elements of fragments with an index that is not constant");
    return NULL;
}

void ptx_reg_load(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    const struct ptx_array *a = &s->array[x->a];
    bool copies = is_changed(s, v) || x->c;
    u32 n = x->role ? ptx_frag_size(s, x) : x->lanes, n_var = x->role ? n : a->unit;
    const pval *var = ptx_reg_at(s, x->a, x->b);
    for (u32 i = 0; i < n && var; i++) {
        pval from = var[i % n_var], to = copies ? ptx_new(s, ptx_class(s, from)) : ptx_same(s, from);
        if (copies) PTX_TO(s, to, move_of(s, from), from);
        if (x->c) ptx_line(s, "\t@!%r %s %r, %r;", is_valid(s, x->c, i), move_of(s, to), to, ptx_imm(s, ptx_class(s, to), 0));
        ptx_set(s, v, i, to);
    }
}

void ptx_reg_store(struct ptx *s, kval v)
{
    const struct kir_ins *x = kir_at(s->k, v);
    const struct ptx_array *a = &s->array[x->a];
    const struct kir_ins *value = kir_at(s->k, x->c);
    u32 n = value->role ? ptx_frag_size(s, value) : value->lanes;
    if (s->into[x->c] == x->a) return;
    const pval *var = ptx_reg_at(s, x->a, x->b);
    if (!var) return;
    pval *all = arena_array(s->arena, pval, n + 1);
    for (u32 i = 0; i < n; i++) {
        pval to = var[value->role ? i : i % a->unit], from = value->role ? ptx_frag(s, x->c)[i] : ptx_lane_as(s, x->c, i, ptx_class(s, to));
        all[i] = from;
    }
    for (u32 i = 0; i < n; i++) {
        pval to = var[value->role ? i : i % a->unit];
        if (x->d) ptx_line(s, "\t@%r %s %r, %r;", is_valid(s, x->d, i), move_of(s, to), to, all[i]);
        else PTX_TO(s, to, move_of(s, to), all[i]);
    }
}
