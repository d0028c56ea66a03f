// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_tools.c: SPIRV-Tools as programs, at the user's request:
// spirv-opt by the target's flags, spirv-dis to inspect a module.
#include "lang/lang_spirv.h"
#include "lang/lang_tool.h"

static const char hint[] = "install spirv-tools";

bool spv_optimize(struct buf *module, double timeout, struct err *e)
{
    static const char *const argv[] = {"spirv-opt", "-O", "--preserve-bindings", "@in", "-o", "@out", NULL};
    struct buf out = {0};
    struct lang_tool t = {"spirv-opt", hint, timeout};
    struct lang_convert c = {argv, "in.spv", "out.spv", buf_view(module)};
    bool ok = lang_tool_convert(&out, &t, &c, e);
    buf_release(ok ? module : &out);
    if (ok) *module = out;
    return ok;
}

bool spv_disassemble(struct buf *out, struct str module, struct err *e)
{
    static const char *const argv[] = {"spirv-dis", "--no-color", "@in", NULL};
    struct lang_tool t = {"spirv-dis", hint, 60};
    struct lang_convert c = {argv, "in.spv", NULL, module};
    return lang_tool_convert(out, &t, &c, e);
}
