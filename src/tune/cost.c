// SPDX-License-Identifier: Apache-2.0
//
// What the database knows of a task in one environment: its best verified candidate.
#include "tune/tune.h"

/* The reference candidate's time: median over all the trials it ran beside. 0: it never did. */
static double reference_seconds(const struct trial_row *rows, u32 n, struct arena *a)
{
    double *v = arena_array(a, double, n + 1);
    u32 k = 0;
    for (u32 i = 0; i < n; i++)
        if (rows[i].reference > 0) v[k++] = rows[i].reference;
    return stats_of(v, k).median;
}

/* Seconds of a candidate with the machine's moods taken out: its ratio to the reference, times the
 * reference's time. */
static double row_seconds(const struct trial_row *r, double reference)
{
    if (reference <= 0) return r->median;
    return r->ratio > 0 ? r->ratio * reference : reference;
}

bool tune_best(struct db *d, i64 env, const struct task *t, const i64 *var, struct task_known *k,
               struct err *e)
{
    struct arena tmp = {0};
    struct trial_row *rows = NULL;
    u32 n = 0;
    *k = (struct task_known){0};
    i64 id = db_task(d, t, e);
    bool ok =
        id != 0 && db_trials(d, env, id, sizes_text(&tmp, t->g.sym, var, t), &tmp, &rows, &n, e);
    double reference = ok ? reference_seconds(rows, n, &tmp) : 0;
    for (u32 i = 0; i < n && ok; i++) {
        k->n_trials += rows[i].n > 0;
        if (rows[i].status != TRIAL_OK || rows[i].n == 0) continue;
        double seconds = row_seconds(&rows[i], reference);
        if (k->measured && seconds >= k->seconds) continue;
        k->measured = true;
        k->best = rows[i].cand;
        k->seconds = seconds;
    }
    arena_release(&tmp);
    return ok;
}
