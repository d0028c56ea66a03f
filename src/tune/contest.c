// SPDX-License-Identifier: Apache-2.0
//
// Contests from the database: tasks of a run with what is known of them, and other tasks to learn from.
#include "tune/search.h"

enum { MAX_PAST = 256 /* tasks of the database besides those that are tuned */ };

/* "Conv+Relu 1x32x32x48": operators, and the output at these sizes. */
static struct str contest_label(const struct shelf *t, const struct contest *c)
{
    const struct graph *g = &c->t->task->g;
    const struct shape *s = &graph_value(g, g->output.v[0])->shape;
    struct buf b = {0};
    i64 dim[MAX_RANK];
    for (node_id n = 1; n < g->node.n; n++) {
        if (b.n) buf_char(&b, '+');
        buf_str(&b, graph_node(g, n)->op);
    }
    if (shape_eval(g->sym, s, c->t->var, dim))
        for (u32 d = 0; d < s->rank; d++)
            buf_printf(&b, "%c%lld", d ? 'x' : ' ', (long long)dim[d]);
    struct str label = str_dup(t->arena, buf_view(&b));
    buf_release(&b);
    return label;
}

void entrant_take(struct entrant *x, const struct trial_row *row)
{
    x->n = row->n, x->n_final = row->n_final;
    x->median = row->median, x->ratio = row->ratio;
    x->ratio_low = row->ratio_low, x->ratio_high = row->ratio_high;
    x->reference = row->reference;
}

static struct str id_bytes(const i64 *trial) { return (struct str){(const char *)trial, sizeof *trial}; }

const u64 *contest_find(const struct contest *c, i64 trial) { return map_get(&c->place, id_bytes(&trial)); }

u32 contest_add(struct contest *c, struct arena *a, const struct entrant *x)
{
    u32 at = c->known.n;
    *arr_push(a, &c->known) = *x;
    map_put(&c->place, id_bytes(&x->trial), at);
    return at;
}

void contest_queue(struct contest *c, struct entrant *x, bool is_queued)
{
    c->n_queued += (u32)is_queued - (u32)x->is_queued;
    x->is_queued = is_queued;
}

bool contest_reread(struct contest *c, const struct shelf *s)
{
    struct arena a = {0};
    struct trial_row *rows;
    u32 n;
    bool ok = db_trials(s->db, s->env, c->db_task, c->sizes, &a, &rows, &n, s->e);
    const struct trial_row *best = ok ? tune_choice(rows, n) : NULL;
    for (u32 i = 0; i < n && ok; i++) {
        const u64 *at = contest_find(c, rows[i].id);
        if (!at) continue;
        struct entrant *x = &c->known.v[*at];
        if (rows[i].id != c->base_trial) entrant_take(x, &rows[i]);
        if (&rows[i] == best) c->best_at = (i32)*at, c->best_ratio = x->ratio, c->best = contest_seconds(c, x);
    }
    arena_release(&a);
    return ok;
}

bool contest_load(struct contest *c, const struct tune_task *task, const struct shelf *t)
{
    struct trial_row *rows;
    u32 n = 0;
    *c = (struct contest){.t = task, .best_at = -1, .best_ratio = 1, .hope = 0.5};
    map_init(&c->seen, t->arena);
    map_init(&c->place, t->arena);
    c->label = contest_label(t, c);
    struct candidate def;
    c->predicted = gen_default(task->task, t->caps, task->var, &def)
                       ? gen_predict(&def, task->task, t->caps, task->var)
                       : 1e-6;
    c->sizes = sizes_text(t->arena, task->task->g.sym, task->var, task->task);
    c->db_task = db_task(t->db, task->task, t->e);
    struct arena tmp = {0};
    bool ok = c->db_task && db_trials(t->db, t->env, c->db_task, c->sizes, &tmp, &rows, &n, t->e);
    for (u32 i = 0; i < n && ok; i++) {
        u32 at = contest_add(c, t->arena, &(struct entrant){.cand = rows[i].cand, .trial = rows[i].id, .status = rows[i].status});
        struct entrant *x = &c->known.v[at];
        entrant_take(x, &rows[i]);
        /* killed between its samples and its verdict: verified but unfinished, so it is measured
         * again */
        if (x->status != TRIAL_NEW) contest_mark(c, &x->cand), c->n_tried++;
    }
    arena_release(&tmp);
    return ok;
}

static bool parse_sizes(struct symtab *st, struct str text, i64 *var)
{
    for (u32 v = 0; v < st->var.n; v++) var[v] = INT64_MIN;
    while (text.n) {
        struct str item, name, value;
        str_cut(text, ' ', &item, &text);
        i64 x;
        if (!str_cut(item, '=', &name, &value) || !str_to_i64(value, &x)) return false;
        sym s = sym_var(st, name);
        var[st->node.v[s].a] = x;
    }
    return true;
}

/* A task and sizes of the database. */
bool tune_read_todo(struct tune_task *to, const struct db_todo *todo, struct arena *a,
                      struct err *e)
{
    struct task *t = arena_new(a, struct task);
    struct symtab *st = arena_new(a, struct symtab);
    symtab_init(st, a);
    i64 *var = arena_array(a, i64, GEN_MAX_VARS);
    *to = (struct tune_task){.task = t, .var = var, .weight = 1};
    if (!task_restore(t, a, st, todo->text, e)) return false;
    if (st->var.n > GEN_MAX_VARS || !parse_sizes(st, todo->sizes, var)) return err_set(e, ERR_INPUT, "malformed sizes '%.*s'", STR_ARG(todo->sizes));
    return task_fits(t, var) || err_set(e, ERR_INPUT, "a task that cannot have the sizes '%.*s'", STR_ARG(todo->sizes));
}

static bool is_listed(struct contest *const *v, u32 n, const struct db_todo *todo)
{
    for (u32 i = 0; i < n; i++)
        if (v[i]->db_task == todo->task && str_eq(v[i]->sizes, todo->sizes)) return true;
    return false;
}

bool contests_past(struct search *s, struct contest *v, u32 n, const struct shelf *t)
{
    struct db_todo *todo;
    u32 n_todo;
    if (!db_tasks(t->db, t->env, t->arena, &todo, &n_todo, t->e)) return false;
    struct contest **past = arena_array(t->arena, struct contest *, n + n_todo + 1);
    *s = (struct search){.caps = t->caps, .rng = s->rng, .past = past};
    for (u32 i = 0; i < n; i++) past[s->n_past++] = &v[i];
    for (u32 i = 0; i < n_todo && s->n_past < n + MAX_PAST; i++) {
        struct err gone = {0};
        struct tune_task *task = arena_new(t->arena, struct tune_task);
        struct contest *c = arena_new(t->arena, struct contest);
        if (is_listed(past, n, &todo[i]) || !tune_read_todo(task, &todo[i], t->arena, &gone)) continue;
        if (!contest_load(c, task, t)) return false;
        past[s->n_past++] = c;
    }
    return true;
}

/* Ratios to the base beside it, not seconds: what else the machine was doing at the time cancels
 * out. */
double contest_seconds(const struct contest *c, const struct entrant *x)
{
    return x->ratio > 0 && c->base_time.median > 0 ? x->ratio * c->base_time.median : x->median;
}
