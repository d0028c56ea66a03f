// SPDX-License-Identifier: Apache-2.0
//
// lang_spirv_debug.c: debug information of a module: names of arrays and values, and
// lines of the kernel's text, which is part of the module. With "nonsemantic", lines
// and functions are in NonSemantic.Shader.DebugInfo.100, which survives optimisation
// better than OpLine. All of it is optional and changes no instruction.
#include "lang/lang_spirv.h"

/* Instructions of NonSemantic.Shader.DebugInfo.100. */
enum {
    DEBUG_COMPILATION_UNIT = 1,
    DEBUG_TYPE_FUNCTION = 8,
    DEBUG_FUNCTION = 20,
    DEBUG_SCOPE = 23,
    DEBUG_SOURCE = 35,
    DEBUG_FUNCTION_DEFINITION = 101,
    DEBUG_LINE = 103,
};

bool spv_has_flag(const struct caps *c, const char *word)
{
    struct str rest = str_of(c->spirv_flags), w;
    while (rest.n) {
        str_cut(rest, ' ', &w, &rest);
        if (str_is(w, word)) return true;
    }
    return false;
}

static u32 string(struct spv *s, struct str text)
{
    u32 id = spv_id(s);
    spv_put_text(&s->strings, SPV_STRING, &id, 1, text, NULL, 0);
    return id;
}

/* An instruction of the set; outside of functions it is among the types. */
static u32 say(struct spv *s, struct buf *to, u32 number, const u32 *arg, u32 n)
{
    u32 w[16] = {spv_type(s, SPV_TYPE_VOID, NULL, 0), spv_id(s), s->debug_set, number};
    assert(n + 4 <= countof(w));
    for (u32 i = 0; i < n; i++) w[4 + i] = arg[i];
    spv_put(to, SPV_EXT_INST, w, 4 + n);
    return w[1];
}

#define SAY(s, to, number, ...)                                                                    \
    say((s), (to), (number), (const u32[]){__VA_ARGS__}, (u32)countof(((const u32[]){__VA_ARGS__})))

static void declare_source(struct spv *s, struct str text)
{
    enum { INFO_VERSION = 100, DWARF_VERSION = 4, UNKNOWN_LANGUAGE = 0 };
    s->debug_set = spv_id(s);
    if (s->version < 16) spv_extension(s, "SPV_KHR_non_semantic_info");
    s->debug_source = SAY(s, &s->globals, DEBUG_SOURCE, s->file, string(s, text));
    u32 version = spv_u32(s, INFO_VERSION), dwarf = spv_u32(s, DWARF_VERSION),
        language = spv_u32(s, UNKNOWN_LANGUAGE);
    s->debug_unit =
        SAY(s, &s->globals, DEBUG_COMPILATION_UNIT, version, dwarf, s->debug_source, language);
}

void spv_debug_open(struct spv *s)
{
    enum { UNKNOWN_LANGUAGE = 0 };
    struct buf text = {0};
    bool is_rich = spv_has_flag(s->caps, "nonsemantic");
    if (!is_rich && !spv_has_flag(s->caps, "debug")) return;
    kir_print(&text, s->k);
    /* The line of every instruction in the kernel's text: kir_print prints
     * one line per instruction, except those printed where they are used. */
    u32 line = kir_threads(s->k) > 1 || s->k->subgroup ? 3 : 2;
    s->line = arena_array(s->arena, u32, s->k->ins.n);
    for (kval v = 1; v < s->k->ins.n; v++) {
        enum kir_op op = kir_at(s->k, v)->op;
        if (op != KI_CONST && op != KI_PARAM && op != KI_BUF) s->line[v] = line++;
    }
    s->file = string(s, str_fmt(s->arena, "%.*s.kir", STR_ARG(s->k->name)));
    const u32 w[] = {UNKNOWN_LANGUAGE, 0, s->file};
    if (is_rich) declare_source(s, buf_view(&text));
    else spv_put_text(&s->strings, SPV_SOURCE, w, countof(w), buf_view(&text), NULL, 0);
    buf_release(&text);
}

void spv_debug_name(struct spv *s, u32 id, struct str name)
{
    if (s->file) spv_put_text(&s->names, SPV_NAME, &id, 1, name, NULL, 0);
}

void spv_debug_array(struct spv *s, kval array, u32 id, u32 unit)
{
    const struct kir_ins *x = kir_at(s->k, array);
    if (!s->file) return;
    if (x->op == KI_BUF)
        spv_debug_name(s, id,
                       str_fmt(s->arena, "%.*s_%u", STR_ARG(s->k->buf.v[x->imm.i].name), unit));
    else spv_debug_name(s, id, str_fmt(s->arena, "%s%u", kir_space_name(x->aux), s->line[array]));
}

void spv_debug_value(struct spv *s, kval v, u32 i, u32 id)
{
    if (!s->line || !s->line[v]) return;
    u32 n = kir_lanes(s->k, v);
    spv_debug_name(s, id,
                   n > 1 ? str_fmt(s->arena, "line%u.%u", s->line[v], i)
                         : str_fmt(s->arena, "line%u", s->line[v]));
}

void spv_debug_line(struct spv *s, kval v)
{
    if (!s->line || !s->line[v]) return;
    if (!s->debug_set) {
        SPV_PUT(&s->code, SPV_LINE, s->file, s->line[v], 0);
        return;
    }
    u32 line = spv_u32(s, s->line[v]), column = spv_u32(s, 0);
    SAY(s, &s->code, DEBUG_LINE, s->debug_source, line, line, column, column);
}

/* The function's description; its definition is in the entry block. */
void spv_debug_function(struct spv *s, u32 function, struct str name, kval grid)
{
    spv_debug_name(s, function, name);
    if (!s->debug_set) return;
    u32 zero = spv_u32(s, 0), line = spv_u32(s, s->line[grid]), text = string(s, name);
    u32 type = SAY(s, &s->globals, DEBUG_TYPE_FUNCTION, zero, spv_type(s, SPV_TYPE_VOID, NULL, 0));
    u32 id = SAY(s, &s->globals, DEBUG_FUNCTION, text, type, s->debug_source, line, zero,
                 s->debug_unit, text, zero, line);
    SAY(s, &s->prologue, DEBUG_FUNCTION_DEFINITION, id, function);
    SAY(s, &s->prologue, DEBUG_SCOPE, id);
}
