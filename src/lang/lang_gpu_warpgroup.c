// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu_warpgroup.c: matrix multiplication of warpgroup fragments. The matrix units
// read both operands from swizzled shared arrays: an operand fragment is a descriptor of
// its place, not registers. They run asynchronously: products are issued in runs, at whose end
// the threads wait for them. Accumulators are registers that must not be accessed in between.
//
// Kernel IR is independent of that. A fragment's elements are those at the time of its FLOAD;
// here they are read later, so no BARRIER may be between a load and the product that uses it:
// without one, no thread writes elements that others read (the interpreter reports a race). A
// run ends before any other use of accumulators, before a BARRIER, and with its structure.
#include "lang/lang_gpu.h"

/* of swizzled rows; eight of them; contiguous pieces */
enum { LINE_BYTES = 128, ATOM_BYTES = 1024, CHUNK_BYTES = 16 };

struct warpgroup {
    kval from, to;  /* the run: from its first matmul to the instruction before which it ends; to = 0: no open
                       run */
    kval *last;     /* per instruction: its last user */
    bool *is_sum;   /* per instruction: only used by matmuls and stores to REG arrays */
};

/* Forms that can be emitted. */

static bool is_operand(const struct kir_ins *x) { return x->role == KR_A || x->role == KR_B; }

/* The last position that may execute between a load and its user when loops repeat: the end of
   loops that contain only the user. */
static kval reach_of(const struct kir *k, kval load, kval user)
{
    kval open[64];
    u32 n = 0;
    for (kval v = load; v < user; v++) {
        if (kir_opens(kir_at(k, v)->op) && n < countof(open)) open[n++] = v;
        if (kir_at(k, v)->op == KI_END && n) n--;
    }
    for (u32 i = 0; i < n; i++)
        if (kir_at(k, open[i])->op == KI_LOOP) return text_end(k, open[i]);
    return user;
}

static bool is_still_there(const struct kir *k, kval load, kval user)
{
    kval end = reach_of(k, load, user);
    for (kval v = load; v < end; v++)
        if (kir_at(k, v)->op == KI_BARRIER) return false;
    return true;
}

/* Lines are across K: the fragment is described by its panels; else terms are adjacent. */
static bool is_across(const struct kir_ins *x) { return (x->role == KR_B) != x->aux; }

/* Whether an index is a K index within a line: lines of rows are whole atoms. */
static bool is_term_index(const struct kir *k, kval index, i64 size)
{
    const struct kir_ins *i = kir_at(k, index);
    i64 at = 0, atom = ATOM_BYTES / size, line = LINE_BYTES / size;
    if (!kir_is_const(k, index, &at)) {
        if (i->op != KI_ADD || !kir_is_const(k, i->b, &at)) at = 0;
        else index = i->a;
        if (kir_multiple(k, index) % atom) return false;
    }
    return at >= 0 && at % atom + 2 * CHUNK_BYTES / size <= line && at % (2 * CHUNK_BYTES / size) == 0;
}

static bool is_place(const struct kir *k, const struct kir_ins *x)
{
    const struct kir_ins *array = kir_at(k, x->a);
    i64 size = dtype_size(x->dtype), atom = ATOM_BYTES / size, pitch = 0, panels = 0;
    i64 across = x->role == KR_A ? x->rows : x->cols;
    if (array->op != KI_ALLOC || array->aux != KS_SHARED || !array->imm.i) return false;
    if (!kir_is_const(k, x->c, &pitch) || pitch != LINE_BYTES / size) return false;
    if (!is_across(x)) return is_term_index(k, x->b, size);
    if (x->d && (!kir_is_const(k, x->d, &panels) || panels <= 0 || panels % atom)) return false;
    return across % pitch == 0 && (across == pitch || x->d) && kir_multiple(k, x->b) % atom == 0;
}

bool gpu_check_warpgroup(const struct kir *k, const struct caps *c, const struct gpu_words *w, struct err *e)
{
#define REFUSE(...) return err_set(e, ERR_UNSUPPORTED, __VA_ARGS__)
    if (kir_warpgroup(k) != w->warpgroup || kir_warpgroup(k) != c->warpgroup)
        REFUSE("fragments of warpgroups of %u subgroups in kernel '%.*s'", kir_warpgroup(k), STR_ARG(k->name));
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (is_operand(x) && !kir_is_own(k, x) && (x->op != KI_FLOAD || !is_place(k, x)))
            REFUSE("a warpgroup operand with an unsupported memory layout in kernel '%.*s'", STR_ARG(k->name));
        if (x->op == KI_FSTORE && is_operand(kir_at(k, x->c)))
            REFUSE("a store of a warpgroup operand in kernel '%.*s'", STR_ARG(k->name));
        if (x->op == KI_FMMA && ((!kir_is_own(k, kir_at(k, x->a)) && !is_still_there(k, x->a, v)) || !is_still_there(k, x->b, v)))
            REFUSE("a barrier between an operand's load and its matmul in kernel '%.*s'", STR_ARG(k->name));
    }
#undef REFUSE
    return true;
}

/* Runs. */

static bool is_sums(const struct kir_ins *x) { return x->op == KI_ALLOC && x->role == KR_ACC; }

void gpu_warpgroup_open(struct text *t)
{
    const struct kir *k = t->k;
    if (kir_warpgroup(k) == 1) return;
    struct warpgroup *s = t->own = arena_new(t->arena, struct warpgroup);
    s->last = arena_array(t->arena, kval, k->ins.n + 1);
    s->is_sum = arena_array(t->arena, bool, k->ins.n + 1);
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        s->is_sum[v] = true;
        if (x->op == KI_FMMA || kir_is_own(k, x)) t->val[v].nested = false; /* statements; registers that a run reads */
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
            kval a = kir_operand(x, i);
            if (!a) continue;
            s->last[a] = v;
            if (!(x->op == KI_FMMA && i == 2) && !(x->op == KI_STORE && i == 2 && x->role == KR_NONE)) s->is_sum[a] = false;
        }
    }
}

/* A branch with work of single threads only: its last instruction, 0: another kind of branch. */
static kval plain_branch(const struct kir *k, kval open)
{
    kval end = text_end(k, open);
    for (kval v = open; v < end; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op == KI_BARRIER || x->op == KI_LOOP || kir_is_collective(k, v)) return 0;
    }
    return end;
}

static bool goes_on(const struct kir *k, const struct warpgroup *s, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    switch (x->op) {
    case KI_FMMA: return true;
    case KI_LOOP:
    case KI_ELSE:
    case KI_END:
    case KI_BARRIER: return false;
    case KI_STORE: return !is_sums(kir_at(k, x->a)) || kir_at(k, x->c)->op == KI_FMMA;
    case KI_LOAD: return !is_sums(kir_at(k, x->a)) || s->is_sum[v];
    case KI_FLOAD: return is_operand(x);
    case KIR_NO_OP: case KIR_LEAVES: case KIR_LANES: case KIR_LANEWISE: case KIR_DOTS:
    case KIR_ARRAYS: case KI_TILE: case KI_PREFETCH: case KI_GRID: case KI_IF: case KI_AWAIT:
    case KIR_SG_REDUCTIONS: case KI_SHUFFLE: case KI_FILL: case KI_FSTORE: return !kir_is_collective(k, v);
    default: unreachable();
    }
}

static kval run_end(const struct kir *k, const struct warpgroup *s, kval v)
{
    for (v++; v < k->ins.n && goes_on(k, s, v); v++) {
        if (kir_at(k, v)->op != KI_IF) continue;
        kval end = plain_branch(k, v);
        if (!end) break;
        v = end;
    }
    return v;
}

/* Left operands in registers stay there to the end of the run. */
static void settle_left(struct text *t, kval v)
{
    const struct kir_ins *a = kir_at(t->k, kir_at(t->k, v)->a);
    if (t->val[v].uses && kir_is_own(t->k, a)) text_line(t, "%.*s(v%u);", STR_ARG(gpu_frag_pin(t, a)), kir_at(t->k, v)->a);
}

/* Ends a run: accumulators are opaque to the compiler until here. */
static void settle(struct text *t, const struct warpgroup *s)
{
    struct map done;
    map_init(&done, t->arena);
    for (kval v = s->from; v < s->to; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        if (x->op == KI_FMMA) settle_left(t, v);
        if (x->op == KI_FMMA && s->last[v] >= s->to) text_line(t, "%.*s(v%u);", STR_ARG(gpu_frag_pin(t, x)), v);
        if (x->op != KI_STORE || kir_at(t->k, x->c)->op != KI_FMMA) continue;
        const struct kir_ins *array = kir_at(t->k, x->a);
        struct str name = gpu_array_name(t, x->a), pin = gpu_frag_pin(t, array);
        i64 n = kir_at(t->k, array->a)->imm.i;
        if (map_get(&done, name)) continue;
        map_put(&done, name, 1);
        if (n == 1) text_line(t, "%.*s(%.*s);", STR_ARG(pin), STR_ARG(name));
        for (i64 i = 0; i < n && n > 1; i++) text_line(t, "%.*s(%.*s[%lld]);", STR_ARG(pin), STR_ARG(name), (long long)i);
    }
}

static struct str product(struct text *t, const struct kir_ins *x)
{
    const struct kir_ins *a = kir_at(t->k, x->a), *b = kir_at(t->k, x->b);
    struct caps_matrix m = {.m = x->rows, .n = x->cols, .k = a->cols, .a = a->dtype, .b = b->dtype, .c = x->dtype, .d = x->dtype};
    const enum gpu_left left = kir_is_own(t->k, a) ? GPU_LEFT_REGISTERS : is_across(a) ? GPU_LEFT_COLUMNS : GPU_LEFT_ROWS;
    static const char *const tag[] = {[GPU_LEFT_ROWS] = "n", [GPU_LEFT_COLUMNS] = "t", [GPU_LEFT_REGISTERS] = "r"};
    struct str type = gpu_frag_type(t, x), left_type = gpu_frag_type(t, a);
    struct str name = text_fmt(t, "q_fmma_%s%s_%s_%.*s", tag[left], is_across(b) ? "t" : "n", dtype_name(m.a), STR_ARG(type));
    if (map_get(&t->known, name)) return name;
    map_put(&t->known, name, 1);
    buf_printf(&t->prelude, "%svoid %.*s(%.*s &c, %.*s a, u64 b)\n{\n", t->style->function, STR_ARG(name), STR_ARG(type), STR_ARG(left_type));
    if (m.a != m.b || !gpu_words(t)->warpgroup_multiply(&t->prelude, &m, left, is_across(b)))
        err_set(t->err, ERR_UNSUPPORTED, "warpgroup fmma of %s, %lldx%lldx%lld, is not supported by this language (kernel '%.*s')",
                dtype_name(m.a), (long long)m.m, (long long)m.n, (long long)m.k, STR_ARG(t->k->name));
    buf_z(&t->prelude, "}\n");
    return name;
}

bool gpu_run_begins(struct text *t, kval v)
{
    struct warpgroup *s = t->own;
    if (s->to) return false;
    s->from = v;
    s->to = run_end(t->k, s, v);
    return true;
}

static bool is_over(const struct warpgroup *s, kval v) { return s && s->to && v >= s->to; }

bool gpu_run_ends(struct text *t, kval v)
{
    struct warpgroup *s = t->own;
    if (!is_over(s, v)) return false;
    s->to = 0;
    return true;
}

static void issue(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (t->val[v].uses == 0) return;
    struct str type = gpu_frag_type(t, x), f = product(t, x);
    text_line(t, "%.*s v%u = %.*s;", STR_ARG(type), v, STR_ARG(text_bare(t, x->c)));
    if (gpu_run_begins(t, v)) text_line(t, "WARPGROUP_BEGIN;");
    text_line(t, "%.*s(v%u, %.*s, %.*s);", STR_ARG(f), v, STR_ARG(text_bare(t, x->a)), STR_ARG(text_bare(t, x->b)));
}

/* A left operand in registers: a variable, which is pinned until the run ends. */
static void hold(struct text *t, kval v)
{
    if (t->val[v].uses) text_line(t, "%.*s v%u = %.*s;", STR_ARG(gpu_frag_type(t, kir_at(t->k, v))), v, STR_ARG(t->style->frag(t, v)));
}

bool gpu_warpgroup_statement(struct text *t, kval v)
{
    struct warpgroup *s = t->own;
    if (!s) return false;
    if (is_over(s, v)) {
        text_line(t, "WARPGROUP_END;");
        settle(t, s);
        s->to = 0;
    }
    if (kir_at(t->k, v)->op == KI_BARRIER) text_line(t, "WARPGROUP_FENCE;");
    if (is_operand(kir_at(t->k, v)) && kir_is_own(t->k, kir_at(t->k, v))) {
        hold(t, v);
        return true;
    }
    if (kir_at(t->k, v)->op != KI_FMMA) return false;
    issue(t, v);
    return true;
}

/* Memory of an operand: its first element, and the distance to the continuation of its lines. */
struct str gpu_warpgroup_operand(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    i64 panels = 0;
    if (is_across(x) && x->d) kir_is_const(t->k, x->d, &panels);
    return text_fmt(t, "OPERAND(%.*s + (%.*s), %lld)", STR_ARG(gpu_array_name(t, x->a)), STR_ARG(text_bare(t, x->b)),
                    (long long)i64_max(panels * dtype_size(x->dtype), CHUNK_BYTES));
}
