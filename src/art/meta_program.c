// SPDX-License-Identifier: Apache-2.0
//
// A program as files: the plan, a file per binary and one for all constants. The plan is the text of .dnx files (doc/dnx.md), which one reader parses;
// contents are files, or ranges of the weights, instead of tensors.
#include "art/meta_file.h"

#include "core/spirv.h"

#include <string.h>

enum { ALIGN = 64, MAX_KERNEL_NAME = 120 };

/* Writing. */

static bool add(struct meta_contents *out, struct meta_content x, struct arena *a, struct err *e)
{
    for (i64 i = 0; i < x.n_piece; i++) x.file.size += x.piece[i].n;
    if (!sign_digest_pieces(x.piece, x.n_piece, x.file.digest, e)) return false;
    *arr_push(a, out) = x;
    return true;
}

bool meta_add_content(struct meta_contents *out, struct str path, enum meta_role role, struct str bytes, struct arena *a, struct err *e)
{
    struct str *piece = arena_new(a, struct str);
    *piece = bytes;
    return add(out, (struct meta_content){{.path = str_dup(a, path), .role = role}, piece, 1}, a, e);
}

static const char *suffix_of(const struct dnx_code *c)
{
    bool is_elf = str_starts(c->bytes, S("\x7f" "ELF"));
    if (spirv_is_module(c->bytes)) return "spv";
    if (str_is(c->lang, "c")) return "so";
    if (str_is(c->lang, "cuda")) return is_elf ? "cubin" : "ptx";
    if (str_is(c->lang, "hip")) return "hsaco";
    if (str_is(c->lang, "kir")) return "kir";
    return is_elf ? "bin" : "cl";
}

/* The kernel's name as a file's, unique in the folder. */
static struct str kernel_path(struct map *taken, struct arena *a, const struct meta_program_files *to, const struct dnx_code *c)
{
    struct str name = str_dup(a, str_sub(c->entry.n ? c->entry : S("kernel"), 0, MAX_KERNEL_NAME)), path;
    for (i64 i = 0; i < name.n; i++) {
        char *p = (char *)(uintptr_t)&name.p[i];
        bool ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '_' || *p == '-';
        if (!ok) *p = '_';
    }
    path = str_fmt(a, "%.*s/%.*s.%s", STR_ARG(to->folder), STR_ARG(name), suffix_of(c));
    for (int k = 1; map_get(taken, path); k++) path = str_fmt(a, "%.*s/%.*s_%d.%s", STR_ARG(to->folder), STR_ARG(name), k, suffix_of(c));
    map_put(taken, path, 1);
    return path;
}

static bool write_code(struct meta_contents *out, Quern__Program *x, const struct dnx_text *t, const struct meta_program_files *to, struct arena *a, struct err *e)
{
    struct map taken; /* paths */
    map_init(&taken, a);
    x->n_code = t->code.n, x->code = arena_array(a, Quern__File *, t->code.n + 1);
    for (u32 i = 0; i < t->code.n; i++) {
        if (!meta_add_content(out, kernel_path(&taken, a, to, &t->code.v[i]), META_KERNEL, t->code.v[i].bytes, a, e)) return false;
        x->code[i] = meta_write_entry(&out->v[out->n - 1].file, a);
    }
    return true;
}

static bool write_weights(struct meta_contents *out, Quern__Program *x, const struct dnx_text *t, const struct meta_program_files *to, struct arena *a, struct err *e)
{
    static const char zero[ALIGN];
    struct meta_content w = {.file = {.path = str_fmt(a, "%.*s/%.*s.weights", STR_ARG(to->folder), STR_ARG(to->name)), .role = META_WEIGHTS}};
    i64 at = 0;
    if (!t->constant.n) return true;
    w.piece = arena_array(a, struct str, 2 * (i64)t->constant.n);
    x->n_constant = t->constant.n, x->constant = arena_array(a, Quern__Range *, t->constant.n);
    for (u32 i = 0; i < t->constant.n; i++) {
        struct str c = t->constant.v[i];
        Quern__Range *r = x->constant[i] = arena_new(a, Quern__Range);
        quern__range__init(r);
        r->offset = (u64)at, r->size = (u64)c.n;
        if (c.n) w.piece[w.n_piece++] = c;
        if (c.n % ALIGN) w.piece[w.n_piece++] = (struct str){zero, round_up(c.n, ALIGN) - c.n};
        at += round_up(c.n, ALIGN);
    }
    if (!add(out, w, a, e)) return false;
    x->weights = meta_write_entry(&out->v[out->n - 1].file, a);
    return true;
}

bool meta_program_write(struct meta_contents *out, const struct plan *p, const struct meta_program_files *to, struct arena *a, struct err *e)
{
    struct dnx_text t;
    struct buf b = {0};
    struct str path = str_fmt(a, "%.*s/%.*s.meta", STR_ARG(to->folder), STR_ARG(to->name));
    Quern__Program x = QUERN__PROGRAM__INIT;
    u32 first = out->n;
    if (!meta_path_is_valid(path)) return err_set(e, ERR_USAGE, "'%.*s' is not a valid name of a sub-graph's file", STR_ARG(path));
    (void)arr_push(a, out); /* the meta file, once the others' digests are known */
    bool ok = dnx_write_text(&t, p, a, e) && write_code(out, &x, &t, to, a, e) && write_weights(out, &x, &t, to, a, e);
    if (ok) x.plan = meta_z(a, t.plan);
    ok = ok && meta_wrap(&b, meta_program_kind, &x.base, e);
    if (ok) ok = meta_add_content(out, path, to->role, str_dup(a, buf_view(&b)), a, e);
    if (ok) out->v[first] = out->v[--out->n];
    else out->n = first;
    buf_release(&b);
    return ok || err_prefix(e, "'%.*s'", STR_ARG(path));
}

/* Reading. */

const struct meta_file *meta_file_of(const struct meta_subgraph *s, enum meta_role role)
{
    for (u32 i = 0; i < s->file.n; i++)
        if (s->file.v[i].role == role) return &s->file.v[i];
    return NULL;
}

struct loading {
    const struct meta_subgraph *s;
    const struct meta_reader *r;
    struct arena *a;
    struct err *e;
};

/* A file that the program names must be one that model.meta lists, with the same digest. */
static bool load_file(struct loading *l, const Quern__File *x, enum meta_role role, struct str *bytes)
{
    struct meta_file f;
    if (!meta_read_entry(&f, l->a, x, l->e)) return false;
    for (u32 i = 0; i < l->s->file.n; i++) {
        const struct meta_file *g = &l->s->file.v[i];
        if (!str_eq(f.path, g->path)) continue;
        if (g->role != role || g->size != f.size || memcmp(f.digest, g->digest, sizeof f.digest) != 0)
            return err_set(l->e, ERR_INPUT, "role, size or digest of '%.*s' differs from model.meta", STR_ARG(f.path));
        return l->r->read(l->r->user, g, bytes, l->e);
    }
    return err_set(l->e, ERR_INPUT, "file '%.*s' is not in model.meta", STR_ARG(f.path));
}

static bool load_constants(struct loading *l, struct dnx_text *t, const Quern__Program *x)
{
    struct str weights = {0};
    if (!x->n_constant) return true;
    if (!x->weights) return err_set(l->e, ERR_INPUT, "weights are missing");
    if (!load_file(l, x->weights, META_WEIGHTS, &weights)) return false;
    for (size_t i = 0; i < x->n_constant; i++) {
        const Quern__Range *r = x->constant[i];
        if (r->offset > (u64)weights.n || r->size > (u64)weights.n - r->offset || r->offset % ALIGN)
            return err_set(l->e, ERR_INPUT, "constant %zu is outside of '%.100s', or not at a multiple of %d bytes", i, x->weights->path, ALIGN);
        *arr_push(l->a, &t->constant) = (struct str){weights.p + r->offset, (i64)r->size};
    }
    return true;
}

static bool load_text(struct loading *l, struct dnx_text *t, const Quern__Program *x)
{
    *t = (struct dnx_text){.plan = str_of(x->plan)};
    for (size_t i = 0; i < x->n_code; i++)
        if (!load_file(l, x->code[i], META_KERNEL, &((struct dnx_code *)arr_push(l->a, &t->code))->bytes)) return false;
    return load_constants(l, t, x);
}

static bool same_tensor(const struct plan_io *io, const struct meta_model *m, u32 tensor)
{
    const struct meta_tensor *t = &m->tensor.v[tensor];
    return io->dtype == t->dtype && io->rank == t->rank;
}

static bool check_interface(const struct plan *p, const struct meta_model *m, const struct meta_subgraph *s, struct err *e)
{
    if (p->input.n != s->in.n || p->output.n != s->out.n)
        return err_set(e, ERR_INPUT, "the program has %u inputs and %u outputs, the sub-graph %u and %u", p->input.n, p->output.n, s->in.n, s->out.n);
    for (u32 k = 0; k < s->in.n; k++)
        if (!same_tensor(&p->input.v[k], m, s->in.v[k])) return err_set(e, ERR_INPUT, "type or rank of input '%.*s' differs from model.meta", STR_ARG(p->input.v[k].name));
    for (u32 k = 0; k < s->out.n; k++)
        if (!same_tensor(&p->output.v[k], m, s->out.v[k])) return err_set(e, ERR_INPUT, "type or rank of output '%.*s' differs from model.meta", STR_ARG(p->output.v[k].name));
    return true;
}

bool meta_program_read(struct plan *p, struct arena *a, const struct meta_model *m, const struct meta_subgraph *s, enum meta_role role,
                       const struct meta_reader *r, struct err *e)
{
    const struct meta_file *f = meta_file_of(s, role);
    struct loading l = {s, r, a, e};
    struct dnx_text t;
    struct str bytes;
    if (!f) return err_set(e, ERR_INPUT, "sub-graph '%.*s' has no %s", STR_ARG(s->name), meta_role_name(role));
    if (!r->read(r->user, f, &bytes, e)) return false;
    const Quern__Program *x = meta_unwrap(&quern__program__descriptor, meta_program_kind, a, bytes, e);
    bool ok = x && load_text(&l, &t, x) && dnx_read_text(p, a, &t, r->choose, r->chooser, e) && (!m || check_interface(p, m, s, e));
    return ok || err_prefix(e, "'%.*s'", STR_ARG(f->path));
}
