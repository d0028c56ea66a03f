// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a program, each once: of a selection, or of an existing plan, whose dispatches are
// matched with the tasks of the network. The plan does not record the options of its cover, so all
// covers are searched.
#include "plan/plan.h"

/* With fewer channels, pixels of channels-last layouts are close enough in memory: blocked direct
   convolutions gained nothing on any measured layer. */
enum { BLOCKS_FROM = 256 };

static void offer_blocks(struct cover_opts *c, const struct caps *caps)
{
    if (caps->is_gpu) return;
    c->blocks = caps->vector_bytes >= 64 ? LAYOUT_C16 : LAYOUT_C8;
    c->blocks_from = BLOCKS_FROM;
}

bool plan_cover(struct cover *c, const struct graph *g, struct cover_opts opts, const struct plan_target *t, struct arena *a, struct err *e)
{
    if (t->db) offer_blocks(&opts, t->caps);
    return cover_build(c, g, a, &opts, e);
}

bool plan_covers(struct cover *c[PLAN_COVERS], const struct graph *g, const struct caps *caps, struct arena *a, struct err *e)
{
    for (u32 i = 0; i < PLAN_COVERS; i++) {
        struct cover_opts cut = {.no_fusion = i & 1, .no_concat = i >> 1 & 1};
        if (i & 4) offer_blocks(&cut, caps);
        c[i] = arena_new(a, struct cover);
        if (!cover_build(c[i], g, a, &cut, e)) return false;
    }
    return true;
}

static void add_kernel(struct plan_kernels *x, const struct plan_kernel *j)
{
    struct buf key = {0};
    char hex[33];
    hash_hex(j->task->key, hex);
    buf_printf(&key, "%s ", hex);
    candidate_print(&key, &j->cand);
    u64 *known = map_get(&x->known, buf_view(&key));
    if (known) x->kernel.v[*known].n++;
    else {
        *arr_push(x->a, &x->kernel) = *j;
        x->kernel.v[x->kernel.n - 1].n = 1;
        map_put(&x->known, str_dup(x->a, buf_view(&key)), x->kernel.n - 1);
    }
    buf_release(&key);
}

/* Of a selection. */

void plan_kernels_chosen(struct plan_kernels *x, const struct cover *c, const struct selection *s)
{
    for (u32 i = 0; i < s->choice.n; i++) {
        const struct region *r = &c->region.v[s->choice.v[i].region];
        if (r->task == NO_TASK || task_is_call(c->task.v[r->task])) continue;
        add_kernel(x, &(struct plan_kernel){.task = c->task.v[r->task], .cand = s->cost[r->task].best, .label = plan_label(c, r, x->a)});
    }
    for (u32 b = 0; b < c->body.n; b++) plan_kernels_chosen(x, c->body.v[b], &s->body[b]);
}

/* Of a program: its dispatches refer to tasks by their keys. */

static void note_tasks(struct map *by_key, const struct cover *c, struct arena *a)
{
    for (u32 i = 0; i < c->task.n; i++) {
        char hex[33];
        hash_hex(c->task.v[i]->key, hex);
        map_put(by_key, str_dup(a, str_of(hex)), (u64)(uintptr_t)c->task.v[i]);
    }
    for (u32 b = 0; b < c->body.n; b++) note_tasks(by_key, c->body.v[b], a);
}

/* Whether the code must equal the generated one: binaries of languages that quern assembles itself
   are reproducible, those of other compilers depend on their versions. */
static bool is_code_of(const struct plan_bin *bin, const struct kernel *k, const struct caps *caps, struct arena *a, bool *same, struct err *e)
{
    const struct lang *l = lang_find(bin->lang);
    struct buf text = {0}, code = {0};
    *same = true;
    if (!l || !l->builds_itself) return true;
    bool ok = lang_render(&text, l, &k->kir, caps, a, e) && l->build(&code, buf_view(&text), caps, 60, e);
    if (ok) *same = str_eq(buf_view(&code), bin->code);
    buf_release(&code);
    buf_release(&text);
    return ok;
}

/* Whether the dispatch is the schedule's kernel for the task, or the one that it shares with others: compares names (which contain a
   digest of schedule or text), sizes and grids. */
static bool check_kernel(const struct plan *p, const struct plan_dispatch *d, const struct kernel *k, const struct task *t, const struct caps *caps, struct err *e)
{
    struct arena a = {0};
    bool ok = true, same = str_is(d->entry, k->name) && d->n_param == k->n_param && d->n_grid == k->n_grid && d->n_buf == k->n_arg + k->n_temp;
    for (u32 i = 0; i < d->n_param && same; i++) same = sym_copy(t->g.sym, &p->sym, d->param[i]) == k->param[i];
    for (u32 i = 0; i < d->n_grid && same; i++)
        for (u32 x = 0; x < k->grid[i].n && same; x++) same = sym_copy(t->g.sym, &p->sym, d->grid[i].extent[x]) == k->grid[i].extent[x];
    if (same) ok = is_code_of(&p->bin.v[d->bin], k, caps, &a, &same, e);
    arena_release(&a);
    if (!ok) return false;
    return same || err_set(e, ERR_INPUT, "kernel '%.*s' differs from this version's kernel for its schedule", STR_ARG(d->entry));
}

/* The kernels of a plan as it was made: generated, and then shared. */
struct remade { struct kernel k; struct plan_kernel of; };

static bool remake(struct remade *x, const struct map *by_key, const struct plan_dispatch *d, const struct caps *caps, struct arena *a, struct err *e)
{
    u64 *task = map_get(by_key, d->task);
    if (!task)
        return err_set(e, ERR_INPUT, "'%.*s' is not a kernel of this model: the program was compiled from another model, or with other interface options",
                       STR_ARG(d->label));
    x->of = (struct plan_kernel){.task = (const struct task *)(uintptr_t)*task, .label = d->label};
    if (candidate_parse(&x->of.cand, d->candidate, e) && gen_kernel(&x->k, a, &x->of.cand, x->of.task, caps, e)) return true;
    return err_prefix(e, "%.*s", STR_ARG(d->label));
}

static bool remake_all(struct remade *x, const struct map *by_key, const struct plan *p, const struct caps *caps, struct arena *a, struct err *e)
{
    struct gen_shared *shared = arena_array(a, struct gen_shared, p->dispatch.n + 1);
    u32 n = 0;
    for (u32 i = 0; i < p->dispatch.n; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        if (d->call) continue;
        if (!remake(&x[i], by_key, d, caps, a, e)) return false;
        const struct lang *l = lang_find(p->bin.v[d->bin].lang);
        if (l && l->shares && !d->is_measured) shared[n++] = (struct gen_shared){&x[i].k, x[i].of.task, &x[i].of.cand};
    }
    return gen_share(shared, n, a, e);
}

static bool add_plan(struct plan_kernels *x, struct map *by_key, const struct plan *p, const struct caps *caps, struct err *e)
{
    struct arena a = {0};
    struct remade *made = arena_array(&a, struct remade, p->dispatch.n + 1);
    bool ok = remake_all(made, by_key, p, caps, &a, e);
    for (u32 i = 0; i < p->dispatch.n && ok; i++) {
        const struct plan_dispatch *d = &p->dispatch.v[i];
        for (u32 b = 0; d->call && b < d->call->n_sub && ok; b++) ok = add_plan(x, by_key, d->call->sub[b], caps, e);
        if (d->call || !ok) continue;
        ok = check_kernel(p, d, &made[i].k, made[i].of.task, caps, e) || err_prefix(e, "%.*s", STR_ARG(d->label));
        if (ok) add_kernel(x, &made[i].of);
    }
    arena_release(&a);
    return ok;
}

void plan_kernels_init(struct plan_kernels *x, struct arena *a)
{
    *x = (struct plan_kernels){.a = a};
    map_init(&x->known, a);
}

bool plan_kernels_of(struct plan_kernels *x, const struct plan *p, const struct graph *g, const struct caps *caps, struct err *e)
{
    struct cover *c[PLAN_COVERS];
    struct map by_key;
    map_init(&by_key, x->a);
    if (!plan_covers(c, g, caps, x->a, e)) return false;
    for (u32 i = 0; i < PLAN_COVERS; i++) note_tasks(&by_key, c[i], x->a);
    return add_plan(x, &by_key, p, caps, e);
}
