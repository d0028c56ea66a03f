// SPDX-License-Identifier: Apache-2.0
//
// Ranges of sizes from the exporter of a model: PyTorch's torch.export writes "{s53: VR[4, 128], 2*s0: VR[2, int_oo]}" into
// the graph's metadata. Upper bounds become facts. Sizes that no input is named after are skipped (the exporter's own names of
// dimensions that the user named), and lower bounds: torch.export assumes at least 2 for every dynamic size, and every size
// computed from it, while it traces, which would exclude sizes that the network supports (33 where 32 pixels are one patch).
#include <string.h>

#include <onnx.pb-c.h>

#include "import/import.h"
#include "io/io.h"

enum { METADATA = 16, MAX_BOUND = 1 << 30 };

static const char key[] = "pkg.torch.export.ExportedProgram.range_constraints", owner[] = "the exporter's range";

struct ranges {
    struct graph *g;
    const struct map *dims;
};

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether all names in it are sizes. A name before a parenthesis is a function's. */
static bool names_are_known(const struct symtab *t, struct str text)
{
    for (i64 i = 0; i < text.n;) {
        i64 from = i;
        while (i < text.n && is_word(text.p[i])) i++;
        struct str word = str_sub(text, from, i);
        bool is_number = word.n && word.p[0] >= '0' && word.p[0] <= '9', is_call = i < text.n && text.p[i] == '(';
        if (word.n && !is_number && !is_call && !map_get(&t->names, word)) return false;
        if (!word.n) i++;
    }
    return true;
}

static bool find_size(const struct ranges *r, struct str text, sym *out)
{
    struct symtab *t = r->g->sym;
    if (!text.n || !names_are_known(t, text)) return false;
    if (!import_dim(t, text, r->dims, out)) *out = map_get(&t->names, text) ? sym_var(t, text) : 0;
    return *out && !sym_is_const(t, *out, NULL);
}

/* "s53: VR[4, 128". Contrary assumptions of callers have precedence. */
static void read_range(const struct ranges *r, struct str name, struct str bounds)
{
    struct symtab *t = r->g->sym;
    struct str lo, hi;
    sym s;
    i64 n;
    if (!str_cut(bounds, ',', &lo, &hi) || !find_size(r, name, &s)) return;
    if (str_to_i64(str_trim(hi), &n) && n > 0 && n <= MAX_BOUND) (void)sym_require_at_least(t, sym_const(t, n), s, str_of(owner));
}

static i64 find(struct str s, const char *what)
{
    i64 n = str_of(what).n;
    for (i64 i = 0; i + n <= s.n; i++)
        if (!memcmp(s.p + i, what, (size_t)n)) return i;
    return -1;
}

/* Any other text is ignored. */
static void read_ranges(const struct ranges *r, struct str text)
{
    static const char open[] = ": VR[";
    text = str_trim(text);
    if (text.n < 2 || text.p[0] != '{') return;
    text = str_sub(text, 1, text.n);
    for (i64 at, end; (at = find(text, open)) >= 0; text = str_sub(text, at + end + 1, text.n)) {
        struct str name = str_trim(str_sub(text, 0, at));
        end = find(str_sub(text, at, text.n), "]");
        if (end < 0) return;
        if (name.n && name.p[0] == ',') name = str_trim(str_sub(name, 1, name.n));
        read_range(r, name, str_sub(text, at + str_of(open).n, at + end));
    }
}

/* Without the length before it. */
static struct str content(const ProtobufCMessageUnknownField *f)
{
    size_t i = 0;
    while (i < f->len && f->data[i] & 0x80) i++;
    return i < f->len ? (struct str){(const char *)f->data + i + 1, (i64)(f->len - i - 1)} : (struct str){0};
}

void import_ranges(struct graph *g, const struct Onnx__GraphProto *p, const struct map *dims)
{
    const ProtobufCMessage *m = &p->base;
    struct ranges r = {g, dims};
    for (unsigned i = 0; i < m->n_unknown_fields; i++) {
        const ProtobufCMessageUnknownField *f = &m->unknown_fields[i];
        struct err none = {0};
        if (f->tag != METADATA || f->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) continue;
        const Onnx__StringStringEntryProto *x =
            io_onnx_unpack(&onnx__string_string_entry_proto__descriptor, g->arena, content(f), &none);
        if (x && x->key && x->value && str_is(str_of(x->key), key)) read_ranges(&r, str_of(x->value));
    }
}
