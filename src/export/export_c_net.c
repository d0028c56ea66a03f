// SPDX-License-Identifier: Apache-2.0
//
// export_c_net.c: a plan as a program in C: whether it can be one, identifiers, places of buffers in the arena and of weights in their file.
#include "export/export_c.h"

#include <string.h>

enum { WEIGHT_ALIGN = 16, MAX_ARENA = INT32_MAX }; /* indices have 32 bits */

const char *c_type(enum dtype d)
{
    static const char *const of[N_DTYPES] = {
        [DT_F32] = "float", [DT_F64] = "double", [DT_I8] = "int8_t", [DT_I16] = "int16_t", [DT_I32] = "int32_t", [DT_I64] = "int64_t",
        [DT_U8] = "uint8_t", [DT_U16] = "uint16_t", [DT_U32] = "uint32_t", [DT_U64] = "uint64_t",
        [DT_BOOL] = "uint8_t", [DT_F16] = "uint16_t", [DT_BF16] = "uint16_t",
    };
    const char *name = of[dtype_stored(d)];
    return name ? name : "uint8_t";
}

i64 c_size(const struct c_net *n, sym s)
{
    i64 v = 0;
    bool is_known = sym_eval(&n->p->sym, s, n->var, &v);
    assert(is_known), (void)is_known; /* checked by c_net_init */
    return v;
}

i64 c_io_count(const struct c_net *n, const struct plan_io *x)
{
    i64 count = 1;
    for (u32 d = 0; d < x->rank; d++) count *= c_size(n, x->dim[d]);
    return count;
}

/* What a program without a runtime cannot be. */

/* Variables that are fixed: "H = 9" is a fact. */
static void bind_sizes(struct c_net *n)
{
    const struct symtab *t = &n->p->sym;
    n->var = arena_array(n->a, i64, t->var.n + 1);
    for (u32 v = 0; v < t->var.n; v++) n->var[v] = INT64_MIN;
    for (u32 k = 0; k < t->fact.n; k++) {
        const struct sym_fact *f = &t->fact.v[k];
        i64 is;
        if (f->kind == FACT_EQUAL && sym_is_const(t, f->b, &is)) sym_solve(t, f->a, is, n->var);
        else if (f->kind == FACT_EQUAL && sym_is_const(t, f->a, &is)) sym_solve(t, f->b, is, n->var);
    }
}

static bool check_size(const struct c_net *n, sym s, const char *what, struct str name, struct err *e)
{
    const struct plan *p = n->p;
    i64 is;
    if (sym_eval(&p->sym, s, n->var, &is)) return true;
    struct buf b = {0};
    sym_print(&b, &p->sym, s);
    err_set(e, ERR_UNSUPPORTED, "a size of %s '%.*s' is %.*s: programs in C have fixed sizes (--assume NAME=SIZE)", what, STR_ARG(name), STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

static bool check_io(const struct c_net *n, const struct plan_io *x, const char *what, struct err *e)
{
    for (u32 d = 0; d < x->rank; d++)
        if (!check_size(n, x->dim[d], what, x->name, e)) return false;
    return true;
}

static bool check_dispatch(const struct c_net *n, const struct plan_dispatch *d, struct err *e)
{
    if (d->call)
        return err_set(e, ERR_UNSUPPORTED, "'%.*s' is a loop or branch whose course depends on data: not in programs in C", STR_ARG(d->label));
    bool ok = check_size(n, d->work, "kernel", d->label, e);
    for (u32 i = 0; i < d->n_param && ok; i++) ok = check_size(n, d->param[i], "kernel", d->label, e);
    for (u32 i = 0; i < 3 * d->n_grid && ok; i++) ok = check_size(n, d->grid[i / 3].extent[i % 3], "kernel", d->label, e);
    return ok;
}

static bool check_plan(const struct c_net *n, struct err *e)
{
    const struct plan *p = n->p;
    bool ok = true;
    if (p->made.n)
        return err_set(e, ERR_UNSUPPORTED, "size '%.*s' depends on data: programs in C have fixed sizes", STR_ARG(p->sym.var.v[p->made.v[0].var]));
    for (u32 k = 0; k < p->input.n && ok; k++) ok = check_io(n, &p->input.v[k], "input", e);
    for (u32 k = 0; k < p->output.n && ok; k++) ok = check_io(n, &p->output.v[k], "output", e);
    for (u32 k = 0; k < p->buf.n && ok; k++) {
        const struct plan_buf *b = &p->buf.v[k];
        ok = check_size(n, b->size, "value", b->name, e);
        if (ok && (b->kind == PB_HELD || b->kind == PB_STATE))
            ok = err_set(e, ERR_UNSUPPORTED, "'%.*s' is a cache in place: not in programs in C", STR_ARG(b->name));
    }
    for (u32 k = 0; k < p->dispatch.n && ok; k++) ok = check_dispatch(n, &p->dispatch.v[k], e);
    return ok;
}

/* Identifiers. */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_keyword(struct str s)
{
    static const char *const words[] = {
        "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if", "inline",
        "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
        "volatile", "while", "alignas", "alignof", "asm", "bool", "class", "constexpr", "delete", "explicit", "export", "false", "friend", "mutable",
        "namespace", "new", "nullptr", "operator", "private", "protected", "public", "static_assert", "template", "this", "thread_local", "throw", "true", "try",
        "typeid", "typename", "typeof", "using", "virtual", "catch", "decltype", "noexcept", "and", "or", "not", "xor", "main",
    };
    for (i64 i = 0; i < countof(words); i++)
        if (str_is(s, words[i])) return true;
    return false;
}

bool c_identifier_ok(struct str s)
{
    bool ok = s.n > 0 && s.n <= 40 && is_letter(s.p[0]) && s.p[0] != '_' && !is_keyword(s);
    for (i64 i = 0; i < s.n && ok; i++) ok = is_letter(s.p[i]) || is_digit(s.p[i]);
    return ok;
}

/* An identifier like the name, of no other in `taken`. */
static struct str identifier(struct c_net *n, struct map *taken, struct str name)
{
    enum { MOST = 40 };
    struct buf b = {0};
    for (i64 i = 0; i < name.n && i < MOST; i++) buf_char(&b, is_letter(name.p[i]) || is_digit(name.p[i]) ? name.p[i] : '_');
    struct str s = str_dup(n->a, buf_view(&b)), first;
    buf_release(&b);
    if (!s.n || !is_letter(s.p[0]) || s.p[0] == '_') s = str_fmt(n->a, "x%.*s", STR_ARG(s));
    if (is_keyword(s)) s = str_fmt(n->a, "%.*s_", STR_ARG(s));
    first = s;
    for (u32 k = 2; map_get(taken, s); k++) s = str_fmt(n->a, "%.*s_%u", STR_ARG(first), k);
    map_put(taken, s, 1);
    return s;
}

static struct str upper_of(struct arena *a, struct str s)
{
    struct buf b = {0};
    for (i64 i = 0; i < s.n; i++) buf_char(&b, s.p[i] >= 'a' && s.p[i] <= 'z' ? (char)(s.p[i] - 'a' + 'A') : s.p[i]);
    s = str_dup(a, buf_view(&b));
    buf_release(&b);
    return s;
}

/* Names differ in upper case, too: sizes are macros. */
static void name_io(struct c_net *n)
{
    const struct plan *p = n->p;
    struct map taken;
    map_init(&taken, n->a);
    n->in = arena_array(n->a, struct str, p->input.n + 1);
    n->out = arena_array(n->a, struct str, p->output.n + 1);
    for (u32 k = 0; k < p->input.n + p->output.n; k++) {
        bool is_in = k < p->input.n;
        struct str name = is_in ? p->input.v[k].name : p->output.v[k - p->input.n].name, s;
        do s = identifier(n, &taken, name); while (map_get(&taken, str_fmt(n->a, "%.*s ", STR_ARG(upper_of(n->a, s)))));
        map_put(&taken, str_fmt(n->a, "%.*s ", STR_ARG(upper_of(n->a, s))), 1);
        *(is_in ? &n->in[k] : &n->out[k - p->input.n]) = s;
    }
}

/* Buffers. */

static bool find_buffers(struct c_net *n, struct err *e)
{
    const struct plan *p = n->p;
    u32 n_weights = 0;
    n->buf = arena_array(n->a, struct c_buf, p->buf.n + 1);
    for (u32 i = 0; i < p->dispatch.n; i++)
        for (u32 k = 0; k < p->dispatch.v[i].n_buf; k++) n->buf[p->dispatch.v[i].buf[k]].is_used = true;
    for (u32 k = 0; k < p->buf.n; k++) {
        const struct plan_buf *b = &p->buf.v[k];
        struct c_buf *x = &n->buf[k];
        x->size = c_size(n, b->size);
        if (x->size < 0 || x->size > MAX_ARENA) return err_set(e, ERR_UNSUPPORTED, "'%.*s' has more than 2 GiB: not in programs in C", STR_ARG(b->name));
        if (b->kind != PB_CONST || !x->is_used) continue;
        x->name = str_fmt(n->a, "%.*s_w%u", STR_ARG(n->prefix), n_weights++);
        x->expr = x->name;
        if (!n->weights.n) continue;
        x->at = n->weight_bytes;
        x->expr = str_fmt(n->a, "(w + %lld)", (long long)x->at);
        n->weight_bytes += round_up(x->size, WEIGHT_ALIGN);
    }
    for (u32 k = 0; k < p->input.n; k++) n->buf[p->input.v[k].buf].expr = str_fmt(n->a, "in->%.*s", STR_ARG(n->in[k]));
    for (u32 k = 0; k < p->output.n; k++) n->buf[p->output.v[k].buf].expr = str_fmt(n->a, "out->%.*s", STR_ARG(n->out[k]));
    return true;
}

static bool place_buffers(struct c_net *n, struct err *e)
{
    const struct plan *p = n->p;
    struct arena tmp = {0};
    struct c_piece *v = arena_array(&tmp, struct c_piece, p->buf.n + p->dispatch.n + 1);
    i64 **at = arena_array(&tmp, i64 *, p->buf.n + p->dispatch.n + 1);
    n->work = arena_array(n->a, struct c_work, p->dispatch.n + 1);
    for (u32 k = 0; k < p->buf.n; k++) {
        const struct plan_buf *b = &p->buf.v[k];
        if (b->kind != PB_TEMP || !n->buf[k].is_used) continue;
        at[n->n_arena] = &n->buf[k].at;
        v[n->n_arena++] = (struct c_piece){.size = round_up(n->buf[k].size, C_ALIGN), .first = b->first, .last = b->last};
    }
    for (u32 i = 0; i < p->dispatch.n; i++) {
        i64 size = n->work[i].size = c_size(n, p->dispatch.v[i].work);
        if (size <= 0) continue;
        at[n->n_arena] = &n->work[i].at;
        v[n->n_arena++] = (struct c_piece){.size = round_up(size, C_ALIGN) * (n->has_threads ? n->caps.n_threads : 1), .first = i, .last = i};
    }
    bool ok = c_arena_place(v, n->n_arena, &n->arena, &tmp, e);
    if (ok && n->arena.bytes > MAX_ARENA) ok = err_set(e, ERR_UNSUPPORTED, "temporary memory of more than 2 GiB: not in programs in C");
    for (u32 k = 0; k < n->n_arena && ok; k++) *at[k] = v[k].at;
    for (u32 k = 0; k < p->buf.n && ok; k++)
        if (p->buf.v[k].kind == PB_TEMP) n->buf[k].expr = str_fmt(n->a, "(m + %lld)", (long long)n->buf[k].at);
    arena_release(&tmp);
    return ok;
}

bool c_net_init(struct c_net *n, struct err *e)
{
    bind_sizes(n);
    if (!check_plan(n, e)) return false;
    n->upper = upper_of(n->a, n->prefix);
    name_io(n);
    return find_buffers(n, e) && place_buffers(n, e);
}
