// SPDX-License-Identifier: Apache-2.0
//
// Symbolic sizes: facts, constraints of a network on its sizes that their form does not imply.
//
// A fact is applied by making the sizes that it equates the same expression:
//   1. a variable that occurs once in a - b, times 1 or -1, is replaced (total := past + S);
//   2. where one variable under floors decides, its residues are tried one after the other. If those
//      that make a - b vanish are one class, x == r (mod m), the variable stands for m*(x//m) + r
//      from then on, and the polynomials do the rest;
//   3. where a min or max must be one of its operands, the inequality is a fact that bounds use;
//   4. else a floor, min or max that occurs once is replaced, or the fact is kept to be checked only.
// All forms are valid for all values of the variables, only their equality needs the facts.
// So a fact never makes a size wrong; it equates sizes that differ where it does not hold.
//
// Residues are tried in a table of their own: no variable that a trial needs is left behind.
#include "core/sym_poly.h"

#include <string.h>

enum {
    MAX_FACTS = 1000,
    MAX_PERIOD = 4096,
    TRIAL_COST = 1 << 17, /* residues times nodes */
    MAX_FLOORED = 8       /* variables tried together */
};

static const char *const kind_name[N_FACT_KINDS] = {
    [FACT_EQUAL] = "equal",
    [FACT_MULTIPLE] = "multiple",
    [FACT_AT_LEAST] = "at_least",
    [FACT_AT_MOST] = "at_most",
};

const char *sym_fact_name(enum sym_fact_kind k) { return kind_name[k]; }

bool sym_fact_parse_name(struct str s, enum sym_fact_kind *k)
{
    for (int i = 0; i < N_FACT_KINDS; i++)
        if (str_is(s, kind_name[i])) {
            *k = (enum sym_fact_kind)i;
            return true;
        }
    return false;
}

/* Expressions and facts. */

sym sym_copy_raw(struct symtab *to, const struct symtab *from, sym s)
{
    bool raw = to->raw;
    to->raw = true;
    sym r = sym_copy(to, from, s);
    to->raw = raw;
    return r;
}

sym sym_parse_raw(struct symtab *t, struct str text, struct err *e)
{
    bool raw = t->raw;
    t->raw = true;
    sym s = sym_parse(t, text, e);
    t->raw = raw;
    return s;
}

bool sym_has_var(const struct symtab *t, sym s, u32 var)
{
    const struct sym_node *x = &t->node.v[s];
    if (x->op == SYM_VAR) return x->a == var;
    if (s == 0 || x->op == SYM_CONST) return false;
    return sym_has_var(t, x->a, var) || sym_has_var(t, x->b, var);
}

/* The atom is variable k's quotient floor(k / m), and facts make of k: m*(k//m) + r. */
static bool class_of(struct symtab *t, sym atom, u32 *k, i64 *m, i64 *r)
{
    const struct sym_node *x = &t->node.v[atom];
    if (x->op != SYM_DIV || t->node.v[x->a].op != SYM_VAR || !sym_is_const(t, x->b, m)) return false;
    *k = t->node.v[x->a].a;
    if (*k >= t->def.n || !t->def.v[*k]) return false;
    struct work w = {.t = t};
    struct poly p = poly_of(&w, t->def.v[*k]);
    *r = poly_const(&p);
    bool yes = p.n >= 1 && p.n <= 2 && p.v[0].n == 1 && p.v[0].atom[0] == atom &&
               p.v[0].coef == *m && (p.n == 1 || *r != 0);
    arena_release(&w.mem);
    return yes;
}

/* The variable an atom is or is the quotient of, where it may be replaced: atom = (k - r) / m. */
static bool replaceable(struct symtab *t, sym atom, u32 *k, i64 *m, i64 *r)
{
    const struct sym_node *x = &t->node.v[atom];
    if (x->op != SYM_VAR) return class_of(t, atom, k, m, r);
    *k = x->a, *m = 1, *r = 0;
    return *k >= t->def.n || !t->def.v[*k];
}

/* Plain form. */

/* An atom times c, c the largest divisor of *coef that makes it plainer; *coef loses c. */
static sym plain_atom(struct symtab *t, sym atom, i64 *coef)
{
    struct sym_node x = t->node.v[atom];
    u32 k;
    i64 m, r;
    if (x.op == SYM_VAR) return sym_var_at(t, x.a);
    if (class_of(t, atom, &k, &m, &r)) {
        i64 g = m, rest = *coef;
        while (rest) {
            i64 z = g % rest;
            g = rest, rest = z;
        }
        g = g < 0 ? -g : g;
        *coef /= g;
        sym n = sym_sub(t, sym_var_at(t, k), sym_const(t, r));
        return sym_div(t, n, sym_const(t, m / g));
    }
    sym a = sym_plain(t, x.a), b = sym_plain(t, x.b);
    if (x.op == SYM_DIV) return sym_div(t, a, b);
    return x.op == SYM_MIN ? sym_min(t, a, b) : sym_max(t, a, b);
}

sym sym_plain(struct symtab *t, sym s)
{
    if (!t->fact.n || !sym_is_defined(t, s)) return s;
    struct work w = {.t = t};
    bool raw = t->raw;
    struct poly p = poly_of(&w, s);
    sym sum = sym_const(t, 0);
    t->raw = true;
    for (u32 i = 0; i < p.n; i++) {
        i64 c = p.v[i].coef;
        sym one = sym_const(t, 1);
        for (u32 j = 0; j < p.v[i].n; j++) one = sym_mul(t, one, plain_atom(t, p.v[i].atom[j], &c));
        sum = sym_add(t, sum, sym_mul(t, one, sym_const(t, c)));
    }
    t->raw = raw;
    arena_release(&w.mem);
    return sum;
}

/* Recording. */

void sym_fact_note(struct symtab *t, enum sym_fact_kind k, sym a, sym b, struct str origin)
{
    struct str copy = str_dup(t->arena, origin);
    t->n_noted++;
    *arr_push(t->arena, &t->fact) = (struct sym_fact){.kind = k, .a = a, .b = b, .origin = copy};
}

static sym difference(struct symtab *t, const struct sym_fact *f)
{
    sym a = sym_copy(t, t, f->a), b = sym_copy(t, t, f->b);
    return f->kind == FACT_MULTIPLE ? sym_mod(t, a, b) : sym_sub(t, a, b);
}

static bool is_zero(const struct symtab *t, sym s)
{
    i64 v;
    return sym_is_const(t, s, &v) && v == 0;
}

/* Everything that facts make of sizes, brought up to date with the newest one. */
static void refresh(struct symtab *t)
{
    /* Weaker facts implied by the values of variables. */
    u32 n = 0, n_alias = t->alias.n;
    t->alias.n = 0;
    for (u32 k = 0; k < t->fact.n; k++)
        if (!t->fact.v[k].is_weak || !is_zero(t, difference(t, &t->fact.v[k]))) t->fact.v[n++] = t->fact.v[k];
    t->fact.n = n;
    t->alias.n = n_alias;
    for (u32 k = 0; k < t->def.n; k++)
        if (t->def.v[k]) {
            sym s = sym_copy(t, t, t->def.v[k]);
            t->def.v[k] = s;
        }
    for (u32 k = 0; k < t->alias.n; k++) {
        sym s = sym_copy(t, t, t->alias.v[k].to);
        t->alias.v[k].to = s;
    }
    for (u32 k = 0; k < t->fact.n; k++) {
        sym s = difference(t, &t->fact.v[k]);
        t->fact.v[k].rest = s;
    }
}

/* Of a variable, for proofs. */
static void keep_bound(struct symtab *t, enum sym_fact_kind k, sym a, sym b)
{
    i64 c;
    if (t->node.v[a].op != SYM_VAR || !sym_is_const(t, b, &c)) return;
    while (t->bound.n <= t->node.v[a].a) *arr_push(t->arena, &t->bound) = (struct sym_bounds){0, INT64_MAX};
    struct sym_bounds *x = &t->bound.v[t->node.v[a].a];
    if (k == FACT_AT_LEAST) x->least = i64_max(x->least, c);
    if (k == FACT_AT_MOST) x->most = i64_min(x->most, c);
}

/* Bounds follow the bounded size: "H to be at most 1", not "1 to be at least H". */
static void note(struct symtab *t, enum sym_fact_kind k, sym a, sym b, struct str origin)
{
    keep_bound(t, k, a, b);
    bool turn = sym_is_const(t, a, NULL) && !sym_is_const(t, b, NULL) && (k == FACT_AT_LEAST || k == FACT_AT_MOST);
    if (turn) return note(t, k == FACT_AT_LEAST ? FACT_AT_MOST : FACT_AT_LEAST, b, a, origin);
    sym_fact_note(t, k, sym_plain(t, a), sym_plain(t, b), origin);
}

static void define(struct symtab *t, u32 k, sym value)
{
    while (t->def.n <= k) *arr_push(t->arena, &t->def) = 0;
    t->def.v[k] = value;
}

/* x == r (mod m) from now on. */
static void define_class(struct symtab *t, u32 k, i64 m, i64 r, struct str origin)
{
    bool raw = t->raw;
    t->raw = true;
    sym x = sym_var_at(t, k), q = sym_div(t, x, sym_const(t, m));
    sym less = sym_sub(t, x, sym_const(t, r));
    sym value = sym_add(t, sym_mul(t, q, sym_const(t, m)), sym_const(t, r));
    t->raw = raw;
    sym_fact_note(t, FACT_MULTIPLE, less, sym_const(t, m), origin);
    define(t, k, value);
    refresh(t);
}

/* 1: replacing a variable. */

struct choice { /* term `at` of the difference is +-(k - r) / m */
    u32 at, k;
    i64 m, r;
    bool positive; /* its replacement has no negative term */
};

static bool occurs_elsewhere(const struct symtab *t, const struct poly *d, u32 at, u32 var)
{
    for (u32 i = 0; i < d->n; i++)
        for (u32 j = 0; i != at && j < d->v[i].n; j++)
            if (sym_has_var(t, d->v[i].atom[j], var)) return true;
    return false;
}

static bool all_of_sign(const struct poly *d, u32 but, bool negative)
{
    for (u32 i = 0; i < d->n; i++)
        if (i != but && (d->v[i].coef < 0) != negative) return false;
    return true;
}

static bool choose_variable(struct symtab *t, const struct poly *d, struct choice *out)
{
    bool found = false;
    for (u32 i = 0; i < d->n; i++) {
        const struct term *x = &d->v[i];
        struct choice c = {.at = i};
        if (x->n != 1 || (x->coef != 1 && x->coef != -1)) continue;
        if (!replaceable(t, x->atom[0], &c.k, &c.m, &c.r)) continue;
        if (occurs_elsewhere(t, d, i, c.k)) continue;
        c.positive = all_of_sign(d, i, x->coef > 0);
        bool better = c.positive != out->positive ? c.positive : c.k > out->k;
        if (!found || better) *out = c;
        found = true;
    }
    return found;
}

/* The other terms, negated if term `at` is positive: the value of term `at`. */
static sym solve_for(struct work *w, const struct poly *d, u32 at)
{
    struct poly rest = {0};
    for (u32 i = 0; i < d->n; i++) {
        struct term x = d->v[i];
        if (d->v[at].coef > 0) x.coef = -x.coef;
        if (i != at) poly_add_term(w, &rest, x);
    }
    return poly_build(w, &rest);
}

static bool replace_variable(struct symtab *t, sym d, struct str origin)
{
    struct work w = {.t = t};
    struct poly p = poly_of(&w, d);
    struct choice c = {0};
    i64 g = poly_gcd(&p, 0, true);
    p = poly_exact(&w, &p, g ? g : 1);
    bool ok = !p.bad && choose_variable(t, &p, &c);
    sym value = ok ? solve_for(&w, &p, c.at) : 0;
    arena_release(&w.mem);
    if (!ok || !sym_is_defined(t, value)) return false;
    value = sym_add(t, sym_mul(t, value, sym_const(t, c.m)), sym_const(t, c.r));
    note(t, FACT_EQUAL, sym_cons(t, SYM_VAR, c.k, 0, 0), value, origin);
    define(t, c.k, value);
    refresh(t);
    return true;
}

/* 2: residues. */

struct floored { /* a variable under floors */
    u32 var;     /* in the trial's table */
    i64 period;  /* 0: a floor that has none */
};

struct trial {
    struct arena arena;
    struct symtab t;
    sym d;
    struct floored v[MAX_FLOORED];
    u32 n;
    u32 n_vars; /* in all */
};

static i64 gcd(i64 a, i64 b)
{
    while (b) {
        i64 r = a % b;
        a = b, b = r;
    }
    return a < 0 ? -a : a;
}

static i64 lcm(i64 a, i64 b)
{
    i64 v;
    if (!a || !b || __builtin_mul_overflow(a / gcd(a, b), b, &v) || v > MAX_PERIOD) return 0;
    return v;
}

/* A floor in a floor has the product of their periods at most; where that is too much the least one is tried. */
static i64 nested(i64 outer, i64 c) { return outer <= MAX_PERIOD / c ? outer * c : lcm(outer, c); }

static void add_floor(struct trial *x, u32 var, i64 divisor)
{
    u32 k = 0;
    while (k < x->n && x->v[k].var != var) k++;
    if (k == MAX_FLOORED) return;
    if (k == x->n) x->v[x->n++] = (struct floored){var, 1};
    x->v[k].period = lcm(x->v[k].period, divisor);
}

static u32 count_vars(const struct symtab *t, sym s)
{
    u32 n = 0;
    for (u32 k = 0; k < t->var.n; k++) n += sym_has_var(t, s, k);
    return n;
}

/* A floor of several variables has no period in one of them: (B*S)//4. */
static void find_floors(struct trial *x, sym s, i64 divisor)
{
    const struct sym_node *n = &x->t.node.v[s];
    i64 c = 0;
    if (n->op == SYM_VAR && divisor != 1) add_floor(x, n->a, divisor);
    if (n->op == SYM_VAR || n->op == SYM_CONST) return;
    bool is_floor = n->op == SYM_DIV;
    bool is_single = is_floor && sym_is_const(&x->t, n->b, &c) && c > 0 && count_vars(&x->t, s) == 1;
    if (is_floor) divisor = is_single ? nested(divisor, c) : 0;
    find_floors(x, n->a, divisor);
    find_floors(x, n->b, divisor);
}

static void trial_open(struct trial *x, const struct symtab *from, sym d)
{
    *x = (struct trial){0};
    symtab_init(&x->t, &x->arena);
    x->d = sym_copy(&x->t, from, d);
    x->n_vars = x->t.var.n;
    find_floors(x, x->d, 1);
}

/* Variable v is m*k + r from now on, k a variable of its own. */
static void trial_set(struct trial *x, u32 var, i64 m, i64 r)
{
    struct symtab *t = &x->t;
    struct str name = str_fmt(&x->arena, "%u\001", var);
    sym k = sym_mul(t, sym_var(t, name), sym_const(t, m));
    define(t, var, sym_add(t, k, sym_const(t, r)));
}

static bool trial_is_zero(struct trial *x) { return is_zero(&x->t, sym_copy(&x->t, &x->t, x->d)); }

/* The residue class of a variable of the table: 1, 0 if nothing is known. false: it is replaced. */
static bool known_class(struct symtab *t, u32 k, i64 *m, i64 *r)
{
    u32 same;
    *m = 1, *r = 0;
    if (k >= t->def.n || !t->def.v[k]) return true;
    struct work w = {.t = t};
    struct poly p = poly_of(&w, t->def.v[k]);
    bool yes = p.n && p.v[0].n == 1 && class_of(t, p.v[0].atom[0], &same, m, r) && same == k;
    arena_release(&w.mem);
    return yes;
}

static u32 var_in(struct symtab *t, const struct trial *x, u32 var)
{
    for (u32 k = 0; k < t->var.n; k++)
        if (str_eq(t->var.v[k], x->t.var.v[var])) return k;
    unreachable();
}

static bool never_zero(struct symtab *t, sym d);

/* Smaller or larger of two, of which the variable decides: residues alone do not tell when that vanishes. */
static bool has_extreme(const struct symtab *t, sym s, u32 var)
{
    const struct sym_node *x = &t->node.v[s];
    if (s == 0 || x->op == SYM_CONST || x->op == SYM_VAR) return false;
    if (x->op == SYM_MIN || x->op == SYM_MAX) return sym_has_var(t, s, var);
    return has_extreme(t, x->a, var) || has_extreme(t, x->b, var);
}

/* The residues of one variable that make the difference vanish, if they are one class. */
static bool find_class(struct trial *x, const struct floored *f, i64 m0, i64 r0, i64 *m, i64 *r)
{
    i64 period = lcm(f->period, m0), n = 0;
    if (period <= 1 || period / m0 * x->t.node.v[x->d].size > TRIAL_COST) return false;
    u8 *zero = arena_array(&x->arena, u8, period);
    *r = -1;
    bool aperiodic = has_extreme(&x->t, x->d, f->var), sure = true;
    for (i64 k = r0; k < period; k += m0) {
        trial_set(x, f->var, period, k);
        zero[k] = trial_is_zero(x);
        sure = sure && (zero[k] || !aperiodic || never_zero(&x->t, sym_copy(&x->t, &x->t, x->d)));
        if (zero[k] && *r < 0) *r = k;
        n += zero[k];
    }
    x->t.def.v[f->var] = 0;
    if (!n || !sure || period % n) return false;
    *m = period / n;
    for (i64 k = 0; k < period; k++)
        if (zero[k] != (k >= *r && (k - *r) % *m == 0)) return false;
    return *m > m0;
}

/* All variables under floors multiples together; then each of as little as will do. */
static bool find_multiples(struct trial *x, i64 *m)
{
    i64 total = 0;
    for (u32 k = 0; k < x->n; k++) {
        if (!x->v[k].period) return false;
        m[k] = x->v[k].period, total += m[k];
        trial_set(x, x->v[k].var, m[k], 0);
    }
    if (!x->n || total * x->t.node.v[x->d].size > TRIAL_COST || !trial_is_zero(x)) return false;
    for (u32 k = 0; k < x->n; k++)
        for (i64 p = 2; p <= m[k]; p++)
            while (m[k] % p == 0) {
                trial_set(x, x->v[k].var, m[k] / p, 0);
                if (!trial_is_zero(x)) break;
                m[k] /= p;
            }
    return true;
}

static bool use_multiples(struct symtab *t, struct trial *x, struct str origin)
{
    i64 m[MAX_FLOORED], m0, r0;
    if (x->n < 2) return false; /* of one variable, decided by residues */
    for (u32 k = 0; k < x->n; k++)
        if (!known_class(t, var_in(t, x, x->v[k].var), &m0, &r0) || r0) return false;
    if (!find_multiples(x, m)) return false;
    for (u32 k = 0; k < x->n; k++) {
        u32 var = var_in(t, x, x->v[k].var);
        known_class(t, var, &m0, &r0);
        if (m[k] % m0) m[k] = lcm(m[k], m0);
        if (m[k] > m0) define_class(t, var, m[k], 0, origin);
    }
    return true;
}

static bool use_residues(struct symtab *t, sym d, struct str origin)
{
    struct trial x;
    bool done = false;
    trial_open(&x, t, d);
    for (u32 k = 0; k < x.n && !done; k++) {
        u32 var = var_in(t, &x, x.v[k].var);
        i64 m0, r0, m, r;
        if (!x.v[k].period || !known_class(t, var, &m0, &r0)) continue;
        done = find_class(&x, &x.v[k], m0, r0, &m, &r);
        if (done) define_class(t, var, m, r, origin);
    }
    done = done || use_multiples(t, &x, origin);
    arena_release(&x.arena);
    return done;
}

/* 3 and 4: floors, min and max. */

/* The atom is that expression from now on. */
static void add_alias(struct symtab *t, sym atom, sym value)
{
    *arr_push(t->arena, &t->alias) = (struct sym_pair){atom, value};
}

/* If the atom's being one of its operands settles it: that inequality. */
static bool use_operand(struct symtab *t, sym d, sym atom, struct str origin)
{
    struct sym_node x = t->node.v[atom];
    if (x.op != SYM_MIN && x.op != SYM_MAX) return false;
    for (int k = 0; k < 2; k++) {
        sym is = k ? x.b : x.a, other = k ? x.a : x.b;
        add_alias(t, atom, is);
        bool settles = is_zero(t, sym_copy(t, t, d));
        if (!settles) {
            t->alias.n--;
            continue;
        }
        note(t, x.op == SYM_MIN ? FACT_AT_MOST : FACT_AT_LEAST, is, other, origin);
        refresh(t);
        return true;
    }
    return false;
}

/* Whether atom `a` occurs in an expression. */
static bool has_atom(const struct symtab *t, sym s, sym a)
{
    const struct sym_node *x = &t->node.v[s];
    if (s == a) return true;
    if (s == 0 || x->op == SYM_CONST || x->op == SYM_VAR) return false;
    return has_atom(t, x->a, a) || has_atom(t, x->b, a);
}

/* Under a floor the other operand may do, too. */
static bool is_inside(const struct symtab *t, const struct poly *p, sym atom)
{
    for (u32 i = 0; i < p->n; i++)
        for (u32 j = 0; j < p->v[i].n; j++)
            if (p->v[i].atom[j] != atom && has_atom(t, p->v[i].atom[j], atom)) return true;
    return false;
}

static bool use_extremes(struct symtab *t, sym d, struct str origin)
{
    struct work w = {.t = t};
    struct poly p = poly_of(&w, d);
    bool done = false;
    for (u32 i = 0; i < p.n && !done; i++)
        for (u32 j = 0; j < p.v[i].n && !done; j++)
            done = !is_inside(t, &p, p.v[i].atom[j]) && use_operand(t, d, p.v[i].atom[j], origin);
    arena_release(&w.mem);
    return done;
}

/* The atom of the difference that may be replaced: the largest, the last of equal ones. */
static bool choose_atom(const struct symtab *t, const struct poly *d, u32 *at)
{
    bool found = false;
    for (u32 i = 0; i < d->n; i++) {
        const struct term *x = &d->v[i];
        if (x->n != 1 || (x->coef != 1 && x->coef != -1)) continue;
        bool only = t->node.v[x->atom[0]].op != SYM_VAR;
        for (u32 k = 0; k < d->n && only; k++)
            for (u32 j = 0; k != i && j < d->v[k].n; j++) only &= !has_atom(t, d->v[k].atom[j], x->atom[0]);
        if (!only) continue;
        if (found && t->node.v[x->atom[0]].size < t->node.v[d->v[*at].atom[0]].size) continue;
        *at = i;
        found = true;
    }
    return found;
}

static void replace_atom(struct symtab *t, sym d)
{
    struct work w = {.t = t};
    struct poly p = poly_of(&w, d);
    u32 at = 0;
    i64 g = poly_gcd(&p, 0, true);
    p = poly_exact(&w, &p, g ? g : 1);
    if (!p.bad && choose_atom(t, &p, &at)) {
        sym value = solve_for(&w, &p, at);
        if (sym_is_defined(t, value)) add_alias(t, p.v[at].atom[0], value);
    }
    arena_release(&w.mem);
}

/* Requiring. */

/* The difference is never 0: it has a sign, or no value of its only variable makes it so. */
static bool never_zero(struct symtab *t, sym d)
{
    i64 lo, v;
    sym neg = sym_sub(t, sym_const(t, 0), d);
    if (sym_lower_bound(t, d, &lo) && lo > 0) return true;
    if (sym_lower_bound(t, neg, &lo) && lo > 0) return true;
    struct trial x;
    trial_open(&x, t, d);
    bool never = x.n_vars == 1 && x.n == 1 && x.v[0].period;
    i64 end = never ? 2 * x.v[0].period : 0, first = 0;
    for (i64 k = 0; k < end && never; k++) { /* periodic: one period decides */
        never = sym_eval(&x.t, x.d, &k, &v) && v != 0;
        if (k < x.v[0].period) continue;
        i64 before = k - x.v[0].period;
        never = never && sym_eval(&x.t, x.d, &before, &first) && first == v;
    }
    arena_release(&x.arena);
    return never;
}

static bool is_known(struct symtab *t, sym d)
{
    sym neg = sym_sub(t, sym_const(t, 0), d);
    for (u32 k = 0; k < t->fact.n; k++)
        if (t->fact.v[k].kind == FACT_EQUAL && (t->fact.v[k].rest == d || t->fact.v[k].rest == neg))
            return true;
    return false;
}

static bool equate(struct symtab *t, sym d, enum sym_fact_kind kind, sym a, sym b, struct str origin)
{
    i64 v;
    if (sym_is_const(t, d, &v)) return v == 0;
    if (!sym_is_defined(t, d) || never_zero(t, d)) return false;
    if (t->closed || is_known(t, d)) return true;
    if (t->fact.n >= MAX_FACTS) return false;
    if (replace_variable(t, d, origin) || use_residues(t, d, origin) || use_extremes(t, d, origin)) return true;
    note(t, kind, a, b, origin);
    t->fact.v[t->fact.n - 1].is_weak = true;
    replace_atom(t, d);
    refresh(t);
    return true;
}

bool sym_require_equal(struct symtab *t, sym a, sym b, struct str origin)
{
    if (a == b) return a != 0;
    a = sym_current(t, a), b = sym_current(t, b);
    return equate(t, sym_sub(t, a, b), FACT_EQUAL, a, b, origin);
}

bool sym_require_multiple(struct symtab *t, sym a, i64 b, struct str origin)
{
    i64 v;
    if (!a || b <= 0) return false;
    a = sym_current(t, a);
    if (sym_is_const(t, a, &v)) return v % b == 0;
    if (sym_divides(t, b, a)) return true;
    sym c = sym_const(t, b), d = sym_mod(t, a, c);
    for (u32 k = 0; k < t->fact.n; k++)
        if (t->fact.v[k].kind == FACT_MULTIPLE && t->fact.v[k].rest == d) return true;
    return equate(t, d, FACT_MULTIPLE, a, c, origin);
}

static bool is_not_negative(struct symtab *t, sym s)
{
    struct work w = {.t = t};
    struct poly p = poly_of(&w, s);
    bool yes = poly_not_negative(&w, &p);
    arena_release(&w.mem);
    return yes;
}

/* The only variable of an expression that never falls when it grows; false: more than one, or it may fall. */
static bool only_rises(const struct symtab *t, sym s, u32 *var)
{
    const struct sym_node *x = &t->node.v[s];
    i64 c = 0;
    switch (x->op) {
    case SYM_CONST: return true;
    case SYM_VAR:
        if (*var == UINT32_MAX) *var = x->a;
        return *var == x->a;
    case SYM_MUL:
    case SYM_DIV: return sym_is_const(t, x->b, &c) && c > 0 && only_rises(t, x->a, var);
    case SYM_ADD:
    case SYM_MIN:
    case SYM_MAX: return only_rises(t, x->a, var) && only_rises(t, x->b, var);
    }
    unreachable();
}

enum { MOST_LEAST = 1 << 30 };

/* floor(H/4) - 3 >= 0 says that H is at least 12. */
static bool find_least(const struct symtab *t, sym d, u32 *var, i64 *least)
{
    u32 v = UINT32_MAX;
    i64 lo = -1, hi = MOST_LEAST, y;
    if (!only_rises(t, d, &v) || v == UINT32_MAX) return false;
    i64 *x = mem_alloc((i64)sizeof *x * (v + 1)); /* the others are not examined */
    x[v] = hi;
    bool ok = sym_eval(t, d, x, &y) && y >= 0;
    while (ok && hi - lo > 1) {
        x[v] = lo + (hi - lo) / 2;
        ok = sym_eval(t, d, x, &y);
        if (y >= 0) hi = x[v];
        else lo = x[v];
    }
    mem_free(x);
    *var = v, *least = hi;
    return ok;
}

/* Removes weaker facts about the same variable, which the new one implies. */
static void drop_weaker(struct symtab *t, enum sym_fact_kind kind, sym x, i64 bound)
{
    u32 n = 0;
    for (u32 k = 0; k < t->fact.n; k++) {
        i64 c;
        const struct sym_fact *f = &t->fact.v[k];
        bool weaker = f->kind == kind && f->a == x && sym_is_const(t, f->b, &c) && (kind == FACT_AT_LEAST ? c <= bound : c >= bound);
        if (!weaker) t->fact.v[n++] = *f;
    }
    t->fact.n = n;
}

/* The variable is at least, or at most, that. */
static bool note_bound(struct symtab *t, enum sym_fact_kind kind, u32 var, i64 bound, struct str origin)
{
    bool least = kind == FACT_AT_LEAST;
    sym x = sym_cons(t, SYM_VAR, var, 0, 0), now = sym_current(t, x), c = sym_const(t, bound), none = sym_const(t, least ? bound - 1 : bound + 1);
    if (bound < 0) return least;
    if (is_not_negative(t, least ? sym_sub(t, now, c) : sym_sub(t, c, now))) return true;
    if (is_not_negative(t, least ? sym_sub(t, none, now) : sym_sub(t, now, none))) return false;
    if (t->closed) return true;
    if (t->fact.n >= MAX_FACTS) return false;
    drop_weaker(t, kind, x, bound);
    note(t, kind, x, c, origin);
    refresh(t);
    return true;
}

bool sym_require_at_least(struct symtab *t, sym a, sym b, struct str origin)
{
    i64 v;
    u32 var;
    if (!a || !b) return false;
    a = sym_current(t, a), b = sym_current(t, b);
    sym d = sym_sub(t, a, b);
    if (sym_is_const(t, d, &v)) return v >= 0;
    if (!sym_is_defined(t, d)) return false;
    if (is_not_negative(t, d)) return true;
    sym less = sym_sub(t, sym_sub(t, b, a), sym_const(t, 1)); /* b > a */
    if (find_least(t, d, &var, &v)) return note_bound(t, FACT_AT_LEAST, var, v, origin);
    if (find_least(t, less, &var, &v)) return note_bound(t, FACT_AT_MOST, var, v - 1, origin);
    if (is_not_negative(t, less)) return false;
    if (t->closed) return true;
    if (t->fact.n >= MAX_FACTS) return false;
    note(t, FACT_AT_LEAST, a, b, origin);
    refresh(t);
    return true;
}

bool sym_require(struct symtab *t, enum sym_fact_kind k, sym a, sym b, struct str origin)
{
    i64 v;
    switch (k) {
    case FACT_EQUAL: return sym_require_equal(t, a, b, origin);
    case FACT_MULTIPLE: return sym_is_const(t, b, &v) && sym_require_multiple(t, a, v, origin);
    case FACT_AT_LEAST: return sym_require_at_least(t, a, b, origin);
    case FACT_AT_MOST: return sym_require_at_least(t, b, a, origin);
    case N_FACT_KINDS: break;
    }
    unreachable();
}

/* Checking. */

static const char *const fact_verb[N_FACT_KINDS] = {" to be ", " to be a multiple of ", " to be at least ", " to be at most "};

void sym_fact_print(struct buf *b, const struct symtab *t, const struct sym_fact *f)
{
    sym_print(b, t, f->a);
    buf_z(b, fact_verb[f->kind]);
    sym_print(b, t, f->b);
}

bool sym_fact_eval(const struct symtab *t, const struct sym_fact *f, const i64 *var, bool *holds)
{
    i64 a, b;
    if (!sym_eval(t, f->a, var, &a) || !sym_eval(t, f->b, var, &b)) return false;
    switch (f->kind) {
    case FACT_EQUAL: *holds = a == b; return true;
    case FACT_MULTIPLE: *holds = b > 0 && a % b == 0; return true;
    case FACT_AT_LEAST: *holds = a >= b; return true;
    case FACT_AT_MOST: *holds = a <= b; return true;
    case N_FACT_KINDS: break;
    }
    unreachable();
}

static bool has_unbound(const struct symtab *t, sym s, const i64 *var);

/* What has no value at sizes that are known (it overflows, or divides by 0) does not hold. */
const struct sym_fact *sym_fact_broken(const struct symtab *t, const i64 *var)
{
    for (u32 k = 0; k < t->fact.n; k++) {
        const struct sym_fact *f = &t->fact.v[k];
        bool holds;
        if (sym_fact_eval(t, f, var, &holds) ? !holds : !has_unbound(t, f->a, var) && !has_unbound(t, f->b, var)) return f;
    }
    return NULL;
}

void sym_print_vars(struct buf *to, const struct symtab *t, sym a, sym b, const i64 *var)
{
    bool first = true;
    for (u32 k = 0; k < t->var.n; k++) {
        if (!sym_has_var(t, a, k) && !sym_has_var(t, b, k)) continue;
        buf_printf(to, "%s%.*s = %lld", first ? "" : ", ", STR_ARG(t->var.v[k]), (long long)var[k]);
        first = false;
    }
}

/* Names and numbers are printed alone, expressions with their value. */
static void print_side(struct buf *b, const struct symtab *t, sym s, const i64 *var)
{
    i64 v;
    enum sym_op op = t->node.v[s].op;
    sym_print(b, t, s);
    if (op != SYM_CONST && op != SYM_VAR && sym_eval(t, s, var, &v)) buf_printf(b, " (%lld)", (long long)v);
}

void sym_fact_explain(struct buf *b, const struct symtab *t, const struct sym_fact *f,
                      const i64 *var)
{
    sym_print_vars(b, t, f->a, f->b, var);
    buf_printf(b, ", but %.*s needs ", STR_ARG(f->origin));
    print_side(b, t, f->a, var);
    buf_z(b, fact_verb[f->kind]);
    print_side(b, t, f->b, var);
}

/* Binding. */

/* Splits a sum into c * variable + the value of the rest. false: more than one variable, or it is
   not that simple. *n: occurrences of unbound variables that were found. */
struct linear {
    u32 var;
    i64 c, rest;
    u32 n;
};

static bool has_unbound(const struct symtab *t, sym s, const i64 *var)
{
    const struct sym_node *x = &t->node.v[s];
    if (x->op == SYM_VAR) return var[x->a] == INT64_MIN;
    if (x->op == SYM_CONST) return false;
    return has_unbound(t, x->a, var) || has_unbound(t, x->b, var);
}

static bool split_linear(const struct symtab *t, sym s, const i64 *var, struct linear *l)
{
    i64 v;
    const struct sym_node *x = &t->node.v[s];
    if (!has_unbound(t, s, var)) return sym_eval(t, s, var, &v) && !__builtin_add_overflow(l->rest, v, &l->rest);
    if (x->op == SYM_ADD) return split_linear(t, x->a, var, l) && split_linear(t, x->b, var, l);
    l->c = 1;
    if (x->op == SYM_MUL && sym_is_const(t, x->b, &l->c)) x = &t->node.v[x->a];
    l->var = x->a;
    return x->op == SYM_VAR && l->n++ == 0;
}

bool sym_solve(const struct symtab *t, sym s, i64 v, i64 *var)
{
    struct linear l = {0};
    i64 d;
    if (s == 0 || !has_unbound(t, s, var) || !split_linear(t, s, var, &l)) return false;
    if (__builtin_sub_overflow(v, l.rest, &d) || d == INT64_MIN) d = 0;
    var[l.var] = i64_max(floor_div(d, l.c), 0);
    return true;
}

/* Adjusting. */

void sym_fact_adjust_one(const struct symtab *t, const struct sym_fact *f, i64 *var, const bool *fixed)
{
    i64 a, b, want;
    u32 v = 0;
    if (!sym_eval(t, f->a, var, &a) || !sym_eval(t, f->b, var, &b)) return;
    while (v < t->var.n && (fixed[v] || !sym_has_var(t, f->a, v))) v++;
    if (v == t->var.n || (f->kind == FACT_MULTIPLE && b < 1)) return;
    switch (f->kind) {
    case FACT_EQUAL: want = b; break;
    case FACT_MULTIPLE: want = floor_div(a, b) * b; break;
    case FACT_AT_LEAST: want = i64_max(a, b); break;
    case FACT_AT_MOST: want = i64_min(a, b); break;
    case N_FACT_KINDS:
    default: unreachable();
    }
    i64 was = var[v];
    var[v] = INT64_MIN;
    if (want == a || !sym_solve(t, f->a, want, var)) var[v] = was;
}

void sym_fact_adjust(const struct symtab *t, i64 *var, const bool *fixed)
{
    enum { MAX_PASSES = 4 };
    for (int pass = 0; pass < MAX_PASSES && sym_fact_broken(t, var); pass++)
        for (u32 k = 0; k < t->fact.n; k++) sym_fact_adjust_one(t, &t->fact.v[k], var, fixed);
}
