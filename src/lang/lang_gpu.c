// SPDX-License-Identifier: Apache-2.0
//
// lang_gpu.c: kernels with workgroups as text of cuda, hip and opencl. One kernel function per grid: its
// parameters are a pointer per argument, then per TEMP array, the kernel's parameters and the first workgroup
// of the launched part of the grid. The rest is done by the shared emitter (lang_text.c) and lang_gpu_mem.c.
#include "lang/lang_gpu.h"

bool gpu_has_type(const struct kir *k, enum dtype d)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->dtype == d) return true;
    return false;
}

bool gpu_has_subgroups(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->op == KI_SUBGROUP || kir_is_collective(k, v)) return true;
    return false;
}

static bool has_fragments(const struct kir *k)
{
    for (kval v = 1; v < k->ins.n; v++)
        if (kir_at(k, v)->role) return true;
    return false;
}

u32 gpu_subgroup(const struct kir *k, u32 max)
{
    u32 n = k->subgroup ? k->subgroup : max;
    while (!k->subgroup && n > 1 && kir_threads(k) % n) n /= 2;
    return n;
}

static i64 array_bytes(const struct kir *k, kval v)
{
    const struct kir_ins *x = kir_at(k, v);
    i64 n = 0;
    return kir_is_const(k, x->a, &n) ? round_up(n * dtype_size(x->dtype), 16) : 0;
}

/* Of a shared array: rows of a swizzled one are aligned to the banks. */
static i64 array_align(const struct kir_ins *x) { return x->imm.i ? 1024 : 16; }

static bool is_shared(const struct kir *k, kval v)
{
    return kir_at(k, v)->op == KI_ALLOC && kir_at(k, v)->aux == KS_SHARED;
}

i64 gpu_shared_bytes(const struct kir *k, kval from, kval to)
{
    i64 n = 0;
    for (kval v = from; v < to; v++)
        if (is_shared(k, v)) n = round_up(n, array_align(kir_at(k, v))) + array_bytes(k, v);
    return n + gpu_tile_bytes(k, from, to);
}

void gpu_typedefs(struct buf *out, const struct kir *k, const char *i64_name)
{
    buf_z(out, "#define _Bool bool\n" /* the emitter uses the C name of the type */
               "typedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned int u32;\n"
               "typedef signed char i8;\ntypedef short i16;\ntypedef int i32;\ntypedef float f32;\n");
    buf_printf(out, "typedef unsigned %s u64;\ntypedef %s i64;\n", i64_name, i64_name);
    if (gpu_has_type(k, DT_F64)) buf_z(out, "typedef double f64;\n");
}

/* Checks. */

#define REFUSE(...) return err_set(e, ERR_UNSUPPORTED, __VA_ARGS__)

static bool check_ins(const struct kir *k, kval v, struct err *e)
{
    const struct kir_ins *x = kir_at(k, v);
    i64 n;
    if (x->op == KI_ALLOC && x->aux == KS_WORK)
        REFUSE("scratch memory of iterations in kernel '%.*s'", STR_ARG(k->name));
    if (x->op == KI_FLOAD && x->d && kir_warpgroup(k) == 1) REFUSE("a subgroup's fragment in panels in kernel '%.*s'", STR_ARG(k->name));
    if (is_shared(k, v) && !kir_is_const(k, x->a, &n))
        REFUSE("shared array of unknown size in kernel '%.*s'", STR_ARG(k->name));
    return true;
}

static bool check_subgroup(const struct kir *k, const struct caps *c, const struct gpu_words *w, struct err *e)
{
    u32 max = w->lanes ? w->lanes : c->subgroup_max, n = gpu_subgroup(k, max);
    if (!gpu_has_subgroups(k)) return true;
    if (!w->lanes && !c->has_subgroup) REFUSE("kernel '%.*s' needs subgroups, which the target lacks", STR_ARG(k->name));
    if (has_fragments(k) && (!w->place || n != max))
        REFUSE("kernel '%.*s' has fragments, which the language lacks for subgroups of %u", STR_ARG(k->name), n);
    if (has_fragments(k) && kir_warpgroup(k) > 1 && !gpu_check_warpgroup(k, c, w, e)) return false;
    if (n > max || (n & (n - 1)) || kir_threads(k) % n)
        REFUSE("subgroups of %u of %u threads in kernel '%.*s'", n, kir_threads(k), STR_ARG(k->name));
    return true;
}

bool gpu_check(const struct kir *k, const struct caps *c, const struct gpu_words *w, struct err *e)
{
    u32 n = kir_threads(k);
    for (kval v = 1; v < k->ins.n; v++)
        if (!check_ins(k, v, e) || (kir_at(k, v)->op == KI_TILE && !gpu_check_tile(k, v, c, w, e))) return false;
    if (c->max_group && n > c->max_group)
        REFUSE("kernel '%.*s' has workgroups of %u threads, the target supports at most %u", STR_ARG(k->name), n, c->max_group);
    if (gpu_has_type(k, DT_F64) && !c->has_f64)
        REFUSE("kernel '%.*s' needs 'f64', which the target lacks", STR_ARG(k->name));
    for (kval v = 1; v < k->ins.n; v++) {
        if (kir_at(k, v)->op != KI_GRID) continue;
        i64 bytes = gpu_shared_bytes(k, v, text_end(k, v));
        if (c->shared_bytes && bytes > c->shared_bytes)
            REFUSE("kernel '%.*s' has shared arrays of %lld bytes, the target at most %lld", STR_ARG(k->name),
                   (long long)bytes, (long long)c->shared_bytes);
        v = text_end(k, v);
    }
    return check_subgroup(k, c, w, e);
}

/* Threads. */

void gpu_barrier(struct text *t) { text_line(t, "%s", gpu_words(t)->barrier); }

struct str gpu_thread(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->op == KI_THREAD) return t->k->group[x->imm.i] > 1 ? text_fmt(t, "thread_%c", "xyz"[x->imm.i]) : S("0");
    if (x->op == KI_SUBGROUP) return text_fmt(t, "(%s)", gpu_words(t)->subgroup[x->imm.i]);
    struct str f = text_helper(t, kir_op_info(x->op)->name, text_rep(text_dtype(t, v)), 1, DT_NONE);
    struct str a = text_bare(t, x->a);
    if (x->op != KI_SHUFFLE) return text_fmt(t, "%.*s(%.*s, thread)", STR_ARG(f), STR_ARG(a));
    return text_fmt(t, "%.*s(%.*s, %.*s, thread)", STR_ARG(f), STR_ARG(a), STR_ARG(text_bare(t, x->b)));
}

static void declare_threads(struct text *t)
{
    const struct kir *k = t->k;
    const struct gpu_words *w = gpu_words(t);
    struct str all = S("0");
    u32 before = 1;
    for (u32 i = 0; i < 3; i++) {
        if (k->group[i] <= 1) continue;
        text_line(t, "const i32 thread_%c = %s;", "xyz"[i], w->thread[i]);
        struct str more = text_fmt(t, before > 1 ? "thread_%c * %u" : "thread_%c", "xyz"[i], before);
        all = before > 1 ? text_fmt(t, "%.*s + %.*s", STR_ARG(all), STR_ARG(more)) : more;
        before *= k->group[i];
    }
    if (gpu_has_subgroups(k)) text_line(t, "const i32 thread = %.*s;", STR_ARG(all));
}

/* Functions. */

static void declare_shared(struct text *t, kval from, kval to)
{
    const struct gpu_words *w = gpu_words(t);
    i64 sum = gpu_shared_bytes(t->k, from, to), at = 0;
    bool is_dynamic = w->max_static && sum > w->max_static;
    if (is_dynamic) text_line(t, "extern %s __attribute__((aligned(1024))) u32 q_shared[];", w->shared);
    for (kval v = from; v < to; v++) {
        if (!is_shared(t->k, v)) continue;
        const struct kir_ins *x = kir_at(t->k, v);
        struct str type = gpu_element_type(t, x), name = gpu_array_name(t, v);
        at = round_up(at, array_align(x));
        if (is_dynamic) text_line(t, "%s%.*s *const %.*s = (%s%.*s *)(q_shared + %lld);", w->close, STR_ARG(type),
                                  STR_ARG(name), w->close, STR_ARG(type), (long long)at / 4);
        else text_line(t, "%s __attribute__((aligned(%lld))) %.*s %.*s[%lld];", w->shared, (long long)array_align(x), STR_ARG(type), STR_ARG(name),
                       (long long)kir_at(t->k, x->a)->imm.i);
        at += array_bytes(t->k, v);
    }
    i64 n_tile = gpu_tile_slots(t->k, from, to);
    if (n_tile && !is_dynamic) text_line(t, "%s u64 q_objects[%lld];", w->shared, (long long)n_tile);
    gpu_tile_open(t, is_dynamic ? text_fmt(t, "(u64 *)(q_shared + %lld)", (long long)at / 4) : S("q_objects"), from, to);
}

static void comma(struct buf *out, bool *any)
{
    buf_z(out, *any ? ",\n    " : "    ");
    *any = true;
}

/* Of arguments (KI_BUF) or of temporary arrays (KI_ALLOC). */
static void array_parameters(struct text *t, struct buf *out, enum kir_op op, bool *any)
{
    const struct kir *k = t->k;
    const struct gpu_words *w = gpu_words(t);
    for (kval v = 1; v < k->ins.n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        bool is_in = op == KI_BUF && x->aux == KA_IN;
        if (x->op != op || !kir_is_far(x)) continue;
        struct str type = gpu_element_type(t, x), name = gpu_array_name(t, v);
        comma(out, any);
        buf_printf(out, "%s%s%.*s *%s %.*s", w->far, is_in ? "const " : "", STR_ARG(type), w->restricted, STR_ARG(name));
    }
}

/* In the order of a launch: arguments, temporary arrays, numbers. */
static void parameters(struct text *t, struct buf *out, kval from, kval to)
{
    const struct kir *k = t->k;
    bool any = false;
    array_parameters(t, out, KI_BUF, &any);
    array_parameters(t, out, KI_ALLOC, &any);
    for (u32 i = 0; i < k->param.n; i++) {
        comma(out, &any);
        buf_printf(out, "const i32 p%u %.*s", i, STR_ARG(text_param_note(t, i)));
    }
    comma(out, &any);
    buf_z(out, "const i32 base_x, const i32 base_y, const i32 base_z");
    gpu_tile_parameters(out, k, from, to);
}

static void grid_function(struct text *t, struct buf *out, u32 number, kval open)
{
    const struct gpu_words *w = gpu_words(t);
    kval dim[3] = {0}, end;
    u32 n = text_grid(t, open, dim, &end);
    struct str name = text_fmt(t, "%.*s_%u", STR_ARG(t->k->name), number);
    buf_printf(out, "\n%s ", w->entry);
    w->qualify(out, t->k);
    buf_printf(out, "void %.*s(\n", STR_ARG(name));
    parameters(t, out, open, end);
    buf_z(out, ")\n{\n");
    t->out = out;
    t->depth = 1;
    declare_shared(t, open, end);
    declare_threads(t);
    for (u32 i = 0; i < n; i++) /* the last is the innermost */
        text_line(t, "const i32 g%u = %s + base_%c;", dim[i], w->group[n - 1 - i], "xyz"[n - 1 - i]);
    text_body(t, open, end);
    gpu_tile_close(t, open, end);
    buf_z(out, "}\n");
    u32 n_map = gpu_tile_maps(t, out, name, open, end);
    i64 shared = gpu_shared_bytes(t->k, open, end);
    u32 group[3];
    for (u32 i = 0; i < 3; i++) group[i] = t->k->group[i] ? t->k->group[i] : 1;
    if (w->has_info)
        buf_printf(out, "extern \"C\" __device__ const int %.*s_info[8] = {1, %u, %u, %u, %u, %lld, %u, 0};\n",
                   STR_ARG(name), group[0], group[1], group[2], t->k->subgroup,
                   (long long)(w->max_static && shared > w->max_static ? shared : 0), n_map);
}

bool gpu_wants_all(const void *user, const struct kir *k, kval v) { return true; }

static void write_text(struct text *t, struct buf *out)
{
    const struct kir *k = t->k;
    const struct gpu_words *w = gpu_words(t);
    struct buf functions = {0};
    u32 n = 0;
    for (kval v = 1; v < k->ins.n; v++) {
        if (kir_at(k, v)->op != KI_GRID) continue;
        grid_function(t, &functions, n++, v);
        v = text_end(k, v);
    }
    buf_printf(out, "/* %.*s */\n", STR_ARG(k->name));
    w->preamble(out, k, gpu_subgroup(k, w->lanes ? w->lanes : t->caps->subgroup_max));
    buf_str(out, buf_view(&t->types));
    buf_str(out, buf_view(&t->prelude));
    buf_str(out, buf_view(&functions));
    buf_release(&functions);
}

bool gpu_print(struct buf *out, const struct kir *in, const struct caps *c, const struct gpu_words *w, struct err *e)
{
    struct arena arena = {0};
    struct err err = {0};
    struct kir k;
    if (!gpu_check(in, c, w, e)) return false;
    if (!kir_lower(&k, &arena, in, gpu_wants_all, NULL, str_of(c->avoid), e)) {
        arena_release(&arena);
        return false;
    }
    struct text t = {.style = &w->text, .caps = c, .arena = &arena, .err = &err};
    text_open(&t, &k);
    gpu_warpgroup_open(&t);
    write_text(&t, out);
    text_close(&t);
    arena_release(&arena);
    return err.code == ERR_NONE || err_set(e, err.code, "%s", err.msg);
}

/* Vectors are scalarised anyway; wide ones show which accesses are contiguous. */
struct kir_limits gpu_limits(const struct caps *c) { return (struct kir_limits){.max_unroll = 20000}; }

/* Joining. */

static void undefine(struct buf *out, struct str text)
{
    struct str line, rest, word = S("#define ");
    for (rest = text; rest.n;) {
        i64 n = 0;
        str_cut(rest, '\n', &line, &rest);
        if (!str_starts(line, word)) continue;
        const char *name = line.p + word.n;
        while (word.n + n < line.n && name[n] != ' ' && name[n] != '(') n++;
        buf_printf(out, "#undef %.*s\n", (int)n, name);
    }
}

void gpu_join(struct buf *out, const struct str *text, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        buf_printf(out, "namespace joined_%u {\n", i);
        buf_str(out, text[i]);
        buf_z(out, "}\n");
        undefine(out, text[i]);
    }
}
