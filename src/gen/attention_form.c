// SPDX-License-Identifier: Apache-2.0
//
// attention_form: whether what lies between the products is a softmax, in whatever spelling, and which scores a mask makes -infinity. Both follow from
// the expressions that the nodes are lowered to, in a kernel that is thrown away. Likewise of gradients, whose probabilities are exponentials of masked scores
// less statistics of their rows.
#include "gen/attention_grad.h"

#include <math.h>

struct probe_kernel {
    struct arena a;
    struct kir k;
    struct emit m;
    kval known[3]; /* numbers that nothing is known of */
};

static void probe_open(struct probe_kernel *p, const struct graph *g)
{
    *p = (struct probe_kernel){0};
    kir_init(&p->k, &p->a, S("probe"));
    emit_init(&p->m, &p->k, g, op_lower, &p->a);
    emit_args(&p->m);
    kir_grid(&p->k, kir_param(&p->k, S("probe")));
    for (u32 i = 0; i < countof(p->known); i++) {
        kval array = kir_alloc(&p->k, KS_REG, DT_F32, 1, kir_int(&p->k, 1));
        kir_store(&p->k, array, kir_int(&p->k, 0), kir_cast(&p->k, DT_F32, kir_param(&p->k, str_fmt(&p->a, "probe%u", i))));
        p->known[i] = kir_load(&p->k, array, kir_int(&p->k, 0));
    }
}

static void probe_close(struct probe_kernel *p)
{
    struct arena a = p->a;
    arena_release(&a);
}

static void probe_bind(struct probe_kernel *p, value_id v, u32 known) { emit_bind(&p->m, v, gen_given, &p->known[known]); }

/* An element of v, at idx, of which nothing is known. Returns the index along the last axis, too. */
struct probed { kval value, key, idx[MAX_RANK]; };

static struct probed probe_value(struct probe_kernel *p, value_id v)
{
    const struct shape *s = &graph_value(p->m.g, v)->shape;
    struct probed x = {0};
    for (u32 i = 0; i < s->rank; i++) x.key = x.idx[i] = kir_loop(&p->k, KL_SERIAL, kir_int(&p->k, 0), emit_dim(&p->m, v, i), 1);
    x.value = emit_value(&p->m, v, x.idx);
    return x;
}

static bool is_zero(const struct kir *k, kval v)
{
    double f;
    return kir_is_float(k, v, &f) && f == 0;
}

struct linear { const struct kir *k; kval e, key; };

static bool is_of_row(const struct linear *x, kval v) { return !attention_depends(x->k, v, x->e) && !attention_depends(x->k, v, x->key); }

/* Zeros instead of NaN: where one exponential is NaN, so is the sum of the row, and with it every quotient. */
static bool is_nan_of(const struct kir *k, kval condition, kval v) { return kir_at(k, condition)->op == KI_ISNAN && kir_at(k, condition)->a == v; }

/* Is v e times a number of the row, or zero for some rows? What is rounded to another type of floats on the way is taken as such. */
static bool is_linear(const struct linear *x, kval v)
{
    const struct kir_ins *i = kir_at(x->k, v);
    if (v == x->e) return true;
    if (!attention_depends(x->k, v, x->e)) return false;
    if (i->op == KI_CAST && dtype_is_float(i->dtype) && dtype_is_float(kir_dtype(x->k, i->a))) return is_linear(x, i->a);
    if (i->op == KI_MUL) return (is_linear(x, i->a) && is_of_row(x, i->b)) || (is_of_row(x, i->a) && is_linear(x, i->b));
    if (i->op == KI_DIV) return is_linear(x, i->a) && is_of_row(x, i->b);
    if (i->op == KI_SELECT && is_nan_of(x->k, i->a, i->c)) return is_zero(x->k, i->b) && is_linear(x, i->c);
    if (i->op != KI_SELECT || !is_of_row(x, i->a)) return false;
    return (is_zero(x->k, i->b) || is_linear(x, i->b)) && (is_zero(x->k, i->c) || is_linear(x, i->c));
}

static bool find_softmax(const struct attention *x, const struct task *t)
{
    enum { SCORE, MOST, EXP = 0, SUM = 2 };
    const struct reduction *r = x->rows.red;
    struct probe_kernel p;
    if (x->rows.n != 2 || r[0].r.combine != KI_MAX || r[1].r.combine != KI_ADD) return false;
    if (attention_has_values(x) && !row_is_worth_keeping(&x->rows, 1)) return false;
    probe_open(&p, &t->g);
    probe_bind(&p, r[0].in, SCORE), probe_bind(&p, r[0].out, MOST);
    const struct kir_ins e = *kir_at(&p.k, probe_value(&p, r[1].in).value);
    const struct kir_ins d = e.op == KI_EXP ? *kir_at(&p.k, e.a) : e;
    bool ok = d.op == KI_SUB && d.a == p.known[SCORE] && d.b == p.known[MOST];
    probe_close(&p);
    if (!ok) return false;
    probe_open(&p, &t->g);
    probe_bind(&p, r[1].in, EXP), probe_bind(&p, r[0].out, MOST), probe_bind(&p, r[1].out, SUM);
    const struct probed v = probe_value(&p, x->p);
    ok = is_linear(&(struct linear){&p.k, p.known[EXP], v.key}, v.value);
    if (ok && x->columns.out) {
        const struct probed c = probe_value(&p, x->columns.in);
        ok = is_linear(&(struct linear){&p.k, p.known[EXP], c.key}, c.value);
    }
    probe_close(&p);
    return ok;
}

/* What scores are where a mask of rows and keys is false. */
enum excluded { NOT_EXCLUDED, EXCLUDED, EXCLUDED_ALL /* -infinity, so that a row without keys has none, whether they are left out or not */ };

/* The mask, taken to be `yes` everywhere, is asked for the score's own row and key. */
struct asked_mask { kval row, key; bool yes, is_elsewhere; };

static kval answer(struct emit *m, const void *user, const kval *idx)
{
    struct asked_mask *a = (struct asked_mask *)user;
    a->is_elsewhere |= idx[0] != a->row || idx[1] != a->key;
    return kir_const_i(m->k, DT_BOOL, 1, a->yes);
}

/* -infinity, or a sum with that among its last n terms. */
static bool is_infinite(const struct kir *k, kval v, u32 n)
{
    const struct kir_ins *x = kir_at(k, v);
    return attention_is_masked(k, v) || (n && x->op == KI_ADD && (is_infinite(k, x->a, n - 1) || is_infinite(k, x->b, n - 1)));
}

/* The score where the mask v, (rows, keys) of type bool, is as said; 0: v is asked for elsewhere. */
static kval masked_score(struct probe_kernel *p, const struct attention *x, value_id v, bool yes)
{
    const struct shape *s = &graph_value(p->m.g, x->score)->shape;
    kval idx[MAX_RANK];
    probe_bind(p, x->scores.y, 0);
    for (u32 i = 0; i < s->rank; i++) idx[i] = kir_loop(&p->k, KL_SERIAL, kir_int(&p->k, 0), emit_dim(&p->m, x->score, i), 1);
    struct asked_mask a = {.row = idx[s->rank - 2], .key = idx[s->rank - 1], .yes = yes};
    emit_bind(&p->m, v, answer, &a);
    kval score = emit_value(&p->m, x->score, idx);
    emit_bind(&p->m, v, NULL, NULL);
    return a.is_elsewhere ? 0 : score;
}

static enum excluded excluded_by(const struct attention *x, const struct task *t, value_id v)
{
    enum { MAX_TERMS = 8 };
    struct probe_kernel p;
    enum excluded e = NOT_EXCLUDED;
    i64 is_open;
    probe_open(&p, &t->g);
    kval score = masked_score(&p, x, v, false);
    const bool is_none = score && is_infinite(&p.k, score, MAX_TERMS);
    kval open = score && !is_none ? attention_open(&p.k, score, p.known[0]) : 0;
    if (is_none) e = EXCLUDED_ALL;
    else if (open && kir_is_const(&p.k, open, &is_open) && !is_open) e = EXCLUDED;
    probe_close(&p);
    return e;
}

/* Does nothing exclude keys where the mask v is true? */
static bool is_only_mask(const struct attention *x, const struct task *t, value_id v)
{
    struct probe_kernel p;
    i64 is_open;
    probe_open(&p, &t->g);
    kval score = masked_score(&p, x, v, true), open = score ? attention_open(&p.k, score, p.known[0]) : 0;
    bool yes = score && (!open || (kir_is_const(&p.k, open, &is_open) && is_open));
    probe_close(&p);
    return yes;
}

/* Does a band leave each row a key? */
static bool has_key_for_each(const struct attention *x, const struct graph *g, const struct op_band *b, const struct shape *s)
{
    struct symtab *st = g->sym;
    sym last = sym_add(st, s->dim[0], sym_add(st, b->offset, sym_const(st, -b->left))); /* behind the first key of the last row */
    i64 least;
    if (b->right >= 0 && !(sym_lower_bound(st, sym_add(st, b->offset, sym_const(st, b->right)), &least) && least >= 0)) return false;
    return b->left < 0 || (sym_lower_bound(st, sym_sub(st, s->dim[1], last), &least) && least >= 0);
}

bool attention_has_whole_heads(const struct attention *x, const struct graph *g)
{
    const struct shape *s = &graph_value(g, x->score)->shape;
    const sym own = s->rank >= 2 ? s->dim[s->rank - 2] : 0, m = x->scores.m;
    const i64 queries = own ? gen_eval(g, own, NULL) : 0;
    return own && (own == m || (queries > 0 && sym_mul(g->sym, sym_const(g->sym, gen_eval(g, m, NULL) / queries), own) == m));
}

/* A band that excludes keys: has_band, or has_reach where rows may be left without keys, for which others count then. */
static void find_band(struct attention *x, const struct task *t)
{
    const struct shape *s = &graph_value(&t->g, x->score)->shape;
    x->has_band = x->has_reach = false;
    if (!attention_has_whole_heads(x, &t->g)) return;
    for (node_id n = 1; n < t->g.node.n; n++) {
        const struct op *op = op_of(&t->g, n);
        const struct node *nd = graph_node(&t->g, n);
        struct op_band found;
        if (nd->dead || !op->band || !op->band(&t->g, nd, &found)) continue;
        const struct shape *b = &graph_value(&t->g, nd->out.v[0])->shape;
        if (b->rank != 2 || s->rank < 2 || b->dim[0] != s->dim[s->rank - 2] || b->dim[1] != s->dim[s->rank - 1]) continue;
        const enum excluded e = excluded_by(x, t, nd->out.v[0]);
        if (e == NOT_EXCLUDED) continue;
        x->band = found;
        x->has_band = e == EXCLUDED_ALL || (has_key_for_each(x, &t->g, &found, b) && is_only_mask(x, t, nd->out.v[0]));
        x->has_reach = !x->has_band;
        return;
    }
}

/* Scores are of the form that attention_open knows, with conditions on the key. */
static bool find_mask(struct attention *x, const struct task *t)
{
    const struct shape *s = &graph_value(&t->g, x->score)->shape;
    struct probe_kernel p;
    probe_open(&p, &t->g);
    probe_bind(&p, x->scores.y, 0);
    const struct probed score = probe_value(&p, x->score);
    kval open = attention_open(&p.k, score.value, p.known[0]);
    bool yes = open && attention_depends(&p.k, open, score.key), are_several = s->rank >= 2 && s->dim[s->rank - 2] != x->scores.m; /* heads */
    x->is_masked_by_row = false;
    for (u32 i = 0; yes && i + 1 < s->rank; i++)
        if (i + 2 == s->rank || are_several) x->is_masked_by_row |= attention_depends(&p.k, open, score.idx[i]);
    probe_close(&p);
    return yes;
}

static void find_masks(struct attention *x, const struct task *t)
{
    const i64 keys = gen_static(&t->g, x->scores.n, -1);
    find_band(x, t);
    x->has_mask = !x->has_band && (keys < 0 || keys > ATTENTION_FEW) && find_mask(x, t);
    x->has_reach = x->has_reach && x->has_mask && x->is_masked_by_row;
}

void attention_form(struct attention *x, const struct task *t, const struct caps *c)
{
    x->is_softmax = find_softmax(x, t);
    if ((x->is_softmax || x->is_exponential) && !c->deterministic) find_masks(x, t); /* sums in a promised order have all their terms */
}

/* Gradients: p = exp(score - numbers of its row), and dz = p times something. */

static value_id in_front_of_views(const struct graph *g, value_id v)
{
    node_id n = graph_value(g, v)->producer;
    const struct node *nd = n ? graph_node(g, n) : NULL;
    return nd && (op_of(g, n)->props & OP_VIEW) && nd->in.n == 1 ? in_front_of_views(g, nd->in.v[0]) : v;
}

/* of_rows: less numbers of its row. */
static bool is_exponential_of(const struct task *t, value_id p, value_id score, bool of_rows)
{
    struct probe_kernel k;
    probe_open(&k, &t->g);
    probe_bind(&k, score, 0);
    const struct probed v = probe_value(&k, p);
    const struct linear x = {&k.k, k.known[0], v.key};
    kval e = v.value;
    bool yes = kir_at(&k.k, e)->op == KI_EXP;
    if (yes) e = kir_at(&k.k, e)->a;
    for (; yes && e != x.e && kir_at(&k.k, e)->op == KI_SUB; e = kir_at(&k.k, e)->a) {
        kval less = kir_at(&k.k, e)->b;
        yes = of_rows ? is_of_row(&x, less) : !attention_depends(&k.k, less, x.e);
    }
    probe_close(&k);
    return yes && e == x.e;
}

static bool is_scaled(const struct kir *k, kval v, kval e)
{
    const struct kir_ins *i = kir_at(k, v);
    if (v == e) return true;
    if (i->op == KI_CAST && dtype_is_float(i->dtype) && dtype_is_float(kir_dtype(k, i->a))) return is_scaled(k, i->a, e);
    if (i->op != KI_MUL) return false;
    const bool first = attention_depends(k, i->a, e);
    return first != attention_depends(k, i->b, e) && is_scaled(k, first ? i->a : i->b, e); /* one of the factors is followed, not both */
}

static bool scales_p(const struct attention_grad *x, const struct task *t, value_id p)
{
    struct probe_kernel k;
    probe_open(&k, &t->g);
    probe_bind(&k, x->scores.y, 0), probe_bind(&k, p, 1), probe_bind(&k, x->slopes.y, 2);
    bool yes = is_scaled(&k.k, probe_value(&k, x->queries.a).value, k.known[1]);
    probe_close(&k);
    return yes;
}

static bool is_on_the_way(const struct task *t, value_id v, value_id from, value_id to)
{
    return v && emit_type(graph_value(&t->g, v)->dtype) == DT_F32 && gen_depends(&t->g, v, from) && gen_depends(&t->g, to, v);
}

static value_id result_of(const struct task *t, node_id n) { return graph_node(&t->g, n)->dead ? 0 : graph_node(&t->g, n)->out.v[0]; }

/* The first value on the way from the scores to p whose exponential p is. 0: none. */
static value_id find_score(const struct task *t, value_id scores, value_id p, bool of_rows)
{
    if (is_exponential_of(t, p, scores, of_rows)) return scores;
    for (node_id n = 1; n < t->g.node.n; n++) {
        value_id v = result_of(t, n);
        if (v != p && is_on_the_way(t, v, scores, p) && is_exponential_of(t, p, v, of_rows)) return v;
    }
    return 0;
}

void attention_grad_form(struct attention_grad *x, const struct task *t, const struct caps *c)
{
    value_id p = in_front_of_views(&t->g, x->values.a), score = 0;
    if (!c->deterministic && emit_type(graph_value(&t->g, p)->dtype) == DT_F32) score = find_score(t, x->scores.y, p, false);
    if (!score || !scales_p(x, t, p)) return;
    x->form.score = score;
    find_masks(&x->form, t);
}

/* Rows whose statistics are given: p and what columns sum up are exponentials of scores less numbers of their rows, times others. */

static bool is_linear_in(const struct task *t, value_id v, value_id e)
{
    struct probe_kernel k;
    probe_open(&k, &t->g);
    probe_bind(&k, e, 0);
    const struct probed x = probe_value(&k, v);
    bool yes = is_linear(&(struct linear){&k.k, k.known[0], x.key}, x.value);
    probe_close(&k);
    return yes;
}

static bool has_exponential(const struct attention *x, const struct task *t, value_id e, value_id *score)
{
    if (!is_linear_in(t, x->p, e) || (x->columns.out && !is_linear_in(t, x->columns.in, e))) return false;
    *score = find_score(t, x->scores.y, e, true);
    return *score != 0;
}

void attention_score(struct attention *x, const struct task *t)
{
    value_id score;
    x->score = x->rows.n ? x->rows.red[0].in : x->scores.y;
    for (node_id n = 1; !x->rows.n && n < t->g.node.n; n++) {
        value_id e = result_of(t, n);
        if (!is_on_the_way(t, e, x->scores.y, x->p) || e == x->scores.y || !has_exponential(x, t, e, &score)) continue;
        x->score = score, x->is_exponential = true;
        return;
    }
}
