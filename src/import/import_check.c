// SPDX-License-Identifier: Apache-2.0
//
// Problems of a model, for users: the message of an error about a node without the words that name
// the node, and advice. The advice depends on the kind of reason; since reasons are reported in
// many places, the words that identify them are collected here.
#include <string.h>

#include "import/import.h"
#include "op/op.h"

bool import_replaces(struct str op)
{
    static const char *const own[] = {
#define X(name) name,
#include "import/onnx_own.inc"
#undef X
    };
    for (i64 k = 0; k < countof(own); k++)
        if (str_is(op, own[k])) return true;
    return import_is_sequence_op(op) || import_is_control_op(op);
}

static const struct { const char *about, *help; } advice[] = {
    {"operator is not supported", "export it decomposed into ONNX's own operators (another opset or exporter option), or as a function of the model"},
    {"opset", "export with an opset from 1 to 28"},
    {"only known at run time", "export with this input fixed, or fold constants first (onnxsim, onnxruntime's offline optimizer)"},
    {"is not constant", "export with this input fixed, or fold constants first (onnxsim, onnxruntime's offline optimizer)"},
    {"element type", "convert the tensor to a type that quern has (quern operators lists them)"},
    {"of type", "put a Cast in front of the node, or export the model in f32"},
    {"types", "put Casts in front of the node so that all inputs have one type"},
    {"rank", "merge or drop axes in front of the node"},
    {"symbolic", "give the size a value when exporting, or by --set"},
    {"do not fit", "check the model by onnx.checker and onnx.shape_inference"},
    {"does not fit", "check the model by onnx.checker and onnx.shape_inference"},
    {"attribute", "change the attribute when exporting"},
    {"", "check the model by onnx.checker and onnx.shape_inference"}, /* for invalid input */
};

/* Position of a word in a text; -1: not found. */
static i64 find(struct str s, struct str word)
{
    for (i64 k = 0; k + word.n <= s.n; k++)
        if (str_starts(str_sub(s, k, s.n), word)) return k;
    return -1;
}

/* Advice for a reason; empty: none, or the message contains it. */
static struct str advise(struct str why, enum err_code code)
{
    if ((code != ERR_UNSUPPORTED && code != ERR_INPUT) || find(why, S(";")) >= 0 || find(why, S("--")) >= 0) return (struct str){0};
    for (i64 k = 0; k < countof(advice); k++)
        if ((advice[k].about[0] || code == ERR_INPUT) && find(why, str_of(advice[k].about)) >= 0) return str_of(advice[k].help);
    return (struct str){0};
}

/* The message without "Conv 'conv_1': " in front, or "operator 'Conv', node 'conv_1': ". */
static struct str without_node(struct arena *a, struct str msg, struct str op, struct str node)
{
    struct str forms[2] = {str_fmt(a, "%.*s '%.*s': ", STR_ARG(op), STR_ARG(node)),
                           str_fmt(a, "operator '%.*s', node '%.*s'", STR_ARG(op), STR_ARG(node))};
    for (u32 k = 0; k < 2; k++) {
        i64 at = find(msg, forms[k]);
        if (at == 0) msg = str_sub(msg, forms[k].n, msg.n);
        else if (at > 2 && at + forms[k].n == msg.n) msg = str_sub(msg, 0, at - 2);
    }
    return str_starts(msg, S(": ")) ? str_sub(msg, 2, msg.n) : msg;
}

/* Removes "; the advice", appended by import_advise. */
static struct str without_advice(struct str msg, struct str *help)
{
    for (i64 k = 0; k < countof(advice); k++) {
        struct str end = str_of(advice[k].help);
        i64 at = msg.n - end.n - 2;
        if (!str_ends(msg, end) || at < 1 || msg.p[at] != ';') continue;
        *help = end;
        return str_sub(msg, 0, at);
    }
    return msg;
}

/* "'net.onnx': Conv 'conv_1': why" -> why; without a node only the file is removed. */
static struct str split_node(struct str msg, struct str *op, struct str *node)
{
    struct str end = S("': "), quote = S(" '");
    while (str_starts(msg, S("'")) && find(msg, end) > 0) msg = str_sub(msg, find(msg, end) + end.n, msg.n);
    i64 from = find(msg, quote), to = find(msg, end);
    if (from < 1 || to < from || find(str_sub(msg, 0, from), S(" ")) >= 0) return msg;
    *op = str_sub(msg, 0, from);
    *node = str_sub(msg, from + quote.n, to);
    return str_sub(msg, to + end.n, msg.n);
}

void import_note(struct import_problems *all, struct arena *a, struct str op, struct str node, struct err *e)
{
    struct import_problem *p = arr_push(a, all);
    const struct str refused = S("operator is not supported: "); /* the rest is advice */
    struct str help = {0}, why = without_advice(str_of(e->msg), &help);
    why = op.n ? without_node(a, why, op, node) : split_node(why, &op, &node);
    *p = (struct import_problem){.op = str_dup(a, op), .node = str_dup(a, node), .why = str_dup(a, why), .help = help};
    if (str_starts(p->why, refused)) {
        p->help = str_sub(p->why, refused.n, p->why.n);
        p->why = str_sub(p->why, 0, refused.n - 2);
    } else if (!help.n) {
        p->help = advise(p->why, e->code);
    }
    *e = (struct err){0};
}

/* Appends text to the message. */
static bool err_append(struct err *e, const char *sep, struct str text)
{
    struct err old = *e;
    *e = (struct err){0};
    return err_set(e, old.code, "%s%s%.*s", old.msg, sep, STR_ARG(text));
}

bool import_blame_inputs(struct graph *g, node_id n, struct err *e)
{
    enum { MAX_SHOWN = 6 };
    const struct node *x = graph_node(g, n);
    if (e->code == ERR_NONE || e->code == ERR_SYSTEM || strchr(e->msg, '[')) return false;
    struct buf b = {0};
    buf_z(&b, " (inputs");
    for (u32 k = 0; k < x->in.n && k < MAX_SHOWN; k++) {
        const struct value *v = x->in.v[k] ? graph_value(g, x->in.v[k]) : NULL;
        if (!v || !v->shape.known || v->dtype == DT_NONE) buf_z(&b, " -");
        else buf_printf(&b, " %s%.*s", dtype_name(v->dtype), STR_ARG(op_shape_text(g, &v->shape)));
    }
    buf_z(&b, x->in.n > MAX_SHOWN ? " ...)" : ")");
    if (x->in.n) err_append(e, "", buf_view(&b));
    buf_release(&b);
    return false;
}

bool import_advise(struct err *e)
{
    struct str why = str_of(e->msg), help = find(why, S("operator is not supported: ")) >= 0 ? S("") : advise(why, e->code);
    if (help.n) err_append(e, "; ", help);
    return false;
}
