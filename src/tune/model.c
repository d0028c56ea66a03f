// SPDX-License-Identifier: Apache-2.0
//
// Learned correction of the families' predictions: a Gaussian process over log(measured /
// predicted) (Rasmussen and Williams, Gaussian Processes for Machine Learning, algorithm 2.1). Two
// schedules are similar if their parameters are (same family) or if features of their kernels are:
// counts of loads, arithmetic, registers, memory, grid iterations, per operation of the task.
// Features are comparable across families and tasks; rows of other tasks count less the more
// distant the task is. At most a few hundred rows, so that fitting takes a fraction of a trial.
// Stateless and deterministic.
#include "tune/search.h"

#include <math.h>

/* Shares of the variance: of the task as a whole, the family, the parameters, the kernel features;
   noise. Lengths: distances that about halve the similarity. */
static const double by_task = 0.05, by_family = 0.15, by_param = 0.4, by_fact = 0.4, noise = 0.02;
static const double param_length = 16, fact_length = 4.5, least_variance = 0.02, first_variance = 0.25;

/* Kernel features. */

void point_of(struct point *p, const struct candidate *c, const float fact[N_FACTS], u32 task, double near)
{
    *p = (struct point){.gen = c->gen, .task = task, .near = (float)near};
    for (u32 i = 0; i < N_FACTS; i++) p->fact[i] = fact[i];
    for (u32 i = 0; i < c->gen->n_param; i++) p->param[i] = (float)log2(1 + fabs((double)c->sched.v[i]));
}

static bool count_kernel(const struct kernel *k, const struct task *t, const i64 *var, struct kir_cost *cost, double *work,
                         double *rounds)
{
    struct arena a = {0};
    const struct symtab *st = t->g.sym;
    i64 *param = arena_array(&a, i64, k->n_param + 1), bytes = 0;
    bool ok = !k->work || sym_eval(st, k->work, var, &bytes);
    for (u32 i = 0; i < k->n_param && ok; i++) ok = sym_eval(st, k->param[i], var, &param[i]);
    *rounds = 0;
    for (u32 g = 0; g < k->n_grid && ok; g++) {
        double n = 1;
        i64 x = 1;
        for (u32 d = 0; d < k->grid[g].n && ok; d++) ok = sym_eval(st, k->grid[g].extent[d], var, &x), n *= (double)x;
        *rounds += n;
    }
    if (ok) kir_count(&k->kir, param, cost);
    *work = (double)bytes;
    arena_release(&a);
    return ok;
}

static float part(double x, double whole) { return (float)log2(fmax(x, 1) / whole); }

bool facts_of(float fact[N_FACTS], const struct candidate *c, const struct task *t, const struct caps *caps, const i64 *var,
              double predicted)
{
    struct arena a = {0};
    struct kernel k;
    struct kir_cost cost;
    struct err e = {0};
    double work, rounds, ops = fmax(fmax(task_flops(t, var), task_bytes(t, var)), 1);
    bool ok = gen_kernel(&k, &a, c, t, caps, &e) && count_kernel(&k, t, var, &cost, &work, &rounds);
    if (ok) {
        const float v[N_FACTS] = {
            part(predicted * 1e12, ops),    part(cost.flops, ops),        part(cost.instructions, ops),
            part(cost.bytes_loaded, ops),   part(cost.bytes_stored, ops), part(cost.n_regs + 1.0, 1),
            part(work + 4096, 1) / 2,       part(rounds, 1) / 2,          part(k.kir.ins.n, 1),
            part(kir_threads(&k.kir), 1),
        };
        for (u32 i = 0; i < N_FACTS; i++) fact[i] = v[i];
    }
    arena_release(&a);
    return ok;
}

/* Covariance, 1 for equal points. Positive definite as a combination of sums and products of such
   kernels; between tasks s_t s_u, and 1 within one. */
static double likeness(const struct point *p, const struct point *q)
{
    double d = 0, e = 0, near = p->task == q->task ? 1 : (double)p->near * q->near;
    for (u32 i = 0; i < N_FACTS; i++) {
        double x = p->fact[i] - q->fact[i];
        d += x * x;
    }
    double k = by_fact * exp(-0.5 * d / (fact_length * fact_length));
    if (p->gen == q->gen) {
        for (u32 i = 0; i < p->gen->n_param; i++) e += fabs((double)p->param[i] - q->param[i]);
        k += by_family + by_param * exp(-e / param_length);
    }
    return near * k + (p->task == q->task ? by_task : 0);
}

static const double all = 1; /* by_task + by_family + by_param + by_fact */

/* Rows. */

void model_init(struct model *m, struct arena *a, u32 max)
{
    *m = (struct model){.max = max,
                        .p = arena_array(a, struct point, max),
                        .y = arena_array(a, double, max),
                        .weight = arena_array(a, double, max),
                        .l = arena_array(a, double, (i64)max * (max + 1) / 2)};
}

static double *row_of(const struct model *m, u32 i) { return m->l + (i64)i * (i + 1) / 2; }

/* v = L^-1 k: the covariance of p with the rows. */
static void solve_rows(const struct model *m, const struct point *p, double *v)
{
    for (u32 i = 0; i < m->n; i++) {
        const double *l = row_of(m, i);
        double x = likeness(&m->p[i], p);
        for (u32 k = 0; k < i; k++) x -= l[k] * v[k];
        v[i] = x / l[i];
    }
}

void model_add(struct model *m, const struct point *p, double y)
{
    if (m->n == m->max) return;
    double *l = row_of(m, m->n), left = all + noise;
    solve_rows(m, p, l);
    for (u32 k = 0; k < m->n; k++) left -= l[k] * l[k];
    l[m->n] = sqrt(fmax(left, noise / 2));
    m->p[m->n] = *p;
    m->y[m->n++] = y;
}

/* The weights are K^-1 y. */
void model_fit(struct model *m)
{
    double sum = 0, square = 0;
    for (u32 i = 0; i < m->n; i++) sum += m->y[i], square += m->y[i] * m->y[i];
    double mean = m->n ? sum / m->n : 0;
    m->variance = m->n < 8 ? first_variance : fmax(square / m->n - mean * mean, least_variance);
    for (u32 i = 0; i < m->n; i++) {
        const double *l = row_of(m, i);
        double x = m->y[i];
        for (u32 k = 0; k < i; k++) x -= l[k] * m->weight[k];
        m->weight[i] = x / l[i];
    }
    for (u32 i = m->n; i-- > 0;) {
        m->weight[i] /= row_of(m, i)[i];
        for (u32 k = 0; k < i; k++) m->weight[k] -= row_of(m, i)[k] * m->weight[i];
    }
}

double model_mean(const struct model *m, const struct point *p)
{
    double y = 0;
    for (u32 i = 0; i < m->n; i++) y += m->weight[i] * likeness(&m->p[i], p);
    return y;
}

double model_deviation(const struct model *m, const struct point *p, double *v)
{
    double left = all;
    solve_rows(m, p, v);
    for (u32 i = 0; i < m->n; i++) left -= v[i] * v[i];
    return sqrt(fmax(left, 0) * m->variance);
}

/* One more column of L^-1 k. */
double model_deviation_after(const struct model *m, const struct point *p, double *v)
{
    double left = all, x = likeness(&m->p[m->n - 1], p);
    const double *l = row_of(m, m->n - 1);
    for (u32 k = 0; k + 1 < m->n; k++) x -= l[k] * v[k], left -= v[k] * v[k];
    v[m->n - 1] = x / l[m->n - 1];
    left -= v[m->n - 1] * v[m->n - 1];
    return sqrt(fmax(left, 0) * m->variance);
}
