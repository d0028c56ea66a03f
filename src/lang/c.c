// SPDX-License-Identifier: Apache-2.0
//
// c.c: the language c. One exported function per grid (calling convention in lang.h), vectors through
// the vector extension shared by gcc and clang, memory through element-aligned vector types. A
// contiguous vector access is one expression, any other index is a loop over lanes; partial access
// uses masked instructions if available. Whole vectors are stored non-temporally if the store requests
// it, the target has an instruction and the address is a multiple of the vector, which is checked at
// run time: a caller's memory may have any alignment. Arrays of values (REG) are variables, so that a
// tile of accumulators is kept in registers; WORK arrays are parts of the worker's scratch memory.
//
// The threads of a workgroup are threads of the device: each calls the function with its number, all execute the same
// iterations, SHARED arrays are in shared scratch memory, and a barrier is two counters there (lang.h).
//
// Compilers may contract multiplications and additions, depending on the surrounding code. A kernel that rounds as written declares
// that in the text's first line (lang_cc.c): then contraction is limited to single expressions. Its multiplications and negations are
// function calls, which prevents it; its FMA are instructions where gcc has builtins for them, else one expression; and all functions
// of f32 are arithmetic, the same in vectors and scalars. A processor without such an instruction rounds an FMA twice, everywhere.
#include "lang/lang_text.h"

/* Memory. */

struct access {       /* one decomposed LOAD or STORE */
    struct str array; /* name */
    enum dtype dtype; /* of an element in memory: bool is u8, halves are u16 */
    bool is_bool;
    u32 unit;         /* lanes of the array's elements */
    u32 lanes;        /* of the index */
    bool is_register; /* REG or SHARED */
    bool is_single;   /* REG of one element: a plain variable */
    bool is_sum;      /* and one that find_sums makes unsigned */
    const struct kir_ins *index;
    struct str n; /* valid lanes; empty: all */
};

static struct access access_of(struct text *t, kval array, kval index, kval n)
{
    const struct kir_ins *x = kir_at(t->k, array);
    i64 count = 0;
    struct access a = {.array = text_array_name(t, array),
                       .unit = x->lanes ? x->lanes : 1,
                       .lanes = kir_lanes(t->k, index),
                       .index = kir_at(t->k, index)};
    a.is_bool = x->dtype == DT_BOOL;
    a.dtype = a.is_bool ? DT_U8 : text_rep(x->dtype);
    a.is_register = x->op == KI_ALLOC && (x->aux == KS_REG || x->aux == KS_SHARED) && !(x->aux == KS_SHARED && kir_threads(t->k) > 1);
    a.is_single =
        a.is_register && x->aux == KS_REG && kir_is_const(t->k, x->a, &count) && count == 1;
    a.is_sum = a.is_single && ((const struct c_own *)t->own)->is_sum[array];
    if (n) a.n = text_value(t, n);
    if (a.unit > 1 && (a.lanes > 1 || n))
        err_set(t->err, ERR_UNSUPPORTED, "vector index into an array of vectors in kernel '%.*s'",
                STR_ARG(t->k->name));
    return a;
}

static bool has_workgroup(const struct text *t) { return kir_threads(t->k) > 1; }

/* In the scratch memory passed to the function. */
static bool is_scratch(const struct text *t, const struct kir_ins *x)
{
    return x->op == KI_ALLOC && (x->aux == KS_WORK || (x->aux == KS_SHARED && has_workgroup(t)));
}

static bool is_ramp(const struct access *a, i64 stride)
{
    return a->index->op == KI_RAMP && a->index->imm.i == stride;
}

/* The address of the first lane: array + base. */
static struct str ramp_address(struct text *t, const struct access *a)
{
    return text_fmt(t, "%.*s + %.*s", STR_ARG(a->array), STR_ARG(text_value(t, a->index->a)));
}

static struct str element(struct text *t, const struct access *a, kval index)
{
    if (a->is_single) return a->array;
    struct str i = text_bare(t, index);
    return text_fmt(t, "%.*s[%.*s]", STR_ARG(a->array), STR_ARG(i));
}

static struct str load_scalar(struct text *t, const struct access *a, kval index)
{
    struct str s = element(t, a, index);
    if (a->is_sum) s = text_fmt(t, "(%.*s)%.*s", STR_ARG(text_type(t, a->dtype, 1)), STR_ARG(s));
    if (a->is_bool && a->unit == 1 && !a->is_register) s = text_fmt(t, "(%.*s != 0)", STR_ARG(s));
    return a->n.n ? text_fmt(t, "(%.*s > 0 ? %.*s : 0)", STR_ARG(a->n), STR_ARG(s)) : s;
}

static struct str load_lanes(struct text *t, const struct access *a, kval index)
{
    struct str type = text_type(t, a->dtype, a->lanes);
    struct str n = a->n.n ? a->n : text_fmt(t, "%u", a->lanes);
    if (is_ramp(a, 1)) {
        struct str at = ramp_address(t, a);
        if (!a->n.n) return text_fmt(t, "AT(%.*s, %.*s)", STR_ARG(type), STR_ARG(at));
        struct str f = text_helper(t, "load_n", a->dtype, a->lanes, DT_NONE);
        return text_fmt(t, "%.*s(%.*s, %.*s)", STR_ARG(f), STR_ARG(at), STR_ARG(n));
    }
    if (a->index->op == KI_RAMP) {
        struct str f = text_helper(t, "gather_step", a->dtype, a->lanes, DT_NONE),
                   at = ramp_address(t, a);
        return text_fmt(t, "%.*s(%.*s, %lld, %.*s)", STR_ARG(f), STR_ARG(at),
                        (long long)a->index->imm.i, STR_ARG(n));
    }
    struct str f = text_helper(t, "gather", a->dtype, a->lanes, DT_I64), at = text_bare(t, index);
    return text_fmt(t, "%.*s(%.*s, %.*s, %.*s)", STR_ARG(f), STR_ARG(a->array), STR_ARG(at),
                    STR_ARG(n));
}

static struct str load(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct access a = access_of(t, x->a, x->b, x->c);
    if (a.unit > 1 || a.lanes == 1) return load_scalar(t, &a, x->b);
    struct str s = load_lanes(t, &a, x->b);
    return a.is_bool ? text_fmt(t, "(%.*s != 0)", STR_ARG(s)) : s;
}

/* A value in its memory format: bool vectors as bytes 0 and 1, or 0 and -1 in arrays of vectors. */
static struct str memory_form(struct text *t, const struct access *a, kval v)
{
    if (!a->is_bool || kir_lanes(t->k, v) == 1) return text_bare(t, v);
    struct str m = text_mask(t, v, 1);
    if (a->unit > 1) return m;
    struct str type = text_type(t, DT_U8, a->lanes);
    return text_fmt(t, "(%.*s)-%.*s", STR_ARG(type), STR_ARG(m));
}

static void store_lanes(struct text *t, const struct access *a, const struct kir_ins *x)
{
    struct str type = text_type(t, a->dtype, a->lanes), val = memory_form(t, a, x->c);
    struct str n = a->n.n ? a->n : text_fmt(t, "%u", a->lanes);
    if (is_ramp(a, 1)) {
        struct str at = ramp_address(t, a);
        bool is_stream = x->aux == KW_STREAM;
        if (!a->n.n && !is_stream) {
            text_line(t, "AT(%.*s, %.*s) = %.*s;", STR_ARG(type), STR_ARG(at), STR_ARG(val));
            return;
        }
        struct str f = text_helper(t, is_stream ? "stream_n" : "store_n", a->dtype, a->lanes, DT_NONE);
        text_line(t, "%.*s(%.*s, %.*s, %.*s);", STR_ARG(f), STR_ARG(at), STR_ARG(val), STR_ARG(n));
    } else if (a->index->op == KI_RAMP) {
        struct str f = text_helper(t, "scatter_step", a->dtype, a->lanes, DT_NONE),
                   at = ramp_address(t, a);
        text_line(t, "%.*s(%.*s, %lld, %.*s, %.*s);", STR_ARG(f), STR_ARG(at),
                  (long long)a->index->imm.i, STR_ARG(val), STR_ARG(n));
    } else {
        struct str f = text_helper(t, "scatter", a->dtype, a->lanes, DT_I64),
                   at = text_bare(t, x->b);
        text_line(t, "%.*s(%.*s, %.*s, %.*s, %.*s);", STR_ARG(f), STR_ARG(a->array), STR_ARG(at),
                  STR_ARG(val), STR_ARG(n));
    }
}

static void store(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct access a = access_of(t, x->a, x->b, x->d);
    if (a.unit == 1 && a.lanes > 1) {
        store_lanes(t, &a, x);
        return;
    }
    struct str at = element(t, &a, x->b), val = memory_form(t, &a, x->c);
    if (a.n.n) text_line(t, "if (%.*s > 0) %.*s = %.*s;", STR_ARG(a.n), STR_ARG(at), STR_ARG(val));
    else text_line(t, "%.*s = %.*s;", STR_ARG(at), STR_ARG(val));
}

static void prefetch(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct str array = text_array_name(t, x->a), at = text_value(t, x->b);
    text_line(t, "__builtin_prefetch(%.*s + %.*s%s);", STR_ARG(array), STR_ARG(at), x->aux == KC_SECOND ? ", 0, 2" : "");
}

/* Accumulators of integers. */

/* Behind a loop that gcc 12 vectorises (12.2, its bug 107212), several accumulators have the sums of wrong elements if the loop converts them between
   signed and unsigned. Sums, differences and products wrap, so they are computed unsigned: a variable that keeps nothing else is unsigned, too. */
static void find_sums(struct text *t, bool *is_sum)
{
    const struct kir *k = t->k;
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        is_sum[v] = x->op == KI_ALLOC && x->aux == KS_REG && x->lanes <= 1 && dtype_kind(x->dtype) == DK_INT;
    }
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        if (x->op != KI_STORE) continue;
        u32 op = kir_at(k, x->c)->op;
        is_sum[x->a] = is_sum[x->a] && (op == KI_CONST || op == KI_ADD || op == KI_SUB || op == KI_MUL || op == KI_FMA);
    }
}

/* SVE. */

static bool has_sve(const struct caps *c) { return c->isa.family == ISA_AARCH64 && c->vector_bytes > 16; }

/* An element of memory in all lanes is loaded so: gcc does it only near the address that it has, else copies a register's element to all lanes by
   a unit that multiplies. */
static void find_spread(struct text *t)
{
    u32 bytes = t->caps->vector_bytes;
    for (kval v = 1; v < t->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(t->k, v), *array = kir_at(t->k, x->a);
        bool is_memory = x->op == KI_LOAD && x->lanes == 1 && !x->c && !(array->op == KI_ALLOC && array->aux == KS_REG);
        t->val[v].is_spread = is_memory && array->lanes <= 1 && (x->dtype == DT_F32 || x->dtype == DT_F64) && t->val[v].uses;
    }
    for (kval v = 1; v < t->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++)
            if (x->op != KI_SPLAT || x->lanes * dtype_size(x->dtype) != bytes) t->val[kir_operand(x, i)].is_spread = false;
    }
}

static void spread_statement(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    u32 lanes = t->caps->vector_bytes / (u32)dtype_size(x->dtype);
    struct access a = access_of(t, x->a, x->b, 0);
    struct str type = text_type(t, x->dtype, lanes), f = text_helper(t, "load_all", x->dtype, lanes, DT_NONE), at = text_bare(t, x->b);
    text_line(t, "const %.*s v%u = %.*s(%.*s + %.*s);", STR_ARG(type), v, STR_ARG(f), STR_ARG(a.array), STR_ARG(at));
}

/* Processors that execute in order. */

struct in_order {
    kval half;       /* a vector whose upper half waits to be inserted, 0: none */
    bool *is_factor; /* per LANE: instructions take it from the vector (fma_lane), it needs no name */
};

static void find_factors(const struct text *t)
{
    const struct in_order *o = ((const struct c_own *)t->own)->in_order;
    for (u32 pass = 0; pass < 2; pass++)
        for (kval v = 1; v < t->k->ins.n; v++) {
            const struct kir_ins *x = kir_at(t->k, v);
            bool multiplies = x->op == KI_FMA && x->lanes * dtype_size(x->dtype) == 16, spreads = x->op == KI_SPLAT && o->is_factor[v];
            if (!pass && (x->op == KI_SPLAT || x->op == KI_LANE)) o->is_factor[v] = true;
            for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
                kval y = kir_operand(x, i);
                u32 op = kir_at(t->k, y)->op;
                if (!pass && op == KI_SPLAT && !multiplies) o->is_factor[y] = false;
                if (pass && op == KI_LANE && !spreads) o->is_factor[y] = false;
            }
        }
}

/* Does the statement of v mention y? */
static bool mentions(const struct text *t, kval v, kval y)
{
    const struct kir_ins *x = kir_at(t->k, v);
    for (u32 i = 0; i < kir_op_info(x->op)->n_args; i++) {
        kval z = kir_operand(x, i);
        if (z == y || (z && (t->val[z].nested || kir_at(t->k, z)->op == KI_LANE) && mentions(t, z, y))) return true;
    }
    return false;
}

static bool is_halved(const struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v), *array = kir_at(t->k, x->a);
    if (x->op != KI_LOAD || x->c || x->dtype == DT_BOOL || x->lanes * dtype_size(x->dtype) != 16 || (array->op == KI_ALLOC && array->aux == KS_REG)) return false;
    return array->lanes <= 1 && kir_at(t->k, x->b)->op == KI_RAMP && kir_at(t->k, x->b)->imm.i == 1;
}

static void insert_half(struct text *t, struct in_order *o)
{
    const struct kir_ins *x = kir_at(t->k, o->half);
    if (!o->half) return;
    struct str f = text_helper(t, "insert_high", text_rep(x->dtype), x->lanes, DT_NONE);
    text_line(t, "v%u = %.*s(v%u, h%u);", o->half, STR_ARG(f), o->half, o->half);
    o->half = 0;
}

/* A vector's lower half is loaded beside the insertion of the one's before, its upper half beside the next multiply-add. */
static bool half_statement(struct text *t, kval v)
{
    struct in_order *o = ((const struct c_own *)t->own)->in_order;
    const struct kir_ins *x = kir_at(t->k, v);
    if (!o) return false;
    if (x->op == KI_LANE && o->is_factor[v]) return true;
    bool is_half = is_halved(t, v) && t->val[v].uses;
    if (!is_half) {
        if (kir_op_info(x->op)->cls == 'C' || (o->half && !t->val[v].nested && mentions(t, v, o->half))) insert_half(t, o);
        return false;
    }
    struct access a = access_of(t, x->a, x->b, 0);
    struct str at = ramp_address(t, &a), type = text_type(t, a.dtype, x->lanes);
    struct str low = text_helper(t, "load_low", a.dtype, x->lanes, DT_NONE), high = text_helper(t, "load_high", a.dtype, x->lanes, DT_NONE);
    text_line(t, "%.*s v%u = %.*s(%.*s);", STR_ARG(type), v, STR_ARG(low), STR_ARG(at));
    insert_half(t, o);
    text_line(t, "const u64 h%u = %.*s(%.*s);", v, STR_ARG(high), STR_ARG(at));
    o->half = v;
    return true;
}

static bool statement(struct text *t, kval v)
{
    if (!t->val[v].is_spread) return c_tile_statement(t, v) || half_statement(t, v);
    spread_statement(t, v);
    return true;
}

/* Arrays. Those of WORK and TEMP are set up at the top of their function. */

static struct str element_type(struct text *t, const struct kir_ins *x)
{
    if (x->dtype == DT_BOOL && x->lanes <= 1) return S("u8");
    return text_type(t, x->dtype, x->lanes ? x->lanes : 1);
}

static void alloc(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (is_scratch(t, x) || x->aux == KS_TEMP) return;
    struct str type = element_type(t, x), name = text_array_name(t, v);
    i64 n = 0;
    if (!kir_is_const(t->k, x->a, &n) || n < 0 || n > 1 << 16) {
        err_set(t->err, ERR_UNSUPPORTED, "array of registers too large in kernel '%.*s'",
                STR_ARG(t->k->name));
        return;
    }
    bool is_sum = ((const struct c_own *)t->own)->is_sum[v];
    if (n == 1 && is_sum) text_line(t, "u%lld %.*s;", (long long)(8 * dtype_size(x->dtype)), STR_ARG(name));
    else if (n == 1 && x->aux == KS_REG) text_line(t, "%.*s %.*s;", STR_ARG(type), STR_ARG(name));
    else text_line(t, "%.*s %.*s[%lld];", STR_ARG(type), STR_ARG(name), (long long)n);
}

static i64 element_bytes(const struct kir_ins *x)
{
    return dtype_size(x->dtype) * (x->lanes ? x->lanes : 1);
}

/* Bytes of a WORK array, rounded up, as text. */
static struct str work_bytes(struct text *t, const struct kir_ins *x)
{
    i64 n;
    if (kir_is_const(t->k, x->a, &n))
        return text_fmt(t, "%lld", (long long)round_up(n * element_bytes(x), 64));
    return text_fmt(t, "(%.*s * %lld + 63) / 64 * 64", STR_ARG(text_value(t, x->a)),
                    (long long)element_bytes(x));
}

static void declare_arrays(struct text *t, kval from, kval to)
{
    struct str at = S("(char *)work");
    u32 n_temp = 0;
    for (kval v = 1; v < t->k->ins.n; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        if (x->op != KI_ALLOC || (!is_scratch(t, x) && x->aux != KS_TEMP)) continue;
        struct str type = element_type(t, x), name = text_array_name(t, v);
        const char *unaligned = x->lanes > 1 ? "_u" : "";
        /* other threads of the workgroup write to it, too */
        const char *restricted = has_workgroup(t) && x->aux != KS_WORK ? "" : "restrict ";
        if (x->aux == KS_TEMP)
            text_line(t, "%.*s%s *%sconst %.*s = buf[%u];", STR_ARG(type), unaligned, restricted,
                      STR_ARG(name), t->k->buf.n + n_temp++);
        if (!is_scratch(t, x)) continue;
        if (v > from && v < to)
            text_line(t, "%.*s%s *%sconst %.*s = (void *)(%.*s);", STR_ARG(type), unaligned, restricted,
                      STR_ARG(name), STR_ARG(at));
        at = text_fmt(t, "%.*s + %.*s", STR_ARG(at), STR_ARG(work_bytes(t, x)));
    }
}

/* Workgroups. */

static struct str thread(struct text *t, kval v)
{
    return kir_at(t->k, v)->op == KI_THREAD && kir_at(t->k, v)->imm.i == 0 && has_workgroup(t) ? S("thread") : S("(i64)0");
}

static void barrier(struct text *t)
{
    if (has_workgroup(t)) text_line(t, "workgroup_barrier(wg, %u);", kir_threads(t->k));
}

/* As specified in lang.h. Threads spin first; then the device decides whether they yield the processor,
   or sleep. Missing that another thread is about to sleep is harmless: no thread sleeps for long. */
static void workgroup_functions(struct buf *out)
{
    buf_z(out, "typedef struct workgroup workgroup;\n"
               "struct workgroup {\n"
               "    u32 arrived; char gap[60]; u32 round, sleepers; char gap2[56]; void (*yield)(void); void *scratch;\n"
               "    void (*wait)(workgroup *, u32 round, u32 turn); void (*wake)(workgroup *); u32 spins;\n"
               "};\n"
               "static void workgroup_barrier(workgroup *w, u32 n)\n"
               "{\n"
               "    u32 round = __atomic_load_n(&w->round, __ATOMIC_RELAXED), tries = 0, turn = 0;\n"
               "    if (__atomic_add_fetch(&w->arrived, 1, __ATOMIC_ACQ_REL) == n) {\n"
               "        __atomic_store_n(&w->arrived, 0, __ATOMIC_RELAXED);\n"
               "        __atomic_store_n(&w->round, round + 1, __ATOMIC_RELEASE);\n"
               "        if (__atomic_load_n(&w->sleepers, __ATOMIC_RELAXED)) w->wake(w);\n"
               "        return;\n"
               "    }\n"
               "    while (__atomic_load_n(&w->round, __ATOMIC_ACQUIRE) == round) {\n"
               "        if (++tries >= w->spins) w->wait(w, round, turn++), tries = 0;\n"
               "#ifdef __SSE2__\n"
               "        __builtin_ia32_pause();\n"
               "#endif\n"
               "    }\n"
               "}\n");
}

/* Functions. */

static void loop_hint(struct text *t, const struct kir_ins *loop)
{
    if (loop->aux == KL_VECTOR) text_line(t, "VECTOR_LOOP");
}

/* Indices of the first iteration, and the step to the next one: an odometer. */
static void grid_open(struct text *t, const kval *dim, const struct str *extent, u32 n)
{
    if (n == 1) {
        text_line(t, "for (i64 g%u = begin; g%u < end; g%u++) {", dim[0], dim[0], dim[0]);
        t->depth++;
        return;
    }
    struct str rest = S("begin");
    for (u32 i = n; i-- > 0;) {
        if (i) text_line(t, "i64 g%u = %.*s %% %.*s;", dim[i], STR_ARG(rest), STR_ARG(extent[i]));
        else text_line(t, "i64 g%u = %.*s;", dim[i], STR_ARG(rest));
        rest = text_fmt(t, "%.*s / %.*s", STR_ARG(rest), STR_ARG(extent[i]));
    }
    text_line(t, "for (i64 at = begin; at < end; at++) {");
    t->depth++;
}

static void grid_body(struct text *t, kval open)
{
    kval dim[3] = {0}, end;
    struct str extent[3];
    u32 n = text_grid(t, open, dim, &end);
    for (u32 i = 0; i < n; i++) extent[i] = text_value(t, kir_at(t->k, dim[i])->a);
    grid_open(t, dim, extent, n);
    text_body(t, open, end);
    for (u32 i = n; n > 1 && i-- > 0;) {
        if (i == 0) text_line(t, "g%u++;", dim[0]);
        else text_line(t, "if (++g%u == %.*s) { g%u = 0;", dim[i], STR_ARG(extent[i]), dim[i]);
    }
    for (u32 i = 1; i < n; i++) text_line(t, "}");
    barrier(t); /* the next iteration uses the same shared arrays */
    t->depth--;
    text_line(t, "}");
}

static void declare_arguments(struct text *t)
{
    const struct kir *k = t->k;
    for (u32 i = 0; i < k->buf.n; i++) {
        const struct kir_ins *x = kir_at(k, k->buf.v[i].id);
        if (!t->buf_used[i]) continue;
        const char *type = x->dtype == DT_BOOL ? "u8" : dtype_name(text_rep(x->dtype));
        text_line(t, "%s%s *%sconst b_%.*s = buf[%u];", x->aux == KA_IN ? "const " : "", type,
                  has_workgroup(t) && x->aux != KA_IN ? "" : "restrict ", STR_ARG(k->buf.v[i].name), i);
    }
    for (u32 i = 0; i < k->param.n; i++) {
        if (!t->param_used[i]) continue;
        text_line(t, "const i64 p%u = param[%u]; %.*s", i, i, STR_ARG(text_param_note(t, i)));
    }
}

/* An array that is a vector register. */
static bool is_vector_variable(const struct text *t, kval array)
{
    const struct kir_ins *x = kir_at(t->k, array);
    i64 n;
    return x->op == KI_ALLOC && x->aux == KS_REG && x->dtype != DT_BOOL && kir_is_const(t->k, x->a, &n) && n == 1 && element_bytes(x) == (i64)t->caps->vector_bytes;
}

/* Vector variables that a loop without others within carries from step to step: they are read in it before they are written; of its first 32 variables. */
static u32 count_carried(const struct text *t, kval loop, kval end)
{
    enum { MOST = 32 };
    kval seen[MOST];
    u32 n = 0, n_seen = 0;
    for (kval v = loop + 1; v < end && n_seen < MOST; v++) {
        const struct kir_ins *x = kir_at(t->k, v);
        u32 i = 0;
        if (kir_opens(x->op)) return 0;
        if ((x->op != KI_LOAD && x->op != KI_STORE) || !is_vector_variable(t, x->a)) continue;
        while (i < n_seen && seen[i] != x->a) i++;
        if (i < n_seen) continue;
        seen[n_seen++] = x->a;
        n += x->op == KI_LOAD;
    }
    return n;
}

/* Do accumulators take most of 16 registers in an inner loop? gcc lets variables share registers that begin with one value (sums with the bias of
   their columns), or that an epilogue with much arithmetic (GELU) uses; in a loop of several steps it then stores a sum in each. Without such loops (depthwise
   convolutions) it stores more if they do not share. */
static bool keeps_variables_apart(const struct text *t, kval open, kval end)
{
    enum { REGISTERS = 16 };
    if (!t->caps || t->caps->isa.family != ISA_X86_64 || t->caps->n_vector_regs != REGISTERS) return false;
    for (kval v = open + 1; v < end; v++)
        if (kir_at(t->k, v)->op == KI_LOOP && count_carried(t, v, text_end(t->k, v)) > REGISTERS / 2) return true;
    return false;
}

static void grid_function(struct text *t, struct buf *out, u32 number, kval open)
{
    struct buf body = {0}, arrays = {0};
    kval end = text_end(t->k, open);
    for (u32 i = 0; i < t->k->param.n; i++) t->param_used[i] = false;
    for (u32 i = 0; i < t->k->buf.n; i++) t->buf_used[i] = false;
    t->depth = 1;
    t->out = &arrays;
    declare_arrays(t, open, end);
    t->out = &body;
    c_tile_open(t, open, end, text_array_name);
    grid_body(t, open);
    if (c_tile_in_use(t)) text_line(t, "_tile_release();");
    /* Non-temporal stores are not ordered with others: they are completed
       before another thread that synchronises with this one reads the data. */
    kval v = open;
    while (v < end && !(kir_at(t->k, v)->op == KI_STORE && kir_at(t->k, v)->aux == KW_STREAM)) v++;
    if (v < end) buf_z(t->out, "#ifdef __SSE2__\n    __builtin_ia32_sfence();\n#endif\n");
    t->out = out;
    if (has_workgroup(t)) buf_printf(out, "\nconst u32 %.*s_%u_threads = %u;", STR_ARG(t->k->name), number, kir_threads(t->k));
    if (keeps_variables_apart(t, open, end)) buf_z(out, "\n#ifndef __clang__\n__attribute__((optimize(\"no-tree-coalesce-vars\")))\n#endif");
    buf_printf(
        out,
        "\nvoid %.*s_%u(void *const *buf, const i64 *param, i64 begin, i64 end, void *work)\n{\n",
        STR_ARG(t->k->name), number);
    if (has_workgroup(t))
        buf_z(out, "    workgroup *const wg = work;\n    const i64 thread = begin;\n    work = wg->scratch, begin = 0;\n    (void)thread;\n");
    declare_arguments(t);
    if (c_tile_in_use(t)) buf_z(out, "    _tile_loadconfig(tile_shapes);\n");
    buf_str(out, buf_view(&arrays));
    buf_str(out, buf_view(&body));
    buf_z(out, "}\n");
    buf_release(&arrays);
    buf_release(&body);
}

/* FMA of vectors, which gcc names by their width. */
#define FMA_TEXT(x86, arm, sve, flag)                                                                   \
    "$V $F($V x, $V y, $V z)\n{\n"                                                                 \
    "#if defined __clang__ || !defined __FP_FAST_FMA" flag "\n    return x * y + z;\n"             \
    "#elif defined __FMA__ && $B == 16\n    return __builtin_ia32_vfmadd" x86 "(x, y, z);\n"       \
    "#elif defined __FMA__ && $B == 32\n    return __builtin_ia32_vfmadd" x86 "256(x, y, z);\n"    \
    "#elif defined __AVX512F__ && $B == 64\n"                                                      \
    "    return __builtin_ia32_vfmadd" x86 "512_mask(x, y, z, -1, 4);\n"                           \
    "#elif defined __aarch64__ && $B == 16\n    return __builtin_aarch64_fma" arm "(x, y, z);\n"   \
    "#elif __ARM_FEATURE_SVE_BITS == 8 * $B\n    __SVBool_t all;\n"                                \
    "    __asm__(\"ptrue %0.b\" : \"=Upl\"(all));\n"                                               \
    "    __asm__(\"fmla %0." sve ", %1/m, %2." sve ", %3." sve "\" : \"+w\"(z) : \"Upl\"(all), \"w\"(x), \"w\"(y));\n    return z;\n" \
    "#else\n    $V r;\n    for (int i = 0; i < $N; i++) r[i] = $mfma$f(x[i], y[i], z[i]);\n"       \
    "    return r;\n#endif\n}\n"
#define FMA_SCALAR(flag)                                                                           \
    "$E $F($E x, $E y, $E z)\n{\n"                                                                 \
    "#if defined __clang__ || !defined __FP_FAST_FMA" flag "\n    return x * y + z;\n"             \
    "#else\n    return $mfma$f(x, y, z);\n#endif\n}\n"
#define MUL_TEXT "$V $F($V x, $V y)\n{\n    return x * y;\n}\n"
/* Not -x: gcc makes -fma(x, y, z) an fma(-x, y, -z), which is 0 where that is -0. */
#define NEG_TEXT                                                                                   \
    "$V $F($V x)\n{\n    $U u;\n    __builtin_memcpy(&u, &x, sizeof u);\n"                          \
    "    u ^= ($u)1 << ($s - 1);\n    __builtin_memcpy(&x, &u, sizeof u);\n    return x;\n}\n"

/* By an element, which the instruction takes from a register. The element has to come there by a load of its own: gcc would load it into all
   lanes (ld1r), which occupies a unit that multiplies on most cores. */
#define FMA_ELEMENT(type, lanes, lane, number)                                                     \
    "$V $F(" type " x, $V y, $V z)\n{\n    __asm__(\"fmla %0." lanes ", %1." lanes ", %2." lane   \
    "[" number "]\" : \"+w\"(z) : \"w\"(y), \"w\"(x));\n    return z;\n}\n"

/* By SVE. Uty: gcc's constraint of the instruction's addresses. */
#define LOAD_ALL(instruction)                                                                      \
    "$V $F(const $e *p)\n{\n    $V x;\n#if defined __clang__ || !defined __ARM_FEATURE_SVE\n"     \
    "    for (int i = 0; i < $N; i++) x[i] = *p;\n#else\n    __SVBool_t all;\n"                  \
    "    __asm__(\"ptrue %0.b\" : \"=Upl\"(all));\n"                                             \
    "    __asm__(\"" instruction ", %1/z, %2\" : \"=w\"(x) : \"Upl\"(all), \"Uty\"(*p));\n"      \
    "#endif\n    return x;\n}\n"

/* For processors that execute in order: a load of 16 bytes occupies the units that multiply for two cycles, of 8 bytes for one, beside which another
   vector's upper half is inserted from an integer register (Cortex-A53; XNNPACK's aarch64-neonfma-cortex-a53 kernels). Statements for compilers
   that keep them in order: see half_statement. */
#define LOAD_LOW "$V $F(const void *p)\n{\n    typedef u64 __attribute__((aligned(1), may_alias)) half;\n    $V x;\n" \
    "    __asm__(\"ldr %d0, %1\" : \"=w\"(x) : \"m\"(*(const half *)p));\n    return x;\n}\n"
#define LOAD_HIGH "u64 $F(const void *p)\n{\n    typedef u64 __attribute__((aligned(1), may_alias)) half;\n    u64 x;\n" \
    "    __asm__(\"ldr %0, %1\" : \"=r\"(x) : \"m\"(((const half *)p)[1]));\n    return x;\n}\n"
#define INSERT_HIGH "$V $F($V x, u64 y)\n{\n    __asm__(\"ins %0.d[1], %1\" : \"+w\"(x) : \"r\"(y));\n    return x;\n}\n"

/* The first three for kernels that round as written, fma also for SVE, the others for aarch64. */
static const struct text_helper helpers[] = {
    {.name = "mul", .types = T_FLOAT, .scalar = MUL_TEXT, .vector = MUL_TEXT},
    {.name = "neg", .types = T_FLOAT, .scalar = NEG_TEXT, .vector = NEG_TEXT},
    {.name = "fma", .types = T_F32, .scalar = FMA_SCALAR("F"), .vector = FMA_TEXT("ps", "v4sf", "s", "F")},
    {.name = "fma", .types = T_F64, .scalar = FMA_SCALAR(""), .vector = FMA_TEXT("pd", "v2df", "d", "")},
    {.name = "fma_element", .types = T_F32, .vector = FMA_ELEMENT("$e", "4s", "s", "0")},
    {.name = "fma_element", .types = T_F64, .vector = FMA_ELEMENT("$e", "2d", "d", "0")},
    {.name = "fma_lane0", .types = T_F32, .vector = FMA_ELEMENT("$V", "4s", "s", "0")},
    {.name = "fma_lane1", .types = T_F32, .vector = FMA_ELEMENT("$V", "4s", "s", "1")},
    {.name = "fma_lane2", .types = T_F32, .vector = FMA_ELEMENT("$V", "4s", "s", "2")},
    {.name = "fma_lane3", .types = T_F32, .vector = FMA_ELEMENT("$V", "4s", "s", "3")},
    {.name = "fma_lane0", .types = T_F64, .vector = FMA_ELEMENT("$V", "2d", "d", "0")},
    {.name = "fma_lane1", .types = T_F64, .vector = FMA_ELEMENT("$V", "2d", "d", "1")},
    {.name = "load_all", .types = T_F32, .vector = LOAD_ALL("ld1rw {%0.s}")},
    {.name = "load_all", .types = T_F64, .vector = LOAD_ALL("ld1rd {%0.d}")},
    {.name = "load_low", .types = T_NUMBER, .vector = LOAD_LOW},
    {.name = "load_high", .types = T_NUMBER, .vector = LOAD_HIGH},
    {.name = "insert_high", .types = T_NUMBER, .vector = INSERT_HIGH},
    {0},
};

static void preamble(struct buf *out)
{
    static const struct {
        const char *name, *type;
    } types[] = {
        {"u8", "__UINT8_TYPE__"},   {"u16", "__UINT16_TYPE__"}, {"u32", "__UINT32_TYPE__"},
        {"u64", "__UINT64_TYPE__"}, {"i8", "__INT8_TYPE__"},    {"i16", "__INT16_TYPE__"},
        {"i32", "__INT32_TYPE__"},  {"i64", "__INT64_TYPE__"},  {"f32", "float"},
        {"f64", "double"},
    };
    for (i64 i = 0; i < countof(types); i++)
        buf_printf(out, "typedef %s %s;\n", types[i].type, types[i].name);
    buf_z(out, "#define AT(T, p) (*(T##_u *)(p))\n"
               "#ifdef __clang__\n"
               "#define VECTOR_LOOP _Pragma(\"clang loop vectorize(assume_safety)\")\n"
               "#else\n"
               "#define VECTOR_LOOP _Pragma(\"GCC ivdep\")\n"
               "#endif\n");
}

static const struct text_style style = {
    .helper = helpers,
    .function = "static inline __attribute__((always_inline)) ",
    .math = "__builtin_",
    .math_end = {"f", ""},
    .infinity = {"__builtin_inff()", "__builtin_inf()"},
    .nan = {"__builtin_nanf(\"\")", "__builtin_nan(\"\")"},
    .has_vectors = true,
    .index = DT_I64,
    .load = load,
    .store = store,
    .prefetch = prefetch,
    .alloc = alloc,
    .loop_hint = loop_hint,
    .thread = thread,
    .barrier = barrier,
    .statement = statement,
};

static bool check(const struct kir *k, struct err *e)
{
    if (k->group[1] > 1 || k->group[2] > 1)
        return err_set(e, ERR_UNSUPPORTED, "workgroups of several dimensions in kernel '%.*s'", STR_ARG(k->name));
    for (kval v = 1; v < k->ins.n; v++) {
        u32 n = kir_at(k, v)->lanes;
        if (n > 1 && (n & (n - 1)))
            return err_set(e, ERR_UNSUPPORTED, "vectors of %u lanes in kernel '%.*s'", n,
                           STR_ARG(k->name));
        if (kir_at(k, v)->op == KI_TILE)
            return err_set(e, ERR_UNSUPPORTED, "tile copies in kernel '%.*s'", STR_ARG(k->name));
        if (kir_at(k, v)->role || kir_at(k, v)->op == KI_FSTORE) {
            if (!c_tile_check(k, v, e)) return false;
        } else if ((kir_is_collective(k, v) && kir_at(k, v)->op != KI_STORE) || (kir_at(k, v)->op == KI_SUBGROUP && !kir_is_alone(k)))
            return err_set(e, ERR_UNSUPPORTED, "'%s' of subgroups in kernel '%.*s'",
                           kir_op_info(kir_at(k, v)->op)->name, STR_ARG(k->name));
    }
    return true;
}

/* Functions of f32 that are faster, or vectors at all, as arithmetic. exp and log have helpers; pow
   must not be fused, which the compiler is told it may; the branch of scalar sin, cos and tan keeps
   loops from being vectorised. All of them where they must be the same in vectors and scalars. DOT and MMLA where the target lacks them. user: caps */
static bool expands(const void *user, const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    bool is_trig = x->op == KI_SIN || x->op == KI_COS || x->op == KI_TAN;
    if (x->op == KI_DOT || x->op == KI_MMLA) return !text_has_dot(user, k, v);
    bool is_helper = x->op == KI_EXP || x->op == KI_LOG || x->op == KI_POW;
    return x->dtype == DT_F32 && (k->as_written || (!is_helper && (x->lanes > 1 || !is_trig)));
}

static bool in_order(const struct caps *c) { return c->in_order && c->isa.family == ISA_AARCH64; }

static bool print(struct buf *out, const struct kir *in, const struct caps *c, struct err *e)
{
    if (!check(in, e)) return false;
    struct arena arena = {0};
    struct err err = {0};
    struct kir safe, *k = &safe;
    if (!kir_lower(&safe, &arena, in, expands, c, str_of(c->avoid), e)) {
        arena_release(&arena);
        return false;
    }
    struct kir ahead;
    struct in_order halves = {0};
    if (in_order(c)) {
        struct caps whole = *c;
        isa_limits(&whole, c->isa);
        kir_ahead(&ahead, &arena, k, whole.n_vector_regs);
        k = &ahead;
    }
    struct c_own own = {0};
    struct text t = {.style = &style, .caps = c, .arena = &arena, .err = &err, .own = &own};
    struct buf functions = {0};
    u32 n = 0;
    bool has_tiles = false;
    text_open(&t, k);
    own.is_sum = arena_array(&arena, bool, k->ins.n);
    find_sums(&t, own.is_sum);
    if (has_sve(c)) find_spread(&t);
    if (in_order(c)) {
        halves.is_factor = arena_array(&arena, bool, k->ins.n);
        own.in_order = &halves;
        find_factors(&t);
    }
    for (kval v = 1; v < k->ins.n; v++) {
        if (kir_at(k, v)->op != KI_GRID) continue;
        grid_function(&t, &functions, n++, v);
        has_tiles |= c_tile_in_use(&t);
        v = text_end(k, v);
    }
    buf_printf(out, "/* %.*s%s */\n", STR_ARG(k->name), k->as_written ? TEXT_AS_WRITTEN : "");
    preamble(out);
    if (has_workgroup(&t)) workgroup_functions(out);
    if (has_tiles) c_tile_functions(out);
    buf_str(out, buf_view(&t.types));
    buf_str(out, buf_view(&t.prelude));
    buf_str(out, buf_view(&functions));
    text_close(&t);
    buf_release(&functions);
    arena_release(&arena);
    return err.code == ERR_NONE || err_set(e, err.code, "%s", err.msg);
}

static struct kir_limits limits(const struct caps *c)
{
    return (struct kir_limits){.max_lanes_bytes = c->vector_bytes ? c->vector_bytes : 16,
                               .max_unroll = 20000};
}

const struct lang lang_c = {
    .version = 1,
    .name = "c",
    .suffix = ".c",
    .print = print,
    .build = lang_cc_build,
    .toolchain = lang_cc_toolchain,
    .limits = limits,
    .shares = true,
    .join_program = c_join,
};
