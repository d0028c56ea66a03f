// SPDX-License-Identifier: Apache-2.0
//
// State of the search for one task: loads the results of a task from the database, and those of
// other tasks for transfer.
#include "tune/search.h"

enum { MAX_PAST = 256 /* tasks of the database besides the tuned ones */ };

/* Label such as "Conv+Relu 1x32x32x48": operators, and the output's shape. */
static struct str task_search_label(const struct search_env *env, const struct task_search *ts)
{
    const struct graph *g = &ts->t->task->g;
    const struct shape *s = &graph_value(g, g->output.v[0])->shape;
    struct buf b = {0};
    i64 dim[MAX_RANK];
    for (node_id n = 1; n < g->node.n; n++) {
        if (b.n) buf_char(&b, '+');
        buf_str(&b, graph_node(g, n)->op);
    }
    if (shape_eval(g->sym, s, ts->t->var, dim))
        for (u32 d = 0; d < s->rank; d++)
            buf_printf(&b, "%c%lld", d ? 'x' : ' ', (long long)dim[d]);
    struct str label = str_dup(env->arena, buf_view(&b));
    buf_release(&b);
    return label;
}

void trial_take_row(struct trial *x, const struct trial_row *row)
{
    x->n = row->n, x->n_final = row->n_final;
    x->median = row->median, x->ratio = row->ratio;
    x->ratio_low = row->ratio_low, x->ratio_high = row->ratio_high;
    x->reference = row->reference;
}

static struct str id_bytes(const i64 *trial) { return (struct str){(const char *)trial, sizeof *trial}; }

const u64 *task_search_find(const struct task_search *ts, i64 trial) { return map_get(&ts->place, id_bytes(&trial)); }

u32 task_search_add(struct task_search *ts, struct arena *a, const struct trial *x)
{
    u32 at = ts->known.n;
    *arr_push(a, &ts->known) = *x;
    map_put(&ts->place, id_bytes(&x->id), at);
    return at;
}

void task_search_queue(struct task_search *ts, struct trial *x, bool is_queued)
{
    ts->n_queued += (u32)is_queued - (u32)x->is_queued;
    x->is_queued = is_queued;
}

bool task_search_reread(struct task_search *ts, const struct search_env *env)
{
    struct arena a = {0};
    struct trial_row *rows;
    u32 n;
    bool ok = db_trials(env->db, env->env, ts->db_task, ts->sizes, &a, &rows, &n, env->e);
    const struct trial_row *best = ok ? tune_choice(rows, n) : NULL;
    for (u32 i = 0; i < n && ok; i++) {
        const u64 *at = task_search_find(ts, rows[i].id);
        if (!at) continue;
        struct trial *x = &ts->known.v[*at];
        if (rows[i].id != ts->base_trial) trial_take_row(x, &rows[i]);
        if (&rows[i] == best) ts->best_at = (i32)*at, ts->best_ratio = x->ratio, ts->best = task_search_seconds(ts, x);
    }
    arena_release(&a);
    return ok;
}

bool task_search_load(struct task_search *ts, const struct tune_task *task, const struct search_env *env)
{
    struct trial_row *rows;
    u32 n = 0;
    *ts = (struct task_search){.t = task, .best_at = -1, .best_ratio = 1, .expected_gain = 0.5};
    map_init(&ts->seen, env->arena);
    map_init(&ts->place, env->arena);
    ts->label = task_search_label(env, ts);
    struct candidate def;
    ts->predicted = gen_default(task->task, env->caps, task->var, &def)
                       ? gen_predict(&def, task->task, env->caps, task->var)
                       : 1e-6;
    ts->sizes = sizes_text(env->arena, task->task->g.sym, task->var, task->task);
    ts->db_task = db_task(env->db, task->task, env->e);
    struct arena tmp = {0};
    bool ok = ts->db_task && db_trials(env->db, env->env, ts->db_task, ts->sizes, &tmp, &rows, &n, env->e);
    for (u32 i = 0; i < n && ok; i++) {
        u32 at = task_search_add(ts, env->arena, &(struct trial){.cand = rows[i].cand, .id = rows[i].id, .status = rows[i].status});
        struct trial *x = &ts->known.v[at];
        trial_take_row(x, &rows[i]);
        /* a run killed between samples and verdict leaves a verified but unfinished trial, which is
           measured again */
        if (x->status != TRIAL_NEW) task_search_mark(ts, &x->cand), ts->n_tried++;
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

/* Parses a task and its sizes from the database. */
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

static bool is_listed(struct task_search *const *v, u32 n, const struct db_todo *todo)
{
    for (u32 i = 0; i < n; i++)
        if (v[i]->db_task == todo->task && str_eq(v[i]->sizes, todo->sizes)) return true;
    return false;
}

bool search_load_past(struct search *s, struct task_search *v, u32 n, const struct search_env *env)
{
    struct db_todo *todo;
    u32 n_todo;
    if (!db_tasks(env->db, env->env, env->arena, &todo, &n_todo, env->e)) return false;
    struct task_search **past = arena_array(env->arena, struct task_search *, n + n_todo + 1);
    *s = (struct search){.caps = env->caps, .rng = s->rng, .past = past};
    for (u32 i = 0; i < n; i++) past[s->n_past++] = &v[i];
    for (u32 i = 0; i < n_todo && s->n_past < n + MAX_PAST; i++) {
        struct err gone = {0};
        struct tune_task *task = arena_new(env->arena, struct tune_task);
        struct task_search *ts = arena_new(env->arena, struct task_search);
        if (is_listed(past, n, &todo[i]) || !tune_read_todo(task, &todo[i], env->arena, &gone)) continue;
        if (!task_search_load(ts, task, env)) return false;
        past[s->n_past++] = ts;
    }
    return true;
}

/* Uses ratios to the base beside each sample instead of seconds, so that the load of the machine
   cancels out. */
double task_search_seconds(const struct task_search *ts, const struct trial *x)
{
    return x->ratio > 0 && ts->base_time.median > 0 ? x->ratio * ts->base_time.median : x->median;
}
