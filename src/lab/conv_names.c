// SPDX-License-Identifier: Apache-2.0
//
// Implementations of convolutions by name: the parameters of a family's schedule that a name fixes, and those that may be searched
// (conv_names.inc). The schedule is the nearest legal one: distance counts the values between a parameter and the name's first choice.
#include "lab/conv.h"

#include <string.h>

struct entry {
    struct conv_impl impl;
    const char *on[2]; /* GPUs, CPUs */
};

static const struct entry entries[] = {
#define CONV_IMPL(name, last, what, gpu, cpu) {{name, what, last}, {gpu, cpu}},
#include "lab/conv_names.inc"
#undef CONV_IMPL
};

enum {
    MAX_VALUES = 32,   /* of a parameter */
    MAX_TRIES = 200000 /* schedules tested for legality */
};

const struct conv_impl *conv_impl_at(u32 i) { return i < countof(entries) ? &entries[i].impl : NULL; }

const struct conv_impl *conv_impl_find(struct str name)
{
    for (u32 i = 0; i < countof(entries); i++)
        if (str_is(name, entries[i].impl.name)) return &entries[i].impl;
    return NULL;
}

/* Reading an entry. */

struct choice { /* values of one parameter, the preferred one first */
    i32 v[MAX_VALUES];
    u32 n;
    bool is_fixed; /* other values contradict the name */
    bool is_named;
};
struct rule {
    const struct gen *gen;
    struct choice of[MAX_SCHED];
};

static void put_value(struct choice *c, i32 v)
{
    for (u32 i = 0; i < c->n; i++)
        if (c->v[i] == v) return;
    assert(c->n < MAX_VALUES);
    c->v[c->n++] = v;
}

static u32 index_of(const struct gen_param *p, i32 v)
{
    for (u32 i = 0; i < p->n; i++)
        if (p->values[i] == v) return i;
    return p->n;
}

/* All values, by distance from one of them. */
static void put_all(struct choice *c, const struct gen_param *p, i32 first)
{
    u32 at = index_of(p, first);
    put_value(c, first);
    for (u32 d = 1; d < p->n; d++) {
        if (at >= d) put_value(c, p->values[at - d]);
        if (at + d < p->n) put_value(c, p->values[at + d]);
    }
}

/* "name=1|2" or "name~4"; false: the table is wrong, see test/test_lab_conv_names.c */
static bool read_choice(struct rule *r, struct str word)
{
    struct str name, values, v;
    bool is_free = str_cut(word, '~', &name, &values);
    if (!is_free && !str_cut(word, '=', &name, &values)) return false;
    for (u32 i = 0; i < r->gen->n_param; i++) {
        const struct gen_param *p = &r->gen->param[i];
        struct choice *c = &r->of[i];
        if (!str_is(name, p->name)) continue;
        c->is_named = true, c->is_fixed = !is_free;
        while (values.n) {
            i64 x;
            str_cut(values, '|', &v, &values);
            if (!str_to_i64(v, &x) || index_of(p, (i32)x) == p->n) return false;
            if (c->is_fixed) put_value(c, (i32)x);
            else put_all(c, p, (i32)x);
        }
        return c->n > 0;
    }
    return false;
}

static bool read_rule(struct rule *r, struct str text)
{
    struct str word, rest = str_trim(text);
    *r = (struct rule){0};
    str_cut(rest, ' ', &word, &rest);
    r->gen = gen_find(word);
    while (r->gen && rest.n) {
        str_cut(rest, ' ', &word, &rest);
        if (!read_choice(r, word)) return false;
    }
    return r->gen != NULL;
}

static struct str text_for(const struct conv_impl *x, const struct caps *c)
{
    const struct entry *e = (const struct entry *)(const void *)x; /* its first member */
    const char *text = e->on[c->is_gpu ? 0 : 1];
    return text ? str_of(text) : (struct str){0};
}

/* The alternatives of an entry, one after the other. */
static bool next_rule(struct str *text, struct rule *r)
{
    struct str one;
    if (!text->n) return false;
    str_cut(*text, '/', &one, text);
    bool ok = read_rule(r, one);
    assert(ok);
    return ok;
}

bool conv_impl_check(const struct conv_impl *x, const struct caps *c)
{
    struct str text = text_for(x, c), one;
    while (text.n) {
        struct rule r;
        str_cut(text, '/', &one, &text);
        if (!read_rule(&r, one)) return false;
    }
    return true;
}

/* Schedules. */

struct wanted {
    const struct task *t;
    const struct caps *caps;
    const i64 *var;
};

/* Parameters that the name leaves to the family. */
static void complete(struct rule *r, const struct wanted *s)
{
    bool all = true;
    for (u32 i = 0; i < r->gen->n_param; i++) all &= r->of[i].is_named;
    if (all) return;
    struct candidate c = gen_initial(r->gen, s->t, s->caps, s->var);
    for (u32 i = 0; i < r->gen->n_param; i++)
        if (!r->of[i].is_named) put_all(&r->of[i], &r->gen->param[i], c.sched.v[i]);
}

struct walk {
    const struct rule *r;
    struct gen_problem problem;
    struct candidate *c;
    i64 tries;
};

static bool is_legal(struct walk *w)
{
    w->tries++;
    return gen_problem_allows(&w->problem, &w->c->sched);
}

/* Parameters from p on, at distance `left` from the preferred values. */
static bool walk(struct walk *w, u32 p, u32 left)
{
    if (p == w->r->gen->n_param) return left == 0 && is_legal(w);
    const struct choice *c = &w->r->of[p];
    for (u32 i = 0; i < c->n && i <= left && w->tries < MAX_TRIES; i++) {
        w->c->sched.v[p] = c->v[i];
        if (walk(w, p + 1, left - i)) return true;
    }
    return false;
}

static bool nearest_legal(const struct rule *r, const struct wanted *s, struct candidate *c)
{
    struct walk w = {.r = r, .c = c};
    u32 most = 0;
    for (u32 i = 0; i < r->gen->n_param; i++) most += r->of[i].n - 1;
    bool found = false;
    *c = (struct candidate){.gen = r->gen};
    if (!gen_problem_open(&w.problem, r->gen, s->t, s->caps, s->var)) return false;
    for (u32 d = 0; d <= most && w.tries < MAX_TRIES && !found; d++) found = walk(&w, 0, d);
    gen_problem_close(&w.problem);
    return found;
}

bool conv_impl_candidate(const struct conv_impl *x, const struct task *t, const struct caps *caps, const i64 *var, struct candidate *out,
                         struct err *e)
{
    struct str text = text_for(x, caps);
    struct wanted s = {t, caps, var};
    const char *family = NULL;
    bool takes = false;
    if (op_of(&t->g, t->anchor)->props & OP_CONV_GRAD)
        return err_set(e, ERR_UNSUPPORTED, "'%s' is a way to convolve, which gradients of weights are not; 'tuned' has them", x->name);
    for (struct rule r; next_rule(&text, &r);) {
        family = r.gen->name;
        if (!gen_matches(r.gen, t, caps)) continue;
        takes = true;
        complete(&r, &s);
        if (nearest_legal(&r, &s, out)) return true;
    }
    const char *kind = caps->is_gpu ? "devices with groups of threads" : "processors";
    if (!family) return err_set(e, ERR_UNSUPPORTED, "'%s' has no schedule for %s", x->name, kind);
    return err_set(e, ERR_UNSUPPORTED, takes ? "'%s' as family '%s' has no legal schedule for this convolution here"
                                             : "'%s' is family '%s', which does not take this convolution here", x->name, family);
}

bool conv_impl_keeps(const struct conv_impl *x, const struct candidate *c, const struct caps *caps)
{
    struct str text = text_for(x, caps);
    for (struct rule r; next_rule(&text, &r);) {
        bool keeps = r.gen == c->gen;
        for (u32 i = 0; keeps && i < r.gen->n_param; i++) {
            const struct choice *q = &r.of[i];
            bool is_one = !q->is_fixed;
            for (u32 j = 0; j < q->n && !is_one; j++) is_one = q->v[j] == c->sched.v[i];
            keeps = is_one;
        }
        if (keeps) return true;
    }
    return false;
}

/* The tuned form. */

static double space_size(const struct rule *r)
{
    double n = 1;
    for (u32 i = 0; i < r->gen->n_param; i++) n *= r->of[i].n;
    return n;
}

/* Number k of all choices, or a random one. */
static void draw(const struct rule *r, i64 k, struct rng *rng, struct sched *s)
{
    for (u32 i = 0; i < r->gen->n_param; i++) {
        const struct choice *c = &r->of[i];
        s->v[i] = c->v[rng ? rng_range(rng, 0, c->n - 1) : k % c->n];
        k /= c->n;
    }
}

struct best {
    struct candidate *v;
    double *seconds;
    u32 n, max;
};

/* After the first, which stays, by predicted time. */
static void keep(struct best *b, const struct candidate *c, double seconds)
{
    u32 at = b->n;
    while (at > 1 && b->seconds[at - 1] > seconds) at--;
    if (at == b->max) return;
    for (u32 i = 0; i < at; i++)
        if (!memcmp(&b->v[i], c, sizeof *c)) return;
    if (b->n < b->max) b->n++;
    for (u32 i = b->n - 1; i > at; i--) b->v[i] = b->v[i - 1], b->seconds[i] = b->seconds[i - 1];
    b->v[at] = *c, b->seconds[at] = seconds;
}

u32 conv_impl_tuned(const struct conv_impl *x, const struct task *t, const struct caps *caps, const i64 *var, u64 seed,
                    struct candidate *out, u32 max, struct err *e)
{
    enum { MOST = 20000 /* visited */ };
    struct arena a = {0};
    struct wanted s = {t, caps, var};
    struct best b = {out, arena_array(&a, double, max), 1, max};
    struct str text = text_for(x, caps);
    if (!max || !conv_impl_candidate(x, t, caps, var, &out[0], e)) {
        arena_release(&a);
        return 0;
    }
    for (struct rule r; next_rule(&text, &r);) {
        struct rng rng = rng_seed(seed);
        if (!gen_matches(r.gen, t, caps)) continue;
        complete(&r, &s);
        bool all = space_size(&r) <= MOST;
        for (i64 k = 0, n = all ? (i64)space_size(&r) : MOST; k < n; k++) {
            struct candidate c = {.gen = r.gen};
            draw(&r, k, all ? NULL : &rng, &c.sched);
            if (gen_legal(&c, t, caps)) keep(&b, &c, gen_predict(&c, t, caps, var));
        }
    }
    arena_release(&a);
    return b.n;
}
