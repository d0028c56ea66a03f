// SPDX-License-Identifier: Apache-2.0
//
// Problems of a model, for people: what an error says about a node without the words that name the node, and what would help. The
// advice goes by what the reason is about; reasons are written in many places, so the words that tell them apart stand here once.
#include "import/import.h"

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
    {"as of opset", "convert the model to opset 13 or newer (onnx.version_converter)"},
    {"opset", "export with an opset from 7 to 28"},
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
};

/* Where a word begins in a text; -1: nowhere. */
static i64 find(struct str s, struct str word)
{
    for (i64 k = 0; k + word.n <= s.n; k++)
        if (str_starts(str_sub(s, k, s.n), word)) return k;
    return -1;
}

static struct str advise(struct str why)
{
    for (i64 k = 0; k < countof(advice); k++)
        if (find(why, str_of(advice[k].about)) >= 0) return str_of(advice[k].help);
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

void import_note(struct import_problems *all, struct arena *a, struct str op, struct str node, struct err *e)
{
    struct import_problem *p = arr_push(a, all);
    struct str why = without_node(a, str_of(e->msg), op, node);
    const struct str refused = S("operator is not supported: "); /* what follows says what helps */
    *p = (struct import_problem){.op = str_dup(a, op), .node = str_dup(a, node), .why = str_dup(a, why)};
    p->help = str_starts(p->why, refused) ? str_sub(p->why, refused.n, p->why.n) : advise(p->why);
    if (str_starts(p->why, refused)) p->why = str_sub(p->why, 0, refused.n - 2);
    *e = (struct err){0};
}
