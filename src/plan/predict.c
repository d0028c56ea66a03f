// SPDX-License-Identifier: Apache-2.0
//
// Default schedules of tasks, and their predicted times. A search takes milliseconds for each task
// and family, and a network has hundreds of tasks, so several processes share them: each takes the
// next task that no other one has taken and leaves the result in shared memory. The result of a
// search depends on its task alone, not on the process. A task whose process ended early is
// searched by the caller.
#include "plan/plan.h"

#include <stdatomic.h>

enum { MAX_CHILDREN = 15 };

struct shared {
    _Atomic u32 next;       /* first task that no process has taken */
    struct entry {
        _Atomic bool is_known;
        struct task_cost cost;
    } entry[];              /* per task */
};

struct predictor {
    const struct task *const *task;
    u32 n;
    const struct caps *caps;
    const i64 *var;
    struct shared *shared;  /* NULL: the caller works alone */
    struct os_child child[MAX_CHILDREN];
    u32 n_children;
};

static struct task_cost predict(const struct task *t, const struct caps *caps, const i64 *var)
{
    struct task_cost c = {0};
    c.ok = gen_default(t, caps, var, &c.best);
    if (c.ok) c.seconds = gen_predict(&c.best, t, caps, var);
    return c;
}

bool plan_cost_predicted(void *user, const struct task *t, const i64 *var, struct task_cost *c)
{
    *c = predict(t, user, var);
    return c->ok;
}

/* false: all are taken. */
static bool predict_next(const struct predictor *p)
{
    u32 i = atomic_fetch_add(&p->shared->next, 1);
    if (i >= p->n) return false;
    struct entry *x = &p->shared->entry[i];
    x->cost = predict(p->task[i], p->caps, p->var);
    atomic_store(&x->is_known, true);
    return true;
}

static void child_main(void *user, int fd)
{
    while (predict_next(user)) {}
}

static i64 shared_bytes(const struct predictor *p) { return (i64)(sizeof *p->shared + p->n * sizeof p->shared->entry[0]); }

static void start(struct predictor *p, const struct stop *stop)
{
    struct err e = {0};
    i64 n = i64_min(i64_min(os_n_cpus(), p->n) - 1, MAX_CHILDREN);
    p->shared = n > 0 ? os_share(shared_bytes(p)) : NULL;
    while (p->shared && p->n_children < n && os_child_start(&p->child[p->n_children], child_main, p, &e)) p->child[p->n_children++].stop = stop;
}

/* Takes part, then waits for the children, which send nothing and close their ends. */
static bool work(struct predictor *p, struct err *e)
{
    bool ok = true;
    while (p->shared && (ok = mem_check(e, "choosing kernels", S(""))) && predict_next(p)) {}
    for (u32 k = 0; k < p->n_children && ok; k++) {
        char none;
        if (os_child_get(&p->child[k], &none, 1, 0) == OS_STOPPED) ok = err_set(e, ERR_STOPPED, "stopped");
    }
    return ok;
}

bool plan_predict(const struct task *const *task, u32 n, const struct caps *caps, const i64 *var, struct task_cost *cost, struct err *e)
{
    struct predictor p = {.task = task, .n = n, .caps = caps, .var = var};
    start(&p, e->stop);
    bool ok = work(&p, e);
    for (u32 k = 0; k < p.n_children; k++) os_child_end(&p.child[k]);
    for (u32 i = 0; i < n && ok; i++) {
        const struct entry *x = p.shared ? &p.shared->entry[i] : NULL;
        bool is_known = x && atomic_load(&x->is_known);
        ok = is_known || mem_check(e, "choosing kernels", S(""));
        if (ok) cost[i] = is_known ? x->cost : predict(task[i], caps, var);
    }
    os_unshare(p.shared, shared_bytes(&p));
    return ok;
}
