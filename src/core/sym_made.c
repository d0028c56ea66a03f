// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: why a data-dependent size is invalid. The message names the sizes that it follows from with their values,
// the node that requires it and its condition, followed by the elements that the data-dependent ones among these sizes are.
#include "core/core.h"

enum { MAX_SHOWN = 9 /* nodes of an expression in a message */ };

static bool is_name(const struct symtab *t, sym s) { return t->node.v[s].op == SYM_VAR; }

static struct str owner_of(const struct sym_made *m) { return m->need.origin.n ? m->need.origin : S("the network"); }

static void print_origin(struct buf *b, const struct symtab *t, const struct sym_made *m)
{
    buf_printf(b, "; %.*s is ", STR_ARG(t->var.v[m->var]));
    if (m->expr) sym_print(b, t, m->expr);
    else buf_printf(b, "%selement %lld of '%.*s'", m->is_negated ? "minus " : "", (long long)m->at, STR_ARG(m->value));
}

/* At the end of the message: the sources of its data-dependent sizes. Derived ones follow those that they are derived from. */
static void print_origins(struct buf *b, const struct symtab *t, const struct sym_made *v, u32 n, const sym of[2])
{
    bool *is_shown = mem_alloc(n);
    for (u32 k = n; k-- > 0;) {
        const struct sym_made *m = &v[k];
        bool is_met = sym_has_var(t, of[0], m->var) || sym_has_var(t, of[1], m->var);
        for (u32 j = k + 1; j < n && !is_met; j++) is_met = is_shown[j] && v[j].expr && sym_has_var(t, v[j].expr, m->var);
        is_shown[k] = is_met && !(m->expr && (m->expr == of[0] || t->node.v[m->expr].size > MAX_SHOWN));
        if (is_shown[k]) print_origin(b, t, m);
    }
    mem_free(is_shown);
}

/* A violated bound: the only possible error of a non-negative size with a value. */
static void explain_bound(struct buf *b, const struct symtab *t, const struct sym_made *v, u32 n, const struct sym_made *m, const i64 *var)
{
    const u64 *self = map_get(&t->names, t->var.v[m->var]);
    struct sym_fact f = {.kind = FACT_AT_MOST, .a = self ? (sym)*self : 0, .b = m->most, .origin = owner_of(m)};
    if (!f.a || !is_name(t, f.a)) f.a = m->expr ? m->expr : m->most;
    sym_fact_explain(b, t, &f, var);
    print_origins(b, t, v, n, (sym[]){f.a, f.b});
}

static void explain_negative(struct buf *b, const struct symtab *t, const struct sym_made *v, u32 n, const struct sym_made *m, const i64 *var)
{
    struct str origin = owner_of(m);
    i64 x = var[m->var];
    if (!m->expr) {
        buf_printf(b, "element %lld of '%.*s' is %lld, but %.*s needs it to be at least 0", (long long)m->at, STR_ARG(m->value), (long long)x,
                   STR_ARG(origin));
        return;
    }
    sym_print_vars(b, t, m->expr, 0, var);
    buf_printf(b, ", but %.*s needs ", STR_ARG(origin));
    sym_print(b, t, m->expr);
    if (!is_name(t, m->expr)) buf_printf(b, " (%lld)", (long long)x);
    buf_z(b, " to be at least 0");
    print_origins(b, t, v, n, (sym[]){m->expr, 0});
}

static void explain_unknown(struct buf *b, const struct symtab *t, const struct sym_made *v, u32 n, const struct sym_made *m, const i64 *var)
{
    sym_print_vars(b, t, m->expr, 0, var);
    buf_printf(b, ", but %.*s needs the size ", STR_ARG(owner_of(m)));
    sym_print(b, t, m->expr);
    buf_z(b, ", which overflows or divides by 0");
    print_origins(b, t, v, n, (sym[]){m->expr, 0});
}

void sym_made_explain(struct buf *b, const struct symtab *t, const struct sym_made *v, u32 n, u32 at, const i64 *var)
{
    const struct sym_made *m = &v[at];
    const struct sym_fact *f = &m->need;
    bool holds = true;
    if (f->a && sym_fact_eval(t, f, var, &holds) && !holds) {
        sym_fact_explain(b, t, f, var);
        print_origins(b, t, v, n, (sym[]){f->a, f->b});
    } else if (var[m->var] == INT64_MIN) {
        explain_unknown(b, t, v, n, m, var);
    } else if (var[m->var] < 0) {
        explain_negative(b, t, v, n, m, var);
    } else {
        explain_bound(b, t, v, n, m, var);
    }
}
