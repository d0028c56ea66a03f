// SPDX-License-Identifier: Apache-2.0
//
// lang_text.c: the emitter shared by languages of the C family.
//
// Every instruction becomes a constant with a name (v12), but small pure ones with
// one user are nested into it, and constants, parameters, splats and ramps always
// are. Infix operators are used where C's semantics are those of kernel IR;
// everything else is a call of a helper function, defined by the language's table and
// emitted only if used. f16 and bf16 are held as u16 and computed in f32; a vector of
// bool is a vector of integers 0 and -1 with the width of the compared values.
//
// Signed integers that came from memory wrap through unsigned helpers; index arithmetic does not
// overflow and stays plain, so that the target's compiler can reason about it.
#include "lang/lang_text.h"

enum { NEST_MAX = 4 }; /* largest nested expression, in instructions */

/* The kind of an instruction. */

static bool is_pure(const struct kir_ins *x) { return kir_op_info(x->op)->cls == 'P'; }

static bool is_always_nested(u32 op)
{
    return op == KI_CONST || op == KI_PARAM || op == KI_RAMP || op == KI_SPLAT || op == KI_THREAD;
}

enum dtype text_rep(enum dtype d) { return d == DT_F16 || d == DT_BF16 ? DT_U16 : d; }

kval text_end(const struct kir *k, kval open)
{
    u32 depth = 0;
    for (kval v = open; v < k->ins.n; v++) {
        u32 op = kir_at(k, v)->op;
        if (kir_opens(op)) depth++;
        if (op == KI_END && --depth == 0) return v;
    }
    unreachable();
}

u32 text_grid(struct text *t, kval open, kval dim[3], kval *body_end)
{
    kval end = text_end(t->k, open);
    u32 n = 0;
    for (kval v = open; v < end; v++) {
        if (kir_at(t->k, v)->op != KI_GRID) continue;
        assert(n < 3); /* guaranteed by the verifier */
        dim[n++] = v;
    }
    for (*body_end = end; *body_end > end - (n - 1);) /* ENDs of the inner dimensions are adjacent */
        if (kir_at(t->k, --*body_end)->op != KI_END)
            err_set(t->err, ERR_UNSUPPORTED, "work between dimensions of a grid of kernel '%.*s'", STR_ARG(t->k->name));
    return n;
}

/* Analysis before emission. */

static u8 mask_bytes(const struct text *t, const struct kir_ins *x)
{
    const struct kir *k = t->k;
    if (x->dtype != DT_BOOL || x->lanes == 1 || !t->style->has_vectors) return 0;
    switch (x->op) {
    case KIR_COMPARISONS:
    case KIR_CLASSIFYING:
    case KI_CAST: {
        enum dtype d = kir_at(k, x->a)->dtype;
        if (d == DT_BOOL) return (u8)i64_max(t->val[x->a].mask, t->val[x->b].mask);
        return d == DT_F16 || d == DT_BF16 ? 4 : (u8)dtype_size(d);
    }
    case KIR_LOGIC: return (u8)i64_max(t->val[x->a].mask, t->val[x->b].mask);
    case KI_NOT: return t->val[x->a].mask;
    case KI_SELECT: return t->val[x->b].mask;
    case KIR_NOT_LANEWISE: case KI_BITS: case KI_NEG: case KI_ABS: case KIR_FUNCTIONS: case KIR_ROUNDING:
    case KIR_ARITHMETIC: case KIR_SHIFTS: case KI_FMA: return 1;
    default: unreachable();
    }
}

/* Whether operand i is emitted more than once, because every lane needs it. */
static bool is_repeated(const struct text *t, const struct kir_ins *x, u32 i)
{
    if (t->style->has_vectors) return false;
    if (x->op == KI_LOAD) return i > 0 && x->lanes > 1;
    if (x->op == KI_STORE) return i > 0 && kir_lanes(t->k, x->c) > 1;
    return x->lanes > 1 && (x->op == KI_RAMP || (x->op == KI_SPLAT && i == 0));
}

static void count_uses(struct text *t)
{
    for (kval v = t->k->ins.n - 1; v > 0; v--) {
        const struct kir_ins *x = kir_at(t->k, v);
        struct text_value *me = &t->val[v];
        if (is_pure(x) && me->uses == 0) continue;      /* dead */
        u32 n = is_always_nested(x->op) ? me->uses : 1; /* emitted once per use */
        const kval arg[] = {x->a, x->b, x->c, x->d};
        for (u32 i = 0; i < countof(arg); i++)
            t->val[arg[i]].uses += is_repeated(t, x, i) && kir_lanes(t->k, arg[i]) == 1 ? 2 * n : n;
    }
}

static bool derives_from_data(const struct text *t, const struct kir_ins *x)
{
    if (x->op == KI_LOAD || (x->op == KI_CAST && dtype_is_float(kir_at(t->k, x->a)->dtype)))
        return true;
    const kval arg[] = {x->a, x->b, x->c, x->d};
    for (i64 i = 0; i < countof(arg); i++)
        if (arg[i] && t->val[arg[i]].is_data) return true;
    return x->dtype != DT_I64 && dtype_is_int(x->dtype) && is_pure(x);
}

/* An index is wide only if its range requires it; for unknown sizes, launches keep it narrow
   (dev_check_reach). */
static bool is_wide(const struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->dtype != DT_I64 || t->style->index == DT_I64 || x->op == KI_LOOP) return false;
    struct kir_range r = {INT64_MIN, INT64_MAX};
    if (x->op == KI_CONST) r.lo = r.hi = x->imm.i;
    else if (!t->val[v].is_data && t->k->param.n) return false;
    else if (is_pure(x)) r = kir_range(t->k, v);
    else if (!t->val[v].is_data) return false;
    return r.lo < INT32_MIN || r.hi > INT32_MAX;
}

enum dtype text_dtype(const struct text *t, kval v)
{
    enum dtype d = kir_dtype(t->k, v);
    return d == DT_I64 && !t->val[v].is_wide ? t->style->index : d;
}

static void decide_nesting(struct text *t, kval v, const u32 *user_block)
{
    const struct kir_ins *x = kir_at(t->k, v);
    struct text_value *me = &t->val[v];
    const kval arg[] = {x->a, x->b, x->c, x->d};
    u32 size = 1;
    for (i64 i = 0; i < countof(arg); i++)
        if (arg[i] && t->val[arg[i]].nested) size += t->val[arg[i]].size;
    me->nested = is_always_nested(x->op) ||
                 (is_pure(x) && me->uses == 1 && size <= NEST_MAX && user_block[v] == me->block);
    me->size = (u8)i64_min(size, 255);
}

/* First the blocks of definitions and of last users, then properties that depend on operands, in
   order. */
static void analyse(struct text *t)
{
    const struct kir *k = t->k;
    u32 n = k->ins.n, depth = 0, next = 1;
    u32 *user = arena_array(t->arena, u32, n), *stack = arena_array(t->arena, u32, n + 1);
    count_uses(t);
    for (kval v = 1; v < n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        const kval arg[] = {x->a, x->b, x->c, x->d};
        for (i64 i = 0; i < countof(arg); i++) user[arg[i]] = stack[depth];
        t->val[v].block = stack[depth];
        if (kir_opens(x->op)) stack[++depth] = next++;
        if (x->op == KI_ELSE) stack[depth] = next++;
        if (x->op == KI_END && depth) depth--;
    }
    for (kval v = 1; v < n; v++) {
        const struct kir_ins *x = kir_at(k, v);
        t->val[v].is_data = derives_from_data(t, x);
        t->val[v].is_wide = is_wide(t, v);
        t->val[v].mask = mask_bytes(t, x);
        decide_nesting(t, v, user);
    }
}

void text_open(struct text *t, const struct kir *k)
{
    t->k = k;
    t->val = arena_array(t->arena, struct text_value, k->ins.n + 1);
    t->param_used = arena_array(t->arena, bool, k->param.n + 1);
    t->buf_used = arena_array(t->arena, bool, k->buf.n + 1);
    map_init(&t->known, t->arena);
    analyse(t);
}

void text_close(struct text *t)
{
    buf_release(&t->prelude);
    buf_release(&t->types);
}

/* Text. */

struct str text_fmt(struct text *t, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    struct str s = str_dup(t->arena, buf_view(&b));
    buf_release(&b);
    return s;
}

void text_line(struct text *t, const char *fmt, ...)
{
    for (u32 i = 0; i < t->depth; i++) buf_z(t->out, "    ");
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(t->out, fmt, ap);
    va_end(ap);
    buf_char(t->out, '\n');
}

void text_comment(struct buf *b, struct str s)
{
    for (i64 i = 0; i < s.n; i++) {
        bool ends = s.p[i] == '*' && i + 1 < s.n && s.p[i + 1] == '/';
        bool printable = s.p[i] >= ' ' && s.p[i] < 127 && s.p[i] != '\\' && s.p[i] != '?';
        buf_char(b, printable ? s.p[i] : '_');
        if (ends) buf_char(b, ' ');
    }
}

struct str text_param_note(struct text *t, u32 param)
{
    struct buf note = {0};
    text_comment(&note, t->k->param.v[param]);
    struct str s = text_fmt(t, "/* %.*s */", STR_ARG(buf_view(&note)));
    buf_release(&note);
    return s;
}

struct str text_array_name(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    if (x->op == KI_BUF) {
        t->buf_used[x->imm.i] = true;
        return text_fmt(t, "b_%.*s", STR_ARG(t->k->buf.v[x->imm.i].name));
    }
    assert(x->op == KI_ALLOC);
    return text_fmt(t, "%c%u", "rwst"[x->aux], v);
}

/* Types and helpers. */

static bool text_first_use(struct text *t, struct str name)
{
    if (map_get(&t->known, name)) return false;
    map_put(&t->known, name, 1);
    return true;
}

struct str text_type(struct text *t, enum dtype d, u32 lanes)
{
    d = text_rep(d);
    if (lanes == 1) return str_of(d == DT_BOOL ? "_Bool" : dtype_name(d));
    if (d == DT_BOOL) d = DT_I8;
    struct str s = text_fmt(t, "%sx%u", dtype_name(d), lanes);
    if (!text_first_use(t, s)) return s;
    i64 n = dtype_size(d) * lanes;
    buf_printf(&t->types, "typedef %s %.*s __attribute__((vector_size(%lld)));\n", dtype_name(d),
               STR_ARG(s), (long long)n);
    buf_printf(&t->types,
               "typedef %s %.*s_u __attribute__((vector_size(%lld), aligned(%lld), may_alias));\n",
               dtype_name(d), STR_ARG(s), (long long)n, (long long)dtype_size(d));
    return s;
}

static enum dtype int_of(i64 bytes, bool is_signed)
{
    switch (bytes) {
    case 1: return is_signed ? DT_I8 : DT_U8;
    case 2: return is_signed ? DT_I16 : DT_U16;
    case 4: return is_signed ? DT_I32 : DT_U32;
    default: assert(bytes == 8); return is_signed ? DT_I64 : DT_U64;
    }
}

struct str text_value_type(struct text *t, kval v)
{
    const struct kir_ins *x = kir_at(t->k, v);
    u8 mask = t->val[v].mask;
    if (x->role) return t->style->frag_type(t, x);
    if (mask) return text_type(t, int_of(mask, true), x->lanes);
    return text_type(t, text_dtype(t, v), t->style->has_vectors ? x->lanes : 1);
}

struct expansion {
    struct str name;
    enum dtype d, other;
    u32 lanes;
};

static void expand_repeat(struct text *t, struct buf *b, u32 n)
{
    for (u32 i = 0; i < n; i++) buf_z(b, i ? ", x" : "x");
}

static void expand_one(struct text *t, struct buf *b, char what, const struct expansion *x)
{
    i64 size = dtype_size(x->d); /* bytes */
    switch (what) {
    case 'F': buf_str(b, x->name); break;
    case 'V': buf_str(b, text_type(t, x->d, x->lanes)); break;
    case 'E': buf_str(b, text_type(t, x->d, 1)); break;
    case 'N': buf_printf(b, "%u", x->lanes); break;
    case 'I': buf_str(b, text_type(t, int_of(size, true), x->lanes)); break;
    case 'U': buf_str(b, text_type(t, int_of(size, false), x->lanes)); break;
    case 'i': buf_z(b, dtype_name(int_of(size, true))); break;
    case 'u': buf_z(b, dtype_name(int_of(size, false))); break;
    case 'e': buf_z(b, dtype_name(text_rep(x->d))); break;
    case 'W': buf_z(b, size == 8 ? "u64" : "u32"); break;
    case 'X': buf_str(b, text_type(t, x->other, x->lanes)); break;
    case 'x': buf_str(b, text_type(t, x->other, 1)); break;
    case 'm': buf_z(b, t->style->math), t->has_math = true; break;
    case 'f': buf_z(b, t->style->math_end[x->d == DT_F64]); break;
    case '0': buf_z(b, t->style->infinity[x->d == DT_F64]), t->has_math = true; break;
    case 's': buf_printf(b, "%lld", (long long)size * 8); break;
    case 'T': buf_printf(b, x->lanes > 1 ? "%sx%u" : "%s", dtype_name(x->d), x->lanes); break;
    case 'H': buf_str(b, text_type(t, DT_U16, x->lanes)); break;
    case 'B': buf_printf(b, "%lld", (long long)size * x->lanes); break;
    case 'b': buf_printf(b, "%lld", (long long)size * x->lanes * 8); break;
    case 'M': buf_z(b, x->lanes > 1 ? "" : "-"); break;
    case 'A': expand_repeat(t, b, x->lanes); break;
    default: unreachable();
    }
}

static void expand(struct text *t, struct buf *b, const char *text, const struct expansion *x)
{
    for (; *text; text++)
        if (*text == '$') expand_one(t, b, *++text, x);
        else buf_char(b, *text);
}

/* The first matching helper is used. */
static const struct text_helper *helper_find(const struct text_style *s, const char *name,
                                             enum dtype d)
{
    const struct text_helper *const table[] = {s->helper, text_helpers};
    for (i64 i = 0; i < countof(table); i++)
        for (const struct text_helper *h = table[i]; h && h->name; h++)
            if (str_is(str_of(h->name), name) && h->types >> d & 1) return h;
    return NULL;
}

/* A vector helper that applies the scalar one to every lane. */
static void helper_by_lane(struct text *t, struct buf *b, const struct text_helper *h,
                           const struct expansion *x)
{
    static const char *const args[] = {"", "$V x", "$V x, $V y", "$V x, $V y, $V z"};
    static const char *const calls[] = {"", "x[i]", "x[i], y[i]", "x[i], y[i], z[i]"};
    struct str one = text_helper(t, h->name, x->d, 1, x->other);
    assert(h->n_args < countof(args));
    buf_z(b, "$V $F(");
    buf_z(b, args[h->n_args]);
    buf_printf(
        b, ")\n{\n    $V r;\n    for (int i = 0; i < $N; i++) r[i] = %.*s(%s);\n    return r;\n}\n",
        STR_ARG(one), calls[h->n_args]);
}

static void lane_numbers(struct buf *b, u32 from, u32 to)
{
    for (u32 i = from; i < to; i++) buf_printf(b, i > from ? ", %u" : "%u", i);
}

/* Reduces all lanes to one. Halves are vectors of their own, because permutations within a vector
   go through memory; four lanes remain in one vector, because there are no smaller registers. */
static void helper_across(struct text *t, struct buf *b, const struct text_helper *h,
                          const struct expansion *x)
{
    u32 n = x->lanes / 2, keep = x->lanes > 4 ? n : x->lanes;
    struct str type = text_type(t, x->d, keep);
    buf_z(b, "$E $F($V v)\n{\n");
    if (x->lanes > 2) {
        buf_printf(b, "    %.*s a = __builtin_shufflevector(v, v, ", STR_ARG(type));
        lane_numbers(b, 0, keep);
        buf_printf(b, ");\n    const %.*s b = __builtin_shufflevector(v, v, ", STR_ARG(type));
        lane_numbers(b, n, 2 * n);
        if (keep > n) buf_z(b, ", "), lane_numbers(b, n, 2 * n);
        buf_printf(b, ");\n    for (int i = 0; i < %u; i++) {\n", keep);
        buf_printf(b, "        const $E x = a[i], y = b[i];\n        a[i] = %s;\n    }\n", h->across);
    }
    if (x->lanes > 4) {
        struct str rest = text_helper(t, h->name, x->d, n, x->other);
        buf_printf(b, "    return %.*s(a);\n}\n", STR_ARG(rest));
    } else {
        const char *from = x->lanes > 2 ? "a" : "v";
        buf_printf(b, "    const $E x = %s[0], y = %s[1];\n    return %s;\n}\n", from, from, h->across);
    }
}

struct str text_helper(struct text *t, const char *name, enum dtype d, u32 lanes, enum dtype other)
{
    struct str type =
        lanes > 1 ? text_fmt(t, "%sx%u", dtype_name(d), lanes) : str_of(dtype_name(d));
    struct expansion x = {.d = d, .other = other, .lanes = lanes};
    x.name = other ? text_fmt(t, "q_%s_%s_%.*s", name, dtype_name(other), STR_ARG(type))
                   : text_fmt(t, "q_%s_%.*s", name, STR_ARG(type));
    if (!text_first_use(t, x.name)) return x.name;
    const struct text_helper *h = helper_find(t->style, name, d);
    if (!h) {
        err_set(t->err, ERR_UNSUPPORTED, "no '%s' of %s in this language (kernel '%.*s')", name,
                dtype_name(d), STR_ARG(t->k->name));
        return x.name;
    }
    struct buf text = {0}, done = {0};
    struct str rest = str_of(h->needs), word;
    while (rest.n) {
        str_cut(rest, ' ', &word, &rest);
        text_helper(t, str_z(t->arena, word), x.d, x.lanes, x.other);
    }
    const char *def = lanes == 1 ? h->scalar : h->vector;
    if (def) buf_z(&text, def);
    else if (h->across) helper_across(t, &text, h, &x);
    else helper_by_lane(t, &text, h, &x);
    buf_z(&done, t->style->function);
    expand(t, &done, text.p ? text.p : "", &x);
    buf_str(&t->prelude, buf_view(&done));
    buf_release(&text);
    buf_release(&done);
    return x.name;
}
