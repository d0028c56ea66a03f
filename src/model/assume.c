// SPDX-License-Identifier: Apache-2.0
//
// Assumptions about sizes, made before inference: "B:1,H%16,S:1..4096". They are facts like those
// that a network requires, so programs check them.
#include "model/model.h"

static const char owner[] = "option assume";

static bool malformed(struct str item, struct err *e)
{
    return err_set(e, ERR_USAGE, "assumption '%.*s' is not of the form NAME:NUMBER, NAME%%NUMBER or NAME:FROM..TO", STR_ARG(item));
}

/* Reports a contradiction to a known fact about the size. */
static bool contradiction(const struct symtab *t, sym x, struct str item, struct err *e)
{
    struct buf b = {0};
    for (u32 k = 0; k < t->fact.n && !b.n; k++)
        for (u32 v = 0; v < t->var.n && !b.n; v++)
            if (sym_has_var(t, x, v) && sym_has_var(t, t->fact.v[k].a, v)) sym_fact_print(&b, t, &t->fact.v[k]);
    if (!b.n) sym_print(&b, t, x);
    err_set(e, ERR_USAGE, "assumption '%.*s' contradicts an earlier assumption about this size: %.*s", STR_ARG(item), STR_ARG(buf_view(&b)));
    buf_release(&b);
    return false;
}

/* "1..4096"; either bound may be omitted. */
static bool assume_range(struct symtab *t, sym x, struct str text, struct str item, struct err *e)
{
    i64 dots = 0, from, to;
    while (dots + 1 < text.n && !(text.p[dots] == '.' && text.p[dots + 1] == '.')) dots++;
    struct str lo = str_trim(str_sub(text, 0, dots)), hi = str_trim(str_sub(text, dots + 2, text.n));
    if ((lo.n && !str_to_i64(lo, &from)) || (hi.n && !str_to_i64(hi, &to)) || !(lo.n || hi.n)) return malformed(item, e);
    bool ok = !lo.n || sym_require_at_least(t, x, sym_const(t, from), str_of(owner));
    ok = ok && (!hi.n || sym_require_at_least(t, sym_const(t, to), x, str_of(owner)));
    return ok || contradiction(t, x, item, e);
}

static bool assume_one(struct symtab *t, struct str item, struct err *e)
{
    struct str name, value;
    i64 n;
    bool is_multiple = str_cut(item, '%', &name, &value);
    if (!is_multiple && !str_cut(item, ':', &name, &value) && !str_cut(item, '=', &name, &value)) return malformed(item, e);
    name = str_trim(name), value = str_trim(value);
    if (!name.n) return malformed(item, e);
    sym x = sym_var(t, name);
    bool is_number = str_to_i64(value, &n); /* otherwise a range */
    if (!is_number && !is_multiple) return assume_range(t, x, value, item, e);
    if (!is_number || n < 0 || (is_multiple && n == 0)) return malformed(item, e);
    bool ok = is_multiple ? sym_require_multiple(t, x, n, str_of(owner)) : sym_require_equal(t, x, sym_const(t, n), str_of(owner));
    return ok || contradiction(t, x, item, e);
}

bool model_assume(struct symtab *t, const char *text, struct err *e)
{
    struct str rest = str_of(text), item;
    while (rest.n) {
        str_cut(rest, ',', &item, &rest);
        if (str_trim(item).n && !assume_one(t, str_trim(item), e)) return false;
    }
    return true;
}

static bool is_of_input(const struct graph *g, u32 var)
{
    for (u32 k = 0; k < g->input.n; k++) {
        struct shape s = value_given(g->sym, graph_value(g, g->input.v[k]));
        for (u32 d = 0; d < s.rank; d++)
            if (sym_has_var(g->sym, s.dim[d], var)) return true;
    }
    return false;
}

static bool no_such_size(const struct graph *g, u32 var, struct err *e)
{
    struct buf names = {0};
    for (u32 v = 0; v < g->sym->var.n && names.n < 300; v++)
        if (is_of_input(g, v)) buf_printf(&names, "%s%.*s", names.n ? ", " : "", STR_ARG(g->sym->var.v[v]));
    err_set(e, ERR_USAGE, "no input has a size named '%.*s', there %s %.*s", STR_ARG(g->sym->var.v[var]), names.n ? "are" : "is none that",
            STR_ARG(names.n ? buf_view(&names) : S("is open")));
    buf_release(&names);
    return false;
}

bool model_assume_check(const struct graph *g, struct err *e)
{
    for (u32 k = 0; k < g->sym->fact.n; k++) {
        const struct sym_fact *f = &g->sym->fact.v[k];
        for (u32 v = 0; str_is(f->origin, owner) && v < g->sym->var.n; v++)
            if (sym_has_var(g->sym, f->a, v) && !is_of_input(g, v))
                return no_such_size(g, v, e);
    }
    return true;
}

bool model_assume_fits(const struct graph *g, const struct interface *io, const char *text, struct err *e)
{
    struct arena a = {0};
    struct symtab st;
    struct err none = {0};
    symtab_init(&st, &a);
    i64 *var = arena_array(&a, i64, g->sym->var.n + 1);
    bool known = (!io || !io->n || interface_sizes(io, g, &st, &none)) && (!text || model_assume(&st, text, &none));
    for (u32 v = 0; v < g->sym->var.n; v++) {
        sym s = sym_current(&st, sym_var(&st, g->sym->var.v[v]));
        if (!known || !sym_is_const(&st, s, &var[v])) var[v] = INT64_MIN;
    }
    bool ok = graph_facts_hold(g, var, e);
    arena_release(&a);
    return ok;
}
