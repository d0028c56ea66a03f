// SPDX-License-Identifier: Apache-2.0
//
// A call of one operator as the text of a graph with one node. It contains everything that the
// call's program depends on: operator, attributes, types, and sizes, by name if they may change.
#include "model/model.h"

#include <string.h>

bool model_call_attributes(struct call_op *op, struct arena *a, struct err *e)
{
    if (!op_find(op->name)) return err_set(e, ERR_UNSUPPORTED, "no such operator (`quern operators` lists them)");
    struct arena scratch = {0};
    struct buf text = {0}, attrs = {0};
    struct symtab st;
    struct graph g;
    symtab_init(&st, &scratch);
    graph_init(&g, &scratch, &st);
    buf_printf(&text, "graph { _ = %.*s()", STR_ARG(op->name));
    if (op->attrs.n) buf_printf(&text, " {%.*s}", STR_ARG(op->attrs));
    buf_z(&text, " }");
    struct err parsed = {0};
    bool ok = graph_parse(&g, &scratch, &st, buf_view(&text), &parsed) && g.node.n == 2;
    if (!ok) err_set(e, ERR_INPUT, "attributes '%.*s' are not of the form 'name=value, ...' (doc/graph-ir.md)", STR_ARG(op->attrs));
    ok = ok && op_check_attributes(&g, 1, e);
    if (ok) node_print_attrs(&attrs, &g, 1), op->attrs = str_dup(a, buf_view(&attrs));
    buf_release(&text);
    buf_release(&attrs);
    arena_release(&scratch);
    return ok;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_size_name(struct str s)
{
    bool ok = s.n > 0 && !is_digit(s.p[0]);
    for (i64 i = 0; i < s.n && ok; i++) ok = is_letter(s.p[i]) || is_digit(s.p[i]);
    return ok;
}

/* An expression over names, "H+4": its value is checked when the program runs. */
static bool is_expression(struct str s)
{
    bool ok = s.n > 0;
    for (i64 i = 0; i < s.n && ok; i++) ok = is_letter(s.p[i]) || is_digit(s.p[i]) || (s.p[i] && strchr("+-*/%() ", s.p[i]));
    return ok;
}

bool model_call_sizes(struct call_op *op, struct arena *a, const char *text, struct err *e)
{
    struct str rest = str_of(text), one, axis;
    while (rest.n) {
        if (op->n_sizes == CALL_MAX_ARRAYS) return err_set(e, ERR_USAGE, "sizes of more than %d inputs", CALL_MAX_ARRAYS);
        str_cut(rest, ',', &one, &rest);
        u32 k = op->n_sizes++;
        for (one = str_trim(one); one.n;) {
            u32 d = op->sizes[k].rank++;
            if (d == MAX_RANK) return err_set(e, ERR_USAGE, "more than %d sizes of input %u", MAX_RANK, k);
            str_cut(one, ':', &axis, &one);
            axis = str_trim(axis);
            bool is_fixed = str_is(axis, "?");
            if (!is_fixed && !is_expression(axis))
                return err_set(e, ERR_USAGE, "size '%.*s' of input %u is neither '?' nor a name or an expression of names",
                               STR_ARG(axis), k);
            op->sizes[k].size[d] = is_fixed ? (struct str){0} : str_dup(a, axis);
        }
    }
    return true;
}

/* A name has one value throughout a call. */
static bool print_name(struct call_text *c, struct str name, u32 k, u32 d, i64 is, struct err *e)
{
    u32 i = 0;
    buf_str(&c->text, name);
    if (!is_size_name(name)) return true;
    while (i < c->n_sizes && !str_eq(c->size[i].name, name)) i++;
    if (i == CALL_MAX_NAMES) return err_set(e, ERR_USAGE, "more than %d names of sizes", CALL_MAX_NAMES);
    if (i < c->n_sizes && c->size[i].is != is)
        return err_set(e, ERR_INPUT, "input %u has size %lld on axis %u, expected %lld ('%.*s')", k, (long long)is, d,
                       (long long)c->size[i].is, STR_ARG(name));
    if (i == c->n_sizes) {
        buf_printf(&c->sizes, "%s%.*s:%lld", i ? "," : "", STR_ARG(name), (long long)is);
        c->size[c->n_sizes].name = name, c->size[c->n_sizes++].is = is;
    }
    return true;
}

static bool print_input(struct call_text *c, const struct call_op *op, const struct call_array *x, u32 k, struct err *e)
{
    bool named = k < op->n_sizes && op->sizes[k].rank > 0;
    if (named && op->sizes[k].rank != x->rank)
        return err_set(e, ERR_INPUT, "input %u has rank %u, expected %u", k, x->rank, op->sizes[k].rank);
    buf_printf(&c->text, "  input %%i%u: %s[", k, dtype_name(x->dtype));
    for (u32 d = 0; d < x->rank; d++) {
        if (d) buf_char(&c->text, ',');
        if (!named || !op->sizes[k].size[d].n) buf_printf(&c->text, "%lld", (long long)x->dim[d]);
        else if (!print_name(c, op->sizes[k].size[d], k, d, x->dim[d], e)) return false;
    }
    buf_z(&c->text, "]\n");
    return true;
}

bool model_call_print(struct call_text *c, const struct call_op *op, const struct call_array *in, u32 n_in, const struct call_outputs *out, struct err *e)
{
    struct buf *b = &c->text;
    assert(n_in <= CALL_MAX_ARRAYS && out->n >= 1 && out->n <= CALL_MAX_ARRAYS);
    buf_z(b, "graph {\n");
    for (u32 k = 0; k < n_in; k++)
        if (in[k].dtype && !print_input(c, op, &in[k], k, e)) return false;
    for (u32 k = 0; k < out->n; k++) {
        buf_z(b, k ? ", " : "  ");
        if (out->is_omitted[k]) buf_char(b, '_');
        else buf_printf(b, "%%o%u: none[?]", k);
    }
    buf_printf(b, " = %.*s(", STR_ARG(op->name));
    for (u32 k = 0; k < n_in; k++) {
        if (k) buf_z(b, ", ");
        if (in[k].dtype) buf_printf(b, "%%i%u", k);
        else buf_char(b, '_');
    }
    buf_char(b, ')');
    if (op->attrs.n) buf_printf(b, " {%.*s}", STR_ARG(op->attrs));
    for (u32 k = 0; k < out->n; k++)
        if (!out->is_omitted[k]) buf_printf(b, "\n  output %%o%u", k);
    buf_z(b, "\n}\n");
    return true;
}

void call_text_release(struct call_text *c)
{
    buf_release(&c->text);
    buf_release(&c->sizes);
}
