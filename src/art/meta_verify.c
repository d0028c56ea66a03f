// SPDX-License-Identifier: Apache-2.0
//
// What holds in every deployment's description, read or about to be written:
//  1. Names of tensors are unique, sizes are expressions, types are known.
//  2. Every tensor has one producer: the caller, if it is an input, else one sub-graph. Outputs of the network are among the tensors.
//  3. A sub-graph reads inputs of the network and outputs of earlier sub-graphs, all of which are in its list `after`.
//  4. Sub-graphs have different names, which are names of folders; their files are in these, and every path occurs once, also without regard to
//     case. There is at most one program and one fallback each.
#include "art/meta_file.h"

#include <math.h>

enum { MAX_PATH = 500, MAX_NAME = 200, MAX_TEXT = 1 << 20 };

static bool is_path_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '+' || c == '.' || c == ',' ||
           c == '=' || c == '@';
}

bool meta_path_is_valid(struct str path)
{
    struct str part, rest = path;
    bool more = true;
    if (!path.n || path.n > MAX_PATH) return false;
    while (more) {
        more = str_cut(rest, '/', &part, &rest);
        if (!part.n || part.n > MAX_NAME || str_is(part, ".") || str_is(part, "..")) return false;
        for (i64 i = 0; i < part.n; i++)
            if (!is_path_char(part.p[i])) return false;
    }
    return true;
}

/* Text for people: no control characters. */
static bool is_text(struct str s)
{
    bool ok = s.n <= MAX_TEXT;
    for (i64 i = 0; i < s.n && ok; i++) ok = (u8)s.p[i] >= 32 && s.p[i] != 127;
    return ok;
}

struct check {
    const struct meta_model *m;
    struct arena a;
    struct map names, folders, paths;
    u32 *producer; /* per tensor: 0: none yet, 1: the caller, 2 + i: sub-graph i */
    struct err *e;
};

static bool bad(struct check *c, const char *what, struct str name, const char *why)
{
    return err_set(c->e, ERR_INPUT, "%s '%.*s': %s", what, (int)i64_min(name.n, 100), name.p ? name.p : "", why);
}

static bool check_tensor(struct check *c, u32 k)
{
    const struct meta_tensor *t = &c->m->tensor.v[k];
    struct symtab st;
    if (!t->name.n || !is_text(t->name) || !is_text(t->origin)) return bad(c, "tensor", t->name, "name or origin is empty or has control characters");
    if (map_get(&c->names, t->name)) return bad(c, "tensor", t->name, "name occurs twice");
    map_put(&c->names, t->name, k);
    if (t->dtype <= DT_NONE || t->dtype >= N_DTYPES) return bad(c, "tensor", t->name, "dtype is unknown");
    if (t->rank > MAX_RANK) return bad(c, "tensor", t->name, "dim has too many entries");
    struct arena_mark mark = arena_mark(&c->a);
    bool ok = true;
    symtab_init(&st, &c->a);
    for (u32 d = 0; d < t->rank; d++)
        if (!is_text(t->dim[d])) return bad(c, "tensor", t->name, "dim has control characters");
    for (u32 d = 0; d < t->rank && ok; d++) ok = sym_parse(&st, t->dim[d], c->e) || err_prefix(c->e, "tensor '%.*s': dim", (int)i64_min(t->name.n, 100), t->name.p);
    arena_rewind(&c->a, mark);
    return ok;
}

/* by: 1, or 2 + the sub-graph. */
static bool produce(struct check *c, u32 tensor, u32 by, const char *what, struct str name)
{
    if (tensor >= c->m->tensor.n) return bad(c, what, name, "index of a tensor is out of range");
    if (c->producer[tensor]) return bad(c, "tensor", c->m->tensor.v[tensor].name, "has two producers");
    c->producer[tensor] = by;
    return true;
}

static bool check_order(struct check *c, u32 k)
{
    const struct meta_subgraph *s = &c->m->subgraph.v[k];
    for (u32 i = 0; i < s->after.n; i++) {
        if (s->after.v[i] >= k) return bad(c, "sub-graph", s->name, "waits for itself or a later one");
        if (i && s->after.v[i] <= s->after.v[i - 1]) return bad(c, "sub-graph", s->name, "after is not ascending");
    }
    for (u32 i = 0; i < s->in.n; i++) {
        u32 j = 0, t = s->in.v[i], by = t < c->m->tensor.n ? c->producer[t] : 0;
        if (t >= c->m->tensor.n) return bad(c, "sub-graph", s->name, "index of an input is out of range");
        if (!by) return err_set(c->e, ERR_INPUT, "sub-graph '%.*s': input '%.*s' is produced by none before it", STR_ARG(s->name), STR_ARG(c->m->tensor.v[t].name));
        while (by >= 2 && j < s->after.n && s->after.v[j] != by - 2) j++;
        if (by >= 2 && j == s->after.n)
            return err_set(c->e, ERR_INPUT, "sub-graph '%.*s': does not wait for the producer of its input '%.*s'", STR_ARG(s->name), STR_ARG(c->m->tensor.v[t].name));
    }
    return true;
}

static struct str lower(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, s.n + 1);
    for (i64 i = 0; i < s.n; i++)
        p[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char)(s.p[i] + 'a' - 'A') : s.p[i];
    return (struct str){p, s.n};
}

static bool check_files(struct check *c, const struct meta_subgraph *s)
{
    u32 n[N_META_ROLES] = {0};
    for (u32 i = 0; i < s->file.n; i++) {
        const struct meta_file *f = &s->file.v[i];
        bool is_inside = meta_path_is_valid(f->path) && f->path.n > s->name.n && str_starts(f->path, s->name) && f->path.p[s->name.n] == '/';
        if (!is_inside) return bad(c, "file", f->path, "path is invalid, or outside of the sub-graph's folder");
        if ((u32)f->role >= N_META_ROLES || f->size < 0) return bad(c, "file", f->path, "role or size is invalid");
        struct str key = lower(&c->a, f->path);
        if (map_get(&c->paths, key)) return bad(c, "file", f->path, "path occurs twice");
        map_put(&c->paths, key, 1);
        n[f->role]++;
    }
    return (n[META_PROGRAM] <= 1 && n[META_FALLBACK] <= 1) || bad(c, "sub-graph", s->name, "has two programs of one role");
}

static bool check_subgraph(struct check *c, u32 k)
{
    const struct meta_subgraph *s = &c->m->subgraph.v[k];
    if (!meta_path_is_valid(s->name) || str_cut(s->name, '/', &(struct str){0}, &(struct str){0}) || str_starts(lower(&c->a, s->name), S("model.")))
        return bad(c, "sub-graph", s->name, "name is not that of a folder");
    struct str key = lower(&c->a, s->name);
    if (map_get(&c->folders, key)) return bad(c, "sub-graph", s->name, "name occurs twice");
    map_put(&c->folders, key, k);
    if (!s->device.n || !is_text(s->device) || !s->framework.n || !is_text(s->framework) || !is_text(s->target) || !is_text(s->missing))
        return bad(c, "sub-graph", s->name, "device or framework is empty, or a text has control characters");
    for (u32 i = 0; i < s->op.n; i++)
        if (!is_text(s->op.v[i])) return bad(c, "sub-graph", s->name, "the name of an operator has control characters");
    if (!(s->seconds >= 0) || isinf(s->seconds)) return bad(c, "sub-graph", s->name, "seconds is negative or no number");
    if (!s->out.n) return bad(c, "sub-graph", s->name, "has no output");
    if (!check_order(c, k)) return false;
    for (u32 i = 0; i < s->out.n; i++)
        if (!produce(c, s->out.v[i], 2 + k, "sub-graph", s->name)) return false;
    return check_files(c, s) && mem_check(c->e, "checking ", S(META_MODEL_FILE));
}

static bool check_all(struct check *c)
{
    const struct meta_model *m = c->m;
    if (!m->name.n || m->name.n > MAX_NAME || !is_text(m->name)) return bad(c, "model", m->name, "name is empty, too long, or has control characters");
    for (u32 k = 0; k < m->tensor.n; k++)
        if (!check_tensor(c, k)) return false;
    for (u32 k = 0; k < m->input.n; k++)
        if (!produce(c, m->input.v[k], 1, "model", m->name)) return false;
    for (u32 k = 0; k < m->subgraph.n; k++)
        if (!check_subgraph(c, k)) return false;
    for (u32 k = 0; k < m->output.n; k++)
        if (m->output.v[k] >= m->tensor.n) return bad(c, "model", m->name, "index of an output is out of range");
    for (u32 k = 0; k < m->tensor.n; k++)
        if (!c->producer[k]) return bad(c, "tensor", m->tensor.v[k].name, "has no producer");
    return m->output.n || bad(c, "model", m->name, "has no output");
}

bool meta_verify_model(const struct meta_model *m, struct err *e)
{
    struct check c = {.m = m, .e = e};
    c.producer = arena_array(&c.a, u32, m->tensor.n + 1);
    map_init(&c.names, &c.a);
    map_init(&c.folders, &c.a);
    map_init(&c.paths, &c.a);
    bool ok = check_all(&c);
    arena_release(&c.a);
    return ok;
}
