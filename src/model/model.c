// SPDX-License-Identifier: Apache-2.0
//
// Opening a model. Decides how often a file is imported: without requests once; with requests for
// inputs or outputs once more, because names of sizes are only known afterwards; and again with the
// sizes of a run assumed, if the symbolic model does not support them.
#include "model/model.h"

static struct str base_name(struct arena *a, const char *path)
{
    struct str s = str_of(path), head, tail;
    while (str_cut(s, '/', &head, &tail)) s = tail;
    i64 end = s.n;
    for (i64 i = s.n - 1; i > 0; i--)
        if (s.p[i] == '.') {
            end = i;
            break;
        }
    return str_dup(a, str_sub(s, 0, end));
}

/* Lowering. */

static bool lower_in_place(struct model *m, struct graph *g, const struct pass_env *env, struct err *e)
{
    if (!pass_run_all(g, env, e)) return false;
    interface_layouts(g, &m->io);
    return state_place(g, &m->state, e);
}

static bool lower(struct model *m, struct graph *to, u32 flags, struct err *e)
{
    struct pass_env env = {.dump = m->dump, .flags = flags, .user = m->user};
    graph_clone(to, &m->graph, &m->arena);
    return lower_in_place(m, to, &env, e);
}

static bool store_compact(struct model *m, struct err *e)
{
    bool changed;
    graph_clone(&m->compact, &m->lowered, &m->arena);
    if (!pass_compact(&m->compact, &changed, e)) return false;
    if (!changed) m->compact = (struct graph){0};
    return true;
}

static u32 pass_flags(const struct model *m, enum lowering as)
{
    const u32 narrow = m->is_narrow ? PASS_F16 : 0;
    switch (as) {
    case LOWERED_FLOATS: return narrow;
    case LOWERED_INTEGER: return narrow | PASS_INTEGER;
    case LOWERED_FIXED: return narrow | PASS_INTEGER | PASS_FIXED;
    case LOWERED_WORDS: return narrow | PASS_INTEGER | PASS_WORDS;
    default: unreachable();
    }
}

/* Expansions of operators may require facts, too, which may change earlier sizes: repeats until there are no new ones. */
static bool lower_as(struct model *m, u32 as, struct err *e)
{
    u32 known;
    bool ok = true;
    do {
        known = m->sym.n_noted;
        if (as & LOWERED_FLOATS) ok = lower(m, &m->lowered, pass_flags(m, LOWERED_FLOATS), e);
        if (ok && as & LOWERED_INTEGER) ok = lower(m, &m->integer, pass_flags(m, LOWERED_INTEGER), e);
        if (ok && as & LOWERED_FIXED) ok = lower(m, &m->fixed, pass_flags(m, LOWERED_FIXED), e);
        if (ok && as & LOWERED_WORDS) ok = lower(m, &m->words, pass_flags(m, LOWERED_WORDS), e);
    } while (ok && m->sym.n_noted != known && (ok = op_infer_all(&m->graph, e)));
    if (ok && as & LOWERED_FLOATS) ok = store_compact(m, e);
    if (ok) m->lowered_as |= as;
    return ok;
}

static bool lower_all(struct model *m, u32 as, struct err *e)
{
    bool ok = lower_as(m, as | (m->has_integer ? LOWERED_FLOATS | LOWERED_INTEGER | LOWERED_WORDS : LOWERED_FLOATS), e);
    model_add_sizes(m);
    return ok;
}

/* A vector from f16, or from bf16, by an instruction or two. */
static bool converts_halves(const struct caps *c) { return !c->is_gpu && (c->isa.family == ISA_AARCH64 || c->vector_bytes >= 32); }

static enum lowering suited(const struct model *m, const struct caps *c)
{
    if (!c || !m->has_integer) return LOWERED_FLOATS;
    if (caps_has_dot(c, DT_U8, DT_I8, DT_I32)) return c->fixed_point ? LOWERED_FIXED : LOWERED_INTEGER;
    return caps_has_dot(c, DT_I16, DT_I16, DT_I32) ? LOWERED_WORDS : LOWERED_FLOATS;
}

/* With variables all ways at once, whose facts about sizes then hold for each; otherwise only the asked one, because all of them fold the weights. */
const struct graph *model_lowered(struct model *m, const struct caps *c, struct err *e)
{
    const enum lowering as = suited(m, c);
    bool ok = m->lowered_as & as || m->sym.var.n || lower_as(m, as, e);
    const u32 needed = m->sym.var.n ? as | LOWERED_FLOATS : as;
    if (!ok || ((m->lowered_as & needed) != needed && !lower_all(m, as, e))) return NULL;
    if (as != LOWERED_FLOATS) return as == LOWERED_INTEGER ? &m->integer : as == LOWERED_FIXED ? &m->fixed : &m->words;
    return c && m->compact.node.n && converts_halves(c) ? &m->compact : &m->lowered;
}

bool model_lower_part(struct graph *to, const struct graph *part, const struct model *m, const struct caps *c, struct arena *a, struct err *e)
{
    const struct model is = {.has_integer = pass_has_integer(part)};
    const struct pass_env env = {.flags = pass_flags(m, suited(&is, c))};
    graph_clone(to, part, a);
    return pass_run_all(to, &env, e);
}

bool model_lower(struct graph *g, struct model *m, const struct caps *c, struct err *e)
{
    const enum lowering as = suited(m, c);
    const struct graph *own = model_lowered(m, c, e); /* by which all facts are known */
    const struct pass_env env = {.flags = pass_flags(m, as)};
    bool changed, ok = own && op_infer_all(g, e) && lower_in_place(m, g, &env, e);
    model_add_sizes(m);
    return ok && (own != &m->compact || pass_compact(g, &changed, e));
}

/* The lowered graph has the interface's types; the callers' graph has its conversions as nodes. */
static bool complete(struct model *m, const char *optimize_for, const char *state, struct err *e)
{
    if (!state_find(&m->state, &m->graph, state, &m->arena, e) || !state_append(&m->graph, &m->state, e)) return false;
    if (m->io.n && !interface_types(&m->graph, &m->io, e)) return false;
    m->has_integer = pass_has_integer(&m->graph);
    if ((m->io.n || m->dump) && !lower_all(m, 0, e)) return false;
    if (m->io.n && !interface_show(&m->graph, &m->io, e)) return false;
    return model_default_sizes(m, optimize_for, e);
}

/* Sources. */

bool model_source_open(struct model_source *s, struct arena *a, const struct model_opts *o, struct err *e)
{
    bool is_pipe = !s->bytes.p && str_is(str_of(s->path), "-");
    bool has_elements = o->elements && o->elements[0], is_frozen = o->n_constants > 0 && !o->constants_in_place;
    if (o->n_constants > 0 && o->constants_in_place) s->given = o->constants, s->n_given = o->n_constants;
    if (!is_frozen && !has_elements && !is_pipe) return true;
    struct str bytes = s->bytes;
    if (!bytes.p && !os_read(a, s->path, MODEL_MAX_BYTES, &bytes, e)) return false;
    if (has_elements && !import_elements(&bytes, a, bytes, o->elements, e)) return err_prefix(e, "'%s'", s->path);
    s->bytes = bytes;
    return !is_frozen || import_freeze(&s->bytes, a, bytes, o->constants, o->n_constants, e) || err_prefix(e, "'%s'", s->path);
}

static bool source_import(const struct model_source *s, struct import_job j, struct arena *a, struct symtab *st, struct err *e)
{
    j.bytes = s->bytes;
    j.follow_links = s->follow_links;
    j.given = s->given, j.n_given = s->n_given;
    return import_run(&j, a, st, s->path, e);
}

static bool has_type(const struct interface *f, enum dtype t)
{
    for (u32 k = 0; k < f->n; k++)
        if (f->v[k].dtype == t) return true;
    return false;
}

/* Imports to learn the names of sizes; the next import uses the caller's names and numbers. A model that can only be imported with these
   declares the names of its sizes. */
static bool choose_interface(struct model *m, const struct model_source *s, const struct model_opts *o, struct err *e)
{
    struct arena once = {0};
    struct symtab st;
    struct graph g;
    symtab_init(&st, &once);
    bool ok = source_import(s, (struct import_job){.g = &g}, &once, &st, e);
    if (!ok) {
        struct err again = {0};
        symtab_init(&st, &once);
        ok = source_import(s, (struct import_job){.g = &g, .interface_only = true}, &once, &st, &again);
        if (ok) *e = (struct err){0};
    }
    if (!ok) {
        arena_release(&once);
        return false;
    }
    ok = model_interface(&m->io, &g, o->io, o->n_io, &m->arena, e) && interface_sizes(&m->io, &g, &m->sym, e);
    m->is_narrow = has_type(&m->io, DT_F16) && !o->f32_storage;
    arena_release(&once);
    return ok || err_prefix(e, "'%s'", s->path);
}

/* Explains why sizes fixed by callers do not fit the network: by the facts of an import without them that they violate, if any. */
static void explain_fixed(const struct model *m, const struct model_source *s, const char *assume, struct err *e)
{
    struct arena a = {0};
    struct symtab st;
    struct graph g;
    struct err why = {0}, none = {0};
    symtab_init(&st, &a);
    if (source_import(s, (struct import_job){.g = &g}, &a, &st, &none) && !model_assume_fits(&g, &m->io, assume, &why))
        *e = why, err_prefix(e, "'%s'", s->path);
    arena_release(&a);
}

static bool import(struct model *m, const struct model_source *s, const struct model_opts *o, struct err *e)
{
    if (o->n_io > 0 && !choose_interface(m, s, o, e)) return false;
    if (o->assume && !model_assume(&m->sym, o->assume, e)) return false;
    if (!source_import(s, (struct import_job){.g = &m->graph}, &m->arena, &m->sym, e)) {
        if (o->assume || m->io.n) explain_fixed(m, s, o->assume, e);
        return false;
    }
    sym_undefine(&m->sym);
    if (o->assume && !model_assume_check(&m->graph, e)) return false;
    return interface_check(&m->io, &m->graph, e) || err_prefix(e, "'%s'", s->path);
}

/* Models. */

static struct model *model_alloc(const struct model_opts *o)
{
    struct model *m = mem_alloc(sizeof *m);
    m->dump = o->dump, m->user = o->user;
    symtab_init(&m->sym, &m->arena);
    return m;
}

void model_close(struct model *m)
{
    if (!m) return;
    arena_release(&m->arena);
    mem_free(m);
}

static struct model *open_once(const struct model_source *s, const struct model_opts *o, struct err *e)
{
    struct model *m = model_alloc(o);
    m->name = base_name(&m->arena, s->path);
    struct model_source own = *s; /* constants may refer to its bytes */
    if (s->bytes.p) own.bytes = str_dup(&m->arena, s->bytes);
    if (import(m, &own, o, e) && complete(m, o->optimize_for, o->state, e)) return m;
    model_close(m);
    return NULL;
}

/* Opens the model again with the sizes of the run assumed; the result replaces m only if that succeeds. */
static struct model *open_at(struct model *m, const struct model_source *s, struct model_opts o, struct err *e)
{
    struct buf all = {0};
    struct err why = {0}, again = {0};
    if (m && model_assume_fits(&m->graph, NULL, o.run_at, &why)) return m;
    if (o.assume && o.assume[0]) buf_printf(&all, "%s,", o.assume);
    buf_z(&all, o.run_at);
    o.assume = all.p;
    struct model *fixed = open_once(s, &o, &again);
    buf_release(&all);
    if (!fixed) return m;
    model_close(m);
    *e = again;
    return fixed;
}

struct model *model_open(const struct model_source *s, const struct model_opts *o, struct err *e)
{
    struct model *m = open_once(s, o, e);
    return o->run_at && o->run_at[0] ? open_at(m, s, *o, e) : m;
}

/* A pass may refuse a model that was imported without a problem. */
static void check_passes(const struct model_source *s, const struct model_opts *o, struct arena *a, struct import_problems *all)
{
    struct err e = {0};
    struct model *m = model_open(s, o, &e);
    if (!m || !model_lowered(m, NULL, &e)) import_note(all, a, S(""), S(""), &e);
    model_close(m);
}

bool model_problems(struct import_problems *all, struct arena *a, struct model_source s, const struct model_opts *o, struct err *e)
{
    struct symtab st;
    struct graph g;
    symtab_init(&st, a);
    bool ok = model_source_open(&s, a, o, e) && (!o->assume || model_assume(&st, o->assume, e)) &&
              source_import(&s, (struct import_job){.g = &g, .all = all}, a, &st, e);
    if (!ok && e->code == ERR_UNSUPPORTED) import_note(all, a, S(""), S(""), e), ok = true;
    if (ok && !all->n) check_passes(&s, o, a, all);
    return ok;
}

bool model_is_random(const struct model *m)
{
    for (node_id n = 1; n < m->graph.node.n; n++)
        if (!graph_node(&m->graph, n)->dead && op_of(&m->graph, n)->props & OP_RANDOM) return true;
    return false;
}

struct model *model_new(struct str name, const struct model_opts *o)
{
    struct model *m = model_alloc(o);
    m->name = str_dup(&m->arena, name);
    graph_init(&m->graph, &m->arena, &m->sym);
    return m;
}

bool model_finish(struct model *m, struct err *e) { return op_infer_all(&m->graph, e) && complete(m, NULL, NULL, e); }
