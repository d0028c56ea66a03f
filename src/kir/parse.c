// SPDX-License-Identifier: Apache-2.0
//
// parse.c: reads the text that text.c prints (grammar: doc/kernel-ir.md).
// Instructions are appended exactly as written, without the builder's folding, so
// that printing yields the same text again. The text is untrusted: the parser
// itself checks words and names only, kir_verify at the end checks everything else.
//
// Sticky: after the first error every step has no effect.
#include "kir/kir.h"

struct parser {
    struct kir *k;
    struct err *e;
    const char *p, *end;
    u32 line;
    struct map value; /* text number -> kval */
    struct map buf;   /* name -> kval */
    bool failed;
};

static bool fail(struct parser *s, const char *what, struct str word)
{
    if (!s->failed)
        err_set(s->e, ERR_INPUT, "kernel text, line %u: %s '%.*s'", s->line, what,
                (int)i64_min(word.n, 80), word.p);
    s->failed = true;
    return false;
}

/* Words. */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_number(char c) { return is_letter(c) || c == '-' || c == '+' || c == '.'; }

static bool is_digit(char c) { return (c >= '0' && c <= '9') || c == '-'; }

static void skip_space(struct parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r')) s->p++;
    if (s->p < s->end && *s->p == '#')
        while (s->p < s->end && *s->p != '\n') s->p++;
}

static struct str take(struct parser *s, bool (*is)(char))
{
    skip_space(s);
    const char *from = s->p;
    while (s->p < s->end && is(*s->p)) s->p++;
    return (struct str){from, s->p - from};
}

static struct str rest(const struct parser *s)
{
    const char *q = s->p;
    while (q < s->end && *q != '\n') q++;
    return (struct str){s->p, q - s->p};
}

static bool accept(struct parser *s, const char *z)
{
    skip_space(s);
    struct str w = str_of(z);
    if (s->failed || !str_starts((struct str){s->p, s->end - s->p}, w)) return false;
    bool is_word = is_letter(z[0]);
    if (is_word && s->p + w.n < s->end && is_letter(s->p[w.n])) return false;
    s->p += w.n;
    return true;
}

static void expect(struct parser *s, const char *z)
{
    if (s->failed || accept(s, z)) return;
    fail(s, "syntax error before", rest(s));
}

static void skip_lines(struct parser *s)
{
    for (skip_space(s); s->p < s->end && *s->p == '\n'; skip_space(s)) {
        s->line++;
        s->p++;
    }
}

static void end_line(struct parser *s)
{
    skip_space(s);
    if (!s->failed && s->p < s->end && *s->p != '\n') fail(s, "unexpected", rest(s));
    skip_lines(s);
}

static i64 number(struct parser *s)
{
    struct str w = take(s, is_digit);
    i64 v = 0;
    if (!s->failed && !str_to_i64(w, &v)) fail(s, "bad number", w.n ? w : rest(s));
    return v;
}

/* "f32x8" */
static bool type_of(struct str w, struct kir_ins *x)
{
    struct str head = w, tail;
    i64 n = 1;
    if (str_cut(w, 'x', &head, &tail) && !str_to_i64(tail, &n)) return false;
    x->dtype = (u8)dtype_parse_operand(head);
    x->lanes = (u8)n;
    return x->dtype != DT_NONE && n >= 1 && n <= 64;
}

/* "f16_a16x8": the part after '_' */
static bool frag_shape(struct str w, struct kir_ins *x)
{
    struct str rows, cols;
    i64 m, n;
    for (int r = KR_A; r <= KR_ACC; r++) {
        struct str name = str_of(kir_role_name(r));
        if (!str_starts(w, name) || !str_cut(str_sub(w, name.n, w.n), 'x', &rows, &cols)) continue;
        if (!str_to_i64(rows, &m) || !str_to_i64(cols, &n)) continue;
        x->role = (u8)r;
        x->rows = (u32)m & 0xfff;
        x->cols = (u32)n & 0xfff;
        return m > 0 && n > 0 && m <= 0xfff && n <= 0xfff; /* maximal number */
    }
    return false;
}

static void type(struct parser *s, struct kir_ins *x)
{
    struct str w = take(s, is_letter), head = w, tail;
    bool is_frag = str_cut(w, '_', &head, &tail);
    if (!type_of(head, x) || (is_frag && !frag_shape(tail, x)))
        fail(s, "bad type", w.n ? w : rest(s));
}

/* Values. */

static kval push(struct parser *s, struct kir_ins x) { return s->failed ? 0 : kir_push(s->k, x); }

static kval named_value(struct parser *s)
{
    struct str w = take(s, is_letter);
    u64 *v = map_get(&s->value, w);
    if (v) return (kval)*v;
    fail(s, "unknown value", w);
    return 0;
}

static kval constant(struct parser *s, struct kir_ins x)
{
    x.op = KI_CONST;
    struct str w = take(s, is_number);
    double f = 0;
    i64 i = 0;
    bool is_float = dtype_is_float(x.dtype);
    if (is_float ? !str_to_f64(w, &f) : !str_to_i64(w, &i))
        fail(s, "bad number", w.n ? w : rest(s));
    else if (is_float) x.imm.f = kir_round(x.dtype, f);
    else x.imm.i = i;
    return push(s, x);
}

static kval word_value(struct parser *s)
{
    struct str w = take(s, is_letter);
    struct kir_ins x = {.op = KI_PARAM, .dtype = DT_I64, .lanes = 1};
    if (str_starts(w, S("p")) && str_to_i64(str_sub(w, 1, w.n), &x.imm.i)) return push(s, x);
    if (!type_of(w, &x)) {
        fail(s, "unknown value", w.n ? w : rest(s));
        return 0;
    }
    expect(s, "(");
    kval v = constant(s, x);
    expect(s, ")");
    return v;
}

static kval value(struct parser *s)
{
    skip_space(s);
    if (s->failed) return 0;
    if (accept(s, "%")) return named_value(s);
    if (s->p < s->end && is_digit(*s->p))
        return push(
            s, (struct kir_ins){.op = KI_CONST, .dtype = DT_I64, .lanes = 1, .imm.i = number(s)});
    return word_value(s);
}

/* "x[%5]", "%3[0]" */
static void access_to(struct parser *s, struct kir_ins *x)
{
    if (accept(s, "%")) {
        x->a = named_value(s);
    } else {
        struct str w = take(s, is_letter);
        u64 *v = map_get(&s->buf, w);
        if (!v) fail(s, "unknown buffer", w.n ? w : rest(s));
        x->a = v ? (kval)*v : 0;
    }
    expect(s, "[");
    x->b = value(s);
    expect(s, "]");
}

static kval first(struct parser *s) { return accept(s, "first") ? value(s) : 0; }

static void pitch(struct parser *s, struct kir_ins *x, kval *n)
{
    expect(s, "pitch");
    *n = value(s);
    x->aux = accept(s, "columns") ? KF_COLUMNS : accept(s, "groups") ? KF_GROUPS : KF_ROWS;
}

/* "%5", a new value: its number. */
static struct str fresh(struct parser *s)
{
    expect(s, "%");
    struct str w = take(s, is_letter);
    if (!s->failed && (!w.n || map_get(&s->value, w))) fail(s, "not a fresh value", w);
    return w;
}

static void define(struct parser *s, struct str w, struct kir_ins x)
{
    kval v = push(s, x);
    if (v) map_put(&s->value, w, v);
}

/* Lines. */

static enum kir_op find_op(struct str w)
{
    for (int op = 1; op < N_KIR_OPS; op++)
        if (str_is(w, kir_op_info(op)->name)) return op;
    return KI_NONE;
}

static void operands(struct parser *s, struct kir_ins *x)
{
    kval v[4] = {0};
    u32 n = kir_op_info(x->op)->n_args;
    for (u32 i = 0; i < n && !s->failed; i++) {
        if (i) expect(s, ",");
        v[i] = value(s);
    }
    x->a = v[0];
    x->b = v[1];
    x->c = v[2];
    if (!kir_has_imm(x->op)) return;
    if (n) expect(s, ",");
    x->imm.i = number(s);
}

static void line_pure(struct parser *s)
{
    struct kir_ins x = {.dtype = DT_I64, .lanes = 1};
    struct str id = fresh(s);
    if (accept(s, ":")) type(s, &x);
    expect(s, "=");
    struct str w = take(s, is_letter);
    x.op = (u8)find_op(w);
    bool is_pure = kir_op_info(x.op)->cls == 'P' && x.op != KI_CONST && x.op != KI_PARAM;
    if (!is_pure && x.op != KI_LOAD && x.op != KI_FLOAD) {
        fail(s, "unknown operator", w.n ? w : rest(s));
    } else if (is_pure) {
        operands(s, &x);
    } else {
        access_to(s, &x);
        if (x.op == KI_LOAD) x.c = first(s);
        else pitch(s, &x, &x.c);
        if (x.op == KI_FLOAD && accept(s, "panels")) x.d = value(s);
    }
    define(s, id, x);
}

static void line_store(struct parser *s, enum kir_op op, enum kir_way way)
{
    struct kir_ins x = {.op = op, .aux = (u8)way};
    access_to(s, &x);
    expect(s, "=");
    x.c = value(s);
    if (op == KI_FSTORE) pitch(s, &x, &x.d);
    else if (way != KW_COPY) x.d = first(s);
    push(s, x);
}

static void line_prefetch(struct parser *s)
{
    struct kir_ins x = {.op = KI_PREFETCH};
    access_to(s, &x);
    if (accept(s, "second")) x.aux = KC_SECOND;
    push(s, x);
}

/* "tile %3[0] = m0[%4, 64]" */
static void line_tile(struct parser *s)
{
    struct kir_ins x = {.op = KI_TILE};
    access_to(s, &x);
    expect(s, "=");
    struct str w = take(s, is_letter);
    if (!str_starts(w, S("m")) || !str_to_i64(str_sub(w, 1, w.n), &x.imm.i)) fail(s, "unknown matrix", w.n ? w : rest(s));
    expect(s, "[");
    x.c = value(s);
    expect(s, ",");
    x.d = value(s);
    expect(s, "]");
    push(s, x);
}

static void line_alloc(struct parser *s, enum kir_space space)
{
    struct kir_ins x = {.op = KI_ALLOC, .aux = (u8)space};
    struct str id = fresh(s);
    expect(s, ":");
    type(s, &x);
    expect(s, "[");
    x.a = value(s);
    expect(s, "]");
    x.imm.i = accept(s, "swizzled");
    define(s, id, x);
}

static void line_grid(struct parser *s)
{
    struct kir_ins x = {.op = KI_GRID, .dtype = DT_I64, .lanes = 1};
    struct str id = fresh(s);
    expect(s, "=");
    x.a = value(s);
    define(s, id, x);
}

static void line_loop(struct parser *s)
{
    struct kir_ins x = {.op = KI_LOOP, .dtype = DT_I64, .lanes = 1};
    for (int l = KL_UNROLL; l <= KL_VECTOR; l++)
        if (accept(s, kir_loop_name(l))) x.aux = (u8)l;
    struct str id = fresh(s);
    expect(s, "=");
    x.a = value(s);
    expect(s, "..");
    x.b = value(s);
    if (accept(s, "step")) x.c = value(s);
    else x.c = push(s, (struct kir_ins){.op = KI_CONST, .dtype = DT_I64, .lanes = 1, .imm.i = 1});
    define(s, id, x);
}

static void line(struct parser *s)
{
    for (int i = KS_REG; i <= KS_TEMP; i++)
        if (accept(s, kir_space_name(i))) {
            line_alloc(s, i);
            return;
        }
    for (int i = KW_PLAIN; i <= KW_STREAM; i++)
        if (accept(s, kir_way_name(i))) {
            line_store(s, KI_STORE, i);
            return;
        }
    if (accept(s, "fstore")) line_store(s, KI_FSTORE, KW_PLAIN);
    else if (accept(s, "prefetch")) line_prefetch(s);
    else if (accept(s, "tile")) line_tile(s);
    else if (accept(s, "grid")) line_grid(s);
    else if (accept(s, "loop")) line_loop(s);
    else if (accept(s, "if")) push(s, (struct kir_ins){.op = KI_IF, .a = value(s)});
    else if (accept(s, "else")) push(s, (struct kir_ins){.op = KI_ELSE});
    else if (accept(s, "end")) push(s, (struct kir_ins){.op = KI_END});
    else if (accept(s, "barrier")) push(s, (struct kir_ins){.op = KI_BARRIER});
    else if (accept(s, "await")) push(s, (struct kir_ins){.op = KI_AWAIT, .imm.i = number(s)});
    else line_pure(s);
}

/* The header. */

static void buffer(struct parser *s)
{
    struct str name = take(s, is_letter);
    struct kir_ins x = {0};
    int access = -1;
    expect(s, ":");
    for (int i = KA_IN; i <= KA_INOUT; i++)
        if (accept(s, kir_access_name(i))) access = i;
    type(s, &x);
    if (!s->failed && (access < 0 || x.lanes != 1 || map_get(&s->buf, name)))
        fail(s, "bad buffer", name);
    if (!s->failed) map_put(&s->buf, name, kir_buf(s->k, name, x.dtype, access));
}

static void param(struct parser *s)
{
    struct str name = take(s, is_letter);
    i64 n;
    if (!str_starts(name, S("p")) || !str_to_i64(str_sub(name, 1, name.n), &n) ||
        n != s->k->param.n)
        fail(s, "bad parameter", name);
    expect(s, "=");
    expect(s, "\"");
    const char *from = s->p;
    while (s->p < s->end && *s->p != '"' && *s->p != '\n') s->p++;
    struct str text = {from, s->p - from};
    expect(s, "\"");
    if (!s->failed) *arr_push(s->k->arena, &s->k->param) = str_dup(s->k->arena, text);
}

static void header(struct parser *s)
{
    while (!s->failed && !accept(s, ";") && !accept(s, ")")) {
        if (s->k->buf.n) expect(s, ",");
        buffer(s);
    }
    if (s->failed || s->p[-1] == ')') return;
    while (!s->failed && !accept(s, ")")) {
        if (s->k->param.n) expect(s, ",");
        param(s);
    }
}

/* "x 100 64 pitch 64 box 16 8" */
static void map(struct parser *s)
{
    struct str w = take(s, is_letter);
    u64 *v = map_get(&s->buf, w);
    if (!v) fail(s, "unknown buffer", w.n ? w : rest(s));
    struct kir_map m = {.buf = v ? (u32)kir_at(s->k, (kval)*v)->imm.i : 0};
    m.rows = number(s), m.cols = number(s);
    expect(s, "pitch");
    m.pitch = number(s);
    expect(s, "box");
    i64 rows = number(s), cols = number(s);
    if (!s->failed && (rows < 1 || rows > KIR_MAX_SIDE || cols < 1 || cols > KIR_MAX_SIDE)) fail(s, "invalid box before", rest(s));
    m.box_rows = (u32)rows, m.box_cols = (u32)cols;
    if (!s->failed) *arr_push(s->k->arena, &s->k->map) = m;
    end_line(s);
}

static void group(struct parser *s)
{
    for (u32 i = 0; i < 3; i++) {
        i64 n = number(s);
        if (!s->failed && (n < 1 || n > 1 << 16)) fail(s, "invalid workgroup size before", rest(s));
        s->k->group[i] = (u32)n;
    }
    if (accept(s, "subgroup")) {
        i64 n = number(s);
        if (!s->failed && (n < 1 || n > 128)) fail(s, "invalid subgroup before", rest(s));
        s->k->subgroup = (u32)n;
    }
    if (accept(s, "warpgroup") || accept(s, "team")) { /* the second in texts of earlier versions */
        i64 n = number(s);
        if (!s->failed && (n < 1 || n > 8)) fail(s, "invalid warpgroup before", rest(s));
        s->k->warpgroup = (u32)n;
    }
    end_line(s);
}

static void rounding(struct parser *s)
{
    expect(s, "as");
    expect(s, "written");
    s->k->as_written = true;
    end_line(s);
}

bool kir_parse(struct kir *k, struct arena *a, struct str text, struct err *e)
{
    struct parser s = {.k = k, .e = e, .p = text.p, .end = text.p + text.n, .line = 1};
    kir_init(k, a, S("none"));
    if (text.n > 1 << 30) return err_set(e, ERR_INPUT, "kernel text too long");
    map_init(&s.value, a);
    map_init(&s.buf, a);
    skip_lines(&s);
    expect(&s, "kernel");
    k->name = str_dup(a, take(&s, is_letter));
    expect(&s, "(");
    header(&s);
    end_line(&s);
    while (accept(&s, "map")) map(&s);
    if (accept(&s, "rounds")) rounding(&s);
    if (accept(&s, "group")) group(&s);
    while (!s.failed && s.p < s.end) {
        line(&s);
        end_line(&s);
    }
    return !s.failed && kir_verify(k, e);
}
