// SPDX-License-Identifier: Apache-2.0
//
// A space walked point by point: each is a candidate of the same task, and measured as every candidate is, in a child process, verified,
// beside the reference schedule, remembered at once. Points are taken from the space in pieces as they are asked for.
#include "lab/lab.h"

enum { PIECE = 256 };

struct source { /* candidates that are still to be measured */
    const struct lab_sweep *s;
    struct lab_swept *r;
    const struct task *task;
    struct lab_config *piece;
    u32 n, at;  /* of the piece */
    i64 next;   /* number of the point behind it */
    i64 end;    /* behind the last that was asked for */
    bool is_empty; /* there is no point at all */
};

static bool keep_point(void *user, const struct lab_config *c, i64 number)
{
    struct source *q = user;
    if (number >= q->end) return false;
    q->piece[q->n++] = *c;
    q->next = number + 1;
    return q->n < PIECE;
}

static bool next_point(struct source *q, struct lab_config *c)
{
    if (q->at == q->n) {
        q->n = q->at = 0;
        lab_space_each(q->s->space, q->s->rules, q->next, keep_point, q);
    }
    q->is_empty = q->n == 0 && q->r->n_points == 0;
    if (q->n == 0) return false;
    *c = q->piece[q->at++];
    q->r->n_points++;
    return true;
}

static bool take(const struct source *q, const struct lab_config *c, struct candidate *x, struct err *e)
{
    const struct lab_sweep *s = q->s;
    if (!lab_candidate(x, c, s->space->dtype, e) || !lab_fits(c, s->space->dtype, s->caps, e)) return false;
    return gen_legal(x, q->task, s->caps) ||
           err_set(e, ERR_UNSUPPORTED, "generator '%s' does not take it: %lld registers of a thread, %lld + %lld elements that it loads in a round",
                   x->gen->name, (long long)lab_registers(c), (long long)c->v[LF_BM] * c->v[LF_BK] / lab_threads(c),
                   (long long)c->v[LF_BN] * c->v[LF_BK] / lab_threads(c));
}

/* The next candidate that the family takes. */
static bool next_candidate(void *user, struct candidate *x)
{
    struct source *q = user;
    struct lab_config c;
    while (next_point(q, &c)) {
        struct err e = {0};
        if (take(q, &c, x, &e)) return true;
        if (q->r->n_refused++) continue;
        lab_name_print(&q->r->why, &c);
        buf_printf(&q->r->why, ": %s", e.msg);
    }
    return false;
}

/* Points are of one family; a search takes what there is. */
static bool check_device(const struct lab_sweep *s, const struct task *t, struct err *e)
{
    struct candidate x = {.gen = gen_find(S("wg_gemm"))};
    return s->search || (x.gen && gen_matches(x.gen, t, s->caps)) ||
           err_set(e, ERR_UNSUPPORTED, "device '%s' has no groups of threads, or cannot do such a product",
                   s->tune->driver->name);
}

/* The values that the task's product multiplies, as they lie in memory. */
static value_id operand(const struct graph *g, u32 k)
{
    const struct node *x = graph_node(g, graph_value(g, g->output.v[0])->producer);
    const struct value *v = graph_value(g, x->in.v[k]);
    return v->producer ? graph_node(g, v->producer)->in.v[0] : x->in.v[k];
}

static struct tune_vendor vendor_of(const struct lab_sweep *s, const struct task *t)
{
    struct tune_vendor r = {.name = s->vendor, .a = operand(&t->g, 0), .b = operand(&t->g, 1)};
    lab_vendor_gemm(&r.gemm, &s->space->base, s->space->dtype);
    return r;
}

static bool sweep(const struct lab_sweep *s, struct lab_swept *r, struct arena *a, struct err *e)
{
    struct symtab st;
    struct task t;
    struct source q = {.s = s, .r = r, .task = &t, .next = s->start, .end = s->max ? s->start + s->max : INT64_MAX};
    symtab_init(&st, a);
    if (!lab_task(&t, a, &st, &s->space->base, s->space->dtype, e) || !check_device(s, &t, e)) return false;
    q.piece = arena_array(a, struct lab_config, PIECE);
    struct tune_opts o = *s->tune;
    const struct tune_source points = {next_candidate, &q};
    const struct tune_vendor vendor = vendor_of(s, &t);
    o.vendor = s->vendor.n ? &vendor : NULL;
    o.source = s->search ? NULL : &points;
    o.add_candidates = true;
    struct tune_task one = {.task = &t, .var = arena_array(a, i64, 1), .weight = 1};
    bool ok = tune_run(s->db, &one, 1, &o, &r->tuned, e);
    if (ok && r->n_points && r->n_refused == r->n_points)
        return err_set(e, ERR_NOTHING, "none of %lld points can be taken: %.*s", (long long)r->n_points, STR_ARG(buf_view(&r->why)));
    if (ok && q.is_empty) return err_set(e, ERR_NOTHING, "no point has number %lld or more", (long long)s->start);
    return ok;
}

bool lab_sweep(const struct lab_sweep *s, struct lab_swept *r, struct err *e)
{
    struct arena a = {0};
    *r = (struct lab_swept){0};
    bool ok = sweep(s, r, &a, e);
    arena_release(&a);
    return ok;
}

/* What results are made of, and where they go. */
struct teller {
    const struct lab_sweep *s;
    const struct task *task;
    struct arena *a;
    struct str baseline; /* its name */
    double base;         /* its time over the reference schedule's */
};

/* Configurations by their names; of a search, which has every family, others by product, family and schedule. */
static struct str name_of(const struct teller *q, const struct trial_row *row)
{
    struct lab_config c;
    struct buf b = {0};
    bool has_name = lab_config_of(&c, &row->cand, &q->s->space->base, q->s->space->dtype);
    if (has_name) lab_name_print(&b, &c);
    else if (q->s->search) {
        lab_name_product(&b, &q->s->space->base);
        buf_printf(&b, " %.*s", STR_ARG(row->text));
    }
    struct str name = str_dup(q->a, buf_view(&b));
    buf_release(&b);
    return name;
}

/* A verified candidate, given up early or not. The reference itself may have been timed beside nothing. */
static bool result_of(struct lab_result *x, const struct teller *q, const struct trial_row *row)
{
    bool is_verified = row->status == TRIAL_OK || row->status == TRIAL_SLOW;
    double ratio = row->ratio > 0 ? row->ratio : 1, reference = row->reference > 0 ? row->reference : row->median;
    if (!is_verified || !row->n) return false;
    *x = (struct lab_result){name_of(q, row), q->base / ratio, ratio * reference * 1e3, q->base * reference * 1e3, q->baseline};
    return x->name.n > 0;
}

/* The vendor's product, where it was verified. */
static bool find_base(struct teller *q, const i64 *var, struct err *e)
{
    struct trial_row row;
    q->baseline = S("reference"), q->base = 1;
    if (!q->s->vendor.n) return true;
    if (!tune_vendor_row(q->s->db, q->s->env, q->task, var, q->s->vendor, q->a, &row, e)) return false;
    if (row.status == TRIAL_OK && row.ratio > 0) q->baseline = q->s->vendor, q->base = row.ratio;
    return true;
}

bool lab_sweep_results(const struct lab_sweep *s, struct lab_results *r, struct arena *a, struct err *e)
{
    struct symtab st;
    struct task t;
    struct trial_row *rows = NULL;
    struct lab_result x;
    struct teller q = {.s = s, .task = &t, .a = a};
    u32 n = 0;
    i64 *none = arena_array(a, i64, 1);
    symtab_init(&st, a);
    if (!lab_task(&t, a, &st, &s->space->base, s->space->dtype, e) || !find_base(&q, none, e)) return false;
    i64 task = db_task(s->db, &t, e);
    if (!task || !db_trials(s->db, s->env, task, sizes_text(a, &st, none, &t), a, &rows, &n, e)) return false;
    for (u32 i = 0; i < n; i++)
        if (result_of(&x, &q, &rows[i])) lab_results_add(r, a, &x);
    return true;
}
